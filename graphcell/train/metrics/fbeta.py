"""F-beta: the weighted harmonic mean of precision and recall."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from graphcell.errors import ArgumentValueError
from graphcell.nn.checks import check_bool
from graphcell.train.metrics.metric import Array, Metric, check_class_shapes, check_samples, class_indices, onehot_pair, rearrange_inputs, same_classes


class Fbeta(Metric):
    """(1 + beta²) · precision · recall / (beta² · precision + recall), for each class.

    Args:
        beta: the weight of recall, above 0.

    Raises:
        ValueError: beta is not above 0.
    """

    def __init__(self, beta: float):
        super().__init__()
        if not beta > 0:
            raise ArgumentValueError(f"For 'Fbeta', the argument 'beta' must be greater than 0, but got {beta}.")
        self.beta = beta
        self.eps = sys.float_info.min
        self.clear()

    def clear(self) -> None:
        """Forgets what was collected."""
        self._class_num = 0
        self._counts: Array = np.zeros((3, 1))  # right, actual and predicted positives, for each class

    @rearrange_inputs
    def update(self, *inputs: Any) -> None:
        """Collects predictions (N, C, …) and labels (N, …) or one-hot.

        Raises:
            ValueError: shapes or numbers of classes do not fit.
        """
        y_pred, y = self._pair(inputs)
        y = class_indices(y_pred, y)
        check_class_shapes(self, y_pred, y)
        self._class_num = same_classes(self, self._class_num, y_pred)
        y_pred, y = onehot_pair(self, y_pred, y)
        self._counts = self._counts + np.stack([(y * y_pred).sum(axis=0), y.sum(axis=0), y_pred.sum(axis=0)])

    def eval(self, average: bool = False) -> Any:
        """One value for each class, or with `average` their mean.

        Raises:
            RuntimeError: before any sample. TypeError: `average` is no bool.
        """
        check_bool(type(self).__name__, "average", average)
        check_samples(self, self._class_num)
        right, actual, predicted = self._counts
        result = (1 + self.beta**2) * right / (self.beta**2 * actual + predicted + self.eps)
        return float(result.mean()) if average else result


class F1(Fbeta):
    """`Fbeta` with beta 1."""

    def __init__(self) -> None:
        super().__init__(1.0)
