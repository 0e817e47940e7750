"""Special values of the real functions in every float dtype, and the accuracy of those that numpy lacks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest

from graphcell import dtype as dt
from graphcell.dtype import DType
from graphcell.ops import arithmetic as a
from graphcell.ops import fallback as f
from graphcell.ops import mathematics as m
from graphcell.ops import special
from graphcell.ops.base import Elementwise

Array = np.ndarray[Any, Any]
inf, nan = math.inf, math.nan

POINTS = [0.0, -0.0, inf, -inf, nan, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0]
NUMPY: dict[Elementwise, Callable[..., Any]] = {
    a.Abs(): np.abs, a.Neg(): np.negative, a.Relu(): lambda x: np.where(x < 0, 0.0, x),
    a.Sign(): lambda x: np.where(np.isnan(x), 0.0, np.sign(x)), m.Exp(): np.exp, m.Exp2(): np.exp2, m.Expm1(): np.expm1, m.Log(): np.log,
    m.Log1p(): np.log1p, m.Log2(): np.log2, m.Log10(): np.log10, m.Sqrt(): np.sqrt, m.Tanh(): np.tanh, m.Sin(): np.sin, m.Cos(): np.cos,
    m.Tan(): np.tan, m.Asin(): np.arcsin, m.Acos(): np.arccos, m.Atan(): np.arctan, m.Sinh(): np.sinh, m.Cosh(): np.cosh,
    m.Asinh(): np.arcsinh, m.Acosh(): np.arccosh, m.Atanh(): np.arctanh, m.Floor(): np.floor, m.Ceil(): np.ceil, m.Trunc(): np.trunc,
    m.Round(): np.round,
}  # fmt: skip
ONE_HALF = 0.5
# what C and IEEE 754 say, where numpy has no such function; the points are 0, -0, inf, -inf, nan
LIMITS = {
    m.Rsqrt(): [inf, -inf, 0.0, nan, nan],
    m.Sigmoid(): [ONE_HALF, ONE_HALF, 1.0, 0.0, nan],
    m.TanhSoftplus(): [0.6, 0.6, 1.0, 0.0, nan],
    m.Softplus(): [math.log(2), math.log(2), inf, 0.0, nan],
    m.Erf(): [0.0, -0.0, 1.0, -1.0, nan],
    m.Erfc(): [1.0, 1.0, 0.0, 2.0, nan],
    m.Erfinv(): [0.0, -0.0, nan, nan, nan],
    m.Lgamma(): [inf, inf, inf, inf, nan],
    m.Digamma(): [-inf, inf, inf, nan, nan],
    f.Polygamma(1): [inf, inf, 0.0, inf, nan],
}  # fmt: skip


def agree(got: Array, want: Array, dtype: DType, what: str) -> None:
    eps = float(dt.finfo(dtype).eps)
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=4 * eps, atol=eps, err_msg=what)
    zero = (want == 0) & (got == 0)
    np.testing.assert_array_equal(np.signbit(got.astype(np.float64))[zero], np.signbit(want)[zero], err_msg=f"sign of zero, {what}")


@pytest.mark.parametrize("dtype", dt.FLOATS, ids=str)
@pytest.mark.parametrize("op", NUMPY, ids=str)
def test_special_values_are_those_of_numpy(op: Elementwise, dtype: DType) -> None:
    x = np.array(POINTS, dtype.np_type)
    with np.errstate(all="ignore"):
        agree(np.asarray(op.eval(x)), np.asarray(NUMPY[op](x.astype(np.float64))), dtype, f"{op} {dtype}")


@pytest.mark.parametrize("dtype", dt.FLOATS, ids=str)
@pytest.mark.parametrize("op", LIMITS, ids=str)
def test_limits(op: Any, dtype: DType) -> None:
    agree(op.eval(np.array(POINTS[:5], dtype.np_type)), np.array(LIMITS[op]), dtype, f"{op} {dtype}")


@pytest.mark.parametrize("dtype", dt.FLOATS, ids=str)
def test_large_and_small_arguments(dtype: DType) -> None:
    top, tiny = float(dt.finfo(dtype).max), float(dt.finfo(dtype).tiny)
    x = np.array([top, -top, tiny, -tiny], dtype.np_type)
    assert m.Sigmoid().eval(x).tolist()[:2] == [1.0, 0.0]
    agree(m.Softplus().eval(x)[:2], np.array([top, 0.0]), dtype, "softplus")
    assert m.Tanh().eval(x).tolist()[:2] == [1.0, -1.0] and m.Erf().eval(x).tolist()[:2] == [1.0, -1.0]
    agree(m.Tanh().eval(x)[2:], np.array([tiny, -tiny]), dtype, "tanh")
    agree(m.Expm1().eval(x)[2:], np.array([tiny, -tiny]), dtype, "expm1")
    hypot = m.Hypot().eval(np.array([top / 2, 3.0], dtype.np_type), np.array([top / 2, 4.0], dtype.np_type)).astype(np.float64)
    np.testing.assert_allclose(hypot, [top / math.sqrt(2), 5.0], rtol=4 * float(dt.finfo(dtype).eps))


def test_two_operands_at_special_points() -> None:
    x, y = (np.array(v) for v in zip(*[(p, q) for p in POINTS for q in POINTS], strict=True))
    with np.errstate(all="ignore"):
        for op, function in ((m.Atan2(), np.arctan2), (m.Pow(), np.power), (m.Hypot(), np.hypot), (a.TruncMod(), np.fmod), (a.Div(), np.divide)):
            agree(op.eval(x, y), function(x, y), dt.float64, str(op))
        agree(a.FloorMod().eval(x, y), np.mod(x, y), dt.float64, "floor_mod")
        np.testing.assert_array_equal(a.Maximum().eval(x, y), np.maximum(x, y))
        np.testing.assert_array_equal(a.Minimum().eval(x, y), np.minimum(x, y))
        quotient = a.FloorDiv().eval(x, y)
        finite = np.isfinite(x) & np.isfinite(y) & (y != 0)
        np.testing.assert_array_equal(quotient[finite], np.floor(x[finite] / y[finite]))
        np.testing.assert_array_equal(np.isnan(quotient), np.isnan(x / y))


def test_saturating_casts() -> None:
    x = np.array([nan, inf, -inf, 3e9, -3e9, 300.7, -1.7, 127.9, -128.9, 1e30])
    assert a.Cast(dt.int8).eval(x).tolist() == [0, 127, -128, 127, -128, 127, -1, 127, -128, 127]
    assert a.Cast(dt.uint8).eval(x).tolist() == [0, 255, 0, 255, 0, 255, 0, 127, 0, 255]
    assert a.Cast(dt.int32).eval(x).tolist() == [0, 2**31 - 1, -(2**31), 2**31 - 1, -(2**31), 300, -1, 127, -128, 2**31 - 1]
    assert a.Cast(dt.int64).eval(x).tolist() == [0, 2**63 - 1, -(2**63), 3 * 10**9, -3 * 10**9, 300, -1, 127, -128, 2**63 - 1]
    assert a.Cast(dt.uint64).eval(x).tolist() == [0, 2**64 - 1, 0, 3 * 10**9, 0, 300, 0, 127, 0, 2**64 - 1]
    assert a.Cast(dt.bool_).eval(np.array([nan, 0.0, -0.0, 1e-300])).tolist() == [True, False, False, True]


RANDOM = np.random.default_rng(0)
ACCURACY = (
    ("erf", special.erf, mpmath.erf, np.r_[RANDOM.uniform(-6, 6, 200), 10 ** RANDOM.uniform(-300, 0, 50)], 1e-15),
    ("erfc", special.erfc, mpmath.erfc, RANDOM.uniform(-3, 26, 200), 2e-15),
    ("erfinv", special.erfinv, mpmath.erfinv, np.r_[RANDOM.uniform(-1, 1, 40), 1 - 10 ** RANDOM.uniform(-15, 0, 40)], 2e-15),
    ("lgamma", special.lgamma, mpmath.loggamma, np.r_[RANDOM.uniform(0, 30, 200), 10 ** RANDOM.uniform(-9, 15, 50)], 2e-15),
    ("lgamma near 1", special.lgamma, mpmath.loggamma, 1 + RANDOM.uniform(-1e-3, 1e-3, 20), 2e-15),
    ("lgamma<0", special.lgamma, lambda x: mpmath.log(abs(mpmath.gamma(x))), RANDOM.uniform(-20, 0, 100), 1e-13),
    ("digamma", special.digamma, mpmath.digamma, np.r_[RANDOM.uniform(0, 1.4, 50), RANDOM.uniform(1.5, 30, 50)], 3e-14),
    ("digamma<0", special.digamma, mpmath.digamma, RANDOM.uniform(-9, 0, 50), 1e-12),
    ("trigamma", lambda x: special.polygamma(1, x), lambda x: mpmath.polygamma(1, x), RANDOM.uniform(-9, 30, 60), 1e-14),
    ("polygamma 4", lambda x: special.polygamma(4, x), lambda x: mpmath.polygamma(4, x), RANDOM.uniform(-3, 9, 60), 1e-12),
)  # fmt: skip


@pytest.mark.parametrize("name, function, reference, points, tolerance", ACCURACY, ids=[row[0] for row in ACCURACY])
def test_accuracy_of_special_functions(name: str, function: Callable[[Array], Array], reference: Callable[[Any], Any], points: Array, tolerance: float) -> None:
    with mpmath.workdps(40), np.errstate(all="ignore"):
        got = function(points)
        want = [reference(mpmath.mpf(float(x))) for x in points]
        worst = max(abs((mpmath.mpf(float(g)) - w) / w) for g, w in zip(got, want, strict=True))
    assert worst < tolerance, f"{name}: relative error {float(worst):.2e}"
