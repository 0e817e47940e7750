"""Sums over the steps of a loop, taken out of it where that is cheaper.

Enters: the body of a loop, values in it that are to be summed over all steps. Leaves: what must still be added up in the loop, what must
be stacked, and how the sums are made of these afterwards. A sum of products of matrices is one product of the stacked matrices; a sum
goes through linear ops (views, pads, additions), which then run once. What adds up rows in each step does so in a few parts, or row by row where their
number is odd, and these become one after the loop: threads that do rows of their own in every step need not meet for it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import field

from graphcell.ir.graph import Builder, Node, Value
from graphcell.ir.op import Op
from graphcell.ops.arithmetic import Add, Neg, Sub
from graphcell.ops.contraction import MatMul
from graphcell.ops.movement import BroadcastTo, Concat, Pad, Reshape, Slice, Transpose
from graphcell.ops.reduction import ReduceSum
from graphcell.records import dataclass

_DEPTH = 32
"""How many linear ops a sum goes through."""
_PARTS, _FEWEST_ROWS = (4, 2, 3), 2
"""Into how many parts rows are divided, the first one first, as a team of threads divides them (codegen/tasks.py), and rows of a part."""
_MOST_ODD_BYTES = 1 << 15
"""What an odd number of rows takes, at most, of which each has a total of its own, as two threads divide them unevenly. Larger ones would leave the L1 cache;
of these there are three parts, if any."""
_LINEAR = (Add, Sub, Neg, BroadcastTo, Concat, Reshape, Slice, Transpose)

_always_stacked = ContextVar("_always_stacked", default=False)


@contextlib.contextmanager
def always_stacked() -> Iterator[None]:
    """In it, sums of products are always made of stacks, and other sums are in one part, so that the graph of a gradient does not depend on how many rows
    there are."""
    token = _always_stacked.set(True)
    try:
        yield
    finally:
        _always_stacked.reset(token)


Finish = Callable[[Builder, Sequence[Value], Sequence[Value]], Value]
"""Makes a sum after the loop, from the totals and the stacks."""


@dataclass
class LoopSums:
    """The plan for all sums of one loop. `given` are the body inputs that are slices of stacks that exist already."""

    steps: int
    producers: dict[Value, Node]
    given: set[Value]
    body: Builder
    """Where what the loop adds up is computed."""
    totals: list[Value] = field(default_factory=list)
    """Values to be added up in the loop."""
    stacks: list[Value] = field(default_factory=list)
    """Values (or slices) of which the stack over all steps is needed."""

    def plan(self, value: Value, depth: int = 0) -> Finish:
        """How the sum of `value` over all steps is made; adds to `totals` and `stacks`."""
        node = self.producers.get(value)
        if node is None or depth > _DEPTH or self.steps < 2:
            return self._total(value)
        if isinstance(node.op, MatMul) and self._is_cheaper_stacked(node.op, node):
            return self._product(node)
        if isinstance(node.op, ReduceSum):
            return self._reduction(node.op, node) if self._is_stacked(node.operands[0]) else self._in_parts(node.op, node)
        if isinstance(node.op, _LINEAR) or (isinstance(node.op, Pad) and node.op.value == 0):
            return self._linear(node.op, [self.plan(v, depth + 1) for v in node.operands])
        return self._total(value)

    def _total(self, value: Value) -> Finish:
        if value not in self.totals:
            self.totals.append(value)
        k = self.totals.index(value)
        return lambda b, totals, stacks: totals[k]

    def _stack(self, value: Value) -> int:
        if value not in self.stacks:
            self.stacks.append(value)
        return self.stacks.index(value)

    def _is_stacked(self, value: Value) -> bool:
        return value in self.given or value in self.stacks

    def _is_cheaper_stacked(self, op: MatMul, node: Node) -> bool:
        """Both contract their rows, and what must be written for that is less than what adding up reads and writes."""
        if not op.transpose_x or op.transpose_y or node.operands[0].type.rank != 2:
            return False
        written = sum(v.type.size for v in node.operands if not self._is_stacked(v))
        return written <= 2 * node.results[0].type.size or _always_stacked.get()

    def _product(self, node: Node) -> Finish:
        x, y = map(self._stack, node.operands)

        def finish(b: Builder, totals: Sequence[Value], stacks: Sequence[Value]) -> Value:
            return b.append(
                MatMul(True, False), (_merge_rows(b, stacks[x]), _merge_rows(b, stacks[y])), node.span
            )[0]

        return finish

    def _reduction(self, op: ReduceSum, node: Node) -> Finish:
        k = self._stack(node.operands[0])
        axes = (0, *(a + 1 for a in op.axis))

        def finish(b: Builder, totals: Sequence[Value], stacks: Sequence[Value]) -> Value:
            result = b.append(ReduceSum(axes, False), (stacks[k],), node.span)[0]
            shape = node.results[0].type.shape
            return result if result.type.shape == shape else b.append(Reshape(shape), (result,), node.span)[0]

        return finish

    def _in_parts(self, op: ReduceSum, node: Node) -> Finish:
        """A sum over the first dimension as the total of several."""
        x, total = node.operands[0], node.results[0].type
        shape = x.type.shape
        if 0 not in op.axis or not total.rank or _always_stacked.get():
            return self._total(node.results[0])
        if shape[0] % 2 and shape[0] > 1 and x.type.nbytes <= _MOST_ODD_BYTES:
            parts = shape[0]
        else:
            parts = next((n for n in _PARTS if shape[0] >= _FEWEST_ROWS * n and shape[0] % n == 0), 0)
        if not parts:
            return self._total(node.results[0])
        cut = self.body.append(Reshape((parts, shape[0] // parts, *shape[1:])), (x,), node.span)[0]
        each = self.body.append(ReduceSum(tuple(a + 1 for a in op.axis), False), (cut,), node.span)[0]
        of_parts = self._total(each)

        def finish(b: Builder, totals: Sequence[Value], stacks: Sequence[Value]) -> Value:
            result = b.append(ReduceSum((0,), False), (of_parts(b, totals, stacks),), node.span)[0]
            return result if result.type.shape == total.shape else b.append(Reshape(total.shape), (result,), node.span)[0]

        return finish

    def _linear(self, op: Op, parts: Sequence[Finish]) -> Finish:
        def finish(b: Builder, totals: Sequence[Value], stacks: Sequence[Value]) -> Value:
            return b.append(op, [part(b, totals, stacks) for part in parts])[0]

        return finish


def _merge_rows(b: Builder, stack: Value) -> Value:
    steps, rows, columns = stack.type.shape
    return b.append(Reshape((steps * rows, columns)), (stack,))[0]
