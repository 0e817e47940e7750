"""What is read by parts, red, green and blue or the two halves of a row, is computed part by part: where y = f(x), and y[0], y[1] meet in something, and y is
needed as a whole, too, then y is concat(f(x[0]), f(x[1])). So it is where x is given and read by its parts, and sums or extrema of all of it are needed.

Enters: a Graph. Leaves: an equal Graph in which elementwise ops of one shape that hang together, and their sums and extrema, are done for each of a few parts
if slices read one of them by all its parts. So what the parts meet in, as a gate does or the grey of three colours, and what is done to the whole before and
after, is one loop nest, which reads and writes memory once; else it would be one before, one for the parts, and one after. The whole is put together only
for who needs it, its parts as a rule written in place.

Refuses what ends a matrix product (it is computed where the product has its results in registers), what is read in other ways, more than a few ops, and
short parts: they would cut vectors. Sums of half precision keep their order; other floats that are added by parts are rounded otherwise, and native sums
do not promise an order.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from graphcell.ir.graph import Graph, Node, Value
from graphcell.ops.base import Elementwise, Reduction, View
from graphcell.ops.contraction import MatMul
from graphcell.ops.convolution import Conv, ConvInputGrad
from graphcell.ops.indexing import Gather, GatherElements
from graphcell.ops.movement import BroadcastTo, Concat, Slice
from graphcell.passes.part_by_part import JOINED_BY, MOST_PARTS, SHORTEST_LINE, SMALLEST_PART, is_same_along, slices_of_parts
from graphcell.passes.rewrite import Rewriter, Rules, rewrite
from graphcell.records import dataclass

_MOST_OPS = 128
"""Elementwise ops, of all parts, that may hang together."""
_FEWER = 16
"""What is so many times smaller may be stored, to be read by parts."""
_READ_WHOLE = (Conv, ConvInputGrad, Gather, GatherElements, MatMul)
"""Ops whose results loops take as they come."""


@dataclass(frozen=True)
class _Cut:
    """A dimension in equal parts."""

    axis: int
    parts: int


def take_apart(graph: Graph) -> Graph:
    """The graph with what is read by parts computed part by part, regions included."""
    if not any(isinstance(node.op, Slice) for node in graph.walk()):
        return graph
    return rewrite(graph, Rules((Elementwise, _elementwise), (Reduction, _reduction)))


def _elementwise(r: Rewriter, node: Node) -> Sequence[Value] | None:
    """op(x, y) is concat(op(x[0], y[0]), op(x[1], y[1]))."""
    cut = r.once(_find_cuts).get(node.results[0])
    if cut is None:
        return None
    operands = [_parts(r, v, cut) for v in node.operands]
    return r.emit(Concat(cut.axis), *(r.emit(node.op, *of_part)[0] for of_part in zip(*operands, strict=True)))


def _reduction(r: Rewriter, node: Node) -> Sequence[Value] | None:
    """The sum of all parts is that of their sums; sums along other dimensions are put together."""
    cut, op = r.once(_find_cuts).get(node.results[0]), node.op
    if cut is None:
        return None
    assert isinstance(op, Reduction)
    first, *others = (r.emit(op, part)[0] for part in _parts(r, node.operands[0], cut))
    if cut.axis not in op.axis:
        return r.emit(Concat(cut.axis - (0 if op.keep_dims else sum(a < cut.axis for a in op.axis))), first, *others)
    for other in others:
        (first,) = r.emit(JOINED_BY[type(op)](), first, other)
    return (first,)


def _parts(r: Rewriter, v: Value, cut: _Cut) -> Sequence[Value]:
    made, size = r.producers.get(v), v.type.shape[cut.axis] // cut.parts
    if made is not None and made.op == Concat(cut.axis) and all(p.type.shape[cut.axis] == size for p in made.operands):
        return made.operands
    return slices_of_parts(r, v, cut.axis, [size] * cut.parts)


# -- what is taken apart -----------------------------------------------------------------------------------------
def _find_cuts(graph: Graph) -> dict[Value, _Cut]:
    """What is taken apart: results of elementwise ops, and of the reductions that read them."""
    return _Finder(graph).run()


class _Finder:
    def __init__(self, graph: Graph):
        self.graph, self.made_by = graph, graph.producers()
        self.users: dict[Value, list[Node]] = {}
        for node in graph.nodes:
            for v in dict.fromkeys(node.operands):
                self.users.setdefault(v, []).append(node)

    def run(self) -> dict[Value, _Cut]:
        found: dict[Value, _Cut] = {}
        for v in self.graph.inputs:
            cut = self._cut_of(v) if self._parts_are_read_by_loops(v) else None
            for node in self.users.get(v, ()) if cut is not None else ():
                if isinstance(node.op, Elementwise) and node.results[0].type.shape == v.type.shape:
                    self._add(node, cut, found, given=True)
        for node in self.graph.nodes:
            if isinstance(node.op, Elementwise):
                self._add(node, self._cut_of(node.results[0]), found)
        return found

    def _add(self, node: Node, cut: _Cut | None, found: dict[Value, _Cut], given: bool = False) -> None:
        """All that hangs together with `node`, by values that are made or given, or else by those alone that are made, if it may be cut so. Where it hangs on
        what is given (`given`: that is sliced), it must be there for sums or extrema: else a loop nest of the whole and one of the parts do as well.
        """
        if cut is None or node.results[0] in found:
            return
        for shared in (True, False):
            together = self._together(node, shared)
            made = dict.fromkeys(n.results[0] for n in together)
            read = dict.fromkeys(v for n in together for v in n.operands if shared and v not in made and v.type.shape == node.results[0].type.shape)
            reductions, others = self._reductions(made), self._reductions(read)
            whole = bool(reductions or others) if shared or given else any(self._is_read_whole(v, cut) for v in made)
            if whole and len(together) * cut.parts <= _MOST_OPS and all(self._may_be_cut(n, cut) for n in together):
                if all(_is_done_by_parts(u, cut) for u in (*reductions, *others)) and all(_is_along(u, cut) for u in others):
                    found |= {n.results[0]: cut for n in (*together, *reductions, *others)}
                    return

    def _reductions(self, values: Iterable[Value]) -> list[Node]:
        return [u for v in values for u in self.users.get(v, ()) if isinstance(u.op, Reduction)]

    def _is_read_whole(self, v: Value, cut: _Cut) -> bool:
        """Whether more than its slices and what is computed of it point by point read v; else the slices are those of what it is made of."""
        return v in self.graph.outputs or any(_cut_by(u, v) != cut and not isinstance(u.op, Elementwise) for u in self.users.get(v, ()))

    def _parts_are_read_by_loops(self, v: Value) -> bool:
        slices = [node for node in self.users.get(v, ()) if isinstance(node.op, Slice)]
        return bool(slices) and all(isinstance(u.op, Elementwise) for node in slices for u in self.users.get(node.results[0], ()))

    def _cut_of(self, v: Value) -> _Cut | None:
        """The dimension of v that its slices cut into a few equal parts."""
        shape = v.type.shape
        slices = {node.op: cut for node in self.users.get(v, ()) if (cut := _cut_by(node, v)) is not None}
        for cut, count in Counter(slices.values()).items():
            line = math.prod(shape[cut.axis :]) // cut.parts
            if count == cut.parts <= MOST_PARTS and line >= SHORTEST_LINE and v.type.size // cut.parts >= SMALLEST_PART:
                return cut
        return None

    def _together(self, node: Node, shared: bool) -> list[Node]:
        """The elementwise ops of one shape that hang together with this one, by results that they read, and if `shared` by whatever they read."""
        shape, found, stack = node.results[0].type.shape, {node: None}, [node]
        while stack and len(found) <= _MOST_OPS:
            n = stack.pop()
            near = [self.made_by[v] for v in n.operands if v in self.made_by] + self.users.get(n.results[0], [])
            if shared:
                near += [u for v in n.operands if v.type.shape == shape for u in self.users[v]]
            more = [m for m in near if isinstance(m.op, Elementwise) and m.results[0].type.shape == shape and m not in found]
            found |= dict.fromkeys(more)
            stack += more
        return list(found)

    def _may_be_cut(self, node: Node, cut: _Cut) -> bool:
        if node.op.has_effect or len(node.results) > 1:
            return False
        (v,) = node.results
        return all(self._is_given(x, cut.axis) for x in node.operands) and all(self._reads_well(u, v, cut) for u in self.users.get(v, ()))

    def _is_given(self, v: Value, axis: int) -> bool:
        """Whether parts of an operand are at hand: an op of the same shape makes it, all of them are equal, or it is in memory anyway, or small."""
        made, size = self.made_by.get(v), v.type.size
        if made is not None and (isinstance(made.op, Elementwise) or (isinstance(made.op, BroadcastTo) and is_same_along(axis, made))):
            return True
        while made is not None and isinstance(made.op, View):
            v, made = made.operands[0], self.made_by.get(made.operands[0])
        if made is not None and isinstance(made.op, _READ_WHOLE):
            return False
        return made is None or not isinstance(made.op, (Elementwise, Reduction)) or v.type.size * _FEWER <= size

    def _reads_well(self, user: Node, v: Value, cut: _Cut) -> bool:
        return _cut_by(user, v) == cut if isinstance(user.op, Slice) else not isinstance(user.op, View)


def _is_done_by_parts(node: Node, cut: _Cut) -> bool:
    """Whether a reduction of parts takes as few loop nests as that of the whole: of rows, of everything, or of parts of one element."""
    op, x = node.op, node.operands[0].type
    assert isinstance(op, Reduction)
    if (x.dtype.is_float and x.dtype.bits < 32) or (cut.axis in op.axis and type(op) not in JOINED_BY):
        return False
    return cut.axis == x.rank - 1 or len(op.axis) == x.rank or x.shape[cut.axis] == cut.parts


def _is_along(node: Node, cut: _Cut) -> bool:
    return isinstance(node.op, Reduction) and cut.axis in node.op.axis


def _cut_by(node: Node, v: Value) -> _Cut | None:
    """The cut of v of which a slice takes one part."""
    op, shape = node.op, v.type.shape
    if not isinstance(op, Slice):
        return None
    axes = [a for a, size in enumerate(op.size) if size != shape[a]]
    if len(axes) != 1 or any(s != 1 for s in op.step):
        return None
    (axis,) = axes
    size = op.size[axis]
    return _Cut(axis, shape[axis] // size) if size and op.start[axis] % size == 0 == shape[axis] % size else None
