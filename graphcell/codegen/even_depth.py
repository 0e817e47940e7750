"""Products of bfloats whose number of reduction steps is odd get one step more, of zeros, where a processor multiplies and adds pairs of bfloats.

Enters: a Graph. Leaves: an equal Graph in which both operands of such a product, if it is worth their copies, are padded along the reduction
dimension. Rows of an even number of bfloats are read as words of two; with an odd number, half of the rows would begin amid a word, and the product
would be computed one bfloat at a time, at half the speed.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphcell.codegen.llvm.contraction import FEWEST_PAIRED_STEPS, multiplies_pairs
from graphcell.codegen.llvm.processor import Target
from graphcell.dtype import bfloat16
from graphcell.ir.graph import Graph, Node, Value
from graphcell.ops.contraction import MatMul
from graphcell.ops.creation import number_of
from graphcell.ops.movement import BroadcastTo, Pad
from graphcell.passes.rewrite import Rewriter, Rules, rewrite

_WORTH_COPIES = 32
"""Rows of one operand and columns of the other, from which the copies take less than the pairs save."""


def with_even_depths(graph: Graph, target: Target) -> Graph:
    """The graph as described at the top of this file."""
    return rewrite(graph, _RULES) if multiplies_pairs(target) else graph


def _with_even_depth(r: Rewriter, node: Node) -> Sequence[Value] | None:
    """The rule: the product of both operands with one step more."""
    op = node.op
    assert isinstance(op, MatMul)
    x, y = node.operands
    along = x.type.rank - (2 if op.transpose_x else 1), y.type.rank - (1 if op.transpose_y else 2)
    depth, result = x.type.shape[along[0]], node.results[0].type
    if depth % 2 == 0 or depth < FEWEST_PAIRED_STEPS or min(result.shape[-2:]) < _WORTH_COPIES:
        return None
    if x.type.dtype is not bfloat16:
        return None
    longer = _padded(r, x, along[0])
    return r.emit(op, longer, longer if (x, along[0]) == (y, along[1]) else _padded(r, y, along[1]))


def _padded(r: Rewriter, x: Value, along: int) -> Value:
    """One zero more at the end of a dimension; of what is repeated, before it is repeated."""
    made = r.producers.get(x)
    if made is not None and isinstance(made.op, BroadcastTo):
        (source,) = made.operands
        at = along - x.type.rank + source.type.rank
        if at >= 0 and source.type.shape[at] == x.type.shape[along]:
            shape = tuple(n + (k == along) for k, n in enumerate(x.type.shape))
            return r.emit(BroadcastTo(shape), _padded(r, source, at))[0]
    none = (0,) * x.type.rank
    one = tuple(int(k == along) for k in range(x.type.rank))
    return r.emit(Pad(none, one, none, number_of(0, x.type.dtype)), x)[0]


_RULES = Rules((MatMul, _with_even_depth))
