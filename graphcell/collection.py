"""Python's search for cycles of dead objects, made rarer while graphs are built.

A compilation makes hundreds of thousands of objects that live until it ends; the collector would visit them again and again, a twentieth of the first
call's time. What is imported meanwhile lives as long as the process: it is counted as old, and with it whatever else is young then.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import threading
from types import TracebackType

from graphcell.locks import Lock

_NEW_OBJECTS = 500_000
"""So many new objects between two collections: some 50 MB at most that wait."""
_MODULES = 20
"""So many new modules, of some hundred objects each, are most of what the next collection would visit."""
_GENERATOR = "graphcell.codegen.lower"
"""Comes with the first call that finds nothing in the cache, and most of graphcell's modules with it."""


class _Rarely(contextlib.ContextDecorator):
    """`with rarely_collected:` or `@rarely_collected`, several times at once, also by several threads. Whoever sets thresholds meanwhile has the
    last word."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._users: list[int] = []
        self._usual = self._rare = gc.get_threshold()
        self._modules = 0

    def __enter__(self) -> None:
        _collect_before_imports()
        with self._lock:
            self._users.append(threading.get_ident())
            if len(self._users) == 1:
                self._modules = len(sys.modules)
                first, *others = self._usual = gc.get_threshold()
                if first:  # else it is switched off
                    gc.set_threshold(max(first, _NEW_OBJECTS), *others)
                self._rare = gc.get_threshold()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        with self._lock:
            self._users.remove(threading.get_ident())
            self._restore()

    def forget_other_threads(self) -> None:
        """For a child process, which has only the thread that forked: the others would never leave."""
        with self._lock:
            if self._users:
                self._users = [user for user in self._users if user == threading.get_ident()]
                self._restore()

    def _restore(self) -> None:
        if self._users:
            return
        try:
            if len(sys.modules) >= self._modules + _MODULES:
                _count_as_old()
        finally:
            if gc.get_threshold() == self._rare:
                gc.set_threshold(*self._usual)


def _collect_before_imports() -> None:
    """Frees the program's own dead cycles before a first call imports the code generator: counted as old, they might stay for long."""
    if _GENERATOR not in sys.modules and gc.isenabled() and _can_count_as_old():
        gc.collect(1)


def _can_count_as_old() -> bool:
    """Not where others froze something, which stays frozen."""
    return hasattr(gc, "freeze") and not gc.get_freeze_count()


def _count_as_old() -> None:
    """Takes all objects that there are for such as live long. After an import the next collection would visit them all, for an eighth of its time."""
    if _can_count_as_old():
        try:
            gc.freeze()
        finally:
            gc.unfreeze()


rarely_collected = _Rarely()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=rarely_collected.forget_other_threads)
