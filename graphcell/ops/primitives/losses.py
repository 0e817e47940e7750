"""Primitive classes of losses."""

from __future__ import annotations

from typing import Any

from graphcell import ops as F
from graphcell.errors import DTypeError, ShapeError
from graphcell.ops.automatic import uncast
from graphcell.ops.functional.indexing import check_classes
from graphcell.ops.functional.loss import reduce_loss
from graphcell.ops.primitive import Configured, Plain
from graphcell.ops.primitives.checks import check_choice, check_type

__all__ = [
    "BCEWithLogitsLoss", "BinaryCrossEntropy", "KLDivLoss", "NLLLoss", "SigmoidCrossEntropyWithLogits",
    "SmoothL1Loss", "SoftmaxCrossEntropyWithLogits", "SparseSoftmaxCrossEntropyWithLogits",
]  # fmt: skip


class _Reduced(Configured):
    """`reduction`: 'mean', 'sum' or 'none'."""

    def __init__(self, reduction: str):
        super().__init__(reduction=check_choice(type(self).__name__, "reduction", reduction, "none", "mean", "sum"))


class BCEWithLogitsLoss(_Reduced):
    """Binary cross entropy of sigmoid(input): called with (input, target, weight, pos_weight)."""

    def __init__(self, reduction: str = "mean"):
        super().__init__(reduction)

    def __call__(self, input: Any, target: Any, weight: Any = None, posWeight: Any = None) -> Any:
        return F.binary_cross_entropy_with_logits(input, target, weight, posWeight, self.reduction)


class BinaryCrossEntropy(_Reduced):
    """Binary cross entropy of probabilities: called with (input, target, weight)."""

    def __init__(self, reduction: str = "mean"):
        super().__init__(reduction)

    def __call__(self, input: Any, target: Any, weight: Any = None) -> Any:
        return F.binary_cross_entropy(input, target, weight, self.reduction)


class KLDivLoss(Configured):
    """Kullback-Leibler divergence: called with (logits, labels)."""

    def __init__(self, reduction: str = "mean"):
        super().__init__(reduction=check_choice("KLDivLoss", "reduction", reduction, "none", "mean", "batchmean", "sum"))

    def __call__(self, logits: Any, labels: Any) -> Any:
        return F.kl_div(logits, labels, self.reduction)


class NLLLoss(_Reduced):
    """Negative log likelihood: called with (logits, labels, weight). Returns (loss, sum of the weights that count)."""

    def __init__(self, reduction: str = "mean", ignore_index: int = -100):
        super().__init__(reduction)
        self.add_prim_attr("ignore_index", ignore_index)

    def __call__(self, logits: Any, labels: Any, weight: Any) -> tuple[Any, Any]:
        counted = F.cast(labels != self.ignore_index, weight.dtype)
        chosen = F.gather(weight, F.clamp(labels, 0, weight.shape[0] - 1), 0) * counted
        return F.nll_loss(logits, labels, weight, self.ignore_index, self.reduction), chosen.sum()


class SmoothL1Loss(_Reduced):
    """d² / (2 beta) where d = |prediction - target| < beta, else d - beta / 2."""

    def __init__(self, beta: float = 1.0, reduction: str = "none"):
        super().__init__(reduction)
        self.add_prim_attr("beta", check_type("SmoothL1Loss", "beta", beta, bool, int, float))

    def __call__(self, prediction: Any, target: Any) -> Any:
        return F.smooth_l1_loss(prediction, target, self.beta, self.reduction)


class SigmoidCrossEntropyWithLogits(Plain):
    """Binary cross entropy of sigmoid(logits), element by element."""

    @uncast
    def __call__(self, logits: Any, label: Any) -> Any:
        return F.binary_cross_entropy_with_logits(logits, label, None, None, "none")


class SoftmaxCrossEntropyWithLogits(Plain):
    """Cross entropy of logits (N, C) and probabilities (N, C). Returns (loss (N,), its gradient with respect to the logits)."""

    @uncast
    def __call__(self, logits: Any, labels: Any) -> tuple[Any, Any]:
        if logits.shape != labels.shape:
            raise ShapeError(f"SoftmaxCrossEntropyWithLogits: shapes differ, {logits.shape} and {labels.shape}")
        if logits.dtype is not labels.dtype:
            raise DTypeError(f"SoftmaxCrossEntropyWithLogits: dtypes differ, {logits.dtype} and {labels.dtype}")
        labels = F.stop_gradient(labels)
        log_p: Any = F.log_softmax(logits, -1)
        return -(log_p * labels).sum(-1), F.stop_gradient(log_p.exp() - labels)


class SparseSoftmaxCrossEntropyWithLogits(Configured):
    """Mean cross entropy of logits (N, C) and class numbers (N,); with `is_grad` its gradient with respect to the logits."""

    def __init__(self, is_grad: bool = False):
        super().__init__(is_grad=is_grad)

    @uncast
    def __call__(self, logits: Any, labels: Any) -> Any:
        if labels.shape != logits.shape[:1]:
            raise ShapeError(
                f"SparseSoftmaxCrossEntropyWithLogits: labels must have shape {logits.shape[:1]}, but have {labels.shape}"
            )
        check_classes(labels, logits.shape[-1], self.name)
        hot = F.cast(F.one_hot(labels, logits.shape[-1]), logits.dtype)
        log_p: Any = F.log_softmax(logits, -1)
        if self.is_grad:
            return (log_p.exp() - hot) * (1.0 / max(1, logits.shape[0]))
        return reduce_loss(-(log_p * hot).sum(-1), "mean", self.name)
