"""Optimizers with a rate for each element: Adagrad, RMSProp, Adadelta, Rprop, ASGD.

J. Duchi et al., "Adaptive subgradient methods for online learning and stochastic optimization" (2011); T. Tieleman, G. Hinton, lecture
6.5 of "Neural networks for machine learning" (2012); M. Zeiler, "Adadelta: an adaptive learning rate method" (2012); M. Riedmiller,
H. Braun, "A direct adaptive method for faster backpropagation learning: the Rprop algorithm" (1993); B. Polyak, A. Juditsky,
"Acceleration of stochastic approximation by averaging" (1992).
"""

from __future__ import annotations

from typing import Any

from graphcell import dtype as dt
from graphcell import ops
from graphcell.errors import ArgumentTypeError, ArgumentValueError
from graphcell.nn.optim.checks import check_flag, check_float, check_fraction, check_not_negative, check_positive
from graphcell.nn.optim.optimizer import Optimizer
from graphcell.parameter import Parameter, ParameterTuple
from graphcell.tensor import Tensor


class Adagrad(Optimizer):
    """a += g²; p -= lr g / sqrt(a).

    Args:
        params: Parameters, or groups, see `Optimizer`.
        accum: what `a` starts with, at least 0. Default 0.1.
        learning_rate: default 0.001.
        update_slots: False leaves `a` as it is.
        loss_scale, weight_decay: see `Optimizer`.

    State by name: accum.<name>, the a.
    """

    def __init__(
        self, params: Any, accum: float = 0.1, learning_rate: Any = 0.001, update_slots: bool = True, loss_scale: float = 1.0,
        weight_decay: Any = 0.0,
    ):  # fmt: skip
        super().__init__(learning_rate, params, weight_decay, loss_scale)
        check_not_negative("Adagrad", "accum", accum)
        self.update_slots = check_flag("Adagrad", "update_slots", update_slots)
        self.accum = self.slots("accum", accum)

    def construct(self, grads: Any) -> bool:
        prepared = self.prepared(grads)
        for p, a, g, rate in zip(self.parameters, self.accum, prepared, self.rates()):
            total: Any = a
            if self.update_slots:
                total = a + g * g
                ops.assign(a, total)
            ops.assign(p, p - ops.cast(rate, p.dtype) * g / ops.sqrt(total))
        return True


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

    def construct(self, gradients: Any) -> bool:
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
        return True


class Adadelta(Optimizer):
    """a = rho a + (1 - rho) g²; u = sqrt(d + epsilon) / sqrt(a + epsilon) g; d = rho d + (1 - rho) u²; p -= lr u.

    Args:
        params: Parameters, or groups, see `Optimizer`.
        learning_rate, rho, epsilon: default 1, 0.9, 1e-6.
        loss_scale, weight_decay: see `Optimizer`.

    State by name: accum.<name>, the a; accum_update.<name>, the d.
    """

    def __init__(
        self, params: Any, learning_rate: Any = 1.0, rho: float = 0.9, epsilon: float = 1e-6, loss_scale: float = 1.0,
        weight_decay: Any = 0.0,
    ):  # fmt: skip
        super().__init__(learning_rate, params, weight_decay, loss_scale)
        check_float("Adadelta", "rho", rho)
        if not 0.0 <= rho <= 1.0:
            raise ArgumentValueError(f"For 'Adadelta', the 'rho' must be in range of [0.0, 1.0], but got {rho}.")
        self.rho, self.epsilon = rho, check_not_negative("Adadelta", "epsilon", epsilon)
        self.accum, self.accum_update = self.slots("accum"), self.slots("accum_update")

    def construct(self, gradients: Any) -> bool:
        grads = self.prepared(gradients)
        for p, a, d, g, rate in zip(self.parameters, self.accum, self.accum_update, grads, self.rates()):
            square: Any = a * self.rho + g * g * (1.0 - self.rho)
            ops.assign(a, square)
            update: Any = ops.sqrt(d + self.epsilon) / ops.sqrt(square + self.epsilon) * g
            ops.assign(d, d * self.rho + update * update * (1.0 - self.rho))
            ops.assign(p, p - ops.cast(rate, p.dtype) * update)
        return True


class Rprop(Optimizer):
    """Moves each element by its own step against the sign of its gradient; the step grows while the sign stays, and shrinks (and the
    move is left out) when it changes.

    Args:
        params: Parameters, or groups, see `Optimizer`.
        learning_rate: the first step. Default 0.1.
        etas: factors (shrink, grow), default (0.5, 1.2).
        step_sizes: smallest and largest step, default (1e-6, 50).
        weight_decay: see `Optimizer`.

    State by name: prev.<name>, the gradient before; step_size.<name>.
    """

    def __init__(
        self, params: Any, learning_rate: Any = 0.1, etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50.0), weight_decay: Any = 0.0,
    ):  # fmt: skip
        super().__init__(learning_rate, params, weight_decay)
        for name, pair in (("etas", etas), ("step_sizes", step_sizes)):
            if not isinstance(pair, tuple):
                raise ArgumentTypeError(f"For 'Rprop', the type of '{name}' must be tuple, but got {type(pair)}.")
            if len(pair) != 2:
                raise ArgumentValueError(f"For 'Rprop', the size of '{name}' must be 2, but got {len(pair)}.")
            for value in pair:
                check_float("Rprop", name, value)
        if step_sizes[0] >= step_sizes[1] or step_sizes[0] < 0:
            raise ArgumentValueError(
                f"For 'Rprop', the second of 'step_sizes' must be larger than the first, but got {step_sizes}."
            )
        check_fraction("Rprop", "etas[0]", etas[0])
        if etas[1] <= 1.0:
            raise ArgumentValueError(f"For 'Rprop', the second of 'etas' must be larger than 1, but got {etas[1]}.")
        self.etas, self.step_sizes = etas, step_sizes
        self.prev, self.step_size = self.slots("prev"), self.slots("step_size")

    def construct(self, gradients: Any) -> bool:
        grads = self.prepared(gradients)
        rates = self.rates()
        start = ops.cast(self.global_step == 1, dt.float32)
        for k, (p, before, size, g) in enumerate(zip(self.parameters, self.prev, self.step_size, grads)):
            step: Any = size + rates[k] * start
            same = g * before
            factor = ops.select(same > 0, self.etas[1], ops.select(same < 0, self.etas[0], 1.0))
            step = ops.clamp(step * factor, self.step_sizes[0], self.step_sizes[1])
            used = ops.select(same < 0, ops.zeros_like(g), g)
            ops.assign(size, step)
            ops.assign(before, used)
            ops.assign(p, p - ops.sign(used) * step)
        return True


class ASGD(Optimizer):
    """Stochastic gradient descent that also keeps the average of the Parameters.

    p -= eta (g + lambd p), eta = lr / (1 + lambd lr t)**alpha; the average starts at step t0.

    Args:
        params: Parameters, or groups, see `Optimizer`.
        learning_rate, lambd, alpha, t0: default 0.1, 1e-4, 0.75, 1e6.
        weight_decay: see `Optimizer`.

    State by name: mu_<name>, eta_<name>, scalars; ax_.<name>, the average.
    """

    def __init__(
        self, params: Any, learning_rate: Any = 0.1, lambd: float = 1e-4, alpha: float = 0.75, t0: float = 1e6,
        weight_decay: Any = 0.0,
    ):  # fmt: skip
        super().__init__(learning_rate, params, weight_decay)
        self.lambd, self.alpha = check_float("ASGD", "lambd", lambd), check_float("ASGD", "alpha", alpha)
        self.t0 = check_float("ASGD", "t0", t0)
        self.mu = self._scalars("mu_", 1.0)
        self.eta = self._scalars("eta_", 0.0)
        self.ax = self.slots("ax_")

    def _scalars(self, prefix: str, start: float) -> ParameterTuple:
        return ParameterTuple(
            [Parameter(Tensor(start, dt.float32), name=f"{prefix}{p.name}") for p in self.parameters]
        )

    def construct(self, gradients: Any) -> bool:
        grads = self.prepared(gradients)
        rates = self.rates()
        step: Any = ops.cast(self.global_step, dt.float32).reshape(())
        for k, (p, g, ax) in enumerate(zip(self.parameters, grads, self.ax)):
            mu: Any = self.mu[k]
            eta: Any = ops.select(step == 1, rates[k], self.eta[k])
            new: Any = p * (1.0 - self.lambd * eta) - g * eta
            ops.assign(p, new)
            ops.assign(ax, ops.select(mu == 1.0, new, ax + (new - ax) * mu))
            ops.assign(self.eta[k], rates[k] / (1.0 + self.lambd * rates[k] * step) ** self.alpha)
            ops.assign(mu, 1.0 / ops.maximum(step - self.t0, 1.0))
        return True
