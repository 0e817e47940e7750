"""Hyperbolic functions and their inverses, as straight-line vector code.

Enters: half, bfloat, float or double operands, vectors or scalars. Leaves: the result in the operand's type.
See `math` for accuracy.
"""

from __future__ import annotations

from graphcell.codegen.llvm import tables
from graphcell.codegen.llvm.coefficients import COSH, SINH
from graphcell.codegen.llvm.exponential import half_expm1_of_double, log1p_of_sum
from graphcell.codegen.llvm.lookup import odd_function, uses_float_tables
from graphcell.codegen.llvm.polynomials import (
    LN2,
    LOG2_E,
    absolute,
    at_most,
    format_of,
    infinity,
    nan,
    polynomial,
    scaled_by_low_bits,
    split,
    widened,
    with_sign_of,
)
from graphcell.codegen.llvm.text import FunctionBuilder, Val

# tanh is 1 above these.
_TANH_LIMIT = {"float": 10.0, "double": 20.0}
# sinh and cosh are inf above these.
_SINH_LIMIT = {"float": 89.5, "double": 710.6}
# Above these 1 + x**2 is x**2.
_LARGE = {"float": 2.0**30, "double": 2.0**60}


@widened
def tanh(b: FunctionBuilder, x: Val) -> Val:
    """Hyperbolic tangent, never beyond -1 and 1: t / (t + 1) with t = (e**(2|x|) - 1) / 2, and in float with AVX-512 a piecewise polynomial."""
    if uses_float_tables(b, x):
        return odd_function(b, x, tables.TANH)
    t = half_expm1_of_double(b, at_most(b, absolute(b, x), _TANH_LIMIT[format_of(x).kind]))
    return with_sign_of(b, b.div(t, b.add(t, b.const(1.0, t))), x)


def _scaled_exponentials(b: FunctionBuilder, magnitude: Val, rounding: float) -> tuple[Val, Val, Val, Val]:
    """c, s, p, q with cosh = p + p * c + q * s and sinh = q + q * c + p * s.

    With x = k ln2 + r: c and s are cosh(r) - 1 and sinh(r), p and q are cosh(k ln2) and sinh(k ln2), which
    are sums of powers of two. `rounding` is added to x / ln2 before it is rounded to k.
    """
    form = format_of(magnitude)
    high, low = split(LN2, form.kind, 2)
    magic = b.const(form.magic + form.bias - 1, magnitude)
    x = at_most(b, magnitude, _SINH_LIMIT[form.kind])
    shifted = b.add(b.fma(x, b.const(split(LOG2_E, form.kind, 1)[0], x), b.const(rounding, x)), magic)
    shifted = at_most(b, shifted, form.magic + 2 * form.bias)  # 2**(k - 1) must stay finite
    k = b.sub(shifted, magic)
    r = b.fma(k, b.const(-low, x), b.fma(k, b.const(-high, x), x))
    grown = scaled_by_low_bits(b, shifted)
    shrunk = scaled_by_low_bits(b, b.sub(magic, at_most(b, k, form.bias - 2.0)))
    z = b.mul(r, r)
    c = b.mul(polynomial(b, z, (0.5, *COSH[form.kind])), z)
    s = b.fma(b.mul(polynomial(b, z, SINH[form.kind]), z), r, r)
    return c, s, b.add(grown, shrunk), b.sub(grown, shrunk)


@widened
def sinh(b: FunctionBuilder, x: Val) -> Val:
    """Hyperbolic sine."""
    c, s, p, q = _scaled_exponentials(b, absolute(b, x), -0.4999)  # r >= 0: nothing cancels
    return with_sign_of(b, b.add(q, b.fma(q, c, b.mul(p, s))), x)


@widened
def cosh(b: FunctionBuilder, x: Val) -> Val:
    """Hyperbolic cosine."""
    c, s, p, q = _scaled_exponentials(b, absolute(b, x), 0.0)
    return b.add(p, b.fma(p, c, b.mul(q, s)))


@widened
def asinh(b: FunctionBuilder, x: Val) -> Val:
    """Inverse hyperbolic sine: log1p(a + a**2 / (1 + sqrt(1 + a**2))) with a = |x|, and log(2a) where a is
    large.
    """
    a, one = absolute(b, x), b.const(1.0, x)
    square = b.mul(a, a)
    root = b.unary("sqrt", b.add(square, one))
    return with_sign_of(b, _log1p_or_log_of_double(b, a, a, b.div(square, b.add(root, one))), x)


@widened
def acosh(b: FunctionBuilder, x: Val) -> Val:
    """Inverse hyperbolic cosine: log1p(sqrt(2t + t**2) + t) with t = x - 1; NaN below 1."""
    t = b.sub(x, b.const(1.0, x))
    root = b.unary("sqrt", b.fma(t, t, b.add(t, t)))
    result = _log1p_or_log_of_double(b, x, root, t)
    return b.select(b.fcmp("olt", x, b.const(1.0, x)), nan(x), result)


def _log1p_or_log_of_double(b: FunctionBuilder, a: Val, x: Val, y: Val) -> Val:
    """log(1 + x + y) for x >= y; log(2a) where a is so large that x or y may overflow."""
    large = b.fcmp("ogt", a, b.const(_LARGE[format_of(a).kind], a))
    total = b.add(x, y)
    low = b.select(large, b.const(0.0, a), b.sub(y, b.sub(total, x)))
    result = log1p_of_sum(b, b.select(large, a, total), low)
    return b.select(large, b.add(result, b.const(split(LN2, a.type.kind, 1)[0], a)), result)


@widened
def atanh(b: FunctionBuilder, x: Val) -> Val:
    """Inverse hyperbolic tangent: log1p(2a + 2a * a / (1 - a)) / 2 with a = |x|; infinite at -1 and 1, NaN
    beyond.
    """
    a = absolute(b, x)
    twice = b.add(a, a)
    quotient = b.div(a, b.sub(b.const(1.0, x), a))
    ratio = b.fma(twice, quotient, twice)
    lost = b.fma(twice, quotient, b.sub(twice, ratio))
    result = with_sign_of(b, b.mul(log1p_of_sum(b, ratio, lost), b.const(0.5, x)), x)
    result = b.select(b.fcmp("oeq", a, b.const(1.0, x)), with_sign_of(b, infinity(x), x), result)
    return b.select(b.fcmp("ogt", a, b.const(1.0, x)), nan(x), result)
