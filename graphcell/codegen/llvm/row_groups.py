"""Short rows in groups: as many rows as a vector has lanes go through each stage together, and what is found once a row is found for all of them at once.

Enters: a kernel whose vector loop is reduced, with rows so short that combining the lanes of every row by itself, and the few numbers of a row
(a logarithm, a quotient, a label), would take as long as the rows. Leaves: LLVM instructions: the inner loops row by row, each leaving a vector
of partial results in memory; then these vectors, a square of them, are combined crosswise, which gives a vector with a lane for each row; then what
is the same for a whole row, in vectors. The next stage reads it back, a number a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from graphcell.codegen.kernel import LoopKernel, Splat, Store
from graphcell.codegen.llvm.body import BodyBuilder, compute_type
from graphcell.codegen.llvm.combine import combine
from graphcell.codegen.llvm.contraction import ceil_div, round_up
from graphcell.codegen.llvm.points import PointEmitter, Scope
from graphcell.codegen.llvm.processor import Target
from graphcell.codegen.llvm.rows import RowEmitter
from graphcell.codegen.llvm.text import Module, Val, i64
from graphcell.codegen.llvm.widths import register_lanes
from graphcell.dtype import DType
from graphcell.ops.base import Reduction

_BLOCK = 4
"""Lanes that shuffles combine without a table of lanes, and rows of the smallest group."""
_POINTS_WRITTEN = 1 << 10
"""Of a group, at most, if its rows are written, but for the smallest group: a processor reads ahead while it computes, and writes behind, but not much."""


def group_size(kernel: LoopKernel, target: Target) -> int:
    """Rows of a group: as many as a vector has lanes, or a part of that."""
    lanes = register_lanes(kernel, target)
    while lanes > _BLOCK and lanes > kernel.extents[kernel.group]:
        lanes //= 2
    if any(map(kernel.writes_inside, kernel.stores)):
        while lanes > _BLOCK and lanes * kernel.inner_points > _POINTS_WRITTEN:
            lanes //= 2
    return lanes


def groups_of(kernel: LoopKernel, target: Target) -> int:
    """Groups of rows at one place of the other outer loops."""
    return ceil_div(kernel.extents[kernel.group], group_size(kernel, target))


class RowGroupEmitter(RowEmitter):
    """Emits a kernel whose rows are grouped. A block is a group, with all that lies within it in memory, or where stores add, all groups."""

    def __init__(self, module: Module, name: str, kernel: LoopKernel, target: Target):
        super().__init__(module, name, kernel, target)
        self.size = group_size(kernel, target)
        self.across = PointEmitter(replace(kernel, vector=kernel.group, group=-1), self.b, self.pointers, self.size)
        """Emits what is the same for a whole row, a row a lane."""
        self.across_scope = Scope({})
        self.row = self.rows = i64(0)
        """The current row of the group, and how many it has."""
        self.kept: dict[int, Val] = {}
        """What is kept of the rows' points for later stages: local -> memory for a group."""
        self.partial: dict[int, Val] = {}
        """The vectors of partial results of each reduction, one a row."""

    def emit(self) -> str:
        b, k, groups = self.b, self.kernel, groups_of(self.kernel, self.target)
        before, after = list(range(k.group)), list(range(k.group + 1, k.outer))
        self._uniform_values()
        with b.loop(b.args["begin"], b.args["end"], name="block") as block:
            if k.summed:
                leading = k.loops_of_blocks()
                self._set_outer(block.index, leading)
                after = [d for d in after if d not in leading]
                with self._summing(before), b.loop(0, self._groups(), name="group", at_least_once=True) as loop, self._nested(after):
                    self._group(loop.index)
            else:
                self._set_outer(b.div(block.index, i64(groups), signed=False), before)
                with self._nested(after):
                    self._group(b.rem(block.index, i64(groups), signed=False) if before else block.index)
        return b.finish()

    def _groups(self) -> Val:
        """Groups of rows at the current indices of the loops before."""
        if not self.kernel.trips_vary(self.kernel.group):
            return i64(groups_of(self.kernel, self.target))
        return self.b.div(self.b.add(self._trips(self.kernel.group), i64(self.size - 1)), i64(self.size), signed=False)

    def _group(self, group: Val) -> None:
        """All stages of a group of rows at the current indices of the other outer loops."""
        b, extent = self.b, self.kernel.extents[self.kernel.group]
        first = b.mul(group, i64(self.size))
        self.across.index = list(self.index)
        self.across.index[self.kernel.group] = first
        self.rows, self.across.mask = i64(self.size), None
        if extent % self.size or self.kernel.trips_vary(self.kernel.group):
            self.rows = b.binary("smin", self.rows, b.sub(self._trips(self.kernel.group), first))
            self.across.mask = b.icmp("slt", self.across._lane_offsets(1), b.splat(self.rows, self.size))
        self.across_scope = Scope({}, self.uniform)
        self.spilled, self.kept = {}, {}
        self._row()

    # -- what RowEmitter does for one row ----------------------------------------------------------------------------
    def _store_rows(self, stores: Sequence[Store]) -> None:
        for store in stores:
            self.across._store_vector(store.access, *self._row_values(store.local))

    def _row_values(self, local: int) -> list[Val]:
        return [self.across._value(local, self.across_scope)]

    def _inside(self, stage: int, stores: Sequence[int], reductions: Sequence[int]) -> None:
        if not stores and not reductions:
            return
        b = self.b
        inputs = self._row_inputs(stores, reductions)
        spills = self._choose_spills(stage, stores, reductions)
        for n in spills:
            self.kept[n] = b.alloca(compute_type(self.kernel.body[n].dtype), self._spilled_elements())
        for n in reductions:
            self._reserve_partial(n)
        before = dict(self.spilled)
        self.slots = self._slots_of_stage(stores, reductions)
        start = self.across.index[self.kernel.group]
        assert start is not None
        with b.loop(0, self.rows, name="row", at_least_once=True) as loop:
            self.row = loop.index
            self.index[self.kernel.group] = b.add(start, loop.index)
            self.row_scopes = [Scope({n: self._of_row(x, n) for n, x in inputs.items()}, self.uniform)]
            self.spilled = {n: self._spill_buffer(n) for n in before}
            totals = self._inner_loops(stores, reductions, spills)
            for n, slots in zip(reductions, totals, strict=True):
                b.store(self._narrowed(n, slots), self._partial_of(n, loop.index))
        self.spilled = {n: self.kept[n] for n in (*before, *spills)}
        for n in reductions:
            self._combine_crosswise(n)

    def _row_inputs(self, stores: Sequence[int], reductions: Sequence[int]) -> dict[int, Val]:
        """What the coming inner loops need that is the same for a whole row: a number for all rows, or memory with a number for each."""
        body = self.kernel.body
        read = {*self._stage_roots(stores, reductions), *(a for n in self._inner_of_stage(stores, reductions) for a in body[n].args)}
        found: dict[int, Val] = {}
        for n in sorted(read):
            if self._is_inner(n) or isinstance(body[n].what, Splat):
                continue
            (value,) = self._row_values(n)
            if value.type.lanes:
                place = self.b.alloca(value.type.with_lanes(0), self.size)
                self.b.store(value, place)
                value = place
            found[n] = value
        return found

    def _of_row(self, value: Val, local: int) -> Val:
        if value.type.kind != "ptr":
            return value
        element = compute_type(self.kernel.body[local].dtype)
        return self.b.load(self.b.gep(value, self.row, element), element)

    # -- memory of a group -------------------------------------------------------------------------------------------
    def _pitch(self) -> int:
        """Elements from a row to the next of what is kept, the end of its last vector included, which begins anywhere if there are several loops."""
        width = self.kernel.extents[self.kernel.vector]
        return round_up(self.kernel.inner_points - width + round_up(width, self.lanes), self.lanes)

    def _spill_buffer(self, local: int) -> Val:
        at = self.b.mul(self.row, i64(self._pitch()))
        return self.b.gep(self.kept[local], at, compute_type(self.kernel.body[local].dtype))

    def _spilled_elements(self) -> int:
        """What is kept of all rows, and the rest of a vector that begins at the last one's label."""
        return self.size * self._pitch() + self.lanes

    # -- reductions --------------------------------------------------------------------------------------------------
    def _reserve_partial(self, local: int) -> None:
        element = compute_type(self.kernel.body[local].dtype)
        if local not in self.partial:
            self.partial[local] = self.b.alloca(element, self.size * self.size)

    def _partial_of(self, local: int, row: Val | int) -> Val:
        at = self.b.mul(row, i64(self.size)) if isinstance(row, Val) else i64(row * self.size)
        return self.b.gep(self.partial[local], at, compute_type(self.kernel.body[local].dtype))

    def _narrowed(self, local: int, slots: list[Val]) -> Val:
        """The partial results of a row in one vector of as many lanes as a group has rows."""
        s = self.kernel.body[local]
        assert isinstance(s.what, Reduction)
        total = self._joined(local, slots)
        while total.type.lanes > self.size:
            half = total.type.lanes // 2
            low, high = (self.b.shuffle(total, total, range(k, k + half)) for k in (0, half))
            total = combine(self.b, s.what.kind, low, high, s.dtype)
        return total

    def _combine_crosswise(self, local: int) -> None:
        s = self.kernel.body[local]
        assert isinstance(s.what, Reduction)
        type = compute_type(s.dtype, self.size)
        rows = [self.b.load(self._partial_of(local, k), type) for k in range(self.size)]
        self.across_scope.known[local] = self._as_used(local, combine_rows(self.b, s.what.kind, rows, s.dtype))


def combine_rows(b: BodyBuilder, kind: str, rows: Sequence[Val], dtype: DType) -> Val:
    """Lane k of the result combines all lanes of `rows[k]`; as many vectors as each has lanes, a power of two.

    Within blocks of four lanes first, then the blocks: each step is one instruction without a table of lanes on x86.
    """
    lanes = len(rows)
    block = min(_BLOCK, lanes)
    for unit, units in ((1, block), (block, lanes // block)):
        width = units
        while width > 1:
            first, second = (_halves(lanes, unit, units, width, half) for half in (0, width // 2))
            rows = [combine(b, kind, b.shuffle(x, y, first), b.shuffle(x, y, second), dtype) for x, y in zip(rows[::2], rows[1::2], strict=True)]
            width //= 2
    return rows[0]


def _halves(lanes: int, unit: int, units: int, width: int, half: int) -> list[int]:
    """The lanes of two vectors that make up one half of each part of `width` units, of `unit` lanes each: for each group of `units`, those of
    the first vector, then those of the second.
    """
    count = lanes // unit
    places = [
        vector * count + group + part + half + k
        for group in range(0, count, units)
        for vector in (0, 1)
        for part in range(0, units, width)
        for k in range(width // 2)
    ]
    return [unit * place + k for place in places for k in range(unit)]
