"""Attaches operators and elementwise methods to `Tensor`.

tensor.py stands below the ops, so Tensor gets what is computed by ops here, from tables of name and function. A public function whose
first argument is the Tensor serves as the method; where MindSpore's method takes other arguments, a small function below adapts it.
Methods that move, reduce, index and sort are in methods_movement.py.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from graphcell import dtype as dt
from graphcell.dtype import DType
from graphcell.errors import ArgumentTypeError, ArgumentValueError, DTypeError, IndexRangeError, ShapeError, UnsupportedSyntaxError
from graphcell.ops.dispatch import write, written_in
from graphcell.ops.functional import activation, arithmetic, common, comparison, creation, mathematics
from graphcell.ops.functional.axes import one_of
from graphcell.ops.functional.common import NUMBER_TYPES
from graphcell.tensor import Tensor, state

Function = Callable[..., Any]


def attach(table: tuple[tuple[str, Any], ...]) -> None:
    """Makes each function or property of `table` an attribute of Tensor."""
    for name, function in table:
        setattr(Tensor, name, function)


def functions(module: Any, names: str) -> tuple[tuple[str, Function], ...]:
    """A table of public functions that serve as methods of the same name."""
    return tuple((name, getattr(module, name)) for name in names.split())


# -- operators -------------------------------------------------------------------------------------------------------------
def reflected(function: Function) -> Function:
    """The operator of a right operand: `__rsub__` from `sub`."""

    def operator(self: Tensor, other: Any) -> Any:
        return function(other, self)

    return operator


def _equal(self: Tensor, other: Any) -> Any:
    return comparison.equal(self, other) if isinstance(other, (Tensor, *NUMBER_TYPES, np.ndarray)) else False


def _not_equal(self: Tensor, other: Any) -> Any:
    return comparison.not_equal(self, other) if isinstance(other, (Tensor, *NUMBER_TYPES, np.ndarray)) else True


def _matmul(self: Tensor, other: Any) -> Any:
    from graphcell.ops import matmul

    return matmul(self, other)


def _rmatmul(self: Tensor, other: Any) -> Any:
    from graphcell.ops import matmul

    return matmul(other, self)


def _round(self: Tensor, ndigits: int | None = None) -> Any:
    return mathematics.round(self, decimals=ndigits or 0)


def _getitem(self: Tensor, index: Any) -> Any:
    from graphcell.ops.functional.indexing import tensor_getitem

    return tensor_getitem(self, index)


def _setitem(self: Tensor, index: Any, value: Any) -> None:
    from graphcell.ops.functional.indexing import tensor_setitem

    write(self, tensor_setitem(written_in(self), index, value))


def _iter(self: Tensor) -> Iterator[Tensor]:
    if self.ndim == 0:
        raise ArgumentTypeError("iteration over a 0-d tensor")
    return (self[k] for k in range(self.shape[0]))


def _contains(self: Tensor, element: Any) -> builtins.bool:
    same = _equal(self, element)
    return builtins.bool(same.any()) if isinstance(same, Tensor) else False


OPERATORS: tuple[tuple[str, Function], ...] = (
    ("__add__", arithmetic.add), ("__radd__", reflected(arithmetic.add)),
    ("__sub__", arithmetic.sub), ("__rsub__", reflected(arithmetic.sub)),
    ("__mul__", arithmetic.mul), ("__rmul__", reflected(arithmetic.mul)),
    ("__truediv__", arithmetic.true_divide), ("__rtruediv__", reflected(arithmetic.true_divide)),
    ("__floordiv__", arithmetic.floor_div), ("__rfloordiv__", reflected(arithmetic.floor_div)),
    ("__mod__", arithmetic.floor_mod), ("__rmod__", reflected(arithmetic.floor_mod)),
    ("__pow__", arithmetic.pow), ("__rpow__", reflected(arithmetic.pow)),
    ("__matmul__", _matmul), ("__rmatmul__", _rmatmul),
    ("__and__", comparison.bitwise_and), ("__rand__", reflected(comparison.bitwise_and)),
    ("__or__", comparison.bitwise_or), ("__ror__", reflected(comparison.bitwise_or)),
    ("__xor__", comparison.bitwise_xor), ("__rxor__", reflected(comparison.bitwise_xor)),
    ("__lshift__", comparison.bitwise_left_shift), ("__rlshift__", reflected(comparison.bitwise_left_shift)),
    ("__rshift__", comparison.bitwise_right_shift), ("__rrshift__", reflected(comparison.bitwise_right_shift)),
    ("__neg__", arithmetic.neg), ("__pos__", creation.identity), ("__abs__", arithmetic.abs), ("__invert__", comparison.logical_not),
    ("__round__", _round), ("__eq__", _equal), ("__ne__", _not_equal), ("__lt__", comparison.less), ("__le__", comparison.less_equal),
    ("__gt__", comparison.greater), ("__ge__", comparison.greater_equal), ("__getitem__", _getitem), ("__setitem__", _setitem),
    ("__iter__", _iter), ("__contains__", _contains),
)  # fmt: skip


# -- conversion ------------------------------------------------------------------------------------------------------------
def astype(self: Tensor, dtype: Any, copy: builtins.bool = True) -> Tensor:
    """The values converted to `dtype` (a DType, its name, a Python or numpy type). Names without a width, and `float`, are numpy's: float64.

    Raises:
        TypeError: `dtype` is none.
    """
    target = dt.float64 if dtype is float or dtype == "float" else dt.int64 if dtype == "int" else dt.as_dtype(dtype)
    return self if not copy and target is self.dtype else creation.cast(self, target)


def converter(target: DType) -> Function:
    """The method that converts to `target`: `x.half()`."""

    def convert(self: Tensor) -> Tensor:
        return creation.cast(self, target)

    convert.__doc__ = f"The values converted to {target.name}."
    return convert


def type_of(self: Tensor, dtype: Any = None) -> Any:
    """The name of the dtype (`'Float32'`), or the values converted to `dtype` as `astype` does.

    Raises:
        TypeError: `dtype` is none.
    """
    return str(self.dtype) if dtype is None else astype(self, dtype)


def type_as(self: Tensor, other: Tensor) -> Tensor:
    """The values converted to the dtype of `other`."""
    return creation.cast(self, other.dtype)


def to(
    self: Tensor, *target: Any, dtype: Any = None, device: Any = None, other: Any = None, non_blocking: Any = False, copy: builtins.bool = False
) -> Tensor:
    """The values converted to a dtype, or that of the Tensor `other`; the device "CPU" changes nothing, of "meta" they are left out (see `Tensor`).

    Raises:
        ValueError: for another device. TypeError: for what is neither a dtype nor a device. RuntimeError: this Tensor has no values.
    """
    everything = [*target, *(x for x in (dtype, device, other) if x is not None)]
    if "meta" in [x for x in everything if isinstance(x, str)]:
        described = Tensor(self, device="meta")
        others = [x for x in everything if not (isinstance(x, (str, builtins.bool)) or x is None)]
        return Tensor(described, others[0].dtype if isinstance(others[0], Tensor) else dt.as_dtype(others[0])) if others else described
    for given in everything:
        if isinstance(given, str) and given.upper() in ("ASCEND", "GPU"):
            raise ArgumentValueError(f"to: there is no device {given!r} here, only 'CPU' and 'meta'")
        if isinstance(given, str) and given.split(":")[0].upper() == "CPU":
            if self.is_meta:
                self.array()  # raises
            continue
        if isinstance(given, builtins.bool):
            continue  # non_blocking, copy
        return creation.cast(self, given.dtype if isinstance(given, Tensor) else given)
    return creation.deepcopy(self) if copy else self


def copy(self: Tensor) -> Tensor:
    """A Tensor with the same values in memory of its own; gradients flow through."""
    return creation.deepcopy(self)


def value(self: Tensor) -> Tensor:
    """The Tensor itself."""
    return self


def get_bytes(self: Tensor) -> bytes:
    """The values in memory order, as bytes."""
    return self.array().tobytes()


# -- new Tensors of the same dtype -------------------------------------------------------------------------------------------
def new_full(self: Tensor, size: Any, fill_value: Any, *, dtype: Any = None) -> Tensor:
    """`fill_value` in every element of a Tensor of shape `size`; dtype: by default this Tensor's."""
    return creation.full(size, fill_value, dtype=self.dtype if dtype is None else dtype)


# -- methods that differ from the function of their name -----------------------------------------------------------------------
def add(self: Tensor, other: Any, *, alpha: Any = 1) -> Tensor:
    """self + alpha * other."""
    return arithmetic.add(self, _scaled(other, alpha))


def sub(self: Tensor, other: Any = None, *, y: Any = None, alpha: Any = 1) -> Tensor:
    """self - alpha * other; `other` may also be called `y`."""
    return arithmetic.sub(self, _scaled(one_of("sub", other=other, y=y), alpha))


def _scaled(other: Any, alpha: Any) -> Any:
    return other if isinstance(alpha, NUMBER_TYPES) and alpha == 1 else arithmetic.mul(other, alpha)


def remainder(self: Tensor, other: Any = None, *, divisor: Any = None) -> Tensor:
    """See `ops.remainder`; the divisor may be given under either name."""
    return arithmetic.floor_mod(self, divisor if other is None else other)


def where(self: Tensor, condition: Tensor, y: Any) -> Tensor:
    """self where `condition` is not 0, else y."""
    result: Tensor = creation.where(condition, self, y)
    return result


def allclose(self: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: builtins.bool = False) -> Any:
    """Whether all elements are close (see `isclose`): a bool, or a Tensor of Bool while a graph is being built."""
    answer = creation.isclose(self, other, rtol, atol, equal_nan).all()
    return answer if answer.is_symbolic else builtins.bool(answer)


# -- in place: the newest value of this very Tensor ------------------------------------------------------------------------------
def update(self: Tensor, new: Any, function: str) -> Tensor:
    """Makes `new` the value of `self`; returns `self`.

    Raises:
        ValueError: the shape would change. TypeError: the dtype would have to be of a higher kind.
    """
    t = common.as_tensor(new, "value", function)
    held = written_in(self)
    if t.shape != self.shape:
        raise ShapeError(f"{function}: a result of shape {t.shape} cannot be written into a Tensor of shape {self.shape}")
    if dt.promote(held.dtype, t.dtype) is not held.dtype:
        raise DTypeError(f"{function}: a result of {t.dtype} cannot be written into a Tensor of {held.dtype}", hint="cast the Tensor first")
    if held.dtype is t.dtype or held is self:
        write(self, common.cast(t, held.dtype))
    else:  # of what was not changed nothing is rounded
        write(self, creation.where(t == self, held, common.cast(t, held.dtype)))
    return self


def in_place(function: Function, name: str) -> Function:
    """The in-place form of a function of one operand."""

    def method(self: Tensor) -> Tensor:
        return update(self, function(written_in(self)), name)

    method.__doc__ = f"In place: {function.__doc__}"
    return method


def add_(self: Tensor, other: Any, *, alpha: Any = 1) -> Tensor:
    """In place: self + alpha * other."""
    return update(self, add(written_in(self), other, alpha=alpha), "add_")


def sub_(self: Tensor, other: Any, *, alpha: Any = 1) -> Tensor:
    """In place: self - alpha * other."""
    return update(self, sub(written_in(self), other, alpha=alpha), "sub_")


def mul_(self: Tensor, other: Any) -> Tensor:
    """In place: self * other."""
    return update(self, arithmetic.mul(written_in(self), other), "mul_")


def div_(self: Tensor, other: Any, *, rounding_mode: str | None = None) -> Tensor:
    """In place: self / other (see `ops.div`)."""
    return update(self, arithmetic.div(written_in(self), other, rounding_mode=rounding_mode), "div_")


def copy_(self: Tensor, src: Any, non_blocking: builtins.bool = False) -> Tensor:
    """In place: the values of `src`, broadcast to this shape and converted to this dtype."""
    return update(self, common.broadcast(common.cast(src, written_in(self).dtype), self.shape), "copy_")


def fill_(self: Tensor, value: Any) -> Tensor:
    """In place: `value` in every element."""
    return update(self, creation.full_like(written_in(self), value), "fill_")


def zero_(self: Tensor) -> Tensor:
    """In place: 0 in every element."""
    return update(self, creation.zeros_like(written_in(self)), "zero_")


def clamp_(self: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """In place: see `ops.clamp`."""
    return update(self, arithmetic.clamp(written_in(self), min, max), "clamp_")


def assign_value(self: Tensor, value: Any) -> Tensor:
    """Makes `value` the value of this Tensor; outside of a graph it may have another shape and dtype."""
    t = common.as_tensor(value, "value", "assign_value")
    if state.trace is not None:
        return update(self, t, "assign_value")
    write(self, t)
    return self


def set_dtype(self: Tensor, dtype: DType) -> DType:
    """Makes `dtype` the dtype of this Tensor and converts its values; gives back `dtype`.

    Raises:
        TypeError: dtype is no dtype. RuntimeError: in a compiled function.
    """
    if not isinstance(dtype, DType):
        raise ArgumentTypeError(f"Tensor.set_dtype takes a dtype such as mindspore.float16, but got {type(dtype).__name__}")
    if state.trace is not None:
        raise UnsupportedSyntaxError("Tensor.set_dtype: the dtype of a Tensor is known when a function is compiled", hint="use astype inside of it")
    if dtype is not self.dtype:
        write(self, common.cast(self, dtype))
    return dtype


# -- storage -----------------------------------------------------------------------------------------------------------------
def contiguous(self: Tensor) -> Tensor:
    """The same values in row-major order: the Tensor itself where they lie so already."""
    return self if is_contiguous(self) else creation.deepcopy(self)


def is_contiguous(self: Tensor) -> builtins.bool:
    """True where the elements lie in row-major order, as those of a graph always do."""
    return self.is_symbolic or self.array().flags.c_contiguous


def stride(self: Tensor, dim: int | None = None) -> Any:
    """Elements from one to the next along each dimension; for one `dim` that number.

    Raises:
        IndexError: there is no such dimension.
    """
    if self.is_symbolic:
        steps = [math.prod(max(d, 1) for d in self.shape[k + 1 :]) for k in range(self.ndim)]
    else:
        steps = [step // self.itemsize for step in self.array().strides]
    if dim is None:
        return steps
    if not -self.ndim <= dim < self.ndim:
        raise IndexRangeError(f"stride: dim must be in [{-self.ndim}, {self.ndim}), but is {dim}")
    return steps[dim]


def storage_offset(self: Tensor) -> int:
    """0: a Tensor begins where its memory begins."""
    return 0


def data_ptr(self: Tensor) -> int:
    """The address of the first element."""
    return self.expose()


def is_signed(self: Tensor) -> builtins.bool:
    """True for signed integers and floats."""
    return self.dtype.signed


def _false(self: Tensor) -> builtins.bool:
    """False: Tensors live in ordinary memory."""
    return False


def _transposed(self: Tensor) -> Tensor:
    """All dimensions reversed."""
    result: Tensor = self.transpose()
    return result


def _matrix_transposed(self: Tensor) -> Tensor:
    """The last two dimensions exchanged.

    Raises:
        ValueError: there are less than two.
    """
    if self.ndim < 2:
        raise ShapeError(f"mT: the Tensor must have two dimensions at least, but has shape {self.shape}")
    result: Tensor = self.swapaxes(-1, -2)
    return result


METHODS: tuple[tuple[str, Any], ...] = (
    *functions(activation, "hardshrink"), ("soft_shrink", activation.softshrink),
    *functions(arithmetic, """
        abs absolute addcdiv addcmul angle clamp clip copysign div divide floor_divide fmax fmod gcd heaviside inv invert lcm ldexp
        lerp maximum minimum mul nan_to_num neg negative nextafter positive pow reciprocal sgn sign square subtract"""),
    *functions(comparison, """
        bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor eq equal ge greater greater_equal gt isfinite
        isinf isnan isneginf isposinf le less less_equal logical_and logical_not logical_or logical_xor lt ne not_equal signbit"""),
    *functions(creation, "conj imag is_complex is_floating_point isreal real"),
    *functions(mathematics, """
        acos acosh arccos arccosh arcsin arcsinh arctan arctan2 arctanh asin asinh atan atan2 atanh ceil cos cosh deg2rad digamma erf erfc
        erfinv exp expm1 floor frac hypot lgamma log log10 log1p log2 logaddexp logaddexp2 logit mvlgamma rad2deg round rsqrt sigmoid sin
        sinc sinh sqrt tan tanh trunc xlogy"""),
    ("astype", astype), ("type", type_of), ("type_as", type_as), ("to", to), ("copy", copy), ("clone", copy), ("value", value),
    ("get_bytes", get_bytes), ("float", converter(dt.float32)), ("double", converter(dt.float64)), ("half", converter(dt.float16)),
    ("bfloat16", converter(dt.bfloat16)), ("bool", converter(dt.bool_)), ("byte", converter(dt.uint8)), ("char", converter(dt.int8)),
    ("short", converter(dt.int16)), ("int", converter(dt.int32)), ("long", converter(dt.int64)),
    ("new_full", new_full), ("add", add), ("sub", sub),
    ("remainder", remainder), ("where", where), ("allclose", allclose), ("add_", add_), ("sub_", sub_), ("mul_", mul_), ("div_", div_), ("copy_", copy_),
    ("fill_", fill_), ("zero_", zero_), ("clamp_", clamp_), ("assign_value", assign_value), ("set_dtype", set_dtype),
    ("exp_", in_place(mathematics.exp, "exp_")),
    ("floor_", in_place(mathematics.floor, "floor_")), ("erfinv_", in_place(mathematics.erfinv, "erfinv_")),
    ("contiguous", contiguous), ("is_contiguous", is_contiguous), ("stride", stride), ("storage_offset", storage_offset),
    ("data_ptr", data_ptr), ("is_signed", is_signed), ("is_pinned", _false), ("is_shared", _false),
)  # fmt: skip

PROPERTIES: tuple[tuple[str, Any], ...] = (
    ("T", property(_transposed)), ("mT", property(_matrix_transposed)), ("H", property(_matrix_transposed)),
    ("mH", property(_matrix_transposed)), ("data", property(creation.identity)),
)  # fmt: skip

attach(OPERATORS)
attach(METHODS)
attach(PROPERTIES)
