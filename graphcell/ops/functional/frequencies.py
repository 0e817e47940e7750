"""Public functions around discrete Fourier transforms that need no complex numbers: sample frequencies, and their order."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphcell import dtype as dt
from graphcell.errors import ArgumentTypeError, ArgumentValueError, DTypeError
from graphcell.ops.functional.axes import int_of, int_or_ints, normalize_axis, tensor_of
from graphcell.ops.functional.common import NUMBER_TYPES, constant
from graphcell.ops.functional.rearranging import roll
from graphcell.tensor import Tensor

__all__ = ["fftfreq", "fftshift", "ifftshift", "rfftfreq"]


def fftfreq(n: int, d: float = 1.0, dtype: Any = None) -> Tensor:
    """The frequencies of the n results of a discrete Fourier transform: 0, 1, …, -1, over n d.

    Args:
        d: the time between two samples.
        dtype: of the result; default Float32.

    Raises:
        TypeError: n is no int, d no number, dtype no dtype of floats. ValueError: n is not positive.
    """
    count, step, target = _settings("fftfreq", n, d, dtype)
    return constant(np.fft.fftfreq(count, step).astype(target.np_type))


def rfftfreq(n: int, d: float = 1.0, dtype: Any = None) -> Tensor:
    """The frequencies of the results of a discrete Fourier transform of n real numbers: 0, 1, …, n // 2, over n d; arguments as in `fftfreq`."""
    count, step, target = _settings("rfftfreq", n, d, dtype)
    return constant(np.fft.rfftfreq(count, step).astype(target.np_type))


def _settings(function: str, n: Any, d: Any, dtype: Any) -> tuple[int, float, dt.DType]:
    count, target = int_of(n, function, "n"), dt.float32 if dtype is None else dt.as_dtype(dtype)
    if not isinstance(d, NUMBER_TYPES) or isinstance(d, bool):
        raise ArgumentTypeError(f"{function}: d must be a number, but is {type(d).__name__}")
    if not target.is_float:
        raise DTypeError(f"{function}: dtype must be one of floats, but is {target}")
    if count < 1 or d == 0:
        raise ArgumentValueError(f"{function}: n must be positive and d not 0, but they are {count} and {d}")
    return count, float(d), target


def fftshift(input: Tensor, dim: Any = None) -> Tensor:
    """Frequency 0 moved from the start to the middle of `dim` (an int or several, default all).

    Raises:
        TypeError: no Tensor, dim no int. ValueError: dim out of range.
    """
    return _moved("fftshift", input, dim, 1)


def ifftshift(input: Tensor, dim: Any = None) -> Tensor:
    """The inverse of `fftshift`."""
    return _moved("ifftshift", input, dim, -1)


def _moved(function: str, input: Any, dim: Any, way: int) -> Tensor:
    x = tensor_of(input, function)
    axes = range(x.ndim) if dim is None else [normalize_axis(k, x.ndim, function, "dim") for k in int_or_ints(dim, function, "dim")]
    for axis in axes:
        x = roll(x, way * (x.shape[axis] // 2), axis)
    return x
