"""Gradient of a convolution of known shape with respect to its weights.

Enters: a `ConvSpec`. Leaves: functions in the module and the `Plan`: dw[tap, channel, filter] = sum over pixels of x[pixel + tap, channel] *
dy[pixel, filter], through the micro-kernel of matmul: rows are channels (or taps and channels, where channels are few), vectors are
filters, and the reduction runs over output pixels in chunks whose inputs (copied with the zeros around them) and cotangents (packed into panels)
stay in the L2 cache. Where that leaves too few blocks, the chunks are divided in a fixed number of parts whose sums are added in order by
a second stage. That stage also brings the result from [kh, kw, c, k], its natural layout, to OIHW.
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
    tile_start,
    vector_registers,
)
from graphcell.codegen.llvm.correlation import Axis, ConvSpec, forward_axis
from graphcell.codegen.llvm.matmul import MatmulSpec, Operand, emit_matmul
from graphcell.codegen.llvm.microkernel import Level, MicroKernel, call_micro, emit_micro
from graphcell.codegen.llvm.packing import emit_pack_panel
from graphcell.codegen.llvm.padding import PaddedCopy
from graphcell.codegen.llvm.partial_sums import PartialSum, emit_filter_sum, emit_row_sum
from graphcell.codegen.llvm.text import FunctionBuilder, LType, Module, Val, i64

_BLOCKS_WANTED = 8
_FLOPS_PER_BLOCK = 200_000
_CHUNK_PIXELS = 384  # output pixels of a chunk: enough to pay for reading and writing the accumulators
_WORTH_EXACT = 0.98  # the part of taps that are not beyond the edge below which they are told apart
_FEW_CHANNELS = 12  # below this the rows of a tile run over taps as well


def emit_weights_gradient(module: Module, name: str, spec: ConvSpec, target: ContractionTarget, epilogue: Epilogue | None = None,
                          extra: Extra = ()) -> Plan:
    """Emits dw, the gradient of sum(dy * conv(x, w)) in w, in the layout and kind the spec gives the weights.

    Buffers x, dy, dw and, as the plan says, partial and scratch. For the epilogue the output is a matrix as it lies in memory:
    OIHW is k rows of (channel, tap row, tap), HWIO is (tap row, tap, channel) rows of k. No output pixels give zeros.
    """
    check_extra("convolution", extra)
    if 0 in (spec.k, spec.c):
        return Plan((), note="empty output")
    if spec.pointwise or 0 in (spec.n, spec.oh, spec.ow):
        return _emit_product(module, name, spec, target, epilogue, extra)
    return _Emitter(module, name, spec, schedule(spec, target), target, epilogue, extra).emit()


def _emit_product(module: Module, name: str, spec: ConvSpec, target: ContractionTarget, epilogue: Epilogue | None,
                  extra: Extra) -> Plan:
    """A 1x1 convolution, whose gradient is a matmul over all pixels; or no pixels at all."""
    pixels = spec.n * spec.oh * spec.ow
    columns = spec.c // spec.groups * spec.kh * spec.kw
    x, dy = Operand(spec.x_kind, 1, spec.c), Operand(spec.y_kind, 1, spec.k)
    if spec.weights == "HWIO":
        product = MatmulSpec(columns, spec.k, pixels, x, replace(dy, row=spec.k, column=1), Operand(spec.w_kind, spec.k, 1))
        return emit_matmul(module, name, product, target, epilogue, extra).renamed({"a": "x", "b": "dy", "c": "dw"})
    product = MatmulSpec(spec.k, columns, pixels, dy, replace(x, row=spec.c, column=1), Operand(spec.w_kind, columns, 1))
    return emit_matmul(module, name, product, target, epilogue, extra).renamed({"a": "dy", "b": "x", "c": "dw"})


@dataclass(frozen=True, slots=True)
class Rows:
    """How the rows (tap row, tap, channel) of the gradient are made of units, each a loop nest's step.

    `loops` holds, outermost first, (extent, elements further in x, rows further in dw). Within a unit row i reads
    `offsets[i]` further; `regular` says that offsets are i * offsets[1], so that tiles may begin anywhere.
    """

    loops: tuple[tuple[int, int, int], ...]
    offsets: tuple[int, ...]
    regular: bool

    @property
    def count(self) -> int:
        return len(self.offsets)


@dataclass(frozen=True, slots=True)
class Schedule:
    """How the gradient is computed; a pure function of the spec and the target.

    A block is (group, part of the chunks, slab of row tiles, slab of column tiles). A chunk is `chunk` images if `by_images`, else `chunk`
    output rows of one image. `exact` leaves out taps beyond the edge, else x is copied with zeros around it; `packs` copies dy to panels. `pitch` are distances in what is read as x: image to image, row to row, pixel to pixel.
    """

    tile: TileShape
    rows: Rows
    row_segments: tuple[Segment, ...]
    column_segments: tuple[tuple[Segment, Columns], ...]
    rows_per_slab: int
    columns_per_slab: int
    by_images: bool
    chunk: int
    chunks: int
    splits: int
    copies: bool
    exact: bool
    packs: bool
    pitch: tuple[int, int, int]
    direct: bool

    @property
    def row_tiles(self) -> int:
        return sum(s.tiles for s in self.row_segments)

    @property
    def column_tiles(self) -> int:
        return sum(s.tiles for s, _ in self.column_segments)

    @property
    def grid(self) -> tuple[int, int]:
        return ceil_div(self.row_tiles, self.rows_per_slab), ceil_div(self.column_tiles, self.columns_per_slab)

    @property
    def chunks_per_split(self) -> int:
        return ceil_div(self.chunks, self.splits)

    def __str__(self) -> str:
        unit = "images" if self.by_images else "rows"
        return (f"tile {self.row_segments[0].size}x{self.tile.vectors}x{self.tile.lanes}, units "
                f"{'x'.join(str(n) for n, _, _ in self.rows.loops) or 1} of {self.rows.count} rows, {self.chunks} chunks of {self.chunk} "
                f"{unit}, splits {self.splits}, slabs {self.grid[0]}x{self.grid[1]}, "
                f"{'padded copy' if self.copies else 'taps by pixel' if self.exact else 'in place'}")


def schedule(spec: ConvSpec, target: ContractionTarget) -> Schedule:
    """Chooses rows, tile, chunks, slabs and parts."""
    size, whole = 8 if spec.kind == "double" else 4, target.lanes(spec.kind)
    down = forward_axis(spec.oh, spec.stride[0], spec.padding[0], spec.kh, spec.dilation[0])
    across = forward_axis(spec.ow, spec.stride[1], spec.padding[2], spec.kw, spec.dilation[1])
    copies = not (down.inside(spec.h) and across.inside(spec.w)) or spec.x_kind != spec.kind
    exact = copies and _worth_exact(spec, down, across)
    copies = copies and not exact
    columns = spec.c if spec.depthwise else spec.k // spec.groups
    per_image = spec.oh * spec.ow
    by_images = per_image < _CHUNK_PIXELS // 2
    chunk = _even(spec.n, max(1, _CHUNK_PIXELS // max(per_image, 1))) if by_images else \
        _even(spec.oh, max(1, _CHUNK_PIXELS // spec.ow))
    chunks = ceil_div(spec.n, chunk) if by_images else spec.n * ceil_div(spec.oh, chunk)
    in_rows, in_pixels = down.inputs(spec.oh if by_images else chunk), across.inputs(spec.ow)
    # Rows of x in a slab: all channels unless they are many.
    channels = spec.c // spec.groups
    line = in_rows * in_pixels * (chunk if by_images else 1) * size
    in_slab = channels if spec.depthwise or channels < _FEW_CHANNELS else \
        min(channels, max(64, target.l2_bytes // 4 // max(line, 1) // whole * whole))
    pitch = (spec.h * spec.w * spec.c, spec.w * spec.c, spec.c)
    if copies:
        held = spec.c if spec.depthwise else in_slab
        pixel = held + whole if held * size % 1024 == 0 and held > whole else held
        row = round_up(in_pixels * pixel, whole)
        pitch = (in_rows * row, row, pixel)
    rows = _rows(spec, pitch, target)
    tile = choose_tile(rows.count, columns, spec.kind, target)
    row_segments = split_evenly(rows.count, tile.rows)
    if not rows.regular:
        row_segments = tuple(Segment(s.first + t, 1, s.start + t * s.size, s.size) for s in row_segments for t in range(s.tiles))
    column_segments = split_columns(columns, tile)
    row_tiles, column_tiles = sum(s.tiles for s in row_segments), sum(s.tiles for s, _ in column_segments)
    rows_per_slab = max(1, in_slab // tile.rows) if in_slab < channels else row_tiles
    pixels = chunk * (per_image if by_images else spec.ow)
    taps = spec.kh * spec.kw if rows.count == channels else 1
    block_rows = min(rows.count, rows_per_slab * tile.rows) * max(taps, math.prod(n for n, _, _ in rows.loops))
    in_l2 = [target.l2_bytes // 4 // max(1, pixels * tile.columns * size)]
    in_l2 += [target.l2_bytes // 2 // max(1, block_rows * tile.columns * size)] if chunks > 1 else []
    columns_per_slab = _even(column_tiles, max(1, *in_l2) if len(in_l2) == 1 else max(1, min(in_l2)))
    blocks = spec.groups * ceil_div(row_tiles, rows_per_slab) * ceil_div(column_tiles, columns_per_slab)
    if spec.depthwise:
        blocks = ceil_div(column_tiles, columns_per_slab)
    wanted = min(_BLOCKS_WANTED, max(1, spec.flops // _FLOPS_PER_BLOCK))
    splits = max(1, min(chunks, ceil_div(wanted, blocks)))
    splits = ceil_div(chunks, ceil_div(chunks, splits)) if chunks else 1
    reuses = min(row_tiles, rows_per_slab) * math.prod(n for n, _, _ in rows.loops)
    packs = reuses > 1 or spec.y_kind != spec.kind
    direct = splits == 1 and spec.weights == "HWIO" and (spec.w_kind == spec.kind or chunks <= 1)
    return Schedule(tile, rows, row_segments, column_segments, rows_per_slab, columns_per_slab, by_images, chunk, chunks, splits, copies,
                    exact, packs, pitch, direct)


def _worth_exact(spec: ConvSpec, down: Axis, across: Axis) -> bool:
    """Whether x can be read in place, each tap over the pixels that it has: its rows must be the channels of one tap."""
    if spec.depthwise or spec.c // spec.groups < _FEW_CHANNELS or spec.x_kind != spec.kind:
        return False
    found = [sum(len(axis.active(tap, extent)) for tap in range(axis.taps)) / (axis.taps * axis.count)
             for axis, extent in ((down, spec.h), (across, spec.w))]
    return found[0] * found[1] < _WORTH_EXACT


def _even(extent: int, most: int) -> int:
    """The size of the parts when `extent` is cut in as few parts of at most `most` as possible."""
    return ceil_div(extent, ceil_div(extent, most)) if extent else 1


def _rows(spec: ConvSpec, pitch: tuple[int, int, int], target: ContractionTarget) -> Rows:
    """Which rows make a unit: the channels of a tap; if they are few, those of a row of taps or of all taps."""
    channels = 1 if spec.depthwise else spec.c // spec.groups
    by_row, by_tap = spec.dilation[0] * pitch[1], spec.dilation[1] * pitch[2]
    in_registers = vector_registers(target) - 2
    all_taps = [i * by_row + j * by_tap + c for i in range(spec.kh) for j in range(spec.kw) for c in range(channels)]
    row_loop, tap_loop = (spec.kh, by_row, spec.kw * channels), (spec.kw, by_tap, channels)
    if (spec.depthwise or channels < _FEW_CHANNELS) and len(all_taps) <= in_registers:
        return Rows((), tuple(all_taps), False)
    if spec.depthwise and spec.kw <= in_registers:
        return Rows((row_loop,), tuple(j * by_tap for j in range(spec.kw)), True)
    if channels < _FEW_CHANNELS and by_tap == channels:
        return Rows((row_loop,), tuple(range(spec.kw * channels)), True)
    return Rows((row_loop, tap_loop), tuple(range(channels)), True)


@dataclass(frozen=True, slots=True)
class _Block:
    """What a block works on in one chunk: ranges of row and column tiles, the slab's first channel, where x and dy are read, the chunk's first
    output row, its images or rows."""

    group: Val
    split: Val
    rows: tuple[Val, Val]
    columns: tuple[Val, Val]
    channel: Val
    source: Val
    cotangent: Val
    row: Val
    count: Val
    resume: Val
    last: Val


@dataclass(frozen=True)
class _Emitter:
    module: Module
    name: str
    spec: ConvSpec
    plan: Schedule
    target: ContractionTarget
    epilogue: Epilogue | None
    extra: Extra

    @property
    def _size(self) -> int:
        return 8 if self.spec.kind == "double" else 4

    @property
    def _matrix(self) -> tuple[int, int]:
        """Rows and columns of the gradient in [tap, channel] x [filter] form."""
        return self.spec.kh * self.spec.kw * (self.spec.c // self.spec.groups), self.spec.k

    @property
    def _chunk_pixels(self) -> int:
        return self.plan.chunk * (self.spec.oh * self.spec.ow if self.plan.by_images else self.spec.ow)

    @property
    def _x_bytes(self) -> int:
        """Scratch for the copy of x, which comes first."""
        plan = self.plan
        return round_up((plan.chunk if plan.by_images else 1) * plan.pitch[0] * self._size, 64) if plan.copies else 0

    @property
    def _scratch_bytes(self) -> int:
        panels = self.plan.columns_per_slab * self.plan.tile.columns * self._chunk_pixels * self._size * self.plan.packs
        return self._x_bytes + round_up(panels, 64)

    def emit(self) -> Plan:
        spec, plan = self.spec, self.plan
        rows, columns = self._matrix
        stages = [self._emit_work()]
        shared: tuple[tuple[str, int], ...] = ()
        if not plan.direct:
            shared = (("partial", plan.splits * rows * columns * self._size),)
            total = PartialSum(rows, columns, plan.splits, spec.kind, spec.w_kind, self.target.lanes(spec.kind), "dw")
            if spec.weights == "HWIO":
                stages.append(emit_row_sum(self.module, self.name, total, lambda b, row: (b.mul(row, i64(columns)), i64(0)),
                                           self.epilogue, self.extra))
            else:
                stages.append(emit_filter_sum(self.module, self.name, total, spec.kh * spec.kw, self.epilogue, self.extra))
        return Plan(tuple(stages), shared, self._scratch_bytes, str(plan))

    def _emit_work(self) -> Stage:
        spec, plan = self.spec, self.plan
        extra = tuple(self.extra) if plan.direct else ()
        buffers = ("x", "dy", "dw" if plan.direct else "partial", *(("scratch",) if self._scratch_bytes else ()))
        kernels = self._kernels()
        packers = [emit_pack_panel(self.module, f"{self.name}.pack{j}", columns, spec.k, 1, spec.y_kind, spec.kind, False)
                   for j, (_, columns) in enumerate(plan.column_segments) if plan.packs]
        params = KernelParams(buffers, extra)
        b = FunctionBuilder(self.module, self.name if plan.direct else f"{self.name}.part", params.list, internal=False)
        groups = 1 if spec.depthwise else spec.groups
        with b.loop(b.args["begin"], b.args["end"], name="block") as loop:
            group, split, *slabs = split_index(b, loop.index, (groups, plan.splits, *plan.grid))
            self._emit_block(b, kernels, packers, extra, group, split, slabs[0], slabs[1])
        blocks = groups * plan.splits * math.prod(plan.grid)
        return Stage(b.finish(), buffers, tuple(n for n, _ in extra), blocks, spec.flops // blocks)

    def _kernels(self) -> list[list[tuple[MicroKernel, str]]]:
        spec, plan = self.spec, self.plan
        _, columns_total = self._matrix
        source = spec.kind if plan.copies else spec.x_kind
        out_kind = spec.w_kind if plan.direct else spec.kind
        table = []
        for i, segment in enumerate(plan.row_segments):
            start = 0 if plan.rows.regular else segment.start
            offsets = plan.rows.offsets[start:start + segment.size]
            steps = tuple(range(segment.size))
            line = []
            for j, (_, columns) in enumerate(plan.column_segments):
                kernel = MicroKernel(spec.kind, columns, offsets, tuple(s * columns_total for s in steps), steps, self._nest(columns), source,
                                     spec.kind, out_kind, a_vector=spec.depthwise, b_packed=plan.packs, resumes=plan.chunks_per_split > 1)
                line.append((kernel, emit_micro(self.module, f"{self.name}.micro{i}{j}", kernel,
                                                self.epilogue if plan.direct else None, self.extra if plan.direct else ())))
            table.append(line)
        return table

    def _nest(self, columns: Columns) -> tuple[Level, ...]:
        """The reduction over the output pixels of a chunk."""
        spec, plan = self.spec, self.plan
        image, row, pixel = plan.pitch
        step = self._panel_step(columns)
        rows = Level(spec.oh if plan.by_images and not plan.exact else "rows", spec.stride[0] * row, spec.ow * step)
        pixels = Level("pixels" if plan.exact else spec.ow, spec.stride[1] * pixel, step)
        if not plan.by_images:
            return rows, pixels
        return Level("images", image, spec.oh * spec.ow * step), rows, pixels

    def _panel_step(self, columns: Columns) -> int:
        """Elements from pixel to pixel in what is read as dy."""
        return columns.padded if self.plan.packs else self.spec.k

    def _emit_block(self, b: FunctionBuilder, kernels: list[list[tuple[MicroKernel, str]]], packers: list[str], extra: Extra,
                    group: Val, split: Val, row_slab: Val, column_slab: Val) -> None:
        spec, plan = self.spec, self.plan
        rows = block_range(b, row_slab, plan.rows_per_slab, plan.row_tiles)
        columns = block_range(b, column_slab, plan.columns_per_slab, plan.column_tiles)
        first, stop = block_range(b, split, plan.chunks_per_split, max(plan.chunks, 1))
        bands = 1 if plan.by_images else ceil_div(spec.oh, plan.chunk)
        with b.loop(first, stop, name="chunk") as chunk:
            part, band = split_index(b, chunk.index, (max(spec.n, 1), bands))
            extent, units = (spec.n, part) if plan.by_images else (spec.oh, band)
            begin = affine(b, [(units, plan.chunk)])
            count = b.binary("smin", i64(plan.chunk), b.sub(i64(extent), begin))
            image, row = (begin, i64(0)) if plan.by_images else (part, begin)
            channel = tile_start(b, plan.row_segments, rows[0]) if plan.grid[0] > 1 else i64(0)
            channels: int | Val = spec.c if spec.depthwise else spec.c // spec.groups
            if plan.grid[0] > 1:
                channels = b.sub(tile_start(b, plan.row_segments, rows[1]), channel)
            source = self._source(b, group, image, row, count, channel, channels)
            cotangent = self._cotangent(b, packers, group, image, row, count, columns)
            resume = b.cast(b.icmp("sgt", chunk.index, first), LType("i64"))
            last = b.cast(b.icmp("eq", chunk.index, b.sub(stop, i64(1))), LType("i64"))
            block = _Block(group, split, rows, columns, channel, source, cotangent, row, count, resume, last)
            for i in range(len(plan.row_segments)):
                for j in range(len(plan.column_segments)):
                    self._tiles(b, *kernels[i][j], i, j, block, extra)

    def _source(self, b: FunctionBuilder, group: Val, image: Val, row: Val, count: Val, channel: Val, channels: int | Val) -> Val:
        """Where the chunk's first pixel reads with tap 0: channel 0 in place, the slab's first channel in the copy."""
        spec, plan = self.spec, self.plan
        in_group = i64(0) if spec.depthwise else affine(b, [(group, spec.c // spec.groups)])
        x = affine(b, [(image, spec.h * spec.w * spec.c), (in_group, 1)])
        if not plan.copies:
            top, left = -spec.padding[0], -spec.padding[2]
            offset = affine(b, [(x, 1), (row, spec.stride[0] * plan.pitch[1])], top * plan.pitch[1] + left * plan.pitch[2])
            if plan.exact:  # the tap and its first pixel decide
                offset = x
            return b.gep(b.args["x"], offset, LType(spec.x_kind))
        down = forward_axis(spec.oh, spec.stride[0], spec.padding[0], spec.kh, spec.dilation[0])
        across = forward_axis(spec.ow, spec.stride[1], spec.padding[2], spec.kw, spec.dilation[1])
        copy = PaddedCopy((spec.h, spec.w, spec.c), across.origin, across.inputs(spec.ow), plan.pitch, spec.x_kind, spec.kind,
                          self.target.lanes(spec.kind))
        pointer = b.gep(b.args["x"], affine(b, [(x, 1), (channel, 1)]), LType(spec.x_kind))
        images, out_rows = (count, i64(spec.oh)) if plan.by_images else (i64(1), count)
        copy.emit(b, pointer, b.args["scratch"], images, affine(b, [(row, down.in_step)], down.origin),
                  affine(b, [(out_rows, down.in_step)], down.reach - down.in_step), channels)
        return b.args["scratch"]

    def _cotangent(self, b: FunctionBuilder, packers: list[str], group: Val, image: Val, row: Val, count: Val,
                   columns: tuple[Val, Val]) -> Val:
        """The chunk's part of dy: in place, or copied to a panel for each column tile of the slab."""
        spec, plan = self.spec, self.plan
        pixel = affine(b, [(image, spec.oh * spec.ow), (row, spec.ow)])
        if not plan.packs:
            return b.gep(b.args["dy"], affine(b, [(pixel, spec.k)]), LType(spec.y_kind))
        panels = b.gep(b.args["scratch"], self._x_bytes, LType("i8"))
        pixels = affine(b, [(count, spec.oh * spec.ow if plan.by_images else spec.ow)])
        for packer, (segment, _) in zip(packers, plan.column_segments, strict=True):
            with tile_loop(b, segment, *columns, "pack") as (_, column):
                offset = affine(b, [(pixel, spec.k), (self._filter(b, group, column), 1)])
                b.call(packer, LType("void"), b.gep(b.args["dy"], offset, LType(spec.y_kind)),
                       self._panel(b, panels, group, columns, column), pixels)
        return panels

    def _filter(self, b: FunctionBuilder, group: Val, column: Val) -> Val:
        return column if self.spec.depthwise else affine(b, [(group, self.spec.k // self.spec.groups), (column, 1)])

    def _panel(self, b: FunctionBuilder, cotangent: Val, group: Val, columns: tuple[Val, Val], column: Val) -> Val:
        """Where the columns of a tile are read for the chunk's first pixel."""
        if not self.plan.packs:
            return b.gep(cotangent, self._filter(b, group, column), LType(self.spec.y_kind))
        origin = affine(b, [(columns[0], self.plan.tile.columns)])
        within = column if origin.text == "0" else b.sub(column, origin)
        return b.gep(cotangent, affine(b, [(within, self._chunk_pixels)]), LType(self.spec.kind))

    def _tiles(self, b: FunctionBuilder, kernel: MicroKernel, name: str, i: int, j: int, block: _Block, extra: Extra) -> None:
        """The register tiles of the block in row segment i and column segment j, for one chunk."""
        spec, plan = self.spec, self.plan
        total_rows, total_columns = self._matrix
        loops = [*plan.rows.loops, *[(1, 0, 0)] * (2 - len(plan.rows.loops))]
        step = plan.rows.offsets[1] if plan.rows.regular and plan.rows.count > 1 else 0
        kind = LType(spec.kind if plan.copies else spec.x_kind)
        with (b.loop(0, loops[0][0], name="unit", at_least_once=True) as outer,
              b.loop(0, loops[1][0], name="tap", at_least_once=True) as inner):
            counts, a_pixels, panel_pixels = self._pixels(b, outer.index, inner.index, block)
            with (tile_loop(b, plan.row_segments[i], *block.rows, "rows") as (_, row),
                  tile_loop(b, plan.column_segments[j][0], *block.columns, "columns") as (_, column)):
                within = b.sub(row, block.channel) if plan.copies and block.channel.text != "0" else row
                a = affine(b, [(within, step), (column, int(spec.depthwise))])
                if not plan.exact:
                    a = affine(b, [(a, 1), (outer.index, loops[0][1]), (inner.index, loops[1][1])])
                line = affine(b, [(outer.index, loops[0][2]), (inner.index, loops[1][2]), (row, 1)])
                filters = self._filter(b, block.group, column)
                at = affine(b, [(line, total_columns), (filters, 1), (block.split, total_rows * total_columns)])
                c = b.gep(b.args["dw" if plan.direct else "partial"], at, LType(kernel.c_kind))
                panel = b.gep(self._panel(b, block.cotangent, block.group, block.columns, column),
                              affine(b, [(panel_pixels, self._panel_step(kernel.columns))]), LType(kernel.b_kind))
                call_micro(b, name, kernel, b.gep(block.source, affine(b, [(a, 1), (a_pixels, 1)]), kind), panel, c, counts=counts,
                           resume=block.resume, last=block.last, row=line, column=filters, batch=i64(0), extra=extra)

    def _pixels(self, b: FunctionBuilder, tap_row: Val, tap: Val, block: _Block) -> tuple[dict[str, Val], Val, Val]:
        """The extents of the reduction, and how far into x and into the panel its first pixel is (the panel in pixels)."""
        spec, plan = self.spec, self.plan
        if not plan.exact:
            return {"images": block.count, "rows": block.count}, i64(0), i64(0)
        end = i64(spec.oh) if plan.by_images else b.add(block.row, block.count)
        above, rows = _active(b, tap_row, spec.dilation[0], spec.padding[0], spec.stride[0], spec.h, block.row, end)
        left, pixels = _active(b, tap, spec.dilation[1], spec.padding[2], spec.stride[1], spec.w, i64(0), i64(spec.ow))
        _, row_pitch, pixel_pitch = plan.pitch
        a = affine(b, [(above, spec.stride[0] * row_pitch), (tap_row, spec.dilation[0] * row_pitch),
                       (left, spec.stride[1] * pixel_pitch), (tap, spec.dilation[1] * pixel_pitch)],
                   -spec.padding[0] * row_pitch - spec.padding[2] * pixel_pitch)
        first = above if block.row.text == "0" else b.sub(above, block.row)
        return {"images": block.count, "rows": rows, "pixels": pixels}, a, affine(b, [(first, spec.ow), (left, 1)])


def _active(b: FunctionBuilder, tap: Val, dilation: int, before: int, stride: int, extent: int, low: Val,
            high: Val) -> tuple[Val, Val]:
    """The first output in low .. high whose tap reads inside 0 .. extent, and how many there are (none: not positive)."""
    position = affine(b, [(tap, dilation)], -before)  # of output 0
    start = b.binary("smax", b.sub(i64(stride - 1), position), i64(0))
    stop = b.binary("smax", b.sub(i64(extent - 1 + stride), position), i64(0))
    start, stop = b.div(start, i64(stride), signed=False), b.div(stop, i64(stride), signed=False)
    start = b.binary("smax", start, low)
    return start, b.sub(b.binary("smin", stop, high), start)
