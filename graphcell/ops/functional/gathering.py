"""Public functions that take elements at index Tensors (gather) or write them there (scatter), and their relatives.

Enters: Tensors, index Tensors of integers, axes. Leaves: new Tensors; the functions that MindSpore has write into their first operand
(`scatter_add`, `scatter_nd_add`, `index_add`, …) do so and return its new value. An index counts from the end if it is negative; one that is known to be
out of range raises IndexError, one met only in a running graph takes the nearest end (see ops/indexing.py).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphcell import dtype as dt
from graphcell.errors import ArgumentValueError, DataIndexError, DTypeError, ShapeError
from graphcell.ir.types import Shape
from graphcell.ops.arithmetic import StopGradient
from graphcell.ops.creation import Iota
from graphcell.ops.dispatch import apply1, write
from graphcell.ops.functional.arithmetic import add, div, neg, sub
from graphcell.ops.functional.axes import int_of, ints_of, known_array, normalize_axis, plain_number, tensor_of
from graphcell.ops.functional.common import (
    NUMBER_TYPES,
    as_tensor,
    broadcast,
    cast,
    full,
    full_like,
    select,
    zeros_like,
)
from graphcell.ops.functional.comparison import equal, less
from graphcell.ops.functional.indexing import check_range, place_of, tensor_setitem
from graphcell.ops.functional.movement import cut, permuted, reshaped, unchanged
from graphcell.ops.indexing import Gather, GatherElements, Scatter, ScatterElements
from graphcell.tensor import Tensor

__all__ = [
    "embedding", "gather", "gather_d", "gather_elements", "gather_nd", "index_add", "index_fill", "index_select", "scatter",
    "scatter_add", "scatter_div", "scatter_max", "scatter_min", "scatter_mul", "scatter_nd", "scatter_nd_add", "scatter_nd_div",
    "scatter_nd_max", "scatter_nd_min", "scatter_nd_mul", "scatter_nd_sub", "scatter_nd_update", "scatter_sub", "scatter_update",
    "select_scatter", "slice_scatter", "tensor_scatter_add", "tensor_scatter_div", "tensor_scatter_elements", "tensor_scatter_max",
    "tensor_scatter_min", "tensor_scatter_mul", "tensor_scatter_sub", "tensor_scatter_update", "unsorted_segment_max",
    "unsorted_segment_min", "unsorted_segment_prod", "unsorted_segment_sum",
]  # fmt: skip


def indices_of(x: Any, function: str, what: str) -> Tensor:
    """An index Tensor.

    Raises:
        TypeError: no Tensor, or not of integers.
    """
    index = tensor_of(x, function, what)
    if not index.dtype.is_integer:
        raise DTypeError(f"{function}: {what} must hold integers, but is {index.dtype}")
    return index


# -- gather ----------------------------------------------------------------------------------------------------------------
def take_along(x: Tensor, axis: int, index: Tensor, function: str) -> Tensor:
    """The slices of `x` along `axis` at `index`, whose shape stands in the place of that dimension."""
    check_range(index, x.shape[axis], function)
    return apply1(Gather((axis,)), x, index)


def gather(input_params: Tensor, input_indices: Tensor, axis: int, batch_dims: int = 0) -> Tensor:
    """The slices along `axis` at `input_indices`: shape params[:axis] + indices[batch_dims:] + params[axis+1:].

    The first `batch_dims` dimensions of both are the same; there each row has its own indices.

    Raises:
        TypeError: no Tensors, indices that are no integers. ValueError: axis or batch_dims out of range. IndexError: an index known to be out of range.
    """
    x, index = tensor_of(input_params, "gather", "input_params"), indices_of(input_indices, "gather", "input_indices")
    k, lead = normalize_axis(axis, x.ndim, "gather"), int_of(batch_dims, "gather", "batch_dims")
    lead = lead + index.ndim if lead < 0 else lead
    if not 0 <= lead <= min(k, index.ndim) or x.shape[:lead] != index.shape[:lead]:
        raise ArgumentValueError(
            f"gather: batch_dims {batch_dims} does not fit axis {axis}, input_params of shape {x.shape} and indices of shape {index.shape}"
        )
    if lead == 0:
        return take_along(x, k, index, "gather")
    check_range(index, x.shape[k], "gather")
    rows = [apply1(Iota(index.shape, b, index.dtype)) for b in range(lead)]
    y = apply1(Gather((*range(lead), k)), x, *rows, index)  # indices, then params[lead:k], then params[k+1:]
    inner = tuple(range(index.ndim, index.ndim + k - lead))
    return permuted(y, (*range(lead), *inner, *range(lead, index.ndim), *range(index.ndim + k - lead, y.ndim)))


def gather_elements(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """``result[…, j, …] = input[…, index[…, j, …], …]`` along `dim`; the shape of `index`, which must have the rank of the input.

    Raises:
        TypeError: no Tensors, an index that holds no integers. ValueError: shapes that do not fit. IndexError: an index known to be out of range.
    """
    x, at = tensor_of(input, "gather_elements"), indices_of(index, "gather_elements", "index")
    k = normalize_axis(dim, x.ndim, "gather_elements", "dim")
    check_range(at, x.shape[k], "gather_elements")
    return apply1(GatherElements(k), x, at)


def gather_d(x: Tensor, dim: int, index: Tensor) -> Tensor:
    """The same as `gather_elements`."""
    return gather_elements(x, dim, index)


def _coordinates(x_shape: Shape, indices: Tensor, function: str) -> tuple[tuple[int, ...], tuple[Tensor, ...]]:
    """Axes and index Tensors for coordinates that lie along the last dimension of `indices`."""
    if indices.ndim == 0 or not 0 < indices.shape[-1] <= len(x_shape):
        raise ShapeError(f"{function}: the last extent of indices, {indices.shape}, must be between 1 and {len(x_shape)}, the rank of shape {x_shape}")
    last = indices.ndim - 1
    parts = tuple(reshaped(cut(indices, last, k, 1), indices.shape[:-1]) for k in range(indices.shape[-1]))
    for k, part in enumerate(parts):
        check_range(part, x_shape[k], function)
    return tuple(range(len(parts))), parts


def gather_nd(input_x: Tensor, indices: Tensor) -> Tensor:
    """The elements or slices at the coordinates `indices[…, :]`: shape indices.shape[:-1] + input_x.shape[indices.shape[-1]:].

    Raises:
        TypeError: no Tensors, indices that are no integers. ValueError: coordinates longer than the rank. IndexError: known to be out of range.
    """
    x = tensor_of(input_x, "gather_nd", "input_x")
    axes, parts = _coordinates(x.shape, indices_of(indices, "gather_nd", "indices"), "gather_nd")
    return apply1(Gather(axes), x, *parts)


def index_select(input: Tensor, axis: int, index: Tensor) -> Tensor:
    """The slices along `axis` at the 1-D `index`.

    Raises:
        TypeError: no Tensors, an index that holds no integers. ValueError: axis out of range, index not 1-D. IndexError: known to be out of range.
    """
    x, at = tensor_of(input, "index_select"), indices_of(index, "index_select", "index")
    if at.ndim != 1:
        raise ShapeError(f"index_select: index must have one dimension, but its shape is {at.shape}")
    return take_along(x, normalize_axis(axis, x.ndim, "index_select"), at, "index_select")


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
) -> Tensor:
    """The rows of `weight` at the indices `input`: (*input.shape, weight.shape[1]).

    Args:
        padding_idx: a row to which no gradient flows.
        max_norm: rows that are used and whose norm of order `norm_type` is larger are first scaled down to it, in `weight` itself.
        scale_grad_by_freq: gradients of a row are divided by the number of times that it is used.

    Raises:
        TypeError: no Tensors, indices that are no integers. ValueError: weight no matrix. IndexError: padding_idx or an index out of range.
    """
    index, table = indices_of(input, "embedding", "input"), tensor_of(weight, "embedding", "weight")
    if table.ndim != 2:
        raise ShapeError(f"embedding: weight must be a matrix, but its shape is {table.shape}")
    if max_norm is not None:
        _limit_rows(table, index, max_norm, norm_type)
    rows = take_along(table, 0, index, "embedding")
    column = (*index.shape, 1)
    if scale_grad_by_freq:
        ones = full(index.shape, 1, rows.dtype)
        often = apply1(Gather((0,)), apply1(Scatter((0,), "add"), full(table.shape[:1], 0, rows.dtype), index, ones), index)
        fixed = apply1(StopGradient(), rows)
        rows = add(fixed, div(sub(rows, fixed), reshaped(often, column)))
    if padding_idx is not None:
        row = place_of(int_of(padding_idx, "embedding", "padding_idx"), table.shape, 0)
        idle = equal(reshaped(index, column), row)
        rows = select(broadcast(idle, rows.shape), apply1(StopGradient(), rows), rows)
    return rows


def _limit_rows(table: Tensor, index: Tensor, max_norm: float, norm_type: float) -> None:
    """Scales down rows of `table` itself that `index` names."""
    from graphcell.ops.functional.vectors import renorm

    flat = reshaped(index, (index.size,))
    rows = renorm(take_along(table, 0, flat, "embedding"), norm_type, 0, max_norm)
    write(table, apply1(Scatter((0,), "update"), table, flat, rows))


# -- scatter -----------------------------------------------------------------------------------------------------------------
def _same(x: Tensor, updates: Any, function: str, what: str = "updates") -> Tensor:
    u = tensor_of(updates, function, what)
    if u.dtype is not x.dtype:
        raise DTypeError(f"{function}: {what} must have the dtype of the first operand, {x.dtype}, but is {u.dtype}")
    return u


def _put(x: Tensor, axes: tuple[int, ...], parts: tuple[Tensor, ...], updates: Tensor, kind: str, function: str) -> Tensor:
    """Scatter along leading `axes`; `sub` and `div` in terms of the others."""
    want = parts[0].shape + x.shape[len(axes) :]
    if updates.shape != want:
        raise ShapeError(f"{function}: updates must have the shape {want}, but have {updates.shape}")
    if kind == "sub":
        return apply1(Scatter(axes, "add"), x, *parts, neg(updates))
    if kind == "div":
        divisor = apply1(Scatter(axes, "mul"), full_like(x, 1), *parts, updates)
        return cast(div(x, divisor, rounding_mode=None if x.dtype.is_float else "trunc"), x.dtype)
    return apply1(Scatter(axes, kind), x, *parts, updates)


def _put_nd(input_x: Any, indices: Any, updates: Any, kind: str, function: str) -> Tensor:
    x = tensor_of(input_x, function, "input_x")
    axes, parts = _coordinates(x.shape, indices_of(indices, function, "indices"), function)
    return _put(x, axes, parts, _same(x, updates, function), kind, function)


def tensor_scatter_update(input_x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    """A copy of `input_x` with `updates` at the coordinates `indices[…, :]`; of updates with the same coordinates the last wins.

    Raises:
        TypeError: no Tensors, indices that are no integers, updates of another dtype. ValueError: shapes that do not fit.
        IndexError: coordinates known to be out of range.
    """
    return _put_nd(input_x, indices, updates, "update", "tensor_scatter_update")


def tensor_scatter_add(input_x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    """A copy of `input_x` with all `updates` added at the coordinates `indices[…, :]`. Errors: as `tensor_scatter_update`."""
    return _put_nd(input_x, indices, updates, "add", "tensor_scatter_add")


def tensor_scatter_sub(input_x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    """A copy of `input_x` with all `updates` subtracted at the coordinates `indices[…, :]`. Errors: as `tensor_scatter_update`."""
    return _put_nd(input_x, indices, updates, "sub", "tensor_scatter_sub")


def tensor_scatter_mul(input_x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    """A copy of `input_x` multiplied by all `updates` at the coordinates `indices[…, :]`. Errors: as `tensor_scatter_update`."""
    return _put_nd(input_x, indices, updates, "mul", "tensor_scatter_mul")


def tensor_scatter_div(input_x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    """A copy of `input_x` divided by all `updates` at the coordinates `indices[…, :]`. Errors: as `tensor_scatter_update`."""
    return _put_nd(input_x, indices, updates, "div", "tensor_scatter_div")


def tensor_scatter_max(input_x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    """A copy of `input_x` with the largest of what is at the coordinates and the `updates`. Errors: as `tensor_scatter_update`."""
    return _put_nd(input_x, indices, updates, "max", "tensor_scatter_max")


def tensor_scatter_min(input_x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    """A copy of `input_x` with the smallest of what is at the coordinates and the `updates`. Errors: as `tensor_scatter_update`."""
    return _put_nd(input_x, indices, updates, "min", "tensor_scatter_min")


def tensor_scatter_elements(input_x: Tensor, indices: Tensor, updates: Tensor, axis: int = 0, reduction: str = "none") -> Tensor:
    """A copy of `input_x` with ``updates[…, j, …]`` written (or added, with reduction 'add') at index ``indices[…, j, …]`` along `axis`.

    Raises:
        TypeError: no Tensors, indices that are no integers, updates of another dtype. ValueError: shapes that do not fit, another reduction.
        IndexError: an index known to be out of range.
    """
    kinds = {"none": "update", "add": "add"}
    if reduction not in kinds:
        raise ArgumentValueError(f"tensor_scatter_elements: reduction must be 'none' or 'add', but is {reduction!r}")
    x, at = tensor_of(input_x, "tensor_scatter_elements", "input_x"), indices_of(indices, "tensor_scatter_elements", "indices")
    return put_elements(x, normalize_axis(axis, x.ndim, "tensor_scatter_elements"), at, updates, kinds[reduction], "tensor_scatter_elements")


def put_elements(x: Tensor, axis: int, index: Tensor, updates: Any, kind: str, function: str) -> Tensor:
    """`updates` written along `axis` at `index`, which has their shape."""
    check_range(index, x.shape[axis], function)
    return apply1(ScatterElements(axis, kind), x, index, _same(x, updates, function))


def scatter(input: Tensor, axis: int, index: Tensor, src: Any) -> Tensor:
    """A copy of `input` with ``src[…, j, …]`` (or the number `src`) at index ``index[…, j, …]`` along `axis`.

    Raises:
        TypeError, ValueError, IndexError: as `tensor_scatter_elements`.
    """
    x, at = tensor_of(input, "scatter"), indices_of(index, "scatter", "index")
    if isinstance(src, NUMBER_TYPES):
        src = full(at.shape, plain_number(src), x.dtype)
    return put_elements(x, normalize_axis(axis, x.ndim, "scatter"), at, src, "update", "scatter")


def scatter_nd(indices: Tensor, updates: Tensor, shape: Any) -> Tensor:
    """Zeros of `shape` with all `updates` added at the coordinates `indices[…, :]`.

    Raises:
        TypeError: no Tensors, indices that are no integers, shape no tuple of ints. ValueError: shapes that do not fit. IndexError: out of range.
    """
    u, extents = tensor_of(updates, "scatter_nd", "updates"), ints_of(shape, "scatter_nd", "shape")
    axes, parts = _coordinates(extents, indices_of(indices, "scatter_nd", "indices"), "scatter_nd")
    return _put(full(extents, 0, u.dtype), axes, parts, u, "add", "scatter_nd")


def _in_place_rows(input_x: Any, indices: Any, updates: Any, kind: str, function: str) -> Tensor:
    x, at = tensor_of(input_x, function, "input_x"), indices_of(indices, function, "indices")
    if x.ndim == 0:
        raise ShapeError(f"{function}: input_x must have one dimension at least")
    check_range(at, x.shape[0], function)
    write(x, _put(x, (0,), (at,), _same(x, updates, function), kind, function))
    return unchanged(x)


def _in_place_nd(input_x: Any, indices: Any, updates: Any, kind: str, function: str) -> Tensor:
    x = tensor_of(input_x, function, "input_x")
    write(x, _put_nd(x, indices, updates, kind, function))
    return unchanged(x)


def scatter_update(input_x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    """Writes `updates` into the rows `indices` of `input_x` itself and returns it. Errors: as `tensor_scatter_update`."""
    return _in_place_rows(input_x, indices, updates, "update", "scatter_update")


def scatter_add(input_x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    """Adds `updates` to the rows `indices` of `input_x` itself and returns it. Errors: as `tensor_scatter_update`."""
    return _in_place_rows(input_x, indices, updates, "add", "scatter_add")


def scatter_sub(input_x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    """Subtracts `updates` from the rows `indices` of `input_x` itself and returns it. Errors: as `tensor_scatter_update`."""
    return _in_place_rows(input_x, indices, updates, "sub", "scatter_sub")


def scatter_mul(input_x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    """Multiplies the rows `indices` of `input_x` itself by `updates` and returns it. Errors: as `tensor_scatter_update`."""
    return _in_place_rows(input_x, indices, updates, "mul", "scatter_mul")


def scatter_div(input_x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    """Divides the rows `indices` of `input_x` itself by `updates` and returns it. Errors: as `tensor_scatter_update`."""
    return _in_place_rows(input_x, indices, updates, "div", "scatter_div")


def scatter_max(input_x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    """Raises the rows `indices` of `input_x` itself to `updates` and returns it. Errors: as `tensor_scatter_update`."""
    return _in_place_rows(input_x, indices, updates, "max", "scatter_max")


def scatter_min(input_x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    """Lowers the rows `indices` of `input_x` itself to `updates` and returns it. Errors: as `tensor_scatter_update`."""
    return _in_place_rows(input_x, indices, updates, "min", "scatter_min")


def scatter_nd_update(input_x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    """`tensor_scatter_update` on `input_x` itself, which is returned."""
    return _in_place_nd(input_x, indices, updates, "update", "scatter_nd_update")


def scatter_nd_add(input_x: Tensor, indices: Tensor, updates: Tensor, use_locking: bool = False) -> Tensor:
    """`tensor_scatter_add` on `input_x` itself, which is returned. `use_locking` has no effect."""
    return _in_place_nd(input_x, indices, updates, "add", "scatter_nd_add")


def scatter_nd_sub(input_x: Tensor, indices: Tensor, updates: Tensor, use_locking: bool = False) -> Tensor:
    """`tensor_scatter_sub` on `input_x` itself, which is returned. `use_locking` has no effect."""
    return _in_place_nd(input_x, indices, updates, "sub", "scatter_nd_sub")


def scatter_nd_mul(input_x: Tensor, indices: Tensor, updates: Tensor, use_locking: bool = False) -> Tensor:
    """`tensor_scatter_mul` on `input_x` itself, which is returned. `use_locking` has no effect."""
    return _in_place_nd(input_x, indices, updates, "mul", "scatter_nd_mul")


def scatter_nd_div(input_x: Tensor, indices: Tensor, updates: Tensor, use_locking: bool = False) -> Tensor:
    """`tensor_scatter_div` on `input_x` itself, which is returned. `use_locking` has no effect."""
    return _in_place_nd(input_x, indices, updates, "div", "scatter_nd_div")


def scatter_nd_max(input_x: Tensor, indices: Tensor, updates: Tensor, use_locking: bool = False) -> Tensor:
    """`tensor_scatter_max` on `input_x` itself, which is returned. `use_locking` has no effect."""
    return _in_place_nd(input_x, indices, updates, "max", "scatter_nd_max")


def scatter_nd_min(input_x: Tensor, indices: Tensor, updates: Tensor, use_locking: bool = False) -> Tensor:
    """`tensor_scatter_min` on `input_x` itself, which is returned. `use_locking` has no effect."""
    return _in_place_nd(input_x, indices, updates, "min", "scatter_nd_min")


def put_slices(x: Tensor, axis: int, index: Tensor, updates: Tensor, kind: str, function: str) -> Tensor:
    """A copy of x with `updates` combined into its slices along `axis` at the 1-D `index`."""
    want = (*x.shape[:axis], *index.shape, *x.shape[axis + 1 :])
    if index.ndim != 1 or updates.shape != want:
        raise ShapeError(f"{function}: an index of shape {index.shape} wants updates of shape {want}, but they have {updates.shape}")
    check_range(index, x.shape[axis], function)
    return apply1(Scatter((axis,), kind), x, index, _same(x, updates, function))


def index_add(x: Tensor, indices: Tensor, y: Tensor, axis: int, use_lock: bool = True, check_index_bound: bool = True) -> Tensor:
    """Adds the slices of `y` along `axis` to those of `x` itself at the 1-D `indices` and returns x. The flags have no effect.

    Raises:
        TypeError: no Tensors, indices that are no integers, y of another dtype. ValueError: shapes that do not fit. IndexError: out of range.
    """
    target, at = tensor_of(x, "index_add", "x"), indices_of(indices, "index_add", "indices")
    k = normalize_axis(axis, target.ndim, "index_add")
    write(target, put_slices(target, k, at, tensor_of(y, "index_add", "y"), "add", "index_add"))
    return unchanged(target)


def index_fill(x: Tensor, axis: int, index: Tensor, value: Any) -> Tensor:
    """A copy of x with its slices along `axis` at `index` filled with `value`, a number or a scalar Tensor.

    Raises:
        TypeError: no Tensors, an index that holds no integers. ValueError: axis out of range, value no scalar. IndexError: out of range.
    """
    t, at = tensor_of(x, "index_fill", "x"), indices_of(index, "index_fill", "index")
    k, v = normalize_axis(axis, t.ndim, "index_fill"), cast(as_tensor(value, "value", "index_fill"), t.dtype)
    if v.ndim or at.ndim > 1:
        raise ShapeError(f"index_fill: value must be a scalar and index 1-D, but their shapes are {v.shape} and {at.shape}")
    check_range(at, t.shape[k], "index_fill")
    rows = reshaped(at, (at.size,))
    return apply1(Scatter((k,), "update"), t, rows, broadcast(v, (*t.shape[:k], at.size, *t.shape[k + 1 :])))


def select_scatter(input: Tensor, src: Tensor, axis: int, index: int) -> Tensor:
    """A copy of `input` with `src` in the place of its slice `index` along `axis`.

    Raises:
        TypeError: no Tensors or ints. ValueError: shapes that do not fit. IndexError: index out of range.
    """
    x, k = tensor_of(input, "select_scatter"), normalize_axis(axis, tensor_of(input, "select_scatter").ndim, "select_scatter")
    u = tensor_of(src, "select_scatter", "src")
    if u.shape != x.shape[:k] + x.shape[k + 1 :]:
        raise ShapeError(f"select_scatter: src must have the shape {x.shape[:k] + x.shape[k + 1 :]}, but has {u.shape}")
    return tensor_setitem(x, (*[slice(None)] * k, int_of(index, "select_scatter", "index")), u)


def slice_scatter(input: Tensor, src: Tensor, axis: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Tensor:
    """A copy of `input` with `src` in the place of its slice start:end:step along `axis`.

    Raises:
        TypeError: no Tensors or ints. ValueError: shapes that do not fit.
    """
    x = tensor_of(input, "slice_scatter")
    k = normalize_axis(axis, x.ndim, "slice_scatter")
    return tensor_setitem(x, (*[slice(None)] * k, slice(start, end, step)), tensor_of(src, "slice_scatter", "src"))


# -- segments ------------------------------------------------------------------------------------------------------------------
def _segments(x: Any, segment_ids: Any, num_segments: Any, function: str, kind: str, start: float | int) -> Tensor:
    """Combines the slices of x by segment. A negative id drops its slice."""
    t, ids = tensor_of(x, function, "x"), indices_of(segment_ids, function, "segment_ids")
    count = int_of(num_segments, function, "num_segments")
    if count <= 0:
        raise ArgumentValueError(f"{function}: num_segments must be positive, but is {count}")
    if ids.ndim == 0 or t.shape[: ids.ndim] != ids.shape:
        raise ShapeError(f"{function}: segment_ids of shape {ids.shape} must be the leading dimensions of x, whose shape is {t.shape}")
    values = known_array(ids)
    if values is not None and values.size and int(values.max()) >= count:
        raise DataIndexError(f"{function}: a segment id is {int(values.max())}, but there are {count} segments")
    rest = t.shape[ids.ndim :]
    if values is None or (values < 0).any():
        dropped = less(ids, zeros_like(ids))
        t = select(broadcast(reshaped(dropped, ids.shape + (1,) * len(rest)), t.shape), full_like(t, start), t)
        ids = select(dropped, zeros_like(ids), ids)
        check_range(ids, count, function)
    rows = ids.size
    flat = reshaped(t, (rows, *rest))
    return apply1(Scatter((0,), kind), full((count, *rest), start, t.dtype), reshaped(ids, (rows,)), flat)


def unsorted_segment_sum(input_x: Tensor, segment_ids: Tensor, num_segments: int) -> Tensor:
    """Row i of the result is the sum of the slices of `input_x` whose segment id is i; a negative id drops its slice.

    `segment_ids` has the leading dimensions of `input_x`. Result: (num_segments, *remaining dimensions).

    Raises:
        TypeError: no Tensors, ids that are no integers. ValueError: shapes that do not fit, num_segments not positive. IndexError: an id too large.
    """
    return _segments(input_x, segment_ids, num_segments, "unsorted_segment_sum", "add", 0)


def unsorted_segment_prod(x: Tensor, segment_ids: Tensor, num_segments: int) -> Tensor:
    """The products of the slices of each segment; 1 where there is none. See `unsorted_segment_sum`."""
    return _segments(x, segment_ids, num_segments, "unsorted_segment_prod", "mul", 1)


def unsorted_segment_max(x: Tensor, segment_ids: Tensor, num_segments: int) -> Tensor:
    """The largest of the slices of each segment; the least number of the dtype where there is none. See `unsorted_segment_sum`."""
    return _segments(x, segment_ids, num_segments, "unsorted_segment_max", "max", _bound(x, "unsorted_segment_max", "min"))


def unsorted_segment_min(x: Tensor, segment_ids: Tensor, num_segments: int) -> Tensor:
    """The smallest of the slices of each segment; the largest number of the dtype where there is none. See `unsorted_segment_sum`."""
    return _segments(x, segment_ids, num_segments, "unsorted_segment_min", "min", _bound(x, "unsorted_segment_min", "max"))


def _bound(x: Any, function: str, end: str) -> float | int:
    dtype = tensor_of(x, function, "x").dtype
    if dtype.is_bool:
        raise DTypeError(f"{function}: x must hold numbers, but is Bool")
    return float(getattr(dt.finfo(dtype), end)) if dtype.is_float else int(getattr(np.iinfo(dtype.np_type), end))
