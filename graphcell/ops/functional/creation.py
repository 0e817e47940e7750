"""Public functions that make Tensors (fills, ramps, identity matrices, windows), convert, select, and write them.

Shapes and steps are known while compiling; numbers that fill may be Tensors of one element.
"""

from __future__ import annotations

import builtins
import math
from typing import Any

import numpy as np

from graphcell import buffer
from graphcell import dtype as dt
from graphcell.dtype import DType
from graphcell.errors import ArgumentTypeError, ArgumentValueError, DTypeError, ShapeError
from graphcell.ir.op import Op
from graphcell.ir.types import Shape
from graphcell.ops import arithmetic as p
from graphcell.ops.creation import Iota
from graphcell.ops.dispatch import apply1, write, written_in
from graphcell.ops.functional import common
from graphcell.ops.functional.axes import int_of, int_or_ints, tensor_of
from graphcell.ops.functional.common import NUMBER_TYPES, as_tensor, broadcast, constant, is_number, pair
from graphcell.ops.functional.comparison import as_bool, isnan
from graphcell.tensor import Tensor, state

__all__ = [
    "arange", "assign", "assign_add", "assign_sub", "bartlett_window", "blackman_window", "cast", "conj", "deepcopy", "depend", "dtype",
    "eye", "fill", "full", "full_like", "hamming_window", "hann_window", "identity", "imag", "is_complex", "is_floating_point",
    "is_nonzero", "is_tensor", "isclose", "isreal", "kaiser_window", "linspace", "logspace", "ones", "ones_like", "range", "real",
    "scalar_cast", "scalar_to_tensor", "select", "stop_gradient", "tuple_to_array", "where", "zeros", "zeros_like",
]  # fmt: skip


# -- fills -------------------------------------------------------------------------------------------------------------
def _shape(size: Any, function: str) -> Shape:
    shape = int_or_ints(size, function, "size")
    if any(d < 0 for d in shape):
        raise ArgumentValueError(f"{function}: extents must not be negative, but size is {shape}")
    return shape


def _filled(shape: Shape, value: Any, dtype: Any, function: str) -> Tensor:
    """`value` (a number, or a Tensor of one element) in every element; dtype None keeps the value's."""
    target = None if dtype is None else dt.as_dtype(dtype)
    if isinstance(value, Tensor):
        if value.size != 1:
            raise ArgumentValueError(f"{function}: fill_value must be a number or a Tensor of one element, but has shape {value.shape}")
        one = value if value.shape == () else value.reshape(())
        return broadcast(one if target is None else common.cast(one, target), shape)
    if not is_number(value):
        raise ArgumentTypeError(f"{function}: fill_value must be a number or a Tensor of one element, but is {type(value).__name__}")
    return common.full(shape, value, target or dt.scalar_dtype(value))


def full(size: Any, fill_value: Any, *, dtype: Any = None) -> Tensor:
    """A Tensor of shape `size` (a tuple or list of ints) with `fill_value` in every element; dtype: by default int64, whatever the value is.

    Raises:
        TypeError: size is no tuple or list of ints. ValueError: an extent is negative.
    """
    if not isinstance(size, (tuple, list)):
        raise ArgumentTypeError(f"full: size must be a tuple or list of ints, but is {type(size).__name__}")
    return _filled(_shape(size, "full"), fill_value, dt.int64 if dtype is None else dtype, "full")


def fill(type: Any, shape: Any, value: Any) -> Tensor:
    """A Tensor of dtype `type` and the given shape with `value` in every element."""
    return _filled(_shape(shape, "fill"), value, type, "fill")


def zeros(size: Any, dtype: Any = None) -> Tensor:
    """Zeros of shape `size` (an int, a tuple or list of ints, a 1-D integer Tensor); dtype: by default float32."""
    return common.full(_shape(size, "zeros"), 0, dt.float32 if dtype is None else dt.as_dtype(dtype))


def ones(shape: Any, dtype: Any = None) -> Tensor:
    """Ones of the given shape (an int, a tuple or list of ints, a 1-D integer Tensor); dtype: by default float32."""
    return common.full(_shape(shape, "ones"), 1, dt.float32 if dtype is None else dt.as_dtype(dtype))


def full_like(input: Any, fill_value: Any, *, dtype: Any = None) -> Tensor:
    """`fill_value` in every element; shape and (unless given) dtype of input."""
    x = tensor_of(input, "full_like")
    return _filled(x.shape, fill_value, x.dtype if dtype is None else dtype, "full_like")


def zeros_like(input: Any, *, dtype: Any = None) -> Tensor:
    """Zeros of the shape and (unless given) dtype of input."""
    return full_like(input, 0, dtype=dtype)


def ones_like(input: Any, *, dtype: Any = None) -> Tensor:
    """Ones of the shape and (unless given) dtype of input."""
    return full_like(input, 1, dtype=dtype)


def eye(n: int, m: int | None = None, dtype: Any = None) -> Tensor:
    """Ones on the main diagonal of an (n, m) matrix (m: by default n), zeros elsewhere; dtype: by default float32.

    Raises:
        ValueError: n or m is negative.
    """
    rows = int_of(n, "eye", "n")
    columns = rows if m is None else int_of(m, "eye", "m")
    shape = _shape((rows, columns), "eye")
    on_diagonal = apply1(Iota(shape, 0, dt.int64)) == apply1(Iota(shape, 1, dt.int64))
    return common.cast(on_diagonal, dt.float32 if dtype is None else dt.as_dtype(dtype))


# -- ramps -------------------------------------------------------------------------------------------------------------
def _number(x: Any, function: str, what: str) -> int | float:
    if isinstance(x, Tensor):
        x = x.item()
    if isinstance(x, NUMBER_TYPES) and not isinstance(x, (bool, np.bool_)):
        return x.item() if isinstance(x, np.generic) else x
    raise ArgumentTypeError(f"{function}: {what} must be a number, but is {type(x).__name__}")


def ramp(start: float, step: float, count: int, dtype: DType) -> Tensor:
    """start, start + step, …: `count` numbers, computed in int64 or float64 and rounded once."""
    wide = dt.int64 if isinstance(start, int) and isinstance(step, int) else dt.float64
    numbers = apply1(Iota((count,), 0, wide))
    if step != 1:
        numbers = numbers * step
    return common.cast(numbers + start if start != 0 else numbers, dtype)


def _count(start: float, end: float, step: float, function: str) -> int:
    if step == 0:
        raise ArgumentValueError(f"{function}: step must not be 0")
    if (end - start) * (1 if step > 0 else -1) < 0:
        raise ArgumentValueError(f"{function}: from {start} no step of {step} leads to {end}")
    if all(isinstance(x, int) for x in (start, end, step)):
        return int(-((start - end) // step))
    return math.ceil((end - start) / step)


def arange(start: Any = 0, end: Any = None, step: Any = 1, *, dtype: Any = None) -> Tensor:
    """start, start + step, … up to, but without, `end`; with one argument: from 0 to it.

    dtype: by default int64 if all are integers, else float32.

    Raises:
        TypeError: not numbers. ValueError: step is 0, or leads away from end.
    """
    first, last = (0, start) if end is None else (start, end)
    return _arange(first, last, step, dtype, "arange")


def _arange(start: Any, end: Any, step: Any, dtype: Any, function: str) -> Tensor:
    a, b, s = _number(start, function, "start"), _number(end, function, "end"), _number(step, function, "step")
    whole = all(isinstance(x, int) for x in (a, b, s))
    target = (dt.int64 if whole else dt.float32) if dtype is None else dt.as_dtype(dtype)
    return ramp(a, s, _count(a, b, s, function), target)


def range(start: Any, end: Any, step: Any, maxlen: int = 1000000) -> Tensor:
    """start, start + step, … up to, but without, `end`.

    Raises:
        TypeError: not numbers. ValueError: step is 0 or leads away from end, or there are more than `maxlen` numbers.
    """
    result = _arange(start, end, step, None, "range")
    if result.size > maxlen:
        raise ArgumentValueError(f"range: there are {result.size} numbers, more than maxlen {maxlen}")
    return result


def linspace(start: Any, end: Any, steps: int) -> Tensor:
    """`steps` numbers from `start` to `end`, both included, at equal distances. Numbers give float32; 0-d Tensors keep their float dtype.

    Raises:
        TypeError: not numbers or 0-d Tensors, or steps no int. ValueError: steps is less than 1.
    """
    count = int_of(steps, "linspace", "steps")
    if count < 1:
        raise ArgumentValueError(f"linspace: steps must be positive, but is {count}")
    if not isinstance(start, Tensor) and not isinstance(end, Tensor):
        a, b = _number(start, "linspace", "start"), _number(end, "linspace", "end")
        return ramp(float(a), (b - a) / builtins.max(count - 1, 1), count, dt.float32)
    first, last = pair(start, end, "linspace")
    if first.shape != ():
        raise ShapeError(f"linspace: start and end must be numbers or 0-d Tensors, but have shape {first.shape}")
    wide = first if first.dtype.is_float else common.cast(first, dt.float32)
    part = ramp(0.0, 1.0 / builtins.max(count - 1, 1), count, wide.dtype)
    return broadcast(wide, (count,)) * (1.0 - part) + broadcast(common.cast(last, wide.dtype), (count,)) * part


def logspace(start: Any, end: Any, steps: int, base: int = 10, *, dtype: Any = dt.float32) -> Tensor:
    """base ** linspace(start, end, steps).

    Raises:
        TypeError: base or steps is no int. ValueError: steps is less than 1, or base is not positive.
    """
    if int_of(base, "logspace", "base") <= 0:
        raise ArgumentValueError(f"logspace: base must be positive, but is {base}")
    exponents = linspace(common.cast(start, dt.float64), common.cast(end, dt.float64), steps)
    return common.cast(common.full((), float(base), dt.float64) ** exponents, dtype)


# -- windows (numpy, known while compiling) ----------------------------------------------------------------------------
def _window(window_length: Any, periodic: bool, dtype: Any, default: DType, function: str, make: Any) -> Tensor:
    count = int_of(window_length, function, "window_length")
    if count < 0:
        raise ArgumentValueError(f"{function}: window_length must not be negative, but is {count}")
    values = np.ones(count) if count <= 1 else make(count + 1)[:-1] if periodic else make(count)
    return common.cast(constant(values), default if dtype is None else dtype)


def bartlett_window(window_length: Any, periodic: bool = True, *, dtype: Any = None) -> Tensor:
    """A triangular window of `window_length` samples; periodic: the first of one more sample. dtype: by default float32."""
    return _window(window_length, periodic, dtype, dt.float32, "bartlett_window", np.bartlett)


def blackman_window(window_length: Any, periodic: bool = True, *, dtype: Any = None) -> Tensor:
    """A Blackman window of `window_length` samples; periodic: the first of one more sample. dtype: by default float32."""
    return _window(window_length, periodic, dtype, dt.float32, "blackman_window", np.blackman)


def hamming_window(window_length: Any, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, *, dtype: Any = None) -> Tensor:
    """alpha - beta cos(2 pi k / n) for `window_length` samples k. dtype: by default float32."""

    def make(n: int) -> Any:
        return alpha - beta * np.cos(2.0 * np.pi * np.arange(n) / (n - 1))

    return _window(window_length, periodic, dtype, dt.float32, "hamming_window", make)


def hann_window(window_length: Any, periodic: bool = True, *, dtype: Any = None) -> Tensor:
    """A Hann window of `window_length` samples; periodic: the first of one more sample. dtype: by default float64."""
    return _window(window_length, periodic, dtype, dt.float64, "hann_window", np.hanning)


def kaiser_window(window_length: Any, periodic: bool = True, beta: float = 12.0, *, dtype: Any = None) -> Tensor:
    """A Kaiser window of `window_length` samples; periodic: the first of one more sample. dtype: by default float64."""
    return _window(window_length, periodic, dtype, dt.float64, "kaiser_window", lambda n: np.kaiser(n, beta))


# -- conversion --------------------------------------------------------------------------------------------------------
def cast(input: Any, dtype: Any) -> Tensor:
    """input (a Tensor or a number) converted to `dtype`. Floats are truncated and saturate to integers; Bool is input != 0.

    Raises:
        TypeError: input is no Tensor or number, or `dtype` is none.
    """
    if not isinstance(input, (Tensor, *NUMBER_TYPES)):
        raise ArgumentTypeError(f"cast: the input must be a Tensor or a number, but is {type(input).__name__}")
    result = common.cast(input, dtype)
    return another(result) if result is input else result


def identity(x: Any) -> Any:
    """Another Tensor with the value of x (they may share memory); writing one leaves the other. Anything but a Tensor is given back."""
    return another(x) if isinstance(x, Tensor) else x


def another(x: Tensor) -> Tensor:
    """Another Tensor with the value of x."""
    if state.trace is not None:
        return Tensor.of_value(state.trace.read(x))
    return _recorded(Tensor.of_array(x.array()), x)


def _recorded(new: Tensor, x: Tensor) -> Tensor:
    for tape in state.tapes:
        tape.alias(new, x)
    return new


def deepcopy(input_x: Any) -> Tensor:
    """A Tensor with the value of input_x in memory of its own. Gradients flow through."""
    x = tensor_of(input_x, "deepcopy")
    if state.trace is not None:
        return Tensor.of_value(state.trace.read(x))
    return _recorded(Tensor.of_array(buffer.copy(x.array())), x)


def scalar_to_tensor(input_x: Any, dtype: Any = dt.float32) -> Tensor:
    """A Python number as a 0-d Tensor.

    Raises:
        TypeError: input_x is no Python number.
    """
    if not isinstance(input_x, (bool, int, float)):
        raise ArgumentTypeError(f"scalar_to_tensor: input_x must be a number, but is {type(input_x).__name__}")
    return common.full((), input_x, dt.as_dtype(dtype))


def scalar_cast(input_x: Any, input_y: Any) -> bool | int | float:
    """A Python number converted to int (int64), float (float64) or bool.

    Raises:
        TypeError: input_x is no Python number. ValueError: input_y is another dtype.
    """
    if not isinstance(input_x, (bool, int, float)):
        raise ArgumentTypeError(f"scalar_cast: input_x must be a number, but is {type(input_x).__name__}")
    target = dt.as_dtype(input_y)
    if target not in (dt.int64, dt.float64, dt.bool_):
        raise ArgumentValueError(f"scalar_cast: input_y must be mindspore.int64, float64 or bool_, but is {target!r}")
    return bool(input_x) if target.is_bool else int(input_x) if target.is_integer else float(input_x)


def tuple_to_array(input_x: Any) -> Tensor:
    """A tuple of Python numbers of one kind as a 1-D Tensor: ints become int32, floats float32.

    Raises:
        TypeError: input_x is no tuple of numbers. ValueError: ints and floats are mixed.
    """
    if not isinstance(input_x, tuple) or not all(isinstance(x, (int, float)) and not isinstance(x, bool) for x in input_x):
        raise ArgumentTypeError("tuple_to_array: input_x must be a tuple of numbers")
    if len({type(x) for x in input_x}) > 1:
        raise ArgumentValueError("tuple_to_array: the numbers must all be ints or all be floats")
    whole = bool(input_x) and isinstance(input_x[0], int)
    return Tensor(list(input_x), dt.int32 if whole else dt.float32)


def tensor(input_data: Any = None, dtype: Any = None, shape: Any = None, init: Any = None, const_arg: bool = False) -> Tensor:
    """A new Tensor; arguments and errors as of the class `Tensor`. The public name is `mindspore.tensor`."""
    return Tensor(input_data, dtype, shape, init, const_arg)


# -- facts -------------------------------------------------------------------------------------------------------------
def dtype(input_x: Any) -> DType:
    """The dtype of a Tensor."""
    return tensor_of(input_x, "dtype").dtype


def is_tensor(obj: Any) -> bool:
    """True for a Tensor."""
    return isinstance(obj, Tensor)


def is_floating_point(input: Any) -> bool:
    """True for a Tensor of floats."""
    return tensor_of(input, "is_floating_point").dtype.is_float


def is_complex(input: Any) -> bool:
    """False: there are no complex Tensors."""
    tensor_of(input, "is_complex")
    return False


def is_nonzero(input: Any) -> bool | Tensor:
    """Whether the only element of input is not 0: a bool, or a Tensor of Bool while a graph is being built.

    Raises:
        ValueError: input has another number of elements.
    """
    x = tensor_of(input, "is_nonzero")
    if x.size != 1:
        raise ArgumentValueError(f"is_nonzero: the input must have one element, but has {x.size} (shape {x.shape})")
    answer = as_bool(x, "is_nonzero").reshape(())
    return answer if answer.is_symbolic else bool(answer)


def isreal(input: Any) -> Tensor:
    """True everywhere: there are no complex Tensors."""
    return full_like(input, True, dtype=dt.bool_)


def real(input: Any) -> Tensor:
    """input itself: there are no complex Tensors."""
    return another(tensor_of(input, "real"))


def imag(input: Any) -> Tensor:
    """Zeros: there are no complex Tensors."""
    return zeros_like(input)


def conj(input: Any) -> Tensor:
    """input itself: there are no complex Tensors."""
    return another(tensor_of(input, "conj"))


# -- selection ---------------------------------------------------------------------------------------------------------
def select(condition: Any, input: Any, other: Any) -> Tensor:
    """input where `condition` (a Tensor of Bool) is True, else other; all three broadcast, input and other are promoted.

    Raises:
        TypeError: condition is no Tensor of Bool, or an operand is no Tensor or number.
    """
    mask = tensor_of(condition, "select", "condition")
    if not mask.dtype.is_bool:
        raise DTypeError(f"select: condition must be a Tensor of Bool, but is {mask.dtype}")
    return common.select(mask, input, other)


def where(condition: Any, input: Any = None, other: Any = None) -> Any:
    """input where `condition` is not 0, else other; with `condition` alone: the indices of its nonzero elements, one Tensor a dimension.

    Raises:
        TypeError: condition is no Tensor, or only one of input and other is given.
    """
    mask = tensor_of(condition, "where", "condition")
    if input is None and other is None:
        from graphcell.ops import nonzero

        return nonzero(mask, as_tuple=True)
    if input is None or other is None:
        raise ArgumentTypeError("where: give both input and other, or neither")
    return common.select(as_bool(mask, "where"), input, other)


def isclose(input: Any, other: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Tensor:
    """|input - other| <= atol + rtol * |other|; equal infinities are close, NaN is close to NaN only with `equal_nan`.

    Raises:
        TypeError: operands are no Tensors, or differ in dtype.
    """
    x, y = tensor_of(input, "isclose"), tensor_of(other, "isclose", "other")
    if x.dtype is not y.dtype:
        raise DTypeError(f"isclose: the operands must have one dtype, but have {x.dtype} and {y.dtype}")
    a, b = pair(x, y, "isclose")
    if not a.dtype.is_float:
        a, b = common.cast(a, dt.float64), common.cast(b, dt.float64)
    infinite = common.full_like(b, math.inf)
    size = apply1(p.Abs(), b)
    close = (apply1(p.Abs(), a - b) <= atol + rtol * size) & (size < infinite)
    result: Tensor = (a == b) | close
    return result | (isnan(a) & isnan(b)) if equal_nan else result


# -- gradients, order, writing -----------------------------------------------------------------------------------------
def stop_gradient(value: Any) -> Any:
    """value, through which no gradient flows; in tuples and lists each Tensor, anything else is given back."""
    if isinstance(value, (tuple, list)):
        return type(value)(stop_gradient(v) for v in value)
    return apply1(p.StopGradient(), value) if isinstance(value, Tensor) else value


def depend(value: Any, expr: Any) -> Any:
    """value, after `expr` has been computed: effects keep the order of the program, so there is nothing left to do."""
    return value


def assign(variable: Any, value: Any) -> Tensor:
    """Makes `value` the value of `variable` (a Parameter or Tensor) from now on; returns it.

    Raises:
        TypeError: variable is no Tensor, or `value` has a dtype of a higher kind. ValueError: shapes differ.
    """
    target = tensor_of(variable, "assign", "variable")
    return _written(target, _for_variable(written_in(target), value, "assign"))


def assign_add(variable: Any, value: Any) -> Tensor:
    """Adds `value` to `variable` (a Parameter or Tensor); returns the sum. Errors as in `assign`."""
    return _moved(p.Add(), variable, value, "assign_add")


def assign_sub(variable: Any, value: Any) -> Tensor:
    """Subtracts `value` from `variable` (a Parameter or Tensor); returns the difference. Errors as in `assign`."""
    return _moved(p.Sub(), variable, value, "assign_sub")


def _moved(op: Op, variable: Any, value: Any, function: str) -> Tensor:
    target = tensor_of(variable, function, "variable")
    held = written_in(target)
    return _written(target, apply1(op, held, _for_variable(held, value, function)))


def _written(target: Tensor, new: Tensor) -> Tensor:
    """Writes `new` into `target`; what it holds then. Gradients of that are gradients of a Parameter, not of what was written into it."""
    write(target, new)
    return another(target) if target.is_variable and "written_through" not in target.__dict__ else common.cast(new, target.dtype)


def _for_variable(target: Tensor, value: Any, function: str) -> Tensor:
    number = not isinstance(value, Tensor)
    new = as_tensor(value, "value", function)
    if function != "assign" and {new.shape, target.shape} == {(), (1,)}:  # a step is added to a counter
        new = new.reshape(target.shape)  # type: ignore[attr-defined]
    if new.shape != target.shape:
        raise ShapeError(f"{function}: value must have the shape of variable, {target.shape}, but has {new.shape}")
    common_dtype = dt.promote_scalar(target.dtype, value) if number and is_number(value) else dt.promote(target.dtype, new.dtype)
    if common_dtype is not target.dtype:
        hint = f"cast it: value.astype({target.dtype!r})"
        raise DTypeError(f"{function}: a value of {new.dtype} does not fit a variable of {target.dtype}", hint=hint)
    return common.cast(new, target.dtype)
