"""While loops that count are `For` loops: `while i < 100` where each step adds the same number to i.

Enters: a `While` and its operands. Leaves: values that stand for its results, made by a `For` whose body computes the counter from the index. What
is read at an index that goes with the counter is scanned, and an index that cannot leave its range is not checked. So each step is known, and may
be kept and differentiated, as in a `for` over a range.

Refuses loops whose end depends on anything else, whose counter would wrap, and those of many steps, or of fewer that carry much, since the gradient
of a `For` keeps what each step leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from graphcell.dtype import DType, int64
from graphcell.ir.graph import Graph, Node, Value
from graphcell.ir.op import Op
from graphcell.ir.types import TensorType
from graphcell.ops.arithmetic import Add, Cast, Mul, Neg, Sub
from graphcell.ops.base import View
from graphcell.ops.comparison import Greater, GreaterEqual, Less, LessEqual, NotEqual
from graphcell.ops.control import For, While
from graphcell.ops.creation import Full
from graphcell.ops.host import CheckIndex
from graphcell.ops.indexing import Gather
from graphcell.ops.movement import Slice
from graphcell.passes.regions import rename_operands
from graphcell.passes.rewrite import Rewriter
from graphcell.records import dataclass

_MOST_STEPS, _MOST_BYTES = 1 << 12, 1 << 27
"""Of what is carried, all steps together."""

Emit = Callable[..., Sequence[Value]]


def count_loop(op: While, operands: Sequence[Value], number: Callable[[Value], Any], emit: Emit) -> Sequence[Value] | None:
    """The results of `op` on `operands`, made by a `For`; None if it does not count.

    Args:
        number: what each element of a value is, or None where that is not known.
        emit: appends an op on values; gives its results.
    """
    known = [number(v) for v in operands]
    for k in range(op.carried):
        if type(known[k]) is int and not operands[k].type.shape:
            loop = _counted(op, operands, k, known)
            if loop is not None:
                return loop.build(emit)
    return None


def counted_while(r: Rewriter, node: Node) -> Sequence[Value] | None:
    """The rule of the pass `simplify`."""
    assert isinstance(node.op, While)
    return count_loop(node.op, node.operands, r.number, r.emit)


@dataclass(frozen=True, slots=True)
class _Affine:
    """scale * x + offset."""

    scale: int
    offset: int

    def ends(self, steps: int) -> tuple[int, int]:
        """The least and the largest value for x = 0 .. steps - 1."""
        low, high = sorted((self.offset, self.offset + self.scale * (steps - 1)))
        return low, high

    def fits(self, steps: int, dtype: DType) -> bool:
        low, high = self.ends(steps)
        limits = np.iinfo(dtype.np_type)
        return int(limits.min) <= low and high <= int(limits.max)


def _counted(op: While, operands: Sequence[Value], k: int, known: Sequence[Any]) -> _Loop | None:
    """The loop, if its carried value k is what counts."""
    start, dtype = known[k], operands[k].type.dtype
    numbers = [None] * op.carried + list(known[op.carried :])
    one_step = _affines(op.body_graph, k, _Affine(1, start), 2, numbers).get(op.body_graph.outputs[k])
    if one_step is None or one_step.scale != 1 or one_step.offset == start:
        return None
    counter = _Affine(one_step.offset - start, start)
    steps = _steps(op.cond_graph, k, counter, numbers)
    carried = sum(v.type.nbytes for v in operands[: op.carried])
    if steps is None or steps > _MOST_STEPS or steps * carried > _MOST_BYTES or not counter.fits(steps + 1, dtype):
        return None
    return _Loop(op, operands, k, counter, steps, _affines(op.body_graph, k, counter, max(steps, 1), numbers))


def _affines(graph: Graph, k: int, counter: _Affine, steps: int, numbers: Sequence[Any]) -> dict[Value, _Affine]:
    """The integer scalars of a region that are affine in the number of the step, of which there are `steps`, without any that wraps.

    Args:
        counter: what input k is.
        numbers: what other inputs are, where that is known.
    """
    found = {v: _Affine(0, n) for v, n in zip(graph.inputs, numbers, strict=True) if type(n) is int and not v.type.shape}
    found[graph.inputs[k]] = counter
    for node in graph.nodes:
        if len(node.results) == 1 and not node.results[0].type.shape and node.results[0].type.dtype.is_integer:
            x = _affine(node, found)
            if x is not None and x.fits(steps, node.results[0].type.dtype):
                found[node.results[0]] = x
    return found


def _affine(node: Node, known: dict[Value, _Affine]) -> _Affine | None:
    op = node.op
    if isinstance(op, Full):
        return _Affine(0, int(op.value))
    operands = [known[v] for v in node.operands if v in known]
    if len(operands) < len(node.operands) or not operands:
        return None
    x, y = operands[0], operands[-1]
    if isinstance(op, Cast):
        return x
    if isinstance(op, Neg):
        return _Affine(-x.scale, -x.offset)
    if isinstance(op, (Add, Sub)):
        sign = 1 if isinstance(op, Add) else -1
        return _Affine(x.scale + sign * y.scale, x.offset + sign * y.offset)
    if isinstance(op, Mul) and 0 in (x.scale, y.scale):
        x, y = (x, y) if y.scale == 0 else (y, x)
        return _Affine(x.scale * y.offset, x.offset * y.offset)
    return None


def _steps(condition: Graph, k: int, counter: _Affine, numbers: Sequence[Any]) -> int | None:
    """How often the condition holds before it does not for the first time; None if that is not known, or never."""
    if condition.has_effect():
        return None
    maker = condition.producers().get(condition.outputs[0])
    if maker is None or not isinstance(maker.op, (Less, LessEqual, Greater, GreaterEqual, NotEqual)):
        return None
    steps = _first_failure(maker, _affines(condition, k, counter, 1, numbers))
    if steps is None or _first_failure(maker, _affines(condition, k, counter, steps + 1, numbers)) is None:  # something wraps
        return None
    return steps


def _first_failure(comparison: Node, known: dict[Value, _Affine]) -> int | None:
    sides = [known[v] for v in comparison.operands if v in known]
    if len(sides) < 2:
        return None
    # as 0 < gap, or 0 != gap, where the gap changes by `change` each step
    op = comparison.op
    left, right = sides if isinstance(op, (Less, LessEqual, NotEqual)) else sides[::-1]
    gap = right.offset - left.offset + isinstance(op, (LessEqual, GreaterEqual))
    change = right.scale - left.scale
    if isinstance(op, NotEqual):
        return -gap // change if change and gap % change == 0 and -gap // change >= 0 else None
    if gap <= 0:
        return 0
    return -(gap // change) if change < 0 else None


@dataclass(eq=False)
class _Loop:
    """A loop whose carried value k is `counter` of the number of the step."""

    op: While
    operands: Sequence[Value]
    k: int
    counter: _Affine
    steps: int
    affines: dict[Value, _Affine]
    scanned: dict[object, tuple[Value, Value]] = field(default_factory=dict)
    """What is scanned: the whole, outside, and its element, inside."""

    def build(self, emit: Emit) -> list[Value]:
        body, carried = self.op.body_graph, self.op.carried
        (final,) = emit(Full(self.counter.offset + self.counter.scale * self.steps, (), self.operands[self.k].type.dtype))
        index = Value(TensorType(int64, ()), "index")
        renamed: dict[Value, Value] = {}
        nodes = [*self._counter_from(index, body.inputs[self.k]), *self._body(renamed, emit)]

        def without_counter(values: Sequence[Value]) -> list[Value]:
            return [v for j, v in enumerate(values[:carried]) if j != self.k]

        elements = [inside for _, inside in self.scanned.values()]
        inputs = (index, *without_counter(body.inputs), *elements, *body.inputs[carried:])
        graph = Graph(body.name, inputs, nodes, [renamed.get(v, v) for v in without_counter(body.outputs)])
        wholes = [whole for whole, _ in self.scanned.values()]
        op = For(graph, self.steps, carried - 1, len(wholes), False)
        results = list(emit(op, *without_counter(self.operands), *wholes, *self.operands[carried:]))
        results.insert(self.k, final)
        return results

    def _counter_from(self, index: Value, counter: Value) -> list[Node]:
        """Nodes that make the counter from the index."""
        nodes: list[Node] = []
        value = index
        scale, offset = self.counter.scale, self.counter.offset
        for op, n in ((Mul(), scale), (Add(), offset)):
            if n != (1 if isinstance(op, Mul) else 0):
                fill, result = Value(index.type), Value(index.type)
                nodes += [Node(Full(n, (), int64), (), (fill,)), Node(op, (value, fill), (result,))]
                value = result
        return [*nodes, Node(Cast(counter.type.dtype), (value,), (counter,))]

    def _body(self, renamed: dict[Value, Value], emit: Emit) -> list[Node]:
        """The body's nodes, but for checks that hold and for what is scanned instead, which `renamed` gets to know."""
        made_by = self.op.body_graph.producers()
        nodes = []
        for node in self.op.body_graph.nodes:
            if isinstance(node.op, CheckIndex) and self._stays_inside(node.operands[0], node.op.extent):
                continue
            if isinstance(node.op, Gather) and node.op.axes == (0,):
                element = self._scan(node, made_by, emit)
                if element is not None:
                    renamed[node.results[0]] = element
                    continue
            nodes.append(rename_operands(node, renamed))
        return nodes

    def _stays_inside(self, index: Value, extent: int) -> bool:
        at = self.affines.get(index)
        return at is not None and -extent <= at.ends(self.steps)[0] and at.ends(self.steps)[1] < extent

    def _scan(self, node: Node, made_by: dict[Value, Node], emit: Emit) -> Value | None:
        """The element of what is scanned that stands for what `node` gathers, if that is rows, in order, of what the loop does not change."""
        x, at = node.operands[0], self.affines.get(node.operands[1])
        extent = x.type.shape[0]
        if at is None or not at.scale or not self.steps:
            return None
        if at.ends(self.steps)[1] < 0:
            at = _Affine(at.scale, at.offset + extent)
        low, high = at.ends(self.steps)
        views: list[Op] = []
        root = x
        while root in made_by and isinstance(made_by[root].op, View):
            views.append(made_by[root].op)
            root = made_by[root].operands[0]
        inputs = self.op.body_graph.inputs
        if low < 0 or high >= extent or root not in inputs[self.op.carried :]:
            return None
        key = root, tuple(views), at
        if key not in self.scanned:
            whole = self.operands[inputs.index(root)]
            for view in reversed(views):
                (whole,) = emit(view, whole)
            rest = x.type.rank - 1
            if (at.scale, at.offset, extent) != (1, 0, self.steps):
                (whole,) = emit(Slice((at.offset, *[0] * rest), (self.steps, *x.type.shape[1:]), (at.scale, *[1] * rest)), whole)
            self.scanned[key] = whole, Value(node.results[0].type, node.results[0].name)
        return self.scanned[key][1]
