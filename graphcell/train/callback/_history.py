"""`History`: keeps what each epoch of training gave."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphcell.tensor import Tensor
from graphcell.train.callback._callback import Callback, RunContext


class History(Callback):
    """Records each epoch's last network output (its mean), and its metrics, in `history`: name → list. `epoch` has the numbers of the epochs."""

    def __init__(self) -> None:
        super().__init__()
        self.history: dict[str, list[Any]] = {}
        self.epoch: dict[str, list[int]] | None = None

    def begin(self, run_context: RunContext) -> None:
        """Starts a new list of epochs."""
        self.epoch = {"epoch": []}

    def epoch_end(self, run_context: RunContext) -> None:
        """Records an epoch."""
        run = run_context.original_args()
        assert self.epoch is not None
        self.epoch["epoch"].append(run.get("cur_epoch_num", 1))
        for name, value in {"net_output": _mean(run.net_outputs), **run.get("metrics", {})}.items():
            self.history.setdefault(name, []).append(value)


def _mean(outputs: Any) -> Any:
    first = outputs[0] if isinstance(outputs, (tuple, list)) else outputs
    if not isinstance(first, Tensor):
        return outputs
    return float(str(np.mean(first.asnumpy())))  # the shortest number that means the same in the Tensor's precision
