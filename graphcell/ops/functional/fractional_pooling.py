"""Maximum over windows at random places that shrink an image by any factor: `fractional_max_pool2d`, `fractional_max_pool3d` (Graham, 2014)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphcell import dtype as dt
from graphcell.errors import ArgumentTypeError, ArgumentValueError, ShapeError
from graphcell.ir.types import Shape
from graphcell.ops.dispatch import apply1
from graphcell.ops.functional.common import as_tensor, broadcast, cast, constant, full, select
from graphcell.ops.functional.convolution import each_dimension
from graphcell.ops.functional.gathering import gather_elements
from graphcell.ops.functional.mathematics import floor
from graphcell.ops.functional.movement import cut, reshaped
from graphcell.ops.functional.random import rand
from graphcell.ops.pooling import ReduceMaxFirst
from graphcell.ops.reduction import ArgMax
from graphcell.tensor import Tensor

__all__ = ["fractional_max_pool2d", "fractional_max_pool3d"]


def fractional_max_pool2d(
    input: Any, kernel_size: Any, output_size: Any = None, output_ratio: Any = None, return_indices: bool = False, _random_samples: Any = None
) -> Any:
    """Maximum over windows of (N, C, H, W) or (C, H, W) that lie at random distances of about (H - kernel) / (H' - 1).

    Args:
        kernel_size: an int, or two.
        output_size: H' and W', an int or two. output_ratio: instead of it: what they are of H and W, a float or two in (0, 1).
        return_indices: also give the places of the maxima, row-major in the image.
        _random_samples: (N, C, 2), in [0, 1): what decides about the places, by default drawn anew.

    Raises:
        TypeError, ValueError: shapes or settings that do not fit.
    """
    return _pool("fractional_max_pool2d", 2, input, kernel_size, output_size, output_ratio, return_indices, _random_samples)


def fractional_max_pool3d(
    input: Any, kernel_size: Any, output_size: Any = None, output_ratio: Any = None, return_indices: bool = False, _random_samples: Any = None
) -> Any:
    """The same over windows of (N, C, D, H, W) or (C, D, H, W); samples (N, C, 3)."""
    return _pool("fractional_max_pool3d", 3, input, kernel_size, output_size, output_ratio, return_indices, _random_samples)


def _pool(
    function: str, rank: int, input: Any, kernel_size: Any, output_size: Any, output_ratio: Any, return_indices: bool, samples: Any
) -> Any:
    x = as_tensor(input, "input", function)
    if x.ndim not in (rank + 1, rank + 2) or not x.dtype.is_float:
        raise ShapeError(f"{function}: the input must hold floats and have {rank + 1} or {rank + 2} dimensions, but is {x.dtype}{list(x.shape)}")
    spatial = x.shape[-rank:]
    kernel = each_dimension(kernel_size, rank, function, "kernel_size")
    counts = output_extents(function, spatial, output_size, output_ratio)
    if any(k + n - 1 > d or n < 1 for k, n, d in zip(kernel, counts, spatial, strict=True)):
        raise ShapeError(f"{function}: {counts} windows of {kernel} do not fit into {spatial}")
    lead = (math.prod(x.shape[:-rank]),)
    u = rand(*lead, rank, dtype=dt.float32) if samples is None else reshaped(cast(as_tensor(samples, "_random_samples", function), dt.float32), (*lead, rank))
    order = (1, 0) if rank == 2 else (0, 1, 2)  # the samples of an image begin with its width
    shape = (*lead, *counts, *kernel)
    places: Any = full(shape, 0, dt.int64)
    for axis, (d, n, k) in enumerate(zip(spatial, counts, kernel, strict=True)):
        along = _starts(cut(u, 1, order[axis], 1), d, n, k)  # (lead, n)
        steps = constant(np.arange(k).reshape(*(1,) * (rank + 1 + axis), k, *(1,) * (rank - 1 - axis)))
        grid: Any = reshaped(along, (*lead, *(1,) * axis, n, *(1,) * (2 * rank - 1 - axis)))
        places = places * d + broadcast(grid, shape) + broadcast(steps, shape)  # type: ignore[operator]
    windows = reshaped(places, (*lead, math.prod(counts), math.prod(kernel)))
    flat = reshaped(x, (*lead, math.prod(spatial)))
    values = reshaped(gather_elements(flat, 1, reshaped(windows, (*lead, windows.shape[1] * windows.shape[2]))), windows.shape)
    y = reshaped(apply1(ReduceMaxFirst((2,)), values), (*x.shape[:-rank], *counts))
    if not return_indices:
        return y
    at = reshaped(apply1(ArgMax(2), values), (*windows.shape[:2], 1))
    return y, reshaped(gather_elements(windows, 2, at), y.shape)


def output_extents(function: str, spatial: Shape, output_size: Any, output_ratio: Any) -> Shape:
    """How many windows there are along each dimension.

    Raises:
        TypeError, ValueError: both settings, none, or none that fit.
    """
    if (output_size is None) == (output_ratio is None):
        raise ArgumentValueError(f"{function}: either output_size or output_ratio must be given, but got {output_size} and {output_ratio}")
    if output_size is not None:
        return each_dimension(output_size, len(spatial), function, "output_size")
    ratios = output_ratio if isinstance(output_ratio, tuple) else (output_ratio,) * len(spatial)
    if not all(isinstance(r, float) for r in ratios):
        raise ArgumentTypeError(f"{function}: output_ratio must be a float or a tuple of floats, but is {output_ratio}")
    if len(ratios) != len(spatial) or not all(0 < r < 1 for r in ratios):
        raise ArgumentValueError(f"{function}: output_ratio must be {len(spatial)} floats in (0, 1), but is {output_ratio}")
    return tuple(int(d * r) for d, r in zip(spatial, ratios, strict=True))


def _starts(u: Any, extent: int, count: int, kernel: int) -> Tensor:
    """Where the windows along a dimension begin, (lead, count); the last one ends with the dimension."""
    if count == 1:
        return full((u.shape[0], 1), extent - kernel, dt.int64)
    number = constant(np.arange(count, dtype=np.float32).reshape(1, -1))
    apart = (extent - kernel) / (count - 1)
    shape = (u.shape[0], count)
    begin: Any = floor((broadcast(number, shape) + broadcast(u, shape)) * apart) - broadcast(floor(u * apart), shape)  # type: ignore[operator]
    last = broadcast(constant(np.arange(count).reshape(1, -1) == count - 1), shape)
    return select(last, full(shape, extent - kernel, dt.int64), cast(begin, dt.int64))
