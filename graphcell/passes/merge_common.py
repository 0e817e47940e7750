"""Common subexpression elimination: equal ops on equal operands are computed once.

Enters: a Graph. Leaves: an equal Graph, the later of two equal nodes gone. Ops with effects are never merged; random ops take their state
as an operand and are like any other. Regions are merged within themselves, and two ops with regions if these are equal.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable

from graphcell.ir.graph import Graph, Node, Value
from graphcell.ir.op import Op


def merge_common(graph: Graph) -> Graph:
    """Merges equal nodes, in regions too."""
    return _Merging().run(graph)


class _Merging:
    def __init__(self) -> None:
        self.done: dict[Graph, Graph] = {}
        self.float_fields: dict[type[Op], tuple[str, ...]] = {}

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
            node = self.renamed(before, table)
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
        same = first.setdefault((self.op_key(op), node.operands), [])
        for other in same:
            if not op.regions or self.same_regions(op, other.op):
                return other
        same.append(node)
        return None

    def same_regions(self, x: Op, y: Op) -> bool:
        pairs = zip(x.regions, y.regions, strict=True)
        return all(a is b or self.graph_key(a) == self.graph_key(b) for a, b in pairs)

    def op_key(self, op: Op) -> Hashable:
        """Equal for ops that compute the same, bit for bit, but for their regions."""
        cls = type(op)
        if op.regions:
            return (cls, tuple([(k, repr(v)) for k, v in op.attributes().items()]))
        floats = self.float_fields.get(cls)
        if floats is None:
            floats = self.float_fields[cls] = _float_fields(cls)
        return (cls, op, tuple([repr(getattr(op, name)) for name in floats])) if floats else (cls, op)

    def graph_key(self, graph: Graph) -> Hashable:
        """Equal for graphs that compute the same, bit for bit (`structural_key` takes 0.0 and -0.0 for equal)."""
        number = {v: k for k, v in enumerate(graph.inputs)}
        rows: list[Hashable] = []
        for node in graph.nodes:
            inner = tuple(map(self.graph_key, node.op.regions))
            rows.append((self.op_key(node.op), inner, tuple([number[v] for v in node.operands])))
            for v in node.results:
                number[v] = len(number)
        return (graph.input_types, tuple(rows), tuple([number[v] for v in graph.outputs]))


def _float_fields(cls: type[Op]) -> tuple[str, ...]:
    """Fields that may hold floats: to Python 0.0 and -0.0 are equal, and so are 1 and True."""
    kinds = ("float", "Number", "Any", "object")
    return tuple(f.name for f in dataclasses.fields(cls) if any(k in str(f.type) for k in kinds))  # type: ignore[arg-type]
