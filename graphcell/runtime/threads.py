"""The worker pool: threads that are parked inside native code, and Python's hold on them.

Enters: a size. Leaves: the address of `parallel_for(ptr kernel, ptr context, i64 blocks)`, which generated
code calls through a pointer. It calls `kernel(ptr context, i64 begin, i64 end)` on contiguous ranges that
together are [0, blocks), and returns when all are done. Which thread runs a range is left to the moment, so
what a block computes must not depend on it. Refuses: sizes outside 1…MAX_THREADS.

* With -n for blocks, n from 2 to MOST_IN_TEAM, at most n threads, as many as have come soon, call `kernel(ptr context, i64 index, i64 size,
  ptr barrier)` side by side (team.py).
* With ASKING (codegen/program.py) added to blocks, each thread that finds some left calls `kernel(ptr context, i64 begin, i64 end, i64 whoami,
  ptr more)` once, which takes more itself: `more(i64 whoami, ptr taken)` writes begin and end there, or gives 0 (work_sharing.py). If `more` is
  null, there are no others.

* One region at a time. A call that finds the pool busy (another Python thread's region, or a nested one) runs
  all its blocks itself, or is a team of one.
* Workers start with the first region that wants them, again after a fork, and anew after `resize`. Between
  regions they spin for a bounded time, then sleep. They never touch Python, block all signals but faults, and
  end with the process.
* They sleep on condition variables of pthreads, whose functions come from the process, so Linux and macOS
  share the code. Without pthreads (Windows) the pool has one thread, the caller's.

Here the native code is loaded and its memory filled in (pool_state.py), the size is chosen, and forks are made safe. How
regions are announced, and workers started and parked: native_pool.py. How the blocks of a region are divided:
work_sharing.py. Threads that go side by side: team.py.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from typing import Any

from graphcell.errors import ArgumentTypeError, ArgumentValueError, ExecutionError
from graphcell.locks import Lock
from graphcell.runtime.native_pool import CLOSED, YIELD_EVERY, assembly
from graphcell.runtime.pool_state import MAX_THREADS, SYSTEM_FUNCTIONS, PoolState
from graphcell.runtime.support import expect, load_support

SIZE_VARIABLE = "GRAPHCELL_NUM_THREADS"
# how long a thread polls before it sleeps; waking a sleeper costs about half of that
_SPIN_NANOSECONDS = 100_000
_STACK_BYTES = 8 << 20  # as the main thread has on Linux; macOS would give 512 KiB
_CODE = "thread pool"
_FAULTS = ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGTRAP", "SIGABRT", "SIGSYS")


expect(_CODE, assembly)


class Pool:
    """The process's worker threads. There is one, see `pool()`."""

    def __init__(self, threads: int):
        code = load_support(_CODE, assembly())
        self.address: int = code.address("parallel_for")
        self._want = ctypes.CFUNCTYPE(None, ctypes.c_int64)(code.address("want"))
        self._quiesce = ctypes.CFUNCTYPE(ctypes.c_int64)(code.address("quiesce"))
        self._release = ctypes.CFUNCTYPE(None)(code.address("release"))
        state_address = ctypes.CFUNCTYPE(ctypes.c_void_p)(code.address("state"))()
        self._state = PoolState.from_address(state_address)
        self._process = ctypes.CDLL(None) if MAX_THREADS > 1 else None
        self._begin_alone()
        if MAX_THREADS > 1:
            self._connect()
            self._calibrate(code.address("poll"), state_address + PoolState.word.offset)
            os.register_at_fork(
                before=self._before_fork, after_in_parent=self._after_fork, after_in_child=self._in_child)
        self.resize(threads)

    @property
    def threads(self) -> int:
        """How many threads a region uses, the caller's included; fewer than wanted if the system would start
        no more."""
        state = self._state
        return int(state.started if state.shaped == state.wanted else state.wanted)

    def resize(self, threads: int) -> None:
        """Sets the size from the next region on; one that runs now keeps its own. Never waits."""
        self._want(checked_size(threads, "the number of threads"))
        self._state.processors = processors()

    def _begin_alone(self) -> None:
        """The caller is the only thread: nothing is held, nobody is inside or sleeps; the next region starts workers."""
        state = self._state
        state.busy = state.sleepers = state.waiting = state.shaped = 0
        state.started, state.entry = 1, CLOSED
        self._held = False

    def _connect(self) -> None:
        """Fills in the functions, the thread attributes, the signal mask and the locks."""
        state = self._state
        for field, name in SYSTEM_FUNCTIONS.items():
            setattr(state, field, ctypes.cast(getattr(self._process, name), ctypes.c_void_p).value)
        attributes, blocked = ctypes.byref(state.attributes), ctypes.byref(state.blocked)
        self._posix_call("pthread_attr_init", attributes)
        self._posix_call("pthread_attr_setstacksize", attributes, ctypes.c_size_t(_STACK_BYTES))
        self._posix_call("sigfillset", blocked)
        for name in _FAULTS:
            self._posix_call("sigdelset", blocked, int(getattr(signal, name)))
        self._initialise_locks()

    def _initialise_locks(self) -> None:
        for field, kind in (("mutex", "mutex"), ("wake", "cond"), ("done", "cond")):
            memory = getattr(self._state, field)
            ctypes.memset(ctypes.byref(memory), 0, ctypes.sizeof(memory))
            self._posix_call(f"pthread_{kind}_init", ctypes.byref(memory), None)

    def _posix_call(self, function: str, *args: Any) -> None:
        code = getattr(self._process, function)(*args)
        if code:
            raise ExecutionError(f"the thread pool cannot be set up: {function} returned {code}")

    def _calibrate(self, poll_address: int, word_address: int) -> None:
        """Turns _SPIN_NANOSECONDS into a number of polls; the best of a few tries, as the machine may be
        busy."""
        poll = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, *[ctypes.c_int64] * 3)(poll_address)
        polls = 4 * YIELD_EVERY
        best = _SPIN_NANOSECONDS
        for _ in range(5):
            start = time.perf_counter_ns()
            poll(word_address, self._state.word, 0, polls)  # until `word` differs from itself: all of them
            best = min(best, time.perf_counter_ns() - start)
        self._state.spin_limit = max(YIELD_EVERY, polls * _SPIN_NANOSECONDS // max(best, 1))

    def _before_fork(self) -> None:
        """Ends the workers, so that neither side inherits half a pool. If a region runs, the child cleans up
        instead."""
        if self._quiesce():
            self._held = True  # and not False otherwise: another thread may be forking, too, and hold the pool

    def _after_fork(self) -> None:
        if self._held:
            self._held = False
            self._release()

    def _in_child(self) -> None:
        """The child has only the thread that forked. Its locks are new: another thread may have held the old ones."""
        self._begin_alone()
        self._initialise_locks()


def checked_size(value: object, what: str) -> int:
    """`value` if a pool can have that size.

    Raises ArgumentTypeError (a TypeError) if it is no int, ArgumentValueError (a ValueError) outside
    1…MAX_THREADS.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise ArgumentTypeError(f"{what} must be an int, got {type(value).__name__}")
    if not 1 <= value <= MAX_THREADS:
        raise ArgumentValueError(f"{what} must be from 1 to {MAX_THREADS}, got {value}")
    return value


def default_size(configured: int | None = None) -> int:
    """The environment's GRAPHCELL_NUM_THREADS, else `configured`, else as many as processors it may use.

    A `configured` of 0 or None leaves it open. Raises ArgumentValueError (a ValueError) for anything else
    that is not from 1 to MAX_THREADS.
    """
    text = os.environ.get(SIZE_VARIABLE, "").strip()
    if text:
        if not (text.isascii() and text.isdecimal()):
            hint = f"set it to a number from 1 to {MAX_THREADS}, or unset it"
            raise ArgumentValueError(f"{SIZE_VARIABLE} is {text!r}, which is not a number", hint=hint)
        return checked_size(int(text), SIZE_VARIABLE)
    if configured is not None and configured != 0:
        return checked_size(configured, "the number of threads")
    return min(processors(), MAX_THREADS)


def processors() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_pool: Pool | None = None
_creating = Lock()


def pool(configured: int | None = None) -> Pool:
    """The process's pool, made by the first call with `default_size(configured)` threads; later calls only
    return it."""
    global _pool
    if _pool is not None:
        return _pool
    with _creating:
        if _pool is None:
            _pool = Pool(default_size(configured))
        return _pool
