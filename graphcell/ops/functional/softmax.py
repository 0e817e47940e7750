"""Softmax and its relatives, and norms; numerically safe compositions, in float32 at least.

Enters: float Tensors and an axis. Leaves: Tensors of the same dtype. Refuses: integers (softmax).
"""

from __future__ import annotations

import math
from typing import Any

from graphcell import dtype as dt
from graphcell.errors import ArgumentTypeError, ArgumentValueError, DTypeError, ShapeError
from graphcell.ops.arithmetic import StopGradient
from graphcell.ops.base import reduced_shape
from graphcell.ops.dispatch import apply1
from graphcell.ops.functional.arithmetic import abs, add, div, neg, pow, square, sub
from graphcell.ops.functional.axes import normalize_axes, normalize_axis, tensor_of
from graphcell.ops.functional.common import broadcast, cast, full, ones_like, select, zeros_like
from graphcell.ops.functional.comparison import equal, isfinite, not_equal
from graphcell.ops.functional.mathematics import exp, log, sqrt
from graphcell.ops.functional.movement import permuted, reshaped
from graphcell.ops.functional.reductions import Axes, flag, largest, smallest, total, wide
from graphcell.ops.kernels import composite
from graphcell.tensor import Tensor

__all__ = ["log_softmax", "logsumexp", "matrix_norm", "norm", "softmax", "softmin", "vector_norm"]


def _floats(x: Any, function: str, what: str = "input") -> Tensor:
    t = tensor_of(x, function, what)
    if not t.dtype.is_float:
        raise DTypeError(f"{function}: {what} must hold floats, but is {t.dtype}", hint="cast it to float32 first")
    return t


def _axis(axis: Any, x: Tensor, function: str) -> Axes:
    if isinstance(axis, (tuple, list)) and len(axis) == 1:
        axis = axis[0]
    if x.ndim == 0:
        raise ArgumentValueError(f"{function}: the input must have one dimension at least, but is a scalar")
    return (normalize_axis(axis, x.ndim, function),)


def below_peak(x: Tensor, axes: Axes) -> tuple[Tensor, Tensor]:
    """x minus its largest element along `axes`, and that element, dimensions kept; no gradient flows through it, none is lost."""
    peak = apply1(StopGradient(), largest(x, axes, True))
    return sub(x, broadcast(peak, x.shape)), peak


# -- softmax ---------------------------------------------------------------------------------------------------------------
@composite
def softmax(input: Tensor, axis: int = -1, *, dtype: Any = None) -> Tensor:
    """exp(x) over its sum along `axis`; with `dtype` the input is converted first.

    Raises:
        TypeError: input is no Tensor of floats, axis no int. ValueError: a scalar, or axis out of range.
    """
    x = tensor_of(input, "softmax")
    x = _floats(x if dtype is None else cast(x, dtype), "softmax")
    axes = _axis(axis, x, "softmax")
    if x.size == 0:
        return x
    powers = exp(below_peak(wide(x), axes)[0])
    return cast(div(powers, broadcast(total(powers, axes, True), x.shape)), x.dtype)


@composite
def log_softmax(logits: Tensor, axis: int = -1) -> Tensor:
    """The logarithm of `softmax` along `axis`.

    Raises:
        TypeError: logits is no Tensor of floats, axis no int. ValueError: a scalar, or axis out of range.
    """
    x = _floats(logits, "log_softmax", "logits")
    axes = _axis(axis, x, "log_softmax")
    if x.size == 0:
        return x
    shifted, _ = below_peak(wide(x), axes)
    return cast(sub(shifted, broadcast(log(total(exp(shifted), axes, True)), x.shape)), x.dtype)


@composite
def softmin(x: Tensor, axis: int = -1, *, dtype: Any = None) -> Tensor:
    """`softmax` of -x."""
    return softmax(neg(tensor_of(x, "softmin", "x")), axis, dtype=dtype)


@composite
def logsumexp(input: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    """log(sum(exp(input))) over `dim`, an int or a tuple of them.

    Raises:
        TypeError: input is no Tensor of floats, dim no int or tuple of ints. ValueError: dim out of range or repeated.
    """
    x = _floats(input, "logsumexp")
    axes, keep = normalize_axes(dim, x.ndim, "logsumexp", "dim"), flag(keepdim, "logsumexp", "keepdim")
    if not axes:
        return x
    if x.size == 0:
        return log(total(exp(x), axes, keep))
    shifted, peak = below_peak(wide(x), axes)  # as in log_softmax, beside which this often stands
    ordinary, powers = isfinite(peak), total(exp(shifted), axes, True)
    value = select(ordinary, add(log(select(ordinary, powers, ones_like(powers))), peak), peak)
    return cast(reshaped(value, reduced_shape(x.shape, axes, keep)), x.dtype)


# -- norms -----------------------------------------------------------------------------------------------------------------
def _numbers(x: Any, function: str, what: str, dtype: Any) -> Tensor:
    t = tensor_of(x, function, what)
    if dtype is not None:
        return cast(t, dtype)
    return t if t.dtype.is_float else cast(t, dt.float32)


def _vector_norm(x: Tensor, order: float, axes: Axes, keep: bool) -> Tensor:
    y = wide(x)
    if order == math.inf:
        value = largest(abs(y), axes, keep)
    elif order == -math.inf:
        value = smallest(abs(y), axes, keep)
    elif order == 0:
        value = total(cast(not_equal(y, zeros_like(y)), y.dtype), axes, keep)
    elif order == 1:
        value = total(abs(y), axes, keep)
    elif order == 2:
        value = _root_of_squares(y, axes, keep)
    else:
        value = pow(total(pow(abs(y), float(order)), axes, keep), 1.0 / order)
    return cast(value, x.dtype)


def _root_of_squares(x: Tensor, axes: Axes, keep: bool) -> Tensor:
    """sqrt(sum(x²)), whose gradient is taken as 0 where the sum is 0."""
    squares = total(square(x), axes, keep)
    zero = equal(squares, zeros_like(squares))
    one = full(squares.shape, 1, squares.dtype)
    return select(zero, zeros_like(squares), sqrt(select(zero, one, squares)))


def vector_norm(x: Tensor, ord: float = 2, axis: Any = None, keepdims: bool = False, *, dtype: Any = None) -> Tensor:
    """The norm of order `ord` (any number, inf or -inf; 0 counts the elements that are not zero) over `axis`.

    Raises:
        TypeError: x is no Tensor, ord no number. ValueError: axis out of range or repeated.
    """
    y = _numbers(x, "vector_norm", "x", dtype)
    if not isinstance(ord, (int, float)) or isinstance(ord, bool):
        raise ArgumentTypeError(f"vector_norm: ord must be a number, but is {ord!r}")
    return _vector_norm(y, ord, normalize_axes(axis, y.ndim, "vector_norm"), flag(keepdims, "vector_norm", "keepdims"))


def matrix_norm(A: Tensor, ord: Any = "fro", axis: Any = (-2, -1), keepdims: bool = False, *, dtype: Any = None) -> Tensor:
    """The norm of the matrices that lie along the two dimensions `axis`.

    Args:
        ord: 'fro' (root of the sum of squares), inf or -inf (largest or smallest sum of a row's magnitudes), 1 or -1 (of a column's).

    Raises:
        TypeError: A is no Tensor. ValueError: another order, axis not two different dimensions.
    """
    y = _numbers(A, "matrix_norm", "A", dtype)
    if not isinstance(axis, (tuple, list)) or len(axis) != 2:
        raise ArgumentValueError(f"matrix_norm: axis must name two dimensions, but is {axis!r}")
    row, column = (normalize_axis(a, y.ndim, "matrix_norm") for a in axis)
    if row == column:
        raise ShapeError(f"matrix_norm: axis must name two different dimensions, but is {axis!r}")
    keep = flag(keepdims, "matrix_norm", "keepdims")
    if ord == "fro":
        return _vector_norm(y, 2, tuple(sorted((row, column))), keep)
    if ord in (2, -2, "nuc"):
        return _spectral_norm(y, ord, row, column, keep)
    if ord not in (1, -1, math.inf, -math.inf):
        raise ArgumentValueError(f"matrix_norm: ord must be 2, -2, 1, -1, inf, -inf, 'fro' or 'nuc', but is {ord!r}")
    summed, compared = (column, row) if ord in (math.inf, -math.inf) else (row, column)
    sums = total(abs(wide(y)), (summed,), True)
    value = (largest if ord > 0 else smallest)(sums, (compared,), True)
    shape = tuple(1 if k in (row, column) else d for k, d in enumerate(y.shape) if keep or k not in (row, column))
    return cast(reshaped(value, shape), y.dtype)


def _spectral_norm(y: Tensor, ord: Any, row: int, column: int, keep: bool) -> Tensor:
    """The largest (2) or smallest (-2) singular value of the matrices along two axes, or the sum of all ('nuc')."""
    from graphcell.ops.functional.linear_algebra import singular_values

    stack = tuple(k for k in range(y.ndim) if k not in (row, column))
    s = singular_values(permuted(wide(y), (*stack, row, column)))
    value = total(s, (s.ndim - 1,)) if ord == "nuc" else s[..., 0 if ord == 2 else -1]
    kept = tuple(1 if k in (row, column) else d for k, d in enumerate(y.shape) if keep or k not in (row, column))
    return cast(reshaped(value, kept), y.dtype)


@composite
def norm(A: Tensor, ord: Any = None, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """A vector norm, or a matrix norm where `dim` names two dimensions or a matrix comes with an order.

    Without `ord` the root of the sum of squares over `dim` (all dimensions by default). See `vector_norm` and `matrix_norm`.

    Raises:
        TypeError: A is no Tensor. ValueError: an order that does not fit, dim out of range or repeated.
    """
    y = _numbers(A, "norm", "A", dtype)
    if dim is None and (ord is None or (ord == "fro" and y.ndim == 2) or (ord == 2 and y.ndim == 1)):
        return _vector_norm(y, 2, tuple(range(y.ndim)), flag(keepdim, "norm", "keepdim"))
    axes = normalize_axes(dim, y.ndim, "norm", "dim")
    if ord is None:
        return _vector_norm(y, 2, axes, flag(keepdim, "norm", "keepdim"))
    if len(axes) == 2:
        return matrix_norm(y, ord, dim if dim is not None else (-2, -1), keepdim)
    if len(axes) != 1 or isinstance(ord, str):
        raise ArgumentValueError(f"norm: ord {ord!r} does not fit dim {dim!r} of shape {y.shape}")
    return _vector_norm(y, float(ord), axes, flag(keepdim, "norm", "keepdim"))
