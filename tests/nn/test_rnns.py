"""Recurrent layers and cells against what MindSpore 2.10 printed, computed and refused (tests/programs/recurrent.json), eagerly and compiled."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import graphcell as ms
from graphcell import Tensor, nn
from graphcell.context import GRAPH_MODE, PYNATIVE_MODE
from tests.recording import check, load, recorded

DIFFERENT = {"LSTM float16": "MindSpore's gradients are 0 in half precision"}
PROGRAMS = [key for key in load("recurrent") if key not in DIFFERENT]
COMPILED = [key for key in PROGRAMS if isinstance(recorded("recurrent")[key], dict) and "inference" in recorded("recurrent")[key]]
KINDS = (nn.RNN, nn.GRU, nn.LSTM)
MINDSPORE_TANH = 2e-3
"""MindSpore's tanh and its gradient are off by so much; the tests against float64 are sharp."""


@pytest.mark.parametrize("key", PROGRAMS)
def test_eager(key: str) -> None:
    check("recurrent", key, PYNATIVE_MODE, MINDSPORE_TANH)


@pytest.mark.slow
@pytest.mark.parametrize("key", COMPILED)
def test_compiled(key: str) -> None:
    check("recurrent", key, GRAPH_MODE, MINDSPORE_TANH)


@pytest.mark.parametrize("key", DIFFERENT)
def test_known_differences_are_differences(key: str) -> None:
    with pytest.raises(AssertionError):
        check("recurrent", key, PYNATIVE_MODE, MINDSPORE_TANH)


def sequences(steps: int, batch: int, features: int) -> Tensor:
    return Tensor(np.random.default_rng(3).standard_normal((steps, batch, features)).astype(np.float32))


@pytest.mark.parametrize("kind", KINDS)
def test_the_steps_of_a_layer_are_one_loop_with_one_product(kind: Any) -> None:
    """The inputs of all steps are projected before the loop."""
    net = kind(6, 8)
    run = ms.jit(lambda x: net(x)[0])
    run(sequences(20, 3, 6))
    text = run.ir()
    outside, inside = text.split("for[", 1)
    assert text.count("for[") == 1
    assert (outside.count("= matmul["), inside.count("= matmul[")) == (1, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_sequence_alone_gives_what_it_gives_in_a_batch_with_its_length(kind: Any) -> None:
    net, x = kind(3, 4, 2, bidirectional=True), sequences(6, 3, 3)
    output, state = net(x, seq_length=Tensor([4, 6, 1], ms.int32))
    states = state if isinstance(state, tuple) else (state,)
    for k, length in enumerate((4, 6, 1)):
        alone, end = net(x[:length, k : k + 1])
        np.testing.assert_allclose(output[:length, k : k + 1].asnumpy(), alone.asnumpy(), rtol=1e-5, atol=1e-6)
        assert not output[length:, k].asnumpy().any()
        for a, b in zip(states, end if isinstance(end, tuple) else (end,), strict=True):
            np.testing.assert_allclose(a[:, k : k + 1].asnumpy(), b.asnumpy(), rtol=1e-5, atol=1e-6)


def in_numpy(net: Any, x: Any) -> Any:
    """The outputs of a layer of one direction, from zeros, in float64."""

    def sigmoid(x: Any) -> Any:
        return 1 / (1 + np.exp(-x))

    w_ih, w_hh, b_ih, b_hh = (p.asnumpy().astype(np.float64) for p in net.get_parameters())
    h = c = np.zeros((x.shape[1], w_hh.shape[1]))
    outputs = []
    for row in x.asnumpy().astype(np.float64):
        a, b = row @ w_ih.T + b_ih, h @ w_hh.T + b_hh
        if isinstance(net, nn.LSTM):
            i, f, g, o = np.split(a + b, 4, 1)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
        elif isinstance(net, nn.GRU):
            (r1, z1, n1), (r2, z2, n2) = np.split(a, 3, 1), np.split(b, 3, 1)
            z = sigmoid(z1 + z2)
            h = (1 - z) * np.tanh(n1 + sigmoid(r1 + r2) * n2) + z * h
        else:
            h = np.tanh(a + b)
        outputs.append(h)
    return np.stack(outputs)


@pytest.mark.parametrize("mode", [GRAPH_MODE, PYNATIVE_MODE])
@pytest.mark.parametrize("kind", KINDS)
def test_outputs_are_those_of_the_formulas(kind: Any, mode: int) -> None:
    ms.set_context(mode=mode)
    net, x = kind(3, 20), sequences(9, 4, 3)
    for _ in range(5):  # the eager mode compiles after some calls
        np.testing.assert_allclose(net(x)[0].asnumpy(), in_numpy(net, x), rtol=2e-6, atol=2e-7)


@pytest.mark.parametrize(("layer", "cell"), [(nn.RNN, nn.RNNCell), (nn.GRU, nn.GRUCell), (nn.LSTM, nn.LSTMCell)])
def test_a_layer_is_its_cell_at_every_step(layer: Any, cell: Any) -> None:
    net, step, x = layer(3, 4), cell(3, 4), sequences(5, 2, 3)
    for a, b in zip(step.get_parameters(), net.get_parameters(), strict=True):
        a.set_data(b)
    h = Tensor(np.zeros((2, 4), np.float32))
    state: Any = (h, h) if layer is nn.LSTM else h
    output, _ = net(x)
    for k in range(5):
        state = step(x[k], state)
        np.testing.assert_allclose((state[0] if layer is nn.LSTM else state).asnumpy(), output[k].asnumpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("make", [*KINDS, nn.RNNCell, nn.GRUCell, nn.LSTMCell])
def test_parameters_start_uniform(make: Any) -> None:
    for p in make(40, 64).get_parameters():
        values = p.asnumpy()
        assert abs(values).max() <= 1 / math.sqrt(64)
        if values.size > 1000:
            np.testing.assert_allclose(values.std(), 1 / math.sqrt(64) / math.sqrt(3), rtol=0.05)


@pytest.mark.parametrize("mode", [GRAPH_MODE, PYNATIVE_MODE])
def test_dropout_lies_between_the_layers(mode: int) -> None:
    ms.set_context(mode=mode)
    x = sequences(4, 2, 3)
    one, two = nn.GRU(3, 64, dropout=0.9), nn.GRU(3, 64, 2, dropout=0.9)
    for net, differs in ((one, False), (two, True)):
        want = net.set_train(False)(x)[0].asnumpy()
        got = net.set_train(True)(x)[0].asnumpy()
        assert bool((abs(want - got) > 1e-4).any()) is differs


@pytest.mark.slow
def test_a_long_sequence_trains_in_both_modes() -> None:
    """The sum of the inputs decides; a network that sees it learns in a few steps."""
    rng = np.random.default_rng(0)
    data = rng.standard_normal((32, 12, 1)).astype(np.float32)
    x, y = Tensor(data), Tensor((data.sum((1, 2)) > 0).astype(np.int32))
    for mode in (GRAPH_MODE, PYNATIVE_MODE):
        ms.set_context(mode=mode)
        ms.set_seed(1)

        class Net(nn.Cell):
            def __init__(self) -> None:
                super().__init__()
                self.rnn, self.head = nn.LSTM(1, 16, batch_first=True), nn.Dense(16, 2)

            def construct(self, x: Any) -> Any:
                return self.head(self.rnn(x)[0][:, -1])

        net, loss_fn = Net(), nn.CrossEntropyLoss()
        optimizer = nn.Adam(net.trainable_params(), 0.02)
        step = ms.value_and_grad(lambda x, y: loss_fn(net(x), y), None, optimizer.parameters)
        for _ in range(40):
            loss, gradients = step(x, y)
            optimizer(gradients)
        assert loss.item() < 0.15
