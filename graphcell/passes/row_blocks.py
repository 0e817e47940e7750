"""How a reduction of long columns is cut in two: first over blocks of rows, then over the blocks.

A block is read row by row, all columns of it, while it lies in the cache; blocks can be shared by threads; and sums add by blocks, which
keeps more digits. The cut depends on the shape alone, so that results do not depend on threads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from graphcell.ir.types import Shape
from graphcell.records import dataclass

BLOCK_BYTES = 1 << 16
"""What a block of rows should have at most; but never fewer rows than FEWEST_ROWS."""
FEWEST_ROWS, MOST_ROWS = 16, 256
MIN_BLOCKS = 4
LONGEST_STRIP, MOST_PAGES = 4096, 1280
"""Rows of a strip of columns, and the pages that they lie on: the TLB knows those of one or two arrays when they are read again."""
FEWEST_IN_STRIPS, FEWEST_SIDE_BY_SIDE = 128, 16
"""Columns that are worth taking a strip of them after the other, and those that lie side by side: a vector of them, more or less."""
_PAGE = 4096


@dataclass(frozen=True)
class RowBlocks:
    """The operand reshaped to `shape` is reduced along `first` (within blocks), then along `second` (over blocks)."""

    shape: Shape
    first: tuple[int, ...]
    second: tuple[int, ...]

    @property
    def rows(self) -> int:
        """Rows of a block."""
        return math.prod(self.shape[a] for a in self.first)


def row_blocks(shape: Shape, axis: Sequence[int], itemsize: int) -> RowBlocks | None:
    """The cut for a reduction of `shape` along `axis`; None if rows themselves are reduced, the columns are short, or nothing divides them."""
    reduced = [a for a in axis if shape[a] != 1]
    if not reduced or math.prod(shape[reduced[-1] + 1 :]) == 1:
        return None
    rows = math.prod(shape[a] for a in reduced)
    wanted = rows_of_block(math.prod(shape[reduced[-1] + 1 :]) * itemsize)
    if rows < MIN_BLOCKS * wanted:
        return None
    taken = 1
    for k in range(len(reduced) - 1, -1, -1):
        a = reduced[k]
        if taken * shape[a] <= wanted:
            taken *= shape[a]
            continue
        part = _divisor_near(shape[a], wanted / taken)
        if taken * part * 4 < wanted or taken * part > 4 * wanted or rows // (taken * part) < MIN_BLOCKS:
            return None
        inner = [b + 1 for b in axis if b > a]
        if part == 1:
            return RowBlocks(shape, tuple(b for b in axis if b > a), tuple(b for b in axis if b <= a))
        return RowBlocks((*shape[:a], shape[a] // part, part, *shape[a + 1 :]), (a + 1, *inner), tuple(b for b in axis if b <= a))
    return None


def rows_of_block(row: int) -> int:
    """Rows of so many bytes that a block should have."""
    return max(FEWEST_ROWS, min(MOST_ROWS, BLOCK_BYTES // row))


def fits_strips(shape: Shape, axis: Sequence[int], itemsize: int) -> bool:
    """Whether columns are so short that all rows of a few of them stay in the cache. Where what is reduced is read again with the result, as by a softmax
    (which the caller has to find), it is better to do all that for a strip of columns, and then for the next, than to cut the columns and go over all of
    memory for each step.
    """
    reduced = [a for a in axis if shape[a] != 1]
    if not reduced:
        return False
    rows, side_by_side = math.prod(shape[a] for a in reduced), math.prod(shape[reduced[-1] + 1 :])
    short = rows <= LONGEST_STRIP and rows * min(side_by_side * itemsize, _PAGE) <= MOST_PAGES * _PAGE
    return short and math.prod(shape) // rows >= FEWEST_IN_STRIPS and side_by_side >= FEWEST_SIDE_BY_SIDE


def _divisor_near(n: int, wanted: float) -> int:
    """The divisor of n whose ratio to `wanted` is closest to 1."""
    small = [d for d in range(1, math.isqrt(n) + 1) if n % d == 0]
    divisors = {*small, *(n // d for d in small)}
    return min(divisors, key=lambda d: (abs(math.log(d / wanted)), d))
