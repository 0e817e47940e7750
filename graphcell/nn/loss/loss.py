"""Losses as Cells, and the base of users' own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphcell import ops
from graphcell.errors import ArgumentTypeError, ArgumentValueError, DTypeError, ShapeError
from graphcell.nn.cell import Cell
from graphcell.nn.checks import check_bool, check_float, check_int
from graphcell.ops.functional.loss import poisson_nll_loss, reduce_loss
from graphcell.tensor import Tensor

__all__ = [
    "BCELoss", "BCEWithLogitsLoss", "CosineEmbeddingLoss", "CrossEntropyLoss", "DiceLoss", "GaussianNLLLoss", "HingeEmbeddingLoss", "HuberLoss",
    "KLDivLoss", "L1Loss", "LossBase", "MAELoss", "MSELoss", "MarginRankingLoss", "MultiLabelSoftMarginLoss", "MultiMarginLoss", "NLLLoss",
    "PoissonNLLLoss", "RMSELoss", "SmoothL1Loss", "SoftMarginLoss", "SoftmaxCrossEntropyWithLogits", "TripletMarginLoss",
    "TripletMarginWithDistanceLoss",
]  # fmt: skip


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
            raise ArgumentValueError(
                f"For '{type(self).__name__}', the 'reduction' must be in ['mean', 'sum', 'none'], but got {reduction}."
            )
        self.reduction = reduction

    def get_axis(self, x: Any) -> tuple[int, ...]:
        """All dimensions of x."""
        return tuple(range(x.ndim))

    def get_loss(self, x: Any, weights: Any = 1.0) -> Any:
        """x times `weights`, reduced."""
        return reduce_loss(x * weights, self.reduction, type(self).__name__)

    def construct(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define construct(logits, labels)")


def _check_tensors(owner: str, **operands: Any) -> None:
    for name, x in operands.items():
        if not isinstance(x, Tensor):
            raise ArgumentTypeError(f"For '{owner}', the '{name}' must be a Tensor, but got '{type(x).__name__}'")


class MSELoss(LossBase):
    """(logits - labels)², reduced."""

    def construct(self, logits: Any, labels: Any) -> Any:
        d = logits - labels
        return self.get_loss(d * d)


class RMSELoss(LossBase):
    """The square root of the mean of (logits - labels)²."""

    def __init__(self) -> None:
        super().__init__()
        self.MSELoss = MSELoss()

    def construct(self, logits: Any, label: Any) -> Any:
        return ops.sqrt(self.MSELoss(logits, label))


class L1Loss(LossBase):
    """|logits - labels|, reduced."""

    def construct(self, logits: Any, labels: Any) -> Any:
        return self.get_loss(ops.abs(logits - labels))


class MAELoss(LossBase):
    """|logits - labels|, reduced."""

    def construct(self, logits: Any, label: Any) -> Any:
        return self.get_loss(ops.abs(logits - label))


class SmoothL1Loss(LossBase):
    """d² / (2 beta) where d = |logits - labels| < beta, else d - beta / 2; reduction 'none' by default."""

    def __init__(self, beta: float = 1.0, reduction: str = "none"):
        super().__init__(reduction)
        if not isinstance(beta, (int, float)):
            raise ArgumentTypeError(
                f"For 'SmoothL1Loss', the type of 'beta' should be one of '[bool, int, float]', but got {type(beta)}."
            )
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

    def __init__(
        self, weight: Any = None, ignore_index: int = -100, reduction: str = "mean", label_smoothing: float = 0.0
    ):
        super().__init__(reduction)
        self.weight, self.ignore_index, self.label_smoothing = weight, ignore_index, label_smoothing

    def construct(self, logits: Any, labels: Any) -> Any:
        _check_tensors("CrossEntropyLoss", logits=logits, labels=labels)
        check_int("CrossEntropyLoss", "ignore_index", self.ignore_index)
        return ops.cross_entropy(
            logits, labels, self.weight, self.ignore_index, self.reduction, self.label_smoothing
        )


class NLLLoss(LossBase):
    """Negative log likelihood of log probabilities; see `ops.nll_loss`."""

    def __init__(self, weight: Any = None, ignore_index: int = -100, reduction: str = "mean"):
        super().__init__(reduction)
        self.weight, self.ignore_index = weight, ignore_index

    def construct(self, logits: Any, labels: Any) -> Any:
        return ops.nll_loss(logits, labels, self.weight, self.ignore_index, self.reduction)


class SoftmaxCrossEntropyWithLogits(LossBase):
    """Cross entropy of logits (N, C) and labels: class numbers (N,) with `sparse`, else probabilities (N, C), to which no gradient flows.

    Args:
        sparse: default False.
        reduction: 'none' (default), 'mean' or 'sum'.

    Raises:
        TypeError, ValueError: settings, dtypes or shapes that do not fit.
    """

    def __init__(self, sparse: bool = False, reduction: str = "none"):
        super().__init__(reduction)
        self.sparse = check_bool("SoftmaxCrossEntropyWithLogits", "sparse", sparse)

    def construct(self, logits: Any, labels: Any) -> Any:
        _check_tensors("SoftmaxCrossEntropyWithLogits", logits=logits, labels=labels)
        if self.sparse:
            if labels.shape != logits.shape[:-1]:
                raise ShapeError(
                    f"SoftmaxCrossEntropyWithLogits: labels of logits of shape {logits.shape} must have shape "
                    f"{logits.shape[:-1]}, but have {labels.shape}"
                )
            labels = ops.cast(ops.one_hot(labels, logits.shape[-1]), logits.dtype)
        if labels.dtype != logits.dtype:
            raise DTypeError(
                f"SoftmaxCrossEntropyWithLogits: labels must have the dtype of the logits, {logits.dtype}, but have {labels.dtype}",
                hint="use sparse=True for class numbers",
            )
        if labels.shape != logits.shape:
            raise ShapeError(
                f"SoftmaxCrossEntropyWithLogits: labels must have the shape of the logits, {logits.shape}, but have {labels.shape}"
            )
        log_p: Any = ops.log_softmax(logits, -1)
        return self.get_loss(-(log_p * ops.stop_gradient(labels)).sum(-1))


class BCELoss(LossBase):
    """Binary cross entropy of probabilities."""

    def __init__(self, weight: Any = None, reduction: str = "mean"):
        super().__init__(reduction)
        self.weight = weight

    def construct(self, logits: Any, labels: Any) -> Any:
        return ops.binary_cross_entropy(logits, labels, self.weight, self.reduction)


class BCEWithLogitsLoss(LossBase):
    """Binary cross entropy of sigmoid(input)."""

    def __init__(self, reduction: str = "mean", weight: Any = None, pos_weight: Any = None):
        super().__init__(reduction)
        self.weight, self.pos_weight = weight, pos_weight

    def construct(self, input: Any, target: Any) -> Any:
        return ops.binary_cross_entropy_with_logits(input, target, self.weight, self.pos_weight, self.reduction)


class KLDivLoss(LossBase):
    """Kullback-Leibler divergence of log probabilities from probabilities; 'batchmean' divides the sum by N."""

    def __init__(self, reduction: str = "mean"):
        super().__init__("mean" if reduction == "batchmean" else reduction)
        self.reduction = reduction

    def construct(self, logits: Any, labels: Any) -> Any:
        return ops.kl_div(logits, labels, self.reduction)


class CosineEmbeddingLoss(LossBase):
    """1 - cos(x1, x2) where the label is 1, max(0, cos - margin) where it is -1.

    Raises:
        TypeError: margin is no float. ValueError: it is outside of [-1, 1].
    """

    def __init__(self, margin: float = 0.0, reduction: str = "mean"):
        super().__init__(reduction)
        self.margin = check_float("CosineEmbeddingLoss", "margin", margin)
        if not -1.0 <= margin <= 1.0:
            raise ArgumentValueError(
                f"For 'CosineEmbeddingLoss', the 'margin' must be in range of [-1.0, 1.0], but got {margin} with type 'float'."
            )

    def construct(self, logits_x1: Any, logits_x2: Any, labels: Any) -> Any:
        return ops.cosine_embedding_loss(logits_x1, logits_x2, labels, self.margin, self.reduction)


class MarginRankingLoss(LossBase):
    """max(0, margin - target (input1 - input2))."""

    def __init__(self, margin: float = 0.0, reduction: str = "mean"):
        super().__init__(reduction)
        self.margin = margin

    def construct(self, input1: Any, input2: Any, target: Any) -> Any:
        return ops.margin_ranking_loss(input1, input2, target, self.margin, self.reduction)


class HingeEmbeddingLoss(LossBase):
    """logits where the label is 1, max(0, margin - logits) where it is -1."""

    def __init__(self, margin: float = 1.0, reduction: str = "mean"):
        super().__init__(reduction)
        self.margin = margin

    def construct(self, logits: Any, labels: Any) -> Any:
        return ops.hinge_embedding_loss(logits, labels, self.margin, self.reduction)


class PoissonNLLLoss(LossBase):
    """Negative log likelihood of a Poisson distribution whose (logarithm of the) rate is the input.

    Args:
        log_input: the input is the logarithm of the rate.
        full: add Stirling's formula for log(target!).
        eps: added to the input before its logarithm, without `log_input`.
    """

    def __init__(self, log_input: bool = True, full: bool = False, eps: float = 1e-8, reduction: str = "mean"):
        super().__init__(reduction)
        self.log_input, self.full, self.eps = log_input, full, eps

    def construct(self, input: Any, target: Any) -> Any:
        return poisson_nll_loss(input, target, self.log_input, self.full, self.eps, self.reduction)


class GaussianNLLLoss(LossBase):
    """Negative log likelihood of normal distributions of mean `logits` and variance `var`; see `ops.gaussian_nll_loss`."""

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean"):
        super().__init__(reduction)
        self.full = check_bool("GaussianNLLLoss", "full", full)
        self.eps = check_float("GaussianNLLLoss", "eps", eps)
        if eps <= 0:
            raise ArgumentValueError(f"For 'GaussianNLLLoss', the 'eps' must be float and must > 0, but got '{eps}'.")

    def construct(self, logits: Any, labels: Any, var: Any) -> Any:
        return ops.gaussian_nll_loss(logits, labels, var, self.full, self.eps, self.reduction)


class SoftMarginLoss(LossBase):
    """log(1 + exp(-labels logits)), for labels 1 and -1."""

    def construct(self, logits: Any, labels: Any) -> Any:
        return ops.soft_margin_loss(logits, labels, self.reduction)


class MultiLabelSoftMarginLoss(LossBase):
    """Binary cross entropy of sigmoid(x), averaged over the classes."""

    def __init__(self, weight: Any = None, reduction: str = "mean"):
        super().__init__(reduction)
        self.weight = weight

    def construct(self, x: Any, target: Any) -> Any:
        return ops.multilabel_soft_margin_loss(x, target, self.weight, self.reduction)


class MultiMarginLoss(LossBase):
    """Hinge loss of several classes; see `ops.multi_margin_loss`."""

    def __init__(self, p: int = 1, margin: float = 1.0, reduction: str = "mean", weight: Any = None):
        super().__init__(reduction)
        self.p, self.margin, self.weight = p, margin, weight

    def construct(self, x: Any, target: Any, weight: Any = None) -> Any:
        return ops.multi_margin_loss(
            x, target, self.p, self.margin, self.weight if weight is None else weight, self.reduction
        )


class TripletMarginLoss(LossBase):
    """max(0, d(x, positive) - d(x, negative) + margin); see `ops.triplet_margin_loss`."""

    def __init__(
        self, p: int = 2, swap: bool = False, eps: float = 1e-6, reduction: str = "mean", margin: float = 1.0
    ):
        super().__init__(reduction)
        self.p, self.swap, self.eps, self.margin = p, check_bool("TripletMarginLoss", "swap", swap), eps, margin

    def construct(self, x: Any, positive: Any, negative: Any, margin: Any = None) -> Any:
        chosen = self.margin if margin is None else margin
        return ops.triplet_margin_loss(x, positive, negative, chosen, self.p, self.eps, self.swap, self.reduction)


class TripletMarginWithDistanceLoss(LossBase):
    """max(0, d(x, positive) - d(x, negative) + margin) with a distance function of your own (default: Euclidean)."""

    def __init__(
        self, distance_function: Callable[[Any, Any], Any] | None = None, swap: bool = False, reduction: str = "mean",
        margin: float = 1.0,
    ):  # fmt: skip
        super().__init__(reduction)
        self.distance_function = _euclidean if distance_function is None else distance_function
        self.swap, self.margin = check_bool("TripletMarginWithDistanceLoss", "swap", swap), margin

    def construct(self, x: Any, positive: Any, negative: Any) -> Any:
        near = self.distance_function(x, positive)
        far = self.distance_function(x, negative)
        if self.swap:
            far = ops.minimum(far, self.distance_function(positive, negative))
        return self.get_loss(ops.relu(near - far + self.margin))


def _euclidean(x: Any, y: Any) -> Any:
    d = x - y
    return ops.sqrt((d * d).sum(-1) + 1e-6)


class DiceLoss(LossBase):
    """1 - (2 sum(logits labels) + smooth) / (sum(logits²) + sum(labels²) + smooth).

    Args:
        smooth: keeps the quotient finite; default 1e-5.
    """

    def __init__(self, smooth: float = 1e-5):
        super().__init__()
        self.smooth = smooth

    def construct(self, logits: Any, label: Any) -> Any:
        if logits.shape != label.shape:
            raise ShapeError(f"DiceLoss: the shapes must be equal, but are {logits.shape} and {label.shape}")
        common = (logits * label).sum()
        total = (logits * logits).sum() + (label * label).sum()
        return 1.0 - (2.0 * common + self.smooth) / (total + self.smooth)
