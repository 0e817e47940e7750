"""Perplexity of predicted probabilities."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphcell.errors import ExecutionError, IndexRangeError
from graphcell.nn.checks import check_int
from graphcell.train.metrics.metric import Metric, check_samples, rearrange_inputs

_SMALLEST = 1e-10  # the smallest probability that is told from 0


class Perplexity(Metric):
    """exp of the mean of -log of the probability of each right label.

    Args:
        ignore_label: samples with this label do not count. Default None: all count.

    Raises:
        TypeError: ignore_label is neither None nor an int.
    """

    def __init__(self, ignore_label: int | None = None):
        super().__init__()
        self.ignore_label = None if ignore_label is None else check_int("Perplexity", "ignore_label", ignore_label)
        self.clear()

    def clear(self) -> None:
        """Forgets what was collected."""
        self._sum_metric, self._num_inst = 0.0, 0

    @rearrange_inputs
    def update(self, *inputs: Any) -> None:
        """Collects probabilities (N, C) and labels (N).

        Raises:
            RuntimeError: another number of labels than of rows of probabilities. IndexError: a label that is no class.
        """
        probabilities, labels = self._pair(inputs, "predicted value, label")
        classes = probabilities.shape[-1] if probabilities.ndim else 1
        if labels.size * classes != probabilities.size:
            raise ExecutionError(
                "For 'Perplexity.update', predicted value (input[0]) and label (input[1]) should have the same shape, "
                f"but got predicted value shape {probabilities.shape}, label shape {labels.shape}."
            )
        labels = labels.reshape(-1).astype(int)
        counted = np.ones(labels.shape, bool) if self.ignore_label is None else labels != self.ignore_label
        wrong = labels[counted & ((labels < 0) | (labels >= classes))]
        if wrong.size:
            raise IndexRangeError(f"For 'Perplexity.update', labels (input[1]) must be 0 to {classes - 1}, but got {wrong[0]}.")
        right = probabilities.reshape(labels.size, classes)[counted, labels[counted]]
        self._sum_metric -= float(np.log(np.maximum(_SMALLEST, right)).sum())
        self._num_inst += right.size

    def eval(self) -> float:
        """The perplexity; raises RuntimeError before any sample."""
        check_samples(self, self._num_inst)
        return math.exp(self._sum_metric / self._num_inst)
