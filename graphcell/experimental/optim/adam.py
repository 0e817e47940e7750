"""Adam: D. Kingma, J. Ba, "Adam: a method for stochastic optimization" (ICLR 2015)."""

from __future__ import annotations

from typing import Any

from graphcell import dtype as dt
from graphcell import ops
from graphcell.experimental.optim.checks import check_betas, check_rate, not_negative
from graphcell.experimental.optim.optimizer import Optimizer
from graphcell.nn.optim.updates import descend, moments
from graphcell.parameter import Parameter
from graphcell.tensor import Tensor


class Adam(Optimizer):
    """m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g²; p -= lr sqrt(1 - beta2**t) / (1 - beta1**t) m / (sqrt(v) + eps).

    Args:
        params: Parameters, or groups, see `Optimizer`.
        lr: a number or a scalar Tensor, at least 0. Default 0.001.
        betas, eps, weight_decay: default (0.9, 0.999), 1e-8, 0.
        amsgrad: the largest v so far is used (S. Reddi et al., "On the convergence of Adam and beyond", 2018). Default False.
        maximize: default False; True moves along the gradient.

    State by name: exp_avg.<name>, the m; exp_avg_sq.<name>, the v; max_exp_avg_sq.<name>, for `amsgrad`; state_step, the number of steps.

    Raises:
        TypeError, ValueError: settings of other kinds or out of range.
    """

    def __init__(
        self, params: Any, lr: Any = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0.0,
        amsgrad: bool = False, *, maximize: bool = False,
    ):  # fmt: skip
        super().__init__(params, adam_settings("Adam", lr, betas, eps, weight_decay, amsgrad, maximize))
        keep_moments(self)

    def construct(self, gradients: Any) -> bool:
        step = self.count(self.state_step)
        for group, members in self.decayed(gradients):
            (beta1, beta2), eps = group["betas"], group["eps"]
            rate = group["lr"] * ops.sqrt(1.0 - beta2**step) / (1.0 - beta1**step)
            for k, p, g in members:
                largest = self.max_exp_avg_sq[k] if group["amsgrad"] else None
                first, second = moments(self.exp_avg[k], self.exp_avg_sq[k], largest, g, beta1, beta2)
                descend(p, rate, first / (ops.sqrt(second) + eps))
        return True


def adam_settings(
    owner: str, lr: Any, betas: Any, eps: Any, weight_decay: Any, amsgrad: Any, maximize: Any
) -> dict[str, Any]:  # fmt: skip
    """The settings of Adam and AdamW, checked. Raises TypeError or ValueError."""
    check_rate(owner, lr, least_is_allowed=True)
    check_betas(owner, betas)
    not_negative(owner, eps=eps, weight_decay=weight_decay)
    return {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad, "maximize": maximize}


def keep_moments(optimizer: Optimizer) -> None:
    """The state of Adam and AdamW."""
    for name in ("exp_avg", "exp_avg_sq", "max_exp_avg_sq"):
        optimizer.keep(name)
    optimizer.state_step = Parameter(Tensor(0, dt.int32), name="state_step")
