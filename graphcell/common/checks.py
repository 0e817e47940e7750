"""Checks of settings, with MindSpore's messages."""

from __future__ import annotations

from typing import Any

from graphcell.errors import ArgumentTypeError, ArgumentValueError


def not_negative_int(value: Any) -> int:
    """`value` if it is an int of at least 0.

    Raises:
        TypeError: no int. ValueError: below 0.
    """
    if not isinstance(value, int):
        raise ArgumentTypeError(f"The input value must be int, but got '{type(value).__name__}'")
    what = f"The input value must be int and must >= 0, but got '{value}' with type '{type(value).__name__}'."
    if isinstance(value, bool):
        raise ArgumentTypeError(what)
    if value < 0:
        raise ArgumentValueError(what)
    return value
