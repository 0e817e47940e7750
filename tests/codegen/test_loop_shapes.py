"""Loop nests of every shape of code (tiles, small strides, unrolled rows, rows in lanes, blocks of rows), of all vector widths, on guarded
memory, against numpy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import graphcell as ms
from graphcell import dtype as dt
from graphcell import ops
from graphcell.codegen import vectorize
from graphcell.codegen.fuse import fuse
from graphcell.codegen.kernel import LoopKernel
from graphcell.codegen.legalize import legalize
from graphcell.codegen.llvm import loops, rows
from graphcell.codegen.llvm.body import BodyBuilder
from graphcell.codegen.llvm.text import PTR, FunctionBuilder, LType, Module
from graphcell.codegen.llvm.tiles import transpose_square
from graphcell.codegen.lower import lower
from graphcell.codegen.schedule import schedule
from graphcell.ir.graph import Graph
from graphcell.ir.op import Array
from graphcell.ir.types import TensorType
from graphcell.ops.dispatch import apply, apply1
from graphcell.ops.moments import Moments
from graphcell.ops.movement import Slice, Transpose
from graphcell.ops.pooling import ReduceMaxFirst, Windows
from graphcell.ops.reduction import ReduceMax, ReduceSum
from graphcell.passes.pipeline import run_pipeline
from graphcell.tensor import Tensor
from tests.codegen.harness import build
from tests.codegen.plans import TARGETS
from tests.codegen.test_guards import run_guarded
from tests.helpers import trace

RNG = np.random.default_rng(11)
Function = Callable[..., Any]


def normal(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def whole(dtype: Any, *shape: int) -> Array:
    """Small whole numbers (or bits), so that sums are exact in every dtype."""
    return RNG.integers(0, 2, shape).astype(bool) if dtype is np.bool_ else RNG.integers(-4, 5, shape).astype(dtype)


def graph_of(fn: Function, arrays: Sequence[Array]) -> Graph:
    return trace(fn, *(TensorType(dt.from_numpy(a.dtype), a.shape) for a in arrays))


def kernels(graph: Graph) -> list[LoopKernel]:
    groups, info = fuse(legalize(run_pipeline(graph)[0]))
    return [schedule(g, info).kernel for g in groups if g.values]


def check(fn: Function, arrays: Sequence[Array], want: Array | Sequence[Array], tolerance: float = 0.0) -> None:
    """Runs `fn` with every vector width, before and behind an inaccessible page."""
    wanted = want if isinstance(want, (list, tuple)) else [want]
    for target in TARGETS.values():
        for at_end in (True, False):
            got = run_guarded(graph_of(fn, arrays), arrays, target, at_end)
            for w, g in zip(wanted, got, strict=True):
                assert g.shape == np.shape(w)
                np.testing.assert_allclose(g.astype(np.float64), np.asarray(w, np.float64), rtol=tolerance, atol=tolerance)


# -- tiles -----------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("lanes", [2, 4, 8, 16])
@pytest.mark.parametrize("kind", ["float", "i8"])
def test_squares_are_transposed_in_registers(lanes: int, kind: str) -> None:
    def emit(b: Any, *rows: Any) -> Any:
        return tuple(transpose_square(b, rows))

    square = np.arange(lanes * lanes).reshape(lanes, lanes).astype(np.float32 if kind == "float" else np.int8)
    columns = build(emit, (kind,) * lanes, lanes)(*square)
    assert np.array_equal(np.stack(columns), square.T)


def test_bits_are_transposed_as_bytes() -> None:
    b = BodyBuilder(Module(), "f", [(f"x{k}", LType("i1", 4)) for k in range(4)])
    assert all(v.type == LType("i1", 4) for v in transpose_square(b, list(b.args.values())))


SHAPES = [(16, 16), (5, 7), (33, 4), (4, 65), (70, 31), (1, 40), (40, 1), (3, 100)]


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int8, np.int64, np.bool_])
def test_transposed_operands(shape: tuple[int, int], dtype: Any) -> None:
    x = whole(dtype, *shape)
    check(lambda x: apply1(Transpose((1, 0)), x), [x], x.T)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_transposed_operand_beside_others(shape: tuple[int, int]) -> None:
    x, y, row, column = whole(np.float32, *shape), whole(np.float32, *shape[::-1]), whole(np.float32, shape[0]), whole(np.float32, shape[1], 1)
    check(lambda x, y, r, c: x.transpose(1, 0) * c + y - r, [x, y, row, column], x.T * column + y - row)


def test_a_transposed_result_is_written_by_the_kernel_that_computes_it() -> None:
    x, y = whole(np.float32, 3, 20, 9, 35), whole(np.float32, 3, 20, 9, 35)
    check(lambda x, y: ((x * y + x).transpose(0, 3, 1, 2) * 1.5), [x, y], (x * y + x).transpose(0, 3, 1, 2) * 1.5)
    assert len(kernels(graph_of(lambda x, y: ((x * y + x).transpose(0, 3, 1, 2) * 1.5), [x, y]))) == 1


def test_long_transposes_are_tiled() -> None:
    (kernel,) = kernels(graph_of(lambda x: x.transpose(1, 0) + 1.0, [normal(64, 96)]))
    assert kernel.tile >= 0 and " tile" in str(kernel)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(3, 70, 31), (2, 33, 100), (1, 64, 16), (2, 129, 20), (70, 64), (200, 7)], ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int8])
def test_blocks_of_some_columns_of_all_rows(shape: tuple[int, ...], dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "_CHUNK", 32)
    monkeypatch.setattr(loops, "_CHUNKED_FROM", (0, 0))
    x, y = whole(dtype, *shape), whole(dtype, *shape[:-2], shape[-1], shape[-2])
    (kernel,) = kernels(graph_of(lambda x, y: x.swapaxes(-1, -2) + y, [x, y]))
    for target in TARGETS.values():
        assert loops.block_count(kernel, target) == math.prod(shape[:-2]) * -(-kernel.extents[kernel.vector] // 32)
    check(lambda x, y: x.swapaxes(-1, -2) + y, [x, y], x.swapaxes(-1, -2) + y)


@pytest.mark.parametrize(("shape", "blocks"), [((3, 8269), 9), ((2, 3, 8192), 12), ((15, 9001), 45), ((16, 8200), 16), ((3, 8191), 3)], ids=str)
def test_few_long_rows_are_runs_of_elements(shape: tuple[int, ...], blocks: int) -> None:
    """Each of them is several blocks; where rows are many, or not long, each is one."""
    x, column, row = normal(*shape), normal(*shape[:-1], 1), normal(shape[-1])

    def f(x: Tensor, column: Tensor, row: Tensor) -> Tensor:
        return x * column + row * row

    check(f, [x, column, row], x * column + row * row, 1e-6)
    (kernel,) = kernels(graph_of(f, [x, column, row]))
    assert [loops.block_count(kernel, target) for target in TARGETS.values()] == [blocks] * len(TARGETS)


def test_large_images_are_moved_by_columns() -> None:
    """Not those that the cache holds, nor matrices as high as long, of which columns of all rows would not stay there."""
    target = replace(TARGETS[max(TARGETS)], vector_bytes=64, l2_bytes=2 << 20)

    def blocks(axes: tuple[int, ...], *shape: int) -> int:
        (kernel,) = kernels(trace(lambda x: ops.permute(x, axes) + 1.0, TensorType(dt.float32, shape)))
        return loops.block_count(kernel, target)

    assert blocks((0, 2, 3, 1), 4, 96, 91, 91) == blocks((0, 3, 1, 2), 4, 91, 91, 96) == 4 * -(-91 * 91 // 512)
    assert blocks((0, 2, 3, 1), 4, 96, 20, 20) == 4 * 6  # tiles of sixteen rows
    assert blocks((0, 2, 3, 1), 1, 96, 91, 30) == 6  # no more than a few times the cache
    assert blocks((0, 2, 1), 1, 2000, 3000) == 125
    (kernel,) = kernels(trace(lambda x, bias: ops.permute(x, (0, 2, 3, 1)) + bias, TensorType(dt.float32, (2, 200, 60, 60)), TensorType(dt.float32, (200,))))
    assert loops.block_count(kernel, target) == 2 * -(-3600 // 512)  # what all columns share takes no room


def columns_of_softmax(*shape: int) -> list[LoopKernel]:
    return kernels(trace(lambda x: ops.softmax(x, -2), TensorType(dt.float32, shape)))


def test_what_is_read_again_with_sums_of_its_columns_is_taken_by_strips() -> None:
    for shape in ((1024, 256), (3, 960, 64), (4096, 160), (1200, 2000)):
        (kernel,) = columns_of_softmax(*shape)
        assert kernel.vector < kernel.outer and kernel.inner_points == shape[-2]
    for shape in ((8192, 160), (2048, 1024), (1024, 64), (40, 1024, 8)):  # too long, on too many pages, too few, too short
        assert len(columns_of_softmax(*shape)) > 1


def is_cut(fn: Function, *types: TensorType) -> bool:
    """Whether sums of columns go by blocks of rows first."""
    return any(k.reduces and len(k.extents) == 3 for k in kernels(trace(fn, *types)))


def test_columns_that_are_not_read_again_are_cut_in_blocks_of_rows() -> None:
    x = TensorType(dt.float32, (1024, 256))
    assert is_cut(lambda x: x.sum(0), x)
    assert is_cut(lambda x, y: ops.amax(x, 0) * y, x, x)  # y is as large, but it is not x
    assert is_cut(lambda x: (ops.amax(x, 0) * 2.0, x + 1.0), x)  # x is read again, but not with the maximum
    assert not is_cut(lambda x: x - ops.amax(x, 0), x)
    assert is_cut(lambda x: (x - x.mean(0, keep_dims=True)) / ops.std(x, 0, 0, True), x)  # means and variances keep more digits by blocks
    assert not is_cut(lambda x: ops.logsumexp(x, 0), x)  # the sum would read x apart from the maximum


def test_deviations_of_columns_with_a_large_mean() -> None:
    x = (1e4 + RNG.standard_normal((1000, 256))).astype(np.float32)
    (deviations,) = run_guarded(graph_of(lambda x: ops.std(x, 0, 0), [x]), [x], TARGETS[max(TARGETS)], True)
    np.testing.assert_allclose(deviations, x.astype(np.float64).std(0), rtol=5e-6)  # a plain mean loses 1e-4 of them


def test_the_gradient_of_a_softmax_of_columns_is_taken_by_strips() -> None:
    x = TensorType(dt.float32, (1040, 256))
    assert not is_cut(lambda x, g: ms.grad(lambda x: (ops.softmax(x, 0) * g).sum())(x), x, x)
    assert not is_cut(lambda x, g: ms.grad(lambda x: (ops.log_softmax(x, 0) * g).sum())(x), x, x)


def test_long_columns_keep_their_digits() -> None:
    x = RNG.uniform(0.5, 1.5, (4096, 160)).astype(np.float32)
    for target in TARGETS.values():
        (got,) = run_guarded(graph_of(lambda x: ops.softmax(x, 0), [x]), [x], target, True)
        powers = np.exp(x.astype(np.float64))
        np.testing.assert_allclose(got, powers / powers.sum(0), rtol=4e-6)


def test_short_contiguous_rows_of_slow_functions_are_not_gathered_from_images() -> None:
    """Eight channels of a group lie in short vectors, though sixteen images would fill long ones."""
    x, scale = normal(16, 9, 12, 8), normal(12, 8)
    fn = lambda x, s: (ops.tanh(x * s) * ops.exp(x)).sum((1, 3))  # noqa: E731
    (kernel,) = kernels(graph_of(fn, [x, scale]))
    assert kernel.extents[kernel.vector] == 8 and kernel.tile < 0
    wide = x.astype(np.float64)
    check(fn, [x, scale], (np.tanh(wide * scale) * np.exp(wide)).sum((1, 3)), 1e-4)


@pytest.mark.parametrize("columns", [17, 24, 31, 33, 40, 56, 63, 65, 88])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_rows_in_lanes_whose_last_vector_is_not_full(columns: int, dtype: Any) -> None:
    """Side by side with whole vectors where masks are quick, with values of their own for each row, sums, extrema and stores inside."""
    x, w = normal(5, 37, columns).astype(dtype), normal(5, 37, columns).astype(dtype)
    s = abs(normal(columns)).astype(dtype) + dtype(0.5)

    def fn(x: Any, w: Any, s: Any) -> Any:
        y = ops.relu(x * s) + w
        return y, y.sum(1), (y * x).sum(1) / s, x.max(axis=1)

    found = kernels(graph_of(fn, [x, w, s]))
    assert any(0 <= k.vector < k.outer for k in found)
    wide, other, scale = (a.astype(np.float64) for a in (x, w, s))
    y = np.maximum(wide * scale, 0) + other
    want = (y, y.sum(1), (y * wide).sum(1) / scale, wide.max(1))
    check(fn, [x, w, s], want, 3e-2 if dtype is np.float16 else 1e-4)


# -- small strides ---------------------------------------------------------------------------------------------------------
@pytest.mark.slow
@pytest.mark.parametrize("step", [2, 3, 4, 5, -1, -2, -3])
@pytest.mark.parametrize("n", [9, 40, 70, 200])
@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.bool_, np.float16])
def test_steps_along_the_vector(step: int, n: int, dtype: Any) -> None:
    x = whole(dtype, 3, n)
    start = n - 1 if step < 0 else 0
    size = -(-n // abs(step))
    check(lambda x: apply1(Slice((0, start), (3, size), (1, step)), x), [x], x[:, ::step])


# -- columns ---------------------------------------------------------------------------------------------------------------
@pytest.mark.slow
@pytest.mark.parametrize("shape", [(1024, 5), (2048, 64), (640, 130), (1009, 16), (96, 700), (4, 512, 33)], ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32])
def test_sums_of_long_columns(shape: tuple[int, ...], dtype: Any) -> None:
    x = whole(dtype, *shape)
    axis = len(shape) - 2
    check(lambda x: (apply1(ReduceSum((axis,)), x), apply1(ReduceMax((axis,), True), x)), [x], [x.sum(axis), x.max(axis, keepdims=True)])


def test_half_precision_keeps_float32_between_the_blocks() -> None:
    x = np.full((4096, 3), 8.0, np.float16)
    x[0] = 2.0
    check(lambda x: apply1(ReduceSum((0,)), x) * 0.001, [x * 0 + np.float16(0.5)], np.full(3, np.float16(2048.0) * np.float16(0.001)), 1e-3)


@pytest.mark.parametrize("shape", [(2048, 20), (33, 10), (8, 16, 16, 12)], ids=str)
def test_moments_of_columns_with_a_large_mean(shape: tuple[int, ...]) -> None:
    """The variance keeps its digits where the mean is ten thousand times the deviation."""
    x = (normal(*shape) + 1e4).astype(np.float32)
    axis = tuple(range(len(shape) - 1))
    wide = x.astype(np.float64)
    for target in TARGETS.values():
        graph = graph_of(lambda x: apply(Moments(axis), x), [x])
        mean, var = run_guarded(graph, [x], target, True)
        np.testing.assert_allclose(mean.ravel(), wide.mean(axis), rtol=1e-6)
        np.testing.assert_allclose(var.ravel(), wide.var(axis), rtol=5e-5)


# -- windows ---------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("channels", [1, 3, 6, 16, 40])
@pytest.mark.parametrize(("size", "stride"), [(2, 2), (3, 2), (3, 1), (5, 3)])
def test_maxima_of_windows(channels: int, size: int, stride: int) -> None:
    x = normal(2, 13, 11, channels)
    view = np.lib.stride_tricks.sliding_window_view(x, (size, size), (1, 2))[:, ::stride, ::stride]
    op = Windows((1, 2), (size, size), (stride, stride), (1, 1))
    check(lambda x: apply1(ReduceMaxFirst((4, 5)), apply1(op, x)), [x], view.max((4, 5)))


def test_a_nan_is_the_maximum_of_its_window() -> None:
    x = normal(1, 4, 6, 5)
    x[0, 1, 2, 3] = np.nan

    def f(x: Tensor) -> Tensor:
        return apply1(ReduceMaxFirst((4, 5)), apply1(Windows((1, 2), (2, 2), (2, 2), (1, 1)), x))

    check(f, [x], x.reshape(1, 2, 2, 3, 2, 5).max((2, 4)))


def test_windows_of_short_lines_are_not_grouped(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what is found for each place of a window, as its gradient finds it."""

    def f(x: Tensor) -> Tensor:
        windows = apply1(Windows((2, 3), (5, 5), (3, 3), (1, 1)), x)
        return windows - apply1(ReduceMaxFirst((4, 5), keep_dims=True), windows)

    x = normal(8, 5, 23, 13)
    (kernel,) = kernels(graph_of(f, [x]))
    assert kernel.reduces and kernel.group < 0
    monkeypatch.setattr(vectorize, "_SHORTEST_GROUPED_LINE", 0)
    (grouped,) = kernels(graph_of(f, [x]))
    assert grouped.group >= 0  # by the count of instructions
    monkeypatch.undo()
    view = np.lib.stride_tricks.sliding_window_view(x, (5, 5), (2, 3))[:, :, ::3, ::3]
    check(f, [x], view - view.max((4, 5), keepdims=True))


# -- rows in the lanes that ask ahead ----------------------------------------------------------------------------------------
def test_amd_asks_ahead_down_long_columns() -> None:
    amd, intel = (replace(TARGETS[max(TARGETS)], cpu=cpu, l2_bytes=512 << 10) for cpu in ("znver3", "sapphirerapids"))

    def bytes_ahead(target: Any, *shape: int) -> int:
        (kernel,) = kernels(graph_of(lambda x: apply1(ReduceMax((0,)), x), [normal(*shape)]))
        return loops._bytes_ahead(kernel, target)

    assert bytes_ahead(amd, 37, 9000) and not bytes_ahead(intel, 37, 9000)
    assert not bytes_ahead(amd, 30, 900)  # in the L2 cache


@pytest.mark.parametrize("ahead", [0, 256])
def test_what_is_read_again_is_asked_for_once(ahead: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "_bytes_ahead", lambda kernel, target: ahead)
    (kernel,) = kernels(graph_of(lambda x: x - apply1(ReduceMax((0,), keep_dims=True), x), [normal(3, 500)]))
    target = replace(TARGETS[max(TARGETS)], l2_bytes=512 << 10)
    module = target.module()
    loops.emit_loops(module, "f", kernel, target)
    asked = str(module).count("call void @llvm.prefetch")
    reads = str(module).count(f"load <{target.lanes('float')} x float>") + str(module).count("call <")  # in both stages, and masked
    assert 0 < asked < reads if ahead else asked == 0


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int8])
@pytest.mark.parametrize("shape", [(7, 130), (40, 33), (3, 21, 70)], ids=str)
def test_what_is_asked_ahead_changes_nothing(shape: tuple[int, ...], dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "_bytes_ahead", lambda kernel, target: 256)
    x, axis = whole(dtype, *shape), len(shape) - 2
    check(lambda x: x - apply1(ReduceMax((axis,), keep_dims=True), x), [x], x - x.max(axis, keepdims=True))


# -- tiles in rows that are reduced ------------------------------------------------------------------------------------------
@pytest.mark.slow
@pytest.mark.parametrize("shape", [(2, 33, 65), (3, 16, 40), (1, 100, 31), (2, 5, 150), (2, 64, 64)], ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
def test_a_transposed_operand_beside_sums_of_both(shape: tuple[int, int, int], dtype: Any) -> None:
    def fn(x: Any, y: Any) -> Any:
        s = x.swapaxes(1, 2) * y + y
        total = s.sum((1, 2), keepdims=True)
        z = abs(s * s - total)
        return z.sum((1, 2)), z.swapaxes(1, 2), s + total

    x, y = whole(dtype, *shape), whole(dtype, shape[0], shape[2], shape[1])
    assert any(k.tile >= 0 and k.reduces and k.vector >= k.outer for k in kernels(graph_of(fn, [x, y])))
    s = x.swapaxes(1, 2) * y + y
    total = s.sum((1, 2), keepdims=True, dtype=dtype)
    z = abs(s * s - total)
    check(fn, [x, y], [z.sum((1, 2), dtype=dtype), z.swapaxes(1, 2), s + total], 1e-6 if dtype is np.float32 else 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(2, 33, 65), (1, 100, 31), (2, 64, 64)], ids=str)
def test_tiles_of_many_instructions_wait_in_memory(shape: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """The code of a point is there once for whole and partial tiles and vectors each, and does the same as sixteen times over."""

    def fn(x: Any, y: Any) -> Any:
        z = x.swapaxes(1, 2)
        s = ops.tanh(z) * y + ops.exp(z * 0.1) * ops.sin(y) + ops.cos(z)
        total = s.sum((1, 2), keepdims=True)
        return s.swapaxes(1, 2), z > y, (z > y).swapaxes(1, 2), s - total, s.max(2), ops.abs(s - total).sum((1, 2))

    x, y = normal(*shape), normal(shape[0], shape[2], shape[1])
    z = x.swapaxes(1, 2).astype(np.float64)
    s = np.tanh(z) * y + np.exp(z * 0.1) * np.sin(y.astype(np.float64)) + np.cos(z)
    total = s.sum((1, 2), keepdims=True)
    want = [s.swapaxes(1, 2), z > y, (z > y).swapaxes(1, 2), s - total, s.max(2), abs(s - total).sum((1, 2))]
    length = {}
    for most in (0, 1 << 20):
        monkeypatch.setattr(rows, "_MOST_IN_UNROLLED_TILE", most)
        check(fn, [x, y], want, 2e-6)
        program = lower(run_pipeline(graph_of(fn, [x, y]))[0], (), TARGETS[max(TARGETS)])
        assert any(step.kernel is not None and " tile" in str(step.kernel) for step in program.steps)
        length[most] = len(program.text)
    assert length[0] < length[1 << 20] / 2


def test_what_tiles_keep_for_a_later_stage() -> None:
    def fn(x: Any, y: Any) -> Any:
        s = ops.exp(ops.tanh(x.transpose(1, 0)) * y)
        return s / s.sum(), (s / s.sum() * y).transpose(1, 0)

    x, y = normal(45, 37), normal(37, 45)
    s = np.exp(np.tanh(x.T.astype(np.float64)) * y)
    check(fn, [x, y], [s / s.sum(), (s / s.sum() * y).T], 1e-6)


# -- half precision ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16])
def test_half_precision_is_rounded_where_it_has_more_digits_and_only_there(dtype: Any) -> None:
    narrow = dt.from_numpy(np.dtype(dtype))

    def fn(x: Any, y: Any) -> Any:
        z = x.astype(narrow)  # rounds
        product = z * y  # computed in float32
        kept = ops.where(z > y, -z, ops.maximum(ops.relu(z), y)).astype(dt.float32)  # elements of the operands
        kept = kept + ops.where(z > y, z, 0.25).astype(dt.float32)  # and a number
        return z, product.astype(dt.float32), kept + product, ops.abs(z).astype(dt.float32) * 3, z.sum(0, keepdims=True).astype(dt.float32) - z.astype(dt.float32)

    x = np.concatenate([normal(40, 21), normal(40, 21) * 1e-39, np.tile(np.float32([np.inf, -np.inf, np.nan, 1.00390625, 1.01171875, 0.0, -0.0]), (40, 1))], 1)
    x[:, 5] = np.float32(1) + np.arange(40, dtype=np.float32) * np.float32(2**-9)  # ties
    y = normal(*x.shape).astype(dtype)
    with np.errstate(all="ignore"):
        z = x.astype(dtype)
        wide, other = z.astype(np.float32), y.astype(np.float32)
        product = (wide * other).astype(dtype).astype(np.float32)
        kept = np.where(wide > other, -wide, np.maximum(np.maximum(wide, 0), other))
        kept = kept + np.where(wide > other, wide, np.float32(0.25))
        total = wide.sum(0, keepdims=True).astype(dtype).astype(np.float32)
        want = [z, product, kept + product, abs(wide) * 3, total - wide]
    check(fn, [x, y], want, 1e-2)
    for target in TARGETS.values():
        got = run_guarded(graph_of(fn, [x, y]), [x, y], replace(target, flushes=False), True)
        for k in (0, 1, 3):
            assert np.array_equal(got[k].astype(np.float32), np.asarray(want[k]).astype(np.float32), equal_nan=True)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16])
@pytest.mark.parametrize("shape", [(300, 1), (30, 45), (45, 7)])
def test_half_precision_that_is_rounded_somewhere_is_the_same_number_everywhere(dtype: Any, shape: tuple[int, ...]) -> None:
    """As in a mean, which is taken in float32."""
    narrow = dt.from_numpy(np.dtype(dtype))

    def fn(x: Any, y: Any) -> Any:
        z = x * y
        row = z.sum(1, keepdims=True)
        return z == z.astype(dt.float32).astype(narrow), row == row.astype(dt.float32).astype(narrow), z - z.mean(1, keep_dims=True)

    x, y = (normal(*shape).astype(dtype) for _ in range(2))
    for target in TARGETS.values():
        same, rows, centred = run_guarded(graph_of(fn, [x, y]), [x, y], replace(target, flushes=False), True)
        assert same.all() and rows.all()
        assert (centred == 0).all() == (shape[1] == 1)


def test_a_number_has_the_digits_of_what_holds_it() -> None:
    for kind, number, fits in [("bfloat", 0.0, True), ("bfloat", -1.5, True), ("bfloat", 1.00390625, False), ("half", 1.00390625, True), ("half", 1e-9, False)]:
        b = FunctionBuilder(Module(), "f", [("p", PTR)])
        wide = LType("float", 8)
        x = b.cast(b.load(b.args["p"], wide.with_kind(kind)), wide)
        chosen = b.select(b.fcmp("ogt", x, b.const(0.0, wide)), x, b.const(number, wide))
        b.keep_digits(chosen, [x, b.const(number, wide)])
        assert (b.rounded_to(kind, chosen) is chosen) == fits
