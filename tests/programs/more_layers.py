"""Less common layers and losses: how they print, outputs and gradients, and what they refuse."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.programs.layers import Shapes, call_last, error, layer

IMAGE = (1, 2, 5, 6)
PEAKS = "Tensor(np.array([[[[1, 3], [9, 11]]]], np.int64))"

LAYERS: dict[str, tuple[str, Shapes]] = {
    # -- windows and pools
    "lp pool 1": ("nn.LPPool1d(2, 3)", [(2, 3, 7)]),
    "lp pool 1 ceil": ("nn.LPPool1d(3.0, 3, stride=2, ceil_mode=True)", ["Tensor(np.abs(ramp((2, 3, 8))))"]),
    "lp pool 2": ("nn.LPPool2d(2, 2)", [IMAGE]),
    "lp pool 2 ceil": ("nn.LPPool2d(2, 2, ceil_mode=True)", ["Tensor(np.abs(ramp((1, 2, 5, 5))) + 0.1)"]),
    "lp pool 2 stride": ("nn.LPPool2d(1.0, (2, 3), stride=(1, 2))", ["Tensor(np.abs(ramp((1, 2, 5, 6))))"]),
    "max unpool 1": ("nn.MaxUnpool1d(2)", [(1, 1, 2), "Tensor(np.array([[[1, 2]]], np.int64))"]),
    "max unpool 2": ("nn.MaxUnpool2d(2)", [(1, 1, 2, 2), PEAKS]),
    "max unpool 2 size": ("nn.MaxUnpool2d(2)", [(1, 1, 2, 2), PEAKS, "(5, 4)"]),
    "max unpool 2 stride": ("nn.MaxUnpool2d((2, 2), stride=(2, 2), padding=0)", [(1, 1, 2, 2), PEAKS]),
    "max unpool 3": ("nn.MaxUnpool3d(2)", [(1, 1, 1, 1, 1), "Tensor(np.array([[[[[3]]]]], np.int64))"]),
    "fractional pool size": ("nn.FractionalMaxPool2d(2, output_size=(2, 3), _random_samples=Tensor(np.array([[[0.3, 0.7], [0.5, 0.2]]], np.float32)))", [IMAGE]),
    "fractional pool ratio": (
        "nn.FractionalMaxPool2d((2, 2), output_ratio=(0.5, 0.5), return_indices=True, _random_samples=Tensor(np.full((1, 2, 2), 0.6, np.float32)))",
        [IMAGE],
    ),
    "fractional pool 3": ("nn.FractionalMaxPool3d(2, output_size=(1, 2, 2), _random_samples=Tensor(np.full((1, 1, 3), 0.4, np.float32)))", [(1, 1, 3, 4, 4)]),
    "upsample": ("nn.Upsample(size=(4, 5))", [(1, 2, 2, 3)]),
    "upsample factor": ("nn.Upsample(scale_factor=2.0, mode='nearest', recompute_scale_factor=True)", [(1, 2, 3)]),
    "upsample bilinear": ("nn.Upsample(size=(4, 5), mode='bilinear')", [(1, 2, 2, 3)]),
    "upsample corners": ("nn.Upsample(size=(4, 5), mode='bilinear', align_corners=True)", [(1, 2, 2, 3)]),
    "upsample linear": ("nn.Upsample(size=5, mode='linear', align_corners=True)", [(1, 2, 3)]),
    "upsample area": ("nn.Upsample(size=(2, 2), mode='area')", [(1, 2, 5, 6)]),
    "upsample bicubic": ("nn.Upsample(size=(4, 5), mode='bicubic', align_corners=True)", [(1, 2, 2, 3)]),
    # -- images
    "central crop": ("nn.CentralCrop(0.5)", [(3, 6, 8)]),
    "central crop odd": ("nn.CentralCrop(central_fraction=0.6)", [(2, 3, 7, 5)]),
    "central crop all": ("nn.CentralCrop(1.0)", [(3, 4, 4)]),
    "image gradients": ("nn.ImageGradients()", [(2, 1, 3, 4)]),
    # -- mathematics
    "clip by norm": ("nn.ClipByNorm()", [(3, 4), "Tensor(np.array([2.0], np.float32))"]),
    "clip by norm axis": ("nn.ClipByNorm(axis=0)", [(3, 4), "Tensor(np.array([1.0], np.float32))"]),
    "reduce log sum exp": ("nn.ReduceLogSumExp(1)", [(3, 4)]),
    "reduce log sum exp kept": ("nn.ReduceLogSumExp((0, 1), keep_dims=True)", [(3, 4, 2)]),
    "matmul": ("nn.MatMul()", [(2, 3, 4), (4, 5)]),
    "matmul transposed": ("nn.MatMul(transpose_x1=True, transpose_x2=True)", [(4, 3), (5, 4)]),
    "l1 regularizer": ("nn.L1Regularizer(0.1)", [(3, 4)]),
    "lrn": ("nn.LRN()", [(1, 4, 2, 2)]),
    "lrn settings": ("nn.LRN(depth_radius=1, bias=2.0, alpha=0.5, beta=0.75)", [(1, 4, 2, 2)]),
    "lgamma": ("nn.LGamma()", ["Tensor(np.abs(ramp((2, 3))) + 0.5)"]),
    "digamma": ("nn.DiGamma()", ["Tensor(np.abs(ramp((2, 3))) + 0.5)"]),
    "lbeta": ("nn.LBeta()", ["Tensor(np.abs(ramp((2, 3))) + 0.5)", "Tensor(np.abs(ramp((2, 3), 2.0)) + 0.5)"]),
    # -- dense, embedding, others
    "bidense": ("nn.BiDense(3, 4, 2)", [(5, 3), (5, 4)]),
    "bidense three dimensions": ("nn.BiDense(3, 4, 2)", [(2, 2, 3), (2, 2, 4)]),
    "bidense without bias": ("nn.BiDense(3, 4, 2, has_bias=False)", [(5, 3), (5, 4)]),
    "embedding lookup": ("nn.EmbeddingLookup(4, 3)", ["Tensor([[1, 0], [3, 2]], ms.int32)"]),
    "embedding lookup norm": ("nn.EmbeddingLookup(4, 3, max_norm=0.5, sparse=False)", ["Tensor([[1, 0], [3, 2]], ms.int32)"]),
    "sync batch norm": ("nn.SyncBatchNorm(2)", [(2, 2, 3, 3)]),
    "time distributed": ("nn.TimeDistributed(nn.Dense(3, 2), time_axis=1, reshape_with_axis=0)", [(2, 4, 3)]),
    "time distributed apart": ("nn.TimeDistributed(nn.Dense(3, 2), time_axis=1)", [(2, 4, 3)]),
    "conv bn act": ("nn.Conv2dBnAct(2, 3, 3, has_bn=True, activation='relu', weight_init='ones')", [(2, 2, 4, 4)]),
    "conv act": ("nn.Conv2dBnAct(2, 3, 3, pad_mode='valid', has_bias=True, activation='leakyrelu', alpha=0.3)", [(2, 2, 4, 4)]),
    "dense bn act": ("nn.DenseBnAct(3, 4, has_bn=True, activation='sigmoid', weight_init='ones')", [(5, 3)]),
    "dense act": ("nn.DenseBnAct(3, 4, activation='tanh', has_bias=False)", [(5, 3)]),
    # -- losses
    "focal loss": ("nn.FocalLoss()", [(4, 3), "Tensor([[0], [2], [1], [1]], ms.int32)"]),
    "focal loss one hot mean": ("nn.FocalLoss()", [(2, 3), "Tensor([[0, 1, 0], [1, 0, 0]], ms.int32)"]),
    "focal loss one hot none": (
        "nn.FocalLoss(weight=Tensor([1.0, 2.0, 0.5]), reduction='none')", [(2, 3, 2), "Tensor([[[0, 1], [1, 0], [0, 0]], [[1, 0], [0, 0], [0, 1]]], ms.float32)"],
    ),
    "focal loss one hot": ("nn.FocalLoss(gamma=1.0, reduction='sum')", [(2, 3), "Tensor([[0, 1, 0], [1, 0, 0]], ms.int32)"]),
    "focal loss weight": (
        "nn.FocalLoss(weight=Tensor([1.0, 2.0, 0.5]), gamma=2.0, reduction='none')", [(2, 3, 2), "Tensor([[[0, 1]], [[1, 2]]], ms.int32)"],
    ),
    "multiclass dice": ("nn.MultiClassDiceLoss()", ["Tensor(np.abs(ramp((3, 4))))", "Tensor(np.eye(4, dtype=np.float32)[[0, 2, 1]])"]),
    "multiclass dice weights": (
        "nn.MultiClassDiceLoss(weights=Tensor(np.array([[1.0, 0.5], [0.2, 2.0]], np.float32)), ignore_indiex=0, activation='softmax')",
        [(2, 2), "Tensor(np.array([[0.0, 1.0], [1.0, 0.0]], np.float32))"],
    ),
    "sampled softmax": (
        "nn.SampledSoftmaxLoss(num_sampled=3, num_classes=6, num_true=1, sampled_values=(Tensor([1, 3, 5], ms.int64), Tensor([[0.5], [0.4]], ms.float32),"
        " Tensor([0.3, 0.6, 0.2], ms.float32)))",
        [(6, 4), (6,), "Tensor([[0], [3]], ms.int64)", (2, 4)],
    ),
    "ctc": (
        "nn.CTCLoss(blank=0, reduction='mean')",
        ["ops.log_softmax(Tensor(ramp((6, 2, 4))), -1)", "Tensor([[1, 2, 2], [3, 1, 0]], ms.int32)", "Tensor([6, 5], ms.int32)", "Tensor([3, 2], ms.int32)"],
    ),
    "ctc none": (
        "nn.CTCLoss(blank=3, reduction='none')",
        ["ops.log_softmax(Tensor(ramp((6, 2, 4))), -1)", "Tensor([[1, 2, 2], [0, 1, 0]], ms.int32)", "Tensor([6, 5], ms.int32)", "Tensor([3, 2], ms.int32)"],
    ),
    "ctc sum": (
        "nn.CTCLoss(0, 'sum', True)",
        ["ops.log_softmax(Tensor(ramp((6, 2, 4))), -1)", "Tensor([[1, 2, 2], [3, 1, 0]], ms.int32)", "Tensor([6, 3], ms.int32)", "Tensor([2, 2], ms.int32)"],
    ),
}  # fmt: skip

ERRORS = [
    "nn.Unfold([2, 2, 2, 1], [1, 2, 2, 1], [1, 1, 1, 1])",
    "nn.Unfold(2, 1, 1)",
    "nn.Unfold([1, 2, 2], [1, 2, 2, 1], [1, 1, 1, 1])",
    "nn.Unfold([1, 2, 0, 1], [1, 2, 2, 1], [1, 1, 1, 1])",
    "nn.LPPool1d('x', 2)(Tensor(ramp((2, 3, 4))))",
    "nn.LPPool2d(2, 0)(Tensor(ramp((1, 2, 3, 4))))",
    "nn.MaxUnpool2d('x')(Tensor(ramp((1, 1, 2, 2))), Tensor(np.zeros((1, 1, 2, 2), np.int64)))",
    "nn.MaxUnpool2d(2)(Tensor(ramp((1, 1, 2, 2))), Tensor(np.zeros((1, 1, 2, 1), np.int64)))",
    "nn.FractionalMaxPool2d(2)",
    "nn.FractionalMaxPool2d(2, output_size=(1, 1), output_ratio=(0.5, 0.5))",
    "nn.FractionalMaxPool2d(2, output_ratio=(1.5, 0.5))",
    "nn.Upsample()(Tensor(ramp((1, 2, 3, 4))))",
    "nn.Upsample(size=(2, 2), mode='x')(Tensor(ramp((1, 2, 3, 4))))",
    "nn.CentralCrop(0.0)",
    "nn.CentralCrop(1.5)",
    "nn.CentralCrop(1)",
    "nn.CentralCrop(0.5)(Tensor(ramp((3, 4))))",
    "nn.PSNR(max_val=0)",
    "nn.PSNR(max_val='x')",
    "nn.PSNR()(Tensor(ramp((1, 3, 4, 4))), Tensor(ramp((1, 3, 4, 5))))",
    "nn.SSIM(max_val=0.0)",
    "nn.SSIM(filter_size=0)",
    "nn.SSIM(filter_sigma=0.0)",
    "nn.SSIM()(Tensor(ramp((1, 3, 4, 4))), Tensor(ramp((1, 3, 4, 4))))",
    "nn.ImageGradients()(Tensor(ramp((3, 4))))",
    "nn.ClipByNorm(axis='x')",
    "nn.L1Regularizer(0)",
    "nn.L1Regularizer('x')",
    "nn.L1Regularizer(float('nan'))",
    "nn.BiDense(0, 4, 2)",
    "nn.BiDense(3, 4, 2.0)",
    "nn.BiDense(3, 4, 2, has_bias=1)",
    "nn.BiDense(3, 4, 2, weight_init=Tensor(ramp((2, 3))))",
    "nn.BiDense(3, 4, 2)(Tensor(ramp((5, 3))), Tensor(ramp((5, 3))))",
    "nn.EmbeddingLookup(0, 3)",
    "nn.EmbeddingLookup(4, 3.0)",
    "nn.EmbeddingLookup(4, 3, target='GPU')",
    "nn.EmbeddingLookup(4, 3, sparse=1)",
    "nn.EmbeddingLookup(4, 3, max_norm=0.0)",
    "nn.TimeDistributed(3, 1)",
    "nn.TimeDistributed(nn.Dense(3, 2), 'x')",
    "nn.Conv2dBnAct(2, 3, 3, activation='nothing')",
    "nn.DenseBnAct(3, 4, activation=3)",
    "nn.FocalLoss(reduction='x')",
    "nn.FocalLoss(weight=3)",
    "nn.FocalLoss(gamma=2)",
    "nn.FocalLoss()(Tensor(ramp((2, 1))), Tensor([[0], [0]], ms.int32))",
    "nn.MultilabelMarginLoss('x')(Tensor(ramp((4,))), Tensor([3, 0, -1, 1], ms.int32))",
    "nn.MultilabelMarginLoss()(Tensor(ramp((4,))), Tensor([3, 0, -1], ms.int32))",
    "nn.SampledSoftmaxLoss(0, 5)",
    "nn.SampledSoftmaxLoss(6, 5)",
    "nn.SampledSoftmaxLoss(2, 5, reduction='x')",
    "nn.CTCLoss(reduction='x')(ops.log_softmax(Tensor(ramp((6, 2, 4))), -1), Tensor([[1], [1]], ms.int32), Tensor([6, 6], ms.int32), Tensor([1, 1], ms.int32))",
    "nn.CTCLoss(blank=9)(ops.log_softmax(Tensor(ramp((6, 2, 4))), -1), Tensor([[1], [1]], ms.int32), Tensor([6, 6], ms.int32), Tensor([1, 1], ms.int32))",
    "nn.MatMul(transpose_x1=1)",
    "nn.LRN(depth_radius=-1)",
]


def programs() -> dict[str, Any]:
    found: dict[str, Any] = {name: partial(call_last, layer, *row) for name, row in LAYERS.items()}
    return found | {expression: partial(call_last, error, expression) for expression in ERRORS}
