"""`Generator`, a source of random numbers with a state to look at, and the functions of the default one."""

from __future__ import annotations

import os

import numpy as np

from graphcell.errors import ArgumentTypeError, ArgumentValueError
from graphcell.ops import random
from graphcell.ops.functional.random import forget_op_seeds
from graphcell.tensor import Tensor


class Generator:
    """A sequence of random numbers: its seed and how many calls have drawn from it. A new one has the seed 0."""

    def __init__(self) -> None:
        self._source = random.Generator(0)

    @staticmethod
    def _of(source: random.Generator) -> Generator:
        new = Generator.__new__(Generator)
        new._source = source
        return new

    def seed(self) -> int:
        """Starts anew from a random seed, and returns it."""
        seed = int.from_bytes(os.urandom(4), "little")
        self._source.reset(seed)
        return seed

    def manual_seed(self, seed: int) -> Generator:
        """Starts anew from `seed`, an int of at most 64 bits.

        Raises:
            TypeError: seed is no int.
        """
        if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
            raise ArgumentTypeError(f"manual_seed: seed must be an int, but is {type(seed).__name__}")
        self._source.reset(int(seed))
        return self

    def initial_seed(self) -> int:
        """The seed that the sequence started from."""
        return int(self._source.seed.array())

    def get_state(self) -> Tensor:
        """The state: a UInt8 Tensor of 16 elements, the bytes of the seed and of the number of calls."""
        words = np.array([self._source.seed.array(), self._source.calls.array()], "<i8")
        return Tensor(words.view(np.uint8))

    def set_state(self, state: Tensor) -> None:
        """Goes on from a state that `get_state` gave.

        Raises:
            TypeError: state is no Tensor. ValueError: it is no state.
        """
        if not isinstance(state, Tensor):
            raise ArgumentTypeError(f"set_state: state must be a Tensor, but is {type(state).__name__}")
        data = state.asnumpy()
        if data.dtype != np.uint8 or data.shape != (16,):
            raise ArgumentValueError(f"set_state: expected a UInt8 Tensor of 16 elements, but got {state.dtype} of shape {state.shape}")
        seed, calls = (int(x) for x in np.ascontiguousarray(data).view("<i8"))
        self._source.reset(seed)
        self._source.calls.rebind(np.array(calls, np.int64))


default_generator = Generator._of(random.generator)
"""What all random ops draw from that are given no seed of their own."""


def seed() -> int:
    """Starts the default generator anew from a random seed, and returns it."""
    return default_generator.seed()


def manual_seed(seed: int) -> Generator:
    """Starts the default generator anew from `seed`, and returns that generator. `set_seed` does more: numpy's generator and the initializers follow it.

    Raises:
        TypeError: seed is no int.
    """
    default_generator.manual_seed(seed)
    forget_op_seeds()
    return default_generator


def initial_seed() -> int:
    """The seed that the default generator started from."""
    return default_generator.initial_seed()


def get_rng_state() -> Tensor:
    """The state of the default generator."""
    return default_generator.get_state()


def set_rng_state(state: Tensor) -> None:
    """Sets the state of the default generator to one that `get_rng_state` gave.

    Raises:
        TypeError, ValueError: `state` is no state.
    """
    default_generator.set_state(state)
