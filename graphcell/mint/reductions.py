"""Functions of mint that reduce or accumulate along a dimension: `dim` and `keepdim`, `correction`, the integers that counts are.

Enters: Tensors. Leaves: what `ops` computes. Both modes, with gradients.
"""

from __future__ import annotations

from typing import Any

from graphcell import dtype as dt
from graphcell import ops
from graphcell.errors import ArgumentTypeError, ArgumentValueError
from graphcell.ops.functional.axes import normalize_axis
from graphcell.ops.functional.common import as_float
from graphcell.tensor import Tensor


# -- where the extremes are ----------------------------------------------------------------------------------------------
def argmin(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """The index (Int64) of the first smallest element along `dim`, or in the flattened input."""
    return ops.cast(ops.argmin(input, dim, keepdim), dt.int64)


def median(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """`median(input)`: the middle one of all elements, the lower one of two. With `dim`: that along it, and its index (Int64).

    Raises:
        TypeError: keepdim goes with dim.
    """
    if dim is not None:
        return _indexed(ops.median(input, dim, keepdim))
    if keepdim:
        raise ArgumentTypeError("median: keepdim goes with dim")
    return ops.median(input.reshape((-1,)), 0)[0]


def kthvalue(input: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The k-th smallest element along `dim` (k = 1: the smallest), and its index (Int64).

    Raises:
        TypeError: k is no int. ValueError: there are less than k elements, or k is not positive.
    """
    if isinstance(k, bool) or not isinstance(k, int):
        raise ArgumentTypeError(f"kthvalue: k must be an int, but is {type(k).__name__}")
    axis = normalize_axis(dim, input.ndim, "kthvalue", "dim")
    extent = input.shape[axis] if input.ndim else 1
    if not 1 <= k <= extent:
        raise ArgumentValueError(f"kthvalue: k must be in [1, {extent}], but is {k}")
    if not input.ndim:
        return input, ops.zeros((), dt.int64)
    values, places = (ops.narrow(x, axis, k - 1, 1) for x in ops.sort(input, axis))
    return _indexed((values, places) if keepdim else (values.squeeze(axis), places.squeeze(axis)))


def _indexed(found: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Values and indices, these as Int64."""
    return found[0], found[1].astype(dt.int64)


def cummax(input: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """The largest element up to each one along `dim`, and its index (Int64)."""
    return _indexed(ops.cummax(input, dim))


def cummin(input: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """The smallest element up to each one along `dim`, and its index (Int64)."""
    return _indexed(ops.cummin(input, dim))


# -- spread --------------------------------------------------------------------------------------------------------------
def var(input: Tensor, dim: Any = None, *, correction: int = 1, keepdim: bool = False) -> Tensor:
    """The variance over `dim` (an int or several, default: all): the sum of squares around the mean over n - correction."""
    return ops.var(input, dim, correction, keepdim)


def std(input: Tensor, dim: Any = None, *, correction: int = 1, keepdim: bool = False) -> Tensor:
    """The square root of `var`."""
    return ops.std(input, dim, correction, keepdim)


def var_mean(input: Tensor, dim: Any = None, *, correction: int = 1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """`var` and the mean."""
    return ops.var_mean(input, dim, correction, keepdim)


def std_mean(input: Tensor, dim: Any = None, *, correction: int = 1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """`std` and the mean."""
    return ops.std_mean(input, dim, correction, keepdim)


# -- sums and counts -----------------------------------------------------------------------------------------------------
def nansum(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The sum over `dim` of what is a number. Integers and Bool are summed as Int64 unless `dtype` says otherwise."""
    return ops.nansum(input, dim, keepdim, dtype=dtype)


def count_nonzero(input: Tensor, dim: Any = None) -> Tensor:
    """How many elements along `dim` (an int or several, default: all) are not zero; Int64."""
    return ops.count_nonzero(input, () if dim is None else dim, dtype=dt.int64)


def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """How often each number from 0 to the largest occurs (Int64), or the sum of the weights of its occurrences (of their dtype if they are
    floats, else Float64). Eager mode only: the largest number decides on the shape.

    Raises:
        TypeError: input is no Tensor of integers. ValueError: not one dimension, a negative number or minlength, weights of another shape.
    """
    counts = ops.bincount(input, weights, minlength)
    if input.size and int(input.min()) < 0:
        raise ArgumentValueError("bincount: the input must not hold negative numbers")
    if weights is None:
        return ops.cast(counts, dt.int64)
    return ops.cast(counts, weights.dtype if weights.dtype.is_float else dt.float64)


def histc(input: Tensor, bins: int = 100, min: Any = 0, max: Any = 0) -> Tensor:
    """How many elements lie in each of `bins` equal intervals from `min` to `max` (both 0: from the smallest to the largest element)."""
    return ops.histc(input, bins, min, max)


def cumsum(input: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """Element k along `dim` is the sum of the elements up to k. Integers and Bool give Int64 unless `dtype` says otherwise."""
    wanted = dt.int64 if dtype is None and not input.dtype.is_float else dtype
    return ops.cumsum(input, dim, wanted)


def diff(input: Tensor, n: int = 1, dim: int = -1, prepend: Tensor | None = None, append: Tensor | None = None) -> Tensor:
    """The differences of neighbours along `dim`, n times over; `prepend` and `append` are put before and after the input first."""
    return ops.diff(input, n, dim, prepend, append)


def logsumexp(input: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    """log of the sum of e**input over `dim` (an int or several), without overflow. Integers and Bool become float32."""
    return ops.logsumexp(as_float(input, "logsumexp"), dim, keepdim)


def trace(input: Tensor) -> Tensor:
    """The sum of the main diagonal of a matrix. Integers and Bool are summed as Int64."""
    return ops.trace(input if input.dtype.is_float else input.astype(dt.int64))


# -- norms ---------------------------------------------------------------------------------------------------------------
def norm(input: Tensor, p: Any = "fro", dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The norm of order `p` of the vectors that lie along `dim` (an int or several; default: all elements are one vector).

    Args:
        p: a number; 'fro': the same as 2; 'nuc': the sum of the singular values of matrices, which lie in the two dimensions `dim`.

    Raises:
        TypeError: the input holds no floats. ValueError: another p.
    """
    if p == "nuc":
        return ops.matrix_norm(input, "nuc", (-2, -1) if dim is None else dim, keepdim, dtype=dtype)
    if p == "fro":
        p = 2
    if isinstance(p, str):
        raise ArgumentValueError(f"norm: p must be a number, 'fro' or 'nuc', but is {p!r}")
    return ops.vector_norm(input, p, dim, keepdim, dtype=dtype)
