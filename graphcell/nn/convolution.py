"""Convolution layers."""

from __future__ import annotations

import math
from typing import Any

from graphcell import dtype as dt
from graphcell import ops
from graphcell.common.initializer import HeUniform, Uniform, initializer
from graphcell.errors import ArgumentTypeError, ArgumentValueError
from graphcell.nn.cell import Cell
from graphcell.nn.linear import check_bool, positive_int
from graphcell.ops.functional.convolution import choose_padding, conv_transpose, each_dimension, explicit_padding, same_padding
from graphcell.parameter import Parameter


class _Conv(Cell):
    """What all convolution layers have: settings, weight, bias."""

    rank = 2
    formats = ("NCHW",)

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any, pad_mode: str, padding: Any, dilation: Any, group: int, has_bias: bool,
                 weight_init: Any, bias_init: Any, data_format: str, dtype: Any, transposed: bool = False):
        super().__init__()
        owner = type(self).__name__
        self.in_channels = positive_int(owner, "in_channels", in_channels)
        self.out_channels = positive_int(owner, "out_channels", out_channels)
        self.kernel_size = each_dimension(kernel_size, self.rank, f"For '{owner}'", "kernel_size")
        self.stride = each_dimension(stride, self.rank, f"For '{owner}'", "stride")
        self.dilation = each_dimension(dilation, self.rank, f"For '{owner}'", "dilation")
        self.group = positive_int(owner, "group", group)
        self.has_bias = check_bool(owner, "has_bias", has_bias)
        if in_channels % group or out_channels % group:
            raise ArgumentValueError(f"For '{owner}', the attr 'in_channels' and 'out_channels' must be divisible by attr 'group', but got {in_channels}, {out_channels} and {group}.")
        if data_format not in self.formats:
            raise ArgumentValueError(f"For '{owner}', the 'data_format' must be in {self.formats}, but got {data_format!r}.")
        self.pad_mode, self.padding, self.data_format = pad_mode, padding, data_format
        choose_padding(pad_mode, padding, (1,) * self.rank, self.kernel_size, self.stride, self.dilation, f"For '{owner}'")
        first, second = (in_channels, out_channels) if transposed else (out_channels, in_channels)
        shape = (first, second // group, *self.kernel_size)
        fan_in = second // group * math.prod(self.kernel_size)
        self.weight_init = HeUniform(math.sqrt(5)) if weight_init is None else weight_init
        self.weight = Parameter(initializer(self.weight_init, shape, dtype), name="weight")
        self.bias_init, self.bias = None, None
        if has_bias:
            self.bias_init = Uniform(1 / math.sqrt(fan_in)) if bias_init is None else bias_init
            self.bias = Parameter(initializer(self.bias_init, (out_channels,), dtype), name="bias")

    def extend_repr(self) -> str:
        return (f"input_channels={self.in_channels}, output_channels={self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}, "
                f"pad_mode={self.pad_mode}, padding={self.padding}, dilation={self.dilation}, group={self.group}, has_bias={self.has_bias}, "
                f"weight_init={self.weight_init}, bias_init={self.bias_init}, format={self.data_format}")


class Conv2d(_Conv):
    """2-D convolution layer.

    Args:
        in_channels, out_channels: channels of input and output.
        kernel_size, stride, dilation: an int, or two (height, width).
        pad_mode: 'same' (default), 'valid' or 'pad'.
        padding: with 'pad': an int, or four (top, bottom, left, right).
        group: groups of channels.
        has_bias: default False.
        weight_init, bias_init: Tensor, initializer, its name, or a number. Default: weight HeUniform(sqrt(5)), bias uniform on
            ±1 / sqrt(in_channels / group * kernel elements).

    Inputs: x (N, C, H, W). Outputs: (N, K, H', W').

    Raises:
        TypeError, ValueError: settings or shapes that do not fit.
    """

    rank = 2
    formats = ("NCHW", "NHWC")

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, pad_mode: str = "same", padding: Any = 0, dilation: Any = 1,
                 group: int = 1, has_bias: bool = False, weight_init: Any = None, bias_init: Any = None, data_format: str = "NCHW", dtype: Any = dt.float32):
        super().__init__(in_channels, out_channels, kernel_size, stride, pad_mode, padding, dilation, group, has_bias, weight_init, bias_init, data_format, dtype)

    def construct(self, x: Any) -> Any:
        last = self.data_format == "NHWC"
        if last:
            x = x.transpose(0, 3, 1, 2)
        y = ops.conv2d(x, self.weight, self.bias, self.stride, self.pad_mode, self.padding, self.dilation, self.group)
        return y.transpose(0, 2, 3, 1) if last else y  # type: ignore[attr-defined]


class Conv1d(_Conv):
    """1-D convolution layer: x (N, C, L) to (N, K, L'). Settings as in Conv2d, each an int."""

    rank = 1
    formats = ("NCL", "NCW", "NCHW")

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, pad_mode: str = "same", padding: Any = 0, dilation: Any = 1,
                 group: int = 1, has_bias: bool = False, weight_init: Any = None, bias_init: Any = None, dtype: Any = dt.float32):
        super().__init__(in_channels, out_channels, kernel_size, stride, pad_mode, padding, dilation, group, has_bias, weight_init, bias_init, "NCL", dtype)

    def construct(self, x: Any) -> Any:
        return ops.conv1d(x, self.weight, self.bias, self.stride, self.pad_mode, self.padding, self.dilation, self.group)


class Conv3d(_Conv):
    """3-D convolution layer: x (N, C, D, H, W) to (N, K, D', H', W'). Settings as in Conv2d, an int or three."""

    rank = 3
    formats = ("NCDHW",)

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, pad_mode: str = "same", padding: Any = 0, dilation: Any = 1,
                 group: int = 1, has_bias: bool = False, weight_init: Any = None, bias_init: Any = None, data_format: str = "NCDHW", dtype: Any = dt.float32):
        super().__init__(in_channels, out_channels, kernel_size, stride, pad_mode, padding, dilation, group, has_bias, weight_init, bias_init, data_format, dtype)

    def construct(self, x: Any) -> Any:
        return ops.conv3d(x, self.weight, self.bias, self.stride, self.pad_mode, self.padding, self.dilation, self.group)


class Conv2dTranspose(_Conv):
    """The transpose of a 2-D convolution: x (N, C, H, W) to (N, K, H', W'); weight (C, K / group, *kernel).

    Settings as in Conv2d. H' is H * stride with 'same'; H * stride + max(reach - stride, 0) with 'valid', where the kernel reaches over
    (kernel - 1) * dilation + 1; (H - 1) * stride - top - bottom + reach + output_padding with 'pad'.
    """

    rank = 2

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, pad_mode: str = "same", padding: Any = 0, output_padding: Any = 0,
                 dilation: Any = 1, group: int = 1, has_bias: bool = False, weight_init: Any = None, bias_init: Any = None, dtype: Any = dt.float32):
        super().__init__(in_channels, out_channels, kernel_size, stride, pad_mode, padding, dilation, group, has_bias, weight_init, bias_init, "NCHW", dtype, True)
        self.output_padding = each_dimension(output_padding, 2, "For 'Conv2dTranspose'", "output_padding", 0)
        if any(self.output_padding) and pad_mode != "pad":
            raise ArgumentValueError("For 'Conv2dTranspose', 'output_padding' must be zero when 'pad_mode' is not 'pad'.")

    def construct(self, x: Any) -> Any:
        if x.ndim != 4:
            raise ArgumentTypeError(f"For 'Conv2dTranspose', the input must have 4 dimensions, but has shape {x.shape}.")
        spatial = x.shape[2:]
        reach = tuple((k - 1) * d + 1 for k, d in zip(self.kernel_size, self.dilation))
        if self.pad_mode == "same":
            out = tuple(d * s for d, s in zip(spatial, self.stride))
            pads = same_padding(out, self.kernel_size, self.stride, self.dilation)
        elif self.pad_mode == "valid":
            out = tuple(d * s + max(r - s, 0) for d, s, r in zip(spatial, self.stride, reach))
            pads = ((0, 0), (0, 0))
        else:
            pads = explicit_padding(self.padding, 2, "Conv2dTranspose")
            out = tuple((d - 1) * s - a - b + r + e for d, s, (a, b), r, e in zip(spatial, self.stride, pads, reach, self.output_padding))
        y = conv_transpose(x, self.weight, out, self.stride, pads, self.dilation, self.group)
        return y if self.bias is None else y + self.bias.reshape((1, -1, 1, 1))  # type: ignore[operator]
