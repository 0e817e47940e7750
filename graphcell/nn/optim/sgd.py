"""Stochastic gradient descent, with momentum: B. Polyak, "Some methods of speeding up the convergence of iteration methods" (1964)."""

from __future__ import annotations

from typing import Any

from graphcell import dtype as dt
from graphcell import ops
from graphcell.errors import ArgumentTypeError, ArgumentValueError
from graphcell.nn.optim.checks import check_flag, check_momentum
from graphcell.nn.optim.optimizer import Optimizer
from graphcell.nn.optim.updates import descend, sgd
from graphcell.parameter import Parameter
from graphcell.tensor import Tensor


class SGD(Optimizer):
    """v = momentum * v + (1 - dampening) * g (v = g in the first step); p -= lr * v, with `nesterov` p -= lr * (g + momentum * v).

    Args:
        params: Parameters, or groups, see `Optimizer`.
        learning_rate: default 0.1.
        momentum, dampening, weight_decay, nesterov, loss_scale: nesterov needs a momentum and no dampening.

    State by name: momentum; accum.<name>, the v; stat.<name>, 1 before the first step.
    """

    def __init__(
        self, params: Any, learning_rate: Any = 0.1, momentum: float = 0.0, dampening: float = 0.0, weight_decay: Any = 0.0,
        nesterov: bool = False, loss_scale: float = 1.0,
    ):  # fmt: skip
        super().__init__(learning_rate, params, weight_decay, loss_scale)
        for name, value in (("momentum", momentum), ("dampening", dampening)):
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise ArgumentTypeError(f"For 'SGD', the argument '{name}' must be float type, but got {type(value)}.")
            if value < 0.0:
                raise ArgumentValueError(f"For 'SGD', the argument '{name}' must be at least 0.0, but got {value}.")
        check_flag("SGD", "nesterov", nesterov)
        check_momentum("SGD", momentum, dampening, nesterov)
        self.dampening, self.nesterov = float(dampening), nesterov
        self.has_momentum = momentum != 0.0
        self.momentum = Parameter(Tensor(float(momentum), dt.float32), name="momentum")
        self.accum = self.slots("accum")
        self.stat = self.slots("stat", "ones")

    def construct(self, gradients: Any) -> tuple[bool, ...]:
        grads = self.prepared(gradients)
        momentum: Any = self.momentum
        for p, v, first, g, rate in zip(self.parameters, self.accum, self.stat, grads, self.rates()):
            g = ops.cast(g, p.dtype)
            if self.has_momentum:
                sgd(p, v, first, g, rate, ops.cast(momentum, v.dtype), self.dampening, self.nesterov)
            else:
                descend(p, rate, g)
        return self._updated
