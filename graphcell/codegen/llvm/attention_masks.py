"""Chunks of scores that a mask hides as a whole, as one of a causal model does for every second: they need not be computed.

Leaves one out only if that changes no number: the exponentials of all its scores are 0 beside the largest score of their row, and all that
these zeros would be multiplied with is finite (0 times infinity is NaN). A mask that replaces scores says what they are; of one that is
added to them, which is minus infinity or a large negative number, the norms of queries and keys say how large they can be. Data decide, so any mask will do.
"""

from __future__ import annotations

from graphcell.codegen.llvm.attention_products import INFINITY, AttentionSpec, Parts, Row, at_column, at_row, over_row
from graphcell.codegen.llvm.matmul_schedule import Operand
from graphcell.codegen.llvm.packing import load_as, load_strided, zeros
from graphcell.codegen.llvm.text import I64, PTR, FunctionBuilder, LType, Val, const, i64
from graphcell.records import dataclass

_NOTHING_BELOW = {"float": -110.0, "double": -760.0}
"""Exponentials of numbers below this are 0."""
_ROUNDING = 1.001  # by which a norm may be larger than it was computed


@dataclass(frozen=True, slots=True)
class Factor:
    """Rows of a matrix that take part in products with the exponentials or give the scores."""

    name: str
    operand: Operand
    rows: int
    columns: int


def may_hide_chunks(spec: AttentionSpec, *operands: Operand) -> bool:
    """Whether there is a mask with a number for each score, and what must be looked at lies row by row, so that looking is quick."""
    return spec.mask is not None and all(x.column == 1 for x in (spec.mask, *operands))


def replaces_scores(spec: AttentionSpec) -> bool:
    """Whether the mask says which scores are replaced; else it is added to them."""
    return spec.mask is not None and spec.mask.kind == "i1"


def emit_hidden(
    parts: Parts, spec: AttentionSpec, rows: int, keys: int, sums: tuple[str, ...], factors: tuple[Factor, ...], products: tuple[tuple[str, str], ...] = ()
) -> str:
    """`i64 f(ptr mask, ptr peak, ptr sum..., ptr factor...)`: whether the scores of `rows` queries and `keys` keys may be left out.

    `sums` are numbers of each row that exponentials are multiplied with; `products` names pairs of factors whose rows are multiplied with each
    other. A mask that is added needs the factors q and k.
    """
    name, new = parts.fresh(("hidden", rows, keys), "hidden")
    if not new:
        return name
    b = FunctionBuilder(parts.module, name, [(n, PTR) for n in ("mask", "peak", *sums, *(x.name for x in factors))], I64, attributes="nounwind noinline")
    kind, lanes = LType(spec.kind), parts.target.lanes(spec.kind)
    limit = b.const(_NOTHING_BELOW[spec.kind], kind)
    with b.loop(0, rows, carried=[b.const(-INFINITY, kind)], name="row", at_least_once=True) as loop:
        peak, *others = (b.load(b.gep(b.args[n], loop.index, kind), kind) for n in ("peak", *sums))
        below = b.sub(_highest(b, spec, loop.index, Row(keys, lanes)), peak)
        sure = b.and_(b.fcmp("olt", below, limit), b.fcmp("olt", peak, b.const(INFINITY, kind)))
        for other in others:
            sure = b.and_(sure, b.fcmp("ord", other, other))
        b.return_if(b.not_(sure), i64(0))
        loop.carry(b.select(b.fcmp("ogt", below, loop.carried[0]), below, loop.carried[0]))
    below, doubtful = loop.results[0], b.const(0.0, kind)
    squares = {x.name: _largest_square(b, x, spec.kind, lanes) for x in factors}
    for number in (*squares.values(), *(b.mul(squares[x], squares[y]) for x, y in products)):
        doubtful = b.add(doubtful, b.sub(number, number))
    if not replaces_scores(spec):
        norm = b.unary("sqrt", b.mul(squares["q"], squares["k"]))
        below = b.add(below, b.mul(norm, b.const(abs(spec.scale) * _ROUNDING, kind)))
    hidden = b.and_(b.fcmp("olt", below, limit), b.fcmp("ord", doubtful, doubtful))
    return b.finish(b.cast(hidden, I64, signed=False))


def _highest(b: FunctionBuilder, spec: AttentionSpec, index: Val, row: Row) -> Val:
    """The largest that a mask makes of the scores of a row, if these were 0 where it is added; infinity where it keeps one as it is."""
    assert spec.mask is not None
    mask, lanes, kind = spec.mask, row.lanes, LType(spec.kind)
    line = at_row(b, b.args["mask"], index, mask)
    if replaces_scores(spec):

        def kept(at: Val, tail: Val | None, so_far: Val) -> Val:
            return b.or_(so_far, load_strided(b, at_column(b, line, at, mask), mask.column, "i1", spec.kind, lanes, tail))

        (found,) = over_row(b, row, [const(0, LType("i1", lanes))], kept, lambda b, x, y: b.or_(x, y))
        bits = b.bitcast(found, LType(f"i{lanes}"))
        return b.select(b.icmp("eq", bits, b.const(0, bits)), b.const(spec.fill, kind), b.const(INFINITY, kind))
    lowest = b.const(-INFINITY, LType(spec.kind, lanes))

    def larger(at: Val, tail: Val | None, so_far: Val) -> Val:
        x = load_as(b, at_column(b, line, at, mask), mask.kind, spec.kind, lanes, tail)
        return b.binary("maximum", so_far, x if tail is None else b.select(tail, x, lowest))

    (highest,) = over_row(b, row, [lowest], larger, lambda b, x, y: b.binary("maximum", x, y))
    return b.reduce("max", highest)


def _largest_square(b: FunctionBuilder, factor: Factor, kind: str, lanes: int) -> Val:
    """The largest sum of squares of a row; infinite or NaN if an element is."""
    scalar = LType(kind)
    with b.loop(0, factor.rows, carried=[b.const(0.0, scalar)], name=factor.name, at_least_once=True) as loop:
        source = at_row(b, b.args[factor.name], loop.index, factor.operand)

        def square(at: Val, tail: Val | None, so_far: Val) -> Val:
            x = load_as(b, b.gep(source, at, LType(factor.operand.kind)), factor.operand.kind, kind, lanes, tail)
            return b.fma(x, x, so_far)

        (total,) = over_row(b, Row(factor.columns, lanes), [zeros(LType(kind, lanes))], square, lambda b, x, y: b.add(x, y))
        loop.carry(b.binary("maximum", loop.carried[0], b.reduce("add", total)))
    return loop.results[0]
