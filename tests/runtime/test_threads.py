"""The pool of native workers: every block once, one region at a time, and no harm from threads, forks, resizing or exit."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import platform
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphcell.codegen.llvm import target
from graphcell.codegen.llvm.text import I32, I64, PTR, VOID, FunctionBuilder, Module, Val, i64
from graphcell.errors import ArgumentTypeError, ArgumentValueError
from graphcell.runtime import support, threads
from graphcell.runtime.cache import DIRECTORY_VARIABLE

pytestmark = pytest.mark.skipif(os.name != "posix", reason="without pthreads the pool has one thread")
ROOT = Path(__file__).resolve().parents[2]
KERNEL = (("context", PTR), ("begin", I64), ("end", I64))


def kernels_text() -> str:
    """Kernels whose context is an array of i64.

    count: adds 1 to [i] for each i of the range. ranges: writes end to [2 * begin] and the thread's id to [2
    * begin + 1]. nest: runs `ranges` over 6 blocks by the parallel_for at [0], at 8 + 12 * begin. rendezvous:
    the range that begins at 0 raises [1] and waits until [0] is set; dawdle: all ranges but the first sleep
    20 ms, then set [begin]. meet: adds the number of its blocks to [0] and writes the thread's id to [2 + begin], then
    waits until [0] is at least [1]. held: as `count`, from [3] on, and adds the number to [1]; but on other threads than [0] waits
    first until [1] plus its own blocks is [2]. extent: adds the number of its blocks to [0].
    """
    module = Module()
    module.declare("pthread_self", I64, ())
    module.declare("usleep", I32, (I32,))

    b = FunctionBuilder(module, "count", KERNEL, internal=False)
    with b.loop(b.args["begin"], b.args["end"]) as loop:
        b.effect(f"atomicrmw add ptr {b.gep(b.args['context'], loop.index, I64).text}, i64 1 monotonic")
    b.finish()

    b = FunctionBuilder(module, "ranges", KERNEL, internal=False)
    at = b.gep(b.args["context"], b.mul(b.args["begin"], i64(2)), I64)
    b.store(b.args["end"], at)
    b.store(b.call("pthread_self", I64), b.gep(at, 1, I64))
    b.finish()

    b = FunctionBuilder(module, "nest", KERNEL, internal=False)
    context = b.args["context"]
    with b.loop(b.args["begin"], b.args["end"]) as loop:
        at = b.gep(context, b.add(b.mul(loop.index, i64(12)), i64(8)), I64)
        b.call_pointer(b.load(context, PTR), VOID, Val("@ranges", PTR), at, i64(6))
    b.finish()

    b = FunctionBuilder(module, "rendezvous", KERNEL, internal=False)
    context = b.args["context"]
    with b.if_then(b.icmp("eq", b.args["begin"], i64(0))):
        b.effect(f"store atomic i64 1, ptr {b.gep(context, 1, I64).text} seq_cst, align 8")
        b.while_loop(
            lambda: b.icmp("eq", b.raw(f"load atomic i64, ptr {context.text} seq_cst, align 8", I64), i64(0)),
            lambda: b.call("usleep", I32, Val("100", I32)),
        )
    b.finish()

    def wait_until(b: FunctionBuilder, address: Val, least: Val) -> None:
        """At most some minutes, so that a pool that is wrong fails its test."""
        patience = b.alloca(I64)
        b.store(i64(2_000_000), patience)

        def waiting() -> Val:
            short = b.icmp("slt", b.raw(f"load atomic i64, ptr {address.text} seq_cst, align 8", I64), least)
            return b.and_(short, b.icmp("sgt", b.load(patience, I64), i64(0)))

        def wait() -> None:
            b.call("usleep", I32, Val("100", I32))
            b.store(b.sub(b.load(patience, I64), i64(1)), patience)

        b.while_loop(waiting, wait)

    def add(b: FunctionBuilder, address: Val, amount: Val) -> None:
        b.effect(f"atomicrmw add ptr {address.text}, {amount} seq_cst, align 8")

    b = FunctionBuilder(module, "meet", KERNEL, internal=False)
    context, begin = b.args["context"], b.args["begin"]
    b.store(b.call("pthread_self", I64), b.gep(context, b.add(begin, i64(2)), I64))
    add(b, context, b.sub(b.args["end"], begin))
    wait_until(b, context, b.load(b.gep(context, 1, I64), I64))
    b.finish()

    b = FunctionBuilder(module, "held", KERNEL, internal=False)
    context, own = b.args["context"], b.sub(b.args["end"], b.args["begin"])
    done = b.gep(context, 1, I64)
    with b.if_then(b.icmp("ne", b.call("pthread_self", I64), b.load(context, I64))):
        others = b.sub(b.load(b.gep(context, 2, I64), I64), own)
        wait_until(b, done, others)
        b.return_if(b.icmp("slt", b.load(done, I64), others))
    with b.loop(b.args["begin"], b.args["end"]) as loop:
        add(b, b.gep(context, b.add(loop.index, i64(3)), I64), i64(1))
    add(b, done, own)
    b.finish()

    b = FunctionBuilder(module, "extent", KERNEL, internal=False)
    add(b, b.args["context"], b.sub(b.args["end"], b.args["begin"]))
    b.finish()

    b = FunctionBuilder(module, "dawdle", KERNEL, internal=False)
    with b.if_then(b.icmp("ne", b.args["begin"], i64(0))):
        b.call("usleep", I32, Val("20000", I32))
    b.store(i64(1), b.gep(b.args["context"], b.args["begin"], I64))
    b.finish()

    for name, answer in (("refuse", "11"), ("pretend", "0")):
        b = FunctionBuilder(module, name, tuple((argument, PTR) for argument in "abcd"), I32, internal=False)
        b.finish(Val(answer, I32))
    return str(module)


class Kernels:
    def __init__(self) -> None:
        self.code = target.load_object(target.compile_object(kernels_text(), target.host()))

    def address(self, name: str) -> int:
        return int(self.code.address(name))


@pytest.fixture(scope="module", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(DIRECTORY_VARIABLE, str(tmp_path_factory.mktemp("objects")))
        yield


@pytest.fixture(scope="module")
def kernels() -> Kernels:
    return Kernels()


@pytest.fixture
def pool() -> Iterator[threads.Pool]:
    found = threads.pool()
    before = found.threads
    yield found
    found.resize(before)


def bind(pool: threads.Pool) -> Callable[[int, int, int], None]:
    """parallel_for as a Python function of three integers; ctypes lets go of the GIL while it runs."""
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(pool.address)


def ranges_of(pool: threads.Pool, kernels: Kernels, blocks: int) -> list[tuple[int, int, int]]:
    """(begin, end, thread id) of the ranges of one region."""
    record = np.zeros((max(blocks, 1), 2), np.int64)
    bind(pool)(kernels.address("ranges"), record.ctypes.data, blocks)
    return [(int(begin), int(end), int(thread)) for begin, (end, thread) in enumerate(record) if end]


def team_of(pool: threads.Pool, kernels: Kernels, size: int) -> set[int]:
    """The ids of the threads of a region of `size` blocks, each of which waits until all have begun: so many threads take part."""
    record = np.zeros(2 + size, np.int64)
    record[1] = size
    bind(pool)(kernels.address("meet"), record.ctypes.data, size)
    assert record[0] == size
    return set(record[2:].tolist())


# -- one caller ----------------------------------------------------------------------------------------------
@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2, 3, 7])
@pytest.mark.parametrize("blocks", [1, 2, 3, 6, 7, 8, 100, 12345])
def test_every_block_runs_exactly_once(pool: threads.Pool, kernels: Kernels, size: int, blocks: int) -> None:
    pool.resize(size)
    counts = np.zeros(blocks + 2, np.int64)
    run = bind(pool)
    for _ in range(20):
        run(kernels.address("count"), counts.ctypes.data + 8, blocks)
    assert counts.tolist() == [0] + [20] * blocks + [0]


@pytest.mark.parametrize("blocks", [0, -1, -(2**63)])
def test_no_blocks_no_call(pool: threads.Pool, blocks: int) -> None:
    bind(pool)(0, 0, blocks)  # calling the null kernel would crash


@pytest.mark.parametrize(("size", "blocks"), [(1, 9), (2, 9), (4, 3), (4, 4), (5, 23), (8, 64), (3, 10_007)])
def test_ranges_are_contiguous(pool: threads.Pool, kernels: Kernels, size: int, blocks: int) -> None:
    pool.resize(size)
    for _ in range(20):
        found = ranges_of(pool, kernels, blocks)
        assert [begin for begin, _, _ in found] == [0, *(end for _, end, _ in found[:-1])]
        assert found[-1][1] == blocks
        assert len(found) <= 40 * size  # many small blocks are not asked for one by one
        assert len({thread for *_, thread in found}) <= min(size, blocks)


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_as_many_threads_as_the_pool_has_take_part(pool: threads.Pool, kernels: Kernels, size: int) -> None:
    pool.resize(size)
    for _ in range(20):
        team = team_of(pool, kernels, size)
        assert len(team) == size and threading.get_ident() in team


def test_the_largest_number_of_blocks(pool: threads.Pool, kernels: Kernels) -> None:
    for size in (1, 2, 3):
        pool.resize(size)
        total = np.zeros(1, np.int64)
        bind(pool)(kernels.address("extent"), total.ctypes.data, 2**63 - 1)
        assert total.tolist() == [2**63 - 1]


@pytest.mark.parametrize("blocks", [2, 3, 32, 5000])
def test_others_do_what_is_left_to_a_thread_that_is_held_up(pool: threads.Pool, kernels: Kernels, blocks: int) -> None:
    """The worker waits in its first range until all other blocks are done, so the caller must do the rest of its share."""
    pool.resize(2)
    for _ in range(5):
        held = np.zeros(3 + blocks, np.int64)
        held[0], held[2] = threading.get_ident(), blocks
        bind(pool)(kernels.address("held"), held.ctypes.data, blocks)
        assert held[1] == blocks and (held[3:] == 1).all()


def test_workers_that_do_not_come_are_not_waited_for(pool: threads.Pool, kernels: Kernels) -> None:
    """pthread_create says yes, but nobody is there: the caller does it all."""
    pool.resize(1)
    ranges_of(pool, kernels, 2)
    create, pool._state.create = pool._state.create, kernels.address("pretend")
    pool.resize(4)
    try:
        for blocks in (2, 3, 4, 64, 1000):
            counts = np.zeros(blocks, np.int64)
            bind(pool)(kernels.address("count"), counts.ctypes.data, blocks)
            assert (counts == 1).all()
        assert pool.threads == 4
    finally:
        pool._state.create = create
        pool._state.started, pool._state.shaped = 1, 0  # there is nobody to join
    assert len(team_of(pool, kernels, 4)) == 4


def test_a_nested_region_runs_on_the_thread_that_asked(pool: threads.Pool, kernels: Kernels) -> None:
    pool.resize(3)
    context = np.zeros(8 + 12 * 6, np.int64)
    context[0] = pool.address
    bind(pool)(kernels.address("nest"), context.ctypes.data, 6)
    inner = context[8:].reshape(6, 6, 2)
    assert (inner[:, 0, 0] == 6).all() and not inner[:, 1:].any()


def test_the_caller_waits_for_a_slow_worker(pool: threads.Pool, kernels: Kernels) -> None:
    """20 ms is far beyond the polling, so the caller has to be woken."""
    pool.resize(3)
    for _ in range(5):
        done = np.zeros(3, np.int64)
        bind(pool)(kernels.address("dawdle"), done.ctypes.data, 3)
        assert done.tolist() == [1, 1, 1]


# -- sleeping ------------------------------------------------------------------------------------------------
def other_threads() -> dict[str, str]:
    """State letters of the process's threads but the caller, by their numbers (Linux)."""
    me, found = str(threading.get_native_id()), {}
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # it may end meanwhile
            found[task.name] = (task / "stat").read_text().rpartition(")")[2].split()[0]
    return {number: state for number, state in found.items() if number != me}


def started_since(before: dict[str, str]) -> list[str]:
    """State letters of the threads that there are since then; some that there were, of other tests, may end at any time."""
    return [state for number, state in other_threads().items() if number not in before]


def becomes(condition: Callable[[], bool]) -> bool:
    """Whether something is so at some moment of two minutes: the system may take its time to say what a thread does."""
    deadline = time.monotonic() + 120
    while not (so := condition()) and time.monotonic() < deadline:
        time.sleep(0.001)
    return so


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_idle_workers_sleep_and_wake(pool: threads.Pool, kernels: Kernels) -> None:
    pool.resize(1)
    ranges_of(pool, kernels, 2)  # ends the workers of earlier tests
    before = other_threads()
    pool.resize(4)
    for _ in range(10):
        assert len(team_of(pool, kernels, 4)) == 4
        assert becomes(lambda: pool._state.sleepers == 3), "workers keep polling"
    assert becomes(lambda: started_since(before) == ["S"] * 3)


@pytest.mark.parametrize("polls", [0, 1, 3, 10, 30])
def test_falling_asleep_while_being_called(pool: threads.Pool, kernels: Kernels, polls: int) -> None:
    """With hardly any polling both sides go to sleep all the time, at whatever moment the other one notifies."""
    pool.resize(3)
    run, count = bind(pool), kernels.address("count")
    usual, pool._state.spin_limit = pool._state.spin_limit, polls

    def work(k: int) -> None:
        counts = np.zeros(3, np.int64)
        for _ in range(2000):
            run(count, counts.ctypes.data, 3)
        assert (counts == 2000).all()

    try:
        in_threads(2, work)
    finally:
        pool._state.spin_limit = usual


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_workers_leave_signals_to_python(pool: threads.Pool, kernels: Kernels) -> None:
    pool.resize(1)
    ranges_of(pool, kernels, 2)  # ends the workers of earlier tests
    before = {task.name for task in Path("/proc/self/task").iterdir()}
    pool.resize(4)
    team_of(pool, kernels, 4)
    mine = signal_mask("self")
    workers = {task.name for task in Path("/proc/self/task").iterdir()} - before
    assert workers
    for worker in workers:
        blocked = signal_mask(worker)
        # HUP INT USR1 ALRM TERM CHLD
        assert all(blocked >> (number - 1) & 1 for number in (1, 2, 10, 14, 15, 17))
        assert not any(blocked >> (number - 1) & 1 for number in (4, 7, 8, 11))  # ILL BUS FPE SEGV
    assert signal_mask("self") == mine and not mine >> 1 & 1


def signal_mask(thread: str) -> int:
    thread = str(threading.get_native_id()) if thread == "self" else thread
    lines = Path(f"/proc/self/task/{thread}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("SigBlk")), 16)


# -- many callers --------------------------------------------------------------------------------------------
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


def test_many_python_threads_at_once(pool: threads.Pool, kernels: Kernels) -> None:
    pool.resize(3)
    run, count = bind(pool), kernels.address("count")

    def work(k: int) -> None:
        counts = np.zeros(50 + k, np.int64)
        for _ in range(1500):
            run(count, counts.ctypes.data, counts.size)
        assert (counts == 1500).all()

    in_threads(6, work)


def test_a_caller_that_finds_the_pool_busy_runs_alone(pool: threads.Pool, kernels: Kernels) -> None:
    pool.resize(2)
    meeting = np.zeros(2, np.int64)
    holder = threading.Thread(target=bind(pool), args=(kernels.address("rendezvous"), meeting.ctypes.data, 2))
    holder.start()
    while not meeting[1]:
        time.sleep(0.001)
    try:
        assert ranges_of(pool, kernels, 10) == [(0, 10, threading.get_ident())]
    finally:
        meeting[0] = 1
        holder.join(120)
    assert not holder.is_alive()
    assert len(team_of(pool, kernels, 2)) == 2


# -- resizing ------------------------------------------------------------------------------------------------
def test_resizing_between_regions(pool: threads.Pool, kernels: Kernels) -> None:
    for size in (2, 5, 1, 3, 3, 8, 1, 2):
        pool.resize(size)
        assert pool.threads == size
        assert len(team_of(pool, kernels, size)) == size
        assert pool.threads == size


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_shrinking_ends_workers(pool: threads.Pool, kernels: Kernels) -> None:
    pool.resize(1)
    ranges_of(pool, kernels, 2)
    before = other_threads()
    pool.resize(9)
    ranges_of(pool, kernels, 9)
    assert len(started_since(before)) == 8
    pool.resize(1)
    ranges_of(pool, kernels, 2)
    assert becomes(lambda: not started_since(before))


def test_resizing_while_others_run(pool: threads.Pool, kernels: Kernels) -> None:
    run, count = bind(pool), kernels.address("count")
    stop = threading.Event()

    def work(k: int) -> None:
        if k == 0:
            end = time.monotonic() + 30  # on a busy machine a turn takes long
            for turn in itertools.takewhile(lambda _: time.monotonic() < end, range(300)):
                pool.resize(1 + turn * 7 % 5)
                time.sleep(0.0005)
            stop.set()
            return
        regions, counts = 0, np.zeros(40, np.int64)
        while not stop.is_set():
            run(count, counts.ctypes.data, 40)
            regions += 1
        assert (counts == regions).all()

    in_threads(4, work)


def test_the_system_refuses_more_threads(pool: threads.Pool, kernels: Kernels) -> None:
    """With a pthread_create that gives EAGAIN the caller works alone and says so; afterwards all is as before."""
    create = pool._state.create
    pool.resize(4)
    pool._state.shaped = 0
    pool._state.create = kernels.address("refuse")
    try:
        assert ranges_of(pool, kernels, 8) == [(0, 8, threading.get_ident())]
        assert pool.threads == 1
    finally:
        pool._state.create = create
    pool.resize(3)
    assert len(team_of(pool, kernels, 3)) == 3


@pytest.mark.parametrize("size", [0, -1, 1025, 2**70])
def test_sizes_out_of_range(pool: threads.Pool, size: int) -> None:
    with pytest.raises(ArgumentValueError, match="from 1 to 1024"):
        pool.resize(size)


@pytest.mark.parametrize("size", [2.0, "2", None, True])
def test_sizes_that_are_no_int(pool: threads.Pool, size: Any) -> None:
    with pytest.raises(ArgumentTypeError, match="must be an int"):
        pool.resize(size)


def test_default_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(threads.SIZE_VARIABLE, raising=False)
    if hasattr(os, "sched_getaffinity"):
        assert threads.default_size() == len(os.sched_getaffinity(0))
        assert threads.default_size(0) == threads.default_size()
    assert threads.default_size(5) == 5
    with pytest.raises(ArgumentValueError, match="from 1 to 1024"):
        threads.default_size(-1)
    monkeypatch.setenv(threads.SIZE_VARIABLE, "3")
    assert threads.default_size() == threads.default_size(5) == 3
    for wrong in ("0", "-1", "two", "1.5", "99999", "²"):
        monkeypatch.setenv(threads.SIZE_VARIABLE, wrong)
        with pytest.raises(ArgumentValueError, match=threads.SIZE_VARIABLE):
            threads.default_size()


def test_there_is_one_pool() -> None:
    assert threads.pool() is threads.pool(1)


@pytest.mark.parametrize("machine", ["x86_64", "aarch64", "riscv64"])
def test_the_text_parses_for_each_processor(monkeypatch: pytest.MonkeyPatch, machine: str) -> None:
    import llvmlite.binding as llvm

    monkeypatch.setattr(platform, "machine", lambda: machine)
    module = llvm.parse_assembly(threads.assembly(), llvm.create_context())
    module.verify()
    assert "worker" in {function.name for function in module.functions}


# -- processes -----------------------------------------------------------------------------------------------
PRELUDE = f"""
import ctypes, os, signal, sys, threading, time
sys.path[:0] = [{str(ROOT)!r}, {str(Path(__file__).parent)!r}]
import numpy as np
import test_threads as tests
from graphcell.runtime import threads
kernels, pool = tests.Kernels(), threads.pool()
run, count = tests.bind(pool), kernels.address("count")
def check(size, turns=20):
    pool.resize(size)
    counts = np.zeros(33, np.int64)
    for _ in range(turns):
        run(count, counts.ctypes.data, 33)
    assert (counts == turns).all(), counts
    assert len(tests.team_of(pool, kernels, size)) == size
def wait_for(child):
    for _ in range(20000):
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            assert os.waitstatus_to_exitcode(status) == 0, status
            return
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    raise SystemExit("the child hangs")
"""


def run_script(body: str, **environment: str) -> str:
    """Runs a script in a fresh interpreter; it must end by itself, with 0 and nothing on stderr."""
    done = subprocess.run([sys.executable, "-W", "error", "-c", PRELUDE + textwrap.dedent(body)], timeout=600,
                          capture_output=True, text=True, env={**os.environ, **environment}, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_both_sides_of_a_fork_go_on() -> None:
    run_script("""
        for turn in range(10):
            check(3)
            child = os.fork()
            if not child:
                check(3); check(2)
                os._exit(0)
            check(3)
            wait_for(child)
    """)


def test_forking_while_other_threads_run_regions() -> None:
    run_script("""
        pool.resize(3)
        stop = threading.Event()
        def busy():
            counts = np.zeros(20, np.int64)
            while not stop.is_set():
                run(count, counts.ctypes.data, 20)
        others = [threading.Thread(target=busy) for _ in range(2)]
        for thread in others: thread.start()
        import warnings; warnings.simplefilter("ignore")  # Python 3.12 warns that threads and fork do not mix
        for turn in range(40):
            child = os.fork()
            if not child:
                check(3)
                os._exit(0)
            wait_for(child)
        stop.set()
        for thread in others: thread.join()
        check(3)
    """)


def test_many_threads_fork_at_once() -> None:
    run_script("""
        pool.resize(2)
        import warnings; warnings.simplefilter("ignore")
        def forks():
            for turn in range(10):
                run(count, np.zeros(8, np.int64).ctypes.data, 8)
                child = os.fork()
                if not child:
                    os._exit(0)
                wait_for(child)
        others = [threading.Thread(target=forks) for _ in range(4)]
        for thread in others: thread.start()
        for thread in others: thread.join()
        check(2)
    """)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_fork_finds_no_workers() -> None:
    """So that neither side has half a pool, and Python 3.12 sees a process with one thread.

    The system lists a thread for a moment after it has been joined, hence the patience.
    """
    run_script("""
        def threads():
            return len(os.listdir("/proc/self/task"))
        check(4)
        assert threads() > 1
        child = os.fork()
        if not child:
            os._exit(0 if threads() == 1 else 1)
        for _ in range(10000):
            if threads() == 1:
                break
            time.sleep(0.01)
        assert threads() == 1
        wait_for(child)
    """)


@pytest.mark.slow
@pytest.mark.parametrize("ending", [
    "pass",
    "time.sleep(0.05)",
    "raise SystemExit(0)",
    "os._exit(0)",
    "sys.stdout.flush(); os.execv(sys.executable, [sys.executable, '-c', ''])",
])
def test_exit_with_workers_polling_or_asleep(ending: str) -> None:
    run_script(f"check(4)\n{ending}")


def test_exit_while_a_daemon_thread_runs_regions() -> None:
    for _ in range(3):
        run_script("""
            pool.resize(3)
            counts = np.zeros(1000, np.int64)
            for kept in (counts, kernels): ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))  # a region may outlive the interpreter
            def busy():
                while True:
                    run(count, counts.ctypes.data, 1000)
            threading.Thread(target=busy, daemon=True).start()
            time.sleep(0.05)
        """)


def test_ctrl_c_reaches_python() -> None:
    out = run_script("""
        check(3)
        time.sleep(0.02)
        try:
            threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
            for _ in range(12000):
                time.sleep(0.01)
        except KeyboardInterrupt:
            print("interrupted")
    """)
    assert out == "interrupted\n"


def test_the_environment_sets_the_size() -> None:
    script = "print(pool.threads, len(tests.team_of(pool, kernels, 5)))"
    assert run_script(script, GRAPHCELL_NUM_THREADS="5") == "5 5\n"


def test_code_from_the_object_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second time the code is read, not compiled; a spoiled entry costs one compilation more."""
    compiled: list[bytes] = []

    def compiling(text: str, processor: target.Target) -> bytes:
        compiled.append(target_compile(text, processor))
        return compiled[-1]

    target_compile = target.compile_object
    monkeypatch.setattr(target, "compile_object", compiling)
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path / "objects"))
    code = [support.object_code("thread pool", threads.assembly()) for _ in range(2)]
    assert code == [compiled[0]] * 2
    assert len(compiled) == 1
    entry, = (tmp_path / "objects").glob("*.gco")
    entry.write_bytes(entry.read_bytes()[:-100])
    code = [support.object_code("thread pool", threads.assembly()) for _ in range(2)]
    assert code == [compiled[0]] * 2
    assert len(compiled) == 2
