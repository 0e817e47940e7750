"""Primitives without operands: constants, fills, index ramps."""

from __future__ import annotations

import numpy as np

from graphcell.dtype import DType, from_numpy
from graphcell.ir.op import Array, Op, frozen
from graphcell.ir.types import Shape, TensorType


class Literal:
    """An immutable array as a static parameter: hashed and compared by its bytes, dtype and shape."""

    __slots__ = ("_hash", "array")

    def __init__(self, array: Array):
        self.array = np.array(array)
        self.array.flags.writeable = False
        self._hash = hash((self.array.tobytes(), self.array.shape, str(self.array.dtype)))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Literal):
            return NotImplemented
        a, b = self.array, other.array
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()

    def __repr__(self) -> str:
        return f"literal({self.array.tolist()!r})"


@frozen
class Constant(Op):
    """An array known while compiling."""

    literal: Literal
    dtype: DType
    name = "constant"

    def infer(self) -> TensorType:  # type: ignore[override]
        return TensorType(self.dtype, self.literal.array.shape)

    def eval(self) -> Array:  # type: ignore[override]
        return self.literal.array

    def grad(self, inputs: tuple, outputs: tuple, cotangents: tuple) -> tuple:  # type: ignore[type-arg]
        return ()


@frozen
class Full(Op):
    """One number in every element. `value` is a Python bool, int or float of the dtype's category; NaN and infinities are allowed."""

    value: bool | int | float
    shape: Shape
    dtype: DType
    name = "full"

    def infer(self) -> TensorType:  # type: ignore[override]
        return TensorType(self.dtype, self.shape)

    def eval(self) -> Array:  # type: ignore[override]
        with np.errstate(over="ignore", invalid="ignore"):
            return np.full(self.shape, self.value, self.dtype.np_type)

    def grad(self, inputs: tuple, outputs: tuple, cotangents: tuple) -> tuple:  # type: ignore[type-arg]
        return ()

    def __hash__(self) -> int:
        return hash((repr(self.value), self.shape, self.dtype))

    def __eq__(self, other: object) -> bool:  # 0.0 and -0.0 differ, NaN equals itself, True is not 1
        return isinstance(other, Full) and (repr(self.value), self.shape, self.dtype) == (repr(other.value), other.shape, other.dtype)


@frozen
class Iota(Op):
    """The index along `axis`, as numbers of `dtype`."""

    shape: Shape
    axis: int
    dtype: DType
    name = "iota"

    def infer(self) -> TensorType:  # type: ignore[override]
        return TensorType(self.dtype, self.shape)

    def eval(self) -> Array:  # type: ignore[override]
        ramp = np.arange(self.shape[self.axis]).astype(self.dtype.np_type)
        return np.broadcast_to(ramp.reshape([-1 if k == self.axis else 1 for k in range(len(self.shape))]), self.shape)

    def grad(self, inputs: tuple, outputs: tuple, cotangents: tuple) -> tuple:  # type: ignore[type-arg]
        return ()


def number_of(value: bool | int | float, dtype: DType) -> bool | int | float:
    """`value` in the Python category of `dtype`, so that equal fills compare equal."""
    if dtype.is_bool:
        return bool(value)
    return int(value) if dtype.is_integer else float(value)


def constant_op(array: Array) -> Op:
    """The op that makes `array`: a fill where all elements are the same, else a constant."""
    dtype = from_numpy(array.dtype)
    if array.size and (array.size == 1 or (array == array.flat[0]).all()):
        value = array.flat[0]
        if not (dtype.is_float and value == 0 and np.signbit(array).any() != np.signbit(array).all()):
            return Full(number_of(value, dtype), array.shape, dtype)
    return Constant(Literal(array), dtype)
