"""Where the temporaries of a program lie: apart where that takes little memory, else where others lay before; the numbers are the same."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest

import graphcell
from graphcell import Tensor, nn, ops
from graphcell.codegen import lower
from graphcell.codegen.llvm.target import host
from graphcell.codegen.memory import Interval, aligned_size, plan_apart, plan_arena
from graphcell.codegen.program import Program
from graphcell.passes.pipeline import run_pipeline
from tests.codegen.test_loop_shapes import graph_of, normal
from tests.codegen.test_team import ORDERS, Runner
from tests.codegen.turn_taking import TurnTaking


@pytest.mark.parametrize("seed", range(20))
def test_temporaries_lie_apart_up_to_a_limit(seed: int) -> None:
    dice = random.Random(seed)
    sizes = [dice.choice((1, 64, 100, 4096)) for _ in range(dice.randint(0, 12))]
    firsts = [dice.randint(0, 9) for _ in sizes]
    items = [Interval(size, first, first + dice.randint(0, 3)) for size, first in zip(sizes, firsts, strict=True)]
    whole = sum(map(aligned_size, sizes))
    assert plan_apart(items, whole) == whole
    places = sorted((i.offset, i.offset + i.size) for i in items)
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(places)) and all(i.offset % 64 == 0 for i in items)
    if whole:
        others = [Interval(i.size, i.first, i.last) for i in items]
        assert plan_apart(items, whole - 1) == plan_arena(others) and items == others


def chain(x: Any, w: Any) -> Any:
    for _ in range(6):
        x = ops.softmax(ops.matmul(x, w), -1)
    return x


def program(apart: int, monkeypatch: pytest.MonkeyPatch) -> Program:
    monkeypatch.setattr(lower, "_APART", apart)
    return lower.lower(run_pipeline(graph_of(chain, [normal(40, 64), normal(64, 64)]))[0], (), host())


def test_small_programs_share_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    shared, apart = (program(n, monkeypatch).arena_bytes for n in (0, 4))
    assert shared < 4 * 40 * 64 * 4 <= apart


def test_apart_or_not_the_numbers_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """On memory full of NaN, and whatever the order of threads."""
    arrays = [normal(40, 64), normal(64, 64)]
    found = []
    for apart in (0, 4):
        monkeypatch.setattr(lower, "_APART", apart)
        runner = Runner(graph_of(chain, arrays), host())
        found += [runner.run(arrays, TurnTaking(order))[0].tobytes() for order in ORDERS]
    assert len(set(found)) == 1


def test_a_training_step_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    losses = []
    for apart in (0, 4):
        monkeypatch.setattr(lower, "_APART", apart)
        graphcell.set_seed(3)
        net = nn.SequentialCell(nn.Dense(20, 48), nn.ReLU(), nn.Dense(48, 48), nn.Tanh(), nn.Dense(48, 5))
        for k, p in enumerate(net.trainable_params()):
            p.set_data(Tensor(0.2 * np.random.default_rng(k).standard_normal(p.shape).astype(np.float32)))
        optimizer = nn.Adam(net.trainable_params(), learning_rate=1e-2)
        gradient = graphcell.value_and_grad(lambda x, y, net=net: ops.cross_entropy(net(x), y), None, optimizer.parameters)

        @graphcell.jit
        def step(x: Any, y: Any, gradient: Any = gradient, optimizer: Any = optimizer) -> Any:
            loss, found = gradient(x, y)
            return ops.depend(loss, optimizer(found))

        x, y = Tensor(np.random.default_rng(7).standard_normal((64, 20)).astype(np.float32)), Tensor(np.arange(64, dtype=np.int32) % 5)
        losses.append([step(x, y).asnumpy().tobytes() for _ in range(5)])
    assert losses[0] == losses[1]
