"""Checkpoints: the bytes of MindSpore 2.10 both ways, what can be chosen, what is refused."""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphcell as ms
from graphcell import Parameter, Tensor, nn
from graphcell.train import checkpoint_format
from graphcell.wire import bytes_field as field
from tests.recording import fill, ramp
from tests.train.checkpoint_files import APPENDED, DENSE, EVERY, NUMBERS, SAFE, dense, entries, listed


# -- the bytes -------------------------------------------------------------------------------------------------------------
def test_a_net_is_saved_as_mindspore_does(folder: Path) -> None:
    ms.save_checkpoint(dense(), "net.ckpt")
    assert (folder / "net.ckpt").read_bytes().hex() == DENSE
    assert (folder / "net.ckpt").stat().st_mode & 0o777 == 0o400
    assert listed(folder) == ["net.ckpt"]


def test_what_is_appended_is_saved_as_mindspore_does(folder: Path) -> None:
    more = {"epoch": 3, "lr": 0.5, "flag": True, "text": "héllo", "t": Tensor([1.0])}
    ms.save_checkpoint(dense(), "net", append_dict=more)
    assert (folder / "net.ckpt").read_bytes().hex() == APPENDED


@pytest.mark.parametrize("format", ["ckpt", "safetensors"])
def test_generators_go_on_from_a_file(folder: Path, format: str) -> None:
    generator = ms.Generator().manual_seed(5)
    Tensor(np.zeros(3, np.float32)).normal_(generator=generator)
    ms.save_checkpoint(dense(), "x", append_dict={"generator": generator}, format=format)
    want = Tensor(np.zeros(3, np.float32)).normal_(generator=generator).asnumpy().tolist()
    state = ms.load_checkpoint(f"x.{format}", format=format)["generator"]
    assert (state.dtype, state.shape) == (ms.uint8, (16,))
    fresh = ms.Generator()
    fresh.set_state(state)
    assert Tensor(np.zeros(3, np.float32)).normal_(generator=fresh).asnumpy().tolist() == want


def test_every_dtype_is_saved_as_mindspore_does(folder: Path) -> None:
    rest = [
        {"name": "bf", "data": Tensor(np.array([1.5, -3.0]), ms.bfloat16)},
        {"name": "scalar", "data": Tensor(7, ms.int32)},
        {"name": "empty", "data": Tensor(np.zeros((1, 2, 2), np.float32))},
    ]
    ms.save_checkpoint([*entries(), *rest], "all.ckpt")
    assert (folder / "all.ckpt").read_bytes().hex() == EVERY


def test_files_of_mindspore_are_read(folder: Path) -> None:
    Path("a.ckpt").write_bytes(bytes.fromhex(APPENDED))
    found = ms.load_checkpoint("a.ckpt")
    assert list(found) == ["weight", "bias", "epoch", "lr", "flag", "text", "t"]
    assert str(found["weight"]) == "Parameter (name=weight, shape=(1, 2), dtype=Float32, requires_grad=True)"
    assert found["weight"].asnumpy().tolist() == [[1.5, -2.0]] and found["text"] == "héllo"
    assert (int(found["epoch"]), found["epoch"].dtype) == (3, ms.int64) and found["epoch"].shape == ()
    assert (float(found["lr"]), bool(found["flag"]), found["flag"].dtype) == (0.5, True, ms.bool_)
    Path("b.ckpt").write_bytes(bytes.fromhex(EVERY))
    every = ms.load_checkpoint("b.ckpt")
    for d in NUMBERS:
        assert every[str(d)].dtype is d and every[str(d)].asnumpy().tolist() == [1, 2, 3]
    assert every["bf"].dtype is ms.bfloat16 and every["bf"].astype(ms.float32).asnumpy().tolist() == [1.5, -3.0]
    assert every["bool"].asnumpy().tolist() == [True, False]


def test_checksums_are_mindspores(folder: Path) -> None:
    ms.save_checkpoint(dense(), "crc.ckpt", crc_check=True)
    data = Path("crc.ckpt").read_bytes()
    assert data[: len(DENSE) // 2].hex() == DENSE
    assert data[len(DENSE) // 2 :] == b"crc_num" + zlib.crc32(bytes.fromhex(DENSE)).to_bytes(10, "big")
    for check in (True, False):
        assert list(ms.load_checkpoint("crc.ckpt", crc_check=check)) == ["weight", "bias"]
    Path("bad.ckpt").write_bytes(data.replace(b"\x00\x00\xc0\x3f", b"\x00\x00\xc1\x3f"))
    for check in (True, False):
        with pytest.raises(ValueError, match=r"Failed to read[\s\S]*its checksum is wrong"):
            ms.load_checkpoint("bad.ckpt", crc_check=check)


SCALARS = {"epoch": Tensor(3), "lr": Tensor(0.5), "flag": Tensor(True), "small": Tensor(7, ms.uint8), "step": Tensor([100000], ms.int32), "many": Tensor(100000, ms.int32)}


@pytest.mark.parametrize(("more", "crc"), [({}, b"1737692117"), (SCALARS, b"2301894830")])
def test_checksums_of_safetensors_are_mindspores(folder: Path, more: dict[str, Any], crc: bytes) -> None:
    ms.save_checkpoint(dense(), "crc", format="safetensors", append_dict=more, crc_check=True)
    data = Path("crc.safetensors").read_bytes()
    assert b'"crc_num":"' + crc + b'"' in data
    assert set(ms.load_checkpoint("crc.safetensors", format="safetensors", crc_check=True)) == {"weight", "bias", *more}
    Path("bad.safetensors").write_bytes(data.replace(b"\x00\x00\xc0\x3f", b"\x00\x00\xc1\x3f"))
    with pytest.raises(ValueError, match=r"Failed to read[\s\S]*its checksum is wrong"):
        ms.load_checkpoint("bad.safetensors", format="safetensors", crc_check=True)


def test_a_negative_number_has_a_checksum_too(folder: Path) -> None:
    ms.save_checkpoint({"x": Tensor(-5)}, "x", format="safetensors", crc_check=True)
    assert int(ms.load_checkpoint("x.safetensors", format="safetensors", crc_check=True)["x"]) == -5


@pytest.mark.parametrize("format", ["ckpt", "safetensors"])
def test_a_file_without_the_checksum_asked_for(folder: Path, format: str) -> None:
    ms.save_checkpoint(dense(), "x", format=format)
    with pytest.warns(RuntimeWarning, match="the file has no checksum"):
        assert set(ms.load_checkpoint(f"x.{format}", format=format, crc_check=True)) == {"weight", "bias"}


def test_safetensors_are_mindspores(folder: Path) -> None:
    bf16, scalar = Tensor(np.array([1, 2, 3]), ms.bfloat16), Tensor(7, ms.int32)
    items = [*entries(), {"name": "BFloat16", "data": bf16}, {"name": "scalar", "data": scalar}]
    ms.save_checkpoint(items, "all", format="safetensors")
    assert listed(folder) == ["all.safetensors"]
    assert Path("all.safetensors").read_bytes().hex() == SAFE
    found = ms.load_checkpoint("all.safetensors", format="safetensors")
    assert list(found) == sorted(i["name"] for i in items)
    for item in items:
        assert found[item["name"]].dtype is item["data"].dtype
        np.testing.assert_array_equal(found[item["name"]].asnumpy(), item["data"].asnumpy())
    with pytest.raises(TypeError, match="holds Tensors only, but a is a str"):
        ms.save_checkpoint(dense(), "text", format="safetensors", append_dict={"a": "b"})
    assert listed(folder) == ["all.safetensors"]


def test_large_arrays_are_cut_and_joined() -> None:
    """MindSpore cuts after half a GB; its own files, of 600 MB too, are the same to the byte."""
    values = [("a", np.arange(10, dtype=np.float32).reshape(2, 5)), ("b", np.zeros((0, 3), np.int8)), ("c", np.array(7, np.int64)), ("s", "text")]
    data = b"".join(checkpoint_format.encode(values, checksum=True, chunk=12))
    part = b"\x08\x02\x08\x05" + field(2, b"Float32") + field(3, np.arange(3, dtype="<f4").tobytes())
    assert data.startswith(field(1, field(1, b"a") + field(2, part))) and data.count(b"\x0a\x01a") == 4
    for (name, want), (got_name, got) in zip(values, checkpoint_format.decode(data), strict=True):
        assert name == got_name and np.array_equal(want, got) and getattr(want, "dtype", None) == getattr(got, "dtype", None)


@pytest.mark.parametrize("format", ["ckpt", "safetensors"])
def test_values_come_back_bit_for_bit(folder: Path, format: str) -> None:
    rng = np.random.default_rng(1)
    bits = rng.integers(0, 256, 4 * 24, dtype=np.uint8).view(np.float32).reshape(2, 3, 4)
    names = ["a", "längere.Namen", "empty", "strided"]
    values = [bits, np.array([np.nan, -0.0, np.inf, 5e-324]), np.zeros((0, 3), np.int16), np.arange(12).reshape(3, 4).T]
    ms.save_checkpoint([{"name": n, "data": Tensor.of_array(v)} for n, v in zip(names, values)], "x", format=format)
    found = ms.load_checkpoint(f"x.{format}", format=format)
    for name, value in zip(names, values):
        got = found[name].asnumpy()
        assert got.dtype == value.dtype and got.shape == value.shape
        assert got.tobytes() == np.ascontiguousarray(value).tobytes()


def test_optimizers_keep_their_state_in_files(folder: Path) -> None:
    net = dense()
    optimizer = nn.Adam(net.trainable_params(), [0.1, 0.2])
    optimizer((Tensor(np.ones((1, 2), np.float32)), Tensor(np.ones(1, np.float32))))
    ms.save_checkpoint(optimizer, "o.ckpt")
    names = ["global_step", "weight", "bias", "beta1_power", "beta2_power"]
    names += ["moment1.weight", "moment1.bias", "moment2.weight", "moment2.bias", "learning_rate"]
    state = ms.load_checkpoint("o.ckpt")
    assert list(state) == names and state["global_step"].asnumpy().tolist() == [1]
    fresh = nn.Adam(dense().trainable_params(), [0.1, 0.2])
    assert ms.load_param_into_net(fresh, state) == ([], [])
    for a, b in zip(fresh.get_parameters(), optimizer.get_parameters()):
        np.testing.assert_array_equal(a.asnumpy(), b.asnumpy())


# -- arguments -------------------------------------------------------------------------------------------------------------
def test_saved_dicts_lists_and_choices(folder: Path) -> None:
    ms.save_checkpoint({"w": Parameter(Tensor([1.0]), name="other"), "t": Tensor([2.0]), "s": "text"}, "d.ckpt")
    assert {k: v if isinstance(v, str) else v.name for k, v in ms.load_checkpoint("d.ckpt").items()} == {"w": "w", "t": "t", "s": "text"}
    ms.save_checkpoint({"a": np.array([[1.0]])}, "n.ckpt")
    found = ms.load_checkpoint("n.ckpt")["a"]
    assert found.dtype is ms.float64 and found.asnumpy().tolist() == [[1.0]]
    ms.save_checkpoint(dense().trainable_params(), "l.ckpt")
    assert list(ms.load_checkpoint("l.ckpt")) == ["weight", "bias"]
    ms.save_checkpoint(dense(), "c.ckpt", choice_func=lambda name: name.startswith("w"))
    assert list(ms.load_checkpoint("c.ckpt")) == ["weight"]
    ms.save_checkpoint(dense(), Path("p.ckpt"))
    assert list(ms.load_checkpoint(Path("p.ckpt"))) == ["weight", "bias"]


def test_prefixes_and_choices_when_loading(folder: Path) -> None:
    ms.save_checkpoint(dense(), "a.ckpt")
    for arguments, names in (
        ({"filter_prefix": "w"}, ["bias"]),
        ({"specify_prefix": ["b", "x"]}, ["bias"]),
        ({"choice_func": lambda n: n != "bias"}, ["weight"]),
        ({"specify_prefix": ("w", "b"), "filter_prefix": "bi"}, ["weight"]),
        ({"specify_prefix": "w", "choice_func": lambda n: False}, ["weight"]),
    ):
        assert list(ms.load_checkpoint("a.ckpt", **arguments)) == names
    for arguments in ({"filter_prefix": ["w", "b"]}, {"specify_prefix": "x"}):
        with pytest.raises(ValueError, match="empty after filter"):
            ms.load_checkpoint("a.ckpt", **arguments)


@pytest.mark.parametrize(
    ("names", "missing", "values"),
    [
        (["x.weight", "x.bias"], [], [1.0, 2.0]),
        (["x.y.weight", "z.bias"], [], [1.0, 2.0]),
        (["bias", "x.weight", "x.bias"], [], [2.0, 1.0]),  # the very name comes first
        (["x.weight", "y.weight"], ["bias"], [1.0, None]),  # of several the first
        (["xweight"], ["weight", "bias"], [None, None]),  # a prefix ends at a dot
    ],
)
def test_entries_with_a_prefix_are_loaded_as_mindspore_does(names: list[str], missing: list[str], values: list[Any]) -> None:
    def given_(name: str, value: float) -> Parameter:
        return Parameter(Tensor(np.full((1, 2) if name.endswith("weight") else (1,), value, np.float32)), name=name)

    entries = {name: given_(name, value) for name, value in zip(names, (1.0, 2.0, 3.0))}
    net = nn.Dense(2, 1, weight_init="zeros", bias_init="zeros")
    assert ms.load_param_into_net(net, entries) == (missing, [n for n in names if n not in ("weight", "bias")])
    assert [float(net.weight.asnumpy().max()), float(net.bias)] == [v or 0.0 for v in values]
    net = nn.Dense(2, 1)
    assert ms.load_param_into_net(net, entries, strict_load=True)[0] == [n for n in ("weight", "bias") if n not in names]


def test_an_entry_goes_to_the_longest_name_that_ends_it() -> None:
    net = nn.SequentialCell(nn.Dense(1, 1), nn.SequentialCell(nn.Dense(1, 1)))
    entries = {f"a.{n}": Parameter(Tensor([[v]]), name=n) for n, v in (("1.0.weight", 5.0), ("0.weight", 6.0))}
    assert ms.load_param_into_net(net, entries)[0] == ["0.bias", "1.0.bias"]
    assert (float(net[0].weight), float(net[1][0].weight)) == (6.0, 5.0)


def test_loading_into_a_net(folder: Path) -> None:
    ms.save_checkpoint(dense(), "a.ckpt")
    net = nn.Dense(2, 1)
    ms.load_checkpoint("a.ckpt", net=net)
    assert net.weight.asnumpy().tolist() == [[1.5, -2.0]] and net.bias.asnumpy().tolist() == [0.25]
    before = net.weight.asnumpy().copy()
    wrong = {"weight": Parameter(Tensor([[3.0, 4.0]]), name="weight"), "bias": Parameter(Tensor([[1.0, 2.0]]), name="bias")}
    with pytest.raises(RuntimeError, match="same shape"):
        ms.load_param_into_net(net, wrong)
    np.testing.assert_array_equal(net.weight.asnumpy(), before)
    extra = {"weight": Parameter(Tensor([[3.0, 4.0]]), name="weight"), "x": Parameter(Tensor([1.0]), name="x"), "s": "text"}
    assert ms.load_param_into_net(net, extra) == (["bias"], ["x", "s"])
    assert net.weight.asnumpy().tolist() == [[3.0, 4.0]]


@pytest.mark.parametrize("target", [ms.float16, ms.bfloat16, ms.float32, ms.float64, ms.int8, ms.int32, ms.int64, ms.uint8, ms.bool_])
def test_dtypes_that_are_converted_are_mindspores(target: Any) -> None:
    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.w = Parameter(Tensor(np.zeros(2), target), name="w")

    floats, signed = {"Float16", "BFloat16", "Float32", "Float64"}, {"Int8", "Int16", "Int32", "Int64"}
    for source in (*NUMBERS, ms.bfloat16, ms.bool_):
        given_ = {"w": Parameter(Tensor(np.ones(2), source), name="w")}
        pair = {str(source), str(target)}
        if pair <= floats or pair <= signed or len(pair) == 1:
            net = Net()
            ms.load_param_into_net(net, given_)
            assert net.w.dtype is target and net.w.astype(ms.float32).asnumpy().tolist() == [1.0, 1.0]
        else:
            with pytest.raises(RuntimeError, match="same type"):
                ms.load_param_into_net(Net(), given_)
        if len(pair) > 1:
            with pytest.raises(RuntimeError, match="same type"):
                ms.load_param_into_net(Net(), given_, strict_load=True)


@pytest.mark.parametrize("shape", [(1, 2, 1), (1, 2, 1, 1)])
def test_extents_of_1_at_the_end_are_dropped(shape: tuple[int, ...]) -> None:
    net = dense()
    ms.load_param_into_net(net, {"weight": Parameter(Tensor(np.array([3.0, 4.0], np.float32).reshape(shape)), name="weight")})
    assert net.weight.asnumpy().tolist() == [[3.0, 4.0]]
    for other in ((1, 1, 2), (2, 1), (2,)):
        with pytest.raises(RuntimeError, match="same shape"):
            ms.load_param_into_net(net, {"weight": Parameter(Tensor(np.ones(other, np.float32)), name="weight")})


def test_a_scalar_and_one_element_are_the_same() -> None:
    net = nn.ParameterUpdate(Parameter(Tensor(1.0), name="p"))
    ms.load_param_into_net(net, {"p": Parameter(Tensor([5.0]), name="p")})
    assert float(next(net.get_parameters())) == 5.0


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: ms.save_checkpoint(3, "x.ckpt"), TypeError, "nn.Cell, list or dict"),
        (lambda: ms.save_checkpoint(dense(), 3), TypeError, "must be string"),
        (lambda: ms.save_checkpoint([3], "x.ckpt"), TypeError, "list of dict items"),
        (lambda: ms.save_checkpoint([{"name": "a"}], "x.ckpt"), TypeError, "list of dict items"),
        (lambda: ms.save_checkpoint([{"name": "a", "data": 3}], "x.ckpt"), TypeError, "should be parameter"),
        (lambda: ms.save_checkpoint([{"name": 3, "data": Tensor([1.0])}], "x.ckpt"), TypeError, "should be string"),
        (lambda: ms.save_checkpoint(dense(), "x.ckpt", format="xx"), ValueError, "'safetensors' or 'ckpt'"),
        (lambda: ms.save_checkpoint(dense(), "x.ckpt", append_dict=3), TypeError, "must be dict"),
        (lambda: ms.save_checkpoint(dense(), "x.ckpt", append_dict={"a": [1]}), TypeError, "append_info"),
        (lambda: ms.save_checkpoint(dense(), "x.ckpt", append_dict={3: 1}), TypeError, "append_info"),
        (lambda: ms.save_checkpoint(dense(), "x.ckpt", enc_key=b"01234"), ValueError, "must have 16 or 24 or 32 bytes"),
        (lambda: ms.save_checkpoint(dense(), "x.ckpt", enc_key="0"), ValueError, "'enc_key' must be isinstance"),
        (lambda: ms.save_checkpoint(dense(), "x.ckpt", enc_mode=0), ValueError, "'enc_mode' must be isinstance"),
        (lambda: ms.save_checkpoint(dense(), "x.ckpt", crc_check=1), ValueError, "'crc_check' must be isinstance"),
        (lambda: ms.save_checkpoint(dense(), "x.ckpt", integrated_save=1), TypeError, "must be a bool, but got int"),
        (lambda: ms.save_checkpoint(dense(), "x.ckpt", async_save=3), TypeError, "must be bool or str"),
        (lambda: ms.save_checkpoint(dense(), "x.ckpt", async_save="later"), ValueError, "'process' or 'thread'"),
        (lambda: ms.save_checkpoint(dense(), "."), IsADirectoryError, "directory"),
        (lambda: ms.save_checkpoint(dense(), "missing/x.ckpt"), FileNotFoundError, "missing"),
        (lambda: ms.load_checkpoint(3), TypeError, "must be string"),
        (lambda: ms.load_checkpoint("nothing.ckpt"), ValueError, "does not exist"),
        (lambda: ms.load_checkpoint("a"), ValueError, "format must same"),
        (lambda: ms.load_checkpoint("a.ckpt", format="zz"), ValueError, "correct 'format'"),
        (lambda: ms.load_checkpoint("a.ckpt", format="safetensors"), ValueError, "format must same"),
        (lambda: ms.load_checkpoint("a.ckpt", filter_prefix=3), TypeError, "prefix"),
        (lambda: ms.load_checkpoint("a.ckpt", filter_prefix=""), ValueError, "can't include ''"),
        (lambda: ms.load_checkpoint("a.ckpt", filter_prefix=[]), ValueError, "can't be empty"),
        (lambda: ms.load_checkpoint("a.ckpt", crc_check=1), ValueError, "'crc_check' must be isinstance"),
        (lambda: ms.load_checkpoint("a.ckpt", remove_redundancy=1), ValueError, "'remove_redundancy' must be isinstance"),
        (lambda: ms.load_checkpoint("a.ckpt", dec_mode=1), ValueError, "'dec_mode' must be isinstance"),
        (lambda: ms.load_checkpoint("a.ckpt", dec_key=b"0"), ValueError, "must have 16 or 24 or 32 bytes"),
        (lambda: ms.load_checkpoint("a.ckpt", net=3), TypeError, "should be a Cell"),
        (lambda: ms.load_param_into_net(3, {}), TypeError, "should be a Cell"),
        (lambda: ms.load_param_into_net(dense(), 3), TypeError, "should be a dict"),
        (lambda: ms.load_param_into_net(dense(), {"a": Tensor([1.0])}), TypeError, "'str' and 'Parameter'"),
        (lambda: ms.load_param_into_net(dense(), {}, strict_load=3), TypeError, "bool"),
        (lambda: ms.load_param_into_net(dense(), {}, remove_redundancy=1), ValueError, "must be isinstance"),
        (lambda: ms.load_param_into_net(dense(), {}, remove_redundancy=True), TypeError, "several devices"),
        (lambda: ms.load_param_into_net(dense(), {"bias": Parameter(1.0, name="bias")}), RuntimeError, "same shape"),
    ],
)
def test_what_is_refused(folder: Path, make: Any, error: type[Exception], text: str) -> None:
    Path("a.ckpt").write_bytes(bytes.fromhex(DENSE))
    with pytest.raises(error, match=text):
        make()
    assert listed(folder) == ["a.ckpt"]


# -- files in use ------------------------------------------------------------------------------------------------------------
def test_saving_over_a_file_replaces_it(folder: Path) -> None:
    ms.save_checkpoint(nn.Dense(3, 3), "x.ckpt")
    ms.save_checkpoint(dense(), "x.ckpt")
    assert Path("x.ckpt").read_bytes().hex() == DENSE


def test_a_link_stays_and_what_it_leads_to_is_written(folder: Path) -> None:
    """As MindSpore does; the new file does not take the link's place."""
    (folder / "runs").mkdir()
    os.symlink("runs/first.ckpt", "latest.ckpt")  # nothing is there yet
    for _ in range(2):
        ms.save_checkpoint(dense(), "latest")
        assert os.readlink("latest.ckpt") == "runs/first.ckpt"
        assert Path("runs/first.ckpt").read_bytes().hex() == DENSE
        ms.save_checkpoint(nn.Dense(3, 3), "runs/first")
    assert listed(folder / "runs") == ["first.ckpt"]


def test_a_compiled_training_goes_on_from_a_file(folder: Path) -> None:
    ms.set_context(mode=ms.GRAPH_MODE)
    x, y = Tensor(ramp((8, 3))), Tensor(ramp((8, 2), 1.0))

    def make() -> tuple[Any, Any, Any]:
        net = nn.SequentialCell(nn.Dense(3, 4), nn.ReLU(), nn.Dense(4, 2))
        fill(ms, net)
        optimizer = nn.Adam(net.trainable_params(), 0.05)
        return net, optimizer, nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), optimizer).set_train()

    _, _, step = make()
    for _ in range(2):
        step(x, y)
    ms.save_checkpoint(step, "step.ckpt")
    want = [float(step(x, y)) for _ in range(2)]
    _, _, again = make()
    assert ms.load_param_into_net(again, ms.load_checkpoint("step.ckpt"), strict_load=True) == ([], [])
    assert [float(again(x, y)) for _ in range(2)] == want
