"""Writes graphcell/codegen/llvm/tables.py and double_tables.py: the tables of sixteen or eight entries that vector code looks up in registers.

    python tools/fit_tables.py              # rewrites the files (half a minute)

Piecewise polynomials: each segment has a centre whose function value is very nearly a float (S. Gal, Computing elementary functions:
a new approach for achieving high accuracy and good performance, 1985), so that the constant term is as good as exact; the other
coefficients are a minimax fit of (f(centre + r) - f(centre)) / r. The figure behind a table is the largest error of the polynomials
in units in the last place of a number of the kind, before any rounding. Needs mpmath.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import mpmath as mp  # type: ignore[import-untyped]
import numpy as np
from fit_polynomials import Fit, remez
from mpmath import mpf

FOLDER = Path(__file__).resolve().parent.parent / "graphcell/codegen/llvm"
WIDTH = 120
ENTRIES = 16
DEGREE = 5
SHORT = 8, 6
"""Entries and degree for registers of eight floats."""


# -- kinds of numbers ----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Kind:
    """A kind of numbers.

    `round` gives the nearest one; those next to 1 are 2**-`mantissa` apart; `bias` is that of exponents. `exp`, `close` (of results as good as exact), `exp2`,
    `log` and `cube` are the degrees of the polynomials between two entries. Multiples of 1 / `coarse` leave room for an exponent.
    """

    round: Callable[[mpf], float]
    mantissa: int
    bias: int
    exp: int
    close: int
    exp2: int
    log: int
    cube: int
    coarse: float

    @property
    def unit(self) -> float:
        return 2.0**-self.mantissa


FLOAT = Kind(lambda x: float(np.float32(float(x))), 23, 127, exp=1, close=1, exp2=2, log=3, cube=3, coarse=2.0**14)
DOUBLE = Kind(float, 52, 1023, exp=4, close=5, exp2=5, log=8, cube=8, coarse=2.0**41)


# -- piecewise polynomials -----------------------------------------------------------------------------------
@dataclass(frozen=True)
class Piecewise:
    """A function f on [0, limit]: an odd one that rounds to 1 beyond, or, where `slope` is None, one above 0 that falls.

    The segments are those of the numbers s = start + scale * a whose exponent and first `bits` bits of the mantissa agree.
    """

    comment: str
    function: Callable[[mpf], mpf]
    slope: mpf | None  # at 0
    start: float
    scale: float
    bits: int
    limit: float
    centred_as: Piecewise | None = None
    """The function that has the same centres, so that code with both looks them up once."""
    entries: int = ENTRIES
    degree: int = DEGREE
    kind: Kind = FLOAT


def _twice_normal_minus_one(x: mpf) -> mpf:
    return mp.erf(x / mp.sqrt(2))


def _twice_gelu_slope_minus_one(x: mpf) -> mpf:
    return mp.erf(x / mp.sqrt(2)) + 2 * x * mp.npdf(x)


def _tanh_of_gelu(x: mpf) -> mpf:
    return mp.tanh(mp.sqrt(2 / mp.pi) * (x + mpf("0.044715") * x**3))


def _twice_gelu_tanh_slope_minus_one(x: mpf) -> mpf:
    t = _tanh_of_gelu(x)
    return t + x * (1 - t * t) * mp.sqrt(2 / mp.pi) * (1 + 3 * mpf("0.044715") * x * x)


def _scaled_complement(x: mpf) -> mpf:
    return mp.exp(x * x) * mp.erfc(x)


_ERF_SLOPE, _NORMAL_SLOPE = 2 / mp.sqrt(mp.pi), 2 * mp.npdf(0)
_NORMAL = Piecewise("2 normal distribution - 1", _twice_normal_minus_one, _NORMAL_SLOPE, 1.3125, 0.5738, 3, 6.2)
_NORMAL_OF_DOUBLES = Piecewise(_NORMAL.comment, _twice_normal_minus_one, _NORMAL_SLOPE, 1.25, 0.4166, 2, 9.0, entries=8, degree=16, kind=DOUBLE)
_GATE = Piecewise("tanh(u) of gelu_tanh", _tanh_of_gelu, _NORMAL_SLOPE, 1.3125, 0.6134, 3, 5.8)
_GATE_OF_DOUBLES = Piecewise(_GATE.comment, _tanh_of_gelu, _NORMAL_SLOPE, 1.25, 0.4869, 2, 7.7, entries=8, degree=16, kind=DOUBLE)
PIECEWISE = {
    "TANH": Piecewise("tanh", mp.tanh, mpf(1), 1.0, 1.6, 2, 9.1),
    "ERF": Piecewise("erf", mp.erf, _ERF_SLOPE, 1.3125, 0.9, 3, 3.95),
    "NORMAL": _NORMAL,
    "GELU_SLOPE": Piecewise("2 gelu' - 1", _twice_gelu_slope_minus_one, 2 * _NORMAL_SLOPE, 1.3125, 0.5738, 3, 6.2, _NORMAL),
    "GATE": _GATE,
    "GATE_SLOPE": Piecewise("2 gelu_tanh' - 1", _twice_gelu_tanh_slope_minus_one, 2 * _NORMAL_SLOPE, 1.3125, 0.6134, 3, 5.8, _GATE),
    "ERFCX": Piecewise("e**(x**2) (1 - erf(x))", _scaled_complement, None, 1.25, 1.856, 2, 10.1, degree=7),
    "ERF_SHORT": Piecewise("erf", mp.erf, _ERF_SLOPE, 1.25, 0.9258, 2, 4.05, None, *SHORT),
}
PIECEWISE_OF_DOUBLES = {
    "ERF": Piecewise("erf", mp.erf, _ERF_SLOPE, 1.25, 0.63, 2, 5.95, entries=8, degree=15, kind=DOUBLE),
    "NORMAL": _NORMAL_OF_DOUBLES,
    "GELU_SLOPE": replace(
        _NORMAL_OF_DOUBLES, comment="2 gelu' - 1", function=_twice_gelu_slope_minus_one, slope=2 * _NORMAL_SLOPE, centred_as=_NORMAL_OF_DOUBLES
    ),
    "GATE": _GATE_OF_DOUBLES,
    "GATE_SLOPE": replace(
        _GATE_OF_DOUBLES, comment="2 gelu_tanh' - 1", function=_twice_gelu_tanh_slope_minus_one, slope=2 * _NORMAL_SLOPE, centred_as=_GATE_OF_DOUBLES
    ),
    "ERFCX": Piecewise("e**(x**2) (1 - erf(x))", _scaled_complement, None, 1.5, 0.824, 1, 27.3, entries=8, degree=18, kind=DOUBLE),
}


def _edges(p: Piecewise) -> list[tuple[int, float, float]]:
    """For each segment its place in the tables, its begin and its end."""
    found = []
    scale = p.kind.round(mpf(p.scale))
    low = p.start
    while (low - p.start) / scale < p.limit:
        exponent = int(np.floor(np.log2(low)))
        step = 2.0 ** (exponent - p.bits)
        number = int(low // step)
        place = (exponent + p.kind.bias << p.bits | (number & (1 << p.bits) - 1)) % p.entries
        high = (number + 1) * step
        found.append((place, (low - p.start) / scale, min((high - p.start) / scale, p.limit)))
        low = high
    if len({place for place, _, _ in found}) != len(found):
        raise ValueError(f"{p.comment}: {len(found)} segments do not fit into {p.entries} entries")
    return found


def _lift(p: Piecewise) -> mpf:
    """What the slope at 0 loses when it is rounded. It is added to the whole function as lift * a."""
    return p.slope - p.kind.round(p.slope) if p.slope is not None else mpf(0)


def _without_lift(p: Piecewise) -> Callable[[mpf], mpf]:
    lift = _lift(p)
    return lambda a: p.function(a) - lift * a


def _nice_centre(function: Callable[[mpf], mpf], low: float, high: float, kind: Kind) -> float:
    """A number near the middle where the function is very nearly one of the kind: where it meets one of those next to its value there."""
    middle, reach = (low + high) / 2, (high - low) / 4
    value = function(mpf(middle))
    unit = mpf(2) ** (mp.floor(mp.log(value, 2)) - kind.mantissa)
    slope = mp.diff(function, middle)
    best = (mpf(1), middle)
    for k in range(-60, 61):
        goal = (mp.nint(value / unit) + k) * unit
        guess = middle + (goal - value) / slope
        if not low < guess < high or goal >= 1:
            continue
        root = mp.findroot(lambda c, goal=goal: function(c) - goal, guess)
        centre = kind.round(root)
        if abs(centre - middle) < reach:
            distance = abs(centre - middle) / reach
            best = min(best, (abs(function(mpf(centre)) - goal) / unit + mpf(distance) / 50, centre))
    return kind.round(mpf(best[1]))


def _segment(p: Piecewise, low: float, high: float) -> tuple[float, list[float], float]:
    """The centre, the coefficients, and the largest error in ulp, of one segment."""
    f = _without_lift(p)
    margin = (high - low) * 1e-5
    if low == 0.0 and p.slope is not None:
        slope = p.slope - _lift(p)
        fit = Fit("", lambda r: (f(r) / r - slope) / r, lambda r: r * r / f(r), {}, 200)
        rest, _ = remez(fit, mpf(margin), mpf(high + margin), p.degree - 2)
        coefficients = [0.0, *(p.kind.round(c) for c in (slope, *rest))]
        return 0.0, coefficients, _ulps(f, mpf(0), [mpf(0), mpf(coefficients[1]), *rest], high * 1e-4, high, p.kind)
    centre = mpf(_nice_centre(_without_lift(p.centred_as or p), low, high, p.kind))
    first = p.kind.round(f(mpf(centre)))
    fit = Fit("", lambda r: (f(centre + r) - f(centre)) / r, lambda r: abs(r) / f(centre + r), {}, 200)
    rest, _ = remez(fit, mpf(low - margin - centre), mpf(high + margin - centre), p.degree - 1)
    coefficients = [first, *(p.kind.round(c) for c in rest)]
    return float(centre), coefficients, _ulps(f, centre, [mpf(first), *rest], low, high, p.kind)


def _ulps(f: Callable[[mpf], mpf], centre: mpf, coefficients: Sequence[mpf], low: float, high: float, kind: Kind) -> float:
    worst = 0.0
    for a in np.linspace(low, high, 200):
        want = f(mpf(a))
        got = mp.polyval(list(coefficients)[::-1], mpf(a) - centre)
        worst = max(worst, float(abs(got - want) / mpf(2) ** (mp.floor(mp.log(want, 2)) - kind.mantissa)))
    return worst


def _piecewise_text(name: str, p: Piecewise) -> str:
    columns = [[0.0] * p.entries for _ in range(p.degree + 2)]
    worst = 0.0
    for place, low, high in _edges(p):
        centre, coefficients, error = _segment(p, low, high)
        worst = max(worst, error)
        for column, value in zip(columns, (centre, *coefficients), strict=True):
            column[place] = value
    shift = p.kind.mantissa - p.bits
    lines = [f"# {p.comment}: {worst:.2f} ulp.", f"{name} = Segments("]
    head = f"    start={p.start!r}, scale={p.scale!r}, shift={shift}, limit={p.limit!r}, lift={float(_lift(p))!r},"
    lines += [head, *_numbers("    centres=", columns[0], kind=p.kind), "    coefficients=("]
    for column in columns[1:]:
        lines += _numbers("        ", column, kind=p.kind)
    return "\n".join([*lines, "    ),", ")  # fmt: skip"])


def _pieces(tables: dict[str, Piecewise]) -> list[str]:
    return [_piecewise_text(name, p) for name, p in tables.items()]


# -- exponentials and logarithms -----------------------------------------------------------------------------
NEAR = mpf("0.0335")  # more than x * d - 1 of either sign
NEAR_SHORT = mpf("-0.0605"), mpf("0.0635")


def _exponentials(kind: Kind) -> str:
    """2**(k / 16), and what e**r and 2**r are between two of them."""
    step = mp.log(2) / 32 * mpf("1.01")
    rest = Fit("", lambda r: (mp.exp(r) - 1 - r) / r**2, lambda r: r**2 / mp.exp(r), {}, 300)
    whole = Fit("", lambda r: (mpf(2) ** r - 1) / r, lambda r: abs(r) / mpf(2) ** r, {}, 300)
    roots = [mpf(2) ** (mpf(k) / 16) for k in range(ENTRIES)]
    rounded = [kind.round(y) for y in roots]
    lines = ["# 2**(k / 16), and what its rounding lost.", *_numbers("EXP2 = ", rounded, bare=True, kind=kind)]
    lines += _numbers("EXP2_LOST = ", [float(y - x) for x, y in zip(rounded, roots, strict=True)], bare=True, kind=kind)
    for name, comment, fit, high, degree in (
        ("EXP_NEAR", "(e**r - 1 - r) / r**2 for |r| < ln2 / 32", rest, step, kind.exp),
        ("EXP_CLOSE", "The same, for results as good as exact", rest, step, kind.close),
        ("EXP2_NEAR", "(2**r - 1) / r for |r| < 1 / 32", whole, step / mp.log(2), kind.exp2),
    ):
        coefficients, error = remez(fit, -high, high * mpf("1.0001"), degree)
        lines += [f"# {comment}: 2**{mp.nstr(mp.log(error, 2), 3)}.", *_numbers(f"{name} = ", [float(c) for c in coefficients], bare=True, kind=kind)]
    return "\n".join(lines)


def _nice_inverse(low: float, high: float, kind: Kind) -> tuple[float, float]:
    """A number d near 1 / middle, and log(1 / d), which is very nearly one of the kind."""
    middle = kind.round(mpf(2) / (mpf(low) + mpf(high)))

    def error(d: float) -> mpf:
        y = -mp.log(mpf(d))
        return abs(y - mpf(kind.round(y))) / abs(y)

    inverse = min((middle + k * kind.unit for k in range(-3000, 3001)), key=error)
    return inverse, kind.round(-mp.log(mpf(inverse)))


def _cube(ends: tuple[mpf, mpf], degree: int, kind: Kind, of_what: str, name: str) -> list[str]:
    fit = Fit("", lambda r: (mp.log1p(r) - r + r**2 / 2) / r**3, lambda r: abs(r**3 / mp.log1p(r)), {}, 301)
    coefficients, error = remez(fit, *ends, degree)
    comment = f"# (log(1 + r) - r + r**2 / 2) / r**3 for {of_what}: 2**{mp.nstr(mp.log(error, 2), 3)}."
    return [comment, *_numbers(f"{name} = ", [float(c) for c in coefficients], bare=True, kind=kind)]


def _binary(inverses: Sequence[float], kind: Kind, of_what: str, suffix: str) -> list[str]:
    binary = [-mp.log(mpf(d), 2) for d in inverses]
    coarse = [float(mp.nint(y * kind.coarse) / kind.coarse) for y in binary]
    rest = [float(y - x) for x, y in zip(coarse, binary, strict=True)]
    lines = [f"# log2(1 / d) of {of_what}, as a multiple of 2**{-int(mp.log(kind.coarse, 2))} and the rest."]
    lines += _numbers(f"LOG2_VALUES{suffix} = ", coarse, bare=True, kind=kind)
    return lines + _numbers(f"LOG2_VALUES_REST{suffix} = ", rest, bare=True, kind=kind)


def _logarithms(kind: Kind) -> str:
    """Inverses and logarithms of sixteen points of [3/4, 3/2), and of [1, 2)."""
    fit = Fit("", lambda r: (mp.log1p(r) - r) / r**2, lambda r: abs(r**2 / mp.log1p(r)), {}, 301)
    coefficients, error = remez(fit, -NEAR, NEAR * mpf("1.0001"), kind.log)
    around, above = [(1.0, 0.0)] * ENTRIES, [(1.0, 0.0)] * ENTRIES
    for n in range(15, 31):
        if n != 20:
            around[n % ENTRIES] = _nice_inverse(max(n / 20 - 1 / 40, 0.75), min(n / 20 + 1 / 40, 1.5), kind)
    for n in range(1, ENTRIES):
        above[n] = _nice_inverse(1 + n / 15 - 1 / 30, min(1 + n / 15 + 1 / 30, 2), kind)
    reached = [x * around[round(20 * x) % ENTRIES][0] - 1 for x in np.linspace(0.75, 1.4999, 4096)]
    reached += [(1 + x) * above[round(15 * x)][0] - 1 for x in np.linspace(0, 1, 4096)]
    assert max(map(abs, reached)) < NEAR
    lines = [f"# (log(1 + r) - r) / r**2 for |r| < {NEAR}: 2**{mp.nstr(mp.log(error, 2), 3)}."]
    lines += _numbers("LOG_NEAR = ", [float(c) for c in coefficients], bare=True, kind=kind)
    lines += _cube((-NEAR, NEAR * mpf("1.0001")), kind.cube, kind, "the same r", "LOG_NEAR_CUBE")
    for name, comment, pairs in (
        ("LOG", "d and log(1 / d) for x in [3/4, 3/2), where x * d is near 1, at the twentieths next to x modulo 16", around),
        ("LOG1P", "The same for x in [1, 2], at the fifteenths next to x - 1", above),
    ):
        lines += [f"# {comment}.", *_numbers(f"{name}_INVERSES = ", [d for d, _ in pairs], bare=True, kind=kind)]
        lines += _numbers(f"{name}_VALUES = ", [y for _, y in pairs], bare=True, kind=kind)
    lines += _numbers("LOG1P_INVERSES_MINUS_ONE = ", [d - 1 for d, _ in above], bare=True, kind=kind)
    lines += _binary([d for d, _ in around], kind, "the first of these tables", "")
    return "\n".join(lines)


def _short_logarithms() -> list[str]:
    """Inverses and binary logarithms of eight points of [21/32, 21/16), of equal distances as patterns of bits; 1 is the middle of the sixth segment."""
    edges = [0.5 + (k + 2.5) / 16 for k in range(6)] + [1 + (k + 0.5) / 8 for k in range(3)]
    inverses = [1.0 if low < 1 < high else float(np.float32(2 / (low + high))) for low, high in pairwise(edges)]
    reached = [edge * d - 1 for (low, high), d in zip(pairwise(edges), inverses, strict=True) for edge in (low, high)]
    assert min(reached) > NEAR_SHORT[0] and max(reached) < NEAR_SHORT[1]
    lines = _cube(NEAR_SHORT, 4, FLOAT, f"{NEAR_SHORT[0]} < r < {NEAR_SHORT[1]}", "LOG_NEAR_CUBE_SHORT")
    lines += ["# d for x in [21/32, 21/16), where x * d is near 1.", *_numbers("LOG_INVERSES_SHORT = ", inverses, bare=True)]
    return lines + _binary(inverses, FLOAT, "these", "_SHORT")


# -- the file ------------------------------------------------------------------------------------------------
def _numbers(head: str, values: Sequence[float], bare: bool = False, kind: Kind = FLOAT) -> list[str]:
    """A tuple over some lines; with a comma behind it unless it is `bare`."""
    text = ", ".join(_shortest(v) if kind is FLOAT else repr(v) for v in values)
    indent = " " * (len(head) - len(head.lstrip()) + 4)
    lines = textwrap.wrap(f"{text},", WIDTH, initial_indent=indent, subsequent_indent=indent)
    return [f"{head}(", *lines, f"{indent[4:]})  # fmt: skip" if bare else f"{indent[4:]}),"]


def _shortest(value: float) -> str:
    """The fewest digits that give the float again."""
    short = repr(float(str(np.float32(value))))
    return short if np.float32(value) == value else repr(value)


WRITTEN = "Written by tools/fit_tables.py, which says what each\nstands for: do not edit.\n"
FLOATS = f'''"""Tables of sixteen or (`_SHORT`) eight entries, which vector code looks up in a register. {WRITTEN}"""

from graphcell.codegen.llvm.lookup import Segments

'''
DOUBLES = f'''"""Tables of sixteen doubles, which vector code looks up in two registers, or of eight, in one. {WRITTEN}"""

from graphcell.codegen.llvm.lookup import Segments

'''


def main() -> None:
    floats = [*_pieces(PIECEWISE), _exponentials(FLOAT), _logarithms(FLOAT), *_short_logarithms()]
    doubles = [*_pieces(PIECEWISE_OF_DOUBLES), _exponentials(DOUBLE), _logarithms(DOUBLE)]
    for name, header, parts in (("tables", FLOATS, floats), ("double_tables", DOUBLES, doubles)):
        (FOLDER / f"{name}.py").write_text(header + "\n".join(parts) + "\n")
        print(f"wrote {FOLDER / name}.py")


if __name__ == "__main__":
    main()
