"""Gradient of a convolution of known shape with respect to its weights.

Enters: a `ConvSpec`. Leaves: functions in the module and the `Plan`: dw[tap, channel, filter] = sum over
pixels of x[pixel + tap, channel] * dy[pixel, filter], through the micro-kernel of matmul: rows are channels
(or taps and channels, where channels are few), vectors are filters, and the reduction runs over output pixels
in chunks whose inputs (copied with the zeros around them) and cotangents (packed into panels) stay in the L2
cache. Where that leaves too few blocks, the chunks are divided in a fixed number of parts whose sums are
added in order by a second stage. That stage also brings the result from [kh, kw, c, k], its natural layout,
to OIHW. 3x3 taps go through Winograd's algorithm where that is estimated to be faster (winograd_gradient.py).
"""

from __future__ import annotations

import math
from dataclasses import replace

from graphcell.codegen.llvm import winograd_gradient_schedule
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
    ceil_div,
    check_extra,
    round_up,
    split_index,
    tile_loop,
    tile_start,
)
from graphcell.codegen.llvm.correlation import ConvSpec, forward_axis
from graphcell.codegen.llvm.matmul import MatmulSpec, Operand, emit_matmul
from graphcell.codegen.llvm.microkernel import Level, MicroKernel, call_micro, emit_micro
from graphcell.codegen.llvm.packing import emit_pack_panel
from graphcell.codegen.llvm.padding import PaddedCopy
from graphcell.codegen.llvm.partial_sums import PartialSum, emit_weight_sum
from graphcell.codegen.llvm.text import FunctionBuilder, LType, Module, Val, i64
from graphcell.codegen.llvm.weights_schedule import Schedule, schedule
from graphcell.codegen.llvm.winograd_gradient import emit_winograd_gradient
from graphcell.records import dataclass


def emit_weights_gradient(
    module: Module,
    name: str,
    spec: ConvSpec,
    target: ContractionTarget,
    epilogue: Epilogue | None = None,
    extra: Extra = (),
) -> Plan:
    """Emits dw, the gradient of sum(dy * conv(x, w)) in w, in the layout and kind the spec gives the weights.

    Buffers x, dy, dw and, as the plan says, partial, transformed, cotangents and scratch. For the epilogue the output is a matrix as
    it lies in memory: OIHW is k rows of (channel, tap row, tap), HWIO is (tap row, tap, channel) rows of k.
    No output pixels give zeros.
    """
    check_extra("convolution", extra)
    if 0 in (spec.k, spec.c):
        return Plan((), note="empty output")
    if spec.pointwise or 0 in (spec.n, spec.oh, spec.ow):
        return _emit_product(module, name, spec, target, epilogue, extra)
    fast = winograd_gradient_schedule.choose(spec, target)
    if fast is not None:
        return emit_winograd_gradient(module, name, spec, fast, target, epilogue, extra)
    return _Emitter(module, name, spec, schedule(spec, target), target, epilogue, extra).emit()


def _emit_product(
    module: Module,
    name: str,
    spec: ConvSpec,
    target: ContractionTarget,
    epilogue: Epilogue | None,
    extra: Extra,
) -> Plan:
    """A 1x1 convolution, whose gradient is a matmul over all pixels; or no pixels at all."""
    pixels = spec.n * spec.oh * spec.ow
    columns = spec.c // spec.groups * spec.kh * spec.kw
    x, dy = Operand(spec.x_kind, 1, spec.c), Operand(spec.y_kind, 1, spec.k)
    if spec.weights == "HWIO":
        product = MatmulSpec(
            columns, spec.k, pixels, x, replace(dy, row=spec.k, column=1), Operand(spec.w_kind, spec.k, 1)
        )
        return emit_matmul(module, name, product, target, epilogue, extra).renamed(
            {"a": "x", "b": "dy", "c": "dw"}
        )
    product = MatmulSpec(
        spec.k, columns, pixels, dy, replace(x, row=spec.c, column=1), Operand(spec.w_kind, columns, 1)
    )
    return emit_matmul(module, name, product, target, epilogue, extra).renamed(
        {"a": "dy", "b": "x", "c": "dw"}
    )


@dataclass(frozen=True, slots=True)
class _Block:
    """What a block works on in one chunk: ranges of row and column tiles, the slab's first channel, where x
    and dy are read, the chunk's first output row, its images or rows.
    """

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
        return LType(self.spec.kind).bytes

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
        return (
            round_up((plan.chunk if plan.by_images else 1) * plan.pitch[0] * self._size, 64)
            if plan.copies
            else 0
        )

    @property
    def _scratch_bytes(self) -> int:
        panels = (
            self.plan.columns_per_slab
            * self.plan.tile.columns
            * self._chunk_pixels
            * self._size
            * self.plan.packs
        )
        return self._x_bytes + round_up(panels, 64)

    def emit(self) -> Plan:
        spec, plan = self.spec, self.plan
        rows, columns = self._matrix
        stages = [self._emit_work()]
        shared: tuple[tuple[str, int], ...] = ()
        if not plan.direct:
            shared = (("partial", plan.splits * rows * columns * self._size),)
            total = PartialSum(
                rows, columns, plan.splits, spec.kind, spec.w_kind, self.target.lanes(spec.kind), "dw"
            )
            stages.append(
                emit_weight_sum(
                    self.module, self.name, total, spec.weights, spec.kh * spec.kw, self.epilogue, self.extra
                )
            )
        return Plan(tuple(stages), shared, self._scratch_bytes, str(plan), plan.direct and plan.chunks_per_split > 1)

    def _emit_work(self) -> Stage:
        spec, plan = self.spec, self.plan
        extra = tuple(self.extra) if plan.direct else ()
        buffers = (
            "x",
            "dy",
            "dw" if plan.direct else "partial",
            *(("scratch",) if self._scratch_bytes else ()),
        )
        kernels = self._kernels()
        packers = [
            emit_pack_panel(
                self.module, f"{self.name}.pack{j}", columns, spec.k, 1, spec.y_kind, spec.kind, False
            )
            for j, (_, columns) in enumerate(plan.column_segments)
            if plan.packs
        ]
        params = KernelParams(buffers, extra)
        b = FunctionBuilder(
            self.module, self.name if plan.direct else f"{self.name}.part", params.list, internal=False
        )
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
            offsets = plan.rows.offsets[start : start + segment.size]
            steps = tuple(range(segment.size))
            line = []
            for j, (_, columns) in enumerate(plan.column_segments):
                kernel = MicroKernel(
                    spec.kind,
                    columns,
                    offsets,
                    tuple(s * columns_total for s in steps),
                    steps,
                    self._nest(columns),
                    source,
                    spec.kind,
                    out_kind,
                    a_vector=spec.depthwise,
                    b_packed=plan.packs,
                    resumes=plan.chunks_per_split > 1,
                )
                line.append(
                    (
                        kernel,
                        emit_micro(
                            self.module,
                            f"{self.name}.micro{i}{j}",
                            kernel,
                            self.epilogue if plan.direct else None,
                            self.extra if plan.direct else (),
                        ),
                    )
                )
            table.append(line)
        return table

    def _nest(self, columns: Columns) -> tuple[Level, ...]:
        """The reduction over the output pixels of a chunk."""
        spec, plan = self.spec, self.plan
        image, row, pixel = plan.pitch
        step = self._panel_step(columns)
        rows = Level(
            spec.oh if plan.by_images and not plan.exact else "rows", spec.stride[0] * row, spec.ow * step
        )
        pixels = Level("pixels" if plan.exact else spec.ow, spec.stride[1] * pixel, step)
        if not plan.by_images:
            return rows, pixels
        return Level("images", image, spec.oh * spec.ow * step), rows, pixels

    def _panel_step(self, columns: Columns) -> int:
        """Elements from pixel to pixel in what is read as dy."""
        return columns.padded if self.plan.packs else self.spec.k

    def _emit_block(
        self,
        b: FunctionBuilder,
        kernels: list[list[tuple[MicroKernel, str]]],
        packers: list[str],
        extra: Extra,
        group: Val,
        split: Val,
        row_slab: Val,
        column_slab: Val,
    ) -> None:
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

    def _source(
        self,
        b: FunctionBuilder,
        group: Val,
        image: Val,
        row: Val,
        count: Val,
        channel: Val,
        channels: int | Val,
    ) -> Val:
        """Where the chunk's first pixel reads with tap 0: channel 0 in place, the slab's first channel in the
        copy.
        """
        spec, plan = self.spec, self.plan
        in_group = i64(0) if spec.depthwise else affine(b, [(group, spec.c // spec.groups)])
        x = affine(b, [(image, spec.h * spec.w * spec.c), (in_group, 1)])
        if not plan.copies:
            top, left = -spec.padding[0], -spec.padding[2]
            offset = affine(
                b, [(x, 1), (row, spec.stride[0] * plan.pitch[1])], top * plan.pitch[1] + left * plan.pitch[2]
            )
            if plan.exact:  # the tap and its first pixel decide
                offset = x
            return b.gep(b.args["x"], offset, LType(spec.x_kind))
        down = forward_axis(spec.oh, spec.stride[0], spec.padding[0], spec.kh, spec.dilation[0])
        across = forward_axis(spec.ow, spec.stride[1], spec.padding[2], spec.kw, spec.dilation[1])
        copy = PaddedCopy(
            (spec.h, spec.w, spec.c),
            across.origin,
            across.inputs(spec.ow),
            plan.pitch,
            spec.x_kind,
            spec.kind,
            self.target.lanes(spec.kind),
        )
        pointer = b.gep(b.args["x"], affine(b, [(x, 1), (channel, 1)]), LType(spec.x_kind))
        images, out_rows = (count, i64(spec.oh)) if plan.by_images else (i64(1), count)
        copy.emit(
            b,
            pointer,
            b.args["scratch"],
            images,
            affine(b, [(row, down.in_step)], down.origin),
            affine(b, [(out_rows, down.in_step)], down.reach - down.in_step),
            channels,
        )
        return b.args["scratch"]

    def _cotangent(
        self,
        b: FunctionBuilder,
        packers: list[str],
        group: Val,
        image: Val,
        row: Val,
        count: Val,
        columns: tuple[Val, Val],
    ) -> Val:
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
                b.call(
                    packer,
                    LType("void"),
                    b.gep(b.args["dy"], offset, LType(spec.y_kind)),
                    self._panel(b, panels, group, columns, column),
                    pixels,
                )
        return panels

    def _filter(self, b: FunctionBuilder, group: Val, column: Val) -> Val:
        return (
            column
            if self.spec.depthwise
            else affine(b, [(group, self.spec.k // self.spec.groups), (column, 1)])
        )

    def _panel(
        self, b: FunctionBuilder, cotangent: Val, group: Val, columns: tuple[Val, Val], column: Val
    ) -> Val:
        """Where the columns of a tile are read for the chunk's first pixel."""
        if not self.plan.packs:
            return b.gep(cotangent, self._filter(b, group, column), LType(self.spec.y_kind))
        origin = affine(b, [(columns[0], self.plan.tile.columns)])
        within = column if origin.text == "0" else b.sub(column, origin)
        return b.gep(cotangent, affine(b, [(within, self._chunk_pixels)]), LType(self.spec.kind))

    def _tiles(
        self, b: FunctionBuilder, kernel: MicroKernel, name: str, i: int, j: int, block: _Block, extra: Extra
    ) -> None:
        """The register tiles of the block in row segment i and column segment j, for one chunk."""
        spec, plan = self.spec, self.plan
        total_rows, total_columns = self._matrix
        loops = [*plan.rows.loops, *[(1, 0, 0)] * (2 - len(plan.rows.loops))]
        step = plan.rows.offsets[1] if plan.rows.regular and plan.rows.count > 1 else 0
        kind = LType(spec.kind if plan.copies else spec.x_kind)
        with (
            b.loop(0, loops[0][0], name="unit", at_least_once=True) as outer,
            b.loop(0, loops[1][0], name="tap", at_least_once=True) as inner,
        ):
            counts, a_pixels, panel_pixels = self._pixels(b, outer.index, inner.index, block)
            with (
                tile_loop(b, plan.row_segments[i], *block.rows, "rows") as (_, row),
                tile_loop(b, plan.column_segments[j][0], *block.columns, "columns") as (_, column),
            ):
                within = b.sub(row, block.channel) if plan.copies and block.channel.text != "0" else row
                a = affine(b, [(within, step), (column, int(spec.depthwise))])
                if not plan.exact:
                    a = affine(b, [(a, 1), (outer.index, loops[0][1]), (inner.index, loops[1][1])])
                line = affine(b, [(outer.index, loops[0][2]), (inner.index, loops[1][2]), (row, 1)])
                filters = self._filter(b, block.group, column)
                at = affine(
                    b, [(line, total_columns), (filters, 1), (block.split, total_rows * total_columns)]
                )
                c = b.gep(b.args["dw" if plan.direct else "partial"], at, LType(kernel.c_kind))
                panel = b.gep(
                    self._panel(b, block.cotangent, block.group, block.columns, column),
                    affine(b, [(panel_pixels, self._panel_step(kernel.columns))]),
                    LType(kernel.b_kind),
                )
                call_micro(
                    b,
                    name,
                    kernel,
                    b.gep(block.source, affine(b, [(a, 1), (a_pixels, 1)]), kind),
                    panel,
                    c,
                    counts=counts,
                    resume=block.resume,
                    last=block.last,
                    row=line,
                    column=filters,
                    extra=extra,
                )

    def _pixels(
        self, b: FunctionBuilder, tap_row: Val, tap: Val, block: _Block
    ) -> tuple[dict[str, Val], Val, Val]:
        """The extents of the reduction, and how far into x and into the panel its first pixel is (the panel
        in pixels).
        """
        spec, plan = self.spec, self.plan
        if not plan.exact:
            return {"images": block.count, "rows": block.count}, i64(0), i64(0)
        end = i64(spec.oh) if plan.by_images else b.add(block.row, block.count)
        above, rows = _active(
            b, tap_row, spec.dilation[0], spec.padding[0], spec.stride[0], spec.h, block.row, end
        )
        left, pixels = _active(
            b, tap, spec.dilation[1], spec.padding[2], spec.stride[1], spec.w, i64(0), i64(spec.ow)
        )
        _, row_pitch, pixel_pitch = plan.pitch
        a = affine(
            b,
            [
                (above, spec.stride[0] * row_pitch),
                (tap_row, spec.dilation[0] * row_pitch),
                (left, spec.stride[1] * pixel_pitch),
                (tap, spec.dilation[1] * pixel_pitch),
            ],
            -spec.padding[0] * row_pitch - spec.padding[2] * pixel_pitch,
        )
        first = above if block.row.text == "0" else b.sub(above, block.row)
        return (
            {"images": block.count, "rows": rows, "pixels": pixels},
            a,
            affine(b, [(first, spec.ow), (left, 1)]),
        )


def _active(
    b: FunctionBuilder, tap: Val, dilation: int, before: int, stride: int, extent: int, low: Val, high: Val
) -> tuple[Val, Val]:
    """The first output in low .. high whose tap reads inside 0 .. extent, and how many there
    are.
    """
    position = affine(b, [(tap, dilation)], -before)  # of output 0
    start = b.binary("smax", b.sub(i64(stride - 1), position), i64(0))
    stop = b.binary("smax", b.sub(i64(extent - 1 + stride), position), i64(0))
    start, stop = b.div(start, i64(stride), signed=False), b.div(stop, i64(stride), signed=False)
    start = b.binary("smax", start, low)
    return start, b.binary("smax", b.sub(b.binary("smin", stop, high), start), i64(0))
