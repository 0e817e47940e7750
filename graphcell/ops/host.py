"""Primitives that act on the world outside the graph: print, and the errors that a program raises while its
graph runs.

Their texts are templates: pieces of plain text, and (operand, form) for the value of an operand. `has_effect`
keeps their order.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from graphcell.errors import ArgumentValueError, DataIndexError, DTypeError
from graphcell.formatting import graph_form
from graphcell.ir.op import Array, Op, frozen
from graphcell.ir.types import TensorType
from graphcell.tensor import Tensor

Piece = str | tuple[int, str]
"""Plain text, or the operand at a place in a form: "s" (`str`), "r" (`repr`), "g" (as a graph prints it)."""
Template = tuple[Piece, ...]


def template(pieces: Sequence[str | tuple[Tensor, str]], first: int = 0) -> tuple[Template, list[Tensor]]:
    """`pieces` with Tensors replaced by their places in the list of operands, the second result; places count
    from `first`.
    """
    operands: list[Tensor] = []
    parts: list[Piece] = []
    for piece in pieces:
        if isinstance(piece, str):
            parts.append(piece)
            continue
        tensor, form = piece
        parts.append((first + len(operands), form))
        operands.append(tensor)
    return tuple(parts), operands


def fill(pieces: Template, arrays: Sequence[Array]) -> str:
    """The text of a template."""
    return "".join(p if isinstance(p, str) else _shown(arrays[p[0]], p[1]) for p in pieces)


def _shown(array: Array, form: str) -> str:
    if form == "g":
        return graph_form(array)
    tensor = Tensor.of_array(np.array(array))
    return repr(tensor) if form == "r" else str(tensor)


def _placed(error: Exception, place: str) -> Exception:
    """The error, to which a traceback adds where it comes from."""
    if place:
        error.add_note(place)
    return error


@frozen
class Print(Op):
    """Writes a text to standard output."""

    text: Template
    name = "print"
    has_effect = True

    def infer(self, *operands: TensorType) -> tuple[TensorType, ...]:
        return ()

    def eval(self, *arrays: Array) -> tuple[Array, ...]:
        sys.stdout.write(fill(self.text, arrays))
        sys.stdout.flush()
        return ()


@frozen
class Assert(Op):
    """Raises AssertionError if the first operand, a Bool scalar, is false. The text's operands follow it. `place` shows the user's line."""

    text: Template
    place: str = ""
    name = "assert"
    has_effect = True

    def infer(self, condition: TensorType, *operands: TensorType) -> tuple[TensorType, ...]:  # type: ignore[override]
        return ()

    def eval(self, condition: Array, *arrays: Array) -> tuple[Array, ...]:  # type: ignore[override]
        if not condition:
            raise _placed(AssertionError(fill(self.text, arrays)), self.place)
        return ()


@frozen
class Raise(Op):
    """Raises an exception of the class `qualname` in `module`. `place` shows the user's line."""

    module: str
    qualname: str
    text: Template
    place: str = ""
    name = "raise"
    has_effect = True

    def kind(self) -> type[Exception]:
        """The exception's class.

        Raises:
            ValueError: if it cannot be found by its name (it was defined inside of a function).
        """
        found: Any = sys.modules.get(self.module)
        for part in self.qualname.split("."):
            found = getattr(found, part, None)
        if not (isinstance(found, type) and issubclass(found, Exception)):
            raise ArgumentValueError(
                f"the exception class {self.qualname} is not found in module {self.module}",
                hint="define it at the top of a module",
            )
        return found

    def infer(self, *operands: TensorType) -> tuple[TensorType, ...]:
        return ()

    def eval(self, *arrays: Array) -> tuple[Array, ...]:
        text = fill(self.text, arrays)
        raise _placed(self.kind()(text) if text else self.kind()(), self.place)


@frozen
class CheckIndex(Op):
    """Raises DataIndexError if a value of the operand, integers, is outside of [-extent, extent). `what` begins the message."""

    extent: int
    what: str
    name = "check_index"
    has_effect = True

    def infer(self, index: TensorType) -> tuple[TensorType, ...]:  # type: ignore[override]
        if not index.dtype.is_integer:
            raise DTypeError(f"check_index: integers are checked, not {index.dtype}")
        return ()

    def eval(self, index: Array) -> tuple[Array, ...]:  # type: ignore[override]
        if index.size and not -self.extent <= int(index.min()) <= int(index.max()) < self.extent:
            raise DataIndexError(self.message(int(index.min()), int(index.max())))
        return ()

    def message(self, low: object, high: object) -> str:
        """The message for indices that go from `low` to `high`."""
        return f"{self.what}: an index is out of range for a dimension of {self.extent} elements; the indices go from {low} to {high}"
