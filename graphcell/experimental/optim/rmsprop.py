"""RMSprop: T. Tieleman, G. Hinton, lecture 6.5 of "Neural networks for machine learning" (2012)."""

from __future__ import annotations

from typing import Any

from graphcell import ops
from graphcell.experimental.optim.checks import above_zero, check_rate, not_negative
from graphcell.experimental.optim.optimizer import Optimizer
from graphcell.nn.optim.updates import average, descend


class RMSprop(Optimizer):
    """s = alpha s + (1 - alpha) g²; u = g / (sqrt(s) + eps); p -= lr u, or with a momentum m = momentum m + u; p -= lr m. With `centered`,
    s minus the square of the mean gradient (averaged in the same way) is used.

    Args:
        params: Parameters, or groups, see `Optimizer`.
        lr: a number or a scalar Tensor, above 0. Default 0.01.
        alpha, eps, weight_decay, momentum: default 0.99, 1e-8, 0, 0.
        centered: default False.
        maximize: default False; True moves along the gradient.

    State by name: mean_grad.<name>, for `centered`; mean_square.<name>, the s; moment.<name>, the m.

    Raises:
        TypeError, ValueError: settings of other kinds or out of range.
    """

    def __init__(
        self, params: Any, lr: Any = 1e-2, alpha: float = 0.99, eps: float = 1e-8, weight_decay: float = 0.0, momentum: float = 0.0,
        centered: bool = False, maximize: bool = False,
    ):  # fmt: skip
        check_rate("RMSprop", lr)
        above_zero("RMSprop", eps=eps)
        not_negative("RMSprop", alpha=alpha, momentum=momentum, weight_decay=weight_decay)
        super().__init__(
            params,
            {
                "lr": lr, "momentum": momentum, "alpha": alpha, "eps": eps, "centered": centered, "weight_decay": weight_decay,
                "maximize": maximize,
            },
        )  # fmt: skip
        for name in ("mean_grad", "mean_square", "moment"):
            self.keep(name)

    def construct(self, gradients: Any) -> bool:
        for group, members in self.decayed(gradients):
            alpha, momentum = group["alpha"], group["momentum"]
            for k, p, g in members:
                square = average(self.mean_square[k], g * g, alpha)
                if group["centered"]:
                    mean = average(self.mean_grad[k], g, alpha)
                    square = square - mean * mean
                step = g / (ops.sqrt(square) + group["eps"])
                if momentum:
                    step = self.moment[k] * momentum + step
                    ops.assign(self.moment[k], step)
                descend(p, group["lr"], step)
        return True
