"""`Dataset`, with the methods that add a step to a pipeline, and the steps.

A pipeline is made once and does nothing until an iterator is asked for rows; it can be gone through any number of times, and by several
iterators at once. Refused: names of columns that are not there, as soon as the step is made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from functools import partial
from itertools import chain, islice, takewhile
from typing import Any, TypeVar

from graphcell.dataset.callback.ds_callback import CallbackParam, Callbacks
from graphcell.dataset.core import config
from graphcell.dataset.core.columns import Row, as_array, user_error
from graphcell.dataset.core.run import Run, call_with_row
from graphcell.dataset.core.workers import in_order
from graphcell.dataset.engine.batching import BatchInfo, BatchMap, BatchSize, PadInfo, as_batch, check_batch_size, groups, transpose
from graphcell.dataset.engine.buckets import Buckets
from graphcell.dataset.engine.checks import check_count, check_int, check_names, check_type, check_workers, positions
from graphcell.dataset.engine.pipeline import Blocks, Pipeline
from graphcell.dataset.transforms.operation import TensorOperation
from graphcell.errors import ArgumentTypeError, ArgumentValueError, DatasetError, NotImplementedFeatureError

T = TypeVar("T")


class Shuffle(str, Enum):  # noqa: UP042 - prints as MindSpore's does
    """How far a source of several files is shuffled."""

    GLOBAL = "global"
    FILES = "files"
    INFILE = "infile"


class Dataset(Pipeline):
    """A step of a pipeline; each method adds another one behind it."""

    # -- steps -----------------------------------------------------------------------------------------------------------
    def map(
        self, operations: Any, input_columns: Any = None, output_columns: Any = None, num_parallel_workers: int | None = None, *,
        python_multiprocessing: bool = False, cache: Any = None, callbacks: Any = None, max_rowsize: Any = None, offload: Any = None,
    ) -> MapDataset:  # fmt: skip
        """Applies functions or transforms, one after the other, to the columns of each row.

        Args:
            operations: one or a list. Each gets the columns as arrays, and gives one value, or a tuple with one for each new column.
            input_columns: what the first operation gets. Default: the first column.
            output_columns: names of what the last one gives; these columns come first if there are more or fewer than before. Default:
                input_columns.
            num_parallel_workers: so many threads. Default: what `config.set_num_parallel_workers` said, else one.
            callbacks: a `DSCallback`, or a list of them; then rows are made in one thread.
            python_multiprocessing, cache, max_rowsize, offload: kept; workers are threads.

        Raises:
            TypeError, ValueError: arguments of other kinds. RuntimeError: there is no such column; an operation fails (when rows are made).
        """
        return MapDataset(self, operations, input_columns, output_columns, num_parallel_workers, callbacks)

    def batch(
        self, batch_size: BatchSize, drop_remainder: bool = False, num_parallel_workers: int | None = None, *, per_batch_map: Any = None,
        input_columns: Any = None, output_columns: Any = None, python_multiprocessing: bool = False, max_rowsize: Any = None,
    ) -> BatchDataset:  # fmt: skip
        """Stacks rows; the shapes and dtypes of a column must agree.

        Args:
            batch_size: an int, or a function of a `BatchInfo`.
            drop_remainder: leaves a smaller last batch out. Default False.
            num_parallel_workers: so many threads.
            per_batch_map: a function `(*columns, BatchInfo)` that gets each of `input_columns` (default: all) as a list of arrays, and gives
                a tuple with a list for each of `output_columns` (default: input_columns).
            python_multiprocessing, max_rowsize: kept; workers are threads.

        Raises:
            TypeError, ValueError: arguments of other kinds. RuntimeError: when batches are made, if rows do not fit each other.
        """
        if per_batch_map is None and (input_columns is not None or output_columns is not None):
            raise ArgumentValueError("input_columns can be specified only when per_batch_map is set.")
        mapped = None if per_batch_map is None else BatchMap(per_batch_map, input_columns, output_columns, self.columns)
        return BatchDataset(self, batch_size, drop_remainder, num_parallel_workers, mapped)

    def padded_batch(self, batch_size: BatchSize, drop_remainder: bool = False, num_parallel_workers: int | None = None, pad_info: Any = None) -> BatchDataset:
        """Stacks rows whose shapes differ, filled up first.

        Args:
            batch_size, drop_remainder, num_parallel_workers: as for `batch`.
            pad_info: `{column: (shape, value)}`: the shape (None, or None in it: the largest extent in the batch) and what fills it (None: 0).
                An empty dict pads all columns so; columns that are not named must have equal shapes.

        Raises:
            TypeError, ValueError: arguments of other kinds. RuntimeError: there is no such column; when batches are made.
        """
        padding = None if pad_info is None else PadInfo(pad_info, self.columns)
        return PaddedBatchDataset(self, batch_size, drop_remainder, num_parallel_workers, pad_info=padding)

    def bucket_batch_by_length(
        self, column_names: Any, bucket_boundaries: list[int], bucket_batch_sizes: list[int], element_length_function: Any = None,
        pad_info: Any = None, pad_to_bucket_boundary: bool = False, drop_remainder: bool = False,
    ) -> BucketBatchByLengthDataset:  # fmt: skip
        """Stacks rows of similar length: a batch is given as soon as a bucket is full, what is left over at the end.

        Args:
            column_names: what the length is taken of: the first extent of this column, or `element_length_function(*columns)`.
            bucket_boundaries: n lengths, ascending: a row goes into the first bucket whose boundary is larger than its length.
            bucket_batch_sizes: n + 1 sizes.
            pad_info: as for `padded_batch`. pad_to_bucket_boundary: pads open extents to the bucket's boundary less 1.
            drop_remainder: leaves buckets that are not full out.

        Raises:
            TypeError, ValueError: arguments that do not fit. RuntimeError: when batches are made.
        """
        padding = None if pad_info is None else PadInfo(pad_info, self.columns)
        places = positions(check_names("column_names", column_names), self.columns, "bucket_batch_by_length")
        buckets = Buckets(places, bucket_boundaries, bucket_batch_sizes, element_length_function, padding, pad_to_bucket_boundary, drop_remainder)
        return BucketBatchByLengthDataset(self, buckets)

    def shuffle(self, buffer_size: int) -> ShuffleDataset:
        """Gives rows in random order, each drawn from the next `buffer_size` ones. Raises TypeError or ValueError: no int above 1."""
        return ShuffleDataset(self, buffer_size)

    def repeat(self, count: int | None = None) -> RepeatDataset:
        """Gives all rows `count` times in an epoch; None or -1: without end. Raises TypeError or ValueError for other counts."""
        return RepeatDataset(self, count)

    def take(self, count: int = -1) -> TakeDataset:
        """Gives the first `count` rows; -1: all. Raises TypeError or ValueError for other counts."""
        return TakeDataset(self, count)

    def skip(self, count: int) -> SkipDataset:
        """Leaves the first `count` rows out. Raises TypeError or ValueError for other counts."""
        return SkipDataset(self, count)

    def zip(self, datasets: Any) -> ZipDataset:
        """Gives the columns of this and of another dataset, or a tuple of them, side by side, as many rows as the shortest has."""
        check_type("datasets", datasets, (tuple, Dataset))
        return ZipDataset((self, *(datasets if isinstance(datasets, tuple) else (datasets,))))

    def concat(self, datasets: Any) -> ConcatDataset:
        """Gives the rows of this, then those of another dataset or a list of them.

        Raises:
            TypeError: no dataset. RuntimeError: other columns; other dtypes, when rows are made.
        """
        check_type("datasets", datasets, (list, Dataset))
        return ConcatDataset([self, *(datasets if isinstance(datasets, list) else [datasets])])

    def __add__(self, datasets: Any) -> ConcatDataset:
        return self.concat(datasets)

    def project(self, columns: Any) -> ProjectDataset:
        """Keeps these columns, in this order. Raises RuntimeError: there is no such column."""
        return ProjectDataset(self, columns)

    def _projected(self, names: list[str]) -> Pipeline:
        return self.project(names)

    def rename(self, input_columns: Any, output_columns: Any) -> RenameDataset:
        """Gives columns other names. Raises ValueError: numbers differ. RuntimeError: no such column, or the new name exists."""
        return RenameDataset(self, input_columns, output_columns)

    def filter(self, predicate: Callable[..., Any], input_columns: Any = None, num_parallel_workers: int | None = None) -> FilterDataset:
        """Keeps the rows for which `predicate(*input_columns)` is true (default: all columns)."""
        return FilterDataset(self, predicate, input_columns, num_parallel_workers)

    def flat_map(self, func: Callable[..., Any]) -> Dataset:
        """Joins the datasets that `func` makes of each row's arrays. It is called for all rows at once, now.

        Raises:
            TypeError: `func` is no function, or gives something else.
        """
        if not callable(func):
            raise ArgumentTypeError("flat_map: func must be a function.")
        parts: list[Dataset] = []
        for row in self.create_tuple_iterator(num_epochs=1, output_numpy=True):
            parts.append(func(*row))
            if not isinstance(parts[-1], Dataset):
                raise ArgumentTypeError("flat_map must return a Dataset object.")
        if not parts:
            raise DatasetError("flat_map: the dataset has no rows")
        return parts[0].concat(parts[1:]) if len(parts) > 1 else parts[0]

    def apply(self, apply_func: Callable[[Dataset], Any]) -> Dataset:
        """`apply_func` of this dataset.

        Raises:
            TypeError: `apply_func` is no function, or gives no dataset.
        """
        if not callable(apply_func):
            raise ArgumentTypeError("apply_func must be a function.")
        result: object = apply_func(self)
        if not isinstance(result, Dataset):
            raise ArgumentTypeError("apply_func must return a dataset.")
        return result

    def split(self, sizes: Sequence[int] | Sequence[float], randomize: bool = True) -> list[Dataset]:
        """Divides the rows among several datasets, the same rows in every epoch.

        Args:
            sizes: numbers of rows, or fractions that sum up to 1.
            randomize: rows are drawn at random. Default True.

        Raises:
            ValueError: neither, or fractions with another sum. RuntimeError: numbers with another sum than the number of rows.
        """
        counts = _split_sizes(sizes, self.get_dataset_size())
        check_type("randomize", randomize, bool)
        starts = [sum(counts[:k]) for k in range(len(counts))]
        return self._split(starts, counts, randomize)

    def _split(self, starts: list[int], counts: list[int], randomize: bool) -> list[Dataset]:
        source = _FixedOrder(self) if randomize else self
        return [source.skip(start).take(count) if start else source.take(count) for start, count in zip(starts, counts)]

    # -- what there is not -----------------------------------------------------------------------------------------------
    def save(self, file_name: str, num_files: int = 1, file_type: str = "mindrecord") -> None:
        """Not supported: there are no MindRecord files here. Raises NotImplementedError."""
        raise NotImplementedFeatureError("Dataset.save: MindRecord files are not supported", hint="numpy.savez keeps the arrays of an iterator")

    def to_json(self, filename: str = "") -> dict[str, Any]:
        """Not supported. Raises NotImplementedError."""
        raise NotImplementedFeatureError("Dataset.to_json: pipelines are not written down here")


def zip_datasets(datasets: tuple[Dataset, ...]) -> ZipDataset:
    """Gives the columns of several datasets side by side, as many rows as the shortest one has.

    Raises:
        TypeError: no tuple of datasets. ValueError: fewer than two. RuntimeError: two columns have one name.
    """
    check_type("datasets", datasets, tuple)
    return ZipDataset(datasets)


def _split_sizes(sizes: Any, total: int) -> list[int]:
    check_type("sizes", sizes, (list, tuple))
    if not sizes:
        raise ArgumentValueError("sizes cannot be empty.")
    if all(isinstance(s, int) and not isinstance(s, bool) for s in sizes):
        if any(s < 1 for s in sizes):
            raise ArgumentValueError("sizes should be positive integers.")
        if sum(sizes) != total:
            raise DatasetError(f"Sum of split sizes {sum(sizes)} is not equal to dataset size {total}.")
        return list(sizes)
    if not all(isinstance(s, float) for s in sizes):
        raise ArgumentValueError("sizes should be list of int or list of float.")
    if any(not 0 < s <= 1 for s in sizes) or abs(sum(sizes) - 1) > 1e-9:
        raise ArgumentValueError("sizes is a list of float, but the percentages do not sum up to 1.")
    counts = [round(s * total) for s in sizes]
    for k in range(abs(total - sum(counts))):  # what rounding left over or took too much, one by one
        counts[k % len(counts)] += 1 if total > sum(counts) else -1
    if any(c < 1 for c in counts):
        raise DatasetError(f"split: a part of {total} rows would be empty, with sizes {list(sizes)}")
    return counts


# -- steps that choose among rows ------------------------------------------------------------------------------------------
class _OneToOne(Dataset):
    """A step that gives a row for each row, of the same arrays or some of them."""

    def size(self) -> int | None:
        return self.children[0].get_dataset_size()

    @property
    def makes_new_arrays(self) -> bool:
        return self.children[0].makes_new_arrays


class _Choice(_OneToOne):
    """A step that leaves rows as they are, and so works on what stands for them as well."""

    def __init__(self, child: Pipeline):
        super().__init__([child], child.columns)

    def chosen(self, source: Callable[[Run], Iterator[T]], run: Run) -> Iterator[T]:
        """What remains of the rows, or indices, that `source` gives."""
        raise NotImplementedFeatureError(f"{type(self).__name__} must define chosen(source, run)")

    def rows(self, run: Run) -> Iterator[Row]:
        return self.chosen(self.children[0].rows, run)

    def blocks(self) -> Blocks:
        below = self.children[0].blocks()
        return Blocks(partial(self.chosen, below.items), below.read)


class ShuffleDataset(_Choice):
    """Rows in random order, see `Dataset.shuffle`."""

    def __init__(self, input_dataset: Pipeline, buffer_size: int):
        super().__init__(input_dataset)
        self.buffer_size = check_int("buffer_size", buffer_size, 2)

    def chosen(self, source: Callable[[Run], Iterator[T]], run: Run) -> Iterator[T]:
        rng, rest = run.rng(self), source(run)
        waiting = list(islice(rest, self.buffer_size))
        if len(waiting) == self.buffer_size:
            for item in rest:
                place = int(rng.random() * self.buffer_size)
                yield waiting[place]
                waiting[place] = item
        for place in rng.permutation(len(waiting)).tolist():
            yield waiting[place]

    def is_shuffled(self) -> bool:
        return True


class RepeatDataset(_Choice):
    """All rows several times, see `Dataset.repeat`."""

    def __init__(self, input_dataset: Pipeline, count: int | None = None):
        super().__init__(input_dataset)
        self.count = -1 if count is None else check_count(count)

    def chosen(self, source: Callable[[Run], Iterator[T]], run: Run) -> Iterator[T]:
        turn = 0
        while turn != self.count:
            turn += 1
            empty = True
            for item in source(run):
                empty = False
                yield item
            if empty:
                return

    def size(self) -> int | None:
        return self.children[0].get_dataset_size() * max(self.count, 1)

    def get_repeat_count(self) -> int:
        return self.count

    @property
    def endless(self) -> bool:
        return self.count == -1 or super().endless


class TakeDataset(_Choice):
    """The first rows, see `Dataset.take`."""

    def __init__(self, input_dataset: Pipeline, count: int):
        super().__init__(input_dataset)
        self.count = check_count(count)

    def chosen(self, source: Callable[[Run], Iterator[T]], run: Run) -> Iterator[T]:
        return source(run) if self.count == -1 else islice(source(run), self.count)

    def size(self) -> int | None:
        if self.count == -1:
            return self.children[0].get_dataset_size()
        return self.count if self.children[0].endless else min(self.count, self.children[0].get_dataset_size())

    @property
    def endless(self) -> bool:
        return self.count == -1 and super().endless


class SkipDataset(_Choice):
    """All but the first rows, see `Dataset.skip`."""

    def __init__(self, input_dataset: Pipeline, count: int):
        super().__init__(input_dataset)
        self.count = check_int("count", count, 0)

    def chosen(self, source: Callable[[Run], Iterator[T]], run: Run) -> Iterator[T]:
        return islice(source(run), self.count, None)

    def size(self) -> int | None:
        return max(self.children[0].get_dataset_size() - self.count, 0)


class _FixedOrder(_Choice):
    """All rows in an order that is drawn once, for `Dataset.split`."""

    def __init__(self, input_dataset: Pipeline):
        super().__init__(input_dataset)
        self._order = Run().rng(self).permutation(input_dataset.get_dataset_size()).tolist()

    def chosen(self, source: Callable[[Run], Iterator[T]], run: Run) -> Iterator[T]:
        items = list(source(run))
        return (items[k] for k in self._order)

    def size(self) -> int | None:
        return len(self._order)


# -- steps that change rows ------------------------------------------------------------------------------------------------
class ProjectDataset(_OneToOne):
    """Some of the columns, see `Dataset.project`."""

    def __init__(self, input_dataset: Pipeline, columns: Any):
        names = check_names("columns", columns)
        self._places = positions(names, input_dataset.columns, "project")
        super().__init__([input_dataset], names)

    def rows(self, run: Run) -> Iterator[Row]:
        return map(self._kept, self.children[0].rows(run))

    def _kept(self, row: Sequence[Any]) -> Row:
        return tuple(row[k] for k in self._places)

    def blocks(self) -> Blocks:
        below = self.children[0].blocks()
        return Blocks(below.items, lambda items: self._kept(below.read(items)))


class RenameDataset(_OneToOne):
    """Columns with other names, see `Dataset.rename`."""

    def __init__(self, input_dataset: Pipeline, input_columns: Any, output_columns: Any):
        before, after = check_names("input_columns", input_columns), check_names("output_columns", output_columns)
        if len(before) != len(after):
            raise ArgumentValueError("Number of column in input_columns and output_columns is not equal.")
        names = list(input_dataset.columns)
        for place, name in zip(positions(before, names, "rename"), after):
            names[place] = name
        if len(set(names)) != len(names):
            raise DatasetError(f"rename: a column would get the name of another one: {names}")
        super().__init__([input_dataset], names)

    def rows(self, run: Run) -> Iterator[Row]:
        return self.children[0].rows(run)

    def blocks(self) -> Blocks:
        return self.children[0].blocks()


def _layout(columns: Sequence[str], inputs: Sequence[int], outputs: Sequence[str]) -> list[tuple[str, int | None, int]]:
    """The columns after a `map`: for each its name, and which of the values made it is, or else (None) which column of the row.

    As many values as there were inputs stand in their places, others before all columns. Columns with the names of outputs go.
    """
    made = [(name, k, 0) for k, name in enumerate(outputs)]
    stay = {k: (name, None, k) for k, name in enumerate(columns) if k not in inputs and name not in outputs}
    if len(made) != len(inputs):
        return [*made, *stay.values()]
    placed = stay | dict(zip(inputs, made))
    return [placed[k] for k in sorted(placed)]


class MapDataset(Dataset):
    """Functions applied to the columns of each row, see `Dataset.map`."""

    def __init__(
        self, input_dataset: Pipeline, operations: Any = None, input_columns: Any = None, output_columns: Any = None,
        num_parallel_workers: int | None = None, callbacks: Any = None,
    ):  # fmt: skip
        self.operations = list(operations) if isinstance(operations, (list, tuple)) else [operations]
        if not self.operations:
            raise DatasetError("map: no 'operations' are specified")
        for operation in self.operations:
            if not callable(operation):
                raise ArgumentValueError(
                    "Parameter operations's element of method map should be a python function or class method which should be callable, but got: "
                    f"{operation}. It doesn't need parentheses for python function or class method."
                )
        columns = input_dataset.columns
        self._inputs = columns[:1] if input_columns is None else check_names("input_columns", input_columns)
        self._outputs = self._inputs if output_columns is None else check_names("output_columns", output_columns)
        self._places = positions(self._inputs, columns, "map")
        self._layout = _layout(columns, self._places, self._outputs)
        names = [name for name, _, _ in self._layout]
        super().__init__([input_dataset], names)
        self._workers = check_workers(num_parallel_workers)
        self._callbacks = None if callbacks is None else Callbacks(callbacks)

    def rows(self, run: Run) -> Iterator[Row]:
        return self._mapped(self.operations, run)

    def _mapped(self, operations: Sequence[Any], run: Run) -> Iterator[Row]:
        start = int(run.rng(self).integers(0, 2**63))
        keyed = (((start, k), row) for k, row in enumerate(self.children[0].rows(run)))
        mapped, workers = partial(self._row, operations), config.chosen_workers(self._workers)
        if self._callbacks is not None:
            return self._callbacks.around(mapped, keyed, run.kept(self, CallbackParam))
        return in_order(mapped, keyed, workers) if workers > 1 else map(mapped, keyed)

    def _row(self, operations: Sequence[Any], keyed: tuple[tuple[int, int], Row]) -> Row:
        key, row = keyed
        made = call_with_row(key, partial(self._applied, operations), tuple(row[k] for k in self._places))
        if len(made) != len(self._outputs):
            raise DatasetError(
                "map: the number of columns returned in 'map' operations should match the number of 'output_columns', but got the number of columns "
                f"returned in 'map' operations: {len(made)}, the number of 'output_columns': {len(self._outputs)}"
            )
        return self._arranged(made, row)

    def _arranged(self, made: Sequence[Any], row: Sequence[Any]) -> Row:
        """The new columns, and those of the row that stay."""
        return tuple(row[k] if position is None else made[position] for _, position, k in self._layout)

    def _applied(self, operations: Sequence[Any], values: Row) -> Row:
        operation = None
        try:
            for operation in operations:
                made = operation(*values)
                values = made if isinstance(made, tuple) else (made,)
            return tuple(map(as_array, values))
        except Exception as e:
            raise user_error(e, f"map operation [{getattr(operation, '__name__', type(operation).__name__)}]") from e

    def blocks(self) -> Blocks:
        """The last transforms, if they treat all rows alike, are applied to many rows at once; those before them to each row."""
        alike = list(takewhile(lambda f: isinstance(f, TensorOperation) and f.takes_rows, reversed(self.operations)))[::-1]
        in_place = len(self._places) == len(self._outputs) == 1 and len(self._layout) == len(self.children[0].columns)
        if not alike or not in_place or self._callbacks is not None:
            return super().blocks()
        each = self.operations[: -len(alike)]
        below = super().blocks() if each else self.children[0].blocks()
        return Blocks(partial(self._mapped, each) if each else below.items, lambda items: self._several(alike, below.read(items)))

    def _several(self, operations: Sequence[TensorOperation], columns: Sequence[Any]) -> Sequence[Any]:
        column = columns[self._places[0]]
        for operation in operations:
            column = [operation.compute(x, 0) for x in column] if isinstance(column, list) else operation.compute(column, 1)
        return self._arranged([column], columns)

    def size(self) -> int | None:
        return self.children[0].get_dataset_size()


class FilterDataset(Dataset):
    """The rows for which a function is true, see `Dataset.filter`."""

    def __init__(self, input_dataset: Pipeline, predicate: Callable[..., Any], input_columns: Any = None, num_parallel_workers: int | None = None):
        if not callable(predicate):
            raise ArgumentTypeError("Predicate should be a Python function or a callable Python object.")
        names = input_dataset.columns if input_columns is None else check_names("input_columns", input_columns)
        super().__init__([input_dataset], input_dataset.columns)
        self._predicate, self._places = predicate, positions(names, input_dataset.columns, "filter")
        self._workers = check_workers(num_parallel_workers)

    def rows(self, run: Run) -> Iterator[Row]:
        workers = config.chosen_workers(self._workers)
        rows = self.children[0].rows(run)
        judged = in_order(self._judged, rows, workers) if workers > 1 else map(self._judged, rows)
        return (row for row, kept in judged if kept)

    def _judged(self, row: Row) -> tuple[Row, bool]:
        try:
            return row, bool(self._predicate(*(row[k] for k in self._places)))
        except Exception as e:
            raise user_error(e, "filter predicate") from e


class BatchDataset(Dataset):
    """Rows stacked, see `Dataset.batch`."""

    def __init__(
        self, input_dataset: Pipeline, batch_size: BatchSize, drop_remainder: bool = False, num_parallel_workers: int | None = None,
        mapped: BatchMap | None = None, pad_info: PadInfo | None = None,
    ):  # fmt: skip
        super().__init__([input_dataset], mapped.columns if mapped else input_dataset.columns)
        self.batch_size = check_batch_size(batch_size)
        self.drop_remainder = bool(check_type("drop_remainder", drop_remainder, bool))
        self._workers, self._map, self._pad = check_workers(num_parallel_workers), mapped, pad_info

    def rows(self, run: Run) -> Iterator[Row]:
        by_row = self._map is not None or self._pad is not None
        below = Blocks(self.children[0].rows, transpose) if by_row else self.children[0].blocks()
        batch, workers = partial(self._batch, below.read), config.chosen_workers(self._workers)
        batches = groups(below.items(run), self.batch_size, self.drop_remainder, run.epoch)
        return in_order(batch, batches, workers) if workers > 1 else map(batch, batches)

    def _batch(self, read: Callable[[Sequence[Any]], Sequence[Any]], batch: tuple[list[Any], BatchInfo]) -> Row:
        items, info = batch
        columns = read(items)
        return as_batch(self._map(list(columns), info) if self._map else columns, self.columns, self._pad)

    def size(self) -> int | None:
        if not isinstance(self.batch_size, int):
            return None
        below = self.children[0].get_dataset_size()
        return below // self.batch_size if self.drop_remainder else math.ceil(below / self.batch_size)

    def get_batch_size(self) -> int:
        return self.batch_size if isinstance(self.batch_size, int) else -1

    @property
    def makes_new_arrays(self) -> bool:
        return True


class PaddedBatchDataset(BatchDataset):
    """Rows padded and stacked, see `Dataset.padded_batch`."""


class BucketBatchByLengthDataset(Dataset):
    """Rows of similar length stacked, see `Dataset.bucket_batch_by_length`."""

    def __init__(self, input_dataset: Pipeline, buckets: Buckets):
        super().__init__([input_dataset], input_dataset.columns)
        self._buckets = buckets

    def rows(self, run: Run) -> Iterator[Row]:
        return self._buckets.batches(self.children[0].rows(run), self.columns)

    def get_batch_size(self) -> int:
        return -1

    @property
    def makes_new_arrays(self) -> bool:
        return True


# -- steps that join -------------------------------------------------------------------------------------------------------
class ZipDataset(Dataset):
    """Columns side by side, see `zip_datasets`."""

    def __init__(self, datasets: tuple[Dataset, ...]):
        for dataset in datasets:
            if not isinstance(dataset, Dataset):
                raise ArgumentTypeError(f"Parameter datasets to zip should be a tuple of Dataset, but one is {type(dataset)}.")
        if len(datasets) < 2:
            raise ArgumentValueError("Can't zip empty or just one dataset!")
        names = [name for dataset in datasets for name in dataset.columns]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise DatasetError(f"zip: duplicate columns {twice} when zipping datasets", hint="rename them first")
        super().__init__(datasets, names)

    def rows(self, run: Run) -> Iterator[Row]:
        parts = zip(*(child.rows(run) for child in self.children))
        return (tuple(chain.from_iterable(row)) for row in parts)

    def size(self) -> int | None:
        return min(child.get_dataset_size() for child in self.children if self.endless or not child.endless)

    @property
    def endless(self) -> bool:
        return all(child.endless for child in self.children)


class ConcatDataset(Dataset):
    """Rows of one dataset after those of another, see `Dataset.concat`."""

    def __init__(self, datasets: list[Dataset]):
        for dataset in datasets:
            if not isinstance(dataset, Dataset):
                raise ArgumentTypeError(f"Argument datasets should be a list of Dataset, but one is {type(dataset)}.")
            if dataset.columns != datasets[0].columns:
                raise DatasetError(
                    f"concat: 'column name' or 'column order' of concat datasets should be the same, but got {datasets[0].columns} and {dataset.columns}"
                )
        super().__init__(datasets, datasets[0].columns)

    def rows(self, run: Run) -> Iterator[Row]:
        types: list[Any] = []
        for child in self.children:
            for k, row in enumerate(child.rows(run)):
                if k == 0:
                    found = [getattr(x, "dtype", dict) for x in row]
                    types = types or found
                    self._check_types(types, found)
                yield row

    def _check_types(self, types: list[Any], found: list[Any]) -> None:
        for name, a, b in zip(self.columns, types, found):
            if a != b and (a is dict or b is dict or a.kind not in "SU" or a.kind != b.kind):
                raise DatasetError(f"concat: the data types of the datasets to be concatenated should be the same, but column '{name}' has {a} and {b}")

    def size(self) -> int | None:
        return sum(child.get_dataset_size() for child in self.children)

    def get_repeat_count(self) -> int:
        return 1
