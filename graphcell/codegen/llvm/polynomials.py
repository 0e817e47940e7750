"""Polynomials, split constants and bit tricks that the functions of `math` are made of.

Enters: float or double operands. Leaves: emitted values. Coefficients are ascending and in double precision;
a table that serves both kinds is cut to the kind's own rounding when it is emitted. Every table is a minimax
fit made for this project by tools/fit_polynomials.py.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Concatenate, ParamSpec, TypeVar, cast

import numpy as np

from graphcell.codegen.llvm.text import FunctionBuilder, LType, Val, const
from graphcell.records import dataclass

Emit = TypeVar("Emit", bound=Callable[..., Val])
P = ParamSpec("P")
_HORNER_LIMIT = 9  # a longer chain is split in two, so that its latency does not bound short loops

# Decimal expansions, so that each kind can be split as finely as it needs.
LN2 = "0.6931471805599453094172321214581765680755001343602552541206800094933936"
LOG2_E = "1.4426950408889634073599246810018921374266459541529859341354494069311092"
LOG10_E = "0.4342944819032518276511289189166050822943970058036665661144537831658646"
LOG10_2 = "0.3010299956639811952137388947244930267681898814621085413104274611271081"
PI = "3.1415926535897932384626433832795028841971693993751058209749445923078164"


@dataclass(frozen=True, slots=True)
class FloatFormat:
    """The layout of an IEEE format and the integer that its bits fit in."""

    kind: str
    bits: int
    mantissa: int
    bias: int

    @property
    def magic(self) -> float:
        """Adding this to a small number rounds it to an integer and leaves that integer in the low bits."""
        return 1.5 * 2.0**self.mantissa


FORMATS = {"float": FloatFormat("float", 32, 23, 127), "double": FloatFormat("double", 64, 52, 1023)}


def format_of(x: Val) -> FloatFormat:
    """The format of a float or double operand (TypeError for any other)."""
    if x.type.kind not in FORMATS:
        raise TypeError(f"expected float or double, got {x.type}")
    return FORMATS[x.type.kind]


def _check(name: str, xs: tuple[Val, ...]) -> None:
    if any(x.type != xs[0].type for x in xs):
        raise TypeError(f"{name}: operand types differ: {', '.join(str(x.type) for x in xs)}")
    if not xs[0].type.is_float:
        raise TypeError(f"{name}: expected floats, got {xs[0].type}")


def widened(function: Emit) -> Emit:
    """Lets a function of float or double operands take half and bfloat too: it computes in float and rounds
    the result back. Raises TypeError for other types and for mixed ones.
    """

    @functools.wraps(function)
    def wrapper(b: FunctionBuilder, *xs: Val) -> Val:
        _check(function.__name__, xs)
        narrow = xs[0].type
        if narrow.kind not in ("half", "bfloat"):
            return function(b, *xs)
        return b.cast(function(b, *(b.cast(x, narrow.with_kind("float")) for x in xs)), narrow)

    return cast(Emit, wrapper)


def through_double(function: Callable[Concatenate[str, P], Val]) -> Callable[P, Val]:
    """For functions that float arithmetic cannot give accurately at a fair price: they compute in double.

    `function` gets first the name of the precision that its tables need: "double", or "wide" for results that
    are rounded to float or less; then the builder and the operands.
    """

    def wrapper(b: FunctionBuilder, *xs: Val) -> Val:
        _check(function.__name__, xs)
        narrow = xs[0].type
        emit = cast(Callable[..., Val], function)
        if narrow.kind == "double":
            return emit("double", b, *xs)
        result = emit("wide", b, *(b.cast(x, narrow.with_kind("double")) for x in xs))
        return b.cast(b.cast(result, narrow.with_kind("float")), narrow)

    wrapper.__name__, wrapper.__doc__ = function.__name__, function.__doc__
    return cast(Callable[P, Val], wrapper)


# -- constants -----------------------------------------------------------------------------------------------
@functools.cache
def split(decimal: str, kind: str, parts: int, scale: float = 1.0) -> tuple[float, ...]:
    """`decimal * scale` as an unevaluated sum of numbers of `kind`, the largest first."""
    rest = Fraction(decimal) * Fraction(scale)
    terms: list[float] = []
    for _ in range(parts):
        term = float(np.float32(float(rest))) if kind == "float" else float(rest)
        terms.append(term)
        rest -= Fraction(term)
    return tuple(terms)


@functools.cache
def truncated_split(decimal: str, kind: str, parts: int, scale: float = 1.0) -> tuple[float, ...]:
    """The same sum with every part rounded toward zero, so that all have the sign of the whole."""
    digits = FORMATS[kind].mantissa + 1
    rest = Fraction(decimal) * Fraction(scale)
    terms: list[float] = []
    for _ in range(parts):
        unit = Fraction(2) ** (math.frexp(float(rest))[1] - digits)
        terms.append(float(int(rest / unit) * unit))
        rest -= Fraction(terms[-1])
    return tuple(terms)


# -- evaluation ----------------------------------------------------------------------------------------------
def polynomial(
    b: FunctionBuilder, x: Val, coefficients: Sequence[float], square: Val | None = None, plain: int = 0
) -> Val:
    """sum(coefficients[k] * x**k), by fused multiply-adds.

    A long sum is split into its even and its odd part; the first `plain` terms stay out of that, for the sake
    of accuracy. `square` is x*x if the caller has it already.
    """
    total = _even_and_odd(b, x, coefficients[plain:], square)
    for c in reversed(coefficients[:plain]):
        total = b.fma(total, x, b.const(c, x))
    return total


def _even_and_odd(b: FunctionBuilder, x: Val, coefficients: Sequence[float], square: Val | None) -> Val:
    if len(coefficients) <= _HORNER_LIMIT:
        return _horner(b, x, coefficients)
    square = square if square is not None else b.mul(x, x)
    even, odd = _horner(b, square, coefficients[::2]), _horner(b, square, coefficients[1::2])
    return b.fma(odd, x, even)


def _horner(b: FunctionBuilder, x: Val, coefficients: Sequence[float]) -> Val:
    total = b.const(coefficients[-1], x)
    for c in reversed(coefficients[:-1]):
        total = b.fma(total, x, b.const(c, x))
    return total


# -- bits ----------------------------------------------------------------------------------------------------
def integer_type(x: Val) -> LType:
    return x.type.with_kind(f"i{format_of(x).bits}")


def to_bits(b: FunctionBuilder, x: Val) -> Val:
    return b.bitcast(x, integer_type(x))


def from_bits(b: FunctionBuilder, bits: Val) -> Val:
    return b.bitcast(bits, bits.type.with_kind({32: "float", 64: "double"}[bits.type.bits]))


def scaled_by_low_bits(b: FunctionBuilder, t: Val) -> Val:
    """2**k, where `t` is k + bias + the format's magic number, so that k + bias stands in its low bits. The
    result must be a normal number: 0 < k + bias <= 2 * bias.
    """
    bits = to_bits(b, t)
    return b.with_short_nan(from_bits(b, b.shl(bits, b.const(format_of(t).mantissa, bits))))


def times_small(b: FunctionBuilder, x: Val, power: Val) -> Val:
    """x * power for x >= 0, whose product may be denormal or 0: as x * power + 0, which has the same bits. On Zen 3 a multiplication with such a
    result holds up what stores or selects it for many cycles, a multiply-add does not: of masked scores most powers are 0.
    """
    return b.fma(x, power, b.const(0.0, x))


def at_most(b: FunctionBuilder, x: Val, limit: float) -> Val:
    """min(x, limit); NaN stays NaN."""
    bound = b.const(limit, x)
    return b.select(b.fcmp("ogt", x, bound), bound, x)


def at_least(b: FunctionBuilder, x: Val, limit: float) -> Val:
    """max(x, limit); NaN stays NaN."""
    bound = b.const(limit, x)
    return b.select(b.fcmp("olt", x, bound), bound, x)


def absolute(b: FunctionBuilder, x: Val) -> Val:
    return b.unary("fabs", x)


def with_sign_of(b: FunctionBuilder, x: Val, source: Val) -> Val:
    """`x`, whose sign is either plus or already that of `source`, with the sign of `source`: one instruction
    less than copysign.

    It also mends a zero: a sum such as r + r**3 * p gives +0 for -0 where p < 0.
    """
    bits = to_bits(b, source)
    sign = b.and_(bits, b.const(-(1 << (bits.type.bits - 1)), bits))
    return from_bits(b, b.or_(to_bits(b, x), sign))


def any_lane(b: FunctionBuilder, condition: Val) -> Val:
    """Whether a condition holds in at least one lane, as an i1 scalar."""
    return b.reduce("or", condition)


def infinity(x: Val) -> Val:
    return const(float("inf"), x.type)


def nan(x: Val) -> Val:
    return const(float("nan"), x.type)
