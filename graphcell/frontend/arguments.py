"""Binding the arguments of a call to a function's parameters, by Python's rules and with Python's messages."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from types import FunctionType
from typing import Any

from graphcell.errors import ArityError


def bind_arguments(function: FunctionType, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The value of each parameter.

    Raises:
        ArityError: too few, too many, or unknown arguments.
    """
    code = function.__code__
    count = code.co_argcount
    names = code.co_varnames
    bound: dict[str, Any] = dict(zip(names[:count], args, strict=False))
    _bind_surplus(function, args[count:], bound)
    _bind_keywords(function, kwargs, bound)
    defaults = function.__defaults__ or ()
    for name, value in zip(names[count - len(defaults) : count], defaults, strict=True):
        bound.setdefault(name, value)
    for name, value in (function.__kwdefaults__ or {}).items():
        bound.setdefault(name, value)
    _check_complete(function, bound)
    return bound


def _bind_surplus(function: FunctionType, surplus: Sequence[Any], bound: dict[str, Any]) -> None:
    code = function.__code__
    keyword_only = code.co_kwonlyargcount
    if code.co_flags & inspect.CO_VARARGS:
        bound[code.co_varnames[code.co_argcount + keyword_only]] = tuple(surplus)
    elif surplus:
        count, defaults = code.co_argcount, len(function.__defaults__ or ())
        takes = str(count) if not defaults else f"from {count - defaults} to {count}"
        given = count + len(surplus)
        raise ArityError(
            f"{function.__qualname__}() takes {takes} positional argument{'' if count == 1 else 's'} but {given} {'was' if given == 1 else 'were'} given"
        )


def _bind_keywords(function: FunctionType, kwargs: dict[str, Any], bound: dict[str, Any]) -> None:
    code = function.__code__
    total = code.co_argcount + code.co_kwonlyargcount
    accepted = code.co_varnames[code.co_posonlyargcount : total]
    positional_only = code.co_varnames[: code.co_posonlyargcount]
    extra: dict[str, Any] = {}
    takes_extra = bool(code.co_flags & inspect.CO_VARKEYWORDS)
    for name, value in kwargs.items():
        if name not in accepted:
            if not takes_extra:
                if name in positional_only:
                    raise ArityError(
                        f"{function.__qualname__}() got some positional-only arguments passed as keyword arguments: '{name}'"
                    )
                raise ArityError(f"{function.__qualname__}() got an unexpected keyword argument '{name}'")
            extra[name] = value
        elif name in bound:
            raise ArityError(f"{function.__qualname__}() got multiple values for argument '{name}'")
        else:
            bound[name] = value
    if takes_extra:
        bound[code.co_varnames[total + bool(code.co_flags & inspect.CO_VARARGS)]] = extra


def _check_complete(function: FunctionType, bound: dict[str, Any]) -> None:
    code = function.__code__
    count = code.co_argcount
    for names, kind in (
        (code.co_varnames[:count], "positional"),
        (code.co_varnames[count : count + code.co_kwonlyargcount], "keyword-only"),
    ):
        missing = [f"'{n}'" for n in names if n not in bound]
        if missing:
            listed = missing[0] if len(missing) == 1 else f"{', '.join(missing[:-1])} and {missing[-1]}"
            raise ArityError(
                f"{function.__qualname__}() missing {len(missing)} required {kind} argument{'' if len(missing) == 1 else 's'}: {listed}"
            )
