"""How the rows of a loop are divided for a team of threads, so that each has the same rows in all steps (team.py).

Rows are counted in *units*. Enters: what the steps of a loop have to do with rows: the extents of what they write, the blocks of their products. Leaves:
`Units`. A step goes by units if its extent is a multiple of the rows; then a unit has that many times as much of it. A loop nest that is one long loop is a
run of elements for each unit, or is taken apart into rows, where a run would end amid a vector.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from graphcell.codegen.kernel import LoopKernel, with_loops
from graphcell.codegen.llvm.contraction import ceil_div
from graphcell.codegen.llvm.processor import Target
from graphcell.codegen.llvm.widths import lanes_of, register_lanes
from graphcell.records import dataclass

COUNTS = 4, 2, 3
"""Into how many units rows may be divided, the first one first if that does as much."""


@dataclass(frozen=True, slots=True)
class Units:
    """`rows` in `count` units of `each`, of which the last has what is left: one at least."""

    count: int
    rows: int
    each: int

    def of(self, extent: int) -> int:
        """What a full unit has of an extent; 0 if that does not go by units."""
        return extent // self.rows * self.each if extent % self.rows == 0 else 0

    def between_ends(self, slab: int) -> int:
        """Bytes from where the first unit ends to where the last one does, of those of which `slab` belong to a full unit."""
        return slab // self.each * (self.rows - self.each)

    @property
    def are_even(self) -> bool:
        return self.count * self.each == self.rows

    @property
    def evenness(self) -> float:
        return _evenness(self.count // 2 * self.each, self.rows)


@dataclass(frozen=True, slots=True)
class Blocks:
    """The blocks of a product of so many rows, by the first row of each; none if they are no rows."""

    first_rows: tuple[int, ...]
    rows: int

    @property
    def evenness(self) -> float:
        return _evenness(self.first_rows[len(self.first_rows) // 2], self.rows) if self.first_rows else 1.0


def _evenness(first: int, rows: int) -> float:
    """How evenly two threads are loaded, of which one has the first so many rows: 1 if both have half of them, 1/2 if one has all."""
    return rows / (2 * max(first, rows - first))


EVEN = tuple(Units(count, count, 1) for count in COUNTS)
"""For any number of rows that is a multiple of a count."""


def units_of_rows(rows: int) -> Iterator[Units]:
    """Those uneven ones in which so many rows come."""
    for count in COUNTS:
        each = max(1, ceil_div(rows, count))
        units = Units(ceil_div(rows, each), rows, each)
        if not units.are_even:
            yield units


def units_of_blocks(of: Blocks) -> Iterator[Units]:
    """Those uneven ones of which each is whole blocks, or one."""
    first_rows, rows = of.first_rows, of.rows
    for blocks in dict.fromkeys([*(ceil_div(len(first_rows), count) for count in COUNTS), 1]):
        if blocks < len(first_rows) and first_rows[blocks] < rows:
            each = first_rows[blocks]
            units = Units(ceil_div(rows, each), rows, each)
            if not units.are_even and blocks_of_unit(first_rows, rows, units):
                yield units


def blocks_of_unit(first_rows: Sequence[int], rows: int, units: Units) -> int:
    """Blocks of a full unit, of those that begin at `first_rows`; 0 if units do not begin where blocks do, equally many in each."""
    each = units.of(rows)
    if not each or each not in first_rows:
        return 0
    blocks = first_rows.index(each)
    return blocks if list(first_rows[::blocks]) == list(range(0, rows, each)) else 0


def in_units(kernel: LoopKernel, units: Units, target: Target) -> LoopKernel:
    """The kernel, whose blocks are units if it is one long loop, or rows if units of it are no whole vectors."""
    elements = units.of(kernel.extents[0]) if kernel.is_run else 0
    if not elements:
        return kernel
    if elements % lanes_of(kernel, target) == 0:
        return replace(kernel, run=elements)
    return _in_rows(kernel, units.rows) if takes_apart(kernel, units, target) else kernel


def takes_apart(kernel: LoopKernel, units: Units, target: Target) -> bool:
    """Whether `in_units` makes rows of one long loop."""
    elements = units.of(kernel.extents[0]) if kernel.is_run else 0
    return elements % lanes_of(kernel, target) > 0 and kernel.extents[0] // units.rows >= register_lanes(kernel, target)


def _in_rows(kernel: LoopKernel, rows: int) -> LoopKernel:
    """One long loop taken apart: what `collapse` in schedule.py does, undone."""
    columns = kernel.extents[0] // rows
    apart = with_loops(kernel, (rows, columns), 1, lambda v: (v[0] * columns, v[0]), lambda mask: 3 * mask)
    return replace(apart, vector=1, past=kernel.past)
