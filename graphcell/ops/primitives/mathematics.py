"""Primitive classes of mathematics, element by element, and of matrix products."""

from __future__ import annotations

from typing import Any

from graphcell import ops as F
from graphcell.errors import ShapeError
from graphcell.ops.automatic import uncast
from graphcell.ops.primitive import Configured, Plain
from graphcell.ops.primitives.checks import check_tensors

__all__ = [
    "ACos", "Abs", "AccumulateNV2", "Acosh", "Add", "AddN", "Asin", "Asinh", "Atan", "Atan2", "Atanh",
    "BatchMatMul", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Ceil", "Cos", "Cosh", "Div", "Equal", "Erf",
    "Erfc", "Exp", "Expm1", "Floor", "FloorDiv", "FloorMod", "Greater", "GreaterEqual", "Inv", "Invert",
    "IsFinite", "IsInf", "IsNan", "Less", "LessEqual", "Log", "Log1p", "LogicalAnd", "LogicalNot", "LogicalOr",
    "LogicalXor", "MatMul", "Maximum", "Minimum", "Mod", "Mul", "Neg", "NotEqual", "Pow", "RealDiv",
    "Reciprocal", "Round", "Rsqrt", "Sign", "Sin", "Sinh", "Sqrt", "Square", "Sub", "Tan", "Trunc",
    "TruncateDiv", "TruncateMod", "Xlogy",
]  # fmt: skip


# -- mathematics of one operand ------------------------------------------------------------------------------
class Abs(Plain):
    """|input|."""

    function = staticmethod(F.abs)


class ACos(Plain):
    """Arc cosine."""

    function = staticmethod(F.acos)


class Acosh(Plain):
    """Inverse hyperbolic cosine."""

    function = staticmethod(F.acosh)


class Asin(Plain):
    """Arc sine."""

    function = staticmethod(F.asin)


class Asinh(Plain):
    """Inverse hyperbolic sine."""

    function = staticmethod(F.asinh)


class Atan(Plain):
    """Arc tangent."""

    function = staticmethod(F.atan)


class Atanh(Plain):
    """Inverse hyperbolic tangent."""

    function = staticmethod(F.atanh)


class Ceil(Plain):
    """Rounded up."""

    function = staticmethod(F.ceil)


class Cos(Plain):
    """Cosine."""

    function = staticmethod(F.cos)


class Cosh(Plain):
    """Hyperbolic cosine."""

    function = staticmethod(F.cosh)


class Erf(Plain):
    """Error function."""

    function = staticmethod(F.erf)


class Erfc(Plain):
    """1 - erf."""

    function = staticmethod(F.erfc)


class Exp(Plain):
    """e ** input."""

    function = staticmethod(F.exp)


class Expm1(Plain):
    """e ** input - 1."""

    function = staticmethod(F.expm1)


class Floor(Plain):
    """Rounded down."""

    function = staticmethod(F.floor)


class Log(Plain):
    """Natural logarithm."""

    function = staticmethod(F.log)


class Log1p(Plain):
    """log(1 + input)."""

    function = staticmethod(F.log1p)


class Neg(Plain):
    """-input."""

    function = staticmethod(F.neg)


class Reciprocal(Plain):
    """1 / input."""

    function = staticmethod(F.reciprocal)


class Inv(Plain):
    """1 / input."""

    function = staticmethod(uncast(F.reciprocal))


class Rsqrt(Plain):
    """1 / sqrt(input)."""

    function = staticmethod(F.rsqrt)


class Sign(Plain):
    """-1, 0 or 1."""

    function = staticmethod(F.sign)


class Sin(Plain):
    """Sine."""

    function = staticmethod(F.sin)


class Sinh(Plain):
    """Hyperbolic sine."""

    function = staticmethod(F.sinh)


class Sqrt(Plain):
    """Square root."""

    function = staticmethod(F.sqrt)


class Square(Plain):
    """input²."""

    function = staticmethod(F.square)


class Tan(Plain):
    """Tangent."""

    function = staticmethod(F.tan)


class Trunc(Plain):
    """Rounded towards 0."""

    function = staticmethod(F.trunc)


class IsFinite(Plain):
    """Whether each element is finite."""

    function = staticmethod(F.isfinite)


class IsInf(Plain):
    """Whether each element is infinite."""

    function = staticmethod(F.isinf)


class IsNan(Plain):
    """Whether each element is NaN."""

    function = staticmethod(F.isnan)


class Invert(Plain):
    """Every bit flipped."""

    function = staticmethod(F.bitwise_not)


class LogicalNot(Plain):
    """not input."""

    function = staticmethod(F.logical_not)


# -- mathematics of two operands, which broadcast ------------------------------------------------------------
class Add(Plain):
    """input + other."""

    function = staticmethod(F.add)


class Sub(Plain):
    """input - other."""

    function = staticmethod(F.sub)


class Mul(Plain):
    """input * other."""

    function = staticmethod(F.mul)


class Div(Plain):
    """input / other."""

    function = staticmethod(F.div)


class RealDiv(Plain):
    """x / y."""

    function = staticmethod(F.div)


class FloorDiv(Plain):
    """input / other, rounded down."""

    function = staticmethod(F.floor_div)


class FloorMod(Plain):
    """Remainder with the sign of y."""

    function = staticmethod(F.floor_mod)


class Mod(Plain):
    """Remainder with the sign of x."""

    function = staticmethod(F.truncate_mod)


class TruncateDiv(Plain):
    """x / y, rounded towards 0."""

    function = staticmethod(F.truncate_div)


class TruncateMod(Plain):
    """Remainder with the sign of x."""

    function = staticmethod(F.truncate_mod)


class Pow(Plain):
    """input ** exponent."""

    function = staticmethod(F.pow)


class Maximum(Plain):
    """The larger."""

    function = staticmethod(F.maximum)


class Minimum(Plain):
    """The smaller."""

    function = staticmethod(F.minimum)


class Atan2(Plain):
    """Angle of the point (other, input)."""

    function = staticmethod(F.atan2)


class Xlogy(Plain):
    """input log(other), 0 where input is 0."""

    function = staticmethod(F.xlogy)


class Equal(Plain):
    """input == other."""

    function = staticmethod(F.equal)


class NotEqual(Plain):
    """input != other."""

    function = staticmethod(F.not_equal)


class Less(Plain):
    """input < other."""

    function = staticmethod(F.less)


class LessEqual(Plain):
    """input <= other."""

    function = staticmethod(F.less_equal)


class Greater(Plain):
    """input > other."""

    function = staticmethod(F.greater)


class GreaterEqual(Plain):
    """input >= other."""

    function = staticmethod(F.greater_equal)


class LogicalAnd(Plain):
    """x and y."""

    function = staticmethod(F.logical_and)


class LogicalOr(Plain):
    """x or y."""

    function = staticmethod(F.logical_or)


class LogicalXor(Plain):
    """x xor y."""

    function = staticmethod(F.logical_xor)


class BitwiseAnd(Plain):
    """x & y."""

    function = staticmethod(F.bitwise_and)


class BitwiseOr(Plain):
    """x | y."""

    function = staticmethod(F.bitwise_or)


class BitwiseXor(Plain):
    """x ^ y."""

    function = staticmethod(F.bitwise_xor)


class Round(Plain):
    """Rounded to `decimals` digits after the point, halves to even."""

    def __call__(self, input: Any, decimals: int = 0) -> Any:
        return F.round(input, decimals=decimals)


class AddN(Plain):
    """The sum of a tuple or list of Tensors."""

    function = staticmethod(F.addn)


class AccumulateNV2(Plain):
    """The sum of a tuple or list of Tensors."""

    function = staticmethod(F.addn)


class MatMul(Configured):
    """Product of two matrices, each transposed first if asked for."""

    def __init__(self, transpose_a: bool = False, transpose_b: bool = False):
        super().__init__(transpose_a=transpose_a, transpose_b=transpose_b)

    def __call__(self, input: Any, mat2: Any) -> Any:
        check_tensors("MatMul", input=input, mat2=mat2)
        if input.ndim != 2 or mat2.ndim != 2:
            raise ShapeError(f"MatMul: operands must have 2 dimensions, but have shapes {input.shape} and {mat2.shape}")
        return _product(self, input, mat2)


class BatchMatMul(Configured):
    """Products of the matrices in the last two dimensions, each transposed first if asked for."""

    def __init__(self, transpose_a: bool = False, transpose_b: bool = False):
        super().__init__(transpose_a=transpose_a, transpose_b=transpose_b)

    def __call__(self, x: Any, y: Any) -> Any:
        check_tensors("BatchMatMul", x=x, y=y)
        if x.ndim < 2 or y.ndim < 2:
            raise ShapeError(f"BatchMatMul: operands must have 2 dimensions at least, but have shapes {x.shape} and {y.shape}")
        return _product(self, x, y)


def _product(primitive: Any, x: Any, y: Any) -> Any:
    x = F.swapaxes(x, -1, -2) if primitive.transpose_a else x
    y = F.swapaxes(y, -1, -2) if primitive.transpose_b else y
    return F.matmul(x, y)
