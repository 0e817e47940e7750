"""Memory during and after calls of compiled functions: results, updates in place, host calls, several threads, forks."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

import numpy as np
import pytest

from graphcell import Parameter, Tensor, ops
from graphcell.buffer import RetiredBuffers
from graphcell.jit import jit
from graphcell.ops.dispatch import apply1
from graphcell.tensor import StorageEpoch
from tests.runtime.support import CallsPython, served, t, warm

pytestmark = pytest.mark.usefixtures("calls_python_is_known")


# -- buffers ---------------------------------------------------------------------------------------------------------------
def test_results_that_somebody_sees_are_never_written_again() -> None:
    f = jit(lambda x: (x + 1, x * 2))
    warm(f, t(0))
    kept = [f(t(k)) for k in range(20)]
    arrays = [f(t(k))[0].asnumpy() for k in range(20)]
    views = [memoryview(f(t(k))[1].asnumpy()) for k in range(20)]
    parts = [f(t(k))[1].asnumpy()[:] for k in range(20)]
    shared = [np.from_dlpack(f(t(k))[0]) for k in range(20)]
    for _ in range(10):
        f(t(99))
    for k in range(20):
        assert kept[k][0].asnumpy().tolist() == [k + 1] and kept[k][1].asnumpy().tolist() == [2 * k]
        assert arrays[k].tolist() == [k + 1] and views[k].tolist() == [2 * k] and parts[k].tolist() == [2 * k] and shared[k].tolist() == [k + 1]


def test_memory_of_dropped_results_is_used_again() -> None:
    f = jit(lambda x: x + 1)
    warm(f, t(0))
    addresses = {f(t(1)).asnumpy().ctypes.data for _ in range(50)}
    assert len(addresses) <= 3


def test_a_result_that_becomes_a_parameter() -> None:
    f = jit(lambda x: x + 1)
    p = Parameter(t(0), name="p")

    @jit
    def bump() -> None:
        ops.assign_add(p, t(1))

    for k in range(6):
        p.set_data(f(t(10 * k)))
        bump()
        f(t(1000))
        assert p.asnumpy().tolist() == [10 * k + 2]


def test_updates_in_place_spare_arrays_that_are_alive() -> None:
    p = Parameter(t(0, 0), name="p")

    @jit
    def bump(x: Tensor) -> Tensor:
        ops.assign_add(p, x)
        return p + 0

    warm(bump, t(1, 1))
    seen = []
    with served(bump, 4):
        for k in range(4):
            view = p.asnumpy()
            seen.append((view, view.copy()))
            bump(t(1, 1))  # the buffer moves: Python has a look
            assert np.array_equal(bump(t(1, 2)).asnumpy(), seen[-1][1] + [2, 3]) and k >= 0  # native again
    assert all(np.array_equal(view, copy) for view, copy in seen)
    address = p.address()
    bump(t(1, 1))
    assert p.address() == address


def test_inputs_that_share_memory_with_an_updated_parameter() -> None:
    p = Parameter(t(1, 2), name="p")

    @jit
    def step(x: Tensor) -> Tensor:
        ops.assign(p, p * 2)
        return x + p

    for k in range(6):
        now = 2.0**k
        result = step(Tensor.of_array(p.asnumpy()))
        assert result.asnumpy().tolist() == [3 * now, 6 * now]


# -- failures, threads, re-entrance -------------------------------------------------------------------------------------------
class _Wrong(Exception):
    pass


def test_exceptions_of_host_calls() -> None:
    f = jit(lambda x, i: x[i])
    x = t(1, 2, 3)
    index = Tensor(np.array([1], np.int32))
    assert warm(f, x, index).asnumpy().tolist() == [2]
    for _ in range(3):
        with pytest.raises(IndexError):
            f(x, Tensor(np.array([9], np.int32)))
        assert f(x, index).asnumpy().tolist() == [2]


def test_host_calls_may_call_compiled_functions_and_the_same_again() -> None:
    inner = jit(lambda x: x * 2)
    warm(inner, t(1))

    def host(x: Any) -> Any:
        value = float(x[0])
        if value >= 3:
            return inner(Tensor(x)).asnumpy().copy()
        kept = [outer(t(value + 1)), inner(t(value))]
        assert kept[1].asnumpy().tolist() == [2 * value]
        return kept[0].asnumpy() + 100

    def around(x: Tensor) -> Tensor:
        return apply1(CallsPython(host), x + 0) + 1

    outer = jit(around)

    def expected(value: float) -> float:
        return (2 * value if value >= 3 else expected(value + 1) + 100) + 1

    for _ in range(3):
        for k in range(4):
            assert outer(t(k)).asnumpy().tolist() == [expected(k)]


def test_exceptions_of_host_calls_inside_of_each_other() -> None:
    def host(x: Any) -> Any:
        value = float(x[0])
        if value == 0:
            raise _Wrong("zero")
        return outer(t(value - 1)).asnumpy() if value == 1 else x

    outer = jit(lambda x: apply1(CallsPython(host), x + 0) * 2)
    warm(outer, t(7))
    for _ in range(3):
        with pytest.raises(_Wrong, match="zero"):
            outer(t(0))
        with pytest.raises(_Wrong, match="zero"):
            outer(t(1))
        assert outer(t(5)).asnumpy().tolist() == [10]


@pytest.mark.parametrize("size", [3, 200_000])
def test_threads_call_one_function_at_once(size: int) -> None:
    f = jit(lambda x, y: (x * y + 1, x - y))
    x = np.arange(size, dtype=np.float32)
    warm(f, Tensor(x), Tensor(x))
    failures: list[Any] = []

    def work(k: int) -> None:
        kept = []
        y = Tensor(np.full(size, k, np.float32))
        for _ in range(30):
            a, b = f(Tensor(x), y)
            kept.append((a, b))
            del kept[:-3]
            for first, second in kept:
                if not (np.array_equal(first.asnumpy(), x * k + 1) and np.array_equal(second.asnumpy(), x - k)):
                    failures.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures and RetiredBuffers.calls() == 0


def test_replacing_a_parameter_while_a_long_run_reads_it() -> None:
    size = 300_000
    p = Parameter(Tensor(np.ones(size, np.float32)), name="p")
    f = jit(lambda x: ops.exp(ops.sin(x * p)).sum())
    x = Tensor(np.ones(size, np.float32))
    wanted = {round(float(np.exp(np.sin(k)) * size), -2) for k in (1.0, 2.0)}
    warm(f, x)
    stop = threading.Event()

    def replace() -> None:
        while not stop.is_set():
            for k in (2.0, 1.0):
                p.set_data(Tensor(np.full(size, k, np.float32)))

    thread = threading.Thread(target=replace)
    thread.start()
    try:
        found = [float(f(x).asnumpy()) for _ in range(40)]
    finally:
        stop.set()
        thread.join()
    assert all(min(abs(v - w) for w in wanted) < 1e-3 * size for v in found)


# -- buffers that calls under way may have the addresses of --------------------------------------------------------------
def test_buffers_stay_while_a_call_may_have_their_addresses() -> None:
    p = Parameter(t(1, 2, 3), name="p")
    f = jit(lambda x: ops.relu(x + p))
    warm(f, t(1, 1, 1))
    spaces, before = f._last.binding.spaces, weakref.ref(p.array())
    space = spaces.pop()  # what a call begins with
    p.set_data(t(4, 5, 6))
    assert before() is not None
    spaces.push(space)
    assert before() is None and RetiredBuffers.calls() == 0
    assert f(t(1, 1, 1)).asnumpy().tolist() == [5, 6, 7]


def test_storage_epoch_counts_changes_of_buffers() -> None:
    x = t(1, 2)
    before = StorageEpoch.value
    x.rebind(np.zeros(2, np.float32))
    assert StorageEpoch.value > before


def test_buffers_are_freed_though_calls_of_several_threads_overlap_without_a_gap() -> None:
    p = Parameter(t(1, 2, 3), name="p")
    f = jit(lambda x: ops.relu(x + p))
    warm(f, t(1, 1, 1))
    spaces = f._last.binding.spaces
    under_way = [spaces.pop()]
    retired = []
    for k in range(50):  # at no moment is there no call
        retired.append(weakref.ref(p.array()))
        p.set_data(t(k, k, k))
        under_way.append(spaces.pop())
        assert retired[-1]() is not None  # the first of the two has its address
        spaces.push(under_way.pop(0))
    assert sum(r() is not None for r in retired) <= 2
    spaces.push(under_way.pop())
    assert not any(r() is not None for r in retired) and RetiredBuffers.calls() == 0


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_a_buffer_stays_until_the_last_call_that_may_have_its_address(order: tuple[int, ...]) -> None:
    p = Parameter(t(1, 2, 3), name="p")
    f = jit(lambda x: ops.relu(x + p))
    warm(f, t(1, 1, 1))
    spaces, calls, buffers = f._last.binding.spaces, [], []
    for k in range(3):
        calls.append(spaces.pop())
        buffers.append(weakref.ref(p.array()))
        p.set_data(t(k, k, k))
    going = set(range(3))
    for k in order:
        spaces.push(calls[k])
        going.discard(k)
        for j, data in enumerate(buffers):
            assert data() is not None or not any(g <= j for g in going)  # call g may have what was let go of after it began
    assert not any(data() is not None for data in buffers)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_fork_inside_a_host_call() -> None:
    """The child goes on inside the call: its end must not be counted twice, and what it may read stays."""
    p = Parameter(t(1, 2, 3), name="p")
    calls_in_child = []

    def host(x: Any) -> Any:
        if x[0] == 5 and not calls_in_child:
            child = os.fork()
            if child == 0:
                calls_in_child.append(RetiredBuffers.calls())
            else:
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        return x + 1

    f = jit(lambda x: apply1(CallsPython(host), x * p) * 2)
    warm(f, t(1, 1, 1))
    parent = os.getpid()
    try:
        result = f(t(5, 5, 5)).asnumpy().tolist()
        assert result == [12, 22, 32] and RetiredBuffers.calls() == 0
        again = f(t(1, 1, 1)).asnumpy().tolist()
        assert again == [4, 6, 8]
        assert os.getpid() == parent or calls_in_child == [1]
    except BaseException:
        if os.getpid() != parent:
            os._exit(1)
        raise
    if os.getpid() != parent:
        os._exit(0)
