"""Random Tensors with PyTorch's arguments: sizes first, `generator` for a source of one's own.

They draw from the process's generator, or from the `mindspore.Generator` that they are given; both modes. MindSpore's numbers are others.
"""

from __future__ import annotations

from typing import Any

from graphcell import dtype as dt
from graphcell import ops
from graphcell.errors import ArgumentTypeError, ArgumentValueError
from graphcell.mint.functions import is_meta
from graphcell.ops.functional.filling import drawn_from
from graphcell.tensor import Tensor


def rand(*size: Any, generator: Any = None, dtype: Any = None, device: str | None = None) -> Tensor:
    """Uniform on [0, 1), of shape `size` (ints, or one tuple or list); dtype: by default float32.

    Raises:
        TypeError: a size that is no int. ValueError: a negative one, a dtype that is no float, a device other than the CPU.
    """
    _only_cpu("rand", device)
    return ops.rand(*size, dtype=dtype, seed=drawn_from(generator))


def randn(*size: Any, generator: Any = None, dtype: Any = None, device: str | None = None) -> Tensor:
    """Standard normal, of shape `size` (ints, or one tuple or list); dtype: by default float32. Errors as in `rand`."""
    _only_cpu("randn", device)
    return ops.randn(*size, dtype=dtype, seed=drawn_from(generator))


def rand_like(input: Tensor, *, dtype: Any = None, device: str | None = None) -> Tensor:
    """Uniform on [0, 1), of the shape and (unless given) dtype of input. Errors as in `rand`."""
    _only_cpu("rand_like", device)
    return ops.rand_like(input, dtype=dtype)


def randn_like(input: Tensor, *, dtype: Any = None, device: str | None = None) -> Tensor:
    """Standard normal, of the shape and (unless given) dtype of input. Errors as in `rand`."""
    _only_cpu("randn_like", device)
    return ops.randn_like(input, dtype=dtype)


def randint(*args: Any, generator: Any = None, dtype: Any = None, device: str | None = None) -> Tensor:
    """`randint(high, size)`, `randint(low, high, size)`: integers uniform on [low, high), low 0 by default; dtype: by default int64.

    Raises:
        TypeError: bounds that are no ints, or none. ValueError: low is not less than high, a device other than the CPU.
    """
    _only_cpu("randint", device)
    low, high, size = _bounds("randint", args, ("low", "high", "size"))
    return _integers(low, high, size, drawn_from(generator), dt.int64 if dtype is None else dt.as_dtype(dtype))


def randint_like(input: Tensor, *args: Any, dtype: Any = None, device: str | None = None) -> Tensor:
    """`randint_like(input, high)`, `randint_like(input, low, high)`: integers uniform on [low, high), of the shape and (unless given) dtype of input.

    Raises:
        TypeError: bounds that are no ints, or none. ValueError: low is not less than high, a device other than the CPU.
    """
    _only_cpu("randint_like", device)
    low, high = _bounds("randint_like", args, ("low", "high"))
    return _integers(low, high, input.shape, drawn_from(None), input.dtype if dtype is None else dt.as_dtype(dtype))


def _integers(low: Any, high: Any, size: Any, source: Any, dtype: dt.DType) -> Tensor:
    numbers = ops.randint(low, high, size, source, dtype=dtype if dtype.is_integer else dt.int64)
    return ops.cast(numbers, dtype)


def _bounds(function: str, given: tuple[Any, ...], names: tuple[str, ...]) -> tuple[Any, ...]:
    """The values of `names`, the first of which may be left out: it is 0 then."""
    if len(given) not in (len(names) - 1, len(names)):
        raise ArgumentTypeError(f"{function}: expected {', '.join(names)}, of which low may be left out, but got {len(given)} arguments")
    return given if len(given) == len(names) else (0, *given)


def randperm(n: int, *, generator: Any = None, dtype: Any = dt.int64) -> Tensor:
    """A random order of 0 … n - 1; n 0 gives none.

    Raises:
        TypeError: n is no int. ValueError: n is negative.
    """
    if n == 0 and isinstance(n, int) and not isinstance(n, bool):
        return ops.zeros((0,), dtype)
    return ops.randperm(n, drawn_from(generator), dtype=dtype)


def normal(mean: Any = 0.0, std: Any = 1.0, size: Any = None, generator: Any = None) -> Tensor:
    """Normal with `mean` and `std`: numbers, with a `size`, or Tensors that broadcast with each other; float32.

    Raises:
        TypeError: two numbers without a size, or a size beside a Tensor. ValueError: std is negative.
    """
    if not isinstance(std, Tensor) and std < 0:
        raise ArgumentValueError(f"normal: std must not be negative, but is {std}")
    if any(isinstance(x, Tensor) for x in (mean, std)) == (size is not None):
        raise ArgumentTypeError("normal: a size goes with two numbers, mean and std, and with these alone")
    return ops.normal(() if size is None else size, mean, std, drawn_from(generator))


def bernoulli(input: Tensor, *, generator: Any = None) -> Tensor:
    """1 with the probability that each element gives, else 0; of the dtype of input.

    Raises:
        TypeError: no Tensor of floats.
    """
    return input.bernoulli(generator=generator)  # type: ignore[no-any-return]


def multinomial(input: Tensor, num_samples: int, replacement: bool = False, *, generator: Any = None) -> Tensor:
    """Draws class numbers (Int64) with probabilities in proportion to input, (C,) or (N, C): (num_samples,) or (N, num_samples).

    Raises:
        TypeError: no Tensor, or a number of samples that is no int. ValueError: other shapes, more samples than classes without replacement.
    """
    return ops.cast(ops.multinomial(input, num_samples, replacement, drawn_from(generator)), dt.int64)


def _only_cpu(function: str, device: str | None) -> None:
    if is_meta(function, device):
        raise ArgumentValueError(f"{function}: random numbers need values, which the device 'meta' has not")
