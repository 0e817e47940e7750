"""Checks of the arguments of layers, with MindSpore's messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphcell.errors import ArgumentTypeError, ArgumentValueError
from graphcell.tensor import Tensor


def is_int(value: Any) -> bool:
    """An int that is no bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """An int or float that is no bool."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def check_tensor(owner: str, name: str, value: Any) -> Tensor:
    """`value` if it is a Tensor; raises TypeError."""
    if not isinstance(value, Tensor):
        raise ArgumentTypeError(f"For '{owner}', the '{name}' must be a Tensor, but got '{type(value).__name__}'.")
    return value


def positive_int(owner: str, name: str, value: Any) -> int:
    """`value` if it is an int above 0.

    Raises:
        TypeError: no int. ValueError: below 1.
    """
    return _int_from(1, owner, name, value)


def non_negative_int(owner: str, name: str, value: Any) -> int:
    """`value` if it is an int of at least 0.

    Raises:
        TypeError: no int. ValueError: below 0.
    """
    return _int_from(0, owner, name, value)


def _int_from(least: int, owner: str, name: str, value: Any) -> int:
    if not is_int(value):
        raise ArgumentTypeError(f"For '{owner}', the '{name}' must be int, but got '{type(value).__name__}'")
    if value < least:
        bound = "> 0" if least == 1 else f">= {least}"
        raise ArgumentValueError(f"For '{owner}', the '{name}' must be int and must {bound}, but got '{value}' with type 'int'.")
    return int(value)


def check_bool(owner: str, name: str, value: Any) -> bool:
    """`value` if it is a bool; raises TypeError."""
    if not isinstance(value, bool):
        raise ArgumentTypeError(f"For '{owner}', the '{name}' must be a bool, but got {type(value).__name__}.")
    return value


def check_float(owner: str, name: str, value: Any) -> float:
    """`value` if it is a float; raises TypeError."""
    if not isinstance(value, float):
        raise ArgumentTypeError(
            f"For '{owner}', the type of '{name}' should be 'float', but got type '{type(value).__name__}'."
        )
    return value


def check_number(owner: str, name: str, value: Any) -> float:
    """`value` if it is an int or float; raises TypeError."""
    if not is_number(value):
        raise ArgumentTypeError(
            f"For '{owner}', the type of '{name}' should be one of '['float', 'int']', "
            f"but got type '{type(value).__name__}'."
        )
    return value  # type: ignore[no-any-return]


def check_int(owner: str, name: str, value: Any) -> int:
    """`value` if it is an int; raises TypeError."""
    if not is_int(value):
        raise ArgumentTypeError(
            f"For '{owner}', the type of '{name}' should be 'int', but got type '{type(value).__name__}'."
        )
    return value  # type: ignore[no-any-return]


def check_choice(owner: str, name: str, value: Any, choices: Sequence[str]) -> str:
    """`value` if it is one of `choices`; raises ValueError."""
    if value not in choices:
        raise ArgumentValueError(
            f"For '{owner}', the '{name}' must be str and must be in '{list(choices)}', but got '{value}'."
        )
    return str(value)


def int_or_tuple(owner: str, name: str, value: Any, rank: int, least: int = 1) -> tuple[int, ...]:
    """An int, or `rank` ints, as `rank` ints of at least `least`.

    Raises:
        TypeError: neither, or another number of them. ValueError: too small.
    """
    if is_int(value):
        value = (value,) * rank
    elif not isinstance(value, tuple):
        raise ArgumentTypeError(
            f"For '{owner}', the type of '{name}' must be an int or a tuple of {rank} ints, but got {type(value)}"
        )
    if len(value) != rank:
        raise ArgumentTypeError(f"For '{owner}', '{name}' as a tuple must hold {rank} ints, but got {value}")
    for item in value:
        _int_from(least, owner, f"{name} item", item)
    return value  # type: ignore[no-any-return]
