"""A persistent pool of worker threads that are parked inside native code.

Enters: a size. Leaves: the address of `parallel_for(ptr kernel, ptr context, i64 blocks)`, which generated
code calls through a pointer. It calls `kernel(ptr context, i64 begin, i64 end)` on contiguous ranges that
together are [0, blocks), and returns when all are done. Which thread runs a range is left to the moment, so
what a block computes must not depend on it. Refuses: sizes outside 1…MAX_THREADS.

* One region at a time. A call that finds the pool busy (another Python thread's region, or a nested one) runs
  all its blocks itself.
* Workers start with the first region that wants them, again after a fork, and anew after `resize`. Between
  regions they spin for a bounded time, then sleep. They never touch Python, block all signals but faults, and
  end with the process.
* They sleep on condition variables of pthreads, whose functions come from the process, so Linux and macOS
  share the code. Without pthreads (Windows) the pool has one thread, the caller's.

Who runs what: blocks are counted in units of `grain` blocks, some _UNITS for each thread that takes part.
Each thread has a contiguous share of them in its slot of `slots`, one word that holds both ends; it takes a
part of what is left there at a time, and when that is used up, half of what is left in the slot of another.
So threads on undisturbed processors work each on memory of its own, and one that is slow, or held up by the
system, keeps the others waiting for the ranges that it has begun and no longer.

How a region is announced: `word` is a sequence number shifted left by _WIDTH bits, plus the number of threads
that take part (0: end yourself). A worker compares it with the word it saw last. `entry` holds the same
sequence number while the region may be entered, plus the number of workers inside: a worker enters by adding
1, and whoever comes too late, or finds the next region, does not read a field that the next caller is writing.
The caller works until no slot holds anything, closes the entry, and waits for those inside. Sleeping and
waking is Dekker's pattern with seq_cst: the caller writes `word`, then reads `sleepers`; a worker raises
`sleepers`, then reads `word`; both notify and sleep under the mutex. The same holds between `entry` and
`waiting` when the caller waits for the last worker.

Reference of the division of work: R. D. Blumofe, C. E. Leiserson, "Scheduling multithreaded computations by
work stealing", Journal of the ACM 46(5), 1999.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import signal
import time
from typing import Any

from graphcell.codegen.llvm.text import (
    I1,
    I32,
    I64,
    PTR,
    VOID,
    FunctionBuilder,
    LType,
    Module,
    Val,
    const,
    i64,
)
from graphcell.errors import ArgumentTypeError, ArgumentValueError, ExecutionError
from graphcell.locks import Lock
from graphcell.runtime.support import load_support

SIZE_VARIABLE = "GRAPHCELL_NUM_THREADS"
MAX_THREADS = 1024 if os.name == "posix" else 1
# how long a thread polls before it sleeps; waking a sleeper costs about half of that
_SPIN_NANOSECONDS = 100_000
_WIDTH = 16  # bits of `word` that hold the number of threads; MAX_THREADS must fit, and _CLOSED
_COUNT = (1 << _WIDTH) - 1
_CLOSED = 1 << 15  # what is added to `entry` when no more workers may enter
_UNITS = 16  # of a thread's share, about; a thread takes a quarter of those left to it at a time, at least one
_TAKEN, _STOLEN = 2, 1  # a quarter of the own units, half of another's: shifts
_END_BITS = 32  # bits of a slot that hold the end of the range; those above hold its begin
_SLOT_WORDS = 8  # from one slot to the next: a cache line
# polls between two sched_yield, which let the other side run where cores are fewer than threads
_YIELD_EVERY = 64
_STACK_BYTES = 8 << 20  # as the main thread has on Linux; macOS would give 512 KiB
# room for any pthread object or signal set (at most 64 bytes on macOS, 128 on Linux)
_OPAQUE = ctypes.c_byte * 128
_FUNCTIONS = {
    "create": "pthread_create",
    "join": "pthread_join",
    "lock": "pthread_mutex_lock",
    "unlock": "pthread_mutex_unlock",
    "sleep": "pthread_cond_wait",
    "broadcast": "pthread_cond_broadcast",
    "mask": "pthread_sigmask",
    "yield_": "sched_yield",
}
_PAIR = LType("{ i64, i1 }")  # what cmpxchg gives
_REGION = (("kernel", PTR), ("context", PTR), ("blocks", I64))
_FAULTS = ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGTRAP", "SIGABRT", "SIGSYS")


class _State(ctypes.Structure):
    """The pool's native memory, a global of the generated module. What different threads write is 128 bytes
    apart."""

    _fields_ = [
        ("busy", ctypes.c_int64),  # 1 while somebody holds the pool
        ("_line0", ctypes.c_byte * 120),
        # written by the holder, read by workers; it announces a region: the next five
        ("word", ctypes.c_int64),
        ("kernel", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
        ("blocks", ctypes.c_int64),
        ("grain", ctypes.c_int64),  # blocks of a unit
        ("units", ctypes.c_int64),  # the last one may have fewer blocks
        ("_line1", ctypes.c_byte * 80),
        ("entry", ctypes.c_int64),  # the sequence number of the region, the workers inside, _CLOSED
        ("_line2", ctypes.c_byte * 120),
        ("sleepers", ctypes.c_int64),  # workers that sleep or are about to
        ("waiting", ctypes.c_int64),  # 1 while the holder sleeps until nobody is inside
        ("_line3", ctypes.c_byte * 112),
        ("wanted", ctypes.c_int64),  # the size asked for
        ("shaped", ctypes.c_int64),  # the `wanted` last acted on; 0 makes the next region start workers
        ("started", ctypes.c_int64),  # threads there are, the caller's included
        ("first_word", ctypes.c_int64),  # `word` when the present workers were started
        ("spin_limit", ctypes.c_int64),  # polls before sleeping
        *((name, ctypes.c_void_p) for name in _FUNCTIONS),
        ("_line4", ctypes.c_byte * 24),
        ("mutex", _OPAQUE),
        ("wake", _OPAQUE),  # condition variable: `word` changed
        ("done", _OPAQUE),  # condition variable: nobody is inside
        ("attributes", _OPAQUE),
        ("blocked", _OPAQUE),  # the signals that workers do not take
        ("saved", _OPAQUE),
        ("handles", ctypes.c_uint64 * MAX_THREADS),  # pthread_t by index; index 0, the caller, is unused
        ("slots", ctypes.c_int64 * (MAX_THREADS * _SLOT_WORDS)),  # the units left to each thread: begin and end in a word
    ]


# -- the generated code --------------------------------------------------------------------------------------
def _at(field: str) -> Val:
    """The address of a field, a constant expression."""
    return Val(f"getelementptr (i8, ptr @pool, i64 {getattr(_State, field).offset})", PTR)


def _get(b: FunctionBuilder, field: str, order: str = "seq_cst") -> Val:
    return b.raw(f"load atomic i64, ptr {_at(field).text} {order}, align 8", I64)


def _set(b: FunctionBuilder, field: str, value: Val, order: str = "seq_cst") -> None:
    b.effect(f"store atomic {value}, ptr {_at(field).text} {order}, align 8")


def _add(b: FunctionBuilder, field: str, amount: int) -> Val:
    """Adds to a field and returns what it was."""
    return b.raw(f"atomicrmw add ptr {_at(field).text}, i64 {amount} seq_cst, align 8", I64)


def _posix(b: FunctionBuilder, function: str, *args: Val) -> Val:
    return b.call_pointer(b.load(_at(function), PTR), I32, *args)


def _pause(b: FunctionBuilder) -> None:
    """Tells the processor that this is a spin loop."""
    machine = platform.machine().lower()
    if machine in ("x86_64", "amd64"):
        b.intrinsic("x86.sse2.pause", VOID)
    elif machine in ("aarch64", "arm64"):
        b.intrinsic("aarch64.hint", VOID, const(1, I32))


def _emit_poll(module: Module) -> None:
    """`poll(field, value, equal, limit) -> i64`: 1 once (field == value) == equal, 0 after `limit` looks."""
    params = (("field", PTR), ("value", I64), ("equal", I64), ("limit", I64))
    b = FunctionBuilder(module, "poll", params, I64, internal=False)
    with b.loop(0, b.args["limit"]) as loop:
        now = b.raw("load atomic i64, ptr %field acquire, align 8", I64)
        equal = b.cast(b.icmp("eq", now, b.args["value"]), I64)
        b.return_if(b.icmp("eq", equal, b.args["equal"]), i64(1))
        _pause(b)
        turn = b.and_(loop.index, i64(_YIELD_EVERY - 1))
        with b.if_then(b.icmp("eq", turn, i64(_YIELD_EVERY - 1))):
            _posix(b, "yield_")
    b.finish(i64(0))


def _notify(b: FunctionBuilder, condition: str) -> None:
    _posix(b, "lock", _at("mutex"))
    _posix(b, "broadcast", _at(condition))
    _posix(b, "unlock", _at("mutex"))


def _next_sequence(b: FunctionBuilder) -> Val:
    """The sequence number of the region to come, shifted as in `word`."""
    return b.add(b.and_(_get(b, "word", "monotonic"), i64(~_COUNT)), i64(1 << _WIDTH))


def _emit_publish(module: Module) -> None:
    """`publish(i64 participants)`: a new word, and a call to those who sleep."""
    b = FunctionBuilder(module, "publish", (("participants", I64),))
    _set(b, "word", b.or_(_next_sequence(b), b.args["participants"]))
    with b.if_then(b.icmp("ne", _get(b, "sleepers"), i64(0))):
        _notify(b, "wake")
    b.finish()


def _sleep_while(b: FunctionBuilder, field: str, predicate: str, value: Val, condition: str) -> None:
    """Sleeps on a condition variable as long as `field predicate value`; the mutex is held."""
    wait = functools.partial(_posix, b, "sleep", _at(condition), _at("mutex"))
    b.while_loop(lambda: b.icmp(predicate, _get(b, field), value), wait)


def _emit_next_word(module: Module) -> None:
    """`next_word(i64 last) -> i64`: waits until `word` is not `last`."""
    b = FunctionBuilder(module, "next_word", (("last", I64),), I64)
    last = b.args["last"]
    seen = b.call("poll", I64, _at("word"), last, i64(0), _get(b, "spin_limit", "monotonic"))
    b.return_if(b.icmp("ne", seen, i64(0)), _get(b, "word", "acquire"))
    _posix(b, "lock", _at("mutex"))
    _add(b, "sleepers", 1)
    _sleep_while(b, "word", "eq", last, "wake")
    _add(b, "sleepers", -1)
    _posix(b, "unlock", _at("mutex"))
    b.finish(_get(b, "word", "acquire"))


def _slot(b: FunctionBuilder, index: Val) -> Val:
    return b.gep(_at("slots"), b.mul(index, i64(_SLOT_WORDS)), I64)


def _ends(b: FunctionBuilder, units: Val) -> tuple[Val, Val]:
    return b.shr(units, i64(_END_BITS)), b.and_(units, i64((1 << _END_BITS) - 1))


def _range(b: FunctionBuilder, begin: Val, end: Val) -> Val:
    return b.or_(b.shl(begin, i64(_END_BITS)), end)


def _emit_claim(module: Module, name: str, shift: int, last: bool) -> None:
    """`name(ptr slot) -> i64`: claims the first or last 1 / 2**shift of the units in a slot, at least one; 0 if there are none.

    A slot's word is the whole of its state, so it does no harm if it changes and comes back between two looks.
    """
    b = FunctionBuilder(module, name, (("slot", PTR),), I64)
    with b.loop(0, i64(1 << 62)):
        held = b.raw("load atomic i64, ptr %slot acquire, align 8", I64)
        begin, end = _ends(b, held)
        b.return_if(b.icmp("eq", begin, end), i64(0))
        count = b.shr(b.add(b.sub(end, begin), i64((1 << shift) - 1)), i64(shift))
        middle = b.sub(end, count) if last else b.add(begin, count)
        claimed, left = _range(b, begin, middle), _range(b, middle, end)
        if last:
            claimed, left = left, claimed
        pair = b.raw(f"cmpxchg ptr %slot, {held}, {left} seq_cst acquire, align 8", _PAIR)
        b.return_if(b.raw(f"extractvalue {pair}, 1", I1), claimed)
    b.finish(i64(0))


def _emit_drain(module: Module) -> None:
    """`drain(ptr slot)`: runs the units of a thread's own slot until none is left there."""
    b = FunctionBuilder(module, "drain", (("slot", PTR),))
    claimed = b.alloca(I64)
    kernel, context = b.load(_at("kernel"), PTR), b.load(_at("context"), PTR)
    blocks, grain, units = (b.load(_at(name), I64) for name in ("blocks", "grain", "units"))

    def some_left() -> Val:
        b.store(b.call("take", I64, b.args["slot"]), claimed)
        return b.icmp("ne", b.load(claimed, I64), i64(0))

    def run() -> None:
        begin, end = _ends(b, b.load(claimed, I64))
        last = b.select(b.icmp("eq", end, units), blocks, b.mul(end, grain))
        b.call_pointer(kernel, VOID, context, b.mul(begin, grain), last)

    b.while_loop(some_left, run)
    b.finish()


def _emit_steal(module: Module) -> None:
    """`steal(i64 index, i64 participants) -> i64`: puts units of another thread into the own slot, which is empty; 0 if there are none."""
    b = FunctionBuilder(module, "steal", (("index", I64), ("participants", I64)), I64)
    index, participants = b.args.values()
    with b.loop(1, participants) as loop:
        at = b.add(index, loop.index)
        other = b.select(b.icmp("slt", at, participants), at, b.sub(at, participants))
        claimed = b.call("take_away", I64, _slot(b, other))
        found = b.icmp("ne", claimed, i64(0))
        with b.if_then(found):
            b.effect(f"store atomic {claimed}, ptr {_slot(b, index).text} release, align 8")
        b.return_if(found, i64(1))
    b.finish(i64(0))


def _emit_take_part(module: Module) -> None:
    """`take_part(i64 index, i64 participants)`: runs what is left to this thread, then what others have left."""
    b = FunctionBuilder(module, "take_part", (("index", I64), ("participants", I64)))
    index, participants = b.args.values()
    slot = _slot(b, index)
    b.call("drain", VOID, slot)
    b.while_loop(lambda: b.icmp("ne", b.call("steal", I64, index, participants), i64(0)), lambda: b.call("drain", VOID, slot))
    b.finish()


def _emit_enter(module: Module) -> None:
    """`enter(i64 sequence) -> i64`: counts a worker in; 0 if the region is closed or another one. `sequence` is shifted as in `word`."""
    b = FunctionBuilder(module, "enter", (("sequence", I64),), I64)
    with b.loop(0, i64(1 << 62)):
        entry = _get(b, "entry", "acquire")
        b.return_if(b.icmp("uge", b.xor(entry, b.args["sequence"]), i64(_CLOSED)), i64(0))
        pair = b.raw(f"cmpxchg ptr {_at('entry').text}, {entry}, {b.add(entry, i64(1))} seq_cst acquire, align 8", _PAIR)
        b.return_if(b.raw(f"extractvalue {pair}, 1", I1), i64(1))
    b.finish(i64(0))


def _emit_worker(module: Module) -> None:
    """`worker(ptr index) -> ptr`: the life of a thread."""
    b = FunctionBuilder(module, "worker", (("argument", PTR),), PTR)
    index = b.raw("ptrtoint ptr %argument to i64", I64)
    last, participants = b.alloca(I64), b.alloca(I64)
    b.store(_get(b, "first_word", "monotonic"), last)

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
                b.call("take_part", VOID, index, count)
                before = b.and_(_add(b, "entry", -1), i64(_COUNT))
                was_last = b.icmp("eq", before, i64(_CLOSED + 1))
                with b.if_then(b.and_(was_last, b.icmp("ne", _get(b, "waiting"), i64(0)))):
                    _notify(b, "done")

    b.while_loop(told_to_go_on, work)
    b.finish(const(0, PTR))


def _emit_reshape(module: Module) -> None:
    """`reshape(i64 size)`, for the holder: ends all workers, starts size - 1, or as many as it can."""
    b = FunctionBuilder(module, "reshape", (("size", I64),))
    size, started = b.args["size"], _get(b, "started", "monotonic")
    with b.if_then(b.icmp("sgt", started, i64(1))):
        b.call("publish", VOID, i64(0))
        with b.loop(1, started) as loop:
            handle = b.load(b.gep(_at("handles"), loop.index, I64), I64)
            _posix(b, "join", handle, const(0, PTR))
    _set(b, "started", i64(1), "monotonic")
    _set(b, "first_word", _get(b, "word", "monotonic"), "monotonic")
    with b.if_then(b.icmp("sgt", size, i64(1))):
        set_mask = const(getattr(signal, "SIG_SETMASK", 0), I32)
        _posix(b, "mask", set_mask, _at("blocked"), _at("saved"))
        failed = b.alloca(I32)
        b.store(const(0, I32), failed)

        def wanting() -> Val:
            fewer = b.icmp("slt", _get(b, "started", "monotonic"), size)
            return b.and_(fewer, b.icmp("eq", b.load(failed, I32), const(0, I32)))

        def start() -> None:
            index = _get(b, "started", "monotonic")
            argument = b.raw(f"inttoptr {index} to ptr", PTR)
            slot = b.gep(_at("handles"), index, I64)
            b.store(_posix(b, "create", slot, _at("attributes"), Val("@worker", PTR), argument), failed)
            with b.if_then(b.icmp("eq", b.load(failed, I32), const(0, I32))):
                _set(b, "started", b.add(index, i64(1)), "monotonic")

        b.while_loop(wanting, start)
        _posix(b, "mask", set_mask, _at("saved"), const(0, PTR))
    b.finish()


def _try_hold(b: FunctionBuilder) -> Val:
    """An i1: whether the pool was free and is now held."""
    pair = b.raw(f"cmpxchg ptr {_at('busy').text}, i64 0, i64 1 seq_cst monotonic, align 8", _PAIR)
    return b.raw(f"extractvalue {pair}, 1", I1)


def _emit_quiesce(module: Module) -> None:
    """`quiesce() -> i64`: ends all workers and stays the holder, until `release()`; 0 if it was busy."""
    b = FunctionBuilder(module, "quiesce", (), I64, internal=False)
    b.return_if(b.not_(_try_hold(b)), i64(0))
    b.call("reshape", VOID, i64(1))
    _set(b, "shaped", i64(0))
    b.finish(i64(1))
    b = FunctionBuilder(module, "release", (), internal=False)
    _set(b, "busy", i64(0), "release")
    b.finish()


def _emit_try_region(module: Module) -> None:
    """`try_region(kernel, context, blocks) -> i64`: runs them on the pool; 0 if it cannot, nothing done."""
    b = FunctionBuilder(module, "try_region", _REGION, I64)
    blocks, wanted = b.args["blocks"], _get(b, "wanted", "monotonic")
    b.return_if(b.icmp("slt", blocks, i64(2)), i64(0))
    single = b.and_(b.icmp("eq", wanted, i64(1)), b.icmp("eq", _get(b, "shaped", "monotonic"), i64(1)))
    b.return_if(single, i64(0))
    b.return_if(b.icmp("ne", _get(b, "busy", "monotonic"), i64(0)), i64(0))
    b.return_if(b.not_(_try_hold(b)), i64(0))
    with b.if_then(b.icmp("ne", wanted, _get(b, "shaped", "monotonic"))):
        b.call("reshape", VOID, wanted)
        _set(b, "shaped", wanted, "monotonic")
    started = _get(b, "started", "monotonic")
    alone = b.icmp("eq", started, i64(1))  # the system has started no worker
    with b.if_then(alone):
        _set(b, "busy", i64(0), "release")
    b.return_if(alone, i64(0))
    participants = b.binary("smin", started, blocks)
    _emit_shares(b, participants, blocks)
    b.store(b.args["kernel"], _at("kernel"))
    b.store(b.args["context"], _at("context"))
    sequence = _next_sequence(b)
    closed = b.or_(sequence, i64(_CLOSED))
    _set(b, "entry", sequence)
    b.call("publish", VOID, participants)
    b.call("take_part", VOID, i64(0), participants)
    inside = b.icmp("ne", _add(b, "entry", _CLOSED), sequence)
    with b.if_then(inside):
        done = b.call("poll", I64, _at("entry"), closed, i64(1), _get(b, "spin_limit", "monotonic"))
        with b.if_then(b.icmp("eq", done, i64(0))):
            _posix(b, "lock", _at("mutex"))
            _set(b, "waiting", i64(1))
            _sleep_while(b, "entry", "ne", closed, "done")
            _set(b, "waiting", i64(0))
            _posix(b, "unlock", _at("mutex"))
    _set(b, "busy", i64(0), "release")
    b.finish(i64(1))


def _emit_shares(b: FunctionBuilder, participants: Val, blocks: Val) -> None:
    """Fills the slots: shares as even as units are."""
    grain = b.binary("smax", b.div(blocks, b.mul(participants, i64(_UNITS)), signed=False), i64(1))
    units = b.add(b.div(b.sub(blocks, i64(1)), grain, signed=False), i64(1))
    for name, value in (("blocks", blocks), ("grain", grain), ("units", units)):
        b.store(value, _at(name))
    share, more = b.div(units, participants, signed=False), b.rem(units, participants, signed=False)
    with b.loop(0, participants, carried=(i64(0),), at_least_once=True) as loop:
        (begin,) = loop.carried
        end = b.add(b.add(begin, share), b.cast(b.icmp("slt", loop.index, more), I64, signed=False))
        b.effect(f"store atomic {_range(b, begin, end)}, ptr {_slot(b, loop.index).text} monotonic, align 8")
        loop.carry(end)


def _emit_parallel_for(module: Module) -> None:
    b = FunctionBuilder(module, "parallel_for", _REGION, internal=False)
    kernel, context, blocks = b.args.values()
    b.return_if(b.icmp("slt", blocks, i64(1)))
    b.return_if(b.icmp("ne", b.call("try_region", I64, kernel, context, blocks), i64(0)))
    b.call_pointer(kernel, VOID, context, i64(0), blocks)
    b.finish()


def _emit_access(module: Module) -> None:
    """`state() -> ptr` and `want(i64 size)`, for Python."""
    b = FunctionBuilder(module, "state", (), PTR, internal=False)
    b.finish(Val("@pool", PTR))
    b = FunctionBuilder(module, "want", (("size", I64),), internal=False)
    _set(b, "wanted", b.args["size"])
    b.finish()


def assembly() -> str:
    """The LLVM assembly of the pool."""
    module = Module()
    module.add_global("pool", f"internal global [{ctypes.sizeof(_State)} x i8] zeroinitializer, align 128")
    _emit_claim(module, "take", _TAKEN, last=False)
    _emit_claim(module, "take_away", _STOLEN, last=True)
    for emit in (_emit_poll, _emit_publish, _emit_next_word, _emit_drain, _emit_steal, _emit_take_part, _emit_enter, _emit_worker,
                 _emit_reshape, _emit_quiesce, _emit_try_region, _emit_parallel_for, _emit_access):
        emit(module)
    return str(module)


# -- Python's side -------------------------------------------------------------------------------------------
class Pool:
    """The process's worker threads. There is one, see `pool()`."""

    def __init__(self, threads: int):
        code = load_support("thread pool", assembly())
        self.address: int = code.address("parallel_for")
        self._want = ctypes.CFUNCTYPE(None, ctypes.c_int64)(code.address("want"))
        self._quiesce = ctypes.CFUNCTYPE(ctypes.c_int64)(code.address("quiesce"))
        self._release = ctypes.CFUNCTYPE(None)(code.address("release"))
        state_address = ctypes.CFUNCTYPE(ctypes.c_void_p)(code.address("state"))()
        self._state = _State.from_address(state_address)
        self._held = False
        self._process = ctypes.CDLL(None) if MAX_THREADS > 1 else None
        self._state.started, self._state.entry = 1, _CLOSED
        if MAX_THREADS > 1:
            self._connect()
            self._calibrate(code.address("poll"), state_address + _State.word.offset)
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

    def _connect(self) -> None:
        """Fills in the functions, the thread attributes, the signal mask and the locks."""
        state = self._state
        for field, name in _FUNCTIONS.items():
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

    def _calibrate(self, poll_address: int, word: int) -> None:
        """Turns _SPIN_NANOSECONDS into a number of polls; the best of a few tries, as the machine may be
        busy."""
        poll = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, *[ctypes.c_int64] * 3)(poll_address)
        polls = 4 * _YIELD_EVERY
        best = _SPIN_NANOSECONDS
        for _ in range(5):
            start = time.perf_counter_ns()
            poll(word, self._state.word, 0, polls)
            best = min(best, time.perf_counter_ns() - start)
        self._state.spin_limit = max(_YIELD_EVERY, polls * _SPIN_NANOSECONDS // max(best, 1))

    def _before_fork(self) -> None:
        """Ends the workers, so that neither side inherits half a pool. If a region runs, the child cleans up
        instead."""
        if self._quiesce():
            self._held = True  # never False here: another thread may be forking, too, and hold the pool

    def _after_fork(self) -> None:
        if self._held:
            self._held = False
            self._release()

    def _in_child(self) -> None:
        """The child has one thread: nothing is held, nobody sleeps; its first region starts workers of its
        own."""
        state = self._state
        state.busy = state.sleepers = state.waiting = state.shaped = 0
        state.entry = _CLOSED
        state.started = 1
        self._held = False
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
