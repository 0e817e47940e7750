"""Top-k accuracy: the right class is among the k largest predictions."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphcell.errors import ArgumentTypeError, ArgumentValueError
from graphcell.train.metrics.metric import Metric, check_samples, check_shapes, class_indices, rearrange_inputs


class TopKCategoricalAccuracy(Metric):
    """Share of samples whose class is among the k largest predictions.

    Raises:
        TypeError: k is no int. ValueError: k is below 1.
    """

    def __init__(self, k: int):
        super().__init__()
        if not isinstance(k, int):
            raise ArgumentTypeError(f"For 'TopKCategoricalAccuracy', the type of the argument 'k' should be int, but got 'k' type: {type(k)}.")
        if k < 1:
            raise ArgumentValueError(f"For 'TopKCategoricalAccuracy', the argument 'k' must be at least 1, but got 'k' value: {k}.")
        self.k = k
        self.clear()

    def clear(self) -> None:
        """Forgets what was collected."""
        self._correct_num = self._samples_num = 0

    @rearrange_inputs
    def update(self, *inputs: Any) -> None:
        """Collects predictions (N, C) and labels (N) or one-hot (N, C).

        Raises:
            ValueError: other shapes, or fewer classes than k.
        """
        y_pred, y = self._pair(inputs)
        y = class_indices(y_pred, y)
        check_shapes(self, y_pred.ndim == 2 and y.size == len(y_pred), "they should have the shapes (N, C) and (N) or (N, C)", y_pred, y)
        if y_pred.shape[1] < self.k:
            raise ArgumentValueError(f"For '{type(self).__name__}.update', there are {y_pred.shape[1]} classes, but 'k' is {self.k}.")
        largest = np.argsort(-y_pred, axis=1)[:, : self.k]
        self._correct_num += int((largest == y.reshape(-1, 1)).sum())
        self._samples_num += y.size

    def eval(self) -> float:
        """The share; raises RuntimeError before any sample."""
        check_samples(self, self._samples_num)
        return self._correct_num / self._samples_num


class Top1CategoricalAccuracy(TopKCategoricalAccuracy):
    """`TopKCategoricalAccuracy` with k 1."""

    def __init__(self) -> None:
        super().__init__(1)


class Top5CategoricalAccuracy(TopKCategoricalAccuracy):
    """`TopKCategoricalAccuracy` with k 5."""

    def __init__(self) -> None:
        super().__init__(5)
