"""The largest element of a small window and its place, found in one go.

Enters: a differentiated Graph, in which max pooling is `reduce_max_first` over windows and its gradient asks for the first place of what that gave:
the smallest number of an element that equals it, or is NaN. Leaves: an equal Graph in which the elements of such windows are compared one after the
other, as slices that lie side by side, and each that is larger leaves its number: the windows are read once, not three times. Refuses windows that nobody
asks for places of, windows of many elements, whose code would be long, and those whose slices would be gathered element by element or padded each anew.
Runs when it is settled what is computed again: that asks about values one by one, of which this makes many.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from graphcell.ir.graph import Graph, Node, Value
from graphcell.ops.arithmetic import Maximum, Select
from graphcell.ops.comparison import BitwiseAnd, BitwiseNot, BitwiseOr, Equal, LessEqual, NotEqual
from graphcell.ops.creation import Full
from graphcell.ops.movement import BroadcastTo, Pad, Reshape, Slice
from graphcell.ops.pooling import ReduceMaxFirst, ReduceMinPlace, Windows
from graphcell.passes.costs import SMALL_STRIDE
from graphcell.passes.rewrite import Rewriter, Rules, rewrite

_MOST_ELEMENTS = 16
"""Of a window. Measured on Zen 4: convolutions of sequences and pooling of 4 and of 12 elements, with gradients, take 0.7 of the time."""
Result = Sequence[Value] | None


def _asked(graph: Graph) -> dict[Value, Value]:
    """The places that are asked for, by the largest elements that they are of."""
    made = {v: node for node in graph.nodes for v in node.results}
    places = (node for node in graph.nodes if isinstance(node.op, ReduceMinPlace))
    return {largest: node.results[0] for node in places if (largest := _largest_of(made, node)) is not None}


def _largest_of(made: dict[Value, Node], place: Node) -> Value | None:
    """What `place` is the place of: with select(x == largest | x != x, number, count) as its operand, the form in which the gradient of `reduce_max_first`
    asks. Nothing else asks about that: argmax is made of `reduce_max`."""
    chosen = made.get(place.operands[0])
    hit = made.get(chosen.operands[0]) if chosen is not None and isinstance(chosen.op, Select) else None
    if hit is None or not isinstance(hit.op, BitwiseOr):
        return None
    tests = [made[v] for v in hit.operands if v in made]
    equal = next((t for t in tests if isinstance(t.op, Equal)), None)
    is_nan = next((t for t in tests if isinstance(t.op, NotEqual) and t.operands[0] is t.operands[1]), None)
    if equal is None or is_nan is None or is_nan.operands[0] not in equal.operands:
        return None
    for v in equal.operands:
        maker = made.get(v)
        while maker is not None and isinstance(maker.op, (BroadcastTo, Reshape)):
            maker = made.get(maker.operands[0])
        if maker is not None and isinstance(maker.op, ReduceMaxFirst) and maker.operands == is_nan.operands[:1]:
            assert isinstance(place.op, ReduceMinPlace)
            return maker.results[0] if maker.op.axis == place.op.axis else None
    return None


class _Search:
    """The rules, and what they leave for each other."""

    def __init__(self) -> None:
        self.found: dict[Value, Value] = {}
        """For a place that is asked for: the number that has been found."""
        self.rules = Rules((ReduceMaxFirst, self.largest), (ReduceMinPlace, self.place))

    def largest(self, r: Rewriter, node: Node) -> Result:
        """The largest elements of windows, with their numbers."""
        op, (x,), (result,) = node.op, node.operands, node.results
        windows, place = r.producers.get(x), r.once(_asked).get(result)
        assert isinstance(op, ReduceMaxFirst)
        if place is None or windows is None or not isinstance(windows.op, Windows) or not x.type.dtype.is_float:
            return None
        (source,), elements = windows.operands, math.prod(windows.op.size)
        is_whole = min(op.axis) >= source.type.rank and math.prod(x.type.shape[a] for a in op.axis) == elements
        if not is_whole or elements > _MOST_ELEMENTS or not _are_slices_quick(r, windows.op, source):
            return None
        best, *others = (_slice(r, windows.op, source, tap) for tap in itertools.product(*map(range, windows.op.size)))
        (number,) = r.emit(Full(0, best.type.shape, place.type.dtype))
        for k, element in enumerate(others, 1):
            (at_most,) = r.emit(LessEqual(), element, best)
            (larger,) = r.emit(BitwiseAnd(), *r.emit(BitwiseNot(), at_most), *r.emit(Equal(), best, best))  # a NaN is, the first one
            (number,) = r.emit(Select(), larger, *r.emit(Full(k, best.type.shape, place.type.dtype)), number)
            (best,) = r.emit(Maximum(), best, element)
        (self.found[place],) = r.emit(Reshape(place.type.shape), number)
        return r.emit(Reshape(result.type.shape), best)

    def place(self, r: Rewriter, node: Node) -> Result:
        """The number that was found with the largest element."""
        number = self.found.get(node.results[0])
        return None if number is None else (number,)


def _are_slices_quick(r: Rewriter, op: Windows, x: Value) -> bool:
    """Whether elements of x at one place of all windows lie side by side, or are sorted out of whole vectors without padding. Measured on Zen 4: gradients of
    pooling along the last dimension would take 1.0 to 1.4 of the time with strides from 5 on, and 1.1 to 1.4 of padded images."""
    strides = dict(zip(op.axes, op.stride, strict=True))
    made = r.producers.get(x)
    last = x.type.rank - 1
    return last not in strides or (strides[last] <= SMALL_STRIDE and not (made is not None and isinstance(made.op, Pad)))


def _slice(r: Rewriter, op: Windows, x: Value, tap: Sequence[int]) -> Value:
    """The elements of x at one place of all windows."""
    start, size, step = [0] * x.type.rank, list(x.type.shape), [1] * x.type.rank
    for a, k, count, s, d in zip(op.axes, tap, op.counts(x.type.shape), op.stride, op.dilation, strict=True):
        start[a], size[a], step[a] = k * d, count, s
    (part,) = r.emit(Slice(tuple(start), tuple(size), tuple(step)), x)
    return part


def places_of_largest(graph: Graph) -> Graph:
    """The graph with largest elements found with their places, regions included."""
    return rewrite(graph, _Search().rules) if any(isinstance(node.op, ReduceMinPlace) for node in graph.walk()) else graph
