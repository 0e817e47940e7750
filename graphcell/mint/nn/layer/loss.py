"""Losses as layers, with PyTorch's arguments; `reduction` is 'mean' (default), 'sum' or 'none'."""

from __future__ import annotations

from typing import Any

from graphcell.errors import ArgumentValueError
from graphcell.mint.nn import functional as F
from graphcell.nn import Cell


class _Loss(Cell):
    reductions: tuple[str, ...] = ("mean", "sum", "none")

    def __init__(self, reduction: str = "mean"):
        super().__init__()
        if reduction not in self.reductions:
            raise ArgumentValueError(f"For '{type(self).__name__}', the 'reduction' must be in {list(self.reductions)}, but got {reduction}.")
        self.reduction = reduction


class MSELoss(_Loss):
    """See `mint.nn.functional.mse_loss`."""

    def construct(self, input: Any, target: Any) -> Any:
        return F.mse_loss(input, target, self.reduction)


class L1LossExt(_Loss):
    """See `mint.nn.functional.l1_loss`."""

    def construct(self, input: Any, target: Any) -> Any:
        return F.l1_loss(input, target, self.reduction)


class SmoothL1Loss(_Loss):
    """See `mint.nn.functional.smooth_l1_loss`."""

    def __init__(self, reduction: str = "mean", beta: float = 1.0):
        super().__init__(reduction)
        self.beta = beta

    def construct(self, input: Any, target: Any) -> Any:
        return F.smooth_l1_loss(input, target, self.reduction, self.beta)


class SoftMarginLoss(_Loss):
    """See `mint.nn.functional.soft_margin_loss`."""

    def construct(self, input: Any, target: Any) -> Any:
        return F.soft_margin_loss(input, target, self.reduction)


class KLDivLoss(_Loss):
    """See `mint.nn.functional.kl_div`, whose reduction 'batchmean' it knows too."""

    reductions = ("mean", "sum", "none", "batchmean")

    def __init__(self, reduction: str = "mean", log_target: bool = False):
        super().__init__(reduction)
        self.log_target = log_target

    def construct(self, input: Any, target: Any) -> Any:
        return F.kl_div(input, target, self.reduction, self.log_target)


class CosineEmbeddingLoss(_Loss):
    """See `mint.nn.functional.cosine_embedding_loss`."""

    def __init__(self, margin: float = 0.0, reduction: str = "mean"):
        super().__init__(reduction)
        self.margin = margin

    def construct(self, input1: Any, input2: Any, target: Any) -> Any:
        return F.cosine_embedding_loss(input1, input2, target, self.margin, self.reduction)


class BCELoss(_Loss):
    """See `mint.nn.functional.binary_cross_entropy`."""

    def __init__(self, weight: Any = None, reduction: str = "mean"):
        super().__init__(reduction)
        self.weight = weight

    def construct(self, input: Any, target: Any) -> Any:
        return F.binary_cross_entropy(input, target, self.weight, self.reduction)


class BCEWithLogitsLoss(BCELoss):
    """See `mint.nn.functional.binary_cross_entropy_with_logits`."""

    def __init__(self, weight: Any = None, reduction: str = "mean", pos_weight: Any = None):
        super().__init__(weight, reduction)
        self.pos_weight = pos_weight

    def construct(self, input: Any, target: Any) -> Any:
        return F.binary_cross_entropy_with_logits(input, target, self.weight, self.reduction, self.pos_weight)


class NLLLoss(_Loss):
    """See `mint.nn.functional.nll_loss`."""

    def __init__(self, weight: Any = None, ignore_index: int = -100, reduction: str = "mean"):
        super().__init__(reduction)
        self.weight, self.ignore_index = weight, ignore_index

    def construct(self, input: Any, target: Any) -> Any:
        return F.nll_loss(input, target, self.weight, self.ignore_index, self.reduction)


class CrossEntropyLoss(NLLLoss):
    """See `mint.nn.functional.cross_entropy`."""

    def __init__(self, weight: Any = None, ignore_index: int = -100, reduction: str = "mean", label_smoothing: float = 0.0):
        super().__init__(weight, ignore_index, reduction)
        self.label_smoothing = label_smoothing

    def construct(self, input: Any, target: Any) -> Any:
        return F.cross_entropy(input, target, self.weight, self.ignore_index, self.reduction, self.label_smoothing)


# The names of mint, which print as the classes do in MindSpore.
L1Loss = L1LossExt
