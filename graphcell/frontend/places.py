"""Places that interpreted code changes, and the log of their old values.

When a branch or a loop body is interpreted, what it assigns must be seen, undone (the other branch starts
from the same state) and joined. A `Place` can be read and written: a local name, a closure cell, a global, an
attribute, the contents of a list, dict or set. A `Log` remembers the old value of each place that was changed
since it was opened.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import field
from types import CellType
from typing import Any, Protocol

from graphcell.errors import GraphcellError
from graphcell.records import dataclass
from graphcell.tensor import Tensor


class Unbound:
    """The value of a place that has none. `error` makes what a read says; the default is Python's own."""

    __slots__ = ("error",)

    def __init__(self, error: Callable[[], GraphcellError] | None = None):
        self.error = error

    def __repr__(self) -> str:
        return "<unbound>"


UNBOUND = Unbound()
CONTAINERS = (list, dict, set, deque, bytearray)


class Place(Protocol):
    """Where a value is kept."""

    @property
    def key(self) -> Hashable: ...
    @property
    def name(self) -> str: ...
    @property
    def label(self) -> str: ...
    def get(self) -> Any: ...
    def set(self, value: Any) -> None: ...


class Scope(Protocol):
    """What holds local names (a Frame)."""

    level: int
    locals: dict[str, Any]
    spans: dict[str, Any]


@dataclass(slots=True, eq=False)
class NamePlace:
    """A local variable."""

    scope: Scope
    name: str

    @property
    def key(self) -> Hashable:
        return (id(self.scope), self.name)

    @property
    def label(self) -> str:
        return f"'{self.name}'"

    def get(self) -> Any:
        return self.scope.locals.get(self.name, UNBOUND)

    def set(self, value: Any) -> None:
        if value is UNBOUND:
            self.scope.locals.pop(self.name, None)
        else:
            self.scope.locals[self.name] = value


@dataclass(slots=True, eq=False)
class CellPlace:
    """A local variable that a nested function sees too."""

    cell: CellType
    name: str

    @property
    def key(self) -> Hashable:
        return id(self.cell)

    @property
    def label(self) -> str:
        return f"'{self.name}'"

    def get(self) -> Any:
        try:
            return self.cell.cell_contents
        except ValueError:
            return UNBOUND

    def set(self, value: Any) -> None:
        if value is not UNBOUND:
            self.cell.cell_contents = value
        elif self.get() is not UNBOUND:
            del self.cell.cell_contents


@dataclass(slots=True, eq=False)
class GlobalPlace:
    """A global variable."""

    table: dict[str, Any]
    name: str

    @property
    def key(self) -> Hashable:
        return (id(self.table), self.name, "global")

    @property
    def label(self) -> str:
        return f"'{self.name}'"

    def get(self) -> Any:
        return self.table.get(self.name, UNBOUND)

    def set(self, value: Any) -> None:
        if value is UNBOUND:
            self.table.pop(self.name, None)
        else:
            self.table[self.name] = value


def held(value: Any) -> Any:
    """What an attribute holds, where reading it gives that in the dtype of `to_float`, or as a hook changed it."""
    return value.__dict__.get("written_through", value) if isinstance(value, Tensor) else value


@dataclass(slots=True, eq=False)
class AttributePlace:
    """An attribute of an object. Of a Cell's Parameter the value is the Parameter, which stays when something is written into it; of a
    Tensor that `to_float` shows in another dtype it is that Tensor."""

    owner: Any
    attribute: str

    @property
    def key(self) -> Hashable:
        return (id(self.owner), self.attribute, "attribute")

    @property
    def name(self) -> str:
        return self.attribute

    @property
    def label(self) -> str:
        return f"{type(self.owner).__name__}.{self.attribute}"

    def get(self) -> Any:
        value = getattr(self.owner, self.attribute, UNBOUND)
        variables = getattr(self.owner, "__dict__", {})
        return held(value) if any(self.attribute in variables.get(table, ()) for table in ("_parameters", "_tensors")) else value

    def set(self, value: Any) -> None:
        if value is UNBOUND:
            if hasattr(self.owner, self.attribute):
                delattr(self.owner, self.attribute)
        else:
            setattr(self.owner, self.attribute, value)


@dataclass(slots=True, eq=False)
class ItemsPlace:
    """The contents of a list, dict, set, deque or bytearray. Its value is a copy."""

    container: Any

    @property
    def key(self) -> Hashable:
        return (id(self.container), "items")

    @property
    def name(self) -> str:
        return ""

    @property
    def label(self) -> str:
        return f"a {type(self.container).__name__} from outside"

    def get(self) -> Any:
        c = self.container
        if isinstance(c, dict):
            return dict(c)
        return set(c) if isinstance(c, set) else list(c)

    def set(self, value: Any) -> None:
        c = self.container
        if _known_by_identity(c) == _known_by_identity(value):
            return  # it was only read; another thread may be reading it now
        c.clear()
        if isinstance(c, (dict, set)):
            c.update(value)
        else:
            c.extend(value)


def _known_by_identity(contents: Any) -> Any:
    if isinstance(contents, dict):
        return [(id(key), id(value)) for key, value in contents.items()]
    return set(map(id, contents)) if isinstance(contents, set) else list(map(id, contents))


@dataclass(slots=True, eq=False)
class Log:
    """What changed since this was opened: for each place its old value.

    `births`: containers and objects made since, which nothing outside can see. `strict`: a trial run that
    must be undoable without a trace; what cannot be undone is refused in it.
    """

    level: int
    strict: bool = False
    entries: dict[Hashable, tuple[Place, Any]] = field(default_factory=dict)
    births: dict[int, Any] = field(default_factory=dict)

    def note(self, place: Place) -> bool:
        """To be called before `place` changes. True if it has not changed before."""
        key = place.key
        if key in self.entries:
            return False
        self.entries[key] = (place, place.get())
        return True

    def forget(self, place: Place) -> None:
        """Takes a note back: `place` has not changed."""
        del self.entries[place.key]

    def finals(self) -> dict[Hashable, Any]:
        """The present values of the places that changed."""
        return {key: place.get() for key, (place, _) in self.entries.items()}

    def undo(self) -> None:
        """Gives every place its old value back."""
        for place, old in reversed(self.entries.values()):
            place.set(old)


class Speculation(BaseException):
    """A trial run cannot be finished (and will be undone). Not an Exception, so that no user code catches it."""


class Unstable(Speculation):
    """A loop's first iteration changes the type of what it carries; from the second on it may be stable."""


class LeftEarly(Unstable):
    """A loop that may end early assigns names that had no value before it and are read after it: after the first iteration they have one."""


class Never(BaseException):
    """The code being interpreted gets no further: it raises an exception while the graph runs. Caught where
    its region ends.
    """
