"""Adam: D. Kingma, J. Ba, "Adam: a method for stochastic optimization" (ICLR 2015); and with decoupled weight decay: I. Loshchilov, F. Hutter (2019)."""

from __future__ import annotations

from typing import Any

from graphcell import dtype as dt
from graphcell import ops
from graphcell.errors import ArgumentValueError, MissingKeyError
from graphcell.nn.optim.adam_base import AdamBase
from graphcell.nn.optim.checks import check_flag
from graphcell.nn.optim.updates import average, descend, moments
from graphcell.parameter import Parameter
from graphcell.tensor import Tensor


class Adam(AdamBase):
    """m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g²; p -= lr sqrt(1 - beta2**t) / (1 - beta1**t) m / (sqrt(v) + eps).

    Args:
        params: Parameters, or groups, see `Optimizer`.
        learning_rate: default 0.001.
        beta1, beta2, eps: default 0.9, 0.999, 1e-8.
        use_nesterov: p moves along beta1 m + (1 - beta1) g instead of m.
        use_amsgrad: the largest v so far is used.
        weight_decay, loss_scale: see `Optimizer`.
        use_locking: accepted; updates never run at the same time here.
        use_lazy, use_offload: keywords, accepted, one of them and without use_amsgrad; gradients are never sparse, and there is one device.

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
        lazy, offload = kwargs.get("use_lazy", False), kwargs.get("use_offload", False)
        if lazy and offload:
            raise ArgumentValueError("For 'Adam', 'use_lazy' and 'use_offload' can not both be True.")
        if use_amsgrad and (lazy or offload):
            raise ArgumentValueError("For lazy Adam and Adam with offload, there is no parameter named 'use_amsgrad'. But got 'use_amsgrad'=True.")
        self.use_nesterov, self.use_amsgrad = use_nesterov, use_amsgrad
        self.beta1_power, self.beta2_power = (Parameter(Tensor(1.0, dt.float32), name=name) for name in ("beta1_power", "beta2_power"))
        self.moment1, self.moment2 = self.slots("moment1"), self.slots("moment2")
        self.vhat = self.slots("vhat") if use_amsgrad else None

    def construct(self, gradients: Any) -> tuple[bool, ...]:
        grads = self.prepared(gradients)
        power1 = self._raise_power(self.beta1_power, self.beta1)
        power2 = self._raise_power(self.beta2_power, self.beta2)
        correction = ops.sqrt(1.0 - power2) / (1.0 - power1)
        rates = self.rates()
        for k, (p, m, v, g) in enumerate(zip(self.parameters, self.moment1, self.moment2, grads)):
            first, second = moments(m, v, None if self.vhat is None else self.vhat[k], g, self.beta1, self.beta2)
            along = first * self.beta1 + g * (1.0 - self.beta1) if self.use_nesterov else first
            descend(p, rates[k] * correction, along / (ops.sqrt(second) + self.eps))
        return self._updated


class AdamWeightDecay(AdamBase):
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

    def construct(self, gradients: Any) -> tuple[bool, ...]:
        grads = self.gradients_centralization(self.checked(gradients))
        decays = self.decays()
        rates = self.rates()
        for k, (p, m, v, g) in enumerate(zip(self.parameters, self.moments1, self.moments2, grads)):
            wide, gradient = ops.cast(p, dt.float32), ops.cast(g, dt.float32)  # half precision would lose eps
            first = average(m, gradient, self.beta1)
            second = average(v, gradient * gradient, self.beta2)
            update: Any = first / (ops.sqrt(second) + self.eps)
            if isinstance(decays[k], Tensor) or decays[k]:
                update = update + wide * decays[k]
            ops.assign(p, ops.cast(wide - rates[k] * update, p.dtype))
        return self._updated


class AdamOffload(Adam):
    """`Adam`, whose state MindSpore keeps on the host: here everything is there, and the numbers are Adam's.

    Args:
        params, learning_rate, beta1, beta2, eps, use_locking, use_nesterov, weight_decay, loss_scale: as for `Adam`.
    """

    def __init__(
        self, params: Any, learning_rate: Any = 1e-3, beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8,
        use_locking: bool = False, use_nesterov: bool = False, weight_decay: Any = 0.0, loss_scale: float = 1.0,
    ):  # fmt: skip
        super().__init__(params, learning_rate, beta1, beta2, eps, use_locking, use_nesterov, weight_decay, loss_scale)
        self.beta1_power, self.beta2_power = (Parameter(Tensor([1.0], dt.float32), name=name) for name in ("beta1_power", "beta2_power"))
