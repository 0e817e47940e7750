"""Sums of gradients that are zero but for a part: added where that part lies, instead of being spread over zeros first.

Enters: a differentiated Graph. The gradient of a slice is a pad with zeros, that of a gather a scatter into zeros, that of a dynamic
slice an update of zeros; where a value is used in several such ways, autodiff adds them up. Leaves: an equal Graph in which the parts
are concatenated (split), updated or scattered into the rest of the sum. A step of gradient descent, x - rate * (scatter into zeros), is
one op, which leaves the rows alone that were not used: those of large tables of embeddings. Of three addends, one that waits for a sum is added last.

What it keeps: every number, but for two liberties that native reductions take, too. Float updates that a scatter adds to one place, and what is added
in a gradient, may be added in another order, and a zero may have the other sign (the sum of -0.0 and a spread 0.0 was 0.0). In steps half precision is
added in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from graphcell.ir.graph import Graph, Node, Value
from graphcell.ops.arithmetic import Add, Mul, Neg, Sub
from graphcell.ops.base import Reduction
from graphcell.ops.creation import Full, number_of
from graphcell.ops.indexing import DynamicSlice, DynamicUpdateSlice, Scatter, ScatterElements, ScatterStep
from graphcell.ops.movement import BroadcastTo, Concat, Pad, Reshape, Slice, UpdateSlice
from graphcell.passes.costs import pads_in_loops
from graphcell.passes.factor_sums import factors, is_in_gradient
from graphcell.passes.rewrite import Rewriter, Rules, rewrite
from graphcell.records import dataclass

Result = Sequence[Value] | None

_MOST_AROUND = 2
"""How many times as large as what it pads a pad may be, if it is added as a whole."""

_LEAST_UNUSED = 2
"""How many times as many rows as there are updates a table must have for a step that visits used rows only."""


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


def step_where_used(r: Rewriter, node: Node) -> Result:
    """x - rate * scatter[add](zeros, i, g) is a step on the rows at i, if these are few; so is x + …"""
    x, change = node.operands
    if isinstance(node.op, Sub):
        return _step(r, x, change, negate=True)
    return _step(r, x, change, negate=False) or _step(r, change, x, negate=False)


def _step(r: Rewriter, x: Value, change: Value, *, negate: bool) -> Result:
    made = r.producers.get(change)
    if made is None or not isinstance(made.op, Mul) or not x.type.dtype.is_float or not r.used_once(change):
        return None
    for factor, gradient in _both_orders(made):
        rate = _scalar(r, factor)
        rows = _scattered_rows(r, gradient) if rate is not None else None
        if rows is not None and rate is not None:
            (rate,) = r.emit(Neg(), rate) if negate else (rate,)
            return r.emit(ScatterStep(rows.axes), x, *rows.indices, rows.updates, rate)
    return None


def add_last_what_is_known_last(r: Rewriter, node: Node) -> Result:
    """x + (y + z) is (x + y) + z in a gradient, if z waits for a sum (a mean, or a product with one) that x and y do not wait for: then the loop that makes
    these stores one of them, not two."""
    if not is_in_gradient(node):
        return None
    for x, total in _both_orders(node):
        if isinstance(r.op_of(total), Add) and is_in_gradient(r.producers[total]) and r.used_once(total):
            for y, z in _both_orders(r.producers[total]):
                if _waits(r, z, x, y):
                    return r.emit(Add(), *r.emit(Add(), x, y), z)
    return None


def _waits(r: Rewriter, z: Value, *others: Value) -> bool:
    """Whether z is known later than the others for what is broadcast in it alone."""
    ages = r.once(_ages)
    if not all(v in ages for v in (z, *others)):
        return False
    known = max(ages[v] for v in others)
    late = [v for v in factors(r.producers, [z]) if ages.get(v, 0) > known]
    return bool(late) and all(isinstance(r.op_of(v), BroadcastTo) for v in late)


def _ages(graph: Graph) -> dict[Value, int]:
    """After how many sums (or extrema) of sums each value is known."""
    ages = dict.fromkeys(graph.inputs, 0)
    for node in graph.nodes:
        age = max((ages[v] for v in node.operands), default=0) + isinstance(node.op, Reduction)
        ages.update(dict.fromkeys(node.results, age))
    return ages


def _scalar(r: Rewriter, v: Value) -> Value | None:
    """The number that stands in all places of v, as a scalar."""
    number, made = r.number(v), r.producers.get(v)
    if number is not None:
        return r.emit(Full(number_of(number, v.type.dtype), (), v.type.dtype))[0]
    if made is None or not isinstance(made.op, BroadcastTo) or made.operands[0].type.size != 1:
        return None
    (one,) = made.operands
    return r.emit(Reshape(()), one)[0] if one.type.rank else one


@dataclass(frozen=True)
class _Rows:
    """What is added to the rows of zeros at some indices."""

    axes: tuple[int, ...]
    indices: tuple[Value, ...]
    updates: Value


def _scattered_rows(r: Rewriter, gradient: Value) -> _Rows | None:
    """What a scatter adds to zeros, if nothing else reads it and it leaves most rows 0. Two scatters, as of a table that is read in two
    places, count as one."""
    made = r.producers.get(gradient)
    if made is None or not isinstance(made.op, Scatter) or made.op.kind != "add" or not r.used_once(gradient):
        return None
    base, *indices, updates = made.operands
    rows = _Rows(made.op.axes, tuple(indices), updates)
    if rows.axes[-1] == base.type.rank - 1 or not _are_few(base, rows):
        return None
    if r.number(base) == 0:
        return rows
    below = _scattered_rows(r, base)
    return _joined_rows(r, below, rows) if below is not None and _are_few(base, below, rows) else None


def _are_few(table: Value, *scattered: _Rows) -> bool:
    """Whether most of a table gets none of the updates; their numbers must fit 32 bits."""
    updates = sum(rows.updates.type.size for rows in scattered)
    return _LEAST_UNUSED * updates <= table.type.size and sum(rows.indices[0].type.size for rows in scattered) < 1 << 31


def _joined_rows(r: Rewriter, first: _Rows, second: _Rows) -> _Rows | None:
    """The updates of both in one row, if they are of the same first dimension."""
    (i, *more), (j, *_) = first.indices, second.indices
    if first.axes != (0,) or second.axes != (0,) or more or i.type.dtype is not j.type.dtype:
        return None
    flat = [r.emit(Reshape((v.type.size,)), v)[0] for v in (i, j)]
    updates: list[Value] = []
    for index, v in ((i, first.updates), (j, second.updates)):
        updates += r.emit(Reshape((index.type.size, *v.type.shape[index.type.rank :])), v)
    return _Rows((0,), r.emit(Concat(0), *flat), *r.emit(Concat(0), *updates))


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


RULES: tuple[tuple[type[Add | Sub], Callable[[Rewriter, Node], Result]], ...] = (
    (Add, add_to_scatter),
    (Add, join_pads),
    (Add, add_to_part),
    (Add, add_to_dynamic_part),
    (Add, step_where_used),
    (Sub, step_where_used),
    (Add, add_last_what_is_known_last),
)
_RULES = Rules(*RULES)


def accumulate(graph: Graph) -> Graph:
    """The graph with the sums named above rewritten, regions included."""
    return rewrite(graph, _RULES)
