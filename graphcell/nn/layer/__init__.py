"""The layers, in the modules where MindSpore has them: `nn.layer.conv.Conv2d`, …; all are names of `nn` too."""

from typing import TYPE_CHECKING

from graphcell.late import late as _late

_ROOMS = {
    "activation": (
        "CELU", "ELU", "GELU", "GLU", "LRN", "FastGelu", "Hardtanh", "HShrink", "HSigmoid", "HSwish", "LeakyReLU", "LogSigmoid", "LogSoftmax", "Mish",
        "PReLU", "ReLU", "ReLU6", "RReLU", "SeLU", "Sigmoid", "SiLU", "Softmax", "Softmax2d", "Softmin", "Softplus", "SoftShrink", "Softsign", "Tanh",
        "Tanhshrink", "Threshold", "get_activation",
    ),
    "basic": (
        "ClipByNorm", "Dense", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "Flatten", "Identity", "L1Regularizer", "Linear", "MatrixSetDiag",
        "Norm", "OneHot", "Pad", "Tril", "Triu", "Unflatten", "Unfold", "Upsample",
    ),
    "channel_shuffle": ("ChannelShuffle",),
    "combined": ("Conv2dBnAct", "DenseBnAct"),
    "container": ("CellDict", "CellList", "SequentialCell"),
    "conv": ("Conv1d", "Conv1dTranspose", "Conv2d", "Conv2dTranspose", "Conv3d", "Conv3dTranspose"),
    "dense": ("BiDense",),
    "embedding": ("Embedding", "EmbeddingLookup"),
    "image": ("MSSSIM", "PSNR", "SSIM", "CentralCrop", "ImageGradients", "PixelShuffle", "PixelUnshuffle"),
    "math": ("DiGamma", "LBeta", "LGamma", "MatDet", "MatInverse", "MatMul", "Moments", "Range", "ReduceLogSumExp"),
    "normalization": (
        "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "GroupNorm", "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d", "LayerNorm", "SyncBatchNorm",
    ),
    "padding": (
        "ConstantPad1d", "ConstantPad2d", "ConstantPad3d", "ReflectionPad1d", "ReflectionPad2d", "ReflectionPad3d", "ReplicationPad1d",
        "ReplicationPad2d", "ReplicationPad3d", "ZeroPad2d",
    ),
    "pooling": (
        "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool1d", "AdaptiveMaxPool2d", "AdaptiveMaxPool3d", "AvgPool1d",
        "AvgPool2d", "AvgPool3d", "FractionalMaxPool2d", "FractionalMaxPool3d", "LPPool1d", "LPPool2d", "MaxPool1d", "MaxPool2d", "MaxPool3d",
        "MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d",
    ),
    "rnn_cells": ("GRUCell", "LSTMCell", "RNNCell"),
    "rnns": ("GRU", "LSTM", "RNN"),
    "timedistributed": ("TimeDistributed",),
    "transformer": (
        "MultiheadAttention", "Transformer", "TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder", "TransformerEncoderLayer",
    ),
}  # fmt: skip

__all__ = sorted(name for room in _ROOMS.values() for name in room)

if TYPE_CHECKING:
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
else:
    __getattr__, __dir__ = _late(__name__, _ROOMS)
