"""Steps that change the columns of rows: some of them, other names, functions of them; and the step that asks a function which rows stay."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import takewhile
from typing import Any

from graphcell.dataset.callback.ds_callback import CallbackParam, Callbacks
from graphcell.dataset.core import config
from graphcell.dataset.core.columns import Row, as_array, user_error
from graphcell.dataset.core.run import Run, call_with_row
from graphcell.dataset.core.workers import in_order
from graphcell.dataset.engine.checks import check_names, check_workers, positions
from graphcell.dataset.engine.pipeline import Blocks, OneToOneStep, Pipeline, SameArraysStep
from graphcell.dataset.transforms.operation import TensorOperation
from graphcell.errors import ArgumentTypeError, ArgumentValueError, DatasetError


class ProjectStep(SameArraysStep):
    """Some of the columns."""

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


class RenameStep(SameArraysStep):
    """Columns with other names."""

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


class MapStep(OneToOneStep):
    """Functions applied to the columns of each row."""

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
            raise _operation_error(e, operation) from e

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
        column, operation = columns[self._places[0]], None
        try:
            for operation in operations:
                column = [operation.compute(x, 0) for x in column] if isinstance(column, list) else operation.compute(column, 1)
        except Exception as e:
            raise _operation_error(e, operation) from e
        return self._arranged([column], columns)


def _operation_error(error: Exception, operation: Any) -> DatasetError:
    return user_error(error, f"map operation [{getattr(operation, '__name__', type(operation).__name__)}]")


class FilterStep(Pipeline):
    """The rows for which a function is true."""

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
