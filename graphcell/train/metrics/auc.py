"""The area under a curve."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphcell.errors import ArgumentTypeError, ArgumentValueError
from graphcell.train.metrics.metric import Array


def auc(x: Any, y: Any, reorder: bool = False) -> float:
    """The area under a curve by the trapezoidal rule.

    Args:
        x: coordinates along the axis, shape (N,) or (N, 1); increasing or decreasing unless `reorder`.
        y: heights of the curve, of the same length.
        reorder: sort the points by x first.

    Raises:
        TypeError: no arrays. ValueError: other shapes, different lengths, less than two points, or an order that goes both ways.
    """
    if not isinstance(x, np.ndarray) or not isinstance(y, np.ndarray):
        raise ArgumentTypeError(f"For 'auc', the argument 'x' and 'y' must all be np.ndarray, but got {type(x)}, {type(y)}")
    x, y = _flat(x), _flat(y)
    if x.size != y.size:
        raise ArgumentValueError(f"Found input variables with inconsistent numbers of samples: {[x.size, y.size]}.")
    if x.size < 2:
        raise ArgumentValueError(f"For 'auc', the shape of the argument 'x' in axis 0 must be greater than 2, but got {x.size}.")
    if reorder:
        order = np.lexsort((y, x))
        x, y = x[order], y[order]
    widths = np.diff(x)
    if (widths < 0).any() and (widths > 0).any():
        raise ArgumentValueError(f"For 'auc', if the argument is False, the argument 'x' array must be increasing or decreasing, but got 'x': {x}")
    direction = -1 if (widths < 0).any() else 1
    return direction * float((widths * (y[1:] + y[:-1]) / 2).sum())


def _flat(x: Array) -> Array:
    if x.ndim == 1 or (x.ndim == 2 and x.shape[1] == 1):
        return x.ravel()
    raise ArgumentValueError(
        f"For 'auc', the input must be a 1-dimensional array, or a 2-dimensional array with the second dimension of 1, but got shape {x.shape}."
    )
