"""Items 47 to 53: checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphcell as ms
from graphcell import Parameter, Tensor, nn, ops


@pytest.fixture
def file(tmp_path: Path) -> str:
    return str(tmp_path / "dense.ckpt")


def test_item_047_a_cell_is_saved(file: str) -> None:
    net = nn.Dense(2, 1, has_bias=True)
    ms.save_checkpoint(net, file)
    assert list(ms.load_checkpoint(file)) == ["weight", "bias"]


def test_item_048_what_is_loaded_is_a_plain_dict(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    ms.save_checkpoint(nn.Dense(2, 1), file)
    found = ms.load_checkpoint(file)
    assert type(found) is dict and all(type(p) is Parameter for p in found.values())
    print(found)
    assert capsys.readouterr().out == (
        "{'weight': Parameter (name=weight, shape=(1, 2), dtype=Float32, requires_grad=True), "
        "'bias': Parameter (name=bias, shape=(1,), dtype=Float32, requires_grad=True)}\n"
    )


@pytest.mark.parametrize("kind", ["cell", "list", "dict"])
def test_item_049_what_can_be_saved(file: str, kind: str) -> None:
    net = nn.Dense(2, 1)
    save: Any = {"cell": net, "list": [{"name": p.name, "data": p.data} for p in net.get_parameters()], "dict": net.parameters_dict()}[kind]
    ms.save_checkpoint(save, file)
    found = ms.load_checkpoint(file)
    assert {k: p.asnumpy().tolist() for k, p in found.items()} == {p.name: p.asnumpy().tolist() for p in net.get_parameters()}


def test_item_049_what_cannot_be_saved_or_loaded_into(file: str) -> None:
    with pytest.raises(TypeError):
        ms.save_checkpoint(7, file)
    with pytest.raises(TypeError, match=r"For 'load_param_into_net', the argument 'net' should be a Cell, but got <class 'list'>"):
        ms.load_param_into_net([], {"w": Parameter(Tensor([1.0]), name="w")})


def test_item_050_load_param_into_net_and_what_it_returns(file: str) -> None:
    net = nn.Dense(2, 1)
    ms.save_checkpoint(net, file)
    found = ms.load_checkpoint(file)
    new_params = {name: Parameter(ops.ones_like(p.data), name=name) for name, p in found.items()}
    assert ms.load_param_into_net(net, new_params) == ([], [])
    assert net.weight.asnumpy().tolist() == [[1.0, 1.0]] and net.bias.asnumpy().tolist() == [1.0]
    assert ms.load_param_into_net(net, {"weight": new_params["weight"], "other": new_params["bias"]}) == (["bias"], ["other"])


def test_item_051_another_name_is_mended_by_a_new_dict(file: str) -> None:
    class Holder(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Dense(2, 1)

    inner, holder = nn.Dense(2, 1), Holder()
    ms.save_checkpoint(inner, file)
    found = {f"fc.{name}": Parameter(p.data, name=f"fc.{name}") for name, p in ms.load_checkpoint(file).items()}
    assert ms.load_param_into_net(holder, found) == ([], [])
    np.testing.assert_array_equal(holder.fc.weight.asnumpy(), inner.weight.asnumpy())


def test_item_052_values_come_back_bit_for_bit(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    net = nn.Dense(2, 1)
    net.weight.set_data(Tensor([[-0.0042482, -0.00427286]], ms.float32))
    net.bias.set_data(Tensor([0.0]))
    for param in net.get_parameters():
        print(param.name, param.data.asnumpy())
    ms.save_checkpoint(net, file)
    for name, param in ms.load_checkpoint(file).items():
        print(name, param.data.asnumpy())
        assert param.asnumpy().tobytes() == getattr(net, name).asnumpy().tobytes()
    assert capsys.readouterr().out.splitlines() == ["weight [[-0.0042482  -0.00427286]]", "bias [0.]"] * 2


@pytest.mark.parametrize("data", [[[1.5, 2.5]], [3], [True, False]])
def test_item_053_ones_like(mode: int, data: Any) -> None:
    x = Tensor(data)
    y = ops.ones_like(x)
    assert y.dtype == x.dtype and y.asnumpy().tolist() == np.ones_like(np.array(data)).tolist()
