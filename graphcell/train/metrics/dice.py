"""The Dice coefficient of two masks."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphcell.errors import ArgumentValueError
from graphcell.nn.checks import is_number
from graphcell.train.metrics.metric import Metric, check_samples, check_shapes, rearrange_inputs


class Dice(Metric):
    """2 · (y · y_pred) / (|y|² + |y_pred|² + smooth) of each batch, summed and divided by the number of samples.

    Args:
        smooth: added to the denominator, above 0. Default 1e-5.

    Raises:
        ValueError: smooth is not a number above 0.
    """

    def __init__(self, smooth: float = 1e-5):
        super().__init__()
        if not is_number(smooth) or not smooth > 0:
            raise ArgumentValueError(f"For 'Dice', the 'smooth' must be float and must > 0, but got '{smooth}' with type '{type(smooth).__name__}'.")
        self.smooth = smooth
        self.clear()

    def clear(self) -> None:
        """Forgets what was collected."""
        self._dice_coeff_sum, self._samples_num = 0.0, 0

    @rearrange_inputs
    def update(self, *inputs: Any) -> None:
        """Collects predictions and true values of one shape, samples along axis 0.

        Raises:
            ValueError: the shapes differ.
        """
        y_pred, y = self._pair(inputs)
        check_shapes(self, y_pred.shape == y.shape, "both should have the same shape", y_pred, y)
        self._samples_num += y.shape[0]
        both = float(np.vdot(y_pred, y))
        self._dice_coeff_sum += 2 * both / float(np.vdot(y_pred, y_pred) + np.vdot(y, y) + self.smooth)

    def eval(self) -> float:
        """The coefficient; raises RuntimeError before any sample."""
        check_samples(self, self._samples_num)
        return self._dice_coeff_sum / self._samples_num
