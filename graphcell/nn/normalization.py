"""Normalisation layers."""

from __future__ import annotations

from typing import Any

from graphcell import dtype as dt
from graphcell import ops
from graphcell.common.initializer import initializer
from graphcell.errors import ArgumentTypeError, ArgumentValueError, ShapeError
from graphcell.nn.cell import Cell
from graphcell.nn.linear import positive_int
from graphcell.parameter import Parameter


class _BatchNorm(Cell):
    """Batch normalisation over all dimensions but the channels'.

    Args:
        num_features: channels.
        eps: added to the variance.
        momentum: moving = momentum * moving + (1 - momentum) * batch. Default 0.9.
        affine: train scale `gamma` and shift `beta`.
        gamma_init, beta_init, moving_mean_init, moving_var_init: initializers.
        use_batch_statistics: True, False, or None: in training only.

    In training the batch's statistics are used and the moving ones updated (variance unbiased), else the moving ones are used.
    """

    ranks: tuple[int, ...] = (4,)

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.9, affine: bool = True, gamma_init: Any = "ones", beta_init: Any = "zeros",
                 moving_mean_init: Any = "zeros", moving_var_init: Any = "ones", use_batch_statistics: bool | None = None, data_format: str = "NCHW",
                 dtype: Any = dt.float32):
        super().__init__()
        owner = type(self).__name__
        self.num_features = positive_int(owner, "num_features", num_features)
        if not 0 <= momentum <= 1:
            raise ArgumentValueError(f"For '{owner}', the 'momentum' must be a number in range [0, 1], but got {momentum}.")
        if use_batch_statistics not in (True, False, None):
            raise ArgumentTypeError(f"For '{owner}', the 'use_batch_statistics' must be a boolean or None, but got {use_batch_statistics}.")
        self.eps, self.momentum, self.use_batch_statistics, self.data_format = eps, momentum, use_batch_statistics, data_format
        shape = (num_features,)
        self.moving_mean = Parameter(initializer(moving_mean_init, shape, dtype), name="mean", requires_grad=False)
        self.moving_variance = Parameter(initializer(moving_var_init, shape, dtype), name="variance", requires_grad=False)
        self.gamma = Parameter(initializer(gamma_init, shape, dtype), name="gamma", requires_grad=affine)
        self.beta = Parameter(initializer(beta_init, shape, dtype), name="beta", requires_grad=affine)

    def construct(self, x: Any) -> Any:
        if x.ndim not in self.ranks:
            raise ShapeError(f"For '{type(self).__name__}', the input must have {' or '.join(map(str, self.ranks))} dimensions, but has shape {x.shape}.")
        batch = self.training if self.use_batch_statistics is None else self.use_batch_statistics
        last = self.data_format == "NHWC"
        if last:
            x = x.transpose(0, 3, 1, 2)
        y: Any = ops.batch_norm(x, self.moving_mean, self.moving_variance, self.gamma, self.beta, batch, 1.0 - self.momentum, self.eps)
        return y.transpose(0, 2, 3, 1) if last else y

    def extend_repr(self) -> str:
        return (f"num_features={self.num_features}, eps={self.eps}, momentum={self.momentum}, gamma={self.gamma}, beta={self.beta}, "
                f"moving_mean={self.moving_mean}, moving_variance={self.moving_variance}")


class BatchNorm1d(_BatchNorm):
    """Batch normalisation of (N, C) or (N, C, L)."""

    ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Batch normalisation of (N, C, H, W)."""

    ranks = (4,)


class BatchNorm3d(_BatchNorm):
    """Batch normalisation of (N, C, D, H, W)."""

    ranks = (5,)


class LayerNorm(Cell):
    """Normalises over the last dimensions, of the extents `normalized_shape`, then scales by gamma and shifts by beta.

    Args:
        normalized_shape: tuple or list of ints.
        begin_norm_axis, begin_params_axis: the first dimension normalised, and the first that gamma and beta have. Default -1.
        epsilon: added to the variance, default 1e-7.
    """

    def __init__(self, normalized_shape: Any, begin_norm_axis: int = -1, begin_params_axis: int = -1, gamma_init: Any = "ones", beta_init: Any = "zeros",
                 epsilon: float = 1e-7, dtype: Any = dt.float32):
        super().__init__()
        if not isinstance(normalized_shape, (tuple, list)):
            raise ArgumentTypeError(f"For 'LayerNorm', the type of 'normalized_shape' must be tuple[int] or list[int], but got {normalized_shape} and the type is {type(normalized_shape)}.")
        if not normalized_shape:
            raise ArgumentValueError("For 'LayerNorm', the 'normalized_shape' must not be empty.")
        self.normalized_shape = tuple(normalized_shape)
        self.begin_norm_axis, self.begin_params_axis, self.epsilon = begin_norm_axis, begin_params_axis, epsilon
        self.gamma = Parameter(initializer(gamma_init, self.normalized_shape, dtype), name="gamma")
        self.beta = Parameter(initializer(beta_init, self.normalized_shape, dtype), name="beta")

    def construct(self, input_x: Any) -> Any:
        begin = self.begin_norm_axis % input_x.ndim
        if self.gamma.shape != input_x.shape[self.begin_params_axis % input_x.ndim :]:
            raise ShapeError(f"For 'LayerNorm', gamma has shape {self.gamma.shape}, which does not fit an input of shape {input_x.shape}.")
        y = ops.layer_norm(input_x, input_x.shape[begin:], None, None, self.epsilon)
        return y * self.gamma.astype(input_x.dtype) + self.beta.astype(input_x.dtype)  # type: ignore[attr-defined, operator]

    def extend_repr(self) -> str:
        return (f"normalized_shape={self.normalized_shape}, begin_norm_axis={self.begin_norm_axis}, begin_params_axis={self.begin_params_axis}, "
                f"gamma={self.gamma}, beta={self.beta}")


class GroupNorm(Cell):
    """Normalises each of `num_groups` groups of channels of (N, C, H, W), then scales and shifts each channel."""

    def __init__(self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True, gamma_init: Any = "ones", beta_init: Any = "zeros",
                 dtype: Any = dt.float32):
        super().__init__()
        self.num_groups = positive_int("GroupNorm", "num_groups", num_groups)
        self.num_channels = positive_int("GroupNorm", "num_channels", num_channels)
        if num_channels % num_groups:
            raise ArgumentValueError(f"For 'GroupNorm', the 'num_channels' must be divided by 'num_groups', but got {num_channels} and {num_groups}.")
        self.eps, self.affine = eps, affine
        self.gamma = Parameter(initializer(gamma_init, (num_channels,), dtype), name="gamma", requires_grad=affine)
        self.beta = Parameter(initializer(beta_init, (num_channels,), dtype), name="beta", requires_grad=affine)

    def construct(self, x: Any) -> Any:
        return ops.group_norm(x, self.num_groups, self.gamma, self.beta, self.eps)

    def extend_repr(self) -> str:
        return f"num_groups={self.num_groups}, num_channels={self.num_channels}, eps={self.eps}, affine={self.affine}"
