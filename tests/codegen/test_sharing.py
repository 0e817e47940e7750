"""Which steps threads share: small programs against all choices that there are, and what becomes of it in a program."""

from __future__ import annotations

import itertools
import random
import re
from typing import Any

import numpy as np
import pytest

import graphcell.dtype as dt
from graphcell import ops
from graphcell.codegen.llvm.target import host
from graphcell.codegen.lower import lower
from graphcell.codegen.program import Step
from graphcell.codegen.sharing import Task, Work, done_alone
from graphcell.ir.graph import Value
from graphcell.ir.types import TensorType
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
    carried = Task(Work(0), 1, (), ((v[1], 256 * KIB),))
    alone = Task(Work(500.0), 100, ((v[2], 256 * KIB),), ((v[1], 256 * KIB),))
    assert done_alone([carried, task(24000.0, [(v[1], 256 * KIB)], [(v[2], 256 * KIB)], times=100), alone], CACHE) == {1}


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


def test_large_steps_are_shared() -> None:
    found = steps(lambda x, w: ops.tanh(ops.matmul(x, w)).sum(0), [normal(512, 256), normal(256, 512)])
    assert any(s.shared for s in found if s.title.startswith("matmul"))


def test_the_listing_says_what_is_shared() -> None:
    from graphcell import Tensor, jit
    from graphcell.common import dtype

    f = jit(listed)
    f(Tensor(normal(2000, 300), dtype.float32))
    assert re.search(r"^// loops\d+, \d+ blocks for all threads$", f.kernels(), re.MULTILINE)


def listed(x: Any) -> Any:
    return ops.tanh(x) * 2
