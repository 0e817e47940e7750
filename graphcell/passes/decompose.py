"""Rewrites ops that have no kernel of their own into ops that have one.

Enters: any Graph. Leaves: an equal Graph without `fold`, `argmax`, `argmin`, `check_index`, `moments` and matrix products of integers. Runs after
differentiation, so that gradients are those of the whole ops.
"""

from __future__ import annotations

import functools
import itertools
import math

from graphcell import dtype as dt
from graphcell.errors import DataIndexError, Span, render
from graphcell.ir.graph import Builder, Graph, Node, Value, copy_node
from graphcell.ir.op import Op, infer_types
from graphcell.ops.arithmetic import Add, Cast, Mul, Select, Sub
from graphcell.ops.base import Elementwise, View
from graphcell.ops.comparison import BitwiseOr, Equal, GreaterEqual, IsFinite, Less, NotEqual
from graphcell.ops.contraction import MatMul
from graphcell.ops.control import If
from graphcell.ops.creation import Full, Iota, number_of
from graphcell.ops.host import CheckIndex, Raise
from graphcell.ops.moments import Moments
from graphcell.ops.movement import BroadcastTo, Pad, Reshape, Slice, Transpose
from graphcell.ops.pooling import Fold, ReduceMinPlace
from graphcell.ops.reduction import ArgMax, ArgMin, ReduceMax, ReduceMin, ReduceSum
from graphcell.passes.costs import masks_are_quick
from graphcell.passes.integer_ranges import integer_range
from graphcell.passes.row_blocks import RowBlocks, row_blocks

_MOST_OPS = 12
"""Elementwise ops that are done for each place of windows apart."""


class _Decomposition:
    def __init__(self, graph: Graph):
        self.graph = graph
        self.nodes: list[Node] = []
        self.made_by: dict[Value, Node] = {}
        self.table: dict[Value, Value] = {v: v for v in graph.inputs}
        self.span: Span | None = None
        self.known: dict[tuple[Op, Value], Value] = {}

    def emit(self, op: Op, *operands: Value) -> Value:
        types = infer_types(op, tuple(v.type for v in operands))
        node = Node(op, operands, tuple(map(Value, types)), self.span)
        self._append(node)
        return node.results[0]

    def _append(self, node: Node) -> None:
        self.nodes.append(node)
        self.made_by.update(dict.fromkeys(node.results, node))

    def run(self) -> Graph:
        for node in self.graph.nodes:
            self.span = node.span
            if isinstance(node.op, CheckIndex):
                self._check(node.op, self.table[node.operands[0]])
                continue
            if isinstance(node.op, Moments):
                self.table.update(zip(node.results, self._moments(node.op, self.table[node.operands[0]]), strict=True))
                continue
            replacement = self._decomposed(node)
            if replacement is not None:
                self.table[node.results[0]] = replacement
                continue
            regions = tuple(decompose(g) for g in node.op.regions)
            self._append(copy_node(node, self.table, node.op.with_regions(regions) if regions else None))
        return Graph(self.graph.name, self.graph.inputs, self.nodes, [self.table[v] for v in self.graph.outputs])

    def _decomposed(self, node: Node) -> Value | None:
        op, operands = node.op, [self.table[v] for v in node.operands]
        if isinstance(op, Fold):
            return self._fold(op, *operands)
        if isinstance(op, (ArgMax, ArgMin)):
            return self._place_of_extremum(op, *operands)
        if isinstance(op, MatMul) and _is_decomposed(node):
            return self._integer_product(op, *operands)
        return None

    def _check(self, op: CheckIndex, index: Value) -> None:
        """A branch on the smallest and largest index, in which an exception is raised: the host is called only then. Nothing where every index
        is known to be inside."""
        least, largest = integer_range(index, self.made_by)
        if -op.extent <= least and largest < op.extent:
            return
        axes = tuple(range(index.type.rank))
        low, high = (self._cast(self.emit(reduce(axes, False), index), dt.int64) for reduce in (ReduceMin, ReduceMax))
        below = self.emit(Less(), low, self._full(-op.extent, low))
        outside = self.emit(BitwiseOr(), below, self.emit(GreaterEqual(), high, self._full(op.extent, high)))
        place = f" [{DataIndexError.code}]\n{render(self.span.in_any_call())}" if self.span is not None else ""
        before, between, after = op.message("\0", "\0").split("\0")
        text = (before, (0, "g"), between, (1, "g"), after + place)
        branch = Builder("index_out_of_range")
        branch.append(Raise(DataIndexError.__module__, DataIndexError.__name__, text), (branch.input(low.type), branch.input(high.type)), self.span)
        other = Builder("index_in_range")
        for v in (low, high):
            other.input(v.type)
        self.nodes.append(Node(If(branch.finish([]), other.finish([])), (outside, low, high), (), self.span))

    def _moments(self, op: Moments, x: Value) -> tuple[Value, Value]:
        """Mean and variance: of rows in two passes over the row; of long columns block by block."""
        count = max(op.count(x.type.shape), 1)
        cut = row_blocks(x.type.shape, op.axis, x.type.dtype.itemsize)
        if cut is None:
            mean, centred = self._centred(x, op.axis)
            return mean, self._scaled(self._sum_of_squares(centred, op.axis), 1.0 / count)
        shape = op.infer(x.type)[0].shape
        mean, squares = self._moments_by_blocks(self.emit(Reshape(cut.shape), x), cut)
        return self.emit(Reshape(shape), mean), self.emit(Reshape(shape), self._scaled(squares, 1.0 / count))

    def _moments_by_blocks(self, x: Value, cut: RowBlocks) -> tuple[Value, Value]:
        """Mean, and sum of the squares about it, of columns: each block about its own mean, then the blocks (Chan, Golub and LeVeque).

        A mean is rounded to the digits of its size, not of the deviations: what it so misses is kept beside it (`rest`).
        """
        near, centred = self._centred(x, cut.first)
        rest = self._scaled(self.emit(ReduceSum(cut.first, True), centred), 1.0 / cut.rows)
        squares = self._sum_of_squares(centred, cut.first)
        origin, apart = self._centred(near, cut.second)
        shift, apart = self._centred(self.emit(Add(), apart, rest), cut.second)
        between = self._scaled(self.emit(Sub(), self.emit(Mul(), apart, apart), self.emit(Mul(), rest, rest)), float(cut.rows))
        mean = self.emit(Select(), self.emit(IsFinite(), origin), self.emit(Add(), origin, shift), origin)  # about infinity nothing is centred
        return mean, self.emit(ReduceSum(cut.second, True), self.emit(Add(), squares, between))

    def _centred(self, x: Value, axis: tuple[int, ...]) -> tuple[Value, Value]:
        """The mean of x along `axis`, and x about it."""
        count = max(math.prod(x.type.shape[a] for a in axis), 1)
        mean = self._scaled(self.emit(ReduceSum(axis, True), x), 1.0 / count)
        return mean, self.emit(Sub(), x, self.emit(BroadcastTo(x.type.shape), mean))

    def _sum_of_squares(self, x: Value, axis: tuple[int, ...]) -> Value:
        return self.emit(ReduceSum(axis, True), self.emit(Mul(), x, x))

    def _scaled(self, x: Value, by: float) -> Value:
        return x if by == 1.0 else self.emit(Mul(), x, self._full(by, x))

    def _full(self, value: float, like: Value) -> Value:
        return self.emit(Full(number_of(value, like.type.dtype), like.type.shape, like.type.dtype))

    def _place_of_extremum(self, op: ArgMax | ArgMin, x: Value) -> Value:
        """The smallest index of an element that equals the extremum, or is NaN: then the extremum is NaN, and equals nothing."""
        shape, axis = x.type.shape, (op.axis,)
        result = op.infer(x.type)
        if x.type.size == 0:
            return self.emit(Full(0, result.shape, result.dtype))
        extremum = self.emit((ReduceMax if isinstance(op, ArgMax) else ReduceMin)(axis, True), x)
        hit = self.emit(Equal(), x, self.emit(BroadcastTo(shape), extremum))
        if x.type.dtype.is_float:
            hit = self.emit(BitwiseOr(), hit, self.emit(NotEqual(), x, x))
        index = self.emit(Iota(shape, op.axis, dt.int32 if shape[op.axis] < 1 << 31 else dt.int64))
        place = self.emit(Select(), hit, index, self._full(shape[op.axis] - 1, index))
        return self._cast(self.emit(ReduceMinPlace(axis, False), place), dt.int64)

    def _cast(self, x: Value, dtype: dt.DType) -> Value:
        return x if x.type.dtype is dtype else self.emit(Cast(dtype), x)

    def _integer_product(self, op: MatMul, x: Value, y: Value) -> Value:
        """Sums of products over the last of (*batch, m, n, k), which make one loop nest."""
        rank = x.type.rank
        swapped = (*range(rank - 2), rank - 1, rank - 2)
        x = self.emit(Transpose(swapped), x) if op.transpose_x else x
        y = y if op.transpose_y else self.emit(Transpose(swapped), y)
        *batch, m, k = x.type.shape
        n = y.type.shape[-2]
        left = self.emit(BroadcastTo((*batch, m, n, k)), self.emit(Reshape((*batch, m, 1, k)), x))
        right = self.emit(BroadcastTo((*batch, m, n, k)), self.emit(Reshape((*batch, 1, n, k)), y))
        return self.emit(ReduceSum((rank,), False), self.emit(Mul(), left, right))

    def _fold(self, op: Fold, x: Value) -> Value:
        apart = all(s >= n and (d == 1 or n == 1) for n, s, d in zip(op.size, op.stride, op.dilation, strict=True))
        return self._fold_apart(op, x) if apart else self._fold_overlapping(op, x)

    def _fold_apart(self, op: Fold, x: Value) -> Value:
        """Windows that do not touch: each dimension of windows next to its places, gaps between them, the rest of zeros at the end."""
        rank = len(op.shape)
        zero = number_of(0, x.type.dtype)
        gaps = [0] * x.type.rank
        for k, (n, s) in enumerate(zip(op.size, op.stride, strict=True)):
            gaps[rank + k] = s - n
        if any(gaps):
            x = self.emit(Pad((0,) * x.type.rank, tuple(gaps), (0,) * x.type.rank, zero), x)
        order: list[int] = []
        for d in range(rank):
            order.append(d)
            if d in op.axes:
                order.append(rank + op.axes.index(d))
        x = self.emit(Transpose(tuple(order)), x)
        shape = list(op.shape)
        for k, a in enumerate(op.axes):
            shape[a] = op.windows().counts(op.shape)[k] * op.stride[k]
        x = self.emit(Reshape(tuple(shape)), x)
        keep = tuple(min(a, b) for a, b in zip(shape, op.shape, strict=True))
        if keep != tuple(shape):
            x = self.emit(Slice((0,) * rank, keep, (1,) * rank), x)
        high = tuple(d - n for d, n in zip(op.shape, keep, strict=True))
        return self.emit(Pad((0,) * rank, high, (0,) * rank, zero), x) if any(high) else x

    def _fold_overlapping(self, op: Fold, x: Value) -> Value:
        """Windows that overlap: the sum, over the places in a window (taps), of that place of all windows spread by the stride.

        Taps that lead to the same of every stride-th elements are added before they are spread, where loops can read shifted values
        without copies.
        """
        rank = len(op.shape)
        quick = masks_are_quick(x.type.dtype)
        together: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
        for tap in itertools.product(*map(range, op.size)):
            reach = [t * d for t, d in zip(tap, op.dilation, strict=True)]
            together.setdefault(tuple(r % s if quick else r for r, s in zip(reach, op.stride, strict=True)), []).append(tap)
        total: Value | None = None
        for first, taps in together.items():
            lengths = list(x.type.shape[:rank])
            for k, a in enumerate(op.axes):
                lengths[a] += max(tap[k] * op.dilation[k] - first[k] for tap in taps) // op.stride[k]
            parts = [self._moved(self._tap(x, tap, rank, {}), op, tap, first, lengths) for tap in taps]
            part = functools.reduce(functools.partial(self.emit, Add()), parts)
            low, high, interior = [0] * rank, [0] * rank, [0] * rank
            for k, a in enumerate(op.axes):
                low[a], interior[a] = first[k], op.stride[k] - 1
                high[a] = op.shape[a] - first[k] - (lengths[a] - 1) * op.stride[k] - 1
            part = self.emit(Pad(tuple(low), tuple(high), tuple(interior), number_of(0, x.type.dtype)), part)
            total = part if total is None else self.emit(Add(), total, part)
        assert total is not None
        return total

    def _moved(self, part: Value, op: Fold, tap: tuple[int, ...], first: tuple[int, ...], lengths: list[int]) -> Value:
        """One place of all windows amid zeros, where it lies among every stride-th elements from `first` on, `lengths` of them.

        What went to the windows' largest elements is chosen where it has come to: the numbers of the places are moved, and what is chosen from. These two
        are in memory once, what is chosen would be once for each place.
        """
        low = [0] * len(lengths)
        for k, a in enumerate(op.axes):
            low[a] = (tap[k] * op.dilation[k] - first[k]) // op.stride[k]
        high = tuple(n - b - d for n, b, d in zip(lengths, low, part.type.shape, strict=True))
        amid = functools.partial(Pad, tuple(low), high, (0,) * len(lengths))
        zero, choice = number_of(0, part.type.dtype), self._choice(part) if masks_are_quick(part.type.dtype) else None
        if choice is None:
            return self.emit(amid(zero), part)
        number, places, x = choice
        places = self.emit(amid(-1), places if masks_are_quick(places.type.dtype) else self._once(Cast(dt.int32), places))
        x = self.emit(amid(zero), x)
        return self.emit(Select(), self.emit(Equal(), self._full(number, places), places), x, self._full(zero, x))

    def _choice(self, part: Value) -> tuple[int, Value, Value] | None:
        """n, places and x if `part` is x where the number of a place, an integer, is n, and 0 elsewhere."""
        made = self.made_by.get(part)
        if made is None or not isinstance(made.op, Select) or repr(self._number(made.operands[2])) != repr(number_of(0, part.type.dtype)):
            return None
        chosen = self.made_by.get(made.operands[0])
        for n, places in itertools.permutations(chosen.operands) if chosen is not None and isinstance(chosen.op, Equal) else ():
            number = self._number(n)
            if isinstance(number, int) and places.type.dtype.is_integer and 0 <= number < 1 << places.type.dtype.bits - 1:
                return number, places, made.operands[1]
        return None

    def _number(self, v: Value) -> bool | int | float | None:
        """The number that all elements of v are, if it is a fill or computed from some, and if it is none too large for their dtype."""
        made = self.made_by.get(v)
        while made is not None and isinstance(made.op, View):
            made = self.made_by.get(made.operands[0])
        if made is not None and isinstance(made.op, Full):
            return made.op.value
        if made is None or not isinstance(made.op, (Add, Mul)):
            return None
        x, y = map(self._number, made.operands)
        if x is None or y is None:
            return None
        return x + y if isinstance(made.op, Add) else x * y

    def _tap(self, x: Value, tap: tuple[int, ...], rank: int, known: dict[Value, Value]) -> Value:
        """One place of all windows, computed from such places of other values where x is computed by few ops. `known`: what was found of this tap."""
        if x not in known:
            known[x] = self._found_tap(x, tap, rank, known)
        return known[x]

    def _found_tap(self, x: Value, tap: tuple[int, ...], rank: int, known: dict[Value, Value]) -> Value:
        counts, made = x.type.shape[:rank], self.made_by.get(x)
        if made is not None and isinstance(made.op, Elementwise) and made.op.fast and self._ops_behind(x) <= _MOST_OPS:
            return self.emit(made.op, *(self._tap(v, tap, rank, known) for v in made.operands))
        if made is not None and isinstance(made.op, Iota):
            k = made.op.axis - rank
            return self.emit(Iota(counts, made.op.axis, made.op.dtype) if k < 0 else Full(number_of(tap[k], made.op.dtype), counts, made.op.dtype))
        if made is not None and isinstance(made.op, Full):
            return self.emit(Full(made.op.value, counts, made.op.dtype))
        if made is not None and isinstance(made.op, Transpose) and made.op.perm[rank:] == tuple(range(rank, x.type.rank)):
            return self.emit(Transpose(made.op.perm[:rank]), self._tap(made.operands[0], tap, rank, known))
        if made is not None and isinstance(made.op, BroadcastTo) and made.operands[0].type.shape == (*counts, *(1,) * len(tap)):
            return self._once(Reshape(counts), self._source_of(made.operands[0], counts))
        part = self.emit(Slice((*(0,) * rank, *tap), (*counts, *(1,) * len(tap)), (1,) * x.type.rank), x)
        return self.emit(Reshape(counts), part)

    def _source_of(self, x: Value, shape: tuple[int, ...]) -> Value:
        """What x is a reshape of, if that has this shape."""
        made = self.made_by.get(x)
        return made.operands[0] if made is not None and isinstance(made.op, Reshape) and made.operands[0].type.shape == shape else x

    def _once(self, op: Op, x: Value) -> Value:
        """op(x), the same value each time; x where it is that already."""
        if infer_types(op, (x.type,))[0] == x.type:
            return x
        if (op, x) not in self.known:
            self.known[op, x] = self.emit(op, x)
        return self.known[op, x]

    def _ops_behind(self, x: Value) -> int:
        """How many elementwise ops compute x, through transposes."""
        found: set[Value] = set()
        stack = [x]
        while stack:
            v = stack.pop()
            made = self.made_by.get(v)
            if v not in found and made is not None and isinstance(made.op, (Elementwise, Transpose)):
                found.add(v)
                stack.extend(made.operands)
        return len(found)


def _is_decomposed(node: Node) -> bool:
    if isinstance(node.op, MatMul):
        return not node.operands[0].type.dtype.is_float
    return isinstance(node.op, (Fold, ArgMax, ArgMin, CheckIndex, Moments))


def decompose(graph: Graph) -> Graph:
    """The graph with the ops named above rewritten, regions included."""
    return _Decomposition(graph).run() if any(map(_is_decomposed, graph.walk())) else graph
