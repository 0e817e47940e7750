"""The logarithm of the gamma function and its derivative, as straight-line vector code.

Enters: half, bfloat, float or double operands, vectors or scalars. Leaves: the result in the operand's type. All but double is computed
in double. See `math` for accuracy.

With a = |x|, both are polynomials around their zeros on the positive axis, and Stirling's series with minimax coefficients beyond.
Negative arguments take the reflection formula, in a branch that vectors of positive numbers jump over.
"""

from __future__ import annotations

from collections.abc import Callable

from graphcell.codegen.llvm.coefficients import COT_PI, DIGAMMA_FAR, DIGAMMA_NEAR, LGAMMA_FAR, LGAMMA_NEAR, SIN_PI
from graphcell.codegen.llvm.exponential import log_with
from graphcell.codegen.llvm.polynomials import absolute, any_lane, infinity, nan, polynomial, split, through_double, to_bits
from graphcell.codegen.llvm.power import long_log
from graphcell.codegen.llvm.text import FunctionBuilder, Val

_LGAMMA_SHIFTED = 1.5  # below, log gamma(a) = log gamma(1 + a) - log(a)
_LGAMMA_FAR = 2.5  # Stirling's series from here on
_LGAMMA_LIMIT = 2.5563481638716906e305  # log gamma overflows beyond
_DIGAMMA_SHIFTED = 1.0  # below, digamma(a) = digamma(1 + a) - 1 / a
_DIGAMMA_FAR = 2.0
_ROUNDING_COUNTS = 2.0**-60  # below, what rounding 1 / a lost is nothing beside digamma(a)
_STIRLING = "0.4189385332046727417803297364056176398613974736377834128171515404"  # (log(2 pi) - 1) / 2
_DIGAMMA_OF_TWO = "0.4227843350984671393934879099175975689578406640600764011942327651"
_DIGAMMA_ZERO = "1.461632144968362341262659542325721328468196204006446351295988409"
_DIGAMMA_ZERO_SHIFTED = "0.461632144968362341262659542325721328468196204006446351295988409"


# -- log gamma -----------------------------------------------------------------------------------------------
@through_double
def lgamma(precision: str, b: FunctionBuilder, x: Val) -> Val:
    """log |gamma(x)|: inf at 0, -1, -2, … and at both infinities. The error is relative where x > 0; below, it is that of the terms of
    -log(|sin(pi x)| / pi) - log(a) - log gamma(a), which nearly cancel next to zeros.
    """
    a, zero = absolute(b, x), b.const(0.0, x)
    logarithm = _log(precision, b, a)
    near, far = _lgamma_near(precision, b, a, *logarithm), _lgamma_far(precision, b, a, *logarithm)
    positive = b.select(b.fcmp("olt", a, b.const(_LGAMMA_FAR, x)), near, far)
    at_end = b.or_(b.fcmp("oeq", a, zero), b.fcmp("ogt", a, b.const(_LGAMMA_LIMIT, x)))
    positive = b.select(at_end, infinity(x), positive)
    return _replaced(b, b.fcmp("olt", x, zero), lambda: _lgamma_reflected(precision, b, a, b.add(*logarithm), positive), positive)


def _log(precision: str, b: FunctionBuilder, a: Val) -> tuple[Val, Val]:
    """log(a) as a sum whose second term is small, 0 but in double; anything where `a` is not positive and finite."""
    if precision == "double":
        return long_log(b, a)
    return log_with(b, a, precision), b.const(0.0, a)


def _lgamma_near(precision: str, b: FunctionBuilder, a: Val, high: Val, low: Val) -> Val:
    """log gamma(a) for 0 < a < 5/2: s * (digamma(2) + s * q(s)) with s = a - 2, or with s = a - 1 less log(a)."""
    zero = b.const(0.0, a)
    shifted = b.fcmp("olt", a, b.const(_LGAMMA_SHIFTED, a))
    s = b.sub(a, b.select(shifted, b.const(1.0, a), b.const(2.0, a)))
    slope, slope_low = (b.const(part, a) for part in split(_DIGAMMA_OF_TWO, "double", 2))
    q = polynomial(b, s, LGAMMA_NEAR[precision], plain=2)
    p = b.fma(q, s, slope)
    result = b.fma(s, p, b.select(shifted, b.neg(high), zero))
    if precision != "double":
        return result
    p_low = b.add(b.fma(q, s, b.sub(slope, p)), slope_low)
    return b.add(result, b.fma(s, p_low, b.select(shifted, b.neg(low), zero)))


def _lgamma_far(precision: str, b: FunctionBuilder, a: Val, high: Val, low: Val) -> Val:
    """(a - 1/2) (log(a) - 1) + (log(2 pi) - 1) / 2 + p(1 / a**2) / a."""
    one = b.const(1.0, a)
    inverse = b.div(one, a)
    constant = b.const(split(_STIRLING, "double", 1)[0], a)
    series = polynomial(b, b.mul(inverse, inverse), LGAMMA_FAR[precision])
    rest = b.fma(series, inverse, constant)
    factor, logarithm = b.sub(a, b.const(0.5, a)), b.sub(high, one)
    if precision != "double":
        return b.fma(factor, logarithm, rest)
    low = b.sub(low, b.add(b.sub(logarithm, high), one))
    product = b.mul(factor, logarithm)
    lost = b.fma(factor, low, b.fma(factor, logarithm, b.neg(product)))
    return b.add(product, b.add(lost, rest))


def _lgamma_reflected(precision: str, b: FunctionBuilder, a: Val, logarithm: Val, positive: Val) -> Val:
    """log |gamma(-a)| = -log(sin(pi a) / pi) - log(a) - log gamma(a). Where a < 1/2, log(sin(pi a) / pi a) takes a out of the sine."""
    r = b.sub(a, b.unary("roundeven", a))
    sine = polynomial(b, b.mul(r, r), SIN_PI[precision], plain=1)
    inside = b.fcmp("olt", a, b.const(0.5, a))
    sine = b.select(inside, sine, b.mul(absolute(b, r), sine))
    logarithm = b.select(inside, b.add(logarithm, logarithm), logarithm)
    result = b.neg(b.add(log_with(b, sine, precision), b.add(logarithm, positive)))
    return b.select(b.fcmp("one", r, b.const(0.0, a)), result, infinity(a))  # r is 0 at poles, NaN at infinity


# -- digamma -------------------------------------------------------------------------------------------------
@through_double
def digamma(precision: str, b: FunctionBuilder, x: Val) -> Val:
    """The derivative of log gamma: inf at -0, -inf at 0, NaN at -1, -2, … and at -inf. The error is relative where x > 0; below, it is that
    of the terms of digamma(a) + 1 / a + pi cot(pi a).
    """
    a, bits = absolute(b, x), to_bits(b, x)
    inverse = b.div(b.const(1.0, x), a)
    shifted = b.fcmp("olt", a, b.const(_DIGAMMA_SHIFTED, x))
    s, s_low, factor = _digamma_near(precision, b, a, shifted)
    far = _digamma_far(precision, b, a, inverse)
    is_near = b.fcmp("olt", a, b.const(_DIGAMMA_FAR, x))
    zero = b.const(0.0, x)
    subtrahend = b.select(shifted, inverse, zero)
    if precision == "double":
        lost = b.mul(inverse, b.fma(b.neg(a), inverse, b.const(1.0, x)))
        counts = b.and_(shifted, b.fcmp("ogt", a, b.const(_ROUNDING_COUNTS, x)))
        lost = b.fma(s_low, factor, b.select(counts, lost, zero))
        near = b.sub(b.fma(s, factor, b.neg(lost)), subtrahend)
    else:
        near = b.fma(s, factor, b.neg(subtrahend))
    positive = b.select(is_near, near, far)
    positive = b.select(b.fcmp("oeq", a, infinity(x)), a, positive)

    def reflected() -> Val:
        base = b.add(b.select(is_near, b.mul(s, factor), far), b.select(shifted, zero, inverse))
        return _digamma_reflected(precision, b, a, base)

    return _replaced(b, b.icmp("slt", bits, b.const(0, bits)), reflected, positive)


def _digamma_near(precision: str, b: FunctionBuilder, a: Val, shifted: Val) -> tuple[Val, Val, Val]:
    """s, s_low and p with digamma(a) = (s - s_low) p for 1 <= a < 2, digamma(1 + a) where `shifted` holds."""
    high, low = split(_DIGAMMA_ZERO, "double", 2)
    high_shifted, low_shifted = split(_DIGAMMA_ZERO_SHIFTED, "double", 2)
    s = b.sub(a, b.select(shifted, b.const(high_shifted, a), b.const(high, a)))
    s_low = b.select(shifted, b.const(low_shifted, a), b.const(low, a))
    return s, s_low, polynomial(b, s, DIGAMMA_NEAR[precision], plain=2)


def _digamma_far(precision: str, b: FunctionBuilder, a: Val, inverse: Val) -> Val:
    """log(a) - 1 / 2a - p(1 / a**2) / a**2."""
    high, low = _log(precision, b, a)
    square = b.mul(inverse, inverse)
    rest = b.fma(b.neg(square), polynomial(b, square, DIGAMMA_FAR[precision]), b.fma(inverse, b.const(-0.5, a), low))
    return b.add(high, rest)


def _digamma_reflected(precision: str, b: FunctionBuilder, a: Val, base: Val) -> Val:
    """digamma(-a) = digamma(a) + 1 / a + pi cot(pi a), where `base` is the sum of the first two."""
    r = b.sub(a, b.unary("roundeven", a))
    cotangent = b.fma(polynomial(b, b.mul(r, r), COT_PI[precision], plain=1), r, b.div(b.const(1.0, a), r))
    pole = b.and_(b.fcmp("oeq", r, b.const(0.0, a)), b.fcmp("ogt", a, b.const(0.0, a)))
    return b.select(pole, nan(a), b.add(base, cotangent))


def _replaced(b: FunctionBuilder, condition: Val, emit: Callable[[], Val], value: Val) -> Val:
    """What `emit` emits in the lanes where the condition holds, `value` in the others; a branch, taken if there are any of the former."""
    slot = b.alloca(value.type)
    b.store(value, slot, 64)
    with b.if_then(any_lane(b, condition)):
        b.store(b.select(condition, emit(), value), slot, 64)
    return b.load(slot, value.type, 64)
