"""Adam and its variants.

D. Kingma, J. Ba, "Adam: a method for stochastic optimization" (ICLR 2015), with AdaMax in section 7.1; I. Loshchilov, F. Hutter,
"Decoupled weight decay regularization" (ICLR 2019); Y. You et al., "Large batch optimization for deep learning: training BERT in 76
minutes" (ICLR 2020), which is Lamb.
"""

from __future__ import annotations

from typing import Any

from graphcell import dtype as dt
from graphcell import ops
from graphcell.errors import MissingKeyError
from graphcell.nn.optim.checks import check_flag, check_fraction, check_positive
from graphcell.nn.optim.optimizer import Optimizer
from graphcell.parameter import Parameter
from graphcell.tensor import Tensor


class _Adam(Optimizer):
    """What they have in common: beta1, beta2, eps."""

    def _set_betas(self, beta1: float, beta2: float, eps: float) -> None:
        owner = type(self).__name__
        self.beta1, self.beta2 = check_fraction(owner, "beta1", beta1), check_fraction(owner, "beta2", beta2)
        self.eps = check_positive(owner, "eps", eps)

    def _power(self, name: str) -> Parameter:
        return Parameter(Tensor(1.0, dt.float32), name=name)

    def _raise_power(self, power: Any, beta: float) -> Any:
        raised = power * beta
        ops.assign(power, raised)
        return raised

    def _average(self, slot: Any, value: Any, beta: float) -> Any:
        """Moves the average in `slot` towards `value`."""
        new = slot * beta + value * (1.0 - beta)
        ops.assign(slot, new)
        return new


class Adam(_Adam):
    """m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g²; p -= lr sqrt(1 - beta2**t) / (1 - beta1**t) m / (sqrt(v) + eps).

    Args:
        params: Parameters, or groups, see `Optimizer`.
        learning_rate: default 0.001.
        beta1, beta2, eps: default 0.9, 0.999, 1e-8.
        use_nesterov: p moves along beta1 m + (1 - beta1) g instead of m.
        use_amsgrad: the largest v so far is used.
        weight_decay, loss_scale: see `Optimizer`.
        use_locking: accepted; updates never run at the same time here.
        use_lazy, use_offload: keywords, accepted; gradients are never sparse, and there is one device.

    State by name: beta1_power, beta2_power; moment1.<name>, the m; moment2.<name>, the v; vhat.<name> with `use_amsgrad`.
    """

    def __init__(
        self, params: Any, learning_rate: Any = 1e-3, beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8,
        use_locking: bool = False, use_nesterov: bool = False, weight_decay: Any = 0.0, loss_scale: float = 1.0,
        use_amsgrad: bool = False, **kwargs: Any,
    ):  # fmt: skip
        super().__init__(learning_rate, params, weight_decay, loss_scale)
        if set(kwargs) - {"use_lazy", "use_offload"}:
            raise MissingKeyError(
                "For 'Adam', invalid keys are passed as kwargs, supported keys are 'use_lazy' and'use_offload', "
                f"but got {kwargs.keys()}."
            )
        self._set_betas(beta1, beta2, eps)
        flags = {"use_locking": use_locking, "use_nesterov": use_nesterov, "use_amsgrad": use_amsgrad, **kwargs}
        for name, value in flags.items():
            check_flag("Adam", name, value)
        self.use_nesterov, self.use_amsgrad = use_nesterov, use_amsgrad
        self.beta1_power, self.beta2_power = self._power("beta1_power"), self._power("beta2_power")
        self.moment1, self.moment2 = self.slots("moment1"), self.slots("moment2")
        self.vhat = self.slots("vhat") if use_amsgrad else None

    def construct(self, gradients: Any) -> bool:
        grads = self.prepared(gradients)
        power1 = self._raise_power(self.beta1_power, self.beta1)
        power2 = self._raise_power(self.beta2_power, self.beta2)
        correction = ops.sqrt(1.0 - power2) / (1.0 - power1)
        rates = self.rates()
        for k, (p, m, v, g) in enumerate(zip(self.parameters, self.moment1, self.moment2, grads)):
            first = self._average(m, g, self.beta1)
            second = self._average(v, g * g, self.beta2)
            if self.vhat is not None:
                second = ops.maximum(self.vhat[k], second)
                ops.assign(self.vhat[k], second)
            along = first * self.beta1 + g * (1.0 - self.beta1) if self.use_nesterov else first
            rate = ops.cast(rates[k] * correction, p.dtype)
            ops.assign(p, p - rate * along / (ops.sqrt(second) + self.eps))
        return True


class AdamWeightDecay(_Adam):
    """m and v as in Adam without bias correction; p -= lr (m / (sqrt(v) + eps) + weight_decay p).

    Args:
        params: Parameters, or groups, see `Optimizer`.
        learning_rate, beta1, beta2, eps, weight_decay: default 0.001, 0.9, 0.999, 1e-6, 0.

    State by name: adam_m.<name>, adam_v.<name>.
    """

    def __init__(
        self, params: Any, learning_rate: Any = 1e-3, beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-6,
        weight_decay: Any = 0.0,
    ):  # fmt: skip
        super().__init__(learning_rate, params, weight_decay)
        self._set_betas(beta1, beta2, eps)
        self.moments1, self.moments2 = self.slots("adam_m"), self.slots("adam_v")

    def construct(self, gradients: Any) -> bool:
        grads = self.gradients_centralization(self.checked(gradients))
        decays = self.decays()
        rates = self.rates()
        for k, (p, m, v, g) in enumerate(zip(self.parameters, self.moments1, self.moments2, grads)):
            first = self._average(m, g, self.beta1)
            second = self._average(v, g * g, self.beta2)
            update: Any = first / (ops.sqrt(second) + self.eps)
            if isinstance(decays[k], Tensor) or decays[k]:
                update = update + p * decays[k]
            ops.assign(p, p - ops.cast(rates[k], p.dtype) * update)
        return True


class Lamb(_Adam):
    """The step of Adam with bias correction plus weight_decay p, made as long as ||p|| times the learning rate.

    The quotient of the lengths is at most 10; where one of them is 0, it is 1.

    Args:
        params: Parameters, or groups, see `Optimizer`.
        learning_rate: required.
        beta1, beta2, eps, weight_decay: default 0.9, 0.999, 1e-6, 0.

    State by name: moment1.<name>, moment2.<name>.
    """

    def __init__(
        self, params: Any, learning_rate: Any, beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-6,
        weight_decay: Any = 0.0,
    ):  # fmt: skip
        super().__init__(learning_rate, params, weight_decay)
        self._set_betas(beta1, beta2, eps)
        self.moments1, self.moments2 = self.slots("moment1"), self.slots("moment2")

    def construct(self, gradients: Any) -> bool:
        grads = self.gradients_centralization(self.checked(gradients))
        decays = self.decays()
        rates = self.rates()
        step: Any = ops.cast(self.global_step, dt.float32).reshape(())
        scale1, scale2 = 1.0 / (1.0 - self.beta1**step), 1.0 / (1.0 - self.beta2**step)
        for k, (p, m, v, g) in enumerate(zip(self.parameters, self.moments1, self.moments2, grads)):
            first = self._average(m, g, self.beta1) * scale1
            second = self._average(v, g * g, self.beta2) * scale2
            update: Any = first / (ops.sqrt(second) + self.eps)
            if isinstance(decays[k], Tensor) or decays[k]:
                update = update + p * decays[k]
            own, new = ops.sqrt((p * p).sum()), ops.sqrt((update * update).sum())
            both = ops.logical_and(own > 0, new > 0)
            trust = ops.select(both, ops.minimum(own / ops.select(both, new, ops.ones_like(new)), 10.0), ops.ones_like(own))
            ops.assign(p, p - ops.cast(rates[k] * trust, p.dtype) * update)
        return True


class AdaMax(_Adam):
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

    def construct(self, gradients: Any) -> bool:
        grads = self.prepared(gradients)
        correction = 1.0 / (1.0 - self._raise_power(self.beta1_power, self.beta1))
        for p, m, v, g, rate in zip(self.parameters, self.moment1, self.moment2, grads, self.rates()):
            first = self._average(m, g, self.beta1)
            second: Any = ops.maximum(v * self.beta2, ops.abs(g))
            ops.assign(v, second)
            ops.assign(p, p - ops.cast(rate * correction, p.dtype) * first / (second + self.eps))
        return True
