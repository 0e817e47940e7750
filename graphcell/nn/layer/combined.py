"""A convolution or a dense layer with what usually follows it: batch normalisation and an activation."""

from __future__ import annotations

from typing import Any

from graphcell.errors import ArgumentTypeError
from graphcell.nn.cell import Cell
from graphcell.nn.checks import check_bool
from graphcell.nn.layer.activation import LeakyReLU, get_activation
from graphcell.nn.layer.basic import Dense
from graphcell.nn.layer.conv import Conv2d
from graphcell.nn.layer.normalization import BatchNorm1d, BatchNorm2d


class _BnAct(Cell):
    """What follows the layer. `alpha` is the slope of the activation 'leakyrelu'; `after_fake` is kept."""

    def _follow(self, norm: Cell | None, has_bn: bool, activation: Any, alpha: float, after_fake: bool) -> None:
        owner = type(self).__name__
        self.has_bn = check_bool(owner, "has_bn", has_bn)
        self.has_act = activation is not None
        self.after_fake = check_bool(owner, "after_fake", after_fake)
        if norm is not None:
            self.batchnorm = norm
        if activation is not None and not isinstance(activation, str) and not callable(activation):
            raise ArgumentTypeError(f"For '{owner}', the 'activation' must be str or Cell or Primitive, but got {type(activation).__name__}.")
        if activation == "leakyrelu":
            self.activation: Any = LeakyReLU(alpha)
        else:
            self.activation = get_activation(activation) if isinstance(activation, str) else activation

    def _finish(self, y: Any) -> Any:
        y = self.batchnorm(y) if self.has_bn else y
        return self.activation(y) if self.has_act else y


class Conv2dBnAct(_BnAct):
    """Conv2d, then BatchNorm2d with `has_bn`, then an activation; settings as of these."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, pad_mode: str = "same", padding: Any = 0, dilation: Any = 1,
        group: int = 1, has_bias: bool = False, weight_init: Any = "normal", bias_init: Any = "zeros", has_bn: bool = False, momentum: float = 0.997,
        eps: float = 1e-5, activation: Any = None, alpha: float = 0.2, after_fake: bool = True,
    ):  # fmt: skip
        super().__init__()
        self.conv = Conv2d(in_channels, out_channels, kernel_size, stride, pad_mode, padding, dilation, group, has_bias, weight_init, bias_init)
        self._follow(BatchNorm2d(out_channels, eps, momentum) if has_bn else None, has_bn, activation, alpha, after_fake)

    def construct(self, x: Any) -> Any:
        return self._finish(self.conv(x))


class DenseBnAct(_BnAct):
    """Dense, then BatchNorm1d with `has_bn`, then an activation; settings as of these."""

    def __init__(
        self, in_channels: int, out_channels: int, weight_init: Any = "normal", bias_init: Any = "zeros", has_bias: bool = True, has_bn: bool = False,
        momentum: float = 0.9, eps: float = 1e-5, activation: Any = None, alpha: float = 0.2, after_fake: bool = True,
    ):  # fmt: skip
        super().__init__()
        self.dense = Dense(in_channels, out_channels, weight_init, bias_init, has_bias)
        self._follow(BatchNorm1d(out_channels, eps, momentum) if has_bn else None, has_bn, activation, alpha, after_fake)

    def construct(self, x: Any) -> Any:
        return self._finish(self.dense(x))
