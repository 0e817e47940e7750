"""How a correlation (see correlation.py) is carried out: register tile, blocks, and what becomes of taps
beyond the edge.

Enters: a `Correlation` and the machine. Leaves: a `Schedule`, a pure function of both, printable.

Taps that reach beyond the edge meet zeros. On large images the input is copied with these zeros around it
(`Edges.PADDED`). On small images they are a good part of all taps, 16 % for 3x3 on 8x8 pixels, 31 % on 4x4,
so there they are left out: the tile spans a whole row of pixels (`Edges.ROW`) or a whole image
(`Edges.IMAGE`), so that it is known at compile time which pixels a tap has.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from graphcell.codegen.llvm.contraction import (
    Columns,
    ContractionTarget,
    RegisterTiles,
    Segment,
    TileShape,
    ceil_div,
    choose_grid_tile,
    column_counts,
    lanes_for,
    round_up,
    split_columns,
    split_evenly,
    tile_cost,
    vector_registers,
)
from graphcell.codegen.llvm.correlation import Correlation
from graphcell.codegen.llvm.microkernel import Tap
from graphcell.codegen.llvm.text import LType
from graphcell.records import dataclass

_BLOCKS_WANTED = 16
_FLOPS_PER_BLOCK = 200_000
READ_BYTES = 5.5  # that memory gives in a cycle
_READ_AGAIN, _READ_AGAIN_FROM_MEMORY = 0.28, 0.45  # part of the time of the first reading, measured where the tiles of 4x4 pixels read 5 and 9 MB
_COPY_COST = 0.3  # of one input element, in units of tile_cost
_MOST_TAP_ROWS = 512  # multiply-adds of an unrolled set of taps, which bounds the size of the code


class Edges(enum.Enum):
    """What becomes of taps beyond the edge."""

    INSIDE = "in place"  # there are none
    PADDED = "padded copy"
    ROW = "taps by row"
    IMAGE = "taps by image"


@dataclass(frozen=True, slots=True)
class Schedule(RegisterTiles):
    """How a correlation is carried out; a pure function of it and the target.

    A block is (group, slab of column tiles, tile of images, band of row tiles). `pitch` are the distances in
    elements, in what the micro-kernel reads, from image to image, row to row, pixel to pixel.
    """

    tile: TileShape
    image_segments: tuple[Segment, ...]
    row_segments: tuple[Segment, ...]
    pixel_segments: tuple[Segment, ...]
    column_segments: tuple[tuple[Segment, Columns], ...]
    columns_per_slab: int
    rows_per_band: int
    edges: Edges
    copies: bool
    pitch: tuple[int, int, int]

    @property
    def grid(self) -> tuple[int, int, int]:
        """Slabs, tiles of images, bands."""
        return (
            ceil_div(self.column_tiles, self.columns_per_slab),
            sum(s.tiles for s in self.image_segments),
            ceil_div(self.row_tiles, self.rows_per_band),
        )

    @property
    def pixel_tiles(self) -> int:
        """Register tiles that read the same weights."""
        return math.prod(sum(s.tiles for s in segments) for segments in (self.image_segments, self.row_segments, self.pixel_segments))

    @property
    def exact(self) -> bool:
        """Whether taps beyond the edge are left out."""
        return self.edges in (Edges.ROW, Edges.IMAGE)

    @property
    def band_rows(self) -> int:
        """Output rows of the largest band."""
        return self.row_segments[0].size * self.rows_per_band

    def __str__(self) -> str:
        box = "x".join(str(s[0].size) for s in (self.image_segments, self.row_segments, self.pixel_segments))
        return (
            f"tile {box} pixels x{self.tile.vectors}x{self.tile.lanes}, slabs {self.grid[0]}, "
            f"image tiles {self.grid[1]}, bands {self.grid[2]}, {self.edges.value}"
            f"{', copied' if self.copies else ''}"
        )


def schedule(part: Correlation, target: ContractionTarget, edges: Edges | None = None) -> Schedule:
    """Chooses tile, blocks and what becomes of the edges, unless `edges` says it.

    Raises ValueError if the edges cannot be treated so.
    """
    size, whole = LType(part.kind).bytes, target.lanes(part.kind)
    edges, box, tile = _choose_edges(part, target, edges)
    images, rows, pixels = (split_evenly(extent, most) for extent, most in zip(part.grid, box, strict=True))
    if edges is Edges.ROW:
        pixels = _by_pattern(part.pixels.all_active(part.in_shape[1]), pixels)
    columns = split_columns(part.columns, tile)
    column_tiles, row_tiles = sum(s.tiles for s, _ in columns), sum(s.tiles for s in rows)
    panel = max(1, part.taps * part.reduced) * tile.columns * size
    per_slab = min(column_tiles, max(1, target.l2_bytes // 2 // panel))
    per_slab = ceil_div(column_tiles, ceil_div(column_tiles, per_slab))
    in_h, in_w, in_c = part.in_shape
    exact = edges in (Edges.ROW, Edges.IMAGE)
    converts = part.in_kind != part.kind and not part.depthwise
    copies = part.taps > 0 and part.reduced > 0 and (edges is Edges.PADDED or converts)
    channels = part.columns if part.depthwise else part.reduced
    pixel_pitch, row_pitch = in_c, in_w * in_c
    if copies:
        aliases = channels * size % 1024 == 0 and channels > whole
        pixel_pitch = channels + whole if aliases else channels
        row_pitch = round_up((in_w if exact else part.pixels.inputs(part.pixels.count)) * pixel_pitch, whole)
    wanted = min(_BLOCKS_WANTED, max(1, part.flops // _FLOPS_PER_BLOCK))
    outer = part.groups * ceil_div(column_tiles, per_slab) * sum(s.tiles for s in images)
    bands = 1 if copies and exact else min(row_tiles, max(1, ceil_div(wanted, outer)))
    row_bytes = rows[0].size * part.rows.in_step * row_pitch * size * images[0].size
    per_band = ceil_div(row_tiles, bands)
    if edges is Edges.PADDED:
        per_band = min(per_band, max(1, target.l2_bytes // 4 // max(row_bytes, 1)))
    plan = Schedule(
        tile, images, rows, pixels, columns, per_slab, per_band, edges, copies, (0, row_pitch, pixel_pitch)
    )
    image_pitch = in_h * in_w * in_c
    if copies:
        image_pitch = (in_h if exact else part.rows.inputs(plan.band_rows)) * row_pitch
    return replace(plan, pitch=(image_pitch, row_pitch, pixel_pitch))


def estimated_time(part: Correlation, target: ContractionTarget) -> float:
    """Cycles of the multiplications with the best tile and treatment of the edges."""
    return min(time for time, *_ in _candidates(part, target)) * part.groups * max(part.reduced, 1)


def weight_bytes(part: Correlation) -> int:
    """Of all groups."""
    return _weight_bytes_per_channel(part) * part.reduced * part.groups


def _weight_bytes_per_channel(part: Correlation) -> int:
    return part.taps * part.columns * LType(part.kind).bytes


def _reading_time(part: Correlation, target: ContractionTarget, box: tuple[int, int, int], tile: TileShape) -> float:
    """What it takes to read the weights of one reduction channel, once for each tile of pixels; 0 if they stay in the L2 cache."""
    if weight_bytes(part) <= target.l2_bytes // 2:
        return 0.0
    tiles = math.prod(ceil_div(extent, most) for extent, most in zip(part.grid, box, strict=True))
    panel = max(1, part.taps * part.reduced) * tile.columns * LType(part.kind).bytes
    again = _READ_AGAIN if panel <= target.l2_bytes // 2 else _READ_AGAIN_FROM_MEMORY
    return _weight_bytes_per_channel(part) / READ_BYTES * (1 + again * (tiles - 1))


def _choose_edges(
    part: Correlation, target: ContractionTarget, wanted: Edges | None
) -> tuple[Edges, tuple[int, int, int], TileShape]:
    """Compares the estimated times of the ways to treat the edges, each with its best tile."""
    best: tuple[float, Edges, tuple[int, int, int], TileShape] | None = None
    for time, edges, box, tile in _candidates(part, target):
        time += _reading_time(part, target, box, tile)
        if wanted in (None, edges) and (best is None or time < 0.995 * best[0]):
            best = time, edges, box, tile
    if best is None:
        raise ValueError(f"convolution: no tile treats the edges by {wanted} in {part}")
    return best[1:]


def _candidates(
    part: Correlation, target: ContractionTarget
) -> Iterator[tuple[float, Edges, tuple[int, int, int], TileShape]]:
    """Estimated time of one reduction channel, the way to treat the edges, the tile's extents and shape."""
    time, box, tile = choose_grid_tile(part.grid, part.columns, part.kind, target)
    in_h, in_w, _ = part.in_shape
    if part.taps * part.reduced == 0 or (part.rows.inside(in_h) and part.pixels.inside(in_w)):
        yield time, Edges.INSIDE, box, tile
        return
    copied = part.images * part.rows.inputs(part.rows.count) * part.pixels.inputs(part.pixels.count)
    yield time * part.taps + _COPY_COST * copied, Edges.PADDED, box, tile
    lanes = lanes_for(part.columns, part.kind, target)
    for vectors in range(1, min(ceil_div(part.columns, lanes), 8) + 1):
        limit = (vector_registers(target) - 1 - vectors) // vectors
        across = column_counts(part.columns, TileShape(1, vectors, lanes), part.kind)
        for edges, extents in _exact_boxes(part, limit):
            yield (
                _exact_time(part, edges, extents, across),
                edges,
                extents,
                TileShape(math.prod(extents), vectors, lanes),
            )


def _exact_time(
    part: Correlation, edges: Edges, extents: tuple[int, int, int], across: list[tuple[float, int]]
) -> float:
    """Estimated time of one reduction channel when the taps beyond the edge are left out; `across` as of
    `column_counts`.
    """
    images, (in_h, in_w, _) = part.images / extents[0], part.in_shape
    if edges is Edges.IMAGE:
        counts = [
            extents[0] * len(part.rows.active(i, in_h)) * len(part.pixels.active(j, in_w))
            for i in range(part.rows.taps)
            for j in range(part.pixels.taps)
        ]
        patterns: list[tuple[list[int], float]] = [(counts, images)]
    else:
        times = images * sum(len(part.rows.active(i, in_h)) for i in range(part.rows.taps))
        active = part.pixels.all_active(in_w)
        segments = _by_pattern(active, split_evenly(part.pixels.count, extents[2]))
        patterns = [
            ([len(found) for found in _pattern(active, s.start, s.size)], s.tiles * times) for s in segments
        ]
    if max(sum(counts) for counts, _ in patterns) * max(v for v, _ in across) > _MOST_TAP_ROWS:
        return math.inf
    time = sum(
        tile_cost(count, v) * n * times
        for counts, times in patterns
        for count in counts
        if count
        for v, n in across
    )
    return time * (1 + 0.002 * (len(patterns) - 1))


def _pattern(active: Sequence[range], start: int, size: int) -> tuple[range, ...]:
    """For each tap, which of the pixels start .. start + size have it, counted from `start`; `active` as of
    `Axis.active`.
    """
    return tuple(
        range(max(r.start - start, 0), max(min(r.stop - start, size), max(r.start - start, 0)))
        for r in active
    )


def _exact_boxes(part: Correlation, limit: int) -> Iterator[tuple[Edges, tuple[int, int, int]]]:
    """Tiles of at most `limit` pixels within a row, or that span images."""
    images, rows, pixels = part.grid
    for wide in range(max(1, min(pixels, ceil_div(limit, 2))), min(pixels, limit) + 1):
        if split_evenly(pixels, wide)[0].size == wide:
            yield Edges.ROW, (1, 1, wide)
    for deep in range(1, min(images, limit // (rows * pixels)) + 1):
        if split_evenly(images, deep)[0].size == deep:
            yield Edges.IMAGE, (deep, rows, pixels)


def _by_pattern(active: Sequence[range], segments: tuple[Segment, ...]) -> tuple[Segment, ...]:
    """Cuts segments of pixel tiles so that in each the tiles have the same taps for the same pixels."""
    inner = range(max(r.start for r in active), min(r.stop for r in active))  # these pixels have all taps
    cut: list[Segment] = []
    for segment in segments:
        tile = 0
        while tile < segment.tiles:
            start = segment.start + tile * segment.size
            alike = 1
            if start in inner:
                alike = max(1, min(segment.tiles - tile, (inner.stop - start) // segment.size))
            cut.append(Segment(segment.first + tile, alike, start, segment.size))
            tile += alike
    return tuple(cut)


def taps_of(
    part: Correlation,
    edges: Edges,
    extents: tuple[int, int, int],
    start: int,
    pitch: tuple[int, int, int],
    step: int = 0,
) -> tuple[Tap, ...]:
    """The taps of a tile of `extents` with the rows of the tile that each has, those with none left out.

    By row: the taps of one row of taps, for the pixels from `start` on. By image: all taps. Offsets are those
    from the first tap; `step` is what the weights of one tap take.
    """
    in_h, in_w, _ = part.in_shape
    _, row_pitch, pixel_pitch = pitch
    points = [(y, start + x) for _ in range(extents[0]) for y in range(extents[1]) for x in range(extents[2])]
    steps = []
    for i in range(part.rows.taps if edges is Edges.IMAGE else 1):
        down = part.rows.active(i, in_h) if edges is Edges.IMAGE else range(1)
        for j in range(part.pixels.taps):
            across = part.pixels.active(j, in_w)
            rows = tuple(k for k, (y, x) in enumerate(points) if y in down and x in across)
            if rows:
                steps.append(
                    Tap(
                        i * part.rows.tap_step * row_pitch + j * part.pixels.tap_step * pixel_pitch,
                        (i * part.pixels.taps + j) * step,
                        rows,
                    )
                )
    return tuple(steps)
