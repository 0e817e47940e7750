"""Values that kernels compute again instead of storing them: which, and that no bit changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from graphcell import dtype as dt
from graphcell import ops
from graphcell.codegen import fuse as fuse_module
from graphcell.codegen import recompute as module
from graphcell.codegen.fuse import Fusion, fuse
from graphcell.codegen.legalize import legalize
from graphcell.codegen.recompute import recompute
from graphcell.codegen.schedule import schedule
from graphcell.ir.evaluate import evaluate_graph
from graphcell.ir.graph import Graph
from graphcell.ir.types import TensorType
from graphcell.ir.verify import verify
from graphcell.ops.dispatch import apply1
from graphcell.ops.moments import Moments
from graphcell.ops.pooling import ReduceMaxFirst, Windows
from graphcell.ops.reduction import ReduceSum
from graphcell.passes.autodiff import vjp
from graphcell.passes.pipeline import run_pipeline
from graphcell.runtime.executable import compile_graph
from graphcell.tensor import Tensor
from tests.helpers import trace

F32 = dt.float32


def legal(fn: Callable[..., Any], *shapes: tuple[int, ...], wrt: tuple[int, ...] = ()) -> Graph:
    graph = trace(fn, *(TensorType(F32, s) for s in shapes))
    return legalize(run_pipeline(vjp(graph, wrt) if wrt else graph)[0])


def stored(graph: Graph) -> list[int]:
    """Bytes of what the kernels write, without the outputs of the graph."""
    groups, info = fuse(graph)
    kernels = [schedule(g, info) for g in groups if g.values]
    return sorted(v.type.nbytes for k in kernels for v in k.writes if v not in info.outputs)


def first_pass(graph: Graph) -> tuple[Graph, int] | None:
    fusion = Fusion(graph)
    found = recompute(fusion.run(), fusion.info)
    return (found[-1][0], len(found[-1][1])) if found else None


def columns(x: Any) -> Any:
    """A value of every element that is needed before and after a sum of long columns."""
    mean = apply1(ReduceSum((0,), True), x * x + x) * (1.0 / 4096)
    return (x * x + x) - mean


def test_what_is_needed_after_a_sum_of_blocks_is_computed_twice() -> None:
    graph = legal(columns, (4096, 64))
    assert first_pass(graph) is not None
    assert all(nbytes < 4096 * 64 * 4 for nbytes in stored(graph))


def test_slow_values_and_outputs_are_stored() -> None:
    def f(x: Any) -> Any:
        e = ops.exp(x)
        return e - apply1(ReduceSum((0,), True), e)

    def g(x: Any) -> Any:
        y = x * x
        return y, y - apply1(ReduceSum((0,), True), y)

    assert first_pass(legal(f, (4096, 64))) is None
    assert first_pass(legal(g, (4096, 64))) is None


def test_what_would_read_more_is_stored() -> None:
    def f(a: Any, b: Any, c: Any, d: Any) -> Any:
        y = a * b + c * d
        return y - apply1(ReduceSum((0,), True), y)

    assert first_pass(legal(f, *[(4096, 64)] * 4)) is None


def test_values_of_one_are_computed_of_it() -> None:
    """Neither 1 + tanh(x) nor 1 - tanh(x)^2 pays by itself: each would only have tanh(x) stored instead."""

    def f(x: Any, w: Any) -> Any:
        t = ops.tanh(x)
        y = apply1(ReduceSum((0,), True), x * (t + 1.0))
        return (1.0 - t * t) * y + (t + 1.0) * w

    graph = legal(f, (4096, 64), (64,))
    again = first_pass(graph)
    assert again is not None and again[1] > 1
    assert [nbytes for nbytes in stored(graph) if nbytes >= 4096 * 64 * 4] == [4096 * 64 * 4]
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((4096, 64)).astype(np.float32), rng.standard_normal(64).astype(np.float32)
    wide = np.tanh(x.astype(np.float64))
    want = (1 - wide**2) * (x * (wide + 1)).sum(0) + (wide + 1) * w
    (got,) = compile_graph(graph)([Tensor(x), Tensor(w)])
    np.testing.assert_allclose(got.asnumpy(), want, rtol=1e-4, atol=1e-2)


def test_one_value_of_a_slow_one_is_stored_itself() -> None:
    def f(x: Any) -> Any:
        y = ops.tanh(x) + 1.0
        return y * apply1(ReduceSum((0,), True), x * y)

    assert first_pass(legal(f, (4096, 64))) is None


def test_small_values_are_left_alone() -> None:
    assert first_pass(legal(columns, (256, 8))) is None


def test_pooling_keeps_places_not_masks() -> None:
    def f(x: Any, w: Any) -> Any:
        pooled = apply1(ReduceMaxFirst((4, 5)), apply1(Windows((1, 2), (2, 2), (2, 2), (1, 1)), x))
        return ops.matmul(pooled.reshape(8, 16 * 16 * 16), w)

    elements = 8 * 16 * 16 * 16
    sizes = stored(legal(f, (8, 32, 32, 16), (16 * 16 * 16, 5), wrt=(0, 1)))
    assert 4 * elements in sizes and sum(sizes) <= 5 * elements  # what the product reads, and at most the places as bytes


def random_program(rng: np.random.Generator) -> Callable[..., Any]:
    """Elementwise ops between sums of columns, which cut them into several kernels."""
    steps = [(rng.integers(0, 5), rng.integers(0, 1 << 30), rng.integers(0, 1 << 30)) for _ in range(14)]

    def f(*inputs: Any) -> tuple[Any, ...]:
        values = list(inputs)
        for kind, i, j in steps:
            x, y = values[i % len(values)], values[j % len(values)]
            if kind == 0:
                values.append(x + y)
            elif kind == 1:
                values.append(x * y)
            elif kind == 2:
                values.append(ops.maximum(x, -y))
            else:
                values.append(x - apply1(ReduceSum((0,), True), y) * 0.01)
        return values[-1], values[-2]

    return f


def groups_within_groups(x: Any, r: Any, g: Any) -> Any:
    """Two normalisations whose groups cut the channels in different ways, so that no loop nest can hold both."""
    y = ops.silu(ops.group_norm(x, 7, g, None, 1e-5)) + r
    return (ops.tanh(ops.group_norm(y, 3, None, None, 1e-5)) * r).mean()


def test_what_cannot_join_its_reader_is_stored_once() -> None:
    """The sum y would be computed again by a kernel of its own."""
    shape = (3, 21, 37, 41)
    graph = legal(groups_within_groups, shape, shape, (21,), wrt=(0, 1, 2))
    first = Fusion(graph)
    groups = first.run()
    (again,) = recompute(groups, first.info)
    second = Fusion(*again)
    tried = second.run()
    apart = [node for node in again[1] if second.is_read_outside(node)]
    assert apart
    taken, _ = fuse(graph)
    assert len(taken) < len(tried)


def tanhs(rng: np.random.Generator) -> Callable[..., Any]:
    """Elementwise ops of tanh(x) between sums of columns."""
    steps = [(int(rng.integers(0, 8)), int(rng.integers(0, 1 << 30)), int(rng.integers(0, 1 << 30))) for _ in range(int(rng.integers(8, 22)))]

    def f(x: Any, w: Any) -> Any:
        values = [x]
        for kind, i, j in steps:
            a, b = values[i % len(values)], values[j % len(values)]
            if kind < 5:
                values.append((a + b, a * b, ops.maximum(a, b * 0.5), ops.tanh(a), a * w)[kind])
            elif kind < 7:
                values.append((1.0 - a * a, a + 1.0)[kind - 5])
            else:
                values.append(a - apply1(ReduceSum((0,), True), b) * (1 / 1024))
        return ops.sum(values[-1] * values[-2]) + ops.sum(values[-3])

    return f


def test_sources_are_stored_where_fewer_bytes_move_and_leave_no_trace_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[bool] = []
    try_storing = module._Search._try_storing

    def state(search: Any) -> Any:
        again, reads = {g: list(v) for g, v in search.again.items()}, {g: set(v) for g, v in search.reads.items()}
        return again, reads, {v: list(g) for v, g in search.readers.items()}, set(search.newly_stored), set(search.gone)

    def watched(search: Any, source: Any, values: Any) -> bool:
        before = state(search)
        tried.append(try_storing(search, source, values))
        if not tried[-1]:
            assert state(search) == before
            for v, groups in search.readers.items():
                remembered = [search.describe(v, g) for g in groups]
                search.known.clear()
                assert [search.describe(v, g) for g in groups] == remembered
        return tried[-1]

    monkeypatch.setattr(module._Search, "_try_storing", watched)
    fewer = 0
    for seed in range(30):
        graph = legal(tanhs(np.random.default_rng(seed)), (1024, 64), (64,), wrt=(0, 1))
        moved = [fuse_module._moved(groups, Fusion(info.graph)) for groups, info in (fuse(graph), without_sources(graph, monkeypatch))]
        assert moved[0] <= moved[1]
        fewer += moved[0] < moved[1]
    assert fewer > 2 and True in tried and False in tried


def without_sources(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> Any:
    with monkeypatch.context() as patch:
        patch.setattr(module._Search, "_shared_sources", lambda search: {})
        return fuse(graph)


def test_random_programs_keep_every_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FROM_BYTES", 0)
    changed = 0
    rng = np.random.default_rng(3)
    for _ in range(25):
        before = legal(random_program(rng), (256, 33), (256, 33))
        again = first_pass(before)
        if again is None:
            continue
        changed += 1
        verify(again[0])
        inputs = [rng.standard_normal((256, 33)).astype(np.float32) for _ in range(2)]
        for x, y in zip(evaluate_graph(before, inputs), evaluate_graph(again[0], inputs), strict=True):
            assert x.tobytes() == y.tobytes()
        for x, y in zip(evaluate_graph(before, inputs), (t.asnumpy() for t in compile_graph(before)([Tensor(a) for a in inputs])), strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-4 * np.abs(x).max())
    assert changed > 5


def test_what_one_reader_computes_again_another_does_with_what_comes_of_it() -> None:
    """What lies about the mean is read by three kernels, by the last of them for what it computes again itself: nobody stores it."""

    def f(x: Any, w: Any, b: Any) -> Any:
        mean = x.mean(0)
        variance = ops.square(x - mean).mean(0)
        return ops.square(ops.elu((x - mean) * ops.rsqrt(variance + 1e-5) * w + b) + 0.3 * x).mean()

    graph = legal(f, (4096, 64), (64,), (64,), wrt=(0, 1, 2))
    assert sum(nbytes >= 4096 * 64 * 4 for nbytes in stored(graph)) == 1
    rng, h = np.random.default_rng(1), 1e-4
    x, w, b = rng.standard_normal((4096, 64)), 1.0 + 0.1 * rng.standard_normal(64), 0.1 * rng.standard_normal(64)
    inputs = [a.astype(np.float32) for a in (x, w, b, np.ones(()))]
    gradient = next(g for g in evaluate_graph(fuse(graph)[1].graph, inputs) if g.shape == x.shape)

    def value(x: Any) -> Any:
        centred = x - x.mean(0)
        y = centred / np.sqrt(np.square(centred).mean(0) + 1e-5) * w + b
        return np.square(np.where(y > 0, y, np.expm1(y)) + 0.3 * x).mean()

    direction = rng.standard_normal(x.shape)
    slope = (value(x + h * direction) - value(x - h * direction)) / (2 * h)
    np.testing.assert_allclose((gradient.astype(np.float64) * direction).sum(), slope, rtol=1e-3)


def test_batch_normalisation_moves_few_bytes() -> None:
    """Forward and backward, each in two kernels over the activation, store nothing of its size but results."""

    def f(x: Any, w: Any, b: Any) -> Any:
        from graphcell.ops.dispatch import apply

        mean, var = apply(Moments((0,)), x)
        return (x - mean) * ops.rsqrt(var + 1e-5) * w + b

    shapes = ((4096, 64), (64,), (64,))
    graph = legal(f, *shapes, wrt=(0, 1, 2))
    assert all(nbytes < 4096 * 64 for nbytes in stored(graph))
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(v.type.shape).astype(np.float32) for v in graph.inputs]
    x, w, _, g = (a.astype(np.float64) for a in inputs)
    y, dx, dw, db = evaluate_graph(fuse(graph)[1].graph, inputs)
    normal = (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5)
    np.testing.assert_allclose(dw, (g * normal).sum(0), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(db, g.sum(0), rtol=1e-3, atol=1e-3)
    h = g * w
    want = (h - h.mean(0) - normal * (h * normal).mean(0)) / np.sqrt(x.var(0) + 1e-5)
    np.testing.assert_allclose(dx, want, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(y, normal * w + inputs[2], rtol=1e-3, atol=1e-4)
