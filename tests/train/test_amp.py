"""Mixed precision: which dtype computes what, loss scaling that trains on the CPU. The rest is compared with MindSpore in tests/nn/test_wrap.py."""

from __future__ import annotations

import copy
import linecache
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphcell as ms
from graphcell import amp, nn, ops
from graphcell.context import GRAPH_MODE, PYNATIVE_MODE
from tests.recording import fill, ramp

MODES = (GRAPH_MODE, PYNATIVE_MODE)


class Net(nn.Cell):
    """Dense, BatchNorm and a primitive in one network."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.bn = nn.Dense(4, 3, activation="relu"), nn.BatchNorm1d(3)
        self.weight = ms.Parameter(ms.Tensor(ramp((3, 3), 2.0)), name="weight")
        self.matmul = ops.MatMul()
        self.last = nn.SequentialCell(nn.Dense(3, 3), nn.BatchNorm1d(3), nn.Tanh())

    def construct(self, x: Any) -> Any:
        return self.last(self.matmul(self.bn(self.fc(x)), self.weight))


def network() -> Net:
    net = Net()
    fill(ms, net)
    net.set_train(False)
    return net


X, Y = ms.Tensor(ramp((6, 4))), ms.Tensor(ramp((6, 3), 3.0))


def ops_of(net: Any, *inputs: Any) -> set[tuple[str, str]]:
    """(op, dtype of its result) of all nodes of the graph of a call."""
    net.compile(*inputs)
    graph = net._jit._shown().traced.graph
    return {(node.op.name, str(v.type.dtype)) for node in graph.walk() for v in node.results}


# -- levels --------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("mode", MODES)
def test_level_1_like_mindspore(mode: int) -> None:
    """Recorded from MindSpore 2.10.0 in PYNATIVE_MODE. (O1 generates code there, which needs the class in a module of its own.)"""
    ms.set_context(mode=mode)
    plain, narrow = network()(X).asnumpy(), amp.auto_mixed_precision(network(), "O1")(X)
    np.testing.assert_allclose(plain[0], [-0.4675293266773224, -0.982596218585968, 0.6964424848556519], rtol=1e-5)
    assert narrow.dtype is ms.float32
    np.testing.assert_allclose(narrow.asnumpy()[0], [-0.46758517622947693, -0.982602059841156, 0.6964508295059204], rtol=1e-4)
    net = network()
    step = amp.build_train_network(net, nn.Momentum(net.trainable_params(), 0.02, 0.9), nn.MSELoss(), "O1")
    losses = [float(step(X, Y).asnumpy()) for _ in range(3)]
    np.testing.assert_allclose(losses, [1.824830174446106, 1.8182940483093262, 1.8061131238937378], rtol=1e-4)


@pytest.mark.parametrize("dtype", [ms.float16, ms.bfloat16])
def test_what_computes_in_which_dtype(dtype: Any) -> None:
    """The graphs that are compiled say it."""
    name = str(dtype)
    ms.set_context(mode=GRAPH_MODE)
    white = ops_of(amp.auto_mixed_precision(network(), "O1", dtype), X)
    assert ("matmul", name) in white and ("matmul", "Float32") not in white
    assert ("tanh", "Float32") in white and ("tanh", name) not in white
    black = ops_of(amp.auto_mixed_precision(network(), "O2", dtype), X)
    assert ("matmul", name) in black and ("tanh", name) in black and ("rsqrt", name) not in black
    assert {("matmul", "Float32"), ("tanh", "Float32")}.isdisjoint(black)
    everything = ops_of(amp.auto_mixed_precision(network(), "O3", dtype), X)
    assert ("matmul", name) in everything and ("tanh", name) in everything


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", [ms.float16, ms.bfloat16])
@pytest.mark.parametrize("level", ["O1", "O2", "O3"])
def test_levels_train(level: str, dtype: Any, mode: int) -> None:
    ms.set_context(mode=mode)
    net = network()
    step = nn.TrainOneStepCell(nn.WithLossCell(amp.auto_mixed_precision(net, level, dtype), nn.MSELoss()), nn.Adam(net.trainable_params(), 0.05))
    step.set_train()
    losses = [float(step(X, Y).asnumpy()) for _ in range(25)]
    assert losses[-1] < 0.75 * losses[0]
    assert {p.dtype for p in net.get_parameters()} == {ms.float32}


@pytest.mark.parametrize("mode", MODES)
def test_white_listed_primitives(mode: int) -> None:
    ms.set_context(mode=mode)
    net = network()
    converted = amp.custom_mixed_precision(net, white_list=[ops.MatMul])
    big = ms.Tensor(np.full((1, 3), 300.0), ms.float32)
    assert np.isinf(converted.matmul(big, big.swapaxes(0, 1)).asnumpy()).all()  # 270000 is too large for float16
    assert converted.matmul.name == "MatMul" and str(converted.matmul) == str(ops.MatMul())
    assert converted.fc.weight.dtype is ms.float32 and copy.deepcopy(converted)(X).dtype is ms.float32


def test_white_listed_primitives_reach_the_layers_made_of_them() -> None:
    ms.set_context(mode=PYNATIVE_MODE)
    net = nn.SequentialCell(nn.Conv2d(1, 1, 1, weight_init="ones"), nn.ReLU(), nn.Sigmoid())
    x = ms.Tensor(np.full((1, 1, 1, 1), 1 + 2.0**-12), ms.float32)
    assert float(amp.custom_mixed_precision(net, white_list=[ops.ReLU])[1](x).asnumpy().item()) == 1.0
    assert float(net[0](x).asnumpy().item()) == 1 + 2.0**-12
    assert float(amp.custom_mixed_precision(net, white_list=[ops.Conv2D])[0](x).asnumpy().item()) == 1.0


def test_a_second_level_warns() -> None:
    with pytest.warns(UserWarning, match="adjusted from O3 to O1"):
        amp.auto_mixed_precision(amp.auto_mixed_precision(network(), "O3"), "O1")
    with pytest.raises(NotImplementedError, match="boost"):
        amp.build_train_network(network(), nn.SGD(network().trainable_params(), 0.1), boost_level="O1")


# -- to_float ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", [ms.float16, ms.bfloat16])
def test_to_float_computes_in_the_dtype(dtype: Any, mode: int) -> None:
    """1 + 2^-12 is 1 in either dtype; sums of a long product round where numpy's float32 does not."""
    ms.set_context(mode=mode)

    class Add(nn.Cell):
        def construct(self, x: Any, y: Any) -> Any:
            return x + y

    add = Add()
    one, small = ms.Tensor([1.0]), ms.Tensor([2.0**-12])
    assert add(one, small).asnumpy()[0] > 1
    out = add.to_float(dtype)(one, small)  # noticed by what was compiled before
    assert out.dtype is dtype and float(out.astype(ms.float32).asnumpy()[0]) == 1.0
    assert add.to_float(ms.float32)(one, small).asnumpy()[0] > 1


@pytest.mark.parametrize("mode", MODES)
def test_inner_settings_win(mode: int) -> None:
    """BatchNorm in float32 inside of a network in float16; the later setting of the outer one overrides it again."""
    ms.set_context(mode=mode)
    seen: list[Any] = []
    net = nn.SequentialCell(nn.Dense(4, 3), nn.BatchNorm1d(3), nn.ReLU())
    for cell in net:
        cell.register_forward_hook(lambda cell, args, out: seen.append((args[0].dtype, out.dtype)))
    net.to_float(ms.float16)
    net[1].to_float(ms.float32)
    net(X)
    assert seen[-3:] == [(ms.float16, ms.float16), (ms.float32, ms.float32), (ms.float16, ms.float16)]
    net.to_float(ms.float16)
    net(X)
    assert seen[-3:] == [(ms.float16, ms.float16)] * 3
    assert isinstance(nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean").to_float(ms.float32), nn.SoftmaxCrossEntropyWithLogits)


def test_casts_are_in_the_graph() -> None:
    ms.set_context(mode=GRAPH_MODE)
    dense = nn.Dense(4, 3).to_float(ms.float16)
    found = ops_of(dense, X)
    assert ("cast", "Float16") in found and ("matmul", "Float16") in found and ("matmul", "Float32") not in found
    assert "f16[6, 3]" in dense._jit.ir()


# -- loss scaling --------------------------------------------------------------------------------------------------------
class Steep(nn.Cell):
    """w x, whose gradient is x."""

    def __init__(self) -> None:
        super().__init__()
        self.w = ms.Parameter(ms.Tensor([1.0, 2.0]), name="w")

    def construct(self, x: Any) -> Any:
        return (self.w * x).sum()


@pytest.mark.parametrize("mode", MODES)
def test_steps_that_overflow_are_left_out(mode: int) -> None:
    ms.set_context(mode=mode)
    net = Steep()
    step = nn.TrainOneStepWithLossScaleCell(net, nn.SGD(net.trainable_params(), 0.5), nn.DynamicLossScaleUpdateCell(1024.0, 2, 2))
    rows = []
    for x in ([1.0, 1.0], [1.0, 1.0], [np.inf, 1.0], [np.nan, 1.0], [2.0, 2.0]):
        loss, overflow, scale = step(ms.Tensor(x, ms.float32))
        rows.append((bool(overflow.asnumpy()), float(scale.asnumpy()), net.w.asnumpy().tolist()))
        assert loss.shape == ()
    assert rows == [
        (False, 1024.0, [0.5, 1.5]), (False, 1024.0, [0.0, 1.0]), (True, 2048.0, [0.0, 1.0]), (True, 1024.0, [0.0, 1.0]), (False, 512.0, [-1.0, 0.0]),
    ]  # fmt: skip
    assert step.scale_sense.asnumpy() == 512.0


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape", [(), (1,)])
def test_a_scale_that_is_set(shape: tuple[int, ...], mode: int) -> None:
    ms.set_context(mode=mode)
    net = Steep()
    step = nn.TrainOneStepWithLossScaleCell(net, nn.SGD(net.trainable_params(), 0.5), ms.Tensor(np.full(shape, 8.0), ms.float32))
    step.set_sense_scale(ms.Tensor(np.full(shape, 2.0**120), ms.float32))
    _, overflow, scale = step(ms.Tensor([1e6, 1.0]))
    assert scale.shape == shape and bool(overflow.asnumpy()) and net.w.asnumpy().tolist() == [1.0, 2.0]
    step.set_sense_scale(ms.Tensor(np.full(shape, 4.0), ms.float32))
    _, overflow, scale = step(ms.Tensor([2.0, 1.0]))
    assert not overflow.asnumpy() and net.w.asnumpy().tolist() == [0.0, 1.5]
    with pytest.raises(TypeError, match="must be Tensor"):
        step.set_sense_scale(3.0)


@pytest.mark.parametrize("mode", MODES)
def test_a_subclass_with_a_construct_of_its_own(mode: int) -> None:
    """As programs write it, with all of the methods."""
    ms.set_context(mode=mode)
    unscale = ops.MultitypeFuncGraph("unscale")

    @unscale.register("Tensor", "Tensor")
    def _unscale(scale: Any, grad: Any) -> Any:
        return grad * ops.cast(ops.Reciprocal()(scale), ops.dtype(grad))

    class Step(nn.TrainOneStepWithLossScaleCell):
        def __init__(self, network: Any, optimizer: Any, scale_sense: Any):
            super().__init__(network, optimizer, scale_sense)
            self.hyper_map = ops.HyperMap()

        def construct(self, x: Any) -> Any:
            weights = self.weights
            loss = self.network(x)
            scaling_sens = self.scale_sense
            status, scaling_sens = self.start_overflow_check(loss, scaling_sens)
            filled = ops.ones_like(loss) * ops.cast(scaling_sens, ops.dtype(loss))
            grads = self.grad(self.network, weights)(x, filled)
            grads = self.hyper_map(ops.partial(unscale, scaling_sens), grads)
            grads = self.grad_reducer(grads)
            cond = self.get_overflow_status(status, grads)
            overflow = self.process_loss_scale(cond)
            if not overflow:
                loss = ops.depend(loss, self.optimizer(grads))
            return loss, cond

    net = Steep()
    step = Step(net, nn.SGD(net.trainable_params(), 0.5), nn.FixedLossScaleUpdateCell(2.0**10))
    assert [bool(step(ms.Tensor([1.0, x], ms.float32))[1].asnumpy()) for x in (1.0, np.inf, 1.0)] == [False, True, False]
    assert net.w.asnumpy().tolist() == [0.0, 1.0]


@pytest.mark.parametrize("level", ["O2", "O3"])
@pytest.mark.parametrize("mode", MODES)
def test_level_2_scales_the_loss(level: str, mode: int) -> None:
    """The first steps overflow in float16 and make the scale of 2^24 smaller, until the gradients fit."""
    ms.set_context(mode=mode)
    net = network()
    manager = amp.DynamicLossScaleManager(2**24, 4, 100)
    step: Any = amp.build_train_network(net, nn.Momentum(net.trainable_params(), 0.02, 0.9), nn.MSELoss(), level, loss_scale_manager=manager)
    assert isinstance(step, nn.TrainOneStepWithLossScaleCell)
    rows = [step(X, Y) for _ in range(30)]
    overflows = [bool(overflow.asnumpy()) for _, overflow, _ in rows]
    assert overflows[0] and not overflows[-1] and sorted(overflows, reverse=True) == overflows
    assert float(rows[-1][2].asnumpy()) == 2.0**24 / 4.0 ** sum(overflows)
    assert float(rows[-1][0].asnumpy()) < float(rows[0][0].asnumpy())


@pytest.mark.parametrize("jit", [False, True])
def test_a_loop_with_a_scaler(jit: bool) -> None:
    """The functional way: value_and_grad, all_finite, adjust."""
    ms.set_context(mode=PYNATIVE_MODE)
    net, scaler = Steep(), amp.DynamicLossScaler(4.0, 2, 2)
    optimizer = nn.SGD(net.trainable_params(), 0.5)
    gradient = ms.value_and_grad(lambda x: scaler.scale(net(x)), None, optimizer.parameters)

    def step(x: Any) -> Any:
        loss, grads = gradient(x)
        loss, finite = scaler.unscale(loss), amp.all_finite(grads)
        if finite:
            optimizer(scaler.unscale(grads))
        scaler.adjust(finite)
        return loss, finite

    run: Any = ms.jit(step) if jit else step
    found = []
    for x in (1.0, 1.0, np.inf, 1.0):
        loss, finite = run(ms.Tensor([1.0, x], ms.float32))
        found.append((float(loss.asnumpy()), bool(finite.asnumpy()), float(scaler.scale_value.asnumpy()), int(scaler.counter.asnumpy())))
    assert found == [(3.0, True, 4.0, 1), (2.0, True, 8.0, 0), (np.inf, False, 4.0, 0), (1.0, True, 4.0, 1)]
    assert net.w.asnumpy().tolist() == [-0.5, 0.5]


def test_scales_that_would_overflow_stay() -> None:
    scaler = amp.DynamicLossScaler(2.0**127, 2, 1)
    assert scaler.adjust(ms.Tensor(True)) is True and float(scaler.scale_value.asnumpy()) == 2.0**127
    nested = scaler.unscale({"a": (ms.Tensor([2.0]), [ms.Tensor([4.0], ms.float64)])})
    assert nested["a"][1][0].dtype is ms.float64
    with pytest.raises(TypeError, match="must be Tensors"):
        scaler.scale(3)


def test_scales_are_numbers() -> None:
    for wrong in (lambda: amp.FixedLossScaleManager("a"), lambda: amp.DynamicLossScaleManager("a"), lambda: amp.DynamicLossScaleManager(2.0, "a")):
        with pytest.raises(TypeError, match=r"should be one of .*but got type 'str'"):
            wrong()


def test_too_many_overflows() -> None:
    manager = amp.DynamicLossScaleManager()
    for _ in range(1000):
        manager.update_loss_scale(True)
    with pytest.raises(RuntimeError, match="exceeded maximum"):
        manager.update_loss_scale(True)


@pytest.mark.parametrize("mode", MODES)
def test_all_finite(mode: int) -> None:
    ms.set_context(mode=mode)
    good, bad = ms.Tensor(np.ones((3, 4)), ms.float16), ms.Tensor([1.0, -np.inf])
    assert amp.all_finite((good, [good])) and not amp.all_finite([good, (bad,)]) and amp.all_finite((good,)).dtype is ms.bool_
    check: Any = ms.jit(lambda *tensors: amp.all_finite(tensors))
    assert check(good, good) and not check(good, bad)


def test_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """The programs of docs/precision_and_memory.md, one after another."""
    page = (Path(__file__).parent.parent.parent / "docs" / "precision_and_memory.md").read_text()
    source = "\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL))
    name = "precision_and_memory.py"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)  # the frontend reads it there
    exec(compile(source, name, "exec"), {"__name__": "page"})
    shown = capsys.readouterr().out
    assert "bf16[8, 256]" in shown and np.isfinite(float(shown.splitlines()[-1]))
