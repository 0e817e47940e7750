"""Batched matrix product, the one contraction primitive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphcell import dtype as dt
from graphcell.errors import ContractionShapeError, DTypeError, ShapeError
from graphcell.ir.op import Array, Op, frozen
from graphcell.ir.types import TensorType
from graphcell.ops.dispatch import apply1

Grads = tuple[Any, ...]
_PRODUCT_NANOSECONDS = 0.02
"""Of a product that is summed, in numpy."""


@frozen
class MatMul(Op):
    """x @ y over the last two dimensions, either one transposed first. Batch dimensions are equal (the public functions broadcast).

    x: (*batch, m, k), or (*batch, k, m) with `transpose_x`; y: (*batch, k, n), or (*batch, n, k) with `transpose_y`.
    Result: (*batch, m, n). Half precision is accumulated in float32.
    """

    transpose_x: bool = False
    transpose_y: bool = False
    name = "matmul"

    def eval_nanoseconds(self, operands: Sequence[TensorType], results: Sequence[TensorType]) -> float:
        summed = operands[0].shape[-2 if self.transpose_x else -1]
        return super().eval_nanoseconds(operands, results) + _PRODUCT_NANOSECONDS * results[0].size * summed

    def infer(self, x: TensorType, y: TensorType) -> TensorType:  # type: ignore[override]
        if x.dtype is not y.dtype or x.dtype.is_bool:
            raise DTypeError(f"matmul: dtypes must be the same number type, but are {x.dtype} and {y.dtype}")
        if x.rank < 2 or x.rank != y.rank or x.shape[:-2] != y.shape[:-2]:
            raise ShapeError(f"matmul: batch dimensions differ, x is {x.shape} and y is {y.shape}")
        m, k = (x.shape[-1], x.shape[-2]) if self.transpose_x else x.shape[-2:]
        k2, n = (y.shape[-1], y.shape[-2]) if self.transpose_y else y.shape[-2:]
        if k != k2:
            raise ContractionShapeError(
                f"matmul: inner sizes differ, x is {x.shape}{' transposed' * self.transpose_x} and y is {y.shape}{' transposed' * self.transpose_y}"
            )
        return x.with_shape((*x.shape[:-2], m, n))

    def eval(self, x: Array, y: Array) -> Array:  # type: ignore[override]
        half = x.dtype.itemsize == 2 and dt.from_numpy(x.dtype).is_float
        a, b = (x.astype(np.float32), y.astype(np.float32)) if half else (x, y)
        a = a.swapaxes(-1, -2) if self.transpose_x else a
        b = b.swapaxes(-1, -2) if self.transpose_y else b
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(np.matmul(a, b)).astype(x.dtype, copy=False)

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        x, y = inputs
        g = cotangents[0]
        tx, ty = self.transpose_x, self.transpose_y
        gx = apply1(MatMul(ty, True), y, g) if tx else apply1(MatMul(False, not ty), g, y)
        gy = apply1(MatMul(True, tx), g, x) if ty else apply1(MatMul(not tx, False), x, g)
        return gx, gy
