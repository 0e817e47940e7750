"""Axes: loop variables to be, found by unification.

While ops are gathered into one kernel, each dimension of each value is a list of axes whose extents multiply to the dimension's. Two
values met by one elementwise op have their axes unified, splitting one where the other is finer (a reshape). A dimension of extent 1
has no axes. All changes can be undone, so that a merge can be tried.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Protocol

Dims = tuple[tuple["Axis", ...], ...]
"""For each dimension of a value, its axes from slowest to fastest."""


class Axis:
    """A loop variable. It is itself a leaf, or became one or two others by unification."""

    __slots__ = ("extent", "parts")

    def __init__(self, extent: int):
        self.extent = extent
        self.parts: tuple[Axis, ...] | None = None

    def __repr__(self) -> str:
        return f"<Axis {self.extent}{' = ' + repr(self.parts) if self.parts else ''}>"


class _Conflict(Exception):
    pass


class Unifier(Protocol):
    def __call__(self, a: Axis, b: Axis) -> None: ...


def leaves(axes: Iterable[Axis]) -> list[Axis]:
    """The axes as they are now, in order."""
    found: list[Axis] = []
    for axis in axes:
        while axis.parts is not None and len(axis.parts) == 1:
            axis = axis.parts[0]
        if axis.parts is None:
            found.append(axis)
        else:
            found.extend(leaves(axis.parts))
    return found


def leaf_set(axes: Iterable[Axis]) -> dict[Axis, None]:
    """The distinct axes as they are now (an ordered set)."""
    return dict.fromkeys(leaves(axes))


def flatten(dims: Dims) -> list[Axis]:
    return [a for dim in dims for a in dim]


def volume(axes: Iterable[Axis]) -> int:
    return math.prod(a.extent for a in axes)


def fresh_dims(shape: Sequence[int]) -> Dims:
    """One new axis for each dimension."""
    return tuple((Axis(d),) if d != 1 else () for d in shape)


class Trail:
    """Unifications that can be undone."""

    def __init__(self) -> None:
        self._changed: list[Axis] = []

    def mark(self) -> int:
        return len(self._changed)

    def undo(self, mark: int) -> None:
        """Takes back all that was unified since `mark`."""
        while len(self._changed) > mark:
            self._changed.pop().parts = None

    def _set(self, axis: Axis, parts: tuple[Axis, ...]) -> None:
        axis.parts = parts
        self._changed.append(axis)

    def unify(self, a: Dims, b: Dims) -> bool:
        """Makes the axes of each dimension of `a` and `b` the same; False (with nothing changed) if they cannot be."""
        mark = self.mark()
        try:
            for x, y in zip(a, b, strict=True):
                if x != y:
                    self._unify_lists(leaves(x), leaves(y))
        except _Conflict:
            self.undo(mark)
            return False
        return True

    def _unify_lists(self, a: list[Axis], b: list[Axis]) -> None:
        while a and b:
            x, y = a.pop(), b.pop()
            if x is y:
                continue
            if x.extent == y.extent:
                self._set(x, (y,))
            elif x.extent > y.extent and x.extent % y.extent == 0:
                high = Axis(x.extent // y.extent)
                self._set(x, (high, y))
                a.append(high)
            elif y.extent > x.extent and y.extent % x.extent == 0:
                high = Axis(y.extent // x.extent)
                self._set(y, (high, x))
                b.append(high)
            else:
                raise _Conflict
            # a split may have changed what stands further left
            a[:], b[:] = leaves(a), leaves(b)
        if a or b:
            raise _Conflict

    def regroup(self, dims: Dims, shape: Sequence[int]) -> Dims | None:
        """The axes of a value after a reshape to `shape`; None if an extent cannot be split so."""
        mark = self.mark()
        remaining = leaves(flatten(dims))
        result: list[tuple[Axis, ...]] = []
        for d in reversed(shape):
            taken = self._take(remaining, d)
            if taken is None:
                self.undo(mark)
                return None
            result.append(taken)
        return tuple(reversed(result))

    def _take(self, remaining: list[Axis], extent: int) -> tuple[Axis, ...] | None:
        """Removes axes of product `extent` from the right end of `remaining`, splitting the last one if needed."""
        taken: list[Axis] = []
        while extent > 1:
            if not remaining:
                return None
            axis = remaining.pop()
            if extent % axis.extent == 0:
                taken.append(axis)
                extent //= axis.extent
                continue
            if axis.extent % extent:
                return None
            low, high = Axis(extent), Axis(axis.extent // extent)
            self._set(axis, (high, low))
            remaining[:] = leaves([*remaining, high])
            taken.append(low)
            extent = 1
        return tuple(reversed(taken))
