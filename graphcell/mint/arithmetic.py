"""Element by element: functions of mint whose arguments have other names than those of `ops`.

Enters: Tensors and numbers, which broadcast. Leaves: what `ops` computes. Both modes, with gradients.
"""

from __future__ import annotations

from typing import Any

from graphcell import ops
from graphcell.errors import ArgumentTypeError, ShapeError
from graphcell.tensor import Tensor


def addcdiv(input: Any, tensor1: Any, tensor2: Any, *, value: Any = 1) -> Tensor:
    """input + value * tensor1 / tensor2, which broadcast."""
    return ops.addcdiv(input, tensor1, tensor2, value)


def clone(input: Tensor) -> Tensor:
    """A Tensor with the values of input in memory of its own; gradients flow through.

    Raises:
        TypeError: input is no Tensor.
    """
    return ops.deepcopy(input)


def equal(input: Tensor, other: Tensor) -> Any:
    """Whether two Tensors have one shape and equal elements: a bool; a Bool scalar in a graph, where values are not known.

    Raises:
        TypeError: one is no Tensor.
    """
    for name, x in (("input", input), ("other", other)):
        if not isinstance(x, Tensor):
            raise ArgumentTypeError(f"equal: {name} must be a Tensor, but is {type(x).__name__}")
    if input.shape != other.shape:
        return False
    same = ops.eq(input, other).all()
    return same if same.is_symbolic else bool(same)


def fix(input: Any) -> Tensor:
    """The integer part, rounded towards 0; the same as `trunc`."""
    return ops.trunc(input)


def frac(input: Any) -> Tensor:
    """input - trunc(input)."""
    return ops.frac(input)


def isnan(tensor: Any) -> Tensor:
    """True (Bool) where an element is no number."""
    return ops.isnan(tensor)


def repeat_interleave(input: Tensor, repeats: Any, dim: int | None = None, *, output_size: int | None = None) -> Tensor:
    """Each element along `dim` (default: of the flattened input) `repeats` times in a row: an int, or a Tensor or list of one for each.

    Raises:
        ValueError: output_size is not the extent that `dim` gets.
    """
    y = ops.repeat_interleave(input, repeats, dim)
    extent = y.shape[dim or 0]
    if output_size is not None and extent != output_size:
        raise ShapeError(f"repeat_interleave: output_size is {output_size}, but there are {extent} elements")
    return y
