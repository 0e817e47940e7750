"""Functions of mint that choose, place and order elements along `dim`.

Enters: Tensors, and Tensors of integers as indices. Leaves: what `ops` computes; indices that are results are Int64. Both modes, with gradients.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphcell import dtype as dt
from graphcell import ops
from graphcell.ops.functional.axes import normalize_axis
from graphcell.ops.functional.gathering import indices_of, put_slices
from graphcell.ops.functional.masking import known_values
from graphcell.tensor import Tensor


def index_select(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """The slices along `dim` at the places that `index`, a vector, holds."""
    return ops.index_select(input, dim, index)


def index_add(input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1) -> Tensor:
    """A copy of input in which alpha times the slice k of `source` along `dim` is added to the slice index[k].

    Raises:
        TypeError: an index that holds no integers, a source of another dtype. ValueError: shapes that do not fit. IndexError: out of range.
    """
    axis = normalize_axis(dim, input.ndim, "index_add", "dim")
    addend = source if isinstance(alpha, int) and alpha == 1 else ops.cast(source * alpha, source.dtype)
    return put_slices(input, axis, indices_of(index, "index_add", "index"), addend, "add", "index_add")


def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """A copy of input in which src[i][j] is added to result[index[i][j]][j] for dim 0, to result[i][index[i][j]] for dim 1, and so on."""
    return ops.tensor_scatter_elements(input, index, _as_large(src, index), dim, "add")


def _as_large(src: Tensor, index: Tensor) -> Tensor:
    """The part of `src` that `index` has places for."""
    return src[tuple(slice(n) for n in index.shape)] if src.shape != index.shape else src


def take(input: Tensor, index: Tensor) -> Tensor:
    """The elements of the flattened input at the places that `index` holds, in the shape of index."""
    return ops.gather(input.reshape((-1,)), index, 0)


def topk(input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Tensor, Tensor]:
    """The k largest (or smallest) elements along `dim` and their indices (Int64), in order."""
    values, places = ops.topk(input, k, dim, largest, sorted)
    return values, ops.cast(places, dt.int64)


def sort(input: Tensor, *, dim: int = -1, descending: bool = False, stable: bool = False) -> tuple[Tensor, Tensor]:
    """The elements along `dim` in order, and their indices (Int64); the order of equal ones is kept in any case."""
    values, places = ops.sort(input, dim, descending)
    return values, ops.cast(places, dt.int64)


def argsort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Tensor:
    """The indices (Int64) that put the elements along `dim` in order; the order of equal ones is kept in any case."""
    return ops.cast(ops.argsort(input, dim, descending), dt.int64)


def unique(input: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None) -> Any:
    """The different elements (or slices along `dim`) in ascending order. Eager mode only: the values decide on the shape.

    Args:
        sorted: accepted; the result is sorted in any case.
        return_inverse: also for each element its index among them (Int64).
        return_counts: also how often each occurs (Int64).

    Raises:
        TypeError: input is no Tensor. ValueError: dim out of range. RuntimeError: its values are not known while the graph is being built.
    """
    axis = None if dim is None else normalize_axis(dim, input.ndim, "unique", "dim")
    data = known_values(input, "unique")
    values, inverse, counts = np.unique(data, return_inverse=True, return_counts=True, axis=axis, equal_nan=False)
    results = [values.astype(data.dtype)]
    if return_inverse:
        results.append(inverse.reshape(data.shape if axis is None else -1).astype(np.int64))
    if return_counts:
        results.append(counts.astype(np.int64))
    tensors = tuple(map(Tensor.of_array, results))
    return tensors[0] if len(tensors) == 1 else tensors
