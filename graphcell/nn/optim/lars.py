"""LARS: Y. You, I. Gitman, B. Ginsburg, "Large batch training of convolutional networks" (2017)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphcell import ops
from graphcell.errors import ArgumentTypeError
from graphcell.nn.checks import check_float
from graphcell.nn.optim.checks import check_flag
from graphcell.nn.optim.optimizer import Optimizer
from graphcell.parameter import Parameter
from graphcell.tensor import Tensor


def _is_weight(parameter: Parameter) -> bool:
    return "LayerNorm" not in parameter.name and "bias" not in parameter.name


class LARS(Optimizer):
    """Gives an optimizer gradients as long as their Parameters: t (g + weight_decay p), with t = coefficient |p| / (|g| + weight_decay |p| + epsilon).

    The optimizer's weight decay is taken over, and is the business of LARS alone. Where |p| or |g| is 0, t is 1.

    Args:
        optimizer: an optimizer such as Momentum or SGD.
        epsilon: default 1e-5. coefficient: default 0.001.
        use_clip: t is at most the learning rate, of which it then is a share: min(t / lr, 1). Default False.
        lars_filter: for which Parameters; other gradients stay. Default: those without 'LayerNorm' and 'bias' in their names.

    Raises:
        TypeError: arguments of other kinds.
    """

    def __init__(
        self, optimizer: Any, epsilon: float = 1e-5, coefficient: float = 0.001, use_clip: bool = False,
        lars_filter: Callable[[Parameter], bool] = _is_weight,
    ):  # fmt: skip
        if not isinstance(optimizer, Optimizer):
            raise ArgumentTypeError(f"For 'LARS', the 'optimizer' must be Optimizer, but got {type(optimizer).__name__}.")
        super().__init__(0.0, [Parameter(Tensor(0.0), name="fake_param")])
        self.epsilon, self.coefficient = check_float("LARS", "epsilon", epsilon), check_float("LARS", "coefficient", coefficient)
        self.use_clip = check_flag("LARS", "use_clip", use_clip)
        self.opt = optimizer
        self.parameters = optimizer.parameters
        self.lars_flag = tuple(bool(lars_filter(p)) for p in optimizer.parameters)
        self.learning_rate, self.dynamic_lr, self.is_group_lr = optimizer.learning_rate, optimizer.dynamic_lr, optimizer.is_group_lr
        self._taken_over, optimizer.exec_weight_decay = optimizer.exec_weight_decay, False

    def construct(self, gradients: Any) -> Any:
        grads = self.opt.scale_grad(self.opt.checked(gradients))
        rate = self.opt.get_lr()
        rates = rate if isinstance(rate, tuple) else (rate,) * len(grads)
        decays = self.opt.decays() if self._taken_over else (0.0,) * len(grads)
        scaled = tuple(
            self._fitted(p, g, d, r) * self.opt.loss_scale if flag else g * self.opt.loss_scale
            for p, g, d, r, flag in zip(self.opt.parameters, grads, decays, rates, self.lars_flag)
        )
        return self.opt(scaled)

    def _fitted(self, p: Any, g: Any, decay: Any, rate: Any) -> Any:
        own, length = ops.sqrt((p * p).sum()), ops.sqrt((g * g).sum())
        trust = own * self.coefficient / (length + own * decay + self.epsilon)
        if self.use_clip:
            trust = ops.minimum(trust / ops.cast(rate, trust.dtype), 1.0)
        trust = ops.select(ops.logical_and(own > 0, length > 0), trust, ops.ones_like(trust))
        return (g + p * decay) * trust
