"""How many keys queries must look at: a mask hides the last ones of many, as that of a causal model does for half of all scores.

Leaves a score out only if that changes no number: its exponential is 0 beside the largest score of its row, and all that this zero would be
multiplied with is finite (0 times infinity is NaN). A mask that replaces scores says what they are; of one that is added to them, which is minus
infinity or a large negative number, the norms of queries and keys say how large they can be. Data decide, so any mask will do.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from graphcell.codegen.llvm.attention_products import INFINITY, AttentionSpec, Parts, Row, Seen, at_column, at_row, largest, largest_lane, over_row
from graphcell.codegen.llvm.contraction import Segment, split_evenly, tile_loop
from graphcell.codegen.llvm.matmul_spec import Operand
from graphcell.codegen.llvm.packing import load_as, load_strided, zeros
from graphcell.codegen.llvm.text import I64, PTR, FunctionBuilder, LType, Val, const, i64
from graphcell.records import dataclass

_PART = 32  # queries that look at as many keys as one of them must
_NOTHING_BELOW = {"float": -110.0, "double": -760.0}
"""Exponentials of numbers below this are 0."""
_FEW_KEYS = 128  # of a chunk that meets fewer queries than that: it is looked at or not
_ROUNDING = 1.001  # by which a norm may be larger than it was computed
_SMALLEST = {"float": 2.0**-126, "double": 2.0**-1022}  # squares below this may have become 0
_ROUNDED_SUM = {"float": 2.0**-21, "double": 2.0**-50}  # by how much of a mask's number sums with it may be off


@dataclass(frozen=True, slots=True)
class Factor:
    """Rows of a matrix that give the scores, or are multiplied with the exponentials (`weighted`): those of the queries, or of the keys."""

    name: str
    operand: Operand
    columns: int
    of_keys: bool = False
    weighted: bool = True


def may_hide(spec: AttentionSpec, lanes: int, *operands: Operand) -> bool:
    """Whether a mask with a number for each score may hide some of many keys, and what must be looked at lies row by row, so that looking is quick."""
    if spec.mask is None or any(x.column != 1 for x in (spec.mask, *operands)):
        return False
    return spec.n >= (2 * _FEW_KEYS if meets_few(spec) else 3 * _unit(lanes))


def meets_few(spec: AttentionSpec) -> bool:
    """Whether queries are so few that to find bounds of their scores would take as long as the scores."""
    return spec.m < _PART


def keys_of_chunk(spec: AttentionSpec, keys: int, limits: bool) -> int:
    """How many keys a chunk is to have, instead of `keys`."""
    return _FEW_KEYS if limits and meets_few(spec) else keys


def replaces_scores(spec: AttentionSpec) -> bool:
    """Whether the mask says which scores are replaced; else it is added to them."""
    return spec.mask is not None and spec.mask.kind == "i1"


def split_queries(spec: AttentionSpec, rows: int) -> tuple[Segment, ...]:
    """The parts of a block of queries that look at as many keys each."""
    return split_evenly(rows, _PART if spec.mask is not None and spec.mask.row else rows)


def describe(queries: tuple[Segment, ...]) -> str:
    """For plans."""
    return f"as many keys as the mask leaves to {' or '.join(str(s.size) for s in queries)} of them"


def first_keys(keys: int, lanes: int) -> tuple[Seen, Seen]:
    """The keys that are looked at, as columns of a product and as its depth."""
    return Seen("columns"), Seen("depth", _unit(lanes) if keys % _unit(lanes) == 0 else 1)


def _unit(lanes: int) -> int:
    """What counts of keys are rounded up to: two vectors."""
    return 2 * lanes


def count_tiles(segments: tuple[Segment, ...]) -> int:
    return sum(s.tiles for s in segments)


def each_part(b: FunctionBuilder, queries: tuple[Segment, ...], rows: int, keys: int, counts: Val, total: Val, part: Callable[[int, Val, Val], object]) -> None:
    """Emits `part(its queries, the first of them, its keys)` for the tiles of `queries`, of whose keys `emit_seen` found `counts` with this `total`: for all
    `rows` as one if they look at all keys and the tiles are of one size."""

    def some() -> None:
        for segment in queries:
            with tile_loop(b, segment, i64(0), i64(segment.first + segment.tiles), "part") as (tile, first):
                part(segment.size, first, b.load(b.gep(counts, tile, I64), I64))

    if count_tiles(queries) == 1 or len(queries) > 1:  # not yet another size to compile
        some()
    else:
        b.if_else(b.icmp("eq", total, i64(count_tiles(queries) * keys)), lambda: part(rows, i64(0), i64(keys)), some)


def most_seen(b: FunctionBuilder, counts: Val, queries: tuple[Segment, ...]) -> Val:
    """The largest number that `emit_seen` found."""
    return functools.reduce(lambda x, y: b.binary("smax", x, y), [b.load(b.gep(counts, tile, I64), I64) for tile in range(count_tiles(queries))])


def emit_seen(
    parts: Parts, spec: AttentionSpec, queries: tuple[Segment, ...], keys: int, factors: tuple[Factor, ...], sums: tuple[str, ...] = (),
    products: tuple[tuple[str, str], ...] = (), peaks: bool = True,
) -> str:  # fmt: skip
    """`i64 f(ptr mask[, ptr peak], ptr sum..., ptr factor..., ptr seen)`: the first how many of `keys` keys each tile of `queries` must look at.

    These numbers go to `seen`, their sum is returned; each is a multiple of two vectors, or all keys. `peak` has a score of each row that
    is not above its largest one; without `peaks` none is known. `sums` are numbers of each row that exponentials are multiplied with; `products`
    names pairs of factors whose rows are multiplied with each other. The factors q and k are among them.

    What is looked at first is cheap and mostly enough: the last keys of the mask, then all of it, then the norms of what it hides.
    """
    name, new = parts.fresh(("seen", queries, keys), "seen")
    if not new:
        return name
    by_row = (*(("peak",) if peaks else ()), *sums)
    b = FunctionBuilder(parts.module, name, [(n, PTR) for n in ("mask", *by_row, *(x.name for x in factors), "seen")], I64, attributes="nounwind noinline")
    row = Row(keys, parts.target.lanes(spec.kind))
    places = [b.gep(b.args["seen"], tile, I64) for tile in range(count_tiles(queries))]
    whole = _nothing_hidden(b, spec, queries, row)
    with b.if_then(whole):
        for place in places:
            b.store(i64(keys), place)
    b.return_if(whole, i64(len(places) * keys))

    def square(x: Factor, first: Val, rows: Val | int) -> Val:
        source = at_row(b, b.args[x.name], first, x.operand)
        return _largest_square(b, x, source, i64(rows) if isinstance(rows, int) else rows, spec.kind, row.lanes)

    named = {x.name: x for x in factors}
    unbounded = meets_few(spec) and replaces_scores(spec)
    largest_key = b.const(INFINITY, LType(spec.kind)) if unbounded else square(named["k"], i64(0), keys)
    for segment in queries:
        with tile_loop(b, segment, i64(0), i64(segment.first + segment.tiles), "part") as (tile, first):
            norms = [largest_key] if unbounded else [square(named["q"], first, segment.size), largest_key]
            bound = b.const(abs(spec.scale) * _ROUNDING, largest_key)
            for norm in norms:
                bound = b.mul(bound, b.unary("sqrt", norm))
            count, sure = _seen_by(b, spec, first, segment.size, row, by_row, bound)
            b.store(b.select(sure, count, i64(keys)), b.gep(b.args["seen"], tile, I64))
    fewest = functools.reduce(lambda x, y: b.binary("smin", x, y), [b.load(place, I64) for place in places])
    with b.if_then(b.icmp("slt", fewest, i64(keys))):
        hidden = {x.name: square(x, fewest, b.sub(i64(keys), fewest)) for x in factors if x.of_keys and x.weighted}
        for segment in queries:
            with tile_loop(b, segment, i64(0), i64(segment.first + segment.tiles), "part") as (tile, first):
                squares = hidden | {x.name: square(x, first, segment.size) for x in factors if not x.of_keys and x.weighted}
                doubtful = b.const(0.0, LType(spec.kind))
                for number in (*squares.values(), *(b.mul(squares[x], squares[y]) for x, y in products)):
                    doubtful = b.add(doubtful, b.sub(number, number))
                place = b.gep(b.args["seen"], tile, I64)
                b.store(b.select(b.fcmp("ord", doubtful, doubtful), b.load(place, I64), i64(keys)), place)
    return b.finish(functools.reduce(b.add, [b.load(place, I64) for place in places]))


def _nothing_hidden(b: FunctionBuilder, spec: AttentionSpec, queries: tuple[Segment, ...], row: Row) -> Val:
    """Whether in each part some query sees one of the last keys, so that all would be looked at."""
    assert spec.mask is not None
    mask, lanes, last = spec.mask, row.lanes, row.count - _unit(row.lanes)
    if last <= 0:
        return const(1, LType("i1"))
    nothing = const(1, LType("i1"))
    bits = LType(f"i{lanes}")
    for segment in queries:
        for part in range(segment.tiles):
            with b.loop(0, segment.size, carried=[const(0, bits)], name="sees", at_least_once=True) as loop:
                line = at_row(b, b.args["mask"], b.add(loop.index, i64(segment.start + part * segment.size)), mask)
                found = loop.carried[0]
                for at in (last, last + lanes):
                    place = at_column(b, line, i64(at), mask)
                    if replaces_scores(spec):
                        seen = b.load(place, LType("i1", lanes))
                    else:
                        x = load_as(b, place, mask.kind, spec.kind, lanes)
                        seen = b.fcmp("ogt", x, b.const(_NOTHING_BELOW[spec.kind], x))
                    found = b.or_(found, b.bitcast(seen, bits))
                loop.carry(found)
            nothing = b.and_(nothing, b.icmp("ne", loop.results[0], const(0, bits)))
    return nothing


def _seen_by(b: FunctionBuilder, spec: AttentionSpec, first: Val, rows: int, row: Row, by_row: tuple[str, ...], bound: Val) -> tuple[Val, Val]:
    """How many keys the `rows` queries from `first` on must look at, and whether that is sure. Scores are not larger than `bound` before masking."""
    assert spec.mask is not None
    mask, lanes, kind = spec.mask, row.lanes, LType(spec.kind)
    limit, infinity = b.const(_NOTHING_BELOW[spec.kind], kind), b.const(INFINITY, kind)
    none = const(-1, LType("i32", lanes))
    lane = b.iota(lanes, "i32")

    def last_where(kept: Val, at: Val, so_far: Val) -> Val:
        index = b.add(lane, b.splat(b.cast(at, LType("i32")), lanes))
        return b.binary("smax", so_far, b.select(kept, index, none))

    with b.loop(0, rows, carried=[none, const(1, LType("i1"))], name="row", at_least_once=True) as loop:
        at_query = b.add(first, loop.index)
        numbers = {n: b.load(b.gep(b.args[n], at_query, kind), kind) for n in by_row}
        peak = numbers.pop("peak", b.const(-INFINITY, kind))
        line = at_row(b, b.args["mask"], at_query, mask)
        sure = b.and_(loop.carried[1], b.fcmp("olt", peak, infinity))
        for other in numbers.values():
            sure = b.and_(sure, b.fcmp("ord", other, other))
        if replaces_scores(spec):

            def kept(at: Val, tail: Val | None, so_far: Val, line: Val = line) -> Val:
                return last_where(load_strided(b, at_column(b, line, at, mask), mask.column, "i1", spec.kind, lanes, tail), at, so_far)

            (last,) = over_row(b, row, [none], kept, lambda b, x, y: b.binary("smax", x, y))
            seen = b.bitcast(b.icmp("sgt", last, none), LType(f"i{lanes}"))
            lowest = b.neg(bound)  # that the largest score of the row can be, if any is kept
            lowest = b.select(b.fcmp("ogt", peak, lowest), peak, lowest)
            lowest = b.select(b.icmp("ne", seen, b.const(0, seen)), lowest, peak)
            sure = b.and_(sure, b.fcmp("olt", b.sub(b.const(spec.fill, kind), lowest), limit))
        else:
            highest = _highest(b, spec, line, row)
            sure = b.and_(sure, b.fcmp("olt", highest, infinity))
            below = [b.sub(peak, bound), b.sub(highest, b.add(bound, bound))]
            below = [b.sub(x, b.mul(b.unary("fabs", y), b.const(_ROUNDED_SUM[spec.kind], y))) for x, y in zip(below, (peak, highest), strict=True)]
            threshold = b.splat(b.add(b.binary("maximum", *below), limit), lanes)

            def counts(at: Val, tail: Val | None, so_far: Val, line: Val = line, threshold: Val = threshold) -> Val:
                x = load_as(b, at_column(b, line, at, mask), mask.kind, spec.kind, lanes, tail)
                visible = b.fcmp("uge", x, threshold)
                return last_where(visible if tail is None else b.and_(visible, tail), at, so_far)

            (last,) = over_row(b, row, [none], counts, lambda b, x, y: b.binary("smax", x, y))
        loop.carry(b.binary("smax", last, loop.carried[0]), sure)
    last = b.cast(b.reduce("max", loop.results[0]), I64)
    unit = _unit(lanes)
    return b.binary("smin", b.and_(b.add(last, i64(unit)), i64(-unit)), i64(row.count)), loop.results[1]


def _highest(b: FunctionBuilder, spec: AttentionSpec, line: Val, row: Row) -> Val:
    """The largest number of a row of a mask that is added, those that are NaN aside."""
    assert spec.mask is not None
    mask, lanes = spec.mask, row.lanes
    lowest = b.const(-INFINITY, LType(spec.kind, lanes))

    def larger(at: Val, tail: Val | None, so_far: Val) -> Val:
        x = load_as(b, at_column(b, line, at, mask), mask.kind, spec.kind, lanes, tail)
        return largest(b, x if tail is None else b.select(tail, x, lowest), so_far)

    (highest,) = over_row(b, row, [lowest] * min(2, row.vectors), larger, largest)
    return largest_lane(b, highest)


def _largest_square(b: FunctionBuilder, factor: Factor, source: Val, rows: Val, kind: str, lanes: int) -> Val:
    """What no sum of squares of a row is above, of `rows` rows; infinite or NaN if an element is.

    The largest in each lane are added up, rather than the largest of the sums found: a sum in each row takes longer than all else here.
    """
    vector = LType(kind, lanes)
    bits = LType(f"i{vector.bits}", lanes)
    with b.loop(i64(0), rows, carried=[zeros(bits)], name=factor.name) as loop:
        line = at_row(b, source, loop.index, factor.operand)

        def square(at: Val, tail: Val | None, so_far: Val) -> Val:
            x = load_as(b, b.gep(line, at, LType(factor.operand.kind)), factor.operand.kind, kind, lanes, tail)
            return b.fma(x, x, so_far)

        (total,) = over_row(b, Row(factor.columns, lanes), [zeros(vector)], square, lambda b, x, y: b.add(x, y))
        loop.carry(b.binary("umax", loop.carried[0], b.bitcast(total, bits)))  # as integers: NaN is above infinity, which is above all others
    total = b.reduce("add", b.bitcast(loop.results[0], vector))
    return b.add(total, b.const(factor.columns * _SMALLEST[kind], total))
