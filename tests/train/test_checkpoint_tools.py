"""Checkpoint files converted from one format into the other, and files of the safetensors package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

import graphcell as ms
from graphcell import Tensor, nn

pytestmark = pytest.mark.usefixtures("folder")


def tree(name: str = ".") -> list[str]:
    return sorted(str(p.relative_to(name)) for p in Path(name).rglob("*") if p.is_file())


def values(file: str, format: str) -> dict[str, Any]:
    return {name: p.asnumpy().tolist() for name, p in ms.load_checkpoint(file, format=format).items()}


CONVERSIONS = [(ms.ckpt_to_safetensors, "ckpt", "safetensors"), (ms.safetensors_to_ckpt, "safetensors", "ckpt")]


@pytest.mark.parametrize(("convert", "source", "target"), CONVERSIONS)
def test_one_file(convert: Any, source: str, target: str) -> None:
    ms.save_checkpoint(nn.Dense(3, 2), "a", format=source)
    want = values(f"a.{source}", source)
    convert(f"a.{source}")
    convert(f"a.{source}", "new/place", {"weight": "w"})
    assert tree() == sorted(["a.ckpt", "a.safetensors", f"new/place/a.{target}"])
    assert values(f"a.{target}", target) == want
    assert values(f"new/place/a.{target}", target) == {"bias": want["bias"], "w": want["weight"]}


@pytest.mark.parametrize(("convert", "source", "target"), CONVERSIONS)
def test_folders_of_ranks(convert: Any, source: str, target: str) -> None:
    for name in ("rank_0/a_1", "rank_1/a_2", "other/b"):
        (Path("in") / name).parent.mkdir(parents=True)
        ms.save_checkpoint(nn.Dense(3, 2), f"in/{name}", format=source)
    convert("in", "out")
    assert tree("out") == [f"rank_0/a_1.{target}", f"rank_1/a_2.{target}"]
    convert("in", "chosen", file_name_regex="_2")
    assert tree("chosen") == [f"rank_1/a_2.{target}"]
    convert("in", processes_num=2)
    assert f"rank_0/a_1.{target}" in tree("in") and f"other/b.{target}" not in tree("in")


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        (("missing.ckpt",), ValueError, "valid path or file"),
        ((3,), ValueError, "valid path or file"),
        (("x.txt",), ValueError, "must be a .ckpt file"),
        (("empty",), ValueError, "no directories starting with 'rank'"),
        (("a.ckpt", "b.safetensors"), ValueError, "must be a directory"),
        (("a.ckpt", None, 3), ValueError, "'name_map' must be a dict"),
        (("a.ckpt", None, {"weight": "bias"}), ValueError, "the same name"),
        (("a.ckpt", None, {"weight": 3}), TypeError, "must hold strings"),
        (("text.ckpt",), TypeError, "Tensors only"),
    ],
)
def test_what_is_refused(arguments: tuple[Any, ...], error: type[Exception], text: str) -> None:
    ms.save_checkpoint(nn.Dense(3, 2), "a.ckpt")
    ms.save_checkpoint(nn.Dense(3, 2), "text.ckpt", append_dict={"a": "text"})
    Path("x.txt").write_text("")
    Path("empty").mkdir()
    before = tree()
    with pytest.raises(error, match=text):
        ms.ckpt_to_safetensors(*arguments)
    assert tree() == before


def test_files_of_the_package_and_for_it() -> None:
    arrays = {
        "half": np.arange(6, dtype=np.float16).reshape(2, 3), "brain": np.arange(3).astype(ml_dtypes.bfloat16), "flag": np.array([True, False]),
        "scalar": np.array(3, np.uint64), "empty": np.zeros((0, 4), np.int8), "": np.array([1.0]),
    }  # fmt: skip
    safetensors.numpy.save_file(arrays, "theirs.safetensors")
    found = ms.load_checkpoint("theirs.safetensors", format="safetensors")
    assert list(found) == sorted(arrays)
    for name, want in arrays.items():
        assert found[name].dtype is Tensor(want).dtype and found[name].shape == want.shape
        np.testing.assert_array_equal(found[name].array(), want)
    del found["brain"]  # which the package cannot give as numpy
    ms.save_checkpoint(found, "ours.safetensors", format="safetensors")
    loaded = safetensors.numpy.load_file("ours.safetensors")
    assert set(loaded) == set(arrays) - {"brain"}
    for name, got in loaded.items():
        assert got.dtype == arrays[name].dtype
        np.testing.assert_array_equal(got, arrays[name])
