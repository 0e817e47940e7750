"""Recurrent layers and cells: how they print, the names of their Parameters, outputs, states and gradients."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.programs.layers import Shapes, call_last, error, layer

H, C = "Tensor(ramp(({0}, 3, 4), 4.0))", "Tensor(ramp(({0}, 3, 4), 5.0))"
PAIR = f"({H}, {C})"
LENGTHS = "Tensor([2, 5, 1], ms.int32)"


def _layers() -> dict[str, tuple[str, Shapes]]:
    found: dict[str, tuple[str, Shapes]] = {}
    for kind in ("RNN", "GRU", "LSTM"):
        state = PAIR if kind == "LSTM" else H
        found |= {
            f"{kind}": (f"nn.{kind}(2, 4)", [(5, 3, 2)]),
            f"{kind} state": (f"nn.{kind}(2, 4)", [(5, 3, 2), state.format(1)]),
            f"{kind} lengths": (f"nn.{kind}(2, 4)", [(5, 3, 2), state.format(1), LENGTHS]),
            f"{kind} int64 lengths": (f"nn.{kind}(2, 4)", [(5, 3, 2), "None", "Tensor([0, 1, 5])"]),
            f"{kind} without bias": (f"nn.{kind}(2, 4, has_bias=False)", [(5, 3, 2)]),
            f"{kind} batch first": (f"nn.{kind}(2, 4, batch_first=True)", [(3, 5, 2), state.format(1), LENGTHS]),
            f"{kind} two layers": (f"nn.{kind}(2, 4, num_layers=2)", [(5, 3, 2), state.format(2)]),
            f"{kind} two directions": (f"nn.{kind}(2, 4, bidirectional=True)", [(5, 3, 2), state.format(2)]),
            f"{kind} everything": (f"nn.{kind}(2, 4, 3, False, True, 0.0, True)", [(3, 5, 2), state.format(6), LENGTHS]),
            f"{kind} one step": (f"nn.{kind}(2, 4)", [(1, 3, 2)]),
            f"{kind} float16": (f"nn.{kind}(2, 4, dtype=ms.float16)", ["Tensor(ramp((5, 3, 2)), ms.float16)"]),
            f"{kind}Cell": (f"nn.{kind}Cell(2, 4)", [(3, 2), state.replace("{0}, ", "")]),
            f"{kind}Cell without bias": (f"nn.{kind}Cell(2, 4, False)", [(3, 2), state.replace("{0}, ", "")]),
        }
    found["RNN relu"] = ("nn.RNN(2, 4, nonlinearity='relu')", [(5, 3, 2), H.format(1)])
    found["RNNCell relu"] = ("nn.RNNCell(2, 4, nonlinearity='relu')", [(3, 2), H.replace("{0}, ", "")])
    return found


def _errors() -> list[str]:
    found = ["nn.RNN(2, 3, nonlinearity='x')", "nn.RNN(2, 3, 1, 'tanh')", "nn.GRU(2, 3, nonlinearity='tanh')"]
    for kind in ("RNN", "GRU", "LSTM"):
        found += [
            f"nn.{kind}({arguments})"
            for arguments in (
                "0, 3", "2, 0", "2.0, 3", "2, '3'", "2, 3, 0", "2, 3, num_layers='x'", "2, 3, has_bias=1", "2, 3, batch_first=1", "2, 3, bidirectional=1",
                "2, 3, dropout=1.0", "2, 3, dropout=1", "2, 3, dropout=0", "2, 3, dropout=-0.5", "2, 3, dropout='x'", "2, 3, unknown=1", "2", "",
                "2, 3, 2, dropout=0.25", "2, 3, 1, True, True, 0.0, False",
            )
        ]  # fmt: skip
        found += [
            f"nn.{kind}(2, 3)(Tensor(ramp((4, 2, 2))){arguments}"
            for arguments in (
                ", seq_length=Tensor([1.0, 2.0]))", ", seq_length=Tensor([1, 2, 3]))", ", [1, 2])", ", (1, 2))", "[0])", ".astype(ms.int32))",
                ", Tensor(ramp((1, 2, 3)), ms.float16))", ", (Tensor(ramp((1, 2, 3))),))", "[:, :, :1])",
            )
        ]  # fmt: skip
        found += [f"nn.{kind}Cell({arguments})" for arguments in ("0, 3", "2, -1", "2.0, 3", "2, 3, 1")]
        state = "Tensor(ramp((2, 3)))"
        state = f"({state}, {state})" if kind == "LSTM" else state
        found += [
            f"nn.{kind}Cell(2, 3)({arguments})"
            for arguments in (
                f"Tensor(ramp((2, 5))), {state}", f"Tensor(ramp((3, 2))), {state}", f"Tensor(ramp((2,))), {state}", f"[1, 2], {state}",
                "Tensor(ramp((2, 2))), [1, 2]", f"Tensor(ramp((2, 2)), ms.float16), {state}",
            )
        ]  # fmt: skip
    return [*found, "nn.RNNCell(2, 3, nonlinearity='x')", "nn.RNNCell(2, 3, nonlinearity=3)"]


def programs() -> dict[str, Any]:
    found: dict[str, Any] = {name: partial(call_last, layer, *row) for name, row in _layers().items()}
    return found | {expression: partial(call_last, error, expression) for expression in _errors()}
