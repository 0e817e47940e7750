"""The receiver operating characteristic: true against false positives at every threshold."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphcell.errors import ArgumentValueError
from graphcell.nn.checks import check_int
from graphcell.train.metrics.metric import Array, Metric, check_shapes, check_updated, rearrange_inputs

Curve = tuple[Array, Array, Array]


class ROC(Metric):
    """The curve of true positive rate against false positive rate, of the last batch.

    Args:
        class_num: number of classes; None for two.
        pos_label: the label of the positive class; None for 1, and where there are more classes.

    Raises:
        TypeError: an argument is neither None nor an int.
    """

    def __init__(self, class_num: int | None = None, pos_label: int | None = None):
        super().__init__()
        self.class_num = None if class_num is None else check_int("ROC", "class_num", class_num)
        self.pos_label = None if pos_label is None else check_int("ROC", "pos_label", pos_label)
        self.clear()

    def clear(self) -> None:
        """Forgets what was collected."""
        self.y_pred: Any = 0
        self.y: Any = 0
        self._is_update = False

    @rearrange_inputs
    def update(self, *inputs: Any) -> None:
        """Takes scores (N) of the positive class and labels (N), or scores (N, C) and labels (N).

        Raises:
            ValueError: shapes, class_num and pos_label do not fit each other.
        """
        scores, labels = self._pair(inputs)
        if scores.ndim == labels.ndim:
            self._check(self.class_num in (None, 1), "when predicted value and true value have the same shape, the 'class_num' must be 1", self.class_num)
            self.class_num, self.pos_label = 1, 1 if self.pos_label is None else self.pos_label
            scores = scores.reshape(-1)
        elif scores.ndim == labels.ndim + 1:
            self._check(self.pos_label is None, "with a dimension of classes, the 'pos_label' must be None", self.pos_label)
            self._check(self.class_num == scores.shape[1], f"the 'class_num' must equal the {scores.shape[1]} classes of the predicted value", self.class_num)
            scores = np.moveaxis(scores, 1, -1).reshape(-1, scores.shape[1])
        else:
            self._check(False, "predicted value must have the dimensions of true value, or one more", f"shapes {scores.shape} and {labels.shape}")
        check_shapes(self, 0 < len(scores) == labels.size, "there should be as many scores as labels, and any", scores, labels)
        self.y_pred, self.y = scores, labels.reshape(-1)
        self._is_update = True

    @staticmethod
    def _check(holds: bool, rule: str, got: Any) -> None:
        if not holds:
            raise ArgumentValueError(f"For 'ROC', {rule}, but got {got}.")

    def eval(self) -> tuple[Any, Any, Any]:
        """(false positive rates, true positive rates, thresholds): arrays, or with several classes lists of one array for each.

        Raises:
            RuntimeError: before `update`. ValueError: there is no positive, or no negative sample.
        """
        check_updated(self._is_update)
        if self.class_num == 1:
            return _curve(self.y_pred, self.y == self.pos_label)
        curves = [_curve(self.y_pred[:, c], self.y == c) for c in range(self.y_pred.shape[1])]
        return [c[0] for c in curves], [c[1] for c in curves], [c[2] for c in curves]


def _curve(scores: Array, positive: Array) -> Curve:
    """One point for each distinct score from the highest down, after (0, 0) at a threshold above all."""
    order = np.argsort(-scores)
    scores, positive = scores[order], positive[order]
    last_of_each = np.append(np.flatnonzero(np.diff(scores)), scores.size - 1)
    true = np.append(0, np.cumsum(positive)[last_of_each])
    false = np.append(0, 1 + last_of_each) - true
    for count, kind in ((false[-1], "negative"), (true[-1], "positive")):
        if count == 0:
            raise ArgumentValueError(f"For 'ROC.eval', there is no {kind} samples in true value, false positive value is meaningless.")
    thresholds = scores[last_of_each]
    return false / false[-1], true / true[-1], np.append(thresholds[:1] + 1, thresholds)
