"""What Adam and its variants have in common."""

from __future__ import annotations

from typing import Any

from graphcell import ops
from graphcell.nn.optim.checks import check_fraction, check_positive
from graphcell.nn.optim.optimizer import Optimizer


class AdamBase(Optimizer):
    """beta1, beta2, eps, and the powers of the first two."""

    def _set_betas(self, beta1: float, beta2: float, eps: float) -> None:
        owner = type(self).__name__
        self.beta1, self.beta2 = check_fraction(owner, "beta1", beta1), check_fraction(owner, "beta2", beta2)
        self.eps = check_positive(owner, "eps", eps)

    def _raise_power(self, power: Any, beta: float) -> Any:
        """Multiplies the Parameter `power` by `beta`; the new value as a scalar."""
        raised = power * beta
        ops.assign(power, raised)
        return raised.reshape(())
