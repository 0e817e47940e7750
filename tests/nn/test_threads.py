"""Several threads that call one Cell: each gets its own results, and no step of a training is lost."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import graphcell as ms
from graphcell import Tensor, nn
from tests.recording import fill, ramp

THREADS = 4
MODES = [ms.GRAPH_MODE, ms.PYNATIVE_MODE]


@pytest.fixture(autouse=True)
def eager_switches() -> Iterator[None]:
    """Threads take turns as often as can be."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def together(work: Callable[[int], None]) -> None:
    """`work(number)` in all threads at one time."""
    errors: list[BaseException] = []
    start = threading.Barrier(THREADS)

    def run(number: int) -> None:
        start.wait()
        try:
            work(number)
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=run, args=(k,), daemon=True) for k in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(600)
    assert errors == [] and not any(thread.is_alive() for thread in threads)


def small_net() -> Any:
    net = nn.SequentialCell(nn.Dense(6, 8), nn.LayerNorm((8,)), nn.GELU(), nn.Dense(8, 3))
    fill(ms, net)
    return net


def rows(number: int, size: int) -> Tensor:
    return Tensor(ramp((size, 6), float(number)))


@pytest.mark.parametrize("sizes", [(4,), (1, 2, 3, 4, 7)], ids=["one shape", "many shapes"])
@pytest.mark.parametrize("mode", MODES)
def test_inference(mode: int, sizes: tuple[int, ...]) -> None:
    ms.set_context(mode=ms.PYNATIVE_MODE)
    want = {(k, n): small_net()(rows(k, n)).asnumpy() for k in range(THREADS) for n in sizes}
    ms.set_context(mode=mode)
    net = small_net()

    def work(number: int) -> None:
        for k in range(20):
            size = sizes[(k + number) % len(sizes)]
            np.testing.assert_allclose(net(rows(number, size)).asnumpy(), want[number, size], rtol=1e-4, atol=1e-5)

    together(work)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_gradients(mode: int) -> None:
    """The network keeps its forward pass for the gradient (`set_grad`): that of another thread must not serve."""

    def make() -> tuple[Any, Any]:
        net = small_net()
        net.set_grad()
        return net, ms.value_and_grad(lambda x: (net(x) ** 2).sum(), 0, net.trainable_params())

    def found(net: Any, step: Any, x: Tensor) -> list[Any]:
        net(x)
        loss, (dx, weights) = step(x)
        return [t.asnumpy() for t in (loss, dx, ms.grad(net)(x), *weights)]

    ms.set_context(mode=ms.PYNATIVE_MODE)
    sizes = (2, 3, 5)
    want = {(k, n): found(*make(), rows(k, n)) for k in range(THREADS) for n in sizes}
    ms.set_context(mode=mode)
    net, step = make()

    def work(number: int) -> None:
        for k in range(6):
            size = sizes[(k + number) % len(sizes)]
            for got, wanted in zip(found(net, step, rows(number, size)), want[number, size], strict=True):
                np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-4)

    together(work)


@pytest.mark.parametrize("mode", MODES)
def test_no_step_is_lost(mode: int) -> None:
    """Of a sum over ones the gradients are counts of rows: all steps together have a known effect."""

    class Total(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.dense = nn.Dense(6, 1, weight_init="zeros", bias_init="zeros")

        def construct(self, x: Any) -> Any:
            return self.dense(x).sum()

    ms.set_context(mode=mode)
    net = Total()
    optimizer = nn.SGD(net.trainable_params(), 0.5)
    step = nn.TrainOneStepCell(net, optimizer).set_train()
    sizes = (1, 2, 4)

    def work(number: int) -> None:
        for k in range(30):
            step(Tensor(np.ones((sizes[k % 3], 6), np.float32)))

    together(work)
    assert net.dense.bias.asnumpy().tolist() == [-0.5 * THREADS * 10 * sum(sizes)]
    assert (net.dense.weight.asnumpy() == net.dense.bias.asnumpy()).all()
    assert int(optimizer.global_step) == THREADS * 30


@pytest.mark.parametrize("mode", MODES)
def test_training_in_one_thread_and_inference_in_others(mode: int) -> None:
    """A step writes Parameters in place: an inference sees them before or after it, each whole."""
    ms.set_context(mode=mode)
    net = nn.Dense(64, 64, weight_init="zeros", bias_init="zeros")
    optimizer = nn.SGD(net.trainable_params(), 1.0)
    gradients = tuple(Tensor(-np.ones(p.shape, np.float32)) for p in net.trainable_params())
    zeros = Tensor(np.zeros((1, 64), np.float32))

    def work(number: int) -> None:
        for _ in range(40):
            if number == 0:
                optimizer(gradients)
                continue
            bias = net(zeros).asnumpy()
            assert (bias == bias[0, 0]).all() and bias[0, 0] in range(41)

    together(work)
    assert (net.bias.asnumpy() == 40.0).all()
