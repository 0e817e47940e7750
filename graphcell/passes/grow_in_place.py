"""Concatenations that grow share one buffer: of keys = concat(keys, k), token by token, only the new part is written each time.

Enters: a Graph. Leaves: an equal Graph in which a chain of concatenations, each of the one before and something short behind it, is one
concatenation with room for all that follows, and updates of slices. Codegen makes these in place, since whatever else reads a link of the chain is
needed for what comes behind it, and so runs before; a chain ends where that is not known. Links are read as slices, which are views: along any but the
last dimension these are whole runs of memory. What only loops read is left alone: they read the parts of a concatenation where they lie.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphcell.ir.graph import Graph, Node, Value
from graphcell.ops.base import Elementwise, Reduction, View
from graphcell.ops.creation import Full, number_of
from graphcell.ops.movement import Concat, Slice, UpdateSlice
from graphcell.passes.rewrite import Rewriter, Rules, rewrite
from graphcell.records import dataclass

_LEAST_ELEMENTS = 4096
"""Of a link, below which it is as quick to copy it."""
_LEAST_TIMES = 4
"""A link is so many times as long as what is put behind it, at least."""


@dataclass(frozen=True, slots=True)
class _Link:
    """A concatenation of a chain, whose last one is `total` long."""

    total: int
    is_first: bool


def grow_in_place(graph: Graph) -> Graph:
    """`graph` with chains of concatenations in one buffer each."""
    return rewrite(graph, Rules((Concat, _Chains().rule)))


class _Chains:
    def __init__(self) -> None:
        self.links: dict[Graph, dict[Value, _Link]] = {}

    def rule(self, r: Rewriter, node: Node) -> Sequence[Value] | None:
        """A link as a slice of the buffer, or as all of it."""
        if r.graph not in self.links:
            self.links[r.graph] = _links(r.graph)
        (result,) = node.results
        link = self.links[r.graph].get(result)
        if link is None:
            return None
        assert isinstance(node.op, Concat)
        axis, shape = node.op.axis, result.type.shape
        if link.is_first:
            room = (*shape[:axis], link.total - shape[axis], *shape[axis + 1 :])
            whole = r.emit(node.op, *node.operands, *r.emit(Full(number_of(0, result.type.dtype), room, result.type.dtype)))[0]
        else:
            whole, at = r.producers[node.operands[0]].operands[0], node.operands[0].type.shape[axis]
            for v in node.operands[1:]:
                start = tuple(at if d == axis else 0 for d in range(len(shape)))
                whole = r.emit(UpdateSlice(start, (1,) * len(shape)), whole, v)[0]
                at += v.type.shape[axis]
        return [whole] if shape[axis] == link.total else r.emit(Slice((0,) * len(shape), shape, (1,) * len(shape)), whole)


def _links(graph: Graph) -> dict[Value, _Link]:
    """The links of all chains, each of two concatenations or more."""
    made_by, users, outputs = graph.producers(), graph.users(), set(graph.outputs)
    place = {node: k for k, node in enumerate(graph.nodes)}
    following: dict[Value, Node] = {}
    for node in graph.nodes:
        before = node.operands[0] if isinstance(node.op, Concat) else None
        if before is not None and before in made_by and _grows(node, made_by[before]):
            needed = _needed_for(made_by, node.operands[1:], place, place[made_by[before]])
            others = _readers(users, outputs, before, node)
            if others <= needed and before not in node.operands[1:] and any(map(_wants_memory, others)):
                following[before] = node
    found: dict[Value, _Link] = {}
    for first in following.keys() - {node.results[0] for node in following.values()}:
        chain = [first]
        while chain[-1] in following:
            chain.append(following[chain[-1]].results[0])
        op = made_by[first].op
        assert isinstance(op, Concat)
        total = chain[-1].type.shape[op.axis]
        found |= {v: _Link(total, v is first) for v in chain}
    return found


def _grows(node: Node, before: Node) -> bool:
    """Whether a concatenation puts something short behind another one."""
    if not isinstance(before.op, Concat) or before.op != node.op or node.op.axis == node.results[0].type.rank - 1:
        return False
    size = before.results[0].type.size
    return size >= _LEAST_ELEMENTS and size >= _LEAST_TIMES * (node.results[0].type.size - size) > 0


def _needed_for(made_by: dict[Value, Node], values: Sequence[Value], place: dict[Node, int], since: int) -> set[Node | None]:
    """The nodes behind place `since` that must run before `values` are there; those before it read no link that is made there."""
    found: set[Node | None] = set()
    waiting = list(values)
    while waiting:
        node = made_by.get(waiting.pop())
        if node is not None and node not in found and place[node] > since:
            found.add(node)
            waiting += node.operands
    return found


def _readers(users: dict[Value, list[Node]], outputs: set[Value], value: Value, besides: Node | None = None) -> set[Node | None]:
    """The nodes that read a value, itself (`besides` this one) or through views; None for who calls the program."""
    found: set[Node | None] = {None} if value in outputs else set()
    for node in users.get(value, ()):
        if isinstance(node.op, View):
            found |= _readers(users, outputs, node.results[0])
        elif node is not besides:
            found.add(node)
    return found


def _wants_memory(node: Node | None) -> bool:
    """Whether a node is no part of a loop nest, so that its operands lie in memory."""
    return node is not None and not isinstance(node.op, (Elementwise, Reduction))
