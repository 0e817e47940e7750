"""Activation functions, composed of primitives. Each takes a Tensor and keeps its dtype and shape; NaN stays NaN.

Where a formula has two branches, the branch not taken sees a harmless argument, so that no infinity meets a zero in the gradient.
"""

from __future__ import annotations

from typing import Any

from graphcell import dtype as dt
from graphcell.errors import ArgumentValueError, DTypeError, ShapeError
from graphcell.ops.arithmetic import Abs, Relu
from graphcell.ops.dispatch import apply1
from graphcell.ops.functional.arithmetic import clamp
from graphcell.ops.functional.axes import normalize_axis, tensor_of
from graphcell.ops.functional.common import cast, full_like, select, zeros_like
from graphcell.ops.gelus import Gelu, GeluTanh
from graphcell.ops.kernels import composite, elementary
from graphcell.ops.mathematics import Expm1, Sigmoid, Softplus, Tanh, TanhSoftplus
from graphcell.tensor import Tensor

__all__ = [
    "celu", "elu", "fast_gelu", "gelu", "glu", "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "logsigmoid", "mish",
    "prelu", "relu", "relu6", "rrelu", "selu", "silu", "softplus", "softshrink", "softsign", "tanhshrink", "threshold",
]  # fmt: skip

SELU_ALPHA = 1.6732632423543772848170429916717
SELU_SCALE = 1.0507009873554804934193349852946


def floats(x: Any, function: str) -> Tensor:
    """The operand of an activation function.

    Raises:
        TypeError: x is no Tensor of floats.
    """
    t = tensor_of(x, function)
    if not t.dtype.is_float:
        raise DTypeError(f"{function}: the input must be a Tensor of floats, but is {t.dtype}", hint="cast it, e.g. x.astype(mindspore.float32)")
    return t


@elementary
def relu(input: Any, inplace: bool = False) -> Tensor:
    """max(input, 0). The gradient at 0 is 0. Bool stays as it is.

    Args:
        inplace: also make the result the value of `input`.
    """
    x = tensor_of(input, "relu")
    y = x if x.dtype.is_bool else apply1(Relu(), x)
    if inplace:
        from graphcell.ops.functional.creation import assign

        assign(x, y)
    return y


@composite
def relu6(x: Any) -> Tensor:
    """min(max(x, 0), 6)."""
    y = apply1(Relu(), floats(x, "relu6"))
    six = full_like(y, 6.0)
    return select(y > six, six, y)


@composite
def leaky_relu(input: Any, alpha: float = 0.2) -> Tensor:
    """input where it is positive, else alpha * input."""
    x = floats(input, "leaky_relu")
    return select(x > zeros_like(x), x, x * alpha)


def _exponential_branch(x: Tensor, alpha: float, scale: float = 1.0) -> tuple[Tensor, Tensor]:
    """Where x is positive, and alpha * (exp(x / scale) - 1) for elsewhere."""
    positive = x > zeros_like(x)
    below = select(positive, zeros_like(x), x)
    return positive, apply1(Expm1(), below / scale if scale != 1.0 else below) * alpha


@composite
def elu(input_x: Any, alpha: float = 1.0) -> Tensor:
    """input_x where it is positive, else alpha * (exp(input_x) - 1)."""
    x = floats(input_x, "elu")
    positive, below = _exponential_branch(x, alpha)
    return select(positive, x, below)


@composite
def selu(input_x: Any) -> Tensor:
    """Scaled elu with the constants for which activations keep mean 0 and variance 1 (Klambauer et al. 2017)."""
    x = floats(input_x, "selu")
    positive, below = _exponential_branch(x, SELU_ALPHA)
    return select(positive, x, below) * SELU_SCALE


@composite
def celu(x: Any, alpha: float = 1.0) -> Tensor:
    """x where it is positive, else alpha * (exp(x / alpha) - 1).

    Raises:
        ValueError: alpha is 0.
    """
    if alpha == 0:
        raise ArgumentValueError("celu: alpha must not be 0")
    t = floats(x, "celu")
    positive, below = _exponential_branch(t, alpha, alpha)
    return select(positive, t, below)


@composite
def gelu(input: Any, approximate: str = "none") -> Tensor:
    """input times the standard normal distribution function of input.

    Args:
        approximate: "none" (by erf) or "tanh".

    Raises:
        ValueError: for another `approximate`.
    """
    x = floats(input, "gelu")
    if approximate == "tanh":
        return apply1(GeluTanh(), x)
    if approximate != "none":
        raise ArgumentValueError(f"gelu: approximate must be 'none' or 'tanh', but is {approximate!r}")
    return apply1(Gelu(), x)


@composite
def fast_gelu(x: Any) -> Tensor:
    """x * sigmoid(1.702 x), an approximation of gelu."""
    t = floats(x, "fast_gelu")
    return t * apply1(Sigmoid(), t * 1.702)


@composite
def silu(input: Any) -> Tensor:
    """input * sigmoid(input), also called swish."""
    x = floats(input, "silu")
    return x * apply1(Sigmoid(), x)


@composite
def mish(x: Any) -> Tensor:
    """x * tanh(softplus(x))."""
    t = floats(x, "mish")
    return t * apply1(TanhSoftplus(), t)


def rrelu(input: Any, lower: float = 1.0 / 8.0, upper: float = 1.0 / 3.0) -> Tensor:
    """input where it is positive, else input times a number drawn uniformly from lower to upper for each element.

    Raises:
        ValueError: upper is less than lower.
    """
    from graphcell.ops.functional.random import uniform

    if upper < lower:
        raise ArgumentValueError(f"rrelu: upper must not be less than lower, but they are {upper} and {lower}")
    x = floats(input, "rrelu")
    unit = uniform(x.shape, Tensor(0.0, dt.float32), Tensor(1.0, dt.float32))
    slope = cast(unit, x.dtype) * (upper - lower) + lower
    return select(x > zeros_like(x), x, x * slope)


@composite
def softplus(input: Any, beta: float = 1, threshold: float = 20) -> Tensor:
    """log(1 + exp(beta * input)) / beta, and input itself where beta * input is above `threshold`.

    Raises:
        ValueError: beta is 0.
    """
    if beta == 0:
        raise ArgumentValueError("softplus: beta must not be 0")
    x = floats(input, "softplus")
    scaled = x if beta == 1 else x * beta
    smooth = apply1(Softplus(), scaled)
    smooth = smooth if beta == 1 else smooth / beta
    return select(scaled > full_like(x, threshold), x, smooth)


@composite
def softsign(x: Any) -> Tensor:
    """x / (1 + |x|)."""
    t = floats(x, "softsign")
    return t / (1.0 + apply1(Abs(), t))


def _upper_half(x: Tensor) -> Tensor:
    """min(max(x + 3, 0), 6) / 6, whose gradient is 0 at both bounds."""
    y = apply1(Relu(), x + 3.0)
    six = full_like(y, 6.0)
    return select(y >= six, six, y) * (1.0 / 6.0)


@composite
def hardswish(input: Any) -> Tensor:
    """input * hardsigmoid(input)."""
    x = floats(input, "hardswish")
    return x * _upper_half(x)


@composite
def hardsigmoid(input: Any) -> Tensor:
    """min(max(input / 6 + 1 / 2, 0), 1)."""
    return _upper_half(floats(input, "hardsigmoid"))


@composite
def hardtanh(input: Any, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """input between min_val and max_val, in the dtype of input."""
    x = tensor_of(input, "hardtanh")
    return cast(clamp(x, min_val, max_val), x.dtype)


@composite
def hardshrink(input: Any, lambd: float = 0.5) -> Tensor:
    """0 where input is between -lambd and lambd, else input."""
    x = floats(input, "hardshrink")
    inside = (x >= full_like(x, -lambd)) & (x <= full_like(x, lambd))
    return select(inside, zeros_like(x), x)


@composite
def softshrink(input: Any, lambd: float = 0.5) -> Tensor:
    """input - lambd above lambd, input + lambd below -lambd, 0 between.

    Raises:
        ValueError: lambd is negative.
    """
    if lambd < 0:
        raise ArgumentValueError(f"softshrink: lambd must not be negative, but is {lambd}")
    x = floats(input, "softshrink")
    above = select(x > full_like(x, lambd), x - lambd, x * 0.0)
    return select(x < full_like(x, -lambd), x + lambd, above)


@composite
def tanhshrink(input: Any) -> Tensor:
    """input - tanh(input); integers become float32."""
    x = tensor_of(input, "tanhshrink")
    x = x if x.dtype.is_float else cast(x, dt.float32)
    return x - apply1(Tanh(), x)


@composite
def logsigmoid(x: Any) -> Tensor:
    """log(sigmoid(x)), exact for x far below 0 too."""
    return -apply1(Softplus(), -floats(x, "logsigmoid"))


def threshold(input: Any, thr: float, value: float) -> Tensor:
    """input where it is greater than thr, else value."""
    x = tensor_of(input, "threshold")
    return select(x > thr, x, full_like(x, value))


@composite
def prelu(input: Any, weight: Any) -> Tensor:
    """input where it is positive, else weight * input.

    Args:
        input: shape (N, C, …), or (C,), or (); of floats.
        weight: shape (C,), one number a channel, or (1,); the result has the dtype of input all the same.

    Raises:
        TypeError: no Tensors, or no floats. ValueError: shapes do not fit.
    """
    x = floats(input, "prelu")
    w = cast(floats(weight, "prelu"), x.dtype)
    channels = x.shape[1] if x.ndim > 1 else 1
    if w.ndim != 1 or w.shape[0] not in (1, channels):
        raise ShapeError(f"prelu: weight must have shape ({channels},) or (1,) for an input of shape {x.shape}, but has {w.shape}")
    if x.ndim > 2 and w.shape[0] > 1:
        w = w.reshape((channels,) + (1,) * (x.ndim - 2))
    if x.ndim == 0:
        w = w.reshape(())
    return select(x > zeros_like(x), x, w * x)


@composite
def glu(x: Any, axis: int = -1) -> Tensor:
    """The first half of x along `axis` times the sigmoid of the second half.

    Raises:
        ValueError: the axis does not exist, or its size is odd.
    """
    t = floats(x, "glu")
    k = normalize_axis(axis, t.ndim, "glu")
    if t.shape[k] % 2:
        raise ShapeError(f"glu: dimension {axis} of shape {t.shape} is odd and has no halves")
    from graphcell.ops.functional.movement import chunk

    first, second = chunk(t, 2, k)
    return first * apply1(Sigmoid(), second)
