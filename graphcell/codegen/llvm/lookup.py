"""AVX-512: tables of sixteen floats or eight doubles in a register, sixteen doubles in two, and the instructions that take numbers apart and scale them.
AVX2: tables of eight floats.

Enters: float or double operands of any number of lanes, in a module for a processor with AVX-512, or with AVX2 for tables of eight. Leaves: the result
in the operand's type, the same bits for any number of lanes. Refuses: nothing itself; `uses_tables`, `uses_float_tables` and `uses_short_tables` say
where the functions may be called at all.

What is measured on Zen 4, in 512-bit instructions a cycle: two of any kind; one of multiply, fused multiply-add, comparison; one of add,
minimum, shift, getexp, getmant; one look-up in one register, or half of one in two; one with three operands in registers, of any kind, which is why
tables have sixteen entries and not the thirty-two of two registers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from graphcell.codegen.llvm.polynomials import at_most, from_bits, to_bits
from graphcell.codegen.llvm.text import FunctionBuilder, LType, Val, const, float_literal

ENTRIES, SHORT_ENTRIES = 16, 8
REGISTER_LANES = {"float": 16, "double": 8}
_PERMUTE = {("float", 8): "x86.avx2.permps", ("float", 16): "x86.avx512.permvar.sf.512", ("double", 8): "x86.avx512.permvar.df.512"}
_CURRENT_ROUNDING = const(4, LType("i32"))


class Segments(NamedTuple):
    """lift * a plus a piecewise polynomial in r = a - centre, for 0 <= a <= limit.

    The segment of `a` is the pattern of start + scale * a, shifted right by `shift`, modulo the number of segments.
    """

    start: float
    scale: float
    shift: int
    limit: float
    lift: float
    centres: tuple[float, ...]
    coefficients: tuple[tuple[float, ...], ...]


def uses_tables(b: FunctionBuilder, x: Val) -> bool:
    """True for floats and doubles in a module for AVX-512."""
    return b.module.avx512 and x.type.kind in REGISTER_LANES


def uses_float_tables(b: FunctionBuilder, x: Val) -> bool:
    """True for floats in a module for AVX-512."""
    return b.module.avx512 and x.type.kind == "float"


def uses_short_tables(b: FunctionBuilder, x: Val) -> bool:
    """True for floats in a module for AVX2."""
    return b.module.avx2 and x.type.kind == "float"


def by_registers(b: FunctionBuilder, function: Callable[..., Val], *xs: Val, full: int = 0) -> Val:
    """function(b, *xs) for a function of whole registers and operands of any number of lanes: they are filled up, or taken apart. `full`: the lanes
    of a register, by default of AVX-512.
    """
    lanes, full = xs[0].type.lanes, full or REGISTER_LANES[xs[0].type.kind]
    if lanes == full:
        return function(b, *xs)
    if lanes < full:
        return _narrowed(b, function(b, *(_filled(b, x, full) for x in xs)), lanes)
    parts = []
    for first in range(0, lanes, full):
        here = range(first, min(first + full, lanes))
        parts.append(by_registers(b, function, *(b.shuffle(x, x, here) for x in xs), full=full))
    return _joined(b, parts)


def _filled(b: FunctionBuilder, x: Val, full: int) -> Val:
    """The lanes of `x`, or the scalar, and then anything."""
    if not x.type.lanes:
        wide = x.type.with_lanes(full)
        return b.raw(f"insertelement {wide} zeroinitializer, {x}, i64 0", wide)
    return b.shuffle(x, Val("zeroinitializer", x.type), [min(k, x.type.lanes) for k in range(full)])


def _narrowed(b: FunctionBuilder, x: Val, lanes: int) -> Val:
    return b.shuffle(x, x, range(lanes)) if lanes else b.extract(x, 0)


def _joined(b: FunctionBuilder, parts: list[Val]) -> Val:
    total = parts[0]
    for part in parts[1:]:
        have, more = total.type.lanes, part.type.lanes
        same = part if more == have else b.shuffle(part, part, [min(k, more - 1) for k in range(have)])
        total = b.shuffle(total, same, range(have + more))
    return total


# -- instructions --------------------------------------------------------------------------------------------
# On operands of several registers each gives as many in turn, so that code made of them has those of one chain stand beside those of another.
def look_up(b: FunctionBuilder, table: Sequence[float], index: Val) -> Val:
    """table[index % entries] in each lane, of eight or sixteen floats by i32 indices, of doubles by i64."""
    type = index.type.with_kind({32: "float", 64: "double"}[index.type.bits])
    if len(set(table)) == 1:
        return const(table[0], type)
    full = len(table) if type.kind == "float" else REGISTER_LANES["double"]
    if type.lanes != full:
        return by_registers(b, lambda b, index: look_up(b, table, index), index, full=full)
    parts = [table[k : k + type.lanes] for k in range(0, len(table), type.lanes)]
    registers = [Val("<" + ", ".join(f"{type.kind} {float_literal(v, type.kind)}" for v in part) + ">", type) for part in parts]
    if len(registers) == 2:
        return b.intrinsic("x86.avx512.vpermi2var.pd.512", type, registers[0], index, registers[1])
    return b.intrinsic(_PERMUTE[type.kind, len(table)], type, registers[0], index)


def scaled(b: FunctionBuilder, x: Val, power: Val) -> Val:
    """x * 2**floor(power), rounded once: denormal and infinite results come out right."""
    return _masked(b, "scalef", x, power)


def exponent(b: FunctionBuilder, x: Val) -> Val:
    """floor(log2(|x|)) as a float; -inf at 0, inf at inf. Denormals count as what they are."""
    return _masked(b, "getexp", x)


def mantissa(b: FunctionBuilder, x: Val, interval: int) -> Val:
    """|x| / 2**k for the k that brings it into [1, 2) (interval 0) or into [3/4, 3/2) (interval 3); 1 at 0 and inf, NaN where x < 0."""
    return _masked(b, "getmant", x, more=[const(interval | 2 << 2, LType("i32"))])


def _masked(b: FunctionBuilder, name: str, *xs: Val, more: Sequence[Val] = ()) -> Val:
    """An intrinsic whose mask is all ones."""
    t = xs[0].type
    if t.lanes != REGISTER_LANES[t.kind]:
        return by_registers(b, lambda b, *xs: _masked(b, name, *xs, more=more), *xs)
    every = const(-1, LType(f"i{t.lanes}"))
    letter = {"float": "ps", "double": "pd"}[t.kind]
    return b.intrinsic(f"x86.avx512.mask.{name}.{letter}.512", t, *xs, *more, Val("zeroinitializer", t), every, _CURRENT_ROUNDING)


def extremum(b: FunctionBuilder, kind: str, x: Val, y: Val) -> Val:
    """The smaller ("min") or larger ("max") operand, of zeros the negative and the positive one, NaN if either is: three instructions instead of six."""
    picked = _masked(b, "range", x, y, more=[const({"min": 4, "max": 5}[kind], LType("i32"))])
    return b.select(b.fcmp("uno", x, y), b.add(x, y), picked)


def reciprocal_root_guess(b: FunctionBuilder, x: Val) -> Val:
    """1 / sqrt(x) within 2**-14; inf at 0, 0 at inf, NaN below 0."""
    t = x.type
    letter = {"float": "ps", "double": "pd"}[t.kind]
    return b.intrinsic(f"x86.avx512.rsqrt14.{letter}.512", t, x, Val("zeroinitializer", t), const(-1, LType(f"i{t.lanes}")))


# -- piecewise polynomials -----------------------------------------------------------------------------------
def odd_function(b: FunctionBuilder, x: Val, segments: Segments) -> Val:
    """An odd function that reaches 1 at `limit`, from its piecewise polynomial; NaN stays NaN, -0 stays -0."""
    bits = to_bits(b, x)
    sign = b.const(-(1 << (bits.type.bits - 1)), bits)
    total = piecewise(b, at_most(b, from_bits(b, b.and_(bits, b.not_(sign))), segments.limit), segments)
    return from_bits(b, b.or_(to_bits(b, total), b.and_(bits, sign)))


def piecewise(b: FunctionBuilder, a: Val, segments: Segments) -> Val:
    """The function of `segments` for 0 <= a <= limit; NaN stays NaN."""
    place = b.fma(a, b.const(segments.scale, a), b.const(segments.start, a))
    bits = to_bits(b, place)
    index = b.shr(bits, b.const(segments.shift, bits))
    r = b.sub(a, look_up(b, segments.centres, index))
    total = look_up(b, segments.coefficients[-1], index)
    for table in reversed(segments.coefficients[1:-1]):
        total = b.fma(total, r, look_up(b, table, index))
    first = look_up(b, segments.coefficients[0], index)
    if segments.lift:
        first = b.fma(a, b.const(segments.lift, a), first)
    return b.fma(total, r, first)
