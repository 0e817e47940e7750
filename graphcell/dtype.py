"""Data types and their promotion.

A `DType` names an element type in MindSpore's spelling (`float32`, printed `Float32`), its numpy type, and its LLVM kind. A `Kind` names a kind of
object (`number`, `tuple_`), which overloaded functions are registered for.
Promotion follows MindSpore: between Tensors by a fixed table, between a Tensor and a Python number by the number's category.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

from graphcell.errors import ArgumentTypeError, DTypeError
from graphcell.records import dataclass


class Type:
    """What MindSpore calls a type: the `DType` of elements, or a `Kind` of objects."""


@dataclass(frozen=True, eq=False, repr=False)
class DType(Type):
    """An element type. Compared by identity: there is one object a type.

    `category`: 0 bool, 1 integer, 2 float, 3 other. `llvm`: the element kind in LLVM IR, empty where there is no native code.
    """

    name: str
    np_type: np.dtype[Any]
    category: int
    bits: int
    llvm: str = ""
    signed: bool = True

    def __str__(self) -> str:
        return "BFloat16" if self.name == "bfloat16" else "UInt" + self.name[4:] if self.name.startswith("uint") else self.name.capitalize()

    def __repr__(self) -> str:
        return f"mindspore.{self.name}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (as_dtype, (self.name,))

    @property
    def is_float(self) -> bool:
        return self.category == 2

    @property
    def is_integer(self) -> bool:
        return self.category == 1

    @property
    def is_bool(self) -> bool:
        return self.category == 0

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.np_type.itemsize


bool_ = DType("bool", np.dtype(np.bool_), 0, 8, "i1", False)
int8 = DType("int8", np.dtype(np.int8), 1, 8, "i8")
int16 = DType("int16", np.dtype(np.int16), 1, 16, "i16")
int32 = DType("int32", np.dtype(np.int32), 1, 32, "i32")
int64 = DType("int64", np.dtype(np.int64), 1, 64, "i64")
uint8 = DType("uint8", np.dtype(np.uint8), 1, 8, "i8", False)
uint16 = DType("uint16", np.dtype(np.uint16), 1, 16, "i16", False)
uint32 = DType("uint32", np.dtype(np.uint32), 1, 32, "i32", False)
uint64 = DType("uint64", np.dtype(np.uint64), 1, 64, "i64", False)
float16 = DType("float16", np.dtype(np.float16), 2, 16, "half")
bfloat16 = DType("bfloat16", np.dtype(ml_dtypes.bfloat16), 2, 16, "bfloat")
float32 = DType("float32", np.dtype(np.float32), 2, 32, "float")
float64 = DType("float64", np.dtype(np.float64), 2, 64, "double")


@dataclass(frozen=True, eq=False, repr=False)
class Kind(Type):
    """A kind of objects, by the `name` that `MultitypeFuncGraph.register` takes. Compared by identity; no Tensor has it as its dtype.

    `attribute`: its name in this module. `spelling`: its printed form. `python_type`: the one Python type that it stands for, if it is one.
    """

    name: str
    attribute: str
    spelling: str
    python_type: type[Any] | None = None

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"mindspore.{self.spelling}"

    def __reduce__(self) -> str:
        return self.attribute


number = Kind("Number", "number", "number")
tensor_type = Kind("Tensor", "tensor_type", "tensor")
string = Kind("String", "string", "string_", str)
list_ = Kind("List", "list_", "list_", list)
tuple_ = Kind("Tuple", "tuple_", "tuple_", tuple)
type_none = Kind("None", "type_none", "type_none", type(None))

KINDS = (number, tensor_type, string, list_, tuple_, type_none)
ALL = (bool_, int8, int16, int32, int64, uint8, uint16, uint32, uint64, float16, bfloat16, float32, float64)
INTEGERS = tuple(d for d in ALL if d.is_integer)
FLOATS = tuple(d for d in ALL if d.is_float)
NUMBERS = INTEGERS + FLOATS

_BY_NAME = {d.name: d for d in ALL} | {"bool_": bool_, "half": float16, "single": float32, "double": float64}
_BY_NUMPY = {d.np_type: d for d in ALL}


@cache
def from_numpy(np_type: np.dtype[Any]) -> DType:
    """The DType of a numpy dtype.

    Raises:
        DTypeError: for a numpy dtype that has no counterpart (object, str, complex, datetime).
    """
    found = _BY_NUMPY.get(np_type.newbyteorder("="))
    if found is None:
        raise DTypeError(f"a Tensor cannot hold numpy's {np_type}; it holds bool, integers and floats")
    return found


def as_dtype(x: object) -> DType:
    """`x` as a DType: a DType, its name, a numpy dtype or type, or Python's bool, int, float."""
    if isinstance(x, DType):
        return x
    if x is bool:
        return bool_
    if x is int:
        return int64
    if x is float:
        return float32
    if isinstance(x, str) and x.lower() in _BY_NAME:
        return _BY_NAME[x.lower()]
    try:
        if x is None:  # which numpy takes for float64
            raise TypeError
        return from_numpy(np.dtype(x))  # type: ignore[call-overload]
    except (TypeError, DTypeError):
        raise ArgumentTypeError(f"expected a dtype such as mindspore.float32, but got {x!r}") from None


@cache
def promote(x: DType, y: DType) -> DType:
    """The dtype in which two Tensors meet.

    Raises:
        DTypeError: uint16, uint32 or uint64 with a signed integer type (there is no common type).
    """
    if x is y:
        return x
    if x.category != y.category:
        return x if x.category > y.category else y
    if x.is_float:
        return float32 if x.bits == y.bits else x if x.bits > y.bits else y
    if x.signed == y.signed:
        return x if x.bits > y.bits else y
    unsigned, signed = (x, y) if y.signed else (y, x)
    if unsigned is not uint8:
        raise DTypeError(f"{unsigned} and {signed} have no common type; cast one of them first")
    return int16 if signed.bits <= 8 else signed


def scalar_dtype(value: bool | int | float) -> DType:
    """The dtype that a Python number has on its own: Bool, Int64 or Float32."""
    if isinstance(value, (bool, np.bool_)):
        return bool_
    if isinstance(value, (int, np.integer)):
        return int64
    return float32


def promote_scalar(tensor: DType, value: bool | int | float) -> DType:
    """The dtype in which a Tensor and a Python number meet: the Tensor's, unless the number is of a higher category."""
    number = scalar_dtype(value)
    return tensor if tensor.category >= number.category else number


def finfo(dtype: DType) -> Any:
    """Machine limits of a float dtype (`eps`, `max`, `min`, `tiny`)."""
    return ml_dtypes.finfo(dtype.np_type)  # type: ignore[no-untyped-call]
