"""Adam with decoupled weight decay: I. Loshchilov, F. Hutter, "Decoupled weight decay regularization" (ICLR 2019)."""

from __future__ import annotations

from typing import Any

from graphcell import ops
from graphcell.experimental.optim.adam import adam_settings, keep_moments
from graphcell.experimental.optim.optimizer import Optimizer
from graphcell.nn.optim.updates import moments


class AdamW(Optimizer):
    """p -= lr weight_decay p; m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g²;
    p -= lr / (1 - beta1**t) m / (sqrt(v / (1 - beta2**t)) + eps).

    Args:
        params: Parameters, or groups, see `Optimizer`.
        lr: a number or a scalar Tensor, at least 0. Default 0.001.
        betas, eps, weight_decay: default (0.9, 0.999), 1e-8, 0.01.
        amsgrad: the largest v so far is used. Default False.
        maximize: default False; True moves along the gradient.

    State by name: exp_avg.<name>, the m; exp_avg_sq.<name>, the v; max_exp_avg_sq.<name>, for `amsgrad`; state_step, the number of steps.

    Raises:
        TypeError, ValueError: settings of other kinds or out of range.
    """

    def __init__(
        self, params: Any, lr: Any = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 1e-2,
        amsgrad: bool = False, *, maximize: bool = False,
    ):  # fmt: skip
        super().__init__(params, adam_settings("AdamW", lr, betas, eps, weight_decay, amsgrad, maximize))
        keep_moments(self)

    def construct(self, gradients: Any) -> bool:
        step = self.count(self.state_step)
        for group, members in self.grouped(gradients):
            corrections = Corrections(group, step)
            for k, p, g in members:
                largest = self.max_exp_avg_sq[k] if group["amsgrad"] else None
                corrections.move(p, self.exp_avg[k], self.exp_avg_sq[k], largest, g, group["weight_decay"])
        return True


class Corrections:
    """A group's learning rate and factors of one step, the `step`-th."""

    def __init__(self, group: Any, step: Any):
        (self.beta1, self.beta2), self.eps = group["betas"], group["eps"]
        self.lr = group["lr"]
        self.rate = self.lr / (1.0 - self.beta1**step)
        self.root = 1.0 / ops.sqrt(1.0 - self.beta2**step)

    def move(self, p: Any, m: Any, v: Any, largest: Any, g: Any, weight_decay: float) -> None:
        """Adam's step as in the paper's algorithm 1, after `p` has been made smaller by `weight_decay`."""
        first, second = moments(m, v, largest, g, self.beta1, self.beta2)
        root, rate = ops.cast(self.root, p.dtype), ops.cast(self.rate, p.dtype)
        left = p * ops.cast(1.0 - self.lr * weight_decay, p.dtype) if weight_decay else p
        ops.assign(p, left - rate * first / (ops.sqrt(second) * root + self.eps))
