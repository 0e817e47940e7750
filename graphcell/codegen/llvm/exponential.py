"""Exponentials, logarithms and what is made of them, as straight-line vector code.

Enters: half, bfloat, float or double operands, vectors or scalars. Leaves: the result in the operand's type.
See `math` for accuracy. Argument reduction follows W. J. Cody and W. Waite, Software Manual for the
Elementary Functions (1980).
"""

from __future__ import annotations

from graphcell.codegen.llvm import exponential_tables as by_table
from graphcell.codegen.llvm.coefficients import EXP, EXP2, EXP2_NARROW, EXP_NARROW, EXPM1, LOG
from graphcell.codegen.llvm.lookup import uses_tables
from graphcell.codegen.llvm.polynomials import (
    LN2,
    LOG2_E,
    LOG10_2,
    LOG10_E,
    absolute,
    at_least,
    at_most,
    format_of,
    from_bits,
    infinity,
    nan,
    polynomial,
    scaled_by_low_bits,
    split,
    times_small,
    to_bits,
    widened,
    with_sign_of,
)
from graphcell.codegen.llvm.text import FunctionBuilder, Val

# Below and above these e**x is 0 and inf; 2**(half the exponent) must stay a normal number in between.
_EXP_RANGE = {"float": (-104.0, 89.0), "double": (-746.0, 710.0)}
_EXP2_RANGE = {"float": (-151.0, 128.5), "double": (-1076.0, 1024.5)}
_EXP2_OF_SUM_RANGE = (-152.0, 130.0)  # of float, whatever is added
# sigmoid is 0 and 1 at these.
_SIGMOID_RANGE = {"float": (-105.0, 20.0), "double": (-746.0, 40.0)}
# tanh_softplus is 1 from these on.
_TANH_SOFTPLUS_LIMIT = {"float": 20.0, "double": 40.0}
# e**x - 1 is -1 below the first, inf above the second.
_EXPM1_RANGE = {"float": (-18.0, 89.0), "double": (-38.0, 710.0)}


# -- exponentials --------------------------------------------------------------------------------------------
def _exp_parts(b: FunctionBuilder, x: Val) -> tuple[Val, Val]:
    """p and s with e**x = p * s * s, both normal numbers. `x` lies in the range where e**x is neither 0 nor
    inf, or a little past it.

    Writing x = 2 k ln2 + r gives s = 2**k twice over: a single shift builds it, and results that are denormal
    or infinite come out of the last multiplication with no special case.
    """
    form = format_of(x)
    high, low = split(LN2, form.kind, 2, 2.0)
    shifted = b.fma(x, b.const(split(LOG2_E, form.kind, 1, 0.5)[0], x), b.const(form.magic + form.bias, x))
    k = b.sub(shifted, b.const(form.magic + form.bias, x))
    r = b.fma(k, b.const(-low, x), b.fma(k, b.const(-high, x), x))
    return polynomial(b, r, (1.0, 1.0, *EXP[form.kind]), plain=2), scaled_by_low_bits(b, shifted)


@widened
def exp(b: FunctionBuilder, x: Val) -> Val:
    """e**x: 0 at -inf, inf past the largest number, denormal in between."""
    if uses_tables(b, x):
        return by_table.exp(b, x)
    low, high = _EXP_RANGE[format_of(x).kind]
    p, s = _exp_parts(b, at_least(b, at_most(b, x, high), low))
    return times_small(b, b.mul(p, s), s)


@widened
def exp_of_negative(b: FunctionBuilder, x: Val) -> Val:
    """e**x for x that is not above 0: the same bits."""
    if uses_tables(b, x):
        return by_table.exp_of_negative(b, x)
    p, s = _exp_parts(b, at_least(b, x, _EXP_RANGE[format_of(x).kind][0]))
    return times_small(b, b.mul(p, s), s)


def exp_within(b: FunctionBuilder, x: Val) -> Val:
    """e**x for x <= 0 that is rounded to k ln2 with k >= -bias; where k is -bias it is 0.

    One part of ln2 is enough where 1 is added to the result, see `half_expm1_of_double`.
    """
    form = format_of(x)
    magic = b.const(form.magic + form.bias, x)
    shifted = b.fma(x, b.const(split(LOG2_E, form.kind, 1)[0], x), magic)
    r = b.fma(b.sub(shifted, magic), b.const(-split(LN2, form.kind, 1)[0], x), x)
    return b.mul(polynomial(b, r, (1.0, 1.0, *EXP_NARROW[form.kind]), plain=2), scaled_by_low_bits(b, shifted))


@widened
def exp2(b: FunctionBuilder, x: Val) -> Val:
    """2**x, exact for integers."""
    if uses_tables(b, x):
        return by_table.exp2(b, x)
    form = format_of(x)
    low, high = _EXP2_RANGE[form.kind]
    x = at_least(b, at_most(b, x, high), low)
    magic = b.const(form.magic + form.bias, x)
    shifted = b.fma(x, b.const(0.5, x), magic)
    r = b.fma(b.sub(shifted, magic), b.const(-2.0, x), x)
    s = scaled_by_low_bits(b, shifted)
    p = polynomial(b, r, (1.0, *split(LN2, form.kind, 1), *EXP2[form.kind]), plain=2)
    return times_small(b, b.mul(p, s), s)


def exp2_of_sum(b: FunctionBuilder, z: Val, rest: Val) -> Val:
    """2**(z + rest) of floats, where |rest| <= 2 unless z is beyond the range of the result; there it may be anything, and NaN. NaN in z stays NaN."""
    bounded = at_least(b, at_most(b, z, _EXP2_OF_SUM_RANGE[1]), _EXP2_OF_SUM_RANGE[0])
    two = b.const(2.0, z)
    rest = at_least(b, b.select(b.fcmp("olt", rest, two), rest, two), -2.0)
    magic, biased = (b.const(format_of(z).magic + more, z) for more in (0, format_of(z).bias))
    whole = b.sub(b.add(b.add(bounded, rest), magic), magic)
    r = b.add(b.sub(bounded, whole), rest)
    half = b.fma(whole, b.const(0.5, z), biased)
    other = b.add(b.sub(biased, half), b.add(whole, biased))
    p = polynomial(b, r, (1.0, *split(LN2, "float", 1), *EXP2_NARROW["float"]), plain=2)
    return times_small(b, b.mul(p, scaled_by_low_bits(b, half)), scaled_by_low_bits(b, other))


def _expm1_bounded(b: FunctionBuilder, x: Val) -> Val:
    """e**x - 1 where x is within _EXPM1_RANGE: x = k ln2 + r, with k rounded toward zero so that nothing
    cancels.
    """
    form = format_of(x)
    high, low = split(LN2, form.kind, 2)
    k = b.unary("trunc", b.mul(x, b.const(split(LOG2_E, form.kind, 1)[0], x)))
    if form.kind == "double":  # whose largest power of e is next to 2**1024
        k = at_most(b, k, float(form.bias))
    r = b.fma(k, b.const(-low, x), b.fma(k, b.const(-high, x), x))
    return _scaled_expm1(b, r, b.add(k, b.const(form.magic + form.bias, x)), EXPM1[form.kind])


def _scaled_expm1(b: FunctionBuilder, r: Val, shifted: Val, table: tuple[float, ...]) -> Val:
    """2**k * e**r - 1, with k in the low bits of `shifted`."""
    square = b.mul(r, r)
    q = b.fma(polynomial(b, r, table, square), square, r)
    s = scaled_by_low_bits(b, shifted)
    return b.fma(q, s, b.sub(s, b.const(1.0, s)))


def half_expm1_of_double(b: FunctionBuilder, x: Val) -> Val:
    """(e**(2x) - 1) / 2 for 0 <= x < 40: 2x = k ln2 + 2r with |2r| <= ln2 / 2, where k = 0 leaves x as it is.

    One part of ln2 is enough: it is off by 2e-9 (of double: 2e-17), and k is large only where e**(2x) is.
    """
    form = format_of(x)
    magic = b.const(form.magic + form.bias, x)
    shifted = b.fma(x, b.const(split(LOG2_E, form.kind, 1, 2.0)[0], x), magic)
    r = b.fma(b.sub(shifted, magic), b.const(-split(LN2, form.kind, 1, 0.5)[0], x), x)
    square = b.mul(r, r)
    rest = polynomial(b, r, [c * 2.0 ** (power + 1) for power, c in enumerate(EXP_NARROW[form.kind])], square)
    s, half = scaled_by_low_bits(b, shifted), b.const(0.5, x)
    return b.fma(b.fma(rest, square, r), s, b.fma(s, half, b.neg(half)))


@widened
def expm1(b: FunctionBuilder, x: Val) -> Val:
    """e**x - 1, accurate near zero."""
    low, high = _EXPM1_RANGE[format_of(x).kind]
    return with_sign_of(b, _expm1_bounded(b, at_least(b, at_most(b, x, high), low)), x)


# -- logarithms ----------------------------------------------------------------------------------------------
def log_parts(b: FunctionBuilder, x: Val) -> tuple[Val, Val]:
    """k and f with x = 2**k * (1 + f), 1 + f in [sqrt(1/2), sqrt(2)], for finite x > 0, denormals too; k is a
    float.
    """
    form = format_of(x)
    small = b.fcmp("olt", x, b.const(2.0 ** (1 - form.bias), x))
    lift = form.mantissa + 1
    lifted = b.select(small, b.mul(x, b.const(2.0**lift, x)), x)
    return _split_fraction(b, lifted, b.select(small, _field_offset(b, x, lift), _field_offset(b, x, 0)))


def _field_offset(b: FunctionBuilder, x: Val, lift: int) -> Val:
    """What _split_fraction subtracts from the exponent field."""
    form = format_of(x)
    return b.const(form.bias + lift + (2.0**form.mantissa if form.kind == "double" else 0.0), x)


def _split_fraction(b: FunctionBuilder, x: Val, offset: Val) -> tuple[Val, Val]:
    """The parts of a normal x > 0. Adding the distance from sqrt(1/2) to 1 makes the exponent step there."""
    form = format_of(x)
    bits = to_bits(b, x)
    root = {"float": 0x3F3504F3, "double": 0x3FE6A09E667F3BCD}[form.kind]
    one = form.bias << form.mantissa
    above = b.add(bits, b.const(one - root, bits))
    field = b.shr(above, b.const(form.mantissa, bits))
    mantissa = b.add(b.and_(above, b.const((1 << form.mantissa) - 1, bits)), b.const(root, bits))
    f = b.sub(from_bits(b, mantissa), b.const(1.0, x))
    if form.kind == "float":
        return b.sub(b.cast(field, x.type), offset), f
    # Few processors convert i64: the field is put into the low bits of 2**52.
    return b.sub(from_bits(b, b.or_(field, b.const(0x433 << 52, bits))), offset), f


def log_with(b: FunctionBuilder, x: Val, precision: str) -> Val:
    """log(x) for a normal, finite double x > 0, by the table of the precision."""
    k, f, tail = _log_terms(b, x, precision)
    high, low = split(LN2, "double", 2)
    return b.fma(k, b.const(high, x), b.add(f, b.fma(k, b.const(low, x), tail)))


def log_and_rest(b: FunctionBuilder, x: Val, precision: str) -> tuple[Val, Val]:
    """log(x) for a normal, finite x > 0, float or double, and what its last rounding lost."""
    k, f, tail = _log_terms(b, x, precision)
    high, low = split(LN2, x.type.kind, 2)
    inner, factor = b.add(f, b.fma(k, b.const(low, x), tail)), b.const(high, x)
    total = b.fma(k, factor, inner)
    return total, b.add(b.fma(k, factor, b.neg(total)), inner)


def log2_with(b: FunctionBuilder, x: Val, precision: str) -> Val:
    """log2(x), under the same conditions."""
    k, f, tail = _log_terms(b, x, precision)
    return b.fma(b.add(f, tail), b.const(split(LOG2_E, "double", 1)[0], x), k)


def _log_terms(b: FunctionBuilder, x: Val, precision: str) -> tuple[Val, Val, Val]:
    k, f = _split_fraction(b, x, _field_offset(b, x, 0))
    square = b.mul(f, f)
    return k, f, b.mul(square, b.fma(polynomial(b, f, LOG[precision], square), f, b.const(-0.5, f)))


def log1p_tail(b: FunctionBuilder, f: Val) -> Val:
    """log(1 + f) - f for 1 + f in [sqrt(1/2), sqrt(2)]."""
    square = b.mul(f, f)
    return b.mul(square, _log1p_tail_of_square(b, f, square))


def _log1p_tail_of_square(b: FunctionBuilder, f: Val, square: Val) -> Val:
    """What the tail is for each f**2."""
    return b.fma(polynomial(b, f, LOG[format_of(f).kind], square), f, b.const(-0.5, f))


def _log_specials(b: FunctionBuilder, x: Val, result: Val) -> Val:
    """`result` where 0 < x < inf; -inf at 0, NaN below, and x itself at inf and NaN."""
    at_zero = b.select(b.fcmp("oeq", x, b.const(0.0, x)), b.const(float("-inf"), x), nan(x))
    result = b.select(b.fcmp("ogt", x, b.const(0.0, x)), result, at_zero)
    return b.select(b.fcmp("oeq", x, infinity(x)), x, result)


@widened
def log(b: FunctionBuilder, x: Val) -> Val:
    """Natural logarithm: -inf at 0, NaN below."""
    if uses_tables(b, x):
        return by_table.log(b, x)
    k, f = log_parts(b, x)
    high, low = split(LN2, x.type.kind, 2)
    tail = b.fma(k, b.const(low, x), log1p_tail(b, f))
    return _log_specials(b, x, b.fma(k, b.const(high, x), b.add(f, tail)))


@widened
def log2(b: FunctionBuilder, x: Val) -> Val:
    """Logarithm to base 2, exact for powers of two."""
    if uses_tables(b, x):
        return by_table.log2(b, x)
    k, f = log_parts(b, x)
    return _log_specials(b, x, b.add(k, times_split(b, f, log1p_tail(b, f), LOG2_E)))


@widened
def log10(b: FunctionBuilder, x: Val) -> Val:
    """Logarithm to base 10."""
    if uses_tables(b, x):
        return by_table.log10(b, x)
    k, f = log_parts(b, x)
    high, low = split(LOG10_2, x.type.kind, 2)
    rest = b.fma(k, b.const(low, x), times_split(b, f, log1p_tail(b, f), LOG10_E))
    return _log_specials(b, x, b.fma(k, b.const(high, x), rest))


def times_split(b: FunctionBuilder, x: Val, tail: Val, constant: str) -> Val:
    """(x + tail) * constant, where tail is small."""
    high, low = split(constant, x.type.kind, 2)
    return b.fma(x, b.const(high, x), b.fma(x, b.const(low, x), b.mul(tail, b.const(high, x))))


@widened
def log1p(b: FunctionBuilder, x: Val) -> Val:
    """log(1 + x), accurate near zero: -inf at -1, NaN below."""
    return log1p_of_sum(b, x, None)


def log1p_of_sum(b: FunctionBuilder, x: Val, low: Val | None) -> Val:
    """log(1 + x + low), where low is a rounding error of x.

    With u = 1 + x rounded and u = 2**k * m, the fraction is f = (m - 1) + (x - (u - 1)) / 2**k, where both
    differences are exact.
    """
    if uses_tables(b, x):
        return by_table.log1p_of_sum(b, x, low)
    form = format_of(x)
    one = b.const(1.0, x)
    u = b.add(x, one)
    k, high = _split_fraction(b, u, _field_offset(b, u, 0))
    lost = b.sub(x, b.sub(u, one))
    lost = b.add(lost, low) if low is not None else lost
    # 2**-k in two steps: k reaches past the range of a single one.
    rest = b.mul(b.mul(lost, _power_of_two(b, k, form.bias // 2)), b.const(2.0 ** -(form.bias // 2), x))
    f = b.add(high, rest)
    tail = log1p_tail(b, f)
    if low is not None:  # without it f is exact where its rounding would matter
        tail = b.add(tail, b.sub(rest, b.sub(f, high)))
    ln2, ln2_low = split(LN2, form.kind, 2)
    result = b.fma(k, b.const(ln2, x), b.add(f, b.fma(k, b.const(ln2_low, x), tail)))
    at_edge = b.select(b.fcmp("oeq", x, b.const(-1.0, x)), b.const(float("-inf"), x), nan(x))
    result = b.select(b.fcmp("ogt", x, b.const(-1.0, x)), result, at_edge)
    return b.select(b.fcmp("oeq", x, infinity(x)), x, with_sign_of(b, result, x))


def _power_of_two(b: FunctionBuilder, k: Val, offset: int) -> Val:
    """2**(offset - k) for an integral float k."""
    form = format_of(k)
    return scaled_by_low_bits(b, b.sub(b.const(form.magic + form.bias + offset, k), k))


# -- logistic ------------------------------------------------------------------------------------------------
def _narrow_parts(b: FunctionBuilder, x: Val) -> tuple[Val, Val, Val]:
    """r, p, q with e**x = e**r * p * q, |r| <= ln2 / 2, where p and q are powers of two (their product may be
    denormal).
    """
    form = format_of(x)
    high, low = split(LN2, form.kind, 2)
    magic, biased = b.const(form.magic, x), b.const(form.magic + form.bias, x)
    k = b.sub(b.fma(x, b.const(split(LOG2_E, form.kind, 1)[0], x), magic), magic)
    r = b.fma(k, b.const(-low, x), b.fma(k, b.const(-high, x), x))
    half = b.fma(k, b.const(0.5, x), biased)
    rest = b.add(b.sub(biased, half), b.add(k, biased))
    return r, scaled_by_low_bits(b, half), scaled_by_low_bits(b, rest)


def _offset_power(b: FunctionBuilder, x: Val, offset: int) -> tuple[Val, Val]:
    """r and t with e**x = e**r * t / 2**offset, |r| <= ln2 / 2, where t is a power of two; the offset keeps it a normal number for all `x`."""
    form = format_of(x)
    high, low = split(LN2, form.kind, 2)
    magic = b.const(form.magic + form.bias + offset, x)
    shifted = b.fma(x, b.const(split(LOG2_E, form.kind, 1)[0], x), magic)
    k = b.sub(shifted, magic)
    r = b.fma(k, b.const(-low, x), b.fma(k, b.const(-high, x), x))
    return r, scaled_by_low_bits(b, shifted)


def _exp_of_minus_absolute(b: FunctionBuilder, x: Val) -> Val:
    x = b.without_minus(x)
    return b.once((_exp_of_minus_absolute, x), lambda: (_new_exp_of_minus_absolute(b, x),))[0]


def _new_exp_of_minus_absolute(b: FunctionBuilder, x: Val) -> Val:
    offset = (format_of(x).bias + 1) // 2
    r, t = _offset_power(b, at_least(b, b.neg(absolute(b, x)), _EXP_RANGE[x.type.kind][0]), offset)
    p = polynomial(b, r, (1.0, 1.0, *EXP_NARROW[x.type.kind]), plain=2)
    return times_small(b, b.mul(p, t), b.const(2.0**-offset, x))


@widened
def log1p_of_fraction(b: FunctionBuilder, x: Val) -> Val:
    """log(1 + x) for x in [0, 1]."""
    return by_table.log1p_of_fraction(b, x) if uses_tables(b, x) else _log1p_of_fraction(b, x)


def _log1p_of_fraction(b: FunctionBuilder, x: Val) -> Val:
    high = b.fcmp("ogt", x, b.const(0.41421356237309503, x))
    half = b.const(0.5, x)
    f = b.select(high, b.fma(x, half, b.neg(half)), x)
    ln2, low = split(LN2, x.type.kind, 2)
    zero = b.const(0.0, x)
    square = times_small(b, f, f)
    factor, rest = _log1p_tail_of_square(b, f, square), b.select(high, b.const(low, x), zero)
    # Of doubles the multiply-add takes a quarter longer, and fewer of their squares vanish.
    tail = b.fma(square, factor, rest) if x.type.kind == "float" else b.add(b.mul(square, factor), rest)
    return b.add(b.select(high, b.const(ln2, x), zero), b.add(f, tail))


def expm1_parts(b: FunctionBuilder, x: Val, low: Val) -> tuple[Val, Val, Val]:
    """r, p, q with e**(x + low) = (1 + r) * p * q, p and q powers of two; low is a rounding error of x, not
    beyond the range of exp.
    """
    r, p, q = _narrow_parts(b, x)
    r = b.add(r, low)
    square = b.mul(r, r)
    return b.fma(polynomial(b, r, EXP_NARROW[x.type.kind], square), square, r), p, q


@widened
def sigmoid(b: FunctionBuilder, x: Val) -> Val:
    """1 / (1 + e**-x), accurate in the lower tail too, where it is e**x down to denormals.

    With e**-x = (1 + rest) * t / c it is c / (c + t + t * rest); the smaller two of the three terms are added first. Multiplied by c behind the
    division, see `times_small`.
    """
    if uses_tables(b, x):
        return by_table.sigmoid(b, x)
    low, high = _SIGMOID_RANGE[format_of(x).kind]
    offset = -(format_of(x).bias + 1) // 2
    r, t = _offset_power(b, b.neg(at_least(b, at_most(b, x, high), low)), offset)
    square = b.mul(r, r)
    rest, c = b.fma(polynomial(b, r, EXP_NARROW[x.type.kind], square), square, r), 2.0**offset
    return times_small(b, b.div(b.const(1.0, x), b.add(at_least(b, t, c), b.fma(t, rest, at_most(b, t, c)))), b.const(c, x))


@widened
def sigmoid_beside_softplus(b: FunctionBuilder, x: Val) -> Val:
    """The same where a softplus of x is computed, too, from its z = e**-|x|: 1 - w, and z - z w for negative x, with w = z / (1 + z)."""
    if uses_tables(b, x):
        return by_table.sigmoid(b, x)
    z, one, bits = _exp_of_minus_absolute(b, x), b.const(1.0, x), to_bits(b, x)
    whole = b.select(b.icmp("slt", bits, b.const(0, bits)), z, one)
    return b.fma(b.neg(whole), b.div(z, b.add(z, one)), whole)


@widened
def softplus(b: FunctionBuilder, x: Val) -> Val:
    """log(1 + e**x), without overflow."""
    if uses_tables(b, x):
        return by_table.softplus(b, x)
    return b.add(at_least(b, x, 0.0), _log1p_of_fraction(b, _exp_of_minus_absolute(b, x)))


@widened
def tanh_softplus(b: FunctionBuilder, x: Val) -> Val:
    """tanh(log(1 + e**x)) = w / (w + 2) with w = e**x * (e**x + 2)."""
    e = _limited_exp(b, x)
    w = b.fma(e, e, b.add(e, e))
    return b.div(w, b.add(w, b.const(2.0, e)))


@widened
def sigmoid_beside_tanh_softplus(b: FunctionBuilder, x: Val) -> Val:
    """A sigmoid where a tanh_softplus of x is computed, too, from its e**x."""
    e = _limited_exp(b, x)
    return b.div(e, b.add(e, b.const(1.0, e)))


def _limited_exp(b: FunctionBuilder, x: Val) -> Val:
    """e**x up to where tanh_softplus and sigmoid are 1."""

    def make() -> tuple[Val]:
        limited = at_most(b, x, _TANH_SOFTPLUS_LIMIT[x.type.kind])
        return (by_table.exp(b, limited, close=True) if uses_tables(b, limited) else exp(b, limited),)

    return b.once((_limited_exp, x), make)[0]


@widened
def log_sigmoid(b: FunctionBuilder, x: Val) -> Val:
    """log(1 / (1 + e**-x)), without overflow."""
    if uses_tables(b, x):
        return by_table.log_sigmoid(b, x)
    return b.sub(at_most(b, x, 0.0), _log1p_of_fraction(b, _exp_of_minus_absolute(b, x)))
