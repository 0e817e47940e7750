"""Which blocks cover a number of rows at little more than the cost of one graph for all of them.

Enters: what a function does for a row and for all; a number of rows. Leaves: `Sizes`, the blocks to choose from, and those chosen. It depends on
nothing else, so that a result has the same bits whatever was called before. Refuses (`NotRowWise`): rows that no blocks have exactly, where they must.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import replace

from graphcell.passes.row_wise import NotRowWise
from graphcell.records import dataclass

Pieces = tuple[tuple[int, int], ...]
"""(first row, rows) of blocks."""


@dataclass(frozen=True)
class Sizes:
    """Rows of the blocks to choose from; what starting a block costs, in rows; whether a block may have more rows than are left, where
    each row counts; and whether all blocks of a call shall have one size, and be as few as can be.
    """

    rows: frozenset[int]
    start: float = 0.0
    may_exceed: bool = False
    are_alike: bool = False

    def without(self, rows: set[int]) -> Sizes:
        """These but for some."""
        return replace(self, rows=self.rows - rows)

    def cost(self, size: int) -> float:
        """Of a block, in rows."""
        return size + self.start

    def is_one_of_several(self, size: int) -> bool:
        """Whether a block with so many rows may be used beside others."""
        return not self.may_exceed or size % _IN_SEVERAL == 0


LIGHT = Sizes(frozenset({1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 48, 64, 96, 128, 192, 256}), 3)
"""Where a row is little work. A larger block would be no faster."""
HEAVY = Sizes(frozenset({1, 2, 4, 8, 32}), 0.3)
"""Where a row is much work."""
HEAVY_WITH_WEIGHTS = Sizes(frozenset({*range(1, 9), *range(10, 33, 2)}), are_alike=True)
"""The same where many weights are read for that, which blocks of each size have in a form of their own: two sizes would read them twice."""
IN_STAGES = frozenset({1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 64})
"""Where a row is much work and blocks add to sums that are small beside it."""
AT_ONCE = frozenset({*range(1, 9), *range(10, 33, 2), *range(36, 65, 4), *range(72, 129, 8), *range(144, 257, 16)})
"""Where starting a block costs as much as many rows: any number of rows is little less than one of these."""
_IN_SEVERAL = 16
"""Where several of them are needed, those are chosen whose rows are a multiple of this."""
_LONG_START = 5
"""Where starting a block costs more rows than that, blocks are as few as can be."""
_SUM_COST = 12
"""To read and write a number of a sum takes as long as to compute or multiply so many."""
_HEAVY = 100_000
"""So many numbers that are computed or multiplied make a row much work."""
_MANY_WEIGHTS = 0.6
"""So many weights for each of these are many."""
_NOT_IN_CACHE = 250_000
"""More weights than that do not stay in a second-level cache, whichever the processor: results shall not depend on it."""
_MANY_OUT_OF_CACHE = 0.1
"""So many of them for each number computed are many, since they come from farther away."""


def sizes_for(work: float, weights: float) -> Sizes:
    """The blocks to choose from.

    Args:
        work: numbers that are computed or multiplied for each row.
        weights: those read for all rows.
    """
    if work < _HEAVY:
        return LIGHT
    many = _MANY_OUT_OF_CACHE if weights > _NOT_IN_CACHE else _MANY_WEIGHTS
    return HEAVY_WITH_WEIGHTS if weights > many * work else HEAVY


def sizes_in_stages(work: float, weights: float, may_exceed: bool) -> Sizes:
    """The same for functions whose blocks add to sums, as large as the weights, which each block reads and writes. `may_exceed`: a block
    can leave rows out of the sums.
    """
    start = HEAVY.start + _SUM_COST * weights / max(work, 1.0)
    if work < _HEAVY:
        return replace(LIGHT, start=LIGHT.start + start)
    if start > _LONG_START:
        return Sizes(AT_ONCE, start, may_exceed=may_exceed)
    return Sizes(LIGHT.rows | set(range(1, 17)) if start > 1 else IN_STAGES, start)


@functools.lru_cache(maxsize=4096)
def plan(rows: int, sizes: Sizes) -> Pieces:
    """(first row, rows) of blocks that cover so many rows. The last may overlap the one before; a single one may be longer than the rows.

    It depends on nothing else, so that a result has the same bits whatever was called before.
    """
    pieces, start = [], 0
    for size in _alike(rows, sizes) if sizes.are_alike else _cheapest(rows, sizes)[1]:
        start = max(0, min(start, rows - size))
        pieces.append((start, size))
        start += size
    return tuple(pieces)


@functools.lru_cache(maxsize=4096)
def exact_plan(rows: int, sizes: Sizes) -> Pieces:
    """The same with blocks none of which overlap. They have so many rows together, or the last has more if it may; then one does if it can.

    Raises:
        NotRowWise: none of these sizes do.
    """
    largest = max(sizes.rows)
    whole = max(0, rows // largest - 1)
    if sizes.may_exceed and rows <= largest:
        return ((0, min(size for size in sizes.rows if size >= rows)),)
    several = {size for size in sizes.rows if sizes.is_one_of_several(size)}
    table: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    for left in range(1, rows - whole * largest + 1):
        fitting = (size for size in several if size <= left or sizes.may_exceed)
        rests = [(sizes.cost(size) + table[max(0, left - size)][0], (size, *table[max(0, left - size)][1])) for size in fitting]
        table.append(min(rests, default=(math.inf, ())))
    cost, blocks = table[-1]
    if math.isinf(cost):
        raise NotRowWise("there are too few rows for any block")
    blocks = (largest,) * whole + tuple(sorted(blocks, reverse=True))
    return tuple(zip(itertools.accumulate(blocks, initial=0), blocks))


def _alike(rows: int, sizes: Sizes) -> tuple[int, ...]:
    """Blocks of one size, as few as can be; of all sizes that do, the smallest."""
    count = -(-rows // max(sizes.rows))
    return (min(size for size in sizes.rows if size * count >= rows),) * count


def _cheapest(rows: int, sizes: Sizes) -> tuple[float, tuple[int, ...]]:
    """The cost, in rows, and the sizes of the blocks that cover so many rows at the least cost."""
    cost = {size: sizes.cost(size) for size in sizes.rows}
    longer: list[tuple[float, tuple[int, ...]]] = [(cost[size], (size,)) for size in sizes.rows if size >= rows]
    shorter = sorted((size for size in sizes.rows if size < rows), reverse=True)
    if not shorter:
        return min(longer)
    whole = max(0, rows // shorter[0] - 1)
    rest = rows - whole * shorter[0]
    table: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    for left in range(1, rest + 1):  # what is left may also be covered by one block that overlaps the one before
        rests = ((size, table[max(0, left - size)]) for size in shorter)
        table.append(min((cost[size] + after, (size, *blocks)) for size, (after, blocks) in rests))
    total, blocks = table[rest]
    return min([*longer, (total + whole * cost[shorter[0]], (shorter[0],) * whole + blocks)])
