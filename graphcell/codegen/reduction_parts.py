"""Long reductions in parts that threads share and that keep digits.

Enters: a kernel whose reductions run over all of its inner loops, and no element waits for them: what a loss adds up of millions of elements beside
their gradients, or the sums, means and extrema of long columns. Where their number has the divisors, legalize.py cuts such a reduction in two; here is what
nothing divides. Leaves: the kernel with a loop over parts of equal length around its inner loops, the same for the rest, which is shorter, and a kernel
that combines what all parts come to and does what was to be done with it. The cut depends on the shape alone, so that results do not depend on threads.
"""

from __future__ import annotations

import math
from dataclasses import replace

from graphcell.codegen.kernel import (
    MIN_BLOCKS,
    POINTS_OF_ONE_BLOCK,
    Access,
    GatherLoad,
    Guard,
    Index,
    Load,
    LoopKernel,
    Statement,
    Store,
    Strides,
    with_loops,
)
from graphcell.codegen.layout import row_major
from graphcell.codegen.row_parts import Following, Parts
from graphcell.dtype import float32
from graphcell.ops.arithmetic import Cast
from graphcell.ops.base import Reduction
from graphcell.passes.row_blocks import MIN_BLOCKS as FEWEST_PARTS
from graphcell.passes.row_blocks import row_blocks, rows_of_block

_LENGTH = 1 << 12
"""Of a part whose elements lie side by side."""
_APART = 16
"""Bytes from one element to the next from which on there are columns."""


def reductions_in_parts(kernel: LoopKernel) -> Parts:
    """The kernel with its reductions in parts, if they are long, and rows are few or columns: the longest loop is cut."""
    if kernel.points <= POINTS_OF_ONE_BLOCK or not _ends_in_reductions(kernel):
        return Parts(kernel)
    d = max(range(kernel.outer, len(kernel.extents)), key=lambda e: kernel.extents[e])
    apart = max((abs(s.what.access.strides[d]) * s.dtype.itemsize for s in kernel.body if isinstance(s.what, Load)), default=0)
    has_columns = apart >= _APART
    if row_blocks((kernel.extents[d], apart), (0,), 1) is not None if has_columns else math.prod(kernel.extents[: kernel.outer]) >= MIN_BLOCKS:
        return Parts(kernel)  # columns that legalize leaves whole though it could divide them, or rows enough
    length = max(1, (rows_of_block(apart) if has_columns else _LENGTH) * kernel.extents[d] // kernel.inner_points)
    if kernel.extents[d] < FEWEST_PARTS * length:
        return Parts(kernel)
    return _Cut(kernel, d, length).run()


def _ends_in_reductions(kernel: LoopKernel) -> bool:
    """Whether nothing that varies within rows is known only after a reduction."""
    return kernel.reduces and all(s.stage == 0 for s in kernel.body if s.loops & kernel.inner_mask)


class _Cut:
    """Of loop `d`, in parts of so many iterations."""

    def __init__(self, kernel: LoopKernel, d: int, length: int):
        self.kernel, self.d, self.length = kernel, d, length
        self.parts, self.rest = divmod(kernel.extents[d], length)
        self.reductions = [k for k, s in enumerate(kernel.body) if s.is_reduction]
        self.dtypes = [float32 if kernel.body[k].dtype.bits == 16 and kernel.body[k].dtype.is_float else kernel.body[k].dtype for k in self.reductions]
        """Of what parts come to: half precision is rounded once."""
        self.at = self._place_of_parts()
        """Where the loop over parts stands, among the outer loops."""
        self.counts = (*kernel.extents[: self.at], self.parts + (self.rest > 0), *kernel.extents[self.at : kernel.outer])
        self.steps = row_major(self.counts)
        """Through what all parts come to."""

    def _place_of_parts(self) -> int:
        """Behind the outer loops with longer steps through the largest operand."""
        loads = [s.what.access.strides for s in self.kernel.body if isinstance(s.what, Load)]
        steps = max(loads, key=lambda v: sum(map(bool, v)), default=(0,) * len(self.kernel.extents))
        return sum(abs(steps[e]) >= abs(steps[self.d]) * self.length for e in range(self.kernel.outer))

    def run(self) -> Parts:
        k = self.kernel
        around = with_loops(k, (*k.extents[: self.at], self.parts, *self._extents(self.length)[self.at :]), k.outer + 1, self._strides, self._loops)
        partial = tuple(len(k.operands) + j for j in range(len(self.reductions)))
        nbytes = tuple(math.prod(self.counts) * t.itemsize for t in self.dtypes)
        inner = (0,) * (len(k.extents) - k.outer)
        stores = tuple(Store(n, Access(o, (*self.steps, *inner))) for n, o in zip(self.reductions, partial, strict=True))
        after = []
        if self.rest:
            steps = (*self.steps[: self.at], *self.steps[self.at + 1 :], *inner)
            last = tuple(Store(n, Access(o, steps, self.parts * self.steps[self.at])) for n, o in zip(self.reductions, partial, strict=True))
            rest = self._of_parts(replace(self._moved(), extents=self._extents(self.rest)), last)
            after.append(Following(rest, tuple(range(len(rest.operands)))))
        after.append(self._combined())
        return Parts(self._of_parts(around, stores), nbytes, tuple(after))

    def _extents(self, length: int) -> tuple[int, ...]:
        return (*self.kernel.extents[: self.d], length, *self.kernel.extents[self.d + 1 :])

    def _strides(self, v: Strides) -> Strides:
        return (*v[: self.at], v[self.d] * self.length, *v[self.at :])

    def _loops(self, mask: int) -> int:
        """What varies along loop d varies with the part, too."""
        low = (1 << self.at) - 1
        return mask & low | (mask >> self.d & 1) << self.at | (mask & ~low) << 1

    def _of_parts(self, kernel: LoopKernel, results: tuple[Store, ...]) -> LoopKernel:
        """A kernel without what waits for the reductions, whose results it stores."""
        dtypes = dict(zip(self.reductions, self.dtypes, strict=True))
        inside = [s for s in kernel.stores if kernel.writes_inside(s)]
        needed, stack = set(self.reductions), [*self.reductions, *(s.local for s in inside)]
        while stack:
            n = stack.pop()
            needed.add(n)
            stack += kernel.body[n].args
        number = {n: j for j, n in enumerate(sorted(needed))}
        body = []
        for n in number:
            s = kernel.body[n]
            body.append(Statement(s.what, tuple(number[a] for a in s.args), dtypes.get(n, s.dtype), s.loops, s.stage))
        stores = tuple(replace(s, local=number[s.local]) for s in (*inside, *results))
        return replace(kernel, body=tuple(body), stores=stores, operands=(*kernel.operands, *self.dtypes))

    def _moved(self) -> LoopKernel:
        """The kernel at what the rest reads and writes."""
        k, d, first = self.kernel, self.d, self.parts * self.length

        def moved(a: Access) -> Access:
            return replace(a, offset=a.offset + first * a.strides[d])

        def statement(s: Statement) -> Statement:
            what = s.what
            if isinstance(what, Load):
                guards = tuple(Guard(g.strides, g.offset + first * g.strides[d], g.extent) for g in what.guards)
                return replace(s, what=replace(what, access=moved(what.access), guards=guards))
            if isinstance(what, Index):
                return replace(s, what=replace(what, offset=what.offset + first * what.strides[d]))
            return replace(s, what=replace(what, access=moved(what.access))) if isinstance(what, GatherLoad) else s

        return replace(k, body=tuple(map(statement, k.body)), stores=tuple(replace(s, access=moved(s.access)) for s in k.stores))

    def _combined(self) -> Following:
        """What combines the results of the parts, one reduction along all of them, and does what waits for that."""
        k, outer = self.kernel, self.kernel.outer
        rows = [s for s in k.stores if not k.writes_inside(s)]
        needed, stack = set(), [s.local for s in rows]
        while stack:
            n = stack.pop()
            needed.add(n)
            stack += () if k.body[n].is_reduction else k.body[n].args
        used = sorted({s.access.operand for s in rows} | {x.operand for n in needed if (x := _access(k.body[n])) is not None})
        operands = (*used, *(len(k.operands) + j for j in range(len(self.reductions))))
        place = {operand: j for j, operand in enumerate(operands)}
        steps = (*self.steps[: self.at], *self.steps[self.at + 1 :], self.steps[self.at])

        def here(a: Access) -> Access:
            return Access(place[a.operand], (*a.strides[:outer], 0), a.offset)

        body: list[Statement] = []
        number: dict[int, int] = {}
        for n in sorted(needed):
            s = k.body[n]
            if isinstance(s.what, Reduction):
                j = self.reductions.index(n)
                wide = self.dtypes[j]
                body.append(Statement(Load(Access(place[len(k.operands) + j], steps), wide), (), wide, (2 << outer) - 1, 0))
                body.append(Statement(type(s.what)((outer,), False), (len(body) - 1,), wide, s.loops, s.stage))  # type: ignore[call-arg]
                if wide is not s.dtype:
                    body.append(Statement(Cast(s.dtype), (len(body) - 1,), s.dtype, s.loops, s.stage))
            else:
                what = s.what
                if isinstance(what, (Load, GatherLoad)):
                    what = replace(what, access=here(what.access))
                    if isinstance(what, Load):
                        what = replace(what, guards=tuple(Guard((*g.strides[:outer], 0), g.offset, g.extent) for g in what.guards))
                elif isinstance(what, Index):
                    what = replace(what, strides=(*what.strides[:outer], 0))
                body.append(Statement(what, tuple(number[a] for a in s.args), s.dtype, s.loops, s.stage))
            number[n] = len(body) - 1
        stores = tuple(Store(number[s.local], here(s.access)) for s in rows)
        extents = (*k.extents[:outer], self.counts[self.at])
        return Following(LoopKernel(extents, outer, -1, tuple(body), stores, (*(k.operands[o] for o in used), *self.dtypes)), operands)


def _access(s: Statement) -> Access | None:
    return s.what.access if isinstance(s.what, (Load, GatherLoad)) else None
