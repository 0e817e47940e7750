"""Families of primitives: what codegen knows of an op beyond its `eval`.

An op takes part in code generation by deriving from one of these classes; each says what the op adds (one element, one combining step,
one index map), never loops, vector width, threads or buffers.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Protocol

import numpy as np

from graphcell.dtype import DType
from graphcell.errors import DTypeError, ShapeError
from graphcell.ir.op import Array, Op
from graphcell.ir.types import Shape, TensorType

Val = Any  # graphcell.codegen.llvm.text.Val; ops do not import codegen


class Emitter(Protocol):
    """What `emit` gets as `b`: typed LLVM instructions and vector mathematics (codegen/llvm/text.py, codegen/llvm/math.py).

    `dtypes` are the operands' dtypes, since LLVM integers carry no sign.
    """

    dtypes: tuple[DType, ...]

    def __getattr__(self, name: str) -> Any: ...


class Elementwise(Op):
    """Every result element depends on the operand elements at the same place. All operands have one shape (broadcasts are explicit).

    Subclasses give `emit(b, *xs)`: one element, or one vector of elements, as LLVM IR.
    """

    takes: ClassVar[tuple[DType, ...]] = ()
    """The dtypes taken; empty means all."""
    fast: ClassVar[bool] = True
    """False where an element costs many instructions (exp, erf): such values are rather stored than computed twice."""
    keeps_digits: ClassVar[bool] = False
    """True where an element of the result is, but for its sign, an element of an operand, or 0: it needs no rounding to a dtype that they have."""
    rounds: ClassVar[bool] = False
    """True where an operand counts with no more digits than its dtype has, though half precision may be computed with more."""

    def infer(self, *operands: TensorType) -> TensorType:
        first = operands[0]
        for t in operands[1:]:
            if t.shape != first.shape:
                raise ShapeError(f"{self.name}: shapes differ, {', '.join(str(o.shape) for o in operands)}")
        for t in operands:
            if self.takes and t.dtype not in self.takes:
                raise DTypeError(f"{self.name}: {t.dtype} is not supported; it takes {', '.join(map(str, self.takes))}")
        return TensorType(self.result_dtype(*(t.dtype for t in operands)), first.shape)

    def result_dtype(self, *dtypes: DType) -> DType:
        """Default: all operands have one dtype, which is the result's."""
        if any(d is not dtypes[0] for d in dtypes):
            raise DTypeError(f"{self.name}: dtypes differ, {', '.join(map(str, dtypes))}")
        return dtypes[0]

    def emit(self, b: Emitter, *xs: Val) -> Val:
        raise NotImplementedError(f"{self.name}.emit")


class Reduction(Op):
    """Combines the elements along `axis` (sorted, non-negative) with an associative `kind`: add, mul, min, max, and, or.

    Subclasses are dataclasses with fields `axis: tuple[int, ...]` and `keep_dims: bool`.
    """

    axis: tuple[int, ...]
    keep_dims: bool
    kind: ClassVar[str] = ""

    def infer(self, x: TensorType) -> TensorType:  # type: ignore[override]
        if any(not 0 <= a < x.rank for a in self.axis):
            raise ShapeError(f"{self.name}: axis {self.axis} is outside of shape {x.shape}")
        return TensorType(x.dtype, reduced_shape(x.shape, self.axis, self.keep_dims))


def neutral(kind: str, dtype: DType) -> bool | int | float:
    """The neutral element of a reduction of this kind."""
    if kind in ("add", "or"):
        return 0
    if kind in ("mul", "and"):
        return 1
    low = kind == "max"
    if dtype.is_float:
        return -math.inf if low else math.inf
    if dtype.is_bool:
        return not low
    limits = np.iinfo(dtype.np_type)
    return int(limits.min if low else limits.max)


class View(Op):
    """Moves no values: each result element is one operand element, at a place that is an affine function of the result's index.

    Subclasses: reshape, transpose, broadcast, strided slice, reverse.
    """


class Fallback(Op):
    """An op that native code runs by calling back its `eval`. A marker for listings; any op outside the families behaves so."""


def reduced_shape(shape: Shape, axis: tuple[int, ...], keep_dims: bool) -> Shape:
    if keep_dims:
        return tuple(1 if k in axis else d for k, d in enumerate(shape))
    return tuple(d for k, d in enumerate(shape) if k not in axis)


__all__ = ["Array", "Elementwise", "Emitter", "Fallback", "Reduction", "View", "reduced_shape"]
