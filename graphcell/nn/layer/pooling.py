"""Pooling layers."""

from __future__ import annotations

from typing import Any

from graphcell import ops
from graphcell.errors import ArgumentTypeError, ArgumentValueError, ShapeError
from graphcell.nn.cell import Cell
from graphcell.nn.checks import check_bool, check_choice, check_int, check_tensor, is_int, positive_int
from graphcell.ops.functional.convolution import choose_padding, each_dimension
from graphcell.ops.functional.pooling import avg_pool, ceil_extra, max_places, max_pool

_MODES = ("VALID", "SAME", "PAD")


class _Pool(Cell):
    """What max and average pooling share: the windows, over the last `rank` dimensions."""

    rank = 2
    formats: tuple[str, ...] = ("NCHW",)

    def __init__(
        self, kernel_size: Any, stride: Any, pad_mode: str, padding: Any, dilation: Any, ceil_mode: bool, data_format: str
    ):  # fmt: skip
        super().__init__()
        owner = type(self).__name__
        self._kernel = self._sizes("kernel_size", kernel_size)
        self._stride = self._sizes("stride", stride)
        self._dilation = self._sizes("dilation", dilation)
        self.ceil_mode = check_bool(owner, "ceil_mode", ceil_mode)
        mode = pad_mode.upper() if isinstance(pad_mode, str) else pad_mode
        self.pad_mode = check_choice(owner, "pad_mode", mode, _MODES)
        self.data_format = check_choice(owner, "format", data_format, self.formats)
        self.kernel_size, self.stride, self.padding = kernel_size, stride, padding
        one = (1,) * self.rank
        pads = choose_padding("pad", padding, one, self._kernel, self._stride, self._dilation, f"For '{owner}'")
        if self.pad_mode != "PAD" and (any(map(any, pads)) or self._dilation != one or (ceil_mode and not self._rounds_up()) or self._has_indices()):
            raise ArgumentValueError(
                f"For {owner}, the parameter 'padding', 'dilation', 'return_indices', 'ceil_mode' can not be set to "
                f"non-default value when pad_mode is not 'pad', but got pad_mode:{pad_mode}."
            )
        if any(low > k // 2 or high > k // 2 for (low, high), k in zip(pads, self._kernel)):
            raise ArgumentValueError(
                f"For '{owner}', the padding must be at most half of the kernel size, but got {padding} and {kernel_size}."
            )

    def _has_indices(self) -> bool:
        return False

    def _rounds_up(self) -> bool:
        """Whether ceil_mode goes with all ways to pad."""
        return False

    def _sizes(self, name: str, value: Any) -> tuple[int, ...]:
        owner = type(self).__name__
        if not is_int(value) and not isinstance(value, tuple):
            raise ArgumentTypeError(
                f"For '{owner}', the type of '{name}' should be one of '['int', 'tuple']', "
                f"but got type '{type(value).__name__}'."
            )
        items = (value,) if is_int(value) else value
        if any(is_int(v) and v < 1 for v in items) or len(items) not in (1, self.rank):
            raise ArgumentValueError(
                f"For '{owner}', the '{name}' must be an positive int number or a tuple, but got {value}"
            )
        return each_dimension(value, self.rank, f"For '{owner}'", name)

    def _windows(self, x: Any) -> tuple[Any, Any]:
        """The padding given and the padding used."""
        owner = type(self).__name__
        if check_tensor(owner, "x", x).ndim not in (self.rank + 1, self.rank + 2):
            raise ShapeError(f"For '{owner}', the input must has {self.rank + 2} dim, but got {x.ndim}")
        spatial = x.shape[-self.rank :]
        pads = choose_padding(self.pad_mode, self.padding, spatial, self._kernel, self._stride, self._dilation, owner)
        if not self.ceil_mode:
            return pads, pads
        return pads, ceil_extra(spatial, pads, self._kernel, self._stride, self._dilation)

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
    def __init__(
        self, kernel_size: Any = 1, stride: Any = 1, pad_mode: str = "valid", padding: Any = 0, dilation: Any = 1,
        return_indices: bool = False, ceil_mode: bool = False, data_format: str = "NCHW",
    ):  # fmt: skip
        self.__dict__["return_indices"] = check_bool(type(self).__name__, "return_indices", return_indices)
        super().__init__(kernel_size, stride, pad_mode, padding, dilation, ceil_mode, data_format)

    def _has_indices(self) -> bool:
        return bool(self.return_indices)

    def _pool(self, x: Any) -> Any:
        _, pads = self._windows(x)
        y = max_pool(x, self._kernel, self._stride, pads, self._dilation)
        if not self.return_indices:
            return y
        return y, max_places(x, self._kernel, self._stride, pads, self._dilation)


class MaxPool2d(_MaxPool):
    """Maximum over windows of (N, C, H, W) or (C, H, W).

    Args:
        kernel_size, stride, dilation: an int, or two (height, width). Default 1.
        pad_mode: 'valid' (default), 'same' or 'pad'; all settings below go with 'pad'. Padded places never win.
        padding: an int, or two.
        return_indices: also give the places of the maxima, row-major in the image, int64.
        ceil_mode: a last, partial window counts.
        data_format: 'NCHW' or 'NHWC'.

    Raises:
        TypeError, ValueError: settings or shapes that do not fit.
    """

    formats = ("NCHW", "NHWC")


class MaxPool1d(_MaxPool):
    """Maximum over windows of (N, C, L) or (C, L). Settings as in MaxPool2d, each an int."""

    rank = 1

    def __init__(
        self, kernel_size: Any = 1, stride: Any = 1, pad_mode: str = "valid", padding: Any = 0, dilation: Any = 1,
        return_indices: bool = False, ceil_mode: bool = False,
    ):  # fmt: skip
        super().__init__(kernel_size, stride, pad_mode, padding, dilation, return_indices, ceil_mode)
        lead = (1, 1) if self.pad_mode == "PAD" else (1,)
        self.kernel_size, self.stride = (*lead, *self._kernel), (*lead, *self._stride)  # how MindSpore prints it


class MaxPool3d(_MaxPool):
    """Maximum over windows of (N, C, D, H, W) or (C, D, H, W). Settings as in MaxPool2d, an int or three."""

    rank = 3

    def __init__(
        self, kernel_size: Any = 1, stride: Any = 1, pad_mode: str = "valid", padding: Any = 0, dilation: Any = 1,
        return_indices: bool = False, ceil_mode: bool = False,
    ):  # fmt: skip
        super().__init__(kernel_size, stride, pad_mode, padding, dilation, return_indices, ceil_mode)


class _AvgPool(_Pool):
    def __init__(
        self, kernel_size: Any = 1, stride: Any = 1, pad_mode: str = "valid", padding: Any = 0, ceil_mode: bool = False,
        count_include_pad: bool = True, divisor_override: int | None = None, data_format: str = "NCHW",
    ):  # fmt: skip
        super().__init__(kernel_size, stride, pad_mode, padding, 1, ceil_mode, data_format)
        self.count_include_pad = check_bool(type(self).__name__, "count_include_pad", count_include_pad)
        if divisor_override is not None and check_int(type(self).__name__, "divisor_override", divisor_override) <= 0:
            raise ArgumentValueError(
                f"For '{type(self).__name__}', the 'divisor_override' must be > 0, but got {divisor_override}."
            )
        self.divisor_override = divisor_override
        self._counts_padding = self.rank == 3 or self.pad_mode == "PAD" or ceil_mode or not count_include_pad
        """As in MindSpore: with any of these settings the zeros of 'same' are elements too, if `count_include_pad` says so."""

    def _rounds_up(self) -> bool:
        return True

    def _pool(self, x: Any) -> Any:
        given, pads = self._windows(x)
        counted = given if self._counts_padding and self.count_include_pad else None
        return avg_pool(x, self._kernel, self._stride, pads, counted, self.divisor_override)


class AvgPool2d(_AvgPool):
    """Mean over windows of (N, C, H, W) or (C, H, W).

    Args:
        kernel_size, stride: an int, or two (height, width). Default 1.
        pad_mode: 'valid' (default), 'same' (its padding counts with ceil_mode only) or 'pad'.
        padding: with 'pad': an int, or two.
        ceil_mode: a last, partial window counts.
        count_include_pad: the zeros of 'pad' count as elements. Default True.
        divisor_override: divide by this instead of the number of elements.
        data_format: 'NCHW' or 'NHWC'.

    Raises:
        TypeError, ValueError: settings or shapes that do not fit.
    """

    formats = ("NCHW", "NHWC")


class AvgPool1d(_AvgPool):
    """Mean over windows of (N, C, L) or (C, L). Settings as in AvgPool2d, each an int."""

    rank = 1

    def __init__(
        self, kernel_size: Any = 1, stride: Any = 1, pad_mode: str = "valid", padding: Any = 0, ceil_mode: bool = False,
        count_include_pad: bool = True,
    ):  # fmt: skip
        super().__init__(kernel_size, stride, pad_mode, padding, ceil_mode, count_include_pad)
        if not self._counts_padding:
            self.kernel_size, self.stride = (1, *self._kernel), (1, *self._stride)  # how MindSpore prints it


class AvgPool3d(_AvgPool):
    """Mean over windows of (N, C, D, H, W) or (C, D, H, W). Settings as in AvgPool2d, an int or three."""

    rank = 3

    def __init__(
        self, kernel_size: Any = 1, stride: Any = 1, pad_mode: str = "valid", padding: Any = 0, ceil_mode: bool = False,
        count_include_pad: bool = True, divisor_override: int | None = None,
    ):  # fmt: skip
        super().__init__(kernel_size, stride, pad_mode, padding, ceil_mode, count_include_pad, divisor_override)


class _Adaptive(Cell):
    """Windows chosen so that `output_size` of them (None: as many as there are elements) cover each dimension."""

    rank = 2

    def __init__(self, output_size: Any):
        super().__init__()
        if self.rank == 1:
            output_size = positive_int(type(self).__name__, "output_size", output_size)
        if not is_int(output_size) and not isinstance(output_size, tuple):
            raise ArgumentTypeError(
                f"For '{type(self).__name__}', the type of 'output_size' should be one of '['int', 'tuple']', "
                f"but got type '{type(output_size).__name__}'."
            )
        if isinstance(output_size, tuple) and len(output_size) != self.rank:
            raise ArgumentValueError(
                f"For '{type(self).__name__}', the 'length of output_size' must be int and must = {self.rank}, "
                f"but got '{len(output_size)}' with type 'int'."
            )
        for n in output_size if isinstance(output_size, tuple) else (output_size,):
            if is_int(n) and n < 0:
                raise ArgumentValueError(f"For '{type(self).__name__}', the argument 'output_size' must >= 0, but got {output_size}.")
        self.output_size = output_size

    def _check_length(self, x: Any) -> None:
        """For one dimension: the windows are of one length."""
        owner = type(self).__name__
        if check_tensor(owner, "input", x).ndim != 3:
            raise ShapeError(f"For {owner}, the input must has 3 dim, but got {x.ndim}.")
        if x.shape[-1] % self.output_size:
            raise ShapeError(f"For {owner}, the input's last dimension must be divisible by output size {self.output_size}, but got {x.shape[-1]}.")


class AdaptiveAvgPool1d(_Adaptive):
    """Mean over `output_size` windows of (N, C, L), whose length they must divide."""

    rank = 1

    def construct(self, input: Any) -> Any:
        self._check_length(input)
        return ops.adaptive_avg_pool1d(input, self.output_size)


class AdaptiveAvgPool2d(_Adaptive):
    """Mean over windows chosen so that `output_size` (int, or two ints or None) of them cover the image."""

    def construct(self, input: Any) -> Any:
        return ops.adaptive_avg_pool2d(input, self.output_size)


class AdaptiveAvgPool3d(_Adaptive):
    """Mean over windows chosen so that `output_size` (int, or three ints or None) of them cover the volume."""

    rank = 3

    def construct(self, input: Any) -> Any:
        return ops.adaptive_avg_pool3d(input, self.output_size)


class AdaptiveMaxPool1d(_Adaptive):
    """Maximum over `output_size` windows of (N, C, L), whose length they must divide."""

    rank = 1

    def construct(self, x: Any) -> Any:
        self._check_length(x)
        return ops.adaptive_max_pool1d(x, self.output_size)


class _AdaptiveMaxPool(Cell):
    def __init__(self, output_size: Any, return_indices: bool = False):
        super().__init__()
        self.output_size, self.return_indices = output_size, return_indices


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """Maximum over windows chosen so that `output_size` (int, or two ints or None) of them cover the image.

    Args:
        return_indices: also give the places of the maxima, row-major in the image, int64.
    """

    def construct(self, input: Any) -> Any:
        return ops.adaptive_max_pool2d(input, self.output_size, self.return_indices)


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """Maximum over windows chosen so that `output_size` (int, or three ints or None) of them cover the volume.

    Args:
        return_indices: also give the places of the maxima, row-major in the volume, int32.
    """

    def construct(self, input: Any) -> Any:
        return ops.adaptive_max_pool3d(input, self.output_size, self.return_indices)


class _LPPool(Cell):
    """(sum of x ** norm_type) ** (1 / norm_type) over windows.

    Args:
        norm_type: int or float, not 0.
        kernel_size: of the windows.
        stride: how far they are apart; default: kernel_size.
        ceil_mode: a last, partial window counts.
    """

    def __init__(self, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False):
        super().__init__()
        self.norm_type, self.kernel_size, self.stride, self.ceil_mode = norm_type, kernel_size, stride, ceil_mode


class LPPool1d(_LPPool):
    """Power means, without the division, over windows of (N, C, L) or (C, L)."""

    def construct(self, x: Any) -> Any:
        return ops.lp_pool1d(x, self.norm_type, self.kernel_size, self.stride, self.ceil_mode)


class LPPool2d(_LPPool):
    """Power means, without the division, over windows of (N, C, H, W)."""

    def construct(self, x: Any) -> Any:
        return ops.lp_pool2d(x, self.norm_type, self.kernel_size, self.stride, self.ceil_mode)


class _MaxUnpool(Cell):
    """Puts maxima back to the places where they were, in zeros: a partial inverse of max pooling.

    Args:
        kernel_size, stride, padding: those of the pooling; stride None: kernel_size.

    Inputs: x and indices, as max pooling gives them; output_size: the shape of the result, if it is not to be the smallest possible.
    """

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0):
        super().__init__()
        self.kernel_size, self.stride, self.padding = kernel_size, stride, padding


class MaxUnpool1d(_MaxUnpool):
    """Unpools (N, C, L) or (C, L)."""

    def construct(self, x: Any, indices: Any, output_size: Any = None) -> Any:
        return ops.max_unpool1d(x, indices, self.kernel_size, self.stride, self.padding, output_size)


class MaxUnpool2d(_MaxUnpool):
    """Unpools (N, C, H, W) or (C, H, W)."""

    def construct(self, x: Any, indices: Any, output_size: Any = None) -> Any:
        return ops.max_unpool2d(x, indices, self.kernel_size, self.stride, self.padding, output_size)


class MaxUnpool3d(_MaxUnpool):
    """Unpools (N, C, D, H, W) or (C, D, H, W)."""

    def construct(self, x: Any, indices: Any, output_size: Any = None) -> Any:
        return ops.max_unpool3d(x, indices, self.kernel_size, self.stride, self.padding, output_size)


class _FractionalMaxPool(Cell):
    """Maximum over windows at random places, which shrink the image by any factor; see `ops.fractional_max_pool2d`.

    Args:
        kernel_size: of the windows.
        output_size, output_ratio: how many windows there are, or what that is of the input's extents; one of the two.
        return_indices: also give the places of the maxima, row-major.
    """

    def __init__(self, kernel_size: Any, output_size: Any = None, output_ratio: Any = None, return_indices: bool = False, _random_samples: Any = None):
        super().__init__()
        self.kernel_size, self.output_size, self.output_ratio = kernel_size, output_size, output_ratio
        self.return_indices, self._random_samples = return_indices, _random_samples


class FractionalMaxPool2d(_FractionalMaxPool):
    """Pools (N, C, H, W) or (C, H, W)."""

    def construct(self, input: Any) -> Any:
        return ops.fractional_max_pool2d(input, self.kernel_size, self.output_size, self.output_ratio, self.return_indices, self._random_samples)


class FractionalMaxPool3d(_FractionalMaxPool):
    """Pools (N, C, D, H, W) or (C, D, H, W)."""

    def construct(self, input: Any) -> Any:
        return ops.fractional_max_pool3d(input, self.kernel_size, self.output_size, self.output_ratio, self.return_indices, self._random_samples)
