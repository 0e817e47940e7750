"""Long reductions in parts, and sums that are added up chain by chain: all vector widths, on guarded memory, against numpy in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphcell as ms
from graphcell import Parameter, nn, ops
from graphcell import dtype as dt
from graphcell.codegen import fuse, reduction_parts
from graphcell.codegen.kernel import Index, LoopKernel
from graphcell.codegen.legalize import legalize
from graphcell.codegen.llvm import rows
from graphcell.codegen.llvm.loops import block_count
from graphcell.codegen.llvm.target import host
from graphcell.codegen.lower import lower
from graphcell.codegen.schedule import ScheduledKernel, schedule
from graphcell.ir.op import Array
from graphcell.ir.types import TensorType
from graphcell.passes.pipeline import run_pipeline
from graphcell.tensor import Tensor
from tests.codegen.plans import TARGETS
from tests.codegen.test_loop_shapes import RNG, check, graph_of, normal, whole
from tests.helpers import trace


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few points are worth parts."""
    for module in (fuse, reduction_parts):
        monkeypatch.setattr(module, "POINTS_OF_ONE_BLOCK", 256)
        monkeypatch.setattr(module, "rows_of_block", lambda row: 8)
    monkeypatch.setattr(reduction_parts, "_LENGTH", 64)


def scheduled(fn: Any, arrays: list[Array]) -> list[ScheduledKernel]:
    groups, info = fuse.fuse(legalize(run_pipeline(graph_of(fn, arrays))[0]))
    return [schedule(g, info) for g in groups if g.values]


def cut(fn: Any, arrays: list[Array]) -> LoopKernel:
    """The one kernel that is in parts."""
    (found,) = [s for s in scheduled(fn, arrays) if s.after]
    return found.kernel


# -- whole arrays --------------------------------------------------------------------------------------------------------
def loss(x: Tensor, y: Tensor) -> list[Tensor]:
    """Elements that are written, beside what comes of all of them."""
    z = ops.exp(x) * y
    return [z, z.mean() * 2.0 + 1.0, ops.abs(z).max(), (z * x).sum()]


@pytest.mark.parametrize("size", [257, 331, 449, 1009, 4099])
def test_sums_of_all_beside_what_is_written(size: int, small: None) -> None:
    arrays = [normal(size), normal(size)]
    kernel = cut(loss, arrays)
    assert size % kernel.extents[-1] and any(kernel.writes_inside(s) for s in kernel.stores)
    x, y = (a.astype(np.float64) for a in arrays)
    z = np.exp(x) * y
    check(loss, arrays, (z, z.mean() * 2 + 1, np.abs(z).max(), (z * x).sum()), 1e-4)


def test_every_rest(small: None) -> None:
    rests = set()
    for size in (1025, 1055, 1056, 1087, 1088):
        x = normal(size)
        found = [s for s in scheduled(lambda x: [x.sum(), ops.abs(x)], [x]) if s.after]
        rests.update(s.after[0].kernel.extents[-1] for s in found if len(s.after) == 2)
        got, written = ms.jit(lambda x: (x.sum(), ops.abs(x)))(Tensor(x))
        np.testing.assert_allclose(got.asnumpy(), x.astype(np.float64).sum(), rtol=1e-5, atol=1e-4)
        np.testing.assert_array_equal(written.asnumpy(), np.abs(x))
    assert rests == {1, 31, 32, 63}


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int8, np.int32, np.int64, np.uint8, np.bool_], ids=lambda t: t.__name__)
def test_dtypes(dtype: Any, small: None) -> None:
    x = whole(dtype, 1031)
    if dtype is np.bool_:
        x[:] = True
        check(lambda x: [x.all(), ops.logical_not(x).any()], [x], (True, False))
        x[1030] = False
        check(lambda x: [x.all(), ops.logical_not(x).any()], [x], (False, True))
        return
    x = np.abs(x) if dtype is np.uint8 else x
    check(lambda x: [x.max(), x.min(), ops.abs(x).max()], [x], (x.max(), x.min(), np.abs(x).max()))
    if x.dtype.kind == "f":
        check(lambda x: [x.sum(), x.mean() * 1031.0], [x], (x.astype(np.float64).sum(),) * 2, 1e-2 if dtype is np.float16 else 1e-6)


def test_half_precision_rounds_once() -> None:
    """The parts come to float32: 40009 * 0.5 would not be a number of float16's that one after the other could be added to."""
    x = np.full(40009, 0.5, np.float16)
    got = ms.jit(lambda x: x.sum() * 0.125)(Tensor(x)).asnumpy()
    assert got == np.float16(np.float16(40009 * 0.5) * 0.125)


def test_places_stay_places_in_the_rest(small: None) -> None:
    """Indices, windows with zeros around them and tables: all of them know where an element is."""
    x, table = normal(1031), normal(17)
    steps = np.arange(1031)
    index = RNG.integers(-17, 17, 1031).astype(np.int32)

    def fn(x: Tensor) -> list[Tensor]:
        ramp = ops.arange(1031).astype(ms.float32)
        return [(x * ramp).sum(), ops.where(ramp < 1015.0, x, -x).sum(), (ops.pad(x, (3, 5)) * 2.0).sum(), x.argmax()]

    wide = x.astype(np.float64)
    want = (wide * steps).sum(), np.where(steps < 1015, wide, -wide).sum(), 2 * wide.sum(), x.argmax()
    check(fn, [x], want, 1e-4)
    got = ms.jit(lambda x, table, index: (x * table[index]).sum())(*map(Tensor, (x, table, index)))
    np.testing.assert_allclose(got.asnumpy(), (wide * table[index]).sum(), rtol=1e-4)
    found = [s for s in scheduled(lambda x: (x * ops.arange(1031).astype(ms.float32)).sum(), [x]) if s.after]
    assert any(isinstance(s.what, Index) and s.what.offset for s in found[0].after[0].kernel.body)


@pytest.mark.parametrize("shape", [(101, 7), (7, 101), (3, 41, 5), (2, 3, 149), (1, 1, 61, 59)], ids=str)
def test_several_dimensions(shape: tuple[int, ...], small: None) -> None:
    arrays = [normal(*shape), normal(shape[-1])]

    def fn(x: Tensor, bias: Tensor) -> list[Tensor]:
        y = ops.tanh(x + bias)
        return [y.mean(), y, (y * y).sum()]

    y = np.tanh(arrays[0].astype(np.float64) + arrays[1])
    check(fn, arrays, (y.mean(), y, (y * y).sum()), 1e-5)


def test_what_waits_for_a_sum_is_apart(small: None) -> None:
    x = normal(1031)
    found = scheduled(lambda x: (x - x.mean()) / ops.sqrt(x.var()), [x])
    assert sum(bool(s.after) for s in found) >= 2 and all(s.kernel.stages <= 2 for s in found)
    wide = x.astype(np.float64)
    check(lambda x: [(x - x.mean()) * ops.rsqrt(x.var()), x / ops.exp(x).sum()], [x], ((wide - wide.mean()) / wide.std(), wide / np.exp(wide).sum()), 1e-4)


# -- rows and columns ----------------------------------------------------------------------------------------------------
def columns(x: Tensor, scale: Tensor) -> list[Tensor]:
    return [x.sum(0) * scale, x.mean(0), ops.abs(x).max(axis=0), (x * x).sum(0)]


@pytest.mark.parametrize("shape", [(67, 33), (401, 3), (131, 64), (257, 7), (79, 130), (71, 5, 9)], ids=str)
def test_columns(shape: tuple[int, ...], small: None) -> None:
    arrays = [normal(*shape), normal(*shape[1:])]
    x, scale = (a.astype(np.float64) for a in arrays)
    assert any(s.after for s in scheduled(columns, arrays))
    check(columns, arrays, (x.sum(0) * scale, x.mean(0), np.abs(x).max(0), (x * x).sum(0)), 1e-4)


@pytest.mark.parametrize("shape", [(3, 1031), (2, 3, 499), (15, 263)], ids=str)
def test_few_rows(shape: tuple[int, ...], small: None) -> None:
    arrays = [normal(*shape), normal(*shape[:-1])]
    fn = lambda x, scale: [(x * x).sum(-1) * scale, x.max(axis=-1), ops.abs(x)]  # noqa: E731
    x, scale = (a.astype(np.float64) for a in arrays)
    assert all(s.kernel.extents[-1] < shape[-1] for s in scheduled(fn, arrays) if s.kernel.reduces)
    check(fn, arrays, ((x * x).sum(-1) * scale, x.max(-1), np.abs(x)), 1e-4)


def test_long_reductions_have_blocks_for_threads() -> None:
    for fn, shape in ((lambda x: x.sum(), (100003,)), (lambda x: x.max(axis=0), (4099, 64)), (lambda x: x.mean(0), (100003, 3)), (lambda x: x.sum(1), (2, 100003))):
        assert all(block_count(cut(fn, [normal(*shape)]), target) >= 4 for target in TARGETS.values())


def test_normalised_columns_of_prime_number() -> None:
    """Neither their means nor their variances wait for each other in one walk down the columns; those that are divided, and extrema, stay as they are."""

    def fn(x: Tensor) -> Tensor:
        return (x - x.mean(0)) * ops.rsqrt(x.var(0) + 1e-5)

    x = normal(1201, 197)
    assert all(s.kernel.stages <= 2 for s in scheduled(fn, [x])) and sum(bool(s.after) for s in scheduled(fn, [x])) >= 2
    assert any(s.kernel.stages > 2 for s in scheduled(lambda x: ops.softmax(x, 0), [x]))
    wide = x.astype(np.float64)
    np.testing.assert_allclose(ms.jit(fn)(Tensor(x)).asnumpy(), (wide - wide.mean(0)) / np.sqrt(wide.var(0) + 1e-5), rtol=1e-4, atol=1e-5)


def test_results_do_not_depend_on_threads() -> None:
    x, y = Tensor(normal(100003)), Tensor(normal(4099, 37))
    found = []
    for threads in (1, 2, 3):
        ms.set_context(runtime_num_threads=threads)
        results = [*ms.jit(loss)(x, x), *ms.jit(columns)(y, y[0])]
        found.append([r.asnumpy().tobytes() for r in results])
    assert found[0] == found[1] == found[2]


class Running(nn.Cell):
    """A mean that is kept up to date, in place."""

    def __init__(self, width: int):
        super().__init__()
        self.mean = Parameter(Tensor(np.zeros(width, np.float32)), name="mean")
        self.total = Parameter(Tensor(np.zeros((), np.float32)), name="total")

    def construct(self, x: Tensor) -> Tensor:
        self.mean = 0.5 * self.mean + 0.5 * (x * self.mean + 1.0).mean(0)
        self.total = self.total + (x * self.total + x).sum()
        return ops.abs(x)


def test_what_is_read_by_all_parts_is_not_written_before_the_last(small: None) -> None:
    net, mean, total = Running(37), np.zeros(37), 0.0
    step = ms.jit(net)
    for _ in range(3):
        x = normal(1031, 37) * 0.01
        step(Tensor(x))
        mean = 0.5 * mean + 0.5 * (x * mean + 1.0).mean(0)
        total = total + (x.astype(np.float64) * total + x).sum()
    np.testing.assert_allclose(net.mean.asnumpy(), mean, rtol=1e-5)
    np.testing.assert_allclose(net.total.asnumpy(), total, rtol=1e-4)


# -- digits --------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("shape", "axis"),
    [((300007,), None), ((3000017,), None), ((3, 300007), 1), ((300007, 3), 0), ((300007, 64), 0), ((1, 1, 1009, 997), (2, 3)), ((17, 200003), 1), ((40, 30011), 1)],
    ids=str,
)
def test_sums_of_many_equal_numbers(shape: tuple[int, ...], axis: Any) -> None:
    """One accumulator would drift by as many units in the last place as it adds."""
    x = np.full(shape, 0.1, np.float32)
    want = x.astype(np.float64).sum(axis)
    got = ms.jit(lambda x: x.sum(axis) if axis is not None else x.sum())(Tensor(x)).asnumpy()
    np.testing.assert_allclose(got, want, rtol=5e-6)


@pytest.mark.parametrize("shape", [(20, 100003), (100003, 20)], ids=str)
def test_long_rows_and_columns_that_are_read_again_keep_their_digits(shape: tuple[int, int]) -> None:
    axis = shape.index(100003)
    x = np.full(shape, 0.1, np.float32)
    got = ms.jit(lambda x: ops.softmax(x, axis))(Tensor(x)).asnumpy()
    np.testing.assert_allclose(got, 1 / 100003, rtol=5e-6)


@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.float32], ids=lambda t: t.__name__)
@pytest.mark.parametrize("shape", [(64, 7), (7, 64), (33, 9), (5, 3000), (3, 40, 17)], ids=str)
def test_rows_of_every_width_of_vectors(dtype: Any, shape: tuple[int, ...]) -> None:
    """Tiles with fewer lanes than partial sums, too."""
    x = whole(dtype, *shape)
    for axis in range(len(shape)):

        def fn(x: Tensor, axis: int = axis) -> list[Tensor]:
            return [ops.sum(x, axis), ops.amax(x, axis), x - ops.amax(x, axis, True)]

        check(fn, [x], (x.sum(axis), x.max(axis), x - x.max(axis, keepdims=True)))


@pytest.mark.slow
@pytest.mark.parametrize("length", [1, 3, 8])
@pytest.mark.parametrize("shape", [(5, 700), (700, 5), (700, 37), (3, 7, 150), (3, 150, 7), (150, 7, 33)], ids=str)
def test_chains_of_any_length(shape: tuple[int, ...], length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Horizontal and vertical reductions, with one and with several inner loops, of several kinds in one walk."""
    monkeypatch.setattr(rows, "_CHAIN", length)
    x = normal(*shape)
    wide = x.astype(np.float64)
    for axis in {0, len(shape) - 1, *([(0, 2), (0, 1), (1, 2)] if len(shape) == 3 else [])}:

        def fn(x: Tensor, axis: Any = axis) -> list[Tensor]:
            return [x.sum(axis), ops.amax(x, axis), (x * x).sum(axis), x - x.mean(axis, keep_dims=True)]

        check(fn, [x], (wide.sum(axis), wide.max(axis), (wide * wide).sum(axis), wide - wide.mean(axis, keepdims=True)), 1e-4)


# -- in place ------------------------------------------------------------------------------------------------------------
class Updated(nn.Cell):
    """A Parameter that becomes something of itself, beside what is reduced of it in the same walk."""

    def __init__(self, values: Array):
        super().__init__()
        self.values = Parameter(Tensor(values), name="values")


class Decayed(Updated):
    def construct(self, g: Tensor) -> Tensor:
        self.values = self.values * 0.5 + g
        return (self.values * self.values).sum()


class Before(Updated):
    def construct(self, g: Tensor) -> Tensor:
        norm = (self.values * g).sum()
        self.values = self.values + g
        return norm


class Turned(Updated):
    def construct(self, g: Tensor) -> Tensor:
        total = (ops.flip(self.values, (0,)) * g).sum() + (ops.roll(self.values, 1, 0) * g).sum()
        self.values = self.values + g
        return total


class ByTheFirst(Updated):
    def construct(self, g: Tensor) -> Tensor:
        total = (g * 2.0).sum() * self.values[0] + (g * self.values[0]).sum()
        self.values = self.values + g
        return total


class Shorter(Updated):
    def construct(self, g: Tensor) -> Tensor:
        padded = ops.pad(self.values[:-3], (0, 3)) * g  # lies where the values do, but not to the end
        self.values = self.values * 2.0
        return padded.sum()


UPDATES: dict[type[Updated], Any] = {
    Decayed: lambda p, g: (((p * 0.5 + g) ** 2).sum(), p * 0.5 + g),
    Before: lambda p, g: ((p * g).sum(), p + g),
    Turned: lambda p, g: ((p[::-1] * g).sum() + (np.roll(p, 1) * g).sum(), p + g),
    ByTheFirst: lambda p, g: (3 * g.sum() * p[0], p + g),
    Shorter: lambda p, g: ((p[:-3] * g[:-3]).sum(), p * 2.0),
}


@pytest.mark.parametrize("cell", UPDATES, ids=lambda c: c.__name__)
@pytest.mark.parametrize("size", [1031, 4096, 40009, 65536])
def test_updates_beside_what_is_reduced(cell: type[Updated], size: int, small: None) -> None:
    values, g = normal(size), normal(size)
    net, wide = cell(values), values.astype(np.float64)
    step = ms.jit(net)
    for _ in range(2):
        want, wide = UPDATES[cell](wide, g.astype(np.float64))
        np.testing.assert_allclose(step(Tensor(g)).asnumpy(), want, rtol=1e-4, atol=1e-2)
        np.testing.assert_allclose(net.values.asnumpy(), wide, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", [1 << 20, 1000003])
def test_what_is_reduced_beside_an_update_needs_no_copy(size: int) -> None:
    """The new values go over the old ones, which are read once."""
    graph = trace(lambda p, g: (p * 0.5 + g, ((p * 0.5 + g) * g).sum()), TensorType(dt.float32, (size,)), TensorType(dt.float32, (size,)))
    program = lower(run_pipeline(graph)[0], ((0, 0),), host())
    assert "call void @llvm.memcpy" not in program.text
    assert program.arena_bytes < 4 * size
