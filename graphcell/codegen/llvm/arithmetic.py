"""Rounding, comparison, division with a remainder, and integer powers.

Enters: float operands (half, bfloat, float, double) or integers where it is said; vectors or scalars of one
type. Leaves: the result in the operands' type, or i1 for tests. Nothing traps: x / 0 of integers is 0, the
least integer by -1 wraps around.
"""

from __future__ import annotations

from graphcell.codegen.llvm.polynomials import absolute, any_lane, format_of, infinity, widened, with_sign_of
from graphcell.codegen.llvm.text import F64, I64, PTR, VOID, FunctionBuilder, Val, i64

_FMOD = "graphcell.fmod"


# -- rounding and tests --------------------------------------------------------------------------------------
def round(b: FunctionBuilder, x: Val) -> Val:
    """The nearest integer, halves to the even one."""
    return b.unary("roundeven", x)


def floor(b: FunctionBuilder, x: Val) -> Val:
    """The next integer below."""
    return b.unary("floor", x)


def ceil(b: FunctionBuilder, x: Val) -> Val:
    """The next integer above."""
    return b.unary("ceil", x)


def trunc(b: FunctionBuilder, x: Val) -> Val:
    """The next integer toward zero."""
    return b.unary("trunc", x)


def sign(b: FunctionBuilder, x: Val) -> Val:
    """-1, 0 or 1, of floats or signed integers; 0 for zeros of either sign and, as in MindSpore, for NaN."""
    zero = b.const(0, x)
    above = b.fcmp("ogt", x, zero) if x.type.is_float else b.icmp("sgt", x, zero)
    below = b.fcmp("olt", x, zero) if x.type.is_float else b.icmp("slt", x, zero)
    return b.select(above, b.const(1, x), b.select(below, b.const(-1, x), zero))


def minimum(b: FunctionBuilder, x: Val, y: Val, signed: bool = True) -> Val:
    """The smaller operand, NaN if either is; integers too. Which zero min(+0, -0) gives is left open."""
    return _extremum(b, "min", x, y, signed)


def maximum(b: FunctionBuilder, x: Val, y: Val, signed: bool = True) -> Val:
    """The larger operand, NaN if either is; integers too. Which zero max(+0, -0) gives is left open."""
    return _extremum(b, "max", x, y, signed)


def _extremum(b: FunctionBuilder, kind: str, x: Val, y: Val, signed: bool) -> Val:
    if x.type.is_float:
        return _float_minimum(b, x, y) if kind == "min" else _float_maximum(b, x, y)
    return b.binary(f"{'s' if signed else 'u'}{kind}", x, y)


@widened
def _float_minimum(b: FunctionBuilder, x: Val, y: Val) -> Val:
    return _unordered_zeros(b, "minimum", x, y)


@widened
def _float_maximum(b: FunctionBuilder, x: Val, y: Val) -> Val:
    return _unordered_zeros(b, "maximum", x, y)


def _unordered_zeros(b: FunctionBuilder, intrinsic: str, x: Val, y: Val) -> Val:
    """An order of zeros (the intrinsic without `nsz`) would cost x86 three instructions more."""
    name, t = f"llvm.{intrinsic}.{x.type.suffix}", x.type
    b.module.declare(name, t, [t, t])
    return b.raw(f"call nsz {t} @{name}({x}, {y})", t)


def isnan(b: FunctionBuilder, x: Val) -> Val:
    return b.fcmp("uno", x, x)


def isinf(b: FunctionBuilder, x: Val) -> Val:
    return b.fcmp("oeq", absolute(b, x), infinity(x))


def isfinite(b: FunctionBuilder, x: Val) -> Val:
    return b.fcmp("olt", absolute(b, x), infinity(x))


# -- division ------------------------------------------------------------------------------------------------
def trunc_div(b: FunctionBuilder, x: Val, y: Val, signed: bool = True) -> Val:
    """The quotient rounded toward zero; integers too."""
    if x.type.is_float:
        return b.unary("trunc", b.div(x, y))
    return _integer_division(b, x, y, signed)[0]


def floor_div(b: FunctionBuilder, x: Val, y: Val, signed: bool = True) -> Val:
    """The quotient rounded down; integers too. Of floats it is floor(x / y), as MindSpore defines it."""
    if x.type.is_float:
        return b.unary("floor", b.div(x, y))
    quotient, remainder = _integer_division(b, x, y, signed)
    if not signed:
        return quotient
    return b.select(_mixed_signs(b, remainder, y), b.sub(quotient, b.const(1, x)), quotient)


def floor_mod(b: FunctionBuilder, x: Val, y: Val, signed: bool = True) -> Val:
    """The remainder with the sign of y, as Python's %; integers too (0 where y is 0). NaN where a float y is
    0 or x is infinite.
    """
    if not x.type.is_float:
        remainder = _integer_division(b, x, y, signed)[1]
        return (
            b.select(_mixed_signs(b, remainder, y), b.add(remainder, y), remainder) if signed else remainder
        )
    return _floor_mod(b, x, y)


@widened
def _floor_mod(b: FunctionBuilder, x: Val, y: Val) -> Val:
    zero = b.const(0.0, x)
    remainder = _fmod(b, x, y)
    other = b.xor(b.fcmp("olt", remainder, zero), b.fcmp("olt", y, zero))
    moved = b.select(other, b.add(remainder, y), remainder)
    return b.select(b.fcmp("oeq", remainder, zero), b.binary("copysign", zero, y), moved)


def fmod(b: FunctionBuilder, x: Val, y: Val, signed: bool = True) -> Val:
    """The remainder with the sign of x, as C's fmod, exact; integers too (0 where y is 0)."""
    if x.type.is_float:
        return _fmod(b, x, y)
    return _integer_division(b, x, y, signed)[1]


def _mixed_signs(b: FunctionBuilder, remainder: Val, divisor: Val) -> Val:
    """Whether an integer remainder is not 0 and has the other sign than the divisor."""
    zero = b.const(0, remainder)
    return b.and_(b.icmp("ne", remainder, zero), b.icmp("slt", b.xor(remainder, divisor), zero))


def _integer_division(b: FunctionBuilder, x: Val, y: Val, signed: bool) -> tuple[Val, Val]:
    """Quotient toward zero, and remainder. By a constant LLVM multiplies by its inverse; by others up to 32 bits it is a division of floats,
    which processors have for vectors: exact in so many bits (8 and 16 in float, 32 in double).
    """
    zero = b.const(0, x)
    by_zero = b.icmp("eq", y, zero)
    by_minus_one = b.icmp("eq", y, b.const(-1, y))
    safe = b.select(b.or_(by_zero, by_minus_one) if signed else by_zero, b.const(1, y), y)
    if x.type.bits > 32 or not y.text.startswith("%"):
        quotient = b.div(x, safe, signed=signed)
    else:
        wide = x.type.with_kind("float" if x.type.bits <= 16 else "double")
        ratio = b.div(b.cast(x, wide, signed=signed), b.cast(safe, wide, signed=signed))
        quotient = b.raw(f"{'fptosi' if signed else 'fptoui'} {ratio} to {x.type}", x.type)
    remainder = b.sub(x, b.mul(quotient, safe))  # 0 where the divisor is 0 or -1
    if signed:
        quotient = b.select(by_minus_one, b.neg(x), quotient)
    return b.select(by_zero, zero, quotient), remainder


@widened
def _fmod(b: FunctionBuilder, x: Val, y: Val) -> Val:
    """x - trunc(x / y) * y is exact while the quotient is; where a lane holds a larger one, the C library is
    called.
    """
    quotient = b.unary("trunc", b.div(x, y))
    remainder = b.fma(b.neg(quotient), y, x)
    # A quotient that was rounded up to an integer leaves a remainder of the wrong sign.
    zero = b.const(0.0, x)
    wrong = b.and_(
        b.fcmp("one", remainder, zero), b.xor(b.fcmp("olt", remainder, zero), b.fcmp("olt", x, zero))
    )
    remainder = b.select(wrong, b.add(remainder, b.binary("copysign", y, x)), remainder)
    slot = b.alloca(x.type)
    b.store(with_sign_of(b, remainder, x), slot, 64)
    large = b.fcmp("ogt", absolute(b, quotient), b.const(2.0 ** format_of(x).mantissa, x))
    with b.if_then(any_lane(b, large)):
        b.store(_fmod_by_call(b, x, y), slot, 64)
    result = b.load(slot, x.type, 64)
    whole = b.and_(b.fcmp("oeq", absolute(b, y), infinity(y)), isfinite(b, x))
    return b.select(whole, x, result)


def _fmod_by_call(b: FunctionBuilder, x: Val, y: Val) -> Val:
    if not b.module.has_function(_FMOD):
        f = FunctionBuilder(
            b.module,
            _FMOD,
            [("x", PTR), ("y", PTR), ("r", PTR), ("n", I64)],
            attributes="nounwind noinline cold",
        )
        with f.loop(0, f.args["n"]) as loop:
            first, second = (f.load(f.gep(f.args[name], loop.index, F64), F64) for name in ("x", "y"))
            f.store(f.rem(first, second), f.gep(f.args["r"], loop.index, F64))
        f.finish()
    wide = x.type.with_kind("double")
    slots = [b.alloca(wide) for _ in range(3)]
    b.store(b.cast(x, wide), slots[0], 64)
    b.store(b.cast(y, wide), slots[1], 64)
    b.call(_FMOD, VOID, *slots, i64(max(1, x.type.lanes)))
    return b.cast(b.load(slots[2], wide, 64), x.type)


# -- inverses of divisors (codegen/quotients.py) -------------------------------------------------------------
def inverse_scale(b: FunctionBuilder, c: Val) -> Val:
    """The power of two that brings c near 1; 1 where it is not far."""
    far = 2.0 ** (64 if c.type.kind == "float" else 512)
    size = absolute(b, c)
    small, large = b.fcmp("olt", size, b.const(1 / far, c)), b.fcmp("ogt", size, b.const(far, c))
    return b.select(small, b.const(far, c), b.select(large, b.const(1 / far, c), b.const(1.0, c)))


def inverse_below(b: FunctionBuilder, c: Val) -> Val:
    """1 / c, rounded towards zero; the float before that if that is exact."""
    one = b.const(1.0, c)
    nearest = b.div(one, c)
    bits = b.bitcast(nearest, nearest.type.with_kind("i32" if c.type.kind == "float" else "i64"))
    before = b.bitcast(b.sub(bits, b.const(1, bits)), nearest.type)
    return b.select(b.fcmp("ole", b.fma(b.neg(nearest), c, one), b.const(0.0, c)), before, nearest)


def inverse_rest(b: FunctionBuilder, c: Val, below: Val) -> Val:
    """What `below` lacks of 1 / c; that itself where it is 0 or infinite."""
    rest = b.fma(b.neg(below), c, b.const(1.0, c))
    return b.select(isnan(b, rest), below, b.mul(rest, below))


# -- integer powers ------------------------------------------------------------------------------------------
def integer_pow(b: FunctionBuilder, x: Val, exponent: Val) -> Val:
    """x**exponent of integers by squaring, modulo 2**bits. To a negative exponent it is 1 / x toward zero: 0
    but for 1 and -1.

    (The same instructions serve unsigned operands as long as the exponent has its top bit clear.)
    """
    one, zero = b.const(1, x), b.const(0, x)
    with b.loop(0, x.type.bits - 1, carried=(one, x, exponent), name="power", at_least_once=True) as loop:
        result, base, left = loop.carried
        odd = b.icmp("ne", b.and_(left, one), zero)
        loop.carry(b.select(odd, b.mul(result, base), result), b.mul(base, base), b.shr(left, one))
    unit = b.or_(b.icmp("eq", x, one), b.icmp("eq", x, b.const(-1, x)))
    negative = b.icmp("slt", exponent, zero)
    return b.select(b.and_(negative, b.not_(unit)), zero, loop.results[0])
