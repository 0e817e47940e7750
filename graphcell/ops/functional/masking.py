"""Public functions of Bool masks: filling, selecting, the places of True, one-hot rows.

Enters: Tensors and masks. Leaves: new Tensors. Refuses, while a graph is being built: results whose shape depends on values.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphcell import dtype as dt
from graphcell.errors import ArgumentTypeError, ArgumentValueError, ConcretizationError, DTypeError, ShapeError
from graphcell.ops.creation import Iota
from graphcell.ops.dispatch import apply1
from graphcell.ops.functional.axes import int_of, known_array, normalize_axis, tensor_of
from graphcell.ops.functional.common import as_tensor, broadcast, broadcast_shapes, cast, select
from graphcell.ops.functional.comparison import equal
from graphcell.ops.functional.gathering import indices_of
from graphcell.ops.functional.movement import reshaped
from graphcell.ops.indexing import Gather
from graphcell.ops.kernels import composite
from graphcell.tensor import Tensor

__all__ = [
    "argwhere",
    "masked_fill",
    "masked_select",
    "nonzero",
    "one_hot",
]


def _mask(x: Any, function: str) -> Tensor:
    mask = tensor_of(x, function, "mask")
    if not mask.dtype.is_bool:
        raise DTypeError(f"{function}: mask must be Bool, but is {mask.dtype}")
    return mask


@composite
def masked_fill(input_x: Tensor, mask: Tensor, value: Any) -> Tensor:
    """`value`, a number or scalar Tensor, where `mask` is True, else `input_x`; the two broadcast.

    Raises:
        TypeError: input_x no Tensor, mask not Bool, value no number that the dtype of input_x can hold. ValueError: value no scalar.
    """
    x, where = tensor_of(input_x, "masked_fill", "input_x"), _mask(mask, "masked_fill")
    v = as_tensor(value, "value", "masked_fill")
    if v.ndim:
        raise ShapeError(f"masked_fill: value must be a scalar, but its shape is {v.shape}")
    if v.dtype.category > x.dtype.category:
        raise DTypeError(f"masked_fill: a Tensor of {x.dtype} cannot hold a value of {v.dtype}")
    shape = broadcast_shapes("masked_fill", x.shape, where.shape)
    return select(where, broadcast(cast(v, x.dtype), shape), broadcast(x, shape))


def known_values(x: Tensor, function: str) -> np.ndarray[Any, Any]:
    """The values of a Tensor that decide the shape of a result.

    Raises:
        RuntimeError: they are not known while the graph is being built.
    """
    values = known_array(x)
    if values is None:
        raise ConcretizationError(
            f"{function}: the shape of the result depends on values that are not known while the graph is being built",
            hint="keep the shape (ops.select, masked_fill, multiply by the mask), or do this outside of the compiled function",
        )
    return values


def masked_select(input: Tensor, mask: Tensor) -> Tensor:
    """The elements where `mask` is True, as one dimension; the two broadcast. Eager mode only: the shape depends on the mask.

    Raises:
        TypeError: input no Tensor, mask not Bool. ValueError: shapes that do not broadcast. RuntimeError: the mask is not known yet.
    """
    x, where = tensor_of(input, "masked_select"), _mask(mask, "masked_select")
    shape = broadcast_shapes("masked_select", x.shape, where.shape)
    places = np.flatnonzero(np.broadcast_to(known_values(where, "masked_select"), shape))
    return apply1(Gather((0,)), reshaped(broadcast(x, shape), (math.prod(shape),)), Tensor.of_array(places))


def nonzero(input: Tensor, *, as_tuple: bool = False) -> Any:
    """The coordinates (Int64) of the elements that are not zero: shape (count, rank), or a tuple of rank Tensors. Eager mode only.

    Raises:
        TypeError: input is no Tensor. RuntimeError: its values are not known while the graph is being built.
    """
    x = tensor_of(input, "nonzero")
    values = known_values(x, "nonzero")
    shape = values.shape or (1,)
    places = np.unravel_index(np.flatnonzero(values), shape)  # of few elements in several dimensions numpy's `nonzero` takes several times as long
    if as_tuple:
        return tuple(Tensor.of_array(p) for p in places)
    return Tensor.of_array(np.stack(places, 1)[:, : values.ndim].astype(np.int64))


def argwhere(input: Tensor) -> Tensor:
    """The coordinates of the elements that are not zero: shape (count, rank). Eager mode only."""
    result: Tensor = nonzero(input)
    return result


@composite
def one_hot(indices: Tensor, depth: int, on_value: Any = 1, off_value: Any = 0, axis: int = -1) -> Tensor:
    """`on_value` where the index along a new dimension of extent `depth` at `axis` is that of `indices`, else `off_value`.

    An index outside of [0, depth) gives `off_value` everywhere.

    Raises:
        TypeError: indices no Tensor of integers, depth no int. ValueError: depth negative, axis out of range.
    """
    at = indices_of(indices, "one_hot", "indices")
    count = int_of(depth, "one_hot", "depth")
    if count < 0:
        raise ArgumentValueError(f"one_hot: depth must not be negative, but is {count}")
    k = normalize_axis(axis, at.ndim + 1, "one_hot")
    shape = (*at.shape[:k], count, *at.shape[k:])
    hit = equal(broadcast(reshaped(at, (*at.shape[:k], 1, *at.shape[k:])), shape), apply1(Iota(shape, k, at.dtype)))
    on, off = as_tensor(on_value, "on_value", "one_hot"), as_tensor(off_value, "off_value", "one_hot")
    if on.ndim or off.ndim:
        raise ArgumentTypeError(f"one_hot: on_value and off_value must be scalars, but their shapes are {on.shape} and {off.shape}")
    target = dt.promote(on.dtype, off.dtype)
    return select(hit, broadcast(cast(on, target), shape), broadcast(cast(off, target), shape))
