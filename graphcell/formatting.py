"""The printed forms of Tensors, which are MindSpore's.

`str` is numpy's form. `repr` names shape and dtype and shows the values in a fixed width: rows of more than 6 entries, and vectors of
more than 1000, are cut to the first and last 3; arrays that were given to `from_numpy` it shows in numpy's form, too. A print inside of a graph
has the form of `repr` without commas. A symbolic Tensor has no values to show.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from graphcell import dtype as dt

if TYPE_CHECKING:
    from graphcell.tensor import Tensor

Array = np.ndarray[Any, Any]

_EDGE = 3  # entries shown at each end of what is cut
_ROW_LIMIT = 6
_VECTOR_LIMIT = 1000
_FLOATS_A_LINE, _INTS_A_LINE = 12, 24
_NUMPY_2_3 = np.lib.NumpyVersion(np.__version__) >= "2.3.0"


def tensor_repr(tensor: Tensor) -> str:
    """`Tensor(shape=[2], dtype=Float32, value= [ 1.00000000e+00,  2.00000000e+00])`."""
    head = f"Tensor(shape={list(tensor.shape)}, dtype={tensor.dtype}, value="
    if tensor.is_symbolic:
        return f"{head}<symbolic>)"
    if tensor.is_meta:
        return f"{head}\n<meta>)" if len(tensor.shape) > 1 else f"{head} <meta>)"
    if tensor._data is None:
        if tensor.init is None:  # it describes an input
            return f"{head}\n)" if len(tensor.shape) > 1 else f"{head} )"
        return f"{head}\n<uninitialized>)" if len(tensor.shape) > 1 else f"{head}<uninitialized>)"
    data = tensor.array()
    gap = " " if data.ndim < 2 else "\n"
    if data is tensor.given_array and data.dtype != dt.bfloat16.np_type:
        return f"{head}{gap}{_as_numpy_1(data, separator=', ')})"
    return f"{head}{gap}{_values(data)})"


def tensor_str(tensor: Tensor) -> str:
    """The values as numpy prints them."""
    if tensor._data is None:
        return tensor_repr(tensor).replace("value= <", "value=<")
    data = tensor.array()
    if data.ndim == 0 and data.dtype.kind == "f":
        return _number(data[()])
    if data.dtype != dt.bfloat16.np_type:
        return _as_numpy_1(data)
    wide = data.astype(np.float32)
    return f"{wide[()]:f}" if wide.ndim == 0 else np.array2string(wide, formatter={"float_kind": lambda x: f"{x:f}"})


def _as_numpy_1(data: Array, separator: str = " ") -> str:
    """numpy's form of an array, with exponents from 1e8 on for all dtypes: numpy 2.3 begins at 1e6 with float32, and at 1000 with float16."""
    if _NUMPY_2_3 and np.get_printoptions()["legacy"] is False:
        return np.array2string(data, separator=separator, legacy="2.1")
    return np.array2string(data, separator=separator)


def _number(value: Any) -> str:
    """One float as numpy 1 prints it, and Python: numpy 2 turns to exponents at 1e8 already where the float is no double."""
    size = abs(float(value))
    if not 0 < size < math.inf or 1e-4 <= size < 1e16:
        return np.format_float_positional(value, trim="0")
    return np.format_float_scientific(value, trim="-", exp_digits=2)


def constant_in_graph(value: float) -> str:
    """A Python number as a print inside of a graph shows it: as the Tensor that it is there, so that True is 1, and 1 / 3 is 0.333333."""
    return graph_form(np.array(value)) if isinstance(value, (bool, float)) else str(value)


def graph_form(array: Array) -> str:
    """A Tensor as a print inside of a graph shows it: `Tensor(shape=[2], dtype=Float32, value=[ 1.00000000e+00  2.00000000e+00])`."""
    dtype = dt.from_numpy(array.dtype)
    if not array.ndim:
        return str(int(array)) if not dtype.is_float else f"{float(array):g}"
    gap = "\n" if array.ndim > 1 else ""
    return f"Tensor(shape={list(array.shape)}, dtype={dtype}, value={gap}{_values(array, '') or '[]'})"


def _values(data: Array, comma: str = ",") -> str:
    if data.ndim == 0:
        return _short(data[()])
    if data.size == 0:
        return ""
    form = _element_format(data)
    if data.ndim == 1:
        return _vector(data, form, comma)
    return _rows(data, form, comma, 1)


def _short(value: Any) -> str:
    """A number with at most 6 digits."""
    return str(value) if value.dtype.kind in "biu" else f"{float(value):g}"


def _element_format(data: Array) -> Callable[[Any], str]:
    if data.dtype.kind == "b":
        return lambda x: f"{x!s:>5}"
    if data.dtype == dt.float16.np_type:
        return lambda x: f"{float(x):11.4e}"
    if data.dtype.kind == "f":
        return lambda x: f"{float(x):15.8e}"
    width = max(len(_short(x)) for x in _shown(data).flat)
    return lambda x: f"{_short(x):>{width}}"


def _limit(rank: int) -> int:
    return _VECTOR_LIMIT if rank == 1 else _ROW_LIMIT


def _shown(data: Array) -> Array:
    """The entries that are not cut."""
    for axis, extent in enumerate(data.shape):
        if extent > _limit(data.ndim):
            data = np.take(data, [*range(_EDGE), *range(extent - _EDGE, extent)], axis)
    return data


def _vector(data: Array, form: Callable[[Any], str], comma: str) -> str:
    if data.size > _VECTOR_LIMIT:
        return _cut_row(data, form, comma)
    a_line = _FLOATS_A_LINE if data.dtype.kind in "bf" else _INTS_A_LINE  # bfloat16 is of no kind
    parts = []
    for k, x in enumerate(data):
        between = f"{comma} " if k < data.size - 1 else ""
        line_end = "\n " if (k + 1) % a_line == 0 else ""
        parts.append(f"{form(x)}{between}{line_end}")
    return f"[{''.join(parts)}]"


def _cut_row(row: Array, form: Callable[[Any], str], comma: str) -> str:
    between = f"{comma} "
    return f"[{between.join(map(form, row[:_EDGE]))} ... {between.join(map(form, row[-_EDGE:]))}]"


def _rows(data: Array, form: Callable[[Any], str], comma: str, depth: int) -> str:
    """Nested rows; `depth` is the number of brackets open before an inner row."""
    if data.ndim == 1:
        return _cut_row(data, form, comma) if data.size > _ROW_LIMIT else f"[{f'{comma} '.join(map(form, data))}]"
    line = "\n" + " " * depth
    if len(data) <= _ROW_LIMIT:
        return f"[{(comma + line).join(_rows(x, form, comma, depth + 1) for x in data)}]"
    first = [_rows(x, form, comma, depth + 1) + comma for x in data[:_EDGE]]
    last = [_rows(x, form, comma, depth + 1) for x in data[-_EDGE:]]
    return f"[{line.join([*first, '...', (comma + line).join(last)])}]"
