"""Matrix products with tile registers (AMX), of bfloats, and of halves and floats as sums of bfloats, with a fused epilogue.

Enters: a `MatmulSpec` and its `TileSchedule`. Leaves: functions in the module and the `Plan` to call them. A block packs what it needs of B, pass by pass,
and of A, row tile by row tile (llvm/tile_panels.py); a micro-kernel multiplies a panel of each into four registers of sums, whose vectors then end as
those of any micro-kernel. Where a panel has a number that its parts do not add up to, an infinity or NaN as a rule, or where all its numbers are so small,
or its products so large, that parts or products of them would vanish or overflow, the sums of its tiles are computed from the operands themselves instead.

The products of two floats leave out what parts contribute that is less than 2**-22 of |a||b| (`TileSchedule.products`). In 32 steps, sums of even and of odd
ones are rounded in each, and added at the end. Of a panel with both numbers below 2**-103 and larger ones, the small ones lose digits: they count as multiples
of 2**-126.

Reference: G. Henry, P. T. P. Tang, A. Heinecke, "Leveraging the bfloat16 artificial intelligence datatype for higher-precision computations", ARITH 2019.
"""

from __future__ import annotations

import contextlib
import functools
import math
from dataclasses import replace

from graphcell.codegen.llvm import tile_registers as tiles
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
    ceil_div,
    even_range,
    split_index,
    tile_loop,
)
from graphcell.codegen.llvm.matmul_spec import MatmulSpec
from graphcell.codegen.llvm.matmul_tiles_schedule import TILE, TileSchedule
from graphcell.codegen.llvm.microkernel import Level, MicroKernel, call_micro, emit_finish, emit_micro
from graphcell.codegen.llvm.packing import displaced, emit_pack_panel, prefetch
from graphcell.codegen.llvm.text import I8, I64, PTR, VOID, FunctionBuilder, LType, Module, Val, const, i64
from graphcell.codegen.llvm.tile_panels import LARGEST, NO_BITS, Panel, clear_largest, emit_pack, keep_largest, pack_row, panel_bytes
from graphcell.records import dataclass

_LANES = tiles.TILE_ROWS
_SUMS_BYTES = TILE * TILE * 4
_ROWS_AT_ONCE = 4  # whose vectors end together
_ROWS_OF_PLAIN, _STEPS_OF_PLAIN = 8, 256  # that are computed at once without tiles, and for which columns are copied: 32 KB
_SMALL, _LARGE = 2.0**-100, 2.0**126
"""Below the first, parts of a number or of a product of numbers may vanish; from the second on, sums of parts may overflow before those of numbers do."""
_LEFT, _RIGHT = (4, 5), (6, 7)  # the registers of the operands; the sums are before them
_FLOAT = LType("float")


@dataclass(frozen=True)
class TileMatmul:
    """Emits the functions of a product."""

    module: Module
    name: str
    spec: MatmulSpec
    plan: TileSchedule
    target: ContractionTarget
    epilogue: Epilogue | None
    extra: Extra
    batch_rows: int

    def emit(self) -> Plan:
        spec, plan = self.spec, self.plan
        stages, shared = [], []
        if plan.pack_b == "shared":
            shared.append(("packed", plan.column_tiles * self.panel_of_b))
            stages.append(self.emit_shared_pack())
        stages.append(self._emit_main())
        note = ", ".join([str(plan), *["written past the caches"] * spec.c.past])
        return Plan(tuple(stages), tuple(shared), self._scratch, note)

    @property
    def panel_of_a(self) -> int:
        """Bytes of the panel of A, without its largest bits."""
        return panel_bytes(self.spec.a.kind, self.plan.depth) - LINE_BYTES

    @property
    def before_sums(self) -> int:
        """Bytes of scratch memory before the sums: the panel of A, or two of them, and the largest bits of each row tile."""
        return self.panel_of_a * (2 if self.plan.meanwhile else 1) + self.plan.rows_per_block * LINE_BYTES

    @property
    def before_panels(self) -> int:
        """Bytes of scratch memory before the panels of B: sums, of all tiles of a block if k is in parts, are between them."""
        return self.before_sums + (self.plan.rows_per_block * self.plan.columns_per_block if self.plan.passes > 1 else 1) * _SUMS_BYTES

    @property
    def panel_of_b(self) -> int:
        """Bytes of a panel of B, with its largest bits."""
        return panel_bytes(self.spec.b.kind, self.spec.k if self.plan.pack_b == "shared" else self.plan.depth)

    @property
    def _scratch(self) -> int:
        panels = self.plan.columns_per_block * self.panel_of_b if self.plan.pack_b == "block" else 0
        return self.before_panels + panels + self.gathered_bytes

    @property
    def lines_asked_for(self) -> int:
        """Lines of the next row tile of A, of 32 in a group of steps, that a micro-kernel asks for, so that those beside each other ask for all."""
        return 0 if self.gathered_bytes else ceil_div(tiles.TILE_STEPS, self.plan.columns_per_block)

    @property
    def reads_b(self) -> bool:
        """Whether blocks read B where it lies: to pack it, or to compute sums again."""
        return self.plan.pack_b == "block" or self.plan.parts > 1

    def emit_gather(self, name: str, rows: int) -> str:
        """Emits `void name(ptr a, ptr to, row, k, count)`, which puts `count` steps of some rows next to each other, if A does not lie in rows; or nothing,
        and returns no name.
        """
        return ""

    @property
    def gathered_bytes(self) -> int:
        """Scratch memory for what is gathered."""
        return 0

    @property
    def before_gathered(self) -> int:
        return self._scratch - self.gathered_bytes

    def panel_of_rows(self, segment: Segment) -> Panel:
        """Where rows are packed beside the work on others, all panels are as for a whole row tile."""
        a = self.spec.a
        return Panel(a.kind, a.row, a.column, segment.size, False, 2 if self.plan.meanwhile else 0)

    def panel_of_columns(self, segment: Segment) -> Panel:
        b = self.spec.b
        return Panel(b.kind, b.column, b.row, segment.size, right=True)

    def _packers_of_b(self, name: str) -> list[str]:
        return [emit_pack(self.module, f"{name}{j}", self.panel_of_columns(segment)) for j, (segment, _) in enumerate(self.plan.column_segments)]

    def pack_columns(self, b: FunctionBuilder, packers: list[str], columns: tuple[Val, Val], source: Val, panels: Val, count: Val) -> None:
        """Packs column tiles of B, `count` steps from `source` on. Their largest bits are cleared before. Where a row of B is contiguous, a group of rows
        of all tiles comes before the next one.
        """
        spec = self.spec
        turns = spec.b.column != 1

        def pack(start: Val, group: Val, steps: Val) -> None:
            for packer, (segment, _) in zip(packers, self.plan.column_segments, strict=True):
                with tile_loop(b, segment, *columns, "pack") as (tile, column):
                    panel = b.gep(panels, affine(b, [(_less(b, tile, columns[0]), self.panel_of_b)]), I8)
                    to = b.gep(panel, affine(b, [(group, self.panel_of_columns(segment).group_bytes // tiles.TILE_STEPS)]), I8)
                    largest = b.gep(panel, self.panel_of_b - LINE_BYTES, I8)
                    b.call(packer, VOID, b.gep(start, affine(b, [(column, spec.b.column)]), LType(spec.b.kind)), to, largest, steps)

        if turns:
            pack(source, i64(0), count)
            return
        with b.loop(0, count, tiles.TILE_STEPS, name="group", at_least_once=True) as k:
            start = b.gep(source, affine(b, [(k.index, spec.b.row)]), LType(spec.b.kind))
            pack(start, k.index, b.binary("smin", b.sub(count, k.index), i64(tiles.TILE_STEPS)))

    def clear_largest_of_columns(self, b: FunctionBuilder, columns: tuple[Val, Val], panels: Val) -> None:
        """Before column tiles of B are packed."""
        with b.loop(*columns, name="clear") as tile:
            clear_largest(b, b.gep(panels, affine(b, [(_less(b, tile.index, columns[0]), self.panel_of_b)], self.panel_of_b - LINE_BYTES), I8))

    def emit_shared_pack(self) -> Stage:
        """Packs all of B. Its name says all that it depends on: products of the same matrix, with whatever epilogue, share it."""
        spec = self.spec
        name = f"pack.tiles.{spec.k}x{spec.n}.{spec.b.row}.{spec.b.column}.{spec.b.kind}"
        params = KernelParams(("b", "packed"))
        stage = Stage(name, params.buffers, (), self.plan.column_tiles, spec.k * TILE)
        if self.module.has_function(name):
            return stage
        packers = self._packers_of_b(f"{name}.panel")
        b = FunctionBuilder(self.module, name, params.list, internal=False)
        begin, end = b.args["begin"], b.args["end"]
        panels = b.gep(b.args["packed"], affine(b, [(begin, self.panel_of_b)]), I8)
        self.clear_largest_of_columns(b, (begin, end), panels)
        self.pack_columns(b, packers, (begin, end), b.args["b"], panels, i64(spec.k))
        b.finish()
        return stage

    def _emit_main(self) -> Stage:
        spec, plan = self.spec, self.plan
        shares = plan.pack_b == "shared"
        buffers = ("a", *(("packed",) * shares), *(("b",) * self.reads_b), "c", "scratch")
        extra = tuple(self.extra)
        across = tuple(enumerate(plan.column_segments))
        pairs = [[_Tile(self, f"{self.name}.tile{i}{j}", rows, *columns) for j, columns in across] for i, rows in enumerate(plan.row_segments)]
        products, ends = [[tile.emit_products() for tile in line] for line in pairs], [[tile.emit_end() for tile in line] for line in pairs]
        rows = [emit_pack(self.module, f"{self.name}.rows{i}", self.panel_of_rows(segment)) for i, segment in enumerate(plan.row_segments)]
        gathers = [self.emit_gather(f"{self.name}.gather{i}", segment.size) for i, segment in enumerate(plan.row_segments)]
        columns = [] if shares else self._packers_of_b(f"{self.name}.columns")
        blocks = math.prod(spec.batch) * math.prod(plan.grid)
        b = FunctionBuilder(self.module, self.name, KernelParams(buffers, extra).list, internal=False)
        tiles.configure(b)
        with b.loop(b.args["begin"], b.args["end"], name="block") as block:
            _Block(self, b, block.index, products, ends, gathers, rows, columns).emit()
        tiles.release(b)
        return Stage(b.finish(), buffers, tuple(n for n, _ in extra), blocks, spec.flops // blocks)


@dataclass(frozen=True)
class _Operands:
    """What a block works on: where its matrices begin, its row tiles and column tiles, and what comes before its first row in the epilogue's count."""

    a: Val
    b: Val
    c: Val
    rows: tuple[Val, Val]
    columns: tuple[Val, Val]
    base_row: Val


@dataclass(frozen=True)
class _Block:
    """Emits the work of a block."""

    owner: TileMatmul
    b: FunctionBuilder
    number: Val
    products: list[list[str]]  # of each row segment and column segment
    ends: list[list[str]]
    gathers: list[str]  # of each row segment; empty names: rows are packed from where they lie
    row_packers: list[str]
    column_packers: list[str]

    def emit(self) -> None:
        b, plan, spec = self.b, self.owner.plan, self.owner.spec
        *batch, across, down = split_index(b, self.number, (*spec.batch, *plan.grid))
        columns = even_range(b, across, plan.columns_per_block, plan.column_tiles)
        rows = even_range(b, down, plan.rows_per_block, plan.row_tiles)
        a, right, c = (
            b.gep(b.args.get(name, b.args["a"]), affine(b, list(zip(batch, operand.batch, strict=True))), LType(operand.kind))
            for name, operand in (("a", spec.a), ("b", spec.b), ("c", spec.c))
        )
        linear = affine(b, [(x, math.prod(spec.batch[d + 1 :])) for d, x in enumerate(batch)])
        base_row = affine(b, [(linear, spec.m)])
        for_all = _Operands(a, right, c, rows, columns, base_row)
        with b.loop(*rows, name="clear") as tile:
            clear_largest(b, self._largest_of_rows(_less(b, tile.index, rows[0])))
        if self.column_packers:
            self.owner.clear_largest_of_columns(b, columns, self._panel(i64(0))[0])
        if plan.passes == 1:
            self._pass(for_all, i64(0), i64(spec.k))
            return
        with b.loop(0, spec.k, plan.depth, name="pass", at_least_once=True) as loop:
            self._pass(for_all, loop.index, b.binary("smin", b.sub(i64(spec.k), loop.index), i64(plan.depth)))

    def _pass(self, on: _Operands, k: Val, count: Val) -> None:
        """Reduction steps k .. k + count of the block."""
        b, owner, plan, spec = self.b, self.owner, self.owner.plan, self.owner.spec
        if self.column_packers:
            right = b.gep(on.b, affine(b, [(k, spec.b.row)]), LType(spec.b.kind))
            owner.pack_columns(b, self.column_packers, on.columns, right, self._panel(i64(0))[0], count)
        is_last = None if plan.passes == 1 else b.icmp("eq", b.add(k, count), i64(spec.k))
        for i, segment in enumerate(plan.row_segments):
            with tile_loop(b, segment, *on.rows, "rows") as (tile, row):
                self._row_tile(on, i, tile, row, k, count, is_last)

    def _row_tile(self, on: _Operands, i: int, tile: Val, row: Val, k: Val, count: Val, is_last: Val | None) -> None:
        """Those steps of a row tile of row segment `i`; `is_last`: whether they are the last ones, None: yes."""
        b, owner, plan, spec = self.b, self.owner, self.owner.plan, self.owner.spec
        down = _less(b, tile, on.rows[0])
        left, largest = b.args["scratch"], self._largest_of_rows(down)
        a = b.gep(on.a, affine(b, [(row, spec.a.row)]), LType(spec.a.kind))
        source = b.gep(a, affine(b, [(k, spec.a.column)]), LType(spec.a.kind))
        if self.gathers[i]:
            source = b.gep(left, owner.before_gathered, I8)
            b.call(self.gathers[i], VOID, on.a, source, b.add(on.base_row, row), k, count)
        with b.if_then(b.icmp("eq", down, i64(0))) if plan.meanwhile else contextlib.nullcontext():
            b.call(self.row_packers[i], VOID, source, left, largest, count)
        following = self._following(source, tile, on.rows[1], down, row) if plan.meanwhile else []
        if plan.meanwhile:
            left = b.gep(left, b.mul(b.and_(down, i64(1)), i64(owner.panel_of_a)), I8)
        begun = b.cast(b.icmp("sgt", k, i64(0)), I64, signed=False)
        c = b.gep(on.c, affine(b, [(row, spec.c.row)]), LType(spec.c.kind))
        for j, (segment, _) in enumerate(plan.column_segments):
            group = owner.panel_of_columns(segment).group_bytes
            with tile_loop(b, segment, *on.columns, "columns") as (across, column):
                turn = _less(b, across, on.columns[0])
                panel, bits = self._panel(across if plan.pack_b == "shared" else turn)
                at = b.gep(panel, affine(b, [(k, group // tiles.TILE_STEPS)]), I8) if plan.pack_b == "shared" else panel
                number = i64(0) if plan.passes == 1 else b.add(b.mul(down, i64(plan.columns_per_block)), turn)
                sums = b.gep(b.args["scratch"], affine(b, [(number, _SUMS_BYTES)], owner.before_sums), I8)
                later = [*following, b.mul(turn, i64(plan.meanwhile))] if plan.meanwhile else [self._later(source, turn)]
                b.call(self.products[i][j], VOID, left, at, sums, count, begun, *later)
                with contextlib.nullcontext() if is_last is None else b.if_then(is_last):
                    from_b = b.gep(on.b, affine(b, [(column, spec.b.column)]), LType(spec.b.kind))
                    to = b.gep(c, column, LType(spec.c.kind))
                    at_row = row if on.base_row.text == "0" else b.add(on.base_row, row)
                    b.call(self.ends[i][j], VOID, sums, to, a, from_b, largest, bits, at_row, column, *(b.args[n] for n, _ in owner.extra))

    def _largest_of_rows(self, down: Val) -> Val:
        first = self.owner.before_sums - self.owner.plan.rows_per_block * LINE_BYTES
        return self.b.gep(self.b.args["scratch"], affine(self.b, [(down, LINE_BYTES)], first), I8)

    def _following(self, source: Val, tile: Val, past: Val, down: Val, row: Val) -> list[Val]:
        """Where the next row tile of the block lies, how many rows it has, where its panel and its largest bits belong. The last one stands for what would
        follow.
        """
        b, owner, spec = self.b, self.owner, self.owner.spec
        is_last = b.icmp("sge", b.add(tile, i64(1)), past)
        source = b.gep(source, b.select(is_last, i64(0), i64(TILE * spec.a.row)), LType(spec.a.kind))
        first = b.select(is_last, row, b.add(row, i64(TILE)))
        panel = b.gep(b.args["scratch"], b.mul(b.and_(b.add(down, i64(1)), i64(1)), i64(owner.panel_of_a)), I8)
        return [source, b.sub(i64(spec.m), first), panel, self._largest_of_rows(b.select(is_last, down, b.add(down, i64(1))))]

    def _later(self, source: Val, turn: Val) -> Val:
        """What of the next row tile of A the micro-kernel asks for that is the `turn`th beside this one."""
        b, owner, a = self.b, self.owner, self.owner.spec.a
        line = b.rem(b.mul(turn, i64(owner.lines_asked_for)), i64(tiles.TILE_STEPS), signed=False)
        return displaced(b, source, affine(b, [(line, max(a.row, a.column))], TILE * a.row), LType(a.kind))

    def _panel(self, number: Val) -> tuple[Val, Val]:
        """A panel of B, of all or of those of the block, and the largest bits in it."""
        b, size = self.b, self.owner.panel_of_b
        panels = b.args["packed"] if self.owner.plan.pack_b == "shared" else b.gep(b.args["scratch"], self.owner.before_panels, I8)
        panel = b.gep(panels, affine(b, [(number, size)]), I8)
        return panel, b.gep(panel, size - LINE_BYTES, I8)


@dataclass(frozen=True)
class _Tile:
    """Emits the product of a panel of rows and one of columns, and what follows it."""

    owner: TileMatmul
    name: str
    rows: Segment
    columns: Segment
    shape: Columns

    def emit_products(self) -> str:
        """Emits `void name(ptr left, ptr right, ptr sums, count, begun, later...)`: the sums of `count` steps, or what these add to them if they are
        `begun`. What is `later` is a pointer to what is asked for meanwhile of the next row tile, or where that lies, its rows, its panel, its largest
        bits, and the first row that is packed.
        """
        owner, meanwhile = self.owner, self.owner.plan.meanwhile
        left, right = owner.panel_of_rows(self.rows), owner.panel_of_columns(self.columns)
        down, across = range(left.tiles), range(right.tiles)
        later = [("later", PTR), ("rows", I64), ("panel", PTR), ("bits", PTR), ("first", I64)] if meanwhile else [("later", PTR)]
        params = [*((name, PTR) for name in ("left", "right", "sums")), ("count", I64), ("begun", I64), *later]
        b = FunctionBuilder(owner.module, f"{self.name}.products", params, attributes="nounwind noinline")
        places = [(2 * h + g, b.gep(b.args["sums"], h * tiles.TILE_ROWS * TILE + g * _LANES, _FLOAT)) for h in down for g in across]

        def begin() -> None:
            for tile, _ in places:
                tiles.clear(b, tile)

        def resume() -> None:
            for tile, place in places:
                tiles.load_tile(b, tile, place, TILE * _FLOAT.bytes)

        b.if_else(b.icmp("eq", b.args["begun"], i64(0)), begin, resume)
        groups = b.div(b.add(b.args["count"], i64(tiles.TILE_STEPS - 1)), i64(tiles.TILE_STEPS), signed=False)
        lines = self._lines(b)
        largest = [NO_BITS] * (meanwhile > 0)
        with b.loop(0, groups, carried=[b.args["left"], b.args["right"], *largest], name="k", at_least_once=True) as loop:
            at, other, *largest = loop.carried
            if not meanwhile:
                self._ask_for_later(b, loop.index)
            here: tuple[int, int] = -1, -1
            products = owner.plan.products
            for number, (i, j) in enumerate(products):
                for source, to in lines[number * meanwhile // len(products) : (number + 1) * meanwhile // len(products)]:
                    source = b.gep(source, b.mul(loop.index, i64(tiles.TILE_STEPS)), LType(owner.spec.a.kind))
                    to = b.gep(to, b.mul(loop.index, i64(self._whole.group_bytes)), I8)
                    largest = [pack_row(b, self._whole, source, to, *largest)]
                if i != here[0]:
                    for h in down:
                        tiles.load_tile(b, _LEFT[h], b.gep(at, left.tile_at(i, h), I8))
                if j != here[1]:
                    for g in across:
                        tiles.load_tile(b, _RIGHT[g], b.gep(other, right.tile_at(j, g), I8))
                here = i, j
                for h in down:
                    for g in across:
                        tiles.multiply_tiles(b, 2 * h + g, _LEFT[h], _RIGHT[g])
            loop.carry(b.gep(at, left.group_bytes, I8), b.gep(other, right.group_bytes, I8), *largest)
        if meanwhile and owner.plan.parts > 1:
            keep_largest(b, b.args["bits"], loop.results[2])
        for tile, place in places:
            tiles.store_tile(b, tile, place, TILE * _FLOAT.bytes)
        return b.finish()

    @property
    def _whole(self) -> Panel:
        """Of a row tile with all rows, in whose places those of one with fewer lie, too, where it is packed meanwhile."""
        return replace(self.owner.panel_of_rows(self.rows), size=TILE)

    def _lines(self, b: FunctionBuilder) -> list[tuple[Val, Val]]:
        """Rows of the next row tile that are packed meanwhile, where they lie and where they go. The last of its rows stands for those that it has not."""
        spec, found = self.owner.spec, []
        for k in range(self.owner.plan.meanwhile):
            line = b.binary("smin", b.add(b.args["first"], i64(k)), i64(TILE - 1))
            row = b.binary("smin", line, b.sub(b.args["rows"], i64(1)))
            source = b.gep(b.args["later"], b.mul(row, i64(spec.a.row)), LType(spec.a.kind))
            found.append((source, b.gep(b.args["panel"], b.mul(line, i64(tiles.ROW_BYTES)), I8)))
        return found

    def _ask_for_later(self, b: FunctionBuilder, group: Val) -> None:
        """What of the next row tile is to be packed in this group of steps: 32 rows of 32 elements, whichever way they lie."""
        a = self.owner.spec.a
        element = LType(a.kind)
        start = displaced(b, b.args["later"], affine(b, [(group, tiles.TILE_STEPS * a.column)]), element)
        for line in range(self.owner.lines_asked_for):
            for at in range(0, TILE, LINE_BYTES // element.bytes):
                prefetch(b, displaced(b, start, line * max(a.row, a.column) + at, element), 2)

    def _output(self, b: FunctionBuilder, row: Val) -> Val:
        return b.gep(b.args["c"], affine(b, [(row, self.owner.spec.c.row)]), LType(self.owner.spec.c.kind))

    def emit_end(self) -> str:
        """Emits `void name(ptr sums, ptr c, ptr a, ptr b, ptr left_bits, ptr right_bits, row, column, extra...)`: what follows the
        sums of all steps, which are computed again if the panels do not say what the operands are.
        """
        owner = self.owner
        pointers = [(name, PTR) for name in ("sums", "c", "a", "b", "left_bits", "right_bits")]
        parts = self._rows_at_once()
        plain = self._emit_plain() if owner.plan.parts > 1 else ""
        params = [*pointers, ("row", I64), ("column", I64), *owner.extra]
        b = FunctionBuilder(owner.module, f"{self.name}.end", params, attributes="nounwind noinline")
        if plain:
            with b.if_then(b.xor(self._adds_up(b), const(True, LType("i1")))):
                b.call(plain, VOID, b.args["a"], b.args["b"], b.args["sums"])
        extra = [b.args[n] for n, _ in owner.extra]
        for function, first, past in parts:
            with b.loop(first, past, min(_ROWS_AT_ONCE, past - first), name="end", at_least_once=True) as row:
                sums = b.gep(b.args["sums"], b.mul(row.index, i64(TILE)), _FLOAT)
                place = [b.add(b.args["row"], row.index), b.args["column"]]
                b.call(function, VOID, sums, self._output(b, row.index), *place, *extra)
        return b.finish()

    def _rows_at_once(self) -> list[tuple[str, int, int]]:
        """The functions that end some rows, with the first row and the one behind the last."""
        owner, size = self.owner, self.rows.size
        whole = size // _ROWS_AT_ONCE * _ROWS_AT_ONCE
        found = []
        for first, past, rows in ((0, whole, _ROWS_AT_ONCE), (whole, size, size - whole)):
            if first < past:
                steps = tuple(range(rows))
                offsets = tuple(owner.spec.c.row * step for step in steps)
                kinds = owner.spec.kind, owner.spec.kind, owner.spec.c.kind
                kernel = MicroKernel("float", self.shape, (0,) * rows, offsets, steps, (), *kinds, batch_rows=owner.batch_rows, past=owner.spec.c.past)
                found.append((emit_finish(owner.module, f"{self.name}.end{rows}", kernel, owner.epilogue, owner.extra, TILE), first, past))
        return found

    def _adds_up(self, b: FunctionBuilder) -> Val:
        """An i1: whether the panels' numbers are the sums of their parts, and products of parts are neither too small nor too large."""
        one, other = (b.reduce("umax", b.load(b.args[name], LType("i32", _LANES))) for name in ("left_bits", "right_bits"))
        largest = [b.bitcast(bits, _FLOAT) for bits in (one, other)]
        product = b.mul(*largest)
        known = b.icmp("ule", b.binary("umax", one, other), const(LARGEST, LType("i32")))
        zero = b.or_(*(b.fcmp("oeq", x, b.const(0.0, x)) for x in largest))
        within = [b.fcmp("oge", x, b.const(_SMALL, x)) for x in (*largest, product)] + [b.fcmp("olt", product, b.const(_LARGE, product))]
        return b.and_(known, b.or_(zero, functools.reduce(b.and_, within)))

    def _emit_plain(self) -> str:
        """Emits `void name(ptr a, ptr b, ptr sums)`: the sums by multiply-adds from the operands as they lie, whose columns are copied for some steps at a
        time.
        """
        spec, owner, shape = self.owner.spec, self.owner, self.shape
        pack = emit_pack_panel(owner.module, f"{self.name}.copy", shape, spec.b.row, spec.b.column, spec.b.kind, "float", False)
        whole = self.rows.size // _ROWS_OF_PLAIN * _ROWS_OF_PLAIN
        kernels = []
        for first, past in ((0, whole), (whole, self.rows.size)):
            if first < past:
                size = min(_ROWS_OF_PLAIN, past - first)
                steps, level = range(size), Level("count", spec.a.column, shape.padded)
                kinds = spec.a.kind, "float", "float"
                offsets = tuple(spec.a.row * s for s in steps), tuple(TILE * s for s in steps)
                kernel = MicroKernel("float", shape, *offsets, tuple(steps), (level,), *kinds, resumes=True)
                kernels.append((kernel, emit_micro(owner.module, f"{self.name}.plain{size}", kernel, None, ()), first, past, size))
        b = FunctionBuilder(owner.module, f"{self.name}.plain", [("a", PTR), ("b", PTR), ("sums", PTR)], attributes="nounwind noinline")
        panel = b.alloca(_FLOAT, _STEPS_OF_PLAIN * TILE)
        with b.loop(0, spec.k, _STEPS_OF_PLAIN, name="k", at_least_once=True) as k:
            count = b.binary("smin", b.sub(i64(spec.k), k.index), i64(_STEPS_OF_PLAIN))
            b.call(pack, VOID, b.gep(b.args["b"], affine(b, [(k.index, spec.b.row)]), LType(spec.b.kind)), panel, count)
            a = b.gep(b.args["a"], affine(b, [(k.index, spec.a.column)]), LType(spec.a.kind))
            flags = {"resume": b.cast(b.icmp("sgt", k.index, i64(0)), I64, signed=False), "last": i64(1)}
            for kernel, name, first, past, size in kernels:
                with b.loop(first, past, size, name="rows", at_least_once=True) as row:
                    at, to = b.gep(a, affine(b, [(row.index, spec.a.row)]), LType(spec.a.kind)), b.gep(b.args["sums"], b.mul(row.index, i64(TILE)), _FLOAT)
                    call_micro(b, name, kernel, at, panel, to, counts={"count": count}, **flags, row=row.index, column=i64(0), extra=())
        return b.finish()


def _less(b: FunctionBuilder, x: Val, y: Val) -> Val:
    return x if y.text == "0" else i64(0) if x.text == y.text else b.sub(x, y)
