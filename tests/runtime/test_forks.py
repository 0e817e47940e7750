"""Forks while other threads are at work: nothing that these held stays closed in the child, nothing that they began stays half done."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from graphcell.jit import jit
from graphcell.locks import Lock, cached_property, whole
from graphcell.runtime.cache import DIRECTORY_VARIABLE
from tests.runtime.support import t, warm

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")


def in_child(work: Callable[[], bool]) -> bool:
    """Whether `work` was true in a child process, within five minutes."""
    child = os.fork()
    if child == 0:
        done: list[bool] = []
        thread = threading.Thread(target=lambda: done.append(work()), daemon=True)
        thread.start()
        thread.join(300)
        os._exit(0 if done == [True] else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


class Holder:
    """Another thread that is inside of a context manager."""

    def __init__(self, lock: object):
        self._lock, self._inside, self._leave = lock, threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._hold)

    def _hold(self) -> None:
        with self._lock:  # type: ignore[attr-defined]
            self._inside.set()
            self._leave.wait()

    def __enter__(self) -> Holder:
        self._thread.start()
        self._inside.wait()
        return self

    def let_go(self) -> None:
        self._leave.set()

    def __exit__(self, *_: object) -> None:
        self.let_go()
        self._thread.join()


def test_a_lock_that_another_thread_holds_is_open_in_the_child() -> None:
    lock = Lock()

    def enter() -> bool:
        with lock, lock:
            return True

    with Holder(lock):
        assert in_child(enter)
    assert enter()


def test_the_lock_of_the_thread_that_forks_stays_its_own() -> None:
    lock = Lock()
    with lock:
        child = os.fork()
        if child == 0:
            entered = threading.Event()

            def enter() -> None:
                with lock:
                    entered.set()

            other = threading.Thread(target=enter)
            other.start()
            with lock:
                kept = not entered.wait(0.2)
        else:
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    if child == 0:
        other.join(300)
        os._exit(0 if kept and entered.is_set() else 1)


def test_a_function_that_another_thread_compiles_can_be_called_in_the_child() -> None:
    f = jit(lambda x: x * 2)
    warm(f, t(1))
    with Holder(f._lock):
        assert in_child(lambda: f(t(1, 2)).asnumpy().tolist() == [2, 4])
    assert f(t(1, 2)).asnumpy().tolist() == [2, 4]


def test_forks_wait_for_what_must_be_whole() -> None:
    left = threading.Event()
    with Holder(whole) as holder:

        def leave() -> None:
            left.set()
            holder.let_go()

        threading.Timer(0.2, leave).start()
        assert in_child(left.is_set)  # as it was when the process forked


@pytest.mark.slow
def test_first_calls_of_all_threads_and_of_children(tmp_path: Path) -> None:
    """Everything is imported and compiled for the first time while the process forks."""
    script = tmp_path / "script.py"
    script.write_text(
        "import os, signal, threading, graphcell as g\n"
        "f = g.jit(lambda x: x * 2 + 1)\n"
        "x = g.Tensor([1.0, 2.0])\n"
        "def work():\n"
        "    for k in range(3): f(g.Tensor([float(k)] * (k + 1)))\n"
        "threads = [threading.Thread(target=work) for _ in range(2)]\n"
        "for thread in threads: thread.start()\n"
        "codes = []\n"
        "for _ in range(3):\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        signal.alarm(300)\n"
        "        os._exit(0 if f(x).asnumpy().tolist() == [3, 5] and g.grad(f)(x).asnumpy().tolist() == [2, 2] else 1)\n"
        "    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
        "for thread in threads: thread.join()\n"
        "print(codes)\n"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), DIRECTORY_VARIABLE: str(tmp_path / "objects")}
    command = [sys.executable, "-W", "ignore:This process:DeprecationWarning", str(script)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=1200, check=True)
    assert done.stdout == "[0, 0, 0]\n" and not done.stderr


@pytest.mark.slow
def test_a_child_can_look_inside_while_another_thread_loads_llvm_for_that(tmp_path: Path) -> None:
    """The second process finds the program compiled, and loads LLVM when its code is to be shown."""
    script = tmp_path / "script.py"
    script.write_text(
        "import os, signal, sys, threading, graphcell as g\n"
        "f = g.jit(lambda x: x * 2 + 1)\n"
        "f(g.Tensor([1.0, 2.0]))\n"
        "loaded = 'llvmlite.binding' in sys.modules\n"
        "thread = threading.Thread(target=f.llvm)\n"
        "thread.start()\n"
        "while 'llvmlite.binding' not in sys.modules: pass\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    signal.alarm(60)\n"
        "    os._exit(0 if 'define' in f.llvm() else 1)\n"
        "code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])\n"
        "thread.join()\n"
        "print(loaded, code)\n"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), DIRECTORY_VARIABLE: str(tmp_path / "objects"), "GRAPHCELL_VERIFY": ""}
    command = [sys.executable, "-W", "ignore:This process:DeprecationWarning", str(script)]
    runs = [subprocess.run(command, env=env, capture_output=True, text=True, timeout=600, check=True) for _ in range(2)]
    assert [run.stdout for run in runs] == ["True 0\n", "False 0\n"]


_FORK_AMID_AN_IMPORT = """
import os, signal, sys, threading, time
import numpy as np, graphcell as ms
room, f = "graphcell.codegen.llvm.{room}", lambda x: {call}
x = ms.Tensor(np.ones((4, 4), np.float32))
ms.jit(lambda x: x + 1)(x), ms.jit(lambda x: (x * 2).sum())(x)  # the runtime's own code is there
assert room not in sys.modules
inside = threading.Event()

class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == room:
            inside.set()
            time.sleep(0.5)

sys.meta_path.insert(0, Slow())
thread = threading.Thread(target=lambda: ms.jit(f)(x))
thread.start()
inside.wait()
child = os.fork()
if child == 0:
    signal.alarm(60)
    ms.jit(lambda x: f(x) + 1)(x)
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
thread.join()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("room", "call"),
    [("scan", "ms.ops.cumsum(x, 0)"), ("trigonometry", "ms.ops.sin(x)"), ("matmul", "ms.ops.matmul(x, x)"), ("sorting", "ms.ops.sort(x)[0]")],
)
def test_a_child_can_compile_while_another_thread_imports_a_code_generator(tmp_path: Path, room: str, call: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(_FORK_AMID_AN_IMPORT.format(room=room, call=call))
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "GRAPHCELL_CACHE": "0"}
    command = [sys.executable, "-W", "ignore:This process:DeprecationWarning", str(script)]
    assert subprocess.run(command, env=env, capture_output=True, text=True, timeout=600, check=True).stdout == "0\n"


_FORK_AMID_A_PROPERTY = """
import os, signal, threading
from graphcell.locks import cached_property

class Text:
    @cached_property
    def length(self):
        if threading.current_thread() is not threading.main_thread():
            inside.set()
            leave.wait()
        return 7

inside, leave = threading.Event(), threading.Event()
thread = threading.Thread(target=lambda: Text().length)
thread.start()
inside.wait()
child = os.fork()
if child == 0:
    signal.alarm(60)
    os._exit(Text().length)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
leave.set()
thread.join()
"""


def test_a_child_can_ask_for_a_property_that_another_thread_was_computing(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(_FORK_AMID_A_PROPERTY)
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-W", "ignore:This process:DeprecationWarning", str(script)]
    assert subprocess.run(command, env=env, capture_output=True, text=True, timeout=600, check=True).stdout == "7\n"


def test_a_property_is_computed_once_and_its_class_gives_the_property() -> None:
    class Text:
        asked = 0

        @cached_property
        def length(self) -> int:
            """How long it is."""
            self.asked += 1
            return 7

    text = Text()
    assert (text.length, text.length, text.asked) == (7, 7, 1)
    assert isinstance(Text.length, cached_property) and Text.length.__doc__ == "How long it is."


def test_no_room_uses_the_property_with_a_lock() -> None:
    """Which Python 3.11 has: a lock of the class, held by whoever computes the value of any object."""
    for path in (Path(__file__).parents[2] / "graphcell").rglob("*.py"):
        assert not re.search(r"functools\.cached_property\b(?!`)|from functools import .*cached_property", path.read_text(encoding="utf-8")), path
