"""Public functions of linear algebra: inverses, determinants, factorizations, systems of equations.

Enters: Tensors of floats, matrices along the last two dimensions; float16 is computed in float32. Leaves: new Tensors. Refuses: integers, singular
matrices where an inverse is asked for.
"""

from __future__ import annotations

from typing import Any

from graphcell import dtype as dt
from graphcell.errors import ArgumentTypeError, ArgumentValueError, DTypeError, ShapeError
from graphcell.ir.op import Op
from graphcell.ops.dispatch import apply, apply1
from graphcell.ops.functional.arithmetic import div, maximum, mul
from graphcell.ops.functional.axes import int_of, tensor_of
from graphcell.ops.functional.common import broadcast, broadcast_shapes, cast, full_like, select
from graphcell.ops.functional.comparison import greater
from graphcell.ops.functional.contraction import matmul
from graphcell.ops.functional.creation import eye
from graphcell.ops.functional.movement import reshaped, swapaxes
from graphcell.ops.functional.reductions import largest
from graphcell.ops.linear_algebra import Cholesky, Determinant, Inverse, Qr, SignLogDeterminant, Solve, Svd, solve_triangular
from graphcell.tensor import Tensor

__all__ = [
    "cholesky", "cholesky_inverse", "cholesky_solve", "cond", "det", "inverse", "logdet", "lstsq", "matrix_power", "matrix_solve", "pinv", "qr",
    "slogdet", "svd",
]  # fmt: skip

_FULL = (dt.float32, dt.float64)
_FLOATS = (dt.float16, *_FULL)


def _matrices(x: Any, function: str, what: str = "input", takes: tuple[dt.DType, ...] = _FULL) -> Tensor:
    t = tensor_of(x, function, what)
    if t.dtype not in takes:
        raise DTypeError(f"For '{function}', the dtype of '{what}' must be one of {', '.join(map(str, takes))}, but got {t.dtype}")
    if t.ndim < 2:
        raise ShapeError(f"For '{function}', '{what}' must have 2 or more dimensions, but its shape is {t.shape}")
    return t


def _in_full_precision(op: Op, *operands: Tensor) -> tuple[Tensor, ...]:
    """Applies an op that takes no float16 to Tensors that may be so; its results are of their dtype."""
    if any(x.dtype is not dt.float16 for x in operands):
        return apply(op, *operands)
    return tuple(cast(y, dt.float16) for y in apply(op, *(cast(x, dt.float32) for x in operands)))


def _transposed(x: Tensor) -> Tensor:
    return swapaxes(x, -1, -2)


def inverse(input: Tensor) -> Tensor:
    """The inverses of square matrices (*, n, n) in float32 or float64.

    Raises:
        TypeError: another dtype. ValueError: no square matrices, or a singular one. Source: MindSpore ops.inverse (which gives zeros there).
    """
    return apply1(Inverse(), _matrices(input, "inverse"))


def slogdet(input: Tensor) -> tuple[Tensor, Tensor]:
    """Sign, and logarithm of the absolute value, of the determinants of (*, n, n); 0 and -inf for singular matrices.

    Raises:
        TypeError: no floats. ValueError: no square matrices.
    """
    sign, log = _in_full_precision(SignLogDeterminant(), _matrices(input, "slogdet", takes=_FLOATS))
    return sign, log


def det(input: Tensor) -> Tensor:
    """The determinants of square matrices (*, n, n). There is no gradient at singular matrices.

    Raises:
        TypeError: no floats. ValueError: no square matrices.
    """
    return _in_full_precision(Determinant(), _matrices(input, "det", takes=_FLOATS))[0]


def logdet(input: Tensor) -> Tensor:
    """The logarithms of the determinants of (*, n, n): -inf for singular matrices, NaN for negative determinants.

    Raises:
        TypeError: no floats. ValueError: no square matrices.
    """
    sign, log = slogdet(input)
    return select(greater(full_like(sign, 0), sign), full_like(log, float("nan")), log)


def cholesky(input_x: Tensor, upper: bool = False) -> Tensor:
    """The triangular factors l with l lᵀ = x (with `upper` u, uᵀ u = x) of symmetric positive definite matrices (*, n, n).

    Raises:
        TypeError: no float32 or float64. ValueError: no square matrices. RuntimeError: a matrix is not positive definite.
    """
    lower = apply1(Cholesky(), _matrices(input_x, "cholesky", "input_x"))
    return _transposed(lower) if upper else lower


def cholesky_solve(input: Tensor, input2: Tensor, upper: bool = False) -> Tensor:
    """The solution x of a x = input, where input2 is the factor of a that `cholesky` gives.

    Raises:
        TypeError: no float32 or float64, or two dtypes. ValueError: shapes that do not fit, a factor with a zero on its diagonal.
    """
    b, factor = _matrices(input, "cholesky_solve"), _matrices(input2, "cholesky_solve", "input2")
    lower = _transposed(factor) if upper else factor
    x: Tensor = solve_triangular(lower, solve_triangular(lower, b, transposed=False), transposed=True)
    return x


def cholesky_inverse(input_x: Tensor, upper: bool = False) -> Tensor:
    """The inverses of the matrices whose factors, as `cholesky` gives them, are (*, n, n) `input_x`.

    Raises:
        TypeError: no float32 or float64. ValueError: no square matrices, or a zero on a diagonal.
    """
    factor = _matrices(input_x, "cholesky_inverse", "input_x")
    lower = _transposed(factor) if upper else factor
    one = broadcast(eye(lower.shape[-1], lower.shape[-1], lower.dtype), lower.shape)
    inverted = solve_triangular(lower, one, transposed=False)
    return matmul(_transposed(inverted), inverted)


def qr(input: Tensor, mode: str = "reduced") -> tuple[Tensor, Tensor]:
    """q with orthonormal columns and r upper triangular with q r = input (*, m, n).

    Args:
        mode: 'reduced': q is (*, m, k) and r (*, k, n) for k = min(m, n); 'complete': q is (*, m, m) and r (*, m, n).

    Raises:
        TypeError: no floats. ValueError: another mode, less than two dimensions.
    """
    if mode not in ("reduced", "complete"):
        raise ArgumentValueError(f"For 'qr', the 'mode' must be 'reduced' or 'complete', but got {mode!r}")
    q, r = _in_full_precision(Qr(mode == "complete"), _matrices(input, "qr", takes=_FLOATS))
    return q, r


def svd(input: Tensor, full_matrices: bool = False, compute_uv: bool = True) -> Tensor | tuple[Tensor, Tensor, Tensor]:
    """The singular values s (descending) of (*, m, n), and u, v with u diag(s) vᵀ = input.

    Args:
        full_matrices: u and v are square; else they have min(m, n) columns.
        compute_uv: default True; else s alone is given.

    Raises:
        TypeError: no float32 or float64. ValueError: less than two dimensions.
    """
    s, u, v = apply(Svd(bool(full_matrices) and bool(compute_uv)), _matrices(input, "svd"))
    return (s, u, v) if compute_uv else s


def singular_values(x: Tensor) -> Tensor:
    """The singular values of (*, m, n), descending."""
    return apply(Svd(False), x)[0]


def pinv(x: Tensor, *, atol: Any = None, rtol: Any = None, hermitian: bool = False) -> Tensor:
    """The pseudoinverses (*, n, m) of matrices (*, m, n).

    Args:
        atol, rtol: singular values not above max(atol, rtol · the largest) count as zero. Defaults: 0, and max(m, n) · eps without atol.
        hermitian: the matrices are known to be symmetric; the result is the same.

    Raises:
        TypeError: no float32 or float64, tolerances that are no numbers. ValueError: less than two dimensions.
    """
    matrices = _matrices(x, "pinv", "x")
    s, u, v = apply(Svd(False), matrices)
    eps = 2.0**-23 if matrices.dtype is dt.float32 else 2.0**-52
    absolute = 0.0 if atol is None else _tolerance(atol, "atol")
    relative = _tolerance(rtol, "rtol") if rtol is not None else max(matrices.shape[-2:]) * eps if atol is None else 0.0
    least = maximum(mul(largest(s, (s.ndim - 1,), True), relative), absolute)
    counts = greater(s, broadcast(least, s.shape))
    inverted = select(counts, div(1.0, select(counts, s, full_like(s, 1))), full_like(s, 0))
    return matmul(mul(v, reshaped(inverted, (*s.shape[:-1], 1, s.shape[-1]))), _transposed(u))


def _tolerance(value: Any, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ArgumentTypeError(f"pinv: {what} must be a number, but is {type(value).__name__}")
    return float(value)


def matrix_power(input: Tensor, n: int) -> Tensor:
    """The n-th power of square matrices; for negative n that of the inverses.

    Raises:
        TypeError: no floats or integers, n no int. ValueError: no square matrices; a singular one, for negative n.
    """
    x = _matrices(input, "matrix_power", takes=(*_FULL, dt.uint8, dt.int8, dt.int16, dt.int32, dt.int64))
    count = int_of(n, "matrix_power", "n")
    if x.shape[-1] != x.shape[-2]:
        raise ShapeError(f"For 'matrix_power', the matrices must be square, but the shape is {x.shape}")
    if count < 0:
        x, count = inverse(x), -count
    result = None
    while count:
        if count & 1:
            result = x if result is None else matmul(result, x)
        count >>= 1
        x = matmul(x, x) if count else x
    return broadcast(eye(x.shape[-1], x.shape[-1], x.dtype), x.shape) if result is None else result


def matrix_solve(matrix: Tensor, rhs: Tensor, adjoint: bool = False) -> Tensor:
    """The solution x of matrix x = rhs (with `adjoint`: matrixᵀ x = rhs); leading dimensions broadcast.

    Raises:
        TypeError: no floats, two dtypes. ValueError: shapes that do not fit, a singular matrix.
    """
    a, b = _system("matrix_solve", matrix, rhs)
    return _in_full_precision(Solve(), _transposed(a) if adjoint else a, b)[0]


def triangular_solve(matrix: Tensor, rhs: Tensor, lower: bool, adjoint: bool) -> Tensor:
    """As `matrix_solve`, of the lower or upper triangle of the matrix; the other one is not read."""
    a, b = _system("triangular_solve", matrix, rhs)
    x: Tensor = solve_triangular(a if lower else _transposed(a), b, transposed=adjoint == lower)
    return x


def _system(function: str, matrix: Tensor, rhs: Tensor) -> tuple[Tensor, Tensor]:
    """Both with the leading dimensions that they have together."""
    a, b = _matrices(matrix, function, "matrix", _FLOATS), _matrices(rhs, function, "rhs", _FLOATS)
    stack = broadcast_shapes(function, a.shape[:-2], b.shape[:-2])
    return broadcast(a, (*stack, *a.shape[-2:])), broadcast(b, (*stack, *b.shape[-2:]))


def lstsq(input: Tensor, A: Tensor) -> Tensor:
    """The x (n, k) of least norm for which ‖input x - A‖ is least, for input (m, n) and A (m, k) or (m,).

    Raises:
        TypeError: no floats. ValueError: not two dimensions, different numbers of rows.
    """
    x, b = _matrices(input, "lstsq"), tensor_of(A, "lstsq", "A")
    columns = reshaped(b, (*b.shape, 1)) if b.ndim == 1 else b
    if x.ndim != 2 or columns.ndim != 2 or x.shape[0] != columns.shape[0]:
        raise ShapeError(f"lstsq: an input of shape {x.shape} does not go with A of shape {b.shape}")
    return matmul(pinv(x), cast(columns, x.dtype))


def cond(A: Tensor, p: Any = None) -> Tensor:
    """The condition number of matrices (*, m, n) in the norm of order `p`: 2 (None), -2, 1, -1, inf, -inf, 'fro' or 'nuc'.

    Raises:
        TypeError: no float32 or float64. ValueError: another order; for all but 2 and -2, no square matrices, or a singular one.
    """
    from graphcell.ops.functional.softmax import matrix_norm

    x = _matrices(A, "cond", "A")
    if p in (None, 2, -2):
        s = singular_values(x)
        first, last = s[..., 0], s[..., -1]
        return div(last, first) if p == -2 else div(first, last)
    return mul(matrix_norm(x, p), matrix_norm(inverse(x), p))
