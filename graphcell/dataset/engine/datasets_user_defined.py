"""Sources that users write: `GeneratorDataset`, `NumpySlicesDataset`, `PaddedDataset`; and `Schema`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np

from graphcell import dtype as dt
from graphcell.dataset.core.columns import Array, Row, as_array, user_error
from graphcell.dataset.core.run import Run
from graphcell.dataset.engine.batching import BatchInfo, BatchMap, as_batch, transpose
from graphcell.dataset.engine.checks import check_names, check_process_options, check_type
from graphcell.dataset.engine.pipeline import Blocks
from graphcell.dataset.engine.samplers import PKSampler, as_indices
from graphcell.dataset.engine.sources import MappableDataset
from graphcell.errors import ArgumentTypeError, ArgumentValueError, DatasetError


class Schema:
    """Names, dtypes and shapes of columns, for sources that are told so instead of `column_names`."""

    def __init__(self) -> None:
        self.columns: list[dict[str, Any]] = []

    def add_column(self, name: str, de_type: Any, shape: list[int] | None = None) -> None:
        """Adds a column. Raises TypeError: no name, or no dtype. ValueError: the column is there already."""
        check_type("name", name, str)
        if any(column["name"] == name for column in self.columns):
            raise ArgumentValueError(f"Schema: there is a column '{name}' already.")
        self.columns.append({"name": name, "type": dt.as_dtype(de_type), "shape": shape})


class GeneratorDataset(MappableDataset):
    """Rows that Python code makes.

    Args:
        source: an object with `__getitem__` and `__len__`, an iterable, an iterator, or a function that returns one of these (a
            generator function). A row is a tuple (or list) with a value for each column, or the value of the only one: numbers, lists,
            strings, numpy arrays, Tensors; Python's ints become int64, floats float64. Of a generator, and of other iterators of Python's own
            that can be gone through once, the rows are kept for further epochs (a `zip` is made a list now). Without `__len__`, rows are
            counted by going through them: an epoch without end needs `take` or `num_samples` to have a size.
        column_names: a name, or a list of them. schema: a `Schema` instead of it.
        column_types: the dtype that each column must have. Default: any.
        num_samples: at most so many rows. Default: all.
        num_parallel_workers: so many threads call `__getitem__`. Default 1.
        shuffle: rows in random order; only with `__getitem__`. Default None: True there.
        sampler, num_shards, shard_id: which rows, and in which order; only with `__getitem__`.
        python_multiprocessing, max_rowsize: checked only; workers are threads.
        batch_sampler: an iterable of lists of indices, each of which makes a batch; only with `__getitem__`.
        collate_fn: a function that gets the rows of such a batch as a list for each column, and gives a tuple of columns. Default: stacks them.

    Raises:
        TypeError, ValueError: arguments of other kinds, or that do not go together.
        RuntimeError: when rows are made: `source` raises, or a row does not fit the columns.
    """

    def __init__(
        self, source: Any, column_names: Any = None, column_types: Any = None, schema: Any = None, num_samples: int | None = None,
        num_parallel_workers: int | None = 1, shuffle: bool | None = None, sampler: Any = None, num_shards: int | None = None,
        shard_id: int | None = None, python_multiprocessing: bool = True, max_rowsize: Any = None, batch_sampler: Any = None,
        collate_fn: Callable[..., Any] | None = None,
    ):  # fmt: skip
        _check_source(source)
        check_process_options(python_multiprocessing, max_rowsize)
        self.source = _as_source(source)
        self._random_access = hasattr(source, "__getitem__") and hasattr(source, "__len__")
        names, types = _columns(column_names, column_types, schema)
        for name, value in (("sampler", sampler), ("num_shards", num_shards), ("batch_sampler", batch_sampler)):
            if value is not None and not self._random_access:
                raise ArgumentValueError(f"{name} is not supported if source does not have attribute '__getitem__'.")
        if batch_sampler is not None and any(x is not None for x in (num_samples, shuffle, num_shards, shard_id, sampler)):
            raise ArgumentValueError("batch_sampler is mutually exclusive with num_samples, shuffle, num_shards, shard_id and sampler.")
        if batch_sampler is not None and (isinstance(batch_sampler, str) or not isinstance(batch_sampler, Iterable)):
            raise ArgumentTypeError("batch_sampler should have __iter__: it gives a list of indices for each batch.")
        if batch_sampler is None and collate_fn is not None:
            raise ArgumentValueError("collate_fn can be specified only when batch_sampler is set.")
        if collate_fn is not None and not callable(collate_fn):
            raise ArgumentTypeError("collate_fn should be callable.")
        if isinstance(sampler, PKSampler):
            raise ArgumentValueError("GeneratorDataset doesn't support PKSampler.")
        super().__init__(names, num_samples, shuffle, sampler, num_shards, shard_id, num_parallel_workers)
        self._types = types
        self._batches: Any = _as_source(batch_sampler)
        self._collate = None if collate_fn is None else BatchMap(lambda *columns: collate_fn(*columns[:-1]), None, None, names, "collate_fn")

    # -- rows ------------------------------------------------------------------------------------------------------------
    def count(self) -> int:
        count = len(self.source)
        if not count:
            raise DatasetError("GeneratorDataset: data row of input source must not be 0, got: 0")
        return count

    def row(self, index: int) -> Row:
        try:
            return self._as_row(self.source[index])
        except Exception as e:
            raise user_error(e, "GeneratorDataset's source") from e

    def _as_row(self, value: Any) -> Row:
        row = tuple(map(as_array, value)) if isinstance(value, (tuple, list)) else (as_array(value),)
        if len(row) != len(self.columns):
            raise DatasetError(
                "the 'source' of 'GeneratorDataset' should return same number of NumPy arrays as specified in column_names, the size of column_names "
                f"is: {len(self.columns)} and number of returned NumPy array is: {len(row)}"
            )
        for name, wanted, found in zip(self.columns, self._types, row):
            if wanted is not None and found.dtype != wanted.np_type:
                raise DatasetError(
                    "type of returned data in 'GeneratorDataset' should be same with specified column_types, but column "
                    f"'{name}' is {found.dtype}, not {wanted.np_type}"
                )
        return row

    def rows(self, run: Run) -> Iterator[Row]:
        if self._batches is not None:
            return self._batched()
        return super().rows(run) if self._random_access else self._one_by_one()

    def _one_by_one(self) -> Iterator[Row]:
        try:
            made = self.source() if callable(self.source) else self.source
            for value in islice(iter(made), self.sampler.num_samples):
                yield self._as_row(value)
        except Exception as e:
            raise user_error(e, "GeneratorDataset's source") from e

    def _batched(self) -> Iterator[Row]:
        for number, indices in enumerate(self._index_batches()):
            columns: list[Any] = transpose([self.row(k) for k in indices])
            yield as_batch(self._collate(columns, BatchInfo(0, number)) if self._collate else columns, self.columns, None)

    def _index_batches(self) -> Iterator[list[int]]:
        try:
            for given in self._batches:
                indices = as_indices("batch_sampler", given)
                if not indices:
                    raise DatasetError("GeneratorDataset: batch_sampler gave no indices for a batch")
                yield indices
        except Exception as e:
            raise user_error(e, "batch_sampler") from e

    # -- questions -------------------------------------------------------------------------------------------------------
    def size(self, most: int) -> int | None:
        if self._batches is not None:
            return len(self._batches) if hasattr(self._batches, "__len__") else None
        return super().size(most) if self._random_access else None

    def get_batch_size(self) -> int:
        return 1 if self._batches is None else -1

    def is_shuffled(self) -> bool:
        return self._random_access and super().is_shuffled()

    def __getitem__(self, index: int) -> Any:
        """What the source has at `index`. Raises RuntimeError: it has less. TypeError: its rows are not known by index."""
        if not self._random_access:
            raise ArgumentTypeError("GeneratorDataset: the source has no attribute '__getitem__'")
        if not 0 <= index < len(self.source):
            raise DatasetError(f"Index [{index}] exceeded the number of data samples.")
        return self.source[index]

    def _split(self, starts: list[int], counts: list[int], randomize: bool) -> Any:
        by_index = self._random_access and self._batches is None
        return super()._split(starts, counts, randomize) if by_index else super(MappableDataset, self)._split(starts, counts, randomize)


class _Replayed:
    """The rows of an iterator that can be gone through once, and the error that ended it, kept: this can be gone through any number of times."""

    def __init__(self, rows: Iterator[Any]):
        self._rows, self._kept = rows, list[Any]()
        self._error: Exception | None = None
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[Any]:
        number = 0
        while self._has(number):
            yield self._kept[number]
            number += 1

    def _has(self, number: int) -> bool:
        with self._lock:
            if number < len(self._kept):
                return True
            if self._error is not None:
                raise self._error
            try:
                self._kept.extend(islice(self._rows, 1))
            except Exception as e:
                self._error = e
                raise
            return number < len(self._kept)


def _as_source(source: Any) -> Any:
    """A source that can be gone through any number of times, where that is known not to hold: of a class of the user's, `__iter__` may start anew."""
    if isinstance(source, zip):
        return list(source)
    return _Replayed(source) if isinstance(source, Iterator) and type(source).__module__ in ("builtins", "itertools") else source


def _check_source(source: Any) -> None:
    if isinstance(source, (str, bytes)) or not (callable(source) or isinstance(source, Iterable) or hasattr(source, "__getitem__")):
        raise ArgumentTypeError(
            "Input `source` function of GeneratorDataset should be callable, iterable or random accessible, commonly it should implement one of the "
            "method like yield, __getitem__ or __next__(__iter__)."
        )
    if hasattr(source, "__getitem__") and not hasattr(source, "__len__") and not callable(source):
        raise DatasetError("Attempt to construct a random access dataset, '__len__' method is required!")


def _columns(column_names: Any, column_types: Any, schema: Any) -> tuple[list[str], list[Any]]:
    if column_names is None and schema is None:
        raise ArgumentValueError("Neither columns_names nor schema are provided.")
    if column_names is not None and schema is not None:
        raise ArgumentValueError("Can only specify one of column_names and schema.")
    if schema is not None:
        check_type("schema", schema, Schema)
        return [c["name"] for c in schema.columns], [c["type"] for c in schema.columns]
    names = check_names("column_names", column_names)
    if column_types is None:
        return names, [None] * len(names)
    types = [dt.as_dtype(t) for t in check_type("column_types", column_types, list)]
    if len(types) != len(names):
        raise ArgumentValueError("The length of column_names and column_types should be the same.")
    return names, types


class NumpySlicesDataset(GeneratorDataset):
    """Rows of arrays or lists in memory.

    Args:
        data: an array or list (one column), a tuple of them, or a dict of them by name of column. Row k has element k of each.
        column_names: default: the names in the dict; else 'column_0', 'column_1', ….
        num_samples, num_parallel_workers, shuffle, sampler, num_shards, shard_id: as for `GeneratorDataset`.

    Raises:
        TypeError, ValueError: other data, columns of different lengths, or another number of names.
    """

    def __init__(
        self, data: Any, column_names: Any = None, num_samples: int | None = None, num_parallel_workers: int | None = 1, shuffle: bool | None = None,
        sampler: Any = None, num_shards: int | None = None, shard_id: int | None = None,
    ):  # fmt: skip
        check_type("data", data, (list, tuple, dict, np.ndarray))
        if isinstance(data, np.ndarray) and not data.ndim:
            raise ArgumentTypeError("Argument data should have a dimension of rows, but is an array without dimensions.")
        if not len(data):
            raise ArgumentValueError("Argument data cannot be empty")
        columns = list(data.values()) if isinstance(data, dict) else list(data) if isinstance(data, tuple) else [data]
        names = _slice_names(data, column_names, len(columns))
        slices = _Slices(columns)
        super().__init__(slices, names, None, None, num_samples, num_parallel_workers, shuffle, sampler, num_shards, shard_id)

    def blocks(self) -> Blocks:
        return Blocks(self.order, self.source.several) if self.source.are_arrays else super().blocks()


def _slice_names(data: Any, column_names: Any, count: int) -> list[str]:
    if column_names is None:
        return [str(name) for name in data] if isinstance(data, dict) else [f"column_{k}" for k in range(count)]
    names = check_names("column_names", column_names)
    if len(names) != count:
        raise ArgumentValueError(f"Num of input column names is {len(names)}, but required is {count} as data is {type(data).__name__}.")
    return names


class _Slices:
    """Columns side by side."""

    def __init__(self, columns: Sequence[Any]):
        if any(len(column) != len(columns[0]) for column in columns):
            raise ArgumentValueError("Data length in each column is not equal.")
        self.columns = [_as_column(column) for column in columns]
        self.are_arrays = all(isinstance(column, np.ndarray) for column in self.columns)

    def __len__(self) -> int:
        return len(self.columns[0])

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        return tuple(column[index] for column in self.columns)

    def several(self, indices: Sequence[int]) -> Row:
        """Those rows, stacked."""
        return tuple(column.take(indices, axis=0) for column in self.columns)


def _as_column(column: Any) -> Any:
    """An array for a list of equal things, so that batches need not be stacked; else the list."""
    if isinstance(column, np.ndarray):
        return as_array(column)
    kinds = {type(x) for x in column}
    if len(kinds) == 1 and kinds <= {bool, int, float, str}:
        return as_array(np.array(column))
    return column


class PaddedDataset(GeneratorDataset):
    """Rows given one by one as dicts from names of columns to arrays; they are appended to a dataset to fill up its shards.

    Raises:
        TypeError: no list of dicts. ValueError: an empty one.
    """

    def __init__(self, padded_samples: list[dict[str, Array]]):
        check_type("padded_samples", padded_samples, list)
        if not padded_samples:
            raise ArgumentValueError("padded_samples cannot be empty.")
        for sample in padded_samples:
            check_type("padded_samples", sample, dict)
        names = list(padded_samples[0])
        super().__init__([tuple(sample[name] for name in names) for sample in padded_samples], names, shuffle=False)
