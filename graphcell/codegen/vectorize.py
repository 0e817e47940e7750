"""Which loop of a kernel lies in the lanes of vectors, and how what does not lie side by side comes there.

Enters: a kernel whose loops are ordered but for that. Leaves: the kernel with a vector loop, and with a loop along which tiles are transposed or
rows are grouped, if that takes fewer instructions by a rough count.
"""

from __future__ import annotations

import math
from dataclasses import replace

from graphcell.codegen.kernel import (
    GatherLoad,
    Load,
    LoopKernel,
    Splat,
    Statement,
    Store,
    held_in_tile,
    interleaved,
    is_interleaved,
    is_tiled,
    keeps_points,
    shuffles_are_quick,
    with_loops,
)
from graphcell.ir.op import Op
from graphcell.ops.base import Reduction
from graphcell.passes.costs import DIVISIONS, MASKED_STRIDE, SMALL_STRIDE, masks_are_quick
from graphcell.records import dataclass

_LANES, _FEWEST_LANES, _KEPT_BYTES = 16, 4, 32
"""Lanes of a vector, for rough costs; and of the shortest; and bytes of the vectors by which it is told which rows are kept."""
_COMBINE_LANES, _COMBINE_GROUPED = (10, 40), (6, 8)
"""What combining the lanes of one reduction costs, in vector instructions, and if it is an extremum of floats: of each row by itself, in groups."""
_GROUP_INPUT, _GROUP_STORE = 0.5, (2.0, 4.0)
"""What it costs to read a number of a row in a group, and to write a vector, into caches or memory: a group is read, then written, with little overlap."""
_LONGEST_GROUPED_ROW, _LONGEST_BESIDE_SUMS = 512, 256
"""Points of a row up to which rows are grouped, and of one beside sums of columns: of longer ones, a group would not stay in the L1 cache."""
_SHORTEST_GROUPED_LINE = 8
"""Points along the vector loop from which rows of several such lines are grouped."""
_FEWEST_SIDE_BY_SIDE = 8, 4
"""Rows that lie side by side from which these are grouped: in caches, and in memory, where rows apart are not read ahead. Measured on Zen 3: softmax with its
gradient of 5000x6 rows of 96 takes half of the time in groups of four neighbours, of 300x7 rows of 128 a fifth more."""
_IN_CACHES = 1 << 22
"""Bytes up to which what is written stays in caches."""
_ROW_INSTRUCTIONS = 4
"""What it costs to begin a row."""
_DIVISION_OF_ROW, _FUNCTION_OF_ROW = 2.0, 12.0
"""What it costs to divide a number of one row, and for a function of one by Newton's method."""
_GATHER_LANE, _SCATTER_LANE = 1.5, 4.0
"""What each lane of a vector costs whose elements do not lie side by side."""
_COLUMNS_KEPT = 32, 64
"""Points of a row, of the vectors that llvm/loops.py keeps, up to which what is the same in each row is computed once: before AVX-512, and with it."""
_STRIDED, _FURTHER_APART = 2.5, 7.5
"""What it costs to store a vector with a small stride by masks, for each vector of memory that it goes to, and with a larger one: where tiles can be turned
instead, they take less. Measured on Zen 4: 5, 6 and 7 channels go behind the pixels in 1.4, 2.1 and 2.6 times the time by such stores of whole rows."""
_BY_TURNS = 3.0
"""What it costs to store a vector that shares vectors of memory with others of the kernel."""
_TILED = 6.0
"""What a vector costs that comes from a tile, or goes into one."""
_INTERLEAVED = 1.5
"""The same, for each of the few vectors that are so many in memory."""
_GUARD = 2.0
"""What it costs to find the lanes that a guard lets through."""
_FEWEST_IN_TILE, _HEAVIEST_IN_TILE = 4, 400
"""Iterations from which a loop is tiled, and rough instructions of a point up to which (whole and partial tiles and vectors have code of their own)."""


def choose_vector(kernel: LoopKernel, masks: bool = False) -> LoopKernel:
    """Picks the vector loop with which the kernel takes the fewest instructions, and the loop along which tiles are transposed or rows are
    grouped, if that helps.

    Without reductions the vector loop becomes the inner loop.
    """
    count = len(kernel.extents)
    if not count:
        return kernel
    plan = _Plan(count - 1)
    if kernel.points:
        counter = _Counter(kernel, masks)
        plans = [p for d in range(count) for p in (_Plan(d), *_tiled_plans(kernel, d), *_grouped_plans(kernel, d))]
        if kernel.summed:  # rows one after the other, or those of a block in groups
            plans = [p for p in plans if p.vector >= kernel.outer and p.tile < 0 and p.group not in kernel.loops_of_blocks()]
        plan = min(plans, key=lambda p: (kernel.extents[p.vector] == 1, counter.count(p), -kernel.extents[p.vector], -p.vector, p.tile))
    outer = kernel.outer if kernel.outer < count else count - 1
    last = (plan.tile, plan.vector) if kernel.outer == count else (plan.tile,)
    order = [d for d in range(count) if d not in last] + [d for d in last if d >= 0]
    moved = permute(kernel, order)
    vector, tile, group = (order.index(d) if d >= 0 else -1 for d in (plan.vector, plan.tile, plan.group))
    return replace(moved, outer=outer, vector=vector, tile=tile, group=group)


@dataclass(frozen=True, slots=True)
class _Plan:
    """The vector loop, and the loops of tiles and groups (codegen/kernel.py)."""

    vector: int
    tile: int = -1
    group: int = -1


def _grouped_plans(kernel: LoopKernel, d: int) -> list[_Plan]:
    """With the rows of the innermost outer loop that makes whole groups; what lies apart in memory may share cache lines with other rows. Not of windows
    with lines of less than eight points: those are more instructions than points.
    """
    longest = _LONGEST_BESIDE_SUMS if kernel.summed else _LONGEST_GROUPED_ROW
    if not kernel.reduces or d < kernel.outer or kernel.inner_points > longest:
        return []
    if kernel.extents[d] < _SHORTEST_GROUPED_LINE and kernel.extents[d] < kernel.inner_points:
        return []
    if any(v[d] not in (0, 1) for v in _access_strides(kernel)):
        return []
    if math.prod(kernel.extents[: kernel.outer]) < _LANES:
        return []
    fewest = _FEWEST_SIDE_BY_SIDE[kernel.points * max(t.itemsize for t in kernel.operands) > _IN_CACHES]
    return [_Plan(d, group=e) for e in range(kernel.outer) if kernel.extents[e] >= fewest][-1:]


def _tiled_plans(kernel: LoopKernel, d: int) -> list[_Plan]:
    """With the loops along which something lies side by side that does not along d."""
    count = len(kernel.extents)
    first = kernel.outer if kernel.outer < count else 0
    if kernel.extents[d] < _FEWEST_IN_TILE or sum(12 if s.is_slow else 1 for s in kernel.body) > _HEAVIEST_IN_TILE:
        return []
    guarded = [s.what for s in kernel.body if isinstance(s.what, Load) and s.what.guards]
    plans: list[_Plan] = []
    for e in range(first, count):
        tiled = [v for v in _access_strides(kernel) if is_tiled(v, d, e)]
        tiled += [w.access.strides for w in guarded if d < kernel.outer and _known_in_tile(kernel, w, e) and is_tiled(w.access.strides, d, e)]
        by_shuffles = shuffles_are_quick(kernel) and all(is_interleaved(v, d, e, kernel.extents[e]) for v in tiled)
        if e != d and tiled and (by_shuffles or kernel.extents[e] >= _FEWEST_IN_TILE):
            plans.append(_Plan(d, tile=e))
    return plans


def _known_in_tile(kernel: LoopKernel, load: Load, tile: int) -> bool:
    """Whether all of a row is kept, by the shortest registers that rows are kept in, so that it is known where the guards of a load hold."""
    kept = keeps_points(kernel, _KEPT_BYTES // max(4, *(t.itemsize for t in kernel.operands)))
    return kept and tile >= kernel.outer and held_in_tile(load.guards, tile, kernel.extents[tile]) is not None


def _access_strides(kernel: LoopKernel) -> list[tuple[int, ...]]:
    return [s.access.strides for s in kernel.stores] + [s.what.access.strides for s in kernel.body if isinstance(s.what, Load) and not s.what.guards]


class _Counter:
    """Counts the rough vector instructions of a kernel with a plan.

    A partial vector costs as much as a whole one (but short rows get shorter vectors). Elements that are not neighbours in memory are
    moved one by one. Along an outer loop of a kernel with reductions, rows lie in the lanes; along an inner one, lanes are combined at
    the end of the row, or crosswise at the end of a group of rows, which finds what is the same for a whole row in vectors.
    """

    def __init__(self, kernel: LoopKernel, masks: bool):
        self.kernel, self.masks = kernel, masks
        self.reduces = kernel.reduces
        self.stages: dict[int, set[int]] = {}
        """The stages in which ops take a local."""
        for s in kernel.body:
            for a in s.args:
                self.stages.setdefault(a, set()).add(s.stage - s.is_reduction)

    def count(self, plan: _Plan) -> float:
        kernel, d, grouped = self.kernel, plan.vector, plan.group >= 0
        across = self.reduces and d < kernel.outer
        groups, steps = self._trips(plan)
        in_row = kernel.inner_mask if self.reduces else 1 << d
        row: float = _ROW_INSTRUCTIONS
        if not across:
            row += sum((_COMBINE_GROUPED if grouped else _COMBINE_LANES)[_is_extremum(s)] for s in kernel.body if s.is_reduction)
        step = 0.0
        for n, s in enumerate(kernel.body):
            if isinstance(s.what, Splat) or (s.loops == 1 << d and s.stage == 0 and self._keeps_columns(plan)):
                continue
            if s.loops & in_row or s.is_reduction:
                step += self._statement(n, plan)
            elif across:
                row += self._statement(n, plan)
            elif s.loops:
                row += _GROUP_INPUT + s.instructions / _LANES if grouped else _for_one_number(s)
        by_turns = {access for together in interleaved([s.access for s in kernel.stores], d) if len(together) > 1 for access in together}
        for store in kernel.stores:
            one = _BY_TURNS if store.access in by_turns else self._store(store, plan)
            if not self.reduces or kernel.writes_inside(store):
                far = kernel.points * kernel.operands[store.access.operand].itemsize > _IN_CACHES
                step += 2 * one if store.adds else one + (_GROUP_STORE[far] if grouped else 0.0)
            else:
                row += one / _LANES if grouped else one
        return groups * (row + steps * step)

    def _keeps_columns(self, plan: _Plan) -> bool:
        """Whether what is the same in each row is there before the rows (llvm/loops.py)."""
        across, most = self.reduces and plan.vector < self.kernel.outer, _COLUMNS_KEPT[self.masks]
        return not across and plan.tile < 0 and len(self.kernel.extents) > 1 and self.kernel.extents[plan.vector] <= most

    def _trips(self, plan: _Plan) -> tuple[int, int]:
        """How many rows there are, or vectors of rows, and the steps of each."""
        kernel, extent = self.kernel, self.kernel.extents[plan.vector]
        vectors = -(-extent // _LANES)
        if not self.reduces:
            return round(kernel.points // max(extent, 1) * self._waste(plan)), vectors
        rows = math.prod(kernel.extents[: kernel.outer])
        if plan.vector < kernel.outer:
            return rows // extent * vectors, kernel.inner_points
        return rows, kernel.inner_points // extent * vectors

    def _lanes(self, plan: _Plan) -> int:
        lanes = min(_LANES, self.kernel.extents[plan.vector])
        return 1 << (lanes - 1).bit_length() if plan.tile >= 0 else lanes

    def _width(self, plan: _Plan) -> float:
        """The part of whole vectors that those of a short loop are."""
        lanes = _LANES
        while lanes > _FEWEST_LANES and lanes >= 2 * self.kernel.extents[plan.vector]:
            lanes //= 2
        return lanes / _LANES

    def _waste(self, plan: _Plan) -> float:
        """A partial tile costs as much as a whole one, of reductions only to transpose it (but few iterations make small tiles)."""
        if plan.tile < 0 or self.kernel.extents[plan.tile] < _FEWEST_IN_TILE:
            return 1.0
        extent, lanes = self.kernel.extents[plan.tile], self._lanes(plan)
        return -(-extent // lanes) * lanes / extent

    def _statement(self, n: int, plan: _Plan) -> float:
        what = self.kernel.body[n].what
        if isinstance(what, GatherLoad):
            at_one_place = not any(self.kernel.body[a].loops >> plan.vector & 1 for a in self.kernel.body[n].args)
            return 1.0 if at_one_place and what.access.strides[plan.vector] in (0, 1) else self._lanes(plan) * _GATHER_LANE
        if not isinstance(what, Load):
            return self.kernel.body[n].instructions * self._width(plan)
        in_registers = plan.vector < self.kernel.outer and self.kernel.inner_points <= _LANES
        guards = what.guards if not (in_registers and _known_in_tile(self.kernel, what, plan.tile)) else ()
        one = self._access(what.access.strides, plan, _GATHER_LANE, tiled=not guards) + _GUARD * len(guards)
        return one if in_registers else one * max(1, len(self.stages.get(n, ())))

    def _store(self, store: Store, plan: _Plan) -> float:
        stride = store.access.strides[plan.vector]
        if self.masks and 1 < stride <= MASKED_STRIDE and masks_are_quick(self.kernel.operands[store.access.operand]):
            return stride * (_STRIDED if stride <= SMALL_STRIDE else _FURTHER_APART)
        return self._access(store.access.strides, plan, _SCATTER_LANE)

    def _access(self, strides: tuple[int, ...], plan: _Plan, apart: float, tiled: bool = True) -> float:
        stride = strides[plan.vector]
        if stride in (0, 1):
            return 1.0
        if tiled and plan.tile >= 0 and is_tiled(strides, plan.vector, plan.tile):
            few = self.kernel.extents[plan.tile]
            if is_interleaved(strides, plan.vector, plan.tile, few):
                return _INTERLEAVED * few
            return _TILED * self._waste(plan) if self.reduces else _TILED
        if apart == _GATHER_LANE and abs(stride) <= SMALL_STRIDE:
            return 2.0 * abs(stride)
        return self._lanes(plan) * apart


def _for_one_number(s: Statement) -> float:
    """A number of one row: its division waits beside what other rows do, a function works on whole registers."""
    if isinstance(s.what, Op) and s.what.name in DIVISIONS:
        return _FUNCTION_OF_ROW if s.what.name == "rsqrt" else _DIVISION_OF_ROW
    return float(s.instructions)


def _is_extremum(s: Statement) -> bool:
    return isinstance(s.what, Reduction) and s.what.kind in ("max", "min") and s.dtype.is_float


def permute(kernel: LoopKernel, order: list[int]) -> LoopKernel:
    """The kernel with its loops in another order; none is the vector loop."""

    def vector(v: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(v[d] for d in order)

    return with_loops(kernel, vector(kernel.extents), kernel.outer, vector, lambda mask: sum(1 << new for new, old in enumerate(order) if mask >> old & 1))
