"""Convolutions of bfloats with tile registers: a product of matrices whose rows are what filters see.

Enters: a `Correlation` (see correlation.py) whose outputs follow each other. Leaves: the `Plan` of a `TileMatmul`, or None where other kernels are to compute
it. Of each row tile, what its pixels see is gathered, a pass of whole taps at a time, and packed like any rows; the weights are packed in a stage of
their own, tap by tap.
"""

from __future__ import annotations

import math
from dataclasses import replace

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
    multiplies_tiles,
    round_up,
    split_index,
    tile_loop,
)
from graphcell.codegen.llvm.correlation import Correlation
from graphcell.codegen.llvm.matmul_spec import MatmulSpec, Operand
from graphcell.codegen.llvm.matmul_tiles import TileMatmul
from graphcell.codegen.llvm.matmul_tiles_schedule import STEPS_OF_A, TILE, WORTH, cycles, cycles_of_multiply_adds, schedule_in_passes
from graphcell.codegen.llvm.packing import clear_run, copy_run
from graphcell.codegen.llvm.text import I8, I64, PTR, VOID, FunctionBuilder, LType, Module, Val, i64
from graphcell.codegen.llvm.tile_panels import Panel, emit_pack
from graphcell.codegen.llvm.tile_registers import TILE_BYTES, TILE_STEPS
from graphcell.codegen.llvm.weight_panels import WeightPacker
from graphcell.records import dataclass

_HALF = LType("i16")  # as which bfloats are moved
_GATHERED, _RUN = 0.1, 8.0  # cycles for an element that is gathered, and for each run of them
_FAST = 1.5  # by which other kernels compute 3x3 taps faster than by multiply-adds (Winograd's algorithm), at most


def emit_in_tiles(
    module: Module,
    name: str,
    parts: list[Correlation],
    target: ContractionTarget,
    epilogue: Epilogue | None,
    extra: Extra,
    names: tuple[str, str, str],
) -> Plan | None:
    """Emits a correlation; buffers by `names` (input, weights, output), packed and scratch. None if tile registers do not compute it, or not sooner."""
    part = parts[0]
    if len(parts) > 1 or not _can(part, target):
        return None
    spec = _product(part)
    plan = schedule_in_passes(spec, _depth(part), target, gathers=True)
    runs = part.rows.taps if plan.passes == 1 and _lie_side_by_side(part) else part.taps
    gathered = plan.grid[0] * spec.m * (spec.k * _GATHERED + runs * _RUN)
    faster = _FAST if (part.rows.taps, part.pixels.taps, part.rows.in_step, part.pixels.in_step) == (3, 3, 1, 1) else 1.0
    if cycles(spec, plan, target) + gathered >= WORTH * cycles_of_multiply_adds(spec) / faster:
        return None
    product = _TileCorrelation(module, name, spec, plan, target, epilogue, extra, 0, part, names)
    return product.emit().renamed({"a": names[0], "c": names[2]})


def _can(part: Correlation, target: ContractionTarget) -> bool:
    """Whether its output pixels follow each other, and all is of bfloats."""
    dense = (part.rows.start, part.pixels.start, part.rows.step, part.pixels.step) == (0, 0, 1, 1) and part.out_shape[:2] == part.grid[1:]
    kinds = {part.in_kind, part.w_kind, part.out_kind} == {"bfloat"}
    return multiplies_tiles(target) and dense and kinds and part.groups == 1 and not part.depthwise and part.taps > 0 and math.prod(part.grid) > 0


def _lie_side_by_side(part: Correlation) -> bool:
    """Whether what a row of taps sees lies side by side."""
    return part.pixels.tap_step == 1 and part.reduced == part.in_shape[2]


def _product(part: Correlation) -> MatmulSpec:
    pixels, depth = math.prod(part.grid), part.taps * part.reduced
    rows = Operand("bfloat", _depth(part), 1)
    return MatmulSpec(pixels, part.columns, depth, rows, Operand("bfloat", 1, depth), Operand("bfloat", part.out_shape[2], 1), share_b=True)


def _depth(part: Correlation) -> int:
    """Reduction steps of a pass: all, or as many whole taps as have whole groups of steps."""
    least = TILE_STEPS // math.gcd(TILE_STEPS, part.reduced)
    if part.taps * part.reduced <= STEPS_OF_A[1]:
        return round_up(part.taps * part.reduced, TILE_STEPS)
    taps = max(1, STEPS_OF_A[1] // part.reduced // least) * least
    return round_up(min(taps, part.taps) * part.reduced, TILE_STEPS)


@dataclass(frozen=True)
class _TileCorrelation(TileMatmul):
    """Emits one correlation."""

    part: Correlation
    names: tuple[str, str, str]

    @property
    def gathered_bytes(self) -> int:
        return TILE * self.plan.depth * _HALF.bytes

    def emit_gather(self, name: str, rows: int) -> str:
        params = [("a", PTR), ("to", PTR), ("row", I64), ("k", I64), ("count", I64)]
        b = FunctionBuilder(self.module, name, params, attributes="nounwind noinline")
        with b.loop(0, rows, name="row", at_least_once=True) as row:
            image, y, x = split_index(b, b.add(b.args["row"], row.index), self.part.grid)
            to = b.gep(b.args["to"], b.mul(row.index, i64(self.plan.depth)), _HALF)
            _Window(b, self.part, self.target, image, y, x, to).gather(self.plan.passes == 1)
        return b.finish()

    def emit_shared_pack(self) -> Stage:
        """Packs the weights: a column tile as rows of columns, tap by tap, then group by group in its place, with two rows as one of words."""
        part, plan = self.part, self.plan
        params = KernelParams(("w", "packed"))
        name = f"{self.name}.pack"
        ordered = WeightPacker(replace(part, kind=_HALF.kind, w_kind=_HALF.kind))
        packers = [
            (ordered.emit(self.module, f"{name}.order{j}", shape), emit_pack(self.module, f"{name}.group{j}", self._panel_of_ordered(segment, shape)))
            for j, (segment, shape) in enumerate(plan.column_segments)
        ]
        b = FunctionBuilder(self.module, name, params.list, internal=False)
        aside = b.alloca(I8, 2 * TILE_BYTES)
        for (order, pack), (segment, shape) in zip(packers, plan.column_segments, strict=True):
            with tile_loop(b, segment, b.args["begin"], b.args["end"], "panel") as (tile, column):
                panel = b.gep(b.args["packed"], affine(b, [(tile, self.panel_of_b)]), I8)
                b.call(order, VOID, b.gep(b.args["w"], affine(b, [(column, part.weight_strides[1])]), _HALF), panel)
                with b.loop(0, self.spec.k, TILE_STEPS, name="group", at_least_once=True) as k:
                    count = b.binary("smin", b.sub(i64(self.spec.k), k.index), i64(TILE_STEPS))
                    group = b.gep(panel, affine(b, [(k.index, shape.padded * _HALF.bytes)]), I8)
                    copy_run(b, group, aside, b.mul(count, i64(shape.padded)), _HALF.kind, _HALF.kind, self.target.lanes(_HALF.kind))
                    b.call(pack, VOID, aside, group, b.gep(panel, self.panel_of_b - LINE_BYTES, I8), count)
        return Stage(b.finish(), params.buffers, (), plan.column_tiles, self.spec.k * TILE, by_each=True)

    @staticmethod
    def _panel_of_ordered(segment: Segment, shape: Columns) -> Panel:
        return Panel("bfloat", 1, shape.padded, segment.size, right=True)


@dataclass(frozen=True)
class _Window:
    """What the filters see from a pixel, which is put together at `to`, tap by tap."""

    b: FunctionBuilder
    part: Correlation
    target: ContractionTarget
    image: Val
    y: Val
    x: Val
    to: Val

    def gather(self, whole: bool) -> None:
        """All taps if `whole`, row by row if the taps of a row lie side by side; else those that the function's `count` steps from `k` on are."""
        b, part = self.b, self.part
        if whole and _lie_side_by_side(part):
            with b.loop(0, part.rows.taps, name="tap.row", at_least_once=True) as down:
                self._row(down.index)
            return
        first = b.div(b.args["k"], i64(part.reduced), signed=False)
        past = b.add(first, b.div(b.args["count"], i64(part.reduced), signed=False))
        with b.loop(first, past, name="tap", at_least_once=True) as tap:
            row, column = split_index(b, tap.index, (part.rows.taps, part.pixels.taps))
            self._tap(row, column, b.gep(self.to, b.mul(b.sub(tap.index, first), i64(part.reduced)), _HALF))

    def _row(self, down: Val) -> None:
        """A row of taps: at once if the image has all of it."""
        b, part, (height, width, channels) = self.b, self.part, self.part.in_shape
        v, left = self._place(down, i64(0))
        inside = b.and_(b.icmp("sge", left, i64(0)), b.icmp("sle", left, i64(width - part.pixels.taps)))
        to = b.gep(self.to, b.mul(down, i64(part.pixels.taps * channels)), _HALF)

        def each() -> None:
            with b.loop(0, part.pixels.taps, name="tap", at_least_once=True) as across:
                self._tap(down, across.index, b.gep(to, b.mul(across.index, i64(channels)), _HALF))

        b.if_else(b.and_(inside, b.icmp("ult", v, i64(height))), lambda: self._copy(v, left, to, part.pixels.taps * channels), each)

    def _tap(self, down: Val, across: Val, to: Val) -> None:
        """A tap, or zeros where it lies outside of the image."""
        b, (height, width, _) = self.b, self.part.in_shape
        v, u = self._place(down, across)
        b.if_else(
            b.and_(b.icmp("ult", v, i64(height)), b.icmp("ult", u, i64(width))),
            lambda: self._copy(v, u, to, self.part.reduced),
            lambda: clear_run(b, to, self.part.reduced, _HALF.kind, self.target.lanes(_HALF.kind)),
        )

    def _place(self, down: Val, across: Val) -> tuple[Val, Val]:
        """The row and column of the image that a tap sees."""
        rows, pixels = self.part.rows, self.part.pixels
        v = affine(self.b, [(self.y, rows.in_step), (down, rows.tap_step)], rows.origin)
        return v, affine(self.b, [(self.x, pixels.in_step), (across, pixels.tap_step)], pixels.origin)

    def _copy(self, v: Val, u: Val, to: Val, elements: int) -> None:
        b, (height, width, channels) = self.b, self.part.in_shape
        at = affine(b, [(self.image, height * width * channels), (v, width * channels), (u, channels)])
        copy_run(b, b.gep(b.args["a"], at, _HALF), to, elements, _HALF.kind, _HALF.kind, self.target.lanes(_HALF.kind))
