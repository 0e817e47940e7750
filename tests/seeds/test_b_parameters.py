"""Items 17 to 46: Parameters, how they are found, printed, named, set and assigned."""

from __future__ import annotations

from collections import OrderedDict
from types import GeneratorType
from typing import Any

import numpy as np
import pytest

import graphcell as ms
from graphcell import Parameter, ParameterTuple, Tensor, nn, ops
from graphcell.common.initializer import initializer

WEIGHT = "Parameter (name=weight, shape=(1, 2), dtype=Float32, requires_grad=True)"
BIAS = "Parameter (name=bias, shape=(1,), dtype=Float32, requires_grad=True)"


class Network(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.w = Parameter(Tensor(np.arange(15).reshape(5, 3) / 10, ms.float32), name="w")
        self.b = Parameter(Tensor(np.array([0.5, -0.25, 0.125]), ms.float32), name="b")

    def construct(self, x: Any) -> Any:
        z = ops.matmul(x, self.w) + self.b
        return z


class Nested(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Dense(2, 2)
        self.rest = nn.SequentialCell(nn.Dense(2, 1), nn.BatchNorm1d(1))


def test_item_017_only_parameters_reach_the_optimizer() -> None:
    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.constant = Tensor([1.0])
            self.trained = Parameter(Tensor([1.0]), name="trained")
            self.frozen = Parameter(Tensor([1.0]), name="frozen", requires_grad=False)

    net = Net()
    assert isinstance(net.trained, Tensor) and not isinstance(net.constant, Parameter)
    assert [p.name for p in nn.SGD(net.trainable_params(), 0.1).parameters] == ["trained"]
    assert [p.name for p in net.get_parameters()] == ["trained", "frozen"]


def test_item_018_parameters_dict() -> None:
    found = Nested().parameters_dict()
    assert type(found) is OrderedDict
    assert set(found) == {
        "first.weight", "first.bias", "rest.0.weight", "rest.0.bias", "rest.1.moving_mean", "rest.1.moving_variance", "rest.1.gamma", "rest.1.beta",
    }  # fmt: skip
    assert all(isinstance(p, Parameter) and p.name == name for name, p in found.items())


def test_items_019_and_034_get_parameters_is_a_generator(capsys: pytest.CaptureFixture[str]) -> None:
    net = Nested()
    assert isinstance(net.get_parameters(), GeneratorType)
    print(type(net.get_parameters()))
    assert capsys.readouterr().out == "<class 'generator'>\n"
    assert [p.name for p in net.get_parameters(expand=False)] == [] and len(list(net.get_parameters())) == 8


def test_item_020_trainable_params() -> None:
    net = Nested()
    assert [p.name for p in net.trainable_params()] == ["first.weight", "first.bias", "rest.0.weight", "rest.0.bias", "rest.1.gamma", "rest.1.beta"]
    assert [p.name for p in net.untrainable_params()] == ["rest.1.moving_mean", "rest.1.moving_variance"]


def test_items_021_and_022_dense_and_freezing(capsys: pytest.CaptureFixture[str]) -> None:
    net = nn.Dense(2, 1, has_bias=True)
    print(net.trainable_params())
    for param in net.trainable_params():
        if "bias" in param.name:
            param.requires_grad = False
    print(net.trainable_params())
    assert capsys.readouterr().out == f"[{WEIGHT}, {BIAS}]\n[{WEIGHT}]\n"
    net.bias.requires_grad = True
    assert [p.name for p in net.trainable_params()] == ["weight", "bias"]


def test_item_022_a_compiled_step_notices_requires_grad(mode: int) -> None:
    net, x = Network(), Tensor(np.ones((1, 5)), ms.float32)

    def gradients() -> list[list[float]]:
        found = ms.grad(lambda x: net(x).sum(), None, net.trainable_params())(x)
        return [g.shape for g in found]

    assert gradients() == [(5, 3), (3,)]
    net.w.requires_grad = False
    assert gradients() == [(3,)]


def test_item_023_an_optimizer_takes_trainable_params(mode: int) -> None:
    net, x = Network(), Tensor(np.ones((1, 5)), ms.float32)
    optimizer = nn.SGD(net.trainable_params(), learning_rate=0.5)
    before = net.w.asnumpy().copy()
    step = ms.value_and_grad(lambda x: net(x).sum(), None, optimizer.parameters)
    _, gradients = step(x)
    optimizer(gradients)
    np.testing.assert_allclose(net.w.asnumpy(), before - 0.5, rtol=1e-6)
    np.testing.assert_allclose(net.b.asnumpy(), np.array([0.5, -0.25, 0.125]) - 0.5, rtol=1e-6)


class SignDescent(nn.Optimizer):
    """A user's optimizer."""

    def __init__(self, params: Any, learning_rate: float = 0.25) -> None:
        super().__init__(learning_rate, params)

    def construct(self, gradients: Any) -> Any:
        rate = self.get_lr()
        for p, g in zip(self.parameters, gradients):
            ops.assign_sub(p, rate * ops.sign(g))
        return True


class Cubed(nn.LossBase):
    """A user's loss."""

    def construct(self, base: Any, target: Any) -> Any:
        return self.get_loss(ops.abs(base - target) ** 3)


def test_item_024_optimizers_and_losses_of_the_users(mode: int) -> None:
    net = Network()
    step = nn.TrainOneStepCell(nn.WithLossCell(net, Cubed()), SignDescent(net.trainable_params()))
    x, y = Tensor(np.ones((1, 5)), ms.float32), Tensor(np.array([[3.0, 4.0, 5.0]]), ms.float32)
    output = np.array([3.5, 3.25, 4.125])
    np.testing.assert_allclose(step(x, y).asnumpy(), (np.abs(output - [3.0, 4.0, 5.0]) ** 3).mean(), rtol=1e-6)
    np.testing.assert_allclose(net.b.asnumpy(), [0.25, 0.0, 0.375])


def test_item_025_name_and_data(capsys: pytest.CaptureFixture[str]) -> None:
    net = Network()
    for param in net.get_parameters():
        assert isinstance(param.data, Tensor) and param.data.asnumpy().shape == param.shape
    print(net.b.name, net.b.data.asnumpy())
    assert capsys.readouterr().out == "b [ 0.5   -0.25   0.125]\n"


def test_item_026_parameters_are_trained_by_default() -> None:
    assert Parameter(Tensor([1.0]), name="w").requires_grad is True
    assert Parameter(Tensor([1.0]), name="w", requires_grad=False).requires_grad is False


def test_item_027_moving_statistics_change_without_gradients(mode: int) -> None:
    net = nn.BatchNorm1d(2, momentum=0.5).set_train()
    assert [p.name for p in net.untrainable_params()] == ["mean", "variance"]
    net(Tensor([[0.0, 2.0], [2.0, 6.0]]))
    assert net.moving_mean.asnumpy().tolist() == [0.5, 2.0]


def test_item_028_double_data_become_float32_by_the_dtype() -> None:
    w = Parameter(Tensor(np.random.randn(5, 3), ms.float32), name="w")
    assert w.dtype == ms.float32 and w.shape == (5, 3) and w.name == "w"


@pytest.mark.parametrize(
    ("item", "made", "form"),
    [
        (29, lambda: Parameter(default_input=Tensor([1.0, 2.0]), name="v"), "name=v, shape=(2,), dtype=Float32"),
        (30, lambda: Parameter(default_input=Tensor(np.arange(2 * 3).reshape((2, 3))), name="x"), "name=x, shape=(2, 3), dtype=Int64"),
        (31, lambda: Parameter(default_input=initializer("ones", [1, 2, 3], ms.float32), name="y"), "name=y, shape=(1, 2, 3), dtype=Float32"),
        (32, lambda: Parameter(default_input=2.0, name="z"), "name=z, shape=(), dtype=Float32"),
    ],
)
def test_items_029_to_032_what_parameters_are_made_of(item: int, made: Any, form: str) -> None:
    assert str(made()) == repr(made()) == f"Parameter ({form}, requires_grad=True)"


def test_item_031_ones_are_there() -> None:
    y = Parameter(default_input=initializer("ones", [1, 2, 3], ms.float32), name="y")
    assert y.asnumpy().tolist() == [[[1.0] * 3] * 2]


def test_item_033_one_parameter_is_an_attribute(capsys: pytest.CaptureFixture[str]) -> None:
    print(Network().b.asnumpy())
    assert capsys.readouterr().out == "[ 0.5   -0.25   0.125]\n"


def test_item_035_parameters_and_names_in_the_order_of_definition() -> None:
    net = Network()
    assert [(name, p is getattr(net, name)) for name, p in net.parameters_and_names()] == [("w", True), ("b", True)]


def test_item_036_an_element_is_set_in_place(capsys: pytest.CaptureFixture[str]) -> None:
    net = Network()
    b = net.b
    net.b[0] = 1.0
    print(net.b.asnumpy())
    assert capsys.readouterr().out == "[ 1.    -0.25   0.125]\n" and net.b is b and isinstance(net.b, Parameter)


@pytest.mark.parametrize(
    ("index", "value", "wanted"),
    [
        (1, 2.0, [0.5, 2.0, 0.125]),
        (-1, 3, [0.5, -0.25, 3.0]),
        (slice(0, 2), [7.0, 8.0], [7.0, 8.0, 0.125]),
        (slice(None), 1.5, [1.5, 1.5, 1.5]),
        ([0, 2], 9.0, [9.0, -0.25, 9.0]),
        (slice(None, None, 2), [4.0, 5.0], [4.0, -0.25, 5.0]),
    ],
)
def test_item_036_index_assignment_of_parameters(mode: int, index: Any, value: Any, wanted: list[float]) -> None:
    net = Network()
    net.b[index] = Tensor(value, ms.float32) if isinstance(value, list) else value
    assert net.b.asnumpy().tolist() == wanted and net.trainable_params()[1] is net.b
    x = Tensor(np.zeros((1, 5)), ms.float32)
    assert net(x).asnumpy().tolist() == [wanted]


def test_item_036_index_assignment_inside_construct(mode: int) -> None:
    class Counter(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.counts = Parameter(Tensor([0.0, 0.0, 0.0]), name="counts", requires_grad=False)

        def construct(self, k: Any) -> Any:
            self.counts[0] = self.counts[0] + 1.0
            self.counts[1:] = self.counts[1:] + k
            return self.counts.sum()

    net = Counter()
    assert [float(net(Tensor(2.0)).asnumpy()) for _ in range(3)] == [5.0, 10.0, 15.0]
    assert net.counts.asnumpy().tolist() == [3.0, 6.0, 6.0]


def test_item_037_set_data_casts_to_the_parameters_dtype(capsys: pytest.CaptureFixture[str]) -> None:
    net = Network()
    net.b.set_data(Tensor([3, 4, 5]))
    print(net.b.asnumpy())
    assert capsys.readouterr().out == "[3. 4. 5.]\n" and net.b.dtype == ms.float32


def test_items_038_and_039_set_data_of_an_initializer(mode: int) -> None:
    net = Network()
    net.b.set_data(initializer(0.1, net.b.shape, net.b.dtype))
    np.testing.assert_array_equal(net.b.asnumpy(), np.full(3, 0.1, np.float32))
    net.b.set_data(data=initializer("zeros", net.b.shape, net.b.dtype), slice_shape=False)
    assert net(Tensor(np.zeros((1, 5)), ms.float32)).asnumpy().tolist() == [[0.0, 0.0, 0.0]]


def test_item_040_assign_is_for_construct(mode: int) -> None:
    class Reset(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.b = Parameter(Tensor([1.0, 2.0]), name="b")

        def construct(self, x: Any) -> Any:
            ops.assign(self.b, x * 3.0)
            return self.b + 1.0

    net = Reset()
    assert net(Tensor([1.0, 2.0])).tolist() == [4.0, 7.0] and net.b.asnumpy().tolist() == [3.0, 6.0]


def test_item_040_set_data_is_refused_in_construct() -> None:
    """In a graph; eagerly `construct` is Python."""

    class Reset(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.b = Parameter(Tensor([1.0, 2.0]), name="b")

        def construct(self, x: Any) -> Any:
            self.b.set_data(x)
            return self.b + 1.0

    net = Reset()
    ms.set_context(mode=ms.PYNATIVE_MODE)
    assert net(Tensor([3.0, 4.0])).tolist() == [4.0, 5.0]
    ms.set_context(mode=ms.GRAPH_MODE)
    message = r"(?s)the 'Parameter' object's method 'set_data' is not supported in 'construct' or function with @jit decorator.*ops\.assign"
    with pytest.raises(RuntimeError, match=message):
        net(Tensor([5.0, 6.0]))
    with pytest.raises(RuntimeError, match=message):
        ms.jit(lambda x: net.b.set_data(x))(Tensor([5.0, 6.0]))
    assert net.b.asnumpy().tolist() == [3.0, 4.0]


def test_item_041_assign_in_a_compiled_function_without_arguments(mode: int, capsys: pytest.CaptureFixture[str]) -> None:
    net = Network()

    @ms.jit
    def modify_parameter() -> bool:
        b_hat = Tensor([7, 8, 9])
        ops.assign(net.b, b_hat)
        return True

    assert modify_parameter() is True
    print(net.b.asnumpy())
    assert capsys.readouterr().out == "[7. 8. 9.]\n" and net.b.dtype == ms.float32
    net.b.set_data(Tensor([0.0, 0.0, 0.0]))
    assert modify_parameter() is True and net.b.asnumpy().tolist() == [7.0, 8.0, 9.0]


def test_item_042_assign_refuses_another_shape(mode: int) -> None:
    net = Network()
    assert ops.assign(net.b, Tensor([1.0, 2.0, 3.0])).tolist() == [1.0, 2.0, 3.0]
    with pytest.raises(ValueError, match="shape"):
        ops.assign(net.b, Tensor([1.0, 2.0]))
    assert net.b.asnumpy().tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(("start", "step"), [([1], 1), ([1], Tensor(1)), (1, Tensor([1])), ([1.0], 1.0)], ids=["int", "0-d", "1-d", "float"])
def test_item_042_a_counter_of_one_element_takes_a_number(mode: int, start: Any, step: Any) -> None:
    counter = Parameter(Tensor(start), name="counter")
    ops.assign_add(counter, step)
    ops.assign_add(counter, step)
    ops.assign_sub(counter, step)
    assert counter.asnumpy().tolist() == ([2] if isinstance(start, list) else 2)


def _three() -> ParameterTuple:
    x = Parameter(default_input=Tensor(np.arange(2 * 3).reshape((2, 3))), name="x")
    y = Parameter(default_input=initializer("ones", [1, 2, 3], ms.float32), name="y")
    z = Parameter(default_input=2.0, name="z")
    return ParameterTuple((x, y, z))


def test_item_043_parameter_tuples_clone() -> None:
    params = _three()
    copies = params.clone("params_copy")
    assert isinstance(params, tuple) and isinstance(copies, ParameterTuple)
    assert [p.name for p in copies] == ["params_copy.x", "params_copy.y", "params_copy.z"]
    assert [p.name for p in params] == ["x", "y", "z"]
    copies[0].set_data(Tensor(np.zeros((2, 3), np.int64)))
    assert params[0].asnumpy().tolist() == [[0, 1, 2], [3, 4, 5]] and copies[2].asnumpy() == 2.0


def test_item_043_clone_with_other_values() -> None:
    zeros = _three().clone("moments", init="zeros")
    assert [float(p.asnumpy().sum()) for p in zeros] == [0.0, 0.0, 0.0] and [p.dtype for p in zeros] == [ms.int64, ms.float32, ms.float32]


def test_item_044_a_tuple_of_parameters_prints(capsys: pytest.CaptureFixture[str]) -> None:
    print(_three())
    assert capsys.readouterr().out == (
        "(Parameter (name=x, shape=(2, 3), dtype=Int64, requires_grad=True), Parameter (name=y, shape=(1, 2, 3), dtype=Float32, requires_grad=True), "
        "Parameter (name=z, shape=(), dtype=Float32, requires_grad=True))\n"
    )


def test_item_045_lists_tuples_and_dicts_of_parameters(capsys: pytest.CaptureFixture[str]) -> None:
    net = nn.Dense(2, 1)
    params = net.trainable_params()
    print(params)
    print(tuple(params))
    print({p.name: p for p in params})
    print(net.weight)
    assert capsys.readouterr().out.splitlines() == [f"[{WEIGHT}, {BIAS}]", f"({WEIGHT}, {BIAS})", f"{{'weight': {WEIGHT}, 'bias': {BIAS}}}", WEIGHT]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int8", "int32", "uint8", "bool_"])
def test_item_045_dtypes_are_capitalised(dtype: str) -> None:
    name = {"bool_": "Bool", "bfloat16": "BFloat16", "uint8": "UInt8"}.get(dtype, dtype.capitalize())
    p = Parameter(Tensor([0, 1], getattr(ms, dtype)), name="p")
    assert str(p) == f"Parameter (name=p, shape=(2,), dtype={name}, requires_grad=True)"


def test_item_046_attributes_are_tensors_in_construct(mode: int) -> None:
    net, x = Network(), np.arange(10).reshape(2, 5).astype(np.float32)
    np.testing.assert_allclose(net(Tensor(x)).asnumpy(), x @ (np.arange(15).reshape(5, 3) / 10) + [0.5, -0.25, 0.125], rtol=1e-6)
