"""Values that are cheaper to compute again than to store: what the backward part of a graph needs of the forward part, above all.

Enters: the groups of a legal graph (fuse.py). Leaves: an equal graph in which groups that read such a value from memory compute it
from what they read anyway, or from less; and the new nodes, which must join their readers' groups only. A value qualifies if cheap
elementwise ops make it from other values that lie in memory, every reader outside of its own group is a loop nest, and the bytes that
are no longer moved outweigh those that are read instead. Where several values come from one that is not stored, that one is stored if all of them
together outweigh it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import field
from typing import TYPE_CHECKING

from graphcell.codegen.legalize import Copy, is_loop_op, is_virtual
from graphcell.codegen.operands import chain
from graphcell.ir.graph import Graph, Node, Value, copy_node
from graphcell.ops.base import Elementwise
from graphcell.ops.movement import Fence
from graphcell.passes.costs import FAST, READ, WRITE
from graphcell.records import dataclass

if TYPE_CHECKING:
    from graphcell.codegen.fuse import Analysis, Group

MAX_NODES = 8
"""Ops that may be done again for one value."""
_SMALL = 16
"""A value so many times smaller than another costs nothing beside it."""
_FROM_BYTES = 1 << 15
_MOST_SOURCES = 16
"""Values that are looked at as the source of several others, in one search."""


@dataclass
class _Recipe:
    """How a group would compute a value: from which values in memory, in how many ops."""

    reads: dict[Value, None] = field(default_factory=dict)
    nodes: dict[Node, None] = field(default_factory=dict)


class _Search:
    def __init__(self, groups: Sequence[Group], info: Analysis, stored: Set[Value]):
        self.info = info
        self.stored = stored
        self.group_of = {n: g for g in groups for n in g.nodes}
        self.again: dict[Group, dict[Value, None]] = {}
        """What each group computes again."""
        self.reads = {g: {info.root_of_memory(r) for r in g.roots if r not in g.values} for g in groups}
        """What each group reads from memory."""
        self.known: dict[Group, dict[Value, _Recipe]] = {}
        """How each group would compute values, as long as it reads and computes what it does now."""
        self.readers: dict[Value, dict[Group, None]] = {}
        """Of values that may be computed again: the groups that read them from memory."""
        self.newly_stored: set[Value] = set()
        """What was not stored and is now, for what is computed of it."""
        self.gone: set[Value] = set()
        """What was stored and is not any more."""

    def run(self) -> None:
        """Finds what pays by itself."""
        self.readers = {v: groups for v in self._stored() if (groups := self._reading_groups(v)) is not None}
        self._settle(self.readers, self.gone)

    def store_sources(self) -> bool:
        """Stores what pays for several values together; whether there is something."""
        stored = [source for source, values in self._shared_sources().items() if self._try_storing(source, values)]
        return bool(stored)

    def _settle(self, values: Iterable[Value], gone: set[Value]) -> float:
        """Has those of `values` computed again that pay, as long as there are some, and adds them to `gone`. Returns what that saves."""
        saved, progress, left = 0.0, True, list(values)
        while progress:
            progress = False
            for v in [v for v in left if v in self.readers]:
                gain, recipes = self._recipes(v, self.readers[v])
                if gain <= 0:
                    continue
                progress, saved = True, saved + gain
                del self.readers[v]
                gone.add(v)
                for g, recipe in recipes.items():
                    self._compute_again(v, g, recipe)
        return saved

    def _compute_again(self, v: Value, g: Group, recipe: _Recipe) -> None:
        self.known.pop(g, None)
        self.again.setdefault(g, {})[v] = None
        self.reads[g].discard(v)
        self.reads[g].update(recipe.reads)
        for r in recipe.reads:
            made = self.info.made_by.get(r)
            if made is None or self.group_of.get(made) in (None, g):
                continue
            if r in self.readers:
                self.readers[r][g] = None
            else:
                self.newly_stored.add(r)

    def _shared_sources(self) -> dict[Value, list[Value]]:
        """What is not stored, and the stored values that could be computed of it, several of them: 1 + tanh(x) and 1 - tanh(x)^2 of tanh(x). Those of most
        values first."""
        sources: dict[Value, list[Value]] = {}
        for v in self.readers:
            for r in self._not_stored_above(v):
                sources.setdefault(r, []).append(v)
        order = sorted((r for r, values in sources.items() if len(values) > 1), key=lambda r: -len(sources[r]))
        return {r: sources[r] for r in order[:_MOST_SOURCES]}

    def _not_stored_above(self, v: Value) -> dict[Value, None]:
        """What is not stored of all that cheap ops make v of."""
        found: dict[Value, None] = {}
        stack = [v]
        while stack and len(found) < MAX_NODES:
            for x in self.info.made_by[stack.pop()].operands:
                root, _ = origin(self.info.made_by, x)
                if root in found or self.info.is_fill(root) or self.info.root_of_memory(root) is not root or self._is_stored(root):
                    continue
                found[root] = None
                if self._is_cheap(self.info.made_by[root]):
                    stack.append(root)
        return found

    def _try_storing(self, source: Value, values: Sequence[Value]) -> bool:
        """Stores `source` if what then pays of `values` is worth that; else leaves all as it was. Whether it does."""
        if self._is_stored(source):
            return False
        again, reads = {g: dict(v) for g, v in self.again.items()}, {g: set(v) for g, v in self.reads.items()}
        readers, newly_stored, gone = {v: dict(groups) for v, groups in self.readers.items()}, set(self.newly_stored), set(self.gone)
        self.known.clear()
        self.newly_stored.add(source)
        if self._settle(values, self.gone) > WRITE * source.type.nbytes:
            return True
        self.again, self.reads, self.readers, self.newly_stored, self.gone = again, reads, readers, newly_stored, gone
        self.known.clear()
        return False

    def _stored(self) -> list[Value]:
        """Results of cheap elementwise ops that other groups read."""
        found, given = [], self.info.outputs | self.stored
        for group in dict.fromkeys(self.group_of.values()):
            for v in group.values:
                if self._is_cheap(self.info.made_by[v]) and v not in given and v.type.nbytes >= _FROM_BYTES and self._leaves_group(v, group):
                    found.append(v)
        return found

    @staticmethod
    def _is_cheap(node: Node) -> bool:
        return isinstance(node.op, Elementwise) and node.op.fast and not isinstance(node.op, Copy)

    def _leaves_group(self, v: Value, group: Group) -> bool:
        return any(self.group_of.get(n) is not group for n in self.info.readers(v))

    def _reading_groups(self, v: Value) -> dict[Group, None] | None:
        """The other groups that read v; None if one of them cannot compute it."""
        own = self.group_of[self.info.made_by[v]]
        groups: dict[Group, None] = {}
        for node in self.info.readers(v):
            group = self.group_of.get(node)
            if group is own:
                continue
            if group is None:
                return None
            for k, x in enumerate(node.operands):
                if self.info.root_of_memory(x) is v and ((node, k) not in group.operands or origin(self.info.made_by, x)[0] is not v):
                    return None
            groups[group] = None
        return groups

    def _recipes(self, v: Value, readers: dict[Group, None]) -> tuple[float, dict[Group, _Recipe]]:
        """What is gained if the readers of v compute it, and how they would. A gain of 0 or less says that they had better read it."""
        gain = WRITE * v.type.nbytes
        recipes = {}
        for g in readers:
            recipe = recipes[g] = self.describe(v, g)
            if len(recipe.nodes) > MAX_NODES:
                return 0.0, {}
            gain += READ * v.type.nbytes - self._cost(recipe, v, g)
        return gain, recipes

    def _cost(self, recipe: _Recipe, v: Value, g: Group) -> float:
        elements = sum(n.results[0].type.size for n in recipe.nodes)
        return FAST * elements + sum(self._cost_of_reading(r, v, g) for r in recipe.reads)

    def _cost_of_reading(self, r: Value, v: Value, g: Group) -> float:
        if r.type.size * _SMALL <= v.type.size or r in self.reads[g]:
            return 0.0
        return r.type.nbytes * (READ if self._is_stored(r) else READ + WRITE)

    def _is_stored(self, r: Value) -> bool:
        """Whether r lies in memory as things are."""
        own = self.info.made_by.get(r)
        if own is None or own not in self.group_of or r in self.info.outputs or r in self.newly_stored:
            return True
        return r not in self.gone and self._leaves_group(r, self.group_of[own])

    def describe(self, v: Value, g: Group) -> _Recipe:
        """How g would compute v: each operand is read, or computed where that costs less (or where it is not stored any more)."""
        known = self.known.setdefault(g, {})
        if v not in known:
            known[v] = self._described(v, g)
        return known[v]

    def _described(self, v: Value, g: Group) -> _Recipe:
        maker = self.info.made_by[v]
        recipe = _Recipe({}, {maker: None})
        for x in maker.operands:
            root, _ = origin(self.info.made_by, x)
            if self.info.is_fill(root):
                continue
            memory = self.info.root_of_memory(root)
            part = _Recipe({memory: None})
            again = root in self.again.get(g, ())
            if again or (memory is root and self._is_candidate(root, v, g, maker)):
                computed = self.describe(root, g)
                if again or (len(computed.nodes) < MAX_NODES and self._cost(computed, v, g) < self._cost_of_reading(root, v, g)):
                    part = computed
            recipe.reads.update(part.reads)
            recipe.nodes.update(part.nodes)
        return recipe

    def _is_candidate(self, root: Value, v: Value, g: Group, reader: Node) -> bool:
        """True if root might rather be computed than read: made by cheap ops, in the group of its reader, which may be one that computes it again."""
        made, own = self.info.made_by.get(root), self.group_of[reader]
        if made is None or not (self.group_of.get(made) is own or root in self.again.get(own, ())) or not self._is_cheap(made):
            return False
        return self._cost_of_reading(root, v, g) > 0.0


class _Rebuild:
    """Makes the new graph."""

    def __init__(self, search: _Search, graph: Graph):
        self.search, self.graph, self.made_by = search, graph, search.info.made_by
        self.nodes: list[Node] = []
        self.copies: dict[tuple[Group, Value], Value] = {}
        self.clones: dict[Node, Value] = {}

    def run(self) -> Graph:
        for node in self.graph.nodes:
            group = self.search.group_of.get(node)
            again = self.search.again.get(group) if group is not None else None
            if group is None or not again:
                self.nodes.append(node)
                continue
            operands = tuple(self._value(v, group, again) for v in node.operands)
            self.nodes.append(node if operands == node.operands else Node(node.op, operands, node.results, node.span))
        return Graph(self.graph.name, self.graph.inputs, self._used(), self.graph.outputs)

    def _used(self) -> list[Node]:
        """The nodes without those that nobody reads any more."""
        read = set(self.graph.outputs)
        kept: list[Node] = []
        for node in reversed(self.nodes):
            if (is_loop_op(node.op) or is_virtual(node.op)) and not any(v in read for v in node.results):
                continue
            read.update(node.operands)
            kept.append(node)
        return kept[::-1]

    def _value(self, v: Value, group: Group, again: dict[Value, None]) -> Value:
        """v, or what stands for it in `group`."""
        root, steps = origin(self.made_by, v)
        if root not in again and not steps:
            return v
        if (group, v) in self.copies:
            return self.copies[group, v]
        if root not in again:
            self.copies[group, v] = v
            return v
        new = self._clone(root, group, again)
        for step in steps:
            copied = copy_node(step, {step.operands[0]: new})
            self.nodes.append(copied)
            new = copied.results[0]
        self.copies[group, v] = new
        return new

    def _clone(self, root: Value, group: Group, again: dict[Value, None]) -> Value:
        if (group, root) in self.copies:
            return self.copies[group, root]
        recipe = self.search.describe(root, group)
        every = again | {n.results[0]: None for n in recipe.nodes}
        maker = self.made_by[root]
        table = {v: self._value(v, group, every) for v in maker.operands}
        node = copy_node(maker, table)
        self.nodes.append(node)
        self.clones[node] = root
        self.copies[group, root] = node.results[0]
        return node.results[0]


def origin(made_by: Mapping[Value, Node], v: Value) -> tuple[Value, list[Node]]:
    """The root that v is a reshape, transpose or broadcast of, fences left out, and these steps, root first."""
    root, steps = chain(made_by, v)
    while (maker := made_by.get(root)) is not None and isinstance(maker.op, Fence):
        root, before = chain(made_by, maker.operands[0])
        steps = [*before, *steps]
    return root, steps


def recompute(groups: Sequence[Group], info: Analysis, stored: Set[Value] = frozenset()) -> list[tuple[Graph, dict[Node, Value]]]:
    """Graphs as described at the top of this file, each with its new nodes and the values that these compute again: one with what pays by itself, one with
    what several values come from as well; none where nothing is to be gained. The values `stored` are read from memory in any case.
    """
    search = _Search([g for g in groups if g.values], info, stored)
    search.run()
    found = [_rebuilt(search, info.graph)] if search.again else []
    if search.store_sources():
        found.append(_rebuilt(search, info.graph))
    return found


def _rebuilt(search: _Search, graph: Graph) -> tuple[Graph, dict[Node, Value]]:
    rebuild = _Rebuild(search, graph)
    return rebuild.run(), rebuild.clones
