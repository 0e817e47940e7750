"""Sums of gradients that are zero but for a part: added where that part lies, instead of being spread over zeros first.

Enters: a differentiated Graph. The gradient of a slice is a pad with zeros, that of a gather a scatter into zeros, that of a dynamic
slice an update of zeros; where a value is used in several such ways, autodiff adds them up. Leaves: an equal Graph in which the parts
are concatenated (split), updated or scattered into the rest of the sum.

What it keeps: every number, but for two liberties that native reductions take, too. Float updates that a scatter adds to one place may
be added in another order, and a zero may have the other sign (the sum of -0.0 and a spread 0.0 was 0.0).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from graphcell.ir.graph import Graph, Node, Value
from graphcell.ops.arithmetic import Add
from graphcell.ops.indexing import DynamicSlice, DynamicUpdateSlice, Scatter, ScatterElements
from graphcell.ops.movement import Concat, Pad, Slice, UpdateSlice
from graphcell.passes.costs import pads_in_loops
from graphcell.passes.rewrite import Rewriter, Rules, rewrite

Result = Sequence[Value] | None

_MOST_AROUND = 2
"""How many times as large as what it pads a pad may be, if it is added as a whole."""


def add_to_scatter(r: Rewriter, node: Node) -> Result:
    """acc + scatter[add](zeros, …, g) is scatter[add](acc, …, g)."""
    for acc, part in _both_orders(node):
        made = r.producers.get(part)
        if made is None or not isinstance(made.op, (Scatter, ScatterElements)) or made.op.kind != "add" or not r.used_once(part):
            continue
        base, *others = made.operands
        if r.number(base) == 0 and acc is not part:
            return r.emit(made.op, acc, *others)
    return None


def join_pads(r: Rewriter, node: Node) -> Result:
    """The sum of two pads with zeros whose insides are neighbours is a pad of their concatenation (the gradient of a split)."""
    for x, y in _both_orders(node):
        joined = _joined(r, x, y)
        if joined is not None:
            return (joined,)
        if isinstance(r.op_of(x), Add) and r.used_once(x):
            p, q = r.producers[x].operands
            for rest, other in ((p, q), (q, p)):
                joined = _joined(r, other, y) or _joined(r, y, other)
                if joined is not None:
                    return r.emit(Add(), rest, joined)
    return None


def add_to_part(r: Rewriter, node: Node) -> Result:
    """(a sum in memory) + pad(g) is that sum with the part under g updated, if nothing else reads either of them."""
    for acc, part in _both_orders(node):
        op, x = _pad_of(r, part)
        if op is None or x is None or not isinstance(r.op_of(acc), (Pad, UpdateSlice, Scatter, ScatterElements)) or not r.used_once(acc):
            continue
        if pads_in_loops(op, x.type) and _MOST_AROUND * x.type.size >= acc.type.size:
            continue  # a loop that adds both reads g with a guard
        step = tuple(i + 1 for i in op.interior)
        (old,) = r.emit(Slice(op.low, x.type.shape, step), acc)
        return r.emit(UpdateSlice(op.low, step), acc, *r.emit(Add(), old, x))
    return None


def add_to_dynamic_part(r: Rewriter, node: Node) -> Result:
    """acc + dynamic_update_slice(zeros, g, …) is acc with the slice there updated."""
    for acc, part in _both_orders(node):
        made = r.producers.get(part)
        if made is None or not isinstance(made.op, DynamicUpdateSlice) or not r.used_once(part) or acc is part:
            continue
        base, g, *starts = made.operands
        if r.number(base) == 0:
            (old,) = r.emit(DynamicSlice(g.type.shape), acc, *starts)
            return r.emit(made.op, acc, *r.emit(Add(), old, g), *starts)
    return None


def _both_orders(node: Node) -> Iterator[tuple[Value, Value]]:
    x, y = node.operands
    yield x, y
    yield y, x


def _pad_of(r: Rewriter, v: Value) -> tuple[Pad, Value] | tuple[None, None]:
    """The pad with zeros that makes v, if nothing else reads it, and what it pads."""
    made = r.producers.get(v)
    if made is None or not isinstance(made.op, Pad) or made.op.value != 0 or not r.used_once(v) or v.type.dtype.is_bool:
        return None, None
    (x,) = made.operands
    return (made.op, x) if x.type.size else (None, None)


def _joined(r: Rewriter, x: Value, y: Value) -> Value | None:
    """x + y as a pad, where the inside of x ends where that of y begins."""
    (first, a), (second, b) = _pad_of(r, x), _pad_of(r, y)
    if first is None or second is None or a is None or b is None or any(first.interior) or any(second.interior):
        return None
    differ = [k for k in range(x.type.rank) if (first.low[k], first.high[k]) != (second.low[k], second.high[k])]
    if len(differ) != 1 or first.low[differ[0]] + a.type.shape[differ[0]] != second.low[differ[0]]:
        return None
    (axis,) = differ
    high = (*first.high[:axis], second.high[axis], *first.high[axis + 1 :])
    (whole,) = r.emit(Concat(axis), a, b)
    if not any(first.low) and not any(high):
        return whole
    return r.emit(Pad(first.low, high, first.interior, first.value), whole)[0]


RULES: tuple[tuple[type[Add], Callable[[Rewriter, Node], Result]], ...] = (
    (Add, add_to_scatter),
    (Add, join_pads),
    (Add, add_to_part),
    (Add, add_to_dynamic_part),
)
_RULES = Rules(*RULES)


def accumulate(graph: Graph) -> Graph:
    """The graph with the sums named above rewritten, regions included."""
    return rewrite(graph, _RULES)
