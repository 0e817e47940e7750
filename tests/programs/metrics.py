"""Metrics: the values of each over a few batches, and refused arguments."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from tests.recording import caught, ramp


def chances(n: int, classes: int = 4, start: float = 0.0) -> Any:
    """Probabilities of classes."""
    x = np.exp(ramp((n, classes), start))
    return (x / x.sum(1, keepdims=True)).astype(np.float32)


def classes(*shape: int, of: int = 4, start: int = 0) -> Any:
    return ((np.arange(int(np.prod(shape))) * 7 + start) // 3 % of).astype(np.int32).reshape(shape)


def onehot(labels: Any, of: int = 4) -> Any:
    return np.eye(of, dtype=np.float32)[labels]


def mask(*shape: int, start: float = 0.0) -> Any:
    return (ramp(shape, start) > 0.2).astype(np.float32)


TWO = ["(Tensor(chances(9)), Tensor(classes(9)))", "(chances(5, start=2.0), classes(5, start=1))"]
ONEHOT = ["(chances(9), onehot(classes(9)))", "(chances(5, start=2.0), onehot(classes(5, start=1)))"]
PIXELS = ["(ramp((3, 4, 5)), classes(3, 5))"]
LABELS = ["(mask(6, 3), mask(6, 3, start=1.0))", "(mask(4, 3, start=3.0), mask(4, 3, start=4.0))"]
MASKS = ["(mask(4, 3, 5), mask(4, 3, 5, start=1.0))", "(mask(2, 3, 5, start=2.0), mask(2, 3, 5, start=3.0))"]
REGIONS = ["(classes(6, 7, of=3), classes(6, 7, of=3, start=1), 1)"]
LINE = ["([[1, 1, 1, 1], [0, 0, 0, 0]], [[1, 1, 0, 0], [0, 0, 0, 0]], 1)"]
WORDS = ["(['i have a pen on my desk'.split()], [['i have a pen in my desk'.split(), 'there is a pen on the desk'.split()]])"]
MORE_WORDS = [*WORDS, "(['the cat sat on a mat'.split()], [['the cat sat on the mat'.split()]])"]

METRICS: dict[str, tuple[str, list[str]]] = {
    **{f"{name} {kind}": (f"{name}({args})", batches)
       for name in ("Accuracy", "Precision", "Recall")
       for kind, args, batches in (("", "", TWO), ("one-hot", "", ONEHOT), ("pixels", "", PIXELS), ("labels", "'multilabel'", LABELS))},
    "F1": ("F1()", TWO), "F1 one-hot": ("F1()", ONEHOT), "F1 pixels": ("F1()", PIXELS), "Fbeta": ("Fbeta(2.0)", TWO),
    "top 1": ("Top1CategoricalAccuracy()", TWO), "top 2": ("TopKCategoricalAccuracy(2)", ONEHOT),
    "top 5": ("Top5CategoricalAccuracy()", ["(chances(9, 8), classes(9, of=8))"]),
    "loss": ("Loss()", ["(Tensor(1.5),)", "(Tensor([1.0, 2.0, 4.5]),)", "(np.array(0.1),)"]),
    "mae": ("MAE()", ["(ramp((4, 3)), ramp((4, 3), 1.0))", "(ramp((2, 1)), ramp((2,), 1.0))"]),
    "mse": ("MSE()", ["(Tensor(ramp((4, 3))), ramp((4, 3), 1.0))", "([1.0, 2.0], [2, 4])"]),
    "perplexity": ("Perplexity()", TWO), "perplexity ignore": ("Perplexity(1)", TWO),
    **{f"confusion {n}": (f"ConfusionMatrix(4, '{n}')", TWO) for n in ("no_norm", "target", "prediction", "all")},
    "confusion threshold": ("ConfusionMatrix(2, 'target', 0.4)", ["(ramp((9,)), classes(9, of=2))"]),
    "confusion classes": ("ConfusionMatrix(3, 'all')", ["(classes(9, of=2), classes(9, of=3, start=2))"]),
    **{f"rate {n}": (f"ConfusionMatrixMetric(metric_name='{n}')", MASKS)
       for n in ("sensitivity", "recall", "hit_rate", "specificity", "precision", "npv", "fnr", "fall out", "fdr", "for", "pt", "ts", "accuracy", "ba",
                 "f1 score", "mcc", "fm", "Informedness", "mk")},
    "rate without class 0": ("ConfusionMatrixMetric(False, 'precision')", MASKS),
    "rate of batches": ("ConfusionMatrixMetric(True, 'precision', True)", MASKS),
    "rate of batches, sum": ("ConfusionMatrixMetric(True, 'mcc', True, 'sum')", MASKS),
    "roc": ("ROC()", ["(ramp((9,)).round(), classes(9, of=2))"]), "roc of 0": ("ROC(pos_label=0)", ["(ramp((9,)), classes(9, of=2))"]),
    "roc of four": ("ROC(class_num=4)", ["(ramp((4, 4)), np.array([0, 1, 2, 3]))"]),
    **{f"cosine {s} {r} {z}": (f"CosineSimilarity('{s}', '{r}', {z})", ["(ramp((4, 3)),)"])
       for s, r, z in (("cosine", "none", True), ("cosine", "sum", False), ("dot", "mean", True), ("dot", "none", False))},
    "dice": ("Dice()", MASKS), "dice smooth": ("Dice(0.5)", MASKS),
    **{f"bleu {n} {s}": (f"BleuScore({n}, {s})", MORE_WORDS) for n in (1, 2, 3, 4) for s in (False, True)}, "bleu one": ("BleuScore()", WORDS),
    **{f"{m} {d} {s}": (f"{m}({s}, '{d}')", REGIONS)
       for m in ("MeanSurfaceDistance", "RootMeanSquareDistance") for d in ("euclidean", "chessboard", "taxicab") for s in (False, True)},
    **{f"hausdorff {d} {p} {s} {c}": (f"HausdorffDistance('{d}', {p}, {s}, {c})", REGIONS)
       for d, p, s, c in (("euclidean", None, False, True), ("chessboard", None, True, True), ("taxicab", 90.0, False, False))},
    "hausdorff line": ("HausdorffDistance(percentile=50.0)", LINE), "hausdorff line whole": ("HausdorffDistance(percentile=50.0, crop=False)", LINE),
    "hausdorff nothing": ("HausdorffDistance()", ["([[1, 0], [0, 0]], [[0, 0], [0, 0]], 1)"]),
    "occlusion": ("OcclusionSensitivity()", ["(Sums(), ramp((1, 1, 4, 3)), Tensor(2))"]),
    "occlusion box": ("OcclusionSensitivity(0.5, 1, 5, [0, 0, 1, 2, 0, -1])", ["(Sums(), ramp((1, 1, 4, 3)), Tensor(2))"]),
    "chosen": ("Accuracy().set_indexes([2, 0])", ["(classes(9), None, chances(9))"]),
}  # fmt: skip

OTHER = [
    "names()", "auc(np.array([0.0, 0.5, 1.0]), np.array([0.0, 0.7, 1.0]))", "auc(np.array([1.0, 0.5, 0.0]), np.array([0.0, 0.7, 1.0]))",
    "auc(np.array([1.0, 2.0, 0.0]), np.array([0.0, 0.7, 1.0]), True)", "auc(np.array([1.0, 2.0, 0.0]), np.array([0.0, 0.7, 1.0]))",
    "auc(np.array([[0.0], [2.0]]), np.array([1.0, -3.0]))", "auc(np.array([1.0]), np.array([1.0]))", "auc([1.0], [1.0])", "auc(ramp((2, 2)), ramp((2, 2)))",
    "get_metric_fn('topk', 3).k", "get_metric_fn('nothing')", "Accuracy('other')", "Accuracy().eval()", "Accuracy()(chances(3), classes(4))",
    "Accuracy()(chances(3), ramp((3, 3)))", "Accuracy()(1, 2)", "Accuracy()(chances(3))", "Accuracy('multilabel')(ramp((3, 2)), mask(3, 2))",
    "Precision()(chances(3, 2), classes(3))", "Recall().eval(1)", "Fbeta(0)", "Fbeta(1.0).eval()", "TopKCategoricalAccuracy(1.5)", "TopKCategoricalAccuracy(0)",
    "Loss()(Tensor(ramp((2, 2))))", "Loss().eval()", "Loss()(1.5)", "MSE()(ramp((2, 3)), ramp((2, 2)))", "MAE().eval()", "Perplexity('x')",
    "Perplexity()(chances(3), classes(4))", "ConfusionMatrix('x')", "ConfusionMatrix(2, 'x')", "ConfusionMatrix(2, threshold=1)", "ConfusionMatrix(2).eval()",
    "ConfusionMatrixMetric(1)", "ConfusionMatrixMetric(decrease='x')", "ConfusionMatrixMetric()(mask(2, 3), mask(2, 2))", "ROC('x')", "ROC().eval()",
    "ROC()(chances(3), classes(3))", "ROC()(ramp((3,)), np.array([1, 1, 1]))", "ROC()(ramp((3,)), np.array([0, 0, 0]))", "CosineSimilarity('x')",
    "CosineSimilarity(reduction='x')", "Dice(-1.0)", "Dice()(mask(2, 3), mask(2, 2))", "BleuScore(5)", "BleuScore(2.0)", "BleuScore()(['a'], [['a'], ['b']])",
    "BleuScore().eval()", "HausdorffDistance('x')", "HausdorffDistance(percentile=1)", "HausdorffDistance().eval()", "HausdorffDistance()([[1]], [[1]], 3)",
    "HausdorffDistance()([[1]], [[1, 1]], 1)", "HausdorffDistance(percentile=101.0)([[1]], [[1]], 1)", "MeanSurfaceDistance(1)", "MeanSurfaceDistance()([[1]], [[1]])",
    "RootMeanSquareDistance(True, 'x')", "OcclusionSensitivity('x')", "OcclusionSensitivity(b_box=1)", "OcclusionSensitivity().eval()",
    "OcclusionSensitivity()(Sums(), ramp((2, 4, 3)), Tensor(2))", "OcclusionSensitivity(b_box=[0, 0])(Sums(), ramp((1, 4, 3)), Tensor(2))",
    "OcclusionSensitivity(b_box=[0, 9, 0, 1])(Sums(), ramp((1, 4, 3)), Tensor(2))", "Metric()", "Accuracy().set_indexes((1,))",
]  # fmt: skip


def make(ms: Any, expression: str) -> Any:
    class Sums(ms.nn.Cell):
        def construct(self, x: Any) -> Any:
            x = x.reshape(x.shape[0], -1)
            return x[:, :3] * 2 + x.sum(1, keepdims=True)

    own = {"chances": chances, "classes": classes, "onehot": onehot, "mask": mask, "ramp": ramp, "np": np, "Tensor": ms.Tensor, "Sums": Sums}
    return eval(expression, {name: getattr(ms.train, name) for name in ms.train.__all__} | own)


def values(ms: Any, constructor: str, batches: list[str]) -> Any:
    metric = make(ms, constructor)
    for batch in batches:
        metric.update(*make(ms, batch))
    result = {"value": plain(metric.eval())}
    if "average" in metric.eval.__code__.co_varnames and "multilabel" not in constructor:
        result["average"] = plain(metric.eval(True))
    metric.clear()
    result["cleared"] = caught(metric.eval)
    return result


def plain(x: Any) -> Any:
    """Numbers of numpy as numbers of Python."""
    if isinstance(x, (tuple, list)):
        return [plain(v) for v in x]
    return x.item() if isinstance(x, (np.generic, np.ndarray)) and x.ndim == 0 else x


def _call(function: Any, *args: Any) -> Any:
    *given, ms = args
    return plain(function(ms, *given))


def programs() -> dict[str, Any]:
    return {name: partial(_call, values, *row) for name, row in METRICS.items()} | {text: partial(_call, lambda ms, t: make(ms, t), text) for text in OTHER}
