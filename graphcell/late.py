"""Names whose modules are imported when they are first asked for: a program uses a few of graphcell's four hundred modules.

Enters: a package, or a module, and a table of rooms: module → the names that it holds. Leaves: its `__getattr__`, which imports the room of a name, or
a module of that name, and remembers what it found, and its `__dir__`. Any other name is refused as everywhere (graphcell/missing.py).

A name like that of its own room cannot be late: importing the room would put the module in its place.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

from graphcell.missing import is_submodule, refuse


def late(package: str, rooms: Mapping[str, Sequence[str]], around: str = "") -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """A package's `__getattr__` and `__dir__`. Rooms are named as seen from it: 'layer.conv'. For a module that is no package they are those of the
    package `around` it."""
    homes = {name: room for room, names in rooms.items() for name in names}

    def __getattr__(name: str) -> Any:
        if name in homes:
            found = getattr(_import(f"{around or package}.{homes[name]}"), name)
        elif not name.startswith("_") and is_submodule(package, name):
            found = _import(f"{package}.{name}")
        else:
            refuse(package, name)
        setattr(sys.modules[package], name, found)
        return found

    def __dir__() -> list[str]:
        known = vars(sys.modules[package])
        return sorted({*known, *known.get("__all__", ()), *homes})

    return __getattr__, __dir__


def _import(module: str) -> ModuleType:
    """Imports a module of graphcell by the name that the program knows graphcell by (graphcell/alias.py): its classes print so."""
    known = "mindspore" if sys.modules.get("mindspore") is sys.modules["graphcell"] else "graphcell"
    return import_module(known + module.removeprefix("graphcell"))


def import_all(package: str) -> None:
    """Imports the rooms of all public names of a package."""
    for name in sys.modules[package].__all__:
        getattr(sys.modules[package], name)
