"""Tensors of evenly spaced numbers, and of one number."""

from __future__ import annotations

from typing import Any

from graphcell import dtype as dt
from graphcell import ops
from graphcell.tensor import Tensor


def arange(start: Any = 0, end: Any = None, step: Any = 1, *, dtype: Any = None) -> Tensor:
    """start, start + step, … below `end`; with one number from 0 to it. Int64 for ints, else float32, unless `dtype` says otherwise.

    Raises:
        TypeError: no numbers. ValueError: step is 0, or leads away from the end.
    """
    return ops.arange(start, end, step, dtype=dtype)


def linspace(start: Any, end: Any, steps: int, *, dtype: Any = None) -> Tensor:
    """`steps` evenly spaced numbers from start to end, both included; dtype: by default float32.

    Raises:
        TypeError: no numbers. ValueError: steps is not positive.
    """
    if dtype is None:
        return ops.cast(ops.linspace(start, end, steps), dt.float32)
    return ops.cast(ops.linspace(ops.cast(start, dt.float64), ops.cast(end, dt.float64), steps), dtype)


def full_like(input: Tensor, fill_value: Any, *, dtype: Any = None) -> Tensor:
    """A Tensor of the shape and (unless given) dtype of input with the number `fill_value` in every element."""
    return ops.full_like(input, fill_value, dtype=dtype)
