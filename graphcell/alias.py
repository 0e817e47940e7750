"""`import mindspore` → graphcell, for programs that are run as they are."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType

_NAME = "mindspore"


class _Alias(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives the very module objects of graphcell under the names mindspore, mindspore.nn, …"""

    def find_spec(self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> importlib.machinery.ModuleSpec | None:
        if fullname != _NAME and not fullname.startswith(f"{_NAME}."):
            return None
        return importlib.util.spec_from_loader(fullname, self)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        name = "graphcell" + spec.name[len(_NAME) :]
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as e:
            if e.name == name:
                raise ModuleNotFoundError(f"graphcell has no counterpart of the module '{spec.name}' yet", name=spec.name) from None
            raise
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # the import system has put the alias's there


def install() -> None:
    """Makes `import mindspore` give graphcell in this process; a MindSpore that is imported already stays."""
    if any(isinstance(finder, _Alias) for finder in sys.meta_path):
        return
    sys.meta_path.insert(0, _Alias())
    if _NAME in sys.modules:
        return
    for name, module in list(sys.modules.items()):  # importing these again would put modules over functions of the same name (`common.tensor`)
        if name == "graphcell" or name.startswith("graphcell."):
            sys.modules[_NAME + name[len("graphcell") :]] = module
