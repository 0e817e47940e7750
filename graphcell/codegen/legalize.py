"""Brings a graph into the form that kernels can be made of.

Enters: an optimised Graph. Leaves: an equal Graph in which every operand of an op that is not a loop (matmul, convolution, calls,
regions) and every output is a whole buffer of its own: views and fills that stand there are copied by explicit `copy` nodes; so are
operands of loop ops that no strides express and that cannot be read along the axes of the others. Values without elements become
fills. Padding that loops read becomes a view, a concatenation that a few loops read a choice between its parts. Long reductions to few
elements, and those of long columns, are split in two, so that they can be shared by threads and add by blocks.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator

import numpy as np

from graphcell.codegen.axes import Trail, fresh_dims
from graphcell.codegen.layout import Layout, Padded, is_contiguous, own_layout, row_major, runs_on, view_layout
from graphcell.codegen.operands import Path, chain, read_operands, walk
from graphcell.codegen.states import Kept, keep_states
from graphcell.dtype import float32, int32, int64
from graphcell.ir.graph import Graph, Node, Value, copy_node
from graphcell.ir.op import Array, Op, infer_types
from graphcell.ir.types import Shape, TensorType
from graphcell.ops.arithmetic import Cast, Select
from graphcell.ops.attention import Attention, AttentionGrad
from graphcell.ops.base import Elementwise, Emitter, Reduction, Val, View, neutral
from graphcell.ops.comparison import Less
from graphcell.ops.contraction import MatMul
from graphcell.ops.control import For
from graphcell.ops.creation import Constant, Full, Iota, number_of
from graphcell.ops.indexing import DynamicSlice, Gather, GatherElements
from graphcell.ops.movement import BroadcastTo, Concat, Pad, Reshape, Transpose, UpdateSlice
from graphcell.ops.pooling import Windows
from graphcell.passes.costs import SMALL_STRIDE, masks_are_quick, pads_in_loops
from graphcell.passes.row_blocks import RowBlocks, fits_strips, row_blocks
from graphcell.records import dataclass

SPLIT_REDUCTION_FROM = 1 << 14
"""Elements of a full reduction from which it is done in two steps."""
_ROW, _LONGEST_ROW = 1 << 10, 1 << 14
"""Elements of a row that a full reduction is cut in, at least, and up to which others are looked for."""
_FEWEST_ROWS = 16
"""Rows that must be left when each is reduced."""
_SHORTEST_ROW = 64
"""Elements of a row, at least, that is reduced before what lies across."""
_MOST_CHOSEN = 4
"""Parts, and readers, of a concatenation between whose parts these readers choose."""
_FEWEST_CHOSEN = 16
"""Neighbouring elements of such a concatenation, a vector or more, of which each part has its own."""
_FEW_READ = 4
"""From so many times the elements of a result on, an operand whose neighbours lie far apart is read where it lies: a copy would read all of it."""
_MOST_ABOVE = 64
"""Values that are looked at for what a reduction is computed from."""


@dataclass(frozen=True)
class Copy(Elementwise):
    """x in a buffer of its own."""

    name = "copy"
    keeps_digits = True

    def eval(self, x: Array) -> Array:  # type: ignore[override]
        return np.array(x)

    def emit(self, b: Emitter, x: Val) -> Val:  # type: ignore[override]
        return x


def is_loop_op(op: Op) -> bool:
    """True for ops that become part of a loop nest."""
    return isinstance(op, (Elementwise, Reduction))


def is_virtual(op: Op) -> bool:
    """True for ops that need no code of their own: views, fills, index ramps."""
    return isinstance(op, (View, Full, Iota))


class _Legalizer:
    def __init__(self, graph: Graph):
        self.graph = graph
        self.table: dict[Value, Value] = {v: v for v in graph.inputs}
        self.nodes: list[Node] = []
        self.made_by: dict[Value, Node] = {}
        self.layouts: dict[Value, Layout | None] = {}
        self.copies: dict[Value, Value] = {}
        self.strips: set[tuple[Shape, tuple[int, ...]]] = set()
        """Shapes and axes of reductions whose columns stay whole."""
        self.users: dict[Value, list[Node]] = {}
        self.makers = graph.producers()
        """Who reads, and who makes, a value of the graph that enters."""
        for node in graph.nodes:
            for v in node.operands:
                self.users.setdefault(v, []).append(node)

    def run(self, first: Collection[int] = ()) -> Graph:
        """The legal graph. Where several outputs are one value, that at one of the positions `first` is it, the others are copies."""
        for node in self.graph.nodes:
            self.visit(node)
        outputs: dict[int, Value] = {}
        taken = set(self.graph.inputs)
        for k in sorted(range(len(self.graph.outputs)), key=lambda k: (k not in first, k)):
            new = self.whole(self.table[self.graph.outputs[k]])
            maker = self.made_by.get(self.root(new))
            if new in taken or self.root(new) in taken or (maker is not None and isinstance(maker.op, Constant)):
                new = self.emit(Copy(), (new,), None)
            taken.add(new)
            taken.add(self.root(new))
            outputs[k] = new
        return Graph(self.graph.name, self.graph.inputs, self.nodes, [outputs[k] for k in sorted(outputs)])

    def root(self, v: Value) -> Value:
        layout = self.layout(v)
        return layout.root if layout is not None else v

    def emit(self, op: Op, operands: tuple[Value, ...], like: Node | None) -> Value:
        types = infer_types(op, tuple(v.type for v in operands))
        node = Node(op, operands, tuple(map(Value, types)), like.span if like else None)
        self.append(node)
        return node.results[0]

    def append(self, node: Node) -> None:
        self.nodes.append(node)
        for v in node.results:
            self.made_by[v] = node

    def visit(self, node: Node) -> None:
        if (is_loop_op(node.op) or isinstance(node.op, View)) and node.results[0].type.size == 0:
            result = node.results[0].type
            self.table[node.results[0]] = self.emit(Full(number_of(0, result.dtype), result.shape, result.dtype), (), node)
            return
        if isinstance(node.op, Reduction):
            self.visit_reduction(node)
            return
        if isinstance(node.op, View):
            self.table[node.results[0]] = self.view(node.op, self.table[node.operands[0]], node)
            return
        if isinstance(node.op, Pad) and self.is_read_guarded(node.op, node):
            self.table[node.results[0]] = self.padded(node.op, self.table[node.operands[0]], node)
            return
        if isinstance(node.op, Concat) and self.is_chosen(node.op, node):
            self.table[node.results[0]] = self.chosen(node.op, node)
            return
        kept = keep_states(node, lambda v: not self.is_output(v))
        if kept is not None:
            self.visit_states(kept)
            return
        regions = tuple(legalize(g) for g in node.op.regions)
        op = node.op.with_regions(regions) if regions else node.op
        if is_loop_op(op):
            self.fit_operands(node)
        else:
            for v in node.operands:
                layout = self.layout(self.table[v])
                if layout is None or layout.guards or not _reads_views(node, v, layout):
                    self.table[v] = self.whole(self.table[v])
        if isinstance(op, Concat) and _takes_turns(op, node):
            self.table[node.results[0]] = self.joined_by_turns(node)
            return
        made = copy_node(node, self.table, op)
        self.append(Node(op, tuple(self.piece(v, node) for v in node.operands), made.results, node.span) if isinstance(op, Concat) else made)

    def visit_states(self, kept: Kept) -> None:
        """A loop that keeps all states of what it carries; what other values it gives are parts of their stacks."""
        self.visit(kept.loop)
        for v, other in kept.same.items():
            self.table[v] = self.table[other]
        for v, (stack, cuts) in kept.views.items():
            x = self.table[stack]
            for cut in cuts if self.users.get(v) or v in self.graph.outputs else ():
                x = self.view(cut, x, kept.loop)
            self.table[v] = x

    def fit_operands(self, node: Node) -> None:
        """Copies operands that cannot be read in one loop nest with the others."""
        while any(self.layout(self.table[v]) is None for v in node.operands):
            read = read_operands(Trail(), [self.path(self.table[v]) for v in node.operands])
            if not isinstance(read, int):
                return
            v = node.operands[read]
            self.table[v] = self.whole(self.table[v])

    def path(self, v: Value) -> Path:
        root, steps = chain(self.made_by, v)
        return Path(v, root, tuple(steps), self.layout(v) is not None)

    def view(self, op: Op, x: Value, like: Node) -> Value:
        """A view of x, or of a copy of it where it could not be read otherwise."""
        maker = self.made_by.get(x)
        (result,) = infer_types(op, (x.type,))
        if maker is not None and isinstance(maker.op, Full):
            return self.emit(Full(maker.op.value, result.shape, result.dtype), (), like)
        layout = self.layout(x)
        trial = Node(op, (x,), (Value(result),), like.span)
        if layout is None or view_layout(trial, layout) is None:
            root, steps = chain(self.made_by, x)
            readable = isinstance(op, (Reshape, BroadcastTo, Transpose)) and walk(Trail(), fresh_dims(root.type.shape), [*steps, trial]) is not None
            if not readable:
                x = self.whole(x)
        return self.emit(op, (x,), like)

    def is_read_guarded(self, op: Pad, node: Node) -> bool:
        """True for a padding that loops read with guards instead of from memory: not one that windows read again and again."""
        if not pads_in_loops(op, node.operands[0].type) or not node.results[0].type.size:
            return False
        return self.lies_along_rows(self.table[node.operands[0]]) and not any(isinstance(user.op, Windows) for user in self.readers(node.results[0]))

    def lies_along_rows(self, v: Value) -> bool:
        """True if elements of v that differ in the last index lie side by side in memory; loops read others by transposing squares."""
        layout = self.layout(v)
        return layout is None or not v.type.rank or v.type.shape[-1] == 1 or layout.strides[-1] in (0, 1, -1)

    def readers(self, v: Value) -> list[Node]:
        """The nodes that read v, through views too; `Windows` count as readers."""
        found, seen = [], [v]
        for x in seen:
            for user in self.users.get(x, ()):
                if isinstance(user.op, View) and not isinstance(user.op, Windows):
                    seen += user.results
                else:
                    found.append(user)
        return found

    def padded(self, op: Pad, x: Value, like: Node) -> Value:
        """`x` with padding around it, as a view of memory."""
        maker = self.made_by.get(x)
        if maker is not None and isinstance(maker.op, Full):  # one element is enough
            one = self.whole(self.emit(Full(maker.op.value, (1,) * x.type.rank, x.type.dtype), (), like))
            x = self.emit(BroadcastTo(x.type.shape), (one,), like)
        layout = self.layout(x)
        trial = Node(Padded(op), (x,), tuple(map(Value, infer_types(op, (x.type,)))), like.span)
        if layout is None or view_layout(trial, layout) is None:
            x = self.whole(x)
        return self.emit(Padded(op), (x,), like)

    def is_chosen(self, op: Concat, node: Node) -> bool:
        """True for a concatenation that a few loops read: they choose between its parts, which are not copied."""
        result = node.results[0].type
        readers = self.readers(node.results[0])
        if not masks_are_quick(result.dtype) or len(node.operands) > _MOST_CHOSEN or not 0 < len(readers) <= _MOST_CHOSEN:
            return False
        if math.prod(result.shape[op.axis :]) < _FEWEST_CHOSEN:
            return False
        if not all(is_loop_op(user.op) for user in readers) or self.is_output(node.results[0]):
            return False
        if not all(v.type.size and self.lies_along_rows(self.table[v]) for v in node.operands):
            return False
        makers = [self.made_by.get(self.root(self.table[v])) for v in node.operands]
        return not any(m is not None and isinstance(m.op, (MatMul, AttentionGrad)) for m in makers)  # these write to their part of the whole

    def joined_by_turns(self, node: Node) -> Value:
        """A concatenation whose parts take turns in memory. Copies of those that are no loop's result become one loop nest with the others, see fuse.py."""
        parts = []
        for v in node.operands:
            x = self.table[v]
            maker = self.made_by.get(self.root(x))
            if maker is None or not is_loop_op(maker.op):
                one = self.emit(Copy(), (self.view(Reshape(x.type.shape[:-1]), x, node),), node)  # as the others before they were stacked
                x = self.view(Reshape(x.type.shape), one, node)
            parts.append(x)
        return self.emit(node.op, tuple(parts), node)

    def piece(self, v: Value, concat: Node) -> Value:
        """What a concatenation takes of v: where others read it, too, a copy, which the loop that makes v can write to its place (pieces.py) as it writes v."""
        x = self.table[v]
        maker, whole = self.made_by.get(x), concat.results[0].type.shape
        if maker is None or not is_loop_op(maker.op) or len(self.readers(v)) < 2 or not runs_on(v.type.shape, row_major(whole)):
            return x
        return self.emit(Copy(), (x,), maker)

    def is_output(self, v: Value) -> bool:
        """True if v, or a view of it, is an output."""
        seen = [v]
        for x in seen:
            seen += [y for user in self.users.get(x, ()) if isinstance(user.op, View) for y in user.results]
        return not set(seen).isdisjoint(self.graph.outputs)

    def chosen(self, op: Concat, node: Node) -> Value:
        """The concatenation as a choice, by the index along its axis, between its parts amid padding."""
        whole = node.results[0].type
        places = Iota(whole.shape, op.axis, int32 if whole.shape[op.axis] < 1 << 31 else int64)
        zero = number_of(0, whole.dtype)
        result, end = None, whole.shape[op.axis]
        for v in reversed(node.operands):
            begin = end - v.type.shape[op.axis]
            low, high = (tuple(n if k == op.axis else 0 for k in range(whole.rank)) for n in (begin, whole.shape[op.axis] - end))
            part = self.padded(Pad(low, high, (0,) * whole.rank, zero), self.table[v], node)
            if result is None:
                result = part
            else:
                bound = self.emit(Full(end, whole.shape, places.dtype), (), node)
                result = self.emit(Select(), (self.emit(Less(), (self.emit(places, (), node), bound), node), part, result), node)
            end = begin
        assert result is not None
        return result

    def visit_reduction(self, node: Node) -> None:
        op, x = node.op, self.table[node.operands[0]]
        assert isinstance(op, Reduction)
        result = node.results[0].type
        if x.type.size == 0:
            self.table[node.results[0]] = self.emit(_empty_reduction(op, result), (), node)
            return
        if all(x.type.shape[a] == 1 for a in op.axis):
            self.table[node.results[0]] = self.view(Reshape(result.shape), x, node)
            return
        split = self._rows_above(op, x) or self._rows_within(op, x) or _split_axes(op, x.type)
        if split is None and not self._by_strips(node, x):
            split = row_blocks(x.type.shape, op.axis, x.type.dtype.itemsize)
        part_axes = self._part_above(op, x)
        if part_axes and (split is None or (split.shape, split.first) != (x.type.shape, part_axes)):
            kept = [a for a in range(x.type.rank) if a not in part_axes]
            part = self.reduce_again(type(op)(part_axes, False), x, node)  # type: ignore[call-arg]
            part = self.reduce_again(type(op)(tuple(k for k, a in enumerate(kept) if a in op.axis), False), part, node)  # type: ignore[call-arg]
            self.table[node.results[0]] = part if part.type.shape == result.shape else self.view(Reshape(result.shape), part, node)
            return
        if split is None:
            self.append(copy_node(node, self.table))
            return
        part = x if split.shape == x.type.shape else self.view(Reshape(split.shape), x, node)
        narrow = result.dtype.is_float and result.dtype.bits == 16
        if narrow:  # what is between the two steps has the digits of float32, too
            part = self.emit(Cast(float32), (part,), node)
        part = self.emit(type(op)(split.first, False), (part,), node)  # type: ignore[call-arg]
        part = self.reduce_again(type(op)(split.second, False), part, node)  # type: ignore[call-arg]
        if narrow:
            part = self.emit(Cast(result.dtype), (part,), node)
        want = node.results[0].type.shape
        self.table[node.results[0]] = part if part.type.shape == want else self.view(Reshape(want), part, node)

    def reduce_again(self, op: Reduction, x: Value, like: Node) -> Value:
        """The second step, of which there may be so much that it takes two."""
        node = Node(op, (x,), tuple(map(Value, infer_types(op, (x.type,)))), like.span)
        self.table[x] = x
        self.visit_reduction(node)
        return self.table[node.results[0]]

    def _rows_above(self, op: Reduction, x: Value) -> RowBlocks | None:
        """The cut for a reduction of a whole large Tensor that is computed from reductions of rows: these rows first, which one kernel can do
        together with what they come from."""
        if len(op.axis) != x.type.rank or x.type.size < SPLIT_REDUCTION_FROM:
            return None
        for node in self._above(x):
            whole = node.operands[0].type if node.operands else None
            if isinstance(node.op, Reduction) and whole is not None and whole.size == x.type.size:
                rows = whole.rank - len(node.op.axis)
                return RowBlocks(whole.shape, node.op.axis, tuple(range(rows))) if rows > 0 and node.results[0].type.size >= _FEWEST_ROWS else None
        return None

    def _part_above(self, op: Reduction, x: Value) -> tuple[int, ...]:
        """Axes to reduce first: a part of those of a large reduction, along which what x is computed from was reduced. The gradient of a scale beside a
        normalisation of each image sums all images, but each of them in the kernel that reduces that one anyway. Empty if nothing is like that.
        """
        made = self.made_by.get(x)
        narrow = x.type.dtype.is_float and x.type.dtype.bits == 16
        is_whole = len(op.axis) == x.type.rank
        if x.type.size < SPLIT_REDUCTION_FROM or is_whole or narrow or made is None or not isinstance(made.op, Elementwise):
            return ()
        for node in self._above(x):
            if isinstance(node.op, Reduction) and node.operands[0].type.shape == x.type.shape:
                if node.op.axis == op.axis:
                    return ()
                if set(node.op.axis) < set(op.axis) and node.results[0].type.size * _SHORTEST_ROW <= x.type.size:
                    return node.op.axis
        return ()

    def _rows_within(self, op: Reduction, x: Value) -> RowBlocks | None:
        """The cut for a reduction along rows and across them, as of channels over images: the rows first, in the kernel that computes what is reduced.

        Not where that rests on reductions along all these axes, as a batch normalisation does: they share a kernel as they are.
        """
        shape = x.type.shape
        axes = [a for a in op.axis if shape[a] != 1]
        first = len(shape)
        while first and (first - 1 in axes or shape[first - 1] == 1):
            first -= 1
        across = tuple(a for a in op.axis if a < first)
        if x.type.size < SPLIT_REDUCTION_FROM or math.prod(shape[first:]) < _SHORTEST_ROW or not any(shape[a] > 1 for a in across):
            return None
        made = self.made_by.get(x)
        if made is None or not isinstance(made.op, Elementwise):
            return None
        for node in self._above(x):
            if isinstance(node.op, Reduction) and node.op.axis == op.axis and node.operands[0].type.shape == shape:
                return None
        return RowBlocks(shape, tuple(a for a in op.axis if a >= first), across)

    def _by_strips(self, node: Node, x: Value) -> bool:
        """Whether the columns that are reduced stay whole: they fit in strips, and the loops that read them again do so with the result, an extremum, or what
        is reduced is computed with such a result itself, which a cut would make them read apart from that.

        Sums join where such a chain is, as those of the cotangent of a softmax; else they are cut, as means are: blocks keep more of their digits, which a
        difference from a mean needs.
        """
        op = node.op
        assert isinstance(op, Reduction)
        if not fits_strips(x.type.shape, op.axis, x.type.dtype.itemsize):
            return False
        follows = any(isinstance(n.op, Reduction) and n.op.axis == op.axis and n.operands[0].type.shape == x.type.shape for n in self._above(x))
        chain = x.type.shape, op.axis
        joins = op.kind in ("max", "min") or chain in self.strips
        if not (follows or (joins and self._is_read_again(node.operands[0]) and self._comes_back(node))):
            return False
        self.strips.add(chain)
        return True

    def _is_read_again(self, x: Value) -> bool:
        """Whether more than one node reads x, or a large operand of the op that computes it."""
        made = self.makers.get(x)
        sources = [x] if made is None or not isinstance(made.op, Elementwise) else [x, *(v for v in made.operands if v.type.size == x.type.size)]
        return any(len(self.users.get(v, ())) > 1 for v in sources)

    def _comes_back(self, node: Node) -> bool:
        """Whether the result of a reduction meets arrays as large as what was reduced, by way of loop ops."""
        size = node.operands[0].type.size
        seen, stack = set(node.results), list(node.results)
        while stack and len(seen) < _MOST_ABOVE:
            for user in self.users.get(stack.pop(), ()):
                if not isinstance(user.op, (Elementwise, Reshape, BroadcastTo)):
                    continue
                if isinstance(user.op, Elementwise) and user.results[0].type.size == size:
                    return True
                found = [v for v in user.results if v not in seen]
                seen.update(found)
                stack += found
        return False

    def _above(self, x: Value) -> Iterator[Node]:
        """What x is computed from by loop ops and the views among them, up to reductions, the nearest first."""
        seen, stack = {x}, [x]
        while stack and len(seen) < _MOST_ABOVE:
            node = self.made_by.get(stack.pop())
            if node is None or not isinstance(node.op, (Elementwise, Reduction, Reshape, BroadcastTo)):
                continue
            yield node
            found = [v for v in node.operands if v not in seen]
            seen.update(found)
            stack += found

    def layout(self, v: Value) -> Layout | None:
        """Where v lies if it is memory or a view of memory; None for fills and ramps and what looks at them."""
        if v not in self.layouts:
            node = self.made_by.get(v)
            if node is None or not is_virtual(node.op):
                self.layouts[v] = own_layout(v)
            elif isinstance(node.op, View):
                inner = self.layout(node.operands[0])
                self.layouts[v] = None if inner is None else view_layout(node, inner)
            else:
                self.layouts[v] = None
        return self.layouts[v]

    def whole(self, v: Value) -> Value:
        """v, or a copy of it, as the whole of a buffer."""
        layout = self.layout(v)
        if layout is not None and layout.is_whole(v.type.shape):
            return v
        if v not in self.copies:
            self.copies[v] = self.emit(Copy(), (v,), self.made_by.get(v))
        return self.copies[v]


def _empty_reduction(op: Reduction, result: TensorType) -> Op:
    return Full(number_of(neutral(op.kind, result.dtype), result.dtype), result.shape, result.dtype)  # extrema of nothing were refused


def _split_axes(op: Reduction, x: TensorType) -> RowBlocks | None:
    """The cut for a reduction of a whole large Tensor to one element."""
    if x.size < SPLIT_REDUCTION_FROM or any(n > 1 and a not in op.axis for a, n in enumerate(x.shape)):
        return None
    rows = 1
    for k, d in enumerate(x.shape[:-1]):
        rows *= d
        if rows < _FEWEST_ROWS:
            continue
        after = x.size // rows
        if after >= _FEWEST_ROWS:
            first = tuple(range(k + 1, x.rank))
            return RowBlocks(x.shape, first, tuple(range(k + 1)))
        part = next((n for n in range(-(-_ROW // after), _LONGEST_ROW // after) if d % n == 0), None)
        if part is not None and rows // part >= _FEWEST_ROWS:  # not across the dimensions, along which broadcasts may lie
            shape = (*x.shape[:k], d // part, part, *x.shape[k + 1 :])
            return RowBlocks(shape, tuple(range(k + 1, x.rank + 1)), tuple(range(k + 1)))
    row = next((r for r in range(_ROW, 4 * _ROW) if x.size % r == 0), None)
    if row is None:
        return None
    return RowBlocks((x.size // row, row), (1,), (0,))


def legalize(graph: Graph, updates: Collection[int] = ()) -> Graph:
    """The graph in the form described at the top of this file; regions included. `updates`: outputs that are written over inputs."""
    return _Legalizer(graph).run(updates)


def _takes_turns(op: Concat, node: Node) -> bool:
    """Whether the parts are single elements, by turns, along the last dimension."""
    result = node.results[0].type
    return op.axis == result.rank - 1 and 1 < result.shape[-1] == len(node.operands) <= SMALL_STRIDE


def _reads_views(node: Node, operand: Value, layout: Layout) -> bool:
    """True for ops whose kernels read operands through any strides, and well: `layout` says where the operand lies."""
    op = node.op
    if isinstance(op, MatMul):
        return operand.type.dtype.is_float
    if isinstance(op, (Gather, GatherElements, DynamicSlice)):
        if operand is not node.operands[0]:
            return not isinstance(op, DynamicSlice)
        side_by_side = not operand.type.rank or layout.strides[-1] == 1 or operand.type.shape[-1] == 1
        return side_by_side or node.results[0].type.size * _FEW_READ <= operand.type.size
    if isinstance(op, For):  # what a loop is handed row by row
        rows = node.operands[op.first_scanned : op.first_invariant]
        alone = node.operands.count(operand) == rows.count(operand) > 0
        return alone and is_contiguous(operand.type.shape[1:], layout.strides[1:])
    return isinstance(op, (Concat, Pad, UpdateSlice, Attention, AttentionGrad))
