"""RMSProp: T. Tieleman, G. Hinton, lecture 6.5 of "Neural networks for machine learning" (2012)."""

from __future__ import annotations

from typing import Any

from graphcell import ops
from graphcell.nn.optim.checks import check_flag, check_not_negative, check_positive
from graphcell.nn.optim.optimizer import Optimizer


class RMSProp(Optimizer):
    """s = decay s + (1 - decay) g²; m = momentum m + lr g / sqrt(s + epsilon); p -= m. With `centered`, s minus the square of the
    mean gradient (averaged in the same way) is used.

    Args:
        params: Parameters, or groups, see `Optimizer`.
        learning_rate, decay, momentum, epsilon: default 0.1, 0.9, 0, 1e-10.
        use_locking: accepted; updates never run at the same time here.
        centered: default False.
        loss_scale, weight_decay: see `Optimizer`.

    State by name: mean_square.<name>, the s; moment.<name>, the m; mean_grad.<name> with `centered`.
    """

    def __init__(
        self, params: Any, learning_rate: Any = 0.1, decay: float = 0.9, momentum: float = 0.0, epsilon: float = 1e-10,
        use_locking: bool = False, centered: bool = False, loss_scale: float = 1.0, weight_decay: Any = 0.0,
    ):  # fmt: skip
        super().__init__(learning_rate, params, weight_decay, loss_scale)
        self.decay = check_not_negative("RMSProp", "decay", decay)
        self.momentum = check_not_negative("RMSProp", "momentum", momentum)
        self.epsilon = check_positive("RMSProp", "epsilon", epsilon)
        check_flag("RMSProp", "use_locking", use_locking)
        self.centered = check_flag("RMSProp", "centered", centered)
        self.mg = self.slots("mean_grad") if centered else None
        self.ms = self.slots("mean_square", "ones")
        self.moment = self.slots("moment")

    def construct(self, gradients: Any) -> tuple[bool, ...]:
        grads = self.prepared(gradients)
        rates = self.rates()
        for k, (p, s, m, g) in enumerate(zip(self.parameters, self.ms, self.moment, grads)):
            square: Any = s * self.decay + g * g * (1.0 - self.decay)
            ops.assign(s, square)
            if self.mg is not None:
                mean: Any = self.mg[k] * self.decay + g * (1.0 - self.decay)
                ops.assign(self.mg[k], mean)
                square = square - mean * mean
            step = g / ops.sqrt(square + self.epsilon)
            moment: Any = m * self.momentum + ops.cast(rates[k], p.dtype) * step
            ops.assign(m, moment)
            ops.assign(p, p - moment)
        return self._updated
