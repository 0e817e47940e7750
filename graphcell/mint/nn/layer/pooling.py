"""Pooling layers with PyTorch's arguments."""

from __future__ import annotations

from typing import Any

from graphcell import nn
from graphcell.mint.nn import functional as F


class AdaptiveAvgPool1d(nn.Cell):
    """Mean of each of `output_size` stretches of (N, C, L) or (C, L)."""

    def __init__(self, output_size: Any):
        super().__init__()
        self.output_size = output_size

    def construct(self, input: Any) -> Any:
        return F.adaptive_avg_pool1d(input, self.output_size)

    def extend_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveAvgPool2d(nn.AdaptiveAvgPool2d):
    """Mean of each field of (N, C, H, W) or (C, H, W), divided in `output_size` (an int, or two; None: as many as there are) fields."""

    def extend_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveMaxPool1d(nn.Cell):
    """The largest element of each of `output_size` stretches of (N, C, L) or (C, L).

    Args:
        return_indices: also give the places of the maxima.
    """

    def __init__(self, output_size: Any, return_indices: bool = False):
        super().__init__()
        self.output_size, self.return_indices = output_size, return_indices

    def construct(self, input: Any) -> Any:
        return F.adaptive_max_pool1d(input, self.output_size, self.return_indices)

    def extend_repr(self) -> str:
        return f"output_size={self.output_size}, return_indices={self.return_indices}"


class AvgPool1dExt(nn.Cell):
    """Mean over windows of the last dimension of (N, C, L) or (C, L); see `mint.nn.functional.avg_pool1d`."""

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True):
        super().__init__()
        self.settings = kernel_size, stride, padding, ceil_mode, count_include_pad

    def construct(self, input: Any) -> Any:
        return F.avg_pool1d(input, *self.settings)


class _AvgPool(nn.Cell):
    def __init__(
        self, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True,
        divisor_override: int | None = None,
    ):  # fmt: skip
        super().__init__()
        self.settings = kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override


class AvgPool2dExt(_AvgPool):
    """Mean over windows of the last two dimensions of (N, C, H, W) or (C, H, W); see `mint.nn.functional.avg_pool2d`."""

    def construct(self, input: Any) -> Any:
        return F.avg_pool2d(input, *self.settings)


class AvgPool3dExt(_AvgPool):
    """Mean over windows of the last three dimensions of (N, C, D, H, W) or (C, D, H, W); see `mint.nn.functional.avg_pool3d`."""

    def construct(self, input: Any) -> Any:
        return F.avg_pool3d(input, *self.settings)


# The names of mint, which print as the classes do in MindSpore.
AvgPool1d = AvgPool1dExt
AvgPool2d = AvgPool2dExt
AvgPool3d = AvgPool3dExt
