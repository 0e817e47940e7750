"""Layers under PyTorch's names; those with the arguments of `nn`'s are `nn`'s."""

from typing import TYPE_CHECKING

from graphcell.late import late as _late

_ROOMS = {
    "layer.activation": (
        "ELU", "GELU", "GLU", "SELU", "Hardtanh", "LogSigmoid", "LogSoftmax", "Mish", "PReLU", "ReLU6", "Sigmoid", "SiLU", "Softmax", "Tanh",
        "Threshold",
    ),
    "layer.basic": (
        "Dropout", "Dropout2d", "Embedding", "Fold", "Unfold", "Upsample", "UpsamplingBilinear2d", "UpsamplingNearest2d",
    ),
    "layer.conv": (
        "Conv1d", "Conv2d", "Conv3d", "ConvTranspose2d",
    ),
    "layer.loss": (
        "BCELoss", "BCEWithLogitsLoss", "CosineEmbeddingLoss", "CrossEntropyLoss", "KLDivLoss", "L1Loss", "MSELoss", "NLLLoss",
        "SmoothL1Loss", "SoftMarginLoss",
    ),
    "layer.normalization": (
        "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "GroupNorm", "LayerNorm", "SyncBatchNorm",
    ),
    "layer.padding": (
        "ZeroPad1d", "ZeroPad3d",
    ),
    "layer.pooling": (
        "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveMaxPool1d", "AvgPool1d", "AvgPool2d", "AvgPool3d",
    ),
    "layer.same": (
        "AdaptiveAvgPool3d", "AdaptiveMaxPool2d", "ConstantPad1d", "ConstantPad2d", "ConstantPad3d", "Flatten", "Hardshrink", "Hardsigmoid",
        "Hardswish", "Identity", "Linear", "MaxUnpool2d", "PixelShuffle", "ReLU", "ReflectionPad1d", "ReflectionPad2d", "ReflectionPad3d",
        "ReplicationPad1d", "ReplicationPad2d", "ReplicationPad3d", "Softshrink", "ZeroPad2d",
    ),
}  # fmt: skip

__all__ = sorted(["functional", *(name for room in _ROOMS.values() for name in room)])

if TYPE_CHECKING:
    from graphcell.mint.nn import functional as functional
    from graphcell.mint.nn.layer.activation import *  # noqa: F403
    from graphcell.mint.nn.layer.basic import *  # noqa: F403
    from graphcell.mint.nn.layer.conv import *  # noqa: F403
    from graphcell.mint.nn.layer.loss import *  # noqa: F403
    from graphcell.mint.nn.layer.normalization import *  # noqa: F403
    from graphcell.mint.nn.layer.padding import *  # noqa: F403
    from graphcell.mint.nn.layer.pooling import *  # noqa: F403
    from graphcell.mint.nn.layer.same import *  # noqa: F403

else:
    __getattr__, __dir__ = _late(__name__, _ROOMS)
