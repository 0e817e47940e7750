"""The error function and its relatives, as straight-line vector code.

Enters: half, bfloat, float or double operands, vectors or scalars. Leaves: the result in the operand's type. See `math` for accuracy.
"""

from __future__ import annotations

from graphcell.codegen.llvm.coefficients import ERF, ERFCX_3, ERFCX_4, ERFINV, ERFINV_FAR, ERFINV_TAIL, EXP2_NARROW, LOG2_ERFC
from graphcell.codegen.llvm.exponential import log_with, scaled_exp
from graphcell.codegen.llvm.polynomials import (
    LN2,
    absolute,
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
    """1 - erf(x), accurate where it is small (down to denormals): e**(-x**2) times a polynomial in (|x| - k) / (|x| + k)."""
    a = at_most(b, absolute(b, x), _ERFC_LIMIT[precision])
    centre = b.const(4.0 if precision == "double" else 3.0, x)
    table = ERFCX_4 if precision == "double" else ERFCX_3
    t = b.div(b.sub(a, centre), b.add(a, centre))
    square = b.mul(a, a)
    lost = b.fma(a, a, b.neg(square))
    result = scaled_exp(b, b.neg(square), b.neg(lost), polynomial(b, t, table[precision]))
    return b.select(b.fcmp("olt", x, b.const(0.0, x)), b.sub(b.const(2.0, x), result), result)


@through_double
def erfinv(b: FunctionBuilder, x: Val, precision: str) -> Val:
    """Inverse error function, infinite at -1 and 1, NaN beyond: x times a polynomial in w = -log(1 - x**2), or in its root where w is
    large (M. Giles, Approximating the erfinv function, GPU Computing Gems 2, 2010)."""
    a, one = absolute(b, x), b.const(1.0, x)
    w = b.neg(log_with(b, b.fma(b.neg(x), x, one), precision))
    root = b.unary("sqrt", w)
    near = polynomial(b, b.sub(w, b.const(2.5, x)), ERFINV[precision])
    tail = polynomial(b, b.sub(root, b.const(3.0, x)), ERFINV_TAIL[precision])
    if precision == "double":
        far = polynomial(b, b.sub(root, b.const(5.0, x)), ERFINV_FAR[precision])
        tail = b.select(b.fcmp("ogt", root, b.const(_ERFINV_FAR_LIMIT, x)), far, tail)
    result = b.mul(b.select(b.fcmp("ogt", w, b.const(_ERFINV_LIMIT, x)), tail, near), x)
    result = b.select(b.fcmp("oeq", a, one), with_sign_of(b, infinity(x), x), result)
    return b.select(b.fcmp("ogt", a, one), nan(x), result)
