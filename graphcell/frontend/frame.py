"""The names of one call of an interpreted function, or of one comprehension in it."""

from __future__ import annotations

import ast
import builtins
import linecache
import sys
from types import CellType
from typing import Any

from graphcell.errors import GraphcellError, Span, UnboundNameError, UndefinedNameError
from graphcell.frontend.libraries import is_library_file
from graphcell.frontend.places import UNBOUND, CellPlace, GlobalPlace, NamePlace, Place, Unbound
from graphcell.frontend.source import FunctionSource, characters

_MISSING = object()


class Frame:
    """One activation: where names live, and which node is being interpreted.

    Names that nested functions see are kept in cells (Python's own, so that nested functions are ordinary
    Python functions); all others in `locals`. A comprehension has a Frame of its own with the function's as
    `parent`. `level`: how many logs were open when it was made. `spans`: for each name, the node that
    assigned it last.
    """

    __slots__ = (
        "caller",
        "cells",
        "function",
        "globals",
        "handled",
        "level",
        "library",
        "locals",
        "node",
        "parent",
        "source",
        "spans",
    )

    def __init__(
        self,
        source: FunctionSource,
        module_globals: dict[str, Any],
        caller: Span | None,
        level: int,
        parent: Frame | None = None,
    ):
        self.source = source
        self.globals = module_globals
        self.caller = caller
        self.level = level
        self.parent = parent
        self.locals: dict[str, Any] = {}
        self.cells: dict[str, CellType] = {}
        self.spans: dict[str, ast.AST] = {}
        self.node: ast.AST = source.node
        self.library = False
        self.function: Any = None
        self.handled: Exception | None = None

    def nested(self, level: int) -> Frame:
        """The frame of a comprehension in this one."""
        frame = Frame(self.source, self.globals, self.caller, level, self)
        frame.node, frame.library, frame.function = self.node, self.library, self.function
        return frame

    @property
    def base(self) -> Frame:
        """The frame of the function itself."""
        frame = self
        while frame.parent is not None:
            frame = frame.parent
        return frame

    def span(self) -> Span:
        """The place of the node being interpreted."""
        return self.source.span(self.node, self.caller)

    # -- reading -------------------------------------------------------------------------------------------
    def find(self, name: str) -> Any:
        """The value of a local or closure variable, or UNBOUND."""
        frame: Frame | None = self
        while frame is not None:
            value = frame.locals.get(name, _MISSING)
            if value is not _MISSING:
                return value
            cell = frame.cells.get(name)
            if cell is not None:
                return CellPlace(cell, name).get()
            frame = frame.parent
        return UNBOUND

    def is_local(self, name: str) -> bool:
        """True for names of the function and of the functions around it (not for globals)."""
        return name in self.source.local_names or name in self.base.cells or self._in_comprehension(name)

    def _in_comprehension(self, name: str) -> bool:
        frame: Frame | None = self
        while frame is not None and frame.parent is not None:
            if name in frame.locals or name in frame.cells:
                return True
            frame = frame.parent
        return False

    def unbound_error(self, name: str, value: Unbound) -> GraphcellError:
        """The error for reading a name without a value."""
        if value.error is not None:
            return value.error()
        if name in self.source.local_names:
            return UnboundNameError(f"local variable '{name}' is read before it is assigned")
        return UndefinedNameError(f"name '{name}' is not defined")

    def global_value(self, name: str) -> Any:
        """The value of a global or builtin name, or UNBOUND."""
        value = self.globals.get(name, UNBOUND)
        return getattr(builtins, name, UNBOUND) if value is UNBOUND else value

    # -- writing -------------------------------------------------------------------------------------------
    def place(self, name: str, target_of_comprehension: bool = False) -> Place:
        """Where an assignment to `name` goes."""
        frame = self if target_of_comprehension else self.base
        cell = frame.cells.get(name)
        if cell is not None:
            return CellPlace(cell, name)
        if frame.parent is not None or name in frame.source.local_names or name.startswith("."):
            return NamePlace(frame, name)
        return GlobalPlace(frame.globals, name)

    def cell(self, name: str) -> CellType:
        """The cell of a variable, for a nested function that sees it."""
        frame: Frame | None = self
        while frame is not None:
            if name in frame.cells:
                return frame.cells[name]
            if frame.parent is not None and name in frame.locals:
                cell = frame.cells[name] = CellType(frame.locals.pop(name))
                return cell
            frame = frame.parent
        cell = self.base.cells[name] = CellType()
        return cell


def call_site() -> Span | None:
    """The place in the user's code, running as it is, that called graphcell."""
    frame = sys._getframe(1)
    while is_library_file(frame.f_code.co_filename):
        if frame.f_back is None:
            return None
        frame = frame.f_back
    code = frame.f_code
    line, end, start, stop = list(code.co_positions())[frame.f_lasti // 2]
    if line is None or end is None or start is None or stop is None:
        return None
    first, last = (linecache.getline(code.co_filename, k, frame.f_globals) for k in (line, end))
    name = (
        ""
        if code.co_name == "<module>"
        else getattr(code, "co_qualname", code.co_name).replace(".<locals>", "")
    )
    return Span(code.co_filename, line, characters(first, start), end, characters(last, stop), name)
