"""Transforms the weights of a correlation for Winograd's algorithm.

Enters: weights in OIHW or HWIO, of any float kind. Leaves: panels [column tile][product][channel][lanes] of
the accumulation kind for the micro-kernel, zeros in lanes beyond the last column: all of them by a stage of
its own, which reads the weights only, or some channels of a few column tiles where they are used.
"""

from __future__ import annotations

from dataclasses import replace

from graphcell.codegen.llvm.contraction import Columns, KernelParams, Segment, Stage, TileShape, affine, ceil_div, tile_loop
from graphcell.codegen.llvm.correlation import Correlation
from graphcell.codegen.llvm.text import I64, PTR, VOID, FunctionBuilder, LType, Module, Val, i64
from graphcell.codegen.llvm.weight_panels import WeightPacker
from graphcell.codegen.llvm.winograd_transforms import Nested, evaluate, transform_grid
from graphcell.records import dataclass

STEP = 16  # channels that are transformed at once, whose taps stay in the L1 cache


@dataclass(frozen=True, slots=True)
class FilterPanels:
    """Panels with room for `depth` channels each."""

    part: Correlation
    algorithm: Nested
    tile: TileShape
    column_segments: tuple[tuple[Segment, Columns], ...]
    depth: int

    @property
    def column_tiles(self) -> int:
        return sum(segment.tiles for segment, _ in self.column_segments)

    def plane(self, columns: Columns) -> int:
        """Elements from product to product; not a power of two, whose multiples share a cache line."""
        return self.depth * columns.padded + columns.lanes

    @property
    def panel(self) -> int:
        """Elements from column tile to column tile."""
        return self.algorithm.products * self.plane(Columns(self.tile.vectors, self.tile.lanes, self.tile.lanes))

    def elements(self, column_tiles: int) -> int:
        return self.panel * column_tiles

    def emit_stage(self, module: Module, name: str) -> Stage:
        """The stage `name.pack` for all channels; a block is `STEP` channels of a column tile."""
        kernels = self.emit_functions(module, name)
        steps = ceil_div(self.part.reduced, STEP)
        params = KernelParams(("w", "packed"))
        b = FunctionBuilder(module, f"{name}.pack", params.list, internal=False)
        with b.loop(b.args["begin"], b.args["end"], name="panel") as loop:
            tile = b.div(loop.index, i64(steps), signed=False)
            channel = b.mul(b.rem(loop.index, i64(steps), signed=False), i64(STEP))
            stop = b.binary("smin", b.add(channel, i64(STEP)), i64(self.part.reduced))
            self.call(b, kernels, (tile, b.add(tile, i64(1))), (channel, stop), b.args["packed"], (i64(0), i64(0)))
        return Stage(
            b.finish(), params.buffers, (), self.column_tiles * steps, STEP * self.tile.columns * 8 * self.algorithm.products, by_each=True
        )

    def call(
        self,
        b: FunctionBuilder,
        kernels: list[str],
        tiles: tuple[Val, Val],
        channels: tuple[Val, Val],
        to: Val,
        origin: tuple[Val, Val],
    ) -> None:
        """Transforms `channels` of the column tiles `tiles` to panels whose first holds column tile and channel
        `origin`.
        """
        by_reduced, by_column = self.part.weight_strides[:2]
        for kernel, (segment, columns) in zip(kernels, self.column_segments, strict=True):
            with (
                tile_loop(b, segment, *tiles, "filters") as (tile, column),
                b.loop(channels[0], channels[1], STEP, name="channels") as loop,
            ):
                count = b.binary("smin", b.sub(channels[1], loop.index), i64(STEP))
                source = b.gep(b.args["w"], affine(b, [(column, by_column), (loop.index, by_reduced)]), LType(self.part.w_kind))
                slot, row = (x if first.text == "0" else b.sub(x, first) for x, first in zip((tile, loop.index), origin, strict=True))
                at = affine(b, [(slot, self.panel), (row, columns.padded)])
                b.call(kernel, VOID, source, b.gep(to, at, LType(self.part.kind)), count)

    def emit_functions(self, module: Module, name: str) -> list[str]:
        """For each segment of columns `void f(ptr source, ptr to, i64 count)`, which transforms `STEP` or the
        last few channels.
        """
        return [self._emit_function(module, f"{name}.filters{j}", columns) for j, (_, columns) in enumerate(self.column_segments)]

    def _emit_function(self, module: Module, name: str, columns: Columns) -> str:
        part, kind = self.part, LType(self.part.kind)
        counts = {min(STEP, part.reduced), part.reduced % STEP} - {0}
        packers = {count: WeightPacker(replace(part, reduced=count)).emit(module, f"{name}.taps{count}", columns) for count in counts}
        b = FunctionBuilder(module, name, [("source", PTR), ("to", PTR), ("count", I64)], attributes="nounwind noinline")
        taps = b.alloca(kind, part.taps * STEP * columns.padded)
        for count, packer in packers.items():
            size, plane = count * columns.padded, self.plane(columns)
            grid = self._grid(module, name, columns.lanes, size, plane)
            with b.if_then(b.icmp("eq", b.args["count"], i64(count))):
                b.call(packer, VOID, b.args["source"], taps)
                b.call(grid, VOID, taps, b.args["to"], i64(size), i64(plane))
        return b.finish()

    def _grid(self, module: Module, name: str, lanes: int, size: int, plane: int) -> str:
        """The function `void f(ptr taps, ptr to, i64 size, i64 plane)`, which transforms `size` weights, whole vectors of them, whose taps lie `size`
        elements apart and whose products are to lie `plane` apart. Convolutions share it."""
        matrices, part = self.algorithm.filter_matrices, self.part

        def emit() -> str:
            kind, vector = LType(part.kind), LType(part.kind, lanes)
            params = [("taps", PTR), ("to", PTR), ("size", I64), ("plane", I64)]
            b = FunctionBuilder(module, f"{name}.grid", params, attributes="nounwind noinline")
            places = [affine(b, [(b.args["plane"], k)]) for k in range(self.algorithm.products)]
            with b.loop(0, b.args["size"], lanes, name="weight", at_least_once=True) as loop:
                from_tap, at = b.gep(b.args["taps"], loop.index, kind), b.gep(b.args["to"], loop.index, kind)

                def load(i: int, j: int) -> Val:
                    return b.load(b.gep(from_tap, affine(b, [(b.args["size"], i * part.pixels.taps + j)]), kind), vector)

                def store(i: int, j: int, value: Val) -> None:
                    b.store(value, b.gep(at, places[i * self.algorithm.pixels.size + j], kind))

                transform_grid(b, matrices, load, evaluate, store)
            return b.finish()

        return module.shared(("winograd filter", matrices, part.kind, lanes), {"size": size, "plane": plane}, emit)
