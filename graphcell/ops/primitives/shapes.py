"""Primitive classes of shapes: rearranging, joining, cutting, padding; and of Tensors made anew."""

from __future__ import annotations

from typing import Any

from graphcell import ops as F
from graphcell.errors import ArgumentTypeError, ArgumentValueError, ShapeError
from graphcell.ops.primitive import Configured, Plain
from graphcell.ops.primitives.checks import check_type

__all__ = [
    "BroadcastTo", "Cast", "Concat", "DType", "ExpandDims", "Eye", "Fill", "FillV2", "Flatten", "Identity",
    "OneHot", "Ones", "OnesLike", "Pad", "Range", "Rank", "Reshape", "ReverseV2", "Shape", "Size", "Slice",
    "Split", "Squeeze", "Stack", "StridedSlice", "Tile", "Transpose", "Unstack", "Zeros", "ZerosLike",
]  # fmt: skip


# -- shapes --------------------------------------------------------------------------------------------------------------
class Cast(Plain):
    """The input converted to `dtype`."""

    function = staticmethod(F.cast)


class DType(Plain):
    """The dtype of a Tensor."""

    function = staticmethod(F.dtype)


class Shape(Plain):
    """The shape of a Tensor, a tuple."""

    function = staticmethod(F.shape)


class Rank(Plain):
    """The number of dimensions."""

    function = staticmethod(F.rank)


class Size(Plain):
    """The number of elements."""

    function = staticmethod(F.size)


class Identity(Plain):
    """A Tensor with the same values."""

    function = staticmethod(F.identity)


class Reshape(Plain):
    """The same elements in another shape."""

    function = staticmethod(F.reshape)


class Transpose(Plain):
    """Dimensions in another order."""

    function = staticmethod(F.transpose)


class ExpandDims(Plain):
    """A dimension of extent 1 put in at `axis`."""

    function = staticmethod(F.expand_dims)


class Squeeze(Configured):
    """Dimensions of extent 1 taken out: those in `axis`, or all."""

    def __init__(self, axis: Any = ()):
        super().__init__(axis=check_type("Squeeze", "axis", axis, int, tuple, list))

    def __call__(self, input: Any) -> Any:
        return F.squeeze(input, None if self.axis == () else self.axis)


class Flatten(Plain):
    """All dimensions but the first as one."""

    def __call__(self, input_x: Any) -> Any:
        return F.flatten(input_x)


class BroadcastTo(Configured):
    """The input repeated to a shape; -1 keeps an extent."""

    def __init__(self, shape: Any):
        super().__init__(shape=tuple(check_type("BroadcastTo", "shape", shape, tuple, list)))

    def __call__(self, input: Any) -> Any:
        return F.broadcast_to(input, self.shape)


class Tile(Plain):
    """The input repeated along its dimensions."""

    function = staticmethod(F.tile)


class Concat(Configured):
    """Tensors joined along `axis`."""

    def __init__(self, axis: int = 0):
        super().__init__(axis=axis)

    def __call__(self, tensors: Any) -> Any:
        return F.concat(tensors, self.axis)


class Stack(Configured):
    """Tensors joined along a new dimension `axis`."""

    def __init__(self, axis: int = 0):
        check_type("Stack", "axis", axis, int)
        super().__init__(axis=axis)

    def __call__(self, input_x: Any) -> Any:
        return F.stack(input_x, self.axis)


class Unstack(Configured):
    """A tuple of the parts along `axis`, without that dimension."""

    def __init__(self, axis: int = 0, num: int | None = None):
        check_type("Unstack", "axis", axis, int)
        super().__init__(axis=axis, num=num)

    def __call__(self, input_x: Any) -> Any:
        if self.num is not None and input_x.shape[self.axis] != self.num:
            raise ShapeError(f"Unstack: num is {self.num}, but dimension {self.axis} of {input_x.shape} has another extent")
        return F.unstack(input_x, self.axis)


class Split(Configured):
    """A tuple of `output_num` equal parts along `axis`."""

    def __init__(self, axis: int = 0, output_num: int = 1):
        super().__init__(axis=axis, output_num=output_num)

    def __call__(self, input_x: Any) -> Any:
        extent = input_x.shape[self.axis]
        if extent % self.output_num:
            raise ArgumentValueError(f"Split: {self.output_num} parts do not divide dimension {self.axis} of {input_x.shape}")
        return F.split(input_x, extent // self.output_num, self.axis)


class Slice(Plain):
    """`size` elements from `begin` on, in each dimension."""

    function = staticmethod(F.slice)


class StridedSlice(Configured):
    """From `begin` to `end` in steps of `strides`; the masks are bits, one a dimension."""

    def __init__(
        self, begin_mask: int = 0, end_mask: int = 0, ellipsis_mask: int = 0, new_axis_mask: int = 0, shrink_axis_mask: int = 0
    ):
        super().__init__(
            begin_mask=begin_mask, end_mask=end_mask, ellipsis_mask=ellipsis_mask, new_axis_mask=new_axis_mask,
            shrink_axis_mask=shrink_axis_mask,
        )  # fmt: skip

    def __call__(self, input_x: Any, begin: Any, end: Any, strides: Any) -> Any:
        return F.strided_slice(
            input_x, begin, end, strides, self.begin_mask, self.end_mask, self.ellipsis_mask, self.new_axis_mask,
            self.shrink_axis_mask,
        )  # fmt: skip


class ReverseV2(Configured):
    """The dimensions in `axis` reversed."""

    def __init__(self, axis: Any):
        check_type("ReverseV2", "axis", axis, int, tuple, list)
        super().__init__(axis=(axis,) if isinstance(axis, int) else tuple(axis))

    def __call__(self, input: Any) -> Any:
        return F.flip(input, self.axis)


class Pad(Configured):
    """Zeros put around: `paddings` holds (before, after) for each dimension."""

    def __init__(self, paddings: Any):
        if not isinstance(paddings, tuple):
            raise ArgumentTypeError(f"For 'Pad', the type of 'paddings' must be tuple, but got {type(paddings)}.")
        super().__init__(paddings=paddings)

    def __call__(self, input_x: Any) -> Any:
        if len(self.paddings) != input_x.ndim:
            raise ShapeError(f"Pad: there are {len(self.paddings)} paddings, but the input has shape {input_x.shape}")
        return F.pad(input_x, tuple(n for pair in reversed(self.paddings) for n in pair))


# -- Tensors made --------------------------------------------------------------------------------------------------------
class Ones(Plain):
    """Ones of a shape and dtype."""

    function = staticmethod(F.ones)


class Zeros(Plain):
    """Zeros of a shape and dtype."""

    function = staticmethod(F.zeros)


class OnesLike(Plain):
    """Ones of the input's shape and dtype."""

    function = staticmethod(F.ones_like)


class ZerosLike(Plain):
    """Zeros of the input's shape and dtype."""

    function = staticmethod(F.zeros_like)


class Fill(Plain):
    """`value` of a dtype in a shape: called with (type, shape, value)."""

    function = staticmethod(F.fill)


class FillV2(Plain):
    """The scalar Tensor `value` in a shape: called with (shape, value)."""

    def __call__(self, shape: Any, value: Any) -> Any:
        return F.broadcast_to(F.reshape(value, ()), tuple(shape.tolist()) if hasattr(shape, "tolist") else tuple(shape))


class Eye(Plain):
    """Ones on the diagonal of an n × m matrix: called with (n, m, dtype)."""

    function = staticmethod(F.eye)


class Range(Configured):
    """Numbers from `start` to `end` in steps of `step`, `maxlen` at most."""

    def __init__(self, maxlen: int = 1000000):
        super().__init__(maxlen=maxlen)

    def __call__(self, start: Any, end: Any, step: Any) -> Any:
        return F.range(start, end, step, self.maxlen)


class OneHot(Configured):
    """`on_value` at the places `indices` along a new dimension `axis` of extent `depth`, else `off_value`."""

    def __init__(self, axis: int = -1):
        super().__init__(axis=axis)

    def __call__(self, indices: Any, depth: int, on_value: Any, off_value: Any) -> Any:
        return F.one_hot(indices, depth, on_value, off_value, self.axis)
