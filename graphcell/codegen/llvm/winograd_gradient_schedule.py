"""Whether the gradient with respect to weights is worth Winograd's algorithm, and how it is carried out.

Enters: a `ConvSpec` and the machine. Leaves: a `Schedule`, a pure function of both, printable, or None where
direct summation is estimated to be faster.
"""

from __future__ import annotations

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
    tile_cost,
)
from graphcell.codegen.llvm.correlation import ConvSpec, forward_correlation
from graphcell.codegen.llvm.text import LType
from graphcell.codegen.llvm.weights_schedule import FLOPS_OF_ONE_BLOCK
from graphcell.codegen.llvm.winograd_schedule import applies, enabled, margin, narrow, narrow_tiles, operand, tiling
from graphcell.codegen.llvm.winograd_tiles import Operand
from graphcell.codegen.llvm.winograd_tiling import Tiling
from graphcell.codegen.llvm.winograd_transforms import GRADIENT, GRADIENT_F2, GRADIENT_F2_OF_5, GRADIENT_F4, Nested, transform_cycles
from graphcell.records import dataclass

_BLOCKS_WANTED = 16
_FLOPS_PER_BLOCK = 200_000
_LEAST_PART = 16  # tiles
_MANY_PARTS = 16  # of so many it does not matter whether two threads have one more or less
_SLAB = 64  # channels and filters of a slab, about
_MOST_SHARED = 16 << 20  # bytes of transformed tiles that are kept
_TRANSFORMS = {GRADIENT_F2: (55, 45, 60), GRADIENT_F4: (190, 150, 110), GRADIENT_F2_OF_5: (190, 80, 500)}
"""Cycles to transform one vector of the input, of the cotangent, and of the result (25 of which leave the second cache), measured."""
_MEMORY = 4.0  # bytes of the partial results of a cycle, written, read and written again


@dataclass(frozen=True, slots=True)
class Schedule(RegisterTiles):
    """How the gradient is carried out; register tiles are of channels x filters.

    A block is a part of the tiles of pixels, a slab of channels and one of filters. With `shared` stages of their
    own transform all tiles; else a block transforms `chunk` tiles at a time.
    """

    algorithm: Nested
    tiling: Tiling
    tile: TileShape
    row_segments: tuple[Segment, ...]
    column_segments: tuple[tuple[Segment, Columns], ...]
    rows_per_slab: int
    columns_per_slab: int
    split_tiles: int
    chunk: int
    shared: bool
    left: Operand
    right: Operand
    products: Operand

    @property
    def tiles(self) -> int:
        return self.tiling.tiles

    @property
    def splits(self) -> int:
        return ceil_div(self.tiles, self.split_tiles)

    @property
    def slabs(self) -> tuple[int, int]:
        return ceil_div(self.row_tiles, self.rows_per_slab), ceil_div(self.column_tiles, self.columns_per_slab)

    def __str__(self) -> str:
        return (
            f"{self.algorithm}, {self.tiles} tiles in {self.splits} parts, "
            f"slabs {self.slabs[0]}x{self.slabs[1]}, register tile {self.tile.rows}x{self.tile.vectors}x{self.tile.lanes}, "
            f"tiles by {'stage' if self.shared else f'block, {self.chunk} at once'}"
        )


def choose(spec: ConvSpec, target: ContractionTarget) -> Schedule | None:
    """The fastest schedule, None if that is direct summation."""
    if not enabled() or not applies(forward_correlation(spec)):
        return None
    plans = [schedule(spec, target, algorithm) for algorithm in GRADIENT.get((spec.kh, spec.kw), ())]
    plans = [plan for plan in plans if narrow_tiles(plan.algorithm, plan.tiling, max(spec.c, spec.k), spec.kind)]
    best = min(plans, key=lambda plan: winograd_time(spec, plan, target), default=None)
    if best is None or winograd_time(spec, best, target) >= margin(best.algorithm, best.tiling) * direct_time(spec, target):
        return None
    return best


def schedule(spec: ConvSpec, target: ContractionTarget, algorithm: Nested, shared: bool | None = None) -> Schedule:
    """Slabs whose products stay in the L2 cache, two where one block would be all and threads have use for two; tiles are transformed once unless that takes
    much memory.
    """
    size, lanes = LType(spec.kind).bytes, target.lanes(spec.kind)
    cut = tiling(forward_correlation(spec), algorithm.taps)
    tiles = cut.tiles
    tile = choose_tile(spec.c, spec.k, spec.kind, target)
    rows, columns = split_evenly(spec.c, tile.rows), split_columns(spec.k, tile)
    row_tiles, column_tiles = sum(s.tiles for s in rows), sum(s.tiles for s, _ in columns)
    widths = round_up(spec.c, lanes), round_up(spec.k, lanes)
    left, right = (operand(width, tiles, size, lanes) for width in widths)
    rows_per_slab = _even(row_tiles, ceil_div(_SLAB, tile.rows))
    columns_per_slab = _even(column_tiles, ceil_div(_SLAB, tile.columns))
    slabs = ceil_div(row_tiles, rows_per_slab) * ceil_div(column_tiles, columns_per_slab)
    if slabs == 1 < row_tiles and tiles < 2 * _LEAST_PART and spec.flops >= FLOPS_OF_ONE_BLOCK:
        rows_per_slab, slabs = ceil_div(row_tiles, 2), 2
    if shared is None:
        shared = slabs > 1 and algorithm.products * (left.plane + right.plane) * size <= _MOST_SHARED
    flops = 2 * algorithm.products * tiles * spec.c * spec.k
    wanted = min(_BLOCKS_WANTED, max(1, flops // _FLOPS_PER_BLOCK))
    parts = min(ceil_div(wanted, slabs), max(1, tiles // _LEAST_PART))
    if slabs * parts % 2 and 1 < parts < _MANY_PARTS:  # an even number of blocks, for two threads to have as many
        parts += 1 if parts == 3 else -1
    split = ceil_div(tiles, parts)
    chunk = split
    if not shared:
        held = (
            min(widths[0], round_up(rows_per_slab * tile.rows, lanes) + lanes),  # a slab may begin within a vector
            min(widths[1], round_up(columns_per_slab * tile.columns, lanes)),
        )
        chunk = _even(split, max(_LEAST_PART, target.l2_bytes // (algorithm.products * sum(held) * size)))
        left, right = (operand(width, chunk, size, lanes) for width in held)
    products = operand(round_up(columns_per_slab * tile.columns, lanes), rows_per_slab * tile.rows, size, lanes)
    return Schedule(
        algorithm, cut, tile, rows, columns, rows_per_slab, columns_per_slab, split, chunk, shared, left, right, products
    )


def _even(extent: int, most: int) -> int:
    """The size of the parts when `extent` is cut in as few parts of at most `most` (at least 1) as possible."""
    return ceil_div(extent, ceil_div(extent, max(most, 1)))


# -- estimated times, in cycles of one multiply-add ----------------------------------------------------------
def winograd_time(spec: ConvSpec, plan: Schedule, target: ContractionTarget) -> float:
    lanes = target.lanes(spec.kind)
    calls = ceil_div(plan.split_tiles, plan.chunk) * plan.splits
    products = plan.algorithm.products * sum(
        (tile_cost(rows.size, columns.effort(spec.kind)) * plan.tiles + calls * (3 * rows.size * columns.vectors + 20)) * rows.tiles * segment.tiles
        for rows in plan.row_segments
        for segment, columns in plan.column_segments
    )
    products *= narrow(spec.k, spec.kind, target)
    into, cotangent, back = _transforms(plan.algorithm)
    channels, filters = ceil_div(spec.c, lanes), ceil_div(spec.k, lanes)
    again = (1, 1) if plan.shared else plan.slabs[::-1]
    tiles = plan.tiles * (into * channels * again[0] + cotangent * filters * again[1] + (50 if plan.algorithm.flat else 120))
    return products + tiles + back * spec.c * filters * plan.splits + _sum_time(spec, target)


def _transforms(algorithm: Nested) -> tuple[float, float, float]:
    """`_TRANSFORMS`, estimated where it was not measured."""
    into, cotangent, back = map(transform_cycles, (algorithm.input_matrices, algorithm.filter_matrices, algorithm.output_matrices))
    return _TRANSFORMS.get(algorithm, (into, cotangent, back + 25))


def direct_time(spec: ConvSpec, target: ContractionTarget) -> float:
    """Of the multiplications for the taps that read inside the image."""
    part, vectors = forward_correlation(spec), ceil_div(spec.k, target.lanes(spec.kind))
    taps = [
        sum(len(found) for found in axis.all_active(extent)) for axis, extent in ((part.rows, spec.h), (part.pixels, spec.w))
    ]
    time = 1.05 * spec.n * taps[0] * taps[1] * spec.c * vectors
    return time * narrow(spec.k, spec.kind, target) + _sum_time(spec, target)


def _sum_time(spec: ConvSpec, target: ContractionTarget) -> float:
    """Of the last stage, which adds the parts and brings them to the layout of the weights."""
    vectors, size = spec.kh * spec.kw * spec.c * ceil_div(spec.k, target.lanes(spec.kind)), LType(spec.kind).bytes
    bytes_ = vectors * target.lanes(spec.kind) * size
    return 12 * vectors + (bytes_ / _MEMORY if bytes_ > target.l2_bytes // 2 else 0)
