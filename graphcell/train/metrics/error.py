"""Mean absolute and mean squared error of samples."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from graphcell.train.metrics.metric import Array, Metric, check_samples, check_shapes, rearrange_inputs


class _MeanError(Metric):
    """The sum of the errors of all elements divided by the number of samples (axis 0)."""

    def __init__(self) -> None:
        super().__init__()
        self.clear()

    def clear(self) -> None:
        """Forgets what was collected."""
        self._error_sum, self._samples_num = 0.0, 0

    @staticmethod
    @abstractmethod
    def _errors(difference: Array) -> Array:
        """The errors of elements."""

    @rearrange_inputs
    def update(self, *inputs: Any) -> None:
        """Collects predictions and true values of one size, samples along axis 0. Raises ValueError: the sizes differ."""
        y_pred, y = self._pair(inputs)
        check_shapes(self, y.ndim > 0 and y.size == y_pred.size, "both should have the same number of elements, samples along axis 0", y_pred, y)
        self._error_sum += float(self._errors(y.reshape(y_pred.shape) - y_pred).sum())
        self._samples_num += y.shape[0]

    def eval(self) -> float:
        """The mean; raises RuntimeError before any sample."""
        check_samples(self, self._samples_num)
        return self._error_sum / self._samples_num


class MAE(_MeanError):
    """Mean absolute error: the sum of |y - y_pred| over all elements, divided by the number of samples."""

    @staticmethod
    def _errors(difference: Array) -> Array:
        return np.abs(difference)


class MSE(_MeanError):
    """Mean squared error: the sum of (y - y_pred)² over all elements, divided by the number of samples."""

    @staticmethod
    def _errors(difference: Array) -> Array:
        return np.square(difference)
