"""Runs a Graph by its ops' `eval`: the meaning of the IR, the test oracle, and how regions run eagerly.

Enters: a Graph and one array for each input. Leaves: one array for each output; outputs may share memory with
inputs and with each other (views are not copied). Refuses: arrays that are not of the inputs' types.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphcell.dtype import from_numpy
from graphcell.errors import ArgumentTypeError, ArityError, GraphcellError
from graphcell.ir.graph import Graph, Value
from graphcell.ir.op import Array, evaluate


def evaluate_graph(graph: Graph, arrays: Sequence[Array]) -> tuple[Array, ...]:
    """The outputs of `graph` for inputs `arrays`. Each intermediate array is let go of after its last use.

    Raises:
        TypeError: not one array for each input, or one of another dtype or shape.
        GraphcellError: whatever an op raises, placed at the op's source line.
    """
    _check_inputs(graph, arrays)
    environment: dict[Value, Array] = dict(zip(graph.inputs, arrays, strict=True))
    for node, dead in zip(graph.nodes, _last_uses(graph), strict=True):
        try:
            results = evaluate(node.op, tuple([environment[v] for v in node.operands]))
        except GraphcellError as e:
            e.at(node.span)
            raise
        environment.update(zip(node.results, results, strict=True))
        del results  # else it would keep the last arrays alive while the next node runs
        for v in dead:
            del environment[v]
    return tuple([environment[v] for v in graph.outputs])


def _check_inputs(graph: Graph, arrays: Sequence[Array]) -> None:
    if len(arrays) != len(graph.inputs):
        raise ArityError(f"graph {graph.name} takes {len(graph.inputs)} inputs, but got {len(arrays)}")
    for v, array in zip(graph.inputs, arrays, strict=True):
        if array.shape != v.type.shape or from_numpy(array.dtype) is not v.type.dtype:
            got = f"{array.dtype}{list(array.shape)}"
            raise ArgumentTypeError(
                f"graph {graph.name}: input {v.name or graph.inputs.index(v)} must be {v.type}, but is {got}"
            )


def _last_uses(graph: Graph) -> list[list[Value]]:
    """For each node, the values that nothing needs once it has run."""
    needed: set[Value] = set(graph.outputs)
    table: list[list[Value]] = []
    for node in reversed(graph.nodes):
        dead = [v for v in (*node.results, *node.operands) if v not in needed]
        dead = list(dict.fromkeys(dead))
        needed.update(dead)
        table.append(dead)
    table.reverse()
    return table
