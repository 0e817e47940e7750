"""Encrypted checkpoints: round trips, files that MindSpore 2.10 wrote, and everything that must not be read."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphcell as ms
from graphcell import Tensor, nn
from graphcell.train import encryption

pytest.importorskip("cryptography")

MODES = ("AES-GCM", "AES-CBC", "SM4-CBC")
KEY = b"0123456789ABCDEF"
PLAIN = "0a2c0a01771227080208031207466c6f617433321a18000000000000803f0000004000004040000080400000a040"
WRITTEN_BY_MINDSPORE = {
    "AES-GCM": "d85e3a7fb4af0fd9e02a8235024828372b39b4d3460000001000000009986c3baf17cf2bf22bfad22acf346a2e000000c2011364a2da1e4deaeb23370208b1a727ee05315cd36197b10317487acb10effc172b4935a5a8acb6001ec8ebc8",
    "AES-CBC": "d95e3a7f4800000010000000e59ff669c3b8f83ad0fe075dce63229c30000000b6546b72a29a2a0784cf526a68cb23d3a133b2f98332cd91c81e1b70d77cc7cc15c1513e65e60ba295fb6de3816521d1",
    "SM4-CBC": "da5e3a7f48000000100000006249f93fe789729a7f2b0a3fd0fa6b11300000004d86ad75290a3e9a8f126f5ddad449063a8745698e9c0d83cd2820db28771e9b37dde06d477b82758a3d118fb98092d5",
}
"""One Parameter 'w' of values 0 to 5 in two rows, saved with KEY."""


@pytest.mark.parametrize("mode", MODES)
def test_files_of_mindspore(mode: str, tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    path.write_bytes(bytes.fromhex(WRITTEN_BY_MINDSPORE[mode]))
    assert encryption.decrypt(path.read_bytes(), KEY, mode).hex() == PLAIN
    loaded = ms.load_checkpoint(str(path), dec_key=KEY, dec_mode=mode)
    np.testing.assert_array_equal(loaded["w"].asnumpy(), np.arange(6, dtype=np.float32).reshape(2, 3))


@pytest.mark.parametrize("length", [16, 24, 32])
@pytest.mark.parametrize("mode", MODES)
def test_round_trip(mode: str, length: int, tmp_path: Path) -> None:
    net, path, key = nn.Dense(5, 3), str(tmp_path / "net.ckpt"), bytes(range(length))
    if mode == "SM4-CBC" and length != 16:
        with pytest.raises(ValueError, match="'enc_key' must have 16 bytes"):
            ms.save_checkpoint(net, path, enc_key=key, enc_mode=mode)
        return
    ms.save_checkpoint(net, path, enc_key=key, enc_mode=mode, append_dict={"epoch": 3}, crc_check=True)
    other = nn.Dense(5, 3)
    loaded = ms.load_checkpoint(path, other, dec_key=key, dec_mode=mode, crc_check=True)
    assert loaded["epoch"].asnumpy() == 3
    np.testing.assert_array_equal(other.weight.asnumpy(), net.weight.asnumpy())
    assert net.weight.asnumpy().tobytes() not in Path(path).read_bytes()


def test_the_same_values_never_look_the_same(tmp_path: Path) -> None:
    net = nn.Dense(2, 2)
    for name in ("a", "b"):
        ms.save_checkpoint(net, str(tmp_path / f"{name}.ckpt"), enc_key=KEY)
    assert (tmp_path / "a.ckpt").read_bytes() != (tmp_path / "b.ckpt").read_bytes()


def test_several_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encryption, "BLOCK_BYTES", 100)
    for count in (0, 1, 99, 100, 101, 250, 300):
        plain = bytes(k % 251 for k in range(count))
        blocks = list(encryption.encrypt([plain[:7], memoryview(plain)[7:]], KEY, "AES-CBC"))
        assert len(blocks) == max(1, -(-count // 100))
        assert encryption.decrypt(b"".join(blocks), KEY, "AES-CBC") == plain


def refused(path: Path, **given: Any) -> str:
    with pytest.raises(ValueError) as error:
        ms.load_checkpoint(str(path), **given)
    return str(error.value)


def test_what_cannot_be_read(tmp_path: Path) -> None:
    path, plain = tmp_path / "a.ckpt", tmp_path / "plain.ckpt"
    ms.save_checkpoint(nn.Dense(2, 2), str(path), enc_key=KEY)
    ms.save_checkpoint(nn.Dense(2, 2), str(plain))
    advice = "please pass in the correct 'dec_key'"
    assert "give 'dec_key' and 'dec_mode'" in refused(path)
    assert advice in refused(path, dec_key=KEY[::-1])
    assert "not encrypted in mode AES-CBC" in refused(path, dec_key=KEY, dec_mode="AES-CBC")
    assert advice in refused(plain, dec_key=KEY)
    assert "'dec_mode' must be one of" in refused(path, dec_key=KEY, dec_mode="AES")
    with pytest.raises(ValueError, match="'enc_mode' must be one of"):
        ms.save_checkpoint(nn.Dense(2, 2), str(tmp_path / "b.ckpt"), enc_key=KEY, enc_mode="AES")
    with pytest.raises(ValueError, match="'enc_key' must be set to default value 'None'"):
        ms.save_checkpoint(nn.Dense(2, 2), str(tmp_path / "b.safetensors"), enc_key=KEY, format="safetensors")
    assert not list(tmp_path.glob("b.*"))


@pytest.mark.parametrize("mode", MODES)
def test_changed_files_are_errors(mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for four bytes of the initial vector, which AES-GCM does not use. The CBC modes notice by the checksum of what they decrypt to, so
    with a chance of missing it: the weights and the initial vectors are the same in every run."""
    monkeypatch.setattr(encryption.os, "urandom", np.random.default_rng(7).bytes)
    path, net = tmp_path / "a.ckpt", nn.Dense(3, 3, weight_init="ones")
    ms.save_checkpoint(net, str(path), enc_key=KEY, enc_mode=mode, crc_check=True)
    unused = range(40, 44) if mode == "AES-GCM" else range(0)
    data = path.read_bytes()
    path.chmod(0o600)
    rng = np.random.default_rng(5)
    for _ in range(150):
        spoiled = bytearray(data)
        where = int(rng.integers(len(data)))
        if rng.random() < 0.3:
            spoiled = spoiled[:where]
        else:
            spoiled[where] ^= int(rng.integers(1, 256))
        path.write_bytes(bytes(spoiled))
        if len(spoiled) == len(data) and where in unused:
            loaded = ms.load_checkpoint(str(path), dec_key=KEY, dec_mode=mode)
            np.testing.assert_array_equal(loaded["weight"].asnumpy(), net.weight.asnumpy())
        else:
            refused(path, dec_key=KEY, dec_mode=mode)


def test_without_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    importing = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.partition(".")[0] == "cryptography":
            raise ImportError(name)
        return importing(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(NotImplementedError, match="pip install cryptography"):
        ms.save_checkpoint([{"name": "a", "data": Tensor([1.0])}], str(tmp_path / "a.ckpt"), enc_key=KEY)
    assert not list(tmp_path.iterdir())
