"""Neural network layers, losses and optimizers."""

from graphcell.nn.activation import (
    CELU, ELU, GELU, GLU, FastGelu, Hardtanh, HShrink, HSigmoid, HSwish, Identity, LeakyReLU, LogSigmoid, LogSoftmax, Mish, PReLU, ReLU, ReLU6, RReLU,
    SeLU, Sigmoid, SiLU, Softmax, Softmax2d, Softmin, Softplus, SoftShrink, Softsign, Tanh, Tanhshrink, Threshold, get_activation,
)  # fmt: skip
from graphcell.nn.cell import Cell
from graphcell.nn.container import CellDict, CellList, SequentialCell
from graphcell.nn.convolution import Conv1d, Conv1dTranspose, Conv2d, Conv2dTranspose, Conv3d, Conv3dTranspose
from graphcell.nn.dynamic_lr import (
    cosine_decay_lr, exponential_decay_lr, inverse_decay_lr, natural_exp_decay_lr, piecewise_constant_lr, polynomial_decay_lr, warmup_lr,
)  # fmt: skip
from graphcell.nn.learning_rate_schedule import (
    CosineDecayLR, ExponentialDecayLR, InverseDecayLR, NaturalExpDecayLR, PolynomialDecayLR, WarmUpLR,
)  # fmt: skip
from graphcell.nn.linear import Dense, Dropout, Dropout1d, Dropout2d, Dropout3d, Embedding, Flatten, Linear, Unflatten
from graphcell.nn.loss import (
    BCELoss, BCEWithLogitsLoss, CosineEmbeddingLoss, CrossEntropyLoss, DiceLoss, GaussianNLLLoss, HingeEmbeddingLoss, HuberLoss, KLDivLoss, L1Loss,
    LossBase, MAELoss, MarginRankingLoss, MSELoss, MultiLabelSoftMarginLoss, MultiMarginLoss, NLLLoss, PoissonNLLLoss, RMSELoss, SmoothL1Loss,
    SoftMarginLoss, SoftmaxCrossEntropyWithLogits, TripletMarginLoss, TripletMarginWithDistanceLoss,
)  # fmt: skip
from graphcell.nn.normalization import (
    BatchNorm1d, BatchNorm2d, BatchNorm3d, GroupNorm, InstanceNorm1d, InstanceNorm2d, InstanceNorm3d, LayerNorm,
)  # fmt: skip
from graphcell.nn.optim import (
    ASGD, SGD, Adadelta, Adagrad, Adam, AdaMax, AdamWeightDecay, Lamb, Momentum, Optimizer, RMSProp, Rprop,
)  # fmt: skip
from graphcell.nn.padding import (
    ChannelShuffle, ConstantPad1d, ConstantPad2d, ConstantPad3d, Pad, PixelShuffle, PixelUnshuffle, ReflectionPad1d, ReflectionPad2d, ReflectionPad3d,
    ReplicationPad1d, ReplicationPad2d, ReplicationPad3d, ZeroPad2d,
)  # fmt: skip
from graphcell.nn.pooling import (
    AdaptiveAvgPool1d, AdaptiveAvgPool2d, AdaptiveAvgPool3d, AdaptiveMaxPool1d, AdaptiveMaxPool2d, AdaptiveMaxPool3d, AvgPool1d, AvgPool2d, AvgPool3d,
    MaxPool1d, MaxPool2d, MaxPool3d,
)  # fmt: skip
from graphcell.nn.wrap import (
    DynamicLossScaleUpdateCell, FixedLossScaleUpdateCell, ForwardValueAndGrad, ParameterUpdate, TrainOneStepCell, TrainOneStepWithLossScaleCell,
    WithEvalCell, WithLossCell,
)  # fmt: skip

__all__ = [
    "ASGD", "CELU", "ELU", "GELU", "GLU", "SGD", "AdaMax", "Adadelta", "Adagrad", "Adam", "AdamWeightDecay", "AdaptiveAvgPool1d", "AdaptiveAvgPool2d",
    "AdaptiveAvgPool3d", "AdaptiveMaxPool1d", "AdaptiveMaxPool2d", "AdaptiveMaxPool3d", "AvgPool1d", "AvgPool2d", "AvgPool3d", "BCELoss",
    "BCEWithLogitsLoss", "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "Cell", "CellDict", "CellList", "ChannelShuffle", "ConstantPad1d",
    "ConstantPad2d", "ConstantPad3d", "Conv1d", "Conv1dTranspose", "Conv2d", "Conv2dTranspose", "Conv3d", "Conv3dTranspose", "CosineDecayLR",
    "CosineEmbeddingLoss", "CrossEntropyLoss", "Dense", "DiceLoss", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "DynamicLossScaleUpdateCell",
    "Embedding", "ExponentialDecayLR", "FastGelu", "FixedLossScaleUpdateCell", "Flatten", "ForwardValueAndGrad", "GaussianNLLLoss", "GroupNorm",
    "HShrink", "HSigmoid", "HSwish", "Hardtanh", "HingeEmbeddingLoss", "HuberLoss", "Identity", "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d",
    "InverseDecayLR", "KLDivLoss", "L1Loss", "Lamb", "LayerNorm", "LeakyReLU", "Linear", "LogSigmoid", "LogSoftmax", "LossBase", "MAELoss", "MSELoss",
    "MarginRankingLoss", "MaxPool1d", "MaxPool2d", "MaxPool3d", "Mish", "Momentum", "MultiLabelSoftMarginLoss", "MultiMarginLoss", "NLLLoss",
    "NaturalExpDecayLR", "Optimizer", "PReLU", "Pad", "ParameterUpdate", "PixelShuffle", "PixelUnshuffle", "PoissonNLLLoss", "PolynomialDecayLR",
    "RMSELoss", "RMSProp", "RReLU", "ReLU", "ReLU6", "ReflectionPad1d", "ReflectionPad2d", "ReflectionPad3d", "ReplicationPad1d", "ReplicationPad2d",
    "ReplicationPad3d", "Rprop", "SeLU", "SequentialCell", "SiLU", "Sigmoid", "SmoothL1Loss", "SoftMarginLoss", "SoftShrink", "Softmax", "Softmax2d",
    "SoftmaxCrossEntropyWithLogits", "Softmin", "Softplus", "Softsign", "Tanh", "Tanhshrink", "Threshold", "TrainOneStepCell",
    "TrainOneStepWithLossScaleCell", "TripletMarginLoss", "TripletMarginWithDistanceLoss", "Unflatten", "WarmUpLR", "WithEvalCell", "WithLossCell",
    "ZeroPad2d", "cosine_decay_lr", "exponential_decay_lr", "get_activation", "inverse_decay_lr", "natural_exp_decay_lr", "piecewise_constant_lr",
    "polynomial_decay_lr", "warmup_lr",
]  # fmt: skip
