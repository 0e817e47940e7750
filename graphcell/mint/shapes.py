"""Functions of mint that rearrange, cut and join Tensors along `dim`.

Enters: Tensors. Leaves: what `ops` computes. Both modes, with gradients.
"""

from __future__ import annotations

from typing import Any

from graphcell import ops
from graphcell.errors import ArgumentTypeError, ArgumentValueError, ShapeError
from graphcell.ops.functional.axes import normalize_axis
from graphcell.tensor import Tensor

Tensors = tuple[Tensor, ...]


def chunk(input: Tensor, chunks: int, dim: int = 0) -> Tensors:
    """The input along `dim` in at most `chunks` parts of one extent, the last of which may be smaller."""
    return ops.chunk(input, chunks, dim)


def split(tensor: Tensor, split_size_or_sections: Any, dim: int = 0) -> Tensors:
    """The Tensor along `dim` in parts: of an extent (an int; the last part may be smaller), or of the extents of a tuple or list."""
    return ops.split(tensor, split_size_or_sections, dim)


def stack(tensors: Any, dim: int = 0) -> Tensor:
    """Tensors of one shape side by side along a new dimension `dim`."""
    return ops.stack(tensors, dim)


def transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """Two dimensions exchanged."""
    return ops.swapaxes(input, dim0, dim1)


def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Dimensions `start_dim` to `end_dim` as one."""
    return ops.flatten(input, start_dim=start_dim, end_dim=end_dim)


def squeeze(input: Tensor, dim: Any = None) -> Tensor:
    """Without the dimensions `dim` (an int or several, default: all) that have an extent of 1; others stay."""
    if dim is None:
        return ops.squeeze(input)
    axes = [normalize_axis(k, input.ndim, "squeeze", "dim") for k in (dim if isinstance(dim, (tuple, list)) else (dim,))]
    ones = tuple(k for k in axes if input.shape[k] == 1)
    return ops.squeeze(input, ones) if ones else input


def narrow(input: Tensor, dim: int, start: int, length: int) -> Tensor:
    """`length` elements along `dim`, from `start` on."""
    return ops.narrow(input, dim, start, length)


def select(input: Tensor, dim: int, index: int) -> Tensor:
    """The slice `index` along `dim`, which disappears.

    Raises:
        TypeError: index is no int. ValueError: it is out of range.
    """
    if isinstance(index, bool) or not isinstance(index, int):
        raise ArgumentTypeError(f"select: index must be an int, but is {type(index).__name__}")
    axis = normalize_axis(dim, input.ndim, "select", "dim")
    extent = input.shape[axis]
    if not -extent <= index < extent:
        raise ArgumentValueError(f"select: index {index} is out of range for dimension {dim} of extent {extent}")
    return ops.squeeze(ops.narrow(input, axis, index % extent, 1), axis)


def diag(input: Tensor, diagonal: int = 0) -> Tensor:
    """A vector as the diagonal `diagonal` of a square matrix of zeros, or that diagonal of a matrix (above the main one if positive).

    Raises:
        ValueError: neither one nor two dimensions.
    """
    return ops.diagonal(input, diagonal) if input.ndim == 2 else ops.diagflat(_vector(input), diagonal)


def _vector(x: Tensor) -> Tensor:
    if x.ndim != 1:
        raise ShapeError(f"diag: the input must have one or two dimensions, but has shape {x.shape}")
    return x
