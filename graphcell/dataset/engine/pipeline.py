"""`Pipeline`: what every step of a data pipeline can be asked for, and the two ways in which rows run through it.

A step gives its rows one by one (`rows`). For batches it also gives something that stands for each row, and a function that makes columns of
several of these at once (`blocks`): for a source in memory they are indices, and a transform that treats all rows alike is called once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np

from graphcell.dataset.core.columns import Row, stacked_if_alike
from graphcell.dataset.core.run import Run
from graphcell.dataset.engine.checks import check_names, check_type
from graphcell.dataset.engine.iterators import DictIterator, TupleIterator
from graphcell.errors import DatasetError, NotImplementedFeatureError
from graphcell.records import dataclass


@dataclass(frozen=True)
class Blocks:
    """What stands for the rows of an epoch, and what makes columns of several of them: an array, or a list where rows are not alike."""

    items: Callable[[Run], Iterator[Any]]
    read: Callable[[Sequence[Any]], Sequence[Any]]


class Pipeline:
    """A step of a pipeline, with the steps below it.

    Args:
        children: the steps that rows come from; none for a source.
        columns: the names of the columns of a row.
    """

    def __init__(self, children: Sequence[Pipeline], columns: Sequence[str]):
        self.children = list(children)
        self.columns = list(columns)
        self._counted: int | None = None

    # -- what a step defines ---------------------------------------------------------------------------------------------
    def rows(self, run: Run) -> Iterator[Row]:
        """The rows of one epoch."""
        raise NotImplementedFeatureError(f"{type(self).__name__} must define rows(run)")

    def blocks(self) -> Blocks:
        """The same rows for batches."""
        return Blocks(self.rows, lambda rows: [stacked_if_alike(list(column)) for column in zip(*rows)])

    def size(self, most: int) -> int | None:
        """The number of rows of one epoch, or any number of at least `most` if there are more; None if only counting them tells."""
        return None

    @property
    def endless(self) -> bool:
        """Whether an epoch is known never to end; `size` then tells the number of rows before they are repeated."""
        return any(child.endless for child in self.children)

    @property
    def makes_new_arrays(self) -> bool:
        """Whether nobody else has the arrays of the rows."""
        return False

    # -- iterators -------------------------------------------------------------------------------------------------------
    def create_tuple_iterator(self, columns: Any = None, num_epochs: int = -1, output_numpy: bool = False, do_copy: bool = False) -> TupleIterator:
        """An iterator over rows as lists, one pass an epoch.

        Args:
            columns: only these columns, in this order. Default: all.
            num_epochs: how often the iterator may be gone through; -1: as often as you like.
            output_numpy: arrays instead of Tensors. Strings are arrays always.
            do_copy: kept; what is given out is yours.

        Raises:
            TypeError, ValueError: arguments of other kinds. RuntimeError: there is no such column.
        """
        source = self if columns is None else self._projected(check_names("column_names", columns))
        return TupleIterator(source, num_epochs, output_numpy, do_copy)

    def create_dict_iterator(self, num_epochs: int = -1, output_numpy: bool = False, do_copy: bool = False) -> DictIterator:
        """An iterator over rows as dicts from names of columns. Arguments as for `create_tuple_iterator`."""
        return DictIterator(self, num_epochs, output_numpy, do_copy)

    def _projected(self, names: list[str]) -> Pipeline:
        raise NotImplementedFeatureError(f"{type(self).__name__} cannot leave out columns")

    def __iter__(self) -> TupleIterator:
        return self.create_tuple_iterator(num_epochs=1)

    # -- questions -------------------------------------------------------------------------------------------------------
    def get_dataset_size(self) -> int:
        """The number of rows (or batches) of one epoch. Where only that tells, they are counted, or as many of them as `take` lets through."""
        return self.count_rows(sys.maxsize)

    def count_rows(self, most: int) -> int:
        """The number of rows of one epoch; any number of at least `most` if there are more, of which no more are counted."""
        known = self.size(most)
        if known is not None:
            return known
        if self.endless:
            raise DatasetError("get_dataset_size: the dataset is repeated without end, and only counting its rows would tell their number")
        if self._counted is not None:
            return self._counted
        counted = sum(1 for _ in islice(self.rows(Run()), min(most, sys.maxsize)))
        if counted < most:
            self._counted = counted
        return counted

    def __len__(self) -> int:
        return self.get_dataset_size()

    def __bool__(self) -> bool:
        return True

    def get_col_names(self) -> list[str]:
        """The names of the columns."""
        return list(self.columns)

    def _first_row(self) -> Row:
        rows = self.rows(Run())
        try:
            return next(rows)
        except StopIteration:
            raise DatasetError(f"{type(self).__name__}: the dataset has no rows to take shapes and types from") from None
        finally:
            if hasattr(rows, "close"):
                rows.close()

    def output_shapes(self, estimate: bool = False) -> list[list[Any]]:
        """The shape of each column, as the first row has it; with `estimate`, of all rows, None where extents differ."""
        check_type("estimate", estimate, bool)
        shapes = [list(x.shape) for x in self._first_row()]
        for row in self.rows(Run()) if estimate else ():
            for shape, x in zip(shapes, row):
                shape[:] = [a if a == b else None for a, b in zip(shape, x.shape)]
        return shapes

    def output_types(self) -> list[Any]:
        """The numpy dtype of each column, as the first row has it; that of text and of bytes says nothing of their length."""
        return [np.dtype(x.dtype.kind) if x.dtype.kind in "US" else x.dtype for x in self._first_row()]

    def get_batch_size(self) -> int:
        """The number of rows in a batch; 1 where there are no batches, -1 where they differ."""
        return self.children[0].get_batch_size() if self.children else 1

    def get_repeat_count(self) -> int:
        """How often an epoch goes through the source."""
        return self.children[0].get_repeat_count() if self.children else 1

    def num_classes(self) -> int | None:
        """The number of classes, where the source knows it."""
        return self.children[0].num_classes() if self.children else None

    def get_class_indexing(self) -> dict[str, Any]:
        """The number of each class by name, where the source knows it."""
        return self.children[0].get_class_indexing() if self.children else {}

    def is_shuffled(self) -> bool:
        """Whether rows come in random order."""
        return any(child.is_shuffled() for child in self.children)

    def is_sharded(self) -> bool:
        """Whether this is one of several shards."""
        return any(child.is_sharded() for child in self.children)

    def reset(self) -> None:
        """Nothing to do: every iterator starts anew."""

    def close(self) -> None:
        """Nothing to do: threads belong to iterators, and end with them."""


class OneToOneStep(Pipeline):
    """A step that gives a row for each row."""

    def size(self, most: int) -> int | None:
        return self.children[0].count_rows(most)


class SameArraysStep(OneToOneStep):
    """A step whose rows are the arrays of the step below, or some of them."""

    @property
    def makes_new_arrays(self) -> bool:
        return self.children[0].makes_new_arrays
