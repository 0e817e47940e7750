"""Resizing, padding, normalisation and dropout with PyTorch's arguments.

Enters: Tensors. Leaves: what `ops` computes. Both modes, with gradients.
"""

from __future__ import annotations

from typing import Any

from graphcell import ops
from graphcell.errors import ArgumentValueError
from graphcell.ops.dispatch import written_in
from graphcell.ops.functional.interpolation import resize
from graphcell.ops.methods import update
from graphcell.tensor import Tensor


# -- resizing and padding ------------------------------------------------------------------------------------------------
def pad(input: Tensor, pad: Any, mode: str = "constant", value: Any = None) -> Tensor:
    """Elements added before and after the last dimensions; see `ops.pad`.

    Args:
        pad: (before, after) of the last dimension, then of the one before it, ….
        mode: 'constant' (with `value`, 0 by default), 'reflect', 'replicate' or 'circular'.
    """
    return ops.pad(input, pad, mode, value)


def interpolate(
    input: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
) -> Tensor:  # fmt: skip
    """Resizes the spatial dimensions of input (N, C, …) to `size`, or by `scale_factor`; see `ops.interpolate`.

    The mode "bicubic" reads the edge again where it would read beyond it, and its kernel has the parameter -0.75.
    """
    return resize(input, size, scale_factor, mode, align_corners, recompute_scale_factor, edges_repeat=True)


def upsample(input: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool | None = None) -> Tensor:
    """The same as `interpolate`."""
    return interpolate(input, size, scale_factor, mode, align_corners)


# -- normalisation -------------------------------------------------------------------------------------------------------
def batch_norm(
    input: Tensor, running_mean: Any, running_var: Any, weight: Any = None, bias: Any = None, training: bool = False, momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """Normalises each channel of input (N, C, …), then scales it by weight and adds bias, vectors (C,) or None.

    Args:
        running_mean, running_var: vectors (C,) that are used as mean and variance, or, in training, moved towards the batch's; None: the batch's are used.
        training: use the mean and variance of the batch.
        momentum: how much of the batch's statistics the running ones take.
        eps: added to the variance.

    Raises:
        ValueError: shapes that do not fit; running statistics are missing where they are to be used.
    """
    if (running_mean is None) != (running_var is None) or (running_mean is None and not training):
        raise ArgumentValueError("batch_norm: running_mean and running_var go together, and may be None in training only")
    channels = (input.shape[1],)
    scale = ops.ones(channels, input.dtype) if weight is None else weight
    shift = ops.zeros(channels, input.dtype) if bias is None else bias
    if running_mean is None:
        running_mean, running_var = ops.zeros(channels, scale.dtype), ops.ones(channels, scale.dtype)
    return ops.batch_norm(input, running_mean, running_var, scale, shift, training, momentum, eps)


def normalize(input: Tensor, p: float = 2.0, dim: Any = 1, eps: float = 1e-12) -> Tensor:
    """The input over its norm of order `p` along `dim`, which counts as `eps` at least."""
    length = ops.vector_norm(input, p, dim, True)
    return ops.div(input, ops.clamp(length, min=eps))


# -- dropout -------------------------------------------------------------------------------------------------------------
def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """In training, zeros with probability p, all else times 1 / (1 - p); else the input as it is.

    Args:
        inplace: write the result into the input, and return that.

    Raises:
        TypeError: no Tensor of floats, or p is no number. ValueError: p is outside of [0, 1].
    """
    return update(input, ops.dropout(written_in(input), p, training), "dropout") if inplace else ops.dropout(input, p, training)


def dropout2d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Drops whole channels of (N, C, H, W), or of any (N, C, …). Arguments and errors as in `dropout`."""
    if not training or not p:
        return ops.dropout(input, p, training)
    spatial = input.reshape((*input.shape[:2], -1, 1))
    y = ops.dropout2d(spatial, p, training).reshape(input.shape)
    return update(input, y, "dropout2d") if inplace else y
