"""Public functions that order, count and search.

Enters: Tensors, axes, numbers. Leaves: Tensors; indices in the dtype that MindSpore gives them. NaN counts as larger than any number, equal
elements keep their order. Refuses, while a graph is being built: results whose shape depends on values (`unique`, `bincount`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphcell import dtype as dt
from graphcell.errors import ArgumentTypeError, ArgumentValueError, DTypeError, ShapeError
from graphcell.ops.dispatch import apply, apply1
from graphcell.ops.functional.arithmetic import div, floor_div, maximum, minimum, mul, sub
from graphcell.ops.functional.axes import int_of, normalize_axis, tensor_of
from graphcell.ops.functional.common import as_tensor, broadcast, cast, constant, full, full_like, select, zeros_like
from graphcell.ops.functional.comparison import equal, greater_equal, isnan, less_equal, logical_and, logical_not
from graphcell.ops.functional.masking import known_values
from graphcell.ops.functional.mathematics import floor
from graphcell.ops.functional.movement import cut, reshaped
from graphcell.ops.functional.reductions import flag, largest, place, smallest, total
from graphcell.ops.indexing import Gather, GatherElements, Scatter
from graphcell.ops.reduction import ArgMax
from graphcell.ops.sorting import SearchSorted, Sort, TopK
from graphcell.tensor import Tensor

__all__ = [
    "argsort", "bincount", "bucketize", "histc", "median", "msort", "nanmedian", "searchsorted", "sort", "top_k", "topk", "unique",
    "unique_consecutive",
]  # fmt: skip


def _axis(axis: Any, x: Tensor, function: str, what: str = "axis") -> int:
    if x.ndim == 0:
        raise ShapeError(f"{function}: the input must have one dimension at least, but is a scalar")
    return normalize_axis(axis, x.ndim, function, what)


# -- sort --------------------------------------------------------------------------------------------------------------------
def sort(input_x: Tensor, axis: int = -1, descending: bool = False) -> tuple[Tensor, Tensor]:
    """The elements in order along `axis`, and the index (Int32) that each had.

    Raises:
        TypeError: input_x is no Tensor, axis no int, descending no bool. ValueError: a scalar, or axis out of range.
    """
    x = tensor_of(input_x, "sort", "input_x")
    values, order = apply(Sort(_axis(axis, x, "sort"), flag(descending, "sort", "descending")), x)
    return values, cast(order, dt.int32)


def argsort(input: Tensor, axis: int = -1, descending: bool = False) -> Tensor:
    """The indices (Int32) that bring the elements in order along `axis`. Errors: as `sort`."""
    x = tensor_of(input, "argsort")
    return cast(apply(Sort(_axis(axis, x, "argsort"), flag(descending, "argsort", "descending")), x)[1], dt.int32)


def msort(input: Tensor) -> Tensor:
    """The elements in order along dimension 0."""
    return sort(input, 0)[0]


def topk(input: Tensor, k: int, dim: int | None = None, largest: bool = True, sorted: bool = True) -> tuple[Tensor, Tensor]:
    """The `k` largest (or smallest) elements along `dim` (default: the last), the most extreme first, and their indices (Int32).

    Raises:
        TypeError: input is no Tensor, k no int. ValueError: k not from 1 to the extent, dim out of range.
    """
    x, count = tensor_of(input, "topk"), int_of(k, "topk", "k")
    axis = _axis(-1 if dim is None else dim, x, "topk", "dim")
    flag(sorted, "topk", "sorted")
    if count <= 0:
        raise ArgumentValueError(f"topk: k must be from 1 to {x.shape[axis]}, but is {count}")
    values, order = apply(TopK(count, axis, flag(largest, "topk", "largest")), x)
    return values, cast(order, dt.int32)


def top_k(input_x: Tensor, k: int, sorted: bool = True) -> tuple[Tensor, Tensor]:
    """`topk` along the last dimension."""
    return topk(input_x, k, sorted=sorted)


# -- median ------------------------------------------------------------------------------------------------------------------
def median(input: Tensor, axis: int = -1, keepdims: bool = False) -> tuple[Tensor, Tensor]:
    """The median along `axis` (of an even count the lower one) and its index (Int64); NaN where there is a NaN.

    Raises:
        TypeError: input is no Tensor of numbers, axis no int. ValueError: axis out of range, or no elements.
    """
    x, k = _for_median(input, axis, "median")
    _, order = apply(Sort(k), x)
    index = cut(order, k, (x.shape[k] - 1) // 2, 1)
    if x.dtype.is_float:
        nans = cast(isnan(x), dt.int32)
        index = select(equal(total(nans, (k,), True), zeros_like(index, dt.int32)), index, place(nans, k, True, ArgMax))
    return _median_at(input, x, k, index, flag(keepdims, "median", "keepdims"))


def nanmedian(input: Tensor, axis: int = -1, keepdims: bool = False) -> tuple[Tensor, Tensor]:
    """The median along `axis` of the elements that are not NaN, and its index (Int64). Errors: as `median`."""
    x, k = _for_median(input, axis, "nanmedian")
    if not x.dtype.is_float:
        return median(input, axis, keepdims)
    _, order = apply(Sort(k), x)
    count = total(cast(logical_not(isnan(x)), dt.int64), (k,), True)
    middle = floor_div(sub(maximum(count, 1), 1), 2)
    return _median_at(input, x, k, apply1(GatherElements(k), order, middle), flag(keepdims, "nanmedian", "keepdims"))


def _for_median(input: Any, axis: Any, function: str) -> tuple[Tensor, int]:
    x = tensor_of(input, function)
    if x.dtype.is_bool:
        raise DTypeError(f"{function}: the input must hold numbers, but is Bool")
    x = x if x.ndim else reshaped(x, (1,))
    k = normalize_axis(axis, x.ndim, function)
    if x.shape[k] == 0:
        raise ShapeError(f"{function}: dimension {k} of shape {x.shape} is empty")
    return x, k


def _median_at(input: Tensor, x: Tensor, k: int, index: Tensor, keep: bool) -> tuple[Tensor, Tensor]:
    value = apply1(GatherElements(k), x, index)
    shape = value.shape if keep and input.ndim else x.shape[:k] + x.shape[k + 1 :]
    return reshaped(value, shape), reshaped(index, shape)


# -- unique ------------------------------------------------------------------------------------------------------------------
def unique(input: Tensor) -> tuple[Tensor, Tensor]:
    """The different elements in the order of their first occurrence, and for each element of the input its index among them.

    The indices are Int64 for an Int64 input, else Int32. Eager mode only.

    Raises:
        TypeError: input is no Tensor. RuntimeError: its values are not known while the graph is being built.
    """
    x = tensor_of(input, "unique")
    _, first, inverse = np.unique(known_values(x, "unique"), return_index=True, return_inverse=True, equal_nan=False)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    values = apply1(Gather((0,)), reshaped(x, (x.size,)), Tensor.of_array(np.sort(first)))
    index_type = np.int64 if x.dtype is dt.int64 else np.int32
    return values, Tensor.of_array(rank[inverse.reshape(x.shape)].astype(index_type))


def unique_consecutive(input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None) -> Any:
    """The elements (or slices along `dim`) without those that equal the one before. Eager mode only.

    Returns:
        The values; with `return_inverse` also for each element its index among them, with `return_counts` also how often each stood there
        (Int64), as a tuple.

    Raises:
        TypeError: input is no Tensor. ValueError: dim out of range. RuntimeError: the values are not known while the graph is being built.
    """
    x = tensor_of(input, "unique_consecutive")
    axis = None if dim is None else normalize_axis(dim, x.ndim, "unique_consecutive", "dim")
    source = reshaped(x, (x.size,)) if axis is None else x
    k = axis or 0
    extent = source.shape[k]
    data = np.moveaxis(known_values(source, "unique_consecutive"), k, 0).reshape(extent, source.size // max(extent, 1))
    starts = np.ones(len(data), bool)
    starts[1:] = (data[1:] != data[:-1]).any(1)
    places = np.flatnonzero(starts)
    results = [apply1(Gather((k,)), source, Tensor.of_array(places))]
    if return_inverse:
        inverse = np.cumsum(starts) - 1
        results.append(Tensor.of_array(inverse.reshape(x.shape if axis is None else -1).astype(np.int64)))
    if return_counts:
        results.append(Tensor.of_array(np.diff(np.append(places, len(data))).astype(np.int64)))
    return results[0] if len(results) == 1 else tuple(results)


# -- counting ------------------------------------------------------------------------------------------------------------------
def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """How often each number from 0 to the largest occurs, or the sum of the weights of its occurrences; Float32, as MindSpore has it (Float64
    for weights of that type). Negative numbers are left out. Eager mode only.

    Raises:
        TypeError: input is no Tensor of integers, minlength no int. ValueError: not one dimension, weights of another shape, minlength negative.
        RuntimeError: the values are not known while the graph is being built.
    """
    x, least = tensor_of(input, "bincount"), int_of(minlength, "bincount", "minlength")
    if not x.dtype.is_integer:
        raise DTypeError(f"bincount: the input must hold integers, but is {x.dtype}")
    if x.ndim != 1 or least < 0:
        raise ArgumentValueError(f"bincount: the input must have one dimension and minlength not be negative, but they are {x.shape} and {least}")
    w = None if weights is None else tensor_of(weights, "bincount", "weights")
    if w is not None and w.shape != x.shape:
        raise ShapeError(f"bincount: weights must have the shape {x.shape}, but have {w.shape}")
    values = known_values(x, "bincount")
    length = max(least, int(values.max()) + 1 if values.size else 0)
    target = dt.float64 if w is not None and w.dtype is dt.float64 else dt.float32
    if values.size and values.min() < 0:
        there = np.flatnonzero(values >= 0)
        values = values[there]
        w = w if w is None else apply1(Gather((0,)), w, Tensor.of_array(there))
    kept = values.astype(np.int64, copy=False)
    if w is None:
        return Tensor.of_array(np.bincount(kept, minlength=length).astype(target.np_type))
    return apply1(Scatter((0,), "add"), full((length,), 0, target), Tensor.of_array(kept), cast(w, target))


def histc(input: Tensor, bins: int = 100, min: float = 0.0, max: float = 0.0) -> Tensor:
    """How many elements lie in each of `bins` equal intervals from `min` to `max` (both 0: from the smallest to the largest element).

    Elements outside are left out; the last interval contains its upper end. The result has the dtype of the input; float32 for float16.

    Raises:
        TypeError: input is no Tensor of numbers, bins no int. ValueError: bins not positive, min larger than max.
    """
    x, count = tensor_of(input, "histc"), int_of(bins, "histc", "bins")
    if x.dtype.is_bool:
        raise DTypeError("histc: the input must hold numbers, but is Bool")
    if count <= 0 or min > max:
        raise ArgumentValueError(f"histc: bins must be positive and min not larger than max, but they are {count}, {min} and {max}")
    y = reshaped(cast(x, dt.float64), (x.size,))
    counted = dt.float32 if x.dtype is dt.float16 else x.dtype
    if x.size == 0:
        return full((count,), 0, counted)
    automatic = min == max == 0
    low = smallest(y, (0,)) if automatic else full((), float(min), dt.float64)
    high = largest(y, (0,)) if automatic else full((), float(max), dt.float64)
    flat = equal(low, high)  # one value only: an interval of one half to either side
    low, high = select(flat, sub(low, 1), low), select(flat, sub(high, -1), high)
    low_row, high_row = broadcast(low, y.shape), broadcast(high, y.shape)
    inside = logical_and(greater_equal(y, low_row), less_equal(y, high_row))
    bin_of = floor(div(mul(sub(y, low_row), full_like(y, count)), sub(high_row, low_row)))
    index = cast(minimum(select(inside, bin_of, zeros_like(y)), count - 1), dt.int64)
    return apply1(Scatter((0,), "add"), full((count,), 0, counted), index, cast(inside, counted))


# -- searching -----------------------------------------------------------------------------------------------------------------
def searchsorted(
    sorted_sequence: Tensor, values: Tensor, *, out_int32: bool = False, right: bool = False, side: str | None = None, sorter: Any = None
) -> Tensor:
    """Where `values` would have to be put into the ascending sequence to keep it ascending: before equal elements, or after with `right`.

    Args:
        sorted_sequence: (n,) for all values, or (*lead, n) for values of shape (*lead, m).
        side: 'left' or 'right', another way to give `right`.
        sorter: integer Tensor of the sequence's shape that brings it in order, if it is not.

    Raises:
        TypeError: no Tensors. ValueError: shapes that do not fit, side that is neither or contradicts `right`.
    """
    s, v = tensor_of(sorted_sequence, "searchsorted", "sorted_sequence"), tensor_of(values, "searchsorted", "values")
    if side not in (None, "left", "right") or (side == "left" and right):
        raise ArgumentValueError(f"searchsorted: side {side!r} is neither 'left' nor 'right', or contradicts right={right}")
    if sorter is not None:
        s = apply1(GatherElements(s.ndim - 1), s, tensor_of(sorter, "searchsorted", "sorter"))
    common = dt.promote(s.dtype, v.dtype)
    found = apply1(SearchSorted(flag(right, "searchsorted", "right") or side == "right"), cast(s, common), cast(v, common))
    return cast(found, dt.int32) if flag(out_int32, "searchsorted", "out_int32") else found


def bucketize(input: Tensor, boundaries: Any, *, right: bool = False) -> Tensor:
    """The index (Int32) of the interval between `boundaries` (a list of ascending numbers) that each element lies in.

    An element that equals a boundary belongs to the interval below it, or above it with `right`.

    Raises:
        TypeError: input is no Tensor, boundaries no list of numbers.
    """
    x = tensor_of(input, "bucketize")
    if not isinstance(boundaries, (list, tuple)):
        raise ArgumentTypeError(f"bucketize: boundaries must be a list of numbers, but is {type(boundaries).__name__}")
    edges = as_tensor(list(boundaries)) if boundaries else constant(np.empty(0, np.float32))
    return searchsorted(edges, x, out_int32=True, right=right)
