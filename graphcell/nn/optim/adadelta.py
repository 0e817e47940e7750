"""Adadelta: M. Zeiler, "Adadelta: an adaptive learning rate method" (2012)."""

from __future__ import annotations

from typing import Any

from graphcell.nn.optim.checks import check_not_negative, check_rho
from graphcell.nn.optim.optimizer import Optimizer
from graphcell.nn.optim.updates import adadelta


class Adadelta(Optimizer):
    """a = rho a + (1 - rho) g²; u = sqrt(d + epsilon) / sqrt(a + epsilon) g; d = rho d + (1 - rho) u²; p -= lr u.

    Args:
        params: Parameters, or groups, see `Optimizer`.
        learning_rate, rho, epsilon: default 1, 0.9, 1e-6.
        loss_scale, weight_decay: see `Optimizer`.

    State by name: accum.<name>, the a; accum_update.<name>, the d.
    """

    def __init__(
        self, params: Any, learning_rate: Any = 1.0, rho: float = 0.9, epsilon: float = 1e-6, loss_scale: float = 1.0,
        weight_decay: Any = 0.0,
    ):  # fmt: skip
        super().__init__(learning_rate, params, weight_decay, loss_scale)
        self.rho, self.epsilon = check_rho(rho), check_not_negative("Adadelta", "epsilon", epsilon)
        self.accum, self.accum_update = self.slots("accum"), self.slots("accum_update")

    def construct(self, gradients: Any) -> tuple[bool, ...]:
        grads = self.prepared(gradients)
        for p, a, d, g, rate in zip(self.parameters, self.accum, self.accum_update, grads, self.rates()):
            adadelta(p, a, d, g, rate, self.rho, self.epsilon)
        return self._updated
