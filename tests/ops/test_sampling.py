"""grid_sample and affine_grid against plain loops over the definition."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from graphcell import Tensor, ops
from tests.helpers import check_gradients, in_graph

rng = np.random.default_rng(3)
CASES = [((2, 3, 5, 7), (2, 4, 6, 2)), ((2, 2, 3, 4, 5), (2, 3, 2, 4, 3)), ((1, 1, 1, 1), (1, 3, 3, 2))]


def place(c: float, extent: int, padding: str, aligned: bool) -> float:
    c = (c + 1) / 2 * (extent - 1) if aligned else ((c + 1) * extent - 1) / 2
    low, high = (0.0, extent - 1.0) if aligned else (-0.5, extent - 0.5)
    if padding == "reflection":
        while high > low and not low <= c <= high:
            c = 2 * low - c if c < low else 2 * high - c
        c = low if high == low else c
    return c if padding == "zeros" else min(max(c, 0.0), extent - 1.0)


def element(image: np.ndarray, at: tuple[int, ...]) -> float:
    return float(image[at]) if all(0 <= k < n for k, n in zip(at, image.shape, strict=True)) else 0.0


def reference(x: np.ndarray, grid: np.ndarray, mode: str, padding: str, aligned: bool) -> np.ndarray:
    out = np.zeros((*x.shape[:2], *grid.shape[1:-1]))
    for index in np.ndindex(grid.shape[:-1]):
        coordinates = [place(c, n, padding, aligned) for c, n in zip(grid[index][::-1], x.shape[2:], strict=True)]
        for channel in range(x.shape[1]):
            image = x[index[0], channel]
            if mode == "nearest":
                value = element(image, tuple(round(c) for c in coordinates))
            else:
                value = 0.0
                for corner in itertools.product((0, 1), repeat=len(coordinates)):
                    at = tuple(math.floor(c) + k for c, k in zip(coordinates, corner, strict=True))
                    value += element(image, at) * math.prod(1 - abs(c - a) for c, a in zip(coordinates, at, strict=True))
            out[(index[0], channel, *index[1:])] = value
    return out


@pytest.mark.parametrize("shape,places", CASES, ids=str)
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("aligned", [False, True])
def test_grid_sample(shape: Any, places: Any, mode: str, padding: str, aligned: bool) -> None:
    x, grid = rng.standard_normal(shape), rng.uniform(-2.5, 2.5, places)
    wanted = reference(x, grid, mode, padding, aligned)

    def sample(a: Tensor, b: Tensor) -> Tensor:
        return ops.grid_sample(a, b, mode, padding, aligned)

    for got in (sample(Tensor(x), Tensor(grid)), in_graph(sample, Tensor(x), Tensor(grid))):
        np.testing.assert_allclose(got.asnumpy(), wanted, atol=1e-12)


@pytest.mark.slow
def test_gradients() -> None:
    x, grid = rng.standard_normal((1, 2, 3, 4)), rng.uniform(-1.3, 1.3, (1, 2, 3, 2))
    for padding in ("zeros", "border", "reflection"):
        check_gradients(lambda a, b, padding=padding: ops.grid_sample(a, b, "bilinear", padding), x, grid, order=1)  # type: ignore[misc]


def test_places_that_are_no_numbers_count_as_outside() -> None:
    grid = np.array([[[[np.nan, 0.0], [np.inf, 0.0], [0.0, -np.inf]]]], np.float32)
    assert ops.grid_sample(Tensor(np.ones((1, 1, 3, 3), np.float32)), Tensor(grid)).asnumpy().ravel().tolist() == [0, 0, 0]


@pytest.mark.parametrize("size", [(2, 3, 4, 5), (2, 1, 3, 1, 4)], ids=str)
@pytest.mark.parametrize("aligned", [False, True])
def test_affine_grid(size: tuple[int, ...], aligned: bool) -> None:
    rank = len(size) - 2
    theta = rng.standard_normal((size[0], rank, rank + 1))
    got = ops.affine_grid(Tensor(theta), size, aligned).asnumpy()
    assert got.shape == (size[0], *size[2:], rank)
    for index in np.ndindex(got.shape[:-1]):
        centers = [((2 * k / (n - 1) - 1) if n > 1 else 0.0) if aligned else (2 * k + 1) / n - 1 for k, n in zip(index[1:], size[2:], strict=True)]
        np.testing.assert_allclose(got[index], theta[index[0]] @ [*centers[::-1], 1.0], atol=1e-12)


def test_what_does_not_fit() -> None:
    x, grid = Tensor(np.ones((1, 1, 2, 2))), Tensor(np.ones((1, 2, 2, 2)))
    with pytest.raises(NotImplementedError, match="bicubic"):
        ops.grid_sample(x, grid, "bicubic")
    with pytest.raises(ValueError, match="mode"):
        ops.grid_sample(x, grid, "cubic")
    with pytest.raises(ValueError, match="does not go with"):
        ops.grid_sample(x, Tensor(np.ones((1, 2, 2, 3))))
    with pytest.raises(TypeError, match="one dtype"):
        ops.grid_sample(x, Tensor(np.ones((1, 2, 2, 2), np.float32)))
    with pytest.raises(ValueError, match="does not go with"):
        ops.affine_grid(Tensor(np.ones((1, 2, 3))), (2, 1, 3, 3))
    with pytest.raises(TypeError, match="size"):
        ops.affine_grid(Tensor(np.ones((1, 2, 3))), [1, 1, 3, 3])
