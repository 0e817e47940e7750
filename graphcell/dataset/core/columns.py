"""Columns of rows: values as arrays, rows stacked and padded into batches, arrays as Tensors; errors of user code with its line.

A row is a tuple with an array for each column. Dicts are columns that pass through untouched. Refused: objects that are no numbers, strings
or bytes; complex numbers and dates.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from graphcell import buffer
from graphcell.errors import DatasetError, Span
from graphcell.tensor import Tensor

Array = np.ndarray[Any, Any]
Row = tuple[Any, ...]
_KINDS = frozenset("biufSU")
_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
_PACKAGE = str(Path(__file__).parents[2])


class NotForColumnsError(DatasetError):
    """GC701: a value that no column can have."""


def as_array(value: Any) -> Any:
    """`value` as an array of a dtype that a column can have; a dict stays a dict.

    Raises:
        NotForColumnsError: for anything else.
    """
    if isinstance(value, dict):
        return value
    array = value.asnumpy() if isinstance(value, Tensor) else np.asarray(value)
    if array.dtype.kind not in _KINDS and array.dtype != _BFLOAT16:
        raise NotForColumnsError(
            f"expected numbers, strings or arrays of them, but got {type(value).__name__}" + (f" of dtype {array.dtype}" if value is array else "")
        )
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def as_output(array: Any, numpy: bool, fresh: bool) -> Any:
    """An element of a row as the user gets it: a Tensor, where numbers are not wanted as arrays. Arrays that are not `fresh` are copied."""
    if isinstance(array, dict):
        return {k: as_output(as_array(v), numpy, fresh) for k, v in array.items()}
    if array.dtype.kind in "SU":
        return array
    own = array if fresh else np.array(array)
    return own if numpy else Tensor.from_numpy(own)


def user_error(error: Exception, where: str) -> DatasetError:
    """The error to raise instead of one that user code raised, with the line that it came from; errors of pipelines stay as they are,
    but for values that no column can have: there it says `where` they come from.
    """
    if isinstance(error, NotForColumnsError):
        return DatasetError(f"{where}: {error.message}")
    if isinstance(error, DatasetError):
        return error
    text = traceback.format_exception_only(error)[-1].strip()
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(_PACKAGE) and "site-packages" not in f.filename]
    return DatasetError(f"Exception thrown from user defined Python function in dataset: {where} failed. {text}", span=_span(frames[-1]) if frames else None)


def _span(frame: traceback.FrameSummary) -> Span:
    line = frame.lineno or 1
    return Span(frame.filename, line, frame.colno or 0, frame.end_lineno or line, frame.end_colno or 0, frame.name)


# -- batches ---------------------------------------------------------------------------------------------------------------
def stack(rows: list[Any], name: str) -> Any:
    """One array of the arrays of a column.

    Raises:
        DatasetError: shapes or dtypes differ.
    """
    made = stacked_if_alike(rows)
    if isinstance(made, np.ndarray):
        return made
    first = rows[0]
    if isinstance(first, dict):
        return {key: stack([as_array(row[key]) for row in rows], f"{name}['{key}']") for key in first}
    if first.dtype.kind in "SU":
        return np.array(rows)
    for row in rows:
        if row.shape != first.shape:
            raise DatasetError(
                f"batch: cannot batch tensors with different shapes in column '{name}': {first.shape} and {row.shape}",
                hint="padded_batch makes them alike; or map them to one shape first",
            )
        if row.dtype != first.dtype:
            raise DatasetError(f"batch: cannot batch tensors with different types in column '{name}': {first.dtype} and {row.dtype}")
    raise DatasetError(f"batch: cannot stack the values of column '{name}'")


def stacked_if_alike(rows: list[Any]) -> Any:
    """One array of the arrays of a column, or the list where they are not alike."""
    first = rows[0]
    alike = isinstance(first, np.ndarray) and first.dtype.kind not in "SU" and all(r.shape == first.shape and r.dtype == first.dtype for r in rows)
    return np.stack(rows, out=buffer.empty((len(rows), *first.shape), first.dtype)) if alike else rows


def pad(rows: Sequence[Array], shape: Sequence[int | None] | None, value: Any, name: str) -> list[Array]:
    """The arrays of a column, filled up (or cut) to `shape`, where None stands for the largest extent among them.

    Raises:
        DatasetError: other numbers of dimensions.
    """
    rank = rows[0].ndim
    wanted = [None] * rank if shape is None else list(shape)
    if any(row.ndim != len(wanted) for row in rows):
        raise DatasetError(f"padded_batch: column '{name}' has {rank} dimensions, but is to be padded to {tuple(wanted)}")
    target = [max(row.shape[k] for row in rows) if n is None else n for k, n in enumerate(wanted)]
    return [pad_to(row, target, value) for row in rows]


def check_kind(what: str, value: Any, array: Array) -> None:
    """Raises DatasetError if one of `value` and the elements of `array` is text and the other is not."""
    if isinstance(value, (str, bytes)) != (array.dtype.kind in "SU"):
        raise DatasetError(f"{what} {value!r} does not fit an array of dtype {array.dtype}")


def pad_to(array: Array, shape: Sequence[int], value: Any) -> Array:
    """`array` in the corner of one of `shape`, whose other elements are `value` (None: 0, or the empty string)."""
    is_text = array.dtype.kind in "SU"
    if value is not None:
        check_kind("the pad_value", value, array)
    fill = np.array(("" if array.dtype.kind == "U" else b"") if is_text and value is None else value or 0)
    result = np.full(tuple(shape), fill, np.promote_types(array.dtype, fill.dtype) if is_text else array.dtype)
    corner = tuple(slice(0, min(n, m)) for n, m in zip(array.shape, shape))
    result[corner] = array[corner]
    return result
