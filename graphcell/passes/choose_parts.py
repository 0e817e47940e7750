"""What is put together along rows of quickly computed parts, as by a rotation of pairs (-b, a), is computed where it is read.

Enters: a Graph. Leaves: an equal Graph in which such a concatenation, read by a few loops alone, is a choice, by the place in the row, between its parts:
each is computed of operands amid padding, which loops read with guards. A concatenation is read so in any case (codegen/legalize.py), but of what lies in
memory: its parts would be loops of their own before. Refuses parts of which something is not in memory in any case, and what is no float of 32 or 64 bits.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphcell.dtype import int32
from graphcell.ir.graph import Graph, Node, Value
from graphcell.ops.arithmetic import Select
from graphcell.ops.base import Elementwise, Reduction, View
from graphcell.ops.comparison import Less
from graphcell.ops.creation import Constant, Full, Iota, number_of
from graphcell.ops.movement import BroadcastTo, Concat, Pad, Slice
from graphcell.passes.costs import masks_are_quick
from graphcell.passes.part_by_part import is_same_along
from graphcell.passes.rewrite import Rewriter, Rules, rewrite

_MOST_PARTS, _MOST_READERS = 4, 4
"""As of what lies in memory and is chosen."""
_SHORTEST_PART = 16
"""Elements of a row, of each part."""
_MOST_OPS = 4
"""Elementwise ops, one of another, of a part."""
_LONGEST_ROW = 1 << 31
"""From which on places in rows are no numbers of 32 bits."""


def choose_parts(graph: Graph) -> Graph:
    """The graph with such concatenations computed where they are read, regions included."""
    if not any(isinstance(node.op, Concat) for node in graph.walk()):
        return graph
    return rewrite(graph, Rules((Concat, _chosen)))


def _chosen(r: Rewriter, node: Node) -> Sequence[Value] | None:
    if node.results[0] not in r.once(_find):
        return None
    whole, (*others, last) = node.results[0].type, node.operands
    end = whole.shape[-1] - last.type.shape[-1]
    result = _amid_padding(r, last, end, 0)
    for part in reversed(others):
        begin = end - part.type.shape[-1]
        places, bound = r.emit(Iota(whole.shape, whole.rank - 1, int32)), r.emit(Full(end, whole.shape, int32))
        (result,) = r.emit(Select(), *r.emit(Less(), *places, *bound), _amid_padding(r, part, begin, whole.shape[-1] - end), result)
        end = begin
    return (result,)


def _amid_padding(r: Rewriter, v: Value, before: int, behind: int) -> Value:
    """`v` with any numbers before and behind it in its rows."""
    made, (*outer, row) = r.producers.get(v), v.type.shape
    shape = (*outer, before + row + behind)
    if made is not None and isinstance(made.op, Elementwise):
        padded = {x: _amid_padding(r, x, before, behind) for x in dict.fromkeys(made.operands)}
        (result,) = r.emit(made.op, *(padded[x] for x in made.operands))
    elif made is not None and isinstance(made.op, Full):
        (result,) = r.emit(Full(made.op.value, shape, made.op.dtype))
    elif made is not None and isinstance(made.op, BroadcastTo) and is_same_along(len(outer), made):
        (result,) = r.emit(BroadcastTo(shape), *made.operands)
    else:
        low, high, interior = ((0,) * len(outer) + (n,) for n in (before, behind, 0))
        (result,) = r.emit(Pad(low, high, interior, number_of(0, v.type.dtype)), v)
    return result


# -- what is chosen ------------------------------------------------------------------------------------------------
def _find(graph: Graph) -> frozenset[Value]:
    """Results of concatenations that are computed where they are read."""
    return _Finder(graph).run()


class _Finder:
    def __init__(self, graph: Graph):
        self.made_by, self.users, self.outputs = graph.producers(), graph.users(), frozenset(graph.outputs)
        self.nodes = graph.nodes
        self.found: set[Value] = set()

    def run(self) -> frozenset[Value]:
        for node in self.nodes:
            if isinstance(node.op, Concat) and self.pays(node, node.op):
                self.found.add(node.results[0])
        return frozenset(self.found)

    def pays(self, node: Node, op: Concat) -> bool:
        """Whether a loop of its own can be spared for a part, and the others can be read with guards."""
        (whole,) = node.results
        if op.axis != whole.type.rank - 1 or not 1 < len(node.operands) <= _MOST_PARTS or whole.type.shape[-1] >= _LONGEST_ROW:
            return False
        if any(part.type.shape[-1] < _SHORTEST_PART or not part.type.size for part in node.operands):
            return False
        return self._is_read_by_loops(whole) and any(map(self._is_made_by_loop, node.operands)) and all(map(self._is_quick, node.operands))

    def _is_made_by_loop(self, v: Value) -> bool:
        made = self.made_by.get(v)
        return made is not None and isinstance(made.op, Elementwise)

    def _is_read_by_loops(self, v: Value) -> bool:
        """Whether a few loops read v, as it is, and nothing else does."""
        users = self.users.get(v, [])
        return v not in self.outputs and 0 < len(users) <= _MOST_READERS and all(isinstance(user.op, (Elementwise, Reduction)) for user in users)

    def _is_quick(self, v: Value, ops: int = _MOST_OPS) -> bool:
        """Whether v is computed by few quick ops, for nobody else, of what lies in memory in any case, side by side."""
        made, dtype = self.made_by.get(v), v.type.dtype
        if not dtype.is_float or not masks_are_quick(dtype) or v in self.found:
            return False
        if made is None or isinstance(made.op, (Full, Constant)):
            return True
        if isinstance(made.op, Elementwise):
            alone = len(self.users[v]) == 1 and v not in self.outputs
            return alone and ops > 0 and made.op.fast and not made.op.has_effect and all(self._is_quick(x, ops - 1) for x in made.operands)
        if isinstance(made.op, BroadcastTo) and is_same_along(v.type.rank - 1, made):
            return True
        return self._lies_along_rows(v)

    def _lies_along_rows(self, v: Value) -> bool:
        """Whether v is, or is cut and repeated of, what is no result of a loop that could do without writing it."""
        made, is_cut = self.made_by.get(v), False
        while made is not None and isinstance(made.op, (Slice, BroadcastTo)):
            if isinstance(made.op, Slice) and made.op.step[-1] != 1:
                return False
            is_cut |= isinstance(made.op, Slice)
            (v,) = made.operands
            made = self.made_by.get(v)
        if v in self.found:  # which will not lie in memory
            return False
        # what is cut is read at other places than it is made, by way of memory
        return made is None or not isinstance(made.op, View if is_cut else (View, Elementwise, Reduction))
