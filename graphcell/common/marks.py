"""Marks that MindSpore programs put on values, classes and functions: `mutable`, `jit_class`, `constexpr`. Little is left to do for them here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

from graphcell.errors import ArgumentTypeError
from graphcell.tensor import Tensor

Function = Callable[..., Any]
T = TypeVar("T")
C = TypeVar("C", bound=type)


def mutable(input_data: T, dynamic_len: bool = False) -> T:
    """The same data. Tensors in tuples, lists and dicts are variables of a compiled function anyhow, and gradients reach them; numbers
    are constants of it: a call with another number compiles anew.

    Raises:
        TypeError: the data are no Tensor, number, tuple, list or dict of such; or `dynamic_len` without a tuple or list.
    """
    _check_mutable(input_data)
    if dynamic_len and not isinstance(input_data, (tuple, list)):
        kind = type(input_data).__name__
        raise ArgumentTypeError(f"For 'mutable', when the variable_len is True, the first input should be list or tuple, but got: {kind}")
    return input_data


def _check_mutable(x: Any) -> None:
    if isinstance(x, (tuple, list)):
        for element in x:
            _check_mutable(element)
    elif isinstance(x, dict):
        for element in x.values():
            _check_mutable(element)
    elif not isinstance(x, (bool, int, float, Tensor)):
        message = "should be one of (bool, int, float, Tensor, tuple, list, dict) or their nested structures"
        raise ArgumentTypeError(f"For 'mutable', the 'input_data' {message}, but got {type(x).__name__}")


def jit_class(cls: C) -> C:
    """The same class: objects of any class of the user's serve in compiled functions.

    Raises:
        TypeError: `cls` is no class.
    """
    if not isinstance(cls, type):
        raise ArgumentTypeError(f"Decorator jit_class can only be used for class type, but got {cls}.")
    return cls


@overload
def constexpr(fn: Function, get_instance: bool = True, name: str | None = None, reuse_result: bool = True, check: bool = True) -> Function: ...
@overload
def constexpr(
    fn: None = None, get_instance: bool = True, name: str | None = None, reuse_result: bool = True, check: bool = True
) -> Callable[[Function], Function]: ...
def constexpr(
    fn: Function | None = None, get_instance: bool = True, name: str | None = None, reuse_result: bool = True, check: bool = True
) -> Function | Callable[[Function], Function]:
    """The same function: what is computed of constants is constant in a compiled function, with no mark. The other arguments are accepted
    for MindSpore's sake.

    Raises:
        TypeError: `fn` is no function.
    """
    if fn is None:
        return lambda function: constexpr(function)
    if not callable(fn):
        raise ArgumentTypeError(f"constexpr: expected a function, but got {type(fn).__name__}")
    return fn
