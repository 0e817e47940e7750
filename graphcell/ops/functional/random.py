"""Random Tensors, and dropout.

Every function draws from the process's generator, or with a `seed` of its own from a sequence that belongs to that function and seed;
`set_seed` starts all of them anew. Graphs read and update the same state as eager code, and give the same numbers.
"""

from __future__ import annotations

import weakref
from typing import Any, ClassVar

import numpy as np

from graphcell import dtype as dt
from graphcell.dtype import DType
from graphcell.errors import ArgumentTypeError, ArgumentValueError, DTypeError
from graphcell.ir.types import Shape
from graphcell.locks import whole
from graphcell.ops.functional.common import as_tensor, broadcast, broadcast_shapes, cast, select, zeros_like
from graphcell.ops.kernels import composite
from graphcell.ops.random import Generator, RandomNormal, RandomUniform, generator, random
from graphcell.tensor import Tensor

__all__ = [
    "bernoulli", "dropout", "dropout1d", "dropout2d", "dropout3d", "gumbel_softmax", "laplace", "multinomial", "normal", "rand",
    "rand_like", "randint", "randint_like", "randn", "randn_like", "randperm", "shuffle", "standard_laplace", "standard_normal",
    "uniform",
]  # fmt: skip

class _Sequences:
    """The sequences of random numbers that belong to op-level seeds: one for each function and seed, one for each primitive with a seed."""

    global_seed = 0
    """What they start from beside their own seeds: 0 until a global seed is set, so that they are the same in each run of a program."""
    functions: ClassVar[dict[tuple[str, int], Generator]] = {}
    all: ClassVar[weakref.WeakKeyDictionary[Generator, tuple[str, int]]] = weakref.WeakKeyDictionary()


def forget_op_seeds() -> None:
    """Starts the sequences of all op-level seeds anew, after the global seed was set."""
    _Sequences.global_seed = int(generator.seed.array())
    for source, key in list(_Sequences.all.items()):
        source.reset(_mix(*key))


def _mix(function: str, seed: int) -> int:
    """A seed for a sequence of its own, made of the function, its op-level seed, and the global one."""
    with whole:
        import hashlib  # which loads OpenSSL

    text = f"{function} {seed} {_Sequences.global_seed}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 2


def source_of(function: str, seed: Any) -> Generator:
    """What a function given this seed draws from.

    Raises:
        TypeError: seed is no int. ValueError: it is negative.
    """
    if seed is None or (isinstance(seed, (int, np.integer)) and seed == 0):
        return generator
    if isinstance(seed, Generator):
        return seed
    if not isinstance(seed, (int, np.integer)) or isinstance(seed, bool):
        raise ArgumentTypeError(f"For '{function}', the 'seed' must be int, but got '{type(seed).__name__}'")
    check_not_negative(function, "seed", int(seed))
    key = (function, int(seed))
    if key not in _Sequences.functions:
        _Sequences.functions[key] = new_source(*key)
    return _Sequences.functions[key]


def check_not_negative(function: str, name: str, seed: int) -> None:
    """Raises ValueError for a negative seed."""
    if seed < 0:
        raise ArgumentValueError(f"For '{function}', the '{name}' must be int and must >= 0, but got '{seed}' with type 'int'.")


def new_source(function: str, seed: int) -> Generator:
    """A sequence that begins anew; `set_seed` starts it once more."""
    source = Generator(_mix(function, seed))
    _Sequences.all[source] = (function, seed)
    return source


def shape_of(function: str, size: Any) -> Shape:
    """The shape given as one tuple or list, or as several ints; none gives (1,)."""
    items = size[0] if len(size) == 1 and isinstance(size[0], (tuple, list)) else size
    shape = tuple(items) if size else (1,)
    if any(not isinstance(d, (int, np.integer)) or isinstance(d, bool) for d in shape):
        raise ArgumentTypeError(f"{function}: the shape must hold ints, but is {shape}")
    if any(d < 0 for d in shape):
        raise ArgumentValueError(f"{function}: the shape must not be negative, but is {shape}")
    return tuple(int(d) for d in shape)


def _tensor(function: str, x: Any) -> Any:
    """`x`, which must be a Tensor; raises TypeError."""
    if not isinstance(x, Tensor):
        raise ArgumentTypeError(f"For '{function}', the 'input' must be a Tensor, but got {type(x)}")
    return x


def _float_dtype(function: str, dtype: Any) -> DType:
    target = dt.float32 if dtype is None else dt.as_dtype(dtype)
    if not target.is_float:
        raise ArgumentValueError(f"{function}: dtype must be a float type, but is {target}")
    return target


def rand(*size: Any, dtype: Any = None, seed: Any = None) -> Tensor:
    """Uniform on [0, 1), of shape `size`, float32 unless `dtype` says otherwise.

    Raises:
        TypeError: a size or seed that is no int. ValueError: a negative one, or a dtype that is no float.
    """
    return random(RandomUniform(_float_dtype("rand", dtype)), shape_of("rand", size), source_of("rand", seed))


def randn(*size: Any, dtype: Any = None, seed: Any = None) -> Tensor:
    """Standard normal, of shape `size`, float32 unless `dtype` says otherwise. Errors as in `rand`."""
    return random(RandomNormal(_float_dtype("randn", dtype)), shape_of("randn", size), source_of("randn", seed))


def rand_like(input: Any, seed: Any = None, *, dtype: Any = None) -> Tensor:
    """Uniform on [0, 1), of the shape (and unless given the dtype) of `input`. Errors as in `rand`."""
    x = _tensor("rand_like", input)
    return rand(x.shape, dtype=dtype or x.dtype, seed=seed)


def randn_like(input: Any, seed: Any = None, *, dtype: Any = None) -> Tensor:
    """Standard normal, of the shape (and unless given the dtype) of `input`. Errors as in `rand`."""
    x = _tensor("randn_like", input)
    return randn(x.shape, dtype=dtype or x.dtype, seed=seed)


def randint(low: int, high: int, size: Any, seed: Any = None, *, dtype: Any = None) -> Tensor:
    """Integers uniform on [low, high), of shape `size`, int64 unless `dtype` says otherwise.

    Raises:
        TypeError: low or high is no int. ValueError: low is not less than high, the size is no tuple, the dtype no integer's.
    """
    for name, value in (("low", low), ("high", high)):
        if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
            raise ArgumentTypeError(f"For 'randint', '{name}' must be an int, but got {type(value)}.")
    if not low < high:
        raise ArgumentValueError(f"randint: low must be less than high, but got {low} and {high}")
    if not isinstance(size, (tuple, list, int)):
        raise ArgumentValueError(f"For 'randint', the input 'size' must be a tuple, but got {size}.")
    target = dt.int64 if dtype is None else dt.as_dtype(dtype)
    if not target.is_integer:
        raise ArgumentValueError(f"For 'randint', the 'dtype' must be an int type, but got {target}.")
    u: Any = random(RandomUniform(dt.float64), shape_of("randint", (size,)), source_of("randint", seed))
    return cast(cast((u * float(high - low)).floor(), dt.int64) + low, target)


def randint_like(input: Any, low: int, high: int, seed: Any = None, *, dtype: Any = None) -> Tensor:
    """Integers uniform on [low, high), of the shape (and unless given the dtype) of `input`. Errors as in `randint`."""
    x = _tensor("randint_like", input)
    return randint(low, high, x.shape, seed, dtype=dtype or x.dtype)


def uniform(shape: Any, minval: Any, maxval: Any, seed: Any = None, dtype: Any = dt.float32) -> Tensor:
    """Uniform on [minval, maxval), numbers or Tensors that broadcast with `shape`; integers for an integer dtype.

    Raises:
        TypeError: bounds or a shape that hold no numbers. ValueError: shapes that do not broadcast.
    """
    target = dt.as_dtype(dtype)
    low, high = as_tensor(minval, "minval", "uniform"), as_tensor(maxval, "maxval", "uniform")
    full = broadcast_shapes("uniform", shape_of("uniform", (shape,)), low.shape, high.shape)
    kind = dt.float64 if target.is_integer else target
    u: Any = random(RandomUniform(kind), full, source_of("uniform", seed))
    spread: Any = cast(high, kind) - cast(low, kind)
    y = u * spread + cast(low, kind)
    return cast(y.floor(), target) if target.is_integer else y


def normal(shape: Any, mean: Any, stddev: Any, seed: Any = None) -> Tensor:
    """Normal with `mean` and `stddev`, numbers or Tensors that broadcast with `shape`; float32, or float64 where one of them is.

    Raises:
        TypeError: a mean, deviation or shape that holds no numbers. ValueError: shapes that do not broadcast.
    """
    m, s = as_tensor(mean, "mean", "normal"), as_tensor(stddev, "stddev", "normal")
    full = broadcast_shapes("normal", shape_of("normal", (shape,)), m.shape, s.shape)
    z: Any = random(RandomNormal(dt.float32), full, source_of("normal", seed))
    target = dt.float64 if dt.float64 in (m.dtype, s.dtype) else dt.float32
    return cast(z, target) * cast(s, target) + cast(m, target)  # type: ignore[no-any-return]


def standard_normal(shape: Any, seed: Any = None) -> Tensor:
    """Standard normal of `shape`, float32."""
    return random(RandomNormal(dt.float32), shape_of("standard_normal", (shape,)), source_of("standard_normal", seed))


def standard_laplace(shape: Any, seed: Any = None) -> Tensor:
    """Laplace numbers of mean 0 and scale 1 of `shape`, float32."""
    return _laplace(shape_of("standard_laplace", (shape,)), source_of("standard_laplace", seed))  # type: ignore[no-any-return]


def laplace(shape: Any, mean: Any, lambda_param: Any, seed: Any = None) -> Tensor:
    """Laplace numbers of `mean` and scale `lambda_param`, numbers or Tensors that broadcast with `shape`; float32."""
    m, s = as_tensor(mean, "mean", "laplace"), as_tensor(lambda_param, "lambda_param", "laplace")
    full = broadcast_shapes("laplace", shape_of("laplace", (shape,)), m.shape, s.shape)
    scaled: Tensor = _laplace(full, source_of("laplace", seed)) * cast(s, dt.float32) + cast(m, dt.float32)
    return scaled


def _laplace(shape: Shape, source: Generator) -> Any:
    """The inverse of the distribution function, of numbers from -1 to 1."""
    u: Any = random(RandomUniform(dt.float64), shape, source) * 2.0 - 1.0
    return cast(-u.sign() * (-u.abs()).log1p(), dt.float32)


def bernoulli(input: Any, p: Any = 0.5, seed: Any = None) -> Tensor:
    """1 with probability p (a number, or a Tensor that broadcasts), else 0; of the shape and dtype of `input`.

    Raises:
        TypeError: input is no Tensor, or p holds no numbers. ValueError: p is outside of [0, 1].
    """
    x = _tensor("bernoulli", input)
    if not isinstance(p, (int, float, Tensor)):
        raise ArgumentTypeError(f"bernoulli: p must be a number or a Tensor, but is {type(p).__name__}")
    if not isinstance(p, Tensor) and not 0 <= p <= 1:
        raise ArgumentValueError(f"For bernoulli, p should be in [0, 1], but got {p}.")
    u: Any = random(RandomUniform(dt.float32), x.shape, source_of("bernoulli", seed))
    chance = cast(p, dt.float32) if isinstance(p, Tensor) else p
    return cast(u < chance, x.dtype)


def randperm(n: int, seed: int | Generator = 0, offset: int = 0, dtype: Any = dt.int64) -> Tensor:
    """A random order of 0 … n - 1.

    Args:
        seed, offset: together the seed of a sequence; 0 and -1 without an offset are none.

    Raises:
        TypeError: n, seed or offset is no int. ValueError: n is not positive, or a seed less than -1.
    """
    if not isinstance(n, (int, np.integer)) or isinstance(n, bool):
        raise ArgumentTypeError(f"randperm: n must be an int, but is {type(n).__name__}")
    if n < 1:
        raise ArgumentValueError(f"randperm: n must be greater than 0, but is {n}")
    if not isinstance(seed, (int, Generator)) or not isinstance(offset, int):
        raise ArgumentTypeError(f"randperm: seed and offset must be ints, but are {type(seed).__name__} and {type(offset).__name__}")
    if isinstance(seed, int):
        seed = 0 if seed == -1 else seed
        check_not_negative("randperm", "seed", seed)
        seed = seed * 2**32 + offset
    return cast(_order(int(n), source_of("randperm", seed)), dtype)


def _order(n: int, source: Generator) -> Tensor:
    from graphcell.ops.functional.sorting import argsort

    return argsort(random(RandomUniform(dt.float64), (n,), source))


def shuffle(x: Any, seed: Any = None) -> Tensor:
    """x with its first dimension in a random order."""
    t = _tensor("shuffle", x)
    if not t.ndim:
        return t  # type: ignore[no-any-return]
    return t.gather(_order(t.shape[0], source_of("shuffle", seed)), 0)  # type: ignore[no-any-return]


def multinomial(input: Any, num_samples: int, replacement: bool = True, seed: Any = None) -> Tensor:
    """Draws class numbers with probabilities in proportion to `input`, (C,) or (N, C).

    Returns:
        Tensor (num_samples,) or (N, num_samples), int32.

    Raises:
        TypeError: no Tensor, or a number of samples that is no int. ValueError: other shapes, more samples than classes without
        replacement.
    """
    from graphcell.ops.functional.sorting import topk

    p = _tensor("multinomial", input)
    if not isinstance(num_samples, (int, np.integer)) or isinstance(num_samples, bool):
        raise ArgumentTypeError(f"multinomial: num_samples must be an int, but is {type(num_samples).__name__}")
    if p.ndim not in (1, 2) or num_samples < 0:
        raise ArgumentValueError(f"multinomial: cannot draw {num_samples} samples from an input of shape {p.shape}")
    classes = p.shape[-1]
    if not replacement and num_samples > classes:
        raise ArgumentValueError(f"multinomial: cannot draw {num_samples} of {classes} classes without replacement")
    source = source_of("multinomial", seed)
    if not replacement:  # the largest of log(p) + Gumbel noise
        keys: Any = cast(p, dt.float64).log() + _gumbel(p.shape, dt.float64, source)
        return cast(topk(keys, num_samples)[1], dt.int32)
    return cast(drawn_classes(p, num_samples, source), dt.int32)


def drawn_classes(weights: Any, count: int, source: Generator) -> Tensor:
    """`count` class numbers in proportion to the last dimension of `weights`; int64."""
    cumulative: Any = cast(weights, dt.float64).cumsum(-1)
    u: Any = random(RandomUniform(dt.float64), (*weights.shape[:-1], count), source)
    target = u * cumulative[..., -1:]
    passed: Any = cast(target.expand_dims(-1) >= cumulative.expand_dims(-2), dt.int64)
    return passed.sum(-1).clip(0, weights.shape[-1] - 1)  # type: ignore[no-any-return]


def _gumbel(shape: Shape, dtype: DType, source: Generator) -> Any:
    """Gumbel noise, from numbers in (0, 1]."""
    u: Any = 1.0 - random(RandomUniform(dt.float64), shape, source)
    return cast(-((-u.log()) + 1e-300).log(), dtype)


def gumbel_softmax(logits: Any, tau: float = 1.0, hard: bool = False, dim: int = -1) -> Tensor:
    """softmax((logits + Gumbel noise) / tau) along `dim`; with `hard` the one-hot vector of its maximum, with the same gradient.

    E. Jang, S. Gu, B. Poole, "Categorical reparameterization with Gumbel-softmax" (ICLR 2017).

    Raises:
        TypeError: no Tensor of floats. ValueError: tau is not positive.
    """
    from graphcell.ops.functional.creation import stop_gradient
    from graphcell.ops.functional.masking import one_hot
    from graphcell.ops.functional.softmax import softmax

    x = tensor_of_floats("gumbel_softmax", logits, "logits")
    if not isinstance(tau, float) or tau <= 0:
        raise ArgumentValueError(f"For 'gumbel_softmax', the 'tau' must be float and must > 0, but got {tau!r}.")
    if not isinstance(dim, int) or not -x.ndim <= dim < x.ndim:
        raise ArgumentValueError(f"For 'gumbel_softmax', the 'dim' must be an int in [{-x.ndim}, {x.ndim}), but got {dim!r}.")
    y: Any = softmax((x + _gumbel(x.shape, x.dtype, generator)) * (1.0 / tau), dim)
    if not hard:
        return y  # type: ignore[no-any-return]
    axis = dim % x.ndim
    hot = cast(one_hot(y.argmax(axis), x.shape[axis], axis=axis if axis < x.ndim - 1 else -1), x.dtype)
    straight: Tensor = y + stop_gradient(hot - y)
    return straight


# -- dropout -------------------------------------------------------------------------------------------------------------
def tensor_of_floats(function: str, x: Any, what: str = "the input") -> Any:
    """`x`, which must be a Tensor of floats; raises TypeError."""
    if not _tensor(function, x).dtype.is_float:
        raise DTypeError(f"{function}: {what} must be a Tensor of floats, but is {x.dtype}")
    return x


def _check_probability(function: str, p: float) -> None:
    if not isinstance(p, (int, float)) or isinstance(p, bool):
        raise ArgumentTypeError(f"{function}: p must be a number, but is {type(p).__name__}")
    if not 0.0 <= p <= 1.0:
        raise ArgumentValueError(f"{function}: p must be in [0, 1], but is {p}")


def dropout(input: Any, p: float = 0.5, training: bool = True, seed: Any = None) -> Tensor:
    """In training, zeros with probability p, all else times 1 / (1 - p); else the input as it is.

    Raises:
        TypeError: no Tensor of floats, or p is no number. ValueError: p is outside of [0, 1].
    """
    _check_probability("dropout", p)
    x = tensor_of_floats("dropout", input)
    return _drop(x, x.shape, p, source_of("dropout", seed)) if training and p > 0 else x


def _drop(x: Any, shape: Shape, p: float, source: Generator = generator) -> Tensor:
    """Drops whole blocks of x: one random number for each element of `shape`, which broadcasts to x."""
    if p >= 1.0:
        return zeros_like(x)
    return _keep(x, random(RandomUniform(dt.float32), shape, source), p)


@composite
def _keep(x: Any, u: Any, p: float) -> Tensor:
    """x / (1 - p) where u is at least p, else 0."""
    return select(broadcast(u >= p, x.shape), x * (1.0 / (1.0 - p)), zeros_like(x))


def _drop_channels(function: str, input: Any, p: float, training: bool, ranks: tuple[int, ...]) -> Tensor:
    _check_probability(function, p)
    x = tensor_of_floats(function, input)
    if x.ndim not in ranks:
        raise ArgumentValueError(
            f"{function}: the input must have {' or '.join(map(str, ranks))} dimensions, but has shape {x.shape}"
        )
    spatial = ranks[-1] - 2
    lead = x.shape[: x.ndim - spatial]
    return _drop(x, (*lead, *(1,) * spatial), p) if training and p > 0 else x


def dropout1d(input: Any, p: float = 0.5, training: bool = True) -> Tensor:
    """Drops whole channels of (N, C, L) or (C, L). Errors as in `dropout`."""
    return _drop_channels("dropout1d", input, p, training, (2, 3))


def dropout2d(input: Any, p: float = 0.5, training: bool = True) -> Tensor:
    """Drops whole channels of (N, C, H, W) or (C, H, W). Errors as in `dropout`."""
    return _drop_channels("dropout2d", input, p, training, (3, 4))


def dropout3d(input: Any, p: float = 0.5, training: bool = True) -> Tensor:
    """Drops whole channels of (N, C, D, H, W) or (C, D, H, W). Errors as in `dropout`."""
    return _drop_channels("dropout3d", input, p, training, (4, 5))
