"""Strings that contain the values of Tensors: known only when the graph runs, so they can be printed or put
into an error, no more.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from graphcell.errors import ConcretizationError
from graphcell.tensor import Tensor

_MARK = re.compile("\0(\\d+)([sr])\0")
Piece = str | tuple[Tensor, str]


class Text:
    """Pieces of text and, between them, (Tensor, "s" or "r") for a Tensor in its `str` or `repr` form."""

    __slots__ = ("pieces",)

    def __init__(self, pieces: Sequence[Piece]):
        self.pieces = tuple(pieces)

    def __add__(self, other: Any) -> Any:
        if isinstance(other, str):
            return Text((*self.pieces, other))
        return Text((*self.pieces, *other.pieces)) if isinstance(other, Text) else NotImplemented

    def __radd__(self, other: Any) -> Any:
        return Text((other, *self.pieces)) if isinstance(other, str) else NotImplemented

    def __repr__(self) -> str:
        return f"<text with {sum(not isinstance(p, str) for p in self.pieces)} Tensors>"

    def _refuse(self, *_: Any) -> NoReturn:
        raise ConcretizationError(
            "a string that contains the value of a Tensor is not known while its graph is being built",
            hint="it can be printed or used in an assert; compute with it outside of the compiled function",
        )

    __str__ = __len__ = __iter__ = __getitem__ = __hash__ = __eq__ = __contains__ = _refuse  # type: ignore[assignment]


class _Marker:
    """Stands for a Tensor or Text while Python formats a string."""

    def __init__(self, number: int):
        self.number = number

    def __str__(self) -> str:
        return f"\0{self.number}s\0"

    def __repr__(self) -> str:
        return f"\0{self.number}r\0"


def holds_symbols(value: Any) -> bool:
    """True if `value` is, or holds in tuples, lists and dicts, a Tensor or a Text."""
    if isinstance(value, (Tensor, Text)):
        return True
    if isinstance(value, (list, tuple)):
        return any(map(holds_symbols, value))
    return isinstance(value, dict) and any(map(holds_symbols, value.values()))


def formatted(make: Callable[[Any], str], values: Any) -> str | Text:
    """`make(values)`, where Tensors in `values` are filled in when the graph runs."""
    if not holds_symbols(values):
        return make(values)
    found: list[Any] = []

    def mark(x: Any) -> Any:
        if isinstance(x, (Tensor, Text)):
            found.append(x)
            return _Marker(len(found) - 1)
        return x

    text = make(_map(mark, values))
    pieces: list[Piece] = []
    at = 0
    for match in _MARK.finditer(text):
        pieces.append(text[at : match.start()])
        x = found[int(match[1])]
        pieces.extend(x.pieces if isinstance(x, Text) else [(x, match[2])])
        at = match.end()
    pieces.append(text[at:])
    return Text([p for p in pieces if p != ""])


def _map(function: Callable[[Any], Any], value: Any) -> Any:
    """`value` with `function` applied to what it holds, through tuples, lists and dicts."""
    if isinstance(value, (list, tuple)):
        items = [_map(function, x) for x in value]
        return (
            items
            if isinstance(value, list)
            else type(value)(*items)
            if hasattr(value, "_fields")
            else tuple(items)
        )
    if isinstance(value, dict):
        return {k: _map(function, x) for k, x in value.items()}
    return function(value)
