"""Resizing of sequences, images and volumes: `interpolate`, `upsample`.

Enters: a float Tensor (N, C, spatial...). Leaves: one of the wanted spatial extents. Each axis is resized by itself: an output element is a
weighted sum of a few elements of the input, whose places and weights are constants. Refuses: modes that do not go with the rank.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from graphcell.errors import ArgumentTypeError, ArgumentValueError, DTypeError, ShapeError
from graphcell.ir.types import Shape
from graphcell.ops.functional.common import as_tensor, cast, constant
from graphcell.ops.functional.gathering import gather
from graphcell.ops.functional.pooling import adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d
from graphcell.ops.functional.rearranging import repeat_interleave
from graphcell.tensor import Tensor

__all__ = ["interpolate", "upsample"]

_RANKS = {
    "nearest": (3, 4, 5), "linear": (3,), "bilinear": (4,), "bicubic": (4,), "area": (3, 4, 5), "nearest-exact": (3, 4, 5), "trilinear": (5,),
}  # fmt: skip
_SMOOTH = ("linear", "bilinear", "bicubic", "trilinear")
_AREA = {3: adaptive_avg_pool1d, 4: adaptive_avg_pool2d, 5: adaptive_avg_pool3d}
_CUBIC_ALIGNED, _CUBIC = -0.75, -0.5
"""The parameter of the cubic convolution kernel (Keys, 1981): MindSpore has another one where the corners fall together."""

_ONE_BY_ONE = 4
"""How many times as long it takes to take elements one by one as rows of them."""

Taps = list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]


def interpolate(input: Any, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool | None = None,
                recompute_scale_factor: bool | None = None) -> Tensor:
    """Resizes the spatial dimensions of `input`.

    Args:
        input: (N, C, L), (N, C, H, W) or (N, C, D, H, W), float.
        size: the spatial extents, or one int for all.
        scale_factor: instead of size: the factors, or one for all; extents are rounded down.
        mode: "nearest", "nearest-exact", "area" (3 to 5 dimensions), "linear" (3), "bilinear", "bicubic" (4) or "trilinear" (5).
        align_corners: for the last four: the corner elements of input and output fall together; default: the edges of the corner elements do.
        recompute_scale_factor: take the ratio of the extents for the factor, as with `size`; default: the factor as given.

    Returns:
        Tensor of the dtype of `input`, (N, C, *size).

    Raises:
        TypeError: `input` is no Tensor of floats, or size or scale_factor no numbers. ValueError: an unknown mode, a mode that does not go
        with the rank or with align_corners, both or none of size and scale_factor, or extents that are not positive.
    """
    return resize(input, size, scale_factor, mode, align_corners, recompute_scale_factor)


def resize(input: Any, size: Any, scale_factor: Any, mode: str, align_corners: bool | None, recompute_scale_factor: bool | None,
           edges_repeat: bool = False) -> Tensor:
    """`interpolate`.

    Args:
        edges_repeat: cubic convolution reads the edge where it would read beyond it, and has the parameter of `align_corners` in any case.
    """
    x = _checked(input, mode, align_corners)
    extents, factors = _extents(x, size, scale_factor, bool(recompute_scale_factor))
    if mode == "area":
        return _AREA[x.ndim](x, extents if x.ndim > 3 else extents[0])
    for k in _order(x.shape[2:], extents):
        taps = _taps(mode, x.shape[k + 2], extents[k], factors[k], bool(align_corners), edges_repeat)
        if taps is not None:
            x = resized(x, k + 2, taps)
    return x


def _order(spatial: Shape, extents: Shape) -> tuple[int, ...]:
    """In which order the axes are resized with the least work: what shrinks comes first, what grows last. Elements along the last axis are taken one by
    one, whole rows along the others."""

    def work(order: Sequence[int]) -> int:
        now, total = list(spatial), 0
        for k in order:
            now[k] = extents[k]
            total += math.prod(now) * (_ONE_BY_ONE if k == len(now) - 1 and extents[k] != spatial[k] else 1)
        return total

    return min(itertools.permutations(range(len(extents))), key=work)


def upsample(input: Any, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool | None = None,
             recompute_scale_factor: bool | None = None) -> Tensor:
    """The same as `interpolate`."""
    return interpolate(input, size, scale_factor, mode, align_corners, recompute_scale_factor)


def _checked(input: Any, mode: Any, align_corners: Any) -> Tensor:
    if not isinstance(input, Tensor):
        raise ArgumentTypeError(f"For 'interpolate', 'input' must be a tensor, but got {type(input)}")
    if mode not in _RANKS:
        raise ArgumentValueError(f"For 'interpolate', 'mode' must be in '{list(_RANKS)}', but got {mode}")
    if align_corners is not None and mode not in _SMOOTH:
        raise ArgumentValueError(f"For 'interpolate', 'align_corners' cannot be set with the mode {mode}")
    x = as_tensor(input, "input", "interpolate")
    if x.ndim not in _RANKS[mode]:
        raise ShapeError(f"For 'interpolate', {mode} only support '{list(_RANKS[mode])}'D, but got {x.ndim}D")
    if not x.dtype.is_float:
        raise DTypeError(f"interpolate: expected a Tensor of floats, but got {x.dtype}", hint="cast it, and cast the result back")
    if 0 in x.shape[2:]:
        raise ShapeError(f"interpolate: there is nothing to take elements from in shape {x.shape}")
    return x


def _extents(x: Tensor, size: Any, scale_factor: Any, recompute: bool) -> tuple[Shape, tuple[float | None, ...]]:
    """The spatial extents of the result, and the factors where these say more than the extents."""
    spatial = x.shape[2:]
    if (size is None) == (scale_factor is None):
        wrong = "cannot be both empty" if size is None else "cannot be set simultaneously"
        raise ArgumentValueError(f"For 'interpolate', 'size' and 'scale_factor' {wrong}")
    if size is not None:
        extents = _per_axis("size", size, (int, np.integer), len(spatial))
        return tuple(int(e) for e in extents), (None,) * len(spatial)
    factors = [float(f) for f in _per_axis("scale_factor", scale_factor, (int, float, np.integer, np.floating), len(spatial))]
    extents = tuple(max(1, int(np.floor(e * f))) for e, f in zip(spatial, factors))
    return extents, (None,) * len(spatial) if recompute else tuple(factors)


def _per_axis(what: str, given: Any, kinds: tuple[type, ...], rank: int) -> tuple[Any, ...]:
    values = tuple(given) if isinstance(given, (tuple, list)) else (given,) * rank
    if any(isinstance(v, bool) or not isinstance(v, kinds) for v in values):
        raise ArgumentTypeError(f"interpolate: {what} must be a number or a tuple of numbers, but is {given!r}")
    if len(values) != rank or any(v <= 0 for v in values):
        raise ArgumentValueError(f"interpolate: {what} must be positive, one number for each of {rank} spatial dimensions, but is {given!r}")
    return values


def _taps(mode: str, extent: int, out: int, factor: float | None, align_corners: bool, edges_repeat: bool) -> Taps | None:
    """For each output element along an axis: the places it is made of, and their weights; None where nothing changes.

    Coordinates are float32, as in MindSpore: they decide which of two neighbours is the nearest.
    """
    at = np.arange(out, dtype=np.float32)
    scale = np.float32(1.0 / factor if factor is not None else extent / out)
    if extent == out and (factor is None or align_corners):
        return None
    one = np.ones(out, np.float32)
    if mode in ("nearest", "nearest-exact"):
        places = np.floor(at * scale if mode == "nearest" else (at + np.float32(0.5)) * scale)
        return [(inside(places, extent), one)]
    source = at * np.float32((extent - 1) / max(out - 1, 1)) if align_corners else (at + np.float32(0.5)) * scale - np.float32(0.5)
    if mode != "bicubic":
        source = np.clip(source, 0, extent - 1)
    low = np.floor(source)
    t = (source - low).astype(np.float32)
    if mode != "bicubic":
        return [(inside(low, extent), 1 - t), (inside(low + 1, extent), t)]
    weights = [_cubic(t - k, _CUBIC_ALIGNED if align_corners or edges_repeat else _CUBIC) for k in (-1, 0, 1, 2)]
    if not align_corners and not edges_repeat:  # what lies outside counts for nothing
        weights = [np.where((low + k >= 0) & (low + k < extent), w, 0) for k, w in zip((-1, 0, 1, 2), weights)]
        weights = [w / sum(weights) for w in weights]
    return [(inside(low + k, extent), w.astype(np.float32)) for k, w in zip((-1, 0, 1, 2), weights)]


def inside(places: np.ndarray[Any, Any], extent: int) -> np.ndarray[Any, Any]:
    inside: np.ndarray[Any, Any] = np.clip(places, 0, extent - 1).astype(np.int64)
    return inside


def _cubic(t: np.ndarray[Any, Any], a: float) -> np.ndarray[Any, Any]:
    """The kernel of cubic convolution with parameter `a` at the distance t."""
    d = np.abs(t.astype(np.float64))
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    weights: np.ndarray[Any, Any] = np.where(d <= 1, near, np.where(d < 2, far, 0.0))
    return weights


def resized(x: Tensor, axis: int, taps: Taps) -> Tensor:
    if len(taps) == 1:
        places, extent = taps[0][0], x.shape[axis]
        if len(places) % extent == 0 and np.array_equal(places, np.arange(len(places)) * extent // len(places)):
            return repeat_interleave(x, len(places) // extent, axis)
        return gather(x, constant(places), axis)
    shape = tuple(-1 if k == axis else 1 for k in range(x.ndim))
    parts: list[Any] = [gather(x, constant(places), axis) * cast(constant(weights.reshape(shape)), x.dtype) for places, weights in taps]
    return sum(parts[1:], parts[0])  # type: ignore[no-any-return]
