"""Confusion matrices and what is computed of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphcell.errors import ArgumentValueError, NotImplementedFeatureError
from graphcell.nn.checks import check_bool, check_choice, check_float, check_int
from graphcell.train.metrics.metric import Array, Metric, check_samples, check_shapes, check_updated, rearrange_inputs
from graphcell.train.metrics.rates import RATES, rate

_NORMALIZATIONS = ("target", "prediction", "all", "no_norm")
_REDUCTIONS: dict[str, tuple[int, ...]] = {  # the axes of (samples, classes) that are taken together
    "none": (), "mean": (1, 0), "sum": (0, 1), "mean_batch": (0,), "sum_batch": (0,), "mean_channel": (1,), "sum_channel": (1,),
}  # fmt: skip


class ConfusionMatrix(Metric):
    """How often each true class (row) was predicted as each class (column).

    Args:
        num_classes: number of classes.
        normalize: 'target' (rows sum to 1), 'prediction' (columns do), 'all', or 'no_norm'.
        threshold: predictions of floats of the labels' shape count as class 1 from here on.

    Raises:
        ValueError: another normalization. TypeError: an argument of the wrong kind.
    """

    def __init__(self, num_classes: int, normalize: str = "no_norm", threshold: float = 0.5):
        super().__init__()
        self.num_classes = check_int("ConfusionMatrix", "num_classes", num_classes)
        self.normalize = check_choice("ConfusionMatrix", "normalize", normalize, _NORMALIZATIONS)
        self.threshold = check_float("ConfusionMatrix", "threshold", threshold)
        self.clear()

    def clear(self) -> None:
        """Forgets what was collected."""
        self.confusion_matrix = np.zeros((self.num_classes, self.num_classes))
        self._is_update = False

    @rearrange_inputs
    def update(self, *inputs: Any) -> None:
        """Collects labels (N) and predictions: (N, C), classes (N), or floats (N) to compare with the threshold.

        Raises:
            ValueError: the dimensions do not fit, or a class is not below `num_classes`.
        """
        y_pred, y = self._pair(inputs)
        if y_pred.ndim == y.ndim + 1 > 1:
            predicted = y_pred.argmax(axis=1)
        else:
            predicted = y_pred >= self.threshold if y_pred.dtype.kind == "f" else y_pred
        rule = "both should have the same shape, or the predicted value one more dimension, of classes, at index 1"
        check_shapes(self, predicted.shape == y.shape, rule, y_pred, y)
        pairs = (y.reshape(-1).astype(int), predicted.reshape(-1).astype(int))
        for classes in pairs:
            if classes.size and not 0 <= classes.min() <= classes.max() < self.num_classes:
                raise ArgumentValueError(
                    f"For 'ConfusionMatrix.update', classes must be 0 to {self.num_classes - 1}, but they are {classes.min()} to {classes.max()}."
                )
        np.add.at(self.confusion_matrix, pairs, 1)
        self._is_update = True

    def eval(self) -> Array:
        """The matrix, shape (num_classes, num_classes); raises RuntimeError before `update`."""
        check_updated(self._is_update)
        counts = self.confusion_matrix.copy()
        if self.normalize == "no_norm":
            return counts
        totals = counts.sum(axis={"target": 1, "prediction": 0, "all": None}[self.normalize], keepdims=True)
        return np.asarray(np.divide(counts, totals, out=np.zeros_like(counts), where=totals != 0))


class ConfusionMatrixMetric(Metric):
    """A rate of binary masks, such as sensitivity, over all classes and samples.

    Args:
        skip_channel: count class 0 too. (False leaves it out.)
        metric_name: see `rates.RATES`: 'sensitivity', 'specificity', 'precision', 'accuracy', 'f1 score', …
        calculation_method: False takes the rate of the counts of all samples, True the mean of the rates of each batch.
        decrease: how a batch's rates (samples, classes) become one: 'mean', 'sum', 'mean_batch', …, 'none'.

    Raises:
        ValueError: another `decrease`. TypeError: an argument of the wrong kind. NotImplementedError: no such rate.
    """

    def __init__(
        self, skip_channel: bool = True, metric_name: str = "sensitivity", calculation_method: bool = False, decrease: str = "mean"
    ):
        super().__init__()
        owner = "ConfusionMatrixMetric"
        self.skip_channel = check_bool(owner, "skip_channel", skip_channel)
        self.calculation_method = check_bool(owner, "calculation_method", calculation_method)
        self.metric_name = metric_name
        self._rate = metric_name.replace(" ", "_").lower()
        if self._rate not in RATES:
            raise NotImplementedFeatureError(f"The metric is not implemented: {metric_name}")
        self.decrease = check_choice(owner, "decrease", decrease, tuple(_REDUCTIONS))
        self.clear()

    def clear(self) -> None:
        """Forgets what was collected."""
        self._total_num, self._class_num = 0.0, 0
        self._counts: Array = np.zeros(4)

    @rearrange_inputs
    def update(self, *inputs: Any) -> None:
        """Collects masks of 0 and 1, predictions and true values of shape (N, C, …).

        Raises:
            ValueError: shapes differ, too few dimensions, or values that are not 0 or 1; a `decrease` that leaves several numbers.
        """
        y_pred, y = self._pair(inputs)
        counts = self._count(y_pred, y)
        if not self.calculation_method:
            self._counts = self._counts + counts.sum(axis=(0, 1))
            return
        score, valid = _reduce(rate(self._rate, counts), self.decrease)
        if score.size != 1:
            raise ArgumentValueError(
                f"For 'ConfusionMatrixMetric', the rates of a batch must become one number with calculation_method=True, but decrease='{self.decrease}' "
                f"gives {score.size}.",
                hint="use decrease='mean' or 'sum'",
            )
        number = int(valid.item())
        self._total_num += score.item() * number
        self._class_num += number

    def _count(self, y_pred: Array, y: Array) -> Array:
        """True positives, false positives, true negatives, false negatives: shape (N, C, 4)."""
        owner = "For 'ConfusionMatrix.update',"
        if not np.isin(y, (0, 1)).all():
            raise ArgumentValueError(f"{owner} the true value (input[1]) must be a binarized ndarray.")
        if y_pred.ndim < 2:
            raise ArgumentValueError(f"{owner} the predicted value (input[0]) must have at least 2 dimensions, but got {y_pred.ndim}.")
        check_shapes(self, y_pred.shape == y.shape, "both should have the same shape", y_pred, y)
        if not self.skip_channel and y.shape[1] > 1:
            y_pred, y = y_pred[:, 1:], y[:, 1:]
        y_pred, y = (x.reshape(*x.shape[:2], -1) for x in (y_pred, y))
        positive, negative = y == 1, y == 0
        hit, miss = y_pred == 1, y_pred == 0
        right, wrong = (positive & hit).sum(2), (negative & miss).sum(2)
        return np.stack([right, negative.sum(2) - wrong, wrong, positive.sum(2) - right], axis=-1).astype(float)

    def eval(self) -> Any:
        """The rate: an array of one number, or a float with `calculation_method`; raises RuntimeError before any sample."""
        if self.calculation_method:
            check_samples(self, self._class_num)
            return self._total_num / self._class_num
        return rate(self._rate, self._counts[None])


def _reduce(values: Array, how: str) -> tuple[Array, Array]:
    """A batch's rates (samples, classes) taken together, and how many of them were numbers."""
    counts = (~np.isnan(values)).astype(float)
    values = np.nan_to_num(values, nan=0.0)
    if not how.startswith("mean"):
        axes = _REDUCTIONS[how]
        return (values.sum(axes), counts.sum(axes)) if axes else (values, counts)
    for axis in _REDUCTIONS[how]:
        total = counts.sum(axis)
        values = np.divide(values.sum(axis), total, out=np.zeros_like(total), where=total > 0)
        counts = (total > 0).astype(float) if how == "mean" and axis == 1 else total
    return values, counts
