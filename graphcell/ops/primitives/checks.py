"""Checks of what primitives are made with, with MindSpore's messages."""

from __future__ import annotations

from typing import Any

from graphcell.errors import ArgumentTypeError, ArgumentValueError
from graphcell.tensor import Tensor


def check_type(owner: str, name: str, value: Any, *kinds: type) -> Any:
    """`value` if it is of one of `kinds`; a bool is no int.

    Raises:
        TypeError: it is not.
    """
    if isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool)):
        return value
    names = [k.__name__ for k in kinds]
    wanted = f"'{names[0]}'" if len(names) == 1 else f"one of '{names}'"
    raise ArgumentTypeError(f"For '{owner}', the type of '{name}' should be {wanted}, but got type '{type(value).__name__}'.")


def check_positive(owner: str, name: str, value: Any) -> int:
    """`value` if it is an int above 0.

    Raises:
        TypeError: no int. ValueError: below 1.
    """
    if check_type(owner, name, value, int) < 1:
        raise ArgumentValueError(f"For '{owner}', the '{name}' must be int and must > 0, but got '{value}' with type 'int'.")
    return int(value)


def check_choice(owner: str, name: str, value: Any, *choices: str) -> str:
    """`value` if it is one of `choices`.

    Raises:
        ValueError: it is not.
    """
    if value not in choices:
        raise ArgumentValueError(f"For '{owner}', the '{name}' must be str and must be in '{list(choices)}', but got '{value}'.")
    return str(value)


def check_tensors(owner: str, **operands: Any) -> None:
    """Raises TypeError for an operand that is no Tensor."""
    for name, x in operands.items():
        if not isinstance(x, Tensor):
            raise ArgumentTypeError(f"For '{owner}', the '{name}' must be a Tensor, but is {type(x).__name__}.")
