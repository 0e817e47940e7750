"""Python's collector is kept back while graphs are built, and as it was afterwards."""

from __future__ import annotations

import contextlib
import gc
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import graphcell as ms
from graphcell import collection
from graphcell.collection import rarely_collected


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[None]:
    usual = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*usual)


def test_thresholds_are_high_inside_and_as_before_outside() -> None:
    with rarely_collected:
        assert gc.get_threshold() == (500_000, 10, 10)
        with rarely_collected:
            assert gc.get_threshold() == (500_000, 10, 10)
        assert gc.get_threshold() == (500_000, 10, 10)
    assert gc.get_threshold() == (700, 10, 10)


def test_errors_restore_them() -> None:
    @ms.jit
    def f(x: Any) -> Any:
        raise ValueError(f"not today: {gc.get_threshold()}")

    with pytest.raises(ValueError, match="not today"):
        f(ms.Tensor(np.ones(2, np.float32)))
    assert gc.get_threshold() == (700, 10, 10)


def test_compilation_is_inside() -> None:
    seen = []

    def f(x: Any) -> Any:
        seen.append(gc.get_threshold())
        return x + 1

    ms.jit(f)(ms.Tensor(np.ones(2, np.float32)))
    assert seen == [(500_000, 10, 10)] and gc.get_threshold() == (700, 10, 10)


def test_who_sets_them_inside_has_the_last_word() -> None:
    with rarely_collected:
        gc.set_threshold(5, 6, 7)
    assert gc.get_threshold() == (5, 6, 7)


@pytest.mark.parametrize("usual", [(0, 10, 10), (900_000, 3, 4)])
def test_what_is_rarer_already_stays(usual: tuple[int, int, int]) -> None:
    gc.set_threshold(*usual)
    with rarely_collected:
        assert gc.get_threshold() == usual
    assert gc.get_threshold() == usual


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.parametrize("is_inside", [False, True])
def test_a_child_process_forgets_the_threads_that_it_has_not(is_inside: bool) -> None:
    inside, leave = threading.Event(), threading.Event()

    def other() -> None:
        with rarely_collected:
            inside.set()
            leave.wait()

    thread = threading.Thread(target=other)
    thread.start()
    inside.wait()
    with rarely_collected if is_inside else contextlib.nullcontext():
        child = os.fork()
        rare_in_child = gc.get_threshold() == (500_000, 10, 10)
    if child == 0:
        os._exit(0 if rare_in_child == is_inside and gc.get_threshold() == (700, 10, 10) else 1)
    leave.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert gc.get_threshold() == (700, 10, 10)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_process_keeps_what_was_set_outside() -> None:
    with rarely_collected:
        pass
    gc.set_threshold(500_000, 10, 10)
    child = os.fork()
    if child == 0:
        os._exit(0 if gc.get_threshold() == (500_000, 10, 10) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_several_threads() -> None:
    inside, leave = threading.Barrier(2), threading.Event()

    def other() -> None:
        with rarely_collected:
            inside.wait()
            leave.wait()

    thread = threading.Thread(target=other)
    with rarely_collected:
        thread.start()
        inside.wait()
    assert gc.get_threshold() == (500_000, 10, 10)
    leave.set()
    thread.join()
    assert gc.get_threshold() == (700, 10, 10)


def test_the_import_leaves_little_to_visit() -> None:
    """Its objects are old ones; the thresholds are as they were. What was frozen before stays so."""
    program = """
import gc
{freeze}
before, frozen = gc.get_threshold(), gc.get_freeze_count()
import graphcell
assert gc.get_threshold() == before and bool(gc.get_freeze_count()) == bool(frozen)
young = sum(len(gc.get_objects(generation)) for generation in range(2))
assert (young < 2000) == (not frozen), young
"""
    for freeze in ("", "gc.freeze()"):
        subprocess.run([sys.executable, "-c", program.format(freeze=freeze)], check=True, timeout=120)


_CALL = """
import gc
import numpy as np
import graphcell as ms

def young():
    return sum(len(gc.get_objects(generation)) for generation in range(2))

def call(cell):
    before = young()
    ms.jit(cell)(ms.Tensor(np.ones((2, 3), np.float32)))
    return young() - before
"""


def _run_without_cache(program: str) -> None:
    subprocess.run([sys.executable, "-c", _CALL + program], check=True, timeout=120, env=os.environ | {"GRAPHCELL_CACHE": "0"})


def test_a_first_call_leaves_little_to_visit() -> None:
    """It imports the code generator, whose objects are old ones then; what the next one leaves is as young as ever, lest garbage stays for long."""
    _run_without_cache("gc.disable(); first, second = call(ms.nn.Tanh()), call(ms.nn.LogSoftmax()); assert first < 0 < second, (first, second)")


def test_a_first_call_frees_the_dead_cycles_of_before() -> None:
    _run_without_cache("""
import weakref
class Mine:
    pass
mine = Mine()
mine.me, gone = mine, weakref.ref(mine)
del mine
call(ms.nn.Tanh())
assert gone() is None
""")


def test_what_others_froze_stays_frozen_after_a_first_call() -> None:
    _run_without_cache("gc.freeze(); frozen = gc.get_freeze_count(); call(ms.nn.Tanh()); assert gc.get_freeze_count() > frozen / 2, gc.get_freeze_count()")


@pytest.mark.parametrize(("modules", "is_nested", "counts"), [(19, False, 0), (20, False, 1), (20, True, 1)])
def test_many_new_modules_count_as_old(modules: int, is_nested: bool, counts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    monkeypatch.setattr(collection, "_count_as_old", lambda: seen.append(1))
    with rarely_collected:
        gc.set_threshold(5, 6, 7)
        for k in range(modules):
            monkeypatch.setitem(sys.modules, f"nothing.{k}", None)  # type: ignore[misc]
        with rarely_collected if is_nested else contextlib.nullcontext():
            pass
        assert not seen
    assert len(seen) == counts and gc.get_threshold() == (5, 6, 7)


def test_nothing_stays_frozen_after_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    if gc.get_freeze_count():
        pytest.skip("something is frozen")
    freeze = gc.freeze

    def interrupted() -> None:
        freeze()
        raise KeyboardInterrupt

    monkeypatch.setattr(gc, "freeze", interrupted)
    monkeypatch.setattr(collection, "_MODULES", 0)
    with pytest.raises(KeyboardInterrupt), rarely_collected:
        pass
    assert gc.get_freeze_count() == 0 and gc.get_threshold() == (700, 10, 10)
