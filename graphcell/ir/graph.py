"""Values, nodes, graphs, and the builder that makes them.

A `Graph` is pure and immutable: a flat list of nodes in execution order, each node applying one op to earlier values. Regions are
Graphs held by control-flow ops; they see nothing but their own inputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from graphcell.errors import GraphcellError, Span
from graphcell.ir.op import Op, exact_key, infer_types
from graphcell.ir.types import TensorType


class Value:
    """An SSA value. Compared by identity; `name` is for the reader only."""

    __slots__ = ("name", "type")

    def __init__(self, type: TensorType, name: str = ""):
        self.type = type
        self.name = name

    def __repr__(self) -> str:
        return f"<Value {self.name or hex(id(self))}: {self.type}>"


class Node:
    """One application of an op. Immutable by convention."""

    __slots__ = ("op", "operands", "results", "span")

    def __init__(self, op: Op, operands: tuple[Value, ...], results: tuple[Value, ...], span: Span | None = None):
        self.op = op
        self.operands = operands
        self.results = results
        self.span = span

    def __repr__(self) -> str:
        return f"<Node {self.op} of {len(self.operands)} operands>"

    @property
    def eval_nanoseconds(self) -> float:
        """About how long the op's `eval` takes."""
        return self.op.eval_nanoseconds([v.type for v in self.operands], [v.type for v in self.results])


class Graph:
    """A function in SSA form: inputs, nodes in execution order, outputs."""

    __slots__ = ("inputs", "name", "nodes", "outputs")

    def __init__(self, name: str, inputs: Sequence[Value], nodes: Sequence[Node], outputs: Sequence[Value]):
        self.name = name
        self.inputs = tuple(inputs)
        self.nodes = tuple(nodes)
        self.outputs = tuple(outputs)

    def __str__(self) -> str:
        from graphcell.ir.text import print_graph

        return print_graph(self)

    def __repr__(self) -> str:
        return f"<Graph {self.name}: {len(self.inputs)} inputs, {len(self.nodes)} nodes, {len(self.outputs)} outputs>"

    @property
    def input_types(self) -> tuple[TensorType, ...]:
        return tuple(v.type for v in self.inputs)

    @property
    def output_types(self) -> tuple[TensorType, ...]:
        return tuple(v.type for v in self.outputs)

    def count_nodes(self) -> int:
        """Nodes here and in all regions."""
        return sum(1 + sum(g.count_nodes() for g in n.op.regions) for n in self.nodes)

    def walk(self) -> Iterator[Node]:
        """All nodes, regions included, outer before inner."""
        for node in self.nodes:
            yield node
            for inner in node.op.regions:
                yield from inner.walk()

    def producers(self) -> dict[Value, Node]:
        """The node that makes each value (inputs are not in it)."""
        return {v: n for n in self.nodes for v in n.results}

    def users(self) -> dict[Value, list[Node]]:
        """The nodes that read each value."""
        table: dict[Value, list[Node]] = {}
        for node in self.nodes:
            for v in dict.fromkeys(node.operands):
                table.setdefault(v, []).append(node)
        return table

    def has_effect(self) -> bool:
        return any(n.op.has_effect for n in self.walk())


class Builder:
    """A Graph under construction."""

    def __init__(self, name: str):
        self.name = name
        self.inputs: list[Value] = []
        self.nodes: list[Node] = []

    def input(self, type: TensorType, name: str = "") -> Value:
        value = Value(type, name or f"arg{len(self.inputs)}")
        self.inputs.append(value)
        return value

    def append(self, op: Op, operands: Sequence[Value], span: Span | None = None) -> tuple[Value, ...]:
        """Adds a node; its result types are inferred, and an error in that is placed at `span`."""
        operands = tuple(operands)
        try:
            types = infer_types(op, tuple(v.type for v in operands))
        except GraphcellError as e:
            e.at(span)
            raise
        results = tuple(map(Value, types))
        self.nodes.append(Node(op, operands, results, span))
        return results

    def inline(self, graph: Graph, arguments: Sequence[Value]) -> tuple[Value, ...]:
        """Copies `graph`'s nodes here with its inputs bound to `arguments`; returns its outputs."""
        table: dict[Value, Value] = dict(zip(graph.inputs, arguments, strict=True))
        for node in graph.nodes:
            self.nodes.append(copy_node(node, table))
        return tuple(table[v] for v in graph.outputs)

    def finish(self, outputs: Iterable[Value]) -> Graph:
        return Graph(self.name, self.inputs, self.nodes, tuple(outputs))


def copy_node(node: Node, table: dict[Value, Value], op: Op | None = None) -> Node:
    """A copy of `node` with operands mapped through `table`, which gains the new results."""
    results = tuple(Value(v.type, v.name) for v in node.results)
    copy = Node(op or node.op, tuple(table[v] for v in node.operands), results, node.span)
    table.update(zip(node.results, results, strict=True))
    return copy


def clone(graph: Graph, name: str | None = None) -> Graph:
    """A Graph of new Values with the same nodes."""
    builder = Builder(name or graph.name)
    arguments = [builder.input(v.type, v.name) for v in graph.inputs]
    return builder.finish(builder.inline(graph, arguments))


def structural_key(graph: Graph) -> tuple[Any, ...]:
    """A hashable form that is equal for graphs that are the same but for value names, graph names and spans."""
    number: dict[Value, int] = {}
    for v in graph.inputs:
        number[v] = len(number)
    rows: list[Any] = []
    for node in graph.nodes:
        regions = tuple(map(structural_key, node.op.regions))
        rows.append((exact_key(node.op), regions, tuple(number[v] for v in node.operands)))
        for v in node.results:
            number[v] = len(number)
    return (graph.input_types, tuple(rows), tuple(number[v] for v in graph.outputs))
