"""What makes a fork safe while other threads are at work.

A child has only the thread that forked: a lock that another one held at that moment would stay closed in it for ever, and what another one
was importing would stay half done. So locks are open in the child (`Lock`), or are not there (`cached_property`), and forks wait for the rest (`whole`,
`hold_during_forks`).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Generic, Self, TypeVar, overload

T = TypeVar("T")

whole = threading.RLock()
"""`with whole:` no other thread forks: for imports that are done late."""
translating = threading.RLock()
"""Held while machine code is made, also while the rest of a program is lowered. Who holds it may enter `whole`, so forks enter it before that."""


class Lock:
    """`with lock:`, which the thread that holds it may enter again. In a child process it is open unless the thread that forked held it."""

    __slots__ = ("_depth", "_generation", "_lock", "_owner")

    def __init__(self) -> None:
        self._generation = _Forks.generation
        self._open()

    def _open(self) -> None:
        self._lock, self._owner, self._depth = threading.RLock(), 0, 0

    def __enter__(self) -> None:
        if self._generation is not _Forks.generation:
            self._renew()
        self._lock.acquire()
        self._owner = threading.get_ident()
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = 0
        self._lock.release()

    def _renew(self) -> None:
        with _Forks.renewing:
            if self._generation is not _Forks.generation:
                if self._owner != _Forks.survivor:
                    self._open()
                self._generation = _Forks.generation


class cached_property(Generic[T]):
    """`functools.cached_property` as Python 3.12 has it: two threads that ask at once may both compute the value. Before, one lock that belongs to all
    objects of a class is held meanwhile.
    """

    def __init__(self, function: Callable[[Any], T]):
        self._function, self.__doc__ = function, function.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: object | None, owner: type) -> Self | T:
        if instance is None:
            return self
        value: T = vars(instance).setdefault(self._name, self._function(instance))
        return value


class _Forks:
    """`generation`: another object in each process that was forked off. `survivor`: the thread that did that, the only one left. `held`: what
    is entered before a fork, `entered`: what was."""

    generation = object()
    survivor = 0
    renewing = threading.Lock()
    held: ClassVar[list[AbstractContextManager[Any]]] = [translating, whole]
    entered: ClassVar[list[AbstractContextManager[Any]]] = []

    @classmethod
    def begin(cls) -> None:
        for lock in cls.held:  # which may grow while the first is waited for
            lock.__enter__()
            cls.entered.append(lock)

    @classmethod
    def end(cls) -> None:
        while cls.entered:
            cls.entered.pop().__exit__(None, None, None)

    @classmethod
    def end_in_child(cls) -> None:
        cls.generation, cls.survivor, cls.renewing = object(), threading.get_ident(), threading.Lock()
        cls.end()


def hold_during_forks(lock: AbstractContextManager[Any]) -> None:
    """Forks enter `lock` before and leave it afterwards, in both processes."""
    _Forks.held.append(lock)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_Forks.begin, after_in_parent=_Forks.end, after_in_child=_Forks.end_in_child)
