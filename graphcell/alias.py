"""`import mindspore` → graphcell, for programs that are run as they are.

`install()` puts a finder before all others: the names mindspore, mindspore.nn, … give the very module objects of graphcell, and the
classes print as `mindspore.nn.layer.conv.Conv2d`, as such programs' output has them. Refused: a module that graphcell has no
counterpart of.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType

from graphcell.late import import_all

_NAME = "mindspore"
_OURS = "graphcell"
_PRINTED = ("nn", "train", "common", "amp", "dataset", "experimental", "mint")  # whose classes programs print
_LATE = tuple(f"{_OURS}.{room}" for room in ("dataset", "experimental.optim", "mint", "mint.optim"))  # which, and whose rooms, are imported late


class _Loader(importlib.abc.Loader):
    """Gives the module of graphcell that a name stands for. One for each import."""

    def __init__(self) -> None:
        self.spec: importlib.machinery.ModuleSpec | None = None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        name = "graphcell" + spec.name[len(_NAME) :]
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as e:
            if e.name == name:
                raise ModuleNotFoundError(
                    f"graphcell has no counterpart of the module '{spec.name}' yet", name=spec.name
                ) from None
            raise
        self.spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing is left to run; the import system has put the alias's spec into the module, and this puts its own back."""
        module.__spec__ = self.spec
        module.__loader__ = None if self.spec is None else self.spec.loader
        if module.__name__.startswith(_LATE):
            _rename_classes(_OURS, _NAME)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds mindspore and all that is inside."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != _NAME and not fullname.startswith(f"{_NAME}."):
            return None
        return importlib.util.spec_from_loader(fullname, _Loader())


def install() -> None:
    """Makes `import mindspore` give graphcell in this process; a MindSpore that is imported already stays."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    if _NAME in sys.modules:
        return
    importlib.import_module("graphcell.amp")
    import_all("graphcell.nn")
    import_all("graphcell.train")
    for name, module in list(sys.modules.items()):
        # Importing these again would put modules over functions of the same name (`common.tensor`).
        if name == "graphcell" or name.startswith("graphcell."):
            sys.modules[_NAME + name[len("graphcell") :]] = module
    _rename_classes(_OURS, _NAME)


def uninstall() -> None:
    """Undoes `install`: the names of MindSpore mean MindSpore again."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _Finder)]
    for name in [n for n in sys.modules if n == _NAME or n.startswith(f"{_NAME}.")]:
        if getattr(sys.modules[name], "__name__", "").startswith("graphcell"):
            del sys.modules[name]
    _rename_classes(_NAME, _OURS)


def _rename_classes(before: str, after: str) -> None:
    """Gives graphcell's public classes the module path that starts with `after`, which their printed form shows."""
    ours, theirs = (tuple(f"{package}.{room}" for room in _PRINTED) for package in (_OURS, before))
    for name, module in list(sys.modules.items()):
        if not name.startswith(ours):
            continue
        for found in vars(module).values():
            if isinstance(found, type) and found.__module__.startswith(theirs):
                found.__module__ = after + found.__module__[len(before) :]
