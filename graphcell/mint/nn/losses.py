"""Losses with PyTorch's arguments, in PyTorch's order.

Enters: Tensors of floats, and Tensors of class numbers. Leaves: what `ops` computes. Both modes, with gradients.
"""

from __future__ import annotations

from typing import Any

from graphcell import ops
from graphcell.ops.functional.common import cast, pair
from graphcell.ops.functional.loss import reduce_loss
from graphcell.tensor import Tensor


def binary_cross_entropy(input: Any, target: Any, weight: Any = None, reduction: str = "mean") -> Tensor:
    """-(y log p + (1 - y) log(1 - p)) of probabilities `input` and `target`s of their shape; see `ops.binary_cross_entropy`."""
    return ops.binary_cross_entropy(input, target, weight, reduction)


def binary_cross_entropy_with_logits(input: Any, target: Any, weight: Any = None, reduction: str = "mean", pos_weight: Any = None) -> Tensor:
    """The same of sigmoid(input).

    Args:
        weight: of each element; pos_weight: of the targets that are 1; both broadcast.
    """
    return ops.binary_cross_entropy_with_logits(input, target, weight, pos_weight, reduction)


def cosine_embedding_loss(input1: Any, input2: Any, target: Any, margin: float = 0.0, reduction: str = "mean") -> Tensor:
    """1 - cos(input1, input2) where target is 1, max(0, cos - margin) where it is -1; vectors lie along the last dimension."""
    return ops.cosine_embedding_loss(input1, input2, target, margin, reduction)


def cross_entropy(
    input: Any, target: Any, weight: Any = None, ignore_index: int = -100, reduction: str = "mean", label_smoothing: float = 0.0
) -> Tensor:  # fmt: skip
    """`nll_loss` of log_softmax(input), or its mean under the probabilities `target` of the shape of input; see `ops.cross_entropy`."""
    return ops.cross_entropy(input, target, weight, ignore_index, reduction, label_smoothing)


def kl_div(input: Any, target: Any, reduction: str = "mean", log_target: bool = False) -> Tensor:
    """target * (log(target) - input), 0 where target is 0: the divergence of the distribution `target` from e**input.

    Args:
        reduction: 'mean', 'sum', 'none', or 'batchmean': the sum over the extent of the first dimension.
        log_target: target holds logarithms: e**target * (target - input).

    Raises:
        TypeError: an operand is no Tensor or number. ValueError: another reduction, shapes that do not broadcast.
    """
    x, y = pair(input, target, "kl_div")
    each: Any = ops.exp(y) * (y - x) if log_target else ops.xlogy(y, y) - y * x
    if reduction == "batchmean":
        return each.sum() / each.shape[0]  # type: ignore[no-any-return]
    return reduce_loss(each, reduction, "kl_div")


def l1_loss(input: Any, target: Any, reduction: str = "mean") -> Tensor:
    """|input - target|, which broadcast, reduced."""
    return ops.l1_loss(input, target, reduction)


def mse_loss(input: Any, target: Any, reduction: str = "mean") -> Tensor:
    """(input - target)², which broadcast, reduced."""
    return ops.mse_loss(input, target, reduction)


def nll_loss(input: Any, target: Any, weight: Any = None, ignore_index: int = -100, reduction: str = "mean") -> Tensor:
    """-weight[target] * input[target]: input (N, C, …) holds log-probabilities, target (N, …) class numbers; see `ops.nll_loss`."""
    return ops.nll_loss(input, target, weight, ignore_index, reduction)


def smooth_l1_loss(input: Any, target: Any, reduction: str = "mean", beta: float = 1.0) -> Tensor:
    """d² / (2 beta) where d = |input - target| is less than beta, else d - beta / 2. With beta 0 it is `l1_loss`.

    Raises:
        ValueError: beta is negative.
    """
    if beta == 0:
        return ops.l1_loss(input, target, reduction)
    return ops.smooth_l1_loss(input, target, beta, reduction)


def soft_margin_loss(input: Any, target: Any, reduction: str = "mean") -> Tensor:
    """log(1 + e**(-target * input)), reduced; target holds 1 and -1, as numbers of any dtype."""
    return ops.soft_margin_loss(input, cast(target, input.dtype), reduction)
