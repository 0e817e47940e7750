"""Recall: how many of the positives are found."""

from __future__ import annotations

from graphcell.train.metrics.counts import PositiveRate
from graphcell.train.metrics.metric import Array


class Recall(PositiveRate):
    """True positives / actual positives, for each class.

    Args:
        eval_type: 'classification' or 'multilabel'.
    """

    @staticmethod
    def _positives_of(y_pred: Array, y: Array) -> Array:
        return y
