"""`EarlyStopping`: ends the training when a quantity has stopped improving."""

from __future__ import annotations

from graphcell import buffer
from graphcell.nn.checks import check_bool, check_number
from graphcell.parameter import Parameter
from graphcell.tensor import Tensor
from graphcell.train.callback._callback import RunContext
from graphcell.train.callback._monitor import MonitorCallback
from graphcell.train.serialization import load_param_into_net


class EarlyStopping(MonitorCallback):
    """Ends the training when the monitored quantity has not improved for some epochs.

    Args:
        monitor: 'eval_loss' (default), 'loss' (of the last step), or the name of a metric.
        min_delta: what differs by less is no improvement. Default 0.
        patience: how many epochs without improvement end the training. Default 0.
        verbose: print `Epoch 00003: early stopping`.
        mode: 'min', 'max', or 'auto': 'min' for losses, errors and distances.
        baseline: only values better than this count as improvement.
        restore_best_weights: at the end, give the training network the Parameters of the best epoch.

    Raises:
        TypeError, ValueError: arguments of the wrong kind; while training, if the quantity is not one number.
    """

    def __init__(
        self, monitor: str = "eval_loss", min_delta: float = 0, patience: int = 0, verbose: bool = False, mode: str = "auto",
        baseline: float | None = None, restore_best_weights: bool = False,
    ):  # fmt: skip
        super().__init__(monitor, mode, min_delta, patience, verbose)
        self.baseline = None if baseline is None else check_number("EarlyStopping", "baseline", baseline)
        self.restore_best_weights = check_bool("EarlyStopping", "restore_best_weights", restore_best_weights)

    def _start(self) -> None:
        super()._start()
        self.stopped_epoch = 0
        self.best_weights_param_dict: dict[str, Parameter] | None = None

    def on_train_epoch_end(self, run_context: RunContext) -> None:
        """Asks to stop when it is time to."""
        run = run_context.original_args()
        current = self._current(run)
        if current is None:
            return
        better = self.is_improvement(current, self.best)
        if self.restore_best_weights and (better or self.best_weights_param_dict is None):
            self.best_weights_param_dict = {p.name: _copy(p) for p in run.train_network.get_parameters()}
        self.wait += 1
        if better:
            self.best = current
            if self.baseline is None or self.is_improvement(current, self.baseline):
                self.wait = 0
        if self.wait < self.patience:
            return
        self.stopped_epoch = run.cur_epoch_num
        run_context.request_stop()
        if self.best_weights_param_dict is not None:
            if self.verbose:
                print("Restoring model weights from the end of the best epoch.")
            load_param_into_net(run.train_network, dict(self.best_weights_param_dict))

    def on_train_end(self, run_context: RunContext) -> None:
        """Says which epoch was the last."""
        if self.stopped_epoch > 0 and self.verbose:
            print(f"Epoch {self.stopped_epoch:05d}: early stopping")


def _copy(param: Parameter) -> Parameter:
    return Parameter(Tensor.of_array(buffer.copy(param.array())), name=param.name)
