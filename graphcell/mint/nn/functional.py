"""The functions of `mint.nn.functional`: those of `ops`, under PyTorch's names and with its defaults."""

from __future__ import annotations  # noqa: I001  (names in lines, not in columns)

from typing import TYPE_CHECKING, Any

from graphcell import ops
from graphcell.mint.nn.activations import (
    elu, elu_, hardtanh, hardtanh_, leaky_relu, log_softmax, logsigmoid, mish, relu6, relu_, selu, silu, softmax, softplus, threshold, threshold_,
)  # fmt: skip
from graphcell.mint.nn.general import batch_norm, dropout, dropout2d, interpolate, normalize, pad, upsample
from graphcell.mint.nn.losses import (
    binary_cross_entropy, binary_cross_entropy_with_logits, cosine_embedding_loss, cross_entropy, kl_div, l1_loss, mse_loss, nll_loss,
    smooth_l1_loss, soft_margin_loss,
)  # fmt: skip
from graphcell.mint.nn.sliding import (
    adaptive_max_pool1d, avg_pool1d, avg_pool2d, avg_pool3d, conv1d, conv2d, conv3d, conv_transpose2d, max_pool2d,
)  # fmt: skip
from graphcell.mint.shapes import flatten
from graphcell.missing import getattr_of as _getattr_of
from graphcell.ops import (
    adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d, adaptive_max_pool2d, embedding, fold, gelu, grid_sample, group_norm,
    hardshrink, hardsigmoid, hardswish, layer_norm, pixel_shuffle, prelu, relu, sigmoid, softshrink, tanh, unfold,
)  # fmt: skip
from graphcell.tensor import Tensor

__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d", "avg_pool1d", "avg_pool2d",
    "avg_pool3d", "batch_norm", "binary_cross_entropy", "binary_cross_entropy_with_logits", "conv1d", "conv2d", "conv3d", "conv_transpose2d",
    "cosine_embedding_loss", "cross_entropy", "dropout", "dropout2d", "elu", "elu_", "embedding", "flatten", "fold", "gelu", "glu", "grid_sample",
    "group_norm", "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "hardtanh_", "interpolate", "kl_div", "l1_loss", "layer_norm",
    "leaky_relu", "linear", "log_softmax", "logsigmoid", "max_pool2d", "max_unpool2d", "mish", "mse_loss", "nll_loss", "normalize", "one_hot",
    "pad", "pixel_shuffle", "prelu", "relu", "relu6", "relu_", "selu", "sigmoid", "silu", "smooth_l1_loss", "soft_margin_loss", "softmax",
    "softplus", "softshrink", "tanh", "threshold", "threshold_", "unfold", "upsample",
]  # fmt: skip


def glu(input: Any, dim: int = -1) -> Tensor:
    """The first half of input along `dim` times the sigmoid of the second half."""
    return ops.glu(input, dim)


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """input @ weight.T + bias: (*, in), (out, in) and (out,) give (*, out)."""
    return ops.dense(input, weight, bias)


def max_unpool2d(input: Tensor, indices: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None) -> Tensor:
    """Zeros with the elements of input at the places `indices`, as `max_pool2d` gives them: its inverse but for what it left out."""
    return ops.max_unpool2d(input, indices, kernel_size, stride, padding, output_size)


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


if not TYPE_CHECKING:  # type checkers know all names that there are
    __getattr__ = _getattr_of(__name__)
