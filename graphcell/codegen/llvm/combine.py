"""How the elements of a reduction combine, and where an index leads: shared by loop nests and scatters."""

from __future__ import annotations

from graphcell.codegen.llvm.body import BodyBuilder
from graphcell.codegen.llvm.lookup import REGISTER_LANES, by_registers, extremum
from graphcell.codegen.llvm.text import I64, LType, Val
from graphcell.dtype import DType


def place(b: BodyBuilder, index: Val, dtype: DType, extent: int, kind: LType = I64) -> Val:
    """Where an index leads in a dimension of `extent` elements, which a signed number of type `kind` can hold: negative ones count from the end, all are
    clamped.
    """
    wide = b.cast(index, max(kind, index.type.with_lanes(0), key=lambda t: t.bits).with_lanes(index.type.lanes), signed=dtype.signed)
    last = b.const(max(extent - 1, 0), wide)
    if not dtype.signed:
        return b.cast(b.binary("umin", wide, last), kind.with_lanes(index.type.lanes))
    zero = b.const(0, wide)
    wide = b.select(b.icmp("slt", wide, zero), b.add(wide, b.const(extent, wide)), wide)
    return b.cast(b.binary("smin", b.binary("smax", wide, zero), last), kind.with_lanes(index.type.lanes))


def combine(b: BodyBuilder, kind: str, x: Val, y: Val, dtype: DType) -> Val:
    """One step of a reduction; NaN wins in float extrema."""
    if kind == "add":
        return b.or_(x, y) if dtype.is_bool else b.add(x, y)
    if kind == "mul":
        return b.and_(x, y) if dtype.is_bool else b.mul(x, y)
    if kind in ("and", "or"):
        return b.and_(x, y) if kind == "and" else b.or_(x, y)
    if dtype.is_float:
        if b.module.avx512 and x.type.lanes >= REGISTER_LANES[x.type.kind]:
            return by_registers(b, lambda b, x, y: extremum(b, kind, x, y), x, y)
        return b.binary("maximum" if kind == "max" else "minimum", x, y)
    signed = "s" if dtype.signed else "u"
    return b.binary(f"{signed}{kind}", x, y)


def horizontal(b: BodyBuilder, kind: str, x: Val, dtype: DType) -> Val:
    """Combines the lanes of a vector, halving it each time."""
    while x.type.lanes > 1:
        half = x.type.lanes // 2
        x = combine(b, kind, b.shuffle(x, x, range(half)), b.shuffle(x, x, range(half, 2 * half)), dtype)
    return b.extract(x, 0)
