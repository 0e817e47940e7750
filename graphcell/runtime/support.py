"""Native code of the runtime's own: the same for all programs, compiled once for a processor.

Enters: LLVM assembly. Leaves: the loaded code, which stays until the process is gone, since objects and threads may be inside it even
while Python ends.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import llvmlite

from graphcell.codegen.llvm.processor import Target
from graphcell.locks import whole
from graphcell.runtime import loader
from graphcell.runtime.cache import make_key, open_cache

_expected: dict[str, Callable[[], str | None]] = {}
"""Name -> text of what each process that compiles a program loads right afterwards, until it does."""
_compiled: dict[str, bytes] = {}
"""Key -> code that was made beside a program and waits to be loaded."""


def expect(name: str, text: Callable[[], str | None]) -> None:
    """Has the code of `text` made beside the first program that is compiled, if the cache lacks it; None: it is not used in this process."""
    _expected[name] = text


def load_support(name: str, text: str) -> loader.Library:
    """The loaded code of `text`. `name` says what it is."""
    library = loader.load_object(object_code(name, text))
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(library))  # never freed
    _expected.pop(name, None)
    return library


def object_code(name: str, text: str) -> bytes:
    """The code of `text` for this processor, from the object cache if it is there."""
    host = loader.host()
    key = _key(name, text, host)
    made = _compiled.pop(key, None)
    if made is not None:
        return made
    entry = open_cache().get(key)
    if entry is not None:
        return entry[1]
    with whole:
        from graphcell.codegen.llvm.target import compile_object

    code = compile_object(text, host)
    open_cache().put(key, {"what": name}, code)
    return code


def missing() -> list[tuple[str, str]]:
    """Names and texts of what is expected, and neither loaded nor kept in the cache."""
    cache = open_cache()
    texts = [(name, text) for name, text_of in list(_expected.items()) if (text := text_of()) is not None]
    keys = [_key(name, text, loader.host()) for name, text in texts]
    return [item for item, key in zip(texts, keys, strict=True) if key not in _compiled and cache.get(key) is None]


def provide(name: str, text: str, code: bytes) -> None:
    """Keeps the code of `text` until it is loaded, and in the cache."""
    key = _key(name, text, loader.host())
    _compiled[key] = code
    open_cache().put(key, {"what": name}, code)


def _key(name: str, text: str, host: Target) -> str:
    return make_key(name, text, repr(host), llvmlite.__version__)
