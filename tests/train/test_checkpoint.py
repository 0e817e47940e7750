"""Checkpoints: the bytes of MindSpore 2.10 both ways, damaged and hostile files, crashes and full disks, what is refused."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import signal
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import graphcell as ms
from graphcell import Parameter, Tensor, nn
from graphcell.errors import CheckpointError
from graphcell.train import checkpoint_format, safetensors_format
from tests.recording import fill, ramp

# What MindSpore 2.10.0 wrote: nn.Dense(2, 1) with weight [[1.5, -2]] and bias [0.25]; the same with append_dict; one entry of each dtype.
DENSE = "0a210a067765696768741217080108021207466c6f617433321a080000c03f000000c00a190a0462696173121108011207466c6f617433321a040000803e"
APPENDED = DENSE + (
    "0a1a0a0565706f636812111205496e7436341a0803000000000000000a150a026c72120f1207466c6f617433321a040000003f"
    "0a110a04666c616712091204426f6f6c1a01010a250a0474657874121d080012037374721a1468000000e90000006c0000006c0000006f000000"
    "0a160a0174121108011207466c6f617433321a040000803f"
)
EVERY = (
    "0a150a04496e7438120d08031204496e74381a030102030a1a0a05496e743136121108031205496e7431361a060100020003000a200a05496e74333212170803"
    "1205496e7433321a0c0100000002000000030000000a2c0a05496e743634122308031205496e7436341a180100000000000000020000000000000003000000000000"
    "000a170a0555496e7438120e0803120555496e74381a030102030a1c0a0655496e74313612120803120655496e7431361a060100020003000a220a0655496e743332"
    "12180803120655496e7433321a0c0100000002000000030000000a2e0a0655496e74363412240803120655496e7436341a1801000000000000000200000000000000"
    "03000000000000000a1e0a07466c6f61743136121308031207466c6f617431361a06003c004000420a240a07466c6f61743332121908031207466c6f617433321a0c"
    "0000803f00000040000040400a300a07466c6f61743634122508031207466c6f617436341a18000000000000f03f0000000000000040000000000000"
    "08400a140a04626f6f6c120c08021204426f6f6c1a0201000a180a02626612120802120842466c6f617431361a04c03f40c00a170a067363616c6172120d1205496e"
    "7433321a04070000000a2a0a05656d70747912210801080208021207466c6f617433321a1000000000000000000000000000000000"
)
NUMBERS = (ms.int8, ms.int16, ms.int32, ms.int64, ms.uint8, ms.uint16, ms.uint32, ms.uint64, ms.float16, ms.float32, ms.float64)
SAFE = (
    "78030000000000007b225f5f6d657461646174615f5f223a7b22666f726d6174223a226d73227d2c2255496e743634223a7b226474797065223a22553634222c2273"
    "68617065223a5b335d2c22646174615f6f666673657473223a5b302c32345d7d2c22496e743634223a7b226474797065223a22493634222c227368617065223a5b33"
    "5d2c22646174615f6f666673657473223a5b32342c34385d7d2c22466c6f61743634223a7b226474797065223a22463634222c227368617065223a5b335d2c226461"
    "74615f6f666673657473223a5b34382c37325d7d2c22466c6f61743332223a7b226474797065223a22463332222c227368617065223a5b335d2c22646174615f6f66"
    "6673657473223a5b37322c38345d7d2c2255496e743332223a7b226474797065223a22553332222c227368617065223a5b335d2c22646174615f6f66667365747322"
    "3a5b38342c39365d7d2c22496e743332223a7b226474797065223a22493332222c227368617065223a5b335d2c22646174615f6f666673657473223a5b39362c3130"
    "385d7d2c227363616c6172223a7b226474797065223a22493332222c227368617065223a5b5d2c22646174615f6f666673657473223a5b3130382c3131325d7d2c22"
    "42466c6f61743136223a7b226474797065223a2242463136222c227368617065223a5b335d2c22646174615f6f666673657473223a5b3131322c3131385d7d2c2246"
    "6c6f61743136223a7b226474797065223a22463136222c227368617065223a5b335d2c22646174615f6f666673657473223a5b3131382c3132345d7d2c2255496e74"
    "3136223a7b226474797065223a22553136222c227368617065223a5b335d2c22646174615f6f666673657473223a5b3132342c3133305d7d2c22496e743136223a7b"
    "226474797065223a22493136222c227368617065223a5b335d2c22646174615f6f666673657473223a5b3133302c3133365d7d2c22496e7438223a7b226474797065"
    "223a224938222c227368617065223a5b335d2c22646174615f6f666673657473223a5b3133362c3133395d7d2c2255496e7438223a7b226474797065223a22553822"
    "2c227368617065223a5b335d2c22646174615f6f666673657473223a5b3133392c3134325d7d2c22626f6f6c223a7b226474797065223a22424f4f4c222c22736861"
    "7065223a5b325d2c22646174615f6f666673657473223a5b3134322c3134345d7d7d20202020"
    "010000000000000002000000000000000300000000000000010000000000000002000000000000000300000000000000000000000000f03f0000000000000040"
    "00000000000008400000803f000000400000404001000000020000000300000001000000020000000300000007000000803f00404040003c00400042010002000300"
    "0100020003000102030102030100"
)


def dense() -> nn.Dense:
    weight, bias = Tensor(np.array([[1.5, -2.0]], np.float32)), Tensor(np.array([0.25], np.float32))
    return nn.Dense(2, 1, weight_init=weight, bias_init=bias)


def entries() -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = [{"name": str(d), "data": Tensor(np.array([1, 2, 3]), d)} for d in NUMBERS]
    return [*items, {"name": "bool", "data": Tensor(np.array([True, False]))}]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def listed(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


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
    Path("none.ckpt").write_bytes(bytes.fromhex(DENSE))
    assert list(ms.load_checkpoint("none.ckpt", crc_check=True)) == ["weight", "bias"]


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
    wrong = {"weight": Parameter(Tensor([[3.0, 4.0]]), name="weight"), "bias": Parameter(Tensor([[1.0]]), name="bias")}
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
        (lambda: ms.save_checkpoint(dense(), "x.ckpt", enc_key=b"0123456789ABCDEF"), NotImplementedError, "encryption"),
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
        (lambda: ms.load_checkpoint("a.ckpt", dec_key=b"0"), NotImplementedError, "encryption"),
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


# -- damage ----------------------------------------------------------------------------------------------------------------
BOTH: Any = [(checkpoint_format.decode, APPENDED), (checkpoint_format.decode, EVERY), (safetensors_format.decode, SAFE)]


@pytest.mark.parametrize(("decode", "text"), BOTH)
def test_every_truncation_is_noticed(decode: Any, text: str) -> None:
    data = bytes.fromhex(text)
    whole = len(decode(data))
    for size in range(len(data)):
        try:
            assert len(decode(data[:size])) < whole  # cut between two entries
        except CheckpointError:
            continue


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damaged_files_are_errors_or_other_values(data: st.DataObject) -> None:
    decode, text = data.draw(st.sampled_from(BOTH))
    content = bytearray(bytes.fromhex(text))
    for _ in range(data.draw(st.integers(1, 4))):
        kind = data.draw(st.sampled_from(["change", "cut", "insert", "repeat"]))
        at = data.draw(st.integers(0, len(content) - 1))
        if kind == "change":
            content[at] = data.draw(st.integers(0, 255))
        elif kind == "cut":
            del content[at : at + data.draw(st.integers(1, 9))]
        elif kind == "insert":
            content[at:at] = data.draw(st.binary(min_size=1, max_size=9))
        else:
            content[at:at] = content[at : at + data.draw(st.integers(1, 30))]
        if not content:
            return
    check_decoding(decode, bytes(content))


def check_decoding(decode: Any, data: bytes) -> None:
    """Gives entries whose data are all there, or a CheckpointError; nothing else."""
    try:
        found = decode(data)
    except CheckpointError:
        return
    for name, value in found:
        assert isinstance(name, str)
        assert isinstance(value, str) or (value.nbytes <= len(data) and value.tobytes() == value.copy().tobytes())


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200), st.sampled_from([checkpoint_format.decode, safetensors_format.decode]))
@example(bytes.fromhex("0a140a017812 0f 0800 08ffffffffffffffff7f 1204496e7438 1a00".replace(" ", "")), checkpoint_format.decode)
@example(b"\x0a" + b"\xff" * 9 + b"\x01", checkpoint_format.decode)
@example((2**63).to_bytes(8, "little") + b"{}", safetensors_format.decode)
def test_any_bytes_are_errors_or_values(data: bytes, decode: Any) -> None:
    check_decoding(decode, data)


def field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2, len(content)]) + content


def entry(dims: list[bytes], kind: bytes, content: bytes) -> bytes:
    tensor = b"".join(b"\x08" + d for d in dims) + field(2, kind) + field(3, content)
    return field(1, field(1, b"x") + field(2, tensor))


HUGE = b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f"


@pytest.mark.parametrize(
    "data",
    [
        entry([HUGE, HUGE], b"Float32", b""),
        entry([b"\x00", HUGE], b"Float32", b""),
        entry([b"\x00"] + [b"\x01"] * 90, b"Int8", b""),
        entry([b"\x01"] * 70, b"Int8", b"\x01"),
        entry([b"\xff" * 9 + b"\x01"], b"Float32", b"\0\0\0\0"),
        entry([b"\x01"], b"Complex64", b"\0" * 8),
        entry([b"\x02"], b"Float32", b"\0" * 4),
        entry([b"\x01"], b"Int8", b"\x01") * 2,  # two parts of an array that one would fill
        entry([b"\x02"], b"Int8", b"\x01") + entry([b"\x02"], b"UInt8", b"\x01"),
        entry([b"\x01"], b"Int8", b"\x01") + field(1, field(1, b"y") + field(2, field(2, b"Int8") + field(3, b"\x01"))) + entry([b"\x01"], b"Int8", b"\x01"),
        entry([], b"str", b"\xff\xff\xff\xff"),
        entry([], b"\xff", b""),
        field(1, field(1, b"x")),
        field(1, field(2, b"")),
        field(1, b"\x08\x01"),
        b"\x0b",
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
    ],
)
def test_hostile_files_are_errors(data: bytes) -> None:
    with pytest.raises(CheckpointError):
        checkpoint_format.decode(data)


@pytest.mark.parametrize(
    "header",
    [
        b"[]", b"3", b"{", b"[" * 5000, b'{"a":' + b"9" * 5000 + b"}", b"\xff", b'{"a":3}', b'{"a":{"dtype":"F32"}}', b'{"a":{"dtype":"X","shape":[],"data_offsets":[0,4]}}',
        b'{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}', b'{"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}}',
        b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}}', b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,400]}}',
        b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}}', b'{"a":{"dtype":"F32","shape":[true],"data_offsets":[0,4]}}',
        b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}',  # overlapping
        b'{"a":{"dtype":"F8_E4M3","shape":[8],"data_offsets":[0,8]}}',
        b'{"a":{"dtype":"F32","shape":[9223372036854775807,0],"data_offsets":[0,0]}}', b'{"a":{"dtype":["F32"],"shape":[],"data_offsets":[0,4]}}',
    ],
)  # fmt: skip
def test_hostile_safetensors_are_errors(header: bytes) -> None:
    with pytest.raises(CheckpointError):
        safetensors_format.decode(len(header).to_bytes(8, "little") + header + b"\0" * 8)


def test_bools_are_bools_whatever_the_byte() -> None:
    (_, value), *_ = checkpoint_format.decode(entry([b"\x03"], b"Bool", b"\x00\x02\xff"))
    assert value.tolist() == [False, True, True] and value.view(np.uint8).tolist() == [0, 1, 1]  # type: ignore[union-attr]


@pytest.mark.parametrize("content", [b"", b"garbage!!", bytes.fromhex(DENSE)[:-3]])
def test_broken_files_say_so(folder: Path, content: bytes) -> None:
    Path("a.ckpt").write_bytes(content)
    with pytest.raises(ValueError, match=r"Failed to read|empty after filter"):
        ms.load_checkpoint("a.ckpt")


def test_files_that_cannot_be_read_say_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path) -> bytes:
        raise PermissionError(errno.EACCES, "Permission denied")

    ms.save_checkpoint(dense(), "a.ckpt")
    monkeypatch.setattr(Path, "read_bytes", fail)
    with pytest.raises(ValueError, match=r"May not have permission to read it.*Permission denied"):
        ms.load_checkpoint("a.ckpt")


# -- crashes ---------------------------------------------------------------------------------------------------------------
SAVER = """
import sys, numpy as np, graphcell as ms
values = [ms.Tensor(np.full((500, 500), float(k), np.float32)) for k in range(2)]
ms.save_checkpoint([{"name": "x", "data": values[0]}], sys.argv[1])
print("ready", flush=True)
k = 0
while True:
    k += 1
    ms.save_checkpoint([{"name": "x", "data": values[k % 2]}, {"name": "y", "data": values[k % 2]}], sys.argv[1])
"""


@pytest.mark.parametrize("delay", [0.003, 0.017, 0.041])
def test_a_killed_process_leaves_a_whole_file(tmp_path: Path, delay: float) -> None:
    target = tmp_path / "x.ckpt"
    process = subprocess.Popen([sys.executable, "-c", SAVER, str(target)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
    finally:
        process.kill()
        process.wait()
    found = ms.load_checkpoint(str(target))
    values = {float(v) for p in found.values() for v in np.unique(p.asnumpy())}
    assert len(values) == 1 and all(p.shape == (500, 500) for p in found.values())


def test_what_a_killed_process_left_is_removed(folder: Path) -> None:
    old, locked, young, other = (Path(f".x.ckpt.{n}.tmp") for n in "abcd")
    other = Path(".y.ckpt.d.tmp")
    for file in (old, locked, young, other):
        file.write_bytes(b"half a file")
    for file in (old, locked, other):
        os.utime(file, (0, 0))
    with locked.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        ms.save_checkpoint(dense(), "x.ckpt")
    assert listed(folder) == sorted(["x.ckpt", locked.name, young.name, other.name])


def test_file_systems_without_locks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    left = Path(".x.ckpt.a.tmp")
    left.write_bytes(b"half a file")
    os.utime(left, (0, 0))
    monkeypatch.setattr(fcntl, "flock", fail)
    ms.save_checkpoint(dense(), "x.ckpt")
    assert listed(folder) == [left.name, "x.ckpt"]


@contextmanager
def small_files() -> Iterator[None]:
    """No file can grow over 2000 bytes, as if the disk were full. It binds the whole process, a redirected report of the tests too."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.parametrize("format", ["ckpt", "safetensors"])
def test_a_full_disk_leaves_the_old_file(folder: Path, format: str) -> None:
    ms.save_checkpoint(dense(), "x", format=format)
    before = Path(f"x.{format}").read_bytes()
    layer = nn.Dense(100, 100)
    with small_files(), pytest.raises(OSError) as caught:
        ms.save_checkpoint(layer, "x", format=format)
    assert caught.value.errno == errno.EFBIG
    assert Path(f"x.{format}").read_bytes() == before and listed(folder) == [f"x.{format}"]


@pytest.mark.parametrize("step", ["fsync", "chmod", "replace"])
def test_a_failure_at_any_step_leaves_the_old_file(folder: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    ms.save_checkpoint(dense(), "x.ckpt")

    def fail(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(OSError, match="No space"):
        ms.save_checkpoint(nn.Dense(3, 3), "x.ckpt")
    assert Path("x.ckpt").read_bytes().hex() == DENSE and listed(folder) == ["x.ckpt"]


# -- in the background -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("how", [True, "thread", "process"])
def test_saving_in_the_background(folder: Path, how: Any) -> None:
    net = dense()
    for k in range(3):
        ms.save_checkpoint(net, f"{k}.ckpt", async_save=how)
        net.weight.set_data(Tensor(np.full((1, 2), k, np.float32)))  # the values are those of the call
    assert ms.load_checkpoint("2.ckpt")["weight"].asnumpy().tolist() == [[1.0, 1.0]]
    assert not ms.async_ckpt_thread_status()
    assert Path("0.ckpt").read_bytes().hex() == DENSE and listed(folder) == ["0.ckpt", "1.ckpt", "2.ckpt"]


def test_threads_that_save_and_load_at_the_same_time(folder: Path) -> None:
    errors: list[BaseException] = []

    def work(name: str, value: float) -> None:
        try:
            for k in range(12):
                ms.save_checkpoint([{"name": "x", "data": Tensor(np.full((50, 50), value, np.float32))}], name, async_save=k % 2 == 0)
                found = ms.load_checkpoint(name)["x"].asnumpy()
                assert (found == found[0, 0]).all() and found[0, 0] in (1.0, 2.0, 3.0)
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=work, args=arguments) for arguments in (("a.ckpt", 1.0), ("a.ckpt", 2.0), ("b.ckpt", 3.0))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == [] and listed(folder) == ["a.ckpt", "b.ckpt"]


def test_the_end_of_the_process_waits_for_the_background(folder: Path) -> None:
    program = "import graphcell as ms, numpy as np; ms.save_checkpoint([{'name': 'x', 'data': ms.Tensor(np.ones((2000, 2000)))}], 'x', async_save=True)"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    assert ms.load_checkpoint("x.ckpt")["x"].shape == (2000, 2000)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_error_in_the_background_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: told.append(args.exc_value))
    ms.save_checkpoint(dense(), "missing/x.ckpt", async_save=True)
    ms.save_checkpoint(dense(), "y.ckpt")
    assert listed(folder) == ["y.ckpt"] and len(told) == 1
    assert isinstance(told[0], CheckpointError) and "missing/x.ckpt could not be saved" in str(told[0])


def test_loading_in_the_background(folder: Path) -> None:
    net = nn.Dense(2, 1)
    ms.save_checkpoint(dense(), "x.ckpt")
    ms.save_checkpoint(dense(), "x", format="safetensors")
    for name in ("x.ckpt", "x.safetensors"):
        found = ms.load_checkpoint_async(name, net, choice_func=lambda n: n == "weight").result()
        assert list(found) == ["weight"] and net.weight.asnumpy().tolist() == [[1.5, -2.0]]
    failing = ms.load_checkpoint_async("missing.ckpt")
    for _ in range(2):
        with pytest.raises(ValueError, match="does not exist"):
            failing.result()


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder that nobody may write to")
def test_a_folder_that_cannot_be_written_is_an_os_error() -> None:
    with pytest.raises(OSError):
        ms.save_checkpoint(dense(), "/proc/self/x.ckpt")


def test_saving_over_a_file_replaces_it(folder: Path) -> None:
    ms.save_checkpoint(nn.Dense(3, 3), "x.ckpt")
    ms.save_checkpoint(dense(), "x.ckpt")
    assert Path("x.ckpt").read_bytes().hex() == DENSE


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
