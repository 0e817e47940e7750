"""Items 204 to 221: the tutorial on Cell and Parameter. (Its program as a whole: test_documents.py.)"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphcell as ms
from graphcell import Parameter, Tensor, nn, ops


class Network(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.w = Parameter(Tensor(np.arange(15).reshape(5, 3) / 8, ms.float32), name="w")
        self.b = Parameter(Tensor(np.array([0.5, -0.25, 0.125]), ms.float32), name="b")

    def construct(self, x: Any) -> Any:
        z = ops.matmul(x, self.w) + self.b
        return z


def test_item_204_a_parameter_is_a_tensor_whose_value_changes(mode: int) -> None:
    trained, fixed = Parameter(Tensor([1.0]), name="a"), Parameter(Tensor([1.0]), name="b", requires_grad=False)
    assert isinstance(trained, Tensor) and trained.requires_grad and not fixed.requires_grad
    ops.assign(fixed, Tensor([5.0]))
    assert (trained * fixed).tolist() == [5.0]
    gradients = ms.grad(lambda x: (x * trained * fixed).sum(), None, [trained, fixed])(Tensor([3.0]))
    assert [g.tolist() for g in gradients] == [[15.0], [0.0]]


def test_item_205_network(mode: int, capsys: pytest.CaptureFixture[str]) -> None:
    net = Network()
    print(net.trainable_params())
    assert capsys.readouterr().out == (
        "[Parameter (name=w, shape=(5, 3), dtype=Float32, requires_grad=True), Parameter (name=b, shape=(3,), dtype=Float32, requires_grad=True)]\n"
    )
    x = np.ones((2, 5), np.float32)
    assert net(Tensor(x)).tolist() == (x @ (np.arange(15).reshape(5, 3) / 8) + [0.5, -0.25, 0.125]).tolist()


def test_items_206_and_221_arrays_in_f_strings(capsys: pytest.CaptureFixture[str]) -> None:
    for name, param in Network().parameters_and_names():
        print(f"{name}:\n{param.asnumpy()}")
    assert capsys.readouterr().out == (
        "w:\n[[0.    0.125 0.25 ]\n [0.375 0.5   0.625]\n [0.75  0.875 1.   ]\n [1.125 1.25  1.375]\n [1.5   1.625 1.75 ]]\nb:\n[ 0.5   -0.25   0.125]\n"
    )


def test_item_221_tensors_in_f_strings() -> None:
    x = Tensor([1.5, -2.0])
    assert f"{x}" == "[ 1.5 -2. ]" and f"{Tensor(3)} {Tensor(0.1)}" == "3 0.1"


def test_items_207_and_208_phase(capsys: pytest.CaptureFixture[str]) -> None:
    net = Network()
    net.set_train()
    print(net.phase)
    net.set_train(False)
    print(net.phase)
    assert capsys.readouterr().out == "train\npredict\n"


@pytest.mark.parametrize("layer", [lambda: nn.Dropout(p=0.5), lambda: nn.BatchNorm1d(4)])
def test_item_209_layers_that_differ_in_training(mode: int, layer: Any) -> None:
    net, x = layer(), Tensor(np.arange(32).reshape(8, 4), ms.float32)
    assert (net.set_train()(x).asnumpy() != net.set_train(False)(x).asnumpy()).any()


class ByFunctions(nn.Cell):
    def __init__(self, threshold: float, value: float) -> None:
        super().__init__()
        self.threshold = threshold
        self.value = value

    def construct(self, inputs: Any) -> Any:
        cond = ops.gt(inputs, self.threshold)
        value = ops.fill(inputs.dtype, inputs.shape, self.value)
        return ops.select(cond, inputs, value)


class ByPrimitives(nn.Cell):
    def __init__(self, threshold: float, value: float) -> None:
        super().__init__()
        self.greater, self.select, self.fill = ops.Greater(), ops.Select(), ops.Fill()
        self.threshold, self.value = threshold, value

    def construct(self, inputs: Any) -> Any:
        return self.select(self.greater(inputs, self.threshold), inputs, self.fill(inputs.dtype, inputs.shape, self.value))


class ByBprop(ByFunctions):
    def bprop(self, inputs: Any, out: Any, dout: Any) -> Any:
        return (ops.select(ops.gt(inputs, self.threshold), dout, ops.zeros_like(dout)),)


@pytest.mark.parametrize("kind", [ByFunctions, ByPrimitives, ByBprop])
def test_items_210_and_214_threshold_in_three_ways(mode: int, kind: Any) -> None:
    m = kind(0.1, 20)
    inputs = Tensor([0.1, 0.2, 0.3], ms.float32)
    assert repr(m(inputs)) == "Tensor(shape=[3], dtype=Float32, value= [ 2.00000000e+01,  2.00000003e-01,  3.00000012e-01])"
    assert ms.grad(m)(inputs).tolist() == [0.0, 1.0, 1.0]


def test_item_211_gt(mode: int) -> None:
    found = ops.gt(Tensor([0.1, 0.2], ms.float32), 0.15)
    assert found.dtype == ms.bool_ and found.tolist() == [False, True]


@pytest.mark.parametrize(("dtype", "value"), [("float32", 20), ("int32", 3), ("float16", 0.5)])
def test_item_212_fill_takes_type_shape_value(mode: int, dtype: str, value: float) -> None:
    found = ops.fill(getattr(ms, dtype), (2, 2), value)
    assert found.dtype == getattr(ms, dtype) and found.tolist() == [[value] * 2] * 2


def test_item_213_select(mode: int) -> None:
    assert ops.select(Tensor([True, False]), Tensor([1.0, 2.0]), Tensor([3.0, 4.0])).tolist() == [1.0, 4.0]


def test_item_215_dtype_and_shape_are_attributes(mode: int) -> None:
    class Attributes(nn.Cell):
        def construct(self, x: Any) -> Any:
            return ops.zeros(x.shape, x.dtype) + x.shape[0]

    found = Attributes()(Tensor(np.ones((3, 2)), ms.float16))
    assert found.dtype == ms.float16 and found.tolist() == [[3.0, 3.0]] * 3


@pytest.mark.parametrize("keep_prob", [0.8, 0.5, 1.0])
def test_item_216_dropout2d_gives_output_and_mask(mode: int, keep_prob: float) -> None:
    ms.set_seed(1)
    x = Tensor(np.full((20, 30, 2, 3), 2.0), ms.float32)
    output, mask = ops.Dropout2D(keep_prob)(x)
    assert output.shape == mask.shape == x.shape and mask.dtype == ms.bool_
    kept = mask.asnumpy()
    assert (kept == kept[:, :, :1, :1]).all()  # whole channels
    assert abs(kept[:, :, 0, 0].mean() - keep_prob) <= 5 * np.sqrt(keep_prob * (1 - keep_prob) / 600)
    np.testing.assert_allclose(output.asnumpy(), kept * 2.0 / keep_prob, rtol=1e-6)


class Dropout2d(nn.Cell):
    def __init__(self, keep_prob: float) -> None:
        super().__init__()
        self.keep_prob = keep_prob
        self.dropout2d = ops.Dropout2D(keep_prob)

    def construct(self, x: Any) -> Any:
        return self.dropout2d(x)

    def bprop(self, x: Any, out: Any, dout: Any) -> Any:
        _, mask = out
        dy, _ = dout
        if self.keep_prob != 0:
            dy = dy * (1 / self.keep_prob)
        dy = mask.astype(ms.float32) * dy
        return (dy.astype(x.dtype),)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_items_217_218_and_220_its_bprop(mode: int, dtype: str) -> None:
    dropout_2d = Dropout2d(0.8)
    dropout_2d.bprop_debug = True
    assert dropout_2d.bprop_debug is True
    x = Tensor(np.full((4, 5, 2, 2), 3.0), getattr(ms, dtype))
    (output, mask), gradient = ms.value_and_grad(dropout_2d)(x)
    assert gradient.dtype == x.dtype
    np.testing.assert_allclose(gradient.asnumpy(), mask.asnumpy() / 0.8, rtol=1e-3)
    np.testing.assert_allclose(output.asnumpy(), mask.asnumpy() * 3.0 / 0.8, rtol=1e-3)


def test_item_218_one_argument_of_bprop_for_each_input(mode: int) -> None:
    class Product(nn.Cell):
        def construct(self, x: Any, y: Any, z: Any) -> Any:
            return x * y + z

        def bprop(self, x: Any, y: Any, z: Any, out: Any, dout: Any) -> Any:
            return dout * y * 10.0, dout * x * 100.0, dout + out

    gradients = ms.grad(Product(), (0, 1, 2))(Tensor([2.0]), Tensor([3.0]), Tensor([4.0]))
    assert [g.tolist() for g in gradients] == [[30.0], [200.0], [11.0]]


@pytest.mark.parametrize(("dtype", "wanted"), [("int32", [1, -2]), ("float16", [1.5, -2.5]), ("bool_", [True, True]), ("int64", [1, -2])])
def test_item_219_astype(mode: int, dtype: str, wanted: list[Any]) -> None:
    found = Tensor([1.5, -2.5]).astype(getattr(ms, dtype))
    assert found.dtype == getattr(ms, dtype) and found.tolist() == wanted


def test_item_220_bprop_debug_is_a_bool() -> None:
    net = Dropout2d(0.8)
    assert net.bprop_debug is False
    with pytest.raises(TypeError):
        net.bprop_debug = 1
