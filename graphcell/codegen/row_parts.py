"""Rows of any number, beside which columns are added up, in parts that threads share.

Enters: a kernel with sums along its rows (fuse.py), which would all belong to one block where nothing divided their number. Leaves: the kernel with
rows in parts of equal length but for the last one, of which each adds up sums of its own, and the kernels that add these up. The cut depends on the
shape alone, so that results do not depend on threads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from graphcell.codegen.kernel import FEWEST_PARTS, POINTS_OF_ONE_BLOCK, Access, Load, LoopKernel, Statement, Store, with_loops
from graphcell.codegen.layout import row_major
from graphcell.ops.reduction import ReduceSum
from graphcell.passes.row_blocks import rows_of_block
from graphcell.records import dataclass

FEWEST_ROWS = 16
"""Of a part."""


@dataclass(frozen=True)
class Following:
    """A kernel that runs after the one that was cut, on these of its operands."""

    kernel: LoopKernel
    operands: tuple[int, ...]


@dataclass(frozen=True)
class Parts:
    """A kernel with rows or reductions in parts. Its last operands are what the parts come to, of so many bytes each, of which those after it make what
    belongs into the others."""

    kernel: LoopKernel
    nbytes: tuple[int, ...] = ()
    after: tuple[Following, ...] = ()


def rows_in_parts(kernel: LoopKernel) -> Parts:
    """The kernel with its rows in parts, if nothing else makes blocks and the rows suffice.

    The longest loop along which stores add is cut, and each iteration of such loops before it is a part, too.
    """
    summed = [e for e in range(kernel.outer) if kernel.summed >> e & 1]
    rows = math.prod(kernel.extents[e] for e in summed)
    blocks = math.prod(kernel.extents[: kernel.first_summed]) if summed else FEWEST_PARTS
    if blocks >= FEWEST_PARTS or kernel.points <= POINTS_OF_ONE_BLOCK or rows < FEWEST_PARTS * FEWEST_ROWS:
        return Parts(kernel)
    d = max(summed, key=lambda e: kernel.extents[e])
    extent, before = kernel.extents[d], [e for e in summed if e < d]
    wanted = rows_of_block(kernel.points // blocks // rows * max(t.itemsize for t in kernel.operands))
    wanted //= math.prod(kernel.extents[e] for e in summed if e > d)
    parts = min(extent, max(math.ceil(FEWEST_PARTS / math.prod(kernel.extents[e] for e in before)), math.ceil(extent / max(wanted, 1))))
    length = math.ceil(extent / parts)
    parts = math.ceil(extent / length)

    def strides(v: tuple[int, ...]) -> tuple[int, ...]:
        """Those of loop d, of which a step is a part now, and those within a part."""
        return (*v[:d], v[d] * length, *v[d:])

    def loops(mask: int) -> int:
        """What varies along loop d varies with the part, and within it."""
        return mask & (2 << d) - 1 | mask >> d << d + 1

    cut = with_loops(kernel, (*kernel.extents[:d], parts, length, *kernel.extents[d + 1 :]), kernel.outer + 1, strides, loops)
    sums = {s: _Sum(cut, s, [*before, d]) for s in cut.stores if s.adds}
    places = {s: k for k, s in enumerate(sums, len(cut.operands))}
    stores = tuple(replace(s, access=Access(places[s], sums[s].strides)) if s.adds else s for s in cut.stores)
    within = cut.summed & ~sum(1 << e for e in (*before, d))
    cut = replace(cut, stores=stores, operands=(*cut.operands, *(s.dtype for s in sums.values())), summed=within, last=extent - (parts - 1) * length)
    added = [s.added_up() for s in sums.values()]
    nbytes = tuple(k.points * k.operands[0].itemsize for k in added)
    return Parts(cut, nbytes, tuple(Following(k, (places[s], s.access.operand)) for s, k in zip(sums, added, strict=True)))


class _Sum:
    """What a store adds up, in parts along the loops `parts`: the numbers of one part after those of the other."""

    def __init__(self, kernel: LoopKernel, store: Store, parts: Sequence[int]):
        self.store, self.dtype = store, kernel.operands[store.access.operand]
        self.loops = [e for e, step in enumerate(store.access.strides) if step]
        self.extents = tuple(kernel.extents[e] for e in self.loops)
        self.size, self.parts = math.prod(self.extents), math.prod(kernel.extents[e] for e in parts)
        together = (*parts, *self.loops)
        steps = dict(zip(together, row_major(tuple(kernel.extents[e] for e in together)), strict=True))
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
