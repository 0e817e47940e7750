"""Values computed again instead of stored: same bits, less memory, nothing changed where nothing stands between; and what is saved."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphcell as ms
from graphcell import dtype as dt
from graphcell import nn, ops
from graphcell.codegen.lower import lower
from graphcell.ir.evaluate import evaluate_graph
from graphcell.ir.graph import Graph, Node, Value
from graphcell.ir.types import TensorType
from graphcell.ir.verify import verify
from graphcell.ops.arithmetic import Relu
from graphcell.ops.dispatch import apply1
from graphcell.ops.gelus import Gelu, GeluSlope
from graphcell.ops.mathematics import Erf, Exp
from graphcell.ops.random import RandomUniform
from graphcell.passes import recompute as module
from graphcell.passes import residuals
from graphcell.passes.autodiff import split_vjp, vjp
from graphcell.passes.eliminate_dead import eliminate_dead
from graphcell.passes.pipeline import PIPELINE, run_pipeline
from graphcell.passes.recompute import recompute
from graphcell.tensor import Tensor
from tests.codegen.plans import TARGETS
from tests.helpers import trace
from tests.passes.cases import same_bits
from tests.passes.random_graphs import random_graph

RNG = np.random.default_rng(8)
WITHOUT = tuple((name, run) for name, run in PIPELINE if name != "recompute")


def f32(*shape: int) -> TensorType:
    return TensorType(dt.float32, shape)


def count(graph: Graph, cls: type) -> int:
    return sum(isinstance(node.op, cls) for node in graph.walk())


def block(x: Tensor, up: Tensor, bias: Tensor, down: Tensor) -> Tensor:
    z = ops.matmul(x, up) + bias
    y = ops.matmul(z * 0.5 * (1.0 + ops.erf(z * 0.7071067811865476)), down)  # gelu, of the ops that it is made of
    return (y * y * y).sum()


BLOCK = [f32(256, 64), f32(64, 256), f32(256), f32(256, 64)]


def arrays_of(graph: Graph) -> list[np.ndarray]:  # type: ignore[type-arg]
    return [RNG.standard_normal(v.type.shape).astype(v.type.dtype.np_type) for v in graph.inputs]


def test_what_gelu_needs_late_is_computed_from_its_input() -> None:
    joint = vjp(trace(block, *BLOCK), (0, 1, 2, 3))
    before, after = run_pipeline(joint, passes=WITHOUT)[0], run_pipeline(joint)[0]
    verify(after)
    assert (count(before, Erf), count(after, Erf)) == (1, 2)
    assert (count(before, Exp), count(after, Exp)) == (1, 1)  # moved, not repeated
    arrays = arrays_of(joint)
    for x, y in zip(evaluate_graph(before, arrays), evaluate_graph(after, arrays), strict=True):
        assert same_bits(x, y)
    target = TARGETS[max(TARGETS)]
    assert lower(after, (), target).arena_bytes < lower(before, (), target).arena_bytes


def test_the_slope_of_gelu_is_computed_where_it_is_read() -> None:
    """It is read late only, and what it is made of is in memory: the product has no epilogue, since a slow function follows."""

    def f(x: Tensor, up: Tensor, bias: Tensor, down: Tensor) -> Tensor:
        y = ops.matmul(ops.gelu(ops.matmul(x, up) + bias), down)
        return (y * y * y).sum()

    joint = vjp(trace(f, *BLOCK), (0, 1, 2, 3))
    after = run_pipeline(joint)[0]
    assert (count(after, Gelu), count(after, GeluSlope)) == (1, 1)
    late = lower(after, (), TARGETS[max(TARGETS)])
    kernels = [step.kernel for step in late.steps]
    assert not any("= gelu " in kernel and "gelu_slope" in kernel for kernel in kernels)
    arrays = arrays_of(joint)
    for x, y in zip(evaluate_graph(joint, arrays), evaluate_graph(after, arrays), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-4 * max(1.0, float(np.abs(x).max())))


def test_nothing_changes_where_forward_and_backward_are_one_kernel() -> None:
    def f(x: Tensor) -> Tensor:
        return (ops.tanh(x * 0.5 + 0.1) * ops.sigmoid(x) + ops.exp(-x * x)).sum()

    graph = run_pipeline(vjp(trace(f, f32(512, 512)), (0,)), passes=WITHOUT)[0]
    assert recompute(graph) is graph


def test_what_is_made_of_inputs_alone_stays() -> None:
    """A moment of an optimizer, scaled before its gradient is known, is fused with the update anyway."""

    def f(x: Tensor, w: Tensor, moment: Tensor) -> Tensor:
        return moment * 0.9 + ops.matmul(x, w)

    graph = run_pipeline(trace(f, f32(256, 256), f32(256, 256), f32(256, 256)), passes=WITHOUT)[0]
    assert recompute(graph) is graph


def test_small_values_stay() -> None:
    types = [f32(8, 16), f32(16, 8), f32(8), f32(8, 16)]
    graph = run_pipeline(vjp(trace(block, *types), (0, 1, 2, 3)), passes=WITHOUT)[0]
    assert recompute(graph) is graph


def test_a_dropout_mask_is_stored_in_bits_that_cost_less_than_random_numbers() -> None:
    def f(x: Tensor, w: Tensor, index: Tensor, seed: Tensor) -> Tensor:
        uniform = apply1(RandomUniform(dt.float32), index, seed.broadcast_to(index.shape), seed.broadcast_to(index.shape))
        y = ops.matmul(x, w)
        z = ops.matmul(ops.where(uniform >= 0.5, ops.tanh(y) * 2.0, ops.zeros_like(y)), w)
        return (z * z * z).sum()

    types = [f32(256, 256), f32(256, 256), TensorType(dt.int64, (256, 256)), TensorType(dt.int64, ())]
    assert count(run_pipeline(vjp(trace(f, *types), (0, 1)))[0], RandomUniform) == 1


@pytest.mark.parametrize("seed", range(60))
def test_random_graphs_keep_their_bits(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SMALLEST", 0)
    graph, sample = random_graph(seed, exact=False)
    before = run_pipeline(graph, passes=WITHOUT)[0]
    for start in (graph, before):
        after = recompute(start)
        verify(after)
        verify(eliminate_dead(after))
        with np.errstate(all="ignore"):
            for x, y in zip(evaluate_graph(start, sample), evaluate_graph(after, sample), strict=True):
                assert same_bits(x, y)


def test_random_gradients_do_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above would be idle if the pass never found anything in such graphs."""
    monkeypatch.setattr(module, "SMALLEST", 0)
    graph = run_pipeline(vjp(trace(block, f32(3, 4), f32(4, 5), f32(5), f32(5, 4)), (0, 1)), passes=WITHOUT)[0]
    after = recompute(graph)
    assert after is not graph
    arrays = arrays_of(graph)
    for x, y in zip(evaluate_graph(graph, arrays), evaluate_graph(after, arrays), strict=True):
        assert same_bits(x, y)


# -- two graphs ------------------------------------------------------------------------------------------------------------------
def saved_types(f: object, *types: TensorType) -> list[TensorType]:
    split = split_vjp(trace(f, *types), range(len(types)))  # type: ignore[arg-type]
    verify(split.forward)
    verify(split.backward)
    return [v.type for v in split.residuals]


def test_cheap_values_are_not_saved() -> None:
    """Of relu(x w + b) only the product is saved: 1 value where the greedy rule knew 1, but also through two layers of cheap ops."""

    def f(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        y = ops.matmul(x, w) + b
        return ops.relu(y * 2.0 - 1.0) * y

    assert saved_types(f, f32(32, 16), f32(16, 8), f32(8)) == [f32(32, 8)]


def test_a_narrow_value_is_saved_rather_than_the_wide_ones_made_of_it() -> None:
    def f(x: Tensor, w: Tensor) -> Tensor:
        row = ops.exp(ops.matmul(x, w))  # (4, 1)
        wide = row.broadcast_to((4, 64))
        return wide * wide * 0.5 + wide

    assert all(t.size <= 4 for t in saved_types(f, f32(4, 8), f32(8, 1)))


def test_inputs_and_outputs_are_never_saved_again() -> None:
    def f(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        e = ops.exp(x)
        return e, e * y

    assert saved_types(f, f32(16), f32(16)) == []


@pytest.mark.parametrize("seed", range(30))
def test_split_gradients_of_random_programs(seed: int) -> None:
    """What was saved suffices: the two graphs give what the joint one gives, to the bit."""
    rng = np.random.default_rng(seed)
    picks = rng.integers(0, 6, 7)

    def f(x: Tensor, w: Tensor) -> Tensor:
        values = [x, ops.matmul(x, w)]
        for k in picks:
            a, b = values[-1], values[int(rng.integers(0, len(values)))]
            step = (a + b, a * b, ops.tanh(a) - b, ops.relu(a) * 2.0, ops.matmul(a, w), (a - a.mean(1, keep_dims=True)) * b)[k]
            values.append(step)
        return values[-1]

    graph = trace(f, f32(6, 6), f32(6, 6))
    split = split_vjp(graph, (0, 1))
    x, w, g = (rng.standard_normal((6, 6)).astype(np.float32) * 0.5 for _ in range(3))
    forward = evaluate_graph(split.forward, [x, w])
    saved = forward[len(graph.outputs) :]
    held = [(x, w)[k] for k in split.inputs] + [forward[k] for k in split.outputs] + list(saved)
    with np.errstate(all="ignore"):
        got = evaluate_graph(split.backward, [*held, g])
        want = evaluate_graph(vjp(graph, (0, 1)), [x, w, g])[1:]
    for a, b in zip(got, want, strict=True):
        assert same_bits(a, b)


@pytest.mark.parametrize("seed", range(60))
def test_what_few_values_are_made_of_is_tried_with_the_result_of_the_cut(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs with costs at random: storing what the trial says, or what networkx says, costs the same."""
    random = np.random.default_rng(seed)
    values = [Value(f32(1)) for _ in range(int(random.integers(2, 14)))]
    read = values[: int(random.integers(1, 4))]
    made = {}
    for k, v in enumerate(values[:-1]):
        operands = [values[i] for i in random.integers(k + 1, len(values), int(random.integers(0, 3)))]
        if random.random() < 0.7 or k == 0:
            made[v] = Node(Relu(), tuple(operands), (v,))
    store = {v: math.inf if v in made and random.random() < 0.1 else 1.0 + 8.0 * random.random() for v in values}
    again = {v: 3.0 * random.random() for v in made}
    cone = list(residuals.cone_of(read, made.get))
    monkeypatch.setattr(residuals, "_FEW_SHARED", 99)
    with monkeypatch.context() as context:
        context.setattr(residuals, "_networkx", lambda: pytest.fail("networkx was asked"))
        tried = residuals.cheapest_cut(cone, made.get, store, again, read)
    monkeypatch.setattr(residuals, "_FEW", 0)
    late = residuals.cheapest_cut(cone, made.get, store, again, read)

    def cost(late: set[Value]) -> float:
        kept = ({x for v in late for x in made[v].operands} | set(read)) - late
        return sum(store[v] for v in kept) + sum(again[v] for v in late)

    assert abs(cost(tried) - cost(late)) < 0.01  # networkx is asked in whole units


NORMED_DENSE = (nn.Dense(64, 128), nn.GELU(), nn.Dense(128, 64), nn.LayerNorm((64,)), nn.Dense(64, 128), nn.GELU(), nn.Dense(128, 64), nn.LayerNorm((64,)))
NORMED_CONVOLUTIONS = (nn.Conv2d(8, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 8, 1))


@pytest.mark.parametrize(("cells", "shape"), [(NORMED_DENSE, (256, 64)), (NORMED_CONVOLUTIONS, (4, 8, 20, 20))])
def test_usual_networks_need_no_networkx(cells: tuple[nn.Cell, ...], shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Normalised layers between products and their gradients: importing networkx would take a tenth of the first call."""
    net = nn.SequentialCell(*cells).set_train()
    tried, asked = residuals._cheapest_tried, []

    def counted(*question: Any) -> set[Value]:
        asked.append(question)
        return tried(*question)

    monkeypatch.setattr(residuals, "_networkx", lambda: pytest.fail("networkx was asked"))
    monkeypatch.setattr(residuals, "_cheapest_tried", counted)
    step = ms.jit(ms.value_and_grad(lambda x: (net(x) ** 2).sum(), None, net.trainable_params()))
    step(Tensor(RNG.standard_normal(shape).astype(np.float32)))
    assert asked


def test_an_interrupted_import_of_networkx_is_begun_anew(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("""
import importlib.abc, sys
import graphcell as ms
from graphcell import ops
from graphcell.passes import residuals

residuals._FEW = 0  # no question is small

class Interrupt(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == "networkx.algorithms.shortest_paths.weighted":
            sys.meta_path.remove(self)
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupt())

def loss(x):
    y = ops.matmul(x, x)
    z = ops.relu(y) + y
    return (ops.tanh(z * y) * ops.sigmoid(y - z)).sum()

x = ops.zeros((2, 2))
try:
    ms.grad(ms.jit(loss))(x)
except KeyboardInterrupt:
    print("interrupted")
print(ms.grad(ms.jit(loss))(x).sum())
""")
    environment = {**os.environ, "GRAPHCELL_CACHE": "0", "PYTHONPATH": str(Path(module.__file__).parents[2])}
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=600, env=environment)
    assert done.stdout == "interrupted\n0.0\n", done.stderr
