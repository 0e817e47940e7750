"""Neural network layers, losses and optimizers."""

from typing import TYPE_CHECKING

from graphcell.late import late as _late
from graphcell.nn import optim as optim
from graphcell.nn.cell import Cell as Cell

METRICS = (
    "F1", "MAE", "MSE", "ROC", "Accuracy", "BleuScore", "ConfusionMatrix", "ConfusionMatrixMetric", "CosineSimilarity", "Dice", "Fbeta",
    "HausdorffDistance", "Loss", "MeanSurfaceDistance", "Metric", "OcclusionSensitivity", "Perplexity", "Precision", "Recall",
    "RootMeanSquareDistance", "Top1CategoricalAccuracy", "Top5CategoricalAccuracy", "TopKCategoricalAccuracy", "auc", "get_metric_fn", "names",
    "rearrange_inputs",
)  # fmt: skip
"""The names of `train.metrics`, which MindSpore has in `nn` too."""

_ROOMS = {
    "dynamic_lr": (
        "cosine_decay_lr", "exponential_decay_lr", "inverse_decay_lr", "natural_exp_decay_lr", "piecewise_constant_lr", "polynomial_decay_lr",
        "warmup_lr",
    ),
    "layer.activation": (
        "CELU", "ELU", "GELU", "GLU", "LRN", "FastGelu", "Hardtanh", "HShrink", "HSigmoid", "HSwish", "LeakyReLU", "LogSigmoid", "LogSoftmax", "Mish",
        "PReLU", "ReLU", "ReLU6", "RReLU", "SeLU", "Sigmoid", "SiLU", "Softmax", "Softmax2d", "Softmin", "Softplus", "SoftShrink", "Softsign", "Tanh",
        "Tanhshrink", "Threshold", "get_activation",
    ),
    "layer.basic": (
        "ClipByNorm", "Dense", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "Flatten", "Identity", "L1Regularizer", "Linear", "MatrixSetDiag",
        "Norm", "OneHot", "Pad", "Tril", "Triu", "Unflatten", "Unfold", "Upsample",
    ),
    "layer.channel_shuffle": ("ChannelShuffle",),
    "layer.combined": ("Conv2dBnAct", "DenseBnAct"),
    "layer.container": ("CellDict", "CellList", "SequentialCell"),
    "layer.conv": ("Conv1d", "Conv1dTranspose", "Conv2d", "Conv2dTranspose", "Conv3d", "Conv3dTranspose"),
    "layer.dense": ("BiDense",),
    "layer.embedding": ("Embedding", "EmbeddingLookup"),
    "layer.image": ("MSSSIM", "PSNR", "SSIM", "CentralCrop", "ImageGradients", "PixelShuffle", "PixelUnshuffle"),
    "layer.math": ("DiGamma", "LBeta", "LGamma", "MatDet", "MatInverse", "MatMul", "Moments", "Range", "ReduceLogSumExp"),
    "layer.normalization": (
        "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "GroupNorm", "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d", "LayerNorm", "SyncBatchNorm",
    ),
    "layer.padding": (
        "ConstantPad1d", "ConstantPad2d", "ConstantPad3d", "ReflectionPad1d", "ReflectionPad2d", "ReflectionPad3d", "ReplicationPad1d",
        "ReplicationPad2d", "ReplicationPad3d", "ZeroPad2d",
    ),
    "layer.pooling": (
        "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool1d", "AdaptiveMaxPool2d", "AdaptiveMaxPool3d", "AvgPool1d",
        "AvgPool2d", "AvgPool3d", "FractionalMaxPool2d", "FractionalMaxPool3d", "LPPool1d", "LPPool2d", "MaxPool1d", "MaxPool2d", "MaxPool3d",
        "MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d",
    ),
    "layer.rnn_cells": ("GRUCell", "LSTMCell", "RNNCell"),
    "layer.rnns": ("GRU", "LSTM", "RNN"),
    "layer.timedistributed": ("TimeDistributed",),
    "layer.transformer": (
        "MultiheadAttention", "Transformer", "TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder", "TransformerEncoderLayer",
    ),
    "learning_rate_schedule": ("CosineDecayLR", "ExponentialDecayLR", "InverseDecayLR", "NaturalExpDecayLR", "PolynomialDecayLR", "WarmUpLR"),
    "loss.loss": (
        "BCELoss", "BCEWithLogitsLoss", "CosineEmbeddingLoss", "CrossEntropyLoss", "CTCLoss", "DiceLoss", "FocalLoss", "GaussianNLLLoss",
        "HingeEmbeddingLoss", "HuberLoss", "KLDivLoss", "L1Loss", "LossBase", "MAELoss", "MarginRankingLoss", "MSELoss", "MultiClassDiceLoss",
        "MultilabelMarginLoss", "MultiLabelSoftMarginLoss", "MultiMarginLoss", "NLLLoss", "PoissonNLLLoss", "RMSELoss", "SampledSoftmaxLoss",
        "SmoothL1Loss", "SoftMarginLoss", "SoftmaxCrossEntropyWithLogits", "TripletMarginLoss", "TripletMarginWithDistanceLoss",
    ),
    "optim": optim.__all__,
    "wrap": (
        "DistributedGradReducer", "DynamicLossScaleUpdateCell", "FixedLossScaleUpdateCell", "ForwardValueAndGrad", "GetNextSingleOp",
        "GradAccumulationCell", "MicroBatchInterleaved", "ParameterUpdate", "PipelineCell", "PipelineGradReducer", "TrainOneStepCell",
        "TrainOneStepWithLossScaleCell", "VirtualDatasetCellTriple", "WithEvalCell", "WithGradCell", "WithLossCell",
    ),
}  # fmt: skip

__all__ = sorted(["Cell", *(name for room in _ROOMS.values() for name in room)])

if TYPE_CHECKING:
    from graphcell.nn.dynamic_lr import *  # noqa: F403
    from graphcell.nn.layer.activation import *  # noqa: F403
    from graphcell.nn.layer.basic import *  # noqa: F403
    from graphcell.nn.layer.channel_shuffle import *  # noqa: F403
    from graphcell.nn.layer.combined import *  # noqa: F403
    from graphcell.nn.layer.container import *  # noqa: F403
    from graphcell.nn.layer.conv import *  # noqa: F403
    from graphcell.nn.layer.dense import *  # noqa: F403
    from graphcell.nn.layer.embedding import *  # noqa: F403
    from graphcell.nn.layer.image import *  # noqa: F403
    from graphcell.nn.layer.math import *  # noqa: F403
    from graphcell.nn.layer.normalization import *  # noqa: F403
    from graphcell.nn.layer.padding import *  # noqa: F403
    from graphcell.nn.layer.pooling import *  # noqa: F403
    from graphcell.nn.layer.rnn_cells import *  # noqa: F403
    from graphcell.nn.layer.rnns import *  # noqa: F403
    from graphcell.nn.layer.timedistributed import *  # noqa: F403
    from graphcell.nn.layer.transformer import *  # noqa: F403
    from graphcell.nn.learning_rate_schedule import *  # noqa: F403
    from graphcell.nn.loss.loss import *  # noqa: F403
    from graphcell.nn.optim import *  # noqa: F403
    from graphcell.nn.wrap import *  # noqa: F403

else:
    __getattr__, __dir__ = _late(__name__, {**_ROOMS, "metrics": METRICS})
