"""What layers start with: the distributions that MindSpore 2.10's layers have (and PyTorch's, for dense and convolution layers), by formula."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import graphcell as ms
from graphcell import Parameter, nn
from graphcell.common.initializer import HeNormal, Normal, Uniform

# layer, Parameter → bound of a uniform distribution, ("normal", deviation) or the one value
LAYERS: dict[str, dict[str, Any]] = {
    "nn.Dense(200, 300)": {"weight": 1 / math.sqrt(200), "bias": 1 / math.sqrt(200)},
    "nn.BiDense(40, 50, 60)": {"weight": 1 / math.sqrt(40), "bias": 1 / math.sqrt(40)},
    "nn.Conv1d(40, 60, 5, has_bias=True)": {"weight": 1 / math.sqrt(40 * 5), "bias": 1 / math.sqrt(40 * 5)},
    "nn.Conv2d(40, 80, 5, group=4, has_bias=True)": {"weight": 1 / math.sqrt(10 * 25), "bias": 1 / math.sqrt(10 * 25)},
    "nn.Conv3d(10, 60, 3, has_bias=True)": {"weight": 1 / math.sqrt(10 * 27), "bias": 1 / math.sqrt(10 * 27)},
    "nn.Conv1dTranspose(40, 60, 5, has_bias=True)": {"weight": 1 / math.sqrt(60 * 5), "bias": 1 / math.sqrt(60 * 5)},
    "nn.Conv2dTranspose(40, 60, 5, has_bias=True)": {"weight": 1 / math.sqrt(60 * 25), "bias": 1 / math.sqrt(60 * 25)},
    "nn.Conv3dTranspose(10, 60, 3, has_bias=True)": {"weight": 1 / math.sqrt(60 * 27), "bias": 1 / math.sqrt(60 * 27)},
    "nn.Embedding(500, 100)": {"embedding_table": ("normal", 0.01)},
    "nn.RNN(30, 100)": {"weight_ih_l0": 0.1, "weight_hh_l0": 0.1, "bias_ih_l0": 0.1, "bias_hh_l0": 0.1},
    "nn.LSTM(30, 100, 2, bidirectional=True)": {"weight_ih_l1_reverse": 0.1, "weight_hh_l0": 0.1, "bias_ih_l1": 0.1, "bias_hh_l0_reverse": 0.1},
    "nn.GRU(30, 100)": {"weight_ih_l0": 0.1, "bias_hh_l0": 0.1},
    "nn.LSTMCell(30, 100)": {"weight_ih": 0.1, "weight_hh": 0.1, "bias_ih": 0.1, "bias_hh": 0.1},
    "nn.BatchNorm2d(30)": {"gamma": (1.0,), "beta": (0.0,), "mean": (0.0,), "variance": (1.0,)},
    "nn.LayerNorm((30,))": {"gamma": (1.0,), "beta": (0.0,)},
    "nn.GroupNorm(2, 30)": {"gamma": (1.0,), "beta": (0.0,)},
    "nn.PReLU(30)": {"a": (0.25,)},
}  # fmt: skip


@pytest.mark.parametrize("expression", LAYERS)
def test_distributions(expression: str) -> None:
    ms.set_seed(41)
    found = {p.name: p for p in eval(expression, {"nn": nn}).get_parameters()}
    for name, law in LAYERS[expression].items():
        check(found[name].asnumpy().astype(np.float64).reshape(-1), law)
        assert found[name].dtype is ms.float32


def check(x: Any, law: Any) -> None:
    n = x.size
    if isinstance(law, tuple) and law[0] != "normal":
        assert (x == law[0]).all()
        return
    deviation = law[1] if isinstance(law, tuple) else law / math.sqrt(3)
    assert abs(x.mean()) < 5 * deviation / math.sqrt(n)
    if isinstance(law, tuple):
        assert abs(x.std() / deviation - 1) < 5 / math.sqrt(2 * n)
        assert abs(float((np.abs(x) < deviation).mean()) - 0.6827) < 5 * math.sqrt(0.22 / n)
        return
    assert np.abs(x).max() <= law * (1 + 1e-6)
    for share in (0.1, 0.5, 0.9):  # quantiles of a uniform distribution
        below = float((x < law * (2 * share - 1)).mean())
        assert abs(below - share) < 5 * math.sqrt(share * (1 - share) / n) + 1e-9


def test_layers_of_one_net_differ_and_a_seed_repeats_them() -> None:
    def values() -> list[Any]:
        net = nn.SequentialCell(nn.Dense(4, 4), nn.Dense(4, 4), nn.Conv2d(4, 4, 1))
        return [p.asnumpy().reshape(-1).tolist() for p in net.get_parameters() if "weight" in p.name]

    ms.set_seed(7)
    first, other = values(), values()
    ms.set_seed(7)
    assert values() == first
    assert len({tuple(v) for v in first + other}) == 6


def test_initializers_given_to_layers() -> None:
    ms.set_seed(42)
    conv = nn.Conv2d(40, 60, 3, weight_init=HeNormal(negative_slope=0, mode="fan_out", nonlinearity="relu"), has_bias=True, bias_init="zeros")
    check(conv.weight.asnumpy().reshape(-1), ("normal", math.sqrt(2 / (60 * 9))))
    assert not conv.bias.asnumpy().any()
    check(nn.Dense(200, 100, weight_init=Uniform(0.3)).weight.asnumpy().reshape(-1), 0.3)
    check(nn.Embedding(100, 100, embedding_table=Normal(1.0)).embedding_table.asnumpy().reshape(-1), ("normal", 1.0))
    given = Parameter(ms.Tensor(np.eye(3, dtype=np.float32)), name="mine")
    dense = nn.Dense(3, 3, weight_init=given, bias_init=0.5)
    np.testing.assert_array_equal(dense.weight.asnumpy(), np.eye(3))
    assert dense.weight is not given and dense.weight.name == "weight" and dense.bias.asnumpy().tolist() == [0.5] * 3
