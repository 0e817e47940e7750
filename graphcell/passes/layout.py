"""Lays image activations out channels-last, in which convolutions and pooling run.

Enters: a Graph in which they stand channels-first (N, C, H, W), as users write them. Leaves: an equal Graph in which they are
channels-last, with transposes only where another layout is really asked for: elementwise ops, reductions, broadcasts, pads, slices and
concatenations follow the layout of their operands. Fully convolutional parts so run channels-last from end to end.
Sequences (N, C, L) follow, too: convolutions and pooling take them as images of one row, to which they are reshaped and back.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

from graphcell.ir.graph import Graph, Node, Value, copy_node
from graphcell.ir.op import Op, infer_types
from graphcell.ops.base import Elementwise, Reduction
from graphcell.ops.convolution import Conv, ConvInputGrad, ConvWeightGrad
from graphcell.ops.creation import Full
from graphcell.ops.moments import Moments
from graphcell.ops.movement import BroadcastTo, Concat, Pad, Reshape, Slice, Transpose
from graphcell.ops.pooling import Fold, Windows

RANKS = (3, 4, 5, 6)
"""Ranks of what is laid out so: sequences; images; windows of images, whose last two dimensions stay; such windows of which one of these is reduced."""


def to_last(rank: int) -> tuple[int, ...]:
    """The permutation from channels-first to channels-last."""
    return (0, *range(2, min(rank, 4)), 1, *range(4, rank))


def to_first(rank: int) -> tuple[int, ...]:
    """The permutation from channels-last to channels-first."""
    channels = min(rank, 4) - 1
    return (0, channels, *range(1, channels), *range(4, rank))


def permuted(items: tuple, perm: tuple[int, ...] | None = None) -> tuple:  # type: ignore[type-arg]
    """`items`, one a dimension, in channels-last order (or another)."""
    return tuple(items[p] for p in perm or to_last(len(items)))


class _Pair:
    """One value of the old graph, in either layout or both."""

    __slots__ = ("first", "last")

    def __init__(self, first: Value | None = None, last: Value | None = None):
        self.first, self.last = first, last


class _LayoutPass:
    def __init__(self, graph: Graph):
        self.graph = graph
        self.nodes: list[Node] = []
        self.made_by: dict[Value, Node] = {}
        self.pairs: dict[Value, _Pair] = {v: _Pair(v) for v in graph.inputs}
        self.of_new: dict[Value, _Pair] = {v: p for v, p in self.pairs.items()}
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

    def transpose(self, v: Value, perm: tuple[int, ...]) -> Value:
        """A transpose, or a reshape where only dimensions of extent 1 move."""
        moved = [p for p in perm if v.type.shape[p] != 1]
        if moved == sorted(moved):
            return self.emit(Reshape(permuted(v.type.shape, perm)), v)
        return self.emit(Transpose(perm), v)

    def first(self, v: Value) -> Value:
        pair = self.pairs[v]
        if pair.first is None:
            assert pair.last is not None
            pair.first = self.transpose(pair.last, to_first(pair.last.type.rank))
            self.of_new[pair.first] = pair
        return pair.first

    def last(self, v: Value) -> Value:
        pair = self.pairs[v]
        if pair.last is None:
            assert pair.first is not None
            pair.last = self._relaid(pair.first)
        return pair.last

    def _relaid(self, v: Value) -> Value:
        maker = self.made_by.get(v)
        if maker is not None and isinstance(maker.op, Full):
            return self.emit(Full(maker.op.value, permuted(maker.op.shape), maker.op.dtype))
        if maker is not None and isinstance(maker.op, BroadcastTo):
            small = maker.operands[0]
            rank = v.type.rank
            shape = (1,) * (rank - small.type.rank) + small.type.shape
            aligned = small if small.type.rank == rank else self.emit(Reshape(shape), small)
            pair = self.of_new.get(aligned)
            inner = pair.last if pair is not None and pair.last is not None else self.transpose(aligned, to_last(rank))
            return self.emit(BroadcastTo(permuted(maker.op.shape)), inner)
        return self.transpose(v, to_last(v.type.rank))

    def is_last(self, v: Value) -> bool:
        return self.pairs[v].last is not None

    def set_last(self, node: Node, op: Op, *operands: Value) -> bool:
        result = self.emit(op, *operands)
        pair = self.pairs[node.results[0]] = _Pair(last=result)
        self.of_new[result] = pair
        return True

    def set_first(self, node: Node, value: Value) -> bool:
        pair = self.pairs[node.results[0]] = _Pair(value)
        self.of_new[value] = pair
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
        if node.results[0].type.rank not in RANKS or not any(self.is_last(v) for v in node.operands):
            return False
        return self.set_last(node, node.op, *map(self.last, node.operands))

    def _reduction(self, node: Node) -> bool:
        op, x = node.op, node.operands[0]
        assert isinstance(op, Reduction)
        if x.type.rank not in RANKS or not self.is_last(x):
            return False
        order = to_last(x.type.rank)
        axis = tuple(sorted(order.index(a) for a in op.axis))
        reduced_op = dataclasses.replace(op, axis=axis)  # type: ignore[type-var]
        if op.keep_dims or min(op.axis, default=0) >= 4:
            return self.set_last(node, reduced_op, self.last(x))
        reduced = self.emit(reduced_op, self.last(x))
        kept = [d for k, d in enumerate(order) if k not in axis]
        back = tuple(kept.index(d) for d in sorted(kept))
        return self.set_first(node, reduced if back == tuple(range(len(back))) else self.transpose(reduced, back))

    def _moments(self, node: Node) -> bool:
        op, x = node.op, node.operands[0]
        assert isinstance(op, Moments)
        if x.type.rank not in RANKS or not self.is_last(x):
            return False
        order = to_last(x.type.rank)
        mean = self.emit(Moments(tuple(sorted(order.index(a) for a in op.axis))), self.last(x))
        for old, new in zip(node.results, self.made_by[mean].results, strict=True):
            self.pairs[old] = self.of_new[new] = _Pair(last=new)
        return True

    def _conv(self, node: Node) -> bool:
        op = node.op
        assert isinstance(op, (Conv, ConvInputGrad, ConvWeightGrad))
        if op.channels_last or op.rank != 2:
            return False
        last = dataclasses.replace(op, channels_last=True)
        a, b = node.operands
        if isinstance(op, Conv):
            return self.set_last(node, last, self.last(a), self.first(b))
        if isinstance(op, ConvInputGrad):
            return self.set_last(node, last, self.first(a), self.last(b))
        return self.set_first(node, self.emit(last, self.last(a), self.last(b)))

    def _broadcast(self, node: Node) -> bool:
        op, x = node.op, node.operands[0]
        assert isinstance(op, BroadcastTo)
        if x.type.rank not in RANKS or len(op.shape) != x.type.rank or not self.is_last(x):
            return False
        return self.set_last(node, BroadcastTo(permuted(op.shape)), self.last(x))

    def _concat(self, node: Node) -> bool:
        op = node.op
        assert isinstance(op, Concat)
        if node.results[0].type.rank not in RANKS or not any(self.is_last(v) for v in node.operands):
            return False
        return self.set_last(node, Concat(to_last(node.results[0].type.rank).index(op.axis)), *map(self.last, node.operands))

    def _pad(self, node: Node) -> bool:
        op, x = node.op, node.operands[0]
        assert isinstance(op, Pad)
        if x.type.rank not in RANKS or not self.is_last(x):
            return False
        return self.set_last(node, Pad(permuted(op.low), permuted(op.high), permuted(op.interior), op.value), self.last(x))

    def _slice(self, node: Node) -> bool:
        op, x = node.op, node.operands[0]
        assert isinstance(op, Slice)
        if x.type.rank not in RANKS or not self.is_last(x):
            return False
        return self.set_last(node, Slice(permuted(op.start), permuted(op.size), permuted(op.step)), self.last(x))

    def _windows(self, node: Node) -> bool:
        op, x = node.op, node.operands[0]
        assert isinstance(op, (Windows, Fold))
        if op.axes != (2, 3) or x.type.rank not in RANKS or not self.is_last(x):
            return False
        if isinstance(op, Fold):
            return self.set_last(node, dataclasses.replace(op, axes=(1, 2), shape=permuted(op.shape)), self.last(x))
        return self.set_last(node, dataclasses.replace(op, axes=(1, 2)), self.last(x))

    def _reshape(self, node: Node) -> bool:
        """Adding or dropping the extents of 1 of window dimensions keeps the layout, and so do images as sequences, and sequences as images."""
        op, x = node.op, node.operands[0]
        assert isinstance(op, Reshape)
        shapes = x.type.shape, op.shape
        of_windows = shapes[0][:4] == shapes[1][:4] and all(4 <= len(s) <= max(RANKS) and math.prod(s[4:]) == 1 for s in shapes)
        of_images = sorted(map(len, shapes)) == [3, 4] and shapes[0][:2] == shapes[1][:2]
        if not (of_windows or of_images) or not self.is_last(x):
            return False
        return self.set_last(node, Reshape(permuted(op.shape)), self.last(x))


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
    Fold: _LayoutPass._windows,
    Reshape: _LayoutPass._reshape,
}


def channels_last(graph: Graph) -> Graph:
    """The graph with image activations channels-last, regions included."""
    return _LayoutPass(graph).run() if any(type(n.op) in _ACTIVE for n in graph.walk()) else graph


_ACTIVE = (Conv, ConvInputGrad, ConvWeightGrad)
