"""Samplers: which rows of a source, in which order.

A sampler with a child picks among the rows that the child has picked. Own samplers subclass `Sampler` and define `__iter__`; any iterable of
indices does as well. Refused, when rows are asked for: indices that the source does not have.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

import numpy as np

from graphcell.dataset.core.columns import user_error
from graphcell.dataset.core.run import Run
from graphcell.dataset.engine.checks import check_int, check_type
from graphcell.errors import ArgumentTypeError, ArgumentValueError, DatasetError, NotImplementedFeatureError

Indices = np.ndarray[Any, np.dtype[np.int64]]


class BuiltinSampler:
    """Base of samplers.

    Args:
        num_samples: at most so many rows; None (or 0) means all.

    Raises:
        TypeError, ValueError: num_samples is no int of at least 0.
    """

    def __init__(self, num_samples: int | None = None):
        if num_samples is not None:
            check_type("num_samples", num_samples, int)
            if num_samples < 0:
                raise ArgumentValueError(f"num_samples should be a positive integer or None, but got {num_samples}.")
        self.num_samples = num_samples or None
        self.child_sampler: BuiltinSampler | None = None
        self.labels: Indices | None = None

    def add_child(self, sampler: BuiltinSampler) -> None:
        """Makes this one pick among the rows that `sampler` picks.

        Raises:
            RuntimeError: it has a child already. TypeError: no sampler.
        """
        check_type("sampler", sampler, BuiltinSampler)
        if self.child_sampler is not None:
            raise DatasetError("Cannot add child sampler, this sampler already has a child.")
        self.child_sampler = sampler

    def get_child(self) -> BuiltinSampler | None:
        """The child, or None."""
        return self.child_sampler

    def get_num_samples(self) -> int | None:
        """The number given, or the child's if that is smaller."""
        below = self.child_sampler.get_num_samples() if self.child_sampler else None
        known = [n for n in (self.num_samples, below) if n is not None]
        return min(known) if known else None

    def is_shuffled(self) -> bool:
        """Whether the order is a random one."""
        return self.child_sampler is not None and self.child_sampler.is_shuffled()

    def is_sharded(self) -> bool:
        """Whether this gives one of several shards."""
        return self.child_sampler is not None and self.child_sampler.is_sharded()

    def reset(self) -> None:
        """Nothing to do: each walk through the rows starts anew."""

    def draw(self, count: int, run: Run) -> Indices:
        """The indices of one epoch, for a source of `count` rows. Raises DatasetError for indices beyond them."""
        if self.child_sampler is None:
            return self._bounded(self.select(count, run), count)
        drawn = self.child_sampler.draw(count, run)
        return drawn[self._bounded(self.select(len(drawn), run), len(drawn))]

    def size(self, count: int) -> int:
        """How many indices `draw` gives."""
        return self.length(count if self.child_sampler is None else self.child_sampler.size(count))

    def length(self, count: int) -> int:
        """How many indices `select` gives."""
        return len(self.select(count, Run()))

    def select(self, count: int, run: Run) -> Indices:
        """Indices below `count`."""
        raise NotImplementedFeatureError(f"{type(self).__name__} must define select(count, run)")

    def _bounded(self, indices: Indices, count: int) -> Indices:
        wrong = (indices < 0) | (indices >= count)
        if wrong.any():
            raise DatasetError(f"{type(self).__name__}: sample ID ({indices[wrong.argmax()]}) is out of bound, expected range [0, {count - 1}]")
        return indices


class SequentialSampler(BuiltinSampler):
    """One row after the other.

    Args:
        start_index: the first one. Default None: 0.
        num_samples: see `BuiltinSampler`.
    """

    def __init__(self, start_index: int | None = None, num_samples: int | None = None):
        super().__init__(num_samples)
        self.start_index = 0 if start_index is None else int(check_type("start_index", start_index, int))

    def select(self, count: int, run: Run) -> Indices:
        if not 0 <= self.start_index < max(count, 1):
            raise DatasetError(f"SequentialSampler: start_index must be between 0 and {count - 1}, but is {self.start_index}")
        return np.arange(self.start_index, count)[: self.num_samples]


class RandomSampler(BuiltinSampler):
    """Rows in random order.

    Args:
        replacement: whether a row may come again. Default False.
        num_samples: see `BuiltinSampler`.
        shuffle: kept; orders are global.
    """

    def __init__(self, replacement: bool = False, num_samples: int | None = None, shuffle: Any = None):
        super().__init__(num_samples)
        self.deterministic, self.replacement = False, bool(check_type("replacement", replacement, bool))

    def is_shuffled(self) -> bool:
        return True

    def length(self, count: int) -> int:
        return min(self.num_samples or count, count)

    def select(self, count: int, run: Run) -> Indices:
        wanted = self.length(count)
        rng = run.rng(self)
        return rng.integers(0, count, wanted) if self.replacement else rng.permutation(count)[:wanted]


class SubsetSampler(BuiltinSampler):
    """The rows with the given indices, in that order.

    Args:
        indices: an int, or an iterable of them.
        num_samples: see `BuiltinSampler`.

    Raises:
        TypeError: an index is no int.
    """

    def __init__(self, indices: Any, num_samples: int | None = None):
        super().__init__(num_samples)
        self.indices = as_indices(type(self).__name__, indices if isinstance(indices, Iterable) else [indices])

    def select(self, count: int, run: Run) -> Indices:
        return np.array(self.indices[: self.num_samples], np.int64)


class SubsetRandomSampler(SubsetSampler):
    """The rows with the given indices, in random order. Arguments as for `SubsetSampler`."""

    def is_shuffled(self) -> bool:
        return True

    def select(self, count: int, run: Run) -> Indices:
        return run.rng(self).permutation(np.array(self.indices, np.int64))[: self.num_samples]


class WeightedRandomSampler(BuiltinSampler):
    """Random rows; row k comes with a probability proportional to `weights[k]`.

    Args:
        weights: numbers of at least 0, not all 0. Rows beyond them never come.
        num_samples: default None: as many as there are rows.
        replacement: whether a row may come again. Default True.

    Raises:
        TypeError: a weight is no number.
    """

    def __init__(self, weights: Any, num_samples: int | None = None, replacement: bool = True):
        super().__init__(num_samples)
        self.weights = list(weights) if isinstance(weights, Iterable) else [weights]
        for k, weight in enumerate(self.weights):
            if isinstance(weight, bool) or not isinstance(weight, (int, float, np.integer, np.floating)):
                raise ArgumentTypeError(f"type of weights element must be number, but got w[{k}]: {weight}, type: {type(weight)}")
        self.replacement = bool(check_type("replacement", replacement, bool))

    def is_shuffled(self) -> bool:
        return True

    def select(self, count: int, run: Run) -> Indices:
        weights = np.array(self.weights, np.float64)
        if not weights.size or not np.isfinite(weights).all() or (weights < 0).any() or not weights.any():
            raise DatasetError("WeightedRandomSampler: the weights must be finite, at least 0, and not all 0")
        wanted = min(self.num_samples or count, count)
        rng = run.rng(self)
        if self.replacement:
            return rng.choice(len(weights), wanted, p=weights / weights.sum())
        keys = rng.random(len(weights)) ** (1.0 / np.where(weights > 0, weights, 1e-300))  # Efraimidis, Spirakis (2006): the largest ones
        return np.argsort(-keys, kind="stable")[: min(wanted, len(weights))]


class PKSampler(BuiltinSampler):
    """`num_val` rows of each class, class after class. Only for the datasets of files that have labels.

    Args:
        num_val: rows of each class; where there are fewer, they come again.
        num_class: not supported, as in MindSpore.
        shuffle: classes and their rows in random order. Default False.
        class_column: the column of the classes. Default 'label'.
        num_samples: see `BuiltinSampler`.

    Raises:
        NotImplementedError: num_class is given. TypeError, ValueError: num_val is no int above 0.
    """

    def __init__(self, num_val: int, num_class: int | None = None, shuffle: bool = False, class_column: str = "label", num_samples: int | None = None):
        super().__init__(num_samples)
        if num_class is not None:
            raise NotImplementedFeatureError("Not supported to specify num_class for PKSampler.")
        self.num_val, self.shuffle = check_int("num_val", num_val, 1), bool(check_type("shuffle", shuffle, bool))
        self.class_column = str(check_type("class_column", class_column, str))

    def is_shuffled(self) -> bool:
        return self.shuffle

    def select(self, count: int, run: Run) -> Indices:
        if self.labels is None:
            raise ArgumentValueError("PKSampler needs a dataset with labels, such as MnistDataset.")
        rng = run.rng(self)
        chosen = []
        for label in np.unique(self.labels):
            rows = np.flatnonzero(self.labels == label)
            chosen.append(np.resize(rng.permutation(rows) if self.shuffle else rows, self.num_val))
        order = rng.permutation(len(chosen)) if self.shuffle else range(len(chosen))
        return np.concatenate([chosen[k] for k in order])[: self.num_samples]


class DistributedSampler(BuiltinSampler):
    """Every `num_shards`-th row, from row `shard_id` on; the first rows come again where the number of rows does not divide.

    Args:
        num_shards, shard_id: how many shards, and which.
        shuffle: in random order, the same for all shards that have the same seed. Default True.
        num_samples: see `BuiltinSampler`.
        offset: the shard that row 0 goes to (then no row comes twice). Default -1: shard 0.

    Raises:
        TypeError, ValueError: arguments of other kinds, or out of range.
    """

    def __init__(self, num_shards: int, shard_id: int, shuffle: bool = True, num_samples: int | None = None, offset: int = -1):
        super().__init__(num_samples)
        self.num_shards, self.shard_id = check_int("num_shards", num_shards, 1), int(check_type("shard_id", shard_id, int))
        self.shuffle, self.offset = bool(check_type("shuffle", shuffle, bool)), int(check_type("offset", offset, int))
        if not 0 <= shard_id < num_shards:
            raise ArgumentValueError(f"DistributedSampler: shard_id must be at least 0 and less than num_shards {num_shards}, but is {shard_id}.")
        if offset >= num_shards:
            raise ArgumentValueError(f"DistributedSampler: offset must be less than num_shards {num_shards}, but is {offset}.")

    def is_shuffled(self) -> bool:
        return self.shuffle

    def is_sharded(self) -> bool:
        return True

    def set_offset(self, offset: int) -> DistributedSampler:
        """Sets `offset`, and returns the sampler."""
        self.offset = offset
        return self

    def select(self, count: int, run: Run) -> Indices:
        order = run.shared_rng(self).permutation(count) if self.shuffle else np.arange(count)
        if self.offset >= 0:
            return order[(self.shard_id - self.offset) % self.num_shards :: self.num_shards][: self.num_samples]
        each = -(-count // self.num_shards)
        return order[(self.shard_id + self.num_shards * np.arange(each)) % max(count, 1)][: self.num_samples]


class Sampler(BuiltinSampler):
    """Base of samplers that users write: define `__iter__`, giving indices. `dataset_size` is the number of rows to choose from."""

    dataset_size = 0

    def __iter__(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define __iter__")

    def select(self, count: int, run: Run) -> Indices:
        self.dataset_size = count
        try:
            return np.array(as_indices(type(self).__name__, islice(iter(self), self.num_samples)), np.int64)
        except Exception as e:
            raise user_error(e, f"sampler {type(self).__name__}") from e


class IterSampler(Sampler):
    """An iterable of indices as a sampler. An iterator is read once, and its indices kept."""

    def __init__(self, sampler: Iterable[int], num_samples: int | None = None):
        super().__init__(num_samples)
        self.sampler = sampler if not hasattr(sampler, "__next__") else list(sampler)

    def __iter__(self) -> Any:
        return iter(self.sampler)


def as_indices(owner: str, indices: Iterable[Any]) -> list[int]:
    """Indices as a list. Raises TypeError: one is no int."""
    result = list(indices)
    for k, index in enumerate(result):
        if isinstance(index, bool) or not isinstance(index, (int, np.integer)):
            raise ArgumentTypeError(f"{owner}: Type of indices element must be int, but got list[{k}]: {index}, type: {type(index)}.")
    return [int(k) for k in result]


def select_sampler(num_samples: Any, sampler: Any, shuffle: Any, num_shards: Any, shard_id: Any) -> BuiltinSampler:
    """The sampler that these arguments of a source mean.

    Raises:
        ValueError: a sampler beside other arguments; only with indices, `num_samples` may say how many. TypeError: no sampler.
    """
    if sampler is not None:
        are_indices = not isinstance(sampler, BuiltinSampler)
        if any(x is not None for x in (None if are_indices else num_samples, shuffle, num_shards, shard_id)):
            raise ArgumentValueError(
                f"Conflicting arguments during sampler assignments. num_samples: {num_samples}, num_shards: {num_shards}, "
                f"shard_id: {shard_id}, shuffle: {shuffle}."
            )
        if not are_indices:
            return sampler  # type: ignore[no-any-return]
        if isinstance(sampler, (list, tuple, np.ndarray)):
            return SubsetSampler(sampler, num_samples)
        if isinstance(sampler, Iterable) and not isinstance(sampler, str):
            return IterSampler(sampler, num_samples)
        raise ArgumentTypeError("sampler should be either iterable or from mindspore.dataset.samplers.")
    if num_shards is not None:
        return DistributedSampler(num_shards, shard_id, shuffle is not False, num_samples)
    return SequentialSampler(num_samples=num_samples) if shuffle is False else RandomSampler(num_samples=num_samples)


def fixed(indices: Sequence[int] | Indices) -> SubsetSampler:
    """A sampler of these indices."""
    return SubsetSampler(np.asarray(indices).tolist())
