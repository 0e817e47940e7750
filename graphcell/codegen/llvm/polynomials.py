"""Polynomials, split constants and bit tricks that the functions of `math` are made of.

Enters: float or double operands. Leaves: emitted values. Coefficients are ascending and in double precision; a table that serves both
kinds is cut to the kind's own rounding when it is emitted. Every table is a minimax fit made for this project by tools/fit_polynomials.py.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeVar, cast

import numpy as np

from graphcell.codegen.llvm.text import FunctionBuilder, LType, Val, const

Emit = TypeVar("Emit", bound=Callable[..., Val])
_HORNER_LIMIT = 9  # a longer chain is split in two, so that its latency does not bound short loops

# Decimal expansions, so that each kind can be split as finely as it needs.
LN2 = "0.69314718055994530941723212145817656807550013436025525412068000949339362196969471560586332699641868754200148102"
LOG2_E = "1.44269504088896340735992468100189213742664595415298593413544940693110921918118507988552662289350634449699751830"
LOG10_E = "0.43429448190325182765112891891660508229439700580366656611445378316586464920887077472922494933843174831870610674"
LOG10_2 = "0.30102999566398119521373889472449302676818988146210854131042746112710818927442450948692725211818617204068447719"
PI = "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534211706798214808651"


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

    @property
    def infinity_bits(self) -> int:
        return (2 * self.bias + 1) << self.mantissa


FORMATS = {"float": FloatFormat("float", 32, 23, 127), "double": FloatFormat("double", 64, 52, 1023)}


def format_of(x: Val) -> FloatFormat:
    """The format of a float or double operand (TypeError for any other)."""
    if x.type.kind not in FORMATS:
        raise TypeError(f"expected float or double, got {x.type}")
    return FORMATS[x.type.kind]


def widened(function: Emit) -> Emit:
    """Lets a function of float or double operands take half and bfloat too: it computes in float and rounds the result back."""

    @functools.wraps(function)
    def wrapper(b: FunctionBuilder, *xs: Val) -> Val:
        kind = xs[0].type.kind
        if kind not in ("half", "bfloat"):
            return function(b, *xs)
        result = function(b, *(b.cast(x, x.type.with_kind("float")) for x in xs))
        return b.cast(result, result.type.with_kind(kind))

    return cast(Emit, wrapper)


def through_double(function: Callable[[FunctionBuilder, Val, str], Val]) -> Emit:
    """For functions that float arithmetic cannot give accurately at a fair price: `function` gets doubles and the name of the precision
    that its tables need, "wide" for results that are rounded to float (or less), else "double"."""

    @functools.wraps(function)
    def wrapper(b: FunctionBuilder, *xs: Val) -> Val:
        if xs[0].type.kind == "double":
            return function(b, *xs, "double")
        narrow = xs[0].type
        result = function(b, *(b.cast(x, narrow.with_kind("double")) for x in xs), "wide")
        result = b.cast(result, narrow.with_kind("float"))
        return b.cast(result, narrow)

    return cast(Emit, wrapper)


# -- constants -----------------------------------------------------------------------------------------------------------
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


# -- evaluation ----------------------------------------------------------------------------------------------------------
def polynomial(b: FunctionBuilder, x: Val, coefficients: Sequence[float], square: Val | None = None, plain: int = 0) -> Val:
    """sum(coefficients[k] * x**k), by fused multiply-adds.

    A long sum is split into its even and its odd part; the first `plain` terms stay out of that, for the sake of accuracy. `square` is
    x*x if the caller has it already.
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


# -- bits ----------------------------------------------------------------------------------------------------------------
def integer_type(x: Val) -> LType:
    return x.type.with_kind(f"i{format_of(x).bits}")


def to_bits(b: FunctionBuilder, x: Val) -> Val:
    return b.bitcast(x, integer_type(x))


def from_bits(b: FunctionBuilder, bits: Val) -> Val:
    return b.bitcast(bits, bits.type.with_kind({32: "float", 64: "double"}[bits.type.bits]))


def scaled_by_low_bits(b: FunctionBuilder, t: Val) -> Val:
    """2**k, where `t` is k + bias + the format's magic number, so that k + bias stands in its low bits (0 < k + bias < 2 * bias + 1)."""
    bits = to_bits(b, t)
    return from_bits(b, b.shl(bits, b.const(format_of(t).mantissa, bits)))


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
    """`x`, whose sign is either plus or already that of `source`, with the sign of `source`: one instruction less than copysign.

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
