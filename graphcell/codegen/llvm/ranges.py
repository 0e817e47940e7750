"""Ranges of a row within which guarded loads are known to read, or known not to.

Enters: a kernel (codegen/kernel.py) whose vector loop runs along rows. Leaves: where its rows are cut, and what is known of a statement within a
range. What a concatenation or padding puts together is guarded at each point; but for the vectors with its seams, a row is read without masks.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from graphcell.codegen.kernel import Guard, Index, Load, LoopKernel, Splat, Statement
from graphcell.codegen.llvm.contraction import ceil_div, round_up
from graphcell.ops.comparison import Less

_MOST_RANGES = 5
"""The loop is written out for each of them."""
_FEWEST_VECTORS, _FEWEST_VECTORS_APART = 4, 1
"""Of a range in which all is known; fewer belong to their neighbours. Where guarded elements lie apart, a vector with a mask takes several loads."""


def ranges_of(kernel: LoopKernel, lanes: int) -> list[range]:
    """The ranges of the vector loop in order, each but the last some whole vectors long: those with seams, in which guards are asked, and those
    without. The whole loop if nothing is gained by cutting it.
    """
    extent = kernel.extents[kernel.vector]
    loads = [s.what for s in kernel.body if isinstance(s.what, Load)]
    within = sorted({cut for load in loads for guard in load.guards for cut in seams(guard, kernel.vector) if 0 < cut < extent})
    apart = any(load.guards and abs(load.access.strides[kernel.vector]) > 1 for load in loads)
    few = (_FEWEST_VECTORS_APART if apart else _FEWEST_VECTORS) * lanes
    guarded = [[0, 0]]
    for seam in within:
        first, end = seam // lanes * lanes, min(round_up(seam, lanes), extent)
        if first - guarded[-1][1] < few:
            guarded[-1][1] = end
        else:
            guarded.append([first, end])
    if extent - guarded[-1][1] < few:
        guarded[-1][1] = extent
    cuts = sorted({0, extent}.union(*guarded))
    return [range(first, end) for first, end in pairwise(cuts)] if len(cuts) <= _MOST_RANGES + 1 else [range(extent)]


def seams(guard: Guard, vector: int) -> Iterator[int]:
    """Where a guard that depends on the vector loop alone begins and ceases to hold, be it outside of the loop."""
    if _runs_along(guard.strides, vector):
        step, low = guard.strides[vector], guard.offset
        # of a place that rises with the loop the first that is not below the bound, of one that falls the first that is
        yield from (ceil_div(bound - low, step) if step > 0 else (low - bound) // -step + 1 for bound in (0, guard.extent))


def _runs_along(strides: tuple[int, ...], vector: int) -> bool:
    return all((s != 0) == (d == vector) for d, s in enumerate(strides))


def _between(here: range, strides: tuple[int, ...], offset: int, vector: int) -> tuple[int, int]:
    """The least and the largest place in a range."""
    ends = [at * strides[vector] + offset for at in (here[0], here[-1])]
    return min(ends), max(ends)


def holds_in(here: range, guard: Guard, vector: int) -> bool | None:
    """Whether a guard holds at all points of a range, or at none; None if that is not known."""
    if not _runs_along(guard.strides, vector):
        return None
    least, largest = _between(here, guard.strides, guard.offset, vector)
    if least >= 0 and largest < guard.extent:
        return True
    return False if largest < 0 or least >= guard.extent else None


def is_less_in(here: range, kernel: LoopKernel, statement: Statement) -> bool | None:
    """Whether a statement compares places along the row with a number that all points of a range are below, or none; None for all others."""
    if not isinstance(statement.what, Less):
        return None
    place, bound = (kernel.body[n].what for n in statement.args)
    if not isinstance(place, Index) or not isinstance(bound, Splat) or not _runs_along(place.strides, kernel.vector):
        return None
    least, largest = _between(here, place.strides, place.offset, kernel.vector)
    if largest < bound.value:
        return True
    return False if least >= bound.value else None
