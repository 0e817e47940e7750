"""The Hausdorff distance: how far one surface goes from another at most."""

from __future__ import annotations

import numpy as np

from graphcell.errors import ArgumentValueError
from graphcell.nn.checks import check_bool, check_float
from graphcell.train.metrics.metric import Array
from graphcell.train.metrics.surface import SurfaceMetric


class HausdorffDistance(SurfaceMetric):
    """The largest distance from a place of the predicted surface to the true one, or the other way, of the last batch.

    Args:
        distance_metric: 'euclidean', 'chessboard' or 'taxicab'.
        percentile: this percentile of the distances instead of the largest, 0.0 to 100.0.
        directed: only from the predicted surface to the true one.
        crop: look at the box around both regions only, without its dimensions of extent 1.

    Raises:
        ValueError: another distance; in `eval`, a percentile outside. TypeError: an argument of the wrong kind.
    """

    def __init__(
        self, distance_metric: str = "euclidean", percentile: float | None = None, directed: bool | None = False, crop: bool | None = True
    ):
        owner = "HausdorffDistance"
        self.percentile = None if percentile is None else check_float(owner, "percentile", percentile)
        self.directed = None if directed is None else check_bool(owner, "directed", directed)
        self.crop = None if crop is None else check_bool(owner, "crop", crop)
        super().__init__(distance_metric, not directed)

    def _seen(self, y_pred: Array, y: Array) -> tuple[Array, Array]:
        if not self.crop:
            return y_pred, y
        box = tuple(slice(places.min(), places.max() + 1) for places in np.nonzero(y_pred | y))
        return np.squeeze(y_pred[box]), np.squeeze(y[box])

    def _one(self, values: Array) -> float:
        """The largest distance, or the percentile. Raises ValueError: the percentile is outside."""
        if not self.percentile:
            return values.max().item()  # type: ignore[no-any-return]
        if not 0 <= self.percentile <= 100:
            raise ArgumentValueError(f"For 'HausdorffDistance', the value of the argument 'percentile' must be [0, 100], but got {self.percentile}.")
        return float(np.percentile(values, self.percentile))

    def _both(self, there: float, back: float) -> float:
        return max(there, back)
