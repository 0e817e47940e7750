"""Convolution layers with PyTorch's arguments."""

from __future__ import annotations

import math
from typing import Any

from graphcell import dtype as dt
from graphcell import nn, ops
from graphcell.common.initializer import Uniform, initializer
from graphcell.errors import ArgumentValueError
from graphcell.mint.nn import functional as F
from graphcell.nn.checks import check_bool, check_choice, positive_int
from graphcell.ops.functional.convolution import each_dimension
from graphcell.parameter import Parameter

_MODES = ("zeros", "reflect", "replicate", "circular")


class _Conv(nn.Cell):
    """What all convolution layers have: settings, weight (out, in / groups, *kernel) and bias (out,), uniform on ±1 / sqrt(in / groups * kernel)."""

    rank = 2
    transposed = False
    modes: tuple[str, ...] = _MODES

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1,
        bias: bool = True, padding_mode: str = "zeros", dtype: Any = None,
    ):  # fmt: skip
        super().__init__()
        owner = type(self).__name__
        self.in_channels = positive_int(owner, "in_channels", in_channels)
        self.out_channels = positive_int(owner, "out_channels", out_channels)
        self.groups = positive_int(owner, "groups", groups)
        if in_channels % groups or out_channels % groups:
            raise ArgumentValueError(f"For '{owner}', 'groups' must divide in_channels and out_channels, but they are {groups}, {in_channels}, {out_channels}.")
        self.kernel_size = each_dimension(kernel_size, self.rank, owner, "kernel_size")
        self.stride = each_dimension(stride, self.rank, owner, "stride")
        self.dilation = each_dimension(dilation, self.rank, owner, "dilation")
        self.padding_mode = check_choice(owner, "padding_mode", padding_mode, self.modes)
        self.padding = self._checked_padding(owner, padding)
        first, second = (in_channels, out_channels) if self.transposed else (out_channels, in_channels)
        shape = (first, second // groups, *self.kernel_size)
        spread = Uniform(1 / math.sqrt(math.prod(shape[1:])))
        kind = dt.float32 if dtype is None else dt.as_dtype(dtype)
        self.weight = Parameter(initializer(spread, shape, kind), name="weight")
        self.bias = Parameter(initializer(spread, (out_channels,), kind), name="bias") if check_bool(owner, "bias", bias) else None

    def _checked_padding(self, owner: str, padding: Any) -> Any:
        if not isinstance(padding, str):
            return each_dimension(padding, self.rank, owner, "padding", 0)
        check_choice(owner, "padding", padding, ("same", "valid"))
        if padding == "same" and max(self.stride) > 1:
            raise ArgumentValueError(f"For '{owner}', padding='same' needs a stride of 1, but got {self.stride}.")
        return padding

    def _padded(self, x: Any) -> tuple[Any, Any]:
        """The input, padded if the mode is another than zeros, and the padding that is left to do."""
        if self.padding_mode == "zeros" or self.padding == "valid":
            return x, self.padding
        totals = [(k - 1) * d for k, d in zip(self.kernel_size, self.dilation, strict=True)]
        sides = [(t // 2, t - t // 2) for t in totals] if self.padding == "same" else [(p, p) for p in self.padding]
        return ops.pad(x, tuple(p for pair in reversed(sides) for p in pair), self.padding_mode), 0

    def extend_repr(self) -> str:
        return (
            f"input_channels={self.in_channels}, output_channels={self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}, "
            f"padding={self.padding}, dilation={self.dilation}, groups={self.groups}, bias={self.bias is not None}"
        )


class Conv1d(_Conv):
    """1-D convolution layer: (N, C, L) or (C, L) to (N, K, L') or (K, L'). Arguments and errors as in `Conv2d`."""

    rank = 1

    def construct(self, input: Any) -> Any:
        x, padding = self._padded(input)
        return F.conv1d(x, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)


class Conv2d(_Conv):
    """2-D convolution layer: (N, C, H, W) or (C, H, W) to (N, K, H', W') or (K, H', W').

    Args:
        in_channels, out_channels: channels of input and output.
        kernel_size, stride, dilation: an int, or two (height, width).
        padding: on both sides: an int, two (height, width), 'valid' (none) or 'same' (the extents stay; the stride must be 1).
        groups: groups of channels.
        bias: add a trained number to each channel. Default True.
        padding_mode: 'zeros', 'reflect', 'replicate' or 'circular'.
        dtype: of the Parameters, by default float32.

    Raises:
        TypeError, ValueError: settings or shapes that do not fit.
    """

    def construct(self, input: Any) -> Any:
        x, padding = self._padded(input)
        return F.conv2d(x, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)


class Conv3d(_Conv):
    """3-D convolution layer: (N, C, D, H, W) or (C, D, H, W). Arguments and errors as in `Conv2d`."""

    rank = 3

    def construct(self, input: Any) -> Any:
        x, padding = self._padded(input)
        return F.conv3d(x, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)


class ConvTranspose2d(_Conv):
    """The transpose of a 2-D convolution: (N, C, H, W) or (C, H, W); the weight is (C, K / groups, *kernel).

    Args:
        output_padding: rows and columns more at the end; less than the stride or the dilation.
        padding_mode: 'zeros'.
        others: as in `Conv2d`; padding holds ints.

    Raises:
        TypeError, ValueError: settings or shapes that do not fit.
    """

    transposed = True
    modes = ("zeros",)

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0, output_padding: Any = 0, groups: int = 1,
        bias: bool = True, dilation: Any = 1, padding_mode: str = "zeros", dtype: Any = None,
    ):  # fmt: skip
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode, dtype)
        self.output_padding = each_dimension(output_padding, 2, "ConvTranspose2d", "output_padding", 0)

    def _checked_padding(self, owner: str, padding: Any) -> Any:
        return each_dimension(padding, self.rank, owner, "padding", 0)

    def construct(self, input: Any, output_size: Any = None) -> Any:
        """`output_size`: the spatial extents of the result; `output_padding` is what it takes then."""
        more = self.output_padding if output_size is None else self._more(input, output_size)
        return F.conv_transpose2d(input, self.weight, self.bias, self.stride, self.padding, more, self.groups, self.dilation)

    def _more(self, x: Any, output_size: Any) -> tuple[int, ...]:
        wanted = tuple(output_size)[-2:]
        geometry = zip(wanted, x.shape[-2:], self.kernel_size, self.stride, self.padding, self.dilation, strict=True)
        more = tuple(w - ((d - 1) * s - 2 * p + (k - 1) * a + 1) for w, d, k, s, p, a in geometry)
        if any(not 0 <= m < max(s, a) for m, s, a in zip(more, self.stride, self.dilation, strict=True)):
            raise ArgumentValueError(f"For 'ConvTranspose2d', an input of shape {x.shape} cannot become one of extents {wanted}.")
        return more
