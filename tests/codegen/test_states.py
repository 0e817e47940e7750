"""Loops that keep all states of what they carry in one buffer: they give what the loops did that stacked them apart, whichever values they stack."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import graphcell
from graphcell import Tensor, nn, ops
from graphcell.codegen.legalize import Copy, legalize
from graphcell.codegen.states import ForStates, keep_states
from graphcell.ir.graph import Graph, Node, Value
from graphcell.ir.op import Array, infer_types
from graphcell.ir.types import TensorType
from graphcell.ops.control import For
from graphcell.ops.dispatch import apply
from tests.codegen.test_loop_shapes import graph_of
from tests.codegen.test_team import WIDEST, all_share, check, gru, loop, normal

__all__ = ["all_share"]


def run(kept: Any, arrays: Sequence[Array], node: Node) -> list[Array]:
    """What the loop in its other form gives for the results of the one that it was."""
    found = dict(zip(kept.loop.results, kept.loop.op.eval(*(arrays[node.operands.index(v)] for v in kept.loop.operands)), strict=True))
    results = []
    for v in node.results:
        if v in kept.same:
            results.append(found[kept.same[v]])
            continue
        stack, cuts = kept.views[v]
        x = found[stack]
        for cut in cuts:
            x = cut.eval(x)
        results.append(x)
    return results


def node_of(op: For, arrays: Sequence[Array]) -> Node:
    operands = tuple(Value(TensorType(graphcell.float32, a.shape)) for a in arrays)
    return Node(op, operands, tuple(map(Value, infer_types(op, tuple(v.type for v in operands)))), None)


def random_loop(dice: random.Random) -> tuple[For, list[Array], bool]:
    """A loop, its operands, and whether it stacks something that it carries."""
    carried, trips = dice.randint(1, 3), dice.randint(2, 4)
    arrays = [normal(3, 5, seed=k) for k in range(carried)] + [normal(trips, 3, 5), normal(3, 5, seed=9)]
    after = [dice.choice(("new", "new", "new", "same", "other", "twice")) for _ in range(carried)]
    stacked = [(dice.choice(("before", "after", "else")), dice.randrange(carried)) for _ in range(dice.randint(0, 4))]

    def body(index: Any, *values: Any) -> list[Any]:
        states, x, w = values[:carried], values[-2], values[-1]
        new = [ops.tanh(h * w + x * (k + 1.0)) for k, h in enumerate(states)]
        ways = {"same": lambda k: states[k], "other": lambda k: states[(k + 1) % carried], "twice": lambda k: new[0], "new": lambda k: new[k]}
        out = [ways[way](k) for k, way in enumerate(after)]
        return [*out, *({"before": states[k], "after": out[k], "else": out[k] - x}[what] for what, k in stacked)]

    op = loop(body, trips, carried, 1, *arrays, reverse=dice.random() < 0.5)
    outputs = op.body.outputs
    alone = [k for k in range(carried) if outputs[k] not in op.body.inputs and outputs[:carried].count(outputs[k]) == 1]
    return op, arrays, any(y in (op.body.inputs[1 + k], outputs[k]) for k in alone for y in outputs[carried:])


@pytest.mark.parametrize("seed", range(80))
def test_the_other_form_gives_the_same(seed: int) -> None:
    op, arrays, stacks = random_loop(random.Random(seed))
    node = node_of(op, arrays)
    kept = keep_states(node, lambda v: True)
    assert (kept is not None) == stacks
    if kept is not None:
        for got, want in zip(run(kept, arrays, node), op.eval(*arrays), strict=True):
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("seed", range(24))
def test_a_team_goes_through_any(all_share: None, seed: int) -> None:
    op, arrays, _ = random_loop(random.Random(seed))
    check(lambda *xs: [y * 1.5 for y in apply(op, *xs)], arrays, [WIDEST] if seed % 4 else (), teams=None)


def test_what_is_returned_keeps_its_buffer() -> None:
    op, arrays, _ = random_loop(random.Random(next(s for s in range(80) if random_loop(random.Random(s))[2])))
    node = node_of(op, arrays)
    assert keep_states(node, lambda v: v not in node.results) is None
    assert "for_states" not in names(legalize(graph_of(lambda *xs: apply(op, *xs), arrays)))


def names(graph: Graph) -> list[str]:
    return [n.op.name for n in graph.nodes]


@pytest.mark.parametrize("reverse", [False, True])
def test_no_state_is_copied(reverse: bool) -> None:
    arrays = [normal(8, 16), normal(6, 8, 48), normal(16, 48)]

    def body(i: Any, h: Any, z: Any, w: Any) -> tuple[Any, ...]:
        new = gru(h, z, w)
        return new, new, h

    op = loop(body, 6, 1, 1, *arrays, reverse=reverse)
    graph = legalize(graph_of(lambda *xs: [y + 1 for y in apply(op, *xs)], arrays))
    (made,) = [n.op for n in graph.nodes if isinstance(n.op, For)]
    assert isinstance(made, ForStates) and made.states == 1
    assert not any(isinstance(n.op, Copy) for n in made.body.nodes)


def rnn(x: Any, w: Any, u: Any) -> Any:
    h = ops.zeros((x.shape[1], w.shape[0]), graphcell.float32)
    ys = []
    for k in range(x.shape[0]):
        h = ops.tanh(ops.matmul(h, w) + ops.matmul(x[k], u))
        ys.append(h)
    return ops.square(ops.stack(ys)[2:]).mean() + h.sum()


def scan(x: Any, w: Any, u: Any) -> Any:
    h = ops.zeros((x.shape[1], u.shape[1]), graphcell.float32)
    total = ops.zeros((x.shape[1],), graphcell.float32)
    for k in range(x.shape[0]):
        h = ops.exp(-ops.abs(ops.matmul(x[k], u))) * h + ops.matmul(x[k], u)
        total = total + (h * ops.matmul(h, w)).sum(-1)
    return ops.square(total).mean()


@pytest.mark.parametrize("function", [rnn, scan])
@pytest.mark.parametrize(("trips", "batch", "size"), [(9, 4, 16), (10, 5, 7), (16, 32, 24)])
def test_gradients(function: Callable[..., Any], trips: int, batch: int, size: int) -> None:
    """Against finite differences of numpy's numbers in float64."""
    arrays = [0.4 * normal(trips, batch, 6), 0.3 * normal(size, size), 0.5 * normal(6, size)]
    value, gradients = graphcell.jit(graphcell.value_and_grad(function, (0, 1, 2)))(*map(Tensor, arrays))

    def at(*xs: Array) -> float:
        x, w, u = xs
        h, total, ys = np.zeros((batch, size)), np.zeros(batch), []
        for k in range(trips):
            a = x[k] @ u
            h = np.tanh(h @ w + a) if function is rnn else np.exp(-np.abs(a)) * h + a
            ys.append(h)
            total = total + (h * (h @ w)).sum(-1)
        return float(np.square(np.stack(ys)[2:]).mean() + h.sum() if function is rnn else np.square(total).mean())

    wide = [a.astype(np.float64) for a in arrays]
    np.testing.assert_allclose(float(value.asnumpy()), at(*wide), rtol=2e-5)
    dice = np.random.default_rng(1)
    for k, gradient in enumerate(gradients):
        way = dice.standard_normal(wide[k].shape)
        moved = [at(*(a + s * 1e-6 * way if j == k else a for j, a in enumerate(wide))) for s in (1, -1)]
        np.testing.assert_allclose((gradient.asnumpy() * way).sum(), (moved[0] - moved[1]) / 2e-6, rtol=1e-3, atol=2e-4)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_layers_of_networks(bidirectional: bool) -> None:
    """Stacked layers, whose outputs are read whole, against the eager mode."""
    net = nn.LSTM(6, 8, num_layers=2, bidirectional=bidirectional)
    x = Tensor(normal(9, 3, 6))

    def loss(x: Any) -> Any:
        y, (h, c) = net(x)
        return ops.square(y).mean() + (h * c).sum()

    step = graphcell.value_and_grad(loss, 0, net.trainable_params())
    graphcell.set_context(mode=graphcell.PYNATIVE_MODE)
    value, (by_x, by_weights) = step(x)
    compiled, (of_x, of_weights) = graphcell.jit(step)(x)
    for got, want in zip((compiled, of_x, *of_weights), (value, by_x, *by_weights), strict=True):
        np.testing.assert_allclose(got.asnumpy(), want.asnumpy(), rtol=2e-4, atol=2e-6)
