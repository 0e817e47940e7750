"""Lamb: Y. You et al., "Large batch optimization for deep learning: training BERT in 76 minutes" (ICLR 2020)."""

from __future__ import annotations

from typing import Any

from graphcell import dtype as dt
from graphcell import ops
from graphcell.nn.optim.adam_base import AdamBase
from graphcell.nn.optim.updates import average
from graphcell.tensor import Tensor


class Lamb(AdamBase):
    """The step of Adam with bias correction plus weight_decay p, made as long as ||p|| times the learning rate.

    The quotient of the lengths is at most 10; where one of them is 0, it is 1.

    Args:
        params: Parameters, or groups, see `Optimizer`.
        learning_rate: required.
        beta1, beta2, eps, weight_decay: default 0.9, 0.999, 1e-6, 0.

    State by name: lamb_m.<name>, lamb_v.<name>.
    """

    def __init__(
        self, params: Any, learning_rate: Any, beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-6,
        weight_decay: Any = 0.0,
    ):  # fmt: skip
        super().__init__(learning_rate, params, weight_decay)
        self._set_betas(beta1, beta2, eps)
        self.moments1, self.moments2 = self.slots("lamb_m"), self.slots("lamb_v")

    def construct(self, gradients: Any) -> tuple[bool, ...]:
        grads = self.gradients_centralization(self.checked(gradients))
        decays = self.decays()
        rates = self.rates()
        step: Any = ops.cast(self.global_step, dt.float32).reshape(())
        scale1, scale2 = 1.0 / (1.0 - self.beta1**step), 1.0 / (1.0 - self.beta2**step)
        for k, (p, m, v, g) in enumerate(zip(self.parameters, self.moments1, self.moments2, grads)):
            width = dt.promote(p.dtype, dt.float32)  # half precision would lose eps
            wide, gradient = ops.cast(p, width), ops.cast(g, width)
            first = average(m, gradient, self.beta1) * scale1
            second = average(v, gradient * gradient, self.beta2) * scale2
            update: Any = first / (ops.sqrt(second) + self.eps)
            if isinstance(decays[k], Tensor) or decays[k]:
                update = update + wide * decays[k]
            own, new = ops.sqrt((wide * wide).sum()), ops.sqrt((update * update).sum())
            both = ops.logical_and(own > 0, new > 0)
            trust = ops.select(both, ops.minimum(own / ops.select(both, new, ops.ones_like(new)), 10.0), ops.ones_like(own))
            ops.assign(p, ops.cast(wide - rates[k] * trust * update, p.dtype))
        return self._updated
