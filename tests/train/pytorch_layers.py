"""Small PyTorch models, their weights, and what they compute: `python tests/train/pytorch_layers.py` under an interpreter with PyTorch writes
pytorch_layers.json, with which the weights are loaded here and the results compared.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

RECORDED = Path(__file__).with_suffix(".json")
# name: (PyTorch, graphcell, shape of the input)
MODELS: dict[str, tuple[str, str, tuple[int, ...]]] = {
    "linear": ("nn.Linear(5, 3)", "nn.Dense(5, 3)", (4, 5)),
    "linear without bias": ("nn.Linear(5, 3, bias=False)", "nn.Dense(5, 3, has_bias=False)", (4, 5)),
    "conv1d": (
        "nn.Conv1d(4, 6, 3, stride=2, padding=1, groups=2)",
        "nn.Conv1d(4, 6, 3, stride=2, pad_mode='pad', padding=1, group=2, has_bias=True)",
        (2, 4, 9),
    ),
    "conv2d": (
        "nn.Conv2d(3, 4, (3, 2), dilation=2, padding=(1, 2))",
        "nn.Conv2d(3, 4, (3, 2), dilation=2, pad_mode='pad', padding=(1, 1, 2, 2), has_bias=True)",
        (2, 3, 7, 6),
    ),
    "conv3d": ("nn.Conv3d(2, 3, 2)", "nn.Conv3d(2, 3, 2, pad_mode='valid', has_bias=True)", (1, 2, 4, 4, 3)),
    "conv_transpose1d": (
        "nn.ConvTranspose1d(3, 4, 3, stride=2, padding=1)",
        "nn.Conv1dTranspose(3, 4, 3, stride=2, pad_mode='pad', padding=1, has_bias=True)",
        (2, 3, 5),
    ),
    "conv_transpose2d": (
        "nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, groups=2)",
        "nn.Conv2dTranspose(4, 6, 3, stride=2, pad_mode='pad', padding=1, group=2, has_bias=True)",
        (2, 4, 4, 3),
    ),
    "conv_transpose3d": ("nn.ConvTranspose3d(2, 3, 2)", "nn.Conv3dTranspose(2, 3, 2, pad_mode='valid', has_bias=True)", (1, 2, 3, 2, 3)),
    "batch_norm1d": ("nn.BatchNorm1d(3)", "nn.BatchNorm1d(3)", (4, 3)),
    "batch_norm2d": ("nn.Sequential(nn.BatchNorm2d(3))", "nn.SequentialCell(nn.BatchNorm2d(3))", (2, 3, 4, 4)),
    "batch_norm3d": ("nn.Sequential(nn.BatchNorm3d(3))", "nn.SequentialCell(nn.BatchNorm3d(3))", (2, 3, 2, 3, 2)),
    "layer_norm": ("nn.LayerNorm((3, 4))", "nn.LayerNorm((3, 4), begin_norm_axis=1, begin_params_axis=1, epsilon=1e-5)", (2, 3, 4)),
    "group_norm": ("nn.GroupNorm(2, 4)", "nn.GroupNorm(2, 4)", (2, 4, 3, 3)),
    "instance_norm": ("nn.InstanceNorm2d(3, affine=True)", "nn.InstanceNorm2d(3)", (2, 3, 4, 4)),
    "prelu": ("nn.PReLU(3)", "nn.PReLU(3)", (2, 3, 4)),
    "rnn": ("nn.RNN(3, 4, 2, bidirectional=True)", "nn.RNN(3, 4, 2, bidirectional=True)", (5, 2, 3)),
    "lstm": ("nn.LSTM(3, 4, 2, bidirectional=True, batch_first=True)", "nn.LSTM(3, 4, 2, bidirectional=True, batch_first=True)", (2, 5, 3)),
    "gru": ("nn.GRU(3, 4)", "nn.GRU(3, 4)", (5, 2, 3)),
    "gru_cell": ("nn.GRUCell(3, 4)", "nn.GRUCell(3, 4)", (2, 3)),
    "multihead_attention": ("nn.MultiheadAttention(8, 2)", "nn.MultiheadAttention(8, 2)", (5, 2, 8)),
    "encoder_layer": ("nn.TransformerEncoderLayer(8, 2, 12)", "nn.TransformerEncoderLayer(8, 2, 12)", (5, 2, 8)),
    "decoder_layer": (
        "nn.Sequential(nn.TransformerDecoderLayer(8, 2, 12, activation='gelu', norm_first=True))[0]",
        "nn.SequentialCell(nn.TransformerDecoderLayer(8, 2, 12, activation=nn.GELU(approximate=False), norm_first=True))[0]",
        (5, 2, 8),
    ),
    "transformer": ("nn.Transformer(8, 2, 1, 1, 12)", "nn.Transformer(8, 2, 1, 1, 12)", (4, 2, 8)),
    "nested": (
        "nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.BatchNorm2d(2), nn.ReLU(), nn.Sequential(nn.Flatten(), nn.Linear(32, 3), nn.LayerNorm(3)))",
        "nn.SequentialCell(nn.Conv2d(1, 2, 3, has_bias=True), nn.BatchNorm2d(2), nn.ReLU(), "
        "nn.SequentialCell(nn.Flatten(), nn.Dense(32, 3), nn.LayerNorm((3,), epsilon=1e-5)))",
        (2, 1, 4, 4),
    ),
}  # fmt: skip
TIMES = {"multihead_attention": 3, "decoder_layer": 2, "transformer": 2}
"""How often the input is given, where that is more than once: as query, key and value, as source and target."""


def ramp(shape: tuple[int, ...], start: float = 0.0) -> Any:
    """Float32 numbers between -2 and 2."""
    return np.round(np.sin(np.arange(int(np.prod(shape))) * 1.7 + start) * 2.0, 3).astype(np.float32).reshape(shape)


def _record() -> None:
    import torch  # type: ignore[import-not-found,unused-ignore]

    torch.manual_seed(5)
    found: dict[str, Any] = {}
    for name, (expression, _, shape) in MODELS.items():
        model = eval(expression, {"nn": torch.nn})
        for key, value in model.state_dict().items():
            if "running" in key or ("Norm" in expression and value.dtype.is_floating_point):
                value.copy_(torch.from_numpy(np.abs(ramp(tuple(value.shape), len(key))) + 0.5))
        model.eval()
        x = torch.from_numpy(ramp(shape))
        with torch.no_grad():
            y = model(*[x] * TIMES.get(name, 1))
        outputs = [y] if torch.is_tensor(y) else [y[0], *(y[1] if isinstance(y[1], tuple) else (y[1],))]
        found[name] = {"state": {k: _plain(v) for k, v in model.state_dict().items()}, "outputs": [_plain(y) for y in outputs]}
    lines = [f"{json.dumps(k)}: {json.dumps(v, separators=(',', ':'))}" for k, v in found.items()]
    RECORDED.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def _plain(tensor: Any) -> Any:
    values = [v if isinstance(v, int) else float(f"{v:.9g}") for v in tensor.reshape(-1).tolist()]
    return {"shape": list(tensor.shape), "values": values}


def array(entry: dict[str, Any]) -> Any:
    """A recorded Tensor as a numpy array."""
    kind = np.int64 if all(isinstance(v, int) for v in entry["values"]) else np.float32
    return np.array(entry["values"], kind).reshape(entry["shape"])


if __name__ == "__main__":
    _record()
