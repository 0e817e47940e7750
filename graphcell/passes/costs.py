"""What it costs to compute and to move values, for all that weigh one against the other: `residuals`, `recompute`, codegen/recompute.py.

The unit is the time in which memory moves one byte. Refuses: ops that are no loop nests, views or fills; nothing computes those again.
Also: which moves cost nothing, since loops do them while they read.
"""

from __future__ import annotations

from graphcell.dtype import DType
from graphcell.ir.graph import Node
from graphcell.ir.types import TensorType
from graphcell.ops.base import Elementwise, View
from graphcell.ops.creation import Constant, Full, Iota
from graphcell.ops.movement import Pad

READ, WRITE = 1.0, 2.0
"""Of one byte. Where one is written, its cache line is read, too."""
FAST, DIVISION, SLOW, RANDOM = 0.3, 2.0, 7.0, 25.0
"""Of one element of an op."""
DIVISIONS = ("div", "sqrt", "rsqrt", "reciprocal")
SMALL_STRIDE = 4
"""Elements so far apart in memory, or less, are loaded as neighbouring vectors and sorted by shuffles (those further apart only where all that lies between
is read as well: `kernel.interleaved`)."""
MASKED_STRIDE = 8
"""Elements so far apart, or less, are stored as neighbouring vectors by masks where vectors have 64 bytes; loops that could turn tiles do so instead."""


def cost_again(node: Node) -> float:
    """What it costs to compute the node's results once more."""
    op = node.op
    if isinstance(op, (View, Full, Iota, Constant)):
        return 0.0
    assert isinstance(op, Elementwise)
    per_element = FAST if op.fast else RANDOM if op.name.startswith("random") else SLOW
    return (DIVISION if op.name in DIVISIONS else per_element) * node.results[0].type.size


def masks_are_quick(dtype: DType) -> bool:
    """Whether processors load and store some lanes of a vector of such elements by one instruction."""
    return (dtype.is_float or dtype.is_integer) and dtype.bits >= 32


def pads_in_loops(op: Pad, x: TensorType) -> bool:
    """Whether a loop may read `x` with what `op` puts around it, without a copy: nothing is put between its elements, and there are some."""
    return not any(op.interior) and masks_are_quick(x.dtype) and x.size > 0
