"""Slices that move through many steps of a computation to where their elements come from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphcell import ops
from graphcell.passes.pipeline import run_pipeline
from graphcell.passes.rewrite import Rewriter
from tests.codegen.plans import TARGETS
from tests.codegen.test_guards import run_guarded
from tests.codegen.test_loop_shapes import graph_of


def generations(count: int, rolled: Any, either: Any) -> Any:
    """So many steps of a cell automaton on a torus, written out: each reads its predecessor in four places."""

    def run(x: Any) -> Any:
        for _ in range(count):
            x = either(x + rolled(x, 1, 0) + rolled(x, -1, 1) == 2, rolled(x, 1, 1) == 1).astype(x.dtype)
        return x

    return run


def cells() -> Any:
    return np.random.default_rng(0).integers(0, 2, (9, 11)).astype(np.int32)


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2, 5])
def test_results(count: int) -> None:
    x = cells()
    want = generations(count, np.roll, np.logical_or)(x)
    for target in TARGETS.values():
        (got,) = run_guarded(graph_of(generations(count, ops.roll, ops.logical_or), [x]), [x], target, True)
        assert (got == want).all()


def test_a_slice_is_moved_once_however_many_ways_lead_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three ways a step: nine steps would be some 20000 slices, and ten times as many three steps later."""
    emitted = 0
    emit = Rewriter.emit

    def counting(self: Rewriter, *args: Any) -> Any:
        nonlocal emitted
        emitted += 1
        return emit(self, *args)

    monkeypatch.setattr(Rewriter, "emit", counting)
    numbers = []
    for count in (6, 12):
        emitted = 0
        run_pipeline(graph_of(generations(count, ops.roll, ops.logical_or), [cells()]))
        numbers.append(emitted)
    assert numbers[1] < 10 * numbers[0]


@pytest.mark.slow
@pytest.mark.parametrize("count", [60, 300])
def test_a_slice_of_a_long_chain(count: int) -> None:
    """Rules within rules end before Python's stack does; the next pass goes on."""

    def chain(x: Any) -> Any:
        for _ in range(count):
            x = ops.tanh(x) + 1
        return x[:2]

    x = np.linspace(-2, 2, 24, dtype=np.float32).reshape(8, 3)
    want = x.astype(np.float64)
    for _ in range(count):
        want = np.tanh(want) + 1
    (got,) = run_guarded(graph_of(chain, [x]), [x], next(iter(TARGETS.values())), True)
    np.testing.assert_allclose(got, want[:2], rtol=1e-5)


def doubled(x: Any) -> Any:
    """Sums of logarithms over ever longer pieces: each step reads its predecessor in three places."""
    by = 1
    while by < len(x):
        x = ops.cat((x[:by], x[by:] + ops.softplus(x[:-by] - x[by:])))
        by *= 2
    return x


def test_what_takes_long_is_computed_once_for_all_slices() -> None:
    x = np.random.default_rng(0).standard_normal((130, 5)).astype(np.float32)
    graph = run_pipeline(graph_of(doubled, [x]))[0]
    computed = sum(n.results[0].type.size for n in graph.nodes if n.op.name == "softplus")
    assert computed == sum(5 * (130 - (1 << k)) for k in range(8))
    for target in TARGETS.values():
        (got,) = run_guarded(graph_of(doubled, [x]), [x], target, True)
        np.testing.assert_allclose(got, np.logaddexp.accumulate(x.astype(np.float64)), rtol=1e-5, atol=1e-5)


def test_a_part_that_is_cut_out_whole_is_that_part() -> None:
    def fn(x: Any, y: Any) -> Any:
        whole = ops.cat((ops.tanh(x), ops.exp(y)))
        return whole[:4] * 2, whole[4:] + 1, whole[:2]

    a, b = np.ones((4, 3), np.float32), np.ones((5, 3), np.float32)
    graph = run_pipeline(graph_of(fn, [a, b]))[0]
    multiplied = next(n for n in graph.nodes if n.op.name == "mul")
    assert next(n for n in graph.nodes if multiplied.operands[0] in n.results).op.name == "tanh"


def test_a_slice_of_what_nobody_else_reads_needs_no_concatenation() -> None:
    a, b = np.ones((4, 3), np.float32), np.ones((5, 3), np.float32)
    graph = run_pipeline(graph_of(lambda x, y: ops.cat((ops.tanh(x), ops.exp(y)))[:2], [a, b]))[0]
    assert [n.results[0].type.shape for n in graph.nodes if n.op.name == "tanh"] == [(2, 3)]
    assert all(n.op.name not in ("concat", "exp") for n in graph.nodes)
