"""How a matmul is carried out with tile registers: blocks for threads, passes along k; and whether it is.

Enters: a `MatmulSpec` and the machine. Leaves: a `TileSchedule`, printable, or None. Refuses nothing.
"""

from __future__ import annotations

import math

from graphcell.codegen.llvm.contraction import Columns, ContractionTarget, RegisterTiles, Segment, ceil_div, multiplies_tiles, round_up
from graphcell.codegen.llvm.matmul_spec import MatmulSpec
from graphcell.codegen.llvm.text import LType
from graphcell.codegen.llvm.tile_panels import PARTS, panel_bytes
from graphcell.codegen.llvm.tile_registers import TILE_ROWS, TILE_STEPS
from graphcell.records import dataclass

TILE = 2 * TILE_ROWS
"""Rows and columns of what a micro-kernel computes: four registers."""
_LANES = 16
STEPS_OF_A = {1: 1024, 2: 512, 3: 384}  # of a panel of A, at most, by the parts of an element
_PART_OF_CACHE = 0.75  # of L2 that is for B's panels and for sums
_MOST_LINES = 8  # of 32 elements that are packed beside a group of products
_UNEVEN = 8  # blocks, fewer of which had better be an even number
_MOST_BLOCKS = 4  # that are made for threads, each of which packs what it reads
# Cycles, of one core: fitted to 54 shapes on Granite Rapids with random numbers, which the processor multiplies more slowly than zeros.
_MULTIPLY_ADDS = 28.0  # of floats in a cycle, as the other kernels do
_PRODUCT = {1: 36.0, 2: 25.0, 3: 25.0}  # of two tiles, with their loads; by the parts of an element, of which some are loaded once for several products
_PACKED = {"bfloat": (0.25, 0.3), "half": (0.5, 0.8), "float": (0.75, 1.05)}  # for an element: as it lies, and turned
_MEANWHILE = 0.2  # of that, for what is packed beside products
_ALONE = 2.4  # times a product: where a row tile is one register, each register of B is loaded for one product
_FETCHED, _NEAR = (8.0, 2.7), 16 << 20  # bytes of prepared panels that come in a cycle, of up to so many in all, and of more
_CALL = 100.0  # of a product of panels, with what is stored
WORTH = 0.85  # of the time of the other kernels


@dataclass(frozen=True, slots=True)
class TileSchedule(RegisterTiles):
    """How a matmul is carried out with tile registers; a pure function of the spec and the target."""

    row_segments: tuple[Segment, ...]
    column_segments: tuple[tuple[Segment, Columns], ...]
    rows_per_block: int  # row tiles
    columns_per_block: int  # column tiles
    depth: int  # k of one pass over a block
    passes: int
    pack_b: str  # "block" or "shared"
    parts: int  # bfloats that an element is the sum of
    meanwhile: int = 0  # rows of the next row tile of A which a product of tiles packs beside its work (0: they are packed before)

    @property
    def grid(self) -> tuple[int, int]:
        """Blocks along columns and rows."""
        return ceil_div(self.column_tiles, self.columns_per_block), ceil_div(self.row_tiles, self.rows_per_block)

    @property
    def products(self) -> tuple[tuple[int, int], ...]:
        """Which parts of A and B are multiplied. Left out is what is less than 2**-22 of |a||b|."""
        return _PRODUCTS[self.parts]

    def __str__(self) -> str:
        several = f", {len(self.products)} products of parts" if self.parts > 1 else ""
        pack_a = "beside products" if self.meanwhile else "tile by tile"
        return f"tile registers, grid {self.grid[0]}x{self.grid[1]}, depth {self.depth}{several}, pack a: {pack_a}, b: {self.pack_b}"


_PRODUCTS = {1: ((0, 0),), 2: ((1, 1), (1, 0), (0, 0), (0, 1)), 3: ((0, 2), (0, 1), (1, 1), (1, 0), (0, 0), (2, 0))}
"""Parts of A and B that are multiplied, by how many there are: one of both is in registers already where the other changes."""


def _lines_meanwhile(spec: MatmulSpec, across: int, column_tiles: int) -> int:
    """Rows of the next row tile that each of the products beside each other in a block packs, if there is one that lies row by row, steps are whole groups, and
    these are not many.
    """
    lines = ceil_div(TILE, column_tiles // across)
    return lines if spec.m > TILE and spec.a.column == 1 and spec.k % TILE_STEPS == 0 and lines <= _MOST_LINES else 0


def tile_schedule(spec: MatmulSpec, target: ContractionTarget) -> TileSchedule | None:
    """The schedule, or None if the product cannot be computed so, or is computed sooner by multiply-adds."""
    if not _can(spec, target):
        return None
    passes = ceil_div(spec.k, STEPS_OF_A[PARTS[spec.a.kind]])
    plan = schedule_in_passes(spec, round_up(ceil_div(spec.k, passes), TILE_STEPS), target)
    return plan if cycles(spec, plan, target) < WORTH * cycles_of_multiply_adds(spec) else None


def schedule_in_passes(spec: MatmulSpec, depth: int, target: ContractionTarget, gathers: bool = False) -> TileSchedule:
    """The schedule whose passes have so many steps. `gathers`: the rows of A do not lie in memory, but are put together tile by tile."""
    rows, columns, parts = _rows(spec.m), _columns(spec.n), PARTS[spec.a.kind]
    passes = ceil_div(spec.k, depth)
    row_tiles, column_tiles = ceil_div(spec.m, TILE), ceil_div(spec.n, TILE)
    across, down = _grid(spec, row_tiles, column_tiles, passes, panel_bytes(spec.b.kind, depth), gathers, target)
    per_row, per_column = ceil_div(row_tiles, down), ceil_div(column_tiles, across)
    pack_b, meanwhile = "shared" if spec.share_b else "block", 0 if gathers else _lines_meanwhile(spec, across, column_tiles)
    return TileSchedule(rows, columns, per_row, per_column, depth, passes, pack_b, parts, meanwhile)


def _can(spec: MatmulSpec, target: ContractionTarget) -> bool:
    a, b = spec.a, spec.b
    kinds = a.kind == b.kind and a.kind in PARTS and spec.c.kind != "double"
    contiguous = 1 in (a.row, a.column) and 1 in (b.row, b.column)
    half_is_copied = spec.mirrored  # which takes as long, and both halves are equal
    takes_small = target.flushes or a.kind != "float"  # the numbers of halves are none of bfloats that are denormal
    return multiplies_tiles(target) and kinds and contiguous and spec.k > 0 and takes_small and not half_is_copied


def _rows(m: int) -> tuple[Segment, ...]:
    full, rest = divmod(m, TILE)
    return tuple(s for s in (Segment(0, full, 0, TILE), Segment(full, int(rest > 0), full * TILE, rest)) if s.tiles)


def _columns(n: int) -> tuple[tuple[Segment, Columns], ...]:
    full, rest = divmod(n, TILE)
    segments = [(Segment(0, full, 0, TILE), Columns(2, _LANES, _LANES))] if full else []
    if rest:
        vectors = ceil_div(rest, _LANES)
        segments.append((Segment(full, 1, full * TILE, rest), Columns(vectors, rest - (vectors - 1) * _LANES, _LANES)))
    return tuple(segments)


def _grid(spec: MatmulSpec, row_tiles: int, column_tiles: int, passes: int, panel: int, gathers: bool, target: ContractionTarget) -> tuple[int, int]:
    """Blocks along columns and rows: enough for threads, what a block uses again in the L2 cache, and least packed by several blocks."""
    outer, room = math.prod(spec.batch), int(target.l2_bytes * _PART_OF_CACHE)
    fetches = passes * column_tiles * panel > room  # prepared panels, from further away
    wanted = min(_MOST_BLOCKS, spec.blocks_wanted, outer * row_tiles * column_tiles)
    best = (math.inf, math.inf, 1, 1)
    for per_column in range(1, column_tiles + 1):
        across = ceil_div(column_tiles, per_column)
        left = room - per_column * panel
        if per_column > 1 and left < 0:
            break
        if per_column > 1 and across == ceil_div(column_tiles, per_column - 1):
            continue
        most = row_tiles if passes == 1 else max(1, min(row_tiles, left // (per_column * TILE * TILE * 4)))
        down = ceil_div(row_tiles, most)
        if outer * across * down < wanted:
            down = min(row_tiles, ceil_div(wanted, outer * across))
            down = ceil_div(row_tiles, ceil_div(row_tiles, down))
        blocks = outer * across * down
        missing = max(0, wanted - blocks) + (blocks < _UNEVEN and blocks % 2 and wanted > 1)
        part = _MEANWHILE if _lines_meanwhile(spec, across, column_tiles) and not gathers else 1
        packed = part * across * spec.m + (0 if spec.share_b and not fetches else down * spec.n)
        best = min(best, (missing, packed, across, down))
    return int(best[2]), int(best[3])


def cycles(spec: MatmulSpec, plan: TileSchedule, target: ContractionTarget) -> float:
    """The time that is expected."""
    across, down = plan.grid
    full, rest = divmod(spec.m, TILE)
    rows = 2 * full + (0 if rest == 0 else 2 if rest > TILE_ROWS else _ALONE)
    products = rows * ceil_div(spec.n, TILE_ROWS) * ceil_div(spec.k, TILE_STEPS) * len(plan.products) * _PRODUCT[plan.parts]
    turned = spec.a.column != 1, spec.b.column != 1
    packed = across * spec.m * spec.k * _PACKED[spec.a.kind][turned[0]] * (_MEANWHILE if plan.meanwhile else 1)
    panels = spec.n * spec.k * plan.parts * LType("bfloat").bytes
    if plan.pack_b == "block":
        packed += down * spec.n * spec.k * _PACKED[spec.b.kind][turned[1]]
    elif plan.parts > 1 and panels > target.l2_bytes // 2:  # bfloats take no more memory than the other kernels'
        packed += down * panels / _FETCHED[panels > _NEAR]
    calls = plan.row_tiles * plan.column_tiles * plan.passes
    return math.prod(spec.batch) * (products + packed + calls * _CALL)


def cycles_of_multiply_adds(spec: MatmulSpec) -> float:
    """The time of the other kernels."""
    return math.prod(spec.batch) * spec.m * round_up(spec.n, _LANES // 2) * spec.k / _MULTIPLY_ADDS
