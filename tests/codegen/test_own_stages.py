"""What each thread does for itself before its share of a step: which stages that are, and that results are the bits of one thread."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from graphcell import dtype as dt
from graphcell import ops
from graphcell.codegen import contractions, sharing, tasks
from graphcell.codegen.llvm.contraction import Plan, Stage
from graphcell.codegen.prepare import own_stages
from graphcell.codegen.program import ASKING
from graphcell.codegen.team import TeamCalls
from graphcell.ir.evaluate import evaluate_graph
from graphcell.ir.op import Array
from graphcell.ir.types import TensorType
from graphcell.ops.contraction import MatMul
from graphcell.ops.control import For
from graphcell.ops.convolution import Conv, ConvInputGrad
from graphcell.ops.dispatch import apply, apply1
from graphcell.tensor import Tensor
from tests.codegen.plans import TARGETS
from tests.codegen.test_guards import check as check_guarded
from tests.codegen.test_team import Runner, check
from tests.codegen.turn_taking import TurnTaking
from tests.helpers import trace

CACHE = 1 << 20


# -- which stages --------------------------------------------------------------------------------------------------------
def plan(*stages: Stage, size: int = 640, scratch: int = 0) -> Plan:
    return Plan(stages, (("packed", size), ("partial", 640)), scratch)


PACK = Stage("pack", ("b", "packed"), (), 3, 10, by_each=True)
WORK = Stage("work", ("a", "packed", "c"), (), 9, 10)


def test_a_stage_whose_results_one_other_reads() -> None:
    assert own_stages(plan(PACK, WORK), (), CACHE) == {"packed": PACK}
    more = Stage("more", ("a", "packed", "c"), (), 9, 10)
    assert own_stages(plan(PACK, WORK, more), (), CACHE) == {}


def test_not_what_is_prepared_nor_what_nobody_said_it_of() -> None:
    assert own_stages(plan(PACK, WORK), ("packed",), CACHE) == {}
    assert own_stages(plan(replace(PACK, by_each=False), WORK), (), CACHE) == {}
    assert own_stages(plan(Stage("part", ("a", "partial"), (), 3, 10), replace(PACK, buffers=("partial", "packed")), WORK), (), CACHE) == {}


def test_only_what_stays_in_the_cache() -> None:
    assert own_stages(plan(PACK, WORK, size=CACHE), (), CACHE)
    assert not own_stages(plan(PACK, WORK, size=CACHE + 64), (), CACHE)
    assert not own_stages(plan(PACK, WORK, size=CACHE, scratch=64), (), CACHE)
    both = replace(WORK, buffers=("a", "packed", "partial", "c"))
    second = replace(PACK, function="second", buffers=("a", "partial"))
    assert own_stages(plan(PACK, second, both, size=CACHE - 640), (), CACHE) == {"packed": PACK, "partial": second}
    assert own_stages(plan(PACK, second, both, size=CACHE - 639), (), CACHE) == {"packed": PACK}


def test_only_what_is_little_beside_the_work_that_is_divided() -> None:
    assert own_stages(plan(replace(PACK, flops=15), WORK), (), CACHE) and not own_stages(plan(replace(PACK, flops=16), WORK), (), CACHE)


# -- programs ------------------------------------------------------------------------------------------------------------
class Alone:
    """A pool of one thread."""

    def __init__(self) -> None:
        self.failure = ""
        self._function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(self._parallel_for)
        self.address = ctypes.cast(self._function, ctypes.c_void_p)

    def _parallel_for(self, function: int, context: int, blocks: int) -> None:
        integers, pointer = [ctypes.c_int64] * 2, ctypes.c_void_p
        if blocks < ASKING // 2:
            ctypes.CFUNCTYPE(None, pointer, *integers, ctypes.c_int64, pointer)(function)(context, 0, blocks - ASKING, 0, None)
        else:
            ctypes.CFUNCTYPE(None, pointer, *integers)(function)(context, 0, blocks)


@pytest.fixture(autouse=True)
def all_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads share all that they may, however small."""
    monkeypatch.setattr(tasks, "done_alone", lambda tasks, cache_bytes: set())
    monkeypatch.setattr(sharing, "ANNOUNCED", 0)


def normal(*shape: int) -> Array:
    return np.random.default_rng(list(shape)).standard_normal(shape).astype(np.float32)


def conv(*, stride: int = 1, taps: int = 3) -> Conv:
    before = taps // 2
    return Conv((stride, stride), ((before, before), (before, before)), (1, 1), 1, True)


def input_grad(*, stride: int, taps: int, shape: tuple[int, int]) -> ConvInputGrad:
    before = taps // 2
    return ConvInputGrad((stride, stride), ((before, before), (before, before)), (1, 1), 1, True, shape)


IMAGES, WEIGHTS = normal(2, 23, 18, 20), normal(24, 20, 3, 3)
CASES: dict[str, tuple[Callable[..., Any], Sequence[Array], int]] = {
    "winograd": (lambda x, w: ops.relu(apply1(conv(), x, w)), (IMAGES, WEIGHTS), 1),
    "direct": (lambda x, w: apply1(conv(taps=7), x, w), (IMAGES, normal(24, 20, 7, 7)), 1),
    "strided": (lambda x, w: apply1(conv(stride=2), x, w) + 1.0, (IMAGES, WEIGHTS), 1),
    "phases": (lambda w, g: apply1(input_grad(stride=2, taps=3, shape=(23, 18)), w, g), (WEIGHTS, normal(2, 12, 9, 24)), 4),
    "product": (lambda x, y: apply1(MatMul(False, False), x, y), (normal(600, 256), normal(256, 7)), 1),
}


def traced(fn: Callable[..., Any], arrays: Sequence[Array]) -> Any:
    return trace(fn, *(TensorType(dt.from_numpy(a.dtype), a.shape) for a in arrays))


@pytest.mark.parametrize("name", CASES)
def test_results_are_the_bits_of_one_thread(name: str) -> None:
    fn, arrays, steps = CASES[name]
    graph = traced(fn, arrays)
    for target in TARGETS.values():
        runner, pool = Runner(graph, target), TurnTaking()
        (alone,) = runner.run(arrays, Alone())  # type: ignore[arg-type]  # short programs try one thread alone in their first run
        (found,) = runner.run(arrays, pool)
        assert alone.tobytes() == found.tobytes()
        np.testing.assert_allclose(found, evaluate_graph(graph, arrays)[0], rtol=2e-4, atol=2e-4)
        own = [s for s in runner.program.steps if "each thread for itself" in s.kernel]
        assert bool(own) == bool(pool.asked) and pool.asked in (0, steps)
        assert pool.asked or (name == "product" and target.vector_bytes < 32)  # that one reads its operands where they lie


@pytest.mark.parametrize("name", ["winograd", "phases", "product"])
def test_on_guarded_memory(name: str) -> None:
    fn, arrays, _ = CASES[name]
    check_guarded(traced(fn, arrays), arrays)


def test_in_a_loop_of_a_team(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights that change from turn to turn are packed by each thread of a team."""
    monkeypatch.setattr(tasks, "GATHERED", -1e18)
    monkeypatch.setattr(tasks, "LONG", 1 << 60)
    monkeypatch.setattr(TeamCalls, "shared_from", 0)

    x, w = normal(4, 20, 20, 16), normal(16, 16, 3, 3)
    body = traced(lambda i, x, w: (ops.tanh(apply1(conv(), x, w)), w * 0.5), (np.array(0), x, w))

    def f(x: Tensor, w: Tensor) -> Any:
        return apply(For(body, 3, 2, 0), x, w)

    for target in TARGETS.values():
        assert any("each thread for itself" in s.kernel and "for a team" in s.way for s in Runner(traced(f, (x, w)), target).program.steps)
    check(f, (x, w), tolerance=2e-4)


@pytest.mark.parametrize("longest", [0, 1 << 60])
def test_short_programs_try_one_thread_alone(longest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of 128 runs, and the next four with threads; the results are the same."""
    monkeypatch.setattr(tasks, "_LONGEST_TRIED", longest)
    fn, arrays, _ = CASES["winograd"]
    runner, counts, found = Runner(traced(fn, arrays), TARGETS[max(TARGETS)]), [], []
    for _ in range(5):
        pool = TurnTaking()
        found.append(runner.run(arrays, pool)[0].tobytes())
        counts.append(pool.regions)
    assert counts == [0 if longest else counts[1], *[counts[1]] * 4] and counts[1] > 0
    assert len(set(found)) == 1


def test_memory_of_threads_is_not_in_the_arena(monkeypatch: pytest.MonkeyPatch) -> None:
    fn, arrays, _ = CASES["winograd"]
    graph = traced(fn, arrays)
    with_own = Runner(graph, TARGETS[max(TARGETS)]).program
    (step,) = [s for s in with_own.steps if "each thread for itself" in s.kernel]
    assert step.shared
    monkeypatch.setattr(contractions, "own_stages", lambda plan, prepared, cache_bytes: {})
    assert Runner(graph, TARGETS[max(TARGETS)]).program.arena_bytes >= with_own.arena_bytes + 36 * 20 * 24 * 4
