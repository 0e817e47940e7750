"""Moving operands: typed loads and stores, runs that are copied or cleared, transposition in registers,
packed column panels.

Enters: pointers to storage of any float kind. Leaves: values, or memory, of the accumulation kind (`float` or
`double`). A packed panel holds for each reduction index the columns of one register tile, contiguous, the
lanes beyond the last column zero, so that the micro-kernel reads whole aligned vectors. Nothing is read
outside the given extents: tails are masked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphcell.codegen.llvm.contraction import Columns
from graphcell.codegen.llvm.text import I64, PTR, VOID, FunctionBuilder, LType, Module, Val, const, constant_mask, i64

_PACKED_AHEAD = 8  # rows of a matrix to be packed that are asked for ahead: the processor's own prefetching stops at the ends of pages
_SQUARES_AHEAD = 4  # the same where squares are transposed, which touch more rows in turn than the processor follows: packing takes a third less


def zeros(type: LType) -> Val:
    return Val("zeroinitializer", type)


def displaced(b: FunctionBuilder, pointer: Val, index: Val | int, element: LType) -> Val:
    """`pointer + index * sizeof(element)`, which may pass outside the buffer before a last offset leads back
    into it.
    """
    index = i64(index) if isinstance(index, int) else index
    return (
        pointer if index.text == "0" else b.raw(f"getelementptr {element}, ptr {pointer.text}, {index}", PTR)
    )


def opaque(b: FunctionBuilder, pointer: Val) -> Val:
    """The same pointer, of which LLVM no longer knows that it is the same.

    Loads that are cheap to repeat would else be kept in registers, which the accumulators need.
    """
    return b.raw(f'call ptr asm "", "=r,0"(ptr {pointer.text})', PTR)


def prefetch(b: FunctionBuilder, pointer: Val, nearness: int = 3) -> None:
    """Asks for the cache line at `pointer`, which may lie outside of the buffer: into the nearest cache (3) or the second (2)."""
    read, near, data = (Val(str(flag), LType("i32")) for flag in (0, nearness, 1))
    b.intrinsic("prefetch.p0", VOID, pointer, read, near, data)


def load_as(
    b: FunctionBuilder,
    pointer: Val,
    storage: str,
    kind: str,
    lanes: int,
    mask: Val | None = None,
) -> Val:
    """`lanes` consecutive elements (0: one scalar) of `storage` kind, converted to `kind`; lanes off in
    `mask` are zero.
    """
    source, to = LType(storage, lanes), LType(kind, lanes)
    return b.load_as(pointer, source, to) if mask is None else b.cast(b.masked_load(pointer, mask, source), to)


def load_strided(b: FunctionBuilder, pointer: Val, stride: int, storage: str, kind: str, lanes: int, mask: Val | None) -> Val:
    """`lanes` elements `stride` apart, converted to `kind`; those whose mask is off are not read."""
    if stride == 1:
        if storage == "i1":
            return b.load(pointer, LType("i1", lanes)) if mask is None else b.masked_load(pointer, mask, LType("i1", lanes))
        return load_as(b, pointer, storage, kind, lanes, mask)
    if stride == 0:
        one = b.load(pointer, LType("i1")) if storage == "i1" else load_as(b, pointer, storage, kind, 0)
        return b.splat(one, lanes)
    count = lanes if mask is None else mask.text.count("true")
    type = LType("i1", lanes) if storage == "i1" else LType(kind, lanes)
    value = const(0, type)
    for lane in range(count):
        at = b.gep(pointer, lane * stride, LType(storage))
        value = b.insert(value, b.load(at, LType("i1")) if storage == "i1" else load_as(b, at, storage, kind, 0), lane)
    return value


def load_pairs(b: FunctionBuilder, pointer: Val, distance: int, lanes: int, mask: Val | None = None) -> Val:
    """Words of two bfloats each: the elements at `pointer` and those `distance` elements further."""
    word, half = LType("i32", lanes), LType("i16", lanes)

    def half_of(at: Val) -> Val:
        return b.cast(b.load(at, half) if mask is None else b.masked_load(at, mask, half), word, signed=False)

    high = half_of(b.gep(pointer, distance, LType("bfloat")))
    return b.or_(half_of(pointer), b.shl(high, b.const(16, high)))


def store_as(b: FunctionBuilder, value: Val, pointer: Val, storage: str, mask: Val | None = None) -> None:
    """Stores a vector or scalar, rounded to `storage`; lanes off in `mask` are left alone."""
    value = b.cast(value, value.type.with_kind(storage))
    if mask is None:
        b.store(value, pointer)
    else:
        b.masked_store(value, pointer, mask)


def store_finished(b: FunctionBuilder, value: Val | None, pointer: Val, storage: str, mask: Val | None = None) -> None:
    """Stores what an epilogue returned; None if it stored its results itself."""
    if value is not None:
        store_as(b, value, pointer, storage, mask)


def transpose(b: FunctionBuilder, rows: Sequence[Val]) -> list[Val]:
    """Transposes a square of as many vectors as each has lanes: log2(lanes) rounds of two-source shuffles."""
    lanes, square = len(rows), list(rows)
    distance = 1
    while distance < lanes:
        low = [lane if not lane & distance else lane - distance + lanes for lane in range(lanes)]
        high = [lane + distance if not lane & distance else lane + lanes for lane in range(lanes)]
        for i in range(lanes):
            if i & distance:
                continue
            x, y = square[i], square[i + distance]
            square[i], square[i + distance] = b.shuffle(x, y, low), b.shuffle(x, y, high)
        distance *= 2
    return square


def sum_columns(b: FunctionBuilder, vectors: Sequence[Val]) -> Val:
    """One vector whose lane j is the sum over the lanes of `vectors[j]` (their number is a power of two, at
    most the lanes).
    """
    level = list(vectors)
    while len(level) > 1 or level[0].type.lanes > len(vectors):
        x, y = (level[0], level[0]) if len(level) == 1 else (level[0], level[1])
        lanes = x.type.lanes
        if len(level) == 1:
            even, odd = range(0, lanes, 2), range(1, lanes, 2)
            level = [b.add(b.shuffle(x, y, even), b.shuffle(x, y, odd))]
            continue
        even, odd = range(0, 2 * lanes, 2), range(1, 2 * lanes, 2)
        level = [
            b.add(b.shuffle(x, y, even), b.shuffle(x, y, odd))
            for x, y in zip(level[::2], level[1::2], strict=True)
        ]
    return level[0]


def copy_run(
    b: FunctionBuilder, source: Val, to: Val, count: int | Val, storage: str, kind: str, lanes: int, pair: int = 0
) -> None:
    """Copies `count` contiguous elements, converting `storage` to `kind` or joining each with the one `pair` elements further."""

    def piece(at: Val, lanes: int, mask: Val | None) -> None:
        pointer = b.gep(source, at, LType(storage))
        value = load_pairs(b, pointer, pair, lanes, mask) if pair else load_as(b, pointer, storage, kind, lanes, mask)
        store_as(b, value, b.gep(to, at, LType(kind)), kind, mask)

    _run(b, count, lanes, piece)


def clear_run(b: FunctionBuilder, to: Val, count: int | Val, kind: str, lanes: int) -> None:
    """Sets `count` contiguous elements to zero."""

    def piece(at: Val, lanes: int, mask: Val | None) -> None:
        store_as(b, zeros(LType(kind, lanes)), b.gep(to, at, LType(kind)), kind, mask)

    _run(b, count, lanes, piece)


def _run(b: FunctionBuilder, count: int | Val, lanes: int, piece: Callable[[Val, int, Val | None], None]) -> None:
    """`piece(at, lanes, mask)` for each vector of a run, the last one masked. Before AVX-512 masked stores take long: there, what a known count
    leaves over goes in vectors of a half, a quarter, ... of the lanes.
    """
    if isinstance(count, int):
        full = count // lanes * lanes
        if full == lanes:
            piece(i64(0), lanes, None)
        elif full:
            with b.loop(0, full, lanes, name="run", at_least_once=True) as loop:
                piece(loop.index, lanes, None)
        if full < count and b.module.avx512:
            piece(i64(full), lanes, constant_mask(count - full, lanes))
            return
        while full < count:
            part = 1 << ((count - full).bit_length() - 1)
            piece(i64(full), part, None)
            full += part
        return
    whole = b.and_(count, i64(-lanes))
    with b.loop(0, whole, lanes, name="run") as loop:
        piece(loop.index, lanes, None)
    rest = b.sub(count, whole)
    with b.if_then(b.icmp("sgt", rest, i64(0))):
        piece(whole, lanes, b.lane_mask(rest, lanes))


def emit_pack_panel(
    module: Module,
    name: str,
    columns: Columns,
    k_stride: int,
    column_stride: int,
    storage: str,
    kind: str,
    whole_chunks: bool,
    pair: int = 0,
) -> str:
    """Emits `void name(ptr source, ptr panel, i64 count)`: packs `count` reduction steps of one column tile.

    `source` is addressed by `k * k_stride + column * column_stride`. The panel has room for `count` rounded
    up to the lanes. `whole_chunks` promises that `count` is a multiple of the lanes. Returns the function's
    name.
    """
    b = FunctionBuilder(module, name, [("source", PTR), ("panel", PTR), ("count", LType("i64"))])
    if column_stride == 1 or columns.used == 1:
        _pack_rows(b, columns, k_stride, storage, kind, pair)
    elif k_stride == 1 and columns.used >= columns.lanes > 1:
        _pack_transposed(b, columns, column_stride, storage, kind, whole_chunks)
    else:
        _pack_scalars(b, columns, k_stride, column_stride, storage, kind)
    return b.finish()


def _pack_rows(b: FunctionBuilder, columns: Columns, k_stride: int, storage: str, kind: str, pair: int) -> None:
    source, panel = b.args["source"], b.args["panel"]
    with b.loop(0, b.args["count"], name="k") as loop:
        row = b.gep(source, b.mul(loop.index, i64(k_stride)), LType(storage))
        to = b.gep(panel, b.mul(loop.index, i64(columns.padded)), LType(kind))
        if k_stride >= 2 * columns.padded:
            for v in range(columns.vectors):
                prefetch(b, displaced(b, row, _PACKED_AHEAD * k_stride + v * columns.lanes, LType(storage)), 2)
        for v in range(columns.vectors):
            mask = constant_mask(columns.tail, columns.lanes) if _is_tail(columns, v) else None
            at = b.gep(row, v * columns.lanes, LType(storage))
            value = load_pairs(b, at, pair, columns.lanes, mask) if pair else load_as(b, at, storage, kind, columns.lanes, mask)
            b.store(value, b.gep(to, v * columns.lanes, LType(kind)))


def _is_tail(columns: Columns, vector: int) -> bool:
    return vector == columns.vectors - 1 and columns.tail < columns.lanes


def emit_transpose(module: Module, lanes: int, storage: str, kind: str) -> str:
    """The function `void transpose.*(ptr source, i64 stride, ptr to, i64 to_stride)` of a module, emitted
    once.

    Transposes a square of `lanes` rows of `lanes` elements, converting `storage` to `kind`; strides are in
    elements.
    """
    name = f"transpose.{lanes}.{storage}.{kind}"
    if module.has_function(name):
        return name
    b = FunctionBuilder(
        module,
        name,
        [("source", PTR), ("stride", I64), ("to", PTR), ("to_stride", I64)],
        attributes="nounwind noinline",
    )
    source, to, rows = b.args["source"], b.args["to"], []
    for _ in range(lanes):
        rows.append(load_as(b, source, storage, kind, lanes))
        prefetch(b, displaced(b, source, _SQUARES_AHEAD * lanes, LType(storage)), 2)
        source = displaced(b, source, b.args["stride"], LType(storage))
    for value in transpose(b, rows):
        b.store(value, to)
        to = displaced(b, to, b.args["to_stride"], LType(kind))
    return b.finish()


def _pack_transposed(
    b: FunctionBuilder, columns: Columns, column_stride: int, storage: str, kind: str, whole_chunks: bool
) -> None:
    """Squares of lanes x lanes are transposed in registers, the last ones overlapping those before where columns or
    reduction steps are left over; fewer steps than lanes go one by one.
    """
    lanes, used, count = columns.lanes, columns.used, b.args["count"]
    square = emit_transpose(b.module, lanes, storage, kind)

    def columns_at(k: Val, column: Val) -> None:
        source = b.gep(
            b.gep(b.args["source"], k, LType(storage)), b.mul(column, i64(column_stride)), LType(storage)
        )
        to = b.gep(b.gep(b.args["panel"], b.mul(k, i64(columns.padded)), LType(kind)), column, LType(kind))
        b.call(square, VOID, source, i64(column_stride), to, i64(columns.padded))

    def steps_at(k: Val) -> None:
        with b.loop(0, used // lanes * lanes, lanes, name="columns", at_least_once=True) as column:
            columns_at(k, column.index)
        if used % lanes:
            columns_at(k, i64(used - lanes))

    def squares() -> None:
        with b.loop(0, count, lanes, name="k") as loop:
            steps_at(loop.index if whole_chunks else b.binary("smin", loop.index, b.sub(count, i64(lanes))))
        if used % lanes:
            with b.loop(0, count, name="k") as loop:
                to = b.gep(b.args["panel"], b.add(b.mul(loop.index, i64(columns.padded)), i64(used)), LType(kind))
                clear_run(b, to, columns.padded - used, kind, lanes)

    if whole_chunks:
        squares()
    else:
        b.if_else(b.icmp("sge", count, i64(lanes)), squares, lambda: _pack_scalars(b, columns, 1, column_stride, storage, kind))


def _pack_scalars(
    b: FunctionBuilder,
    columns: Columns,
    k_stride: int,
    column_stride: int,
    storage: str,
    kind: str,
) -> None:
    with b.loop(0, b.args["count"], name="k") as k:
        row = b.gep(b.args["source"], b.mul(k.index, i64(k_stride)), LType(storage))
        to = b.gep(b.args["panel"], b.mul(k.index, i64(columns.padded)), LType(kind))
        with b.loop(0, columns.used, name="column", at_least_once=True) as column:
            value = load_as(
                b, b.gep(row, b.mul(column.index, i64(column_stride)), LType(storage)), storage, kind, 0
            )
            b.store(value, b.gep(to, column.index, LType(kind)))
        if columns.padded > columns.used:
            clear_run(
                b, b.gep(to, columns.used, LType(kind)), columns.padded - columns.used, kind, columns.lanes
            )
