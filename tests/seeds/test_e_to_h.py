"""Items 61 to 84: hooks, recomputation, network building, mixed precision by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphcell as ms
from graphcell import Parameter, Tensor, nn, ops
from graphcell.common.initializer import initializer


# -- E, F ------------------------------------------------------------------------------------------------------------------
class Scale(nn.Cell):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def construct(self, x: Any) -> Any:
        return x * self.factor


class Chain(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Scale(3.0)

    def construct(self, x: Any) -> Any:
        return self.inner(x * 2.0) + 1.0


def test_item_061_four_kinds_of_hooks() -> None:
    ms.set_context(mode=ms.PYNATIVE_MODE)
    net, seen = Chain(), []
    handles = [
        net.inner.register_forward_pre_hook(lambda cell, args: seen.append(("pre", args[0].tolist()))),
        net.inner.register_forward_hook(lambda cell, args, output: seen.append(("forward", args[0].tolist(), output.tolist()))),
        net.inner.register_backward_pre_hook(lambda cell, g: seen.append(("backward pre", g[0].tolist()))),
        net.inner.register_backward_hook(lambda cell, gi, go: seen.append(("backward", gi[0].tolist(), go[0].tolist()))),
    ]
    x = Tensor([1.0, -1.0])
    assert ms.grad(net)(x).tolist() == [6.0, 6.0]
    assert seen == [
        ("pre", [2.0, -2.0]),
        ("forward", [2.0, -2.0], [6.0, -6.0]),
        ("backward pre", [1.0, 1.0]),
        ("backward", [3.0, 3.0], [1.0, 1.0]),
    ]
    for handle in handles:
        handle.remove()
    seen.clear()
    assert ms.grad(net)(x).tolist() == [6.0, 6.0] and not seen


def test_item_061_hooks_change_what_passes(mode: int) -> None:
    def doubled(cell: Any, args: Any) -> Any:
        return args[0] * 2.0

    def shifted(cell: Any, args: Any, output: Any) -> Any:
        return output + 1.0

    def negated(cell: Any, grad_input: Any, grad_output: Any) -> Any:
        return (-grad_input[0],)

    net = Scale(3.0)
    net.register_forward_pre_hook(doubled)
    net.register_forward_hook(shifted)
    assert net(Tensor([1.0])).tolist() == [7.0]
    other = Scale(3.0)
    other.register_backward_hook(negated)
    assert ms.grad(other)(Tensor([1.0])).tolist() == [-3.0]


class Block(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Dense(3, 3, weight_init=Tensor(np.arange(9).reshape(3, 3) / 9, ms.float32), bias_init="zeros")

    def construct(self, x: Any) -> Any:
        return ops.tanh(self.dense(ops.tanh(self.dense(x))))


@pytest.mark.parametrize("recomputed", [False, True])
def test_items_062_and_063_reverse_mode_with_and_without_recomputation(mode: int, recomputed: bool) -> None:
    net = Block()
    if recomputed:
        net.recompute()
    w, x = np.arange(9).reshape(3, 3) / 9, np.array([[0.5, -1.0, 0.25]])
    a = np.tanh(x @ w.T)
    y = np.tanh(a @ w.T)
    gy = 1 - y**2
    ga = gy @ w * (1 - a**2)
    gradient = ms.grad(net, 0, net.trainable_params())(Tensor(x, ms.float32))
    np.testing.assert_allclose(gradient[0].asnumpy(), ga @ w, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(gradient[1][0].asnumpy(), gy.T @ a + ga.T @ x, rtol=1e-5, atol=1e-6)


# -- G ---------------------------------------------------------------------------------------------------------------------
class Linear(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Dense(2, 1, weight_init=Tensor([[1.0, -1.0]]), bias_init=Tensor([0.5]))

    def construct(self, x: Any) -> Any:
        return self.fc(x)


X, TARGET = np.array([[1.0, 2.0], [3.0, -1.0]], np.float32), np.array([[1.0], [2.0]], np.float32)


def test_items_064_to_069_forward_backward_update(mode: int) -> None:
    """Logits, loss, gradients and the optimizer, as the migration page puts a step together."""
    net, loss_fn = Linear(), nn.MSELoss()
    optimizer = nn.SGD(net.trainable_params(), learning_rate=0.1)

    def forward(x: Any, target: Any) -> Any:
        logits = net(x)
        return loss_fn(logits, target), logits

    step = ms.value_and_grad(forward, None, optimizer.parameters, has_aux=True)
    (loss, logits), gradients = step(Tensor(X), Tensor(TARGET))
    error = X @ [[1.0], [-1.0]] + 0.5 - TARGET
    np.testing.assert_allclose(logits.asnumpy(), error + TARGET, rtol=1e-6)
    np.testing.assert_allclose(loss.asnumpy(), (error**2).mean(), rtol=1e-6)
    wanted = [(error * X).sum(0, keepdims=True), error.sum(0)]
    for got, want in zip(gradients, wanted):
        np.testing.assert_allclose(got.asnumpy(), want, rtol=1e-6)
    optimizer(gradients)
    np.testing.assert_allclose(net.fc.weight.asnumpy(), np.array([[1.0, -1.0]]) - 0.1 * wanted[0], rtol=1e-6)
    np.testing.assert_allclose(net.fc.bias.asnumpy(), 0.5 - 0.1 * wanted[1], rtol=1e-6)


def test_item_065_grad_gives_a_function_of_the_inputs(mode: int) -> None:
    net = Linear()
    backward = ms.grad(net)
    assert backward(Tensor(X)).tolist() == [[1.0, -1.0], [1.0, -1.0]]


def _two(x: Any) -> Any:
    return x * 2.0, x * x


def test_item_066_several_outputs_and_has_aux(mode: int) -> None:
    x = Tensor([1.0, 3.0])
    assert ms.grad(_two)(x).tolist() == [4.0, 8.0]  # the sum over the outputs
    gradient, others = ms.grad(_two, has_aux=True)(x)
    assert gradient.tolist() == [2.0, 2.0] and [t.tolist() for t in others] == [[1.0, 9.0]]
    outputs, gradient = ms.value_and_grad(_two, has_aux=True)(x)
    assert [t.tolist() for t in outputs] == [[2.0, 6.0], [1.0, 9.0]] and gradient.tolist() == [2.0, 2.0]


def _one(x: Any) -> Any:
    return x * 2.0


def test_item_066_has_aux_wants_several_outputs() -> None:
    with pytest.raises(ValueError, match=r"When has_aux is True, origin fn requires more than one outputs"):
        ms.grad(_one, has_aux=True)(Tensor([1.0]))


def test_item_070_weights_are_set_while_walking(mode: int) -> None:
    net = nn.SequentialCell(nn.Conv2d(1, 1, 2, has_bias=False, pad_mode="valid"), nn.ReLU())
    for _, cell in net.cells_and_names():
        if isinstance(cell, nn.Conv2d):
            cell.weight.set_data(ms.common.initializer.initializer(0.1, cell.weight.shape, cell.weight.dtype))
    np.testing.assert_allclose(net(Tensor(np.ones((1, 1, 2, 2)), ms.float32)).asnumpy(), [[[[0.4]]]], rtol=1e-6)


@pytest.mark.parametrize(
    ("item", "options", "size"),
    [(71, {}, 12), (72, {"pad_mode": "pad"}, 9), (73, {"pad_mode": "pad", "padding": 1}, 11), (71, {"pad_mode": "valid"}, 9), (71, {"pad_mode": "same"}, 12)],
)
def test_items_071_to_073_pad_modes(mode: int, item: int, options: dict[str, Any], size: int) -> None:
    conv = nn.Conv2d(3, 2, 4, has_bias=False, weight_init=initializer(0.1, (2, 3, 4, 4), ms.float32), **options)
    x = np.random.default_rng(1).uniform(-1, 1, (2, 3, 12, 12)).astype(np.float32)
    y = conv(Tensor(x)).asnumpy()
    assert y.shape == (2, 2, size, size)
    before = {12: 1, 11: 1, 9: 0}[size]  # "same" puts the odd row behind
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (before, size - 9 - before), (before, size - 9 - before)))
    wanted = np.lib.stride_tricks.sliding_window_view(padded, (4, 4), axis=(2, 3)).sum((1, 4, 5)) * 0.1
    np.testing.assert_allclose(y, np.repeat(wanted[:, None], 2, axis=1), atol=1e-4)


def test_item_071_shapes_that_differ_are_numpys_error(mode: int) -> None:
    x = Tensor(np.zeros((2, 1, 12, 12)), ms.float32)
    same, padded = nn.Conv2d(1, 2, 4)(x), nn.Conv2d(1, 2, 4, pad_mode="pad")(x)
    with pytest.raises(ValueError, match=r"operands could not be broadcast together with shapes \(2,2,12,12\) \(2,2,9,9\)"):
        np.max(np.abs(same.asnumpy() - padded.asnumpy()))


@pytest.mark.parametrize(
    ("norm", "shape"), [(nn.BatchNorm1d, (2, 12)), (nn.BatchNorm2d, (2, 12, 3, 4)), (nn.BatchNorm3d, (2, 12, 3, 2, 2))], ids=lambda x: getattr(x, "__name__", "")
)
def test_item_074_batch_norms(mode: int, norm: Any, shape: tuple[int, ...]) -> None:
    cell = norm(12)
    parameters = [getattr(cell.bn2d if norm is nn.BatchNorm3d else cell, name) for name in ("gamma", "beta", "moving_mean", "moving_variance")]
    assert all(isinstance(p, Parameter) and p.shape == (12,) for p in parameters)
    x = np.random.default_rng(2).normal(1.0, 2.0, shape).astype(np.float32)
    axes = (0, *range(2, len(shape)))
    mean, variance = x.mean(axes, keepdims=True, dtype=float), x.var(axes, keepdims=True, dtype=float)
    np.testing.assert_allclose(cell.set_train()(Tensor(x)).asnumpy(), (x - mean) / np.sqrt(variance + 1e-5), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(cell.set_train(False)(Tensor(np.zeros(shape)).astype(ms.float32)).shape, shape)


def test_item_074_group_norm(mode: int) -> None:
    cell = nn.GroupNorm(2, 4)
    assert isinstance(cell.gamma, Parameter) and isinstance(cell.beta, Parameter)
    x = np.random.default_rng(2).normal(1.0, 2.0, (2, 4, 3, 3))
    g = x.reshape(2, 2, -1)
    wanted = ((g - g.mean(-1, keepdims=True)) / np.sqrt(g.var(-1, keepdims=True) + 1e-5)).reshape(x.shape)
    np.testing.assert_allclose(cell(Tensor(x, ms.float32)).asnumpy(), wanted, rtol=1e-3, atol=1e-4)


def test_item_075_pools_and_relu(mode: int) -> None:
    x = np.arange(2 * 4 * 4).reshape(1, 2, 4, 4).astype(np.float32) - 8
    wanted = x.reshape(1, 2, 2, 2, 2, 2).max((3, 5))
    assert nn.MaxPool2d(kernel_size=2, stride=2)(Tensor(x)).asnumpy().tolist() == wanted.tolist()
    assert nn.AdaptiveMaxPool2d((2, 2))(Tensor(x)).asnumpy().tolist() == wanted.tolist()
    assert nn.ReLU()(Tensor(x)).asnumpy().tolist() == np.maximum(x, 0).tolist()
    assert nn.AdaptiveMaxPool2d((5, 5))(Tensor(np.zeros((1, 4, 10, 10)), ms.float32)).shape == (1, 4, 5, 5)


LAYERS: dict[str, Any] = {
    "Conv1d": lambda: nn.Conv1d(3, 2, 1),
    "Conv2d": lambda: nn.Conv2d(3, 2, 1),
    "Conv3d": lambda: nn.Conv3d(3, 2, 1),
    "Conv2dTranspose": lambda: nn.Conv2dTranspose(3, 2, 1),
    "Dense": lambda: nn.Dense(3, 2),
    "BatchNorm1d": lambda: nn.BatchNorm1d(3),
    "BatchNorm2d": lambda: nn.BatchNorm2d(3),
    "BatchNorm3d": lambda: nn.BatchNorm3d(3),
    "GroupNorm": lambda: nn.GroupNorm(1, 3),
    "LayerNorm": lambda: nn.LayerNorm((3,)),
    "InstanceNorm2d": lambda: nn.InstanceNorm2d(3),
    "MaxPool2d": lambda: nn.MaxPool2d(2),
    "AvgPool1d": lambda: nn.AvgPool1d(2),
    "AdaptiveMaxPool1d": lambda: nn.AdaptiveMaxPool1d(1),
    "AdaptiveMaxPool2d": lambda: nn.AdaptiveMaxPool2d((5, 5)),
    "Pad": lambda: nn.Pad(((1, 1),)),
    "Unfold": lambda: nn.Unfold([1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]),
    "ReLU": nn.ReLU,
}


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("given", ["text", 3, None, [1.0], (Tensor([1.0]),)], ids=["str", "int", "None", "list", "tuple"])
def test_items_073_to_075_layers_take_tensors(mode: int, layer: str, given: Any) -> None:
    with pytest.raises(TypeError, match="must be a Tensor"):
        LAYERS[layer]()(given)


@pytest.mark.parametrize("error", [ValueError, RuntimeError])
def test_items_046_and_073_operands_that_do_not_fit(mode: int, error: type[Exception]) -> None:
    """MindSpore raises RuntimeError for these, and ValueError for other shapes that do not fit."""
    x = Tensor(np.ones((2, 3)), ms.float32)
    with pytest.raises(error, match=r"inner sizes differ, input is \(2, 3\) and other is \(2, 3\)"):
        ops.matmul(x, x)
    with pytest.raises(error, match="batch dimensions"):
        ops.matmul(Tensor(np.ones((2, 3, 3)), ms.float32), Tensor(np.ones((3, 3, 3)), ms.float32))
    with pytest.raises(error, match="2 channels, but the weight"):
        nn.Conv2d(3, 4, 1)(Tensor(np.ones((1, 2, 5, 5)), ms.float32))


class View(nn.Cell):
    def construct(self, x: Any) -> Any:
        return x.view((-1, 6)), x.view(-1, 4), x.view(2, 12)


def test_item_076_view_with_a_tuple_and_minus_one(mode: int) -> None:
    assert [y.shape for y in View()(Tensor(np.zeros((2, 3, 4)), ms.float32))] == [(4, 6), (6, 4), (2, 12)]


def test_item_077_the_pages_misprint_is_a_type_error(mode: int) -> None:
    class Misprint(nn.Cell):
        def construct(self, x: Any) -> Any:
            return nn.Dense(x)

    with pytest.raises(TypeError, match="out_channels"):
        Misprint()(Tensor([[1.0]]))


# -- H ---------------------------------------------------------------------------------------------------------------------
class Dtypes(nn.Cell):
    """Says in which dtype it runs, by what the input's dtype is."""

    def __init__(self) -> None:
        super().__init__()
        self.w = Parameter(Tensor([1.0 + 2**-12]), name="w")

    def construct(self, x: Any) -> Any:
        return x * self.w


class Net(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.a = Dtypes()
        self.b = Dtypes()
        self.norm = nn.BatchNorm1d(1)

    def construct(self, x: Any) -> Any:
        a = self.a(x)
        return a, self.b(x), self.norm(x)


def test_item_078_model_with_amp_level(mode: int) -> None:
    net = nn.SequentialCell(nn.Dense(2, 2), nn.ReLU())
    model = ms.train.Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.1), amp_level="O3")
    assert model.predict(Tensor(X)).dtype == ms.float16


def test_item_079_to_float_casts_the_inputs_of_all_cells(mode: int) -> None:
    x = Tensor([[1.0], [2.0]])
    net = Net()
    assert [y.dtype for y in net(x)] == [ms.float32] * 3
    assert net.to_float(ms.float16) is net
    assert [y.dtype for y in net(x)][:2] == [ms.float16] * 2
    assert net.a.w.dtype == ms.float32 and net.a(x).asnumpy().ravel().tolist() == [1.0, 2.0]  # 2**-12 is lost in half precision


class Constants(nn.Cell):
    """Computes with Tensors of its own: one that stays, one that is replaced, a buffer, and whole numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = Tensor([1.0 + 2**-12])
        self.total = Tensor([0.0])
        self.shift = Tensor([1])
        self.register_buffer("offset", Tensor([0.5]))

    def construct(self, x: Any) -> Any:
        y = x * self.scale
        if x.sum() > 0:
            self.total = self.total + y
        return y, self.scale * self.scale, x + self.offset, self.shift


class Scaled(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.scale = Tensor([2.0])

    def construct(self, x: Any) -> Any:
        return x * self.scale


@pytest.mark.parametrize("dtype", [ms.float16, ms.bfloat16])
def test_item_079_to_float_casts_the_tensors_among_the_attributes(mode: int, dtype: Any) -> None:
    net, x = Constants(), Tensor([2.0])
    net.to_float(dtype)
    assert [y.dtype for y in net(x)] == [dtype, dtype, dtype, ms.int64]
    assert [y.tolist() for y in net(x)] == [[2.0], [1.0], [2.5], [1]] and net.total.tolist() == [4.0]
    assert net.total.dtype == ms.float32 and net(-x)[0].tolist() == [-2.0] and net.total.tolist() == [4.0]
    assert net.scale.dtype == net.offset.dtype == ms.float32 and net.scale.tolist() == [1.0 + 2**-12]
    net.scale = Tensor([3.0])
    assert net(x)[0].tolist() == [6.0] and net.scale.dtype == ms.float32
    net.to_float(ms.float32)
    assert [y.dtype for y in net(x)] == [ms.float32, ms.float32, ms.float32, ms.int64]
    del net.scale
    assert not hasattr(net, "scale")


def test_item_079_to_float_does_not_compile_again() -> None:
    """Nothing that the compiled Cell reads has changed when another attribute has."""
    ms.set_context(mode=ms.GRAPH_MODE)
    net, other, x = nn.SequentialCell(Dtypes(), Scaled()).to_float(ms.float16), nn.ReLU(), Tensor([2.0])
    assert net(x).tolist() == [4.0]
    other.set_train()
    net[1].scale = Tensor([3.0])
    assert net(x).tolist() == [6.0] and "changed" not in net._compiled.explain()


def test_item_080_an_inner_setting_wins(mode: int) -> None:
    net, x = Net(), Tensor([[1.0], [2.0]])
    net.to_float(ms.float16)
    for _, cell in net.cells_and_names():
        if isinstance(cell, (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)):
            cell.to_float(ms.float32)
    assert [y.dtype for y in net(x)] == [ms.float16, ms.float16, ms.float32]


def test_items_081_and_082_a_loss_in_float32(mode: int) -> None:
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean").to_float(ms.float32)
    assert isinstance(loss, nn.SoftmaxCrossEntropyWithLogits)
    net = nn.Dense(2, 2, weight_init="ones", bias_init="zeros").to_float(ms.float16)
    with_loss = nn.WithLossCell(net, loss_fn=loss)
    value = with_loss(Tensor(X), Tensor([0, 1], ms.int32))
    assert value.dtype == ms.float32 and value.asnumpy() == pytest.approx(np.log(2), rel=1e-3)


def test_item_083_to_float_or_amp_level(mode: int) -> None:
    """Only one of the two is to be used: what `to_float` says stays as it is without `amp_level`."""
    net = nn.Dense(2, 2).to_float(ms.float16)
    assert ms.train.Model(net).predict(Tensor(X)).dtype == ms.float16


def test_item_084_to_float_after_the_first_call_is_noticed(mode: int) -> None:
    """MindSpore 2.10 keeps the graph that it compiled; here the next call has the new dtype, see docs/compatibility.md."""
    net, x = Dtypes(), Tensor([1.0])
    assert net(x).dtype == ms.float32
    net.to_float(ms.float16)
    assert net(x).dtype == ms.float16 and net.w.dtype == ms.float32
