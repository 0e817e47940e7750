"""Of two ways to one result the quicker, found by trying: emitted code that measures both now and then.

Enters: a name, and what emits either way. Leaves: code, and a variable of the module with how often it ran and the smoothed times of both ways. Refuses
nothing.

What two threads gain by working side by side depends on where the system lets them run, and on who else is there: twice as fast in one minute, half as fast
in the next. Both are tried again in each _PERIOD runs, more often at first; in between the time of the one that is in use follows what it takes, so that the
other one's turn comes when it has become slower. One run that was held up changes little. The second way is tried some times in a row, since threads may have
to be woken.
"""

from __future__ import annotations

import platform
from collections.abc import Callable

from graphcell.codegen.llvm.text import I64, PTR, FunctionBuilder, Val, i64

_PERIOD, _TRIES = 128, 4  # runs, a power of two, and those of them that try the second way
_FIRST_PERIOD = 16  # the same of the first _PERIOD runs, so that a program that began in a bad moment soon tries again
_TRIED, _FOLLOWED = 1, 2  # parts of a difference from the known time, as shifts: after a try, and of the way in use
_RUNS, _FIRST, _SECOND = range(3)  # words of the variable


def emit_quicker(b: FunctionBuilder, name: str, first: Callable[[], object], second: Callable[[], object]) -> None:
    """Emits `first()` and `second()`, of which each run takes one; where there is no clock, always the second."""
    if not has_clock():
        second()
        return
    takes_second, finish = measured(b, name)
    b.if_else(takes_second, second, first)
    finish()


def measured(b: FunctionBuilder, name: str) -> tuple[Val, Callable[[], None]]:
    """Whether this run takes the second way, an i1, and what is to be emitted behind it. Where there is a clock."""
    b.module.add_global(name, "global [3 x i64] zeroinitializer, align 64")
    words = [b.gep(Val(f"@{name}", PTR), k, I64) for k in (_RUNS, _FIRST, _SECOND)]
    runs, before, after = (b.load_atomic(word, I64, "monotonic") for word in words)
    b.store_atomic(b.add(runs, i64(1)), words[_RUNS], "monotonic")
    period = b.select(b.icmp("ult", runs, i64(_PERIOD)), i64(_FIRST_PERIOD - 1), i64(_PERIOD - 1))
    turn = b.and_(runs, period)
    tries, tries_second = b.icmp("sle", turn, i64(_TRIES)), b.icmp("sge", turn, i64(1))
    takes_second = b.select(tries, tries_second, b.icmp("sle", after, before))
    start = _clock(b)

    def finish() -> None:
        spent = b.binary("smax", b.sub(_clock(b), start), i64(1))  # the clock of a machine that is moved may go back
        known = b.select(takes_second, after, before)
        more = b.binary("smin", b.sub(spent, known), known)
        part = b.select(tries, i64(_TRIED), i64(_FOLLOWED))
        followed = b.add(known, b.shr(more, part, signed=True))
        word = b.select(takes_second, words[_SECOND], words[_FIRST])
        b.store_atomic(b.select(b.icmp("eq", known, i64(0)), spent, followed), word, "monotonic")

    return takes_second, finish


def has_clock() -> bool:
    return platform.machine().lower() in ("x86_64", "amd64", "aarch64", "arm64")


def _clock(b: FunctionBuilder) -> Val:
    """A counter that goes on evenly."""
    if platform.machine().lower() in ("aarch64", "arm64"):
        return b.raw('call i64 asm sideeffect "mrs $0, cntvct_el0", "=r"()', I64)
    return b.intrinsic("readcyclecounter", I64)
