"""Pieces of a concatenation, or what is padded, that are made where it puts them.

Enters: the nodes that are steps of their own, what loops make, and how often values are read. Leaves: for the results whose kernels can
write through strides and that nothing but one concatenation or padding reads, where they lie in its result. Nothing is left to copy for these.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence

from graphcell.codegen.fuse import Analysis
from graphcell.codegen.layout import reshaped_strides, row_major, runs_on
from graphcell.ir.graph import Node, Value
from graphcell.ir.types import Shape
from graphcell.ops.attention import AttentionGrad
from graphcell.ops.contraction import MatMul
from graphcell.ops.movement import Concat, Pad
from graphcell.records import dataclass


@dataclass(frozen=True, slots=True)
class Piece:
    """Element `offset + sum(strides[k] * index[k])` of the buffer of `whole`."""

    whole: Value
    offset: int
    strides: tuple[int, ...]


def find_pieces(
    nodes: Sequence[Node],
    looped: Mapping[Value, int],
    readers: Mapping[Value, int],
    info: Analysis,
    fixed: Collection[Value],
    late: Collection[Value],
) -> dict[Value, Piece]:
    """The pieces among the results of `nodes` and the values `looped`.

    Args:
        looped: values that loop nests write, and how long the lines are that a nest goes along.
        readers: how many steps read a value.
        fixed: values whose place is given.
        late: values whose place is not free before the step that makes them.
    """
    makers = {v for node in nodes if _writes_strided(node) for v in node.results}
    found: dict[Value, Piece] = {}
    for node in nodes:
        if not isinstance(node.op, (Concat, Pad)) or node.results[0] in late:
            continue
        (whole,) = node.results
        steps = row_major(whole.type.shape)
        roots = [info.layout(v).root for v in node.operands]
        for v, root, offset in zip(node.operands, roots, _offsets(node, steps), strict=False):
            alone = (root in makers or root in looped) and root not in fixed and readers[root] == 1 and roots.count(root) == 1
            if alone and info.layout(v).is_whole(v.type.shape):
                strides = reshaped_strides(v.type.shape, steps, root.type.shape)
                if strides is not None and (runs_on(root.type.shape, strides, looped[root]) if root in looped else strides[-1] == 1):
                    found[root] = Piece(whole, offset, strides)
    return found


def _offsets(node: Node, steps: Sequence[int]) -> Iterator[int]:
    """Where each operand of a concatenation begins in its result, or that of a padding that leaves its place alone."""
    op = node.op
    if isinstance(op, Pad):
        if fills_around(op, node.operands[0].type.shape, node.results[0].type.shape):
            yield sum(a * s for a, s in zip(op.low, steps, strict=True))
        return
    assert isinstance(op, Concat)
    offset = 0
    for v in node.operands:
        yield offset
        offset += v.type.shape[op.axis] * steps[op.axis]


def fills_around(op: Pad, inside: Shape, outside: Shape) -> bool:
    """Whether a padding fills what lies around its operand alone: not where that is most, or its elements lie apart."""
    return not any(op.interior) and 2 * math.prod(inside) >= math.prod(outside)


def _writes_strided(node: Node) -> bool:
    """Whether a native kernel makes the results of the node, with any strides but that of the last dimension."""
    types = [v.type for v in node.operands]
    return isinstance(node.op, (MatMul, AttentionGrad)) and types[0].dtype.is_float and all(t.size for t in types)
