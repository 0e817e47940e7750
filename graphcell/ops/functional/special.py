"""Functions of mathematical physics and statistics: Bessel functions, incomplete gamma and beta functions, zeta.

Enters: Tensors; integers become float32. All compute in float64 and round once, and run through numpy in compiled functions too.
"""

from __future__ import annotations

from typing import Any

from graphcell import dtype as dt
from graphcell.errors import DTypeError
from graphcell.ops import special_functions as p
from graphcell.ops.dispatch import apply1
from graphcell.ops.functional.common import as_tensor, broadcast, broadcast_shapes, cast
from graphcell.ops.functional.mathematics import real
from graphcell.tensor import Tensor

__all__ = [
    "bessel_i0", "bessel_i0e", "bessel_i1", "bessel_i1e", "bessel_j0", "bessel_j1", "bessel_k0", "bessel_k0e", "bessel_k1", "bessel_k1e", "bessel_y0",
    "bessel_y1", "i0", "igamma", "igammac", "zeta",
]  # fmt: skip


def bessel_i0(x: Any) -> Tensor:
    """The modified Bessel function of the first kind, of order 0."""
    return apply1(p.Bessel("i", 0), real(x, "bessel_i0"))


def bessel_i0e(x: Any) -> Tensor:
    """exp(-|x|) times `bessel_i0`."""
    return apply1(p.Bessel("i", 0, True), real(x, "bessel_i0e"))


def bessel_i1(x: Any) -> Tensor:
    """The modified Bessel function of the first kind, of order 1."""
    return apply1(p.Bessel("i", 1), real(x, "bessel_i1"))


def bessel_i1e(x: Any) -> Tensor:
    """exp(-|x|) times `bessel_i1`."""
    return apply1(p.Bessel("i", 1, True), real(x, "bessel_i1e"))


def bessel_j0(x: Any) -> Tensor:
    """The Bessel function of the first kind, of order 0."""
    return apply1(p.Bessel("j", 0), real(x, "bessel_j0"))


def bessel_j1(x: Any) -> Tensor:
    """The Bessel function of the first kind, of order 1."""
    return apply1(p.Bessel("j", 1), real(x, "bessel_j1"))


def bessel_k0(x: Any) -> Tensor:
    """The modified Bessel function of the second kind, of order 0; infinite at 0, NaN below."""
    return apply1(p.Bessel("k", 0), real(x, "bessel_k0"))


def bessel_k0e(x: Any) -> Tensor:
    """exp(x) times `bessel_k0`."""
    return apply1(p.Bessel("k", 0, True), real(x, "bessel_k0e"))


def bessel_k1(x: Any) -> Tensor:
    """The modified Bessel function of the second kind, of order 1; infinite at 0, NaN below."""
    return apply1(p.Bessel("k", 1), real(x, "bessel_k1"))


def bessel_k1e(x: Any) -> Tensor:
    """exp(x) times `bessel_k1`."""
    return apply1(p.Bessel("k", 1, True), real(x, "bessel_k1e"))


def bessel_y0(x: Any) -> Tensor:
    """The Bessel function of the second kind, of order 0; minus infinity at 0, NaN below."""
    return apply1(p.Bessel("y", 0), real(x, "bessel_y0"))


def bessel_y1(x: Any) -> Tensor:
    """The Bessel function of the second kind, of order 1; minus infinity at 0, NaN below."""
    return apply1(p.Bessel("y", 1), real(x, "bessel_y1"))


def i0(input: Any) -> Tensor:
    """`bessel_i0` under another name."""
    return apply1(p.Bessel("i", 0), real(input, "i0"))


def igamma(input: Any, other: Any) -> Tensor:
    """The regularised lower incomplete gamma function P(a, x): a Gamma distribution's probability of less than x.

    Args:
        input: a, positive. other: x, at least 0; else the result is NaN. They broadcast.

    Raises:
        TypeError: an operand of no float dtype, or of two of them.
    """
    return apply1(p.Igamma(), *_together("igamma", input=input, other=other))


def igammac(input: Any, other: Any) -> Tensor:
    """The regularised upper incomplete gamma function Q(a, x) = 1 - P(a, x); see `igamma`."""
    return apply1(p.Igamma(True), *_together("igammac", input=input, other=other))


def betainc(a: Any, b: Any, x: Any) -> Tensor:
    """The regularised incomplete beta function of a, b > 0 and x in [0, 1]; else NaN. Gradients flow to x alone.

    Raises:
        TypeError: an operand of no float dtype, or of two of them.
    """
    return apply1(p.Betainc(), *_together("betainc", a=a, b=b, x=x))


def zeta(input: Any, other: Any) -> Tensor:
    """Hurwitz's zeta function: the sum of (other + k)**-input over k = 0, 1, … Gradients flow to `other` alone.

    Raises:
        TypeError: an operand of no float dtype, or of two of them.
    """
    return apply1(p.Zeta(), *_together("zeta", input=input, other=other))


def _together(function: str, **operands: Any) -> tuple[Tensor, ...]:
    """Operands broadcast to one shape; numbers take the dtype of the Tensors."""
    dtypes = {x.dtype for x in operands.values() if isinstance(x, Tensor)}
    if len(dtypes) > 1 or not all(dtype.is_float for dtype in dtypes):
        raise DTypeError(f"{function}: the operands must be Tensors of one float dtype, but have {', '.join(sorted(map(str, dtypes)))}")
    dtype = next(iter(dtypes), dt.float32)
    tensors = [cast(as_tensor(x, name, function), dtype) for name, x in operands.items()]
    shape = broadcast_shapes(function, *(t.shape for t in tensors))
    return tuple(broadcast(t, shape) for t in tensors)
