"""Accuracy and special values of codegen/llvm/math.py, against mpmath, numpy in double precision, and C's
rules.
"""

from __future__ import annotations

import functools
import math as standard_math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import mpmath as mp  # type: ignore[import-untyped]
import numpy as np
import pytest

from graphcell.codegen.llvm import processor, target
from graphcell.codegen.llvm.polynomials import times_small
from graphcell.codegen.llvm.target import host
from graphcell.codegen.llvm.text import FunctionBuilder, Val
from graphcell.ops import special
from tests.codegen.accuracy import INF, LANES, NAN, PRECISION, ULPS, Array, compiled, gate_of_gelu, pairs_of_ends, same, ulps
from tests.codegen.harness import NUMPY_TYPES, build, text_of

Reference = Callable[..., Any]
LESS_ACCURATE = {("tanh", "float"): 2.8, ("tanh", "double"): 2.8}  # of float without AVX-512


@dataclass(frozen=True)
class Case:
    """A function of one operand: its reference, where its values are real, and intervals that are sampled
    more densely.
    """

    reference: Reference
    dense: tuple[tuple[float, float], ...]
    domain: tuple[float, float] = (-INF, INF)
    points: int = 250


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + mp.exp(-x))


def _softplus(x: Any) -> Any:
    return mp.log1p(mp.exp(x)) if x < 0 else x + mp.log1p(mp.exp(-x))


def _tanh_softplus(x: Any) -> Any:
    w = mp.exp(x) * (mp.exp(x) + 2)
    return w / (w + 2)


def _cbrt(x: Any) -> Any:
    return mp.cbrt(x) if x >= 0 else -mp.cbrt(-x)


def _erfc(x: Any) -> Any:
    return mp.erfc(x) if abs(x) < 1000 else mp.mpf(0 if x > 0 else 2)  # mpmath overflows far out


CASES = {
    "acos": Case(mp.acos, ((-1, 1), (0.99, 1)), (-1, 1)),
    "acosh": Case(mp.acosh, ((1, 1.1), (1, 5)), (1, INF)),
    "asin": Case(mp.asin, ((-1, 1), (0.99, 1)), (-1, 1)),
    "asinh": Case(mp.asinh, ((-3, 3),)),
    "atan": Case(mp.atan, ((-3, 3), (0.9, 1.1))),
    "atanh": Case(mp.atanh, ((-1, 1), (0.1, 0.3)), (-1, 1)),
    "cbrt": Case(_cbrt, ((-10, 10),)),
    "cos": Case(mp.cos, ((-10, 10), (-1e4, 1e4), (6e4, 7e4))),
    "cosh": Case(mp.cosh, ((-3, 3), (-90, 90), (700, 711))),
    "digamma": Case(mp.digamma, ((0, 1.5), (0.9, 1.1), (1.46, 1.463), (1.4, 2.6), (2, 30)), (0, INF)),
    "erf": Case(mp.erf, ((-1.2, 1.2), (-6, 6))),
    "erfc": Case(_erfc, ((-1, 2), (0.7, 1.7), (1, 11), (10, 27))),
    "erfinv": Case(mp.erfinv, ((-1, 1), (0.99, 1)), (-1, 1), 60),
    "exp": Case(mp.exp, ((-2, 2), (-105, 90), (-746, 710))),
    "exp2": Case(lambda x: mp.power(2, x), ((-2, 2), (-150, 129), (-1076, 1025))),
    "expm1": Case(mp.expm1, ((-2, 2), (-40, 90), (80, 710))),
    "lgamma": Case(mp.loggamma, ((0, 1.6), (0.99, 1.01), (1.4, 2.6), (1.99, 2.01), (2.4, 30)), (0, INF)),
    "log": Case(mp.log, ((0.4, 2.5), (0.99, 1.01)), (0, INF)),
    "log_beside_power": Case(mp.log, ((0.4, 2.5), (0.99, 1.01)), (0, INF)),
    "log10": Case(mp.log10, ((0.4, 2.5), (0.99, 1.01)), (0, INF)),
    "log1p": Case(mp.log1p, ((-1, 3), (-0.01, 0.01)), (-1, INF)),
    "log2": Case(lambda x: mp.log(x) / mp.log(2), ((0.4, 2.5), (0.99, 1.01)), (0, INF)),
    "log_sigmoid": Case(lambda x: -_softplus(-x), ((-3, 3), (-20, 110))),
    "rsqrt": Case(lambda x: 1 / mp.sqrt(x), ((0, 5),), (0, INF)),
    "sigmoid": Case(_sigmoid, ((-0.01, 0.01), (-3, 3), (-110, 20), (-746, -600))),
    "sigmoid_beside_softplus": Case(_sigmoid, ((-0.01, 0.01), (-3, 3), (-110, 20), (-746, -600))),
    "sigmoid_beside_tanh_softplus": Case(_sigmoid, ((-0.01, 0.01), (-3, 3), (-110, 20), (-746, -600))),
    "sin": Case(mp.sin, ((-10, 10), (-1e4, 1e4), (6e4, 7e4))),
    "sinh": Case(mp.sinh, ((-3, 3), (-90, 90), (700, 711))),
    "softplus": Case(_softplus, ((-3, 3), (-110, 20))),
    "sqrt": Case(mp.sqrt, ((0, 5),), (0, INF)),
    "tan": Case(mp.tan, ((-10, 10), (-1e4, 1e4), (6e4, 7e4))),
    "tanh_softplus": Case(_tanh_softplus, ((-3, 3), (-110, 20), (-746, -600))),
    "tanh": Case(mp.tanh, ((-1.2, 1.2), (-20, 20))),
}
# What a function gives at 0, -0, inf, -inf; a sign of zero counts.
AT_ENDS = {
    "acos": (standard_math.pi / 2, standard_math.pi / 2, NAN, NAN),
    "acosh": (NAN, NAN, INF, NAN),
    "asin": (0.0, -0.0, NAN, NAN),
    "asinh": (0.0, -0.0, INF, -INF),
    "atan": (0.0, -0.0, standard_math.pi / 2, -standard_math.pi / 2),
    "atanh": (0.0, -0.0, NAN, NAN),
    "cbrt": (0.0, -0.0, INF, -INF),
    "cos": (1.0, 1.0, NAN, NAN),
    "cosh": (1.0, 1.0, INF, INF),
    "digamma": (-INF, INF, INF, NAN),
    "erf": (0.0, -0.0, 1.0, -1.0),
    "erfc": (1.0, 1.0, 0.0, 2.0),
    "erfinv": (0.0, -0.0, NAN, NAN),
    "exp": (1.0, 1.0, INF, 0.0),
    "exp2": (1.0, 1.0, INF, 0.0),
    "expm1": (0.0, -0.0, INF, -1.0),
    "lgamma": (INF, INF, INF, INF),
    "log": (-INF, -INF, INF, NAN),
    "log_beside_power": (-INF, -INF, INF, NAN),
    "log10": (-INF, -INF, INF, NAN),
    "log1p": (0.0, -0.0, INF, NAN),
    "log2": (-INF, -INF, INF, NAN),
    "log_sigmoid": (-standard_math.log(2), -standard_math.log(2), 0.0, -INF),
    "rsqrt": (INF, -INF, 0.0, NAN),
    "sigmoid": (0.5, 0.5, 1.0, 0.0),
    "sigmoid_beside_softplus": (0.5, 0.5, 1.0, 0.0),
    "sigmoid_beside_tanh_softplus": (0.5, 0.5, 1.0, 0.0),
    "sin": (0.0, -0.0, NAN, NAN),
    "sinh": (0.0, -0.0, INF, -INF),
    "softplus": (standard_math.log(2), standard_math.log(2), INF, 0.0),
    "sqrt": (0.0, -0.0, INF, NAN),
    "tan": (0.0, -0.0, NAN, NAN),
    "tanh": (0.0, -0.0, 1.0, -1.0),
    "tanh_softplus": (0.6, 0.6, 1.0, 0.0),
}
# Other arguments where the result is exact.
EXACT: dict[str, list[tuple[float, float]]] = {
    "acos": [(1, 0), (1.5, NAN), (-2, NAN)],
    "acosh": [(1, 0), (0.5, NAN), (-3, NAN)],
    "asin": [(1.5, NAN), (-2, NAN)],
    "atanh": [(1, INF), (-1, -INF), (1.5, NAN), (-2, NAN)],
    "cbrt": [(1, 1), (-1, -1)],
    "digamma": [(-1, NAN), (-2, NAN), (-1001, NAN), (-(2.0**30), NAN), (-1e30, NAN)],
    "erfc": [(30, 0), (-30, 2)],
    "erfinv": [(1, INF), (-1, -INF), (1.5, NAN), (-2, NAN)],
    "exp": [(1e4, INF), (-1e4, 0)],
    "exp2": [(float(k), 2.0**k) for k in (-149, -127, -126, -1, 1, 10, 127)] + [(2000, INF), (-2000, 0)],
    "expm1": [(-100, -1), (1e4, INF), (709.9, INF)],
    "lgamma": [(1, 0), (2, 0), (-1, INF), (-2, INF), (-1001, INF), (-(2.0**30), INF), (-1e30, INF)],
    "log": [(1, 0), (-1, NAN)],
    "log_beside_power": [(1, 0), (-1, NAN)],
    "log10": [(1, 0), (-1, NAN), (10, 1), (1000, 3)],
    "log1p": [(-1, -INF), (-2, NAN)],
    "log2": [(2.0**k, float(k)) for k in (-149, -126, -1, 0, 1, 10, 127)] + [(-1, NAN)],
    "rsqrt": [(4, 0.5), (-1, NAN)],
    "sigmoid": [(1e4, 1), (-1e4, 0)],
    "sigmoid_beside_softplus": [(1e4, 1), (-1e4, 0)],
    "sigmoid_beside_tanh_softplus": [(1e4, 1), (-1e4, 0)],
    "sinh": [(1e4, INF), (-1e4, -INF)],
    "cosh": [(1e4, INF), (-1e4, INF)],
    "softplus": [(1e4, 1e4), (-1e4, 0)],
    "log_sigmoid": [(-1e4, -1e4)],
    "sqrt": [(4, 2), (-1, NAN)],
    "tanh": [(50, 1), (-50, -1)],
    "tanh_softplus": [(1e4, 1), (-1e4, 0)],
    "erf": [(50, 1), (-50, -1)],
}


# -- points and distances ------------------------------------------------------------------------------------
def arguments(case: Case, kind: str) -> Array:
    """A number of either sign in every binade (every fourth of double), denormals too, and some in the dense
    intervals.
    """
    rng = np.random.default_rng(7)
    dtype = NUMPY_TYPES[kind]
    low, high, step = (-149, 128, 1) if kind == "float" else (-1074, 1024, 4)
    exponents = np.arange(low, high, step)
    if case.points < 100:
        exponents = exponents[::8]
    binades = np.ldexp(rng.uniform(1, 2, (2, exponents.size)), exponents) * np.array([[1.0], [-1.0]])
    parts = [binades.ravel(), *(rng.uniform(a, b, case.points) for a, b in case.dense)]
    x = np.concatenate(parts).astype(dtype)
    x = x[(x >= case.domain[0]) & (x <= case.domain[1]) & np.isfinite(x) & (np.abs(x) > 0)]
    x = x[(x > case.domain[0]) | (case.domain[0] != -1)] if np.isfinite(case.domain[0]) else x
    return np.resize(x, x.size + -x.size % 16)


@functools.cache
def exact(name: str, kind: str) -> tuple[Array, list[Any]]:
    case = CASES[name]
    x = arguments(case, kind)
    with mp.workprec(PRECISION):
        return x, [case.reference(mp.mpf(v)) for v in x.tolist()]


# -- one operand ---------------------------------------------------------------------------------------------
@pytest.fixture(autouse=True)
def _quiet_numpy() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["float", "double"])
@pytest.mark.parametrize("name", CASES)
def test_accuracy_and_equal_bits_at_every_width(name: str, kind: str) -> None:
    x, want = exact(name, kind)
    first = compiled(name, kind, LANES[0])(x)
    with mp.workprec(PRECISION):
        error = ulps(first, want)
    worst = int(np.argmax(error))
    assert error[worst] <= LESS_ACCURATE.get((name, kind), ULPS), (
        f"{name}({x[worst]!r}) = {first[worst]!r} is {error[worst]:.2f} ulp from {want[worst]}"
    )
    for lanes in LANES[1:]:
        assert same(compiled(name, kind, lanes)(x), first)


# Where the code, with tables if it has some, is farthest off, or would be without what it does for that.
WORST = [
    ("acosh", "float", 1.1183217), ("asinh", "float", 1.1568016), ("atanh", "float", 0.030417172), ("log", "float", 0.00033562814),
    ("log1p", "float", 53.112507), ("erfc", "float", 0.87987155), ("erfc", "float", 1.5565098), ("erfc", "double", 0.82995202244716),
    ("erfinv", "float", 0.99519587), ("erfinv", "float", 0.99389499), ("erfinv", "float", 0.99419832),
    ("log", "double", 0.0183322), ("log1p", "double", 0.0292205), ("softplus", "double", -2.0477685), ("log_sigmoid", "double", 2.7445186),
    ("acosh", "double", 1.00195), ("acosh", "double", 1.0003497487821156), ("expm1", "double", 709.782712893384),
    ("erf", "double", 0.22181368812671773), ("erfc", "double", 1.7160375351589787), ("erfc", "float", 2.0436223),
]  # fmt: skip


@pytest.mark.parametrize(("name", "kind", "x"), WORST)
def test_accuracy_where_the_code_is_farthest_off(name: str, kind: str, x: float) -> None:
    points = np.full(16, x, NUMPY_TYPES[kind])
    with mp.workprec(PRECISION):
        assert np.max(ulps(compiled(name, kind, 16)(points), [CASES[name].reference(mp.mpf(float(points[0])))] * 16)) <= ULPS


@pytest.mark.parametrize(("name", "low", "high"), [("erfc", 0.6, 1.3), ("erfinv", 0.9, 0.999)])
def test_accuracy_where_small_results_come_of_large_ones(name: str, low: float, high: float) -> None:
    for kind in ("float", "double"):
        x = np.random.default_rng(3).uniform(low, high, 1600 if name == "erfc" else 160).astype(NUMPY_TYPES[kind])
        with mp.workprec(PRECISION):
            assert np.max(ulps(compiled(name, kind, 8)(x), [CASES[name].reference(mp.mpf(v)) for v in x.tolist()])) <= ULPS


def evaluated(name: str, kind: str, pairs: Sequence[tuple[float, float]]) -> tuple[Array, Array]:
    """What the scalar code gives for the arguments of `pairs`, and what is wanted, both as doubles."""
    x, want = (np.array(column, np.float64).astype(NUMPY_TYPES[kind]) for column in zip(*pairs, strict=True))
    return compiled(name, kind, 0)(x).astype(np.float64), want.astype(np.float64)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["half", "bfloat", "float", "double"])
@pytest.mark.parametrize("name", CASES)
def test_ends(name: str, kind: str) -> None:
    """Zeros, infinities and NaN give what C gives: exactly, or (pi / 2, log 2) the nearest number."""
    pairs = [*zip((0.0, -0.0, INF, -INF), AT_ENDS[name], strict=True), (NAN, NAN), (-NAN, NAN)]
    got, want = evaluated(name, kind, pairs)
    assert same(got, want)


@pytest.mark.parametrize("kind", ["float", "double"])
@pytest.mark.parametrize("name", EXACT)
def test_exact_values(name: str, kind: str) -> None:
    got, want = evaluated(name, kind, EXACT[name])
    assert same(got, want)


_WIDE_REFERENCES: dict[str, Callable[[Array], Array]] = {
    "erf": np.vectorize(standard_math.erf),
    "erfc": np.vectorize(standard_math.erfc),
    "digamma": special.digamma,
    "lgamma": special.lgamma,
    "log_beside_power": np.log,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: np.exp(-np.logaddexp(0, -x)),
    "sigmoid_beside_softplus": lambda x: np.exp(-np.logaddexp(0, -x)),
    "sigmoid_beside_tanh_softplus": lambda x: np.exp(-np.logaddexp(0, -x)),
    "softplus": lambda x: np.logaddexp(0, x),
    "tanh_softplus": lambda x: np.tanh(np.logaddexp(0, x)),
    "log_sigmoid": lambda x: -np.logaddexp(0, -x),
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atanh": np.arctanh,
}


@pytest.mark.parametrize("kind", ["half", "bfloat"])
@pytest.mark.parametrize("name", [n for n in CASES if n != "erfinv"])
def test_every_half_and_every_bfloat_is_rounded_once(name: str, kind: str) -> None:
    dtype = NUMPY_TYPES[kind]
    x = np.arange(1 << 16, dtype=np.uint16).view(dtype)
    got = compiled(name, kind, 16)(x).astype(np.float64)
    function = _WIDE_REFERENCES.get(name) or getattr(np, name)
    digits, tiny, largest = (10, -24, 65504.0) if kind == "half" else (7, -133, 3.3895313892515355e38)
    want = function(x.astype(np.float64))
    unit = 2.0 ** np.maximum(np.floor(np.log2(np.minimum(np.abs(want), largest))) - digits, tiny)
    past = 2.0 ** np.ceil(np.log2(largest))  # inf stands for all numbers from here on
    value = np.where(np.isinf(got), np.sign(got) * past, got)
    want = np.where(np.isinf(got) & (np.abs(want) > past), np.sign(want) * past, want)
    error = np.where(want == value, 0.0, np.abs(value - want) / unit)
    assert np.array_equal(np.isnan(got), np.isnan(want))
    assert np.nanmax(error) <= 0.501


def test_erfinv_of_halves() -> None:
    x = np.linspace(-1, 1, 400).astype(np.float16)
    got = compiled("erfinv", "half", 8)(x)
    want = [mp.erfinv(mp.mpf(v)) for v in x.tolist()]
    assert np.max(ulps(got, want)) <= 0.501


def slope_of_gelu_tanh(x: Any) -> Any:
    s = gate_of_gelu(x)
    return s + 2 * x * s * (1 - s) * mp.sqrt(2 / mp.pi) * (1 + 3 * mp.mpf("0.044715") * x**2)


# Of these the error is absolute: 1 + erf(x) has no more digits far below zero.
ABSOLUTE: dict[str, Reference] = {
    "gelu": lambda x: x * mp.ncdf(x), "gelu_slope": lambda x: mp.ncdf(x) + x * mp.npdf(x),
    "gelu_tanh": lambda x: x * gate_of_gelu(x), "gelu_tanh_slope": slope_of_gelu_tanh,
}  # fmt: skip


def points_of_gelu(kind: str) -> Any:
    return np.concatenate([np.linspace(-9, 9, 2012), [-30, 30, 1e-30, -1e-3]]).astype(NUMPY_TYPES[kind])


def is_close_to_absolute(name: str, x: Any, got: Any) -> bool:
    """Whether results of one of ABSOLUTE are as close as is promised."""
    with mp.workprec(PRECISION):
        want = np.array([float(ABSOLUTE[name](mp.mpf(v))) for v in x.tolist()])
    bound = np.finfo(x.dtype).eps * (1.5 if name.endswith("slope") else np.maximum(1, np.abs(x)))
    return bool(np.all(np.abs(got.astype(np.float64) - want) <= bound))


@pytest.mark.parametrize("kind", ["float", "double"])
@pytest.mark.parametrize("name", ABSOLUTE)
def test_absolute_errors_of_gelu_and_equal_bits_at_every_width(name: str, kind: str) -> None:
    x = points_of_gelu(kind)
    first = compiled(name, kind, LANES[0])(x)
    assert is_close_to_absolute(name, x, first)
    for lanes in LANES[1:]:
        assert same(compiled(name, kind, lanes)(x), first)


@pytest.mark.parametrize("kind", ["half", "bfloat", "float", "double"])
def test_ends_of_gelu(kind: str) -> None:
    """And beyond, where the last of the tail is gone."""
    far = [(100.0, 100.0), (-100.0, -0.0), (30000.0, 30000.0), (-30000.0, -0.0)]
    for name in ("gelu", "gelu_tanh"):
        assert same(*evaluated(name, kind, [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, NAN), (NAN, NAN), *far]))
    for name in ("gelu_slope", "gelu_tanh_slope"):
        assert same(*evaluated(name, kind, [(0.0, 0.5), (-0.0, 0.5), (INF, 1.0), (-INF, 0.0), (NAN, NAN), *((x, float(x > 0)) for x, _ in far)]))


# -- the gamma function's family below zero ------------------------------------------------------------------
def _lgamma_terms(a: Any) -> tuple[Any, ...]:
    return mp.log(abs(mp.sinpi(a)) / mp.pi), mp.log(a), mp.loggamma(a)


def _digamma_terms(a: Any) -> tuple[Any, ...]:
    return mp.digamma(a), 1 / a, mp.pi * mp.cot(mp.pi * a), 1 / (a - mp.nint(a))


# References, and the sizes at -x that the error is counted in: next to a zero the terms of the reflection formula cancel.
REFLECTED: dict[str, tuple[Reference, Callable[[Any], tuple[Any, ...]]]] = {
    "lgamma": (lambda x: mp.log(abs(mp.gamma(x))), _lgamma_terms),
    "digamma": (mp.digamma, _digamma_terms),
}
ZEROS_BELOW = {  # the float next to the zero
    "lgamma": [-2.4570247, -2.7476826, -3.1435809, -3.9552942, -4.0393618, -4.9915447],
    "digamma": [-0.5040830, -1.5734985, -2.6107209, -3.6352934, -4.6532378],
}


def negative_arguments(kind: str) -> Array:
    """Everywhere below zero, next to 0, -1, -2, … and among positive numbers, so that vectors hold both."""
    rng = np.random.default_rng(11)
    near = np.round(rng.uniform(0, 30, 200)) + rng.choice([-1, 1], 200) * 10.0 ** rng.uniform(-12, -1, 200)
    parts = [*(rng.uniform(a, b, 200) for a, b in ((0, 1.6), (1.4, 5), (5, 20), (20, 1e5))), near, 10.0 ** rng.uniform(-44, -1, 100)]
    x = -np.concatenate(parts).astype(NUMPY_TYPES[kind])
    x = rng.permutation(np.concatenate([x[x != np.floor(x)], rng.uniform(0, 9, 100).astype(x.dtype)]))
    return np.resize(x, x.size + -x.size % 16)


@pytest.mark.slow
@pytest.mark.parametrize("width", ["16", "32", "64"])
@pytest.mark.parametrize("kind", ["float", "double"])
@pytest.mark.parametrize("name", REFLECTED)
def test_gamma_below_zero(name: str, kind: str, width: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within an ulp of the terms for float, two for double, and alike in all lanes."""
    monkeypatch.setenv(processor.VECTOR_BYTES_VARIABLE, width)
    reference, terms = REFLECTED[name]
    x = negative_arguments(kind)
    got = compiled(name, kind, 8)(x)
    eps, largest = mp.mpf(float(np.finfo(x.dtype).eps)), float(np.finfo(x.dtype).max)
    with mp.workprec(PRECISION):
        for v, g in zip(x.tolist(), got.tolist(), strict=True):
            want = reference(mp.mpf(v))
            size = max(abs(want), *map(abs, terms(mp.mpf(-v)))) if v < 0 else abs(want)
            if abs(want) > largest:
                assert g == standard_math.copysign(INF, want)
                continue
            assert abs(g - want) <= size * eps * (1 if kind == "float" else 2), f"{name}({v!r}) = {g!r}, not {want}"
    for lanes in (0, 16):
        assert same(compiled(name, kind, lanes)(x), got)


@pytest.mark.parametrize("name", REFLECTED)
def test_floats_next_to_zeros_of_the_gamma_functions(name: str) -> None:
    """A float is computed in double: next to zeros below 0 the error is but a small part of an ulp of the terms."""
    zeros = np.array(ZEROS_BELOW[name], np.float32)
    x = (zeros[:, None].view(np.int32) + np.arange(-8, 8, dtype=np.int32)).view(np.float32).ravel()
    got = compiled(name, "float", 16)(x)
    reference, terms = REFLECTED[name]
    with mp.workprec(PRECISION):
        for v, g in zip(x.tolist(), got.tolist(), strict=True):
            want, size = reference(mp.mpf(v)), max(map(abs, terms(mp.mpf(-v))))
            assert abs(want) < 1e-3 and abs(g - want) <= mp.ldexp(abs(want), -23) + mp.ldexp(size, -31)


@pytest.mark.parametrize("kind", ["float", "double"])
@pytest.mark.parametrize("name, zeros", [("lgamma", (1.0, 2.0)), ("digamma", (1.461632144968362,))])
def test_relative_errors_next_to_positive_zeros(name: str, zeros: tuple[float, ...], kind: str) -> None:
    steps = np.concatenate([[k * 2**e for e in range(45)] for k in (-1, 1)])
    x = np.concatenate([zero + steps * np.finfo(np.float64).eps * zero for zero in zeros]).astype(NUMPY_TYPES[kind])
    x = np.resize(x, x.size + -x.size % 8)
    with mp.workprec(PRECISION):
        assert np.max(ulps(compiled(name, kind, 8)(x), [CASES[name].reference(mp.mpf(v)) for v in x.tolist()])) <= ULPS


@pytest.mark.parametrize("kind", ["float", "double"])
def test_logarithms_of_fractions(kind: str) -> None:
    rng = np.random.default_rng(8)
    x = np.concatenate([rng.uniform(0, 1, 200), rng.uniform(0.4, 0.43, 100), np.ldexp(rng.uniform(1, 2, 96), -np.arange(1, 97)), [0, 1, 5e-324, 1e-300]])
    x = x.astype(NUMPY_TYPES[kind])
    with mp.workprec(PRECISION):
        want = [mp.log1p(mp.mpf(v)) for v in x.tolist()]
        for lanes in LANES:
            assert np.max(ulps(compiled("log1p_of_fraction", kind, lanes)(x), want)) <= ULPS


@pytest.mark.parametrize("name", ["tanh", "erf", "sin", "cos", "sigmoid", "softplus", "exp", "sqrt"])
def test_values_stay_within_their_range(name: str) -> None:
    rng = np.random.default_rng(3)
    x = rng.integers(0, 1 << 32, 1 << 18, dtype=np.uint32).view(np.float32)
    near = rng.uniform(-10, 10, 1 << 18).astype(np.float32)
    x = np.concatenate([x[np.isfinite(x)][: 1 << 17], near])
    y = compiled(name, "float", 16)(x)
    low, high = {"tanh": (-1, 1), "erf": (-1, 1), "sin": (-1, 1), "cos": (-1, 1), "sigmoid": (0, 1)}.get(
        name, (0, INF)
    )
    y = y[~np.isnan(y)] if name == "sqrt" else y
    assert np.all((y >= low) & (y <= high))


# Arguments next to multiples of pi / 2 (J.-M. Muller, Elementary Functions, chapter 11), and around the
# branch.
HARD_ANGLES = {
    "float": [16367173.0 * 2.0**72, 1.1729558e38, 3.4028235e38, 65535.996, 65536.0, 65536.004, 22.0, 355.0],
    "double": [6381956970095103.0 * 2.0**797, 5.319372648326541e255, 1.7976931348623157e308, 1e22,
               411557987.0, 2.0**28 - 2.0**-24, 2.0**28, 2.0**28 + 2.0**-24, 22.0, 355.0, 1e6 * np.pi],
}  # fmt: skip


@pytest.mark.parametrize("kind", ["float", "double"])
@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_hard_angles(name: str, kind: str) -> None:
    dtype = NUMPY_TYPES[kind]
    multiples = np.concatenate([np.arange(1, 150), np.arange(1, 30) * 997, 2.0 ** np.arange(5, 27)]) * (
        np.pi / 2
    )
    x = np.concatenate([HARD_ANGLES[kind], multiples]).astype(dtype)
    x = np.concatenate([x, -x])
    x = np.resize(x, x.size + -x.size % 16)
    with mp.workprec(1400):
        want = [CASES[name].reference(mp.mpf(v)) for v in x.tolist()]
    with mp.workprec(PRECISION):
        assert np.max(ulps(compiled(name, kind, 8)(x), want)) <= ULPS


# -- two operands --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["float", "double"])
def test_atan2_accuracy(kind: str) -> None:
    rng = np.random.default_rng(6)
    y, x = (rng.standard_normal((2, 800)) * np.exp(rng.uniform(-20, 20, (2, 800)))).astype(NUMPY_TYPES[kind])
    with mp.workprec(PRECISION):
        want = [mp.atan2(mp.mpf(a), mp.mpf(b)) for a, b in zip(y.tolist(), x.tolist(), strict=True)]
        got = compiled("atan2", kind, 8, 2)(y, x)
        assert np.max(ulps(got, want)) <= ULPS
    assert same(compiled("atan2", kind, 0, 2)(y, x), got)


@pytest.mark.parametrize("kind", ["float", "double"])
def test_atan2_at_special_values_is_that_of_c(kind: str) -> None:
    y, x = pairs_of_ends(NUMPY_TYPES[kind])
    want = np.arctan2(y.astype(np.float64), x.astype(np.float64)).astype(x.dtype)
    got = compiled("atan2", kind, 4, 2)(y, x)
    assert np.array_equal(np.signbit(got[~np.isnan(want)]), np.signbit(want[~np.isnan(want)]))
    assert np.array_equal(np.isnan(got), np.isnan(want))
    zero = want == 0
    assert np.array_equal(got[zero], want[zero])
    np.testing.assert_array_max_ulp(got[~np.isnan(want)], want[~np.isnan(want)], 2)


# -- results that are hardly there -----------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["float", "double"])
def test_small_products_have_the_bits_of_a_multiplication(kind: str) -> None:
    """Also where the product is denormal, 0, infinite or NaN; and LLVM leaves the multiply-add, without which they take longer."""
    def emit(b: FunctionBuilder, x: Val, power: Val) -> Val:
        return times_small(b, x, power)

    rng, dtype = np.random.default_rng(5), NUMPY_TYPES[kind]
    info = np.finfo(dtype)
    x = np.concatenate([np.exp2(rng.uniform(info.minexp // 2, 0, 56)), [0.0, 1.0, INF, NAN, info.tiny, info.smallest_subnormal, info.max, 2.0]]).astype(dtype)
    for power in (0.5, 2.0 ** (info.minexp // 2), 2.0 ** (info.minexp // 2 - 12), float(info.tiny), 0.0, INF):
        with np.errstate(all="ignore"):
            want = x * dtype.type(power)
        assert same(build(emit, (kind, kind), 4)(x, np.full_like(x, power)), want)
    text, _ = text_of(emit, (kind, kind), 4)
    if host().triple.startswith("x86_64") and "+fma" in host().features:
        assert "fmadd" in target.assembly(text, host())
