"""Layers of images: channels for pixels and back, cropping, differences, and how alike two images are."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphcell import dtype as dt
from graphcell import ops
from graphcell.errors import ArgumentTypeError, ArgumentValueError, ShapeError
from graphcell.nn.cell import Cell
from graphcell.nn.checks import check_float, check_number, is_int, is_number
from graphcell.nn.layer.activation import ReLU
from graphcell.nn.layer.container import CellList
from graphcell.nn.layer.conv import Conv2d
from graphcell.nn.layer.pooling import AvgPool2d
from graphcell.tensor import Tensor


class PixelShuffle(Cell):
    """(*, C r², H, W) to (*, C, H r, W r) for r = upscale_factor."""

    def __init__(self, upscale_factor: int):
        super().__init__()
        self.upscale_factor = upscale_factor

    def construct(self, input: Any) -> Any:
        return ops.pixel_shuffle(input, self.upscale_factor)


class PixelUnshuffle(Cell):
    """(*, C, H r, W r) to (*, C r², H, W) for r = downscale_factor."""

    def __init__(self, downscale_factor: int):
        super().__init__()
        self.downscale_factor = downscale_factor

    def construct(self, input: Any) -> Any:
        return ops.pixel_unshuffle(input, self.downscale_factor)


class CentralCrop(Cell):
    """The middle of an image (C, H, W) or (N, C, H, W): `central_fraction` of its height and width.

    Raises:
        TypeError: the fraction is no float. ValueError: it is outside of (0, 1], or another number of dimensions.
    """

    def __init__(self, central_fraction: float):
        super().__init__()
        if not isinstance(central_fraction, float):
            raise ArgumentTypeError(
                f"For 'CentralCrop', the type of 'central_fraction' should be 'float', but got type '{type(central_fraction).__name__}'."
            )
        if not 0 < central_fraction <= 1:
            raise ArgumentValueError(
                f"For 'CentralCrop', the 'central_fraction' must be in range of (0.0, 1.0], but got {central_fraction} with type 'float'."
            )
        self.central_fraction = central_fraction

    def construct(self, image: Any) -> Any:
        if image.ndim not in (3, 4):
            raise ShapeError(f"CentralCrop image must be 3d or 4d, but got shape {image.shape}")
        (top, bottom), (left, right) = (self._span(extent) for extent in image.shape[-2:])
        return image[..., top:bottom, left:right]

    def _span(self, extent: int) -> tuple[int, int]:
        begin = int((extent - extent * self.central_fraction) / 2)
        return begin, extent - begin


class ImageGradients(Cell):
    """The differences to the next row and to the next column of (N, C, H, W), 0 in the last one.

    Outputs: (dy, dx), each of the shape of the input.

    Raises:
        ValueError: another number of dimensions.
    """

    def construct(self, images: Any) -> Any:
        if images.ndim != 4:
            raise ShapeError(f"For 'ImageGradients', the dimension of 'images' must be 4d, but got {images.ndim}.")
        dy, dx = images[:, :, 1:] - images[:, :, :-1], images[..., 1:] - images[..., :-1]
        return ops.pad(dy, (0, 0, 0, 1)), ops.pad(dx, (0, 1))


def _check_images(owner: str, img1: Any, img2: Any) -> None:
    if img1.shape != img2.shape:
        raise ShapeError(f"For '{owner}', both images must have one shape, but got {img1.shape} and {img2.shape}.")
    if img1.ndim != 4:
        raise ShapeError(f"For '{owner}', the dimension of 'img1' must be 4d, but got {img1.ndim}.")
    if img1.dtype != img2.dtype:
        raise ArgumentTypeError(f"For '{owner}', both images must have one dtype, but got {img1.dtype} and {img2.dtype}.")


def _check_range(owner: str, max_val: Any) -> float:
    if not is_number(max_val):
        raise ArgumentTypeError(f"For '{owner}', the type of 'max_val' should be one of '['int', 'float']', but got type '{type(max_val).__name__}'.")
    if max_val <= 0:
        raise ArgumentValueError(f"For '{owner}', the argument 'max_val' must > 0.0, but got {max_val}.")
    return float(max_val)


def _as_float(image: Any) -> Any:
    return image if image.dtype.is_float else ops.cast(image, dt.float32)


class PSNR(Cell):
    """Peak signal-to-noise ratio of two batches of images (N, C, H, W): 10 log10(max_val² / mean((img1 - img2)²)) of each, (N,).

    Args:
        max_val: the range of the pixels, default 1.0.

    Raises:
        TypeError, ValueError: a range that is none, images that do not fit.
    """

    def __init__(self, max_val: float = 1.0):
        super().__init__()
        self.max_val = _check_range("PSNR", max_val)

    def construct(self, img1: Any, img2: Any) -> Any:
        _check_images("PSNR", img1, img2)
        d = (_as_float(img1) - _as_float(img2)) / self.max_val
        return ops.log((d * d).mean((1, 2, 3))) * (-10 / math.log(10))


class _Similarity(Cell):
    """What the similarities have in common.

    Args:
        max_val: the range of the pixels, default 1.0.
        filter_size, filter_sigma: extent and standard deviation of the Gaussian windows. Default 11 and 1.5.
        k1, k2: of the constants that keep the quotients finite. Default 0.01 and 0.03.

    Raises:
        TypeError, ValueError: settings that do not fit, images that are smaller than a window.
    """

    def __init__(self, max_val: float, filter_size: int, filter_sigma: float, k1: float, k2: float):
        super().__init__()
        owner = type(self).__name__
        self.max_val = _check_range(owner, max_val)
        if not is_int(filter_size) or filter_size < 1:
            raise ArgumentValueError(f"For '{owner}', the 'filter_size' must be int and must >= 1, but got '{filter_size}' with type 'int'.")
        if check_float(owner, "filter_sigma", filter_sigma) <= 0:
            raise ArgumentValueError(f"For '{owner}', the 'filter_sigma' must be float and must > 0, but got '{filter_sigma}' with type 'float'.")
        self.filter_size, self.filter_sigma = filter_size, filter_sigma
        self.k1, self.k2 = check_float(owner, "k1", k1), check_float(owner, "k2", k2)

    def _window(self) -> Conv2d:
        """The mean of a channel under a Gaussian window."""
        places = np.arange(self.filter_size) - (self.filter_size - 1) // 2
        bell = np.exp(-(places[:, None] ** 2 + places**2) / (2 * self.filter_sigma**2))
        weight = Tensor((bell / bell.sum()).astype(np.float32)[None, None])
        conv = Conv2d(1, 1, self.filter_size, pad_mode="valid", weight_init=weight)
        conv.weight.requires_grad = False
        return conv

    def _compare(self, img1: Any, img2: Any, window: Any) -> tuple[Any, Any]:
        """For each pair of images, (N,): the similarity, and the part of it that is about contrast and structure."""
        n, c, h, w = img1.shape
        if min(h, w) < self.filter_size:
            raise ShapeError(f"For '{type(self).__name__}', the img1 shape[2] should be >= filter_size: {self.filter_size}, but got {min(h, w)}.")
        x, y = (_as_float(image).reshape((n * c, 1, h, w)) for image in (img1, img2))
        one, two = (self.k1 * self.max_val) ** 2, (self.k2 * self.max_val) ** 2
        mean_x, mean_y = window(x), window(y)
        product, squares = 2 * mean_x * mean_y, mean_x * mean_x + mean_y * mean_y
        luminance = (product + one) / (squares + one)
        contrast = (2 * window(x * y) - product + two) / (window(x * x + y * y) - squares + two)
        return (luminance * contrast).reshape((n, -1)).mean(1), contrast.reshape((n, -1)).mean(1)


class SSIM(_Similarity):
    """Structural similarity of two batches of images (N, C, H, W), one number for each, (N,) (Wang et al., 2004)."""

    def __init__(self, max_val: float = 1.0, filter_size: int = 11, filter_sigma: float = 1.5, k1: float = 0.01, k2: float = 0.03):
        super().__init__(max_val, filter_size, filter_sigma, k1, k2)
        self.conv = self._window()

    def construct(self, img1: Any, img2: Any) -> Any:
        _check_images("SSIM", img1, img2)
        return self._compare(img1, img2, self.conv)[0]


class MSSSIM(_Similarity):
    """Structural similarity at several scales, each half as fine as the one before (Wang, Simoncelli and Bovik, 2003).

    Args:
        power_factors: the weight of each scale; default: five of them.
    """

    def __init__(
        self, max_val: float = 1.0, power_factors: Any = (0.0448, 0.2856, 0.3001, 0.2363, 0.1333), filter_size: int = 11, filter_sigma: float = 1.5,
        k1: float = 0.01, k2: float = 0.03,
    ):  # fmt: skip
        super().__init__(max_val, filter_size, filter_sigma, k1, k2)
        if not isinstance(power_factors, (tuple, list)):
            raise ArgumentTypeError(
                f"For 'MSSSIM', the type of 'power_factors' should be one of '['tuple', 'list']', but got type '{type(power_factors).__name__}'."
            )
        self.power_factors = tuple(check_number("MSSSIM", "power_factors", p) for p in power_factors)
        self.multi_convs_list = CellList([self._window() for _ in power_factors])
        self.avg_pool = AvgPool2d(2, 2)
        self.relu = ReLU()

    def construct(self, img1: Any, img2: Any) -> Any:
        _check_images("MSSSIM", img1, img2)
        total: Any = 1.0
        for k, power in enumerate(self.power_factors):
            if k:
                img1, img2 = self.avg_pool(img1), self.avg_pool(img2)
            whole, contrast = self._compare(img1, img2, self.multi_convs_list[k])
            total = total * self.relu(whole if k == len(self.power_factors) - 1 else contrast) ** power
        return total
