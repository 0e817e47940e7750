"""Tensors filled with random numbers in place: `normal_`, `uniform_`, `random_`, which are functions and methods, and further methods.

They draw from the process's generator, or from the `mindspore.Generator` that they are given.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphcell import dtype as dt
from graphcell.errors import ArgumentTypeError, ArgumentValueError
from graphcell.ops.dispatch import write
from graphcell.ops.functional.common import cast
from graphcell.ops.functional.random import tensor_of_floats
from graphcell.ops.random import Generator, RandomNormal, RandomUniform, generator, random
from graphcell.tensor import Tensor

__all__ = ["normal_", "random_", "uniform_"]

_Source = Any  # a mindspore.Generator, whose class stands above this module, or None


def normal_(input: Any, mean: Any = 0, std: Any = 1, *, generator: _Source = None) -> Tensor:
    """In place: normal numbers of `mean` and `std`. Returns the Tensor.

    Raises:
        TypeError: no Tensor of floats.
    """
    x = tensor_of_floats("normal_", input)
    z: Any = random(RandomNormal(_wide(x)), x.shape, drawn_from(generator))
    return _update(x, z * std + mean)


def uniform_(input: Any, from_: Any = 0, to: Any = 1, *, generator: _Source = None) -> Tensor:
    """In place: numbers uniform on [from_, to). Returns the Tensor.

    Raises:
        TypeError: no Tensor of floats. ValueError: from_ is greater than to.
    """
    x = tensor_of_floats("uniform_", input)
    if not isinstance(from_, Tensor) and not isinstance(to, Tensor) and from_ > to:
        raise ArgumentValueError(f"uniform_: from_ must not be greater than to, but got {from_} and {to}")
    return _update(x, _uniform(x, from_, to, generator))


def random_(input: Any, from_: Any = 0, to: Any = None, *, generator: _Source = None) -> Tensor:
    """In place: integers uniform on [from_, to). Returns the Tensor.

    Args:
        from_: alone, it is `to`, and the numbers begin at 0.
        to: by default as far as the dtype goes: to its largest integer (2**53 at most), or for floats as far as neighbouring integers differ.

    Raises:
        TypeError: no Tensor. ValueError: from_ is not less than to.
    """
    if not isinstance(input, Tensor):
        raise ArgumentTypeError(f"random_: the input must be a Tensor, but is {type(input).__name__}")
    low, high = (from_, to) if to is not None else (0, from_ or _end(input.dtype))
    if not low < high:
        raise ArgumentValueError(f"random_: from_ must be less than to, but got {low} and {high}")
    u: Any = random(RandomUniform(dt.float64), input.shape, drawn_from(generator))
    return _update(input, (u * float(high - low)).floor() + float(low))


def exponential_(self: Tensor, lambd: Any = 1, *, generator: _Source = None) -> Tensor:
    """In place: exponentially distributed numbers of rate `lambd`. Returns the Tensor.

    Raises:
        TypeError: no Tensor of floats. ValueError: lambd is not positive.
    """
    x = tensor_of_floats("exponential_", self)
    if lambd <= 0:
        raise ArgumentValueError(f"exponential_: lambd must be positive, but is {lambd}")
    u: Any = random(RandomUniform(_wide(x)), x.shape, drawn_from(generator))
    return _update(x, -(-u).log1p() / lambd)


def bernoulli_(self: Tensor, p: Any = 0.5, *, generator: _Source = None) -> Tensor:
    """In place: 1 with probability p (a number, or a Tensor that broadcasts), else 0. Returns the Tensor.

    Raises:
        ValueError: p is outside of [0, 1].
    """
    if not isinstance(p, Tensor) and not 0 <= p <= 1:
        raise ArgumentValueError(f"bernoulli_: p must be in [0, 1], but is {p}")
    u: Any = random(RandomUniform(dt.float32), self.shape, drawn_from(generator))
    return _update(self, u < (cast(p, dt.float32) if isinstance(p, Tensor) else p))


def bernoulli(self: Tensor, *, generator: _Source = None) -> Tensor:
    """1 with the probability that each element gives, else 0; of the dtype of this Tensor.

    Raises:
        TypeError: no Tensor of floats.
    """
    x = tensor_of_floats("bernoulli", self)
    u: Any = random(RandomUniform(dt.float32), x.shape, drawn_from(generator))
    return cast(u < cast(x, dt.float32), x.dtype)


def uniform(self: Tensor, from_: Any = 0.0, to: Any = 1.0, *, generator: _Source = None) -> Tensor:
    """Numbers uniform on [from_, to), of the shape and dtype of this Tensor.

    Raises:
        TypeError: no Tensor of floats.
    """
    x = tensor_of_floats("uniform", self)
    return cast(_uniform(x, from_, to, generator), x.dtype)


def _uniform(x: Tensor, low: Any, high: Any, source: _Source) -> Any:
    u: Any = random(RandomUniform(_wide(x)), x.shape, drawn_from(source))
    return u * (high - low) + low


def _update(x: Tensor, values: Any) -> Tensor:
    write(x, cast(values, x.dtype))
    return x


def _end(dtype: dt.DType) -> int:
    """One more than the largest integer that `random_` gives."""
    if dtype.is_float:
        return 1 << (int(dt.finfo(dtype).nmant) + 1)
    return 2 if dtype.is_bool else min(int(np.iinfo(dtype.np_type).max), 2**53)


def _wide(x: Tensor) -> dt.DType:
    """The dtype in which numbers for x are drawn."""
    return dt.float64 if x.dtype is dt.float64 else dt.float32


def drawn_from(given: _Source) -> Generator:
    """What a function given this `mindspore.Generator` (None: the process's) draws from.

    Raises:
        TypeError: it is none.
    """
    source = generator if given is None else getattr(given, "_source", None)
    if not isinstance(source, Generator):
        raise ArgumentTypeError(f"generator must be a Generator, but is {type(given).__name__}")
    return source
