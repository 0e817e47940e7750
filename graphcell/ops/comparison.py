"""Elementwise primitives with Bool results (comparisons, tests of floats) and on Bool or integer bits. None has a gradient."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from graphcell import dtype as dt
from graphcell.dtype import DType
from graphcell.ir.op import Array, frozen
from graphcell.ops.base import Elementwise, Emitter, Val

Grads = tuple[Any, ...]
_BITS = (dt.bool_, *dt.INTEGERS)


class Discrete(Elementwise):
    """An op whose result does not vary smoothly: no gradient flows to its operands."""

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        return (None,) * len(inputs)


class Comparison(Discrete):
    """Two operands of one dtype to Bool. NaN compares unequal to everything, False orders before True."""

    predicate: ClassVar[str] = ""
    """eq, ne, lt, le, gt or ge."""
    rounds = True

    def result_dtype(self, *dtypes: DType) -> DType:
        Elementwise.result_dtype(self, *dtypes)
        return dt.bool_

    def emit(self, b: Emitter, x: Val, y: Val) -> Val:
        dtype = b.dtypes[0]
        if dtype.is_float:
            return b.fcmp(("u" if self.predicate == "ne" else "o") + self.predicate, x, y)
        sign = "" if self.predicate in ("eq", "ne") else "s" if dtype.signed else "u"
        return b.icmp(sign + self.predicate, x, y)


@frozen
class Equal(Comparison):
    """x == y."""

    name = "equal"
    predicate = "eq"

    def eval(self, x: Array, y: Array) -> Array:  # type: ignore[override]
        return np.equal(x, y)


@frozen
class NotEqual(Comparison):
    """x != y."""

    name = "not_equal"
    predicate = "ne"

    def eval(self, x: Array, y: Array) -> Array:  # type: ignore[override]
        return np.not_equal(x, y)


@frozen
class Less(Comparison):
    """x < y."""

    name = "less"
    predicate = "lt"

    def eval(self, x: Array, y: Array) -> Array:  # type: ignore[override]
        return np.less(x, y)


@frozen
class LessEqual(Comparison):
    """x <= y."""

    name = "less_equal"
    predicate = "le"

    def eval(self, x: Array, y: Array) -> Array:  # type: ignore[override]
        return np.less_equal(x, y)


@frozen
class Greater(Comparison):
    """x > y."""

    name = "greater"
    predicate = "gt"

    def eval(self, x: Array, y: Array) -> Array:  # type: ignore[override]
        return np.greater(x, y)


@frozen
class GreaterEqual(Comparison):
    """x >= y."""

    name = "greater_equal"
    predicate = "ge"

    def eval(self, x: Array, y: Array) -> Array:  # type: ignore[override]
        return np.greater_equal(x, y)


@frozen
class BitwiseAnd(Discrete):
    """The bits set in both; on Bool: logical and."""

    takes = _BITS
    name = "bitwise_and"

    def eval(self, x: Array, y: Array) -> Array:  # type: ignore[override]
        return np.bitwise_and(x, y)

    def emit(self, b: Emitter, x: Val, y: Val) -> Val:
        return b.and_(x, y)


@frozen
class BitwiseOr(Discrete):
    """The bits set in either; on Bool: logical or."""

    takes = _BITS
    name = "bitwise_or"

    def eval(self, x: Array, y: Array) -> Array:  # type: ignore[override]
        return np.bitwise_or(x, y)

    def emit(self, b: Emitter, x: Val, y: Val) -> Val:
        return b.or_(x, y)


@frozen
class BitwiseXor(Discrete):
    """The bits set in one but not in both; on Bool: logical exclusive or."""

    takes = _BITS
    name = "bitwise_xor"

    def eval(self, x: Array, y: Array) -> Array:  # type: ignore[override]
        return np.bitwise_xor(x, y)

    def emit(self, b: Emitter, x: Val, y: Val) -> Val:
        return b.xor(x, y)


@frozen
class BitwiseNot(Discrete):
    """All bits flipped; on Bool: logical not."""

    takes = _BITS
    name = "bitwise_not"

    def eval(self, x: Array) -> Array:  # type: ignore[override]
        return np.invert(x)

    def emit(self, b: Emitter, x: Val) -> Val:
        return b.not_(x)


@frozen
class LeftShift(Discrete):
    """x shifted left by y bits; 0 where y is negative or not less than the number of bits."""

    takes = dt.INTEGERS
    name = "left_shift"

    def eval(self, x: Array, y: Array) -> Array:  # type: ignore[override]
        bits = x.dtype.itemsize * 8
        inside = (y >= 0) & (y < bits)
        shift = np.where(inside, y, 0).astype(x.dtype)
        return np.where(inside, np.left_shift(x, shift), 0).astype(x.dtype)

    def emit(self, b: Emitter, x: Val, y: Val) -> Val:
        zero = b.const(0, x)
        inside = b.icmp("ult", y, b.const(x.type.bits, x))
        return b.select(inside, b.shl(x, b.select(inside, y, zero)), zero)


@frozen
class RightShift(Discrete):
    """x shifted right by y bits, the sign repeated; for y negative or not less than the number of bits, only the sign is left."""

    takes = dt.INTEGERS
    name = "right_shift"

    def eval(self, x: Array, y: Array) -> Array:  # type: ignore[override]
        bits = x.dtype.itemsize * 8
        shift = np.where((y >= 0) & (y < bits), y, bits - 1).astype(x.dtype)
        shifted = np.right_shift(x, shift)
        if x.dtype.kind == "u":
            shifted = np.where(y < bits, shifted, 0)
        return np.asarray(shifted).astype(x.dtype)

    def emit(self, b: Emitter, x: Val, y: Val) -> Val:
        bits, signed = x.type.bits, b.dtypes[0].signed
        inside = b.icmp("ult", y, b.const(bits, x))
        shifted = b.shr(x, b.select(inside, y, b.const(bits - 1, x)), signed=signed)
        return shifted if signed else b.select(inside, shifted, b.const(0, x))


class FloatTest(Discrete):
    """One float operand to Bool."""

    takes = dt.FLOATS

    def result_dtype(self, *dtypes: DType) -> DType:
        return dt.bool_


@frozen
class IsNan(FloatTest):
    """True where x is NaN."""

    name = "isnan"

    def eval(self, x: Array) -> Array:  # type: ignore[override]
        return np.isnan(x)

    def emit(self, b: Emitter, x: Val) -> Val:
        return b.fcmp("uno", x, x)


@frozen
class IsInf(FloatTest):
    """True where x is an infinity."""

    name = "isinf"

    def eval(self, x: Array) -> Array:  # type: ignore[override]
        return np.isinf(x)

    def emit(self, b: Emitter, x: Val) -> Val:
        return b.fcmp("oeq", b.unary("fabs", x), b.const(float("inf"), x))


@frozen
class IsFinite(FloatTest):
    """True where x is neither NaN nor an infinity."""

    name = "isfinite"

    def eval(self, x: Array) -> Array:  # type: ignore[override]
        return np.isfinite(x)

    def emit(self, b: Emitter, x: Val) -> Val:
        return b.fcmp("olt", b.unary("fabs", x), b.const(float("inf"), x))


@frozen
class SignBit(FloatTest):
    """True where the sign bit of x is set (also for -0)."""

    name = "signbit"

    def eval(self, x: Array) -> Array:  # type: ignore[override]
        return np.signbit(x)

    def emit(self, b: Emitter, x: Val) -> Val:
        one = b.binary("copysign", b.const(1.0, x), x)
        return b.fcmp("olt", one, b.const(0.0, x))
