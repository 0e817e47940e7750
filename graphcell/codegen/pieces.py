"""Pieces of a concatenation that are made where it puts them.

Enters: the nodes that are steps of their own, what loops make, and how often values are read. Leaves: for the results whose kernels can
write through strides and that nothing but one concatenation reads, where they lie in its result. Nothing is left to copy for these.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from graphcell.codegen.fuse import Analysis
from graphcell.codegen.layout import reshaped_strides, row_major, runs_on
from graphcell.ir.graph import Node, Value
from graphcell.ops.attention import AttentionGrad
from graphcell.ops.contraction import MatMul
from graphcell.ops.movement import Concat
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
        if not isinstance(node.op, Concat) or node.results[0] in late:
            continue
        (whole,) = node.results
        steps, offset = row_major(whole.type.shape), 0
        roots = [info.layout(v).root for v in node.operands]
        for v, root in zip(node.operands, roots, strict=True):
            alone = (root in makers or root in looped) and root not in fixed and readers[root] == 1 and roots.count(root) == 1
            if alone and info.layout(v).is_whole(v.type.shape):
                strides = reshaped_strides(v.type.shape, steps, root.type.shape)
                if strides is not None and (runs_on(root.type.shape, strides, looped[root]) if root in looped else strides[-1] == 1):
                    found[root] = Piece(whole, offset, strides)
            offset += v.type.shape[node.op.axis] * steps[node.op.axis]
    return found


def _writes_strided(node: Node) -> bool:
    """Whether a native kernel makes the results of the node, with any strides but that of the last dimension."""
    types = [v.type for v in node.operands]
    return isinstance(node.op, (MatMul, AttentionGrad)) and types[0].dtype.is_float and all(t.size for t in types)
