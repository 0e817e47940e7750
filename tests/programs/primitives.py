"""Primitive classes and functions of ops: results and gradients."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from tests.recording import caught, gradients, module_first, parameters, ramp, scope

A, B, C = "T((2, 3))", "T((2, 3), 1.0)", "T((3,), 2.0)"
POSITIVE = "Tensor(np.abs(ramp((2, 3))) + 0.5)"
UNIT = "Tensor(ramp((2, 3)) * 0.4)"
I = "Tensor(np.array([[1, -2, 3], [4, 5, -6]], np.int32))"
J = "Tensor(np.array([[2, 2, -2], [3, -3, 4]], np.int32))"
BOOLS = "Tensor(np.array([[True, False, True], [False, False, True]]))"
IMAGE = "T((2, 3, 5, 4))"
VOLUME = "T((1, 2, 3, 4, 3))"

NOT_DIFFERENTIATED = ("OneHot", "Sparse", "SigmoidCross", "Cast", "Shape", "ops.Mod()", "ReduceProd(")
"""Calls of which MindSpore differentiates nothing, or only a part, or wrongly."""

# expression of a callable, its inputs
CALLS: list[tuple[str, list[str]]] = [
    *[(f"ops.{n}()", [A]) for n in ["Abs", "Neg", "Square", "Exp", "Expm1", "Sin", "Cos", "Tan", "Tanh", "Sigmoid", "Erf", "Erfc", "Sinh", "Cosh", "Atan", "Asinh", "Ceil", "Floor", "Sign", "IsNan", "IsInf", "IsFinite", "Trunc", "Round"]],
    *[(f"ops.{n}()", [POSITIVE]) for n in ["Log", "Log1p", "Sqrt", "Rsqrt", "Reciprocal", "Inv"]],
    *[(f"ops.{n}()", [UNIT]) for n in ["ACos", "Asin", "Atanh"]],
    ("ops.Acosh()", ["Tensor(np.abs(ramp((2, 3))) + 1.5)"]),
    *[(f"ops.{n}()", [A, B]) for n in ["Add", "Sub", "Mul", "Div", "RealDiv", "Maximum", "Minimum", "Equal", "NotEqual", "Less", "LessEqual", "Greater", "GreaterEqual", "Atan2", "FloorDiv", "FloorMod", "Mod"]],
    *[(f"ops.{n}()", [A, C]) for n in ["Add", "Mul", "Maximum", "Less"]],
    *[(f"ops.{n}()", [A, "2.0"]) for n in ["Add", "Sub", "Mul", "RealDiv", "Maximum", "Greater", "Pow"]],
    *[(f"ops.{n}()", [I, J]) for n in ["Add", "Sub", "Mul", "Div", "FloorDiv", "FloorMod", "Mod", "TruncateDiv", "TruncateMod", "Maximum", "Equal", "Less", "BitwiseAnd", "BitwiseOr", "BitwiseXor"]],
    *[(f"ops.{n}()", [BOOLS, "Tensor(np.array([True, True, False]))"]) for n in ["LogicalAnd", "LogicalOr", "LogicalXor"]],
    ("ops.LogicalNot()", [BOOLS]),
    ("ops.Invert()", [I]),
    ("ops.Pow()", [POSITIVE, B]),
    ("ops.Xlogy()", [B, POSITIVE]),
    ("ops.AddN()", [f"[{A}, {B}]"]),
    *[(f"ops.{n}()", [A]) for n in ["ReLU", "ReLU6", "GeLU", "FastGeLU", "Elu", "HSigmoid", "HSwish", "Mish", "Softplus", "Softsign", "Softmax", "LogSoftmax"]],
    ("ops.Softmax(0)", [A]),
    ("ops.Softmax(axis=(1,))", [A]),
    ("ops.LogSoftmax(0)", [A]),
    ("ops.PReLU()", ["T((2, 3, 2))", C]),
    ("ops.MatMul()", [A, "T((3, 4))"]),
    ("ops.MatMul(transpose_a=True)", ["T((3, 2))", "T((3, 4))"]),
    ("ops.MatMul(False, True)", [A, "T((4, 3))"]),
    ("ops.BatchMatMul()", ["T((2, 2, 3))", "T((2, 3, 2), 1.0)"]),
    ("ops.BatchMatMul(transpose_b=True)", ["T((2, 2, 3))", "T((2, 4, 3), 1.0)"]),
    *[(f"ops.{n}({s})", [B, *x]) for n in ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd"] for s in ("", "True") for x in ([], ["0"], ["1"], ["(0, 1)"], ["-1"])],
    *[(f"ops.{n}({s})", [BOOLS, *x]) for n in ["ReduceAll", "ReduceAny"] for s in ("", "keep_dims=True") for x in ([], ["0"], ["(1,)"])],
    ("ops.Argmax()", [A]),
    ("ops.Argmax(axis=0, output_type=ms.int64)", [A]),
    ("ops.Argmin()", [A]),
    ("ops.ArgMaxWithValue()", [A]),
    ("ops.ArgMaxWithValue(1, True)", [A]),
    ("ops.ArgMinWithValue(axis=1)", [A]),
    *[(f"ops.{n}({s})", [B, "1"]) for n in ("CumSum", "CumProd") for s in ("", "True", "False, True", "True, True")],
    ("ops.CumSum()", [A, "0"]),
    ("ops.LpNorm(axis=[1])", [A]),
    ("ops.LpNorm(axis=[0, 1], p=2, keep_dims=True)", [A]),
    ("ops.L2Normalize()", [A]),
    ("ops.L2Normalize(axis=1)", [A]),
    ("ops.Sort()", [A]),
    ("ops.Sort(axis=0, descending=True)", [A]),
    ("ops.TopK()", [A, "2"]),
    ("ops.Cast()", [A, "ms.int32"]),
    ("ops.Cast()", [I, "ms.float32"]),
    ("ops.Cast()", [A, "ms.float16"]),
    ("ops.Shape()", [A]),
    ("ops.Rank()", [A]),
    ("ops.Size()", [A]),
    ("ops.DType()", [A]),
    ("ops.Identity()", [A]),
    ("ops.Reshape()", [A, "(3, 2)"]),
    ("ops.Reshape()", [A, "(-1,)"]),
    ("ops.Transpose()", [A, "(1, 0)"]),
    ("ops.ExpandDims()", [A, "1"]),
    ("ops.Squeeze()", ["T((1, 3, 1))"]),
    ("ops.Squeeze(0)", ["T((1, 3, 1))"]),
    ("ops.Flatten()", ["T((2, 3, 2))"]),
    ("ops.BroadcastTo((2, 3))", [C]),
    ("ops.BroadcastTo((4, -1))", [C]),
    ("ops.Tile()", [A, "(2, 1)"]),
    ("ops.Tile()", [A, "(2, 1, 2)"]),
    ("ops.Concat()", [f"({A}, {B})"]),
    ("ops.Concat(1)", [f"({A}, {B})"]),
    ("ops.Stack()", [f"({A}, {B})"]),
    ("ops.Stack(axis=1)", [f"[{A}, {B}]"]),
    ("ops.Unstack()", [A]),
    ("ops.Unstack(1)", [A]),
    ("ops.Split(1, 3)", [A]),
    ("ops.Split(0, 2)", ["T((4, 2))"]),
    ("ops.Slice()", ["T((3, 4))", "(1, 0)", "(2, 3)"]),
    ("ops.StridedSlice()", ["T((3, 4))", "(0, 1)", "(3, 4)", "(2, 1)"]),
    ("ops.StridedSlice(begin_mask=1, shrink_axis_mask=2)", ["T((3, 4))", "(1, 1)", "(3, 4)", "(1, 1)"]),
    ("ops.ReverseV2([0])", [A]),
    ("ops.ReverseV2(axis=(0, 1))", [A]),
    ("ops.Pad(((1, 0), (2, 1)))", [A]),
    ("ops.Ones()", ["(2, 2)", "ms.float32"]),
    ("ops.Zeros()", ["(2,)", "ms.int32"]),
    ("ops.OnesLike()", [A]),
    ("ops.ZerosLike()", [I]),
    ("ops.Fill()", ["ms.float32", "(2, 2)", "3"]),
    ("ops.FillV2()", ["(2, 2)", "Tensor(3.0)"]),
    ("ops.Eye()", ["2", "3", "ms.float32"]),
    ("ops.Range()", ["Tensor(1, ms.int32)", "Tensor(9, ms.int32)", "Tensor(3, ms.int32)"]),
    ("ops.OneHot()", ["Tensor([0, 2, 1], ms.int32)", "3", "Tensor(1.0)", "Tensor(0.0)"]),
    ("ops.OneHot(0)", ["Tensor([0, 2, 5], ms.int32)", "3", "Tensor(5.0)", "Tensor(-1.0)"]),
    ("ops.Gather()", ["T((3, 4))", "Tensor([[0, 2], [1, 1]], ms.int32)", "0"]),
    ("ops.Gather()", ["T((3, 4))", "Tensor([0, 2], ms.int32)", "1"]),
    ("ops.Gather(1)", ["T((2, 4))", "Tensor([[0, 2], [1, 3]], ms.int32)", "1"]),
    ("ops.GatherD()", [A, "1", "Tensor([[0, 0], [2, 1]], ms.int32)"]),
    ("ops.GatherNd()", [A, "Tensor([[0, 0], [1, 2]], ms.int32)"]),
    ("ops.ScatterNd()", ["Tensor([[0], [2], [0]], ms.int32)", "T((3, 2))", "(4, 2)"]),
    ("ops.TensorScatterAdd()", [A, "Tensor([[0, 0], [1, 2], [0, 0]], ms.int32)", C]),
    ("ops.TensorScatterUpdate()", [A, "Tensor([[0, 0], [1, 2]], ms.int32)", "T((2,))"]),
    ("ops.Select()", [BOOLS, A, B]),
    ("ops.MaskedFill()", [A, BOOLS, "Tensor(9.0)"]),
    ("ops.UnsortedSegmentSum()", ["T((4, 2))", "Tensor([0, 2, 0, -1], ms.int32)", "3"]),
    ("ops.Depend()", [A, B]),
    ("ops.BiasAdd()", ["T((2, 3, 2, 2))", C]),
    ("ops.Conv2D(4, 3)", [IMAGE, "T((4, 3, 3, 3))"]),
    ("ops.Conv2D(out_channel=2, kernel_size=(2, 3), pad_mode='same', stride=2)", [IMAGE, "T((2, 3, 2, 3))"]),
    ("ops.Conv2D(2, 3, pad_mode='pad', pad=1, dilation=2)", [IMAGE, "T((2, 3, 3, 3))"]),
    ("ops.Conv2D(3, 3, pad_mode='pad', pad=(1, 0, 2, 1), group=3)", [IMAGE, "T((3, 1, 3, 3))"]),
    ("ops.Conv2DTranspose(2, 3)", ["T((1, 2, 3, 3))", "T((2, 3, 3, 3))", "(1, 3, 5, 5)"]),
    ("ops.Conv2DTranspose(2, 3, pad_mode='pad', pad=1, stride=2)", ["T((1, 2, 3, 3))", "T((2, 3, 3, 3))", "(1, 3, 5, 5)"]),
    ("ops.Conv3D(2, (2, 2, 2))", [VOLUME, "T((2, 2, 2, 2, 2))"]),
    ("ops.MaxPool(2, 2)", [IMAGE]),
    ("ops.MaxPool(kernel_size=3, strides=2, pad_mode='same')", [IMAGE]),
    ("ops.AvgPool(2, 2)", [IMAGE]),
    ("ops.AvgPool(3, 2, 'same')", [IMAGE]),
    ("ops.MaxPool3D(2, 2)", [VOLUME]),
    ("ops.AvgPool3D(2, 1)", [VOLUME]),
    ("ops.AdaptiveAvgPool2D((2, 3))", [IMAGE]),
    ("lambda *x: ops.LayerNorm(1, 1)(*x)[0]", [A, C, "T((3,), 3.0)"]),
    ("lambda *x: ops.BatchNorm()(*x)[0]", ["T((2, 3, 2, 2))", C, "T((3,), 3.0)", "T((3,), 4.0)", "Tensor(np.abs(ramp((3,), 5.0)) + 0.5)"]),
    ("lambda x, y: ops.BCEWithLogitsLoss()(x, y, C2, C2)", [A, BOOLS + ".astype(ms.float32)"]),
    ("lambda x, y: ops.BinaryCrossEntropy('sum')(x, y, C2)", ["Tensor(1 / (1 + np.exp(-ramp((2, 3)))))", BOOLS + ".astype(ms.float32)"]),
    ("ops.KLDivLoss()", [A, POSITIVE]),
    ("lambda x, y: ops.NLLLoss()(x, y, Tensor([0.5, 1.0, 2.0, 0.25]))", ["T((3, 4))", "Tensor([1, 0, 3], ms.int32)"]),
    ("lambda x, y: ops.NLLLoss('none')(x, y, Tensor([0.5, 1.0, 2.0, 0.25]))", ["T((3, 4))", "Tensor([1, 0, 3], ms.int32)"]),
    ("ops.SmoothL1Loss()", [A, B]),
    ("ops.SmoothL1Loss(0.5, 'mean')", [A, B]),
    ("ops.SigmoidCrossEntropyWithLogits()", [A, BOOLS + ".astype(ms.float32)"]),
    ("ops.SoftmaxCrossEntropyWithLogits()", ["T((3, 4))", "ops.softmax(T((3, 4), 1.0))"]),
    ("ops.SparseSoftmaxCrossEntropyWithLogits()", ["T((3, 4))", "Tensor([1, 0, 3], ms.int32)"]),
    ("ops.SparseSoftmaxCrossEntropyWithLogits(is_grad=True)", ["T((3, 4))", "Tensor([1, 0, 3], ms.int32)"]),
    # -- functions
    ("ops.avg_pool1d", ["T((1, 2, 7))", "3", "2"]),
    ("ops.avg_pool1d", ["T((1, 2, 7))", "3", "2", "1"]),
    ("ops.avg_pool2d", [IMAGE, "2", "2"]),
    ("ops.avg_pool2d", [IMAGE, "(3, 2)", "2", "1", "True", "False"]),
    ("ops.avg_pool2d", [IMAGE, "2", "2", "0", "True", "True", "3"]),
    ("ops.avg_pool3d", [VOLUME, "2", "1"]),
    ("ops.max_pool2d", [IMAGE, "2"]),
    ("ops.max_pool2d", [IMAGE, "3", "2", "1", "1", "True"]),
    ("ops.max_pool2d", [IMAGE, "2", "2", "0", "1", "False", "True"]),
    ("ops.max_pool3d", [VOLUME, "2", "1"]),
    ("ops.max_pool3d", [VOLUME, "2", "2", "1", "1", "False", "True"]),
    ("ops.adaptive_avg_pool1d", ["T((1, 2, 6))", "3"]),
    ("ops.adaptive_avg_pool2d", [IMAGE, "(2, None)"]),
    ("ops.adaptive_avg_pool3d", [VOLUME, "(2, 3, None)"]),
    ("ops.adaptive_max_pool1d", ["T((1, 2, 6))", "3"]),
    ("ops.adaptive_max_pool2d", [IMAGE, "3"]),
    ("ops.adaptive_max_pool2d", [IMAGE, "(3, 3)", "True"]),
    ("ops.adaptive_max_pool3d", [VOLUME, "(2, 3, 2)"]),
    ("ops.lp_pool1d", ["Tensor(np.abs(ramp((1, 2, 6))) + 0.1)", "2", "3"]),
    ("ops.lp_pool2d", ["Tensor(np.abs(ramp((1, 2, 4, 5))) + 0.1)", "3", "2", "1"]),
    ("ops.unfold", [IMAGE, "2"]),
    ("ops.unfold", [IMAGE, "(2, 3)", "1", "1", "2"]),
    ("lambda x: ops.fold(x, Tensor([5, 4], ms.int32), 2)", ["T((1, 12, 12))"]),
    ("ops.max_unpool2d", ["T((1, 1, 2, 2))", "Tensor(np.array([[[[0, 3], [9, 15]]]]))", "2"]),
    ("ops.conv1d", ["T((1, 2, 6))", "T((3, 2, 3))", "T((3,))", "2", "'pad'", "1"]),
    ("ops.conv2d", [IMAGE, "T((4, 3, 3, 3))", "T((4,))", "1", "'same'"]),
    ("ops.conv2d", [IMAGE, "T((3, 1, 2, 2))", "None", "(1, 2)", "'pad'", "(1, 0)", "1", "3"]),
    ("ops.conv3d", [VOLUME, "T((2, 2, 2, 2, 2))", "T((2,))", "1", "'valid'"]),
    ("ops.batch_norm", ["T((2, 3, 2, 2))", "T((3,), 4.0)", "Tensor(np.abs(ramp((3,), 5.0)) + 0.5)", C, "T((3,), 3.0)"]),
    ("ops.batch_norm", ["T((2, 3, 2, 2))", "ms.Parameter(T((3,), 4.0))", "ms.Parameter(Tensor(np.abs(ramp((3,), 5.0)) + 0.5))", "ms.Parameter(T((3,), 2.0))", "ms.Parameter(T((3,), 3.0))", "True", "0.2"]),
    ("ops.group_norm", ["T((2, 4, 3))", "2", "T((4,))", "T((4,), 1.0)", "1e-3"]),
    ("ops.cross_entropy", ["T((3, 4))", "Tensor([1, 0, 3], ms.int32)"]),
    ("ops.cross_entropy", ["T((3, 4))", "Tensor([1, 0, 3], ms.int32)", "Tensor([0.5, 1.0, 2.0, 0.25])", "0", "'sum'", "0.1"]),
    ("ops.nll_loss", ["T((3, 4))", "Tensor([1, 0, 3], ms.int32)", "None", "-100", "'mean'", "0.2"]),
    ("ops.mse_loss", [A, B]),
    ("ops.mse_loss", [A, C, "'sum'"]),
    ("ops.l1_loss", [A, B, "'none'"]),
    ("ops.smooth_l1_loss", [A, B, "0.5", "'mean'"]),
    ("ops.huber_loss", [A, B, "'sum'", "0.5"]),
    ("lambda x, y: ops.binary_cross_entropy_with_logits(x, y, C2, C2)", [A, BOOLS + ".astype(ms.float32)"]),
    ("ops.kl_div", [A, POSITIVE, "'batchmean'"]),
    ("ops.margin_ranking_loss", [A, B, "ops.ones_like(T((2, 3)))", "0.5"]),
    ("ops.cosine_embedding_loss", [A, B, "Tensor([1.0, -1.0])", "0.1", "'none'"]),
    ("ops.gaussian_nll_loss", [A, B, POSITIVE]),
    ("ops.multi_margin_loss", ["T((3, 4))", "Tensor([1, 0, 3])", "2", "2"]),
    ("ops.dropout", [A, "0.5", "False"]),
    ("ops.dropout", [A, "0.0", "True"]),
    ("ops.dropout2d", [IMAGE, "0.5", "False"]),
]

# what primitives do to Parameters
UPDATES: list[tuple[str, list[str]]] = [
    ("ops.Assign()", ["P((2, 3))", B]),
    ("ops.AssignAdd()", ["P((2, 3))", B]),
    ("ops.AssignSub()", ["P((2, 3))", B]),
    ("ops.ScatterAdd()", ["P((3, 2))", "Tensor([0, 2, 0], ms.int32)", "T((3, 2), 1.0)"]),
    ("ops.ScatterUpdate()", ["P((3, 2))", "Tensor([0, 2], ms.int32)", "T((2, 2), 1.0)"]),
    ("ops.ScatterNdUpdate()", ["P((3, 2))", "Tensor([[0, 1], [2, 0]], ms.int32)", "T((2,), 1.0)"]),
    ("ops.ScatterNdAdd()", ["P((3, 2))", "Tensor([[0, 1], [2, 0]], ms.int32)", "T((2,), 1.0)"]),
    ("ops.Adam()", ["P((2, 3))", "P((2, 3), 1.0)", "P((2, 3), 2.0, True)", "0.9", "0.99", "0.1", "0.9", "0.99", "1e-8", B]),
    ("ops.Adam(use_nesterov=True)", ["P((2, 3))", "P((2, 3), 1.0)", "P((2, 3), 2.0, True)", "0.9", "0.99", "0.1", "0.9", "0.99", "1e-8", B]),
    ("ops.ApplyMomentum()", ["P((2, 3))", "P((2, 3), 1.0)", "0.1", B, "0.9"]),
    ("ops.ApplyAdagrad()", ["P((2, 3))", "P((2, 3), 1.0, True)", "0.1", B]),
    ("ops.ApplyRMSProp()", ["P((2, 3))", "P((2, 3), 1.0, True)", "P((2, 3), 2.0)", "0.1", B, "0.9", "0.5", "1e-6"]),
    ("ops.SGD()", ["P((2, 3))", B, "Tensor(0.1)", "P((2, 3), 1.0)", "Tensor(0.9)", "P((2, 3), 2.0, True)"]),
]

ERRORS = [
    "ops.Softmax('x')",
    "ops.MatMul()(T((2, 3)), T((2, 3)))",
    "ops.MatMul()(T((3,)), T((3,)))",
    "ops.Concat(axis='x')([T((2, 3))])",
    "ops.Conv2D(3, 0)",
    "ops.Conv2D(3, 3, pad_mode='x')",
    "ops.Conv2D(3, 3, pad=1)",
    "ops.MaxPool(2, 2, 'pad')",
    "ops.MaxPool(0)",
    "ops.Pad([(1, 1)])",
    "ops.Reshape()(T((2, 3)), (4, 2))",
    "ops.Transpose()(T((2, 3)), (0, 0))",
    "ops.Split(0, 3)(T((2, 3)))",
    "ops.Gather()(T((2, 3)), Tensor([0.5]), 0)",
    "ops.BinaryCrossEntropy('x')",
    "ops.Primitive()",
    "ops.ReLU(1)",
    "ops.Assign()(P((2,)), T((3,)))",
    "ops.avg_pool2d(T((4, 4)), 2)",
    "ops.max_pool2d(T((1, 1, 4, 4)), 2, 1, 2)",
    "ops.conv2d(T((1, 3, 4, 4)), T((2, 3, 3, 3)), None, 1, 'same', 1)",
    "ops.unfold(T((2, 3)), 2)",
    "ops.batch_norm(T((2, 3)), T((2,)), T((2,)), T((2,)), T((2,)))",
    "ops.group_norm(T((1, 3, 2)), 2)",
    "ops.dropout(T((2, 3)), 'x')",
    "ops.mse_loss(T((2, 3)), T((2, 2)))",
    "ops.mse_loss(T((2, 3)), T((2, 3)), 'x')",
    "ops.l1_loss(T((2, 3)), T((2, 3)), 'x')",
    "ops.huber_loss(T((2, 3)), T((2, 3)), 'mean', 0.0)",
]


def names_of(ms: Any) -> dict[str, Any]:
    return {**scope(ms), "C2": ms.Tensor(np.full((2, 3), 2.0, np.float32))}


def call(ms: Any, function: str, inputs: list[str]) -> dict[str, Any]:
    names = names_of(ms)
    target = eval(function, names)
    values = [eval(x, names) for x in inputs]
    result = target(*values)
    if not isinstance(result, (ms.Tensor, tuple, list)) or "DType" in function:
        return {"result": str(result)}
    tensors = [x for x in values if isinstance(x, ms.Tensor)]
    outputs = result if isinstance(result, (tuple, list)) else (result,)
    if not any(isinstance(y, ms.Tensor) and "Float" in str(y.dtype) for y in outputs) or any(n in function for n in NOT_DIFFERENTIATED):
        return {"result": result}
    if any(isinstance(x, ms.Parameter) for x in values) or len(tensors) < sum(isinstance(x, (ms.Tensor, list, tuple)) for x in values):
        return {"result": result, "parameters": [x for x in values if isinstance(x, ms.Parameter)]}
    return {"result": result, "gradients": caught(lambda: gradients(ms, target, values)["inputs"])}


def update(ms: Any, function: str, inputs: list[str]) -> dict[str, Any]:
    names = names_of(ms)
    values = [eval(x, names) for x in inputs]
    result = eval(function, names)(*values)
    if "Adam" in function or "RMSProp" in function:
        return {"after": [x.value() for x in values if isinstance(x, ms.Parameter)]}  # MindSpore's results are not filled
    return {"result": result, "after": [x.value() for x in values if isinstance(x, ms.Parameter)]}


def in_cell(ms: Any) -> Any:
    """Primitives as attributes of a Cell, as scripts of MindSpore have them."""
    ops = ms.ops

    class Net(ms.nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.weight = ms.Parameter(ms.Tensor(ramp((4, 3))), name="weight")
            self.bias = ms.Parameter(ms.Tensor(ramp((4,), 1.0)), name="bias")
            self.matmul = ops.MatMul(transpose_b=True)
            self.add = ops.Add()
            self.relu = ops.ReLU()
            self.mean = ops.ReduceMean(keep_dims=True)
            self.reshape = ops.Reshape()
            self.concat = ops.Concat(axis=1)
            self.shape = ops.Shape()
            self.cast = ops.Cast()

        def construct(self, x: Any) -> Any:
            y = self.relu(self.add(self.matmul(x, self.weight), self.bias))
            y = self.concat((y, self.mean(y, 1)))
            return self.reshape(y, (self.shape(y)[0] * 5,)) * self.cast(ops.scalar_to_tensor(2), ms.float32)

    net = Net()
    return [parameters(net), gradients(ms, net, [ms.Tensor(ramp((2, 3)))])]


def gradient_primitives(ms: Any) -> Any:
    def twice(g: Any) -> Any:
        return g * 2.0

    def thrice(g: Any) -> Any:
        return (g[0] * 3.0,)

    double = ms.ops.InsertGradientOf(twice)
    seen = ms.ops.HookBackward(thrice)
    x = ms.Tensor([1.0, 2.0])

    def first(x: Any) -> Any:
        return double(x * x)

    def second(x: Any) -> Any:
        return seen(x * x)

    return [
        double(x),
        ms.grad(first)(x),
        ms.grad(second)(x),
        caught(lambda: ms.ops.HookBackward(3)),
    ]


def base_class(ms: Any) -> Any:
    from_module = ms.ops.Primitive

    class Double(from_module):
        @ms.ops.prim_attr_register
        def __init__(self, scale: float = 2.0, name: str = "d"):
            self.extra = scale * 2

    relu, own = ms.ops.ReLU(), Double(3.0)
    return [
        isinstance(relu, from_module),
        relu.name,
        repr(relu),
        relu.add_prim_attr("level", 3) is relu,
        relu.attrs["level"],
        relu.level,
        relu.del_prim_attr("level") is relu,
        "level" in relu.attrs,
        own.name,
        own.scale,
        own.extra,
        own.attrs["scale"],
        relu.recompute() is relu,
        relu.attrs["recompute"],
        caught(lambda: relu.recompute(3)),
        relu.set_prim_instance_name("x") is relu,
        relu.instance_name,
        caught(lambda: relu.shard(((1, 1),)) is relu),
        caught(lambda: relu.shard(3)),
        caught(lambda: relu.shard(None, ((1,),))),
        caught(lambda: relu.set_stage(0) is relu),
        repr(ms.ops.MatMul(transpose_b=True)),
        repr(ms.ops.ReduceMean(True)),
        repr(ms.ops.Concat(1)),
        ms.ops.MatMul(transpose_b=True).transpose_b,
        ms.ops.ReduceSum(True).keep_dims,
    ]


def programs() -> dict[str, Any]:
    found: dict[str, Any] = {f"{f} of {', '.join(x)}": partial(module_first, call, f, x) for f, x in CALLS}
    found |= {f"{f} changes {', '.join(x)}": partial(module_first, update, f, x) for f, x in UPDATES}
    found |= {f.__name__: f for f in (in_cell, gradient_primitives, base_class)}
    found |= {e: partial(module_first, error, e) for e in ERRORS}
    return found


def error(ms: Any, expression: str) -> Any:
    result = eval(expression, names_of(ms))
    return result if isinstance(result, ms.Tensor) else str(result)
