"""On random graphs with regions, three ways to the gradient give the same: one graph, two graphs with residuals, the tape op by op. So do
the same graph after every pass, and gradients of gradients."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import graphcell.ops  # noqa: F401  (attaches the operators)
from graphcell.errors import NoGradientError
from graphcell.ir.evaluate import evaluate_graph
from graphcell.ir.graph import Graph
from graphcell.ir.op import Array
from graphcell.ir.verify import verify
from graphcell.ops.control import GraphCall
from graphcell.ops.dispatch import Tape, apply, recording
from graphcell.passes.autodiff import active_outputs, split_vjp, vjp
from graphcell.passes.pipeline import run_pipeline
from graphcell.tensor import Tensor
from tests.passes.random_graphs import random_graph

SEEDS = range(60)


def floats(values: Sequence[object]) -> list[int]:
    return [k for k, v in enumerate(values) if v.type.dtype.is_float]  # type: ignore[attr-defined]


def close(got: Sequence[Array], want: Sequence[Array], what: str) -> None:
    for k, (g, w) in enumerate(zip(got, want, strict=True)):
        assert g.shape == w.shape and g.dtype == w.dtype, what
        scale = max(1.0, float(np.abs(np.nan_to_num(w.astype(np.float64), posinf=0, neginf=0)).max(initial=0)))
        np.testing.assert_allclose(g, w, rtol=1e-4, atol=1e-4 * scale, err_msg=f"{what}, output {k}")


def case(seed: int) -> tuple[Graph, list[Array], list[int], list[int], list[Array]] | None:
    """A graph, inputs, float inputs and outputs, and cotangents; None where an op has no gradient."""
    graph, inputs = random_graph(seed, exact=True)
    wrt, seeds = floats(graph.inputs), floats(graph.outputs)
    rng = np.random.default_rng(seed)
    cotangents = [rng.integers(-2, 3, graph.outputs[k].type.shape).astype(graph.outputs[k].type.dtype.np_type) for k in seeds]
    try:
        vjp(graph, wrt)
    except NoGradientError:
        return None
    return graph, inputs, wrt, seeds, cotangents


def by_split(graph: Graph, inputs: list[Array], wrt: list[int], cotangents: list[Array]) -> tuple[Array, ...]:
    split = split_vjp(graph, wrt)
    verify(split.forward)
    verify(split.backward)
    results = evaluate_graph(split.forward, inputs)
    held = [inputs[k] for k in split.inputs] + [results[k] for k in split.outputs] + list(results[len(graph.outputs) :])
    return evaluate_graph(split.backward, [*held, *cotangents])


def by_tape(graph: Graph, inputs: list[Array], wrt: list[int], seeds: list[int], cotangents: list[Array]) -> list[Array]:
    tensors = [Tensor(a) for a in inputs]
    tape = Tape()
    for k in wrt:
        tape.watch(tensors[k])
    table = dict(zip(graph.inputs, tensors, strict=True))
    with recording(tape):
        for node in graph.nodes:
            table.update(zip(node.results, apply(node.op, *(table[v] for v in node.operands)), strict=True))
    outputs = [table[graph.outputs[k]] for k in seeds]
    found = tape.gradients(outputs, [Tensor(c) for c in cotangents], [tensors[k] for k in wrt], release=True)
    return [np.zeros_like(inputs[k]) if g is None else g.asnumpy() for k, g in zip(wrt, found, strict=True)]


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_all_ways_agree(seed: int) -> None:
    found = case(seed)
    if found is None:
        return
    graph, inputs, wrt, seeds, cotangents = found
    with np.errstate(all="ignore"):
        joint = vjp(graph, wrt)
        verify(joint)
        results = evaluate_graph(joint, [*inputs, *cotangents])
        close(results[: len(graph.outputs)], evaluate_graph(graph, inputs), "forward")
        want = results[len(graph.outputs) :]
        close(by_split(graph, inputs, wrt, cotangents), want, "split_vjp")
        close(by_tape(graph, inputs, wrt, seeds, cotangents), want, "tape")
        close(evaluate_graph(run_pipeline(joint)[0], [*inputs, *cotangents]), results, "after all passes")
    for k, active in zip(wrt, _activity(graph, wrt), strict=True):
        if not active:
            assert not want[wrt.index(k)].any(), "an input without influence has a gradient"


def _activity(graph: Graph, wrt: list[int]) -> list[bool]:
    return [any(active_outputs(graph, [j == k for j in range(len(graph.inputs))])) for k in wrt]


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS[::3])
def test_second_order(seed: int) -> None:
    """The gradient graph differentiated again, directly and through calls on nested tapes."""
    found = case(seed)
    if found is None:
        return
    graph, inputs, wrt, seeds, cotangents = found
    if not wrt or not seeds:
        return
    joint = vjp(graph, wrt)
    first = Graph("first", joint.inputs, joint.nodes, joint.outputs[len(graph.outputs) :])
    ones = [np.ones(v.type.shape, v.type.dtype.np_type) for v in first.outputs]
    try:
        second = vjp(first, wrt)
    except NoGradientError:
        return
    verify(second)
    with np.errstate(all="ignore"):
        want = evaluate_graph(second, [*inputs, *cotangents, *ones])[len(first.outputs) :]
        outer, inner = Tape(), Tape()
        tensors = [Tensor(a) for a in inputs]
        for k in wrt:
            outer.watch(tensors[k])
        with recording(outer):
            for k in wrt:
                inner.watch(tensors[k])
            with recording(inner):
                outputs = apply(GraphCall(graph), *tensors)
            watched = [tensors[k] for k in wrt]
            gradients = inner.gradients([outputs[k] for k in seeds], [Tensor(c) for c in cotangents], watched)
        present = [g for g in gradients if g is not None]
        found_again = outer.gradients(present, [Tensor(np.ones(g.shape, g.dtype.np_type)) for g in present], watched)
        got = [np.zeros_like(w) if g is None else g.asnumpy() for g, w in zip(found_again, want, strict=True)]
    close(got, want, "second order")
