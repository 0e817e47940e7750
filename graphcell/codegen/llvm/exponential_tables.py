"""Exponentials and logarithms by tables in registers, for AVX-512.

Enters: float or double operands of any number of lanes. Leaves: the result in the operand's type. See `math` for accuracy and `lookup` for what
is fast. Scaling by an instruction that rounds once and taking numbers apart by instructions that know zeros, denormals, infinities and
NaN leaves next to no special cases.
"""

from __future__ import annotations

from types import ModuleType

from graphcell.codegen.llvm import double_tables, tables
from graphcell.codegen.llvm.lookup import ENTRIES, exponent, look_up, mantissa, scaled
from graphcell.codegen.llvm.polynomials import (
    LN2,
    LOG2_E,
    LOG10_2,
    LOG10_E,
    at_least,
    at_most,
    format_of,
    from_bits,
    polynomial,
    split,
    to_bits,
    truncated_split,
    with_sign_of,
)
from graphcell.codegen.llvm.text import FunctionBuilder, Val

_EXP_RANGE = {"float": (-104.0, 89.0), "double": (-746.0, 710.0)}  # e**x is 0 below and inf above
_EXP2_RANGE = {"float": (-151.0, 128.5), "double": (-1076.0, 1024.5)}
_AROUND_ONE = 3  # the interval [3/4, 3/2) of `mantissa`
_TWENTIETHS, _FIFTEENTHS = 20, 15  # next to which entries of the tables stand: sixteen in that interval, and as many in [0, 1]
_TABLES = {"float": tables, "double": double_tables}


def tables_for(x: Val) -> ModuleType:
    """Those of the kind of an operand."""
    return _TABLES[x.type.kind]


def _magic(b: FunctionBuilder, x: Val) -> Val:
    """Adding it rounds to a multiple of 1 / 16, which stands in the low four bits."""
    return b.const(format_of(x).magic / ENTRIES, x)


def _nearest(b: FunctionBuilder, x: Val, parts: int) -> Val:
    """x * parts as the integer next to it, of which the low bits count."""
    return to_bits(b, b.fma(x, b.const(float(parts), x), b.const(format_of(x).magic, x)))


# -- exponentials --------------------------------------------------------------------------------------------
def exp(b: FunctionBuilder, x: Val, close: bool = False) -> Val:
    """e**x; `close`: within little more than half a unit in the last place."""
    return _exp(b, _within(b, x, _EXP_RANGE), close)


def exp_of_negative(b: FunctionBuilder, x: Val) -> Val:
    """e**x for x that is not above 0."""
    return _exp(b, at_least(b, x, _EXP_RANGE[x.type.kind][0]))


def _within(b: FunctionBuilder, x: Val, ranges: dict[str, tuple[float, float]]) -> Val:
    low, high = ranges[x.type.kind]
    return at_least(b, at_most(b, x, high), low)


def _exp(b: FunctionBuilder, x: Val, close: bool = False) -> Val:
    """e**x within the range."""
    table = tables_for(x)
    rest, k, index = _rest_of_root(b, x, table.EXP_CLOSE if close else table.EXP_NEAR)
    root = look_up(b, table.EXP2, index)
    if close:
        return scaled(b, b.add(b.fma(root, rest, look_up(b, table.EXP2_LOST, index)), root), k)
    return scaled(b, b.fma(root, rest, root), k)


def _rest_of_root(b: FunctionBuilder, x: Val, near: tuple[float, ...], low: Val | None = None) -> tuple[Val, Val, Val]:
    """z, k and n with e**(x + low) = 2**floor(k) * 2**(n / 16) * (1 + z), of which the low four bits of n count.

    x = k ln2 + r, with k a multiple of 1 / 16, so that e**x = 2**floor(k) * 2**(k - floor(k)) * e**r, of which `near` has the coefficients. The roots of 2 are
    in EXP2, what they lost when they were rounded in EXP2_LOST: to add that leaves little more than the last rounding.
    """
    magic = _magic(b, x)
    high, rest_of_high = split(LN2, x.type.kind, 2)
    shifted = b.fma(x, b.const(split(LOG2_E, x.type.kind, 1)[0], x), magic)
    k = b.sub(shifted, magic)
    r = b.fma(k, b.const(-rest_of_high, x), b.fma(k, b.const(-high, x), x))
    r = b.add(r, low) if low is not None else r
    return b.fma(b.mul(r, r), polynomial(b, r, near), r), k, to_bits(b, shifted)


def times_power_of_minus_square(b: FunctionBuilder, y: Val, a: Val) -> Val:
    """y e**(-a**2) for |a| < 28, rounded but once more. It counts what rounding the square lost."""
    square, table = b.mul(a, a), tables_for(a)
    rest, k, index = _rest_of_root(b, b.neg(square), table.EXP_CLOSE, b.fma(b.neg(a), a, square))
    root = look_up(b, table.EXP2, index)
    growth = b.fma(root, rest, look_up(b, table.EXP2_LOST, index))
    product = b.mul(root, y)
    lost = b.fma(root, y, b.neg(product))
    return scaled(b, b.add(product, b.fma(growth, y, lost)), k)


def exp2(b: FunctionBuilder, x: Val) -> Val:
    """2**x, exact for integers."""
    x, magic = _within(b, x, _EXP2_RANGE), _magic(b, x)
    shifted = b.add(x, magic)
    k = b.sub(shifted, magic)
    r = b.sub(x, k)
    root = look_up(b, tables_for(x).EXP2, to_bits(b, shifted))
    rest = b.mul(polynomial(b, r, tables_for(x).EXP2_NEAR), r)
    return scaled(b, b.fma(root, rest, root), k)


def exp2_of_sum(b: FunctionBuilder, x: Val, low: Val) -> Val:
    """2**(x + low) for |x| <= 1200 and |low| <= 2; of floats |x| <= 200."""
    magic = _magic(b, x)
    shifted = b.add(b.add(x, low), magic)
    k = b.sub(shifted, magic)
    r = b.add(b.sub(x, k), low)
    root = look_up(b, tables_for(x).EXP2, to_bits(b, shifted))
    rest = b.mul(polynomial(b, r, tables_for(x).EXP2_NEAR), r)
    return scaled(b, b.fma(root, rest, root), k)


def _exp_of_minus_absolute(b: FunctionBuilder, x: Val) -> Val:
    x = b.without_minus(x)
    return b.once((_exp_of_minus_absolute, x), lambda: (_new_exp_of_minus_absolute(b, x),))[0]


def _new_exp_of_minus_absolute(b: FunctionBuilder, x: Val) -> Val:
    bits = to_bits(b, x)
    minus = from_bits(b, b.or_(bits, b.const(-(1 << (bits.type.bits - 1)), bits)))
    return _exp(b, at_least(b, minus, _EXP_RANGE[x.type.kind][0]), close=True)


def sigmoid(b: FunctionBuilder, x: Val) -> Val:
    """1 / (1 + e**-x): 1 - w, and z - z w for negative x, with z = e**-|x| and w = z / (1 + z), whose errors then weigh little."""
    z, one = _exp_of_minus_absolute(b, x), b.const(1.0, x)
    w = b.div(z, b.add(z, one))
    bits = to_bits(b, x)
    whole = b.select(b.icmp("slt", bits, b.const(0, bits)), z, one)
    return b.fma(b.neg(whole), w, whole)


# -- logarithms ----------------------------------------------------------------------------------------------
def log_near_one(b: FunctionBuilder, r: Val) -> Val:
    """log(1 + r) - r between two entries of a table."""
    square = b.mul(r, r)
    return b.mul(square, polynomial(b, r, tables_for(r).LOG_NEAR, square))


def near_one(b: FunctionBuilder, x: Val) -> tuple[Val, Val, Val, Val]:
    """k, m, d and i with x = 2**k * m, where d is entry i of the table of inverses, and m * d near 1; d is 1 at powers of two.

    m is NaN for x < 0; k is infinite at 0 and inf.
    """
    m = mantissa(b, x, _AROUND_ONE)
    k = b.sub(exponent(b, x), exponent(b, m))
    index = _nearest(b, m, _TWENTIETHS)
    return k, m, look_up(b, tables_for(x).LOG_INVERSES, index), index


def _parts(b: FunctionBuilder, x: Val) -> tuple[Val, Val, Val]:
    """k, v and r with log(x) = k ln2 + v + log(1 + r); v and r are 0 at powers of two."""
    k, m, inverse, index = near_one(b, x)
    return k, look_up(b, tables_for(x).LOG_VALUES, index), b.fma(m, inverse, b.const(-1.0, x))


def log(b: FunctionBuilder, x: Val) -> Val:
    """Natural logarithm."""
    k, v, r = _parts(b, x)
    return _sum_of_parts(b, k, v, r, log_near_one(b, r))


def _sum_of_parts(b: FunctionBuilder, k: Val, v: Val, r: Val, tail: Val) -> Val:
    """k ln2 + v + r + tail."""
    high, low = (b.const(part, k) for part in truncated_split(LN2, k.type.kind, 2))  # both positive: k may be infinite
    return b.add(b.fma(k, high, v), b.fma(k, low, b.add(r, tail)))


def log1p_of_sum(b: FunctionBuilder, x: Val, low: Val | None) -> Val:
    """log(1 + x + low), where `low` is a rounding error of x.

    With u = 1 + x rounded, what that lost is shrunk as u is to lie near 1: by 2**-k, from the distance of two patterns with one mantissa.
    Of the largest u it is left out; where u is inf it is NaN, and does not matter.
    """
    u = b.add(x, b.const(1.0, x))
    lost = b.sub(x, b.sub(u, b.const(1.0, x)))
    lost = b.add(lost, low) if low is not None else lost
    k, m, inverse, index = near_one(b, u)
    v = look_up(b, tables_for(x).LOG_VALUES, index)
    pattern = b.sub(b.add(to_bits(b, m), to_bits(b, b.const(1.0, x))), to_bits(b, u))
    shrunk = b.mul(lost, from_bits(b, b.binary("smax", pattern, b.const(0, pattern))))
    shrunk = b.select(b.fcmp("olt", shrunk, b.const(1.0, x)), shrunk, b.const(1.0, x))
    rounded = b.fma(m, inverse, b.const(-1.0, x))
    r = b.fma(shrunk, inverse, rounded)
    tail = log_near_one(b, r)
    if low is not None:  # without it r is exact where its rounding would matter
        tail = b.add(tail, b.fma(shrunk, inverse, b.sub(rounded, r)))
    return with_sign_of(b, _sum_of_parts(b, k, v, r, tail), x)


def log2(b: FunctionBuilder, x: Val) -> Val:
    """Logarithm to base 2, exact for powers of two."""
    return _log_of_base(b, x, LOG2_E, None)


def log10(b: FunctionBuilder, x: Val) -> Val:
    """Logarithm to base 10."""
    return _log_of_base(b, x, LOG10_E, LOG10_2)


def _log_of_base(b: FunctionBuilder, x: Val, factor: str, of_two: str | None) -> Val:
    """factor * (v + log(1 + r)) + k * of_two, where v is small, too: it is added last but one."""
    k, v, r = _parts(b, x)
    high, low = (b.const(part, x) for part in split(factor, x.type.kind, 2))
    tail = b.add(b.fma(v, low, b.mul(log_near_one(b, r), high)), b.mul(r, low))
    if of_two is not None:
        first, second = (b.const(part, x) for part in truncated_split(of_two, x.type.kind, 2))
        tail = b.fma(k, second, tail)
        k = b.mul(k, first)
    return b.add(k, b.fma(v, high, b.fma(r, high, tail)))


def log1p_of_fraction(b: FunctionBuilder, x: Val) -> Val:
    """log(1 + x) for x in [0, 1]."""
    index, table = _nearest(b, x, _FIFTEENTHS), tables_for(x)
    r = b.fma(x, look_up(b, table.LOG1P_INVERSES, index), look_up(b, table.LOG1P_INVERSES_MINUS_ONE, index))
    return b.add(look_up(b, table.LOG1P_VALUES, index), b.add(r, log_near_one(b, r)))


def softplus(b: FunctionBuilder, x: Val) -> Val:
    """log(1 + e**x)."""
    return b.add(at_least(b, x, 0.0), log1p_of_fraction(b, _exp_of_minus_absolute(b, x)))


def log_sigmoid(b: FunctionBuilder, x: Val) -> Val:
    """log(1 / (1 + e**-x))."""
    return b.sub(at_most(b, x, 0.0), log1p_of_fraction(b, _exp_of_minus_absolute(b, x)))
