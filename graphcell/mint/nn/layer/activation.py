"""Activations as layers, with PyTorch's arguments."""

from __future__ import annotations

from typing import Any

from graphcell import dtype as dt
from graphcell import nn, ops
from graphcell.common.initializer import initializer
from graphcell.mint.nn import functional as F
from graphcell.nn.checks import check_bool, positive_int
from graphcell.parameter import Parameter


class GLU(nn.Cell):
    """Half of the input along `dim`, times the sigmoid of the other half."""

    def __init__(self, dim: int = -1):
        super().__init__()
        self.dim = dim

    def construct(self, input: Any) -> Any:
        return ops.glu(input, self.dim)


class Sigmoid(nn.Cell):
    """1 / (1 + e**-input)."""

    def __init__(self) -> None:
        super().__init__()

    def construct(self, input: Any) -> Any:
        return ops.sigmoid(input)


class Tanh(nn.Cell):
    """The hyperbolic tangent."""

    def __init__(self) -> None:
        super().__init__()

    def construct(self, input: Any) -> Any:
        return ops.tanh(input)


class Mish(nn.Cell):
    """input * tanh(log(1 + e**input))."""

    def construct(self, input: Any) -> Any:
        return ops.mish(input)


class SELU(nn.Cell):
    """See `mint.nn.functional.selu`."""

    def construct(self, input: Any) -> Any:
        return ops.selu(input)


class LogSigmoid(nn.Cell):
    """log(1 / (1 + e**-input))."""

    def __init__(self) -> None:
        super().__init__()

    def construct(self, input: Any) -> Any:
        return ops.logsigmoid(input)


class GELU(nn.Cell):
    """input times the probability that a normal number is below it; approximate: 'none' or 'tanh'."""

    def __init__(self, approximate: str = "none"):
        super().__init__()
        self.approximate = approximate

    def construct(self, input: Any) -> Any:
        return ops.gelu(input, self.approximate)


class _MaybeInPlace(nn.Cell):
    """Args:
    inplace: write the result into the input, and return that. Default False.
    """

    def __init__(self, inplace: bool = False):
        super().__init__()
        self.inplace = check_bool(type(self).__name__, "inplace", inplace)


class SiLU(_MaybeInPlace):
    """input * sigmoid(input), also called swish."""

    def construct(self, x: Any) -> Any:
        return F.silu(x, self.inplace)


class ReLU6(_MaybeInPlace):
    """The input, not below 0 and not above 6."""

    def construct(self, input: Any) -> Any:
        return F.relu6(input, self.inplace)


class ELU(_MaybeInPlace):
    """input where it is positive, else alpha * (e**input - 1)."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False):
        super().__init__(inplace)
        self.alpha = alpha

    def construct(self, input: Any) -> Any:
        return F.elu(input, self.alpha, self.inplace)


class Hardtanh(_MaybeInPlace):
    """The input, not below min_val and not above max_val."""

    def __init__(self, min_val: Any = -1.0, max_val: Any = 1.0, inplace: bool = False):
        super().__init__(inplace)
        self.min_val, self.max_val = min_val, max_val

    def construct(self, input: Any) -> Any:
        return F.hardtanh(input, self.min_val, self.max_val, self.inplace)


class Threshold(_MaybeInPlace):
    """The input where it is above threshold, else value."""

    def __init__(self, threshold: float, value: float, inplace: bool = False):
        super().__init__(inplace)
        self.threshold, self.value = threshold, value

    def construct(self, input: Any) -> Any:
        return F.threshold(input, self.threshold, self.value, self.inplace)


class SoftmaxExt(nn.Cell):
    """exp(x) over its sum along `dim`; default: 0 for ranks 0, 1 and 3, else 1."""

    def __init__(self, dim: int | None = None):
        super().__init__()
        self.dim = dim

    def construct(self, input: Any) -> Any:
        return F.softmax(input, self.dim)


class LogSoftmaxExt(SoftmaxExt):
    """The logarithm of softmax along `dim`; default: 0 for ranks 0, 1 and 3, else 1."""

    def construct(self, logits: Any) -> Any:
        return F.log_softmax(logits, self.dim)


class PReLUExt(nn.Cell):
    """input where it is positive, else weight * input.

    Args:
        num_parameters: 1, or the extent of dimension 1: as many weights are trained.
        init: the number that they start with.
        dtype: of the weights, by default float32.
    """

    def __init__(self, num_parameters: int = 1, init: float = 0.25, dtype: Any = None):
        super().__init__()
        self.num_parameters = positive_int("PReLU", "num_parameters", num_parameters)
        self.weight = Parameter(initializer(init, (num_parameters,), dtype or dt.float32), name="weight")

    def construct(self, input: Any) -> Any:
        return ops.prelu(input, self.weight)


# The names of mint, which print as the classes do in MindSpore.
LogSoftmax = LogSoftmaxExt
PReLU = PReLUExt
Softmax = SoftmaxExt
