"""Primitives that run along an axis: cumulative sums, products and extrema."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphcell import dtype as dt
from graphcell.errors import DTypeError, ShapeError
from graphcell.ir.op import Array, Op, frozen
from graphcell.ir.types import TensorType

Grads = tuple[Any, ...]
_ACCUMULATE = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


@frozen
class Cumulative(Op):
    """Element k along `axis` combines elements 0 to k of x (k to the last with `reverse`) by `kind`: add, mul, max, min.

    The dtype stays; half precision is accumulated in float32, integers modulo 2**bits; NaN spreads.
    """

    axis: int
    kind: str
    reverse: bool = False
    name = "cumulative"

    def infer(self, x: TensorType) -> TensorType:  # type: ignore[override]
        if not 0 <= self.axis < x.rank or self.kind not in _ACCUMULATE:
            raise ShapeError(f"cumulative: kind {self.kind!r} along axis {self.axis} does not fit shape {x.shape}")
        if x.dtype.is_bool:
            raise DTypeError("cumulative: the input must hold numbers, but is Bool")
        return x

    def eval(self, x: Array) -> Array:  # type: ignore[override]
        half = x.dtype.itemsize == 2 and dt.from_numpy(x.dtype).is_float
        y = x.astype(np.float32) if half else x
        y = np.flip(y, self.axis) if self.reverse else y
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            y = _ACCUMULATE[self.kind].accumulate(y, self.axis, dtype=y.dtype)
            y = np.flip(y, self.axis) if self.reverse else y
            return y.astype(x.dtype, copy=False)

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        from graphcell.ops.functional.indexing import scatter_elements_sum
        from graphcell.ops.functional.scanning import cumulative, extremum_places, product_gradient

        x, g = inputs[0], cotangents[0]
        if self.kind == "add":
            return (cumulative(g, self.axis, "add", not self.reverse),)
        if self.kind == "mul":
            return (product_gradient(x, g, self.axis, self.reverse),)
        index = extremum_places(x, outputs[0], self.axis, self.reverse)
        return (scatter_elements_sum(x.shape, self.axis, index, g),)
