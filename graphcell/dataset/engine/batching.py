"""How batches are made of rows: sizes, what is done to a whole batch, padding, buckets."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np

from graphcell.dataset.core.columns import Array, NotForColumnsError, Row, as_array, pad, stack, user_error
from graphcell.dataset.engine.checks import check_names, check_type, positions
from graphcell.errors import ArgumentTypeError, ArgumentValueError, DatasetError


class BatchInfo:
    """What `batch_size` and `per_batch_map` functions are told: the number of the batch in its epoch, and of the epoch, both from 0."""

    def __init__(self, epoch: int, batch: int):
        self._epoch, self._batch = epoch, batch

    def get_batch_num(self) -> int:
        """The number of the batch in its epoch."""
        return self._batch

    def get_epoch_num(self) -> int:
        """The number of the epoch."""
        return self._epoch


BatchSize = int | Callable[[BatchInfo], int]


def groups(rows: Iterator[Any], size: BatchSize, drop_remainder: bool, epoch: int) -> Iterator[tuple[list[Any], BatchInfo]]:
    """`rows` in lists of `size`; the last one may be smaller, unless `drop_remainder`."""
    number = 0
    while True:
        info = BatchInfo(epoch, number)
        wanted = _asked_size(size, info)
        group = list(islice(rows, wanted))
        if not group or (drop_remainder and len(group) < wanted):
            return
        yield group, info
        number += 1


def _asked_size(size: BatchSize, info: BatchInfo) -> int:
    if isinstance(size, int):
        return size
    try:
        wanted = size(info)
    except Exception as e:
        raise user_error(e, "batch_size function") from e
    if isinstance(wanted, bool) or not isinstance(wanted, (int, np.integer)) or wanted < 1:
        raise DatasetError(f"batch: the batch_size function should return an int above 0, but it returned {wanted!r}")
    return int(wanted)


def check_batch_size(size: Any) -> BatchSize:
    """An int above 0, or a function. Raises TypeError or ValueError."""
    if callable(size):
        return size  # type: ignore[no-any-return]
    if isinstance(size, bool) or not isinstance(size, int):
        raise ArgumentTypeError("batch_size should either be an int or a callable.")
    if size < 1:
        raise ArgumentValueError(f"Input batch_size is not within the required interval of [1, 2147483647], but is {size}.")
    return size


class BatchMap:
    """A function over the lists of rows of some columns of a batch: `function(*lists, BatchInfo)` gives the new columns.

    Raises:
        TypeError, ValueError: no function, or no names. RuntimeError: there is no such column, or one of a new name.
    """

    def __init__(self, function: Callable[..., Any], inputs: Any, outputs: Any, columns: Sequence[str], name: str = "per_batch_map"):
        if not callable(function):
            raise ArgumentValueError(f"{name} should be callable.")
        self.function, self.name = function, name
        self.inputs = list(columns) if inputs is None else check_names("input_columns", inputs)
        self.outputs = self.inputs if outputs is None else check_names("output_columns", outputs)
        self.places = positions(self.inputs, columns, "batch")
        self.rest = [k for k, column in enumerate(columns) if column not in self.inputs]
        keeps_order = len(self.outputs) == len(self.inputs) and outputs is None
        self.columns = list(columns) if keeps_order else [*self.outputs, *(columns[k] for k in self.rest)]
        if len(set(self.columns)) != len(self.columns):
            raise DatasetError(f"batch: a column made by {name} would get the name of another one: {self.columns}")

    def __call__(self, columns: list[list[Array]], info: BatchInfo) -> list[Any]:
        """The columns of the batch in the order of `self.columns`: lists of rows, or arrays where the function gave whole ones."""
        try:
            made = self.function(*(columns[k] for k in self.places), info)
        except Exception as e:
            raise user_error(e, self.name) from e
        mapped = self._checked(made if isinstance(made, tuple) else (made,), len(columns[0]))
        if self.columns[: len(self.outputs)] == self.outputs:
            return [*mapped, *(columns[k] for k in self.rest)]
        result: list[Any] = list(columns)
        for place, column in zip(self.places, mapped):
            result[place] = column
        return result

    def _checked(self, made: tuple[Any, ...], rows: int) -> list[Any]:
        if len(made) != len(self.outputs):
            raise DatasetError(f"batch: the number of columns returned in '{self.name}' function should be {len(self.outputs)}, but got: {len(made)}")
        for name, column in zip(self.outputs, made):
            if isinstance(column, list) and len(column) != rows:
                raise DatasetError(
                    f"batch: a list returned in '{self.name}' function should have the {rows} rows of the batch, but that of column '{name}' has {len(column)}",
                    hint="an array may have any number of rows",
                )
        try:
            return [[as_array(x) for x in column] if isinstance(column, list) else np.array(as_array(column)) for column in made]
        except NotForColumnsError as e:
            raise user_error(e, f"batch: '{self.name}' function") from e


class PadInfo:
    """How the columns of a batch are padded: `{name: (shape or None, value)}`; empty: every column to its largest extents with 0."""

    def __init__(self, info: Any, columns: Sequence[str]):
        check_type("pad_info", info, dict)
        positions(list(info), columns, "padded_batch")
        for name, entry in info.items():
            if not isinstance(entry, tuple) or len(entry) != 2:
                raise ArgumentTypeError(f"pad_info['{name}'] should be a tuple (shape, value), but is {entry!r}")
        self.info = info or dict.fromkeys(columns, (None, None))

    def __call__(self, name: str, rows: list[Array]) -> list[Array]:
        if name not in self.info:
            return rows
        shape, value = self.info[name]
        return pad(rows, shape, value, name)

    def up_to(self, extent: int) -> PadInfo:
        """The same with `extent` in place of the largest extents."""
        made = copy.copy(self)
        made.info = {name: (None if shape is None else [extent if n is None else n for n in shape], value) for name, (shape, value) in self.info.items()}
        return made


def as_batch(columns: Sequence[Any], names: Sequence[str], pad_info: PadInfo | None) -> Row:
    """The columns of a batch as arrays."""
    return tuple(stack(pad_info(name, c) if pad_info else c, name) if isinstance(c, list) else c for name, c in zip(names, columns))


def transpose(rows: Sequence[Row]) -> list[list[Any]]:
    """Rows as columns."""
    return [list(column) for column in zip(*rows)]
