"""Emits a `LoopKernel` as one LLVM function of explicit vectors.

Enters: a kernel (codegen/kernel.py). Leaves: a function `void f(ptr operand..., i64 begin, i64 end)` that works on blocks `begin <=
block < end`; blocks write disjoint memory, so that any split over threads gives the same bits.

Three shapes of code, by where the vector loop lies (what happens in a row is in rows.py):

* no reductions: the vector loop is the only inner loop, the outer ones are rows; with no outer loop at all, or few long rows, a block is a run of elements;
* *horizontal*: the vector loop is reduced. A block is a row; lanes are combined at the end of the row. Short rows go in groups (row_groups.py). Where stores
  add along outer loops, a block is all rows along these, so that no two blocks add to one sum;
* *vertical*: the vector loop is an outer one. A block is a group of neighbouring rows in the lanes, each with its own reductions.

With a tile loop, squares of vector loop x tile loop are done at once: what is contiguous along the tile loop is transposed in registers.
Where rows are short, a block is several of them.
"""

from __future__ import annotations

import contextlib
import functools
import math
import operator

from graphcell.codegen.kernel import MIN_BLOCKS, STREAMED_BYTES, Access, Load, LoopKernel, is_tiled
from graphcell.codegen.llvm.body import compute_type
from graphcell.codegen.llvm.contraction import LINE_BYTES
from graphcell.codegen.llvm.points import Scope
from graphcell.codegen.llvm.processor import Target, is_amd
from graphcell.codegen.llvm.row_groups import RowGroupEmitter, groups_of
from graphcell.codegen.llvm.rows import RowEmitter, slots_of
from graphcell.codegen.llvm.text import Module, Val, constant_mask, i64
from graphcell.codegen.llvm.widths import lanes_of
from graphcell.dtype import DType

BLOCK_POINTS = 1 << 10
"""Points that a block should have, so that it is worth finding its indices."""
_TILED_BY_PAIRS = 1 << 22
"""Bytes of an array of which two tiles are done side by side, at most."""
_MOST_VECTORS_OF_COLUMNS, _REGISTERS_OF_COLUMNS = 4, (6, 16)
"""Vectors of a row up to which what is the same in each is kept, and registers for what is read of it: before AVX-512, and with it."""
_CHUNK = 512
"""Columns that a block takes of all rows, if it takes no whole rows."""
_CHUNKED_FROM = 0.5, 4
"""Times the L2 cache that a matrix takes, read and written, and all of them together, from which on blocks do."""


def block_count(kernel: LoopKernel, target: Target) -> int:
    """How many blocks the emitted function has."""
    if kernel.points == 0:
        return 0
    if kernel.vector < 0:
        return 1
    if kernel.is_run:
        return -(-kernel.extents[kernel.vector] // kernel.run)
    if kernel.group >= 0:
        if kernel.summed:
            return math.prod(kernel.extents[d] for d in kernel.loops_of_blocks())
        return math.prod(kernel.extents[: kernel.group]) * groups_of(kernel, target)
    leading, within = _block_loops(kernel)
    blocks = math.prod(kernel.extents[d] for d in leading) * max(1, kernel.runs_of_row)
    if 0 <= kernel.tile < kernel.outer:
        if _takes_chunks(kernel, target):
            return blocks * -(-kernel.extents[kernel.vector] // _CHUNK)
        return blocks * -(-kernel.extents[kernel.tile] // _tile_rows(kernel, lanes_of(kernel, target)))
    if kernel.vector < kernel.outer and not within and not streams(kernel, target):
        return blocks * -(-kernel.extents[kernel.vector] // (lanes_of(kernel, target) * slots_of(kernel, target)))
    return blocks


def _tile_rows(kernel: LoopKernel, lanes: int) -> int:
    """Iterations of the tile loop in a block: one tile, or two side by side that fill the cache lines of what is contiguous along that loop.

    With one tile after the other, lines that lie far apart would be gone from the L2 cache before the tile that takes the other half of them.
    """
    return lanes * _in_line(kernel, lanes, [d for a, d in _accesses(kernel) if is_tiled(a.strides, kernel.vector, kernel.tile)])


def _takes_chunks(kernel: LoopKernel, target: Target) -> bool:
    """Whether a block of a kernel with tiles is some columns of all its rows, not some rows. Of large matrices that are long, cache lines which several rows
    share would be gone before all of these have come, and so would what the processor knows of pages. Measured on Emerald Rapids: images of 96 x 91 x 91
    numbers become channels-last in 0.65 of the time, and images again in 0.80.
    """
    rows, columns = kernel.extents[kernel.tile], kernel.extents[kernel.vector]
    of_column = rows * sum(dtype.itemsize for access, dtype in _accesses(kernel) if access.strides[kernel.tile] and access.strides[kernel.vector])
    matrix, together = (part * target.l2_bytes for part in _CHUNKED_FROM)
    large = of_column * columns > matrix and of_column * (kernel.points // rows) > together
    return large and columns > _CHUNK and of_column * _CHUNK <= target.l2_bytes // 2


def _vectors_of_line(kernel: LoopKernel, lanes: int) -> int:
    """How many vectors of a tile, one or two, fill the cache lines of what is contiguous along the vector loop."""
    return _in_line(kernel, lanes, [d for a, d in _accesses(kernel) if a.strides[kernel.vector] == 1])


def _in_line(kernel: LoopKernel, lanes: int, dtypes: list[DType]) -> int:
    """Two vectors of 32-bit elements where these are half a line long, and the arrays stay in caches. Measured on Zen 3: up to 1.7 times as fast; more
    tiles of shorter elements, or two of 64 bits, take longer where rows lie a power of two apart, and so do two of arrays of 8 MB.
    """
    size = min((dtype.itemsize for dtype in dtypes), default=0)
    return 2 if size == 4 and 2 * lanes * size == LINE_BYTES and kernel.points * size <= _TILED_BY_PAIRS else 1


def _accesses(kernel: LoopKernel) -> list[tuple[Access, DType]]:
    found = [s.access for s in kernel.stores] + [s.what.access for s in kernel.body if isinstance(s.what, Load)]
    return [(access, kernel.operands[access.operand]) for access in found]


_ASKED_AHEAD_BYTES = 256
"""Along a row of memory, by a vertical kernel: four cache lines, which are two groups of neighbouring rows where four vectors of AVX2 are one."""


def _bytes_ahead(kernel: LoopKernel, target: Target) -> int:
    """By how much a vertical kernel asks ahead for what it reads down the inner loops; 0 if it does not. AMD's processors do not foresee pieces of many rows of
    memory. Measured on Zen 3: the largest of 37 rows of 98,146 numbers takes 0.16 of the time, of 25 rows of 270, 1737 times, 0.54, and softmax with its
    gradient along such an axis 0.7 to 0.9. On Emerald Rapids it is of no use.
    """
    reads = [dtype.itemsize for access, dtype in _accesses(kernel) if any(access.strides[kernel.outer :])]
    is_vertical = 0 <= kernel.vector < kernel.outer < len(kernel.extents) and kernel.tile < 0 and not streams(kernel, target)
    return _ASKED_AHEAD_BYTES if is_vertical and is_amd(target.cpu) and kernel.points * max(reads, default=0) > target.l2_bytes else 0


STREAMED_BLOCKS = 4
"""Blocks that a streamed kernel leaves to the threads, at least."""


_STREAMED_COLUMNS = 256, 96
"""Columns from which on that pays, where vectors are whole cache lines, and where they are parts of lines, of which a group of columns reads some now, and
others later."""


def streams(kernel: LoopKernel, target: Target) -> bool:
    """True for sums over rows of memory that are wide enough to be read from end to end, with partial sums in memory.

    With the sums in registers, a group of columns would be read down all rows, a piece of each page: without the processor's prefetching. Shorter rows and
    those of which one array is read and others are written count where vectors are parts of lines: on Zen 3 training steps of convolutional networks take
    0.95 to 0.99 of the time so, ConvNeXt V2's norm with its gradient 0.88.
    """
    if not 0 <= kernel.vector < kernel.outer or kernel.tile >= 0 or kernel.stages != 2 or kernel.outer == len(kernel.extents):
        return False
    if any(kernel.body[s.local].stage and any(s.access.strides[kernel.outer :]) for s in kernel.stores):
        return False
    sums = sum(compute_type(s.dtype).bytes for s in kernel.body if s.is_reduction) * kernel.extents[kernel.vector]
    in_parts = target.vector_bytes < LINE_BYTES
    accesses = [a for a, _ in _accesses(kernel)] if in_parts else [s.what.access for s in kernel.body if isinstance(s.what, Load)]
    wide = [a for a in accesses if a.strides[kernel.vector] == 1 and any(a.strides[kernel.outer :])]
    blocks = math.prod(n for d, n in enumerate(kernel.extents[: kernel.outer]) if d != kernel.vector)
    return len(wide) >= 2 and kernel.extents[kernel.vector] >= _STREAMED_COLUMNS[in_parts] and 0 < sums <= STREAMED_BYTES and blocks >= STREAMED_BLOCKS


def leading_loops(kernel: LoopKernel) -> list[int]:
    """The loops of a kernel without groups that count its blocks, in nesting order, as far as each of their iterations has whole blocks."""
    return _block_loops(kernel)[0]


def _block_loops(kernel: LoopKernel) -> tuple[list[int], list[int]]:
    """The outer loops but the vector loop: those that are counted by blocks, and those that run inside of a block.

    Small rows share a block, since finding the indices of a block takes divisions.
    """
    leading = kernel.loops_of_blocks() if kernel.summed else [d for d in range(kernel.outer) if d not in (kernel.vector, kernel.tile)]
    within: list[int] = []
    if 0 <= kernel.tile < kernel.outer:
        return leading, within
    points = kernel.points // math.prod(kernel.extents[d] for d in leading)
    while len(leading) > 1 and points < BLOCK_POINTS and math.prod(kernel.extents[d] for d in leading[:-1]) >= MIN_BLOCKS:
        d = leading.pop()
        within.insert(0, d)
        points *= kernel.extents[d]
    return leading, within


def cost(kernel: LoopKernel) -> int:
    """Rough number of scalar instructions, to decide whether threads pay: each statement as often as the loops along which it varies run."""
    total = sum(_runs(kernel, ((1 << kernel.outer) - 1) | (kernel.inner_mask if kernel.writes_inside(s) else 0)) for s in kernel.stores)
    for s in kernel.body:
        total += s.instructions * _runs(kernel, functools.reduce(operator.or_, (kernel.body[a].loops for a in s.args), s.loops))
    return total


def _runs(kernel: LoopKernel, loops: int) -> int:
    return math.prod(n for d, n in enumerate(kernel.extents) if loops >> d & 1)


class LoopEmitter(RowEmitter):
    """Emits a kernel but for those with groups of rows."""

    # -- the whole function ------------------------------------------------------------------------------------------
    def emit(self) -> str:
        b, k = self.b, self.kernel
        if k.vector < 0:
            self._begin_row()
            self._row()
            return b.finish()
        if k.is_run:
            self._run_of_elements()
            return b.finish()
        self._uniform_values()
        self._column_values()
        leading, within = _block_loops(k)
        self.bytes_ahead = _bytes_ahead(k, self.target)
        with b.loop(b.args["begin"], b.args["end"], name="block") as block:
            if k.runs_of_row:
                self._run_of_row(block.index, leading)
            elif 0 <= k.tile < k.outer:
                self._tile_block(block.index, leading)
            elif self.vertical and not within and streams(k, self.target):
                self._streamed_block(block.index, leading)
            elif self.vertical and not within:
                self._vertical_block(block.index, leading)
            else:
                self._set_outer(block.index, leading)
                self._rows(within)
        return b.finish()

    def _column_values(self) -> None:
        """Of rows of few vectors, what is the same in each row is computed once, and what is read of it kept in registers, as far as these go."""
        k = self.kernel
        vectors = -(-k.extents[k.vector] // self.lanes)
        if self.vertical or k.tile >= 0 or vectors > _MOST_VECTORS_OF_COLUMNS or not k.outer:
            return
        columns = {n for n, s in enumerate(k.body) if s.loops == 1 << k.vector and s.stage == 0 and not s.is_reduction}
        read = {a for n, s in enumerate(k.body) if n not in columns for a in s.args} | {s.local for s in k.stores}
        found = sorted(columns & read)
        if len(found) * vectors > _REGISTERS_OF_COLUMNS[self.target.avx512]:
            found = [n for n in found if not isinstance(k.body[n].what, Load)]
        for at in range(0, k.extents[k.vector] if found else 0, self.lanes):
            here = min(self.lanes, k.extents[k.vector] - at)
            self.index[k.vector], self.mask = i64(at), constant_mask(here, self.lanes) if here < self.lanes else None
            scope = Scope({}, self.uniform)
            self.columns[i64(at).text] = {n: self._value(n, scope) for n in found}
        self.mask = None

    def _rows(self, loops: list[int]) -> None:
        """All rows along `loops` at the current indices of the others."""
        if loops:
            with self.b.loop(0, self.kernel.extents[loops[0]], name=f"row{loops[0]}.", at_least_once=True) as loop:
                self.index[loops[0]] = loop.index
                self._rows(loops[1:])
            return
        if self.vertical:
            self._vertical_groups()
            return
        with self._summing(range(self.kernel.outer)) if self.kernel.summed else contextlib.nullcontext():
            self._begin_row()
            self._row()

    # -- runs of elements --------------------------------------------------------------------------------------------
    def _run_of_elements(self) -> None:
        """All blocks of a kernel without outer loops, as one run."""
        self._uniform_values()
        self._begin_row()
        self._run(self.b.args["begin"], self.b.args["end"])

    def _run_of_row(self, block: Val, rows: list[int]) -> None:
        """A block of few and long rows."""
        b = self.b
        row, number = (f(block, i64(self.kernel.runs_of_row), signed=False) for f in (b.div, b.rem))
        self._set_outer(row, rows)
        self._begin_row()
        self._prepare_row_values(0, range(len(self.kernel.stores)), [])
        self._run(number, b.add(number, i64(1)))

    def _run(self, begin: Val, end: Val) -> None:
        """The elements of a row from one run of it to another."""
        b, n = self.b, self.kernel.extents[-1]
        start = b.mul(begin, i64(self.kernel.run))
        stop = b.binary("smin", b.mul(end, i64(self.kernel.run)), i64(n))
        wide = self.lanes * self.slots

        def body(at: Val, count: int, mask: Val | None) -> None:
            self._inner_points(at, count, mask, range(len(self.kernel.stores)), [], [])

        steps = b.div(b.sub(stop, start), i64(wide))
        whole = b.add(start, b.mul(steps, i64(wide)))
        with b.loop(start, whole, wide, name="run") as loop:
            body(loop.index, self.slots, None)
        if self.slots > 1:
            rest = b.sub(stop, b.rem(b.sub(stop, whole), i64(self.lanes)))
            with b.loop(whole, rest, self.lanes, name="rest") as loop:
                body(loop.index, 1, None)
            whole = rest
        if n % self.lanes:
            with b.if_then(b.icmp("slt", whole, stop)):
                body(whole, 1, constant_mask(n % self.lanes, self.lanes))

    # -- tiles without reductions ------------------------------------------------------------------------------------
    def _tile_block(self, block: Val, others: list[int]) -> None:
        """As many rows as a vector has lanes, or what is left of them; or some columns of all rows."""
        b, k = self.b, self.kernel
        rows, columns, most = k.extents[k.tile], k.extents[k.vector], _tile_rows(k, self.lanes)
        chunked, left = _takes_chunks(k, self.target), rows % most
        extent, size = (columns, _CHUNK) if chunked else (rows, most)
        blocks = -(-extent // size)
        number = b.rem(block, i64(blocks), signed=False) if others else block
        if others:
            self._set_outer(b.div(block, i64(blocks), signed=False), others)
        start = b.mul(number, i64(size))

        def part(count: int) -> None:
            if not chunked:
                self._tile_rows(start, count, None, columns)
                return
            if rows > left:
                with b.loop(0, rows - left, most, name="rows", at_least_once=True) as loop:
                    self._tile_rows(loop.index, most, start, count)
            if left:
                self._tile_rows(i64(rows - left), left, start, count)

        if extent % size == 0:
            part(size)
        elif blocks == 1:
            part(extent)
        else:
            b.if_else(b.icmp("slt", number, i64(blocks - 1)), lambda: part(size), lambda: part(extent % size))

    def _tile_rows(self, start: Val, points: int, first: Val | None, columns: int) -> None:
        """`points` rows from `start` on, `columns` of their columns from `first` (None: 0) on: squares as wide and as high as cache lines are long, then what
        is left."""
        b, k = self.b, self.kernel
        self._begin_row()
        self.index[k.tile] = start
        self._prepare_row_values(0, range(len(k.stores)), [])

        def column(number: int) -> Val:
            return i64(number) if first is None else b.add(first, i64(number))

        done = 0
        for wide in (self.lanes * _vectors_of_line(k, self.lanes), self.lanes):
            end = columns - (columns - done) % wide
            if end > done:
                with b.loop(column(done), column(end), wide, name="columns", at_least_once=True) as loop:
                    self._tiles(start, points, loop.index, wide // self.lanes)
            done = end
        if done < columns:
            self.mask = constant_mask(columns - done, self.lanes)
            self._tiles(start, points, column(done), 1)
            self.mask = None

    def _tiles(self, start: Val, points: int, column: Val, vectors: int) -> None:
        """`points` iterations of the tile loop from `start` on, and as many vectors of each from `column` on: first all of one tile, whose lines of
        memory may share a place in the cache with those of the next."""
        b, whole = self.b, points - points % self.lanes
        if whole == self.lanes:
            self._tile(start, whole, column, vectors)
        elif whole:
            with b.loop(start, b.add(start, i64(whole)), self.lanes, name="tile", at_least_once=True) as tile:
                self._tile(tile.index, self.lanes, column, vectors)
        if whole < points:
            self._tile(b.add(start, i64(whole)) if whole else start, points - whole, column, vectors)

    def _tile(self, start: Val, points: int, column: Val, vectors: int) -> None:
        k, stores = self.kernel, range(len(self.kernel.stores))

        def square(at: Val) -> None:
            self.index[k.vector] = at
            self._tile_points(start, points, [], lambda carried: self._inner_points(at, 1, self.mask, stores, [], carried), stores, [])

        if vectors == 1:
            square(column)
        else:
            with self.b.loop(column, self.b.add(column, i64(vectors * self.lanes)), self.lanes, name="vector", at_least_once=True) as loop:
                square(loop.index)

    # -- vertical: the lanes are neighbouring rows -------------------------------------------------------------------
    def _vertical_block(self, block: Val, others: list[int]) -> None:
        """One group of neighbouring rows, or what is left of one."""
        b, k = self.b, self.kernel
        wide = self.lanes * self.slots
        extent = k.extents[k.vector]
        groups = -(-extent // wide)
        group = b.rem(block, i64(groups), signed=False) if others and groups > 1 else i64(0) if groups == 1 else block
        if others:
            self._set_outer(b.div(block, i64(groups), signed=False) if groups > 1 else block, others)
        start = b.mul(group, i64(wide))
        if extent % wide == 0:
            self._whole_group(start)
        elif extent < wide:
            self._last_group(start)
        else:
            b.if_else(b.icmp("slt", group, i64(groups - 1)), lambda: self._whole_group(start), lambda: self._last_group(start))

    def _vertical_groups(self) -> None:
        """All groups of rows at the current indices of the other loops."""
        wide = self.lanes * self.slots
        extent = self.kernel.extents[self.kernel.vector]
        whole = extent - extent % wide
        if whole == wide:
            self._whole_group(i64(0))
        elif whole:
            with self.b.loop(0, whole, wide, name="group", at_least_once=True) as loop:
                self._whole_group(loop.index)
        if whole < extent:
            self._last_group(i64(whole))

    def _whole_group(self, start: Val) -> None:
        self.index[self.kernel.vector] = start
        self._begin_row()
        self._row()

    def _last_group(self, start: Val) -> None:
        """The rows that fill no group: whole vectors one by one, then a masked one; with AVX-512, whose masks cost nothing, all of them side by side."""
        slots, left = self.slots, self.kernel.extents[self.kernel.vector] % (self.lanes * self.slots)
        vectors = -(-left // self.lanes)
        self.slots = vectors if self.target.avx512 else 1
        self.masked_from = self.slots - 1
        for s in range(0, vectors, self.slots):
            here = min(self.lanes, left - (s + self.masked_from) * self.lanes)
            self.mask = constant_mask(here, self.lanes) if here < self.lanes else None
            self._whole_group(self.b.add(start, i64(s * self.lanes)))
        self.slots, self.mask, self.masked_from = slots, None, 0

    # -- streamed: all columns of a row, then the next row -----------------------------------------------------------
    def _streamed_block(self, block: Val, others: list[int]) -> None:
        """All columns at one place of the other outer loops."""
        b, k = self.b, self.kernel
        self._set_outer(block, others)
        self.slots, self.spilled = 1, {}
        reductions = [n for n, s in enumerate(k.body) if s.is_reduction]
        early = [k.body[s.local].stage == 0 and any(s.access.strides[k.outer :]) for s in k.stores]
        stores = [n for n, flag in enumerate(early) if flag]
        width = -(-k.extents[k.vector] // self.lanes) * self.lanes
        sums = [b.alloca(compute_type(k.body[n].dtype), width) for n in reductions]

        def place(j: int) -> Val:
            at = self.index[k.vector]
            assert at is not None
            return b.gep(sums[j], at, compute_type(k.body[reductions[j]].dtype))

        def clear() -> None:
            for j, n in enumerate(reductions):
                b.store(self._identity(n), place(j))

        def add() -> None:
            self.row_scopes = [Scope({}, row)]
            before = [b.load(place(j), compute_type(k.body[n].dtype, self.lanes)) for j, n in enumerate(reductions)]
            for j, value in enumerate(self._inner_points(None, 1, self.mask, stores, reductions, before)):
                b.store(value, place(j))

        def finish() -> None:
            scope = Scope({n: b.load(place(j), compute_type(k.body[n].dtype, self.lanes)) for j, n in enumerate(reductions)}, self.uniform)
            results = [(s, self._value(s.local, scope)) for s, flag in zip(k.stores, early, strict=True) if not flag]
            for store, value in results:
                self._store_vector(store.access, value)

        self._columns(clear)
        row = self.uniform
        with self._nested(range(k.outer, len(k.extents))):
            row = Scope({}, self.uniform)
            for n, s in enumerate(k.body):  # what is the same for the whole row
                if not s.loops >> k.vector & 1 and s.stage == 0 and not s.is_reduction:
                    self._value(n, row)
            self._columns(add)
        self._columns(finish)


def emit_loops(module: Module, name: str, kernel: LoopKernel, target: Target) -> str:
    """Adds the function of `kernel` to `module`; returns its name."""
    emitter = RowGroupEmitter if kernel.group >= 0 else LoopEmitter
    return emitter(module, name, kernel, target).emit()

