"""What the passes know of ops with regions: which operand is which input of a region, and how to change that
list.

Regions see nothing but their inputs, so a pass that moves something into or out of a region changes the op's
operands and the inputs of each of its regions together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from graphcell.ir.graph import Graph, Node, Value
from graphcell.ir.op import Op
from graphcell.ops.control import For, If, While


def invariant_operands(op: Op) -> tuple[int, int] | None:
    """The position of the first operand that every region of `op` gets as it is, and how far inputs are
    shifted against operands.

    Operand p, and all after the first, is input p + shift of every region. None for ops that are not If,
    While or For.
    """
    if isinstance(op, If):
        return 1, -1
    if isinstance(op, While):
        return op.carried, 0
    if isinstance(op, For):
        return op.first_invariant, 1
    return None


def with_inputs(
    graph: Graph,
    inputs: Iterable[Value],
    prelude: Iterable[Node] = (),
    renamed: Mapping[Value, Value] | None = None,
) -> Graph:
    """`graph` with other inputs. Values that were inputs may now be results of `prelude`, or be `renamed` to
    others.
    """
    if not renamed:
        return Graph(graph.name, tuple(inputs), (*prelude, *graph.nodes), graph.outputs)
    nodes = [rename_operands(node, renamed) for node in graph.nodes]
    return Graph(graph.name, tuple(inputs), (*prelude, *nodes), [renamed.get(v, v) for v in graph.outputs])


def with_outputs(graph: Graph, outputs: Iterable[Value]) -> Graph:
    """`graph` with other outputs."""
    return Graph(graph.name, graph.inputs, graph.nodes, tuple(outputs))


def rename_operands(node: Node, renamed: Mapping[Value, Value]) -> Node:
    """`node` with operands renamed; the same object if there are none to rename."""
    operands = tuple([renamed.get(v, v) for v in node.operands])
    return node if operands == node.operands else Node(node.op, operands, node.results, node.span)
