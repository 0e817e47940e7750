"""RAdam: L. Liu et al., "On the variance of the adaptive learning rate and beyond" (ICLR 2020)."""

from __future__ import annotations

from typing import Any

from graphcell import dtype as dt
from graphcell import ops
from graphcell.experimental.optim.checks import above_zero, check_betas, check_rate, not_negative
from graphcell.experimental.optim.optimizer import Optimizer
from graphcell.nn.optim.updates import moments
from graphcell.parameter import Parameter
from graphcell.tensor import Tensor


class RAdam(Optimizer):
    """Adam whose step is rectified by what is known of the variance of v, and is lr / (1 - beta1**t) m as long as that is too little.

    Args:
        params: Parameters, or groups, see `Optimizer`.
        lr: a number or a scalar Tensor, above 0. Default 0.001.
        betas, eps, weight_decay: default (0.9, 0.999), 1e-8, 0.

    State by name: step_t, the number of steps; exp_avg.<name>, the m; exp_avg_sq.<name>, the v.

    Raises:
        TypeError, ValueError: settings of other kinds or out of range.
    """

    def __init__(
        self, params: Any, lr: Any = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0.0
    ):  # fmt: skip
        check_rate("RAdam", lr)
        check_betas("RAdam", betas)
        above_zero("RAdam", eps=eps)
        not_negative("RAdam", weight_decay=weight_decay)
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})
        self.step_t = Parameter(Tensor(0, dt.int32), name="step_t")
        self.keep("exp_avg")
        self.keep("exp_avg_sq")

    def construct(self, gradients: Any) -> bool:
        step = self.count(self.step_t)
        for group, members in self.decayed(gradients):
            (beta1, beta2), eps = group["betas"], group["eps"]
            rate, power = group["lr"] / (1.0 - beta1**step), beta2**step
            most = 2.0 / (1.0 - beta2) - 1.0
            length = most - 2.0 * step * power / (1.0 - power)
            enough = length > 5.0
            long = ops.maximum(length, 5.0)  # the other branch takes no root of a negative number
            ratio = (long - 4.0) * (long - 2.0) * most / ((most - 4.0) * (most - 2.0) * long) if most > 5.0 else length * 0.0
            rectified = ops.sqrt(ratio * (1.0 - power))
            for k, p, g in members:
                first, second = moments(self.exp_avg[k], self.exp_avg_sq[k], None, g, beta1, beta2)
                adaptive = ops.cast(rectified, p.dtype) / (ops.sqrt(second) + eps)
                scale = ops.select(enough, adaptive, ops.ones_like(adaptive))
                ops.assign(p, p - ops.cast(rate, p.dtype) * first * scale)
        return True
