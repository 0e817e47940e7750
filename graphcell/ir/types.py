"""Types of SSA values: an element dtype and a shape."""

from __future__ import annotations

import math

from graphcell import dtype as dt
from graphcell.dtype import DType
from graphcell.records import dataclass


@dataclass(frozen=True, slots=True)
class Dim:
    """A dimension whose extent is not known while compiling: equal names are equal extents."""

    name: str

    def __str__(self) -> str:
        return self.name


Shape = tuple[int, ...]

_SHORT = {
    "bool": "i1", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "uint8": "u8", "uint16": "u16",
    "uint32": "u32", "uint64": "u64", "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64",
}
SHORT_DTYPE = {d: _SHORT[d.name] for d in dt.ALL}
DTYPE_OF_SHORT = {short: d for d, short in SHORT_DTYPE.items()}


@dataclass(frozen=True, slots=True)
class TensorType:
    """dtype and shape of a value, printed `f32[32, 784]`; shape `()` is a scalar, printed `f32[]`."""

    dtype: DType
    shape: Shape

    def __str__(self) -> str:
        return f"{SHORT_DTYPE[self.dtype]}[{', '.join(map(str, self.shape))}]"

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def with_shape(self, shape: Shape) -> TensorType:
        return TensorType(self.dtype, shape)

    def with_dtype(self, dtype: DType) -> TensorType:
        return TensorType(dtype, self.shape)
