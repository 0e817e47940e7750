"""Attention and Transformer layers against what MindSpore 2.10 printed, computed and refused (tests/programs/transformers.json)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import graphcell as ms
from graphcell import Tensor, nn
from graphcell.context import GRAPH_MODE, PYNATIVE_MODE
from tests.recording import check, load, recorded

DIFFERENT = {"attention bool and float mask": "MindSpore adds 1 to the scores of padded keys when the other mask is float; they do not count"}
PROGRAMS = [key for key in load("transformers") if key not in DIFFERENT]
COMPILED = [key for key in PROGRAMS if isinstance(recorded("transformers")[key], dict) and "inference" in recorded("transformers")[key]]
TOLERANCE = 1e-3


@pytest.mark.parametrize("key", PROGRAMS)
def test_eager(key: str) -> None:
    check("transformers", key, PYNATIVE_MODE, TOLERANCE)


@pytest.mark.slow
@pytest.mark.parametrize("key", COMPILED)
def test_compiled(key: str) -> None:
    check("transformers", key, GRAPH_MODE, TOLERANCE)


@pytest.mark.parametrize("key", DIFFERENT)
def test_known_differences_are_differences(key: str) -> None:
    with pytest.raises(AssertionError):
        check("transformers", key, PYNATIVE_MODE, TOLERANCE)


def steps(*shape: int) -> Tensor:
    return Tensor(np.random.default_rng(5).standard_normal(shape).astype(np.float32))


@pytest.mark.parametrize("mode", [GRAPH_MODE, PYNATIVE_MODE])
def test_padded_keys_do_not_count_whatever_the_other_mask_is(mode: int) -> None:
    ms.set_context(mode=mode)
    net, x = nn.MultiheadAttention(8, 2, batch_first=True), steps(1, 6, 8)
    added = steps(6, 6)
    want, _ = net(x, x[:, :4], x[:, :4], attn_mask=added[:, :4])
    got, weights = net(x, x, x, Tensor([[False] * 4 + [True] * 2]), attn_mask=added)
    np.testing.assert_allclose(got.asnumpy(), want.asnumpy(), rtol=1e-5, atol=1e-6)
    assert not weights[:, :, 4:].asnumpy().any()


@pytest.mark.slow
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize(("mask", "padding"), [(False, False), (True, False), (False, True), (True, True)])
def test_attention_is_one_op_in_a_graph_with_its_gradient(batch_first: bool, dropout: float, mask: bool, padding: bool) -> None:
    net = nn.TransformerEncoderLayer(32, 4, 64, dropout=dropout, batch_first=batch_first).set_train()
    causal = Tensor(np.triu(np.ones((16, 16)), 1).astype(bool)) if mask else None
    padded = Tensor(np.arange(16) >= np.array([[10], [16]])) if padding else None
    x = steps(2, 16, 32) if batch_first else steps(16, 2, 32)
    step = ms.jit(ms.value_and_grad(lambda x: net(x, causal, padded).sum(), 0, net.trainable_params()))
    step(x)
    text = step.ir("optimized")
    assert (text.count(" attention["), text.count(" attention_grad["), text.count(" exp ")) == (1, 1, 0)


def test_self_attention_projects_once() -> None:
    net, x = nn.MultiheadAttention(16, 2), steps(8, 2, 16)
    run = ms.jit(lambda x: net(x, x, x, need_weights=False)[0])
    run(x)
    assert run.ir("optimized").count("matmul[") == 2


@pytest.mark.parametrize("mode", [GRAPH_MODE, PYNATIVE_MODE])
def test_a_query_without_any_key_gives_nan(mode: int) -> None:
    ms.set_context(mode=mode)
    net, x = nn.MultiheadAttention(8, 2), steps(3, 8)
    y, _ = net(x, x, x, attn_mask=Tensor([[False] * 3, [True] * 3, [False] * 3]))
    assert np.isnan(y.asnumpy()).any(1).tolist() == [False, True, False]


@pytest.mark.parametrize("mode", [GRAPH_MODE, PYNATIVE_MODE])
def test_dropout_drops_weights_in_training_only(mode: int) -> None:
    ms.set_context(mode=mode)
    net, x = nn.MultiheadAttention(8, 2, dropout=0.5).set_train(), steps(40, 8)
    _, weights = net(x, x, x, average_attn_weights=False)
    assert 0.4 < (weights.asnumpy() == 0).mean() < 0.6
    _, weights = net.set_train(False)(x, x, x, average_attn_weights=False)
    assert (weights.asnumpy() > 0).all()


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_activations_may_be_cells(activation: str) -> None:
    cell = {"relu": nn.ReLU(), "gelu": nn.GELU(False)}[activation]
    one, two = nn.TransformerEncoderLayer(8, 2, 16, 0.0, activation), nn.TransformerEncoderLayer(8, 2, 16, 0.0, cell)
    for a, b in zip(one.get_parameters(), two.get_parameters(), strict=True):
        b.set_data(a)
    x = steps(5, 2, 8)
    np.testing.assert_allclose(one(x).asnumpy(), two(x).asnumpy(), rtol=1e-6)


def test_copies_of_a_layer_start_alike_and_stay_apart() -> None:
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 2)
    a, b = (encoder.layers[k].dense1.weight for k in (0, 1))
    assert (a.name, b.name) == ("layers.0.dense1.weight", "layers.1.dense1.weight")
    assert (a.asnumpy() == b.asnumpy()).all()
    a.set_data(a * 2.0)
    assert (a.asnumpy() == b.asnumpy() * 2).all()


@pytest.mark.parametrize(
    ("make", "name", "bound"),
    [
        (lambda: nn.MultiheadAttention(64, 2), "in_proj_weight", math.sqrt(6 / 256)),
        (lambda: nn.MultiheadAttention(64, 2, kdim=32), "k_proj_weight", math.sqrt(6 / 96)),
        (lambda: nn.MultiheadAttention(64, 2), "out_proj.weight", 1 / 8),
        (lambda: nn.TransformerEncoderLayer(64, 2, 256), "dense1.weight", 1 / 8),
        (lambda: nn.Transformer(64, 2, 1, 1, 256), "encoder.layers.0.dense1.weight", math.sqrt(6 / 320)),
        (lambda: nn.Transformer(64, 2, 1, 1, 256), "decoder.layers.0.multihead_attn.out_proj.weight", math.sqrt(6 / 128)),
    ],
)
def test_weights_start_uniform(make: Any, name: str, bound: float) -> None:
    values = make().parameters_dict()[name].asnumpy()
    assert abs(values).max() <= bound * 1.0001
    np.testing.assert_allclose(values.std(), bound / math.sqrt(3), rtol=0.05)


def test_a_language_model_trains_alike_in_both_modes() -> None:
    rng = np.random.default_rng(0)
    tokens = np.cumsum(rng.integers(1, 3, (13, 16)), 0) % 10
    x, y = Tensor(tokens[:-1].astype(np.int32)), Tensor(tokens[1:].astype(np.int32))

    class Model(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.head = nn.Embedding(10, 16), nn.Dense(16, 10)
            self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, 0.0), 2, nn.LayerNorm((16,)))
            self.mask = Tensor(np.triu(np.ones((12, 12)), 1).astype(bool))

        def construct(self, x: Any) -> Any:
            return self.head(self.encoder(self.embedding(x), self.mask))

    histories = []
    for mode in (GRAPH_MODE, PYNATIVE_MODE):
        ms.set_context(mode=mode)
        ms.set_seed(3)
        net, loss_fn = Model().set_train(), nn.CrossEntropyLoss()
        optimizer = nn.Adam(net.trainable_params(), 0.01)
        step = ms.value_and_grad(lambda x, y, net=net: loss_fn(net(x).reshape((-1, 10)), y.reshape(-1)), None, optimizer.parameters)
        losses = []
        for _ in range(25):
            loss, gradients = step(x, y)
            optimizer(gradients)
            losses.append(loss.item())
        histories.append(losses)
    np.testing.assert_allclose(histories[0], histories[1], rtol=1e-3)
    assert histories[0][-1] < 0.8 < 2 < histories[0][0]
