"""The dtypes, where MindSpore programs import them from: `from mindspore.common import dtype as mstype`."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphcell.dtype import DType as DType
from graphcell.dtype import as_dtype
from graphcell.dtype import bfloat16 as bfloat16
from graphcell.dtype import bool_ as bool_
from graphcell.dtype import float16 as float16
from graphcell.dtype import float32 as float32
from graphcell.dtype import float64 as float64
from graphcell.dtype import int8 as int8
from graphcell.dtype import int16 as int16
from graphcell.dtype import int32 as int32
from graphcell.dtype import int64 as int64
from graphcell.dtype import uint8 as uint8
from graphcell.dtype import uint16 as uint16
from graphcell.dtype import uint32 as uint32
from graphcell.dtype import uint64 as uint64
from graphcell.errors import ArgumentTypeError

half = float16
single = float32
double = float64


def dtype_to_nptype(type_: DType) -> type[Any]:
    """The numpy scalar type of a dtype: `numpy.float32`.

    Raises:
        TypeError: `type_` is no dtype.
    """
    return _checked(type_, "dtype_to_nptype").np_type.type


def dtype_to_pytype(type_: DType) -> type[bool] | type[int] | type[float]:
    """The Python type of the elements: bool, int or float.

    Raises:
        TypeError: `type_` is no dtype.
    """
    dtype = _checked(type_, "dtype_to_pytype")
    return bool if dtype.is_bool else int if dtype.is_integer else float


def pytype_to_dtype(obj: Any) -> DType:
    """The dtype of a Python or numpy type; Python's float is float64 here.

    Raises:
        TypeError: obj is no type of numbers.
    """
    if obj is float:
        return float64
    if isinstance(obj, (type, np.dtype, DType)):
        return as_dtype(obj)
    raise ArgumentTypeError(f"pytype_to_dtype: obj must be a type such as int or numpy.float32, but is {obj!r}")


def _checked(x: object, function: str) -> DType:
    if isinstance(x, DType):
        return x
    raise ArgumentTypeError(f"{function}: expected a dtype such as mindspore.float32, but got {x!r}")
