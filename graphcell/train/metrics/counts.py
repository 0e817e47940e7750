"""What precision and recall share: right positives in relation to a count of positives, class by class."""

from __future__ import annotations

import sys
from abc import abstractmethod
from typing import Any

import numpy as np

from graphcell.nn.checks import check_bool
from graphcell.train.metrics.metric import Array, EvaluationBase, check_samples, onehot_pair, rearrange_inputs


class PositiveRate(EvaluationBase):
    """Right positives divided by the positives that `_positives_of` picks; with 'multilabel', one value a sample.

    Args:
        eval_type: 'classification' or 'multilabel'.
    """

    def __init__(self, eval_type: str = "classification"):
        super().__init__(eval_type)
        self.eps = sys.float_info.min
        self.clear()

    def clear(self) -> None:
        """Forgets what was collected."""
        self._class_num = 0
        self._right: Array = np.zeros(0)
        self._positives: Array = np.zeros(0)

    @staticmethod
    @abstractmethod
    def _positives_of(y_pred: Array, y: Array) -> Array:
        """Those of the two, as 0 and 1, that the right ones are divided by."""

    @rearrange_inputs
    def update(self, *inputs: Any) -> None:
        """Collects predictions (N, C, …) and labels (N, …), or one-hot, or multilabel (N, C, …).

        Raises:
            ValueError: shapes, numbers of classes or values do not fit.
        """
        y_pred, y = self._predictions_and_labels(inputs)
        if self._type == "classification":
            y_pred, y = onehot_pair(self, y_pred, y)
        else:
            y_pred, y = (x.swapaxes(1, 0).reshape(self._class_num, -1) for x in (y_pred, y))
        right, positives = (y * y_pred).sum(axis=0), self._positives_of(y_pred, y).sum(axis=0)
        if self._type == "multilabel":
            self._right, self._positives = np.concatenate((self._right, right)), np.concatenate((self._positives, positives))
        elif self._right.size:
            self._right, self._positives = self._right + right, self._positives + positives
        else:
            self._right, self._positives = right, positives

    def eval(self, average: bool = False) -> Any:
        """One value for each class (each sample with 'multilabel'), or with `average` their mean.

        Raises:
            RuntimeError: before any sample. TypeError: `average` is no bool.
        """
        check_samples(self, self._class_num)
        check_bool(type(self).__name__, "average", average)
        result = self._right / (self._positives + self.eps)
        return float(result.mean()) if average else result
