"""Incomplete gamma and beta functions and Hurwitz's zeta function for `eval`, in numpy float64.

Enters and leaves: float64 arrays of one shape. Series and continued fractions are taken until no element changes any more. Relative errors
are below 1e-12 for arguments up to 1000 or so, and grow with them: a power is the exponential of a long sum there.
"""

from __future__ import annotations

import math

import numpy as np

from graphcell.ir.op import Array
from graphcell.ops.special import digamma, lgamma

_MOST_TERMS = 100_000
_SMALL = 1e-300
_EPSILON = float(np.finfo(np.float64).eps)
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330)  # B2, B4, …


# -- the incomplete gamma function -------------------------------------------------------------------------------------------
def igamma(a: Array, x: Array) -> Array:
    """The integral of t**(a - 1) exp(-t) from 0 to x, divided by gamma(a): for a > 0 and x >= 0, else NaN."""
    return _gamma_parts(a, x)[0]


def igammac(a: Array, x: Array) -> Array:
    """1 - igamma(a, x), without cancellation."""
    return _gamma_parts(a, x)[1]


def _gamma_parts(a: Array, x: Array) -> tuple[Array, Array]:
    known = (a > 0.0) & (x > 0.0) & np.isfinite(a) & np.isfinite(x)
    a_in, x_in = np.where(known, a, 1.0), np.where(known, x, 1.0)
    by_series = x_in < a_in + 1.0
    lower = _lower_series(np.where(by_series, a_in, 1.0), np.where(by_series, x_in, 1.0))
    upper = _upper_fraction(np.where(by_series, 1.0, a_in), np.where(by_series, 3.0, x_in))
    lower, upper = np.where(by_series, lower, 1.0 - upper), np.where(by_series, 1.0 - lower, upper)
    at_edge = np.where((a > 0.0) & (x == 0.0), 0.0, np.where((a > 0.0) & np.isfinite(a) & (x == np.inf), 1.0, np.nan))
    return np.where(known, lower, at_edge), np.where(known, upper, 1.0 - at_edge)


def _lower_series(a: Array, x: Array) -> Array:
    term = np.ones_like(x)
    total, n = term.copy(), a.copy()
    for _ in range(_MOST_TERMS):
        n = n + 1.0
        term = term * x / n
        total = total + term
        if not (term > _EPSILON * total).any():
            break
    result: Array = total * np.exp(a * np.log(x) - x - lgamma(a + 1.0))
    return result


def _upper_fraction(a: Array, x: Array) -> Array:
    """By Lentz's algorithm, whose factors end within a few units in the last place of 1."""
    b = x + 1.0 - a
    c, d = np.full_like(x, 1.0 / _SMALL), 1.0 / b
    value = d
    for k in range(1, _MOST_TERMS):
        factor = -k * (k - a)
        b = b + 2.0
        d = 1.0 / _kept_off_zero(factor * d + b)
        c = _kept_off_zero(b + factor / c)
        change = c * d
        value = value * change
        if not (np.abs(change - 1.0) > 4 * _EPSILON).any():
            break
    result: Array = value * np.exp(a * np.log(x) - x - lgamma(a))
    return result


def _kept_off_zero(x: Array) -> Array:
    return np.where(np.abs(x) < _SMALL, _SMALL, x)


def igamma_by_a(a: Array, x: Array) -> Array:
    """The derivative of igamma(a, x) with respect to a, to an absolute error of about 1e-13."""
    known = (a > 0.0) & (x > 0.0) & np.isfinite(a) & np.isfinite(x)
    a_in, x_in = np.where(known, a, 1.0), np.where(known, x, 1.0)
    term = np.exp(a_in * np.log(x_in) - x_in - lgamma(a_in + 1.0))
    slope = np.log(x_in) - digamma(a_in + 1.0)  # of the logarithm of the term
    total, n = term * slope, a_in.copy()
    for _ in range(_MOST_TERMS):
        n = n + 1.0
        term, slope = term * x_in / n, slope - 1.0 / n
        part = term * slope
        total = total + part
        if not ((np.abs(part) > 1e-18) | (n < x_in)).any():
            break
    return np.where(known, total, np.where((a > 0.0) & (x >= 0.0), 0.0, np.nan))


# -- the incomplete beta function --------------------------------------------------------------------------------------------
def betainc(a: Array, b: Array, x: Array) -> Array:
    """The integral of t**(a - 1) (1 - t)**(b - 1) from 0 to x, divided by beta(a, b): for a, b > 0 and 0 <= x <= 1, else NaN."""
    known = (a > 0.0) & (b > 0.0) & (x > 0.0) & (x < 1.0) & np.isfinite(a) & np.isfinite(b)
    a_in, b_in, x_in = np.where(known, a, 1.0), np.where(known, b, 1.0), np.where(known, x, 0.5)
    turned = x_in > (a_in + 1.0) / (a_in + b_in + 2.0)
    p, q, t = np.where(turned, b_in, a_in), np.where(turned, a_in, b_in), np.where(turned, 1.0 - x_in, x_in)
    front = np.exp(p * np.log(t) + q * np.log1p(-t) - lgamma(p) - lgamma(q) + lgamma(p + q)) / p
    value = front * _beta_fraction(p, q, t)
    edge = np.where((a > 0.0) & (b > 0.0) & ((x == 0.0) | (x == 1.0)), x, np.nan)
    return np.where(known, np.where(turned, 1.0 - value, value), edge)


def _beta_fraction(a: Array, b: Array, x: Array) -> Array:
    """By Lentz's algorithm."""
    c = np.ones_like(x)
    d = 1.0 / _kept_off_zero(1.0 - (a + b) * x / (a + 1.0))
    value = d
    for m in range(1, _MOST_TERMS):
        change = np.ones_like(x)
        for factor in (m * (b - m) * x / ((a + 2 * m - 1.0) * (a + 2 * m)), -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1.0))):
            d = 1.0 / _kept_off_zero(1.0 + factor * d)
            c = _kept_off_zero(1.0 + factor / c)
            change = c * d
            value = value * change
        if not (np.abs(change - 1.0) > _EPSILON).any():
            break
    return value


# -- Hurwitz's zeta function -------------------------------------------------------------------------------------------------
def zeta(x: Array, q: Array) -> Array:
    """The sum of (q + k)**-x over k = 0, 1, …: infinite for x = 1 and for q = 0, -1, …; NaN for x < 1, and for other q < 0 where x is no integer.

    By Euler and Maclaurin's formula, after the first terms.
    """
    pole = (q <= 0.0) & (q == np.floor(q))
    wrong = (x < 1.0) | ((q < 0.0) & (x != np.floor(x))) | np.isnan(x) | np.isnan(q)
    usable = ~(pole | wrong | (x == 1.0))
    s, n = np.where(usable, x, 2.0), np.where(usable, q, 1.0)
    total = np.zeros_like(s)
    for _ in range(min(_MOST_TERMS, max(0, math.ceil(12.0 - float(n.min(initial=12.0)))))):
        below = n < 12.0
        total = np.where(below, total + n**-s, total)
        n = np.where(below, n + 1.0, n)
    tail = n ** (1.0 - s) / (s - 1.0) + 0.5 * n**-s
    rising = s * n ** (-s - 1.0)
    for k, bernoulli in enumerate(_BERNOULLI, 1):
        tail = tail + bernoulli / math.factorial(2 * k) * rising
        rising = rising * (s + 2 * k - 1.0) * (s + 2 * k) / (n * n)
    return np.where(usable, total + tail, np.where(wrong, np.nan, np.inf))
