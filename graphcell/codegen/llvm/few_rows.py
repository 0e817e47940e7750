"""Products of few rows: the register tile, and whether B is packed, by what it takes to read B.

Each row tile reads all of B, the first of them from where B lies, those that follow from the L2 cache. Beside hundreds of rows that is little, and what
the multiply-adds take decides; beside tens of them it is most. So tiles are tall, and B is copied only where that is less than to read it as it lies;
a large one that lies row by row is read so by up to `IN_ROWS` rows, and copied for more.

Enters: a spec. Leaves: a tile and a way to read B, or None where B is small or rows are many, for one row of a B that is not prepared, a transposed A, and
pairs of bfloats. Times are relative, in multiply-adds of a vector, for vectors of a cache line; they were measured on Emerald Rapids with 2 to 96 rows, B of
0.25 to 64 MB, whole pages apart and not. For shorter vectors they are an extrapolation.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from graphcell.codegen.llvm.contraction import (
    LINE_BYTES,
    ContractionTarget,
    TileShape,
    column_counts,
    lanes_for,
    split_evenly,
    tile_cost,
    vector_registers,
)
from graphcell.codegen.llvm.text import LType

if TYPE_CHECKING:
    from graphcell.codegen.llvm.matmul_schedule import MatmulSpec

HALVES = "halves"
FEW_ROWS = 96
IN_ROWS = 48  # rows for which a large B is read row by row, at most: more of them pay for copies
_FAR = 14.0  # to have a cache line of B from beyond the L2 cache
_NEAR = 0.7  # from the L2 cache
_SPLIT = 3.0  # to have one more of them, where they and the columns of a tile do not begin together
_COPIED = 12.0, 21.0  # to copy one that is in the L2 cache, and one that is not
_WIDENED = 2.0  # to convert a vector of half precision
_OVERLAPPED = 0.75  # of the shorter of multiplying and reading
_LEAST_WIDE = 3  # vectors of a tile that reads B as it lies: each row is on another page
_KERNELS = 0.01  # of all, not to have tiles of two heights, which need kernels of their own
_PAGE = 4096
_FORESEEN = 1536  # bytes that the processor fetches beyond what is read of a row


@functools.lru_cache(maxsize=1024)
def tile_for_few_rows(spec: MatmulSpec, in_rows: bool, most_rows: int, target: ContractionTarget) -> tuple[TileShape, str] | None:
    """The tile of at most `most_rows` rows and the way to read B: "no" as it lies, "block" or "shared" packed, HALVES packed ahead in half precision;
    None where this does not matter (see above).

    `in_rows`: if B is not packed, it is read a few whole rows at a time.
    """
    is_simple = spec.a.column == 1 and not spec.paired
    if not (is_simple and (spec.share_b or spec.m > 1) and spec.m <= FEW_ROWS) or _bytes_of_b(spec) <= target.l1_bytes:
        return None
    found = [
        (_time(spec, tile, way, in_rows, target), tile, way)
        for tile in _tiles(spec, most_rows, target)
        for way in _ways(spec, in_rows)
        if way != "no" or tile.columns >= min(_LEAST_WIDE * tile.lanes, spec.n)
    ]
    _, tile, way = min(found, key=lambda choice: choice[0])
    return tile, way


def _bytes_of_b(spec: MatmulSpec) -> int:
    copies = math.prod(extent for extent, stride in zip(spec.batch, spec.b.batch, strict=True) if stride)
    return copies * spec.k * spec.n * LType(spec.b.kind).bytes


def _ways(spec: MatmulSpec, in_rows: bool) -> tuple[str, ...]:
    if spec.share_b:
        return ("shared", HALVES) if LType(spec.b.kind).bytes < LType(spec.kind).bytes == 4 else ("shared",)
    if spec.b.column != 1:
        return ("block",)
    return ("no",) if in_rows and spec.m <= IN_ROWS else ("block",) if in_rows else ("no", "block")


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
    is_near = _bytes_of_b(spec) // stored * read <= target.l2_bytes // 2
    first, later = _NEAR if is_near else _FAR * tile.lanes * read / LINE_BYTES, _NEAR
    copied, more = 0.0, 1.0
    if way == "block":
        copied, first = _COPIED[not is_near], _NEAR
    elif way == "no" and not in_rows and not is_near and not _stays(spec, tile, target):
        later = first
    split = _SPLIT if way == "no" and spec.b.row * stored % LINE_BYTES else 0.0
    if way in ("no", HALVES) and stored < size:
        more += _WIDENED / tile.rows

    def of_tile(rows: int, vectors: float, line: float) -> float:
        work, reading = more * tile_cost(rows, vectors), line * vectors + split
        return max(work, reading) + (1.0 - _OVERLAPPED) * min(work, reading)

    total, parts = 0.0, split_evenly(spec.m, tile.rows)
    for vectors, count in column_counts(spec.n, tile, spec.kind):
        waits = of_tile(tile.rows, vectors, first) - of_tile(tile.rows, vectors, later)
        total += count * (copied * vectors + waits + sum(part.tiles * of_tile(part.size, vectors, later) for part in parts))
    return total * (1.0 + _KERNELS * (len(parts) - 1))


def _stays(spec: MatmulSpec, tile: TileShape, target: ContractionTarget) -> bool:
    """Whether the columns of B that a tile reads as they lie are in the L2 cache when the next row tile reads them, with what the processor fetches
    beside them. Rows whole pages apart share a few of its sets."""
    stored = LType(spec.b.kind).bytes
    return spec.b.row * stored % _PAGE != 0 and spec.k * (tile.columns * stored + _FORESEEN) <= target.l2_bytes // 4
