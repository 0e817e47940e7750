"""Layouts: where the elements of a view lie in the buffer of the value that it looks at."""

from __future__ import annotations

import math
from collections.abc import Sequence

from graphcell.codegen.kernel import Guard, Splat
from graphcell.ir.graph import Node, Value
from graphcell.ir.op import Array, Op
from graphcell.ir.types import Shape, TensorType
from graphcell.ops.base import View
from graphcell.ops.movement import BroadcastTo, Fence, Pad, Reshape, Slice, Transpose
from graphcell.ops.pooling import Windows
from graphcell.passes.costs import SMALL_STRIDE
from graphcell.records import dataclass

_SHORTEST_RUN, _SHORTEST_LINE, _VECTOR = 64, 48, 16
"""Neighbouring elements that a loop writes at once, so that it takes whole vectors; and those of whole vectors, or of lines that are no longer anyway."""


@dataclass(frozen=True)
class Padded(View):
    """The result of `pad`, which adds nothing between elements, as a view: what is around the operand's elements lies nowhere."""

    pad: Pad
    name = "padded"

    def infer(self, x: TensorType) -> TensorType:  # type: ignore[override]
        return self.pad.infer(x)

    def eval(self, x: Array) -> Array:  # type: ignore[override]
        return self.pad.eval(x)


@dataclass(frozen=True, slots=True)
class Layout:
    """Element `offset + sum(strides[k] * index[k])` of the buffer of `root`; where a guard is false there is none, but the number `outside`."""

    root: Value
    offset: int
    strides: tuple[int, ...]
    guards: tuple[Guard, ...] = ()
    outside: Splat | None = None

    def is_whole(self, shape: Sequence[int]) -> bool:
        """True if this is the whole buffer in row-major order."""
        return not self.guards and self.offset == 0 and is_contiguous(shape, self.strides) and math.prod(shape) == self.root.type.size


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
    if isinstance(op, Padded):
        return _padded(op, shape, of)
    place = _through(op, shape, of.offset, of.strides)
    guards = [_through(op, shape, g.offset, g.strides) for g in of.guards]
    if place is None or None in guards:
        return None
    moved = [Guard(g[1], g[0], old.extent) for g, old in zip(guards, of.guards, strict=True) if g is not None]
    return Layout(of.root, *place, tuple(g for g in moved if not _always(g, node.results[0].type.shape)), of.outside)


def _through(op: Op, shape: Shape, offset: int, strides: tuple[int, ...]) -> tuple[int, tuple[int, ...]] | None:
    """What a view of a value of `shape` makes of an affine function of the index: its offset and strides."""
    if isinstance(op, Fence):
        return offset, strides
    if isinstance(op, Transpose):
        return offset, tuple(strides[p] for p in op.perm)
    if isinstance(op, Slice):
        return offset + sum(a * s for a, s in zip(op.start, strides, strict=True)), tuple(a * s for a, s in zip(op.step, strides, strict=True))
    if isinstance(op, BroadcastTo):
        lead = len(op.shape) - len(shape)
        return offset, (0,) * lead + tuple(0 if d == 1 else s for d, s in zip(shape, strides, strict=True))
    if isinstance(op, Windows):
        moved = list(strides)
        for a, step in zip(op.axes, op.stride, strict=True):
            moved[a] *= step
        return offset, (*moved, *(strides[a] * d for a, d in zip(op.axes, op.dilation, strict=True)))
    if isinstance(op, Reshape):
        split = reshaped_strides(shape, strides, op.shape)
        return None if split is None else (offset, split)
    return None


def _padded(op: Padded, shape: Shape, of: Layout) -> Layout | None:
    """The operand's elements lie where they lay; around them is nothing."""
    outside = Splat(op.pad.value, of.root.type.dtype)
    if of.guards and of.outside != outside:
        return None
    moved = [Guard(g.strides, g.offset - sum(a * s for a, s in zip(op.pad.low, g.strides, strict=True)), g.extent) for g in of.guards]
    for k, (low, high) in enumerate(zip(op.pad.low, op.pad.high, strict=True)):
        if low or high:
            moved.append(Guard(tuple(int(j == k) for j in range(len(shape))), -low, shape[k]))
    offset = of.offset - sum(a * s for a, s in zip(op.pad.low, of.strides, strict=True))
    return Layout(of.root, offset, of.strides, tuple(moved), outside)


def _always(guard: Guard, shape: Shape) -> bool:
    """True if the guard holds at each element of a value of this shape."""
    ends = [s * (d - 1) for s, d in zip(guard.strides, shape, strict=True)]
    return guard.offset + sum(min(e, 0) for e in ends) >= 0 and guard.offset + sum(max(e, 0) for e in ends) < guard.extent


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


def runs_on(shape: Sequence[int], strides: Sequence[int], line: int | None = None) -> bool:
    """Whether many elements follow each other in memory, side by side or by a small stride; `line`: as many as the loop goes along anyway."""
    run, step = 1, 0
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent == 1:
            continue
        step = step or stride
        if stride != run * step:
            break
        run *= extent
    many = run >= _SHORTEST_RUN or run == math.prod(shape) or (run >= _SHORTEST_LINE and (run % _VECTOR == 0 or run >= (line or run + 1)))
    return step <= SMALL_STRIDE and many
