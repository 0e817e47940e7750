"""Momentum: I. Sutskever et al., "On the importance of initialization and momentum in deep learning" (ICML 2013)."""

from __future__ import annotations

from typing import Any

from graphcell import dtype as dt
from graphcell import ops
from graphcell.errors import ArgumentValueError
from graphcell.nn.checks import check_float
from graphcell.nn.optim.checks import check_flag
from graphcell.nn.optim.optimizer import Optimizer
from graphcell.parameter import Parameter
from graphcell.tensor import Tensor


class Momentum(Optimizer):
    """v = momentum * v + g; p -= lr * v, or with `use_nesterov` p -= lr * (g + momentum * v).

    Args:
        params: Parameters, or groups, see `Optimizer`.
        learning_rate, momentum: the momentum is a float of at least 0.
        weight_decay, loss_scale: see `Optimizer`.
        use_nesterov: default False.

    State by name: momentum; moments.<name>, the v.
    """

    def __init__(
        self, params: Any, learning_rate: Any, momentum: float, weight_decay: Any = 0.0, loss_scale: float = 1.0,
        use_nesterov: bool = False,
    ):  # fmt: skip
        super().__init__(learning_rate, params, weight_decay, loss_scale)
        if check_float("Momentum", "momentum", momentum) < 0.0:
            raise ArgumentValueError(
                f"For 'Momentum', the argument 'momentum' must be at least 0.0, but got {momentum}"
            )
        self.momentum = Parameter(Tensor(momentum, dt.float32), name="momentum")
        self.use_nesterov = check_flag("Momentum", "use_nesterov", use_nesterov)
        self.moments = self.slots("moments")

    def construct(self, gradients: Any) -> tuple[bool, ...]:
        grads = self.prepared(gradients)
        momentum: Any = self.momentum
        for p, v, g, rate in zip(self.parameters, self.moments, grads, self.rates()):
            moment = v * ops.cast(momentum, v.dtype) + g
            ops.assign(v, moment)
            step = g + moment * ops.cast(momentum, v.dtype) if self.use_nesterov else moment
            ops.assign(p, p - ops.cast(rate, p.dtype) * step)
        return self._updated
