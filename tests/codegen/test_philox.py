"""Philox4x32-10 against the known answers of its authors, and the statistics of what is made of its words."""

from __future__ import annotations

import math as standard_math
from typing import Any

import numpy as np
import pytest

from graphcell.codegen.llvm import math
from graphcell.codegen.llvm.text import FunctionBuilder, Val
from tests.codegen.harness import build

Array = np.ndarray[Any, Any]
# Counter, key and result: the file kat_vectors of the Random123 library.
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0),
     (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
]  # fmt: skip
COUNT = 1 << 16


def words(values: Any) -> Array:
    return np.asarray(values, np.uint32).view(np.int32)


@pytest.mark.parametrize("lanes", [0, 1, 3, 4, 8, 16])
def test_known_answers(lanes: int) -> None:
    run = build(math.philox, ["i32"] * 6, lanes)
    # Every lane gets another counter, so that lanes that are swapped show.
    size = 48
    for counter, key, want in KNOWN:
        other = words(np.random.default_rng(0).integers(0, 1 << 32, (6, size), dtype=np.uint32))
        alone = run(*other)
        for place in range(size):
            mixed = other.copy()
            mixed[:, place] = words((*key, *counter))
            if place in (0, 1, 2, 5, 15, 16, 47):
                got = run(*mixed)
                assert tuple(int(w.view(np.uint32)[place]) for w in got) == want
                assert all(
                    np.array_equal(np.delete(a, place), np.delete(g, place))
                    for a, g in zip(alone, got, strict=True)
                )


def generate(lanes: int, emit: Any) -> Any:
    """`emit(b, w0, w1, w2, w3)` of the words for the counters 0, 1, 2, …"""

    def body(b: FunctionBuilder, counter: Val) -> Any:
        zero = b.const(0, counter)
        return emit(b, *math.philox(b, b.const(42, counter), zero, counter, zero, zero, zero))

    return build(body, ["i32"], lanes)(np.arange(COUNT, dtype=np.int32))


def test_uniform_takes_the_upper_bits() -> None:
    w = [v.view(np.uint32) for v in generate(8, lambda b, *w: w)]
    single = generate(8, lambda b, *w: math.uniform_f32(b, w[0]))
    assert np.array_equal(single, (w[0] >> 8).astype(np.float32) * np.float32(2.0**-24))
    double = generate(8, lambda b, *w: math.uniform_f64(b, w[0], w[1]))
    both = (w[0].astype(np.uint64) << np.uint64(32) | w[1]) >> np.uint64(11)
    assert np.array_equal(double, both.astype(np.float64) * 2.0**-53)


@pytest.mark.parametrize(
    ("word", "want"), [(0, 0.0), (0xFFFFFFFF, 1 - 2.0**-24), (0x100, 2.0**-24), (0x80000000, 0.5)]
)
def test_uniform_ends(word: int, want: float) -> None:
    assert build(math.uniform_f32, ["i32"], 0)(words([word]))[0] == want


def test_uniform_f64_ends() -> None:
    run = build(math.uniform_f64, ["i32", "i32"], 0)
    ones = words([0xFFFFFFFF])
    assert run(ones, ones)[0] == 1 - 2.0**-53
    assert run(words([0]), words([0]))[0] == 0
    assert run(words([0]), words([0x800]))[0] == 2.0**-53


@pytest.mark.parametrize("wide", [False, True])
def test_normal_is_the_transform_of_the_uniforms(wide: bool) -> None:
    def emit(b: FunctionBuilder, *w: Val) -> tuple[Val, ...]:
        if wide:
            return (*math.normal_f64(b, *w), math.uniform_f64(b, w[0], w[1]), math.uniform_f64(b, w[2], w[3]))
        return (*math.normal_f32(b, w[0], w[1]), math.uniform_f32(b, w[0]), math.uniform_f32(b, w[1]))

    z0, z1, u, v = (x.astype(np.float64) for x in generate(8, emit))
    radius = np.sqrt(-2 * np.log1p(-u))
    tolerance = 1e-15 if wide else 1e-6
    assert np.allclose(z0, radius * np.cos(2 * np.pi * v), rtol=0, atol=10 * tolerance)
    assert np.allclose(z1, radius * np.sin(2 * np.pi * v), rtol=0, atol=10 * tolerance)


def test_normal_is_finite_at_the_ends() -> None:
    run = build(math.normal_f32, ["i32", "i32"], 4)
    corners = words([0, 0xFFFFFFFF, 0x80000000, 0x40000000])
    first, second = (x.ravel() for x in np.meshgrid(corners, corners))
    z0, z1 = run(first, second)
    assert np.isfinite(z0).all() and np.isfinite(z1).all()
    assert np.abs(z0).max() <= standard_math.sqrt(-2 * standard_math.log(2.0**-24)) * (1 + 1e-6)


def test_distributions() -> None:
    """Kolmogorov-Smirnov distances and correlations of 65536 numbers; the bounds are five times the usual
    spread.
    """
    z0, z1 = generate(16, lambda b, *w: math.normal_f32(b, w[0], w[1]))
    u = np.sort(generate(16, lambda b, *w: math.uniform_f32(b, w[2])).astype(np.float64))
    grid = (np.arange(COUNT) + 0.5) / COUNT
    assert np.abs(u - grid).max() < 2.5 / np.sqrt(COUNT)
    for z in (z0, z1):
        cumulative = 0.5 + 0.5 * np.vectorize(standard_math.erf)(np.sort(z.astype(np.float64)) / np.sqrt(2))
        assert np.abs(cumulative - grid).max() < 2.5 / np.sqrt(COUNT)
    assert abs(np.corrcoef(z0, z1)[0, 1]) < 5 / np.sqrt(COUNT)
    assert abs(np.corrcoef(z0[:-1], z0[1:])[0, 1]) < 5 / np.sqrt(COUNT)
