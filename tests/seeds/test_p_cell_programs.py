"""Programs that users write with Cells, hooks and `bprop` (items 61, 138, 175 to 179, 217): the same in both modes, worked out by hand."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

import graphcell as ms
from graphcell import Parameter, Tensor, nn, ops
from graphcell.nn import hooks
from graphcell.pullback import trace_child


class Net(nn.Cell):
    """ones · relu(ones · x)"""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Dense(2, 3, weight_init="ones", bias_init="zeros")
        self.relu = nn.ReLU()
        self.last = nn.Dense(3, 1, weight_init="ones", bias_init="zeros")

    def construct(self, x: Any) -> Any:
        return self.last(self.relu(self.first(x)))


def x() -> Tensor:
    return Tensor([[1.0, 2.0]])


def values(t: Any) -> Any:
    return t.asnumpy().tolist()


def test_features_of_inner_layers_are_collected(mode: int) -> None:
    net, features, everything = Net(), {}, []

    def keep(cell: Any, args: Any, output: Any) -> None:
        features[cell.cls_name] = output
        everything.append(output)

    net.relu.register_forward_hook(keep)
    assert values(net(x())) == [[9.0]] and values(net(x() * 2)) == [[18.0]]
    assert values(features["ReLU"]) == [[6.0, 6.0, 6.0]] and values(everything[0]) == [[3.0, 3.0, 3.0]]
    everything.clear()
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.SGD(net.trainable_params(), 0.1))
    losses = [float(step(x(), Tensor([[1.0]]))) for _ in range(2)]
    assert losses[0] == 64.0 and values(everything[0]) == [[3.0, 3.0, 3.0]] and len(everything) == 2


@pytest.mark.filterwarnings("ignore:.*runs as Python")
def test_statistics_by_numpy_in_a_hook(mode: int) -> None:
    net, means = Net(), []

    def note(cell: Any, args: Any, output: Any) -> None:
        means.append(float(output.asnumpy().mean()))
        cell.seen = True

    net.relu.register_forward_hook(note)
    net(x())
    net(x() * 2)
    assert means == [3.0, 6.0] and net.relu.seen


@pytest.mark.filterwarnings("ignore:.*runs as Python")
def test_gradients_of_inner_layers_are_collected(mode: int) -> None:
    net, log, calls = Net(), [], [0]

    def note(cell: Any, grad_input: Any, grad_output: Any) -> Any:
        calls[0] += 1
        log.append(grad_output[0])
        return (grad_input[0] * 2,)

    net.relu.register_backward_hook(note)
    gradient = ms.grad(net)
    net(x())  # no backward pass
    assert calls == [0] and not log
    for count in (1, 2):
        assert values(gradient(x())) == [[6.0, 6.0]]
        assert calls == [count] and values(log[-1]) == [[1.0, 1.0, 1.0]]


def test_gradients_are_clipped_by_a_hook(mode: int) -> None:
    net = Net()

    def clip(cell: Any, grad_input: Any, grad_output: Any) -> Any:
        bounds = [-0.5]
        bounds.append(0.5)  # what a hook makes itself it may change
        return tuple(ms.ops.clamp(g, *bounds) for g in grad_input)

    net.relu.register_backward_hook(clip)
    assert values(ms.grad(net)(x())) == [[1.5, 1.5]]


def test_hooks_are_any_callables(mode: int) -> None:
    class Recorder:
        def __init__(self) -> None:
            self.outputs: list[Any] = []

        def __call__(self, cell: Any, args: Any, output: Any) -> None:
            self.outputs.append(output)

        def double(self, cell: Any, args: Any, output: Any) -> Any:
            return output * 2

    def scale(factor: float, cell: Any, args: Any, output: Any) -> Any:
        return output * factor

    net, recorder = Net(), Recorder()
    for hook in (recorder, recorder.double, functools.partial(scale, 5.0)):
        net.relu.register_forward_hook(hook)
    assert values(net(x())) == [[90.0]] and values(recorder.outputs[0]) == [[3.0, 3.0, 3.0]]


def test_hooks_in_loops_and_branches(mode: int) -> None:
    class Doubles(nn.Cell):
        def __init__(self, kind: str) -> None:
            super().__init__()
            self.kind = kind
            self.inner = nn.Identity()
            self.inner.register_forward_hook(lambda cell, args, output: output * 2)
            self.inner.register_backward_hook(lambda cell, grad_input, grad_output: (grad_input[0] * 3,))

        def construct(self, x: Any) -> Any:
            if self.kind == "for":
                for _ in range(3):
                    x = self.inner(x)
            elif self.kind == "while":
                while x.sum() < 8:
                    x = self.inner(x)
            elif x.sum() > 0:
                x = self.inner(x)
            else:
                x = x * 5
            return x

    for kind in ("for", "while"):
        net = Doubles(kind)
        assert values(net(Tensor([1.0]))) == [8.0] and values(ms.grad(net)(Tensor([1.0]))) == [216.0]
    net = Doubles("if")
    assert values(ms.grad(net)(Tensor([1.0]))) == [6.0] and values(ms.grad(net)(Tensor([-1.0]))) == [5.0]


def test_hooks_of_a_shared_cell_and_of_one_tensor_given_twice(mode: int) -> None:
    class Product(nn.Cell):
        def construct(self, a: Any, b: Any) -> Any:
            return a * b

    class Twice(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Identity()
            self.b = self.a

        def construct(self, x: Any) -> Any:
            return self.b(self.a(x))

    product, twice = Product(), Twice()
    product.register_backward_hook(lambda cell, grad_input, grad_output: (grad_input[0] * 10, grad_input[1] * 100))
    assert values(ms.grad(lambda x: product(x, x))(Tensor([3.0]))) == [330.0]
    twice.a.register_forward_hook(lambda cell, args, output: output + 1)
    twice.a.register_backward_hook(lambda cell, grad_input, grad_output: (grad_input[0] * 2,))
    assert values(twice(Tensor([1.0]))) == [3.0] and values(ms.grad(twice)(Tensor([1.0]))) == [4.0]


def test_hooks_and_recompute(mode: int) -> None:
    net = Net()
    net.relu.register_forward_hook(lambda cell, args, output: output * 2)
    net.first.register_backward_hook(lambda cell, grad_input, grad_output: (grad_input[0] * 10,))
    net.last.register_backward_pre_hook(lambda cell, grad_output: (grad_output[0] * 3,))
    plain = ms.grad(net, 0, net.trainable_params())(x())
    assert values(plain[0]) == [[180.0, 180.0]]
    net.recompute()
    again = ms.grad(net, 0, net.trainable_params())(x())
    assert [values(t) for t in (again[0], *again[1])] == [values(t) for t in (plain[0], *plain[1])]


def test_item_138_217_bprop_and_gradients_of_higher_order(mode: int) -> None:
    class Linear(nn.Cell):
        def construct(self, x: Any) -> Any:
            return x * 2

        def bprop(self, x: Any, out: Any, dout: Any) -> Any:
            return (dout * 100.0,)

    class Cube(nn.Cell):
        def construct(self, x: Any) -> Any:
            return x * x * x

        def bprop(self, x: Any, out: Any, dout: Any) -> Any:
            return (dout * 10.0 * x * x,)

    linear, cube, three = Linear(), Cube(), Tensor([3.0])
    assert values(ms.grad(lambda x: ms.value_and_grad(linear)(x)[0].sum())(three)) == [100.0]  # the value has its bprop still
    assert values(ms.grad(lambda x: ms.grad(cube)(x).sum())(three)) == [60.0]
    hooked = nn.Identity()
    hooked.register_forward_hook(lambda cell, args, output: output**3)
    hooked.register_backward_hook(lambda cell, grad_input, grad_output: (grad_input[0] * 2,))
    assert values(ms.grad(hooked)(Tensor([2.0]))) == [24.0]
    assert values(ms.grad(lambda x: ms.grad(hooked)(x).sum())(Tensor([2.0]))) == [48.0]  # the hook is in the way of that gradient too


@pytest.mark.filterwarnings("ignore:.*runs as Python")
def test_item_138_bprop_that_keeps_what_it_sees(mode: int) -> None:
    log: list[Any] = []

    class Double(nn.Cell):
        def construct(self, x: Any) -> Any:
            return x * 2

        def bprop(self, x: Any, out: Any, dout: Any) -> Any:
            log.append(dout)
            return (dout * 100.0,)

    net = Double()
    assert values(ms.grad(net)(Tensor([1.0]))) == [100.0] and values(log[0]) == [1.0]
    net(Tensor([1.0]))
    assert len(log) == 1


@pytest.mark.parametrize("change", ["attribute", "class attribute", "dict", "list"])
def test_changes_are_seen_by_the_next_call(mode: int, change: str) -> None:
    class Scaled(nn.Cell):
        factor = 2.0

        def __init__(self) -> None:
            super().__init__()
            self.shift = 0.0
            self.options = {"k": 0.0}
            self.more = [0.0]

        def construct(self, x: Any) -> Any:
            return x * self.factor + self.shift + self.options["k"] + sum(self.more)

    net = Scaled()
    assert values(net(Tensor([1.0]))) == [2.0]
    if change == "attribute":
        net.shift = 10.0
    elif change == "class attribute":
        Scaled.factor = 12.0
    elif change == "dict":
        net.options["k"] = 10.0
    else:
        net.more.append(10.0)
    assert values(net(Tensor([1.0]))) == [12.0]


def test_cells_within_cells_are_tried_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    trials = []

    def counted(*args: Any) -> Any:
        trials.append(args)
        return trace_child(*args)

    monkeypatch.setattr(hooks, "trace_child", counted)
    ms.set_context(mode=ms.GRAPH_MODE)
    net: Any = nn.Identity()
    for _ in range(8):
        net = nn.SequentialCell(net, nn.ReLU())
    net.apply(lambda cell: cell.register_backward_hook(lambda cell, grad_input, grad_output: None))
    assert values(ms.grad(net)(Tensor([1.0]))) == [1.0]
    assert 0 < len(trials) <= len(list(net.cells_and_names()))


def _adds(cell: Any, x: Any) -> None:
    cell.n += 1


def _stores(cell: Any, x: Any) -> None:
    cell.n = cell.n + 1


def _assigns(cell: Any, x: Any) -> None:
    ops.assign(cell.n, cell.n + 1)


def _by_index(cell: Any, x: Any) -> None:
    cell.n[0] = cell.n[0] + 1


def _in_a_branch(cell: Any, x: Any) -> None:
    if x.sum() > 0:
        cell.n += 1
    else:
        cell.n += 100


def _in_a_loop(cell: Any, x: Any) -> None:
    i = ops.zeros((), ms.int32)
    while i < 2:
        cell.n += 0.5
        i = i + 1


@pytest.mark.parametrize("count", [_adds, _stores, _assigns, _by_index, _in_a_branch, _in_a_loop])
def test_item_197_what_construct_writes_stays_written(mode: int, count: Callable[[Any, Any], None]) -> None:
    class Counter(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.n = Parameter(Tensor([0.0]), name="n", requires_grad=False)

        def construct(self, x: Any) -> Any:
            count(self, x)
            return x * 2.0

    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.counter = Counter()

        def construct(self, x: Any) -> Any:
            return self.counter(x) + 1.0

    net, x = Net(), Tensor([0.5, 1.0])
    net.to_float(ms.float16)
    net(x)
    ms.grad(net)(x)
    ms.value_and_grad(net)(x)
    assert net.counter.n.tolist() == [3.0] and net.counter.n.dtype == ms.float32
