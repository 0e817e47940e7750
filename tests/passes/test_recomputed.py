"""Graphs that are computed again for their gradients: the same bits as without, in one graph or two, and nothing of them is kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphcell.ops as ops
from graphcell import dtype as dt
from graphcell.errors import NoGradientError
from graphcell.ir.evaluate import evaluate_graph
from graphcell.ir.graph import Builder, Graph
from graphcell.ir.op import Array
from graphcell.ir.parser import parse
from graphcell.ir.text import print_graph
from graphcell.ir.types import TensorType
from graphcell.ir.verify import verify
from graphcell.ops.control import For, Recomputed
from graphcell.ops.dispatch import apply
from graphcell.ops.mathematics import Exp, Tanh
from graphcell.ops.movement import Fence
from graphcell.passes.autodiff import split_vjp, vjp
from graphcell.passes.pipeline import run_pipeline
from tests.helpers import trace
from tests.passes.cases import same_bits
from tests.passes.random_graphs import random_graph

SEEDS = range(40)


def f64(*shape: int) -> TensorType:
    return TensorType(dt.float64, shape)


def count(graph: Graph, cls: type) -> int:
    return sum(isinstance(node.op, cls) for node in graph.walk())


def wrapped(graph: Graph, outputs: bool, times: int = 1) -> Graph:
    """A graph of one `recomputed` node that holds `graph`, or holds another that does."""
    for _ in range(times):
        b = Builder("outer")
        inputs = [b.input(v.type, v.name) for v in graph.inputs]
        graph = b.finish(b.append(Recomputed(graph, outputs), inputs))
    return graph


def case(seed: int) -> tuple[Graph, list[Array], list[int], list[Array]] | None:
    """A graph, inputs, the float inputs, cotangents; None where an op has no gradient."""
    graph, inputs = random_graph(seed, exact=False)
    wrt = [k for k, v in enumerate(graph.inputs) if v.type.dtype.is_float]
    rng = np.random.default_rng(seed)
    cotangents = [rng.normal(size=v.type.shape).astype(v.type.dtype.np_type) for v in graph.outputs if v.type.dtype.is_float]
    try:
        vjp(graph, wrt)
    except NoGradientError:
        return None
    return graph, inputs, wrt, cotangents


@pytest.mark.slow
@pytest.mark.parametrize(("outputs", "times"), [(False, 1), (True, 1), (False, 2)])
@pytest.mark.parametrize("seed", SEEDS)
def test_random_graphs_keep_their_bits(seed: int, outputs: bool, times: int) -> None:
    found = case(seed)
    if found is None:
        return
    graph, inputs, wrt, cotangents = found
    outer = wrapped(graph, outputs, times)
    joint = vjp(outer, wrt)
    verify(joint)
    with np.errstate(all="ignore"):
        want = evaluate_graph(vjp(graph, wrt), [*inputs, *cotangents])
        got = evaluate_graph(joint, [*inputs, *cotangents])
        assert all(map(same_bits, want, got))
        split = split_vjp(outer, wrt)
        verify(split.forward)
        verify(split.backward)
        results = evaluate_graph(split.forward, inputs)
        held = [*(inputs[k] for k in split.inputs), *(results[k] for k in split.outputs), *results[len(graph.outputs) :]]
        assert all(map(same_bits, want[len(graph.outputs) :], evaluate_graph(split.backward, [*held, *cotangents])))
    assert not split.residuals


def test_most_random_graphs_have_gradients() -> None:
    """The test above would be idle without."""
    assert sum(case(seed) is not None for seed in SEEDS) > 20


def test_what_is_computed_again() -> None:
    """Everything but results that were kept, behind fences, which keep it apart from the first computation."""

    def inner(x: Any) -> Any:
        return ops.tanh(ops.exp(ops.tanh(x)))

    graph = wrapped(trace(inner, f64(3)), False)
    joint = vjp(graph, (0,))
    assert (count(joint, Tanh), count(joint, Exp), count(joint, Fence)) == (3, 2, 1)  # the last tanh is a result
    after = run_pipeline(joint)[0]
    assert (count(after, Tanh), count(after, Exp)) == (3, 2)
    with_results = vjp(wrapped(trace(inner, f64(3)), True), (0,))
    assert (count(with_results, Tanh), count(with_results, Exp)) == (4, 2)
    assert count(run_pipeline(graph)[0], Tanh) == 2  # without a gradient it is its graph
    assert print_graph(parse(print_graph(graph))) == print_graph(graph) and "recomputed[outputs=False]" in print_graph(graph)


def test_a_loop_inside_stacks_late() -> None:
    """The first run of the loop leaves no residuals; the second stacks them."""
    body = trace(lambda index, x: ops.exp(ops.tanh(x)), TensorType(dt.int64, ()), f64(5))
    loop = trace(lambda x: apply(For(body, 7, 1, 0), x)[0], f64(5))
    kept, again = split_vjp(loop, (0,)), split_vjp(wrapped(loop, False), (0,))
    stacked = [v.type for v in kept.residuals]
    assert stacked and all(t.shape[0] == 7 for t in stacked)
    assert not again.residuals and [len(n.results) for n in again.forward.nodes] == [1]
    x, g = np.linspace(-1, 1, 5), np.ones(5)
    want = evaluate_graph(vjp(loop, (0,)), [x, g])
    assert all(map(same_bits, want, evaluate_graph(vjp(wrapped(loop, False), (0,)), [x, g])))


def test_effects_happen_once() -> None:
    def inner(x: Any) -> Any:
        ops.print_("seen", x)
        return ops.exp(x) * ops.exp(x)

    joint = vjp(wrapped(trace(inner, f64(2)), False), (0,))
    assert sum(node.op.name == "print" for node in joint.walk()) == 1 and count(joint, Exp) == 4
