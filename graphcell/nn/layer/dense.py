"""A dense layer of two inputs."""

from __future__ import annotations

import math
from typing import Any

from graphcell import dtype as dt
from graphcell.common.initializer import Uniform, initializer
from graphcell.errors import ShapeError
from graphcell.nn.cell import Cell
from graphcell.nn.checks import check_bool, positive_int
from graphcell.parameter import Parameter
from graphcell.tensor import Tensor


class BiDense(Cell):
    """y_o = x1 @ weight_o @ x2 + bias_o.

    Args:
        in1_channels, in2_channels, out_channels: extents of the last dimension of the inputs and the output.
        weight_init, bias_init: Tensor, initializer, its name, or a number. Default: uniform on ±1 / sqrt(in1_channels).
        has_bias: default True.
        dtype: of the Parameters.

    Inputs: input1 (*, in1_channels), input2 (*, in2_channels). Outputs: (*, out_channels).

    Raises:
        TypeError, ValueError: settings or shapes that do not fit.
    """

    def __init__(
        self, in1_channels: int, in2_channels: int, out_channels: int, weight_init: Any = None, bias_init: Any = None, has_bias: bool = True,
        dtype: Any = dt.float32,
    ):  # fmt: skip
        super().__init__()
        self.in1_channels = positive_int("BiDense", "in1_channels", in1_channels)
        self.in2_channels = positive_int("BiDense", "in2_channels", in2_channels)
        self.out_channels = positive_int("BiDense", "out_channels", out_channels)
        self.has_bias = check_bool("BiDense", "has_bias", has_bias)
        shape = (out_channels, in1_channels, in2_channels)
        for name, init, wanted in (("weight_init", weight_init, shape), ("bias_init", bias_init, (out_channels,))):
            if isinstance(init, Tensor) and init.shape != wanted:
                raise ShapeError(f"For 'BiDense', the shape of '{name}' must be {wanted}, but got {init.shape}.")
        uniform = Uniform(1 / math.sqrt(in1_channels))
        self.weight = Parameter(initializer(uniform if weight_init is None else weight_init, shape, dtype), name="weight")
        self.bias = None
        if has_bias:
            self.bias = Parameter(initializer(uniform if bias_init is None else bias_init, (out_channels,), dtype), name="bias")

    def construct(self, input1: Any, input2: Any) -> Any:
        for k, (x, extent) in enumerate(((input1, self.in1_channels), (input2, self.in2_channels)), 1):
            if x.shape[-1] != extent:
                raise ShapeError(
                    f"For 'BiDense', the last dimension of 'input{k}' must be same as 'in{k}_channels', but got {x.shape[-1]} of 'input{k}' "
                    f"and {extent} of 'in{k}_channels'"
                )
        lead = input1.shape[:-1]
        rows = input1.reshape((-1, self.in1_channels)) @ self.weight.transpose(1, 0, 2).reshape((self.in1_channels, -1))
        rows = rows.reshape((-1, self.out_channels, self.in2_channels))
        y = (rows * input2.reshape((-1, 1, self.in2_channels))).sum(-1).reshape((*lead, self.out_channels))
        return y if self.bias is None else y + self.bias

    def extend_repr(self) -> str:
        text = f"in1_channels={self.in1_channels}, in2_channels={self.in2_channels}, output_channels={self.out_channels}"
        return f"{text}, has_bias={self.has_bias}" if self.has_bias else text
