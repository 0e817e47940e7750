"""Random numbers from a counter: Philox4x32-10, and its words as uniform and normal numbers.

Enters: i32 operands (vectors or scalars of one type). Leaves: words, or floats made from them. The generator
is that of J. Salmon, M. Moraes, R. Dror and D. Shaw, Parallel random numbers: as easy as 1, 2, 3 (SC 2011): a
word depends on the key and the counter alone.
"""

from __future__ import annotations

from graphcell.codegen.llvm.coefficients import COS, SIN
from graphcell.codegen.llvm.exponential import log
from graphcell.codegen.llvm.polynomials import PI, format_of, from_bits, polynomial, split, to_bits
from graphcell.codegen.llvm.text import FunctionBuilder, LType, Val

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10


def philox(
    b: FunctionBuilder, key0: Val, key1: Val, c0: Val, c1: Val, c2: Val, c3: Val
) -> tuple[Val, Val, Val, Val]:
    """Four random i32 for each lane, from a key of two words and a counter of four, the lowest first."""
    for round_number in range(_ROUNDS):
        if round_number:
            key0, key1 = b.add(key0, b.const(_WEYL[0], key0)), b.add(key1, b.const(_WEYL[1], key1))
        high0, low0 = _wide_product(b, c0, _MULTIPLIERS[0])
        high1, low1 = _wide_product(b, c2, _MULTIPLIERS[1])
        c0, c1, c2, c3 = b.xor(b.xor(high1, c1), key0), low1, b.xor(b.xor(high0, c3), key1), low0
    return c0, c1, c2, c3


def _wide_product(b: FunctionBuilder, x: Val, factor: int) -> tuple[Val, Val]:
    """The high and the low half of the unsigned 64-bit product.

    Vectors multiply their even and their odd lanes as i64 in place, which is how processors do it.
    """
    if x.type.lanes % 2 or not x.type.lanes:
        wide = b.mul(
            b.cast(x, x.type.with_kind("i64"), signed=False), b.const(factor, x.type.with_kind("i64"))
        )
        return b.cast(b.shr(wide, b.const(32, wide)), x.type), b.cast(wide, x.type)
    pairs = LType("i64", x.type.lanes // 2)
    both = b.bitcast(x, pairs)
    low_half, shift, by = b.const(0xFFFFFFFF, pairs), b.const(32, pairs), b.const(factor, pairs)
    even, odd = b.mul(b.and_(both, low_half), by), b.mul(b.shr(both, shift), by)
    high = b.or_(b.shr(even, shift), b.and_(odd, b.xor(low_half, b.const(-1, pairs))))
    return b.bitcast(high, x.type), b.mul(x, b.const(factor, x))


def uniform_f32(b: FunctionBuilder, word: Val) -> Val:
    """Floats in [0, 1), multiples of 2**-24."""
    value = b.cast(b.shr(word, b.const(8, word)), word.type.with_kind("float"))
    return b.mul(value, b.const(2.0**-24, value))


def uniform_f64(b: FunctionBuilder, high: Val, low: Val) -> Val:
    """Doubles in [0, 1), multiples of 2**-53: the upper 53 bits of the two words."""
    double = high.type.with_kind("double")
    upper = b.cast(b.shr(high, b.const(5, high)), double)  # 27 bits
    middle = b.and_(b.shl(high, b.const(21, high)), b.const(0x3E00000, high))
    lower = b.cast(b.or_(middle, b.shr(low, b.const(11, low))), double)  # 26 bits
    return b.mul(b.fma(upper, b.const(2.0**26, upper), lower), b.const(2.0**-53, upper))


def normal_f32(b: FunctionBuilder, first: Val, second: Val) -> tuple[Val, Val]:
    """Two independent standard normal floats from two words."""
    return normal_pair(b, uniform_f32(b, first), uniform_f32(b, second))


def normal_f64(b: FunctionBuilder, w0: Val, w1: Val, w2: Val, w3: Val) -> tuple[Val, Val]:
    """Two independent standard normal doubles from four words."""
    return normal_pair(b, uniform_f64(b, w0, w1), uniform_f64(b, w2, w3))


def normal_pair(b: FunctionBuilder, u: Val, v: Val) -> tuple[Val, Val]:
    """sqrt(-2 log(1 - u)) times the cosine and the sine of 2 pi v, for u and v in [0, 1) (G. Box and M.
    Muller, 1958).
    """
    radius = b.unary("sqrt", b.mul(b.const(-2.0, u), log(b, b.sub(b.const(1.0, u), u))))
    cosine, sine = _cosine_and_sine_of_turns(b, v)
    return b.mul(radius, cosine), b.mul(radius, sine)


def _cosine_and_sine_of_turns(b: FunctionBuilder, v: Val) -> tuple[Val, Val]:
    """cos(2 pi v) and sin(2 pi v) for v in [0, 1): the reduction to an eighth of a turn is exact."""
    form = format_of(v)
    magic = b.const(form.magic, v)
    shifted = b.fma(v, b.const(4.0, v), magic)
    rest = b.fma(v, b.const(4.0, v), b.neg(b.sub(shifted, magic)))
    r = b.mul(rest, b.const(split(PI, form.kind, 1, 0.5)[0], v))
    z = b.mul(r, r)
    sine = b.fma(b.mul(polynomial(b, z, SIN[form.kind]), z), r, r)
    cosine = b.fma(b.fma(polynomial(b, z, COS[form.kind]), z, b.const(-0.5, v)), z, b.const(1.0, v))
    quadrant = to_bits(b, shifted)
    one, top = b.const(1, quadrant), b.const(quadrant.type.bits - 1, quadrant)
    odd = b.icmp("ne", b.and_(quadrant, one), b.const(0, quadrant))
    sine_sign = b.shl(b.shr(quadrant, one), top)
    cosine_sign = b.xor(sine_sign, b.shl(quadrant, top))
    cosine, sine = b.select(odd, sine, cosine), b.select(odd, cosine, sine)
    return from_bits(b, b.xor(to_bits(b, cosine), cosine_sign)), from_bits(
        b, b.xor(to_bits(b, sine), sine_sign)
    )
