"""One element of each row, gathered from what is computed in the graph: it is found among the places of the row, and so is its gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphcell
from graphcell import Tensor, ops
from graphcell.passes import find_in_rows

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(17)

SHAPE = (33, 21)


def _by_gather(z: Any, at: Any) -> Any:
    return ops.gather_elements(z, 1, at.expand_dims(1)).squeeze(1)


def _by_index(z: Any, at: Any) -> Any:
    return z[ops.arange(SHAPE[0]), at]


def _by_coordinates(z: Any, at: Any) -> Any:
    return ops.gather_nd(z, ops.stack((ops.arange(SHAPE[0], dtype=graphcell.int32), at), 1))


def _focal(pick: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def loss(x: Any, at: Any) -> Any:
        log_p = pick(ops.log_softmax(x, -1), at)
        return -(ops.square(1 - ops.exp(log_p)) * log_p).sum()

    return loss


def _focal_of_doubles(x: Array, at: Array) -> tuple[float, Array]:
    """The loss and its gradient by hand, in float64."""
    x = x.astype(np.float64)
    log_all = x - x.max(1, keepdims=True)
    log_all -= np.log(np.exp(log_all).sum(1, keepdims=True))
    rows = np.arange(len(x))
    log_p = log_all[rows, at]
    p = np.exp(log_p)
    slope = -(np.square(1 - p) - 2 * (1 - p) * p * log_p)
    gradient = -slope[:, None] * np.exp(log_all)
    gradient[rows, at] += slope
    return float(-(np.square(1 - p) * log_p).sum()), gradient


@pytest.mark.parametrize("pick", [_by_gather, _by_index])
def test_a_loss_that_takes_one_class_is_one_loop_nest(pick: Callable[[Any, Any], Any]) -> None:
    x, at = RNG.standard_normal(SHAPE).astype(np.float32), RNG.integers(-SHAPE[1], SHAPE[1], SHAPE[0]).astype(np.int32)
    step = graphcell.jit(graphcell.value_and_grad(_focal(pick), 0))
    loss, gradient = step(Tensor(x), Tensor(at))
    expected, slope = _focal_of_doubles(x, at)
    np.testing.assert_allclose(loss.asnumpy(), expected, rtol=1e-5)
    np.testing.assert_allclose(gradient.asnumpy(), slope, rtol=1e-4, atol=1e-6)
    assert step.kernels().count(f"i1<{SHAPE[1]}") == 1


@pytest.mark.parametrize("pick", [_by_gather, _by_index])
def test_no_scatter_and_no_row_in_memory_are_left(pick: Callable[[Any, Any], Any]) -> None:
    step = graphcell.jit(graphcell.value_and_grad(_focal(pick), 0))
    step(Tensor(np.zeros(SHAPE, np.float32)), Tensor(np.zeros(SHAPE[0], np.int32)))
    text = step.ir("optimized")
    assert " = scatter" not in text
    assert " = gather" not in text


def test_what_lies_in_memory_is_read_there() -> None:
    pick = graphcell.jit(_by_gather)
    pick(Tensor(np.zeros(SHAPE, np.float32)), Tensor(np.zeros(SHAPE[0], np.int32)))
    assert "gather_elements" in pick.ir("optimized")


@pytest.mark.parametrize("value", [-0.0, 0.0, np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("pick", [_by_gather, _by_index, _by_coordinates])
def test_numbers_are_what_they_were(pick: Callable[[Any, Any], Any], value: float) -> None:
    def function(x: Any, at: Any) -> Any:
        return pick(-x, at)

    x = RNG.standard_normal(SHAPE).astype(np.float32)
    at = RNG.integers(0, SHAPE[1], SHAPE[0]).astype(np.int32)
    x[np.arange(SHAPE[0]), at] = value
    x[0] = np.nan  # also beside a place: NaN is where it was taken from
    x[0, at[0]] = value
    found = graphcell.jit(function)(Tensor(x), Tensor(at)).asnumpy()
    expected = (-x)[np.arange(SHAPE[0]), at]
    np.testing.assert_array_equal(found, expected)
    if not np.isnan(value):
        np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_any_axis_and_dtype(axis: int) -> None:
    def function(x: Any, at: Any) -> Any:
        return ops.gather_elements(ops.tanh(x), axis, at)

    shape = (7, 19, 12)
    x = RNG.standard_normal(shape)
    at = RNG.integers(0, shape[axis], shape[:axis] + (1,) + shape[axis + 1 :]).astype(np.int64)
    for dtype, tolerance in ((np.float64, 1e-14), (np.float32, 1e-6), (np.float16, 2e-3)):
        found = graphcell.jit(function)(Tensor(x.astype(dtype)), Tensor(at)).asnumpy()
        np.testing.assert_allclose(found, np.take_along_axis(np.tanh(x.astype(dtype).astype(np.float64)), at, axis), rtol=tolerance)


def test_an_index_out_of_range_is_refused() -> None:
    step = graphcell.jit(_focal(_by_gather))
    with pytest.raises(IndexError):
        step(Tensor(np.zeros(SHAPE, np.float32)), Tensor(np.full(SHAPE[0], SHAPE[1], np.int32)))


def test_a_part_of_the_rows_is_gathered_as_before() -> None:
    """An index that is shorter than x beside its axis, or takes several places of a row, is no one of each row."""

    def function(x: Any, at: Any) -> Any:
        return ops.gather_elements(ops.exp(x), 1, at)

    x = RNG.standard_normal(SHAPE).astype(np.float32)
    for shape in ((5, 1), (33, 2)):
        at = RNG.integers(0, SHAPE[1], shape).astype(np.int32)
        found = graphcell.jit(function)(Tensor(x), Tensor(at)).asnumpy()
        np.testing.assert_allclose(found, np.take_along_axis(np.exp(x.astype(np.float64))[: shape[0]], at.astype(np.int64), 1), rtol=1e-6)


def test_a_sum_with_negative_zero_keeps_its_sign() -> None:
    def function(updates: Any, at: Any) -> Any:
        return ops.tensor_scatter_elements(ops.full((3, 4), -0.0, dtype=graphcell.float32), at, updates, 1, "add")

    found = graphcell.jit(function)(Tensor(np.full((3, 1), -0.0, np.float32)), Tensor(np.array([[0], [1], [2]], np.int32))).asnumpy()
    assert np.signbit(found).all()


def test_many_elements_of_a_row_are_gathered_one_by_one() -> None:
    def total(x: Any, at: Any) -> Any:
        z = ops.exp(x)
        found = 0
        for k in range(6):
            found = found + ops.gather_elements(z, 0, (at + k) % 9)
        return found.sum()

    x, at = RNG.standard_normal((9, 20)).astype(np.float32), RNG.integers(0, 9, (1, 20)).astype(np.int32)
    gradient = graphcell.jit(graphcell.grad(total, 0))
    found = gradient(Tensor(x), Tensor(at)).asnumpy()
    times = sum((np.arange(9)[:, None] == (at + k) % 9).astype(float) for k in range(6))
    np.testing.assert_allclose(found, times * np.exp(x.astype(np.float64)), rtol=1e-5)
    assert " = scatter_elements" in gradient.ir("optimized")


def test_columns_of_what_is_stored_are_gathered_from_there() -> None:
    def both(x: Any, at: Any) -> Any:
        z = ops.exp(x)
        return z, ops.gather_elements(z, 0, at)

    function = graphcell.jit(both)
    x, at = RNG.standard_normal((9, 20)).astype(np.float32), RNG.integers(0, 9, (1, 20)).astype(np.int32)
    z, found = function(Tensor(x), Tensor(at))
    np.testing.assert_array_equal(found.asnumpy(), np.take_along_axis(z.asnumpy(), at.astype(np.int64), 0))
    assert " = gather_elements" in function.ir("optimized")


def test_a_gather_of_what_a_scatter_became_is_left() -> None:
    """How often the scatter's result is read, and whether it is an output, was asked of the graph as it was."""

    def function(at: Any, added: Any, other: Any) -> Any:
        z = ops.tensor_scatter_elements(ops.zeros(SHAPE), at, added, 1, "add")
        return z, ops.gather_elements(z, 0, other)

    at = RNG.integers(0, SHAPE[1], (SHAPE[0], 1)).astype(np.int32)
    added = RNG.standard_normal((SHAPE[0], 1)).astype(np.float32)
    other = RNG.integers(0, SHAPE[0], (1, SHAPE[1])).astype(np.int32)
    compiled = graphcell.jit(function)
    z, found = compiled(Tensor(at), Tensor(added), Tensor(other))
    expected = np.zeros(SHAPE, np.float32)
    np.put_along_axis(expected, at.astype(np.int64), added, 1)
    np.testing.assert_array_equal(z.asnumpy(), expected)
    np.testing.assert_array_equal(found.asnumpy(), np.take_along_axis(expected, other.astype(np.int64), 0))
    assert "gather_elements" in compiled.ir("optimized") and " = scatter" not in compiled.ir("optimized")


def test_large_graphs_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    count = find_in_rows._gathers

    def counting(graph: Any) -> Any:
        asked.append(graph)
        return count(graph)

    monkeypatch.setattr(find_in_rows, "_gathers", counting)

    def function(x: Any, at: Any) -> Any:
        return sum(ops.gather_elements(ops.exp(x * k), 1, at) for k in range(20))

    x, at = RNG.standard_normal(SHAPE).astype(np.float32), RNG.integers(0, SHAPE[1], (SHAPE[0], 1)).astype(np.int32)
    found = graphcell.jit(function)(Tensor(x), Tensor(at)).asnumpy()
    rows = np.take_along_axis(x.astype(np.float64), at.astype(np.int64), 1)
    np.testing.assert_allclose(found, sum(np.exp(rows * k) for k in range(20)), rtol=1e-5)
    assert len(asked) == len(set(map(id, asked))) > 0
