"""Public arithmetic functions. Operands are Tensors or numbers; they meet in one dtype and one shape (see common.py)."""

from __future__ import annotations

import math
from typing import Any

from graphcell import dtype as dt
from graphcell.dtype import DType
from graphcell.errors import ArgumentValueError, DTypeError, ShapeError
from graphcell.ops import arithmetic as p
from graphcell.ops import comparison as c
from graphcell.ops import fallback
from graphcell.ops import mathematics as m
from graphcell.ops.automatic import listed, uncast
from graphcell.ops.dispatch import apply1
from graphcell.ops.functional.axes import tensor_of, tensors_of
from graphcell.ops.functional.common import (
    NUMBER_TYPES,
    as_tensor,
    binary,
    cast,
    common_dtype,
    full_like,
    ones_like,
    pair,
    select,
    zeros_like,
)
from graphcell.ops.kernels import elementary
from graphcell.tensor import Tensor

__all__ = [
    "abs", "absolute", "accumulate_n", "add", "addcdiv", "addcmul", "addn", "angle", "augassign_add", "augassign_div", "augassign_floordiv",
    "augassign_mod", "augassign_mul", "augassign_sub", "bias_add", "clamp", "clip", "clip_by_value", "copysign", "div", "divide", "eps",
    "float_power", "floor_div", "floor_divide", "floor_mod", "fmax", "fmin", "fmod", "gcd", "heaviside", "inv", "invert", "lcm", "ldexp",
    "lerp", "maximum", "minimum", "mul", "multiply", "nan_to_num", "neg", "negative", "nextafter", "positive", "pow", "reciprocal",
    "remainder", "sgn", "sign", "square", "sub", "subtract", "tensor_add", "tensor_div", "tensor_floordiv", "tensor_mod", "tensor_mul",
    "tensor_pow", "tensor_sub", "true_divide", "truncate_div", "truncate_mod", "xdivy",
]  # fmt: skip


@elementary
def add(input: Any, other: Any) -> Tensor:
    """input + other; on Bool: logical or."""
    return binary(p.Add(), input, other)


@elementary
def sub(input: Any, other: Any) -> Tensor:
    """input - other; on Bool: exclusive or."""
    x, y = pair(input, other, "sub")
    return apply1(c.BitwiseXor() if x.dtype.is_bool else p.Sub(), x, y)


@elementary
def mul(input: Any, other: Any) -> Tensor:
    """input * other; on Bool: logical and."""
    return binary(p.Mul(), input, other)


@elementary
def div(input: Any, other: Any, *, rounding_mode: str | None = None) -> Tensor:
    """input / other.

    Args:
        rounding_mode: None for the true quotient (integers and Bool become float32), "floor" or "trunc" for a rounded one.

    Raises:
        ValueError: for another rounding mode.
    """
    if rounding_mode == "floor":
        return floor_div(input, other)
    if rounding_mode == "trunc":
        return truncate_div(input, other)
    if rounding_mode is not None:
        raise ArgumentValueError(f"div: rounding_mode must be None, 'floor' or 'trunc', but is {rounding_mode!r}")
    return true_divide(input, other)


def tensor_div(x: Any, y: Any) -> Tensor:
    """x / y; integers and Bool become float32."""
    return true_divide(x, y)


def true_divide(dividend: Any, divisor: Any) -> Tensor:
    """dividend / divisor; integers and Bool become float32."""
    return binary(p.Div(), dividend, divisor, _real(dividend, divisor, "div"))


def _real(x: Any, y: Any, function: str) -> DType:
    """The float dtype in which two operands meet."""
    x, y = operand(x, function), operand(y, function)
    dtype = common_dtype(x, y, function)
    return dtype if dtype.is_float else dt.float32


def operand(x: Any, function: str) -> Any:
    """x if it is a Tensor or a number, else x as a Tensor."""
    return x if isinstance(x, (Tensor, *NUMBER_TYPES)) else as_tensor(x, "operand", function)


def _on_integers(op: Any, x: Any, y: Any) -> Tensor:
    """A division with rounding; Bool operands are computed as int8 and the result is Bool again."""
    a, b = pair(x, y, op.name)
    if a.dtype.is_bool:
        return cast(apply1(op, cast(a, dt.int8), cast(b, dt.int8)), dt.bool_)
    return apply1(op, a, b)


@elementary
def floor_div(x: Any, y: Any) -> Tensor:
    """floor(x / y) in the operands' common dtype; by an integer zero: 0."""
    return _on_integers(p.FloorDiv(), x, y)


def truncate_div(x: Any, y: Any) -> Tensor:
    """x / y rounded toward zero, in the operands' common dtype; by an integer zero: 0."""
    return _on_integers(p.TruncDiv(), x, y)


@elementary
def floor_mod(x: Any, y: Any) -> Tensor:
    """The remainder with the sign of y, as Python's %; by an integer zero: 0.

    Raises:
        TypeError: if both operands are Bool.
    """
    return binary(p.FloorMod(), x, y)


def truncate_mod(x: Any, y: Any) -> Tensor:
    """The remainder with the sign of x, as C's fmod; by an integer zero: 0.

    Raises:
        TypeError: if both operands are Bool.
    """
    return binary(p.TruncMod(), x, y)


def floor_divide(input: Any, other: Any) -> Tensor:
    """`floor_div` under another name."""
    return floor_div(input, other)


def remainder(input: Any, other: Any) -> Tensor:
    """`floor_mod` under another name."""
    return floor_mod(input, other)


def fmod(input: Any, other: Any) -> Tensor:
    """`truncate_mod` under another name."""
    return truncate_mod(input, other)


@elementary
def neg(input: Any) -> Tensor:
    """-input.

    Raises:
        TypeError: input is no Tensor, or Bool.
    """
    return apply1(p.Neg(), tensor_of(input, "neg"))


@elementary
def abs(input: Any) -> Tensor:
    """|input|; Bool stays as it is."""
    x = tensor_of(input, "abs")
    return x if x.dtype.is_bool else apply1(p.Abs(), x)


@elementary
def sign(input: Any) -> Tensor:
    """-1, 0 or 1 by the sign of input; 0 for NaN."""
    x = tensor_of(input, "sign")
    return x if x.dtype.is_bool else apply1(p.Sign(), x)


@elementary
def square(input: Any) -> Tensor:
    """input * input."""
    x = tensor_of(input, "square")
    return apply1(p.Mul(), x, x)


def positive(input: Any) -> Tensor:
    """input itself."""
    return tensor_of(input, "positive")


@elementary
def reciprocal(input: Any) -> Tensor:
    """1 / input; integers and Bool become float32."""
    return true_divide(1, tensor_of(input, "reciprocal"))


@uncast
def inv(x: Any) -> Tensor:
    """1 / x in the dtype of x; for integers rounded toward zero (1 / 0 is 0)."""
    t = tensor_of(x, "inv")
    return reciprocal(t) if t.dtype.is_float else truncate_div(1, t)


def invert(x: Any) -> Tensor:
    """All bits of integers flipped.

    Raises:
        TypeError: x is no Tensor of integers.
    """
    t = tensor_of(x, "invert")
    if not t.dtype.is_integer:
        raise DTypeError(f"invert: the input must be a Tensor of integers, but is {t.dtype}")
    return apply1(c.BitwiseNot(), t)


@elementary
def maximum(input: Any, other: Any) -> Tensor:
    """The larger of the two, NaN if either is. Equal operands share the gradient."""
    return binary(p.Maximum(), input, other)


@elementary
def minimum(input: Any, other: Any) -> Tensor:
    """The smaller of the two, NaN if either is. Equal operands share the gradient."""
    return binary(p.Minimum(), input, other)


def _ignoring_nan(op: Any, x: Any, y: Any) -> Tensor:
    a, b = pair(x, y, op.name)
    if not a.dtype.is_float:
        return apply1(op, a, b)
    return select(apply1(c.IsNan(), a), b, select(apply1(c.IsNan(), b), a, apply1(op, a, b)))


def fmax(input: Any, other: Any) -> Tensor:
    """The larger of the two; a NaN gives way to the other operand."""
    return _ignoring_nan(p.Maximum(), input, other)


def fmin(input: Any, other: Any) -> Tensor:
    """The smaller of the two; a NaN gives way to the other operand."""
    return _ignoring_nan(p.Minimum(), input, other)


@elementary
def pow(input: Any, exponent: Any) -> Tensor:
    """input ** exponent.

    A number as exponent of a float Tensor is known while compiling: 2 becomes a product, 0.5 a square root.

    Raises:
        TypeError: if both operands are Bool.
    """
    if isinstance(input, Tensor) and input.dtype.is_float and isinstance(exponent, NUMBER_TYPES):
        return _power(input, float(exponent))
    return binary(m.Pow(), input, exponent)


def _power(x: Tensor, exponent: float) -> Tensor:
    if exponent == 0:
        return ones_like(x)
    if exponent == 1:
        return positive(x)
    if exponent == 2:
        return square(x)
    if exponent == 0.5:
        return apply1(m.Sqrt(), x)
    if exponent == -1:
        return reciprocal(x)
    return apply1(m.Power(exponent), x)


def float_power(input: Any, exponent: Any) -> Tensor:
    """input ** exponent, computed and given in float64."""
    return pow(cast(input, dt.float64), cast(exponent, dt.float64) if isinstance(exponent, Tensor) else exponent)


@elementary
def clamp(input: Any, min: Any = None, max: Any = None) -> Tensor:
    """input, but `min` where it is less and `max` where it is greater; NaN stays. Where min > max the result is max.

    Args:
        min, max: a number, a Tensor that broadcasts with input, or None for no bound.

    Raises:
        ValueError: neither bound is given.
    """
    if min is None and max is None:
        raise ArgumentValueError("clamp: at least one of min and max must be given")
    x = tensor_of(input, "clamp")
    if min is not None:
        value, low = pair(x, min, "clamp")  # extrema of integers tell that an index is inside; of floats they take NaN from a bound, too
        x = maximum(value, low) if value.dtype.is_integer else select(value < low, low, value)
    if max is not None:
        value, high = pair(x, max, "clamp")
        x = minimum(value, high) if value.dtype.is_integer else select(value > high, high, value)
    return x


def clip_by_value(x: Any, clip_value_min: Any = None, clip_value_max: Any = None) -> Any:
    """See `clamp`; of a tuple or list of Tensors each by itself, which gives a tuple."""
    if isinstance(x, (tuple, list)):
        return tuple([clip_by_value(t, clip_value_min, clip_value_max) for t in x])
    return clamp(x, clip_value_min, clip_value_max)


@elementary
def addcmul(input: Any, tensor1: Any, tensor2: Any, value: Any = 1) -> Tensor:
    """input + value * tensor1 * tensor2."""
    product = mul(tensor_of(tensor1, "addcmul", "tensor1"), tensor_of(tensor2, "addcmul", "tensor2"))
    return add(tensor_of(input, "addcmul"), mul(product, value))


@elementary
def addcdiv(input: Any, tensor1: Any, tensor2: Any, value: Any = 1) -> Tensor:
    """input + value * tensor1 / tensor2."""
    quotient = true_divide(tensor_of(tensor1, "addcdiv", "tensor1"), tensor_of(tensor2, "addcdiv", "tensor2"))
    return add(tensor_of(input, "addcdiv"), mul(quotient, value))


@elementary
def lerp(input: Any, end: Any, weight: Any) -> Tensor:
    """input + weight * (end - input); weight is a number or a Tensor.

    Raises:
        TypeError: input or end is no Tensor of floats.
    """
    a, b = tensor_of(input, "lerp"), tensor_of(end, "lerp", "end")
    if not (a.dtype.is_float and b.dtype.is_float):
        raise DTypeError(f"lerp: input and end must be Tensors of floats, but are {a.dtype} and {b.dtype}")
    return add(a, mul(weight, b - a))


def addn(x: Any) -> Tensor:
    """The sum of a tuple or list of Tensors of one shape.

    Raises:
        TypeError: x is no tuple or list of Tensors. ValueError: shapes differ, or there is none.
    """
    terms = tensors_of(x, "addn", "x")
    if any(t.shape != terms[0].shape for t in terms):
        raise ShapeError(f"addn: shapes differ, {', '.join(str(t.shape) for t in terms)}")
    total = terms[0]
    for t in terms[1:]:
        total = add(total, t)
    return total


def heaviside(input: Any, values: Any) -> Tensor:
    """0 where input is negative, 1 where positive, `values` where 0; NaN stays."""
    x, y = pair(input, values, "heaviside")
    zero, one = zeros_like(x), ones_like(x)
    step = select(x == zero, y, select(x > zero, one, zero))
    return select(apply1(c.IsNan(), x), x, step) if x.dtype.is_float else step


def copysign(x: Any, other: Any) -> Tensor:
    """|x| with the sign of `other` (the sign of -0.0 counts), in the dtype of x; integers become float32."""
    a, b = pair(x, other, "copysign", _real(x, x, "copysign"))
    size = apply1(p.Abs(), a)
    return select(apply1(c.SignBit(), b), neg(size), size)


def ldexp(x: Any, other: Any) -> Tensor:
    """x * 2 ** other. Integers become float32."""
    a, b = pair(x, other, "ldexp", _real(x, other, "ldexp"))
    return a * apply1(m.Exp2(), b)


def nan_to_num(input: Any, nan: float | None = None, posinf: float | None = None, neginf: float | None = None) -> Tensor:
    """NaN becomes `nan` (default 0), infinities `posinf` and `neginf` (default: the dtype's limits). Integers stay as they are."""
    x = tensor_of(input, "nan_to_num")
    if not x.dtype.is_float:
        return x
    limits = dt.finfo(x.dtype)
    infinite = apply1(c.IsInf(), x)
    low = float(limits.min) if neginf is None else float(neginf)
    high = float(limits.max) if posinf is None else float(posinf)
    bounded = select(infinite, select(x > zeros_like(x), full_like(x, high), full_like(x, low)), x)
    return select(apply1(c.IsNan(), x), full_like(x, 0.0 if nan is None else float(nan)), bounded)


def xdivy(x: Any, y: Any) -> Tensor:
    """x / y, but 0 where x is 0. Integers become float32."""
    a, b = pair(x, y, "xdivy", _real(x, y, "xdivy"))
    nothing = a == zeros_like(a)
    return select(nothing, zeros_like(a), a / select(nothing, ones_like(b), b))


def subtract(input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    """input - alpha * other."""
    return sub(input, other if alpha == 1 else mul(other, alpha))


def gcd(input: Any, other: Any) -> Tensor:
    """The greatest common divisor of integers.

    Raises:
        TypeError: for floats or Bool.
    """
    return binary(fallback.Gcd(), input, other)


def lcm(input: Any, other: Any) -> Tensor:
    """The least common multiple of integers, never negative.

    Raises:
        TypeError: for floats or Bool.
    """
    x, y = pair(input, other, "lcm")
    return abs(truncate_div(x, apply1(fallback.Gcd(), x, y)) * y)


def nextafter(input: Any, other: Any) -> Tensor:
    """The float next to input on the way to other.

    Raises:
        TypeError: for integers or Bool.
    """
    return binary(fallback.NextAfter(), input, other)


@listed
def bias_add(input_x: Any, bias: Any) -> Tensor:
    """input_x, of shape (N, C, …) and 2 to 5 dimensions, plus bias, of shape (C,), of one dtype.

    Raises:
        TypeError: no Tensors, or different dtypes. ValueError: shapes do not fit.
    """
    x, b = tensor_of(input_x, "bias_add", "input_x"), tensor_of(bias, "bias_add", "bias")
    if x.dtype is not b.dtype:
        raise DTypeError(f"bias_add: input_x and bias must have one dtype, but have {x.dtype} and {b.dtype}")
    if not 2 <= x.ndim <= 5 or b.shape != x.shape[1:2]:
        raise ShapeError(f"bias_add: input_x must have shape (N, C, …) and bias (C,), but they have {x.shape} and {b.shape}")
    return add(x, b if x.ndim == 2 else b.reshape((*b.shape, *(1,) * (x.ndim - 2))))


def angle(input: Any) -> Tensor:
    """The argument of real numbers: pi where input is negative, else 0; NaN stays. Integers become float32."""
    x = tensor_of(input, "angle")
    t = x if x.dtype.is_float else cast(x, dt.float32)
    turned = select(t < zeros_like(t), full_like(t, math.pi), zeros_like(t))
    return select(apply1(c.IsNan(), t), t, turned)


def eps(x: Any) -> Tensor:
    """The distance from 1 to the next number of the dtype of x, in every element.

    Raises:
        TypeError: x is no Tensor of floats.
    """
    t = tensor_of(x, "eps")
    if not t.dtype.is_float:
        raise DTypeError(f"eps: the input must be a Tensor of floats, but is {t.dtype}")
    return full_like(t, float(dt.finfo(t.dtype).eps))


absolute, negative, multiply, clip = abs, neg, mul, clamp
divide, sgn, accumulate_n = div, sign, addn
tensor_add, tensor_sub, tensor_mul, tensor_floordiv, tensor_mod, tensor_pow = add, sub, mul, floor_divide, floor_mod, pow
augassign_add, augassign_sub, augassign_mul, augassign_div, augassign_floordiv, augassign_mod = add, sub, mul, div, floor_div, floor_mod
