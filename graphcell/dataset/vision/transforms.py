"""Transforms of images, arrays of shape [H, W] or [H, W, C] (after `HWC2CHW` or `ToTensor` [C, H, W]), for `Dataset.map`.

Refused: what is no array (nor an image of PIL), and shapes that are no image's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from graphcell import dtype as dt
from graphcell.dataset.core.columns import Array
from graphcell.dataset.core.run import below, generator
from graphcell.dataset.engine.checks import check_int, check_type
from graphcell.dataset.transforms.operation import TensorOperation
from graphcell.dataset.transforms.transforms import TypeCast, fraction
from graphcell.dataset.vision.resizing import check_interpolation, resize
from graphcell.dataset.vision.utils import Border, Inter
from graphcell.errors import ArgumentTypeError, ArgumentValueError, DatasetError


class ImageTensorOperation(TensorOperation):
    """Base of transforms of images."""

    def checked(self, value: Any) -> Array:
        if not isinstance(value, np.ndarray) and not hasattr(value, "__array_interface__"):
            raise ArgumentTypeError(f"Input should be NumPy or PIL image, got {type(value)}.")
        return super().checked(value)

    def _rank(self, x: Array, lead: int) -> int:
        """2 or 3. Raises RuntimeError: another number of dimensions, or no numbers."""
        rank = x.ndim - lead
        self._check_numbers(x)
        if rank not in (2, 3):
            raise DatasetError(f"{type(self).__name__}: image shape should be <H,W> or <H,W,C>, but got rank: {rank}")
        return rank

    def _check_numbers(self, x: Array) -> None:
        if x.dtype.kind in "SU":
            raise DatasetError(f"{type(self).__name__}: an image has numbers, but this has the dtype {x.dtype}")


# -- values ----------------------------------------------------------------------------------------------------------------
class Rescale(ImageTensorOperation):
    """x * rescale + shift, as float32."""

    takes_rows = True

    def __init__(self, rescale: float, shift: float):
        self.rescale, self.shift = (np.float32(check_type(name, v, (int, float))) for name, v in (("rescale", rescale), ("shift", shift)))

    def compute(self, x: Array, lead: int) -> Array:
        self._check_numbers(x)
        scaled = np.multiply(x, self.rescale, dtype=np.float32)
        return scaled if self.shift == 0 else np.add(scaled, self.shift, out=scaled if scaled.ndim else None)


class Normalize(ImageTensorOperation):
    """(x - mean) / std for each channel, as float32.

    Args:
        mean, std: sequences of one number, or one for each channel: 0 to 255, std above 0.
        is_hwc: whether channels come last (default) or first.

    Raises:
        TypeError, ValueError: other arguments. RuntimeError: called with another number of channels.
    """

    takes_rows = True

    def __init__(self, mean: Sequence[float], std: Sequence[float], is_hwc: bool = True):
        for name, values in (("mean", mean), ("std", std)):
            check_type(name, values, (list, tuple))
            for k, v in enumerate(values):
                check_type(f"{name}[{k}]", v, (int, float))
                if not 0 <= v <= 255 or (name == "std" and v == 0):
                    raise ArgumentValueError(f"Input {name}[{k}] is not within the required interval of {'[' if name == 'mean' else '('}0, 255].")
        if len(mean) != len(std) or not mean:
            raise ArgumentValueError("Length of mean and std must be equal.")
        self.mean, self.std = np.array(mean, np.float32), np.array(std, np.float32)
        self.is_hwc = bool(check_type("is_hwc", is_hwc, bool))

    def compute(self, x: Array, lead: int) -> Array:
        rank = self._rank(x, lead)
        channels = 1 if rank == 2 else x.shape[-1] if self.is_hwc else x.shape[-3]
        if len(self.mean) not in (1, channels):
            raise DatasetError(
                f"Normalize: number of channels does not match the size of mean and std vectors, got channels: {channels}, size of mean: {len(self.mean)}"
            )
        shape = (-1,) if self.is_hwc or rank == 2 else (-1, 1, 1)
        centred = np.subtract(x, self.mean.reshape(shape), dtype=np.float32)
        return np.divide(centred, self.std.reshape(shape), out=centred)


class ToType(TypeCast):
    """The same image with another dtype."""


class Invert(ImageTensorOperation):
    """255 - x."""

    takes_rows = True

    def compute(self, x: Array, lead: int) -> Array:
        self._check_numbers(x)
        return np.asarray(255 - x).astype(x.dtype, copy=False)


# -- order of dimensions ---------------------------------------------------------------------------------------------------
class HWC2CHW(ImageTensorOperation):
    """[H, W, C] → [C, H, W]; [H, W] stays."""

    takes_rows = True

    def compute(self, x: Array, lead: int) -> Array:
        return np.moveaxis(x, -1, lead) if self._rank(x, lead) == 3 else x


class ToTensor(ImageTensorOperation):
    """x / 255 as [C, H, W], with one channel for [H, W]; `output_type` is a dtype, float32 by default."""

    takes_rows = True

    def __init__(self, output_type: Any = np.float32):
        self.output_type = dt.as_dtype(output_type)

    def compute(self, x: Array, lead: int) -> Array:
        image = np.moveaxis(x, -1, lead) if self._rank(x, lead) == 3 else np.expand_dims(x, lead)
        return np.multiply(image, np.float32(1 / 255), dtype=np.float32).astype(self.output_type.np_type, copy=False)


class _Flip(ImageTensorOperation):
    """The image turned round along one dimension."""

    takes_rows = True
    axis = 0

    def compute(self, x: Array, lead: int) -> Array:
        self._rank(x, lead)
        return np.flip(x, lead + self.axis)


class HorizontalFlip(_Flip):
    """Left and right exchanged."""

    axis = 1


class VerticalFlip(_Flip):
    """Top and bottom exchanged."""


class _RandomFlip(_Flip):
    """A flip with a probability."""

    takes_rows = False

    def __init__(self, prob: float = 0.5):
        self.prob = fraction("prob", prob)

    def compute(self, x: Array, lead: int) -> Array:
        return super().compute(x, lead) if generator().random() < self.prob else x


class RandomHorizontalFlip(_RandomFlip):
    """`HorizontalFlip` with probability `prob`, default 0.5."""

    axis = 1


class RandomVerticalFlip(_RandomFlip):
    """`VerticalFlip` with probability `prob`, default 0.5."""


# -- extents ---------------------------------------------------------------------------------------------------------------
def _extents(size: Any) -> tuple[int, int]:
    """An int or a pair of them as (height, width)."""
    if isinstance(size, (list, tuple)):
        if len(size) != 2:
            raise ArgumentTypeError(f"Size should be a single integer or a list/tuple (h, w) of length 2, but got {size!r}.")
        return check_int("size(0)", size[0], 1), check_int("size(1)", size[1], 1)
    check_type("size", size, int)
    return check_int("size", size, 1), size


class Resize(ImageTensorOperation):
    """Other extents.

    Args:
        size: (height, width), or the shorter extent; then the proportions stay.
        interpolation: `Inter.LINEAR` (default, the same as BILINEAR) or `Inter.NEAREST`.

    Raises:
        TypeError, ValueError: other arguments. NotImplementedError: another interpolation.
    """

    takes_rows = True

    def __init__(self, size: Any, interpolation: Inter = Inter.LINEAR):
        self._size = _extents(size)
        self._keeps_ratio = isinstance(size, int)
        self.interpolation = check_interpolation("Resize", check_type("interpolation", interpolation, Inter))

    def compute(self, x: Array, lead: int) -> Array:
        self._rank(x, lead)
        height, width = self._size
        if self._keeps_ratio:
            h, w = x.shape[lead : lead + 2]
            height, width = (height, width * w // h) if h < w else (height * h // w, width)
        return resize(x, height, width, self.interpolation, lead)


class Crop(ImageTensorOperation):
    """The part of size `size` whose upper left corner is at `coordinates` (top, left)."""

    takes_rows = True

    def __init__(self, coordinates: Sequence[int], size: Any):
        check_type("coordinates", coordinates, (list, tuple))
        if len(coordinates) != 2:
            raise ArgumentTypeError("coordinates should be a (top, left) pair.")
        self._top, self._left = check_int("coordinates[0]", coordinates[0], 0), check_int("coordinates[1]", coordinates[1], 0)
        self._size = _extents(size)

    def compute(self, x: Array, lead: int) -> Array:
        self._rank(x, lead)
        return _cut(type(self).__name__, x, self._top, self._left, *self._size, lead)


def _cut(owner: str, x: Array, top: int, left: int, height: int, width: int, lead: int) -> Array:
    h, w = x.shape[lead : lead + 2]
    if top + height > h or left + width > w:
        raise DatasetError(f"{owner}: a part of ({height}, {width}) at ({top}, {left}) does not fit into an image of ({h}, {w})")
    return x[(*(slice(None),) * lead, slice(top, top + height), slice(left, left + width))]


class CenterCrop(ImageTensorOperation):
    """The middle, of size `size`; 0 where the image is smaller."""

    takes_rows = True

    def __init__(self, size: Any):
        self._size = _extents(size)

    def compute(self, x: Array, lead: int) -> Array:
        rank = self._rank(x, lead)
        short = [max(n - m, 0) for n, m in zip(self._size, x.shape[lead:])]
        if any(short):
            x = np.pad(x, [(0, 0)] * lead + [(n - n // 2, n // 2) for n in short] + [(0, 0)] * (rank - 2))
        top, left = ((m - n) // 2 for n, m in zip(self._size, x.shape[lead:]))
        return _cut("CenterCrop", x, top, left, *self._size, lead)


_NUMPY_MODES = {Border.CONSTANT: "constant", Border.EDGE: "edge", Border.REFLECT: "reflect", Border.SYMMETRIC: "symmetric"}


class Pad(ImageTensorOperation):
    """More around the image.

    Args:
        padding: an int; (left and right, top and bottom); or (left, top, right, bottom).
        fill_value: an int, or one for each of three channels, for `Border.CONSTANT`. Default 0.
        padding_mode: one of `Border`. Default CONSTANT.

    Raises:
        TypeError, ValueError: other arguments.
    """

    def __init__(self, padding: Any, fill_value: Any = 0, padding_mode: Border = Border.CONSTANT):
        self._around = _padding(padding)
        values = fill_value if isinstance(fill_value, tuple) else (fill_value,)
        if len(values) not in (1, 3):
            raise ArgumentTypeError("fill_value should be a single integer or a 3-tuple.")
        self._fill = [check_int("fill_value", v, 0, 255) for v in values]
        self._mode = check_type("padding_mode", padding_mode, Border)

    def compute(self, x: Array, lead: int) -> Array:
        self._rank(x, lead)
        return self.padded(x, *self._around)

    def padded(self, x: Array, left: int, top: int, right: int, bottom: int) -> Array:
        """`x` with so much around it."""
        widths = [(top, bottom), (left, right)] + [(0, 0)] * (x.ndim - 2)
        if self._mode is not Border.CONSTANT:
            return np.pad(x, widths, _NUMPY_MODES[self._mode])  # type: ignore[call-overload,no-any-return]
        if len(self._fill) > 1 and x.shape[2:] != (3,):
            raise DatasetError(f"Pad: fill_value has 3 values, but the image has the shape {x.shape}")
        result = np.empty((x.shape[0] + top + bottom, x.shape[1] + left + right, *x.shape[2:]), x.dtype)
        result[...] = np.array(self._fill, x.dtype) if len(self._fill) > 1 else self._fill[0]
        result[top : top + x.shape[0], left : left + x.shape[1]] = x
        return result


def _padding(padding: Any) -> tuple[int, int, int, int]:
    if isinstance(padding, int):
        padding = (padding,) * 4
    check_type("padding", padding, (list, tuple))
    if len(padding) not in (2, 4):
        raise ArgumentValueError("The size of the padding list or tuple should be 2 or 4.")
    left, top, right, bottom = (check_int(f"padding[{k}]", n, 0) for k, n in enumerate(tuple(padding) * (4 // len(padding))))
    return left, top, right, bottom


class RandomCrop(ImageTensorOperation):
    """A part of size `size` at a random place.

    Args:
        size: (height, width), or an int for both.
        padding: what is added around the image before, as for `Pad`. Default: nothing.
        pad_if_needed: adds on both sides what a smaller image lacks. Default False.
        fill_value, padding_mode: as for `Pad`.

    Raises:
        TypeError, ValueError: other arguments. RuntimeError: called with a smaller image.
    """

    def __init__(self, size: Any, padding: Any = None, pad_if_needed: bool = False, fill_value: Any = 0, padding_mode: Border = Border.CONSTANT):
        self._size = _extents(size)
        self._padding = _padding(0 if padding is None else padding)
        self._pad = Pad(0, fill_value, padding_mode)
        self._pad_if_needed = bool(check_type("pad_if_needed", pad_if_needed, bool))

    def compute(self, x: Array, lead: int) -> Array:
        self._rank(x, lead)
        height, width = self._size
        if any(self._padding):
            x = self._pad.padded(x, *self._padding)
        if self._pad_if_needed:
            more_y, more_x = max(height - x.shape[0], 0), max(width - x.shape[1], 0)
            x = self._pad.padded(x, more_x, more_y, more_x, more_y) if more_x or more_y else x
        if x.shape[0] < height or x.shape[1] < width:
            raise DatasetError(
                "RandomCrop: invalid crop size, crop size is bigger than the image dimensions, got crop height: "
                f"{height}, crop width: {width}, and an image of {x.shape[:2]}"
            )
        top, left = below(x.shape[0] - height + 1), below(x.shape[1] - width + 1)
        return x[top : top + height, left : left + width]


class RandomResizedCrop(ImageTensorOperation):
    """A part with a random share of the area and random proportions, resized to `size`.

    Args:
        size: (height, width), or an int for both.
        scale: least and largest share of the area. Default (0.08, 1).
        ratio: least and largest width / height. Default (3/4, 4/3).
        interpolation: as for `Resize`. max_attempts: after so many, the middle is taken. Default 10.

    Raises:
        TypeError, ValueError: other arguments. NotImplementedError: another interpolation.
    """

    def __init__(
        self, size: Any, scale: Sequence[float] = (0.08, 1.0), ratio: Sequence[float] = (3.0 / 4.0, 4.0 / 3.0),
        interpolation: Inter = Inter.BILINEAR, max_attempts: int = 10,
    ):  # fmt: skip
        self._size = _extents(size)
        self._scale, self._ratio = _range("scale", scale), _range("ratio", ratio)
        self.interpolation = check_interpolation("RandomResizedCrop", check_type("interpolation", interpolation, Inter))
        self._attempts = check_int("max_attempts", max_attempts, 1)

    def compute(self, x: Array, lead: int) -> Array:
        self._rank(x, lead)
        top, left, height, width = self._box(*x.shape[:2])
        return resize(x[top : top + height, left : left + width], *self._size, self.interpolation)

    def _box(self, h: int, w: int) -> tuple[int, int, int, int]:
        rng = generator()
        for _ in range(self._attempts):
            area = h * w * rng.uniform(*self._scale)
            ratio = math.exp(rng.uniform(math.log(self._ratio[0]), math.log(self._ratio[1])))
            height, width = round(math.sqrt(area / ratio)), round(math.sqrt(area * ratio))
            if 0 < height <= h and 0 < width <= w:
                return below(h - height + 1), below(w - width + 1), height, width
        height, width = min(h, round(w / self._ratio[0])), min(w, round(h * self._ratio[1]))
        return (h - height) // 2, (w - width) // 2, height, width


def _range(name: str, values: Any) -> tuple[float, float]:
    check_type(name, values, (list, tuple))
    if len(values) != 2 or not 0 < values[0] <= values[1]:
        raise ArgumentValueError(f"{name} should be in (min, max) format with 0 < min <= max, but got {values}.")
    return float(values[0]), float(values[1])


class CutOut(ImageTensorOperation):
    """0 in squares at random places, which may lie partly outside.

    Args:
        length: of a side. num_patches: how many squares. Default 1. is_hwc: whether channels come last (default) or first.
    """

    def __init__(self, length: int, num_patches: int = 1, is_hwc: bool = True):
        self.length, self.num_patches = check_int("length", length, 1), check_int("num_patches", num_patches, 1)
        self.is_hwc = bool(check_type("is_hwc", is_hwc, bool))

    def compute(self, x: Array, lead: int) -> Array:
        result = x.copy()
        image = np.moveaxis(result, 0, -1) if self._rank(x, lead) == 3 and not self.is_hwc else result
        for _ in range(self.num_patches):
            top, left = (below(n) - self.length // 2 for n in image.shape[:2])
            image[max(top, 0) : max(top + self.length, 0), max(left, 0) : max(left + self.length, 0)] = 0
        return result
