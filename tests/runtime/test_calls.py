"""Calls of compiled functions: what native code compares and hands out. Expected values are computed with numpy."""

from __future__ import annotations

import collections
import copy
import gc
import os
import subprocess
import sys
import weakref
from array import array
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphcell as gc_
from graphcell import Parameter, Tensor, nn
from graphcell.jit import JitFunction, jit
from graphcell.runtime.binding import Record, Table
from graphcell.runtime.calling import RecordState, native
from graphcell.runtime.threads import pool
from graphcell.tensor import Activity, StateEpoch
from tests.runtime.support import served, t, warm

Pair = namedtuple("Pair", "first second")
scale = 2.0



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


@pytest.mark.slow
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


@pytest.mark.slow
def test_no_references_leak() -> None:
    f = jit(lambda x, y, k: (x + y, x * k))
    x, y = t(1), t(2)
    warm(f, x, y, k=3)
    gc.collect()
    gc.disable()  # what it frees of other tests refers to these, too
    try:
        before = [sys.getrefcount(o) for o in (x, y, x._data, Tensor, None)]
        for _ in range(1000):
            f(x, y, k=3)
        after = [sys.getrefcount(o) for o in (x, y, x._data, Tensor, None)]
    finally:
        gc.enable()
    assert all(abs(a - b) < 200 for a, b in zip(after, before, strict=True)), (before, after)


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


@pytest.mark.slow
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


def test_without_native_calls(tmp_path: Path) -> None:
    """The same in a process in which Python does all."""
    script = tmp_path / "script.py"
    script.write_text(
        "import numpy as np, graphcell as g\nfrom graphcell.runtime.calling import native\nf = g.jit(lambda x: x + 1)\n"
        "for k in range(4): print(f(g.Tensor([float(k)])).asnumpy()[0])\nprint(native())\n"
    )
    env = {**os.environ, "GRAPHCELL_NATIVE_CALLS": "0", "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, str(script)], env=env, capture_output=True, text=True, timeout=600, check=True)
    assert done.stdout.split() == ["1.0", "2.0", "3.0", "4.0", "None"]


LITTLE_STACK = """
import sys
import threading
import numpy as np
import graphcell as ms

channels, pixels = map(int, sys.argv[1:])
shapes = (2, channels, pixels, pixels), (channels, channels, 3, 3)
x, w = (ms.Tensor(np.random.default_rng(0).standard_normal(s).astype(np.float32)) for s in shapes)
step = ms.jit(ms.grad(lambda x, w: ms.ops.relu(ms.ops.conv2d(x, w, None, 1, "pad", 1)).sum(), (0, 1)))
step(x, w)
threading.stack_size(256 << 10)
thread = threading.Thread(target=lambda: print(len(step(x, w))))
thread.start()
thread.join()
"""


@pytest.mark.skipif(os.name != "posix", reason="where a thread's stack cannot be chosen")
@pytest.mark.parametrize(("channels", "pixels"), [(64, 24), (40, 40), (160, 6), (100, 14)])
def test_a_thread_of_little_stack(tmp_path: Path, channels: int, pixels: int) -> None:
    """What a step needs for itself lies on the heap if it is much."""
    program = tmp_path / "program.py"
    program.write_text(LITTLE_STACK)
    for threads in ("1", "2"):
        environment = {**os.environ, "GRAPHCELL_NUM_THREADS": threads, "PYTHONPATH": str(Path(gc_.__file__).parents[1])}
        run = subprocess.run([sys.executable, str(program), str(channels), str(pixels)], env=environment, capture_output=True, text=True, check=False)
        assert (run.returncode, run.stdout) == (0, "2\n"), run.stderr
