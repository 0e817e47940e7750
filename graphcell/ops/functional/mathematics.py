"""Public functions of real numbers: exponentials, logarithms, trigonometry, rounding, the gamma function's family.

Each takes a Tensor (TypeError otherwise) and keeps its float dtype and shape; integers and Bool become float32.
"""

from __future__ import annotations

import math
from typing import Any

from graphcell import dtype as dt
from graphcell.dtype import DType
from graphcell.errors import ArgumentTypeError, ArgumentValueError, DTypeError
from graphcell.ops import fallback
from graphcell.ops import mathematics as p
from graphcell.ops.automatic import listed
from graphcell.ops.comparison import IsInf
from graphcell.ops.dispatch import apply1
from graphcell.ops.functional.arithmetic import clamp
from graphcell.ops.functional.axes import tensor_of
from graphcell.ops.functional.common import binary, cast, common_dtype, ones_like, pair, select, zeros_like
from graphcell.ops.functional.comparison import isinf, isnan
from graphcell.ops.kernels import elementary
from graphcell.tensor import Tensor

__all__ = [
    "acos",
    "acosh",
    "arccos",
    "arccosh",
    "arcsin",
    "arcsinh",
    "arctan",
    "arctan2",
    "arctanh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "ceil",
    "cos",
    "cosh",
    "deg2rad",
    "digamma",
    "erf",
    "erfc",
    "erfinv",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "frac",
    "hypot",
    "lgamma",
    "log",
    "log1p",
    "log2",
    "log10",
    "logaddexp",
    "logaddexp2",
    "logit",
    "mvlgamma",
    "polygamma",
    "rad2deg",
    "round",
    "rsqrt",
    "sigmoid",
    "sin",
    "sinc",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
    "trunc",
    "xlogy",
]  # fmt: skip


def real(x: Any, function: str) -> Tensor:
    """A Tensor of floats: integers and Bool become float32.

    Raises:
        TypeError: x is no Tensor.
    """
    t = tensor_of(x, function)
    return t if t.dtype.is_float else cast(t, dt.float32)


@elementary
def exp(input: Any) -> Tensor:
    """e ** input. Integers and Bool become float32."""
    return apply1(p.Exp(), real(input, "exp"))


@elementary
def exp2(input: Any) -> Tensor:
    """2 ** input. Integers and Bool become float32."""
    return apply1(p.Exp2(), real(input, "exp2"))


@elementary
def expm1(input: Any) -> Tensor:
    """e ** input - 1, exact also near 0. Integers and Bool become float32."""
    return apply1(p.Expm1(), real(input, "expm1"))


@elementary
def log(input: Any) -> Tensor:
    """Natural logarithm; NaN below 0, -inf at 0. Integers and Bool become float32."""
    return apply1(p.Log(), real(input, "log"))


@elementary
def log1p(input: Any) -> Tensor:
    """log(1 + input), exact also near 0. Integers and Bool become float32."""
    return apply1(p.Log1p(), real(input, "log1p"))


@elementary
def log2(input: Any) -> Tensor:
    """Logarithm to base 2. Integers and Bool become float32."""
    return apply1(p.Log2(), real(input, "log2"))


@elementary
def log10(input: Any) -> Tensor:
    """Logarithm to base 10. Integers and Bool become float32."""
    return apply1(p.Log10(), real(input, "log10"))


@elementary
def sqrt(x: Any) -> Tensor:
    """Square root; NaN below 0. Integers and Bool become float32."""
    return apply1(p.Sqrt(), real(x, "sqrt"))


@elementary
def rsqrt(input: Any) -> Tensor:
    """1 / sqrt(input). Integers and Bool become float32."""
    return apply1(p.Rsqrt(), real(input, "rsqrt"))


@elementary
def tanh(input: Any) -> Tensor:
    """Hyperbolic tangent. Integers and Bool become float32."""
    return apply1(p.Tanh(), real(input, "tanh"))


@elementary
def sigmoid(input: Any) -> Tensor:
    """1 / (1 + exp(-input)). Integers and Bool become float32."""
    return apply1(p.Sigmoid(), real(input, "sigmoid"))


@elementary
def erf(input: Any) -> Tensor:
    """Error function. Integers and Bool become float32."""
    return apply1(p.Erf(), real(input, "erf"))


@elementary
def erfc(input: Any) -> Tensor:
    """1 - erf(input), exact also for large input. Integers and Bool become float32."""
    return apply1(p.Erfc(), real(input, "erfc"))


@listed
def erfinv(input: Any) -> Tensor:
    """The inverse of erf; infinities at -1 and 1, NaN outside. Integers and Bool become float32."""
    return apply1(p.Erfinv(), real(input, "erfinv"))


@elementary
def sin(input: Any) -> Tensor:
    """Sine of radians. Integers and Bool become float32."""
    return apply1(p.Sin(), real(input, "sin"))


@elementary
def cos(input: Any) -> Tensor:
    """Cosine of radians. Integers and Bool become float32."""
    return apply1(p.Cos(), real(input, "cos"))


@elementary
def tan(input: Any) -> Tensor:
    """Tangent of radians. Integers and Bool become float32."""
    return apply1(p.Tan(), real(input, "tan"))


@elementary
def asin(input: Any) -> Tensor:
    """Inverse sine in radians; NaN outside of -1 to 1. Integers and Bool become float32."""
    return apply1(p.Asin(), real(input, "asin"))


def arcsin(x: Any) -> Tensor:
    """The same as `asin`."""
    return asin(x)


@elementary
def acos(input: Any) -> Tensor:
    """Inverse cosine in radians; NaN outside of -1 to 1. Integers and Bool become float32."""
    return apply1(p.Acos(), real(input, "acos"))


@elementary
def atan(input: Any) -> Tensor:
    """Inverse tangent in radians. Integers and Bool become float32."""
    return apply1(p.Atan(), real(input, "atan"))


@elementary
def sinh(input: Any) -> Tensor:
    """Hyperbolic sine. Integers and Bool become float32."""
    return apply1(p.Sinh(), real(input, "sinh"))


@elementary
def cosh(input: Any) -> Tensor:
    """Hyperbolic cosine. Integers and Bool become float32."""
    return apply1(p.Cosh(), real(input, "cosh"))


@elementary
def asinh(input: Any) -> Tensor:
    """Inverse hyperbolic sine. Integers and Bool become float32."""
    return apply1(p.Asinh(), real(input, "asinh"))


@elementary
def acosh(input: Any) -> Tensor:
    """Inverse hyperbolic cosine; NaN below 1. Integers and Bool become float32."""
    return apply1(p.Acosh(), real(input, "acosh"))


@elementary
def atanh(input: Any) -> Tensor:
    """Inverse hyperbolic tangent; NaN outside of -1 to 1. Integers and Bool become float32."""
    return apply1(p.Atanh(), real(input, "atanh"))


def _rounded(op: p.Rounding, x: Any) -> Tensor:
    t = tensor_of(x, op.name)
    return apply1(op, t) if t.dtype.is_float else t


@elementary
def floor(input: Any) -> Tensor:
    """The next integer below, as a float; integers stay as they are."""
    return _rounded(p.Floor(), input)


@elementary
def ceil(input: Any) -> Tensor:
    """The next integer above, as a float; integers stay as they are."""
    return _rounded(p.Ceil(), input)


@elementary
def trunc(input: Any) -> Tensor:
    """The next integer toward zero, as a float; integers stay as they are."""
    return _rounded(p.Trunc(), input)


def round(input: Any, *, decimals: int = 0) -> Tensor:
    """The nearest multiple of 10 ** -decimals; halves go to the even one. Integers stay as they are for decimals >= 0.

    Raises:
        TypeError: input is no Tensor, or decimals no int.
    """
    if isinstance(decimals, bool) or not isinstance(decimals, int):
        raise ArgumentTypeError(f"round: decimals must be an int, but is {type(decimals).__name__}")
    x = tensor_of(input, "round")
    if decimals == 0 or (decimals > 0 and not x.dtype.is_float):
        return _rounded(p.Round(), x)
    scale = 10.0 ** abs(decimals)
    wide = x if x.dtype.is_float else cast(x, dt.float64)
    result = apply1(p.Round(), wide * scale) / scale if decimals > 0 else apply1(p.Round(), wide / scale) * scale
    return cast(result, x.dtype)


@elementary
def frac(x: Any) -> Tensor:
    """x - trunc(x)."""
    t = tensor_of(x, "frac")
    return t - apply1(p.Trunc(), t) if t.dtype.is_float else zeros_like(t)


@elementary
def atan2(input: Any, other: Any) -> Tensor:
    """The angle of the point (other, input) in radians, in (-pi, pi]; the quotient's quadrant is kept. Integers become float32."""
    return binary(p.Atan2(), input, other, _real_dtype(input, other, "atan2"))


@elementary
def hypot(input: Any, other: Any) -> Tensor:
    """sqrt(input**2 + other**2), without overflow on the way. Integers become float32."""
    return binary(p.Hypot(), input, other, _real_dtype(input, other, "hypot"))


def _real_dtype(x: Any, y: Any, function: str) -> DType:
    """The float dtype in which two operands meet; at least one must be a Tensor."""
    if not isinstance(x, Tensor) and not isinstance(y, Tensor):
        raise ArgumentTypeError(f"{function}: one operand at least must be a Tensor, but they are {type(x).__name__} and {type(y).__name__}")
    dtype = common_dtype(x, y, function)
    return dtype if dtype.is_float else dt.float32


def _log_add(x: Any, y: Any, function: str, base: float) -> Tensor:
    a, b = pair(tensor_of(x, function), tensor_of(y, function, "other"), function)
    if not a.dtype.is_float:
        raise DTypeError(f"{function}: operands must be floats, but are {x.dtype} and {y.dtype}")
    same_infinity = (a == b) & apply1(IsInf(), a)
    difference = select(same_infinity, zeros_like(a), a - b)
    scale = math.log(base)
    if scale == 1.0:
        return b + apply1(p.Softplus(), difference)
    return b + apply1(p.Softplus(), difference * scale) * (1.0 / scale)


@elementary
def logaddexp(input: Any, other: Any) -> Tensor:
    """log(exp(input) + exp(other)), without overflow on the way.

    Raises:
        TypeError: operands are no Tensors, or not floats.
    """
    return _log_add(input, other, "logaddexp", math.e)


def logaddexp2(input: Any, other: Any) -> Tensor:
    """log2(2 ** input + 2 ** other), without overflow on the way.

    Raises:
        TypeError: operands are no Tensors, or not floats.
    """
    return _log_add(input, other, "logaddexp2", 2.0)


@elementary
def xlogy(input: Any, other: Any) -> Tensor:
    """input * log(other), but 0 where input is 0 and other is no NaN. Integers become float32."""
    x, y = pair(input, other, "xlogy", _real_dtype(input, other, "xlogy"))
    zero = zeros_like(y)
    # Where the product is right by itself it stays, for its gradient: log(other), at 0 too.
    nothing = (x == zeros_like(x)) & ~isnan(y) & ((y <= zero) | isinf(y))
    return select(nothing, zeros_like(x), x * apply1(p.Log(), select(nothing, ones_like(y), y)))


def _float_only(x: Any, function: str) -> Tensor:
    t = tensor_of(x, function)
    if not t.dtype.is_float:
        raise DTypeError(f"{function}: the input must be a Tensor of floats, but is {t.dtype}")
    return t


def deg2rad(x: Any) -> Tensor:
    """Degrees to radians.

    Raises:
        TypeError: x is no Tensor of floats.
    """
    return _float_only(x, "deg2rad") * (math.pi / 180.0)


def rad2deg(x: Any) -> Tensor:
    """Radians to degrees.

    Raises:
        TypeError: x is no Tensor of floats.
    """
    return _float_only(x, "rad2deg") * (180.0 / math.pi)


def logit(input: Any, eps: float | None = None) -> Tensor:
    """log(input / (1 - input)); with `eps`, input is first brought between eps and 1 - eps.

    Raises:
        TypeError: input is no Tensor of floats.
    """
    x = _float_only(input, "logit")
    if eps is not None:
        x = clamp(x, eps, 1.0 - eps)
    return apply1(p.Log(), x / (1.0 - x))


def sinc(input: Any) -> Tensor:
    """sin(pi input) / (pi input), and 1 at 0. Integers become float32."""
    x = real(input, "sinc") * math.pi
    at_zero = x == zeros_like(x)
    safe = select(at_zero, ones_like(x), x)
    return select(at_zero, ones_like(x), apply1(p.Sin(), safe) / safe)


def lgamma(input: Any) -> Tensor:
    """log |gamma(input)|; infinite at 0, -1, -2, … Integers become float32."""
    return apply1(p.Lgamma(), real(input, "lgamma"))


def digamma(input: Any) -> Tensor:
    """The derivative of lgamma; NaN at -1, -2, … Integers become float32."""
    return apply1(p.Digamma(), real(input, "digamma"))


def polygamma(n: Any, input: Any) -> Tensor:
    """The derivative of digamma of order `n` (an int, or a Tensor of one integer known while compiling).

    Raises:
        TypeError: n is no integer. ValueError: n is negative.
    """
    order = int(n) if isinstance(n, Tensor) and n.dtype.is_integer else n
    if isinstance(order, bool) or not isinstance(order, int):
        raise ArgumentTypeError(f"polygamma: n must be an integer, but is {n!r}")
    if order < 0:
        raise ArgumentValueError(f"polygamma: n must not be negative, but is {order}")
    x = real(input, "polygamma")
    return apply1(fallback.Polygamma(order) if order else p.Digamma(), x)


def mvlgamma(input: Any, p: int) -> Tensor:
    """The logarithm of the multivariate gamma function of dimension p; the elements should be greater than (p - 1) / 2.

    Raises:
        TypeError: p is no int. ValueError: p is less than 1.
    """
    if isinstance(p, bool) or not isinstance(p, int):
        raise ArgumentTypeError(f"mvlgamma: p must be an int, but is {type(p).__name__}")
    if p < 1:
        raise ArgumentValueError(f"mvlgamma: p must be positive, but is {p}")
    x = _float_only(input, "mvlgamma")
    total = lgamma(x)
    for k in range(1, p):
        total = total + lgamma(x - 0.5 * k)
    return total + p * (p - 1) / 4.0 * math.log(math.pi)


arccos, arccosh, arcsinh, arctan, arctan2, arctanh = acos, acosh, asinh, atan, atan2, atanh
