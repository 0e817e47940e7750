"""Which functions are libraries' (run as they are) and which are the user's (interpreted)."""

from __future__ import annotations

import os
import sys
import sysconfig
from functools import lru_cache

_PACKAGE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")
_CELL_FILE = os.path.join(_PACKAGE, "nn", "cell.py")
_STANDARD = tuple({os.path.join(sysconfig.get_path(key), "") for key in ("stdlib", "platstdlib")})
_SITE = tuple(os.path.join(os.sep, name, "") for name in ("site-packages", "dist-packages"))
NATIVE_PACKAGES = frozenset(
    {
        "graphcell",
        "numpy",
        "ml_dtypes",
        "scipy",
        "networkx",
        "llvmlite",
        "sklearn",
        "matplotlib",
        "pandas",
        "torch",
        "mindspore",
    }
)
"""Installed packages whose functions run as they are. Other installed packages may hold networks, so they are
interpreted.
"""


@lru_cache(maxsize=4096)
def is_library_file(file: str) -> bool:
    """True for files of graphcell, of Python itself, and of NATIVE_PACKAGES."""
    if file.startswith("<frozen"):
        return True
    if file.startswith(_PACKAGE):
        return True
    for site in _SITE:
        _, found, rest = file.rpartition(site)
        if found:
            return rest.split(os.sep)[0].removesuffix(".py") in NATIVE_PACKAGES
    return file.startswith(_STANDARD)


@lru_cache(maxsize=4096)
def is_layer_file(file: str) -> bool:
    """True for graphcell's own files in which Cells are defined, but for the base class."""
    return (
        file.startswith(_PACKAGE)
        and file != _CELL_FILE
        and not file.startswith(os.path.join(_PACKAGE, "frontend", ""))
    )


@lru_cache(maxsize=4096)
def is_library_name(module: str) -> bool:
    """True for modules of graphcell, of Python itself, and of NATIVE_PACKAGES."""
    root = module.partition(".")[0]
    return (
        root in NATIVE_PACKAGES
        or (root in sys.stdlib_module_names and root != "__main__")
        or root == "builtins"
    )
