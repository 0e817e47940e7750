"""What Adam and its variants have in common."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphcell import ops
from graphcell.errors import ArgumentValueError
from graphcell.nn.optim.checks import check_fraction, check_positive
from graphcell.nn.optim.optimizer import Optimizer


class AdamBase(Optimizer):
    """beta1, beta2, eps, and the powers of the first two. These are float32, and so the betas count as float32: else 1 - beta and 1 - beta**t, which
    the first steps divide by one another, were not alike."""

    def _set_betas(self, beta1: float, beta2: float, eps: float) -> None:
        owner = type(self).__name__
        self.beta1, self.beta2 = (self._single(owner, *given) for given in (("beta1", beta1), ("beta2", beta2)))
        self.eps = check_positive(owner, "eps", eps)

    @staticmethod
    def _single(owner: str, name: str, value: Any) -> float:
        """A fraction as a float32."""
        single = float(np.float32(check_fraction(owner, name, value)))
        if single in (0.0, 1.0):
            raise ArgumentValueError(f"For '{owner}', the '{name}' must be in range of (0.0, 1.0) as a float32, but got {value}, which is {single}.")
        return single

    def _raise_power(self, power: Any, beta: float) -> Any:
        """Multiplies the Parameter `power` by `beta`; the new value as a scalar."""
        raised = power * beta
        ops.assign(power, raised)
        return raised.reshape(())
