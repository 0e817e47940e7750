"""The global seed: of initializers, of random ops, of data pipelines, and of Python's and numpy's global generators."""

from __future__ import annotations

import random

import numpy as np

from graphcell.errors import ArgumentTypeError, ArgumentValueError
from graphcell.locks import whole
from graphcell.ops.functional.random import forget_op_seeds
from graphcell.ops.random import generator


class _State:
    """The seed last set (None at first), that of data pipelines, and the numpy generator that initializers draw from, if it was asked for."""

    seed: int | None = None
    data_seed: int | None = None
    rng: np.random.Generator | None = None


def set_seed(seed: int) -> None:
    """Starts all random numbers anew from `seed`: initializers, random ops, data pipelines, and Python's and numpy's global generators.

    Raises:
        TypeError: seed is no int. ValueError: it is not between 0 and 2**32 - 1.
    """
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
        raise ArgumentTypeError(f"set_seed: seed must be an int, but is {type(seed).__name__}")
    if not 0 <= seed < 2**32:
        raise ArgumentValueError(f"set_seed: seed must be between 0 and 2**32 - 1, but is {seed}")
    random.seed(int(seed))  # the global generators are what scripts draw from
    with whole:  # numpy imports its generators late
        np.random.seed(seed)
    generator.reset(int(seed))
    forget_op_seeds()
    _State.seed, _State.data_seed, _State.rng = int(seed), int(seed), np.random.default_rng(seed)


def get_seed() -> int | None:
    """The seed last set, or None."""
    return _State.seed


def set_data_seed(seed: int) -> None:
    """Sets the seed of data pipelines alone."""
    _State.data_seed = seed


def get_data_seed() -> int | None:
    """The seed of data pipelines, or None if none was set."""
    return _State.data_seed


def initializer_rng() -> np.random.Generator:
    """The numpy generator that initializers draw from. It is made late: `numpy.random` takes a tenth of the time of `import graphcell`."""
    if _State.rng is None:
        with whole:
            _State.rng = np.random.default_rng()
    return _State.rng
