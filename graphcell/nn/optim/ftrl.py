"""FTRL: H. McMahan et al., "Ad click prediction: a view from the trenches" (KDD 2013)."""

from __future__ import annotations

from typing import Any

from graphcell import ops
from graphcell.errors import ArgumentValueError
from graphcell.nn.checks import check_float
from graphcell.nn.optim.checks import check_flag, check_not_negative
from graphcell.nn.optim.optimizer import Optimizer


class FTRL(Optimizer):
    """n = a + g²; z += g - (n**-lr_power - a**-lr_power) / lr p; a = n; p = 0 where |z| <= l1, else
    (sign(z) l1 - z) / (n**-lr_power / lr + 2 l2).

    Args:
        params: Parameters, or groups, see `Optimizer`.
        initial_accum: what `a` starts with, at least 0. Default 0.1.
        learning_rate: a number or scalar Tensor, the same for all. Default 0.001.
        lr_power: at most 0. Default -0.5.
        l1, l2: at least 0. Default 0.
        use_locking: accepted; updates never run at the same time here.
        loss_scale, weight_decay: see `Optimizer`; weight decay is for all Parameters.

    State by name: moments.<name>, the a; linear.<name>, the z.
    """

    spares_norms = False

    def __init__(
        self, params: Any, initial_accum: float = 0.1, learning_rate: Any = 0.001, lr_power: float = -0.5, l1: float = 0.0, l2: float = 0.0,
        use_locking: bool = False, loss_scale: float = 1.0, weight_decay: Any = 0.0,
    ):  # fmt: skip
        super().__init__(learning_rate, params, weight_decay, loss_scale)
        if self.dynamic_lr or self.is_group_lr:
            raise ArgumentValueError(
                "For 'FTRL', dynamic learning rate and group learning rate are currently not supported in FTRL, they should all be false, but got "
                f"dynamic learning rate {self.dynamic_lr} and group learning rate {self.is_group_lr}."
            )
        check_not_negative("FTRL", "initial_accum", initial_accum)
        if check_float("FTRL", "lr_power", lr_power) > 0:
            raise ArgumentValueError(f"For 'FTRL', the 'lr_power' must be float and must <= 0, but got '{lr_power}' with type 'float'.")
        self.lr_power, self.l1, self.l2 = lr_power, check_not_negative("FTRL", "l1", l1), check_not_negative("FTRL", "l2", l2)
        check_flag("FTRL", "use_locking", use_locking)
        self.moments, self.linear = self.slots("moments", initial_accum), self.slots("linear")

    def construct(self, grads: Any) -> tuple[bool, ...]:
        prepared = self.prepared(grads)
        for p, a, z, g, rate in zip(self.parameters, self.moments, self.linear, prepared, self.rates()):
            lr = ops.cast(rate, p.dtype)
            total: Any = a + g * g
            root = self._power(total)
            linear: Any = z + g - (root - self._power(a)) / lr * p
            ops.assign(a, total)
            ops.assign(z, linear)
            new = (ops.sign(linear) * self.l1 - linear) / (root / lr + 2.0 * self.l2)
            ops.assign(p, ops.select(ops.abs(linear) > self.l1, new, ops.zeros_like(new)))
        return self._updated

    def _power(self, accumulated: Any) -> Any:
        return ops.sqrt(accumulated) if self.lr_power == -0.5 else accumulated**-self.lr_power
