"""Products of few rows leave counted loops. Values are those of the graph before, by the ops' own `eval`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphcell as ms
from graphcell import dtype as dt
from graphcell import ops
from graphcell.ir.evaluate import evaluate_graph
from graphcell.ir.graph import Graph
from graphcell.ir.op import Array
from graphcell.ir.types import TensorType
from graphcell.ir.verify import verify
from graphcell.ops.contraction import MatMul
from graphcell.ops.control import For
from graphcell.ops.dispatch import apply
from graphcell.passes.eliminate_dead import eliminate_dead
from graphcell.passes.hoist_scanned import hoist_scanned
from graphcell.tensor import Tensor
from tests.helpers import trace

RNG = np.random.default_rng(17)
STEPS = 5


def normal(*shape: int) -> Array:
    return RNG.standard_normal(shape)


def types(*arrays: Array) -> list[TensorType]:
    return [TensorType(dt.from_numpy(a.dtype), a.shape) for a in arrays]


def loop(body: Callable[..., Any], carried: list[Array], scanned: list[Array], invariant: list[Array], reverse: bool = False) -> tuple[Graph, list[Array]]:
    """A graph of one loop, and its inputs."""
    arrays = [*carried, *scanned, *invariant]
    inner = trace(body, *types(np.array(0), *carried, *(x[0] for x in scanned), *invariant))
    op = For(inner, STEPS, len(carried), len(scanned), reverse)
    return trace(lambda *xs: apply(op, *xs), *types(*arrays)), arrays


def products(graph: Graph) -> tuple[int, int]:
    """Products in the graph itself, and in its loops."""
    own = sum(isinstance(n.op, MatMul) for n in graph.nodes)
    return own, sum(isinstance(n.op, MatMul) for n in graph.walk()) - own


def moved(graph: Graph, arrays: list[Array]) -> Graph:
    after = eliminate_dead(hoist_scanned(graph))
    verify(after)
    for want, got in zip(evaluate_graph(graph, arrays), evaluate_graph(after, arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)
    return after


W, V, H, X = normal(40, 32), normal(32, 32), normal(2, 32), normal(STEPS, 2, 40)


def recurrent(i: Tensor, h: Tensor, x: Tensor, w: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    h = ops.tanh(ops.matmul(x, w) + ops.matmul(h, v))
    return h, h


@pytest.mark.parametrize("reverse", [False, True])
def test_the_projection_of_scanned_rows_moves_before_the_loop(reverse: bool) -> None:
    graph, arrays = loop(recurrent, [H], [X], [W, V], reverse)
    assert products(graph) == (0, 2)
    assert products(moved(graph, arrays)) == (1, 1)


BODIES: dict[str, Callable[..., Any]] = {
    "transposed_matrix": lambda i, h, x, w, v: (ops.tanh(ops.matmul(x, w.T.reshape(32, 40).T) + h),),
    "of_elementwise": lambda i, h, x, w, v: (ops.matmul(ops.tanh(x) * 2.0 + x, w) + h,),
    "of_rows": lambda i, h, x, w, v: (ops.matmul((x - x.mean(1, keep_dims=True)) * ops.rsqrt(x.var(1, keepdims=True) + 1.0), w) + h,),
    "with_an_invariant": lambda i, h, x, w, v: (ops.matmul(x * w.sum(1), w) + h,),
    "of_a_product": lambda i, h, x, w, v: (ops.matmul(ops.relu(ops.matmul(x, w)), v) + h,),
    "of_a_part": lambda i, h, x, w, v: (ops.matmul(x[:, 1:], w[1:]) + ops.matmul(x[1:], w).sum(0) + h,),
    "of_one_row": lambda i, h, x, w, v: (ops.matmul(x[0], w) + h,),
    "of_turned_rows": lambda i, h, x, w, v: (ops.matmul(x.T.reshape(2, 40), w) + h,),
    "both_ways": lambda i, h, x, w, v: (ops.matmul(x, w) * ops.matmul(x, w).sum() + h,),
}


@pytest.mark.parametrize("name", BODIES)
def test_what_rows_are_made_of_moves_with_them(name: str) -> None:
    graph, arrays = loop(BODIES[name], [H], [X], [W, V])
    before, after = products(graph), products(moved(graph, arrays))
    assert before[0] == 0 and after[0] > 0 and after[1] == 0


STAY: dict[str, Callable[..., Any]] = {
    "of_what_is_carried": lambda i, h, x, w, v: (ops.matmul(h, v),),
    "with_the_number_of_the_step": lambda i, h, x, w, v: (ops.matmul(x * i.astype(dt.float64), w) + h,),
    "of_two_scanned": lambda i, h, x, w, v: (ops.matmul(x, x.T).sum() + h,),
    "weights_that_change": lambda i, h, x, w, v: (ops.matmul(x, w * h.sum()) + h,),
}


@pytest.mark.parametrize("name", STAY)
def test_what_depends_on_the_step_stays(name: str) -> None:
    graph, arrays = loop(STAY[name], [H], [X], [W, V])
    assert products(moved(graph, arrays)) == products(graph)


def test_many_rows_and_small_matrices_stay() -> None:
    for x, w in ((normal(STEPS, 17, 40), W), (X[..., :8], normal(8, 32))):
        graph, arrays = loop(lambda i, h, x, w: (ops.matmul(x, w).sum(0) + h,), [normal(32)], [x], [w])
        assert products(moved(graph, arrays)) == (0, 1)


def test_little_memory_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, arrays = loop(recurrent, [H], [X], [W, V])
    monkeypatch.setattr("graphcell.passes.hoist_scanned.MOST_BYTES", 1000)
    assert products(moved(graph, arrays)) == (0, 2)


def stacked(i: Tensor, h: Tensor, x: Tensor, w: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    """The gradient of a recurrent layer's input: its rows are carried on, its results only collected."""
    h = ops.tanh(h * x[:, :32])
    return h, ops.matmul(h, w.T)


@pytest.mark.parametrize("reverse", [False, True])
def test_products_that_are_only_collected_follow_the_loop(reverse: bool) -> None:
    graph, arrays = loop(stacked, [H], [X], [W, V], reverse)
    assert products(moved(graph, arrays)) == (1, 0)


def test_rows_that_are_stacked_already_are_stacked_once() -> None:
    def body(i: Tensor, h: Tensor, x: Tensor, w: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        h = ops.tanh(h * x[:, :32])
        return h, ops.matmul(h, v), h, ops.matmul(h, v.T)

    graph, arrays = loop(body, [H], [X], [W, V])
    after = moved(graph, arrays)
    assert products(after) == (2, 0)
    (op,) = [n.op for n in after.nodes if isinstance(n.op, For)]
    assert len(op.body.outputs) == 2


def test_products_that_are_read_in_the_loop_stay() -> None:
    def body(i: Tensor, h: Tensor, x: Tensor, w: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        y = ops.matmul(h, v)
        return ops.tanh(y), y

    graph, arrays = loop(body, [H], [X], [W, V])
    assert products(moved(graph, arrays)) == (0, 1)


def test_a_loop_in_a_loop() -> None:
    inner = For(trace(recurrent, *types(np.array(0), H, X[0], W, V)), STEPS, 1, 1)

    def outer(i: Tensor, h: Tensor, w: Tensor, v: Tensor, x: Tensor) -> Tensor:
        return apply(inner, h, x, w, v)[0]

    graph, arrays = loop(outer, [H], [], [W, V, X])
    assert products(moved(graph, arrays)) == (0, 2)
    (op,) = [n.op for n in moved(graph, arrays).nodes if isinstance(n.op, For)]
    assert products(op.body) == (1, 1)


def test_training_a_recurrent_net_is_as_with_finite_differences() -> None:
    """Two layers over a sequence, one row a step: the gradient with respect to input and weights, in graph mode."""
    x, w, u = (Tensor(normal(*s).astype(np.float32) * 0.2) for s in ((7, 1, 40), (40, 32), (32, 32)))

    def loss(x: Tensor, w: Tensor, u: Tensor) -> Tensor:
        h, k, total = ops.zeros((1, 32), ms.float32), ops.zeros((1, 32), ms.float32), ops.zeros((), ms.float32)
        for i in range(x.shape[0]):
            h = ops.tanh(ops.matmul(x[i], w) + ops.matmul(h, u))
            k = ops.tanh(ops.matmul(h, u) + k)
            total = total + (k * k).sum()
        return total

    def reference(arrays: list[Array]) -> float:
        a, b, c = arrays
        h, k, total = np.zeros((1, 32)), np.zeros((1, 32)), 0.0
        for i in range(7):
            h = np.tanh(a[i] @ b + h @ c)
            k = np.tanh(h @ c + k)
            total += float((k * k).sum())
        return total

    arrays = [t.asnumpy().astype(np.float64) for t in (x, w, u)]
    value, grads = ms.jit(ms.value_and_grad(loss, (0, 1, 2)))(x, w, u)
    np.testing.assert_allclose(value.asnumpy(), reference(arrays), rtol=1e-5)
    for k, g in enumerate(grads):
        for _ in range(6):
            at = tuple(RNG.integers(0, d) for d in arrays[k].shape)
            sides = []
            for step in (1e-5, -1e-5):
                moved_arrays = [a.copy() for a in arrays]
                moved_arrays[k][at] += step
                sides.append(reference(moved_arrays))
            np.testing.assert_allclose(g.asnumpy()[at], (sides[0] - sides[1]) / 2e-5, rtol=2e-3, atol=2e-5)
