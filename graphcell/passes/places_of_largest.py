"""The largest element of a small window and its place, found in one go.

Enters: a differentiated Graph, in which max pooling is `reduce_max_first` over windows and its gradient asks for the first place of what that gave:
the smallest number of an element that equals it, or is NaN. Leaves: an equal Graph in which the elements of such windows are compared one after the
other, as slices that lie side by side, and each that is larger leaves its number: the windows are read once, not three times. Refuses windows of many
elements, whose code would be long, and those of which nobody asks for the place.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from graphcell.ir.graph import Graph, Node, Value
from graphcell.ops.arithmetic import Maximum, Select
from graphcell.ops.comparison import BitwiseAnd, BitwiseNot, BitwiseOr, Equal, LessEqual, NotEqual
from graphcell.ops.creation import Full
from graphcell.ops.movement import BroadcastTo, Reshape, Slice
from graphcell.ops.pooling import ReduceMaxFirst, ReduceMinPlace, Windows
from graphcell.passes.rewrite import Rewriter, Rules, rewrite

_MOST_PLACES = 16
Result = Sequence[Value] | None


def _asked(graph: Graph) -> dict[Value, Value]:
    """For each value that says where the first largest element is, that element's."""
    made = {v: node for node in graph.nodes for v in node.results}
    found: dict[Value, Value] = {}
    for node in graph.nodes:
        if isinstance(node.op, ReduceMinPlace) and (largest := _largest(made, node)) is not None:
            found[node.results[0]] = largest
    return found


def _largest(made: dict[Value, Node], node: Node) -> Value | None:
    """The largest elements among those whose smallest number `node` gives, of those that equal them or are NaN."""
    chosen = made.get(node.operands[0])
    hit = made.get(chosen.operands[0]) if chosen is not None and isinstance(chosen.op, Select) else None
    if hit is None or not isinstance(hit.op, BitwiseOr):
        return None
    tests = [made[v] for v in hit.operands if v in made]
    equal = next((t for t in tests if isinstance(t.op, Equal)), None)
    is_nan = next((t for t in tests if isinstance(t.op, NotEqual) and t.operands[0] is t.operands[1]), None)
    if equal is None or is_nan is None or is_nan.operands[0] not in equal.operands:
        return None
    x = is_nan.operands[0]
    for v in equal.operands:
        maker = made.get(v)
        while maker is not None and isinstance(maker.op, (BroadcastTo, Reshape)):
            maker = made.get(maker.operands[0])
        if maker is not None and maker.operands == (x,) and isinstance(maker.op, ReduceMaxFirst) and isinstance(node.op, ReduceMinPlace):
            return maker.results[0] if maker.op.axis == node.op.axis else None
    return None


def _numbers(graph: Graph) -> dict[Value, Value]:
    """For each largest element that has been found so, its number in its window."""
    return {}


def largest(r: Rewriter, node: Node) -> Result:
    """The largest elements of windows, if somebody asks for their places."""
    op, (x,), (result,) = node.op, node.operands, node.results
    windows = r.producers.get(x)
    if result not in r.once(_asked).values() or windows is None or not isinstance(windows.op, Windows) or not isinstance(op, ReduceMaxFirst):
        return None
    rank, places = windows.operands[0].type.rank, math.prod(windows.op.size)
    if min(op.axis) < rank or math.prod(x.type.shape[a] for a in op.axis) != places or places > _MOST_PLACES or not x.type.dtype.is_float:
        return None
    best, *others = (_place(r, windows, place) for place in itertools.product(*map(range, windows.op.size)))
    dtype = next(v.type.dtype for v, y in r.once(_asked).items() if y is result)
    (number,) = r.emit(Full(0, best.type.shape, dtype))
    for k, x in enumerate(others, 1):
        (at_most,) = r.emit(LessEqual(), x, best)
        (larger,) = r.emit(BitwiseAnd(), *r.emit(BitwiseNot(), at_most), *r.emit(Equal(), best, best))  # a NaN is, the first one
        (number,) = r.emit(Select(), larger, *r.emit(Full(k, best.type.shape, dtype)), number)
        (best,) = r.emit(Maximum(), best, x)
    (r.once(_numbers)[result],) = r.emit(Reshape(result.type.shape), number)
    return r.emit(Reshape(result.type.shape), best)


def _place(r: Rewriter, windows: Node, place: Sequence[int]) -> Value:
    """The elements at one place of all windows."""
    op, (x,) = windows.op, windows.operands
    assert isinstance(op, Windows)
    start, size, step = [0] * x.type.rank, list(x.type.shape), [1] * x.type.rank
    for a, k, count, s, d in zip(op.axes, place, op.counts(x.type.shape), op.stride, op.dilation, strict=True):
        start[a], size[a], step[a] = k * d, count, s
    (part,) = r.emit(Slice(tuple(start), tuple(size), tuple(step)), x)
    return part


def place_of_largest(r: Rewriter, node: Node) -> Result:
    """The number that was found with the largest element."""
    number = r.once(_numbers).get(r.once(_asked).get(node.results[0], node.results[0]))
    return None if number is None else (number,)


RULES = Rules((ReduceMaxFirst, largest), (ReduceMinPlace, place_of_largest))


def places_of_largest(graph: Graph) -> Graph:
    """The graph with largest elements found with their places, regions included."""
    return rewrite(graph, RULES) if any(isinstance(node.op, ReduceMinPlace) for node in graph.walk()) else graph
