"""Primitives of linear algebra, by LAPACK as numpy brings it: factorizations, the inverse, systems of equations.

Operands are stacks of matrices (*, m, n) in float32 or float64. Refused while they run: a singular matrix, one that is not positive definite.
The gradients are those of Giles, "An extended collection of matrix derivative results" (2008), and of Townsend, "Differentiating the
singular value decomposition" (2016).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphcell import dtype as dt
from graphcell.errors import ArgumentValueError, DTypeError, ExecutionError, GraphcellError, NoGradientError, ShapeError
from graphcell.ir.op import Array, Op, frozen
from graphcell.ir.types import TensorType

Grads = tuple[Any, ...]


def _check(name: str, x: TensorType, is_square: bool = True) -> None:
    if x.dtype not in (dt.float32, dt.float64):
        raise DTypeError(f"{name}: expected float32 or float64, but got {x.dtype}", hint="cast it, and cast the result back")
    if x.rank < 2:
        raise ShapeError(f"{name}: expected matrices (*, m, n), but got the shape {x.shape}")
    if is_square and x.shape[-1] != x.shape[-2]:
        raise ShapeError(f"{name}: expected square matrices, but got the shape {x.shape}")


def _check_system(name: str, a: TensorType, b: TensorType) -> TensorType:
    """The type of x with a x = b."""
    _check(name, a)
    _check(name, b, is_square=False)
    if a.dtype is not b.dtype:
        raise DTypeError(f"{name}: the dtypes differ, {a.dtype} and {b.dtype}")
    if a.shape[:-1] != b.shape[:-1]:
        raise ShapeError(f"{name}: matrices of shape {a.shape} do not go with right sides of shape {b.shape}")
    return b


def _with_shape(x: TensorType, *tail: int) -> TensorType:
    return TensorType(x.dtype, (*x.shape[:-2], *tail))


def _by_lapack(compute: Callable[[], Any], error: GraphcellError) -> Any:
    """What `compute` gives; raises `error` if LAPACK finds that there is no result."""
    try:
        return compute()
    except np.linalg.LinAlgError as e:
        raise error from e


def _matmul(*factors: Any) -> Any:
    from graphcell.ops.functional.contraction import matmul

    product = factors[0]
    for factor in factors[1:]:
        product = matmul(product, factor)
    return product


def _transposed(x: Any) -> Any:
    return x.swapaxes(-1, -2)


def _off_diagonal_inverse(differences: Any) -> Any:
    """1 / d for the elements beside the diagonal of stacks of square matrices, 0 on it."""
    from graphcell.ops.functional.common import broadcast, constant, full_like, select

    diagonal = broadcast(constant(np.eye(differences.shape[-1], dtype=bool)), differences.shape)
    safe = select(diagonal, full_like(differences, 1), differences)
    return select(diagonal, full_like(differences, 0), 1 / safe)


@frozen
class Inverse(Op):
    """The inverses of square matrices."""

    name = "inverse"

    def infer(self, x: TensorType) -> TensorType:  # type: ignore[override]
        _check("inverse", x)
        return x

    def eval(self, x: Array) -> Array:  # type: ignore[override]
        singular = ArgumentValueError("inverse: a matrix is singular", hint="ops.pinv gives the pseudoinverse")
        return _by_lapack(lambda: np.linalg.inv(x), singular)  # type: ignore[no-any-return]

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        y = _transposed(outputs[0])
        return (-_matmul(y, cotangents[0], y),)


@frozen
class Solve(Op):
    """x with a x = b, for square matrices a (*, n, n) and b (*, n, k) of the same leading dimensions."""

    name = "solve"

    def infer(self, a: TensorType, b: TensorType) -> TensorType:  # type: ignore[override]
        return _check_system("solve", a, b)

    def eval(self, a: Array, b: Array) -> Array:  # type: ignore[override]
        singular = ArgumentValueError("solve: a matrix is singular", hint="ops.lstsq gives the solution of least squares")
        return _by_lapack(lambda: np.linalg.solve(a, b), singular)  # type: ignore[no-any-return]

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        from graphcell.ops.dispatch import apply1

        of_b = apply1(Solve(), _transposed(inputs[0]), cotangents[0])
        return -_matmul(of_b, _transposed(outputs[0])), of_b


@frozen
class SolveTriangular(Op):
    """x with l x = b, or lᵀ x = b, for lower triangular l (*, n, n), whose upper triangle is not read, and b (*, n, k)."""

    transposed: bool
    name = "solve_triangular"

    def infer(self, lower: TensorType, b: TensorType) -> TensorType:  # type: ignore[override]
        return _check_system("solve_triangular", lower, b)

    def eval(self, lower: Array, b: Array) -> Array:  # type: ignore[override]
        if (np.diagonal(lower, axis1=-2, axis2=-1) == 0).any():  # in which LAPACK, exchanging rows, may see none
            raise ArgumentValueError("solve_triangular: a matrix is singular, it has a 0 on its diagonal")
        a = np.tril(lower)
        return Solve().eval(np.swapaxes(a, -1, -2) if self.transposed else a, b)

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        from graphcell.ops.dispatch import apply1

        of_b = apply1(SolveTriangular(not self.transposed), inputs[0], cotangents[0])
        left, right = (outputs[0], of_b) if self.transposed else (of_b, outputs[0])
        return -_matmul(left, _transposed(right)).tril(), of_b


def solve_triangular(lower: Any, b: Any, *, transposed: bool) -> Any:
    """`SolveTriangular` in float64, as numpy has LAPACK do it, for floats of one dtype, which the result has, too."""
    from graphcell.ops.dispatch import apply1
    from graphcell.ops.functional.common import cast

    op = SolveTriangular(transposed)
    if lower.dtype is not b.dtype:
        return apply1(op, lower, b)  # which refuses them
    return cast(apply1(op, cast(lower, dt.float64), cast(b, dt.float64)), b.dtype)


@frozen
class Cholesky(Op):
    """The lower triangular l with l lᵀ = x, for symmetric positive definite matrices."""

    name = "cholesky"

    def infer(self, x: TensorType) -> TensorType:  # type: ignore[override]
        _check("cholesky", x)
        return x

    def eval(self, x: Array) -> Array:  # type: ignore[override]
        indefinite = ExecutionError("cholesky: a matrix is not symmetric positive definite")
        return _by_lapack(lambda: np.linalg.cholesky(x), indefinite)  # type: ignore[no-any-return]

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        lower = outputs[0]
        phi = _matmul(_transposed(lower), cotangents[0]).tril()
        phi = phi - 0.5 * phi.tril().triu()
        half = solve_triangular(lower, phi, transposed=True)
        whole = solve_triangular(lower, _transposed(half), transposed=True)  # transposed, which does not matter
        return (0.5 * (whole + _transposed(whole)),)


@frozen
class Determinant(Op):
    """The determinants of square matrices. A gradient is there for invertible matrices."""

    name = "determinant"

    def infer(self, x: TensorType) -> TensorType:  # type: ignore[override]
        _check("determinant", x)
        return _with_shape(x)

    def eval(self, x: Array) -> Array:  # type: ignore[override]
        return np.asarray(np.linalg.det(x), x.dtype)

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        return (_inverse_scaled(inputs[0], cotangents[0] * outputs[0]),)


def _inverse_scaled(x: Any, factor: Any) -> Any:
    """The transposed inverses of x, each times its element of `factor`."""
    from graphcell.ops.dispatch import apply1

    return _transposed(apply1(Inverse(), x)) * factor.reshape((*factor.shape, 1, 1))


@frozen
class SignLogDeterminant(Op):
    """The sign of the determinant, and the logarithm of its absolute value (-inf where it is 0)."""

    name = "slogdet"

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType]:  # type: ignore[override]
        _check("slogdet", x)
        return _with_shape(x), _with_shape(x)

    def eval(self, x: Array) -> tuple[Array, Array]:  # type: ignore[override]
        sign, log = np.linalg.slogdet(x)
        return np.asarray(sign, x.dtype), np.asarray(log, x.dtype)

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        return (_inverse_scaled(inputs[0], cotangents[1]),)


@frozen
class Qr(Op):
    """q with orthonormal columns and r upper triangular with q r = x; `complete`: q is square."""

    complete: bool
    name = "qr"

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType]:  # type: ignore[override]
        _check("qr", x, is_square=False)
        rows, columns = x.shape[-2:]
        inner = rows if self.complete else min(rows, columns)
        return _with_shape(x, rows, inner), _with_shape(x, inner, columns)

    def eval(self, x: Array) -> tuple[Array, Array]:  # type: ignore[override]
        q, r = np.linalg.qr(x, "complete" if self.complete else "reduced")
        return np.ascontiguousarray(q), np.ascontiguousarray(r)

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        from graphcell.ops.dispatch import apply1

        rows, columns = inputs[0].shape[-2:]
        if rows < columns or (self.complete and rows != columns):
            raise NoGradientError(f"qr: no gradient for {rows} x {columns} matrices", hint="use mode='reduced' with at least as many rows as columns")
        (q, r), (of_q, of_r) = outputs, cotangents
        m = _matmul(r, _transposed(of_r)) - _matmul(_transposed(of_q), q)
        symmetric = m.tril() + _transposed(m.tril(-1))
        left = of_q + _matmul(q, symmetric)
        return (_transposed(apply1(Solve(), r, _transposed(left))),)


@frozen
class Geqrf(Op):
    """Householder's QR factorization as LAPACK has it: R, below it the reflectors' vectors; and their factors tau. No gradient."""

    name = "geqrf"

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType]:  # type: ignore[override]
        _check("geqrf", x, is_square=False)
        return x, TensorType(x.dtype, (*x.shape[:-2], min(x.shape[-2:])))

    def eval(self, x: Array) -> tuple[Array, Array]:  # type: ignore[override]
        turned, tau = np.linalg.qr(x, "raw")
        return np.ascontiguousarray(np.swapaxes(turned, -1, -2)), np.ascontiguousarray(tau)


@frozen
class Svd(Op):
    """Singular values s (descending), and u, v with u diag(s) vᵀ = x; `full`: u and v are square."""

    full: bool
    name = "svd"

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType, TensorType]:  # type: ignore[override]
        _check("svd", x, is_square=False)
        rows, columns = x.shape[-2:]
        inner = min(rows, columns)
        return (
            _with_shape(x, inner), _with_shape(x, rows, rows if self.full else inner), _with_shape(x, columns, columns if self.full else inner),
        )  # fmt: skip

    def eval(self, x: Array) -> tuple[Array, Array, Array]:  # type: ignore[override]
        failed = ExecutionError("svd: the iteration did not converge", hint="is there a NaN or an infinity in the matrices?")
        u, s, vt = _by_lapack(lambda: np.linalg.svd(x, full_matrices=self.full), failed)
        return s, np.ascontiguousarray(u), np.ascontiguousarray(np.swapaxes(vt, -1, -2))

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        from graphcell.ops.functional.diagonals import diag_embed

        inner = outputs[0].shape[-1]
        s, u, v = outputs[0], outputs[1][..., :inner], outputs[2][..., :inner]
        of_s, of_u, of_v = cotangents[0], cotangents[1][..., :inner], cotangents[2][..., :inner]
        row, column = s.reshape((*s.shape[:-1], 1, inner)), s.reshape((*s.shape, 1))
        gaps = _off_diagonal_inverse((row - column) * (row + column))
        turns = [gaps * _matmul(_transposed(a), of_a) for a, of_a in ((u, of_u), (v, of_v))]
        j, k = (t + _transposed(t) for t in turns)
        middle = j * row + column * k + diag_embed(of_s)
        result = _matmul(u, middle, _transposed(v))
        rows, columns = inputs[0].shape[-2:]
        if rows > inner:
            beside = of_u - _matmul(u, _transposed(u), of_u)
            result = result + _matmul(beside / row, _transposed(v))
        if columns > inner:
            beside = of_v - _matmul(v, _transposed(v), of_v)
            result = result + _matmul(u, _transposed(beside / row))
        return (result,)
