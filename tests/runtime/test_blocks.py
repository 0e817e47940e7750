"""Blocks of rows: which are chosen, and calls that run them natively, against numpy in float64."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import graphcell as gc
from graphcell import Parameter, Tensor, buffer, nn, ops
from graphcell.runtime.block_sizes import HEAVY, HEAVY_WITH_WEIGHTS, LIGHT, Sizes, plan, sizes_for

rng = np.random.default_rng(11)


@pytest.fixture(autouse=True)
def graph_mode() -> Iterator[None]:
    gc.set_context(mode=gc.GRAPH_MODE)
    yield
    gc.set_context(mode=gc.PYNATIVE_MODE)


def make(rows: int, shape: tuple[int, ...]) -> Tensor:
    return Tensor(rng.standard_normal((rows, *shape)).astype(np.float32))


LADDERS = {"light": LIGHT, "heavy": HEAVY, "heavy with weights": HEAVY_WITH_WEIGHTS, "few": Sizes(frozenset({3, 64}), 1)}


@pytest.mark.parametrize("name", LADDERS)
def test_plans_cover_all_rows(name: str) -> None:
    sizes = LADDERS[name]
    for rows in (*range(1, 70), 255, 256, 257, 1000):
        blocks = plan(rows, sizes)
        covered = set()
        for start, size in blocks:
            assert size in sizes.rows and start >= 0 and (start + size <= rows or len(blocks) == 1)
            covered |= set(range(start, start + size))
        assert set(range(rows)) <= covered


@pytest.mark.parametrize("name", ["light", "heavy", "heavy with weights"])
def test_plans_compute_few_rows_in_vain(name: str) -> None:
    least = 4 if name == "heavy with weights" else 1
    for rows in range(1, 300):
        assert sum(size for _, size in plan(rows, LADDERS[name])) <= max(1.15 * rows, least)


@pytest.mark.slow
def test_blocks_are_chosen_by_the_work_of_a_row() -> None:
    def sizes_of(net: nn.Cell, *shape: int) -> Sizes:
        net.set_inputs(Tensor(shape=[None, *shape], dtype=gc.float32))
        net(make(2, shape))
        return net._with_any_rows()._known[0]._usable  # type: ignore[union-attr]

    assert sizes_of(nn.Dense(8, 8), 8) == LIGHT
    assert sizes_of(nn.Dense(400, 400), 400) == HEAVY_WITH_WEIGHTS
    assert sizes_of(nn.Conv2d(3, 16, 3), 3, 24, 24) == HEAVY
    assert sizes_of(nn.SequentialCell(nn.Dense(64, 64), nn.Dense(64, 64)), 50, 64) == HEAVY
    assert sizes_of(nn.Tanh(), 3, 200, 200) == HEAVY
    assert sizes_for(1e6, 1e6) == HEAVY_WITH_WEIGHTS


@pytest.mark.slow
def test_workspaces_hold_only_blocks_that_ran() -> None:
    net = Timed()
    net.set_inputs(Tensor(shape=[None, 3, 6], dtype=gc.float32))
    for rows, blocks in ((2, 1), (2, 1), (64, 2), (66, 2), (2, 2)):
        assert_timed(net, make(rows, (3, 6)))
        spaces = list(net._with_any_rows()._known[0]._blocks.home.made.values())  # type: ignore[union-attr]
        assert [len(space.inner) for space in spaces] == [blocks]


class Timed(nn.Cell):
    """Its second result has rows in its second dimension, the third has none."""

    def __init__(self) -> None:
        super().__init__()
        self.w = Parameter(Tensor(rng.standard_normal((6, 4)).astype(np.float32)), name="w")

    def construct(self, x: Tensor) -> Any:
        y = ops.matmul(x, self.w)
        return y, y.swapaxes(0, 1) * 2, self.w + 1


def expected(net: Timed, x: Tensor) -> list[np.ndarray[Any, Any]]:
    w = net.w.asnumpy().astype(np.float64)
    y = x.asnumpy() @ w
    return [y, 2 * y.swapaxes(0, 1), w + 1]


def assert_timed(net: Timed, x: Tensor) -> None:
    for got, wanted in zip(net(x), expected(net, x), strict=True):
        assert got.shape == wanted.shape
        np.testing.assert_allclose(got.asnumpy(), wanted, rtol=1e-4, atol=1e-5)


def native_runs(net: nn.Cell) -> int:
    """How many calls native code has done without Python."""
    plans = net._with_any_rows()._known[0].plans.values()  # type: ignore[union-attr]
    return sum(plan.record.hits for plan in plans if plan.record is not None)


@pytest.mark.slow
def test_native_code_serves_calls_and_notices_changes() -> None:
    net = Timed()
    net.set_inputs(Tensor(shape=[None, 3, 6], dtype=gc.float32))
    sizes = (3, 9, 40, 300)
    for round in range(12):
        for rows in sizes:
            x = make(rows, (3, 6))
            for _ in range(4):
                net(x)
            assert_timed(net, x)  # which looks at the weights
        if round % 4 == 3:
            net.w.set_data(Tensor(rng.standard_normal((6, 4)).astype(np.float32)))
        if round % 4 == 1:
            net.w[1:3] = round
    assert native_runs(net) > 2 * len(sizes)
    before = native_runs(net)
    with pytest.raises(ValueError, match="must be the same as expected"):
        net(make(3, (3, 5)))
    with pytest.raises(TypeError, match="Float32"):
        net(Tensor(np.zeros((3, 3, 6), np.float64)))
    for rows in (1, 67):  # which share their place in the table with 65 and 3
        for _ in range(6):
            assert_timed(net, make(rows, (3, 6)))
            assert_timed(net, make(rows + 64 if rows == 1 else 3, (3, 6)))
    assert native_runs(net) >= before


class NotFew(nn.Cell):
    """Does something else for few rows, so that there are no shorter blocks."""

    def construct(self, x: Tensor) -> Any:
        pair = x * 2, x.swapaxes(0, 1) + 1
        return pair if x.shape[0] not in (1, 2, 3, 4) else (*pair, x)


def test_blocks_longer_than_all_rows() -> None:
    net = NotFew()
    net.set_inputs(Tensor(shape=[None, 3], dtype=gc.float32))
    for _ in range(5):
        for rows in (5, 9, 11, 33):
            x = make(rows, (3,))
            y, z = net(x)
            np.testing.assert_array_equal(y.asnumpy(), x.asnumpy() * 2)
            np.testing.assert_array_equal(z.asnumpy(), x.asnumpy().T + 1)
    heavy = nn.Dense(400, 300)
    heavy.set_inputs(Tensor(shape=[None, 400], dtype=gc.float32))
    for _ in range(4):
        for rows in (1, 2, 3, 5):
            x = make(rows, (400,))
            wanted = x.asnumpy() @ heavy.weight.asnumpy().T.astype(np.float64) + heavy.bias.asnumpy()
            np.testing.assert_allclose(heavy(x).asnumpy(), wanted, rtol=1e-3, atol=1e-4)


def test_threads_call_with_different_rows() -> None:
    net = Timed()
    net.set_inputs(Tensor(shape=[None, 3, 6], dtype=gc.float32))
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        numbers = np.random.default_rng(seed)
        try:
            gc.set_context(mode=gc.GRAPH_MODE)
            for _ in range(60):
                assert_timed(net, Tensor(numbers.standard_normal((int(numbers.integers(1, 90)), 3, 6)).astype(np.float32)))
        except BaseException as e:
            failures.append(e)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures


def test_errors_of_a_block_reach_the_user() -> None:
    table = nn.Embedding(10, 4)
    table.set_inputs(Tensor(shape=[None, 2], dtype=gc.int32))
    good, bad = np.zeros((45, 2), np.int32), np.zeros((45, 2), np.int32)
    bad[44, 1] = 11
    for _ in range(4):
        assert table(Tensor(good)).shape == (45, 2, 4)
        with pytest.raises(RuntimeError):
            table(Tensor(bad)).asnumpy()


def test_calls_through_python(monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("workspaces", "calling"):
        monkeypatch.setattr(f"graphcell.runtime.{place}.native", lambda: None)
    net = Timed()
    net.set_inputs(Tensor(shape=[None, 3, 6], dtype=gc.float32))
    for rows in (1, 9, 40, 9):
        assert_timed(net, make(rows, (3, 6)))


def test_blocks_of_all_sizes_have_the_same_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """As much as the one that needs most: where weights are many, their gradients alone would fill it for each size."""
    asked: list[int] = []
    empty = buffer.empty

    def counted(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        asked.append(math.prod(shape) * dtype.itemsize)
        return empty(shape, dtype)

    class Products(nn.Cell):
        def construct(self, x: Tensor) -> Any:
            return ops.softmax(ops.matmul(x.T, x), 1).amax(0)

    monkeypatch.setattr("graphcell.dynamic_stages.sizes_in_stages", lambda *given: Sizes(frozenset({4, 10, 48, 64}), 9, may_exceed=True))
    net = Products()
    net.set_inputs(Tensor(shape=[None, 256], dtype=gc.float32))
    monkeypatch.setattr(buffer, "empty", counted)
    most = []
    for rows in (9, 64, 33, 3, 9, 64):
        asked.clear()
        x = make(rows, (256,))
        y = net(x).asnumpy()
        most.append(max(asked, default=0))
        wide = x.asnumpy().astype(np.float64)
        products = wide.T @ wide
        powers = np.exp(products - products.max(1, keepdims=True))
        np.testing.assert_allclose(y, (powers / powers.sum(1, keepdims=True)).max(0), rtol=1e-3, atol=1e-5)
    assert most[0] >= 256 * 256 * 4 and max(most[2:]) < 256 * 256 * 4
