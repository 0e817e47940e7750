"""Adagrad: J. Duchi, E. Hazan, Y. Singer, "Adaptive subgradient methods for online learning and stochastic optimization" (2011)."""

from __future__ import annotations

from typing import Any

from graphcell import ops
from graphcell.nn.optim.checks import check_flag, check_not_negative
from graphcell.nn.optim.optimizer import Optimizer


class Adagrad(Optimizer):
    """a += g²; p -= lr g / sqrt(a).

    Args:
        params: Parameters, or groups, see `Optimizer`.
        accum: what `a` starts with, at least 0. Default 0.1.
        learning_rate: default 0.001.
        update_slots: False leaves `a` as it is.
        loss_scale, weight_decay: see `Optimizer`.

    State by name: accum.<name>, the a.
    """

    def __init__(
        self, params: Any, accum: float = 0.1, learning_rate: Any = 0.001, update_slots: bool = True, loss_scale: float = 1.0,
        weight_decay: Any = 0.0,
    ):  # fmt: skip
        super().__init__(learning_rate, params, weight_decay, loss_scale)
        check_not_negative("Adagrad", "accum", accum)
        self.update_slots = check_flag("Adagrad", "update_slots", update_slots)
        self.accum = self.slots("accum", accum)

    def construct(self, grads: Any) -> tuple[bool, ...]:
        prepared = self.prepared(grads)
        for p, a, g, rate in zip(self.parameters, self.accum, prepared, self.rates()):
            total: Any = a
            if self.update_slots:
                total = a + g * g
                ops.assign(a, total)
            ops.assign(p, p - ops.cast(rate, p.dtype) * g / ops.sqrt(total))
        return self._updated
