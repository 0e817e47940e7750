"""Max and average pooling over sliding windows, and adaptive pooling."""

from __future__ import annotations

import math
from typing import Any

from graphcell.errors import ArgumentValueError, ShapeError
from graphcell.ir.types import Shape
from graphcell.ops.dispatch import apply1
from graphcell.ops.functional.common import as_tensor, constant
from graphcell.ops.functional.convolution import Pairs, each_dimension, explicit_padding
from graphcell.ops.movement import Pad
from graphcell.ops.pooling import ReduceMaxFirst, Windows
from graphcell.ops.reduction import ReduceSum
from graphcell.tensor import Tensor

__all__ = ["adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_max_pool2d", "avg_pool1d", "avg_pool2d", "max_pool2d"]


def pad_spatial(x: Tensor, pads: Pairs, value: float) -> Tensor:
    """x padded in its last dimensions."""
    if not any(map(any, pads)):
        return x
    lead = (0,) * (x.ndim - len(pads))
    return apply1(Pad((*lead, *(p[0] for p in pads)), (*lead, *(p[1] for p in pads)), (0,) * x.ndim, value), x)


def windows(x: Tensor, kernel: Shape, stride: Shape, dilation: Shape | None = None) -> Tensor:
    """The windows over the last len(kernel) dimensions."""
    rank = len(kernel)
    return apply1(Windows(tuple(range(x.ndim - rank, x.ndim)), kernel, stride, dilation or (1,) * rank), x)


def _last_axes(x: Tensor, rank: int) -> tuple[int, ...]:
    return tuple(range(x.ndim - rank, x.ndim))


def ceil_extra(spatial: Shape, pads: Pairs, kernel: Shape, stride: Shape, dilation: Shape) -> Pairs:
    """More padding at the end, so that a last window that starts inside fits too."""
    extended = []
    for d, (low, high), k, s, dil in zip(spatial, pads, kernel, stride, dilation, strict=True):
        reach = (k - 1) * dil + 1
        count = -(-(d + low + high - reach) // s) + 1
        if (count - 1) * s >= d + low:
            count -= 1
        extended.append((low, max(high, (count - 1) * s + reach - d - low)))
    return tuple(extended)


def max_pool(x: Tensor, kernel: Shape, stride: Shape, pads: Pairs, dilation: Shape) -> Tensor:
    """Maximum over windows of the last dimensions; the gradient goes to the first maximum."""
    w = windows(pad_spatial(x, pads, -math.inf), kernel, stride, dilation)
    return apply1(ReduceMaxFirst(_last_axes(w, len(kernel))), w)


def avg_pool(x: Tensor, kernel: Shape, stride: Shape, pads: Pairs, counted: Pairs | None, divisor: int | None = None) -> Tensor:
    """Mean over windows of the last dimensions. `counted`: the padding that counts as elements (zeros); None: none does."""
    w = windows(pad_spatial(x, pads, 0.0), kernel, stride)
    total = apply1(ReduceSum(_last_axes(w, len(kernel))), w)
    size = math.prod(kernel)
    if divisor:
        return total * (1.0 / divisor)  # type: ignore[no-any-return, operator]
    if counted == pads or not any(map(any, pads)):
        return total * (1.0 / size)  # type: ignore[no-any-return, operator]
    return total * constant(_inverse_counts(x, kernel, stride, pads, counted))  # type: ignore[no-any-return, operator]


def _inverse_counts(x: Tensor, kernel: Shape, stride: Shape, pads: Pairs, counted: Pairs | None) -> Any:
    """1 / (how many elements of each window count)."""
    import numpy as np

    rank = len(kernel)
    ones = np.ones(x.shape[-rank:])
    if counted is not None:
        ones = np.pad(ones, counted, constant_values=1)
        rest = tuple((a - c, b - d) for (a, b), (c, d) in zip(pads, counted, strict=True))
        ones = np.pad(ones, rest)
    else:
        ones = np.pad(ones, pads)
    view = Windows(tuple(range(rank)), kernel, stride, (1,) * rank).eval(ones)
    return (1.0 / np.maximum(view.sum(tuple(range(rank, 2 * rank))), 1)).astype(x.dtype.np_type)


def _check_rank(function: str, x: Tensor, ranks: tuple[int, ...]) -> None:
    if x.ndim not in ranks:
        raise ShapeError(f"{function}: the input must have {' or '.join(map(str, ranks))} dimensions, but has shape {x.shape}")


def max_pool2d(x: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, return_indices: bool = False, ceil_mode: bool = False) -> Any:
    """Maximum over windows of the last two dimensions of x (N, C, H, W).

    With `return_indices` also the place (row-major in H × W, int64) of each maximum.

    Raises:
        ValueError: shapes or settings that do not fit; padding over half of the kernel.
    """
    t = as_tensor(x, "x", "max_pool2d")
    _check_rank("max_pool2d", t, (3, 4))
    kernel = each_dimension(kernel_size, 2, "max_pool2d", "kernel_size")
    step = kernel if stride is None else each_dimension(stride, 2, "max_pool2d", "stride")
    apart = each_dimension(dilation, 2, "max_pool2d", "dilation")
    pads = explicit_padding(padding, 2, "max_pool2d")
    if any(p[0] > k // 2 for p, k in zip(pads, kernel, strict=True)):
        raise ArgumentValueError(f"max_pool2d: padding must be at most half of the kernel size, but got {padding} and {kernel_size}")
    if ceil_mode:
        pads = ceil_extra(t.shape[-2:], pads, kernel, step, apart)
    y = max_pool(t, kernel, step, pads, apart)
    return (y, _places(t, kernel, step, pads, apart)) if return_indices else y


def _places(x: Tensor, kernel: Shape, stride: Shape, pads: Pairs, dilation: Shape) -> Tensor:
    """Row-major place in the unpadded image of the first maximum of each window."""
    from graphcell import dtype as dt
    from graphcell.ops.creation import Iota
    from graphcell.ops.reduction import ArgMax

    w = windows(pad_spatial(x, pads, -math.inf), kernel, stride, dilation)
    tap = apply1(ArgMax(w.ndim - 2), w.reshape((*w.shape[:-2], -1)))  # type: ignore[attr-defined]
    rows, columns = (apply1(Iota(tap.shape, tap.ndim - 2 + k, dt.int64)) for k in range(2))
    row = rows * stride[0] - pads[0][0] + tap // kernel[1] * dilation[0]  # type: ignore[operator]
    column = columns * stride[1] - pads[1][0] + tap % kernel[1] * dilation[1]  # type: ignore[operator]
    return row * x.shape[-1] + column  # type: ignore[no-any-return, operator]


def avg_pool2d(input_x: Any, kernel_size: Any = 1, stride: Any = 1, padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True,
               divisor_override: int = 0) -> Tensor:
    """Mean over windows of the last two dimensions of input_x (N, C, H, W)."""
    x = as_tensor(input_x, "input_x", "avg_pool2d")
    _check_rank("avg_pool2d", x, (3, 4))
    return _avg("avg_pool2d", 2, x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def avg_pool1d(input_x: Any, kernel_size: Any = 1, stride: Any = 1, padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True) -> Tensor:
    """Mean over windows of the last dimension of input_x (N, C, L)."""
    x = as_tensor(input_x, "input_x", "avg_pool1d")
    _check_rank("avg_pool1d", x, (2, 3))
    return _avg("avg_pool1d", 1, x, kernel_size, stride, padding, ceil_mode, count_include_pad, 0)


def _avg(function: str, rank: int, x: Tensor, kernel_size: Any, stride: Any, padding: Any, ceil_mode: bool, include: bool, divisor: int) -> Tensor:
    kernel = each_dimension(kernel_size, rank, function, "kernel_size")
    step = each_dimension(stride, rank, function, "stride")
    pads = explicit_padding(padding, rank, function)
    given = pads
    if ceil_mode:
        pads = ceil_extra(x.shape[-rank:], pads, kernel, step, (1,) * rank)
    return avg_pool(x, kernel, step, pads, given if include else None, divisor)


def _adaptive_spans(extent: int, out: int) -> list[tuple[int, int]]:
    return [(k * extent // out, -(-(k + 1) * extent // out)) for k in range(out)]


def _adaptive(function: str, x: Tensor, output_size: Any, rank: int, largest: bool) -> Tensor:
    from graphcell.ops.functional.movement import stack

    sizes = output_size if isinstance(output_size, (tuple, list)) else (output_size,) * rank
    spatial = x.shape[-rank:]
    out = tuple(d if s is None else s for s, d in zip(sizes, spatial, strict=True))
    if any(not isinstance(s, int) or s < 1 for s in out):
        raise ArgumentValueError(f"{function}: output_size must hold positive ints or None, but got {output_size!r}")
    if all(d % s == 0 for d, s in zip(spatial, out, strict=True)):
        kernel = tuple(d // s for d, s in zip(spatial, out, strict=True))
        none = ((0, 0),) * rank
        return max_pool(x, kernel, kernel, none, (1,) * rank) if largest else avg_pool(x, kernel, kernel, none, none)
    y = x  # windows of unequal size: one dimension after the other
    for k in range(rank):
        axis = x.ndim - rank + k
        parts = []
        for low, high in _adaptive_spans(spatial[k], out[k]):
            cut = y[(*(slice(None),) * axis, slice(low, high))]  # type: ignore[index]
            parts.append(apply1(ReduceMaxFirst((axis,)), cut) if largest else apply1(ReduceSum((axis,)), cut) * (1.0 / (high - low)))  # type: ignore[operator]
        y = stack(parts, axis)
    return y


def adaptive_avg_pool1d(input: Any, output_size: int) -> Tensor:
    """Mean over windows chosen so that `output_size` of them cover the last dimension."""
    return _adaptive("adaptive_avg_pool1d", as_tensor(input, "input", "adaptive_avg_pool1d"), output_size, 1, False)


def adaptive_avg_pool2d(input: Any, output_size: Any) -> Tensor:
    """Mean over windows chosen so that `output_size` (int, or two ints or None) of them cover the last two dimensions."""
    return _adaptive("adaptive_avg_pool2d", as_tensor(input, "input", "adaptive_avg_pool2d"), output_size, 2, False)


def adaptive_max_pool2d(input: Any, output_size: Any) -> Tensor:
    """Maximum over windows chosen so that `output_size` (int, or two ints or None) of them cover the last two dimensions."""
    return _adaptive("adaptive_max_pool2d", as_tensor(input, "input", "adaptive_max_pool2d"), output_size, 2, True)


