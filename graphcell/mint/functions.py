"""Functions of mint whose names, defaults or results are others than those of `ops`: `dim` and `keepdim`, `alpha`, one result or two.

Enters: Tensors. Leaves: what the functions of `ops` compute. Both modes, with gradients.
"""

from __future__ import annotations

import builtins
from typing import Any

from graphcell import dtype as dt
from graphcell import ops
from graphcell.errors import ArgumentTypeError, ArgumentValueError
from graphcell.tensor import Tensor

_CDIST_MODES = ("use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist")


# -- arithmetic ----------------------------------------------------------------------------------------------------------
def add(input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    """input + alpha * other, which broadcast.

    Raises:
        TypeError: alpha is no number, or a float beside two integers.
    """
    return ops.add(input, _scaled(input, other, alpha, "add"))


def sub(input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    """input - alpha * other, which broadcast.

    Raises:
        TypeError: as `add`.
    """
    return ops.sub(input, _scaled(input, other, alpha, "sub"))


def _scaled(input: Any, other: Any, alpha: Any, function: str) -> Any:
    if isinstance(alpha, bool) or not isinstance(alpha, (int, float)):
        raise ArgumentTypeError(f"{function}: alpha must be a number, but is {type(alpha).__name__}")
    if alpha == 1:
        return other
    if isinstance(alpha, float) and not builtins.any(_is_float(x) for x in (input, other)):
        raise ArgumentTypeError(f"{function}: alpha is {alpha}, but input and other hold integers", hint="give an int, or cast one of them to float32 first")
    # An operand of another dtype than the result is converted before it is scaled.
    if isinstance(other, Tensor) and isinstance(alpha, float) and not other.dtype.is_float:
        other = other.astype(input.dtype if isinstance(input, Tensor) else dt.float32)
    return other * alpha


def _is_float(x: Any) -> bool:
    return x.dtype.is_float if isinstance(x, Tensor) else isinstance(x, float)


def floor_divide(input: Any, other: Any) -> Tensor:
    """The largest integer that is not greater than input / other, in their common dtype."""
    return ops.floor_divide(input, other)


def sqrt(input: Any) -> Tensor:
    """Square root; NaN below 0. Integers and Bool become float32."""
    return ops.sqrt(input)


def allclose(input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Any:
    """Whether |input - other| <= atol + rtol * |other| everywhere: a bool; a Bool scalar in a graph, where values are not known.

    Args:
        equal_nan: two NaN are equal.
    """
    close = ops.isclose(input, other, rtol, atol, equal_nan).all()
    return close if close.is_symbolic else bool(close)


# -- reductions ----------------------------------------------------------------------------------------------------------
def all(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """True (Bool) where all elements along `dim` (an int or several, default: all) are not zero."""
    return ops.all(input, dim, keepdim)


def any(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """True (Bool) where some element along `dim` is not zero.

    Raises:
        TypeError: dim is no int.
    """
    return ops.any(input, _one("any", dim), keepdim)


def sum(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The sum over `dim`. Integers and Bool are summed as Int64 unless `dtype` says otherwise."""
    return ops.sum(input, dim, keepdim, dtype=dtype)


def mean(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The mean over `dim`, in the dtype of input or in `dtype`, to which the elements are converted first."""
    return ops.mean(input if dtype is None else input.astype(dt.as_dtype(dtype)), dim, keepdim)


def prod(input: Tensor, dim: int | None = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The product over `dim`. Integers and Bool are multiplied as Int64 unless `dtype` says otherwise.

    Raises:
        TypeError: dim is no int.
    """
    return ops.prod(input, _one("prod", dim), keepdim, dtype)


def amax(input: Tensor, dim: Any = (), keepdim: bool = False) -> Tensor:
    """The largest element along `dim` (an int or several; `()`: all). Its gradient is shared equally among equal ones."""
    return ops.amax(input, dim, keepdim)


def amin(input: Tensor, dim: Any = (), keepdim: bool = False) -> Tensor:
    """The smallest element along `dim` (an int or several; `()`: all). Its gradient is shared equally among equal ones."""
    return ops.amin(input, dim, keepdim)


def max(input: Tensor, dim: Any = None, keepdim: bool = False, *, other: Any = None) -> Any:
    """`max(input)`: the largest element. `max(input, dim, keepdim)`: the largest along `dim`, and the indices of these (Int64).
    `max(input, other)`: the larger one, element by element.
    """
    return _extremes(input, dim, keepdim, other, "max")


def min(input: Tensor, dim: Any = None, keepdim: bool = False, *, other: Any = None) -> Any:
    """`min(input)`: the smallest element. `min(input, dim, keepdim)`: the smallest along `dim`, and the indices of these (Int64).
    `min(input, other)`: the smaller one, element by element.
    """
    return _extremes(input, dim, keepdim, other, "min")


def _extremes(input: Tensor, dim: Any, keepdim: bool, other: Any, function: str) -> Any:
    if isinstance(dim, Tensor) and other is None:
        dim, other = None, dim
    if other is not None:
        if dim is not None or keepdim:
            raise ArgumentTypeError(f"{function}: other goes without dim and keepdim")
        return ops.maximum(input, other) if function == "max" else ops.minimum(input, other)
    reduce = ops.max if function == "max" else ops.min
    if dim is None:
        if keepdim:
            raise ArgumentTypeError(f"{function}: keepdim goes with dim")
        return reduce(input)[0]
    return reduce(input, _one(function, dim), keepdim)


def _one(function: str, dim: Any) -> Any:
    if dim is not None and (isinstance(dim, bool) or not isinstance(dim, int)):
        raise ArgumentTypeError(f"{function}: argument 'dim' must be int but got {type(dim).__name__}.")
    return dim


# -- products and distances ----------------------------------------------------------------------------------------------
def bmm(input: Tensor, mat2: Tensor) -> Tensor:
    """Products of matrices: (b, n, m) and (b, m, p) give (b, n, p)."""
    return ops.bmm(input, mat2)


def cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str = _CDIST_MODES[0]) -> Tensor:
    """The distances of order `p` between the vectors of two sets: (*, m, d) and (*, n, d) give (*, m, n).

    Args:
        compute_mode: accepted; distances are never found by a matrix product, which loses digits of small ones.

    Raises:
        ValueError: another compute_mode than MindSpore's.
    """
    if compute_mode not in _CDIST_MODES:
        raise ArgumentValueError(f"cdist: compute_mode must be one of {', '.join(_CDIST_MODES)}, but is {compute_mode!r}")
    return ops.cdist(x1, x2, p)


# -- shapes and choosing -------------------------------------------------------------------------------------------------
def cat(tensors: Any, dim: int = 0) -> Tensor:
    """Tensors of one dtype one after another along `dim`."""
    return ops.cat(tensors, dim)


def concat(tensors: Any, dim: int = 0) -> Tensor:
    """The same as `cat`."""
    return ops.concat(tensors, dim)


def permute(input: Tensor, dims: Any) -> Tensor:
    """The dimensions in the order `dims`."""
    return ops.permute(input, dims)


def meshgrid(*tensors: Any, indexing: str | None = None) -> tuple[Tensor, ...]:
    """For 1-D Tensors of n0, n1, … elements as many Tensors of shape (n0, n1, …) ('ij', the default) or (n1, n0, …) ('xy')."""
    return ops.meshgrid(*tensors, indexing="ij" if indexing is None else indexing)


def gather(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """result[i][j] = input[index[i][j]][j] for dim 0, input[i][index[i][j]] for dim 1, and so on."""
    return ops.gather_elements(input, dim, index)


def scatter(input: Tensor, dim: int, index: Tensor, src: Any) -> Tensor:
    """A copy of input in which result[index[i][j]][j] = src[i][j] for dim 0, result[i][index[i][j]] = src[i][j] for dim 1, and so on.

    Args:
        src: a Tensor as large as `index` at least, or a number.
    """
    return ops.scatter(input, dim, index, src)


# -- creation ------------------------------------------------------------------------------------------------------------
def zeros(size: Any, *, dtype: Any = None) -> Tensor:
    """Zeros of shape `size` (an int, or a tuple or list of ints); dtype: by default float32."""
    return ops.zeros(size, dtype)


def ones(size: Any, *, dtype: Any = None) -> Tensor:
    """Ones of shape `size` (an int, or a tuple or list of ints); dtype: by default float32."""
    return ops.ones(size, dtype)


def full(size: Any, fill_value: Any, *, dtype: Any = None) -> Tensor:
    """A Tensor of shape `size` (a tuple or list of ints) with `fill_value`, a number or a Tensor of one element, in every element.

    Args:
        dtype: by default that of fill_value: Bool, Int64 or Float32 for a number.

    Raises:
        TypeError: size is no tuple or list of ints. ValueError: an extent is negative, or fill_value has more elements.
    """
    if not isinstance(fill_value, Tensor):
        return ops.full(size, fill_value, dtype=dt.scalar_dtype(fill_value) if dtype is None else dtype)
    if fill_value.size != 1:
        raise ArgumentValueError(f"full: fill_value must have one element, but has shape {fill_value.shape}")
    value = fill_value.reshape(()) if dtype is None else fill_value.reshape(()).astype(dt.as_dtype(dtype))
    return ops.broadcast_to(value, ops.full(size, 0).shape)


def empty(*size: Any, dtype: Any = None, device: str | None = None, pin_memory: bool = False) -> Tensor:
    """A Tensor of that shape (ints, or one tuple or list) for values to come; here they are zeros. dtype: by default float32.

    Raises:
        ValueError: a device other than the CPU, and "meta" (see `Tensor`).
    """
    shape = tuple(size[0] if len(size) == 1 and not isinstance(size[0], int) else size)
    if is_meta("empty", device):
        return Tensor(shape=shape, dtype=dt.as_dtype(dt.float32 if dtype is None else dtype), device="meta")
    return ops.zeros(shape, dtype)


def empty_like(input: Tensor, *, dtype: Any = None, device: str | None = None, pin_memory: bool = False) -> Tensor:
    """A Tensor of the shape and (unless given) dtype of input for values to come; here they are zeros.

    Raises:
        ValueError: a device other than the CPU, and "meta" (see `Tensor`).
    """
    if is_meta("empty_like", device):
        return Tensor(input, None if dtype is None else dt.as_dtype(dtype), device="meta")
    return ops.zeros_like(input, dtype=dtype)


def is_meta(function: str, device: str | None) -> bool:
    """Whether a Tensor without values is asked for."""
    if device is not None and str(device).lower() not in ("cpu", "meta"):
        raise ArgumentValueError(f"{function}: device must be 'CPU' or 'meta', but is {device!r}")
    return device == "meta"
