"""Vector mathematics: every function takes a FunctionBuilder and typed operands, emits straight-line code,
and returns the result.

Enters: half, bfloat, float or double operands (one type a call), vectors of any number of lanes or scalars;
integers where a function's docstring says so. Leaves: a value of the same type. Half and bfloat compute in
float and are rounded once at the end. Refuses: other types and mixed types (`TypeError`).

With AVX-512 some functions of float look tables of sixteen entries up in a register (lookup, tables,
exponential_tables, power_tables), with AVX2 erf does so in eight; else they are longer polynomials. Either way every number of lanes
gives the same bits; the two ways differ by rounding. The largest errors found, in units in the last place,
at every 41st float of either sign, against double precision:

    tanh 1.07   erf 1.44   exp 0.99   exp2 0.99   log 1.44   log2 1.07   log10 1.07
    sigmoid 1.51   softplus 1.81   log_sigmoid 1.83   rsqrt 0.99   log1p 1.32   asinh 1.50   acosh 1.84   atanh 1.54

and for pow 1.16 at 63 million pairs of floats.

Accuracy: within 2 units in the last place for float and double over the whole range (2.8 for tanh but for that of float with AVX-512;
it takes half the time for that; 3.1 for tanh_softplus; 2.4 for inverses of powers that are known while compiling), denormal arguments and results
included; half and bfloat to their own rounding. Powers of whole numbers up to 16 are products, each factor adds up to half a unit. Below 0,
lgamma and digamma are reflected: their errors stay within an ulp (of double: two) of the terms that nearly cancel next to zeros. Special
values are exact: NaN stays NaN, infinities, signed zeros, overflow to inf and underflow to 0 are those of C. No fast-math flag is used; the only
contraction is that of explicit fused multiply-adds, so that every vector width gives the same bits, and every
processor with FMA too, but for the functions named above. Where a reduction of rare arguments is too long (sin, cos, tan of large numbers, fmod
with huge quotients) the code branches to a function in the same module that loops over the lanes; integer
powers loop over bits; lgamma and digamma jump over the reflection where no lane is negative; everything else is free of branches.

The functions live by subject: exponential, exponential_tables, hyperbolic, trigonometry, power, power_tables, special, gamma, arithmetic, philox;
their polynomials in coefficients.
"""

from __future__ import annotations

from graphcell.codegen.llvm.arithmetic import (
    ceil,
    floor,
    floor_div,
    floor_mod,
    fmod,
    integer_pow,
    isfinite,
    isinf,
    isnan,
    maximum,
    minimum,
    round,
    sign,
    trunc,
    trunc_div,
)
from graphcell.codegen.llvm.exponential import (
    exp,
    exp2,
    expm1,
    log,
    log1p,
    log1p_of_fraction,
    log2,
    log10,
    log_sigmoid,
    sigmoid,
    sigmoid_beside_softplus,
    sigmoid_beside_tanh_softplus,
    softplus,
    tanh_softplus,
)
from graphcell.codegen.llvm.gamma import digamma, lgamma
from graphcell.codegen.llvm.hyperbolic import acosh, asinh, atanh, cosh, sinh, tanh
from graphcell.codegen.llvm.philox import (
    normal_f32,
    normal_f64,
    normal_pair,
    philox,
    uniform_f32,
    uniform_f64,
)
from graphcell.codegen.llvm.power import cbrt, constant_pow, pow, rsqrt, sqrt
from graphcell.codegen.llvm.special import erf, erfc, erfinv, gelu, gelu_slope
from graphcell.codegen.llvm.trigonometry import acos, asin, atan, atan2, cos, sin, tan

__all__ = [
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "cbrt",
    "ceil",
    "constant_pow",
    "cos",
    "cosh",
    "digamma",
    "erf",
    "erfc",
    "erfinv",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "floor_div",
    "floor_mod",
    "fmod",
    "gelu",
    "gelu_slope",
    "integer_pow",
    "isfinite",
    "isinf",
    "isnan",
    "lgamma",
    "log",
    "log1p",
    "log1p_of_fraction",
    "log2",
    "log10",
    "log_sigmoid",
    "maximum",
    "minimum",
    "normal_f32",
    "normal_f64",
    "normal_pair",
    "philox",
    "pow",
    "round",
    "rsqrt",
    "sigmoid",
    "sigmoid_beside_softplus",
    "sigmoid_beside_tanh_softplus",
    "sign",
    "sin",
    "sinh",
    "softplus",
    "sqrt",
    "tan",
    "tanh",
    "tanh_softplus",
    "trunc",
    "trunc_div",
    "uniform_f32",
    "uniform_f64",
]
