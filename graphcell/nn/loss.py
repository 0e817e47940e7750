"""Losses as Cells, and the base of users' own."""

from __future__ import annotations

from typing import Any

from graphcell import dtype as dt
from graphcell import ops
from graphcell.errors import ArgumentValueError, ShapeError
from graphcell.nn.cell import Cell
from graphcell.nn.linear import check_bool
from graphcell.ops.functional.loss import reduce_loss


class LossBase(Cell):
    """Base of losses: `get_loss(x, weights)` reduces as `reduction` says.

    Args:
        reduction: 'mean' (default), 'sum' or 'none'.

    Raises:
        ValueError: for any other reduction.
    """

    def __init__(self, reduction: str = "mean"):
        super().__init__()
        if reduction not in ("mean", "sum", "none"):
            raise ArgumentValueError(f"For '{type(self).__name__}', the 'reduction' must be in ['mean', 'sum', 'none'], but got {reduction}.")
        self.reduction = reduction

    def get_axis(self, x: Any) -> tuple[int, ...]:
        """All dimensions of x."""
        return tuple(range(x.ndim))

    def get_loss(self, x: Any, weights: Any = 1.0) -> Any:
        """x times `weights`, reduced."""
        return reduce_loss(x * weights, self.reduction, type(self).__name__)

    def construct(self, logits: Any, labels: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define construct(logits, labels)")


class MSELoss(LossBase):
    """(logits - labels)², reduced."""

    def construct(self, logits: Any, labels: Any) -> Any:
        d = logits - labels
        return self.get_loss(d * d)


class L1Loss(LossBase):
    """|logits - labels|, reduced."""

    def construct(self, logits: Any, labels: Any) -> Any:
        return self.get_loss(ops.abs(logits - labels))


class SmoothL1Loss(LossBase):
    """d² / (2 beta) where d = |logits - labels| < beta, else d - beta / 2; reduction 'none' by default."""

    def __init__(self, beta: float = 1.0, reduction: str = "none"):
        super().__init__(reduction)
        self.beta = beta

    def construct(self, logits: Any, labels: Any) -> Any:
        return ops.smooth_l1_loss(logits, labels, self.beta, self.reduction)


class HuberLoss(LossBase):
    """d² / 2 where d = |logits - labels| <= delta, else delta (d - delta / 2)."""

    def __init__(self, reduction: str = "mean", delta: float = 1.0):
        super().__init__(reduction)
        self.delta = delta

    def construct(self, logits: Any, labels: Any) -> Any:
        return ops.huber_loss(logits, labels, self.reduction, self.delta)


class CrossEntropyLoss(LossBase):
    """Cross entropy of logits (N, C, …) and class numbers or class probabilities; see `ops.cross_entropy`."""

    def __init__(self, weight: Any = None, ignore_index: int = -100, reduction: str = "mean", label_smoothing: float = 0.0):
        super().__init__(reduction)
        self.weight, self.ignore_index, self.label_smoothing = weight, ignore_index, label_smoothing

    def construct(self, logits: Any, labels: Any) -> Any:
        return ops.cross_entropy(logits, labels, self.weight, self.ignore_index, self.reduction, self.label_smoothing)


class NLLLoss(LossBase):
    """Negative log likelihood of log probabilities; see `ops.nll_loss`."""

    def __init__(self, weight: Any = None, ignore_index: int = -100, reduction: str = "mean", label_smoothing: float = 0.0):
        super().__init__(reduction)
        self.weight, self.ignore_index, self.label_smoothing = weight, ignore_index, label_smoothing

    def construct(self, logits: Any, labels: Any) -> Any:
        return ops.nll_loss(logits, labels, self.weight, self.ignore_index, self.reduction, self.label_smoothing)


class SoftmaxCrossEntropyWithLogits(LossBase):
    """Cross entropy of logits (N, C) and labels: class numbers (N,) with `sparse`, else probabilities (N, C).

    Args:
        sparse: default False.
        reduction: 'none' (default), 'mean' or 'sum'.
    """

    def __init__(self, sparse: bool = False, reduction: str = "none"):
        super().__init__(reduction)
        self.sparse = check_bool("SoftmaxCrossEntropyWithLogits", "sparse", sparse)

    def construct(self, logits: Any, labels: Any) -> Any:
        log_p = ops.log_softmax(logits, -1)
        if self.sparse:
            if labels.shape != logits.shape[:-1]:
                raise ShapeError(f"SoftmaxCrossEntropyWithLogits: labels of logits of shape {logits.shape} must have shape {logits.shape[:-1]}, but have {labels.shape}")
            labels = ops.one_hot(labels, logits.shape[-1]).astype(logits.dtype)
        elif labels.shape != logits.shape:
            raise ShapeError(f"SoftmaxCrossEntropyWithLogits: labels must have the shape of the logits, {logits.shape}, but have {labels.shape}", hint="use sparse=True for class numbers")
        return self.get_loss(-(log_p * labels).sum(-1))  # type: ignore[attr-defined, operator]


class BCELoss(LossBase):
    """Binary cross entropy of probabilities."""

    def __init__(self, weight: Any = None, reduction: str = "mean"):
        super().__init__(reduction)
        self.weight = weight

    def construct(self, logits: Any, labels: Any) -> Any:
        return ops.binary_cross_entropy(logits, labels, self.weight, self.reduction)


class BCEWithLogitsLoss(LossBase):
    """Binary cross entropy of sigmoid(logits)."""

    def __init__(self, reduction: str = "mean", weight: Any = None, pos_weight: Any = None):
        super().__init__(reduction)
        self.weight, self.pos_weight = weight, pos_weight

    def construct(self, logits: Any, labels: Any) -> Any:
        return ops.binary_cross_entropy_with_logits(logits, labels, self.weight, self.pos_weight, self.reduction)


class KLDivLoss(LossBase):
    """Kullback-Leibler divergence of log probabilities from probabilities; 'batchmean' divides the sum by N."""

    def __init__(self, reduction: str = "mean"):
        super().__init__("mean" if reduction == "batchmean" else reduction)
        self.reduction = reduction

    def construct(self, logits: Any, labels: Any) -> Any:
        return ops.kl_div(logits, labels, self.reduction)


class CosineEmbeddingLoss(LossBase):
    """1 - cos(x1, x2) where the label is 1, max(0, cos - margin) where it is -1."""

    def __init__(self, margin: float = 0.0, reduction: str = "mean"):
        super().__init__(reduction)
        if not -1.0 <= margin <= 1.0:
            raise ArgumentValueError(f"For 'CosineEmbeddingLoss', the 'margin' must be in range [-1, 1], but got {margin}.")
        self.margin = margin

    def construct(self, logits_x1: Any, logits_x2: Any, labels: Any) -> Any:
        dot = (logits_x1 * logits_x2).sum(-1)
        cosine = dot / ((logits_x1 * logits_x1).sum(-1) * (logits_x2 * logits_x2).sum(-1)).sqrt()
        apart = ops.relu(cosine - self.margin)
        loss = ops.select(labels == 1, 1.0 - cosine, apart)
        return self.get_loss(loss.astype(dt.float32))
