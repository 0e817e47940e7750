"""Primitives that read and write at places known only when they run.

An index i into an extent n stands for the place `clamp(i < 0 ? i + n : i, 0, n - 1)`, in every primitive here: a negative index counts
from the end, and one that is out of range takes the nearest end, so that no buffer is left whatever the indices hold. The public functions
check their indices before (`check_range`): at once in eager mode, else when the graph runs, where only unknown scalars are not checked.
Start indices of dynamic slices are clamped so that the whole slice lies inside; they do not count from the end.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from graphcell import dtype as dt
from graphcell.errors import DTypeError, IndexRangeError, ShapeError
from graphcell.ir.op import Array, Op, frozen
from graphcell.ir.types import Shape, TensorType
from graphcell.ops.creation import Iota
from graphcell.ops.dispatch import apply1

Grads = tuple[Any, ...]
KINDS = ("add", "update", "mul", "min", "max")


def places(index: Array, extent: int) -> Array:
    """The places (int64) that `index` stands for in a dimension of `extent` elements."""
    if index.dtype.kind == "u":
        last = index.dtype.type(min(extent - 1, int(np.iinfo(index.dtype).max)))
        return np.asarray(np.minimum(index, last)).astype(np.int64)
    wide = index.astype(np.int64, copy=False)
    return np.asarray(np.clip(np.where(wide < 0, wide + extent, wide), 0, max(extent - 1, 0)))


def indexed_shape(name: str, x: TensorType, axes: tuple[int, ...], indices: tuple[TensorType, ...]) -> Shape:
    """The shape of x indexed along `axes`: the indices' shape stands in the place of the first of them."""
    if not axes or len(indices) != len(axes) or list(axes) != sorted(set(axes)) or not 0 <= axes[0] <= axes[-1] < x.rank:
        raise ShapeError(f"{name}: {len(indices)} indices along axes {axes} do not fit shape {x.shape}")
    for k, t in zip(axes, indices, strict=True):
        if not t.dtype.is_integer:
            raise DTypeError(f"{name}: indices must be integers, but are {t.dtype}")
        if t.shape != indices[0].shape:
            raise ShapeError(f"{name}: indices must have one shape, but have {indices[0].shape} and {t.shape}")
        if x.shape[k] == 0 and t.size:
            raise IndexRangeError(f"{name}: dimension {k} of shape {x.shape} is empty; nothing can be taken from it")
    rest = tuple(d for k, d in enumerate(x.shape) if k > axes[0] and k not in axes)
    return (*x.shape[: axes[0]], *indices[0].shape, *rest)


def _numpy_index(axes: tuple[int, ...], shape: Shape, indices: tuple[Array, ...]) -> tuple[Array, ...]:
    """Index arrays for all dimensions up to the last of `axes`, which numpy broadcasts to the result's leading dimensions."""
    first, inner = axes[0], indices[0].ndim
    between = [k for k in range(first, axes[-1] + 1) if k not in axes]
    rank = first + inner + len(between)
    ramp = {k: position for position, k in enumerate([*range(first), *[None] * inner, *between]) if k is not None}
    result = []
    for k in range(axes[-1] + 1):
        if k in axes:
            index = places(indices[axes.index(k)], shape[k])
            result.append(index.reshape((1,) * first + index.shape + (1,) * len(between)))
        else:
            result.append(np.arange(shape[k]).reshape([-1 if p == ramp[k] else 1 for p in range(rank)]))
    return tuple(result)


@frozen
class Gather(Op):
    """Operands (x, one index Tensor for each of `axes`, all of one shape). Takes the elements of x at those places.

    `axes` ascend. Result: x.shape before axes[0], then the indices' shape, then the other dimensions of x:
    ``result[a, i, r] = x[a with index_k[i] put in at axes[k], r]``.
    """

    axes: tuple[int, ...]
    name = "gather"

    def infer(self, x: TensorType, *indices: TensorType) -> TensorType:  # type: ignore[override]
        return x.with_shape(indexed_shape(self.name, x, self.axes, indices))

    def eval(self, x: Array, *indices: Array) -> Array:  # type: ignore[override]
        if len(self.axes) == 1:
            k = self.axes[0]
            return np.asarray(np.take(x, places(indices[0], x.shape[k]), k)) if indices[0].size else self._nothing(x, indices)
        return np.asarray(x[_numpy_index(self.axes, x.shape, indices)]) if indices[0].size else self._nothing(x, indices)

    def _nothing(self, x: Array, indices: tuple[Array, ...]) -> Array:
        rest = [d for k, d in enumerate(x.shape) if k > self.axes[0] and k not in self.axes]
        return np.empty((*x.shape[: self.axes[0]], *indices[0].shape, *rest), x.dtype)

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        from graphcell.ops.functional.indexing import scatter_sum

        x, *indices = inputs
        return (scatter_sum(x.shape, self.axes, tuple(indices), cotangents[0]), *[None] * len(indices))


@frozen
class GatherElements(Op):
    """Operands (x, index), of one rank: ``result[…, j, …] = x[…, index[…, j, …], …]`` along `axis`.

    Result: the shape of `index`, which is no larger than x in the other dimensions.
    """

    axis: int
    name = "gather_elements"

    def infer(self, x: TensorType, index: TensorType) -> TensorType:  # type: ignore[override]
        _check_elements(self.name, x, self.axis, index)
        return x.with_shape(index.shape)

    def eval(self, x: Array, index: Array) -> Array:  # type: ignore[override]
        if index.size == 0:
            return np.empty(index.shape, x.dtype)
        return np.take_along_axis(_covered(x, self.axis, index.shape), places(index, x.shape[self.axis]), self.axis)

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        from graphcell.ops.functional.indexing import scatter_elements_sum

        x, index = inputs
        return scatter_elements_sum(x.shape, self.axis, index, cotangents[0]), None


def _check_elements(name: str, x: TensorType, axis: int, index: TensorType) -> None:
    if not index.dtype.is_integer:
        raise DTypeError(f"{name}: the index must hold integers, but is {index.dtype}")
    if not (x.rank == index.rank and 0 <= axis < x.rank):
        raise ShapeError(f"{name}: x is {x.shape} and the index is {index.shape}; they must have one rank, and axis {axis}")
    if any(k != axis and n > d for k, (n, d) in enumerate(zip(index.shape, x.shape, strict=True))):
        raise ShapeError(f"{name}: an index of shape {index.shape} is larger than x, {x.shape}, beside axis {axis}")
    if x.shape[axis] == 0 and index.size:
        raise IndexRangeError(f"{name}: dimension {axis} of shape {x.shape} is empty; nothing can be taken from it")


def _covered(x: Array, axis: int, shape: Shape) -> Array:
    """The part of x that an index of `shape` runs over."""
    return x[tuple(slice(None) if k == axis else slice(n) for k, n in enumerate(shape))]


class ScatterFamily(Op):
    """Writes `updates` into a copy of x at places given by indices; what a kind does:

    `add`, `mul`, `min`, `max` combine all updates of a place with what is there, one after another in row-major order of the updates;
    `update` replaces: the last one in that order wins. `unique` promises that no two updates have one place.
    """

    kind: str
    unique: bool
    combine: ClassVar[dict[str, Any]] = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}

    def read(self, x: Any, indices: tuple[Any, ...]) -> Any:
        """What x holds at the places written."""
        raise NotImplementedError

    def write(self, kind: str, x: Any, indices: tuple[Any, ...], updates: Any) -> Any:
        """The same scatter of another kind."""
        raise NotImplementedError

    def store(self, out: Array, index: tuple[Array, ...], updates: Array) -> Array:
        """Applies the updates to `out` in place."""
        if self.kind == "update":
            out[index] = updates
            return out
        with np.errstate(over="ignore", invalid="ignore"):
            if self.unique:
                out[index] = self.combine[self.kind](out[index], updates)
            else:
                self.combine[self.kind].at(out, index, updates)
        return out

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        x, *indices, updates = inputs
        at, g = tuple(indices), cotangents[0]
        rules = {"add": self._grad_add, "update": self._grad_update, "mul": self._grad_mul}
        gx, gu = rules.get(self.kind, self._grad_extremum)(x, at, updates, outputs[0], g)
        return (gx, *[None] * len(at), gu)

    def _grad_add(self, x: Any, at: Grads, updates: Any, y: Any, g: Any) -> tuple[Any, Any]:
        return g, self.read(g, at)

    def _grad_update(self, x: Any, at: Grads, updates: Any, y: Any, g: Any) -> tuple[Any, Any]:
        from graphcell.ops.functional.common import select, zeros_like

        zero = zeros_like(updates)
        gu = self.read(g, at)
        return self.write("update", g, at, zero), gu if self.unique else select(self.winners(x, at, updates), gu, zero)

    def winners(self, x: Any, at: Grads, updates: Any) -> Any:
        """Which updates are the last of their place (Bool)."""
        from graphcell.ops.functional.common import full

        number = apply1(Iota((updates.size,), 0, dt.int64)).reshape(updates.shape)
        last = self.write("max", full(x.shape, -1, dt.int64), at, number)
        return self.read(last, at) == number

    def _grad_mul(self, x: Any, at: Grads, updates: Any, y: Any, g: Any) -> tuple[Any, Any]:
        from graphcell.ops.functional.common import full_like, select, zeros_like

        gx = self.write("mul", g, at, updates)
        if self.unique:
            return gx, self.read(g * x, at)
        # the product of the other updates of the place, which may hold zeros
        one, zero = full_like(updates, 1), zeros_like(updates)
        is_zero = updates == zero
        nonzero = select(is_zero, one, updates)
        zeros = self.read(self.write("add", zeros_like(x), at, is_zero.astype(x.dtype)), at)
        product = self.read(self.write("mul", full_like(x, 1), at, nonzero), at)
        others = select(zeros == select(is_zero, one, zero), product / nonzero, zero)
        return gx, self.read(g * x, at) * others

    def _grad_extremum(self, x: Any, at: Grads, updates: Any, y: Any, g: Any) -> tuple[Any, Any]:
        kept = (x == y).astype(g.dtype)
        hit = (updates == self.read(y, at)).astype(g.dtype)
        share = g / self.write("add", kept, at, hit)
        return share * kept, self.read(share, at) * hit


def _check_kind(name: str, kind: str, x: TensorType, updates: TensorType, shape: Shape) -> None:
    if kind not in KINDS:
        raise ShapeError(f"{name}: kind must be one of {', '.join(KINDS)}, but is {kind!r}")
    if updates.shape != shape:
        raise ShapeError(f"{name}: updates must have the shape {shape}, but have {updates.shape}")
    if updates.dtype is not x.dtype:
        raise DTypeError(f"{name}: x is {x.dtype} and the updates are {updates.dtype}; they must have one dtype")


@frozen
class Scatter(ScatterFamily):
    """Operands (x, one index Tensor for each of `axes`, updates): the places of `Gather`, written. See ScatterFamily."""

    axes: tuple[int, ...]
    kind: str
    unique: bool = False
    name = "scatter"

    def infer(self, x: TensorType, *others: TensorType) -> TensorType:  # type: ignore[override]
        shape = indexed_shape(self.name, x, self.axes, others[:-1])
        _check_kind(self.name, self.kind, x, others[-1], shape)
        return x

    def eval(self, x: Array, *others: Array) -> Array:  # type: ignore[override]
        out = np.array(x)
        if others[-1].size:
            self.store(out, _numpy_index(self.axes, x.shape, others[:-1]), others[-1])
        return out

    def read(self, x: Any, indices: Grads) -> Any:
        return apply1(Gather(self.axes), x, *indices)

    def write(self, kind: str, x: Any, indices: Grads, updates: Any) -> Any:
        return apply1(Scatter(self.axes, kind, self.unique), x, *indices, updates)


@frozen
class ScatterElements(ScatterFamily):
    """Operands (x, index, updates): the places of `GatherElements` along `axis`, written. See ScatterFamily."""

    axis: int
    kind: str
    unique: bool = False
    name = "scatter_elements"

    def infer(self, x: TensorType, index: TensorType, updates: TensorType) -> TensorType:  # type: ignore[override]
        _check_elements(self.name, x, self.axis, index)
        _check_kind(self.name, self.kind, x, updates, index.shape)
        return x

    def eval(self, x: Array, index: Array, updates: Array) -> Array:  # type: ignore[override]
        out = np.array(x)
        if index.size:
            at = list(np.ogrid[tuple(slice(n) for n in index.shape)])
            at[self.axis] = places(index, x.shape[self.axis])
            self.store(out, tuple(at), updates)
        return out

    def read(self, x: Any, indices: Grads) -> Any:
        return apply1(GatherElements(self.axis), x, *indices)

    def write(self, kind: str, x: Any, indices: Grads, updates: Any) -> Any:
        return apply1(ScatterElements(self.axis, kind, self.unique), x, *indices, updates)


@frozen
class ScatterStep(Op):
    """Operands (x, one index Tensor for each of `axes`, updates, rate): x + rate * (the updates added up in zeros).

    The places are those of `Scatter`, `rate` is a scalar of x's dtype. A step of gradient descent on a table of which few rows were used:
    native code leaves the others alone while the rate is finite.
    """

    axes: tuple[int, ...]
    name = "scatter_step"

    def infer(self, x: TensorType, *others: TensorType) -> TensorType:  # type: ignore[override]
        *places, rate = others
        if rate.rank or rate.dtype is not x.dtype:
            raise ShapeError(f"{self.name}: the rate must be a scalar {x.dtype}, but is {rate}")
        return Scatter(self.axes, "add").infer(x, *places)

    def eval(self, x: Array, *others: Array) -> Array:  # type: ignore[override]
        *places, rate = others
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(x + rate * Scatter(self.axes, "add").eval(np.zeros_like(x), *places))


def _starts(starts: tuple[Array, ...], shape: Shape, size: Shape) -> tuple[slice, ...]:
    first = [min(max(int(a), 0), d - n) for a, d, n in zip(starts, shape, size, strict=True)]
    return tuple(slice(a, a + n) for a, n in zip(first, size, strict=True))


def _check_starts(name: str, x: TensorType, size: Shape, starts: tuple[TensorType, ...]) -> None:
    if not len(size) == len(starts) == x.rank or any(not 0 <= n <= d for n, d in zip(size, x.shape, strict=True)):
        raise ShapeError(f"{name}: {len(starts)} starts and size {size} do not fit shape {x.shape}")
    if any(t.rank or not t.dtype.is_integer for t in starts):
        raise DTypeError(f"{name}: starts must be integer scalars, but are {', '.join(map(str, starts))}")


@frozen
class DynamicSlice(Op):
    """Operands (x, one integer scalar for each dimension): the block of extents `size` that starts there.

    start k is clamped to [0, x.shape[k] - size[k]].
    """

    size: Shape
    name = "dynamic_slice"

    def infer(self, x: TensorType, *starts: TensorType) -> TensorType:  # type: ignore[override]
        _check_starts(self.name, x, self.size, starts)
        return x.with_shape(self.size)

    def eval(self, x: Array, *starts: Array) -> Array:  # type: ignore[override]
        return x[_starts(starts, x.shape, self.size)]

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        from graphcell.ops.functional.common import zeros_like

        x, *starts = inputs
        return (apply1(DynamicUpdateSlice(), zeros_like(x), cotangents[0], *starts), *[None] * len(starts))


@frozen
class DynamicUpdateSlice(Op):
    """Operands (x, update, one integer scalar for each dimension): x with the block that starts there replaced by `update`.

    start k is clamped to [0, x.shape[k] - update.shape[k]].
    """

    name = "dynamic_update_slice"

    def infer(self, x: TensorType, update: TensorType, *starts: TensorType) -> TensorType:  # type: ignore[override]
        if update.rank != x.rank or update.dtype is not x.dtype:
            raise ShapeError(f"dynamic_update_slice: x is {x} and update is {update}; they must have one dtype and rank")
        _check_starts(self.name, x, update.shape, starts)
        return x

    def eval(self, x: Array, update: Array, *starts: Array) -> Array:  # type: ignore[override]
        out = np.array(x)
        out[_starts(starts, x.shape, update.shape)] = update
        return out

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        from graphcell.ops.functional.common import zeros_like

        _, update, *starts = inputs
        g = cotangents[0]
        gx = apply1(DynamicUpdateSlice(), g, zeros_like(update), *starts)
        return (gx, apply1(DynamicSlice(update.shape), g, *starts), *[None] * len(starts))
