"""Reductions of one value that share a kernel: random graphs of sums, of what comes from sums, and of sums of that, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphcell import dtype as dt
from graphcell.codegen import fuse
from graphcell.codegen.axes import leaf_set, volume
from graphcell.codegen.fuse import Fusion
from graphcell.codegen.legalize import legalize
from graphcell.ir.evaluate import evaluate_graph
from graphcell.ir.graph import Builder, Graph, Value
from graphcell.ir.types import TensorType
from graphcell.ops.arithmetic import Abs, Add, Maximum, Sub
from graphcell.ops.movement import BroadcastTo, Reshape
from graphcell.ops.reduction import ReduceMax, ReduceSum
from graphcell.runtime.executable import compile_graph
from graphcell.tensor import Tensor
from tests.passes.cases import same_bits
from tests.passes.random_graphs import random_graph

Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def _join_small_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuse, "_WORTH_READING_ONCE", 1)


def graph_of_sums(seed: int) -> tuple[Graph, list[Array]]:
    """Whole numbers that stay small, so that every order of summation gives the same."""
    rng = np.random.default_rng(seed)
    rows, columns = (int(n) for n in rng.choice([1, 3, 17, 40, 130], 2))
    b = Builder("sums")
    full = TensorType(dt.float32, (rows, columns))
    whole: list[Value] = [b.input(full) for _ in range(2)]
    outputs: list[Value] = []
    for _ in range(int(rng.integers(4, 14))):
        x, y = (whole[int(k)] for k in rng.integers(0, len(whole), 2))
        kind = rng.integers(0, 4)
        if kind == 0:
            op = [Add(), Sub(), Maximum()][int(rng.integers(0, 3))]
            (z,) = b.append(op, (x, y))
            whole.append(z)
        else:  # a reduction, which may go into what follows
            axis = ((0,), (1,), (0, 1))[int(rng.integers(0, 3))]
            (z,) = b.append(Abs(), (x,)) if rng.integers(0, 2) else (x,)
            op = ReduceMax(axis, True) if rng.integers(0, 2) else ReduceSum(axis, True)
            (r,) = b.append(op, (z,))
            if rng.integers(0, 2):
                outputs.append(r)
            else:
                (m,) = b.append(ReduceMax((0, 1), True), (r,)) if rng.integers(0, 3) == 0 and r.type.size > 1 else (r,)
                (wide,) = b.append(BroadcastTo(full.shape), (m,))
                (small,) = b.append(Maximum(), (y, wide)) if rng.integers(0, 2) else b.append(Sub(), (y, wide))
                whole.append(small)
    outputs += [v for v in whole[2:] if rng.integers(0, 3) == 0]
    (flat,) = b.append(Reshape((rows * columns,)), (whole[-1],))
    outputs.append(b.append(ReduceMax((0,), False), (flat,))[0])
    inputs = [rng.integers(-2, 3, (rows, columns)).astype(np.float32) for _ in range(2)]
    return b.finish(list(dict.fromkeys(outputs))), inputs


def agrees(graph: Graph, inputs: list[Array]) -> None:
    with np.errstate(all="ignore"):
        wanted = evaluate_graph(graph, inputs)
    if max((np.abs(w).max(initial=0) for w in wanted), default=0) >= 2**22:
        pytest.skip("sums that are not exact")
    for want, got in zip(wanted, compile_graph(graph)([Tensor(x) for x in inputs]), strict=True):
        np.testing.assert_array_equal(got.asnumpy(), want)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_graphs_of_sums(seed: int) -> None:
    agrees(*graph_of_sums(seed))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_random_graphs(seed: int) -> None:
    graph, inputs = random_graph(seed, exact=True)
    for want, got in zip(evaluate_graph(graph, inputs), compile_graph(graph)([Tensor(x) for x in inputs]), strict=True):
        assert same_bits(want, got.asnumpy())


def test_sums_are_joined_but_none_with_what_it_waits_for() -> None:
    """In the order of the list the group that waits may come first, since it took over earlier ops."""
    joined = 0
    for seed in range(60):
        groups = Fusion(legalize(graph_of_sums(seed)[0])).run()
        made = {v: g for g in groups for n in g.nodes for v in n.results}
        for g in groups:
            done: set[Value] = set()
            for n in g.nodes:
                for v in n.operands:
                    assert made.get(v) is not g or v in done
                done.update(n.results)
            joined += sum(bool(g.reduced) and isinstance(n.op, (ReduceSum, ReduceMax)) for n in g.nodes) > 1
    assert joined > 20


def test_groups_know_how_many_points_they_walk() -> None:
    b = Builder("rows")
    row, whole = b.input(TensorType(dt.float32, (130,))), b.input(TensorType(dt.float32, (130, 40)))
    (a,) = b.append(Abs(), (row,))
    (column,) = b.append(Reshape((130, 1)), (a,))
    (spread,) = b.append(BroadcastTo((130, 40)), (column,))
    (group,) = [g for g in Fusion(legalize(b.finish(b.append(Add(), (whole, spread))))).run() if g.domain]
    assert len(group.nodes) == 2 and group.points == volume(leaf_set(group.domain)) == 130 * 40
