"""Iterators over the rows of a pipeline: each pass is one epoch, made ahead by a thread of its own."""

from __future__ import annotations

from collections.abc import Iterator as Rows
from typing import TYPE_CHECKING, Any

from graphcell.dataset.core import config
from graphcell.dataset.core.columns import Row, as_output
from graphcell.dataset.core.run import Run
from graphcell.dataset.core.workers import Ahead
from graphcell.dataset.engine.checks import check_type
from graphcell.errors import DatasetError

if TYPE_CHECKING:
    from graphcell.dataset.engine.pipeline import Pipeline


class Iterator:
    """Base of both kinds. After a pass, StopIteration; the next call begins the next epoch. An error ends it.

    Raises:
        RuntimeError: when rows are asked for beyond the last of `num_epochs` epochs; when the pipeline fails.
    """

    def __init__(self, dataset: Pipeline, num_epochs: int = -1, output_numpy: bool = False, do_copy: bool = False):
        check_type("num_epochs", num_epochs, int)
        if num_epochs != -1 and num_epochs < 1:
            raise DatasetError(f"num_epochs should be either -1 or positive integer, num_epochs: {num_epochs}")
        self._numpy = bool(check_type("output_numpy", output_numpy, bool))
        check_type("do_copy", do_copy, bool)
        self.dataset, self.num_epochs = dataset, num_epochs
        self._run = Run()
        self._rows: Rows[Row] | None = None
        self._over = False
        self._fresh = dataset.makes_new_arrays

    def __iter__(self) -> Any:
        return self

    def _next(self) -> list[Any]:
        if self._rows is None:
            self._rows = self._begin()
        try:
            row = next(self._rows)
        except StopIteration:
            self._rows = None
            self._run.epoch += 1
            raise
        except BaseException as e:
            if isinstance(e, Exception):
                self.stop()
            raise
        return [as_output(x, self._numpy, self._fresh) for x in row]

    def _begin(self) -> Rows[Row]:
        if self._over:
            raise StopIteration
        if self._run.epoch == self.num_epochs:
            raise DatasetError(
                f"the iterator was made for {self.num_epochs} epochs, but is gone through once more (EOF buffer encountered)",
                hint="make a new iterator for each pass, or one with num_epochs=-1",
            )
        rows = self.dataset.rows(self._run)
        return rows if config.get_debug_mode() else Ahead(rows, config.get_prefetch_size())

    def stop(self) -> None:
        """Ends the iterator and its thread."""
        if isinstance(self._rows, Ahead):
            self._rows.close()
        self._rows, self._over = None, True

    def release(self) -> None:
        """The same as `stop`."""
        self.stop()

    def get_col_names(self) -> list[str]:
        """The names of the columns."""
        return self.dataset.get_col_names()


class TupleIterator(Iterator):
    """Gives each row as a list."""

    def __next__(self) -> list[Any]:
        return self._next()


class DictIterator(Iterator):
    """Gives each row as a dict from the names of the columns."""

    def __next__(self) -> dict[str, Any]:
        return dict(zip(self.dataset.columns, self._next()))
