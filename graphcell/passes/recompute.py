"""Cheap values are computed again where they are read late, if that moves fewer bytes than keeping them.

Enters: an optimised Graph, as a rule a differentiated one. Leaves: an equal Graph in which elementwise ops of the forward computation
are repeated beside the gradients that read their results, behind a `fence` that keeps the two from being fused into one kernel (where
all would be computed early and stored). Nothing changes where no product, convolution or other op with a kernel of its own stands
between a value and its readers.

What is stored is chosen by a minimum cut: stored values are the edges cut between what exists anyway and what is read late. Storing a
value costs its bytes, written and read; computing one again costs what its op takes for the bytes that could be moved meanwhile.
C. Chen et al., "Training deep nets with sublinear memory cost", 2016; H. Ren et al., "A min-cut formulation of recomputation" (the
partitioner of functorch), 2022.
"""

from __future__ import annotations

import math
from dataclasses import field

from graphcell.ir.graph import Graph, Node, Value, copy_node
from graphcell.ops.base import Elementwise, Reduction, View
from graphcell.ops.creation import Constant, Full, Iota
from graphcell.ops.movement import Fence
from graphcell.passes.costs import READ, WRITE, cost_again
from graphcell.passes.residuals import cheapest_cut, components, cone_of
from graphcell.records import dataclass

SMALLEST = 1 << 16
"""Bytes from which a value is worth a thought."""


def recompute(graph: Graph) -> Graph:
    """The graph with cheap values repeated as said above, regions included; the same object if there is nothing to gain."""
    regions = {node: tuple(map(recompute, node.op.regions)) for node in graph.nodes if node.op.regions}
    if any(a is not b for node, new in regions.items() for a, b in zip(node.op.regions, new, strict=True)):
        nodes = [Node(n.op.with_regions(regions[n]), n.operands, n.results, n.span) if n in regions else n for n in graph.nodes]
        graph = Graph(graph.name, graph.inputs, nodes, graph.outputs)
    return _Recomputation(graph).run()


def _is_virtual(node: Node) -> bool:
    return isinstance(node.op, (View, Full, Iota))


def _is_loop(node: Node) -> bool:
    return isinstance(node.op, (Elementwise, Reduction)) and not node.op.has_effect


@dataclass
class _Crossing:
    """A value of one level that ops of later levels read."""

    value: Value
    readers: list[Node] = field(default_factory=list)


class _Recomputation:
    """`level` counts the ops with kernels of their own that must have run before; what is of one level may become one kernel."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.made_by = graph.producers()
        self.inputs = set(graph.inputs)
        self.level: dict[Value, int] = dict.fromkeys(graph.inputs, 0)
        self.runs: dict[Node, int] = {}
        self.kept: set[Value] = set(graph.inputs)
        """What is in memory anyway: inputs, outputs, what ops with kernels of their own read."""
        for node in graph.nodes:
            before = max((self.level[v] for v in node.operands), default=0)
            inside = _is_loop(node) or _is_virtual(node)
            self.runs[node] = before
            self.level.update((v, before if inside else before + 1) for v in node.results)
            if not inside:
                self.kept.update(map(self.root, node.operands))
            if isinstance(node.op, Constant):
                self.level.update(dict.fromkeys(node.results, 0))
                self.kept.update(node.results)
        self.kept.update(map(self.root, graph.outputs))
        before_slow = self._before_slow()
        self.kept.update(v for node in graph.nodes if not (_is_loop(node) or _is_virtual(node)) for v in node.results if v in before_slow)
        self.late = self._late_levels()
        self.copies: dict[tuple[Value, int], Value] = {}
        self.new: dict[Value, Node] = {}
        """What makes the copies."""
        self.operands: dict[Node, tuple[Value, ...]] = {}

    def root(self, v: Value) -> Value:
        node = self.made_by.get(v)
        while node is not None and isinstance(node.op, View):
            v = node.operands[0]
            node = self.made_by.get(v)
        return v

    def _before_slow(self) -> set[Value]:
        """What a slow function follows on at the same level, through cheap ops: the kernel that makes it has no epilogue."""
        found: set[Value] = set()
        for node in reversed(self.graph.nodes):
            op = node.op
            if (isinstance(op, Elementwise) and not op.fast) or (isinstance(op, (Elementwise, View)) and node.results[0] in found):
                found.update(v for v in node.operands if self.level[v] == self.runs[node])
        return found

    def _late_levels(self) -> dict[Value, set[int]]:
        """For values that nothing of their own level needs in the end: the levels in which they are read, or what becomes of them."""
        late: dict[Value, set[int]] = {v: set() for v in self.level if v not in self.kept}
        for node in reversed(self.graph.nodes):
            again = _is_virtual(node) or (isinstance(node.op, Elementwise) and not node.op.has_effect)
            for v in dict.fromkeys(node.operands):
                if v not in late:
                    continue
                if self.runs[node] > self.level[v] and _is_loop(node):
                    late[v].add(self.runs[node])
                elif again and node.results[0] in late:
                    late[v] |= late[node.results[0]]
                else:
                    del late[v]
        return late

    def run(self) -> Graph:
        by_level: dict[int, dict[Value, _Crossing]] = {}
        for node in self.graph.nodes:
            if not _is_loop(node):
                continue
            for v in dict.fromkeys(node.operands):
                if self.level[v] < self.runs[node] and v.type.nbytes >= SMALLEST and self._is_computed(v):
                    by_level.setdefault(self.level[v], {}).setdefault(v, _Crossing(v)).readers.append(node)
        for level in sorted(by_level):
            self._choose(by_level[level], level)
        return self._rebuilt() if self.operands else self.graph

    def _rebuilt(self) -> Graph:
        """The graph with each copy before its first reader."""
        nodes: dict[Node, None] = {}

        def place(node: Node) -> None:
            for v in node.operands:
                if v in self.new and self.new[v] not in nodes:
                    place(self.new[v])
            nodes[node] = None

        for node in self.graph.nodes:
            place(Node(node.op, self.operands[node], node.results, node.span) if node in self.operands else node)
        return Graph(self.graph.name, self.graph.inputs, list(nodes), self.graph.outputs)

    def _is_computed(self, v: Value) -> bool:
        """Whether v comes from a loop op, perhaps through views."""
        node = self.made_by.get(self.root(v))
        return node is not None and _is_loop(node)

    # -- one level ---------------------------------------------------------------------------------------------------
    def _repeatable(self, v: Value, level: int) -> Node | None:
        """The node that makes v, if it is of this level and may be computed again."""
        node = self.made_by.get(v)
        if node is None or not (_is_virtual(node) or (isinstance(node.op, Elementwise) and not node.op.has_effect)):
            return None
        return node if self.level[v] == level or _is_virtual(node) else None

    def _store_cost(self, v: Value) -> float:
        if v.type.nbytes < SMALLEST:
            return 1e-3 * v.type.nbytes
        node = self.made_by.get(v)
        if node is not None and _is_virtual(node):
            return math.inf  # rather what it looks at
        return v.type.nbytes * (READ if v in self.kept else READ + WRITE)

    def _cost_again(self, v: Value, node: Node) -> float:
        """What it costs to compute v late: nothing more where it is then computed late only, and once."""
        return 0.0 if len(self.late.get(v, ())) == 1 else cost_again(node)

    def _choose(self, crossings: dict[Value, _Crossing], level: int) -> None:
        def maker(v: Value) -> Node | None:
            return self._repeatable(v, level)

        apart = {v for c in crossings for v in cone_of([c], maker) if v.type.nbytes < SMALLEST or v in self.inputs}
        for values in components(list(crossings), maker, apart):
            cone = list(cone_of(values, maker))
            if not any(maker(v) is None and v not in self.inputs and v.type.nbytes >= SMALLEST for v in cone):
                continue  # made of inputs alone: fused with its readers as it is
            again = {v: self._cost_again(v, node) for v in cone if (node := maker(v)) is not None}
            late = cheapest_cut(cone, maker, {v: self._store_cost(v) for v in cone}, again, values)
            if any(not _is_virtual(self.made_by[v]) for v in late):
                self._repeat([crossings[v] for v in values], late)

    def _repeat(self, crossings: list[_Crossing], again: set[Value]) -> None:
        """Gives readers copies of what is computed again, one for each level of readers."""
        for crossing in crossings:
            if crossing.value not in again:
                continue
            for reader in crossing.readers:
                self._replace(reader, crossing.value, self._copy(crossing.value, self.runs[reader], again))
        for crossing in crossings:
            for reader in crossing.readers:
                fenced = self.copies.get((crossing.value, self.runs[reader]))
                if crossing.value not in again and fenced is not None:
                    self._replace(reader, crossing.value, fenced)

    def _replace(self, reader: Node, old: Value, new: Value) -> None:
        operands = self.operands.get(reader, reader.operands)
        self.operands[reader] = tuple(new if v is old else v for v in operands)

    def _copy(self, v: Value, level: int, again: set[Value]) -> Value:
        known = self.copies.get((v, level))
        if known is not None:
            return known
        node = self.made_by.get(v)
        if v in again:
            assert node is not None
            table = {x: self._copy(x, level, again) for x in node.operands}
            made = copy_node(node, table)
        elif node is not None and _is_loop(node):
            made = Node(Fence(), (v,), (Value(v.type),), node.span)
        else:
            return v
        self.new[made.results[0]] = made
        self.copies[v, level] = made.results[0]
        return made.results[0]
