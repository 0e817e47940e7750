"""Divisions by numbers: quotients have the bits of numpy's, and no division is left but where it must be."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from graphcell import Tensor, jit
from graphcell.codegen.quotients import inverse_of
from graphcell.ir.evaluate import evaluate_graph
from graphcell.ir.op import Array
from graphcell.ir.text import parse
from graphcell.runtime.executable import compile_graph

SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 3e38, -3e38]


def divided(x: Array, c: float) -> tuple[Array, str]:
    @jit
    def f(x: Tensor) -> Tensor:
        return x / c

    found = f(Tensor(x)).asnumpy()
    return found, f._last.executable.kernels()


@pytest.mark.parametrize("c", [255.0, 3.0, -10.0, 0.23, 1e-3, 49.0, 8388609.0, 1.9999999])
def test_every_float_between_two_powers_of_two(c: float) -> None:
    """What a quotient's last bit is depends on the fraction of the dividend alone."""
    c = float(np.float32(c))
    x = np.concatenate([np.arange(1 << 23, 1 << 24, dtype=np.float32), np.array(SPECIAL, np.float32)])
    found, kernels = divided(x, c)
    assert " div " not in kernels
    with np.errstate(over="ignore"):
        want = x / np.float32(c)
    nan = np.isnan(want)
    assert (found.view(np.int32)[~nan] == want.view(np.int32)[~nan]).all() and np.isnan(found[nan]).all()


@pytest.mark.parametrize("c", [7.0, -0.1, math.pi, 1e6 + 0.5])
def test_doubles(c: float) -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(1, 2, 200_000), rng.integers(1, 1 << 40, 100_000) * c, SPECIAL])
    found, kernels = divided(x, c)
    assert " div " not in kernels
    want = x / c
    nan = np.isnan(want)
    assert (found.view(np.int64)[~nan] == want.view(np.int64)[~nan]).all() and np.isnan(found[nan]).all()


def test_a_number_with_a_quotient_that_would_be_rounded_otherwise_stays_a_divisor() -> None:
    c = float(np.float32(0.7))
    assert inverse_of(c, 24) is None
    x = np.arange(1 << 23, (1 << 23) + 100_000, dtype=np.float32)
    found, kernels = divided(x, c)
    assert " div " in kernels and (found == x / np.float32(c)).all()


@pytest.mark.parametrize("c", [1.0, -4.0, 0.0, math.inf, math.nan, 1e-30, 1e30])
def test_numbers_without_such_an_inverse(c: float) -> None:
    assert inverse_of(c, 24) is None
    x = np.array([*SPECIAL, 5.0, 1e-20], np.float32)
    found, _ = divided(x, c)
    with np.errstate(all="ignore"):
        want = x / np.float32(c)
    nan = np.isnan(want)
    assert (np.isnan(found) == nan).all()
    kept = ~nan & ((np.abs(want) >= np.finfo(np.float32).tiny) | (want == 0))
    assert (found.view(np.int32)[kept] == want.view(np.int32)[kept]).all()


def test_the_two_parts_are_the_inverse_to_twice_the_precision() -> None:
    rng = np.random.default_rng(1)
    for precision, divisors in ((24, np.exp(rng.uniform(-40, 40, 300)).astype(np.float32)), (53, np.exp(rng.uniform(-40, 40, 100)))):
        found = [(float(c), inverse_of(float(c), precision)) for c in divisors]
        assert sum(parts is None for _, parts in found) < 0.1 * len(found)
        for c, parts in found:
            if parts is not None:
                exact = 1 / Fraction(c)
                assert 0 < parts[0] <= exact and parts[1] > 0
                assert abs(Fraction(parts[0]) + Fraction(parts[1]) - exact) <= exact / 2 ** (2 * precision - 1)


def test_half_precision_stays() -> None:
    found, kernels = divided(np.linspace(-3, 3, 1001).astype(np.float16), 10.0)
    assert " div " in kernels
    np.testing.assert_array_equal(found, np.linspace(-3, 3, 1001).astype(np.float16) / np.float16(10))


DIVISORS = [3.0, -0.7, 1.0, -4.0, 1e-38, 3e-39, -1e-44, 0.0, -0.0, math.inf, -math.inf, math.nan, 3e38, 1e31, -7e-31, 0.999999, 123456.0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("keeps", [False, True])
def test_what_is_the_same_all_along_a_row_is_inverted_once(dtype: type, keeps: bool) -> None:
    """Exact quotients, zeros, infinities and NaN are those of a division; others are but for the last bit of one in millions."""
    rng = np.random.default_rng(3)
    c = np.array(DIVISORS, dtype)[:, None]
    x = rng.standard_normal((len(c), 300)).astype(dtype)
    x[:, :40] = np.arange(40, dtype=dtype)
    x[:, 40 : 40 + len(SPECIAL)] = SPECIAL
    with np.errstate(all="ignore"):
        x[:, 100:140] = c * np.arange(40, dtype=dtype)  # whole quotients
        want = x / c
    graph = parse(f"""graph @f(%x: {x.dtype.name.replace("loat", "")}[{len(c)}, 300], %c: {x.dtype.name.replace("loat", "")}[{len(c)}, 1]) {{
      %b = broadcast_to[shape=({len(c)}, 300)] %c
      %y = div %x, %b
      return %y
    }}""")
    executable = compile_graph(graph, (), "f", keeps_denormals=keeps)
    assert "inverse_below" in executable.kernels() and " div " not in executable.kernels()
    (found,) = (t.asnumpy() for t in executable([Tensor(x), Tensor(c)]))
    tiny = np.finfo(dtype).tiny
    for row, got, right in zip(c[:, 0], found, want, strict=True):
        nan = np.isnan(right)
        if not keeps and abs(row) < tiny:  # taken for zero
            continue
        assert (np.isnan(got) == nan).all(), row
        ordinary = ~nan & ((np.abs(right) >= tiny * 2**30) | (right == 0))
        assert (got[ordinary] == right[ordinary]).all() and (np.signbit(got) == np.signbit(right))[~nan].all(), row
        small = ~nan & ~ordinary
        np.testing.assert_allclose(got[small], right[small], rtol=1e-6, atol=tiny)


def test_sums_of_rows_and_numbers_that_are_computed() -> None:
    x = np.random.default_rng(4).uniform(0.1, 1, (37, 515)).astype(np.float32)

    @jit
    def shares(x: Tensor, temperature: Tensor) -> Tensor:
        return x / x.sum(1, keepdims=True) + x / temperature

    found = shares(Tensor(x), Tensor(np.float32(0.7))).asnumpy()
    assert shares._last.executable.kernels().count("inverse_below") == 2
    np.testing.assert_allclose(found, x / x.sum(1, keepdims=True, dtype=np.float64) + x / 0.7, rtol=3e-7)


@pytest.mark.parametrize("extra", range(0, 40, 3))
@pytest.mark.parametrize(("rows", "columns"), [(20, 130), (40, 1000), (300, 200)])
def test_columns_are_inverted_beside_work_of_any_weight(rows: int, columns: int, extra: int) -> None:
    """Columns lie in the lanes of vectors, and how many vectors go side by side depends on the work."""
    shape = f"({rows}, {columns})"
    work = [f"%y{k + 1} = {'minimum' if k % 2 else 'sub'} %y{k}, {'%b' if k % 2 else '%a'}" for k in range(extra)]
    graph = parse(f"""graph @f(%y0: f32[{rows}, {columns}], %a: f32[{rows}, {columns}], %b: f32[{rows}, {columns}]) {{
      {chr(10).join(work)}
      %s = reduce_sum[axis=(0,), keep_dims=True] %y{extra}
      %c = broadcast_to[shape={shape}] %s
      %z = div %y{extra}, %c
      return %z
    }}""")
    x = np.random.default_rng(extra).uniform(0.5, 1, (rows, columns)).astype(np.float32)
    inputs = [x, np.full_like(x, 2**-10), np.full_like(x, 0.9)]
    executable = compile_graph(graph)
    executable([Tensor(np.full_like(y, np.nan)) for y in inputs])  # what is not written stays NaN
    (found,) = (t.asnumpy() for t in executable([Tensor(y) for y in inputs]))
    (want,) = evaluate_graph(graph, inputs)
    np.testing.assert_allclose(found, want, rtol=1e-5)
    assert "vector, i1<" in executable.kernels() and "inverse_below" in executable.kernels()


def test_columns_with_divisors_of_their_own_are_divided() -> None:
    x, c = (np.random.default_rng(5).uniform(1, 2, s).astype(np.float32) for s in ((50, 200), (200,)))

    @jit
    def f(x: Tensor, c: Tensor) -> Tensor:
        return x / c

    assert (f(Tensor(x), Tensor(c)).asnumpy() == x / c).all()
    assert " div " in f._last.executable.kernels()
