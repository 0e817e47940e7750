"""Concatenations whose parts go on alone: programs whole, against numpy in double and without the pass (golden/part_by_part.ir has the rules)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from graphcell import dtype as dt
from graphcell import ops
from graphcell.codegen.fuse import fuse
from graphcell.codegen.legalize import legalize
from graphcell.ir.evaluate import evaluate_graph
from graphcell.ir.graph import Graph
from graphcell.ir.types import TensorType
from graphcell.ops.dispatch import apply1
from graphcell.ops.movement import BroadcastTo, Concat
from graphcell.passes.autodiff import vjp
from graphcell.passes.part_by_part import part_by_part
from graphcell.passes.pipeline import PIPELINE, run_pipeline
from graphcell.runtime.executable import compile_graph
from graphcell.tensor import Tensor
from tests.helpers import trace

RNG = np.random.default_rng(12)
WITHOUT = tuple((name, run) for name, run in PIPELINE if name not in ("take_apart", "part_by_part"))
Function = Callable[..., Tensor]


def energy(d: Tensor) -> Tensor:
    """Of matrices whose elements are named one by one: the gradient puts theirs together and adds to them."""
    a, b, c, e = d[0, 0], d[0, 1], d[1, 0], d[1, 1]
    volume = ops.log(a * e - b * c)
    return (ops.square(d).sum((0, 1)) - 2.0 * volume + volume * volume).sum()


def halves(x: Tensor) -> Tensor:
    """Halves that are normalised in two ways."""
    a, b = ops.split(x, 3, 1)
    a = (a - a.mean((2,), keep_dims=True)) * ops.rsqrt(a.var((2,), keepdims=True) + 1e-3)
    b = (b - b.mean((0, 2), keep_dims=True)) * ops.rsqrt(b.var((0, 2), keepdims=True) + 1e-3)
    y = ops.cat((a, b), 1)
    return (y * ops.sigmoid(y) * ops.abs(x)).sum()


def gradient(fn: Function, *shape: int, dtype: Any = dt.float32) -> Graph:
    return vjp(trace(fn, TensorType(dtype, shape)), (0,))


def arguments(*shape: int) -> list[np.ndarray[Any, Any]]:
    x = 0.1 * RNG.standard_normal(shape)
    if shape[:2] == (2, 2):
        x += np.eye(2)[:, :, None]
    return [x, np.ones(())]


@pytest.mark.parametrize(("fn", "shape"), [(energy, (2, 2, 5003)), (halves, (2, 6, 2111))])
def test_gradients(fn: Function, shape: tuple[int, ...]) -> None:
    given = arguments(*shape)
    want = evaluate_graph(gradient(fn, *shape, dtype=dt.float64), given)
    got = compile_graph(gradient(fn, *shape))([Tensor(x.astype(np.float32)) for x in given])
    for w, g in zip(want, got, strict=True):
        np.testing.assert_allclose(g.asnumpy(), w, rtol=1e-4, atol=1e-4 * np.abs(w).max())


def gated(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A layer norm whose halves gate each other: the gradient of its bias sums what the halves hand back, put together."""
    y = ops.layer_norm(x, (2400,), weight, bias)
    a, b = ops.chunk(y, 2, axis=-1)
    return ops.square(a * ops.gelu(b)).sum()


def test_the_bias_of_halves_is_summed_beside_the_rows() -> None:
    types = [TensorType(dt.float32, shape) for shape in ((64, 2400), (2400,), (2400,))]
    graph = vjp(trace(gated, *types), (0, 1, 2))
    after, _ = run_pipeline(graph)
    wholes = [n for n in after.nodes if isinstance(n.op, Concat)]
    assert all(n.results[0] in after.outputs for n in wholes)
    given = [*(RNG.standard_normal(t.shape) for t in types), np.ones(())]
    doubles = vjp(trace(gated, *(TensorType(dt.float64, t.shape) for t in types)), (0, 1, 2))
    want = evaluate_graph(doubles, given)
    got = compile_graph(graph)([Tensor(x.astype(np.float32)) for x in given])
    for w, g in zip(want, got, strict=True):
        np.testing.assert_allclose(g.asnumpy(), w, rtol=1e-4, atol=1e-4 * np.abs(w).max())


@pytest.mark.parametrize("axis", [0, 2])
def test_a_moving_average_needs_no_stack(axis: int) -> None:
    def fn(x: Tensor) -> Tensor:
        return ops.square(ops.stack([x[:, k : k + 480] for k in range(20)], axis).mean(axis)).sum()

    graph, given = gradient(fn, 16, 499), [RNG.standard_normal((16, 499)), np.ones(())]
    after, _ = run_pipeline(graph)
    assert all(len(n.operands) < 20 for n in after.nodes if isinstance(n.op, Concat))
    want = evaluate_graph(gradient(fn, 16, 499, dtype=dt.float64), given)
    got = compile_graph(graph)([Tensor(x.astype(np.float32)) for x in given])
    for w, g in zip(want, got, strict=True):
        np.testing.assert_allclose(g.asnumpy(), w, rtol=1e-4, atol=1e-4 * np.abs(w).max())


def kernels(graph: Graph) -> int:
    groups, _ = fuse(legalize(graph))
    return sum(1 for g in groups if g.values)


def test_named_elements_and_their_gradients_are_one_loop_nest() -> None:
    graph = gradient(energy, 2, 2, 5003)
    after, _ = run_pipeline(graph)
    assert sum(isinstance(n.op, Concat) for n in after.nodes) == 1  # written in place, by the kernel that makes all parts
    assert kernels(after) < kernels(run_pipeline(graph, passes=WITHOUT)[0])


def test_halves_are_never_put_together() -> None:
    """But for the gradient of the input, which is returned."""
    graph = gradient(halves, 2, 6, 2111)
    after, _ = run_pipeline(graph)
    made = [n for n in after.nodes if isinstance(n.op, Concat)]
    assert all(n.results[0] in after.outputs for n in made)
    assert sum(isinstance(n.op, Concat) for n in run_pipeline(graph, passes=WITHOUT)[0].nodes) > len(made)


@pytest.mark.parametrize("small", [(1024,), (1, 1024)])
def test_broadcasts_of_broadcasts_are_cut(small: tuple[int, ...]) -> None:
    """The dimension of the parts is one that the first of them made."""

    def fn(x: Tensor, y: Tensor, v: Tensor) -> Tensor:
        whole = ops.cat((ops.tanh(x), ops.exp(y)), 2)
        return whole * apply1(BroadcastTo((2, 4, 6, 1024)), apply1(BroadcastTo((6, 1024)), v))

    graph = trace(fn, *(TensorType(dt.float32, s) for s in ((2, 4, 3, 1024), (2, 4, 3, 1024), small)))
    arrays = [RNG.standard_normal(v.type.shape).astype(np.float32) for v in graph.inputs]
    after = part_by_part(graph)
    assert after is not graph
    for want, got in zip(evaluate_graph(graph, arrays), evaluate_graph(after, arrays), strict=True):
        np.testing.assert_array_equal(got, want)
