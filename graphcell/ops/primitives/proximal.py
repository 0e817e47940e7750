"""More primitive classes of optimizers' steps: those with signs, with dual averaging, and those that shrink Parameters towards 0."""

from __future__ import annotations

from typing import Any

from graphcell import ops as F
from graphcell.ops.primitives.checks import check_type
from graphcell.ops.primitives.training import _Locking

__all__ = [
    "ApplyAdagradDA", "ApplyAdagradV2", "ApplyAddSign", "ApplyFtrl", "ApplyPowerSign", "ApplyProximalAdagrad",
    "ApplyProximalGradientDescent",
]  # fmt: skip


class ApplyAdagradV2(_Locking):
    """accum += grad²; var -= lr grad / (sqrt(accum) + epsilon). Called with (var, accum, lr, grad); returns (var, accum).

    Raises:
        TypeError: epsilon is no float, update_slots no bool.
    """

    def __init__(self, epsilon: float, update_slots: bool = True):
        check_type("ApplyAdagradV2", "epsilon", epsilon, float)
        check_type("ApplyAdagradV2", "update_slots", update_slots, bool)
        super().__init__(epsilon=epsilon, update_slots=update_slots)

    def __call__(self, var: Any, accum: Any, lr: Any, grad: Any) -> tuple[Any, Any]:
        total = F.assign(accum, accum + grad * grad) if self.update_slots else accum
        return F.assign(var, var - lr * grad / (F.sqrt(total) + self.epsilon)), total


class ApplyAddSign(_Locking):
    """m = beta m + (1 - beta) grad; var -= lr (alpha + sign_decay sign(grad) sign(m)) grad.

    Called with (var, m, lr, alpha, sign_decay, beta, grad); returns (var, m).
    """

    def __call__(self, var: Any, m: Any, lr: Any, alpha: Any, sign_decay: Any, beta: Any, grad: Any) -> tuple[Any, Any]:
        mean = F.assign(m, m * beta + grad * (1.0 - beta))
        return F.assign(var, var - lr * (alpha + sign_decay * F.sign(grad) * F.sign(mean)) * grad), mean


class ApplyPowerSign(_Locking):
    """m = beta m + (1 - beta) grad; var -= lr exp(logbase sign_decay sign(grad) sign(m)) grad.

    Called with (var, m, lr, logbase, sign_decay, beta, grad); returns (var, m).
    """

    def __call__(self, var: Any, m: Any, lr: Any, logbase: Any, sign_decay: Any, beta: Any, grad: Any) -> tuple[Any, Any]:
        mean = F.assign(m, m * beta + grad * (1.0 - beta))
        return F.assign(var, var - lr * F.exp(logbase * sign_decay * F.sign(grad) * F.sign(mean)) * grad), mean


def _shrunk(x: Any, rate: Any, l1: Any, l2: Any) -> Any:
    """`x` moved by rate l1 towards 0, not beyond, and then divided by 1 + rate l2."""
    return F.sign(x) * F.maximum(F.abs(x) - rate * l1, 0.0) / (1.0 + rate * l2)


class ApplyProximalGradientDescent(_Locking):
    """var - alpha delta, moved by alpha l1 towards 0 and divided by 1 + alpha l2. Called with (var, alpha, l1, l2, delta); returns var."""

    def __call__(self, var: Any, alpha: Any, l1: Any, l2: Any, delta: Any) -> Any:
        return F.assign(var, _shrunk(var - alpha * delta, alpha, l1, l2))


class ApplyProximalAdagrad(_Locking):
    """accum += grad²; then as `ApplyProximalGradientDescent`, with the rate lr / sqrt(accum).

    Called with (var, accum, lr, l1, l2, grad); returns (var, accum).
    """

    def __call__(self, var: Any, accum: Any, lr: Any, l1: Any, l2: Any, grad: Any) -> tuple[Any, Any]:
        total = F.assign(accum, accum + grad * grad)
        rate = lr / F.sqrt(total)
        return F.assign(var, _shrunk(var - rate * grad, rate, l1, l2)), total


class ApplyAdagradDA(_Locking):
    """Dual averaging: sums of gradients and of their squares, from which var is made anew, with l1 and l2 times the number of steps.

    Called with (var, gradient_accumulator, gradient_squared_accumulator, grad, lr, l1, l2, global_step); returns var.
    """

    def __call__(
        self, var: Any, gradient_accumulator: Any, gradient_squared_accumulator: Any, grad: Any, lr: Any, l1: Any, l2: Any, global_step: Any
    ) -> Any:
        total = F.assign(gradient_accumulator, gradient_accumulator + grad)
        squares = F.assign(gradient_squared_accumulator, gradient_squared_accumulator + grad * grad)
        steps: Any = F.cast(global_step, var.dtype)
        kept = F.sign(total) * F.maximum(F.abs(total) - l1 * steps, 0.0)
        return F.assign(var, -lr * kept / (l2 * steps * lr + F.sqrt(squares)))


class ApplyFtrl(_Locking):
    """Follow the regularised leader (McMahan et al., 2013). Called with (var, accum, linear, grad, lr, l1, l2, lr_power); returns var."""

    def __call__(self, var: Any, accum: Any, linear: Any, grad: Any, lr: Any, l1: Any, l2: Any, lr_power: Any) -> Any:
        before = accum * 1.0
        total = F.assign(accum, accum + grad * grad)
        wide, narrow = F.pow(total, -lr_power), F.pow(before, -lr_power)
        slope: Any = F.assign(linear, linear + grad - (wide - narrow) / lr * var)
        shrunk = F.sign(slope) * F.maximum(F.abs(slope) - l1, 0.0)
        return F.assign(var, -shrunk / (wide / lr + 2.0 * l2))
