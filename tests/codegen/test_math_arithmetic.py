"""Rounding, extrema, division with a remainder and integer powers, against numpy and Python's integers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from graphcell import dtype as dt
from graphcell.codegen.llvm import math
from graphcell.codegen.llvm.body import BodyBuilder
from graphcell.codegen.llvm.combine import combine
from graphcell.codegen.llvm.text import FunctionBuilder, Val
from tests.codegen.accuracy import Array, same
from tests.codegen.harness import NUMPY_TYPES, build

FLOATS = ("half", "bfloat", "float", "double")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
INF, NAN = float("inf"), float("nan")
ENDS = [
    0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, -3.0, 5.5, -6.0, INF, -INF, NAN, 1e-40, -1e-40,
    1e38, -1e38, 3e-5,
]  # fmt: skip


@pytest.fixture(autouse=True)
def _quiet_numpy() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield


def pad(*arrays: Array) -> tuple[Array, ...]:
    return tuple(np.resize(x, x.size + -x.size % 16) for x in arrays)


def float_pairs(kind: str) -> tuple[Array, ...]:
    """Special values with each other, numbers of all sizes, and whole numbers (whose quotients are whole at
    times).
    """
    rng = np.random.default_rng(2)
    x, y = (v.ravel() for v in np.meshgrid(ENDS, ENDS))
    sizes = rng.standard_normal((2, 2000)) * 10.0 ** rng.uniform(-5, 5, (2, 2000))
    whole = rng.integers(-60, 60, (2, 1000))
    tenths = whole[0] * 0.1, np.full(1000, 0.1)
    columns = ((x, sizes[0], whole[0], tenths[0]), (y, sizes[1], whole[1], tenths[1]))
    return pad(*(np.concatenate(c).astype(NUMPY_TYPES[kind]) for c in columns))


@pytest.mark.parametrize("lanes", [0, 8])
@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("name", ["fmod", "floor_mod"])
def test_float_remainders_are_those_of_numpy(name: str, kind: str, lanes: int) -> None:
    x, y = float_pairs(kind)
    got = build(getattr(math, name), [kind, kind], lanes)(x, y)
    assert same(got, {"fmod": np.fmod, "floor_mod": np.mod}[name](x, y))


@pytest.mark.parametrize("kind", ["float", "double"])
def test_fmod_with_huge_quotients(kind: str) -> None:
    dtype = NUMPY_TYPES[kind]
    rng = np.random.default_rng(4)
    big = 30.0 if kind == "float" else 290.0
    x, y = (10.0 ** rng.uniform(0, big, 640)).astype(dtype), (10.0 ** rng.uniform(-big, 2, 640)).astype(dtype)
    x, y = x * rng.choice([-1, 1], 640).astype(dtype), y * rng.choice([-1, 1], 640).astype(dtype)
    for lanes in (0, 16):
        assert same(build(math.fmod, [kind, kind], lanes)(x, y), np.fmod(x, y))


@pytest.mark.parametrize("kind", FLOATS)
def test_float_quotients(kind: str) -> None:
    x, y = float_pairs(kind)
    for name, rounding in (("floor_div", np.floor), ("trunc_div", np.trunc)):
        got = build(getattr(math, name), [kind, kind], 8)(x, y)
        assert same(got, rounding((x / y).astype(x.dtype)))


@pytest.mark.parametrize("lanes", [0, 4, 16])
@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("name", ["minimum", "maximum"])
def test_extrema_pass_nan_on(name: str, kind: str, lanes: int) -> None:
    x, y = float_pairs(kind)
    got = build(getattr(math, name), [kind, kind], lanes)(x, y)
    want = getattr(np, name)(x, y)
    assert np.array_equal(got, want, equal_nan=True)


@pytest.mark.parametrize("lanes", [0, 8])
@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("name", ["round", "floor", "ceil", "trunc", "isnan", "isinf", "isfinite"])
def test_rounding_and_tests(name: str, kind: str, lanes: int) -> None:
    rng = np.random.default_rng(1)
    halves = np.arange(-20, 21) / 2
    (x,) = pad(
        np.concatenate([ENDS, halves, rng.uniform(-9, 9, 500), rng.uniform(-1e7, 1e7, 500)]).astype(
            NUMPY_TYPES[kind]
        )
    )
    got = build(getattr(math, name), [kind], lanes)(x)
    want = getattr(np, name)(x)
    assert np.array_equal(got, want) if want.dtype == bool else same(got, want)


@pytest.mark.parametrize("kind", FLOATS)
def test_sign(kind: str) -> None:
    (x,) = pad(np.array(ENDS).astype(NUMPY_TYPES[kind]))
    got = build(math.sign, [kind], 4)(x)
    want = np.where(np.isnan(x), 0, np.sign(x)).astype(x.dtype)  # 0 for NaN is MindSpore's choice
    assert np.array_equal(got, want) and not np.signbit(got[x == 0]).any()


def test_sign_of_integers() -> None:
    x = np.array([-128, -1, 0, 1, 127, 5, -5, 0], np.int8)
    assert np.array_equal(build(math.sign, ["i8"], 8)(x), np.sign(x))


# -- integers ------------------------------------------------------------------------------------------------
def integer_pairs(name: str) -> tuple[Array, ...]:
    rng = np.random.default_rng(8)
    info, dtype = np.iinfo(name), np.dtype(name)
    ends = np.array([0, 1, 2, 3, 7, info.max, info.max - 1, info.min, info.min + 1], dtype)
    if info.min:
        ends = np.concatenate([ends, np.array([-1, -2, -7], dtype)])
    x, y = (v.ravel() for v in np.meshgrid(ends, ends))
    wide = rng.integers(info.min, info.max, (2, 2000), dtype, endpoint=True)
    shifted = wide[1] >> rng.integers(0, info.bits - 1, 2000).astype(dtype)
    multiples = [(a // b) * b + step if b else a for a, b, step in zip(wide[0].tolist(), shifted.tolist(), rng.integers(-1, 2, 2000).tolist(), strict=True)]
    near = np.array([min(max(m, info.min), info.max) for m in multiples], dtype)
    return pad(np.concatenate([x, wide[0], near]), np.concatenate([y, shifted, shifted]))


def truncated(x: int, y: int) -> int:
    quotient = abs(x) // abs(y) if y else 0
    return quotient if (x < 0) == (y < 0) else -quotient


DIVISIONS: dict[str, Callable[[int, int], int]] = {
    "trunc_div": truncated,
    "floor_div": lambda x, y: x // y if y else 0,
    "floor_mod": lambda x, y: x % y if y else 0,
    "fmod": lambda x, y: x - truncated(x, y) * y if y else 0,
}


@pytest.mark.parametrize("lanes", [0, 16])
@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("function", DIVISIONS)
def test_integer_division_neither_traps_nor_rounds(function: str, name: str, lanes: int) -> None:
    """x / 0 is 0, and the least integer by -1 is itself."""
    x, y = integer_pairs(name)
    signed = np.iinfo(name).min < 0

    def emit(b: FunctionBuilder, p: Val, q: Val) -> Val:
        result: Val = getattr(math, function)(b, p, q, signed)
        return result

    kind = f"i{np.iinfo(name).bits}"
    got = build(emit, [kind, kind], lanes)(x, y).view(x.dtype)
    modulus = (1 << np.iinfo(name).bits) - 1
    want = [DIVISIONS[function](a, c) & modulus for a, c in zip(x.tolist(), y.tolist(), strict=True)]
    assert np.array_equal(got, np.array(want, np.uint64).astype(x.dtype))


@pytest.mark.slow
@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("function", DIVISIONS)
def test_integer_division_by_constants(function: str, name: str) -> None:
    info = np.iinfo(name)
    x, modulus = integer_pairs(name)[0], (1 << info.bits) - 1
    for y in (0, 1, 2, 3, 7, 100, info.max, *((-1, -2, -7, -100, info.min) if info.min else ())):
        got = build(lambda b, p: getattr(math, function)(b, p, b.const(y, p), info.min < 0), [f"i{info.bits}"], 16)(x).view(x.dtype)
        want = [DIVISIONS[function](a, y) & modulus for a in x.tolist()]
        assert np.array_equal(got, np.array(want, np.uint64).astype(x.dtype)), y


@pytest.mark.parametrize("name", INTEGERS)
def test_integer_extrema(name: str) -> None:
    x, y = integer_pairs(name)
    signed = np.iinfo(name).min < 0
    kind = f"i{np.iinfo(name).bits}"
    for function, reference in ((math.minimum, np.minimum), (math.maximum, np.maximum)):
        got = build(lambda b, p, q, f=function: f(b, p, q, signed), [kind, kind], 8)(x, y).view(x.dtype)
        assert np.array_equal(got, reference(x, y))


@pytest.mark.parametrize("lanes", [0, 8])
@pytest.mark.parametrize("name", ["int8", "int16", "int32", "int64"])
def test_integer_pow(name: str, lanes: int) -> None:
    """Modulo 2**bits; a negative exponent gives 0, but for the bases 1 and -1."""
    bits = np.iinfo(name).bits
    bases = [0, 1, -1, 2, -2, 3, 7, -11, 100, np.iinfo(name).max, np.iinfo(name).min]
    exponents = [0, 1, 2, 3, 5, 10, 31, 63, 100, 127, -1, -2, -5]
    x, y = (v.ravel().astype(name) for v in np.meshgrid(bases, exponents))
    x, y = pad(x, y)
    got = build(math.integer_pow, [f"i{bits}"] * 2, lanes)(x, y)

    def power(base: int, exponent: int) -> int:
        if exponent >= 0:
            return pow(base, exponent, 1 << bits)
        return base ** (exponent % 2) if base in (1, -1) else 0

    want = [power(a, c) & (1 << bits) - 1 for a, c in zip(x.tolist(), y.tolist(), strict=True)]
    assert np.array_equal(got, np.array(want, np.uint64).astype(x.dtype))


@pytest.mark.parametrize("lanes", [0, 4, 8, 16])
@pytest.mark.parametrize("kind", ["float", "double"])
@pytest.mark.parametrize("name", ["min", "max"])
def test_extrema_of_reductions_order_zeros(name: str, kind: str, lanes: int) -> None:
    """Whatever the lanes: what a reduction finds must not depend on them."""
    values = np.array(ENDS, NUMPY_TYPES[kind])
    x, y = pad(*(a.ravel() for a in np.meshgrid(values, values)))
    dtype = dt.float32 if kind == "float" else dt.float64
    f = build(lambda b, x, y: combine(BodyBuilder.extending(b), name, x, y, dtype), [kind, kind], lanes)
    want = (np.minimum if name == "min" else np.maximum)(x, y)
    zeros = (x == 0) & (y == 0)
    negative = (np.signbit(x) | np.signbit(y)) if name == "min" else (np.signbit(x) & np.signbit(y))
    want[zeros] = np.where(negative[zeros], -0.0, 0.0)
    assert same(f(x, y), want)
