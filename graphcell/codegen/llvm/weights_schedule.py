"""How the gradient of a convolution with respect to its weights is carried out.

Enters: a `ConvSpec` and the machine. Leaves: a `Schedule`, a pure function of both, printable.
"""

from __future__ import annotations

import math
from dataclasses import replace

from graphcell.codegen.llvm.contraction import (
    Columns,
    ContractionTarget,
    RegisterTiles,
    Segment,
    TileShape,
    ceil_div,
    choose_tile,
    round_up,
    split_columns,
    split_evenly,
    vector_registers,
)
from graphcell.codegen.llvm.correlation import Axis, ConvSpec, forward_axis
from graphcell.codegen.llvm.text import LType
from graphcell.records import dataclass

_BLOCKS_WANTED = 8
_FLOPS_PER_BLOCK = 200_000
FLOPS_OF_ONE_BLOCK = 1_500_000  # up to which one block may be all, by Winograd's algorithm (winograd_gradient_schedule.py), too
_CHUNK_PIXELS = 384  # output pixels of a chunk: enough to pay for reading and writing the accumulators
_WORTH_EXACT = 0.98  # the part of taps that are not beyond the edge below which they are told apart
_FEW_CHANNELS = 12  # below this the rows of a tile run over taps as well


@dataclass(frozen=True, slots=True)
class Rows:
    """How the rows (tap row, tap, channel) of the gradient are made of units, each a loop nest's step.

    `loops` holds, outermost first, (extent, elements further in x, rows further in dw). Within a unit row i
    reads `offsets[i]` further; `regular` says that offsets are i * offsets[1], so that tiles may begin
    anywhere.
    """

    loops: tuple[tuple[int, int, int], ...]
    offsets: tuple[int, ...]
    regular: bool

    @property
    def count(self) -> int:
        return len(self.offsets)


@dataclass(frozen=True, slots=True)
class Schedule(RegisterTiles):
    """How the gradient is computed; a pure function of the spec and the target.

    A block is (group, part of the chunks, slab of row tiles, slab of column tiles). A chunk is `chunk` images
    if `by_images`, else `chunk` output rows of one image. `exact` leaves out taps beyond the edge, else x is
    copied with zeros around it; `packs` copies dy to panels. `pitch` are distances in what is read as x:
    image to image, row to row, pixel to pixel.
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
    def grid(self) -> tuple[int, int]:
        return ceil_div(self.row_tiles, self.rows_per_slab), ceil_div(
            self.column_tiles, self.columns_per_slab
        )

    @property
    def chunks_per_split(self) -> int:
        return ceil_div(self.chunks, self.splits)

    def __str__(self) -> str:
        unit = "images" if self.by_images else "rows"
        units = "x".join(str(n) for n, _, _ in self.rows.loops) or "1"
        edges = "padded copy" if self.copies else "taps by pixel" if self.exact else "in place"
        return (
            f"tile {self.row_segments[0].size}x{self.tile.vectors}x{self.tile.lanes}, "
            f"units {units} of {self.rows.count} rows, {self.chunks} chunks of {self.chunk} {unit}, "
            f"splits {self.splits}, slabs {self.grid[0]}x{self.grid[1]}, {edges}"
        )


def schedule(spec: ConvSpec, target: ContractionTarget) -> Schedule:
    """Chooses rows, tile, chunks, slabs and parts; two slabs where one block would be all, and threads have use for two."""
    found = _schedule(spec, target, spec.c)
    if found.splits * math.prod(found.grid) * spec.groups > 1 or spec.depthwise or spec.flops < FLOPS_OF_ONE_BLOCK:
        return found
    if found.column_tiles > 1 and not found.copies:
        return replace(found, columns_per_slab=ceil_div(found.column_tiles, 2))
    if found.row_tiles > 1:
        return _schedule(spec, target, ceil_div(found.row_tiles, 2) * found.tile.rows)
    return found


def _schedule(spec: ConvSpec, target: ContractionTarget, most: int) -> Schedule:
    """With at most so many channels in a slab."""
    size, whole = LType(spec.kind).bytes, target.lanes(spec.kind)
    down = forward_axis(spec.oh, spec.stride[0], spec.padding[0], spec.kh, spec.dilation[0])
    across = forward_axis(spec.ow, spec.stride[1], spec.padding[2], spec.kw, spec.dilation[1])
    copies = not (down.inside(spec.h) and across.inside(spec.w)) or spec.x_kind != spec.kind
    exact = copies and _worth_exact(spec, down, across)
    copies = copies and not exact
    columns = spec.c if spec.depthwise else spec.k // spec.groups
    per_image = spec.oh * spec.ow
    by_images = per_image < _CHUNK_PIXELS // 2
    chunk = (
        _even(spec.n, max(1, _CHUNK_PIXELS // max(per_image, 1)))
        if by_images
        else _even(spec.oh, max(1, _CHUNK_PIXELS // spec.ow))
    )
    chunks = ceil_div(spec.n, chunk) if by_images else spec.n * ceil_div(spec.oh, chunk)
    in_rows, in_pixels = down.inputs(spec.oh if by_images else chunk), across.inputs(spec.ow)
    # Rows of x in a slab: all channels unless they are many.
    channels = spec.c // spec.groups
    line = in_rows * in_pixels * (chunk if by_images else 1) * size
    in_slab = (
        channels
        if spec.depthwise or channels < _FEW_CHANNELS
        else min(channels, most, max(64, target.l2_bytes // 4 // max(line, 1) // whole * whole))
    )
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
        row_segments = tuple(
            Segment(s.first + t, 1, s.start + t * s.size, s.size)
            for s in row_segments
            for t in range(s.tiles)
        )
    column_segments = split_columns(columns, tile)
    row_tiles, column_tiles = sum(s.tiles for s in row_segments), sum(s.tiles for s, _ in column_segments)
    rows_per_slab = max(1, in_slab // tile.rows) if in_slab < channels else row_tiles
    pixels = chunk * (per_image if by_images else spec.ow)
    taps = spec.kh * spec.kw if rows.count == channels else 1
    block_rows = min(rows.count, rows_per_slab * tile.rows) * max(
        taps, math.prod(n for n, _, _ in rows.loops)
    )
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
    return Schedule(
        tile,
        rows,
        row_segments,
        column_segments,
        rows_per_slab,
        columns_per_slab,
        by_images,
        chunk,
        chunks,
        splits,
        copies,
        exact,
        packs,
        pitch,
        direct,
    )


def _worth_exact(spec: ConvSpec, down: Axis, across: Axis) -> bool:
    """Whether x can be read in place, each tap over the pixels that it has: its rows must be the channels of
    one tap.
    """
    if spec.depthwise or spec.c // spec.groups < _FEW_CHANNELS or spec.x_kind != spec.kind:
        return False
    found = [
        sum(len(axis.active(tap, extent)) for tap in range(axis.taps)) / (axis.taps * axis.count)
        for axis, extent in ((down, spec.h), (across, spec.w))
    ]
    return found[0] * found[1] < _WORTH_EXACT


def _even(extent: int, most: int) -> int:
    """The size of the parts when `extent` is cut in as few parts of at most `most` as possible."""
    return ceil_div(extent, ceil_div(extent, most)) if extent else 1


def _rows(spec: ConvSpec, pitch: tuple[int, int, int], target: ContractionTarget) -> Rows:
    """Which rows make a unit: the channels of a tap; if few, those of a row of taps or of all taps."""
    channels = 1 if spec.depthwise else spec.c // spec.groups
    by_row, by_tap = spec.dilation[0] * pitch[1], spec.dilation[1] * pitch[2]
    in_registers = vector_registers(target) - 2
    all_taps = [
        i * by_row + j * by_tap + c for i in range(spec.kh) for j in range(spec.kw) for c in range(channels)
    ]
    row_loop, tap_loop = (spec.kh, by_row, spec.kw * channels), (spec.kw, by_tap, channels)
    if (spec.depthwise or channels < _FEW_CHANNELS) and len(all_taps) <= in_registers:
        return Rows((), tuple(all_taps), False)
    if spec.depthwise and spec.kw <= in_registers:
        return Rows((row_loop,), tuple(j * by_tap for j in range(spec.kw)), True)
    if channels < _FEW_CHANNELS and by_tap == channels:
        return Rows((row_loop,), tuple(range(spec.kw * channels)), True)
    return Rows((row_loop, tap_loop), tuple(range(channels)), True)
