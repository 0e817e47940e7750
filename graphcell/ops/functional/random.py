"""Random Tensors, and dropout."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphcell import dtype as dt
from graphcell.dtype import DType
from graphcell.errors import ArgumentTypeError, ArgumentValueError
from graphcell.ir.types import Shape
from graphcell.ops.functional.common import as_tensor, broadcast, cast, select, zeros_like
from graphcell.ops.random import Generator, RandomNormal, RandomUniform, generator, random
from graphcell.tensor import Tensor, state

__all__ = [
    "bernoulli", "dropout", "dropout1d", "dropout2d", "dropout3d", "multinomial", "normal", "rand", "rand_like", "randint", "randn", "randn_like",
    "randperm", "standard_normal", "uniform",
]

_SEEDED: dict[tuple[str, int], Generator] = {}
"""Generators of ops that were given a seed of their own: one sequence for each op and seed, started anew by set_seed."""


def forget_op_seeds() -> None:
    """Starts the sequences of all op-level seeds anew."""
    for (_, seed), source in _SEEDED.items():
        source.reset(_mix(seed))


def _mix(seed: int) -> int:
    """The op-level seed together with the global one."""
    before, state.trace = state.trace, None
    try:
        return (int(generator.seed.array()) * 0x9E3779B1 + seed * 0x85EBCA77 + 1) % (1 << 62)
    finally:
        state.trace = before


def _source(function: str, seed: Any) -> Generator:
    if seed is None or seed == 0:
        return generator
    if not isinstance(seed, (int, np.integer)) or isinstance(seed, bool):
        raise ArgumentTypeError(f"{function}: seed must be an int, but is {type(seed).__name__}")
    if seed < 0:
        raise ArgumentValueError(f"{function}: seed must not be negative, but is {seed}")
    key = (function, int(seed))
    if key not in _SEEDED:
        _SEEDED[key] = Generator(_mix(int(seed)))
    return _SEEDED[key]


def _shape(function: str, size: Any) -> Shape:
    items = size[0] if len(size) == 1 and isinstance(size[0], (tuple, list)) else size
    shape = tuple(items)
    if any(not isinstance(d, (int, np.integer)) or isinstance(d, bool) for d in shape):
        raise ArgumentTypeError(f"{function}: the shape must hold ints, but is {shape}")
    if any(d < 0 for d in shape):
        raise ArgumentValueError(f"{function}: the shape must not be negative, but is {shape}")
    return tuple(int(d) for d in shape)


def _float_dtype(function: str, dtype: Any) -> DType:
    target = dt.float32 if dtype is None else dt.as_dtype(dtype)
    if not target.is_float:
        raise ArgumentValueError(f"{function}: dtype must be a float type, but is {target}")
    return target


def rand(*size: Any, dtype: Any = None, seed: Any = None) -> Tensor:
    """Uniform on [0, 1), of shape `size`, float32 unless `dtype` says otherwise."""
    return random(RandomUniform(_float_dtype("rand", dtype)), _shape("rand", size), _source("rand", seed))


def randn(*size: Any, dtype: Any = None, seed: Any = None) -> Tensor:
    """Standard normal, of shape `size`, float32 unless `dtype` says otherwise."""
    return random(RandomNormal(_float_dtype("randn", dtype)), _shape("randn", size), _source("randn", seed))


def rand_like(input: Any, seed: Any = None, *, dtype: Any = None) -> Tensor:
    """Uniform on [0, 1), of the shape (and unless given the dtype) of `input`."""
    x = as_tensor(input, "input", "rand_like")
    return rand(*x.shape, dtype=dtype or x.dtype, seed=seed)


def randn_like(input: Any, seed: Any = None, *, dtype: Any = None) -> Tensor:
    """Standard normal, of the shape (and unless given the dtype) of `input`."""
    x = as_tensor(input, "input", "randn_like")
    return randn(*x.shape, dtype=dtype or x.dtype, seed=seed)


def randint(low: int, high: int, size: Any, seed: Any = None, *, dtype: Any = None) -> Tensor:
    """Integers uniform on [low, high), int64 unless `dtype` says otherwise.

    Raises:
        ValueError: low is not less than high.
    """
    if not low < high:
        raise ArgumentValueError(f"randint: low must be less than high, but got {low} and {high}")
    shape = (size,) if isinstance(size, int) else size
    u: Any = random(RandomUniform(dt.float64), _shape("randint", (shape,)), _source("randint", seed))
    return cast(cast((u * float(high - low)).floor(), dt.int64) + low, dtype or dt.int64)


def uniform(shape: Any, minval: Any, maxval: Any, seed: Any = None, dtype: Any = dt.float32) -> Tensor:
    """Uniform on [minval, maxval), numbers or Tensors that broadcast with `shape`; integers for an integer dtype."""
    target = dt.as_dtype(dtype)
    low, high = as_tensor(minval, "minval", "uniform"), as_tensor(maxval, "maxval", "uniform")
    from graphcell.ops.functional.common import broadcast_shapes

    full = broadcast_shapes("uniform", _shape("uniform", (shape,)), low.shape, high.shape)
    kind = dt.float64 if target.is_integer else target
    u: Any = random(RandomUniform(kind), full, _source("uniform", seed))
    spread = cast(high, kind) - cast(low, kind)  # type: ignore[operator]
    y = u * spread + cast(low, kind)
    return cast(y.floor(), target) if target.is_integer else y  # type: ignore[no-any-return]


def normal(shape: Any, mean: Any, stddev: Any, seed: Any = None) -> Tensor:
    """Normal with `mean` and `stddev`, numbers or Tensors that broadcast with `shape`; float32."""
    from graphcell.ops.functional.common import broadcast_shapes

    m, s = as_tensor(mean, "mean", "normal"), as_tensor(stddev, "stddev", "normal")
    full = broadcast_shapes("normal", _shape("normal", (shape,)), m.shape, s.shape)
    z: Any = random(RandomNormal(dt.float32), full, _source("normal", seed))
    return z * cast(s, dt.float32) + cast(m, dt.float32)  # type: ignore[no-any-return]


def standard_normal(shape: Any, seed: Any = None) -> Tensor:
    """Standard normal of `shape`, float32."""
    return random(RandomNormal(dt.float32), _shape("standard_normal", (shape,)), _source("standard_normal", seed))


def bernoulli(input: Any, p: Any = 0.5, seed: Any = None) -> Tensor:
    """1 with probability p (a number, or a Tensor that broadcasts), else 0; of the shape and dtype of `input`."""
    x = as_tensor(input, "input", "bernoulli")
    if isinstance(p, (int, float)) and not 0 <= p <= 1:
        raise ArgumentValueError(f"bernoulli: p must be in [0, 1], but is {p}")
    u: Any = random(RandomUniform(dt.float32), x.shape, _source("bernoulli", seed))
    chance = cast(p, dt.float32) if isinstance(p, Tensor) else p
    return cast(u < chance, x.dtype)


def randperm(n: int, seed: int = 0, offset: int = 0, dtype: Any = dt.int64) -> Tensor:
    """A random order of 0 … n - 1."""
    from graphcell.ops.functional.sorting import argsort

    keys = random(RandomUniform(dt.float64), (int(n),), _source("randperm", seed or None))
    return cast(argsort(keys), dtype)


def multinomial(input: Any, num_samples: int, replacement: bool = True, seed: Any = None) -> Tensor:
    """Draws class numbers with probabilities in proportion to `input`, (C,) or (N, C).

    Returns:
        Tensor (num_samples,) or (N, num_samples), int64.

    Raises:
        ValueError: more samples than classes without replacement.
    """
    from graphcell.ops.functional.sorting import topk

    p: Any = as_tensor(input, "input", "multinomial")
    classes = p.shape[-1]
    if not replacement and num_samples > classes:
        raise ArgumentValueError(f"multinomial: cannot draw {num_samples} of {classes} classes without replacement")
    source = _source("multinomial", seed)
    if not replacement:  # the largest of log(p) + Gumbel noise
        u: Any = random(RandomUniform(dt.float64), p.shape, source)
        keys = cast(p, dt.float64).log() - (-(u + 1e-300).log()).log()  # type: ignore[attr-defined]
        return cast(topk(keys, num_samples)[1], dt.int64)
    cumulative = cast(p, dt.float64).cumsum(-1)  # type: ignore[attr-defined]
    u = random(RandomUniform(dt.float64), (*p.shape[:-1], num_samples), source)
    target = u * cumulative[..., -1:]
    return cast((target.expand_dims(-1) >= cumulative.expand_dims(-2)), dt.int64).sum(-1).clip(0, classes - 1)  # type: ignore[attr-defined, no-any-return]


def _check_probability(function: str, p: float) -> None:
    if not isinstance(p, (int, float)) or isinstance(p, bool):
        raise ArgumentTypeError(f"{function}: p must be a number, but is {type(p).__name__}")
    if not 0.0 <= p <= 1.0:
        raise ArgumentValueError(f"{function}: p must be in [0, 1], but is {p}")


def dropout(input: Any, p: float = 0.5, training: bool = True, seed: Any = None) -> Tensor:
    """In training, zeros with probability p, all else times 1 / (1 - p); else the input as it is.

    Raises:
        ValueError: p is outside of [0, 1].
    """
    _check_probability("dropout", p)
    x = as_tensor(input, "input", "dropout")
    return _drop(x, x.shape, p, _source("dropout", seed)) if training and p > 0 else x


def _drop(x: Any, shape: Shape, p: float, source: Generator = generator) -> Tensor:
    """Drops whole blocks of x: one random number for each element of `shape`, which broadcasts to x."""
    if p >= 1.0:
        return zeros_like(x)
    u: Any = random(RandomUniform(dt.float32), shape, source)
    keep = broadcast(u >= p, x.shape)
    return select(keep, x * (1.0 / (1.0 - p)), zeros_like(x))


def _drop_channels(function: str, input: Any, p: float, training: bool, ranks: tuple[int, ...]) -> Tensor:
    _check_probability(function, p)
    x = as_tensor(input, "input", function)
    if x.ndim not in ranks:
        raise ArgumentValueError(f"{function}: the input must have {' or '.join(map(str, ranks))} dimensions, but has shape {x.shape}")
    spatial = ranks[-1] - 2
    lead = x.shape[: x.ndim - spatial]
    return _drop(x, (*lead, *(1,) * spatial), p) if training and p > 0 else x


def dropout1d(input: Any, p: float = 0.5, training: bool = True) -> Tensor:
    """Drops whole channels of (N, C, L) or (C, L)."""
    return _drop_channels("dropout1d", input, p, training, (2, 3))


def dropout2d(input: Any, p: float = 0.5, training: bool = True) -> Tensor:
    """Drops whole channels of (N, C, H, W) or (C, H, W)."""
    return _drop_channels("dropout2d", input, p, training, (3, 4))


def dropout3d(input: Any, p: float = 0.5, training: bool = True) -> Tensor:
    """Drops whole channels of (N, C, D, H, W) or (C, D, H, W)."""
    return _drop_channels("dropout3d", input, p, training, (4, 5))


