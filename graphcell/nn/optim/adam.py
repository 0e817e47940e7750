"""Adam and its variant with decoupled weight decay.

D. Kingma, J. Ba, "Adam: a method for stochastic optimization" (ICLR 2015); I. Loshchilov, F. Hutter, "Decoupled weight decay
regularization" (ICLR 2019).
"""

from __future__ import annotations

from typing import Any

from graphcell import dtype as dt
from graphcell import ops
from graphcell.errors import ArgumentTypeError, ArgumentValueError, NotImplementedFeatureError
from graphcell.nn.optim.optimizer import Optimizer
from graphcell.parameter import Parameter
from graphcell.tensor import Tensor


def _check_settings(owner: str, beta1: float, beta2: float, eps: float) -> None:
    for name, value in (("beta1", beta1), ("beta2", beta2)):
        if isinstance(value, bool) or not isinstance(value, float):
            raise ArgumentTypeError(f"For '{owner}', the type of '{name}' must be float, but got {type(value).__name__}.")
        if not 0.0 < value < 1.0:
            raise ArgumentValueError(f"For '{owner}', the '{name}' must be in range (0.0, 1.0), but got {value}.")
    if isinstance(eps, bool) or not isinstance(eps, (int, float)):
        raise ArgumentTypeError(f"For '{owner}', the type of 'eps' must be float, but got {type(eps).__name__}.")
    if eps <= 0:
        raise ArgumentValueError(f"For '{owner}', the 'eps' must be positive, but got {eps}.")


class Adam(Optimizer):
    """m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g²; p -= lr sqrt(1 - beta2**t) / (1 - beta1**t) m / (sqrt(v) + eps).

    Args:
        params: Parameters, or groups, see `Optimizer`.
        learning_rate: default 0.001.
        beta1, beta2, eps: default 0.9, 0.999, 1e-8.
        use_nesterov: p moves along beta1 m + (1 - beta1) g instead of m.
        use_amsgrad: the largest v so far is used.
        weight_decay, loss_scale: see `Optimizer`.
        use_locking: accepted; updates never run at the same time here.
    """

    def __init__(self, params: Any, learning_rate: Any = 1e-3, beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8, use_locking: bool = False,
                 use_nesterov: bool = False, weight_decay: Any = 0.0, loss_scale: float = 1.0, use_amsgrad: bool = False, use_lazy: bool = False,
                 use_offload: bool = False):
        super().__init__(learning_rate, params, weight_decay, loss_scale)
        _check_settings("Adam", beta1, beta2, eps)
        for name, value in (("use_locking", use_locking), ("use_nesterov", use_nesterov), ("use_amsgrad", use_amsgrad)):
            if not isinstance(value, bool):
                raise ArgumentTypeError(f"For 'Adam', the type of '{name}' must be bool, but got {type(value).__name__}.")
        if use_lazy or use_offload:
            raise NotImplementedFeatureError("Adam: use_lazy and use_offload are not there yet")
        self.beta1, self.beta2, self.eps = beta1, beta2, float(eps)
        self.use_nesterov, self.use_amsgrad = use_nesterov, use_amsgrad
        self.beta1_power = Parameter(Tensor(1.0, dt.float32), name="beta1_power", requires_grad=False)
        self.beta2_power = Parameter(Tensor(1.0, dt.float32), name="beta2_power", requires_grad=False)
        self.moment1, self.moment2 = self.slots("moment1"), self.slots("moment2")
        self.vhat = self.slots("vhat") if use_amsgrad else None

    def construct(self, gradients: Any) -> bool:
        grads = self.decay_weight(self.scale_grad(self.checked(gradients)))
        power1, power2 = self.beta1_power * self.beta1, self.beta2_power * self.beta2  # type: ignore[operator]
        ops.assign(self.beta1_power, power1)
        ops.assign(self.beta2_power, power2)
        correction = ops.sqrt(1.0 - power2) / (1.0 - power1)
        rates = self.rates()
        for k, (p, m, v, g) in enumerate(zip(self.parameters, self.moment1, self.moment2, grads)):
            first = m * self.beta1 + g * (1.0 - self.beta1)  # type: ignore[operator]
            second = v * self.beta2 + (g * g) * (1.0 - self.beta2)  # type: ignore[operator]
            ops.assign(m, first)
            ops.assign(v, second)
            if self.vhat is not None:
                second = ops.maximum(self.vhat[k], second)
                ops.assign(self.vhat[k], second)
            along = first * self.beta1 + g * (1.0 - self.beta1) if self.use_nesterov else first
            ops.assign(p, p - rates[k] * correction * along / (ops.sqrt(second) + self.eps))  # type: ignore[operator]
        return True


class AdamWeightDecay(Optimizer):
    """m and v as in Adam without bias correction; p -= lr (m / (sqrt(v) + eps) + weight_decay p).

    Args:
        params: Parameters, or groups, see `Optimizer`; Parameters with 'beta' or 'gamma' in their names do not decay.
        learning_rate, beta1, beta2, eps, weight_decay: default 0.001, 0.9, 0.999, 1e-6, 0.
    """

    def __init__(self, params: Any, learning_rate: Any = 1e-3, beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-6, weight_decay: Any = 0.0):
        super().__init__(learning_rate, params, weight_decay)
        _check_settings("AdamWeightDecay", beta1, beta2, eps)
        self.beta1, self.beta2, self.eps = beta1, beta2, float(eps)
        self.moments1, self.moments2 = self.slots("adam_m"), self.slots("adam_v")

    def construct(self, gradients: Any) -> bool:
        grads = self.checked(gradients)
        for p, m, v, g, rate, decay in zip(self.parameters, self.moments1, self.moments2, grads, self.rates(), self._decays):
            first = m * self.beta1 + g * (1.0 - self.beta1)  # type: ignore[operator]
            second = v * self.beta2 + (g * g) * (1.0 - self.beta2)  # type: ignore[operator]
            ops.assign(m, first)
            ops.assign(v, second)
            update = first / (ops.sqrt(second) + self.eps)
            ops.assign(p, p - rate * (update + p * decay if decay else update))  # type: ignore[operator]
        return True
