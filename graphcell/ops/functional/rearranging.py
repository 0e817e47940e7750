"""Public functions that reorder, repeat, pad or mask elements; compositions of views, pads and concatenations.

Enters: Tensors and static numbers. Leaves: new Tensors of the same dtype. Refuses: what does not fit, with the shapes in the message.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from graphcell.errors import ArgumentTypeError, ArgumentValueError, DTypeError, ShapeError
from graphcell.ops.creation import Iota, number_of
from graphcell.ops.dispatch import apply1
from graphcell.ops.functional import common
from graphcell.ops.functional.arithmetic import sub
from graphcell.ops.functional.axes import int_of, int_or_ints, ints_of, normalize_axes, normalize_axis, plain_number, tensor_of, tensors_of
from graphcell.ops.functional.common import NUMBER_TYPES, broadcast, constant, full, select
from graphcell.ops.functional.comparison import less
from graphcell.ops.functional.indexing import check_range
from graphcell.ops.functional.masking import known_values
from graphcell.ops.functional.movement import cut, joined, permuted, reshaped
from graphcell.ops.indexing import Gather, GatherElements
from graphcell.ops.movement import Pad
from graphcell.tensor import Tensor

__all__ = [
    "cartesian_prod", "channel_shuffle", "combinations", "diff", "flip", "fliplr", "flipud", "meshgrid", "mirror_pad", "pad", "padding",
    "pixel_shuffle", "pixel_unshuffle", "repeat_elements", "repeat_interleave", "reverse", "reverse_sequence", "roll", "rot90", "sequence_mask",
    "tile",
]  # fmt: skip


# -- reversing, rolling, repeating -------------------------------------------------------------------------------------------
def flipped(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    """`x` with `axes` reversed."""
    return apply1(common.reverse(x.shape, axes), x) if axes else x


def flip(input: Tensor, dims: Any) -> Tensor:
    """The elements in reverse order along `dims`, a tuple or list of ints.

    Raises:
        TypeError: dims are no tuple of ints. ValueError: out of range or repeated.
    """
    x = tensor_of(input, "flip")
    axes = ints_of(dims, "flip", "dims")
    return flipped(x, normalize_axes(axes, x.ndim, "flip", "dims") if axes else ())


def reverse(x: Tensor, axis: Any) -> Tensor:
    """The elements in reverse order along `axis`, a tuple or list of ints. Errors: as `flip`."""
    return flip(x, axis)


def fliplr(input: Tensor) -> Tensor:
    """The columns (dimension 1) in reverse order."""
    return flip(input, (1,))


def flipud(input: Tensor) -> Tensor:
    """The rows (dimension 0) in reverse order."""
    return flip(input, (0,))


def roll(input: Tensor, shifts: Any, dims: Any = None) -> Tensor:
    """The elements moved by `shifts` along `dims`; what leaves at one end enters at the other. Without dims: the flattened Tensor.

    Raises:
        TypeError: no ints. ValueError: as many shifts as dims are needed; dims out of range.
    """
    x = tensor_of(input, "roll")
    by = int_or_ints(shifts, "roll", "shifts")
    if dims is None or (isinstance(dims, (tuple, list)) and not dims):
        if len(by) != 1:
            raise ArgumentValueError(f"roll: {len(by)} shifts need as many dims")
        return reshaped(_rolled(reshaped(x, (x.size,)), by[0], 0), x.shape)
    axes = [normalize_axis(a, x.ndim, "roll", "dims") for a in int_or_ints(dims, "roll", "dims")]
    if len(by) != len(axes):
        raise ArgumentValueError(f"roll: shifts {by} and dims {dims} must be as many")
    for shift, axis in zip(by, axes, strict=True):
        x = _rolled(x, shift, axis)
    return reshaped(x, x.shape)  # never the operand itself, which may be a Parameter that changes


def _rolled(x: Tensor, shift: int, axis: int) -> Tensor:
    extent = x.shape[axis]
    shift = shift % extent if extent else 0
    return joined((cut(x, axis, extent - shift, shift), cut(x, axis, 0, extent - shift)), axis) if shift else x


def rot90(input: Tensor, k: int, dims: Any) -> Tensor:
    """Turned `k` times by 90 degrees in the plane of two `dims`, from the first towards the second.

    Raises:
        TypeError: no ints. ValueError: not two different dimensions.
    """
    x, times = tensor_of(input, "rot90"), int_of(k, "rot90", "k") % 4
    axes = [normalize_axis(a, x.ndim, "rot90", "dims") for a in ints_of(dims, "rot90", "dims")]
    if len(axes) != 2 or axes[0] == axes[1]:
        raise ArgumentValueError(f"rot90: dims must be two different dimensions, but are {dims}")
    a, b = axes
    if times == 2:
        return flipped(x, (a, b))
    perm = list(range(x.ndim))
    perm[a], perm[b] = b, a
    if times == 1:
        return permuted(flipped(x, (b,)), tuple(perm))
    return flipped(permuted(x, tuple(perm)), (b,)) if times == 3 else x


def tile(input: Tensor, dims: Any) -> Tensor:
    """`input` repeated `dims[k]` times along dimension k; the shorter of shape and dims is filled with ones in front.

    Raises:
        TypeError: dims is no tuple of ints. ValueError: a negative count.
    """
    x = tensor_of(input, "tile")
    times = ints_of(dims, "tile", "dims")
    if min(times, default=0) < 0:
        raise ArgumentValueError(f"tile: dims must not be negative, but are {times}")
    rank = max(x.ndim, len(times))
    shape, counts = (1,) * (rank - x.ndim) + x.shape, (1,) * (rank - len(times)) + times
    if all(n == 1 for n in counts):
        return reshaped(x, shape)
    spread = tuple(itertools.chain(*((n, d) for n, d in zip(counts, shape, strict=True))))
    column = tuple(itertools.chain(*((1, d) for d in shape)))
    return reshaped(broadcast(reshaped(x, column), spread), tuple(n * d for n, d in zip(counts, shape, strict=True)))


def repeat_interleave(input: Tensor, repeats: Any, axis: int | None = None) -> Tensor:
    """Each entry along `axis` (of the flattened Tensor by default) repeated: all by one number, or each by its own.

    Raises:
        TypeError: repeats is no int, list, tuple or Tensor of ints. ValueError: a negative count, or not one for each entry.
        RuntimeError: a Tensor of counts that is not known while the graph is being built.
    """
    x = tensor_of(input, "repeat_interleave")
    if axis is None:
        x, axis = reshaped(x, (x.size,)), 0
    k = normalize_axis(axis, x.ndim, "repeat_interleave")
    if isinstance(repeats, Tensor):
        if not repeats.dtype.is_integer:
            raise DTypeError(f"repeat_interleave: repeats must hold integers, but is {repeats.dtype}")
        counts = tuple(int(n) for n in known_values(repeats, "repeat_interleave").reshape(-1))
    else:
        counts = int_or_ints(repeats, "repeat_interleave", "repeats")
    if min(counts, default=0) < 0:
        raise ArgumentValueError(f"repeat_interleave: repeats must not be negative, but are {counts}")
    if len(counts) == 1:
        column = (*x.shape[: k + 1], 1, *x.shape[k + 1 :])
        spread = broadcast(reshaped(x, column), (*x.shape[: k + 1], counts[0], *x.shape[k + 1 :]))
        return reshaped(spread, (*x.shape[:k], x.shape[k] * counts[0], *x.shape[k + 1 :]))
    if len(counts) != x.shape[k]:
        raise ArgumentValueError(f"repeat_interleave: {len(counts)} repeats do not fit dimension {k} of shape {x.shape}")
    return apply1(Gather((k,)), x, constant(np.repeat(np.arange(x.shape[k]), counts)))


def repeat_elements(x: Tensor, rep: int, axis: int = 0) -> Tensor:
    """Each entry along `axis` repeated `rep` times.

    Raises:
        TypeError: rep is no int. ValueError: rep not positive, axis out of range.
    """
    if int_of(rep, "repeat_elements", "rep") <= 0:
        raise ArgumentValueError(f"repeat_elements: rep must be positive, but is {rep}")
    return repeat_interleave(x, rep, axis)


def reverse_sequence(x: Tensor, seq_lengths: Tensor, seq_dim: int, batch_dim: int = 0) -> Tensor:
    """For each entry b along `batch_dim` the first seq_lengths[b] entries along `seq_dim` in reverse order, the rest as they are.

    Raises:
        TypeError: no Tensors, lengths that are no integers. ValueError: axes out of range or the same, not one length for each entry.
        RuntimeError: a length that there is not.
    """
    t, lengths = tensor_of(x, "reverse_sequence", "x"), tensor_of(seq_lengths, "reverse_sequence", "seq_lengths")
    s, b = normalize_axis(seq_dim, t.ndim, "reverse_sequence", "seq_dim"), normalize_axis(batch_dim, t.ndim, "reverse_sequence", "batch_dim")
    if s == b or lengths.shape != (t.shape[b],) or not lengths.dtype.is_integer:
        raise ArgumentValueError(f"reverse_sequence: seq_lengths must hold one integer for each of the {t.shape[b]} entries of batch_dim, which is not seq_dim")
    check_range(lengths, t.shape[s] + 1, "reverse_sequence: seq_lengths")
    column = tuple(d if k == b else 1 for k, d in enumerate(t.shape))
    place = apply1(Iota(t.shape, s, lengths.dtype))
    end = broadcast(reshaped(lengths, column), t.shape)
    mirrored = sub(sub(end, full(t.shape, 1, lengths.dtype)), place)
    return apply1(GatherElements(s), t, select(less(place, end), mirrored, place))


# -- padding -------------------------------------------------------------------------------------------------------------------
def pad(input_x: Tensor, padding: Any, mode: str = "constant", value: Any = None) -> Tensor:
    """Elements added before and after the last dimensions: padding is (before, after) of the last one, then of the one before it, ….

    Args:
        mode: 'constant' (with `value`, 0 by default) or 'replicate' (the edge repeated), in which negative padding cuts off; 'reflect' (mirrored
            without the edge) or 'circular' (from the other end).

    Raises:
        TypeError: padding is no tuple or list of ints, value no number. ValueError: an odd length, more pairs than dimensions, another mode, a
        value where the mode takes none, padding that the mode cannot fill.
    """
    x, widths = tensor_of(input_x, "pad", "input_x"), ints_of(padding, "pad", "padding")
    if len(widths) % 2 or len(widths) > 2 * x.ndim:
        raise ArgumentValueError(f"pad: padding {widths} must hold one pair for each of the last dimensions of shape {x.shape}")
    pairs = [(widths[k], widths[k + 1]) for k in range(0, len(widths), 2)]
    if mode == "constant":
        return _pad_constant(x, pairs, 0 if value is None else value)
    if mode not in _EDGES:
        raise ArgumentValueError(f"pad: mode must be 'constant', 'reflect', 'replicate' or 'circular', but is {mode!r}")
    if value not in (None, 0):
        raise ArgumentValueError(f"pad: mode {mode!r} takes no value")
    for k, (low, high) in enumerate(pairs):
        x = _EDGES[mode](x, x.ndim - 1 - k, low, high)
    return x


def _pad_constant(x: Tensor, pairs: list[tuple[int, int]], value: Any) -> Tensor:
    if not isinstance(value, NUMBER_TYPES):
        raise ArgumentTypeError(f"pad: value must be a number, but is {type(value).__name__}")
    rank = x.ndim
    for k, (low, high) in enumerate(pairs):
        x = _cut_off(x, rank - 1 - k, low, high)
    low_of = [max(pairs[rank - 1 - k][0], 0) if rank - 1 - k < len(pairs) else 0 for k in range(rank)]
    high_of = [max(pairs[rank - 1 - k][1], 0) if rank - 1 - k < len(pairs) else 0 for k in range(rank)]
    if not any(low_of) and not any(high_of):
        return x
    return apply1(Pad(tuple(low_of), tuple(high_of), (0,) * rank, number_of(plain_number(value), x.dtype)), x)


def _cut_off(x: Tensor, axis: int, low: int, high: int) -> Tensor:
    """What negative padding leaves of a dimension."""
    left = x.shape[axis] + min(low, 0) + min(high, 0)
    if left < 0:
        raise ArgumentValueError(f"pad: padding ({low}, {high}) cuts off more than dimension {axis} of shape {x.shape} has")
    return cut(x, axis, max(-low, 0), left) if low < 0 or high < 0 else x


def _check_edges(mode: str, x: Tensor, axis: int, low: int, high: int, limit: int) -> None:
    if not 0 <= low <= limit or not 0 <= high <= limit:
        raise ArgumentValueError(f"pad: mode {mode!r} can fill from 0 to {limit} elements beside dimension {axis} of shape {x.shape}, not ({low}, {high})")


def _edges_reflect(x: Tensor, axis: int, low: int, high: int) -> Tensor:
    extent = x.shape[axis]
    _check_edges("reflect", x, axis, low, high, max(extent - 1, 0))
    return joined((flipped(cut(x, axis, 1, low), (axis,)), x, flipped(cut(x, axis, extent - 1 - high, high), (axis,))), axis)


def _edges_replicate(x: Tensor, axis: int, low: int, high: int) -> Tensor:
    whole, x = x, _cut_off(x, axis, low, high)
    extent = x.shape[axis]
    if extent == 0:
        raise ArgumentValueError(f"pad: padding ({low}, {high}) leaves no edge of dimension {axis} of shape {whole.shape} to replicate")
    shapes = [tuple(max(n, 0) if k == axis else d for k, d in enumerate(x.shape)) for n in (low, high)]
    return joined((broadcast(cut(x, axis, 0, 1), shapes[0]), x, broadcast(cut(x, axis, extent - 1, 1), shapes[1])), axis)


def _edges_circular(x: Tensor, axis: int, low: int, high: int) -> Tensor:
    extent = x.shape[axis]
    _check_edges("circular", x, axis, low, high, extent)
    return joined((cut(x, axis, extent - low, low), x, cut(x, axis, 0, high)), axis)


_EDGES = {"reflect": _edges_reflect, "replicate": _edges_replicate, "circular": _edges_circular}


def mirror_pad(input_x: Tensor, paddings: Any, mode: str) -> Tensor:
    """Elements mirrored at the ends of each dimension: paddings is (rank, 2), before and after; mode 'REFLECT' leaves the edge out,
    'SYMMETRIC' repeats it.

    Raises:
        TypeError: paddings no Tensor or nested tuple of ints. ValueError: another mode, paddings of another shape, more than there is.
    """
    x = tensor_of(input_x, "mirror_pad", "input_x")
    widths = [ints_of(row, "mirror_pad", "paddings") for row in (paddings.tolist() if isinstance(paddings, Tensor) else paddings)]
    if mode not in ("REFLECT", "SYMMETRIC") or len(widths) != x.ndim or any(len(w) != 2 for w in widths):
        raise ArgumentValueError(f"mirror_pad: mode {mode!r} or paddings {widths} do not fit shape {x.shape}")
    for k, (low, high) in enumerate(widths):
        x = _edges_reflect(x, k, low, high) if mode == "REFLECT" else _edges_symmetric(x, k, low, high)
    return x


def _edges_symmetric(x: Tensor, axis: int, low: int, high: int) -> Tensor:
    extent = x.shape[axis]
    _check_edges("symmetric", x, axis, low, high, extent)
    return joined((flipped(cut(x, axis, 0, low), (axis,)), x, flipped(cut(x, axis, extent - high, high), (axis,))), axis)


def padding(x: Tensor, pad_dim_size: int = 8) -> Tensor:
    """The last dimension, of extent 1, extended to `pad_dim_size` with zeros.

    Raises:
        TypeError: pad_dim_size is no int. ValueError: not positive, less than two dimensions, or a last extent other than 1.
    """
    t, extent = tensor_of(x, "padding", "x"), int_of(pad_dim_size, "padding", "pad_dim_size")
    if t.ndim < 2 or t.shape[-1] != 1 or extent <= 0:
        raise ArgumentValueError(f"padding: x must have two dimensions or more, the last of extent 1, but its shape is {t.shape}")
    return pad(t, (0, extent - 1))


# -- grids ---------------------------------------------------------------------------------------------------------------------
def meshgrid(*inputs: Tensor, indexing: str = "xy") -> tuple[Tensor, ...]:
    """For 1-D Tensors of n0, n1, … elements as many Tensors of shape (n1, n0, …) ('xy') or (n0, n1, …) ('ij').

    Raises:
        TypeError: no Tensors. ValueError: more than one dimension, another indexing.
    """
    given = inputs[0] if len(inputs) == 1 and isinstance(inputs[0], (tuple, list)) else inputs
    xs = tensors_of(given, "meshgrid", "inputs")
    if indexing not in ("xy", "ij"):
        raise ArgumentValueError(f"meshgrid: indexing must be 'xy' or 'ij', but is {indexing!r}")
    if any(x.ndim > 1 for x in xs):
        raise ShapeError(f"meshgrid: inputs must have one dimension, but have shapes {', '.join(str(x.shape) for x in xs)}")
    order = list(range(len(xs)))
    if indexing == "xy" and len(xs) > 1:
        order[0], order[1] = 1, 0
    shape = tuple(xs[k].size for k in order)
    return tuple(broadcast(reshaped(x, tuple(x.size if order[p] == k else 1 for p in range(len(xs)))), shape) for k, x in enumerate(xs))


def cartesian_prod(*inputs: Tensor) -> Tensor:
    """All combinations of the elements of 1-D Tensors, one a row; of one Tensor that itself.

    Raises:
        TypeError: no Tensors, or of different dtypes. ValueError: more than one dimension.
    """
    xs = tensors_of(inputs, "cartesian_prod", "inputs")
    if len(xs) == 1:
        return xs[0]
    from graphcell.ops.functional.movement import stack

    grid = meshgrid(*xs, indexing="ij")
    return reshaped(stack(grid, -1), (grid[0].size, len(xs)))


def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """All choices of `r` elements of a 1-D Tensor in order, one a row.

    Raises:
        TypeError: r is no int. ValueError: not one dimension, r negative.
    """
    x, count = tensor_of(input, "combinations"), int_of(r, "combinations", "r")
    if x.ndim != 1 or count < 0:
        raise ArgumentValueError(f"combinations: the input must have one dimension and r not be negative, but they are {x.shape} and {count}")
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    rows = np.array(list(choose(range(x.size), count)), np.int64).reshape(-1, count)
    return apply1(Gather((0,)), x, constant(rows)) if rows.size else full(rows.shape, 0, x.dtype)


def sequence_mask(lengths: Tensor, maxlen: int | None = None) -> Tensor:
    """True (Bool) at place k along a new last dimension of extent `maxlen` (default: the largest length) where k < length.

    Raises:
        TypeError: lengths is no Tensor of integers, maxlen no int. ValueError: maxlen not positive.
        RuntimeError: no maxlen, and the lengths are not known while the graph is being built.
    """
    x = tensor_of(lengths, "sequence_mask", "lengths")
    if not x.dtype.is_integer:
        raise DTypeError(f"sequence_mask: lengths must hold integers, but is {x.dtype}")
    extent = int(known_values(x, "sequence_mask").max(initial=0)) if maxlen is None else int_of(maxlen, "sequence_mask", "maxlen")
    if extent < 0 or (maxlen is not None and extent == 0):
        raise ArgumentValueError(f"sequence_mask: maxlen must be positive, but is {extent}")
    shape = (*x.shape, extent)
    return less(apply1(Iota(shape, x.ndim, x.dtype)), broadcast(reshaped(x, (*x.shape, 1)), shape))


def diff(x: Tensor, n: int = 1, axis: int = -1, prepend: Tensor | None = None, append: Tensor | None = None) -> Tensor:
    """The differences of neighbours along `axis`, taken `n` times, after `prepend` and `append` have been joined to the ends.

    Raises:
        TypeError: no Tensors or ints. ValueError: n negative, axis out of range.
    """
    from graphcell.ops.functional.movement import concat

    t, times = tensor_of(x, "diff", "x"), int_of(n, "diff", "n")
    k = normalize_axis(axis, t.ndim, "diff")
    if times < 0:
        raise ArgumentValueError(f"diff: n must not be negative, but is {times}")
    parts = [p for p in (prepend, t, append) if p is not None]
    y = concat(parts, k) if len(parts) > 1 else t
    for _ in range(times):
        extent = max(y.shape[k] - 1, 0)
        y = sub(cut(y, k, min(1, y.shape[k]), extent), cut(y, k, 0, extent))
    return y


# -- images ---------------------------------------------------------------------------------------------------------------------
def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """(*, C·r², H, W) as (*, C, H·r, W·r), r being `upscale_factor`.

    Raises:
        TypeError: no Tensor, no int. ValueError: less than three dimensions, channels that r² does not divide.
    """
    x, r = tensor_of(input, "pixel_shuffle"), int_of(upscale_factor, "pixel_shuffle", "upscale_factor")
    if x.ndim < 3 or r <= 0 or x.shape[-3] % (r * r):
        raise ArgumentValueError(f"pixel_shuffle: upscale_factor {r} does not fit shape {x.shape}; (*, C·r², H, W) is needed")
    *lead, c, h, w = x.shape
    n = len(lead)
    y = permuted(reshaped(x, (*lead, c // (r * r), r, r, h, w)), (*range(n), n, n + 3, n + 1, n + 4, n + 2))
    return reshaped(y, (*lead, c // (r * r), h * r, w * r))


def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """(*, C, H·r, W·r) as (*, C·r², H, W), r being `downscale_factor`; the inverse of `pixel_shuffle`.

    Raises:
        TypeError: no Tensor, no int. ValueError: less than three dimensions, extents that r does not divide.
    """
    x, r = tensor_of(input, "pixel_unshuffle"), int_of(downscale_factor, "pixel_unshuffle", "downscale_factor")
    if x.ndim < 3 or r <= 0 or x.shape[-2] % r or x.shape[-1] % r:
        raise ArgumentValueError(f"pixel_unshuffle: downscale_factor {r} does not fit shape {x.shape}; (*, C, H·r, W·r) is needed")
    *lead, c, h, w = x.shape
    n = len(lead)
    y = permuted(reshaped(x, (*lead, c, h // r, r, w // r, r)), (*range(n), n, n + 2, n + 4, n + 1, n + 3))
    return reshaped(y, (*lead, c * r * r, h // r, w // r))


def channel_shuffle(x: Tensor, groups: int) -> Tensor:
    """Channels (dimension 1) in `groups` groups, taken one from each group in turn.

    Raises:
        TypeError: no Tensor, no int. ValueError: less than three dimensions, channels that groups does not divide.
    """
    t, g = tensor_of(x, "channel_shuffle", "x"), int_of(groups, "channel_shuffle", "groups")
    if t.ndim < 3 or g <= 0 or t.shape[1] % g:
        raise ArgumentValueError(f"channel_shuffle: groups {g} does not fit shape {t.shape}; (N, C, …) with C divisible by it is needed")
    n, c, *rest = t.shape
    inner = math.prod(rest)
    return reshaped(permuted(reshaped(t, (n, g, c // g, inner)), (0, 2, 1, 3)), t.shape)
