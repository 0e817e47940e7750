"""Primitive classes of optimizers' steps: each changes Parameters in place and gives back new values."""

from __future__ import annotations

from typing import Any

from graphcell import ops as F
from graphcell.errors import ArgumentTypeError
from graphcell.ops.primitive import Configured
from graphcell.ops.primitives.checks import check_type

__all__ = [
    "SGD", "Adam", "AdamWeightDecay", "ApplyAdaMax", "ApplyAdadelta", "ApplyAdagrad", "ApplyAdamWithAmsgrad",
    "ApplyAdamWithAmsgradV2", "ApplyCenteredRMSProp", "ApplyGradientDescent", "ApplyMomentum", "ApplyRMSProp",
]  # fmt: skip


class _Locking(Configured):
    """`use_locking` is accepted; updates never run at the same time here."""

    def __init__(self, use_locking: bool = False, **settings: Any):
        owner = type(self).__name__
        for name, value in {"use_locking": use_locking, **settings}.items():
            if name.startswith("use_") and not isinstance(value, bool):
                raise ArgumentTypeError(f"For '{owner}', the '{name}' must be a bool, but got {type(value).__name__}.")
        super().__init__(use_locking=use_locking, **settings)


class Adam(_Locking):
    """One step of Adam: called with (var, m, v, beta1_power, beta2_power, lr, beta1, beta2, epsilon, gradient), where the powers are
    those of this step. Returns (var, m, v).
    """

    def __init__(self, use_locking: bool = False, use_nesterov: bool = False):
        super().__init__(use_locking, use_nesterov=use_nesterov)

    def __call__(
        self, var: Any, m: Any, v: Any, beta1_power: Any, beta2_power: Any, lr: Any, beta1: Any, beta2: Any, epsilon: Any,
        gradient: Any,
    ) -> tuple[Any, Any, Any]:  # fmt: skip
        first = F.assign(m, m * beta1 + gradient * (1.0 - beta1))
        second = F.assign(v, v * beta2 + gradient * gradient * (1.0 - beta2))
        along: Any = first * beta1 + gradient * (1.0 - beta1) if self.use_nesterov else first
        rate = lr * (1.0 - beta2_power) ** 0.5 / (1.0 - beta1_power)
        return F.assign(var, var - rate * along / (F.sqrt(second) + epsilon)), first, second


class ApplyMomentum(_Locking):
    """accum = momentum accum + gradient; variable -= learning_rate accum, or with `use_nesterov` learning_rate (gradient + momentum
    accum). Called with (variable, accumulation, learning_rate, gradient, momentum); returns the variable.
    """

    def __init__(self, use_nesterov: bool = False, use_locking: bool = False, gradient_scale: float = 1.0):
        super().__init__(use_locking, use_nesterov=use_nesterov, gradient_scale=gradient_scale)

    def __call__(self, variable: Any, accumulation: Any, learning_rate: Any, gradient: Any, momentum: Any) -> Any:
        g = gradient * self.gradient_scale if self.gradient_scale != 1.0 else gradient
        moment: Any = F.assign(accumulation, accumulation * momentum + g)
        step = g + moment * momentum if self.use_nesterov else moment
        return F.assign(variable, variable - learning_rate * step)


class ApplyAdagrad(Configured):
    """accum += grad²; var -= lr grad / sqrt(accum). Called with (var, accum, lr, grad); returns (var, accum)."""

    def __init__(self, update_slots: bool = True):
        super().__init__(update_slots=update_slots)

    def __call__(self, var: Any, accum: Any, lr: Any, grad: Any) -> tuple[Any, Any]:
        total = F.assign(accum, accum + grad * grad) if self.update_slots else accum
        return F.assign(var, var - lr * grad / F.sqrt(total)), total


class ApplyRMSProp(_Locking):
    """mean_square = decay mean_square + (1 - decay) grad²; moment = momentum moment + lr grad / sqrt(mean_square + epsilon);
    var -= moment. Called with (var, mean_square, moment, learning_rate, grad, decay, momentum, epsilon); returns the variable.
    """

    def __call__(
        self, var: Any, mean_square: Any, moment: Any, learning_rate: Any, grad: Any, decay: float, momentum: float,
        epsilon: float,
    ) -> Any:  # fmt: skip
        square: Any = F.assign(mean_square, mean_square * decay + grad * grad * (1.0 - decay))
        step: Any = F.assign(moment, moment * momentum + learning_rate * grad / F.sqrt(square + epsilon))
        return F.assign(var, var - step)


class SGD(Configured):
    """accum = momentum accum + (1 - dampening) gradient, or the gradient itself where stat is positive; parameters -= learning_rate
    accum, with `nesterov` learning_rate (gradient + momentum accum). Called with (parameters, gradient, learning_rate, accum,
    momentum, stat); returns the parameters.
    """

    def __init__(self, dampening: float = 0.0, weight_decay: float = 0.0, nesterov: bool = False):
        super().__init__(dampening=dampening, weight_decay=weight_decay, nesterov=nesterov)

    def __call__(
        self, parameters: Any, gradient: Any, learning_rate: Any, accum: Any, momentum: Any, stat: Any
    ) -> Any:
        g = gradient + parameters * self.weight_decay if self.weight_decay else gradient
        moment: Any = F.assign(accum, F.select(stat > 0, g, accum * momentum + g * (1.0 - self.dampening)))
        F.assign(stat, F.zeros_like(stat))
        step = g + moment * momentum if self.nesterov else moment
        return F.assign(parameters, parameters - learning_rate * step)


class ApplyGradientDescent(Configured):
    """var -= alpha delta. Called with (var, alpha, delta); returns var."""

    def __init__(self) -> None:
        super().__init__()

    def __call__(self, var: Any, alpha: Any, delta: Any) -> Any:
        return F.assign(var, var - alpha * delta)


class ApplyAdaMax(Configured):
    """One step of AdaMax: called with (var, m, v, beta1_power, lr, beta1, beta2, epsilon, grad). Returns (var, m, v)."""

    def __init__(self) -> None:
        super().__init__()

    def __call__(
        self, var: Any, m: Any, v: Any, beta1_power: Any, lr: Any, beta1: Any, beta2: Any, epsilon: Any, grad: Any
    ) -> tuple[Any, Any, Any]:
        first: Any = F.assign(m, m * beta1 + grad * (1.0 - beta1))
        largest: Any = F.assign(v, F.maximum(v * beta2, F.abs(grad)))
        return F.assign(var, var - lr / (1.0 - beta1_power) * first / (largest + epsilon)), first, largest


class ApplyAdadelta(Configured):
    """One step of Adadelta: called with (var, accum, accum_update, lr, rho, epsilon, grad). Returns (var, accum, accum_update)."""

    def __init__(self) -> None:
        super().__init__()

    def __call__(self, var: Any, accum: Any, accum_update: Any, lr: Any, rho: Any, epsilon: Any, grad: Any) -> tuple[Any, Any, Any]:
        total: Any = F.assign(accum, accum * rho + grad * grad * (1.0 - rho))
        step: Any = F.sqrt(accum_update + epsilon) * grad / F.sqrt(total + epsilon)
        updates = F.assign(accum_update, accum_update * rho + step * step * (1.0 - rho))
        return F.assign(var, var - lr * step), total, updates


class ApplyAdamWithAmsgradV2(_Locking):
    """One step of AMSGrad: called with (var, m, v, vhat, beta1_power, beta2_power, lr, beta1, beta2, epsilon, grad), where the powers are
    those of this step. Returns (var, m, v, vhat).
    """

    def __call__(
        self, var: Any, m: Any, v: Any, vhat: Any, beta1_power: Any, beta2_power: Any, lr: Any, beta1: Any, beta2: Any, epsilon: Any, grad: Any
    ) -> tuple[Any, Any, Any, Any]:
        first: Any = F.assign(m, m * beta1 + grad * (1.0 - beta1))
        second: Any = F.assign(v, v * beta2 + grad * grad * (1.0 - beta2))
        largest: Any = F.assign(vhat, F.maximum(vhat, second))
        rate = lr * (1.0 - beta2_power) ** 0.5 / (1.0 - beta1_power)
        return F.assign(var, var - rate * first / (F.sqrt(largest) + epsilon)), first, second, largest


class ApplyAdamWithAmsgrad(_Locking):
    """One step of AMSGrad: called with (var, m, v, vhat, beta1_power, beta2_power, lr, grad). Returns (var, m, v, vhat)."""

    def __init__(self, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-08, use_locking: bool = False):
        for name, value in (("beta1", beta1), ("beta2", beta2), ("epsilon", epsilon)):
            check_type("ApplyAdamWithAmsgrad", name, value, float)
        super().__init__(use_locking, beta1=beta1, beta2=beta2, epsilon=epsilon)
        self._step = ApplyAdamWithAmsgradV2(use_locking)

    def __call__(self, var: Any, m: Any, v: Any, vhat: Any, beta1_power: Any, beta2_power: Any, lr: Any, grad: Any) -> Any:
        return self._step(var, m, v, vhat, beta1_power, beta2_power, lr, self.beta1, self.beta2, self.epsilon, grad)


class ApplyCenteredRMSProp(_Locking):
    """RMSProp by the variance of the gradient: called with (var, mean_gradient, mean_square, moment, grad, learning_rate, decay, momentum,
    epsilon). Returns var.
    """

    def __call__(
        self, var: Any, mean_gradient: Any, mean_square: Any, moment: Any, grad: Any, learning_rate: Any, decay: Any, momentum: Any, epsilon: Any
    ) -> Any:
        square: Any = F.assign(mean_square, mean_square * decay + grad * grad * (1.0 - decay))
        mean: Any = F.assign(mean_gradient, mean_gradient * decay + grad * (1.0 - decay))
        step: Any = F.assign(moment, moment * momentum + learning_rate * grad / F.sqrt(square - mean * mean + epsilon))
        return F.assign(var, var - step)


class AdamWeightDecay(_Locking):
    """One step of Adam without correction of the bias, and with decay of the weights: called with (var, m, v, lr, beta1, beta2, epsilon, decay,
    gradient). Returns (var, m, v).
    """

    def __call__(
        self, var: Any, m: Any, v: Any, lr: Any, beta1: Any, beta2: Any, epsilon: Any, decay: Any, gradient: Any
    ) -> tuple[Any, Any, Any]:
        first: Any = F.assign(m, m * beta1 + gradient * (1.0 - beta1))
        second: Any = F.assign(v, v * beta2 + gradient * gradient * (1.0 - beta2))
        return F.assign(var, var - lr * (first / (F.sqrt(second) + epsilon) + decay * var)), first, second
