"""Circular functions and their inverses.

Enters: half, bfloat, float or double operands, vectors or scalars. Leaves: the result in the operand's type.
See `math` for accuracy.

Arguments are reduced by fused multiply-adds with pi in three parts (W. J. Cody and W. Waite, 1980) as long as
that is exact. Where a lane holds more, a function that is called for the whole vector reduces it with as many
bits of 2 / pi as it takes (M. Payne and R. Hanek, Radian reduction for trigonometric functions, SIGNUM
Newsletter 18, 1983): a branch that ordinary data never takes.
"""

from __future__ import annotations

import functools

from graphcell.codegen.llvm.coefficients import ASIN, ATAN, COS, SIN, TAN
from graphcell.codegen.llvm.polynomials import (
    PI,
    absolute,
    any_lane,
    format_of,
    from_bits,
    infinity,
    polynomial,
    split,
    to_bits,
    truncated_split,
    widened,
    with_sign_of,
)
from graphcell.codegen.llvm.text import F64, I1, I64, PTR, VOID, FunctionBuilder, LType, Val, i64

# The inverse of pi / 2, and up to where reduction by three parts of pi / 2 is exact enough.
_TWO_OVER_PI = 0.6366197723675814
_LARGE = {"float": 2.0**16, "double": 2.0**28}
_REDUCE = "graphcell.reduce_half_pi"


# -- direct functions ----------------------------------------------------------------------------------------
def _reduced(b: FunctionBuilder, x: Val) -> tuple[Val, Val, Val]:
    """r in [-pi/4, pi/4], what its rounding lost, and the low bits of an integer q, with x = q pi / 2 + r;
    NaN where x is not finite.
    """
    form = format_of(x)
    magic = b.const(form.magic, x)
    shifted = b.fma(x, b.const(_TWO_OVER_PI, x), magic)
    q = b.sub(shifted, magic)
    # The three parts are all positive, so that -0 stays -0.
    first, second, third = (b.const(part, x) for part in truncated_split(PI, form.kind, 3, 0.5))
    start = b.fma(b.neg(q), first, x)  # exact
    product = b.mul(q, second)
    r = b.sub(start, product)
    lost = b.fma(q, third, b.fma(q, second, b.neg(product)))
    low = b.sub(b.sub(b.sub(start, r), product), lost)
    return _reduced_where_large(b, x, r, low, to_bits(b, shifted))


def _sine_and_cosine(b: FunctionBuilder, r: Val, low: Val) -> tuple[Val, Val]:
    """Of r + low, in [-pi/4, pi/4]."""
    z = b.mul(r, r)
    sine = with_sign_of(b, b.add(r, b.fma(b.mul(polynomial(b, z, SIN[r.type.kind]), z), r, low)), r)
    return sine, b.fma(b.fma(polynomial(b, z, COS[r.type.kind]), z, b.const(-0.5, r)), z, b.const(1.0, r))


def _sine_or_cosine(b: FunctionBuilder, x: Val, ahead: int) -> Val:
    """sin(ahead * pi / 2 + x); what sine and cosine of one operand have in common is emitted once."""
    r, low, quadrant = b.once(("reduced", x), lambda: _reduced(b, x))
    sine, cosine = b.once(("sine and cosine", x), lambda: _sine_and_cosine(b, r, low))
    if ahead:
        quadrant = b.add(quadrant, b.const(ahead, quadrant))
    chosen = to_bits(b, b.select(_is_odd(b, quadrant), cosine, sine))
    sign = b.shl(b.shr(quadrant, b.const(1, quadrant)), b.const(quadrant.type.bits - 1, quadrant))
    return from_bits(b, b.xor(chosen, sign))


def _is_odd(b: FunctionBuilder, integer: Val) -> Val:
    return b.icmp("ne", b.and_(integer, b.const(1, integer)), b.const(0, integer))


@widened
def sin(b: FunctionBuilder, x: Val) -> Val:
    """Sine, for every finite argument; NaN at infinities."""
    return _sine_or_cosine(b, x, 0)


@widened
def cos(b: FunctionBuilder, x: Val) -> Val:
    """Cosine, for every finite argument; NaN at infinities."""
    return _sine_or_cosine(b, x, 1)


@widened
def tan(b: FunctionBuilder, x: Val) -> Val:
    """Tangent, for every finite argument; NaN at infinities."""
    r, low, quadrant = _reduced(b, x)
    z = b.mul(r, r)
    rest = b.fma(b.mul(polynomial(b, z, TAN[r.type.kind]), z), r, low)
    t = with_sign_of(b, b.add(r, rest), r)
    odd = _is_odd(b, quadrant)
    result = b.div(b.select(odd, b.const(-1.0, x), t), b.select(odd, t, b.const(1.0, x)))
    # What the sum for t lost would weigh double in -1 / t.
    mended = b.fma(b.add(b.sub(r, t), rest), b.mul(result, result), result)
    return b.select(odd, mended, result)


# -- reduction of large arguments ----------------------------------------------------------------------------
def _reduced_where_large(b: FunctionBuilder, x: Val, r: Val, low: Val, quadrant: Val) -> tuple[Val, Val, Val]:
    """The operands, made anew in the lanes where |x| is large."""
    ordinary = (r, low, quadrant)
    slots = [b.alloca(v.type) for v in ordinary]
    for value, slot in zip(ordinary, slots, strict=True):
        b.store(value, slot, 64)
    large = b.fcmp("ogt", absolute(b, x), b.const(_LARGE[x.type.kind], x))
    with b.if_then(any_lane(b, large)):
        made = _reduced_by_call(b, x, quadrant.type)
        for new, old, slot in zip(made, ordinary, slots, strict=True):
            b.store(b.select(large, new, old), slot, 64)
    new_r, new_low, new_quadrant = (b.load(slot, v.type, 64) for v, slot in zip(ordinary, slots, strict=True))
    return new_r, new_low, new_quadrant


def _reduced_by_call(b: FunctionBuilder, x: Val, quadrant: LType) -> tuple[Val, Val, Val]:
    """r, low and q with x = q pi / 2 + r + low, by a call for the whole vector."""
    if not b.module.has_function(_REDUCE):
        _emit_reduction(b)
    wide, whole = x.type.with_kind("double"), x.type.with_kind("i64")
    slots = [b.alloca(t) for t in (wide, wide, wide, whole)]
    b.store(b.cast(x, wide), slots[0], 64)
    b.call(_REDUCE, VOID, *slots, i64(max(1, x.type.lanes)))
    near, rest, q = b.load(slots[1], wide, 64), b.load(slots[2], wide, 64), b.load(slots[3], whole, 64)
    r = b.cast(near, x.type)
    low = b.cast(b.add(b.sub(near, b.cast(r, wide)), rest), x.type)
    return r, low, b.cast(q, quadrant)


def _emit_reduction(b: FunctionBuilder) -> None:
    """Emits `void reduce(ptr x, ptr r, ptr low, ptr q, i64 n)`, for n doubles with |x| >= 2**-9; inf and NaN
    give NaN.
    """
    names = ("x", "r", "low", "q")
    f = FunctionBuilder(
        b.module, _REDUCE, [*((name, PTR) for name in names), ("n", I64)], attributes="nounwind noinline cold"
    )
    words = ", ".join(f"i64 {word}" for word in _two_over_pi_words())
    count = len(_two_over_pi_words())
    table = b.module.add_global(f"{_REDUCE}.table", f"internal constant [{count} x i64] [{words}], align 64")
    with f.loop(0, f.args["n"]) as loop:
        x = f.load(f.gep(f.args["x"], loop.index, F64), F64)
        r, low, quadrant = _reduce_scalar(f, x, table)
        finite = f.fcmp("olt", absolute(f, x), infinity(x))
        f.store(f.select(finite, r, f.const(float("nan"), F64)), f.gep(f.args["r"], loop.index, F64))
        f.store(low, f.gep(f.args["low"], loop.index, F64))
        f.store(quadrant, f.gep(f.args["q"], loop.index, I64))
    f.finish()


_TABLE_PADDING = 64  # zero bits before the binary point of 2 / pi in the table
_WIDE = LType("i128")


@functools.cache
def _two_over_pi_words() -> tuple[int, ...]:
    """2 / pi as 64-bit words, most significant first, behind _TABLE_PADDING zero bits: enough for the largest
    double.
    """
    count = (_TABLE_PADDING + 1024 + 192) // 64 + 2
    bits = 64 * count - _TABLE_PADDING
    scaled = (2 << (2 * bits)) // _scaled_pi(bits)
    return tuple(scaled >> (64 * k) & (2**64 - 1) for k in reversed(range(count)))


def _scaled_pi(bits: int) -> int:
    """pi * 2**bits, by Machin's formula 16 atan(1/5) - 4 atan(1/239)."""
    guard = 32

    def arctangent_of_inverse(n: int) -> int:
        power = (1 << (bits + guard)) // n
        total, k = power, 1
        while power:
            power //= -n * n
            k += 2
            total += power // k
        return total

    return (16 * arctangent_of_inverse(5) - 4 * arctangent_of_inverse(239)) >> guard


def _reduce_scalar(f: FunctionBuilder, x: Val, table: Val) -> tuple[Val, Val, Val]:
    """r, low and q with x = q pi / 2 + r + low: the product of the mantissa with the 192 bits of 2 / pi that
    count, modulo 4.
    """
    bits = to_bits(f, x)
    field = f.and_(f.shr(bits, f.const(52, I64)), f.const(0x7FF, I64))
    mantissa = f.or_(f.and_(bits, f.const((1 << 52) - 1, I64)), f.const(1 << 52, I64))
    # x = mantissa * 2**(field - 1075). Bits of 2 / pi before `first` contribute multiples of 4. (The bounds
    # guard inf and NaN only.)
    first = f.sub(field, f.const(1075 + 2 - _TABLE_PADDING, I64))
    first = f.binary(
        "smin", f.binary("smax", first, f.const(0, I64)), f.const(2046 - 1077 + _TABLE_PADDING, I64)
    )
    index, shift = f.shr(first, f.const(6, I64)), f.and_(first, f.const(63, I64))
    raw = [f.load(f.gep(f.gep(table, index, I64), k, I64), I64) for k in range(4)]
    words = [f.intrinsic("fshl.i64", I64, raw[k], raw[k + 1], shift) for k in range(3)]
    m = f.cast(mantissa, _WIDE, signed=False)
    high, middle, low = (f.mul(m, f.cast(word, _WIDE, signed=False)) for word in words)
    half = f.const(64, _WIDE)
    product = f.add(f.add(f.shl(high, half), middle), f.shr(low, half))  # x * 2 / pi modulo 4, times 2**126
    quadrant = f.shr(f.add(product, f.const(1 << 125, _WIDE)), f.const(126, _WIDE))
    near, rest = _scaled_by_half_pi(f, f.sub(product, f.shl(quadrant, f.const(126, _WIDE))))
    negative = f.icmp("slt", bits, f.const(0, I64))
    quadrant = f.cast(quadrant, I64)
    near, rest = (f.select(negative, f.neg(v), v) for v in (near, rest))
    return near, rest, f.select(negative, f.neg(quadrant), quadrant)


def _scaled_by_half_pi(f: FunctionBuilder, fraction: Val) -> tuple[Val, Val]:
    """fraction * 2**-126 * pi / 2 for a signed i128, as a double and what its rounding lost."""
    negative = f.icmp("slt", fraction, f.const(0, _WIDE))
    magnitude = f.select(negative, f.neg(fraction), fraction)
    leading = f.intrinsic("ctlz.i128", _WIDE, magnitude, Val("false", I1))
    leading = f.binary("umin", leading, f.const(127, _WIDE))
    top = f.cast(f.shr(f.shl(magnitude, leading), f.const(66, _WIDE)), I64)  # 62 bits
    high = f.cast(top, F64)
    low = f.cast(f.sub(top, f.raw(f"fptosi {high} to i64", I64)), F64)
    exponent = f.sub(f.const(1023 - 60, I64), f.cast(leading, I64))
    scale = from_bits(f, f.shl(exponent, f.const(52, I64)))
    scale = f.select(negative, f.neg(scale), scale)
    half_pi, tail = (f.const(part, F64) for part in split(PI, "double", 2, 0.5))
    product = f.mul(high, half_pi)
    lost = f.add(f.fma(high, half_pi, f.neg(product)), f.fma(high, tail, f.mul(low, half_pi)))
    total = f.add(product, lost)
    rest = f.sub(lost, f.sub(total, product))
    return f.mul(total, scale), f.mul(rest, scale)


# -- inverse functions ---------------------------------------------------------------------------------------
def _arcsine_parts(b: FunctionBuilder, x: Val) -> tuple[Val, Val, Val]:
    """big, s, w: asin(|x|) = s + w, or pi/2 - 2 (s + w) where `big` holds, with w small."""
    a, half = absolute(b, x), b.const(0.5, x)
    big = b.fcmp("ogt", a, half)
    z = b.select(big, b.fma(b.neg(half), a, half), b.mul(a, a))
    s = b.select(big, b.unary("sqrt", z), a)
    return big, s, b.mul(b.mul(polynomial(b, z, ASIN[format_of(x).kind]), z), s)


@widened
def asin(b: FunctionBuilder, x: Val) -> Val:
    """Inverse sine; NaN beyond -1 and 1."""
    big, s, w = _arcsine_parts(b, x)
    high, low = split(PI, x.type.kind, 2, 0.5)
    minus_two, half_pi = b.const(-2.0, x), b.const(high, x)
    start = b.fma(minus_two, s, half_pi)
    lost = b.fma(minus_two, s, b.sub(half_pi, start))
    complement = b.add(start, b.add(lost, b.fma(minus_two, w, b.const(low, x))))
    return with_sign_of(b, b.select(big, complement, b.add(s, w)), x)


@widened
def acos(b: FunctionBuilder, x: Val) -> Val:
    """Inverse cosine; NaN beyond -1 and 1."""
    big, s, w = _arcsine_parts(b, x)
    high, low = split(PI, x.type.kind, 2, 0.5)
    negative = b.fcmp("olt", x, b.const(0.0, x))
    # pi/2 - (s + w) or pi/2 + (s + w) where x is small; 0 + 2 (s + w) where it is large, pi - 2 (s + w) where
    # -x is.
    flip = b.xor(big, negative)
    direct = b.and_(big, b.not_(negative))
    zero = b.const(0.0, x)
    base, base_low = b.select(direct, zero, b.const(high, x)), b.select(direct, zero, b.const(low, x))
    s, w = b.select(flip, s, b.neg(s)), b.select(flip, w, b.neg(w))
    total = b.add(base, b.add(s, b.add(w, base_low)))
    return b.select(big, b.add(total, total), total)


def _arctangent_of_fraction(b: FunctionBuilder, t: Val) -> tuple[Val, Val]:
    """t and w with atan(t) = t + w, for t in [0, 1]."""
    z = b.mul(t, t)
    return t, b.mul(b.mul(polynomial(b, z, ATAN[format_of(t).kind], plain=1), z), t)


@widened
def atan(b: FunctionBuilder, x: Val) -> Val:
    """Inverse tangent: of the inverse where |x| > 1."""
    a, one = absolute(b, x), b.const(1.0, x)
    inverse = b.fcmp("ogt", a, one)
    t, w = _arctangent_of_fraction(b, b.select(inverse, b.div(one, a), a))
    high, low = split(PI, x.type.kind, 2, 0.5)
    complement = b.sub(b.const(high, x), b.add(t, b.sub(w, b.const(low, x))))
    return with_sign_of(b, b.select(inverse, complement, b.add(t, w)), x)


@widened
def atan2(b: FunctionBuilder, y: Val, x: Val) -> Val:
    """The angle of the point (x, y), in [-pi, pi]: C's atan2, signed zeros and infinities included."""
    ax, ay, zero = absolute(b, x), absolute(b, y), b.const(0.0, x)
    steep = b.fcmp("ogt", ay, ax)
    small, large = b.select(steep, ax, ay), b.select(steep, ay, ax)
    same = b.select(b.fcmp("oeq", large, zero), zero, b.const(1.0, x))  # also 0 / 0 and inf / inf
    t, w = _arctangent_of_fraction(b, b.select(b.fcmp("oeq", small, large), same, b.div(small, large)))
    bits = to_bits(b, x)
    behind = b.icmp("slt", bits, b.const(0, bits))
    minus = b.xor(steep, behind)
    t, w = b.select(minus, b.neg(t), t), b.select(minus, b.neg(w), w)
    high, low = split(PI, x.type.kind, 2)
    base = b.select(steep, b.const(high / 2, x), b.select(behind, b.const(high, x), zero))
    base_low = b.select(steep, b.const(low / 2, x), b.select(behind, b.const(low, x), zero))
    return with_sign_of(b, b.add(base, b.add(t, b.add(w, base_low))), y)
