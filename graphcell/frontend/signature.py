"""Signatures of calls: the part of a compiled function's key that its arguments give.

Enters: arguments. Leaves: hashable keys, equal for arguments that one compiled graph serves, and what differs
between two of them.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np

from graphcell.tensor import Tensor


def key_of(x: Any, leaves: list[Tensor], objects: list[Any]) -> Any:
    """A hashable form of an argument: a Tensor's type, a constant's value, another object's identity.

    Appends Tensors to `leaves`, and to `objects` what must be kept alive so that its identity stays its own.
    """
    kind = type(x)
    if kind is Tensor:
        leaves.append(x)
        return x.ir_type
    if kind in (bool, int, str, bytes, type(None)):
        return (kind, x)
    if kind in (float, complex):
        return (kind, repr(x))
    if isinstance(x, (tuple, list)):
        return (kind, *[key_of(e, leaves, objects) for e in x])
    if isinstance(x, dict):
        return (kind, *[(key_of(k, leaves, objects), key_of(v, leaves, objects)) for k, v in x.items()])
    if isinstance(x, (np.ndarray, np.generic)):
        return (kind, x.dtype.str, x.shape, x.tobytes())
    objects.append(x)
    if isinstance(x, bytearray):
        return (kind, bytes(x))
    if isinstance(x, array):
        return (kind, x.typecode, x.tobytes())
    if isinstance(x, (set, frozenset, deque)):
        return (kind, *_key_of_elements(x, objects))
    return (kind, id(x))


def _key_of_elements(x: set[Any] | frozenset[Any] | deque[Any], objects: list[Any]) -> tuple[Any, ...]:
    """A container's elements as they are now, or, if there are Tensors among them, which make no inputs of theirs, what objects they are."""
    inside: list[Tensor] = []
    keys = [key_of(e, inside, objects) for e in x]
    if not inside:
        return tuple(keys) if isinstance(x, deque) else (frozenset(keys),)
    objects += x
    return (id(x), *map(id, x))


def differences(before: Any, after: Any) -> Iterator[tuple[str, str, str]]:
    """(which argument, its old form, its new form)."""
    old, new = before[0][1:], after[0][1:]
    if len(old) != len(new):
        yield "the number of arguments", str(len(old)), str(len(new))
    for k, (a, b) in enumerate(zip(old, new, strict=False)):
        if a != b:
            yield f"argument {k}", _describe(a), _describe(b)
    keywords = dict(before[1][1:])
    for name, b in after[1][1:]:
        if keywords.get(name) != b:
            yield f"argument '{name[1]}'", _describe(keywords.get(name)), _describe(b)


def _describe(part: Any) -> str:
    if not isinstance(part, tuple):
        return "not given" if part is None else str(part)
    kind, *rest = part
    if kind in (tuple, list):
        return f"{kind.__name__} of ({', '.join(map(_describe, rest))})"
    if kind is dict:
        return f"dict of {len(rest)}"
    if kind in (float, complex):
        return str(rest[0])
    return repr(rest[0]) if kind in (bool, int, str, bytes, type(None)) else f"a {kind.__name__}"


def describe_key(key: Any) -> str:
    """The arguments of a key, for people."""
    positional = [_describe(part) for part in key[0][1:]]
    return ", ".join([*positional, *(f"{name[1]}={_describe(part)}" for name, part in key[1][1:])]) or "none"
