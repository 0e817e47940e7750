"""Factors that are the same all along a sum stand before it: sum(x * a) is a * sum(x).

Enters: a differentiated Graph. Leaves: an equal Graph in which what does not vary along the dimensions of a sum is multiplied once, with
the sum, instead of with every element; sums that differed only in such factors, as the gradients of a normalisation do, become one.

What it keeps: every number but for rounding, which native sums do not promise anyway. Half precision stays as it is, since there the
unscaled sum could overflow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from graphcell.ir.graph import Graph, Node, Value
from graphcell.ops.arithmetic import Mul, Neg
from graphcell.ops.creation import Full
from graphcell.ops.movement import BroadcastTo, Reshape
from graphcell.ops.reduction import ReduceSum
from graphcell.passes.rewrite import Rewriter, Rules, rewrite

Result = Sequence[Value] | None


def factor_before_sum(r: Rewriter, node: Node) -> Result:
    """sum(x * a) is sum(x) * a, sum(x * (y * a)) is sum(x * y) * a, if a is the same along the summed dimensions."""
    op, product = node.op, node.operands[0]
    assert isinstance(op, ReduceSum)
    if not isinstance(r.op_of(product), Mul) or product.type.dtype.bits < 32 or not product.type.dtype.is_float:
        return None
    for x, other in _both_orders(r, product):
        factor = _same_along(r, other, op, node.results[0])
        if factor is not None:
            return r.emit(Mul(), *r.emit(op, x), factor)
        if isinstance(r.op_of(other), Mul):
            for y, inner in _both_orders(r, other):
                factor = _same_along(r, inner, op, node.results[0])
                if factor is not None:
                    return r.emit(Mul(), *r.emit(op, *r.emit(Mul(), x, y)), factor)
    return None


def minus_before_sum(r: Rewriter, node: Node) -> Result:
    """sum(-x) is -sum(x)."""
    x = node.operands[0]
    if not isinstance(r.op_of(x), Neg) or not x.type.dtype.is_float:
        return None
    return r.emit(Neg(), *r.emit(node.op, *r.producers[x].operands))


def _both_orders(r: Rewriter, product: Value) -> Iterator[tuple[Value, Value]]:
    x, y = r.producers[product].operands
    yield x, y
    yield y, x


def _same_along(r: Rewriter, v: Value, op: ReduceSum, result: Value) -> Value | None:
    """What v is along the dimensions that are left, if it does not vary along the summed ones."""
    made = r.producers.get(v)
    if made is None:
        return None
    if isinstance(made.op, Full):
        if abs(made.op.value) < 1:  # who scales down before a sum may do so to keep it finite
            return None
        return r.emit(Full(made.op.value, result.type.shape, made.op.dtype))[0]
    if not isinstance(made.op, BroadcastTo):
        return None
    (small,) = made.operands
    lead = v.type.rank - small.type.rank
    if any(a >= lead and small.type.shape[a - lead] != 1 for a in op.axis):
        return None
    shape = (1,) * lead + small.type.shape
    if not op.keep_dims:
        shape = tuple(d for k, d in enumerate(shape) if k not in op.axis)
    if shape != small.type.shape:
        (small,) = r.emit(Reshape(shape), small)
    return small if shape == result.type.shape else r.emit(BroadcastTo(result.type.shape), small)[0]


_RULES = Rules((ReduceSum, factor_before_sum), (ReduceSum, minus_before_sum))


def factor_sums(graph: Graph) -> Graph:
    """The graph with the sums named above rewritten, regions included."""
    return rewrite(graph, _RULES)
