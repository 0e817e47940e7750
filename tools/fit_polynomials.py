"""Writes graphcell/codegen/llvm/coefficients.py: minimax polynomials by Remez exchange, in 60-digit
arithmetic.

    python tools/fit_polynomials.py              # rewrites the file (half a minute)
    python tools/fit_polynomials.py LOG SINH     # prints these tables only

Each fit minimises the largest weighted error on its interval; the weight turns the error of the polynomial
into the relative error of the function that it serves. The bits reached stand behind each table. Needs
mpmath.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import mpmath as mp  # type: ignore[import-untyped]
from mpmath import mpf

mp.mp.prec = 200
OUTPUT = Path(__file__).resolve().parent.parent / "graphcell/codegen/llvm/coefficients.py"
Function = Callable[[mpf], mpf]
WIDTH = 110


@dataclass(frozen=True)
class Fit:
    """One polynomial: what it stands for, and for each precision the interval and the degree."""

    comment: str
    function: Function
    weight: Function
    ranges: dict[str, tuple[mpf, mpf, int]]  # precision -> low, high, degree
    grid: int = 400


def remez(fit: Fit, low: mpf, high: mpf, degree: int) -> tuple[list[mpf], mpf]:
    """The coefficients, ascending, and the largest weighted error."""
    count = degree + 2
    middle, radius = (low + high) / 2, (high - low) / 2
    points = [middle - radius * mp.cos(mp.pi * (k + mpf(1) / 2) / count) for k in range(count)]
    samples = [middle - radius * mp.cos(mp.pi * (k + mpf(1) / 2) / fit.grid) for k in range(fit.grid)]
    values, weights = [fit.function(x) for x in samples], [fit.weight(x) for x in samples]
    for _ in range(60):
        matrix, right = mp.matrix(count, count), mp.matrix(count, 1)
        for row, x in enumerate(points):
            weight = fit.weight(x)
            for column in range(degree + 1):
                matrix[row, column] = weight * x**column
            matrix[row, degree + 1] = (-1) ** row
            right[row] = weight * fit.function(x)
        solution = mp.lu_solve(matrix, right)
        coefficients = [solution[k] for k in range(degree + 1)]
        errors = [
            w * (mp.polyval(coefficients[::-1], x) - y)
            for x, y, w in zip(samples, values, weights, strict=True)
        ]
        largest = max(map(abs, errors))
        extrema = _alternating_extrema(errors, count)
        if len(extrema) < count or largest < abs(solution[degree + 1]) * mpf("1.001"):
            break
        points = [samples[k] for k in extrema]
    return coefficients, largest


def _alternating_extrema(errors: list[mpf], count: int) -> list[int]:
    runs = [0]
    for k in range(1, len(errors)):
        if (errors[k] > 0) != (errors[runs[-1]] > 0):
            runs.append(k)
        elif abs(errors[k]) > abs(errors[runs[-1]]):
            runs[-1] = k
    while len(runs) > count:
        runs.pop(0 if abs(errors[runs[0]]) < abs(errors[runs[-1]]) else -1)
    return runs


# -- what is fitted ------------------------------------------------------------------------------------------
def _odd(function: Function) -> tuple[Function, Function]:
    """(f(x) / x - 1) / z as a function of z = x**2, and the weight for the relative error of an odd f."""

    def quotient(z: mpf) -> mpf:
        x = mp.sqrt(z)
        return (function(x) - x) / x**3

    def weight(z: mpf) -> mpf:
        x = mp.sqrt(z)
        return abs(x**3 / function(x))

    return quotient, weight


def _inverse_erf_ratio(w: mpf) -> mpf:
    """erfinv(x) / x where w = -log(1 - x**2), by Newton's method on log(erfc)."""
    x = mp.sqrt(-mp.expm1(-w))
    goal = mp.log(mp.exp(-w) / (1 + x))
    y = mp.erfinv(mpf(float(x))) if x < mpf("0.99") else mp.sqrt(-goal) * mpf("0.95")
    for _ in range(60):
        step = (mp.log(mp.erfc(y)) - goal) / (-2 / mp.sqrt(mp.pi) * mp.exp(-y * y) / mp.erfc(y))
        y -= step
        if abs(step) < mpf(2) ** -180 * y:
            break
    return y / x


def _inverse_erf_ratio_of_root(s: mpf) -> mpf:
    return _inverse_erf_ratio(s * s)


def _centred(function: Function, centre: str) -> Function:
    return lambda u: function(u + mpf(centre))


def _exp_rest(r: mpf) -> mpf:
    return (mp.exp(r) - 1 - r) / r**2


def _exp2_rest(r: mpf) -> mpf:
    return (mpf(2) ** r - 1 - r * mp.log(2)) / r**2


def _log_rest(f: mpf) -> mpf:
    return (mp.log1p(f) - f + f * f / 2) / f**3


def _erfcx_of_mapped(scale: int) -> Function:
    def function(t: mpf) -> mpf:
        a = scale * (1 + t) / (1 - t)
        return a * mp.exp(a * a) * mp.erfc(a)

    return function


def _scaled_normal_tail(a: mpf) -> mpf:
    return mp.exp(a * a / 2) * mp.erfc(a / mp.sqrt(2)) / 2


def _normal_weight(a: mpf) -> mpf:
    return mp.exp(-a * a / 2) * max(mpf(1), a)


def _mapped(a: str, scale: int) -> mpf:
    return (mpf(a) - scale) / (mpf(a) + scale)


def _lgamma_near(s: mpf) -> mpf:
    return (mp.loggamma(2 + s) - mp.digamma(2) * s) / s**2


def _lgamma_near_weight(s: mpf) -> mpf:
    """For log gamma(2 + s), and for log gamma(1 + s) = log gamma(2 + s) - log(1 + s)."""
    direct = s**2 / mp.loggamma(2 + s) if s >= mpf("-0.5") else mpf(0)
    return max(abs(direct), abs(s**2 / mp.loggamma(1 + s)))


def _stirling_rest(v: mpf) -> mpf:
    a = 1 / mp.sqrt(v)
    return (mp.loggamma(a) - (a - mpf(1) / 2) * mp.log(a) + a - mp.log(2 * mp.pi) / 2) * a


def _digamma_rest(v: mpf) -> mpf:
    a = 1 / mp.sqrt(v)
    return (mp.log(a) - 1 / (2 * a) - mp.digamma(a)) / v


def _digamma_near(zero: mpf) -> tuple[Function, Function]:
    """The function, and the weight for digamma(zero + s) and digamma(zero + s - 1), both relative."""

    def function(s: mpf) -> mpf:
        return mp.digamma(zero + s) / s

    def weight(s: mpf) -> mpf:
        return max(1 / function(s), abs(s / mp.digamma(zero + s - 1)))

    return function, weight


def _fits() -> dict[str, Fit]:
    ln2 = mp.log(2) * mpf("1.0001")
    low_fraction, high_fraction = mp.sqrt(mpf("0.5")) - mpf("1.000001"), mp.sqrt(2) - mpf("0.999999")
    zero, one = mpf(0), mpf(1)
    sinh, sinh_weight = _odd(mp.sinh)
    sin, sin_weight = _odd(mp.sin)
    tan, tan_weight = _odd(mp.tan)
    asin, asin_weight = _odd(mp.asin)
    atan, atan_weight = _odd(mp.atan)
    quarter = (mp.pi / 4 * mpf("1.02")) ** 2
    erfcx2, erfcx3 = _erfcx_of_mapped(2), _erfcx_of_mapped(3)
    ratio, root_ratio = _inverse_erf_ratio, _inverse_erf_ratio_of_root
    digamma_zero = mp.findroot(mp.digamma, mpf("1.46"))
    digamma, digamma_weight = _digamma_near(digamma_zero)
    quarter_turn = mpf("0.2501")
    fits = {
        "EXP": Fit(
            "(e**r - 1 - r) / r**2 on [-ln2, ln2]",
            _exp_rest,
            lambda r: r**2 / mp.exp(r),
            {"float": (-ln2, ln2, 5), "double": (-ln2, ln2, 11)},
        ),
        "EXP_NARROW": Fit(
            "The same on [-ln2 / 2, ln2 / 2]",
            _exp_rest,
            lambda r: r**2 / mp.exp(r),
            {"float": (-ln2 / 2, ln2 / 2, 4), "double": (-ln2 / 2, ln2 / 2, 9)},
        ),
        "EXPM1": Fit(
            "The same on [-ln2, ln2], for the relative error of e**r - 1",
            _exp_rest,
            lambda r: abs(r**2 / mp.expm1(r)),
            {"float": (-ln2, ln2, 6), "double": (-ln2, ln2, 12)},
        ),
        "EXP2": Fit(
            "(2**r - 1 - r ln2) / r**2 on [-1, 1]",
            _exp2_rest,
            lambda r: r**2 / mpf(2) ** r,
            {"float": (-one, one, 5), "double": (-one, one, 11)},
        ),
        "EXP2_NARROW": Fit(
            "The same on [-1/2, 1/2]",
            _exp2_rest,
            lambda r: r**2 / mpf(2) ** r,
            {"float": (-mpf("0.501"), mpf("0.501"), 4), "double": (-mpf("0.501"), mpf("0.501"), 9)},
        ),
        "LOG": Fit(
            "(log(1 + f) - f + f**2 / 2) / f**3 on [sqrt(1/2) - 1, sqrt(2) - 1]",
            _log_rest,
            lambda f: abs(f**3 / mp.log1p(f)),
            {
                "float": (low_fraction, high_fraction, 7),
                "wide": (low_fraction, high_fraction, 10),
                "double": (low_fraction, high_fraction, 18),
            },
        ),
        "LOG_SERIES": Fit(
            "(2 atanh(s) - 2 s - 2 s**3 / 3) / s**5 with z = s**2, for |s| <= 0.1716",
            lambda z: (2 * mp.atanh(mp.sqrt(z)) - 2 * mp.sqrt(z) - 2 * mp.sqrt(z) ** 3 / 3) / mp.sqrt(z) ** 5,
            lambda z: z**2,
            {"double": (zero, mpf("0.02945"), 6)},
        ),
        "SINH": Fit(
            "(sinh(r) / r - 1) / z with z = r**2, on [0, 0.78]",
            sinh,
            sinh_weight,
            {"float": (zero, mpf("0.61"), 2), "double": (zero, mpf("0.61"), 5)},
        ),
        "COSH": Fit(
            "(cosh(r) - 1 - z / 2) / z**2",
            lambda z: (mp.cosh(mp.sqrt(z)) - 1 - z / 2) / z**2,
            lambda z: z**2 / mp.cosh(mp.sqrt(z)),
            {"float": (zero, mpf("0.61"), 2), "double": (zero, mpf("0.61"), 5)},
        ),
        "SIN": Fit(
            "(sin(r) / r - 1) / z with z = r**2, on [0, pi / 4]",
            sin,
            sin_weight,
            {"float": (zero, quarter, 2), "double": (zero, quarter, 5)},
        ),
        "COS": Fit(
            "(cos(r) - 1 + z / 2) / z**2",
            lambda z: (mp.cos(mp.sqrt(z)) - 1 + z / 2) / z**2,
            lambda z: z**2 / mp.cos(mp.sqrt(z)),
            {"float": (zero, quarter, 2), "double": (zero, quarter, 5)},
        ),
        "TAN": Fit(
            "(tan(r) / r - 1) / z",
            tan,
            tan_weight,
            {"float": (zero, quarter, 6), "double": (zero, quarter, 13)},
        ),
        "ASIN": Fit(
            "(asin(s) / s - 1) / z with z = s**2, on [0, 1/2]",
            asin,
            asin_weight,
            {"float": (zero, mpf("0.25"), 4), "double": (zero, mpf("0.25"), 12)},
        ),
        "ATAN": Fit(
            "(atan(t) / t - 1) / z with z = t**2, on [0, 1]",
            atan,
            atan_weight,
            {"float": (zero, one, 8), "double": (zero, one, 19)},
        ),
        "ERF": Fit(
            "erf(x) / x - 1 with z = x**2, on [0, 1]",
            lambda z: mp.erf(mp.sqrt(z)) / mp.sqrt(z) - 1,
            lambda z: mp.sqrt(z) / mp.erf(mp.sqrt(z)),
            {"float": (zero, one, 6), "double": (zero, one, 12)},
        ),
        "LOG2_ERFC": Fit(
            "log2(erfc(a)) from 1 to where erf(a) is 1, for the relative error of erf(a)",
            lambda a: mp.log(mp.erfc(a), 2),
            lambda a: mp.log(2) * mp.erfc(a) / mp.erf(a),
            {"float": (one, mpf(4), 6), "double": (one, mpf("5.95"), 18)},
            grid=3000,
        ),
        "NORMAL_TAIL": Fit(
            "e**(a**2 / 2) P(z > a) with u = a / (5 + a), z normal, for a <= 5.4; the figure is the absolute error of P, of a P where a > 1",
            lambda u: _scaled_normal_tail(5 * u / (1 - u)),
            lambda u: _normal_weight(5 * u / (1 - u)),
            {"float": (zero, mpf("5.4") / (5 + mpf("5.4")), 6)},
            grid=2000,
        ),
        "ERFCX_2": Fit(
            "a e**(a**2) erfc(a) with t = (a - 2) / (a + 2), from 0.85 to where erfc(a) is 0",
            erfcx2,
            lambda t: 1 / erfcx2(t),
            {"float": (_mapped("0.85", 2), _mapped("10.1", 2), 8)},
        ),
        "ERFCX_3": Fit(
            "The same with t = (a - 3) / (a + 3), from 0.8 on",
            erfcx3,
            lambda t: 1 / erfcx3(t),
            {"double": (_mapped("0.8", 3), _mapped("27.3", 3), 20)},
        ),
        "ERFINV": Fit(
            "(erfinv(x) / x - sqrt(pi) / 2) / w with u = w - 5/2, w = -log(1 - x**2), for w <= 5",
            _centred(lambda w: (ratio(w) - mp.sqrt(mp.pi) / 2) / w, "2.5"),
            lambda u: (u + mpf("2.5")) / ratio(u + mpf("2.5")),
            {"float": (mpf("-2.5"), mpf("2.5"), 9), "double": (mpf("-2.5"), mpf("2.5"), 20)},
        ),
        "ERFINV_TAIL": Fit(
            "erfinv(x) / x with u = sqrt(w) - 3, for 5 <= w",
            _centred(root_ratio, "3"),
            lambda u: 1 / root_ratio(u + 3),
            {"float": (mpf("-0.77"), mpf("1.2"), 10), "double": (mpf("-0.77"), mpf("0.7"), 19)},
        ),
        "ERFINV_FAR": Fit(
            "The same with u = sqrt(w) - 5, for 3.7 <= sqrt(w)",
            _centred(root_ratio, "5"),
            lambda u: 1 / root_ratio(u + 5),
            {"double": (mpf("-1.3"), mpf("1.1"), 19)},
        ),
        "LGAMMA_NEAR": Fit(
            "(log gamma(2 + s) - digamma(2) s) / s**2 on [-1, 1/2], for log gamma(2 + s) from -1/2 on and for log gamma(1 + s)",
            _lgamma_near,
            _lgamma_near_weight,
            {"wide": (-one, mpf("0.5"), 12), "double": (-one, mpf("0.5"), 23)},
        ),
        "LGAMMA_FAR": Fit(
            "a (log gamma(a) - (a - 1/2) log(a) + a - log(2 pi) / 2) with v = 1 / a**2, for 5/2 <= a",
            _stirling_rest,
            lambda v: mp.sqrt(v) / mp.loggamma(1 / mp.sqrt(v)),
            {"wide": (zero, mpf("0.16"), 4), "double": (zero, mpf("0.16"), 11)},
            grid=800,
        ),
        "DIGAMMA_NEAR": Fit(
            "digamma(z + s) / s where z is its zero, 1 <= z + s <= 2, for digamma(z + s) and digamma(z + s - 1)",
            digamma,
            digamma_weight,
            {"wide": (one - digamma_zero, 2 - digamma_zero, 12), "double": (one - digamma_zero, 2 - digamma_zero, 22)},
        ),
        "DIGAMMA_FAR": Fit(
            "a**2 (log(a) - 1 / 2a - digamma(a)) with v = 1 / a**2, for 2 <= a",
            _digamma_rest,
            lambda v: v / mp.digamma(1 / mp.sqrt(v)),
            {"wide": (zero, mpf("0.25"), 5), "double": (zero, mpf("0.25"), 14)},
            grid=800,
        ),
        "SIN_PI": Fit(
            "sin(pi r) / (pi r) with z = r**2, for r <= 1/2",
            lambda z: mp.sinpi(mp.sqrt(z)) / (mp.pi * mp.sqrt(z)),
            lambda z: mp.pi * mp.sqrt(z) / mp.sinpi(mp.sqrt(z)),
            {"wide": (zero, quarter_turn, 5), "double": (zero, quarter_turn, 8)},
        ),
        "COT_PI": Fit(
            "(pi r cot(pi r) - 1) / z with z = r**2, for r <= 1/2; the figure is the error of pi cot(pi r) or of its product with r",
            lambda z: (mp.pi * mp.sqrt(z) * mp.cot(mp.pi * mp.sqrt(z)) - 1) / z,
            mp.sqrt,
            {"wide": (zero, quarter_turn, 8), "double": (zero, quarter_turn, 14)},
        ),
    }
    return fits


# -- the file ------------------------------------------------------------------------------------------------
def _table(name: str, fit: Fit) -> str:
    lines = [*textwrap.wrap(f"# {fit.comment}.", WIDTH, subsequent_indent="# "), f"{name} = {{"]
    for precision, (low, high, degree) in fit.ranges.items():
        coefficients, error = remez(fit, low, high, degree)
        lines.append(f'    "{precision}": (  # 2**{mp.nstr(mp.log(error, 2), 3)}')
        current = "       "
        for c in coefficients:
            text = f" {float(c)!r},"
            if len(current) + len(text) > WIDTH:
                lines.append(current)
                current = "       "
            current += text
        lines += [current, "    ),"]
    return "\n".join([*lines, "}"])


HEADER = '''"""Polynomial coefficients, ascending. Written by tools/fit_polynomials.py, which says what each
table stands for: do not edit.

The figure behind a table is the largest relative error of the function that it serves, in exact arithmetic.
`wide` tables are for float results that are computed in double.
"""

'''


def main(names: list[str]) -> None:
    fits = _fits()
    tables = [_table(name, fits[name]) for name in (names or fits)]
    if names:
        print("\n".join(tables))
        return
    OUTPUT.write_text(HEADER + "\n".join(tables) + "\n")
    print(f"wrote {OUTPUT}")


if __name__ == "__main__":
    main(sys.argv[1:])
