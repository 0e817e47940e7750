"""NAdam: T. Dozat, "Incorporating Nesterov momentum into Adam" (2016)."""

from __future__ import annotations

from typing import Any

from graphcell import dtype as dt
from graphcell import ops
from graphcell.experimental.optim.checks import above_zero, check_betas, check_rate, not_negative
from graphcell.experimental.optim.optimizer import Optimizer
from graphcell.nn.optim.updates import moments
from graphcell.parameter import Parameter
from graphcell.tensor import Tensor


class NAdam(Optimizer):
    """m and v as in Adam; p -= lr ((1 - mu_t) / (1 - M) g + mu_(t+1) / (1 - M mu_(t+1)) m) / (sqrt(v / (1 - beta2**t)) + eps),
    mu_t = beta1 (1 - 0.96**(t momentum_decay) / 2), M the product of all mu so far.

    Args:
        params: Parameters, or groups, see `Optimizer`.
        lr: a number or a scalar Tensor, above 0. Default 0.002.
        betas, eps, weight_decay, momentum_decay: default (0.9, 0.999), 1e-8, 0, 0.004.

    State by name: step_t, the number of steps; exp_avg.<name>, the m; exp_avg_sq.<name>, the v; mu_product_<name>, the M.

    Raises:
        TypeError, ValueError: settings of other kinds or out of range.
    """

    def __init__(
        self, params: Any, lr: Any = 2e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0.0,
        momentum_decay: float = 4e-3,
    ):  # fmt: skip
        check_rate("NAdam", lr)
        check_betas("NAdam", betas)
        above_zero("NAdam", eps=eps)
        not_negative("NAdam", weight_decay=weight_decay, momentum_decay=momentum_decay)
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "momentum_decay": momentum_decay})
        self.step_t = Parameter(Tensor(0, dt.int32), name="step_t")
        self.keep("exp_avg")
        self.keep("exp_avg_sq")
        self.keep("mu_product", 1.0)

    def construct(self, gradients: Any) -> bool:
        step = self.count(self.step_t)
        for group, members in self.decayed(gradients):
            (beta1, beta2), eps, decay = group["betas"], group["eps"], group["momentum_decay"]
            now, then = (beta1 * (1.0 - 0.5 * 0.96 ** (t * decay)) for t in (step, step + 1.0))
            root = 1.0 / ops.sqrt(1.0 - beta2**step)
            for k, p, g in members:
                product = self.mu_product[k] * now
                ops.assign(self.mu_product[k], ops.cast(product, dt.float32))
                along, ahead = group["lr"] * (1.0 - now) / (1.0 - product), group["lr"] * then / (1.0 - product * then)
                first, second = moments(self.exp_avg[k], self.exp_avg_sq[k], None, g, beta1, beta2)
                moved = g * ops.cast(along, p.dtype) + first * ops.cast(ahead, p.dtype)
                ops.assign(p, p - moved / (ops.sqrt(second) * ops.cast(root, p.dtype) + eps))
        return True
