"""Padding layers, and layers that rearrange channels and pixels."""

from __future__ import annotations

from typing import Any

from graphcell import ops
from graphcell.errors import ArgumentTypeError, ArgumentValueError
from graphcell.nn.cell import Cell
from graphcell.nn.checks import check_int, is_int, positive_int
from graphcell.tensor import Tensor


class _Pad(Cell):
    """Pads the last `rank` dimensions. padding: an int, or (before, after) of the last dimension, then of the one before, …"""

    rank = 2
    mode = "constant"

    def __init__(self, padding: Any, value: Any = None):
        super().__init__()
        owner = type(self).__name__
        if not is_int(padding) and not isinstance(padding, tuple):
            raise ArgumentTypeError(
                f"For '{owner}', the type of parameter 'padding' must be in [int, tuple], but got {type(padding)}"
            )
        if isinstance(padding, tuple):
            if len(padding) % 2:
                raise ArgumentValueError(
                    f"For '{owner}', the length of parameter 'padding' with tuple type must be a multiple of 2, "
                    f"but got {len(padding)}"
                )
            if len(padding) > 2 * self.rank or not all(map(is_int, padding)):
                raise ArgumentValueError(
                    f"For '{owner}', the 'padding' must be an int or at most {2 * self.rank} ints, but got {padding}"
                )
        self.padding = (padding,) * (2 * self.rank) if is_int(padding) else padding
        self.value = value

    def construct(self, x: Any) -> Any:
        return ops.pad(x, self.padding, self.mode, self.value)


class _ConstantPad(_Pad):
    def __init__(self, padding: Any, value: Any):
        if not isinstance(value, (int, float)):
            raise ArgumentTypeError(
                f"For '{type(self).__name__}', the type of parameter 'value' must be in [int, float], but got {type(value)}"
            )
        super().__init__(padding, value)


class ConstantPad1d(_ConstantPad):
    """Pads the last dimension with `value`; negative padding cuts off."""

    rank = 1


class ConstantPad2d(_ConstantPad):
    """Pads the last two dimensions with `value`; negative padding cuts off."""


class ConstantPad3d(_ConstantPad):
    """Pads the last three dimensions with `value`; negative padding cuts off."""

    rank = 3


class ZeroPad2d(_ConstantPad):
    """Pads the last two dimensions with zeros; negative padding cuts off."""

    def __init__(self, padding: Any):
        super().__init__(padding, 0)


class _MirrorPad(_Pad):
    mode = "reflect"

    def __init__(self, padding: Any):
        super().__init__(padding)
        if min(self.padding) < 0:
            raise ArgumentValueError(f"For '{type(self).__name__}', the 'padding' must not be negative, but got {padding}")


class ReflectionPad1d(_MirrorPad):
    """Pads the last dimension with its mirror image, without the edge."""

    rank = 1


class ReflectionPad2d(_MirrorPad):
    """Pads the last two dimensions with their mirror image, without the edge."""


class ReflectionPad3d(_MirrorPad):
    """Pads the last three dimensions with their mirror image, without the edge."""

    rank = 3


class ReplicationPad1d(_MirrorPad):
    """Pads the last dimension with its edge."""

    rank = 1
    mode = "replicate"


class ReplicationPad2d(_MirrorPad):
    """Pads the last two dimensions with their edge."""

    mode = "replicate"


class ReplicationPad3d(_MirrorPad):
    """Pads the last three dimensions with their edge."""

    rank = 3
    mode = "replicate"


_PAD_MODES = ("CONSTANT", "REFLECT", "SYMMETRIC")


class Pad(Cell):
    """Pads every dimension.

    Args:
        paddings: for each dimension (before, after), at least 0.
        mode: 'CONSTANT' (zeros), 'REFLECT' (mirrored without the edge) or 'SYMMETRIC' (mirrored with the edge).

    Raises:
        TypeError: paddings is no tuple of pairs. ValueError: another mode, or padding that does not fit.
    """

    def __init__(self, paddings: Any, mode: str = "CONSTANT"):
        super().__init__()
        if not isinstance(paddings, tuple):
            raise ArgumentTypeError(f"For 'Pad', the type of 'paddings' must be tuple, but got {type(paddings)}.")
        if any(len(pair) != 2 for pair in paddings):
            raise ArgumentValueError(f"For 'Pad', each item of 'paddings' must hold two ints, but got {paddings}.")
        if mode not in _PAD_MODES:
            raise ArgumentValueError(f"For 'Pad', the 'mode' must be in {list(_PAD_MODES)}, but got {mode}.")
        self.paddings, self.mode = paddings, mode

    def construct(self, x: Any) -> Any:
        if len(self.paddings) != x.ndim:
            raise ArgumentValueError(
                f"For 'Pad', there are {len(self.paddings)} paddings, but the input has shape {x.shape}"
            )
        if self.mode == "CONSTANT":
            flat = tuple(n for pair in reversed(self.paddings) for n in pair)
            return ops.pad(x, flat)
        for axis, (before, after) in enumerate(self.paddings):
            if before or after:
                places = self._places(x.shape[axis], before, after)
                x = ops.gather(x, Tensor(places), axis)
        return x

    def _places(self, extent: int, before: int, after: int) -> list[int]:
        """For each place along a padded dimension, the one it mirrors."""
        edge = 0 if self.mode == "REFLECT" else 1
        if max(before, after) > extent - 1 + edge:
            raise ArgumentValueError(f"For 'Pad', a dimension of {extent} cannot be padded by {max(before, after)} in mode {self.mode}")
        left = [before - edge - k for k in range(before)]
        right = [extent - 2 + edge - k for k in range(after)]
        return [*left, *range(extent), *right]


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


class ChannelShuffle(Cell):
    """Reorders channels: (N, groups, C / groups, …) with the first two of these dimensions swapped."""

    def __init__(self, groups: int):
        super().__init__()
        check_int("ChannelShuffle", "groups", groups)
        self.groups = positive_int("ChannelShuffle", "groups", groups)

    def construct(self, x: Any) -> Any:
        return ops.channel_shuffle(x, self.groups)
