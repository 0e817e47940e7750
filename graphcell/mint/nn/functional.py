"""The functions of `mint.nn.functional`: those of `ops`, under PyTorch's names and with its defaults."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphcell import ops
from graphcell.errors import ArgumentValueError
from graphcell.missing import getattr_of as _getattr_of
from graphcell.ops import (
    adaptive_max_pool2d,
    grid_sample,
    group_norm,
    hardshrink,
    hardsigmoid,
    hardswish,
    prelu,
    relu,
    sigmoid,
    softshrink,
    tanh,
)  # fmt: skip
from graphcell.tensor import Tensor

__all__ = [
    "adaptive_max_pool2d", "avg_pool1d", "binary_cross_entropy", "flatten", "glu", "grid_sample", "group_norm", "hardshrink", "hardsigmoid", "hardswish",
    "linear", "one_hot", "prelu", "relu", "sigmoid", "silu", "softmax", "softshrink", "tanh",
]  # fmt: skip


def avg_pool1d(input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True) -> Tensor:
    """Mean over windows of the last dimension of input (N, C, L) or (C, L).

    Args:
        stride: by default kernel_size.
        padding: zeros on both sides, at most half of the kernel.
        ceil_mode: a last, partial window counts.
        count_include_pad: the zeros of `padding` count as elements.
    """
    length, step, edge = (x[0] if isinstance(x, (tuple, list)) and len(x) == 1 else x for x in (kernel_size, stride, padding))
    return ops.avg_pool1d(input, length, length if step is None else step, edge, ceil_mode, count_include_pad)


def binary_cross_entropy(input: Any, target: Any, weight: Any = None, reduction: str = "mean") -> Tensor:
    """-(y log p + (1 - y) log(1 - p)) of probabilities `input` and `target`s of their shape; see `ops.binary_cross_entropy`."""
    return ops.binary_cross_entropy(input, target, weight, reduction)


def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Dimensions `start_dim` to `end_dim` as one."""
    return ops.flatten(input, start_dim=start_dim, end_dim=end_dim)


def glu(input: Any, dim: int = -1) -> Tensor:
    """The first half of input along `dim` times the sigmoid of the second half."""
    return ops.glu(input, dim)


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """input @ weight.T + bias: (*, in), (out, in) and (out,) give (*, out)."""
    return ops.dense(input, weight, bias)


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """1 where the index along a new last dimension is that of `tensor`, else 0; in the dtype of `tensor`.

    Args:
        num_classes: the extent of that dimension; -1: one more than the largest index. A graph does not know values: give it there,
            or the call runs as Python.

    Raises:
        TypeError: tensor holds no integers, num_classes is no int. ValueError: num_classes is less than -1.
    """
    if num_classes == -1:
        num_classes = int(tensor.max()) + 1
    return ops.one_hot(tensor, num_classes, Tensor(1, tensor.dtype), Tensor(0, tensor.dtype))


def silu(input: Any, inplace: bool = False) -> Tensor:
    """input * sigmoid(input), also called swish.

    Raises:
        ValueError: inplace is set; results are new Tensors.
    """
    if inplace:
        raise ArgumentValueError("silu: inplace is not supported")
    return ops.silu(input)


def softmax(input: Tensor, dim: int | None = None, dtype: Any = None) -> Tensor:
    """exp(x) over its sum along `dim`; with `dtype` the input is converted first. Default of dim: 0 for ranks 0, 1 and 3, else 1."""
    if dim is None:
        dim = 0 if input.ndim in (0, 1, 3) else 1
    return ops.softmax(input, dim, dtype=dtype)


if not TYPE_CHECKING:  # type checkers know all names that there are
    __getattr__ = _getattr_of(__name__)
