"""Cells, containers and wrappers against what MindSpore 2.10 did (tests/programs/cells.json), and what MindSpore cannot show."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import graphcell as ms
from graphcell import Parameter, Tensor, nn, ops
from graphcell.context import GRAPH_MODE, PYNATIVE_MODE
from tests.recording import check, fill, load, ramp

PROGRAMS = [(file, key) for file in ("cells", "cell_gradients") for key in load(file)]
TOLERANCE = {"train_steps": 1e-4}  # MindSpore's float32 tanh is that far off


@pytest.mark.parametrize(("file", "key"), PROGRAMS)
def test_eager(file: str, key: str) -> None:
    check(file, key, PYNATIVE_MODE, TOLERANCE.get(key, 2e-5))


@pytest.mark.filterwarnings("ignore:.*runs as Python")
@pytest.mark.parametrize(("file", "key"), PROGRAMS)
def test_compiled(file: str, key: str) -> None:
    check(file, key, GRAPH_MODE, TOLERANCE.get(key, 2e-5))


class Net(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Dense(3, 2)
        self.norm = nn.BatchNorm1d(2)
        self.scale = Parameter(Tensor([2.0]), name="scale")

    def construct(self, x: Any) -> Any:
        return self.norm(self.dense(x)) * self.scale


@pytest.mark.parametrize("mode", [PYNATIVE_MODE, GRAPH_MODE])
@pytest.mark.parametrize("again", [copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))])
def test_copies_are_whole_and_separate(again: Any, mode: int) -> None:
    ms.set_context(mode=mode)
    net = Net()
    fill(ms, net)
    x = Tensor(ramp((4, 3)))
    y = net(x).asnumpy().copy()
    other = again(net)
    np.testing.assert_array_equal(other(x).asnumpy(), y)
    assert [p.name for p in other.get_parameters()] == [p.name for p in net.get_parameters()]
    other.dense.weight.set_data(Tensor(np.zeros((2, 3), np.float32)))
    np.testing.assert_array_equal(net(x).asnumpy(), y)
    assert not np.array_equal(other(x).asnumpy(), y)


@pytest.mark.parametrize("mode", [PYNATIVE_MODE, GRAPH_MODE])
def test_changes_of_attributes_are_seen_by_the_next_call(mode: int) -> None:
    class Scale(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.factor = 2.0
            self.inner: Any = nn.ReLU()

        def construct(self, x: Any) -> Any:
            return self.inner(x) * self.factor

    ms.set_context(mode=mode)
    net, x = Scale(), Tensor([-1.0, 3.0])
    assert net(x).asnumpy().tolist() == [0.0, 6.0]
    net.factor = 5.0
    assert net(x).asnumpy().tolist() == [0.0, 15.0]
    net.inner = nn.Identity()
    assert net(x).asnumpy().tolist() == [-5.0, 15.0]
    handle = net.inner.register_forward_hook(lambda cell, args, out: out + 1)
    assert net(x).asnumpy().tolist() == [0.0, 20.0]
    handle.remove()
    assert net(x).asnumpy().tolist() == [-5.0, 15.0]
    net.to_float(ms.float16)
    assert net(x).dtype is ms.float16


@pytest.mark.parametrize("mode", [PYNATIVE_MODE, GRAPH_MODE])
def test_set_train_is_seen_by_the_next_call(mode: int) -> None:
    ms.set_context(mode=mode)
    net = nn.SequentialCell(nn.Dropout(p=0.5), nn.BatchNorm1d(2))
    x = Tensor(np.ones((64, 2), np.float32))
    plain = net(x).asnumpy()
    assert np.allclose(plain, 1.0, atol=1e-4)
    trained = net.set_train()(x).asnumpy()
    assert not np.allclose(trained, plain)
    assert not np.allclose(net.set_train(False)(x).asnumpy(), trained)


def test_the_inner_to_float_wins_and_parameters_stay() -> None:
    net = nn.SequentialCell(nn.Dense(3, 2), nn.BatchNorm1d(2)).to_float(ms.float16)
    net[1].to_float(ms.float32)
    net.set_train()
    y = net(Tensor(ramp((4, 3))))
    assert y.dtype is ms.float32
    assert all(p.dtype is ms.float32 for p in net.get_parameters())
    grads = ms.grad(lambda x: net(x), None, net.trainable_params())(Tensor(ramp((4, 3))))
    assert all(g.dtype is ms.float32 for g in grads)


@pytest.mark.parametrize("mode", [PYNATIVE_MODE, GRAPH_MODE])
def test_assigning_a_parameter_under_to_float_reaches_the_parameter(mode: int) -> None:
    class Count(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.w = Parameter(Tensor([1.0, 2.0]), name="w")

        def construct(self, x: Any) -> Any:
            ops.assign(self.w, self.w + x)
            self.w = self.w * 2.0
            return self.w + 0.0

    ms.set_context(mode=mode)
    net = Count().to_float(ms.float16)
    assert net(Tensor([0.5, 0.5])).dtype is ms.float16
    assert net.w.asnumpy().tolist() == [3.0, 5.0] and net.w.dtype is ms.float32


@pytest.mark.parametrize("mode", [PYNATIVE_MODE, GRAPH_MODE])
def test_what_is_written_under_to_float_is_not_rounded(mode: int) -> None:
    """A Parameter is read in the dtype of `to_float`, but assigned to, added to and indexed in its own, as under MindSpore."""

    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.count, self.rows = Parameter(Tensor([4096.0]), name="count"), Parameter(Tensor([0.1, 0.2]), name="rows")

        def construct(self, x: Any) -> Any:
            new = ops.assign_add(self.count, Tensor([1.0]))
            before = self.count + 0.0
            ops.assign_sub(self.count, Tensor([0.125]))
            self.rows[0] = 1.0001
            return new, before, self.rows + x

    ms.set_context(mode=mode)
    net = Net().to_float(ms.float16)
    assert [t.dtype for t in net(Tensor([0.5, 0.5]))] == [ms.float16] * 3
    assert net.count.asnumpy().tolist() == [4096.875]
    assert net.rows.asnumpy().tolist() == np.array([1.0001, 0.2], np.float32).tolist()


@pytest.mark.parametrize("mode", [PYNATIVE_MODE, GRAPH_MODE])
def test_a_buffer_is_changed_by_assign(mode: int) -> None:
    class Count(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", Tensor([0.0]))

        def construct(self, x: Any) -> Any:
            ops.assign(self.calls, self.calls + 1.0)
            return x * self.calls

    ms.set_context(mode=mode)
    net = Count()
    assert [net(Tensor([2.0])).asnumpy().tolist() for _ in range(3)] == [[2.0], [4.0], [6.0]]
    assert net.calls.asnumpy().tolist() == [3.0]


def test_a_hook_that_returns_a_wrong_pair_is_refused() -> None:
    net = nn.ReLU()
    net.register_forward_pre_hook(lambda cell, args, kwargs: 3, with_kwargs=True)
    with pytest.raises(RuntimeError, match="tuple of"):
        net(Tensor([1.0]))


def test_always_called_hooks_see_failures() -> None:
    class Bad(nn.Cell):
        def construct(self, x: Any) -> Any:
            raise ValueError("no")

    seen = []
    net = Bad()
    net.register_forward_hook(lambda cell, args, out: seen.append(out), always_call=True)
    net.register_forward_hook(lambda cell, args, out: seen.append("never"))
    with pytest.raises(ValueError, match="no"):
        net(Tensor([1.0]))
    assert seen == [None]


def test_prepended_hooks_run_first() -> None:
    order: list[str] = []
    net = nn.Identity()
    net.register_forward_pre_hook(lambda cell, args: order.append("second"))
    net.register_forward_pre_hook(lambda cell, args: order.append("first"), prepend=True)
    net.register_forward_hook(lambda cell, args, out: order.append("last"))
    net.register_forward_hook(lambda cell, args, out: order.append("third"), prepend=True)
    net(Tensor([1.0]))
    assert order == ["first", "second", "third", "last"]


def test_a_backward_hook_of_a_cell_whose_input_has_no_gradient_gets_none() -> None:
    seen: list[Any] = []
    net = nn.Dense(2, 1, weight_init="ones")
    net.register_backward_hook(lambda cell, gin, gout: seen.append((gin, [g.asnumpy().tolist() for g in gout])))
    ms.grad(lambda x: net(x), None, net.trainable_params())(Tensor([[1.0, 2.0]]))
    assert seen == [((None,), [[[1.0]]])]


def test_to_casts_floats_and_refuses_the_rest() -> None:
    net = nn.SequentialCell(nn.Dense(2, 1), nn.BatchNorm1d(1))
    net.register_buffer("count", Tensor([1, 2]))
    net.register_buffer("mean", Tensor([1.0]))
    assert net.to(ms.float16) is net
    assert {str(p.dtype) for p in net.get_parameters()} == {"Float16"}
    assert net.count.dtype is ms.int64 and net.mean.dtype is ms.float16
    assert net.to(Tensor([1.0]))[0].weight.dtype is ms.float32
    assert net.to(device="CPU", dtype=ms.bfloat16)[0].weight.dtype is ms.bfloat16
    with pytest.raises(TypeError):
        net.to(ms.int32)
    with pytest.raises(TypeError):
        net.to(3)
    with pytest.raises(ValueError, match="CPU"):
        net.to("Ascend")


def test_loading_a_state_that_does_not_fit_changes_nothing() -> None:
    net = Net()
    before = {k: v.asnumpy().copy() for k, v in net.state_dict().items()}
    state: dict[str, Any] = {k: Tensor(v + 1) for k, v in before.items()} | {"norm.gamma": Tensor([1.0])}
    with pytest.raises(RuntimeError, match=r"size mismatch for norm\.gamma"):
        net.load_state_dict(state)
    for k, v in net.state_dict().items():
        np.testing.assert_array_equal(v.asnumpy(), before[k])


@pytest.mark.parametrize("value", ["text", np.ones(2), None])
def test_states_must_be_tensors(value: Any) -> None:
    with pytest.raises(RuntimeError, match="expected Tensor"):
        nn.PReLU().load_state_dict({"w": value})


def test_compiling_does_not_run() -> None:
    ms.set_context(mode=GRAPH_MODE)
    net = nn.BatchNorm1d(2).set_train()
    x = Tensor(ramp((4, 2)))
    assert not net.compiled and net.get_func_graph_proto() is None
    net.compile(x)
    assert net.compiled and net.get_func_graph_proto()
    assert not net.moving_mean.asnumpy().any()
    net(x)
    assert net.moving_mean.asnumpy().any()


# -- loss scaling ----------------------------------------------------------------------------------------------------------
def train_net() -> tuple[Any, Any]:
    net = nn.Dense(3, 2)
    fill(ms, net)
    return net, nn.WithLossCell(net, nn.MSELoss())


def plain_steps(count: int) -> list[Any]:
    net, loss = train_net()
    step = nn.TrainOneStepCell(loss, nn.Momentum(net.trainable_params(), 0.1, 0.9))
    for _ in range(count):
        step(Tensor(ramp((4, 3))), Tensor(ramp((4, 2), 1.0)))
    return [p.asnumpy().copy() for p in net.trainable_params()]


@pytest.mark.parametrize("mode", [PYNATIVE_MODE, GRAPH_MODE])
@pytest.mark.parametrize(
    "scale", [lambda: Tensor(16.0), lambda: nn.FixedLossScaleUpdateCell(8.0), lambda: nn.DynamicLossScaleUpdateCell(2.0**8, 2, 2)]
)
def test_scaled_steps_are_steps_and_overflow_is_left_out(scale: Any, mode: int) -> None:
    ms.set_context(mode=mode)
    net, loss = train_net()
    step = nn.TrainOneStepWithLossScaleCell(loss, nn.Momentum(net.trainable_params(), 0.1, 0.9), scale())
    x, y = Tensor(ramp((4, 3))), Tensor(ramp((4, 2), 1.0))
    results = [step(x, y) for _ in range(3)]
    assert [bool(overflow) for _, overflow, _ in results] == [False] * 3
    for p, want in zip(net.trainable_params(), plain_steps(3)):
        np.testing.assert_allclose(p.asnumpy(), want, rtol=1e-5, atol=1e-6)
    before = [p.asnumpy().copy() for p in net.trainable_params()]
    _, overflow, _ = step(Tensor(ramp((4, 3)) * 1e38), y)
    assert bool(overflow)
    for p, want in zip(net.trainable_params(), before):
        np.testing.assert_array_equal(p.asnumpy(), want)


@pytest.mark.parametrize("mode", [PYNATIVE_MODE, GRAPH_MODE])
def test_the_dynamic_loss_scale_falls_and_rises(mode: int) -> None:
    ms.set_context(mode=mode)
    manager = nn.DynamicLossScaleUpdateCell(16.0, 2, 2)
    scale = Parameter(Tensor(16.0), name="scale")
    seen = []
    for overflow in (False, False, True, False, False, True, True, True, True, True, True):
        manager(scale, Tensor(overflow))
        seen.append(float(scale))
    assert seen == [16.0, 32.0, 16.0, 16.0, 32.0, 16.0, 8.0, 4.0, 2.0, 1.0, 1.0]


def test_loss_scale_settings_are_checked() -> None:
    net, loss = train_net()
    optimizer = nn.Momentum(net.trainable_params(), 0.1, 0.9)
    with pytest.raises(TypeError):
        nn.TrainOneStepWithLossScaleCell(loss, optimizer, 3.0)
    with pytest.raises(ValueError, match="shape"):
        nn.TrainOneStepWithLossScaleCell(loss, optimizer, Tensor([1.0, 2.0]))
    with pytest.raises(TypeError):
        nn.TrainOneStepWithLossScaleCell(loss, optimizer, Tensor(1.0)).set_sense_scale(3.0)


@pytest.mark.parametrize("bad", [3, None, "net"])
def test_wrappers_take_cells(bad: Any) -> None:
    with pytest.raises(TypeError):
        nn.TrainOneStepCell(bad, nn.SGD(nn.Dense(1, 1).trainable_params()))
    with pytest.raises(TypeError):
        nn.TrainOneStepCell(nn.Dense(1, 1), bad)
