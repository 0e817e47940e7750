"""Convolutions of known shapes on NHWC activations: forward and gradient with respect to the input.

Enters: a `ConvSpec`. Leaves: functions in the module and the `Plan` to call them. Both directions are correlations of an image with a small
grid of taps, which is what is emitted here (`Correlation`): the gradient with respect to the input is, for each phase (row and column
modulo the stride), a correlation of the output's cotangent with the taps that meet this phase, in reverse order. So neither
needs a scatter nor a dilated copy.

Output pixels are the rows of the micro-kernel, output channels its vectors; the reduction runs over taps and input channels with constant
displacements (no im2col). Where taps reach over the edge, a block first copies its band of input rows, with the zeros around them, into
scratch memory of its own; where they do not the input is read in place. Weights are packed into panels by a stage of its own, which depends
on the weights only: a caller whose weights are constant runs it once. Depthwise convolution has channels as lanes of both
operands. A 1x1 convolution with unit stride is a matmul.
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
    choose_grid_tile,
    round_up,
    split_columns,
    split_evenly,
    split_index,
    tile_loop,
    tile_start,
)
from graphcell.codegen.llvm.correlation import ConvSpec, Correlation, forward_correlation, gradient_correlations
from graphcell.codegen.llvm.matmul import MatmulSpec, Operand, emit_matmul
from graphcell.codegen.llvm.microkernel import Level, MicroKernel, call_micro, emit_micro
from graphcell.codegen.llvm.packing import emit_pack_panel
from graphcell.codegen.llvm.padding import PaddedCopy
from graphcell.codegen.llvm.text import FunctionBuilder, LType, Module, Val, i64

_BLOCKS_WANTED = 16
_FLOPS_PER_BLOCK = 200_000


def emit_convolution(module: Module, name: str, spec: ConvSpec, target: ContractionTarget, epilogue: Epilogue | None = None,
                     extra: Extra = ()) -> Plan:
    """Emits y = conv(x, w); buffers x, w, y and, as the plan says, packed and scratch.

    For the epilogue `row` is the linear index of the output pixel (image, row, column), `column` the output channel.
    """
    check_extra("convolution", extra)
    if 0 in (spec.n, spec.oh, spec.ow, spec.k):
        return Plan((), note="empty output")
    if spec.pointwise:
        by_filter, by_channel, _, _ = spec.weight_strides
        product = MatmulSpec(spec.n * spec.h * spec.w, spec.k, spec.c, Operand(spec.x_kind, spec.c, 1),
                             Operand(spec.w_kind, by_channel, by_filter), Operand(spec.y_kind, spec.k, 1))
        return emit_matmul(module, name, product, target, epilogue, extra).renamed({"a": "x", "b": "w", "c": "y"})
    return _emit_all(module, name, [forward_correlation(spec)], target, epilogue, extra, ("x", "w", "y"))


def emit_input_gradient(module: Module, name: str, spec: ConvSpec, target: ContractionTarget, epilogue: Epilogue | None = None,
                        extra: Extra = ()) -> Plan:
    """Emits dx, the gradient of sum(dy * conv(x, w)) in x; buffers dy, w, dx and, as the plan says, packed and scratch.

    For the epilogue `row` is the linear index of the input pixel, `column` the input channel.
    """
    check_extra("convolution", extra)
    if 0 in (spec.n, spec.h, spec.w, spec.c):
        return Plan((), note="empty output")
    if spec.pointwise:
        by_filter, by_channel, _, _ = spec.weight_strides
        product = MatmulSpec(spec.n * spec.h * spec.w, spec.c, spec.k, Operand(spec.y_kind, spec.k, 1),
                             Operand(spec.w_kind, by_filter, by_channel), Operand(spec.x_kind, spec.c, 1))
        return emit_matmul(module, name, product, target, epilogue, extra).renamed({"a": "dy", "b": "w", "c": "dx"})
    return _emit_all(module, name, gradient_correlations(spec), target, epilogue, extra, ("dy", "w", "dx"))


def _emit_all(module: Module, name: str, parts: list[Correlation], target: ContractionTarget, epilogue: Epilogue | None, extra: Extra,
              names: tuple[str, str, str]) -> Plan:
    """Stages of all parts: first the packing of each, then the correlations; they share one buffer of packed weights."""
    packs, works, notes = [], [], []
    offset = scratch = 0
    for k, part in enumerate(parts):
        emitter = _Emitter(module, f"{name}.{k}" if len(parts) > 1 else name, part, schedule(part, target), target, epilogue, extra,
                           names, offset)
        if part.taps and part.reduced:
            packs.append(emitter.emit_pack())
        works.append(emitter.emit_work())
        notes.append(str(emitter.plan))
        offset += emitter.packed_bytes
        scratch = max(scratch, emitter.scratch_bytes)
    shared = (("packed", offset),) if offset else ()
    return Plan((*packs, *works), shared, scratch, "; ".join(notes))


@dataclass(frozen=True, slots=True)
class Schedule:
    """How a correlation is carried out; a pure function of it and the target.

    A block is (group, slab of column tiles, tile of images, band of row tiles). `pitch` are the distances in elements, in what the
    micro-kernel reads, from image to image, row to row, pixel to pixel.
    """

    tile: TileShape
    image_segments: tuple[Segment, ...]
    row_segments: tuple[Segment, ...]
    pixel_segments: tuple[Segment, ...]
    column_segments: tuple[tuple[Segment, Columns], ...]
    columns_per_slab: int
    rows_per_band: int
    copies: bool
    pitch: tuple[int, int, int]

    @property
    def grid(self) -> tuple[int, int, int]:
        """Slabs, tiles of images, bands."""
        return (ceil_div(self.column_tiles, self.columns_per_slab), sum(s.tiles for s in self.image_segments),
                ceil_div(self.row_tiles, self.rows_per_band))

    @property
    def column_tiles(self) -> int:
        return sum(s.tiles for s, _ in self.column_segments)

    @property
    def row_tiles(self) -> int:
        return sum(s.tiles for s in self.row_segments)

    @property
    def band_rows(self) -> int:
        """Output rows of the largest band."""
        return self.row_segments[0].size * self.rows_per_band

    @property
    def padded_columns(self) -> int:
        segment, shape = self.column_segments[-1]
        return segment.start + segment.tiles * shape.padded

    def __str__(self) -> str:
        box = "x".join(str(s[0].size) for s in (self.image_segments, self.row_segments, self.pixel_segments))
        return (f"tile {box} pixels x{self.tile.vectors}x{self.tile.lanes}, slabs {self.grid[0]}, image tiles {self.grid[1]}, "
                f"bands {self.grid[2]}, {'padded copy' if self.copies else 'in place'}")


def schedule(part: Correlation, target: ContractionTarget) -> Schedule:
    """Chooses tile, blocks and whether the input is copied."""
    size, whole = 8 if part.kind == "double" else 4, target.lanes(part.kind)
    box, tile = choose_grid_tile((part.images, part.rows.count, part.pixels.count), part.columns, part.kind, target)
    images, rows, pixels = (split_evenly(extent, most) for extent, most in
                            zip((part.images, part.rows.count, part.pixels.count), box, strict=True))
    columns = split_columns(part.columns, tile)
    column_tiles, row_tiles = sum(s.tiles for s, _ in columns), sum(s.tiles for s in rows)
    panel = max(1, part.taps * part.reduced) * tile.columns * size
    per_slab = min(column_tiles, max(1, target.l2_bytes // 2 // panel))
    per_slab = ceil_div(column_tiles, ceil_div(column_tiles, per_slab))
    in_h, in_w, in_c = part.in_shape
    inside = part.rows.inside(in_h) and part.pixels.inside(in_w)
    copies = part.taps > 0 and part.reduced > 0 and (not inside or (part.in_kind != part.kind and not part.depthwise))
    channels = part.columns if part.depthwise else part.reduced
    pixel_pitch, row_pitch = in_c, in_w * in_c
    if copies:
        aliases = channels * size % 1024 == 0 and channels > whole
        pixel_pitch = channels + whole if aliases else channels
        row_pitch = round_up(part.pixels.inputs(part.pixels.count) * pixel_pitch, whole)
    wanted = min(_BLOCKS_WANTED, max(1, part.flops // _FLOPS_PER_BLOCK))
    outer = part.groups * ceil_div(column_tiles, per_slab) * sum(s.tiles for s in images)
    bands = min(row_tiles, max(1, ceil_div(wanted, outer)))
    row_bytes = rows[0].size * part.rows.in_step * row_pitch * size * images[0].size
    per_band = min(ceil_div(row_tiles, bands), max(1, target.l2_bytes // 4 // max(row_bytes, 1)))
    plan = Schedule(tile, images, rows, pixels, columns, per_slab, per_band, copies, (0, row_pitch, pixel_pitch))
    image_pitch = part.rows.inputs(plan.band_rows) * row_pitch if copies else in_h * in_w * in_c
    return replace(plan, pitch=(image_pitch, row_pitch, pixel_pitch))


@dataclass(frozen=True)
class _Emitter:
    """Emits one correlation. `packed_at` is the byte offset of its weights in the packed buffer."""

    module: Module
    name: str
    part: Correlation
    plan: Schedule
    target: ContractionTarget
    epilogue: Epilogue | None
    extra: Extra
    names: tuple[str, str, str]
    packed_at: int

    @property
    def _depth(self) -> int:
        return self.part.taps * self.part.reduced

    @property
    def _size(self) -> int:
        return 8 if self.part.kind == "double" else 4

    @property
    def packed_bytes(self) -> int:
        return round_up(self.part.groups * self.plan.padded_columns * self._depth * self._size, 64)

    @property
    def scratch_bytes(self) -> int:
        if not self.plan.copies:
            return 0
        return round_up(self.plan.image_segments[0].size * self.plan.pitch[0] * self._size, 64)

    # -- weights -----------------------------------------------------------------------------------------------------
    def emit_pack(self) -> Stage:
        """Weights to [group][column tile][tap][reduction channel][lanes]; a block is one column tile of one group."""
        part, plan = self.part, self.plan
        by_reduced, by_column, by_row, by_tap, by_group = part.weight_strides
        packers = [emit_pack_panel(self.module, f"{self.name}.pack{j}", columns, by_reduced, by_column, part.w_kind, part.kind,
                                   part.reduced % columns.lanes == 0) for j, (_, columns) in enumerate(plan.column_segments)]
        params = KernelParams(("w", "packed"))
        b = FunctionBuilder(self.module, f"{self.name}.pack", params.list, internal=False)
        first = part.rows.weight * by_row + part.pixels.weight * by_tap
        with b.loop(b.args["begin"], b.args["end"], name="panel") as loop:
            group, tile = split_index(b, loop.index, (part.groups, plan.column_tiles))
            for packer, (segment, columns) in zip(packers, plan.column_segments, strict=True):
                with tile_loop(b, segment, tile, b.add(tile, i64(1)), "tile") as (_, column):
                    source = affine(b, [(group, by_group), (column, by_column)], first)
                    panel = self._panel(b, group, column)
                    with (b.loop(0, part.rows.taps, name="tap.row", at_least_once=True) as row,
                          b.loop(0, part.pixels.taps, name="tap", at_least_once=True) as pixel):
                        moved = affine(b, [(source, 1), (row.index, part.rows.weight_step * by_row),
                                           (pixel.index, part.pixels.weight_step * by_tap)])
                        step = columns.padded * part.reduced
                        to = affine(b, [(row.index, part.pixels.taps * step), (pixel.index, step)])
                        b.call(packer, LType("void"), b.gep(b.args["w"], moved, LType(part.w_kind)),
                               b.gep(panel, to, LType(part.kind)), i64(part.reduced))
        return Stage(b.finish(), ("w", "packed"), (), part.groups * plan.column_tiles, self._depth * plan.tile.columns)

    def _panel(self, b: FunctionBuilder, group: Val, column: Val) -> Val:
        base = b.gep(b.args["packed"], self.packed_at, LType("i8"))
        at = affine(b, [(group, self.plan.padded_columns * self._depth), (column, self._depth)])
        return b.gep(base, at, LType(self.part.kind))

    # -- the correlation ---------------------------------------------------------------------------------------------
    def emit_work(self) -> Stage:
        part, plan = self.part, self.plan
        kernels = self._kernels()
        buffers = (self.names[0], *(("packed",) if self._depth else ()), self.names[2], *(("scratch",) if plan.copies else ()))
        params = KernelParams(buffers, tuple(self.extra))
        b = FunctionBuilder(self.module, self.name, params.list, internal=False)
        with b.loop(b.args["begin"], b.args["end"], name="block") as loop:
            group, slab, image, band = split_index(b, loop.index, (part.groups, *plan.grid))
            self._emit_block(b, kernels, group, slab, image, band)
        blocks = part.groups * math.prod(plan.grid)
        return Stage(b.finish(), buffers, tuple(n for n, _ in self.extra), blocks, part.flops // blocks)

    def _kernels(self) -> dict[tuple[int, int, int, int], tuple[MicroKernel, str]]:
        """The micro-kernel for each combination of segments of images, rows, pixels and columns, emitted."""
        part, plan = self.part, self.plan
        source = part.kind if plan.copies else part.in_kind
        out_h, out_w, out_c = part.out_shape
        table = {}
        for i, images in enumerate(plan.image_segments):
            for r, rows in enumerate(plan.row_segments):
                for p, pixels in enumerate(plan.pixel_segments):
                    points = [(n, y, x) for n in range(images.size) for y in range(rows.size) for x in range(pixels.size)]
                    a_offsets = tuple(n * plan.pitch[0] + y * part.rows.in_step * plan.pitch[1]
                                      + x * part.pixels.in_step * plan.pitch[2] for n, y, x in points)
                    steps = tuple((n * out_h + y * part.rows.step) * out_w + x * part.pixels.step for n, y, x in points)
                    for j, (_, columns) in enumerate(plan.column_segments):
                        kernel = MicroKernel(part.kind, columns, a_offsets, tuple(s * out_c for s in steps), steps,
                                             self._nest(columns), source, part.kind, part.out_kind, a_vector=part.depthwise)
                        name = emit_micro(self.module, f"{self.name}.micro{i}{r}{p}{j}", kernel, self.epilogue, self.extra)
                        table[i, r, p, j] = (kernel, name)
        return table

    def _nest(self, columns: Columns) -> tuple[Level, ...]:
        """The reduction: tap rows, taps, channels; the last two are one where they are contiguous."""
        part, (_, row_pitch, pixel_pitch) = self.part, self.plan.pitch
        step = part.reduced * columns.padded
        rows = Level(part.rows.taps, part.rows.tap_step * row_pitch, part.pixels.taps * step)
        pixels = Level(part.pixels.taps, part.pixels.tap_step * pixel_pitch, step)
        if part.depthwise:
            return rows, pixels
        if pixels.a_stride == part.reduced or part.pixels.taps == 1:
            return rows, Level(part.pixels.taps * part.reduced, 1, columns.padded)
        return rows, pixels, Level(part.reduced, 1, columns.padded)

    def _emit_block(self, b: FunctionBuilder, kernels: dict[tuple[int, int, int, int], tuple[MicroKernel, str]],
                    group: Val, slab: Val, image_tile: Val, band: Val) -> None:
        part, plan = self.part, self.plan
        columns = block_range(b, slab, plan.columns_per_slab, plan.column_tiles)
        rows = block_range(b, band, plan.rows_per_band, plan.row_tiles)
        next_tile = b.add(image_tile, i64(1))
        row_start = tile_start(b, plan.row_segments, rows[0])
        row_stop = tile_start(b, plan.row_segments, rows[1])
        for i, images in enumerate(plan.image_segments):
            with tile_loop(b, images, image_tile, next_tile, "images") as (_, image):
                source = self._source(b, group, image, images.size, row_start, row_stop)
                for r, row_segment in enumerate(plan.row_segments):
                    with tile_loop(b, row_segment, *rows, "rows") as (_, row):
                        for p, pixel_segment in enumerate(plan.pixel_segments):
                            with tile_loop(b, pixel_segment, i64(0), i64(sum(s.tiles for s in plan.pixel_segments)),
                                           "pixels") as (_, pixel):
                                a = self._a_at(b, source, row, row_start, pixel)
                                for j, (segment, _) in enumerate(plan.column_segments):
                                    with tile_loop(b, segment, *columns, "columns") as (_, column):
                                        self._call(b, *kernels[i, r, p, j], a, group, image, row, pixel, column)

    def _a_at(self, b: FunctionBuilder, source: Val, row: Val, row_start: Val, pixel: Val) -> Val:
        part, (_, row_pitch, pixel_pitch) = self.part, self.plan.pitch
        if self._depth == 0:
            return source
        kind = LType(part.kind if self.plan.copies else part.in_kind)
        if self.plan.copies:
            row = b.sub(row, row_start)
        return b.gep(source, affine(b, [(row, part.rows.in_step * row_pitch), (pixel, part.pixels.in_step * pixel_pitch)]), kind)

    def _call(self, b: FunctionBuilder, kernel: MicroKernel, name: str, a: Val, group: Val, image: Val, row: Val, pixel: Val,
              column: Val) -> None:
        part = self.part
        out_h, out_w, out_c = part.out_shape
        start = part.rows.start * out_w + part.pixels.start
        linear = affine(b, [(image, out_h * out_w), (row, part.rows.step * out_w), (pixel, part.pixels.step)], start)
        channel = affine(b, [(group, part.columns), (column, 1)])
        c = b.gep(b.args[self.names[2]], affine(b, [(linear, out_c), (channel, 1)]), LType(part.out_kind))
        right = self._panel(b, group, column) if self._depth else c
        if part.depthwise and self._depth:
            a = b.gep(a, column, LType(kernel.a_kind))
        call_micro(b, name, kernel, a, right, c, counts={}, resume=None, last=None, row=linear, column=channel, batch=i64(0),
                   extra=self.extra)

    # -- the input ---------------------------------------------------------------------------------------------------
    def _source(self, b: FunctionBuilder, group: Val, image: Val, images: int, row_start: Val, row_stop: Val) -> Val:
        """Where output row 0 (in place) or `row_start` (in the copy), pixel 0, tap 0 is read."""
        part, plan = self.part, self.plan
        in_h, in_w, in_c = part.in_shape
        channel = i64(0) if part.depthwise else affine(b, [(group, part.reduced)])
        x = b.gep(b.args[self.names[0]], affine(b, [(image, in_h * in_w * in_c), (channel, 1)]), LType(part.in_kind))
        if self._depth == 0:
            return x
        if not plan.copies:
            return b.gep(x, (part.rows.origin * in_w + part.pixels.origin) * in_c, LType(part.in_kind))
        rows = b.sub(row_stop, row_start)
        count = affine(b, [(rows, part.rows.in_step)], part.rows.reach - part.rows.in_step)
        first = affine(b, [(row_start, part.rows.in_step)], part.rows.origin)
        copy = PaddedCopy(part.in_shape, part.pixels.origin, part.pixels.inputs(part.pixels.count), plan.pitch, part.in_kind,
                          part.kind, self.target.lanes(part.kind))
        copy.emit(b, x, b.args["scratch"], images, first, count, part.columns if part.depthwise else part.reduced)
        return b.args["scratch"]
