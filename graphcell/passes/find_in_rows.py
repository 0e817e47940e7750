"""One element of each row, as losses take it, is found among the places of the row: `x[arange(n), y]` is max(select(place == y, x, -inf)) along rows,
and what is added to zeros there is select(place == y, added, 0).

Enters: a differentiated Graph without checks of indices. Leaves: an equal Graph in which such gathers from what loops compute, and such scatters, are
elementwise ops and reductions, which fuse with all around: a loss and its gradient are one loop nest, without zeros to scatter into.

Leaves gathers as they are where so many elements are taken that each for itself is quicker, and where a row does not lie side by side in what must be
in memory in any case: to find the place, the whole row is read.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from graphcell import dtype as dt
from graphcell.ir.graph import Graph, Node, Value
from graphcell.ir.op import Op
from graphcell.ir.types import Shape
from graphcell.ops.arithmetic import Add, Cast, Select
from graphcell.ops.base import Elementwise
from graphcell.ops.comparison import Equal, Less
from graphcell.ops.creation import Iota
from graphcell.ops.indexing import Gather, GatherElements, Scatter, ScatterElements
from graphcell.ops.movement import BroadcastTo, Reshape
from graphcell.ops.reduction import ReduceMax
from graphcell.passes.rewrite import Rewriter, Rules, rewrite

_MOST_OF_A_ROW = 4
"""Elements of a row that are found among its places."""
Result = Sequence[Value] | None


def take(r: Rewriter, node: Node) -> Result:
    """One element of each row of what loops compute. What lies in memory in any case is read there."""
    x, *indices = node.operands
    made = r.producers.get(x)
    if made is None or not isinstance(made.op, Elementwise) or not x.type.dtype.is_float or x.type.size == 0:
        return None
    found = _places_in_rows(r, node.op, x.type.shape, indices)
    if found is None:
        return None
    axis, place = found
    side_by_side = axis == x.type.rank - 1
    taken = r.once(_gathers).get(x, 0)  # none of what this pass made itself
    if not 0 < taken <= (_MOST_OF_A_ROW if side_by_side else 1) or (x in r.graph.outputs and not side_by_side):
        return None
    # The largest of the element and of minus infinities: unlike a sum this leaves -0 as it is.
    (chosen,) = r.emit(Select(), _hit(r, x.type.shape, axis, place), x, *r.full(-math.inf, x))
    (largest,) = r.emit(ReduceMax((axis,), True), chosen)
    return (_shaped(r, largest, node.results[0].type.shape),)


def put(r: Rewriter, node: Node) -> Result:
    """What is added to zeros at one place of each row."""
    op, (x, *indices, updates) = node.op, node.operands
    assert isinstance(op, (Scatter, ScatterElements))
    shape = x.type.shape
    if op.kind != "add" or not x.type.dtype.is_float or x.type.size == 0 or not _is_zero(r, x):
        return None
    if r.once(_scatters)[shape] > _MOST_OF_A_ROW:
        return None
    found = _places_in_rows(r, op, shape, indices)
    if found is None:
        return None
    axis, place = found
    (added,) = r.emit(Add(), updates, *r.full(0.0, updates))  # as -0 is added to zero
    (spread,) = r.emit(BroadcastTo(shape), _shaped(r, added, place.type.shape))
    return r.emit(Select(), _hit(r, shape, axis, place), spread, x)


def _gathers(graph: Graph) -> Counter[Value]:
    """How often each value is gathered from."""
    return Counter(n.operands[0] for n in graph.nodes if isinstance(n.op, (Gather, GatherElements)))


def _scatters(graph: Graph) -> Counter[Shape]:
    """How often something of each shape is scattered into."""
    return Counter(n.results[0].type.shape for n in graph.nodes if isinstance(n.op, (Scatter, ScatterElements)))


def _places_in_rows(r: Rewriter, op: Op, shape: Shape, indices: Sequence[Value]) -> tuple[int, Value] | None:
    """The axis of the rows, and the place in each with extent 1 there. Of several indices all but one must count the rows."""
    if isinstance(op, (GatherElements, ScatterElements)):
        axis, place = op.axis, indices[0]
    else:
        assert isinstance(op, (Gather, Scatter))
        if op.axes != tuple(range(len(shape))):
            return None
        for axis in reversed(op.axes):
            if all(_counts(r, indices[k], k - (k > axis)) for k in op.axes if k != axis):
                break
        else:
            return None
        place = indices[axis]
        if place.type.shape != shape[:axis] + shape[axis + 1 :]:
            return None
        (place,) = r.emit(Reshape((*shape[:axis], 1, *shape[axis + 1 :])), place)
    fits = place.type.shape == (*shape[:axis], 1, *shape[axis + 1 :]) and shape[axis] < 1 << 31
    return (axis, place) if fits else None


def _counts(r: Rewriter, index: Value, axis: int) -> bool:
    """Whether an index is 0, 1, … along an axis."""
    made = r.producers.get(index)
    if made is None or not 0 <= axis < index.type.rank:
        return False
    if isinstance(made.op, Iota):
        return made.op.axis == axis
    if isinstance(made.op, Cast) and made.op.dtype.bits >= 32:
        return _counts(r, made.operands[0], axis)
    (source, *_) = made.operands or (index,)
    if isinstance(made.op, BroadcastTo) and source.type.rank == index.type.rank and source.type.shape[axis] == index.type.shape[axis]:
        return _counts(r, source, axis)
    others = index.type.shape[:axis] + index.type.shape[axis + 1 :]
    return isinstance(made.op, Reshape) and source.type.rank == 1 and others == (1,) * len(others) and _counts(r, source, 0)


def _hit(r: Rewriter, shape: Shape, axis: int, index: Value) -> Value:
    """Where the places along an axis are those of `index`, which has one for each row. It was checked; negative ones count from the end."""
    if index.type.dtype is not dt.int32:
        (index,) = r.emit(Cast(dt.int32), index)
    (from_end,) = r.emit(Less(), index, *r.full(0, index))
    (place,) = r.emit(Select(), from_end, *r.emit(Add(), index, *r.full(shape[axis], index)), index)
    (hit,) = r.emit(Equal(), *r.emit(Iota(shape, axis, dt.int32)), *r.emit(BroadcastTo(shape), place))
    return hit


def _is_zero(r: Rewriter, x: Value) -> bool:
    """Whether x is +0 in every element."""
    number = r.number(x)
    return number is not None and number == 0 and math.copysign(1.0, number) > 0


def _shaped(r: Rewriter, x: Value, shape: Shape) -> Value:
    return x if x.type.shape == shape else r.emit(Reshape(shape), x)[0]


_RULES = Rules((Gather, take), (GatherElements, take), (Scatter, put), (ScatterElements, put))


def find_in_rows(graph: Graph) -> Graph:
    """The graph with such elements found by their places, regions included."""
    return rewrite(graph, _RULES)
