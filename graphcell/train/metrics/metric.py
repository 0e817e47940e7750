"""`Metric`, the base of all metrics, and what classification metrics share.

A metric collects batches by `update`, gives its value by `eval`, and forgets by `clear`. Values that are one number are Python floats, summed
in double precision. Refused: inputs that are neither Tensor, list nor array; `eval` before any sample.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from graphcell import dtype as dt
from graphcell.errors import ArgumentTypeError, ArgumentValueError, ExecutionError
from graphcell.tensor import Tensor

Array = np.ndarray[Any, Any]
M = TypeVar("M", bound="Metric")
_EVAL_TYPES = ("classification", "multilabel")


def rearrange_inputs(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a metric's `update`: it gets the inputs that `set_indexes` chose, in that order; all of them without it."""

    @functools.wraps(func)
    def chosen(self: Metric, *inputs: Any) -> Any:
        return func(self, *([inputs[i] for i in self.indexes] if self.indexes else inputs))

    return chosen


class Metric(ABC):
    """Base class of metrics. A subclass defines `clear`, `update` and `eval`; calling a metric does the three in turn."""

    def __init__(self) -> None:
        self._indexes: list[int] | None = None

    def _convert_data(self, data: Any) -> Array:
        """A Tensor, list or array as an array; raises TypeError for anything else."""
        if isinstance(data, Tensor):
            return (data.astype(dt.float32) if data.dtype is dt.bfloat16 else data).asnumpy()
        if not isinstance(data, (list, np.ndarray)):
            raise ArgumentTypeError(
                f"For 'Metric' and its derived classes, the input data type must be tensor, list or numpy.ndarray, but got {type(data)}."
            )
        return np.asarray(data)

    def _pair(self, inputs: tuple[Any, ...], names: str = "predicted value, true value") -> tuple[Array, Array]:
        """The two inputs of an `update` as arrays; raises ValueError for another number of them."""
        check_count(self, inputs, 2, names)
        return self._convert_data(inputs[0]), self._convert_data(inputs[1])

    @property
    def indexes(self) -> list[int] | None:
        """The positions that `set_indexes` chose, or None."""
        return getattr(self, "_indexes", None)

    def set_indexes(self: M, indexes: list[int]) -> M:
        """Chooses which of the inputs of `update` are used, in which order; returns this metric.

        Raises:
            ValueError: not a list of ints.
        """
        if not isinstance(indexes, list) or not all(isinstance(i, int) for i in indexes):
            raise ArgumentValueError(
                "For 'set_indexes', the argument 'indexes' must be a list and all its elements must be int, please check whether it is correct."
            )
        self._indexes = indexes
        return self

    def __call__(self, *inputs: Any) -> Any:
        self.clear()
        self.update(*inputs)
        return self.eval()

    @abstractmethod
    def clear(self) -> None:
        """Forgets what was collected."""

    @abstractmethod
    def eval(self) -> Any:
        """The value over all that was collected."""

    @abstractmethod
    def update(self, *inputs: Any) -> None:
        """Collects one batch."""


def check_count(metric: Metric, inputs: tuple[Any, ...], count: int, names: str) -> None:
    """Raises ValueError if an `update` got another number of inputs than `count`."""
    if len(inputs) != count:
        raise ArgumentValueError(
            f"For '{type(metric).__name__}.update', it needs {count} input{'s' if count > 1 else ''} ({names}), but got {len(inputs)}."
        )


def check_shapes(metric: Metric, fit: bool, rule: str, y_pred: Array, y: Array) -> None:
    """Raises ValueError, with the rule that they break, if the inputs of an `update` do not `fit` each other."""
    if not fit:
        raise ArgumentValueError(
            f"For '{type(metric).__name__}.update', {rule}, but got predicted value (input[0]) shape: {y_pred.shape}, "
            f"true value (input[1]) shape: {y.shape}."
        )


def check_samples(metric: Metric, count: float) -> None:
    """Raises RuntimeError if nothing was collected."""
    if count == 0:
        raise ExecutionError(
            f"The '{type(metric).__name__}' can not be calculated, because the number of samples is 0, please check whether your inputs "
            "(predicted value, true value) are empty, or has called update method before calling eval method."
        )


def check_updated(updated: bool) -> None:
    """Raises RuntimeError before the first `update`."""
    if not updated:
        raise ExecutionError("Please call the 'update' method before calling 'eval' method.")


def is_onehot(labels: Array) -> bool:
    """Whether axis 1 holds a 1 for one class and 0 for all others."""
    return labels.ndim > 1 and bool(np.equal(labels**2, labels).all()) and bool((labels.sum(axis=1) == 1).all())


def class_indices(y_pred: Array, y: Array) -> Array:
    """Labels as class numbers, where they are given one-hot."""
    return y.argmax(axis=1) if y_pred.ndim == y.ndim and is_onehot(y) else y


class EvaluationBase(Metric):
    """Base of classification metrics.

    Args:
        eval_type: 'classification': predictions (N, C, …) against labels (N, …) or one-hot (N, C, …); 'multilabel': 0 or 1 for each class.

    Raises:
        TypeError: another eval_type.
    """

    def __init__(self, eval_type: str):
        super().__init__()
        if eval_type not in _EVAL_TYPES:
            raise ArgumentTypeError(f"The argument 'eval_type' must be in {{{', '.join(map(repr, _EVAL_TYPES))}}}, but got {eval_type}")
        self._type = eval_type
        self._class_num = 0

    def _predictions_and_labels(self, inputs: tuple[Any, ...]) -> tuple[Array, Array]:
        """The inputs of an `update`, checked against each other and against those of earlier ones.

        Raises:
            ValueError: shapes or numbers of classes do not fit, or multilabel values are not 0 or 1.
        """
        y_pred, y = self._pair(inputs)
        if self._type == "classification":
            y = class_indices(y_pred, y)
        self._check_shape(y_pred, y)
        self._check_value(y_pred, y)
        self._class_num = same_classes(self, self._class_num, y_pred)
        return y_pred, y

    def _check_shape(self, y_pred: Array, y: Array) -> None:
        if self._type == "classification":
            check_class_shapes(self, y_pred, y)
        else:
            check_shapes(self, y.shape == y_pred.shape, "in multilabel case, both should have the same shape", y_pred, y)

    def _check_value(self, y_pred: Array, y: Array) -> None:
        if self._type == "multilabel" and not (np.equal(y_pred**2, y_pred).all() and np.equal(y**2, y).all()):
            raise ArgumentValueError("In multilabel case, all elements in y_pred (predicted value) and y (true value) should be 0 or 1.")


def check_class_shapes(metric: Metric, y_pred: Array, y: Array) -> None:
    """Raises ValueError if the labels' shape is not that of the predictions without the classes, their axis 1."""
    fit = y_pred.ndim > 1 and y.shape == y_pred.shape[:1] + y_pred.shape[2:]
    check_shapes(metric, fit, "the true value should have the shape of the predicted value without its index 1", y_pred, y)


def same_classes(metric: Metric, before: int, y_pred: Array) -> int:
    """The number of classes of `y_pred`; raises ValueError if it was another one `before` (0: none yet)."""
    found: int = y_pred.shape[1]
    if before not in (0, found):
        raise ArgumentValueError(
            f"For '{type(metric).__name__}.update', class number not match, last input predicted data contain {before} classes, "
            f"but current predicted data contain {found} classes, please check your predicted value(inputs[0])."
        )
    return found


def onehot_pair(metric: Metric, y_pred: Array, y: Array) -> tuple[Array, Array]:
    """Predicted and true classes as rows of 0 and 1, shape (samples, classes).

    Raises:
        ValueError: a label is not below the number of classes, or no whole number.
    """
    classes = y_pred.shape[1]
    given, y = y, y.astype(int)
    if (given != y).any():
        raise ArgumentValueError(f"For '{type(metric).__name__}.update', labels (input[1]) should be whole numbers, but got {given[given != y][0]}.")
    if y.size and y.max() + 1 > classes:
        raise ArgumentValueError(
            f"For '{type(metric).__name__}.update', predicted value (input[0]) should have the same classes number as true value (input[1]), "
            f"but got predicted value classes {classes}, true value classes {y.max() + 1}."
        )
    identity = np.eye(classes)
    return identity[y_pred.argmax(axis=1).reshape(-1)], identity[y.reshape(-1)]
