"""Circular functions and their inverses.

Enters: half, bfloat, float or double operands, vectors or scalars. Leaves: the result in the operand's type. See `math` for accuracy.

Arguments are reduced by fused multiply-adds with pi in three parts (W. J. Cody and W. Waite, 1980) as long as that is exact. Where a lane
holds more, a function that is called for the whole vector reduces it with as many bits of 2 / pi as it takes (M. Payne and R. Hanek,
Radian reduction for trigonometric functions, SIGNUM Newsletter 18, 1983): a branch that ordinary data never takes.
"""

from __future__ import annotations

import functools

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
    widened,
    with_sign_of,
)
from graphcell.codegen.llvm.text import F64, I64, PTR, FunctionBuilder, LType, Val

# (sin(r) / r - 1) / z with z = r**2, on [0, 1.6].
_SIN = {
    "float": (-0.1666666021220677, 0.008333055575113732, -0.00019807604306395804, 2.5996676478066726e-06),
    "double": (-0.16666666666666666, 0.008333333333333212, -0.00019841269841209793, 2.755731921047129e-06, -2.5052106758552672e-08,
               1.6058931905247237e-10, -7.642747081826744e-13, 2.718263279285988e-15),
}
# The same, and (cos(r) - 1 + z / 2) / z**2, on [0, pi / 4].
_SIN_NARROW = {
    "float": (-0.16666653939350937, 0.008332051179695415, -0.00019497237697974006),
    "double": (-0.16666666666666638, 0.008333333333322663, -0.00019841269829234034, 2.7557313313449685e-06, -2.505067954359485e-08,
               1.589145719214071e-10),
}
_COS_NARROW = {
    "float": (0.0416666539150406, -0.001388760448081184, 2.4457094094436246e-05),
    "double": (0.04166666666666465, -0.0013888888888882213, 2.4801587294058422e-05, -2.7557315526882754e-07, 2.0875863309135774e-09,
               -1.1365946290639974e-11),
}
# (asin(s) / s - 1) / z with z = s**2, on [0, 1/2].
_ASIN = {
    "float": (0.16666731146014482, 0.07495668270243555, 0.04546570129359127, 0.024057044689842287, 0.04255359910631138),
    "double": (0.16666666666666702, 0.07499999999984511, 0.04464285716363594, 0.030381943144576987, 0.02237220493303362,
               0.017351756627662262, 0.01397947103515303, 0.011407153963814276, 0.010748063085251194, 0.003780689950390118,
               0.02162990743808637, -0.02102061110428858, 0.032716104830792556),
}
# (atan(t) / t - 1) / z with z = t**2, on [0, 1].
_ATAN = {
    "float": (-0.33333312366917195, 0.19998842189770497, -0.1426634639790786, 0.10958582426322272, -0.08410654565410637,
              0.057913541726363635, -0.03099129028863592, 0.010748500245625604, -0.0017437011444758157),
    "double": (-0.3333333333333324, 0.19999999999976292, -0.14285714283804404, 0.11111111038037112, -0.09090907471937215,
               0.07692284495487242, -0.06666436182172143, 0.058806875673309784, -0.05254104584926104, 0.04723928121291699,
               -0.04222474230570707, 0.03669202432017536, -0.02995853540634635, 0.022023958131454933, -0.01390290046184851,
               0.007189111091759473, -0.0028733622551054337, 0.0008246772905138402, -0.0001502002440353288, 1.2979577085274716e-05),
}
# Reduction by three parts of pi is exact enough up to these.
_LARGE = {"float": 2.0**16, "double": 2.0**28}
_REDUCE = "graphcell.reduce_half_pi"


# -- reduction of ordinary arguments -------------------------------------------------------------------------------------
def _remainder(b: FunctionBuilder, x: Val, k: Val, scale: float) -> Val:
    """x - k * (pi * scale)."""
    r = x
    for part in split(PI, x.type.kind, 3, scale):
        r = b.fma(k, b.const(-part, x), r)
    return r


def _inverse_pi(kind: str) -> float:
    return split(_reciprocal_of_pi(), kind, 1)[0]


@functools.cache
def _reciprocal_of_pi() -> str:
    digits = 40
    return f"0.{10 ** (2 * digits) // int(PI.replace('.', '')[:digits + 1]):040d}"


def _alternate(b: FunctionBuilder, r: Val, shifted: Val) -> Val:
    """-r where the integer in the low bits of `shifted` is odd."""
    bits = to_bits(b, shifted)
    odd = b.shl(bits, b.const(bits.type.bits - 1, bits))
    return from_bits(b, b.xor(to_bits(b, r), odd))


def _sine_of_reduced(b: FunctionBuilder, r: Val) -> Val:
    z = b.mul(r, r)
    return with_sign_of(b, b.fma(b.mul(polynomial(b, z, _SIN[r.type.kind]), z), r, r), r)


@widened
def sin(b: FunctionBuilder, x: Val) -> Val:
    """Sine, for every finite argument; NaN at infinities."""
    form = format_of(x)
    magic = b.const(form.magic, x)
    shifted = b.fma(x, b.const(_inverse_pi(form.kind), x), magic)
    r = _alternate(b, _remainder(b, x, b.sub(shifted, magic), 1.0), shifted)
    return _sine_of_reduced(b, _reduce_if_large(b, x, r, 0))


@widened
def cos(b: FunctionBuilder, x: Val) -> Val:
    """Cosine, for every finite argument; NaN at infinities: x = (k + 1/2) pi - r gives sin(r), or its opposite for odd k."""
    form = format_of(x)
    magic, half = b.const(form.magic, x), b.const(0.5, x)
    shifted = b.add(b.fma(x, b.const(_inverse_pi(form.kind), x), b.neg(half)), magic)
    r = b.neg(_remainder(b, x, b.add(b.sub(shifted, magic), half), 1.0))
    return _sine_of_reduced(b, _reduce_if_large(b, x, _alternate(b, r, shifted), 1))


@widened
def tan(b: FunctionBuilder, x: Val) -> Val:
    """Tangent, for every finite argument; NaN at infinities: sin(r) / cos(r) with r = x - k pi / 2, or -cos(r) / sin(r) for odd k."""
    form = format_of(x)
    magic = b.const(form.magic, x)
    shifted = b.fma(x, b.const(2.0 * _inverse_pi(form.kind), x), magic)
    r = _remainder(b, x, b.sub(shifted, magic), 0.5)
    bits = to_bits(b, shifted)
    quadrant = b.and_(bits, b.const(1, bits))
    r, quadrant = _reduce_tangent_if_large(b, x, r, quadrant)
    z = b.mul(r, r)
    sine = with_sign_of(b, b.fma(b.mul(polynomial(b, z, _SIN_NARROW[form.kind]), z), r, r), r)
    one = b.const(1.0, x)
    cosine = b.fma(b.fma(polynomial(b, z, _COS_NARROW[form.kind]), z, b.const(-0.5, x)), z, one)
    odd = b.icmp("ne", quadrant, b.const(0, quadrant))
    return b.div(b.select(odd, b.neg(cosine), sine), b.select(odd, sine, cosine))


# -- reduction of large arguments ----------------------------------------------------------------------------------------
def _reduce_if_large(b: FunctionBuilder, x: Val, r: Val, phase: int) -> Val:
    """`r` where |x| is ordinary; else the t in [-pi/2, pi/2] with sin(t) = sin(x + phase * pi / 2). x may be inf or NaN: so is t."""
    slot = b.alloca(r.type)
    b.store(r, slot)
    large = b.fcmp("ogt", absolute(b, x), b.const(_LARGE[x.type.kind], x))
    with b.if_then(any_lane(b, large)):
        near, quadrant = _reduced_by_call(b, x)
        quadrant = b.add(quadrant, b.const(phase, quadrant))
        odd = b.icmp("ne", b.and_(quadrant, b.const(1, quadrant)), b.const(0, quadrant))
        folded = b.sub(b.const(split(PI, "double", 1, 0.5)[0], near), absolute(b, near))
        t = b.select(odd, folded, near)
        below = b.icmp("ne", b.and_(quadrant, b.const(2, quadrant)), b.const(0, quadrant))
        t = b.cast(b.select(below, b.neg(t), t), r.type)
        b.store(b.select(large, t, r), slot)
    return b.load(slot, r.type, 64)


def _reduce_tangent_if_large(b: FunctionBuilder, x: Val, r: Val, quadrant: Val) -> tuple[Val, Val]:
    """`r` and `quadrant` where |x| is ordinary; else x = q pi / 2 + r with r in [-pi/4, pi/4], and quadrant is q modulo 2."""
    slot, quadrant_slot = b.alloca(r.type), b.alloca(quadrant.type)
    b.store(r, slot)
    b.store(quadrant, quadrant_slot)
    large = b.fcmp("ogt", absolute(b, x), b.const(_LARGE[x.type.kind], x))
    with b.if_then(any_lane(b, large)):
        near, q = _reduced_by_call(b, x)
        parity = b.cast(b.and_(q, b.const(1, q)), quadrant.type)
        b.store(b.select(large, b.cast(near, r.type), r), slot)
        b.store(b.select(large, parity, quadrant), quadrant_slot)
    return b.load(slot, r.type, 64), b.load(quadrant_slot, quadrant.type, 64)


def _reduced_by_call(b: FunctionBuilder, x: Val) -> tuple[Val, Val]:
    """r (double) and q (i64) with x = q pi / 2 + r, by a call for the whole vector."""
    if _REDUCE not in b.module.functions:
        _emit_reduction(b)
    wide, whole = x.type.with_kind("double"), x.type.with_kind("i64")
    arguments, near, quadrant = b.alloca(wide), b.alloca(wide), b.alloca(whole)
    b.store(b.cast(x, wide), arguments, 64)
    b.call(_REDUCE, LType("void"), arguments, near, quadrant, Val(str(max(1, x.type.lanes)), I64))
    return b.load(near, wide, 64), b.load(quadrant, whole, 64)


def _emit_reduction(b: FunctionBuilder) -> None:
    """Emits `void reduce(ptr x, ptr r, ptr q, i64 n)`, for n doubles with |x| >= 2**-9; inf and NaN give NaN."""
    f = FunctionBuilder(b.module, _REDUCE, [("x", PTR), ("r", PTR), ("q", PTR), ("n", I64)], attributes="nounwind noinline cold")
    words = ", ".join(f"i64 {word}" for word in _two_over_pi_words())
    count = len(_two_over_pi_words())
    table = b.module.add_global(f"{_REDUCE}.table", f"internal constant [{count} x i64] [{words}], align 64")
    with f.loop(0, f.args["n"]) as loop:
        x = f.load(f.gep(f.args["x"], loop.index, F64), F64)
        r, quadrant = _reduce_scalar(f, x, table)
        finite = f.fcmp("olt", absolute(f, x), infinity(x))
        f.store(f.select(finite, r, f.const(float("nan"), F64)), f.gep(f.args["r"], loop.index, F64))
        f.store(quadrant, f.gep(f.args["q"], loop.index, I64))
    f.finish()


_TABLE_PADDING = 64  # zero bits before the binary point of 2 / pi in the table
_WIDE = LType("i128")


@functools.cache
def _two_over_pi_words() -> tuple[int, ...]:
    """2 / pi as 64-bit words, most significant first, behind _TABLE_PADDING zero bits: enough for the largest double."""
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


def _reduce_scalar(f: FunctionBuilder, x: Val, table: Val) -> tuple[Val, Val]:
    """r and q with x = q pi / 2 + r: the product of the mantissa with the 192 bits of 2 / pi that count, modulo 4."""
    bits = to_bits(f, x)
    field = f.and_(f.shr(bits, f.const(52, I64)), f.const(0x7FF, I64))
    mantissa = f.or_(f.and_(bits, f.const((1 << 52) - 1, I64)), f.const(1 << 52, I64))
    # x = mantissa * 2**(field - 1075). Bits of 2 / pi before `first` contribute multiples of 4. (The bounds guard inf and NaN only.)
    first = f.sub(field, f.const(1075 + 2 - _TABLE_PADDING, I64))
    first = f.binary("smin", f.binary("smax", first, f.const(0, I64)), f.const(2046 - 1077 + _TABLE_PADDING, I64))
    index, shift = f.shr(first, f.const(6, I64)), f.and_(first, f.const(63, I64))
    raw = [f.load(f.gep(f.gep(table, index, I64), k, I64), I64) for k in range(4)]
    w = [f.intrinsic("fshl.i64", I64, raw[k], raw[k + 1], shift) for k in range(3)]
    m = f.cast(mantissa, _WIDE, signed=False)
    products = [f.mul(m, f.cast(word, _WIDE, signed=False)) for word in w]
    top = f.shl(products[0], f.const(64, _WIDE))
    product = f.add(f.add(top, products[1]), f.shr(products[2], f.const(64, _WIDE)))  # x * 2 / pi modulo 4, times 2**126
    quadrant = f.shr(f.add(product, f.const(1 << 125, _WIDE)), f.const(126, _WIDE))
    near = _scaled_by_half_pi(f, f.sub(product, f.shl(quadrant, f.const(126, _WIDE))))
    negative = f.icmp("slt", bits, f.const(0, I64))
    quadrant = f.cast(quadrant, I64)
    return f.select(negative, f.neg(near), near), f.select(negative, f.neg(quadrant), quadrant)


def _scaled_by_half_pi(f: FunctionBuilder, fraction: Val) -> Val:
    """The double nearest to fraction * 2**-126 * pi / 2 (or next to it), for a signed i128."""
    negative = f.icmp("slt", fraction, f.const(0, _WIDE))
    magnitude = f.select(negative, f.neg(fraction), fraction)
    leading = f.intrinsic("ctlz.i128", _WIDE, magnitude, Val("false", LType("i1")))
    leading = f.binary("umin", leading, f.const(127, _WIDE))
    top = f.cast(f.shr(f.shl(magnitude, leading), f.const(66, _WIDE)), I64)  # 62 bits
    high = f.cast(top, F64)
    low = f.cast(f.sub(top, f.raw(f"fptosi {high} to i64", I64)), F64)
    exponent = f.sub(f.const(1023 - 60, I64), f.cast(leading, I64))
    scale = from_bits(f, f.shl(exponent, f.const(52, I64)))
    half_pi, rest = split(PI, "double", 2, 0.5)
    product = f.fma(high, f.const(half_pi, F64), f.fma(high, f.const(rest, F64), f.mul(low, f.const(half_pi, F64))))
    product = f.mul(product, scale)
    return f.select(negative, f.neg(product), product)


# -- inverse functions ---------------------------------------------------------------------------------------------------
def _arcsine_parts(b: FunctionBuilder, x: Val) -> tuple[Val, Val, Val]:
    """big, s, w: asin(|x|) = s + w, or pi/2 - 2 (s + w) where `big` holds, with w small."""
    a, half = absolute(b, x), b.const(0.5, x)
    big = b.fcmp("ogt", a, half)
    z = b.select(big, b.fma(b.neg(half), a, half), b.mul(a, a))
    s = b.select(big, b.unary("sqrt", z), a)
    return big, s, b.mul(b.mul(polynomial(b, z, _ASIN[format_of(x).kind]), z), s)


@widened
def asin(b: FunctionBuilder, x: Val) -> Val:
    """Inverse sine; NaN beyond -1 and 1."""
    big, s, w = _arcsine_parts(b, x)
    high, low = split(PI, x.type.kind, 2, 0.5)
    minus_two = b.const(-2.0, x)
    complement = b.add(b.fma(minus_two, s, b.const(high, x)), b.fma(minus_two, w, b.const(low, x)))
    return with_sign_of(b, b.select(big, complement, b.add(s, w)), x)


@widened
def acos(b: FunctionBuilder, x: Val) -> Val:
    """Inverse cosine; NaN beyond -1 and 1."""
    big, s, w = _arcsine_parts(b, x)
    high, low = split(PI, x.type.kind, 2, 0.5)
    negative = b.fcmp("olt", x, b.const(0.0, x))
    # pi/2 - (s + w) or pi/2 + (s + w) where x is small; 0 + 2 (s + w) where it is large, pi - 2 (s + w) where -x is.
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
    return t, b.mul(b.mul(polynomial(b, z, _ATAN[format_of(t).kind], plain=1), z), t)


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
