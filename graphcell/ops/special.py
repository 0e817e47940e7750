"""Special functions for `eval`, vectorised in numpy float64: error function and its relatives, log-gamma, polygamma.

Enters and leaves: float64 arrays, except that `widened` takes and gives any float dtype. The tables are Chebyshev coefficients computed
with mpmath at 60 digits; relative errors are below 1e-14 (tests/ops/test_elementwise_special.py), but for log-gamma and digamma next to
their zeros on the negative axis and at 1.4616, where the absolute error is that small.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.polynomial import Polynomial
from numpy.polynomial.chebyshev import chebval

from graphcell.ir.op import Array

_ERF = (  # erf(x) / x on 0 <= x <= 1, in x**2
    0.9754769393826541, -0.14226120510371365, 0.010035582187599796, -0.0005768764699767485, 2.741993125219606e-05,
    -1.1043175507344507e-06, 3.8488755420345036e-08, -1.1808582533875466e-09, 3.2334215826050907e-11, -7.991015947004549e-13,
    1.7990725113961456e-14, -3.718635487818693e-16, 7.103599003714253e-18,
)  # fmt: skip
_ERFCX = (  # (x + 3) exp(x**2) erfc(x) on 1 <= x, in (x - 3) / (x + 3)
    1.0079562350049418, -0.5490126768722887, 0.12580111227947868, -0.02371106682114769, 0.0034938267093962277,
    -0.00035185619584724635, 1.1298923957331285e-05, 3.2408778922441323e-06, -5.385726065139512e-07, -8.461490822043964e-10,
    9.90400760773998e-09, -7.036403525235503e-10, -1.6664490530532747e-10, 2.4118929080791676e-11, 3.026091701393405e-12,
    -6.93160173299352e-13, -6.602568076647207e-14, 1.9752840850225967e-14, 1.8539919229571532e-15, -5.758904861609708e-16,
    -6.544929238677393e-17, 1.6928971240944658e-17, 2.651716783872799e-18,
)  # fmt: skip
_LGAMMA = (  # log gamma(x) / ((x - 1) (x - 2)) on 1 <= x <= 3, in x - 2
    0.44148902545501423, -0.11119580321752523, 0.01951044826068884, -0.003922461463025264, 0.0008478989895953857,
    -0.00019153855341365593, 4.454470184975607e-05, -1.05728743735943e-05, 2.5474336873408417e-06, -6.208535880776316e-07,
    1.5268677399071546e-07, -3.782637660291326e-08, 9.428100823624284e-09, -2.361999702184645e-09, 5.943541905817546e-10,
    -1.501312977072867e-10, 3.8050196458110534e-11, -9.672485299656325e-12, 2.465348198355661e-12, -6.298868140791711e-13,
    1.6128460030283787e-13, -4.137949206814042e-14, 1.0635701227757898e-14, -2.7382420786652826e-15, 7.060670507214892e-16,
    -1.8232177141662118e-16, 4.714169006756272e-17, -1.2204107319639856e-17, 3.1630451661790255e-18, -8.206746544166728e-19,
)  # fmt: skip
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330)  # B2, B4, …
_ASYMPTOTIC_FROM = 12.0  # from here on the asymptotic series below are exact to float64


def widened(function: Callable[[Array], Array], x: Array, at_least: type = np.float64) -> Array:
    """`function` of an array of any float dtype, computed in `at_least` float64 (or float32) and rounded once to its dtype."""
    wide = x.dtype if x.dtype.itemsize >= np.dtype(at_least).itemsize else np.dtype(at_least)
    with np.errstate(all="ignore"):
        return np.asarray(function(x.astype(wide, copy=False))).astype(x.dtype, copy=False)


def erf(x: Array) -> Array:
    """2 / sqrt(pi) times the integral of exp(-t**2) from 0 to x."""
    a = np.abs(x)
    inner = np.minimum(a, 1.0)
    small = inner * chebval(2.0 * inner * inner - 1.0, _ERF)
    return np.copysign(np.where(a <= 1.0, small, 1.0 - _erfc_tail(np.maximum(a, 1.0))), x)


def erfc(x: Array) -> Array:
    """1 - erf(x), without cancellation for large x."""
    tail = _erfc_tail(np.maximum(np.abs(x), 1.0))
    outer = np.where(x > 0, tail, 2.0 - tail)
    return np.where(np.isnan(x), x, np.where(np.abs(x) <= 1.0, 1.0 - erf(x), outer))


def _erfc_tail(x: Array) -> Array:
    """erfc for x >= 1. x**2 is split, since its rounding error would be multiplied by x**2."""
    x = np.minimum(x, 30.0)
    head = x.astype(np.float32).astype(np.float64)
    gauss = np.exp(-head * head) * np.exp(-(x - head) * (x + head))
    t = (x - 3.0) / (x + 3.0)
    return gauss * chebval((t - 0.25) / 0.75, _ERFCX) / (x + 3.0)


def erfinv(y: Array) -> Array:
    """The x with erf(x) = y; infinities at -1 and 1, NaN outside."""
    a = np.abs(y)
    inside = np.where(a < 1.0, a, 0.5)
    log = np.log1p(-inside * inside)
    half = 2.0 / (math.pi * 0.147) + 0.5 * log  # Winitzki's approximation, good to 2e-3
    x = np.sqrt(np.sqrt(half * half - log / 0.147) - half)
    for _ in range(3):  # Halley's method: the number of good digits triples
        error = np.where(inside < 0.5, erf(x) - inside, (1.0 - inside) - erfc(x))
        step = error * (0.5 * math.sqrt(math.pi)) * np.exp(x * x)
        x = x - step / (1.0 + x * step)
    x = np.where(a < 1.0, x, np.where(a == 1.0, np.inf, np.nan))
    return np.copysign(x, y)


def lgamma(x: Array) -> Array:
    """log |gamma(x)|; infinite at 0, -1, -2, …"""
    left = x < 0.5
    positive = _lgamma_positive(np.where(left, 1.0 - x, x))
    sine = np.abs(np.sin(math.pi * (x - np.round(x))))
    reflected = math.log(math.pi) - np.log(np.where(left, sine, 1.0)) - positive
    return np.where(np.isinf(x) | _is_pole(x), np.inf, np.where(left, reflected, positive))


def _is_pole(x: Array) -> Array:
    pole: Array = (x <= 0) & (x == np.floor(x))
    return pole


def _lgamma_positive(x: Array) -> Array:
    """log gamma(x) for x >= 0.5: Stirling's series, or the recurrence down to 1 <= x <= 3."""
    large = np.maximum(x, _ASYMPTOTIC_FROM)
    series = _in_inverse_squares(large, [b / (2 * k * (2 * k - 1)) for k, b in enumerate(_BERNOULLI, 1)])
    stirling = (large - 0.5) * np.log(large) - large + 0.5 * math.log(2.0 * math.pi) + series * large
    base, product = np.minimum(x, _ASYMPTOTIC_FROM), np.ones_like(x)
    for _ in range(9):
        above = base > 3.0
        base = np.where(above, base - 1.0, base)
        product = np.where(above, product * base, product)
    below = base < 1.0
    minus_two = np.where(below, base - 1.0, base - 2.0)  # of base + 1 there; formed so that nothing is rounded next to the zeros
    minus_one = np.where(below, base, base - 1.0)
    middle = minus_one * minus_two * chebval(minus_two, _LGAMMA) + np.log(np.where(below, 1.0, product))
    middle = middle - np.log(np.where(below, base, 1.0))
    return np.where(x >= _ASYMPTOTIC_FROM, stirling, middle)


def _in_inverse_squares(x: Array, coefficients: list[float]) -> Array:
    """c1 / x**2 + c2 / x**4 + …"""
    square = 1.0 / (x * x)
    series = np.zeros_like(x)
    for c in reversed(coefficients):
        series = (series + c) * square
    return series


def digamma(x: Array) -> Array:
    """The derivative of lgamma; -inf at 0, NaN at -1, -2, …"""
    left = x < 0.5
    positive = _digamma_positive(np.where(left, 1.0 - x, x))
    tangent = np.tan(math.pi * (x - np.round(x)))
    reflected = positive - math.pi / np.where(left, tangent, 1.0)
    result = np.where(left, reflected, positive)
    return np.where(x == 0, np.copysign(np.inf, -x), np.where(_is_pole(x), np.nan, result))


def _digamma_positive(x: Array) -> Array:
    result = np.zeros_like(x)
    for _ in range(int(_ASYMPTOTIC_FROM)):
        below = x < _ASYMPTOTIC_FROM
        result = np.where(below, result - 1.0 / x, result)
        x = np.where(below, x + 1.0, x)
    series = _in_inverse_squares(x, [b / (2 * k) for k, b in enumerate(_BERNOULLI, 1)])
    return result + np.log(x) - 0.5 / x - series


def polygamma(order: int, x: Array) -> Array:
    """The derivative of digamma of the given order >= 1; at 0, -1, -2, … infinite for odd orders, NaN for even ones."""
    left = x < 0.5
    positive = _polygamma_positive(order, np.where(left, 1.0 - x, x))
    cotangent = 1.0 / np.where(left, np.tan(math.pi * (x - np.round(x))), 1.0)
    derivative = Polynomial([0.0, math.pi])  # of pi cot(pi x), as a polynomial in cot(pi x)
    for _ in range(order):
        derivative = derivative.deriv() * Polynomial([-math.pi, 0.0, -math.pi])
    reflected = (-1.0) ** order * positive - derivative(cotangent)
    result = np.where(left, reflected, positive)
    return np.where(_is_pole(x), np.inf if order % 2 else np.nan, result)


def _polygamma_positive(order: int, x: Array) -> Array:
    start = _ASYMPTOTIC_FROM + order
    factorial = float(math.factorial(order))
    result = np.zeros_like(x)
    for _ in range(math.ceil(start)):
        below = x < start
        result = np.where(below, result + factorial / x ** (order + 1), result)
        x = np.where(below, x + 1.0, x)
    rising = [b * math.factorial(2 * k + order - 1) / math.factorial(2 * k) for k, b in enumerate(_BERNOULLI, 1)]
    tail = factorial / order + 0.5 * factorial / x + _in_inverse_squares(x, rising)
    result = result + tail / x**order
    signed: Array = result if order % 2 else -result
    return signed
