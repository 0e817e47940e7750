"""Transforms of arrays of any kind, for `Dataset.map`. Each can also be called with an array, or anything that makes one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any

import numpy as np

from graphcell import dtype as dt
from graphcell.dataset.core.columns import Array, as_array, check_kind, pad_to
from graphcell.dataset.core.run import below, generator
from graphcell.dataset.engine.checks import check_int, check_type
from graphcell.dataset.transforms.operation import TensorOperation
from graphcell.errors import ArgumentTypeError, ArgumentValueError, DatasetError


class Relational(IntEnum):
    """Comparisons, for `Mask`."""

    EQ = 0
    NE = 1
    GT = 2
    GE = 3
    LT = 4
    LE = 5


_COMPARISONS: dict[Relational, Callable[..., Any]] = {
    Relational.EQ: np.equal, Relational.NE: np.not_equal, Relational.GT: np.greater, Relational.GE: np.greater_equal,
    Relational.LT: np.less, Relational.LE: np.less_equal,
}  # fmt: skip


class TypeCast(TensorOperation):
    """The same values with another dtype: one of mindspore's or numpy's."""

    takes_rows = True

    def __init__(self, data_type: Any):
        self.data_type = dt.as_dtype(data_type)

    def compute(self, x: Array, lead: int) -> Array:
        if x.dtype.kind in "SU":
            raise DatasetError(f"{type(self).__name__}: strings have no values of another dtype, but the input is {x.dtype}")
        with np.errstate(invalid="ignore"):  # NaN as an integer is any number
            return x.astype(self.data_type.np_type, copy=False)


class OneHot(TensorOperation):
    """Class numbers as vectors with a 1 in the class's place; with a smoothing rate s, 1 - s there, plus s / num_classes everywhere.

    A negative number has no class: its vector is 0.

    Args:
        num_classes: an int above 0. smoothing_rate: between 0 and 1. Default 0.0.

    Raises:
        TypeError, ValueError: other arguments. RuntimeError: called with no integers, or a number that is no class.
    """

    takes_rows = True

    def __init__(self, num_classes: int, smoothing_rate: float = 0.0):
        check_type("num_classes", num_classes, int)
        if num_classes < 1:
            raise ArgumentValueError("Input must be greater than 0.")
        self.num_classes, self.smoothing_rate = num_classes, fraction("smoothing_rate", smoothing_rate)

    def compute(self, x: Array, lead: int) -> Array:
        if x.dtype.kind not in "iu":
            raise DatasetError(f"OneHot: Only support input of int type, but got: {x.dtype}")
        if x.ndim - lead == 2 and x.shape[-1] == 1:
            x = x[..., 0]
        if x.ndim - lead > 1:
            raise DatasetError(f"OneHot: expected a number or a vector of class numbers, but got shape {x.shape[lead:]}")
        if x.size and x.max() >= self.num_classes:
            raise DatasetError(f"OneHot: index values should not bigger than num classes: {self.num_classes}, but got: {x.max()}")
        hot: Array = x[..., None] == np.arange(self.num_classes)
        if not self.smoothing_rate:
            return hot.astype(x.dtype)
        return np.asarray(hot * (1.0 - self.smoothing_rate) + self.smoothing_rate / self.num_classes)


class Fill(TensorOperation):
    """An array of the same shape and dtype, all of whose elements are `fill_value`."""

    takes_rows = True

    def __init__(self, fill_value: Any):
        self.fill_value = check_type("fill_value", fill_value, (str, bytes, float, bool, int))

    def compute(self, x: Array, lead: int) -> Array:
        check_kind("Fill: the fill_value", self.fill_value, x)
        return np.full(x.shape, self.fill_value, None if x.dtype.kind in "SU" else x.dtype)


class Concatenate(TensorOperation):
    """A vector between two given ones.

    Args:
        axis: 0 or -1. prepend, append: vectors of the input's dtype, or None.

    Raises:
        TypeError, ValueError: other arguments. RuntimeError: called with another dtype, or no vector.
    """

    def __init__(self, axis: int = 0, prepend: Any = None, append: Any = None):
        check_type("axis", axis, int)
        if axis not in (0, -1):
            raise ArgumentValueError("only 1D concatenation supported.")
        self._before, self._after = _vector("prepend", prepend), _vector("append", append)

    def compute(self, x: Array, lead: int) -> Array:
        parts = [part for part in (self._before, x, self._after) if part is not None]
        for part in parts:
            if part.ndim != 1 or (part.dtype != x.dtype and part.dtype.kind not in "SU"):
                raise DatasetError(f"Concatenate: expected vectors of one dtype, but got {[f'{p.dtype}{list(p.shape)}' for p in parts]}")
        return np.concatenate(parts)


class Duplicate(TensorOperation):
    """The input twice: for `map` with one column in and two out."""

    def compute(self, x: Array, lead: int) -> tuple[Array, Array]:
        return x, x.copy()


class Mask(TensorOperation):
    """Whether elements compare to a constant.

    Args:
        operator: one of `Relational`. constant: a number or string. dtype: of the result. Default bool.
    """

    takes_rows = True

    def __init__(self, operator: Relational, constant: Any, dtype: Any = dt.bool_):
        self._compare = _COMPARISONS[check_type("operator", operator, Relational)]
        self.constant = check_type("constant", constant, (str, float, bool, int, bytes))
        self.dtype = dt.as_dtype(dtype)

    def compute(self, x: Array, lead: int) -> Array:
        check_kind("Mask: the constant", self.constant, x)
        return np.asarray(self._compare(x, self.constant)).astype(self.dtype.np_type, copy=False)


class PadEnd(TensorOperation):
    """The input in the corner of an array of another shape; what is too much is cut off.

    Args:
        pad_shape: the extents; None: as it is. pad_value: what fills up. Default: 0, or the empty string.

    Raises:
        TypeError: other arguments. RuntimeError: called with another number of dimensions.
    """

    def __init__(self, pad_shape: Sequence[int | None], pad_value: Any = None):
        check_type("pad_shape", pad_shape, (list, tuple))
        for k, n in enumerate(pad_shape):
            if n is not None:
                check_int(f"pad_shape[{k}]", n, 1)
        self.pad_shape = list(pad_shape)
        self.pad_value = pad_value if pad_value is None else check_type("pad_value", pad_value, (str, float, bool, int, bytes))

    def compute(self, x: Array, lead: int) -> Array:
        if x.ndim != len(self.pad_shape):
            raise DatasetError(f"PadEnd: invalid pad shape, as rank of input is: {x.ndim}, and rank of pad value: {len(self.pad_shape)}")
        return pad_to(x, [m if n is None else n for n, m in zip(self.pad_shape, x.shape)], self.pad_value)


class Slice(TensorOperation):
    """Part of the input: for each dimension a slice, an int, a list of ints, None (all) or `...`. Dimensions stay, with extent 1 for an int."""

    def __init__(self, *slices: Any):
        for part in slices:
            is_list = isinstance(part, list) and all(isinstance(k, int) and not isinstance(k, bool) for k in part)
            if not (part is None or part is ... or isinstance(part, (slice, bool, int)) or is_list):
                raise ArgumentTypeError(f"Slice: expected slices, ints, lists of ints, None or ..., but got {part!r}")
        self._slices = slices

    def compute(self, x: Array, lead: int) -> Array:
        parts = [p for p in self._slices if p is not ...]
        if len(parts) > x.ndim or len(self._slices) - len(parts) > 1:
            raise DatasetError(f"Slice: {len(self._slices)} slices do not fit an input of shape {x.shape}")
        first = self._slices.index(...) if ... in self._slices else len(parts)
        axes = [*range(first), *range(x.ndim - len(parts) + first, x.ndim)]
        for axis, part in zip(axes, parts):
            x = self._along(x, axis, part)
        return x

    def _along(self, x: Array, axis: int, part: Any) -> Array:
        if part is None or part is True:
            return x
        if isinstance(part, slice):
            return x[(slice(None),) * axis + (part,)]
        try:
            return np.take(x, part if isinstance(part, list) else [int(part)], axis)
        except IndexError as e:
            raise DatasetError(f"Slice: index {part} is out of range for dimension {axis} of shape {x.shape}") from e


class Unique(TensorOperation):
    """The elements without repetition in the order of their first ones, where each is, and how often it comes (both int32)."""

    def compute(self, x: Array, lead: int) -> tuple[Array, Array, Array]:
        if x.ndim < 2:
            raise DatasetError(f"Unique: input must be at least 2-D in order to do unique op, got rank:{x.ndim}")
        values, first, inverse, counts = np.unique(x, return_index=True, return_inverse=True, return_counts=True)
        order = np.argsort(first, kind="stable")
        place = np.argsort(order, kind="stable")
        return values[order], place[inverse.reshape(-1)].astype(np.int32), counts[order].astype(np.int32)


# -- several at once -------------------------------------------------------------------------------------------------------
def _checked(transforms: Any) -> list[Any]:
    check_type("transforms", transforms, list)
    if not transforms:
        raise ArgumentValueError("transforms list can not be empty.")
    for k, transform in enumerate(transforms):
        if not callable(transform):
            raise ArgumentTypeError(f"transforms[{k}] is neither a transforms op (TensorOperation) nor a callable pyfunc.")
    return list(transforms)


def _apply(transforms: Sequence[Any], values: tuple[Any, ...]) -> Any:
    for transform in transforms:
        made = transform(*values)
        values = made if isinstance(made, tuple) else (made,)
    return values if len(values) > 1 else values[0]


class Compose(TensorOperation):
    """Transforms one after the other; a tuple that one gives is the arguments of the next.

    Raises:
        TypeError, ValueError: no list of functions and transforms.
    """

    def __init__(self, transforms: list[Any]):
        self.transforms = _checked(transforms)
        if all(isinstance(t, TensorOperation) and t.takes_rows for t in self.transforms):
            self.takes_rows = True

    def __call__(self, *inputs: Any) -> Any:
        return _apply(self.transforms, inputs)

    def compute(self, x: Array, lead: int) -> Array:
        for transform in self.transforms:
            x = transform.compute(x, lead)
        return x


class RandomApply(TensorOperation):
    """All transforms one after the other, or none of them; `prob` is the probability of all. Raises TypeError, ValueError for other arguments."""

    def __init__(self, transforms: list[Any], prob: float = 0.5):
        self.transforms, self.prob = _checked(transforms), fraction("prob", prob)

    def __call__(self, *inputs: Any) -> Any:
        return _apply(self.transforms if generator().random() < self.prob else (), tuple(map(as_array, inputs)))


class RandomChoice(TensorOperation):
    """One of the transforms. Raises TypeError, ValueError for other arguments."""

    def __init__(self, transforms: list[Any]):
        self.transforms = _checked(transforms)

    def __call__(self, *inputs: Any) -> Any:
        return _apply([self.transforms[below(len(self.transforms))]], inputs)


class RandomOrder(TensorOperation):
    """All transforms, in random order. Raises TypeError, ValueError for other arguments."""

    def __init__(self, transforms: list[Any]):
        self.transforms = _checked(transforms)

    def __call__(self, *inputs: Any) -> Any:
        return _apply([self.transforms[k] for k in generator().permutation(len(self.transforms))], inputs)


def fraction(name: str, value: Any) -> float:
    """`value` if it is a number from 0 to 1. Raises TypeError or ValueError."""
    check_type(name, value, (float, int))
    if not 0.0 <= value <= 1.0:
        raise ArgumentValueError(f"Input {name} is not within the required interval of [0.0, 1.0].")
    return float(value)


def _vector(name: str, value: Any) -> Array | None:
    if value is None:
        return None
    array = np.asarray(as_array(value))
    if array.ndim != 1:
        raise ArgumentValueError(f"can only {name} 1D arrays.")
    return array
