"""The mean distance between two surfaces."""

from __future__ import annotations

from graphcell.train.metrics.metric import Array
from graphcell.train.metrics.surface import SurfaceDistance


class MeanSurfaceDistance(SurfaceDistance):
    """The mean of the distances from the predicted surface to the true one; with `symmetric`, of both directions' means.

    Args:
        symmetric: take both directions.
        distance_metric: 'euclidean', 'chessboard' or 'taxicab'.
    """

    def _one(self, values: Array) -> float:
        return float(values.mean())

    def _both(self, there: float, back: float) -> float:
        return (there + back) / 2
