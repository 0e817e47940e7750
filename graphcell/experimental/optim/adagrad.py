"""Adagrad: J. Duchi, E. Hazan, Y. Singer, "Adaptive subgradient methods for online learning and stochastic optimization" (2011)."""

from __future__ import annotations

from typing import Any

from graphcell import dtype as dt
from graphcell import ops
from graphcell.experimental.optim.checks import above_zero, check_rate, not_negative
from graphcell.experimental.optim.optimizer import Optimizer
from graphcell.nn.optim.updates import descend
from graphcell.parameter import Parameter
from graphcell.tensor import Tensor


class Adagrad(Optimizer):
    """a += g²; p -= lr / (1 + (t - 1) lr_decay) g / (sqrt(a) + eps).

    Args:
        params: Parameters, or groups, see `Optimizer`.
        lr: a number or a scalar Tensor, above 0. Default 0.01.
        lr_decay, weight_decay: default 0.
        initial_accumulator_value: what `a` starts with. Default 0.
        eps: default 1e-10.
        maximize: default False; True moves along the gradient.

    State by name: accum.<name>, the a; step_t, the number of steps.

    Raises:
        TypeError, ValueError: settings of other kinds or out of range.
    """

    def __init__(
        self, params: Any, lr: Any = 1e-2, lr_decay: float = 0.0, weight_decay: float = 0.0, initial_accumulator_value: float = 0.0,
        eps: float = 1e-10, *, maximize: bool = False,
    ):  # fmt: skip
        check_rate("Adagrad", lr)
        not_negative("Adagrad", lr_decay=lr_decay, weight_decay=weight_decay, initial_accumulator_value=initial_accumulator_value)
        above_zero("Adagrad", eps=eps)
        super().__init__(
            params,
            {
                "lr": lr, "lr_decay": lr_decay, "eps": eps, "weight_decay": weight_decay, "initial_accumulator_value": initial_accumulator_value,
                "maximize": maximize,
            },
        )  # fmt: skip
        self.keep("accum")
        for group in self.param_groups:
            self._fill(group)
        self.step_t = Parameter(Tensor(0, dt.int32), name="step_t")

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)
        if "accum" in self._kept:
            self._fill(self.param_groups[-1])

    def _fill(self, group: Any) -> None:
        """The state of a group starts with what its settings say."""
        value = group["initial_accumulator_value"]
        for p, accum in zip(self.parameters, self.accum):
            if value and any(p is member for member in group["params"]):
                accum.set_data(ops.full(p.shape, value, dtype=p.dtype))

    def construct(self, gradients: Any) -> bool:
        step = self.count(self.step_t)
        for group, members in self.decayed(gradients):
            rate = group["lr"] / (1.0 + (step - 1.0) * group["lr_decay"])
            for k, p, g in members:
                total = self.accum[k] + g * g
                ops.assign(self.accum[k], total)
                descend(p, rate, g / (ops.sqrt(total) + group["eps"]))
        return True
