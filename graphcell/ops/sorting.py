"""Primitives that order elements: sort, the largest or smallest k, places in a sorted sequence.

NaN counts as larger than any number. Equal elements keep their order, ascending or descending.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from graphcell import dtype as dt
from graphcell.errors import ArgumentValueError, DTypeError, ShapeError
from graphcell.ir.op import Array, Op, frozen
from graphcell.ir.types import TensorType

Grads = tuple[Any, ...]
_ORDER_NANOSECONDS = 50.0  # that numpy takes for an element of some thousand


def order_of(x: Array, axis: int, descending: bool) -> Array:
    """The indices (int64) that sort x along `axis`."""
    keys = x.astype(np.float32) if x.dtype.itemsize == 2 and dt.from_numpy(x.dtype).is_float else x
    if not descending:
        return np.argsort(keys, axis, kind="stable").astype(np.int64, copy=False)
    backward = np.flip(np.argsort(np.flip(keys, axis), axis, kind="stable"), axis)
    return np.asarray(x.shape[axis] - 1 - backward).astype(np.int64, copy=False)


def _check_axis(name: str, x: TensorType, axis: int) -> None:
    if not 0 <= axis < x.rank:
        raise ShapeError(f"{name}: axis {axis} is outside of shape {x.shape}")


def _to_places(inputs: Grads, indices: Any, g: Any, axis: int) -> Grads:
    """The cotangent of the values put back to where they came from."""
    from graphcell.ops.functional.indexing import scatter_elements_sum

    return (scatter_elements_sum(inputs[0].shape, axis, indices, g, True),)


@frozen
class Sort(Op):
    """Results: x sorted along `axis`, and the index (int64) that each element had."""

    axis: int
    descending: bool = False
    name = "sort"
    eval_element_nanoseconds = _ORDER_NANOSECONDS

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType]:  # type: ignore[override]
        _check_axis("sort", x, self.axis)
        return x, x.with_dtype(dt.int64)

    def eval(self, x: Array) -> tuple[Array, Array]:  # type: ignore[override]
        order = order_of(x, self.axis, self.descending)
        return np.take_along_axis(x, order, self.axis), order

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        return _to_places(inputs, outputs[1], cotangents[0], self.axis)


@frozen
class TopK(Op):
    """Results: the `k` largest (or smallest) elements along `axis`, the most extreme first, and their indices (int64)."""

    k: int
    axis: int
    largest: bool = True
    name = "topk"
    eval_element_nanoseconds = _ORDER_NANOSECONDS

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType]:  # type: ignore[override]
        _check_axis("topk", x, self.axis)
        if not 0 <= self.k <= x.shape[self.axis]:
            raise ArgumentValueError(f"topk: k must be from 1 to {x.shape[self.axis]} for axis {self.axis} of shape {x.shape}, but is {self.k}")
        result = x.with_shape(tuple(self.k if a == self.axis else d for a, d in enumerate(x.shape)))
        return result, result.with_dtype(dt.int64)

    def eval(self, x: Array) -> tuple[Array, Array]:  # type: ignore[override]
        order = np.take(order_of(x, self.axis, self.largest), np.arange(self.k), self.axis)
        return np.take_along_axis(x, order, self.axis), order

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        return _to_places(inputs, outputs[1], cotangents[0], self.axis)


@frozen
class SearchSorted(Op):
    """Operands (sequence, values) of one dtype, sequence ascending along its last dimension: how many elements of the sequence are
    smaller than each value (with `right`: not larger), int64.

    sequence: (n,) for all values, or (*lead, n) for values of shape (*lead, m).
    """

    right: bool = False
    name = "search_sorted"

    def infer(self, sequence: TensorType, values: TensorType) -> TensorType:  # type: ignore[override]
        if sequence.dtype is not values.dtype:
            raise DTypeError(f"search_sorted: sequence is {sequence.dtype} and values are {values.dtype}; they must have one dtype")
        if sequence.rank == 0 or (sequence.rank > 1 and sequence.shape[:-1] != values.shape[:-1]):
            raise ShapeError(f"search_sorted: a sequence of shape {sequence.shape} does not fit values of shape {values.shape}")
        return values.with_dtype(dt.int64)

    def eval(self, sequence: Array, values: Array) -> Array:  # type: ignore[override]
        side: Literal["left", "right"] = "right" if self.right else "left"
        if sequence.ndim == 1:
            return np.asarray(np.searchsorted(sequence, values, side)).astype(np.int64)
        out = np.empty(values.shape, np.int64)
        for row in np.ndindex(*values.shape[:-1]):
            out[row] = np.searchsorted(sequence[row], values[row], side)
        return out

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        return None, None
