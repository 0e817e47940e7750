"""Chunks of scores that a mask hides as a whole, as one of a causal model does for every second: they need not be computed.

Leaves one out only if that changes no number: all its scores are masked, the exponential of what they are replaced by is 0 beside the
largest score of each row, and all that this 0 would be multiplied with is finite (0 times infinity is NaN). Data decide, so any mask will do.
"""

from __future__ import annotations

from graphcell.codegen.llvm.attention_products import INFINITY, AttentionSpec, Parts, Row, at_column, at_row, over_row
from graphcell.codegen.llvm.matmul_schedule import Operand
from graphcell.codegen.llvm.packing import load_as, load_strided, zeros
from graphcell.codegen.llvm.text import I64, PTR, FunctionBuilder, LType, Val, const, i64
from graphcell.records import dataclass

_NOTHING_BELOW = {"float": 110.0, "double": 760.0}
"""Exponentials of numbers below minus this are 0."""


@dataclass(frozen=True, slots=True)
class Factor:
    """Rows of a matrix that the exponentials are multiplied with."""

    name: str
    operand: Operand
    rows: int
    columns: int


def may_hide_chunks(spec: AttentionSpec, *operands: Operand) -> bool:
    """Whether a mask replaces scores one by one, and the factors lie row by row, so that looking at them is quick."""
    return spec.mask is not None and spec.mask.kind == "i1" and spec.mask.column == 1 and all(x.column == 1 for x in operands)


def emit_hidden(parts: Parts, spec: AttentionSpec, rows: int, keys: int, sums: tuple[str, ...], factors: tuple[Factor, ...]) -> str:
    """`i64 f(ptr mask, ptr peak, ptr sum..., ptr factor...)`: whether the scores of `rows` queries and `keys` keys may be left out.

    `sums` are numbers of each row that the exponentials are multiplied with, too.
    """
    name, new = parts.fresh(("hidden", rows, keys), "hidden")
    if not new:
        return name
    assert spec.mask is not None
    b = FunctionBuilder(parts.module, name, [(n, PTR) for n in ("mask", "peak", *sums, *(x.name for x in factors))], I64, attributes="nounwind noinline")
    kind, lanes = LType(spec.kind), parts.target.lanes(spec.kind)
    with b.loop(0, rows, name="row", at_least_once=True) as loop:
        kept = _any_kept(b, at_row(b, b.args["mask"], loop.index, spec.mask), spec.mask, Row(keys, lanes), spec.kind)
        peak, *others = (b.load(b.gep(b.args[n], loop.index, kind), kind) for n in ("peak", *sums))
        sure = b.and_(b.fcmp("ogt", peak, b.const(spec.fill + _NOTHING_BELOW[spec.kind], kind)), b.fcmp("olt", peak, b.const(INFINITY, kind)))
        for other in others:
            sure = b.and_(sure, b.fcmp("ord", other, other))
        b.return_if(b.or_(kept, b.not_(sure)), i64(0))
    doubtful = b.const(0.0, kind)
    for factor in factors:
        doubtful = b.add(doubtful, _differences(b, factor, spec.kind, lanes))
    return b.finish(b.cast(b.fcmp("ord", doubtful, doubtful), I64, signed=False))


def _any_kept(b: FunctionBuilder, line: Val, mask: Operand, row: Row, kind: str) -> Val:
    """Whether the mask keeps a score of the row."""
    lanes = row.lanes

    def step(at: Val, tail: Val | None, so_far: Val) -> Val:
        return b.or_(so_far, load_strided(b, at_column(b, line, at, mask), mask.column, "i1", kind, lanes, tail))

    (found,) = over_row(b, row, [const(0, LType("i1", lanes))], step, lambda b, x, y: b.or_(x, y))
    bits = b.bitcast(found, LType(f"i{lanes}"))
    return b.icmp("ne", bits, b.const(0, bits))


def _differences(b: FunctionBuilder, factor: Factor, kind: str, lanes: int) -> Val:
    """The sum of x - x over all elements: NaN if one is infinite or NaN."""
    with b.loop(0, factor.rows, carried=[zeros(LType(kind, lanes))], name=factor.name, at_least_once=True) as loop:
        source = at_row(b, b.args[factor.name], loop.index, factor.operand)

        def step(at: Val, tail: Val | None, so_far: Val) -> Val:
            x = load_as(b, b.gep(source, at, LType(factor.operand.kind)), factor.operand.kind, kind, lanes, tail)
            return b.add(so_far, b.sub(x, x))

        (total,) = over_row(b, Row(factor.columns, lanes), [loop.carried[0]], step, lambda b, x, y: b.add(x, y))
        loop.carry(total)
    return b.reduce("add", loop.results[0])
