"""Between which numbers the elements of an integer value lie, as far as the ops that make it tell.

Enters: a value and what makes each value before it. Leaves: bounds that no element exceeds, whatever the inputs hold: those of its dtype,
or closer ones. So an index that was clamped, or that comes from bytes, needs no check.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from graphcell.ir.graph import Node, Value
from graphcell.ops.arithmetic import Cast, Maximum, Minimum
from graphcell.ops.creation import Full, Iota
from graphcell.ops.movement import BroadcastTo, Fence, Reshape, Slice, Transpose

_MOVES = (Cast, Minimum, Maximum, Reshape, Transpose, BroadcastTo, Slice, Fence)
_MOST_STEPS = 8
"""Back from a value; each may fork."""


def integer_range(v: Value, made_by: Mapping[Value, Node], steps: int = _MOST_STEPS) -> tuple[int, int]:
    """The least and the largest number that an element of `v` (integers or Bool) may be."""
    dtype = v.type.dtype
    low, high = (0, 1) if dtype.is_bool else (int(np.iinfo(dtype.np_type).min), int(np.iinfo(dtype.np_type).max))
    node = made_by.get(v)
    if node is None or not steps:
        return low, high
    op = node.op
    if isinstance(op, Full):
        least = largest = int(op.value)
    elif isinstance(op, Iota):
        least, largest = 0, max(v.type.shape[op.axis] - 1, 0)
    elif isinstance(op, _MOVES) and not any(x.type.dtype.is_float for x in node.operands):
        bounds = [integer_range(x, made_by, steps - 1) for x in node.operands]
        choose = min if isinstance(op, Minimum) else max  # of one operand's bounds
        least, largest = choose(a for a, _ in bounds), choose(b for _, b in bounds)
    else:
        return low, high
    return (least, largest) if low <= least and largest <= high else (low, high)  # else the numbers wrap
