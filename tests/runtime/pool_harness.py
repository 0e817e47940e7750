"""What the tests of the worker pool share: native kernels that record or hold up what happens, and regions of them."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable

import numpy as np
import pytest

from graphcell.codegen.llvm import target
from graphcell.codegen.llvm.text import I32, I64, PTR, VOID, FunctionBuilder, Module, Val, i64
from graphcell.runtime.threads import Pool

needs_pthreads = pytest.mark.skipif(os.name != "posix", reason="without pthreads the pool has one thread")
KERNEL = (("context", PTR), ("begin", I64), ("end", I64))


class Kernels:
    """Native kernels by name. The context of each is an array of i64."""

    def __init__(self) -> None:
        module = Module()
        module.declare("pthread_self", I64, ())
        module.declare("usleep", I32, (I32,))
        for emit in (emit_count, emit_extent, emit_ranges, emit_nest, emit_rendezvous, emit_dawdle, emit_meet, emit_held, emit_asking):
            emit(module)
        emit_thread_creation(module)
        self.code = target.load_object(target.compile_object(str(module), target.host()))

    def address(self, name: str) -> int:
        return int(self.code.address(name))


def bind(pool: Pool) -> Callable[[int, int, int], None]:
    """parallel_for as a Python function of three integers; ctypes lets go of the GIL while it runs."""
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(pool.address)


def ranges_of(pool: Pool, kernels: Kernels, blocks: int) -> list[tuple[int, int, int]]:
    """(begin, end, thread id) of the ranges of one region."""
    record = np.zeros((max(blocks, 1), 2), np.int64)
    bind(pool)(kernels.address("ranges"), record.ctypes.data, blocks)
    return [(int(begin), int(end), int(thread)) for begin, (end, thread) in enumerate(record) if end]


def team_of(pool: Pool, kernels: Kernels, size: int) -> set[int]:
    """The ids of the threads of a region of `size` blocks, each of which waits until all have begun: so many threads take part."""
    record = np.zeros(2 + size, np.int64)
    record[1] = size
    bind(pool)(kernels.address("meet"), record.ctypes.data, size)
    assert record[0] == size
    return set(record[2:].tolist())


def in_threads(count: int, work: Callable[[int], None]) -> None:
    """Runs work(k) on `count` Python threads and passes on what they raise."""
    failures: list[BaseException] = []

    def guarded(k: int) -> None:
        try:
            work(k)
        except BaseException as error:
            failures.append(error)

    running = [threading.Thread(target=guarded, args=(k,), daemon=True) for k in range(count)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join(600)
        assert not thread.is_alive(), "a region does not end"
    if failures:
        raise failures[0]


# -- kernels ---------------------------------------------------------------------------------------------------
def begin_kernel(module: Module, name: str) -> FunctionBuilder:
    return FunctionBuilder(module, name, KERNEL, internal=False)


def item(b: FunctionBuilder, index: Val | int) -> Val:
    """The address of context[index]."""
    return b.gep(b.args["context"], index, I64)


def add(b: FunctionBuilder, address: Val, amount: Val) -> None:
    b.add_atomic(address, amount, "seq_cst")


def usleep(b: FunctionBuilder, microseconds: int) -> None:
    b.call("usleep", I32, Val(str(microseconds), I32))


def wait_until(b: FunctionBuilder, address: Val, least: Val) -> None:
    """At most some minutes, so that a pool that is wrong fails its test."""
    patience = b.alloca(I64)
    b.store(i64(2_000_000), patience)

    def waiting() -> Val:
        short = b.icmp("slt", b.load_atomic(address, I64, "seq_cst"), least)
        return b.and_(short, b.icmp("sgt", b.load(patience, I64), i64(0)))

    def wait() -> None:
        usleep(b, 100)
        b.store(b.sub(b.load(patience, I64), i64(1)), patience)

    b.while_loop(waiting, wait)


def emit_count(module: Module) -> None:
    """count: adds 1 to [i] for each i of the range."""
    b = begin_kernel(module, "count")
    with b.loop(b.args["begin"], b.args["end"]) as loop:
        b.add_atomic(item(b, loop.index), i64(1), "monotonic")
    b.finish()


def emit_extent(module: Module) -> None:
    """extent: adds the number of its blocks to [0]."""
    b = begin_kernel(module, "extent")
    add(b, item(b, 0), b.sub(b.args["end"], b.args["begin"]))
    b.finish()


def emit_ranges(module: Module) -> None:
    """ranges: writes end to [2 * begin] and the thread's id to [2 * begin + 1]."""
    b = begin_kernel(module, "ranges")
    at = item(b, b.mul(b.args["begin"], i64(2)))
    b.store(b.args["end"], at)
    b.store(b.call("pthread_self", I64), b.gep(at, 1, I64))
    b.finish()


def emit_nest(module: Module) -> None:
    """nest: for each i of the range runs `ranges` over 6 blocks by the parallel_for at [0], on the context at [8 + 12 * i]."""
    b = begin_kernel(module, "nest")
    with b.loop(b.args["begin"], b.args["end"]) as loop:
        inner = item(b, b.add(b.mul(loop.index, i64(12)), i64(8)))
        b.call_pointer(b.load(item(b, 0), PTR), VOID, Val("@ranges", PTR), inner, i64(6))
    b.finish()


def emit_rendezvous(module: Module) -> None:
    """rendezvous: the range that begins at 0 raises [1] and waits until [0] is set."""
    b = begin_kernel(module, "rendezvous")
    with b.if_then(b.icmp("eq", b.args["begin"], i64(0))):
        b.store_atomic(i64(1), item(b, 1), "seq_cst")
        wait_until(b, item(b, 0), i64(1))
    b.finish()


def emit_dawdle(module: Module) -> None:
    """dawdle: all ranges but the first sleep 20 ms, then set [begin]."""
    b = begin_kernel(module, "dawdle")
    with b.if_then(b.icmp("ne", b.args["begin"], i64(0))):
        usleep(b, 20_000)
    b.store(i64(1), item(b, b.args["begin"]))
    b.finish()


def emit_meet(module: Module) -> None:
    """meet: adds the number of its blocks to [0] and writes the thread's id to [2 + begin], then waits until [0] is at least [1]."""
    b = begin_kernel(module, "meet")
    b.store(b.call("pthread_self", I64), item(b, b.add(b.args["begin"], i64(2))))
    add(b, item(b, 0), b.sub(b.args["end"], b.args["begin"]))
    wait_until(b, item(b, 0), b.load(item(b, 1), I64))
    b.finish()


def emit_held(module: Module) -> None:
    """held: as `count`, from [3] on, and adds the number to [1]; but on other threads than [0] waits first until [1] plus its own
    blocks is [2]."""
    b = begin_kernel(module, "held")
    own, done = b.sub(b.args["end"], b.args["begin"]), item(b, 1)
    with b.if_then(b.icmp("ne", b.call("pthread_self", I64), b.load(item(b, 0), I64))):
        others = b.sub(b.load(item(b, 2), I64), own)
        wait_until(b, done, others)
        b.return_if(b.icmp("slt", b.load(done, I64), others))
    with b.loop(b.args["begin"], b.args["end"]) as loop:
        add(b, item(b, b.add(loop.index, i64(3))), i64(1))
    add(b, done, own)
    b.finish()


def emit_asking(module: Module) -> None:
    """asking, which asks for its blocks: adds 1 to [i + 2] for each, 1 to [0] when it is called, and 1 to [1] each time it was given some."""
    b = FunctionBuilder(module, "asking", (*KERNEL, ("whoami", I64), ("more", PTR)), internal=False)
    add(b, item(b, 0), i64(1))
    taken, more = b.alloca(I64, 2), b.args["more"]
    b.store(b.args["begin"], taken)
    b.store(b.args["end"], b.gep(taken, 1, I64))
    given = b.alloca(I64)
    b.store(i64(1), given)

    def count() -> None:
        add(b, item(b, 1), i64(1))
        with b.loop(b.load(taken, I64), b.load(b.gep(taken, 1, I64), I64)) as loop:
            add(b, item(b, b.add(loop.index, i64(2))), i64(1))
        b.store(i64(0), given)
        with b.if_then(b.icmp("ne", more, Val("null", PTR))):
            b.store(b.call_pointer(more, I64, b.args["whoami"], taken), given)

    b.while_loop(lambda: b.icmp("ne", b.load(given, I64), i64(0)), count)
    b.finish()


def emit_thread_creation(module: Module) -> None:
    """In the place of pthread_create, refuse: gives EAGAIN; pretend: says yes and does nothing."""
    for name, answer in (("refuse", "11"), ("pretend", "0")):
        b = FunctionBuilder(module, name, tuple((argument, PTR) for argument in "abcd"), I32, internal=False)
        b.finish(Val(answer, I32))
