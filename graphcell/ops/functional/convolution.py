"""Convolutions of one, two and three spatial dimensions, and transposed ones."""

from __future__ import annotations

from typing import Any

from graphcell.errors import ArgumentTypeError, ArgumentValueError, DTypeError, ShapeError
from graphcell.ir.types import Shape
from graphcell.ops.automatic import listed
from graphcell.ops.convolution import Conv, ConvInputGrad
from graphcell.ops.dispatch import apply1
from graphcell.ops.functional.common import as_tensor
from graphcell.ops.functional.movement import cut, permuted, reshaped
from graphcell.ops.kernels import composite
from graphcell.ops.movement import Pad
from graphcell.ops.pooling import Fold, Windows
from graphcell.tensor import Tensor

__all__ = ["conv1d", "conv2d", "conv3d", "conv3d_transpose"]

Pairs = tuple[tuple[int, int], ...]


def each_dimension(value: Any, rank: int, function: str, name: str, least: int = 1) -> tuple[int, ...]:
    """An int, or a sequence of `rank` ints (or one), as `rank` ints of at least `least`.

    Raises:
        TypeError: not ints. ValueError: too small, or another number of them.
    """
    items = (value,) * rank if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(items, (tuple, list)) or any(not isinstance(v, int) or isinstance(v, bool) for v in items):
        raise ArgumentTypeError(f"{function}: {name} must be an int or a tuple of {rank} ints, but got {value!r}")
    if len(items) == 1:
        items = tuple(items) * rank
    if len(items) != rank or min(items) < least:
        raise ArgumentValueError(f"{function}: {name} must hold {rank} ints of at least {least}, but got {value!r}")
    return tuple(items)


def same_padding(spatial: Shape, kernel: Shape, stride: Shape, dilation: Shape) -> Pairs:
    """The padding by which ceil(extent / stride) positions fit; an odd rest goes to the end."""
    pads = []
    for d, k, s, dil in zip(spatial, kernel, stride, dilation, strict=True):
        total = max((-(-d // s) - 1) * s + (k - 1) * dil + 1 - d, 0)
        pads.append((total // 2, total - total // 2))
    return tuple(pads)


def explicit_padding(padding: Any, rank: int, function: str) -> Pairs:
    """An int, one int a dimension, or two (before, after) a dimension."""
    if isinstance(padding, (tuple, list)) and len(padding) == 2 * rank:
        flat = each_dimension(tuple(padding), 2 * rank, function, "padding", 0)
        return tuple((flat[2 * k], flat[2 * k + 1]) for k in range(rank))
    return tuple((p, p) for p in each_dimension(padding, rank, function, "padding", 0))


def choose_padding(pad_mode: str, padding: Any, spatial: Shape, kernel: Shape, stride: Shape, dilation: Shape, function: str) -> Pairs:
    """The padding of `pad_mode` same, valid or pad.

    Raises:
        ValueError: unknown mode, or a padding given with another mode than pad.
    """
    if not isinstance(pad_mode, str) or pad_mode.lower() not in ("same", "valid", "pad"):
        raise ArgumentValueError(f"{function}: pad_mode must be 'same', 'valid' or 'pad', but got {pad_mode!r}")
    pairs = explicit_padding(padding, len(kernel), function)
    if pad_mode.lower() == "pad":
        return pairs
    if any(map(any, pairs)):
        raise ArgumentValueError(f"{function}: padding must be zero when pad_mode is '{pad_mode}', but got {padding}", hint="use pad_mode='pad'")
    return same_padding(spatial, kernel, stride, dilation) if pad_mode.lower() == "same" else ((0, 0),) * len(kernel)


def _conv(function: str, rank: int, input: Any, weight: Any, bias: Any, stride: Any, pad_mode: str, padding: Any, dilation: Any, groups: int) -> Tensor:
    x, w = as_tensor(input, "input", function), as_tensor(weight, "weight", function)
    if x.ndim != rank + 2 or w.ndim != rank + 2:
        raise ShapeError(f"{function}: input and weight must have {rank + 2} dimensions, but have shapes {x.shape} and {w.shape}")
    if not isinstance(groups, int) or groups < 1:
        raise ArgumentValueError(f"{function}: groups must be a positive int, but got {groups!r}")
    steps = each_dimension(stride, rank, function, "stride")
    apart = each_dimension(dilation, rank, function, "dilation")
    pads = choose_padding(pad_mode, padding, x.shape[2:], w.shape[2:], steps, apart, function)
    flat = rank == 1  # one spatial dimension is a picture of one row
    if flat:
        x, w = x.reshape((*x.shape[:2], 1, x.shape[2])), w.reshape((*w.shape[:2], 1, w.shape[2]))
        steps, apart, pads = (1, *steps), (1, *apart), ((0, 0), *pads)
    y = _volume_conv(x, w, steps, pads, apart, groups) if rank == 3 else apply1(Conv(steps, pads, apart, groups), x, w)
    if flat:
        y = y.reshape((*y.shape[:2], y.shape[3]))
    return y if bias is None else y + bias.reshape((1, -1, *(1,) * rank))


@composite
def conv1d(input: Any, weight: Any, bias: Any = None, stride: Any = 1, pad_mode: str = "valid", padding: Any = 0, dilation: Any = 1, groups: int = 1) -> Tensor:
    """1-D convolution: input (N, C, L), weight (K, C/groups, kernel), bias (K,); result (N, K, L')."""
    return _conv("conv1d", 1, input, weight, bias, stride, pad_mode, padding, dilation, groups)


@composite
def conv2d(input: Any, weight: Any, bias: Any = None, stride: Any = 1, pad_mode: str = "valid", padding: Any = 0, dilation: Any = 1, groups: int = 1) -> Tensor:
    """2-D convolution (cross-correlation).

    Args:
        input: (N, C, H, W), float.
        weight: (K, C / groups, kernel height, kernel width), of the input's dtype.
        bias: (K,), or None.
        stride, dilation: an int, or two (height, width).
        pad_mode: 'valid': no padding; 'same': the result has ceil(extent / stride); 'pad': as `padding` says.
        padding: with 'pad': an int, two (height, width), or four (top, bottom, left, right).
        groups: number of groups that the channels are split in.

    Returns:
        Tensor (N, K, H', W').

    Raises:
        TypeError: dtypes differ or are no floats. ValueError: shapes or settings that do not fit.
    """
    return _conv("conv2d", 2, input, weight, bias, stride, pad_mode, padding, dilation, groups)


@composite
def conv3d(input: Any, weight: Any, bias: Any = None, stride: Any = 1, pad_mode: str = "valid", padding: Any = 0, dilation: Any = 1, groups: int = 1) -> Tensor:
    """3-D convolution: input (N, C, D, H, W), weight (K, C/groups, *kernel), bias (K,)."""
    return _conv("conv3d", 3, input, weight, bias, stride, pad_mode, padding, dilation, groups)


def conv3d_transpose(
    inputs: Any, weight: Any, pad_mode: str = "valid", padding: Any = 0, stride: Any = 1, dilation: Any = 1, group: int = 1, output_padding: Any = 0
) -> Tensor:
    """The transpose of a 3-D convolution: inputs (N, K, D, H, W), weight (K, C/group, *kernel); result (N, C, …).

    Args:
        pad_mode: 'valid'; 'same': extents are multiplied by the stride; 'pad': `padding` (an int or six) is cut off at the ends.
        output_padding: in mode 'pad', how much longer each dimension is at its end.

    Raises:
        TypeError: no Tensors of floats of one dtype, settings that are no ints. ValueError: shapes or settings that do not fit.
    """
    function = "conv3d_transpose"
    for name, x in (("inputs", inputs), ("weight", weight)):
        if not isinstance(x, Tensor):
            raise ArgumentTypeError(f"{function}: the {name} must be a Tensor, but is {type(x).__name__}")
    if not inputs.dtype.is_float or inputs.dtype is not weight.dtype:
        raise DTypeError(f"{function}: expected floats of one dtype, but got {inputs.dtype} and {weight.dtype}")
    if inputs.ndim != 5 or weight.ndim != 5 or inputs.shape[1] != weight.shape[0] or group < 1 or inputs.shape[1] % group:
        raise ShapeError(f"{function}: inputs of shape {inputs.shape} and a weight of shape {weight.shape} do not fit in {group} groups")
    steps, spread = each_dimension(stride, 3, function, "stride"), each_dimension(dilation, 3, function, "dilation")
    extra = each_dimension(output_padding, 3, function, "output_padding", 0)
    if pad_mode != "pad" and any(extra):
        raise ArgumentValueError(f"{function}: output_padding must be 0 unless pad_mode is 'pad'")
    kernel, extents = weight.shape[2:], inputs.shape[2:]
    if pad_mode == "same":
        spatial = tuple(n * s for n, s in zip(extents, steps))
    else:
        spatial = tuple((n - 1) * s + (k - 1) * d + 1 for n, s, k, d in zip(extents, steps, kernel, spread))
    pads = choose_padding(pad_mode, padding, spatial, kernel, steps, spread, function)
    if pad_mode == "pad":
        spatial = tuple(n - low - high + more for n, (low, high), more in zip(spatial, pads, extra))
    return conv_transpose(inputs, weight, spatial, steps, pads, spread, group)


@listed
def conv_transpose(x: Tensor, weight: Tensor, spatial: Shape, stride: Shape, padding: Pairs, dilation: Shape, groups: int) -> Tensor:
    """The transpose of a convolution: x (N, K, *S'), weight (K, C/groups, *kernel); result (N, C, *spatial)."""
    if len(spatial) == 3:
        return _volume_conv_transpose(x, weight, spatial, stride, padding, dilation, groups)
    return apply1(ConvInputGrad(stride, padding, dilation, groups, spatial_shape=spatial), weight, x)


# -- volumes as images: the depths that a kernel reaches over count as channels ----------------------------------------------------------
def _volume_conv(x: Tensor, w: Tensor, stride: Shape, padding: Pairs, dilation: Shape, groups: int) -> Tensor:
    low, high = padding[0]
    if low or high:
        x = apply1(Pad((0, 0, low, 0, 0), (0, 0, high, 0, 0), (0,) * 5, 0.0), x)
    slabs = apply1(Windows((2,), (w.shape[2],), (stride[0],), (dilation[0],)), x)
    y = apply1(Conv(stride[1:], padding[1:], dilation[1:], groups), _as_images(slabs, groups), _as_image_weights(w))
    return permuted(reshaped(y, (x.shape[0], slabs.shape[2], *y.shape[1:])), (0, 2, 1, 3, 4))


def _volume_conv_transpose(x: Tensor, w: Tensor, spatial: Shape, stride: Shape, padding: Pairs, dilation: Shape, groups: int) -> Tensor:
    n, _, counts, height, width = x.shape
    low, high = padding[0]
    images = reshaped(permuted(x, (0, 2, 1, 3, 4)), (n * counts, x.shape[1], height, width))
    flat = ConvInputGrad(stride[1:], padding[1:], dilation[1:], groups, spatial_shape=spatial[1:])
    parts = apply1(flat, _as_image_weights(w), images)
    channels, reach = w.shape[1], w.shape[2]
    slabs = permuted(reshaped(parts, (n, counts, groups, reach, channels, *spatial[1:])), (0, 2, 4, 1, 5, 6, 3))
    whole = (n, groups * channels, spatial[0] + low + high, *spatial[1:])
    fold = Fold((2,), (reach,), (stride[0],), (dilation[0],), whole)
    y = apply1(fold, reshaped(slabs, (n, groups * channels, counts, *spatial[1:], reach)))
    return cut(y, 2, low, spatial[0])


def _as_images(slabs: Tensor, groups: int) -> Tensor:
    """(N, C, D', H, W, kernel depth) as (N D', C kernel depth, H, W), the channels of a group next to each other."""
    n, c, counts, height, width, reach = slabs.shape
    apart = reshaped(slabs, (n, groups, c // groups, counts, height, width, reach))
    return reshaped(permuted(apart, (0, 3, 1, 6, 2, 4, 5)), (n * counts, c * reach, height, width))


def _as_image_weights(w: Tensor) -> Tensor:
    """(K, C/groups, *kernel) as (K, kernel depth · C/groups, kernel height, kernel width)."""
    return reshaped(permuted(w, (0, 2, 1, 3, 4)), (w.shape[0], w.shape[2] * w.shape[1], *w.shape[3:]))
