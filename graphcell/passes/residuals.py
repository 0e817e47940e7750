"""What to keep from a forward graph for its backward graph.

Enters: the forward nodes and the values that the backward nodes read. Leaves: the values to save; all the others that are read can be
recomputed from these, from inputs and from outputs. What is saved is a minimum cut between what is costly to compute (products,
reductions, slow functions) and what is read late: saving a value costs the bytes that are written and read again, unless it is an input
or an output and exists anyway; computing one again (fast elementwise ops, views, fills) costs little, but not nothing (costs.py).

The pass `recompute` puts the same question to whole graphs, where nothing needs to be saved at all.
"""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType

from graphcell.ir.graph import Node, Value
from graphcell.ir.op import Op
from graphcell.locks import whole
from graphcell.ops.base import Elementwise, View
from graphcell.ops.creation import Constant, Full, Iota
from graphcell.passes.costs import READ, WRITE, cost_again

_LITTLE, _MORE, _MOST = 0.001, 0.01, 1.0
"""Where the costs are equal: rather what exists anyway than another op, and rather that than another value to keep."""

_EASY = 16
"""Values up to which a question is looked at before it is asked."""

Makers = Callable[[Value], "Node | None"]
"""The node that makes a value, if that may be done again."""


def choose_saved(inputs: Sequence[Value], nodes: Sequence[Node], outputs: Sequence[Value], crossing: Sequence[Value]) -> set[Value]:
    """The values to save (no inputs), from which `crossing` can be recomputed by cheap ops."""
    made_by = {v: node for node in nodes for v in node.results if is_cheap(node.op)}
    given, kept = set(inputs), {*inputs, *outputs}
    saved: set[Value] = set()
    for wanted in components(list(crossing), made_by.get, given):
        cone = list(cone_of(wanted, made_by.get))
        store = {v: _LITTLE if v in kept else _MOST + (READ + WRITE) * v.type.nbytes for v in cone}
        again = {v: _MORE + cost_again(node) for v in cone if (node := made_by.get(v)) is not None}
        late = cheapest_cut(cone, made_by.get, store, again, wanted)
        needed = {x for v in late for x in made_by[v].operands} | set(wanted)
        saved |= needed - late - given
    return saved


def is_cheap(op: Op) -> bool:
    """True for ops that cost about as much as reading their result from memory."""
    if op.has_effect or op.regions:
        return False
    return isinstance(op, (View, Full, Iota, Constant)) or (isinstance(op, Elementwise) and op.fast)


# -- the cut -----------------------------------------------------------------------------------------------------------------------------
def cone_of(values: Sequence[Value], maker: Makers) -> Iterator[Value]:
    """All that `values` could be computed from again, and where that begins."""
    seen, stack = set(values), list(values)
    while stack:
        v = stack.pop()
        yield v
        node = maker(v)
        for x in node.operands if node is not None else ():
            if x not in seen:
                seen.add(x)
                stack.append(x)


def components(values: Sequence[Value], maker: Makers, apart: set[Value]) -> list[list[Value]]:
    """`values` in groups that have nothing in common in their cones but values in `apart`: each can be decided on its own."""
    owner: dict[Value, int] = {}
    groups: list[list[Value]] = []
    members: list[list[Value]] = []
    for value in values:
        cone = [v for v in cone_of([value], maker) if v not in apart]
        joined = sorted({owner[v] for v in cone if v in owner})
        groups.append([v for k in joined for v in groups[k]] + [value])
        members.append([v for k in joined for v in members[k]] + cone)
        for k in joined:
            groups[k], members[k] = [], []
        owner.update(dict.fromkeys(members[-1], len(groups) - 1))
    return [g for g in groups if g]


def _as_they_are(read: Sequence[Value], maker: Makers, store: Mapping[Value, float], again: Mapping[Value, float]) -> bool:
    """Whether it is plain that `read` is best stored as it is: nothing of it can be computed again, or it is one value and all it could be
    computed from costs as much. Small networks have no other question, and need not wait for networkx."""

    def least(v: Value) -> float:
        node = maker(v)
        return store[v] if node is None else min(store[v], again[v] + max(map(least, node.operands), default=0.0))

    if all(maker(v) is None for v in read):
        return True
    node = maker(read[0]) if len(read) == 1 else None
    return node is not None and store[read[0]] <= again[read[0]] + max(map(least, node.operands), default=0.0)


def _networkx() -> ModuleType:
    """networkx, when it is first needed: its import takes as long as that of the rest of graphcell. Of an import that was interrupted
    (Ctrl-C), nothing stays: the next one would take the parts that are there and lack names for good."""
    try:
        with whole:
            return importlib.import_module("networkx")
    except BaseException:
        for name in [n for n in sys.modules if n.partition(".")[0] == "networkx"]:
            del sys.modules[name]
        raise


def cheapest_cut(cone: Sequence[Value], maker: Makers, store: Mapping[Value, float], again: Mapping[Value, float], read: Sequence[Value]) -> set[Value]:
    """Which values of `cone` to compute again such that all of `read` are there, at the least cost of storing some (`store`; infinite for
    what cannot be) and computing others again (`again`)."""
    if len(cone) <= _EASY and _as_they_are(read, maker, store, again):
        return set()
    nx = _networkx()
    cut = nx.DiGraph()
    for v in cone:
        limit = {} if store[v] == math.inf else {"capacity": store[v]}
        cut.add_edge((v, 0), (v, 1), **limit)
        node = maker(v)
        if node is None:
            cut.add_edge("exists", (v, 0))
            continue
        cut.add_edge("exists", (v, 0), capacity=again[v])
        for x in node.operands:
            cut.add_edge((x, 1), (v, 0))
    for v in read:
        cut.add_edge((v, 1), "read")
    if "exists" not in cut:
        return set()
    _, (_, late) = nx.minimum_cut(cut, "exists", "read", flow_func=nx.algorithms.flow.boykov_kolmogorov)
    return {v for v in cone if (v, 0) in late and maker(v) is not None}
