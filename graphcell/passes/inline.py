"""Inlining: graphs that an op holds become nodes of the graph around it.

Enters: a Graph. Leaves: one without calls (their graphs may stand in place of the op) and without branches on
a known condition.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphcell.ir.graph import Graph, Node, Value
from graphcell.ops.control import If, RegionOp
from graphcell.passes.rewrite import Rewriter, Rules, rewrite


def inline(graph: Graph) -> Graph:
    """Inlines calls and branches on constants, in regions too."""
    return rewrite(graph, _RULES)


def inline_call(r: Rewriter, node: Node) -> Sequence[Value] | None:
    """A call is the graph that it calls; a function with a gradient of its own is itself, once
    differentiated.
    """
    assert isinstance(node.op, RegionOp)
    graph = node.op.inlined
    return None if graph is None else r.inline(graph, node.operands)


def inline_branch(r: Rewriter, node: Node) -> Sequence[Value] | None:
    """A branch on a known condition is the graph that would run."""
    assert isinstance(node.op, If)
    known = r.number(node.operands[0])
    if known is None:
        return None
    return r.inline(node.op.then_graph if known else node.op.else_graph, node.operands[1:])


INLINE_RULES = ((If, inline_branch), (RegionOp, inline_call))
_RULES = Rules(*INLINE_RULES)
