"""Items 113 to 131: backward passes of the user's, random numbers. (The sampler of the migration page: test_documents.py.)"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphcell as ms
from graphcell import Parameter, Tensor, nn, ops


@pytest.fixture
def pynative() -> None:
    ms.set_context(mode=ms.PYNATIVE_MODE)


def test_item_113_set_seed_seeds_numpy(pynative: None) -> None:
    ms.set_seed(1)
    x = Tensor(np.random.uniform(0, 3, (2, 5)), ms.float32)
    assert str(x) == (
        "[[1.2510660e+00 2.1609735e+00 3.4312444e-04 9.0699774e-01 4.4026768e-01]\n"
        " [2.7701578e-01 5.5878061e-01 1.0366821e+00 1.1903024e+00 1.6164502e+00]]"
    )


class Sampler(nn.Cell):
    """Takes the largest and the smallest of each row by numpy."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def construct(self, x: Any) -> Any:
        self.calls += 1
        values, indices = [], []
        for i in range(x.shape[0]):
            row = x[i].asnumpy()
            places = np.array([np.argmax(row), np.argmin(row)])
            values.append(Tensor(row[places], ms.float32))
            indices.append(Tensor(places, ms.int32))
        values, indices = ops.stack(values, axis=0), ops.stack(indices, axis=0)
        print("values", values)
        print("indices", indices)
        return values, indices


class Differentiated(Sampler):
    def bprop(self, x: Any, out: Any, dout: Any) -> Any:
        print("indices backward", out[1])
        print("dout", dout[0])
        rows = [ops.UnsortedSegmentSum()(dout[0][i], out[1][i], x.shape[1]) for i in range(x.shape[0])]
        return ops.stack(rows, axis=0)


X = [[3.0, 1.0, 2.0], [4.0, 6.0, 5.0]]
FORWARD = "values [[3. 1.]\n [6. 4.]]\nindices [[0 1]\n [1 0]]\n"


@pytest.mark.parametrize("item", [114, 115, 116, 117])
def test_items_114_to_117_numpy_in_construct(pynative: None, item: int, capsys: pytest.CaptureFixture[str]) -> None:
    values, indices = Sampler()(Tensor(X))
    assert values.tolist() == [[3.0, 1.0], [6.0, 4.0]] and indices.tolist() == [[0, 1], [1, 0]]
    assert values.dtype == ms.float32 and indices.dtype == ms.int32
    assert capsys.readouterr().out == FORWARD


@pytest.mark.filterwarnings("ignore:.*runs as Python:RuntimeWarning")
def test_items_114_to_117_in_graph_mode(capsys: pytest.CaptureFixture[str]) -> None:
    ms.set_context(mode=ms.GRAPH_MODE)
    values, _ = Sampler()(Tensor(X))
    assert values.tolist() == [[3.0, 1.0], [6.0, 4.0]] and capsys.readouterr().out == FORWARD


def test_items_118_and_119_without_bprop_zeros_and_twice(pynative: None, capsys: pytest.CaptureFixture[str]) -> None:
    net, x = Sampler(), Tensor(X)
    net(x)
    print("dx", ms.grad(net, grad_position=0)(x))
    assert net.calls == 2 and capsys.readouterr().out == FORWARD * 2 + "dx [[0. 0. 0.]\n [0. 0. 0.]]\n"


def test_item_119_a_tuple_of_positions_gives_a_tuple(mode: int) -> None:
    gradient = ms.grad(nn.ReLU(), grad_position=(0,))(Tensor([1.0, -1.0]))
    assert not isinstance(gradient, Tensor) or gradient.tolist() == [1.0, 0.0]


def test_item_120_twice_moves_the_statistics_twice(pynative: None) -> None:
    x = Tensor([[1.0], [3.0]])
    for announced, mean in ((False, 0.38), (True, 0.2)):
        net = nn.BatchNorm1d(1, momentum=0.9).set_train()
        net.set_grad(announced)
        net(x)
        ms.grad(net)(x)
        np.testing.assert_allclose(net.moving_mean.asnumpy(), [mean], rtol=1e-6)


class Counted(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.w = Parameter(Tensor([2.0, 3.0]), name="w")
        self.calls = 0

    def construct(self, x: Any, power: int = 1) -> Any:
        self.calls += 1
        return (x**power * self.w).sum()


def test_item_121_set_grad_gives_the_cell_and_saves_the_second_forward_pass(pynative: None) -> None:
    net, x = Counted(), Tensor([1.0, 2.0])
    assert net.set_grad() is net
    assert float(net(x)) == 8.0
    inputs, weights = ms.grad(net, 0, net.trainable_params())(x)
    assert net.calls == 1 and inputs.tolist() == [2.0, 3.0] and weights[0].tolist() == [1.0, 2.0]
    ms.grad(net)(x)
    assert net.calls == 2  # one gradient for each forward pass
    net(x)
    (value, gradient), aux = ms.value_and_grad(net)(x), net.calls
    assert (float(value), gradient.tolist(), aux) == (8.0, [2.0, 3.0], 3)


@pytest.mark.parametrize("change", ["another input", "another argument", "the weight", "a frozen weight"])
def test_item_121_another_call_runs_again(pynative: None, change: str) -> None:
    net, x = Counted().set_grad(), Tensor([1.0, 2.0])
    if change == "a frozen weight":
        net.w.requires_grad = False
    net(x)
    if change == "another input":
        assert ms.grad(net)(Tensor([1.0, 2.0])).tolist() == [2.0, 3.0]
    elif change == "another argument":
        assert ms.grad(net)(x, 2).tolist() == [4.0, 12.0]
    elif change == "the weight":
        net.w.set_data(Tensor([5.0, 7.0]))
        assert ms.grad(net)(x).tolist() == [5.0, 7.0]
    else:
        net.w.requires_grad = True
        assert ms.grad(net, None, [net.w])(x)[0].tolist() == [1.0, 2.0]
    assert net.calls == 2


def test_item_121_inside_a_gradient_nothing_is_kept(pynative: None) -> None:
    net, x = Counted().set_grad(), Tensor([1.0, 2.0])
    assert ms.grad(lambda x: net(x) ** 2)(x).tolist() == [32.0, 48.0] and net.calls == 1
    assert ms.grad(ms.grad(lambda x: net(x) ** 2))(x).tolist() == [20.0, 30.0]


def test_items_122_to_127_bprop_by_numpy(pynative: None, capsys: pytest.CaptureFixture[str]) -> None:
    net, x = Differentiated().set_grad(), Tensor(X)
    net(x)
    print("dx", ms.grad(net, grad_position=0)(x))
    assert capsys.readouterr().out == FORWARD + "indices backward [[0 1]\n [1 0]]\ndout [[1. 1.]\n [1. 1.]]\ndx [[1. 1. 0.]\n [1. 1. 0.]]\n"


class Square(nn.Cell):
    """y = x·w with a gradient that can be told from the true one; (y, 2y) is returned."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.form = form

    def construct(self, x: Any, w: Any) -> Any:
        y = x * w
        return y, y * 2.0

    def bprop(self, x: Any, w: Any, out: Any, dout: Any) -> Any:
        return out[0] * dout[0] * 10.0, dout[1] * 100.0


def test_item_122_inputs_then_out_then_dout(mode: int) -> None:
    x, w = Tensor([2.0]), Tensor([3.0])
    assert [g.tolist() for g in ms.grad(Square(""), (0, 1))(x, w)] == [[60.0], [100.0]]


class Weighted(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.w = Parameter(Tensor([2.0]), name="w")

    def construct(self, x: Any) -> Any:
        return x * self.w

    def bprop(self, x: Any, out: Any, dout: Any) -> Any:
        return (dout * self.w * 10.0,)


@pytest.mark.parametrize("position", [None, 0])
def test_item_122_nothing_else_gets_a_gradient(mode: int, position: int | None) -> None:
    """In PYNATIVE_MODE as in MindSpore 2.10, which refuses Parameters beside `bprop` in GRAPH_MODE."""
    net = Weighted()
    found = ms.grad(net, position, net.trainable_params())(Tensor([3.0]))
    inputs, weights = found if position == 0 else (Tensor([20.0]), found)
    assert inputs.tolist() == [20.0] and weights[0].tolist() == [0.0]


class One(nn.Cell):
    def __init__(self, as_tuple: bool) -> None:
        super().__init__()
        self.as_tuple = as_tuple

    def construct(self, x: Any) -> Any:
        return x * x

    def bprop(self, x: Any, out: Any, dout: Any) -> Any:
        gradient = dout * 5.0
        return (gradient,) if self.as_tuple else gradient


@pytest.mark.parametrize("as_tuple", [True, False])
def test_item_123_a_tuple_or_the_gradient_alone(mode: int, as_tuple: bool) -> None:
    """MindSpore 2.10 takes the gradient alone in PYNATIVE_MODE only."""
    assert ms.grad(One(as_tuple))(Tensor([2.0])).tolist() == [5.0]
    assert ms.grad(lambda x: One(as_tuple)(x * 3.0))(Tensor([2.0])).tolist() == [15.0]


class Keyword(nn.Cell):
    def construct(self, x: Any, *rest: Any, k: Any = 2.0, **more: Any) -> Any:
        return x * k * rest[0] + more.get("shift", 0.0)

    def bprop(self, x: Any, *given: Any) -> Any:
        out, dout = given[-2:]
        return dout * 7.0 + out, *(dout * number for number in range(10, 10 + len(given) - 2))


def test_item_122_inputs_given_by_keyword_reach_both(mode: int) -> None:
    net, x, y = Keyword(), Tensor([2.0]), Tensor([3.0])
    assert net(x, y, k=Tensor([5.0]), shift=1.0).tolist() == [31.0]
    assert net(x, y).tolist() == [12.0]
    assert [g.tolist() for g in ms.grad(net, (0, 1))(x, y, k=5.0)] == [[37.0], [10.0]]
    gradients = ms.grad(lambda x, y, z: net(x, y, k=z, shift=1.0), (0, 1, 2))(x, y, Tensor([5.0]))
    assert [g.tolist() for g in gradients] == [[38.0], [10.0], [11.0]]


@pytest.mark.parametrize("count", [3, 5])
def test_item_124_unsorted_segment_sum(mode: int, count: int) -> None:
    found = ops.UnsortedSegmentSum()(Tensor([1.0, 2.0, 4.0]), Tensor([2, 0, 2], ms.int32), count)
    assert found.tolist() == [2.0, 0.0, 5.0, 0.0, 0.0][:count]


def test_item_125_outputs_weigh_one(mode: int) -> None:
    class Seen(nn.Cell):
        def construct(self, x: Any) -> Any:
            return x * 2.0

        def bprop(self, x: Any, out: Any, dout: Any) -> Any:
            return (dout,)

    assert ms.grad(Seen())(Tensor([[1.0, 2.0], [3.0, 4.0]])).tolist() == [[1.0, 1.0], [1.0, 1.0]]


# -- O ---------------------------------------------------------------------------------------------------------------------
FUNCTIONS = {
    "rand": lambda: ops.rand(3, 4),
    "randn": lambda: ops.randn(3, 4),
    "randint": lambda: ops.randint(0, 1000, (3, 4)),
    "randperm": lambda: ops.randperm(50),
    "normal": lambda: ops.normal((3, 4), Tensor(0.0), Tensor(1.0)),
    "uniform": lambda: ops.uniform((3, 4), Tensor(0.0), Tensor(1.0)),
    "bernoulli": lambda: ops.bernoulli(Tensor(np.full((8, 8), 0.5)), 0.5),
    "dropout": lambda: ops.dropout(Tensor(np.ones((8, 8)), ms.float32), p=0.5),
    "multinomial": lambda: ops.multinomial(Tensor(np.full(64, 1.0), ms.float32), 32, False),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_items_128_and_129_one_seed_rules_all(mode: int, name: str) -> None:
    made = FUNCTIONS[name]
    ms.set_seed(7)
    first, second = made().asnumpy().copy(), made().asnumpy().copy()
    ms.set_seed(7)
    np.testing.assert_array_equal(made().asnumpy(), first)
    np.testing.assert_array_equal(made().asnumpy(), second)
    assert (first != second).any()
    ms.set_seed(8)
    assert (made().asnumpy() != first).any()


def test_item_129_layers_take_no_generator() -> None:
    ms.set_seed(3)
    first = nn.Dense(3, 4).weight.asnumpy().copy()
    second = nn.Dense(3, 4).weight.asnumpy().copy()
    ms.set_seed(3)
    np.testing.assert_array_equal(nn.Dense(3, 4).weight.asnumpy(), first)
    assert (first != second).any()


class Drawing(nn.Cell):
    def construct(self, low: Any, high: Any) -> Any:
        return ops.uniform((1, 4), low, high, seed=1), ops.uniform((1, 4), low, high, seed=1)


def test_items_130_and_131_an_op_with_a_seed_goes_on(mode: int) -> None:
    low, high = Tensor(1.0, ms.float32), Tensor(2.0, ms.float32)

    def sequence() -> list[Any]:
        ms.set_seed(5)
        return [ops.uniform((1, 4), low, high, seed=1).asnumpy().copy() for _ in range(3)]

    first, again = sequence(), sequence()
    for a, b in zip(first, again):
        np.testing.assert_array_equal(a, b)
    assert (first[0] != first[1]).any() and (first[1] != first[2]).any()
    assert all(a.shape == (1, 4) and (a >= 1).all() and (a < 2).all() for a in first)


def test_item_130_two_calls_in_one_graph_differ(mode: int) -> None:
    low, high = Tensor(1.0, ms.float32), Tensor(2.0, ms.float32)
    net = Drawing()
    a, b = net(low, high)
    c, d = net(low, high)
    values = [x.asnumpy().tobytes() for x in (a, b, c, d)]
    assert len(set(values)) == 4
