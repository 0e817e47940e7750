"""Where long columns are cut."""

from __future__ import annotations

import math

import numpy as np
import pytest

import graphcell as ms
from graphcell import Tensor
from graphcell.ops.dispatch import apply
from graphcell.ops.moments import Moments
from graphcell.passes.row_blocks import FEWEST_ROWS, MOST_ROWS, row_blocks


@pytest.mark.parametrize("shape", [(4096, 64), (1024, 1000), (16, 32, 32, 64), (16, 16, 16, 128), (3, 1000, 50), (10000, 3), (1920, 1, 77)], ids=str)
@pytest.mark.parametrize("itemsize", [1, 4, 8])
def test_the_two_steps_are_the_reduction(shape: tuple[int, ...], itemsize: int) -> None:
    axis = tuple(range(len(shape) - 1))
    cut = row_blocks(shape, axis, itemsize)
    assert cut is not None
    x = np.arange(math.prod(shape)).reshape(shape) % 97
    assert np.array_equal(x.reshape(cut.shape).sum(cut.first).sum(cut.second), x.sum(axis))
    assert FEWEST_ROWS / 4 <= cut.rows <= 4 * MOST_ROWS


def test_kept_dimensions_before_the_columns_stay() -> None:
    cut = row_blocks((5, 4096, 64), (1,), 4)
    assert cut is not None
    x = np.arange(5 * 4096 * 64).reshape(5, 4096, 64)
    assert np.array_equal(x.reshape(cut.shape).sum(cut.first).sum(cut.second), x.sum(1))


@pytest.mark.parametrize(("shape", "axis"), [((64, 4096), (1,)), ((4096, 64), (0, 1)), ((20, 64), (0,)), ((10007, 64), (0,)), ((4096, 1), (0,)), ((8, 8), ())])
def test_rows_short_columns_and_primes_stay_whole(shape: tuple[int, ...], axis: tuple[int, ...]) -> None:
    assert row_blocks(shape, axis, 4) is None


def test_moments_of_columns_with_infinities() -> None:
    x = np.random.default_rng(0).standard_normal((4096, 5)).astype(np.float32)
    x[7, 1], x[4000, 2], x[9, 3], x[3000, 3], x[50, 4] = np.inf, -np.inf, np.inf, -np.inf, np.nan
    assert row_blocks(x.shape, (0,), 4) is not None
    got = ms.jit(lambda x: apply(Moments((0,)), x))(Tensor(x))
    mean, variance = (t.asnumpy()[0] for t in got)
    wide = x.astype(np.float64)
    np.testing.assert_allclose(mean[0], wide[:, 0].mean(), atol=1e-6)
    np.testing.assert_allclose(variance[0], wide[:, 0].var(), rtol=1e-5)
    np.testing.assert_array_equal(mean[1:], [np.inf, -np.inf, np.nan, np.nan])
    assert np.isnan(variance[1:]).all()
