"""Divides by numbers, and by what is the same all along a row, with one division or none: x / c is x * h + x * l, where h + l is 1 / c to twice the
precision of a float.

Enters: a kernel. Leaves: the same kernel with a multiplication and a fused multiply-add for such a division, which takes as long as ten of them.
Quotients that are floats, as whole numbers and 1 are, come out exactly, and so do zeros' signs, infinities and NaN. Quotients by a number known
while compiling are all those of a division: a number for which one would be rounded otherwise stays a divisor. Of quotients by other numbers, one in a hundred
million is rounded to the other neighbour. Where a quotient is so small that x * l is a subnormal number (below 1e-30 for floats), its last bit may differ.

h is 1 / c rounded towards zero, so that l has its sign and is not 0: x * h and x * l then agree in the sign of a zero or an infinity. Divisors that are
computed are brought near 1 by a power of two, together with what they divide, so that no inverse overflows.

Reference: N. Brisebarre, J.-M. Muller, S. K. Raina, "Accelerating correctly rounded floating-point division when the divisor is known in advance",
IEEE Transactions on Computers 53(8), 2004.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

from graphcell import dtype as dt
from graphcell.codegen.kernel import Inverse, LoopKernel, MulAdd, Splat, Statement
from graphcell.codegen.statements import Body
from graphcell.dtype import DType
from graphcell.ops.arithmetic import Div, Mul

_FEWEST_IN_ROW, _FEWEST_VECTORS_IN_ROW = 128, 16
"""Elements of a row, or vectors of as many rows as a vector has lanes, from which it is worth while to invert its divisor."""
_PRECISION: dict[DType, int] = {dt.float32: 24, dt.float64: 53}
_SMALLEST, _LARGEST = 1e-20, 1e20
"""Sizes of divisors whose inverse, and its rest, are normal numbers."""
_NEAR = 8
"""Where X * 2^s, in units of the quotient's last place and half of it, is no more than this away from an odd number times the divisor's mantissa, the
quotient is so near to the middle of two floats that the sum might fall on the other side: twice as far as the errors of l and of x * l together reach."""


def invert_once_a_row(kernel: LoopKernel) -> LoopKernel:
    """The kernel, whose vector loop is chosen, without divisions of each element by what is the same all along a row."""
    if kernel.vector < 0 or kernel.tile >= 0 or kernel.group >= 0:
        return kernel
    across = kernel.reduces and kernel.vector < kernel.outer
    in_row = kernel.inner_mask if kernel.reduces else 1 << kernel.vector
    length = kernel.inner_points if kernel.reduces else kernel.extents[kernel.vector]
    if length < (_FEWEST_VECTORS_IN_ROW if across else _FEWEST_IN_ROW):
        return kernel
    body = Body()
    known: dict[int, tuple[int, int, int]] = {}
    for s in kernel.body:
        if isinstance(s.what, Div) and s.dtype in _PRECISION and s.loops & in_row and _is_found_once(kernel.body[s.args[1]], in_row):
            x, c = (body.number[a] for a in s.args)
            if c not in known:
                divisor = body.statements[c]
                scale = body.add(replace(divisor, what=Inverse("scale"), args=(c,)))
                near = body.add(replace(divisor, what=Mul(), args=(c, scale)))
                high = body.add(replace(divisor, what=Inverse("below"), args=(near,)))
                known[c] = scale, high, body.add(replace(divisor, what=Inverse("rest"), args=(near, high)))
            scale, high, low = known[c]
            x = body.add(replace(s, what=Mul(), args=(x, scale)))
            body.number.append(_add_product(body, s, x, high, low))
        else:
            body.keep(s)
    return body.of(kernel)


def _is_found_once(divisor: Statement, in_row: int) -> bool:
    """Whether a divisor is computed, or read, once a row; numbers that are known have been seen by `multiply_by_inverses`."""
    return not divisor.loops & in_row and not isinstance(divisor.what, Splat)


def _add_product(body: Body, s: Statement, x: int, high: int, low: int) -> int:
    """x * high + x * low in the place of `s`."""
    rest = body.add(replace(s, what=Mul(), args=(x, low)))
    return body.add(replace(s, what=MulAdd(negated=False), args=(x, high, rest)))


def multiply_by_inverses(kernel: LoopKernel) -> LoopKernel:
    """The kernel without divisions of each element by a number."""
    body = Body()
    for s in kernel.body:
        parts = _parts(kernel, s)
        if parts is None:
            body.keep(s)
        else:
            high, low = (body.add(Statement(Splat(p, s.dtype), (), s.dtype, 0, 0)) for p in parts)
            body.number.append(_add_product(body, s, body.number[s.args[0]], high, low))
    return body.of(kernel)


def _parts(kernel: LoopKernel, s: Statement) -> tuple[float, float] | None:
    if not isinstance(s.what, Div) or s.dtype not in _PRECISION or not s.loops:
        return None
    divisor = kernel.body[s.args[1]].what
    return inverse_of(float(divisor.value), _PRECISION[s.dtype]) if isinstance(divisor, Splat) else None


@lru_cache(maxsize=256)
def inverse_of(c: float, precision: int) -> tuple[float, float] | None:
    """1 / c as the sum of two floats of `precision` bits with which all quotients by c are those of a division; None if there are none."""
    if not _SMALLEST <= abs(c) <= _LARGEST:
        return None
    exact = 1 / abs(Fraction(c))
    unit = _last_place(exact, precision)
    high = exact // unit * unit
    if high == exact:
        return None  # a power of two
    low = _rounded(exact - high, precision)
    size = abs(Fraction(c))
    for x in _hard_cases((size / _last_place(size, precision)).numerator, precision):
        if _rounded(x * high + _rounded(x * low, precision), precision) != _rounded(x / size, precision):
            return None
    sign = 1 if c > 0 else -1
    return sign * float(high), sign * float(low)


def _hard_cases(c: int, precision: int) -> Iterator[int]:
    """The mantissas x whose quotient x / c lies nearest to the middle of two floats, where c is a mantissa, too: x * 2^s = n * c + k for an odd n, with
    a small k."""
    twos = (c & -c).bit_length() - 1
    for shift in (precision, precision + 1):  # x >= c, and x < c
        modulus = 1 << (shift - twos)
        inverse = pow(c >> twos, -1, modulus)
        for k in range(-_NEAR, _NEAR + 1):
            if k == 0 or k % (1 << twos):
                continue
            first = -(k >> twos) * inverse % modulus
            for n in range(first + -(-((1 << precision) - first) // modulus) * modulus, 1 << (precision + 1), modulus):
                x, rest = divmod(n * c + k, 1 << shift)
                if n % 2 and not rest and 1 << (precision - 1) <= x < 1 << precision:
                    yield x


def _last_place(x: Fraction, precision: int) -> Fraction:
    """The value of the last bit of a positive number."""
    exponent = x.numerator.bit_length() - x.denominator.bit_length()
    if Fraction(2) ** exponent > x:
        exponent -= 1
    return Fraction(2) ** (exponent - precision + 1)


def _rounded(x: Fraction, precision: int) -> Fraction:
    """To nearest, ties to even."""
    unit = _last_place(x, precision)
    return round(x / unit) * unit
