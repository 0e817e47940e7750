"""`Cell.recompute` and `recompute`: less memory in both modes, the same numbers, the same random numbers, state changed once."""

from __future__ import annotations

import copy
import pickle
import re
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import graphcell as ms
from graphcell import nn, ops
from graphcell.ir.parser import parse
from graphcell.ir.text import print_graph

MODES = (ms.GRAPH_MODE, ms.PYNATIVE_MODE)


class Layer(nn.Cell):
    """A residual layer as transformers have them."""

    def __init__(self, width: int, p: float = 0.2):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm((width,)), nn.Dense(width, 4 * width), nn.Dense(4 * width, width)
        self.dropout = nn.Dropout(p=p)

    def construct(self, x: Any) -> Any:
        return x + self.dropout(self.down(ops.gelu(self.up(self.norm(x)))))


class Attention(nn.Cell):
    """Self-attention of one head."""

    def __init__(self, width: int):
        super().__init__()
        self.q, self.k, self.v = nn.Dense(width, width), nn.Dense(width, width), nn.Dense(width, width)

    def construct(self, x: Any) -> Any:
        scores = ops.softmax(ops.matmul(self.q(x), self.k(x).swapaxes(-1, -2)) / 4.0, -1)
        return x + ops.matmul(scores, self.v(x))


class Convolution(nn.Cell):
    """A convolution with batch statistics."""

    def __init__(self, channels: int):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(channels, channels, 3), nn.BatchNorm2d(channels)

    def construct(self, x: Any) -> Any:
        return ops.relu(self.norm(self.conv(x)))


KINDS: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "layer": (lambda: Layer(32), (128, 32)),
    "mlp": (lambda: nn.SequentialCell(nn.Dense(32, 256), nn.Tanh(), nn.Dense(256, 32), nn.Tanh()), (128, 32)),
    "attention": (lambda: Attention(32), (4, 64, 32)),
    "convolution": (lambda: Convolution(8), (4, 8, 16, 16)),
}


def build(kind: str, depth: int = 6, **settings: Any) -> tuple[Any, Any]:
    """A deep network of one kind, each layer recomputed as `settings` say (None: not at all); and an input."""
    make, shape = KINDS[kind]
    ms.set_seed(3)
    layers = [make() for _ in range(depth)]
    for k, layer in enumerate(layers):
        for p in layer.trainable_params():
            p.set_data(ms.Tensor(np.random.default_rng(k + p.size).normal(0.0, 0.3, p.shape), p.dtype))
    if settings.pop("recomputed", True):
        for layer in layers:
            layer.recompute(**settings)
    net = nn.SequentialCell(*layers)
    net.set_train()
    return net, ms.Tensor(np.random.default_rng(0).normal(size=shape), ms.float32)


def gradients(net: Any, x: Any) -> tuple[Any, list[Any]]:
    """The gradient function, compiled in GRAPH_MODE; and all that it gives for x."""
    step: Any = ms.value_and_grad(lambda x: (net(x) ** 2).mean(), 0, net.trainable_params())
    step = ms.jit(step) if ms.get_context("mode") == ms.GRAPH_MODE else step
    loss, (dx, weights) = step(x)
    return step, [t.asnumpy() for t in (loss, dx, *weights)]


def planned_bytes(step: Any) -> int:
    """The bytes of temporaries of a compiled function."""
    found = re.search(r"temporaries take ([\d,]+) bytes", step.explain())
    assert found
    return int(found[1].replace(",", ""))


@contextmanager
def peak() -> Iterator[list[int]]:
    """Puts the most bytes that were allocated inside at one time, beyond those before, into the list."""
    result: list[int] = []
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    yield result
    result.append(tracemalloc.get_traced_memory()[1] - before)
    tracemalloc.stop()


# -- memory --------------------------------------------------------------------------------------------------------------
@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_graphs_plan_fewer_bytes(kind: str) -> None:
    """So many layers that what one of them needs while it is computed again does not count."""
    ms.set_context(mode=ms.GRAPH_MODE)
    kept, _ = gradients(*build(kind, 40, recomputed=False))
    again, _ = gradients(*build(kind, 40))
    assert planned_bytes(again) < 0.6 * planned_bytes(kept)


@pytest.mark.parametrize("kind", ["loop", "LSTM"])
def test_loops_stack_fewer_values(kind: str) -> None:
    """Cells in a loop that is compiled as one, and Cells that are loops."""
    ms.set_context(mode=ms.GRAPH_MODE)

    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            layers = {"loop": lambda: nn.SequentialCell(nn.Dense(16, 256), nn.Tanh(), nn.Dense(256, 16)), "LSTM": lambda: nn.LSTM(16, 16)}
            self.layers = nn.CellList([layers[kind]() for _ in range(1 if kind == "loop" else 4)])

        def construct(self, x: Any) -> Any:
            for layer in self.layers:
                if kind == "LSTM":
                    x = layer(x)[0]
                else:
                    for _ in range(12):
                        x = ops.tanh(layer(x))
            return x

    found, x = [], ms.Tensor(np.random.default_rng(0).normal(size=(24, 64, 16) if kind == "LSTM" else (64, 16)), ms.float32)
    for recomputed in (False, True):
        net = Net()
        if recomputed:
            net.layers.recompute()
        step, _ = gradients(net, x)
        assert " for[" in step.ir()
        found.append(planned_bytes(step))
    assert found[1] < 0.6 * found[0]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_eager_mode_keeps_fewer_bytes(kind: str) -> None:
    ms.set_context(mode=ms.PYNATIVE_MODE)
    found = []
    for recomputed in (False, True):
        net, x = build(kind, 12, recomputed=recomputed)
        gradients(net, x)
        with peak() as result:
            gradients(net, x)
        found += result
    assert found[1] < 0.7 * found[0]


# -- numbers -------------------------------------------------------------------------------------------------------------
@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"output_recompute": True}, {"use_reentrant": False, "early_stop": False}])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", MODES)
def test_numbers_do_not_change(mode: int, kind: str, settings: dict[str, Any]) -> None:
    """Eagerly to the bit. In graphs other kernels add in another order, and contract other products and sums."""
    ms.set_context(mode=mode)
    nets = build(kind, 3, recomputed=False), build(kind, 3, **settings)
    results = []
    for net, x in nets:
        ms.set_seed(11)
        results.append([*gradients(net, x)[1], *gradients(net, x)[1], *[p.asnumpy() for p in net.untrainable_params()]])
    for kept, again in zip(*results, strict=True):
        if mode == ms.PYNATIVE_MODE:
            np.testing.assert_array_equal(kept, again)
        else:
            np.testing.assert_allclose(kept, again, rtol=1e-5, atol=1e-6 * np.abs(kept).max())


@pytest.mark.parametrize("mode", MODES)
def test_a_dropout_mask_is_the_same_forward_and_backward(mode: int) -> None:
    ms.set_context(mode=mode)
    dropout = nn.Dropout(p=0.5)
    dropout.set_train()
    dropout.recompute()

    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.dropout = dropout

        def construct(self, x: Any) -> Any:
            y = self.dropout(x * 1.0)
            return (y * y).sum(), y, ops.dropout(ops.ones_like(x), 0.5)

    dx, (y, later) = ms.grad(Net(), has_aux=True)(ms.Tensor(np.ones(500, np.float32)))
    np.testing.assert_allclose(dx.asnumpy(), 2.0 * y.asnumpy() * np.where(y.asnumpy() > 0, 2.0, 0.0))
    assert 150 < (y.asnumpy() == 0).sum() < 350
    assert not np.array_equal(later.asnumpy(), y.asnumpy())  # the next mask is another one


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_state_changes_once(mode: int) -> None:
    """Moving statistics after three steps are those of a network that keeps its values; so is the state of the random numbers."""
    ms.set_context(mode=mode)
    found = []
    for recomputed in (False, True):
        net, x = build("convolution", 2, recomputed=recomputed)
        for _ in range(3):
            gradients(net, x)
        found.append([p.asnumpy() for p in net.untrainable_params()])
    assert len(found[0]) == 4
    for kept, again in zip(*found, strict=True):
        np.testing.assert_allclose(kept, again, rtol=1e-6)
    states = []
    for recomputed in (False, True):
        net, x = build("layer", 2, recomputed=recomputed)
        ms.set_seed(5)
        gradients(net, x)
        states.append(ms.get_rng_state().asnumpy())
    np.testing.assert_array_equal(*states)


@pytest.mark.parametrize("mode", MODES)
def test_higher_order(mode: int) -> None:
    ms.set_context(mode=mode)

    class Cube(nn.Cell):
        def construct(self, x: Any) -> Any:
            return ops.exp(x) * x * x

    cell = Cube()
    cell.recompute()
    x = np.linspace(-1.0, 1.0, 5)
    third = ms.grad(ms.grad(ms.grad(lambda x: cell(x).sum())))(ms.Tensor(x, ms.float64))
    np.testing.assert_allclose(third.asnumpy(), np.exp(x) * (x * x + 6 * x + 6), rtol=1e-12)


@pytest.mark.parametrize("mode", MODES)
def test_inside_loops_and_branches(mode: int) -> None:
    ms.set_context(mode=mode)

    class Net(nn.Cell):
        def __init__(self, recomputed: bool) -> None:
            super().__init__()
            self.inner = nn.Dense(4, 4, weight_init=0.3, bias_init="zeros")
            if recomputed:
                self.inner.recompute()

        def construct(self, x: Any) -> Any:
            for _ in range(20):
                x = ops.tanh(self.inner(x))
            if x.sum() > 0:
                x = self.inner(x) * x
            else:
                x = self.inner(-x)
            while x.sum() < 50.0:
                x = self.inner(x) + 1.0
            return x.sum()

    def run(recomputed: bool) -> list[Any]:
        net = Net(recomputed)
        dx, weights = ms.grad(net, 0, net.trainable_params())(ms.Tensor(np.linspace(-0.1, 0.4, 8).reshape(2, 4), ms.float32))
        return [t.asnumpy() for t in (dx, *weights)]

    for kept, again in zip(run(False), run(True), strict=True):
        np.testing.assert_allclose(kept, again, rtol=1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_a_recomputed_cell_in_another(mode: int) -> None:
    ms.set_context(mode=mode)
    results = []
    for inside in (False, True):
        net, x = build("mlp", 4, recomputed=inside)
        if inside:
            net.recompute(output_recompute=True)
        results.append(gradients(net, x)[1])
    for kept, again in zip(*results, strict=True):
        np.testing.assert_allclose(kept, again, rtol=1e-5, atol=1e-7)


def test_a_compiled_function_under_a_tape() -> None:
    """`@jit` in PYNATIVE_MODE: nothing that is recomputed is handed from the compiled forward part to the compiled backward part."""
    ms.set_context(mode=ms.PYNATIVE_MODE)
    results = []
    for recomputed in (False, True):
        net, x = build("mlp", 3, recomputed=recomputed)
        step = ms.jit(lambda x, net=net: (net(x) ** 2).mean())
        results.append([t.asnumpy() for t in ms.grad(step, 0, net.trainable_params())(x)[1]])
    for kept, again in zip(*results, strict=True):
        np.testing.assert_allclose(kept, again, rtol=1e-5, atol=1e-7)


# -- what the second run sees --------------------------------------------------------------------------------------------
def test_values_from_outside_have_gradients() -> None:
    """A closure's value of the computation, and a keyword argument."""
    ms.set_context(mode=ms.PYNATIVE_MODE)

    def whole(x: Any, w: Any) -> Any:
        h = x * w
        return ms.recompute(lambda y, factor: ops.sin(y) * h * factor, x, factor=w, use_reentrant=False).sum()

    x, w = np.array([0.5, 1.5]), np.array([2.0, 3.0])
    dx, dw = ms.grad(whole, (0, 1))(ms.Tensor(x), ms.Tensor(w))
    np.testing.assert_allclose(dx.asnumpy(), w * w * (np.cos(x) * x + np.sin(x)), rtol=1e-12)
    np.testing.assert_allclose(dw.asnumpy(), 2 * w * x * np.sin(x), rtol=1e-12)


def test_a_value_that_leaks_is_refused() -> None:
    ms.set_context(mode=ms.PYNATIVE_MODE)
    leaked = []

    class Net(nn.Cell):
        def construct(self, x: Any) -> Any:
            leaked.append(x * 2.0)
            return ops.sin(x)

    with pytest.raises(RuntimeError, match="none of its results"):
        ms.grad(lambda x: (ms.recompute(Net(), x) * leaked[-1]).sum())(ms.Tensor([1.0]))


def test_arguments_written_afterwards() -> None:
    """The second run starts from the argument as it was."""
    ms.set_context(mode=ms.PYNATIVE_MODE)

    def whole(x: Any) -> Any:
        y = x * 1.0
        z = ms.recompute(nn.Sigmoid(), y)
        y[0] = 100.0
        return (z + y).sum()

    x = np.array([0.3, -0.4])
    s = 1 / (1 + np.exp(-x))
    np.testing.assert_allclose(ms.grad(whole)(ms.Tensor(x)).asnumpy(), s * (1 - s) + [0, 1], rtol=1e-6)


def test_writes_inside() -> None:
    """What the first run found in a Tensor from outside, the second finds there too; what the first left there stays."""
    ms.set_context(mode=ms.PYNATIVE_MODE)
    outside = ms.Tensor([1.0, 1.0])

    class Net(nn.Cell):
        def construct(self, x: Any) -> Any:
            y = x * ops.ones(100_000)
            y[0] = y[1] * 2.0
            ops.assign_add(outside, ms.Tensor([1.0, 0.0]))
            return y.sum() * outside[0]

    net = Net()
    net.recompute()

    assert ms.grad(net)(ms.Tensor(1.0)).asnumpy() == 2.0 * 100_001
    assert outside.asnumpy().tolist() == [2.0, 1.0]


def test_contexts_of_the_two_runs() -> None:
    ms.set_context(mode=ms.PYNATIVE_MODE)
    seen: list[str] = []

    @contextmanager
    def noting(name: str) -> Iterator[None]:
        seen.append(name)
        yield

    cell = nn.Tanh()
    cell.recompute(use_reentrant=False, context_fn=lambda: (noting("first"), noting("second")))
    ms.grad(lambda x: cell(x).sum())(ms.Tensor([1.0]))
    assert seen == ["first", "second"]


def test_without_gradients_it_runs_once() -> None:
    ms.set_context(mode=ms.PYNATIVE_MODE)
    calls: list[int] = []

    class Net(nn.Cell):
        def construct(self, x: Any) -> Any:
            calls.append(1)
            return x * 2.0

    net = Net()
    net.recompute()
    net(ms.Tensor([1.0]))
    assert len(calls) == 1
    ms.grad(lambda x: net(ops.stop_gradient(x)).sum() + x.sum())(ms.Tensor([1.0]))
    assert len(calls) == 2
    ms.grad(lambda x: net(x).sum())(ms.Tensor([1.0]))
    assert len(calls) == 4


# -- interface -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("mode", MODES)
def test_recompute_as_a_function(mode: int) -> None:
    ms.set_context(mode=mode)

    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(2, 2, 2, has_bias=False, weight_init="ones")

        def construct(self, x: Any) -> Any:
            return ops.relu(ms.recompute(self.conv, x))

    dx = ms.grad(Net())(ms.Tensor(np.full((2, 2, 2, 2), 2.0, np.float32)))
    np.testing.assert_array_equal(dx.asnumpy(), np.broadcast_to(np.array([[2.0, 4.0], [4.0, 8.0]]), (2, 2, 2, 2)))


def test_wrong_settings() -> None:
    cell = nn.Tanh()
    with pytest.raises(ValueError, match="keyword 'speed' is not recognized"):
        cell.recompute(speed=True)
    with pytest.raises(TypeError, match="mp_comm_recompute"):
        cell.recompute(mp_comm_recompute=1)
    with pytest.raises(ValueError, match="use_reentrant=False"):
        cell.recompute(context_fn=lambda: ())
    with pytest.raises(TypeError, match="output_recompute"):
        cell.recompute(output_recompute=1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="inherited from Cell"):
        ms.recompute(lambda x: x, ms.Tensor([1.0]))
    assert cell.recompute(mp_comm_recompute=False, parallel_optimizer_comm_recompute=True, recompute_slice_activation=True) is None


def test_a_compiled_function_notices() -> None:
    ms.set_context(mode=ms.GRAPH_MODE)
    net, x = build("mlp", 12, recomputed=False)
    step: Any = ms.jit(ms.grad(lambda x: (net(x) ** 2).mean()))
    before = step(x).asnumpy()
    kept = planned_bytes(step)
    for layer in net:
        layer.recompute()
    np.testing.assert_allclose(step(x).asnumpy(), before, rtol=1e-5, atol=1e-9)
    assert planned_bytes(step) < kept


def test_the_mark_in_the_graph_reads_back() -> None:
    ms.set_context(mode=ms.GRAPH_MODE)
    cell = nn.Tanh()
    cell.recompute(output_recompute=True)
    function: Any = ms.jit(lambda x: cell(x) * 2.0)
    function(ms.Tensor([1.0]))
    text = function.ir()
    assert "recomputed[outputs=True]" in text
    graph = parse(text)
    assert print_graph(parse(print_graph(graph))) == print_graph(graph)
    assert "recomputed" not in function.ir("optimized")


@pytest.mark.parametrize("mode", MODES)
def test_of_all_in_a_container(mode: int) -> None:
    ms.set_context(mode=mode)
    layers = nn.CellList([nn.Dense(2, 2), nn.CellDict({"a": nn.Tanh()})])
    layers.recompute(output_recompute=True)
    x = np.array([[0.3, -0.2]])
    layers[0].weight.set_data(ms.Tensor(np.eye(2), ms.float32))
    layers[0].bias.set_data(ms.Tensor([0.0, 0.0]))
    dx = ms.grad(lambda x: layers[1]["a"](layers[0](x)).sum())(ms.Tensor(x, ms.float32))
    np.testing.assert_allclose(dx.asnumpy(), 1 - np.tanh(x) ** 2, rtol=1e-5)
    if mode == ms.GRAPH_MODE:
        function: Any = ms.jit(lambda x: layers[1]["a"](layers[0](x)))
        function(ms.Tensor(x, ms.float32))
        assert function.ir().count("recomputed[outputs=True]") == 2


@pytest.mark.parametrize("mode", MODES)
def test_in_a_training_step(mode: int) -> None:
    """Which calls the network first, then asks for its gradient; and after copies."""
    ms.set_context(mode=mode)
    found = []
    for recomputed in (False, True):
        net, x = build("mlp", 3, recomputed=recomputed)
        net = pickle.loads(pickle.dumps(copy.deepcopy(net)))
        step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.Adam(net.trainable_params(), 0.01))
        found.append([float(step(x, x).asnumpy()) for _ in range(4)])
    np.testing.assert_allclose(*found, rtol=1e-6)


def test_random_numbers_of_a_compiled_function_inside() -> None:
    """Eagerly, a compiled function that depends on nothing that is differentiated draws the same numbers in the second run."""
    ms.set_context(mode=ms.PYNATIVE_MODE)
    noise: Any = ms.jit(lambda x: ops.dropout(ops.ones_like(x), 0.5))

    class Net(nn.Cell):
        def construct(self, x: Any) -> Any:
            return x * x * noise(ops.stop_gradient(x))

    net = Net()
    net.recompute()
    x = ms.Tensor(np.ones(200, np.float32))

    def both(x: Any) -> Any:
        y = net(x)
        return y.sum(), y

    dx, (y,) = ms.grad(both, has_aux=True)(x)
    np.testing.assert_allclose(dx.asnumpy(), 2.0 * y.asnumpy())
    assert 50 < (y.asnumpy() == 0).sum() < 150
