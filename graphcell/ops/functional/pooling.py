"""Max, average and power-mean pooling over sliding windows, adaptive pooling, windows as columns (`unfold`, `fold`), and unpooling.

Windows slide over the last dimensions of (N, C, …) or (C, …). Compositions of the `windows` view and reductions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from graphcell import dtype as dt
from graphcell.errors import ArgumentTypeError, ArgumentValueError, DTypeError, ShapeError
from graphcell.ir.types import Shape
from graphcell.ops.creation import Iota, number_of
from graphcell.ops.dispatch import apply1
from graphcell.ops.functional.common import as_tensor, cast, constant, full
from graphcell.ops.functional.convolution import Pairs, each_dimension, explicit_padding
from graphcell.ops.functional.reductions import wide
from graphcell.ops.kernels import composite
from graphcell.ops.movement import Pad
from graphcell.ops.pooling import Fold, ReduceMaxFirst, Windows
from graphcell.ops.reduction import ArgMax, ReduceSum
from graphcell.tensor import Tensor

__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d",
    "adaptive_max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d", "fold", "lp_pool1d", "lp_pool2d", "max_pool2d", "max_pool3d",
    "max_unpool1d", "max_unpool2d", "max_unpool3d", "unfold",
]  # fmt: skip


# -- windows -------------------------------------------------------------------------------------------------------------
def pad_spatial(x: Tensor, pads: Pairs, value: float) -> Tensor:
    """x padded in its last dimensions."""
    if not any(map(any, pads)):
        return x
    lead = (0,) * (x.ndim - len(pads))
    low, high = (*lead, *(p[0] for p in pads)), (*lead, *(p[1] for p in pads))
    return apply1(Pad(low, high, (0,) * x.ndim, number_of(value, x.dtype)), x)


def windows(x: Tensor, kernel: Shape, stride: Shape, dilation: Shape | None = None) -> Tensor:
    """The windows over the last len(kernel) dimensions."""
    return apply1(Windows(_last_axes(x, len(kernel)), kernel, stride, dilation or (1,) * len(kernel)), x)


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


@composite
def max_pool(x: Tensor, kernel: Shape, stride: Shape, pads: Pairs, dilation: Shape) -> Tensor:
    """Maximum over windows of the last dimensions; the gradient goes to the first maximum."""
    if len(kernel) == 1 and x.ndim == 3:
        _check_fit(x, kernel, stride, pads, dilation)
        return _of_one_row(lambda image: max_pool(image, (1, *kernel), (1, *stride), ((0, 0), *pads), (1, *dilation)), x)
    w = windows(pad_spatial(x, pads, _lowest(x.dtype)), kernel, stride, dilation)
    return apply1(ReduceMaxFirst(_last_axes(w, len(kernel))), w)


def _check_fit(x: Tensor, kernel: Shape, stride: Shape, pads: Pairs, dilation: Shape) -> None:
    """Refuses a window that is larger than the padded sequence, in these terms."""
    Windows((2,), kernel, stride, dilation).infer(x.ir_type.with_shape((*x.shape[:2], x.shape[2] + sum(pads[0]))))


def _of_one_row(pool: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Pooling of sequences (N, C, L) as of images of one row, which convolutions of sequences are, too."""
    image: Any = x.reshape((*x.shape[:2], 1, x.shape[2]))
    y: Any = pool(image)
    pooled: Tensor = y.reshape((*y.shape[:2], y.shape[3]))
    return pooled


def _lowest(dtype: dt.DType) -> float:
    return -math.inf if dtype.is_float else int(np.iinfo(dtype.np_type).min)


@composite
def max_places(x: Tensor, kernel: Shape, stride: Shape, pads: Pairs, dilation: Shape) -> Any:
    """Row-major place, int64, of the first maximum of each window in the unpadded last dimensions."""
    rank = len(kernel)
    w: Any = windows(pad_spatial(x, pads, _lowest(x.dtype)), kernel, stride, dilation)
    tap: Any = apply1(ArgMax(w.ndim - rank), w.reshape((*w.shape[:-rank], math.prod(kernel))))
    place: Any = None
    inner = math.prod(kernel)
    for k in range(rank):
        inner //= kernel[k]
        count: Any = apply1(Iota(tap.shape, tap.ndim - rank + k, dt.int64))
        position = count * stride[k] - pads[k][0] + tap // inner % kernel[k] * dilation[k]
        position = position.maximum(0).minimum(x.shape[x.ndim - rank + k] - 1)  # where all are lowest, padding is the first maximum
        place = position if place is None else place * x.shape[x.ndim - rank + k] + position
    return place


@composite
def avg_pool(
    x: Tensor, kernel: Shape, stride: Shape, pads: Pairs, counted: Pairs | None, divisor: int | None = None
) -> Tensor:
    """Mean over windows of the last dimensions. `counted`: the padding that counts as elements (zeros); None: none does."""
    if len(kernel) == 1 and x.ndim == 3:
        _check_fit(x, kernel, stride, pads, (1,))
        row = None if counted is None else ((0, 0), *counted)
        return _of_one_row(lambda image: avg_pool(image, (1, *kernel), (1, *stride), ((0, 0), *pads), row, divisor), x)
    w = wide(windows(pad_spatial(x, pads, 0.0), kernel, stride))
    total: Any = apply1(ReduceSum(_last_axes(w, len(kernel))), w)
    if divisor:
        mean = total * (1.0 / divisor)
    elif counted == pads or not any(map(any, pads)):
        mean = total * (1.0 / math.prod(kernel))
    else:
        mean = total * cast(constant(_inverse_counts(x, kernel, stride, pads, counted)), w.dtype)
    return cast(mean, x.dtype)


def _inverse_counts(x: Tensor, kernel: Shape, stride: Shape, pads: Pairs, counted: Pairs | None) -> Any:
    """1 / (how many elements of each window count)."""
    rank = len(kernel)
    ones = np.ones(x.shape[-rank:])
    if counted is not None:
        ones = np.pad(ones, counted, constant_values=1)
        pads = tuple((a - c, b - d) for (a, b), (c, d) in zip(pads, counted, strict=True))
    view = Windows(tuple(range(rank)), kernel, stride, (1,) * rank).eval(np.pad(ones, pads))
    return (1.0 / np.maximum(view.sum(tuple(range(rank, 2 * rank))), 1)).astype(x.dtype.np_type)


def windowed_operand(function: str, x: Any, rank: int) -> Tensor:
    """The input: (N, C, …) or (C, …).

    Raises:
        TypeError: no Tensor. ValueError: another number of dimensions.
    """
    if not isinstance(x, Tensor):
        raise ArgumentTypeError(f"{function}: the input must be a Tensor, but is {type(x).__name__}")
    if x.ndim not in (rank + 1, rank + 2):
        raise ShapeError(f"{function}: the input must have {rank + 1} or {rank + 2} dimensions, but has shape {x.shape}")
    return x


# -- max -----------------------------------------------------------------------------------------------------------------
@composite
def max_pool2d(
    x: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, return_indices: bool = False,
    ceil_mode: bool = False,
) -> Any:  # fmt: skip
    """Maximum over windows of the last two dimensions of x (N, C, H, W) or (C, H, W).

    Args:
        kernel_size, dilation: an int, or two (height, width).
        stride: the same; default: the kernel's size.
        padding: the same; at most half of the kernel. Padded places never win.
        return_indices: also give the place (row-major in H × W, int64) of each maximum.
        ceil_mode: a last, partial window counts.

    Raises:
        TypeError, ValueError: shapes or settings that do not fit.
    """
    return _max_pool("max_pool2d", 2, x, kernel_size, stride, padding, dilation, return_indices, ceil_mode)


@composite
def max_pool3d(
    x: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:  # fmt: skip
    """Maximum over windows of the last three dimensions of x (N, C, D, H, W) or (C, D, H, W); settings as in `max_pool2d`."""
    return _max_pool("max_pool3d", 3, x, kernel_size, stride, padding, dilation, return_indices, ceil_mode)


def _max_pool(
    function: str, rank: int, x: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any, return_indices: bool,
    ceil_mode: bool,
) -> Any:  # fmt: skip
    t = windowed_operand(function, x, rank)
    kernel = each_dimension(kernel_size, rank, function, "kernel_size")
    step = kernel if stride is None else each_dimension(stride, rank, function, "stride")
    apart = each_dimension(dilation, rank, function, "dilation")
    pads = explicit_padding(padding, rank, function)
    if any(max(p) > k // 2 for p, k in zip(pads, kernel, strict=True)):
        raise ArgumentValueError(
            f"{function}: padding must be at most half of the kernel size, but got {padding} and {kernel_size}"
        )
    if ceil_mode:
        pads = ceil_extra(t.shape[-rank:], pads, kernel, step, apart)
    y = max_pool(t, kernel, step, pads, apart)
    return (y, max_places(t, kernel, step, pads, apart)) if return_indices else y


# -- mean ----------------------------------------------------------------------------------------------------------------
@composite
def avg_pool1d(
    input_x: Any, kernel_size: Any = 1, stride: Any = 1, padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:  # fmt: skip
    """Mean over windows of the last dimension of input_x (N, C, L) or (C, L); settings as in `avg_pool2d`."""
    return _avg_pool("avg_pool1d", 1, input_x, kernel_size, stride, padding, ceil_mode, count_include_pad, 0)


@composite
def avg_pool2d(
    input_x: Any, kernel_size: Any = 1, stride: Any = 1, padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int = 0,
) -> Tensor:  # fmt: skip
    """Mean over windows of the last two dimensions of input_x (N, C, H, W) or (C, H, W).

    Args:
        kernel_size, stride: an int, or two (height, width).
        padding: an int, two, or four (top, bottom, left, right) zeros; at most half of the kernel.
        ceil_mode: a last, partial window counts.
        count_include_pad: the zeros of `padding` count as elements.
        divisor_override: if not 0, divide by this instead of the number of elements.

    Raises:
        TypeError, ValueError: shapes or settings that do not fit.
    """
    return _avg_pool(
        "avg_pool2d", 2, input_x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    )


@composite
def avg_pool3d(
    input_x: Any, kernel_size: Any = 1, stride: Any = 1, padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int = 0,
) -> Tensor:  # fmt: skip
    """Mean over windows of the last three dimensions of input_x (N, C, D, H, W); settings as in `avg_pool2d`."""
    return _avg_pool(
        "avg_pool3d", 3, input_x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    )


def _avg_pool(
    function: str, rank: int, input_x: Any, kernel_size: Any, stride: Any, padding: Any, ceil_mode: bool, include: bool,
    divisor: int,
) -> Tensor:  # fmt: skip
    x = windowed_operand(function, input_x, rank)
    if not x.dtype.is_float:
        raise DTypeError(f"{function}: the input must be a Tensor of floats, but is {x.dtype}")
    kernel = each_dimension(kernel_size, rank, function, "kernel_size")
    step = each_dimension(stride, rank, function, "stride")
    pads = explicit_padding(padding, rank, function)
    if any(max(p) > k // 2 for p, k in zip(pads, kernel, strict=True)):
        raise ArgumentValueError(
            f"{function}: padding must be at most half of the kernel size, but got {padding} and {kernel_size}"
        )
    if not isinstance(divisor, int) or divisor < 0:
        raise ArgumentValueError(f"{function}: divisor_override must be an int of at least 0, but got {divisor!r}")
    used = ceil_extra(x.shape[-rank:], pads, kernel, step, (1,) * rank) if ceil_mode else pads
    return avg_pool(x, kernel, step, used, pads if include else None, divisor)


# -- adaptive ------------------------------------------------------------------------------------------------------------
def _adaptive_sizes(function: str, x: Tensor, output_size: Any, rank: int) -> Shape:
    sizes = output_size if isinstance(output_size, (tuple, list)) else (output_size,) * rank
    if len(sizes) != rank:
        raise ArgumentValueError(f"{function}: output_size must hold {rank} ints or None, but got {output_size!r}")
    if any(s is not None and (not isinstance(s, int) or isinstance(s, bool)) for s in sizes):
        raise ArgumentTypeError(f"{function}: output_size must hold ints or None, but got {output_size!r}")
    out = tuple(d if s is None or s == -1 else s for s, d in zip(sizes, x.shape[-rank:], strict=True))
    if min(out) < 1:
        raise ArgumentValueError(f"{function}: output_size must hold positive ints or None, but got {output_size!r}")
    return out


def _spans(extent: int, out: int) -> list[tuple[int, int]]:
    """Where the windows begin and end."""
    return [(k * extent // out, -(-(k + 1) * extent // out)) for k in range(out)]


def _adaptive(function: str, x: Tensor, output_size: Any, rank: int, largest: bool) -> Tensor:
    from graphcell.ops.functional.movement import stack

    out = _adaptive_sizes(function, x, output_size, rank)
    spatial = x.shape[-rank:]
    if all(d % s == 0 for d, s in zip(spatial, out, strict=True)):
        kernel = tuple(d // s for d, s in zip(spatial, out, strict=True))
        none = ((0, 0),) * rank
        return max_pool(x, kernel, kernel, none, (1,) * rank) if largest else avg_pool(x, kernel, kernel, none, none)
    y: Any = x if largest else wide(x)  # windows of unequal size: one dimension after the other
    for k in range(rank):
        axis = x.ndim - rank + k
        cuts = [(y[(*(slice(None),) * axis, slice(low, high))], high - low) for low, high in _spans(spatial[k], out[k])]
        reduce = ReduceMaxFirst((axis,)) if largest else ReduceSum((axis,))
        parts: list[Any] = [apply1(reduce, cut) for cut, _ in cuts]
        y = stack(parts if largest else [p * (1.0 / n) for p, (_, n) in zip(parts, cuts, strict=True)], axis)
    return cast(y, x.dtype)


def _adaptive_places(function: str, x: Tensor, output_size: Any, rank: int, index: dt.DType) -> Tensor:
    """Row-major places of the maxima: one dimension after the other, the last first, each carrying the places found so far."""
    from graphcell.ops.functional.gathering import gather_elements
    from graphcell.ops.functional.movement import concat

    out = _adaptive_sizes(function, x, output_size, rank)
    y: Any = x
    places: Any = apply1(Iota((x.size,), 0, dt.int64))
    places = places.reshape(x.shape) % math.prod(x.shape[-rank:])
    for k in reversed(range(rank)):
        axis = x.ndim - rank + k
        chosen = []
        for low, high in _spans(x.shape[axis], out[k]):
            cut = y[(*(slice(None),) * axis, slice(low, high))]
            chosen.append(apply1(ArgMax(axis), cut).expand_dims(axis) + low)
        where = concat(chosen, axis)
        y, places = gather_elements(y, axis, where), gather_elements(places, axis, where)
    return cast(places, index)


@composite
def adaptive_avg_pool1d(input: Any, output_size: Any) -> Tensor:
    """Mean over windows chosen so that `output_size` of them cover the last dimension of (N, C, L) or (C, L)."""
    return _adaptive("adaptive_avg_pool1d", windowed_operand("adaptive_avg_pool1d", input, 1), output_size, 1, False)


@composite
def adaptive_avg_pool2d(input: Any, output_size: Any) -> Tensor:
    """Mean over windows chosen so that `output_size` of them cover the last two dimensions of (N, C, H, W) or (C, H, W).

    Args:
        output_size: an int, or two ints or None (as many as there are elements).

    Raises:
        TypeError, ValueError: an output size or a shape that does not fit.
    """
    return _adaptive("adaptive_avg_pool2d", windowed_operand("adaptive_avg_pool2d", input, 2), output_size, 2, False)


@composite
def adaptive_avg_pool3d(input: Any, output_size: Any) -> Tensor:
    """Mean over windows chosen so that `output_size` (an int, or three ints or None) of them cover the last three dimensions."""
    return _adaptive("adaptive_avg_pool3d", windowed_operand("adaptive_avg_pool3d", input, 3), output_size, 3, False)


def adaptive_max_pool1d(input: Any, output_size: Any) -> Tensor:
    """Maximum over windows chosen so that `output_size` of them cover the last dimension of (N, C, L) or (C, L)."""
    return _adaptive("adaptive_max_pool1d", windowed_operand("adaptive_max_pool1d", input, 1), output_size, 1, True)


def adaptive_max_pool2d(input: Any, output_size: Any, return_indices: bool = False) -> Any:
    """Maximum over windows chosen so that `output_size` (an int, or two ints or None) of them cover the last two dimensions.

    With `return_indices` also the place (row-major in H × W, int64) of each maximum.
    """
    x = windowed_operand("adaptive_max_pool2d", input, 2)
    y = _adaptive("adaptive_max_pool2d", x, output_size, 2, True)
    return (y, _adaptive_places("adaptive_max_pool2d", x, output_size, 2, dt.int64)) if return_indices else y


def adaptive_max_pool3d(input: Any, output_size: Any, return_indices: bool = False) -> Any:
    """Maximum over windows chosen so that `output_size` (an int, or three ints or None) of them cover the last three dimensions.

    With `return_indices` also the place (row-major in D × H × W, int32) of each maximum.
    """
    x = windowed_operand("adaptive_max_pool3d", input, 3)
    y = _adaptive("adaptive_max_pool3d", x, output_size, 3, True)
    return (y, _adaptive_places("adaptive_max_pool3d", x, output_size, 3, dt.int32)) if return_indices else y


# -- power mean ----------------------------------------------------------------------------------------------------------
@composite
def lp_pool1d(x: Any, norm_type: Any, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> Tensor:
    """(sum of x ** norm_type) ** (1 / norm_type) over windows of the last dimension of (N, C, L) or (C, L)."""
    return _lp_pool("lp_pool1d", 1, x, norm_type, kernel_size, stride, ceil_mode)


@composite
def lp_pool2d(x: Any, norm_type: Any, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> Tensor:
    """(sum of x ** norm_type) ** (1 / norm_type) over windows of the last two dimensions of (N, C, H, W).

    Raises:
        TypeError, ValueError: a norm_type of 0, shapes or settings that do not fit.
    """
    return _lp_pool("lp_pool2d", 2, x, norm_type, kernel_size, stride, ceil_mode)


def _lp_pool(function: str, rank: int, x: Any, norm_type: Any, kernel_size: Any, stride: Any, ceil_mode: bool) -> Tensor:
    t: Any = windowed_operand(function, x, rank)
    if not isinstance(norm_type, (int, float)) or isinstance(norm_type, bool):
        raise ArgumentTypeError(f"{function}: norm_type must be a number, but is {type(norm_type).__name__}")
    if norm_type == 0:
        raise ArgumentValueError(f"{function}: norm_type must not be 0")
    kernel = each_dimension(kernel_size, rank, function, "kernel_size")
    step = kernel if stride is None else each_dimension(stride, rank, function, "stride")
    pads: Pairs = ((0, 0),) * rank
    if ceil_mode:
        pads = ceil_extra(t.shape[-rank:], pads, kernel, step, (1,) * rank)
    t = t if t.dtype.is_float else cast(t, dt.float32)  # means of integers would be rounded
    mean: Any = avg_pool(t**norm_type, kernel, step, pads, None)  # of the elements that there are in a partial window
    return (mean * math.prod(kernel)) ** (1.0 / norm_type)  # type: ignore[no-any-return]


# -- windows as columns --------------------------------------------------------------------------------------------------
def unfold(input: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Tensor:
    """The windows over (N, C, H, W) as columns: (N, C * kernel elements, number of windows).

    Raises:
        TypeError, ValueError: shapes or settings that do not fit.
    """
    x = as_tensor(input, "input", "unfold")
    if x.ndim != 4:
        raise ShapeError(f"unfold: the input must have 4 dimensions, but has shape {x.shape}")
    kernel, step, apart, pads = _window_settings("unfold", kernel_size, stride, dilation, padding)
    w: Any = windows(pad_spatial(x, pads, 0.0), kernel, step, apart)
    n, c, rows, columns = w.shape[:4]
    return w.transpose(0, 1, 4, 5, 2, 3).reshape((n, c * math.prod(kernel), rows * columns))  # type: ignore[no-any-return]


def fold(input: Any, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Tensor:
    """The transpose of `unfold`: columns (N, C * kernel elements, windows) added up to (N, C, *output_size).

    Args:
        output_size: an int or two ints (or an int Tensor of them).

    Raises:
        TypeError, ValueError: shapes or settings that do not fit.
    """
    x: Any = as_tensor(input, "input", "fold")
    if isinstance(output_size, Tensor):
        output_size = tuple(output_size.tolist())
    size = each_dimension(output_size, 2, "fold", "output_size")
    kernel, step, apart, pads = _window_settings("fold", kernel_size, stride, dilation, padding)
    taps = math.prod(kernel)
    padded = tuple(d + a + b for d, (a, b) in zip(size, pads, strict=True))
    counts = Windows((0, 1), kernel, step, apart).counts(padded)
    if x.ndim == 4:  # (N, C, kernel elements, windows)
        x = x.reshape((x.shape[0], x.shape[1] * x.shape[2], x.shape[3]))
    if x.ndim != 3 or x.shape[1] % taps or x.shape[2] != math.prod(counts):
        want = f"(N, C * {taps}, {math.prod(counts)})"
        raise ShapeError(f"fold: the input must have shape {want}, but has {x.shape}")
    n, c = x.shape[0], x.shape[1] // taps
    w = x.reshape((n, c, *kernel, *counts)).transpose(0, 1, 4, 5, 2, 3)
    y: Any = apply1(Fold((2, 3), kernel, step, apart, (n, c, *padded)), w)
    (top, _), (left, _) = pads
    return y[:, :, top : top + size[0], left : left + size[1]]  # type: ignore[no-any-return]


def _window_settings(
    function: str, kernel_size: Any, stride: Any, dilation: Any, padding: Any
) -> tuple[Shape, Shape, Shape, Pairs]:
    kernel = each_dimension(kernel_size, 2, function, "kernel_size")
    step = each_dimension(stride, 2, function, "stride")
    apart = each_dimension(dilation, 2, function, "dilation")
    return kernel, step, apart, explicit_padding(padding, 2, function)


# -- unpooling -----------------------------------------------------------------------------------------------------------
def max_unpool1d(
    x: Any, indices: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None
) -> Tensor:
    """Puts the maxima x (N, C, L) back to the places `indices`, in zeros; settings as in `max_unpool2d`."""
    return _max_unpool("max_unpool1d", 1, x, indices, kernel_size, stride, padding, output_size)


def max_unpool2d(
    x: Any, indices: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None
) -> Tensor:
    """Puts the maxima x (N, C, H, W) back to the places `indices` (row-major in the output's image), in zeros.

    Args:
        kernel_size, stride, padding: those of the pooling; stride None: the kernel's size.
        output_size: the shape of the result, whole or of the last dimensions; default: (extent - 1) * stride - 2 padding + kernel.

    Raises:
        TypeError, ValueError: shapes or settings that do not fit.
    """
    return _max_unpool("max_unpool2d", 2, x, indices, kernel_size, stride, padding, output_size)


def max_unpool3d(
    x: Any, indices: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None
) -> Tensor:
    """Puts the maxima x (N, C, D, H, W) back to the places `indices`, in zeros; settings as in `max_unpool2d`."""
    return _max_unpool("max_unpool3d", 3, x, indices, kernel_size, stride, padding, output_size)


def _max_unpool(
    function: str, rank: int, x: Any, indices: Any, kernel_size: Any, stride: Any, padding: Any, output_size: Any
) -> Tensor:
    from graphcell.ops.functional.gathering import tensor_scatter_elements

    t: Any = windowed_operand(function, x, rank)
    places: Any = as_tensor(indices, "indices", function)
    if places.shape != t.shape:
        raise ShapeError(f"{function}: x has shape {t.shape}, but the indices have {places.shape}")
    if not places.dtype.is_integer:
        raise DTypeError(f"{function}: the indices must be integers, but are {places.dtype}")
    kernel = each_dimension(kernel_size, rank, function, "kernel_size")
    step = kernel if stride in (None, 0) else each_dimension(stride, rank, function, "stride")
    pads = explicit_padding(padding, rank, function)
    spatial = tuple(
        (d - 1) * s - a - b + k for d, s, (a, b), k in zip(t.shape[-rank:], step, pads, kernel, strict=True)
    )
    if output_size:
        spatial = tuple(output_size)[-rank:]
    lead = t.shape[:-rank]
    rows, count = math.prod(lead), math.prod(spatial)
    empty = full((rows, count), 0, t.dtype)
    filled = tensor_scatter_elements(empty, places.reshape((rows, -1)), t.reshape((rows, -1)), 1)
    whole: Tensor = filled.reshape((*lead, *spatial))
    return whole
