"""Items 1 to 16: the functional interface and the basic Cell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphcell as ms
from graphcell import Parameter, Tensor, nn, ops

KINDS: dict[str, Callable[[Any], Any]] = {
    "a layer": lambda x: ops.relu(x),
    "mathematics": lambda x: ops.maximum(x, 0.0),
    "a Tensor's form": lambda x: ops.reshape(ops.select(x > 0, x, ops.zeros_like(x)), (3,)),
    "a gradient": lambda x: ms.grad(lambda y: (ops.relu(y) ** 2 / 2).sum())(x),
    "a check": lambda x: ops.clamp(ops.stop_gradient(x), 0.0),
}


@pytest.mark.parametrize("kind", KINDS)
def test_item_001_functions_are_called_without_an_operator_object(mode: int, kind: str) -> None:
    assert KINDS[kind](Tensor([-1.0, 0.0, 2.0])).tolist() == [0.0, 0.0, 2.0]


def test_item_001_parameter_and_debugging_functions(mode: int, capfd: pytest.CaptureFixture[str]) -> None:
    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.w = Parameter(Tensor([1.0, 2.0]), name="w")

        def construct(self, x: Any) -> Any:
            ops.assign_add(self.w, x)
            ops.print_("w is", self.w)
            return self.w * 1.0

    assert Net()(Tensor([10.0, 20.0])).tolist() == [11.0, 22.0]
    assert "w is" in capfd.readouterr().out


def test_item_001_what_print_shows(capsys: pytest.CaptureFixture[str]) -> None:
    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.show = ops.Print()

        def construct(self, x: Any) -> Any:
            self.show("x", x, 3)
            return x

    x = Tensor([1.0, 2.0])
    ms.set_context(mode=ms.PYNATIVE_MODE)
    Net()(x)
    ops.print_((1, x), Tensor(3), None, True)
    assert capsys.readouterr().out == (
        "x\nTensor(shape=[2], dtype=Float32, value= [ 1.00000000e+00,  2.00000000e+00])\n3\n"
        "(1, Tensor(shape=[2], dtype=Float32, value= [ 1.00000000e+00,  2.00000000e+00]))\n"
        "Tensor(shape=[], dtype=Int64, value= 3)\nNone\nTrue\n"
    )
    ms.set_context(mode=ms.GRAPH_MODE)
    Net()(x)
    assert capsys.readouterr().out == "x\nTensor(shape=[2], dtype=Float32, value=[ 1.00000000e+00  2.00000000e+00])\n3\n"


class Add(nn.Cell):
    def construct(self, x: Any, y: Any) -> Any:
        output = ops.add(x, y)
        return output


@pytest.mark.parametrize("item", [2, 3, 4, 5])
def test_items_002_to_005_inside_and_outside_of_a_cell(mode: int, item: int, capsys: pytest.CaptureFixture[str]) -> None:
    x, y = Tensor([1, 2, 3], ms.float32), Tensor([4, 5, 6], ms.float32)
    print(ops.add(x, y) if item == 5 else Add()(x, y))
    assert capsys.readouterr().out == "[5. 7. 9.]\n"
    assert x.dtype == ms.float32 and repr(x) == "Tensor(shape=[3], dtype=Float32, value= [ 1.00000000e+00,  2.00000000e+00,  3.00000000e+00])"


def test_item_003_a_cell_without_init_takes_keywords_too(mode: int) -> None:
    assert Add()(Tensor([1.0]), y=Tensor([2.0])).tolist() == [3.0]


def test_item_006_import_forms(output_of: Callable[[str], str]) -> None:
    assert output_of(
        """
        import mindspore
        import mindspore as ms
        import mindspore.nn as nn
        import mindspore.ops as ops
        from mindspore import Parameter, ParameterTuple, Tensor
        from mindspore import nn as also_nn, ops as also_ops
        from mindspore.common.initializer import Uniform, initializer

        print(ms is mindspore, also_nn is nn is ms.nn, also_ops is ops is ms.ops)
        print(ms.common.initializer.initializer is initializer, ms.common.initializer.Uniform is Uniform)
        print(Tensor is ms.Tensor, Parameter is ms.Parameter, issubclass(ParameterTuple, tuple))
        """
    ) == "True True True\nTrue True\nTrue True True\n"  # fmt: skip


class Steps(nn.Cell):
    """Notes how often Python runs its body."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Dense(2, 2, weight_init="ones", bias_init="zeros")

    def construct(self, x: Any) -> Any:
        for _ in range(3):
            x = self.dense(x)
        return x


def test_item_007_one_cell_in_both_modes() -> None:
    net, x = Steps(), Tensor([[1.0, 2.0]])
    ms.set_context(mode=ms.PYNATIVE_MODE)
    eager = net(x)
    ms.set_context(mode=ms.GRAPH_MODE)
    assert net(x).tolist() == eager.tolist() == [[12.0, 12.0]]


class Base(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.scale = 2.0

    def construct(self, x: Any) -> Any:
        return x * self.scale


class Derived(Base):
    def __init__(self) -> None:
        super(Derived, self).__init__()  # noqa: UP008  (the older form is the item)
        self.shift = 1.0

    def construct(self, x: Any) -> Any:
        return super().construct(x) + self.shift


class Prefixed(nn.Cell):
    def __init__(self) -> None:
        super(Prefixed, self).__init__(auto_prefix=True)  # noqa: UP008
        self.net = Derived()

    def construct(self, x: Any) -> Any:
        return self.net(x)


@pytest.mark.parametrize("kind", [Base, Derived, Prefixed])
def test_item_008_construct_is_the_forward_pass_and_classes_extend(mode: int, kind: type[nn.Cell]) -> None:
    wanted = {Base: [2.0, 4.0], Derived: [3.0, 5.0], Prefixed: [3.0, 5.0]}
    assert kind()(Tensor([1.0, 2.0])).tolist() == wanted[kind]


class MyCell(nn.Cell):
    def __init__(self, forward_net: nn.Cell) -> None:
        super().__init__(auto_prefix=True)
        self.net = forward_net
        self.relu = ops.ReLU()

    def construct(self, x: Any) -> Any:
        y = self.net(x)
        return self.relu(y)


def test_item_009_cells_and_primitives_are_attributes(mode: int) -> None:
    net = MyCell(nn.Dense(2, 2, weight_init=Tensor([[1.0, -1.0], [-1.0, 1.0]]), has_bias=False))
    assert net(Tensor([[3.0, 1.0]])).tolist() == [[2.0, 0.0]]


def test_item_010_scalar_kernels_and_pad_mode_same(mode: int) -> None:
    conv = nn.Conv2d(3, 6, 4, has_bias=False)
    assert conv.weight.shape == (6, 3, 4, 4) and conv.pad_mode == "same"
    assert conv(Tensor(np.ones((1, 3, 7, 5)), ms.float32)).shape == (1, 6, 7, 5)
    assert nn.Conv2d(120, 240, 4, has_bias=False).weight.shape == (240, 120, 4, 4)


def test_item_011_and_012_parameters_print_with_the_holders_name(capsys: pytest.CaptureFixture[str]) -> None:
    print(MyCell(nn.Conv2d(120, 240, 4, has_bias=False)).trainable_params())
    assert capsys.readouterr().out == "[Parameter (name=net.weight, shape=(240, 120, 4, 4), dtype=Float32, requires_grad=True)]\n"


def test_item_012_names_follow_the_path_of_attributes() -> None:
    class Alone(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.foo = Parameter(Tensor([1.0]), name="bar")

    class Holder(nn.Cell):
        def __init__(self, cell: nn.Cell) -> None:
            super().__init__()
            self.a = cell

    cell = Alone()
    assert cell.foo.name == "bar"
    holder = Holder(Holder(cell))
    assert cell.foo.name == "a.a.foo" and [n for n, _ in holder.parameters_and_names()] == ["a.a.foo"]


def test_item_013_weights_of_conv2d_come_from_an_initializer() -> None:
    conv = nn.Conv2d(2, 3, 2, has_bias=True, weight_init="ones", bias_init=0.5)
    assert conv.weight.name == "weight" and conv.bias.name == "bias"
    assert conv.weight.asnumpy().tolist() == np.ones((3, 2, 2, 2)).tolist() and conv.bias.asnumpy().tolist() == [0.5] * 3


def test_item_014_auto_prefix_false_leaves_names_alone(capsys: pytest.CaptureFixture[str]) -> None:
    class Plain(nn.Cell):
        def __init__(self, forward_net: nn.Cell) -> None:
            super().__init__(auto_prefix=False)
            self.net = forward_net

    print(Plain(nn.Conv2d(120, 240, 4, has_bias=False)).trainable_params())
    assert capsys.readouterr().out == "[Parameter (name=weight, shape=(240, 120, 4, 4), dtype=Float32, requires_grad=True)]\n"


def test_item_014_training_cells_do_not_rename_the_backbone() -> None:
    net = MyCell(nn.Dense(2, 1))
    optimizer = nn.SGD(net.trainable_params(), 0.1)
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), optimizer)
    assert [p.name for p in net.get_parameters()] == ["net.weight", "net.bias"]
    assert {p.name for p in step.get_parameters()} >= {"net.weight", "net.bias"}


class Unprefixed(nn.Cell):
    def __init__(self) -> None:
        super().__init__(auto_prefix=False)
        self.a = nn.Dense(2, 2, weight_init="ones")
        self.b = nn.Dense(2, 2, weight_init="ones")

    def construct(self, x: Any) -> Any:
        return self.a(x) - self.b(x)


def test_items_014_and_229_auto_prefix_false_makes_duplicate_names(mode: int) -> None:
    net = Unprefixed()
    assert [p.name for p in net.get_parameters()] == ["weight", "bias", "weight", "bias"]
    assert [n for n, _ in net.parameters_and_names()] == ["a.weight", "a.bias", "b.weight", "b.bias"]
    assert list(net.parameters_dict()) == ["weight", "bias"]
    message = r"The value .*Parameter \(name=weight, shape=\(2, 2\), dtype=Float32, requires_grad=True\) ?, its name 'weight' already exists"
    with pytest.raises(ValueError, match=message):
        net.check_names()
    with pytest.raises(ValueError, match=message):
        nn.SGD(net.trainable_params(), 0.1)
    net.update_parameters_name("net.")
    net.check_names()
    assert [p.name for p in net.get_parameters()] == ["net.a.weight", "net.a.bias", "net.b.weight", "net.b.bias"]


@pytest.mark.parametrize("name", ["to_float", "trainable_params", "set_grad", "register_forward_hook", "recompute"])
def test_item_015_what_else_a_cell_offers(name: str) -> None:
    assert callable(getattr(Add(), name))


def test_item_016_set_train_switches(mode: int) -> None:
    net, x = nn.Dropout(p=0.5), Tensor(np.ones((64, 64)), ms.float32)
    assert net.set_train(True)(x).asnumpy().min() == 0.0
    assert net.set_train(False)(x).asnumpy().min() == 1.0
