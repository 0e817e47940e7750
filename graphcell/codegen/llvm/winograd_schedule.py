"""Whether a correlation is worth Winograd's algorithm, which one, and how it is carried out.

Enters: a `Correlation` and the machine. Leaves: a `Schedule`, a pure function of both, printable, or None
where direct convolution is estimated to be faster.
"""

from __future__ import annotations

import math
import os

from graphcell.codegen.llvm.contraction import (
    Columns,
    ContractionTarget,
    RegisterTiles,
    Segment,
    TileShape,
    ceil_div,
    choose_tile,
    lanes_for,
    round_up,
    split_columns,
    split_evenly,
    tile_cost,
)
from graphcell.codegen.llvm.convolution_schedule import READ_BYTES, estimated_time
from graphcell.codegen.llvm.correlation import Correlation
from graphcell.codegen.llvm.text import LType
from graphcell.codegen.llvm.winograd_filters import STEP
from graphcell.codegen.llvm.winograd_tiles import Operand
from graphcell.codegen.llvm.winograd_tiling import Tiling
from graphcell.codegen.llvm.winograd_transforms import F2, F2_OF_5, F4, FORWARD, Nested, transform_cycles
from graphcell.errors import ArgumentValueError
from graphcell.records import dataclass

SWITCH_VARIABLE = "GRAPHCELL_WINOGRAD"
_BLOCKS_WANTED = 16
_OWN_BLOCKS_WANTED = 4  # with groups of tiles that all transform the weights
_FLOPS_PER_BLOCK = 200_000
_FEWEST_GROUPS = 4  # of tiles that transform their input and have all columns
_MANY_TILES = 16  # register tiles; of so many it does not matter whether two threads have one more or less
_HARDLY_LONGER = 1.04  # times the time of the best tile, by estimate
_SLAB_VECTORS = 4
_MOST_OWN = 3  # times half of the L2 cache, of a thread's own memory
_MOST_OWN_TAPS = 9  # with which blocks may transform weights that others transform, too
_MOST_SHARED = 64 << 20  # bytes of transformed input that are kept
_MOST_ZEROS = 64 << 10  # bytes of the row of a tile whose pixels lie apart
_MARGIN, _MARGIN_OF_OTHERS, _MARGIN_OF_LINES = 0.95, 0.9, 0.86  # the less of it was measured, the smaller
_TRANSFORMS = {F2: (55, 150, 45), F4: (190, 220, 120), F2_OF_5: (190, 400, 90)}
"""Cycles to transform one vector of the input, of the weights, and back, measured."""
_PACK = 12  # cycles of a vector of a tap's weights before it is transformed
_READ_AGAIN, _WRITE = 10.0, 6.0
"""Bytes of a cycle that memory gives again soon, and takes."""


def applies(part: Correlation) -> bool:
    """Taps for which there is an algorithm, unit strides, one group, and something to do."""
    return (
        part.groups == 1
        and not part.depthwise
        and (part.rows.taps, part.pixels.taps) in FORWARD
        and all(axis.in_step == axis.step == 1 for axis in (part.rows, part.pixels))
        and min(*part.grid, part.reduced, part.columns) > 0
    )


@dataclass(frozen=True, slots=True)
class Schedule(RegisterTiles):
    """How a correlation is carried out with `algorithm`; `tiles` counts tiles of outputs.

    A block is a group of `rows_per_block` register tiles (of tiles) and, with `shared_input`, a slab of
    `columns_per_slab` column tiles; without it transforms its own input and goes through all slabs. With
    `chunk` a block transforms the weights it needs, so many channels at once; 0: a stage of its own does.
    """

    algorithm: Nested
    tiling: Tiling
    tile: TileShape
    row_segments: tuple[Segment, ...]
    column_segments: tuple[tuple[Segment, Columns], ...]
    rows_per_block: int
    columns_per_slab: int
    shared_input: bool
    chunk: int
    input: Operand
    products: Operand

    @property
    def tiles(self) -> int:
        return self.tiling.tiles

    @property
    def block_tiles(self) -> int:
        """Tiles of the largest block."""
        return min(self.tiles, self.rows_per_block * self.row_segments[0].size)

    @property
    def groups(self) -> int:
        return ceil_div(self.row_tiles, self.rows_per_block)

    @property
    def slabs(self) -> int:
        return ceil_div(self.column_tiles, self.columns_per_slab)

    def input_bytes(self, kind: str) -> int:
        """Of the transformed input."""
        return self.algorithm.products * self.input.plane * LType(kind).bytes

    def __str__(self) -> str:
        return (
            f"{self.algorithm}, {self.tiles} tiles in {self.groups} groups, {self.slabs} slabs, "
            f"register tile {self.tile.rows}x{self.tile.vectors}x{self.tile.lanes}, "
            f"input by {'stage' if self.shared_input else 'block'}, "
            f"weights by {f'block, {self.chunk} channels' if self.chunk else 'stage'}"
        )


def tiling(part: Correlation, steps: tuple[int, int]) -> Tiling:
    """The outputs cut in tiles of `steps` pixels, which are as far apart as the taps."""
    down, across = (axis.tap_step if axis.taps > 1 else 1 for axis in (part.rows, part.pixels))
    return Tiling(part.images, (part.rows.count, part.pixels.count), steps, (down, across))


def margin(algorithm: Nested, cut: Tiling) -> float:
    """The part of the time of direct summation that the estimate must be below."""
    if algorithm.flat:
        return _MARGIN_OF_LINES
    return _MARGIN if algorithm.rows == algorithm.pixels and cut.apart == (1, 1) else _MARGIN_OF_OTHERS


def narrow_tiles(algorithm: Nested, cut: Tiling, channels: int, kind: str) -> bool:
    """Whether a thread may have a row of pixels as long as that of a tile to itself: zeros, for rows outside of the image."""
    apart = cut.apart[1]
    return apart == 1 or algorithm.pixels.size * apart * channels * LType(kind).bytes <= _MOST_ZEROS


def enabled() -> bool:
    """Whether the environment allows Winograd's algorithm: GRAPHCELL_WINOGRAD is 1, as it is by default, not 0.

    Raises ArgumentValueError (a ValueError) if it holds anything else.
    """
    text = os.environ.get(SWITCH_VARIABLE, "").strip() or "1"
    if text not in ("0", "1"):
        raise ArgumentValueError(f"{SWITCH_VARIABLE} is {text!r}, expected 0 or 1")
    return text == "1"


def choose(part: Correlation, target: ContractionTarget, prepared: bool = False) -> Schedule | None:
    """The fastest schedule, None if that is direct convolution.

    `prepared` says that the stages which read the weights only need not be counted: their results are kept.
    """
    if not enabled() or not applies(part):
        return None
    own = (False,) if prepared or part.taps > _MOST_OWN_TAPS else (False, True)
    plans = [schedule(part, target, algorithm, own_filters) for algorithm in FORWARD[part.rows.taps, part.pixels.taps] for own_filters in own]
    plans = [plan for plan in plans if narrow_tiles(plan.algorithm, plan.tiling, part.reduced, part.in_kind)]
    plans = [plan for plan in plans if not plan.shared_input or plan.input_bytes(part.kind) <= _MOST_SHARED]
    if not plans:
        return None
    best = min(plans, key=lambda plan: winograd_time(part, plan, target, prepared))
    time, direct = winograd_time(part, best, target, prepared), direct_time(part, target, prepared)
    return best if time < margin(best.algorithm, best.tiling) * direct else None


def schedule(part: Correlation, target: ContractionTarget, algorithm: Nested, own_filters: bool = False) -> Schedule:
    """Blocks whose transformed input and products stay in the L2 cache, and enough of them for many threads.

    With `own_filters` each block transforms the weights it needs.
    """
    size, lanes = LType(part.kind).bytes, target.lanes(part.kind)
    cut = tiling(part, algorithm.outputs)
    tiles = cut.tiles
    tile = _evenly_many(choose_tile(tiles, part.columns, part.kind, target), tiles)
    rows, columns = split_evenly(tiles, tile.rows), split_columns(part.columns, tile)
    row_tiles, column_tiles = sum(s.tiles for s in rows), sum(s.tiles for s, _ in columns)
    flops = 2 * algorithm.products * tiles * part.reduced * part.columns
    wanted = min(_BLOCKS_WANTED, max(1, flops // _FLOPS_PER_BLOCK))
    room = target.l2_bytes // 2 // (algorithm.products * size)  # elements of each product
    slab = min(column_tiles, max(1, _SLAB_VECTORS // tile.vectors))
    channels = round_up(part.reduced, lanes)
    least = (channels + slab * tile.columns) * rows[0].size  # of a block of one register tile, if it transforms its input
    weights = algorithm.products * part.reduced * round_up(part.columns, lanes) * size
    fused = max(1, (1 if weights <= target.l2_bytes else 2) * room // least)  # fewer blocks where each reads many weights
    are_few = ceil_div(row_tiles, fused) < wanted if slab < column_tiles else row_tiles < min(wanted, _FEWEST_GROUPS)
    shared_input = own_filters or are_few or least > _MOST_OWN * room
    per_block = min(row_tiles, fused)
    if shared_input:
        per_block = min(row_tiles, max(1, room // (slab * tile.columns * rows[0].size)))
        per_block = ceil_div(row_tiles, ceil_div(row_tiles, per_block))
        if ceil_div(row_tiles, per_block) * ceil_div(column_tiles, slab) < wanted:
            slab = 1
        blocks = ceil_div(min(wanted, _OWN_BLOCKS_WANTED) if own_filters else wanted, ceil_div(column_tiles, slab))
        per_block = max(1, min(per_block, row_tiles // blocks))
    elif ceil_div(row_tiles, per_block) < 2 * wanted:
        per_block = max(1, row_tiles // wanted)
    block_tiles = min(tiles, per_block * rows[0].size)
    v = operand(channels, tiles if shared_input else block_tiles, size, lanes)
    m = operand(round_up(slab * tile.columns, lanes), block_tiles, size, lanes)  # results are read in whole vectors
    chunk = 0
    if own_filters:
        chunk = min(round_up(part.reduced, STEP), max(STEP, room // (slab * tile.columns) // STEP * STEP))
    return Schedule(algorithm, cut, tile, rows, columns, per_block, slab, shared_input, chunk, v, m)


def _evenly_many(tile: TileShape, tiles: int) -> TileShape:
    """The register tile, or one of which there is one more if they are few and an odd number, for two threads to have as many, where that takes hardly
    longer."""
    count = ceil_div(tiles, tile.rows)
    if count % 2 == 0 or count >= _MANY_TILES or tiles == 1:
        return tile
    smaller = TileShape(ceil_div(tiles, count + 1), tile.vectors, tile.lanes)
    longer = (count + 1) * tile_cost(smaller.rows, tile.vectors) / (count * tile_cost(tile.rows, tile.vectors))
    return smaller if ceil_div(tiles, smaller.rows) == count + 1 and longer <= _HARDLY_LONGER else tile


# -- estimated times, in cycles of one multiply-add ----------------------------------------------------------
def winograd_time(part: Correlation, plan: Schedule, target: ContractionTarget, prepared: bool) -> float:
    """Products, transforms, and the transformed weights, which come from memory when they are many."""
    size, lanes = LType(part.kind).bytes, target.lanes(part.kind)
    into, filters, back = _transforms(plan.algorithm)
    products = plan.algorithm.products * sum(
        (tile_cost(rows.size, columns.effort(part.kind)) * part.reduced + 2 * rows.size * columns.vectors + 20) * rows.tiles * segment.tiles
        for rows in plan.row_segments
        for segment, columns in plan.column_segments
    )
    products *= narrow(part.columns, part.kind, target)
    channels, vectors = ceil_div(part.reduced, lanes), ceil_div(part.columns, lanes)
    tiles = plan.tiles * (into * channels + back * vectors + (25 if plan.algorithm.flat else 60))
    weights = part.reduced * vectors * filters
    if plan.chunk:
        return products + tiles + weights * plan.groups
    bytes_ = plan.algorithm.products * part.reduced * vectors * lanes * size
    streams = bytes_ > target.l2_bytes // 2
    if streams:
        products = max(products, bytes_ / READ_BYTES + (plan.groups - 1) * bytes_ / _READ_AGAIN)
    return products + tiles + (0 if prepared else weights + streams * bytes_ / _WRITE)


def _transforms(algorithm: Nested) -> tuple[float, float, float]:
    """`_TRANSFORMS`, estimated where it was not measured."""
    into, filters, back = map(transform_cycles, (algorithm.input_matrices, algorithm.filter_matrices, algorithm.output_matrices))
    return _TRANSFORMS.get(algorithm, (into, filters + _PACK * math.prod(algorithm.taps), back + (5 if algorithm.flat else 10)))


def direct_time(part: Correlation, target: ContractionTarget, prepared: bool) -> float:
    size, lanes = LType(part.kind).bytes, target.lanes(part.kind)
    vectors = part.reduced * part.taps * ceil_div(part.columns, lanes)
    bytes_, time = vectors * lanes * size, estimated_time(part, target) * narrow(part.columns, part.kind, target)
    streams = bytes_ > target.l2_bytes // 2
    if streams:
        time = max(time, bytes_ / READ_BYTES)
    return time + (0 if prepared else 8 * vectors + streams * bytes_ / _WRITE)


def narrow(columns: int, kind: str, target: ContractionTarget) -> float:
    """Shorter vectors, for few columns, are multiplied faster: the factor of the time."""
    return 0.5 if lanes_for(columns, kind, target) < target.lanes(kind) else 1.0


def operand(width: int, tiles: int, size: int, lanes: int) -> Operand:
    """Pitches for `tiles` rows of `width` elements that are not multiples of a large power of two, which share
    few cache lines.
    """
    pitch = width + lanes if width * size % 1024 == 0 else width
    plane = tiles * pitch
    return Operand(pitch, plane + lanes if plane // lanes % 2 == 0 else plane)
