"""Training: `Model`, callbacks, metrics, checkpoints."""

from typing import TYPE_CHECKING

from graphcell.late import late as _late
from graphcell.nn import METRICS as _METRICS
from graphcell.train.data_sink import data_sink as data_sink

_ROOMS = {
    "amp": ("build_train_network",),
    "callback": (
        "BackupAndRestore", "Callback", "CheckpointConfig", "EarlyStopping", "FlopsUtilizationCollector", "History", "LambdaCallback",
        "LearningRateScheduler", "LossMonitor", "ModelCheckpoint", "OnRequestExit", "ReduceLROnPlateau", "RunContext", "SummaryCollector",
        "SummaryLandscape", "TimeMonitor", "TrainFaultTolerance",
    ),
    "checkpoint_tools": ("ckpt_to_safetensors", "load_checkpoint_async", "safetensors_to_ckpt"),
    "dataset_helper": ("DatasetHelper", "connect_network_with_dataset"),
    "loss_scale_manager": ("DynamicLossScaleManager", "FixedLossScaleManager", "LossScaleManager"),
    "metrics": _METRICS,
    "model": ("Model",),
    "serialization": ("async_ckpt_thread_status", "load_checkpoint", "load_param_into_net", "save_checkpoint"),
    "summary": ("SummaryRecord",),
}  # fmt: skip

__all__ = sorted(["data_sink", *(name for room in _ROOMS.values() for name in room)])

if TYPE_CHECKING:
    from graphcell.train.amp import *  # noqa: F403
    from graphcell.train.callback import *  # noqa: F403
    from graphcell.train.checkpoint_tools import *  # noqa: F403
    from graphcell.train.dataset_helper import *  # noqa: F403
    from graphcell.train.loss_scale_manager import *  # noqa: F403
    from graphcell.train.metrics import *  # noqa: F403
    from graphcell.train.model import *  # noqa: F403
    from graphcell.train.serialization import *  # noqa: F403
    from graphcell.train.summary import *  # noqa: F403
else:
    __getattr__, __dir__ = _late(__name__, _ROOMS)
