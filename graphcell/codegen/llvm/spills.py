"""What the inner loops of a stage keep in memory for later stages of the same row, instead of their computing it again.

Enters: the statements of a kernel, what its later stages are to find, and what they compute for that if something is kept. Leaves: what is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from graphcell.codegen.kernel import Load, Statement
from graphcell.records import dataclass

_KEEPING = 8
"""What it costs to keep a vector of a row and to read it again, in instructions that compute it again."""


@dataclass(frozen=True, slots=True)
class WorkOfLaterStages:
    """The work of all stages after `stage`, by what each is to find (`roots`). `computed`: what stands in inner loops and leads to some roots, if
    something is kept.
    """

    body: Sequence[Statement]
    stage: int
    roots: Sequence[Sequence[int]]
    computed: Callable[[Sequence[int], Sequence[int]], set[int]]

    def worth_keeping(self, sizes: Mapping[int, int], room: int) -> list[int]:
        """What to keep of the locals in `sizes` (bytes of a row buffer), all in `room` bytes: those that save most work, one by one; or what later stages
        read of this one, but for what is not worth it, if that saves more. A function of which each of two locals is made goes only with both.
        """
        one_by_one, border = self._one_by_one(sizes, room), self._border(sizes)
        fits = sum(sizes[n] for n in border) <= room
        return sorted(border if fits and self._cost(border) < self._cost(one_by_one) else one_by_one)

    def _one_by_one(self, sizes: Mapping[int, int], room: int) -> list[int]:
        chosen: list[int] = []
        cost = self._cost(chosen)
        while True:
            left = room - sum(sizes[n] for n in chosen)
            found = (n for n in self._needed(chosen) if sizes.get(n, left + 1) <= left)
            less, best = min(((self._cost([*chosen, n]), n) for n in found), default=(cost, -1))
            if less >= cost:
                return chosen
            chosen, cost = [*chosen, best], less

    def _border(self, sizes: Mapping[int, int]) -> list[int]:
        """What later stages read of this one, without what costs more to keep than to compute; loads are read again."""
        needed = self._needed(())
        read = {a for n in needed if self.body[n].stage > self.stage for a in self.body[n].args} | {n for roots in self.roots for n in roots}
        border = sorted(n for n in read & needed if n in sizes and not isinstance(self.body[n].what, Load))
        cost = self._cost(border)
        for n in list(border):
            fewer = [m for m in border if m != n]
            less = self._cost(fewer)
            if less <= cost:
                border, cost = fewer, less
        return border

    def _needed(self, kept: Sequence[int]) -> set[int]:
        return set().union(*(self.computed(roots, kept) for roots in self.roots))

    def _cost(self, kept: Sequence[int]) -> int:
        """Rough instructions at a point of all later stages, which each compute for themselves what is not kept."""
        again = sum(self.body[n].instructions for roots in self.roots for n in self.computed(roots, kept))
        return again + _KEEPING * len(kept)
