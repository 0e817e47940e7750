"""Steps that choose among rows: which ones come, in which order, how often.

They leave rows as they are, and so work as well on what stands for rows (`Pipeline.blocks`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import TypeVar

from graphcell.dataset.core.columns import Row
from graphcell.dataset.core.run import Run
from graphcell.dataset.engine.checks import check_count, check_int
from graphcell.dataset.engine.pipeline import Blocks, Pipeline, SameArraysStep
from graphcell.errors import NotImplementedFeatureError

T = TypeVar("T")


class _Choice(SameArraysStep):
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


class ShuffleStep(_Choice):
    """Rows in random order."""

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


class RepeatStep(_Choice):
    """All rows several times."""

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

    def size(self, most: int) -> int | None:
        return self.children[0].count_rows(most) * max(self.count, 1)

    def get_repeat_count(self) -> int:
        return self.count

    @property
    def endless(self) -> bool:
        return self.count == -1 or super().endless


class TakeStep(_Choice):
    """The first rows."""

    def __init__(self, input_dataset: Pipeline, count: int):
        super().__init__(input_dataset)
        self.count = check_count(count)

    def chosen(self, source: Callable[[Run], Iterator[T]], run: Run) -> Iterator[T]:
        return source(run) if self.count == -1 else islice(source(run), self.count)

    def size(self, most: int) -> int | None:
        if self.count == -1:
            return self.children[0].count_rows(most)
        return self.count if self.children[0].endless else min(self.count, self.children[0].count_rows(min(most, self.count)))

    @property
    def endless(self) -> bool:
        return self.count == -1 and super().endless


class SkipStep(_Choice):
    """All but the first rows."""

    def __init__(self, input_dataset: Pipeline, count: int):
        super().__init__(input_dataset)
        self.count = check_int("count", count, 0)

    def chosen(self, source: Callable[[Run], Iterator[T]], run: Run) -> Iterator[T]:
        return islice(source(run), self.count, None)

    def size(self, most: int) -> int | None:
        return max(self.children[0].count_rows(most + self.count) - self.count, 0)


class FixedOrderStep(_Choice):
    """All rows, in an order that is drawn once."""

    def __init__(self, input_dataset: Pipeline):
        super().__init__(input_dataset)
        self._order = Run().rng(self).permutation(input_dataset.get_dataset_size()).tolist()

    def chosen(self, source: Callable[[Run], Iterator[T]], run: Run) -> Iterator[T]:
        items = list(source(run))
        return (items[k] for k in self._order)

    def size(self, most: int) -> int | None:
        return len(self._order)
