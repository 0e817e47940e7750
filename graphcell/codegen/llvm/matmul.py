"""Matrix products of known shapes: C[batch, m, n] = A[batch, m, k] . B[batch, k, n], any strides, with a
fused epilogue.

Enters: a `MatmulSpec`. Leaves: functions in the module and the `Plan` to call them. Transposed, broadcast and
sliced operands are strides. The output is cut in blocks (batch x column slab x row range); a block copies
what it needs of B into panels of its own L2 cache and of A into the L1 cache when they are used often enough,
else it reads them in place. When the output is too small to occupy several threads but k is long, k is cut in
a fixed number of parts whose partial products a second stage adds in order (split-k).

References: K. Goto, R. van de Geijn, "Anatomy of high-performance matrix multiplication", ACM TOMS 34(3),
2008.
"""

from __future__ import annotations

import contextlib
import math

from graphcell.codegen.llvm.contraction import (
    LINE_BYTES,
    Columns,
    ContractionTarget,
    Epilogue,
    Extra,
    KernelParams,
    Plan,
    Segment,
    Stage,
    affine,
    check_extra,
    even_range,
    has_few_ways,
    round_up,
    split_index,
    tile_loop,
)
from graphcell.codegen.llvm.matmul_blocks import balanced, blocks_of_strip, strips
from graphcell.codegen.llvm.matmul_dot import DotMatmul, is_narrow, uses_dot
from graphcell.codegen.llvm.matmul_mirror import emit_mirror
from graphcell.codegen.llvm.matmul_prefetch import STEPS_AHEAD, elements_ahead, fetch_of, fetched_from, next_tile
from graphcell.codegen.llvm.matmul_schedule import GROUPED_ROWS, MOST_KEPT_BYTES, Schedule, schedule
from graphcell.codegen.llvm.matmul_spec import MatmulSpec, Operand, dense_matmul, in_pairs, merge_batch, with_prepared_weights
from graphcell.codegen.llvm.matmul_tiles import TileMatmul
from graphcell.codegen.llvm.matmul_tiles_schedule import tile_schedule
from graphcell.codegen.llvm.microkernel import Fetch, Level, MicroKernel, batch_of, call_micro, come_from_memory, emit_micro
from graphcell.codegen.llvm.packing import copy_run, displaced, emit_pack_panel, prefetch
from graphcell.codegen.llvm.partial_sums import PartialSum, emit_row_sum
from graphcell.codegen.llvm.text import I8, I64, FunctionBuilder, LType, Module, Val, i64
from graphcell.records import dataclass

__all__ = ["MatmulSpec", "Operand", "dense_matmul", "emit_matmul", "with_prepared_weights"]

_ALMOST = 4  # times the L2 cache
_LONG_STEP = 1024  # bytes beyond which the processor does not foresee the next step
_STEPS_AT_ONCE = 8, 4  # of a B whose steps are long: one panel after the other would go from page to page as often as there are panels; the same with few ways


def emit_matmul(
    module: Module,
    name: str,
    spec: MatmulSpec,
    target: ContractionTarget,
    epilogue: Epilogue | None = None,
    extra: Extra = (),
) -> Plan:
    """Emits the functions of a matmul, named `name` and `name.<part>`, and returns their plan.

    Buffers: a, b, c (the output), and as the plan says packed, partial, scratch. For the epilogue `row`
    counts the rows of the output seen as a [batch * m, n] matrix, `column` those of n, `batch` is the linear
    batch index. k = 0 gives epilogue(0).
    """
    check_extra("matmul", extra)
    if spec.m == 0 or spec.n == 0 or 0 in spec.batch:
        return Plan((), note="empty output")
    batch_rows = spec.m if math.prod(spec.batch) > 1 else 0
    spec = merge_batch(spec)
    in_tiles = tile_schedule(spec, target)
    if in_tiles is not None:
        return TileMatmul(module, name, spec, in_tiles, target, epilogue, extra, batch_rows).emit()
    if uses_dot(spec, target) and (not spec.share_b or is_narrow(spec, target)):
        return DotMatmul(module, name, spec, target, epilogue, extra, batch_rows).emit()
    spec = in_pairs(spec, target)
    return _BlockedMatmul(module, name, spec, target, epilogue, extra, batch_rows).emit()


@dataclass(frozen=True)
class _BlockedMatmul:
    """Emits the outer-product form."""

    module: Module
    name: str
    spec: MatmulSpec
    target: ContractionTarget
    epilogue: Epilogue | None
    extra: Extra
    batch_rows: int

    def emit(self) -> Plan:
        spec, plan = self.spec, schedule(self.spec, self.target)
        stages: list[Stage] = []
        shared: list[tuple[str, int]] = []
        batch = math.prod(spec.batch)
        if plan.pack_b == "shared":
            shared.append(("packed", self._packed_bytes(plan) + (LINE_BYTES if self._turns_back(plan) else 0)))
            stages.append(self._emit_shared_pack(plan))
        if plan.splits > 1:
            shared.append(("partial", plan.splits * batch * spec.m * spec.n * self._size))
        blocks = plan.splits * batch * plan.grid[0] * plan.grid[1]
        stages.append(self._emit_main(plan, blocks))
        if plan.splits > 1:
            stages.append(self._emit_sum(plan))
        if plan.mirrored:
            stages.append(emit_mirror(self.module, f"{self.name}.mirror", spec, self.target))
        also = {"weights asked for ahead": self._streams(plan), "blocks in turns": self._turns_back(plan), "written past the caches": spec.c.past}
        note = ", ".join([str(plan), *(text for text, holds in also.items() if holds)])
        resumes = plan.passes > 1 and plan.splits == 1
        is_of_rows = spec.for_team and not spec.batch and not plan.mirrored
        return Plan(tuple(stages), tuple(shared), self._scratch(plan)[1], note, resumes, plan.first_rows if is_of_rows else ())

    @property
    def _size(self) -> int:
        return LType(self.spec.kind).bytes

    def _panel_depth(self, plan: Schedule) -> int:
        """Reduction steps for which a packed panel has room."""
        return round_up(
            self.spec.k if plan.pack_b == "shared" else plan.depth, self.target.lanes(self.spec.kind)
        )

    def _a_pitch(self, plan: Schedule) -> int:
        """Distance in the packed copy of A from row to row, or from k to k."""
        lanes = self.target.lanes(self.spec.kind)
        return round_up(plan.depth, lanes) + lanes if plan.pack_a == "rows" else plan.tile.rows

    def _a_panel(self, plan: Schedule) -> int:
        """Elements from the copy of one row tile of A to the next: no power of two, or all would fall on the same lines of the cache."""
        return plan.depth * self._a_pitch(plan) + LINE_BYTES // self._size

    def _group(self, plan: Schedule) -> int:
        """Row tiles that are copied together."""
        return max(1, GROUPED_ROWS // plan.tile.rows) if plan.pack_a == "columns" else 1

    def _scratch(self, plan: Schedule) -> tuple[int, int]:
        """Bytes of the copy of A (which comes first) and of all scratch memory."""
        a_bytes = b_bytes = 0
        if plan.pack_a == "rows":
            a_bytes = plan.tile.rows * self._a_pitch(plan) * self._size
        if plan.pack_a == "columns":
            a_bytes = self._group(plan) * self._a_panel(plan) * self._size
        if plan.pack_b == "block":
            b_bytes = plan.columns_per_block * plan.tile.columns * self._panel_depth(plan) * self._size * self._kept_passes(plan)
        a_bytes = round_up(a_bytes, 64)
        return a_bytes, a_bytes + b_bytes

    def _kept_passes(self, plan: Schedule) -> int:
        """For how many passes the scratch memory holds B's panels: for all, if the row blocks that follow use them again."""
        one = plan.columns_per_block * plan.tile.columns * self._panel_depth(plan) * self._size
        return plan.passes if plan.grid[1] > 1 and one * plan.passes <= MOST_KEPT_BYTES else 1

    def _streams(self, plan: Schedule) -> bool:
        """Whether B's panels come from memory, few tiles read each of them, and there is work meanwhile: one row waits for memory in any case."""
        return plan.pack_b == "shared" and self.spec.m > 1 and come_from_memory(self._packed_bytes(plan), plan.row_tiles, self.target)

    def _packed_bytes(self, plan: Schedule) -> int:
        return plan.padded_columns * self._panel_depth(plan) * LType(plan.panel_kind).bytes

    def _turns_back(self, plan: Schedule) -> bool:
        """Whether the strips are taken forwards and backwards in turns: of panels that the L2 cache almost holds, those read last are still there when
        the product is computed again, as in the steps of a recurrent layer. In one direction each would be gone just before it is needed.
        """
        nbytes = self._packed_bytes(plan)
        almost = come_from_memory(nbytes, plan.row_tiles, self.target) and nbytes <= _ALMOST * self.target.l2_bytes
        return plan.pack_b == "shared" and almost and plan.grid[0] > 1

    def _emit_pack_functions(self, plan: Schedule, name: str) -> list[str]:
        b, lanes = self.spec.b, self.target.lanes(self.spec.kind)
        whole = plan.depth % lanes == 0 and plan.split_depth % lanes == 0 and self.spec.k % lanes == 0
        kinds = (b.kind, plan.panel_kind) if LType(plan.panel_kind).bytes > 2 else ("i16", "i16")  # which are moved as they are
        return [
            emit_pack_panel(self.module, f"{name}{j}", columns, b.row, b.column, *kinds, whole, b.pair)
            for j, (_, columns) in enumerate(plan.column_segments)
        ]

    def _emit_shared_pack(self, plan: Schedule) -> Stage:
        """Packs all of B. Its name says all that it depends on: products of the same matrix, with whatever epilogue, share it."""
        spec, tile = self.spec, plan.tile
        layout = f"{spec.b.row}.{spec.b.column}.{spec.b.kind}.{spec.b.pair}"
        name = f"pack.{spec.k}x{spec.n}.{layout}.{plan.panel_kind}.{tile.vectors}x{tile.lanes}"
        params = KernelParams(("b", "packed"))
        stage = Stage(name, params.buffers, (), plan.column_tiles, spec.k * tile.columns)
        if self.module.has_function(name):
            return stage
        packers = self._emit_pack_functions(plan, f"{name}.panel")
        b = FunctionBuilder(self.module, name, params.list, internal=False)
        for packer, (segment, _) in zip(packers, plan.column_segments, strict=True):
            with tile_loop(b, segment, b.args["begin"], b.args["end"], "panel") as (_, column):
                source = b.gep(b.args["b"], affine(b, [(column, spec.b.column)]), LType(spec.b.kind))
                to = b.gep(b.args["packed"], affine(b, [(column, self._panel_depth(plan))]), LType(plan.panel_kind))
                b.call(packer, LType("void"), source, to, i64(spec.k))
        b.finish()
        return stage

    def _kernels(self, plan: Schedule, packs: bool = False) -> list[list[tuple[MicroKernel, str]]]:
        """The micro-kernel of each (row segment, column segment), emitted. `packs`: those that pack B, of the row segments in which it may be to do."""
        spec, partial = self.spec, plan.splits > 1
        a_row, a_k = {
            "no": (spec.a.row, spec.a.column),
            "rows": (self._a_pitch(plan), 1),
            "columns": (1, self._a_pitch(plan)),
        }[plan.pack_a]
        c_row = spec.n if partial else spec.c.row
        multiple = math.gcd(plan.depth, plan.split_depth, spec.k)
        static = plan.passes == 1 and plan.splits * plan.split_depth == max(spec.k, 0)
        table = []
        in_place = packs or plan.pack_b == "no"
        for i, rows in enumerate(plan.row_segments[:1] if packs and plan.grid[1] == 1 else plan.row_segments):
            line = []
            for j, (_, columns) in enumerate(plan.column_segments):
                b_k = spec.b.row if in_place else columns.padded
                steps = range(rows.size)
                kernel = MicroKernel(
                    spec.kind,
                    columns,
                    tuple(a_row * s for s in steps),
                    tuple(c_row * s for s in steps),
                    tuple(steps),
                    (Level(spec.k // plan.splits if static else "count", a_k, b_k, multiple),),
                    spec.a.kind if plan.pack_a == "no" else spec.packed_kind,
                    spec.b.kind if in_place else plan.panel_kind,
                    spec.kind if partial else spec.c.kind,
                    b_packed=not in_place,
                    resumes=plan.passes > 1,
                    batch_rows=self.batch_rows,
                    paired=spec.paired,
                    ahead=elements_ahead(spec, plan, self.target),
                    next_tile=next_tile(spec, plan, rows.size),
                    streams=self._streams(plan),
                    rows_ahead=plan.rows_ahead if in_place else 0,
                    packs=packs,
                    past=spec.c.past,
                    fetch=None if packs else fetch_of(spec, plan),
                )
                name = emit_micro(
                    self.module,
                    f"{self.name}.{'pack' if packs else 'micro'}{i}{j}",
                    kernel,
                    None if partial else self.epilogue,
                    () if partial else self.extra,
                )
                line.append((kernel, name))
            table.append(line)
        return table

    def _emit_main(self, plan: Schedule, blocks: int) -> Stage:
        spec, partial = self.spec, plan.splits > 1
        kernels, packing = self._kernels(plan), self._kernels(plan, packs=True) if plan.packs_meanwhile else []
        packers = self._emit_pack_functions(plan, f"{self.name}.pack") if plan.pack_b == "block" and not plan.packs_meanwhile else []
        scratch = self._scratch(plan)[1] > 0
        buffers = (
            "a",
            "packed" if plan.pack_b == "shared" else "b",
            "partial" if partial else "c",
            *(("scratch",) * scratch),
        )
        extra = () if partial else tuple(self.extra)
        params = KernelParams(buffers, extra)
        b = FunctionBuilder(
            self.module, f"{self.name}.part" if partial else self.name, params.list, internal=False
        )
        backwards = self._turn(b, plan) if self._turns_back(plan) else None
        first, past = strips(b, plan)
        with b.loop(first, past, name="strip") as loop:
            strip = loop.index
            if backwards is not None:
                strip = b.select(backwards, b.sub(b.add(first, b.sub(past, i64(1))), strip), strip)
            if plan.grid[1] == 1:
                _Block(self, plan, b, strip, (i64(0), i64(1)), None, kernels, packing, packers, extra).emit()
            else:
                top, bottom = blocks_of_strip(b, plan, strip)
                with b.loop(top, bottom, plan.together, name="block") as block:
                    stop = b.binary("smin", b.add(block.index, i64(plan.together)), bottom)
                    is_first = b.icmp("eq", block.index, top)
                    _Block(self, plan, b, strip, (block.index, stop), is_first, kernels, packing, packers, extra).emit()
        return Stage(b.finish(), buffers, tuple(n for n, _ in extra), blocks, spec.flops // blocks)

    def _turn(self, b: FunctionBuilder, plan: Schedule) -> Val:
        """An i1: whether this time is the other direction's. Kept behind the panels, in a word of which only that counts."""
        place = b.gep(b.args["packed"], self._packed_bytes(plan), I8)
        before = b.load_atomic(place, I64, "monotonic")
        b.store_atomic(b.xor(before, i64(1)), place, "monotonic")
        return b.icmp("ne", b.and_(before, i64(1)), i64(0))

    def _emit_sum(self, plan: Schedule) -> Stage:
        """Adds the partial products in order, a row of the output at a time."""
        spec = self.spec

        def locate(b: FunctionBuilder, row: Val) -> tuple[Val, Val]:
            *batch, m = split_index(b, row, (*spec.batch, spec.m))
            offset = affine(b, [(m, spec.c.row), *zip(batch, spec.c.batch, strict=True)])
            return offset, batch_of(b, row, self.batch_rows)

        total = PartialSum(
            math.prod(spec.batch) * spec.m,
            spec.n,
            plan.splits,
            spec.kind,
            spec.c.kind,
            self.target.lanes(spec.kind),
            "c",
        )
        return emit_row_sum(self.module, self.name, total, locate, self.epilogue, self.extra)


@dataclass(frozen=True)
class _Pass:
    """Reduction steps k .. k + count of a block: where its operands and its output begin, and which columns it has."""

    a: Val
    right: Val  # B where it lies, or where it has been packed for all
    panels: Val
    c: Val
    columns: tuple[Val, Val]  # column tiles, the last one exclusive
    base_row: Val
    k: Val
    count: Val
    resume: Val | None = None
    last: Val | None = None


@dataclass(frozen=True)
class _Block:
    """Emits the work of blocks one below another, which a thread carries out as one."""

    owner: _BlockedMatmul
    plan: Schedule
    b: FunctionBuilder
    strip: Val  # counts the strips of blocks one below another
    down: tuple[Val, Val]  # those of the strip that are carried out now, the last one exclusive
    is_first: Val | None  # an i1: whether the thread carries out no block of the strip before; None: always
    kernels: list[list[tuple[MicroKernel, str]]]
    packing: list[list[tuple[MicroKernel, str]]]  # those which pack B as they read it
    packers: list[str]  # if no tile does
    extra: Extra

    def emit(self) -> None:
        b, plan, spec = self.b, self.plan, self.owner.spec
        split, *batch, across = split_index(b, self.strip, (plan.splits, *spec.batch, plan.grid[0]))
        top, past = self.down
        if plan.mirrored:
            across, top = balanced(b, across, plan.grid[0]), balanced(b, top, plan.grid[1])
            past = b.add(top, i64(1))
        columns = even_range(b, across, plan.columns_per_block, plan.column_tiles)
        rows = even_range(b, top, plan.rows_per_block, plan.row_tiles, past)
        a_at = affine(b, [*zip(batch, spec.a.batch, strict=True), (split, plan.split_depth * spec.a.column)])
        b_at = affine(b, [*zip(batch, spec.b.batch, strict=True), (split, plan.split_depth * spec.b.row)])
        linear = affine(b, [(x, math.prod(spec.batch[d + 1 :])) for d, x in enumerate(batch)])
        if plan.splits > 1:
            c_at = affine(b, [(linear, spec.m * spec.n), (split, math.prod(spec.batch) * spec.m * spec.n)])
        else:
            c_at = affine(b, list(zip(batch, spec.c.batch, strict=True)))
        a = b.gep(b.args["a"], a_at, LType(spec.a.kind))
        c = b.gep(
            b.args["partial" if plan.splits > 1 else "c"],
            c_at,
            LType(spec.kind if plan.splits > 1 else spec.c.kind),
        )
        right = b.args["packed"] if plan.pack_b == "shared" else b.gep(b.args["b"], b_at, LType(spec.b.kind))
        base_row = affine(b, [(linear, spec.m)])
        length: Val = i64(spec.k)
        if plan.splits > 1:
            left_over = b.sub(i64(spec.k), b.mul(split, i64(plan.split_depth)))
            length = b.binary("smin", left_over, i64(plan.split_depth))
        if plan.passes == 1:
            self._pass(_Pass(a, right, self._panels(right, i64(0)), c, columns, base_row, i64(0), length), rows)
            return
        with b.loop(0, length, plan.depth, name="pass", at_least_once=True) as loop:
            count = b.binary("smin", i64(plan.depth), b.sub(length, loop.index))
            resume = b.cast(b.icmp("sgt", loop.index, i64(0)), LType("i64"))
            last = b.cast(b.icmp("sge", b.add(loop.index, i64(plan.depth)), length), LType("i64"))
            panels = self._panels(right, loop.index)
            self._pass(_Pass(a, right, panels, c, columns, base_row, loop.index, count, resume, last), rows)

    def _panels(self, right: Val, k: Val) -> Val:
        """Where the panels of a pass begin, or what the tiles read instead."""
        b, plan = self.b, self.plan
        if plan.pack_b != "block":
            return right
        panels = b.gep(b.args["scratch"], self.owner._scratch(plan)[0], I8)
        if self.owner._kept_passes(plan) == 1:
            return panels
        return b.gep(panels, b.mul(k, i64(plan.columns_per_block * plan.tile.columns)), LType(self.owner.spec.kind))

    def _pass(self, p: _Pass, rows: tuple[Val, Val]) -> None:
        """One pass over the block: row tiles rows[0] .. rows[1]."""
        b, plan = self.b, self.plan
        # Later row blocks of the same columns find the panels where the first one has left them.
        is_first = self.is_first if self.owner._kept_passes(plan) == plan.passes else None
        if plan.pack_b == "block" and not plan.packs_meanwhile:
            with contextlib.nullcontext() if is_first is None else b.if_then(is_first):
                self._pack_slab(p)
        if plan.pack_a != "columns":
            self._tiles(p, self._first_tile(p, rows, rows[0], is_first), rows[0])
            return
        spec, group = self.owner.spec, self.owner._group(plan)
        with b.loop(rows[0], rows[1], group, name="group") as loop:
            high = b.binary("smin", b.add(loop.index, i64(group)), rows[1])
            self._copy_columns(b.gep(p.a, affine(b, [(p.k, spec.a.column)]), LType(spec.a.kind)), p.count, loop.index, high)
            begins = b.icmp("eq", loop.index, rows[0])
            is_first = begins if is_first is None else b.and_(begins, is_first)
            self._tiles(p, self._first_tile(p, (loop.index, high), loop.index, is_first), loop.index)

    def _first_tile(self, p: _Pass, rows: tuple[Val, Val], low: Val, is_first: Val | None) -> tuple[Val, Val]:
        """Has the first row tile pack B, if that is its work here (`is_first`; None: yes); returns the row tiles that remain."""
        b = self.b
        if not self.plan.packs_meanwhile:
            return rows
        second = b.add(rows[0], i64(1))
        with contextlib.nullcontext() if is_first is None else b.if_then(is_first):
            self._tiles(p, (rows[0], second), low, packs=True)
        return second if is_first is None else b.select(is_first, second, rows[0]), rows[1]

    def _tiles(self, p: _Pass, rows: tuple[Val, Val], low: Val, packs: bool = False) -> None:
        """All register tiles with row tiles rows[0] .. rows[1]; the copies of A begin with row tile `low`. `packs`: they pack B, which they read where
        it lies.
        """
        b, plan, spec = self.b, self.plan, self.owner.spec
        partial = plan.splits > 1
        table = self.packing if packs else self.kernels
        for row_segment, kernels in zip(plan.row_segments[: len(table)], table, strict=True):
            with tile_loop(b, row_segment, *rows, "rows") as (tile, row):
                if plan.pack_a == "columns":
                    a_at = self._column_panel(tile, low)
                else:
                    a_at = b.gep(p.a, affine(b, [(row, spec.a.row), (p.k, spec.a.column)]), LType(spec.a.kind))
                if plan.pack_a == "rows":
                    a_at = self._copy_rows(a_at, row_segment.size, p.count)
                c_row = b.gep(
                    p.c,
                    affine(b, [(row, spec.n if partial else spec.c.row)]),
                    LType(spec.kind if partial else spec.c.kind),
                )
                linear_row = row if p.base_row.text == "0" else b.add(p.base_row, row)
                used = p.columns
                if plan.mirrored:
                    diagonal = b.div(b.add(row, i64(row_segment.size - 1)), i64(plan.tile.columns), signed=False)
                    used = used[0], b.binary("smin", used[1], b.add(diagonal, i64(1)))
                for (kernel, name), (segment, shape) in zip(kernels, plan.column_segments, strict=True):
                    with tile_loop(b, segment, *used, "columns") as (_, column):
                        panel = self._panel_at(p, column, shape)
                        call_micro(
                            b,
                            name,
                            kernel,
                            a_at,
                            self._in_place(p, column) if packs else panel,
                            b.gep(c_row, column, LType(kernel.c_kind)),
                            counts={"count": p.count},
                            resume=p.resume,
                            last=p.last,
                            row=linear_row,
                            column=column,
                            extra=self.extra,
                            panel=panel if packs else None,
                            later=None if kernel.fetch is None else self._later(p, column, b.sub(tile, rows[0]), kernel.fetch),
                        )

    def _later(self, p: _Pass, column: Val, turn: Val, fetch: Fetch) -> Val:
        return fetched_from(self.b, self.owner.spec, self.plan, fetch, self._in_place(p, column), turn, (p.k, p.count), p.last)

    def _in_place(self, p: _Pass, column: Val) -> Val:
        b, spec = self.b, self.owner.spec
        return b.gep(p.right, affine(b, [(p.k, spec.b.row), (column, spec.b.column if spec.n > 1 else 0)]), LType(spec.b.kind))

    def _panel_at(self, p: _Pass, column: Val, shape: Columns) -> Val:
        """What the tiles of a column read of B."""
        b, plan, spec = self.b, self.plan, self.owner.spec
        depth = self.owner._panel_depth(plan)
        if plan.pack_b == "no":
            return self._in_place(p, column)
        if plan.pack_b == "shared":
            return b.gep(p.panels, affine(b, [(column, depth), (p.k, shape.padded)]), LType(plan.panel_kind))
        first = affine(b, [(p.columns[0], plan.tile.columns)])
        within = column if first.text == "0" else b.sub(column, first)
        return b.gep(p.panels, affine(b, [(within, depth)]), LType(spec.kind))

    def _pack_slab(self, p: _Pass) -> None:
        b, spec = self.b, self.owner.spec
        if spec.b.column != 1 or spec.b.row * LType(spec.b.kind).bytes < _LONG_STEP:
            self._pack_panels(p, i64(0), p.count)
            return
        steps = _STEPS_AT_ONCE[spec.b_aliases and has_few_ways(self.owner.target)]
        with b.loop(0, p.count, steps, name="slab") as loop:
            self._pack_panels(p, loop.index, b.binary("smin", i64(steps), b.sub(p.count, loop.index)))

    def _pack_panels(self, p: _Pass, first: Val, count: Val) -> None:
        """Reduction steps first .. first + count of the pass, of all panels of the slab."""
        b, plan, spec = self.b, self.plan, self.owner.spec
        for packer, (segment, shape) in zip(self.packers, plan.column_segments, strict=True):
            with tile_loop(b, segment, *p.columns, "pack") as (_, column):
                source = b.gep(p.right, affine(b, [(b.add(p.k, first), spec.b.row), (column, spec.b.column)]), LType(spec.b.kind))
                to = b.gep(self._panel_at(p, column, shape), affine(b, [(first, shape.padded)]), LType(plan.panel_kind))
                b.call(packer, LType("void"), source, to, count)

    def _column_panel(self, tile: Val, first: Val) -> Val:
        """The copy of row tile `tile` of a transposed A, in the group that begins at tile `first`."""
        b, plan = self.b, self.plan
        at = b.mul(b.sub(tile, first), i64(self.owner._a_panel(plan)))
        return b.gep(b.args["scratch"], at, LType(self.owner.spec.kind))

    def _copy_columns(self, a: Val, count: Val, low: Val, high: Val) -> None:
        """Copies row tiles low .. high of a transposed A, each to a panel of its own; k outermost, to read
        whole cache lines.
        """
        b, plan, spec = self.b, self.plan, self.owner.spec
        element, group = LType(spec.a.kind), self.owner._group(plan)
        whole = b.icmp("eq", b.sub(high, low), i64(group))
        with b.loop(0, count, name="copy") as k:
            source = b.gep(a, b.mul(k.index, i64(spec.a.column)), element)
            if spec.a.column * element.bytes >= _LONG_STEP:
                start = b.gep(source, b.mul(low, i64(plan.tile.rows)), element)
                for at in range(0, group * plan.tile.rows, LINE_BYTES // element.bytes):
                    prefetch(b, displaced(b, start, STEPS_AHEAD * spec.a.column + at, element))
            to = b.gep(b.args["scratch"], b.mul(k.index, i64(self.owner._a_pitch(plan))), LType(spec.kind))
            for segment in plan.row_segments:
                self._copy_tiles(segment, source, to, (low, high), whole)

    def _copy_tiles(self, segment: Segment, source: Val, to: Val, tiles: tuple[Val, Val], whole: Val) -> None:
        """One reduction step of those of the tiles that lie in a segment. `whole`: whether they are a whole group, whose copies are written out."""
        b, group, panel, kind = self.b, self.owner._group(self.plan), self.owner._a_panel(self.plan), LType(self.owner.spec.kind)
        first, past = segment.first, segment.first + segment.tiles

        def each() -> None:
            with tile_loop(b, segment, *tiles, "copy.tile") as (tile, row):
                at = b.gep(to, b.mul(b.sub(tile, tiles[0]), i64(panel)), kind)
                self._copy_rows_of_step(b.gep(source, row, LType(self.owner.spec.a.kind)), at, segment.size)

        def all_of_them() -> None:
            row = affine(b, [(b.sub(tiles[0], i64(first)), segment.size)])
            begin = b.gep(source, b.add(row, i64(segment.start)), LType(self.owner.spec.a.kind))
            for t in range(group):
                at = b.gep(begin, t * segment.size, LType(self.owner.spec.a.kind))
                self._copy_rows_of_step(at, b.gep(to, t * panel, kind), segment.size)

        if segment.tiles < group:
            each()
            return
        inside = b.and_(b.icmp("sge", tiles[0], i64(first)), b.icmp("sle", tiles[1], i64(past)))
        b.if_else(b.and_(whole, inside), all_of_them, each)

    def _copy_rows_of_step(self, source: Val, to: Val, rows: int) -> None:
        spec = self.owner.spec
        copy_run(self.b, source, to, rows, spec.a.kind, spec.packed_kind, self.owner.target.lanes(spec.kind), spec.a.pair)

    def _copy_rows(self, a: Val, rows: int, count: Val) -> Val:
        """Copies the rows of one tile next to each other, converting them."""
        b, plan, spec = self.b, self.plan, self.owner.spec
        lanes, pitch, to = self.owner.target.lanes(spec.kind), self.owner._a_pitch(plan), b.args["scratch"]
        with b.loop(0, rows, name="copy", at_least_once=True) as row:
            source = b.gep(a, b.mul(row.index, i64(spec.a.row)), LType(spec.a.kind))
            copy_run(
                b,
                source,
                b.gep(to, b.mul(row.index, i64(pitch)), LType(spec.kind)),
                count,
                spec.a.kind,
                spec.kind,
                lanes,
            )
        return to
