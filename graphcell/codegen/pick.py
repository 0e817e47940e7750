"""Sums to which one element of a row counts are that element, read where it lies.

Enters: a kernel with one inner loop. Leaves: an equal kernel in which sum(select(place == index, x, 0)) along that loop, the form in which
losses pick a class (it fuses with all around), is x at that place: what is loaded for x is gathered there, and the ops on it are applied
once a row, conversions of what is chosen, too. A place outside of the row gives 0, as the sum does. Sums of differences of such terms, and of
what is the same for the whole row, are taken term by term. max(select(place == index, x, -inf)), the form of one element that is gathered from each
row, is taken so, too. Refuses nothing: other sums stay as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from graphcell import dtype as dt
from graphcell.codegen.kernel import Access, GatherLoad, Index, Load, LoopKernel, Source, Splat, Statement, with_loops
from graphcell.dtype import DType
from graphcell.ir.op import Op
from graphcell.ops.arithmetic import Add, Cast, Mul, Neg, Select, Sub
from graphcell.ops.base import Elementwise
from graphcell.ops.comparison import BitwiseAnd, Equal, GreaterEqual, Less
from graphcell.ops.reduction import ReduceMax, ReduceSum

_MOST_OPS = 12
"""Ops applied to a picked element."""


class _TooMuch(Exception):
    """A term that is not worth picking, or cannot be."""


def pick(kernel: LoopKernel) -> LoopKernel:
    """The kernel with sums of one element picked."""
    if kernel.outer != len(kernel.extents) - 1:
        return kernel
    return _Picker(kernel).run()


class _Picker:
    def __init__(self, kernel: LoopKernel):
        self.kernel = kernel
        self.loop = kernel.outer
        self.body: list[Statement] = []
        self.known: dict[tuple[Source | Op, tuple[int, ...]], int] = {}
        self.number: dict[int, int] = {}
        """Where the kernel's statements are in the new body."""
        self.ops = 0
        """How many were applied to the element that is being picked."""

    def run(self) -> LoopKernel:
        found = False
        for n, s in enumerate(self.kernel.body):
            picked = None
            if isinstance(s.what, (ReduceSum, ReduceMax)) and s.dtype.is_float:
                picked = self._attempt(self._sum_of if isinstance(s.what, ReduceSum) else self._largest_of, s)
            found = found or picked is not None
            self.number[n] = self._add(s.what, tuple(self.number[a] for a in s.args), s.dtype, s.loops, s.stage) if picked is None else picked
        return self._finish() if found else self.kernel

    def _add(self, what: Source | Op, args: tuple[int, ...], dtype: DType, loops: int, stage: int) -> int:
        key = what, args
        if key not in self.known:
            self.known[key] = len(self.body)
            self.body.append(Statement(what, args, dtype, loops, stage))
        return self.known[key]

    def _apply(self, what: Source | Op, args: tuple[int, ...], dtype: DType, loops: int = 0) -> int:
        """An op whose loops and stage follow from its args."""
        for a in args:
            loops |= self.body[a].loops
        return self._add(what, args, dtype, loops, max((self.body[a].stage for a in args), default=0))

    # -- sums --------------------------------------------------------------------------------------------------------
    def _attempt(self, find: Callable[[Statement], int | None], s: Statement) -> int | None:
        """What is found; if nothing is, what was added for it goes."""
        size, known = len(self.body), dict(self.known)
        try:
            found = find(s)
        except _TooMuch:
            found = None
        if found is None:
            del self.body[size:]
            self.known = known
        return found

    def _sum_of(self, s: Statement) -> int | None:
        total, picks = self._term(s.args[0])
        if not picks:
            return None
        return self._apply(Add(), (total, self._add(Splat(0.0, s.dtype), (), s.dtype, 0, 0)), s.dtype)  # a sum begins with +0, which -0 does not change

    def _largest_of(self, s: Statement) -> int | None:
        chosen = self.kernel.body[s.args[0]]
        return self._pick(chosen, -math.inf) if isinstance(chosen.what, Select) and self._varies(s.args[0]) else None

    def _varies(self, local: int) -> bool:
        return bool(self.kernel.body[local].loops >> self.loop & 1)

    def _term(self, local: int) -> tuple[int, int]:
        """The sum of a value of the kernel along the row, and how many elements were picked for it."""
        s = self.kernel.body[local]
        if not self._varies(local):
            count = self._add(Splat(float(self.kernel.extents[self.loop]), s.dtype), (), s.dtype, 0, 0)
            return self._apply(Mul(), (self.number[local], count), s.dtype), 0
        if isinstance(s.what, Select):
            return self._pick(s), 1
        if isinstance(s.what, (Neg, Add, Sub)):
            terms = [self._term(a) for a in s.args]
            return self._apply(s.what, tuple(t for t, _ in terms), s.dtype), sum(picks for _, picks in terms)
        if isinstance(s.what, Cast) and self._is_one_element(s.args[0]):
            picked, picks = self._term(s.args[0])
            return self._apply(s.what, (picked,), s.dtype), picks
        raise _TooMuch

    def _is_one_element(self, local: int) -> bool:
        """Whether a value that varies may be 0 but at one place: to convert it is to convert the sum."""
        s = self.kernel.body[local]
        return isinstance(s.what, Select) or (isinstance(s.what, (Neg, Cast)) and self._is_one_element(s.args[0]))

    def _pick(self, s: Statement, neutral: float = 0.0) -> int:
        """sum(select(hit, x, 0)), or max(select(hit, x, -inf))."""
        hit, x, other = s.args
        otherwise = self.kernel.body[other].what
        if not (isinstance(otherwise, Splat) and otherwise.value == neutral):
            raise _TooMuch
        conditions: list[int] = []
        place: int | None = None
        stack = [hit]
        while stack:
            n = stack.pop()
            c = self.kernel.body[n]
            if isinstance(c.what, BitwiseAnd):
                stack += c.args
            elif not self._varies(n):
                conditions.append(self.number[n])
            else:
                if place is not None:
                    raise _TooMuch
                place = self._place(c)
        if place is None:
            raise _TooMuch
        dtype = self.body[place].dtype
        first, end = (self._add(Splat(k, dtype), (), dtype, 0, 0) for k in (0, self.kernel.extents[self.loop]))
        conditions += [self._apply(GreaterEqual(), (place, first), dt.bool_), self._apply(Less(), (place, end), dt.bool_)]
        inside = conditions[0]
        for condition in conditions[1:]:
            inside = self._apply(BitwiseAnd(), (inside, condition), dt.bool_)
        self.ops = 0
        return self._apply(Select(), (inside, self._at(x, place), self.number[other]), s.dtype)

    def _place(self, s: Statement) -> int:
        """The index that the position along the row must be equal to."""
        if isinstance(s.what, Equal):
            for ramp, index in (s.args, s.args[::-1]):
                if not self._varies(index) and self._is_ramp(ramp):
                    return self.number[index]
        raise _TooMuch

    def _is_ramp(self, local: int) -> bool:
        what = self.kernel.body[local].what
        if not isinstance(what, Index) or not what.dtype.is_integer or not what.dtype.signed:
            return False
        holds_extent = self.kernel.extents[self.loop] < 1 << (what.dtype.bits - 1)
        return holds_extent and not what.offset and all(step == (d == self.loop) for d, step in enumerate(what.strides))

    def _at(self, local: int, place: int) -> int:
        """A value of the kernel at a place of the row."""
        if not self._varies(local):
            return self.number[local]
        s = self.kernel.body[local]
        what = s.what
        if isinstance(what, Load) and not what.guards:
            step = what.access.strides[self.loop]
            strides = tuple(0 if d == self.loop else n for d, n in enumerate(what.access.strides))
            access = Access(what.access.operand, strides, what.access.offset)
            gather = GatherLoad(access, (step,), (self.kernel.extents[self.loop],), what.dtype)
            return self._apply(gather, (place,), s.dtype, s.loops & ~(1 << self.loop))
        self.ops += 1
        if not isinstance(what, Elementwise) or self.ops > _MOST_OPS:
            raise _TooMuch
        return self._apply(what, tuple(self._at(a, place) for a in s.args), s.dtype)

    # -- the kernel that is left ---------------------------------------------------------------------------------------
    def _finish(self) -> LoopKernel:
        stores = tuple(replace(s, local=self.number[s.local]) for s in self.kernel.stores)
        kernel = _used(replace(self.kernel, body=tuple(self.body), stores=stores))
        if any(s.is_reduction for s in kernel.body):
            return kernel
        if any(s.access.strides[self.loop] for s in kernel.stores):
            return self.kernel  # without a row, what is stored once would be stored at each point
        outer, mask = self.loop, (1 << self.loop) - 1
        return with_loops(kernel, kernel.extents[:outer], outer, lambda v: v[:outer], lambda loops: loops & mask)


def _used(kernel: LoopKernel) -> LoopKernel:
    """The kernel without statements that no store needs, stages counted anew."""
    needed: set[int] = set()
    stack = [s.local for s in kernel.stores]
    while stack:
        n = stack.pop()
        if n not in needed:
            needed.add(n)
            stack.extend(kernel.body[n].args)
    number: dict[int, int] = {}
    body: list[Statement] = []
    for n in sorted(needed):
        s = kernel.body[n]
        args = tuple(number[a] for a in s.args)
        stage = max((body[a].stage for a in args), default=0) + s.is_reduction
        number[n] = len(body)
        body.append(replace(s, args=args, stage=stage))
    return replace(kernel, body=tuple(body), stores=tuple(replace(s, local=number[s.local]) for s in kernel.stores))
