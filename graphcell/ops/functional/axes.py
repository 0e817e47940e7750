"""What shape-changing functions get from the user, checked: axes, shapes, sizes, operands.

Enters: Python numbers, tuples, lists, Tensors. Leaves: plain non-negative ints and tuples, as primitives want them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphcell.errors import ArgumentTypeError, ArgumentValueError, ArityError
from graphcell.ir.op import Array
from graphcell.ir.types import Shape
from graphcell.tensor import Tensor, state


def tensor_of(x: Any, function: str, what: str = "input") -> Tensor:
    """`x`, which must be a Tensor.

    Raises:
        TypeError: if it is not.
    """
    if isinstance(x, Tensor):
        return x
    raise ArgumentTypeError(f"{function}: {what} must be a Tensor, but is {type(x).__name__}")


def tensors_of(xs: Any, function: str, what: str = "tensors") -> tuple[Tensor, ...]:
    """A non-empty tuple or list of Tensors.

    Raises:
        TypeError: no tuple or list, or an element that is no Tensor. ValueError: none at all.
    """
    if not isinstance(xs, (tuple, list)):
        raise ArgumentTypeError(f"{function}: {what} must be a tuple or list of Tensors, but is {type(xs).__name__}")
    if not xs:
        raise ArgumentValueError(f"{function}: {what} must hold one Tensor at least")
    return tuple(tensor_of(x, function, f"{what}[{k}]") for k, x in enumerate(xs))


def int_of(x: Any, function: str, what: str) -> int:
    """An int: Python's, numpy's, or the value of an integer Tensor with one element that is known by now.

    Raises:
        TypeError: for anything else, Bool included.
    """
    if isinstance(x, int) and not isinstance(x, bool):
        return x
    if isinstance(x, np.integer):
        return int(x)
    if isinstance(x, Tensor) and x.dtype.is_integer:
        return int(x)
    raise ArgumentTypeError(f"{function}: {what} must be an int, but is {type(x).__name__}")


def ints_of(xs: Any, function: str, what: str) -> tuple[int, ...]:
    """A tuple of ints from a tuple, a list or a 1-D integer Tensor.

    Raises:
        TypeError: for anything else.
    """
    if isinstance(xs, Tensor) and xs.dtype.is_integer and xs.ndim == 1:
        return tuple(int(n) for n in xs.array())
    if not isinstance(xs, (tuple, list)):
        raise ArgumentTypeError(f"{function}: {what} must be a tuple or list of ints, but is {type(xs).__name__}")
    return tuple(int_of(x, function, f"{what}[{k}]") for k, x in enumerate(xs))


def int_or_ints(x: Any, function: str, what: str) -> tuple[int, ...]:
    """One int, or several, as a tuple."""
    if isinstance(x, (tuple, list)) or (isinstance(x, Tensor) and x.ndim == 1):
        return ints_of(x, function, what)
    return (int_of(x, function, what),)


def plain_number(value: Any) -> bool | int | float:
    """A number of Python's or numpy's as Python's."""
    number: bool | int | float = value.item() if isinstance(value, np.generic) else value
    return number


def arguments(xs: tuple[Any, ...]) -> Any:
    """What stands behind `*shape`: f(2, 3), f((2, 3)) and f([2, 3]) are the same."""
    return xs[0] if len(xs) == 1 and isinstance(xs[0], (tuple, list, Tensor)) else xs


def either(function: str, **given: Any) -> Any:
    """The one of several arguments with the same meaning that is not None; None if none is.

    Raises:
        TypeError: more than one was given.
    """
    values = [value for value in given.values() if value is not None]
    if len(values) > 1:
        raise ArityError(f"{function}: {' and '.join(given)} mean the same; give one argument only")
    return values[0] if values else None


def one_of(function: str, **given: Any) -> Any:
    """The same, but one must be given.

    Raises:
        TypeError: none was given, or more than one.
    """
    value = either(function, **given)
    if value is None:
        raise ArityError(f"{function}: missing required argument {' or '.join(given)}")
    return value


def normalize_axis(axis: Any, rank: int, function: str, what: str = "axis") -> int:
    """`axis` in [0, rank), where a negative one counts from the end.

    Raises:
        TypeError: not an int. ValueError: outside of [-rank, rank).
    """
    k = int_of(axis, function, what)
    if not -rank <= k < rank:
        raise ArgumentValueError(f"{function}: {what} must be in [{-rank}, {rank}), but is {k}")
    return k + rank if k < 0 else k


def normalize_axes(axis: Any, rank: int, function: str, what: str = "axis") -> tuple[int, ...]:
    """The axes that a reduction runs over, sorted: None and () mean all of them. A scalar has axes 0 and -1, which do nothing.

    Raises:
        TypeError: neither None, an int nor a tuple or list of them. ValueError: out of range, or the same twice.
    """
    if axis is None:
        return tuple(range(rank))
    given = int_or_ints(axis, function, what)
    if not given:
        return tuple(range(rank))
    if rank == 0:
        return tuple(0 for a in given if normalize_axis(a, 1, function, what))
    axes = sorted(normalize_axis(a, rank, function, what) for a in given)
    if len(set(axes)) != len(axes):
        raise ArgumentValueError(f"{function}: {what} names a dimension twice, {given}")
    return tuple(axes)


def infer_shape(shape: Any, size: int, function: str) -> Shape:
    """A shape for `size` elements in which one extent may be -1.

    Raises:
        TypeError: not ints. ValueError: an extent below -1, two that are -1, or a shape that does not hold `size` elements.
    """
    dims = list(ints_of(shape, function, "shape"))
    if any(d < -1 for d in dims):
        raise ArgumentValueError(f"{function}: extents must not be negative (one may be -1), but shape is {tuple(dims)}")
    if dims.count(-1) > 1:
        raise ArgumentValueError(f"{function}: only one extent can be -1, but shape is {tuple(dims)}")
    if -1 in dims:
        known = math.prod(d for d in dims if d != -1)
        if known == 0 or size % known:
            raise ArgumentValueError(f"{function}: {size} elements cannot have the shape {tuple(dims)}")
        dims[dims.index(-1)] = size // known
    if math.prod(dims) != size:
        raise ArgumentValueError(f"{function}: {size} elements cannot have the shape {tuple(dims)}")
    return tuple(dims)


def known_array(x: Tensor) -> Array | None:
    """The values of a Tensor if they can be relied on here: eager Tensors, and constants of the graph under construction; else None.

    A concrete Tensor from outside of the graph is an input of it, and may hold other values on the next call.
    """
    if x.is_symbolic:
        return None
    trace = state.trace
    if trace is None:
        return x.array()
    if not x._constant or any(id(x) in scope.newest_values for scope in trace.chain()):
        return None
    return x.array()
