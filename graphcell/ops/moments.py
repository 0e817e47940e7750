"""Mean and variance along axes, as one primitive: its gradient is that of the formula, and codegen may find both in one pass."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphcell.errors import DTypeError, ShapeError
from graphcell.ir.op import Array, Op, frozen
from graphcell.ir.types import Shape, TensorType
from graphcell.ops.base import reduced_shape

Grads = tuple[Any, ...]


@frozen
class Moments(Op):
    """Mean and (biased) variance of x along `axis`, these dimensions kept with extent 1; both 0 where there are no elements.

    The variance is that of the centred values: a large mean costs no digits of it. Natively, long columns are taken in blocks of rows,
    each with its own mean, which are then combined (Chan, Golub and LeVeque, 1979).
    """

    axis: tuple[int, ...]
    name = "moments"
    eval_element_nanoseconds = 6.0

    def count(self, shape: Shape) -> int:
        """Elements behind one mean."""
        return math.prod(shape[a] for a in self.axis)

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType]:  # type: ignore[override]
        if not x.dtype.is_float:
            raise DTypeError(f"moments: the operand must be of floats, but is {x.dtype}")
        if any(not 0 <= a < x.rank for a in self.axis):
            raise ShapeError(f"moments: axis {self.axis} is outside of shape {x.shape}")
        result = x.with_shape(reduced_shape(x.shape, self.axis, True))
        return result, result

    def eval(self, x: Array) -> tuple[Array, Array]:  # type: ignore[override]
        wide = x.astype(np.float64)  # numpy adds the rows of a column one by one
        inverse = 1.0 / max(self.count(x.shape), 1)
        with np.errstate(over="ignore", invalid="ignore"):
            mean = wide.sum(self.axis, keepdims=True) * inverse
            centred = wide - mean
            var = (centred * centred).sum(self.axis, keepdims=True) * inverse
            return mean.astype(x.dtype), var.astype(x.dtype)

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        x, mean = inputs[0], outputs[0]
        inverse = 1.0 / max(self.count(x.shape), 1)
        g_mean, g_var = cotangents
        total: Any = None
        if g_mean is not None:
            total = (g_mean * inverse).broadcast_to(x.shape)
        if g_var is not None:
            part = (x - mean) * (g_var * (2.0 * inverse))
            total = part if total is None else total + part
        return (total,)


__all__ = ["Moments"]
