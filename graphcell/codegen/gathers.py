"""Gathers that loops do as they read: the rows of a table, say, go straight into what is made of them.

Enters: the groups of a graph (fuse.py). Leaves: the results of gathers that need no buffer, as one loop nest alone reads each of them, every element
once. And how the dimensions of a gather's result walk through the memory of its operands.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphcell.codegen.axes import leaf_set, leaves, volume
from graphcell.codegen.fuse import Analysis, Group
from graphcell.codegen.layout import Layout
from graphcell.ir.graph import Node, Value
from graphcell.ops.indexing import Gather

Strides = tuple[int, ...]


def find_gathers(groups: Sequence[Group], info: Analysis) -> dict[Value, Node]:
    """The gathers whose results are read in place, by these."""
    found: dict[Value, Node] = {}
    for node in (group.nodes[0] for group in groups):
        if isinstance(node.op, Gather) and node.results[0] not in info.outputs and all(v.type.size for v in (*node.operands, *node.results)):
            found[node.results[0]] = node
    if found:
        readers: dict[Value, list[Group]] = {}
        for group in groups:
            for v in {info.root_of_memory(v) for n in group.nodes for v in n.operands}:
                readers.setdefault(v, []).append(group)
        found = {v: node for v, node in found.items() if len(readers.get(v, ())) == 1 and _reads_each_once(readers[v][0], v, info)}
    return found


def _reads_each_once(group: Group, v: Value, info: Analysis) -> bool:
    """Whether a loop nest reads each element of v once, and in no other way."""
    operands = [operand for operand in group.operands.values() if info.root_of_memory(operand.root) is v]
    points = volume(leaf_set(group.domain))
    walks = {tuple(tuple(leaves(dim)) for dim in o.axes) for o in operands}
    return len(walks) == 1 and v.type.size == points and all(o.root is v for o in operands)


def gather_strides(op: Gather, layouts: Sequence[Layout], rank: int) -> tuple[Strides, list[Strides]]:
    """For each dimension of a gather's result: the strides in the memory of x, which the places add to, and in that of each index."""
    steps, inner, first = layouts[0].strides, len(layouts[1].strides), op.axes[0]
    rest = [k for k in range(first, len(steps)) if k not in op.axes]
    after = rank - first - inner
    of_x = steps[:first] + (0,) * inner + tuple(steps[k] for k in rest)
    return of_x, [(0,) * first + layout.strides + (0,) * after for layout in layouts[1:]]
