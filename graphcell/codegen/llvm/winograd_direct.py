"""What Winograd's algorithm cannot find, summed directly: it adds and subtracts pixels before it multiplies, so that one infinity, NaN or
number near the largest one would spoil a whole tile of results.

Enters: values half way back from the products, of which `all_moderate` asks whether the rest of the way is safe; and what a tile or a weight
is made of. Leaves: functions of the module that compute the same results as a direct convolution, infinities and NaN in their places. They
are slow and short, since they are hardly ever called.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from graphcell.codegen.llvm.contraction import affine
from graphcell.codegen.llvm.correlation import ConvSpec, Correlation
from graphcell.codegen.llvm.packing import clear_run, load_as, load_strided, store_as
from graphcell.codegen.llvm.text import I64, PTR, FunctionBuilder, LType, Module, Val, i64
from graphcell.codegen.llvm.winograd_tiling import Tiling
from graphcell.records import dataclass

_HEADROOM = 256.0  # more than the sum of the factors on the rest of the way


def all_moderate(b: FunctionBuilder, values: Sequence[Val], mask: Val | None) -> Val:
    """Whether in all lanes the values are finite, and so far from the largest number that sums of them stay finite, too."""
    vector = values[0].type
    factor, totals = b.const(_HEADROOM, vector), [b.const(0.0, vector)] * 4
    for k, value in enumerate(values):
        totals[k % 4] = b.fma(value, factor, totals[k % 4])
    total = b.add(b.add(totals[0], totals[1]), b.add(totals[2], totals[3]))
    if mask is not None:
        total = b.select(mask, total, b.const(0.0, vector))
    finite = b.fcmp("olt", b.unary("fabs", total), b.const(math.inf, vector))
    return b.reduce("and", finite)


@dataclass(frozen=True, slots=True)
class DirectTile:
    """A tile of outputs of a correlation of unit stride without groups."""

    part: Correlation
    tiling: Tiling
    lanes: int

    def emit(self, b: FunctionBuilder, x: Val, w: Val, tile: Val, column: Val, mask: Val | None) -> Val:
        """Where the sums for a vector of output channels from `column` lie, row by row."""
        part, kind, vector = self.part, LType(self.part.kind), LType(self.part.kind, self.lanes)
        h, width, channels = part.in_shape
        by_reduced, by_column, by_row, by_tap, _ = part.weight_strides
        image, top, left = self.tiling.start(b, tile)
        (down, across), (rows, pixels) = self.tiling.apart, self.tiling.steps
        count = rows * pixels
        sums = b.alloca(kind, count * self.lanes)
        clear_run(b, sums, count * self.lanes, part.kind, self.lanes)
        with (
            b.loop(0, part.rows.taps, name="tap.row") as tap_row,
            b.loop(0, part.pixels.taps, name="tap") as tap,
            b.loop(0, part.reduced, name="channel") as channel,
        ):
            steps = [(tap_row.index, part.rows.weight_step * by_row), (tap.index, part.pixels.weight_step * by_tap)]
            start = part.rows.weight * by_row + part.pixels.weight * by_tap
            at = b.gep(w, affine(b, [*steps, (channel.index, by_reduced), (column, by_column)], start), LType(part.w_kind))
            weight = load_strided(b, at, by_column, part.w_kind, part.kind, self.lanes, mask)
            with b.loop(0, rows, name="row") as i, b.loop(0, pixels, name="pixel") as j:
                row = affine(b, [(top, 1), (i.index, down), (tap_row.index, part.rows.tap_step)], part.rows.origin)
                pixel = affine(b, [(left, 1), (j.index, across), (tap.index, part.pixels.tap_step)], part.pixels.origin)
                with b.if_then(b.and_(b.icmp("ult", row, i64(h)), b.icmp("ult", pixel, i64(width)))):
                    place = affine(b, [(image, h * width * channels), (row, width * channels), (pixel, channels), (channel.index, 1)])
                    value = load_as(b, b.gep(x, place, LType(part.in_kind)), part.in_kind, part.kind, 0)
                    to = b.gep(sums, affine(b, [(i.index, pixels * self.lanes), (j.index, self.lanes)]), kind)
                    b.store(b.fma(b.splat(value, self.lanes), weight, b.load(to, vector)), to)
        return sums


@dataclass(frozen=True, slots=True)
class DirectWeight:
    """The gradient with respect to the weights, over tiles of the cotangent."""

    spec: ConvSpec
    tiling: Tiling
    lanes: int

    def emit(self, module: Module, name: str, mask: Val | None) -> str:
        """Emits `void name(ptr x, ptr dy, ptr to, i64 channel, i64 filter, i64 begin, i64 end)`: sums over tiles begin .. end for a channel and
        a vector of filters, each tap c * k elements after the one before. Returns the name."""
        spec, kind, vector = self.spec, LType(self.spec.kind), LType(self.spec.kind, self.lanes)
        params = [("x", PTR), ("dy", PTR), ("to", PTR), *((n, I64) for n in ("channel", "filter", "begin", "end"))]
        b = FunctionBuilder(module, name, params, attributes="nounwind noinline cold")
        taps = spec.kh * spec.kw
        sums = b.alloca(kind, taps * self.lanes)
        clear_run(b, sums, taps * self.lanes, spec.kind, self.lanes)
        with (
            b.loop(b.args["begin"], b.args["end"], name="tile") as tile,
            b.loop(0, self.tiling.steps[0], name="row") as i,
            b.loop(0, self.tiling.steps[1], name="pixel") as j,
        ):
            image, top, left = self.tiling.start(b, tile.index)
            row, pixel = affine(b, [(top, 1), (i.index, self.tiling.apart[0])]), affine(b, [(left, 1), (j.index, self.tiling.apart[1])])
            with b.if_then(b.and_(b.icmp("ult", row, i64(spec.oh)), b.icmp("ult", pixel, i64(spec.ow)))):
                at = affine(b, [(image, spec.oh * spec.ow * spec.k), (row, spec.ow * spec.k), (pixel, spec.k), (b.args["filter"], 1)])
                cotangent = load_as(b, b.gep(b.args["dy"], at, LType(spec.y_kind)), spec.y_kind, spec.kind, self.lanes, mask)
                with b.loop(0, spec.kh, name="tap.row") as tap_row, b.loop(0, spec.kw, name="tap") as tap:
                    self._add(b, sums, (image, row, pixel), (tap_row.index, tap.index), cotangent)
        with b.loop(0, taps, name="tap") as tap:
            value = b.load(b.gep(sums, b.mul(tap.index, i64(self.lanes)), kind), vector)
            store_as(b, value, b.gep(b.args["to"], b.mul(tap.index, i64(spec.c * spec.k)), kind), spec.kind, mask)
        return b.finish()

    def _add(self, b: FunctionBuilder, sums: Val, at: tuple[Val, Val, Val], tap: tuple[Val, Val], cotangent: Val) -> None:
        """What a pixel of the cotangent adds to the sum of a tap."""
        spec, vector = self.spec, cotangent.type
        row = affine(b, [(at[1], 1), (tap[0], spec.dilation[0])], -spec.padding[0])
        pixel = affine(b, [(at[2], 1), (tap[1], spec.dilation[1])], -spec.padding[2])
        with b.if_then(b.and_(b.icmp("ult", row, i64(spec.h)), b.icmp("ult", pixel, i64(spec.w)))):
            source = affine(b, [(at[0], spec.h * spec.w * spec.c), (row, spec.w * spec.c), (pixel, spec.c), (b.args["channel"], 1)])
            value = load_as(b, b.gep(b.args["x"], source, LType(spec.x_kind)), spec.x_kind, spec.kind, 0)
            to = b.gep(sums, affine(b, [(tap[0], spec.kw * self.lanes), (tap[1], self.lanes)]), LType(spec.kind))
            b.store(b.fma(b.splat(value, self.lanes), cotangent, b.load(to, vector)), to)
