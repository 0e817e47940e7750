"""Rows of any number in parts, and the order in which rows are taken beside sums of columns: all vector widths, on guarded memory, against numpy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import graphcell as ms
from graphcell import Parameter, nn, ops
from graphcell.codegen import fuse, row_parts
from graphcell.codegen.kernel import LoopKernel
from graphcell.codegen.llvm.loops import block_count
from graphcell.ir.op import Array
from graphcell.tensor import Tensor
from tests.codegen.plans import TARGETS
from tests.codegen.test_loop_shapes import check, graph_of, kernels, normal

Wanted = tuple[Array, Array]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few points are worth parts."""
    for module in (fuse, row_parts):
        monkeypatch.setattr(module, "POINTS_OF_ONE_BLOCK", 256)


def normed(x: Tensor, g: Tensor) -> list[Tensor]:
    """Rows without their mean, and the columns of what comes of them added up, over all axes but those of g."""
    y = (x - x.mean(-1, keep_dims=True)) * g
    return [y * y.sum(-1, keepdims=True), (y * x).sum(tuple(range(x.ndim - g.ndim)))]


def wanted(x: Array, g: Array) -> Wanted:
    wide = x.astype(np.float64)
    y = (wide - wide.mean(-1, keepdims=True)) * g
    return y * y.sum(-1, keepdims=True), (y * wide).sum(tuple(range(x.ndim - g.ndim)))


def summing(fn: Any, arrays: Sequence[Array]) -> LoopKernel:
    (kernel,) = [k for k in kernels(graph_of(fn, arrays)) if k.summed]
    return kernel


SHAPES = [((67, 40), 1), ((67, 8, 40), 2), ((101, 3, 33), 2), ((71, 2, 4, 33), 3), ((131, 300), 1), ((3, 67, 40), 1), ((79, 600), 1)]


@pytest.mark.parametrize(("shape", "rank"), SHAPES, ids=str)
def test_rows_in_parts(shape: tuple[int, ...], rank: int, small: None) -> None:
    arrays = [normal(*shape), normal(*shape[-rank:])]
    kernel = summing(normed, arrays)
    assert kernel.last and f"at last {kernel.last}" in str(kernel)
    check(normed, arrays, wanted(*arrays), 1e-4)


def test_every_number_of_rows(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last part has one row, or all that fit, and anything between."""
    monkeypatch.setattr(row_parts, "rows_of_block", lambda row: 5)
    lasts = set()
    for rows in range(64, 98):
        arrays = [normal(rows, 33), normal(33)]
        lasts.update(k.last for k in kernels(graph_of(normed, arrays)) if k.last)
        for got, want in zip(ms.jit(normed)(*map(Tensor, arrays)), wanted(*arrays), strict=True):
            np.testing.assert_allclose(got.asnumpy(), want, rtol=1e-4, atol=1e-4)
    assert lasts == {1, 2, 3, 4, 5}


def test_sums_that_lie_in_a_concatenation(small: None) -> None:
    def both(x: Tensor, g: Tensor, h: Tensor) -> list[Tensor]:
        y = (x - x.mean(-1, keep_dims=True)) * g
        return [y, ops.cat((h, (y * x).sum(0), h, y.sum(0)))]

    x, g, h = arrays = [normal(67, 40), normal(40), normal(3)]
    wide = x.astype(np.float64)
    y = (wide - wide.mean(-1, keepdims=True)) * g
    assert summing(both, arrays).last
    check(both, arrays, (y, np.concatenate([h, (y * wide).sum(0), h, y.sum(0)])), 1e-4)


def test_results_do_not_depend_on_threads(small: None) -> None:
    arrays = [Tensor(normal(4099, 300)), Tensor(normal(300))]
    found = []
    for threads in (1, 2, 3):
        ms.set_context(runtime_num_threads=threads)
        found.append([r.asnumpy().tobytes() for r in ms.jit(normed)(*arrays)])
    assert found[0] == found[1] == found[2]


def test_long_columns_have_blocks_for_threads() -> None:
    """1201 is prime."""
    kernel = summing(normed, [normal(1201, 96), normal(96)])
    assert kernel.last and all(block_count(kernel, target) >= 4 for target in TARGETS.values())
    few = summing(normed, [normal(61, 40), normal(40)])
    assert not few.last


def test_rows_are_taken_as_they_lie_in_memory() -> None:
    """Eight norms side by side: each group of rows lies in one piece, and so do the rows of a block."""

    def scaled(x: Tensor, g: Tensor) -> list[Tensor]:
        y = x * ops.rsqrt((x * x).mean(-1, keep_dims=True) + 1.0) * g
        return [y * ops.rsqrt((y * x).mean(-1, keep_dims=True) + 1.0), (y * x).sum(0)]

    kernel = summing(scaled, [normal(1101, 8, 96), normal(8, 96)])
    assert kernel.extents[-2:] == (8, 96) and kernel.loops_of_blocks() == [0]
    assert kernel.group == len(kernel.extents) - 2
    many = summing(scaled, [normal(64, 300, 96), normal(300, 96)])  # as many sums do not stay in the L1 cache
    assert 300 in [many.extents[d] for d in many.loops_of_blocks()]
    (alone,) = kernels(graph_of(lambda x, g: scaled(x, g)[0], [normal(1101, 8, 96), normal(8, 96)]))
    assert alone.extents[alone.group] == 8


def written(x: Tensor, row: Tensor, column: Tensor) -> list[Tensor]:
    """Elements that are written, with sums of the columns of what comes of them; no row is reduced."""
    y = ops.abs(x * column + row)
    return [y, y.sum(0), (y * x).sum(0)]


@pytest.mark.parametrize("shape", [(67, 515), (131, 300), (97, 333), (64, 9000), (240, 1030)], ids=str)
def test_sums_of_columns_beside_rows_that_are_written(shape: tuple[int, int], small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuse, "STREAMED_BYTES", 4096)
    arrays = [normal(*shape), normal(shape[0], 1), normal(shape[1])]
    kernel = summing(written, arrays)
    assert kernel.vector == len(kernel.extents) - 1 and sum(s.adds for s in kernel.stores) == 2
    x, row, column = (a.astype(np.float64) for a in arrays)
    y = np.abs(x * column + row)
    check(written, arrays, (y, y.sum(0), (y * x).sum(0)), 1e-4)


def test_sums_alone_stay_sums() -> None:
    """What is only read is read as fast down all rows; short rows are streamed; columns in front are no columns."""
    for fn, shape in ((lambda x: x.sum(0), (1201, 96)), (lambda x: [ops.abs(x), ops.abs(x).sum(0)], (1200, 96)), (lambda x: [ops.abs(x), ops.abs(x).sum(1)], (96, 1201))):
        assert not any(k.summed for k in kernels(graph_of(fn, [normal(*shape)])))


@pytest.mark.parametrize("images", [1, 2, 5])
def test_the_longest_of_several_row_axes_is_cut(images: int, small: None) -> None:
    """A number of each image keeps its axis apart; each image and each part of it has sums of its own."""

    def fn(x: Tensor, g: Tensor, s: Tensor) -> list[Tensor]:
        y = (x - x.mean(-1, keep_dims=True)) * s
        return [y * y.sum(-1, keepdims=True) * g, (y * x).sum((0, 1))]

    arrays = [normal(images, 101, 40), normal(40), normal(images, 1, 1)]
    kernel = summing(fn, arrays)
    assert all(block_count(kernel, target) >= 4 for target in TARGETS.values())
    x, g, s = (a.astype(np.float64) for a in arrays)
    y = (x - x.mean(-1, keepdims=True)) * s
    check(fn, arrays, (y * y.sum(-1, keepdims=True) * g, (y * x).sum((0, 1))), 1e-4)


class Adapting(nn.Cell):
    """Its scales become sums of what they made."""

    def __init__(self, scales: Array):
        super().__init__()
        self.scales = Parameter(Tensor(scales), name="scales")

    def construct(self, x: Tensor) -> Tensor:
        y = ops.abs(x * self.scales)
        self.scales = y.sum(0)
        return y


def test_sums_of_parts_replace_what_was_read_for_them() -> None:
    x, scales = normal(1201, 97), normal(97)
    net = Adapting(scales)
    y = ms.jit(net)(Tensor(x)).asnumpy()
    want = np.abs(x.astype(np.float64) * scales)
    np.testing.assert_allclose(y, want, rtol=1e-6)
    np.testing.assert_allclose(net.scales.asnumpy(), want.sum(0), rtol=1e-5)


@pytest.mark.parametrize("shape", [(120, 24, 9000), (64, 24, 9001), (97, 24, 515)], ids=str)
def test_sums_of_columns_of_products(shape: tuple[int, int, int]) -> None:
    """Where a product has its results in registers, columns are not added up."""

    def fn(x: Tensor, w: Tensor, b: Tensor) -> list[Tensor]:
        y = ops.relu(ops.matmul(x, w) + b)
        return [y, y.sum(0), (y * y).sum(0)]

    rows, inner, columns = shape
    x, w, b = arrays = [normal(rows, inner), normal(inner, columns), normal(columns)]
    y = np.maximum(x.astype(np.float64) @ w + b, 0)
    for got, want in zip(ms.jit(fn)(*map(Tensor, arrays)), (y, y.sum(0), (y * y).sum(0)), strict=True):
        np.testing.assert_allclose(got.asnumpy(), want, rtol=1e-4, atol=1e-4)
