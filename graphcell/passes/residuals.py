"""What to keep from a forward graph for its backward graph.

Enters: the forward nodes and the values that the backward nodes read. Leaves: the values to save; all the others that are read can be
recomputed from these, from inputs and from outputs. The rule is greedy: what is costly to compute is saved; cheap values (fast
elementwise ops, views, fills) are recomputed where everything they need is there, or where saving what they need takes fewer bytes than
saving them. Whoever replaces the rule (by a minimum cut) replaces `choose_saved`.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphcell.ir.graph import Node, Value
from graphcell.ir.op import Op
from graphcell.ops.base import Elementwise, View

_LEAVES = 4
"""A value that depends on more unsaved values than this counts as costly, which also bounds the time that this file takes."""
_DEPTH = 24
"""So does one at the end of a longer chain of cheap ops."""


def choose_saved(
    inputs: Sequence[Value], nodes: Sequence[Node], outputs: Sequence[Value], crossing: Sequence[Value]
) -> set[Value]:
    """The values to save (no inputs), from which `crossing` can be recomputed by cheap ops."""
    wanted, kept = set(crossing), set(outputs)
    saved: set[Value] = set()
    leaves: dict[Value, frozenset[Value]] = dict.fromkeys(
        inputs, frozenset()
    )  # what must be there to recompute a value
    depth: dict[Value, int] = dict.fromkeys(inputs, 0)
    for node in nodes:
        needs = frozenset().union(*(leaves[v] for v in node.operands)) - saved if is_cheap(node.op) else None
        level = 1 + max((depth[v] for v in node.operands), default=0)
        for v in node.results:
            if needs is None or len(needs) > _LEAVES or level > _DEPTH:
                leaves[v], depth[v] = frozenset({v}), 0
            else:
                leaves[v], depth[v] = needs, level
            if v in wanted and leaves[v]:
                saved |= _cheapest(v, leaves[v], kept)
                leaves[v], depth[v] = frozenset(), depth[v] if v not in saved else 0
    return saved


def _cheapest(value: Value, needs: frozenset[Value], kept: set[Value]) -> frozenset[Value]:
    """Either the value or what it is recomputed from; outputs of the graph are kept anyway and cost nothing."""
    cost = sum(v.type.nbytes for v in needs if v not in kept)
    alone = 0 if value in kept else value.type.nbytes
    return needs if cost < alone else frozenset({value})


def is_cheap(op: Op) -> bool:
    """True for ops that cost about as much as reading their result from memory."""
    if op.has_effect or op.regions:
        return False
    return (
        isinstance(op, View)
        or (isinstance(op, Elementwise) and op.fast)
        or op.name in ("full", "iota", "constant")
    )
