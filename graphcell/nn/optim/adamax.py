"""AdaMax: D. Kingma, J. Ba, "Adam: a method for stochastic optimization" (ICLR 2015), section 7.1."""

from __future__ import annotations

from typing import Any

from graphcell import dtype as dt
from graphcell import ops
from graphcell.nn.optim.adam_base import AdamBase
from graphcell.nn.optim.updates import average, descend
from graphcell.parameter import Parameter
from graphcell.tensor import Tensor


class AdaMax(AdamBase):
    """m = beta1 m + (1 - beta1) g; v = max(beta2 v, |g|); p -= lr / (1 - beta1**t) m / (v + eps).

    Args:
        params: Parameters, or groups, see `Optimizer`.
        learning_rate, beta1, beta2, eps: default 0.001, 0.9, 0.999, 1e-8.
        weight_decay, loss_scale: see `Optimizer`.

    State by name: beta1_power; moment1.<name>, the m; moment2.<name>, the v.
    """

    def __init__(
        self, params: Any, learning_rate: Any = 1e-3, beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8,
        weight_decay: Any = 0.0, loss_scale: float = 1.0,
    ):  # fmt: skip
        super().__init__(learning_rate, params, weight_decay, loss_scale)
        self._set_betas(beta1, beta2, eps)
        self.beta1_power = Parameter(Tensor([1.0], dt.float32), name="beta1_power")
        self.moment1, self.moment2 = self.slots("moment1"), self.slots("moment2")

    def construct(self, gradients: Any) -> tuple[bool, ...]:
        grads = self.prepared(gradients)
        correction = 1.0 / (1.0 - self._raise_power(self.beta1_power, self.beta1))
        for p, m, v, g, rate in zip(self.parameters, self.moment1, self.moment2, grads, self.rates()):
            first = average(m, g, self.beta1)
            second: Any = ops.maximum(v * self.beta2, ops.abs(g))
            ops.assign(v, second)
            descend(p, rate * correction, first / (second + self.eps))
        return self._updated
