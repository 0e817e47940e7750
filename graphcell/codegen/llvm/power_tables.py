"""Powers by tables in registers: of floats and doubles for AVX-512, of floats with eight entries for AVX2.

Enters: float operands of any number of lanes, or double ones of `power`; the base of `power` and `short_power` is not negative. Leaves: the result in the
operand's type. See `math` for accuracy and `lookup` for what is fast.

a**y is 2**(y * log2(a)), and an error of the exponent, which reaches 128 (of double: 1024), is one of the result, times ln2: the logarithm must be known
to 32 bits, 8 more than a float has (of double: to 64, 11 more). It is k + v + log2(1 + r), where k + v, an exponent and an entry of a table, is exact. For an
exponent of any size the rest is a sum of two floats. One of at most 4 that is known while compiling multiplies the error of the rest by
so little that one float does.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphcell.codegen.llvm import tables
from graphcell.codegen.llvm.exponential import exp2_of_sum as exp2_by_polynomial
from graphcell.codegen.llvm.exponential_tables import exp2_of_sum, log_near_one, near_one, tables_for
from graphcell.codegen.llvm.lookup import look_up
from graphcell.codegen.llvm.polynomials import LN2, LOG2_E, at_least, at_most, format_of, from_bits, infinity, polynomial, split, to_bits, truncated_split
from graphcell.codegen.llvm.text import FunctionBuilder, Val

SMALL_EXPONENT = 4.0
_RANGE = {"float": 200.0, "double": 1200.0}  # 2**x is 0 and inf at the ends of it
_FIRST = 0x3F280000  # 21/32, where the first of eight segments begins
_SEGMENT_BITS = 20  # below the number of a segment


def power(b: FunctionBuilder, a: Val, y: Val) -> Val:
    """a**y for a >= 0; NaN where 1 is raised to an infinite power, or 0 and inf to the power of 0."""
    total, lost = b.once((power, a), lambda: _log2(b, *_parts(b, a), tables_for(a).LOG_NEAR_CUBE))
    z = b.mul(y, total)
    return _bounded_exp2(b, z, b.fma(y, lost, b.fma(y, total, b.neg(z))))


def short_power(b: FunctionBuilder, a: Val, y: Val) -> Val:
    """The same for AVX2. Only what is looked up is taken register by register: instructions on several in turn wait less for each other."""
    total, lost = _shared_log2(b, a)
    z = b.mul(y, total)
    return exp2_by_polynomial(b, z, b.fma(y, lost, b.fma(y, total, b.neg(z))))


def short_log(b: FunctionBuilder, a: Val) -> Val:
    """log(a) for AVX2 and a >= 0, from the binary logarithm that a `short_power` of `a` needs."""
    total, lost = _shared_log2(b, a)
    high, low = (b.const(part, a) for part in truncated_split(LN2, "float", 2))  # both positive: the total may be infinite
    return b.fma(total, high, b.fma(total, low, b.mul(lost, high)))


def small_power(b: FunctionBuilder, x: Val, y: Val) -> Val:
    """x**y as C defines it for any x and a constant fraction y between -SMALL_EXPONENT and SMALL_EXPONENT."""
    a = b.select(b.fcmp("oeq", x, b.const(float("-inf"), x)), infinity(x), x)
    whole, lost_value, inverse, m = _parts(b, a)
    r = b.fma(m, inverse, b.const(-1.0, a))
    factor = b.const(split(LOG2_E, "float", 1)[0], a)
    rest = b.fma(b.add(r, log_near_one(b, r)), factor, lost_value)
    z = b.mul(y, whole)
    return _bounded_exp2(b, z, b.fma(y, rest, b.fma(y, whole, b.neg(z))))


def _shared_log2(b: FunctionBuilder, a: Val) -> tuple[Val, Val]:
    total, lost = b.once((_shared_log2, a), lambda: _short_log2(b, a))
    return total, lost


def _short_log2(b: FunctionBuilder, a: Val) -> tuple[Val, Val]:
    total, lost = _log2(b, *_short_parts(b, a), tables.LOG_NEAR_CUBE_SHORT)
    total = b.select(b.fcmp("oeq", a, b.const(0.0, a)), b.const(float("-inf"), a), total)
    return b.select(b.fcmp("olt", a, infinity(a)), total, a), lost


def _log2(b: FunctionBuilder, whole: Val, lost_value: Val, inverse: Val, m: Val, cube: Sequence[float]) -> tuple[Val, Val]:
    """whole + lost_value + log2(m * inverse) as a sum of two numbers."""
    product = b.mul(m, inverse)
    r, r_lost = _exact_sum(b, b.sub(product, b.const(1.0, m)), b.fma(m, inverse, b.neg(product)))
    logarithm, lost = _natural_log_near_one(b, r, r_lost, cube)
    factor, factor_lost = (b.const(part, m) for part in split(LOG2_E, m.type.kind, 2))
    scaled = b.mul(logarithm, factor)
    lost = b.fma(lost, factor, b.fma(logarithm, factor_lost, b.fma(logarithm, factor, b.neg(scaled))))
    total, total_lost = _exact_sum(b, whole, scaled)
    return total, b.add(b.add(total_lost, lost), lost_value)


def _parts(b: FunctionBuilder, a: Val) -> tuple[Val, Val, Val, Val]:
    """w, l, d and m with log2(a) = w + l + log2(m * d), where m * d is near 1 and w exact; m is NaN for a < 0, w infinite at 0 and inf."""
    k, m, inverse, index = near_one(b, a)
    table = tables_for(a)
    return b.add(k, look_up(b, table.LOG2_VALUES, index)), look_up(b, table.LOG2_VALUES_REST, index), inverse, m


def _short_parts(b: FunctionBuilder, a: Val) -> tuple[Val, Val, Val, Val]:
    """The same by tables of eight; 0 counts as a small number, inf as a large one. Eight segments of 2**20 patterns make a binade."""
    form = format_of(a)
    small = b.fcmp("olt", a, b.const(2.0 ** (1 - form.bias), a))
    lift = b.const(float(form.mantissa + 1), a)
    lifted = b.select(small, b.mul(a, b.const(2.0 ** (form.mantissa + 1), a)), a)
    place = b.sub(to_bits(b, lifted), b.const(_FIRST, to_bits(b, lifted)))
    k = b.cast(b.shr(place, b.const(form.mantissa, place), signed=True), a.type)
    k = b.sub(k, b.select(small, lift, b.const(0.0, a)))
    m = from_bits(b, b.add(b.and_(place, b.const((1 << form.mantissa) - 1, place)), b.const(_FIRST, place)))
    index = b.shr(place, b.const(_SEGMENT_BITS, place))
    value, rest, inverse = (look_up(b, table, index) for table in (tables.LOG2_VALUES_SHORT, tables.LOG2_VALUES_REST_SHORT, tables.LOG_INVERSES_SHORT))
    return b.add(k, value), rest, inverse, m


def _exact_sum(b: FunctionBuilder, x: Val, y: Val) -> tuple[Val, Val]:
    """x + y rounded, and what that lost, where x is 0 or |x| >= |y|."""
    total = b.add(x, y)
    return total, b.add(b.sub(x, total), y)


def _natural_log_near_one(b: FunctionBuilder, r: Val, r_lost: Val, coefficients: Sequence[float]) -> tuple[Val, Val]:
    """log(1 + r + r_lost) as a sum of two numbers: r - r**2 / 2 + r**3 p(r)."""
    square = b.mul(r, r)
    square_lost = b.fma(r, r, b.neg(square))
    cube = b.mul(b.mul(polynomial(b, r, coefficients), r), square)
    minus_half = b.const(-0.5, r)
    high = b.fma(square, minus_half, r)
    lost = b.fma(square, minus_half, b.sub(r, high))
    rest = b.fma(square_lost, minus_half, b.fma(b.neg(r), r_lost, r_lost))
    return high, b.add(b.add(lost, rest), cube)


def _bounded_exp2(b: FunctionBuilder, z: Val, low: Val) -> Val:
    """2**(z + low), where |low| < 2 if z is not near the ends of the range, and anything, NaN too, if it is."""
    two = b.const(2.0, z)
    low = b.select(b.fcmp("olt", low, two), low, two)
    ends = _RANGE[z.type.kind]
    return exp2_of_sum(b, at_least(b, at_most(b, z, ends), -ends), at_least(b, low, -2.0))
