"""Losses as Cells, and the base of users' own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphcell import dtype as dt
from graphcell import ops
from graphcell.errors import ArgumentTypeError, ArgumentValueError, DTypeError, ShapeError
from graphcell.nn.cell import Cell
from graphcell.nn.checks import check_bool, check_float, check_int, check_number, positive_int
from graphcell.nn.layer.activation import LogSoftmax, get_activation
from graphcell.ops.functional.indexing import check_classes
from graphcell.ops.functional.loss import poisson_nll_loss, reduce_loss
from graphcell.ops.functional.reductions import wide
from graphcell.tensor import Tensor

__all__ = [
    "BCELoss", "BCEWithLogitsLoss", "CTCLoss", "CosineEmbeddingLoss", "CrossEntropyLoss", "DiceLoss", "FocalLoss", "GaussianNLLLoss",
    "HingeEmbeddingLoss", "HuberLoss", "KLDivLoss", "L1Loss", "LossBase", "MAELoss", "MSELoss", "MarginRankingLoss", "MultiClassDiceLoss",
    "MultiLabelSoftMarginLoss", "MultiMarginLoss", "MultilabelMarginLoss", "NLLLoss", "PoissonNLLLoss", "RMSELoss", "SampledSoftmaxLoss",
    "SmoothL1Loss", "SoftMarginLoss", "SoftmaxCrossEntropyWithLogits", "TripletMarginLoss", "TripletMarginWithDistanceLoss",
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
        """x times `weights`, reduced, in the dtype of x."""
        return ops.cast(reduce_loss(wide(x) * weights, self.reduction, type(self).__name__), x.dtype)

    def construct(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define construct(logits, labels)")


def _check_tensors(owner: str, **operands: Any) -> None:
    for name, x in operands.items():
        if not isinstance(x, Tensor):
            raise ArgumentTypeError(f"For '{owner}', the '{name}' must be a Tensor, but got '{type(x).__name__}'")


def _check_weight(owner: str, weight: Any) -> None:
    if weight is not None and not isinstance(weight, Tensor):
        raise ArgumentTypeError(f"For '{owner}', the type of 'weight' should be 'Tensor', but got type '{type(weight).__name__}'.")


def _floats_like(x: Any, like: Any) -> Any:
    """A Tensor of integers or bools in the dtype of `like`; anything else as it is."""
    return ops.cast(x, like.dtype) if isinstance(x, Tensor) and isinstance(like, Tensor) and not x.dtype.is_float else x


class MSELoss(LossBase):
    """(logits - labels)², reduced."""

    def construct(self, logits: Any, labels: Any) -> Any:
        _check_tensors("MSELoss", logits=logits, labels=labels)
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
        _check_tensors("L1Loss", logits=logits, labels=labels)
        return self.get_loss(ops.abs(logits - labels))


class MAELoss(LossBase):
    """|logits - labels|, reduced."""

    def construct(self, logits: Any, label: Any) -> Any:
        _check_tensors("MAELoss", logits=logits, label=label)
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
        _check_weight("CrossEntropyLoss", weight)
        check_int("CrossEntropyLoss", "ignore_index", ignore_index)
        if not 0 <= check_float("CrossEntropyLoss", "label_smoothing", label_smoothing) <= 1:
            raise ArgumentValueError(f"For 'CrossEntropyLoss', the 'label_smoothing' must be in range of [0.0, 1.0], but got {label_smoothing}.")
        self.weight, self.ignore_index, self.label_smoothing = weight, ignore_index, label_smoothing

    def construct(self, logits: Any, labels: Any) -> Any:
        _check_tensors("CrossEntropyLoss", logits=logits, labels=labels)
        return ops.cross_entropy(
            logits, labels, self.weight, self.ignore_index, self.reduction, self.label_smoothing
        )


class NLLLoss(LossBase):
    """Negative log likelihood of log probabilities; see `ops.nll_loss`."""

    def __init__(self, weight: Any = None, ignore_index: int = -100, reduction: str = "mean"):
        super().__init__(reduction)
        _check_weight("NLLLoss", weight)
        self.weight, self.ignore_index = weight, check_int("NLLLoss", "ignore_index", ignore_index)

    def construct(self, logits: Any, labels: Any) -> Any:
        return ops.nll_loss(logits, labels, self.weight, self.ignore_index, self.reduction)


class SoftmaxCrossEntropyWithLogits(LossBase):
    """Cross entropy of logits (N, C) and labels: class numbers (N,) with `sparse`, else probabilities (N, C), to which no gradient flows.

    Args:
        sparse: default False.
        reduction: 'none' (default), 'mean' or 'sum'. The loss of a class number out of range is 0; with 'mean' it is an error.

    Raises:
        TypeError, ValueError: settings, dtypes or shapes that do not fit. IndexError: with 'mean', a class number out of range.
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
            if self.reduction == "mean":
                check_classes(labels, logits.shape[-1], "SoftmaxCrossEntropyWithLogits")
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
        self.margin = check_number("HingeEmbeddingLoss", "margin", margin)

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
        return poisson_nll_loss(input, _floats_like(target, input), self.log_input, self.full, self.eps, self.reduction)


class GaussianNLLLoss(LossBase):
    """Negative log likelihood of normal distributions of mean `logits` and variance `var`; see `ops.gaussian_nll_loss`."""

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean"):
        super().__init__(reduction)
        self.full = check_bool("GaussianNLLLoss", "full", full)
        self.eps = check_float("GaussianNLLLoss", "eps", eps)
        if eps <= 0:
            raise ArgumentValueError(f"For 'GaussianNLLLoss', the 'eps' must be float and must > 0, but got '{eps}'.")

    def construct(self, logits: Any, labels: Any, var: Any) -> Any:
        return ops.gaussian_nll_loss(logits, _floats_like(labels, logits), var, self.full, self.eps, self.reduction)


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
        return ops.multilabel_soft_margin_loss(x, _floats_like(target, x), self.weight, self.reduction)


class MultiMarginLoss(LossBase):
    """Hinge loss of several classes; see `ops.multi_margin_loss`."""

    def __init__(self, p: int = 1, margin: float = 1.0, reduction: str = "mean", weight: Any = None):
        super().__init__(reduction)
        if p not in (1, 2):
            raise ArgumentValueError(f"For 'MultiMarginLoss', the 'p' must be int and must in {{1, 2}}, but got '{p}' with type '{type(p).__name__}'.")
        check_float("MultiMarginLoss", "margin", margin)
        _check_weight("MultiMarginLoss", weight)
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
    """1 - 2 sum(logits labels) / (sum(logits²) + sum(labels²) + smooth).

    Args:
        smooth: keeps the quotient finite; default 1e-5.
    """

    def __init__(self, smooth: float = 1e-5):
        super().__init__()
        if check_float("DiceLoss", "smooth", smooth) <= 0:
            raise ArgumentValueError(f"The 'smooth' must be float and must > 0, but got '{smooth}' with type 'float'.")
        self.smooth = smooth

    def construct(self, logits: Any, label: Any) -> Any:
        if logits.shape != label.shape:
            raise ShapeError(f"DiceLoss: the shapes must be equal, but are {logits.shape} and {label.shape}")
        common = (logits * label).sum()
        total = (logits * logits).sum() + (label * label).sum()
        return 1.0 - 2.0 * common / (total + self.smooth)


class MultiClassDiceLoss(LossBase):
    """The mean of `DiceLoss` over the classes, the last dimension, of what `activation` makes of the logits.

    Args:
        weights: Tensor, one row for each class; the loss of a class is multiplied by it.
        ignore_indiex: a class that does not count. (MindSpore's name.)
        activation: a name or a Cell; default 'softmax', None for none.

    Raises:
        TypeError, ValueError: settings or shapes that do not fit.
    """

    def __init__(self, weights: Any = None, ignore_indiex: int | None = None, activation: Any = "softmax"):
        super().__init__()
        if weights is not None:
            _check_tensors("MultiClassDiceLoss", weights=weights)
        if ignore_indiex is not None:
            check_int("MultiClassDiceLoss", "ignore_indiex", ignore_indiex)
        if activation is not None and not isinstance(activation, (str, Cell)):
            raise ArgumentTypeError(f"For 'MultiClassDiceLoss', the 'activation' must be str or Cell, but got {type(activation).__name__}.")
        self.binarydiceloss = DiceLoss()
        self.weights, self.ignore_indiex = weights, ignore_indiex
        self.activation: Any = get_activation(activation) if isinstance(activation, str) else activation

    def construct(self, logits: Any, label: Any) -> Any:
        if logits.shape != label.shape:
            raise ShapeError(f"For 'MultiClassDiceLoss', the shapes must be equal, but are {logits.shape} and {label.shape}")
        if self.weights is not None and self.weights.shape[0] != label.shape[1]:
            raise ShapeError(f"For 'MultiClassDiceLoss', there are {label.shape[1]} classes, but the weights have shape {self.weights.shape}")
        chances = logits if self.activation is None else self.activation(logits)
        total = 0.0
        for k in range(label.shape[1]):
            if k != self.ignore_indiex:
                loss = self.binarydiceloss(chances[:, k], label[:, k])
                total = total + (loss if self.weights is None else loss * self.weights[k])
        return total / label.shape[-1]


class FocalLoss(LossBase):
    """-(1 - p)**gamma log(p) for the chance p of the class that is right, of logits (N, C, ...) (Lin et al., 2017).

    Args:
        weight: Tensor, one factor for each class.
        gamma: how much easy examples count less, default 2.0.

    Inputs: logits (N, C), (N, C, H) or (N, C, H, W); labels: class numbers with 1 instead of C, or one-hot as the logits, int32 or int64.
    Outputs: with reduction 'none' a number for each example, (N,), or of one-hot labels one for each class of each example, (N, C).

    Raises:
        TypeError, ValueError: settings or shapes that do not fit.
    """

    def __init__(self, weight: Any = None, gamma: float = 2.0, reduction: str = "mean"):
        super().__init__(reduction)
        self.gamma = check_float("FocalLoss", "gamma", gamma)
        _check_weight("FocalLoss", weight)
        self.weight = weight
        self.logsoftmax = LogSoftmax(1)

    def construct(self, logits: Any, labels: Any) -> Any:
        _check_tensors("FocalLoss", logits=logits, labels=labels)
        n, classes = logits.shape[:2]
        fits = labels.shape[0] == n and labels.shape[1:2] in ((1,), (classes,)) and labels.shape[2:] == logits.shape[2:]
        if logits.ndim not in (2, 3, 4) or classes == 1 or not fits:
            raise ShapeError(f"For 'FocalLoss', labels of shape {labels.shape} do not fit logits of shape {logits.shape}.")
        if self.weight is not None and self.weight.shape != (classes,):
            raise ShapeError(f"For 'FocalLoss', there are {classes} classes, but the weight has shape {self.weight.shape}.")
        numbered = labels.shape[1] == 1
        if numbered:
            labels = ops.cast(labels, dt.int64).reshape((n, -1))
            check_classes(labels, classes, "FocalLoss")
            labels = ops.one_hot(labels, classes, axis=1)
        right = ops.cast(labels, logits.dtype).reshape((n, classes, -1))
        log_chances = self.logsoftmax(logits.reshape((n, classes, -1)))
        losses = (1 - ops.exp(log_chances)) ** self.gamma * log_chances * right
        if self.weight is not None:
            losses = losses * self.weight.reshape((1, classes, 1))
        return self.get_loss(-losses.sum(1).mean(1) if numbered else -losses.mean(2))


class MultilabelMarginLoss(LossBase):
    """Hinge loss of several right classes: the sum of max(0, 1 - (x_right - x_wrong)) over all pairs of them, divided by the classes.

    Inputs: x (N, C) or (C,); target, int32 of the same shape: the right classes, then -1 and anything.

    Raises:
        TypeError, ValueError: settings or shapes that do not fit.
    """

    def construct(self, x: Any, target: Any) -> Any:
        _check_tensors("MultilabelMarginLoss", x=x, target=target)
        if x.shape != target.shape or x.ndim not in (1, 2):
            raise ShapeError(
                f"For MultilabelMarginLoss, x_shape and target_shape should be the same, while x_shape is : {x.shape}, target_shape is : {target.shape}."
            )
        single, classes = x.ndim == 1, x.shape[-1]
        x, target = x.reshape((-1, classes)), target.reshape((-1, classes))
        counts = ops.cumsum(ops.cast(target < 0, dt.int32), 1) == 0  # those before the first -1
        places = ops.select(counts, target, ops.zeros_like(target))
        kept = ops.cast(counts, x.dtype)
        wrong = 1 - ops.minimum((ops.one_hot(places, classes).astype(x.dtype) * kept.expand_dims(2)).sum(1), ops.ones_like(x))
        chosen = ops.gather_elements(x, 1, places)
        hinges = ops.relu(1 - chosen.expand_dims(2) + x.expand_dims(1))
        losses = (hinges * kept.expand_dims(2) * wrong.expand_dims(1)).sum((1, 2)) / classes
        return self.get_loss(losses[0] if single else losses)


class SampledSoftmaxLoss(LossBase):
    """Cross entropy of the right classes among them and a sample of the others.

    Args:
        num_sampled: how many classes are sampled, without repetition.
        num_classes: how many there are.
        num_true: how many are right, default 1.
        sampled_values: the sample instead: (classes (num_sampled,), expected counts of the right ones (N, num_true), and of those (num_sampled,)).
        remove_accidental_hits: right classes that are in the sample do not count there. Default True.
        seed: of the sample; kept. reduction: default 'none'.

    Inputs: weights (num_classes, D), biases (num_classes,), labels (N, num_true) or (N,), integers; logits (N, D): the inputs of the last layer.
    Outputs: with reduction 'none' (N,).

    Raises:
        TypeError, ValueError: settings or shapes that do not fit.
    """

    def __init__(
        self, num_sampled: int, num_classes: int, num_true: int = 1, sampled_values: Any = None, remove_accidental_hits: bool = True, seed: int = 0,
        reduction: str = "none",
    ):  # fmt: skip
        super().__init__(reduction)
        for name, value in (("num_sampled", num_sampled), ("num_classes", num_classes), ("num_true", num_true)):
            positive_int("SampledSoftmaxLoss", name, value)
        for name, value in (("num_sampled", num_sampled), ("num_true", num_true)):
            if value > num_classes:
                raise ArgumentValueError(
                    f"For 'SampledSoftmaxLoss', the '{name}' must be smaller than or equal to 'num_classes', but got '{name}': {value} "
                    f"and 'num_classes': {num_classes}."
                )
        if sampled_values is not None and (not isinstance(sampled_values, (list, tuple)) or len(sampled_values) != 3):
            raise ArgumentValueError("For 'SampledSoftmaxLoss', the 'sampled_values' must be a list or tuple of three Tensors.")
        self.num_sampled, self.num_classes, self.num_true = num_sampled, num_classes, num_true
        self.sampled_values, self.remove_accidental_hits = sampled_values, remove_accidental_hits

    def construct(self, weights: Any, biases: Any, labels: Any, logits: Any) -> Any:
        if weights.ndim != 2 or weights.shape[0] < self.num_classes or labels.shape[0] != logits.shape[0]:
            raise ShapeError(
                f"For 'SampledSoftmaxLoss', weights of shape {weights.shape}, labels {labels.shape} and logits {logits.shape} do not fit "
                f"{self.num_classes} classes."
            )
        labels = labels.reshape((-1, self.num_true))
        if self.sampled_values is None:  # what is expected of each class is the same, and drops out of the softmax
            sampled, expected, expected_sampled = ops.randperm(self.num_classes)[: self.num_sampled].astype(labels.dtype), None, None
        else:
            sampled, expected, expected_sampled = self.sampled_values
        right = (ops.gather(weights, labels, 0) * logits.expand_dims(1)).sum(2) + ops.gather(biases, labels, 0)
        others = logits @ ops.gather(weights, sampled, 0).T + ops.gather(biases, sampled, 0)
        if self.remove_accidental_hits:
            hits = (labels.expand_dims(2) == sampled.astype(labels.dtype).reshape((1, 1, -1))).any(1)
            others = ops.select(hits, ops.full_like(others, -1e37), others)
        if expected is not None:
            right, others = right - ops.log(expected), others - ops.log(expected_sampled)
        log_chances = ops.log_softmax(ops.concat((right, others), 1), 1)
        return self.get_loss(-log_chances[:, : self.num_true].mean(1))


class CTCLoss(LossBase):
    """Connectionist temporal classification; see `ops.ctc_loss`.

    Args:
        blank: the class that is no label, default 0.
        reduction: 'mean' (default; of what each sequence costs for each of its labels), 'sum' or 'none'.
        zero_infinity: what is impossible costs 0 instead of infinity. Default False.

    Inputs: log_probs (T, N, C), targets (N, S), input_lengths (N,), target_lengths (N,). Of one sequence alone, log_probs (T, C) and
    targets (S,) or (1, S), with lengths (1,); its loss is a scalar.
    """

    def __init__(self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False):
        super().__init__(reduction)
        self.blank, self.zero_infinity = blank, zero_infinity

    def construct(self, log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any) -> Any:
        _check_tensors("CTCLoss", log_probs=log_probs, targets=targets)
        settings = (input_lengths, target_lengths, self.blank, self.reduction, self.zero_infinity)
        if log_probs.ndim != 2:
            return ops.ctc_loss(log_probs, targets, *settings)[0]
        if targets.ndim not in (1, 2) or (targets.ndim == 2 and targets.shape[0] != 1):
            raise ShapeError(f"For 'CTCLoss', the targets of one sequence must have shape (S,) or (1, S), but have {targets.shape}.")
        loss = ops.ctc_loss(log_probs.expand_dims(1), targets.reshape((1, -1)), *settings)[0]
        return loss.reshape(())
