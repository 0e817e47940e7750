"""Stochastic gradient descent, with momentum: B. Polyak, "Some methods of speeding up the convergence of iteration methods" (1964)."""

from __future__ import annotations

from typing import Any

from graphcell.errors import ArgumentValueError
from graphcell.experimental.optim.checks import check_rate
from graphcell.experimental.optim.optimizer import Optimizer
from graphcell.nn.checks import check_number
from graphcell.nn.optim.checks import check_flag, check_momentum
from graphcell.nn.optim.updates import descend, sgd


class SGD(Optimizer):
    """v = momentum v + (1 - dampening) g (v = g in the first step); p -= lr v, with `nesterov` p -= lr (g + momentum v).

    Args:
        params: Parameters, or groups, see `Optimizer`.
        lr: a number or a scalar Tensor, at least 0.
        momentum, dampening, weight_decay: default 0.
        nesterov: default False; needs a momentum and no dampening.
        maximize: default False; True moves along the gradient.

    State by name: accum.<name>, the v; stat.<name>, 1 before the first step.

    Raises:
        TypeError, ValueError: settings of other kinds or out of range.
    """

    def __init__(
        self, params: Any, lr: Any, momentum: float = 0, dampening: float = 0, weight_decay: float = 0.0, nesterov: bool = False, *,
        maximize: bool = False,
    ):  # fmt: skip
        check_settings(lr, momentum, dampening, nesterov, maximize)
        super().__init__(
            params,
            {
                "lr": lr, "momentum": float(momentum), "dampening": float(dampening), "weight_decay": weight_decay, "nesterov": nesterov,
                "maximize": maximize, "grad_centralization": False,
            },
        )  # fmt: skip
        self.keep("accum")
        self.keep("stat", "ones")

    def construct(self, gradients: Any) -> bool:
        for group, members in self.decayed(gradients):
            for k, p, g in members:
                if group["momentum"]:
                    sgd(p, self.accum[k], self.stat[k], g, group["lr"], group["momentum"], group["dampening"], group["nesterov"])
                else:
                    descend(p, group["lr"], g)
        return True


def check_settings(lr: Any, momentum: Any, dampening: Any, nesterov: Any, maximize: Any) -> None:
    """Raises TypeError or ValueError for settings that do not fit."""
    check_rate("SGD", lr, least_is_allowed=True)
    if check_number("SGD", "momentum", momentum) < 0.0:
        raise ArgumentValueError(f"Invalid momentum value: {momentum}")
    check_number("SGD", "dampening", dampening)
    check_flag("SGD", "nesterov", nesterov)
    check_flag("SGD", "maximize", maximize)
    check_momentum("SGD", momentum, dampening, nesterov)
