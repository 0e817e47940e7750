"""Vectors of elements that do not lie side by side in memory, without gathers: squares transposed in registers, small strides.

Enters: pointers to first elements, strides, how many lanes count. Leaves: vectors in the type of computation, or stores. Nothing outside
of the elements between the first and the last one is read or written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphcell.codegen.llvm.body import BodyBuilder, storage_type
from graphcell.codegen.llvm.packing import transpose
from graphcell.codegen.llvm.text import Val, constant_mask, mask_of
from graphcell.dtype import DType

_BLOCK = 4


def first_lanes(count: int, lanes: int) -> Val | None:
    """The mask of the first `count` lanes; None for all."""
    return None if count == lanes else constant_mask(count, lanes)


def transpose_square(b: BodyBuilder, rows: Sequence[Val]) -> list[Val]:
    """Transposes as many vectors as each has lanes (4, 8 or 16 and some multiples: any power of two from 2 on).

    Within blocks of four lanes first, then the blocks: each step is one instruction without a table of lanes on x86.
    """
    if rows[0].type.kind == "i1":
        wide = [b.cast(r, r.type.with_kind("i8")) for r in rows]
        return [b.cast(r, r.type.with_kind("i1")) for r in transpose_square(b, wide)]
    lanes = len(rows)
    if lanes not in (_BLOCK, 2 * _BLOCK, 4 * _BLOCK):
        return transpose(b, rows)
    columns: list[list[Val]] = [[] for _ in range(_BLOCK)]
    for k in range(0, lanes, _BLOCK):
        for c, v in enumerate(_transpose_blocks(b, rows[k : k + _BLOCK])):
            columns[c].append(v)
    square: list[Val | None] = [None] * lanes
    for c, parts in enumerate(columns):
        for k, v in enumerate(_transpose_parts(b, parts)):
            square[_BLOCK * k + c] = v
    return [v for v in square if v is not None]


def _transpose_blocks(b: BodyBuilder, rows: Sequence[Val]) -> list[Val]:
    """Four rows; lane j of block k of result c is lane c of block k of row j."""
    lanes = rows[0].type.lanes
    starts = range(0, lanes, _BLOCK)
    low = [x for s in starts for x in (s, lanes + s, s + 1, lanes + s + 1)]
    pairs = [x for s in starts for x in (s, s + 1, lanes + s, lanes + s + 1)]
    high = [x + 2 for x in low]
    ends = [x + 2 for x in pairs]
    p, q, r, s = (b.shuffle(rows[i], rows[i + 1], order) for i in (0, 2) for order in (low, high))
    return [b.shuffle(p, r, pairs), b.shuffle(p, r, ends), b.shuffle(q, s, pairs), b.shuffle(q, s, ends)]


def _transpose_parts(b: BodyBuilder, parts: Sequence[Val]) -> list[Val]:
    """As many vectors as blocks; block j of result k is block k of vector j."""
    if len(parts) == 1:
        return list(parts)
    lanes = parts[0].type.lanes

    def blocks(x: Val, y: Val, *chosen: int) -> Val:
        return b.shuffle(x, y, [_BLOCK * block + lane for block in chosen for lane in range(_BLOCK)])

    if len(parts) == 2:
        return [blocks(parts[0], parts[1], 0, 2), blocks(parts[0], parts[1], 1, 3)]
    assert lanes == 4 * _BLOCK
    w, x, y, z = parts
    halves = [(blocks(w, x, 0, 1, 4, 5), blocks(y, z, 0, 1, 4, 5)), (blocks(w, x, 2, 3, 6, 7), blocks(y, z, 2, 3, 6, 7))]
    return [blocks(left, right, *chosen) for left, right in halves for chosen in ((0, 2, 4, 6), (1, 3, 5, 7))]


# -- small strides ---------------------------------------------------------------------------------------------------------
def _windows(span: int, lanes: int) -> list[int]:
    """Where vectors of `lanes` elements begin that cover `span` elements and nothing else; one masked vector if they are fewer."""
    if span <= lanes:
        return [0]
    return [*range(0, span - lanes, lanes), span - lanes]


def load_strided(
    b: BodyBuilder, pointer: Val, stride: int, dtype: DType, count: int, lanes: int, held: Callable[[Sequence[int]], Val] | None = None
) -> Val:
    """Lane k < count is the element `k * stride` from `pointer`; the other lanes hold any element that is read anyway.

    Args:
        held: gives of some of the lanes below `count`, in this order, whether they are read; the others are zero. Then nothing that lies between is read.
    """
    span, backwards = (count - 1) * abs(stride) + 1, stride < 0
    if backwards:
        pointer = b.gep(pointer, 1 - span, storage_type(dtype))
    starts = _windows(span, lanes)
    parts = []
    for start in starts:
        mask = first_lanes(min(span, lanes), lanes)
        if held is not None:
            lanes_of = [_lane_at(span - 1 - at if backwards else at, span, abs(stride)) for at in range(start, start + lanes)]
            mask = b.and_(mask_of([lane is not None for lane in lanes_of]), held([lane or 0 for lane in lanes_of]))
        parts.append(b.load_value(b.gep(pointer, start, storage_type(dtype)), dtype, lanes, mask))
    bits = parts[0].type.kind == "i1"
    if bits:
        parts = [b.cast(p, p.type.with_kind("i8")) for p in parts]
    places = []
    for k in range(lanes):
        element = min(k, count - 1) * abs(stride)
        element = span - 1 - element if backwards else element
        part = max(j for j, start in enumerate(starts) if start <= element)
        places.append((part, element - starts[part]))
    result = _pick(b, parts, places)
    return b.cast(result, result.type.with_kind("i1")) if bits else result


def _lane_at(distance: int, span: int, step: int) -> int | None:
    """The lane of an element so far from that of lane 0; None if it is between lanes, or beyond them."""
    return distance // step if distance in range(0, span, step) else None


def load_interleaved(b: BodyBuilder, pointer: Val, turn: int, turns: int, dtype: DType, count: int, lanes: int) -> Val:
    """Lane k < count is the element `k * turns + turn` from `pointer`, where `turns * count` elements may be read. LLVM reads them once for all turns."""
    parts = []
    for start in range(0, turns * count, lanes):
        mask = first_lanes(min(turns * count - start, lanes), lanes)
        parts.append(b.load_value(b.gep(pointer, start, storage_type(dtype)), dtype, lanes, mask))
    bits = parts[0].type.kind == "i1"
    if bits:
        parts = [b.cast(p, p.type.with_kind("i8")) for p in parts]
    places = [divmod(min(k, count - 1) * turns + turn, lanes) for k in range(lanes)]
    result = _pick(b, parts, places)
    return b.cast(result, result.type.with_kind("i1")) if bits else result


def store_strided(b: BodyBuilder, pointer: Val, stride: int, value: Val, count: int) -> None:
    """Lane k < count of `value`, which has the type of memory, goes to the element `k * stride` from `pointer`; nothing between is written."""
    lanes, span = value.type.lanes, (count - 1) * stride + 1
    for start in range(0, span, lanes):
        chosen = {at - start: at // stride for at in range(start, min(start + lanes, span)) if at % stride == 0}
        first = b.gep(pointer, start, value.type.with_lanes(0))
        if len(chosen) == 1:  # no masked store, see `masked_store`
            ((at, lane),) = chosen.items()
            b.store(b.extract(value, lane), b.gep(first, at, value.type.with_lanes(0)))
        elif chosen:
            order = [chosen.get(k, 0) for k in range(lanes)]
            b.masked_store(b.shuffle(value, value, order), first, mask_of([k in chosen for k in range(lanes)]))


def store_interleaved(b: BodyBuilder, pointer: Val, values: Sequence[Val], count: int) -> None:
    """Lane k < count of `values[j]`, which have the type of memory, goes to the element `k * len(values) + j` from `pointer`."""
    turns, lanes = len(values), values[0].type.lanes
    for start in range(0, turns * count, lanes):
        places = [(at % turns, at // turns) for at in range(start, start + lanes)]
        part, first = _pick(b, values, places), b.gep(pointer, start, values[0].type.with_lanes(0))
        mask = first_lanes(min(turns * count - start, lanes), lanes)
        if mask is None:
            b.store(part, first)
        else:
            b.masked_store(part, first, mask)


def _pick(b: BodyBuilder, parts: Sequence[Val], places: Sequence[tuple[int, int]]) -> Val:
    """Lane k is lane `places[k][1]` of `parts[places[k][0]]`."""
    lanes = parts[0].type.lanes
    if len(parts) <= 2:
        return b.shuffle(parts[0], parts[-1], [lane + lanes * part for part, lane in places])
    low = _pick(b, parts[:2], [(part, lane) if part < 2 else (0, 0) for part, lane in places])
    high = _pick(b, parts[2:], [(part - 2, lane) if part >= 2 else (0, 0) for part, lane in places])
    return b.shuffle(low, high, [k if part < 2 else lanes + k for k, (part, _) in enumerate(places)])


__all__ = ["first_lanes", "load_interleaved", "load_strided", "store_interleaved", "store_strided", "transpose_square"]
