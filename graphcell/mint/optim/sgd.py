"""Stochastic gradient descent, with momentum: B. Polyak, "Some methods of speeding up the convergence of iteration methods" (1964)."""

from __future__ import annotations

from typing import Any

from graphcell import dtype as dt
from graphcell import ops
from graphcell.experimental.optim.checks import not_negative
from graphcell.experimental.optim.optimizer import Optimizer
from graphcell.experimental.optim.sgd import check_settings
from graphcell.nn.optim.updates import descend
from graphcell.parameter import Parameter
from graphcell.tensor import Tensor


class SGD(Optimizer):
    """v = momentum v + (1 - dampening) g (v = g in the first step); p -= lr v, with `nesterov` p -= lr (g + momentum v).

    Args:
        params: Parameters, or groups, see `experimental.optim.Optimizer`.
        lr: a number or a scalar Tensor, at least 0.
        momentum, dampening, weight_decay: default 0.
        nesterov: default False; needs a momentum and no dampening.
        maximize: default False; True moves along the gradient.

    State by name: momentum_buf.<name>, the v; step_t, the number of steps.

    Raises:
        TypeError, ValueError: settings of other kinds or out of range.
    """

    def __init__(
        self, params: Any, lr: Any, momentum: float = 0, dampening: float = 0, weight_decay: float = 0, nesterov: bool = False, *,
        maximize: bool = False,
    ):  # fmt: skip
        check_settings(lr, momentum, dampening, nesterov, maximize)
        not_negative("SGD", weight_decay=weight_decay)
        super().__init__(
            params,
            {
                "lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay, "nesterov": nesterov,
                "maximize": maximize,
            },
        )  # fmt: skip
        self.keep("momentum_buf")
        self.step_t = Parameter(Tensor(0, dt.int32), name="step_t")

    def construct(self, gradients: Any) -> bool:
        first = self.count(self.step_t) == 1.0
        for group, members in self.decayed(gradients):
            momentum = group["momentum"]
            for k, p, g in members:
                step = g
                if momentum:
                    used = ops.select(first, g, g * (1.0 - group["dampening"])) if group["dampening"] else g
                    step = self.momentum_buf[k] * momentum + used
                    ops.assign(self.momentum_buf[k], step)
                    step = g + step * momentum if group["nesterov"] else step
                descend(p, group["lr"], step)
        return True
