"""Functions in stages, called natively: one native call for all parts, whatever changes between calls; against numpy in float64."""

from __future__ import annotations

import contextlib
import math
import sys
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import graphcell as gc
from graphcell import Parameter, Tensor, buffer, nn, ops
from graphcell.errors import OutOfMemoryError
from graphcell.runtime.binding import CountedTable
from graphcell.runtime.calling import native

rng = np.random.default_rng(5)
needs_native_calls = pytest.mark.skipif(native() is None, reason="calls go through Python here")


@pytest.fixture(autouse=True)
def graph_mode() -> Iterator[None]:
    gc.set_context(mode=gc.GRAPH_MODE)
    yield
    gc.set_context(mode=gc.PYNATIVE_MODE)


def make(rows: int, width: int = 6) -> Tensor:
    return Tensor(rng.standard_normal((rows, width)).astype(np.float32))


class Computed(nn.Cell):
    """What a function gives of rows and a Parameter `w`."""

    def __init__(self, function: Callable[..., Any], width: int = 6) -> None:
        super().__init__()
        self.function, self.w = function, Parameter(Tensor(np.arange(1, width + 1, dtype=np.float32)), name="w")
        self.set_inputs(Tensor(shape=[None, width], dtype=gc.float32))

    def construct(self, x: Tensor) -> Any:
        return self.function(x, self.w)


def native_calls(cell: nn.Cell, rows: int) -> int:
    """How many calls with so many rows native code did."""
    found = cell.__dict__["_dynamic"]
    record = found._known[0].plans[rows].record
    return 0 if record is None else record.hits


def wide(x: Any) -> Any:
    return x.asnumpy().astype(np.float64)


def close(x: Tensor, y: Any) -> None:
    np.testing.assert_allclose(x.asnumpy(), y, rtol=1e-4, atol=1e-4)


@needs_native_calls
def test_calls_take_no_python() -> None:
    net = Computed(lambda x, w: ((x - x.mean(0)) * w, x.amax(0)))
    for rows in (41, 77, 41, 300):
        x = make(rows)
        for _ in range(5):
            centred, largest = net(x)
            close(centred, (wide(x) - wide(x).mean(0)) * np.arange(1, 7))
            close(largest, wide(x).max(0))
        assert native_calls(net, rows) >= 2
    called: list[str] = []
    x = make(41)
    sys.setprofile(lambda frame, event, what: called.append(frame.f_code.co_name) if event == "call" else None)
    try:
        net(x)
    finally:
        sys.setprofile(None)
    assert not {"bind", "prepare", "run"} & set(called)


@needs_native_calls
def test_more_rows_take_more_memory_and_fewer_are_as_before() -> None:
    net = Computed(lambda x, w: x - x.mean(0))
    few, many = make(41), make(4001)
    for x in (few, few, few, few, many, few, few, many, many, many, few, many):
        close(net(x), wide(x) - wide(x).mean(0))
    assert native_calls(net, 41) and native_calls(net, 4001)


@needs_native_calls
@pytest.mark.parametrize("rows", [(41, 105), (64, 128)], ids=["in stages", "alone"])
def test_numbers_of_rows_that_share_a_place(rows: tuple[int, int]) -> None:
    net, calls = Computed(lambda x, w: x - x.mean(0)), dict.fromkeys(rows, 0)
    for n in (*rows, *rows):
        for _ in range(20):
            x = make(n)
            close(net(x), wide(x) - wide(x).mean(0))
        assert native_calls(net, n) >= calls[n] + 10
        calls[n] = native_calls(net, n)


def test_a_record_is_taken_out_while_others_come() -> None:
    """As when another thread, or what the garbage collector lets go of, has its turn in between."""
    table, others = CountedTable(0), iter(range(10, 60))

    class Dying:
        @property
        def address(self) -> int:
            put(next(others), SimpleNamespace(address=32))
            return 8

    put: Any = table.add_for
    put(3, SimpleNamespace(address=8))
    put(5, SimpleNamespace(address=16))
    dying: Any = Dying()
    with contextlib.suppress(StopIteration):
        table.remove(dying)
    assert list(table.state.records[:6]) == [0, 0, 0, 0, 0, 16] and table.state.records[10] == 32


class Hidden(nn.Cell):
    """What it computes of each row does not fit into the result, and is read twice."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Dense(6, 64)
        self.set_inputs(Tensor(shape=[None, 6], dtype=gc.float32))

    def construct(self, x: Tensor) -> Tensor:
        y = self.dense(x)
        return ((y - y.mean(0)) ** 2).sum(0)

    def wanted(self, x: Tensor) -> Any:
        y = wide(x) @ wide(self.dense.weight).T
        return ((y - y.mean(0)) ** 2).sum(0)


def test_more_rows_than_there_is_memory_for_leave_fewer_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = buffer.empty

    def limited(shape: tuple[int, ...], dtype: Any) -> Any:
        if math.prod(shape) > 1_000_000:
            raise OutOfMemoryError("no more")
        return whole(shape, dtype)

    net, few, many = Hidden(), make(41), make(4001)
    for _ in range(4):
        np.testing.assert_allclose(net(few).asnumpy(), net.wanted(few), rtol=1e-3)
    monkeypatch.setattr(buffer, "empty", limited)
    for x in (few, many, few, few, many, few):
        if x is few:
            np.testing.assert_allclose(net(x).asnumpy(), net.wanted(x), rtol=1e-3)
        else:
            with pytest.raises(MemoryError, match=r"what the stages of a function keep for each other needs 1,0.* bytes"):
                net(x)
    monkeypatch.setattr(buffer, "empty", whole)
    np.testing.assert_allclose(net(many).asnumpy(), net.wanted(many), rtol=1e-3)
    monkeypatch.setattr(buffer, "empty", limited)
    found = net.__dict__["_dynamic"]._known[0].plans[41].binding
    space = found._staged.make()  # which there is less memory for than another call needed
    found.spaces._add(space)
    for _ in range(4):
        np.testing.assert_allclose(net(few).asnumpy(), net.wanted(few), rtol=1e-3)
    assert space.nbytes < 1_000_000


def test_buffers_of_parameters_may_move() -> None:
    net = Computed(lambda x, w: (x * w).sum(0))
    x, held = make(41), []
    for k in range(12):
        if k % 3 == 0:
            net.w.set_data(Tensor(np.full(6, k, np.float32)))
        elif k % 3 == 1:
            net.w.asnumpy()[2] = 100
        else:
            held.append(net.w.asnumpy())
        close(net(x), wide(x).sum(0) * wide(net.w))


def test_a_step_reads_what_the_one_before_wrote() -> None:
    class Step(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.total, self.calls = Parameter(Tensor(np.zeros(6, np.float32))), Parameter(Tensor(np.float32(0)))
            self.set_inputs(Tensor(shape=[None, 6], dtype=gc.float32))

        def construct(self, x: Tensor) -> Tensor:
            before = self.total + 0
            ops.assign(self.total, 0.5 * self.total + (x - self.total).mean(0))
            ops.assign(self.calls, self.calls + 1)
            return ((x - before) ** 2).sum()

    net, total, held = Step(), np.zeros(6), []
    for k, rows in enumerate((41, 77, 41, 41, 41, 41, 77, 77, 41)):
        x = make(rows)
        result, wanted = net(x), ((wide(x) - total) ** 2).sum()
        total = 0.5 * total + (wide(x) - total).mean(0)
        np.testing.assert_allclose(float(result), wanted, rtol=1e-4)
        close(net.total, total)
        assert float(net.calls) == k + 1
        if k % 4 == 3:
            held.append((net.total.asnumpy(), total))  # the next call may not write here
    for array, value in held:
        np.testing.assert_allclose(array, value, rtol=1e-4, atol=1e-4)


def test_what_is_returned_twice_or_as_it_is() -> None:
    def several(x: Tensor, w: Tensor) -> Any:
        centred, total = x - x.mean(0), x.sum(0)
        return centred, w, total, x, centred, x.sum(0)

    net = Computed(several)
    for rows in (41, 41, 41, 41, 77):
        x = make(rows)
        centred, w, total, same, again, total_again = net(x)
        for result in (centred, again):
            close(result, wide(x) - wide(x).mean(0))
        for result in (total, total_again):
            close(result, wide(x).sum(0))
        np.testing.assert_array_equal(w.asnumpy(), net.w.asnumpy())
        np.testing.assert_array_equal(same.asnumpy(), x.asnumpy())
        same.asnumpy()[:] = 0
        total_again.asnumpy()[:] = 0
        w.asnumpy()[:] = 0
        assert x.asnumpy().any() and total.asnumpy().any() and net.w.asnumpy().all()
        net.w.set_data(Tensor(net.w.asnumpy() + 1))


def test_frozen_weights_that_are_kept_ready() -> None:
    class Centred(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Dense(64, 128, has_bias=False), nn.Dense(128, 64, has_bias=False)
            for p in self.get_parameters():
                p.requires_grad = False
            self.set_inputs(Tensor(shape=[None, 64], dtype=gc.float32))

        def construct(self, x: Tensor) -> Tensor:
            y = self.one(x)
            return self.two(y - y.mean(0))

    net = Centred()
    net.set_train(False)
    for k, rows in enumerate((41, 41, 41, 77, 41, 77, 77, 41, 300, 41)):
        if k in (3, 6):
            net.one.weight.set_data(Tensor(rng.standard_normal((128, 64)).astype(np.float32)))
        x = make(rows, 64)
        y = wide(x) @ wide(net.one.weight).T
        np.testing.assert_allclose(net(x).asnumpy(), (y - y.mean(0)) @ wide(net.two.weight).T, rtol=1e-3, atol=2e-3)


@needs_native_calls
def test_an_error_of_a_native_call_is_raised() -> None:
    class Picked(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.set_inputs(Tensor(shape=[None, 6], dtype=gc.float32), Tensor(shape=[None], dtype=gc.int32))

        def construct(self, x: Tensor, places: Tensor) -> Tensor:
            return ops.cross_entropy(x - x.mean(0), places)

    net, x = Picked(), make(41)
    right = Tensor(rng.integers(0, 6, 41).astype(np.int32))
    wrong = right.asnumpy().copy()
    wrong[40] = 6
    values = [float(net(x, right)) for _ in range(5)]
    assert native_calls(net, 41) >= 1
    for _ in range(3):
        with pytest.raises(IndexError):
            net(x, Tensor(wrong))
        assert float(net(x, right)) == values[0]


def test_threads_with_other_numbers_of_rows() -> None:
    net = Computed(lambda x, w: ((x - x.mean(0)) * w, x.sum(0)))
    failures: list[str] = []

    def work(rows: tuple[int, ...]) -> None:
        inputs = [make(n) for n in rows]
        for x in inputs * 12:
            centred, total = net(x)
            off = np.abs(centred.asnumpy() - (wide(x) - wide(x).mean(0)) * np.arange(1, 7)).max() > 1e-3
            if off or np.abs(total.asnumpy() - wide(x).sum(0)).max() > 1e-2:
                failures.append(f"{x.shape}")

    threads = [threading.Thread(target=work, args=(rows,)) for rows in ((41, 900), (77, 41, 3000), (130, 77))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures


def test_many_rows_that_do_not_lie_together() -> None:
    class Second(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.set_inputs(Tensor(shape=[3, None, 5], dtype=gc.float32))

        def construct(self, x: Tensor) -> Any:
            y = x - x.mean(1, keep_dims=True)
            return y, (y * y).sum((1, 2))

    net = Second()
    for rows in (41, 41, 41, 77, 41, 1001):
        x = Tensor(rng.standard_normal((3, rows, 5)).astype(np.float32))
        y, squares = net(x)
        wanted = wide(x) - wide(x).mean(1, keepdims=True)
        close(y, wanted)
        np.testing.assert_allclose(squares.asnumpy(), (wanted**2).sum((1, 2)), rtol=1e-4)
