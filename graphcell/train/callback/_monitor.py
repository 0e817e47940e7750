"""What callbacks share that watch one quantity from epoch to epoch."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from graphcell.errors import ArgumentTypeError, ArgumentValueError
from graphcell.nn.checks import check_bool, check_number, non_negative_int
from graphcell.train.callback._callback import Callback, RunContext, loss_of

_SMALLER_IS_BETTER = {
    "hausdorff_distance", "mae", "mse", "loss", "perplexity", "mean_surface_distance", "root_mean_square_distance", "eval_loss",
}  # fmt: skip


class MonitorCallback(Callback):
    """Watches a quantity, and remembers the best value and for how many epochs there was none better.

    Args:
        monitor: 'loss' (of the last step), 'eval_loss', or the name of a metric.
        mode: 'min', 'max', or 'auto': 'min' for losses, errors and distances.
        min_delta: what differs by less is no improvement.
        patience: how many epochs without improvement are let pass.
        verbose: print what is done.

    Raises:
        TypeError, ValueError: arguments of the wrong kind.
    """

    def __init__(self, monitor: str, mode: str, min_delta: float, patience: int, verbose: bool):
        super().__init__()
        owner = type(self).__name__
        for name, value in (("monitor", monitor), ("mode", mode)):
            if not isinstance(value, str):
                raise ArgumentTypeError(f"For '{owner}', the type of '{name}' should be 'str', but got type '{type(value).__name__}'.")
        if mode not in ("auto", "min", "max"):
            raise ArgumentValueError(f"mode should be 'auto', 'min' or 'max', but got {mode}.")
        self.monitor, self.mode = monitor, mode
        self.min_delta = abs(check_number(owner, "min_delta", min_delta))
        self.patience = non_negative_int(owner, "patience", patience)
        self.verbose = check_bool(owner, "verbose", verbose)
        self._descending = mode == "min" or (mode == "auto" and monitor in _SMALLER_IS_BETTER)
        self._start()

    def _start(self) -> None:
        self.best = np.inf if self._descending else -np.inf
        self.wait = 0

    def on_train_begin(self, run_context: RunContext) -> None:
        """Forgets the run before."""
        self._start()

    def is_improvement(self, value: float, than: float) -> bool:
        """Whether `value` is better by more than `min_delta`."""
        return value < than - self.min_delta if self._descending else value > than + self.min_delta

    def _current(self, run: Any) -> float | None:
        """The quantity after an epoch; None, with a warning, where there is none of that name.

        Raises:
            ValueError: it is not one number.
        """
        results = run.get("eval_results", {})
        value = loss_of(run.net_outputs) if self.monitor == "loss" else results.get(self.monitor)
        if value is None:
            known = ", ".join(["loss", *results])
            warnings.warn(f"{type(self).__name__} watches '{self.monitor}', which is not available. There are: {known}", stacklevel=4)
            return None
        if np.ndim(value):
            raise ArgumentValueError(f"{type(self).__name__} only supports scalar monitor now.")
        return float(value)
