"""Attaches the methods of `Tensor` that change shapes, reduce, index and sort.

MindSpore's methods take two families of argument names, (dim, keepdim) and (axis, keepdims); both are taken here. A method whose
arguments are those of the public function is that function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphcell import dtype as dt
from graphcell.dtype import DType
from graphcell.errors import ArityError
from graphcell.ops.functional import contraction, movement, reductions
from graphcell.ops.functional.axes import arguments
from graphcell.ops.functional.common import cast
from graphcell.ops.methods import attach
from graphcell.tensor import Tensor

Function = Callable[..., Any]


def _either(function: str, first: Any, second: Any, names: str) -> Any:
    """The one of two arguments that mean the same which is given (None: neither)."""
    if first is not None and second is not None:
        raise ArityError(f"{function}: {names} mean the same; give one of them")
    return second if first is None else first


def _keep(function: str, first: Any, second: Any, names: str) -> bool:
    value = _either(function, first, second, names)
    return False if value is None else reductions.flag(value, function, names.split(" and ")[0])


# -- shape -----------------------------------------------------------------------------------------------------------------
def reshape(self: Tensor, *shape: Any) -> Tensor:
    """See `ops.reshape`; the extents may be given one by one."""
    return movement.reshape(self, arguments(shape))


def view(self: Tensor, *shape: Any) -> Tensor:
    """The same elements under another shape; with a dtype of the same size instead: the same bits as another type."""
    if len(shape) == 1 and isinstance(shape[0], DType):
        return movement.bitcast(self, shape[0])
    return movement.reshape(self, arguments(shape))


def view_as(self: Tensor, other: Tensor) -> Tensor:
    """The same elements under the shape of `other`."""
    return movement.reshape(self, other.shape)


def transpose(self: Tensor, *axes: Any) -> Tensor:
    """All dimensions reversed, two of them exchanged (two ints), or in the order given."""
    if not axes:
        return movement.permuted(self, tuple(reversed(range(self.ndim))))
    given = arguments(axes)
    if len(axes) == 2 and given is axes:
        return movement.swapaxes(self, *axes)
    return movement.transpose(self, given)


def permute(self: Tensor, *dims: Any) -> Tensor:
    """See `ops.permute`; the dimensions may be given one by one."""
    return movement.permute(self, arguments(dims))


def broadcast_to(self: Tensor, *shape: Any) -> Tensor:
    """See `ops.broadcast_to`; the extents may be given one by one."""
    return movement.broadcast_to(self, arguments(shape))


def expand_as(self: Tensor, other: Tensor) -> Tensor:
    """`self` repeated to the shape of `other`."""
    return movement.broadcast_to(self, other.shape)


def squeeze(self: Tensor, *axis: Any) -> Tensor:
    """See `ops.squeeze`."""
    return movement.squeeze(self, arguments(axis) if axis and axis != (None,) else None)


def flatten(self: Tensor, order: Any = "C", end_dim: int = -1, *, start_dim: int = 0) -> Tensor:
    """All dimensions, or those from `start_dim` to `end_dim`, as one; the first argument may be an order 'C' or 'F', or the start."""
    if not isinstance(order, str):
        order, start_dim = "C", order
    return movement.flatten(self, order, start_dim=start_dim, end_dim=end_dim)


def split(self: Tensor, split_size: Any = None, dim: Any = None, *, split_size_or_sections: Any = None, axis: Any = None) -> tuple[Tensor, ...]:
    """See `ops.split`."""
    size = _either("split", split_size, split_size_or_sections, "split_size and split_size_or_sections")
    return movement.split(self, size, _either("split", dim, axis, "dim and axis") or 0)


def chunk(self: Tensor, chunks: int, dim: Any = None, *, axis: Any = None) -> tuple[Tensor, ...]:
    """See `ops.chunk`."""
    return movement.chunk(self, chunks, _either("chunk", dim, axis, "dim and axis") or 0)


def narrow(self: Tensor, dim: Any = None, start: Any = None, length: Any = None, *, axis: Any = None) -> Tensor:
    """See `ops.narrow`."""
    return movement.narrow(self, _either("narrow", dim, axis, "dim and axis"), start, length)


def ndimension(self: Tensor) -> int:
    """The number of dimensions."""
    return self.ndim


# -- reductions ----------------------------------------------------------------------------------------------------------------
def sum(
    self: Tensor, dim: Any = None, keepdim: Any = None, keepdims: Any = None, initial: Any = None, *, dtype: Any = None, axis: Any = None
) -> Tensor:
    """See `ops.sum`. The second argument may be the dtype; `initial` is added to the sum."""
    if isinstance(keepdim, DType):
        keepdim, dtype = None, keepdim
    keep = _keep("sum", keepdim, keepdims, "keepdim and keepdims")
    y = reductions.sum(self, _either("sum", dim, axis, "dim and axis"), keep, dtype=dtype)
    return y if initial is None else cast(y + initial, y.dtype)  # type: ignore[operator]


def mean(self: Tensor, dim: Any = None, keepdim: Any = None, *, dtype: Any = None, axis: Any = None, keep_dims: Any = None) -> Tensor:
    """See `ops.mean`; with `dtype` the elements are converted first."""
    keep = _keep("mean", keepdim, keep_dims, "keepdim and keep_dims")
    return reductions.mean(self if dtype is None else cast(self, dtype), _either("mean", dim, axis, "dim and axis"), keep)


def prod(self: Tensor, dim: Any = None, keepdim: Any = None, dtype: Any = None, *, axis: Any = None, keep_dims: Any = None) -> Tensor:
    """See `ops.prod`."""
    keep = _keep("prod", keepdim, keep_dims, "keepdim and keep_dims")
    return reductions.prod(self, _either("prod", dim, axis, "dim and axis"), keep, dtype)


def all(self: Tensor, axis: Any = None, keep_dims: Any = None, *, dim: Any = None, keepdim: Any = None) -> Tensor:
    """See `ops.all`."""
    return reductions.all(self, _either("all", axis, dim, "axis and dim"), _keep("all", keep_dims, keepdim, "keep_dims and keepdim"))


def any(self: Tensor, axis: Any = None, keep_dims: Any = None, *, dim: Any = None, keepdim: Any = None) -> Tensor:
    """See `ops.any`."""
    return reductions.any(self, _either("any", axis, dim, "axis and dim"), _keep("any", keep_dims, keepdim, "keep_dims and keepdim"))


def _extremum(
    self: Tensor, dim: Any, keepdim: Any, axis: Any, keepdims: Any, initial: Any, where: Any, return_indices: bool, function: str
) -> Any:
    """(dim) gives values and indices; nothing, None, a tuple or (axis) gives values, with indices if asked for."""
    keep = _keep(function, keepdim, keepdims, "keepdim and keepdims")
    reduce, pair = (reductions.amax, reductions.max) if function == "max" else (reductions.amin, reductions.min)
    mask = None if where is True else where
    if isinstance(dim, int) and axis is None:
        return pair(self, dim, keep, initial=initial, where=mask)
    axis = _either(function, dim, axis, "dim and axis")
    if not return_indices:
        return reduce(self, axis, keep and axis is not None, initial=initial, where=mask)
    return pair(self, axis, keep, initial=initial, where=mask)


def max(
    self: Tensor, dim: Any = None, keepdim: Any = None, *, axis: Any = None, keepdims: Any = None, initial: Any = None, where: Any = True,
    return_indices: bool = False,
) -> Any:  # fmt: skip
    """The largest element; `max(dim)` gives the largest along `dim` and their indices, `max(axis=…)` the values only."""
    return _extremum(self, dim, keepdim, axis, keepdims, initial, where, return_indices, "max")


def min(
    self: Tensor, dim: Any = None, keepdim: Any = None, *, axis: Any = None, keepdims: Any = None, initial: Any = None, where: Any = True,
    return_indices: bool = False,
) -> Any:  # fmt: skip
    """The smallest element; `min(dim)` gives the smallest along `dim` and their indices, `min(axis=…)` the values only."""
    return _extremum(self, dim, keepdim, axis, keepdims, initial, where, return_indices, "min")


def argmax(self: Tensor, axis: Any = None, keepdims: Any = None, *, dim: Any = None, keepdim: Any = None) -> Tensor:
    """See `ops.argmax`."""
    k = _either("argmax", axis, dim, "axis and dim")
    return reductions.argmax(self, k, _keep("argmax", keepdims, keepdim, "keepdims and keepdim"))


def argmin(self: Tensor, axis: Any = None, keepdims: Any = None, *, dim: Any = None, keepdim: Any = None) -> Tensor:
    """The index (Int64) of the first smallest element along `axis`."""
    k = _either("argmin", axis, dim, "axis and dim")
    return cast(reductions.argmin(self, k, _keep("argmin", keepdims, keepdim, "keepdims and keepdim")), dt.int64)


def _spread(self: Tensor, axis: Any, ddof: Any, keepdims: Any, dim: Any, correction: Any, keepdim: Any, function: Function, name: str) -> Tensor:
    k = _either(name, axis, dim, "axis and dim")
    return function(self, k, ddof if correction is None else correction, _keep(name, keepdims, keepdim, "keepdims and keepdim"))  # type: ignore[no-any-return]


def var(self: Tensor, axis: Any = None, ddof: Any = 0, keepdims: Any = None, *, dim: Any = None, correction: Any = None, keepdim: Any = None) -> Tensor:
    """See `ops.var`; `correction` is another name of `ddof`."""
    return _spread(self, axis, ddof, keepdims, dim, correction, keepdim, reductions.var, "var")


def std(self: Tensor, axis: Any = None, ddof: Any = 0, keepdims: Any = None, *, dim: Any = None, correction: Any = None, keepdim: Any = None) -> Tensor:
    """See `ops.std`; `correction` is another name of `ddof`."""
    return _spread(self, axis, ddof, keepdims, dim, correction, keepdim, reductions.std, "std")


def count_nonzero(self: Tensor, dim: Any = None, keep_dims: bool = False, dtype: Any = dt.int32, *, axis: Any = None) -> Tensor:
    """See `ops.count_nonzero`."""
    return reductions.count_nonzero(self, _either("count_nonzero", dim, axis, "dim and axis"), keep_dims, dtype)


METHODS: tuple[tuple[str, Function], ...] = (
    ("reshape", reshape), ("view", view), ("view_as", view_as), ("reshape_as", view_as), ("transpose", transpose), ("permute", permute),
    ("broadcast_to", broadcast_to), ("expand", broadcast_to), ("expand_as", expand_as), ("squeeze", squeeze), ("flatten", flatten),
    ("expand_dims", movement.expand_dims), ("unsqueeze", movement.unsqueeze), ("swapaxes", movement.swapaxes),
    ("swapdims", movement.swapdims), ("moveaxis", movement.moveaxis), ("movedim", movement.movedim), ("ravel", movement.ravel),
    ("t", movement.t), ("split", split), ("chunk", chunk), ("narrow", narrow), ("unbind", movement.unbind),
    ("tensor_split", movement.tensor_split), ("hsplit", movement.hsplit), ("vsplit", movement.vsplit), ("dsplit", movement.dsplit),
    ("ndimension", ndimension), ("dim", ndimension), ("numel", movement.numel), ("nelement", movement.numel),
    ("sum", sum), ("mean", mean), ("prod", prod), ("all", all), ("any", any), ("max", max), ("min", min), ("argmax", argmax),
    ("argmin", argmin), ("var", var), ("std", std), ("count_nonzero", count_nonzero), ("nansum", reductions.nansum),
    ("nanmean", reductions.nanmean), ("amax", reductions.amax), ("amin", reductions.amin), ("aminmax", reductions.aminmax),
    ("matmul", contraction.matmul),
)  # fmt: skip

attach(METHODS)
