"""Sliding windows: the view that pooling reduces, its transpose, and the maximum whose gradient goes to one place.

Pooling needs no primitive of its own: max pooling is `reduce_max_first` over the window dimensions of `windows`, average pooling a sum.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from graphcell.dtype import DType
from graphcell.errors import ShapeError
from graphcell.ir.op import Array, Op, frozen
from graphcell.ir.types import Shape, TensorType
from graphcell.ops.base import Reduction, View
from graphcell.ops.creation import Iota
from graphcell.ops.dispatch import apply1
from graphcell.ops.reduction import spread

Grads = tuple[Any, ...]


@frozen
class Windows(View):
    """All windows of `size` elements, `stride` apart, along the dimensions `axes`, their elements `dilation` apart.

    The dimensions `axes` of the result count windows; its last dimensions, one for each of `axes`, are the places in a window.
    """

    axes: tuple[int, ...]
    size: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    name = "windows"

    def counts(self, shape: Shape) -> tuple[int, ...]:
        """Number of windows along each of `axes`."""
        return tuple(
            (shape[a] - (n - 1) * d - 1) // s + 1 if shape[a] > (n - 1) * d else 0
            for a, n, s, d in zip(self.axes, self.size, self.stride, self.dilation, strict=True)
        )

    def infer(self, x: TensorType) -> TensorType:  # type: ignore[override]
        if any(not 0 <= a < x.rank for a in self.axes) or min((*self.size, *self.stride, *self.dilation)) < 1:
            raise ShapeError(f"windows: axes {self.axes}, size {self.size}, stride {self.stride} do not fit shape {x.shape}")
        counts = self.counts(x.shape)
        if min(counts) < 1:
            raise ShapeError(f"windows: a window of {self.size} elements is larger than the (padded) input {x.shape}")
        shape = list(x.shape)
        for a, n in zip(self.axes, counts, strict=True):
            shape[a] = n
        return x.with_shape((*shape, *self.size))

    def eval(self, x: Array) -> Array:  # type: ignore[override]
        strides = list(x.strides)
        for a, s in zip(self.axes, self.stride, strict=True):
            strides[a] *= s
        inside = [x.strides[a] * d for a, d in zip(self.axes, self.dilation, strict=True)]
        shape = list(x.shape)
        for a, n in zip(self.axes, self.counts(x.shape), strict=True):
            shape[a] = n
        return np.lib.stride_tricks.as_strided(x, (*shape, *self.size), (*strides, *inside), writeable=False)

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        return (apply1(Fold(self.axes, self.size, self.stride, self.dilation, inputs[0].shape), cotangents[0]),)


@frozen
class Fold(Op):
    """The transpose of `windows`: every window element added to where it came from in zeros of `shape`."""

    axes: tuple[int, ...]
    size: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    shape: Shape
    name = "fold"

    def windows(self) -> Windows:
        return Windows(self.axes, self.size, self.stride, self.dilation)

    def infer(self, x: TensorType) -> TensorType:  # type: ignore[override]
        want = self.windows().infer(TensorType(x.dtype, self.shape))
        if want != x:
            raise ShapeError(f"fold: windows of shape {self.shape} are {want.shape}, but the operand is {x.shape}")
        return x.with_shape(self.shape)

    def eval(self, x: Array) -> Array:  # type: ignore[override]
        wide = np.float32 if x.dtype.itemsize == 2 and x.dtype.kind not in "iu" else x.dtype
        out = np.zeros(self.shape, wide)
        rank = len(self.shape)
        for tap in itertools.product(*map(range, self.size)):
            where: list[slice] = [slice(None)] * rank
            for a, t, s, d in zip(self.axes, tap, self.stride, self.dilation, strict=True):
                where[a] = slice(t * d, t * d + (x.shape[a] - 1) * s + 1, s)
            taken: tuple[Any, ...] = (*(slice(None),) * rank, *tap)
            out[tuple(where)] += x[taken]
        return out.astype(x.dtype)

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        return (apply1(self.windows(), cotangents[0]),)


@frozen
class ReduceMaxFirst(Reduction):
    """Largest element; NaN if there is one. Gradient: to the first of equal maxima in row-major order of the reduced dimensions."""

    axis: tuple[int, ...]
    keep_dims: bool = False
    name = "reduce_max_first"
    eval_element_nanoseconds = 15.0
    kind = "max"

    def infer(self, x: TensorType) -> TensorType:  # type: ignore[override]
        result = Reduction.infer(self, x)
        if any(x.shape[a] == 0 for a in self.axis) and result.size:
            raise ShapeError(f"{self.name}: no extremum of an empty dimension, axis {self.axis} of shape {x.shape}")
        return result

    def eval(self, x: Array) -> Array:  # type: ignore[override]
        return np.asarray(x.max(self.axis, keepdims=self.keep_dims))

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        from graphcell import dtype as dt
        from graphcell.ops.functional.common import full, select, zeros_like

        x, y, g = inputs[0], outputs[0], cotangents[0]
        taps = math.prod(x.shape[a] for a in self.axis)
        small = dt.int8 if taps < 1 << 7 else dt.int32 if taps < 1 << 31 else dt.int64
        place = self._place(x.shape, small)
        count = full(x.shape, taps, small)
        hit = (x == spread(y, self.axis, x.shape)) | (x != x)
        first = apply1(ReduceMinPlace(self.axis), select(hit, place, count))
        chosen = place == spread(first, self.axis, x.shape)
        full_g = spread(g, self.axis, x.shape)
        return (select(chosen, full_g, zeros_like(full_g)),)

    def _place(self, shape: Shape, dtype: DType) -> Any:
        """The row-major number of each element among those that are reduced together."""
        place, step = None, 1
        for a in reversed(self.axis):
            index = apply1(Iota(shape, a, dtype))
            term = index * step if step > 1 else index
            place = term if place is None else place + term
            step *= shape[a]
        return place


@frozen
class ReduceMinPlace(Reduction):
    """Smallest of integers; has no gradient."""

    axis: tuple[int, ...]
    keep_dims: bool = False
    name = "reduce_min_place"
    eval_element_nanoseconds = 15.0
    kind = "min"

    def eval(self, x: Array) -> Array:  # type: ignore[override]
        return np.asarray(x.min(self.axis, keepdims=self.keep_dims))

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        return (None,)


__all__ = ["Fold", "ReduceMaxFirst", "ReduceMinPlace", "Windows"]
