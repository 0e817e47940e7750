"""Normalisation layers."""

from __future__ import annotations

from typing import Any

from graphcell import dtype as dt
from graphcell import ops
from graphcell.common.initializer import initializer
from graphcell.errors import ArgumentTypeError, ArgumentValueError, ShapeError
from graphcell.nn.cell import Cell
from graphcell.nn.checks import check_bool, check_choice, check_int, check_number, check_tensor, positive_int
from graphcell.ops import automatic
from graphcell.ops.functional.reductions import wide
from graphcell.parameter import Parameter


class _WithStatistics(Cell):
    """What batch and instance normalisation have: scale, shift and moving statistics, one a channel."""

    ranks: tuple[int, ...] = (4,)
    _in_full_precision = frozenset({"moving_mean", "moving_variance"})

    def _start(
        self, num_features: int, eps: float, momentum: float, affine: bool, gamma_init: Any, beta_init: Any,
        mean_init: Any, variance_init: Any, dtype: Any,
    ) -> None:  # fmt: skip
        owner = type(self).__name__
        self.num_features = check_int(owner, "num_features", num_features)
        if num_features < 1:
            raise ArgumentValueError(f"For '{owner}', the 'num_features' must be at least 1, but got {num_features}.")
        check_number(owner, "momentum", momentum)
        if not 0 <= momentum <= 1:
            raise ArgumentValueError(
                f"For '{owner}', the 'momentum' must be a number in range [0, 1], but got {momentum}."
            )
        self.eps, self.momentum = eps, momentum
        shape = (num_features,)
        self.moving_mean = Parameter(initializer(mean_init, shape, dtype), name="mean", requires_grad=False)
        self.moving_variance = Parameter(initializer(variance_init, shape, dtype), name="variance", requires_grad=False)
        self.gamma = Parameter(initializer(gamma_init, shape, dtype), name="gamma", requires_grad=affine)
        self.beta = Parameter(initializer(beta_init, shape, dtype), name="beta", requires_grad=affine)

    def _check_rank(self, x: Any) -> None:
        if check_tensor(type(self).__name__, "x", x).ndim not in self.ranks:
            kinds = " or ".join(f"{r} dims" for r in self.ranks)
            raise ShapeError(
                f"For '{type(self).__name__}', the in_shape must have {kinds}, but got {x.ndim}: the input has shape {x.shape}."
            )

    def _printed_momentum(self) -> float:
        return self.momentum

    def extend_repr(self) -> str:
        return (
            f"num_features={self.num_features}, eps={self.eps}, momentum={self._printed_momentum()}, gamma={self.gamma}, "
            f"beta={self.beta}, moving_mean={self.moving_mean}, moving_variance={self.moving_variance}"
        )


class _BatchNorm(_WithStatistics):
    """Batch normalisation over all dimensions but the channels'.

    Args:
        num_features: channels.
        eps: added to the variance.
        momentum: moving = momentum * moving + (1 - momentum) * batch. Default 0.9.
        affine: train scale `gamma` and shift `beta`.
        gamma_init, beta_init, moving_mean_init, moving_var_init: initializers.
        use_batch_statistics: True, False, or None: in training only.

    In training the batch's statistics are used and the moving ones updated (variance unbiased), else the moving ones are used.

    Raises:
        TypeError, ValueError: settings or shapes that do not fit.
    """

    formats: tuple[str, ...] = ("NCHW",)

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float = 0.9, affine: bool = True, gamma_init: Any = "ones",
        beta_init: Any = "zeros", moving_mean_init: Any = "zeros", moving_var_init: Any = "ones",
        use_batch_statistics: bool | None = None, data_format: str = "NCHW", dtype: Any = dt.float32,
    ):  # fmt: skip
        super().__init__()
        self._start(
            num_features, eps, momentum, affine, gamma_init, beta_init, moving_mean_init, moving_var_init, dtype
        )
        self.momentum = 1.0 - momentum  # how much of the new statistics is taken, as in MindSpore
        owner = type(self).__name__
        if use_batch_statistics is not None and not isinstance(use_batch_statistics, bool):
            raise ArgumentValueError(
                f"For '{owner}', the 'use_batch_statistics' must be a boolean value or None, but got {use_batch_statistics}."
            )
        self.use_batch_statistics = use_batch_statistics
        self.data_format = check_choice(owner, "format", data_format, self.formats)

    def construct(self, x: Any) -> Any:
        self._check_rank(x)
        batch = self.training if self.use_batch_statistics is None else self.use_batch_statistics
        last = self.data_format == "NHWC"
        if last:
            x = x.transpose(0, 3, 1, 2)
        y: Any = ops.batch_norm(
            x, self.moving_mean, self.moving_variance, self.gamma, self.beta, batch, self.momentum, self.eps
        )
        return y.transpose(0, 2, 3, 1) if last else y

    def _printed_momentum(self) -> float:
        return 1.0 - self.momentum


class BatchNorm1d(_BatchNorm):
    """Batch normalisation of (N, C) or (N, C, L)."""

    ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Batch normalisation of (N, C, H, W)."""

    formats = ("NCHW", "NHWC")


class SyncBatchNorm(_BatchNorm):
    """Batch normalisation of (N, C) or (N, C, H, W) over all processes: here there is one, so that it is that of BatchNorm.

    Args:
        process_groups: lists of processes that share statistics; must be None or hold process 0 alone.

    Raises:
        ValueError: other processes.
    """

    ranks = (2, 4)

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float = 0.9, affine: bool = True, gamma_init: Any = "ones",
        beta_init: Any = "zeros", moving_mean_init: Any = "zeros", moving_var_init: Any = "ones", use_batch_statistics: bool | None = None,
        process_groups: Any = None, dtype: Any = dt.float32,
    ):  # fmt: skip
        if process_groups is not None and process_groups != [[0]]:
            raise ArgumentValueError(f"For 'SyncBatchNorm', the 'process_groups' must hold the one process there is, [[0]], but got {process_groups}.")
        super().__init__(
            num_features, eps, momentum, affine, gamma_init, beta_init, moving_mean_init, moving_var_init, use_batch_statistics, dtype=dtype
        )
        self.process_groups = process_groups


class BatchNorm3d(Cell):
    """Batch normalisation of (N, C, D, H, W), by the BatchNorm2d `bn2d`, which has the Parameters. Settings as there."""

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float = 0.9, affine: bool = True, gamma_init: Any = "ones",
        beta_init: Any = "zeros", moving_mean_init: Any = "zeros", moving_var_init: Any = "ones",
        use_batch_statistics: bool | None = None, dtype: Any = dt.float32,
    ):  # fmt: skip
        super().__init__()
        self.bn2d = BatchNorm2d(
            num_features, eps, momentum, affine, gamma_init, beta_init, moving_mean_init, moving_var_init,
            use_batch_statistics, "NCHW", dtype,
        )  # fmt: skip

    def construct(self, x: Any) -> Any:
        if check_tensor("BatchNorm3d", "x", x).ndim != 5:
            raise ShapeError(
                f"For 'BatchNorm3d', the in_shape must have 5 dims, but got {x.ndim}: the input has shape {x.shape}."
            )
        n, c, d, h, w = x.shape
        return self.bn2d(x.reshape((n, c, d * h, w))).reshape((n, c, d, h, w))


class _InstanceNorm(_WithStatistics):
    """Normalises each channel of each sample by its own mean and variance, then scales and shifts it.

    Args:
        num_features: channels.
        eps: added to the variance.
        momentum: kept; the moving statistics are not used.
        affine: train scale `gamma` and shift `beta`.
        gamma_init, beta_init: initializers.

    Raises:
        TypeError, ValueError: settings or shapes that do not fit.
    """

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = True, gamma_init: Any = "ones",
        beta_init: Any = "zeros", dtype: Any = dt.float32,
    ):  # fmt: skip
        super().__init__()
        check_bool(type(self).__name__, "affine", affine)
        self._start(num_features, eps, momentum, affine, gamma_init, beta_init, "zeros", "ones", dtype)

    def construct(self, x: Any) -> Any:
        self._check_rank(x)
        if x.shape[1] != self.num_features:
            raise ShapeError(
                f"For '{type(self).__name__}', the input must have {self.num_features} channels, but has shape {x.shape}."
            )
        return ops.group_norm(x, self.num_features, self.gamma, self.beta, self.eps)


class InstanceNorm1d(_InstanceNorm):
    """Instance normalisation of (N, C, L)."""

    ranks = (3,)


class InstanceNorm2d(_InstanceNorm):
    """Instance normalisation of (N, C, H, W)."""

    ranks = (4,)


class InstanceNorm3d(_InstanceNorm):
    """Instance normalisation of (N, C, D, H, W)."""

    ranks = (5,)


class LayerNorm(Cell):
    """Normalises over the last dimensions, from `begin_norm_axis` on, then scales by gamma and shifts by beta.

    Args:
        normalized_shape: tuple or list of ints: the shape of gamma and beta.
        begin_norm_axis, begin_params_axis: the first dimension normalised, and the first that gamma and beta have. Default -1.
        gamma_init, beta_init: initializers.
        epsilon: added to the variance, default 1e-7.

    Raises:
        TypeError: normalized_shape is no tuple or list. ValueError: it is empty, or does not fit the input.
    """

    def __init__(
        self, normalized_shape: Any, begin_norm_axis: int = -1, begin_params_axis: int = -1, gamma_init: Any = "ones",
        beta_init: Any = "zeros", epsilon: float = 1e-7, dtype: Any = dt.float32,
    ):  # fmt: skip
        super().__init__()
        if not isinstance(normalized_shape, (tuple, list)):
            raise ArgumentTypeError(
                "For 'LayerNorm', the type of 'normalized_shape' must be tuple[int] or list[int], but got "
                f"{normalized_shape} and the type is {type(normalized_shape)}."
            )
        if not normalized_shape:
            raise ArgumentValueError(
                "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one element, but got "
                f"normalized_shape = {normalized_shape}"
            )
        self.normalized_shape = normalized_shape
        self.begin_norm_axis, self.begin_params_axis, self.epsilon = begin_norm_axis, begin_params_axis, epsilon
        shape = tuple(normalized_shape)
        self.gamma = Parameter(initializer(gamma_init, shape, dtype), name="gamma")
        self.beta = Parameter(initializer(beta_init, shape, dtype), name="beta")

    def construct(self, input_x: Any) -> Any:
        begin = self.begin_norm_axis % check_tensor("LayerNorm", "input_x", input_x).ndim
        if self.gamma.shape != input_x.shape[self.begin_params_axis % input_x.ndim :]:
            raise ShapeError(
                "For 'LayerNorm', gamma or beta shape must match input shape, but got input shape: "
                f"{input_x.shape}, gamma shape: {self.gamma.shape}, beta shape: {self.beta.shape}."
            )
        y: Any = ops.layer_norm(wide(input_x), input_x.shape[begin:], None, None, self.epsilon)
        return ops.cast(y * ops.cast(self.gamma, y.dtype) + ops.cast(self.beta, y.dtype), y.dtype if automatic.are_on() else input_x.dtype)

    def extend_repr(self) -> str:  # MindSpore prints no '=' after gamma
        return (
            f"normalized_shape={self.normalized_shape}, begin_norm_axis={self.begin_norm_axis}, "
            f"begin_params_axis={self.begin_params_axis}, gamma{self.gamma}, beta={self.beta}"
        )


class GroupNorm(Cell):
    """Normalises each of `num_groups` groups of channels of (N, C, H, W), then scales and shifts each channel.

    Args:
        num_groups, num_channels: groups divide the channels.
        eps: added to the variance.
        affine: train scale `gamma` and shift `beta`.
        gamma_init, beta_init: initializers.

    Raises:
        TypeError, ValueError: settings or shapes that do not fit.
    """

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True, gamma_init: Any = "ones",
        beta_init: Any = "zeros", dtype: Any = dt.float32,
    ):  # fmt: skip
        super().__init__()
        self.num_groups = positive_int("GroupNorm", "num_groups", num_groups)
        self.num_channels = positive_int("GroupNorm", "num_channels", num_channels)
        if num_channels % num_groups:
            raise ArgumentValueError(
                "For 'GroupNorm', the 'num_channels' must be divided by 'num_groups', but got 'num_channels': "
                f"{num_channels}, 'num_groups': {num_groups}."
            )
        self.eps, self.affine = eps, check_bool("GroupNorm", "affine", affine)
        self.gamma = Parameter(initializer(gamma_init, (num_channels,), dtype), name="gamma", requires_grad=affine)
        self.beta = Parameter(initializer(beta_init, (num_channels,), dtype), name="beta", requires_grad=affine)

    def construct(self, x: Any) -> Any:
        if check_tensor("GroupNorm", "x", x).ndim < 2 or x.shape[1] != self.num_channels:
            raise ShapeError(
                f"For 'GroupNorm', the input must have {self.num_channels} channels, but has shape {x.shape}."
            )
        return ops.group_norm(x, self.num_groups, self.gamma, self.beta, self.eps)

    def extend_repr(self) -> str:
        return f"num_groups={self.num_groups}, num_channels={self.num_channels}"
