"""Networks of minima and maxima: the numbers, and NaN where it belongs, as numpy has them; and which networks are worth it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import graphcell as ms
from graphcell import ops
from graphcell.codegen.extrema import _networks, find_nan_once
from graphcell.codegen.kernel import Access, Load, LoopKernel, Splat, Statement, Store
from graphcell.dtype import DType, float16, float32, float64
from graphcell.ops.arithmetic import Add, Maximum, Minimum

Array = NDArray[Any]
MEDIAN_OF_9 = ((1, 2), (4, 5), (7, 8), (0, 1), (3, 4), (6, 7), (1, 2), (4, 5), (7, 8), (0, 3), (5, 8), (4, 7), (3, 6), (1, 4), (2, 5), (4, 7), (4, 2), (6, 4), (4, 2))
SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.5, 3.0])


def statements(kernel: str, name: str) -> int:
    return kernel.count(f"= {name} ")


def network(low: Callable[..., Any], high: Callable[..., Any], values: list[Any], pairs: Any) -> list[Any]:
    for i, j in pairs:
        values[i], values[j] = low(values[i], values[j]), high(values[i], values[j])
    return values


def inputs(count: int, size: int, dtype: type, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((count, size)).astype(dtype)
    special = rng.random((count, size)) < 0.2
    return np.where(special, rng.choice(SPECIAL, (count, size)), x).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [3, 100, 1000])
def test_the_median_of_nine(size: int, dtype: type) -> None:
    x = inputs(9, size, dtype)

    @ms.jit
    def f(x: ms.Tensor) -> ms.Tensor:
        return network(ops.minimum, ops.maximum, [x[k] for k in range(9)], MEDIAN_OF_9)[4]

    with np.errstate(invalid="ignore"):
        want = np.median(x, 0)
    want[np.isnan(x).any(0)] = np.nan
    np.testing.assert_array_equal(f(ms.Tensor(x)).asnumpy(), want)
    text = f.kernels()
    assert statements(text, "minimum") == statements(text, "maximum") == 0 and statements(text, "one_is_nan") == 5


@pytest.mark.parametrize("seed", range(30))
def test_random_networks(seed: int) -> None:
    """With results amid them, numbers among the operands, and values that others read, too."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 7))
    pairs = [tuple(int(k) for k in rng.choice(count, 2, replace=False)) for _ in range(int(rng.integers(2, 15)))]
    kept = [int(k) for k in rng.integers(0, count, 2)]
    dtype = [np.float32, np.float64, np.float16][seed % 3]
    x = inputs(count, 77, dtype, seed)

    def of(low: Callable[..., Any], high: Callable[..., Any], x: Any) -> list[Any]:
        values = network(low, high, [x[k] for k in range(count)], pairs[: len(pairs) // 2])
        beside = values[kept[0]] + values[kept[1]]
        values[0] = low(values[0], 0.75)
        return [*network(low, high, values, pairs[len(pairs) // 2 :]), beside]

    with np.errstate(invalid="ignore"):
        want = of(lambda x, y: np.minimum(x, dtype(y)) if isinstance(y, float) else np.minimum(x, y), np.maximum, x)
    got = ms.jit(lambda x: tuple(of(ops.minimum, ops.maximum, x)))(ms.Tensor(x))
    for result, expected in zip(got, want, strict=True):
        np.testing.assert_array_equal(result.asnumpy(), expected)


def kernel(ops_of: list[tuple[type, int, int]], stored: list[int], dtype: DType = float32, leaves: int = 4, number: float | None = None) -> LoopKernel:
    """Loads (the last leaf may be a number), then minima and maxima, of which some are stored."""
    body = [Statement(Load(Access(k, (1,), 0), dtype, ()), (), dtype, 1, 0) for k in range(leaves)]
    if number is not None:
        body[-1] = Statement(Splat(number, dtype), (), dtype, 0, 0)
    body += [Statement(kind(), (x, y), dtype, 1, 0) for kind, x, y in ops_of]
    stores = tuple(Store(n, Access(leaves + k, (1,), 0)) for k, n in enumerate(stored))
    return LoopKernel((64,), 0, 0, tuple(body), stores, (dtype,) * (leaves + len(stored)))


CHAIN = [(Maximum, 0, 1), (Maximum, 4, 2), (Maximum, 5, 3)]


def test_what_is_worth_it() -> None:
    chain = kernel(CHAIN, [6])
    (found,) = _networks(chain)
    assert found.members == (6, 5, 4) and found.results == {6: frozenset(range(4))} and found.is_worth_it
    names = [getattr(s.what, "name", "") for s in find_nan_once(chain).body]
    assert names.count("larger_number") == 3 and names.count("one_is_nan") == 2 and names[-1] == "select"
    for other in (
        kernel(CHAIN[:2], [5]),  # too few
        kernel(CHAIN, [4, 5, 6]),  # each is a result
        kernel(CHAIN, [6], float16),  # which is rounded in its own way
        kernel([(Maximum, 0, 1), (Maximum, 2, 3), (Minimum, 0, 3)], [4, 5, 6]),  # apart from each other
    ):
        assert find_nan_once(other) is other


def test_numbers_need_no_comparison() -> None:
    for number, leaves in ((1.0, 3), (float("nan"), 4)):
        (found,) = _networks(kernel(CHAIN, [6], float64, number=number))
        assert len(found.results[6]) == leaves


def test_results_of_the_same_numbers_find_nan_once() -> None:
    pairs = list(itertools.combinations(range(4), 2))

    @ms.jit
    def sort(x: ms.Tensor) -> tuple[ms.Tensor, ...]:
        return tuple(network(ops.minimum, ops.maximum, [x[k] for k in range(4)], pairs))

    x = inputs(4, 500, np.float32)
    want = np.sort(x, 0)
    want[:, np.isnan(x).any(0)] = np.nan
    np.testing.assert_array_equal(np.stack([y.asnumpy() for y in sort(ms.Tensor(x))]), want)
    assert statements(sort.kernels(), "one_is_nan") == 2 and statements(sort.kernels(), "select") == 4


def test_sums_of_extrema_are_no_members() -> None:
    k = kernel([*CHAIN, (Add, 6, 0)], [7])
    assert _networks(k)[0].results == {6: frozenset(range(4))}
