"""Common subexpression elimination: equal ops on equal operands are computed once.

Enters: a Graph. Leaves: an equal Graph, the later of two equal nodes gone. Ops with effects are never merged;
random ops take their state as an operand and are like any other. Regions are merged within themselves, and
two ops with regions if these are equal. Of two reductions that differ by whether they keep dimensions the later is a reshape of the earlier.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable

from graphcell.ir.graph import Graph, Node, Value, structural_key
from graphcell.ir.op import Op, exact_key
from graphcell.ops.arithmetic import Add, Mul
from graphcell.ops.base import Reduction
from graphcell.ops.movement import Reshape


def merge_common(graph: Graph) -> Graph:
    """Merges equal nodes, in regions too."""
    return _Merging().run(graph)


class _Merging:
    def __init__(self) -> None:
        self.done: dict[Graph, Graph] = {}

    def run(self, graph: Graph) -> Graph:
        found = self.done.get(graph)
        if found is None:
            found = self.done[graph] = self.merge(graph)
        return found

    def merge(self, graph: Graph) -> Graph:
        table: dict[Value, Value] = {}
        first: dict[Hashable, list[Node]] = {}
        nodes: list[Node] = []
        changed = False
        for before in graph.nodes:
            node = _reshaped(self.renamed(before, table), first)
            changed = changed or node is not before
            earlier = self.earlier(node, first)
            if earlier is None:
                nodes.append(node)
                continue
            changed = True
            for old, new in zip(node.results, earlier.results, strict=True):
                table[old] = new
        if not changed:
            return graph
        return Graph(graph.name, graph.inputs, nodes, [table.get(v, v) for v in graph.outputs])

    def renamed(self, node: Node, table: dict[Value, Value]) -> Node:
        """`node` with merged operands and regions; the same object if nothing changed."""
        operands, op = node.operands, node.op
        if table:
            operands = tuple([table.get(v, v) for v in operands])
        if op.regions:
            regions = tuple(map(self.run, op.regions))
            if any(a is not b for a, b in zip(regions, op.regions, strict=True)):
                op = op.with_regions(regions)
        if op is node.op and operands == node.operands:
            return node
        return Node(op, operands, node.results, node.span)

    def earlier(self, node: Node, first: dict[Hashable, list[Node]]) -> Node | None:
        """A node before this one that computes the same; if there is none, this one is noted."""
        op = node.op
        if op.has_effect or any(g.has_effect() for g in op.regions):
            return None
        operands = tuple(sorted(node.operands, key=id)) if isinstance(op, (Add, Mul)) else node.operands  # x + y is y + x
        same = first.setdefault((exact_key(op), operands), [])
        for other in same:
            if _same_regions(op, other.op):
                return other
        same.append(node)
        return None


def _reshaped(node: Node, first: dict[Hashable, list[Node]]) -> Node:
    """`node`; a reshape of an equal reduction's result if there is one with the dimensions that this one drops, or the other way round."""
    op = node.op
    if not isinstance(op, Reduction):
        return node
    twin = dataclasses.replace(op, keep_dims=not op.keep_dims)  # type: ignore[type-var]
    same = first.get((exact_key(twin), node.operands))
    return Node(Reshape(node.results[0].type.shape), same[0].results, node.results, node.span) if same else node


def _same_regions(x: Op, y: Op) -> bool:
    pairs = zip(x.regions, y.regions, strict=True)
    return all(a is b or structural_key(a) == structural_key(b) for a, b in pairs)
