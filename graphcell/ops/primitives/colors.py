"""Primitive classes of colors: images (*, 3) of red, green and blue, or of hue, saturation and value, all in [0, 1]."""

from __future__ import annotations

from typing import Any

from graphcell import ops as F
from graphcell.errors import DTypeError, ShapeError
from graphcell.ops.primitive import Plain
from graphcell.ops.primitives.checks import check_tensors
from graphcell.tensor import Tensor

__all__ = ["AdjustHue", "AdjustSaturation", "HSVToRGB", "RGBToHSV"]


def _check_image(owner: str, x: Any, what: str = "image") -> None:
    check_tensors(owner, **{what: x})
    if not x.dtype.is_float:
        raise DTypeError(f"For '{owner}', the '{what}' must be of floats, but is of {x.dtype}")
    if x.ndim < 1 or x.shape[-1] != 3:
        raise ShapeError(f"For '{owner}', the last dimension of '{what}' must be 3, but its shape is {x.shape}")


def _to_hsv(x: Any) -> tuple[Any, Any, Any]:
    """Hue, saturation and value; the hue is 0 where there is no color."""
    red, green, blue = x[..., 0], x[..., 1], x[..., 2]
    value, least = F.amax(x, -1), F.amin(x, -1)
    span = value - least
    colored, lit = span > 0, value > 0
    scale = 1.0 / (6.0 * F.where(colored, span, F.ones_like(span)))
    by_green = F.where(green == value, (blue - red) * scale + 2.0 / 6.0, (red - green) * scale + 4.0 / 6.0)
    hue = F.where(red == value, (green - blue) * scale, by_green)
    hue = F.where(colored, F.where(hue < 0, hue + 1.0, hue), F.zeros_like(hue))
    return hue, F.where(lit, span / F.where(lit, value, F.ones_like(value)), F.zeros_like(value)), value


def _to_rgb(hue: Any, saturation: Any, value: Any) -> Tensor:
    """Red, green and blue along a new last dimension."""
    turned = hue * 6.0
    ramps = F.stack((F.abs(turned - 3.0) - 1.0, 2.0 - F.abs(turned - 2.0), 2.0 - F.abs(turned - 4.0)), -1)
    weights = F.clamp(ramps, 0.0, 1.0)
    image: Tensor = ((weights - 1.0) * F.expand_dims(saturation, -1) + 1.0) * F.expand_dims(value, -1)
    return image


class RGBToHSV(Plain):
    """From red, green and blue to hue, saturation and value: (*, 3).

    Raises:
        TypeError: no floats. ValueError: the last dimension is not 3.
    """

    def __call__(self, images: Any) -> Any:
        _check_image("RGBToHSV", images, "images")
        return F.stack(_to_hsv(images), -1)


class HSVToRGB(Plain):
    """From hue, saturation and value to red, green and blue: (N, H, W, 3).

    Raises:
        TypeError: no floats. ValueError: the last dimension is not 3, or there are not four.
    """

    def __call__(self, x: Any) -> Any:
        _check_image("HSVToRGB", x, "x")
        if x.ndim != 4:
            raise ShapeError(f"For 'HSVToRGB', the dimension of 'x' must be equal to 4, but got {x.ndim}")
        return _to_rgb(x[..., 0], x[..., 1], x[..., 2])


class AdjustHue(Plain):
    """An image (*, H, W, 3) of red, green and blue, whose hues are turned by `delta`, a scalar in [-1, 1].

    Raises:
        TypeError: no floats. ValueError: less than three dimensions, or the last is not 3.
    """

    def __call__(self, image: Any, delta: Any) -> Any:
        _check_adjusted("AdjustHue", image, delta)
        hue, saturation, value = _to_hsv(image)
        hue = hue + F.cast(delta, image.dtype)
        return _to_rgb(hue - F.floor(hue), saturation, value)


class AdjustSaturation(Plain):
    """An image (*, H, W, 3) of red, green and blue, whose saturations are multiplied by `scale`, a scalar, and are 1 at most.

    Raises:
        TypeError: no floats. ValueError: less than three dimensions, or the last is not 3.
    """

    def __call__(self, image: Any, scale: Any) -> Any:
        _check_adjusted("AdjustSaturation", image, scale)
        hue, saturation, value = _to_hsv(image)
        return _to_rgb(hue, F.clamp(saturation * F.cast(scale, image.dtype), 0.0, 1.0), value)


def _check_adjusted(owner: str, image: Any, amount: Any) -> None:
    check_tensors(owner, amount=amount)
    _check_image(owner, image)
    if image.ndim < 3:
        raise ShapeError(f"For '{owner}', the dimension of the 'image' must be at least 3, but got {image.ndim}")
