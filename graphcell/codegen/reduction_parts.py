"""Long reductions in parts that threads share and that keep digits.

Enters: a kernel whose reductions run over all of its inner loops, and no element waits for them: what a loss adds up of millions of elements beside
their gradients, or the sums, means and extrema of long columns. Where their number has the divisors, legalize.py cuts such a reduction in two; here is what
nothing divides. Leaves: the kernel with a loop over parts of equal length around its inner loops, the same for the rest, which is shorter, and a kernel
that combines what all parts come to and does what was to be done with it. The cut depends on the shape alone, so that results do not depend on threads.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from graphcell.codegen.kernel import (
    FEWEST_PARTS,
    MIN_BLOCKS,
    POINTS_OF_ONE_BLOCK,
    Access,
    GatherLoad,
    Load,
    LoopKernel,
    Statement,
    Store,
    Strides,
    with_accesses,
    with_loops,
)
from graphcell.codegen.layout import row_major
from graphcell.codegen.row_parts import Following, Parts
from graphcell.dtype import float32
from graphcell.ops.arithmetic import Cast
from graphcell.ops.base import Reduction
from graphcell.passes.row_blocks import row_blocks, rows_of_block

_LENGTH = 1 << 12
"""Elements of a part, about, where they lie side by side."""
_APART = 16
"""Bytes from one element to the next from which on there are columns."""


def reductions_in_parts(kernel: LoopKernel) -> Parts:
    """The kernel with its reductions in parts, if they are long, and rows are few or columns. The loop with the longest steps is cut, if it has some."""
    if kernel.points <= POINTS_OF_ONE_BLOCK or not ends_in_reductions(kernel):
        return Parts(kernel)
    inner = range(kernel.outer, len(kernel.extents))
    steps = {e: max((abs(s.what.access.strides[e]) * s.dtype.itemsize for s in kernel.body if isinstance(s.what, Load)), default=0) for e in inner}
    d = max(inner, key=lambda e: (kernel.extents[e] >= MIN_BLOCKS, steps[e], kernel.extents[e]))
    has_columns = min(steps.values()) >= _APART
    if row_blocks((kernel.extents[d], steps[d]), (0,), 1) is not None if has_columns else math.prod(kernel.extents[: kernel.outer]) >= MIN_BLOCKS:
        return Parts(kernel)  # columns that legalize leaves whole though it could divide them, or rows enough
    length = max(1, (rows_of_block(min(steps.values())) if has_columns else _LENGTH) * kernel.extents[d] // kernel.inner_points)
    return _Cut(kernel, d, length).run() if kernel.extents[d] >= FEWEST_PARTS * length else Parts(kernel)


def ends_in_reductions(kernel: LoopKernel) -> bool:
    """Whether rows are walked once: nothing that varies within them, or is stored or reduced there, is known only after a reduction."""
    inside = [kernel.body[s.local] for s in kernel.stores if kernel.writes_inside(s)]
    varying = [s for s in kernel.body if s.loops & kernel.inner_mask]
    return kernel.reduces and all(s.stage == 0 for s in (*inside, *varying)) and all(s.stage == 1 for s in kernel.body if s.is_reduction)


def _needed(kernel: LoopKernel, roots: Iterable[int]) -> list[int]:
    """What these locals are computed from, up to reductions, and they themselves."""
    found: set[int] = set()
    stack = list(roots)
    while stack:
        n = stack.pop()
        if n not in found:
            found.add(n)
            stack += () if kernel.body[n].is_reduction else kernel.body[n].args
    return sorted(found)


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
            first = tuple(self.parts * self.length if e == self.d else 0 for e in range(len(k.extents)))
            rest = self._of_parts(with_loops(k, self._extents(self.rest), k.outer, lambda v: v, lambda mask: mask, first), last)
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
        needed = _needed(kernel, [*(a for n in self.reductions for a in kernel.body[n].args), *(s.local for s in inside)])
        number = {n: j for j, n in enumerate(sorted({*needed, *self.reductions}))}
        body = []
        for n in number:
            s = kernel.body[n]
            body.append(Statement(s.what, tuple(number[a] for a in s.args), dtypes.get(n, s.dtype), s.loops, s.stage))
        stores = tuple(replace(s, local=number[s.local]) for s in (*inside, *results))
        return replace(kernel, body=tuple(body), stores=stores, operands=(*kernel.operands, *self.dtypes))

    def _combined(self) -> Following:
        """What combines the results of the parts, one reduction along all of them, and does what waits for that."""
        k, outer = self.kernel, self.kernel.outer
        extents = (*k.extents[:outer], self.counts[self.at])
        rows = with_loops(k, extents, outer, lambda v: (*v[:outer], 0), lambda mask: mask & (1 << outer) - 1)
        steps = (*self.steps[: self.at], *self.steps[self.at + 1 :], self.steps[self.at])
        stores = [n for n, s in enumerate(k.stores) if not k.writes_inside(s)]
        body: list[Statement] = []
        number: dict[int, int] = {}
        for n in _needed(k, (k.stores[m].local for m in stores)):
            s = rows.body[n]
            if isinstance(s.what, Reduction):
                j = self.reductions.index(n)
                wide = self.dtypes[j]
                body.append(Statement(Load(Access(len(k.operands) + j, steps), wide), (), wide, (2 << outer) - 1, 0))
                body.append(Statement(type(s.what)((outer,), False), (len(body) - 1,), wide, s.loops, s.stage))  # type: ignore[call-arg]
                if wide is not s.dtype:
                    body.append(Statement(Cast(s.dtype), (len(body) - 1,), s.dtype, s.loops, s.stage))
            else:
                body.append(Statement(s.what, tuple(number[a] for a in s.args), s.dtype, s.loops, s.stage))
            number[n] = len(body) - 1
        written = tuple(replace(rows.stores[m], local=number[rows.stores[m].local]) for m in stores)
        return _with_used_operands(LoopKernel(extents, outer, -1, tuple(body), written, (*k.operands, *self.dtypes)))


def _with_used_operands(kernel: LoopKernel) -> Following:
    """A kernel without the operands that it does not touch."""
    accesses = [*(s.access for s in kernel.stores), *(s.what.access for s in kernel.body if isinstance(s.what, (Load, GatherLoad)))]
    used = sorted({a.operand for a in accesses})
    place = {operand: k for k, operand in enumerate(used)}
    moved = with_accesses(kernel, lambda a: replace(a, operand=place[a.operand]))
    return Following(replace(moved, operands=tuple(kernel.operands[k] for k in used)), tuple(used))
