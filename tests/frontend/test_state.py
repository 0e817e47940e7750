"""What a compiled function reads from outside and what it changes: Parameters, Cells, attributes, globals,
lists.
"""

# ruff: noqa: F811  (the functions are written to exercise syntax)
from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from graphcell import nn, ops
from graphcell.jit import JitFunction, jit
from graphcell.parameter import Parameter
from graphcell.tensor import Tensor
from tests.frontend.support import op_names, tensor

SCALE = 2
TABLE = [1.0, 2.0]
WEIGHT = tensor(1.0, 1.0)
HISTORY: list[Any] = []


def compilations(function: JitFunction) -> int:
    """How many graphs were compiled for plain arguments."""
    return len(list(function._all_entries()))


class Net(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.w = Parameter(tensor(1.0, 2.0), name="w")
        self.count = 0
        self.k = 3
        self.memory = tensor(0.0, 0.0)
        self.relu = nn.ReLU() if hasattr(nn, "ReLU") else None

    def construct(self, x: Any) -> Any:
        if x.sum() > 0:
            return x * self.w * self.k
        return x - self.w


class Updating(Net):
    def construct(self, x: Any) -> Any:
        self.w += x
        self.count += 1
        self.memory = self.memory * 0.5 + x
        return self.w * self.count


def numbers(t: Any) -> list[float]:
    return [round(float(v), 5) for v in t.asnumpy().reshape(-1)]


def test_parameters_are_captured_and_updates_seen() -> None:
    net = Net()
    f = jit(net)
    assert numbers(f(tensor(1.0, 1.0))) == [3.0, 6.0]
    net.w.set_data(tensor(10.0, 20.0))
    assert numbers(f(tensor(1.0, 1.0))) == [30.0, 60.0]
    assert numbers(f(tensor(-1.0, -1.0))) == [-11.0, -21.0]


def test_changed_attribute_is_noticed() -> None:
    net = Net()
    f = jit(net)
    assert numbers(f(tensor(1.0, 1.0))) == [3.0, 6.0]
    net.k = 5
    assert numbers(f(tensor(1.0, 1.0))) == [5.0, 10.0]
    assert "Net.k changed" in f.explain()
    net.k = 3
    net.unrelated = 7
    f(tensor(1.0, 1.0))
    assert f._why == "Net.k changed"  # neither the old value nor an attribute that is not read compiles anew


def test_training_flag_is_noticed() -> None:
    class Drop(nn.Cell):
        def construct(self, x: Any) -> Any:
            return x * 0 if self.training else x

    net = Drop()
    f = jit(net)
    assert numbers(f(tensor(1.0))) == [1.0]
    net.set_train()
    assert numbers(f(tensor(1.0))) == [0.0]
    net.set_train(False)
    assert numbers(f(tensor(1.0))) == [1.0]


def test_attribute_writes_happen_at_every_call() -> None:
    net = Updating()
    f = jit(net)
    for k in range(1, 4):
        assert numbers(f(tensor(1.0, 1.0))) == [(1.0 + k) * k, (2.0 + k) * k]
        assert net.count == k and numbers(net.w) == [1.0 + k, 2.0 + k]
    assert numbers(net.memory) == [1.75, 1.75]
    assert isinstance(net.w, Parameter) and not net.memory.is_symbolic


def test_assign_without_reading() -> None:
    net = Net()

    @jit
    def f() -> Any:
        ops.assign(net.w, Tensor(np.array([7, 8])))
        return True

    assert f() is True and numbers(net.w) == [7.0, 8.0]
    net.w.set_data(tensor(0.0, 0.0))
    assert f() is True and numbers(net.w) == [7.0, 8.0]


def test_writes_inside_branches_and_loops() -> None:
    p = Parameter(tensor(0.0), name="p")

    @jit
    def f(x: Any) -> Any:
        if x.sum() > 0:
            ops.assign_add(p, x)
        for i in range(10):
            ops.assign_add(p, x * 0 + i)
        k = Tensor(0)
        while k < 3:
            p[0] = p[0] + 100
            k = k + 1
        return p * 1

    assert numbers(f(tensor(1.0))) == [346.0] and numbers(p) == [346.0]
    assert numbers(f(tensor(-1.0))) == [346.0 + 345.0] and numbers(p) == [691.0]
    names = [n.op.name for n in f._last.traced.graph.walk()]
    assert names.count("for") == 2 and "while" not in names  # one that counts


def test_argument_written_in_place() -> None:
    @jit
    def f(x: Any) -> Any:
        x[0] = 9.0
        return x * 2

    x = tensor(1.0, 2.0)
    assert numbers(f(x)) == [18.0, 4.0] and numbers(x) == [9.0, 2.0]


def test_one_tensor_as_two_arguments_that_are_written() -> None:
    @jit
    def f(x: Any, y: Any) -> Any:
        x[0] = 9.0
        return x + y

    a, b = tensor(1.0, 2.0), tensor(1.0, 2.0)
    assert numbers(f(a, b)) == [10.0, 4.0]
    c = tensor(1.0, 2.0)
    assert numbers(f(c, c)) == [18.0, 4.0] and numbers(c) == [9.0, 2.0]
    assert numbers(f(tensor(3.0, 3.0), tensor(1.0, 1.0))) == [10.0, 4.0]


def test_globals_are_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    @jit
    def f(x: Any) -> Any:
        return x * SCALE + TABLE[0] + WEIGHT

    here = globals()
    assert numbers(f(tensor(1.0, 1.0))) == [4.0, 4.0]
    monkeypatch.setitem(here, "SCALE", 3)
    assert numbers(f(tensor(1.0, 1.0))) == [5.0, 5.0]
    monkeypatch.setitem(TABLE, 0, 10.0) if isinstance(TABLE, dict) else TABLE.__setitem__(0, 10.0)
    assert numbers(f(tensor(1.0, 1.0))) == [14.0, 14.0]
    count = compilations(f)
    monkeypatch.setitem(here, "WEIGHT", tensor(5.0, 5.0))
    assert numbers(f(tensor(1.0, 1.0))) == [18.0, 18.0]
    assert compilations(f) == count  # another Tensor of the same type is only another input
    TABLE[0] = 1.0


def test_closure_variables_are_guarded() -> None:
    k, w = 2, tensor(1.0)

    @jit
    def f(x: Any) -> Any:
        return x * k + w

    assert numbers(f(tensor(1.0))) == [3.0]
    k = 5
    assert numbers(f(tensor(1.0))) == [6.0]
    w = tensor(10.0)
    assert numbers(f(tensor(1.0))) == [15.0]


def test_attributes_of_plain_objects_are_guarded() -> None:
    config = SimpleNamespace(width=2, inner=SimpleNamespace(scale=3.0), sizes=[1, 2])

    @jit
    def f(x: Any) -> Any:
        return x * config.width + config.inner.scale + len(config.sizes)

    assert numbers(f(tensor(1.0))) == [7.0]
    config.inner.scale = 4.0
    assert numbers(f(tensor(1.0))) == [8.0]
    config.sizes.append(3)
    assert numbers(f(tensor(1.0))) == [9.0]


class Searching:
    """Has `twice` where it has `found`."""

    @property
    def twice(self) -> Any:
        return self.found * 2  # type: ignore[attr-defined]


HOLDER = Searching()


def by_hasattr(x: Any) -> Any:
    return x * HOLDER.found if hasattr(HOLDER, "found") else x


def by_default(x: Any) -> Any:
    return x * getattr(HOLDER, "found", 1)


def by_attribute_error(x: Any) -> Any:
    try:
        return x * HOLDER.found
    except AttributeError:
        return x


def by_property(x: Any) -> Any:
    return x * getattr(HOLDER, "twice", 2) / 2


def by_name_error(x: Any) -> Any:
    try:
        return x * FOUND
    except NameError:
        return x


SEARCHES = [by_hasattr, by_default, by_attribute_error, by_property, by_name_error]


@pytest.mark.parametrize("search", SEARCHES, ids=lambda f: f.__name__)
def test_what_was_missing_is_noticed_when_it_comes(search: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    f, x = jit(search), tensor(1.0, 2.0)
    for _ in range(4):
        assert numbers(f(x)) == [1, 2]
    assert compilations(f) == 1
    with monkeypatch.context() as changed:
        changed.setattr(HOLDER, "found", 3, raising=False)
        changed.setitem(globals(), "FOUND", 3)
        for _ in range(4):
            assert numbers(f(x)) == [3, 6]
    for _ in range(4):
        assert numbers(f(x)) == [1, 2]
    assert compilations(f) == 2


def test_a_cells_missing_attribute_is_noticed_when_it_comes() -> None:
    class Growing(nn.Cell):
        def construct(self, x: Any) -> Any:
            return x * getattr(self, "factor", 1)

    net = Growing()
    f = jit(net)
    assert numbers(f(tensor(1.0, 2.0))) == [1, 2]
    net.factor = 4
    assert numbers(f(tensor(1.0, 2.0))) == [4, 8]
    del net.factor
    assert numbers(f(tensor(1.0, 2.0))) == [1, 2]


def test_getattr_runs_a_property_once() -> None:
    class Counting:
        runs = 0

        @property
        def value(self) -> int:
            self.runs += 1
            return 2

    thing = Counting()
    assert numbers(jit(lambda x: x * getattr(thing, "value", 1))(tensor(1.0))) == [2]
    assert thing.runs == 1


def test_redefined_helper_is_noticed() -> None:
    def helper(x: Any) -> Any:
        return x + 1

    @jit
    def f(x: Any) -> Any:
        return helper(x)

    assert numbers(f(tensor(1.0))) == [2.0]

    def helper(x: Any) -> Any:
        return x * 10

    assert numbers(f(tensor(1.0))) == [10.0]


def test_list_that_is_appended_to() -> None:
    HISTORY.clear()

    @jit
    def f(x: Any) -> Any:
        y = x * 2
        HISTORY.append(y)
        return y

    for k in range(3):
        f(tensor(float(k)))
    assert [numbers(t) for t in HISTORY] == [[0.0], [2.0], [4.0]]
    assert compilations(f) == 1


def test_global_and_nonlocal_writes() -> None:
    total = 0

    @jit
    def f(x: Any) -> Any:
        nonlocal total
        global SCALE
        total = total + 1
        SCALE = 2
        return x * total

    assert [numbers(f(tensor(1.0))) for _ in range(3)] == [[1.0], [2.0], [3.0]]
    assert total == 3


def test_nothing_symbolic_is_left_behind() -> None:
    holder = SimpleNamespace(last=None)

    @jit
    def f(x: Any) -> Any:
        holder.last = x * 2
        return x

    f(tensor(1.0))
    assert numbers(holder.last) == [2.0]
    with pytest.raises(NameError):

        @jit
        def g(x: Any) -> Any:
            holder.last = x * 3
            return undefined  # noqa: F821

        g(tensor(1.0))
    assert numbers(holder.last) == [2.0]


def test_cells_in_containers_and_nested() -> None:
    class Outer(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.first = Net()
            self.table = {"a": Net()}

        def construct(self, x: Any) -> Any:
            y = self.first(x)
            for name, net in self.table.items():
                y = y + net(x) * len(name)
            return y

    net = Outer()
    assert numbers(jit(net)(tensor(1.0, -0.5))) == numbers(net(tensor(1.0, -0.5)))
    assert "if" in op_names(jit_traced(net, tensor(1.0, -0.5)))


def jit_traced(function: Any, *args: Any) -> Any:
    f = jit(function)
    f(*args)
    return f._last.traced


def test_graph_mode_compiles_cells() -> None:
    from graphcell.context import GRAPH_MODE, config

    config.mode = GRAPH_MODE
    net = Net()
    assert numbers(net(tensor(1.0, 1.0))) == [3.0, 6.0]
    assert numbers(net(tensor(-1.0, -1.0))) == [-2.0, -3.0]
    net.k = 10
    assert numbers(net(tensor(1.0, 1.0))) == [10.0, 20.0]


def test_random_numbers_go_on_in_loops_and_calls() -> None:
    def f(x: Any) -> Any:
        for _ in range(9):
            x = x + ops.rand(2)
        if x.sum() > 0:
            x = x + ops.rand(2)
        return x

    from graphcell.common.seed import set_seed

    set_seed(3)
    want = [numbers(f(tensor(1.0, 2.0))) for _ in range(2)]
    compiled = jit(f)
    set_seed(3)
    assert [numbers(compiled(tensor(1.0, 2.0))) for _ in range(2)] == want and want[0] != want[1]
    assert "for" in [n.op.name for n in compiled._last.traced.graph.nodes]


def test_hooks_are_part_of_the_graph_and_noticed() -> None:
    net = Net()
    f = jit(net)
    assert numbers(f(tensor(1.0, 1.0))) == [3.0, 6.0]
    handle = net.register_forward_hook(lambda cell, inputs, output: output * 10)
    assert numbers(f(tensor(1.0, 1.0))) == [30.0, 60.0]
    handle.remove()
    assert numbers(f(tensor(1.0, 1.0))) == [3.0, 6.0]


def test_cell_list_changes_are_noticed() -> None:
    class Stack(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.CellList([Net(), Net()])

        def construct(self, x: Any) -> Any:
            for layer in self.layers:
                x = layer(x)
            return x

    net = Stack()
    f = jit(net)
    assert numbers(f(tensor(1.0, 1.0))) == [9.0, 36.0]
    net.layers.append(Net())
    assert numbers(f(tensor(1.0, 1.0))) == [27.0, 216.0]


def test_numbers_that_change_at_every_call_become_inputs() -> None:
    net = Updating()
    rate = 1.0

    @jit
    def f(x: Any) -> Any:
        return net(x) * rate

    for k in range(1, 21):
        rate = rate * 0.5
        assert numbers(f(tensor(0.0, 0.0))) == [round(k * rate, 5), round(2 * k * rate, 5)]
        assert net.count == k and type(net.count) is int
    assert compilations(f) <= 8  # the first, and three for each of the two numbers
    net.count = 100
    assert numbers(f(tensor(0.0, 0.0))) == [round(101 * rate, 5), round(202 * rate, 5)]
    net.count = 1.5
    assert numbers(f(tensor(0.0, 0.0))) == [round(2.5 * rate, 5), round(5.0 * rate, 5)]


def test_numbers_that_must_stay_constants() -> None:
    size = SimpleNamespace(n=1)

    @jit
    def f(x: Any) -> Any:
        return x[: size.n] * size.n

    for n in (1, 2, 3, 4, 5, 6):
        size.n = n
        assert numbers(f(tensor(1.0, 1.0, 1.0, 1.0, 1.0, 1.0))) == [float(n)] * n


def test_data_of_tensors_from_outside_are_guarded() -> None:
    table = tensor(2.0, 3.0)

    @jit
    def f(x: Any) -> Any:
        return x * float(table.asnumpy()[0]) + table.tolist()[1]

    assert numbers(f(tensor(1.0))) == [5.0]
    table[0] = 10.0
    assert numbers(f(tensor(1.0))) == [13.0]


def test_a_tensor_from_outside_is_no_plain_number() -> None:
    n = Tensor(1)

    @jit(fullgraph=True)
    def f(x: Any) -> Any:
        return x[:n]

    with pytest.raises(RuntimeError, match="int value of a Tensor is not known"):
        f(tensor(1.0, 2.0))
