"""Convolutions of unit stride by Winograd's algorithm: forward and gradient with respect to the input.

Enters: a `Correlation` (either direction) and a `Schedule`. Leaves: functions in the module and the `Plan` to
call them. The image is cut in tiles of outputs; the input and the weights of each are transformed, multiplied
product by product (a matrix product over the channels each, [tiles, channels] . [channels, columns]), and the
products transformed back, 2.25 (F(2x2, 3x3)), 2.8 (F(2x2, 5x5)) or 4 (F(4x4, 3x3)) times fewer multiplications than direct summation, along
one axis 2 (F(1x4, 1x3)), 2.5 (F(1x4, 1x5)) or 1.75 (F(1x2, 1x7)). The pixels of a tile lie as far apart as the taps (winograd_tiling.py).

A tile with infinities, NaN or numbers near the largest one is summed directly, as soon as its products show them.

Stages: `pack` transforms the weights, which is all it reads; `input` the image, unless each block transforms
its own tiles; the last does the products and the way back, with the epilogue. Everything a block works on
stays in its L2 cache. Blocks are a pure function of the shapes: any number of threads gives the same bits.
"""

from __future__ import annotations

import math

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
from graphcell.codegen.llvm.correlation import Correlation
from graphcell.codegen.llvm.microkernel import Level, MicroKernel, call_micro, come_from_memory, emit_micro
from graphcell.codegen.llvm.text import VOID, FunctionBuilder, LType, Module, Val, i64
from graphcell.codegen.llvm.winograd_direct import DirectTile
from graphcell.codegen.llvm.winograd_filters import FilterPanels
from graphcell.codegen.llvm.winograd_schedule import Schedule
from graphcell.codegen.llvm.winograd_tiles import InputTiles, OutputTiles
from graphcell.records import dataclass

_TILES_PER_INPUT_BLOCK = 8


def emit_winograd(
    module: Module,
    name: str,
    part: Correlation,
    plan: Schedule,
    target: ContractionTarget,
    epilogue: Epilogue | None,
    extra: Extra,
    names: tuple[str, str, str],
) -> Plan:
    """Emits the correlation; `names` are those of the input, the weights ("w") and the output.

    For the epilogue `row` is the linear index of the output pixel, `column` the output channel.
    """
    return _Emitter(module, name, part, plan, target, epilogue, extra, names).emit()


@dataclass(frozen=True, slots=True)
class _Functions:
    """Names of what the stages call: the input transform, the filter transforms, the micro-kernels by row and
    column segment, the output transform.
    """

    input: str
    filters: list[str]
    micro: list[list[tuple[MicroKernel, str]]]
    output: str


@dataclass(frozen=True, slots=True)
class _Block:
    """Register tiles (of rows) and tiles [low, high), column tiles [low, high), the first column of the slab,
    and where its first tile is in the transformed input.
    """

    rows: tuple[Val, Val]
    tiles: tuple[Val, Val]
    columns: tuple[Val, Val]
    column: Val
    left: Val


@dataclass(frozen=True)
class _Emitter:
    module: Module
    name: str
    part: Correlation
    plan: Schedule
    target: ContractionTarget
    epilogue: Epilogue | None
    extra: Extra
    names: tuple[str, str, str]

    @property
    def _size(self) -> int:
        return LType(self.part.kind).bytes

    @property
    def _kind(self) -> LType:
        return LType(self.part.kind)

    @property
    def _panels(self) -> FilterPanels:
        plan = self.plan
        return FilterPanels(self.part, plan.algorithm, plan.tile, plan.column_segments, plan.chunk or self.part.reduced)

    @property
    def _offsets(self) -> tuple[int, int, int]:
        """In the scratch memory: bytes before the products, before the weights, of all."""
        plan, count = self.plan, self.plan.algorithm.products
        products = 0 if plan.shared_input else round_up(count * plan.input.plane * self._size, 64)
        filters = products + round_up(count * plan.products.plane * self._size, 64)
        weights = self._panels.elements(plan.columns_per_slab) if plan.chunk else 0
        return products, filters, filters + round_up(weights * self._size, 64)

    @property
    def _packed_bytes(self) -> int:
        """Of the transformed weights, where a stage of its own makes them."""
        return self._panels.elements(self.plan.column_tiles) * self._size

    @property
    def _streams(self) -> bool:
        """Whether the transformed weights come from memory and few tiles read each of them."""
        return not self.plan.chunk and come_from_memory(self._packed_bytes, self.plan.row_tiles, self.target)

    def emit(self) -> Plan:
        plan = self.plan
        functions = self._emit_functions()
        stages, shared = [], []
        if not plan.chunk:
            stages.append(self._panels.emit_stage(self.module, self.name))
            shared.append(("packed", self._packed_bytes))
        if plan.shared_input:
            stages.append(self._emit_input(functions))
            shared.append(("transformed", plan.algorithm.products * plan.input.plane * self._size))
        stages.append(self._emit_work(functions))
        note = f"{plan}{', weights asked for ahead' if self._streams else ''}"
        return Plan(tuple(stages), tuple(shared), self._offsets[2], note)

    def _emit_functions(self) -> _Functions:
        part, plan, lanes = self.part, self.plan, self.target.lanes(self.part.kind)
        origin = (part.rows.origin, part.pixels.origin)
        tiles = InputTiles(
            part.in_shape, plan.tiling, origin, plan.algorithm.input_matrices, part.in_kind, part.kind, lanes
        )
        direct = DirectTile(part, plan.tiling, lanes)
        results = OutputTiles(plan.algorithm, part.out_shape, plan.tiling, part.kind, part.out_kind, lanes, direct)
        return _Functions(
            tiles.emit(self.module, f"{self.name}.tiles", plan.input),
            self._panels.emit_functions(self.module, self.name) if plan.chunk else [],
            self._emit_kernels(),
            results.emit(self.module, f"{self.name}.results", plan.products, self.epilogue, self.extra),
        )

    def _emit_kernels(self) -> list[list[tuple[MicroKernel, str]]]:
        part, plan = self.part, self.plan
        chunks = ceil_div(part.reduced, plan.chunk or part.reduced)
        multiple = math.gcd(part.reduced, plan.chunk)
        table = []
        for i, rows in enumerate(plan.row_segments):
            line = []
            for j, (_, columns) in enumerate(plan.column_segments):
                steps = range(rows.size)
                kernel = MicroKernel(
                    part.kind,
                    columns,
                    tuple(s * plan.input.pitch for s in steps),
                    tuple(s * plan.products.pitch for s in steps),
                    tuple(steps),
                    (Level("count" if chunks > 1 else part.reduced, 1, columns.padded, multiple or 1),),
                    part.kind,
                    part.kind,
                    part.kind,
                    resumes=chunks > 1,
                    streams=self._streams,
                )
                line.append((kernel, emit_micro(self.module, f"{self.name}.micro{i}{j}", kernel, None, ())))
            table.append(line)
        return table

    # -- stages ----------------------------------------------------------------------------------------------
    def _emit_input(self, functions: _Functions) -> Stage:
        plan = self.plan
        params = KernelParams((self.names[0], "transformed"))
        b = FunctionBuilder(self.module, f"{self.name}.input", params.list, internal=False)
        first = b.mul(b.args["begin"], i64(_TILES_PER_INPUT_BLOCK))
        stop = b.binary("smin", b.mul(b.args["end"], i64(_TILES_PER_INPUT_BLOCK)), i64(plan.tiles))
        to = b.gep(b.args["transformed"], b.mul(first, i64(plan.input.pitch)), self._kind)
        b.call(functions.input, VOID, b.args[self.names[0]], first, stop, i64(0), i64(self.part.reduced), to)
        work = 4 * plan.algorithm.products * self.part.reduced * _TILES_PER_INPUT_BLOCK
        return Stage(b.finish(), params.buffers, (), ceil_div(plan.tiles, _TILES_PER_INPUT_BLOCK), work)

    def _emit_work(self, functions: _Functions) -> Stage:
        plan, part = self.plan, self.part
        source = "transformed" if plan.shared_input else self.names[0]
        weights = ("w",) if plan.chunk else ("packed", "w")
        buffers = (*dict.fromkeys((source, self.names[0])), *weights, self.names[2], "scratch")
        params = KernelParams(buffers, tuple(self.extra))
        b = FunctionBuilder(self.module, self.name, params.list, internal=False)
        slabs = plan.slabs if plan.shared_input else 1
        with b.loop(b.args["begin"], b.args["end"], name="block") as loop:
            slab, group = split_index(b, loop.index, (slabs, plan.groups))
            rows = block_range(b, group, plan.rows_per_block, plan.row_tiles)
            tiles = tile_start(b, plan.row_segments, rows[0]), tile_start(b, plan.row_segments, rows[1])
            if plan.shared_input:
                left = b.gep(b.args["transformed"], affine(b, [(tiles[0], plan.input.pitch)]), self._kind)
                self._emit_slab(b, functions, rows, tiles, slab, left)
            else:
                b.call(functions.input, VOID, b.args[self.names[0]], *tiles, i64(0), i64(part.reduced), b.args["scratch"])
                with b.loop(0, plan.slabs, name="slab", at_least_once=True) as inner:
                    index = i64(0) if plan.slabs == 1 else inner.index
                    self._emit_slab(b, functions, rows, tiles, index, b.args["scratch"])
        blocks = slabs * plan.groups
        flops = 2 * plan.algorithm.products * plan.tiles * part.reduced * part.columns
        return Stage(b.finish(), buffers, tuple(n for n, _ in self.extra), blocks, flops // blocks)

    def _emit_slab(
        self, b: FunctionBuilder, functions: _Functions, rows: tuple[Val, Val], tiles: tuple[Val, Val], slab: Val, left: Val
    ) -> None:
        """The products and results of the columns of a slab."""
        plan, part = self.plan, self.part
        products_at, filters_at, _ = self._offsets
        columns = block_range(b, slab, plan.columns_per_slab, plan.column_tiles)
        low = affine(b, [(columns[0], plan.tile.columns)])
        high = b.binary("smin", affine(b, [(columns[1], plan.tile.columns)]), i64(part.columns))
        block = _Block(rows, tiles, columns, low, left)
        products = b.gep(b.args["scratch"], products_at, LType("i8"))
        if plan.chunk:
            right = b.gep(b.args["scratch"], filters_at, LType("i8"))
            with b.loop(0, part.reduced, plan.chunk, name="chunk", at_least_once=True) as loop:
                stop = b.binary("smin", b.add(loop.index, i64(plan.chunk)), i64(part.reduced))
                self._panels.call(b, functions.filters, columns, (loop.index, stop), right, (columns[0], loop.index))
                self._emit_products(b, functions, block, right, products, (loop.index, stop))
        else:
            right = b.gep(b.args["packed"], affine(b, [(columns[0], self._panels.panel)]), self._kind)
            self._emit_products(b, functions, block, right, products, (i64(0), i64(part.reduced)))
        extra = [b.args[n] for n, _ in self.extra]
        b.call(functions.output, VOID, products, b.args[self.names[0]], b.args["w"], b.args[self.names[2]], *tiles, low, high, *extra)

    def _emit_products(
        self, b: FunctionBuilder, functions: _Functions, block: _Block, right: Val, products: Val, channels: tuple[Val, Val]
    ) -> None:
        """The matrix products of the block, all products of the algorithm, over a range of channels."""
        plan, panels = self.plan, self._panels
        left = b.gep(block.left, channels[0], self._kind)
        counts = {"count": b.sub(channels[1], channels[0])}
        resume = b.cast(b.icmp("sgt", channels[0], i64(0)), LType("i64"))
        with b.loop(0, plan.algorithm.products, name="product", at_least_once=True) as product:
            for i, row_segment in enumerate(plan.row_segments):
                with tile_loop(b, row_segment, *block.rows, "rows") as (_, row):
                    within = b.sub(row, block.tiles[0])
                    a = b.gep(left, affine(b, [(product.index, plan.input.plane), (within, plan.input.pitch)]), self._kind)
                    c_row = affine(b, [(product.index, plan.products.plane), (within, plan.products.pitch)])
                    for j, (segment, columns) in enumerate(plan.column_segments):
                        with tile_loop(b, segment, *block.columns, "columns") as (tile, column):
                            kernel, name = functions.micro[i][j]
                            panel = affine(
                                b, [(b.sub(tile, block.columns[0]), panels.panel), (product.index, panels.plane(columns))]
                            )
                            c = b.add(c_row, b.sub(column, block.column))
                            call_micro(
                                b,
                                name,
                                kernel,
                                a,
                                b.gep(right, panel, self._kind),
                                b.gep(products, c, self._kind),
                                counts=counts,
                                resume=resume,
                                last=i64(1),
                                row=i64(0),
                                column=i64(0),
                                extra=(),
                            )
