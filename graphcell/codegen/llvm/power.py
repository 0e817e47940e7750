"""Powers and roots, as straight-line vector code.

Enters: half, bfloat, float or double operands, vectors or scalars. Leaves: the result in the operand's type.
See `math` for accuracy.
"""

from __future__ import annotations

from collections.abc import Callable

from graphcell.codegen.llvm import power_tables
from graphcell.codegen.llvm.coefficients import EXP2_NARROW, LOG_SERIES
from graphcell.codegen.llvm.exponential import exp2_of_sum, expm1_parts, log, log1p_tail, log2_with, log_parts, times_split
from graphcell.codegen.llvm.lookup import by_registers, reciprocal_root_guess, uses_float_tables, uses_short_tables, uses_tables
from graphcell.codegen.llvm.polynomials import (
    LN2,
    LOG2_E,
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
    to_bits,
    widened,
    with_sign_of,
)
from graphcell.codegen.llvm.text import FunctionBuilder, Val
from graphcell.codegen.llvm.values import rounded
from graphcell.ops.mathematics import MOST_PRODUCTS

_EXP2_WIDE_RANGE = (-200.0, 200.0)  # 2**x is 0 and inf in float
_EXP_RANGE = (-746.0, 710.0)
# ln2 cut to 42 bits, so that its product with an exponent is exact, and the rest.
_LN2_HIGH = 0.6931471805598903
_TWO_THIRDS = 2.0 / 3.0
_TWO_THIRDS_LOW = 3.700743415417188e-17


@widened
def sqrt(b: FunctionBuilder, x: Val) -> Val:
    """Square root, correctly rounded; NaN below 0."""
    return b.unary("sqrt", x)


@widened
def rsqrt(b: FunctionBuilder, x: Val) -> Val:
    """1 / sqrt(x); infinite at 0, NaN below. With AVX-512 and in float, the processor's guess and a step of Newton's."""
    if uses_float_tables(b, x):
        return by_registers(b, _refined_reciprocal_root, x)
    return b.div(b.const(1.0, x), b.unary("sqrt", x))


def _refined_reciprocal_root(b: FunctionBuilder, x: Val) -> Val:
    """y + y * e / 2 where e = 1 - x * y**2 is below 2**-13; y as it is at 0 and inf, where e is NaN."""
    y = reciprocal_root_guess(b, x)
    e = b.fma(b.neg(b.mul(x, y)), y, b.const(1.0, x))
    refined = b.fma(b.mul(y, b.fma(e, b.const(0.375, x), b.const(0.5, x))), e, y)
    return b.select(b.fcmp("uno", e, e), y, refined)


@widened
def cbrt(b: FunctionBuilder, x: Val) -> Val:
    """Cube root, of negative numbers too.

    y = a**(-1/3) is guessed by dividing the exponent by -3 and refined to fourth order; a last Newton step on
    a * y**2 uses the residual of a fused multiply-add.
    """
    form = format_of(x)
    a = absolute(b, x)
    small = b.fcmp("olt", a, b.const(2.0 ** (1 - form.bias), x))
    lift = 3 * (form.mantissa // 3 + 1)
    scaled = b.select(small, b.mul(a, b.const(2.0**lift, x)), a)
    y = _inverse_cube_root_guess(b, scaled)
    for _ in range(1 if form.kind == "float" else 2):
        h = b.fma(b.mul(b.neg(scaled), b.mul(y, y)), y, b.const(1.0, x))
        # (1 - h)**(-1/3) = 1 + h/3 + 2 h**2/9 + 14 h**3/81 + ...
        growth = b.mul(h, polynomial(b, h, (1 / 3, 2 / 9, 14 / 81)))
        y = b.fma(y, growth, y)
    square = b.mul(y, y)
    root = b.mul(scaled, square)
    residual = b.fma(b.mul(root, root), root, b.neg(scaled))
    root = b.fma(b.mul(residual, b.const(-1 / 3, x)), square, root)
    root = b.select(small, b.mul(root, b.const(2.0 ** -(lift // 3), x)), root)
    unchanged = b.or_(b.fcmp("oeq", a, b.const(0.0, x)), b.fcmp("oeq", a, infinity(x)))
    return with_sign_of(b, b.select(unchanged, a, root), x)


def _inverse_cube_root_guess(b: FunctionBuilder, a: Val) -> Val:
    """a**(-1/3) within about 4 percent, for normal a: the top bits of a, read as a number, divided by -3."""
    form = format_of(a)
    bits = to_bits(b, a)
    kept = {"float": 23, "double": 32}[form.kind]
    drop = b.const(form.bits - kept, bits)
    # 4/3 of the pattern of 1, less a constant that balances the error.
    start = 4 / 3 * (form.bias << (form.mantissa - form.bits + kept)) - 0.0655 * 2.0 ** (
        form.mantissa - form.bits + kept
    )
    top = b.shr(bits, drop)
    if form.kind == "float":
        number = b.cast(top, a.type)
    else:
        raised = from_bits(b, b.or_(top, b.const(0x433 << 52, bits)))
        number = b.sub(raised, b.const(2.0**52, a))
    shifted = b.add(b.fma(number, b.const(-1 / 3, a), b.const(start, a)), b.const(2.0**form.mantissa, a))
    return from_bits(b, b.shl(to_bits(b, shifted), drop))


# -- pow -----------------------------------------------------------------------------------------------------
_SMALL_EXPONENT = 2.5
_WITH_ROOT = (-1.5, -0.5, 0.5, 1.5, 2.5)  # and these products with a root


@widened
def pow(b: FunctionBuilder, x: Val, y: Val) -> Val:
    """x**y as C defines it: 1 where x is 1 or y is 0, whatever the other; NaN for negative x and fractional
    y; signed zeros. The power of floats is computed by tables, with neither AVX-512 nor AVX2 in double;
    that of doubles by tables with AVX-512.
    """
    return _of_either_sign(b, x, y, _power_of_magnitude(b, x))


@widened
def log_beside_power(b: FunctionBuilder, x: Val) -> Val:
    """log(x) where a power of x is computed, too, which needs its logarithm."""
    if not uses_short_tables(b, x):
        return log(b, x)
    logarithm = power_tables.short_log(b, _magnitude(b, x))
    return b.select(b.fcmp("olt", x, b.const(0.0, x)), nan(x), logarithm)


def constant_pow(b: FunctionBuilder, x: Val, exponent: float) -> Val:
    """x**exponent for a number known while compiling. For small whole ones it is a product, for some halves a product with a root, and to a
    negative number the inverse of that, which loses bits where a result or its inverse is denormal.
    """
    exponent = rounded(exponent, x.type.kind)
    size = abs(exponent)
    if size.is_integer() and 1 <= size <= MOST_PRODUCTS:
        power = _product(b, x, int(size))
        return power if exponent > 0 else b.div(b.const(1, x), power)

    @widened
    def power_of_float(b: FunctionBuilder, x: Val) -> Val:
        if exponent in _WITH_ROOT:
            return _power_with_root(b, x, exponent)
        if size.is_integer() or x.type.kind == "double":
            return pow(b, x, b.const(exponent, x))
        if uses_float_tables(b, x):
            return (power_tables.small_power if size <= power_tables.SMALL_EXPONENT else pow)(b, x, b.const(exponent, x))
        return _small_power(b, x, exponent) if size <= _SMALL_EXPONENT else pow(b, x, b.const(exponent, x))

    return power_of_float(b, x)


def _small_power(b: FunctionBuilder, x: Val, y: float) -> Val:
    """x**y of floats for a small fraction y: 2**(y k + y log2(1 + f)), where x = 2**k * (1 + f). The product with k is exact as a sum of two floats; the
    other's error is multiplied by so little that one float does.
    """
    k, f = log_parts(b, x)
    exponent, fraction = b.const(y, x), times_split(b, f, log1p_tail(b, f), LOG2_E)
    z = b.mul(exponent, k)
    power = exp2_of_sum(b, z, b.fma(exponent, fraction, b.fma(exponent, k, b.neg(z))))
    at_zero, at_infinity = (0.0, float("inf")) if y > 0 else (float("inf"), 0.0)
    beside = b.select(b.fcmp("oeq", x, b.const(0.0, x)), b.const(at_zero, x), nan(x))
    power = b.select(b.fcmp("ogt", x, b.const(0.0, x)), power, beside)
    return b.select(b.fcmp("oeq", absolute(b, x), infinity(x)), b.const(at_infinity, x), power)


def _product(b: FunctionBuilder, x: Val, count: int) -> Val:
    """x multiplied `count` > 0 times, by squaring."""
    half = _product(b, b.mul(x, x), count // 2) if count > 1 else None
    if half is None or count % 2 == 0:
        return half or x
    return b.mul(x, half)


def _power_with_root(b: FunctionBuilder, x: Val, exponent: float) -> Val:
    """|x|**n * sqrt(x), or the inverse, for `exponent` = n + 1/2 > 0 or its negative. Adding 0 makes -0 a 0; -inf is an even infinity here."""
    size, infinite = abs(exponent), b.fcmp("oeq", x, b.const(float("-inf"), x))
    if exponent == -0.5:
        return b.select(infinite, b.const(0.0, x), absolute(b, rsqrt(b, x)))
    root = b.select(infinite, infinity(x), b.add(sqrt(b, x), b.const(0.0, x)))
    power = b.mul(_product(b, absolute(b, x), int(size)), root) if size > 1 else root
    return power if exponent > 0 else b.div(b.const(1.0, x), power)


def _of_either_sign(b: FunctionBuilder, x: Val, y: Val, of_magnitude: Callable[..., Val]) -> Val:
    """x**y, where `of_magnitude` emits |x|**y but for what C defines otherwise."""
    a = _magnitude(b, x)
    zero, one = b.const(0.0, x), b.const(1.0, x)
    power = of_magnitude(b, a, y)
    power = b.select(b.and_(b.fcmp("oeq", a, one), b.fcmp("ord", y, y)), one, power)
    whole = b.fcmp("oeq", b.unary("trunc", y), y)
    half = b.mul(y, b.const(0.5, x))
    odd = b.and_(whole, b.fcmp("une", b.unary("trunc", half), half))
    power = b.select(odd, with_sign_of(b, power, x), power)
    finite_negative = b.and_(b.fcmp("olt", x, zero), b.fcmp("olt", a, infinity(x)))
    power = b.select(b.and_(finite_negative, b.not_(whole)), nan(x), power)
    return b.select(b.or_(b.fcmp("oeq", x, one), b.fcmp("oeq", y, zero)), one, power)


def _magnitude(b: FunctionBuilder, x: Val) -> Val:
    """|x|, the same for all that is computed of it."""
    return b.once((_magnitude, x), lambda: (absolute(b, x),))[0]


def _power_of_magnitude(b: FunctionBuilder, x: Val) -> Callable[..., Val]:
    if uses_tables(b, x):
        return power_tables.power
    if uses_short_tables(b, x):
        return power_tables.short_power
    return _double_power if x.type.kind == "double" else _float_power


def _log_at_ends(b: FunctionBuilder, a: Val, logarithm: Val) -> Val:
    """`logarithm` with its values at 0, inf and NaN."""
    logarithm = b.select(b.fcmp("oeq", a, b.const(0.0, a)), b.const(float("-inf"), a), logarithm)
    return b.select(b.fcmp("olt", a, infinity(a)), logarithm, a)


def _float_power(b: FunctionBuilder, magnitude: Val, exponent: Val) -> Val:
    """a**y for floats a >= 0. Powers of one number, as a power and its slope, share its logarithm."""
    wide = magnitude.type.with_kind("double")

    def make() -> tuple[Val]:
        a = b.cast(magnitude, wide)
        return (_log_at_ends(b, a, log2_with(b, a, "wide")),)

    (logarithm,) = b.once((_float_power, magnitude), make)
    product = b.mul(b.cast(exponent, wide), logarithm)
    form = format_of(product)
    product = at_least(b, at_most(b, product, _EXP2_WIDE_RANGE[1]), _EXP2_WIDE_RANGE[0])
    magic = b.const(form.magic + form.bias, product)
    shifted = b.add(product, magic)
    r = b.sub(product, b.sub(shifted, magic))
    p = polynomial(b, r, (1.0, *split(LN2, form.kind, 1), *EXP2_NARROW["float"]), plain=2)
    return b.cast(b.mul(p, scaled_by_low_bits(b, shifted)), magnitude.type)


def _double_power(b: FunctionBuilder, a: Val, y: Val) -> Val:
    """a**y for doubles a >= 0, by a logarithm of 65 bits, which powers of one number share."""

    def make() -> tuple[Val, Val]:
        high, low = long_log(b, a)
        return _log_at_ends(b, a, high), low

    high, low = b.once((_double_power, a), make)
    exponent = b.mul(y, high)
    rest = b.fma(y, low, b.fma(y, high, b.neg(exponent)))
    ordinary = b.fcmp("olt", absolute(b, exponent), b.const(1000.0, a))
    rest = b.select(ordinary, rest, b.const(0.0, a))
    bounded = at_least(b, at_most(b, exponent, _EXP_RANGE[1]), _EXP_RANGE[0])
    r, p, q = expm1_parts(b, bounded, rest)
    return b.mul(b.mul(b.add(r, b.const(1.0, a)), p), q)


def long_log(b: FunctionBuilder, a: Val) -> tuple[Val, Val]:
    """log(a) as a sum of two doubles, for finite a > 0: 2 s + 2/3 s**3 + s**5 * p(s**2) with s = f / (2 + f)
    and a = 2**k (1 + f).
    """
    k, f = log_parts(b, a)
    two = b.const(2.0, a)
    below = b.add(f, two)
    s = b.div(f, below)
    remainder = b.fma(b.neg(s), b.sub(f, b.sub(below, two)), b.fma(b.neg(s), below, f))
    s_low = b.mul(remainder, b.fma(s, b.const(-0.5, a), b.const(0.5, a)))  # 1 / (2 + f) = (1 - s) / 2
    z = b.mul(s, s)
    z_low = b.fma(b.add(s, s), s_low, b.fma(s, s, b.neg(z)))
    cube = b.mul(s, z)
    cube_low = b.fma(s_low, z, b.fma(s, z_low, b.fma(s, z, b.neg(cube))))
    series = b.mul(z, polynomial(b, z, LOG_SERIES["double"]))
    third = b.const(_TWO_THIRDS, a)
    factor = b.add(third, series)
    factor_low = b.add(b.sub(series, b.sub(factor, third)), b.const(_TWO_THIRDS_LOW, a))
    term = b.mul(cube, factor)
    term_low = b.fma(cube_low, factor, b.fma(cube, factor_low, b.fma(cube, factor, b.neg(term))))
    double_s = b.add(s, s)
    sum_ = b.add(double_s, term)
    sum_low = b.add(b.sub(term, b.sub(sum_, double_s)), b.fma(two, s_low, term_low))
    whole = b.mul(k, b.const(_LN2_HIGH, a))
    total = b.add(whole, sum_)
    rest = b.add(b.sub(sum_, b.sub(total, whole)), sum_low)
    return total, b.fma(k, b.const(_ln2_rest(), a), rest)


def _ln2_rest() -> float:
    parts = split(LN2, "double", 3)
    return (parts[0] - _LN2_HIGH) + parts[1]
