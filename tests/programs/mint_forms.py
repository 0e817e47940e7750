"""What mint's names look like: arguments with their defaults, and layers as they are printed, with their Parameters."""

from __future__ import annotations

import inspect
from functools import partial, reduce
from typing import Any

from tests.expressions import mint_scope

FUNCTIONS = (
    "abs", "add", "addbmm", "addcdiv", "addmm", "addmv", "all", "allclose", "amax", "amin", "any", "arange", "arctan2", "argmax", "argmin",
    "argsort", "atan2", "baddbmm", "bernoulli", "bincount", "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "bmm", "broadcast_to",
    "cat", "cdist", "chunk", "clamp", "clone", "count_nonzero", "cross", "cummax", "cummin", "cumprod", "cumsum", "diag", "diff", "div", "dot",
    "einsum", "equal", "eye", "fix", "flatten", "flip", "fmod", "frac", "full", "full_like", "gather", "histc", "imag", "index_add",
    "index_select", "inverse", "isnan", "kthvalue", "lerp", "linalg.inv", "linalg.matrix_norm", "linalg.norm", "linalg.qr", "linalg.vector_norm",
    "linspace", "log10", "log2", "logaddexp", "logaddexp2", "logsumexp", "masked_select", "matmul", "max", "mean", "median", "meshgrid", "min",
    "mm", "mul", "multinomial", "mv", "nan_to_num", "nansum", "narrow", "nonzero", "norm", "normal", "ones", "outer", "permute", "pow", "prod",
    "rand", "rand_like", "randint", "randint_like", "randn", "randn_like", "randperm", "real", "remainder", "repeat_interleave", "reshape",
    "roll", "scatter", "scatter_add", "searchsorted", "select", "softmax", "sort", "special.log_softmax", "split", "squeeze", "stack", "std",
    "std_mean", "sum", "swapaxes", "t", "take", "tile", "topk", "trace", "transpose", "triangular_solve", "tril", "triu", "unbind", "unique",
    "unique_consecutive", "unsqueeze", "var", "var_mean", "where", "zeros", "conv2d",
)  # fmt: skip
NETWORK = (
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d", "avg_pool1d", "avg_pool2d",
    "avg_pool3d", "batch_norm", "binary_cross_entropy", "binary_cross_entropy_with_logits", "conv1d", "conv2d", "conv3d", "conv_transpose2d",
    "cosine_embedding_loss", "cross_entropy", "dropout", "dropout2d", "elu", "elu_", "embedding", "flatten", "fold", "gelu", "glu", "grid_sample",
    "group_norm", "hardshrink", "hardtanh", "hardtanh_", "interpolate", "kl_div", "l1_loss", "layer_norm", "leaky_relu", "linear", "log_softmax",
    "logsigmoid", "max_pool2d", "max_unpool2d", "mish", "mse_loss", "nll_loss", "normalize", "one_hot", "pad", "pixel_shuffle", "prelu", "relu",
    "relu6", "relu_", "selu", "sigmoid", "silu", "smooth_l1_loss", "soft_margin_loss", "softmax", "softplus", "softshrink", "tanh", "threshold",
    "threshold_", "unfold", "upsample",
)  # fmt: skip
CLASSES = (
    "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool1d", "AdaptiveMaxPool2d", "AvgPool1d", "AvgPool2d",
    "AvgPool3d", "BCELoss", "BCEWithLogitsLoss", "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "ConstantPad1d", "ConstantPad2d", "ConstantPad3d",
    "Conv1d", "Conv2d", "Conv3d", "ConvTranspose2d", "CosineEmbeddingLoss", "CrossEntropyLoss", "Dropout", "Dropout2d", "ELU", "Embedding",
    "Flatten", "Fold", "GELU", "GLU", "GroupNorm", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "Identity", "KLDivLoss", "L1Loss",
    "LayerNorm", "Linear", "LogSigmoid", "LogSoftmax", "MSELoss", "MaxUnpool2d", "Mish", "NLLLoss", "PReLU", "PixelShuffle", "ReLU", "ReLU6",
    "ReflectionPad1d", "ReflectionPad2d", "ReflectionPad3d", "ReplicationPad1d", "ReplicationPad2d", "ReplicationPad3d", "SELU", "SiLU",
    "Sigmoid", "SmoothL1Loss", "SoftMarginLoss", "Softmax", "Softshrink", "SyncBatchNorm", "Tanh", "Threshold", "Unfold", "Upsample",
    "UpsamplingBilinear2d", "UpsamplingNearest2d", "ZeroPad1d", "ZeroPad2d", "ZeroPad3d",
)  # fmt: skip

LAYERS = [
    *[f"{n}()" for n in ("BCELoss", "BCEWithLogitsLoss", "CosineEmbeddingLoss", "CrossEntropyLoss", "Dropout", "Dropout2d", "ELU", "Flatten", "GELU", "Hardtanh", "KLDivLoss", "L1Loss", "LogSigmoid", "LogSoftmax", "MSELoss", "Mish", "NLLLoss", "PReLU", "ReLU6", "SELU", "SiLU", "SmoothL1Loss", "SoftMarginLoss", "Softmax", "Tanh")],
    *[f"{n}(2)" for n in ("AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool1d", "AvgPool1d", "AvgPool2d", "AvgPool3d", "MaxUnpool2d", "PixelShuffle", "Unfold", "Upsample")],
    *[f"{n}(3)" for n in ("BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "SyncBatchNorm", "LayerNorm", "PReLU")],
    *[f"{n}(1, 2.0)" for n in ("ConstantPad1d", "ConstantPad2d", "ConstantPad3d", "Threshold")],
    *[f"{n}(1)" for n in ("ZeroPad1d", "ZeroPad2d", "ZeroPad3d", "ReflectionPad1d", "ReflectionPad2d", "ReflectionPad3d", "ReplicationPad1d", "ReplicationPad2d", "ReplicationPad3d")],
    *[f"{n}(4, 6, 3)" for n in ("Conv1d", "Conv2d", "Conv3d", "ConvTranspose2d")],
    "Conv2d(4, 6, (3, 2), padding='same', bias=False, groups=2, padding_mode='reflect')", "Conv1d(4, 6, 3, padding=2, dilation=2, padding_mode='circular')",
    "ConvTranspose2d(4, 6, 3, stride=2, output_padding=1, dilation=2, bias=False)", "Conv2d(4, 6, 3, dtype=ms.float16)",
    "BatchNorm2d(3, affine=False)", "BatchNorm2d(3, track_running_stats=False)", "BatchNorm1d(3, 0.1, None)", "BatchNorm2d(3, dtype=ms.float16)",
    "GroupNorm(2, 4)", "GroupNorm(2, 4, affine=False)", "LayerNorm((3, 4))", "LayerNorm([3], bias=False)", "LayerNorm(3, elementwise_affine=False)",
    "Embedding(4, 3)", "Embedding(4, 3, padding_idx=1, max_norm=1.0)", "Embedding(4, 3, _freeze=True)", "Fold((4, 4), 2)", "UpsamplingNearest2d(2)",
    "UpsamplingBilinear2d(scale_factor=2)", "Softmax(dim=1)", "GELU('tanh')", "ELU(2.0)", "Hardtanh(-2.0, 2.0)", "Dropout(0.2)", "AdaptiveAvgPool2d((None, 2))",
]  # fmt: skip


def arguments(name: str, ms: Any) -> Any:
    """Name and default of each argument."""
    found = inspect.signature(reduce(getattr, name.split("."), ms.mint))
    return [[p.name, "required" if p.default is p.empty else repr(p.default).replace("mindspore.", ""), p.kind is p.KEYWORD_ONLY] for p in found.parameters.values()]


def layer(expression: str, ms: Any) -> Any:
    """How it prints, and name, dtype, shape and use of each Parameter."""
    net = eval(f"N.{expression}", mint_scope(ms))
    return [str(net), [[p.name, str(p.dtype), list(p.shape), p.requires_grad] for p in net.get_parameters()], net.cls_name]


def programs() -> dict[str, Any]:
    names = [*FUNCTIONS, *(f"nn.functional.{n}" for n in NETWORK), *(f"nn.{n}" for n in CLASSES)]
    return {n: partial(arguments, n) for n in names} | {n: partial(layer, n) for n in LAYERS}
