"""Rewrites ops that have no kernel of their own into ops that have one.

Enters: any Graph. Leaves: an equal Graph without `fold`. Runs after differentiation, so that gradients are those of the whole ops.
"""

from __future__ import annotations

import itertools

from graphcell.errors import Span
from graphcell.ir.graph import Graph, Node, Value, copy_node
from graphcell.ir.op import Op, infer_types
from graphcell.ops.arithmetic import Add
from graphcell.ops.creation import number_of
from graphcell.ops.movement import Pad, Reshape, Slice, Transpose
from graphcell.ops.pooling import Fold


class _Decomposition:
    def __init__(self, graph: Graph):
        self.graph = graph
        self.nodes: list[Node] = []
        self.table: dict[Value, Value] = {v: v for v in graph.inputs}
        self.span: Span | None = None

    def emit(self, op: Op, *operands: Value) -> Value:
        types = infer_types(op, tuple(v.type for v in operands))
        node = Node(op, operands, tuple(map(Value, types)), self.span)
        self.nodes.append(node)
        return node.results[0]

    def run(self) -> Graph:
        for node in self.graph.nodes:
            self.span = node.span
            if isinstance(node.op, Fold):
                self.table[node.results[0]] = self._fold(node.op, self.table[node.operands[0]])
                continue
            regions = tuple(decompose(g) for g in node.op.regions)
            self.nodes.append(copy_node(node, self.table, node.op.with_regions(regions) if regions else None))
        return Graph(self.graph.name, self.graph.inputs, self.nodes, [self.table[v] for v in self.graph.outputs])

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
        """Windows that overlap: the sum, over the places in a window, of that place of all windows spread by the stride."""
        rank = len(op.shape)
        counts = x.type.shape[:rank]
        total: Value | None = None
        for tap in itertools.product(*map(range, op.size)):
            part = self.emit(Slice((*(0,) * rank, *tap), (*counts, *(1,) * len(tap)), (1,) * x.type.rank), x)
            part = self.emit(Reshape(counts), part)
            low, high, interior = [0] * rank, [0] * rank, [0] * rank
            for a, t, s, d in zip(op.axes, tap, op.stride, op.dilation, strict=True):
                low[a], interior[a] = t * d, s - 1
                high[a] = op.shape[a] - t * d - (counts[a] - 1) * s - 1
            part = self.emit(Pad(tuple(low), tuple(high), tuple(interior), number_of(0, x.type.dtype)), part)
            total = part if total is None else self.emit(Add(), total, part)
        assert total is not None
        return total


def decompose(graph: Graph) -> Graph:
    """The graph with the ops named above rewritten, regions included."""
    return _Decomposition(graph).run() if any(isinstance(n.op, Fold) for n in graph.walk()) else graph
