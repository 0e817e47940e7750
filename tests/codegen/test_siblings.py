"""Loop nests that share a kernel because they read the same: the value is read once, and a power and its slope share a logarithm.

Random graphs in which small values are joined, too, are in test_joined_sums.py.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import graphcell as ms
from graphcell import ops
from graphcell.codegen.llvm import math as vector_math
from graphcell.codegen.llvm.target import host
from graphcell.ops.mathematics import Pow
from graphcell.tensor import Tensor
from tests.codegen.harness import build, text_of
from tests.codegen.test_loop_shapes import check, graph_of, kernels

ROWS, COLUMNS = 130, 257
LARGE = np.random.default_rng(0).uniform(0.2, 3, (ROWS, COLUMNS)).astype(np.float32)
OTHER = np.random.default_rng(1).uniform(-2, 2, (ROWS, COLUMNS)).astype(np.float32)


def test_what_reads_the_same_is_one_kernel() -> None:
    fn = lambda x, y: (ops.exp(x) * 2, x + y, ops.maximum(x, 1.0), (x * x).sum(1))  # noqa: E731
    assert len(kernels(graph_of(fn, [LARGE, OTHER]))) == 1
    wide = LARGE.astype(np.float64)
    check(fn, [LARGE, OTHER], [np.exp(wide) * 2, LARGE + OTHER, np.maximum(LARGE, 1), (wide * wide).sum(1)], 2e-6)


def test_other_orders_of_the_axes_may_share_a_kernel_too() -> None:
    fn = lambda x, y: (x * 2, x.transpose(1, 0) * 3, x + y)  # noqa: E731
    check(fn, [LARGE, OTHER], [LARGE * 2, LARGE.T * np.float32(3), LARGE + OTHER], 3e-7)


def test_small_values_and_other_extents_stay_apart() -> None:
    assert len(kernels(graph_of(lambda x, y: (x * 2, x + y), [LARGE[:5], OTHER[:5]]))) == 2
    assert len(kernels(graph_of(lambda x: (x * 2, x[:, :200] + 1), [LARGE]))) == 2


def test_constants_are_no_operands() -> None:
    """A kernel reads so many arrays at most; the fifty coefficients of two polynomials count for nothing."""

    def fn(x: Any, y: Any) -> Any:
        p, q = x * 0.5, y * 0.25
        for k in range(25):
            p, q = x * p + (0.1 + k / 7), y * q - (0.2 + k / 9)
        return p * q

    x, y = LARGE / 4, OTHER / 4
    wide: list[Any] = [x.astype(np.float64) * 0.5, y.astype(np.float64) * 0.25]
    for k in range(25):
        wide = [x * wide[0] + (0.1 + k / 7), y * wide[1] - (0.2 + k / 9)]
    assert len(kernels(graph_of(fn, [x, y]))) == 1
    check(fn, [x, y], wide[0] * wide[1], 1e-5)


def test_a_group_that_joined_another_is_found_by_who_reads_the_same_as_it_did() -> None:
    """The second joins the third by z or by y, and what both have then joins the first; the last reads what only the second had read."""
    x, y, z = LARGE, OTHER, LARGE * OTHER
    fn = lambda x, y, z: (x + y, ops.abs(z), y - z, -x)  # noqa: E731
    assert len(kernels(graph_of(fn, [x, y, z]))) == 1
    check(fn, [x, y, z], [x + y, abs(z), y - z, -x])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_ways_of_reading_three_values(seed: int) -> None:
    """Each result reads one to three of them, as they lie or transposed; all that read the same in some way are joined in any order."""
    rng = np.random.default_rng(seed)
    picks = [[int(k) for k in rng.integers(0, 3, rng.integers(1, 4))] for _ in range(6)]
    turned = [bool(n) for n in rng.integers(0, 4, 6) == 0]

    def fn(*xs: Any) -> Any:
        results = []
        for picked, turn in zip(picks, turned, strict=True):
            total = xs[picked[0]]
            for k in picked[1:]:
                total = total * 2 - xs[k]
            results.append(total.T + 1 if turn else -total)
        return tuple(results)

    check(fn, [LARGE[:, :130], OTHER[:, :130], LARGE[:, 100:230]], fn(LARGE[:, :130], OTHER[:, :130], LARGE[:, 100:230]), 1e-6)


def test_what_lies_in_no_memory_or_is_small_joins_nothing() -> None:
    ramp = lambda x, y: (lambda r: (x * r, y + r))(ops.arange(ROWS * COLUMNS).reshape(ROWS, COLUMNS))  # noqa: E731
    assert len(kernels(graph_of(ramp, [LARGE.astype(np.int64), OTHER.astype(np.int64)]))) == 2
    assert len(kernels(graph_of(lambda x, y, row: (x * row, y + row), [LARGE, OTHER, LARGE[0]]))) == 2


def test_siblings_of_many_ops_stay_apart() -> None:
    def chain(x: Any, y: Any, n: int) -> Any:
        for k in range(n):
            x = ops.maximum(x * 1.01, y) - 0.1 * k
        return x

    count = lambda n: len(kernels(graph_of(lambda x, y: (chain(x, y, n), chain(y, x, n)), [LARGE, OTHER])))  # noqa: E731
    assert (count(5), count(15)) == (1, 2)


def test_what_waits_for_more_does_not_hold_the_others_up() -> None:
    """The second reads, by way of a sort, what stands beside the first."""
    fn = lambda x: (x * 2, ops.sort(x * 3)[0] + x)  # noqa: E731
    assert len(kernels(graph_of(fn, [LARGE]))) == 2
    check(fn, [LARGE], [LARGE * 2, np.sort(LARGE * np.float32(3), -1) + LARGE], 3e-7)


def test_readers_of_a_product_stay_apart_so_that_one_can_be_its_epilogue() -> None:
    def fn(x: Any, y: Any) -> Any:
        z = ops.matmul(x.T, y)
        return ops.relu(z), ops.exp(-z * z)

    assert len(kernels(graph_of(fn, [LARGE, OTHER]))) == 2
    product = LARGE.T.astype(np.float64) @ OTHER
    check(fn, [LARGE, OTHER], [np.maximum(product, 0), np.exp(-product * product)], 2e-3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_power_and_its_slopes_share_a_kernel(dtype: Any) -> None:
    x, y = LARGE.astype(dtype), (OTHER + 2.5).astype(dtype)
    x[0, :4], y[0, :4] = [0, 0, 1, 2], [0, 2, 0, 0]
    gradient = ms.value_and_grad(lambda x, y: (x**y).sum(), (0, 1))
    graph = graph_of(lambda x, y: (lambda value, slopes: (value, *slopes))(*gradient(x, y)), [x, y])
    powers = [[s for s in kernel.body if isinstance(s.what, Pow)] for kernel in kernels(graph)]
    assert [len(found) for found in powers if found] == [2]
    value, (gx, gy) = ms.jit(gradient)(Tensor(x), Tensor(y))
    wide, exponent = x.astype(np.float64), y.astype(np.float64)
    with np.errstate(all="ignore"):
        power = wide**exponent
        slope = np.where(exponent == 0, 0, exponent * wide ** (exponent - 1))
        log_slope = np.where(wide == 0, 0, power * np.log(wide))
    tolerance = {np.float32: 2e-6, np.float64: 1e-14}[dtype]
    np.testing.assert_allclose(value.asnumpy(), power.sum(), rtol=tolerance * 10)
    np.testing.assert_allclose(gx.asnumpy(), slope, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(gy.asnumpy(), log_slope, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("kind", ["float", "double"])
def test_powers_of_one_number_share_its_logarithm_and_have_the_bits_that_they_have_alone(kind: str) -> None:
    ends = [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -3.0, math.inf, -math.inf, math.nan, 1e-40, 1e38, 0.3, 7.0, -2.5, 16777217.0]
    x, y = (v.ravel().astype({"float": np.float32, "double": np.float64}[kind]) for v in np.meshgrid(ends, ends))
    two = lambda b, x, y: (vector_math.pow(b, x, y), vector_math.pow(b, x, b.sub(y, b.const(1.0, y))))  # noqa: E731
    for lanes in (0, 4, 8, 16):
        both, alone = build(two, [kind, kind], lanes)(x, y), build(vector_math.pow, [kind, kind], lanes)
        if kind == "double" or lanes == 16 or not host().avx512:  # which takes whole registers: others are filled up for each power
            lines = [text_of(emit, [kind, kind], lanes)[0].count("\n") for emit in (two, vector_math.pow)]
            assert lines[0] < 1.75 * lines[1]
        for got, exponent in zip(both, (y, y - 1), strict=True):
            np.testing.assert_array_equal(got, alone(x, exponent))
