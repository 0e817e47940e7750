"""Checkpoints: MindSpore's own bytes, round trips, damaged files, writing that fails."""

from __future__ import annotations

import contextlib
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphcell as ms
from graphcell import nn
from graphcell.errors import CheckpointError
from graphcell.train.checkpoint_format import decode, encode

# written by MindSpore 2.10.0: save_checkpoint(nn.Dense(2, 1), …) after set_seed(1)
DENSE = (
    b"\n!\n\x06weight\x12\x17\x08\x01\x08\x02\x12\x07Float32\x1a\x08l\x15\xd3>\x16\x00\xb9\xbe\n\x19\n\x04bias\x12\x11\x08\x01\x12\x07Float32"
    b"\x1a\x04O\xe2\x90\xbe"
)
# and: a float16 scalar, a str
SCALAR = b"\n\x12\n\x01a\x12\r\x12\x07Float16\x1a\x02\x00>"
TEXT = b'\n"\n\x01s\x12\x1d\x08\x00\x12\x03str\x1a\x14h\x00\x00\x00e\x00\x00\x00l\x00\x00\x00l\x00\x00\x00o\x00\x00\x00'


def test_a_file_of_mindspore_loads_and_is_written_again_byte_for_byte(tmp_path: Path) -> None:
    (tmp_path / "dense.ckpt").write_bytes(DENSE)
    loaded = ms.load_checkpoint(str(tmp_path / "dense.ckpt"))
    np.testing.assert_array_equal(loaded["weight"].asnumpy(), np.array([[0.4122728, -0.36132878]], np.float32))
    assert str(loaded["bias"]) == "Parameter (name=bias, shape=(1,), dtype=Float32, requires_grad=True)"
    net = nn.Dense(2, 1)
    assert ms.load_param_into_net(net, loaded) == ([], [])
    ms.save_checkpoint(net, str(tmp_path / "again"))
    assert (tmp_path / "again.ckpt").read_bytes() == DENSE


def test_scalars_and_text() -> None:
    assert decode(TEXT) == [("s", "hello")]
    ((name, value),) = decode(SCALAR)
    assert name == "a" and value == np.float16(1.5) and value.shape == ()  # type: ignore[union-attr]
    assert b"".join(encode(decode(SCALAR) + decode(TEXT))) == SCALAR + TEXT


@pytest.mark.parametrize("dtype", [ms.bool_, ms.int8, ms.int64, ms.uint8, ms.float16, ms.bfloat16, ms.float64])
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)])
def test_round_trip(tmp_path: Path, dtype: Any, shape: tuple[int, ...]) -> None:
    x = ms.Tensor(np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)).astype(dtype)
    ms.save_checkpoint([{"name": "x", "data": x}], str(tmp_path / "x.ckpt"), append_dict={"epoch": 3})
    loaded = ms.load_checkpoint(str(tmp_path / "x.ckpt"))
    assert loaded["x"].dtype is dtype and loaded["x"].shape == shape and int(loaded["epoch"].asnumpy()) == 3
    np.testing.assert_array_equal(loaded["x"].asnumpy(), x.asnumpy())


def test_every_truncation_and_random_damage_is_an_error_or_a_checkpoint() -> None:
    for size in range(1, len(DENSE)):
        if size != DENSE.index(b"\n\x19\n\x04bias"):  # there the first entry ends
            with pytest.raises(CheckpointError):
                decode(DENSE[:size])
    rng = random.Random(0)
    for _ in range(2000):
        damaged = bytearray(DENSE + SCALAR + TEXT)
        for _ in range(3):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        with contextlib.suppress(CheckpointError):
            decode(bytes(damaged))


@pytest.mark.parametrize("content", [b"hello world this is no checkpoint", DENSE[:50], b""])
def test_foreign_and_truncated_files_are_value_errors(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad.ckpt").write_bytes(content)
    with pytest.raises(ValueError):
        ms.load_checkpoint(str(tmp_path / "bad.ckpt"))
    with pytest.raises(ValueError, match="does not exist"):
        ms.load_checkpoint(str(tmp_path / "none.ckpt"))


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "net.ckpt"
    path.write_bytes(DENSE)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        ms.save_checkpoint(nn.Dense(3, 3), str(path))
    assert path.read_bytes() == DENSE
    assert os.listdir(tmp_path) == ["net.ckpt"]


def test_a_mismatch_changes_nothing() -> None:
    net = nn.Dense(2, 1)
    before = net.weight.asnumpy().copy()
    wrong = {"weight": ms.Parameter(ms.Tensor(np.zeros((1, 2), np.float32)), name="weight"), "bias": ms.Parameter(ms.Tensor(np.zeros((4,), np.float32)), name="bias")}
    with pytest.raises(RuntimeError, match="same shape"):
        ms.load_param_into_net(net, wrong)
    np.testing.assert_array_equal(net.weight.asnumpy(), before)
    for bad in ([net], 3):
        with pytest.raises(TypeError, match="should be a Cell"):
            ms.load_param_into_net(bad, wrong)
