"""What rows have in common: ops that bring all rows together, each as a sum to which blocks of rows add one after another.

Enters: a node that works across rows. Leaves: a `Sum`: what it is before the first block, how a block adds to it, and how the node's results
come of it in the end. Refuses (`NotRowWise`): what is no sum, product or extremum over rows.

Half precision is summed in float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from graphcell import dtype as dt
from graphcell.dtype import DType
from graphcell.ir.graph import Builder, Node, Value
from graphcell.ir.op import Op
from graphcell.ir.types import TensorType
from graphcell.ops.arithmetic import Add, Cast, Div, Maximum, Minimum, Mul, Select, Sub
from graphcell.ops.base import Reduction, neutral
from graphcell.ops.comparison import BitwiseAnd, BitwiseOr, Less
from graphcell.ops.contraction import MatMul
from graphcell.ops.convolution import ConvWeightGrad
from graphcell.ops.creation import Full, Iota, number_of
from graphcell.ops.indexing import ScatterElements, ScatterFamily
from graphcell.ops.moments import Moments
from graphcell.ops.movement import BroadcastTo, Reshape
from graphcell.passes.row_wise import NotRowWise, RowAxes
from graphcell.records import dataclass

_COMBINE: dict[str, type[Op]] = {"add": Add, "mul": Mul, "max": Maximum, "min": Minimum, "and": BitwiseAnd, "or": BitwiseOr}


class OpsBuilder(Builder):
    """A Builder with the ops that sums are made of."""

    def one(self, op: Op, *operands: Value) -> Value:
        """The result of an op that has one."""
        return self.append(op, operands)[0]

    def full(self, type: TensorType, value: bool | int | float) -> Value:
        """One number in every element."""
        return self.one(Full(number_of(value, type.dtype), type.shape, type.dtype))

    def cast(self, x: Value, dtype: DType) -> Value:
        """x in another dtype."""
        return x if x.type.dtype is dtype else self.one(Cast(dtype), x)

    def combine(self, kind: str, x: Value, y: Value) -> Value:
        """One step of a reduction."""
        if x.type.dtype.is_bool:
            kind = {"add": "or", "max": "or", "mul": "and", "min": "and"}.get(kind, kind)
        return self.one(_COMBINE[kind](), x, y)


def _wide(dtype: DType) -> DType:
    return dt.float32 if dtype.is_float and dtype.itemsize == 2 else dtype


@dataclass(frozen=True)
class Sum:
    """A node that brings rows together.

    Attributes:
        node: of the first graph.
        axes: the dimension of each operand that has to do with the number of rows; `times`: how often all rows pass along it.
    """

    node: Node
    axes: tuple[int | None, ...]
    times: tuple[int, ...]

    used: ClassVar[slice] = slice(None)
    """The operands that a block needs."""
    kept: ClassVar[slice] = slice(0)
    """Those that are needed in the end."""
    is_filled: ClassVar[bool] = False
    """Whether memory must hold what the sum is before the first block; otherwise that block does not look."""
    may_skip: ClassVar[bool] = True
    """Whether some rows of a block may be left out of the sum."""

    def begin(self) -> list[tuple[TensorType, bool | int | float]]:
        """Of each number summed, its type and what it is before the first block."""
        type = self.node.results[0].type
        return [(TensorType(_wide(type.dtype), type.shape), 0)]

    def step(self, b: OpsBuilder, op: Any, operands: Sequence[Value], before: Sequence[Value]) -> list[Value]:
        """What the sums are after a block with these operands; `op`: the block's own."""
        return [b.one(Add(), before[0], b.cast(b.one(op, *operands), before[0].type.dtype))]

    def nothing(self, k: int) -> bool | int | float:
        """What operand k is where it shall not change the sum."""
        return 0

    def of_first(self, b: OpsBuilder, operands: Sequence[Value], rows: int, count: Value) -> list[Value]:
        """The operands of a block of so many rows, of which only the first `count` (int64[1]) shall change the sum."""
        is_there = b.one(Less(), b.one(Iota((rows,), 0, count.type.dtype)), b.one(BroadcastTo((rows,)), count))
        kept = list(operands)
        for k in range(len(operands))[self.used]:
            v, axis, times = operands[k], self.axes[k], self.times[k]
            if axis is None:
                continue
            shape = v.type.shape
            apart = (*shape[:axis], times, rows, shape[axis] // (times * rows), *shape[axis + 1 :])
            one_each = b.one(Reshape(tuple(rows if d == axis + 1 else 1 for d in range(len(apart)))), is_there)
            kept[k] = b.one(Select(), b.one(Reshape(shape), b.one(BroadcastTo(apart), one_each)), v, b.full(v.type, self.nothing(k)))
        return kept

    def finish(self, b: OpsBuilder, sums: Sequence[Value], operands: Sequence[Value]) -> list[Value]:
        """The node's results, of what the sums are in the end and the operands that were `kept`."""
        return [b.cast(s, v.type.dtype) for s, v in zip(sums, self.node.results, strict=True)]


class _Reduced(Sum):
    """A reduction."""

    def nothing(self, k: int) -> bool | int | float:
        op: Any = self.node.op
        return neutral(op.kind, self.node.operands[k].type.dtype)

    def begin(self) -> list[tuple[TensorType, bool | int | float]]:
        type, _ = super().begin()[0]
        op: Any = self.node.op
        return [(type, neutral(op.kind, type.dtype))]

    def step(self, b: OpsBuilder, op: Any, operands: Sequence[Value], before: Sequence[Value]) -> list[Value]:
        return [b.combine(op.kind, before[0], b.one(op, b.cast(operands[0], before[0].type.dtype)))]


class _Moments(Sum):
    """Mean and variance: how many there are, their mean and the sum of squares of what differs from it (Chan, Golub and LeVeque, 1979)."""

    may_skip = False

    def begin(self) -> list[tuple[TensorType, bool | int | float]]:
        type, _ = super().begin()[0]
        return [(type, 0)] * 3

    def step(self, b: OpsBuilder, op: Any, operands: Sequence[Value], before: Sequence[Value]) -> list[Value]:
        mean, variance = b.append(op, [b.cast(operands[0], before[0].type.dtype)])
        count = b.full(mean.type, op.count(operands[0].type.shape))
        return self._combined(b, before, (count, mean, b.one(Mul(), variance, count)))

    def _combined(self, b: OpsBuilder, before: Sequence[Value], new: Sequence[Value]) -> list[Value]:
        count = b.one(Add(), before[0], new[0])
        some = b.one(Maximum(), count, b.full(count.type, 1))
        delta = b.one(Sub(), new[1], before[1])
        share = b.one(Div(), new[0], some)
        mean = b.one(Add(), before[1], b.one(Mul(), delta, share))
        between = b.one(Mul(), delta, b.one(Mul(), delta, b.one(Mul(), before[0], share)))  # delta squared might overflow where the rest is 0
        return [count, mean, b.one(Add(), b.one(Add(), before[2], new[2]), between)]

    def finish(self, b: OpsBuilder, sums: Sequence[Value], operands: Sequence[Value]) -> list[Value]:
        count, mean, squares = sums
        variance = b.one(Div(), squares, b.one(Maximum(), count, b.full(count.type, 1)))
        return super().finish(b, (mean, variance), operands)


class _Scattered(Sum):
    """Rows written into places of a whole value: combined first, and with the value in the end."""

    used = slice(1, None)
    kept = slice(1)

    @property
    def kind(self) -> str:
        """Of the scatter."""
        op: Any = self.node.op
        return str(op.kind)

    is_filled = True

    def nothing(self, k: int) -> bool | int | float:
        return neutral(self.kind, self.node.operands[k].type.dtype) if k == len(self.node.operands) - 1 else 0

    def begin(self) -> list[tuple[TensorType, bool | int | float]]:
        type = self.node.results[0].type
        return [(type, neutral(self.kind, type.dtype))]

    def step(self, b: OpsBuilder, op: Any, operands: Sequence[Value], before: Sequence[Value]) -> list[Value]:
        return [b.one(op, before[0], *operands[1:])]

    def finish(self, b: OpsBuilder, sums: Sequence[Value], operands: Sequence[Value]) -> list[Value]:
        return [b.combine(self.kind, operands[0], sums[0])]


def sum_of(node: Node, operands: Sequence[RowAxes], scaled: Sequence[Sequence[int]]) -> Sum:
    """The sum that a node is.

    Args:
        operands: what is known of its operands, and which of their extents depend on the number of rows.

    Raises:
        NotRowWise: it is none.
    """
    op = node.op
    if any(len(axes) > 1 for axes in scaled):
        raise NotRowWise(f"{op.name} works across rows in several dimensions")
    axes = tuple(axes[0] if axes else None for axes in scaled)
    often = max((rows.times for rows in operands if rows.axis is not None), default=1)  # where all elements are equal rows may pass in any way
    times = tuple(rows.times if rows.axis is not None else often for rows in operands)
    known = next((known for kind, known in _KINDS.items() if isinstance(op, kind)), None)
    if known is None or not _fits(op, node, axes, times):
        raise NotRowWise(f"{op.name} works across rows")
    return known(node, axes, times)


_KINDS: dict[type[Op], type[Sum]] = {Reduction: _Reduced, MatMul: Sum, ConvWeightGrad: Sum, Moments: _Moments, ScatterFamily: _Scattered}


def _fits(op: Any, node: Node, axes: Sequence[int | None], times: Sequence[int]) -> bool:
    """Whether rows meet in the way that the sum of this op knows."""
    if isinstance(op, (Reduction, Moments)):
        return axes[0] in op.axis
    if isinstance(op, MatMul):
        rank = node.operands[0].type.rank
        return tuple(axes) == (rank - 2 if op.transpose_x else rank - 1, rank - 1 if op.transpose_y else rank - 2) and times[0] == times[1]
    if isinstance(op, ConvWeightGrad):
        return tuple(axes) == (0, 0) and times[0] == times[1]
    if axes[0] is not None or op.kind == "update" or axes[-1] is None:
        return False
    if isinstance(op, ScatterElements):
        return axes[1] == axes[2] == op.axis and times[1] == times[2]
    first: int = op.axes[0]
    rank = node.operands[1].type.rank
    return first <= axes[-1] < first + rank and all(a == axes[-1] - first for a in axes[1:-1]) and len(set(times[1:])) == 1
