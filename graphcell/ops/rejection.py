"""Random numbers drawn by rejection and search: gamma, Poisson, classes without repetition. They run through `eval` in compiled code too.

Element k of call c takes its random words from the counters (k, c), (k + 2**40, c), (k + 2**41, c), …, one for each attempt, so that the
results do not depend on how many elements are computed together, and are the same in both modes.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphcell import dtype as dt
from graphcell.dtype import DType
from graphcell.errors import ShapeError
from graphcell.ir.op import Array, frozen
from graphcell.ir.types import TensorType
from graphcell.ops.base import Fallback
from graphcell.ops.random import philox_words
from graphcell.ops.special import lgamma

Grads = tuple[Any, ...]
_ATTEMPT = 1 << 40  # more than there are elements
_SEARCHED = 10.0  # rates below are looked up in the distribution function


def _uniforms(index: Array, seed: Any, call: Any, attempt: int) -> tuple[Array, Array]:
    """Two numbers on [0, 1) with 53 bits for each index."""
    w = philox_words(index + attempt * _ATTEMPT, np.full(index.shape, seed), np.full(index.shape, call))
    wide = [x.astype(np.uint64) for x in w]
    first, second = (((high << np.uint64(32) | low) >> np.uint64(11)).astype(np.float64) * 2.0**-53 for high, low in (wide[:2], wide[2:]))
    return first, second


class _Drawn(Fallback):
    """Operands: the distribution's parameter (float64), the number of the seed, the number of the call (int64 scalars)."""

    dtype: DType

    def infer(self, parameter: TensorType, seed: TensorType, call: TensorType) -> TensorType:  # type: ignore[override]
        if seed.shape or call.shape:
            raise ShapeError(f"{self.name}: seed and call must be scalars, but have the shapes {seed.shape} and {call.shape}")
        return parameter.with_dtype(self.dtype)

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        return None, None, None

    def eval(self, parameter: Array, seed: Array, call: Array) -> Array:  # type: ignore[override]
        flat = parameter.reshape(-1)
        result: Array = self.draw(flat, np.arange(flat.size), seed, call)
        return result.reshape(parameter.shape).astype(self.dtype.np_type)

    def draw(self, parameter: Array, index: Array, seed: Array, call: Array) -> Array:
        raise NotImplementedError(f"{self.name}.draw")


@frozen
class RandomGamma(_Drawn):
    """Gamma numbers of scale 1; NaN where the shape parameter is not positive (G. Marsaglia, W. Tsang, "A simple method for generating gamma
    variables", 2000)."""

    dtype: DType
    name = "random_gamma"

    def draw(self, alpha: Array, index: Array, seed: Array, call: Array) -> Array:  # type: ignore[override]
        d = np.where(alpha < 1, alpha + 1, alpha) - 1 / 3
        result = np.full(alpha.shape, np.nan)
        waiting, attempt = index[alpha > 0], 0
        while waiting.size:
            attempt += 1
            u, turn = _uniforms(waiting, seed, call, 2 * attempt)
            x = np.sqrt(-2 * np.log1p(-u)) * np.cos(2 * math.pi * turn)
            shift = d[waiting]
            v = (1 + x / np.sqrt(9 * shift)) ** 3
            level, _ = _uniforms(waiting, seed, call, 2 * attempt + 1)
            safe = np.where(v > 0, v, 1.0)
            taken = (v > 0) & (np.log1p(-level) < 0.5 * x * x + shift * (1 - safe + np.log(safe)))
            result[waiting[taken]] = (shift * v)[taken]
            waiting = waiting[~taken]
        small = index[alpha < 1]
        u, _ = _uniforms(small, seed, call, 0)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            result[small] *= (1 - u) ** (1 / alpha[small])
        return result


@frozen
class RandomPoisson(_Drawn):
    """Poisson numbers; NaN where the rate is negative. Small rates by search in the distribution function, others by transformed rejection
    (W. Hörmann, "The transformed rejection method for generating Poisson random variables", 1993)."""

    dtype: DType
    name = "random_poisson"

    def draw(self, rate: Array, index: Array, seed: Array, call: Array) -> Array:  # type: ignore[override]
        result = np.where(rate >= 0, 0.0, np.nan)
        small = index[(rate > 0) & (rate < _SEARCHED)]
        result[small] = _searched(rate[small], _uniforms(small, seed, call, 0)[0])
        waiting, attempt = index[(rate >= _SEARCHED) & np.isfinite(rate)], 0
        while waiting.size:
            attempt += 1
            count, taken = _transformed(rate[waiting], *_uniforms(waiting, seed, call, attempt))
            result[waiting[taken]] = count[taken]
            waiting = waiting[~taken]
        return result


def _searched(rate: Array, u: Array) -> Array:
    """The smallest counts whose distribution function exceeds u."""
    count = np.zeros(rate.shape)
    term = np.exp(-rate)
    total = term.copy()
    while (open_ := (u >= total) & (term > 1e-300)).any():
        count = np.where(open_, count + 1, count)
        term = np.where(open_, term * rate / np.maximum(count, 1), term)
        total = np.where(open_, total + term, total)
    return count


def _transformed(rate: Array, u: Array, v: Array) -> tuple[Array, Array]:
    """Counts, and which of them are taken."""
    b = 0.931 + 2.53 * np.sqrt(rate)
    a = -0.059 + 0.02483 * b
    u = u - 0.5
    edge = 0.5 - np.abs(u)
    with np.errstate(divide="ignore", invalid="ignore"):
        count = np.floor((2 * a / edge + b) * u + rate + 0.43)
        left = np.log(v * (1.1239 + 1.1328 / (b - 3.4)) / (a / (edge * edge) + b))
        right = count * np.log(rate) - rate - lgamma(np.maximum(count, 0) + 1)
    sure = (edge >= 0.07) & (v <= 0.9277 - 3.6224 / (b - 2))
    return count, sure | ((count >= 0) & ~((edge < 0.013) & (v > edge)) & (left <= right))


@frozen
class DrawClasses(Fallback):
    """Operands: seed, call. Results: `count` of the classes 0 … range_max - 1, and how many draws that took (int64).

    Classes are drawn alike, or in proportion to log((k + 2) / (k + 1)); with `unique` until `count` different ones are found.
    """

    count: int
    range_max: int
    logarithmic: bool
    unique: bool
    name = "draw_classes"

    def infer(self, seed: TensorType, call: TensorType) -> tuple[TensorType, TensorType]:  # type: ignore[override]
        return TensorType(dt.int64, (self.count,)), TensorType(dt.int64, ())

    def eval(self, seed: Array, call: Array) -> tuple[Array, Array]:  # type: ignore[override]
        found: dict[int, int] = {}  # class, and the draw that gave it first
        size, first = max(self.count, 16), 0
        while True:
            drawn = self._classes(np.arange(first, first + size), seed, call)
            if not self.unique:
                return drawn[: self.count], np.array(self.count, np.int64)
            for k, value in enumerate(drawn.tolist()):
                found.setdefault(value, first + k + 1)
                if len(found) == self.count:
                    return np.array(list(found), np.int64), np.array(first + k + 1, np.int64)
            first, size = first + size, 2 * size

    def _classes(self, index: Array, seed: Array, call: Array) -> Array:
        u, _ = _uniforms(index, seed, call, 0)
        value: Array = np.exp(u * math.log(self.range_max + 1)) - 1 if self.logarithmic else u * self.range_max
        classes: Array = np.minimum(np.floor(value), self.range_max - 1).astype(np.int64)
        return classes

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        return None, None
