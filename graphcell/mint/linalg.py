"""The functions of `mint.linalg`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphcell import ops
from graphcell.missing import getattr_of as _getattr_of
from graphcell.tensor import Tensor

__all__ = ["inv", "matrix_norm", "norm", "qr", "vector_norm"]


def inv(input: Tensor) -> Tensor:
    """The inverses of matrices (*, n, n).

    Raises:
        ValueError: another shape, or a matrix has no inverse.
    """
    return ops.inverse(input)


def vector_norm(x: Tensor, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The norm of order `ord`, a number, of the vectors that lie along `dim` (an int or several; default: all elements are one)."""
    return ops.vector_norm(x, ord, dim, keepdim, dtype=dtype)


def matrix_norm(A: Tensor, ord: Any = "fro", dim: Any = (-2, -1), keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The norm `ord` ('fro', 'nuc', ±1, ±2, ±inf) of the matrices that lie in the two dimensions `dim`."""
    return ops.matrix_norm(A, ord, dim, keepdim, dtype=dtype)


def norm(A: Tensor, ord: Any = None, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """`matrix_norm` where `dim` holds two dimensions (or ord is given and A a matrix), else `vector_norm`; `ord` None: of order 2 of all elements."""
    return ops.norm(A, ord, dim, keepdim, dtype=dtype)


def qr(A: Tensor, mode: str = "reduced") -> tuple[Tensor, Tensor]:
    """A = Q R with orthonormal columns Q and an upper triangle R: (*, m, n) gives (*, m, k) and (*, k, n).

    Args:
        mode: 'reduced': k = min(m, n); 'complete': k = m.

    Raises:
        ValueError: another mode, less than two dimensions.
    """
    return ops.qr(A, mode)


if not TYPE_CHECKING:  # type checkers know all names that there are
    __getattr__ = _getattr_of(__name__)
