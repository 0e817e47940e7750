"""ASGD: B. Polyak, A. Juditsky, "Acceleration of stochastic approximation by averaging" (1992)."""

from __future__ import annotations

from typing import Any

from graphcell import dtype as dt
from graphcell import ops
from graphcell.experimental.optim.checks import check_rate, not_negative
from graphcell.experimental.optim.optimizer import Optimizer
from graphcell.nn.checks import check_float, check_number
from graphcell.nn.optim.updates import asgd
from graphcell.parameter import Parameter
from graphcell.tensor import Tensor


class ASGD(Optimizer):
    """Stochastic gradient descent that also keeps the average of the Parameters.

    p -= eta (g + lambd p), eta = lr / (1 + lambd lr t)**alpha; the average starts at step t0.

    Args:
        params: Parameters, or groups, see `Optimizer`.
        lr: a number or a scalar Tensor, above 0. Default 0.01.
        lambd, alpha, t0, weight_decay: default 1e-4, 0.75, 1e6, 0.
        maximize: default False; True moves along the gradient.

    State by name: ax.<name>, the average; eta_<name>, mu_<name>, scalars; step_t, the number of steps.

    Raises:
        TypeError, ValueError: settings of other kinds or out of range.
    """

    def __init__(
        self, params: Any, lr: Any = 1e-2, lambd: float = 1e-4, alpha: float = 0.75, t0: float = 1e6, weight_decay: float = 0.0,
        maximize: bool = False,
    ):  # fmt: skip
        check_rate("ASGD", lr)
        check_float("ASGD", "lambd", lambd)
        check_float("ASGD", "t0", t0)
        check_number("ASGD", "alpha", alpha)
        not_negative("ASGD", weight_decay=weight_decay)
        super().__init__(
            params, {"lr": lr, "lambd": lambd, "alpha": alpha, "t0": t0, "weight_decay": weight_decay, "maximize": maximize}
        )
        self.keep("ax")
        self.keep("eta", -1.0)  # below 0 before the first step
        self.keep("mu", 1.0)
        self.step_t = Parameter(Tensor(0, dt.int32), name="step_t")

    def construct(self, gradients: Any) -> bool:
        step = self.count(self.step_t)
        for group, members in self.decayed(gradients):
            for k, p, g in members:
                eta = self.eta[k]
                now = ops.select(eta < 0.0, group["lr"], eta)
                asgd(p, self.ax[k], now, eta, self.mu[k], g, group["lr"], step, group["lambd"], group["alpha"], group["t0"])
        return True
