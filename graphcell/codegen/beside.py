"""Loops that do not need each other's results, such as the two directions of a recurrent layer: two threads may run one each.

Enters: the steps of a program in the order in which they run. Leaves: pairs of loops and an order in which the loops of a pair follow each other. Their
memory is planned as if they ran at one time, so that they may; team.py has them do it.

A pair takes about as long as its longer loop, so only loops of about the same work are paired. What stands between the two goes before both, unless it needs
the first one's results, or takes over what that reads: then it goes behind them. What a loop makes earlier than before has to be kept longer: no pair that
makes much more memory necessary is formed, as those of layers that are computed again for their gradients would.

Products of what one of the loops made and equal ones of what the other made, as of gradients by the weights of both directions, follow them: each thread
goes on with what it has in its caches.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Sequence
from dataclasses import field
from typing import Generic, Protocol, TypeVar

from graphcell.codegen.fuse import Analysis
from graphcell.ir.graph import Graph, Node, Value
from graphcell.ops.contraction import MatMul
from graphcell.ops.control import For
from graphcell.records import dataclass

_MOST_UNEQUAL = 1.5
"""Times the work of a loop's partner."""
_FARTHEST = 40
"""Steps between the two, at most."""
_MOST_GROWTH, _LITTLE = 1.25, 1 << 19
"""Times the memory for temporaries that there was without a pair, and bytes more that are little in any case."""


class UnitLike(Protocol):
    """What is asked of a step."""

    node: Node | None

    def reads(self, info: Analysis) -> list[Value]: ...
    def writes(self) -> list[Value]: ...


U = TypeVar("U", bound=UnitLike)


@dataclass(eq=False)
class Pair(Generic[U]):
    """Two loops that need nothing of each other and follow each other, and the products behind them; `apart`: whether a thread goes through each."""

    first: U
    second: U
    apart: bool = True
    behind: tuple[list[U], list[U]] = field(default_factory=lambda: ([], []))
    """Products of what the first made, and as many, equal ones of what the second made, in order; of those that are short (tasks.py)."""

    @property
    def sides(self) -> tuple[list[U], list[U]]:
        """What each thread does."""
        return [self.first, *self.behind[0]], [self.second, *self.behind[1]]

    @property
    def units(self) -> list[U]:
        """All of it, in the order of the steps."""
        return [self.first, self.second, *self.behind[0], *self.behind[1]]


def pair_loops(
    units: Sequence[U], info: Analysis, given: Collection[Value], overwritten: Collection[tuple[Value, Value]], fixed: Sequence[U]
) -> tuple[list[U], list[Pair[U]]]:
    """The steps in an order in which paired loops follow each other, and the pairs.

    Args:
        given: values whose buffers exist anyway (inputs, outputs).
        overwritten: (output, input): that output is written over that input, where it is read no more.
        fixed: steps that nothing may pass.
    """
    found, pairs = list(units), list[Pair[U]]()
    start = 0
    if sum(map(_may_be_paired, units)) < 2:
        return found, pairs
    peak = _peak(found, pairs, info, given)
    most = max(_MOST_GROWTH * peak, peak + _LITTLE)
    while start < len(found):
        first = found[start]
        start += 1
        if not _may_be_paired(first) or any(first is u for u in fixed):
            continue
        for at in range(start, min(len(found), start + _FARTHEST)):
            second = found[at]
            if any(second is u for u in fixed):
                break
            if not _may_be_paired(second) or not _are_equal(first, second):
                continue
            before, behind = _divided(first, found[start : at + 1], info, overwritten)
            if not before or before[-1] is not second:
                continue
            order, more = [*found[: start - 1], *before[:-1], first, second, *behind, *found[at + 1 :]], [*pairs, Pair(first, second)]
            if _peak(order, more, info, given) <= most:
                found, pairs = order, more
                start += len(before)
                break
    for k, pair in enumerate(pairs):
        order, longer = _with_products(found, pair, info, overwritten, fixed)
        more = [*pairs[:k], longer, *pairs[k + 1 :]]
        if _peak(order, more, info, given) <= most:
            found, pairs = order, more
    return found, pairs


def _with_products(
    units: Sequence[U], pair: Pair[U], info: Analysis, overwritten: Collection[tuple[Value, Value]], fixed: Sequence[U]
) -> tuple[list[U], Pair[U]]:
    """The pair with what may follow its loops."""
    at = next(k for k, unit in enumerate(units) if unit is pair.second) + 1
    made, later = [set(unit.writes()) for unit in (pair.first, pair.second)], set[Value]()
    products: tuple[list[U], list[U]] = ([], [])
    for unit in units[at : at + _FARTHEST]:
        if any(unit is u for u in fixed):
            break
        reads, writes = set(unit.reads(info)), set(unit.writes())
        sides = [k for k in (0, 1) if not reads.isdisjoint(made[k])]
        is_product = unit.node is not None and isinstance(unit.node.op, MatMul)
        if is_product and len(sides) == 1 and reads.isdisjoint(later) and not any(v in writes for v, _ in overwritten):
            products[sides[0]].append(unit)
        later |= writes
    behind: tuple[list[U], list[U]] = ([], [])
    for one in products[0]:
        twin = next((u for u in products[1] if _are_twins(one, u) and not any(u is v for v in behind[1])), None)
        if twin is not None:
            behind[0].append(one)
            behind[1].append(twin)
    moved = {id(unit) for unit in (*behind[0], *behind[1])}
    order = [*units[:at], *behind[0], *behind[1], *(u for u in units[at:] if id(u) not in moved)]
    return order, Pair(pair.first, pair.second, behind=behind)


def _are_twins(one: UnitLike, other: UnitLike) -> bool:
    x, y = one.node, other.node
    return x is not None and y is not None and x.op == y.op and [v.type for v in x.operands] == [v.type for v in y.operands]


def _peak(units: Sequence[U], pairs: Sequence[Pair[U]], info: Analysis, given: Collection[Value]) -> int:
    """The most bytes of temporaries that are in use at one time."""
    changes = [0] * (len(units) + 2)
    last = {v: step for step, unit in enumerate(units) for v in unit.reads(info)}
    for (step, unit), begin in zip(enumerate(units), begins(units, pairs), strict=True):
        for v in unit.writes():
            if v not in given:
                changes[begin] += v.type.nbytes
                changes[last.get(v, step) + 1] -= v.type.nbytes
    return max(itertools.accumulate(changes))


def begins(units: Sequence[U], pairs: Sequence[Pair[U]]) -> list[int]:
    """When each step begins: at its place among all, and what may run at one time all at that of the first loop."""
    together = {id(unit): id(pair.first) for pair in pairs for unit in pair.units}
    places = {id(unit): step for step, unit in enumerate(units)}
    return [places[together.get(id(unit), id(unit))] for unit in units]


def _may_be_paired(unit: UnitLike) -> bool:
    return unit.node is not None and isinstance(unit.node.op, For) and unit.node.op.trip_count > 1


def _divided(first: U, units: Sequence[U], info: Analysis, overwritten: Collection[tuple[Value, Value]]) -> tuple[list[U], list[U]]:
    """Which of the steps after a loop may go before it, and which have to stay behind."""
    made, read = set(first.writes()), set(first.reads(info))
    before, behind = list[U](), list[U]()
    for unit in units:
        writes = unit.writes()
        if made.isdisjoint(unit.reads(info)) and not any(v in writes and target in read for v, target in overwritten):
            before.append(unit)
            continue
        behind.append(unit)
        made.update(writes)
        read.update(unit.reads(info))
    return before, behind


def _are_equal(first: UnitLike, second: UnitLike) -> bool:
    one, other = (_work(u.node) for u in (first, second) if u.node is not None)
    return one < _MOST_UNEQUAL * other and other < _MOST_UNEQUAL * one


def _work(node: Node) -> float:
    """Rough cycles of a loop."""
    op = node.op
    assert isinstance(op, For)
    return op.trip_count * _work_of_graph(op.body)


def _work_of_graph(graph: Graph) -> float:
    total = 0.0
    for node in graph.nodes:
        size = sum(math.prod(v.type.shape) for v in node.results)
        if isinstance(node.op, MatMul):
            x = node.operands[0].type.shape
            total += size * x[-2 if node.op.transpose_x else -1] / 16
        elif isinstance(node.op, For):
            total += _work(node)
        else:
            total += size / 8 + sum(map(_work_of_graph, node.op.regions))
    return total
