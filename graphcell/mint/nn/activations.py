"""Activations with PyTorch's arguments; those that end in `_` write into their input.

Enters: Tensors of floats. Leaves: what `ops` computes. Both modes, with gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphcell import ops
from graphcell.ops.dispatch import written_in
from graphcell.ops.methods import update
from graphcell.tensor import Tensor


def _result(x: Any, function: Callable[..., Tensor], settings: tuple[Any, ...], inplace: bool, name: str) -> Tensor:
    """`function` of x: a new Tensor, or written into x."""
    if not inplace:
        return function(x, *settings)
    return update(x, function(written_in(x), *settings), name)


def elu(input: Any, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """input where it is positive, else alpha * (e**input - 1).

    Args:
        inplace: write the result into the input, and return that.
    """
    return _result(input, _elu, (alpha,), inplace, "elu")


def elu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """In place: see `elu`."""
    return _result(input, _elu, (alpha,), True, "elu_")


def _elu(x: Any, alpha: float) -> Tensor:
    """e**x is taken of what is not positive alone, since it could overflow elsewhere."""
    return ops.elu(x) if alpha == 1 else ops.select(x > 0, x, alpha * ops.expm1(ops.select(x > 0, 0.0, x)))


def hardtanh(input: Any, min_val: Any = -1.0, max_val: Any = 1.0, inplace: bool = False) -> Tensor:
    """input, not below min_val and not above max_val.

    Args:
        inplace: write the result into the input, and return that.
    """
    return _result(input, ops.hardtanh, (min_val, max_val), inplace, "hardtanh")


def hardtanh_(input: Tensor, min_val: Any = -1, max_val: Any = 1) -> Tensor:
    """In place: see `hardtanh`."""
    return _result(input, ops.hardtanh, (min_val, max_val), True, "hardtanh_")


def leaky_relu(input: Any, negative_slope: float = 0.01) -> Tensor:
    """input where it is positive, else negative_slope * input."""
    return ops.leaky_relu(input, negative_slope)


def logsigmoid(input: Any) -> Tensor:
    """log(1 / (1 + e**-input))."""
    return ops.logsigmoid(input)


def log_softmax(input: Tensor, dim: int | None = None, *, dtype: Any = None) -> Tensor:
    """The logarithm of `softmax` along `dim`; with `dtype` the input is converted first. Default of dim: 0 for ranks 0, 1 and 3, else 1."""
    return ops.log_softmax(input if dtype is None else ops.cast(input, dtype), softmax_dim(input) if dim is None else dim)


def softmax(input: Tensor, dim: int | None = None, dtype: Any = None) -> Tensor:
    """exp(x) over its sum along `dim`; with `dtype` the input is converted first. Default of dim: 0 for ranks 0, 1 and 3, else 1."""
    return ops.softmax(input, softmax_dim(input) if dim is None else dim, dtype=dtype)


def softmax_along(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """`mint.softmax`: exp(x) over its sum along `dim`; with `dtype` the input is converted first."""
    return ops.softmax(input, dim, dtype=dtype)


def softmax_dim(x: Tensor) -> int:
    """The dimension that is normalised where none is given."""
    return 0 if x.ndim in (0, 1, 3) else 1


def mish(input: Any) -> Tensor:
    """input * tanh(log(1 + e**input))."""
    return ops.mish(input)


def relu_(input: Tensor) -> Tensor:
    """In place: input, not below 0."""
    return _result(input, ops.relu, (), True, "relu_")


def relu6(input: Any, inplace: bool = False) -> Tensor:
    """input, not below 0 and not above 6.

    Args:
        inplace: write the result into the input, and return that.
    """
    return _result(input, ops.relu6, (), inplace, "relu6")


def selu(input: Any) -> Tensor:
    """1.0507 * input where it is positive, else 1.7581 * (e**input - 1); G. Klambauer et al., "Self-normalizing neural networks" (2017)."""
    return ops.selu(input)


def silu(input: Any, inplace: bool = False) -> Tensor:
    """input * sigmoid(input), also called swish.

    Args:
        inplace: write the result into the input, and return that.
    """
    return _result(input, ops.silu, (), inplace, "silu")


def softplus(input: Any, beta: Any = 1, threshold: Any = 20) -> Tensor:
    """log(1 + e**(beta * input)) / beta; the input itself where beta * input is above threshold."""
    return ops.softplus(input, beta, threshold)


def threshold(input: Any, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """input where it is above threshold, else value.

    Args:
        inplace: write the result into the input, and return that.
    """
    return _result(input, ops.threshold, (threshold, value), inplace, "threshold")


def threshold_(input: Tensor, threshold: float, value: float) -> Tensor:
    """In place: see `threshold`."""
    return _result(input, ops.threshold, (threshold, value), True, "threshold_")
