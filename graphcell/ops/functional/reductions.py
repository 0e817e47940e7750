"""Public reductions: sums, means, products, extrema and their places, variance.

Enters: a Tensor and an axis (None: all; an int; for most a tuple of ints). Leaves: a Tensor without the reduced dimensions, or with
extent 1 there if they are kept. NaN spreads. Half precision is summed in float32. Refuses: an extremum of nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from graphcell import dtype as dt
from graphcell.errors import ArgumentTypeError, DTypeError
from graphcell.ops.automatic import listed
from graphcell.ops.dispatch import apply1
from graphcell.ops.functional.arithmetic import div, maximum, minimum, mul, square, sub
from graphcell.ops.functional.axes import int_of, normalize_axes, normalize_axis, tensor_of
from graphcell.ops.functional.common import as_tensor, broadcast, cast, full_like, select, zeros_like
from graphcell.ops.functional.comparison import isnan, logical_not, not_equal
from graphcell.ops.functional.movement import cut, joined, permuted, reshaped
from graphcell.ops.kernels import composite, elementary
from graphcell.ops.reduction import ArgMax, ArgMin, ReduceAll, ReduceAny, ReduceMax, ReduceMin, ReduceProd, ReduceSum
from graphcell.tensor import Tensor

__all__ = [
    "all", "amax", "amin", "aminmax", "any", "argmax", "argmin", "count_nonzero", "max", "mean", "min", "nanmean", "nansum", "prod",
    "std", "std_mean", "sum", "var", "var_mean",
]  # fmt: skip

Axes = tuple[int, ...]

_SMALL = (dt.bool_, dt.int8, dt.int16, dt.int32, dt.uint8)


# -- compositions for internal use: everything normalised ---------------------------------------------------------------
def total(x: Tensor, axes: Axes, keep: bool = False) -> Tensor:
    """The sum along `axes` in the dtype of `x`."""
    return apply1(ReduceSum(axes, keep), x) if axes else x


def wide(x: Tensor) -> Tensor:
    """Half precision as float32, the rest as it is: for formulas of several steps."""
    return cast(x, dt.float32) if x.dtype.is_float and x.dtype.bits == 16 else x


def count_of(x: Tensor, axes: Axes) -> int:
    """How many elements each reduction along `axes` sees."""
    return math.prod(x.shape[a] for a in axes)


def mean_of(x: Tensor, axes: Axes, keep: bool = False) -> Tensor:
    """The mean of floats along `axes`, in float32 at least; NaN where there is nothing."""
    return div(total(wide(x), axes, keep), count_of(x, axes))


def largest(x: Tensor, axes: Axes, keep: bool = False) -> Tensor:
    """The largest element along `axes`."""
    return apply1(ReduceMax(axes, keep), x) if axes else x


def smallest(x: Tensor, axes: Axes, keep: bool = False) -> Tensor:
    """The smallest element along `axes`."""
    return apply1(ReduceMin(axes, keep), x) if axes else x


def flag(value: Any, function: str, what: str) -> bool:
    """`value`, which must be a bool.

    Raises:
        TypeError: if it is not.
    """
    if isinstance(value, bool):
        return value
    raise ArgumentTypeError(f"{function}: {what} must be a bool, but is {type(value).__name__}")


def product_of_others(x: Tensor, axis: Axes) -> Tensor:
    """For each element the product of all other elements along `axis`; exact where elements are zero, to every order of derivative.

    Elements are paired and the products of the pairs treated in the same way: about 3·n multiplications in log2(n) steps.
    """
    order = tuple(k for k in range(x.ndim) if k not in axis) + axis
    moved = permuted(x, order)
    count = count_of(x, axis)
    rows = reshaped(moved, (x.size // count if count else 0, count))
    back = tuple(order.index(k) for k in range(x.ndim))
    return permuted(reshaped(_product_of_others(rows), moved.shape), back)


def _product_of_others(rows: Tensor) -> Tensor:
    count = rows.shape[1]
    if count <= 1:
        return full_like(rows, 1)
    half = count // 2
    first, second, odd = cut(rows, 1, 0, half), cut(rows, 1, half, half), cut(rows, 1, 2 * half, count % 2)
    pairs = mul(first, second)
    outside = _product_of_others(joined((pairs, odd), 1) if count % 2 else pairs)
    beside = cut(outside, 1, 0, half)
    parts = (mul(beside, second), mul(beside, first))
    return joined((*parts, cut(outside, 1, half, 1)) if count % 2 else parts, 1)


def _summed_dtype(x: Tensor, dtype: Any) -> dt.DType:
    """The dtype of sums and products: `dtype`, if it is given; else small integers and Bool become Int64."""
    if dtype is not None:
        return dt.as_dtype(dtype)
    return dt.int64 if x.dtype in _SMALL else x.dtype


# -- sums ---------------------------------------------------------------------------------------------------------------
@elementary
def sum(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The sum over `dim`. Bool and integers (but uint16, uint32 and uint64) are summed as Int64 unless `dtype` says otherwise.

    Raises:
        TypeError: input is no Tensor, dim no int or tuple of ints, keepdim no bool. ValueError: dim out of range or repeated.
    """
    x = tensor_of(input, "sum")
    axes = normalize_axes(dim, x.ndim, "sum", "dim")
    return total(cast(x, _summed_dtype(x, dtype)), axes, flag(keepdim, "sum", "keepdim"))


def nansum(input: Tensor, axis: Any = None, keepdims: bool = False, *, dtype: Any = None) -> Tensor:
    """The sum over `axis` with NaN taken as zero. Integers keep their dtype unless `dtype` says otherwise, Bool becomes Int64.

    Raises:
        TypeError, ValueError: as `sum`.
    """
    x = tensor_of(input, "nansum")
    clean = select(isnan(x), zeros_like(x), x) if x.dtype.is_float else x
    same = None if x.dtype.is_bool else x.dtype
    return sum(clean, axis, keepdims, dtype=same if dtype is None else dtype)


@composite
def mean(x: Tensor, axis: Any = None, keep_dims: bool = False) -> Tensor:
    """The mean over `axis`, in the dtype of x (of integers: rounded towards zero).

    Raises:
        TypeError: x is no Tensor, or Bool. ValueError: axis out of range or repeated.
    """
    x = tensor_of(x, "mean", "x")
    if x.dtype.is_bool:
        raise DTypeError("mean: the input must hold numbers, but is Bool", hint="cast it to float32 first")
    axes = normalize_axes(axis, x.ndim, "mean")
    keep = flag(keep_dims, "mean", "keep_dims")
    exact = x if x.dtype.is_float else cast(x, dt.float64)
    return cast(mean_of(exact, axes, keep), x.dtype)


def nanmean(input: Tensor, axis: Any = None, keepdims: bool = False, *, dtype: Any = None) -> Tensor:
    """The mean over `axis` of the elements that are not NaN; NaN where there are none.

    Raises:
        TypeError: input is no float Tensor. ValueError: axis out of range or repeated.
    """
    x = _float(input, "nanmean")
    there = cast(logical_not(isnan(x)), x.dtype)
    return div(nansum(x, axis, keepdims, dtype=dtype), total(there, normalize_axes(axis, x.ndim, "nanmean"), keepdims))


def _float(input: Any, function: str) -> Tensor:
    x = tensor_of(input, function)
    if not x.dtype.is_float:
        raise DTypeError(f"{function}: the input must hold floats, but is {x.dtype}", hint="cast it to float32 first")
    return x


@listed
def prod(input: Tensor, axis: Any = None, keep_dims: bool = False, dtype: Any = None) -> Tensor:
    """The product over `axis`. Bool and integers (but uint16, uint32 and uint64) are multiplied as Int64 unless `dtype` says otherwise.

    Raises:
        TypeError: input is no Tensor, axis no int or tuple of ints, keep_dims no bool. ValueError: axis out of range or repeated.
    """
    x = tensor_of(input, "prod")
    axes = normalize_axes(axis, x.ndim, "prod")
    y = cast(x, _summed_dtype(x, dtype))
    if y.dtype.is_bool:
        return apply1(ReduceAll(axes, keep_dims), y) if axes else y
    return apply1(ReduceProd(axes, flag(keep_dims, "prod", "keep_dims")), y) if axes else y


# -- truth ----------------------------------------------------------------------------------------------------------------
def _bools(x: Tensor) -> Tensor:
    return x if x.dtype.is_bool else not_equal(x, zeros_like(x))


def all(input: Tensor, axis: Any = None, keep_dims: bool = False) -> Tensor:
    """True (Bool) where all elements along `axis` are not zero.

    Raises:
        TypeError: input is no Tensor, axis no int or tuple of ints, keep_dims no bool. ValueError: axis out of range or repeated.
    """
    x = _bools(tensor_of(input, "all"))
    axes = normalize_axes(axis, x.ndim, "all")
    return apply1(ReduceAll(axes, flag(keep_dims, "all", "keep_dims")), x) if axes else x


def any(input: Tensor, axis: Any = None, keep_dims: bool = False) -> Tensor:
    """True (Bool) where some element along `axis` is not zero.

    Raises:
        TypeError, ValueError: as `all`.
    """
    x = _bools(tensor_of(input, "any"))
    axes = normalize_axes(axis, x.ndim, "any")
    return apply1(ReduceAny(axes, flag(keep_dims, "any", "keep_dims")), x) if axes else x


def count_nonzero(x: Tensor, axis: Any = (), keep_dims: bool = False, dtype: Any = dt.int32) -> Tensor:
    """How many elements along `axis` are not zero.

    Raises:
        TypeError: x is no Tensor, axis no int or tuple of ints. ValueError: axis out of range or repeated.
    """
    x = tensor_of(x, "count_nonzero", "x")
    axes = normalize_axes(axis, x.ndim, "count_nonzero")
    return total(cast(_bools(x), dt.as_dtype(dtype)), axes, flag(keep_dims, "count_nonzero", "keep_dims"))


# -- extrema ------------------------------------------------------------------------------------------------------------
def _start(x: Tensor, initial: Any, where: Any, function: str, bound: float) -> Tensor:
    """`x` with `initial`, or `bound` if there is none, where the mask `where` is False."""
    if where is None or where is True:
        return x
    mask = as_tensor(where, "where", function)
    if not mask.dtype.is_bool:
        raise DTypeError(f"{function}: where must be Bool, but is {mask.dtype}")
    if initial is None:
        if x.dtype.is_float:
            initial = bound
        else:
            raise ArgumentTypeError(f"{function}: where needs initial for a Tensor of {x.dtype}", hint="give initial=…")
    return cast(select(mask, x, initial), x.dtype)


def _extremum(
    x: Tensor, axes: Axes, keep: bool, initial: Any, where: Any, reduce: Callable[..., Tensor], combine: Callable[..., Tensor], function: str
) -> Tensor:
    if x.dtype.is_bool:
        raise DTypeError(f"{function}: the input must hold numbers, but is Bool", hint="use ops.any or ops.all")
    start = _start(x, initial, where, function, -math.inf if reduce is largest else math.inf)
    if initial is not None and count_of(start, axes) == 0:
        shape = tuple(1 if k in axes else d for k, d in enumerate(x.shape) if keep or k not in axes)
        return broadcast(cast(as_tensor(initial), x.dtype), shape)
    y = reduce(start, axes, keep)
    return y if initial is None else cast(combine(y, initial), x.dtype)


@elementary
def amax(input: Tensor, axis: Any = None, keepdims: bool = False, *, initial: Any = None, where: Any = None) -> Tensor:
    """The largest element along `axis`. Its gradient is shared equally among equal ones.

    Args:
        initial: a number that takes part as one more element.
        where: Bool Tensor that broadcasts with the input; elements where it is False take no part.

    Raises:
        TypeError: input is no Tensor of numbers, axis no int or tuple of ints. ValueError: axis out of range or repeated, or nothing to compare.
    """
    x = tensor_of(input, "amax")
    axes = normalize_axes(axis, x.ndim, "amax")
    return _extremum(x, axes, flag(keepdims, "amax", "keepdims"), initial, where, largest, maximum, "amax")


@elementary
def amin(input: Tensor, axis: Any = None, keepdims: bool = False, *, initial: Any = None, where: Any = None) -> Tensor:
    """The smallest element along `axis`. Arguments and errors: as `amax`."""
    x = tensor_of(input, "amin")
    axes = normalize_axes(axis, x.ndim, "amin")
    return _extremum(x, axes, flag(keepdims, "amin", "keepdims"), initial, where, smallest, minimum, "amin")


def aminmax(input: Tensor, *, axis: Any = 0, keepdims: bool = False) -> tuple[Tensor, Tensor]:
    """The smallest and the largest element along `axis`.

    Raises:
        TypeError, ValueError: as `amax`.
    """
    return amin(input, axis, keepdims), amax(input, axis, keepdims)


def place(x: Tensor, axis: int | None, keep: bool, op: type[ArgMax] | type[ArgMin]) -> Tensor:
    """The index (Int64) of the first extremum along `axis`, or in the flattened Tensor: that one is a scalar, whatever `keep` says."""
    if axis is None or x.ndim == 0:
        return apply1(op(0), reshaped(x, (x.size,)))
    y = apply1(op(axis), x)
    return reshaped(y, tuple(1 if k == axis else d for k, d in enumerate(x.shape))) if keep else y


def extremum_and_place(x: Tensor, axis: int, keep: bool, op: type[ArgMax] | type[ArgMin]) -> tuple[Tensor, Tensor]:
    """The first extremum along `axis` and its index (Int64). The gradient goes to that element alone."""
    from graphcell.ops.indexing import GatherElements

    if x.ndim == 0:
        return x, zeros_like(x, dt.int64)
    index = place(x, axis, True, op)
    value = apply1(GatherElements(axis), x, index)
    if keep:
        return value, index
    shape = x.shape[:axis] + x.shape[axis + 1 :]
    return reshaped(value, shape), reshaped(index, shape)


def max(input: Tensor, axis: int | None = None, keepdims: bool = False, *, initial: Any = None, where: Any = None) -> tuple[Tensor, Tensor]:
    """The largest element along `axis` and its index (Int64); without axis that of all elements, and index 0, as MindSpore has it.

    Raises:
        TypeError: input is no Tensor of numbers, axis no int. ValueError: axis out of range, or nothing to compare.
    """
    return _max_or_min(input, axis, keepdims, initial, where, "max")


def min(input: Tensor, axis: int | None = None, keepdims: bool = False, *, initial: Any = None, where: Any = None) -> tuple[Tensor, Tensor]:
    """The smallest element along `axis` and its index (Int64); without axis that of all elements, and index 0, as MindSpore has it.

    Raises:
        TypeError, ValueError: as `max`.
    """
    return _max_or_min(input, axis, keepdims, initial, where, "min")


def _max_or_min(input: Tensor, axis: int | None, keepdims: bool, initial: Any, where: Any, function: str) -> tuple[Tensor, Tensor]:
    x = tensor_of(input, function)
    keep = flag(keepdims, function, "keepdims")
    highest = function == "max"
    reduce, combine, op = (largest, maximum, ArgMax) if highest else (smallest, minimum, ArgMin)
    if x.dtype.is_bool:
        raise DTypeError(f"{function}: the input must hold numbers, but is Bool")
    if axis is None:
        value = _extremum(x, tuple(range(x.ndim)), False, initial, where, reduce, combine, function)
        return value, zeros_like(value, dt.int64)
    if isinstance(axis, (tuple, list)):
        raise ArgumentTypeError(f"{function}: axis must be an int, but is {type(axis).__name__}", hint=f"ops.a{function} takes several axes")
    k = normalize_axis(axis, x.ndim or 1, function)
    start = _start(x, initial, where, function, -math.inf if highest else math.inf)
    return extremum_and_place(start if initial is None else cast(combine(start, initial), x.dtype), k, keep, op)


def argmax(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """The index (Int64) of the first largest element along `dim`, or in the flattened Tensor; NaN counts as largest, True as larger than False.

    `keepdim` goes with `dim`: the index in the flattened Tensor is a scalar.

    Raises:
        TypeError: input is no Tensor, dim no int. ValueError: dim out of range, or nothing to compare.
    """
    x = tensor_of(input, "argmax")
    x = cast(x, dt.int8) if x.dtype.is_bool else x
    return place(x, _axis(dim, x, "argmax", "dim"), flag(keepdim, "argmax", "keepdim"), ArgMax)


def argmin(input: Tensor, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The index (Int32, as MindSpore has it) of the first smallest element along `axis`, or in the flattened Tensor; NaN counts as smallest.

    `keepdims` goes with `axis`: the index in the flattened Tensor is a scalar.

    Raises:
        TypeError: input is no Tensor, axis no int. ValueError: axis out of range, or nothing to compare.
    """
    x = tensor_of(input, "argmin")
    return cast(place(x, _axis(axis, x, "argmin", "axis"), flag(keepdims, "argmin", "keepdims"), ArgMin), dt.int32)


def _axis(axis: Any, x: Tensor, function: str, what: str) -> int | None:
    if x.dtype.is_bool:
        raise DTypeError(f"{function}: the input must hold numbers, but is Bool", hint="cast it to int32 first")
    return None if axis is None else normalize_axis(axis, x.ndim or 1, function, what)


# -- variance -------------------------------------------------------------------------------------------------------------
@composite
def variance(x: Tensor, axes: Axes, ddof: int, keep: bool) -> tuple[Tensor, Tensor]:
    """Variance and mean along `axes`, in float32 at least: the sum of squared distances from the mean over count - ddof."""
    mean_kept = mean_of(x, axes, True)
    distance = sub(wide(x), broadcast(mean_kept, x.shape))
    value = div(total(square(distance), axes, keep), count_of(x, axes) - ddof)
    return value, mean_kept if keep else reshaped(mean_kept, value.shape)


def _variance(input: Any, axis: Any, ddof: Any, keepdims: Any, function: str) -> tuple[Tensor, Tensor]:
    x = _float(input, function)
    axes = normalize_axes(axis, x.ndim, function)
    if not isinstance(ddof, bool):
        ddof = int_of(ddof, function, "ddof")
    value, average = variance(x, axes, int(ddof), flag(keepdims, function, "keepdims"))
    return value, average


@composite
def var(input: Tensor, axis: Any = None, ddof: int | bool = 0, keepdims: bool = False) -> Tensor:
    """The variance over `axis`: squared distances from the mean, summed, over count - ddof.

    Raises:
        TypeError: input is no float Tensor, ddof no int. ValueError: axis out of range or repeated.
    """
    return cast(_variance(input, axis, ddof, keepdims, "var")[0], input.dtype)


@composite
def std(input: Tensor, axis: Any = None, ddof: int | bool = 0, keepdims: bool = False) -> Tensor:
    """The square root of `var`, with the same arguments."""
    return _std_mean(input, axis, ddof, keepdims, "std")[0]


@composite
def var_mean(input: Tensor, axis: Any = None, ddof: int | bool = 0, keepdims: bool = False) -> tuple[Tensor, Tensor]:
    """Variance and mean over `axis`, with the arguments of `var`."""
    value, average = _variance(input, axis, ddof, keepdims, "var_mean")
    return cast(value, input.dtype), cast(average, input.dtype)


@composite
def std_mean(input: Tensor, axis: Any = None, ddof: int | bool = 0, keepdims: bool = False) -> tuple[Tensor, Tensor]:
    """Standard deviation and mean over `axis`, with the arguments of `var`."""
    return _std_mean(input, axis, ddof, keepdims, "std_mean")


def _std_mean(input: Any, axis: Any, ddof: Any, keepdims: Any, function: str) -> tuple[Tensor, Tensor]:
    from graphcell.ops.functional.mathematics import sqrt

    value, average = _variance(input, axis, ddof, keepdims, function)
    return cast(sqrt(value), input.dtype), cast(average, input.dtype)
