"""Adadelta: M. Zeiler, "Adadelta: an adaptive learning rate method" (2012)."""

from __future__ import annotations

from typing import Any

from graphcell import ops
from graphcell.errors import ArgumentValueError
from graphcell.nn.checks import check_float
from graphcell.nn.optim.checks import check_not_negative
from graphcell.nn.optim.optimizer import Optimizer


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
        check_float("Adadelta", "rho", rho)
        if not 0.0 <= rho <= 1.0:
            raise ArgumentValueError(f"For 'Adadelta', the 'rho' must be in range of [0.0, 1.0], but got {rho}.")
        self.rho, self.epsilon = rho, check_not_negative("Adadelta", "epsilon", epsilon)
        self.accum, self.accum_update = self.slots("accum"), self.slots("accum_update")

    def construct(self, gradients: Any) -> tuple[bool, ...]:
        grads = self.prepared(gradients)
        for p, a, d, g, rate in zip(self.parameters, self.accum, self.accum_update, grads, self.rates()):
            square: Any = a * self.rho + g * g * (1.0 - self.rho)
            ops.assign(a, square)
            update: Any = ops.sqrt(d + self.epsilon) / ops.sqrt(square + self.epsilon) * g
            ops.assign(d, d * self.rho + update * update * (1.0 - self.rho))
            ops.assign(p, p - ops.cast(rate, p.dtype) * update)
        return self._updated
