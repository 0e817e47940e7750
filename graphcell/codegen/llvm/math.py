"""Vector mathematics: every function takes a FunctionBuilder and typed operands, emits straight-line code,
and returns the result.

Enters: half, bfloat, float or double operands (one type a call), vectors of any number of lanes or scalars;
integers where a function's docstring says so. Leaves: a value of the same type. Half and bfloat compute in
float and are rounded once at the end. Refuses: other types and mixed types (`TypeError`).

With AVX-512 some functions look tables of sixteen or eight entries up in registers (lookup, tables, double_tables,
exponential_tables, power_tables), with AVX2 erf and pow of floats do so in eight; else they are longer polynomials. Either way every number of lanes
gives the same bits; the two ways differ by rounding. The largest errors found, in units in the last place,
at every 41st float of either sign, against double precision:

    tanh 1.07   erf 1.44   exp 0.99   exp2 0.99   log 1.44   log2 1.07   log10 1.37
    sigmoid 1.51   softplus 1.50   log_sigmoid 1.50   rsqrt 0.99   log1p 1.50   asinh 1.49   acosh 1.49   atanh 1.43

of exp, log and what is made of them in double 1.75 at four million numbers each, of pow 1.3 at as many pairs, of erf 1.4 and erfc 1.6 at
some 400,000 numbers (with AVX-512); for pow 1.19 at 67 million pairs of floats, for erfc 1.57 at every fourth float beyond 2**-30 (1.89
at every one without AVX-512), for erfinv 1.87 at every one.

Accuracy: within 2 units in the last place for float and double over the whole range (2.8 for tanh but for that of float with AVX-512; it
takes half the time for that; 4 for tanh_softplus; 2.4 for a sigmoid beside it; 2.4 for inverses of powers that are known while compiling),
denormal arguments and results included; half and bfloat to their own rounding. Powers of whole numbers up to 16 are products, each factor
adds up to half a unit. Below 0, lgamma and digamma are reflected: their errors stay within an ulp (of double: two) of the terms that nearly
cancel next to zeros. Special values are exact: NaN stays NaN, infinities, signed zeros, overflow to inf and underflow to 0 are those of C.
No fast-math flag is used; the only contraction is that of explicit fused multiply-adds, so that every vector width gives the same bits, and
every processor with FMA too, but for the functions named above. Where a reduction of rare arguments is too long (sin, cos, tan of large
numbers, fmod with huge quotients) the code branches to a function in the same module that loops over the lanes; integer powers loop over
bits; lgamma and digamma jump over the reflection where no lane is negative; everything else is free of branches.

The functions live by subject: exponential, exponential_tables, hyperbolic, trigonometry, power, power_tables, special, gamma, arithmetic, philox;
their polynomials in coefficients.
"""

from __future__ import annotations

from graphcell.late import late

_ROOMS = {
    "arithmetic": [
        "ceil", "floor", "floor_div", "floor_mod", "fmod", "integer_pow", "isfinite", "isinf", "isnan", "maximum", "minimum", "round", "sign", "trunc",
        "trunc_div",
    ],
    "exponential": [
        "exp", "exp_of_negative", "exp2", "expm1", "log", "log1p", "log1p_of_fraction", "log2", "log10", "log_sigmoid", "sigmoid", "sigmoid_beside_softplus",
        "sigmoid_beside_tanh_softplus", "softplus", "tanh_softplus",
    ],
    "gamma": ["digamma", "lgamma"],
    "hyperbolic": ["acosh", "asinh", "atanh", "cosh", "sinh", "tanh"],
    "philox": ["normal_f32", "normal_f64", "normal_pair", "philox", "uniform_f32", "uniform_f64"],
    "power": ["cbrt", "constant_pow", "log_beside_power", "pow", "rsqrt", "sqrt"],
    "special": ["erf", "erfc", "erfinv", "gelu", "gelu_slope", "gelu_tanh", "gelu_tanh_slope"],
    "trigonometry": ["acos", "asin", "atan", "atan2", "cos", "sin", "tan"],
}  # fmt: skip
"""The functions of each subject, which is imported for the first of them."""
__all__ = [name for names in _ROOMS.values() for name in names]

__getattr__, __dir__ = late(__name__, _ROOMS, __package__)
