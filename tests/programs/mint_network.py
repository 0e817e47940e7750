"""Layers, activations, losses and functions of `mint.nn` that MindSpore lists without a CPU: results and gradients."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.expressions import Calls, layer_program, programs_of
from tests.programs.mint import CUBE, IMAGE, A, B, H

LONG = "T((2, 3, 7))"
SMALL = "T((1, 2, 4, 4))"
VOLUME = "T((1, 2, 4, 5, 4))"
UNIT = "Tensor(np.abs(ramp((2, 3))) * 0.3 + 0.1)"
ZEROS_ONES = "Tensor((ramp((2, 3), 2.0) > 0).astype(np.float32))"
SIGNS = "Tensor(np.sign(ramp((2, 3), 2.0)).astype(np.int64))"
POSITIVE = "Tensor(np.abs(ramp((2, 3), 1.0)) + 0.2)"
CLASSES = "Tensor(np.array([2, 0], np.int64))"
SOME = "Tensor(np.array([2, -100], np.int64))"
DENSE_CLASSES = "Tensor(np.array([[0, 2, 1, 1], [2, 2, 0, 1]], np.int64))"
SHARES = "Tensor(np.array([[0.2, 0.3, 0.5], [0.1, 0.9, 0.0]], np.float32))"
WEIGHT = "Tensor(np.array([0.5, 1.0, 2.0], np.float32))"
WORDS = "Tensor(np.array([[0, 2, 1], [3, 3, 2]], np.int64))"
PLUS_MINUS = "Tensor(np.array([1, -1], np.int64))"
REDUCTIONS = ("", ", reduction='sum'", ", reduction='none'")
POOLED = "Tensor(np.array([[[[5, 7], [13, 15]]]], np.int64))"

UNARY = ["gelu", "leaky_relu", "elu", "selu", "mish", "softplus", "logsigmoid", "hardtanh", "relu6"]
LAYERS = ["GELU", "ELU", "SELU", "Mish", "LogSigmoid", "Hardtanh", "ReLU6", "SiLU", "Tanh", "Softmax", "LogSoftmax", "PReLU"]

CALLS: Calls = [
    *[(f"F.{n}(x)", [a]) for n in UNARY for a in (A, H)],
    ("F.gelu(x, approximate='tanh')", [A]),
    ("F.leaky_relu(x, negative_slope=0.2)", [A]),
    ("F.elu(x, 2.0)", [A]),
    ("F.softplus(x, beta=2, threshold=1)", [A]),
    ("F.hardtanh(x, -0.5, 0.7)", [A]),
    ("F.threshold(x, 0.1, 20.0)", [A]),
    *[(f"F.log_softmax(x{m})", [CUBE]) for m in (", 1", ", dim=-1", "", ", 0, dtype=ms.float64")],
    ("F.log_softmax(x)", [A]),
    *[(f"F.normalize(x{m})", [CUBE]) for m in ("", ", p=1.0, dim=-1", ", 2.0, 0, 1e-3")],
    # in place
    *[(f"F.{n}(x + 0)", [A]) for n in ("relu_", "elu_", "hardtanh_")],
    ("F.threshold_(x + 0, 0.1, 20.0)", [A]),
    # losses
    *[(f"F.{n}(x, y{m})", [A, B]) for n in ("mse_loss", "l1_loss", "smooth_l1_loss") for m in REDUCTIONS],
    *[("F.smooth_l1_loss(x, y, beta=0.5)", [A, B]), ("F.smooth_l1_loss(x, y, reduction='sum', beta=0.0)", [A, B])],
    *[(f"F.binary_cross_entropy_with_logits(x, y{m})", [A, ZEROS_ONES]) for m in REDUCTIONS],
    *[(f"F.soft_margin_loss(x, y{m})", [A, SIGNS]) for m in REDUCTIONS],
    *[(f"F.kl_div(x, y{m})", [A, POSITIVE]) for m in (*REDUCTIONS, ", reduction='batchmean'", ", log_target=True")],
    *[(f"F.cosine_embedding_loss(x, y, z{m})", [A, B, PLUS_MINUS]) for m in (*REDUCTIONS, ", margin=0.2")],
    *[(f"F.nll_loss(x, y{m})", [A, t]) for m in REDUCTIONS for t in (CLASSES, SOME)],
    ("F.nll_loss(x, y, ignore_index=2)", [A, CLASSES]),
    ("F.nll_loss(x, y)", [CUBE, DENSE_CLASSES]),
    *[(f"F.cross_entropy(x, y{m})", [A, t]) for m in (*REDUCTIONS, ", label_smoothing=0.1") for t in (CLASSES, SHARES, SOME)],
    ("F.cross_entropy(x, y)", [CUBE, DENSE_CLASSES]),
    ("F.cross_entropy(x, y, ignore_index=2)", [A, CLASSES]),
    # convolutions
    *[(f"F.conv1d(x, y{m})", [LONG, "T((4, 3, 3))"]) for m in ("", ", stride=2", ", padding=1", ", dilation=2", ", padding='same'", ", padding='valid'")],
    ("F.conv1d(x, y, z)", [LONG, "T((4, 3, 3))", "T((4,))"]),
    ("F.conv1d(x, y)", ["T((3, 7))", "T((4, 3, 3))"]),
    *[(f"F.conv2d(x, y{m})", [IMAGE, "T((6, 4, 3, 3))"]) for m in ("", ", stride=(2, 1)", ", padding=1", ", padding=(1, 2)", ", dilation=(2, 1)", ", padding='same'")],
    ("F.conv2d(x, y, z, 1, 1)", [IMAGE, "T((6, 4, 3, 3))", "T((6,))"]),
    ("F.conv2d(x, y, groups=2)", [IMAGE, "T((6, 2, 3, 3))"]),
    ("F.conv2d(x, y)", ["T((4, 5, 4))", "T((6, 4, 3, 3))"]),
    ("F.conv3d(x, y, z, padding=1)", [VOLUME, "T((3, 2, 3, 3, 3))", "T((3,))"]),
    ("F.conv3d(x, y, stride=(1, 2, 1))", [VOLUME, "T((3, 2, 2, 3, 2))"]),
    *[(f"F.conv_transpose2d(x, y{m})", [IMAGE, "T((4, 3, 3, 3))"]) for m in ("", ", stride=2", ", stride=2, padding=1, output_padding=1", ", padding=(1, 0)", ", dilation=2")],
    ("F.conv_transpose2d(x, y, z, groups=2)", [IMAGE, "T((4, 3, 3, 3))", "T((6,))"]),
    # pooling
    *[(f"F.max_pool2d(x{m})", [IMAGE]) for m in (", 2", ", kernel_size=(2, 3), stride=1", ", 3, 2, 1", ", 2, ceil_mode=True", ", 2, 1, 0, 2", ", 2, return_indices=True", ", 3, 2, 1, return_indices=True, ceil_mode=True")],
    ("F.max_pool2d(x, 2)", ["T((4, 5, 4))"]),
    *[(f"F.avg_pool2d(x{m})", [IMAGE]) for m in (", 2", ", kernel_size=(2, 3), stride=1", ", 3, 2, 1", ", 3, 2, 1, count_include_pad=False", ", 2, ceil_mode=True", ", 2, divisor_override=3")],
    ("F.avg_pool2d(x, 2)", ["T((4, 5, 4))"]),
    *[(f"F.avg_pool1d(x{m})", [LONG]) for m in (", 3, 2, 1", ", 2, ceil_mode=True")],
    *[(f"F.avg_pool3d(x{m})", [VOLUME]) for m in (", 2", ", 3, 2, 1", ", (1, 2, 2), 1", ", 3, 2, 1, count_include_pad=False", ", 2, divisor_override=3")],
    *[(f"F.adaptive_avg_pool1d(x, {k})", [LONG]) for k in (1, 3)],
    *[(f"F.adaptive_avg_pool2d(x, {k})", [IMAGE]) for k in ("1", "(3, 2)", "(None, 2)", "2")],
    *[(f"F.adaptive_avg_pool3d(x, {k})", [VOLUME]) for k in ("1", "(2, 3, 2)", "(None, 2, 3)")],
    *[(f"F.adaptive_max_pool1d(x, {k})", [LONG]) for k in ("1", "3", "2, return_indices=True", "output_size=2")],
    ("F.max_unpool2d(x, y, 2)", ["T((1, 1, 2, 2))", POOLED]),
    ("F.max_unpool2d(x, y, 2, output_size=(5, 5))", ["T((1, 1, 2, 2))", POOLED]),
    # normalization
    *[(f"F.layer_norm(x, {s})", [CUBE]) for s in ("(4,)", "[3, 4]", "normalized_shape=(4,), eps=0.1")],
    ("F.layer_norm(x, (4,), y, z)", [CUBE, "T((4,), 1.0)", "T((4,), 2.0)"]),
    ("F.batch_norm(x, None, None, y, z, training=True)", [IMAGE, "T((4,), 1.0)", "T((4,), 2.0)"]),
    # images
    *[(f"F.interpolate(x, {m})", [SMALL]) for m in (
        "scale_factor=2", "size=(6, 8)", "size=3", "scale_factor=(0.5, 2.0)", "scale_factor=2, mode='bilinear'", "size=(6, 7), mode='bilinear', align_corners=True",
        "size=(6, 7), mode='bicubic'", "scale_factor=1.6, mode='bilinear', recompute_scale_factor=True",
    )],
    ("F.interpolate(x, size=9)", [LONG]),
    ("F.interpolate(x, size=9, mode='linear')", [LONG]),
    ("F.interpolate(x, scale_factor=2, mode='linear', align_corners=True)", [LONG]),
    ("F.interpolate(x, scale_factor=2)", [VOLUME]),
    ("F.interpolate(x, size=(3, 4, 5), mode='trilinear')", [VOLUME]),
    *[(f"F.upsample(x, {m})", [SMALL]) for m in ("scale_factor=2", "size=(6, 8)", "size=(6, 7), mode='bilinear', align_corners=True")],
    *[(f"F.pad(x, {m})", [SMALL]) for m in (
        "(1, 2)", "(1, 2, 0, 1)", "pad=(1, 1), value=3.0", "(1, 2, 1, 1), mode='reflect'", "(1, 2, 0, 1), 'replicate'", "(1, 2, 0, 1), 'circular'", "(-1, 1)", "[0, 1, 2, 0, 1, 1]",
    )],
    ("F.pixel_shuffle(x, 2)", [IMAGE]),
    *[(f"F.unfold(x, {m})", [IMAGE]) for m in ("2", "(2, 3)", "kernel_size=3, dilation=1, padding=1, stride=2")],
    *[(f"F.fold(x, {m})", ["T((1, 8, 9))"]) for m in ("(4, 4), 2", "output_size=(4, 4), kernel_size=(2, 2)")],
    ("F.fold(x, (4, 4), 2, stride=2)", ["T((1, 8, 4))"]),
    # choosing
    ("F.embedding(x, y)", [WORDS, "T((4, 3))"]),
    ("F.embedding(x, y, padding_idx=2)", [WORDS, "T((4, 3))"]),
    ("F.embedding(x, y, scale_grad_by_freq=True)", [WORDS, "T((4, 3))"]),
    *[(f"F.{n}(x, training=False)", [A]) for n in ("dropout", "dropout2d")],
    *[(f"F.{n}(x, {p})", [IMAGE]) for n in ("dropout", "dropout2d") for p in ("0.0", "p=1.0")],
]  # fmt: skip

NETS: list[tuple[str, list[str]]] = [
    *[(f"N.{n}()", [A]) for n in LAYERS],
    ("N.GELU('tanh')", [A]),
    ("N.ELU(alpha=2.0)", [A]),
    ("N.Hardtanh(-0.5, 0.7)", [A]),
    ("N.Threshold(0.1, 20.0)", [A]),
    ("N.Softmax(dim=0)", [CUBE]),
    ("N.LogSoftmax(dim=-1)", [CUBE]),
    ("N.PReLU(3)", [CUBE]),
    ("N.PReLU(num_parameters=3, init=0.1)", [CUBE]),
    ("N.Dropout(0.0)", [A]),
    ("N.Dropout2d(0.0)", [IMAGE]),
    ("N.Flatten()", [CUBE]),
    ("N.Flatten(0, 1)", [CUBE]),
    *[(f"N.{n}({m})", [A, B]) for n in ("MSELoss", "L1Loss", "SmoothL1Loss") for m in ("", "reduction='sum'", "reduction='none'")],
    ("N.SmoothL1Loss(beta=0.5)", [A, B]),
    *[(f"N.BCEWithLogitsLoss({m})", [A, ZEROS_ONES]) for m in ("", "reduction='sum'", f"{POSITIVE}, reduction='sum'", f"pos_weight={WEIGHT}")],
    *[(f"N.BCELoss({m})", [UNIT, ZEROS_ONES]) for m in ("", "None, reduction='sum'", POSITIVE)],
    *[(f"N.SoftMarginLoss({m})", [A, SIGNS]) for m in ("", "reduction='sum'")],
    *[(f"N.KLDivLoss({m})", [A, POSITIVE]) for m in ("", "reduction='batchmean'", "log_target=True")],
    *[(f"N.CosineEmbeddingLoss({m})", [A, B, PLUS_MINUS]) for m in ("", "0.2, reduction='sum'")],
    *[(f"N.NLLLoss({m})", [A, CLASSES]) for m in ("", "ignore_index=2, reduction='sum'", WEIGHT)],
    *[(f"N.CrossEntropyLoss({m})", [A, CLASSES]) for m in ("", "ignore_index=2, reduction='sum'", "label_smoothing=0.1", f"{WEIGHT}, label_smoothing=0.2")],
    *[(f"N.Conv1d(3, 4, 3{m})", [LONG]) for m in ("", ", stride=2, padding=1", ", bias=False", ", padding='same'", ", padding=2, padding_mode='reflect'", ", padding=2, padding_mode='circular'")],
    *[(f"N.Conv2d(4, 6, 3{m})", [IMAGE]) for m in ("", ", 2, 1", ", bias=False", ", padding=(1, 2), dilation=(1, 2)", ", padding='same', groups=2", ", padding=1, padding_mode='replicate'", ", padding=2, padding_mode='circular'")],
    *[(f"N.Conv3d(2, 4, 3{m})", [VOLUME]) for m in ("", ", padding=1, bias=False", ", stride=(1, 2, 1), groups=2")],
    *[(f"N.ConvTranspose2d(4, 6, 3{m})", [IMAGE]) for m in ("", ", stride=2, padding=1, output_padding=1", ", bias=False", ", groups=2, dilation=2")],
    *[(f"N.{n}({m})", [LONG]) for n in ("AdaptiveAvgPool1d", "AdaptiveMaxPool1d") for m in ("1", "3", "output_size=2")],
    ("N.AdaptiveMaxPool1d(2, return_indices=True)", [LONG]),
    *[(f"N.AdaptiveAvgPool2d({m})", [IMAGE]) for m in ("1", "(3, 2)", "(None, 2)")],
    *[(f"N.AdaptiveAvgPool3d({m})", [VOLUME]) for m in ("1", "(2, 3, 2)")],
    *[(f"N.AvgPool1d({m})", [LONG]) for m in ("2", "3, 2, 1")],
    *[(f"N.AvgPool2d({m})", [IMAGE]) for m in ("2", "3, 2, 1", "(2, 3), stride=1, count_include_pad=False")],
    *[(f"N.AvgPool3d({m})", [VOLUME]) for m in ("2", "3, 2, 1")],
    ("N.MaxUnpool2d(2)", ["T((1, 1, 2, 2))", POOLED]),
    *[(f"N.GroupNorm({m})", [IMAGE]) for m in ("2, 4", "4, 4, eps=0.1", "num_groups=1, num_channels=4, affine=False")],
    *[(f"N.LayerNorm({m})", [CUBE]) for m in ("4", "(3, 4)", "[4], eps=0.1", "4, elementwise_affine=False", "4, bias=False")],
    *[(f"N.BatchNorm1d({m})", [x]) for m, x in (("3", A), ("3", CUBE), ("3, eps=0.1, momentum=0.3", CUBE), ("3, affine=False", A), ("3, track_running_stats=False", A), ("3, momentum=None", A))],
    *[(f"N.BatchNorm2d({m})", [IMAGE]) for m in ("4", "4, affine=False")],
    ("N.BatchNorm3d(2)", [VOLUME]),
    ("N.SyncBatchNorm(4)", [IMAGE]),
    ("N.PixelShuffle(2)", [IMAGE]),
    *[(f"N.Upsample({m})", [SMALL]) for m in ("scale_factor=2", "size=(6, 8)", "scale_factor=2, mode='bilinear'", "(6, 7), None, 'bilinear', True")],
    *[(f"N.{n}({m})", [SMALL]) for n in ("UpsamplingNearest2d", "UpsamplingBilinear2d") for m in ("scale_factor=2", "size=(6, 8)")],
    ("N.Unfold(2)", [IMAGE]),
    ("N.Unfold(kernel_size=3, dilation=1, padding=1, stride=2)", [IMAGE]),
    ("N.Fold((4, 4), 2)", ["T((1, 8, 9))"]),
    *[(f"N.{n}({m})", [x]) for n, m, x in (
        ("ConstantPad1d", "1, 2.0", LONG), ("ConstantPad1d", "(1, 2), 0.5", LONG), ("ConstantPad2d", "(1, 2, 0, 1), 0.5", SMALL), ("ConstantPad3d", "1, 0.5", VOLUME),
        ("ZeroPad1d", "(1, 2)", LONG), ("ZeroPad2d", "1", SMALL), ("ZeroPad2d", "(1, -1, 0, 2)", SMALL), ("ZeroPad3d", "(1, 0, 0, 2, 1, 1)", VOLUME),
        ("ReflectionPad1d", "(1, 2)", LONG), ("ReflectionPad2d", "1", SMALL), ("ReflectionPad2d", "(1, 2, 0, 1)", SMALL), ("ReflectionPad3d", "1", VOLUME),
        ("ReplicationPad1d", "(1, 2)", LONG), ("ReplicationPad2d", "(1, 2, 0, 1)", SMALL), ("ReplicationPad3d", "1", VOLUME),
    )],
    ("N.Embedding(4, 3)", [WORDS]),
    ("N.Embedding(4, 3, padding_idx=2)", [WORDS]),
    ("N.Embedding(4, 3, max_norm=1.0)", [WORDS]),
    ("N.Embedding(num_embeddings=4, embedding_dim=3, scale_grad_by_freq=True)", [WORDS]),
    ("N.Linear(3, 4)", [A]),
]  # fmt: skip

MISTAKEN = (f"F.nll_loss(x, y, reduction='none') of {A}, {SOME}",)
"""MindSpore's kernel does not ignore the class."""


def programs() -> dict[str, Any]:
    layers = {f"{net} of {', '.join(x)}": partial(layer_program, net, x) for net, x in NETS}
    return programs_of(CALLS) | layers
