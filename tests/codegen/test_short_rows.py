"""Loop nests over short rows: in the lanes or along them, alone or in groups, and what is kept of their points; of all vector widths, on guarded memory,
against numpy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from graphcell import dtype as dt
from graphcell import ops
from graphcell.codegen.fuse import fuse
from graphcell.codegen.kernel import keeps_points
from graphcell.codegen.legalize import legalize
from graphcell.codegen.llvm import loops
from graphcell.codegen.schedule import schedule
from graphcell.ops.dispatch import apply1
from graphcell.ops.indexing import GatherElements
from graphcell.ops.reduction import ArgMax, ReduceMax, ReduceSum
from graphcell.passes.pipeline import run_pipeline
from graphcell.tensor import Tensor
from tests.codegen.plans import TARGETS
from tests.codegen.test_loop_shapes import check, graph_of, kernels, normal, whole

RNG = np.random.default_rng(12)
Function = Callable[..., Any]


@pytest.mark.slow
@pytest.mark.parametrize("columns", [2, 3, 6, 10, 16, 17, 33, 100])
def test_short_rows(columns: int) -> None:
    x = normal(61, columns)
    wide = x.astype(np.float64)
    e = np.exp(wide - wide.max(1, keepdims=True))
    check(lambda x: ops.softmax(x, -1), [x], e / e.sum(1, keepdims=True), 1e-6)
    check(lambda x: (x.sum(1), ops.amax(x, 1), x.argmax(1)), [x], [wide.sum(1), wide.max(1), wide.argmax(1)], 1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("columns", [2, 3, 4, 5, 9, 12, 15, 16, 17])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_is_kept_of_short_rows(columns: int, dtype: Any) -> None:
    """The loss of each row and its gradient, for a number of rows that no vector divides; the label counts from either end."""
    x = RNG.standard_normal((77, columns)).astype(dtype)
    for kind in (np.int32, np.int64, np.uint8):
        label = RNG.integers(0 if kind is np.uint8 else -columns, columns, (77, 1)).astype(kind)

        def fn(x: Any, label: Any) -> Any:
            p = ops.softmax(x, -1)
            return p, apply1(GatherElements(1), ops.log(p), label)

        wide = x.astype(np.float64)
        p = np.exp(wide - wide.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        check(fn, [x, label], [p, np.take_along_axis(np.log(p), label.astype(np.int64), 1)], 1e-5)


@pytest.mark.parametrize("columns", [2, 3, 4, 5, 11, 16, 17])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8, np.bool_])
def test_neighbours_in_short_rows(columns: int, dtype: Any) -> None:
    """Differences of what lies beside each other, behind a one and before a zero: loads that stand for a number at some points of a row."""
    x, w = whole(dtype, 77, columns - 1), normal(77, columns)

    def fn(x: Any, w: Any) -> Any:
        x = ops.cast(x, dt.float32)
        d = ops.pad(x, (0, 1), value=1.0) - ops.pad(x, (1, 0), value=0.0)
        d = d * ops.exp(w - w.max(1, keepdims=True))
        return d / (ops.abs(d).sum(1, keepdims=True) + 1.0), d.max(1)

    wide, e = x.astype(np.float64), np.exp(w.astype(np.float64) - w.max(1, keepdims=True))
    d = (np.pad(wide, ((0, 0), (0, 1)), constant_values=1) - np.pad(wide, ((0, 0), (1, 0)))) * e
    check(fn, [x, w], [d / (abs(d).sum(1, keepdims=True) + 1), d.max(1)], 1e-5)


@pytest.mark.parametrize("channels", [2, 3, 4])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int8, np.bool_])
def test_sums_over_few_channels_behind_the_pixels(channels: int, dtype: Any) -> None:
    """The pixels lie in the lanes, also of what has the channels before them; two or three channels come there, and back, by shuffles."""
    x, y = whole(dtype, 3, 77, channels), whole(np.float32, 3, channels, 77)

    def fn(x: Any, y: Any) -> Any:
        d = ops.tanh(ops.cast(x, dt.float32)) - y.swapaxes(1, 2)
        return ops.abs(d).sum(), d, d > 0, ops.cast(d * 4.0, dt.int8)

    d = np.tanh(x.astype(np.float64)) - y.swapaxes(1, 2)
    check(fn, [x, y], [abs(d).sum(), d, d > 0, (d * 4).astype(np.int8)], 1e-6)
    tiled = [k for k in kernels(graph_of(fn, [x, y])) if k.points == d.size]
    assert [k.extents[k.tile] for k in tiled] == [channels]


@pytest.mark.parametrize("columns", [2, 3, 5, 9])
@pytest.mark.parametrize("dtype", [np.uint64, np.int64, np.uint32, np.uint8])
def test_extrema_of_short_rows_of_integers(columns: int, dtype: Any) -> None:
    """And their places: if shuffles brought unsigned ones of 64 bits into lanes of 16 bytes, LLVM would not come to an end, and nor would this test."""
    x, y = (RNG.integers(0, 50, (67, columns)).astype(dtype) for _ in range(2))

    def fn(x: Any, y: Any) -> Any:
        z = ops.maximum(x, y)
        return z, apply1(ReduceMax((1,)), z), apply1(ReduceMax((0,)), z), apply1(ArgMax(1), x)

    z = np.maximum(x, y)
    check(fn, [x, y], [z, z.max(1), z.max(0), x.argmax(1)])


def softmax_of_differences(x: Any, y: Any) -> Any:
    return ops.softmax(x - ops.pad(y[:, 1:], (1, 0), value=0.5), -1)


def softmax_of_sines(x: Any, y: Any) -> Any:
    return ops.softmax(ops.sin(x) + ops.sin(y) + ops.sin(x * y), -1)


@pytest.mark.parametrize(
    ("fn", "dtype", "most"),
    [(softmax_of_differences, np.float32, 16), (softmax_of_differences, np.float64, 8), (softmax_of_sines, np.float32, 8)],
)
def test_how_many_points_of_a_row_in_the_lanes_are_kept(fn: Function, dtype: Any, most: int) -> None:
    """Up to sixteen in two tiles; where they take many instructions, one tile: else their code would be long, and take long. Guards of points that are kept
    are no masks.
    """
    if 32 not in TARGETS:
        pytest.skip("the rest needs a processor with wider vectors")
    target = TARGETS[32]
    for columns in (most, most + 1):
        groups, info = fuse(legalize(run_pipeline(graph_of(fn, [normal(800, columns).astype(dtype)] * 2))[0]))
        kernel = next(k for g in groups if (k := schedule(g, info).kernel).reduces)
        kept = (kernel.vector, kernel.tile) == (0, 1) and keeps_points(kernel, target.lanes("float" if dtype is np.float32 else "double"))
        assert kept == (columns == most)
        module = target.module()
        loops.emit_loops(module, "f", kernel, target)
        assert not kept or ("icmp ult i64" not in str(module) and "tile.head" not in str(module))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int32, np.int8])
@pytest.mark.parametrize("columns", [3, 12, 16, 33, 64, 65])
def test_what_is_the_same_in_each_of_many_short_rows(columns: int, dtype: Any) -> None:
    """It is computed before the rows, also for what lies apart, some of one array, and with values of other rows beside it."""
    wide, c, d = whole(dtype, 61, columns + 5), whole(dtype, columns), whole(dtype, columns)
    check(lambda x, c, d: x[:, 2 : 2 + columns] * (c * d - c) + d, [wide, c, d], wide[:, 2 : 2 + columns] * (c * d - c) + d)
    x, r = whole(dtype, 7, 9, columns), whole(dtype, 9, 1)
    check(lambda x, c, d, r: (x * (c + d) - r, ops.maximum(c * c, x)), [x, c, d, r], [x * (c + d) - r, np.maximum(c * c, x)])


def gradients_of_norms(*arrays: Tensor) -> Tensor:
    """Twelve channels of a value that was put together four times, each time with a norm: gradients of parts, and of its moments."""
    x, (parts, columns) = arrays[0], (arrays[1:5], arrays[5:])
    total = parts[0][:, :12]
    for k, part in enumerate(parts):
        a, b, c, d = columns[4 * k : 4 * k + 4]
        total = total + part[:, :12] + ((x - d) * (((a * a) * a * -0.5) * b * 1e-4) + c * 2e-4)
    return total


def test_rows_of_few_channels_that_lie_apart_are_not_tiled() -> None:
    """What is the same for a channel counts for nothing there; if it was counted for each row, rows of twelve would be transposed."""
    wide, columns = [normal(800, n) for n in (12, 72, 60, 48, 36)], [normal(12) for _ in range(16)]
    assert [(k.extents, k.tile) for k in kernels(graph_of(gradients_of_norms, [*wide, *columns])) if k.points > 12] == [((800, 12), -1)]


def test_what_is_the_same_in_each_row_is_computed_before_the_rows() -> None:
    x, c = normal(50, 12), normal(12)
    (kernel,) = kernels(graph_of(lambda x, c: x * (c * c * c), [x, c]))
    module = TARGETS[max(TARGETS)].module()
    loops.emit_loops(module, "f", kernel, TARGETS[max(TARGETS)])
    before, _, inside = str(module).partition("block.head")
    assert before.count("fmul") == 2 * inside.count("fmul") > 0


@pytest.mark.parametrize("columns", [3, 10, 24])
def test_short_rows_in_three_dimensions(columns: int) -> None:
    x = whole(np.float32, 7, 5, 3, columns)
    check(lambda x: (apply1(ReduceSum((2, 3)), x), apply1(ReduceMax((1, 3)), x)), [x], [x.sum((2, 3)), x.max((1, 3))])


def test_values_of_the_lanes_beyond_a_row_stay_unseen() -> None:
    """What is spilled beside a short row is never used: 0 / 0 there would be NaN."""
    x = np.full((9, 10), -1e30, np.float32)
    x[:, 3] = 0.0
    check(lambda x: ops.softmax(x, -1), [x], (np.arange(10) == 3) * np.ones((9, 1)))
