"""Losses: values and gradients for each reduction, printed forms, refused arguments."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from tests.recording import caught, gradients, module_first, ramp

P = "Tensor(1 / (1 + np.exp(-ramp((2, 3)))))"  # probabilities
Y = "Tensor(np.array([[1, 0, 1], [0, 0, 1]], np.float32))"
LOGITS = "Tensor(ramp((3, 4)))"
CLASSES = "Tensor([1, 0, 3], ms.int32)"
SOFT = "Tensor((np.abs(ramp((3, 4), 2.0)) / np.abs(ramp((3, 4), 2.0)).sum(1, keepdims=True)).astype(np.float32))"
WEIGHT = "Tensor(np.array([0.5, 1.0, 2.0, 0.25], np.float32))"
IMAGE = "Tensor(ramp((2, 3, 2, 2)))"
IMAGE_CLASSES = "Tensor(np.array([[[0, 1], [2, 2]], [[1, 1], [0, 2]]], np.int32))"
TWO = ["Tensor(ramp((2, 3)))", "Tensor(ramp((2, 3), 1.0))"]
SIGNS = "Tensor(np.array([1, -1, 1], np.float32))"

LOSSES: dict[str, tuple[str, list[str]]] = {
    "mse": ("nn.MSELoss()", TWO),
    "mse sum": ("nn.MSELoss(reduction='sum')", TWO),
    "mse none": ("nn.MSELoss('none')", TWO),
    "mse broadcast": ("nn.MSELoss()", ["Tensor(ramp((2, 3)))", "Tensor(ramp((3,), 1.0))"]),
    "l1": ("nn.L1Loss()", TWO),
    "l1 sum": ("nn.L1Loss('sum')", TWO),
    "l1 none": ("nn.L1Loss('none')", TWO),
    "smooth l1": ("nn.SmoothL1Loss()", TWO),
    "smooth l1 beta": ("nn.SmoothL1Loss(beta=0.5, reduction='mean')", TWO),
    "smooth l1 sum": ("nn.SmoothL1Loss(reduction='sum')", TWO),
    "huber": ("nn.HuberLoss()", TWO),
    "huber delta": ("nn.HuberLoss(reduction='none', delta=0.5)", TWO),
    "huber sum": ("nn.HuberLoss(reduction='sum', delta=2.0)", TWO),
    "cross entropy": ("nn.CrossEntropyLoss()", [LOGITS, CLASSES]),
    "cross entropy sum": ("nn.CrossEntropyLoss(reduction='sum')", [LOGITS, CLASSES]),
    "cross entropy none": ("nn.CrossEntropyLoss(reduction='none')", [LOGITS, CLASSES]),
    "cross entropy weight": (f"nn.CrossEntropyLoss(weight={WEIGHT})", [LOGITS, CLASSES]),
    "cross entropy weight none": (f"nn.CrossEntropyLoss(weight={WEIGHT}, reduction='none')", [LOGITS, CLASSES]),
    "cross entropy ignore": ("nn.CrossEntropyLoss(ignore_index=0)", [LOGITS, CLASSES]),
    "cross entropy ignore none": ("nn.CrossEntropyLoss(ignore_index=0, reduction='none')", [LOGITS, CLASSES]),
    "cross entropy ignore weight": (f"nn.CrossEntropyLoss(weight={WEIGHT}, ignore_index=3)", [LOGITS, CLASSES]),
    "cross entropy smoothing": ("nn.CrossEntropyLoss(label_smoothing=0.1)", [LOGITS, CLASSES]),
    "cross entropy smoothing all": (f"nn.CrossEntropyLoss(weight={WEIGHT}, ignore_index=0, label_smoothing=0.2)", [LOGITS, CLASSES]),
    "cross entropy smoothing none": (f"nn.CrossEntropyLoss(weight={WEIGHT}, ignore_index=0, label_smoothing=0.2, reduction='none')", [LOGITS, CLASSES]),
    "cross entropy soft": ("nn.CrossEntropyLoss()", [LOGITS, SOFT]),
    "cross entropy soft sum": ("nn.CrossEntropyLoss(reduction='sum')", [LOGITS, SOFT]),
    "cross entropy soft none": ("nn.CrossEntropyLoss(reduction='none')", [LOGITS, SOFT]),
    "cross entropy soft all": (f"nn.CrossEntropyLoss(weight={WEIGHT}, label_smoothing=0.2)", [LOGITS, SOFT]),
    "cross entropy image": ("nn.CrossEntropyLoss()", [IMAGE, IMAGE_CLASSES]),
    "cross entropy image none": ("nn.CrossEntropyLoss(reduction='none', label_smoothing=0.1)", [IMAGE, IMAGE_CLASSES]),
    "cross entropy one": ("nn.CrossEntropyLoss()", ["Tensor(ramp((4,)))", "Tensor(2, ms.int32)"]),
    "nll": ("nn.NLLLoss()", [LOGITS, CLASSES]),
    "nll sum weight": (f"nn.NLLLoss(weight={WEIGHT}, reduction='sum')", [LOGITS, CLASSES]),
    "nll none ignore": ("nn.NLLLoss(ignore_index=1, reduction='none')", [LOGITS, CLASSES]),
    "nll image": ("nn.NLLLoss()", [IMAGE, IMAGE_CLASSES]),
    "softmax cross entropy": ("nn.SoftmaxCrossEntropyWithLogits()", [LOGITS, SOFT]),
    "softmax cross entropy mean": ("nn.SoftmaxCrossEntropyWithLogits(reduction='mean')", [LOGITS, SOFT]),
    "softmax cross entropy sum": ("nn.SoftmaxCrossEntropyWithLogits(reduction='sum')", [LOGITS, SOFT]),
    "softmax cross entropy sparse": ("nn.SoftmaxCrossEntropyWithLogits(sparse=True)", [LOGITS, CLASSES]),
    "softmax cross entropy sparse mean": ("nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction='mean')", [LOGITS, CLASSES]),
    "softmax cross entropy sparse sum": ("nn.SoftmaxCrossEntropyWithLogits(True, 'sum')", [LOGITS, CLASSES]),
    "softmax cross entropy sparse int64": ("nn.SoftmaxCrossEntropyWithLogits(True, 'mean')", [LOGITS, "Tensor([1, 0, 3])"]),
    "softmax cross entropy sparse float32": ("nn.SoftmaxCrossEntropyWithLogits(True, 'mean').to_float(ms.float32)", [LOGITS, CLASSES]),
    "bce": ("nn.BCELoss()", [P, Y]),
    "bce weight": ("nn.BCELoss(weight=Tensor(np.array([[1, 2, 3], [0.5, 1, 1]], np.float32)))", [P, Y]),
    "bce sum": ("nn.BCELoss(reduction='sum')", [P, Y]),
    "bce none": ("nn.BCELoss(reduction='none')", [P, Y]),
    "bce sure (value)": ("nn.BCELoss(reduction='none')", ["Tensor([0.0, 1.0, 0.0, 1.0])", "Tensor([0.0, 1.0, 1.0, 0.0])"]),
    "bce logits": ("nn.BCEWithLogitsLoss()", ["Tensor(ramp((2, 3)))", Y]),
    "bce logits all": (
        "nn.BCEWithLogitsLoss(reduction='sum', weight=Tensor(np.array([1, 2, 3], np.float32)), pos_weight=Tensor(np.array([2, 1, 0.5], np.float32)))",
        ["Tensor(ramp((2, 3)))", Y],
    ),
    "bce logits none": ("nn.BCEWithLogitsLoss('none')", ["Tensor(ramp((2, 3)) * 30)", Y]),
    "kl": ("nn.KLDivLoss()", ["Tensor(-np.abs(ramp((2, 3))))", P]),
    "kl sum": ("nn.KLDivLoss('sum')", ["Tensor(-np.abs(ramp((2, 3))))", P]),
    "kl none": ("nn.KLDivLoss('none')", ["Tensor(-np.abs(ramp((2, 3))))", P]),
    "kl batch mean": ("nn.KLDivLoss('batchmean')", ["Tensor(-np.abs(ramp((2, 3))))", P]),
    "kl zero target": ("nn.KLDivLoss('none')", ["Tensor(-np.abs(ramp((2, 3))))", Y]),
    "cosine": ("nn.CosineEmbeddingLoss()", ["Tensor(ramp((3, 4)))", "Tensor(ramp((3, 4), 1.0))", SIGNS]),
    "cosine margin none": ("nn.CosineEmbeddingLoss(margin=-0.5, reduction='none')", ["Tensor(ramp((3, 4)))", "Tensor(ramp((3, 4), 1.0))", SIGNS]),
    "margin ranking": ("nn.MarginRankingLoss()", ["Tensor(ramp((3,)))", "Tensor(ramp((3,), 1.0))", SIGNS]),
    "margin ranking none": ("nn.MarginRankingLoss(margin=0.5, reduction='none')", ["Tensor(ramp((3,)))", "Tensor(ramp((3,), 1.0))", SIGNS]),
    "hinge embedding (value)": ("nn.HingeEmbeddingLoss()", ["Tensor(ramp((3,)))", SIGNS]),
    "hinge embedding sum (value)": ("nn.HingeEmbeddingLoss(margin=0.5, reduction='sum')", ["Tensor(ramp((3,)))", SIGNS]),
    "poisson": ("nn.PoissonNLLLoss()", ["Tensor(ramp((2, 3)))", Y]),
    "poisson full": ("nn.PoissonNLLLoss(log_input=False, full=True, reduction='none')", [P, "Tensor(np.array([[3, 0, 1], [2, 0, 5]], np.float32))"]),
    "gaussian": ("nn.GaussianNLLLoss()", [*TWO, P]),
    "gaussian full": ("nn.GaussianNLLLoss(full=True, reduction='sum')", [*TWO, P]),
    "multi margin": ("nn.MultiMarginLoss()", [LOGITS, "Tensor([1, 0, 3])"]),
    "multi label soft margin": ("nn.MultiLabelSoftMarginLoss()", ["Tensor(ramp((2, 3)))", Y]),
    "rmse": ("nn.RMSELoss()", TWO),
    "mae": ("nn.MAELoss()", TWO),
    "dice": ("nn.DiceLoss()", [P, Y]),
}

ERRORS = [
    "nn.MSELoss('x')",
    "nn.MSELoss(reduction=None)",
    "nn.L1Loss('x')",
    "nn.SmoothL1Loss(beta=0.0)",
    "nn.SmoothL1Loss(beta=-1.0)",
    "nn.SmoothL1Loss(beta='x')",
    "nn.SmoothL1Loss(reduction='x')",
    "nn.SmoothL1Loss()(Tensor(ramp((2, 3))), Tensor(ramp((2, 2))))",
    "nn.HuberLoss(delta=0.0)(Tensor(ramp((2, 3))), Tensor(ramp((2, 3))))",
    "nn.HuberLoss(reduction='x')",
    "nn.CrossEntropyLoss(reduction='x')",
    "nn.CrossEntropyLoss(label_smoothing=2.0)(Tensor(ramp((2, 3))), Tensor([1, 0], ms.int32))",
    "nn.CrossEntropyLoss(ignore_index=1.5)(Tensor(ramp((2, 3))), Tensor([1, 0], ms.int32))",
    "nn.CrossEntropyLoss()(Tensor(ramp((2, 3))), Tensor([1, 0, 1], ms.int32))",
    "nn.CrossEntropyLoss()(Tensor(ramp((2, 3))), Tensor(ramp((2, 2))))",
    "nn.CrossEntropyLoss()(Tensor([[1, 2, 3]]), Tensor([1], ms.int32))",
    "nn.CrossEntropyLoss()(1.0, Tensor([1], ms.int32))",
    "nn.NLLLoss(reduction='x')",
    "nn.NLLLoss()(Tensor(ramp((2, 3))), Tensor([0.5, 0.5]))",
    "nn.SoftmaxCrossEntropyWithLogits(sparse=1)",
    "nn.SoftmaxCrossEntropyWithLogits(reduction='x')",
    "nn.SoftmaxCrossEntropyWithLogits()(Tensor(ramp((2, 3))), Tensor(ramp((2, 2))))",
    "nn.SoftmaxCrossEntropyWithLogits(sparse=True)(Tensor(ramp((2, 3))), Tensor([1, 0, 1], ms.int32))",
    "nn.SoftmaxCrossEntropyWithLogits(sparse=True)(Tensor(ramp((2, 3))), Tensor([1.0, 0.0]))",
    "nn.SoftmaxCrossEntropyWithLogits()(Tensor(ramp((2, 3))), Tensor([1, 0], ms.int32))",
    "nn.SoftmaxCrossEntropyWithLogits()(1.0, Tensor([1, 0], ms.int32))",
    "nn.BCELoss(reduction='x')",
    "nn.BCELoss()(Tensor(ramp((2, 3))), Tensor(ramp((2, 2))))",
    "nn.BCEWithLogitsLoss('x')",
    "nn.KLDivLoss('x')",
    "nn.CosineEmbeddingLoss(margin=2.0)",
    "nn.CosineEmbeddingLoss(margin='x')",
    "nn.MarginRankingLoss(margin='x')(Tensor(ramp((3,))), Tensor(ramp((3,), 1.0)), Tensor(ramp((3,))))",
    "nn.LossBase('x')",
]


def make(ms: Any, expression: str) -> Any:
    return eval(expression, {"ms": ms, "nn": ms.nn, "ops": ms.ops, "Tensor": ms.Tensor, "np": np, "ramp": ramp})


def loss(ms: Any, name: str, constructor: str, inputs: list[str]) -> dict[str, Any]:
    net = make(ms, constructor)
    values = [make(ms, x) for x in inputs]
    if "(value)" in name:
        return {"printed": repr(net), "value": net(*values)}
    return {"printed": repr(net), "value": caught(lambda: net(*values)), "training": caught(lambda: gradients(ms, net, values))}


def own_loss(ms: Any) -> Any:
    class Own(ms.nn.LossBase):
        def __init__(self, reduction: str = "mean"):
            super().__init__(reduction)
            self.abs = ms.ops.abs

        def construct(self, base: Any, target: Any) -> Any:
            return self.get_loss(self.abs(base - target), 2.0)

    x = [make(ms, t) for t in TWO]
    return [Own()(*x), Own("sum")(*x), Own("none")(*x), Own().get_axis(x[0]), repr(Own()), Own().get_loss(x[0], ms.Tensor([1.0, 0.0, 2.0]))]


def error(ms: Any, expression: str) -> Any:
    result = make(ms, expression)
    return str(result) if isinstance(result, ms.nn.Cell) else result


def programs() -> dict[str, Any]:
    found: dict[str, Any] = {name: partial(module_first, loss, name, *row) for name, row in LOSSES.items()}
    found["own loss"] = own_loss
    found |= {expression: partial(module_first, error, expression) for expression in ERRORS}
    return found
