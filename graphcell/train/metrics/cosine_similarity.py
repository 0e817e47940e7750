"""Similarity of all pairs of rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphcell.errors import ArgumentValueError
from graphcell.nn.checks import check_bool, check_choice
from graphcell.train.metrics.metric import Metric, check_updated, rearrange_inputs


class CosineSimilarity(Metric):
    """The similarity of every row of a matrix with every other, of the last batch.

    Args:
        similarity: 'cosine', or 'dot' for the plain product.
        reduction: 'none', or 'sum' or 'mean' over the last axis.
        zero_diagonal: the similarity of a row with itself counts as 0.

    Raises:
        ValueError: another similarity or reduction. TypeError: zero_diagonal is no bool.
    """

    def __init__(self, similarity: str = "cosine", reduction: str = "none", zero_diagonal: bool = True):
        super().__init__()
        self.similarity = check_choice("CosineSimilarity", "similarity", similarity, ("dot", "cosine"))
        self.reduction = check_choice("CosineSimilarity", "reduction", reduction, ("none", "sum", "mean"))
        self.zero_diagonal = check_bool("CosineSimilarity", "zero_diagonal", zero_diagonal)
        self.clear()

    def clear(self) -> None:
        """Forgets what was collected."""
        self.sqr_mtx_res: Any = 0
        self._is_update = False

    @rearrange_inputs
    def update(self, inputs: Any) -> None:
        """Takes a matrix, shape (N, D). Raises ValueError: another number of dimensions."""
        rows = self._convert_data(inputs)
        if rows.ndim != 2:
            raise ArgumentValueError(f"For 'CosineSimilarity.update', the input must be a matrix, but got shape {rows.shape}.")
        if self.similarity == "cosine":
            rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        self.sqr_mtx_res = rows @ rows.T
        self._is_update = True

    def eval(self) -> Any:
        """Shape (N, N), or (N,) with a reduction; raises RuntimeError before `update`."""
        check_updated(self._is_update)
        result = self.sqr_mtx_res.copy()
        if self.zero_diagonal:
            np.fill_diagonal(result, 0)
        if self.reduction == "none":
            return result
        return result.mean(axis=-1) if self.reduction == "mean" else result.sum(axis=-1)
