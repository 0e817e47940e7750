"""Sources: the steps that rows come from."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from graphcell.dataset.core import config
from graphcell.dataset.core.columns import Row
from graphcell.dataset.core.run import Run
from graphcell.dataset.core.workers import in_order
from graphcell.dataset.engine.checks import check_shards, check_type, check_workers
from graphcell.dataset.engine.datasets import Dataset, Shuffle
from graphcell.dataset.engine.samplers import BuiltinSampler, SequentialSampler, fixed, select_sampler
from graphcell.errors import ArgumentValueError, NotImplementedFeatureError


class SourceDataset(Dataset):
    """A step that rows come from."""

    def __init__(self, columns: Sequence[str]):
        super().__init__([], columns)


class MappableDataset(SourceDataset):
    """A source whose rows are known by index. Arguments beside `columns` are those of samplers, see `samplers.select_sampler`."""

    def __init__(self, columns: Sequence[str], num_samples: Any, shuffle: Any, sampler: Any, num_shards: Any, shard_id: Any, workers: Any = None):
        super().__init__(columns)
        if num_samples is not None:
            check_type("num_samples", num_samples, int)
            if num_samples < 0:
                raise ArgumentValueError("num_samples exceeds the boundary between 0 and 9223372036854775807(INT64_MAX)!")
        if shuffle is not None:
            check_type("shuffle", shuffle, (bool, Shuffle))
        check_shards(num_shards, shard_id)
        self.sampler: BuiltinSampler = select_sampler(num_samples, sampler, shuffle, num_shards, shard_id)
        self._workers = check_workers(workers)

    def count(self) -> int:
        """The number of rows that can be chosen from."""
        raise NotImplementedFeatureError(f"{type(self).__name__} must define count()")

    def row(self, index: int) -> Row:
        """One row."""
        raise NotImplementedFeatureError(f"{type(self).__name__} must define row(index)")

    def order(self, run: Run) -> Iterator[int]:
        """The indices of one epoch."""
        drawn = self.sampler.draw(self.count(), run)
        return chain.from_iterable(drawn[k : k + 1024].tolist() for k in range(0, len(drawn), 1024))

    def rows(self, run: Run) -> Iterator[Row]:
        workers = config.chosen_workers(self._workers)
        return in_order(self.row, self.order(run), workers) if workers > 1 else map(self.row, self.order(run))

    def size(self, most: int) -> int | None:
        return self.sampler.size(self.count())

    def is_shuffled(self) -> bool:
        return self.sampler.is_shuffled()

    def is_sharded(self) -> bool:
        return self.sampler.is_sharded()

    def add_sampler(self, new_sampler: BuiltinSampler) -> None:
        """Makes `new_sampler` pick among the rows that the sampler so far picks."""
        copied = copy.copy(new_sampler)
        copied.add_child(self.sampler)
        self.sampler = copied

    def use_sampler(self, new_sampler: BuiltinSampler) -> None:
        """Takes `new_sampler` instead of the sampler so far. Raises TypeError: no sampler."""
        self.sampler = check_type("new_sampler", new_sampler, BuiltinSampler)

    def _split(self, starts: list[int], counts: list[int], randomize: bool) -> list[Dataset]:
        """Copies of the source, each with its own indices."""
        sampler = self.sampler if randomize or not self.sampler.is_shuffled() else SequentialSampler(num_samples=self.sampler.num_samples)
        run = Run()
        order = sampler.draw(self.count(), run)
        if randomize:
            order = run.rng(self).permutation(order)
        parts: list[Dataset] = []
        for start, count in zip(starts, counts):
            part = copy.copy(self)
            part.sampler, part._counted = fixed(order[start : start + count]), None
            parts.append(part)
        return parts
