"""Attention and Transformer layers: how they print, the names of their Parameters, outputs and gradients, with all kinds of masks."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.programs.layers import Shapes, call_last, error, layer

PADDING = "Tensor([[False, False, True, True], [False, True, False, False]])"
CAUSAL = "Tensor(np.triu(np.ones((3, 4)), 1).astype(bool))"
Q, K, V = (3, 2, 8), (4, 2, 8), (4, 2, 8)
NO_PADDING = "None"

LAYERS: dict[str, tuple[str, Shapes]] = {
    "attention": ("nn.MultiheadAttention(8, 2)", [Q, K, V]),
    "attention padding": ("nn.MultiheadAttention(8, 2)", [Q, K, V, PADDING]),
    "attention float padding": ("nn.MultiheadAttention(8, 2)", [Q, K, V, (2, 4)]),
    "attention without weights": ("nn.MultiheadAttention(8, 2)", [Q, K, V, PADDING, "False"]),
    "attention mask": ("nn.MultiheadAttention(8, 2)", [Q, K, V, NO_PADDING, "True", CAUSAL]),
    "attention byte mask": ("nn.MultiheadAttention(8, 2)", [Q, K, V, NO_PADDING, "True", CAUSAL + ".astype(ms.uint8)"]),
    "attention float mask": ("nn.MultiheadAttention(8, 2)", [Q, K, V, NO_PADDING, "True", (3, 4)]),
    "attention mask for each head": ("nn.MultiheadAttention(8, 2)", [Q, K, V, NO_PADDING, "True", (4, 3, 4)]),
    "attention both masks": ("nn.MultiheadAttention(8, 2)", [Q, K, V, PADDING, "True", CAUSAL]),
    "attention both float masks": ("nn.MultiheadAttention(8, 2)", [Q, K, V, (2, 4), "True", (3, 4)]),
    "attention bool and float mask": ("nn.MultiheadAttention(8, 2)", [Q, K, V, PADDING, "True", (3, 4)]),
    "attention all weights": ("nn.MultiheadAttention(8, 2)", [Q, K, V, PADDING, "True", CAUSAL, "False"]),
    "attention without batch": ("nn.MultiheadAttention(8, 2)", [(3, 8), (4, 8), (4, 8), "Tensor([False, True, False, False])", "True", CAUSAL]),
    "attention batch first": ("nn.MultiheadAttention(8, 2, batch_first=True)", [(2, 3, 8), (2, 4, 8), (2, 4, 8), PADDING, "True", CAUSAL]),
    "attention without bias": ("nn.MultiheadAttention(8, 2, has_bias=False)", [Q, K, V]),
    "attention more keys": ("nn.MultiheadAttention(8, 2, add_bias_kv=True, add_zero_attn=True)", [Q, K, V, PADDING, "True", CAUSAL]),
    "attention trained key": ("nn.MultiheadAttention(8, 2, add_bias_kv=True)", [Q, K, V]),
    "attention kdim vdim": ("nn.MultiheadAttention(8, 4, kdim=6, vdim=5)", [Q, (4, 2, 6), (4, 2, 5)]),
    "attention kdim without bias": ("nn.MultiheadAttention(8, 4, has_bias=False, kdim=6)", [Q, (4, 2, 6), V]),
    "encoder layer": ("nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0)", [(5, 2, 8)]),
    "encoder layer gelu": ("nn.TransformerEncoderLayer(8, 2, 12, 0.0, 'gelu')", [(5, 2, 8)]),
    "encoder layer function": ("nn.TransformerEncoderLayer(8, 2, 12, 0.0, ops.gelu)", [(5, 2, 8)]),
    "encoder layer norm first": ("nn.TransformerEncoderLayer(8, 2, 12, 0.0, norm_first=True)", [(5, 2, 8)]),
    "encoder layer batch first": (
        "nn.TransformerEncoderLayer(8, 2, 12, 0.0, 'relu', 1e-3, True)",
        [(2, 5, 8), (5, 5), "Tensor([[False, False, False, True, True], [False] * 5]).astype(ms.float32)"],
    ),
    "encoder layer masks": (
        "nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0)",
        [(5, 2, 8), "Tensor(np.triu(np.ones((5, 5)), 1).astype(bool))", "Tensor([[False, False, False, True, True], [False] * 5])"],
    ),
    "encoder": ("nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 12, 0.0), 2)", [(5, 2, 8)]),
    "encoder norm": ("nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 12, 0.0), 2, nn.LayerNorm((8,)))", [(5, 2, 8)]),
    "decoder layer": ("nn.TransformerDecoderLayer(8, 2, 12, 0.0)", [(3, 2, 8), (5, 2, 8)]),
    "decoder layer norm first": ("nn.TransformerDecoderLayer(8, 2, 12, 0.0, 'gelu', norm_first=True)", [(3, 2, 8), (5, 2, 8)]),
    "decoder layer masks": (
        "nn.TransformerDecoderLayer(8, 2, 12, 0.0)",
        [
            (3, 2, 8), (5, 2, 8), "Tensor(np.triu(np.ones((3, 3)), 1).astype(bool))", "Tensor(np.triu(np.ones((3, 5)), 3).astype(bool))",
            "Tensor([[False, False, True], [False] * 3])", "Tensor([[False, False, False, True, True], [False] * 5])",
        ],
    ),
    "decoder": ("nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 12, 0.0), 2, nn.LayerNorm((8,)))", [(3, 2, 8), (5, 2, 8)]),
    "transformer": ("nn.Transformer(8, 2, 1, 2, 12, 0.0)", [(5, 2, 8), (3, 2, 8)]),
    "transformer batch first": ("nn.Transformer(8, 2, 1, 1, 12, 0.0, 'gelu', batch_first=True, norm_first=True)", [(2, 5, 8), (2, 3, 8)]),
    "transformer without batch": ("nn.Transformer(8, 2, 1, 1, 12, 0.0)", [(5, 8), (3, 8)]),
    "transformer custom": ("nn.Transformer(8, 2, 1, 1, 12, 0.0, custom_encoder=nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 4, 8, 0.0), 1))", [(5, 2, 8), (3, 2, 8)]),
    "transformer masks": (
        "nn.Transformer(8, 2, 1, 1, 12, 0.0)",
        [
            (5, 2, 8), (3, 2, 8), "Tensor(np.triu(np.ones((5, 5)), 2).astype(bool))", "Tensor(np.triu(np.ones((3, 3)), 1).astype(bool))",
            "Tensor(np.triu(np.ones((3, 5)), 3).astype(bool))", "Tensor([[False, False, False, True, True], [False] * 5])",
            "Tensor([[False, False, True], [False] * 3])", "Tensor([[False, False, False, True, True], [False] * 5])",
        ],
    ),
}  # fmt: skip

CALL = "nn.MultiheadAttention(8, 2)(Tensor(ramp((3, 2, 8))), Tensor(ramp((4, 2, 8))), "
ERRORS = [
    "nn.MultiheadAttention(8, 3)",
    "nn.MultiheadAttention(0, 2)",
    "nn.MultiheadAttention(8.0, 2)",
    "nn.MultiheadAttention(8, 2, has_bias=1)",
    "nn.MultiheadAttention(8, 2, kdim=0)",
    "nn.MultiheadAttention(8, 2, dropout=1)",
    CALL + "Tensor(ramp((3, 2, 8))))",
    CALL + "Tensor(ramp((4, 8))))",
    CALL + "Tensor(ramp((4, 2, 6))))",
    CALL + "Tensor(ramp((4, 2, 8))), Tensor([[1, 0, 0, 0], [0, 0, 0, 0]]))",
    CALL + "Tensor(ramp((4, 2, 8))), Tensor([[True, False, False, False]]))",
    CALL + "Tensor(ramp((4, 2, 8))), attn_mask=Tensor(ramp((4, 3))))",
    CALL + "Tensor(ramp((4, 2, 8))), attn_mask=Tensor(ramp((2, 3, 4))))",
    CALL + "Tensor(ramp((4, 2, 8))), attn_mask=Tensor(ramp((4,))))",
    CALL + "Tensor(ramp((4, 2, 8))), attn_mask=Tensor(np.ones((3, 4), np.int32)))",
    "nn.MultiheadAttention(8, 2)(*[Tensor(ramp((3, 2, 6)))] * 3)",
    "nn.MultiheadAttention(8, 2)(*[Tensor(ramp((3, 1, 2, 8)))] * 3)",
    "nn.MultiheadAttention(8, 2)(*[Tensor(ramp((3, 2, 8)), ms.float16)] * 3)",
    "nn.MultiheadAttention(8, 2)(Tensor(ramp((3, 2, 8))), Tensor(ramp((4, 3, 8))), Tensor(ramp((4, 3, 8))))",
    "nn.TransformerEncoderLayer(8, 3)",
    "nn.TransformerEncoderLayer(8, 2, 0)",
    "nn.TransformerEncoderLayer(8, 2, 12.0)",
    "nn.TransformerEncoderLayer(8, 2, 12, 1.5)",
    "nn.TransformerEncoderLayer(8, 2, 12, 0.1, 'tanh')",
    "nn.TransformerEncoderLayer(8, 2, 12, 0.1, 3)",
    "nn.TransformerEncoderLayer(8, 2, 12, 0.1, ops.tanh)",
    "nn.TransformerEncoderLayer(8, 2, 12, 0.1, nn.ReLU)",
    "nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2), 2.0)",
    "nn.Transformer(8, 3)",
    "nn.Transformer(8, 2, 1, 1, 12)(Tensor(ramp((5, 2, 6))), Tensor(ramp((3, 2, 6))))",
    "nn.Transformer(8, 2, 1, 1, 12)(Tensor(ramp((5, 3, 8))), Tensor(ramp((3, 2, 8))))",
]


def programs() -> dict[str, Any]:
    found: dict[str, Any] = {name: partial(call_last, layer, *row) for name, row in LAYERS.items()}
    return found | {expression: partial(call_last, error, expression) for expression in ERRORS}
