"""Steps that join several datasets: side by side, or one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

from graphcell.dataset.core.columns import Row
from graphcell.dataset.core.run import Run
from graphcell.dataset.engine.pipeline import Pipeline
from graphcell.errors import ArgumentTypeError, ArgumentValueError, DatasetError


class ZipStep(Pipeline):
    """Columns side by side, as many rows as the shortest dataset has."""

    def __init__(self, datasets: tuple[Pipeline, ...]):
        for dataset in datasets:
            if not isinstance(dataset, Pipeline):
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

    def size(self, most: int) -> int | None:
        return min(child.count_rows(most) for child in self.children if self.endless or not child.endless)

    @property
    def endless(self) -> bool:
        return all(child.endless for child in self.children)


class ConcatStep(Pipeline):
    """Rows of one dataset after those of another."""

    def __init__(self, datasets: list[Pipeline]):
        for dataset in datasets:
            if not isinstance(dataset, Pipeline):
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

    def size(self, most: int) -> int | None:
        return sum(child.count_rows(most) for child in self.children)

    def get_repeat_count(self) -> int:
        return 1
