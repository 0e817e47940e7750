"""Layers: how they print, the names of their Parameters, outputs and gradients, in training and in inference."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from tests.recording import caught, fill, gradients, parameters, ramp

Shapes = list[Any]

# name: (constructor, inputs: shapes of float Tensors, or expressions)
LAYERS: dict[str, tuple[str, Shapes]] = {
    # -- dense, embedding, flatten
    "dense": ("nn.Dense(3, 4)", [(2, 3)]),
    "dense without bias": ("nn.Dense(3, 4, has_bias=False)", [(2, 3)]),
    "dense one dimension": ("nn.Dense(3, 2)", [(3,)]),
    "dense three dimensions": ("nn.Dense(3, 2)", [(2, 2, 3)]),
    "dense four dimensions": ("nn.Dense(3, 2)", [(2, 1, 2, 3)]),
    "dense relu": ("nn.Dense(3, 4, activation='relu')", [(2, 3)]),
    "dense activation cell": ("nn.Dense(3, 4, activation=nn.LeakyReLU(0.3))", [(2, 3)]),
    "dense activation primitive": ("nn.Dense(3, 4, activation=ops.ReLU())", [(2, 3)]),
    "dense initializers": ("nn.Dense(3, 4, weight_init='ones', bias_init='zeros')", [(2, 3)]),
    "dense tensor initializers": ("nn.Dense(2, 2, weight_init=Tensor([[1.0, 2.0], [3.0, 4.0]]), bias_init=Tensor([1.0, 2.0]))", [(2, 2)]),
    "dense float16": ("nn.Dense(3, 4, dtype=ms.float16)", ["Tensor(ramp((2, 3)), ms.float16)"]),
    "flatten": ("nn.Flatten()", [(2, 3, 2, 2)]),
    "flatten some": ("nn.Flatten(start_dim=1, end_dim=2)", [(2, 3, 2, 2)]),
    "flatten all": ("nn.Flatten(0, -1)", [(2, 3, 2)]),
    "embedding": ("nn.Embedding(5, 3)", ["Tensor([[1, 4], [0, 1]], ms.int32)"]),
    "embedding one hot": ("nn.Embedding(5, 3, use_one_hot=True)", ["Tensor([[1, 4], [0, 1]], ms.int32)"]),
    "embedding padding": ("nn.Embedding(5, 3, padding_idx=1, embedding_table='ones')", ["Tensor([1, 4], ms.int32)"]),
    "embedding int64": ("nn.Embedding(5, 3)", ["Tensor([1, 4], ms.int64)"]),
    "identity": ("nn.Identity()", [(2, 3)]),
    "identity arguments": ("nn.Identity(3, unused=4)", [(2, 3)]),
    # -- convolutions
    "conv2d": ("nn.Conv2d(2, 4, 3)", [(2, 2, 5, 4)]),
    "conv2d bias": ("nn.Conv2d(2, 3, 3, has_bias=True)", [(1, 2, 4, 4)]),
    "conv2d stride same": ("nn.Conv2d(2, 3, 3, stride=2)", [(1, 2, 5, 6)]),
    "conv2d even kernel same": ("nn.Conv2d(2, 2, 4)", [(1, 2, 5, 5)]),
    "conv2d valid": ("nn.Conv2d(2, 3, (3, 2), stride=(2, 1), pad_mode='valid')", [(1, 2, 5, 4)]),
    "conv2d pad": ("nn.Conv2d(2, 3, 3, pad_mode='pad', padding=1)", [(1, 2, 4, 4)]),
    "conv2d pad four": ("nn.Conv2d(1, 2, 3, pad_mode='pad', padding=(1, 0, 2, 1))", [(1, 1, 4, 4)]),
    "conv2d dilation": ("nn.Conv2d(1, 2, 3, dilation=2)", [(1, 1, 6, 6)]),
    "conv2d groups": ("nn.Conv2d(4, 4, 3, group=2)", [(1, 4, 4, 4)]),
    "conv2d depthwise": ("nn.Conv2d(3, 3, 3, group=3, pad_mode='pad', padding=1)", [(1, 3, 4, 4)]),
    "conv2d initializers": ("nn.Conv2d(1, 2, 2, has_bias=True, weight_init='ones', bias_init='zeros')", [(1, 1, 3, 3)]),
    "conv1d": ("nn.Conv1d(2, 3, 3)", [(2, 2, 6)]),
    "conv1d valid": ("nn.Conv1d(2, 3, 3, stride=2, pad_mode='valid', has_bias=True)", [(1, 2, 7)]),
    "conv1d pad": ("nn.Conv1d(2, 3, 3, pad_mode='pad', padding=2, dilation=2)", [(1, 2, 6)]),
    "conv3d": ("nn.Conv3d(2, 2, 2)", [(1, 2, 3, 3, 3)]),
    "conv3d pad": ("nn.Conv3d(1, 2, (2, 3, 3), pad_mode='pad', padding=1, stride=(1, 2, 2), has_bias=True)", [(1, 1, 3, 4, 4)]),
    "conv3d valid": ("nn.Conv3d(1, 2, 2, pad_mode='valid')", [(1, 1, 3, 3, 3)]),
    "conv2d transpose": ("nn.Conv2dTranspose(2, 3, 3)", [(1, 2, 4, 3)]),
    "conv2d transpose stride same": ("nn.Conv2dTranspose(2, 3, 3, stride=2, has_bias=True)", [(1, 2, 3, 3)]),
    "conv2d transpose valid": ("nn.Conv2dTranspose(2, 3, 3, stride=2, pad_mode='valid')", [(1, 2, 3, 3)]),
    "conv2d transpose pad": ("nn.Conv2dTranspose(2, 3, 4, stride=2, pad_mode='pad', padding=1)", [(1, 2, 3, 3)]),
    "conv2d transpose dilation": ("nn.Conv2dTranspose(1, 2, 2, dilation=2)", [(1, 1, 3, 3)]),
    "conv1d transpose": ("nn.Conv1dTranspose(2, 3, 3)", [(1, 2, 5)]),
    "conv1d transpose pad": ("nn.Conv1dTranspose(2, 3, 4, stride=2, pad_mode='pad', padding=1, has_bias=True)", [(1, 2, 4)]),
    "conv1d transpose valid": ("nn.Conv1dTranspose(1, 2, 3, stride=2, pad_mode='valid')", [(1, 1, 4)]),
    "conv3d transpose": ("nn.Conv3dTranspose(1, 2, 2)", [(1, 1, 2, 2, 2)]),
    "conv3d transpose pad": ("nn.Conv3dTranspose(1, 2, 3, stride=2, pad_mode='pad', padding=1, output_padding=1, has_bias=True)", [(1, 1, 2, 2, 2)]),
    # -- normalisation
    "batch norm 1d": ("nn.BatchNorm1d(3)", [(4, 3)]),
    "batch norm 2d": ("nn.BatchNorm2d(2)", [(2, 2, 3, 2)]),
    "batch norm 2d momentum": ("nn.BatchNorm2d(2, eps=1e-3, momentum=0.7)", [(2, 2, 2, 2)]),
    "batch norm 2d not affine": ("nn.BatchNorm2d(2, affine=False)", [(2, 2, 2, 2)]),
    "batch norm 2d batch statistics": ("nn.BatchNorm2d(2, use_batch_statistics=True)", [(2, 2, 2, 2)]),
    "batch norm 2d moving statistics": ("nn.BatchNorm2d(2, use_batch_statistics=False)", [(2, 2, 2, 2)]),
    "batch norm 2d initializers": ("nn.BatchNorm2d(2, gamma_init='zeros', beta_init='ones', moving_mean_init='ones', moving_var_init='zeros')", [(2, 2, 2, 2)]),
    "batch norm 3d": ("nn.BatchNorm3d(2)", [(2, 2, 2, 2, 2)]),
    "layer norm": ("nn.LayerNorm((4,))", [(2, 3, 4)]),
    "layer norm two": ("nn.LayerNorm((3, 4), begin_norm_axis=1, begin_params_axis=1)", [(2, 3, 4)]),
    "layer norm epsilon": ("nn.LayerNorm([4], epsilon=1e-3)", [(2, 4)]),
    "group norm": ("nn.GroupNorm(2, 4)", [(2, 4, 2, 3)]),
    "group norm not affine": ("nn.GroupNorm(2, 2, affine=False)", [(1, 2, 2, 2)]),
    # -- pooling
    "max pool 2d": ("nn.MaxPool2d(2, 2)", [(1, 2, 4, 5)]),
    "max pool 2d default": ("nn.MaxPool2d()", [(1, 1, 3, 3)]),
    "max pool 2d same": ("nn.MaxPool2d(3, 2, pad_mode='same')", [(1, 1, 5, 4)]),
    "max pool 2d pad": ("nn.MaxPool2d(3, 2, pad_mode='pad', padding=1)", [(1, 1, 5, 5)]),
    "max pool 2d dilation": ("nn.MaxPool2d(2, 1, pad_mode='pad', padding=1, dilation=2)", [(1, 1, 5, 5)]),
    "max pool 2d ceil": ("nn.MaxPool2d(2, 2, pad_mode='pad', ceil_mode=True)", [(1, 1, 5, 5)]),
    "max pool 2d indices": ("nn.MaxPool2d(3, 2, pad_mode='pad', padding=1, return_indices=True)", [(1, 1, 5, 5)]),
    "max pool 2d three dimensions": ("nn.MaxPool2d(2, 2)", [(2, 4, 4)]),
    "max pool 1d": ("nn.MaxPool1d(3, 2)", [(1, 2, 8)]),
    "max pool 1d same": ("nn.MaxPool1d(3, 2, pad_mode='same')", [(1, 2, 6)]),
    "max pool 1d pad": ("nn.MaxPool1d(3, 1, pad_mode='pad', padding=1)", [(1, 2, 6)]),
    "max pool 3d": ("nn.MaxPool3d(2, 2)", [(1, 1, 4, 4, 3)]),
    "max pool 3d pad": ("nn.MaxPool3d(2, 1, pad_mode='pad', padding=1)", [(1, 1, 2, 3, 3)]),
    "avg pool 2d": ("nn.AvgPool2d(2, 2)", [(1, 2, 4, 5)]),
    "avg pool 2d same": ("nn.AvgPool2d(3, 2, pad_mode='same')", [(1, 1, 5, 4)]),
    "avg pool 2d pad": ("nn.AvgPool2d(3, 2, pad_mode='pad', padding=1)", [(1, 1, 5, 5)]),
    "avg pool 2d pad not counted": ("nn.AvgPool2d(3, 2, pad_mode='pad', padding=1, count_include_pad=False)", [(1, 1, 5, 5)]),
    "avg pool 2d ceil": ("nn.AvgPool2d(2, 2, pad_mode='pad', ceil_mode=True)", [(1, 1, 5, 5)]),
    "avg pool 2d divisor": ("nn.AvgPool2d(2, 2, pad_mode='pad', divisor_override=3)", [(1, 1, 4, 4)]),
    "avg pool 1d": ("nn.AvgPool1d(3, 2)", [(1, 2, 8)]),
    "avg pool 1d same": ("nn.AvgPool1d(3, 2, pad_mode='same')", [(1, 2, 6)]),
    "avg pool 1d pad": ("nn.AvgPool1d(3, 1, pad_mode='pad', padding=1)", [(1, 2, 6)]),
    "avg pool 3d": ("nn.AvgPool3d(2, 2)", [(1, 1, 4, 4, 2)]),
    "avg pool 3d pad": ("nn.AvgPool3d(2, 1, pad_mode='pad', padding=1)", [(1, 1, 2, 3, 3)]),
    "adaptive avg pool 1d": ("nn.AdaptiveAvgPool1d(2)", [(1, 2, 6)]),
    "adaptive avg pool 2d": ("nn.AdaptiveAvgPool2d(2)", [(1, 2, 4, 6)]),
    "adaptive avg pool 2d uneven": ("nn.AdaptiveAvgPool2d((3, 2))", [(1, 1, 7, 5)]),
    "adaptive avg pool 2d none": ("nn.AdaptiveAvgPool2d((None, 1))", [(1, 1, 4, 5)]),
    "adaptive avg pool 3d": ("nn.AdaptiveAvgPool3d((1, 2, 2))", [(1, 1, 2, 4, 5)]),
    "adaptive max pool 1d": ("nn.AdaptiveMaxPool1d(2)", [(1, 2, 6)]),
    "adaptive max pool 2d": ("nn.AdaptiveMaxPool2d((3, 2))", [(1, 1, 7, 5)]),
    "adaptive max pool 2d indices": ("nn.AdaptiveMaxPool2d((3, 2), return_indices=True)", [(1, 1, 7, 5)]),
    "adaptive max pool 2d none": ("nn.AdaptiveMaxPool2d((None, 2))", [(1, 1, 3, 5)]),
    # -- dropout in inference
    "dropout": ("nn.Dropout(p=0.3).set_train(False)", [(2, 3)]),
    "dropout keep": ("nn.Dropout(0.6).set_train(False)", [(2, 3)]),
    "dropout none": ("nn.Dropout(p=0.0)", [(2, 3)]),
    "dropout 1d": ("nn.Dropout1d(p=0.3).set_train(False)", [(2, 3, 4)]),
    "dropout 2d": ("nn.Dropout2d(p=0.3).set_train(False)", [(2, 3, 2, 2)]),
    "dropout 3d": ("nn.Dropout3d(p=0.3).set_train(False)", [(2, 3, 2, 2, 2)]),
    # -- padding and shape
    "constant pad 1d": ("nn.ConstantPad1d((1, 2), 0.5)", [(1, 2, 3)]),
    "constant pad 2d": ("nn.ConstantPad2d((1, 0, 2, 1), 0.5)", [(1, 1, 3, 3)]),
    "constant pad 3d": ("nn.ConstantPad3d(1, 0.5)", [(1, 1, 2, 2, 2)]),
    "zero pad 2d": ("nn.ZeroPad2d((1, 0, 2, 1))", [(1, 1, 3, 3)]),
    "reflection pad 1d": ("nn.ReflectionPad1d((2, 1))", [(1, 2, 4)]),
    "reflection pad 2d": ("nn.ReflectionPad2d((1, 1, 2, 0))", [(1, 1, 3, 3)]),
    "replication pad 1d": ("nn.ReplicationPad1d((2, 1))", [(1, 2, 4)]),
    "replication pad 2d": ("nn.ReplicationPad2d((1, 1, 2, 0))", [(1, 1, 3, 3)]),
    "pad": ("nn.Pad(paddings=((1, 1), (2, 2)), mode='CONSTANT')", [(2, 3)]),
    "pad reflect": ("nn.Pad(paddings=((0, 0), (2, 1)), mode='REFLECT')", [(2, 3)]),
    "pad symmetric": ("nn.Pad(paddings=((1, 1), (2, 2)), mode='SYMMETRIC')", [(2, 3)]),
    "pixel shuffle": ("nn.PixelShuffle(2)", [(1, 8, 2, 3)]),
    "pixel unshuffle": ("nn.PixelUnshuffle(2)", [(1, 2, 4, 2)]),
    "channel shuffle": ("nn.ChannelShuffle(2)", [(1, 4, 2, 2)]),
    "unflatten": ("nn.Unflatten(1, (2, 3))", [(2, 6)]),
    "linear": ("nn.Linear(3, 4)", [(2, 3)]),
}

ACTIVATIONS = ["ReLU()", "ReLU6()", "LeakyReLU()", "LeakyReLU(0.05)", "ELU()", "GELU()", "GELU(False)", "Sigmoid()", "LogSigmoid()", "Tanh()", "SiLU()", "Mish()", "HSwish()", "HSigmoid()", "Softsign()", "Softmax()", "Softmax(0)", "LogSoftmax()", "LogSoftmax(0)", "PReLU()", "PReLU(3)", "PReLU(3,0.1)", "CELU()", "CELU(0.5)", "GLU()", "HShrink()", "SoftShrink()", "SoftShrink(0.3)", "Hardtanh()", "Hardtanh(-0.5,0.7)", "Threshold(0.1,20.0)", "Softmin()", "Softmin(0)", "Tanhshrink()", "RReLU(0.2,0.2)"]  # fmt: skip

ERRORS = [
    "nn.Dense(3)",
    "nn.Dense(0, 3)",
    "nn.Dense(3.5, 3)",
    "nn.Dense('3', 3)",
    "nn.Dense(3, -1)",
    "nn.Dense(3, 3, has_bias=1)",
    "nn.Dense(3, 3, weight_init=Tensor([1.0]))",
    "nn.Dense(3, 3, bias_init=Tensor([1.0]))",
    "nn.Dense(3, 3, weight_init='unknown')",
    "nn.Dense(3, 3, activation='unknown')",
    "nn.Dense(3, 3, activation=5)",
    "nn.Dense(3, 3, dtype='x')",
    "nn.Dense(3, 3)(Tensor(ramp((2, 4))))",
    "nn.Dense(3, 3)(1.0)",
    "nn.Dense(3, 3)()",
    "nn.Dense(3, 3)(Tensor(ramp((2, 3))), Tensor(1.0))",
    "nn.Dense(3, 3)(Tensor(ramp((2, 3))), y=Tensor(1.0))",
    "nn.Dense(3, 3)(Tensor([[1, 2, 3]], ms.int32))",
    "nn.Embedding(0, 3)",
    "nn.Embedding(3, 3.0)",
    "nn.Embedding(3, 3, padding_idx=3)",
    "nn.Embedding(3, 3, padding_idx='a')",
    "nn.Embedding(3, 3, use_one_hot=1)",
    "nn.Embedding(3, 2)(Tensor([0.5]))",
    "nn.Conv2d(0, 3, 3)",
    "nn.Conv2d(3, 3, 0)",
    "nn.Conv2d(3, 3, '3')",
    "nn.Conv2d(3, 3, (3, 3, 3))",
    "nn.Conv2d(3, 3, 3, stride=0)",
    "nn.Conv2d(3, 3, 3, pad_mode='other')",
    "nn.Conv2d(3, 3, 3, padding=1)(Tensor(ramp((1, 3, 4, 4))))",
    "nn.Conv2d(3, 3, 3, pad_mode='pad', padding=-1)",
    "nn.Conv2d(3, 3, 3, pad_mode='pad', padding=(1, 2))",
    "nn.Conv2d(3, 3, 3, pad_mode='pad', padding='x')",
    "nn.Conv2d(3, 4, 3, group=3)",
    "nn.Conv2d(3, 4, 3, group=2)",
    "nn.Conv2d(3, 4, 3, dilation=0)",
    "nn.Conv2d(3, 4, 3, has_bias='x')",
    "nn.Conv2d(3, 4, 3, data_format='NDHW')",
    "nn.Conv2d(3, 4, 3)(Tensor(ramp((1, 2, 4, 4))))",
    "nn.Conv2d(3, 4, 3)(Tensor(ramp((3, 4, 4))))",
    "nn.Conv2d(3, 4, 3, pad_mode='valid')(Tensor(ramp((1, 3, 2, 2))))",
    "nn.Conv2d(3, 4, 3)(Tensor(ramp((1, 3, 4, 4)), ms.float64))",
    "nn.Conv1d(3, 4, (3, 3))",
    "nn.Conv1d(3, 4, 3, pad_mode='pad', padding=(1, 2, 3))",
    "nn.Conv1d(3, 4, 3)(Tensor(ramp((3, 4))))",
    "nn.Conv3d(3, 4, (3, 3))",
    "nn.Conv3d(3, 4, 3)(Tensor(ramp((1, 3, 4, 4))))",
    "nn.Conv2dTranspose(3, 4, 3, output_padding=1)",
    "nn.Conv2dTranspose(3, 4, 3)(Tensor(ramp((1, 2, 4, 4))))",
    "nn.BatchNorm2d(0)",
    "nn.BatchNorm2d(2.5)",
    "nn.BatchNorm2d(2, momentum=1.5)",
    "nn.BatchNorm2d(2, momentum='x')",
    "nn.BatchNorm2d(2, eps='x')",
    "nn.BatchNorm2d(2, use_batch_statistics='x')",
    "nn.BatchNorm2d(2, data_format='NHCW')",
    "nn.BatchNorm2d(2)(Tensor(ramp((2, 2))))",
    "nn.BatchNorm2d(2)(Tensor(ramp((1, 3, 2, 2))))",
    "nn.BatchNorm1d(2)(Tensor(ramp((1, 3, 2, 2))))",
    "nn.LayerNorm(3)",
    "nn.LayerNorm(())",
    "nn.LayerNorm((4,))(Tensor(ramp((2, 3))))",
    "nn.LayerNorm((4,), begin_norm_axis='x')",
    "nn.GroupNorm(2, 3)",
    "nn.GroupNorm(0, 3)",
    "nn.GroupNorm(2.0, 4)",
    "nn.GroupNorm(2, 4, affine=1)",
    "nn.GroupNorm(2, 4)(Tensor(ramp((1, 2, 2, 2))))",
    "nn.GroupNorm(2, 4)(Tensor(ramp((1, 4))))",
    "nn.MaxPool2d(0)",
    "nn.MaxPool2d('x')",
    "nn.MaxPool2d((1, 2, 3))",
    "nn.MaxPool2d(2, stride=0)",
    "nn.MaxPool2d(2, pad_mode='x')",
    "nn.MaxPool2d(2, 1, padding=1)",
    "nn.MaxPool2d(2, 1, dilation=2)(Tensor(ramp((1, 1, 4, 4))))",
    "nn.MaxPool2d(2, 1, pad_mode='pad', padding=2)(Tensor(ramp((1, 1, 4, 4))))",
    "nn.MaxPool2d(2, 1, ceil_mode=True)(Tensor(ramp((1, 1, 5, 5))))",
    "nn.MaxPool2d(2)(Tensor(ramp((4, 4))))",
    "nn.MaxPool2d(5)(Tensor(ramp((1, 1, 4, 4))))",
    "nn.MaxPool1d(2)(Tensor(ramp((1, 1, 4, 4))))",
    "nn.AvgPool2d(2, padding=1)",
    "nn.AvgPool2d(2, pad_mode='pad', padding=2)(Tensor(ramp((1, 1, 4, 4))))",
    "nn.AvgPool2d(2, divisor_override=0)",
    "nn.AvgPool2d(2, pad_mode='pad', divisor_override=0)",
    "nn.AvgPool2d(2, divisor_override=2)(Tensor(ramp((1, 1, 4, 4))))",
    "nn.AvgPool2d(5)(Tensor(ramp((1, 1, 4, 4))))",
    "nn.AvgPool1d(9)(Tensor(ramp((1, 1, 4))))",
    "nn.AdaptiveAvgPool2d('x')",
    "nn.AdaptiveAvgPool2d((2, 2, 2))",
    "nn.AdaptiveAvgPool2d(0)(Tensor(ramp((1, 1, 4, 4))))",
    "nn.AdaptiveAvgPool2d(2)(Tensor(ramp((4, 4))))",
    "nn.AdaptiveMaxPool2d(2.5)",
    "nn.AdaptiveMaxPool2d(-1)(Tensor(ramp((1, 1, 4, 4))))",
    "nn.AdaptiveAvgPool1d(4)(Tensor(ramp((1, 1, 6))))",
    "nn.Flatten(5)(Tensor(ramp((1, 4))))",
    "nn.Flatten('x')",
    "nn.Flatten(True)",
    "nn.Flatten()(3)",
    "nn.Flatten(2, 1)(Tensor(ramp((1, 4, 2))))",
    "nn.Dropout(keep_prob=0.0)",
    "nn.Dropout(keep_prob='x')",
    "nn.Dropout(p=1.0)",
    "nn.Dropout(p=-0.1)",
    "nn.Dropout(p='x')",
    "nn.Dropout(p=True)",
    "nn.Dropout1d(p=2.0)",
    "nn.Dropout2d(p='x')",
    "nn.Softmax('x')",
    "nn.LogSoftmax(2.0)",
    "nn.LeakyReLU('x')",
    "nn.ELU('x')",
    "nn.GELU('x')",
    "nn.PReLU(0)",
    "nn.PReLU(3.0)",
    "nn.PReLU(2, 'x')",
    "nn.PReLU(2, Tensor([1.0, 2.0, 3.0]))",
    "nn.get_activation('relu')",
    "nn.get_activation('nothing')",
    "nn.get_activation(None)",
    "nn.get_activation(3)",
    "nn.ConstantPad2d((1, 2, 3), 0.5)",
    "nn.ZeroPad2d('x')",
    "nn.ReflectionPad2d(5)(Tensor(ramp((1, 1, 3, 3))))",
    "nn.PixelShuffle(0)",
    "nn.Threshold('x', 1.0)",
]


def scope(ms: Any) -> dict[str, Any]:
    return {"ms": ms, "nn": ms.nn, "ops": ms.ops, "Tensor": ms.Tensor, "np": np, "ramp": ramp}


def make(ms: Any, expression: str) -> Any:
    return eval(expression, scope(ms))


def inputs_of(ms: Any, shapes: Shapes) -> list[Any]:
    return [make(ms, s) if isinstance(s, str) else ms.Tensor(ramp(s, 1.0 + k)) for k, s in enumerate(shapes)]


def layer(ms: Any, constructor: str, shapes: Shapes) -> dict[str, Any]:
    net = make(ms, constructor)
    inputs = inputs_of(ms, shapes)
    before = parameters(net)
    if "_init" not in constructor and "padding_idx" not in constructor:
        fill(ms, net)
    result: dict[str, Any] = {"printed": printed(net), "parameters": before, "inference": caught(lambda: net(*inputs))}
    if "set_train" not in constructor:
        net.set_train()
    result["training"] = caught(lambda: gradients(ms, net, inputs))
    if "BatchNorm" in constructor:
        result["moving"] = [p.value() for p in net.untrainable_params()]
    return result


def printed(net: Any) -> str:
    """The printed form, without addresses and module names."""
    import re

    return re.sub(r"<[\w.]*\.(\w+) object at 0x[0-9a-f]+>", r"<\1>", repr(net))


def error(ms: Any, expression: str) -> Any:
    result = make(ms, expression)
    return str(result) if isinstance(result, ms.nn.Cell) else result


def programs() -> dict[str, Any]:
    found: dict[str, Any] = {name: partial(call_last, layer, *row) for name, row in LAYERS.items()}
    for name in ACTIVATIONS:
        shape = (2, 4) if name.startswith("GLU") else (1, 3, 2, 2) if name.startswith("PReLU(") else (2, 3)
        found[f"activation {name}"] = partial(call_last, layer, f"nn.{name}", [shape])
    found |= {expression: partial(call_last, error, expression) for expression in ERRORS}
    return found


def call_last(function: Any, *args: Any) -> Any:
    *given, ms = args
    return function(ms, *given)
