"""What to keep from a forward graph for its backward graph.

Enters: the forward nodes and the values that the backward nodes read. Leaves: the values to save; all the others that are read can be
recomputed from these, from inputs and from outputs. What is saved is a minimum cut between what is costly to compute (products,
reductions, slow functions) and what is read late: saving a value costs the bytes that are written and read again, unless it is an input
or an output and exists anyway; computing one again (fast elementwise ops, views, fills) costs little, but not nothing (costs.py).

The pass `recompute` puts the same question to whole graphs, where nothing needs to be saved at all.
"""

from __future__ import annotations

import importlib
import itertools
import math
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from types import ModuleType

from graphcell.ir.graph import Node, Value
from graphcell.ir.op import Op
from graphcell.locks import whole
from graphcell.ops.base import Elementwise, View
from graphcell.ops.creation import Constant, Full, Iota
from graphcell.passes.costs import READ, WRITE, cost_again

_LITTLE, _MORE, _MOST = 0.001, 0.01, 1.0
"""Where the costs are equal: rather what exists anyway than another op, and rather that than another value to keep."""

_UNITS = 1 << 12
"""Of a cost of one, which networkx gets as a whole number: it takes an edge for full only if its flow is the capacity to the last digit."""
_FEW, _FEW_SHARED = 64, 4
"""Values, and values that several others are computed from, up to which all choices are tried: as fast as asking networkx, whose import takes
longer than the first compilation of a small program."""

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


def _shared(cone: Sequence[Value], maker: Makers, read: Collection[Value]) -> list[Value]:
    """What several values of `cone` are computed from, and is not read itself."""
    uses = Counter(x for v in cone if (node := maker(v)) is not None for x in set(node.operands))
    return [v for v in cone if uses[v] > 1 and v not in read]


def _cheapest_tried(shared: Sequence[Value], maker: Makers, store: Mapping[Value, float], again: Mapping[Value, float], read: Sequence[Value]) -> set[Value]:
    """`cheapest_cut` by trial. Where `read` and some of `shared` are to be there late, trees remain below these: of a tree each value is
    stored or computed again from what is below it, whichever costs less."""
    Cost = tuple[float, set[Value]]  # of what is late, and which of it is computed again

    def total(costs: Iterable[Cost]) -> Cost:
        each, values = zip((0.0, set()), *costs, strict=True)
        return sum(each), set().union(*values)

    def least(v: Value, there: Collection[Value]) -> Cost:
        stored: Cost = store[v], set()
        node = maker(v)
        if node is None:
            return stored
        cost, values = total((math.inf, set()) if x in shared else least(x, there) for x in dict.fromkeys(node.operands) if x not in there)
        return min(stored, (again[v] + cost, {v, *values}), key=itemgetter(0))

    some = itertools.chain.from_iterable(itertools.combinations(shared, n) for n in range(len(shared) + 1))
    choices = (dict.fromkeys((*read, *asked)) for asked in some)
    return min((total(least(v, there) for v in there) for there in choices), key=itemgetter(0))[1]


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
    shared = _shared(cone, maker, set(read))
    if len(cone) <= _FEW and len(shared) <= _FEW_SHARED:
        return _cheapest_tried(shared, maker, store, again, read)
    nx = _networkx()
    cut = nx.DiGraph()
    for v in cone:
        limit = {} if store[v] == math.inf else {"capacity": round(_UNITS * store[v])}
        cut.add_edge((v, 0), (v, 1), **limit)
        node = maker(v)
        if node is None:
            cut.add_edge("exists", (v, 0))
            continue
        cut.add_edge("exists", (v, 0), capacity=round(_UNITS * again[v]))
        for x in node.operands:
            cut.add_edge((x, 1), (v, 0))
    for v in read:
        cut.add_edge((v, 1), "read")
    if "exists" not in cut:
        return set()
    _, (_, late) = nx.minimum_cut(cut, "exists", "read", flow_func=nx.algorithms.flow.boykov_kolmogorov)
    return {v for v in cone if (v, 0) in late and maker(v) is not None}
