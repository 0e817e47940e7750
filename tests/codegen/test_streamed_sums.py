"""Sums of columns that are added up row after row in memory, of all vector widths, on guarded memory, against numpy; and which ones are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from graphcell import ops
from graphcell.codegen.fuse import fuse
from graphcell.codegen.kernel import LoopKernel
from graphcell.codegen.legalize import legalize
from graphcell.codegen.llvm.loops import streams
from graphcell.passes.pipeline import run_pipeline
from tests.codegen.plans import TARGETS
from tests.codegen.test_loop_shapes import check, graph_of, kernels, normal

HOST = TARGETS[max(TARGETS)]
WIDE, SHORT = replace(HOST, vector_bytes=64), replace(HOST, vector_bytes=32)


def scaled(x: Any, c: Any) -> Any:
    """What is written beside sums of each image's pixels: one array is read, one is written."""
    y = ops.tanh(x * c)
    return y, y.sum((1, 2)), (y * x).sum((1, 2))


def of_columns(columns: int) -> LoopKernel:
    return max(kernels(graph_of(scaled, [normal(6, 20, 20, columns), normal(columns)])), key=lambda k: k.points)


@pytest.mark.parametrize("columns", [96, 100, 133, 260])
@pytest.mark.parametrize(("dtype", "error"), [(np.float32, 1e-4), (np.float64, 1e-12)])
def test_sums_of_pixels(columns: int, dtype: Any, error: float) -> None:
    x, c = normal(5, 9, 11, columns).astype(dtype), normal(columns).astype(dtype)
    y = np.tanh(x.astype(np.float64) * c)
    check(scaled, [x, c], [y, y.sum((1, 2)), (y * x).sum((1, 2))], error)


def test_short_vectors_stream_shorter_rows() -> None:
    assert streams(of_columns(100), SHORT) and not streams(of_columns(100), WIDE)
    assert streams(of_columns(300), SHORT) and not streams(of_columns(300), WIDE)  # which count what is read alone
    assert not streams(of_columns(80), SHORT)


def test_all_images_are_summed_image_by_image_beside_a_norm_of_each() -> None:
    """Instance normalisation of channels-last images: the gradient of its scale joins the kernel of its row sums."""

    def fn(x: Any, g: Any) -> Any:
        y = x / ops.sqrt(ops.square(x).sum((1, 2), keepdims=True) + 1e-6)
        d = y * g
        return d, (d * y).sum((0, 1, 2)), d - d.sum((1, 2), keepdims=True)

    x, g = normal(6, 29, 27, 40), normal(40)
    graph = legalize(run_pipeline(graph_of(fn, [x, g]))[0])
    across = [n for n in graph.nodes if n.op.name == "reduce_sum" and n.results[0].type.shape == (40,)]
    assert [n.operands[0].type.shape for n in across] == [(6, 40)]
    sums = [sum(n.op.name == "reduce_sum" and n.operands[0].type.size == x.size for n in group.nodes) for group in fuse(graph)[0]]
    assert sorted(sums) == [0, 3], "of x, for the scale, and of d"
    wide = x.astype(np.float64)
    y = wide / np.sqrt((wide**2).sum((1, 2), keepdims=True) + 1e-6)
    d = y * g
    check(fn, [x, g], [d, (d * y).sum((0, 1, 2)), d - d.sum((1, 2), keepdims=True)], 2e-4)


def test_sums_along_the_axes_of_a_batch_norm_stay_whole() -> None:
    def fn(x: Any) -> Any:
        d = x - x.mean((0, 1, 2), keep_dims=True)
        return (d * d).sum((0, 1, 2))

    graph = legalize(run_pipeline(graph_of(fn, [normal(6, 29, 27, 40)]))[0])
    assert all(n.operands[0].type.shape != (6, 40) for n in graph.nodes if n.op.name == "reduce_sum")
