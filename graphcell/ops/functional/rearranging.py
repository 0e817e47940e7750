"""Public functions that reorder, repeat, pad or mask elements; compositions of views, pads and concatenations.

Enters: Tensors and static numbers. Leaves: new Tensors of the same dtype. Refuses: what does not fit, with the shapes in the message.
"""

from __future__ import annotations

import builtins
import itertools
import math
from typing import Any

import numpy as np

from graphcell import dtype as dt
from graphcell.errors import ArgumentTypeError, ArgumentValueError, DTypeError, ShapeError
from graphcell.ir.types import Shape
from graphcell.ops.creation import Iota, number_of
from graphcell.ops.dispatch import apply1
from graphcell.ops.functional.arithmetic import add, sub
from graphcell.ops.functional.axes import int_of, int_or_ints, ints_of, normalize_axes, normalize_axis, plain_number, tensor_of, tensors_of
from graphcell.ops.functional.common import NUMBER_TYPES, broadcast, cast, constant, full, reverse, select, zeros_like
from graphcell.ops.functional.comparison import less, less_equal
from graphcell.ops.functional.gathering import known_values
from graphcell.ops.functional.movement import cut, joined, permuted, reshaped
from graphcell.ops.functional.reductions import total
from graphcell.ops.indexing import Gather, GatherElements
from graphcell.ops.movement import Pad, Slice, UpdateSlice
from graphcell.tensor import Tensor

__all__ = [
    "block_diag", "cartesian_prod", "channel_shuffle", "combinations", "diag", "diag_embed", "diagflat", "diagonal", "diagonal_scatter",
    "diff", "flip", "fliplr", "flipud", "meshgrid", "pad", "padding", "pixel_shuffle", "pixel_unshuffle", "repeat_elements",
    "repeat_interleave", "reverse_sequence", "roll", "rot90", "sequence_mask", "tile", "trace", "tril", "tril_indices", "triu",
    "triu_indices",
]  # fmt: skip


# -- reversing, rolling, repeating -------------------------------------------------------------------------------------------
def flipped(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    """`x` with `axes` reversed."""
    return apply1(reverse(x.shape, axes), x) if axes else x


def flip(input: Tensor, dims: Any) -> Tensor:
    """The elements in reverse order along `dims`, a tuple or list of ints.

    Raises:
        TypeError: dims are no tuple of ints. ValueError: out of range or repeated.
    """
    x = tensor_of(input, "flip")
    axes = ints_of(dims, "flip", "dims")
    return flipped(x, normalize_axes(axes, x.ndim, "flip", "dims") if axes else ())


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
    return x


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
    """
    t, lengths = tensor_of(x, "reverse_sequence", "x"), tensor_of(seq_lengths, "reverse_sequence", "seq_lengths")
    s, b = normalize_axis(seq_dim, t.ndim, "reverse_sequence", "seq_dim"), normalize_axis(batch_dim, t.ndim, "reverse_sequence", "batch_dim")
    if s == b or lengths.shape != (t.shape[b],) or not lengths.dtype.is_integer:
        raise ArgumentValueError(
            f"reverse_sequence: seq_lengths must hold one integer for each of the {t.shape[b]} entries of batch_dim, which is not seq_dim"
        )
    column = tuple(d if k == b else 1 for k, d in enumerate(t.shape))
    place = apply1(Iota(t.shape, s, lengths.dtype))
    end = broadcast(reshaped(lengths, column), t.shape)
    mirrored = sub(sub(end, full(t.shape, 1, lengths.dtype)), place)
    return apply1(GatherElements(s), t, select(less(place, end), mirrored, place))


# -- padding -------------------------------------------------------------------------------------------------------------------
def pad(input_x: Tensor, padding: Any, mode: str = "constant", value: Any = None) -> Tensor:
    """Elements added before and after the last dimensions: padding is (before, after) of the last one, then of the one before it, ….

    Args:
        mode: 'constant' (with `value`, 0 by default; negative padding cuts off), 'reflect' (mirrored without the edge), 'replicate' (the edge
            repeated) or 'circular' (from the other end).

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
        axis, extent = rank - 1 - k, x.shape[rank - 1 - k]
        if extent + low + high < 0 or min(low, 0) + min(high, 0) + extent < 0:
            raise ArgumentValueError(f"pad: padding ({low}, {high}) cuts off more than dimension {axis} of shape {x.shape} has")
        if low < 0 or high < 0:
            x = cut(x, axis, max(-low, 0), extent + min(low, 0) + min(high, 0))
    low_of = [max(pairs[rank - 1 - k][0], 0) if rank - 1 - k < len(pairs) else 0 for k in range(rank)]
    high_of = [max(pairs[rank - 1 - k][1], 0) if rank - 1 - k < len(pairs) else 0 for k in range(rank)]
    if not any(low_of) and not any(high_of):
        return x
    return apply1(Pad(tuple(low_of), tuple(high_of), (0,) * rank, number_of(plain_number(value), x.dtype)), x)


def _check_edges(mode: str, x: Tensor, axis: int, low: int, high: int, limit: int) -> None:
    if not 0 <= low <= limit or not 0 <= high <= limit:
        raise ArgumentValueError(f"pad: mode {mode!r} can fill from 0 to {limit} elements beside dimension {axis} of shape {x.shape}, not ({low}, {high})")


def _edges_reflect(x: Tensor, axis: int, low: int, high: int) -> Tensor:
    extent = x.shape[axis]
    _check_edges("reflect", x, axis, low, high, max(extent - 1, 0))
    return joined((flipped(cut(x, axis, 1, low), (axis,)), x, flipped(cut(x, axis, extent - 1 - high, high), (axis,))), axis)


def _edges_replicate(x: Tensor, axis: int, low: int, high: int) -> Tensor:
    extent = x.shape[axis]
    if low < 0 or high < 0 or extent == 0:
        raise ArgumentValueError(f"pad: mode 'replicate' cannot add ({low}, {high}) to dimension {axis} of shape {x.shape}")
    shapes = [tuple(n if k == axis else d for k, d in enumerate(x.shape)) for n in (low, high)]
    return joined((broadcast(cut(x, axis, 0, 1), shapes[0]), x, broadcast(cut(x, axis, extent - 1, 1), shapes[1])), axis)


def _edges_circular(x: Tensor, axis: int, low: int, high: int) -> Tensor:
    extent = x.shape[axis]
    _check_edges("circular", x, axis, low, high, extent)
    return joined((cut(x, axis, extent - low, low), x, cut(x, axis, 0, high)), axis)


_EDGES = {"reflect": _edges_reflect, "replicate": _edges_replicate, "circular": _edges_circular}


def padding(x: Tensor, pad_dim_size: int = 8) -> Tensor:
    """The last dimension, of extent 1, extended to `pad_dim_size` with zeros.

    Raises:
        TypeError: pad_dim_size is no int. ValueError: not positive, less than two dimensions, or a last extent other than 1.
    """
    t, extent = tensor_of(x, "padding", "x"), int_of(pad_dim_size, "padding", "pad_dim_size")
    if t.ndim < 2 or t.shape[-1] != 1 or extent <= 0:
        raise ArgumentValueError(f"padding: x must have two dimensions or more, the last of extent 1, but its shape is {t.shape}")
    return pad(t, (0, extent - 1))


# -- triangles and diagonals --------------------------------------------------------------------------------------------------
def _matrix(input: Any, function: str) -> Tensor:
    x = tensor_of(input, function)
    if x.ndim < 2:
        raise ShapeError(f"{function}: the input must have two dimensions at least, but its shape is {x.shape}")
    return x


def lower_mask(shape: Shape, diagonal: int) -> Tensor:
    """True (Bool) on and below a diagonal of the last two dimensions."""
    rows, columns = apply1(Iota(shape, len(shape) - 2, dt.int64)), apply1(Iota(shape, len(shape) - 1, dt.int64))
    return less_equal(columns, add(rows, diagonal))


def tril(input: Tensor, diagonal: int = 0) -> Tensor:
    """The elements on and below the `diagonal` (0: main, positive: above it) of the last two dimensions; zeros elsewhere.

    Raises:
        TypeError: input is no Tensor, diagonal no int. ValueError: less than two dimensions.
    """
    x = _matrix(input, "tril")
    return select(lower_mask(x.shape, int_of(diagonal, "tril", "diagonal")), x, zeros_like(x))


def triu(input: Tensor, diagonal: int = 0) -> Tensor:
    """The elements on and above the `diagonal` (0: main, positive: above it) of the last two dimensions; zeros elsewhere.

    Raises:
        TypeError: input is no Tensor, diagonal no int. ValueError: less than two dimensions.
    """
    x = _matrix(input, "triu")
    return select(lower_mask(x.shape, int_of(diagonal, "triu", "diagonal") - 1), zeros_like(x), x)


def _indices(row: int, col: int, offset: int, dtype: Any, function: str, mask: Any) -> Tensor:
    m, n = int_of(row, function, "row"), int_of(col, function, "col")
    if m < 0 or n < 0:
        raise ArgumentValueError(f"{function}: row and col must not be negative, but are {m} and {n}")
    places = np.nonzero(mask(np.ones((m, n), bool), int_of(offset, function, "offset")))
    return constant(np.stack(places).astype(dt.as_dtype(dtype).np_type))


def tril_indices(row: int, col: int, offset: int = 0, *, dtype: Any = dt.int64) -> Tensor:
    """Rows and columns, shape (2, count), of the places on and below a diagonal of a row × col matrix."""
    return _indices(row, col, offset, dtype, "tril_indices", np.tril)


def triu_indices(row: int, col: int, offset: int = 0, *, dtype: Any = dt.int64) -> Tensor:
    """Rows and columns, shape (2, count), of the places on and above a diagonal of a row × col matrix."""
    return _indices(row, col, offset, dtype, "triu_indices", np.triu)


def _to_diagonal(x: Tensor, offset: int) -> Tensor:
    """The last dimension laid out on a diagonal of square matrices, zeros elsewhere."""
    n = x.shape[-1]
    side, start = n + builtins.abs(offset), max(-offset, 0) * (n + builtins.abs(offset)) + max(offset, 0)
    lead = x.ndim - 1
    if n == 0:
        return full((*x.shape[:-1], side, side), 0, x.dtype)
    high = side * side - start - ((n - 1) * (side + 1) + 1)
    row = Pad((0,) * lead + (start,), (0,) * lead + (high,), (0,) * lead + (side,), number_of(0, x.dtype))
    return reshaped(apply1(row, x), (*x.shape[:-1], side, side))


def _diagonal_place(m: int, n: int, offset: int) -> tuple[int, int]:
    """Start in the flattened m × n matrix, and length, of a diagonal."""
    length = max(0, min(m, n - offset) if offset >= 0 else min(m + offset, n))
    return (offset if offset >= 0 else -offset * n) if length else 0, length


def _planes(input: Any, offset: Any, dim1: Any, dim2: Any, function: str) -> tuple[Tensor, tuple[int, ...], int, int]:
    """The input with two dimensions moved last and flattened, the permutation, and start and length of the diagonal in it."""
    x = _matrix(input, function)
    a, b = normalize_axis(dim1, x.ndim, function, "dim1"), normalize_axis(dim2, x.ndim, function, "dim2")
    if a == b:
        raise ArgumentValueError(f"{function}: dim1 and dim2 must differ, but both are {dim1}")
    perm = (*(k for k in range(x.ndim) if k not in (a, b)), a, b)
    m, n = x.shape[a], x.shape[b]
    moved = permuted(x, perm)
    return reshaped(moved, (*moved.shape[:-2], m * n)), perm, *_diagonal_place(m, n, int_of(offset, function, "offset"))


def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """A diagonal of the plane of two dimensions, as the last dimension of the result.

    Raises:
        TypeError: no ints. ValueError: less than two dimensions, dims out of range or the same.
    """
    flat, _, start, length = _planes(input, offset, dim1, dim2, "diagonal")
    side = input.shape[dim2] + 1
    lead = flat.shape[:-1]
    return apply1(Slice((0,) * len(lead) + (start,), (*lead, length), (1,) * len(lead) + (side if length else 1,)), flat)


def diagonal_scatter(input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """A copy of `input` with `src` on the diagonal that `diagonal` takes.

    Raises:
        TypeError: no Tensors or ints, src of another dtype. ValueError: shapes that do not fit.
    """
    flat, perm, start, length = _planes(input, offset, dim1, dim2, "diagonal_scatter")
    u = tensor_of(src, "diagonal_scatter", "src")
    lead = flat.shape[:-1]
    if u.shape != (*lead, length):
        raise ShapeError(f"diagonal_scatter: src must have the shape {(*lead, length)}, but has {u.shape}")
    if length == 0:
        return input
    put = UpdateSlice((0,) * len(lead) + (start,), (1,) * len(lead) + (input.shape[dim2] + 1,))
    new = reshaped(apply1(put, flat, cast(u, flat.dtype)), tuple(input.shape[p] for p in perm))
    return permuted(new, tuple(perm.index(k) for k in range(len(perm))))


def diag(input: Tensor) -> Tensor:
    """The elements on the diagonal of a Tensor of twice the dimensions (a vector gives a matrix), zeros elsewhere."""
    x = tensor_of(input, "diag")
    return reshaped(_to_diagonal(reshaped(x, (x.size,)), 0), x.shape + x.shape)


def diagflat(input: Tensor, offset: int = 0) -> Tensor:
    """The flattened input on a diagonal of a matrix, zeros elsewhere."""
    x = tensor_of(input, "diagflat")
    return _to_diagonal(reshaped(x, (x.size,)), int_of(offset, "diagflat", "offset"))


def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The last dimension on a diagonal of square matrices in the plane of `dim1` and `dim2` of the result.

    Raises:
        TypeError: no ints. ValueError: a scalar, dims out of range or the same.
    """
    x = tensor_of(input, "diag_embed")
    if x.ndim == 0:
        raise ShapeError("diag_embed: the input must have one dimension at least, but is a scalar")
    y = _to_diagonal(x, int_of(offset, "diag_embed", "offset"))
    a, b = normalize_axis(dim1, y.ndim, "diag_embed", "dim1"), normalize_axis(dim2, y.ndim, "diag_embed", "dim2")
    if a == b:
        raise ArgumentValueError(f"diag_embed: dim1 and dim2 must differ, but both are {dim1}")
    perm = list(range(y.ndim - 2))
    for place, k in sorted(((a, y.ndim - 2), (b, y.ndim - 1))):
        perm.insert(place, k)
    return permuted(y, tuple(perm))


def trace(input: Tensor) -> Tensor:
    """The sum of a matrix's main diagonal, in its dtype.

    Raises:
        TypeError: input is no Tensor. ValueError: not two dimensions.
    """
    x = tensor_of(input, "trace")
    if x.ndim != 2:
        raise ShapeError(f"trace: the input must be a matrix, but its shape is {x.shape}")
    return total(diagonal(x), (0,))


def block_diag(*inputs: Tensor) -> Tensor:
    """Matrices (or vectors as rows, or scalars) along the diagonal of one matrix, zeros elsewhere.

    Raises:
        TypeError: no Tensors, or of different dtypes. ValueError: more than two dimensions.
    """
    xs = tensors_of(inputs, "block_diag", "inputs")
    if any(x.ndim > 2 for x in xs):
        raise ShapeError(f"block_diag: inputs must have two dimensions at most, but have shapes {', '.join(str(x.shape) for x in xs)}")
    blocks = [reshaped(x, (1,) * (2 - x.ndim) + x.shape) for x in xs]
    width, at, rows = builtins.sum(b.shape[1] for b in blocks), 0, []
    for b in blocks:
        rows.append(pad(b, (at, width - at - b.shape[1])))
        at += b.shape[1]
    from graphcell.ops.functional.movement import concat

    return concat(rows, 0)


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
