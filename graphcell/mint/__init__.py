"""MindSpore's interface with PyTorch's names and defaults: `mint.sum(x, dim=1, keepdim=True)`. Functions that are the same are those of `ops`."""

from typing import TYPE_CHECKING  # noqa: I001  (names in lines, not in columns)

from graphcell.mint import nn, special
from graphcell.mint.functions import (
    add, all, allclose, amax, amin, any, bmm, cat, cdist, concat, empty, empty_like, floor_divide, full, gather, max, mean, meshgrid, min, ones, permute, prod,
    scatter, sqrt, sub, sum, zeros,
)  # fmt: skip
from graphcell.late import late as _late
from graphcell.ops import (
    abs, acos, acosh, arccos, arccosh, arcsin, arcsinh, arctan, arctanh, asin, asinh, atan, atanh, ceil, cos, cosh, cross, cumprod, divide, dstack,
    eq, erf, erfc, erfinv, exp, exp2, expm1, eye, flip, float_power, floor, gcd, ge, greater, greater_equal, gt, hstack, isclose, isfinite, isinf,
    isneginf, le, lerp, less, less_equal, log, log1p, logical_and, logical_not, logical_or, logical_xor, lt, masked_select, matmul, maximum, minimum,
    nan_to_num, ne, neg, negative, nonzero, not_equal, ones_like, ravel, reciprocal, round, rsqrt, searchsorted, sigmoid, sign, sin, sinc, sinh,
    square, tan, tanh, tile, triu, trunc, unique_consecutive, where, xlogy, zeros_like,
)  # fmt: skip

__all__ = [
    "abs", "acos", "acosh", "add", "all", "allclose", "amax", "amin", "any", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctanh", "asin",
    "asinh", "atan", "atanh", "bmm", "cat", "cdist", "ceil", "concat", "cos", "cosh", "cross", "cumprod", "divide", "dstack", "empty", "empty_like",
    "eq", "erf", "erfc", "erfinv", "exp", "exp2", "expm1", "eye", "flip", "float_power", "floor", "floor_divide", "full", "gather", "gcd", "ge",
    "greater", "greater_equal", "gt", "hstack", "isclose", "isfinite", "isinf", "isneginf", "le", "lerp", "less", "less_equal", "log", "log1p",
    "logical_and", "logical_not", "logical_or", "logical_xor", "lt", "masked_select", "matmul", "max", "maximum", "mean", "meshgrid", "min",
    "minimum", "nan_to_num", "ne", "neg", "negative", "nn", "nonzero", "not_equal", "ones", "ones_like", "optim", "permute", "prod", "ravel", "reciprocal",
    "round", "rsqrt", "scatter", "searchsorted", "sigmoid", "sign", "sin", "sinc", "sinh", "special", "sqrt", "square", "sub", "sum", "tan", "tanh",
    "tile", "triu", "trunc", "unique_consecutive", "where", "xlogy", "zeros", "zeros_like",
]

if TYPE_CHECKING:
    from graphcell.mint import optim as optim
else:
    __getattr__, __dir__ = _late(__name__, {})  # `optim` comes when it is asked for
