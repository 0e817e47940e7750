"""Rows collected by their length: what `bucket_batch_by_length` does."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from graphcell.dataset.core.columns import Row, user_error
from graphcell.dataset.engine.batching import PadInfo, as_batch, transpose
from graphcell.dataset.engine.checks import check_int, check_type
from graphcell.errors import ArgumentTypeError, ArgumentValueError, DatasetError


class Buckets:
    """The settings of `Dataset.bucket_batch_by_length`.

    Raises:
        TypeError, ValueError: boundaries are not ascending ints above 0, or the numbers of boundaries and sizes do not fit.
    """

    def __init__(
        self, places: list[int], boundaries: Any, sizes: Any, length: Callable[..., Any] | None, padding: PadInfo | None, to_boundary: bool,
        drop_remainder: bool,
    ):  # fmt: skip
        for name, values in (("bucket_boundaries", boundaries), ("bucket_batch_sizes", sizes)):
            check_type(name, values, list)
            for k, value in enumerate(values):
                check_int(f"{name}[{k}]", value, 1)
        if not boundaries:
            raise ArgumentValueError("bucket_boundaries cannot be empty.")
        if any(a >= b for a, b in pairwise(boundaries)):
            raise ArgumentValueError("bucket_boundaries should be strictly increasing.")
        if len(sizes) != len(boundaries) + 1:
            raise ArgumentValueError("bucket_batch_sizes must contain one element more than bucket_boundaries.")
        if length is None and len(places) != 1:
            raise ArgumentValueError("If element_length_function is not specified, exactly one column name should be passed.")
        if length is not None and not callable(length):
            raise ArgumentTypeError("element_length_function object is not callable.")
        self._places, self._boundaries, self._sizes = places, list(boundaries), list(sizes)
        self._length, self._padding = length, padding
        self._to_boundary = bool(check_type("pad_to_bucket_boundary", to_boundary, bool))
        self._drop = bool(check_type("drop_remainder", drop_remainder, bool))

    def batches(self, rows: Iterator[Row], columns: Sequence[str]) -> Iterator[Row]:
        """The batches made of `rows`."""
        waiting: list[list[Row]] = [[] for _ in self._sizes]
        for row in rows:
            k = bisect_right(self._boundaries, self._length_of(row))
            waiting[k].append(row)
            if len(waiting[k]) == self._sizes[k]:
                yield self._batch(waiting[k], k, columns)
                waiting[k] = []
        for k, rest in enumerate(waiting):
            if rest and not self._drop:
                yield self._batch(rest, k, columns)

    def _length_of(self, row: Row) -> int:
        values = [row[k] for k in self._places]
        if self._length is None:
            if not values[0].ndim:
                raise DatasetError("bucket_batch_by_length: a number has no length", hint="give an element_length_function")
            return int(values[0].shape[0])
        try:
            return int(self._length(*values))
        except Exception as e:
            raise user_error(e, "element_length_function") from e

    def _batch(self, rows: list[Row], bucket: int, columns: Sequence[str]) -> Row:
        if not self._to_boundary:
            return as_batch(transpose(rows), columns, self._padding)
        if bucket == len(self._boundaries):
            raise DatasetError("bucket_batch_by_length: with pad_to_bucket_boundary, no row may be longer than the last boundary")
        return as_batch(transpose(rows), columns, self._padding and self._padding.up_to(self._boundaries[bucket] - 1))
