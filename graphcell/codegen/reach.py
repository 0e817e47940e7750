"""What the steps of a loop read and write, by which a team finds out where its threads have to meet (team.py).

Often each thread can do the same rows in all steps: the sequences of a recurrent layer do not mix. Rows are counted in *units*, as the team says (units.py). A
unit of a step is a part of its blocks; of an array in rows it reaches a *slab*, as large as those of the other units, but for the last one, and side by side
with them. Steps that go by units need no barrier between them as far as they reach slabs of equal size from the same place on. Whatever is not known to be
so is taken to reach everything.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from graphcell.codegen.epilogue import FusedEpilogue
from graphcell.codegen.kernel import Access, GatherLoad, Guard, Load, LoopKernel
from graphcell.codegen.llvm.contraction import Plan
from graphcell.codegen.llvm.loops import block_count, leading_loops
from graphcell.codegen.llvm.processor import Target
from graphcell.codegen.llvm.row_groups import group_size
from graphcell.codegen.llvm.text import PTR, Val
from graphcell.codegen.llvm.widths import lanes_of
from graphcell.codegen.units import Units, blocks_of_unit, in_units
from graphcell.ir.types import TensorType
from graphcell.records import dataclass

_FAR = 1 << 60
"""Bytes before and behind a pointer, where nobody knows how far a step reaches."""
_NOWHERE = Val("null", PTR)


@dataclass(frozen=True, slots=True)
class Touch:
    """Bytes that a step reads or writes, from `low` to `high` as counted from a pointer; `slab`: bytes from where a unit begins to where the next one does, 0
    if units are not apart.
    """

    pointer: Val
    low: int
    high: int
    slab: int
    writes: bool


@dataclass(frozen=True, slots=True)
class Reach:
    """All that a step touches, and the blocks of a full unit, 0 if it does not go by units. If it does, then what each writes, no other touches."""

    touches: tuple[Touch, ...]
    of_unit: int


@dataclass(frozen=True, slots=True)
class Matrix:
    """Where an operand lies: elements from `start` on behind a pointer."""

    pointer: Val
    start: int
    strides: tuple[int, ...]
    type: TensorType

    def turned(self, is_turned: bool) -> Matrix:
        """Its transpose, if it is."""
        if not is_turned:
            return self
        shape, strides = list(self.type.shape), list(self.strides)
        shape[-2:], strides[-2:] = reversed(shape[-2:]), reversed(strides[-2:])
        return Matrix(self.pointer, self.start, tuple(strides), TensorType(self.type.dtype, tuple(shape)))


def goes_by_units(kernel: LoopKernel, units: Units, target: Target) -> bool:
    """Whether a loop nest goes by units, or what `in_units` makes of it."""
    return reach_of_loops(in_units(kernel, units, target), [_NOWHERE] * len(kernel.operands), units, target).of_unit > 0


def reach_of_loops(kernel: LoopKernel, pointers: Sequence[Val], units: Units, target: Target) -> Reach:
    """Of a loop nest, whose operands are at `pointers`."""
    along, blocks = _unit_loop(kernel, units, target)
    touches = tuple(_touches(kernel, pointers, along, units))
    return Reach(touches, blocks if all(t.slab for t in touches if t.writes) else 0)


def _unit_loop(kernel: LoopKernel, units: Units, target: Target) -> tuple[int, int]:
    """The loop that is divided where a kernel goes by units, the first of those that count its blocks, and the blocks of a full unit; -1 and 0 if it cannot."""
    if kernel.summed or kernel.vector < 0 or not kernel.points:
        return -1, 0
    leading = [0] if kernel.is_run or kernel.group >= 0 else leading_loops(kernel)
    iterations = units.of(kernel.extents[leading[0]]) if leading else 0
    if kernel.is_run:
        blocks = int(kernel.run == iterations and iterations % lanes_of(kernel, target) == 0)
    elif kernel.group == 0:
        size = group_size(kernel, target)
        blocks = iterations // size if iterations % size == 0 else 0
    else:
        blocks = iterations * block_count(kernel, target) // kernel.extents[leading[0]] if iterations else 0
    return (leading[0], blocks) if blocks else (-1, 0)


def _touches(kernel: LoopKernel, pointers: Sequence[Val | None], along: int, units: Units, bases: Sequence[int] = ()) -> Iterator[Touch]:
    """`pointers`: None for an operand without memory; `bases`: elements between one and where the kernel's offsets begin to count."""
    accesses = [(s.what.access, s.what) for s in kernel.body if isinstance(s.what, (Load, GatherLoad))] + [(s.access, s) for s in kernel.stores]
    for access, what in accesses:
        pointer, size = pointers[access.operand], kernel.operands[access.operand].itemsize
        if pointer is None:
            continue
        if isinstance(what, GatherLoad):
            yield _anywhere(pointer, False)
            continue
        trips = _trips(kernel.extents, what.guards, along) if isinstance(what, Load) else [(0, n - 1) for n in kernel.extents]
        low, high, slab = _extent(access, bases[access.operand] if bases else 0, trips, along, units)
        yield Touch(pointer, low * size, high * size, slab * size, not isinstance(what, Load))


def _trips(extents: Sequence[int], guards: Sequence[Guard], along: int) -> list[tuple[int, int]]:
    """The first and the last iteration of each loop in which something is read; of the one that is divided all."""
    trips = [(0, n - 1) for n in extents]
    for guard in guards:
        varying = [d for d, step in enumerate(guard.strides) if step]
        if len(varying) == 1 and varying[0] != along and guard.strides[varying[0]] > 0:
            d, step = varying[0], guard.strides[varying[0]]
            low, high = trips[d]
            trips[d] = max(low, -(guard.offset // step)), min(high, (guard.extent - 1 - guard.offset) // step)
    return trips


def _extent(access: Access, base: int, trips: Sequence[tuple[int, int]], along: int, units: Units) -> tuple[int, int, int]:
    """The first element, the one behind the last, and how many lie from where a unit begins to where the next one does, 0 if units are not apart."""
    ends = [sorted((step * low, step * high)) for (low, high), step in zip(trips, access.strides, strict=True)]
    first = base + access.offset
    low, high = first + sum(end[0] for end in ends), first + sum(end[1] for end in ends) + 1
    if any(begin > end for begin, end in trips):
        return first, first, 0
    step, iterations = (access.strides[along], trips[along][1] + 1) if along >= 0 else (0, 0)
    in_row = step > 0 and high - low - (iterations - 1) * step <= step
    return low, high, units.of(iterations) * step if in_row else 0


def _anywhere(pointer: Val, writes: bool) -> Touch:
    return Touch(pointer, -_FAR, _FAR, 0, writes)


def blocks_of_product(plan: Plan, rows: int, fused: FusedEpilogue | None, units: Units) -> int:
    """Blocks that a full unit of a product of so many rows has; 0 if it cannot go by units."""
    if plan.resumes or (fused is not None and not units.of(fused.kernel.extents[0])):
        return 0
    return blocks_of_unit(plan.first_rows, rows, units)


def reach_of_product(
    plan: Plan, left: Matrix, right: Val, result: Matrix | None, units: Units, fused: FusedEpilogue | None = None, pointers: Sequence[Val | None] = ()
) -> Reach:
    """Of the last stage of a product.

    Args:
        left: whose rows are those of the result.
        right: where it reads the right operand, or what was made of it.
        result: where it goes, if not by way of an epilogue `fused` whose operands are at `pointers`, None for the product itself.
    """
    count = math.prod(left.type.shape[:-1])
    blocks = blocks_of_product(plan, count, fused, units)
    rows = units.of(count) if blocks else 0
    touches = [_touch_of_matrix(left, rows, False), _anywhere(right, False)]
    if result is not None:
        touches.append(_touch_of_matrix(result, rows, True))
    if fused is not None:
        touches += _touches(fused.kernel, pointers, 0 if rows else -1, units, fused.bases)
    return Reach(tuple(touches), blocks if all(t.slab for t in touches if t.writes) else 0)


def _touch_of_matrix(matrix: Matrix, rows: int, writes: bool) -> Touch:
    shape, strides, size = matrix.type.shape, matrix.strides, matrix.type.dtype.itemsize
    width = (shape[-1] - 1) * strides[-1] + 1
    count, step = 1, 0
    for n, stride in reversed([(n, stride) for n, stride in zip(shape[:-1], strides[:-1], strict=True) if n > 1]):
        if count > 1 and stride != count * step:
            return _anywhere(matrix.pointer, writes)
        count, step = count * n, step if count > 1 else stride
    if strides[-1] < 0 or not 0 < width <= step:
        return _anywhere(matrix.pointer, writes)
    low = matrix.start * size
    return Touch(matrix.pointer, low, low + ((count - 1) * step + width) * size, rows * step * size, writes)
