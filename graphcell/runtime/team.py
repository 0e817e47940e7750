"""Regions whose threads go through the same steps side by side, as a team: emitted code that gathers the team, and its barrier.

Enters: a module with the pool's memory (pool_state.py). Leaves: functions of that module, of which native_pool.py, the only one to use this, has
`attend` run as the kernel of a region that has one block for each thread. `attend` calls the team's kernel once in each thread that has come in time,
as `kernel(ptr context, i64 index, i64 size, ptr barrier)`; threads meet at `barrier(i64 index)`. Refuses nothing.

A thread that did not come before the first one had waited long enough is not of the team: it finds the block of its own used up, or attends a team that
is closed. So threads that the system holds up before a region begins keep nobody waiting; afterwards all wait for each. One that slept takes some time to
wake: after a team to which some did not come, the next one is waited for longer, once.

The barrier: each thread counts its turns in a line of its own, and waits until nobody else is at the turn before. A release and an acquire for each
pair, so that everything before a barrier is seen behind it.

Reference: D. Hensgen, R. Finkel, U. Manber, "Two algorithms for barrier synchronization", International Journal of Parallel Programming 17(1), 1988.
"""

from __future__ import annotations

from graphcell.codegen.llvm.text import I64, PTR, VOID, Module, Val, i64
from graphcell.runtime.pool_state import FOREVER, MOST_IN_TEAM, TURN_WORDS, PoolBuilder, at

ATTEND = Val("@attend", PTR)
_CLOSED = 1 << 32  # what is added to `attendees` when the team is closed
_PATIENCE = 2  # a shift: part of the polls after which a thread sleeps for which the first one waits for the others, unless some did not come last time


def emit_team(module: Module) -> None:
    """`attend` and `barrier`. After `poll`."""
    _emit_barrier(module)
    _emit_attend(module)


def open_team(b: PoolBuilder, kernel: Val) -> None:
    """What a team needs before its region is announced. Nobody may be inside a region."""
    b.store(kernel, at("team_kernel"))
    b.set("attendees", i64(0), "monotonic")
    b.set("team_size", i64(0), "monotonic")
    with b.loop(0, MOST_IN_TEAM) as loop:
        b.store_atomic(i64(0), _turn(b, loop.index), "monotonic")


def _turn(b: PoolBuilder, index: Val) -> Val:
    """The address of the word in which a thread counts its turns."""
    return b.gep(at("turns"), b.mul(index, i64(TURN_WORDS)), I64)


def _emit_barrier(module: Module) -> None:
    """`barrier(i64 index)`: waits until all threads of the team are here."""
    b = PoolBuilder(module, "barrier", (("index", I64),))
    index = b.args["index"]
    own = _turn(b, index)
    before = b.load_atomic(own, I64, "monotonic")
    b.store_atomic(b.add(before, i64(1)), own, "release")
    with b.loop(0, b.get("team_size", "monotonic")) as loop:
        b.call("poll", I64, _turn(b, loop.index), before, i64(0), FOREVER)
    b.finish()


def _emit_attend(module: Module) -> None:
    """`attend(ptr context, i64 begin, i64 end)`: joins the team if it is open, and runs its kernel. The first to come closes it."""
    b = PoolBuilder(module, "attend", (("context", PTR), ("begin", I64), ("end", I64)))
    number = b.fetch_add("attendees", 1)
    b.return_if(b.icmp("sge", number, i64(_CLOSED)))

    def close() -> None:
        limit, wanted = b.get("spin_limit", "monotonic"), b.load(at("blocks"), I64)
        some_missed = b.icmp("ne", b.load(at("missed"), I64), i64(0))
        patience = b.select(some_missed, limit, b.shr(limit, i64(_PATIENCE)))
        b.call("poll", I64, at("attendees"), wanted, i64(1), patience)
        came = b.fetch_add("attendees", _CLOSED)
        misses = b.and_(b.icmp("ne", came, wanted), b.not_(some_missed))
        b.store(b.cast(misses, I64, signed=False), at("missed"))
        b.set("team_size", came, "release")

    def wait() -> None:
        b.call("poll", I64, at("team_size"), i64(0), i64(0), FOREVER)

    b.if_else(b.icmp("eq", number, i64(0)), close, wait)
    kernel, size = b.load(at("team_kernel"), PTR), b.get("team_size", "acquire")
    b.call_pointer(kernel, VOID, b.args["context"], number, size, Val("@barrier", PTR))
    b.finish()
