"""Adamax: D. Kingma, J. Ba, "Adam: a method for stochastic optimization" (ICLR 2015), section 7.1."""

from __future__ import annotations

from typing import Any

from graphcell import dtype as dt
from graphcell import ops
from graphcell.experimental.optim.checks import above_zero, check_betas, check_rate, not_negative
from graphcell.experimental.optim.optimizer import Optimizer
from graphcell.nn.optim.updates import average, descend
from graphcell.parameter import Parameter
from graphcell.tensor import Tensor


class Adamax(Optimizer):
    """m = beta1 m + (1 - beta1) g; u = max(beta2 u, |g| + eps); p -= lr / (1 - beta1**t) m / u.

    Args:
        params: Parameters, or groups, see `Optimizer`.
        lr: a number or a scalar Tensor, above 0. Default 0.002.
        betas, eps, weight_decay: default (0.9, 0.999), 1e-8, 0.
        maximize: default False; True moves along the gradient.

    State by name: step_t, the number of steps; exp_avg.<name>, the m; exp_inf.<name>, the u.

    Raises:
        TypeError, ValueError: settings of other kinds or out of range.
    """

    def __init__(
        self, params: Any, lr: Any = 2e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0.0, *,
        maximize: bool = False,
    ):  # fmt: skip
        check_rate("Adamax", lr)
        check_betas("Adamax", betas)
        above_zero("Adamax", eps=eps)
        not_negative("Adamax", weight_decay=weight_decay)
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "maximize": maximize})
        self.step_t = Parameter(Tensor(0, dt.int32), name="step_t")
        self.keep("exp_avg")
        self.keep("exp_inf")

    def construct(self, gradients: Any) -> bool:
        step = self.count(self.step_t)
        for group, members in self.decayed(gradients):
            beta1, beta2 = group["betas"]
            rate = group["lr"] / (1.0 - beta1**step)
            for k, p, g in members:
                first = average(self.exp_avg[k], g, beta1)
                norm = ops.maximum(self.exp_inf[k] * beta2, ops.abs(g) + group["eps"])
                ops.assign(self.exp_inf[k], norm)
                descend(p, rate, first / norm)
        return True
