"""Convolution and its two gradients, the three linear maps of which each is the transpose of another.

Activations lie NCHW… or NHWC… (`channels_last`), weights always (out, in / groups, *kernel). Any number of spatial dimensions.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from graphcell.errors import ContractionShapeError, DTypeError, ShapeError
from graphcell.ir.op import Array, Op, frozen
from graphcell.ir.types import Shape, TensorType
from graphcell.ops.dispatch import apply1

Grads = tuple[Any, ...]
_PRODUCT_NANOSECONDS = 0.025
"""Of a product that is summed, in numpy."""


@frozen
class _Convolution(Op):
    """What the three have in common: the geometry. One entry a spatial dimension; `padding` holds (before, after)."""

    stride: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]
    groups: int = 1
    channels_last: bool = False

    def eval_nanoseconds(self, operands: Sequence[TensorType], results: Sequence[TensorType]) -> float:
        """All three multiply each output element of the convolution by the weights of one filter; numpy goes over the images for each tap."""
        weights, outputs = self.weights_and_outputs(operands, results)
        taps = math.prod(weights.shape[2:])
        return taps * super().eval_nanoseconds(operands, results) + _PRODUCT_NANOSECONDS * outputs.size * math.prod(weights.shape[1:])

    def weights_and_outputs(self, operands: Sequence[TensorType], results: Sequence[TensorType]) -> tuple[TensorType, TensorType]:
        """The types of the weights, and of the convolution's result or its cotangent."""
        return operands[1], results[0]

    @property
    def rank(self) -> int:
        return len(self.stride)

    def channels(self, shape: Shape) -> int:
        return shape[-1] if self.channels_last else shape[1]

    def spatial(self, shape: Shape) -> Shape:
        return shape[1:-1] if self.channels_last else shape[2:]

    def activation_shape(self, batch: int, channels: int, spatial: Shape) -> Shape:
        return (batch, *spatial, channels) if self.channels_last else (batch, channels, *spatial)

    def output_spatial(self, spatial: Shape, kernel: Shape) -> Shape:
        """Spatial extents of the result."""
        result = []
        for d, k, s, (low, high), dil in zip(spatial, kernel, self.stride, self.padding, self.dilation, strict=True):
            reach = (k - 1) * dil + 1
            result.append(max(0, (d + low + high - reach) // s + 1))
        return tuple(result)

    def check_dtypes(self, a: TensorType, b: TensorType) -> None:
        if a.dtype is not b.dtype or not a.dtype.is_float:
            raise DTypeError(f"{self.name}: dtypes must be the same float type, but are {a.dtype} and {b.dtype}")

    def pads(self) -> list[tuple[int, int]]:
        """Padding of an activation with channels first."""
        return [(0, 0), (0, 0), *self.padding]

    def taps(self, kernel: Shape, out: Shape) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
        """Each tap of the kernel and where it reads the padded input (channels first)."""
        for tap in itertools.product(*map(range, kernel)):
            steps = zip(tap, self.dilation, out, self.stride, strict=True)
            window = tuple(slice(t * d, t * d + (o - 1) * s + 1, s) if o else slice(0, 0) for t, d, o, s in steps)
            yield tap, (slice(None), slice(None), *window)

    def first(self, x: Array) -> Array:
        """An activation with channels first, in the dtype of computation."""
        wide = x.astype(np.float32) if x.dtype.itemsize == 2 else x
        return np.moveaxis(wide, -1, 1) if self.channels_last else wide

    def back(self, y: Array, dtype: np.dtype[Any]) -> Array:
        return (np.moveaxis(y, 1, -1) if self.channels_last else y).astype(dtype)


def _grouped(x: Array, groups: int) -> Array:
    """(N, C, *S) as (groups, C/groups, N * S) for matrix products."""
    n, c = x.shape[:2]
    places = math.prod(x.shape[2:])
    return np.moveaxis(x.reshape(n, groups, c // groups, places), 0, 2).reshape(groups, c // groups, n * places)


def _tap(weights: Array, tap: tuple[int, ...]) -> Array:
    """One tap of grouped weights (groups, K, C, *kernel), as a view."""
    index: tuple[Any, ...] = (slice(None), slice(None), slice(None), *tap)
    return np.asarray(weights[index])


def _ungrouped(y: Array, n: int, spatial: Shape) -> Array:
    """(groups, K/groups, N * S) as (N, K, *S)."""
    groups, k, _ = y.shape
    return np.moveaxis(y.reshape(groups, k, n, math.prod(spatial)), 2, 0).reshape(n, groups * k, *spatial)


@frozen
class Conv(_Convolution):
    """Cross-correlation of x (N, C, *S) with weights w (K, C/groups, *kernel): (N, K, *S')."""

    name = "conv"

    def infer(self, x: TensorType, w: TensorType) -> TensorType:  # type: ignore[override]
        self.check_dtypes(x, w)
        if x.rank != self.rank + 2 or w.rank != self.rank + 2:
            raise ShapeError(f"conv: x {x.shape} and weight {w.shape} must have {self.rank + 2} dimensions")
        c = self.channels(x.shape)
        if c != w.shape[1] * self.groups or w.shape[0] % self.groups:
            raise ContractionShapeError(f"conv: x has {c} channels, but the weight {w.shape} with {self.groups} groups takes {w.shape[1] * self.groups}")
        out = self.output_spatial(self.spatial(x.shape), w.shape[2:])
        if min((1, *out)) < 1:
            raise ShapeError(f"conv: the kernel {w.shape[2:]} is larger than the padded input, x is {x.shape}")
        return x.with_shape(self.activation_shape(x.shape[0], w.shape[0], out))

    def eval(self, x: Array, w: Array) -> Array:  # type: ignore[override]
        first, weights = self.first(x), w.astype(np.float32) if w.dtype.itemsize == 2 else w
        n, out = x.shape[0], self.output_spatial(self.spatial(x.shape), w.shape[2:])
        padded = np.pad(first, self.pads())
        grouped = weights.reshape(self.groups, w.shape[0] // self.groups, *w.shape[1:])
        total = np.zeros((self.groups, w.shape[0] // self.groups, n * int(np.prod(out))), first.dtype)
        for tap, window in self.taps(w.shape[2:], out):
            total += _tap(grouped, tap) @ _grouped(padded[window], self.groups)
        return self.back(_ungrouped(total, n, out), x.dtype)

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        x, w = inputs
        geometry = (self.stride, self.padding, self.dilation, self.groups, self.channels_last)
        gx = apply1(ConvInputGrad(*geometry, spatial_shape=self.spatial(x.shape)), w, cotangents[0])
        gw = apply1(ConvWeightGrad(*geometry, kernel=w.shape[2:]), x, cotangents[0])
        return gx, gw


@frozen
class ConvInputGrad(_Convolution):
    """The transpose of `conv` in x: from w and a cotangent g of the result to one of x, whose spatial extents are `spatial_shape`.

    Also the transposed convolution.
    """

    spatial_shape: Shape = ()
    name = "conv_input_grad"

    def weights_and_outputs(self, operands: Sequence[TensorType], results: Sequence[TensorType]) -> tuple[TensorType, TensorType]:
        return operands[0], operands[1]

    def infer(self, w: TensorType, g: TensorType) -> TensorType:  # type: ignore[override]
        self.check_dtypes(w, g)
        if g.rank != self.rank + 2 or w.rank != self.rank + 2 or self.channels(g.shape) != w.shape[0]:
            raise ShapeError(f"conv_input_grad: the weight {w.shape} gives {w.shape[0]} channels, the gradient is {g.shape}")
        out = self.output_spatial(self.spatial_shape, w.shape[2:])
        if out != self.spatial(g.shape):
            raise ShapeError(f"conv_input_grad: an input of extents {self.spatial_shape} gives {out}, the gradient is {g.shape}")
        return g.with_shape(self.activation_shape(g.shape[0], w.shape[1] * self.groups, self.spatial_shape))

    def eval(self, w: Array, g: Array) -> Array:  # type: ignore[override]
        first, weights = self.first(g), w.astype(np.float32) if w.dtype.itemsize == 2 else w
        n, out = g.shape[0], self.spatial(g.shape)
        grouped = weights.reshape(self.groups, w.shape[0] // self.groups, *w.shape[1:])
        flat = _grouped(first, self.groups)
        channels = w.shape[1] * self.groups
        padded = np.zeros((n, channels, *(d + a + b for d, (a, b) in zip(self.spatial_shape, self.padding, strict=True))), first.dtype)
        for tap, window in self.taps(w.shape[2:], out):
            part = _tap(grouped, tap).swapaxes(1, 2) @ flat
            padded[window] += _ungrouped(part, n, out)
        inside = (slice(None), slice(None), *(slice(a, a + d) for d, (a, _) in zip(self.spatial_shape, self.padding, strict=True)))
        return self.back(padded[inside], g.dtype)

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        w, g = inputs
        geometry = (self.stride, self.padding, self.dilation, self.groups, self.channels_last)
        return apply1(ConvWeightGrad(*geometry, kernel=w.shape[2:]), cotangents[0], g), apply1(Conv(*geometry), cotangents[0], w)


@frozen
class ConvWeightGrad(_Convolution):
    """The transpose of `conv` in w: from x and a cotangent g of the result to one of w, whose last extents are `kernel`."""

    kernel: Shape = ()
    name = "conv_weight_grad"

    def weights_and_outputs(self, operands: Sequence[TensorType], results: Sequence[TensorType]) -> tuple[TensorType, TensorType]:
        return results[0], operands[1]

    def infer(self, x: TensorType, g: TensorType) -> TensorType:  # type: ignore[override]
        self.check_dtypes(x, g)
        out = self.output_spatial(self.spatial(x.shape), self.kernel)
        if x.rank != g.rank or out != self.spatial(g.shape) or x.shape[0] != g.shape[0]:
            raise ShapeError(f"conv_weight_grad: an input {x.shape} and a kernel {self.kernel} give extents {out}, the gradient is {g.shape}")
        return x.with_shape((self.channels(g.shape), self.channels(x.shape) // self.groups, *self.kernel))

    def eval(self, x: Array, g: Array) -> Array:  # type: ignore[override]
        first, cotangent = self.first(x), self.first(g)
        out = self.spatial(g.shape)
        padded = np.pad(first, self.pads())
        flat = _grouped(cotangent, self.groups)
        k, c = flat.shape[1], first.shape[1] // self.groups
        result = np.zeros((self.groups, k, c, *self.kernel), first.dtype)
        for tap, window in self.taps(self.kernel, out):
            _tap(result, tap)[...] = flat @ _grouped(padded[window], self.groups).swapaxes(1, 2)
        return result.reshape(self.groups * k, c, *self.kernel).astype(x.dtype)

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        x, g = inputs
        geometry = (self.stride, self.padding, self.dilation, self.groups, self.channels_last)
        gx = apply1(ConvInputGrad(*geometry, spatial_shape=self.spatial(x.shape)), cotangents[0], g)
        return gx, apply1(Conv(*geometry), x, cotangents[0])


__all__ = ["Conv", "ConvInputGrad", "ConvWeightGrad"]
