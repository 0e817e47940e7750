"""Resizing as OpenCV does it, whose numbers MindSpore's are: pixel centres, no smoothing; bytes in its fixed-point arithmetic."""

from __future__ import annotations

import numpy as np

from graphcell.dataset.core.columns import Array
from graphcell.dataset.vision.utils import Inter
from graphcell.errors import DatasetError, NotImplementedFeatureError

_ONE = 2048  # of a fixed-point weight


def check_interpolation(owner: str, interpolation: Inter) -> Inter:
    """`interpolation` if it is supported; raises NotImplementedError."""
    if interpolation not in (Inter.NEAREST, Inter.LINEAR):
        raise NotImplementedFeatureError(f"{owner}: interpolation {interpolation!r} is not supported", hint="use Inter.LINEAR or Inter.NEAREST")
    return interpolation


def resize(image: Array, height: int, width: int, interpolation: Inter, lead: int = 0) -> Array:
    """Images of shape [H, W] or [H, W, C], behind `lead` other dimensions, with other extents. Raises RuntimeError: they have no pixels."""
    h, w = image.shape[lead : lead + 2]
    if not h or not w:
        raise DatasetError(f"an image of {h} by {w} pixels cannot be resized")
    if (h, w) == (height, width):
        return image
    if interpolation is Inter.NEAREST:
        return image.take(_nearest(h, height), lead).take(_nearest(w, width), lead + 1)
    if (h, w) == (2 * height, 2 * width):
        return _halve(image, lead)
    x0, x1, fx = _neighbours(w, width, clamp_weight=True)
    y0, y1, fy = _neighbours(h, height, clamp_weight=False)
    channels = (1,) * (image.ndim - 2 - lead)
    fx, fy = fx.reshape(-1, *channels), fy.reshape(-1, 1, *channels)
    if image.dtype == np.uint8:
        ax, ay = (np.rint(f * _ONE).astype(np.int32) for f in (fx, fy))
        lines = (image.take(x0, lead + 1) * (_ONE - ax) + image.take(x1, lead + 1) * ax) >> 4
        mixed = (lines.take(y0, lead) * (_ONE - ay)) >> 16
        mixed += (lines.take(y1, lead) * ay) >> 16
        mixed += 2
        mixed >>= 2
        result: Array = mixed.astype(np.uint8)
        return result
    wide = image.astype(np.float64 if image.dtype == np.float64 else np.float32)
    fx, fy = fx.astype(wide.dtype), fy.astype(wide.dtype)
    lines = wide.take(x0, lead + 1) * (1 - fx) + wide.take(x1, lead + 1) * fx
    return _as_dtype(lines.take(y0, lead) * (1 - fy) + lines.take(y1, lead) * fy, image.dtype)


def _nearest(before: int, after: int) -> Array:
    return np.minimum((np.arange(after) * (before / after)).astype(np.int64), before - 1)


def _neighbours(before: int, after: int, clamp_weight: bool) -> tuple[Array, Array, Array]:
    """The two old pixels beside each new one, and the weight of the second."""
    place = ((np.arange(after) + 0.5) * (before / after) - 0.5).astype(np.float32)
    low = np.floor(place).astype(np.int64)
    weight = place - low
    if clamp_weight:
        weight = np.where((low < 0) | (low >= before - 1), 0, weight)
    return low.clip(0, before - 1), (low + 1).clip(0, before - 1), weight


def _halve(image: Array, lead: int) -> Array:
    """The means of 2 x 2 pixels."""
    wide = image.astype(np.int64 if image.dtype.kind in "iu" else image.dtype)
    rows = (slice(None),) * lead
    sums = sum(wide[(*rows, slice(y, None, 2), slice(x, None, 2))] for y in (0, 1) for x in (0, 1))
    return np.asarray((sums + 2) >> 2 if image.dtype.kind in "iu" else sums * 0.25, image.dtype)


def _as_dtype(values: Array, dtype: np.dtype[np.generic]) -> Array:
    if dtype.kind not in "iu":
        return values.astype(dtype)
    bounds = np.iinfo(dtype)  # type: ignore[type-var]
    return np.rint(values).clip(bounds.min, bounds.max).astype(dtype)
