"""Layers of mint whose arguments have other names than those of `nn`."""

from __future__ import annotations

from typing import Any

from graphcell import nn, ops


class GLU(nn.Cell):
    """Half of the input along `dim`, times the sigmoid of the other half."""

    def __init__(self, dim: int = -1):
        super().__init__()
        self.dim = dim

    def construct(self, input: Any) -> Any:
        return ops.glu(input, self.dim)


class Sigmoid(nn.Cell):
    """1 / (1 + e**-input)."""

    def construct(self, input: Any) -> Any:
        return ops.sigmoid(input)
