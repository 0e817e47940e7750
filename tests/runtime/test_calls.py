"""Calls of compiled functions: what native code compares and hands out. Expected values are computed with numpy."""

from __future__ import annotations

import collections
import contextlib
import copy
import dataclasses
import gc
import os
import subprocess
import sys
import threading
import weakref
from array import array
from collections import namedtuple
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphcell as gc_
from graphcell import Parameter, Tensor, nn, ops
from graphcell.ir.op import Op
from graphcell.ir.types import TensorType
from graphcell.jit import JitFunction, jit
from graphcell.ops.dispatch import apply1
from graphcell.runtime.binding import Record, Table
from graphcell.runtime.calling import RecordState, native
from graphcell.runtime.threads import pool
from graphcell.tensor import Activity, RetiredBuffers, StateEpoch, StorageEpoch

Pair = namedtuple("Pair", "first second")
scale = 2.0


def t(*values: float) -> Tensor:
    return Tensor(np.array(values, np.float32))


def hits(function: Any) -> int:
    """How many calls of the graph used last went through native code."""
    record = function._last.record
    return 0 if record is None else record.hits


def warm(function: Any, *args: Any, **kwargs: Any) -> Any:
    for _ in range(3):
        result = function(*args, **kwargs)
    return result


@contextlib.contextmanager
def served(function: Any, calls: int) -> Iterator[None]:
    """Checks that so many of the calls inside are native, where there are native calls at all."""
    before = hits(function)
    yield
    if native() is not None:
        assert hits(function) - before == calls


# -- arguments -----------------------------------------------------------------------------------------------------------
def test_repeated_calls_are_native() -> None:
    @jit
    def f(x: Tensor, y: Tensor) -> Tensor:
        return x * y

    warm(f, t(1, 2), t(3, 4))
    with served(f, 10):
        for k in range(10):
            assert f(t(k, 2), t(3, k)).asnumpy().tolist() == [3.0 * k, 2.0 * k]


CALLS: tuple[tuple[tuple[Any, ...], dict[str, Any], bool], ...] = (
    ((t(1, 2),), {}, True),
    ((t(1, 2),), {"y": t(3, 4)}, True),
    ((t(1, 2), t(3, 4)), {}, True),
    ((t(1, 2), None), {}, True),
    ((t(1, 2), 3), {}, True),
    ((t(1, 2), 3.5), {}, True),
    ((t(1, 2), -0.0), {}, True),
    ((t(1, 2), True), {}, True),
    ((t(1, 2), 12345678901234567890), {}, True),
    ((t(1, 2), "name"), {}, True),
    (((t(1, 2), [t(3, 4), 2]), None), {}, True),
    ((Pair(t(1, 2), t(5, 6)), 1), {}, True),
    (({"a": t(1, 2), "b": (t(3, 4), None)},), {"y": [t(1, 1)]}, True),
    ((t(1, 2), np.float32(2)), {}, False),
    ((t(1, 2), 2j), {}, False),
)


def collect(x: Any) -> list[Any]:
    if isinstance(x, Tensor):
        return [x]
    if isinstance(x, (tuple, list)):
        return [e for part in x for e in collect(part)]
    if isinstance(x, dict):
        return [e for part in x.values() for e in collect(part)]
    return []


@pytest.mark.parametrize(("args", "kwargs", "is_native"), CALLS, ids=[str(k) for k in range(len(CALLS))])
def test_all_kinds_of_arguments(args: tuple[Any, ...], kwargs: dict[str, Any], is_native: bool) -> None:
    @jit
    def f(x: Any, y: Any = 7) -> Any:
        found = tensors(x) + tensors(y)
        total = found[0] * 0
        for e in found:
            total = total + e
        return total + (y if isinstance(y, (int, float)) else 0)

    def tensors(x: Any) -> list[Any]:
        if isinstance(x, Tensor):
            return [x]
        if isinstance(x, dict):
            return [e for part in x.values() for e in tensors(part)]
        return [e for part in x for e in tensors(part)] if isinstance(x, (tuple, list)) else []

    y = args[1] if len(args) > 1 else kwargs.get("y", 7)
    number = y if isinstance(y, (int, float)) else 0
    expected = sum(e.asnumpy().astype(np.float64) for e in collect((args, kwargs))) + number
    warm(f, *args, **kwargs)
    with served(f, 2 if is_native else 0):
        for _ in range(2):
            assert np.allclose(f(*args, **kwargs).asnumpy(), expected)


def test_other_types_shapes_and_constants_are_told_apart() -> None:
    @jit
    def f(x: Any, k: Any = 1) -> Any:
        return x * k

    inputs: list[tuple[Any, Any]] = [
        (t(1, 2), 1), (t(1, 2), 1.0), (t(1, 2), True), (t(1, 2, 3), 1), (Tensor(np.ones((2, 1), np.float32)), 1),
        (Tensor(np.ones(2, np.float64)), 1), (Tensor(np.ones(2, np.int32)), 1), (Tensor(np.ones(2, np.int32)), 2.5), (t(1, 2), 0.0), (t(1, 2), -0.0),
    ]  # fmt: skip
    for _ in range(4):
        for x, k in inputs:
            result = f(x, k)
            expected = x.asnumpy() * k
            assert result.shape == x.shape and np.array_equal(result.asnumpy(), expected)
            assert np.array_equal(np.signbit(result.asnumpy()), np.signbit(expected))
            assert result.asnumpy().dtype == (np.float32 if isinstance(k, float) and x.dtype == gc_.int32 else x.asnumpy().dtype)


def test_non_contiguous_and_misaligned_arguments() -> None:
    f = jit(lambda x: x + 1)
    base = np.arange(40, dtype=np.float32)
    raw = np.zeros(21, np.uint8)
    misaligned = raw[1:21].view(np.float32)
    warm(f, Tensor(base[:5]))
    for given in (base[::8], base[::-8], base[3:8], misaligned):
        assert np.array_equal(f(Tensor.of_array(given)).asnumpy(), given + 1)


def test_wrong_calls_raise_as_before() -> None:
    f = jit(lambda x: x + 1)
    warm(f, t(1))
    for _ in range(2):
        with pytest.raises(TypeError):
            f()
        with pytest.raises(TypeError):
            f(t(1), t(2))
        with pytest.raises(TypeError):
            f(t(1), y=1)
    assert f(t(1)).asnumpy().tolist() == [2]


# -- what is read from outside ---------------------------------------------------------------------------------------------
def test_changed_globals_closures_attributes_and_contents(monkeypatch: pytest.MonkeyPatch) -> None:
    factor, table = 3.0, {"k": 1.0}

    class Holder:
        value = 5.0

    @jit
    def f(x: Tensor) -> Tensor:
        return x * scale * factor + table["k"] + Holder.value

    def expected() -> float:
        return scale * factor + table["k"] + Holder.value

    def check() -> None:
        for _ in range(4):
            assert f(t(1)).asnumpy().tolist() == [expected()]

    check()
    monkeypatch.setattr(sys.modules[__name__], "scale", 4.0)
    check()
    factor = 7.0
    check()
    table["k"] = 2.0
    check()
    Holder.value = 6.0
    check()
    monkeypatch.undo()
    check()


def test_changed_attributes_of_cells() -> None:
    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.k = 1.0
            self.inner = nn.Dropout(p=0.5)

        def construct(self, x: Tensor) -> Tensor:
            return self.inner(x) * self.k if self.training else x * self.k

    net = Net()
    f = jit(net)
    assert warm(f, t(3)).asnumpy().tolist() == [3]
    net.k = 2.0
    assert warm(f, t(3)).asnumpy().tolist() == [6]
    net.set_train(True)
    assert warm(f, t(3)).asnumpy().tolist() in ([0.0], [12.0])
    net.set_train(False)
    assert warm(f, t(3)).asnumpy().tolist() == [6]


def test_setting_what_is_set_already_changes_nothing() -> None:
    net = nn.SequentialCell([nn.Dense(2, 2), nn.Dropout(p=0.5)])
    net.set_train(True)
    before = StateEpoch.value
    net.set_train(True)
    net.training = True
    assert StateEpoch.value == before
    net.set_train(False)
    assert StateEpoch.value > before and not net[1].training and net.phase == "predict"


def test_a_property_of_a_cell_is_called_though_the_value_is_the_same() -> None:
    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.__dict__["calls"] = 0

        @property
        def x(self) -> Any:
            return self.__dict__["x"]

        @x.setter
        def x(self, value: Any) -> None:
            self.__dict__["x"] = value
            self.__dict__["calls"] += 1

    net = Net()
    net.x = net.x = 1
    assert net.calls == 2


def test_a_tensor_from_outside_that_is_replaced() -> None:
    other = t(10)

    @jit
    def f(x: Tensor) -> Tensor:
        return x + other

    assert warm(f, t(1)).asnumpy().tolist() == [11]
    other = t(20)
    assert warm(f, t(1)).asnumpy().tolist() == [21]
    other[0] = 5
    assert warm(f, t(1)).asnumpy().tolist() == [6]


def test_parameters_that_are_set_are_read_anew() -> None:
    p = Parameter(t(1, 2), name="p")
    f = jit(lambda x: x * p)
    assert warm(f, t(2, 2)).asnumpy().tolist() == [2, 4]
    p.set_data(t(5, 6))
    assert warm(f, t(2, 2)).asnumpy().tolist() == [10, 12]
    p.asnumpy()[0] = 7  # shares memory until the next update in place
    assert f(t(2, 2)).asnumpy().tolist() == [14, 12]


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


@dataclasses.dataclass(frozen=True)
class _Calls(Op):
    """Runs Python in the middle of a graph."""

    function: Callable[[Any], Any]
    name = "test_calls_python"

    def infer(self, *operands: TensorType) -> TensorType:
        return operands[0]

    def eval(self, *arrays: Any) -> Any:
        return self.function(arrays[0])


@pytest.fixture(scope="module", autouse=True)
def _without_the_op() -> Iterator[None]:
    yield
    Op.table.pop("test_calls_python", None)


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
        return apply1(_Calls(host), x + 0) + 1

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

    outer = jit(lambda x: apply1(_Calls(host), x + 0) * 2)
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
    assert not failures and RetiredBuffers.running.value == 0


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


def test_gradients_of_a_function_that_has_been_served() -> None:
    f = jit(lambda x: (x * x).sum())
    x = t(1, 2, 3)
    warm(f, x)
    grad = gc_.grad(f)
    assert grad(x).asnumpy().tolist() == [2, 4, 6]
    assert Activity.value == 0
    assert float(f(x).asnumpy()) == 14


def test_numbers_of_threads_and_modes_are_looked_at() -> None:
    f = jit(lambda x: x + 1)
    warm(f, t(1))
    before = gc_.get_context("runtime_num_threads")
    try:
        gc_.set_context(runtime_num_threads=1)
        assert f(t(1)).asnumpy().tolist() == [2]
        assert pool().threads == 1 or "GRAPHCELL_NUM_THREADS" in os.environ
    finally:
        gc_.set_context(runtime_num_threads=before)


# -- methods, lifetime -------------------------------------------------------------------------------------------------------
class Scaled(nn.Cell):
    def __init__(self, k: float):
        super().__init__()
        self.k = k
        self.w = Parameter(t(k), name="w")

    @jit
    def run(self, x: Tensor) -> Tensor:
        return x * self.k + self.w


def test_methods_of_several_cells() -> None:
    cells = [Scaled(float(k)) for k in range(4)]
    for _ in range(4):
        for k, cell in enumerate(cells):
            assert cell.run(t(2)).asnumpy().tolist() == [3 * k]
    if native() is not None:
        entries = [e for c in cells for found in vars(c)["_compiled_methods"][Scaled.run].values() for e in found]
        assert sum(e.record.hits for e in entries) == 8


def test_cells_and_functions_are_let_go_of() -> None:
    cell = Scaled(3.0)
    warm(cell.run, t(1))
    weak = weakref.ref(cell)
    warm(Scaled(4.0).run, t(1))
    del cell
    gc.collect()
    assert weak() is None
    function = jit(lambda x: x + 1)
    warm(function, t(1))
    weak_function = weakref.ref(function)
    del function
    gc.collect()
    assert weak_function() is None


def test_no_references_leak() -> None:
    f = jit(lambda x, y, k: (x + y, x * k))
    x, y = t(1), t(2)
    warm(f, x, y, k=3)
    before = [sys.getrefcount(o) for o in (x, y, x._data, Tensor, None)]
    for _ in range(1000):
        f(x, y, k=3)
    after = [sys.getrefcount(o) for o in (x, y, x._data, Tensor, None)]
    assert all(abs(a - b) < 50 for a, b in zip(after, before, strict=True)), (before, after)


def test_copies_and_names() -> None:
    def f(x: Tensor) -> Tensor:
        """Doubles."""
        return x * 2

    compiled = jit(f)
    warm(compiled, t(1))
    assert compiled.__name__ == "f" and compiled.__doc__ == "Doubles." and isinstance(compiled, JitFunction)
    assert type(compiled).__name__ == "JitFunction" and callable(compiled) and "f" in repr(compiled)
    assert copy.deepcopy(compiled)(t(4)).asnumpy().tolist() == [8]
    assert list(map(compiled, [t(1), t(2)]))[1].asnumpy().tolist() == [4]
    assert compiled.__call__(t(3)).asnumpy().tolist() == [6]


def test_what_is_shown_is_what_ran_last() -> None:
    f = jit(lambda x: x + 1)
    one, two = t(1), t(1, 2)
    for x in (one, two):
        warm(f, x)
    for x, text in ((one, "f32[1]"), (two, "f32[2]"), (one, "f32[1]")):
        f(x)
        assert text in f.ir()


def test_explain_counts_the_graphs_kept_with_cells() -> None:
    class Shifted(nn.Cell):
        @jit
        def run(self, x: Tensor) -> Tensor:
            return x + 3

    cells = [Shifted(), Shifted()]
    for cell in cells:
        cell.run(t(1))
    cells[0].run(t(1, 2))
    assert Shifted.run.explain().startswith("run: 3 compiled graphs")


CONTAINERS: dict[str, tuple[Callable[[list[int]], Any], Callable[[Any, int], None]]] = {
    "set": (set, set.add), "bytearray": (bytearray, bytearray.append), "deque": (collections.deque, collections.deque.append),
    "array": (lambda values: array("i", values), array.append),
}  # fmt: skip


@pytest.mark.parametrize("make,change", CONTAINERS.values(), ids=CONTAINERS)
def test_a_container_that_changed_is_another_argument(make: Callable[[list[int]], Any], change: Callable[[Any, int], None]) -> None:
    f = jit(lambda x, s: x + len(s))
    changing = make([1, 2])
    for wanted in (3, 4, 5):
        assert [f(t(1), changing).asnumpy().tolist() for _ in range(4)] == [[wanted]] * 4
        change(changing, wanted)
    assert f(t(1), make([1, 2])).asnumpy().tolist() == [3]


def test_an_interrupt_during_the_comparisons_is_not_lost() -> None:
    class Settings:
        def __init__(self) -> None:
            self.fails = False

        @property
        def k(self) -> float:
            if self.fails:
                raise KeyboardInterrupt
            return 2.0

    class Scaling(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.settings = Settings()

        def construct(self, x: Tensor) -> Tensor:
            return x * self.settings.k

    net = Scaling()
    f = jit(net)
    warm(f, t(1))
    net.settings.fails = True
    with pytest.raises(KeyboardInterrupt):
        f(t(1))
    net.settings.fails = False
    assert f(t(3)).asnumpy().tolist() == [6]


def test_a_table_forgets_records_that_die_while_it_changes() -> None:
    def record(table: Table) -> Record:
        return Record(table, RecordState(), ())

    table = Table(always=False)
    held = [record(table) for _ in range(5)]
    for r in held:
        table.add(r)
    held[1].cycle = held[1]  # type: ignore[attr-defined]
    del held[1], r
    gc.collect()
    table.add(held[0])
    known = table.state.records[: table.state.count]
    assert known == [held[0].address, *(h.address for h in reversed(held[1:]))]
    held.clear()
    gc.collect()
    assert table.state.count == 0


def test_buffers_stay_while_a_call_may_have_their_addresses() -> None:
    p = Parameter(t(1, 2, 3), name="p")
    f = jit(lambda x: ops.relu(x + p))
    warm(f, t(1, 1, 1))
    spaces, before = f._last.binding.spaces, weakref.ref(p.array())
    space = spaces.pop()  # what a call begins with
    p.set_data(t(4, 5, 6))
    assert before() is not None
    spaces.push(space)
    assert before() is None and RetiredBuffers.running.value == 0
    assert f(t(1, 1, 1)).asnumpy().tolist() == [5, 6, 7]


def test_without_native_calls(tmp_path: Path) -> None:
    """The same in a process in which Python does all."""
    script = tmp_path / "script.py"
    script.write_text(
        "import numpy as np, graphcell as g\nfrom graphcell.runtime.calling import native\nf = g.jit(lambda x: x + 1)\n"
        "for k in range(4): print(f(g.Tensor([float(k)])).asnumpy()[0])\nprint(native())\n"
    )
    env = {**os.environ, "GRAPHCELL_NATIVE_CALLS": "0", "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, str(script)], env=env, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["1.0", "2.0", "3.0", "4.0", "None"]


def test_storage_epoch_counts_changes_of_buffers() -> None:
    x = t(1, 2)
    before = StorageEpoch.value
    x.rebind(np.zeros(2, np.float32))
    assert StorageEpoch.value > before
