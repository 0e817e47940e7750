"""Convolution layers, and transposed ones."""

from __future__ import annotations

import math
from typing import Any

from graphcell import dtype as dt
from graphcell import ops
from graphcell.common.initializer import HeUniform, Uniform, initializer
from graphcell.errors import ArgumentTypeError, ArgumentValueError, ShapeError
from graphcell.nn.cell import Cell
from graphcell.nn.checks import check_bool, check_choice, check_int, check_tensor, int_or_tuple, is_int, positive_int
from graphcell.ops.functional.convolution import conv_transpose, explicit_padding, same_padding
from graphcell.parameter import Parameter
from graphcell.tensor import Tensor

_MODES = ("same", "valid", "pad")


class _Conv(Cell):
    """What all convolution layers have: settings, weight (out, in / group, *kernel), bias (out,).

    `rank` is the number of spatial dimensions of the weight.
    """

    rank = 2
    transposed = False
    formats: tuple[str, ...] = ("NCHW",)

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, pad_mode: str = "same", padding: Any = 0,
        dilation: Any = 1, group: int = 1, has_bias: bool = False, weight_init: Any = None, bias_init: Any = None,
        data_format: str = "NCHW", dtype: Any = dt.float32,
    ):  # fmt: skip
        super().__init__()
        owner = type(self).__name__
        self.in_channels = positive_int(owner, "in_channels", in_channels)
        self.out_channels = positive_int(owner, "out_channels", out_channels)
        self.kernel_size = int_or_tuple(owner, "kernel_size", kernel_size, self.rank)
        self.stride = int_or_tuple(owner, "stride", stride, self.rank)
        self.dilation = int_or_tuple(owner, "dilation", dilation, self.rank)
        self.group = positive_int(owner, "group", group)
        self.has_bias = check_bool(owner, "has_bias", has_bias)
        if in_channels % group or out_channels % group:
            raise ArgumentValueError(
                "The argument 'group' should be divisible by 'in_channels' and 'out_channels', but got "
                f"group:{group}, in_channels:{in_channels}, out_channels:{out_channels}."
            )
        self.data_format = check_choice(owner, "format", data_format, self.formats)
        self.pad_mode = check_choice(owner, "pad_mode", pad_mode.lower() if self.rank == 3 and isinstance(pad_mode, str) else pad_mode, _MODES)
        self.padding = padding
        self._check_padding(owner)
        first, second = (in_channels, out_channels) if self.transposed else (out_channels, in_channels)
        shape = (first, second // group, *self.kernel_size)
        self.weight_init = HeUniform(math.sqrt(5)) if weight_init is None else weight_init
        self.weight = Parameter(initializer(self.weight_init, shape, dtype), name="weight")
        self.bias_init, self.bias = bias_init, None
        if has_bias:
            reach = second // group * math.prod(self.kernel_size)
            self.bias_init = Uniform(1 / math.sqrt(reach)) if bias_init is None else bias_init
            self.bias = Parameter(initializer(self.bias_init, (out_channels,), dtype), name="bias")

    def _check_padding(self, owner: str) -> None:
        padding = self.padding
        items = (padding,) if is_int(padding) else padding
        if not isinstance(items, tuple) or not all(map(is_int, items)):
            raise ArgumentTypeError(
                f"For '{owner}', the type of 'padding' must be int or tuple(int), but got {type(padding).__name__}."
            )
        if len(items) not in (1, 2 * self.rank):
            raise ArgumentValueError(
                f"For '{owner}', the 'pad size' must be int and must = {2 * self.rank}, but got '{len(items)}' with type 'int'."
            )
        if min(items) < 0:
            raise ArgumentValueError(
                f"For '{owner}', the 'padding' must be int and must >= 0, but got '{min(items)}' with type 'int'."
            )
        if self.pad_mode != "pad" and any(items):
            raise ArgumentValueError(
                f"For '{owner}', the 'pad' must be zero when 'pad_mode' is not 'pad', but got 'pad': {padding} and "
                f"'pad_mode': {self.pad_mode}."
            )

    def _input(self, x: Any, rank: int) -> Any:
        """The input, of `rank` spatial dimensions."""
        if check_tensor(type(self).__name__, "x", x).ndim != rank + 2:
            raise ShapeError(
                f"For '{type(self).__name__}', the input must have {rank + 2} dimensions, but has shape {x.shape}."
            )
        return x

    def extend_repr(self) -> str:
        return (
            f"input_channels={self.in_channels}, output_channels={self.out_channels}, kernel_size={self.kernel_size}, "
            f"stride={self.stride}, pad_mode={self.pad_mode}, padding={self.padding}, dilation={self.dilation}, "
            f"group={self.group}, has_bias={self.has_bias}, weight_init={self.weight_init}, bias_init={self.bias_init}, "
            f"format={self.data_format}"
        )


class Conv2d(_Conv):
    """2-D convolution layer.

    Args:
        in_channels, out_channels: channels of input and output.
        kernel_size, stride, dilation: an int, or two (height, width).
        pad_mode: 'same' (default): the output has ceil(extent / stride); 'valid': no padding; 'pad': as `padding` says.
        padding: with 'pad': an int, or four (top, bottom, left, right).
        group: groups of channels.
        has_bias: default False.
        weight_init, bias_init: Tensor, initializer, its name, or a number. Default: weight HeUniform(sqrt(5)), bias uniform on
            ±1 / sqrt(in_channels / group * kernel elements).
        data_format: 'NCHW', or 'NHWC' for input and output (N, H, W, C).

    Inputs: x (N, C, H, W), float. Outputs: (N, K, H', W').

    Raises:
        TypeError, ValueError: settings or shapes that do not fit.
    """

    formats = ("NCHW", "NHWC")

    def construct(self, x: Any) -> Any:
        self._input(x, 2)
        last = self.data_format == "NHWC"
        if last:
            x = x.transpose(0, 3, 1, 2)
        y: Any = ops.conv2d(
            x, self.weight, self.bias, self.stride, self.pad_mode, self.padding, self.dilation, self.group
        )
        return y.transpose(0, 2, 3, 1) if last else y


class _Flat(_Conv):
    """A convolution over one dimension, as one over pictures of one row: settings are ints, kept as pairs."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: int, stride: int = 1, pad_mode: str = "same", padding: int = 0,
        dilation: int = 1, group: int = 1, has_bias: bool = False, weight_init: Any = None, bias_init: Any = None,
        dtype: Any = dt.float32,
    ):  # fmt: skip
        owner = type(self).__name__
        settings = (("kernel_size", kernel_size), ("stride", stride), ("padding", padding), ("dilation", dilation))
        for name, value in settings:
            check_int(owner, name, value)
        if isinstance(weight_init, Tensor):
            if weight_init.ndim != 3:
                raise ArgumentValueError(
                    f"For '{owner}', the 'weight_init_shape' must be int and must = 3, but got '{weight_init.ndim}' with type 'int'."
                )
            weight_init = weight_init.expand_dims(2)
        super().__init__(
            in_channels, out_channels, (1, kernel_size), (1, stride), pad_mode, (0, 0, padding, padding), (1, dilation), group,
            has_bias, weight_init, bias_init, dtype=dtype,
        )  # fmt: skip


class Conv1d(_Flat):
    """1-D convolution layer: x (N, C, L) to (N, K, L').

    Settings as in Conv2d, each an int. The weight has shape (K, C / group, 1, kernel_size); a Tensor as `weight_init` lacks the 1.
    """

    def construct(self, x: Any) -> Any:
        x = self._input(x, 1).expand_dims(2)
        y = ops.conv2d(
            x, self.weight, self.bias, self.stride, self.pad_mode, self.padding, self.dilation, self.group
        )
        return ops.squeeze(y, 2)


class Conv3d(_Conv):
    """3-D convolution layer: x (N, C, D, H, W) to (N, K, D', H', W').

    Settings as in Conv2d; sizes are an int or three, `padding` an int or six.
    """

    rank = 3
    formats = ("NCDHW",)

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, pad_mode: str = "same", padding: Any = 0,
        dilation: Any = 1, group: int = 1, has_bias: bool = False, weight_init: Any = None, bias_init: Any = None,
        data_format: str = "NCDHW", dtype: Any = dt.float32,
    ):  # fmt: skip
        _three("Conv3d", kernel_size=kernel_size, stride=stride, dilation=dilation)
        super().__init__(
            in_channels, out_channels, kernel_size, stride, pad_mode, padding, dilation, group, has_bias, weight_init,
            bias_init, data_format, dtype,
        )  # fmt: skip

    def construct(self, x: Any) -> Any:
        self._input(x, 3)
        return ops.conv3d(
            x, self.weight, self.bias, self.stride, self.pad_mode, self.padding, self.dilation, self.group
        )


def _three(owner: str, **settings: Any) -> None:
    for name, value in settings.items():
        if isinstance(value, tuple) and len(value) != 3:
            raise ArgumentValueError(
                f"For '{owner}', the parameter '{name}' must be an positive integer or a tuple of three positive "
                f"integer, but got {value}"
            )


class _ConvTranspose(_Conv):
    """The transpose of a convolution; the weight is (in, out / group, *kernel).

    An extent d becomes d * stride with 'same', d * stride + max(reach - stride, 0) with 'valid', where the kernel reaches over
    (kernel - 1) * dilation + 1, and (d - 1) * stride - before - after + reach + output_padding with 'pad'.
    """

    transposed = True

    def _transpose(self, x: Any, more: tuple[int, ...] | None = None) -> Any:
        """`more`: what output_padding adds to each extent."""
        spatial = x.shape[2:]
        reach = tuple((k - 1) * d + 1 for k, d in zip(self.kernel_size, self.dilation))
        pads: tuple[tuple[int, int], ...] = ((0, 0),) * len(spatial)
        if self.pad_mode == "same":
            out = tuple(d * s for d, s in zip(spatial, self.stride))
            pads = same_padding(out, self.kernel_size, self.stride, self.dilation)
        elif self.pad_mode == "valid":
            out = tuple(d * s + max(r - s, 0) for d, s, r in zip(spatial, self.stride, reach))
        else:
            pads = explicit_padding(self.padding, len(spatial), type(self).__name__)
            geometry = zip(spatial, self.stride, pads, reach, more or (0,) * len(spatial))
            out = tuple((d - 1) * s - a - b + r + e for d, s, (a, b), r, e in geometry)
        y: Any = conv_transpose(x, self.weight, out, self.stride, pads, self.dilation, self.group)
        return y if self.bias is None else y + self.bias.reshape((1, -1, *(1,) * len(spatial)))


class Conv2dTranspose(_ConvTranspose):
    """Transposed 2-D convolution layer: x (N, C, H, W) to (N, K, H', W').

    Settings as in Conv2d.

    Args:
        output_padding: rows and columns of zeros at the end, with pad_mode 'pad'; less than the stride or the dilation.
    """

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, pad_mode: str = "same", padding: Any = 0,
        output_padding: Any = 0, dilation: Any = 1, group: int = 1, has_bias: bool = False, weight_init: Any = None,
        bias_init: Any = None, dtype: Any = dt.float32,
    ):  # fmt: skip
        super().__init__(
            in_channels, out_channels, kernel_size, stride, pad_mode, padding, dilation, group, has_bias, weight_init,
            bias_init, dtype=dtype,
        )  # fmt: skip
        self.output_padding = output_padding
        self._more = _output_padding(self, output_padding)

    def construct(self, x: Any) -> Any:
        y = self._transpose(self._input(x, 2))
        return ops.pad(y, (0, self._more[1], 0, self._more[0])) if any(self._more) else y


class Conv1dTranspose(_Flat, _ConvTranspose):
    """Transposed 1-D convolution layer: x (N, C, L) to (N, K, L'). The weight has shape (C, K / group, 1, kernel_size)."""

    def construct(self, x: Any) -> Any:
        return ops.squeeze(self._transpose(self._input(x, 1).expand_dims(2)), 2)


class Conv3dTranspose(_ConvTranspose):
    """Transposed 3-D convolution layer: x (N, C, D, H, W) to (N, K, D', H', W')."""

    rank = 3
    formats = ("NCDHW",)

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, pad_mode: str = "same", padding: Any = 0,
        dilation: Any = 1, group: int = 1, output_padding: Any = 0, has_bias: bool = False, weight_init: Any = None,
        bias_init: Any = None, data_format: str = "NCDHW", dtype: Any = dt.float32,
    ):  # fmt: skip
        _three("Conv3dTranspose", kernel_size=kernel_size, stride=stride, dilation=dilation)
        super().__init__(
            in_channels, out_channels, kernel_size, stride, pad_mode, padding, dilation, group, has_bias, weight_init,
            bias_init, data_format, dtype,
        )  # fmt: skip
        self.output_padding = output_padding
        self._more = _output_padding(self, output_padding)

    def construct(self, x: Any) -> Any:
        return self._transpose(self._input(x, 3), self._more)


def _output_padding(layer: _ConvTranspose, given: Any) -> tuple[int, ...]:
    owner = type(layer).__name__
    sizes = int_or_tuple(owner, "output_padding", given, layer.rank, 0)
    if any(sizes) and layer.pad_mode != "pad":
        raise ArgumentValueError(
            f"For '{owner}', the 'output_padding' must be zero when 'pad_mode' is not 'pad', but got {given} and "
            f"'{layer.pad_mode}'."
        )
    if any(e >= max(s, d) for e, s, d in zip(sizes, layer.stride, layer.dilation)) and any(sizes):
        raise ArgumentValueError(
            f"For '{owner}', the 'output_padding' must be less than the stride or the dilation, but got {given}."
        )
    return sizes
