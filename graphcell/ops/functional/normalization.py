"""Normalisation: batch, layer, group, root mean square, local response. Half precision is normalised and scaled in float32."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphcell import dtype as dt
from graphcell.errors import ArgumentTypeError, ArgumentValueError, DTypeError, ShapeError
from graphcell.ops.dispatch import apply, apply1
from graphcell.ops.functional.common import cast
from graphcell.ops.functional.creation import assign, stop_gradient
from graphcell.ops.functional.movement import reshaped
from graphcell.ops.functional.reductions import wide
from graphcell.ops.kernels import composite
from graphcell.ops.moments import Moments
from graphcell.ops.reduction import ReduceSum
from graphcell.tensor import Tensor

__all__ = ["batch_norm", "group_norm", "layer_norm", "lrn", "rms_norm"]


def moments(x: Any, axis: tuple[int, ...]) -> tuple[Any, Any]:
    """Mean and (biased) variance over `axis`, with dimensions kept. The variance is that of the centred values."""
    mean, variance = apply(Moments(axis), x)
    return mean, variance


def _channels(v: Any, rank: int) -> Any:
    """A vector with one entry a channel, or None, shaped to broadcast along dimension 1."""
    return None if v is None else v.reshape((1, -1, *(1,) * (rank - 2)))


@composite
def batch_norm(input_x: Any, running_mean: Any, running_var: Any, weight: Any, bias: Any, training: bool = False, momentum: float = 0.1,
               eps: float = 1e-5) -> Tensor:
    """Normalises over all dimensions but 1 (channels): (x - mean) / sqrt(var + eps) * weight + bias.

    Training: with the batch's mean and variance; `running_mean` and `running_var` (Parameters) become
    (1 - momentum) * running + momentum * batch, with the unbiased variance. Else: with the running ones.

    Args:
        input_x: (N, C, ...), float.
        running_mean, running_var, weight, bias: (C,); weight and bias may be None.

    Raises:
        ValueError: the channels do not fit.
    """
    x = _floats("batch_norm", input_x)
    if x.ndim < 2 or x.shape[1] != running_mean.shape[0]:
        raise ShapeError(f"batch_norm: the input has shape {x.shape}, but there are {running_mean.shape[0]} channels")
    y: Any = normalize_batch(x, running_mean, running_var, training, momentum, eps)
    return _scaled(y, _channels(weight, x.ndim), _channels(bias, x.ndim), x.dtype)


@composite
def normalize_batch(x: Any, running_mean: Any, running_var: Any, training: bool, momentum: float, eps: float) -> Any:
    """The normalisation without scale and shift, in float32 at least; updates the running statistics in training."""
    x = wide(x)
    if training:
        axis = (0, *range(2, x.ndim))
        mean, var = moments(x, axis)
        _update_running(running_mean, running_var, mean, var, x.size // max(x.shape[1], 1), momentum)
    else:
        mean, var = (stop_gradient(cast(_channels(v, x.ndim), x.dtype)) for v in (running_mean, running_var))
    return (x - mean) * (var + eps).rsqrt()


def _scaled(y: Any, weight: Any, bias: Any, dtype: dt.DType) -> Tensor:
    """y * weight + bias, computed in the dtype of y: the gradients of weight and bias are long sums, which overflow in half precision."""
    y = y if weight is None else y * cast(weight, y.dtype)
    y = y if bias is None else y + cast(bias, y.dtype)
    return cast(y, dtype)


def _update_running(running_mean: Any, running_var: Any, mean: Any, var: Any, count: int, momentum: float) -> None:
    unbiased = var * (count / max(count - 1, 1))
    for running, batch in ((running_mean, mean), (running_var, unbiased)):
        new = running * (1.0 - momentum) + stop_gradient(batch).reshape(running.shape) * momentum
        assign(running, cast(stop_gradient(new), running.dtype))


@composite
def layer_norm(input: Any, normalized_shape: Sequence[int], weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Tensor:
    """Normalises over the last dimensions, which have the extents `normalized_shape`; weight and bias have that shape.

    Raises:
        ValueError: the extents do not fit.
    """
    x = _floats("layer_norm", input)
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    if not shape or x.shape[-len(shape) :] != shape:
        raise ShapeError(f"layer_norm: the last dimensions of the input, {x.shape}, must be normalized_shape, {shape}")
    whole: Any = wide(x)
    mean, var = moments(whole, tuple(range(x.ndim - len(shape), x.ndim)))
    return _scaled((whole - mean) * (var + eps).rsqrt(), weight, bias, x.dtype)


@composite
def lrn(
    x: Any, depth_radius: int = 5, bias: float = 1.0, alpha: float = 1.0, beta: float = 0.5,
    norm_region: str = "ACROSS_CHANNELS",
) -> Tensor:  # fmt: skip
    """x / (bias + alpha * sum of x² over the channels at most `depth_radius` away) ** beta, for x (N, C, H, W).

    Raises:
        TypeError: no Tensor of floats. ValueError: another shape or region, a negative radius.
    """
    from graphcell.ops.functional.pooling import pad_spatial, windows

    t = _floats("lrn", x)
    if t.ndim != 4 or depth_radius < 0 or norm_region != "ACROSS_CHANNELS":
        raise ArgumentValueError(
            f"lrn: x must have 4 dimensions, depth_radius be at least 0 and norm_region 'ACROSS_CHANNELS', but got shape {t.shape}, "
            f"{depth_radius} and {norm_region!r}"
        )
    if not t.size:
        return t  # type: ignore[no-any-return]
    planes = reshaped(t * t, (t.shape[0], t.shape[1], t.shape[2] * t.shape[3]))
    near = windows(pad_spatial(planes, ((depth_radius, depth_radius), (0, 0)), 0.0), (2 * depth_radius + 1, 1), (1, 1))
    total: Any = apply1(ReduceSum((3, 4)), near)
    return t / (bias + alpha * reshaped(total, t.shape)) ** beta  # type: ignore[no-any-return]


def _floats(function: str, x: Any) -> Any:
    """`x`, which must be a Tensor of floats; raises TypeError."""
    if not isinstance(x, Tensor):
        raise ArgumentTypeError(f"{function}: the input must be a Tensor, but is {type(x).__name__}")
    if not x.dtype.is_float:
        raise DTypeError(f"{function}: the input must be a Tensor of floats, but is {x.dtype}")
    return x


@composite
def group_norm(input: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Tensor:
    """Normalises each of `num_groups` groups of channels of input (N, C, ...); weight and bias are (C,).

    Raises:
        ValueError: the channels are no multiple of the groups.
    """
    x = _floats("group_norm", input)
    if x.ndim < 2 or num_groups < 1 or x.shape[1] % num_groups:
        raise ArgumentValueError(f"group_norm: {num_groups} groups do not divide the channels of an input of shape {x.shape}")
    grouped: Any = reshaped(wide(x), (x.shape[0], num_groups, x.size // max(x.shape[0] * num_groups, 1)))
    mean, var = moments(grouped, (2,))
    y = ((grouped - mean) * (var + eps).rsqrt()).reshape(x.shape)
    return _scaled(y, _channels(weight, x.ndim), _channels(bias, x.ndim), x.dtype)


@composite
def rms_norm(x: Any, gamma: Any, epsilon: float = 1e-6) -> tuple[Tensor, Tensor]:
    """x / sqrt(mean(x**2) + epsilon) * gamma, over as many last dimensions as gamma has (Zhang and Sennrich, 2019).

    Args:
        x: (..., D), float. gamma: the shape of the last dimensions of x.

    Returns:
        The result, and the reciprocal roots: Float32, with the normalised dimensions kept as 1.

    Raises:
        TypeError: no Tensors of floats. ValueError: gamma does not have the shape of x's last dimensions.
    """
    x, gamma = _floats("rms_norm", x), _floats("rms_norm", gamma)
    if gamma.ndim == 0 or x.shape[-gamma.ndim :] != gamma.shape:
        raise ShapeError(f"rms_norm: gamma has shape {gamma.shape}, which is not that of the last dimensions of x, {x.shape}")
    whole: Any = wide(x)
    axis = tuple(range(x.ndim - gamma.ndim, x.ndim))
    scale: Any = (apply1(ReduceSum(axis, True), whole * whole) * (1.0 / max(gamma.size, 1)) + epsilon).rsqrt()
    return cast(whole * scale * cast(gamma, whole.dtype), x.dtype), cast(scale, dt.float32)
