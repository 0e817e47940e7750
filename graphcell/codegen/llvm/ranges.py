"""Ranges of a row within which guarded loads are known to read, or known not to.

Enters: a kernel (codegen/kernel.py) whose vector loop runs along rows. Leaves: where its rows are cut, and what is known of a statement within a
range. What a concatenation or padding puts together is guarded at each point; but for the vectors with its seams, a row is read without masks.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from graphcell.codegen.kernel import Guard, Index, Load, LoopKernel, Splat, Statement
from graphcell.codegen.llvm.contraction import round_up
from graphcell.ops.comparison import Less

_MOST_RANGES = 5
"""The loop is written out for each of them."""
_FEWEST_VECTORS = 4
"""Of a range in which all is known; fewer belong to their neighbours."""


def ranges_of(kernel: LoopKernel, lanes: int) -> list[range]:
    """The ranges of the vector loop in order, each but the last some whole vectors long: those with seams, in which guards are asked, and those
    without. The whole loop if nothing is gained by cutting it.
    """
    extent = kernel.extents[kernel.vector]
    loads = [s.what for s in kernel.body if isinstance(s.what, Load)]
    seams = sorted({cut for load in loads for guard in load.guards for cut in _seams(guard, kernel) if 0 < cut < extent})
    few = _FEWEST_VECTORS * lanes
    guarded = [[0, 0]]
    for seam in seams:
        first, end = seam // lanes * lanes, min(round_up(seam, lanes), extent)
        if first - guarded[-1][1] < few:
            guarded[-1][1] = end
        else:
            guarded.append([first, end])
    if extent - guarded[-1][1] < few:
        guarded[-1][1] = extent
    cuts = sorted({0, extent}.union(*guarded))
    return [range(first, end) for first, end in pairwise(cuts)] if len(cuts) <= _MOST_RANGES + 1 else [range(extent)]


def _seams(guard: Guard, kernel: LoopKernel) -> Iterator[int]:
    """Where a guard that depends on the vector loop alone, element by element, begins and ceases to hold."""
    if _runs_along(guard.strides, kernel.vector):
        yield -guard.offset
        yield guard.extent - guard.offset


def _runs_along(strides: tuple[int, ...], vector: int) -> bool:
    return all(s == (d == vector) for d, s in enumerate(strides))


def holds_in(here: range, guard: Guard, vector: int) -> bool | None:
    """Whether a guard holds at all points of a range, or at none; None if that is not known."""
    if not _runs_along(guard.strides, vector):
        return None
    first, last = here[0] + guard.offset, here[-1] + guard.offset
    if first >= 0 and last < guard.extent:
        return True
    return False if last < 0 or first >= guard.extent else None


def is_less_in(here: range, kernel: LoopKernel, statement: Statement) -> bool | None:
    """Whether a statement compares places along the row with a number that all points of a range are below, or none; None for all others."""
    if not isinstance(statement.what, Less):
        return None
    place, bound = (kernel.body[n].what for n in statement.args)
    if not isinstance(place, Index) or not isinstance(bound, Splat) or not _runs_along(place.strides, kernel.vector):
        return None
    if here[-1] + place.offset < bound.value:
        return True
    return False if here[0] + place.offset >= bound.value else None
