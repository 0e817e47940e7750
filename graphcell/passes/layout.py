"""Lays image activations out channels-last, in which convolutions and pooling run.

Enters: a Graph in which they stand channels-first (N, C, H, W), as users write them. Leaves: an equal Graph in which they are
channels-last, with transposes only where another layout is really asked for: elementwise ops, reductions, broadcasts, pads, slices and
concatenations follow the layout of their operands. Fully convolutional parts so run channels-last from end to end.
Sequences (N, C, L) follow, too: convolutions and pooling take them as images of one row, to which they are reshaped and back; and volumes, whose
convolutions are those of images with more channels. What is shuffled between convolutions is copied once, from one channels-last layout to the other.
Where channels do not meet and nothing else is channels-last, convolutions are loops along the rows of pixels instead (planes.py).
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Sequence

from graphcell.ir.graph import Graph, Node, Value, copy_node
from graphcell.ir.op import Op, infer_types
from graphcell.ir.types import Shape
from graphcell.ops.base import Elementwise, Reduction
from graphcell.ops.convolution import Conv, ConvInputGrad, ConvWeightGrad
from graphcell.ops.creation import Full
from graphcell.ops.moments import Moments
from graphcell.ops.movement import BroadcastTo, Concat, Pad, Reshape, Slice, Transpose
from graphcell.ops.pooling import Fold, Windows
from graphcell.passes.planes import convolutions_of_planes, sum_of_shifted
from graphcell.records import dataclass

RANKS = range(3, 9)
"""Ranks of what is laid out so: sequences, images and volumes, their windows, and what reshapes make of these on the way."""
VOLUME = (0, 2, 3, 4, 1)
"""The permutation of volumes (N, C, D, H, W)."""
_CHANNELS_TO_SKIP = 8
"""Of an image of which some pixels are transposed: with fewer, all of them take as long."""

Perm = tuple[int, ...]


def to_last(rank: int) -> Perm:
    """The permutation from channels-first to channels-last, of sequences, images and windows of images."""
    return (0, *range(2, min(rank, 4)), 1, *range(4, rank))


def straight(rank: int) -> Perm:
    """The dimensions in their own order, channels-first."""
    return tuple(range(rank))


def inverse(perm: Perm) -> Perm:
    return tuple(perm.index(k) for k in range(len(perm)))


def permuted(items: tuple, perm: Perm) -> tuple:  # type: ignore[type-arg]
    """`items`, one a dimension, in the order `perm`."""
    return tuple(items[p] for p in perm)


@dataclass
class _Pair:
    """One value of the old graph, in either layout or both; `perm`: which dimension of the first stands in each place of the last."""

    first: Value | None = None
    last: Value | None = None
    perm: Perm = ()


class _LayoutPass:
    def __init__(self, graph: Graph):
        self.graph = graph
        self.nodes: list[Node] = []
        self.made_by: dict[Value, Node] = {}
        self.pairs: dict[Value, _Pair] = {v: _Pair(v) for v in graph.inputs}
        self.of_new: dict[Value, _Pair] = {v: p for v, p in self.pairs.items()}
        self.of_planes = convolutions_of_planes(graph.nodes)
        self.convolved = Counter(v for node in graph.nodes if isinstance(node.op, _ACTIVE) and node not in self.of_planes for v in node.operands)
        self.ahead = set(self.convolved)
        """What a convolution of this graph, not of a region in it, depends on, but for those of planes."""
        for node in reversed(graph.nodes):
            if not self.ahead.isdisjoint(node.results):
                self.ahead.update(node.operands)
        self.current: Node | None = None

    def run(self) -> Graph:
        for node in self.graph.nodes:
            self.current = node
            if not self._visit(node):
                self._keep(node)
        self.current = None
        return Graph(self.graph.name, self.graph.inputs, self.nodes, [self.first(v) for v in self.graph.outputs])

    # -- values in a layout ------------------------------------------------------------------------------------------
    def emit(self, op: Op, *operands: Value) -> Value:
        types = infer_types(op, tuple(v.type for v in operands))
        node = Node(op, operands, tuple(map(Value, types)), self.current.span if self.current is not None else None)
        self.nodes.append(node)
        for v in node.results:
            self.made_by[v] = node
        return node.results[0]

    def transpose(self, v: Value, perm: Perm) -> Value:
        """A transpose, or a reshape where only dimensions of extent 1 move."""
        moved = [p for p in perm if v.type.shape[p] != 1]
        if moved == sorted(moved):
            return self.emit(Reshape(permuted(v.type.shape, perm)), v)
        return self.emit(Transpose(perm), v)

    def first(self, v: Value) -> Value:
        pair = self.pairs[v]
        if pair.first is None:
            assert pair.last is not None
            pair.first = self.transpose(pair.last, inverse(pair.perm))
            self.of_new[pair.first] = pair
        return pair.first

    def last(self, v: Value, perm: Perm | None = None) -> Value:
        """`v` in the order `perm`; default: of an image."""
        pair, perm = self.pairs[v], perm or to_last(v.type.rank)
        if pair.last is None:
            assert pair.first is not None
            pair.last, pair.perm = self._relaid(pair.first, perm), perm
        if pair.perm != perm:
            return self.transpose(pair.last, tuple(pair.perm.index(p) for p in perm))
        return pair.last

    def _relaid(self, v: Value, perm: Perm) -> Value:
        maker = self.made_by.get(v)
        if maker is not None and isinstance(maker.op, Full):
            return self.emit(Full(maker.op.value, permuted(maker.op.shape, perm), maker.op.dtype))
        if maker is not None and isinstance(maker.op, BroadcastTo):
            small = maker.operands[0]
            rank = v.type.rank
            shape = (1,) * (rank - small.type.rank) + small.type.shape
            aligned = small if small.type.rank == rank else self.emit(Reshape(shape), small)
            pair = self.of_new.get(aligned)
            known = pair.last if pair is not None and pair.first is aligned and pair.perm == perm else None
            return self.emit(BroadcastTo(permuted(maker.op.shape, perm)), known or self.transpose(aligned, perm))
        return self.transpose(v, perm)

    def perm_of(self, *values: Value) -> Perm | None:
        """The order of the first of the values that is channels-last and of a rank that may be."""
        return next((self.pairs[v].perm for v in values if self.pairs[v].last is not None and v.type.rank in RANKS), None)

    def set_last(self, node: Node, perm: Perm, op: Op, *operands: Value) -> bool:
        return self.set_value(node, perm, self.emit(op, *operands))

    def set_value(self, node: Node, perm: Perm, value: Value) -> bool:
        """The result of `node` is `value`, whose dimensions stand in the order `perm`."""
        return self.set_values(node, perm, (value,))

    def set_values(self, node: Node, perm: Perm, values: Sequence[Value]) -> bool:
        for old, new in zip(node.results, values, strict=True):
            self.pairs[old] = _Pair(new) if perm == straight(len(perm)) else _Pair(last=new, perm=perm)
            self.of_new.setdefault(new, self.pairs[old])
        return True

    # -- nodes -------------------------------------------------------------------------------------------------------
    def _keep(self, node: Node) -> None:
        for v in node.operands:
            self.first(v)
        table = {v: self.pairs[v].first for v in node.operands}
        regions = tuple(channels_last(g) for g in node.op.regions)
        copy = copy_node(node, table, node.op.with_regions(regions) if regions else None)  # type: ignore[arg-type]
        self.nodes.append(copy)
        for old, new in zip(node.results, copy.results, strict=True):
            self.made_by[new] = copy
            self.pairs[old] = _Pair(new)
            self.of_new[new] = self.pairs[old]

    def _visit(self, node: Node) -> bool:
        op = node.op
        rule = _RULES.get(type(op))
        if rule is not None:
            return rule(self, node)
        if isinstance(op, Elementwise):
            return self._elementwise(node)
        if isinstance(op, Reduction):
            return self._reduction(node)
        return False

    def _elementwise(self, node: Node) -> bool:
        perm = self.perm_of(*node.operands)
        return perm is not None and self.set_last(node, perm, node.op, *(self.last(v, perm) for v in node.operands))

    def _reduction(self, node: Node) -> bool:
        op, x = node.op, node.operands[0]
        assert isinstance(op, Reduction)
        perm = self.perm_of(x)
        if perm is None:
            return False
        reduced = self.emit(dataclasses.replace(op, axis=tuple(sorted(map(perm.index, op.axis)))), self.last(x, perm))  # type: ignore[type-var]
        kept = perm if op.keep_dims else _ranked([p for p in perm if p not in op.axis])
        if len(kept) in RANKS or kept == straight(len(kept)):
            return self.set_value(node, kept, reduced)
        return self.set_value(node, straight(len(kept)), self.transpose(reduced, inverse(kept)))

    def _moments(self, node: Node) -> bool:
        op, x = node.op, node.operands[0]
        assert isinstance(op, Moments)
        perm = self.perm_of(x)
        if perm is None:
            return False
        mean = self.emit(Moments(tuple(sorted(map(perm.index, op.axis)))), self.last(x, perm))
        return self.set_values(node, perm, self.made_by[mean].results)

    def _conv(self, node: Node) -> bool:
        op = node.op
        assert isinstance(op, (Conv, ConvInputGrad, ConvWeightGrad))
        if op.channels_last or op.rank != 2:
            return False
        last = dataclasses.replace(op, channels_last=True)
        a, b = node.operands
        if isinstance(op, ConvWeightGrad):
            return self.set_value(node, straight(4), self.emit(last, self.last(a), self.last(b)))
        images, weights = (b, a) if isinstance(op, ConvInputGrad) else (a, b)
        if self.pairs[images].last is None and node.results[0] not in self.ahead and node in self.of_planes:
            return self.set_value(node, straight(4), sum_of_shifted(node, self.first(images), self.first(weights), self.emit))
        if isinstance(op, ConvInputGrad):
            return self.set_last(node, to_last(4), last, self.first(weights), self.last(images))
        if not self._reads_few_pixels(node):
            return self.set_last(node, to_last(4), last, self.last(images), self.first(weights))
        few = self.emit(Slice((0,) * 4, (*images.type.shape[:2], *node.results[0].type.shape[2:]), (1, 1, *op.stride)), self.first(images))
        return self.set_last(node, to_last(4), dataclasses.replace(last, stride=(1, 1)), self.transpose(few, to_last(4)), self.first(weights))

    def _reads_few_pixels(self, node: Node) -> bool:
        """Whether a convolution of 1x1 taps skips pixels of an image that nobody else needs channels-last: the others are not worth a transpose."""
        op, (x, w) = node.op, node.operands
        assert isinstance(op, Conv)
        skips = w.type.shape[2:] == (1, 1) and op.stride != (1, 1) and not any(map(any, op.padding))
        return skips and x.type.shape[1] >= _CHANNELS_TO_SKIP and self.pairs[x].last is None and self.convolved[x] == 1

    def _broadcast(self, node: Node) -> bool:
        op, x = node.op, node.operands[0]
        assert isinstance(op, BroadcastTo)
        perm = self.perm_of(x)
        if perm is None or len(op.shape) != len(perm):
            return False
        return self.set_last(node, perm, BroadcastTo(permuted(op.shape, perm)), self.last(x, perm))

    def _concat(self, node: Node) -> bool:
        op = node.op
        assert isinstance(op, Concat)
        perm = self.perm_of(*node.operands)
        return perm is not None and self.set_last(node, perm, Concat(perm.index(op.axis)), *(self.last(v, perm) for v in node.operands))

    def _pad(self, node: Node) -> bool:
        op, x = node.op, node.operands[0]
        assert isinstance(op, Pad)
        perm = self.perm_of(x)
        if perm is None:
            return False
        low, high, interior = (permuted(p, perm) for p in (op.low, op.high, op.interior))
        return self.set_last(node, perm, Pad(low, high, interior, op.value), self.last(x, perm))

    def _slice(self, node: Node) -> bool:
        op, x = node.op, node.operands[0]
        assert isinstance(op, Slice)
        perm = self.perm_of(x)
        if perm is None:
            return False
        start, size, step = (permuted(p, perm) for p in (op.start, op.size, op.step))
        return self.set_last(node, perm, Slice(start, size, step), self.last(x, perm))

    def _windows(self, node: Node) -> bool:
        """The slabs of a volume from which a convolution makes its images are channels-last as these are."""
        op, x = node.op, node.operands[0]
        assert isinstance(op, Windows)
        is_of_volume = x.type.rank == len(VOLUME) and op.axes == (2,)
        perm = self.perm_of(x) or (VOLUME if is_of_volume else None)
        if perm is None or node.results[0].type.rank not in RANKS:
            return False
        axes = tuple(map(perm.index, op.axes))
        if axes != tuple(sorted(axes)):
            return False
        return self.set_last(node, (*perm, *range(len(perm), len(perm) + len(axes))), dataclasses.replace(op, axes=axes), self.last(x, perm))

    def _fold(self, node: Node) -> bool:
        op, x = node.op, node.operands[0]
        assert isinstance(op, Fold)
        perm, rank = self.perm_of(x), len(op.shape)
        if perm is None:
            return False
        whole = tuple(p for p in perm if p < rank)
        axes = tuple(map(whole.index, op.axes))
        if axes != tuple(sorted(axes)):
            return False
        return self.set_last(
            node, whole, dataclasses.replace(op, axes=axes, shape=permuted(op.shape, whole)), self.last(x, (*whole, *range(rank, len(perm))))
        )

    def _transpose(self, node: Node) -> bool:
        """Another order of the dimensions is the same memory. It is kept where a convolution follows: other steps may rather be loops along pixels."""
        op, x = node.op, node.operands[0]
        assert isinstance(op, Transpose)
        perm = self.perm_of(x)
        if perm is None or self.pairs[x].first is not None:
            return False
        order = tuple(map(op.perm.index, perm))
        if order != straight(len(order)) and node.results[0] not in self.ahead:
            return False
        return self.set_value(node, order, self.last(x, perm))

    def _reshape(self, node: Node) -> bool:
        """Dimensions that stay next to each other may be joined and divided: sequences and images, images and volumes. Others are brought next to each other
        where a convolution reads the image. Windows are joined as they are written, whole rows of pixels, but for a convolution."""
        op, x = node.op, node.operands[0]
        assert isinstance(op, Reshape)
        perm = self.perm_of(x)
        groups = _groups(x.type.shape, op.shape) if perm is not None and len(op.shape) in RANKS else None
        if perm is None or groups is None:
            return False
        order = _order_after(perm, groups, op.shape)
        divides = len(op.shape) > 4 and any(len(g.new) > 1 for g in groups)
        joins_windows = any(len(g.old) > 1 for g in groups) and self._is_of_windows(self.last(x, perm))
        if order is not None and (not divides or node.results[0] in self.ahead) and (not joins_windows or node.results[0] in self.convolved):
            return self.set_last(node, order, Reshape(permuted(op.shape, order)), self.last(x, perm))
        if len(op.shape) != 4 or node.results[0] not in self.convolved:
            return False
        image = to_last(4)
        wanted = _order_before(image, groups, x.type.shape)
        return wanted is not None and self.set_last(node, image, Reshape(permuted(op.shape, image)), self.last(x, wanted))

    def _is_of_windows(self, v: Value) -> bool:
        """Whether a value of the new graph is windows in some order: they overlap in memory, and whoever joins them copies them."""
        maker = self.made_by.get(v)
        while maker is not None and isinstance(maker.op, (Reshape, Transpose)):
            maker = self.made_by.get(maker.operands[0])
        return maker is not None and isinstance(maker.op, Windows)


@dataclass(frozen=True)
class _Group:
    """Dimensions (but for those of extent 1) that a reshape joins, and what it divides them into."""

    old: tuple[int, ...]
    new: tuple[int, ...]


def _groups(old: Shape, new: Shape) -> list[_Group] | None:
    """The smallest groups of a reshape, in row-major order; None where there are no elements."""
    if 0 in old:
        return None
    groups: list[_Group] = []
    rest = [[k for k, extent in enumerate(shape) if extent != 1] for shape in (old, new)]
    while rest[0] or rest[1]:
        taken: tuple[list[int], list[int]] = ([], [])
        sizes = [1, 1]
        while not taken[0] or sizes[0] != sizes[1]:
            side = int(sizes[1] < sizes[0])
            taken[side].append(rest[side].pop(0))
            sizes[side] *= (old, new)[side][taken[side][-1]]
        groups.append(_Group(*map(tuple, taken)))
    return groups


def _order_after(perm: Perm, groups: Sequence[_Group], shape: Shape) -> Perm | None:
    """The order of the new dimensions where the old ones stand as `perm` says; None if those of a group do not follow each other."""
    grouped = {g.old[0]: g for g in groups}
    order: list[int] = []
    rest = [p for p in perm if any(p in g.old for g in groups)]
    while rest:
        group = grouped.get(rest[0])
        if group is None or tuple(rest[: len(group.old)]) != group.old:
            return None
        del rest[: len(group.old)]
        order += group.new
    return _with_ones(order, shape)


def _order_before(perm: Perm, groups: Sequence[_Group], shape: Shape) -> Perm | None:
    """The order of the old dimensions from which the new ones stand as `perm` says."""
    return _order_after(perm, [_Group(g.new, g.old) for g in groups], shape)


def _with_ones(order: Sequence[int], shape: Shape) -> Perm:
    """The order with the dimensions of extent 1: that of images, or of channels first, where these stand as there, else each behind the one before it."""
    for usual in (to_last(len(shape)), straight(len(shape))):
        if [k for k in usual if shape[k] != 1] == list(order):
            return usual
    whole = list(order)
    for k, extent in enumerate(shape):
        if extent == 1:
            whole.insert(whole.index(k - 1) + 1 if k else 0, k)
    return tuple(whole)


def _ranked(items: Sequence[int]) -> Perm:
    return tuple(map(sorted(items).index, items))


_RULES: dict[type[Op], Callable[[_LayoutPass, Node], bool]] = {
    Conv: _LayoutPass._conv,
    ConvInputGrad: _LayoutPass._conv,
    ConvWeightGrad: _LayoutPass._conv,
    Moments: _LayoutPass._moments,
    BroadcastTo: _LayoutPass._broadcast,
    Concat: _LayoutPass._concat,
    Pad: _LayoutPass._pad,
    Slice: _LayoutPass._slice,
    Windows: _LayoutPass._windows,
    Fold: _LayoutPass._fold,
    Transpose: _LayoutPass._transpose,
    Reshape: _LayoutPass._reshape,
}


def channels_last(graph: Graph) -> Graph:
    """The graph with image activations channels-last, regions included."""
    return _LayoutPass(graph).run() if any(type(n.op) in _ACTIVE for n in graph.walk()) else graph


_ACTIVE = (Conv, ConvInputGrad, ConvWeightGrad)
