"""Layouts: where the elements of a view lie in the buffer of the value that it looks at."""

from __future__ import annotations

import math
from collections.abc import Sequence

from graphcell.ir.graph import Node, Value
from graphcell.ops.movement import BroadcastTo, Fence, Reshape, Slice, Transpose
from graphcell.ops.pooling import Windows
from graphcell.records import dataclass


@dataclass(frozen=True, slots=True)
class Layout:
    """Element `offset + sum(strides[k] * index[k])` of the buffer of `root`."""

    root: Value
    offset: int
    strides: tuple[int, ...]

    def is_whole(self, shape: Sequence[int]) -> bool:
        """True if this is the whole buffer in row-major order."""
        return self.offset == 0 and is_contiguous(shape, self.strides) and math.prod(shape) == self.root.type.size


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides, in elements, of a contiguous array."""
    strides, step = [], 1
    for d in reversed(shape):
        strides.append(step)
        step *= d
    return tuple(reversed(strides))


def is_contiguous(shape: Sequence[int], strides: Sequence[int]) -> bool:
    return all(d == 1 or s == w for d, s, w in zip(shape, strides, row_major(shape), strict=True))


def own_layout(value: Value) -> Layout:
    return Layout(value, 0, row_major(value.type.shape))


def view_layout(node: Node, of: Layout) -> Layout | None:
    """The layout of a view's result given its operand's; None for a reshape that no strides can express."""
    op, shape = node.op, node.operands[0].type.shape
    if isinstance(op, Fence):
        return of
    if isinstance(op, Transpose):
        return Layout(of.root, of.offset, tuple(of.strides[p] for p in op.perm))
    if isinstance(op, Slice):
        offset = of.offset + sum(a * s for a, s in zip(op.start, of.strides, strict=True))
        return Layout(of.root, offset, tuple(a * s for a, s in zip(op.step, of.strides, strict=True)))
    if isinstance(op, BroadcastTo):
        lead = len(op.shape) - len(shape)
        kept = tuple(0 if d == 1 else s for d, s in zip(shape, of.strides, strict=True))
        return Layout(of.root, of.offset, (0,) * lead + kept)
    if isinstance(op, Windows):
        moved = list(of.strides)
        for a, step in zip(op.axes, op.stride, strict=True):
            moved[a] *= step
        return Layout(of.root, of.offset, (*moved, *(of.strides[a] * d for a, d in zip(op.axes, op.dilation, strict=True))))
    if isinstance(op, Reshape):
        strides = reshaped_strides(shape, of.strides, op.shape)
        return None if strides is None else Layout(of.root, of.offset, strides)
    return None


def reshaped_strides(old: Sequence[int], strides: Sequence[int], new: Sequence[int]) -> tuple[int, ...] | None:
    """Strides of the same elements under the shape `new`, if there are any."""
    source: list[tuple[int, int]] = []
    for d, s in zip(old, strides, strict=True):
        if d == 1:
            continue
        if source and source[-1][1] == s * d:  # continues the next slower dimension
            d *= source.pop()[0]
        source.append((d, s))
    result: list[int] = []
    for d in reversed(new):
        if d == 1:
            result.append(0)
            continue
        if not source or source[-1][0] % d:
            return None
        extent, stride = source.pop()
        result.append(stride)
        if extent > d:
            source.append((extent // d, stride * d))
    return tuple(reversed(result)) if not source else None
