"""The mean of the losses of batches."""

from __future__ import annotations

from typing import Any

from graphcell.errors import ArgumentValueError
from graphcell.train.metrics.metric import Metric, check_count, check_samples, rearrange_inputs


class Loss(Metric):
    """The mean of the losses of all batches, each counted once."""

    def __init__(self) -> None:
        super().__init__()
        self.clear()

    def clear(self) -> None:
        """Forgets what was collected."""
        self._sum_loss, self._total_num = 0.0, 0

    @rearrange_inputs
    def update(self, *inputs: Any) -> None:
        """Collects a batch's loss: a scalar, or a vector, of which the mean counts.

        Raises:
            ValueError: more dimensions, or another number of inputs.
        """
        check_count(self, inputs, 1, "loss")
        loss = self._convert_data(inputs[0])
        if loss.ndim > 1:
            raise ArgumentValueError(f"For 'Loss.update', the dimension of your input (loss) must be 1, but got {loss.ndim}.")
        self._sum_loss += float(loss.mean())
        self._total_num += 1

    def eval(self) -> float:
        """The mean; raises RuntimeError before any batch."""
        check_samples(self, self._total_num)
        return self._sum_loss / self._total_num
