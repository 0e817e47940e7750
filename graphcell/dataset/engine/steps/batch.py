"""Steps that stack rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from graphcell.dataset.core import config
from graphcell.dataset.core.columns import Row
from graphcell.dataset.core.run import Run
from graphcell.dataset.core.workers import in_order
from graphcell.dataset.engine.batching import BatchInfo, BatchMap, BatchSize, PadInfo, as_batch, check_batch_size, groups, transpose
from graphcell.dataset.engine.buckets import Buckets
from graphcell.dataset.engine.checks import check_type, check_workers
from graphcell.dataset.engine.pipeline import Blocks, Pipeline


class BatchStep(Pipeline):
    """Rows stacked, padded first or mapped by a function where that is wanted."""

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

    def size(self, most: int) -> int | None:
        if not isinstance(self.batch_size, int):
            return None
        below = self.children[0].count_rows(most * self.batch_size)
        return below // self.batch_size if self.drop_remainder else -(-below // self.batch_size)

    def get_batch_size(self) -> int:
        return self.batch_size if isinstance(self.batch_size, int) else -1

    @property
    def makes_new_arrays(self) -> bool:
        return True


class BucketBatchStep(Pipeline):
    """Rows of similar length stacked."""

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
