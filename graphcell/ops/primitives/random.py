"""Primitive classes that draw random numbers. One made with seeds has a sequence of its own, which begins with the object; `set_seed` starts it
anew. Without seeds they draw from the process's generator."""

from __future__ import annotations

from typing import Any

from graphcell import dtype as dt
from graphcell import ops as F
from graphcell.errors import ArgumentTypeError, DTypeError, ShapeError
from graphcell.ops.functional.random import check_not_negative, new_source
from graphcell.ops.primitive import Configured

__all__ = [
    "Bernoulli", "Gamma", "LogNormalReverse", "LogUniformCandidateSampler", "Multinomial", "MultinomialWithReplacement", "Poisson",
    "RandomCategorical", "RandomChoiceWithMask", "RandomGamma", "RandomPoisson", "RandomShuffle", "RandpermV2", "StandardLaplace",
    "StandardNormal", "TruncatedNormal", "UniformCandidateSampler", "UniformInt", "UniformReal",
]  # fmt: skip


class _Seeded(Configured):
    """A primitive with seeds; `_source` is what its function takes as a seed."""

    _negative_seeds = False

    def __init__(self, seed: int = 0, seed2: int = 0, **settings: Any):
        for name, value in (("seed", seed), ("seed2", seed2)):
            if not isinstance(value, int) or isinstance(value, bool):
                raise ArgumentTypeError(f"For '{type(self).__name__}', the '{name}' must be int, but got '{type(value).__name__}'")
            if not self._negative_seeds:
                check_not_negative(type(self).__name__, name, value)
        super().__init__(seed=seed, seed2=seed2, **settings)
        self._source: Any = new_source(type(self).__name__, seed * 2**32 + seed2) if seed or seed2 else None


class StandardNormal(_Seeded):
    """Standard normal numbers of a shape."""

    def __call__(self, shape: Any) -> Any:
        return F.standard_normal(shape, self._source)


class StandardLaplace(_Seeded):
    """Laplace numbers of mean 0 and scale 1 of a shape."""

    def __call__(self, shape: Any) -> Any:
        return F.standard_laplace(shape, self._source)


class UniformReal(_Seeded):
    """Numbers uniform on [0, 1) of a shape."""

    def __call__(self, shape: Any) -> Any:
        return F.rand(*shape, seed=self._source)


class UniformInt(_Seeded):
    """Int32 numbers uniform on [minval, maxval), two scalar Tensors, of a shape."""

    def __call__(self, shape: Any, minval: Any, maxval: Any) -> Any:
        for name, value in (("min", minval), ("max", maxval)):
            if F.is_tensor(value) and not value.dtype.is_integer:
                raise DTypeError(f"For UniformInt, the {name} value should be a Tensor of integers, but is {value.dtype}")
            if F.is_tensor(value) and value.shape:
                raise ShapeError(f"For UniformInt, the {name} value should be a scalar tensor, while the shape is: {value.shape}")
        return F.uniform(shape, minval, maxval, self._source, dt.int32)


class Gamma(_Seeded):
    """`ops.gamma`."""

    def __call__(self, shape: Any, alpha: Any, beta: Any) -> Any:
        return F.gamma(shape, alpha, beta, self._source)


class Poisson(_Seeded):
    """`ops.poisson`."""

    def __call__(self, shape: Any, mean: Any) -> Any:
        return F.poisson(shape, mean, self._source)


class RandomGamma(_Seeded):
    """`ops.random_gamma`."""

    def __call__(self, shape: Any, alpha: Any) -> Any:
        return F.random_gamma(shape, alpha, self._source)


class RandomPoisson(_Seeded):
    """`ops.random_poisson`."""

    def __init__(self, seed: int = 0, seed2: int = 0, dtype: Any = dt.int64):
        super().__init__(seed, seed2, dtype=dtype)

    def __call__(self, shape: Any, rate: Any) -> Any:
        return F.random_poisson(shape, rate, self._source, self.dtype)


class RandomShuffle(_Seeded):
    """`ops.shuffle`."""

    def __call__(self, x: Any) -> Any:
        return F.shuffle(x, self._source)


class Multinomial(_Seeded):
    """`ops.multinomial` with replacement; int32 or int64."""

    def __init__(self, seed: int = 0, seed2: int = 0, dtype: Any = dt.int32):
        super().__init__(seed, seed2, dtype=dtype)

    def __call__(self, x: Any, num_samples: Any) -> Any:
        return F.cast(F.multinomial(x, num_samples, True, self._source), self.dtype)


class MultinomialWithReplacement(Configured):
    """`ops.multinomial_with_replacement`."""

    def __init__(self, numsamples: int, replacement: bool = False):
        super().__init__(numsamples=numsamples, replacement=replacement)

    def __call__(self, x: Any, seed: Any, offset: Any) -> Any:
        return F.multinomial_with_replacement(x, seed, offset, self.numsamples, self.replacement)


class RandomCategorical(Configured):
    """`ops.random_categorical`."""

    def __init__(self, dtype: Any = dt.int64):
        super().__init__(dtype=dtype)

    def __call__(self, logits: Any, num_sample: Any, seed: Any) -> Any:
        return F.random_categorical(logits, num_sample, seed, self.dtype)


class RandomChoiceWithMask(_Seeded):
    """`ops.choice_with_mask`."""

    _negative_seeds = True

    def __init__(self, count: int = 256, seed: int = 0, seed2: int = 0):
        super().__init__(seed, seed2, count=count)

    def __call__(self, input_x: Any) -> Any:
        return F.choice_with_mask(input_x, self.count, self._source)


class Bernoulli(Configured):
    """`ops.bernoulli`: 1 with probability p, else 0. A seed of -1 is none."""

    def __init__(self, seed: int = -1, offset: int = 0):
        super().__init__(seed=seed, offset=offset)
        self._source: Any = new_source("Bernoulli", seed * 2**32 + offset) if seed > 0 or offset else None

    def __call__(self, x: Any, p: Any) -> Any:
        return F.bernoulli(x, p, self._source)


class RandpermV2(Configured):
    """`ops.randperm`."""

    def __init__(self, seed: int = 0, offset: int = 0, dtype: Any = dt.int64):
        super().__init__(seed=seed, offset=offset, dtype=dtype)

    def __call__(self, n: Any) -> Any:
        return F.randperm(n, self.seed, self.offset, self.dtype)


class TruncatedNormal(_Seeded):
    """Standard normal numbers between -2 and 2, of a shape given as a Tensor of ints; float16, float32 or float64."""

    _SHARE = 0.9544997361036416  # of a normal distribution within two deviations
    _negative_seeds = True

    def __init__(self, dtype: Any = dt.float32, seed: int = 0, seed2: int = 0):
        super().__init__(seed, seed2, dtype=dtype)

    def __call__(self, shape: Any) -> Any:
        u = F.rand(*shape.tolist(), dtype=dt.float64, seed=self._source)
        return F.cast(F.erfinv((u * 2.0 - 1.0) * self._SHARE) * 2.0**0.5, self.dtype)


class LogNormalReverse(Configured):
    """Log-normal numbers, exp of normal ones of `mean` and `std`, of the shape and dtype of the input."""

    def __init__(self, mean: float = 1.0, std: float = 2.0):
        super().__init__(mean=mean, std=std)

    def __call__(self, input: Any) -> Any:
        return F.cast(F.exp(F.randn_like(input, dtype=dt.float32) * self.std + self.mean), input.dtype)


class UniformCandidateSampler(Configured):
    """`ops.uniform_candidate_sampler`."""

    def __init__(self, num_true: int, num_sampled: int, unique: bool, range_max: int, seed: int = 0, remove_accidental_hits: bool = False):
        super().__init__(
            num_true=num_true, num_sampled=num_sampled, unique=unique, range_max=range_max, seed=seed, remove_accidental_hits=remove_accidental_hits
        )
        self._source: Any = new_source("UniformCandidateSampler", seed) if seed else None

    def __call__(self, true_classes: Any) -> Any:
        return F.uniform_candidate_sampler(
            true_classes, self.num_true, self.num_sampled, self.unique, self.range_max, self._source, self.remove_accidental_hits
        )


class LogUniformCandidateSampler(Configured):
    """`ops.log_uniform_candidate_sampler`."""

    def __init__(self, num_true: int = 1, num_sampled: int = 5, unique: bool = True, range_max: int = 5, seed: int = 0):
        super().__init__(num_true=num_true, num_sampled=num_sampled, unique=unique, range_max=range_max, seed=seed)
        self._source: Any = new_source("LogUniformCandidateSampler", seed) if seed else None

    def __call__(self, true_classes: Any) -> Any:
        return F.log_uniform_candidate_sampler(true_classes, self.num_true, self.num_sampled, self.unique, self.range_max, self._source)
