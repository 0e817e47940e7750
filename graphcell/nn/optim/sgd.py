"""Stochastic gradient descent, with momentum."""

from __future__ import annotations

from typing import Any

from graphcell import ops
from graphcell.errors import ArgumentTypeError, ArgumentValueError
from graphcell.nn.optim.optimizer import Optimizer


def _check_number(owner: str, name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ArgumentTypeError(f"For '{owner}', the type of '{name}' must be float, but got {type(value).__name__}.")
    if value < 0:
        raise ArgumentValueError(f"For '{owner}', the '{name}' must be at least 0.0, but got {value}.")
    return float(value)


class Momentum(Optimizer):
    """v = momentum * v + g; p -= lr * v, or with `use_nesterov` p -= lr * (g + momentum * v).

    Args:
        params: Parameters, or groups, see `Optimizer`.
        learning_rate, momentum: the momentum is a number of at least 0.
        weight_decay, loss_scale: see `Optimizer`.
        use_nesterov: default False.
    """

    def __init__(self, params: Any, learning_rate: Any, momentum: float, weight_decay: Any = 0.0, loss_scale: float = 1.0, use_nesterov: bool = False):
        super().__init__(learning_rate, params, weight_decay, loss_scale)
        self.momentum = _check_number("Momentum", "momentum", momentum)
        if not isinstance(use_nesterov, bool):
            raise ArgumentTypeError(f"For 'Momentum', the type of 'use_nesterov' must be bool, but got {type(use_nesterov).__name__}.")
        self.use_nesterov = use_nesterov
        self.moments = self.slots("moments")

    def construct(self, gradients: Any) -> bool:
        grads = self.decay_weight(self.scale_grad(self.checked(gradients)))
        for p, v, g, rate in zip(self.parameters, self.moments, grads, self.rates()):
            moment = v * self.momentum + g  # type: ignore[operator]
            ops.assign(v, moment)
            step = g + moment * self.momentum if self.use_nesterov else moment
            ops.assign(p, p - rate * step)  # type: ignore[operator]
        return True


class SGD(Optimizer):
    """v = momentum * v + (1 - dampening) * g (v = g in the first step); p -= lr * v, with `nesterov` p -= lr * (g + momentum * v).

    Args:
        params: Parameters, or groups, see `Optimizer`.
        learning_rate: default 0.1.
        momentum, dampening, weight_decay, nesterov, loss_scale: nesterov needs a momentum and no dampening.
    """

    def __init__(self, params: Any, learning_rate: Any = 0.1, momentum: float = 0.0, dampening: float = 0.0, weight_decay: Any = 0.0, nesterov: bool = False,
                 loss_scale: float = 1.0):
        super().__init__(learning_rate, params, weight_decay, loss_scale)
        self.momentum = _check_number("SGD", "momentum", momentum)
        self.dampening = _check_number("SGD", "dampening", dampening)
        if not isinstance(nesterov, bool):
            raise ArgumentTypeError(f"For 'SGD', the type of 'nesterov' must be bool, but got {type(nesterov).__name__}.")
        if nesterov and (momentum <= 0.0 or dampening != 0.0):
            raise ArgumentValueError(f"For 'SGD', if 'nesterov' is true, 'momentum' must be > 0.0 and 'dampening' must equal to 0.0, but got 'momentum' {momentum}, 'dampening' {dampening}.")
        self.nesterov = nesterov
        self.accum = self.slots("accum")
        self.stat = self.slots("stat", "ones")

    def construct(self, gradients: Any) -> bool:
        grads = self.decay_weight(self.scale_grad(self.checked(gradients)))
        for p, v, first, g, rate in zip(self.parameters, self.accum, self.stat, grads, self.rates()):
            if self.momentum == 0.0:
                ops.assign(p, p - rate * g)  # type: ignore[operator]
                continue
            damped = g * (1.0 - self.dampening) if self.dampening else g
            moment = v * self.momentum + (ops.select(first > 0, g, damped) if self.dampening else g)  # type: ignore[operator]
            ops.assign(v, moment)
            if self.dampening:
                ops.assign(first, ops.zeros_like(first))
            step = g + moment * self.momentum if self.nesterov else moment
            ops.assign(p, p - rate * step)  # type: ignore[operator]
        return True
