"""Convolutions and pooling with PyTorch's arguments: `padding` is on both sides, the batch dimension may be missing.

Enters: Tensors of floats (N, C, …) or (C, …). Leaves: what `ops` computes. Both modes, with gradients.
"""

from __future__ import annotations

from typing import Any

from graphcell import ops
from graphcell.errors import ArgumentValueError, ShapeError
from graphcell.ops.functional.convolution import conv_transpose, each_dimension
from graphcell.ops.functional.pooling import windowed_operand
from graphcell.tensor import Tensor


# -- convolutions --------------------------------------------------------------------------------------------------------
def conv1d(input: Tensor, weight: Tensor, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1) -> Tensor:
    """1-D convolution: input (N, C, L) or (C, L), weight (K, C / groups, kernel), bias (K,); result (N, K, L') or (K, L').

    Arguments and errors as in `conv2d`.
    """
    return _conv(1, input, weight, bias, stride, padding, dilation, groups)


def conv2d(input: Tensor, weight: Tensor, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1) -> Tensor:
    """2-D convolution (cross-correlation).

    Args:
        input: (N, C, H, W) or (C, H, W), float.
        weight: (K, C / groups, kernel height, kernel width), of the input's dtype.
        bias: (K,), or None.
        stride, dilation: an int, or two (height, width).
        padding: zeros on both sides: an int, two (height, width), 'valid' (none) or 'same' (the extents stay; the stride must be 1).
        groups: number of groups that the channels are split in.

    Returns:
        Tensor (N, K, H', W') or (K, H', W').

    Raises:
        TypeError: dtypes differ or are no floats. ValueError: shapes or settings that do not fit.
    """
    return _conv(2, input, weight, bias, stride, padding, dilation, groups)


def conv3d(input: Tensor, weight: Tensor, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1) -> Tensor:
    """3-D convolution: input (N, C, D, H, W) or (C, D, H, W), weight (K, C / groups, *kernel), bias (K,).

    Arguments and errors as in `conv2d`.
    """
    return _conv(3, input, weight, bias, stride, padding, dilation, groups)


_CONVOLUTIONS = {1: ops.conv1d, 2: ops.conv2d, 3: ops.conv3d}


def _conv(rank: int, input: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Tensor:
    function = f"conv{rank}d"
    x = _batched(function, input, rank)
    mode, pads = _padding(function, rank, padding, stride)
    y = _CONVOLUTIONS[rank](x, weight, bias, stride, mode, pads, dilation, groups)
    return y if input.ndim == x.ndim else y.squeeze(0)


def _padding(function: str, rank: int, padding: Any, stride: Any) -> tuple[str, Any]:
    """The `pad_mode` and the padding, two numbers a dimension, of `ops`."""
    if isinstance(padding, str):
        if padding not in ("same", "valid"):
            raise ArgumentValueError(f"{function}: padding must be ints, 'same' or 'valid', but is {padding!r}")
        if padding == "same" and any(s != 1 for s in each_dimension(stride, rank, function, "stride")):
            raise ArgumentValueError(f"{function}: padding='same' needs a stride of 1, but got {stride}")
        return padding, 0
    return "pad", tuple(p for p in each_dimension(padding, rank, function, "padding", 0) for _ in range(2))


def _batched(function: str, x: Any, rank: int) -> Any:
    """x, (N, C, …) or (C, …), with a batch dimension. Errors as in `windowed_operand`."""
    windowed_operand(function, x, rank)
    return x if x.ndim == rank + 2 else x.expand_dims(0)


def conv_transpose2d(
    input: Tensor, weight: Tensor, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0, groups: int = 1, dilation: Any = 1
) -> Tensor:
    """The transpose of a 2-D convolution: input (N, C, H, W) or (C, H, W), weight (C, K / groups, *kernel), bias (K,).

    An extent d becomes (d - 1) * stride - 2 * padding + (kernel - 1) * dilation + 1 + output_padding.

    Raises:
        TypeError: no Tensors. ValueError: shapes or settings that do not fit; output_padding is less than neither stride nor dilation.
    """
    function = "conv_transpose2d"
    x = _batched(function, input, 2)
    if weight.ndim != 4 or weight.shape[0] != x.shape[1] or groups < 1 or x.shape[1] % groups:
        raise ShapeError(f"{function}: an input of shape {input.shape} and a weight of shape {weight.shape} do not fit in {groups} groups")
    steps, apart = (each_dimension(v, 2, function, name) for v, name in ((stride, "stride"), (dilation, "dilation")))
    edges, more = (each_dimension(v, 2, function, name, 0) for v, name in ((padding, "padding"), (output_padding, "output_padding")))
    if any(m >= max(s, d) for m, s, d in zip(more, steps, apart, strict=True)):
        raise ArgumentValueError(f"{function}: output_padding must be less than the stride or the dilation, but is {output_padding}")
    geometry = zip(x.shape[2:], weight.shape[2:], steps, edges, apart, more, strict=True)
    spatial = tuple((d - 1) * s - 2 * p + (k - 1) * a + 1 + m for d, k, s, p, a, m in geometry)
    if min(spatial) < 1:
        raise ShapeError(f"{function}: nothing would be left, the extents would be {spatial}")
    y: Any = conv_transpose(x, weight, spatial, steps, tuple((p, p) for p in edges), apart, groups)
    y = y if bias is None else y + bias.reshape((1, -1, 1, 1))
    return y if input.ndim == 4 else y.squeeze(0)  # type: ignore[no-any-return]


# -- pooling -------------------------------------------------------------------------------------------------------------
def max_pool2d(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False, return_indices: bool = False
) -> Any:  # fmt: skip
    """Maximum over windows of the last two dimensions of input (N, C, H, W) or (C, H, W); see `ops.max_pool2d`.

    Args:
        stride: by default kernel_size.
        return_indices: also give the place (row-major in H × W, int64) of each maximum.
    """
    return ops.max_pool2d(input, kernel_size, stride, padding, dilation, return_indices, ceil_mode)


def avg_pool1d(input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True) -> Tensor:
    """Mean over windows of the last dimension of input (N, C, L) or (C, L).

    Args:
        stride: by default kernel_size.
        padding: zeros on both sides, at most half of the kernel.
        ceil_mode: a last, partial window counts.
        count_include_pad: the zeros of `padding` count as elements.
    """
    length, step, edge = (x[0] if isinstance(x, (tuple, list)) and len(x) == 1 else x for x in (kernel_size, stride, padding))
    return ops.avg_pool1d(input, length, length if step is None else step, edge, ceil_mode, count_include_pad)


def avg_pool2d(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:  # fmt: skip
    """Mean over windows of the last two dimensions of input (N, C, H, W) or (C, H, W); arguments as in `avg_pool1d`.

    Args:
        divisor_override: what sums are divided by, in place of the number of elements.

    Raises:
        ValueError: divisor_override is 0, or shapes or settings that do not fit.
    """
    step = kernel_size if stride is None else stride
    return ops.avg_pool2d(input, kernel_size, step, padding, ceil_mode, count_include_pad, _divisor("avg_pool2d", divisor_override))


def avg_pool3d(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:  # fmt: skip
    """Mean over windows of the last three dimensions of input (N, C, D, H, W) or (C, D, H, W); arguments and errors as in `avg_pool2d`."""
    step = kernel_size if stride is None else stride
    return ops.avg_pool3d(input, kernel_size, step, padding, ceil_mode, count_include_pad, _divisor("avg_pool3d", divisor_override))


def _divisor(function: str, given: int | None) -> int:
    if given == 0:
        raise ArgumentValueError(f"{function}: divisor_override must not be 0")
    return given or 0


def adaptive_max_pool1d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """The largest element of each of `output_size` stretches of the last dimension of input (N, C, L) or (C, L).

    Args:
        return_indices: also give the place (int64) of each maximum.
    """
    extent = output_size[0] if isinstance(output_size, (tuple, list)) and len(output_size) == 1 else output_size
    found = ops.adaptive_max_pool2d(input.expand_dims(-2), (1, extent), return_indices)
    return tuple(y.squeeze(-2) for y in found) if return_indices else found.squeeze(-2)
