"""Pooling layers."""

from __future__ import annotations

from typing import Any

from graphcell import ops
from graphcell.errors import ArgumentValueError, ShapeError
from graphcell.nn.cell import Cell
from graphcell.nn.linear import check_bool
from graphcell.ops.functional.convolution import choose_padding, each_dimension
from graphcell.ops.functional.pooling import avg_pool, ceil_extra, max_pool


class _Pool(Cell):
    """What max and average pooling share: the windows."""

    rank = 2

    def __init__(self, kernel_size: Any, stride: Any, pad_mode: str, padding: Any, dilation: Any, ceil_mode: bool, data_format: str):
        super().__init__()
        owner = f"For '{type(self).__name__}'"
        self.kernel_size = kernel_size
        self.stride = stride
        self._kernel = each_dimension(kernel_size, self.rank, owner, "kernel_size")
        self._stride = each_dimension(stride, self.rank, owner, "stride")
        self._dilation = each_dimension(dilation, self.rank, owner, "dilation")
        self.ceil_mode = check_bool(type(self).__name__, "ceil_mode", ceil_mode)
        if not isinstance(pad_mode, str) or pad_mode.upper() not in ("SAME", "VALID", "PAD"):
            raise ArgumentValueError(f"{owner}, the 'pad_mode' must be in ('same', 'valid', 'pad'), but got {pad_mode!r}.")
        self.pad_mode, self.padding, self.data_format = pad_mode.upper(), padding, data_format
        choose_padding(pad_mode, padding, (1,) * self.rank, self._kernel, self._stride, self._dilation, owner)

    def _windows(self, x: Any) -> tuple[Any, Any]:
        """The padding given and the padding used."""
        if x.ndim not in (self.rank + 1, self.rank + 2):
            raise ShapeError(f"For '{type(self).__name__}', the input must have {self.rank + 2} dimensions, but has shape {x.shape}.")
        spatial = x.shape[-self.rank :]
        pads = choose_padding(self.pad_mode, self.padding, spatial, self._kernel, self._stride, self._dilation, type(self).__name__)
        return pads, ceil_extra(spatial, pads, self._kernel, self._stride, self._dilation) if self.ceil_mode else pads

    def construct(self, x: Any) -> Any:
        last = self.data_format == "NHWC"
        if last:
            x = x.transpose(0, 3, 1, 2)
        y = self._pool(x)
        return y.transpose(0, 2, 3, 1) if last else y

    def _pool(self, x: Any) -> Any:
        raise NotImplementedError

    def extend_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, pad_mode={self.pad_mode}"


class _MaxPool(_Pool):
    def __init__(self, kernel_size: Any = 1, stride: Any = 1, pad_mode: str = "valid", padding: Any = 0, dilation: Any = 1, return_indices: bool = False,
                 ceil_mode: bool = False, data_format: str = "NCHW"):
        super().__init__(kernel_size, stride, pad_mode, padding, dilation, ceil_mode, data_format)
        self.return_indices = check_bool(type(self).__name__, "return_indices", return_indices)

    def _pool(self, x: Any) -> Any:
        _, pads = self._windows(x)
        if self.return_indices:
            return ops.max_pool2d(x, self._kernel, self._stride, self.padding, self._dilation, True, self.ceil_mode)
        return max_pool(x, self._kernel, self._stride, pads, self._dilation)


class MaxPool2d(_MaxPool):
    """Maximum over windows of (N, C, H, W).

    Args:
        kernel_size, stride, dilation: an int, or two (height, width). Default 1.
        pad_mode: 'valid' (default), 'same' or 'pad'; `padding` goes with 'pad'. Padded places never win.
        return_indices: also give the places of the maxima.
        ceil_mode: a last, partial window counts.
    """

    rank = 2


class MaxPool1d(_MaxPool):
    """Maximum over windows of (N, C, L)."""

    rank = 1

    def __init__(self, kernel_size: Any = 1, stride: Any = 1, pad_mode: str = "valid", padding: Any = 0, dilation: Any = 1, return_indices: bool = False,
                 ceil_mode: bool = False):
        super().__init__(kernel_size, stride, pad_mode, padding, dilation, return_indices, ceil_mode)


class _AvgPool(_Pool):
    def __init__(self, kernel_size: Any = 1, stride: Any = 1, pad_mode: str = "valid", padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True,
                 divisor_override: int | None = None, data_format: str = "NCHW"):
        super().__init__(kernel_size, stride, pad_mode, padding, 1, ceil_mode, data_format)
        self.count_include_pad = check_bool(type(self).__name__, "count_include_pad", count_include_pad)
        if divisor_override is not None and divisor_override <= 0:
            raise ArgumentValueError(f"For '{type(self).__name__}', the 'divisor_override' must be positive, but got {divisor_override}.")
        self.divisor_override = divisor_override

    def _pool(self, x: Any) -> Any:
        given, pads = self._windows(x)
        counted = given if self.pad_mode == "PAD" and self.count_include_pad else None
        return avg_pool(x, self._kernel, self._stride, pads, counted, self.divisor_override)


class AvgPool2d(_AvgPool):
    """Mean over windows of (N, C, H, W). Padding of 'same' never counts; that of 'pad' does with `count_include_pad`."""

    rank = 2


class AvgPool1d(_AvgPool):
    """Mean over windows of (N, C, L)."""

    rank = 1

    def __init__(self, kernel_size: Any = 1, stride: Any = 1, pad_mode: str = "valid", padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True):
        super().__init__(kernel_size, stride, pad_mode, padding, ceil_mode, count_include_pad)


class AdaptiveAvgPool2d(Cell):
    """Mean over windows chosen so that `output_size` (int, or two ints or None) of them cover the image."""

    def __init__(self, output_size: Any):
        super().__init__()
        self.output_size = output_size

    def construct(self, input: Any) -> Any:
        return ops.adaptive_avg_pool2d(input, self.output_size)


class AdaptiveMaxPool2d(Cell):
    """Maximum over windows chosen so that `output_size` (int, or two ints or None) of them cover the image."""

    def __init__(self, output_size: Any, return_indices: bool = False):
        super().__init__()
        if return_indices:
            from graphcell.errors import NotImplementedFeatureError

            raise NotImplementedFeatureError("AdaptiveMaxPool2d: return_indices is not there yet", hint="use MaxPool2d(return_indices=True) for regular windows")
        self.output_size = output_size

    def construct(self, input: Any) -> Any:
        return ops.adaptive_max_pool2d(input, self.output_size)
