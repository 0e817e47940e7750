"""Initializers: how the first values of Parameters are drawn.

`initializer(init, shape, dtype)` gives a Tensor without data, which are made by `init_data()` or when they are first needed. An
Initializer fills a numpy array when called with it. All draw from one generator, which `set_seed` starts anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from graphcell import dtype as dt
from graphcell.common.seed import initializer_rng
from graphcell.errors import ArgumentTypeError, ArgumentValueError, NotImplementedFeatureError, ShapeError
from graphcell.ir.types import Shape
from graphcell.tensor import Tensor

Array = np.ndarray[Any, Any]

__all__ = [
    "Constant", "Dirac", "HeNormal", "HeUniform", "Identity", "Initializer", "Normal", "One", "Orthogonal", "Sparse", "TruncatedNormal",
    "Uniform", "VarianceScaling", "XavierNormal", "XavierUniform", "Zero", "initializer",
]  # fmt: skip

_TRUNCATED_DEVIATION = 0.87962566103423978  # standard deviation of a standard normal variable cut at -2 and 2


class Initializer:
    """The base class. A subclass gives `_initialize(arr)`, which fills a numpy array in place.

    Args:
        kwargs: kept as `_kwargs`, for subclasses that describe themselves so.
    """

    def __init__(self, **kwargs: Any) -> None:
        self._kwargs = kwargs

    def _initialize(self, arr: Array) -> None:
        raise NotImplementedFeatureError(f"{type(self).__name__} does not define _initialize(arr)")

    def __call__(self, arr: Array) -> None:
        """Fills `arr` in place.

        Raises:
            ValueError: the initializer does not go with its shape.
        """
        self._initialize(arr)


class Zero(Initializer):
    """0 in every element."""

    def _initialize(self, arr: Array) -> None:
        arr[...] = 0


class One(Initializer):
    """1 in every element."""

    def _initialize(self, arr: Array) -> None:
        arr[...] = 1


class Constant(Initializer):
    """`value`, a number (or an array that broadcasts), in every element."""

    def __init__(self, value: Any):
        super().__init__(value=value)
        self.value = value

    def _initialize(self, arr: Array) -> None:
        arr[...] = self.value


class Normal(Initializer):
    """A normal distribution of standard deviation `sigma` around `mean`."""

    def __init__(self, sigma: float = 0.01, mean: float = 0.0):
        super().__init__(sigma=sigma, mean=mean)
        self.sigma, self.mean = sigma, mean

    def _initialize(self, arr: Array) -> None:
        _not_negative(self.sigma)
        _fill_normal(arr, self.sigma, self.mean)


class TruncatedNormal(Initializer):
    """A normal distribution of standard deviation `sigma` around `mean`, of which only values from `a` to `b` are taken."""

    def __init__(self, sigma: float = 0.01, mean: float = 0.0, a: float = -2.0, b: float = 2.0):
        super().__init__(sigma=sigma, mean=mean, a=a, b=b)
        self.sigma, self.mean, self.a, self.b = sigma, mean, a, b

    def _initialize(self, arr: Array) -> None:
        _not_negative(self.sigma)
        _fill_truncated(arr, self.sigma, self.mean, self.a, self.b)


class Uniform(Initializer):
    """A uniform distribution from -scale to scale."""

    def __init__(self, scale: float = 0.07):
        super().__init__(scale=scale)
        self.scale = scale

    def _initialize(self, arr: Array) -> None:
        _fill_uniform(arr, self.scale)


class XavierUniform(Initializer):
    """A uniform distribution from -u to u, u = gain * sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio 2010)."""

    def __init__(self, gain: float = 1):
        super().__init__(gain=gain)
        self.gain = gain

    def _initialize(self, arr: Array) -> None:
        _fill_uniform(arr, self.gain * math.sqrt(6.0 / sum(fans(arr.shape))))


class XavierNormal(Initializer):
    """A normal distribution around 0 of standard deviation gain * sqrt(2 / (fan_in + fan_out)) (Glorot and Bengio 2010)."""

    def __init__(self, gain: float = 1):
        super().__init__(gain=gain)
        self.gain = gain

    def _initialize(self, arr: Array) -> None:
        _fill_normal(arr, self.gain * math.sqrt(2.0 / sum(fans(arr.shape))))


class HeUniform(Initializer):
    """A uniform distribution from -u to u, u = gain * sqrt(3 / fan) (He et al. 2015).

    Args:
        negative_slope: of the leaky_relu that follows.
        mode: "fan_in" or "fan_out", which keeps the variance forward or backward.
        nonlinearity: "leaky_relu", "relu", "tanh", "sigmoid" or "linear"; it decides the gain.
    """

    def __init__(self, negative_slope: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu"):
        super().__init__(negative_slope=negative_slope, mode=mode, nonlinearity=nonlinearity)
        self.negative_slope, self.mode, self.nonlinearity = negative_slope, mode, nonlinearity

    def _initialize(self, arr: Array) -> None:
        _fill_uniform(arr, math.sqrt(3.0) * _he_deviation(arr.shape, self.negative_slope, self.mode, self.nonlinearity))


class HeNormal(Initializer):
    """A normal distribution around 0 of standard deviation gain / sqrt(fan) (He et al. 2015); arguments as of `HeUniform`."""

    def __init__(self, negative_slope: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu"):
        super().__init__(negative_slope=negative_slope, mode=mode, nonlinearity=nonlinearity)
        self.negative_slope, self.mode, self.nonlinearity = negative_slope, mode, nonlinearity

    def _initialize(self, arr: Array) -> None:
        _fill_normal(arr, _he_deviation(arr.shape, self.negative_slope, self.mode, self.nonlinearity))


class VarianceScaling(Initializer):
    """A distribution around 0 of variance scale / n.

    Args:
        scale: positive.
        mode: what n is: "fan_in", "fan_out" or "fan_avg".
        distribution: "truncated_normal" (cut at two standard deviations of the normal), "untruncated_normal" or "uniform".

    Raises:
        ValueError: for other arguments.
    """

    def __init__(self, scale: float = 1.0, mode: str = "fan_in", distribution: str = "truncated_normal"):
        super().__init__(scale=scale, mode=mode, distribution=distribution)
        if scale <= 0:
            raise ArgumentValueError(f"VarianceScaling: scale must be positive, but is {scale}")
        _one_of("VarianceScaling", "mode", mode, ("fan_in", "fan_out", "fan_avg"))
        _one_of("VarianceScaling", "distribution", distribution, ("truncated_normal", "untruncated_normal", "uniform"))
        self.scale, self.mode, self.distribution = scale, mode, distribution

    def _initialize(self, arr: Array) -> None:
        fan_in, fan_out = fans(arr.shape)
        n = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2.0}[self.mode]
        deviation = math.sqrt(self.scale / n)
        if self.distribution == "uniform":
            _fill_uniform(arr, math.sqrt(3.0) * deviation)
        elif self.distribution == "untruncated_normal":
            _fill_normal(arr, deviation)
        else:
            sigma = deviation / _TRUNCATED_DEVIATION
            _fill_truncated(arr, sigma, 0.0, -2.0 * sigma, 2.0 * sigma)


class Identity(Initializer):
    """Ones on the main diagonal of a matrix, zeros elsewhere."""

    def _initialize(self, arr: Array) -> None:
        _need_rank(arr, (2,), "Identity")
        arr[...] = np.eye(*arr.shape)


class Sparse(Initializer):
    """A matrix of normal numbers around 0, of each column of which the share `sparsity` is 0.

    Args:
        sparsity: between 0 and 1. sigma: standard deviation of the rest.
    """

    def __init__(self, sparsity: float, sigma: float = 0.01):
        super().__init__(sparsity=sparsity, sigma=sigma)
        self.sparsity, self.sigma = sparsity, sigma

    def _initialize(self, arr: Array) -> None:
        _need_rank(arr, (2,), "Sparse")
        rows, columns = arr.shape
        _fill_normal(arr, self.sigma)
        order = np.argsort(initializer_rng().random((rows, columns)), axis=0)
        np.put_along_axis(arr, order[: math.ceil(self.sparsity * rows)], 0, axis=0)


class Dirac(Initializer):
    """The identity as a convolution: a 1 in the middle of the window that leads from input channel k to output channel k, of each group.

    Args:
        groups: number of groups; divides the output channels.
    """

    def __init__(self, groups: int = 1):
        super().__init__(groups=groups)
        self.groups = groups

    def _initialize(self, arr: Array) -> None:
        _need_rank(arr, (3, 4, 5), "Dirac")
        if self.groups < 1 or arr.shape[0] % self.groups:
            raise ArgumentValueError(f"Dirac: groups must divide the {arr.shape[0]} output channels, but is {self.groups}")
        arr[...] = 0
        middle = tuple(extent // 2 for extent in arr.shape[2:])
        channels = arr.shape[0] // self.groups
        for group in range(self.groups):
            for k in range(min(channels, arr.shape[1])):
                arr[(group * channels + k, k, *middle)] = 1


class Orthogonal(Initializer):
    """`gain` times a matrix with orthonormal rows or columns (whichever are fewer); dimensions after the first count as one (Saxe et al. 2013)."""

    def __init__(self, gain: float = 1.0):
        super().__init__(gain=gain)
        self.gain = gain

    def _initialize(self, arr: Array) -> None:
        if arr.ndim < 2:
            raise ShapeError(f"Orthogonal: the Tensor must have two dimensions at least, but has shape {arr.shape}")
        rows, columns = arr.shape[0], math.prod(arr.shape[1:])
        normal = initializer_rng().standard_normal((max(rows, columns), min(rows, columns)))
        q, r = np.linalg.qr(normal)
        q = q * np.where(np.diag(r) < 0, -1.0, 1.0)  # without this the distribution would not be uniform
        arr[...] = self.gain * (q if rows >= columns else q.T).reshape(arr.shape)


# -- drawing -----------------------------------------------------------------------------------------------------------
def fans(shape: Shape) -> tuple[int, int]:
    """Inputs and outputs of one unit, of weights (out, in, *window).

    Raises:
        ValueError: there are less than two dimensions.
    """
    if len(shape) < 2:
        raise ShapeError(f"'fan_in' and 'fan_out' need two dimensions at least, but the shape is {shape}")
    window = math.prod(shape[2:])
    return shape[1] * window, shape[0] * window


_calculate_fan_in_and_fan_out = fans  # the name by which models import it from MindSpore


def _he_deviation(shape: Shape, negative_slope: float, mode: str, nonlinearity: str) -> float:
    if nonlinearity == "leaky_relu" and (isinstance(negative_slope, bool) or not isinstance(negative_slope, (int, float, np.floating))):
        raise ArgumentValueError(
            f"For 'HeUniform', 'negative_slope' {negative_slope} is not a valid number.When 'nonlinearity' has been set to 'leaky_relu', "
            f"'negative_slope' should be int or float type, but got {type(negative_slope)}."
        )
    _one_of("HeUniform and HeNormal", "mode", mode, ("fan_in", "fan_out"))
    _one_of("HeUniform and HeNormal", "nonlinearity", nonlinearity, ("leaky_relu", "relu", "tanh", "sigmoid", "linear"))
    gains = {"relu": math.sqrt(2.0), "tanh": 5.0 / 3.0, "leaky_relu": math.sqrt(2.0 / (1.0 + negative_slope**2))}
    fan = fans(shape)[mode == "fan_out"]
    return gains.get(nonlinearity, 1.0) / math.sqrt(fan)


def _not_negative(sigma: float) -> None:
    if sigma < 0:
        raise ArgumentValueError(f"sigma < 0: a standard deviation is not negative, but it is {sigma}")


def _one_of(who: str, what: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ArgumentValueError(f"{who}: {what} must be one of {', '.join(allowed)}, but is {value!r}")


def _need_rank(arr: Array, ranks: tuple[int, ...], who: str) -> None:
    if arr.ndim not in ranks:
        raise ShapeError(f"{who}: the Tensor must have {' or '.join(map(str, ranks))} dimensions, but has shape {arr.shape}")


def _fill_normal(arr: Array, sigma: float, mean: float = 0.0) -> None:
    drawn = np.asarray(initializer_rng().standard_normal(arr.shape, _width(arr)))
    arr[...] = drawn * np.asarray(sigma, drawn.dtype) + np.asarray(mean, drawn.dtype)


def _fill_uniform(arr: Array, bound: float) -> None:
    drawn = np.asarray(initializer_rng().random(arr.shape, _width(arr)))
    arr[...] = (drawn * 2 - 1) * np.asarray(bound, drawn.dtype)


def _width(arr: Array) -> Any:
    """The dtype in which numbers for `arr` are drawn."""
    return np.float64 if arr.dtype == np.float64 else np.float32


def _fill_truncated(arr: Array, sigma: float, mean: float, a: float, b: float) -> None:
    if not a < b or sigma <= 0:
        raise ArgumentValueError(f"TruncatedNormal: needs a < b and a positive sigma, but a is {a}, b is {b}, sigma is {sigma}")
    drawn = _truncated_standard(arr.size, (a - mean) / sigma, (b - mean) / sigma)
    arr[...] = np.clip(drawn * sigma + mean, a, b).reshape(arr.shape)


def _truncated_standard(count: int, low: float, high: float) -> Array:
    """Standard normal numbers between two bounds, by rejection: from the normal itself where that is likely to hit, else from a box."""
    rng = initializer_rng()
    likely = 0.5 * (math.erf(high / math.sqrt(2.0)) - math.erf(low / math.sqrt(2.0)))
    if likely > 0.05:
        return _accepted(count, lambda n: rng.standard_normal(n), lambda x: (x >= low) & (x <= high))
    near = min(max(0.0, low), high)  # the most likely point
    reach = 40.0 / max(abs(near), 1.0)  # beyond, the density has fallen by exp(-40)
    left, right = max(low, near - reach), min(high, near + reach)

    def keep(x: Array) -> Array:
        return rng.random(x.size) < np.exp(0.5 * (near * near - x * x))

    return _accepted(count, lambda n: rng.uniform(left, right, n), keep)


def _accepted(count: int, draw: Callable[[int], Array], keep: Callable[[Array], Array]) -> Array:
    result = np.empty(count)
    done = 0
    while done < count:
        drawn = draw(count - done + 16)
        drawn = drawn[keep(drawn)][: count - done]
        result[done : done + drawn.size] = drawn
        done += drawn.size
    return result


# -- the public function -----------------------------------------------------------------------------------------------
_BY_NAME: dict[str, type[Initializer]] = {
    "zero": Zero, "zeros": Zero, "one": One, "ones": One, "normal": Normal, "truncatednormal": TruncatedNormal, "uniform": Uniform,
    "xavieruniform": XavierUniform, "xavier_uniform": XavierUniform, "xaviernormal": XavierNormal, "xavier_normal": XavierNormal,
    "heuniform": HeUniform, "he_uniform": HeUniform, "henormal": HeNormal, "he_normal": HeNormal, "identity": Identity, "dirac": Dirac,
    "orthogonal": Orthogonal, "variancescaling": VarianceScaling, "sparse": Sparse,
}  # fmt: skip


def as_initializer(init: Any) -> Initializer:
    """An Initializer from itself, its name, or a number.

    Raises:
        TypeError: for anything else, or a name whose class needs arguments. ValueError: an unknown name.
    """
    if isinstance(init, Initializer):
        return init
    if isinstance(init, (bool, int, float, np.number)):
        return Constant(init)
    if not isinstance(init, str):
        raise ArgumentTypeError(f"initializer: init must be a Tensor, a number, a name or an Initializer, but is {type(init).__name__}")
    found = _BY_NAME.get(init.lower())
    if found is None:
        raise ArgumentValueError(f"initializer: there is no initializer named {init!r}", hint=f"the names are {', '.join(_BY_NAME)}")
    if found is Sparse:
        raise ArgumentTypeError("initializer: Sparse needs its sparsity; give Sparse(sparsity) instead of its name")
    return found()


def initializer(init: Any, shape: Any = None, dtype: Any = dt.float32) -> Tensor:
    """A Tensor of `shape` and `dtype` whose data are made by `init` when `init_data()` is called, or when they are first needed.

    Args:
        init: an Initializer, its name in any case ("xavier_uniform"), a number for all elements, or a Tensor, which is given back.
        shape: an int, or a tuple or list of positive ints.
        dtype: the element type itself, not its name.

    Raises:
        TypeError: init or dtype is something else.
        ValueError: an unknown name, a shape with other than positive ints, or not that of the Tensor; dtype is None.
    """
    if isinstance(init, Tensor):
        if shape is not None and _checked_shape(shape) != init.shape:
            raise ShapeError(f"initializer: init has shape {init.shape}, but shape is {tuple(shape)}")
        return init
    filled = as_initializer(init)
    if shape is None:
        raise ArgumentValueError("initializer: shape is missing")
    return Tensor(shape=_checked_shape(shape), dtype=dtype, init=filled)


def _checked_shape(shape: Any) -> Shape:
    dims = (shape,) if isinstance(shape, int) else tuple(shape)
    if any(isinstance(d, bool) or not isinstance(d, (int, np.integer)) or d <= 0 for d in dims):
        raise ArgumentValueError(f"initializer: shape must hold positive ints, but is {dims}")
    return tuple(int(d) for d in dims)
