"""MindSpore's interface with PyTorch's names and defaults: `mint.sum(x, dim=1, keepdim=True)`. Functions that are the same are those of `ops`."""

from typing import TYPE_CHECKING  # noqa: I001  (names in lines, not in columns)

from graphcell.late import late as _late
from graphcell.mint import linalg, nn, special
from graphcell.mint.arithmetic import addcdiv, clone, equal, fix, frac, isnan, repeat_interleave
from graphcell.mint.choosing import argsort, index_add, index_select, scatter_add, sort, take, topk, unique
from graphcell.mint.creation import arange, full_like, linspace
from graphcell.mint.functions import (
    add, all, allclose, amax, amin, any, bmm, cat, cdist, concat, empty, empty_like, floor_divide, full, gather, max, mean, meshgrid, min, ones,
    permute, prod, scatter, sqrt, sub, sum, zeros,
)  # fmt: skip
from graphcell.mint.linalg import inv as inverse
from graphcell.mint.nn.functional import conv2d
from graphcell.mint.nn.activations import softmax_along as softmax
from graphcell.mint.products import baddbmm, mv, triangular_solve
from graphcell.mint.random import bernoulli, multinomial, normal, rand, rand_like, randint, randint_like, randn, randn_like, randperm
from graphcell.mint.reductions import (
    argmin, bincount, count_nonzero, cummax, cummin, cumsum, diff, histc, kthvalue, logsumexp, median, nansum, norm, std, std_mean, trace, var,
    var_mean,
)  # fmt: skip
from graphcell.mint.shapes import chunk, diag, flatten, narrow, select, split, squeeze, stack, transpose
from graphcell.ops import (
    abs, acos, acosh, addbmm, addmm, addmv, arccos, arccosh, arcsin, arcsinh, arctan, arctan2, arctanh, argmax, asin, asinh, atan, atan2, atanh,
    bitwise_and, bitwise_not, bitwise_or, bitwise_xor, broadcast_to, ceil, clamp, cos, cosh, cross, cumprod, div, divide, dot, dstack, einsum, eq,
    erf, erfc, erfinv, exp, exp2, expm1, eye, flip, float_power, floor, fmod, gcd, ge, greater, greater_equal, gt, hstack, imag, isclose,
    isfinite, isinf, isneginf, le, lerp, less, less_equal, log, log10, log1p, log2, logaddexp, logaddexp2, logical_and, logical_not, logical_or,
    logical_xor, lt, masked_select, matmul, maximum, minimum, mm, mul, nan_to_num, ne, neg, negative, nonzero, not_equal, ones_like, outer, pow,
    ravel, real, reciprocal, remainder, reshape, roll, round, rsqrt, searchsorted, sigmoid, sign, sin, sinc, sinh, square, swapaxes, t, tan, tanh,
    tile, tril, triu, trunc, unbind, unique_consecutive, unsqueeze, where, xlogy, zeros_like,
)  # fmt: skip

__all__ = [
    "abs", "acos", "acosh", "add", "addbmm", "addcdiv", "addmm", "addmv", "all", "allclose", "amax", "amin", "any", "arange", "arccos", "arccosh",
    "arcsin", "arcsinh", "arctan", "arctan2", "arctanh", "argmax", "argmin", "argsort", "asin", "asinh", "atan", "atan2", "atanh", "baddbmm",
    "bernoulli", "bincount", "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "bmm", "broadcast_to", "cat", "cdist", "ceil", "chunk",
    "clamp", "clone", "concat", "conv2d", "cos", "cosh", "count_nonzero", "cross", "cummax", "cummin", "cumprod", "cumsum", "diag", "diff", "div",
    "divide", "dot", "dstack", "einsum", "empty", "empty_like", "eq", "equal", "erf", "erfc", "erfinv", "exp", "exp2", "expm1", "eye", "fix",
    "flatten", "flip", "float_power", "floor", "floor_divide", "fmod", "frac", "full", "full_like", "gather", "gcd", "ge", "greater",
    "greater_equal", "gt", "histc", "hstack", "imag", "index_add", "index_select", "inverse", "isclose", "isfinite", "isinf", "isnan", "isneginf",
    "kthvalue", "le", "lerp", "less", "less_equal", "linalg", "linspace", "log", "log1p", "log2", "log10", "logaddexp", "logaddexp2",
    "logical_and", "logical_not", "logical_or", "logical_xor", "logsumexp", "lt", "masked_select", "matmul", "max", "maximum", "mean", "median",
    "meshgrid", "min", "minimum", "mm", "mul", "multinomial", "mv", "nan_to_num", "nansum", "narrow", "ne", "neg", "negative", "nn", "nonzero",
    "norm", "normal", "not_equal", "ones", "ones_like", "optim", "outer", "permute", "pow", "prod", "rand", "rand_like", "randint", "randint_like",
    "randn", "randn_like", "randperm", "ravel", "real", "reciprocal", "remainder", "repeat_interleave", "reshape", "roll", "round", "rsqrt",
    "scatter", "scatter_add", "searchsorted", "select", "sigmoid", "sign", "sin", "sinc", "sinh", "softmax", "sort", "special", "split", "sqrt",
    "square", "squeeze", "stack", "std", "std_mean", "sub", "sum", "swapaxes", "t", "take", "tan", "tanh", "tile", "topk", "trace", "transpose",
    "triangular_solve", "tril", "triu", "trunc", "unbind", "unique", "unique_consecutive", "unsqueeze", "var", "var_mean", "where", "xlogy",
    "zeros", "zeros_like",
]

if TYPE_CHECKING:
    from graphcell.mint import optim as optim
else:
    __getattr__, __dir__ = _late(__name__, {})  # `optim` comes when it is asked for
