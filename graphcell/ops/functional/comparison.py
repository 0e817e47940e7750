"""Public functions with Bool results: comparisons, logic, tests of floats, bits. Operands are promoted and broadcast as in arithmetic."""

from __future__ import annotations

from typing import Any

from graphcell import dtype as dt
from graphcell.errors import DTypeError
from graphcell.ir.op import Op
from graphcell.ops import comparison as p
from graphcell.ops.dispatch import apply1
from graphcell.ops.functional.common import as_tensor, binary, cast, full_like, pair, zeros_like
from graphcell.ops.kernels import elementary
from graphcell.tensor import Tensor

__all__ = [
    "bitwise_and", "bitwise_left_shift", "bitwise_not", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "eq", "equal", "ge",
    "greater", "greater_equal", "gt", "isfinite", "isinf", "isnan", "isneginf", "isposinf", "le", "less", "less_equal", "logical_and",
    "logical_not", "logical_or", "logical_xor", "lt", "ne", "not_equal", "signbit", "tensor_ge", "tensor_gt", "tensor_le",
    "tensor_lt",
]  # fmt: skip


@elementary
def equal(input: Any, other: Any) -> Tensor:
    """input == other, elementwise; Bool."""
    return binary(p.Equal(), input, other)


@elementary
def not_equal(input: Any, other: Any) -> Tensor:
    """input != other, elementwise; Bool."""
    return binary(p.NotEqual(), input, other)


@elementary
def less(input: Any, other: Any) -> Tensor:
    """input < other, elementwise; Bool."""
    return binary(p.Less(), input, other)


@elementary
def less_equal(input: Any, other: Any) -> Tensor:
    """input <= other, elementwise; Bool."""
    return binary(p.LessEqual(), input, other)


@elementary
def greater(input: Any, other: Any) -> Tensor:
    """input > other, elementwise; Bool."""
    return binary(p.Greater(), input, other)


@elementary
def greater_equal(input: Any, other: Any) -> Tensor:
    """input >= other, elementwise; Bool."""
    return binary(p.GreaterEqual(), input, other)


eq, ne, lt, le, gt, ge = equal, not_equal, less, less_equal, greater, greater_equal
tensor_lt, tensor_le, tensor_gt, tensor_ge = less, less_equal, greater, greater_equal


def as_bool(x: Any, function: str) -> Tensor:
    """An operand of a logical function: x != 0."""
    return cast(as_tensor(x, "operand", function), dt.bool_)


@elementary
def logical_and(input: Any, other: Any) -> Tensor:
    """True where both are not 0."""
    return binary(p.BitwiseAnd(), as_bool(input, "logical_and"), as_bool(other, "logical_and"))


@elementary
def logical_or(input: Any, other: Any) -> Tensor:
    """True where one or both are not 0."""
    return binary(p.BitwiseOr(), as_bool(input, "logical_or"), as_bool(other, "logical_or"))


def logical_xor(input: Any, other: Any) -> Tensor:
    """True where one, but not both, is not 0."""
    return binary(p.BitwiseXor(), as_bool(input, "logical_xor"), as_bool(other, "logical_xor"))


@elementary
def logical_not(input: Any) -> Tensor:
    """True where input is 0."""
    return apply1(p.BitwiseNot(), as_bool(input, "logical_not"))


def _bitwise(op: Op, x: Any, y: Any) -> Tensor:
    a, b = pair(x, y, op.name)
    if a.dtype.is_float:
        raise DTypeError(f"{op.name}: operands must be Bool or integers, but are {_dtype_name(x)} and {_dtype_name(y)}")
    return apply1(op, a, b)


def _dtype_name(x: Any) -> str:
    return str(x.dtype) if isinstance(x, Tensor) else type(x).__name__


def bitwise_and(input: Any, other: Any) -> Tensor:
    """The bits set in both; Bool or integers.

    Raises:
        TypeError: for floats.
    """
    return _bitwise(p.BitwiseAnd(), input, other)


def bitwise_or(input: Any, other: Any) -> Tensor:
    """The bits set in either; Bool or integers.

    Raises:
        TypeError: for floats.
    """
    return _bitwise(p.BitwiseOr(), input, other)


def bitwise_xor(input: Any, other: Any) -> Tensor:
    """The bits set in one but not in both; Bool or integers.

    Raises:
        TypeError: for floats.
    """
    return _bitwise(p.BitwiseXor(), input, other)


def bitwise_not(input: Any) -> Tensor:
    """All bits flipped; logical not of Bool.

    Raises:
        TypeError: for floats.
    """
    return apply1(p.BitwiseNot(), as_tensor(input, "input", "bitwise_not"))


def bitwise_left_shift(input: Any, other: Any) -> Tensor:
    """input << other, integers; 0 where more bits are shifted than there are.

    Raises:
        TypeError: for floats or Bool.
    """
    return _bitwise(p.LeftShift(), input, other)


def bitwise_right_shift(input: Any, other: Any) -> Tensor:
    """input >> other, integers; the sign bit is repeated.

    Raises:
        TypeError: for floats or Bool.
    """
    return _bitwise(p.RightShift(), input, other)


def _float_test(op: Op, x: Any, otherwise: bool) -> Tensor:
    t = as_tensor(x, "input", op.name)
    return apply1(op, t) if t.dtype.is_float else full_like(t, otherwise, dt.bool_)


def isnan(input: Any) -> Tensor:
    """True where input is NaN."""
    return _float_test(p.IsNan(), input, False)


def isinf(input: Any) -> Tensor:
    """True where input is an infinity."""
    return _float_test(p.IsInf(), input, False)


def isfinite(input: Any) -> Tensor:
    """True where input is neither NaN nor an infinity."""
    return _float_test(p.IsFinite(), input, True)


def isposinf(input: Any) -> Tensor:
    """True where input is positive infinity."""
    return _float_test(p.IsInf(), input, False) & (as_tensor(input) > 0)


def isneginf(input: Any) -> Tensor:
    """True where input is negative infinity."""
    return _float_test(p.IsInf(), input, False) & (as_tensor(input) < 0)


def signbit(input: Any) -> Tensor:
    """True where the sign bit of input is set (also for -0.0)."""
    t = as_tensor(input, "input", "signbit")
    return apply1(p.SignBit(), t) if t.dtype.is_float else less(t, zeros_like(t))
