"""Sampling of images and volumes at any places: `grid_sample`, and `affine_grid`, which makes the places.

Enters: images (N, C, H, W) or volumes (N, C, D, H, W), and for each output element the coordinates x, y(, z) of a place, where -1 and 1 are
the ends of a dimension. Leaves: the weighted sums of the elements around these places. Refuses: other ranks, bicubic interpolation.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from graphcell import dtype as dt
from graphcell.errors import ArgumentTypeError, ArgumentValueError, DTypeError, NotImplementedFeatureError, ShapeError
from graphcell.ops.functional.arithmetic import abs, add, clamp, floor_mod, mul, sub
from graphcell.ops.functional.axes import tensor_of
from graphcell.ops.functional.common import broadcast, cast, constant, full_like, select
from graphcell.ops.functional.comparison import greater_equal, less_equal, logical_and
from graphcell.ops.functional.contraction import matmul
from graphcell.ops.functional.gathering import gather
from graphcell.ops.functional.mathematics import floor, round
from graphcell.ops.functional.movement import permuted, reshaped
from graphcell.tensor import Tensor

__all__ = ["affine_grid", "grid_sample"]

_MODES, _PADDINGS = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")


def grid_sample(input: Tensor, grid: Tensor, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool | None = None) -> Tensor:
    """Samples `input` (N, C, *spatial) at the places `grid` (N, *out, 2 or 3), whose last dimension is x, y(, z).

    Args:
        mode: 'bilinear' (trilinear in volumes) or 'nearest'.
        padding_mode: what lies outside: 'zeros', 'border' (the nearest element inside) or 'reflection' (mirrored at the borders).
        align_corners: -1 and 1 are the centers of the corner elements; default: their outer edges.

    Returns:
        (N, C, *out), of the dtype of `input`.

    Raises:
        TypeError: no Tensors of floats of one dtype, align_corners no bool. ValueError: shapes that do not fit, an unknown mode.
        NotImplementedError: mode 'bicubic'.
    """
    x, places = tensor_of(input, "grid_sample"), tensor_of(grid, "grid_sample", "grid")
    _check(x, places, mode, padding_mode, align_corners)
    spatial = x.shape[2:]
    coordinates = [
        _inside(_to_elements(places[..., len(spatial) - 1 - k], extent, bool(align_corners)), extent, padding_mode, bool(align_corners))
        for k, extent in enumerate(spatial)
    ]
    corners: list[list[tuple[Tensor, Tensor | None]]]
    if mode == "nearest":
        corners = [[(round(c), None)] for c in coordinates]
    else:
        lows = [floor(c) for c in coordinates]
        corners = [[(low, add(sub(low, c), 1.0)), (add(low, 1.0), sub(c, low))] for c, low in zip(coordinates, lows, strict=True)]
    rows = reshaped(permuted(x, (0, *range(2, x.ndim), 1)), (x.shape[0] * math.prod(spatial), x.shape[1]))
    result: Tensor | None = None
    for corner in itertools.product(*corners):
        taken = _taken(rows, corner, x.shape[0], spatial)
        result = taken if result is None else add(result, taken)
    assert result is not None
    return permuted(result, (0, result.ndim - 1, *range(1, result.ndim - 1)))


def _check(x: Tensor, places: Tensor, mode: Any, padding_mode: Any, align_corners: Any) -> None:
    if not x.dtype.is_float or x.dtype is not places.dtype:
        raise DTypeError(f"grid_sample: input and grid must hold floats of one dtype, but are {x.dtype} and {places.dtype}")
    if x.ndim not in (4, 5) or places.ndim != x.ndim or places.shape[-1] != x.ndim - 2 or places.shape[0] != x.shape[0]:
        raise ShapeError(f"grid_sample: an input of shape {x.shape} does not go with a grid of shape {places.shape}")
    if 0 in x.shape[2:]:
        raise ShapeError(f"grid_sample: there is nothing to take elements from in shape {x.shape}")
    for what, value, choices in (("mode", mode, _MODES), ("padding_mode", padding_mode, _PADDINGS)):
        if value not in choices:
            raise ArgumentValueError(f"grid_sample: {what} must be in {choices}, but is {value!r}")
    if mode == "bicubic":
        raise NotImplementedFeatureError("grid_sample: mode 'bicubic' is not there (nor in MindSpore)")
    if align_corners is not None and not isinstance(align_corners, bool):
        raise ArgumentTypeError(f"grid_sample: align_corners must be a bool, but is {type(align_corners).__name__}")


def _to_elements(c: Tensor, extent: int, align_corners: bool) -> Tensor:
    """Coordinates from -1 to 1 as numbers of elements."""
    if align_corners:
        return mul(add(c, 1.0), (extent - 1) / 2)
    return sub(mul(add(c, 1.0), extent / 2), 0.5)


def _inside(c: Tensor, extent: int, padding_mode: str, align_corners: bool) -> Tensor:
    """Coordinates moved into the image where the padding says so."""
    if padding_mode == "zeros":
        return c
    if padding_mode == "reflection":
        low, span = (0.0, float(extent - 1)) if align_corners else (-0.5, float(extent))
        if span == 0:
            return full_like(c, 0)
        within = floor_mod(abs(sub(c, low)), 2 * span)  # once there and back
        c = add(sub(span, abs(sub(within, span))), low)
    return clamp(c, 0.0, float(extent - 1))


def _taken(rows: Tensor, corner: tuple[tuple[Tensor, Tensor | None], ...], images: int, spatial: tuple[int, ...]) -> Tensor:
    """The elements (N, *out, C) at one corner of each place, times their weights; 0 for what lies outside."""
    shape = corner[0][0].shape
    counted = np.arange(images, dtype=np.int64).reshape(-1, *(1,) * (len(shape) - 1))
    index, weight, is_inside = broadcast(constant(counted), shape), None, None
    for (c, w), extent in zip(corner, spatial, strict=True):
        valid = logical_and(greater_equal(c, 0.0), less_equal(c, float(extent - 1)))
        is_inside = valid if is_inside is None else logical_and(is_inside, valid)
        index = add(mul(index, extent), cast(clamp(c, 0.0, float(extent - 1)), dt.int64))
        weight = w if weight is None else mul(weight, w)
    assert is_inside is not None
    taken = gather(rows, index, 0)
    if weight is not None:
        taken = mul(taken, reshaped(weight, (*shape, 1)))
    return select(broadcast(reshaped(is_inside, (*shape, 1)), taken.shape), taken, full_like(taken, 0))


def affine_grid(theta: Tensor, size: Any, align_corners: bool = False) -> Tensor:
    """The places that an affine map takes the elements of an image to, for `grid_sample`.

    Args:
        theta: (N, 2, 3) for images or (N, 3, 4) for volumes, float.
        size: (N, C, H, W) or (N, C, D, H, W) of the output.
        align_corners: as in `grid_sample`.

    Returns:
        (N, H, W, 2) or (N, D, H, W, 3).

    Raises:
        TypeError: no Tensor of floats, size no tuple of ints. ValueError: shapes that do not fit.
    """
    matrix = tensor_of(theta, "affine_grid", "theta")
    if not matrix.dtype.is_float:
        raise DTypeError(f"affine_grid: theta must hold floats, but is {matrix.dtype}")
    if not isinstance(size, tuple) or not all(isinstance(n, int) and not isinstance(n, bool) for n in size):
        raise ArgumentTypeError(f"affine_grid: size must be a tuple of ints, but is {size!r}")
    spatial = size[2:]
    rank = len(spatial)
    if rank not in (2, 3) or matrix.shape != (size[0], rank, rank + 1) or min(size) < 1:
        raise ShapeError(f"affine_grid: theta of shape {matrix.shape} does not go with size {size}")
    axes = [np.linspace(-1, 1, n) if align_corners and n > 1 else (2 * np.arange(n) + 1) / n - 1 for n in spatial]
    if align_corners:
        axes = [a if a.size > 1 else np.zeros(1) for a in axes]
    meshes = np.meshgrid(*axes, indexing="ij")[::-1]  # x runs along the last dimension
    points = np.stack([m.ravel() for m in meshes] + [np.ones(meshes[0].size)], 1)
    product = matmul(constant(points.astype(matrix.dtype.np_type)), permuted(matrix, (0, 2, 1)))
    return reshaped(product, (size[0], *spatial, rank))
