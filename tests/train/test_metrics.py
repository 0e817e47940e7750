"""Metrics against those of MindSpore 2.10.0 (tests/programs/metrics.json), and what differs from it on purpose."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphcell as ms
from graphcell import Tensor, nn, train
from graphcell.errors import GraphcellError
from graphcell.train.metrics import get_metrics
from tests.recording import check, load, ramp


@pytest.mark.parametrize("key", list(load("metrics")))
def test_values(key: str) -> None:
    check("metrics", key, ms.PYNATIVE_MODE)


def test_numbers_are_those_of_python() -> None:
    """They print the same under any version of numpy."""
    scores, labels = Tensor(ramp((4, 3))), Tensor([0, 1, 2, 0])
    for metric in (train.Accuracy(), train.Top1CategoricalAccuracy(), train.Perplexity()):
        assert type(metric(scores, labels)) is float
    assert type(train.Loss()(Tensor(0.5))) is float and type(train.MSE()(scores, scores)) is float
    assert type(train.HausdorffDistance()([[1, 0]], [[0, 1]], 1)) is float


def test_half_precision() -> None:
    scores, labels = Tensor(ramp((4, 3)), ms.bfloat16), Tensor([2, 0, 1, 0])
    assert train.Accuracy()(scores, labels) == train.Accuracy()(scores.astype(ms.float32), labels)
    assert train.Loss()(Tensor(1.5, ms.bfloat16)) == 1.5
    assert train.ConfusionMatrix(2)(Tensor([0.25, 0.75], ms.bfloat16), Tensor([0, 1])).tolist() == [[1, 0], [0, 1]]


def test_roc_of_several_classes_with_any_number_of_samples() -> None:
    """MindSpore turns the scores round as if there were as many samples as classes."""
    scores, labels = np.array([[0.9, 0.1], [0.4, 0.6], [0.3, 0.7]]), np.array([0, 0, 1])
    false, true, thresholds = train.ROC(class_num=2)(scores, labels)
    np.testing.assert_allclose(false[1], [0, 0, 0.5, 1])
    np.testing.assert_allclose(true[1], [0, 1, 1, 1])
    np.testing.assert_allclose(thresholds[1], [1.7, 0.7, 0.6, 0.1])
    np.testing.assert_allclose(true[0], [0, 0.5, 1, 1])


def test_a_mean_over_multilabel_samples_without_positives() -> None:
    """MindSpore divides 0 by 0 in float32."""
    predicted, right = np.array([[1, 0], [0, 0]], np.float32), np.array([[1, 1], [0, 0]], np.float32)
    precision = train.Precision("multilabel")
    precision.update(predicted.T, right.T)
    assert precision.eval(True) == 0.5


def test_classes_outside_of_a_confusion_matrix() -> None:
    with pytest.raises(ValueError, match="classes must be 0 to 1"):
        train.ConfusionMatrix(2)(np.array([0, 2]), np.array([0, 1]))


SCORES, CLASSES = ramp((4, 3)), np.array([0, 2, 1, 2])


@pytest.mark.parametrize(
    ("metric", "inputs", "error", "message"),
    [
        (train.ConfusionMatrix(3), (SCORES, CLASSES[:3]), ValueError, r"shape: \(4, 3\), true value \(input\[1\]\) shape: \(3,\)"),
        (train.ConfusionMatrix(3), (SCORES, CLASSES[:, None]), ValueError, "both should have the same shape, or"),
        (train.ConfusionMatrix(3), (CLASSES, CLASSES - 1), ValueError, "classes must be 0 to 2, but they are -1 to 1"),
        (train.ROC(), (SCORES[:, 0], CLASSES[:3]), ValueError, "as many scores as labels"),
        (train.ROC(3), (SCORES[:0], CLASSES[:0]), ValueError, "as many scores as labels"),
        (train.F1(), (SCORES, CLASSES[:3]), ValueError, "without its index 1"),
        (train.F1(), (SCORES[:, 0], CLASSES), ValueError, "without its index 1"),
        (train.Precision(), (SCORES, CLASSES + 0.5), ValueError, "should be whole numbers, but got 0.5"),
        (train.MAE(), (SCORES, CLASSES), ValueError, "the same number of elements"),
        (train.MSE(), ([1.0], np.array(1.0)), ValueError, "samples along axis 0"),
        (train.TopKCategoricalAccuracy(2), (SCORES, CLASSES[:3]), ValueError, r"shapes \(N, C\) and"),
        (train.Top5CategoricalAccuracy(), (SCORES, CLASSES), ValueError, "there are 3 classes, but 'k' is 5"),
        (train.Perplexity(), (SCORES, CLASSES + 1), IndexError, "labels .* must be 0 to 2, but got 3"),
        (train.Perplexity(), (SCORES[:0], CLASSES[:0]), RuntimeError, "number of samples is 0"),
        (train.CosineSimilarity(), (SCORES[0],), ValueError, "must be a matrix"),
        (train.ConfusionMatrixMetric(True, "tpr", True, "none"), (SCORES > 0, SCORES > 1), ValueError, "use decrease='mean'"),
        (train.HausdorffDistance(), (SCORES, SCORES[:2], 1), ValueError, "the same shape, and elements"),
        (train.HausdorffDistance(), (SCORES, SCORES, "1"), TypeError, "label index"),
        (train.Dice(), (SCORES, SCORES[:2]), ValueError, "both should have the same shape"),
    ],
)
def test_inputs_that_do_not_fit(metric: train.Metric, inputs: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        metric(*inputs)
    assert isinstance(caught.value, GraphcellError)


def test_labels_may_be_floats() -> None:
    assert train.Precision()(SCORES, CLASSES.astype(np.float32)).tolist() == train.Precision()(SCORES, CLASSES).tolist()
    assert train.F1()(SCORES, CLASSES.astype(np.float32)).tolist() == train.F1()(SCORES, CLASSES).tolist()


def test_rates_that_there_are_not() -> None:
    with pytest.raises(NotImplementedError, match="nonsense"):
        train.ConfusionMatrixMetric(metric_name="nonsense")
    with pytest.raises(ValueError, match="binarized"):
        train.ConfusionMatrixMetric()(np.ones((2, 2)), np.full((2, 2), 3))


def test_surfaces_of_large_regions_are_compared_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = ramp((9, 9)) > 0, ramp((9, 9), 1.0) > 0
    whole = train.MeanSurfaceDistance(True)(a, b, 1)
    monkeypatch.setattr("graphcell.train.metrics.surface._PAIRS_AT_ONCE", 7)
    assert train.MeanSurfaceDistance(True)(a, b, 1) == whole


def test_a_metric_of_ones_own() -> None:
    class Largest(train.Metric):
        def __init__(self) -> None:
            super().__init__()
            self.clear()

        def clear(self) -> None:
            self.largest = -np.inf

        @train.rearrange_inputs
        def update(self, *inputs: object) -> None:
            self.largest = max(self.largest, self._convert_data(inputs[0]).max())

        def eval(self) -> float:
            return self.largest

    metric = Largest().set_indexes([1])
    metric.update([9.0], Tensor([1.0, 3.0]))
    metric.update([9.0], [2.0])
    assert metric.eval() == 3.0 and metric([9.0], np.array([4.0])) == 4.0 and metric.indexes == [1]


def test_metrics_of_a_model() -> None:
    assert get_metrics(None) is None and set(get_metrics({"acc", "loss"}) or ()) == {"acc", "loss"}
    for wrong in (["acc"], {"acc": 3}, {3: train.Accuracy()}):
        with pytest.raises(TypeError, match="get_metrics"):
            get_metrics(wrong)
    assert nn.Accuracy is train.Accuracy and ms.Accuracy is train.Accuracy  # type: ignore[attr-defined]


def test_metrics_are_found_under_their_older_path() -> None:
    from graphcell.nn import metrics

    assert metrics.Accuracy is train.Accuracy and set(metrics.__all__) == set(train.metrics.__all__)
