"""Adam: D. Kingma, J. Ba, "Adam: a method for stochastic optimization" (ICLR 2015), algorithm 1."""

from __future__ import annotations

from typing import Any

from graphcell import dtype as dt
from graphcell.experimental.optim.adam import adam_settings
from graphcell.experimental.optim.adamw import Corrections
from graphcell.experimental.optim.optimizer import Optimizer
from graphcell.nn.checks import check_float
from graphcell.nn.optim.checks import check_flag
from graphcell.parameter import Parameter
from graphcell.tensor import Tensor


class AdamBase(Optimizer):
    """What Adam and AdamW have in common: settings, the averages, and the largest ones where a group asks for `amsgrad`."""

    def _set_up(
        self, params: Any, lr: float, betas: tuple[float, float], eps: float, weight_decay: float, amsgrad: bool, maximize: bool
    ) -> None:  # fmt: skip
        owner = type(self).__name__
        check_float(owner, "lr", lr)
        check_flag(owner, "amsgrad", amsgrad)
        check_flag(owner, "maximize", maximize)
        Optimizer.__init__(self, params, adam_settings(owner, lr, betas, eps, weight_decay, amsgrad, maximize))
        self.keep("exp_avg")
        self.keep("exp_avg_sq")
        self._keep_largest()
        self.state_step = Parameter(Tensor([0.0], dt.float32), name="state_step")

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)
        if "exp_avg" in self._kept:
            self._keep_largest()

    def _keep_largest(self) -> None:
        if "max_exp_avg_sq" not in self._kept and any(group["amsgrad"] for group in self.param_groups):
            self.keep("max_exp_avg_sq")

    def construct(self, gradients: Any) -> bool:
        step = self.count(self.state_step)
        for group, members in self._prepared(gradients):
            corrections = Corrections(group, step)
            for k, p, g in members:
                largest = self.max_exp_avg_sq[k] if group["amsgrad"] else None
                corrections.move(p, self.exp_avg[k], self.exp_avg_sq[k], largest, g, self._shrinks(group))
        return True

    def _prepared(self, gradients: Any) -> Any:
        return self.grouped(gradients)

    def _shrinks(self, group: Any) -> float:
        """The weight decay that makes Parameters smaller before the step."""
        return float(group["weight_decay"])


class Adam(AdamBase):
    """m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g²; p -= lr / (1 - beta1**t) m / (sqrt(v / (1 - beta2**t)) + eps).

    Args:
        params: Parameters, or groups, see `experimental.optim.Optimizer`.
        lr: a float of at least 0. Default 0.001.
        betas, eps, weight_decay: default (0.9, 0.999), 1e-8, 0.
        amsgrad: the largest v so far is used (S. Reddi et al., "On the convergence of Adam and beyond", 2018). Default False.
        maximize: default False; True moves along the gradient.

    State by name: exp_avg.<name>, the m; exp_avg_sq.<name>, the v; max_exp_avg_sq.<name> with `amsgrad`; state_step, the number of steps.

    Raises:
        TypeError, ValueError: settings of other kinds or out of range.
    """

    def __init__(
        self, params: Any, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0.0,
        amsgrad: bool = False, *, maximize: bool = False,
    ):  # fmt: skip
        self._set_up(params, lr, betas, eps, weight_decay, amsgrad, maximize)

    def _prepared(self, gradients: Any) -> Any:
        return self.decayed(gradients)

    def _shrinks(self, group: Any) -> float:
        return 0.0
