"""Attaches the methods of `Tensor` whose arguments have other names or types than those of the function that they call, as in MindSpore.

Where MindSpore has two forms of a method (`index_select(axis, index)` and `index_select(dim, index)`), an argument may be given under either name.
"""

from __future__ import annotations

import builtins
from typing import Any

from graphcell.errors import ArgumentValueError
from graphcell.ops.functional import arithmetic, contraction, creation, diagonals, gathering, masking, movement, rearranging, sorting
from graphcell.ops.functional.axes import arguments, either, one_of
from graphcell.ops.functional.common import NUMBER_TYPES, as_tensor, cast
from graphcell.ops.methods import attach
from graphcell.tensor import Tensor


# -- arithmetic --------------------------------------------------------------------------------------------------------------
def multiply(self: Tensor, value: Any = None, *, other: Any = None) -> Tensor:
    """See `ops.multiply`."""
    return arithmetic.mul(self, one_of("multiply", value=value, other=other))


def true_divide(self: Tensor, other: Any = None, *, divisor: Any = None) -> Tensor:
    """See `ops.true_divide`."""
    return arithmetic.true_divide(self, one_of("true_divide", other=other, divisor=divisor))


def float_power(self: Tensor, other: Any = None, *, exponent: Any = None) -> Tensor:
    """See `ops.float_power`."""
    return arithmetic.float_power(self, one_of("float_power", other=other, exponent=exponent))


def isclose(
    self: Tensor, other: Any = None, rtol: builtins.float = 1e-05, atol: builtins.float = 1e-08, equal_nan: builtins.bool = False, *, x2: Any = None
) -> Tensor:
    """See `ops.isclose`."""
    return creation.isclose(self, one_of("isclose", other=other, x2=x2), rtol, atol, equal_nan)


def matmul(self: Tensor, other: Any = None, *, tensor2: Any = None) -> Tensor:
    """See `ops.matmul`."""
    return contraction.matmul(self, one_of("matmul", other=other, tensor2=tensor2))


def addr(self: Tensor, vec1: Tensor, vec2: Tensor, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """See `ops.addr`."""
    return contraction.addr(self, vec1, vec2, beta=beta, alpha=alpha)


# -- shape -------------------------------------------------------------------------------------------------------------------
def reshape(self: Tensor, *extents: Any, shape: Any = None) -> Tensor:
    """See `ops.reshape`; the extents may be given one by one."""
    return movement.reshape(self, _several("reshape", "shape", extents, shape))


def permute(self: Tensor, *order: Any, dims: Any = None) -> Tensor:
    """See `ops.permute`; the dimensions may be given one by one."""
    return movement.permute(self, _several("permute", "dims", order, dims))


def broadcast_to(self: Tensor, *extents: Any, shape: Any = None) -> Tensor:
    """See `ops.broadcast_to`; the extents may be given one by one."""
    return movement.broadcast_to(self, _several("broadcast_to", "shape", extents, shape))


def tile(self: Tensor, *counts: Any, dims: Any = None, reps: Any = None) -> Tensor:
    """See `ops.tile`; the counts may be given one by one."""
    return rearranging.tile(self, _several("tile", "dims", counts, either("tile", dims=dims, reps=reps)))


def squeeze(self: Tensor, *axes: Any, axis: Any = None) -> Tensor:
    """See `ops.squeeze`; the axes may be given one by one."""
    return movement.squeeze(self, either("squeeze", **{"axes one by one": arguments(axes) if axes and axes != (None,) else None, "axis": axis}))


def new_zeros(self: Tensor, *extents: Any, size: Any = None, dtype: Any = None) -> Tensor:
    """Zeros of shape `size`, whose extents may be given one by one; dtype: by default this Tensor's."""
    return creation.zeros(_several("new_zeros", "size", extents, size), self.dtype if dtype is None else dtype)


def new_ones(self: Tensor, *extents: Any, size: Any = None, dtype: Any = None) -> Tensor:
    """Ones of shape `size`, whose extents may be given one by one; dtype: by default this Tensor's."""
    return creation.ones(_several("new_ones", "size", extents, size), self.dtype if dtype is None else dtype)


def _several(function: str, name: str, given: tuple[Any, ...], named: Any) -> Any:
    """Numbers that are given one by one, as one tuple or list, or under a name.

    Raises:
        TypeError: given twice, or not at all.
    """
    if given and named is None:
        return arguments(given)
    return one_of(function, **{name: named, "numbers one by one": arguments(given) if given else None})


# -- indices -----------------------------------------------------------------------------------------------------------------
def index_select(self: Tensor, axis: Any = None, index: Any = None, *, dim: Any = None) -> Tensor:
    """See `ops.index_select`."""
    return gathering.index_select(self, one_of("index_select", axis=axis, dim=dim), one_of("index_select", index=index))


def index_add(
    self: Tensor, first: Any = None, second: Any = None, third: Any = None, use_lock: builtins.bool = True, check_index_bound: builtins.bool = True,
    *, indices: Any = None, y: Any = None, axis: Any = None, dim: Any = None, index: Any = None, source: Any = None, alpha: Any = 1,
) -> Tensor:  # fmt: skip
    """`index_add(indices, y, axis)`: see `ops.index_add`. `index_add(dim, index, source, *, alpha=1)`: the same with alpha * source for y.

    Both change the Tensor itself and return it.
    """
    if dim is None and not isinstance(first, builtins.int):
        at, addend = one_of("index_add", indices=indices, first=first), one_of("index_add", y=y, second=second)
        return gathering.index_add(self, at, addend, one_of("index_add", axis=axis, third=third), use_lock, check_index_bound)
    addend = one_of("index_add", source=source, third=third)
    scaled = addend if isinstance(alpha, builtins.int) and alpha == 1 else cast(arithmetic.mul(addend, alpha), addend.dtype)
    return gathering.index_add(self, one_of("index_add", index=index, second=second), scaled, one_of("index_add", dim=dim, first=first))


def reverse_sequence(self: Tensor, seq_lengths: Tensor, seq_dim: int = 0, batch_dim: int = 0) -> Tensor:
    """See `ops.reverse_sequence`."""
    return rearranging.reverse_sequence(self, seq_lengths, seq_dim, batch_dim)


def diag(self: Tensor, diagonal: int = 0) -> Tensor:
    """See `ops.diag`.

    Raises:
        ValueError: diagonal is not 0.
    """
    if diagonal != 0:
        raise ArgumentValueError(f"For 'Tensor.diag', the argument 'diagonal' should be '0', but got {diagonal}.")
    return diagonals.diag(self)


def masked_fill(self: Tensor, mask: Tensor, value: Any) -> Tensor:
    """See `ops.masked_fill`; a number is converted to the dtype of this Tensor, whatever it is."""
    return masking.masked_fill(self, mask, cast(as_tensor(value, "value", "masked_fill"), self.dtype) if isinstance(value, NUMBER_TYPES) else value)


def argsort(self: Tensor, axis: Any = None, descending: builtins.bool = False, stable: builtins.bool = False, *, dim: Any = None) -> Tensor:
    """See `ops.argsort`; the order of equal elements is kept in any case."""
    axes = {"axis": axis, "dim": dim}
    return sorting.argsort(self, -1 if axis is None and dim is None else one_of("argsort", **axes), descending)


attach((
    ("multiply", multiply), ("true_divide", true_divide), ("float_power", float_power), ("isclose", isclose), ("matmul", matmul),
    ("addr", addr), ("reshape", reshape), ("permute", permute), ("broadcast_to", broadcast_to), ("expand", broadcast_to), ("tile", tile),
    ("squeeze", squeeze), ("new_zeros", new_zeros), ("new_ones", new_ones), ("new_empty", new_zeros), ("index_select", index_select),
    ("index_add", index_add), ("reverse_sequence", reverse_sequence), ("diag", diag), ("argsort", argsort), ("masked_fill", masked_fill),
))  # fmt: skip
