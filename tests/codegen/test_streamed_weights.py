"""Weights that come from memory and that few tiles of pixels or rows read: the tile that reads them seldom, asked for ahead."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from graphcell import jit, ops
from graphcell.codegen.llvm.convolution_schedule import Edges, schedule, weight_bytes
from graphcell.codegen.llvm.correlation import ConvSpec, forward_correlation
from graphcell.codegen.llvm.matmul import dense_matmul, emit_matmul, with_prepared_weights
from graphcell.codegen.llvm.target import host
from graphcell.codegen.llvm.text import Module
from graphcell.tensor import Tensor
from tests.codegen.plans import TARGETS, compile_plan, with_chunks

WIDEST = TARGETS[max(TARGETS)]
PREFETCH = "@llvm.prefetch"


def small_image(channels: int, batch: int = 1) -> ConvSpec:
    return ConvSpec(batch, 4, 4, channels, channels, 3, 3, padding=(1, 1, 1, 1))


@pytest.mark.skipif(host().vector_bytes < 64, reason="sixteen registers hold no image of 4x4 pixels")
def test_a_tile_takes_the_whole_image_where_weights_come_from_memory() -> None:
    target = replace(WIDEST, l2_bytes=1 << 20)
    many, few = (forward_correlation(small_image(channels)) for channels in (512, 64))
    assert weight_bytes(few) < target.l2_bytes // 2 < weight_bytes(many)
    assert schedule(many, target).edges is Edges.IMAGE
    assert schedule(few, target).pixel_tiles >= schedule(many, target).pixel_tiles == 1


@pytest.mark.parametrize(("m", "n", "k", "asked"), [(8, 1024, 512, True), (1, 1024, 512, False), (8, 256, 64, False), (300, 1024, 512, False)])
def test_products_with_few_rows_ask_for_weights(m: int, n: int, k: int, asked: bool) -> None:
    target, module = replace(WIDEST, l2_bytes=1 << 20), Module()
    plan = emit_matmul(module, "product", with_prepared_weights(dense_matmul(m, n, k, transpose_b=True)), target)
    ahead = sum(PREFETCH in line and "i32 2, i32 1" in line for body in module.functions.values() for line in body.splitlines())
    packs = sum(PREFETCH in line for name, body in module.functions.items() if name.startswith(("pack", "transpose")) for line in body.splitlines())
    assert (ahead > packs) == asked, plan


def test_results_of_products_that_ask_for_weights() -> None:
    """Also at the end of the weights, where what is asked for lies beyond them."""
    m, n, k = 7, 777, 521
    rng, target = np.random.default_rng(0), replace(WIDEST, l2_bytes=1 << 18)
    a, w = rng.standard_normal((m, k), np.float32), rng.standard_normal((n, k), np.float32)
    spec = with_prepared_weights(dense_matmul(m, n, k, transpose_b=True))
    runner = compile_plan(lambda module, target: emit_matmul(module, "product", spec, target), target)
    got = runner({"a": a, "b": w}, "c", (m, n), np.dtype(np.float32))
    np.testing.assert_allclose(got, a.astype(np.float64) @ w.T, rtol=0, atol=1e-3)


@pytest.mark.parametrize("m", [1, 7])
def test_blocks_are_taken_forwards_and_backwards_in_turns(m: int) -> None:
    """Where the L2 cache almost holds the panels: results are the same each time, with any cut of the blocks."""
    n, k, l2 = 777, 520, 1 << 20
    rng, target = np.random.default_rng(0), replace(WIDEST, l2_bytes=l2)
    a, w = rng.standard_normal((m, k), np.float32), rng.standard_normal((n, k), np.float32)
    spec = with_prepared_weights(dense_matmul(m, n, k, transpose_b=True))
    runner = compile_plan(lambda module, target: emit_matmul(module, "product", spec, target), target)
    ((name, size),) = runner.plan.shared
    assert name == "packed" and l2 // 2 < size < 4 * l2
    results = [run({"a": a, "b": w}, "c", (m, n), np.dtype(np.float32)) for run in (runner, runner, with_chunks(runner, 0.2, 0.7))]
    np.testing.assert_allclose(results[0], a.astype(np.float64) @ w.T, rtol=0, atol=1e-3)
    assert all(result.tobytes() == results[0].tobytes() for result in results)
    module = Module()
    emit_matmul(module, "product", spec, target)
    assert "store atomic i64" in module.functions["product"]
    emit_matmul(module, "small", with_prepared_weights(dense_matmul(m, 256, 128, transpose_b=True)), target)
    assert "store atomic" not in module.functions["small"]


def test_the_direction_changes_from_call_to_call() -> None:
    """A loop multiplies by the same matrix again and again, on one thread and on several."""

    def step(x: Tensor, w: Tensor) -> Tensor:
        for _ in range(9):
            x = ops.tanh(ops.matmul(x, w) * 0.02)
        return x

    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((1, 900), np.float32), rng.standard_normal((900, 900), np.float32)
    f = jit(step)
    first, second = f(Tensor(x), Tensor(w)).asnumpy(), f(Tensor(x), Tensor(w)).asnumpy()
    want = x.astype(np.float64)
    for _ in range(9):
        want = np.tanh(want @ w * 0.02)
    np.testing.assert_allclose(first, want, rtol=0, atol=1e-4)
    assert first.tobytes() == second.tobytes()
