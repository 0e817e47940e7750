"""Accuracy: the share of samples that are predicted right."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphcell.train.metrics.metric import EvaluationBase, check_samples, rearrange_inputs


class Accuracy(EvaluationBase):
    """Share of right predictions: the largest of C classes, or with 'multilabel' all of a sample's labels.

    Args:
        eval_type: 'classification' or 'multilabel'.
    """

    def __init__(self, eval_type: str = "classification"):
        super().__init__(eval_type)
        self.clear()

    def clear(self) -> None:
        """Forgets what was collected."""
        self._correct_num = self._total_num = self._class_num = 0

    @rearrange_inputs
    def update(self, *inputs: Any) -> None:
        """Collects predictions (N, C, …) and labels (N, …), or one-hot, or multilabel (N, C, …).

        Raises:
            ValueError: shapes, numbers of classes or values do not fit.
        """
        y_pred, y = self._predictions_and_labels(inputs)
        if self._type == "classification":
            right = y_pred.argmax(axis=1) == y
        else:
            right = (np.moveaxis(y_pred, 1, -1) == np.moveaxis(y, 1, -1)).all(axis=-1)
        self._correct_num += int(right.sum())
        self._total_num += right.size

    def eval(self) -> float:
        """The share; raises RuntimeError before any sample."""
        check_samples(self, self._total_num)
        return self._correct_num / self._total_num
