"""`ReduceLROnPlateau`: lowers the learning rate when a quantity has stopped improving."""

from __future__ import annotations

from typing import Any

from graphcell import ops
from graphcell.errors import ArgumentTypeError, ArgumentValueError
from graphcell.nn.checks import check_number, non_negative_int
from graphcell.parameter import Parameter
from graphcell.tensor import Tensor
from graphcell.train.callback._callback import RunContext
from graphcell.train.callback._monitor import MonitorCallback


class ReduceLROnPlateau(MonitorCallback):
    """Multiplies the learning rate by a factor when the monitored quantity has not improved for some epochs.

    Args:
        monitor: 'eval_loss' (default), 'loss' (of the last step), or the name of a metric.
        factor: what the rate is multiplied by, between 0.0 and 1.0. Default 0.1.
        patience: how many epochs without improvement lower the rate. Default 10.
        verbose: print `Epoch 00003: ReduceLROnPlateau reducing learning rate to 0.01.`
        mode: 'min', 'max', or 'auto': 'min' for losses, errors and distances.
        min_delta: what differs by less is no improvement. Default 1e-4.
        cooldown: how many epochs after a change are not counted. Default 0.
        min_lr: the rate does not go below. Default 0.

    Raises:
        TypeError, ValueError: arguments of the wrong kind; while training, if the rate is no Parameter or the quantity is not one number.
    """

    def __init__(
        self, monitor: str = "eval_loss", factor: float = 0.1, patience: int = 10, verbose: bool = False, mode: str = "auto",
        min_delta: float = 1e-4, cooldown: int = 0, min_lr: float = 0,
    ):  # fmt: skip
        super().__init__(monitor, mode, min_delta, patience, verbose)
        if not isinstance(factor, float):
            raise ArgumentTypeError(f"For 'ReduceLROnPlateau', the 'factor' must be 'float', but got '{type(factor).__name__}'.")
        if not 0.0 < factor < 1.0:
            raise ArgumentValueError(f"For 'ReduceLROnPlateau', the 'factor' must be in range of (0.0, 1.0), but got {factor} with type 'float'.")
        self.factor = factor
        self.cooldown = non_negative_int("ReduceLROnPlateau", "cooldown", cooldown)
        self.min_lr = check_number("ReduceLROnPlateau", "min_lr", min_lr)

    def _start(self) -> None:
        super()._start()
        self.cooldown_counter = 0

    def on_train_epoch_end(self, run_context: RunContext) -> None:
        """Lowers the rate when it is time to."""
        run = run_context.original_args()
        if not isinstance(run.optimizer.learning_rate, Parameter):
            raise ArgumentValueError("ReduceLROnPlateau does not support dynamic learning rate and group learning rate now.")
        current = self._current(run)
        if current is None:
            return
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            self.wait = 0
        if self.is_improvement(current, self.best):
            self.best, self.wait = current, 0
        elif self.cooldown_counter <= 0:
            self.wait += 1
            if self.wait >= self.patience:
                self._lower(run)
                self.cooldown_counter, self.wait = self.cooldown, 0

    def _lower(self, run: Any) -> None:
        rate = run.optimizer.learning_rate
        if rate <= self.min_lr:
            return
        lowered = rate * self.factor
        new = lowered if lowered >= self.min_lr else Tensor(self.min_lr, rate.dtype)
        ops.assign(rate, new)
        if self.verbose:
            print(f"Epoch {run.cur_epoch_num:05d}: ReduceLROnPlateau reducing learning rate to {new}.")
