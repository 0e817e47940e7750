"""The dtypes, where MindSpore programs import them from: `from mindspore.common import dtype as mstype`."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphcell.dtype import (
    ALL,
    FLOATS,
    INTEGERS,
    KINDS,
    NUMBERS,
    DType,
    Kind,
    Type,
    as_dtype,
    bfloat16,
    bool_,
    finfo,
    float16,
    float32,
    float64,
    from_numpy,
    int8,
    int16,
    int32,
    int64,
    list_,
    number,
    promote,
    promote_scalar,
    scalar_dtype,
    string,
    tensor_type,
    tuple_,
    type_none,
    uint8,
    uint16,
    uint32,
    uint64,
)  # fmt: skip
from graphcell.errors import ArgumentTypeError
from graphcell.missing import refuse

__all__ = [
    "ALL", "FLOATS", "INTEGERS", "KINDS", "NUMBERS", "DType", "Kind", "Type", "as_dtype", "bfloat16", "bool_", "byte", "double", "dtype_to_nptype",
    "dtype_to_pytype", "finfo", "float16", "float32", "float64", "float_", "from_numpy", "half", "int8", "int16", "int32", "int64", "int_", "intc",
    "intp", "list_", "long", "number", "promote", "promote_scalar", "pytype_to_dtype", "scalar_dtype", "short", "single", "string", "tensor_type",
    "tuple_", "type_none", "ubyte", "uint", "uint8", "uint16", "uint32", "uint64", "uintc", "uintp", "ushort",
]  # fmt: skip

byte, short, intc, intp, long, int_ = int8, int16, int32, int64, int64, int64
ubyte, ushort, uintc, uintp, uint = uint8, uint16, uint32, uint64, uint64
half, single, double, float_ = float16, float32, float64, float32


def dtype_to_nptype(type_: DType) -> type[Any]:
    """The numpy scalar type of a dtype: `numpy.float32`.

    Raises:
        TypeError: `type_` is no dtype.
    """
    return _checked(type_, "dtype_to_nptype").np_type.type


def dtype_to_pytype(type_: Type) -> type[Any]:
    """The Python type of the elements, bool, int or float; of a kind of objects the type that it stands for: str for `string`.

    Raises:
        TypeError: `type_` is no dtype, or a kind of several types (`number`, `tensor_type`).
    """
    if isinstance(type_, Kind) and type_.python_type is not None:
        return type_.python_type
    dtype = _checked(type_, "dtype_to_pytype")
    return bool if dtype.is_bool else int if dtype.is_integer else float


def pytype_to_dtype(obj: Any) -> Type:
    """The dtype of a Python or numpy type, or the kind that str, list, tuple or NoneType is; Python's float is float64 here.

    Raises:
        TypeError: obj is none of these types.
    """
    if obj is float:
        return float64
    for kind in KINDS:
        if obj is kind.python_type and obj is not None:
            return kind
    if isinstance(obj, (type, np.dtype, DType)):
        return as_dtype(obj)
    raise ArgumentTypeError(f"pytype_to_dtype: obj must be a type such as int or numpy.float32, but is {obj!r}")


def _checked(x: object, function: str) -> DType:
    if isinstance(x, DType):
        return x
    raise ArgumentTypeError(f"{function}: expected a dtype such as mindspore.float32, but got {x!r}")


def __getattr__(name: str) -> DType:
    """`bool`, `int` and `float` are dtypes to those who import this module; inside it they are Python's."""
    found = {"bool": bool_, "int": int32, "float": float32}.get(name)
    if found is None:
        refuse(__name__, name)
    return found
