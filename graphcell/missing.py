"""What a module says of a name that it does not have.

Enters: a module of the package, and the name that was asked of it. Leaves: an AttributeError (ImportError for `from graphcell import export`)
that says whether MindSpore has this name, where the list of those present is, and which names are near. The list of MindSpore's names
lies beside this file, and is read when such an error is printed, never for `hasattr`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from functools import cache
from opcode import opmap
from pathlib import Path
from types import FrameType, ModuleType
from typing import NoReturn

from graphcell.errors import MissingAttributeError

NAMES = Path(__file__).parent / "mindspore_names.txt"
"""A line `module  name  kind  group` for each public name of MindSpore 2.10."""

_NEAR = 3


class AbsentNameError(MissingAttributeError):
    """GC206: a module has no such name. The hint is made when it is read: `hasattr` asks without reading."""

    asked: tuple[str, str] | None = None

    def __str__(self) -> str:
        if self.asked is not None and not self.hint:
            self.hint = hint(*self.asked)
        return super().__str__()


def refuse(module: str, name: str) -> NoReturn:
    """For a module's `__getattr__`, which calls it directly.

    Raises:
        AttributeError: always, but
        ImportError: for `from module import name` of a name that MindSpore has: of an AttributeError Python would drop the text.
    """
    if name.startswith("_"):
        raise MissingAttributeError(f"module '{module}' has no attribute '{name}'")
    if _is_import(sys._getframe(2)) and not is_submodule(module, name) and (text := hint(module, name)):
        raise ImportError(f"cannot import name '{name}' from '{module}'\n  hint: {text}", name=module)
    error = AbsentNameError(f"module '{module}' has no attribute '{name}'")
    error.asked, error.name = (module, name), name
    raise error


def _is_import(asker: FrameType) -> bool:
    """Whether a frame asks a module for a name because of `from module import name`: the import system does for packages, the statement for others."""
    if asker.f_code.co_name == "_handle_fromlist":
        return asker.f_globals.get("__name__") == "importlib._bootstrap"
    return asker.f_code.co_code[asker.f_lasti] == opmap["IMPORT_FROM"]


def refuse_member(owner: object, name: str, known: Collection[str]) -> NoReturn:
    """For a class's `__getattr__`: `known` are the members that MindSpore's class of this name has, and this one has not.

    Raises:
        AttributeError: always.
    """
    kind = type(owner).__name__
    text = f"MindSpore 2.10 has this member of {kind}, graphcell does not have it yet" if name in known else ""
    raise MissingAttributeError(f"'{kind}' object has no attribute '{name}'", hint=text)


def getattr_of(module: str) -> Callable[[str], NoReturn]:
    """The `__getattr__` of a module all of whose names are there from the start."""

    def __getattr__(name: str) -> NoReturn:
        refuse(module, name)

    return __getattr__


def hint(module: str, name: str) -> str:
    """What is known of `name`, or nothing: '' if neither MindSpore has it nor another name is near."""
    parts = []
    home = _in_mindspore(module)
    known = f"{home}.{name}" in mindspore_paths()
    if known:
        parts.append(f"MindSpore 2.10 has {home}.{name}, graphcell does not have it yet; `python -m graphcell.compatibility` lists what is there")
    if elsewhere := _homes(name, module):
        parts.append(f"there is {' and '.join(elsewhere[:_NEAR])}")
    elif near := _near(module, name, cutoff=0.87 if known else 0.78):
        parts.append(f"near names: {', '.join(near)}")
    return "; ".join(parts)


@cache
def mindspore_paths() -> dict[str, None]:
    """All of MindSpore's public names with their modules (`mindspore.ops.add`), and the modules themselves, in the order of the list."""
    paths: dict[str, None] = {}
    for line in NAMES.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            continue
        module, name, kind, _ = line.split("\t")
        if kind == "unknown":  # gone in 2.10
            continue
        path = f"{module.removesuffix('(m)').replace('mindspore.ops.primitive', 'mindspore.ops')}.{name}"
        steps = path.split(".")
        paths.update(dict.fromkeys(".".join(steps[:k]) for k in range(2, len(steps) + 1)))
    return paths


def is_submodule(module: str, name: str) -> bool:
    """Whether a package has a file for the module `name`."""
    places = getattr(sys.modules.get(module), "__path__", ())
    return any(Path(place, f"{name}.py").is_file() or Path(place, name, "__init__.py").is_file() for place in places)


def _in_mindspore(module: str) -> str:
    """MindSpore's name of a module; `ops.operations` and the like have the names of `ops`, and the dtypes are names of the package."""
    home = "mindspore" + module.removeprefix("graphcell")
    if home == "mindspore.common.dtype":
        return "mindspore"
    return "mindspore.ops" if home.startswith("mindspore.ops.") else home


def _homes(name: str, module: str) -> list[str]:
    """Where else than in `module` graphcell has a public name: 'graphcell.nn.Dense' for 'Dense'. Doubles in `mint` are for its own users."""
    found = []
    for path in mindspore_paths():
        home, _, last = path.rpartition(".")
        ours = "graphcell" + home.removeprefix("mindspore")
        of_interest = last == name and ours != module and (not ours.startswith("graphcell.mint") or module.startswith("graphcell.mint"))
        if of_interest and _has(ours, name):
            found.append(f"{ours}.{name}")
    return found


def _near(module: str, name: str, cutoff: float) -> list[str]:
    """Public names of a module that differ little from `name`, apart from capitals."""
    import difflib  # not loaded by programs without errors

    home = _in_mindspore(module) + "."
    known = [path.removeprefix(home) for path in mindspore_paths() if path.startswith(home)]
    known += [n for n, x in vars(sys.modules[module]).items() if not isinstance(x, ModuleType)]
    by_lower: dict[str, list[str]] = {}
    for other in dict.fromkeys(known):
        if not other.startswith("_") and "." not in other:
            by_lower.setdefault(other.lower(), []).append(other)
    near = difflib.get_close_matches(name.lower(), by_lower, 4 * _NEAR, cutoff)
    return [n for lower in near for n in by_lower[lower] if _has(module, n)][:_NEAR]


def _has(module: str, name: str) -> bool:
    return module in sys.modules and hasattr(sys.modules[module], name)
