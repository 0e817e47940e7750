"""Options of convolutions, pools, norms, activations and losses, many at once: outputs, gradients, printed forms, and what is refused."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.programs.layers import Shapes, call_last, error, layer

LAYERS: dict[str, tuple[str, Shapes]] = {}


def _add(constructor: str, *inputs: Any) -> None:
    LAYERS[f"{constructor} on {inputs}"] = (constructor, list(inputs))


# -- convolutions
for _pad, _padding, _stride, _dilation, _group, _bias in (
    ("same", 0, 2, 1, 1, True), ("same", 0, 1, 2, 1, False), ("same", 0, 3, 2, 2, False), ("valid", 0, 2, 2, 1, True), ("pad", 1, 2, 1, 2, True),
    ("pad", 2, 1, 2, 1, False),
):  # fmt: skip
    _settings = f"2, 2, 3, {_stride}, '{_pad}', {_padding}"
    _rest = f"dilation={_dilation}, group={_group}, has_bias={_bias}"
    _add(f"nn.Conv1d({_settings}, {_rest})", (1, 2, 6))
    _add(f"nn.Conv2d({_settings}, {_rest})", (1, 2, 5, 6))
    _add(f"nn.Conv1dTranspose({_settings}, {_rest})", (1, 2, 3))
    _add(f"nn.Conv2dTranspose({_settings}, {_rest})", (1, 2, 3, 2))
    if _group == 1:
        _add(f"nn.Conv3d({_settings}, {_rest})", (1, 2, 5, 5, 5))
    if _group == 1 and _dilation == 1:
        _add(f"nn.Conv3dTranspose({_settings}, {_rest})", (1, 2, 2, 3, 2))
for _extra in ("1", "(1, 0)", "(0, 1)"):
    _add(f"nn.Conv2dTranspose(2, 1, 3, 2, 'pad', 1, {_extra}, has_bias=True)", (1, 2, 3, 2))
_add("nn.Conv3dTranspose(2, 1, 3, 2, 'pad', 1, output_padding=(1, 0, 1))", (1, 2, 2, 3, 2))
# -- norms
for _settings in ("", ", momentum=1", ", momentum=0.3", ", affine=False", ", use_batch_statistics=True", ", use_batch_statistics=False", ", eps=1e-2"):
    _add(f"nn.BatchNorm1d(2{_settings})", (4, 2))
    _add(f"nn.BatchNorm2d(2{_settings})", (2, 2, 2, 2))
_add("nn.BatchNorm3d(2, momentum=0.5)", (2, 2, 2, 1, 2))
for _settings in ("(2, 3), begin_norm_axis=1, begin_params_axis=1", "(4, 2, 3), 0, 0", "(3,), 1, -1", "(3,), epsilon=1e-2", "(2, 3), -1, -1", "(2,), 1, 1"):
    _add(f"nn.LayerNorm({_settings})", (4, 2, 3))
_add("nn.GroupNorm(2, 4, 1e-2, affine=False)", (2, 4, 3))
# -- pools
for _kind, _shape in (("1d", (1, 2, 5)), ("2d", (1, 1, 5, 4)), ("3d", (1, 1, 3, 4, 3))):
    for _settings in ("", "2", "3, 2, 'SAME'", "2, 3", "3, 2, 'pad', 1", "2, 2, 'pad', ceil_mode=True", "9", "2, 2, 'valid', 1", "0", "2.0", "2, 2, 'x'"):
        _add(f"nn.MaxPool{_kind}({_settings})", _shape)
        _add(f"nn.AvgPool{_kind}({_settings})", _shape)
    for _settings in ("3, 2, 'pad', 1, return_indices=True", "2, 1, 'pad', dilation=2", "2, return_indices=True"):
        _add(f"nn.MaxPool{_kind}({_settings})", _shape)
    for _settings in ("2, 2, 'same', count_include_pad=False", "3, 2, 'pad', 1, count_include_pad=False", "3, 2, 'pad', 1, True", "2, count_include_pad=False"):
        _add(f"nn.AvgPool{_kind}({_settings})", _shape)
    for _settings in () if _kind == "1d" else ("2, 2, 'pad', divisor_override=3", "2, 2, divisor_override=3", "2, divisor_override=1.5"):
        _add(f"nn.AvgPool{_kind}({_settings})", _shape)
for _settings in ("2", "3", "(2,)", "None", "0", "-1", "'x'", "2.0", "4"):
    _add(f"nn.AdaptiveAvgPool1d({_settings})", (1, 2, 6))
    _add(f"nn.AdaptiveMaxPool1d({_settings})", (1, 2, 6))
for _settings in ("2", "(2, 3)", "(None, 2)", "None", "-1", "(2, 3, 4)"):
    _add(f"nn.AdaptiveAvgPool2d({_settings})", (1, 2, 5, 4))
_add("nn.AdaptiveAvgPool1d(2)", (2, 6))
# -- activations and others
for _name in ("Hardtanh(-0.5, 0.25)", "GLU(0)", "LogSoftmax(0)", "Softmax(0)", "Softmin(0)", "HShrink(0.8)", "SoftShrink(0.9)", "LeakyReLU(-0.5)", "CELU(2.0)"):
    _add(f"nn.{_name}", (2, 4))
_add("nn.Embedding(5, 3, dtype=ms.float16)", "Tensor([1, 4], ms.int32)")
_add("nn.Flatten()", (3,))
_add("nn.DiceLoss(1e-2)", "Tensor(np.abs(ramp((3, 4))) / 2)", "Tensor(np.abs(ramp((3, 4), 3.0)) / 2)")
_add("nn.MSELoss()", (3, 4), "3.0")

ERRORS = [
    "nn.Hardtanh(1, -1)", "nn.ReLU(True)", "nn.Tanh(1)", "nn.SiLU(inplace=True)", "nn.Dropout1d(p=1)", "nn.Dropout2d(p=0)", "nn.Dropout3d(p=0)",
    "nn.Pad(((1, -1), (1, 1)))(Tensor(ramp((3, 4))))", "nn.CrossEntropyLoss(3)", "nn.CrossEntropyLoss(ignore_index='x')",
    "nn.CrossEntropyLoss(label_smoothing=1.5)", "nn.CrossEntropyLoss(label_smoothing=1)", "nn.NLLLoss(weight=3)", "nn.DiceLoss('x')", "nn.DiceLoss(-1.0)",
    "nn.MultiMarginLoss(3)", "nn.MultiMarginLoss(margin='x')", "nn.HingeEmbeddingLoss('x')", "nn.SequentialCell((nn.ReLU(),))", "nn.BatchNorm2d(3).momentum",
    "nn.Conv2dTranspose(2, 4, 3, 2, 'pad', 1, 2)(Tensor(ramp((1, 2, 4, 3))))",
]  # fmt: skip


def programs() -> dict[str, Any]:
    found: dict[str, Any] = {name: partial(call_last, layer, *row) for name, row in LAYERS.items()}
    return found | {expression: partial(call_last, error, expression) for expression in ERRORS}
