"""Primitives that move values without computing: views (affine index maps), pad, concat.

Axes are non-negative and static parameters are complete; the public functions normalise what the user gives.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphcell.dtype import DType
from graphcell.errors import DTypeError, ShapeError
from graphcell.ir.op import Array, Op, frozen
from graphcell.ir.types import Shape, TensorType
from graphcell.ops.base import View

Grads = tuple[Any, ...]


@frozen
class Reshape(View):
    """The same elements in row-major order under another shape."""

    shape: Shape
    name = "reshape"

    def infer(self, x: TensorType) -> TensorType:  # type: ignore[override]
        if math.prod(self.shape) != x.size:
            raise ShapeError(f"reshape: a Tensor of shape {x.shape} has {x.size} elements and cannot become {self.shape}")
        return x.with_shape(self.shape)

    def eval(self, x: Array) -> Array:  # type: ignore[override]
        return x.reshape(self.shape)

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        return (cotangents[0].reshape(inputs[0].shape),)


@frozen
class Fence(View):
    """x itself. What reads it is not computed in one kernel with what makes x: passes set it where values are better computed again."""

    name = "fence"

    def infer(self, x: TensorType) -> TensorType:  # type: ignore[override]
        return x

    def eval(self, x: Array) -> Array:  # type: ignore[override]
        return x

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        return (cotangents[0],)


@frozen
class Transpose(View):
    """Dimension k of the result is dimension `perm[k]` of x."""

    perm: tuple[int, ...]
    name = "transpose"

    def infer(self, x: TensorType) -> TensorType:  # type: ignore[override]
        if sorted(self.perm) != list(range(x.rank)):
            raise ShapeError(f"transpose: {self.perm} is no permutation of the {x.rank} dimensions of shape {x.shape}")
        return x.with_shape(tuple(x.shape[p] for p in self.perm))

    def eval(self, x: Array) -> Array:  # type: ignore[override]
        return x.transpose(self.perm)

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        back = tuple(int(k) for k in np.argsort(self.perm))
        return (cotangents[0].transpose(back),)


def repeat(x: Array, shape: Shape) -> Array:
    """x broadcast to `shape`, which must fit, read-only: as `np.broadcast_to`, in a third of its time."""
    return np.nditer((x,), ["multi_index", "zerosize_ok"], [["readonly"]], None, "C", "safe", None, shape).itviews[0]


@frozen
class BroadcastTo(View):
    """x repeated to `shape`; dimensions align at the end, as numpy has it."""

    shape: Shape
    name = "broadcast_to"

    def infer(self, x: TensorType) -> TensorType:  # type: ignore[override]
        tail = self.shape[len(self.shape) - x.rank :] if x.rank <= len(self.shape) else None
        if tail is None or any(d not in (1, e) for d, e in zip(x.shape, tail, strict=True)):
            raise ShapeError(f"broadcast_to: shape {x.shape} cannot be broadcast to {self.shape}")
        return x.with_shape(self.shape)

    def eval(self, x: Array) -> Array:  # type: ignore[override]
        return repeat(x, self.shape)

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        from graphcell.ops.reduction import sum_to_shape

        return (sum_to_shape(cotangents[0], inputs[0].shape),)


@frozen
class Slice(View):
    """x[start:start+step*size:step] in every dimension: result size `size`; `step` may be negative, never 0."""

    start: tuple[int, ...]
    size: Shape
    step: tuple[int, ...]
    name = "slice"

    def infer(self, x: TensorType) -> TensorType:  # type: ignore[override]
        if not len(self.start) == len(self.size) == len(self.step) == x.rank:
            raise ShapeError(f"slice: start, size and step need one entry for each of the {x.rank} dimensions")
        for k, (a, n, s, d) in enumerate(zip(self.start, self.size, self.step, x.shape, strict=True)):
            last = a + s * (n - 1)
            if s == 0 or n < 0 or (n and not (0 <= a < d and 0 <= last < d)):
                raise ShapeError(f"slice: start {a}, size {n}, step {s} do not fit dimension {k} of shape {x.shape}")
        return x.with_shape(self.size)

    def eval(self, x: Array) -> Array:  # type: ignore[override]
        return x[self.index()]

    def index(self) -> tuple[slice, ...]:
        """The numpy index of the elements taken."""
        cut = []
        for a, n, s in zip(self.start, self.size, self.step, strict=True):
            stop: int | None = a + s * n
            if n == 0:
                a, stop = 0, 0
            elif s < 0 and stop is not None and stop < 0:
                stop = None
            cut.append(slice(a, stop, s))
        return tuple(cut)

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        from graphcell.ops.functional.common import apply_slice_gradient

        return (apply_slice_gradient(self, inputs[0].shape, cotangents[0]),)


@frozen
class UpdateSlice(Op):
    """Operands (x, update): x with the elements that ``Slice(start, update.shape, step)`` takes replaced by those of `update`."""

    start: tuple[int, ...]
    step: tuple[int, ...]
    name = "update_slice"

    def cut(self, size: Shape) -> Slice:
        """The slice that is replaced by an update of shape `size`."""
        return Slice(self.start, size, self.step)

    def infer(self, x: TensorType, update: TensorType) -> TensorType:  # type: ignore[override]
        if update.dtype is not x.dtype:
            raise DTypeError(f"update_slice: x is {x.dtype} and the update is {update.dtype}; they must have one dtype")
        self.cut(update.shape).infer(x)
        return x

    def eval(self, x: Array, update: Array) -> Array:  # type: ignore[override]
        out = np.array(x)
        out[self.cut(update.shape).index()] = update
        return out

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        from graphcell.ops.dispatch import apply1
        from graphcell.ops.functional.common import zeros_like

        update, g = inputs[1], cotangents[0]
        return apply1(self, g, zeros_like(update)), apply1(self.cut(update.shape), g)


@frozen
class Pad(Op):
    """Adds `low[k]` elements before and `high[k]` after dimension k and `interior[k]` between neighbours, all of the number `value`."""

    low: tuple[int, ...]
    high: tuple[int, ...]
    interior: tuple[int, ...]
    value: bool | int | float
    name = "pad"

    def infer(self, x: TensorType) -> TensorType:  # type: ignore[override]
        if not len(self.low) == len(self.high) == len(self.interior) == x.rank:
            raise ShapeError(f"pad: low, high and interior need one entry for each of the {x.rank} dimensions")
        if min((*self.low, *self.high, *self.interior, 0)) < 0:
            raise ShapeError("pad: padding must not be negative")
        return x.with_shape(tuple(a + d + h + max(d - 1, 0) * i for d, a, h, i in zip(x.shape, self.low, self.high, self.interior, strict=True)))

    def inside(self, shape: Shape) -> tuple[slice, ...]:
        """Where the operand's elements lie in the result."""
        return tuple(slice(a, a + (d - 1) * (i + 1) + 1 if d else a, i + 1) for d, a, i in zip(shape, self.low, self.interior, strict=True))

    def eval(self, x: Array) -> Array:  # type: ignore[override]
        out = np.full(self.infer_shape(x.shape), self.value, x.dtype)
        out[self.inside(x.shape)] = x
        return out

    def infer_shape(self, shape: Shape) -> Shape:
        return tuple(a + d + h + max(d - 1, 0) * i for d, a, h, i in zip(shape, self.low, self.high, self.interior, strict=True))

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        from graphcell.ops.dispatch import apply1

        shape = inputs[0].shape
        step = tuple(i + 1 for i in self.interior)
        return (apply1(Slice(self.low if 0 not in shape else (0,) * len(shape), shape, step), cotangents[0]),)


@frozen
class Concat(Op):
    """The operands one after another along `axis`."""

    axis: int
    name = "concat"

    def infer(self, *operands: TensorType) -> TensorType:
        first = operands[0]
        for k, t in enumerate(operands):
            fits = t.rank == first.rank and all(a == b for j, (a, b) in enumerate(zip(t.shape, first.shape, strict=True)) if j != self.axis)
            if not fits or t.dtype is not first.dtype:
                raise ShapeError(f"concat: operand {k} is {t} and does not fit the first, {first}, along axis {self.axis}")
        total = sum(t.shape[self.axis] for t in operands)
        return first.with_shape((*first.shape[: self.axis], total, *first.shape[self.axis + 1 :]))

    def eval(self, *operands: Array) -> Array:
        return np.concatenate(operands, self.axis)

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        from graphcell.ops.dispatch import apply1

        g, parts, at = cotangents[0], [], 0
        for x in inputs:
            start = tuple(at if k == self.axis and x.shape[k] else 0 for k in range(x.ndim))
            parts.append(apply1(Slice(start, x.shape, (1,) * x.ndim), g))
            at += x.shape[self.axis]
        return tuple(parts)


@frozen
class Bitcast(Op):
    """The same bits read as another dtype (Bool excepted); where sizes differ, the last dimension gets longer or shorter."""

    dtype: DType
    name = "bitcast"

    def infer(self, x: TensorType) -> TensorType:  # type: ignore[override]
        if x.dtype.is_bool or self.dtype.is_bool:
            raise DTypeError(f"bitcast: {x.dtype} cannot be read as {self.dtype}; both must be numbers")
        return TensorType(self.dtype, self._shape(x))

    def _shape(self, x: TensorType) -> Shape:
        if x.dtype.itemsize == self.dtype.itemsize:
            return x.shape
        if x.rank == 0 or x.shape[-1] * x.dtype.itemsize % self.dtype.itemsize:
            raise ShapeError(f"bitcast: the last dimension of {x.dtype} of shape {x.shape} is no whole number of {self.dtype}")
        return (*x.shape[:-1], x.shape[-1] * x.dtype.itemsize // self.dtype.itemsize)

    def eval(self, x: Array) -> Array:  # type: ignore[override]
        whole = np.ascontiguousarray(x).reshape(x.shape)
        return whole.view(self.dtype.np_type)

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        return (None,)
