"""Native code of the runtime's own: the same for all programs, compiled once for a processor.

Enters: LLVM assembly. Leaves: the loaded code, which stays until the process is gone, since objects and threads may be inside it even
while Python ends.
"""

from __future__ import annotations

import ctypes

import llvmlite

from graphcell.locks import whole
from graphcell.runtime import loader
from graphcell.runtime.cache import make_key, open_cache


def load_support(name: str, text: str) -> loader.Library:
    """The loaded code of `text`. `name` says what it is."""
    library = loader.load_object(object_code(name, text))
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(library))  # never freed
    return library


def object_code(name: str, text: str) -> bytes:
    """The code of `text` for this processor, from the object cache if it is there."""
    host, objects = loader.host(), open_cache()
    key = make_key(name, text, repr(host), llvmlite.__version__)
    entry = objects.get(key)
    if entry is not None:
        return entry[1]
    with whole:
        from graphcell.codegen.llvm.target import compile_object

    code = compile_object(text, host)
    objects.put(key, {"what": name}, code)
    return code
