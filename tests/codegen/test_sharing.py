"""Which steps threads share: small programs against all choices that there are, and what becomes of it in a program."""

from __future__ import annotations

import itertools
import random
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import graphcell.dtype as dt
from graphcell import Tensor, jit, ops
from graphcell.codegen import tasks as tasks_module
from graphcell.codegen.llvm.contraction import Plan, Stage
from graphcell.codegen.llvm.target import host
from graphcell.codegen.lower import lower
from graphcell.codegen.program import Step
from graphcell.codegen.sharing import TURNS, Task, Work, done_alone, work_of_plan
from graphcell.ir.graph import Node, Value
from graphcell.ir.types import TensorType
from graphcell.ops.contraction import MatMul
from graphcell.passes.pipeline import run_pipeline
from tests.codegen.test_loop_shapes import graph_of, normal

CACHE = 2 << 20
KIB = 1024
BYTE, ANNOUNCED = 0.2, 4000  # cycles, as documented in sharing.py


def values(count: int) -> list[Value]:
    return [Value(TensorType(dt.float32, ())) for _ in range(count)]


def task(cycles: float, reads: list[tuple[Value, int]], writes: list[tuple[Value, int]], times: int = 1, read_by_all: int = 0) -> Task:
    return Task(Work(cycles, True, read_by_all), times, tuple(reads), tuple(writes))


def chain(cycles: list[float], nbytes: int) -> list[Task]:
    """Steps each of which reads what the one before wrote; the last writes what the first reads in the next call."""
    v = values(len(cycles))
    return [task(c, [(v[k - 1], nbytes)], [(v[k], nbytes)]) for k, c in enumerate(cycles)]


def seconds(tasks: list[Task], alone: set[int]) -> float:
    """The sum that is made small, of straight programs whose every value has one writer: counted anew, in cycles."""
    total = 0.0
    writer = {m: k for k, t in enumerate(tasks) for m, _ in t.writes}
    for k, t in enumerate(tasks):
        shared = t.work.may_be_shared and k not in alone
        total += t.times * ((t.work.cycles + BYTE * t.work.read_by_all) / 2 + ANNOUNCED if shared else t.work.cycles)
        for memory, nbytes in t.reads:
            at = writer.get(memory, k)
            if at != k and (tasks[at].work.may_be_shared and at not in alone) != shared:
                total += BYTE * nbytes / 2
    return total


def test_short_steps_are_done_alone_and_long_ones_are_not() -> None:
    assert done_alone(chain([3000.0] * 5, 4 * KIB), CACHE) == set(range(5))
    assert done_alone(chain([1e6] * 5, 256 * KIB), CACHE) == set()
    assert done_alone([], CACHE) == set()


def test_what_may_not_be_shared_is_not_named() -> None:
    tasks = [Task(Work(1e6), 1, (), ()), Task(Work(500.0), 1, (), ())]
    assert done_alone(tasks, CACHE) == set()


def test_a_step_goes_with_those_whose_results_it_reads() -> None:
    """20000 cycles are worth sharing by themselves, and 6000 are not; half of 256 KiB takes 26000 to move."""
    assert done_alone(chain([1e6, 6000.0, 1e6], 256 * KIB), CACHE) == set()
    assert done_alone(chain([1000.0, 20000.0, 1000.0], 256 * KIB), CACHE) == {0, 1, 2}
    assert done_alone(chain([1000.0, 20000.0, 1000.0], KIB), CACHE) == {0, 2}


def test_a_product_whose_operands_come_from_all_threads() -> None:
    v = values(3)
    for nbytes, alone in ((KIB, set[int]()), (128 * KIB, {0})):
        assert done_alone([task(24000.0, [(v[0], nbytes), (v[1], nbytes)], [(v[2], KIB)], read_by_all=2 * nbytes)], CACHE) == alone


def test_what_no_cache_holds_any_more_is_not_moved() -> None:
    """The step in the middle reads what was written 4 MiB ago."""
    v = values(3)
    tasks = [
        task(1e6, [], [(v[0], 256 * KIB)]),
        Task(Work(1e6), 1, ((v[1], 4 << 20),), ()),
        task(6000.0, [(v[0], 256 * KIB)], [(v[2], KIB)]),
    ]
    assert done_alone(tasks, CACHE) == {2}
    assert done_alone(tasks, 64 << 20) == set()


def test_steps_of_a_loop_count_each_time() -> None:
    """What is read in each turn but written once is moved once."""
    v = values(3)
    given = task(1e6, [], [(v[0], 256 * KIB)])
    assert done_alone([given, task(9000.0, [(v[0], 256 * KIB)], [(v[1], KIB)], times=100)], CACHE) == set()
    alone = Task(Work(500.0), 100, ((v[2], 256 * KIB),), ((v[1], 256 * KIB),))
    assert done_alone([task(24000.0, [(v[1], 256 * KIB)], [(v[2], 256 * KIB)], times=100), alone], CACHE) == {0}


@pytest.mark.parametrize("seed", range(40))
def test_close_to_the_best_of_all_choices(seed: int) -> None:
    dice = random.Random(seed)
    v, tasks = values(10), []
    for k in range(10):
        reads = [(v[j], dice.choice((1, 16, 64, 256)) * KIB) for j in {dice.randrange(10), dice.randrange(10)} - {k}]
        tasks.append(task(10 ** dice.uniform(3.3, 4.8), reads, [(v[k], 0)], read_by_all=dice.choice((0, 0, 32 * KIB))))
    every = [set(c) for n in range(11) for c in itertools.combinations(range(10), n)]
    best = min(seconds(tasks, c) for c in every)
    assert seconds(tasks, done_alone(tasks, 1 << 40)) <= 1.08 * best


def test_a_step_of_a_loop_and_the_one_that_wrote_in_the_turn_before() -> None:
    """Half of 256 KiB there and back in each turn takes more than the 2000 cycles that sharing saves, however much is touched outside of the loop."""
    v = values(3)
    much = Task(Work(0), 1, (), ((v[2], 8 << 20),))
    tasks = [task(12000.0, [(v[0], 256 * KIB)], [(v[1], 4)], 50), task(3000.0, [(v[1], 4)], [(v[0], 256 * KIB)], 50)]
    assert done_alone([much, *tasks, much], CACHE) == {1, 2}
    once = [replace(t, times=1) for t in tasks]
    assert done_alone([much, *once, much], CACHE) == {2}


def test_gains_of_a_loop_are_those_of_all_turns() -> None:
    """One move of 1 MiB, which takes 105000 cycles, against 2000 cycles a turn."""
    v = values(2)
    for times, alone in ((10, {1}), (100, set[int]())):
        tasks = [Task(Work(0), 1, (), ((v[0], 1 << 20),)), task(12000.0, [(v[0], 1024)], [(v[1], 4)], times)]
        assert done_alone(tasks, 4 << 20) == alone


def test_long_steps_are_shared_whatever_they_read() -> None:
    v = values(2)
    assert done_alone([Task(Work(0), 1, (), ((v[0], 1 << 20),)), task(79000.0, [(v[0], 1 << 20)], [(v[1], 4)])], CACHE) == {1}
    assert done_alone([Task(Work(0), 1, (), ((v[0], 1 << 20),)), task(81000.0, [(v[0], 1 << 20)], [(v[1], 4)])], CACHE) == set()


# -- in programs ---------------------------------------------------------------------------------------------------
def steps(fn: Any, arrays: list[Any]) -> list[Step]:
    return lower(run_pipeline(graph_of(fn, arrays))[0], (), host()).steps


def test_small_steps_are_done_alone() -> None:
    """A cell automaton of 4000 cells, in several blocks."""

    def life(x: Any) -> Any:
        for _ in range(3):
            x = ops.logical_or(x + ops.roll(x, 1, 0) + ops.roll(x, -1, 1) == 2, ops.roll(x, 1, 1) == 1).astype(x.dtype)
        return x

    found = [s for s in steps(life, [np.ones((61, 67), np.int32)]) if s.blocks > 1]
    assert found and not any(s.shared for s in found)


def tasks_of(monkeypatch: pytest.MonkeyPatch, fn: Any, arrays: list[Any]) -> list[Task]:
    """The steps of a function with control flow, as they are weighed."""
    found: list[Task] = []

    def keep(tasks: list[Task], cache_bytes: int) -> set[int]:
        found.extend(tasks)
        return set()

    monkeypatch.setattr(tasks_module, "done_alone", keep)
    monkeypatch.setenv("GRAPHCELL_CACHE", "0")
    jit(fn)(*map(Tensor, arrays))
    return found


def counted(x: Any, w: Any) -> Any:
    h = x + 1
    for _ in range(30):
        h = ops.matmul(h, w) * 0.5
    return ops.tanh(h).sum()


def test_steps_of_a_counted_loop_hand_on_what_they_carry(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = tasks_of(monkeypatch, counted, [normal(16, 16), normal(16, 16)])
    assert {t.times for t in tasks} == {1, 30}
    inside = [t for t in tasks if t.times == 30]
    (carried,) = [memory for memory, n in inside[-1].writes if n == 1024]
    assert any(carried in dict(t.reads) for t in inside)
    assert any(carried in dict(t.reads) for t in tasks if t.times == 1)


def test_what_is_written_over_an_input_is_read_by_the_next_call(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Task] = []
    monkeypatch.setattr(tasks_module, "done_alone", lambda tasks, cache_bytes: found.extend(tasks) or set())
    lower(run_pipeline(graph_of(lambda x: x * 2 + 1, [normal(300, 40)]))[0], ((0, 0),), host())
    assert [dict(t.reads).keys() == dict(t.writes).keys() for t in found] == [True]


def rows(xs: Any) -> Any:
    xs = xs * 2
    h, results = xs[0] * 0, []
    for k in range(12):
        h = ops.tanh(h + xs[k])
        results.append(h)
    return ops.stack(results).sum(1), xs.sum(0)


def test_steps_of_a_loop_over_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read and written row by row is the same memory outside of the loop: the rows, and a stack of thirteen states."""
    tasks = tasks_of(monkeypatch, rows, [normal(12, 40)])
    inside = [t for t in tasks if t.times == 12]
    assert inside
    xs, states = ({m for t in tasks if t.times == 1 for m, n in (*t.reads, *t.writes) if n == rows * 160} for rows in (12, 13))
    assert {m for t in inside for m, n in t.reads if n == 160} & xs
    assert {m for t in inside for m, n in t.writes if n == 160} & states


def doubled(x: Any) -> Any:
    while x.sum() < 100:
        x = ops.cumsum(x, 0) + 1
    return x


def test_steps_of_a_loop_of_which_nobody_knows_how_often_it_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = tasks_of(monkeypatch, doubled, [np.zeros((4, 8), np.float32)])
    assert {t.times for t in tasks} == {TURNS}
    ((last, _),) = tasks[-1].writes
    assert sum(last in dict(t.reads) for t in tasks) >= 2, "the condition and the body read what is carried"


def chosen(x: Any, flag: Any) -> Any:
    y = x * 2
    y = ops.cumsum(y, 0) if flag else ops.cumsum(y, 1)
    return ops.cumsum(y, 0)


def test_steps_of_branches(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = tasks_of(monkeypatch, chosen, [normal(16, 8), np.array(True)])
    given, *branches, after = tasks
    (y,), (result,) = dict(given.writes), dict(after.reads)
    assert len(branches) == 2
    assert all(y in dict(t.reads) and result in dict(t.writes) for t in branches)


def row_of_table(c: Any, k: Any) -> Any:
    return ops.cumsum(c[k], 0)


def test_a_row_of_a_table_is_not_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = tasks_of(monkeypatch, row_of_table, [normal(4096, 32), np.array(5, np.int32)])
    assert all(nbytes <= 128 for t in tasks for _, nbytes in (*t.reads, *t.writes))
    assert not any(t.work.may_be_shared for t in tasks)


def product(x: tuple[int, ...], y: tuple[int, ...], transposed: bool = False) -> tuple[Node, Plan]:
    graph = graph_of(lambda a, b: ops.matmul(a.swapaxes(-1, -2) if transposed else a, b), [normal(*x), normal(*y)])
    node = next(n for n in run_pipeline(graph)[0].nodes if isinstance(n.op, MatMul))
    return node, Plan((Stage("f", ("a", "b", "c"), (), 4, 1 << 20),))


def test_what_every_thread_reads_of_a_product() -> None:
    target = host()
    assert work_of_plan(*product((64, 32), (32, 16)), 0, target).read_by_all == 32 * 16 * 4
    assert work_of_plan(*product((64, 32), (64, 16), True), 0, target).read_by_all == 64 * 48 * 4
    assert work_of_plan(*product((9, 64, 32), (9, 32, 16)), 0, target).read_by_all == 0
    node, plan = product((64, 32), (64, 16), True)
    assert work_of_plan(node, replace(plan, shared=(("partial", 64),)), 0, target).read_by_all == 0
    assert work_of_plan(node, plan, 8 * target.l1_bytes, target).cycles > work_of_plan(node, plan, 4 * target.l1_bytes, target).cycles


def test_large_steps_are_shared() -> None:
    found = steps(lambda x, w: ops.tanh(ops.matmul(x, w)).sum(0), [normal(512, 256), normal(256, 512)])
    assert any(s.shared for s in found if s.title.startswith("matmul"))


def test_the_listing_says_what_is_shared() -> None:
    f = jit(listed)
    for rows, shared in ((2000, True), (15, False)):
        f(Tensor(normal(rows, 300)))
        (title,) = re.findall(r"^// loops\d+, (.*)$", f.kernels(), re.MULTILINE)
        assert title.endswith("blocks for all threads" if shared else "blocks")


def listed(x: Any) -> Any:
    return ops.tanh(x) * 2
