"""Clipping of gradients by their norm. Enters: a Tensor, or a tuple or list of them that counts as one long vector."""

from __future__ import annotations

import math
from typing import Any

from graphcell import dtype as dt
from graphcell.errors import ArgumentTypeError, ArgumentValueError, ExecutionError
from graphcell.ops.arithmetic import Abs
from graphcell.ops.dispatch import apply1
from graphcell.ops.functional.arithmetic import addn, maximum, pow
from graphcell.ops.functional.axes import tensors_of
from graphcell.ops.functional.common import cast, is_number
from graphcell.ops.functional.comparison import isfinite
from graphcell.ops.kernels import composite
from graphcell.tensor import Tensor

__all__ = ["clip_by_global_norm", "clip_by_norm"]


def _vectors(x: Any, function: str) -> tuple[Tensor, ...]:
    """The Tensors of x as floats."""
    given = (x,) if isinstance(x, Tensor) else tensors_of(x, function, "x")
    return tuple(t if t.dtype.is_float else cast(t, dt.float32) for t in given)


def _norm(xs: tuple[Tensor, ...], order: float) -> Tensor:
    """The norm of all elements together, in float32 at least."""
    sizes = [apply1(Abs(), t if t.dtype.bits >= 32 else cast(t, dt.float32)) for t in xs]
    if math.isinf(order):
        largest: Tensor = sizes[0].max()
        for size in sizes[1:]:
            largest = maximum(largest, size.max())
        return largest
    return pow(addn([pow(size, order).sum() for size in sizes]), 1.0 / order)


def clip_by_norm(x: Any, max_norm: Any, norm_type: float = 2.0, error_if_nonfinite: bool = False) -> Any:
    """x scaled by max_norm / (norm + 1e-6) where the norm of order `norm_type` is greater than that.

    Args:
        max_norm: a number or a Tensor of one element.
        norm_type: positive; infinity for the largest magnitude.
        error_if_nonfinite: raise if the norm is NaN or infinite. Only where it is known, not while a graph is being built.

    Returns:
        A Tensor, or a tuple of them.

    Raises:
        TypeError: x is no Tensor, nor a tuple or list of them. ValueError: norm_type is not positive. RuntimeError: see above.
    """
    if not is_number(norm_type) or norm_type <= 0:
        raise ArgumentValueError(f"clip_by_norm: norm_type must be a positive number, but is {norm_type!r}")
    xs = _vectors(x, "clip_by_norm")
    norm = _norm(xs, float(norm_type))
    if error_if_nonfinite and not norm.is_symbolic and not bool(isfinite(norm)):
        raise ExecutionError(f"clip_by_norm: the norm of order {norm_type} is {norm.item()}")
    scale = (max_norm / (norm + 1e-6)).clamp(None, 1.0)
    return _scaled(x, xs, scale)


@composite
def clip_by_global_norm(x: Any, clip_norm: float = 1.0, use_norm: Any = None) -> Any:
    """x scaled by clip_norm / max(norm, clip_norm), with the Euclidean norm of all elements together.

    Returns:
        A Tensor, or a tuple of them, in the dtypes of x.

    Raises:
        TypeError: x is no Tensor, nor a tuple or list of them, or clip_norm no number. ValueError: clip_norm is not positive, or use_norm is given.
    """
    if not is_number(clip_norm):
        raise ArgumentTypeError(f"clip_by_global_norm: clip_norm must be a number, but is {type(clip_norm).__name__}")
    if clip_norm <= 0:
        raise ArgumentValueError(f"clip_by_global_norm: clip_norm must be positive, but is {clip_norm}")
    if use_norm is not None:
        raise ArgumentValueError("clip_by_global_norm: use_norm must be None")
    xs = _vectors(x, "clip_by_global_norm")
    norm = _norm(xs, 2.0)
    return _scaled(x, xs, clip_norm / maximum(norm, float(clip_norm)))


def _scaled(x: Any, xs: tuple[Tensor, ...], scale: Tensor) -> Any:
    results = tuple(t * cast(scale.reshape(()), t.dtype) for t in xs)
    return results[0] if isinstance(x, Tensor) else results
