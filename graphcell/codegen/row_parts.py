"""Rows of any number, beside which columns are added up, in parts that threads share.

Enters: a kernel with sums along its rows (fuse.py), which would all belong to one block where nothing divided their number. Leaves: the kernel with
rows in parts of equal length but for the last one, of which each adds up sums of its own, and the kernels that add these up. The cut depends on the
shape alone, so that results do not depend on threads; and sums of parts keep more digits.
"""

from __future__ import annotations

import math
from dataclasses import replace

from graphcell.codegen.kernel import Access, Load, LoopKernel, Statement, Store, with_loops
from graphcell.codegen.layout import row_major
from graphcell.ops.reduction import ReduceSum
from graphcell.passes.row_blocks import rows_of_block
from graphcell.records import dataclass

FEWEST_PARTS, FEWEST_ROWS = 4, 16
POINTS_OF_ONE_BLOCK = 1 << 15
"""Points up to which no threads are wanted."""


@dataclass(frozen=True)
class PartSum:
    """How the sums of all parts, operand 0 of `kernel`, make what belongs into the buffer of operand `operand` of the kernel that was cut."""

    operand: int
    kernel: LoopKernel

    @property
    def nbytes(self) -> int:
        """Of the sums of all parts."""
        return self.kernel.points * self.kernel.operands[0].itemsize


def in_parts(kernel: LoopKernel) -> tuple[LoopKernel, tuple[PartSum, ...]]:
    """The kernel with its rows in parts, if nothing else makes blocks and the rows suffice. Further operands are the sums of parts."""
    d = (kernel.summed & -kernel.summed).bit_length() - 1
    if d < 0 or math.prod(kernel.extents[:d]) >= FEWEST_PARTS or kernel.points <= POINTS_OF_ONE_BLOCK:
        return kernel, ()
    rows = math.prod(n for e, n in enumerate(kernel.extents) if kernel.summed >> e & 1)
    wanted = rows_of_block(kernel.points // math.prod(kernel.extents[:d]) // rows * max(t.itemsize for t in kernel.operands))
    parts = min(kernel.extents[d], max(FEWEST_PARTS, math.ceil(rows / wanted)))
    length = math.ceil(kernel.extents[d] / parts)
    parts = math.ceil(kernel.extents[d] / length)
    if rows < FEWEST_PARTS * FEWEST_ROWS or parts == 1:
        return kernel, ()

    def strides(v: tuple[int, ...]) -> tuple[int, ...]:
        return (*v[:d], v[d] * length, *v[d:])

    def loops(mask: int) -> int:
        return mask & (1 << d) - 1 | (mask >> d & 1) << d | mask >> d << d + 1

    cut = with_loops(kernel, (*kernel.extents[:d], parts, length, *kernel.extents[d + 1 :]), kernel.outer + 1, strides, loops)
    sums = tuple(_Sum(cut, s, d) for s in cut.stores if s.adds)
    dtypes = tuple(cut.operands[s.store.access.operand] for s in sums)
    places = iter(range(len(cut.operands), len(cut.operands) + len(sums)))
    stores = tuple(replace(s, access=Access(next(places), _Sum(cut, s, d).strides)) if s.adds else s for s in cut.stores)
    cut = replace(cut, stores=stores, operands=(*cut.operands, *dtypes), summed=cut.summed & ~(1 << d), last=kernel.extents[d] - (parts - 1) * length)
    return cut, tuple(PartSum(s.store.access.operand, s.added_up()) for s in sums)


class _Sum:
    """What a store adds up, in parts along loop d: the numbers of one part after those of the other."""

    def __init__(self, kernel: LoopKernel, store: Store, d: int):
        self.store, self.parts, self.dtype = store, kernel.extents[d], kernel.operands[store.access.operand]
        self.loops = [e for e, step in enumerate(store.access.strides) if step]
        self.extents = tuple(kernel.extents[e] for e in self.loops)
        self.size = math.prod(self.extents)
        steps = dict(zip(self.loops, row_major(self.extents), strict=True)) | {d: self.size}
        self.strides = tuple(steps.get(e, 0) for e in range(len(kernel.extents)))

    def added_up(self) -> LoopKernel:
        """Adds the sums of the parts (operand 0) up to what the store was to write (operand 1)."""
        access, rank = self.store.access, len(self.loops)
        source = Load(Access(0, (*row_major(self.extents), self.size)), self.dtype)
        body = (
            Statement(source, (), self.dtype, (2 << rank) - 1, 0),
            Statement(ReduceSum((rank,)), (0,), self.dtype, (1 << rank) - 1, 1),
        )
        target = Access(1, (*(access.strides[e] for e in self.loops), 0), access.offset)
        return LoopKernel((*self.extents, self.parts), rank, -1, body, (Store(1, target),), (self.dtype, self.dtype))
