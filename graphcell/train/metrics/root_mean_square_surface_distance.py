"""The mean squared distance between two surfaces."""

from __future__ import annotations

import math

from graphcell.train.metrics.metric import Array
from graphcell.train.metrics.surface import SurfaceDistance


class RootMeanSquareDistance(SurfaceDistance):
    """The mean of the squared distances from the predicted surface to the true one; with `symmetric`, the root of the mean of both directions.
    (MindSpore takes the root in that case alone.)

    Args:
        symmetric: take both directions.
        distance_metric: 'euclidean', 'chessboard' or 'taxicab'.
    """

    def _one(self, values: Array) -> float:
        return float((values**2).mean())

    def _both(self, there: float, back: float) -> float:
        return math.sqrt((there + back) / 2)
