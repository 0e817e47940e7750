"""`x[index]` and `x[index] = value` as functions, with numpy's semantics.

Enters: a Tensor and an index made of ints, slices, `...`, None, bools, lists, arrays and Tensors (integers or Bool). Leaves: a new Tensor.
A list that holds anything else than numbers counts as a tuple.
An index is first taken apart into a `Plan`: one strided slice, one gather of index Tensors, one permutation. Refuses: indices that are
known to be out of range (IndexError); taking by a Bool Tensor whose values are not known yet, since the result's shape depends on them.
"""

from __future__ import annotations

import builtins
import math
import weakref
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from graphcell import dtype as dt
from graphcell.errors import ArgumentTypeError, ConcretizationError, DataIndexError, IndexRangeError, ShapeError
from graphcell.ir.types import Shape
from graphcell.ops.arithmetic import Add
from graphcell.ops.dispatch import apply, apply1, write, written_in
from graphcell.ops.functional.axes import int_of, known_array, plain_number
from graphcell.ops.functional.common import NUMBER_TYPES, as_tensor, broadcast, broadcast_shapes, cast, constant, full, select
from graphcell.ops.functional.creation import another, deepcopy
from graphcell.ops.functional.movement import permuted, reshaped
from graphcell.ops.host import CheckIndex
from graphcell.ops.indexing import Gather, Scatter, ScatterElements
from graphcell.ops.movement import Slice, UpdateSlice
from graphcell.records import dataclass
from graphcell.tensor import Tensor

__all__ = ["tensor_getitem", "tensor_setitem"]

EVERYTHING = builtins.slice(None)
BOUNDS = "index_bounds"


# -- compositions for internal use ------------------------------------------------------------------------------------
def scatter_sum(shape: Shape, axes: tuple[int, ...], indices: tuple[Tensor, ...], updates: Tensor, unique: bool = False) -> Tensor:
    """Zeros of `shape` to which the updates are added (half precision in float32): the transpose of `Gather`."""
    wide = cast(updates, dt.float32) if updates.dtype.is_float and updates.dtype.bits == 16 else updates
    return cast(apply1(Scatter(axes, "add", unique), full(shape, 0, wide.dtype), *indices, wide), updates.dtype)


def scatter_elements_sum(shape: Shape, axis: int, index: Tensor, updates: Tensor, unique: bool = False) -> Tensor:
    """Zeros of `shape` to which the updates are added (half precision in float32): the transpose of `GatherElements`."""
    wide = cast(updates, dt.float32) if updates.dtype.is_float and updates.dtype.bits == 16 else updates
    return cast(apply1(ScatterElements(axis, "add", unique), full(shape, 0, wide.dtype), index, wide), updates.dtype)


def check_range(index: Tensor, extent: int, what: str) -> None:
    """Raises an IndexError (and RuntimeError) if a value of `index` is outside of [-extent, extent): now if the values are known, else
    when the graph runs, unless it is known that all values are inside (`bounded_index`).
    """
    values = known_array(index)
    if values is None:
        low, high = index.__dict__.get(BOUNDS, (-math.inf, math.inf))
        if index.size and not (-extent <= low and high < extent) and extent <= np.iinfo(index.dtype.np_type).max:
            apply(CheckIndex(extent, what), index)
        return
    if values.size == 0:
        return
    low, high = int(values.min()), int(values.max())
    if low < -extent or high >= extent:
        raise DataIndexError(f"{what}: index {low if low < -extent else high} is out of range for a dimension of {extent} elements")


def check_classes(labels: Tensor, classes: int, owner: str) -> None:
    """Raises an IndexError, as `check_range` does, if a class number is outside of [0, classes)."""
    check_range(select(labels < 0, full(labels.shape, classes, labels.dtype), labels), classes, f"{owner}: labels (negative ones count as {classes})")


def bounded_index(index: Tensor, low: int, high: int) -> Tensor:
    """Another Tensor with the value of `index`, known to lie in [low, high]: a loop's index need not be checked in every iteration."""
    same = another(index)
    same.__dict__[BOUNDS] = (low, high)
    return same


def place_of(index: int, shape: Shape, k: int) -> int:
    """The place that an int stands for in dimension `k` of `shape`.

    Raises:
        IndexError: out of range.
    """
    extent = shape[k]
    if not -extent <= index < extent:
        raise IndexRangeError(f"index {index} is out of range for dimension {k} of shape {shape}")
    return index % extent


# -- an index, taken apart ------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Plan:
    """An index as steps: slice x by `cut`, reshape to `core`, gather `indices` along `axes`, permute, reshape to `result`."""

    cut: Slice
    core: Shape
    axes: tuple[int, ...]
    indices: tuple[Tensor, ...]
    perm: tuple[int, ...]
    result: Shape
    unique: bool

    @property
    def gathered(self) -> Shape:
        """The shape between gather and permutation."""
        if not self.axes:
            return self.core
        rest = tuple(d for k, d in enumerate(self.core) if k > self.axes[0] and k not in self.axes)
        return (*self.core[: self.axes[0]], *self.indices[0].shape, *rest)

    def takes_all(self, x: Tensor) -> bool:
        """True if the slice is all of x, in order."""
        return self.cut.size == x.shape and all(s == 1 for s in self.cut.step)


@dataclass(frozen=True)
class Mask:
    """A Bool Tensor (of one dimension at least) in an index, before it is turned into index Tensors."""

    values: Tensor


def _item(item: Any) -> Any:
    """One entry of an index in a canonical form: int, bool, slice, Ellipsis, None, integer Tensor, or Mask.

    Raises:
        IndexError: for anything else.
    """
    if item is None or item is Ellipsis or isinstance(item, (bool, builtins.slice)):
        return item
    if isinstance(item, np.bool_):
        return bool(item)
    if isinstance(item, (int, np.integer)):
        return int(item)
    if isinstance(item, (list, tuple, range, np.ndarray)):
        item = _array(item)
    if not isinstance(item, Tensor) or not (item.dtype.is_integer or item.dtype.is_bool):
        kind = f"a Tensor of {item.dtype}" if isinstance(item, Tensor) else f"{item!r} of type {type(item).__name__}"
        raise IndexRangeError(f"a Tensor is indexed by ints, slices, `...`, None, bools, lists, and Tensors of integers or Bool, not by {kind}")
    if item.ndim:
        return Mask(item) if item.dtype.is_bool else item
    known = known_array(item)
    if known is None:
        return Mask(item) if item.dtype.is_bool else item
    return bool(known) if item.dtype.is_bool else int(known)


def _array(item: Any) -> Tensor:
    if isinstance(item, range) or (not isinstance(item, np.ndarray) and len(item) == 0):
        return constant(np.asarray(item, np.int64))
    try:
        return as_tensor(item)
    except (TypeError, ValueError):
        raise IndexRangeError(f"a list in an index must hold integers or bools, but is {item!r}") from None


def _entries(index: Any) -> tuple[Any, ...]:
    """What stands for the dimensions: a list of other things than numbers counts as a tuple, as MindSpore has it."""
    if isinstance(index, tuple):
        return index
    if isinstance(index, list) and not all(isinstance(i, NUMBER_TYPES) for i in index):
        return tuple(index)
    return (index,)


def _items(index: Any, rank: int, shape: Shape) -> list[Any]:
    """The entries of `index`, canonical, with slices in the place of `...` (which stays as a marker) and of what is left out."""
    items = [_item(i) for i in _entries(index)]
    used = sum(_consumed(i) for i in items)
    if used > rank:
        raise IndexRangeError(f"too many indices: {used} for a Tensor of shape {shape}")
    ellipses = [k for k, i in enumerate(items) if i is Ellipsis]
    if len(ellipses) > 1:
        raise IndexRangeError("an index can have one `...` only")
    if not ellipses:
        return items + [EVERYTHING] * (rank - used)
    return items[: ellipses[0] + 1] + [EVERYTHING] * (rank - used) + items[ellipses[0] + 1 :]


def _consumed(item: Any) -> int:
    """How many dimensions of x an entry stands for."""
    if item is None or item is Ellipsis or isinstance(item, bool):
        return 0
    return item.values.ndim if isinstance(item, Mask) else 1


def _slice_bounds(cut: builtins.slice, extent: int) -> tuple[int, int, int]:
    """start, size and step of a slice of a dimension.

    Raises:
        TypeError: bounds that are no ints. ValueError: a step of 0.
    """
    bounds = [None if b is None else int_of(b, "slice", what) for b, what in ((cut.start, "start"), (cut.stop, "stop"), (cut.step, "step"))]
    if bounds[2] == 0:
        raise ShapeError("slice: the step must not be 0")
    start, stop, step = builtins.slice(*bounds).indices(extent)
    size = len(range(start, stop, step))
    return (start, size, step) if size else (0, 0, 1)


def _mask_indices(mask: Tensor, dims: Shape) -> list[Tensor]:
    """The index Tensors of the places where a mask is True.

    Raises:
        ValueError: the mask's shape is not that of the dimensions it stands for. RuntimeError: its values are not known yet.
    """
    if mask.shape != dims:
        raise ShapeError(f"a Bool index of shape {mask.shape} does not fit the dimensions {dims} that it stands for")
    values = known_array(mask)
    if values is None:
        raise ConcretizationError(
            "a Tensor is indexed by a Bool Tensor while the graph is being built; the shape of the result depends on its values",
            hint="use ops.select or ops.where, multiply by the mask, or do this outside of the compiled function",
        )
    return [Tensor.of_array(places) for places in np.nonzero(values)]


class _Planner:
    """Builds a `Plan` from canonical entries, one after another."""

    def __init__(self, extents: Shape, items: Sequence[Any]):
        self.extents, self.items = extents, items
        self.start: list[int] = []
        self.size: list[int] = []
        self.step: list[int] = []
        self.core: list[int] = []
        self.axes: list[int] = []
        self.indices: list[Tensor] = []
        self.unique = True
        # numpy: among index arrays, ints are index arrays too; `...`, slices and None between two of them move the result to the front
        self.has_arrays = any(isinstance(i, (bool, Mask)) or (isinstance(i, Tensor) and i.ndim) for i in items)
        self.layout: list[int | None] = []  # the extents of the result in the order of the entries; None: the indices' shape
        self.adjacent, self.closed = True, False

    def plan(self) -> Plan:
        for item in self.items:
            self.add(item)
        shape = self.indices_shape()
        indices = tuple(broadcast(t, shape) for t in self.indices)
        core, axes = tuple(self.core), tuple(self.axes)
        perm, result = self.order(len(shape)), self.result(shape)
        for k, t in zip(axes, indices, strict=True):
            if core[k] == 0 and t.size:
                raise IndexRangeError(f"nothing can be taken from dimension {k} of shape {core}; it is empty")
        return Plan(Slice(tuple(self.start), tuple(self.size), tuple(self.step)), core, axes, indices, perm, result, self.unique)

    def add(self, item: Any) -> None:
        if item is None:
            self.layout.append(1)
            self.close()
        elif item is Ellipsis:
            self.close()
        elif isinstance(item, bool):
            self.core.append(1)
            self.advanced([constant(np.zeros(int(item), np.int64))], [len(self.core) - 1])
        elif isinstance(item, builtins.slice):
            self.keep(*_slice_bounds(item, self.extents[len(self.start)]))
            self.layout.append(self.core[-1])
            self.close()
        elif isinstance(item, int):
            self.drop(item)
        elif isinstance(item, Mask):
            first = len(self.start)
            dims = self.extents[first : first + item.values.ndim]
            self.index(_mask_indices(item.values, dims))
        else:
            check_range(item, self.extents[len(self.start)], f"dimension {len(self.start)} of a Tensor")
            self.unique = self.unique and item.ndim == 0
            self.index([item])

    def close(self) -> None:
        """An entry that is no index array: another one after it is not adjacent."""
        self.closed = self.closed or bool(self.layout and None in self.layout)

    def keep(self, start: int, size: int, step: int) -> None:
        self.start.append(start)
        self.size.append(size)
        self.step.append(step)
        self.core.append(size)

    def drop(self, place: int) -> None:
        k = len(self.start)
        self.start.append(place_of(place, self.extents, k))
        self.size.append(1)
        self.step.append(1)
        if self.has_arrays:
            self.advanced([], [])

    def index(self, tensors: list[Tensor]) -> None:
        axes = []
        for _ in tensors:
            self.keep(0, self.extents[len(self.start)], 1)
            axes.append(len(self.core) - 1)
        self.advanced(tensors, axes)

    def advanced(self, tensors: list[Tensor], axes: list[int]) -> None:
        if self.closed:
            self.adjacent = False
        if None not in self.layout:
            self.layout.append(None)
        self.indices += tensors
        self.axes += axes

    def indices_shape(self) -> Shape:
        try:
            return broadcast_shapes("index", *(t.shape for t in self.indices)) if self.indices else ()
        except ShapeError:
            shapes = " and ".join(str(t.shape) for t in self.indices)
            raise IndexRangeError(f"index Tensors of shapes {shapes} cannot be broadcast together") from None

    def order(self, inner: int) -> tuple[int, ...]:
        """The permutation that brings the gathered dimensions into the result's order."""
        rank = len(self.core) - len(self.axes) + inner
        if self.adjacent or not self.axes:
            return tuple(range(rank))
        before = self.axes[0]
        return (*range(before, before + inner), *range(before), *range(before + inner, rank))

    def result(self, shape: Shape) -> Shape:
        kept = [(d,) if d is not None else shape if self.adjacent else () for d in self.layout]
        flat = tuple(d for part in kept for d in part)
        return flat if self.adjacent else shape + flat


def plan_index(x: Tensor, index: Any) -> Plan:
    """Takes an index apart.

    Raises:
        IndexError: an entry of another kind, too many entries, or known to be out of range. ValueError: a Bool Tensor of another shape.
        RuntimeError: a Bool Tensor whose values are not known while the graph is being built.
    """
    entries = _entries(index)
    plain = _plain(entries)
    if plain is not None:
        return _plan_of(x.shape, plain)
    planner = _Planner(x.shape, _items(index, x.ndim, x.shape))
    try:
        return planner.plan()
    except IndexRangeError as e:
        if any(isinstance(i, Tensor) for i in entries):
            raise DataIndexError(e.message) from None
        raise


_BOUNDS = (int, type(None))


def _plain(entries: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Entries that are ints, slices of such, `...` and None, with tuples for slices: they can be hashed. None if there are others."""
    key: list[Any] = []
    for e in entries:
        if type(e) is builtins.slice and type(e.start) in _BOUNDS and type(e.stop) in _BOUNDS and type(e.step) in _BOUNDS:
            key.append((e.start, e.stop, e.step))
        elif type(e) is int or e is None or e is Ellipsis:
            key.append(e)
        else:
            return None
    return tuple(key)


@lru_cache(maxsize=4096)
def _plan_of(shape: Shape, plain: tuple[Any, ...]) -> Plan:
    """The plan of such an index of a Tensor of `shape`."""
    index = tuple([builtins.slice(*e) if type(e) is tuple else e for e in plain])
    return _Planner(shape, _items(index, len(shape), shape)).plan()


# -- taking -------------------------------------------------------------------------------------------------------------------
def _core(x: Tensor, plan: Plan) -> Tensor:
    return reshaped(x if plan.takes_all(x) else apply1(plan.cut, x), plan.core)


def tensor_getitem(x: Tensor, index: Any) -> Tensor:
    """x[index], as numpy has it.

    Raises:
        IndexError: an entry of another kind, too many entries, or an index known to be out of range. ValueError: a Bool Tensor that does not
        fit. RuntimeError: a Bool Tensor whose values are not known while the graph is being built.
    """
    plan = plan_index(x, index)
    y = _core(x, plan)
    if plan.axes:
        y = apply1(Gather(plan.axes), y, *plan.indices)
    return reshaped(permuted(y, plan.perm), plan.result)


def is_basic(index: Any) -> bool:
    """True for an index of ints, integer scalars, slices, `...` and None: what it takes is one block of the Tensor."""
    return all(
        i is None or i is Ellipsis or isinstance(i, (builtins.slice, np.integer))
        or (isinstance(i, int) and not isinstance(i, bool))
        or (isinstance(i, Tensor) and i.ndim == 0 and i.dtype.is_integer)
        for i in _entries(index)
    )  # fmt: skip


def getitem(x: Tensor, index: Any) -> Tensor:
    """The operator x[index]. What a basic index gives remembers where it is from: a later write into it reaches x, as in numpy."""
    y = tensor_getitem(x, index)
    if y is not x and is_basic(index):
        y.__dict__["_part_of"] = (weakref.ref(y), x, index)
    return y


def setitem(x: Tensor, index: Any, value: Any) -> None:
    """The operator x[index] = value: a new value for x, and for the Tensor that x is a part of."""
    write(x, tensor_setitem(written_in(x), index, value))
    itself, whole, part = x.__dict__.get("_part_of", (None, None, None))
    if itself is not None and itself() is x:  # not in a copy
        setitem(whole, part, tensor_setitem(tensor_getitem(whole, part), index, value))


# -- writing ------------------------------------------------------------------------------------------------------------------
def _value(value: Any, x: Tensor) -> Tensor:
    if not isinstance(value, (Tensor, *NUMBER_TYPES, list, tuple, np.ndarray)):
        raise ArgumentTypeError(f"x[index] = value: value must be a number, Tensor, list or tuple, but is {type(value).__name__}")
    if isinstance(value, NUMBER_TYPES):
        return full((), plain_number(value), x.dtype)
    return cast(as_tensor(value), x.dtype)


def _fit(value: Tensor, shape: Shape) -> Tensor:
    """`value` broadcast to `shape`; leading extents of 1 that are too many are left out."""
    while value.ndim > len(shape) and value.shape[0] == 1:
        value = reshaped(value, value.shape[1:])
    rank = len(shape)
    if value.ndim > rank or any(d not in (1, e) for d, e in zip(value.shape, shape[rank - value.ndim :], strict=True)):
        raise ShapeError(f"x[index] = value: a value of shape {value.shape} cannot be broadcast to the shape {shape} of x[index]")
    return broadcast(value, shape)


def tensor_setitem(x: Tensor, index: Any, value: Any) -> Tensor:
    """x with value, converted to its dtype and broadcast, at x[index]. Where an index occurs twice the last value wins.

    Raises:
        IndexError, RuntimeError: as `tensor_getitem`. TypeError: value is no number, Tensor, list or tuple. ValueError: it does not broadcast.
    """
    new = _value(value, x)
    masked = _set_masked(x, index, new)
    return tensor_combine(x, index, new, "update") if masked is None else masked


def tensor_combine(x: Tensor, index: Any, value: Any, kind: str) -> Tensor:
    """x with `value` written ("update") or added ("add") at x[index]; where an index occurs twice all values are added.

    Raises:
        IndexError, RuntimeError, TypeError, ValueError: as `tensor_setitem`.
    """
    new = _value(value, x)
    plan = plan_index(x, index)
    new = _fit(new, plan.result)
    if new.size == 0:
        return x
    gathered = plan.gathered
    new = reshaped(new, tuple(gathered[p] for p in plan.perm))
    new = permuted(new, tuple(plan.perm.index(k) for k in range(len(plan.perm))))
    if plan.axes:
        new = apply1(Scatter(plan.axes, kind, plan.unique), _core(x, plan), *plan.indices, new)
    elif kind == "add":
        new = apply1(Add(), _core(x, plan), new)
    new = reshaped(new, plan.cut.size)
    if plan.takes_all(x):
        return new if plan.axes or kind == "add" else deepcopy(new)  # not the memory of the value
    return apply1(UpdateSlice(plan.cut.start, plan.cut.step), x, new)


def _set_masked(x: Tensor, index: Any, value: Tensor) -> Tensor | None:
    """The case of one mask among slices, ints and None, and a value that is the same at all places of the mask: a select.

    None if it is another case.
    """
    items = _items(index, x.ndim, x.shape)
    at = [k for k, i in enumerate(items) if isinstance(i, Mask)]
    if len(at) != 1 or any(isinstance(i, (bool, Tensor)) for i in items):
        return None
    mask: Tensor = items[at[0]].values
    before, after = items[: at[0]], items[at[0] + 1 :]
    rest = sum(i is None or isinstance(i, builtins.slice) for i in after)
    lead = sum(i is None or isinstance(i, builtins.slice) for i in before)
    if lead and any(isinstance(i, int) for i in items):
        return None  # ints count as index arrays beside the mask, whose dimension may then come first
    if value.ndim > rest and value.shape[value.ndim - rest - 1] != 1:
        return None
    basic = (*before, *[EVERYTHING] * mask.ndim, *after)
    plan = plan_index(x, basic)
    first = sum(_consumed(i) for i in before)
    if mask.shape != x.shape[first : first + mask.ndim]:
        raise ShapeError(f"a Bool index of shape {mask.shape} does not fit the dimensions of {x.shape} that it stands for")
    if value.ndim > rest:  # one extent of 1 stands for all places of the mask
        head, tail = value.shape[: value.ndim - rest - 1], value.shape[value.ndim - rest :]
        value = reshaped(value, head + (1,) * mask.ndim + tail)
    old = reshaped(permuted(_core(x, plan), plan.perm), plan.result)
    spread = reshaped(mask, (1,) * lead + mask.shape + (1,) * rest)
    new = select(broadcast(spread, old.shape), _fit(value, old.shape), old)
    return tensor_setitem(x, basic, new)
