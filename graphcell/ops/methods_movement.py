"""Attaches the methods of `Tensor` that change shapes, reduce, index and sort.

MindSpore's methods take two families of argument names, (dim, keepdim) and (axis, keepdims); both are taken here. A method whose
arguments are those of the public function is that function.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from graphcell import dtype as dt
from graphcell.dtype import DType
from graphcell.errors import ArgumentValueError, ArityError, ShapeError
from graphcell.ops.automatic import widened
from graphcell.ops.dispatch import apply1
from graphcell.ops.functional import (
    contraction,
    diagonals,
    gathering,
    indexing,
    linear_algebra,
    masking,
    movement,
    rearranging,
    reductions,
    scanning,
    softmax,
    sorting,
    vectors,
)
from graphcell.ops.functional.arithmetic import floor_mod, maximum, minimum, mul, sub
from graphcell.ops.functional.axes import arguments, int_of, ints_of, known_array, normalize_axis, tensor_of
from graphcell.ops.functional.common import as_tensor, broadcast, cast, select
from graphcell.ops.functional.creation import where
from graphcell.ops.indexing import Gather
from graphcell.ops.methods import attach, functions, update
from graphcell.ops.reduction import sum_to_shape
from graphcell.tensor import Tensor, state

Function = Callable[..., Any]


_wide_std = widened(reductions.std)


def _either(function: str, first: Any, second: Any, names: str) -> Any:
    """The one of two arguments that mean the same which is given (None: neither)."""
    if first is not None and second is not None:
        raise ArityError(f"{function}: {names} mean the same; give one of them")
    return second if first is None else first


def _keep(function: str, first: Any, second: Any, names: str) -> bool:
    value = _either(function, first, second, names)
    return False if value is None else reductions.flag(value, function, names.split(" and ")[0])


# -- shape -----------------------------------------------------------------------------------------------------------------
def view(self: Tensor, *extents: Any, shape: Any = None, dtype: DType | None = None) -> Tensor:
    """The same elements under another shape; with a dtype instead: the same bits as another type."""
    given = _either("view", _either("view", arguments(extents) if extents else None, shape, "the extents and shape"), dtype, "shape and dtype")
    if isinstance(given, (tuple, list)) and len(given) == 1 and isinstance(given[0], DType):
        given = given[0]
    return movement.bitcast(self, given) if isinstance(given, DType) else movement.reshape(self, given)


def view_as(self: Tensor, other: Tensor) -> Tensor:
    """The same elements under the shape of `other`."""
    return movement.reshape(self, other.shape)


def transpose(self: Tensor, *axes: Any, dim0: int | None = None, dim1: int | None = None) -> Tensor:
    """All dimensions reversed, two of them exchanged (two ints), or in the order given."""
    axes = (*axes, *(k for k in (dim0, dim1) if k is not None))
    if not axes:
        return movement.permuted(self, tuple(reversed(range(self.ndim))))
    given = arguments(axes)
    if len(axes) == 2 and given is axes:
        return movement.swapaxes(self, *axes)
    return movement.transpose(self, given)


def expand_as(self: Tensor, other: Any = None, *, x: Any = None) -> Tensor:
    """`self` repeated to the shape of `other` (or `x`)."""
    return movement.broadcast_to(self, tensor_of(_either("expand_as", other, x, "other and x"), "expand_as", "other").shape)


def flatten(self: Tensor, order: Any = "C", end_dim: int = -1, *, start_dim: int = 0) -> Tensor:
    """All dimensions, or those from `start_dim` to `end_dim`, as one; the first argument may be an order 'C' or 'F', or the start."""
    if not isinstance(order, str):
        order, start_dim = "C", order
    return movement.flatten(self, order, start_dim=start_dim, end_dim=end_dim)


def split(self: Tensor, split_size: Any = None, dim: Any = None, *, split_size_or_sections: Any = None, axis: Any = None) -> tuple[Tensor, ...]:
    """See `ops.split`."""
    size = _either("split", split_size, split_size_or_sections, "split_size and split_size_or_sections")
    return movement.split(self, size, _either("split", dim, axis, "dim and axis") or 0)


def chunk(self: Tensor, chunks: int, dim: Any = None, *, axis: Any = None) -> tuple[Tensor, ...]:
    """See `ops.chunk`."""
    return movement.chunk(self, chunks, _either("chunk", dim, axis, "dim and axis") or 0)


def narrow(self: Tensor, dim: Any = None, start: Any = None, length: Any = None, *, axis: Any = None) -> Tensor:
    """See `ops.narrow`."""
    return movement.narrow(self, _either("narrow", dim, axis, "dim and axis"), start, length)


def ndimension(self: Tensor) -> int:
    """The number of dimensions."""
    return self.ndim


# -- reductions ----------------------------------------------------------------------------------------------------------------
def sum(self: Tensor, dim: Any = None, keepdim: Any = None, keepdims: Any = None, initial: Any = None, *, dtype: Any = None, axis: Any = None) -> Tensor:
    """See `ops.sum`. The second argument may be the dtype; `initial` is added to the sum."""
    if isinstance(keepdim, DType):
        keepdim, dtype = None, keepdim
    keep = _keep("sum", keepdim, keepdims, "keepdim and keepdims")
    y = reductions.sum(self, _either("sum", dim, axis, "dim and axis"), keep, dtype=dtype)
    return y if initial is None else cast(y + initial, y.dtype)


def mean(self: Tensor, dim: Any = None, keepdim: Any = None, *, dtype: Any = None, axis: Any = None, keep_dims: Any = None) -> Tensor:
    """See `ops.mean`; with `dtype` the elements are converted first."""
    keep = _keep("mean", keepdim, keep_dims, "keepdim and keep_dims")
    return reductions.mean(self if dtype is None else cast(self, dtype), _either("mean", dim, axis, "dim and axis"), keep)


def prod(self: Tensor, dim: Any = None, keepdim: Any = None, dtype: Any = None, *, axis: Any = None, keep_dims: Any = None) -> Tensor:
    """See `ops.prod`."""
    keep = _keep("prod", keepdim, keep_dims, "keepdim and keep_dims")
    return reductions.prod(self, _either("prod", dim, axis, "dim and axis"), keep, dtype)


def all(self: Tensor, axis: Any = None, keep_dims: Any = None, *, dim: Any = None, keepdim: Any = None) -> Tensor:
    """See `ops.all`."""
    return reductions.all(self, _either("all", axis, dim, "axis and dim"), _keep("all", keep_dims, keepdim, "keep_dims and keepdim"))


def any(self: Tensor, axis: Any = None, keep_dims: Any = None, *, dim: Any = None, keepdim: Any = None) -> Tensor:
    """See `ops.any`."""
    return reductions.any(self, _either("any", axis, dim, "axis and dim"), _keep("any", keep_dims, keepdim, "keep_dims and keepdim"))


def _extremum(
    self: Tensor, place: Any, keep: Any, dim: Any, keepdim: Any, axis: Any, keepdims: Any, initial: Any, where: Any, return_indices: bool, function: str
) -> Any:  # fmt: skip
    """Values and indices for one dimension (`dim`, `keepdim`), values for `axis`, with indices if asked for.

    Without names, as in `x.max(1)`, an integer is `dim` where ops run at once, and `axis` inside of a graph: so it is in MindSpore.
    """
    of_axis = axis is not None or keepdims is not None or initial is not None or where is not True or return_indices
    is_unnamed = dim is None and keepdim is None
    kept = _keep(function, keep, _keep(function, keepdim, keepdims, "keepdim and keepdims") or None, "keepdim and keepdims")
    reduce, pair = (reductions.amax, reductions.max) if function == "max" else (reductions.amin, reductions.min)
    mask = None if where is True else where
    along = _either(function, place, _either(function, dim, axis, "dim and axis"), "dim and axis")
    if isinstance(along, int) and not of_axis and not (is_unnamed and state.trace is not None):
        return pair(self, along, kept, initial=initial, where=mask)
    if not return_indices:
        return reduce(self, along, kept and along is not None, initial=initial, where=mask)
    return pair(self, along, kept, initial=initial, where=mask)


def max(
    self: Tensor, place: Any = None, keep: Any = None, /, *, dim: Any = None, keepdim: Any = None, axis: Any = None, keepdims: Any = None,
    initial: Any = None, where: Any = True, return_indices: bool = False,
) -> Any:  # fmt: skip
    """The largest element; `max(dim=…)` gives the largest along `dim` and their indices, `max(axis=…)` the values only. `max(1)` is the former where
    ops run at once, the latter inside of `jit`."""
    return _extremum(self, place, keep, dim, keepdim, axis, keepdims, initial, where, return_indices, "max")


def min(
    self: Tensor, place: Any = None, keep: Any = None, /, *, dim: Any = None, keepdim: Any = None, axis: Any = None, keepdims: Any = None,
    initial: Any = None, where: Any = True, return_indices: bool = False,
) -> Any:  # fmt: skip
    """The smallest element; `min(dim=…)` gives the smallest along `dim` and their indices, `min(axis=…)` the values only. `min(1)` is the former where
    ops run at once, the latter inside of `jit`."""
    return _extremum(self, place, keep, dim, keepdim, axis, keepdims, initial, where, return_indices, "min")


def argmax(self: Tensor, axis: Any = None, keepdims: Any = None, *, dim: Any = None, keepdim: Any = None) -> Tensor:
    """See `ops.argmax`."""
    k = _either("argmax", axis, dim, "axis and dim")
    return reductions.argmax(self, k, _keep("argmax", keepdims, keepdim, "keepdims and keepdim"))


def argmin(self: Tensor, axis: Any = None, keepdims: Any = None, *, dim: Any = None, keepdim: Any = None) -> Tensor:
    """See `ops.argmin`."""
    k = _either("argmin", axis, dim, "axis and dim")
    return reductions.argmin(self, k, _keep("argmin", keepdims, keepdim, "keepdims and keepdim"))


def _spread(self: Tensor, axis: Any, ddof: Any, keepdims: Any, dim: Any, correction: Any, keepdim: Any, function: Function, name: str) -> Tensor:
    k = _either(name, axis, dim, "axis and dim")
    x = cast(self, dt.float32) if self.dtype.is_integer else self
    return function(x, k, ddof if correction is None else correction, _keep(name, keepdims, keepdim, "keepdims and keepdim"))  # type: ignore[no-any-return]


def var(self: Tensor, axis: Any = None, ddof: Any = 0, keepdims: Any = None, *, dim: Any = None, correction: Any = None, keepdim: Any = None) -> Tensor:
    """See `ops.var`; `correction` is another name of `ddof`. Of integers it is computed in float32."""
    return _spread(self, axis, ddof, keepdims, dim, correction, keepdim, reductions.var, "var")


def std(self: Tensor, axis: Any = None, ddof: Any = 0, keepdims: Any = None, *, dim: Any = None, correction: Any = None, keepdim: Any = None) -> Tensor:
    """See `ops.std`; `correction` is another name of `ddof`. Of integers it is computed in float32, and at level `auto` of mixed precision."""
    return _spread(self, axis, ddof, keepdims, dim, correction, keepdim, _wide_std, "std")


def count_nonzero(self: Tensor, dim: Any = None, keep_dims: bool = False, dtype: Any = dt.int32, *, axis: Any = None) -> Tensor:
    """See `ops.count_nonzero`."""
    return reductions.count_nonzero(self, _either("count_nonzero", dim, axis, "dim and axis"), keep_dims, dtype)


def median(self: Tensor, axis: Any = None, keepdims: Any = None, *, dim: Any = None, keepdim: Any = None) -> tuple[Tensor, Tensor]:
    """See `ops.median`."""
    k = _either("median", axis, dim, "axis and dim")
    return sorting.median(self, -1 if k is None else k, _keep("median", keepdims, keepdim, "keepdims and keepdim"))


def argmax_with_value(self: Tensor, axis: int = 0, keep_dims: bool = False) -> tuple[Tensor, Tensor]:
    """The largest element along `axis` and its index: see `ops.max`."""
    return reductions.max(self, axis, keep_dims)


def argmin_with_value(self: Tensor, axis: int = 0, keep_dims: bool = False) -> tuple[Tensor, Tensor]:
    """The smallest element along `axis` and its index: see `ops.min`."""
    return reductions.min(self, axis, keep_dims)


def ptp(self: Tensor, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The largest element along `axis` minus the smallest."""
    return sub(reductions.amax(self, axis, keepdims), reductions.amin(self, axis, keepdims))


def sum_to_size(self: Tensor, *size: Any) -> Tensor:
    """The sum over the dimensions along which `size` was broadcast to this shape.

    Raises:
        ValueError: `size` does not broadcast to this shape.
    """
    shape = ints_of(arguments(size), "sum_to_size", "size")
    lead = self.ndim - len(shape)
    if lead < 0 or builtins.any(d not in (1, e) for d, e in zip(shape, self.shape[lead:], strict=True)):
        raise ShapeError(f"sum_to_size: size {shape} does not broadcast to the shape {self.shape}")
    y: Tensor = sum_to_shape(self, shape)
    return y


def softmax_(self: Tensor, axis: int, dtype: Any = None) -> Tensor:
    """See `ops.softmax`."""
    return softmax.softmax(self, axis, dtype=dtype)


def cumsum(self: Tensor, dim: Any = None, dtype: Any = None, *, axis: Any = None) -> Tensor:
    """See `ops.cumsum`; without a dimension that of the flattened Tensor. Bool and integers of up to 16 bits give Int32."""
    k = _either("cumsum", dim, axis, "dim and axis")
    dtype = dt.int32 if dtype is None and not self.dtype.is_float and self.dtype.bits <= 16 else dtype
    return scanning.cumsum(movement.ravel(self), 0, dtype) if k is None else scanning.cumsum(self, k, dtype)


# -- moving elements --------------------------------------------------------------------------------------------------------
def repeat(self: Tensor, *counts: Any, repeats: Any = None) -> Tensor:
    """The Tensor repeated `repeats[k]` times along dimension k; at least as many counts as dimensions.

    Raises:
        ValueError: fewer counts than dimensions, or a negative one.
    """
    given = ints_of(_either("repeat", arguments(counts) if counts else None, repeats, "the counts and repeats"), "repeat", "repeats")
    if len(given) < self.ndim:
        raise ArgumentValueError(f"repeat: {len(given)} counts are too few for a Tensor of shape {self.shape}")
    return rearranging.tile(self, given)


def repeat_interleave(self: Tensor, repeats: Any, dim: Any = None, *, output_size: Any = None) -> Tensor:
    """See `ops.repeat_interleave`; `output_size` has no effect."""
    return rearranging.repeat_interleave(self, repeats, dim)


def diagonal(self: Tensor, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """See `ops.diagonal`."""
    return diagonals.diagonal(self, offset, axis1, axis2)


def trace(self: Tensor, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None) -> Tensor:
    """The sum of a diagonal; integers are summed as Int64 unless `dtype` says otherwise."""
    return reductions.sum(diagonals.diagonal(self, offset, axis1, axis2), -1, dtype=dtype)


def resize(self: Tensor, *new_shape: Any) -> Tensor:
    """The elements in row-major order under another shape, cut off or filled up with zeros.

    Raises:
        TypeError: no ints. ValueError: a negative extent.
    """
    shape = ints_of(arguments(new_shape), "resize", "new_shape")
    if builtins.min(shape, default=0) < 0:
        raise ArgumentValueError(f"resize: extents must not be negative, but new_shape is {shape}")
    count = math.prod(shape)
    flat = movement.cut(movement.ravel(self), 0, 0, builtins.min(count, self.size))
    return movement.reshape(rearranging.pad(flat, (0, count - flat.size)), shape)


# -- indexing ---------------------------------------------------------------------------------------------------------------
def gather(self: Tensor, dim: Any = None, index: Any = None, batch_dims: int = 0, *, input_indices: Any = None, axis: Any = None) -> Tensor:
    """`gather(dim, index)`: see `ops.gather_elements`. `gather(input_indices, axis, batch_dims=0)`: see `ops.gather`."""
    if isinstance(dim, Tensor) or input_indices is not None:
        positional = isinstance(dim, Tensor)
        k = _either("gather", index if positional else None, axis, "axis")
        return gathering.gather(self, dim if positional else input_indices, k, batch_dims)
    return gathering.gather_elements(self, dim, index)


def scatter(self: Tensor, dim: Any = None, index: Any = None, src: Any = None, *, axis: Any = None) -> Tensor:
    """See `ops.scatter`."""
    return gathering.scatter(self, _either("scatter", dim, axis, "dim and axis"), index, src)


def scatter_add(self: Tensor, dim: Any = None, index: Any = None, src: Any = None, *, indices: Any = None, updates: Any = None) -> Tensor:
    """`scatter_add(dim, index, src)`: src added at indices along dim. `scatter_add(indices, updates)`: see `ops.tensor_scatter_add`."""
    if isinstance(dim, Tensor) or indices is not None:
        return gathering.tensor_scatter_add(self, _either("scatter_add", dim, indices, "indices"), _either("scatter_add", index, updates, "updates"))
    at = gathering.indices_of(index, "scatter_add", "index")
    return gathering.put_elements(self, normalize_axis(dim, self.ndim, "scatter_add", "dim"), at, src, "add", "scatter_add")


def index_put(self: Tensor, indices: Any, values: Any, accumulate: bool = False) -> Tensor:
    """A copy with `values` at the places that `indices`, a tuple or list of index Tensors, take; with `accumulate` added there.

    Raises:
        TypeError, ValueError, IndexError: as indexing.
    """
    at = tuple(indices) if isinstance(indices, (tuple, list)) else (indices,)
    return indexing.tensor_combine(self, at, values, "add") if accumulate else indexing.tensor_setitem(self, at, values)


def select_(self: Tensor, dim: Any = None, index: Any = None, *, condition: Any = None, y: Any = None) -> Tensor:
    """`select(dim, index)`: the slice at `index` along `dim`. `select(condition, y)`: self where the condition holds, else y."""
    if isinstance(dim, Tensor) or condition is not None:
        chosen: Tensor = where(_either("select", dim, condition, "condition"), self, _either("select", index, y, "y"))
        return chosen
    k = normalize_axis(dim, self.ndim, "select", "dim")
    return indexing.getitem(self, (*[slice(None)] * k, int_of(index, "select", "index") if not isinstance(index, Tensor) else index))


def take(self: Tensor, indices: Any = None, axis: Any = None, mode: str = "clip", *, index: Any = None) -> Tensor:
    """The elements at `indices` (or `index`) along `axis` (of the flattened Tensor by default).

    Args:
        mode: what an index out of range means: 'clip' takes the nearest end, 'wrap' counts around, 'raise' raises. Negative ones count from the end.

    Raises:
        TypeError: indices no integers. ValueError: another mode. IndexError: with 'raise', an index known to be out of range.
    """
    at = gathering.indices_of(_either("take", indices, index, "indices and index"), "take", "indices")
    x, k = (movement.ravel(self), 0) if axis is None else (self, normalize_axis(axis, self.ndim, "take"))
    last = x.shape[k] - 1
    if mode == "clip":
        at = minimum(maximum(at, -last - 1), last)
    elif mode == "wrap":
        at = floor_mod(at, last + 1)
    elif mode != "raise":
        raise ArgumentValueError(f"take: mode must be 'clip', 'wrap' or 'raise', but is {mode!r}")
    return gathering.take_along(x, k, at, "take")


def masked_scatter(self: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """A copy in which the elements where `mask` (Bool, broadcast to this shape) is True are replaced by those of `source`, in order.

    Raises:
        TypeError: mask not Bool. ValueError: shapes that do not broadcast, or known to be too few elements.
    """
    there = broadcast(as_tensor(mask, "mask", "masked_scatter"), self.shape)
    known = known_array(there)
    if known is not None and int(known.sum()) > source.size:
        raise ArgumentValueError(f"masked_scatter: source has {source.size} elements, the mask takes {int(known.sum())}")
    if source.size == 0:
        return movement.unchanged(self)
    count = sub(scanning.cumsum(cast(movement.ravel(there), dt.int64), 0), 1)
    values = apply1(Gather((0,)), movement.ravel(cast(source, self.dtype)), maximum(count, 0))
    return select(there, movement.reshaped(values, self.shape), self)


def unique(self: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False, dim: Any = None) -> Any:
    """The different elements (or slices along `dim`) in ascending order; with the flags also, for each element, its index among them
    (Int64), and how often each occurs (Int64), as a tuple. Eager mode only.

    Raises:
        RuntimeError: the values are not known while the graph is being built.
    """
    values = masking.known_values(self, "unique")
    k = None if dim is None else normalize_axis(dim, self.ndim, "unique", "dim")
    _, first, inverse, counts = np.unique(values, True, True, True, axis=k)
    source = movement.ravel(self) if k is None else self
    results = [apply1(Gather((k or 0,)), source, Tensor.of_array(first))]
    if return_inverse:
        results.append(Tensor.of_array(inverse.reshape(self.shape if k is None else -1).astype(np.int64)))
    if return_counts:
        results.append(Tensor.of_array(counts.astype(np.int64)))
    return results[0] if len(results) == 1 else tuple(results)


def sort(self: Tensor, dim: Any = None, descending: bool = False, stable: bool = False, *, axis: Any = None) -> tuple[Tensor, Tensor]:
    """See `ops.sort`; equal elements keep their order in any case."""
    k = _either("sort", dim, axis, "dim and axis")
    return sorting.sort(self, -1 if k is None else k, descending)


def searchsorted(self: Tensor, v: Any, side: str = "left", sorter: Any = None) -> Tensor:
    """Where the numbers `v` would have to be put into this ascending Tensor (Int32). See `ops.searchsorted`."""
    return sorting.searchsorted(self, as_tensor(v, "v", "searchsorted"), out_int32=True, side=side, sorter=sorter)


# -- in place ----------------------------------------------------------------------------------------------------------------
def addmm_(self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """In place: see `ops.addmm`."""
    return update(self, contraction.addmm(self, mat1, mat2, beta=beta, alpha=alpha), "addmm_")


def masked_fill_(self: Tensor, mask: Tensor, value: Any) -> Tensor:
    """In place: see `ops.masked_fill`."""
    return update(self, masking.masked_fill(self, mask, value), "masked_fill_")


def masked_scatter_(self: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """In place: see `masked_scatter`."""
    return update(self, masked_scatter(self, mask, source), "masked_scatter_")


def scatter_(self: Tensor, dim: int, index: Tensor, src: Any) -> Tensor:
    """In place: see `ops.scatter`."""
    return update(self, gathering.scatter(self, dim, index, src), "scatter_")


def scatter_add_(self: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """In place: see `scatter_add`."""
    return update(self, scatter_add(self, dim, index, src), "scatter_add_")


def index_add_(self: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1) -> Tensor:
    """In place: alpha times the slices of `source` along `dim` added to those at the 1-D `index`."""
    k = normalize_axis(dim, self.ndim, "index_add_", "dim")
    scaled = source if alpha == 1 else cast(mul(source, alpha), source.dtype)
    return update(self, gathering.put_slices(self, k, gathering.indices_of(index, "index_add_", "index"), scaled, "add", "index_add_"), "index_add_")


def index_copy_(self: Tensor, dim: int, index: Tensor, tensor: Tensor) -> Tensor:
    """In place: the slices of `tensor` along `dim` written to those at the 1-D `index`."""
    k = normalize_axis(dim, self.ndim, "index_copy_", "dim")
    at = gathering.indices_of(index, "index_copy_", "index")
    return update(self, gathering.put_slices(self, k, at, tensor, "update", "index_copy_"), "index_copy_")


def index_fill_(self: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """In place: see `ops.index_fill`."""
    return update(self, gathering.index_fill(self, dim, index, value), "index_fill_")


def index_put_(self: Tensor, indices: Any, values: Any, accumulate: bool = False) -> Tensor:
    """In place: see `index_put`."""
    return update(self, index_put(self, indices, values, accumulate), "index_put_")


METHODS: tuple[tuple[str, Function], ...] = (
    ("__getitem__", indexing.getitem), ("__setitem__", indexing.setitem),
    ("view", view), ("view_as", view_as), ("reshape_as", view_as), ("transpose", transpose),
    ("expand_as", expand_as), ("flatten", flatten),
    ("split", split), ("chunk", chunk), ("narrow", narrow), ("ndimension", ndimension), ("dim", ndimension),
    ("nelement", movement.numel), ("sum", sum), ("mean", mean), ("prod", prod), ("all", all), ("any", any), ("max", max), ("min", min),
    ("argmax", argmax), ("argmin", argmin), ("var", var), ("std", std), ("count_nonzero", count_nonzero), ("ptp", ptp), ("median", median),
    ("argmax_with_value", argmax_with_value), ("argmin_with_value", argmin_with_value), ("adjoint", movement.adjoint),
    ("sum_to_size", sum_to_size), ("softmax", softmax_), ("cumsum", cumsum), ("repeat", repeat),
    ("repeat_interleave", repeat_interleave), ("diagonal", diagonal), ("trace", trace), ("resize", resize), ("gather", gather),
    ("scatter", scatter), ("scatter_add", scatter_add), ("scatter_sub", gathering.tensor_scatter_sub),
    ("scatter_mul", gathering.tensor_scatter_mul), ("scatter_div", gathering.tensor_scatter_div),
    ("scatter_max", gathering.tensor_scatter_max), ("scatter_min", gathering.tensor_scatter_min), ("index_put", index_put),
    ("select", select_), ("take", take), ("masked_scatter", masked_scatter), ("unique", unique), ("sort", sort),
    ("searchsorted", searchsorted), ("masked_fill_", masked_fill_), ("masked_scatter_", masked_scatter_), ("scatter_", scatter_),
    ("scatter_add_", scatter_add_), ("index_add_", index_add_), ("index_copy_", index_copy_), ("index_fill_", index_fill_),
    ("index_put_", index_put_), ("reverse", rearranging.reverse), ("addmm_", addmm_),
    *functions(contraction, "addbmm addmm addmv baddbmm bmm dot ger inner mm outer"),
    *functions(gathering, """
        gather_elements gather_nd index_fill select_scatter slice_scatter
        unsorted_segment_max unsorted_segment_min unsorted_segment_prod"""),
    *functions(movement, """
        dsplit expand_dims hsplit moveaxis movedim numel ravel swapaxes swapdims t tensor_split unbind unsqueeze vsplit"""),
    *functions(rearranging, "diff flip fliplr flipud roll rot90"),
    *functions(diagonals, "diag_embed diagflat diagonal_scatter tril triu"),
    *functions(masking, "argwhere masked_select nonzero"),
    *functions(reductions, "amax amin aminmax nanmean nansum"),
    *functions(scanning, "cummax cummin cumprod logcumsumexp"),
    *functions(softmax, "logsumexp norm"),
    *functions(vectors, "cov cross renorm"),
    *functions(linear_algebra, "cholesky cholesky_solve inverse logdet slogdet svd"), ("matrix_determinant", linear_algebra.det),
    ("det", linear_algebra.det), ("log_matrix_determinant", linear_algebra.slogdet),
    *functions(sorting, "bincount histc msort nanmedian top_k topk unique_consecutive"),
)  # fmt: skip

attach(METHODS)
