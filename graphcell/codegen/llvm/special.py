"""The error function and its relatives, as straight-line vector code.

Enters: half, bfloat, float or double operands, vectors or scalars. Leaves: the result in the operand's type. See `math` for accuracy.
"""

from __future__ import annotations

from graphcell.codegen.llvm.coefficients import ERF, ERFCX_2, ERFCX_3, ERFINV, ERFINV_FAR, ERFINV_TAIL, EXP2_NARROW, LOG2_ERFC
from graphcell.codegen.llvm.exponential import log_with, scaled_exp
from graphcell.codegen.llvm.polynomials import (
    LN2,
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
_HALF_ROOT_PI = 0.8862269254527580
_ERFC_LIMIT = {"wide": 10.1, "double": 27.3}  # erfc is 0 above these
_ERFINV_LIMIT = 5.0  # in -log(1 - x**2)
_ERFINV_FAR_LIMIT = 3.7  # in its root


@widened
def erf(b: FunctionBuilder, x: Val) -> Val:
    """Error function: an odd polynomial where |x| < 1, and 1 - 2**p(|x|) beyond."""
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


@through_double
def erfc(b: FunctionBuilder, x: Val, precision: str) -> Val:
    """1 - erf(x), accurate where it is small (down to denormals): e**(-x**2) / |x| times a polynomial in (|x| - k) / (|x| + k)."""
    magnitude, one = absolute(b, x), b.const(1.0, x)
    near = b.fma(b.neg(polynomial(b, b.mul(x, x), ERF[precision])), x, b.sub(one, x))
    a = at_least(b, at_most(b, magnitude, _ERFC_LIMIT[precision]), 1.0)
    centre = b.const(3.0 if precision == "double" else 2.0, x)
    t = b.div(b.sub(a, centre), b.add(a, centre))
    factor = polynomial(b, t, ERFCX_3[precision] if precision == "double" else ERFCX_2[precision], plain=2)
    square = b.mul(a, a)
    lost = b.fma(a, a, b.neg(square))
    far = b.div(scaled_exp(b, b.neg(square), b.neg(lost), factor), a)
    far = b.select(b.fcmp("olt", x, b.const(0.0, x)), b.sub(b.const(2.0, x), far), far)
    return b.select(b.fcmp("olt", magnitude, one), near, far)


@through_double
def erfinv(b: FunctionBuilder, x: Val, precision: str) -> Val:
    """Inverse error function, infinite at -1 and 1, NaN beyond: x times a polynomial in w = -log(1 - x**2), or in its root where w is
    large (M. Giles, Approximating the erfinv function, GPU Computing Gems 2, 2010)."""
    a, one = absolute(b, x), b.const(1.0, x)
    w = b.neg(log_with(b, b.fma(b.neg(x), x, one), precision))
    root = b.unary("sqrt", w)
    near = b.fma(polynomial(b, b.sub(w, b.const(2.5, x)), ERFINV[precision]), w, b.const(_HALF_ROOT_PI, x))
    tail = polynomial(b, b.sub(root, b.const(3.0, x)), ERFINV_TAIL[precision])
    if precision == "double":
        far = polynomial(b, b.sub(root, b.const(5.0, x)), ERFINV_FAR[precision])
        tail = b.select(b.fcmp("ogt", root, b.const(_ERFINV_FAR_LIMIT, x)), far, tail)
    result = b.mul(b.select(b.fcmp("ogt", w, b.const(_ERFINV_LIMIT, x)), tail, near), x)
    result = b.select(b.fcmp("oeq", a, one), with_sign_of(b, infinity(x), x), result)
    return b.select(b.fcmp("ogt", a, one), nan(x), result)
