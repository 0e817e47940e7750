"""Cells around a network: its loss, its gradients, its training step, its evaluation; loss scaling."""

from graphcell.nn.wrap.cell_wrapper import (
    ForwardValueAndGrad,
    GetNextSingleOp,
    GradAccumulationCell,
    MicroBatchInterleaved,
    ParameterUpdate,
    PipelineCell,
    TrainOneStepCell,
    VirtualDatasetCellTriple,
    WithEvalCell,
    WithGradCell,
    WithLossCell,
)  # fmt: skip
from graphcell.nn.wrap.grad_reducer import DistributedGradReducer, PipelineGradReducer
from graphcell.nn.wrap.loss_scale import DynamicLossScaleUpdateCell, FixedLossScaleUpdateCell, TrainOneStepWithLossScaleCell

__all__ = [
    "DistributedGradReducer", "DynamicLossScaleUpdateCell", "FixedLossScaleUpdateCell", "ForwardValueAndGrad", "GetNextSingleOp",
    "GradAccumulationCell", "MicroBatchInterleaved", "ParameterUpdate", "PipelineCell", "PipelineGradReducer", "TrainOneStepCell",
    "TrainOneStepWithLossScaleCell", "VirtualDatasetCellTriple", "WithEvalCell", "WithGradCell", "WithLossCell",
]  # fmt: skip
