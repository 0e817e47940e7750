"""Aligned memory for Tensors, and how long what they let go of must stay."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import sys
import sysconfig
import threading
import time
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from graphcell.errors import OutOfMemoryError
from graphcell.locks import Lock

ALIGNMENT = 64
_POLL_SECONDS = 2e-5
Array = np.ndarray[Any, Any]


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """An uninitialised C-contiguous array whose first byte lies on a 64-byte boundary.

    Raises:
        OutOfMemoryError: with the bytes asked for.
    """
    nbytes = math.prod(shape) * dtype.itemsize
    try:
        raw = np.empty(nbytes + ALIGNMENT, np.uint8)
    except (MemoryError, ValueError) as e:
        raise OutOfMemoryError(f"cannot allocate {nbytes:,} bytes for a Tensor of shape {shape}") from e
    start = -address(raw) % ALIGNMENT
    return raw[start : start + nbytes].view(dtype).reshape(shape)


def _field_of_address() -> int:
    """Where an array object keeps the address of its memory (numpy's PyArrayObject_fields); 0 if this Python is not CPython."""
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return 0
    probe, field = np.zeros(3), 2 * ctypes.sizeof(ctypes.c_void_p)
    return field if ctypes.c_size_t.from_address(id(probe) + field).value == probe.ctypes.data else 0


_FIELD = _field_of_address()


def address(data: Array) -> int:
    """The address of the first element: `data.ctypes.data`, several times as fast."""
    return ctypes.c_size_t.from_address(id(data) + _FIELD).value if _FIELD else int(data.ctypes.data)


def copy(source: Array) -> Array:
    """An aligned, C-contiguous copy."""
    target = empty(source.shape, source.dtype)
    target[...] = source
    return target


class _HostCalls(threading.local):
    """The calls of this thread that are inside Python code which compiled code called: the generation of each."""

    def __init__(self) -> None:
        self.generations: list[int] = []


class RetiredBuffers:
    """Keeps buffers that Tensors let go of while calls of compiled code are under way, which may have their addresses.

    A call belongs to the generation in which it began, a buffer to that in which it was let go of. Once no call of the generation before the
    present one is left, its buffers are freed and it becomes the present one: so none stays long, even if there is no moment without a call.
    """

    running = (ctypes.c_int64 * 2)()
    """The calls under way, by generation."""
    generation = ctypes.c_int64(0)
    """The present one."""
    kept: ClassVar[list[list[Array]]] = [[], []]
    host_calls = _HostCalls()
    _lock = threading.RLock()  # a handler of signals may come here in between

    @classmethod
    def calls(cls) -> int:
        """How many calls are under way."""
        return cls.running[0] + cls.running[1]

    @classmethod
    def begin(cls) -> int:
        """A call begins, where native code does not count it; its generation."""
        with cls._lock:
            generation = cls.generation.value
            cls.running[generation] += 1
            return generation

    @classmethod
    def end(cls, generation: int) -> None:
        """A call of this generation ends."""
        with cls._lock:
            cls.running[generation] -= 1

    @classmethod
    def forget_other_threads(cls) -> None:
        """After a fork: the calls under way are those of this thread, which are inside Python code that they called."""
        cls._lock = threading.RLock()
        for generation in range(2):
            cls.running[generation] = cls.host_calls.generations.count(generation)

    @classmethod
    def retire(cls, data: Array | None) -> None:
        """Notes that a Tensor has let go of `data`. To be called when no call that begins now can get its address any more."""
        if cls.calls() and data is not None:
            cls.kept[cls.generation.value].append(data)
        cls.clear()

    @classmethod
    def clear(cls) -> None:
        """Lets go of what no call under way can have the address of."""
        if not (cls.kept[0] or cls.kept[1]) or not cls._lock.acquire(blocking=False):
            return
        try:
            freed = [cls._end_generation() for _ in range(2) if not cls.running[1 - cls.generation.value]]
        finally:
            cls._lock.release()
        del freed  # not earlier: what else goes with it may run code

    @classmethod
    def _end_generation(cls) -> list[Array]:
        before = 1 - cls.generation.value
        done, cls.kept[before] = cls.kept[before], []
        cls.generation.value = before
        return done


class Writers:
    """Runs that write into Tensors, of which there is one at a time: a buffer must not move, nor be written by another, under such a run."""

    writing = ctypes.c_int64(0)
    """The runs under way without Python's lock; native code counts them, and starts none if there is another."""
    claimed = ctypes.c_int64(0)
    """1 while Python code prepares and does such a run: native code starts none."""
    _lock = Lock()
    _owner = 0

    @classmethod
    @contextlib.contextmanager
    def alone(cls) -> Iterator[None]:
        """No other thread starts a run that writes; those under way are waited for. Not inside Python code that a run called, which
        may be what is waited for.
        """
        if RetiredBuffers.host_calls.generations:
            yield
            return
        with cls._lock:
            before, cls.claimed.value, cls._owner = cls.claimed.value, 1, threading.get_ident()
            try:
                while cls.writing.value > 0:
                    time.sleep(_POLL_SECONDS)
                yield
            finally:
                cls.claimed.value = before

    @classmethod
    def forget_other_threads(cls) -> None:
        """After a fork: runs of other threads are not under way."""
        cls.writing.value = 0
        if cls._owner != threading.get_ident():
            cls.claimed.value = 0


def _forget_other_threads() -> None:
    RetiredBuffers.forget_other_threads()
    Writers.forget_other_threads()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_other_threads)
