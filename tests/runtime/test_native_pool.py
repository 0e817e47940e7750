"""The native code of the pool: one region at a time, workers that sleep and are woken, and no harm from many callers or other sizes."""

from __future__ import annotations

import contextlib
import itertools
import platform
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from graphcell.runtime.native_pool import assembly
from graphcell.runtime.threads import Pool
from tests.runtime.pool_harness import Kernels, bind, in_threads, needs_pthreads, ranges_of, team_of

pytestmark = needs_pthreads


@pytest.mark.parametrize("machine", ["x86_64", "aarch64", "riscv64"])
def test_the_text_parses_for_each_processor(monkeypatch: pytest.MonkeyPatch, machine: str) -> None:
    import llvmlite.binding as llvm

    monkeypatch.setattr(platform, "machine", lambda: machine)
    module = llvm.parse_assembly(assembly(), llvm.create_context())
    module.verify()
    assert "worker" in {function.name for function in module.functions}


# -- one caller -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("blocks", [0, -1, -(2**63)])
def test_no_blocks_no_call(pool: Pool, blocks: int) -> None:
    bind(pool)(0, 0, blocks)  # calling the null kernel would crash


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_as_many_threads_as_the_pool_has_take_part(pool: Pool, kernels: Kernels, size: int) -> None:
    pool.resize(size)
    for _ in range(20):
        team = team_of(pool, kernels, size)
        assert len(team) == size and threading.get_ident() in team


def test_workers_that_do_not_come_are_not_waited_for(pool: Pool, kernels: Kernels) -> None:
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


def test_a_nested_region_runs_on_the_thread_that_asked(pool: Pool, kernels: Kernels) -> None:
    pool.resize(3)
    context = np.zeros(8 + 12 * 6, np.int64)
    context[0] = pool.address
    bind(pool)(kernels.address("nest"), context.ctypes.data, 6)
    inner = context[8:].reshape(6, 6, 2)
    assert (inner[:, 0, 0] == 6).all() and not inner[:, 1:].any()


def test_the_caller_waits_for_a_slow_worker(pool: Pool, kernels: Kernels) -> None:
    """20 ms is far beyond the polling, so the caller has to be woken."""
    pool.resize(3)
    for _ in range(5):
        done = np.zeros(3, np.int64)
        bind(pool)(kernels.address("dawdle"), done.ctypes.data, 3)
        assert done.tolist() == [1, 1, 1]


# -- sleeping -------------------------------------------------------------------------------------------------
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
def test_idle_workers_sleep_and_wake(pool: Pool, kernels: Kernels) -> None:
    pool.resize(1)
    ranges_of(pool, kernels, 2)  # ends the workers of earlier tests
    before = other_threads()
    pool.resize(4)
    for _ in range(10):
        assert len(team_of(pool, kernels, 4)) == 4
        assert becomes(lambda: pool._state.sleepers == 3), "workers keep polling"
    assert becomes(lambda: started_since(before) == ["S"] * 3)


@pytest.mark.parametrize("polls", [0, 1, 3, 10, 30])
def test_falling_asleep_while_being_called(pool: Pool, kernels: Kernels, polls: int) -> None:
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
def test_workers_leave_signals_to_python(pool: Pool, kernels: Kernels) -> None:
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


# -- many callers ---------------------------------------------------------------------------------------------
def test_many_python_threads_at_once(pool: Pool, kernels: Kernels) -> None:
    pool.resize(3)
    run, count = bind(pool), kernels.address("count")

    def work(k: int) -> None:
        counts = np.zeros(50 + k, np.int64)
        for _ in range(1500):
            run(count, counts.ctypes.data, counts.size)
        assert (counts == 1500).all()

    in_threads(6, work)


def test_a_caller_that_finds_the_pool_busy_runs_alone(pool: Pool, kernels: Kernels) -> None:
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


# -- other sizes ----------------------------------------------------------------------------------------------
def test_resizing_between_regions(pool: Pool, kernels: Kernels) -> None:
    for size in (2, 5, 1, 3, 3, 8, 1, 2):
        pool.resize(size)
        assert pool.threads == size
        assert len(team_of(pool, kernels, size)) == size
        assert pool.threads == size


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_shrinking_ends_workers(pool: Pool, kernels: Kernels) -> None:
    pool.resize(1)
    ranges_of(pool, kernels, 2)
    before = other_threads()
    pool.resize(9)
    ranges_of(pool, kernels, 9)
    assert len(started_since(before)) == 8
    pool.resize(1)
    ranges_of(pool, kernels, 2)
    assert becomes(lambda: not started_since(before))


def test_resizing_while_others_run(pool: Pool, kernels: Kernels) -> None:
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


def test_the_system_refuses_more_threads(pool: Pool, kernels: Kernels) -> None:
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
