"""Primitive classes of Bessel functions, incomplete gamma and beta functions, zeta, and of matrix factorizations."""

from __future__ import annotations

from typing import Any

from graphcell import ops as F
from graphcell.errors import ArgumentTypeError, ArgumentValueError, DTypeError, ShapeError
from graphcell.ops.functional import factorizations, special
from graphcell.ops.primitive import Configured, Plain
from graphcell.ops.primitives.checks import check_tensors, check_type

__all__ = [
    "BesselI0", "BesselI0e", "BesselI1", "BesselI1e", "BesselJ0", "BesselJ1", "BesselK0", "BesselK0e", "BesselK1", "BesselK1e", "BesselY0", "BesselY1",
    "Betainc", "Conj", "Geqrf", "Igamma", "Igammac", "Imag", "LuSolve", "LuUnpack", "MatrixBandPart", "MatrixSolveLs", "NuclearNorm", "Orgqr", "Real",
    "TridiagonalMatMul", "Zeta",
]  # fmt: skip


# -- special functions -------------------------------------------------------------------------------------------------------
class _OfFloats(Plain):
    """A function of one Tensor of floats."""

    def __call__(self, x: Any) -> Any:
        name = type(self).__name__
        check_tensors(name, x=x)
        if not x.dtype.is_float:
            raise DTypeError(f"For '{name}', the input must be a Tensor of floats, but has the dtype {x.dtype}")
        return type(self).function(x)


class BesselI0(_OfFloats):
    """The modified Bessel function of the first kind, of order 0."""

    function = staticmethod(F.bessel_i0)


class BesselI0e(_OfFloats):
    """exp(-|x|) I0(x)."""

    function = staticmethod(F.bessel_i0e)


class BesselI1(_OfFloats):
    """The modified Bessel function of the first kind, of order 1."""

    function = staticmethod(F.bessel_i1)


class BesselI1e(_OfFloats):
    """exp(-|x|) I1(x)."""

    function = staticmethod(F.bessel_i1e)


class BesselJ0(_OfFloats):
    """The Bessel function of the first kind, of order 0."""

    function = staticmethod(F.bessel_j0)


class BesselJ1(_OfFloats):
    """The Bessel function of the first kind, of order 1."""

    function = staticmethod(F.bessel_j1)


class BesselK0(_OfFloats):
    """The modified Bessel function of the second kind, of order 0."""

    function = staticmethod(F.bessel_k0)


class BesselK0e(_OfFloats):
    """exp(x) K0(x)."""

    function = staticmethod(F.bessel_k0e)


class BesselK1(_OfFloats):
    """The modified Bessel function of the second kind, of order 1."""

    function = staticmethod(F.bessel_k1)


class BesselK1e(_OfFloats):
    """exp(x) K1(x)."""

    function = staticmethod(F.bessel_k1e)


class BesselY0(_OfFloats):
    """The Bessel function of the second kind, of order 0."""

    function = staticmethod(F.bessel_y0)


class BesselY1(_OfFloats):
    """The Bessel function of the second kind, of order 1."""

    function = staticmethod(F.bessel_y1)


class Igamma(Plain):
    """The regularised lower incomplete gamma function of (a, x)."""

    function = staticmethod(F.igamma)


class Igammac(Plain):
    """The regularised upper incomplete gamma function of (a, x)."""

    function = staticmethod(F.igammac)


class Betainc(Plain):
    """The regularised incomplete beta function of (a, b, x)."""

    function = staticmethod(special.betainc)


class Zeta(Plain):
    """Hurwitz's zeta function of (x, q)."""

    function = staticmethod(F.zeta)


class Real(Plain):
    """The real part: the input itself, there are no complex Tensors."""

    function = staticmethod(F.real)


class Imag(Plain):
    """The imaginary part: zeros, there are no complex Tensors."""

    function = staticmethod(F.imag)


class Conj(Plain):
    """The complex conjugate: the input itself, there are no complex Tensors."""

    function = staticmethod(F.conj)


# -- factorizations ----------------------------------------------------------------------------------------------------------
class LuSolve(Plain):
    """The solution of A X = b, for A given by its LU factorization: (b, LU, pivots); see `ops.lu_solve`."""

    function = staticmethod(F.lu_solve)


class LuUnpack(Configured):
    """(P, L, U) of an LU factorization (LU, pivots): P L U is the matrix.

    Args:
        unpack_data: whether L and U are wanted. unpack_pivots: whether P is; what is not wanted is empty.

    Raises:
        TypeError: one is no bool.
    """

    def __init__(self, unpack_data: bool = True, unpack_pivots: bool = True):
        check_type("LuUnpack", "unpack_data", unpack_data, bool)
        check_type("LuUnpack", "unpack_pivots", unpack_pivots, bool)
        super().__init__(unpack_data=unpack_data, unpack_pivots=unpack_pivots)

    def __call__(self, LU_data: Any, LU_pivots: Any) -> Any:
        return F.lu_unpack(LU_data, LU_pivots, self.unpack_data, self.unpack_pivots)


class Geqrf(Plain):
    """Householder's QR factorization: R above the reflectors' vectors, and their factors tau. It has no gradient."""

    function = staticmethod(F.geqrf)


class Orgqr(Plain):
    """The first columns of the product of Householder reflectors (vectors below the diagonal of x, factors tau)."""

    function = staticmethod(F.orgqr)


class MatrixBandPart(Plain):
    """A copy with zeros outside of `lower` diagonals below and `upper` above the main one; negative: all of them."""

    function = staticmethod(factorizations.band_part)


class MatrixSolveLs(Configured):
    """Least squares: the X of the smallest |A X - B|**2 + l2 |X|**2.

    Inputs: matrix A (*, m, n), rhs B (*, m, k), l2, a scalar. Outputs: (*, n, k).

    Args:
        fast: by the normal equations; the other way is not there, and `fast=False` computes the same.

    Raises:
        TypeError: fast is no bool.
    """

    def __init__(self, fast: bool = True):
        check_type("MatrixSolveLs", "fast", fast, bool)
        super().__init__(fast=fast)

    def __call__(self, matrix: Any, rhs: Any, l2: Any) -> Any:
        check_tensors("MatrixSolveLs", matrix=matrix, rhs=rhs, l2=l2)
        if matrix.ndim < 2 or matrix.ndim != rhs.ndim or matrix.shape[:-1] != rhs.shape[:-1]:
            raise ShapeError(f"For 'MatrixSolveLs', the matrix must be (*, m, n) and rhs (*, m, k), but they are {matrix.shape} and {rhs.shape}")
        return factorizations.least_squares(matrix, rhs, F.cast(l2, matrix.dtype))


class NuclearNorm(Configured):
    """The sum of the singular values of the matrices in two dimensions.

    Args:
        dim: the dimensions, a pair; None: the last two, of a matrix that has no others. keepdim: whether they stay, with extent 1.

    Raises:
        TypeError: dim is no pair of ints, keepdim no bool. ValueError: the input does not have these dimensions.
    """

    def __init__(self, dim: Any = None, keepdim: bool = False):
        if dim is not None and not (isinstance(dim, (list, tuple)) and all(isinstance(d, int) for d in dim)):
            raise ArgumentTypeError(f"For 'NuclearNorm', the 'dim' must be None, or a list or tuple of int, but got {dim!r}.")
        if dim is not None and len(dim) != 2:
            raise ArgumentValueError(f"For 'NuclearNorm', the length of 'dim' must be 2, but got {len(dim)}.")
        check_type("NuclearNorm", "keepdim", keepdim, bool)
        super().__init__(dim=dim, keepdim=keepdim)

    def __call__(self, x: Any) -> Any:
        check_tensors("NuclearNorm", x=x)
        if x.ndim < 2 or (self.dim is None and x.ndim != 2):
            raise ArgumentValueError(f"For 'NuclearNorm', the input must be a matrix, or 'dim' must say which dimensions are, but it has shape {x.shape}")
        return factorizations.nuclear_norm(x, (0, 1) if self.dim is None else tuple(self.dim), self.keepdim)


class TridiagonalMatMul(Plain):
    """A tridiagonal matrix times a matrix: (superdiagonal, diagonal, subdiagonal, each (*, 1, m), rhs (*, m, n)) → (*, m, n).

    The last element above and the first one below do not count.
    """

    def __call__(self, superdiag: Any, maindiag: Any, subdiag: Any, rhs: Any) -> Any:
        check_tensors("TridiagonalMatMul", superdiag=superdiag, maindiag=maindiag, subdiag=subdiag, rhs=rhs)
        above, on, below = (F.swapaxes(x, -1, -2) for x in (superdiag, maindiag, subdiag))
        if rhs.ndim < 2 or any(x.shape != (*rhs.shape[:-1], 1) for x in (above, on, below)):
            raise ShapeError(f"For 'TridiagonalMatMul', the diagonals must be (*, 1, m) and rhs (*, m, n), but they are {maindiag.shape} and {rhs.shape}")
        nothing = F.zeros_like(rhs[..., :1, :])
        following = F.concat((rhs[..., 1:, :], nothing), -2)
        before = F.concat((nothing, rhs[..., :-1, :]), -2)
        return above * following + on * rhs + below * before


