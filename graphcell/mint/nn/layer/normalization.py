"""Normalisation layers with PyTorch's arguments and names of Parameters: weight, bias, running_mean, running_var, num_batches_tracked."""

from __future__ import annotations

from typing import Any

from graphcell import dtype as dt
from graphcell import nn, ops
from graphcell.common.initializer import initializer
from graphcell.errors import ArgumentValueError, ShapeError
from graphcell.mint.nn import functional as F
from graphcell.nn.checks import check_bool, check_tensor, is_int, positive_int
from graphcell.parameter import Parameter
from graphcell.tensor import Tensor


def _parameter(name: str, init: str, shape: tuple[int, ...], dtype: Any, trained: bool = True) -> Parameter:
    return Parameter(initializer(init, shape, dt.float32 if dtype is None else dt.as_dtype(dtype)), name=name, requires_grad=trained)


class _BatchNorm(nn.Cell):
    """Batch normalisation over all dimensions but the channels'.

    Args:
        num_features: channels.
        eps: added to the variance.
        momentum: how much of the batch's statistics the running ones take; None: all batches count the same.
        affine: train scale `weight` and shift `bias`.
        track_running_stats: keep running statistics, which are used when the layer does not train; else the batch's are always used.
        dtype: of the Parameters, by default float32.

    Raises:
        TypeError, ValueError: settings or shapes that do not fit.
    """

    ranks: tuple[int, ...] = (4,)
    _in_full_precision = frozenset({"running_mean", "running_var"})

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True, track_running_stats: bool = True, dtype: Any = None
    ):  # fmt: skip
        super().__init__()
        owner = type(self).__name__
        self.num_features, self.eps, self.momentum = positive_int(owner, "num_features", num_features), eps, momentum
        self.affine = check_bool(owner, "affine", affine)
        self.track_running_stats = check_bool(owner, "track_running_stats", track_running_stats)
        shape = (num_features,)
        self.weight = _parameter("weight", "ones", shape, dtype) if affine else None
        self.bias = _parameter("bias", "zeros", shape, dtype) if affine else None
        self.running_mean = self.running_var = self.num_batches_tracked = None
        if track_running_stats:
            self.running_mean = _parameter("running_mean", "zeros", shape, dtype, False)
            self.running_var = _parameter("running_var", "ones", shape, dtype, False)
            self.num_batches_tracked = Parameter(Tensor(0, dt.int64), name="num_batches_tracked", requires_grad=False)

    def construct(self, input: Any) -> Any:
        if check_tensor(type(self).__name__, "input", input).ndim not in self.ranks:
            raise ShapeError(f"For '{type(self).__name__}', the input must have {' or '.join(map(str, self.ranks))} dimensions, but has shape {input.shape}.")
        share: Any = self.momentum
        if self.training and self.num_batches_tracked is not None:
            ops.assign_add(self.num_batches_tracked, 1)
            if share is None:
                share = 1.0 / self.num_batches_tracked.astype(dt.float32)
        batch = self.training or self.running_mean is None
        if share is None:
            share = 0.0
        return F.batch_norm(input, self.running_mean, self.running_var, self.weight, self.bias, batch, share, self.eps)

    def extend_repr(self) -> str:
        return (
            f"num_features={self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"track_running_stats={self.track_running_stats}"
        )


class BatchNorm1d(_BatchNorm):
    """Batch normalisation of (N, C) or (N, C, L)."""

    ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Batch normalisation of (N, C, H, W)."""


class BatchNorm3d(_BatchNorm):
    """Batch normalisation of (N, C, D, H, W)."""

    ranks = (5,)


class SyncBatchNorm(_BatchNorm):
    """Batch normalisation of (N, C, …) over all processes: here there is one, so that it is that of BatchNorm.

    Args:
        process_group: the processes that share statistics; there is one group, of this process alone.
    """

    ranks = (2, 3, 4, 5)

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = True, track_running_stats: bool = True,
        process_group: str | None = None, dtype: Any = None,
    ):  # fmt: skip
        super().__init__(num_features, eps, momentum, affine, track_running_stats, dtype)
        self.process_group = process_group


class GroupNorm(nn.Cell):
    """Normalises the channels of (N, C, …) in groups, then scales each channel by weight and adds bias.

    Args:
        num_groups, num_channels: the former divides the latter.
        eps: added to the variance.
        affine: train weight and bias; else they stay 1 and 0.
        dtype: of the Parameters, by default float32.

    Raises:
        TypeError, ValueError: settings or shapes that do not fit.
    """

    def __init__(self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True, dtype: Any = None):
        super().__init__()
        self.num_groups = positive_int("GroupNorm", "num_groups", num_groups)
        self.num_channels = positive_int("GroupNorm", "num_channels", num_channels)
        if num_channels % num_groups:
            raise ArgumentValueError(f"For 'GroupNorm', the 'num_channels' must be divided by 'num_groups', but got {num_channels} and {num_groups}.")
        self.eps, self.affine = eps, check_bool("GroupNorm", "affine", affine)
        self.weight = _parameter("weight", "ones", (num_channels,), dtype, affine)
        self.bias = _parameter("bias", "zeros", (num_channels,), dtype, affine)

    def construct(self, input: Any) -> Any:
        return ops.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extend_repr(self) -> str:
        return f"num_groups={self.num_groups}, num_channels={self.num_channels}, eps={self.eps}, affine={self.affine}"


class LayerNormExt(nn.Cell):
    """Normalises over the last dimensions, of shape `normalized_shape`, then scales by weight and adds bias.

    Args:
        normalized_shape: an int, or a tuple or list of ints.
        eps: added to the variance.
        elementwise_affine: train weight and bias.
        bias: train the bias, too.
        dtype: of the Parameters, by default float32.

    Raises:
        TypeError, ValueError: settings or shapes that do not fit.
    """

    def __init__(self, normalized_shape: Any, eps: float = 1e-5, elementwise_affine: bool = True, bias: bool = True, dtype: Any = None):
        super().__init__()
        extents = (normalized_shape,) if is_int(normalized_shape) else normalized_shape
        self.normalized_shape = tuple(positive_int("LayerNorm", "normalized_shape", d) for d in extents)
        self.eps, self.elementwise_affine = eps, check_bool("LayerNorm", "elementwise_affine", elementwise_affine)
        self.weight = _parameter("weight", "ones", self.normalized_shape, dtype) if elementwise_affine else None
        self.bias = _parameter("bias", "zeros", self.normalized_shape, dtype) if elementwise_affine and check_bool("LayerNorm", "bias", bias) else None

    def construct(self, input: Any) -> Any:
        return ops.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extend_repr(self) -> str:
        return f"normalized_shape={self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


# The names of mint, which print as the classes do in MindSpore.
LayerNorm = LayerNormExt
