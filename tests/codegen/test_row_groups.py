"""Short rows in groups, of all vector widths, on guarded memory, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphcell import ops
from graphcell.codegen.llvm.row_groups import combine_rows
from graphcell.dtype import float32, float64, int8, int64
from graphcell.ir.op import Array
from graphcell.ops.dispatch import apply1
from graphcell.ops.indexing import GatherElements
from graphcell.ops.reduction import ReduceMax, ReduceMin, ReduceSum
from graphcell.tensor import Tensor
from tests.codegen.harness import build
from tests.codegen.test_loop_shapes import Function, check, graph_of, kernels, normal, whole

ROWS = [16, 17, 40]


def check_grouped(fn: Function, arrays: list[Array], want: Any, tolerance: float = 0.0) -> None:
    assert any(k.group >= 0 and " group" in str(k) for k in kernels(graph_of(fn, arrays)))
    check(fn, arrays, want, tolerance)


@pytest.mark.parametrize(("kind", "lanes"), [("float", 4), ("double", 2), ("float", 8), ("float", 16), ("double", 8), ("i64", 16), ("i8", 16)])
def test_vectors_are_combined_crosswise(kind: str, lanes: int) -> None:
    dtype = {"float": float32, "double": float64, "i64": int64, "i8": int8}[kind]
    rows = np.random.default_rng(3).integers(-4, 5, (lanes, lanes)).astype(dtype.np_type)
    total = build(lambda b, *rows: combine_rows(b, "add", rows, dtype), (kind,) * lanes, lanes)(*rows)
    assert np.array_equal(total, rows.sum(1, dtype=dtype.np_type))
    most = build(lambda b, *rows: combine_rows(b, "max", rows, dtype), (kind,) * lanes, lanes)(*rows)
    assert np.array_equal(most, rows.max(1))


@pytest.mark.slow
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("columns", [41, 64, 100, 256])
def test_softmax(rows: int, columns: int) -> None:
    x = normal(rows, columns)
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    check_grouped(lambda x: ops.softmax(x, -1), [x], e / e.sum(1, keepdims=True), 1e-6)
    check_grouped(lambda x: ops.logsumexp(x, -1), [x], np.log(np.exp(x.astype(np.float64)).sum(1)), 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int32, np.int64, np.int8, np.bool_])
@pytest.mark.parametrize("rows", ROWS)
def test_several_reductions_of_every_dtype(rows: int, dtype: Any) -> None:
    x = whole(dtype, rows, 50)

    def f(x: Tensor) -> Any:
        return tuple(apply1(op((1,)), x) for op in (ReduceSum, ReduceMax, ReduceMin))

    total = x.any(1) if dtype is np.bool_ else x.sum(1, dtype=dtype)
    check_grouped(f, [x], [total, x.max(1), x.min(1)])


@pytest.mark.parametrize("rows", ROWS)
def test_normalised_rows_with_numbers_of_rows_and_columns(rows: int) -> None:
    x, scale, shift, row = normal(rows, 72), normal(72), normal(72), normal(rows, 1)
    wide = x.astype(np.float64)
    centred = wide - wide.mean(1, keepdims=True)
    want = centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5) * scale + shift

    def f(x: Tensor, scale: Tensor, shift: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        y = ops.layer_norm(x, (72,), scale, shift)
        return y * row, ops.exp(row) * x.sum(1, keepdims=True)

    check_grouped(f, [x, scale, shift, row], [want * row, np.exp(row.astype(np.float64)) * wide.sum(1, keepdims=True)], 1e-5)


@pytest.mark.parametrize("rows", ROWS)
def test_labels_are_gathered_for_all_rows_of_a_group(rows: int) -> None:
    x, y = normal(rows, 60), np.random.default_rng(1).integers(0, 60, (rows, 1)).astype(np.int32)
    wide = x.astype(np.float64)
    loss = np.log(np.exp(wide).sum(1, keepdims=True)) - np.take_along_axis(wide, y, 1)

    def f(x: Tensor, y: Tensor) -> Tensor:
        return ops.logsumexp(x, 1, True) - apply1(GatherElements(1), x, y)

    check_grouped(f, [x, y], loss, 1e-5)


@pytest.mark.parametrize("shape", [(3, 20, 64), (20, 3, 64), (2, 3, 17, 5, 8)], ids=str)
def test_several_loops_around_a_row(shape: tuple[int, ...]) -> None:
    x = normal(*shape)
    axes = tuple(range(len(shape)))[-1:] if len(shape) == 3 else (3, 4)
    wide = x.astype(np.float64)
    centre, spread = wide.mean(axes, keepdims=True), wide.std(axes, keepdims=True)
    transposed = np.ascontiguousarray(np.swapaxes(x, 0, 1))

    def f(x: Tensor) -> Tensor:
        y = x.transpose(1, 0, *range(2, len(shape)))
        return (y - y.mean(axes, keep_dims=True)) / ops.sqrt(y.var(axes, keepdims=True))

    check_grouped(f, [transposed], (wide - centre) / spread, 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("width", [5, 9, 17, 33, 65])
@pytest.mark.parametrize("steps", [2, 3, 7])
def test_what_is_kept_of_rows_of_several_loops(steps: int, width: int) -> None:
    """The last vector of a row begins anywhere and reaches beyond it: not into what else is kept."""
    x, v = normal(17, steps, width), normal(width)
    tanh, sin = np.tanh(x.astype(np.float64) * v), np.sin(x.astype(np.float64) + v)
    want = tanh * tanh.max((1, 2), keepdims=True) + sin * sin.max((1, 2), keepdims=True)

    def f(x: Tensor, v: Tensor) -> Tensor:
        t, u = ops.tanh(x * v), ops.sin(x + v)
        return t * ops.amax(t, (1, 2), keepdims=True) + u * ops.amax(u, (1, 2), keepdims=True)

    check(f, [x, v], want, 1e-5)


def test_rows_of_padded_operands() -> None:
    x = normal(40, 50)
    padded = np.pad(x, ((2, 3), (7, 0)))
    e = np.exp(padded.astype(np.float64) - padded.max(1, keepdims=True))
    check_grouped(lambda x: ops.softmax(ops.pad(x, (7, 0, 2, 3)), -1), [x], e / e.sum(1, keepdims=True), 1e-6)


@pytest.mark.parametrize("place", [0, 15, 16, 39])
def test_what_is_not_finite_stays_in_its_row(place: int) -> None:
    x = normal(40, 48)
    x[place, 5] = np.nan
    x[(place + 1) % 40, 47] = np.inf
    check_grouped(lambda x: (ops.amax(x, 1), x.sum(1)), [x], [x.max(1), x.sum(1, dtype=np.float64)], 1e-5)


def test_a_row_of_the_result_may_go_over_its_operand() -> None:
    """In the arena, the second softmax is written over the first one."""
    x = normal(33, 64)

    def softmax(x: Array) -> Array:
        e = np.exp(x - x.max(1, keepdims=True))
        result: Array = e / e.sum(1, keepdims=True)
        return result

    y = x.astype(np.float64)
    for _ in range(3):
        y = softmax(y * 3.0)
    check_grouped(lambda x: ops.softmax(ops.softmax(ops.softmax(x * 3.0, 1) * 3.0, 1) * 3.0, 1), [x], y, 1e-6)


def test_rows_are_not_grouped_where_that_does_not_pay() -> None:
    """Few rows, long rows, and rows of which no number is dear."""
    fns = [(lambda x: ops.softmax(x, 1), (9, 64)), (lambda x: ops.softmax(x, 1), (64, 600)), (lambda x: x - x.mean(1, keep_dims=True), (64, 200))]
    for fn, shape in fns:
        assert all(k.group < 0 for k in kernels(graph_of(fn, [normal(*shape)])))
