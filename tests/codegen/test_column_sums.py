"""Sums of columns that are added up beside the rows they come from, of all vector widths, on guarded memory, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphcell as gc
from graphcell import ops
from graphcell.codegen.fuse import Fusion, fuse
from graphcell.codegen.legalize import legalize
from graphcell.codegen.llvm.loops import block_count
from graphcell.codegen.llvm.target import host
from graphcell.passes.pipeline import run_pipeline
from graphcell.tensor import Tensor
from tests.codegen.test_loop_shapes import check, graph_of, kernels, normal


def softmax(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    e = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


def is_summed(fn: Any, arrays: Any) -> bool:
    return any(k.summed and any(s.adds for s in k.stores) for k in kernels(graph_of(fn, arrays)))


@pytest.mark.parametrize(
    ("shape", "axis"),
    [((40, 65), (0,)), ((17, 300), (0,)), ((128, 530), (0,)), ((2048, 70), (0,)), ((6, 37, 100), (1,)), ((4, 21, 333), (1,)), ((3, 5, 96), (0, 1)), ((16, 64, 600), (0, 1))],
    ids=str,
)
def test_sums_beside_rows(shape: tuple[int, ...], axis: tuple[int, ...]) -> None:
    def fn(x: Any, c: Any) -> Any:
        p = ops.softmax(x, -1)
        return p, (p * c).sum(axis), p.sum(axis)

    x, c = normal(*shape), normal(*shape)
    p = softmax(x)
    assert is_summed(fn, [x, c])
    check(fn, [x, c], [p, (p * c).sum(axis), p.sum(axis)], 2e-5)


@pytest.mark.parametrize("dtype", [np.float64, np.float16])
def test_dtypes(dtype: Any) -> None:
    def fn(x: Any) -> Any:
        p = ops.softmax(x.astype(gc.float32) if dtype is np.float16 else x, -1)
        return p, p.sum(0)

    x = normal(100, 200).astype(dtype)
    p = softmax(x)
    assert is_summed(fn, [x])
    check(fn, [x], [p, p.sum(0)], 1e-4 if dtype is np.float16 else 1e-12)


def test_half_precision_is_not_summed_in_half_precision() -> None:
    """In float16, 32 + 1 / 64 is 32: sums of more than 2048 such numbers would stand still."""
    x = np.zeros((8192, 64), np.float16)
    assert float(gc.jit(lambda x: ops.softmax(x, -1).sum(0))(Tensor(x)).asnumpy()[0]) == 8192 / 64
    few = Tensor(np.zeros((100, 100), np.float16))  # a sum that is not cut in two: added one by one in float16 it would be 0.988
    assert float(gc.jit(lambda x: ops.softmax(x, -1).sum(0))(few).asnumpy()[0]) == 1.0


def test_what_needs_the_sum_comes_later() -> None:
    def fn(x: Any) -> Any:
        p = ops.softmax(x, -1)
        return p - p.sum(0, keepdims=True)

    x = normal(60, 100)
    p = softmax(x)
    check(fn, [x], p - p.sum(0), 2e-5)


def test_rows_too_few_for_threads_stay_in_a_kernel_of_their_own() -> None:
    def fn(x: Any) -> Any:
        p = ops.softmax(x, -1)
        return p, p.sum(0)

    assert not is_summed(fn, [normal(61, 3001)])
    (many,) = [k for k in kernels(graph_of(fn, [normal(97, 3001)])) if k.summed]
    assert many.last and block_count(many, host("")) >= 4  # these come in parts, which threads share
    assert is_summed(fn, [normal(20, 100)])


def test_what_reads_something_transposed_stays_apart() -> None:
    """Tiles of it are transposed where it is not read beside rows in the lanes."""

    def fn(x: Any, y: Any) -> Any:
        p = ops.softmax(x, -1)
        return p, (p * y.transpose(1, 0)).sum(0)

    x, y = normal(128, 200), normal(200, 128)
    p = softmax(x)
    assert not is_summed(fn, [x, y])
    assert is_summed(lambda x, y: fn(x, y.transpose(1, 0)), [x, normal(128, 200)])
    check(fn, [x, y], [p, (p * y.T).sum(0)], 2e-5)


def test_gradients_of_a_norm_are_one_nest() -> None:
    def fn(x: Any, gamma: Any, beta: Any, c: Any) -> Any:
        def loss(x: Any, gamma: Any, beta: Any) -> Any:
            return (ops.tanh(ops.layer_norm(x, (96,), gamma, beta, 1e-5)) * c).sum()

        return gc.grad(loss, (0, 1, 2))(x, gamma, beta)

    arrays = [normal(4096, 96), normal(96), normal(96), normal(4096, 96)]
    large = [k for k in kernels(graph_of(fn, arrays)) if k.points >= 4096 * 96]
    assert len(large) == 1 and sum(s.adds for s in large[0].stores) == 2
    x, gamma, beta, c = (a.astype(np.float64) for a in arrays)
    mean = x.mean(1, keepdims=True)
    rate = 1 / np.sqrt(x.var(1, keepdims=True) + 1e-5)
    y = (x - mean) * rate
    d = c * (1 - np.tanh(y * gamma + beta) ** 2)
    dy = d * gamma
    dx = rate * (dy - dy.mean(1, keepdims=True) - y * (dy * y).mean(1, keepdims=True))
    check(fn, arrays, [dx, (d * y).sum(0), d.sum(0)], 1e-3)


def test_sums_across_rows_begin_within_them() -> None:
    """A sum over images and pixels is one over pixels, in the kernel that computes what is summed, and a small one over images."""

    def fn(x: Any, rate: Any) -> Any:
        y = ops.tanh(x * rate)
        return y, (y * x).sum((0, 2))

    x, rate = normal(4, 48, 200), normal(48, 1)
    large = [k for k in kernels(graph_of(fn, [x, rate])) if k.points >= x.size]
    assert len(large) == 1 and large[0].reduces
    y = np.tanh(x.astype(np.float64) * rate)
    check(fn, [x, rate], [y, (y * x).sum((0, 2))], 2e-5)


def test_sums_that_rest_on_others_of_their_kind_stay_whole() -> None:
    def fn(x: Any) -> Any:
        d = x - x.mean((0, 2), keep_dims=True)
        return d * ops.rsqrt((d * d).mean((0, 2), keep_dims=True))

    x = normal(4, 24, 200)
    assert len(kernels(graph_of(fn, [x]))) == 1
    d = x - x.astype(np.float64).mean((0, 2), keepdims=True)
    check(fn, [x], d / np.sqrt((d * d).mean((0, 2), keepdims=True)), 1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sine_and_cosine_of_one_operand(dtype: Any) -> None:
    """They share the reduction of the argument, within a loop and from a row to a later stage, and of large arguments."""

    def fn(x: Any) -> Any:
        total = ops.sin(x).sum(-1, keepdims=True)
        return ops.cos(x) * total, ops.sin(x) - ops.cos(x), ops.cos(total) + ops.sin(total)

    x = (normal(33, 70) * 40).astype(dtype)
    x[3, 5], x[7, 0], x[9, 69] = 1e9, -3e15, 0.0
    wide = x.astype(np.float64)
    total = np.sin(wide).sum(-1, keepdims=True)
    check(fn, [x], [np.cos(wide) * total, np.sin(wide) - np.cos(wide), np.cos(total) + np.sin(total)], 1e-4 if dtype is np.float32 else 1e-12)


@pytest.mark.parametrize("shape", [(777, 333), (64, 40), (4, 21, 96)], ids=str)
def test_columns_wait_for_rows(shape: tuple[int, ...]) -> None:
    """Sums of columns that come before those of rows in the graph leave the loop nest to these, and are added up beside them."""
    def fn(x: Any, c: Any) -> Any:
        y = x * c
        columns, squares = y.sum(-2), (y * y).sum(-2)
        return columns, squares, y - y.sum(-1, keepdims=True)

    x, c = normal(*shape), normal(*shape)
    y = x.astype(np.float64) * c
    assert is_summed(fn, [x, c])
    assert sum(any(v.type.shape == shape for v in g.values) for g in fuse(legalize(run_pipeline(graph_of(fn, [x, c]))[0]))[0]) == 1
    check(fn, [x, c], [y.sum(-2), (y * y).sum(-2), y - y.sum(-1, keepdims=True)], 1e-4)


def test_columns_that_have_waited_in_vain_join_what_they_sum() -> None:
    def fn(x: Any, c: Any) -> Any:
        return ops.tanh(x * c).sum(0)

    x, c = normal(60, 256), normal(60, 256)
    assert len(fuse(legalize(run_pipeline(graph_of(fn, [x, c]))[0]))[0]) == 1
    check(fn, [x, c], [np.tanh(x.astype(np.float64) * c).sum(0)], 1e-4)


def test_sums_that_something_else_needs_do_not_wait() -> None:
    def fn(x: Any) -> Any:
        return x - x.sum(0), ops.exp(x.sum(0))

    x = normal(100, 64)
    fusion = Fusion(legalize(run_pipeline(graph_of(fn, [x]))[0]))
    sums = [n for n in fusion.graph.nodes if n.op.name == "reduce_sum"]
    assert sums and not any(fusion._ends_in_columns(n) for n in sums)


def test_rows_are_read_once_beside_columns_of_something_else() -> None:
    """Sums of x along both axes, and of what is computed with it."""

    def fn(x: Any, y: Any) -> Any:
        z = ops.tanh(y)
        return x.sum(0), x.sum(-1), z.sum(-1), (z * x).sum(0)

    x, y = normal(300, 64), normal(300, 64)
    readers = [g for g in fuse(legalize(run_pipeline(graph_of(fn, [x, y]))[0]))[0] if any(r.type.shape == x.shape for r in g.roots)]
    assert len(readers) <= 2
    z = np.tanh(y.astype(np.float64))
    check(fn, [x, y], [x.sum(0, dtype=np.float64), x.sum(-1, dtype=np.float64), z.sum(-1), (z * x).sum(0)], 1e-4)
