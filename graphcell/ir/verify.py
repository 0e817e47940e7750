"""The verifier: re-derives every type and checks the rules of SSA.

Enters: a Graph. Leaves: nothing, or a `VerificationError` that names the graph and the node and places itself
at the user's line. Runs before and after every pass while testing, and on every graph that comes from
elsewhere.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Sequence

from graphcell.errors import GraphcellError, VerificationError
from graphcell.ir.graph import Graph, Node, Value
from graphcell.ir.op import Op, infer_types
from graphcell.ir.types import Dim, TensorType


def verify(graph: Graph) -> None:
    """Checks single assignment, dominance, well-formed ops, types and regions.

    Raises:
        VerificationError: with the graph's name and the offending node.
    """
    _verify_graph(graph, ())


def _verify_graph(graph: Graph, outer: tuple[set[Value], ...]) -> None:
    defined: set[Value] = set()
    for k, v in enumerate(graph.inputs):
        if v in defined:
            raise VerificationError(f"graph {graph.name}: input {_name(v, k)} appears twice")
        _verify_type(f"graph {graph.name}, input {_name(v, k)}", v.type, None)
        defined.add(v)
    for position, node in enumerate(graph.nodes):
        _verify_node(graph, position, node, defined, outer)
    for k, v in enumerate(graph.outputs):
        if v not in defined:
            raise VerificationError(f"graph {graph.name}: output {_name(v, k)} is not defined in it")
    for scope in outer:
        if not defined.isdisjoint(scope):
            v = next(iter(defined & scope))
            raise VerificationError(
                f"graph {graph.name}: value {_name(v, 0)} also belongs to the graph around it"
            )


def _verify_node(
    graph: Graph, position: int, node: Node, defined: set[Value], outer: tuple[set[Value], ...]
) -> None:
    where = f"graph {graph.name}, node {position} ({node.op.name})"
    _verify_op(where, node)
    for k, v in enumerate(node.operands):
        if v not in defined:
            raise VerificationError(
                f"{where}: operand {_name(v, k)} is not defined before its use", span=node.span
            )
    for k, v in enumerate(node.results):
        if v in defined:
            raise VerificationError(f"{where}: result {_name(v, k)} is defined twice", span=node.span)
        defined.add(v)
    for inner in node.op.regions:
        _verify_graph(inner, (*outer, defined))
    types = _infer(where, node)
    got = tuple(v.type for v in node.results)
    if types != got:
        raise VerificationError(
            f"{where}: result types are {_list(got)}, inferred {_list(types)}", span=node.span
        )
    for t in got:
        _verify_type(where, t, node)


def _verify_op(where: str, node: Node) -> None:
    """An op must be the class that its name stands for, and hashable with all its attributes."""
    op = node.op
    if not isinstance(op, Op) or Op.table.get(op.name) is not type(op):
        raise VerificationError(f"{where}: {type(op).__name__} is not in the table of ops", span=node.span)
    try:
        hash(op)
    except TypeError as e:
        raise VerificationError(f"{where}: attributes must be immutable ({e})", span=node.span) from e


@functools.cache
def operand_count(cls: type[Op]) -> int | None:
    """How many operands the op takes, by the signature of its `eval`; None if it takes any number."""
    parameters = list(inspect.signature(cls.eval).parameters.values())[1:]
    return None if any(p.kind is p.VAR_POSITIONAL for p in parameters) else len(parameters)


def _infer(where: str, node: Node) -> tuple[TensorType, ...]:
    operands = tuple(v.type for v in node.operands)
    count = operand_count(type(node.op))  # type: ignore[arg-type]
    if count not in (None, len(operands)):
        raise VerificationError(f"{where}: takes {count} operands, but has {len(operands)}", span=node.span)
    try:
        return infer_types(node.op, operands)
    except GraphcellError as e:
        raise VerificationError(f"{where}: {e.message}", span=node.span) from e
    except (
        TypeError,
        ValueError,
        LookupError,
        AttributeError,
    ) as e:  # the op was given what it cannot take at all
        raise VerificationError(
            f"{where}: does not take operands {_list(operands)} ({e})", span=node.span
        ) from e


def _verify_type(where: str, type: TensorType, node: Node | None) -> None:
    for d in type.shape:
        if isinstance(d, Dim):
            continue
        if isinstance(d, bool) or not isinstance(d, int) or d < 0:
            span = node.span if node is not None else None
            raise VerificationError(f"{where}: {d!r} in shape {type.shape} is no dimension", span=span)


def _name(value: Value, position: int) -> str:
    """A value in words: its name, or its place in the list where it stands."""
    return f"%{value.name}" if value.name else f"{position} ({value.type})"


def _list(types: Sequence[TensorType]) -> str:
    return f"({', '.join(map(str, types))})"
