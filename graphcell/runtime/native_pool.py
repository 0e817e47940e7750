"""The native code of the worker pool: how a region is announced, and how workers are started, parked, woken and ended.

Enters: nothing. Leaves: LLVM assembly, which threads.py loads. Its memory is laid out in pool_state.py; what threads do inside a
region is in work_sharing.py. Refuses nothing.

Functions for others: `parallel_for`, for generated code; `state`, `want`, `quiesce`, `release`, `poll`, for Python. Whoever has
set `busy` is the holder: the only one that announces regions, and starts or ends workers.

How a region is announced: `word` is a sequence number shifted left by _WIDTH bits, plus the number of threads that take part
(0: end yourself). A worker compares it with the word it saw last. `entry` holds the same sequence number while the region may be
entered, plus the number of workers inside: a worker enters by adding 1, and whoever comes too late, or finds the next region, does
not read a field that the next holder is writing. The holder works until no slot holds anything, closes the entry, and waits for those
inside.

Sleeping and waking is Dekker's pattern: each side writes its own field, then reads the other's, and at least one of them sees what the
other wrote. The holder writes `word`, then reads `sleepers`; a worker raises `sleepers`, then reads `word`. When the holder waits for
the last worker, it writes `waiting`, then reads `entry`; a worker lowers `entry`, then reads `waiting`. All of these are seq_cst, as
acquire and release would let a read pass the write before it. Both notify and look again under the mutex, so nobody is notified
between a look and the sleep that follows.
"""

from __future__ import annotations

import signal

from graphcell.codegen.llvm.text import I32, I64, PTR, VOID, Module, Val, const, i64
from graphcell.codegen.program import ASKING
from graphcell.runtime.pool_state import FOREVER, MOST_IN_TEAM, POOL, PoolBuilder, add_state, at
from graphcell.runtime.team import ATTEND, emit_team, open_team
from graphcell.runtime.work_sharing import emit_claims, emit_shares, emit_take_part

_WIDTH = 16  # bits of `word` and `entry` below the sequence number
_COUNT = (1 << _WIDTH) - 1
CLOSED = 1 << 15  # what is added to `entry` when no more workers may enter: above any number of threads, within _COUNT
# polls between two sched_yield, which let the other side run where cores are fewer than threads; a power of two
YIELD_EVERY = 64
_PLAIN, _TEAM, _ASKING = range(3)  # ways in which a region's kernel is called
_REGION_PARAMETERS = (("kernel", PTR), ("context", PTR), ("blocks", I64))


def assembly() -> str:
    """The LLVM assembly of the pool."""
    module = Module()
    add_state(module)
    emit_claims(module)
    _emit_poll(module)
    _emit_publish(module)
    _emit_next_word(module)
    emit_take_part(module)
    emit_team(module)
    _emit_enter(module)
    _emit_worker(module)
    _emit_reshape(module)
    _emit_quiesce(module)
    _emit_release(module)
    _emit_try_region(module)
    _emit_parallel_for(module)
    _emit_state(module)
    _emit_want(module)
    return str(module)


# -- announcing and waiting ------------------------------------------------------------------------------------
def _next_sequence(b: PoolBuilder) -> Val:
    """The sequence number of the region to come, shifted as in `word`, which nobody but the holder writes."""
    return b.add(b.and_(b.get("word", "monotonic"), i64(~_COUNT)), i64(1 << _WIDTH))


def _notify(b: PoolBuilder, condition: str) -> None:
    b.system("lock", at("mutex"))
    b.system("broadcast", at(condition))
    b.system("unlock", at("mutex"))


def _sleep_while(b: PoolBuilder, field: str, predicate: str, value: Val, condition: str) -> None:
    """Sleeps on a condition variable as long as `field predicate value`; the mutex is held."""
    b.while_loop(
        lambda: b.icmp(predicate, b.get(field), value),
        lambda: b.system("sleep", at(condition), at("mutex")),
    )


def _emit_poll(module: Module) -> None:
    """`poll(ptr field, i64 value, i64 equal, i64 limit) -> i64`: 1 once (field == value) == equal, 0 after `limit` looks.

    Acquire: who finds a word sees the region that it announces, and who finds the entry empty what those inside wrote.
    """
    b = PoolBuilder(module, "poll", (("field", PTR), ("value", I64), ("equal", I64), ("limit", I64)), I64, internal=False)
    with b.loop(0, b.args["limit"]) as loop:
        now = b.load_atomic(b.args["field"], I64, "acquire")
        equal = b.cast(b.icmp("eq", now, b.args["value"]), I64)
        b.return_if(b.icmp("eq", equal, b.args["equal"]), i64(1))
        b.pause()
        turn = b.and_(loop.index, i64(YIELD_EVERY - 1))
        with b.if_then(b.icmp("eq", turn, i64(YIELD_EVERY - 1))):
            b.system("yield_")
    b.finish(i64(0))


def _emit_publish(module: Module) -> None:
    """`publish(i64 participants)`: a new word, and a call to those who sleep."""
    b = PoolBuilder(module, "publish", (("participants", I64),))
    b.set("word", b.or_(_next_sequence(b), b.args["participants"]))
    with b.if_then(b.icmp("ne", b.get("sleepers"), i64(0))):
        _notify(b, "wake")
    b.finish()


def _emit_next_word(module: Module) -> None:
    """`next_word(i64 last) -> i64`: waits until `word` is not `last`."""
    b = PoolBuilder(module, "next_word", (("last", I64),), I64)
    last = b.args["last"]
    seen = b.call("poll", I64, at("word"), last, i64(0), b.get("spin_limit", "monotonic"))
    b.return_if(b.icmp("ne", seen, i64(0)), b.get("word", "acquire"))
    b.system("lock", at("mutex"))
    b.fetch_add("sleepers", 1)
    _sleep_while(b, "word", "eq", last, "wake")
    b.fetch_add("sleepers", -1)
    b.system("unlock", at("mutex"))
    b.finish(b.get("word", "acquire"))


def _emit_enter(module: Module) -> None:
    """`enter(i64 sequence) -> i64`: counts a worker in; 0 if the region is closed or another one. `sequence` is shifted as in `word`.

    With the same sequence number the exclusive or leaves the count and CLOSED, with another one more than both.
    """
    b = PoolBuilder(module, "enter", (("sequence", I64),), I64)
    with b.loop(0, FOREVER):
        entry = b.get("entry", "acquire")
        b.return_if(b.icmp("uge", b.xor(entry, b.args["sequence"]), i64(CLOSED)), i64(0))
        b.return_if(b.compare_exchange(at("entry"), entry, b.add(entry, i64(1)), "seq_cst", "acquire"), i64(1))
    b.finish(i64(0))


def _leave(b: PoolBuilder) -> None:
    """Counts a worker out, and wakes the holder if it sleeps until the last one is.

    The holder may have seen that by itself, and wait in its next region when `waiting` is read: then it is woken too
    early, looks at `entry`, and sleeps on.
    """
    before = b.and_(b.fetch_add("entry", -1), i64(_COUNT))
    was_last = b.icmp("eq", before, i64(CLOSED + 1))
    with b.if_then(b.and_(was_last, b.icmp("ne", b.get("waiting"), i64(0)))):
        _notify(b, "done")


# -- workers ---------------------------------------------------------------------------------------------------
def _emit_worker(module: Module) -> None:
    """`worker(ptr index) -> ptr`: the life of a thread, as pthread_create wants it; the pointer is the index itself."""
    b = PoolBuilder(module, "worker", (("argument", PTR),), PTR)
    index = b.raw("ptrtoint ptr %argument to i64", I64)
    last, participants = b.alloca(I64), b.alloca(I64)
    b.store(b.get("first_word", "monotonic"), last)

    def told_to_go_on() -> Val:
        word = b.call("next_word", I64, b.load(last, I64))
        b.store(word, last)
        count = b.and_(word, i64(_COUNT))
        b.store(count, participants)
        return b.icmp("ne", count, i64(0))

    def work() -> None:
        count = b.load(participants, I64)
        with b.if_then(b.icmp("slt", index, count)):
            sequence = b.and_(b.load(last, I64), i64(~_COUNT))
            with b.if_then(b.icmp("ne", b.call("enter", I64, sequence), i64(0))):
                b.take_modes()
                b.call("take_part", VOID, index, count)
                _leave(b)

    b.while_loop(told_to_go_on, work)
    b.finish(const(0, PTR))


def _emit_reshape(module: Module) -> None:
    """`reshape(i64 size)`, for the holder: ends all workers, starts size - 1, or as many as it can."""
    b = PoolBuilder(module, "reshape", (("size", I64),))
    size, started = b.args["size"], b.get("started", "monotonic")
    with b.if_then(b.icmp("sgt", started, i64(1))):
        _end_workers(b, started)
    b.set("started", i64(1), "monotonic")
    # after the word that ends workers, which would end the new ones, too
    b.set("first_word", b.get("word", "monotonic"), "monotonic")
    with b.if_then(b.icmp("sgt", size, i64(1))):
        _start_workers(b, size)
    b.finish()


def _end_workers(b: PoolBuilder, started: Val) -> None:
    b.call("publish", VOID, i64(0))
    with b.loop(1, started) as loop:
        handle = b.load(b.gep(at("handles"), loop.index, I64), I64)
        b.system("join", handle, const(0, PTR))


def _start_workers(b: PoolBuilder, size: Val) -> None:
    """Raises `started` to `size`, or less if the system refuses. Workers inherit the signal mask under which they are created."""
    set_mask = const(getattr(signal, "SIG_SETMASK", 0), I32)  # Windows has none, and never comes here
    b.system("mask", set_mask, at("blocked"), at("saved"))
    failed = b.alloca(I32)
    b.store(const(0, I32), failed)

    def wanting() -> Val:
        fewer = b.icmp("slt", b.get("started", "monotonic"), size)
        return b.and_(fewer, b.icmp("eq", b.load(failed, I32), const(0, I32)))

    def start() -> None:
        index = b.get("started", "monotonic")
        argument = b.raw(f"inttoptr {index} to ptr", PTR)
        handle = b.gep(at("handles"), index, I64)
        b.store(b.system("create", handle, at("attributes"), Val("@worker", PTR), argument), failed)
        with b.if_then(b.icmp("eq", b.load(failed, I32), const(0, I32))):
            b.set("started", b.add(index, i64(1)), "monotonic")

    b.while_loop(wanting, start)
    b.system("mask", set_mask, at("saved"), const(0, PTR))


# -- the holder ------------------------------------------------------------------------------------------------
def _try_hold(b: PoolBuilder) -> Val:
    """An i1: whether the pool was free and is now held."""
    return b.compare_exchange(at("busy"), i64(0), i64(1), "seq_cst", "monotonic")


def _let_go(b: PoolBuilder) -> None:
    """Release: the next holder sees what this one wrote without order."""
    b.set("busy", i64(0), "release")


def _emit_quiesce(module: Module) -> None:
    """`quiesce() -> i64`: ends all workers and stays the holder, until `release()`; 0 if it was busy."""
    b = PoolBuilder(module, "quiesce", (), I64, internal=False)
    b.return_if(b.not_(_try_hold(b)), i64(0))
    b.call("reshape", VOID, i64(1))
    b.set("shaped", i64(0))
    b.finish(i64(1))


def _emit_release(module: Module) -> None:
    """`release()`, see `quiesce`."""
    b = PoolBuilder(module, "release", (), internal=False)
    _let_go(b)
    b.finish()


def _emit_try_region(module: Module) -> None:
    """`try_region(ptr kernel, ptr context, i64 blocks, i64 way) -> i64`: runs them on the pool; 0 if it cannot, nothing done. `way`: _TEAM if a team does
    it, of as many threads as there are blocks at most; _ASKING if the kernel asks for blocks.
    """
    b = PoolBuilder(module, "try_region", (*_REGION_PARAMETERS, ("way", I64)), I64)
    blocks, wanted = b.args["blocks"], b.get("wanted", "monotonic")
    b.return_if(b.icmp("slt", blocks, i64(2)), i64(0))
    # a pool of one that has no workers to end; whoever resizes it meanwhile does so for the next region
    single = b.and_(b.icmp("eq", wanted, i64(1)), b.icmp("eq", b.get("shaped", "monotonic"), i64(1)))
    b.return_if(single, i64(0))
    # a look first: an exchange that fails would still take the cache line away from others
    b.return_if(b.icmp("ne", b.get("busy", "monotonic"), i64(0)), i64(0))
    b.return_if(b.not_(_try_hold(b)), i64(0))
    with b.if_then(b.icmp("ne", wanted, b.get("shaped", "monotonic"))):
        b.call("reshape", VOID, wanted)
        b.set("shaped", wanted, "monotonic")
    started = b.get("started", "monotonic")
    alone = b.icmp("eq", started, i64(1))  # no worker is wanted, or the system has started none
    with b.if_then(alone):
        _let_go(b)
    b.return_if(alone, i64(0))
    participants, by_team = b.binary("smin", started, blocks), b.icmp("eq", b.args["way"], i64(_TEAM))
    with b.if_then(by_team):
        open_team(b, b.args["kernel"])
    b.store(b.cast(b.icmp("eq", b.args["way"], i64(_ASKING)), I64, signed=False), at("asks"))
    _run_region(b, participants, b.select(by_team, ATTEND, b.args["kernel"]), b.select(by_team, participants, blocks))
    _let_go(b)
    b.finish(i64(1))


def _run_region(b: PoolBuilder, participants: Val, kernel: Val, blocks: Val) -> None:
    """Announces a region, takes part in it, and comes back when nobody is inside.

    What the region is stands in plain memory: it is written while the entry is closed, before `entry` and `word`, and read after them.
    `entry` comes before `word`, since a worker that saw the word and found the region not open yet would not look again.
    """
    emit_shares(b, participants, blocks)
    b.store(kernel, at("kernel"))
    b.store(b.args["context"], at("context"))
    b.save_modes()
    sequence = _next_sequence(b)
    closed = b.or_(sequence, i64(CLOSED))
    b.set("entry", sequence)
    b.call("publish", VOID, participants)
    b.call("take_part", VOID, i64(0), participants)
    some_inside = b.icmp("ne", b.fetch_add("entry", CLOSED), sequence)
    with b.if_then(some_inside):
        done = b.call("poll", I64, at("entry"), closed, i64(1), b.get("spin_limit", "monotonic"))
        with b.if_then(b.icmp("eq", done, i64(0))):
            b.system("lock", at("mutex"))
            b.set("waiting", i64(1))
            _sleep_while(b, "entry", "ne", closed, "done")
            b.set("waiting", i64(0))
            b.system("unlock", at("mutex"))


def _emit_parallel_for(module: Module) -> None:
    """`parallel_for(ptr kernel, ptr context, i64 blocks)`: see threads.py."""
    b = PoolBuilder(module, "parallel_for", _REGION_PARAMETERS, internal=False)
    kernel, context, blocks = b.args.values()
    by_team = b.and_(b.icmp("sge", blocks, i64(-MOST_IN_TEAM)), b.icmp("sle", blocks, i64(-2)))
    with b.if_then(by_team):
        most = b.binary("smin", b.neg(blocks), b.get("processors", "monotonic"))
        b.return_if(b.icmp("ne", b.call("try_region", I64, kernel, context, most, i64(_TEAM)), i64(0)))
        b.call_pointer(kernel, VOID, context, i64(0), i64(1), const(0, PTR))

    def region(way: int, blocks: Val, *asking: Val) -> None:
        b.return_if(b.icmp("slt", blocks, i64(1)))
        b.return_if(b.icmp("ne", b.call("try_region", I64, kernel, context, blocks, i64(way)), i64(0)))
        b.call_pointer(kernel, VOID, context, i64(0), blocks, *asking)

    asks = b.icmp("slt", blocks, i64(ASKING // 2))
    b.if_else(asks, lambda: region(_ASKING, b.sub(blocks, i64(ASKING)), i64(0), const(0, PTR)), lambda: region(_PLAIN, blocks))
    b.finish()


# -- for Python ------------------------------------------------------------------------------------------------
def _emit_state(module: Module) -> None:
    """`state() -> ptr`: where the `PoolState` is."""
    b = PoolBuilder(module, "state", (), PTR, internal=False)
    b.finish(POOL)


def _emit_want(module: Module) -> None:
    """`want(i64 size)`: for the next region."""
    b = PoolBuilder(module, "want", (("size", I64),), internal=False)
    b.set("wanted", b.args["size"])
    b.finish()
