"""Products of few rows: the register tile, and whether B is packed, by what it takes to read B.

Each row tile reads all of B, the first of them from where B lies, those that follow from the L2 cache. Beside hundreds of rows that is little, and what
the multiply-adds take decides; beside tens of them it is most. So tiles are tall, and B is packed only where that is less than to read it as it lies: by
the first row tile, which reads a B that lies row by row in any case, or in a copy of one that does not. A large one that lies row by row is read so by up
to 15 rows, by up to 24 if its rows lie whole pages apart, and a very large one by up to 48; by up to 12 where its rows share a few sets of a cache with few
ways (Zen 3).

Enters: a spec. Leaves: a tile and a way to read B, or None where B is small or rows are many, for one row of a B that is not prepared, an A whose steps are
far apart, and pairs of bfloats. Times are relative, in multiply-adds of a vector, for vectors of a cache line; they were measured on Emerald Rapids with 2 to
96 rows, B of 0.25 to 64 MB, whole pages apart and not; for shorter vectors there with B of 1 to 4 MB.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from graphcell.codegen.llvm.contraction import (
    LINE_BYTES,
    PAGE_BYTES,
    ContractionTarget,
    TileShape,
    ceil_div,
    column_counts,
    has_few_ways,
    lanes_for,
    split_evenly,
    tile_cost,
    vector_registers,
)
from graphcell.codegen.llvm.text import LType

if TYPE_CHECKING:
    from graphcell.codegen.llvm.matmul_spec import MatmulSpec

HALVES = "halves"
HARDLY_LONGER = 1.1  # times the time of the best tile, by estimate
FEW_ROWS = 96
_FEWEST_UNEVEN = 3  # rows of a tile beside which one of a row less is nearly as much
_IN_ROWS = 24, 48  # rows for which a large B is read row by row, and a very large one, at most: more of them pay for packing
_IN_ROWS_FEW_WAYS = 12  # the same where the nearest cache has few ways for rows that share its sets
_IN_ROWS_ASKED = 15  # the same for a large one whose columns can be asked for while the ones before are multiplied (`Schedule.fetches`)
_VERY_LARGE = 8  # times the L2 cache, at least
_FAR = 12.5  # to have a cache line of B from beyond the L2 cache
_NEAR = 0.7  # from the L2 cache
_SPLIT = 3.0  # to have one more of them, where they and the columns of a tile do not begin together
_COPIED = 12.0, 21.0  # to copy one that is in the L2 cache, and one that is not
_STORED = 4.0  # to store a vector in a panel, of what a tile reads as it lies
_WIDENED = 2.0  # to convert a vector of half precision
_OVERLAPPED = 0.75  # of the shorter of multiplying and reading
_LEAST_WIDE = 3  # vectors of a tile that reads B as it lies: each row is on another page
_KERNELS = 0.01  # of all, not to have tiles of two heights, which need kernels of their own
_LONG_STEP = 1024  # bytes from one reduction step of A to the next, at most
_NARROW_ROWS = 28  # that find the columns of a narrow tile in the L2 cache, at most
_FORESEEN = 1536  # bytes that the processor fetches beyond what is read of a row


@functools.lru_cache(maxsize=1024)
def tile_for_few_rows(spec: MatmulSpec, in_rows: bool, most_rows: int, target: ContractionTarget) -> tuple[TileShape, str] | None:
    """The tile of at most `most_rows` rows and the way to read B: "no" as it lies, "block" or "shared" packed, HALVES packed ahead in half precision;
    None where this does not matter (see above).

    `in_rows`: if B is not packed, it is read a few whole rows at a time.
    """
    size = LType(spec.kind).bytes
    is_simple = (spec.a.column == 1 or (spec.a.row == 1 and spec.a.column * size <= _LONG_STEP)) and not spec.paired
    if not (is_simple and (spec.share_b or spec.m > 1) and spec.m <= FEW_ROWS) or bytes_of_all(spec) <= target.l1_bytes:
        return None
    found = [
        (_time(spec, tile, way, in_rows, target), tile, way)
        for tile in _tiles(spec, most_rows, target)
        for way in _ways(spec, in_rows, target)
        if spec.share_b or spec.b.column != 1 or tile.columns >= min(_LEAST_WIDE * tile.lanes, spec.n)
    ]
    least, tile, way = min(found, key=lambda choice: choice[0])
    if spec.is_short_in_loop:  # threads of a team have equally many rows, or nearly so
        heights = heights_for_team(spec.m, most_rows)
        even = [choice for choice in found if choice[1].rows in heights and choice[0] <= HARDLY_LONGER * least]
        _, tile, way = min(even, key=lambda choice: (spec.m % choice[1].rows > 0, choice[0]), default=(least, tile, way))
    return tile, way


def heights_for_team(m: int, most_rows: int) -> frozenset[int]:
    """Rows of a tile with which an even number of them are all `m` rows; some have one row less, if they have a few."""
    heights = ((count, ceil_div(m, count)) for count in range(2, m + 1, 2))
    return frozenset(
        rows for count, rows in heights
        if rows <= most_rows and (m % count == 0 or rows >= _FEWEST_UNEVEN) and sum(part.tiles for part in split_evenly(m, rows)) == count
    )  # fmt: skip


def bytes_of_all(spec: MatmulSpec) -> int:
    """Of all matrices B."""
    copies = math.prod(extent for extent, stride in zip(spec.batch, spec.b.batch, strict=True) if stride)
    return copies * spec.k * spec.n * LType(spec.b.kind).bytes


def _ways(spec: MatmulSpec, in_rows: bool, target: ContractionTarget) -> tuple[str, ...]:
    if spec.share_b:
        return ("shared", HALVES) if LType(spec.b.kind).bytes < LType(spec.kind).bytes == 4 else ("shared",)
    if spec.b.column != 1:
        return ("block",)
    if not in_rows:
        return "no", "block"
    is_very_large = bytes_of_all(spec) >= _VERY_LARGE * target.l2_bytes
    if spec.b_aliases and has_few_ways(target):
        rows = _IN_ROWS_FEW_WAYS
    else:
        rows = _IN_ROWS[is_very_large] if is_very_large or spec.b_aliases else _IN_ROWS_ASKED
    return ("no",) if spec.m <= rows else ("block",)


def _tiles(spec: MatmulSpec, most_rows: int, target: ContractionTarget) -> Iterator[TileShape]:
    """The tiles that registers have room for, of as many rows as an even division has."""
    lanes, registers = lanes_for(spec.n, spec.kind, target), vector_registers(target)
    for vectors in range(1, min(-(-spec.n // lanes), 8) + 1):
        limit = min(most_rows, spec.m, (registers - 1 - vectors) // vectors)
        for rows in range(1, limit + 1):
            if split_evenly(spec.m, rows)[0].size == rows:
                yield TileShape(rows, vectors, lanes)


def _time(spec: MatmulSpec, tile: TileShape, way: str, in_rows: bool, target: ContractionTarget) -> float:
    """Of one reduction step of all tiles."""
    size, stored = LType(spec.kind).bytes, LType(spec.b.kind).bytes
    read = size if way == "shared" else stored
    is_near = bytes_of_all(spec) // stored * read <= target.l2_bytes // 2
    first, later = _NEAR if is_near else _FAR * tile.lanes * read / LINE_BYTES, _NEAR
    copied = 0.0  # what follows has two values: of the first row tile, and of those after it
    splits = [_SPLIT if way != "shared" and way != HALVES and spec.b.row * stored % LINE_BYTES else 0.0] * 2
    widened = [way != "shared" and stored < size] * 2
    if way == "block":
        splits[1], widened[1] = 0.0, False
        if spec.b.column == 1:
            first += _STORED
        else:
            copied, first, splits, widened = _COPIED[not is_near], _NEAR, [0.0] * 2, [False] * 2
    elif way == "no" and not in_rows and not is_near and not _stays(spec, tile, target):
        later = first

    def of_tile(rows: int, vectors: float, is_later: bool) -> float:
        work = (1.0 + widened[is_later] * _WIDENED / tile.rows) * tile_cost(rows, vectors)
        reading = (later if is_later else first) * vectors + splits[is_later]
        return max(work, reading) + (1.0 - _OVERLAPPED) * min(work, reading)

    total, parts = 0.0, split_evenly(spec.m, tile.rows)
    for vectors, count in column_counts(spec.n, tile, spec.kind):
        waits = of_tile(tile.rows, vectors, False) - of_tile(tile.rows, vectors, True)
        total += count * (copied * vectors + waits + sum(part.tiles * of_tile(part.size, vectors, True) for part in parts))
    return total * (1.0 + _KERNELS * (len(parts) - 1))


def _stays(spec: MatmulSpec, tile: TileShape, target: ContractionTarget) -> bool:
    """Whether the columns of B that a tile reads as they lie are in the L2 cache when the next row tile reads them, with what the processor fetches
    beside them. Rows whole pages apart share a few of its sets. Tiles of short vectors are few columns, which a few row tiles find there in any case."""
    stored = LType(spec.b.kind).bytes
    pitch = spec.b.row * stored
    if spec.k * pitch <= target.l2_bytes:
        return True
    is_narrow = target.vector_bytes < LINE_BYTES and spec.m <= _NARROW_ROWS
    return pitch % PAGE_BYTES != 0 and (is_narrow or spec.k * (tile.columns * stored + _FORESEEN) <= target.l2_bytes // 4)
