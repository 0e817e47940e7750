"""Elementwise primitives of real functions: exponentials, logarithms, powers, roots, trigonometry, rounding, special functions.

Each takes one float dtype. `eval` computes in float32 at least and rounds once; `emit` asks the emitter for the vector function of the
same name (codegen/llvm/math.py). What costs many instructions is marked `fast = False`.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from graphcell import dtype as dt
from graphcell.ir.op import Array, frozen
from graphcell.ops import special
from graphcell.ops.base import Elementwise, Emitter, Val
from graphcell.ops.dispatch import apply1
from graphcell.ops.fallback import Polygamma

T = Any  # Tensor: this file stands below the operators that gradient rules use
Grads = tuple[Any, ...]


class Real(Elementwise):
    """A function of one real number. Subclasses give `function` (numpy) and `slope`."""

    takes = dt.FLOATS
    fast = False
    function: ClassVar[Any]
    at_least: ClassVar[type] = np.float32
    """The narrowest dtype in which `function` computes."""

    def eval(self, x: Array) -> Array:  # type: ignore[override]
        return special.widened(type(self).function, x, at_least=self.at_least)

    def slope(self, x: T, y: T) -> T:
        """The derivative at x, where the value is y."""
        raise NotImplementedError(f"{self.name}.slope")

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        return (cotangents[0] * self.slope(inputs[0], outputs[0]),)

    def emit(self, b: Emitter, x: Val) -> Val:
        return getattr(b, self.name)(x)


class Rounding(Real):
    """A step function: its gradient is 0."""

    fast = True

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        return (None,)


@frozen
class Exp(Real):
    """e ** x."""

    name = "exp"
    function = staticmethod(np.exp)

    def slope(self, x: T, y: T) -> T:
        return y


@frozen
class Exp2(Real):
    """2 ** x."""

    name = "exp2"
    function = staticmethod(np.exp2)

    def slope(self, x: T, y: T) -> T:
        return y * math.log(2.0)


@frozen
class Expm1(Real):
    """e ** x - 1, without cancellation near 0."""

    name = "expm1"
    function = staticmethod(np.expm1)

    def slope(self, x: T, y: T) -> T:
        return y + 1.0


@frozen
class Log(Real):
    """Natural logarithm."""

    name = "log"
    function = staticmethod(np.log)

    def slope(self, x: T, y: T) -> T:
        return 1.0 / x


@frozen
class Log1p(Real):
    """log(1 + x), without cancellation near 0."""

    name = "log1p"
    function = staticmethod(np.log1p)

    def slope(self, x: T, y: T) -> T:
        return 1.0 / (x + 1.0)


@frozen
class Log2(Real):
    """Logarithm to base 2."""

    name = "log2"
    function = staticmethod(np.log2)

    def slope(self, x: T, y: T) -> T:
        return (1.0 / math.log(2.0)) / x


@frozen
class Log10(Real):
    """Logarithm to base 10."""

    name = "log10"
    function = staticmethod(np.log10)

    def slope(self, x: T, y: T) -> T:
        return (1.0 / math.log(10.0)) / x


@frozen
class Sqrt(Real):
    """Square root."""

    fast = True
    name = "sqrt"
    function = staticmethod(np.sqrt)

    def slope(self, x: T, y: T) -> T:
        return 0.5 / y


@frozen
class Rsqrt(Real):
    """1 / sqrt(x)."""

    fast = True
    name = "rsqrt"

    @staticmethod
    def function(x: Array) -> Array:
        return 1 / np.sqrt(x)

    def slope(self, x: T, y: T) -> T:
        return y * y * y * -0.5


@frozen
class Tanh(Real):
    """Hyperbolic tangent."""

    name = "tanh"
    function = staticmethod(np.tanh)

    def slope(self, x: T, y: T) -> T:
        return 1.0 - y * y


@frozen
class Sigmoid(Real):
    """1 / (1 + exp(-x))."""

    name = "sigmoid"

    @staticmethod
    def function(x: Array) -> Array:
        tail = np.exp(-np.abs(x))
        return np.asarray(np.divide(np.where(x < 0, tail, 1), 1 + tail))

    def slope(self, x: T, y: T) -> T:
        return y * (1.0 - y)


@frozen
class Softplus(Real):
    """log(1 + exp(x))."""

    name = "softplus"

    @staticmethod
    def function(x: Array) -> Array:
        return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))

    def slope(self, x: T, y: T) -> T:
        return apply1(Sigmoid(), x)


@frozen
class TanhSoftplus(Real):
    """tanh(softplus(x)), the factor of x in mish: w / (w + 2) with w = e**x * (e**x + 2), which takes one exponential."""

    name = "tanh_softplus"

    @staticmethod
    def function(x: Array) -> Array:
        e = np.exp(np.minimum(x, 40))
        w = e * (e + 2)
        return np.asarray(w / (w + 2))

    def slope(self, x: T, y: T) -> T:
        return (1.0 - y * y) * apply1(Sigmoid(), x)


@frozen
class Erf(Real):
    """Error function."""

    name = "erf"
    eval_element_nanoseconds = 100.0
    function = staticmethod(special.erf)
    at_least = np.float64

    def slope(self, x: T, y: T) -> T:
        return apply1(Exp(), -(x * x)) * (2.0 / math.sqrt(math.pi))


@frozen
class Erfc(Real):
    """1 - erf(x), without cancellation for large x."""

    name = "erfc"
    eval_element_nanoseconds = 100.0
    function = staticmethod(special.erfc)
    at_least = np.float64

    def slope(self, x: T, y: T) -> T:
        return apply1(Exp(), -(x * x)) * (-2.0 / math.sqrt(math.pi))


@frozen
class Erfinv(Real):
    """The inverse of erf."""

    name = "erfinv"
    eval_element_nanoseconds = 600.0
    function = staticmethod(special.erfinv)
    at_least = np.float64

    def slope(self, x: T, y: T) -> T:
        return apply1(Exp(), y * y) * (0.5 * math.sqrt(math.pi))


@frozen
class Lgamma(Real):
    """log |gamma(x)|; infinite at 0, -1, -2, …"""

    name = "lgamma"
    eval_element_nanoseconds = 170.0
    function = staticmethod(special.lgamma)
    at_least = np.float64

    def slope(self, x: T, y: T) -> T:
        return apply1(Digamma(), x)


@frozen
class Digamma(Real):
    """The derivative of lgamma; NaN at -1, -2, …"""

    name = "digamma"
    eval_element_nanoseconds = 170.0
    function = staticmethod(special.digamma)
    at_least = np.float64

    def slope(self, x: T, y: T) -> T:
        return apply1(Polygamma(1), x)


@frozen
class Sin(Real):
    """Sine."""

    name = "sin"
    function = staticmethod(np.sin)

    def slope(self, x: T, y: T) -> T:
        return apply1(Cos(), x)


@frozen
class Cos(Real):
    """Cosine."""

    name = "cos"
    function = staticmethod(np.cos)

    def slope(self, x: T, y: T) -> T:
        return -apply1(Sin(), x)


@frozen
class Tan(Real):
    """Tangent."""

    name = "tan"
    function = staticmethod(np.tan)

    def slope(self, x: T, y: T) -> T:
        return 1.0 + y * y


@frozen
class Asin(Real):
    """Inverse sine; NaN outside of -1 to 1."""

    name = "asin"
    function = staticmethod(np.arcsin)

    def slope(self, x: T, y: T) -> T:
        return apply1(Rsqrt(), (1.0 - x) * (1.0 + x))


@frozen
class Acos(Real):
    """Inverse cosine; NaN outside of -1 to 1."""

    name = "acos"
    function = staticmethod(np.arccos)

    def slope(self, x: T, y: T) -> T:
        return -apply1(Rsqrt(), (1.0 - x) * (1.0 + x))


@frozen
class Atan(Real):
    """Inverse tangent."""

    name = "atan"
    function = staticmethod(np.arctan)

    def slope(self, x: T, y: T) -> T:
        return 1.0 / (1.0 + x * x)


@frozen
class Sinh(Real):
    """Hyperbolic sine."""

    name = "sinh"
    function = staticmethod(np.sinh)

    def slope(self, x: T, y: T) -> T:
        return apply1(Cosh(), x)


@frozen
class Cosh(Real):
    """Hyperbolic cosine."""

    name = "cosh"
    function = staticmethod(np.cosh)

    def slope(self, x: T, y: T) -> T:
        return apply1(Sinh(), x)


@frozen
class Asinh(Real):
    """Inverse hyperbolic sine."""

    name = "asinh"
    function = staticmethod(np.arcsinh)

    def slope(self, x: T, y: T) -> T:
        return apply1(Rsqrt(), 1.0 + x * x)


@frozen
class Acosh(Real):
    """Inverse hyperbolic cosine; NaN below 1."""

    name = "acosh"
    function = staticmethod(np.arccosh)

    def slope(self, x: T, y: T) -> T:
        return apply1(Rsqrt(), (x - 1.0) * (x + 1.0))


@frozen
class Atanh(Real):
    """Inverse hyperbolic tangent; NaN outside of -1 to 1."""

    name = "atanh"
    function = staticmethod(np.arctanh)

    def slope(self, x: T, y: T) -> T:
        return 1.0 / ((1.0 - x) * (1.0 + x))


@frozen
class Floor(Rounding):
    """The next integer below."""

    name = "floor"
    function = staticmethod(np.floor)

    def emit(self, b: Emitter, x: Val) -> Val:
        return b.unary("floor", x)


@frozen
class Ceil(Rounding):
    """The next integer above."""

    name = "ceil"
    function = staticmethod(np.ceil)

    def emit(self, b: Emitter, x: Val) -> Val:
        return b.unary("ceil", x)


@frozen
class Trunc(Rounding):
    """The next integer toward zero."""

    name = "trunc"
    function = staticmethod(np.trunc)

    def emit(self, b: Emitter, x: Val) -> Val:
        return b.unary("trunc", x)


@frozen
class Round(Rounding):
    """The nearest integer; halves to the even one."""

    name = "round"
    function = staticmethod(np.round)

    def emit(self, b: Emitter, x: Val) -> Val:
        return b.unary("roundeven", x)


@frozen
class Pow(Elementwise):
    """x ** y. Integers modulo 2**bits; to a negative integer power the reciprocal rounded toward zero (0 ** negative is 0)."""

    takes = dt.NUMBERS
    fast = False
    name = "pow"

    def eval(self, x: Array, y: Array) -> Array:  # type: ignore[override]
        with np.errstate(all="ignore"):
            if x.dtype.kind not in "iu":
                return np.power(x, y)
            power = np.power(x, np.maximum(y, 0))
            return power if x.dtype.kind == "u" else np.where(y < 0, _negative_power(x, y), power).astype(x.dtype)

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        from graphcell.ops.functional.common import ones_like, select, zeros_like

        x, y = inputs
        g, zero, one = cotangents[0], zeros_like(x), ones_like(x)
        slope = y * apply1(Pow(), x, select(y == zero, one, y - one))
        gx = g * select(y == zero, zero, slope)
        logarithm = apply1(Log(), select(x == zero, one, x))  # x ** y = 0 beside x = 0, whatever positive y is
        return gx, g * select(x == zero, zero, outputs[0] * logarithm)

    def emit(self, b: Emitter, x: Val, y: Val) -> Val:
        if b.dtypes[0].is_float:
            return b.pow(x, y)
        if b.dtypes[0].signed:
            return b.integer_pow(x, y)
        zero, one, top = b.const(0, x), b.const(1, x), b.const(1 << (x.type.bits - 1), x)
        power = b.integer_pow(x, b.and_(y, b.not_(top)))  # x ** top, modulo 2**bits, is 0 for even x and 1 for odd x
        vanishes = b.and_(b.icmp("ne", b.and_(y, top), zero), b.icmp("eq", b.and_(x, one), zero))
        return b.select(vanishes, zero, power)


def _negative_power(x: Array, y: Array) -> Array:
    sign = np.where(y % 2 == 0, 1, x)
    return np.where((x == 1) | (x == -1), sign, 0)


MOST_PRODUCTS = 16
"""Powers of whole numbers up to this are products."""


@frozen
class Power(Elementwise):
    """x ** exponent for a number known while compiling; small whole numbers are products, some halves products with a root."""

    exponent: float
    takes = dt.FLOATS
    fast = False
    name = "power"

    def eval(self, x: Array) -> Array:  # type: ignore[override]
        with np.errstate(all="ignore"):
            return np.asarray(np.power(x, np.asarray(self.exponent, x.dtype)))

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        from graphcell.ops.functional.arithmetic import pow

        return (cotangents[0] * (pow(inputs[0], self.exponent - 1.0) * self.exponent),)

    def emit(self, b: Emitter, x: Val) -> Val:
        return b.constant_pow(x, self.exponent)


@frozen
class Atan2(Elementwise):
    """The angle of the point (y, x), in (-pi, pi]; first operand y."""

    takes = dt.FLOATS
    fast = False
    name = "atan2"

    def eval(self, y: Array, x: Array) -> Array:  # type: ignore[override]
        return np.arctan2(y, x)

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        y, x = inputs
        scaled = cotangents[0] / (x * x + y * y)
        return scaled * x, -scaled * y

    def emit(self, b: Emitter, y: Val, x: Val) -> Val:
        return b.atan2(y, x)


@frozen
class Hypot(Elementwise):
    """sqrt(x**2 + y**2) without overflow on the way; the gradient at (0, 0) is 0."""

    takes = dt.FLOATS
    fast = False
    name = "hypot"

    def eval(self, x: Array, y: Array) -> Array:  # type: ignore[override]
        with np.errstate(all="ignore"):
            return np.hypot(x, y)

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        from graphcell.ops.functional.common import ones_like, select, zeros_like

        length = outputs[0]
        zero = zeros_like(length)
        scaled = cotangents[0] / select(length == zero, ones_like(length), length)
        return scaled * inputs[0], scaled * inputs[1]

    def emit(self, b: Emitter, x: Val, y: Val) -> Val:
        zero, one, infinity = b.const(0.0, x), b.const(1.0, x), b.const(float("inf"), x)
        a, c = b.unary("fabs", x), b.unary("fabs", y)
        long, short = b.binary("maximum", a, c), b.binary("minimum", a, c)
        ratio = b.div(short, b.select(b.fcmp("oeq", long, zero), one, long))
        length = b.mul(long, b.unary("sqrt", b.fma(ratio, ratio, one)))
        infinite = b.or_(b.fcmp("oeq", a, infinity), b.fcmp("oeq", c, infinity))
        return b.select(infinite, infinity, length)
