"""Of two ways the quicker one: which is taken when, by a clock that the test sets."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np
import pytest

from graphcell.codegen.llvm import quicker
from graphcell.codegen.llvm.target import compile_object, host, load_object
from graphcell.codegen.llvm.text import I64, PTR, FunctionBuilder, Module, Val, i64

START, END, OF_FIRST, OF_SECOND, TAKEN = range(5)
PERIOD, FIRST_PERIOD, TRIES = 128, 16, 4


class Ways:
    """A compiled choice. Each way takes as long as the test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        module = Module()
        b = FunctionBuilder(module, "run", [("table", PTR)], internal=False)
        words = [b.gep(b.args["table"], k, I64) for k in range(5)]
        clock = iter((words[START], words[END]))
        monkeypatch.setattr(quicker, "_clock", lambda b: b.load(next(clock), I64))
        monkeypatch.setattr(quicker, "has_clock", lambda: True)

        def way(number: int, length: Val) -> Callable[[], None]:
            def emit() -> None:
                b.store(b.add(b.load(words[START], I64), b.load(length, I64)), words[END])
                b.store(i64(number), words[TAKEN])

            return emit

        quicker.emit_quicker(b, "times", way(1, words[OF_FIRST]), way(2, words[OF_SECOND]))
        b.finish()
        self.library = load_object(compile_object(str(module), host()))
        self.function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.library.address("run"))
        self.runs = 0

    def take(self, first: int, second: int) -> int:
        """Which way is taken where they are so long."""
        table = np.array([1000 * self.runs, 0, first, second, 0], np.int64)
        self.function(table.ctypes.data)
        self.runs += 1
        return int(table[TAKEN])

    def take_many(self, count: int, first: int, second: int) -> list[int]:
        return [self.take(first, second) for _ in range(count)]


@pytest.mark.parametrize(("first", "second", "taken"), [(100, 60, 2), (60, 100, 1), (100, 100, 2)])
def test_the_quicker_way_is_taken_after_both_were_tried(monkeypatch: pytest.MonkeyPatch, first: int, second: int, taken: int) -> None:
    """In each period, of which there are several among the first runs."""
    found = Ways(monkeypatch).take_many(4 * PERIOD, first, second)
    periods = [range(k, k + FIRST_PERIOD) for k in range(0, PERIOD, FIRST_PERIOD)] + [range(k * PERIOD, (k + 1) * PERIOD) for k in (1, 2, 3)]
    for period in periods:
        assert found[period.start : period.stop] == [1, *[2] * TRIES, *[taken] * (len(period) - 1 - TRIES)]


def test_a_way_that_becomes_slower_is_left_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    ways = Ways(monkeypatch)
    assert set(ways.take_many(PERIOD + 40, 100, 60)[PERIOD + 5 :]) == {2}
    found = ways.take_many(20, 100, 1000)
    assert 2 <= found.index(1) <= 5 and set(found[found.index(1) :]) == {1}


def test_one_run_that_was_held_up_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    ways = Ways(monkeypatch)
    ways.take_many(PERIOD + 40, 100, 60)
    assert ways.take(100, 10**9) == 2
    assert set(ways.take_many(40, 100, 60)) == {2}


def test_a_bad_beginning_is_forgotten_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """When a processor was away in all of the first tries."""
    ways = Ways(monkeypatch)
    assert ways.take_many(FIRST_PERIOD, 100, 300) == [1, *[2] * TRIES, *[1] * (FIRST_PERIOD - 1 - TRIES)]
    assert ways.take_many(FIRST_PERIOD, 100, 60) == [1, *[2] * (FIRST_PERIOD - 1)]


def test_a_try_that_was_held_up_is_made_good_by_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when a thread has to be woken first."""
    ways = Ways(monkeypatch)
    assert ways.take_many(1, 100, 60) == [1]
    assert ways.take(100, 130) == 2
    found = ways.take_many(60, 100, 60)
    assert [run for run, way in enumerate(found, 2) if way != 2] == [FIRST_PERIOD, 2 * FIRST_PERIOD, 3 * FIRST_PERIOD]


def test_the_other_way_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    ways = Ways(monkeypatch)
    assert set(ways.take_many(2 * PERIOD, 60, 100)[PERIOD + 5 :]) == {1}
    found = ways.take_many(PERIOD, 60, 20)
    assert found[0] == 1 and set(found[1:]) == {2}


def test_a_clock_that_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a run it seems that no time has passed; later ones put that right."""
    ways = Ways(monkeypatch)
    ways.take_many(PERIOD + 20, 60, 100)
    assert ways.take(-(10**12), 100) == 1
    ways.take_many(2 * PERIOD, 100, 60)
    assert set(ways.take_many(PERIOD - 21 + PERIOD, 100, 60)[PERIOD - 21 + 5 :]) == {2}


def test_without_a_clock_it_is_the_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quicker, "has_clock", lambda: False)
    emitted: list[str] = []
    quicker.emit_quicker(FunctionBuilder(Module(), "f", []), "times", lambda: emitted.append("first"), lambda: emitted.append("second"))
    assert emitted == ["second"]
