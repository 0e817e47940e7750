"""Primitive classes of pooling, padding and blocks: what is beside, under or inside windows."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphcell import dtype as dt
from graphcell import ops as F
from graphcell.errors import ArgumentTypeError, ArgumentValueError, DTypeError, ShapeError
from graphcell.ops.functional.convolution import choose_padding, each_dimension
from graphcell.ops.primitive import Configured
from graphcell.ops.primitives.checks import check_choice, check_positive, check_tensors, check_type
from graphcell.tensor import Tensor

__all__ = [
    "LRN",
    "AdaptiveAvgPool3D",
    "AdaptiveMaxPool2D",
    "AdaptiveMaxPool3D",
    "BatchToSpaceND",
    "ChannelShuffle",
    "Col2Im",
    "Conv3DTranspose",
    "DepthToSpace",
    "FractionalMaxPool3DWithFixedKsize",
    "FractionalMaxPoolWithFixedKsize",
    "Im2Col",
    "MaxPool3DWithArgmax",
    "MaxPoolWithArgmaxV2",
    "MaxUnpool2D",
    "MaxUnpool3D",
    "MirrorPad",
    "PadV3",
    "SpaceToBatchND",
    "SpaceToDepth",
]  # fmt: skip


# -- pooling -------------------------------------------------------------------------------------------------------------
class AdaptiveMaxPool2D(Configured):
    """(maxima over windows chosen so that output_size of them cover the last two dimensions, their row-major places as Int64)."""

    def __init__(self, output_size: Any):
        if not isinstance(output_size, (tuple, list)) or any(isinstance(n, bool) or not isinstance(n, int) for n in output_size):
            raise ArgumentTypeError(
                f"For 'AdaptiveMaxPool2D', the type of 'output_size' should be one of '[list of int, tuple of int]', but got {type(output_size)}."
            )
        if len(output_size) != 2:
            raise ArgumentValueError(f"For 'AdaptiveMaxPool2D', the 'output_size' must hold two ints, but got {output_size}")
        super().__init__(output_size=tuple(output_size))

    def __call__(self, input: Any) -> Any:
        return F.adaptive_max_pool2d(input, self.output_size, True)


class AdaptiveMaxPool3D(Configured):
    """(maxima, their places as Int32) over the last three dimensions: called with (x, output_size), a Tensor or tuple of three ints."""

    def __init__(self) -> None:
        super().__init__()

    def __call__(self, x: Any, output_size: Any) -> Any:
        sizes = tuple(output_size.tolist()) if isinstance(output_size, Tensor) else output_size
        y, places = F.adaptive_max_pool3d(x, sizes, True)
        return y, F.cast(places, dt.int32)


class AdaptiveAvgPool3D(Configured):
    """Means over windows chosen so that output_size (an int, or three ints or None) of them cover the last three dimensions."""

    def __init__(self, output_size: Any):
        super().__init__(output_size=check_type("AdaptiveAvgPool3D", "output_size", output_size, int, tuple))

    def __call__(self, x: Any) -> Any:
        return F.adaptive_avg_pool3d(x, self.output_size)


class _MaxWithPlaces(Configured):
    """(maxima over windows, their row-major places)."""

    def _check(self, argmax_type: Any) -> None:
        if argmax_type not in (dt.int32, dt.int64):
            raise ArgumentTypeError(f"For '{type(self).__name__}', the 'argmax_type' must be Int32 or Int64, but got {argmax_type}")


class MaxPoolWithArgmaxV2(_MaxWithPlaces):
    """(maxima over windows of the last two dimensions, their row-major places)."""

    def __init__(
        self, kernel_size: Any, strides: Any = None, pads: Any = 0, dilation: Any = (1, 1), ceil_mode: bool = False, argmax_type: Any = dt.int64
    ):
        self._check(argmax_type)
        check_type("MaxPoolWithArgmaxV2", "ceil_mode", ceil_mode, bool)
        super().__init__(kernel_size=kernel_size, strides=strides, pads=pads, dilation=dilation, ceil_mode=ceil_mode, argmax_type=argmax_type)

    def __call__(self, x: Any) -> Any:
        y, places = F.max_pool2d(x, self.kernel_size, self.strides, self.pads, self.dilation, True, self.ceil_mode)
        return y, F.cast(places, self.argmax_type)


class MaxPool3DWithArgmax(_MaxWithPlaces):
    """(maxima over windows of the last three dimensions, their row-major places)."""

    def __init__(
        self, ksize: Any, strides: Any, pads: Any, dilation: Any = (1, 1, 1), ceil_mode: bool = False, data_format: str = "NCDHW",
        argmax_type: Any = dt.int64,
    ):  # fmt: skip
        self._check(argmax_type)
        check_type("MaxPool3DWithArgmax", "ceil_mode", ceil_mode, bool)
        check_choice("MaxPool3DWithArgmax", "data_format", data_format, "NCDHW")
        super().__init__(
            ksize=ksize, strides=strides, pads=pads, dilation=dilation, ceil_mode=ceil_mode, data_format=data_format, argmax_type=argmax_type
        )

    def __call__(self, x: Any) -> Any:
        y, places = F.max_pool3d(x, self.ksize, self.strides, self.pads, self.dilation, self.ceil_mode, True)
        return y, F.cast(places, self.argmax_type)


class _Unpool(Configured):
    """Values put back where maxima were: called with (x, argmax). Strides of 0 are the kernel's extents."""

    def __init__(self, ksize: Any, strides: Any = 0, pads: Any = 0, output_shape: Any = (), data_format: str = ""):
        owner = type(self).__name__
        plain = "NCHW" if owner == "MaxUnpool2D" else "NCDHW"
        data_format = check_choice(owner, "data_format", data_format or plain, plain)
        super().__init__(ksize=ksize, strides=strides, pads=pads, output_shape=tuple(output_shape), data_format=data_format)

    def _put_back(self, function: Any, x: Any, argmax: Any) -> Any:
        strides = None if self.strides in (0, (0,) * len(np.shape(self.strides) or (0,))) else self.strides
        return function(x, argmax, self.ksize, strides, self.pads, self.output_shape or None)


class MaxUnpool2D(_Unpool):
    """Values (N, C, H, W) put back where the maxima of windows were: called with (x, argmax)."""

    def __call__(self, x: Any, argmax: Any) -> Any:
        return self._put_back(F.max_unpool2d, x, argmax)


class MaxUnpool3D(_Unpool):
    """Values (N, C, D, H, W) put back where the maxima of windows were: called with (x, argmax)."""

    def __call__(self, x: Any, argmax: Any) -> Any:
        return self._put_back(F.max_unpool3d, x, argmax)


class LRN(Configured):
    """Local response normalisation over neighbouring channels of (N, C, H, W)."""

    def __init__(self, depth_radius: int = 5, bias: float = 1.0, alpha: float = 1.0, beta: float = 0.5, norm_region: str = "ACROSS_CHANNELS"):
        if check_type("LRN", "depth_radius", depth_radius, int) < 0:
            raise ArgumentValueError(f"For 'LRN', the 'depth_radius' must be int and must >= 0, but got '{depth_radius}' with type 'int'.")
        for name, value in (("bias", bias), ("alpha", alpha), ("beta", beta)):
            check_type("LRN", name, value, float)
        check_choice("LRN", "norm_region", norm_region, "ACROSS_CHANNELS")
        super().__init__(depth_radius=depth_radius, bias=bias, alpha=alpha, beta=beta, norm_region=norm_region)

    def __call__(self, x: Any) -> Any:
        return F.lrn(x, self.depth_radius, self.bias, self.alpha, self.beta, self.norm_region)


class Conv3DTranspose(Configured):
    """The transpose of a 3-D convolution: called with (dout (N, in_channel, D, H, W), weight (in_channel, out_channel / group, *kernel))."""

    def __init__(
        self, in_channel: int, out_channel: int, kernel_size: Any, mode: int = 1, pad_mode: str = "valid", pad: Any = 0, stride: Any = 1,
        dilation: Any = 1, group: int = 1, output_padding: Any = 0, data_format: str = "NCDHW",
    ):  # fmt: skip
        owner = "Conv3DTranspose"
        for name, value in (("in_channel", in_channel), ("out_channel", out_channel), ("group", group)):
            check_positive(owner, name, value)
        if mode != 1:
            raise ArgumentValueError(f"For '{owner}', the 'mode' must be 1, but got {mode}")
        check_choice(owner, "data_format", data_format, "NCDHW")
        kernel, strides, dilations = (
            each_dimension(value, 3, owner, name) for name, value in (("kernel_size", kernel_size), ("stride", stride), ("dilation", dilation))
        )
        super().__init__(
            in_channel=in_channel, out_channel=out_channel, kernel_size=kernel, mode=mode, pad_mode=pad_mode, pad=pad, stride=strides,
            dilation=dilations, group=group, output_padding=each_dimension(output_padding, 3, owner, "output_padding", 0), data_format=data_format,
        )  # fmt: skip
        choose_padding(pad_mode, pad, (1,) * 3, kernel, strides, dilations, owner)
        if pad_mode != "pad" and any(self.output_padding):
            raise ArgumentValueError(f"For '{owner}', the 'output_padding' must be 0 unless 'pad_mode' is 'pad'")

    def __call__(self, dout: Any, weight: Any, bias: Any = None) -> Any:
        check_tensors("Conv3DTranspose", dout=dout, weight=weight)
        if bias is not None:
            raise ArgumentValueError("For 'Conv3DTranspose', the bias must be None: add it to the result")
        want = (self.in_channel, self.out_channel // self.group, *self.kernel_size)
        if dout.ndim != 5 or weight.shape != want or dout.shape[1] != self.in_channel:
            raise ShapeError(f"For 'Conv3DTranspose', expected (N, {self.in_channel}, D, H, W) and a weight {want}, but got {dout.shape} and {weight.shape}")
        return F.conv3d_transpose(dout, weight, self.pad_mode, self.pad, self.stride, self.dilation, self.group, self.output_padding)


# -- padding -------------------------------------------------------------------------------------------------------------
class MirrorPad(Configured):
    """Elements mirrored at the ends of each dimension, without the edge ('REFLECT') or with it ('SYMMETRIC'): called with (x, paddings)."""

    def __init__(self, mode: str = "REFLECT"):
        super().__init__(mode=check_choice("MirrorPad", "mode", mode, "REFLECT", "SYMMETRIC"))

    def __call__(self, input_x: Any, paddings: Any) -> Any:
        return F.mirror_pad(input_x, paddings, self.mode)


class PadV3(Configured):
    """x with elements beside it: called with (x, paddings, constant_value).

    Args:
        mode: 'constant', 'reflect', 'edge' or 'circular'.
        paddings_contiguous: paddings are (before, after) of the last dimension, then of the one before it, …; else all before, then all after.
    """

    def __init__(self, mode: str = "constant", paddings_contiguous: bool = True):
        check_choice("PadV3", "mode", mode, "constant", "reflect", "edge", "circular")
        if not isinstance(paddings_contiguous, bool):
            raise ArgumentTypeError(f"For 'PadV3', the 'paddings_contiguous' must be a bool, but got {type(paddings_contiguous).__name__}.")
        super().__init__(mode=mode, paddings_contiguous=paddings_contiguous)

    def __call__(self, x: Any, paddings: Any, constant_value: Any = None) -> Any:
        check_tensors("PadV3", x=x)
        if self.mode != "constant" and constant_value is not None:
            raise ArgumentValueError(f"For 'PadV3', the input[constant_value] is only valid when the mode is 'constant', which is {self.mode!r}")
        widths = paddings.reshape(-1).tolist() if isinstance(paddings, Tensor) else list(paddings)
        if len(widths) % 2:
            raise ArgumentValueError(f"For 'PadV3', the length of paddings must be divisible by 2, but got {widths}")
        if not self.paddings_contiguous:
            half = len(widths) // 2
            widths = [w for pair in zip(widths[:half], widths[half:]) for w in pair]
        if self.mode != "constant":
            return F.pad(x, widths, "replicate" if self.mode == "edge" else self.mode)
        if isinstance(constant_value, Tensor) and constant_value.is_symbolic:
            inside = F.cast(F.pad(F.ones(x.shape, dt.float32), widths), dt.bool_)
            padded = F.pad(x, widths)
            return F.select(inside, padded, F.broadcast_to(F.stop_gradient(F.cast(constant_value.reshape(()), x.dtype)), padded.shape))
        value = constant_value.item() if isinstance(constant_value, Tensor) else constant_value
        return F.pad(x, widths, "constant", 0 if value is None else value)


# -- blocks --------------------------------------------------------------------------------------------------------------
def _block(owner: str, block_size: Any) -> int:
    if check_type(owner, "block_size", block_size, int) < 2:
        raise ArgumentValueError(f"For '{owner}', the 'block_size' must be 2 or more, but got {block_size}.")
    return int(block_size)


class SpaceToDepth(Configured):
    """Blocks of (N, C, H, W) as channels: (N, C b², H / b, W / b)."""

    def __init__(self, block_size: int):
        super().__init__(block_size=_block("SpaceToDepth", block_size))

    def __call__(self, x: Any) -> Any:
        check_tensors("SpaceToDepth", x=x)
        b = self.block_size
        if x.ndim != 4 or x.shape[2] % b or x.shape[3] % b:
            raise ShapeError(f"For 'SpaceToDepth', the input must be (N, C, H, W) with H and W divisible by {b}, but its shape is {x.shape}")
        n, c, h, w = x.shape
        return x.reshape(n, c, h // b, b, w // b, b).transpose(0, 3, 5, 1, 2, 4).reshape(n, c * b * b, h // b, w // b)


class DepthToSpace(Configured):
    """Channels of (N, C, H, W) as blocks: (N, C / b², H b, W b)."""

    def __init__(self, block_size: int):
        super().__init__(block_size=_block("DepthToSpace", block_size))

    def __call__(self, x: Any) -> Any:
        check_tensors("DepthToSpace", x=x)
        b = self.block_size
        if x.ndim != 4 or x.shape[1] % (b * b):
            raise ShapeError(f"For 'DepthToSpace', the input must be (N, C, H, W) with C divisible by {b * b}, but its shape is {x.shape}")
        n, c, h, w = x.shape
        return x.reshape(n, b, b, c // (b * b), h, w).transpose(0, 3, 4, 1, 5, 2).reshape(n, c // (b * b), h * b, w * b)


class SpaceToBatchND(Configured):
    """Blocks of the last dimensions, padded with zeros, as batches: (N prod(block_shape), …)."""

    def __init__(self, block_shape: Any, paddings: Any):
        check_type("SpaceToBatchND", "block_shape", block_shape, int, tuple, list)
        pairs = tuple(tuple(p) for p in check_type("SpaceToBatchND", "paddings", paddings, tuple, list))
        blocks = (block_shape,) * len(pairs) if isinstance(block_shape, int) else tuple(block_shape)
        for value in (*blocks, *(n for p in pairs for n in p)):
            check_type("SpaceToBatchND", "block_shape and paddings", value, int)
        if len(blocks) != len(pairs) or any(len(p) != 2 or min(p) < 0 for p in pairs) or min(blocks, default=0) < 1:
            raise ArgumentValueError(f"For 'SpaceToBatchND', the block_shape {block_shape} and the paddings {paddings} do not fit")
        super().__init__(block_shape=blocks, paddings=pairs)

    def __call__(self, input_x: Any) -> Any:
        check_tensors("SpaceToBatchND", input_x=input_x)
        count = len(self.block_shape)
        if input_x.ndim <= count:
            raise ShapeError(f"For 'SpaceToBatchND', the input must have more than {count} dimensions, but its shape is {input_x.shape}")
        x: Any = F.pad(input_x, [w for p in reversed(self.paddings) for w in p])
        first = x.ndim - count
        if any(d % b for d, b in zip(x.shape[first:], self.block_shape)):
            raise ShapeError(f"For 'SpaceToBatchND', the padded shape {x.shape} is not divisible into blocks {self.block_shape}")
        split = [n for d, b in zip(x.shape[first:], self.block_shape) for n in (d // b, b)]
        order = (*(first + 2 * k + 1 for k in range(count)), *range(first), *(first + 2 * k for k in range(count)))
        batches = x.shape[0] * int(np.prod(self.block_shape))
        return x.reshape(*x.shape[:first], *split).transpose(*order).reshape(batches, *x.shape[1:first], *split[::2])


class BatchToSpaceND(Configured):
    """Batches as blocks of the last dimensions, of which `crops` are cut off: what `SpaceToBatchND` made of it.

    Args:
        block_shape: the blocks' extents. crops: for each of them, how many elements are cut off before and after.

    Raises:
        TypeError: settings of other types. ValueError: settings or a shape that do not fit each other.
    """

    def __init__(self, block_shape: Any, crops: Any):
        check_type("BatchToSpaceND", "block_shape", block_shape, int, tuple, list)
        pairs = tuple(tuple(p) for p in check_type("BatchToSpaceND", "crops", crops, tuple, list))
        blocks = (block_shape,) * len(pairs) if isinstance(block_shape, int) else tuple(block_shape)
        for value in (*blocks, *(n for p in pairs for n in p)):
            check_type("BatchToSpaceND", "block_shape and crops", value, int)
        if len(blocks) != len(pairs) or any(len(p) != 2 or min(p) < 0 for p in pairs) or min(blocks, default=0) < 1:
            raise ArgumentValueError(f"For 'BatchToSpaceND', the block_shape {block_shape} and the crops {crops} do not fit")
        super().__init__(block_shape=blocks, crops=pairs)

    def __call__(self, input_x: Any) -> Any:
        check_tensors("BatchToSpaceND", input_x=input_x)
        count, blocks = len(self.block_shape), self.block_shape
        first, together = input_x.ndim - count, int(np.prod(blocks))
        if first < 1 or input_x.shape[0] % together:
            raise ShapeError(f"For 'BatchToSpaceND', an input of the shape {input_x.shape} has no batches for blocks {blocks}")
        spatial = input_x.shape[first:]
        x = input_x.reshape(*blocks, input_x.shape[0] // together, *input_x.shape[1:])
        kept = tuple(range(count, count + first))
        x = x.transpose(*kept, *(d for k in range(count) for d in (count + first + k, k)))
        x = x.reshape(input_x.shape[0] // together, *input_x.shape[1:first], *(d * b for d, b in zip(spatial, blocks)))
        if any(sum(p) >= d * b for p, d, b in zip(self.crops, spatial, blocks)):
            raise ShapeError(f"For 'BatchToSpaceND', the crops {self.crops} leave nothing of {x.shape[first:]}")
        return x[(slice(None),) * first + tuple(slice(low, d * b - high) for (low, high), d, b in zip(self.crops, spatial, blocks))]


class FractionalMaxPoolWithFixedKsize(Configured):
    """(maxima over windows (N, C, H, W) at random distances, their row-major places as Int64): called with (x, samples (N, C, 2) in [0, 1)).

    Args:
        ksize: the windows' extent, an int or two. output_shape: how many there are, an int or two. data_format: 'NCHW'.

    Raises:
        TypeError, ValueError: settings or shapes that do not fit.
    """

    def __init__(self, ksize: Any, output_shape: Any, data_format: str = "NCHW"):
        check_choice("FractionalMaxPoolWithFixedKsize", "data_format", data_format, "NCHW")
        super().__init__(ksize=ksize, output_shape=output_shape, data_format=data_format)

    def __call__(self, input_x: Any, random_samples: Any) -> Any:
        check_tensors("FractionalMaxPoolWithFixedKsize", input_x=input_x, random_samples=random_samples)
        return F.fractional_max_pool2d(input_x, self.ksize, self.output_shape, None, True, random_samples)


class FractionalMaxPool3DWithFixedKsize(Configured):
    """The same over (N, C, D, H, W), with samples (N, C, 3); places as Int64."""

    def __init__(self, ksize: Any, output_shape: Any, data_format: str = "NCDHW"):
        check_choice("FractionalMaxPool3DWithFixedKsize", "data_format", data_format, "NCDHW")
        super().__init__(ksize=ksize, output_shape=output_shape, data_format=data_format)

    def __call__(self, x: Any, random_samples: Any) -> Any:
        check_tensors("FractionalMaxPool3DWithFixedKsize", x=x, random_samples=random_samples)
        return F.fractional_max_pool3d(x, self.ksize, self.output_shape, None, True, random_samples)


class ChannelShuffle(Configured):
    """The channels (dimension 1) of `group` groups, one of each in turn."""

    def __init__(self, group: int):
        super().__init__(group=check_positive("ChannelShuffle", "group", group))

    def __call__(self, x: Any) -> Any:
        return F.channel_shuffle(x, self.group)


def _pair(owner: str, name: str, value: Any, least: int = 1) -> tuple[int, int]:
    values = (value, value) if isinstance(value, int) else tuple(value) if isinstance(value, (tuple, list)) else value
    values = values * 2 if isinstance(values, tuple) and len(values) == 1 else values
    height, width = each_dimension(values, 2, owner, name, least)
    return height, width


class Im2Col(Configured):
    """The windows of (N, C, H, W): (N, C, elements of a window, windows)."""

    def __init__(self, ksizes: Any, strides: Any = 1, dilations: Any = 1, pads: Any = 0):
        given = {"ksizes": ksizes, "strides": strides, "dilations": dilations, "pads": pads}
        super().__init__(**{name: _pair("Im2Col", name, value, int(name != "pads")) for name, value in given.items()})

    def __call__(self, x: Any) -> Any:
        check_tensors("Im2Col", x=x)
        if x.ndim != 4:
            raise ShapeError(f"For 'Im2Col', the input must be (N, C, H, W), but its shape is {x.shape}")
        columns: Any = F.unfold(x, self.ksizes, self.dilations, self.pads, self.strides)
        return columns.reshape(x.shape[0], x.shape[1], -1, columns.shape[-1])


class Col2Im(Configured):
    """Windows (N, C, elements of a window, windows) added up to images (N, C, *output_size): called with (x, output_size)."""

    def __init__(self, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1):
        given = {"kernel_size": kernel_size, "dilation": dilation, "padding": padding, "stride": stride}
        super().__init__(**{name: _pair("Col2Im", name, value, int(name != "padding")) for name, value in given.items()})

    def __call__(self, x: Any, output_size: Any) -> Any:
        check_tensors("Col2Im", x=x, output_size=output_size)
        if x.ndim != 4:
            raise ShapeError(f"For 'Col2Im', the input must be (N, C, elements, windows), but its shape is {x.shape}")
        if output_size.dtype is not dt.int32:
            raise DTypeError(f"For 'Col2Im', the output_size must be Int32, but is {output_size.dtype}")
        columns = x.reshape(x.shape[0], x.shape[1] * x.shape[2], x.shape[3])
        return F.fold(columns, tuple(output_size.tolist()), self.kernel_size, self.dilation, self.padding, self.stride)
