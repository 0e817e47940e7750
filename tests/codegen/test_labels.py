"""The element at a row's label is computed for itself (codegen/llvm/labels.py), on guarded memory, against numpy in float64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import graphcell as ms
from graphcell import ops
from graphcell.codegen.llvm import labels
from graphcell.codegen.lower import lower
from graphcell.ir.op import Array
from graphcell.ops.creation import Iota
from graphcell.ops.dispatch import apply1
from graphcell.passes.pipeline import run_pipeline
from tests.codegen.plans import TARGETS
from tests.codegen.test_guards import run_guarded
from tests.codegen.test_loop_shapes import graph_of, normal


def seen(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many stores were done apart, each time."""
    found: list[int] = []
    do = labels.Label.stores_apart

    def stores_apart(self: labels.Label, *args: Any) -> list[Any]:
        stores = do(self, *args)
        found.append(len(stores))
        return stores

    monkeypatch.setattr(labels.Label, "stores_apart", stores_apart)
    return found


def lowered(fn: Any, arrays: Sequence[Array]) -> None:
    lower(run_pipeline(graph_of(fn, arrays))[0], (), TARGETS[16])


def cross_entropy(smoothing: float) -> Any:
    """The gradient of each row's, by its formula, and what it is the gradient of; rows whose label is 3 count for nothing."""

    def fn(x: Any, y: Any) -> Any:
        y, classes = y.reshape(-1, 1), x.shape[1]
        logarithms, counts, hit = ops.log_softmax(x, 1), y != 3, ops.arange(classes, dtype=ms.int32) == y
        target = ops.where(hit, ops.full_like(x, 1 - smoothing + smoothing / classes), ops.full_like(x, smoothing / classes))
        gradient = ops.where(counts, ops.exp(logarithms) - target, ops.zeros_like(x))
        return ops.where(counts, logarithms, ops.zeros_like(x)).sum(1), gradient

    return fn


def wanted(x: Array, y: Array, smoothing: float) -> tuple[Any, Any]:
    """The same in float64."""
    x, classes = x.astype(np.float64), x.shape[1]
    logarithms = x - x.max(1, keepdims=True)
    logarithms -= np.log(np.exp(logarithms).sum(1, keepdims=True))
    counts, target = (y != 3)[:, None], np.full_like(x, smoothing / classes)
    target[np.arange(len(y)), y] += 1 - smoothing
    return (logarithms * counts).sum(1), (np.exp(logarithms) - target) * counts


@pytest.mark.parametrize("at_end", [True, False])
@pytest.mark.parametrize("classes", [257, 300, 512, 1001])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy(smoothing: float, classes: int, at_end: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With labels at both ends of rows, and rows that count for nothing."""
    calls = seen(monkeypatch)
    x, y = normal(9, classes) * 3, np.array([0, classes - 1, 3, 1, classes - 2, classes // 2, 3, 31, 32], np.int32)
    for target in TARGETS.values():
        got = run_guarded(graph_of(cross_entropy(smoothing), [x, y]), [x, y], target, at_end)
        for result, want in zip(got, wanted(x, y, smoothing), strict=True):
            np.testing.assert_allclose(result, want, rtol=1e-4, atol=1e-6)
    assert 1 in calls


@pytest.mark.parametrize("weighted", [False, True])
def test_the_loss_of_the_library(weighted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = seen(monkeypatch)
    x, y = normal(7, 600), np.array([5, 599, 3, 0, 17, 100, 200], np.int32)
    weights = np.linspace(0.5, 2, 600).astype(np.float32)
    given = [ms.Tensor(weights)] if weighted else []

    @ms.jit
    def fn(x: Any, y: Any, *weights: Any) -> Any:
        return ms.value_and_grad(lambda x: ops.cross_entropy(x, y, *weights, ignore_index=3))(x)

    loss, gradient = fn(ms.Tensor(x), ms.Tensor(y), *given)
    counts = (weights if weighted else np.ones(600))[y] * (y != 3)
    p = np.exp(x.astype(np.float64))
    p /= p.sum(1, keepdims=True)
    hit = np.arange(600) == y[:, None]
    np.testing.assert_allclose(loss.asnumpy(), -(np.log(p[hit]) * counts).sum() / counts.sum(), rtol=2e-6)
    np.testing.assert_allclose(gradient.asnumpy(), (p - hit) * counts[:, None] / counts.sum(), rtol=1e-4, atol=1e-7)
    assert 1 in calls


@pytest.mark.parametrize("dtype", [np.float64, np.float16, ml_dtypes.bfloat16])
def test_dtypes(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = seen(monkeypatch)
    x, y = normal(6, 520).astype(dtype), np.array([0, 519, 3, 16, 518, 256], np.int64)

    def fn(x: Any, y: Any) -> Any:
        index = ops.arange(520, dtype=ms.int64)
        return x * 2 + ops.where(index == y.reshape(6, 1), ops.full_like(x, 5), ops.full_like(x, 1))

    want = x.astype(np.float64) * 2 + np.where(np.arange(520) == y[:, None], 5, 1)
    for target in TARGETS.values():
        (got,) = run_guarded(graph_of(fn, [x, y]), [x, y], target, True)
        np.testing.assert_allclose(got.astype(np.float64), want.astype(dtype).astype(np.float64), rtol=1e-2 if dtype != np.float64 else 1e-15)
    assert 1 in calls


def chosen(x: Any, y: Any) -> Any:
    """Larger by one at the label."""
    return x + (ops.arange(x.shape[1], dtype=ms.int32) == y.reshape(-1, 1)).astype(ms.float32)


def chosen_between(x: Any, y: Any) -> Any:
    """Of two functions of a row's elements."""
    hit = ops.arange(x.shape[1], dtype=ms.int32) == y.reshape(-1, 1)
    return ops.where(hit, ops.tanh(x), x * 2 - x.max(1, keepdims=True))


def test_labels_outside_of_the_row(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = seen(monkeypatch)
    x, y = normal(8, 300), np.array([-1, 300, -(2**31), 2**31 - 1, 299, 0, 301, -300], np.int32)
    want = x + (np.arange(300) == y[:, None])
    for target in TARGETS.values():
        for at_end in (True, False):
            (got,) = run_guarded(graph_of(chosen, [x, y]), [x, y], target, at_end)
            np.testing.assert_array_equal(got, want.astype(np.float32))
    assert 1 in calls


def test_an_input_that_is_written_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The element is computed before the row is written."""
    calls = seen(monkeypatch)
    parameter, y = ms.Parameter(ms.Tensor(np.arange(1800, dtype=np.float32).reshape(3, 600)), name="p"), ms.Tensor(np.array([599, 0, 200], np.int32))

    class Net(ms.nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.p = parameter

        def construct(self, y: Any) -> Any:
            self.p = chosen(self.p * 2, y)
            return y

    ms.jit(Net().construct)(y)
    assert 1 in calls
    want = np.arange(1800).reshape(3, 600) * 2 + (np.arange(600) == np.array([599, 0, 200])[:, None])
    np.testing.assert_array_equal(parameter.asnumpy(), want)


def test_where_it_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in short rows, with two labels, or where a sum depends on the comparison."""
    calls = seen(monkeypatch)
    x, y = normal(6, 300), np.array([0, 1, 2, 3, 4, 5], np.int32)
    lowered(chosen, [x, y])
    assert calls.pop() == 1
    lowered(chosen, [x[:, :127], y])
    lowered(lambda x, y: chosen(chosen(x, y), y + 1), [x, y])
    assert not calls
    lowered(lambda x, y: (chosen(x, y), ops.square(chosen(x, y)).sum(1)), [x, y])
    assert calls
    assert not any(calls)


def test_an_index_that_wraps_may_be_the_label_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = seen(monkeypatch)
    x, y = normal(6, 300), np.arange(6, dtype=np.int8)

    def fn(x: Any, y: Any) -> Any:
        index = ops.broadcast_to(apply1(Iota((1, 300), 1, ms.int8)), (6, 300))
        return x + (index == y.reshape(6, 1)).astype(ms.float32)

    want = x + (np.arange(300).astype(np.int8) == y[:, None])
    (got,) = run_guarded(graph_of(fn, [x, y]), [x, y], TARGETS[16], True)
    np.testing.assert_array_equal(got, want.astype(np.float32))
    assert not calls


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("fn", [chosen_between, cross_entropy(0.1)])
def test_the_same_bits_as_without(fn: Any, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = (normal(7, 531) * 4).astype(dtype), np.array([0, 530, 3, 529, 512, -7, 531], np.int32)
    for target in TARGETS.values():
        with monkeypatch.context() as patch:
            calls = seen(patch)
            found = run_guarded(graph_of(fn, [x, y]), [x, y], target, False)
            assert 1 in calls
        with monkeypatch.context() as patch:
            patch.setattr(labels.Label, "stores_apart", lambda *_: [])
            wanted = run_guarded(graph_of(fn, [x, y]), [x, y], target, False)
        for one, other in zip(found, wanted, strict=True):
            assert one.tobytes() == other.tobytes()


def test_one_label_for_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = seen(monkeypatch)
    x, y = normal(5, 300), np.array([299], np.int32)

    def fn(x: Any, y: Any) -> Any:
        return ops.where(ops.arange(300, dtype=ms.int32) == y, x * 0, x - x.max(1, keepdims=True))

    want = np.where(np.arange(300) == 299, 0, x - x.max(1, keepdims=True))
    for target in TARGETS.values():
        (got,) = run_guarded(graph_of(fn, [x, y]), [x, y], target, True)
        np.testing.assert_array_equal(got, want)
    assert 1 in calls


def test_positions_of_the_largest(monkeypatch: pytest.MonkeyPatch) -> None:
    """A label that the row itself makes."""
    x = normal(7, 600)

    def fn(x: Any) -> Any:
        return ops.where(ops.arange(600, dtype=ms.int32) == ops.argmax(x, 1, True).astype(ms.int32), ops.full_like(x, -1), x)

    want = np.where(np.arange(600) == x.argmax(1)[:, None], -1, x)
    for target in TARGETS.values():
        (got,) = run_guarded(graph_of(fn, [x]), [x], target, True)
        np.testing.assert_array_equal(got, want)
