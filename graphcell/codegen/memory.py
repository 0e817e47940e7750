"""Plans the arena: one block of memory in which all temporaries of an executable live, reused as soon as their last reader is done."""

from __future__ import annotations

from bisect import insort

from graphcell.buffer import ALIGNMENT
from graphcell.records import dataclass


def aligned_size(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


@dataclass
class Interval:
    """A buffer of `size` bytes that is written first at step `first` and read last at step `last` (both inclusive)."""

    size: int
    first: int
    last: int
    offset: int = -1


def plan_arena(intervals: list[Interval]) -> int:
    """Gives every interval an offset such that no two that live at one time overlap; returns the bytes needed.

    Largest first, each at the lowest place that is free during its life (best-fit would gain little here).
    """
    placed: list[tuple[int, int, int, int]] = []  # begin, end, first and last step, by the places where they begin
    total = 0
    for item in sorted(intervals, key=lambda i: (-i.size, i.first)):
        size = aligned_size(item.size)
        offset = 0
        for begin, end, first, last in placed:
            if first > item.last or item.first > last:
                continue
            if begin >= offset + size:
                break
            if end > offset:
                offset = end
        item.offset = offset
        total = max(total, offset + size)
        insort(placed, (offset, offset + size, item.first, item.last))
    return total


def plan_by_size(intervals: list[Interval], most: int) -> int:
    """The same, but only intervals of equal size share memory, if that takes no more than `most` bytes: where each thread of a team has rows of its own in
    all of them, none has to wait until others have read theirs (see reach.py).
    """
    of_size: dict[int, list[Interval]] = {}
    for interval in intervals:
        of_size.setdefault(interval.size, []).append(interval)
    total = 0
    for equal in of_size.values():
        taken = plan_arena(equal)
        for interval in equal:
            interval.offset += total
        total += taken
    return total if total <= most else plan_arena(intervals)


def plan_apart(intervals: list[Interval], most: int) -> int:
    """The same, but none share memory, if that takes no more than `most` bytes: what a thread writes it has then written in the last call, too, and no other
    thread has had something else there since. To write a cache line that another processor has read or written takes six times as long.
    """
    total = 0
    for interval in intervals:
        interval.offset = total
        total += aligned_size(interval.size)
    return total if total <= most else plan_arena(intervals)
