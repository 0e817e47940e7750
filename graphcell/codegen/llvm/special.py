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
from graphcell.codegen.llvm.exponential import exp, exp_within, expm1_parts, log_and_rest
from graphcell.codegen.llvm.exponential_tables import tables_for, times_power_of_minus_square
from graphcell.codegen.llvm.lookup import odd_function, piecewise, uses_short_tables, uses_tables
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
    times_small,
    to_bits,
    widened,
    with_sign_of,
)
from graphcell.codegen.llvm.text import FunctionBuilder, Val
from graphcell.codegen.llvm.values import rounded
from graphcell.ops.gelus import TANH_CUBE, TANH_SLOPE

_ERF_LIMIT = {"float": 4.0, "double": 5.95}  # erf is 1 above these
_ROOT_HALF = 0.7071067811865476
_NORMAL_PEAK = 0.3989422804014327  # 1 / sqrt(2 pi)
# There 2 |u| is 127 (of double: 1023) times ln 2, where exp_within is 0; a bit further it would be no number.
_GATE_LIMIT = {"float": 10.0311, "double": 21.1527}
_GELU_LIMIT = 40.0  # the slope of gelu is 0 or 1 beyond, in double too
_NORMAL_LIMIT = 13.0  # beyond, neither a normal number's tail nor that times its distance counts
_HALF_ROOT_PI = "0.8862269254527580136490837416705725913987747280611935641069038949"
_ERFC_LIMIT = {"float": 10.1, "double": 27.3}  # erfc is 0 above these
_ERFC_NEAR = {"float": 0.85, "double": 1.0}  # erfc is 1 - erf below
_ERFINV_LIMIT = 5.0  # in -log(1 - x**2)
_ERFINV_FAR_LIMIT = 3.7  # in its root


@widened
def erf(b: FunctionBuilder, x: Val) -> Val:
    """Error function: an odd polynomial where |x| < 1, and 1 - 2**p(|x|) beyond. With AVX-512, and of floats with AVX2, a piecewise polynomial."""
    if uses_tables(b, x):
        return odd_function(b, x, tables_for(x).ERF)
    if uses_short_tables(b, x):
        return odd_function(b, x, tables.ERF_SHORT)
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
        return b.mul(x, b.fma(odd_function(b, x, tables_for(x).NORMAL), half, half))
    if x.type.kind == "float":
        power, tail = _normal_tail(b, x)
        return b.mul(x, _of_either_sign(b, x, b.mul(power, tail)))
    return b.mul(x, b.fma(erf(b, b.mul(x, b.const(_ROOT_HALF, x))), half, half))


@widened
def gelu_slope(b: FunctionBuilder, x: Val) -> Val:
    """The derivative of gelu: normal distribution function plus x times density; 0 at -inf, 1 at inf. The error is absolute, as that of gelu."""
    half = b.const(0.5, x)
    if uses_tables(b, x):
        return b.fma(odd_function(b, x, tables_for(x).GELU_SLOPE), half, half)
    if x.type.kind == "float":
        power, tail = _normal_tail(b, x)
        a = at_most(b, absolute(b, x), _NORMAL_LIMIT)
        rest = b.fma(a, b.const(-_NORMAL_PEAK, x), tail)
        return _of_either_sign(b, x, b.fma(power, rest, b.const(0.0, x)))  # not -0, where the power is 0
    a = at_least(b, at_most(b, x, _GELU_LIMIT), -_GELU_LIMIT)
    scaled = b.mul(a, b.const(_ROOT_HALF, x))
    density = b.mul(exp(b, b.neg(b.mul(scaled, scaled))), b.const(_NORMAL_PEAK, x))
    return b.fma(a, density, b.fma(erf(b, scaled), half, half))


@widened
def gelu_tanh(b: FunctionBuilder, x: Val) -> Val:
    """x times the logistic function of 2 u, where u is the argument of the tanh in gelu_tanh. The absolute error is that of 1 + tanh(u)."""
    if uses_tables(b, x):
        half = b.const(0.5, x)
        return b.mul(x, b.fma(odd_function(b, x, tables_for(x).GATE), half, half))
    return b.mul(x, _logistic_gate(b, x)[0])


@widened
def gelu_tanh_slope(b: FunctionBuilder, x: Val) -> Val:
    """Its derivative: the logistic function of 2 u plus x times its slope; 0 at -inf, 1 at inf. The error is absolute, as that of gelu_tanh."""
    if uses_tables(b, x):
        half = b.const(0.5, x)
        return b.fma(odd_function(b, x, tables_for(x).GATE_SLOPE), half, half)
    gate, limited, square, slope = _logistic_gate(b, x)
    inner = b.fma(square, b.const(3 * TANH_CUBE, x), b.const(TANH_SLOPE, x))
    return b.fma(b.mul(limited, inner), slope, gate)


def _logistic_gate(b: FunctionBuilder, x: Val) -> tuple[Val, Val, Val, Val]:
    """s(2u), x within limits beyond which that is 0 or 1, the square of the latter, and 2 s'(2u).

    With z = e**(-2|u|), s(-2|u|) is r = z / (1 + z), s(2|u|) is 1 - r and the slope of s, at both, r (1 - r): nothing cancels.
    """
    limit = _GATE_LIMIT[x.type.kind]
    limited = at_least(b, at_most(b, x, limit), -limit)
    square = b.mul(limited, limited)
    exponent = b.mul(absolute(b, limited), b.fma(square, b.const(-2 * TANH_CUBE, x), b.const(-2 * TANH_SLOPE, x)))
    z, one = exp_within(b, exponent), b.const(1.0, x)
    rest = b.div(z, b.add(z, one))
    w = b.sub(one, rest)
    gate = b.select(b.icmp("slt", to_bits(b, limited), b.const(0, to_bits(b, limited))), rest, w)
    return gate, limited, square, b.mul(b.mul(w, rest), b.const(2.0, x))


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


@widened
def erfc(b: FunctionBuilder, x: Val) -> Val:
    """1 - erf(x), accurate where it is small, down to denormals.

    Far out it is e**(-x**2) / |x| times a polynomial in (|x| - k) / (|x| + k); near zero 1 - erf(x). With AVX-512 it is e**(-x**2) times a
    piecewise polynomial, and 2 minus that for negative numbers.
    """
    kind, magnitude = x.type.kind, absolute(b, x)
    if uses_tables(b, x):
        segments = tables_for(x).ERFCX
        a = at_most(b, magnitude, segments.limit)
        return _of_either_side(b, x, times_power_of_minus_square(b, piecewise(b, a, segments), a))
    near = _erfc_near(b, x)
    far = _erfc_far(b, at_least(b, at_most(b, magnitude, _ERFC_LIMIT[kind]), _ERFC_NEAR[kind]))
    return b.select(b.fcmp("olt", magnitude, b.const(_ERFC_NEAR[kind], x)), near, _of_either_side(b, x, far))


def _of_either_side(b: FunctionBuilder, x: Val, complement: Val) -> Val:
    """1 - erf(x) from 1 - erf(|x|)."""
    return b.select(b.fcmp("olt", x, b.const(0.0, x)), b.sub(b.const(2.0, x), complement), complement)


def _erfc_near(b: FunctionBuilder, x: Val) -> Val:
    """1 - erf(x). Near 1, where that is small, it counts what rounding x**2 lost."""
    table, rest = ERF[x.type.kind], b.sub(b.const(1.0, x), x)
    square = b.mul(x, x)
    slope = polynomial(b, square, table[1:], plain=1)
    if x.type.kind == "double":
        rest = b.fma(b.mul(slope, b.neg(x)), b.fma(x, x, b.neg(square)), rest)
    return b.fma(b.neg(b.fma(slope, square, b.const(table[0], x))), x, rest)


def _erfc_far(b: FunctionBuilder, a: Val) -> Val:
    factor, factor_low = _scaled_erfc(b, a)
    square = b.mul(a, a)
    lost = b.fma(a, a, b.neg(square))
    rest, p, q = expm1_parts(b, b.neg(square), b.neg(lost))
    growth = b.fma(rest, factor, factor_low)
    y = b.add(factor, growth)
    y_low = b.sub(growth, b.sub(y, factor))
    inverse = b.div(b.const(1.0, a), a)
    inverse_low = b.mul(inverse, b.fma(b.neg(inverse), a, b.const(1.0, a)))
    quotient = b.fma(y, inverse, b.fma(y, inverse_low, b.mul(y_low, inverse)))
    return times_small(b, b.mul(quotient, p), q)


def _scaled_erfc(b: FunctionBuilder, a: Val) -> tuple[Val, Val]:
    """a * e**(a**2) * erfc(a) for a >= _ERFC_NEAR, and what its rounding lost.

    It is a polynomial in t = (a - k) / (a + k).
    """
    double = a.type.kind == "double"
    scale, table = (3.0, ERFCX_3["double"]) if double else (2.0, ERFCX_2["float"])
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


@widened
def erfinv(b: FunctionBuilder, x: Val) -> Val:
    """Inverse error function, infinite at -1 and 1, NaN beyond: x times a polynomial in w = -log(1 - x**2),
    or in its root where w is large (M. Giles, Approximating the erfinv function, GPU Computing Gems 2, 2010).
    """
    kind, a, one = x.type.kind, absolute(b, x), b.const(1.0, x)
    w, w_low = map(b.neg, log_and_rest(b, b.fma(b.neg(x), x, one), kind))
    root = b.unary("sqrt", w)
    lost = b.add(b.fma(b.neg(root), root, w), w_low)
    half_root, half_root_low = (b.const(part, x) for part in split(_HALF_ROOT_PI, kind, 2))
    ratio = polynomial(b, b.sub(w, b.const(2.5, x)), ERFINV[kind], plain=1)
    near = half_root, b.fma(ratio, w, b.fma(ratio, w_low, half_root_low))
    tail = _constant_and_rest(b, _root_minus(b, root, lost, 3.0), ERFINV_TAIL[kind])
    if kind == "double":
        is_far = b.fcmp("ogt", root, b.const(_ERFINV_FAR_LIMIT, x))
        tail = _either(b, is_far, _constant_and_rest(b, _root_minus(b, root, lost, 5.0), ERFINV_FAR[kind]), tail)
    constant, rest = _either(b, b.fcmp("ogt", w, b.const(_ERFINV_LIMIT, x)), tail, near)
    result = b.select(b.fcmp("oeq", a, one), infinity(x), b.fma(constant, a, b.mul(rest, a)))
    return b.select(b.fcmp("ogt", a, one), nan(x), with_sign_of(b, result, x))


def _constant_and_rest(b: FunctionBuilder, x: Val, coefficients: tuple[float, ...]) -> tuple[Val, Val]:
    """A polynomial as its constant and the rest, to which what rounding the constant loses belongs."""
    constant = rounded(coefficients[0], x.type.kind)
    rest = b.fma(polynomial(b, x, coefficients[1:], plain=1), x, b.const(coefficients[0] - constant, x))
    return b.const(constant, x), rest


def _either(b: FunctionBuilder, condition: Val, xs: tuple[Val, Val], ys: tuple[Val, Val]) -> tuple[Val, Val]:
    first, second = (b.select(condition, x, y) for x, y in zip(xs, ys, strict=True))
    return first, second


def _root_minus(b: FunctionBuilder, root: Val, lost: Val, centre: float) -> Val:
    """sqrt(root**2 + lost) - centre, which is root + lost / (2 root) - centre: a linear fit of 1 / root will do."""
    u = b.sub(root, b.const(centre, root))
    slope = b.fma(u, b.const(-0.5 / centre**2, root), b.const(0.5 / centre, root))
    return b.fma(lost, slope, u)
