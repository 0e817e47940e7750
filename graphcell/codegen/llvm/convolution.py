"""Convolutions of known shapes on NHWC activations: forward and gradient with respect to the input.

Enters: a `ConvSpec`. Leaves: functions in the module and the `Plan` to call them. Both directions are
correlations of an image with a small grid of taps, which is what is emitted here (`Correlation`): the
gradient with respect to the input is, for each phase (row and column modulo the stride), a correlation of the
output's cotangent with the taps that meet this phase, in reverse order. So neither needs a scatter nor a
dilated copy.

Output pixels are the rows of the micro-kernel, output channels its vectors; the reduction runs over taps and
input channels with constant displacements (no im2col). Where taps reach over the edge, a block first copies
its band of input rows, with the zeros around them, into scratch memory of its own; where they do not the
input is read in place. Weights are packed into panels by a stage of its own, which depends on the weights
only: a caller whose weights are constant runs it once. Depthwise convolution has channels as lanes of both
operands. A 1x1 convolution with unit stride is a matmul, and larger ones go through Winograd's algorithm where
that is estimated to be faster (winograd.py).
"""

from __future__ import annotations

import math

from graphcell.codegen.llvm import winograd_schedule
from graphcell.codegen.llvm.contraction import (
    Columns,
    ContractionTarget,
    Epilogue,
    Extra,
    KernelParams,
    Plan,
    Stage,
    affine,
    block_range,
    check_extra,
    round_up,
    split_index,
    tile_loop,
    tile_start,
)
from graphcell.codegen.llvm.convolution_schedule import Edges, Schedule, schedule, taps_of, weight_bytes
from graphcell.codegen.llvm.convolution_tiles import emit_in_tiles
from graphcell.codegen.llvm.correlation import (
    ConvSpec,
    Correlation,
    forward_correlation,
    gradient_correlations,
)
from graphcell.codegen.llvm.matmul import MatmulSpec, Operand, emit_matmul, with_prepared_weights
from graphcell.codegen.llvm.microkernel import Level, MicroKernel, Nest, Taps, call_micro, come_from_memory, emit_micro
from graphcell.codegen.llvm.packing import displaced
from graphcell.codegen.llvm.padding import PaddedCopy
from graphcell.codegen.llvm.text import FunctionBuilder, LType, Module, Val, i64
from graphcell.codegen.llvm.weight_panels import WeightPanels
from graphcell.codegen.llvm.winograd import emit_winograd
from graphcell.records import dataclass


def emit_convolution(
    module: Module,
    name: str,
    spec: ConvSpec,
    target: ContractionTarget,
    epilogue: Epilogue | None = None,
    extra: Extra = (),
    *,
    prepared: bool = False,
) -> Plan:
    """Emits y = conv(x, w); buffers x, w, y and, as the plan says, packed, transformed and scratch.

    `prepared` promises that the stages which read w only will run once for many runs of the others.
    For the epilogue `row` is the linear index of the output pixel (image, row, column), `column` the output channel.
    """
    check_extra("convolution", extra)
    if 0 in (spec.n, spec.oh, spec.ow, spec.k):
        return Plan((), note="empty output")
    names = ("x", "w", "y")
    if spec.pointwise:
        by_filter, by_channel, _, _ = spec.weight_strides
        product = MatmulSpec(
            spec.n * spec.h * spec.w,
            spec.k,
            spec.c,
            Operand(spec.x_kind, spec.c, 1),
            Operand(spec.w_kind, by_channel, by_filter),
            Operand(spec.y_kind, spec.k, 1),
        )
        return _emit_product(module, name, product, target, epilogue, extra, names, prepared)
    return _emit_parts(module, name, [forward_correlation(spec)], target, epilogue, extra, names, prepared)


def emit_input_gradient(
    module: Module,
    name: str,
    spec: ConvSpec,
    target: ContractionTarget,
    epilogue: Epilogue | None = None,
    extra: Extra = (),
    *,
    prepared: bool = False,
) -> Plan:
    """Emits dx, the gradient of sum(dy * conv(x, w)) in x; buffers dy, w, dx and, as the plan says, packed,
    transformed and scratch.

    `prepared` promises that the stages which read w only will run once for many runs of the others.
    For the epilogue `row` is the linear index of the input pixel, `column` the input channel.
    """
    check_extra("convolution", extra)
    if 0 in (spec.n, spec.h, spec.w, spec.c):
        return Plan((), note="empty output")
    names = ("dy", "w", "dx")
    if spec.pointwise:
        by_filter, by_channel, _, _ = spec.weight_strides
        product = MatmulSpec(
            spec.n * spec.h * spec.w,
            spec.c,
            spec.k,
            Operand(spec.y_kind, spec.k, 1),
            Operand(spec.w_kind, by_filter, by_channel),
            Operand(spec.x_kind, spec.c, 1),
        )
        return _emit_product(module, name, product, target, epilogue, extra, names, prepared)
    return _emit_parts(module, name, gradient_correlations(spec), target, epilogue, extra, names, prepared)


def _emit_product(
    module: Module,
    name: str,
    product: MatmulSpec,
    target: ContractionTarget,
    epilogue: Epilogue | None,
    extra: Extra,
    names: tuple[str, str, str],
    prepared: bool,
) -> Plan:
    """A 1x1 convolution."""
    product = with_prepared_weights(product) if prepared else product
    plan = emit_matmul(module, name, product, target, epilogue, extra)
    return plan.renamed(dict(zip("abc", names, strict=True)))


def _emit_parts(
    module: Module,
    name: str,
    parts: list[Correlation],
    target: ContractionTarget,
    epilogue: Epilogue | None,
    extra: Extra,
    names: tuple[str, str, str],
    prepared: bool,
) -> Plan:
    """With tile registers, by Winograd's algorithm, or in stages of all parts: first the packing of each, then the correlations."""
    in_tiles = emit_in_tiles(module, name, parts, target, epilogue, extra, names)
    if in_tiles is not None:
        return in_tiles
    fast = winograd_schedule.choose(parts[0], target, prepared)
    if fast is not None:
        return emit_winograd(module, name, parts[0], fast, target, epilogue, extra, names)
    packs, works, notes, shared = [], [], [], []
    scratch = 0
    for k, part in enumerate(parts):
        own, packed = (f"{name}.{k}", f"packed{k}") if len(parts) > 1 else (name, "packed")
        plan = schedule(part, target)
        panels = WeightPanels(part, plan)
        emitter = _Emitter(module, own, part, plan, target, epilogue, extra, names, panels)
        if panels.depth:
            packs.append(panels.emit(module, own).renamed({"packed": packed}))
            shared.append((packed, panels.bytes))
        works.append(emitter.emit_work().renamed({"packed": packed}))
        notes.append(f"{plan}{', weights asked for ahead' if emitter.streams else ''}")
        scratch = max(scratch, emitter.scratch_bytes)
    return Plan((*packs, *works), tuple(shared), scratch, "; ".join(notes))


@dataclass(frozen=True, slots=True)
class _Tile:
    """A register tile: its first pixel's linear index in the output, where A is read, its first row of taps
    and how many rows.
    """

    linear: Val
    a: Val
    first_tap_row: Val
    tap_rows: Val


@dataclass(frozen=True)
class _Emitter:
    """Emits one correlation."""

    module: Module
    name: str
    part: Correlation
    plan: Schedule
    target: ContractionTarget
    epilogue: Epilogue | None
    extra: Extra
    names: tuple[str, str, str]
    panels: WeightPanels

    @property
    def _depth(self) -> int:
        return self.panels.depth

    @property
    def _size(self) -> int:
        return LType(self.part.kind).bytes

    @property
    def scratch_bytes(self) -> int:
        if not self.plan.copies:
            return 0
        return round_up(self.plan.image_segments[0].size * self.plan.pitch[0] * self._size, 64)

    @property
    def streams(self) -> bool:
        """Whether the weights come from memory and few tiles read each of them."""
        return come_from_memory(weight_bytes(self.part), self.plan.pixel_tiles, self.target)

    # -- the correlation -------------------------------------------------------------------------------------
    def emit_work(self) -> Stage:
        part, plan = self.part, self.plan
        kernels = self._kernels()
        buffers = (
            self.names[0],
            *(("packed",) if self._depth else ()),
            self.names[2],
            *(("scratch",) if plan.copies else ()),
        )
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
                    origin = (part.rows.origin * plan.pitch[1] if plan.edges is Edges.IMAGE else 0) + (
                        part.pixels.origin * plan.pitch[2] if plan.exact else 0
                    )
                    points = [
                        (n, y, x)
                        for n in range(images.size)
                        for y in range(rows.size)
                        for x in range(pixels.size)
                    ]
                    a_offsets = tuple(
                        origin
                        + n * plan.pitch[0]
                        + y * part.rows.in_step * plan.pitch[1]
                        + x * part.pixels.in_step * plan.pitch[2]
                        for n, y, x in points
                    )
                    steps = tuple(
                        (n * out_h + y * part.rows.step) * out_w + x * part.pixels.step for n, y, x in points
                    )
                    for j, (_, columns) in enumerate(plan.column_segments):
                        kernel = MicroKernel(
                            part.kind,
                            columns,
                            a_offsets,
                            tuple(s * out_c for s in steps),
                            steps,
                            self._nest(columns, (images.size, rows.size, pixels.size), pixels.start),
                            source,
                            part.kind,
                            part.out_kind,
                            a_vector=part.depthwise,
                            streams=self.streams,
                        )
                        name = emit_micro(
                            self.module, f"{self.name}.micro{i}{r}{p}{j}", kernel, self.epilogue, self.extra
                        )
                        table[i, r, p, j] = (kernel, name)
        return table

    def _nest(self, columns: Columns, extents: tuple[int, int, int], start: int) -> Nest:
        """The reduction: tap rows, taps, channels; the last two are one where they are contiguous."""
        part, edges, (_, row_pitch, pixel_pitch) = self.part, self.plan.edges, self.plan.pitch
        step = part.reduced * columns.padded
        channels = () if part.depthwise else (Level(part.reduced, 1, columns.padded),)
        rows = Level(
            "taps" if edges is Edges.ROW else part.rows.taps,
            part.rows.tap_step * row_pitch,
            part.pixels.taps * step,
        )
        pixels = Level(part.pixels.taps, part.pixels.tap_step * pixel_pitch, step)
        if self.plan.exact:
            taps = taps_of(part, edges, extents, start, self.plan.pitch, step)
            if edges is Edges.IMAGE:
                return Taps(taps), *channels
            if len(taps) < part.pixels.taps or any(len(tap.rows) < math.prod(extents) for tap in taps):
                return rows, Taps(taps), *channels
        if not part.depthwise and (pixels.a_stride == part.reduced or part.pixels.taps == 1):
            return rows, Level(part.pixels.taps * part.reduced, 1, columns.padded)
        return rows, pixels, *channels

    def _emit_block(
        self,
        b: FunctionBuilder,
        kernels: dict[tuple[int, int, int, int], tuple[MicroKernel, str]],
        group: Val,
        slab: Val,
        image_tile: Val,
        band: Val,
    ) -> None:
        plan = self.plan
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
                            with tile_loop(
                                b,
                                pixel_segment,
                                i64(0),
                                i64(sum(s.tiles for s in plan.pixel_segments)),
                                "pixels",
                            ) as (_, pixel):
                                tile = self._tile(b, source, image, row, row_start, pixel)
                                for j, (segment, _) in enumerate(plan.column_segments):
                                    with tile_loop(b, segment, *columns, "columns") as (_, column):
                                        self._call(b, *kernels[i, r, p, j], tile, group, column)

    def _tile(
        self, b: FunctionBuilder, source: Val, image: Val, row: Val, row_start: Val, pixel: Val
    ) -> _Tile:
        """Where the tile is in the output, where its first tap reads, and which rows of taps it has."""
        part, plan = self.part, self.plan
        _, row_pitch, pixel_pitch = plan.pitch
        out_h, out_w, _ = part.out_shape
        linear = affine(
            b,
            [(image, out_h * out_w), (row, part.rows.step * out_w), (pixel, part.pixels.step)],
            part.rows.start * out_w + part.pixels.start,
        )
        kind = LType(part.kind if plan.copies else part.in_kind)
        if self._depth == 0 or plan.edges is Edges.IMAGE:
            return _Tile(linear, source, i64(0), i64(0))
        if plan.edges is Edges.ROW:
            first, count = self._tap_rows(b, row)
            at = affine(b, [(row, part.rows.in_step), (first, part.rows.tap_step)], part.rows.origin)
            offset = affine(b, [(at, row_pitch), (pixel, part.pixels.in_step * pixel_pitch)])
            return _Tile(linear, displaced(b, source, offset, kind), first, count)
        if plan.copies:
            row = b.sub(row, row_start)
        at = affine(b, [(row, part.rows.in_step * row_pitch), (pixel, part.pixels.in_step * pixel_pitch)])
        return _Tile(linear, b.gep(source, at, kind), i64(0), i64(0))

    def _tap_rows(self, b: FunctionBuilder, row: Val) -> tuple[Val, Val]:
        """The first row of taps that reads inside the image from output row `row`, and how many do."""
        axis, extent = self.part.rows, self.part.in_shape[0]
        position = affine(b, [(row, axis.in_step)], axis.origin)
        below = b.binary("smax", b.sub(i64(axis.tap_step - 1), position), i64(0))
        first = b.div(below, i64(axis.tap_step), signed=False)
        room = b.binary("smax", b.sub(i64(extent - 1 + axis.tap_step), position), i64(0))
        stop = b.binary("smin", b.div(room, i64(axis.tap_step), signed=False), i64(axis.taps))
        return first, b.binary("smax", b.sub(stop, first), i64(0))

    def _call(
        self, b: FunctionBuilder, kernel: MicroKernel, name: str, tile: _Tile, group: Val, column: Val
    ) -> None:
        part = self.part
        channel = affine(b, [(group, part.columns), (column, 1)])
        c = b.gep(
            b.args[self.names[2]],
            affine(b, [(tile.linear, part.out_shape[2]), (channel, 1)]),
            LType(part.out_kind),
        )
        right, a = c, tile.a
        if self._depth:
            step = part.pixels.taps * part.reduced * kernel.columns.padded
            right = b.gep(
                self.panels.at(b, b.args["packed"], group, column),
                affine(b, [(tile.first_tap_row, step)]),
                LType(part.kind),
            )
            a = displaced(b, a, column, LType(kernel.a_kind)) if part.depthwise else a
        call_micro(
            b,
            name,
            kernel,
            a,
            right,
            c,
            counts={"taps": tile.tap_rows},
            resume=None,
            last=None,
            row=tile.linear,
            column=channel,
            extra=self.extra,
        )

    # -- the input -------------------------------------------------------------------------------------------
    def _source(
        self, b: FunctionBuilder, group: Val, image: Val, images: int, row_start: Val, row_stop: Val
    ) -> Val:
        """Where tap 0 of pixel 0 of output row 0 (in place) or `row_start` (in the copy) is read; with exact
        taps, the image's start.
        """
        part, plan = self.part, self.plan
        in_h, in_w, in_c = part.in_shape
        channel = i64(0) if part.depthwise else affine(b, [(group, part.reduced)])
        x = b.gep(
            b.args[self.names[0]], affine(b, [(image, in_h * in_w * in_c), (channel, 1)]), LType(part.in_kind)
        )
        if self._depth == 0:
            return x
        if not plan.copies:
            origin = 0 if plan.exact else (part.rows.origin * in_w + part.pixels.origin) * in_c
            return b.gep(x, origin, LType(part.in_kind))
        if plan.exact:
            first, count, origin, width = i64(0), i64(in_h), 0, in_w
        else:
            rows = b.sub(row_stop, row_start)
            count = affine(b, [(rows, part.rows.in_step)], part.rows.reach - part.rows.in_step)
            first = affine(b, [(row_start, part.rows.in_step)], part.rows.origin)
            origin, width = part.pixels.origin, part.pixels.inputs(part.pixels.count)
        copy = PaddedCopy(
            part.in_shape, origin, width, plan.pitch, part.in_kind, part.kind, self.target.lanes(part.kind)
        )
        copy.emit(
            b, x, b.args["scratch"], images, first, count, part.columns if part.depthwise else part.reduced
        )
        return b.args["scratch"]
