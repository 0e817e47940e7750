"""The memory of the worker pool, which Python fills in and emitted code shares, and the emitter that knows it.

Enters: names of fields. Leaves: `PoolState`, the layout for Python (threads.py); `PoolBuilder`, for the code that divides a
region's blocks (work_sharing.py) and the code that runs regions (native_pool.py). Refuses nothing.
"""

from __future__ import annotations

import ctypes
import os
import platform

from graphcell.codegen.llvm.text import I32, I64, PTR, VOID, FunctionBuilder, Module, Val, const, i64
from graphcell.codegen.llvm.underflow import save_modes, set_modes

MAX_THREADS = 1024 if os.name == "posix" else 1
SYSTEM_FUNCTIONS = {
    "create": "pthread_create",
    "join": "pthread_join",
    "lock": "pthread_mutex_lock",
    "unlock": "pthread_mutex_unlock",
    "sleep": "pthread_cond_wait",
    "broadcast": "pthread_cond_broadcast",
    "mask": "pthread_sigmask",
    "yield_": "sched_yield",
}
"""The process's own functions, by the fields that hold their addresses."""
_X86 = ("x86_64", "amd64")
FOREVER = i64(1 << 62)  # turns of a loop that ends by a return
_SLOT_WORDS = 8  # from one slot to the next: a cache line
MOST_IN_TEAM, TURN_WORDS = 8, 16  # threads that go side by side, at most; from one's count of turns to the next: two cache lines
_OPAQUE = ctypes.c_byte * 128  # room for any pthread object or signal set: at most 64 bytes on macOS, 128 on Linux


class PoolState(ctypes.Structure):
    """The layout, of a global of the module. What different threads write is 128 bytes apart, as some processors fetch cache
    lines in pairs; the slots, which are many, are 64."""

    _fields_ = [
        ("busy", ctypes.c_int64),  # 1 while somebody holds the pool
        ("_line0", ctypes.c_byte * 120),
        # written by the holder, read by workers; it announces a region: the next nine
        ("word", ctypes.c_int64),
        ("kernel", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
        ("blocks", ctypes.c_int64),
        ("grain", ctypes.c_int64),  # blocks of a unit
        ("units", ctypes.c_int64),  # the last one may have fewer blocks
        ("modes", ctypes.c_int64),  # how the holder computes: rounding, denormal numbers
        ("team_kernel", ctypes.c_void_p),  # what a team runs
        ("asks", ctypes.c_int64),  # 1 if the kernel asks for its blocks itself
        ("_line1", ctypes.c_byte * 56),
        ("entry", ctypes.c_int64),  # the sequence number of the region, the workers inside, CLOSED
        ("_line2", ctypes.c_byte * 120),
        ("sleepers", ctypes.c_int64),  # workers that sleep or are about to
        ("waiting", ctypes.c_int64),  # 1 while the holder sleeps until nobody is inside
        ("_line3", ctypes.c_byte * 112),
        ("attendees", ctypes.c_int64),  # threads that have come for a team, and more once it is closed
        ("team_size", ctypes.c_int64),  # threads of the team; 0 until it is closed
        ("missed", ctypes.c_int64),  # 1 if some did not come to the last team
        ("_line5", ctypes.c_byte * 104),
        ("wanted", ctypes.c_int64),  # the size asked for
        ("shaped", ctypes.c_int64),  # the `wanted` last acted on; 0 makes the next region start workers
        ("started", ctypes.c_int64),  # threads there are, the caller's included
        ("first_word", ctypes.c_int64),  # `word` when the present workers were started
        ("spin_limit", ctypes.c_int64),  # polls before sleeping
        ("processors", ctypes.c_int64),  # that there are for threads: a team of more would wait for those that do not run
        *((name, ctypes.c_void_p) for name in SYSTEM_FUNCTIONS),
        ("_line4", ctypes.c_byte * 16),
        ("mutex", _OPAQUE),
        ("wake", _OPAQUE),  # condition variable: `word` changed
        ("done", _OPAQUE),  # condition variable: nobody is inside
        ("attributes", _OPAQUE),
        ("blocked", _OPAQUE),  # the signals that workers do not take
        ("saved", _OPAQUE),  # those that the thread which starts workers does not take
        ("turns", ctypes.c_int64 * (MOST_IN_TEAM * TURN_WORDS)),  # how many barriers each thread of a team has come to
        ("handles", ctypes.c_uint64 * MAX_THREADS),  # pthread_t by index; index 0, the caller, is unused
        ("slots", ctypes.c_int64 * (MAX_THREADS * _SLOT_WORDS)),  # the units left to each thread: begin and end in a word
    ]


POOL = Val("@pool", PTR)


def add_state(module: Module) -> None:
    """The memory itself: zeros, for Python to fill in."""
    module.add_global("pool", f"internal global [{ctypes.sizeof(PoolState)} x i8] zeroinitializer, align 128")


def at(field: str) -> Val:
    """The address of a field, a constant expression."""
    return Val(f"getelementptr (i8, ptr {POOL.text}, i64 {getattr(PoolState, field).offset})", PTR)


class PoolBuilder(FunctionBuilder):
    """A FunctionBuilder that knows the fields. Words that several threads use are accessed with seq_cst, unless it says otherwise."""

    def get(self, field: str, order: str = "seq_cst") -> Val:
        return self.load_atomic(at(field), I64, order)

    def set(self, field: str, value: Val, order: str = "seq_cst") -> None:
        self.store_atomic(value, at(field), order)

    def fetch_add(self, field: str, amount: int) -> Val:
        """Adds to a field; its value before."""
        return self.add_atomic(at(field), i64(amount), "seq_cst")

    def slot(self, index: Val) -> Val:
        """The address of a thread's slot."""
        return self.gep(at("slots"), self.mul(index, i64(_SLOT_WORDS)), I64)

    def system(self, function: str, *args: Val) -> Val:
        """Calls one of SYSTEM_FUNCTIONS."""
        return self.call_pointer(self.load(at(function), PTR), I32, *args)

    def pause(self) -> None:
        """Tells the processor that this is a spin loop."""
        machine = platform.machine().lower()
        if machine in _X86:
            self.intrinsic("x86.sse2.pause", VOID)
        elif machine in ("aarch64", "arm64"):
            self.intrinsic("aarch64.hint", VOID, const(1, I32))  # YIELD

    def save_modes(self) -> None:
        """Keeps how this thread computes for those that take part in its region. Other processors than x86 have the modes that they began with."""
        if platform.machine().lower() in _X86:
            save_modes(self, at("modes"))

    def take_modes(self) -> None:
        """Has this thread compute as the holder does."""
        if platform.machine().lower() in _X86:
            set_modes(self, at("modes"))
