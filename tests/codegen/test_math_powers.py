"""Powers of codegen/llvm/math.py, against mpmath, numpy in double precision, and C's rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import mpmath as mp  # type: ignore[import-untyped]
import numpy as np
import pytest

from graphcell.codegen.llvm import math, processor
from tests.codegen.accuracy import ENDS, LANES, PRECISION, ULPS, compiled, pairs_of_ends, same, ulps
from tests.codegen.harness import NUMPY_TYPES, build

# Products, products with a root, fractions within and beyond what one float of a logarithm does for, odd and even whole numbers.
CONSTANT_EXPONENTS = (1.0, 2.0, -3.0, 0.5, -0.5, 1.5, -1.5, 2.5, -3.5, 1 / 3, 2.2, -0.75, 3.9, -4.0001, 5.5, 17.0, 18.0, -19.0, 40.3, 1e-3, 1e9)
# Of these also what rounding makes 0, or whole.
MORE_EXPONENTS = (0.0, 1e-50, 3.99999999, float("inf"), float("-inf"), float("nan"))


@pytest.fixture(autouse=True)
def _quiet_numpy() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield


@pytest.fixture(params=["16", "32", "64"])
def width(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The bytes of a vector: without tables, with tables of eight with AVX2, and of sixteen where the processor has AVX-512."""
    monkeypatch.setenv(processor.VECTOR_BYTES_VARIABLE, request.param)
    return str(request.param)


@pytest.mark.parametrize("kind", ["float", "double"])
def test_pow_accuracy(kind: str, width: str) -> None:
    rng = np.random.default_rng(5)
    dtype, big, n = NUMPY_TYPES[kind], 80 if kind == "float" else 600, 400
    x = np.concatenate(
        [
            np.exp(rng.uniform(-big, big, n)),
            rng.uniform(0.5, 2, n),
            np.exp(rng.uniform(-0.01, 0.01, n)),
            -rng.uniform(0, 9, 48),
        ]
    )
    y = np.concatenate(
        [
            rng.uniform(-2, 2, n),
            rng.uniform(-big, big, n),
            rng.uniform(-90 * big, 90 * big, n),
            rng.integers(-9, 9, 48),
        ]
    )
    for low, high in ((21 / 32, 21 / 16), (0.9395, 1.0635)):  # all tables, and around 1
        base = rng.uniform(low, high, 2 * n)
        x, y = np.concatenate([x, base]), np.concatenate([y, rng.uniform(-1.5, 1.5, 2 * n) * big / np.log2(base)])
    x, y = x.astype(dtype), y.astype(dtype)
    with mp.workprec(PRECISION):
        want = [mp.power(mp.mpf(a), mp.mpf(b)) for a, b in zip(x.tolist(), y.tolist(), strict=True)]
        got = compiled("pow", kind, 16, 2)(x, y)
        assert np.max(ulps(got, want)) <= (1.25 if kind == "float" else 1.4)
    assert same(compiled("pow", kind, 0, 2)(x, y), got)


@pytest.mark.parametrize("kind", ["half", "float", "double"])
def test_pow_at_special_values_is_that_of_c(kind: str, width: str) -> None:
    x, y = pairs_of_ends(NUMPY_TYPES[kind])
    want = np.power(x.astype(np.float64), y.astype(np.float64)).astype(x.dtype)
    got = compiled("pow", kind, 4, 2)(x, y)
    inexact = np.isfinite(want) & ~np.isin(np.abs(want), [0, 1])
    assert same(got[~inexact], want[~inexact])
    np.testing.assert_array_max_ulp(got[inexact], want[inexact], 2)


def constant_power(kind: str, exponent: float, lanes: int) -> Callable[..., Any]:
    return build(lambda b, x: math.constant_pow(b, x, exponent), [kind], lanes)


@pytest.mark.slow
@pytest.mark.parametrize("exponent", CONSTANT_EXPONENTS)
@pytest.mark.parametrize("kind", ["float", "double"])
def test_constant_pow_accuracy_and_equal_bits_at_every_width(kind: str, exponent: float, width: str) -> None:
    rng = np.random.default_rng(5)
    dtype, low, high = NUMPY_TYPES[kind], *((-148, 127) if kind == "float" else (-1070, 1023))
    margin = 0 if exponent > 0 else 30 if kind == "float" else 60  # inverses lose bits at the ends
    spread = rng.uniform(low + margin, high - margin, 400) / max(1.0, abs(exponent))
    x = np.concatenate([np.exp2(spread), rng.uniform(0.5, 2, 300), np.exp(rng.uniform(-0.01, 0.01, 100))]).astype(dtype)
    first = constant_power(kind, exponent, 0)(x)
    with mp.workprec(PRECISION):
        error = ulps(first, [mp.power(mp.mpf(v), mp.mpf(float(dtype.type(exponent)))) for v in x.tolist()])
    assert np.max(error) <= (ULPS if exponent > 0 else 2.4)
    for lanes in LANES[1:]:
        assert same(constant_power(kind, exponent, lanes)(x), first)


@pytest.mark.slow
@pytest.mark.parametrize("exponent", CONSTANT_EXPONENTS + MORE_EXPONENTS)
@pytest.mark.parametrize("kind", ["half", "float", "double"])
def test_constant_pow_at_special_values_is_that_of_c(kind: str, exponent: float, width: str) -> None:
    x = np.array(ENDS, NUMPY_TYPES[kind])
    y = np.full(x.shape, exponent, x.dtype)
    want = np.power(x.astype(np.float64), y.astype(np.float64)).astype(x.dtype)
    got = constant_power(kind, exponent, 4)(x)
    inexact = np.isfinite(want) & ~np.isin(np.abs(want), [0, 1])
    assert same(got[~inexact], want[~inexact])
    np.testing.assert_array_max_ulp(got[inexact], want[inexact], 2)
