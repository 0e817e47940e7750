"""Matrix products of known shapes: C[batch, m, n] = A[batch, m, k] . B[batch, k, n], any strides, with a fused epilogue.

Enters: a `MatmulSpec`. Leaves: functions in the module and the `Plan` to call them. Transposed, broadcast and sliced operands are strides.
The output is cut in blocks (batch x column slab x row range); a block copies what it needs of B into panels of its own L2 cache
and of A into the L1 cache when they are used often enough, else it reads them in place. When the output is too small to occupy several
threads but k is long, k is cut in a fixed number of parts whose partial products a second stage adds in order (split-k).

References: K. Goto, R. van de Geijn, "Anatomy of high-performance matrix multiplication", ACM TOMS 34(3), 2008.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from graphcell.codegen.llvm.contraction import (
    Columns,
    ContractionTarget,
    Epilogue,
    Extra,
    KernelParams,
    Plan,
    Segment,
    Stage,
    TileShape,
    accumulation_kind,
    affine,
    block_range,
    ceil_div,
    check_extra,
    choose_tile,
    round_up,
    split_columns,
    split_evenly,
    split_index,
    tile_loop,
    vector_registers,
)
from graphcell.codegen.llvm.microkernel import DotKernel, Level, MicroKernel, call_micro, emit_dot, emit_micro
from graphcell.codegen.llvm.packing import copy_run, emit_pack_panel
from graphcell.codegen.llvm.partial_sums import PartialSum, emit_row_sum
from graphcell.codegen.llvm.text import FunctionBuilder, LType, Module, Val, i64

_BLOCKS_WANTED = 16
_FLOPS_PER_BLOCK = 200_000  # below this a block is not worth handing to a thread
_GROUPED_ROWS = 64  # rows of a transposed A that are copied together, a few cache lines of each k
_ROWS_PER_BLOCK = 192  # a block that packs B has at least so many rows to pay for it


@dataclass(frozen=True, slots=True)
class Operand:
    """A matrix in memory: element kind and strides in elements; `batch` has one stride per batch dimension (0: broadcast)."""

    kind: str
    row: int
    column: int
    batch: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class MatmulSpec:
    """C = A . B. `a` is seen as m x k, `b` as k x n, `c` as m x n with unit column stride, whatever their strides.

    `share_b` packs B once in a stage of its own into a buffer all threads read; that stage depends on `b` alone, so a caller
    with constant weights runs it once. It is refused (`ValueError`) when B varies over the batch.
    """

    m: int
    n: int
    k: int
    a: Operand
    b: Operand
    c: Operand
    batch: tuple[int, ...] = ()
    share_b: bool = False

    def __post_init__(self) -> None:
        if min(self.m, self.n, self.k, *self.batch, 0) < 0:
            raise ValueError(f"matmul: negative extent in {self}")
        if any(len(o.batch) != len(self.batch) for o in (self.a, self.b, self.c)):
            raise ValueError(f"matmul: every operand needs {len(self.batch)} batch strides: {self}")
        if self.c.column != 1 and self.n > 1:
            raise ValueError(f"matmul: the output needs unit column stride: {self}")
        if self.share_b and any(self.b.batch):
            raise ValueError(f"matmul: share_b with an operand that varies over the batch: {self}")
        accumulation_kind(self.a.kind, self.b.kind, self.c.kind)

    @property
    def kind(self) -> str:
        """The kind in which products are summed."""
        return accumulation_kind(self.a.kind, self.b.kind, self.c.kind)

    @property
    def flops(self) -> int:
        return 2 * math.prod(self.batch) * self.m * self.n * self.k


def dense_matmul(m: int, n: int, k: int, kind: str = "float", *, batch: tuple[int, ...] = (), transpose_a: bool = False,
                 transpose_b: bool = False, a_batch: tuple[int, ...] | None = None, b_batch: tuple[int, ...] | None = None,
                 share_b: bool = False) -> MatmulSpec:
    """The spec for contiguous operands; `a_batch` and `b_batch` are batch strides in matrices, row-major by default, 0 to broadcast."""
    natural = tuple(math.prod(batch[d + 1:]) for d in range(len(batch)))
    a = Operand(kind, 1, m) if transpose_a else Operand(kind, k, 1)
    b = Operand(kind, 1, k) if transpose_b else Operand(kind, n, 1)
    return MatmulSpec(m, n, k, replace(a, batch=tuple(s * m * k for s in (natural if a_batch is None else a_batch))),
                      replace(b, batch=tuple(s * k * n for s in (natural if b_batch is None else b_batch))),
                      Operand(kind, n, 1, tuple(s * m * n for s in natural)), batch, share_b)


@dataclass(frozen=True, slots=True)
class Schedule:
    """How a matmul is carried out; a pure function of the spec and the target."""

    tile: TileShape
    row_segments: tuple[Segment, ...]
    column_segments: tuple[tuple[Segment, Columns], ...]
    rows_per_block: int  # row tiles
    columns_per_block: int  # column tiles
    splits: int  # parts of k
    split_depth: int  # k of one part (the last may be shorter)
    depth: int  # k of one pass over a block
    pack_a: str  # "no", "rows" or "columns"
    pack_b: str  # "no", "block" or "shared"

    @property
    def row_tiles(self) -> int:
        return sum(s.tiles for s in self.row_segments)

    @property
    def column_tiles(self) -> int:
        return sum(s.tiles for s, _ in self.column_segments)

    @property
    def grid(self) -> tuple[int, int]:
        """Blocks along columns and rows."""
        return ceil_div(self.column_tiles, self.columns_per_block), ceil_div(self.row_tiles, self.rows_per_block)

    @property
    def passes(self) -> int:
        return max(1, ceil_div(self.split_depth, max(self.depth, 1)))

    def __str__(self) -> str:
        return (f"tile {self.tile.rows}x{self.tile.vectors}x{self.tile.lanes}, grid {self.grid[0]}x{self.grid[1]}, depth {self.depth}, "
                f"splits {self.splits}, pack a: {self.pack_a}, b: {self.pack_b}")


def emit_matmul(module: Module, name: str, spec: MatmulSpec, target: ContractionTarget, epilogue: Epilogue | None = None,
                extra: Extra = ()) -> Plan:
    """Emits the functions of a matmul, named `name` and `name.<part>`, and returns their plan.

    Buffers: a, b, c (the output), and as the plan says packed, partial, scratch. For the epilogue `row` counts the rows of the output
    seen as a [batch * m, n] matrix, `column` those of n, `batch` is the linear batch index. k = 0 gives epilogue(0).
    """
    check_extra("matmul", extra)
    if spec.m == 0 or spec.n == 0 or 0 in spec.batch:
        return Plan((), note="empty output")
    spec, rows_of_batch = merge_batch(spec)
    if uses_dot(spec, target):
        return _DotMatmul(module, name, spec, target, epilogue, extra, rows_of_batch).emit()
    return _BlockedMatmul(module, name, spec, target, epilogue, extra, rows_of_batch).emit()


def merge_batch(spec: MatmulSpec) -> tuple[MatmulSpec, int]:
    """Batch dimensions over which B does not vary become rows, where strides allow. Returns also m as it was."""
    m = spec.m
    while spec.batch:
        extent = spec.batch[-1]
        a, b, c = spec.a, spec.b, spec.c
        in_step = spec.m == 1 or (a.batch[-1] == spec.m * a.row and c.batch[-1] == spec.m * c.row)
        regular = extent == 1 or (in_step and b.batch[-1] == 0)
        if not regular:
            break
        a, b, c = (replace(o, batch=o.batch[:-1]) for o in (a, b, c))
        if spec.m == 1 and extent > 1:  # the row stride of a single row may be anything
            a, c = replace(a, row=spec.a.batch[-1]), replace(c, row=spec.c.batch[-1])
        spec = replace(spec, m=spec.m * extent, batch=spec.batch[:-1], a=a, b=b, c=c)
    return spec, m


def uses_dot(spec: MatmulSpec, target: ContractionTarget) -> bool:
    """Few rows or columns, both operands contiguous along k: lanes run along k and nothing need be transposed."""
    along_k = (spec.a.column == 1 or spec.k == 1) and (spec.b.row == 1 or spec.k == 1)
    if not along_k or spec.k < 2 or (spec.b.column == 1 and spec.n > 1):
        return False
    return spec.n == 1 or spec.m <= 6


def schedule(spec: MatmulSpec, target: ContractionTarget) -> Schedule:
    """Chooses tile, blocks, packing and the division of k."""
    kind, size = spec.kind, 8 if spec.kind == "double" else 4
    # Rows a multiple of the cache's way size apart fall on the same lines: no more of them than the cache has ways.
    aliases = spec.a.row * size % 2048 == 0 and spec.a.column == 1
    tile = choose_tile(spec.m, spec.n, kind, target, 8 if aliases else 64)
    rows, columns = split_evenly(spec.m, tile.rows), split_columns(spec.n, tile)
    row_tiles, column_tiles = sum(s.tiles for s in rows), sum(s.tiles for s, _ in columns)
    whole = target.lanes(kind)
    splits, split_depth = _split_k(spec, row_tiles * column_tiles, whole)
    narrow = spec.c.kind != kind and splits == 1
    # A's tile stays in the L1 cache over a pass, at least 256 columns of B in half of the L2 cache.
    most = min(int(0.75 * target.l1_bytes) // (tile.rows * size), target.l2_bytes // (2 * 256 * size))
    most = max(4 * whole, most // whole * whole)
    passes = 1 if narrow else max(1, ceil_div(split_depth, most))
    depth = split_depth if passes == 1 else round_up(ceil_div(split_depth, passes), whole)
    pack_b = _pack_b(spec, row_tiles, size, target)
    in_l2 = max(1, target.l2_bytes // 2 // (max(depth, 1) * size * tile.columns))
    per_column = min(column_tiles, in_l2) if pack_b != "no" else column_tiles
    per_column = ceil_div(column_tiles, ceil_div(column_tiles, per_column))
    per_row = row_tiles
    wanted = min(_BLOCKS_WANTED, max(1, spec.flops // _FLOPS_PER_BLOCK))
    outer = math.prod(spec.batch) * splits
    least_rows = ceil_div(_ROWS_PER_BLOCK, tile.rows) if pack_b == "block" else 1
    grid_columns = ceil_div(column_tiles, per_column)
    if outer * grid_columns < wanted:
        per_row = min(row_tiles, max(least_rows, ceil_div(row_tiles, ceil_div(wanted, outer * grid_columns))))
    if outer * grid_columns * ceil_div(row_tiles, per_row) < wanted:
        missing = ceil_div(wanted, outer * ceil_div(row_tiles, per_row))
        per_column = max(1, min(per_column, column_tiles // missing))
    pack_a = _pack_a(spec, per_column, size)
    return Schedule(tile, rows, columns, per_row, per_column, splits, split_depth, depth, pack_a, pack_b)


def _split_k(spec: MatmulSpec, tiles: int, whole: int) -> tuple[int, int]:
    """Parts of k and their length: more than one part only if the output has few tiles and k is long."""
    outputs = math.prod(spec.batch) * tiles
    splits = min(_BLOCKS_WANTED // max(outputs // 4, 1), spec.k // 1024)
    if splits < 2 or spec.share_b:
        return 1, spec.k
    depth = round_up(ceil_div(spec.k, splits), whole)
    return ceil_div(spec.k, depth), depth


def _pack_b(spec: MatmulSpec, row_tiles: int, size: int, target: ContractionTarget) -> str:
    if spec.k == 0:
        return "no"
    if spec.share_b:
        return "shared"
    if spec.b.column != 1 and spec.n > 1:
        return "block"
    if spec.b.kind != spec.kind:
        return "block" if row_tiles > 1 else "no"
    fits = spec.k * spec.b.row * size <= target.l1_bytes
    return "block" if row_tiles > 3 and not fits else "no"


def _pack_a(spec: MatmulSpec, column_tiles: int, size: int) -> str:
    """A is read in place: a copy would wait for memory where the micro-kernel overlaps it with arithmetic.

    Copied are operands to be converted, and transposed ones whose stride makes all steps of k fall on a few cache lines.
    """
    if column_tiles < 2 or spec.k == 0 or 1 not in (spec.a.row, spec.a.column):
        return "no"
    way = "columns" if spec.a.row == 1 and spec.m > 1 else "rows"
    if spec.a.kind != spec.kind:
        return way
    return "columns" if way == "columns" and spec.a.column * size % 8192 == 0 and spec.k >= 64 else "no"


@dataclass(frozen=True)
class _BlockedMatmul:
    """Emits the outer-product form."""

    module: Module
    name: str
    spec: MatmulSpec
    target: ContractionTarget
    epilogue: Epilogue | None
    extra: Extra
    rows_of_batch: int

    def emit(self) -> Plan:
        spec, plan = self.spec, schedule(self.spec, self.target)
        stages: list[Stage] = []
        shared: list[tuple[str, int]] = []
        batch = math.prod(spec.batch)
        if plan.pack_b == "shared":
            shared.append(("packed", plan.column_segments[-1][0].start * self._panel_depth(plan) * self._size
                           + plan.column_segments[-1][1].padded * plan.column_segments[-1][0].tiles * self._panel_depth(plan) * self._size))
            stages.append(self._emit_shared_pack(plan))
        if plan.splits > 1:
            shared.append(("partial", plan.splits * batch * spec.m * spec.n * self._size))
        blocks = plan.splits * batch * plan.grid[0] * plan.grid[1]
        stages.append(self._emit_main(plan, blocks))
        if plan.splits > 1:
            stages.append(self._emit_sum(plan))
        return Plan(tuple(stages), tuple(shared), self._scratch(plan)[1], str(plan))

    @property
    def _size(self) -> int:
        return 8 if self.spec.kind == "double" else 4

    def _panel_depth(self, plan: Schedule) -> int:
        """Reduction steps for which a packed panel has room."""
        return round_up(self.spec.k if plan.pack_b == "shared" else plan.depth, self.target.lanes(self.spec.kind))

    def _a_pitch(self, plan: Schedule) -> int:
        """Distance in the packed copy of A from row to row, or from k to k."""
        lanes = self.target.lanes(self.spec.kind)
        return round_up(plan.depth, lanes) + lanes if plan.pack_a == "rows" else plan.tile.rows

    def _group(self, plan: Schedule) -> int:
        """Row tiles that are copied together."""
        return max(1, _GROUPED_ROWS // plan.tile.rows) if plan.pack_a == "columns" else 1

    def _scratch(self, plan: Schedule) -> tuple[int, int]:
        """Bytes of the copy of A (which comes first) and of all scratch memory."""
        a_bytes = b_bytes = 0
        if plan.pack_a == "rows":
            a_bytes = plan.tile.rows * self._a_pitch(plan) * self._size
        if plan.pack_a == "columns":
            a_bytes = self._group(plan) * plan.depth * self._a_pitch(plan) * self._size
        if plan.pack_b == "block":
            b_bytes = plan.columns_per_block * plan.tile.columns * self._panel_depth(plan) * self._size
        a_bytes = round_up(a_bytes, 64)
        return a_bytes, a_bytes + b_bytes

    def _emit_pack_functions(self, plan: Schedule) -> list[str]:
        b, lanes = self.spec.b, self.target.lanes(self.spec.kind)
        whole = plan.depth % lanes == 0 and plan.split_depth % lanes == 0 and self.spec.k % lanes == 0
        return [emit_pack_panel(self.module, f"{self.name}.pack{j}", columns, b.row, b.column, b.kind, self.spec.kind, whole)
                for j, (_, columns) in enumerate(plan.column_segments)]

    def _emit_shared_pack(self, plan: Schedule) -> Stage:
        packers = self._emit_pack_functions(plan)
        params = KernelParams(("b", "packed"))
        b = FunctionBuilder(self.module, f"{self.name}.pack", params.list, internal=False)
        for packer, (segment, _) in zip(packers, plan.column_segments, strict=True):
            with tile_loop(b, segment, b.args["begin"], b.args["end"], "panel") as (_, column):
                source = b.gep(b.args["b"], affine(b, [(column, self.spec.b.column)]), LType(self.spec.b.kind))
                to = b.gep(b.args["packed"], affine(b, [(column, self._panel_depth(plan))]), LType(self.spec.kind))
                b.call(packer, LType("void"), source, to, i64(self.spec.k))
        return Stage(b.finish(), params.buffers, (), plan.column_tiles, self.spec.k * plan.tile.columns)

    def _kernels(self, plan: Schedule) -> list[list[tuple[MicroKernel, str]]]:
        """The micro-kernel of each (row segment, column segment), emitted."""
        spec, partial = self.spec, plan.splits > 1
        a_row, a_k = {"no": (spec.a.row, spec.a.column), "rows": (self._a_pitch(plan), 1),
                      "columns": (1, self._a_pitch(plan))}[plan.pack_a]
        c_row = spec.n if partial else spec.c.row
        multiple = math.gcd(plan.depth, plan.split_depth, spec.k)
        static = plan.passes == 1 and plan.splits * plan.split_depth == max(spec.k, 0)
        table = []
        for i, rows in enumerate(plan.row_segments):
            line = []
            for j, (_, columns) in enumerate(plan.column_segments):
                b_k = columns.padded if plan.pack_b != "no" else spec.b.row
                steps = range(rows.size)
                kernel = MicroKernel(
                    spec.kind, columns, tuple(a_row * s for s in steps), tuple(c_row * s for s in steps), tuple(steps),
                    (Level(spec.k // plan.splits if static else "count", a_k, b_k, multiple),),
                    spec.a.kind if plan.pack_a == "no" else spec.kind, spec.b.kind if plan.pack_b == "no" else spec.kind,
                    spec.kind if partial else spec.c.kind, b_packed=plan.pack_b != "no", resumes=plan.passes > 1)
                name = emit_micro(self.module, f"{self.name}.micro{i}{j}", kernel, None if partial else self.epilogue,
                                  () if partial else self.extra)
                line.append((kernel, name))
            table.append(line)
        return table

    def _emit_main(self, plan: Schedule, blocks: int) -> Stage:
        spec, partial = self.spec, plan.splits > 1
        kernels = self._kernels(plan)
        packers = self._emit_pack_functions(plan) if plan.pack_b == "block" else []
        scratch = self._scratch(plan)[1] > 0
        buffers = ("a", "packed" if plan.pack_b == "shared" else "b", "partial" if partial else "c", *(("scratch",) * scratch))
        extra = () if partial else tuple(self.extra)
        params = KernelParams(buffers, extra)
        b = FunctionBuilder(self.module, f"{self.name}.part" if partial else self.name, params.list, internal=False)
        with b.loop(b.args["begin"], b.args["end"], name="block") as loop:
            _Block(self, plan, b, loop.index, kernels, packers, extra).emit()
        return Stage(b.finish(), buffers, tuple(n for n, _ in extra), blocks, spec.flops // blocks)

    def _emit_sum(self, plan: Schedule) -> Stage:
        """Adds the partial products in order, a row of the output at a time."""
        spec = self.spec

        def locate(b: FunctionBuilder, row: Val) -> tuple[Val, Val]:
            *batch, m = split_index(b, row, (*spec.batch, spec.m))
            offset = affine(b, [(m, spec.c.row), *zip(batch, spec.c.batch, strict=True)])
            return offset, b.div(row, i64(self.rows_of_batch), signed=False)

        total = PartialSum(math.prod(spec.batch) * spec.m, spec.n, plan.splits, spec.kind, spec.c.kind,
                           self.target.lanes(spec.kind), "c")
        return emit_row_sum(self.module, self.name, total, locate, self.epilogue, self.extra)


@dataclass(frozen=True)
class _Block:
    """Emits the work of one block inside the block loop."""

    owner: _BlockedMatmul
    plan: Schedule
    b: FunctionBuilder
    index: Val
    kernels: list[list[tuple[MicroKernel, str]]]
    packers: list[str]
    extra: Extra

    def emit(self) -> None:
        b, plan, spec = self.b, self.plan, self.owner.spec
        split, *batch, across, down = split_index(b, self.index, (plan.splits, *spec.batch, *plan.grid))
        columns = block_range(b, across, plan.columns_per_block, plan.column_tiles)
        rows = block_range(b, down, plan.rows_per_block, plan.row_tiles)
        a_at = affine(b, [*zip(batch, spec.a.batch, strict=True), (split, plan.split_depth * spec.a.column)])
        b_at = affine(b, [*zip(batch, spec.b.batch, strict=True), (split, plan.split_depth * spec.b.row)])
        linear = affine(b, [(x, math.prod(spec.batch[d + 1:])) for d, x in enumerate(batch)])
        if plan.splits > 1:
            c_at = affine(b, [(linear, spec.m * spec.n), (split, math.prod(spec.batch) * spec.m * spec.n)])
        else:
            c_at = affine(b, list(zip(batch, spec.c.batch, strict=True)))
        a = b.gep(b.args["a"], a_at, LType(spec.a.kind))
        c = b.gep(b.args["partial" if plan.splits > 1 else "c"], c_at,
                  LType(spec.kind if plan.splits > 1 else spec.c.kind))
        right = b.args["packed"] if plan.pack_b == "shared" else b.gep(b.args["b"], b_at, LType(spec.b.kind))
        base_row = affine(b, [(linear, spec.m)])
        length: Val = i64(spec.k)
        if plan.splits > 1:
            left_over = b.sub(i64(spec.k), b.mul(split, i64(plan.split_depth)))
            length = b.binary("smin", left_over, i64(plan.split_depth))
        if plan.passes == 1:
            self._pass(a, right, c, i64(0), length, None, None, rows, columns, base_row)
            return
        with b.loop(0, length, plan.depth, name="pass", at_least_once=True) as loop:
            count = b.binary("smin", i64(plan.depth), b.sub(length, loop.index))
            resume = b.cast(b.icmp("sgt", loop.index, i64(0)), LType("i64"))
            last = b.cast(b.icmp("sge", b.add(loop.index, i64(plan.depth)), length), LType("i64"))
            self._pass(a, right, c, loop.index, count, resume, last, rows, columns, base_row)

    def _pass(self, a: Val, right: Val, c: Val, k: Val, count: Val, resume: Val | None, last: Val | None,
              rows: tuple[Val, Val], columns: tuple[Val, Val], base_row: Val) -> None:
        """One pass over the block with reduction indices k .. k + count."""
        b, plan, spec = self.b, self.plan, self.owner.spec
        a_bytes, _ = self.owner._scratch(plan)
        origin = affine(b, [(columns[0], plan.tile.columns)])
        panels = b.gep(b.args["scratch"], a_bytes, LType("i8")) if plan.pack_b == "block" else right
        if plan.pack_b == "block":
            self._pack_slab(right, panels, k, count, columns, origin)
        group = self.owner._group(plan)
        if group == 1:
            self._tiles(a, panels, c, k, count, resume, last, rows, columns, origin, base_row)
            return
        with b.loop(rows[0], rows[1], group, name="group") as loop:
            high = b.binary("smin", b.add(loop.index, i64(group)), rows[1])
            self._copy_columns(b.gep(a, affine(b, [(k, spec.a.column)]), LType(spec.a.kind)), count, loop.index, high)
            self._tiles(a, panels, c, k, count, resume, last, (loop.index, high), columns, origin, base_row)

    def _tiles(self, a: Val, panels: Val, c: Val, k: Val, count: Val, resume: Val | None, last: Val | None, rows: tuple[Val, Val],
               columns: tuple[Val, Val], origin: Val, base_row: Val) -> None:
        """All register tiles with row tiles rows[0] .. rows[1] and column tiles columns[0] .. columns[1]."""
        b, plan, spec = self.b, self.plan, self.owner.spec
        partial = plan.splits > 1
        for i, row_segment in enumerate(plan.row_segments):
            with tile_loop(b, row_segment, *rows, "rows") as (tile, row):
                if plan.pack_a == "columns":
                    a_at = self._column_panel(tile, rows[0])
                else:
                    a_at = b.gep(a, affine(b, [(row, spec.a.row), (k, spec.a.column)]), LType(spec.a.kind))
                if plan.pack_a == "rows":
                    a_at = self._copy_rows(a_at, row_segment.size, count)
                c_row = b.gep(c, affine(b, [(row, spec.n if partial else spec.c.row)]),
                              LType(spec.kind if partial else spec.c.kind))
                linear_row = row if base_row.text == "0" else b.add(base_row, row)
                batch = i64(0) if not spec.batch and self.owner.rows_of_batch == spec.m else \
                    b.div(linear_row, i64(self.owner.rows_of_batch), signed=False)
                for j, (segment, shape) in enumerate(plan.column_segments):
                    with tile_loop(b, segment, *columns, "columns") as (_, column):
                        kernel, name = self.kernels[i][j]
                        call_micro(b, name, kernel, a_at, self._b_at(panels, k, column, origin, shape),
                                   b.gep(c_row, column, LType(kernel.c_kind)), counts={"count": count}, resume=resume, last=last,
                                   row=linear_row, column=column, batch=batch, extra=self.extra)

    def _b_at(self, panels: Val, k: Val, column: Val, origin: Val, shape: Columns) -> Val:
        b, plan, spec = self.b, self.plan, self.owner.spec
        depth = self.owner._panel_depth(plan)
        if plan.pack_b == "no":
            return b.gep(panels, affine(b, [(k, spec.b.row), (column, spec.b.column if spec.n > 1 else 0)]), LType(spec.b.kind))
        if plan.pack_b == "shared":
            return b.gep(panels, affine(b, [(column, depth), (k, shape.padded)]), LType(spec.kind))
        within = column if origin.text == "0" else b.sub(column, origin)
        return b.gep(panels, affine(b, [(within, depth)]), LType(spec.kind))

    def _pack_slab(self, right: Val, panels: Val, k: Val, count: Val, columns: tuple[Val, Val], origin: Val) -> None:
        b, plan, spec = self.b, self.plan, self.owner.spec
        for packer, (segment, shape) in zip(self.packers, plan.column_segments, strict=True):
            with tile_loop(b, segment, *columns, "pack") as (_, column):
                source = b.gep(right, affine(b, [(k, spec.b.row), (column, spec.b.column)]), LType(spec.b.kind))
                b.call(packer, LType("void"), source, self._b_at(panels, k, column, origin, shape), count)

    def _column_panel(self, tile: Val, first: Val) -> Val:
        """The copy of row tile `tile` of a transposed A, in the group that begins at tile `first`."""
        b, plan = self.b, self.plan
        at = b.mul(b.sub(tile, first), i64(plan.depth * self.owner._a_pitch(plan)))
        return b.gep(b.args["scratch"], at, LType(self.owner.spec.kind))

    def _copy_columns(self, a: Val, count: Val, low: Val, high: Val) -> None:
        """Copies row tiles low .. high of a transposed A, each to a panel of its own; k outermost, to read whole cache lines."""
        b, plan, spec = self.b, self.plan, self.owner.spec
        lanes, pitch = self.owner.target.lanes(spec.kind), self.owner._a_pitch(plan)
        with b.loop(0, count, name="copy") as k:
            source = b.gep(a, b.mul(k.index, i64(spec.a.column)), LType(spec.a.kind))
            offset = b.mul(k.index, i64(pitch))
            for segment in plan.row_segments:
                with tile_loop(b, segment, low, high, "copy.tile") as (tile, row):
                    to = b.gep(self._column_panel(tile, low), offset, LType(spec.kind))
                    copy_run(b, b.gep(source, row, LType(spec.a.kind)), to, segment.size, spec.a.kind, spec.kind, lanes)

    def _copy_rows(self, a: Val, rows: int, count: Val) -> Val:
        """Copies the rows of one tile next to each other, converting them."""
        b, plan, spec = self.b, self.plan, self.owner.spec
        lanes, pitch, to = self.owner.target.lanes(spec.kind), self.owner._a_pitch(plan), b.args["scratch"]
        with b.loop(0, rows, name="copy", at_least_once=True) as row:
            source = b.gep(a, b.mul(row.index, i64(spec.a.row)), LType(spec.a.kind))
            copy_run(b, source, b.gep(to, b.mul(row.index, i64(pitch)), LType(spec.kind)), count, spec.a.kind, spec.kind, lanes)
        return to


@dataclass(frozen=True)
class _DotMatmul:
    """Emits the dot-product form: blocks are batch x groups of row tiles x groups of column tiles."""

    module: Module
    name: str
    spec: MatmulSpec
    target: ContractionTarget
    epilogue: Epilogue | None
    extra: Extra
    rows_of_batch: int

    def emit(self) -> Plan:
        spec, extra = self.spec, tuple(self.extra)
        rows, columns = self._segments()
        row_tiles, column_tiles = sum(s.tiles for s in rows), sum(s.tiles for s in columns)
        batch = math.prod(spec.batch)
        wanted = min(_BLOCKS_WANTED, max(1, spec.flops // _FLOPS_PER_BLOCK))
        per_row = max(1, row_tiles * batch // wanted) if row_tiles > 1 else 1
        per_column = column_tiles if row_tiles * batch >= wanted else max(1, column_tiles * batch * row_tiles // wanted)
        grid = (ceil_div(column_tiles, per_column), ceil_div(row_tiles, per_row))
        kernels = [[self._kernel(i, r.size, j, c.size) for j, c in enumerate(columns)] for i, r in enumerate(rows)]
        params = KernelParams(("a", "b", "c"), extra)
        b = FunctionBuilder(self.module, self.name, params.list, internal=False)
        with b.loop(b.args["begin"], b.args["end"], name="block") as loop:
            *index, across, down = split_index(b, loop.index, (*spec.batch, *grid))
            linear = affine(b, [(x, math.prod(spec.batch[d + 1:])) for d, x in enumerate(index)])
            row_range = block_range(b, down, per_row, row_tiles)
            column_range = block_range(b, across, per_column, column_tiles)
            for j, column_segment in enumerate(columns):
                with tile_loop(b, column_segment, *column_range, "columns") as (_, column):
                    for i, row_segment in enumerate(rows):
                        with tile_loop(b, row_segment, *row_range, "rows") as (_, row):
                            self._call(b, kernels[i][j], index, linear, row, column)
        note = f"dot products, tile {rows[0].size}x{columns[0].size}, grid {grid[0]}x{grid[1]}"
        blocks = batch * grid[0] * grid[1]
        return Plan((Stage(b.finish(), params.buffers, tuple(n for n, _ in extra), blocks, spec.flops // blocks),), note=note)

    def _segments(self) -> tuple[tuple[Segment, ...], tuple[Segment, ...]]:
        """Tiles of rows and columns, so that accumulators and the rows' vectors stay in registers."""
        spec, registers = self.spec, vector_registers(self.target)
        lanes = self.target.lanes(spec.kind)
        wide = min(lanes, 8 if registers >= 32 else 4, 1 << (spec.n - 1).bit_length())
        tall = max(1, min((registers - 2) // (wide + 1), 8))
        full = spec.n // wide
        columns = [Segment(0, full, 0, wide)] if full else []
        if spec.n > full * wide:
            columns.append(Segment(full, 1, full * wide, spec.n - full * wide))
        return split_evenly(spec.m, tall), tuple(columns)

    def _kernel(self, i: int, rows: int, j: int, columns: int) -> str:
        spec = self.spec
        kernel = DotKernel(spec.kind, self.target.lanes(spec.kind), rows, columns, spec.k, spec.a.row, spec.b.column, spec.c.row,
                           spec.a.kind, spec.b.kind, spec.c.kind)
        return emit_dot(self.module, f"{self.name}.dot{i}{j}", kernel, self.epilogue, self.extra)

    def _call(self, b: FunctionBuilder, name: str, index: list[Val], linear: Val, row: Val, column: Val) -> None:
        spec = self.spec
        a_at = affine(b, [*zip(index, spec.a.batch, strict=True), (row, spec.a.row)])
        b_at = affine(b, [*zip(index, spec.b.batch, strict=True), (column, spec.b.column)])
        c_at = affine(b, [*zip(index, spec.c.batch, strict=True), (row, spec.c.row), (column, 1)])
        linear_row = affine(b, [(linear, spec.m), (row, 1)])
        batch = b.div(linear_row, i64(self.rows_of_batch), signed=False)
        b.call(name, LType("void"), b.gep(b.args["a"], a_at, LType(spec.a.kind)), b.gep(b.args["b"], b_at, LType(spec.b.kind)),
               b.gep(b.args["c"], c_at, LType(spec.c.kind)), linear_row, column, batch, *(b.args[n] for n, _ in self.extra))
