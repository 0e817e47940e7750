"""Ranges of a row within which every guarded load is known to read, or known not to.

Enters: a kernel (codegen/kernel.py) whose vector loop runs along rows. Leaves: where its rows are cut, and what is known of a statement within a
range. What a concatenation or padding puts together is guarded at each point; cut at its seams, a row is read without masks.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from graphcell.codegen.kernel import Guard, Index, Load, LoopKernel, Splat, Statement
from graphcell.ops.comparison import Less

_MOST_RANGES = 4
"""The loop is written out for each of them."""
_FEWEST_VECTORS = 4
"""Of a range: the last vector of each is masked, and the next begins anywhere."""


def ranges_of(kernel: LoopKernel, lanes: int) -> list[range]:
    """The ranges of the vector loop in order; the whole loop if nothing is gained by cutting it."""
    extent = kernel.extents[kernel.vector]
    seams = sorted({cut for s in kernel.body if isinstance(s.what, Load) for g in s.what.guards for cut in _seams(g, kernel) if 0 < cut < extent})
    found = [range(first, end) for first, end in pairwise([0, *seams, extent])]
    if len(found) > _MOST_RANGES or min(map(len, found)) < _FEWEST_VECTORS * lanes:
        return [range(extent)]
    return found


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
    if here[-1] < bound.value:
        return True
    return False if here[0] >= bound.value else None
