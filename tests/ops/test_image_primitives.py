"""Resizing primitives and ROIAlign, element by element from their definitions, and a few values recorded from MindSpore 2.10."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from graphcell import Tensor, ops
from tests.helpers import check_gradients, in_graph

rng = np.random.default_rng(2)
X = rng.standard_normal((2, 3, 5, 7)).astype(np.float32)
ROIS = np.array([[0, 0.2, 0.3, 4.5, 3.6], [1, 1, 1, 6, 4], [0, -1, -1, 9, 9]], np.float32)


def source(k: int, extent: int, out: int, aligned: bool, centered: bool) -> float:
    if aligned and out > 1:
        return k * (extent - 1) / (out - 1)
    return (k + 0.5) * extent / out - 0.5 if centered else k * extent / out


def bilinear(image: np.ndarray, y: float, x: float) -> float:
    y, x = min(max(y, 0.0), image.shape[0] - 1.0), min(max(x, 0.0), image.shape[1] - 1.0)
    top, left = math.floor(y), math.floor(x)
    bottom, right = min(top + 1, image.shape[0] - 1), min(left + 1, image.shape[1] - 1)
    upper = image[top, left] * (left + 1 - x) + image[top, right] * (x - left)
    lower = image[bottom, left] * (left + 1 - x) + image[bottom, right] * (x - left)
    return float(upper * (top + 1 - y) + lower * (y - top))


@pytest.mark.parametrize("size", [(3, 4), (10, 9), (5, 7), (1, 1)], ids=str)
@pytest.mark.parametrize("aligned,centered", [(False, False), (True, False), (False, True)])
def test_resize(size: tuple[int, int], aligned: bool, centered: bool) -> None:
    smooth, nearest = np.zeros((2, 3, *size)), np.zeros((2, 3, *size))
    for n, c, i, j in np.ndindex(2, 3, *size):
        y, x = source(i, 5, size[0], aligned, centered), source(j, 7, size[1], aligned, centered)
        smooth[n, c, i, j] = bilinear(X[n, c], y, x)
        shift = 0.5 if aligned or centered else 0.0
        nearest[n, c, i, j] = X[n, c, min(math.floor(y + shift), 4), min(math.floor(x + shift), 6)]

    def resized(t: Tensor) -> Any:
        return ops.ResizeBilinearV2(aligned, centered)(t, size), ops.ResizeNearestNeighbor(size, aligned, centered)(t)

    for got in (resized(Tensor(X)), in_graph(resized, Tensor(X))):
        np.testing.assert_allclose(got[0].asnumpy(), smooth, atol=2e-6)
        np.testing.assert_array_equal(got[1].asnumpy(), nearest.astype(np.float32))


@pytest.mark.parametrize("samples", [1, 2, 3])
@pytest.mark.parametrize("end_mode", [0, 1])
def test_roi_align(samples: int, end_mode: int) -> None:
    scale, parts = 0.75, (2, 3)
    wanted = np.zeros((3, 3, *parts))
    for r, (number, left, top, right, bottom) in enumerate(ROIS):
        origin = np.array([top, left]) * scale
        size = (np.array([bottom, right]) + end_mode) * scale - origin
        size = np.maximum(size, 1.0 if end_mode == 0 else 0.0)
        for c, i, j in np.ndindex(3, *parts):
            for a, b in np.ndindex(samples, samples):
                y, x = origin + size * (np.array([i * samples + a, j * samples + b]) + 0.5) / (np.array(parts) * samples)
                if -1 <= y <= 5 and -1 <= x <= 7:
                    wanted[r, c, i, j] += bilinear(X[int(number), c], y, x) / samples**2

    def pooled(t: Tensor, rois: Tensor) -> Tensor:
        return ops.ROIAlign(*parts, scale, samples, end_mode)(t, rois)

    for got in (pooled(Tensor(X), Tensor(ROIS)), in_graph(pooled, Tensor(X), Tensor(ROIS))):
        np.testing.assert_allclose(got.asnumpy(), wanted, atol=2e-6)


def test_recorded_values() -> None:
    x = Tensor(np.array([[[[-0.1, 0.3, 3.6], [0.4, 0.5, -3.2]]]], np.float32))
    np.testing.assert_array_equal(ops.ResizeNearestNeighbor((2, 2))(x).asnumpy(), np.array([[[[-0.1, 0.3], [0.4, 0.5]]]], np.float32))
    rois = Tensor(np.array([[0, 0.2, 0.3, 0.2, 0.3]], np.float32))
    got = ops.ROIAlign(2, 2, 0.5, 2)(Tensor(np.array([[[[1.0, 2.0], [3.0, 4.0]]]], np.float32)), rois)
    np.testing.assert_allclose(got.asnumpy(), [[[[1.775, 2.025], [2.275, 2.525]]]], rtol=1e-5)


def test_gradients() -> None:
    check_gradients(lambda t: ops.ResizeBilinearV2()(t, (4, 3)), X[:1, :1], order=1)
    check_gradients(lambda t: ops.ROIAlign(2, 2, 0.75)(t, Tensor(ROIS[:1].astype(np.float64))), X[:1, :1], order=1)


def test_what_does_not_fit() -> None:
    with pytest.raises(ValueError, match="half_pixel_centers must be false"):
        ops.ResizeBilinearV2(True, True)
    with pytest.raises(TypeError, match="'size'"):
        ops.ResizeNearestNeighbor(3)
    with pytest.raises(ValueError, match="two positive ints"):
        ops.ResizeNearestNeighbor((3, 0))
    with pytest.raises(ValueError, match=r"\(N, C, H, W\)"):
        ops.ResizeNearestNeighbor((3, 3))(Tensor(X[0]))
    with pytest.raises(ValueError, match="rois"):
        ops.ROIAlign(2, 2, 1.0)(Tensor(X), Tensor(ROIS[0]))
    with pytest.raises(TypeError, match="must be an int"):
        ops.ROIAlign(2.0, 2, 1.0)
