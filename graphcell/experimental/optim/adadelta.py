"""Adadelta: M. Zeiler, "Adadelta: an adaptive learning rate method" (2012)."""

from __future__ import annotations

from typing import Any

from graphcell.experimental.optim.checks import above_zero, check_rate, not_negative
from graphcell.experimental.optim.optimizer import Optimizer
from graphcell.nn.optim.checks import check_rho
from graphcell.nn.optim.updates import adadelta


class Adadelta(Optimizer):
    """a = rho a + (1 - rho) g²; u = sqrt(d + eps) / sqrt(a + eps) g; d = rho d + (1 - rho) u²; p -= lr u.

    Args:
        params: Parameters, or groups, see `Optimizer`.
        lr: a number or a scalar Tensor, above 0. Default 1.
        rho, eps, weight_decay: default 0.9, 1e-6, 0.
        maximize: default False; True moves along the gradient.

    State by name: accum.<name>, the a; accum_update.<name>, the d.

    Raises:
        TypeError, ValueError: settings of other kinds or out of range.
    """

    def __init__(
        self, params: Any, lr: Any = 1.0, rho: float = 0.9, eps: float = 1e-6, weight_decay: float = 0.0, *, maximize: bool = False
    ):  # fmt: skip
        check_rate("Adadelta", lr)
        above_zero("Adadelta", eps=eps)
        not_negative("Adadelta", weight_decay=weight_decay)
        super().__init__(params, {"lr": lr, "rho": check_rho(rho), "eps": eps, "weight_decay": weight_decay, "maximize": maximize})
        self.keep("accum")
        self.keep("accum_update")

    def construct(self, gradients: Any) -> bool:
        for group, members in self.decayed(gradients):
            for k, p, g in members:
                adadelta(p, self.accum[k], self.accum_update[k], g, group["lr"], group["rho"], group["eps"])
        return True
