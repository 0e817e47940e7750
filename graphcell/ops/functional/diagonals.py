"""Public functions of triangles and diagonals: masks, views with a stride, and pads between elements.

Enters: Tensors of matrices, offsets (0: main diagonal, positive: above it). Leaves: new Tensors of the same dtype.
"""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from graphcell import dtype as dt
from graphcell.errors import ArgumentValueError, ShapeError
from graphcell.ir.types import Shape
from graphcell.ops.creation import Iota, number_of
from graphcell.ops.dispatch import apply1
from graphcell.ops.functional.arithmetic import add
from graphcell.ops.functional.axes import int_of, normalize_axis, tensor_of, tensors_of
from graphcell.ops.functional.common import cast, constant, full, select, zeros_like
from graphcell.ops.functional.comparison import less_equal
from graphcell.ops.functional.movement import concat, permuted, reshaped
from graphcell.ops.functional.rearranging import pad
from graphcell.ops.functional.reductions import total
from graphcell.ops.movement import Pad, Slice, UpdateSlice
from graphcell.tensor import Tensor

__all__ = [
    "block_diag", "diag", "diag_embed", "diagflat", "diagonal", "diagonal_scatter", "trace", "tril", "tril_indices", "triu",
    "triu_indices",
]  # fmt: skip


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
    return concat(rows, 0)
