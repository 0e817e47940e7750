"""Packs the weights of a correlation (see correlation.py) into panels for the micro-kernel.

Enters: weights in OIHW or HWIO, of any float kind. Leaves: panels [group][column tile][tap][reduction
channel][lanes] of the accumulation kind, zeros in lanes beyond the last column, written by a stage of its own
that depends on the weights only.
"""

from __future__ import annotations

from graphcell.codegen.llvm.contraction import (
    Columns,
    KernelParams,
    Stage,
    affine,
    round_up,
    split_index,
    tile_loop,
)
from graphcell.codegen.llvm.convolution_schedule import Schedule
from graphcell.codegen.llvm.correlation import Correlation
from graphcell.codegen.llvm.packing import clear_run, emit_pack_panel, emit_transpose, load_as
from graphcell.codegen.llvm.text import PTR, VOID, FunctionBuilder, LType, Module, Val, i64
from graphcell.records import dataclass

_MOST_SHUFFLES = 160  # of an unrolled loop that deals out taps, which bounds the size of the code


@dataclass(frozen=True, slots=True)
class WeightPanels:
    """The panels of one correlation."""

    part: Correlation
    plan: Schedule

    @property
    def depth(self) -> int:
        """Reduction steps of a panel."""
        return self.part.taps * self.part.reduced

    @property
    def bytes(self) -> int:
        size = LType(self.part.kind).bytes
        return round_up(self.part.groups * self.plan.padded_columns * self.depth * size, 64)

    def at(self, b: FunctionBuilder, packed: Val, group: Val, column: Val) -> Val:
        """The panel of the column tile that begins at `column`."""
        offset = affine(b, [(group, self.plan.padded_columns * self.depth), (column, self.depth)])
        return b.gep(packed, offset, LType(self.part.kind))

    def emit(self, module: Module, name: str) -> Stage:
        """The stage `name.pack`; a block is one column tile of one group."""
        part, plan = self.part, self.plan
        packer_of = WeightPacker(part)
        packers = [
            packer_of.emit(module, f"{name}.pack{j}", columns)
            for j, (_, columns) in enumerate(plan.column_segments)
        ]
        params = KernelParams(("w", "packed"))
        b = FunctionBuilder(module, f"{name}.pack", params.list, internal=False)
        _, by_column, _, _, by_group = part.weight_strides
        with b.loop(b.args["begin"], b.args["end"], name="panel") as loop:
            group, tile = split_index(b, loop.index, (part.groups, plan.column_tiles))
            for packer, (segment, _) in zip(packers, plan.column_segments, strict=True):
                with tile_loop(b, segment, tile, b.add(tile, i64(1)), "tile") as (_, column):
                    source = affine(b, [(group, by_group), (column, by_column)])
                    b.call(
                        packer,
                        LType("void"),
                        b.gep(b.args["w"], source, LType(part.w_kind)),
                        self.at(b, b.args["packed"], group, column),
                    )
        return Stage(
            b.finish(), params.buffers, (), part.groups * plan.column_tiles, self.depth * plan.tile.columns, by_each=True
        )


@dataclass(frozen=True, slots=True)
class WeightPacker:
    """Emits the functions that pack the weights of a correlation."""

    part: Correlation

    def emit(self, module: Module, name: str, columns: Columns) -> str:
        """A function (source, panel) that packs one column tile; the source is the first tap as stored of its
        first weight.
        """
        part = self.part
        by_reduced, by_column, _, by_tap, _ = part.weight_strides
        taps_last = by_tap == 1 and part.taps > 1 and not part.depthwise
        if taps_last and self._all_in_order and by_reduced == part.taps and columns.lanes > 1:
            return self._emit_transposing(module, name, columns)
        if taps_last and by_column == self._stored_taps and part.taps <= 49:
            return self._emit_interleaved(module, name, columns)
        return self._emit_by_tap(module, name, columns)

    @property
    def _stored_taps(self) -> int:
        """Taps in memory from one weight to the next, which may be more than this correlation has."""
        return min(self.part.weight_strides[:2])

    @property
    def _all_in_order(self) -> bool:
        """Whether the taps are all of the convolution's, in the order in which they are stored."""
        part = self.part
        return (
            part.rows.weight == part.pixels.weight == 0
            and part.pixels.weight_step in (0, 1)
            and part.rows.weight_step in (0, 1)
            and part.weight_strides[2] == part.pixels.taps
        )

    def _emit_by_tap(self, module: Module, name: str, columns: Columns) -> str:
        """One tap after the other."""
        part = self.part
        by_reduced, by_column, by_row, by_tap, _ = part.weight_strides
        inner = emit_pack_panel(
            module,
            f"{name}.tap",
            columns,
            by_reduced,
            by_column,
            part.w_kind,
            part.kind,
            part.reduced % columns.lanes == 0,
        )
        b = FunctionBuilder(module, name, [("source", PTR), ("panel", PTR)])
        step = columns.padded * part.reduced
        with (
            b.loop(0, part.rows.taps, name="tap.row", at_least_once=True) as row,
            b.loop(0, part.pixels.taps, name="tap", at_least_once=True) as pixel,
        ):
            moved = affine(
                b,
                [
                    (row.index, part.rows.weight_step * by_row),
                    (pixel.index, part.pixels.weight_step * by_tap),
                ],
                part.rows.weight * by_row + part.pixels.weight * by_tap,
            )
            to = affine(b, [(row.index, part.pixels.taps * step), (pixel.index, step)])
            b.call(
                inner,
                LType("void"),
                b.gep(b.args["source"], moved, LType(part.w_kind)),
                b.gep(b.args["panel"], to, LType(part.kind)),
                i64(part.reduced),
            )
        return b.finish()

    def _emit_transposing(self, module: Module, name: str, columns: Columns) -> str:
        """Columns are rows of (channel, tap) elements: squares of lanes x lanes of them are transposed in
        registers.
        """
        part, lanes = self.part, columns.lanes
        elements, by_column = part.reduced * part.taps, part.weight_strides[1]
        kind, storage = LType(part.kind), LType(part.w_kind)
        b = FunctionBuilder(module, name, [("source", PTR), ("panel", PTR)])

        def place(element: Val) -> Val:
            """Where a (channel, tap) element has its row of the panel."""
            tap, channel = (
                b.rem(element, i64(part.taps), signed=False),
                b.div(element, i64(part.taps), signed=False),
            )
            return b.gep(
                b.args["panel"],
                affine(b, [(tap, part.reduced * columns.padded), (channel, columns.padded)]),
                kind,
            )

        square = emit_transpose(module, lanes, part.w_kind, part.kind)
        held = b.alloca(kind, lanes * lanes)

        def columns_at(first: Val, column: Val) -> None:
            source = b.gep(b.gep(b.args["source"], first, storage), b.mul(column, i64(by_column)), storage)
            b.call(square, VOID, source, i64(by_column), held, i64(lanes))
            with b.loop(0, lanes, name="row", at_least_once=True) as row:
                value = b.load(b.gep(held, b.mul(row.index, i64(lanes)), kind), LType(part.kind, lanes))
                b.store(value, b.gep(place(b.add(first, row.index)), column, kind))

        def one_by_one(elements: tuple[Val | int, Val | int], start: int) -> None:
            with b.loop(*elements, name="rest") as loop:
                to = place(loop.index)
                with b.loop(start, columns.used, name="column") as column:
                    at = b.add(loop.index, b.mul(column.index, i64(by_column)))
                    value = load_as(b, b.gep(b.args["source"], at, storage), part.w_kind, part.kind, 0)
                    b.store(value, b.gep(to, column.index, kind))
                if columns.padded > columns.used:
                    clear_run(
                        b, b.gep(to, columns.used, kind), columns.padded - columns.used, part.kind, lanes
                    )

        full, whole = elements // lanes * lanes, columns.used // lanes * lanes
        if whole:
            with (
                b.loop(0, full, lanes, name="element") as loop,
                b.loop(0, whole, lanes, name="column", at_least_once=True) as column,
            ):
                columns_at(loop.index, column.index)
        if whole < columns.padded:
            one_by_one((0, full), whole)
        one_by_one((full, elements), 0)
        return b.finish()

    def _emit_interleaved(self, module: Module, name: str, columns: Columns) -> str:
        """The taps of a weight lie next to each other: vectors of them are dealt out to the panel's parts by
        shuffles.
        """
        part, lanes = self.part, columns.lanes
        by_reduced, by_column, by_row, by_tap, _ = part.weight_strides
        kind, storage = LType(part.kind), LType(part.w_kind)
        b = FunctionBuilder(module, name, [("source", PTR), ("panel", PTR)])
        step = part.reduced * columns.padded
        taps = [
            (
                (part.rows.weight + i * part.rows.weight_step) * by_row
                + (part.pixels.weight + j * part.pixels.weight_step) * by_tap,
                (i * part.pixels.taps + j) * step,
            )
            for i in range(part.rows.taps)
            for j in range(part.pixels.taps)
        ]
        shuffles = len(taps) * min(lanes, by_column)
        whole = columns.used // lanes * lanes if lanes > 1 and shuffles <= _MOST_SHUFFLES else 0
        with b.loop(0, part.reduced, name="reduced", at_least_once=True) as k:
            source = b.gep(b.args["source"], b.mul(k.index, i64(by_reduced)), storage)
            panel = b.gep(b.args["panel"], b.mul(k.index, i64(columns.padded)), kind)
            if whole:
                with b.loop(0, whole, lanes, name="columns", at_least_once=True) as column:
                    at, to = (
                        b.gep(source, b.mul(column.index, i64(by_column)), storage),
                        b.gep(panel, column.index, kind),
                    )
                    stored = [
                        load_as(b, b.gep(at, v * lanes, storage), part.w_kind, part.kind, lanes)
                        for v in range(by_column)
                    ]
                    for offset, tap in taps:
                        b.store(strided(b, stored, offset, by_column), b.gep(to, tap, kind))
            with b.loop(whole, columns.used, name="column") as column:
                at, to = (
                    b.gep(source, b.mul(column.index, i64(by_column)), storage),
                    b.gep(panel, column.index, kind),
                )
                for offset, tap in taps:
                    value = load_as(b, b.gep(at, offset, storage), part.w_kind, part.kind, 0)
                    b.store(value, b.gep(to, tap, kind))
            if columns.padded > columns.used:
                for _, tap in taps:
                    clear_run(
                        b,
                        b.gep(panel, tap + columns.used, kind),
                        columns.padded - columns.used,
                        part.kind,
                        columns.lanes,
                    )
        return b.finish()


def strided(b: FunctionBuilder, vectors: list[Val], first: int, stride: int) -> Val:
    """One vector of the elements first, first + stride, ... of the concatenation of `vectors`, by two-source
    shuffles.
    """
    lanes = vectors[0].type.lanes
    places = [divmod(first + lane * stride, lanes) for lane in range(lanes)]
    used = sorted({v for v, _ in places})
    result, done = vectors[used[0]], {used[0]}
    mask = [at if v == used[0] else 0 for v, at in places]
    for nth, v in enumerate(used[1:]):
        mask = [
            lanes + at if w == v else (lane if nth else at) if w in done else 0
            for lane, (w, at) in enumerate(places)
        ]
        result = b.shuffle(result, vectors[v], mask)
        done.add(v)
    return result if len(used) > 1 else b.shuffle(result, result, mask)
