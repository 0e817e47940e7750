"""What a process needs to run compiled code: which processor it has, and the code in its memory, with or without LLVM.

Enters: object code from the cache or from the compiler. Leaves: the `Target` of this process, and a `Library` with the addresses of functions. LLVM knows both
best, but to load its library takes longer than the start of most programs: what it once said of the processor is kept in the object cache, and objects
of the usual kind are brought into memory by elf.py.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from pathlib import Path
from typing import Any, Protocol

import llvmlite
import numpy as np

from graphcell.codegen.llvm.processor import Processor, Target, describe
from graphcell.errors import CodegenError
from graphcell.locks import whole
from graphcell.runtime import elf
from graphcell.runtime.cache import make_key, open_cache

_TELLING = frozenset({"vendor_id", "cpu family", "model", "model name", "stepping", "microcode", "flags"})
"""Lines of the system's description of a processor that say what it can do. Where the processor is simulated they are those of the real one: numpy's list,
which is taken from the processor itself, goes into the key, too.
"""


class Library(Protocol):
    """Loaded object code. Addresses hold as long as the Library lives; its memory is freed with it."""

    def address(self, name: str) -> int:
        """The address of a function or a global that the object defines.

        Raises:
            CodegenError: it defines none of this name, or asks for a symbol that the process does not have.
        """
        ...


def load_object(*objects: bytes) -> Library:
    """Maps object code, of one module or of several that belong together, into the process. Symbols that it lacks (malloc, memcpy, pthread_create, fmod …) are
    taken from the process.

    Raises:
        CodegenError: one of them is not an object of this platform, or the system lets no memory become code. Of a symbol that the process lacks
            the look-up in the Library tells.
    """
    if elf.is_handled():
        try:
            return elf.load(objects)
        except elf.NotExecutable as error:  # LLVM would end the process
            raise CodegenError(f"cannot load object code: {error}") from error
        except elf.NotLoadable:
            pass  # LLVM loads it, or says what is wrong
    with whole:
        from graphcell.codegen.llvm import target

    return target.load_object(*objects)


def host() -> Target:
    """The processor of this process, as code is made for it; see `describe` for what the environment changes."""
    return describe(_host_processor())


@functools.cache
def _host_processor() -> Processor:
    described = _system_description()
    cache = open_cache()
    key = make_key("processor", described, _features_for_numpy(), llvmlite.__version__) if described else None
    found = cache.get(key) if key is not None else None
    if found is not None:
        with contextlib.suppress(LookupError, TypeError, ValueError):
            triple, cpu, features = (found[0][name] for name in ("triple", "cpu", "features"))
            return Processor(str(triple), str(cpu), tuple((str(name), bool(on)) for name, on in features))
    with whole:
        from graphcell.codegen.llvm import target

    processor = target.host_processor()
    if key is not None:
        cache.put(key, {"triple": processor.triple, "cpu": processor.cpu, "features": list(map(list, processor.features))}, b"processor")
    return processor


def _features_for_numpy() -> str:
    """What numpy found out about the processor; empty where it does not tell."""
    core: Any = getattr(np, "_core", None)
    found = getattr(getattr(core, "_multiarray_umath", None), "__cpu_features__", {})
    return repr(sorted(found.items()))


def _system_description(file: Path = Path("/proc/cpuinfo")) -> str:
    """What the system says of the first processor; empty where it does not tell which instructions there are."""
    if not elf.is_handled():
        return ""
    try:
        with file.open(encoding="utf-8", errors="replace") as lines:
            rows = [line.strip() for line in itertools.takewhile(str.strip, lines) if line.partition(":")[0].strip() in _TELLING]
    except OSError:
        return ""
    return "\n".join(rows) if any(row.startswith("flags") for row in rows) else ""


__all__ = ["Library", "host", "load_object"]
