"""The interpreter, put together of its layers, and which one is at work.

core → expressions → statements → control (branches) → loops → calls: each layer is a class that adds to the
one before.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from graphcell.frontend.calls import Calls
from graphcell.frontend.source import check_interpretable
from graphcell.locks import Lock
from graphcell.ops.dispatch import Trace
from graphcell.tensor import state

_RECURSION_LIMIT = 120_000
"""Interpreting one call takes about twenty Python frames; `max_call_depth` is the limit that a user meets."""


class Interpreter(Calls):
    """Interprets functions into the graph under construction."""


class _Active(threading.local):
    interpreter: Interpreter | None = None


class _RecursionLimit:
    """Python's recursion limit, raised while any thread interprets."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.users = 0
        self.before = 0

    def raise_it(self) -> None:
        with self.lock:
            if not self.users:
                self.before = sys.getrecursionlimit()
                sys.setrecursionlimit(max(self.before, _RECURSION_LIMIT))
            self.users += 1

    def restore(self) -> None:
        with self.lock:
            self.users -= 1
            if not self.users:
                sys.setrecursionlimit(self.before)


_active = _Active()
_limit = _RecursionLimit()


def active() -> Interpreter | None:
    """The interpreter that is at work in this thread, if a graph is being built."""
    return _active.interpreter if state.trace is not None else None


@contextmanager
def interpreting(trace: Trace, varying: frozenset[tuple[int, str]] = frozenset()) -> Iterator[Interpreter]:
    """An interpreter that builds `trace` (the outermost graph). `varying`: see `Guards`."""
    before = _active.interpreter
    interpreter = _active.interpreter = Interpreter(varying)
    trace.span, trace.before_change = interpreter.span, interpreter.note_contents
    _limit.raise_it()
    try:
        with trace.active():
            yield interpreter
    finally:
        _active.interpreter = before
        _limit.restore()


def call(fn: Any, *args: Any, **kwargs: Any) -> Any:
    """Calls `fn`; while a graph is being built, functions of the user are interpreted, so that their control
    flow becomes part of it.

    This is how code of graphcell calls back what the user wrote (`Cell.construct`, the function of `grad`).
    """
    trace = state.trace
    if trace is None:
        return fn(*args, **kwargs)
    check_interpretable(fn)
    interpreter = _active.interpreter
    if interpreter is not None:
        return interpreter.call(fn, args, kwargs)
    with interpreting(trace) as fresh:
        return fresh.call(fn, args, kwargs)
