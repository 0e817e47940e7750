"""Primitive classes of matrices: triangles, diagonals, inverses, factorizations, systems of equations."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphcell import dtype as dt
from graphcell import ops as F
from graphcell.errors import ArgumentTypeError, ArgumentValueError, ShapeError
from graphcell.ops.functional.common import constant, full_like
from graphcell.ops.functional.linear_algebra import triangular_solve
from graphcell.ops.primitive import Configured, Plain
from graphcell.ops.primitives.checks import check_choice, check_tensors, check_type
from graphcell.tensor import Tensor

__all__ = [
    "Cholesky", "CholeskyInverse", "CholeskySolve", "Diag", "DiagPart", "FillDiagonal", "LogMatrixDeterminant", "Lstsq",
    "MatrixDeterminant", "MatrixDiagPartV3", "MatrixDiagV3", "MatrixInverse", "MatrixPower", "MatrixSolve",
    "MatrixTriangularSolve", "Qr", "Svd", "Tril", "TrilIndices", "Triu", "TriuIndices",
]  # fmt: skip

Array = np.ndarray[Any, Any]


# -- triangles and diagonals ---------------------------------------------------------------------------------------------
class Tril(Configured):
    """The elements on and below a diagonal of the last two dimensions; zeros elsewhere."""

    def __init__(self, diagonal: int = 0):
        super().__init__(diagonal=check_type("Tril", "diagonal", diagonal, int))

    def __call__(self, x: Any) -> Any:
        return F.tril(x, self.diagonal)


class Triu(Configured):
    """The elements on and above a diagonal of the last two dimensions; zeros elsewhere."""

    def __init__(self, diagonal: int = 0):
        super().__init__(diagonal=check_type("Triu", "diagonal", diagonal, int))

    def __call__(self, input: Any) -> Any:
        return F.triu(input, self.diagonal)


class _Indices(Configured):
    def __init__(self, row: int, col: int, offset: int = 0, dtype: Any = dt.int32):
        owner = type(self).__name__
        for name, value in (("row", row), ("col", col), ("offset", offset)):
            check_type(owner, name, value, int)
        if min(row, col) < 0:
            raise ArgumentValueError(f"For '{owner}', 'row' and 'col' must not be negative, but are {row} and {col}")
        if dtype not in (dt.int32, dt.int64):
            raise ArgumentTypeError(f"For '{owner}', the 'dtype' must be Int32 or Int64, but got {dtype}")
        super().__init__(row=row, col=col, offset=offset, dtype=dtype)


class TrilIndices(_Indices):
    """The places on and below a diagonal of a matrix: rows, and columns."""

    def __call__(self) -> Any:
        return F.tril_indices(self.row, self.col, self.offset, dtype=self.dtype)


class TriuIndices(_Indices):
    """The places on and above a diagonal of a matrix: rows, and columns."""

    def __call__(self) -> Any:
        return F.triu_indices(self.row, self.col, self.offset, dtype=self.dtype)


class Diag(Plain):
    """The elements of x on the diagonal of zeros of the shape (*x.shape, *x.shape)."""

    def __call__(self, input: Any) -> Any:
        check_tensors("Diag", input=input)
        if input.ndim < 1:
            raise ShapeError("For 'Diag', the input must have one dimension at least, but is a scalar")
        return F.diag(input.reshape(-1)).reshape(*input.shape, *input.shape)


class DiagPart(Plain):
    """The diagonal of x (D1, …, Dk, D1, …, Dk): (D1, …, Dk)."""

    def __call__(self, input_x: Any) -> Any:
        check_tensors("DiagPart", input_x=input_x)
        half = input_x.ndim // 2
        if input_x.ndim == 0 or input_x.shape[:half] != input_x.shape[half:]:
            raise ShapeError(f"For 'DiagPart', the two halves of the input's shape must be the same, but it is {input_x.shape}")
        count = int(np.prod(input_x.shape[:half]))
        return F.diagonal(input_x.reshape(count, count)).reshape(input_x.shape[:half])


class FillDiagonal(Configured):
    """x (two dimensions, or more of one extent) with `fill_value` on its diagonal; with `wrap` it begins anew below a tall matrix's square."""

    def __init__(self, fill_value: float, wrap: bool = False):
        check_type("FillDiagonal", "fill_value", fill_value, float, int)
        super().__init__(fill_value=float(fill_value), wrap=check_type("FillDiagonal", "wrap", wrap, bool))

    def __call__(self, input_x: Any) -> Any:
        check_tensors("FillDiagonal", input_x=input_x)
        shape = input_x.shape
        if len(shape) < 2 or (len(shape) > 2 and len(set(shape)) > 1):
            raise ShapeError(f"For 'FillDiagonal', the input must have two dimensions, or more of one extent, but its shape is {shape}")
        mask = np.zeros(shape, bool)
        np.fill_diagonal(mask, True, wrap=self.wrap)
        return F.select(constant(mask), full_like(input_x, self.fill_value), input_x)


def _range_of(owner: str, k: Any) -> tuple[int, int]:
    """The lowest and the highest diagonal that an int, or a Tensor of one or two, means."""
    values = [int(v) for v in np.ravel(k.asnumpy() if isinstance(k, Tensor) else k)]
    if len(values) not in (1, 2) or values[0] > values[-1]:
        raise ArgumentValueError(f"For '{owner}', the 'k' must be one int, or two of which the second is not less, but got {values}")
    return values[0], values[-1]


def _places(rows: int, columns: int, low: int, high: int, align: str) -> tuple[Array, Array]:
    """For diagonals from `high` down to `low` of a matrix: the row-major place in it of each element (count, longest), and which are inside."""
    lengths = {d: max(0, min(rows + min(d, 0), columns - max(d, 0))) for d in range(high, low - 1, -1)}
    longest = max(lengths.values())
    places, is_inside = np.zeros((len(lengths), longest), np.int64), np.zeros((len(lengths), longest), bool)
    above, below = align.split("_")
    for row, (d, length) in enumerate(lengths.items()):
        start = longest - length if (above if d >= 0 else below) == "RIGHT" else 0
        steps = np.arange(length)
        places[row, start : start + length] = (steps + max(-d, 0)) * columns + steps + max(d, 0)
        is_inside[row, start : start + length] = True
    return places, is_inside


class _Diagonals(Configured):
    def __init__(self, align: str = "RIGHT_LEFT"):
        modes = ("LEFT_RIGHT", "RIGHT_LEFT", "LEFT_LEFT", "RIGHT_RIGHT")
        super().__init__(align=check_choice(type(self).__name__, "align", align, *modes))


class MatrixDiagPartV3(_Diagonals):
    """Diagonals of matrices: called with (x (*, M, N), k, padding_value).

    One diagonal k gives (*, length); several, from k[0] to k[1], give (*, count, longest), the highest first, filled up with padding_value on
    the side that `align` leaves: of those above the main one, then of those below.
    """

    def __call__(self, x: Any, k: Any, padding_value: Any) -> Any:
        check_tensors("MatrixDiagPartV3", x=x, padding_value=padding_value)
        low, high = _range_of(self.name, k)
        if x.ndim < 2 or not -x.shape[-2] < low <= high < x.shape[-1]:
            raise ArgumentValueError(f"For 'MatrixDiagPartV3', there are no diagonals from {low} to {high} in shape {x.shape}")
        places, is_inside = _places(x.shape[-2], x.shape[-1], low, high, self.align)
        taken = F.gather(x.reshape(*x.shape[:-2], -1), constant(places.reshape(-1)), -1).reshape(*x.shape[:-2], *places.shape)
        parts = F.select(F.broadcast_to(constant(is_inside), taken.shape), taken, F.broadcast_to(padding_value, taken.shape))
        return parts.reshape(*x.shape[:-2], -1) if low == high else parts


class MatrixDiagV3(_Diagonals):
    """Matrices with given diagonals: called with (x, k, num_rows, num_cols, padding_value), the inverse of `MatrixDiagPartV3`.

    -1 for num_rows or num_cols is the least that holds them, for both the least square. Elements elsewhere are padding_value.
    """

    def __call__(self, x: Any, k: Any, num_rows: Any, num_cols: Any, padding_value: Any) -> Any:
        check_tensors("MatrixDiagV3", x=x, padding_value=padding_value)
        low, high = _range_of(self.name, k)
        count = high - low + 1
        if x.ndim < 1 + (count > 1) or (count > 1 and x.shape[-2] != count):
            raise ShapeError(f"For 'MatrixDiagV3', x of shape {x.shape} does not hold the diagonals from {low} to {high}")
        rows, columns = (int(n.item()) if isinstance(n, Tensor) else int(n) for n in (num_rows, num_cols))
        longest = x.shape[-1]
        least_rows, least_columns = longest - min(high, 0), longest + max(low, 0)
        if rows == columns == -1:
            rows = columns = max(least_rows, least_columns)
        rows, columns = least_rows if rows == -1 else rows, least_columns if columns == -1 else columns
        places, is_inside = _places(rows, columns, low, high, self.align)
        if rows < least_rows or columns < least_columns or places.shape[1] != longest:
            raise ArgumentValueError(f"For 'MatrixDiagV3', diagonals of {longest} elements do not fit into ({rows}, {columns})")
        source, is_set = np.zeros(rows * columns, np.int64), np.zeros(rows * columns, bool)
        source[places[is_inside]] = np.flatnonzero(is_inside)
        is_set[places[is_inside]] = True
        batch = x.shape[: x.ndim - (2 if count > 1 else 1)]
        taken = F.gather(x.reshape(*batch, -1), constant(source), -1)
        filled = F.select(F.broadcast_to(constant(is_set), taken.shape), taken, F.broadcast_to(padding_value, taken.shape))
        return filled.reshape(*batch, rows, columns)


# -- inverses, determinants, factorizations ----------------------------------------------------------------------------------
class MatrixInverse(Configured):
    """The inverses of square matrices (*, n, n), transposed if `adjoint`."""

    def __init__(self, adjoint: bool = False):
        super().__init__(adjoint=check_type("MatrixInverse", "adjoint", adjoint, bool))

    def __call__(self, x: Any) -> Any:
        inverted: Any = F.inverse(x)
        return inverted.swapaxes(-1, -2) if self.adjoint else inverted


class MatrixDeterminant(Plain):
    """The determinants of square matrices."""

    function = staticmethod(F.det)


class LogMatrixDeterminant(Plain):
    """Sign, and logarithm of the absolute value, of the determinants of square matrices."""

    function = staticmethod(F.slogdet)


class MatrixPower(Configured):
    """Square matrices to the power n."""

    def __init__(self, n: int):
        super().__init__(n=check_type("MatrixPower", "n", n, int))

    def __call__(self, x: Any) -> Any:
        return F.matrix_power(x, self.n)


class MatrixSolve(Configured):
    """The solutions y of matrix y = rhs, with `adjoint` of matrixᵀ y = rhs."""

    def __init__(self, adjoint: bool = False):
        super().__init__(adjoint=check_type("MatrixSolve", "adjoint", adjoint, bool))

    def __call__(self, matrix: Any, rhs: Any) -> Any:
        return F.matrix_solve(matrix, rhs, self.adjoint)


class MatrixTriangularSolve(Configured):
    """The solutions y of t y = rhs, where t is the lower (or upper) triangle of the matrix, transposed if `adjoint`."""

    def __init__(self, lower: bool = True, adjoint: bool = False):
        check_type("MatrixTriangularSolve", "lower", lower, bool)
        super().__init__(lower=lower, adjoint=check_type("MatrixTriangularSolve", "adjoint", adjoint, bool))

    def __call__(self, matrix: Any, rhs: Any) -> Any:
        return triangular_solve(matrix, rhs, self.lower, self.adjoint)


class Cholesky(Configured):
    """The triangular factors of symmetric positive definite matrices."""

    def __init__(self, upper: bool = False):
        super().__init__(upper=upper)

    def __call__(self, input_x: Any) -> Any:
        return F.cholesky(input_x, self.upper)


class CholeskyInverse(Configured):
    """The inverse of the matrix that has this Cholesky factor."""

    def __init__(self, upper: bool = False):
        super().__init__(upper=upper)

    def __call__(self, input_x: Any) -> Any:
        return F.cholesky_inverse(input_x, self.upper)


class CholeskySolve(Configured):
    """The solution of a y = x1, where x2 is the Cholesky factor of a."""

    def __init__(self, upper: bool = False):
        super().__init__(upper=check_type("CholeskySolve", "upper", upper, bool))

    def __call__(self, x1: Any, x2: Any) -> Any:
        return F.cholesky_solve(x1, x2, self.upper)


class Lstsq(Configured):
    """The solution of least squares of x y = a; where there are many, the shortest. `fast` and `l2_regularizer` are accepted."""

    def __init__(self, fast: bool = True, l2_regularizer: float = 0.0):
        check_type("Lstsq", "fast", fast, bool)
        super().__init__(fast=fast, l2_regularizer=check_type("Lstsq", "l2_regularizer", l2_regularizer, float))

    def __call__(self, x: Any, a: Any) -> Any:
        return F.lstsq(x, a)


class Svd(Configured):
    """(s, u, v): singular values, descending, and their vectors; u and v are (1,) zeros unless `compute_uv`."""

    def __init__(self, full_matrices: bool = False, compute_uv: bool = True):
        check_type("Svd", "full_matrices", full_matrices, bool)
        super().__init__(full_matrices=full_matrices, compute_uv=check_type("Svd", "compute_uv", compute_uv, bool))

    def __call__(self, input: Any) -> Any:
        if self.compute_uv:
            return F.svd(input, self.full_matrices, True)
        nothing = F.zeros((1,), input.dtype)
        return F.svd(input, self.full_matrices, False), nothing, nothing


class Qr(Configured):
    """q with orthonormal columns and r upper triangular with q r = x; with `full_matrices` q is square."""

    def __init__(self, full_matrices: bool = False):
        super().__init__(full_matrices=check_type("Qr", "full_matrices", full_matrices, bool))

    def __call__(self, x: Any) -> Any:
        return F.qr(x, "complete" if self.full_matrices else "reduced")
