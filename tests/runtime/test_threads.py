"""The worker pool as Python has it: its size, its code, and processes that fork, end or are interrupted."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from graphcell.codegen.llvm import target
from graphcell.errors import ArgumentTypeError, ArgumentValueError
from graphcell.runtime import support, threads
from graphcell.runtime.cache import DIRECTORY_VARIABLE
from graphcell.runtime.native_pool import assembly
from graphcell.runtime.threads import Pool
from tests.runtime.pool_harness import needs_pthreads

pytestmark = [needs_pthreads, pytest.mark.usefixtures("own_cache")]
ROOT = Path(__file__).resolve().parents[2]


# -- size and code --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("size", [0, -1, 1025, 2**70])
def test_sizes_out_of_range(pool: Pool, size: int) -> None:
    with pytest.raises(ArgumentValueError, match="from 1 to 1024"):
        pool.resize(size)


@pytest.mark.parametrize("size", [2.0, "2", None, True])
def test_sizes_that_are_no_int(pool: Pool, size: Any) -> None:
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


def test_code_from_the_object_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second time the code is read, not compiled; a spoiled entry costs one compilation more."""
    compiled: list[bytes] = []

    def compiling(text: str, processor: target.Target) -> bytes:
        compiled.append(target_compile(text, processor))
        return compiled[-1]

    target_compile = target.compile_object
    monkeypatch.setattr(target, "compile_object", compiling)
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path / "objects"))
    code = [support.object_code("thread pool", assembly()) for _ in range(2)]
    assert code == [compiled[0]] * 2
    assert len(compiled) == 1
    entry, = (tmp_path / "objects").glob("*.gco")
    entry.write_bytes(entry.read_bytes()[:-100])
    code = [support.object_code("thread pool", assembly()) for _ in range(2)]
    assert code == [compiled[0]] * 2
    assert len(compiled) == 2


# -- processes ------------------------------------------------------------------------------------------------
PRELUDE = f"""
import ctypes, os, signal, sys, threading, time
sys.path.insert(0, {str(ROOT)!r})
import numpy as np
from graphcell.runtime import threads
from tests.runtime import pool_harness as harness
kernels, pool = harness.Kernels(), threads.pool()
run, count = harness.bind(pool), kernels.address("count")
def check(size, turns=20):
    pool.resize(size)
    counts = np.zeros(33, np.int64)
    for _ in range(turns):
        run(count, counts.ctypes.data, 33)
    assert (counts == turns).all(), counts
    assert len(harness.team_of(pool, kernels, size)) == size
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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
    script = "print(pool.threads, len(harness.team_of(pool, kernels, 5)))"
    assert run_script(script, GRAPHCELL_NUM_THREADS="5") == "5 5\n"
