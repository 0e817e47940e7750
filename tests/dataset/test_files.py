"""MNIST's and CIFAR's files, whole and broken."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphcell as ms
from graphcell.dataset import Cifar10Dataset, Cifar100Dataset, FashionMnistDataset, MnistDataset, PKSampler


def write_mnist(folder: Path, prefix: str, count: int, labels: int | None = None, magic: int = 2051, cut: int = 0) -> None:
    pixels = (np.arange(count * 784) % 251).astype(np.uint8).tobytes()
    (folder / f"{prefix}-images-idx3-ubyte").write_bytes((struct.pack(">IIII", magic, count, 28, 28) + pixels)[: -cut or None])
    classes = (np.arange(count if labels is None else labels) % 10).astype(np.uint8)
    (folder / f"{prefix}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 2049, len(classes)) + classes.tobytes())


def labels(data: Any, column: int = 1) -> list[int]:
    return [row[column].item() for row in data]


def test_mnist(tmp_path: Path) -> None:
    """Sizes, order, types and shapes are those that MindSpore 2.10 gave for the same files."""
    write_mnist(tmp_path, "train", 5)
    write_mnist(tmp_path, "t10k", 3)
    for kind in (MnistDataset, FashionMnistDataset):
        data = kind(str(tmp_path), shuffle=False)
        assert labels(data) == [0, 1, 2, 0, 1, 2, 3, 4]
        assert [int(row[0].asnumpy()[0, 0, 0]) for row in data] == [0, 31, 62, 0, 31, 62, 93, 124]
        assert (data.output_shapes(), data.output_types()) == ([[28, 28, 1], []], [np.uint8, np.uint32])
        assert [kind(tmp_path, usage).get_dataset_size() for usage in (None, "train", "test", "all")] == [8, 5, 3, 8]
    assert MnistDataset(tmp_path, num_samples=2).get_dataset_size() == 2
    assert sorted(labels(MnistDataset(tmp_path))) == [0, 0, 1, 1, 2, 2, 3, 4]
    assert labels(MnistDataset(tmp_path, sampler=PKSampler(1))) == [0, 1, 2, 3, 4]
    assert labels(MnistDataset(tmp_path, sampler=PKSampler(2))) == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    image, label = next(iter(MnistDataset(tmp_path, "train", shuffle=False).batch(4)))
    assert (image.shape, image.dtype, label.tolist(), label.dtype) == ((4, 28, 28, 1), ms.uint8, [0, 1, 2, 3], ms.uint32)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"magic": 2050}, "should begin with the number 2051, but got 2050"),
        ({"cut": 100}, r"should have \(5, 28, 28\) elements, but has 3,820"),
        ({"cut": 5 * 784 + 6}, "Invalid mnist file, .* should begin with the number 2051"),
        ({"labels": 4}, "has 5 images, but .* has 4 labels"),
    ],
)
def test_broken_mnist(tmp_path: Path, options: dict[str, Any], error: str) -> None:
    write_mnist(tmp_path, "train", 5, **options)
    with pytest.raises(RuntimeError, match=error):
        list(MnistDataset(tmp_path))


def test_missing_files(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="can't read the data file"):
        list(MnistDataset(tmp_path))
    with pytest.raises(RuntimeError, match="files are missing under"):
        list(Cifar10Dataset(tmp_path))
    for wrong, options in ((tmp_path / "none", {}), (tmp_path, {"usage": "foo"})):
        with pytest.raises(ValueError):
            MnistDataset(str(wrong), **options)
    (tmp_path / "train-images-idx3-ubyte").write_bytes(b"")
    with pytest.raises(RuntimeError, match="Invalid mnist file"):
        list(MnistDataset(tmp_path))


def test_cifar(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (13, 32, 32, 3)).astype(np.uint8)
    for k, name in enumerate(["data_batch_1.bin", "data_batch_2.bin", "test_batch.bin"]):
        part = images[4 * k : 4 * k + 4]
        rows = [bytes([4 * k + j]) + image.transpose(2, 0, 1).tobytes() for j, image in enumerate(part)]
        (tmp_path / name).write_bytes(b"".join(rows))
    assert labels(Cifar10Dataset(tmp_path, shuffle=False)) == list(range(12))
    assert labels(Cifar10Dataset(tmp_path, "test", shuffle=False)) == [8, 9, 10, 11]
    (batch,) = [row[0].asnumpy() for row in Cifar10Dataset(tmp_path, "train", shuffle=False).batch(8)]
    np.testing.assert_array_equal(batch, images[:8])
    (tmp_path / "train.bin").write_bytes(bytes([3, 77]) + images[0].transpose(2, 0, 1).tobytes())
    data = Cifar100Dataset(tmp_path, "train")
    assert data.get_col_names() == ["image", "coarse_label", "fine_label"]
    assert [labels(data, 1), labels(data, 2)] == [[3], [77]]
    (tmp_path / "data_batch_1.bin").write_bytes(b"x" * 3072)
    with pytest.raises(RuntimeError, match="3,072 bytes are not rows of 3073"):
        list(Cifar10Dataset(tmp_path))
