"""Objects that native code can call: CPython's vectorcall protocol for a class written in Python.

Enters: a class (`NativelyCalled`) with a Python `__call__`. Leaves: a subclass whose instances have room for the address of a native
function and for one more pointer; while the address is 0, calls go to `__call__`. Refuses nothing: where the interpreter is not a CPython whose layout
is known (another implementation, a free-threaded build, an untested version), the class itself comes back and `__call__` does all.
See PEP 590 and "Type Objects" in CPython's C API.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
import sysconfig
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

if TYPE_CHECKING:
    from graphcell.runtime.binding import Table

SWITCH_VARIABLE = "GRAPHCELL_NATIVE_CALLS"
"""Set to 0 in the environment: every call goes through Python, for comparison."""
_TESTED = ((3, 11), (3, 12), (3, 13))
_DEFAULT_FLAGS = 1 << 18  # Py_TPFLAGS_DEFAULT
_HAVE_VECTORCALL = 1 << 11
_SLOT_MEMBERS = 72  # Py_tp_members
_PY_SSIZE_T, _READ_ONLY = 19, 1
_WORD = ctypes.sizeof(ctypes.c_void_p)
OBJECT_BYTES = 2 * _WORD
"""Reference count and type, with which every object begins."""

C = TypeVar("C")


class _Member(ctypes.Structure):
    """PyMemberDef."""

    _fields_ = [
        ("name", ctypes.c_char_p), ("type", ctypes.c_int), ("offset", ctypes.c_ssize_t),
        ("flags", ctypes.c_int), ("doc", ctypes.c_char_p),
    ]  # fmt: skip


class _Slot(ctypes.Structure):
    """PyType_Slot."""

    _fields_ = [("slot", ctypes.c_int), ("pfunc", ctypes.c_void_p)]


class _Spec(ctypes.Structure):
    """PyType_Spec."""

    _fields_ = [
        ("name", ctypes.c_char_p), ("basicsize", ctypes.c_int), ("itemsize", ctypes.c_int),
        ("flags", ctypes.c_uint), ("slots", ctypes.POINTER(_Slot)),
    ]  # fmt: skip


@functools.cache
def is_possible() -> bool:
    """True on a CPython whose objects look as the native code expects."""
    if os.environ.get(SWITCH_VARIABLE, "").strip() == "0":
        return False
    if sys.implementation.name != "cpython" or sys.version_info[:2] not in _TESTED or _WORD != 8 or sys.byteorder != "little":
        return False
    if sysconfig.get_config_var("Py_GIL_DISABLED") or hasattr(sys, "gettotalrefcount"):
        return False
    return _arrays_are_known()


class ArrayFields:
    """Where the fields of a numpy array are, numpy's stable ABI (PyArrayObject_fields)."""

    DATA, RANK, DIMS, BASE, DTYPE, FLAGS = 16, 24, 32, 48, 56, 64
    C_CONTIGUOUS = 1


def _arrays_are_known() -> bool:
    owner = np.zeros(20, np.int16)
    f = ArrayFields
    for array in (owner[2:14].reshape(3, 4), owner[::2], owner[:12].reshape(4, 3).T):
        at = id(array)
        dims = ctypes.c_int64.from_address(at + f.DIMS).value
        rank = ctypes.c_int32.from_address(at + f.RANK).value
        if rank != array.ndim or (ctypes.c_int64 * rank).from_address(dims)[:] != list(array.shape):
            return False
        if ctypes.c_int64.from_address(at + f.DATA).value != array.ctypes.data:
            return False
        pointers = [(f.BASE, array.base), (f.DTYPE, array.dtype), (OBJECT_BYTES - _WORD, type(array))]
        if any(ctypes.c_int64.from_address(at + offset).value != id(x) for offset, x in pointers):
            return False
        if bool(ctypes.c_int32.from_address(at + f.FLAGS).value & f.C_CONTIGUOUS) is not array.flags.c_contiguous:
            return False
    return True


def slot_offset(instance: Any, name: str) -> int:
    """Where `instance` (of a class with `__slots__`) keeps its attribute `name`, found by putting something there; 0 if it is not found."""
    before, mark = getattr(instance, name, None), object()
    setattr(instance, name, mark)
    size = type(instance).__basicsize__
    words = (ctypes.c_int64 * (size // _WORD)).from_address(id(instance))
    places = [k * _WORD for k, word in enumerate(words) if word == id(mark)]
    setattr(instance, name, before)
    return places[0] if len(places) == 1 else 0


def with_vectorcall(base: type[C]) -> type[C]:
    """A subclass of `base` with room for native calls: two words at `table_offset`, the function's address, and a pointer of its own.

    It is `base` itself where native calls are not possible.
    """
    if not is_possible():
        return base
    offset = base.__basicsize__
    members = (_Member * 2)(_Member(b"__vectorcalloffset__", _PY_SSIZE_T, offset, _READ_ONLY, None))
    slots = (_Slot * 2)(_Slot(_SLOT_MEMBERS, ctypes.addressof(members)))
    name = f"{base.__module__}.{base.__qualname__}".encode()
    spec = _Spec(name, offset + 2 * _WORD, 0, _DEFAULT_FLAGS | _HAVE_VECTORCALL, slots)
    make = ctypes.pythonapi.PyType_FromSpecWithBases
    make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.py_object)
    kind: type[C] = make(ctypes.addressof(spec), (base,))
    _kept.append((members, slots, name, spec))
    if kind.__basicsize__ != offset + 2 * _WORD:
        return base
    kind.table_offset = offset  # type: ignore[attr-defined]
    return kind


_kept: list[Any] = []  # what types refer to as long as they live


class NativelyCalled:
    """Base of classes whose calls native code takes over once `natives` was asked for; it calls `__call__` where it has no record.

    Subclasses are made complete by `with_vectorcall`, which gives the type to make instances of, and `table_offset`.
    """

    table_offset = 0
    _natives: Table | None = None
    _words = ctypes.c_int64 * 2

    def natives(self, always: bool = False) -> Table | None:
        """The records by which native code runs this; None where it cannot.

        Args:
            always: run them while graphs are being built and tapes are recorded, too.
        """
        from graphcell.runtime.binding import Table

        return self._natives_in(lambda: Table(always))

    def _natives_in(self, make: Callable[[], Table]) -> Table | None:
        if self._natives is None and self.table_offset:
            from graphcell.runtime.calling import native

            code = native()
            if code is not None and code.connect(_call_in_python, self.table_offset + _WORD):
                self._natives = make()
                words = self._words.from_address(id(self) + self.table_offset)
                words[1] = self._natives.address
                words[0] = code.vectorcall
        return self._natives

    def __del__(self) -> None:
        if self._natives is not None:
            self._words.from_address(id(self) + self.table_offset)[:] = [0, 0]


def _call_in_python(function: Any, /, *args: Any, **kwargs: Any) -> Any:
    return type(function).__call__(function, *args, **kwargs)
