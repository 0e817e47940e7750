"""The error function and its relatives, as straight-line vector code.

Enters: half, bfloat, float or double operands, vectors or scalars. Leaves: the result in the operand's type.
See `math` for accuracy.
"""

from __future__ import annotations

from graphcell.codegen.llvm import tables
from graphcell.codegen.llvm.coefficients import (
    ERF,
    ERFCX_2,
    ERFCX_3,
    ERFINV,
    ERFINV_FAR,
    ERFINV_TAIL,
    EXP2_NARROW,
    LOG2_ERFC,
    NORMAL_TAIL,
)
from graphcell.codegen.llvm.exponential import exp, expm1_parts, log_with
from graphcell.codegen.llvm.lookup import odd_function, uses_short_tables, uses_tables
from graphcell.codegen.llvm.polynomials import (
    LN2,
    LOG2_E,
    absolute,
    at_least,
    at_most,
    format_of,
    infinity,
    nan,
    polynomial,
    scaled_by_low_bits,
    split,
    through_double,
    widened,
    with_sign_of,
)
from graphcell.codegen.llvm.text import FunctionBuilder, Val

_ERF_LIMIT = {"float": 4.0, "double": 5.95}  # erf is 1 above these
_ROOT_HALF = 0.7071067811865476
_NORMAL_PEAK = 0.3989422804014327  # 1 / sqrt(2 pi)
_GELU_LIMIT = 40.0  # the slope of gelu is 0 or 1 beyond, in double too
_NORMAL_LIMIT = 13.0  # beyond, neither a normal number's tail nor that times its distance counts
_HALF_ROOT_PI = 0.8862269254527580
_ERFC_LIMIT = {"wide": 10.1, "double": 27.3}  # erfc is 0 above these
_ERFC_NEAR = 0.8  # erfc is 1 - erf below
_ERFINV_LIMIT = 5.0  # in -log(1 - x**2)
_ERFINV_FAR_LIMIT = 3.7  # in its root


@widened
def erf(b: FunctionBuilder, x: Val) -> Val:
    """Error function: an odd polynomial where |x| < 1, and 1 - 2**p(|x|) beyond. With AVX-512 or AVX2 and in float, a piecewise polynomial."""
    if uses_tables(b, x) or uses_short_tables(b, x):
        return odd_function(b, x, tables.ERF if uses_tables(b, x) else tables.ERF_SHORT)
    form = format_of(x)
    a, one = absolute(b, x), b.const(1.0, x)
    p = polynomial(b, at_most(b, a, _ERF_LIMIT[form.kind]), LOG2_ERFC[form.kind])
    magic = b.const(form.magic + form.bias, x)
    shifted = b.add(p, magic)
    r = b.sub(p, b.sub(shifted, magic))
    power = polynomial(b, r, (1.0, *split(LN2, form.kind, 1), *EXP2_NARROW[form.kind]), plain=2)
    large = b.fma(b.neg(power), scaled_by_low_bits(b, shifted), one)
    small = b.fma(polynomial(b, b.mul(x, x), ERF[form.kind]), x, x)
    return with_sign_of(b, b.select(b.fcmp("olt", a, one), small, large), x)


@widened
def gelu(b: FunctionBuilder, x: Val) -> Val:
    """x times the standard normal distribution function, whose absolute error is that of (1 + erf(x / sqrt 2)) / 2."""
    half = b.const(0.5, x)
    if uses_tables(b, x):
        return b.mul(x, b.fma(odd_function(b, x, tables.NORMAL), half, half))
    if x.type.kind == "float":
        power, tail = _normal_tail(b, x)
        return b.mul(x, _of_either_sign(b, x, b.mul(power, tail)))
    return b.mul(x, b.fma(erf(b, b.mul(x, b.const(_ROOT_HALF, x))), half, half))


@widened
def gelu_slope(b: FunctionBuilder, x: Val) -> Val:
    """The derivative of gelu: normal distribution function plus x times density; 0 at -inf, 1 at inf. The error is absolute, as that of gelu."""
    half = b.const(0.5, x)
    if uses_tables(b, x):
        return b.fma(odd_function(b, x, tables.GELU_SLOPE), half, half)
    if x.type.kind == "float":
        power, tail = _normal_tail(b, x)
        a = at_most(b, absolute(b, x), _NORMAL_LIMIT)
        rest = b.fma(a, b.const(-_NORMAL_PEAK, x), tail)
        return _of_either_sign(b, x, b.fma(power, rest, b.const(0.0, x)))  # not -0, where the power is 0
    a = at_least(b, at_most(b, x, _GELU_LIMIT), -_GELU_LIMIT)
    scaled = b.mul(a, b.const(_ROOT_HALF, x))
    density = b.mul(exp(b, b.neg(b.mul(scaled, scaled))), b.const(_NORMAL_PEAK, x))
    return b.fma(a, density, b.fma(erf(b, scaled), half, half))


def _normal_tail(b: FunctionBuilder, x: Val) -> tuple[Val, Val]:
    """p and q with P(z > |x|) = p q and p = e**(-x**2 / 2), for a normal z and floats; p is 0 where the tail is less than 2**-24 of anything.

    With |x| = a, q is a polynomial in a / (5 + a), much as in C. Hastings, Approximations for Digital Computers (1955).
    """
    form = format_of(x)
    a = at_most(b, absolute(b, x), _NORMAL_LIMIT)
    tail = polynomial(b, b.div(a, b.add(a, b.const(5.0, x))), NORMAL_TAIL[form.kind])
    square, factor, magic = b.mul(a, a), b.const(-0.5 * split(LOG2_E, form.kind, 1)[0], x), b.const(form.magic + form.bias, x)
    shifted = b.fma(square, factor, magic)
    r = b.fma(square, factor, b.neg(b.sub(shifted, magic)))
    power = b.mul(polynomial(b, r, (1.0, *split(LN2, form.kind, 1), *EXP2_NARROW[form.kind]), plain=2), scaled_by_low_bits(b, shifted))
    return b.select(b.fcmp("oge", a, b.const(_NORMAL_LIMIT, x)), b.const(0.0, x), power), tail


def _of_either_sign(b: FunctionBuilder, x: Val, tail: Val) -> Val:
    """A function that is `tail` for negative numbers and 1 - tail for the others."""
    return b.select(b.fcmp("olt", x, b.const(0.0, x)), tail, b.sub(b.const(1.0, x), tail))


@through_double
def erfc(precision: str, b: FunctionBuilder, x: Val) -> Val:
    """1 - erf(x), accurate where it is small, down to denormals.

    Far out it is e**(-x**2) / |x| times a polynomial in (|x| - k) / (|x| + k); near zero 1 - erf(x).
    """
    magnitude, one = absolute(b, x), b.const(1.0, x)
    near = b.fma(b.neg(polynomial(b, b.mul(x, x), ERF[precision])), x, b.sub(one, x))
    a = at_least(b, at_most(b, magnitude, _ERFC_LIMIT[precision]), _ERFC_NEAR)
    far = _erfc_far(b, a, precision)
    far = b.select(b.fcmp("olt", x, b.const(0.0, x)), b.sub(b.const(2.0, x), far), far)
    return b.select(b.fcmp("olt", magnitude, b.const(_ERFC_NEAR, x)), near, far)


def _erfc_far(b: FunctionBuilder, a: Val, precision: str) -> Val:
    factor, factor_low = _scaled_erfc(b, a, precision)
    square = b.mul(a, a)
    lost = b.fma(a, a, b.neg(square))
    rest, p, q = expm1_parts(b, b.neg(square), b.neg(lost))
    growth = b.fma(rest, factor, factor_low)
    y = b.add(factor, growth)
    if precision != "double":
        return b.mul(b.mul(b.div(y, a), p), q)
    y_low = b.sub(growth, b.sub(y, factor))
    inverse = b.div(b.const(1.0, a), a)
    inverse_low = b.mul(inverse, b.fma(b.neg(inverse), a, b.const(1.0, a)))
    quotient = b.fma(y, inverse, b.fma(y, inverse_low, b.mul(y_low, inverse)))
    return b.mul(b.mul(quotient, p), q)


def _scaled_erfc(b: FunctionBuilder, a: Val, precision: str) -> tuple[Val, Val]:
    """a * e**(a**2) * erfc(a) for a >= _ERFC_NEAR, and what its rounding lost.

    It is a polynomial in t = (a - k) / (a + k).
    """
    double = precision == "double"
    scale, table = (3.0, ERFCX_3[precision]) if double else (2.0, ERFCX_2[precision])
    centre, constant = b.const(scale, a), b.const(table[0], a)
    above, below = b.sub(a, centre), b.add(a, centre)
    t = b.div(above, below)
    inner = polynomial(b, t, table[1:], plain=1)
    factor = b.fma(inner, t, constant)
    lost = b.fma(inner, t, b.sub(constant, factor))
    if not double:
        return factor, lost
    minus = b.neg(t)
    remainder = b.fma(minus, b.sub(a, b.sub(below, centre)), b.fma(minus, below, above))
    inverse = b.fma(t, b.const(-0.5 / scale, a), b.const(0.5 / scale, a))  # 1 / (a + k) = (1 - t) / 2k
    return factor, b.fma(inner, b.mul(remainder, inverse), lost)


@through_double
def erfinv(precision: str, b: FunctionBuilder, x: Val) -> Val:
    """Inverse error function, infinite at -1 and 1, NaN beyond: x times a polynomial in w = -log(1 - x**2),
    or in its root where w is large (M. Giles, Approximating the erfinv function, GPU Computing Gems 2, 2010).
    """
    a, one = absolute(b, x), b.const(1.0, x)
    w = b.neg(log_with(b, b.fma(b.neg(x), x, one), precision))
    root = b.unary("sqrt", w)
    near = b.fma(polynomial(b, b.sub(w, b.const(2.5, x)), ERFINV[precision]), w, b.const(_HALF_ROOT_PI, x))
    tail = polynomial(b, _root_minus(b, w, root, 3.0), ERFINV_TAIL[precision], plain=1)
    if precision == "double":
        far = polynomial(b, _root_minus(b, w, root, 5.0), ERFINV_FAR[precision], plain=1)
        tail = b.select(b.fcmp("ogt", root, b.const(_ERFINV_FAR_LIMIT, x)), far, tail)
    result = b.mul(b.select(b.fcmp("ogt", w, b.const(_ERFINV_LIMIT, x)), tail, near), x)
    result = b.select(b.fcmp("oeq", a, one), with_sign_of(b, infinity(x), x), result)
    return b.select(b.fcmp("ogt", a, one), nan(x), result)


def _root_minus(b: FunctionBuilder, w: Val, root: Val, centre: float) -> Val:
    """sqrt(w) - centre, where root is sqrt(w) rounded: its error is (w - root**2) / (2 root), for which a
    linear fit of 1 / root will do.
    """
    u = b.sub(root, b.const(centre, w))
    slope = b.fma(u, b.const(-0.5 / centre**2, w), b.const(0.5 / centre, w))
    return b.fma(b.fma(b.neg(root), root, w), slope, u)
