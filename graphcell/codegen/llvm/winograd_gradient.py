"""Gradient of a convolution of unit stride with respect to its weights by Winograd's algorithm.

Enters: a `ConvSpec` and a `Schedule`. Leaves: functions in the module and the `Plan` to call them. A tile of
the cotangent is the filter here: its correlation with the tile of the input gives as many numbers for each
channel and filter as there are taps, F(3x3, 4x4) or F(1x5, 1x4), say. Both are transformed, and product by product the sum over all
tiles is a matrix product over them, [channels, tiles] . [tiles, filters]; what is transformed back are the
sums. Tiles are divided in a fixed number of parts, whose results the last stage adds in order.
"""

from __future__ import annotations

from graphcell.codegen.llvm.contraction import (
    ContractionTarget,
    Epilogue,
    Extra,
    KernelParams,
    Plan,
    Stage,
    affine,
    block_range,
    ceil_div,
    round_up,
    split_index,
    tile_loop,
    tile_start,
)
from graphcell.codegen.llvm.correlation import ConvSpec
from graphcell.codegen.llvm.microkernel import Level, MicroKernel, call_micro, emit_micro
from graphcell.codegen.llvm.packing import store_as
from graphcell.codegen.llvm.partial_sums import PartialSum, emit_weight_sum
from graphcell.codegen.llvm.text import I64, PTR, VOID, FunctionBuilder, LType, Module, Val, constant_mask, i64
from graphcell.codegen.llvm.winograd_direct import DirectWeight, all_moderate
from graphcell.codegen.llvm.winograd_gradient_schedule import Schedule
from graphcell.codegen.llvm.winograd_tiles import InputTiles, Operand
from graphcell.codegen.llvm.winograd_transforms import interpolate, transform_columns, transform_rows
from graphcell.records import dataclass

_TILES_PER_INPUT_BLOCK = 8


def emit_winograd_gradient(
    module: Module, name: str, spec: ConvSpec, plan: Schedule, target: ContractionTarget, epilogue: Epilogue | None, extra: Extra
) -> Plan:
    """Emits dw; buffers x, dy, dw, transformed, cotangents, partial and scratch, as the plan says.

    For the epilogue the output is a matrix as it lies in memory, as of `emit_weights_gradient`.
    """
    return _Emitter(module, name, spec, plan, target, epilogue, extra).emit()


@dataclass(frozen=True, slots=True)
class _Block:
    """Ranges of row tiles and of column tiles, with their first and last channel and filter."""

    rows: tuple[Val, Val]
    columns: tuple[Val, Val]
    channels: tuple[Val, Val]
    filters: tuple[Val, Val]
    products: Val


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
    def _lanes(self) -> int:
        return self.target.lanes(self.spec.kind)

    @property
    def _kind(self) -> LType:
        return LType(self.spec.kind)

    def _bytes(self, operand: Operand) -> int:
        return round_up(self.plan.algorithm.products * operand.plane * self._size, 64)

    def emit(self) -> Plan:
        spec, plan = self.spec, self.plan
        rows = self._input_tiles().emit(self.module, f"{self.name}.tiles", plan.left)
        columns = self._cotangent_tiles().emit(self.module, f"{self.name}.cotangents", plan.right)
        partial = PartialSum(spec.kh * spec.kw * spec.c, spec.k, plan.splits, spec.kind, spec.w_kind, self._lanes, "dw")
        shared = [("partial", plan.splits * partial.matrix * self._size)]
        stages, scratch = [], self._bytes(plan.products)
        if plan.shared:
            stages.append(self._emit_transform(rows, "x", "transformed", plan.left, spec.c))
            stages.append(self._emit_transform(columns, "dy", "cotangents", plan.right, spec.k))
            shared += [("transformed", self._bytes(plan.left)), ("cotangents", self._bytes(plan.right))]
        else:
            scratch += self._bytes(plan.left) + self._bytes(plan.right)
        stages.append(self._emit_work(rows, columns))
        stages.append(emit_weight_sum(self.module, self.name, partial, spec.weights, spec.kh * spec.kw, self.epilogue, self.extra))
        return Plan(tuple(stages), tuple(shared), scratch, str(plan))

    def _input_tiles(self) -> InputTiles:
        spec, algorithm = self.spec, self.plan.algorithm
        return InputTiles(
            (spec.h, spec.w, spec.c),
            self.plan.tiling,
            (-spec.padding[0], -spec.padding[2]),
            algorithm.input_matrices,
            spec.x_kind,
            spec.kind,
            self._lanes,
        )

    def _cotangent_tiles(self) -> InputTiles:
        spec, algorithm = self.spec, self.plan.algorithm
        return InputTiles(
            (spec.oh, spec.ow, spec.k),
            self.plan.tiling,
            (0, 0),
            algorithm.filter_matrices,
            spec.y_kind,
            spec.kind,
            self._lanes,
        )

    def _emit_transform(self, function: str, source: str, to: str, operand: Operand, channels: int) -> Stage:
        """The stage that transforms all tiles of x or dy; a block is a few tiles."""
        params = KernelParams((source, to))
        b = FunctionBuilder(self.module, f"{self.name}.{source}", params.list, internal=False)
        first = b.mul(b.args["begin"], i64(_TILES_PER_INPUT_BLOCK))
        stop = b.binary("smin", b.mul(b.args["end"], i64(_TILES_PER_INPUT_BLOCK)), i64(self.plan.tiles))
        at = b.gep(b.args[to], b.mul(first, i64(operand.pitch)), self._kind)
        b.call(function, VOID, b.args[source], first, stop, i64(0), i64(channels), at)
        work = 4 * self.plan.algorithm.products * channels * _TILES_PER_INPUT_BLOCK
        return Stage(b.finish(), params.buffers, (), ceil_div(self.plan.tiles, _TILES_PER_INPUT_BLOCK), work)

    def _kernels(self) -> list[list[tuple[MicroKernel, str]]]:
        spec, plan = self.spec, self.plan
        table = []
        for i, rows in enumerate(plan.row_segments):
            line = []
            for j, (_, columns) in enumerate(plan.column_segments):
                steps = tuple(range(rows.size))
                kernel = MicroKernel(
                    spec.kind,
                    columns,
                    steps,
                    tuple(s * plan.products.pitch for s in steps),
                    steps,
                    (Level("count", plan.left.pitch, plan.right.pitch),),
                    spec.kind,
                    spec.kind,
                    spec.kind,
                    resumes=plan.chunk < plan.split_tiles,
                )
                line.append((kernel, emit_micro(self.module, f"{self.name}.micro{i}{j}", kernel, None, ())))
            table.append(line)
        return table

    def _emit_work(self, tiles: str, cotangents: str) -> Stage:
        spec, plan = self.spec, self.plan
        kernels, results = self._kernels(), self._emit_results()
        sources = ("transformed", "cotangents") if plan.shared else ("x", "dy")
        params = KernelParams((*dict.fromkeys((*sources, "x", "dy")), "partial", "scratch"))
        b = FunctionBuilder(self.module, f"{self.name}.part", params.list, internal=False)
        with b.loop(b.args["begin"], b.args["end"], name="block") as loop:
            part, *slab = split_index(b, loop.index, (plan.splits, *plan.slabs))
            block = self._block(b, slab[0], slab[1])
            first = b.mul(part, i64(plan.split_tiles))
            stop = b.binary("smin", b.add(first, i64(plan.split_tiles)), i64(plan.tiles))
            if plan.shared:
                left = b.gep(b.args["transformed"], affine(b, [(first, plan.left.pitch), (block.channels[0], 1)]), self._kind)
                right = b.gep(b.args["cotangents"], affine(b, [(first, plan.right.pitch), (block.filters[0], 1)]), self._kind)
                self._emit_products(b, kernels, block, left, right, b.sub(stop, first), i64(0))
            else:
                with b.loop(first, stop, plan.chunk, name="chunk") as chunk:
                    end = b.binary("smin", b.add(chunk.index, i64(plan.chunk)), stop)
                    left, right = self._transform(b, tiles, cotangents, block, chunk.index, end)
                    resume = b.cast(b.icmp("sgt", chunk.index, first), LType("i64"))
                    self._emit_products(b, kernels, block, left, right, b.sub(end, chunk.index), resume)
            to = b.gep(b.args["partial"], affine(b, [(part, spec.kh * spec.kw * spec.c * spec.k)]), self._kind)
            b.call(results, VOID, block.products, b.args["x"], b.args["dy"], to, *block.channels, *block.filters, first, stop)
        blocks = plan.splits * plan.slabs[0] * plan.slabs[1]
        flops = 2 * plan.algorithm.products * plan.tiles * spec.c * spec.k
        return Stage(b.finish(), params.buffers, (), blocks, flops // blocks)

    def _block(self, b: FunctionBuilder, row_slab: Val, column_slab: Val) -> _Block:
        spec, plan = self.spec, self.plan
        rows = block_range(b, row_slab, plan.rows_per_slab, plan.row_tiles)
        columns = block_range(b, column_slab, plan.columns_per_slab, plan.column_tiles)
        channels = tile_start(b, plan.row_segments, rows[0]), tile_start(b, plan.row_segments, rows[1])
        low = affine(b, [(columns[0], plan.tile.columns)])
        high = b.binary("smin", affine(b, [(columns[1], plan.tile.columns)]), i64(spec.k))
        skipped = 0 if plan.shared else self._bytes(plan.left) + self._bytes(plan.right)
        return _Block(rows, columns, channels, (low, high), b.gep(b.args["scratch"], skipped, LType("i8")))

    def _transform(
        self, b: FunctionBuilder, tiles: str, cotangents: str, block: _Block, begin: Val, end: Val
    ) -> tuple[Val, Val]:
        """Transforms the slab's channels and filters of tiles begin .. end to scratch memory: where the first
        channel and filter of the slab lie there.
        """
        left = b.args["scratch"]
        right = b.gep(left, self._bytes(self.plan.left), LType("i8"))
        aligned = b.and_(block.channels[0], i64(-self._lanes))
        b.call(tiles, VOID, b.args["x"], begin, end, aligned, block.channels[1], left)
        b.call(cotangents, VOID, b.args["dy"], begin, end, *block.filters, right)
        return b.gep(left, b.sub(block.channels[0], aligned), self._kind), right

    def _emit_products(
        self,
        b: FunctionBuilder,
        kernels: list[list[tuple[MicroKernel, str]]],
        block: _Block,
        left: Val,
        right: Val,
        count: Val,
        resume: Val,
    ) -> None:
        """The matrix products of the block, all products of the algorithm, over `count` tiles."""
        plan = self.plan
        with b.loop(0, plan.algorithm.products, name="product", at_least_once=True) as product:
            a_plane = b.gep(left, affine(b, [(product.index, plan.left.plane)]), self._kind)
            b_plane = b.gep(right, affine(b, [(product.index, plan.right.plane)]), self._kind)
            c_plane = b.gep(block.products, affine(b, [(product.index, plan.products.plane)]), self._kind)
            for i, row_segment in enumerate(plan.row_segments):
                with tile_loop(b, row_segment, *block.rows, "rows") as (_, row):
                    within = b.sub(row, block.channels[0])
                    c_row = b.gep(c_plane, affine(b, [(within, plan.products.pitch)]), self._kind)
                    for j, (segment, _) in enumerate(plan.column_segments):
                        with tile_loop(b, segment, *block.columns, "columns") as (_, column):
                            kernel, name = kernels[i][j]
                            across = b.sub(column, block.filters[0])
                            call_micro(
                                b,
                                name,
                                kernel,
                                b.gep(a_plane, within, self._kind),
                                b.gep(b_plane, across, self._kind),
                                b.gep(c_row, across, self._kind),
                                counts={"count": count},
                                resume=resume,
                                last=i64(1),
                                row=i64(0),
                                column=i64(0),
                                extra=(),
                            )

    def _emit_results(self) -> str:
        """Emits `void f(ptr products, ptr x, ptr dy, ptr to, i64 low, i64 high, i64 left, i64 right, i64 begin, i64 end)`: the sums over
        tiles begin .. end for channels low .. high and filters left .. right, transformed back to [tap][channel][filter] at `to`.
        """
        spec, plan, algorithm = self.spec, self.plan, self.plan.algorithm
        vector, lanes = LType(spec.kind, self._lanes), self._lanes
        numbers = ("low", "high", "left", "right", "begin", "end")
        params = [*((n, PTR) for n in ("products", "x", "dy", "to")), *((n, I64) for n in numbers)]
        direct = DirectWeight(spec, plan.tiling, lanes)
        b = FunctionBuilder(self.module, f"{self.name}.results", params, attributes="nounwind noinline")
        with b.loop(b.args["low"], b.args["high"], name="channel") as channel:
            source = b.mul(b.sub(channel.index, b.args["low"]), i64(plan.products.pitch))
            line = b.gep(b.args["products"], source, self._kind)
            target = b.gep(b.args["to"], b.mul(channel.index, i64(spec.k)), self._kind)

            def piece(filter: Val, mask: Val | None) -> None:
                at = b.gep(line, b.sub(filter, b.args["left"]), self._kind)
                to = b.gep(target, filter, self._kind)

                def load(i: int, j: int) -> Val:
                    return b.load(b.gep(at, (i * algorithm.pixels.size + j) * plan.products.plane, self._kind), vector)

                def store(i: int, j: int, value: Val) -> None:
                    store_as(b, value, b.gep(to, (spec.kw * i + j) * spec.c * spec.k, self._kind), spec.kind, mask)

                matrices = algorithm.output_matrices
                columns = transform_columns(b, matrices, load, interpolate)
                rare = direct.emit(self.module, f"{self.name}.direct{int(mask is not None)}", mask)
                given = [b.args["x"], b.args["dy"], to, channel.index, filter, b.args["begin"], b.args["end"]]
                b.if_else(
                    all_moderate(b, [value for line in columns for value in line], mask),
                    lambda: transform_rows(b, matrices, columns, interpolate, store),
                    lambda: b.call(rare, VOID, *given) and None,
                )

            full = spec.k // lanes * lanes
            if full:
                with b.loop(b.args["left"], b.binary("smin", b.args["right"], i64(full)), lanes, name="filter") as filter:
                    piece(filter.index, None)
            if spec.k > full:
                with b.if_then(b.icmp("sgt", b.args["right"], i64(full))):
                    piece(i64(full), constant_mask(spec.k - full, lanes))
        return b.finish()
