"""What every public function starts with: operands become Tensors of one dtype and one shape.

Also the few functions that gradient rules need (cast, select, zeros_like, …).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, TypeGuard

import numpy as np

from graphcell import dtype as dt
from graphcell.dtype import DType
from graphcell.errors import ArgumentTypeError, ArgumentValueError, ShapeError
from graphcell.ir.op import Array, Op
from graphcell.ir.types import Shape
from graphcell.ops.arithmetic import Cast, Select
from graphcell.ops.creation import Constant, Full, Literal, number_of
from graphcell.ops.dispatch import apply1
from graphcell.ops.movement import BroadcastTo, Pad, Slice, repeat
from graphcell.tensor import Tensor, state

Number = bool | int | float
NUMBER_TYPES = (bool, int, float, np.bool_, np.integer, np.floating)
_WHOLE_BYTES = 1 << 12
"""Up to this size an eager operand that repeats a number is written out, as native code needs it."""


def is_number(x: object) -> TypeGuard[Number]:
    """True for a number of Python's or numpy's."""
    return isinstance(x, NUMBER_TYPES)


def full(shape: Shape, value: Number, dtype: DType) -> Tensor:
    """A Tensor with `value` in every element; out of the range of an integer dtype, integers wrap and floats saturate, as when cast.

    Raises:
        ValueError: an integer that does not fit into 64 bits.
    """
    return apply1(Full(in_range(value, dtype), shape, dtype))


def in_range(value: Number, dtype: DType) -> Number:
    """`value` as a number of `dtype`."""
    if not dtype.is_integer or isinstance(value, (bool, np.bool_)):
        return number_of(value, dtype)
    limits = np.iinfo(dtype.np_type)
    if isinstance(value, (float, np.floating)):
        return 0 if math.isnan(value) else int(max(limits.min, min(limits.max, value)))
    if not -(2**63) <= value < 2**64:
        raise ArgumentValueError(f"the integer {value} does not fit into 64 bits")
    return int((int(value) - limits.min) % (1 << dtype.bits) + limits.min)


def as_tensor(x: Any, what: str = "operand", function: str = "") -> Tensor:
    """`x` as a Tensor: itself, a number, a list or tuple of numbers (and Tensors), or a numpy array.

    Raises:
        TypeError: for anything else.
    """
    if isinstance(x, Tensor):
        return x
    if is_number(x):
        return full((), x, dt.from_numpy(x.dtype) if isinstance(x, np.generic) else dt.scalar_dtype(x))
    if isinstance(x, np.ndarray):
        return Tensor(x)
    if isinstance(x, (list, tuple)):
        if any(isinstance(e, Tensor) and e.is_symbolic for e in x):
            from graphcell.ops.functional.movement import stack

            return stack([as_tensor(e) for e in x])
        return Tensor(x)
    where = f"{function}: " if function else ""
    raise ArgumentTypeError(f"{where}{what} must be a Tensor or a number, but is {type(x).__name__}")


def cast(x: Any, dtype: Any) -> Tensor:
    """x converted to `dtype`.

    Raises:
        TypeError: x is no Tensor or number, or `dtype` is none.
    """
    t, target = as_tensor(x, "input", "cast"), dt.as_dtype(dtype)
    return t if t.dtype is target else apply1(Cast(target), t)


def broadcast_shapes(function: str, *shapes: Shape) -> Shape:
    """The common shape of operands.

    Raises:
        ValueError: if they do not broadcast.
    """
    result: list[int] = []
    rank = max(map(len, shapes))
    for k in range(rank):
        extent = 1
        for shape in shapes:
            d = shape[k - rank + len(shape)] if k - rank + len(shape) >= 0 else 1
            if d != 1 and extent not in (1, d):
                raise ShapeError(f"{function}: shapes {' and '.join(map(str, shapes))} cannot be broadcast together")
            extent = d if d != 1 else extent
        result.append(extent)
    return tuple(result)


def broadcast(x: Tensor, shape: Shape) -> Tensor:
    return x if x.shape == shape else apply1(_broadcast_to(shape), x)


_broadcast_to = lru_cache(maxsize=1024)(BroadcastTo)


def common_dtype(x: Any, y: Any, function: str) -> DType:
    """The dtype in which two operands (Tensors or numbers) meet."""
    if isinstance(x, Tensor):
        return dt.promote(x.dtype, y.dtype) if isinstance(y, Tensor) else dt.promote_scalar(x.dtype, _number(y, function))
    if isinstance(y, Tensor):
        return dt.promote_scalar(y.dtype, _number(x, function))
    return dt.promote(dt.scalar_dtype(_number(x, function)), dt.scalar_dtype(_number(y, function)))


def _number(x: Any, function: str) -> Number:
    if is_number(x):
        return x
    raise ArgumentTypeError(f"{function}: operands must be Tensors or numbers, but one is {type(x).__name__}")


def pair(x: Any, y: Any, function: str, dtype: DType | None = None) -> tuple[Tensor, Tensor]:
    """Two operands as Tensors of one dtype (the promoted one, or `dtype`) and one shape."""
    if isinstance(x, Tensor) and isinstance(y, Tensor) and x.shape == y.shape and x.dtype is y.dtype and dtype in (None, x.dtype):
        return x, y
    if not isinstance(x, (Tensor, *NUMBER_TYPES)):
        x = as_tensor(x, "the first operand", function)
    if not isinstance(y, (Tensor, *NUMBER_TYPES)):
        y = as_tensor(y, "the second operand", function)
    target = dtype or common_dtype(x, y, function)
    shape = broadcast_shapes(function, getattr(x, "shape", ()), getattr(y, "shape", ()))
    return _operand(x, target, shape), _operand(y, target, shape)


def _operand(x: Any, dtype: DType, shape: Shape) -> Tensor:
    if isinstance(x, Tensor):
        return broadcast(cast(x, dtype), shape)
    if state.trace is not None:
        return full(shape, x, dtype)
    return Tensor.of_array(_repeated(type(x).__name__, x, str(x) if x == 0 else "", dtype, shape))


@lru_cache(maxsize=1024)
def _repeated(kind: str, x: Number, zero: str, dtype: DType, shape: Shape) -> Array:
    """A number, read-only, in each element; beyond `_WHOLE_BYTES` all of them are one in memory. `kind` and `zero` tell equal numbers apart."""
    with np.errstate(over="ignore"):
        one = np.array(in_range(x, dtype), dtype.np_type)
    repeated = repeat(one, shape)
    if repeated.nbytes <= _WHOLE_BYTES:
        repeated = np.ascontiguousarray(repeated).reshape(shape)
        repeated.flags.writeable = False
    return repeated


def binary(op: Op, x: Any, y: Any, dtype: DType | None = None) -> Tensor:
    """A two-operand elementwise op with promotion and broadcasting."""
    a, b = pair(x, y, op.name, dtype)
    return apply1(op, a, b)


def as_float(x: Any, function: str) -> Tensor:
    """An operand for a function of real numbers: integers and Bool become float32."""
    t = as_tensor(x, "input", function)
    return t if t.dtype.is_float else cast(t, dt.float32)


def select(condition: Tensor, x: Any, y: Any) -> Tensor:
    """x where `condition` (Bool Tensor), else y; all three broadcast."""
    a, b = pair(x, y, "select")
    shape = broadcast_shapes("select", condition.shape, a.shape)
    return apply1(Select(), broadcast(condition, shape), broadcast(a, shape), broadcast(b, shape))


def full_like(x: Tensor, value: Number, dtype: DType | None = None) -> Tensor:
    return full(x.shape, value, dtype or x.dtype)


def zeros_like(x: Tensor, dtype: Any = None) -> Tensor:
    """Zeros of the shape and (unless given) dtype of x."""
    return full(x.shape, 0, x.dtype if dtype is None else dt.as_dtype(dtype))


def ones_like(x: Tensor, dtype: Any = None) -> Tensor:
    """Ones of the shape and (unless given) dtype of x."""
    return full(x.shape, 1, x.dtype if dtype is None else dt.as_dtype(dtype))


def constant(array: Any) -> Tensor:
    """A Tensor of values known while compiling."""
    data = np.asarray(array)
    return apply1(Constant(Literal(data), dt.from_numpy(data.dtype)))


def apply_slice_gradient(cut: Slice, shape: Shape, g: Tensor) -> Tensor:
    """The transpose of a strided slice: `g` put back into zeros of `shape`."""
    if 0 in g.shape:
        return full(shape, 0, g.dtype)
    flip = tuple(k for k, s in enumerate(cut.step) if s < 0)
    start = list(cut.start)
    if flip:
        g = apply1(reverse(g.shape, flip), g)
        for k in flip:
            start[k] += cut.step[k] * (cut.size[k] - 1)
    step = [abs(s) for s in cut.step]
    used = [(n - 1) * s + 1 for n, s in zip(cut.size, step, strict=True)]
    high = tuple(d - a - u for d, a, u in zip(shape, start, used, strict=True))
    return apply1(Pad(tuple(start), high, tuple(s - 1 for s in step), number_of(0, g.dtype)), g)


def reverse(shape: Shape, axes: tuple[int, ...]) -> Slice:
    """The strided slice that reverses `axes` of a Tensor of `shape`."""
    start = tuple(d - 1 if k in axes and d else 0 for k, d in enumerate(shape))
    return Slice(start, shape, tuple(-1 if k in axes else 1 for k in range(len(shape))))
