"""How a matmul of known shape is carried out as a sum of outer products: register tiles, blocks for threads, passes along k, what is packed.

Enters: a `MatmulSpec` and the machine. Leaves: a `Schedule`, a pure function of both, printable. Refuses nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

from graphcell.codegen.llvm.contraction import (
    LINE_BYTES,
    PAGE_BYTES,
    Columns,
    ContractionTarget,
    RegisterTiles,
    Segment,
    TileShape,
    ceil_div,
    choose_grid_tile,
    choose_tile,
    first_element,
    has_few_ways,
    round_up,
    split_columns,
    split_evenly,
)
from graphcell.codegen.llvm.few_rows import HALVES, HARDLY_LONGER, bytes_of_all, heights_for_team, tile_for_few_rows
from graphcell.codegen.llvm.matmul_spec import BLOCKS_WANTED, MatmulSpec
from graphcell.codegen.llvm.processor import is_amd
from graphcell.codegen.llvm.text import LType
from graphcell.records import dataclass

_ALIASING_ROWS = 8, 4  # of a tile that share a few sets of the nearest cache, at most; where it has few ways
_LONG_COLUMN = 48  # steps after which the first lines may have left the L1 cache
_COLUMN_TILES_TO_COPY = 3
_ROWS_PER_BLOCK, _ROWS_OF_HALF = 192, 48  # a block that packs B has at least so many rows to pay for it, or is one of two with so many
GROUPED_ROWS = 64  # of a transposed A that are copied together, a few cache lines of each reduction step
_LINE_STEPS = 256  # of a transposed A whose cache lines wait in the L2 cache for the tiles that take the rest: rows a page apart share a few of its sets
_LINE_PAGES = 64  # on which they may lie where the nearest TLB knows few pages, as Intel's 96: shorter passes, though the output is read and written more often
_FEW_STEPS = 24  # of so few, much of the time goes to writing the output, for which row after row is best
_ROWS_FOR_A_STEP = 8  # that a block which packs so few steps of B has at least, for each of them
_FETCHING_TILES = 12  # row tiles of a block that ask for what the next one reads of B, at most
_ROWS_AHEAD = 8  # of a B that lies row by row, in pages of their own: the processor does not foresee where a tile reads the next one
MOST_KEPT_BYTES = 1 << 21  # of B's panels that a thread keeps from one row block to the next
_STREAMED_STEPS = 16, 8  # rows of a large B that are read side by side, from caches and from memory, where sixteen streams are a fifth slower
_STREAMED_ALIASES = 8  # the same, of those that would fill all ways of a set
_STREAMED_ROWS, _FEWEST_STREAMED = 64, 32  # of a part of k, at least, and of a B that one tile reads
_COPIED_BY_ROWS_FROM = 4  # times the L2 cache: from there on, B is copied row by row where a tile would read its columns from pages that share few sets
_STREAMED_FROM, _STREAMED_FROM_BYTES = 8, 4 << 20  # times the L2 cache, or bytes, whichever is less: from there on B comes from memory, more or less
_IN_TILES = 9, 2  # rows, from which on it matters where those of B lie in the caches: several tiles may read it in turn, or, of short vectors, parts of lines
_STRIP_ROWS, _STRIP_COLUMNS = 64, 32  # of a narrow output, at most
_STRIP_TIMES = 8  # its width that such an output is long, at least
_STRIP_LONGEST = 4096  # the parts of a longer one are much to add up, and its blocks read thousands of rows in any case
_FEWEST_HALVED, _MOST_HALVED_BYTES = 256, 1 << 17  # steps of a sum that two threads take half of each, and what is added up then
_TIMES_READ = 3  # as many numbers as the result has there are to read, at least, for that
_STRIP_STEPS = 512  # of a part of k, which pay for adding up the parts
_STRIP_FROM = 4  # times the L2 cache that the long operand takes
_MIRRORED_ROWS, _MIRRORED_STEPS = 128, (48, 128)  # from which it is quicker to copy half of a symmetric product, without and with an epilogue
_LEAST_COPIED_STEPS = 96  # of a transposed A that pay for copies of groups of rows
_COPIED_STEPS = 128  # of a transposed A in a pass, where there are several: a group of rows is copied to the L1 cache, more or less
_COLUMNS_TO_COPY = 40  # vectors of B's columns, at least, that pay for such copies
_COLUMNS_TO_COPY_PAGES = 32  # the same where A's rows are whole pages, which share a few sets of the caches
_ROWS_TO_COPY = 64, 256  # that it has at least, with short vectors more: they take part of a line in most steps, and the rest waits in the caches
_COLUMNS_PER_COPY = 20  # vectors of columns that a block has, at least, if they are divided to have some blocks
_COPYING_BLOCKS = 4  # that a product with such copies has, if it can
_LONG_PASS = 512  # reduction steps, beside which it takes little to read and write the output once more
_PART_FOR_B = 2, 3  # of the L2 cache that is for B's panels; where rows of A share a few sets and caches have few ways
_OWN_CACHES = 2  # of processors, which hold what threads have written
_PACKED = 3.0  # times what it takes to fetch a number from another cache: to fetch one and pack it
_PACKED_UNEVENLY, _UNEVEN = 1.5, 0.54  # the same where half of the column tiles are more than this part of the columns: one thread waits for the other
_PART_FOR_OUTPUT = 3  # of the L2 cache that is for the output of blocks which are carried out as one


@dataclass(frozen=True, slots=True)
class Schedule(RegisterTiles):
    """How a matmul is carried out; a pure function of the spec and the target."""

    tile: TileShape
    row_segments: tuple[Segment, ...]
    column_segments: tuple[tuple[Segment, Columns], ...]
    rows_per_block: int  # row tiles
    columns_per_block: int  # column tiles
    splits: int  # parts of k
    split_depth: int  # k of one part (the last may be shorter)
    depth: int  # k of one pass over a block
    pack_a: str  # "no", "rows" or "columns"
    pack_b: str  # "no", "block" or "shared"
    panel_kind: str  # the element kind of packed panels
    mirrored: bool = False  # only tiles that reach down to the diagonal are computed
    together: int = 1  # blocks one below another that a thread to which all of them fall carries out as one
    rows_ahead: int = 0  # reduction steps by which what is read of a B that lies row by row is asked for
    packs_meanwhile: bool = False  # the first row tile of a block packs what it reads of B, and no stage or loop does
    fetches: bool = False  # the others ask for what it will read of B next
    rows_first: bool = False  # blocks beside each other follow each other, so that threads divide rows

    @property
    def grid(self) -> tuple[int, int]:
        """Blocks along columns and rows."""
        return ceil_div(self.column_tiles, self.columns_per_block), ceil_div(
            self.row_tiles, self.rows_per_block
        )

    @property
    def first_rows(self) -> tuple[int, ...]:
        """The first row of each block, if blocks have all columns; they have the tiles that `even_range` gives them."""
        across, down = self.grid
        if across > 1 or self.splits > 1:
            return ()
        return tuple(first_element(self.row_segments, (k * self.row_tiles + down // 2) // down) for k in range(down))

    @property
    def passes(self) -> int:
        return max(1, ceil_div(self.split_depth, max(self.depth, 1)))

    def __str__(self) -> str:
        return (
            f"tile {self.tile.rows}x{self.tile.vectors}x{self.tile.lanes}, "
            f"grid {self.grid[0]}x{self.grid[1]}, depth {self.depth}, splits {self.splits}, "
            f"pack a: {self.pack_a}, b: {self.pack_b}{' in halves' if LType(self.panel_kind).bytes == 2 else ''}"
            f"{' by the first row tile' if self.packs_meanwhile else ''}{', asked for by the others' if self.fetches else ''}"
            f"{', the upper half mirrored' if self.mirrored else ''}"
            f"{f', {self.together} blocks as one' if self.together > 1 else ''}"
            f"{', divided by rows' if self.rows_first else ''}"
        )


def schedule(spec: MatmulSpec, target: ContractionTarget) -> Schedule:
    """Chooses tile, blocks, packing and the division of k."""
    kind, size = spec.kind, LType(spec.kind).bytes
    most_rows = _ALIASING_ROWS[has_few_ways(target)] if spec.a_rows_alias else 64
    by_rows = _reads_b_by_rows(spec, target)
    of_few = tile_for_few_rows(spec, by_rows, most_rows, target)
    tile = (_tile_for_team(spec, most_rows, target) or choose_tile(spec.m, spec.n, kind, target, most_rows, spec.c.past)) if of_few is None else of_few[0]
    rows, columns = split_evenly(spec.m, tile.rows), split_columns(spec.n, tile)
    row_tiles, column_tiles = sum(s.tiles for s in rows), sum(s.tiles for s, _ in columns)
    way = _pack_b(spec, row_tiles, size, target) if of_few is None else of_few[1]
    pack_b, panel_kind = ("shared", spec.b.kind) if way == HALVES else (way, spec.packed_kind)
    in_rows = pack_b == "no" and by_rows
    splits, split_depth = _split_k(spec, row_tiles * column_tiles, target.lanes(kind), in_rows, target)
    narrow = spec.c.kind != kind and splits == 1
    copies = _copies_lines(spec, tile, target)
    depth = split_depth if narrow else _depth_of_pass(spec, tile, split_depth, in_rows, copies, target)
    per_row, per_column = _tiles_of_block(spec, tile, (row_tiles, column_tiles), splits, (split_depth, depth), pack_b, copies, target)
    pack_a = "columns" if copies else _pack_a(spec, tile, per_column, target)
    plan = Schedule(tile, rows, columns, per_row, per_column, splits, split_depth, depth, pack_a, pack_b, panel_kind, spec.mirrored and splits == 1)
    plan = replace(plan, together=_blocks_together(plan, size, target))
    meanwhile = _packs_meanwhile(spec, plan, target)
    reads_far = spec.b.column == 1 and (meanwhile or (pack_b == "no" and not in_rows)) and bytes_of_all(spec) > target.l2_bytes // 2
    rows_first = min(plan.grid) > 1 and not plan.mirrored and _divides_rows(spec, tile, pack_b, target)
    plan = replace(plan, packs_meanwhile=meanwhile, rows_ahead=_ROWS_AHEAD if reads_far else 0, rows_first=rows_first)
    return replace(plan, fetches=_fetches(spec, plan))


def _tile_for_team(spec: MatmulSpec, most_rows: int, target: ContractionTarget) -> TileShape | None:
    """A tile of which an even number are all rows, so that threads of a team have equally many, if it takes hardly longer than the best one; if there is none,
    one of which an even number are nearly as many each."""
    if not spec.is_short_in_loop:
        return None
    least, _, _ = choose_grid_tile((1, 1, spec.m), spec.n, spec.kind, target, most_rows)
    heights = heights_for_team(spec.m, most_rows)
    even = frozenset(rows for rows in heights if spec.m % rows == 0)
    for some in (even, heights - even):
        time, _, tile = choose_grid_tile((1, 1, spec.m), spec.n, spec.kind, target, most_rows, some)
        if time <= HARDLY_LONGER * least:
            return tile
    return None


def _fetches(spec: MatmulSpec, plan: Schedule) -> bool:
    """Whether the row tiles that follow the first ask for what that will read of B next. Where rows are whole pages apart or nearly so, that would
    displace what is at hand; beside many row tiles the first one's wait is little."""
    far = plan.packs_meanwhile and plan.rows_ahead > 0 and not spec.b_aliases
    return far and plan.grid[0] * plan.passes > 1 and 1 < min(plan.row_tiles, plan.rows_per_block) <= _FETCHING_TILES


def _packs_meanwhile(spec: MatmulSpec, plan: Schedule, target: ContractionTarget) -> bool:
    """Whether the first row tile of a block packs B as it reads it where it lies, row by row: multiplying hides what a copy would wait for. Not where
    rows are whole pages apart and the nearest cache has few ways: a tile would lose what it asked for, and read lines that it shares with the next twice.
    """
    in_pages = spec.b.row * LType(spec.b.kind).bytes % PAGE_BYTES == 0 and bytes_of_all(spec) >= _COPIED_BY_ROWS_FROM * target.l2_bytes
    if in_pages and has_few_ways(target):
        return False
    in_rows = plan.pack_b == "block" and spec.b.column == 1 and spec.n > 1
    return in_rows and not spec.paired and not plan.mirrored and plan.row_tiles > 1


def _blocks_together(plan: Schedule, size: int, target: ContractionTarget) -> int:
    """Blocks one below another that a thread carries out as one: B is packed once for them, and more of each row of a transposed A is read in
    turn. Short passes read and write the output again and again: a part of the L2 cache holds that of such blocks, but where A is copied, which
    takes longer.
    """
    if plan.passes == 1 or plan.mirrored:
        return 1
    if plan.depth >= _LONG_PASS or plan.pack_a == "columns":
        return plan.grid[1]
    output = plan.rows_per_block * plan.tile.rows * plan.columns_per_block * plan.tile.columns * size
    return max(1, min(plan.grid[1], target.l2_bytes // _PART_FOR_OUTPUT // output))


def _depth_of_pass(spec: MatmulSpec, tile: TileShape, split_depth: int, in_rows: bool, copies: bool, target: ContractionTarget) -> int:
    """Reduction steps of a pass over a block: A's tile stays in the L1 cache over it, at least 128 columns of B in half of the L2 cache."""
    size, lanes = LType(spec.kind).bytes, target.lanes(spec.kind)
    if in_rows:
        unit = most = _streamed_steps(spec, tile, target)
    else:
        most = min(int(0.75 * target.l1_bytes) // (tile.rows * size), target.l2_bytes // (2 * 128 * size))
        if copies:
            most = min(most, _COPIED_STEPS)
        elif spec.reads_lines_in_parts(tile, target):
            most = min(most, _line_steps(spec, target))
        elif _takes_part_of_lines(spec, tile):  # the copies of A share that cache with B
            most //= 2
        unit, most = lanes, max(4 * lanes, most // lanes * lanes)
    passes = max(1, ceil_div(split_depth, most))
    return split_depth if passes == 1 else round_up(ceil_div(split_depth, passes), unit)


def _streamed_steps(spec: MatmulSpec, tile: TileShape, target: ContractionTarget) -> int:
    """Rows of a B that is not packed which are read side by side: fewer where what a tile takes of them would fill all ways of some set of a nearest
    cache that has few, as where rows lie whole pages apart, or nearly so. Measured on Zen 3: a row by 768 x 2051 takes 0.62 of the time.
    """
    size, steps = LType(spec.b.kind).bytes, _STREAMED_STEPS[_bytes_of_b(spec) > target.l3_bytes]
    if has_few_ways(target):
        starts = (row * spec.b.row * size for row in range(steps))
        lines = Counter(line * LINE_BYTES % PAGE_BYTES for at in starts for line in range(at // LINE_BYTES, ceil_div(at + tile.columns * size, LINE_BYTES)))
        if max(lines.values()) * PAGE_BYTES >= target.l1_bytes:
            return min(steps, _STREAMED_ALIASES)
    return steps


def _tiles_of_block(
    spec: MatmulSpec, tile: TileShape, tiles: tuple[int, int], splits: int, depths: tuple[int, int], pack_b: str, copies: bool, target: ContractionTarget
) -> tuple[int, int]:
    """Row tiles and column tiles of a block, of so many in all: as many columns as the L2 cache has room for, and enough blocks for all threads.

    `depths` are those of a part of k and of a pass.
    """
    (row_tiles, column_tiles), (split_depth, depth) = tiles, depths
    panel = LType(spec.kind).bytes * tile.columns
    short_passes = not copies and spec.reads_lines_in_parts(tile, target) and _line_steps(spec, target) < _LINE_STEPS
    in_l2 = max(1, target.l2_bytes // _PART_FOR_B[spec.a_rows_alias and has_few_ways(target)] // (max(depth, 1) * panel))
    if short_passes:
        in_l2 = min(in_l2, max(1, MOST_KEPT_BYTES // (max(split_depth, 1) * panel)))
    per_column = min(column_tiles, in_l2) if pack_b != "no" else column_tiles
    per_column = ceil_div(column_tiles, ceil_div(column_tiles, per_column))
    per_row = row_tiles
    wanted = min(BLOCKS_WANTED // 2 if short_passes else BLOCKS_WANTED, spec.blocks_wanted)
    outer = math.prod(spec.batch) * splits
    in_groups = copies or _takes_part_of_lines(spec, tile)
    grid_columns = ceil_div(column_tiles, per_column)
    for_b = _ROWS_PER_BLOCK if outer * column_tiles > 1 else min(_ROWS_PER_BLOCK, max(_ROWS_OF_HALF, ceil_div(spec.m, 2)))
    least_rows = GROUPED_ROWS if in_groups else for_b if spec.k > _FEW_STEPS else _ROWS_FOR_A_STEP * spec.k
    least_tiles = ceil_div(least_rows, tile.rows) if pack_b == "block" else 1
    may_halve = pack_b == "block" and spec.k > _FEW_STEPS and spec.m >= 2 * _ROWS_OF_HALF and not (in_groups or short_passes)
    if may_halve and outer == 1 < wanted and _divides_rows(spec, tile, pack_b, target):
        per_row, wanted = ceil_div(row_tiles, 2), min(wanted, BLOCKS_WANTED // 2)  # each block packs what it reads of B
    elif outer * grid_columns < wanted:
        per_row = min(row_tiles, max(least_tiles, ceil_div(row_tiles, ceil_div(wanted, outer * grid_columns))))
    if per_row < row_tiles:  # a team had rather have all columns of some rows
        in_cache = spec.is_short_in_loop and bytes_of_all(spec) <= target.l2_bytes // 2
        wanted = 1 if in_cache else min(wanted, spec.blocks_by_flops)
    if outer * grid_columns == 1 and ceil_div(row_tiles, per_row) == 3:
        per_row = ceil_div(row_tiles, 2)  # two threads would wait for the third block
    wanted, least_columns = (min(wanted, _COPYING_BLOCKS), ceil_div(_COLUMNS_PER_COPY, tile.vectors)) if copies else (wanted, 1)
    if outer * grid_columns * ceil_div(row_tiles, per_row) < wanted:
        missing = ceil_div(wanted, outer * ceil_div(row_tiles, per_row))
        per_column = min(per_column, max(least_columns, column_tiles // missing))
    return per_row, per_column


def _divides_rows(spec: MatmulSpec, tile: TileShape, pack_b: str, target: ContractionTarget) -> bool:
    """Whether threads had better have some rows and all columns than the other way round. Steps before and behind are divided by rows as a rule: so a thread
    finds its rows of A where it wrote them, and leaves those of the output where they are read. In return it reads and packs all of B. Where two processors'
    caches have no room for these rows, they find them in neither.
    """
    if spec.m * (spec.k + spec.n) * LType(spec.kind).bytes >= _OWN_CACHES * target.l2_bytes:
        return False
    half = ceil_div(spec.n, 2 * tile.columns) * tile.columns
    packed = 1.0 if pack_b != "block" else _PACKED_UNEVENLY if half > _UNEVEN * spec.n else _PACKED
    return spec.m * (spec.k + spec.n) > packed * spec.n * spec.k


def is_mirrored(kind: str, m: int, k: int, has_epilogue: bool) -> bool:
    """Whether of the product of an m x k matrix with itself, transposed, half is computed and the other half copied, even if that costs it its epilogue."""
    return kind in ("float", "double") and m >= _MIRRORED_ROWS and k >= _MIRRORED_STEPS[has_epilogue]


def _copies_lines(spec: MatmulSpec, tile: TileShape, target: ContractionTarget) -> bool:
    """Whether a transposed A that could be read where it lies is copied, a group of rows for a pass: each element meets so many columns of B that it pays,
    and B's panels need not make room for A's lines. With 1024 columns 5 to 15 % faster on Emerald Rapids; not measured on AMD's
    processors, where reading in place has been as fast as copies or faster.
    """
    columns = _COLUMNS_TO_COPY_PAGES if spec.a.column * LType(spec.kind).bytes % PAGE_BYTES == 0 else _COLUMNS_TO_COPY
    rows = _ROWS_TO_COPY[target.vector_bytes < LINE_BYTES]
    wide = spec.n >= columns * target.lanes(spec.kind) and spec.m >= rows and spec.k >= _LEAST_COPIED_STEPS
    return wide and spec.reads_lines_in_parts(tile, target) and not is_amd(target.cpu)


def _line_steps(spec: MatmulSpec, target: ContractionTarget) -> int:
    """Reduction steps in which a transposed A is read before the tiles that follow read the rest of its cache lines."""
    on_a_page = max(1, PAGE_BYTES // max(1, spec.a.column * LType(spec.kind).bytes))
    return _LINE_STEPS if is_amd(target.cpu) else min(_LINE_STEPS, _LINE_PAGES * on_a_page)


def _split_k(spec: MatmulSpec, tiles: int, whole: int, in_rows: bool, target: ContractionTarget) -> tuple[int, int]:
    """Parts of k and their length: more than one part only if the output has few tiles and k is long, if B is to be read row by row, if each
    block of a long and narrow output would read the narrow operand from memory again, or if rows that threads have written, some each, are many.
    """
    outputs = math.prod(spec.batch) * tiles
    splits = min(BLOCKS_WANTED // max(outputs // 4, 1), spec.k // 1024)
    if in_rows:
        splits = min(BLOCKS_WANTED // math.prod(spec.batch), spec.k // _STREAMED_ROWS)
    elif _is_strip(spec, target):
        splits = max(splits, min(BLOCKS_WANTED // math.prod(spec.batch), spec.k // _STRIP_STEPS))
    elif _sums_many_rows(spec):
        splits = max(splits, 2)
    if splits < 2 or spec.share_b:
        return 1, spec.k
    depth = round_up(ceil_div(spec.k, splits), whole)
    return ceil_div(spec.k, depth), depth


def _is_strip(spec: MatmulSpec, target: ContractionTarget) -> bool:
    """Whether the output is a strip along rows of an operand that lies row by row and that the L2 cache does not hold."""
    wide = spec.m <= _STRIP_ROWS and spec.b.column == 1 and _STRIP_TIMES * spec.m <= spec.n <= _STRIP_LONGEST
    tall = spec.n <= _STRIP_COLUMNS and spec.a.row == 1 and _STRIP_TIMES * spec.n <= spec.m <= _STRIP_LONGEST
    return (wide or tall) and max(spec.m, spec.n) * spec.k * LType(spec.kind).bytes > _STRIP_FROM * target.l2_bytes


def _sums_many_rows(spec: MatmulSpec) -> bool:
    """Whether a product, the gradient of weights as a rule, is of many rows, much more to read than to write. As a rule each thread has written about half
    of them in order: with half of the sum it reads those, and need not fetch all others from the cache of its neighbour, which would have to take them back
    to write the next ones. Measured on Zen 4, two threads: a training step of a small recurrent net takes 0.92 of the time, of others 0.96 to 0.99, of a
    network with rows of 64 numbers 0.77; on one thread up to 1.01. Of large results, 1024x256, each would be 1.1 times as long.
    """
    outputs = spec.m * spec.n
    small = outputs * LType(spec.kind).bytes <= _MOST_HALVED_BYTES and spec.k * (spec.m + spec.n) >= _TIMES_READ * outputs
    return small and math.prod(spec.batch) == 1 and spec.a.row == 1 and spec.k >= _FEWEST_HALVED and not spec.mirrored


def _bytes_of_b(spec: MatmulSpec) -> int:
    """Of one of the matrices B, which a block reads again and again."""
    return spec.k * spec.n * LType(spec.b.kind).bytes


def _reads_b_by_rows(spec: MatmulSpec, target: ContractionTarget) -> bool:
    """Whether a B that few rows meet is large and lies row by row. It is read as it lies, a few whole rows at a time: column tiles would jump from page to
    page, which takes up to twice as long where neither caches nor the TLB know it, or where rows whole pages apart share a few sets of the caches.
    """
    large = min(_STREAMED_FROM * target.l2_bytes, _STREAMED_FROM_BYTES)
    if spec.m >= _IN_TILES[target.vector_bytes < LINE_BYTES] and spec.b_aliases:
        large = min(large, target.l2_bytes)
    fewest = _FEWEST_STREAMED if spec.m < _IN_TILES[0] else 2 * _STREAMED_ROWS
    return spec.b.column == 1 and spec.k >= fewest and _bytes_of_b(spec) > large


def _pack_b(spec: MatmulSpec, row_tiles: int, size: int, target: ContractionTarget) -> str:
    if spec.k == 0:
        return "no"
    if spec.share_b:
        return "shared"
    if spec.paired:
        return "block"
    if spec.b.column != 1 and spec.n > 1:
        return "block"
    if spec.b.kind != spec.kind:
        return "block" if row_tiles > 1 else "no"
    fits = spec.k * spec.b.row * size <= target.l1_bytes if spec.k > _FEW_STEPS else _bytes_of_b(spec) <= target.l2_bytes // 4
    return "block" if row_tiles > 3 and not fits else "no"


def _pack_a(spec: MatmulSpec, tile: TileShape, column_tiles: int, target: ContractionTarget) -> str:
    """A is read in place: a copy would wait for memory where the micro-kernel overlaps it with arithmetic. Copied are operands to be converted,
    and those of which small tiles take parts of cache lines.
    """
    if spec.paired:
        return "columns" if spec.a.pair else "no"
    if spec.reads_lines_in_parts(tile, target) or spec.k == 0 or 1 not in (spec.a.row, spec.a.column):
        return "no"
    if spec.a.kind == spec.kind and not (_takes_part_of_lines(spec, tile) and column_tiles >= _COLUMN_TILES_TO_COPY):
        return "no"
    return "columns" if spec.a.row == 1 and (spec.m > 1 or spec.a.column != 1) else "rows"


def _takes_part_of_lines(spec: MatmulSpec, tile: TileShape) -> bool:
    """Whether a tile takes but a part of the cache lines of a transposed A, of which the next one would not find the rest in the cache."""
    size = LType(spec.kind).bytes
    return spec.a.row == 1 and tile.rows * size <= LINE_BYTES // 2 < spec.m * size and spec.k >= _LONG_COLUMN
