"""Primitive classes of images: resizing, sampling, and what lies in regions of interest."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphcell import dtype as dt
from graphcell import ops as F
from graphcell.errors import ArgumentTypeError, ArgumentValueError, DTypeError, ShapeError
from graphcell.ops.functional.interpolation import Taps, inside, resized
from graphcell.ops.primitive import Configured
from graphcell.ops.primitives.checks import check_choice, check_type
from graphcell.tensor import Tensor

_CUBIC_STEPS = 1024
"""MindSpore takes cubic weights from a table with so many places between two elements."""

__all__ = [
    "AffineGrid", "GridSampler2D", "GridSampler3D", "ROIAlign", "ResizeBicubic", "ResizeBilinearV2", "ResizeLinear1D",
    "ResizeNearestNeighbor", "ResizeNearestNeighborV2", "UpsampleNearest3D", "UpsampleTrilinear3D",
]  # fmt: skip


def _size(owner: str, size: Any) -> tuple[int, int]:
    values = tuple(size.tolist()) if isinstance(size, Tensor) else size
    if not isinstance(values, (tuple, list)) or any(isinstance(n, bool) or not isinstance(n, int) for n in values):
        raise ArgumentTypeError(f"For '{owner}', the 'size' must be a tuple or list of two ints, but got {size!r}")
    if len(values) != 2 or min(values) < 1:
        raise ArgumentValueError(f"For '{owner}', the 'size' must hold two positive ints, but got {size!r}")
    return values[0], values[1]


class _Resize(Configured):
    """Where elements of the result lie in the image: at index · in / out; with `align_corners` the corner elements fall together; with
    `half_pixel_centers` the elements are squares around their centers."""

    align_corners: bool
    half_pixel_centers: bool

    def _check(self) -> None:
        owner = type(self).__name__
        for what in ("align_corners", "half_pixel_centers"):
            if not isinstance(getattr(self, what), bool):
                raise ArgumentTypeError(f"For '{owner}', the '{what}' must be a bool, but got {type(getattr(self, what)).__name__}")
        if self.align_corners and self.half_pixel_centers:
            raise ArgumentValueError(f"For {owner}, the half_pixel_centers must be false when align_corners is true, but half_pixel_centers is True")

    def _sources(self, extent: int, out: int) -> np.ndarray[Any, Any]:
        at = np.arange(out, dtype=np.float32)
        if self.align_corners and out > 1:
            return at * np.float32((extent - 1) / (out - 1))
        scale = np.float32(extent / out)
        return (at + np.float32(0.5)) * scale - np.float32(0.5) if self.half_pixel_centers else at * scale

    def _images(self, x: Any) -> Tensor:
        if not isinstance(x, Tensor):
            raise ArgumentTypeError(f"For '{type(self).__name__}', the image must be a Tensor, but got {type(x).__name__}")
        if x.ndim != 4 or 0 in x.shape[2:]:
            raise ShapeError(f"For '{type(self).__name__}', the image must have the shape (N, C, H, W), but got {x.shape}")
        return x


    def _nearest(self, x: Tensor, size: tuple[int, int]) -> Tensor:
        for axis, out in enumerate(size, start=2):
            extent = x.shape[axis]
            source = self._sources(extent, out)
            places = np.floor(source + np.float32(0.5)) if self.align_corners or self.half_pixel_centers else np.floor(source)
            x = resized(x, axis, [(inside(places, extent), np.ones(out, np.float32))])
        return x


class ResizeNearestNeighbor(_Resize):
    """Images (N, C, H, W) resized to (N, C, *size), each element the nearest one. (MindSpore's CPU kernel ignores `half_pixel_centers`.)"""

    def __init__(self, size: Any, align_corners: bool = False, half_pixel_centers: bool = False):
        super().__init__(size=_size("ResizeNearestNeighbor", size), align_corners=align_corners, half_pixel_centers=half_pixel_centers)
        self._check()

    def __call__(self, input_x: Any) -> Tensor:
        return self._nearest(self._images(input_x), self.size)


class ResizeNearestNeighborV2(_Resize):
    """Images (N, C, H, W) resized to (N, C, *size), each element the nearest one: called with (image, size)."""

    def __init__(self, align_corners: bool = False, half_pixel_centers: bool = False):
        super().__init__(align_corners=align_corners, half_pixel_centers=half_pixel_centers)
        self._check()

    def __call__(self, image: Any, size: Any) -> Tensor:
        return self._nearest(self._images(image), _size("ResizeNearestNeighborV2", size))


class ResizeBilinearV2(_Resize):
    """Images (N, C, H, W) of floats resized to (N, C, *size), each element the weighted mean of four."""

    def __init__(self, align_corners: bool = False, half_pixel_centers: bool = False):
        super().__init__(align_corners=align_corners, half_pixel_centers=half_pixel_centers)
        self._check()

    def __call__(self, x: Any, size: Any) -> Tensor:
        y = self._images(x)
        if not y.dtype.is_float:
            raise DTypeError(f"ResizeBilinearV2: expected an image of floats, but got {y.dtype}", hint="cast it, and cast the result back")
        for axis, out in enumerate(_size("ResizeBilinearV2", size), start=2):
            extent = y.shape[axis]
            if extent != out:
                y = resized(y, axis, self._taps(extent, out))
        return y

    def _taps(self, extent: int, out: int) -> Taps:
        source = np.clip(self._sources(extent, out), 0, extent - 1)
        low = np.floor(source)
        part = (source - low).astype(np.float32)
        return [(inside(low, extent), 1 - part), (inside(low + 1, extent), part)]


class ResizeBicubic(_Resize):
    """Images (N, C, H, W) of floats resized to (N, C, *size), each element a cubic function of sixteen: called with (image, size)."""

    def __init__(self, align_corners: bool = False, half_pixel_centers: bool = False):
        super().__init__(align_corners=align_corners, half_pixel_centers=half_pixel_centers)
        self._check()

    def __call__(self, image: Any, size: Any) -> Tensor:
        x = self._images(image)
        if not x.dtype.is_float:
            raise DTypeError(f"ResizeBicubic: expected an image of floats, but got {x.dtype}", hint="cast it, and cast the result back")
        for axis, out in enumerate(_size("ResizeBicubic", size), start=2):
            extent = x.shape[axis]
            source = self._sources(extent, out)
            low = np.floor(source)
            part = np.rint((source - low).astype(np.float64) * _CUBIC_STEPS) / _CUBIC_STEPS
            weights = np.stack([self._cubic(np.abs(part - k)) for k in range(-1, 3)])
            if self.half_pixel_centers:  # elements outside of the image do not count
                weights *= np.stack([(low + k >= 0) & (low + k < extent) for k in range(-1, 3)])
                weights /= weights.sum(0)
            x = resized(x, axis, [(inside(low + k, extent), w.astype(np.float32)) for k, w in zip(range(-1, 3), weights)])
        return x

    def _cubic(self, away: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The weight of an element that is `away` (R. Keys, "Cubic convolution interpolation", 1981)."""
        a = -0.5 if self.half_pixel_centers else -0.75
        near = ((a + 2) * away - (a + 3)) * away**2 + 1
        return np.where(away <= 1, near, np.where(away < 2, a * (((away - 5) * away + 8) * away - 4), 0.0))


class ResizeLinear1D(Configured):
    """x (N, C, L) of floats resized to `size`: called with (x, size).

    Args:
        coordinate_transformation_mode: 'align_corners': the first and the last elements fall together; 'half_pixel': the edges do.
    """

    def __init__(self, coordinate_transformation_mode: str = "align_corners"):
        mode = check_choice("ResizeLinear1D", "coordinate_transformation_mode", coordinate_transformation_mode, "align_corners", "half_pixel")
        super().__init__(coordinate_transformation_mode=mode)

    def __call__(self, x: Any, size: Any) -> Tensor:
        extents = tuple(size.reshape(-1).tolist()) if isinstance(size, Tensor) else size
        return F.interpolate(x, extents, mode="linear", align_corners=self.coordinate_transformation_mode == "align_corners")


class UpsampleNearest3D(Configured):
    """Volumes (N, C, D, H, W) resized to `output_size` or by `scales`, each element the nearest: called with (x, output_size, scales)."""

    def __init__(self) -> None:
        super().__init__()

    def __call__(self, x: Any, output_size: Any = None, scales: Any = None) -> Tensor:
        return F.interpolate(x, *_extents("UpsampleNearest3D", output_size, scales), mode="nearest")


class UpsampleTrilinear3D(Configured):
    """Volumes (N, C, D, H, W) resized to `output_size` or by `scales`, linearly: called with (x, output_size, scales)."""

    def __init__(self, align_corners: bool = False):
        super().__init__(align_corners=check_type("UpsampleTrilinear3D", "align_corners", align_corners, bool))

    def __call__(self, x: Any, output_size: Any = None, scales: Any = None) -> Tensor:
        return F.interpolate(x, *_extents("UpsampleTrilinear3D", output_size, scales), mode="trilinear", align_corners=self.align_corners)


def _extents(owner: str, output_size: Any, scales: Any) -> tuple[Any, Any]:
    if (output_size is None) == (scales is None):
        raise ArgumentValueError(f"For '{owner}', either the output_size or the scales must be given")
    return None if output_size is None else tuple(output_size), None if scales is None else tuple(scales)


class _Sampler(Configured):
    """Samples at the places of a grid: called with (input_x, grid)."""

    rank: int

    def __init__(self, interpolation_mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool = False):
        owner = type(self).__name__
        check_choice(owner, "interpolation_mode", interpolation_mode, "bilinear", "nearest")
        check_choice(owner, "padding_mode", padding_mode, "zeros", "border", "reflection")
        check_type(owner, "align_corners", align_corners, bool)
        super().__init__(interpolation_mode=interpolation_mode, padding_mode=padding_mode, align_corners=align_corners)

    def __call__(self, input_x: Any, grid: Any) -> Tensor:
        if not isinstance(input_x, Tensor) or input_x.ndim != self.rank:
            raise ShapeError(f"For '{self.name}', the input must be a Tensor of {self.rank} dimensions")
        return F.grid_sample(input_x, grid, self.interpolation_mode, self.padding_mode, self.align_corners)


class GridSampler2D(_Sampler):
    """Samples of images (N, C, H, W) at places (N, *out, 2): called with (input_x, grid)."""

    rank = 4


class GridSampler3D(_Sampler):
    """Samples of volumes (N, C, D, H, W) at places (N, *out, 3): called with (input_x, grid)."""

    rank = 5


class AffineGrid(Configured):
    """The grid of an affine map: called with (theta, output_size)."""

    def __init__(self, align_corners: bool = False):
        super().__init__(align_corners=check_type("AffineGrid", "align_corners", align_corners, bool))

    def __call__(self, theta: Any, output_size: Any) -> Tensor:
        return F.affine_grid(theta, tuple(output_size), self.align_corners)


class ROIAlign(Configured):
    """The means of `sample_num`² samples, interpolated, in each of (pooled_height, pooled_width) parts of regions of images.

    Inputs: features (N, C, H, W); rois (R, 5): number of the image, left, top, right, bottom, in pixels before `spatial_scale`.
    Outputs: (R, C, pooled_height, pooled_width).

    Args:
        roi_end_mode: 1: right and bottom are the last pixels inside; 0: the edges.
    """

    def __init__(self, pooled_height: int, pooled_width: int, spatial_scale: float, sample_num: int = 2, roi_end_mode: int = 1):
        for what, value in (("pooled_height", pooled_height), ("pooled_width", pooled_width), ("sample_num", sample_num), ("roi_end_mode", roi_end_mode)):
            if isinstance(value, bool) or not isinstance(value, int):
                raise ArgumentTypeError(f"For 'ROIAlign', the '{what}' must be an int, but got {type(value).__name__}")
        if min(pooled_height, pooled_width, sample_num) < 1 or roi_end_mode not in (0, 1):
            raise ArgumentValueError("For 'ROIAlign', the pooled extents and 'sample_num' must be positive, and 'roi_end_mode' 0 or 1")
        super().__init__(
            pooled_height=pooled_height, pooled_width=pooled_width, spatial_scale=float(spatial_scale), sample_num=sample_num, roi_end_mode=roi_end_mode
        )

    def __call__(self, features: Any, rois: Any) -> Tensor:
        if not isinstance(features, Tensor) or not isinstance(rois, Tensor) or not features.dtype.is_float or features.dtype is not rois.dtype:
            raise ArgumentTypeError("For 'ROIAlign', features and rois must be Tensors of floats of one dtype")
        if features.ndim != 4 or rois.ndim != 2 or rois.shape[1] != 5 or 0 in features.shape:
            raise ShapeError(f"For 'ROIAlign', features must be (N, C, H, W) and rois (R, 5), but they are {features.shape} and {rois.shape}")
        _, channels, height, width = features.shape
        image = rois[:, 0].astype(dt.int64)
        rows = self._samples(rois[:, 2], rois[:, 4], self.pooled_height, height)
        columns = self._samples(rois[:, 1], rois[:, 3], self.pooled_width, width)
        flat = features.transpose(0, 2, 3, 1).reshape(-1, channels)
        total: Any = 0.0
        for y, of_y in rows:
            for x, of_x in columns:
                index = (image.reshape(-1, 1, 1) * height + y.reshape(*y.shape, 1)) * width + x.reshape(x.shape[0], 1, x.shape[1])
                weight = of_y.reshape(*of_y.shape, 1) * of_x.reshape(of_x.shape[0], 1, of_x.shape[1])
                total = total + F.gather(flat, index, 0) * weight.expand_dims(-1)
        count, n = rois.shape[0], self.sample_num
        parts = total.reshape(count, self.pooled_height, n, self.pooled_width, n, channels)
        means: Tensor = parts.mean((2, 4)).transpose(0, 3, 1, 2)
        return means

    def _samples(self, start: Any, end: Any, parts: int, extent: int) -> list[tuple[Any, Any]]:
        """For all samples along a dimension (R, parts · sample_num): the two places between which they lie, and their weights."""
        first = start * self.spatial_scale
        last = (end + self.roi_end_mode) * self.spatial_scale
        length = F.maximum(last - first, 1.0 if self.roi_end_mode == 0 else 0.0)
        n = parts * self.sample_num
        steps = Tensor(((np.arange(n) + 0.5) / n).astype(start.dtype.np_type))
        at = first.expand_dims(1) + length.expand_dims(1) * steps
        is_near = F.logical_and(at >= -1.0, at <= float(extent))
        at = F.clamp(at, 0.0, float(extent - 1))
        low = F.floor(at)
        part = at - low
        nothing = F.zeros_like(at)
        places = [F.clamp(low + k, 0.0, float(extent - 1)).astype(dt.int64) for k in (0, 1)]
        return [(places[0], F.select(is_near, 1 - part, nothing)), (places[1], F.select(is_near, part, nothing))]
