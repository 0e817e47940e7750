"""A stand-in for the thread pool whose threads take turns: one goes on as far as the next barrier, then another one.

What a step reads of another thread's work without a barrier in between comes too early or too late in one of the orders, so a barrier that is missing shows
in the result, every time.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence

from graphcell.codegen.program import ASKING

_KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
_MORE = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.POINTER(ctypes.c_int64))
_ASKING_KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, _MORE)
_BARRIER = ctypes.CFUNCTYPE(None, ctypes.c_int64)
_TEAM = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, _BARRIER)
_POOL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
_PATIENCE = 120  # seconds for which a thread waits for its turn


class TurnTaking:
    """A pool whose teams have as many threads as `order` has entries, which take turns in that order.

    Attributes:
        teams: how many teams there were; `barriers`: at which they met, in all.
        regions: how many there were else; `asked`: how many of them asked for their blocks.
        failure: what went wrong, if something did.
    """

    def __init__(self, order: Sequence[int] = (1, 0)):
        self.order, self.teams, self.barriers, self.regions, self.asked = order, 0, 0, 0, 0
        self.failure = ""
        self._function = _POOL(self._parallel_for)
        self.address = ctypes.cast(self._function, ctypes.c_void_p)

    def _parallel_for(self, function: int, context: int, blocks: int) -> None:
        """Of blocks the second half first, which whoever asks has block by block."""
        self.regions += blocks > 0 or blocks < ASKING // 2
        if blocks > 0:
            _KERNEL(function)(context, blocks // 2, blocks)
            _KERNEL(function)(context, 0, blocks // 2)
            return
        if blocks < ASKING // 2:
            self.asked += 1
            middle = (blocks - ASKING) // 2
            for first, past in ((middle, blocks - ASKING), (0, middle)):
                _ask(function, context, first, past)
            return
        self.teams += 1
        _Team(self, function, context).run()


def _ask(function: int, context: int, first: int, past: int) -> None:
    left = iter(range(first, past))

    def more(whoami: int, taken: ctypes._Pointer[ctypes.c_int64]) -> int:
        block = next(left, None)
        if block is None or whoami != 7:
            return 0
        taken[0], taken[1] = block, block + 1
        return 1

    block = next(left, None)
    if block is not None:
        _ASKING_KERNEL(function)(context, block, block + 1, 7, _MORE(more))


class _Team:
    def __init__(self, pool: TurnTaking, function: int, context: int):
        self.pool, self.function, self.context = pool, function, context
        self.barrier = _BARRIER(self._come)
        self.now = 0  # whose turn it is, counted on through all rounds
        self.changed = threading.Condition()

    def run(self) -> None:
        threads = [threading.Thread(target=self._go, args=(index,), daemon=True) for index in self.pool.order]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.now % len(threads):
            self.pool.failure = "threads came to unequal numbers of barriers"

    def _go(self, index: int) -> None:
        self._wait(index, 0)
        _TEAM(self.function)(self.context, index, len(self.pool.order), self.barrier)
        self._hand_on()

    def _come(self, index: int) -> None:
        rounds = self.now // len(self.pool.order) + 1
        self.pool.barriers += index == 0
        self._hand_on()
        self._wait(index, rounds)

    def _wait(self, index: int, rounds: int) -> None:
        turn = rounds * len(self.pool.order) + self.pool.order.index(index)
        with self.changed:
            if not self.changed.wait_for(lambda: self.now == turn, _PATIENCE):
                self.pool.failure = "a thread waits at a barrier to which another does not come"

    def _hand_on(self) -> None:
        with self.changed:
            self.now += 1
            self.changed.notify_all()

