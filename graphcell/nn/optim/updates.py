"""The arithmetic of updates that several optimizers share: each takes a Parameter `p`, what the optimizer remembers of it, and its gradient `g`, of one
shape, and writes the new values. Rates and other numbers are scalars: Python's, or Tensors."""

from __future__ import annotations

from typing import Any

from graphcell import ops


def descend(p: Any, rate: Any, step: Any) -> None:
    """p -= rate step."""
    ops.assign(p, p - _as(p, rate) * step)


def average(slot: Any, value: Any, beta: Any) -> Any:
    """Moves the average in the Parameter `slot` towards `value`; the new average."""
    new = ops.cast(slot, value.dtype) * beta + value * (1.0 - beta)
    ops.assign(slot, ops.cast(new, slot.dtype))
    return new


def moments(m: Any, v: Any, largest: Any, g: Any, beta1: Any, beta2: Any) -> tuple[Any, Any]:
    """The averages of the gradient and of its square; with a Parameter `largest` (or None), the largest average of squares so far."""
    first, second = average(m, g, beta1), average(v, g * g, beta2)
    if largest is not None:
        second = ops.maximum(largest, second)
        ops.assign(largest, second)
    return first, second


def sgd(p: Any, v: Any, first: Any, g: Any, rate: Any, momentum: Any, dampening: float, nesterov: bool) -> None:
    """v = momentum v + (1 - dampening) g, but g where `first` is not 0, as before the first step; p -= rate v, or rate (g + momentum v)."""
    damped = ops.select(first > 0, g, g * (1.0 - dampening)) if dampening else g
    moment = v * momentum + damped
    ops.assign(v, moment)
    ops.assign(first, ops.zeros_like(first))
    descend(p, rate, g + moment * momentum if nesterov else moment)


def adadelta(p: Any, a: Any, d: Any, g: Any, rate: Any, rho: float, eps: float) -> None:
    """a = rho a + (1 - rho) g²; u = sqrt(d + eps) / sqrt(a + eps) g; d = rho d + (1 - rho) u²; p -= rate u."""
    square: Any = a * rho + g * g * (1.0 - rho)
    ops.assign(a, square)
    update: Any = ops.sqrt(d + eps) / ops.sqrt(square + eps) * g
    ops.assign(d, d * rho + update * update * (1.0 - rho))
    descend(p, rate, update)


def asgd(
    p: Any, ax: Any, now: Any, eta: Any, mu: Any, g: Any, rate: Any, step: Any, lambd: float, alpha: float, t0: float
) -> None:  # fmt: skip
    """p -= now (g + lambd p); `eta` is what `now` is in the next step. `ax` is the average of the p, into which each comes with weight `mu`.
    `step` counts from 1.
    """
    new: Any = p * _as(p, 1.0 - lambd * now) - g * _as(p, now)
    ops.assign(p, new)
    ops.assign(ax, ops.select(mu == 1.0, new, ax + (new - ax) * _as(p, mu)))
    ops.assign(eta, ops.cast(rate / (1.0 + lambd * rate * step) ** alpha, eta.dtype))
    ops.assign(mu, ops.cast(1.0 / ops.maximum(step - t0, 1.0), mu.dtype))


def rprop(
    p: Any, before: Any, size: Any, step: Any, g: Any, etas: tuple[float, float], step_sizes: tuple[float, float]
) -> None:  # fmt: skip
    """Each element moves by its own `step`, which is kept in the Parameter `size`, against the sign of its gradient."""
    same = g * before
    factor = ops.select(same > 0, etas[1], ops.select(same < 0, etas[0], 1.0))
    step = ops.clamp(step * ops.cast(factor, p.dtype), *step_sizes)
    used = ops.select(same < 0, ops.zeros_like(g), g)
    ops.assign(size, step)
    ops.assign(before, used)
    ops.assign(p, p - ops.sign(used) * step)


def _as(p: Any, number: Any) -> Any:
    """A number in the dtype of `p`, if it is a Tensor: products stay in that dtype."""
    return number if isinstance(number, (int, float)) else ops.cast(number, p.dtype)
