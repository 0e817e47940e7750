"""ASGD: B. Polyak, A. Juditsky, "Acceleration of stochastic approximation by averaging" (1992)."""

from __future__ import annotations

from typing import Any

from graphcell import dtype as dt
from graphcell import ops
from graphcell.nn.checks import check_float
from graphcell.nn.optim.optimizer import Optimizer
from graphcell.nn.optim.updates import asgd
from graphcell.parameter import Parameter, ParameterTuple
from graphcell.tensor import Tensor


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
            now: Any = ops.select(step == 1, rates[k], self.eta[k])
            asgd(p, ax, now, self.eta[k], self.mu[k], g, rates[k], step, self.lambd, self.alpha, self.t0)
        return True
