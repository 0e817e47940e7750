"""Weights of PyTorch models: recorded models give here what they gave there; names, shapes and files; where PyTorch is installed, both ways."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import graphcell as ms
from graphcell import Parameter, Tensor, nn
from graphcell.context import GRAPH_MODE, PYNATIVE_MODE
from graphcell.train.pytorch import load_pytorch_state_dict, pytorch_state_dict
from tests.train.pytorch_layers import MODELS, RECORDED, TIMES, array, ramp

MODELS_THERE = json.loads(RECORDED.read_text())


def build(name: str) -> Any:
    return eval(MODELS[name][1], {"nn": nn})


def state_of(name: str) -> dict[str, Any]:
    return {key: array(value) for key, value in MODELS_THERE[name]["state"].items()}


def inputs_of(name: str) -> list[Tensor]:
    if name == "gru_cell":  # whose state has no default here
        return [Tensor(ramp(MODELS[name][2])), Tensor(np.zeros((2, 4), np.float32))]
    return [Tensor(ramp(MODELS[name][2]))] * TIMES.get(name, 1)


def tensors(x: Any) -> list[Any]:
    return [t for item in x for t in tensors(item)] if isinstance(x, tuple) else [x]


@pytest.mark.parametrize("mode", [PYNATIVE_MODE, GRAPH_MODE])
@pytest.mark.parametrize("name", MODELS)
def test_recorded_models_compute_the_same(name: str, mode: int) -> None:
    ms.set_context(mode=mode)
    net = build(name)
    assert load_pytorch_state_dict(net, state_of(name), strict=True) == ([], [])
    got = tensors(net.set_train(False)(*inputs_of(name)))
    want = [array(y) for y in MODELS_THERE[name]["outputs"]]
    assert len(got) == len(want)
    for a, b in zip(got, want):
        np.testing.assert_allclose(a.asnumpy(), b, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", MODELS)
def test_states_come_back_the_same(name: str) -> None:
    net, given = build(name), state_of(name)
    load_pytorch_state_dict(net, given)
    back = pytorch_state_dict(net)
    assert set(back) == {key for key in given if "num_batches_tracked" not in key}
    for key, value in back.items():
        assert value.dtype == given[key].dtype
        np.testing.assert_array_equal(value, given[key])


class Net(nn.Cell):
    """Names of its own, a buffer, a shared layer, and a Parameter called gamma that is no normalisation's."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(4, 3)
        self.norm = nn.LayerNorm((3,))
        self.head = nn.Dense(3, 4, has_bias=False)
        self.tied = self.head
        self.gamma = Parameter(Tensor(np.ones(3, np.float32)), name="gamma")
        self.register_buffer("position", Tensor(np.arange(3, dtype=np.float32)))


def state(**changes: Any) -> dict[str, Any]:
    table = ramp((4, 3))
    found = {
        "embed.weight": table, "norm.weight": ramp((3,)), "norm.bias": ramp((3,), 1.0), "head.weight": table, "tied.weight": table,
        "gamma": ramp((3,), 2.0), "position": ramp((3,), 3.0),
    }  # fmt: skip
    return {**found, **changes}


def test_names_are_translated_by_layer() -> None:
    net = Net()
    assert load_pytorch_state_dict(net, state()) == ([], [])
    for value, key in (
        (net.embed.embedding_table, "embed.weight"), (net.norm.gamma, "norm.weight"), (net.norm.beta, "norm.bias"), (net.head.weight, "head.weight"),
        (net.gamma, "gamma"), (net.position, "position"),
    ):  # fmt: skip
        np.testing.assert_array_equal(value.asnumpy(), state()[key])
    assert set(pytorch_state_dict(net)) == set(state())


def test_what_does_not_match_is_reported_on_both_sides() -> None:
    net, given = Net(), state(**{"norm.num_batches_tracked": np.array(3), "other.weight": ramp((2,))})
    del given["norm.bias"]
    assert load_pytorch_state_dict(net, given) == (["norm.beta"], ["other.weight"])
    before = net.gamma.asnumpy().copy()
    with pytest.raises(RuntimeError, match=r"In Net: norm\.beta\. In the state_dict: other\.weight\.") as caught:
        load_pytorch_state_dict(net, {**given, "gamma": ramp((3,), 9.0)}, strict=True)
    assert "name_map" in str(caught.value)
    np.testing.assert_array_equal(net.gamma.asnumpy(), before)


def test_nothing_is_copied_if_a_shape_does_not_fit() -> None:
    net = Net()
    before = net.gamma.asnumpy().copy()
    with pytest.raises(RuntimeError, match=r"size mismatch for head\.weight.*\(3, 3\).*\(4, 3\)"):
        load_pytorch_state_dict(net, state(**{"head.weight": ramp((3, 3))}))
    np.testing.assert_array_equal(net.gamma.asnumpy(), before)


def test_paths_that_differ_are_mapped() -> None:
    net = nn.SequentialCell(nn.Dense(2, 3), nn.SequentialCell(nn.LayerNorm((3,))))
    given = {"module.fc.weight": ramp((3, 2)), "module.fc.bias": ramp((3,)), "module.norm.0.weight": ramp((3,), 1.0), "module.norm.0.bias": ramp((3,), 2.0)}
    with pytest.warns(UserWarning, match="nothing was loaded: SequentialCell has no counterpart of any of the 4 names, module.fc.weight for one"):
        missing, unused = load_pytorch_state_dict(net, given)
    assert missing == ["0.weight", "0.bias", "1.0.gamma", "1.0.beta"] and unused == list(given)
    assert load_pytorch_state_dict(net, given, {"module": "", "module.fc": "0", "module.norm": "1"}, strict=True) == ([], [])
    np.testing.assert_array_equal(net[1][0].beta.asnumpy(), given["module.norm.0.bias"])


def test_dtypes_are_those_of_the_net() -> None:
    for dtype in (ms.float16, ms.bfloat16):
        net = nn.Dense(2, 1, dtype=dtype)
        load_pytorch_state_dict(net, {"weight": np.array([[1.5, -2.0]]), "bias": np.array([0.25], ml_dtypes.bfloat16)})
        assert net.weight.dtype is dtype and net.weight.astype(ms.float32).asnumpy().tolist() == [[1.5, -2.0]]
        assert pytorch_state_dict(net)["bias"].dtype == (np.float16 if dtype is ms.float16 else np.float32)
    assert net.bias.astype(ms.float32).asnumpy().tolist() == [0.25]


def test_files(tmp_path: Path) -> None:
    net, fresh = Net(), Net()
    ms.save_checkpoint({k: Tensor(v) for k, v in pytorch_state_dict(net).items()}, str(tmp_path / "x"), format="safetensors")
    assert load_pytorch_state_dict(fresh, tmp_path / "x.safetensors", strict=True) == ([], [])
    np.testing.assert_array_equal(fresh.head.weight.asnumpy(), net.head.weight.asnumpy())
    (tmp_path / "bad.safetensors").write_bytes(b"garbage")
    (tmp_path / "x.txt").write_text("")
    for name, text in (("bad.safetensors", "corrupt"), ("missing.safetensors", "no file"), ("x.txt", "must end in")):
        with pytest.raises(ValueError, match=text):
            load_pytorch_state_dict(net, tmp_path / name)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [((3, {}), "'net' must be a Cell"), ((nn.Dense(1, 1), [1]), "must be a dict"), ((nn.Dense(1, 1), {"weight": 3}), "weight must be a Tensor or a numpy array")],
)
def test_what_is_refused(arguments: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        load_pytorch_state_dict(*arguments)


def test_a_model_instead_of_its_state_is_a_type_error_with_a_hint() -> None:
    with pytest.raises(TypeError, match=r"model\.state_dict\(\)"):
        load_pytorch_state_dict(nn.Dense(1, 1), nn.Dense(1, 1))  # type: ignore[arg-type]


def test_files_of_torch_need_torch(tmp_path: Path) -> None:
    try:
        import torch  # noqa: F401
    except ImportError:
        (tmp_path / "x.pt").write_bytes(b"")
        with pytest.raises(ValueError, match="needs PyTorch") as caught:
            load_pytorch_state_dict(nn.Dense(1, 1), tmp_path / "x.pt")
        assert "safetensors.torch.save_file" in str(caught.value)


@pytest.mark.parametrize("name", MODELS)
def test_with_pytorch_both_ways(name: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    model = eval(MODELS[name][0], {"nn": torch.nn}).eval()
    net = build(name).set_train(False)
    torch.save(model.state_dict(), tmp_path / "x.pt")
    for given in (model.state_dict(), tmp_path / "x.pt"):
        assert load_pytorch_state_dict(net, given, strict=True) == ([], [])
    for p in net.get_parameters():
        p.set_data(p * 0.5 + 0.25)
    model.load_state_dict({k: torch.from_numpy(v) for k, v in pytorch_state_dict(net).items()})
    y = model(*[torch.from_numpy(ramp(MODELS[name][2]))] * TIMES.get(name, 1))
    want = [y] if torch.is_tensor(y) else [y[0], *(y[1] if isinstance(y[1], tuple) else (y[1],))]
    for a, b in zip(tensors(net(*inputs_of(name))), want, strict=True):
        np.testing.assert_allclose(a.asnumpy(), b.detach().numpy(), rtol=1e-4, atol=1e-5)


def test_with_pytorch_bfloat16_and_hostile_files(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    net = nn.Dense(2, 1)
    load_pytorch_state_dict(net, {"weight": torch.tensor([[1.5, -2.0]], dtype=torch.bfloat16, requires_grad=True), "bias": torch.zeros(1)}, strict=True)
    assert net.weight.asnumpy().tolist() == [[1.5, -2.0]]
    torch.save({"weight": pytest.raises}, tmp_path / "x.pt")  # an object that only unpickling would give
    with pytest.raises(ValueError, match="PyTorch cannot read"):
        load_pytorch_state_dict(net, tmp_path / "x.pt")


def test_synchronized_batch_norm_has_the_names_of_batch_norm() -> None:
    assert set(pytorch_state_dict(nn.SyncBatchNorm(2))) == {"weight", "bias", "running_mean", "running_var"}
