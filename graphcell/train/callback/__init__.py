"""Callbacks: what is done at the beginning and the end of runs, epochs and steps of `Model`."""

from typing import TYPE_CHECKING

from graphcell.missing import getattr_of as _getattr_of
from graphcell.train.callback._backup_and_restore import BackupAndRestore
from graphcell.train.callback._callback import Callback, RunContext
from graphcell.train.callback._callback import CallbackManager as _CallbackManager  # noqa: F401  (programs with loops of their own use these)
from graphcell.train.callback._callback import InternalCallbackParam as _InternalCallbackParam  # noqa: F401
from graphcell.train.callback._checkpoint import CheckpointConfig, ModelCheckpoint
from graphcell.train.callback._early_stop import EarlyStopping
from graphcell.train.callback._history import History
from graphcell.train.callback._lambda_callback import LambdaCallback
from graphcell.train.callback._loss_monitor import LossMonitor
from graphcell.train.callback._lr_scheduler_callback import LearningRateScheduler
from graphcell.train.callback._on_request_exit import OnRequestExit
from graphcell.train.callback._reduce_lr_on_plateau import ReduceLROnPlateau
from graphcell.train.callback._time_monitor import TimeMonitor
from graphcell.train.callback._unavailable import FlopsUtilizationCollector, SummaryCollector, SummaryLandscape, TrainFaultTolerance

__all__ = [
    "BackupAndRestore", "Callback", "CheckpointConfig", "EarlyStopping", "FlopsUtilizationCollector", "History", "LambdaCallback",
    "LearningRateScheduler", "LossMonitor", "ModelCheckpoint", "OnRequestExit", "ReduceLROnPlateau", "RunContext", "SummaryCollector",
    "SummaryLandscape", "TimeMonitor", "TrainFaultTolerance",
]  # fmt: skip

if not TYPE_CHECKING:  # type checkers know all names that there are
    __getattr__ = _getattr_of(__name__)
