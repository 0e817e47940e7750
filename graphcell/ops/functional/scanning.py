"""Public functions that accumulate along an axis.

Enters: a Tensor and one axis. Leaves: a Tensor of the same shape. Refuses: Bool.
"""

from __future__ import annotations

from typing import Any

from graphcell import dtype as dt
from graphcell.errors import DTypeError
from graphcell.ops.automatic import listed
from graphcell.ops.creation import Iota
from graphcell.ops.dispatch import apply1
from graphcell.ops.functional.arithmetic import add, mul
from graphcell.ops.functional.axes import normalize_axis, tensor_of
from graphcell.ops.functional.common import cast, full, select, zeros_like
from graphcell.ops.functional.comparison import equal, isnan, logical_or
from graphcell.ops.functional.mathematics import logaddexp
from graphcell.ops.functional.movement import cut, joined
from graphcell.ops.functional.rearranging import flipped
from graphcell.ops.indexing import GatherElements
from graphcell.ops.kernels import composite
from graphcell.ops.scan import Cumulative
from graphcell.tensor import Tensor

__all__ = ["cummax", "cummin", "cumprod", "cumsum", "logcumsumexp"]


# -- compositions for internal use ------------------------------------------------------------------------------------
def cumulative(x: Tensor, axis: int, kind: str, reverse: bool = False) -> Tensor:
    """`x` accumulated along `axis`."""
    return apply1(Cumulative(axis, kind, reverse), x)


def _moved(x: Tensor, axis: int, by: int, fill: float) -> Tensor:
    """`x` moved towards higher places along `axis`, with `fill` in front."""
    shape = tuple(min(by, d) if k == axis else d for k, d in enumerate(x.shape))
    return joined((full(shape, fill, x.dtype), cut(x, axis, 0, max(x.shape[axis] - by, 0))), axis)


def linear_recurrence(a: Tensor, b: Tensor, axis: int) -> Tensor:
    """h[k] = a[k]·h[k-1] + b[k] along `axis`, from h[-1] = 0, by doubling: log2(n) steps, differentiable to every order."""
    by = 1
    while by < a.shape[axis]:
        b = add(b, mul(a, _moved(b, axis, by, 0)))
        a = mul(a, _moved(a, axis, by, 0))
        by *= 2
    return b


def product_gradient(x: Tensor, g: Tensor, axis: int, reverse: bool) -> Tensor:
    """The gradient of the cumulative product; exact where elements are zero.

    The part of g[k] that reaches x[i] goes through the product of all elements up to k but i: the product before i, times
    s[i] = g[i] + x[i+1]·s[i+1].
    """
    if reverse:
        return flipped(product_gradient(flipped(x, (axis,)), flipped(g, (axis,)), axis, False), (axis,))
    before = _moved(cumulative(x, axis, "mul"), axis, 1, 1)
    s = linear_recurrence(_moved(flipped(x, (axis,)), axis, 1, 0), flipped(g, (axis,)), axis)
    return mul(before, flipped(s, (axis,)))


def extremum_places(x: Tensor, y: Tensor, axis: int, reverse: bool = False) -> Tensor:
    """Where along `axis` the running extremum y of x stands (Int64): the newest of equal ones, the first NaN."""
    number = apply1(Iota(x.shape, axis, dt.int64))
    hit = equal(x, y)
    if x.dtype.is_float:
        nans = cast(isnan(x), dt.int64)
        first = equal(cumulative(nans, axis, "add", reverse), full(x.shape, 1, dt.int64))
        hit = logical_or(hit, select(first, isnan(x), full(x.shape, False, dt.bool_)))
    if reverse:
        return cumulative(select(hit, number, full(x.shape, x.shape[axis], dt.int64)), axis, "min", True)
    return cumulative(select(hit, number, zeros_like(number)), axis, "max")


# -- public ------------------------------------------------------------------------------------------------------------------
def _numbers(x: Any, function: str, what: str) -> Tensor:
    t = tensor_of(x, function, what)
    if t.dtype.is_bool:
        raise DTypeError(f"{function}: {what} must hold numbers, but is Bool", hint="cast it to int64 first")
    return t


@listed
def cumsum(x: Tensor, axis: int, dtype: Any = None) -> Tensor:
    """Element k along `axis` is the sum of the elements up to k, in the dtype of x or in `dtype`.

    Raises:
        TypeError: x is no Tensor of numbers, axis no int. ValueError: axis out of range.
    """
    t = tensor_of(x, "cumsum", "x")
    y = _numbers(t if dtype is None else cast(t, dtype), "cumsum", "x")
    return cumulative(y, normalize_axis(axis, y.ndim, "cumsum"), "add")


@listed
def cumprod(input: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """Element k along `dim` is the product of the elements up to k. Integers give Int64 unless `dtype` says otherwise.

    Raises:
        TypeError: input is no Tensor, dim no int. ValueError: dim out of range.
    """
    t = tensor_of(input, "cumprod")
    target = dt.as_dtype(dtype) if dtype is not None else t.dtype if t.dtype.is_float else dt.int64
    y = _numbers(cast(t, target), "cumprod", "input")
    return cumulative(y, normalize_axis(dim, y.ndim, "cumprod", "dim"), "mul")


def _extremum(x: Tensor, axis: Any, kind: str, function: str) -> tuple[Tensor, Tensor]:
    k = normalize_axis(axis, x.ndim, function)
    if x.size == 0:
        return x, zeros_like(x, dt.int64)
    places = extremum_places(x, cumulative(x, k, kind), k)
    return apply1(GatherElements(k), x, places), places


@composite
def cummax(input: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """The largest element up to each place along `axis`, and its index (Int64; the newest of equal ones).

    Raises:
        TypeError: input is no Tensor of numbers, axis no int. ValueError: axis out of range.
    """
    return _extremum(_numbers(input, "cummax", "input"), axis, "max", "cummax")


@composite
def cummin(input: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """The smallest element up to each place along `axis`, and its index (Int32, as MindSpore has it; the newest of equal ones).

    Raises:
        TypeError, ValueError: as `cummax`.
    """
    value, places = _extremum(_numbers(input, "cummin", "input"), axis, "min", "cummin")
    return value, cast(places, dt.int32)


def logcumsumexp(input: Tensor, axis: int) -> Tensor:
    """The logarithm of the cumulative sum of exp(input) along `axis`, safe against overflow and underflow.

    Raises:
        TypeError: input is no Tensor of floats, axis no int. ValueError: axis out of range.
    """
    x = tensor_of(input, "logcumsumexp")
    if not x.dtype.is_float:
        raise DTypeError(f"logcumsumexp: the input must hold floats, but is {x.dtype}", hint="cast it to float32 first")
    k = normalize_axis(axis, x.ndim, "logcumsumexp")
    y, by = x, 1
    while by < x.shape[k]:
        y = joined((cut(y, k, 0, by), logaddexp(cut(y, k, by, y.shape[k] - by), cut(y, k, 0, y.shape[k] - by))), k)
        by *= 2
    return y
