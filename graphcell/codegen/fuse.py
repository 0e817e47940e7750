"""Gathers the loop ops of a graph into groups, each of which becomes one kernel.

Enters: a legal graph (see legalize.py). Leaves: the groups and the remaining nodes in an order of execution. Ops join the group of
their producers where one loop nest can hold both: their axes unify, their reductions run along the same axes, neither is computed more
often than before (but for a few cheap ops), and no path leads from the group out and back in.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import field
from itertools import pairwise

from graphcell.codegen.axes import Axis, Dims, Trail, flatten, leaf_set, leaves, volume
from graphcell.codegen.kernel import FEWEST_PARTS, POINTS_OF_ONE_BLOCK, STREAMED_BYTES
from graphcell.codegen.layout import Layout, own_layout, view_layout
from graphcell.codegen.legalize import is_loop_op, is_virtual
from graphcell.codegen.operands import Operand, Path, chain, read_operands
from graphcell.codegen.recompute import recompute
from graphcell.codegen.row_parts import FEWEST_ROWS
from graphcell.ir.graph import Graph, Node, Value
from graphcell.ir.types import TensorType
from graphcell.ops.base import Elementwise, Reduction, View
from graphcell.ops.creation import Full, Iota
from graphcell.ops.movement import Concat
from graphcell.ops.reduction import ReduceSum
from graphcell.passes.costs import READ, SMALL_STRIDE, WRITE
from graphcell.passes.row_blocks import LONGEST_STRIP, row_blocks, rows_of_block
from graphcell.records import dataclass

MAX_NODES, MAX_OPERANDS = 160, 40
CHEAP_NODES = 6
"""A producer of a smaller domain that has at most so many ops, all of them fast, may be computed again in each row."""

_WORTH_READING_ONCE, _MOST_SUMMED = 1 << 14, 16
"""Elements from which reductions of one value are done in one kernel, and the ops that it may have."""

_MOST_NODES_OF_SIBLINGS = 64
"""Ops of two loop nests that become one only because they read the same."""

_FEWEST_COLUMNS, _MOST_COLUMNS, _MOST_SUMS = 32, 1 << 14, 8
"""Length of rows beside which sums of columns are added up, which stay in the caches from row to row, and how many of these."""


@dataclass(eq=False)
class Group:
    """Loop ops that become one kernel."""

    nodes: list[Node]
    number: int
    operands: dict[tuple[Node, int], Operand] = field(default_factory=dict)
    values: dict[Value, Dims] = field(default_factory=dict)
    """Axes of the values computed here."""
    roots: dict[Value, Dims] = field(default_factory=dict)
    """Axes by which a value from outside is read (the first way, if there are several)."""
    domain: list[Axis] = field(default_factory=list)
    points: int = 1
    """How many points the loops walk."""
    reduced: list[Axis] = field(default_factory=list)
    summed: list[Axis] = field(default_factory=list)
    """Axes of rows along which some values are added up row by row, beside what is reduced within rows."""
    sums: set[Value] = field(default_factory=set)
    """The results of that."""
    slow: bool = False
    before: set[Group] = field(default_factory=set)
    after: set[Group] = field(default_factory=set)
    bits: int = 0
    """One bit for each node gathered here."""
    ancestors: int = 0
    """The bits of all groups that must run before."""


class Analysis:
    """What every part of fusion asks about a graph: who makes a value, where a view lies, who reads a value."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.made_by = graph.producers()
        self.users: dict[Value, list[Node]] = {}
        for node in graph.nodes:
            for v in dict.fromkeys(node.operands):
                self.users.setdefault(v, []).append(node)
        self._layouts: dict[Value, Layout | None] = {}
        self._roots: dict[Value, Value] = {}
        self._paths: dict[Value, Path] = {}
        self.outputs = frozenset(self.root_of_memory(v) for v in graph.outputs)
        """The values in whose buffers the graph's outputs lie (an output may be a reshape of one)."""

    def layout(self, v: Value) -> Layout:
        """Where the elements of a memory value or a strided view lie."""
        found = self.strided(v)
        assert found is not None, "legalize copies what no strides express and is not read along the axes of its root"
        return found

    def strided(self, v: Value) -> Layout | None:
        """Where the elements of v lie; None for a reshape that no strides can express."""
        if v not in self._layouts:
            node = self.made_by.get(v)
            if node is None or not isinstance(node.op, View):
                self._layouts[v] = own_layout(v)
            else:
                inner = self.strided(node.operands[0])
                self._layouts[v] = None if inner is None else view_layout(node, inner)
        return self._layouts[v]

    def is_fill(self, v: Value) -> bool:
        """True for what lies in no memory: fills and ramps."""
        maker = self.made_by.get(v)
        return maker is not None and isinstance(maker.op, (Full, Iota))

    def path(self, v: Value) -> Path:
        """How v comes from the root that it is read from."""
        if v not in self._paths:
            root, steps = chain(self.made_by, v)
            self._paths[v] = Path(v, root, tuple(steps), not self.is_fill(root) and self.strided(v) is not None)
        return self._paths[v]

    def readers(self, v: Value) -> list[Node]:
        """Nodes that read v, directly or through views."""
        found: list[Node] = []
        stack = [v]
        while stack:
            for user in self.users.get(stack.pop(), ()):
                if isinstance(user.op, View):
                    stack.append(user.results[0])
                else:
                    found.append(user)
        return found

    def root_of_memory(self, v: Value) -> Value:
        """The value whose buffer v is read from; v itself if it is a fill or ramp."""
        if v not in self._roots:
            root, node = v, self.made_by.get(v)
            while node is not None and isinstance(node.op, View):
                root = node.operands[0]
                node = self.made_by.get(root)
            self._roots[v] = root
        return self._roots[v]

    def written(self, group: Group) -> list[Value]:
        """What a group makes for others: its kernel writes it."""
        inside = set(group.nodes)
        return [v for v in group.values if v in self.outputs or any(u not in inside for u in self.readers(v))]


class Fusion:
    """Builds the groups of one graph."""

    def __init__(self, graph: Graph, repeated: Collection[Node] = ()):
        self.graph = graph
        self.repeated = repeated
        """Nodes that compute again what another group has, for their readers: they join no producers but each other."""
        self.info = Analysis(graph)
        self.trail = Trail()
        self.group_of: dict[Node, Group] = {}
        self.groups: list[Group] = []
        self.last_effect: Node | None = None

    def run(self) -> list[Group]:
        """All groups in an order of execution; nodes that are no loops stand in a group alone."""
        waiting: dict[Node, list[Node]] = {}
        for node in self.graph.nodes:
            if is_virtual(node.op):
                continue
            group = Group([node], len(self.groups), bits=1 << len(self.groups))
            self.group_of[node] = group
            self.groups.append(group)
            producers = self._link(group, node)
            if is_loop_op(node.op):
                self._describe(group, node)
                if self._ends_in_columns(node):
                    waiting[node] = producers
                else:
                    self._join_producers(node, producers)
        for node, producers in waiting.items():  # before sums that stay alone are added up beside rows
            self._join_producers(node, producers)
        self._join_sums()
        self._join_parts()
        self._join_column_sums()
        self._join_siblings()
        self._add_up_beside_rows()
        return _in_order([g for g in self.groups if g.nodes])

    def _link(self, group: Group, node: Node) -> list[Node]:
        producers: dict[Node, None] = {}
        for v in node.operands:
            maker = self.info.made_by.get(self.info.root_of_memory(v))
            if maker is not None and not is_virtual(maker.op):
                producers[maker] = None
        earlier = list(producers)
        if node.op.has_effect:
            if self.last_effect is not None:
                earlier.append(self.last_effect)
            self.last_effect = node
        for p in earlier:
            g = self.group_of[p]
            g.after.add(group)
            group.before.add(g)
            group.ancestors |= g.bits | g.ancestors
        return list(producers)

    def _join_producers(self, node: Node, producers: Sequence[Node]) -> None:
        group = self.group_of[node]
        for producer in producers:
            current = self.group_of[producer]
            if current is not group and is_loop_op(producer.op) and (node not in self.repeated or producer in self.repeated):
                merged, alike = self._try_merge(current, group), ((tuple(current.reduced),), (tuple(group.reduced),))
                group = self._try_merge(current, group, alike) if merged is group and self._reduce_alike(current, group) else merged

    def _reduce_alike(self, p: Group, g: Group) -> bool:
        """Whether two groups reduce rows of one length, of different values, which may be walked together: what lies side by side in memory."""
        rp, rg = set(leaf_set(p.reduced)), set(leaf_set(g.reduced))
        alike = p.points == g.points and volume(p.reduced) == volume(g.reduced) > 1 and rp.isdisjoint(rg)
        return alike and self._last_axis_reduced(p, p, rp) and self._last_axis_reduced(g, g, rg)

    def _ends_in_columns(self, node: Node) -> bool:
        """Whether a node sums columns for nobody but further sums, or for the caller. It waits: what it sums may be summed along rows, too, by one loop
        nest for both. If it is not, the sum joins what it is of after all.
        """
        if not isinstance(node.op, ReduceSum) or node.operands[0].type.rank - 1 in node.op.axis:
            return False
        return all(isinstance(u.op, ReduceSum) for u in self.info.readers(node.results[0]))

    def is_read_outside(self, node: Node) -> bool:
        """Whether another group reads what `node` makes."""
        return any(self.group_of.get(u) is not self.group_of[node] for u in self.info.readers(node.results[0]))

    def _join_sums(self) -> None:
        """Reductions along the same axes of what lies in memory already are found in one pass over it."""
        readers: dict[tuple[Value, int, int], Group] = {}
        for group in [g for g in self.groups if g.nodes and g.reduced]:
            points, reduced = group.points, volume(leaf_set(group.reduced))
            large = [r for r in group.roots if r.type.size >= max(points, _WORTH_READING_ONCE) and not self.info.is_fill(r)]
            for root in large:
                other = readers.get((root, points, reduced))
                if other is None or not other.nodes or other.bits & (group.bits | group.ancestors) or group.bits & other.ancestors:
                    continue  # one that waits for the other may stand before it in the list
                if len(other.nodes) + len(group.nodes) <= _MOST_SUMMED:
                    group = self._try_merge(other, group)
            readers.update(((root, points, reduced), group) for root in large)

    def _join_parts(self) -> None:
        """What is put together by turns along a last dimension is made in one loop nest, which then writes whole vectors."""
        for node in self.graph.nodes:
            if not isinstance(node.op, Concat) or node.op.axis != node.results[0].type.rank - 1 or node.results[0].type.shape[-1] > SMALL_STRIDE:
                continue
            parts = [self.info.root_of_memory(v) for v in node.operands]
            made = [v for v in parts if v in self.info.made_by and not is_virtual(self.info.made_by[v].op)]
            for x, y in pairwise(made):
                p, g = (self.group_of[self.info.made_by[v]] for v in (x, y))
                if p is g or not (x in p.values and y in g.values) or p.ancestors & g.bits or g.ancestors & p.bits:
                    continue
                if x.type.shape == y.type.shape:
                    self._try_merge(p, g, (p.values[x], g.values[y]))

    def _join_column_sums(self) -> None:
        """Sums along rows of what a group with reductions within rows makes are added up there, row by row."""
        for g in self.groups:
            if not g.nodes or not g.reduced or g.summed or not all(self._is_column_sum(g, v) for v in self._reductions(g)):
                continue
            for p in sorted(g.before, key=lambda h: h.number):
                if not p.reduced or self._is_too_much(p, g) or len(p.sums) + len(self._reductions(g)) > _MOST_SUMS:
                    continue
                mark = self.trail.mark()
                if not self._path_outside(p, g) and self._unify_groups(p, g) and self._rows_add_up(p, g):
                    g.summed, g.reduced, g.sums = g.reduced, [], set(self._reductions(g))
                    self._merge(p, g)
                    break
                self.trail.undo(mark)

    def _add_up_beside_rows(self) -> None:
        """Sums of columns are added up row by row where rows are written that are long, or of a number that nothing divides: down all rows, a few columns
        after the others, a processor would not foresee what is read."""
        for g in self.groups:
            sums, rows = self._reductions(g), set(leaf_set(g.reduced))
            if not sums or g.summed or len(sums) > _MOST_SUMS or g.points <= POINTS_OF_ONE_BLOCK or not all(self._is_column_sum(g, v) for v in sums):
                continue
            written = [v for v in self.info.written(g) if v not in sums]
            if not written:
                continue
            places = [[a for a in leaves(flatten(axes)) if a.extent > 1] for axes in (*g.roots.values(), *(g.values[v] for v in written))]
            blocks, columns = _around(rows, max(places, key=len))
            if volume(blocks) * volume(rows) < FEWEST_PARTS * FEWEST_ROWS or not _FEWEST_COLUMNS <= volume(columns) <= _MOST_COLUMNS:
                continue
            streamed = blocks and sum(v.type.dtype.itemsize for v in sums) * volume(columns) <= STREAMED_BYTES
            if not streamed and all(_lie_in_order(axes, blocks, rows, columns) for axes in places):
                g.summed, g.reduced, g.sums = g.reduced, [], set(sums)

    def _join_siblings(self) -> None:
        """Loop nests that walk the same large value and wait for the same others become one: the value is read once, and functions that both compute of
        it share their work, as a power and its slope do. Left alone is what contractions and others that are no loops make: a reader may become part of them.
        """
        readers: dict[tuple[Value, int, int], Node] = {}
        for group in [g for g in self.groups if g.nodes and g.points >= _WORTH_READING_ONCE]:
            large = [r for r in group.roots if r.type.size >= group.points and self._is_given_or_made_by_loops(r)]
            for root in large:
                reader = readers.get((root, group.points, group.ancestors))
                other = group if reader is None else self.group_of[reader]
                if other is not group and len(other.nodes) + len(group.nodes) <= _MOST_NODES_OF_SIBLINGS:
                    group = self._try_merge(other, group)
            readers.update(((root, group.points, group.ancestors), group.nodes[0]) for root in large)

    def _is_given_or_made_by_loops(self, root: Value) -> bool:
        maker = self.info.made_by.get(self.info.root_of_memory(root))
        return not self.info.is_fill(root) and (maker is None or is_loop_op(maker.op))

    @staticmethod
    def _reductions(group: Group) -> list[Value]:
        return [n.results[0] for n in group.nodes if isinstance(n.op, Reduction)]

    def _is_column_sum(self, group: Group, v: Value) -> bool:
        """True for a sum that nothing in its group needs, kept in as many digits as it is added."""
        node = self.info.made_by[v]
        wide = v.type.dtype.bits >= 32
        return isinstance(node.op, ReduceSum) and wide and not any(self.group_of.get(u) is group for u in self.info.readers(v))

    def _rows_add_up(self, p: Group, g: Group) -> bool:
        """Whether g, sums and what they are of, fits beside the rows of p; the axes are unified already."""
        whole, rows, columns = set(leaf_set(p.domain)), set(leaf_set(g.reduced)), set(leaf_set(p.reduced))
        if set(leaf_set(g.domain)) != whole or rows & columns or (p.summed and set(leaf_set(p.summed)) != rows):
            return False
        sums = set(self._reductions(g))
        for v, dims in g.values.items():
            if set(leaf_set(flatten(dims))) != (whole - rows if v in sums else whole):
                return False
        if volume(columns) < _FEWEST_COLUMNS or volume(columns) > _MOST_COLUMNS:
            return False
        if any(self._lies_across(axes, columns) for h in (p, g) for axes in h.roots.values()):
            return False
        in_parts = volume(rows) >= FEWEST_PARTS * FEWEST_ROWS
        return in_parts or volume(whole - rows - columns) >= FEWEST_PARTS or volume(whole) <= POINTS_OF_ONE_BLOCK

    @staticmethod
    def _lies_across(axes: Dims, columns: set[Axis]) -> bool:
        """Whether columns do not lie side by side in memory of these axes: apart from the sums, tiles of it are transposed."""
        places = [a for a in leaves(flatten(axes)) if a.extent > 1]
        return bool(places) and places[-1] not in columns and not columns.isdisjoint(places)

    # -- one node ----------------------------------------------------------------------------------------------------
    def _describe(self, group: Group, node: Node) -> None:
        read = read_operands(self.trail, [self.info.path(v) for v in node.operands])
        assert not isinstance(read, int), "legalize copies operands that do not go together"
        operands, dims = read
        for k, operand in enumerate(operands):
            group.operands[node, k] = operand
            group.roots.setdefault(operand.root, operand.axes)
        result = dims
        if isinstance(node.op, Reduction):
            group.reduced = [a for k in node.op.axis for a in dims[k]]
            kept = [() if k in node.op.axis else d for k, d in enumerate(dims)]
            result = tuple(d for k, d in enumerate(kept) if node.op.keep_dims or k not in node.op.axis)
        group.slow = isinstance(node.op, Elementwise) and not node.op.fast
        group.values[node.results[0]] = result
        group.domain = list(leaf_set(flatten(dims)))
        group.points = volume(group.domain)
        assert group.points == node.operands[0].type.size, "an axis that stands in two places does not walk all elements"

    # -- two groups --------------------------------------------------------------------------------------------------
    def _try_merge(self, p: Group, g: Group, same: tuple[Dims, Dims] | None = None) -> Group:
        """One group of both, if they fit; `same`: axes, in each, that are to be the same."""
        if self._is_too_much(p, g) or self._path_outside(p, g):
            return g
        mark = self.trail.mark()
        if (same is None or self.trail.unify(*same)) and self._unify_groups(p, g) and self._fits(p, g):
            return self._merge(p, g)
        self.trail.undo(mark)
        return g

    def _is_too_much(self, p: Group, g: Group) -> bool:
        """More ops, or more arrays, than a loop nest may have; what both read is one. Arrays are told from fills only where there may be too many."""
        read = {r for r in (*p.roots, *g.roots) if len(p.roots) + len(g.roots) > MAX_OPERANDS and not self.info.is_fill(r)}
        return len(p.nodes) + len(g.nodes) > MAX_NODES or len(read) > MAX_OPERANDS

    def _path_outside(self, p: Group, g: Group) -> bool:
        """True if something outside stands between the two, so that neither could run whole."""
        return any(h.ancestors & p.bits for h in g.before if h is not p) or any(h.ancestors & g.bits for h in p.before if h is not g)

    def _unify_groups(self, p: Group, g: Group) -> bool:
        volumes = p.points, g.points
        for (a, b) in ((p, g), (g, p)):
            for operand in a.operands.values():
                if operand.root in a.values:
                    continue
                computed = b.values.get(operand.root)
                if computed is None and self.info.root_of_memory(operand.root) in b.values:
                    return False  # read through a view, which needs the whole value in memory
                if computed is not None and not self.trail.unify(operand.axes, computed):
                    return False
        for root, axes in g.roots.items():
            if root in p.roots and root not in p.values and root not in g.values and not self._is_fill(root):
                mark = self.trail.mark()
                if self.trail.unify(axes, p.roots[root]) and self.trail.mark() > mark and volumes != _volumes(p, g):
                    self.trail.undo(mark)
        return volumes == _volumes(p, g)

    def _is_fill(self, root: Value) -> bool:
        return self.info.is_fill(root) and isinstance(self.info.made_by[root].op, Full)

    def _fits(self, p: Group, g: Group) -> bool:
        """The rules of one loop nest; the axes are unified already."""
        dp, dg = leaf_set(p.domain), leaf_set(g.domain)
        rp, rg = leaf_set(p.reduced), leaf_set(g.reduced)
        if rp and rg and set(rp) != set(rg):
            return False
        reduced = set(rp) | set(rg)
        if (self._waits(p, g, reduced) or self._waits(g, p, reduced)) and self._are_cut(p, g, reduced):
            return False
        whole = max(dp, dg, key=len)
        if not (set(dp) <= set(whole) and set(dg) <= set(whole) and reduced <= set(whole)):
            return False
        outer = set(whole) - reduced
        if len(dp) < len(whole) and not self._may_repeat(p, g, outer):
            return False
        if len(dg) < len(whole):  # g works on rows: only after a reduction, once a row
            return bool(reduced) and all(set(leaf_set(flatten(d))) == outer for d in g.values.values())
        if reduced and not (rp and rg):
            return self._reduction_pays(p, g, outer, reduced)
        return self._stored_values_are_complete(p, g, outer, reduced, set(whole))

    def _are_cut(self, p: Group, g: Group, reduced: set[Axis]) -> bool:
        """Whether reductions of everything or of columns are so long that they are cut in parts (`reductions_in_parts`), which elements that wait for their
        results would prevent. Rows stay whole for them, however few: each is read again from a cache."""
        points, length = max(p.points, g.points), volume(reduced)
        if points == length:
            return length > POINTS_OF_ONE_BLOCK
        if self._last_axis_reduced(p, g, reduced) or points <= POINTS_OF_ONE_BLOCK:
            return False
        found = [(n.op, n.operands[0].type) for h in (p, g) for n in h.nodes if isinstance(n.op, Reduction)]
        return length > LONGEST_STRIP or not any(op.kind in ("max", "min") or _stay_whole(op, x) for op, x in found)

    def _waits(self, p: Group, g: Group, reduced: set[Axis]) -> bool:
        """Whether elements of g wait for what p makes of all of them."""
        if not p.reduced or not reduced <= set(leaf_set(g.domain)):
            return False
        return any(r in p.values and reduced.isdisjoint(leaf_set(flatten(p.values[r]))) for r in g.roots)

    def _may_repeat(self, p: Group, g: Group, outer: set[Axis]) -> bool:
        """May p, of a smaller domain, be computed inside g's loops?"""
        inside = set(p.nodes) | set(g.nodes)
        used_outside = any(u not in inside for n in p.nodes for u in self.info.readers(n.results[0])) or self._is_output(p)
        once_a_row = set(leaf_set(p.domain)) == outer and not p.reduced
        if once_a_row and g.reduced:
            return True
        return not used_outside and not p.slow and not p.reduced and len(p.nodes) <= CHEAP_NODES

    def _reduction_pays(self, p: Group, g: Group, outer: set[Axis], reduced: set[Axis]) -> bool:
        """A reduction joins elementwise work only if the rows that remain are many enough to keep order and threads."""
        if not self._stored_values_are_complete(p, g, outer, reduced, outer | reduced):
            return False
        return not outer or self._last_axis_reduced(p, g, reduced) or volume(outer) >= 128

    def _last_axis_reduced(self, p: Group, g: Group, reduced: set[Axis]) -> bool:
        for group in (p, g):
            for node in group.nodes:
                if isinstance(node.op, Reduction):
                    axes = leaf_set(flatten(group.operands[node, 0].axes))
                    return not axes or list(axes)[-1] in reduced
        return False

    def _stored_values_are_complete(self, p: Group, g: Group, outer: set[Axis], reduced: set[Axis], whole: set[Axis]) -> bool:
        """What must be written to memory varies along all outer loops (else rows would write it again and again)."""
        inside = set(p.nodes) | set(g.nodes)
        for group in (p, g):
            for v, dims in group.values.items():
                axes = set(leaf_set(flatten(dims)))
                if axes == whole or (reduced and axes == outer):
                    continue
                if any(u not in inside for u in self.info.readers(v)) or v in self.info.outputs:
                    return False
        return True

    def _is_output(self, group: Group) -> bool:
        return any(v in self.info.outputs for v in group.values)

    def _merge(self, p: Group, g: Group) -> Group:
        p.nodes += g.nodes
        p.operands.update(g.operands)
        p.values.update(g.values)
        for root, axes in g.roots.items():
            if root not in p.values:
                p.roots.setdefault(root, axes)
        for v in g.values:
            p.roots.pop(v, None)
        p.domain = list(leaf_set([*p.domain, *g.domain]))
        p.points = volume(p.domain)
        p.reduced = list(leaf_set([*p.reduced, *g.reduced]))
        p.summed = list(leaf_set([*p.summed, *g.summed]))
        p.sums |= g.sums
        p.slow = p.slow or g.slow
        for node in g.nodes:
            self.group_of[node] = p
        for h in g.before:
            h.after.discard(g)
            if h is not p:
                h.after.add(p)
                p.before.add(h)
        for h in g.after:
            h.before.discard(g)
            if h is not p:
                h.before.add(p)
                p.after.add(h)
        p.after.discard(p)
        p.before.discard(p)
        p.number = min(p.number, g.number)
        p.bits |= g.bits
        p.ancestors = (p.ancestors | g.ancestors) & ~p.bits
        g.nodes, g.before, g.after = [], set(), set()
        self._tell_descendants(p)
        return p

    @staticmethod
    def _tell_descendants(group: Group) -> None:
        stack = [group]
        while stack:
            h = stack.pop()
            for d in h.after:
                ancestors = d.ancestors | h.ancestors | h.bits
                if ancestors != d.ancestors:
                    d.ancestors = ancestors
                    stack.append(d)


def _stay_whole(op: Reduction, x: TensorType) -> bool:
    """Whether columns are too short to be cut, or legalize would have cut them if that were better."""
    row = math.prod(x.shape[op.axis[-1] + 1 :]) * x.dtype.itemsize
    short = math.prod(x.shape[a] for a in op.axis) < FEWEST_PARTS * rows_of_block(row)
    return short or row_blocks(x.shape, op.axis, x.dtype.itemsize) is not None


def _volumes(p: Group, g: Group) -> tuple[int, int]:
    """Points that the loops of each group would walk now: fewer than its `points` if axes that must stay apart became one."""
    return volume(leaf_set(p.domain)), volume(leaf_set(g.domain))


def _around(rows: set[Axis], places: Sequence[Axis]) -> tuple[list[Axis], list[Axis]]:
    """The axes before all rows in memory, and those behind."""
    at = [k for k, a in enumerate(places) if a in rows] or [len(places)]
    return list(places[: at[0]]), list(places[at[-1] + 1 :])


def _lie_in_order(places: Sequence[Axis], blocks: Sequence[Axis], rows: set[Axis], columns: Sequence[Axis]) -> bool:
    """Whether these axes are some of blocks, then some rows, then some columns."""
    order = {**dict.fromkeys(blocks, 0), **dict.fromkeys(rows, 1), **dict.fromkeys(columns, 2)}
    found = [order.get(a, 3) for a in places]
    return found == sorted(found) and 3 not in found


def _in_order(groups: list[Group]) -> list[Group]:
    """A topological order: the groups by number, each after those that it waits for, whatever their numbers. So nothing that is computed
    late for want of memory runs early because something else has to wait. (networkx has topological orders too, but importing it takes
    longer than compiling a small graph.)
    """
    order: dict[Group, None] = {}
    for first in sorted(groups, key=lambda g: g.number):
        stack = [first]
        while stack:
            waiting = sorted((g for g in stack[-1].before if g not in order), key=lambda g: -g.number)
            if waiting:
                stack += waiting
            else:
                order[stack.pop()] = None
    return list(order)


_MOST_TRIALS = 3
"""Of computing some values again."""


def fuse(graph: Graph) -> tuple[list[Group], Analysis]:
    """The groups of `graph` in an order of execution, and the analysis that they rest on (of an equal graph, `info.graph`).

    What is computed again was to join its readers. Where that fails, it is stored after all, perhaps by a kernel of its own; so all is done anew with
    that value left as it is, and what moves fewer bytes is taken.
    """
    first = Fusion(graph)
    groups = first.run()
    trials = [(groups, first)]
    stored: set[Value] = set()
    for _ in range(_MOST_TRIALS):
        apart: set[Value] = set()
        found = recompute(groups, first.info, stored)
        for again in found:
            fusion = Fusion(*again)
            trials.append((fusion.run(), fusion))
            apart |= {v for node, v in again[1].items() if fusion.is_read_outside(node)}
        if not apart:
            break
        stored |= apart
    groups, fusion = min(trials, key=lambda t: _moved(*t)) if len(trials) > 1 else trials[0]
    return groups, fusion.info


def _moved(groups: Sequence[Group], fusion: Fusion) -> float:
    """The cost of all that loop nests read and write."""
    info, cost = fusion.info, 0.0
    for g in groups:
        read = {info.root_of_memory(r) for r in g.roots if r not in g.values and not info.is_fill(r)}
        cost += READ * sum(v.type.nbytes for v in read) + WRITE * sum(v.type.nbytes for v in info.written(g))
    return cost
