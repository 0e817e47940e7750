"""Layers that pad the last dimensions of an image, a volume or a sequence."""

from __future__ import annotations

from typing import Any

from graphcell import ops
from graphcell.errors import ArgumentTypeError, ArgumentValueError
from graphcell.nn.cell import Cell
from graphcell.nn.checks import is_int


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


class _ReflectionPad(_Pad):
    mode = "reflect"

    def __init__(self, padding: Any):
        super().__init__(padding)
        if min(self.padding) < 0:
            raise ArgumentValueError(f"For '{type(self).__name__}', the 'padding' must not be negative, but got {padding}")


class ReflectionPad1d(_ReflectionPad):
    """Pads the last dimension with its mirror image, without the edge."""

    rank = 1


class ReflectionPad2d(_ReflectionPad):
    """Pads the last two dimensions with their mirror image, without the edge."""


class ReflectionPad3d(_ReflectionPad):
    """Pads the last three dimensions with their mirror image, without the edge."""

    rank = 3


class _ReplicationPad(_Pad):
    mode = "replicate"

    def __init__(self, padding: Any):
        super().__init__(padding)


class ReplicationPad1d(_ReplicationPad):
    """Pads the last dimension with its edge; negative padding cuts off."""

    rank = 1


class ReplicationPad2d(_ReplicationPad):
    """Pads the last two dimensions with their edge; negative padding cuts off."""


class ReplicationPad3d(_ReplicationPad):
    """Pads the last three dimensions with their edge; negative padding cuts off."""

    rank = 3
