"""The Hausdorff distance: how far one surface goes from another at most."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphcell.errors import ArgumentValueError
from graphcell.nn.checks import check_bool, check_choice, check_float
from graphcell.train.metrics.metric import Array, Metric, check_updated, rearrange_inputs
from graphcell.train.metrics.surface import DISTANCES, distances, regions, surface


class HausdorffDistance(Metric):
    """The largest distance from a place of the predicted surface to the true one, or the other way, of the last batch.

    Args:
        distance_metric: 'euclidean', 'chessboard' or 'taxicab'.
        percentile: this percentile of the distances instead of the largest, 0.0 to 100.0.
        directed: only from the predicted surface to the true one.
        crop: look at the box around both regions only, without its dimensions of extent 1.

    Raises:
        ValueError: another distance. TypeError: an argument of the wrong kind.
    """

    def __init__(
        self, distance_metric: str = "euclidean", percentile: float | None = None, directed: bool | None = False, crop: bool | None = True
    ):
        super().__init__()
        owner = "HausdorffDistance"
        self.distance_metric = check_choice(owner, "distance_metric", distance_metric, DISTANCES)
        self.percentile = None if percentile is None else check_float(owner, "percentile", percentile)
        self.directed = None if directed is None else check_bool(owner, "directed", directed)
        self.crop = None if crop is None else check_bool(owner, "crop", crop)
        self.clear()

    def clear(self) -> None:
        """Forgets what was collected."""
        self.y_pred_edges: Any = 0
        self.y_edges: Any = 0
        self._is_update = False

    @rearrange_inputs
    def update(self, *inputs: Any) -> None:
        """Takes predictions and true values of one shape, and the label of the region.

        Raises:
            ValueError, TypeError: see `surface.regions`.
        """
        y_pred, y = regions(self, inputs)
        if self.crop:
            places = np.nonzero(y_pred | y)
            box = tuple(slice(p.min(), p.max() + 1) for p in places)
            y_pred, y = np.squeeze(y_pred[box]), np.squeeze(y[box])
        self.y_pred_edges, self.y_edges = surface(y_pred), surface(y)
        self._is_update = True

    def eval(self) -> float:
        """The distance, infinite where a surface is empty.

        Raises:
            RuntimeError: before `update`. ValueError: the percentile is outside.
        """
        check_updated(self._is_update)
        there = self._direction(self.y_pred_edges, self.y_edges)
        return there if self.directed else max(there, self._direction(self.y_edges, self.y_pred_edges))

    def _direction(self, of: Array, to: Array) -> float:
        found = distances(of, to, self.distance_metric)
        if not found.size:
            return np.inf
        if not self.percentile:
            return found.max().item()  # type: ignore[no-any-return]
        if not 0 <= self.percentile <= 100:
            raise ArgumentValueError(f"For 'HausdorffDistance', the value of the argument 'percentile' must be [0, 100], but got {self.percentile}.")
        return float(np.percentile(found, self.percentile))
