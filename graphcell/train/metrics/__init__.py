"""Metrics of what a network predicts: classes with `clear`, `update` and `eval`, and how `Model` finds them by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from graphcell.errors import ArgumentTypeError, MissingKeyError
from graphcell.missing import getattr_of as _getattr_of
from graphcell.train.metrics.accuracy import Accuracy
from graphcell.train.metrics.auc import auc
from graphcell.train.metrics.bleu_score import BleuScore
from graphcell.train.metrics.confusion_matrix import ConfusionMatrix, ConfusionMatrixMetric
from graphcell.train.metrics.cosine_similarity import CosineSimilarity
from graphcell.train.metrics.dice import Dice
from graphcell.train.metrics.error import MAE, MSE
from graphcell.train.metrics.fbeta import F1, Fbeta
from graphcell.train.metrics.hausdorff_distance import HausdorffDistance
from graphcell.train.metrics.loss import Loss
from graphcell.train.metrics.mean_surface_distance import MeanSurfaceDistance
from graphcell.train.metrics.metric import Metric, rearrange_inputs
from graphcell.train.metrics.occlusion_sensitivity import OcclusionSensitivity
from graphcell.train.metrics.perplexity import Perplexity
from graphcell.train.metrics.precision import Precision
from graphcell.train.metrics.recall import Recall
from graphcell.train.metrics.roc import ROC
from graphcell.train.metrics.root_mean_square_surface_distance import RootMeanSquareDistance
from graphcell.train.metrics.topk import Top1CategoricalAccuracy, Top5CategoricalAccuracy, TopKCategoricalAccuracy

__all__ = [
    "F1", "MAE", "MSE", "ROC", "Accuracy", "BleuScore", "ConfusionMatrix", "ConfusionMatrixMetric", "CosineSimilarity", "Dice", "Fbeta",
    "HausdorffDistance", "Loss", "MeanSurfaceDistance", "Metric", "OcclusionSensitivity", "Perplexity", "Precision", "Recall",
    "RootMeanSquareDistance", "Top1CategoricalAccuracy", "Top5CategoricalAccuracy", "TopKCategoricalAccuracy", "auc", "get_metric_fn", "names",
    "rearrange_inputs",
]  # fmt: skip

_BY_NAME: dict[str, Callable[..., Any]] = {
    "F1": F1, "acc": Accuracy, "accuracy": Accuracy, "auc": auc, "bleu_score": BleuScore, "confusion_matrix": ConfusionMatrix,
    "confusion_matrix_metric": ConfusionMatrixMetric, "cosine_similarity": CosineSimilarity, "dice": Dice, "hausdorff_distance": HausdorffDistance,
    "loss": Loss, "mae": MAE, "mean_surface_distance": MeanSurfaceDistance, "mse": MSE, "occlusion_sensitivity": OcclusionSensitivity,
    "perplexity": Perplexity, "precision": Precision, "recall": Recall, "roc": ROC, "root_mean_square_distance": RootMeanSquareDistance,
    "top_1_accuracy": Top1CategoricalAccuracy, "top_5_accuracy": Top5CategoricalAccuracy, "topk": TopKCategoricalAccuracy,
}  # fmt: skip


def names() -> list[str]:
    """The names that `get_metric_fn` and `Model` know, sorted."""
    return sorted(_BY_NAME)


def get_metric_fn(name: str, *args: Any, **kwargs: Any) -> Any:
    """The metric of a name, made with the given arguments.

    Raises:
        KeyError: there is none of that name.
    """
    if name not in _BY_NAME:
        raise MissingKeyError(f"For 'get_metric_fn', unsupported metric {name}.", hint="train.names() lists those that there are")
    return _BY_NAME[name](*args, **kwargs)


def get_metrics(metrics: Any) -> dict[str, Metric] | None:
    """The metrics of a Model: name → metric, from such a dict or from a set of names; None stays.

    Raises:
        TypeError: something else. KeyError: an unknown name.
    """
    if metrics is None:
        return None
    if isinstance(metrics, set):
        return {name: get_metric_fn(name) for name in metrics}
    if not isinstance(metrics, dict):
        raise ArgumentTypeError(f"For 'get_metrics', the argument 'metrics' must be None, dict or set, but got {metrics}")
    for name, metric in metrics.items():
        if not isinstance(name, str) or not isinstance(metric, Metric):
            raise ArgumentTypeError(
                "For 'get_metrics', if 'metrics' is dict, the key in 'metrics' must be string and value in 'metrics' must be Metric, "
                f"but got key:{type(name)}, value:{type(metric)}."
            )
    return metrics

if not TYPE_CHECKING:  # type checkers know all names that there are
    __getattr__ = _getattr_of(__name__)
