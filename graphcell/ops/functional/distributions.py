"""More random Tensors: gamma and Poisson numbers, classes and places drawn by chance.

As in random.py, a function draws from the process's generator, or with a seed of its own from a sequence that belongs to it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphcell import dtype as dt
from graphcell.errors import ArgumentTypeError, ArgumentValueError, NotImplementedFeatureError, ShapeError
from graphcell.ops.dispatch import apply, apply1
from graphcell.ops.functional.common import as_tensor, broadcast, broadcast_shapes, cast, full, select
from graphcell.ops.functional.random import drawn_classes, multinomial, shape_of, source_of, tensor_of_floats
from graphcell.ops.random import Generator, RandomUniform, random
from graphcell.ops.rejection import DrawClasses, RandomGamma, RandomPoisson
from graphcell.tensor import Tensor

__all__ = [
    "choice_with_mask", "gamma", "log_uniform_candidate_sampler", "multinomial_with_replacement", "poisson", "random_categorical",
    "random_gamma", "random_poisson", "uniform_candidate_sampler",
]  # fmt: skip

_POISSON_DTYPES = (dt.int64, dt.int32, dt.float16, dt.float32, dt.float64)
_CLASS_DTYPES = (dt.int32, dt.int16, dt.int64)


# -- gamma and Poisson ---------------------------------------------------------------------------------------------------
def gamma(shape: Any, alpha: Any, beta: Any, seed: Any = None) -> Tensor:
    """Gamma numbers of shape parameter `alpha` and rate `beta`: mean alpha / beta, variance alpha / beta**2; float32.

    Args:
        shape: a tuple; alpha and beta, float32 Tensors, broadcast with it.

    Raises:
        TypeError: arguments of other kinds. ValueError: shapes that do not broadcast.
    """
    if not isinstance(shape, tuple):
        raise ArgumentTypeError(f"For 'Gamma', the type of 'shape' should be 'tuple', but got type '{type(shape).__name__}'.")
    for name, value in (("alpha", alpha), ("beta", beta)):
        if not isinstance(value, Tensor) or value.dtype is not dt.float32:
            kind = f"Tensor[{value.dtype}]" if isinstance(value, Tensor) else type(value).__name__
            raise ArgumentTypeError(f"For 'Gamma', the element of '{name}' must be Tensor[Float32], but got {kind}.")
    full_shape = broadcast_shapes("gamma", shape_of("gamma", (shape,)), alpha.shape, beta.shape)
    drawn: Any = _drawn(RandomGamma(dt.float64), broadcast(alpha, full_shape), source_of("gamma", seed))
    return cast(drawn / cast(beta, dt.float64), dt.float32)


def random_gamma(shape: Any, alpha: Any, seed: Any = None) -> Tensor:
    """Gamma numbers of rate 1 for each element of `alpha`.

    Args:
        shape: a Tensor of ints: how many for each.
        alpha: the shape parameters, a Tensor of floats.

    Returns:
        Tensor of shape (*shape, *alpha.shape) and alpha's dtype.

    Raises:
        TypeError: arguments of other kinds. ValueError: a negative shape.
    """
    extents = _extents("RandomGamma", shape)
    if not isinstance(alpha, Tensor) or not alpha.dtype.is_float:
        raise ArgumentTypeError(f"For 'RandomGamma', 'alpha' must be a Tensor of floats, but is {_kind(alpha)}.")
    return _drawn(RandomGamma(alpha.dtype), broadcast(alpha, (*extents, *alpha.shape)), source_of("random_gamma", seed))


def random_poisson(shape: Any, rate: Any, seed: Any = None, dtype: Any = dt.float32) -> Tensor:
    """Poisson numbers for each element of `rate`.

    Args:
        shape: a Tensor of ints: how many for each. rate: a Tensor or number.
        dtype: of the result: int64, int32, float16, float32 or float64.

    Returns:
        Tensor of shape (*shape, *rate.shape).

    Raises:
        TypeError: arguments of other kinds. ValueError: a negative shape.
    """
    target = dt.as_dtype(dtype)
    if target not in _POISSON_DTYPES:
        raise ArgumentTypeError(f"For 'RandomPoisson', the 'dtype' should be one of {list(_POISSON_DTYPES)}, but got '{target!r}'.")
    extents, rates = _extents("RandomPoisson", shape), as_tensor(rate, "rate", "random_poisson")
    return _drawn(RandomPoisson(target), broadcast(rates, (*extents, *rates.shape)), source_of("random_poisson", seed))


def poisson(shape: Any, mean: Any, seed: Any = None) -> Tensor:
    """Poisson numbers of `mean`, a float32 Tensor that broadcasts with `shape`, a tuple; int32.

    Raises:
        TypeError: arguments of other kinds. ValueError: shapes that do not broadcast.
    """
    means = tensor_of_floats("poisson", mean, "mean")
    full_shape = broadcast_shapes("poisson", shape_of("poisson", (shape,)), means.shape)
    return _drawn(RandomPoisson(dt.int32), broadcast(means, full_shape), source_of("poisson", seed))


def _drawn(op: RandomGamma | RandomPoisson, parameter: Tensor, source: Generator) -> Tensor:
    return apply1(op, cast(parameter, dt.float64), source.seed, source.next_call())


def _extents(owner: str, shape: Any) -> tuple[int, ...]:
    if not isinstance(shape, Tensor) or not shape.dtype.is_integer or shape.ndim != 1:
        raise ArgumentTypeError(f"For '{owner}', 'shape' must be a Tensor with one dimension of ints, but is {_kind(shape)}.")
    return shape_of(owner, (shape.tolist(),))


def _kind(x: Any) -> str:
    return f"Tensor[{x.dtype}] of shape {x.shape}" if isinstance(x, Tensor) else type(x).__name__


# -- classes and places --------------------------------------------------------------------------------------------------
def random_categorical(logits: Any, num_sample: int, seed: Any = 0, dtype: Any = dt.int64) -> Tensor:
    """Draws class numbers with probabilities softmax(logits).

    Args:
        logits: (N, C), floats. num_sample: a positive int. dtype: int16, int32 or int64.

    Returns:
        Tensor (N, num_sample).

    Raises:
        TypeError: arguments of other kinds. ValueError: another rank, or a number of samples that is not positive.
    """
    from graphcell.ops.functional.softmax import softmax

    x = tensor_of_floats("RandomCategorical", logits, "logits")
    target = dt.as_dtype(dtype)
    if target not in _CLASS_DTYPES:
        raise ArgumentTypeError(f"For 'RandomCategorical', the 'dtype' should be one of {list(_CLASS_DTYPES)}, but got '{target!r}'.")
    _check_count("RandomCategorical", "num_sample", num_sample)
    if x.ndim != 2:
        raise ShapeError(f"random_categorical: logits must have 2 dimensions, but have shape {x.shape}")
    return cast(drawn_classes(softmax(cast(x, dt.float64), -1), num_sample, source_of("random_categorical", seed)), target)


def multinomial_with_replacement(x: Any, seed: Any, offset: Any, numsamples: int, replacement: bool = False) -> Tensor:
    """Draws class numbers with probabilities in proportion to x, (C,) or (N, C); int64. `seed` and `offset` say which: both 0 for fresh ones.

    Raises:
        TypeError: arguments of other kinds. ValueError: other shapes, more samples than classes without replacement.
    """
    _check_count("MultinomialWithReplacement", "numsamples", numsamples)
    return cast(multinomial(x, numsamples, replacement, int(seed) * 2**20 + int(offset)), dt.int64)


def choice_with_mask(input_x: Any, count: int = 256, seed: Any = None) -> tuple[Tensor, Tensor]:
    """Draws places where `input_x`, a Tensor of bools, is True, each at most once.

    Returns:
        the places, (count, rank) int32, and which of them there are, (count,): where True is rarer than `count` the rest is 0 and False.

    Raises:
        TypeError: arguments of other kinds. ValueError: a count that is not positive, or a Tensor without dimensions.
    """
    from graphcell.ops.functional.movement import concat, stack
    from graphcell.ops.functional.sorting import topk

    if not isinstance(input_x, Tensor) or not input_x.dtype.is_bool:
        raise ArgumentTypeError(f"For 'RandomChoiceWithMask', 'input_x' must be a Tensor of bools, but is {_kind(input_x)}.")
    _check_count("RandomChoiceWithMask", "count", count)
    if not input_x.ndim:
        raise ShapeError("choice_with_mask: input_x must have a dimension at least")
    taken = min(count, input_x.size)
    u: Any = random(RandomUniform(dt.float64), (input_x.size,), source_of("choice_with_mask", seed))
    keys, places = topk(select(input_x.reshape(-1), u + 1.0, full(u.shape, 0.0, dt.float64)), taken)
    there: Any = keys >= 1.0
    rest: Any = select(there, cast(places, dt.int64), full(places.shape, 0, dt.int64))
    coordinates = []
    for extent in reversed(input_x.shape):
        coordinates.append(rest % extent)
        rest = rest // extent
    found = cast(stack(list(reversed(coordinates)), 1), dt.int32)
    if taken == count:
        return found, there
    rest = full((count - taken, input_x.ndim), 0, dt.int32)
    return concat((found, rest)), concat((there, full((count - taken,), False, dt.bool_)))


def uniform_candidate_sampler(
    true_classes: Any, num_true: int, num_sampled: int, unique: bool, range_max: int, seed: Any = 0, remove_accidental_hits: bool = False
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Draws `num_sampled` of the classes 0 … range_max - 1, all alike; with `unique` each at most once.

    Args:
        true_classes: (N, num_true), int64 or int32.

    Returns:
        the classes (num_sampled,); how often each true class, and each one drawn, is expected among them: (N, num_true) and (num_sampled,), float32.

    Raises:
        TypeError, ValueError: arguments that do not fit. NotImplementedError: remove_accidental_hits.
    """
    if remove_accidental_hits:
        raise NotImplementedFeatureError("uniform_candidate_sampler: remove_accidental_hits is not there")
    return _candidates("UniformCandidateSampler", true_classes, num_true, DrawClasses(num_sampled, range_max, False, unique), seed)


def log_uniform_candidate_sampler(
    true_classes: Any, num_true: int = 1, num_sampled: int = 5, unique: bool = True, range_max: int = 5, seed: Any = 0
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """As `uniform_candidate_sampler`, with class k in proportion to log((k + 2) / (k + 1))."""
    return _candidates("LogUniformCandidateSampler", true_classes, num_true, DrawClasses(num_sampled, range_max, True, unique), seed)


def _candidates(owner: str, true_classes: Any, num_true: int, op: DrawClasses, seed: Any) -> tuple[Tensor, Tensor, Tensor]:
    for name, value in (("num_true", num_true), ("num_sampled", op.count), ("range_max", op.range_max)):
        _check_count(owner, name, value)
    if not isinstance(true_classes, Tensor) or true_classes.dtype not in (dt.int32, dt.int64):
        raise ArgumentTypeError(f"For '{owner}', 'true_classes' must be a Tensor of Int64, but is {_kind(true_classes)}.")
    if true_classes.ndim != 2 or true_classes.shape[1] != num_true:
        raise ShapeError(f"For '{owner}', 'true_classes' must have shape (N, {num_true}), but has {true_classes.shape}.")
    if op.unique and op.count > op.range_max:
        raise ArgumentValueError(f"For '{owner}', the 'range_max' should be >= num_sampled: {op.count}, but got {op.range_max}.")
    source = source_of(owner, seed)
    drawn, tries = apply(op, source.seed, source.next_call())

    def expected(classes: Any) -> Tensor:
        k = cast(classes, dt.float64)
        share: Any = ((k + 2.0) / (k + 1.0)).log() / math.log(op.range_max + 1) if op.logarithmic else k * 0.0 + 1.0 / op.range_max
        draws: Any = cast(tries, dt.float64)
        return cast(-((-share).log1p() * draws).expm1() if op.unique else share * draws, dt.float32)

    return drawn, expected(true_classes), expected(drawn)


def _check_count(owner: str, name: str, value: Any) -> None:
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
        raise ArgumentTypeError(f"For '{owner}', '{name}' must be an int, but is {type(value).__name__}.")
    if value < 1:
        raise ArgumentValueError(f"For '{owner}', '{name}' must be positive, but is {value}.")
