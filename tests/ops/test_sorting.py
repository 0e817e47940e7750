"""Sorting, medians, counting and searching against numpy; gradients against finite differences."""

# mypy: disable-error-code="arg-type, no-untyped-call, operator, call-overload, misc"
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphcell import dtype as dt
from graphcell import ops
from graphcell.ops.dispatch import Tape, recording
from graphcell.tensor import Tensor
from tests.helpers import check_gradients, in_graph
from tests.ops.test_reduction import both, close

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(31)


def array(*shape: int) -> Array:
    return RNG.normal(size=shape)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int8, np.uint64, np.bool_])
def test_sort_keeps_the_order_of_equal_elements(axis: int, kind: Any) -> None:
    x = RNG.integers(0, 3, (4, 3, 5)).astype(kind)
    order = np.argsort(x, axis, kind="stable")
    close(both(lambda t: ops.sort(t, axis), Tensor(x)), (np.sort(x, axis), order.astype(np.int32)))
    down = np.argsort(-x.astype(np.int64), axis, kind="stable")
    close(ops.sort(Tensor(x), axis, True), (np.take_along_axis(x, down, axis), down.astype(np.int32)))
    close(ops.argsort(Tensor(x), axis, True), down.astype(np.int32))
    close(Tensor(x).sort(dim=axis)[0], np.sort(x, axis))


@pytest.mark.parametrize("kind", [dt.float16, dt.bfloat16, dt.float32])
def test_nan_is_larger_than_any_number(kind: dt.DType) -> None:
    x = Tensor([1.0, float("nan"), -2.0, float("inf"), -0.0]).astype(kind)
    assert ops.argsort(x).tolist() == [2, 4, 0, 3, 1] and ops.argsort(x, descending=True).tolist() == [1, 3, 0, 4, 2]
    assert ops.topk(x, 2)[1].tolist() == [1, 3] and ops.topk(x, 2, largest=False)[1].tolist() == [2, 4]


def test_topk() -> None:
    x = array(3, 6, 2)
    for axis in (0, 1, -1):
        for k in range(1, x.shape[axis] + 1):
            order = np.take(np.argsort(-x, axis, kind="stable"), np.arange(k), axis)
            close(ops.topk(Tensor(x), k, axis), (np.take_along_axis(x, order, axis), order.astype(np.int32)))
    close(ops.top_k(Tensor(x), 1)[0], x.max(-1, keepdims=True))
    close(ops.topk(Tensor([2, 3, 3, 1]), 3), (np.array([3, 3, 2]), np.array([1, 2, 0], np.int32)))
    close(ops.msort(Tensor(x)), np.sort(x, 0))


def test_gradients() -> None:
    x = array(3, 4)
    check_gradients(lambda t: ops.sort(t, 0)[0] ** 2, x)
    check_gradients(lambda t: ops.sort(t, 1, True)[0] ** 3, x)
    check_gradients(lambda t: ops.topk(t, 2, 1)[0] ** 2, x)
    check_gradients(lambda t: ops.median(t, 1)[0] ** 2, x)
    check_gradients(lambda t: ops.nanmedian(t, 0)[0] ** 2, x)


def test_median() -> None:
    for count in (1, 4, 5):
        x = array(3, count)
        order = np.argsort(x, 1)[:, [(count - 1) // 2]]
        close(both(lambda t: ops.median(t, 1, True), Tensor(x)), (np.take_along_axis(x, order, 1), order))
    x = np.array([[1.0, np.nan, 3.0, 0.0], [4.0, 2.0, 3.0, 9.0]])
    close(ops.median(Tensor(x)), (np.array([np.nan, 3.0]), np.array([1, 2])))
    close(ops.nanmedian(Tensor(x)), (np.array([1.0, 3.0]), np.array([0, 2])))
    close(ops.median(Tensor([3, 1, 2])), (np.int64(2), np.int64(2)))
    close(ops.median(Tensor(np.float64(7.0)), 0), (np.float64(7.0), np.int64(0)))


def test_unique() -> None:
    close(ops.unique(Tensor([3, 1, 2, 3, 1])), (np.array([3, 1, 2]), np.array([0, 1, 2, 0, 1])))
    close(ops.unique(Tensor(np.array([[2.5, 1.0], [2.5, 7.0]]))), (np.array([2.5, 1.0, 7.0]), np.array([[0, 1], [0, 2]], np.int32)))
    x = np.array([[3, 1, 3], [1, 1, 2]])
    values, inverse, counts = np.unique(x, return_inverse=True, return_counts=True)
    close(Tensor(x).unique(return_inverse=True, return_counts=True), (values, inverse.reshape(x.shape), counts))
    close(Tensor(x).unique(), values)
    rows = np.array([[1, 2], [0, 1], [1, 2]])
    close(Tensor(rows).unique(dim=0, return_inverse=True), (np.unique(rows, axis=0), np.array([1, 0, 1])))
    runs = Tensor([1, 1, 2, 2, 3, 1])
    close(ops.unique_consecutive(runs, True, True), (np.array([1, 2, 3, 1]), np.array([0, 0, 1, 1, 2, 3]), np.array([2, 2, 1, 1])))
    close(ops.unique_consecutive(Tensor([[1, 1, 2], [3, 3, 3]]), return_counts=True, dim=1), (np.array([[1, 2], [3, 3]]), np.array([2, 1])))
    close(ops.unique_consecutive(Tensor(np.zeros(0))), np.zeros(0))
    with pytest.raises(RuntimeError, match="while the graph is being built"):
        in_graph(ops.unique, runs)
    t, tape = Tensor(np.array([2.0, 1.0, 2.0])), Tape()
    tape.watch(t)
    with recording(tape):
        y = ops.unique(t)[0]
    (g,) = tape.gradients([y], [Tensor(np.array([3.0, 4.0]))], [t])
    assert g is not None and g.tolist() == [3.0, 4.0, 0.0]


def test_bincount_and_histogram() -> None:
    x = np.array([1, 2, 2, 5])
    close(ops.bincount(Tensor(x)), np.bincount(x).astype(np.float32))
    close(ops.bincount(Tensor(x), minlength=8), np.bincount(x, minlength=8).astype(np.float32))
    w = array(4)
    close(ops.bincount(Tensor(x), Tensor(w)), np.bincount(x, w))
    close(ops.bincount(Tensor([-1, 2, 2])), np.array([0, 0, 2], np.float32))
    close(ops.bincount(Tensor(np.zeros(0, np.int64))), np.zeros(0, np.float32))
    close(ops.bincount(Tensor(x.astype(np.uint8))), np.bincount(x).astype(np.float32))
    close(ops.bincount(Tensor(x.astype(np.uint64)), minlength=3), np.bincount(x).astype(np.float32))
    close(ops.bincount(Tensor([-3, -1]), minlength=2), np.zeros(2, np.float32))
    with pytest.raises(TypeError, match="must hold integers"):
        ops.bincount(Tensor([1.0]))
    y = array(200)
    close(ops.histc(Tensor(y), 7), np.histogram(y, 7)[0].astype(np.float64))
    close(both(lambda t: ops.histc(t, 5, -1.0, 1.0), Tensor(y)), np.histogram(y, 5, (-1, 1))[0].astype(np.float64))
    close(ops.histc(Tensor([2, 2]), 3), np.histogram([2, 2], 3)[0])
    half = ops.histc(Tensor(np.ones(5000, np.float16)), 3)  # a float16 could not count so far one by one
    assert half.dtype is dt.float32
    close(half, np.array([0, 5000, 0], np.float32))


def test_searchsorted() -> None:
    s, v = np.sort(RNG.integers(0, 9, 12)).astype(np.float64), RNG.integers(-1, 10, (3, 4)).astype(np.float64)
    close(both(ops.searchsorted, Tensor(s), Tensor(v)), np.searchsorted(s, v))
    close(ops.searchsorted(Tensor(s), Tensor(v), right=True, out_int32=True), np.searchsorted(s, v, "right").astype(np.int32))
    rows = np.sort(array(3, 5), 1)
    close(ops.searchsorted(Tensor(rows), Tensor(v), side="left"), np.stack([np.searchsorted(r, w) for r, w in zip(rows, v, strict=True)]))
    close(ops.searchsorted(Tensor([5, 3, 1]), Tensor([3, 4]), sorter=Tensor([2, 1, 0])), np.array([1, 2]))
    close(ops.searchsorted(Tensor([1, 3]), Tensor(2.5)), np.int64(1))
    close(ops.bucketize(Tensor([0.0, 1.0, 2.0]), [1.0, 2.0]), np.array([0, 0, 1], np.int32))
    close(ops.bucketize(Tensor([0.0, 1.0, 2.0]), [1.0, 2.0], right=True), np.array([0, 1, 2], np.int32))
    close(Tensor([1.0, 3.0]).searchsorted([2.0]), np.array([1], np.int32))


ERRORS = [
    (lambda x: ops.sort(x[0, 0]), ValueError, "one dimension at least"),
    (lambda x: ops.sort(x, 2), ValueError, r"axis must be in \[-2, 2\)"),
    (lambda x: ops.sort(x, 0, 1), TypeError, "descending must be a bool"),
    (lambda x: ops.topk(x, 4), ValueError, "k must be from 1 to 3"),
    (lambda x: ops.topk(x, 0), ValueError, "k must be from 1 to 3"),
    (lambda x: ops.topk(x, 1.0), TypeError, "k must be an int"),
    (lambda x: ops.median(x > 0), TypeError, "is Bool"),
    (lambda x: ops.median(x[:0], 0), ValueError, "is empty"),
    (lambda x: ops.searchsorted(x, x[:1]), ValueError, "does not fit values"),
    (lambda x: ops.searchsorted(x[0], x, side="middle"), ValueError, "neither 'left' nor 'right'"),
    (lambda x: ops.bucketize(x, x[0]), TypeError, "boundaries must be a list"),
    (lambda x: ops.bincount(x.astype(dt.int32)), ValueError, "must have one dimension"),
    (lambda x: ops.histc(x, 0), ValueError, "bins must be positive"),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(ERRORS)))
def test_errors(number: int) -> None:
    call, kind, message = ERRORS[number]
    with pytest.raises(kind, match=message):
        call(Tensor(array(2, 3)))
