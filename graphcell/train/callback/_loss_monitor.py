"""`LossMonitor`: prints the loss while training."""

from __future__ import annotations

import math

from graphcell.errors import ArgumentValueError
from graphcell.nn.checks import non_negative_int
from graphcell.train.callback._callback import Callback, RunContext, loss_of


class LossMonitor(Callback):
    """Prints `epoch: 1 step: 1, loss is 0.5`, and after an epoch with an evaluation its metrics.

    Args:
        per_print_times: steps from one line to the next; 0 prints none. Default 1.

    Raises:
        ValueError: per_print_times is negative; while training, if the loss is NaN or infinite. TypeError: it is no int.
    """

    def __init__(self, per_print_times: int = 1):
        super().__init__()
        self._per_print_times = non_negative_int("LossMonitor", "per_print_times", per_print_times)
        self._last_print_time = 0

    def step_end(self, run_context: RunContext) -> None:
        """Prints the loss when it is time to."""
        run = run_context.original_args()
        epoch, step = run.get("cur_epoch_num", 1), (run.cur_step_num - 1) % run.batch_num + 1
        loss = loss_of(run.net_outputs)
        if isinstance(loss, float) and not math.isfinite(loss):
            raise ArgumentValueError(
                f"In epoch: {epoch} step: {step}, loss is NAN or INF, training process cannot continue, terminating training."
            )
        if not self._per_print_times:
            return
        if run.cur_step_num <= self._last_print_time:  # another run has begun
            behind = self._last_print_time - run.cur_step_num
            self._last_print_time -= (behind // self._per_print_times + 1) * self._per_print_times
        if run.cur_step_num - self._last_print_time >= self._per_print_times:
            self._last_print_time = run.cur_step_num
            print(f"epoch: {epoch} step: {step}, loss is {loss}", flush=True)

    def on_train_epoch_end(self, run_context: RunContext) -> None:
        """Prints the metrics, if the epoch was evaluated."""
        run = run_context.original_args()
        if run.get("metrics"):
            print(f"Eval result: epoch {run.cur_epoch_num}, metrics: {run.metrics}")
