"""`Dataset`, with the methods that add a step to a pipeline, and the classes of the steps.

A pipeline is made once and does nothing until an iterator is asked for rows; it can be gone through any number of times, and by several
iterators at once. Refused: names of columns that are not there, as soon as the step is made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, NoReturn

from graphcell.dataset.engine.batching import BatchMap, BatchSize, PadInfo
from graphcell.dataset.engine.buckets import Buckets
from graphcell.dataset.engine.checks import check_names, check_no_cache, check_process_options, check_type, positions
from graphcell.dataset.engine.pipeline import Pipeline
from graphcell.dataset.engine.steps.batch import BatchStep, BucketBatchStep
from graphcell.dataset.engine.steps.choice import FixedOrderStep, RepeatStep, ShuffleStep, SkipStep, TakeStep
from graphcell.dataset.engine.steps.columns import FilterStep, MapStep, ProjectStep, RenameStep
from graphcell.dataset.engine.steps.join import ConcatStep, ZipStep
from graphcell.errors import ArgumentTypeError, ArgumentValueError, DatasetError, NotImplementedFeatureError
from graphcell.missing import refuse_member


class Shuffle(str, Enum):  # noqa: UP042 - prints as MindSpore's does
    """How far a source of several files is shuffled."""

    GLOBAL = "global"
    FILES = "files"
    INFILE = "infile"


_ABSENT = frozenset({
    "build_sentencepiece_vocab", "build_vocab", "copy_batch_size", "create_ir_tree", "device_que", "disable_sync", "get_init_step",
    "get_sync_notifiers", "is_sync", "iterator_bootstrap", "parse", "parse_tree", "post_parse", "pre_parse", "pre_process",
    "prepare_multiprocessing", "recv", "send", "set_init_step", "sync_update", "sync_wait",
})  # fmt: skip
"""Members of MindSpore's `Dataset` that are not here."""


class Dataset(Pipeline):
    """A step of a pipeline; each method adds another one behind it."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            refuse_member(self, name, _ABSENT)

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
            python_multiprocessing, max_rowsize, offload: checked only; workers are threads. cache: must be None.

        Raises:
            TypeError, ValueError: arguments of other kinds. NotImplementedError: a cache. RuntimeError: there is no such column; an operation fails
            (when rows are made).
        """
        check_process_options(python_multiprocessing, max_rowsize)
        check_no_cache(cache)
        if offload is not None:
            check_type("offload", offload, bool)
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
            python_multiprocessing, max_rowsize: checked only; workers are threads.

        Raises:
            TypeError, ValueError: arguments of other kinds. RuntimeError: when batches are made, if rows do not fit each other.
        """
        check_process_options(python_multiprocessing, max_rowsize)
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
        source = _FixedOrderDataset(self) if randomize else self
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


# -- the steps, with these methods -----------------------------------------------------------------------------------------
class ShuffleDataset(ShuffleStep, Dataset):
    """Rows in random order, see `Dataset.shuffle`."""


class RepeatDataset(RepeatStep, Dataset):
    """All rows several times, see `Dataset.repeat`."""


class TakeDataset(TakeStep, Dataset):
    """The first rows, see `Dataset.take`."""


class SkipDataset(SkipStep, Dataset):
    """All but the first rows, see `Dataset.skip`."""


class _FixedOrderDataset(FixedOrderStep, Dataset):
    """All rows in an order that is drawn once, for `Dataset.split`."""


class ProjectDataset(ProjectStep, Dataset):
    """Some of the columns, see `Dataset.project`."""


class RenameDataset(RenameStep, Dataset):
    """Columns with other names, see `Dataset.rename`."""


class MapDataset(MapStep, Dataset):
    """Functions applied to the columns of each row, see `Dataset.map`."""


class FilterDataset(FilterStep, Dataset):
    """The rows for which a function is true, see `Dataset.filter`."""


class BatchDataset(BatchStep, Dataset):
    """Rows stacked, see `Dataset.batch`."""


class PaddedBatchDataset(BatchDataset):
    """Rows padded and stacked, see `Dataset.padded_batch`."""


class BucketBatchByLengthDataset(BucketBatchStep, Dataset):
    """Rows of similar length stacked, see `Dataset.bucket_batch_by_length`."""


class ZipDataset(ZipStep, Dataset):
    """Columns side by side, see `zip_datasets`."""


class ConcatDataset(ConcatStep, Dataset):
    """Rows of one dataset after those of another, see `Dataset.concat`."""
