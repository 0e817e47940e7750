"""Readers of the standard files of small image collections: MNIST and those of its format, CIFAR-10, CIFAR-100.

The files are read whole when rows are first asked for. Refused: files that are missing, cut off, or of another format.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from graphcell.dataset.core.columns import Array, Row
from graphcell.dataset.engine.checks import check_no_cache, check_type
from graphcell.dataset.engine.pipeline import Blocks
from graphcell.dataset.engine.samplers import PKSampler
from graphcell.dataset.engine.sources import MappableDataset
from graphcell.errors import ArgumentValueError, DatasetError


class _ImageFiles(MappableDataset):
    """Images and labels in a few files.

    Args:
        dataset_dir: the folder with the files.
        usage: 'train', 'test' or 'all'. Default None: all.
        num_samples, shuffle, sampler, num_shards, shard_id: which rows, and in which order. Default: all, shuffled.
        num_parallel_workers: how many threads make rows. cache: must be None; the files are in memory.

    Raises:
        TypeError, ValueError: arguments of other kinds, or no such folder. RuntimeError: when rows are made, for files that do not fit.
    """

    names: tuple[str, ...] = ("image", "label")

    def __init__(
        self, dataset_dir: str, usage: str | None = None, num_samples: int | None = None, num_parallel_workers: int | None = None,
        shuffle: bool | None = None, sampler: Any = None, num_shards: int | None = None, shard_id: int | None = None, cache: Any = None,
    ):  # fmt: skip
        super().__init__(self.names, num_samples, shuffle, sampler, num_shards, shard_id, num_parallel_workers)
        check_no_cache(cache)
        self.dataset_dir = Path(check_type("dataset_dir", dataset_dir, (str, Path)))
        if not self.dataset_dir.is_dir():
            raise ArgumentValueError(f"The folder {dataset_dir} does not exist or is not a directory or permission denied!")
        if usage not in (None, "train", "test", "all"):
            raise ArgumentValueError("Input usage is not within the valid set of ['train', 'test', 'all'].")
        self.usage = usage or "all"
        self._data: tuple[Array, ...] | None = None

    def read(self) -> tuple[Array, ...]:
        """The images and the labels."""
        raise NotImplementedError

    def data(self) -> tuple[Array, ...]:
        """What `read` gave."""
        if self._data is None:
            self._data = self.read()
            if isinstance(self.sampler, PKSampler):
                self.sampler.labels = self._data[1].astype(np.int64)
        return self._data

    def wants(self, usage: str) -> bool:
        """Whether the files for `usage` are to be read."""
        return self.usage in (usage, "all")

    def count(self) -> int:
        return len(self.data()[0])

    def row(self, index: int) -> Row:
        return tuple(np.asarray(column[index]) for column in self.data())

    def blocks(self) -> Blocks:
        return Blocks(self.order, lambda indices: tuple(column.take(indices, axis=0) for column in self.data()))


class MnistDataset(_ImageFiles):
    """Columns 'image', uint8 [28, 28, 1], and 'label', uint32, of files such as train-images-idx3-ubyte. Arguments as for all collections here:

    `MnistDataset(dataset_dir, usage=None, num_samples=None, num_parallel_workers=None, shuffle=None, sampler=None, num_shards=None,
    shard_id=None, cache=None)`.

    Raises:
        TypeError, ValueError: arguments of other kinds, or no such folder. RuntimeError: when rows are made, for files that do not fit.
    """

    def read(self) -> tuple[Array, ...]:
        parts = [_read_mnist(self.dataset_dir, prefix) for usage, prefix in (("test", "t10k"), ("train", "train")) if self.wants(usage)]
        found = [part for part in parts if part]
        if not found:
            raise DatasetError(
                f"{type(self).__name__} can't read the data file (interface mismatch or no data found). Check the files in directory: {self.dataset_dir}",
                hint="expected train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte (not compressed)",
            )
        return _joined(found)


class FashionMnistDataset(MnistDataset):
    """Fashion-MNIST: files, columns and arguments as for `MnistDataset`."""


class KMnistDataset(MnistDataset):
    """Kuzushiji-MNIST: files, columns and arguments as for `MnistDataset`."""


def _read_mnist(folder: Path, prefix: str) -> tuple[Array, Array] | None:
    images, labels = (folder / f"{prefix}-{kind}-ubyte" for kind in ("images-idx3", "labels-idx1"))
    if not images.is_file() and not labels.is_file():
        return None
    pixels, classes = _read_idx(images, 2051, 3), _read_idx(labels, 2049, 1)
    if len(pixels) != len(classes):
        raise DatasetError(f"{images} has {len(pixels)} images, but {labels} has {len(classes)} labels")
    if pixels.shape[1:] != (28, 28):
        raise DatasetError(f"{images}: the images should be 28 by 28, but are {pixels.shape[1]} by {pixels.shape[2]}")
    return pixels[..., None], classes.astype(np.uint32)


def _read_idx(path: Path, magic: int, rank: int) -> Array:
    """The bytes of a file in the idx format: a magic number, an extent for each dimension (big-endian), the elements."""
    data = _read_bytes(path)
    start = 4 * (rank + 1)
    header = np.frombuffer(data[: len(data) // 4 * 4][:start], ">u4")
    if len(header) < rank + 1 or header[0] != magic:
        raise DatasetError(f"Invalid mnist file, {path} should begin with the number {magic}" + (f", but got {header[0]}" if len(header) else ""))
    shape = tuple(int(n) for n in header[1:])
    elements = np.frombuffer(data, np.uint8, offset=start)
    if elements.size != int(np.prod(shape, dtype=object)):
        raise DatasetError(f"Invalid mnist file, {path} should have {shape} elements, but has {elements.size:,}")
    return elements.reshape(shape)


class Cifar10Dataset(_ImageFiles):
    """Columns 'image', uint8 [32, 32, 3], and 'label', uint32, of data_batch_1.bin … test_batch.bin. Arguments as for `MnistDataset`.

    Raises:
        TypeError, ValueError: arguments of other kinds, or no such folder. RuntimeError: when rows are made, for files that do not fit.
    """

    def read(self) -> tuple[Array, ...]:
        files = sorted(self.dataset_dir.glob("data_batch_*.bin")) if self.wants("train") else []
        files += [self.dataset_dir / "test_batch.bin"] if self.wants("test") else []
        return _read_cifar(self.dataset_dir, files, 1)


class Cifar100Dataset(_ImageFiles):
    """Columns 'image', uint8 [32, 32, 3], 'coarse_label' and 'fine_label', uint32, of train.bin and test.bin. Arguments as for `MnistDataset`.

    Raises:
        TypeError, ValueError: arguments of other kinds, or no such folder. RuntimeError: when rows are made, for files that do not fit.
    """

    names = ("image", "coarse_label", "fine_label")

    def read(self) -> tuple[Array, ...]:
        return _read_cifar(self.dataset_dir, [self.dataset_dir / f"{usage}.bin" for usage in ("train", "test") if self.wants(usage)], 2)


def _read_cifar(folder: Path, files: Sequence[Path], labels: int) -> tuple[Array, ...]:
    """Files of rows: labels, a byte each, then 32 by 32 bytes of red, of green, of blue."""
    parts: list[tuple[Array, ...]] = []
    for path in filter(Path.is_file, files):
        data = np.frombuffer(_read_bytes(path), np.uint8)
        if not data.size or data.size % (3072 + labels):
            raise DatasetError(f"Invalid cifar file {path}: {data.size:,} bytes are not rows of {3072 + labels}", hint="use the binary version of the data")
        rows = data.reshape(-1, 3072 + labels)
        images = np.ascontiguousarray(rows[:, labels:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
        parts.append((images, *(rows[:, k].astype(np.uint32) for k in range(labels))))
    if not parts:
        raise DatasetError(f"Invalid cifar folder, cifar(.bin) files are missing under {folder}")
    return _joined(parts)


def _joined(parts: Sequence[tuple[Array, ...]]) -> tuple[Array, ...]:
    return parts[0] if len(parts) == 1 else tuple(np.concatenate(columns) for columns in zip(*parts))


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as e:
        raise DatasetError(f"cannot read {path}: {e.strerror}") from e
