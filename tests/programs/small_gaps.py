"""Losses of integer targets, weight decays that change with the steps, positions that a call does not have."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from tests.recording import Program, caught, ramp

X = [[0.3, -0.5], [1.2, 0.7]]
VARIANCES = [[0.5, 1.0], [1.5, 2.0]]
DTYPES = ("bool_", "int8", "int32", "int64", "float16", "float32", "float64")


def integer_targets(name: str, ms: Any) -> Any:
    ops, Tensor = ms.ops, ms.Tensor
    x, v, y = Tensor(X), Tensor(VARIANCES), Tensor([[1, 0], [2, 1]], getattr(ms, name))
    gaussian = [ops.gaussian_nll_loss(x, y, v), ops.gaussian_nll_loss(x, y, v, full=True, reduction="none"), ms.nn.GaussianNLLLoss()(x, y, v)]
    soft = [ops.multilabel_soft_margin_loss(x, y), ops.multilabel_soft_margin_loss(x, y, weight=Tensor([1, 2]), reduction="none")]
    return [gaussian, soft, ms.nn.MultiLabelSoftMarginLoss()(x, y), ms.nn.PoissonNLLLoss()(x, y), ms.nn.PoissonNLLLoss(log_input=False, full=True)(x, y)]


def integers_everywhere(ms: Any) -> Any:
    ops, Tensor = ms.ops, ms.Tensor
    x, y = Tensor([[1, 2], [3, 4]], ms.int32), Tensor([[1, 0], [2, 1]], ms.int32)
    return [
        ops.gaussian_nll_loss(x, y, Tensor(VARIANCES)), ops.gaussian_nll_loss(x, Tensor(X), Tensor(VARIANCES)),
        ops.gaussian_nll_loss(Tensor(X), Tensor(VARIANCES), x), caught(lambda: ops.multilabel_soft_margin_loss(x, y)),
    ]  # fmt: skip


def gradients_of_integer_targets(ms: Any) -> Any:
    x, v, y = ms.Tensor(X), ms.Tensor(VARIANCES), ms.Tensor([[1, 0], [2, 1]], ms.int32)

    def gaussian(a: Any) -> Any:
        return ms.ops.gaussian_nll_loss(a, y, v)

    def soft(a: Any) -> Any:
        return ms.ops.multilabel_soft_margin_loss(a, y)

    return [ms.grad(gaussian)(x), ms.grad(soft)(x)]


def weight_decays(name: str, ms: Any) -> Any:
    """What `get_weight_decay` gives before each of three steps, and after them."""

    class Falling(ms.nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.w = ms.Tensor(0.1, ms.float32)

        def construct(self, step: Any) -> Any:
            return self.w / (step + 1)

    p, q = (ms.Parameter(ms.Tensor(ramp((2, 3), k)), name=f"p{k}") for k in range(2))
    settings = {
        "number": ([p, q], 0.02), "cell": ([p, q], Falling()), "schedule": ([p, q], ms.nn.CosineDecayLR(0.01, 0.1, 4)),
        "group of a cell": ([{"params": [p], "weight_decay": Falling()}, {"params": [q]}], 0.05),
        "cell for the rest": ([{"params": [p], "weight_decay": 0.2}, {"params": [q]}], Falling()),
    }  # fmt: skip
    params, decay = settings[name]
    optimizer = ms.nn.Momentum(params, 0.1, 0.9, weight_decay=decay)
    found = []
    for _ in range(3):
        found.append(optimizer.get_weight_decay())
        optimizer((ms.Tensor(np.ones((2, 3), np.float32)), ms.Tensor(np.ones((2, 3), np.float32))))
    return [optimizer.dynamic_weight_decay, found, optimizer.get_weight_decay(), p.value(), q.value()]


def positions(ms: Any) -> Any:
    """Errors of PYNATIVE_MODE."""
    x, y = ms.Tensor([1.0, 2.0]), ms.Tensor([3.0, 4.0])

    def square(a: Any) -> Any:
        return (a * a).sum()

    def product(a: Any, b: Any) -> Any:
        return (a * b).sum()

    absent = (
        lambda: ms.grad(square, (0, 1))(x), lambda: ms.grad(square, 1)(x), lambda: ms.grad(product, (0, 1, 2))(x, y),
        lambda: ms.value_and_grad(square, (0, 1))(x), lambda: ms.grad(ms.nn.ReLU(), (0, 1))(x),
    )  # fmt: skip
    wrong = (
        lambda: ms.grad(square, -1)(x), lambda: ms.grad(square, "a")(x), lambda: ms.grad(square, (0, 0))(x), lambda: ms.grad(square, (0, 1.5))(x),
        lambda: ms.grad(square)(),
    )  # fmt: skip
    return [[isinstance(caught(action), RuntimeError) for action in absent], [caught(action) for action in wrong]]


def programs() -> dict[str, Program]:
    decays = ("number", "cell", "schedule", "group of a cell", "cell for the rest")
    return {
        **{f"targets {name}": partial(integer_targets, name) for name in DTYPES},
        **{f"weight decay {name}": partial(weight_decays, name) for name in decays},
        **{program.__name__: program for program in (integers_everywhere, gradients_of_integer_targets, positions)},
    }
