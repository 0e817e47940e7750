"""Functions around matrix factorizations: LU, Householder's reflectors, least squares, bands, the nuclear norm.

Enters: Tensors of float32 or float64, matrices along the last two dimensions. Leaves: new Tensors, compositions of other functions.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphcell import dtype as dt
from graphcell.errors import ArgumentTypeError, ArgumentValueError, DTypeError, ShapeError
from graphcell.ops.dispatch import apply
from graphcell.ops.functional.arithmetic import add, mul
from graphcell.ops.functional.axes import normalize_axis, tensor_of
from graphcell.ops.functional.common import broadcast, cast, constant, select, zeros_like
from graphcell.ops.functional.comparison import equal
from graphcell.ops.functional.contraction import matmul
from graphcell.ops.functional.creation import eye
from graphcell.ops.functional.diagonals import tril, triu
from graphcell.ops.functional.gathering import gather_elements
from graphcell.ops.functional.linear_algebra import matrix_solve, singular_values
from graphcell.ops.functional.movement import permuted, reshaped, swapaxes
from graphcell.ops.linear_algebra import Geqrf
from graphcell.tensor import Tensor

__all__ = ["geqrf", "lu_solve", "lu_unpack", "orgqr"]


def _matrices(function: str, **operands: Any) -> list[Tensor]:
    tensors = [tensor_of(x, function, name) for name, x in operands.items()]
    for t in tensors:
        if t.dtype not in (dt.float32, dt.float64) or t.dtype is not tensors[0].dtype:
            raise DTypeError(f"For '{function}', the dtypes must be float32 or float64, and one, but got {', '.join(str(x.dtype) for x in tensors)}")
        if t.ndim < 2:
            raise ShapeError(f"For '{function}', the inputs must have 2 or more dimensions, but one has the shape {t.shape}")
    return tensors


# -- LU ----------------------------------------------------------------------------------------------------------------------
def _permutation(function: str, pivots: Any, shape: tuple[int, ...]) -> Tensor:
    """For the rows of matrices of this shape: where each comes from when the exchanges that `pivots` (from 1) tells of are done in order."""
    p = tensor_of(pivots, function, "pivots")
    if p.dtype is not dt.int32:
        raise DTypeError(f"For '{function}', the pivots must be of int32, but are of {p.dtype}")
    rows, count = shape[-2], min(shape[-2:])
    if p.shape != (*shape[:-2], count):
        raise ShapeError(f"For '{function}', the pivots of matrices of the shape {shape} must have the shape {(*shape[:-2], count)}, but have {p.shape}")
    places = constant(np.arange(rows, dtype=np.int32))
    order = broadcast(places, (*shape[:-2], rows))
    for k in range(count):
        other: Any = broadcast((p[..., k : k + 1] - 1), order.shape)
        exchanged = select(equal(places, k), other, select(equal(places, other), broadcast(constant(np.int32(k)), order.shape), broadcast(places, order.shape)))
        order = gather_elements(order, -1, exchanged)
    return order


def lu_unpack(LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """P, L and U of an LU factorization, with P L U the matrix.

    Args:
        LU_data: (*, m, n), U above and L below the diagonal. LU_pivots: (*, min(m, n)) of int32: which row, counted from 1, each was exchanged with.
        unpack_data: whether L and U are wanted, unpack_pivots: whether P is. What is not wanted is an empty Tensor.

    Raises:
        TypeError: other dtypes. ValueError: shapes that do not fit.
    """
    (lu,) = _matrices("lu_unpack", LU_data=LU_data)
    rows, columns = lu.shape[-2:]
    inner = min(rows, columns)
    empty = zeros_like(lu[..., :0, :0])
    lower = upper = permutation = empty
    if unpack_data:
        lower = add(tril(lu[..., :inner], -1), eye(rows, inner, lu.dtype))
        upper = triu(lu[..., :inner, :])
    if unpack_pivots:
        order = _permutation("lu_unpack", LU_pivots, lu.shape)
        permutation = cast(equal(order.expand_dims(-2), constant(np.arange(rows, dtype=np.int32)[:, None])), lu.dtype)
    return permutation, lower, upper


def lu_solve(b: Tensor, LU_data: Tensor, LU_pivots: Tensor) -> Tensor:
    """The solution of A x = b for A given by its LU factorization.

    Args:
        b: (*, n, k). LU_data: (*, n, n). LU_pivots: (*, n) of int32, counted from 1.

    Raises:
        TypeError: other dtypes. ValueError: shapes that do not fit, a singular A.
    """
    rhs, lu = _matrices("lu_solve", b=b, LU_data=LU_data)
    if lu.shape[-1] != lu.shape[-2] or rhs.shape[-2] != lu.shape[-1] or rhs.shape[:-2] != lu.shape[:-2]:
        raise ShapeError(f"For 'lu_solve', b (*, n, k) and LU_data (*, n, n) are needed, but the shapes are {rhs.shape} and {lu.shape}")
    order = _permutation("lu_solve", LU_pivots, lu.shape)
    exchanged = gather_elements(rhs, -2, broadcast(order.expand_dims(-1), rhs.shape))
    lower = add(tril(lu, -1), eye(lu.shape[-1], lu.shape[-1], lu.dtype))
    return matrix_solve(triu(lu), matrix_solve(lower, exchanged))


# -- Householder's reflectors ------------------------------------------------------------------------------------------------
def geqrf(input: Tensor) -> tuple[Tensor, Tensor]:
    """Householder's QR factorization of (*, m, n) as LAPACK has it: (*, m, n) with R, and below it the reflectors' vectors; and tau (*, min(m, n)).

    It has no gradient.

    Raises:
        TypeError: no float32 or float64. ValueError: less than two dimensions.
    """
    y, tau = apply(Geqrf(), *_matrices("geqrf", input=input))
    return y, tau


def orgqr(input: Tensor, input2: Tensor) -> Tensor:
    """The first n columns of the product of the reflectors 1 - tau v vᵀ.

    Args:
        input: (*, m, n), the vectors v below the diagonal, where a 1 is thought. input2: tau, (*, k) for k <= n <= m.

    Raises:
        TypeError: no float32 or float64, or two dtypes. ValueError: shapes that do not fit.
    """
    (x,) = _matrices("orgqr", input=input)
    tau = tensor_of(input2, "orgqr", "input2")
    if tau.dtype is not x.dtype:
        raise DTypeError(f"For 'orgqr', the dtypes must be one, but got {x.dtype} and {tau.dtype}")
    rows, columns = x.shape[-2:]
    if tau.shape[:-1] != x.shape[:-2] or not tau.shape[-1] <= columns <= rows:
        raise ShapeError(f"For 'orgqr', input (*, m, n) and input2 (*, k) with k <= n <= m are needed, but the shapes are {x.shape} and {tau.shape}")
    vectors = add(tril(x, -1), eye(rows, columns, x.dtype))
    q: Any = broadcast(eye(rows, columns, x.dtype), x.shape)
    for k in reversed(range(tau.shape[-1])):
        v = vectors[..., k : k + 1]
        q = q - mul(tau[..., k : k + 1].expand_dims(-1), matmul(v, matmul(swapaxes(v, -1, -2), q)))
    return q  # type: ignore[no-any-return]


# -- what primitive classes are made of --------------------------------------------------------------------------------------
def band_part(x: Any, lower: Any, upper: Any) -> Tensor:
    """(*, m, n) with zeros outside of `lower` diagonals below and `upper` above the main one; negative: all of them.

    Raises:
        TypeError: lower or upper is no integer. ValueError: they are outside of the matrix.
    """
    t = tensor_of(x, "MatrixBandPart", "x")
    if t.ndim < 2:
        raise ShapeError(f"For 'MatrixBandPart', the input must have 2 or more dimensions, but has the shape {t.shape}")
    counts = []
    for name, value, extent in (("lower", lower, t.shape[-2]), ("upper", upper, t.shape[-1])):
        count = int(value) if isinstance(value, Tensor) and value.dtype.is_integer and value.size == 1 else value
        if not isinstance(count, int) or isinstance(count, bool):
            raise ArgumentTypeError(f"For 'MatrixBandPart', '{name}' must be an int, but got {type(value).__name__}")
        if not -extent < count < max(extent, 1):
            raise ArgumentValueError(f"For 'MatrixBandPart', '{name}' must be in range (-{extent}, {extent}), but got {count}")
        counts.append(extent if count < 0 else count)
    return triu(tril(t, counts[1]), -counts[0])


def least_squares(a: Tensor, b: Tensor, l2: Tensor) -> Tensor:
    """The X of the smallest |A X - B|**2 + l2 |X|**2, by the normal equations of the smaller size."""
    turned = swapaxes(a, -1, -2)
    rows, columns = a.shape[-2:]
    ridge = mul(l2, eye(min(rows, columns), min(rows, columns), a.dtype))
    if rows >= columns:
        return matrix_solve(add(matmul(turned, a), ridge), matmul(turned, b))
    return matmul(turned, matrix_solve(add(matmul(a, turned), ridge), b))


def nuclear_norm(x: Tensor, dim: tuple[int, int], keepdim: bool) -> Tensor:
    """The sum of the singular values of the matrices in the dimensions `dim`."""
    first, second = (normalize_axis(d, x.ndim, "NuclearNorm") for d in dim)
    if first == second:
        raise ArgumentValueError(f"For 'NuclearNorm', the elements of 'dim' must differ, but got {dim}")
    others = [d for d in range(x.ndim) if d not in (first, second)]
    norm: Any = singular_values(permuted(x, (*others, first, second))).sum(-1)
    return reshaped(norm, tuple(1 if d in (first, second) else x.shape[d] for d in range(x.ndim))) if keepdim else norm
