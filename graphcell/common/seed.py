"""The global seed: of initializers, of random ops, and of numpy's global generator."""

from __future__ import annotations

import numpy as np

from graphcell.errors import ArgumentTypeError, ArgumentValueError
from graphcell.ops.functional.random import forget_op_seeds
from graphcell.ops.random import generator


class _State:
    """The seed last set (None at first) and the numpy generator that initializers draw from."""

    seed: int | None = None
    rng = np.random.default_rng()


def set_seed(seed: int) -> None:
    """Starts all random numbers anew from `seed`: initializers, random ops, and numpy's global generator.

    Raises:
        TypeError: seed is no int. ValueError: it is not between 0 and 2**32 - 1.
    """
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
        raise ArgumentTypeError(f"set_seed: seed must be an int, but is {type(seed).__name__}")
    if not 0 <= seed < 2**32:
        raise ArgumentValueError(f"set_seed: seed must be between 0 and 2**32 - 1, but is {seed}")
    np.random.seed(seed)  # numpy's global generator is what scripts draw from
    generator.reset(int(seed))
    forget_op_seeds()
    _State.seed, _State.rng = int(seed), np.random.default_rng(seed)


def get_seed() -> int | None:
    """The seed last set, or None."""
    return _State.seed


def initializer_rng() -> np.random.Generator:
    """The numpy generator that initializers draw from."""
    return _State.rng
