"""Reductions along axes: sum, product, extrema, all, any, and the places of extrema."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphcell import dtype as dt
from graphcell.errors import DTypeError, ShapeError
from graphcell.ir.op import Array, Op, frozen
from graphcell.ir.types import Shape, TensorType
from graphcell.ops.base import Reduction, reduced_shape
from graphcell.ops.dispatch import apply1

Grads = tuple[Any, ...]


def keep_dims_shape(shape: Shape, axis: tuple[int, ...]) -> Shape:
    return reduced_shape(shape, axis, True)


def spread(y: Any, axis: tuple[int, ...], shape: Shape) -> Any:
    """A reduced Tensor repeated back over the reduced `axis` of `shape`."""
    return y.reshape(keep_dims_shape(shape, axis)).broadcast_to(shape)


def sum_to_shape(x: Any, shape: Shape) -> Any:
    """The transpose of broadcasting: x summed over the dimensions along which `shape` was repeated."""
    if x.shape == shape:
        return x
    lead = x.ndim - len(shape)
    axis = tuple(range(lead)) + tuple(k + lead for k, d in enumerate(shape) if d == 1 and x.shape[k + lead] != 1)
    y = apply1(ReduceSum(axis, False), x) if axis else x
    return y if y.shape == shape else y.reshape(shape)


@frozen
class ReduceSum(Reduction):
    """Sum. Half precision is accumulated in float32, integers modulo 2**bits."""

    axis: tuple[int, ...]
    keep_dims: bool = False
    name = "reduce_sum"
    kind = "add"

    def eval(self, x: Array) -> Array:  # type: ignore[override]
        is_float = dt.from_numpy(x.dtype).is_float
        wide = np.dtype(np.float32) if x.dtype.itemsize == 2 and is_float else x.dtype
        with np.errstate(over="ignore", invalid="ignore"):
            total = _sum_in_chains(x, self.axis, wide) if is_float else x.sum(self.axis, dtype=wide, keepdims=True)
            return np.asarray(total.reshape(reduced_shape(x.shape, self.axis, self.keep_dims))).astype(x.dtype)

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        return (spread(cotangents[0], self.axis, inputs[0].shape),)


_CHAIN = 256
"""The most floats that are added one by one."""


def _sum_in_chains(x: Array, axis: tuple[int, ...], wide: np.dtype[Any]) -> Array:
    """The sum of floats along `axis`, these dimensions kept. numpy adds by halves what lies side by side but the rows of columns one by one, which costs
    a digit for each tenfold number of rows: so long columns are added in blocks of rows, and then the blocks."""
    side_by_side = x.ndim
    while x.flags.c_contiguous and side_by_side - 1 in axis:
        side_by_side -= 1
    rows = [a for a in axis if a < side_by_side]
    if math.prod(x.shape[a] for a in rows) <= _CHAIN:
        return np.asarray(x.sum(axis, dtype=wide, keepdims=True))
    parts: list[tuple[int, ...]] = [(a,) for a in rows]
    if side_by_side < x.ndim:
        parts.append(tuple(range(side_by_side, x.ndim)))
    for part in sorted(parts, key=lambda part: -math.prod(x.shape[a] for a in part)):  # what is left after the first is small
        x = x.sum(part, dtype=wide, keepdims=True) if part[-1] >= side_by_side else _sum_of_rows(x, part[0], wide)
    return x


def _sum_of_rows(x: Array, axis: int, wide: np.dtype[Any]) -> Array:
    before, rows, after = x.shape[:axis], x.shape[axis], x.shape[axis + 1 :]
    while rows > _CHAIN:
        blocks, rest = divmod(rows, _CHAIN)
        whole, others = np.split(x, [rows - rest], axis)
        x = whole.reshape(*before, blocks, _CHAIN, *after).sum(axis + 1, dtype=wide)
        if rest:
            x = np.concatenate([x, others.sum(axis, dtype=wide, keepdims=True)], axis)
        rows = x.shape[axis]
    return np.asarray(x.sum(axis, dtype=wide, keepdims=True))


@frozen
class ReduceMax(Reduction):
    """Largest element; NaN if there is one. Gradient: shared equally among equal maxima."""

    axis: tuple[int, ...]
    keep_dims: bool = False
    name = "reduce_max"
    kind = "max"

    def infer(self, x: TensorType) -> TensorType:  # type: ignore[override]
        return _infer_extremum(self, x)

    def eval(self, x: Array) -> Array:  # type: ignore[override]
        return np.asarray(x.max(self.axis, keepdims=self.keep_dims))

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        return (_share_among_equal(inputs[0], outputs[0], cotangents[0], self.axis),)


@frozen
class ReduceMin(Reduction):
    """Smallest element; NaN if there is one. Gradient: shared equally among equal minima."""

    axis: tuple[int, ...]
    keep_dims: bool = False
    name = "reduce_min"
    kind = "min"

    def infer(self, x: TensorType) -> TensorType:  # type: ignore[override]
        return _infer_extremum(self, x)

    def eval(self, x: Array) -> Array:  # type: ignore[override]
        return np.asarray(x.min(self.axis, keepdims=self.keep_dims))

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        return (_share_among_equal(inputs[0], outputs[0], cotangents[0], self.axis),)


def _infer_extremum(op: Reduction, x: TensorType) -> TensorType:
    result = Reduction.infer(op, x)
    if any(x.shape[a] == 0 for a in op.axis) and result.size:
        raise ShapeError(f"{op.name}: no extremum of an empty dimension, axis {op.axis} of shape {x.shape}")
    return result


def _share_among_equal(x: Any, y: Any, g: Any, axis: tuple[int, ...]) -> Any:
    hit = (x == spread(y, axis, x.shape)).astype(g.dtype)
    count = apply1(ReduceSum(axis, True), hit)
    return hit * spread(g.reshape(count.shape) / count, axis, x.shape)


@frozen
class ReduceProd(Reduction):
    """Product."""

    axis: tuple[int, ...]
    keep_dims: bool = False
    name = "reduce_prod"
    kind = "mul"

    def eval(self, x: Array) -> Array:  # type: ignore[override]
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(x.prod(self.axis, dtype=x.dtype, keepdims=self.keep_dims))

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        from graphcell.ops.functional.reductions import product_of_others

        return (spread(cotangents[0], self.axis, inputs[0].shape) * product_of_others(inputs[0], self.axis),)


@frozen
class ReduceAll(Reduction):
    """Logical and of Bool elements."""

    axis: tuple[int, ...]
    keep_dims: bool = False
    name = "reduce_all"
    kind = "and"

    def infer(self, x: TensorType) -> TensorType:  # type: ignore[override]
        return _infer_bool(self, x)

    def eval(self, x: Array) -> Array:  # type: ignore[override]
        return np.asarray(x.all(self.axis, keepdims=self.keep_dims))


@frozen
class ReduceAny(Reduction):
    """Logical or of Bool elements."""

    axis: tuple[int, ...]
    keep_dims: bool = False
    name = "reduce_any"
    kind = "or"

    def infer(self, x: TensorType) -> TensorType:  # type: ignore[override]
        return _infer_bool(self, x)

    def eval(self, x: Array) -> Array:  # type: ignore[override]
        return np.asarray(x.any(self.axis, keepdims=self.keep_dims))


def _infer_bool(op: Reduction, x: TensorType) -> TensorType:
    if not x.dtype.is_bool:
        raise DTypeError(f"{op.name}: the operand must be Bool, but is {x.dtype}")
    return Reduction.infer(op, x)


@frozen
class ArgMax(Op):
    """Index (int64) of the first largest element along `axis`, which the result does not have; NaN counts as largest."""

    axis: int
    name = "argmax"

    def infer(self, x: TensorType) -> TensorType:  # type: ignore[override]
        return _infer_place(self.name, self.axis, x)

    def eval(self, x: Array) -> Array:  # type: ignore[override]
        return np.asarray(np.argmax(x, self.axis)).astype(np.int64)

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        return (None,)


@frozen
class ArgMin(Op):
    """Index (int64) of the first smallest element along `axis`, which the result does not have; NaN counts as smallest."""

    axis: int
    name = "argmin"

    def infer(self, x: TensorType) -> TensorType:  # type: ignore[override]
        return _infer_place(self.name, self.axis, x)

    def eval(self, x: Array) -> Array:  # type: ignore[override]
        return np.asarray(np.argmin(x, self.axis)).astype(np.int64)

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        return (None,)


def _infer_place(name: str, axis: int, x: TensorType) -> TensorType:
    if not 0 <= axis < x.rank:
        raise ShapeError(f"{name}: axis {axis} is outside of shape {x.shape}")
    if x.shape[axis] == 0:
        raise ShapeError(f"{name}: dimension {axis} of shape {x.shape} is empty")
    return TensorType(dt.int64, reduced_shape(x.shape, (axis,), False))
