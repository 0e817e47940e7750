"""Distances between the surfaces of two regions: what the metrics on segmentations share.

A surface is the set of the region's places that have a neighbour, along an axis, outside of it or beyond the border.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from graphcell.errors import ArgumentTypeError, ArgumentValueError
from graphcell.nn.checks import check_bool, check_choice
from graphcell.train.metrics.metric import Array, Metric, check_count, check_shapes, check_updated, rearrange_inputs

DISTANCES = ("euclidean", "chessboard", "taxicab")
_PAIRS_AT_ONCE = 1 << 22


def surface(region: Array) -> Array:
    """Where the surface of a region (a bool array) is."""
    padded = np.pad(region, 1)
    inside = region.copy()
    for axis in range(region.ndim):
        for shift in (0, 2):
            place = [slice(1, -1)] * region.ndim
            place[axis] = slice(shift, shift + region.shape[axis])
            inside &= padded[tuple(place)]
    return np.asarray(region & ~inside)


def distances(of: Array, to: Array, kind: str) -> Array:
    """From each place of one surface to the nearest of the other; infinite if that is empty."""
    here, there = np.argwhere(of), np.argwhere(to)
    if not len(there):
        return np.full(len(here), np.inf)
    rows = max(1, _PAIRS_AT_ONCE // len(there))
    parts = [_nearest(here[k : k + rows], there, kind) for k in range(0, len(here), rows)]
    return np.concatenate(parts) if parts else np.zeros(0)


def _nearest(here: Array, there: Array, kind: str) -> Array:
    apart = np.abs(here[:, None] - there)
    if kind == "euclidean":
        return np.asarray(np.sqrt((apart**2).sum(-1).min(1)))
    return np.asarray((apart.max(-1) if kind == "chessboard" else apart.sum(-1)).min(1))


def regions(metric: Metric, inputs: tuple[Any, ...]) -> tuple[Array, Array]:
    """Where predictions and true values have the label, from the inputs (predicted value, true value, label index) of an `update`.

    Raises:
        ValueError: another number of inputs, different shapes, nothing in them, or a label that neither has. TypeError: the label is no number.
    """
    check_count(metric, inputs, 3, "predicted value, true value, label index")
    owner = f"For '{type(metric).__name__}.update',"
    y_pred, y, label = metric._convert_data(inputs[0]), metric._convert_data(inputs[1]), inputs[2]
    check_shapes(metric, y_pred.size > 0 and y_pred.shape == y.shape, "both should have the same shape, and elements", y_pred, y)
    if not isinstance(label, (int, float)):
        raise ArgumentTypeError(f"{owner} the label index (input[2]) must be int or float, but got {type(label)}.")
    if label not in y_pred and label not in y:
        raise ArgumentValueError(
            f"{owner} the label index (input[2]) must be in predicted value (input[0]) or true value (input[1]), but {label} is not."
        )
    return y_pred == label, y == label


class SurfaceMetric(Metric):
    """What comes of the distances from the predicted surface to the true one, or of both directions, of the last batch."""

    def __init__(self, distance_metric: str, symmetric: bool):
        super().__init__()
        self.distance_metric = check_choice(type(self).__name__, "distance_metric", distance_metric, DISTANCES)
        self.symmetric = symmetric
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
            ValueError, TypeError: see `regions`.
        """
        self.y_pred_edges, self.y_edges = (surface(region) for region in self._seen(*regions(self, inputs)))
        self._is_update = True

    def _seen(self, y_pred: Array, y: Array) -> tuple[Array, Array]:
        """The part of the regions that is looked at."""
        return y_pred, y

    @abstractmethod
    def _one(self, values: Array) -> float:
        """One direction's value, of the distances."""

    @abstractmethod
    def _both(self, there: float, back: float) -> float:
        """The value of both directions."""

    def eval(self) -> float:
        """The distance, infinite where a surface is empty; raises RuntimeError before `update`."""
        check_updated(self._is_update)
        there = self._direction(self.y_pred_edges, self.y_edges)
        if not self.symmetric or there == np.inf:
            return there
        back = self._direction(self.y_edges, self.y_pred_edges)
        return back if back == np.inf else self._both(there, back)

    def _direction(self, of: Array, to: Array) -> float:
        found = distances(of, to, self.distance_metric)
        return self._one(found) if found.size else np.inf


class SurfaceDistance(SurfaceMetric):
    """A mean over the distances between two surfaces.

    Args:
        symmetric: take the mean of both directions.
        distance_metric: 'euclidean', 'chessboard' (the largest difference along an axis) or 'taxicab' (their sum).

    Raises:
        ValueError: another distance. TypeError: symmetric is no bool.
    """

    def __init__(self, symmetric: bool = False, distance_metric: str = "euclidean"):
        super().__init__(distance_metric, check_bool(type(self).__name__, "symmetric", symmetric))
