"""Precision: how many of the predicted positives are right."""

from __future__ import annotations

from graphcell.train.metrics.counts import PositiveRate
from graphcell.train.metrics.metric import Array


class Precision(PositiveRate):
    """True positives / predicted positives, for each class.

    Args:
        eval_type: 'classification' or 'multilabel'.
    """

    @staticmethod
    def _positives_of(y_pred: Array, y: Array) -> Array:
        return y_pred
