"""Training: `Model`, callbacks, metrics, checkpoints."""

from typing import TYPE_CHECKING

from graphcell.missing import getattr_of as _getattr_of
from graphcell.train.amp import build_train_network
from graphcell.train.callback import (
    BackupAndRestore,
    Callback,
    CheckpointConfig,
    EarlyStopping,
    FlopsUtilizationCollector,
    History,
    LambdaCallback,
    LearningRateScheduler,
    LossMonitor,
    ModelCheckpoint,
    OnRequestExit,
    ReduceLROnPlateau,
    RunContext,
    SummaryCollector,
    SummaryLandscape,
    TimeMonitor,
    TrainFaultTolerance,
)  # fmt: skip
from graphcell.train.checkpoint_tools import ckpt_to_safetensors, load_checkpoint_async, safetensors_to_ckpt
from graphcell.train.data_sink import data_sink
from graphcell.train.dataset_helper import DatasetHelper, connect_network_with_dataset
from graphcell.train.loss_scale_manager import DynamicLossScaleManager, FixedLossScaleManager, LossScaleManager
from graphcell.train.metrics import (
    F1,
    MAE,
    MSE,
    ROC,
    Accuracy,
    BleuScore,
    ConfusionMatrix,
    ConfusionMatrixMetric,
    CosineSimilarity,
    Dice,
    Fbeta,
    HausdorffDistance,
    Loss,
    MeanSurfaceDistance,
    Metric,
    OcclusionSensitivity,
    Perplexity,
    Precision,
    Recall,
    RootMeanSquareDistance,
    Top1CategoricalAccuracy,
    Top5CategoricalAccuracy,
    TopKCategoricalAccuracy,
    auc,
    get_metric_fn,
    names,
    rearrange_inputs,
)  # fmt: skip
from graphcell.train.model import Model
from graphcell.train.serialization import async_ckpt_thread_status, load_checkpoint, load_param_into_net, save_checkpoint
from graphcell.train.summary import SummaryRecord

__all__ = [
    "F1", "MAE", "MSE", "ROC", "Accuracy", "BackupAndRestore", "BleuScore", "Callback", "CheckpointConfig", "ConfusionMatrix",
    "ConfusionMatrixMetric", "CosineSimilarity", "DatasetHelper", "Dice", "DynamicLossScaleManager", "EarlyStopping", "Fbeta",
    "FixedLossScaleManager", "FlopsUtilizationCollector", "HausdorffDistance", "History", "LambdaCallback", "LearningRateScheduler", "Loss",
    "LossMonitor", "LossScaleManager", "MeanSurfaceDistance", "Metric", "Model", "ModelCheckpoint", "OcclusionSensitivity", "OnRequestExit",
    "Perplexity", "Precision", "Recall", "ReduceLROnPlateau", "RootMeanSquareDistance", "RunContext", "SummaryCollector", "SummaryLandscape", "SummaryRecord",
    "TimeMonitor", "Top1CategoricalAccuracy", "Top5CategoricalAccuracy", "TopKCategoricalAccuracy", "TrainFaultTolerance", "async_ckpt_thread_status",
    "auc", "build_train_network", "ckpt_to_safetensors", "connect_network_with_dataset", "data_sink", "get_metric_fn", "load_checkpoint",
    "load_checkpoint_async", "load_param_into_net", "names", "rearrange_inputs", "safetensors_to_ckpt", "save_checkpoint",
]  # fmt: skip

if not TYPE_CHECKING:  # type checkers know all names that there are
    __getattr__ = _getattr_of(__name__)
