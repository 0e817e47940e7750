"""Sorts and selections in native code beside ranks that numpy.unique gives: order, stability, NaN, zeros, any axis, any dtype."""

from __future__ import annotations

import itertools
import math

import ml_dtypes
import numpy as np
import pytest

import graphcell as ms
from graphcell import Tensor, ops
from graphcell import dtype as dt
from graphcell.codegen.llvm import sorting
from graphcell.codegen.llvm.sort_keys import SortKernel
from graphcell.codegen.llvm.target import host
from graphcell.dtype import from_numpy
from graphcell.ir.op import Array
from graphcell.ir.types import TensorType
from graphcell.ops.dispatch import apply
from graphcell.ops.sorting import Sort, TopK
from graphcell.runtime import threads
from tests.codegen.plans import TARGETS
from tests.codegen.test_guards import run_guarded
from tests.helpers import trace

KINDS = [np.bool_, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64, np.float16, ml_dtypes.bfloat16, np.float32, np.float64]
SHAPES = [((1,), 0), ((7,), 0), ((3, 33), 1), ((3, 33), 0), ((2, 400), 1), ((5, 97, 3), 1), ((2, 2000), 1), ((0, 5), 1), ((3, 40, 40), 0), ((4, 16), 1), ((4, 17), 1), ((3, 64), 1), ((3, 65), 1), ((2, 128, 2), 1), ((2, 129), 1)]


def some(kind: type, shape: tuple[int, ...], seed: int) -> Array:
    """Numbers with repetitions; floats with zeros of both signs, NaN of both signs, infinities and subnormals."""
    rng, dtype = np.random.default_rng(seed), np.dtype(kind)
    if dtype == np.bool_:
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        wide: Array = rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)
        return np.where(rng.random(shape) < 0.5, wide, wide % dtype.type(7))
    special = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, -1e-40, 0.5, -0.5], np.float64)
    x = np.where(rng.random(shape) < 0.3, rng.choice(special, shape), rng.standard_normal(shape))
    return x.astype(dtype)


def order(x: Array, axis: int, descending: bool) -> Array:
    """Indices of the stable order: NaN is the largest, and one number, as both zeros are."""
    keys = x if x.dtype.kind in "iub" else x.astype(np.float64)
    ranks = np.unique(keys, return_inverse=True, equal_nan=True)[1].reshape(x.shape)
    return np.argsort(-ranks if descending else ranks, axis, kind="stable")


def check(op: Sort | TopK, x: Array) -> None:
    results = ms.jit(lambda t: apply(op, t))(Tensor(x))
    descending, count = (op.largest, op.k) if isinstance(op, TopK) else (op.descending, x.shape[op.axis])
    places = np.take(order(x, op.axis, descending), np.arange(count), op.axis)
    values = np.take_along_axis(x, places, op.axis)
    for got, wanted in zip(results, (values, places.astype(np.int64)), strict=True):
        assert got.shape == wanted.shape
        assert got.asnumpy().tobytes() == np.ascontiguousarray(wanted).tobytes()


def choose(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorting, "suits_network", lambda kernel, target: way == "side by side")
    monkeypatch.setattr(sorting, "suits_few", lambda kernel, target: way == "in registers")


@pytest.fixture(params=["in turn", "side by side"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """One sequence after the other, or as many at once as a vector has lanes, even if one has no company."""
    choose(request.param, monkeypatch)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: np.dtype(kind).name)
@pytest.mark.parametrize(("shape", "axis"), SHAPES, ids=str)
def test_sort(kind: type, shape: tuple[int, ...], axis: int, way: None) -> None:
    for descending in (False, True):
        check(Sort(axis, descending), some(kind, shape, math.prod(shape)))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: np.dtype(kind).name)
@pytest.mark.parametrize(("shape", "axis"), SHAPES, ids=str)
def test_topk(kind: type, shape: tuple[int, ...], axis: int, way: None) -> None:
    x = some(kind, shape, math.prod(shape) + 1)
    for k in sorted({1, min(3, shape[axis]), min(32, shape[axis]), min(100, shape[axis])}):
        check(TopK(k, axis, largest=k % 2 == 1), x)


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int16, np.float16, np.float32, np.uint32, np.float64], ids=lambda kind: np.dtype(kind).name)
@pytest.mark.parametrize("k", [1, 2, 3, 7, 20, 32])
def test_the_first_few_with_a_bound(kind: type, k: int) -> None:
    """Rows in which few keys differ, or none; in which fewer than k lie below the largest key of all, which comes last; and whose first ones come late."""
    rng, extent = np.random.default_rng(k), 1027
    x = some(kind, (7, extent), 5)
    last = np.array([np.nan if x.dtype.kind == "f" else np.iinfo(kind).max, np.nan if x.dtype.kind == "f" else np.iinfo(kind).min]).astype(kind)
    x[0], x[1] = 3, rng.integers(0, 2, extent)
    x[2], x[3] = last
    x[4] = last[rng.integers(0, 2, extent)]
    for row, value in ((2, 1), (3, 1), (4, 2)):
        x[row, rng.integers(0, extent, min(k, 5) - 1)] = value
    x[5, : 800] = x[5, :800].max()
    for largest in (True, False):
        check(TopK(k, 1, largest), x)
        for n in (97, 192, 200, 256):
            check(TopK(k, 1, largest), np.ascontiguousarray(x[:, -n:]))


@pytest.mark.parametrize("k", [1, 5, 32, 33, 70])
@pytest.mark.parametrize("extent", [70, 331, 1024, 5003])
def test_rows_that_are_sorted_already(k: int, extent: int) -> None:
    """Each element comes before all that were found so far, or none does, or all are equal."""
    for x in (np.arange(extent, dtype=np.float32), np.arange(extent, dtype=np.float32)[::-1], np.zeros(extent, np.float32)):
        check(TopK(k, 1), np.stack([x, x, x]))
        check(TopK(k, 1, largest=False), np.stack([x, x, x]))


@pytest.mark.parametrize("kind", [np.float32, np.float64], ids=lambda kind: np.dtype(kind).name)
@pytest.mark.parametrize("axis", [0, 1])
def test_sequences_side_by_side_of_any_length(kind: type, axis: int) -> None:
    """Whole runs of eight and parts of one, powers of two and what is just below and above, groups that are not full."""
    lanes = host().lanes("double")
    for extent in (6, 7, 8, 9, 15, 16, 17, 24, 31, 33, 63, 64, 65, 127, 129, 250, 257, 1000):
        sequences = 3 * lanes - extent % (1 + lanes // 4)
        kernel = SortKernel(from_numpy(np.dtype(kind)), 1 if axis == 0 else sequences, extent, sequences if axis == 0 else 1, extent, False)
        assert sorting.suits_network(kernel, host()) == (lanes >= 4)
        check(Sort(axis, extent % 2 == 0), some(kind, (extent, sequences) if axis == 0 else (sequences, extent), extent))


def test_the_first_few_of_long_rows_are_found_in_a_walk() -> None:
    rows, columns = SortKernel(dt.float32, 64, 3000, 1, 5, True), SortKernel(dt.float32, 1, 3000, 64, 5, True)
    assert not sorting.suits_network(rows, host()) and not sorting.suits_network(SortKernel(dt.float32, 1, 3000, 1, 3000, True), host())
    assert sorting.suits_network(columns, host()) == (host().lanes("double") >= 4)


def test_the_first_few_of_many_sequences_stay_in_registers() -> None:
    many, few = 64, host().lanes("float") // 2
    for inner in (1, many):
        assert sorting.suits_few(SortKernel(dt.float32, many // inner, 64, inner, 2, True), host()) == (host().lanes("float") >= 4)
        assert not sorting.suits_few(SortKernel(dt.float32, many // inner, 64, inner, 20, True), host())
    assert not sorting.suits_few(SortKernel(dt.float32, many, 3000, 1, 2, True), host()), "found in a walk"
    assert not sorting.suits_few(SortKernel(dt.float32, few, 64, 1, 2, True), host()), "lanes without a sequence"


@pytest.mark.slow
@pytest.mark.parametrize("kind", [np.int8, np.uint16, np.float16, ml_dtypes.bfloat16, np.float32, np.uint32, np.float64, np.int64], ids=lambda kind: np.dtype(kind).name)
@pytest.mark.parametrize("k", [1, 2, 5, 16])
def test_the_first_few_in_registers(kind: type, k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of squares and a rest, columns that lie beside each other in whole vectors and not, keys that are all the largest or smallest there is."""
    monkeypatch.setattr(sorting, "suits_few", lambda kernel, target: True)
    extremes = (np.nan, -np.inf, 0) if np.dtype(kind).kind not in "iu" else (np.iinfo(kind).max, np.iinfo(kind).min, 0)
    for shape, axis in (((33, k), 1), ((17, k + 7), 1), ((16, k + 32), 1), ((19, 61), 1), ((k + 5, 32), 0), ((61, 21), 0), ((3, 20, 16), 1)):
        x = some(kind, shape, k)
        for value in [np.array(n).astype(kind) for n in extremes]:
            for largest in (True, False):
                check(TopK(k, axis, largest), x)
                check(TopK(k, axis, largest), np.full_like(x, value))


@pytest.mark.parametrize(("way", "count"), [*itertools.product(("in turn", "side by side"), (5, 16, 70, 203)), ("in registers", 5), ("in registers", 16)])
@pytest.mark.parametrize(("shape", "axis"), [((7, 203), 1), ((203, 6), 0), ((2, 203, 3), 1)], ids=str)
def test_nothing_is_touched_outside_of_the_arrays(shape: tuple[int, ...], axis: int, count: int, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    choose(way, monkeypatch)
    for kind in (np.float32, np.float64, np.int16):
        x = some(kind, shape, 9)
        graph = trace(lambda t: apply(TopK(count, axis), t), TensorType(from_numpy(np.dtype(kind)), shape))
        places = np.take(order(x, axis, True), np.arange(count), axis)
        for target in TARGETS.values():
            for at_end in (True, False):
                values, indices = run_guarded(graph, [x], target, at_end)
                assert values.tobytes() == np.take_along_axis(x, places, axis).tobytes() and np.array_equal(indices, places)


@pytest.mark.parametrize("width", ["16", "32"])
def test_shorter_vectors(width: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHCELL_VECTOR_BYTES", width)
    for kind in (np.float32, np.float64, np.float16, np.int8):
        for extent in (3, 31, 61, 128, 203):
            check(Sort(1), some(kind, (5, extent), 7))
        check(TopK(5, 1), some(kind, (5, 203), 8))


def test_digits_that_all_share() -> None:
    """The bytes in which keys do not differ are passed over: an odd number of passes, and none."""
    rng = np.random.default_rng(3)
    for mask in (0xFF, 0xFF00, 0xFF00FF, 0xFFFFFF, 0):
        check(Sort(1), (rng.integers(0, 2**31, (4, 300)) & mask).astype(np.int32))


def test_a_long_row() -> None:
    x = np.random.default_rng(4).standard_normal(300_000).astype(np.float32)
    check(Sort(0), x)
    check(TopK(1000, 0), x)


def test_threads_share_the_rows() -> None:
    x = some(np.float32, (64, 1000), 5)
    pool = threads.pool()
    before = pool.threads
    try:
        for size in (1, 2, 3):
            pool.resize(size)
            check(Sort(1), x)
            check(TopK(10, 1), x)
            check(TopK(2, 1), np.ascontiguousarray(x[:, :100]))
    finally:
        pool.resize(before)


def test_what_is_sorted_goes_on() -> None:
    """Operands that are views, results that are concatenated, transposed, computed with, gradients through both."""
    x = np.random.default_rng(6).standard_normal((20, 30)).astype(np.float32)

    @ms.jit
    def f(t: Tensor) -> Tensor:
        values, places = ops.topk(t.T[1:] * 2, 4)
        return ops.cat((values + 1, ops.sort(t[:, :29].T, axis=1, descending=True)[0], places.astype(ms.float32)), 1)

    y = x.T[1:] * 2
    places = order(y, 1, True)[:, :4]
    rows = -np.sort(-x[:, :29].T, 1)
    wanted = np.concatenate([np.take_along_axis(y, places, 1) + 1, rows, places.astype(np.float32)], 1)
    assert (f(Tensor(x)).asnumpy() == wanted).all()

    gradient = ms.jit(ms.grad(lambda t: (ops.topk(t, 3)[0] * Tensor(np.array([1, 2, 3], np.float32))).sum()))(Tensor(x)).asnumpy()
    by_hand = np.zeros_like(x)
    np.put_along_axis(by_hand, order(x, 1, True)[:, :3], np.array([[1, 2, 3]], np.float32), 1)
    assert (gradient == by_hand).all()
