"""`LearningRateScheduler`: sets the learning rate after each step."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from graphcell import dtype as dt
from graphcell import ops
from graphcell.errors import ArgumentTypeError, ArgumentValueError
from graphcell.parameter import Parameter
from graphcell.tensor import Tensor
from graphcell.train.callback._callback import Callback, RunContext


class LearningRateScheduler(Callback):
    """Sets the learning rate to what a function gives.

    Args:
        learning_rate_function: (rate, number of the step) → rate.

    Raises:
        TypeError: no function; while training, if it gives no number. ValueError: while training, if the optimizer's rate is no single Parameter.
    """

    def __init__(self, learning_rate_function: Callable[[float, int], float]):
        super().__init__()
        if not callable(learning_rate_function):
            raise ArgumentTypeError(f"For 'LearningRateScheduler', the 'learning_rate_function' must be a function, but got {type(learning_rate_function)}.")
        self.learning_rate_function = learning_rate_function

    def step_end(self, run_context: RunContext) -> None:
        """Asks the function for the next rate."""
        run = run_context.original_args()
        rate = run.optimizer.learning_rate
        if not isinstance(rate, Parameter):
            raise ArgumentValueError("LearningRateScheduler does not support dynamic learning rate and group learning rate.")
        now = float(str(rate.asnumpy()))  # the shortest number that means the same in float32, as the user wrote it
        new = self.learning_rate_function(now, run.cur_step_num)
        if not isinstance(new, (int, float, np.number, Tensor)):
            raise ArgumentTypeError(f"For 'LearningRateScheduler', the 'learning_rate_function' must return a number, but it returned {new!r}.")
        if not math.isclose(now, new, rel_tol=1e-10):
            ops.assign(rate, Tensor(new, dt.float32))
