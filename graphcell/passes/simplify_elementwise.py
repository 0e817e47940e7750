"""Simplification rules for elementwise ops. Each one is exact: the results keep every bit, for NaN,
infinities and both zeros too (the sign and payload of a NaN aside, which no operation promises).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from graphcell.dtype import DType, finfo
from graphcell.ir.graph import Node, Value
from graphcell.ops.arithmetic import (
    Abs,
    Add,
    Cast,
    Div,
    Maximum,
    Minimum,
    Mul,
    Neg,
    Overwrite,
    Relu,
    Select,
    StopGradient,
    Sub,
)
from graphcell.ops.comparison import BitwiseAnd, BitwiseNot, BitwiseOr, BitwiseXor, Comparison
from graphcell.ops.creation import Full, Iota
from graphcell.ops.mathematics import MOST_PRODUCTS, Power
from graphcell.ops.movement import BroadcastTo
from graphcell.passes.rewrite import Rewriter

Result = Sequence[Value] | None
Number = bool | int | float

MANTISSA = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}


def is_number(known: Number | None, value: float) -> bool:
    """True if `known` is this number; 0.0 and -0.0 differ."""
    return known is not None and known == value and math.copysign(1.0, known) == math.copysign(1.0, value)


# -- add, sub ------------------------------------------------------------------------------------------------
def add_zero(r: Rewriter, node: Node) -> Result:
    """x + 0 is x for integers and Bool; of floats only x + -0.0 is x (0.0 would turn -0.0 into 0.0)."""
    zero = -0.0 if node.results[0].type.dtype.is_float else 0.0
    x, y = node.operands
    if is_number(r.number(y), zero):
        return (x,)
    return (y,) if is_number(r.number(x), zero) else None


def add_negative(r: Rewriter, node: Node) -> Result:
    """x + -y is x - y."""
    x, y = node.operands
    if isinstance(r.op_of(y), Neg):
        return r.emit(Sub(), x, r.producers[y].operands[0])
    if isinstance(r.op_of(x), Neg):
        return r.emit(Sub(), y, r.producers[x].operands[0])
    return None


def add_itself(r: Rewriter, node: Node) -> Result:
    """x + x is x * 2 for floats: a number joins others."""
    x, y = node.operands
    return r.emit(Mul(), x, *r.full(2, x)) if x.type.dtype.is_float and is_made_alike(r, x, y) else None


def is_made_alike(r: Rewriter, x: Value, y: Value) -> bool:
    """Whether two values are one, or a product that is there twice, as the gradient of a square is."""
    one, other = r.producers.get(x), r.producers.get(y)
    if x is y or one is None or other is None or not isinstance(one.op, Mul):
        return x is y
    return one.op == other.op and set(one.operands) == set(other.operands)


def add_integers(r: Rewriter, node: Node) -> Result:
    """(x + a) + b is x + (a + b) for integers."""
    return _collect_integers(r, node, Add)


def multiply_integers(r: Rewriter, node: Node) -> Result:
    """(x * a) * b is x * (a * b) for integers."""
    return _collect_integers(r, node, Mul)


def _collect_integers(r: Rewriter, node: Node, cls: type[Add] | type[Mul]) -> Result:
    if not node.results[0].type.dtype.is_integer:
        return None
    for x, number in (node.operands, node.operands[::-1]):
        if r.number(number) is None or not isinstance(r.op_of(x), cls):
            continue
        a, b = r.producers[x].operands
        if r.number(b) is not None:
            return r.emit(cls(), a, *r.emit(cls(), b, number))
        if r.number(a) is not None:
            return r.emit(cls(), b, *r.emit(cls(), a, number))
    return None


def subtract_zero(r: Rewriter, node: Node) -> Result:
    """x - 0 is x; of floats x - 0.0, but not x - -0.0."""
    return (node.operands[0],) if is_number(r.number(node.operands[1]), 0.0) else None


def subtract_negative(r: Rewriter, node: Node) -> Result:
    """x - -y is x + y."""
    x, y = node.operands
    return r.emit(Add(), x, r.producers[y].operands[0]) if isinstance(r.op_of(y), Neg) else None


def subtract_from_zero(r: Rewriter, node: Node) -> Result:
    """0 - x is -x for integers, -0.0 - x is -x for floats."""
    x, y = node.operands
    zero = -0.0 if y.type.dtype.is_float else 0.0
    return r.emit(Neg(), y) if is_number(r.number(x), zero) else None


def subtract_itself(r: Rewriter, node: Node) -> Result:
    """x - x is 0 for integers (floats may be NaN or infinite)."""
    x, y = node.operands
    return r.full(0, x) if x is y and x.type.dtype.is_integer else None


# -- mul, div, neg -------------------------------------------------------------------------------------------
def multiply_by_number(r: Rewriter, node: Node) -> Result:
    """x * 1 is x, x * -1 is -x; x * 0 is 0 for integers and Bool; -x * c is x * -c."""
    for x, y in (node.operands, node.operands[::-1]):
        number, dtype = r.number(y), x.type.dtype
        if number is None:
            continue
        if number == 1:
            return (x,)
        if number == 0 and not dtype.is_float:
            return (y,)
        if number == -1:
            return r.emit(Neg(), x)
        if isinstance(r.op_of(x), Neg) and dtype.is_float:
            return r.emit(Mul(), r.producers[x].operands[0], *r.full(-number, y))
    return None


def multiply_negatives(r: Rewriter, node: Node) -> Result:
    """-x * -y is x * y."""
    x, y = node.operands
    if isinstance(r.op_of(x), Neg) and isinstance(r.op_of(y), Neg):
        return r.emit(Mul(), r.producers[x].operands[0], r.producers[y].operands[0])
    return None


def divide_by_number(r: Rewriter, node: Node) -> Result:
    """x / 1 is x, x / -1 is -x, and division by another power of two is multiplication by its reciprocal,
    where that is normal.
    """
    x, y = node.operands
    number = r.number(y)
    if number is None or number == 0 or not math.isfinite(number):
        return None
    if number == 1:
        return (x,)
    if number == -1:
        return r.emit(Neg(), x)
    if abs(math.frexp(number)[0]) != 0.5:
        return None
    limits = finfo(x.type.dtype)
    normal = float(limits.smallest_normal) <= abs(1 / number) <= float(limits.max)
    return r.emit(Mul(), x, *r.full(1 / number, y)) if normal else None


def negate_negative(r: Rewriter, node: Node) -> Result:
    """--x is x."""
    x = node.operands[0]
    return (r.producers[x].operands[0],) if isinstance(r.op_of(x), Neg) else None


def negate_product(r: Rewriter, node: Node) -> Result:
    """-(x * c) is x * -c for floats, unless the product is needed as it is, too."""
    x = node.operands[0]
    if not isinstance(r.op_of(x), Mul) or not x.type.dtype.is_float or not r.used_once(x):
        return None
    a, b = r.producers[x].operands
    for y, factor in ((a, b), (b, a)):
        number = r.number(factor)
        if number is not None:
            return r.emit(Mul(), y, *r.full(-number, factor))
    return None


def power_to_products(r: Rewriter, node: Node) -> Result:
    """x ** 3 is x * (x * x), and so on by squaring: the products that a power would be lowered to, here in sight of what shares them."""
    assert isinstance(node.op, Power)
    exponent, x = node.op.exponent, node.operands[0]
    if x.type.dtype.bits < 32 or not exponent.is_integer() or not 1 <= exponent <= MOST_PRODUCTS:
        return None
    return (_product(r, x, int(exponent)),)


def _product(r: Rewriter, x: Value, count: int) -> Value:
    """x multiplied `count` > 0 times, by squaring."""
    if count == 1:
        return x
    half = _product(r, r.emit(Mul(), x, x)[0], count // 2)
    return half if count % 2 == 0 else r.emit(Mul(), x, half)[0]


# -- extrema, absolute values, markers -----------------------------------------------------------------------
def same_operands(r: Rewriter, node: Node) -> Result:
    """max(x, x), min(x, x), x & x and x | x are x."""
    x, y = node.operands
    return (x,) if x is y else None


def repeated(r: Rewriter, node: Node) -> Result:
    """|(|x|)| is |x|, relu(relu(x)) is relu(x)."""
    x = node.operands[0]
    return (x,) if type(r.op_of(x)) is type(node.op) else None


def absolute_of_negative(r: Rewriter, node: Node) -> Result:
    """|-x| is |x|."""
    x = node.operands[0]
    return r.emit(Abs(), r.producers[x].operands[0]) if isinstance(r.op_of(x), Neg) else None


def drop_stop_gradient(r: Rewriter, node: Node) -> Result:
    """stop_gradient(x) is x: it has done its work when the pipeline runs, which is after differentiation."""
    return node.operands


def drop_overwrite(r: Rewriter, node: Node) -> Result:
    """overwrite(old, new) is new, for the same reason."""
    return node.operands[1:]


# -- select, comparisons, bits -------------------------------------------------------------------------------
def select_known(r: Rewriter, node: Node) -> Result:
    """A known condition selects one side; equal sides need no condition."""
    condition, x, y = node.operands
    if x is y:
        return (x,)
    known = r.number(condition)
    return None if known is None else (x,) if known else (y,)


def select_negated(r: Rewriter, node: Node) -> Result:
    """select(not c, x, y) is select(c, y, x)."""
    condition, x, y = node.operands
    if not isinstance(r.op_of(condition), BitwiseNot):
        return None
    return r.emit(Select(), r.producers[condition].operands[0], y, x)


def select_true_false(r: Rewriter, node: Node) -> Result:
    """select(c, True, False) is c, select(c, False, True) is not c."""
    condition, x, y = node.operands
    if not x.type.dtype.is_bool or r.number(x) is None or r.number(y) is None or r.number(x) == r.number(y):
        return None
    return (condition,) if r.number(x) else r.emit(BitwiseNot(), condition)


def select_by_row(r: Rewriter, node: Node) -> Result:
    """select(c & broadcast(d), broadcast(x), n) is select(c, broadcast(select(d, x, n)), n), n a number: what is the same for a row is chosen once."""
    _, x, number = node.operands
    both, wide, outside = map(r.producers.get, node.operands)
    if both is None or wide is None or outside is None:
        return None
    if not isinstance(both.op, BitwiseAnd) or not isinstance(wide.op, BroadcastTo) or not isinstance(outside.op, Full):
        return None
    (small,) = wide.operands
    for c, d in (both.operands, both.operands[::-1]):
        repeated = r.producers.get(d)
        if repeated is not None and repeated.op == wide.op and repeated.operands[0].type.shape == small.type.shape and small.type.size < x.type.size:
            chosen = r.emit(Select(), repeated.operands[0], small, *r.emit(Full(outside.op.value, small.type.shape, small.type.dtype)))
            return r.emit(Select(), c, *r.emit(wide.op, *chosen), number)
    return None


def compare_itself(r: Rewriter, node: Node) -> Result:
    """x == x, x <= x and x >= x are True, x != x, x < x and x > x False, unless x may be NaN."""
    x, y = node.operands
    if x is not y or x.type.dtype.is_float or not isinstance(node.op, Comparison):
        return None
    return r.full(node.op.predicate in ("eq", "le", "ge"), node.results[0])


def bits_with_number(r: Rewriter, node: Node) -> Result:
    """x & 0 is 0, x & ~0 is x, x | 0 is x, x | ~0 is ~0, x ^ 0 is x."""
    for x, y in (node.operands, node.operands[::-1]):
        number, dtype = r.number(y), x.type.dtype
        if number is None:
            continue
        ones = 1 if dtype.is_bool else -1 if dtype.signed else (1 << dtype.bits) - 1
        if number == 0:
            return (y,) if isinstance(node.op, BitwiseAnd) else (x,)
        if number == ones and not isinstance(node.op, BitwiseXor):
            return (x,) if isinstance(node.op, BitwiseAnd) else (y,)
    return None


def invert_inverted(r: Rewriter, node: Node) -> Result:
    """~~x is x."""
    x = node.operands[0]
    return (r.producers[x].operands[0],) if isinstance(r.op_of(x), BitwiseNot) else None


# -- casts ---------------------------------------------------------------------------------------------------
def cast_to_same(r: Rewriter, node: Node) -> Result:
    """A cast to the dtype that x has already is x."""
    x = node.operands[0]
    return (x,) if x.type.dtype is node.results[0].type.dtype else None


def cast_of_cast(r: Rewriter, node: Node) -> Result:
    """A cast through a dtype that holds every value of x is one cast.

    Not so from integer through float to integer, unless the last holds x, too: floats saturate where integers
    wrap around.
    """
    x = node.operands[0]
    if not isinstance(r.op_of(x), Cast):
        return None
    inner = r.producers[x].operands[0]
    source, middle, target = inner.type.dtype, x.type.dtype, node.results[0].type.dtype
    if not is_lossless(source, middle):
        return None
    if source.is_integer and middle.is_float and target.is_integer and not is_lossless(source, target):
        return None
    return r.emit(node.op, inner)


def cast_of_ramp(r: Rewriter, node: Node) -> Result:
    """A ramp of indices is made in the dtype that is wanted."""
    op, target = r.op_of(node.operands[0]), node.results[0].type.dtype
    if not isinstance(op, Iota) or not op.shape[op.axis]:
        return None
    last = op.shape[op.axis] - 1
    return (
        r.emit(Iota(op.shape, op.axis, target)) if _holds(op.dtype, last) and _holds(target, last) else None
    )


def _holds(dtype: DType, last: int) -> bool:
    """True if `dtype` holds the integers from 0 to `last`."""
    if dtype.is_float:
        return last <= 1 << MANTISSA[dtype.name]
    return last < 1 << (dtype.bits - dtype.signed) if dtype.is_integer else last <= 1


def is_lossless(source: DType, target: DType) -> bool:
    """True if every value of `source` is one of `target`."""
    if source is target or source.is_bool:
        return True
    if target.is_bool or (source.is_float and not target.is_float):
        return False
    if source.is_integer and target.is_integer:
        return target.bits - target.signed >= source.bits - source.signed and (
            target.signed or not source.signed
        )
    if source.is_integer:
        return MANTISSA[target.name] >= source.bits - source.signed
    a, b = finfo(source), finfo(target)
    return (
        MANTISSA[target.name] >= MANTISSA[source.name]
        and bool(float(b.max) >= float(a.max))
        and _reaches(b, a)
    )


def _reaches(wide: object, narrow: object) -> bool:
    """True if `wide` has the smallest number of `narrow`, too."""
    return float(wide.smallest_subnormal) <= float(narrow.smallest_subnormal)  # type: ignore[attr-defined]


ELEMENTWISE_RULES = (
    (Add, add_zero),
    (Add, add_negative),
    (Add, add_itself),
    (Add, add_integers),
    (Sub, subtract_zero),
    (Sub, subtract_negative),
    (Sub, subtract_from_zero),
    (Sub, subtract_itself),
    (Mul, multiply_by_number),
    (Mul, multiply_negatives),
    (Mul, multiply_integers),
    (Div, divide_by_number),
    (Neg, negate_negative),
    (Neg, negate_product),
    (Power, power_to_products),
    (Maximum, same_operands),
    (Minimum, same_operands),
    (BitwiseAnd, same_operands),
    (BitwiseOr, same_operands),
    (Abs, repeated),
    (Relu, repeated),
    (Abs, absolute_of_negative),
    (StopGradient, drop_stop_gradient),
    (Overwrite, drop_overwrite),
    (Select, select_known),
    (Select, select_negated),
    (Select, select_true_false),
    (Select, select_by_row),
    (Comparison, compare_itself),
    (BitwiseAnd, bits_with_number),
    (BitwiseOr, bits_with_number),
    (BitwiseXor, bits_with_number),
    (BitwiseNot, invert_inverted),
    (Cast, cast_to_same),
    (Cast, cast_of_cast),
    (Cast, cast_of_ramp),
)
