"""Neural network layers, losses and optimizers."""

from graphcell.nn.activation import (
    ELU, GELU, HSigmoid, HSwish, Identity, LeakyReLU, LogSigmoid, LogSoftmax, Mish, PReLU, ReLU, ReLU6, Sigmoid, SiLU, Softmax, Softplus, Softsign,
    Tanh, get_activation,
)
from graphcell.nn.cell import Cell
from graphcell.nn.container import CellDict, CellList, SequentialCell
from graphcell.nn.convolution import Conv1d, Conv2d, Conv2dTranspose, Conv3d
from graphcell.nn.linear import Dense, Dropout, Dropout1d, Dropout2d, Dropout3d, Embedding, Flatten
from graphcell.nn.loss import (
    BCELoss, BCEWithLogitsLoss, CosineEmbeddingLoss, CrossEntropyLoss, HuberLoss, KLDivLoss, L1Loss, LossBase, MSELoss, NLLLoss, SmoothL1Loss,
    SoftmaxCrossEntropyWithLogits,
)
from graphcell.nn.normalization import BatchNorm1d, BatchNorm2d, BatchNorm3d, GroupNorm, LayerNorm
from graphcell.nn.optim import SGD, Adam, AdamWeightDecay, Momentum, Optimizer
from graphcell.nn.pooling import AdaptiveAvgPool2d, AdaptiveMaxPool2d, AvgPool1d, AvgPool2d, MaxPool1d, MaxPool2d
from graphcell.nn.wrap import TrainOneStepCell, WithEvalCell, WithLossCell

__all__ = [
    "ELU", "GELU", "SGD", "Adam", "AdamWeightDecay", "AdaptiveAvgPool2d", "AdaptiveMaxPool2d", "AvgPool1d", "AvgPool2d", "BCELoss",
    "BCEWithLogitsLoss", "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "Cell", "CellDict", "CellList", "Conv1d", "Conv2d", "Conv2dTranspose", "Conv3d",
    "CosineEmbeddingLoss", "CrossEntropyLoss", "Dense", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "Embedding", "Flatten", "GroupNorm", "HSigmoid",
    "HSwish", "HuberLoss", "Identity", "KLDivLoss", "L1Loss", "LayerNorm", "LeakyReLU", "LogSigmoid", "LogSoftmax", "LossBase", "MSELoss", "MaxPool1d",
    "MaxPool2d", "Mish", "Momentum", "NLLLoss", "Optimizer", "PReLU", "ReLU", "ReLU6", "SequentialCell", "SiLU", "Sigmoid", "SmoothL1Loss", "Softmax",
    "SoftmaxCrossEntropyWithLogits", "Softplus", "Softsign", "Tanh", "TrainOneStepCell", "WithEvalCell", "WithLossCell", "get_activation",
]
