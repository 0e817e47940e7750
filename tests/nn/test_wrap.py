"""Cells around networks, loss scaling and mixed precision: as MindSpore 2.10 has them (tests/programs/mixed_precision.py), and what it
cannot do on a CPU.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphcell as ms
from graphcell import nn, ops
from graphcell.context import GRAPH_MODE, PYNATIVE_MODE
from tests.recording import check, load, ramp

MODES = (GRAPH_MODE, PYNATIVE_MODE)
HALF = 5e-3
"""Of numbers that came of float16: one unit in the last place is 1e-3, and kernels sum in float32 what MindSpore sums in float16."""


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("key", load("mixed_precision"))
def test_like_mindspore(key: str, mode: int) -> None:
    narrow = key.startswith(("level O", "training O")) and not key.endswith("O0")
    check("mixed_precision", key, mode, HALF if narrow else 2e-5)


# -- a network that is called, and then differentiated -------------------------------------------------------------------
class Stateful(nn.Cell):
    """A network whose calls can be counted: by its moving mean, by its dropout mask, by what it prints."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.dropout, self.scale = nn.BatchNorm1d(64), nn.Dropout(p=0.5), ms.Parameter(ms.Tensor([1.0]), name="scale")

    def construct(self, x: Any) -> Any:
        return (self.dropout(ops.ones_like(x)) * self.scale).sum() + 0.0 * self.norm(x).sum()


def own_step() -> type[nn.TrainOneStepCell]:
    class Step(nn.TrainOneStepCell):
        def construct(self, *inputs: Any) -> Any:
            loss = self.network(*inputs)
            sens = ops.fill(loss.dtype, loss.shape, self.sens)
            grads = self.grad(self.network, self.weights)(*inputs, sens)
            return ops.depend(loss, self.optimizer(grads)), grads

    return Step


@pytest.mark.parametrize("mode", MODES)
def test_it_runs_once(mode: int) -> None:
    """The loss and the gradient are of one dropout mask, and the moving mean moves once, as under MindSpore."""
    ms.set_context(mode=mode)
    ms.set_seed(4)
    net = Stateful()
    net.set_train()
    step = own_step()(net, nn.SGD([net.scale], 0.0))
    x = ms.Tensor(np.full((8, 64), 2.0), ms.float32)
    losses = []
    for k in range(1, 4):
        loss, grads = step(x)
        losses.append(float(loss.asnumpy()))
        np.testing.assert_allclose(grads[0].asnumpy(), [losses[-1]], rtol=1e-6)
        np.testing.assert_allclose(net.norm.moving_mean.asnumpy(), 2.0 * (1 - 0.9**k), rtol=1e-5)
    assert len(set(losses)) == 3


@pytest.mark.parametrize("mode", MODES)
def test_it_runs_once_for_one_tensor_given_twice(mode: int) -> None:
    ms.set_context(mode=mode)

    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.dropout, self.scale = nn.Dropout(p=0.5), ms.Parameter(ms.Tensor([1.0]), name="scale")

        def construct(self, x: Any, y: Any) -> Any:
            return (self.dropout(x) * self.scale * y).sum()

    net = Net()
    net.set_train()
    x = ms.Tensor(np.ones(100), ms.float32)
    loss, grads = own_step()(net, nn.SGD([net.scale], 0.0))(x, x)
    np.testing.assert_allclose(grads[0].asnumpy(), [loss.asnumpy()], rtol=1e-6)


@pytest.mark.parametrize("mode", MODES)
def test_a_trained_parameter_that_the_network_writes_is_written_once(mode: int) -> None:
    """A counter need not be marked as not trained. What is written counts for what is read after it, as under MindSpore."""
    ms.set_context(mode=mode)

    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.w, self.s = ms.Parameter(ms.Tensor([2.0, 3.0]), name="w"), ms.Parameter(ms.Tensor([0.5, 0.25]), name="s")

        def construct(self, x: Any) -> Any:
            y = x * self.s * self.w
            ops.assign_add(self.s, ms.Tensor([1.0, 1.0]))
            return (y * self.s).sum()

    net = Net()
    loss, (dw, ds) = own_step()(net, nn.SGD(net.trainable_params(), 0.0))(ms.Tensor([1.0, 2.0]))
    assert net.s.asnumpy().tolist() == [1.5, 1.25] and float(loss) == 3.375
    np.testing.assert_allclose(dw.asnumpy(), [0.75, 0.625])
    np.testing.assert_allclose(ds.asnumpy(), [2.0 * 1.5 + 2.0 * 0.5, 6.0 * 1.25 + 6.0 * 0.25])
    x = ms.Tensor([1.0, 2.0])
    net.set_grad()
    net(x)
    ms.grad(net, None, net.trainable_params())(x)
    # Two compiled functions, but one forward pass where it can wait for its gradient: in PYNATIVE_MODE.
    assert net.s.asnumpy().tolist() == ([2.5, 2.25] if mode == ms.PYNATIVE_MODE else [3.5, 3.25])


def test_prints_appear_once(capfd: pytest.CaptureFixture[str]) -> None:
    ms.set_context(mode=GRAPH_MODE)

    class Net(Steep):
        def construct(self, x: Any) -> Any:
            ops.print_("here", x.sum())
            return super().construct(x)

    net = Net()
    own_step()(net, nn.SGD(net.trainable_params(), 0.5))(ms.Tensor([1.0, 1.0]))
    assert capfd.readouterr().out.count("here") == 1


class Steep(nn.Cell):
    """w x, whose gradient is x."""

    def __init__(self) -> None:
        super().__init__()
        self.w = ms.Parameter(ms.Tensor([1.0, 2.0]), name="w")

    def construct(self, x: Any) -> Any:
        return (self.w * x).sum()


@pytest.mark.parametrize("mode", MODES)
def test_other_arguments_are_another_call(mode: int) -> None:
    """The gradient is of its own inputs and of the weights as they are then."""
    ms.set_context(mode=mode)

    class Step(nn.TrainOneStepCell):
        def construct(self, x: Any, y: Any) -> Any:
            loss = self.network(x)
            other = self.grad_no_sens(self.network, self.weights)(y)
            again = self.network(x)
            ops.assign(self.weights[0], self.weights[0] * 2.0)
            square = ms.value_and_grad(lambda x: self.network(x) ** 2, None, self.weights)(x)
            return loss, other[0], again, square[0], square[1][0]

    net = Steep()
    x, y = np.array([1.0, 3.0]), np.array([5.0, 7.0])
    found = Step(net, nn.SGD(net.trainable_params(), 0.1))(ms.Tensor(x, ms.float32), ms.Tensor(y, ms.float32))
    want = (7.0, y, 7.0, 14.0**2, 2 * 14.0 * x)
    for a, b in zip(found, want, strict=True):
        np.testing.assert_allclose(a.asnumpy(), b, rtol=1e-6)


@pytest.mark.parametrize("mode", MODES)
def test_a_batch_in_parts(mode: int) -> None:
    ms.set_context(mode=mode)
    net = Steep()
    x = ms.Tensor(ramp((6, 2)))
    for kind in (nn.MicroBatchInterleaved, nn.GradAccumulationCell, nn.PipelineCell):
        parts = kind(net, 3)
        np.testing.assert_allclose(parts(x).asnumpy(), net(x).asnumpy(), rtol=1e-5)
        np.testing.assert_allclose(ms.grad(parts, None, net.w)(x).asnumpy(), x.asnumpy().sum(0), rtol=1e-5)
        with pytest.raises(ValueError, match="micro size"):
            kind(net, 4)(x)
        with pytest.raises(TypeError):
            kind(net, 1.5)
        with pytest.raises(ValueError):
            kind(net, 0)


def test_one_device() -> None:
    """What sums or splits over devices is the identity on one."""
    net = Steep()
    gradients = (ms.Tensor([1.0]),)
    assert nn.DistributedGradReducer(net.trainable_params(), True, 8)(gradients) is gradients
    np.testing.assert_allclose(nn.PipelineGradReducer(net.trainable_params(), 2.0)(gradients)[0].asnumpy(), [0.5])
    triple = nn.VirtualDatasetCellTriple(lambda a, b, c: a + b + c)
    assert triple(*(ms.Tensor([1.0]),) * 3).asnumpy() == [3.0]
    pipeline = nn.PipelineCell(nn.SequentialCell(nn.Dense(1, 1)), 1, stage_config={"0": 3})
    assert pipeline.network[0].pipeline_stage == 3
    with pytest.raises(KeyError, match="stage_config"):
        nn.PipelineCell(nn.SequentialCell(), 1, stage_config={"there": 1})
    with pytest.raises(ValueError, match="no 'shard'"):
        pipeline.shard(())
    with pytest.raises(NotImplementedError, match="queue"):
        nn.GetNextSingleOp([ms.float32], [(1,)], "queue")()
