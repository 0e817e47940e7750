"""One walk through a pipeline: its random numbers and its epoch; and the random numbers of a row.

Random transforms draw from `generator()`. While a pipeline makes a row, that is a generator that belongs to the row, known by the seed and
the row's number, so that the result does not depend on which thread makes it; elsewhere it is one for each thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import numpy.random  # which numpy imports late: not in a thread while another one forks

from graphcell.common.seed import get_data_seed
from graphcell.dataset.core import config

T = TypeVar("T")
R = TypeVar("R")


class Run:
    """What the nodes of a pipeline share while one iterator goes through it, epoch by epoch."""

    def __init__(self) -> None:
        self.epoch = 0
        seed = get_data_seed()
        self._start = int(np.random.SeedSequence().generate_state(1)[0]) if seed is None else seed
        self._generators: dict[int, np.random.Generator] = {}
        self._kept: dict[int, Any] = {}

    def rng(self, owner: object) -> np.random.Generator:
        """The generator of a node or sampler; it goes on from epoch to epoch."""
        return self._generator(owner, self._start)

    def shared_rng(self, owner: object) -> np.random.Generator:
        """The same in every process that has the same seed, or none: for shards, which must agree on an order."""
        return self._generator(owner, config.get_seed())

    def kept(self, owner: object, make: Callable[[], T]) -> T:
        """What a step keeps from epoch to epoch, made when it is first asked for."""
        found: T = self._kept.setdefault(id(owner), make())
        return found

    def _generator(self, owner: object, start: int) -> np.random.Generator:
        if id(owner) not in self._generators:
            self._generators[id(owner)] = np.random.default_rng([start, len(self._generators)])
        return self._generators[id(owner)]


class _Local(threading.local):
    """The row that this thread makes (None: none), the generator drawn from, and the one for rows, which is set anew for each."""

    key: tuple[int, int] | None = None
    rng: np.random.Generator | None = None
    seed: int | None = None

    def __init__(self) -> None:
        self._philox = np.random.Philox(key=0)
        self._start: Any = self._philox.state
        self._rows = np.random.Generator(self._philox)

    def of_row(self, key: tuple[int, int]) -> np.random.Generator:
        """The generator of a row, at its start."""
        self._start["state"]["key"][:] = key
        self._philox.state = self._start
        return self._rows


_local = _Local()


def call_with_row(key: tuple[int, int], function: Callable[[T], R], row: T) -> R:
    """`function(row)`, with the random numbers of the row `key`."""
    before = _local.key, _local.rng
    _local.key, _local.rng = key, None
    try:
        return function(row)
    finally:
        _local.key, _local.rng = before


def below(count: int) -> int:
    """A random int of at least 0 and below `count`."""
    return int(generator().random() * count)


def generator() -> np.random.Generator:
    """What random transforms draw from."""
    if _local.key is not None:
        if _local.rng is None:
            _local.rng = _local.of_row(_local.key)
        return _local.rng
    seed = get_data_seed()
    if _local.rng is None or seed != _local.seed:
        _local.rng, _local.seed = np.random.default_rng(seed), seed
    return _local.rng
