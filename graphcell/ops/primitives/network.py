"""Primitive classes of neural networks: activations, convolutions, pooling, normalisation, dropout."""

from __future__ import annotations

from typing import Any

from graphcell import dtype as dt
from graphcell import ops as F
from graphcell.errors import ArgumentTypeError, ArgumentValueError, DTypeError, ShapeError
from graphcell.ops.automatic import are_on, widened
from graphcell.ops.functional.convolution import choose_padding, conv_transpose, each_dimension, explicit_padding
from graphcell.ops.functional.normalization import moments, normalize_batch
from graphcell.ops.functional.pooling import avg_pool, ceil_extra, max_pool
from graphcell.ops.functional.reductions import wide
from graphcell.ops.primitive import Configured, Plain
from graphcell.ops.primitives.checks import check_choice, check_positive, check_type

__all__ = [
    "AdaptiveAvgPool2D", "AvgPool", "AvgPool3D", "BatchNorm", "BiasAdd", "Conv2D", "Conv2DTranspose", "Conv3D",
    "Dropout", "Dropout2D", "Dropout3D", "Elu", "FastGeLU", "GeLU", "HSigmoid", "HSwish", "LayerNorm", "LogSoftmax",
    "MaxPool", "MaxPool3D", "Mish", "PReLU", "ReLU", "ReLU6", "SeLU", "Sigmoid", "Softmax", "Softplus",
    "Softsign", "Tanh",
]  # fmt: skip


def _gelu(input: Any) -> Any:
    return F.gelu(input, approximate="tanh")


class ReLU(Plain):
    """max(input, 0)."""

    def __call__(self, input: Any) -> Any:
        return F.relu(input)


class ReLU6(Plain):
    """min(max(x, 0), 6)."""

    function = staticmethod(F.relu6)


class SeLU(Plain):
    """Scaled exponential linear unit."""

    function = staticmethod(F.selu)


class GeLU(Plain):
    """Gaussian error linear unit, by the tanh formula."""

    function = staticmethod(_gelu)


class FastGeLU(Plain):
    """x sigmoid(1.702 x)."""

    function = staticmethod(F.fast_gelu)


class Sigmoid(Plain):
    """1 / (1 + e**-x)."""

    function = staticmethod(F.sigmoid)


class Tanh(Plain):
    """Hyperbolic tangent."""

    function = staticmethod(F.tanh)


class HSigmoid(Plain):
    """relu6(x + 3) / 6."""

    function = staticmethod(F.hardsigmoid)


class HSwish(Plain):
    """x relu6(x + 3) / 6."""

    function = staticmethod(F.hardswish)


class Mish(Plain):
    """x tanh(softplus(x))."""

    function = staticmethod(F.mish)


class Softplus(Plain):
    """log(1 + e**x)."""

    def __call__(self, input_x: Any) -> Any:
        return F.softplus(input_x)


class Softsign(Plain):
    """x / (1 + |x|)."""

    function = staticmethod(F.softsign)


class PReLU(Plain):
    """x where x >= 0, else weight x."""

    function = staticmethod(F.prelu)


class Elu(Configured):
    """x where x > 0, else alpha (e**x - 1)."""

    def __init__(self, alpha: float = 1.0):
        super().__init__(alpha=float(alpha))

    def __call__(self, input_x: Any) -> Any:
        return F.elu(input_x, self.alpha)


class Softmax(Configured):
    """Softmax along `axis`: an int, or a tuple of one."""

    def __init__(self, axis: Any = -1):
        axes = axis if isinstance(axis, tuple) else (axis,)
        if any(not isinstance(a, int) or isinstance(a, bool) for a in axes):
            raise ArgumentTypeError(
                f"For 'Softmax', the type of 'axis' should be one of '[int, tuple of int]', but got {type(axis)}."
            )
        super().__init__(axis=axes)

    def __call__(self, input: Any) -> Any:
        return F.softmax(input, self.axis)


class LogSoftmax(Configured):
    """Logarithm of softmax along `axis`."""

    def __init__(self, axis: int = -1):
        super().__init__(axis=axis)

    def __call__(self, logits: Any) -> Any:
        return F.log_softmax(logits, self.axis)


class BiasAdd(Configured):
    """A bias (C,) added to (N, C, …)."""

    def __init__(self, data_format: str = "NCHW"):
        super().__init__(data_format=check_choice("BiasAdd", "data_format", data_format, "NCHW", "NHWC", "NCDHW"))

    def __call__(self, input_x: Any, bias: Any) -> Any:
        if self.data_format == "NHWC":
            return input_x + bias
        return F.bias_add(input_x, bias)


# -- convolutions --------------------------------------------------------------------------------------------------------
class _Conv(Configured):
    rank = 2

    def __init__(
        self, out_channel: int, kernel_size: Any, mode: int, pad_mode: str, pad: Any, stride: Any, dilation: Any, group: int,
        data_format: str,
    ):  # fmt: skip
        owner, rank = type(self).__name__, self.rank
        check_positive(owner, "out_channel", out_channel)
        check_positive(owner, "group", group)
        if check_type(owner, "mode", mode, int) != 1:
            raise ArgumentValueError(f"For '{owner}', the 'mode' must be int and must = 1, but got '{mode}' with type 'int'.")
        super().__init__(
            out_channel=out_channel, kernel_size=each_dimension(kernel_size, rank, owner, "kernel_size"), mode=mode,
            pad_mode=pad_mode, pad=pad, stride=_spatial(stride, rank, owner, "stride"),
            dilation=_spatial(dilation, rank, owner, "dilation"), group=group, data_format=data_format,
        )  # fmt: skip
        choose_padding(pad_mode, pad, (1,) * rank, self.kernel_size, self.stride, self.dilation, owner)

    def _convolve(self, x: Any, weight: Any) -> Any:
        last = self.data_format == "NHWC"
        if weight.shape[0] != self.out_channel or weight.shape[2:] != self.kernel_size:
            want = (self.out_channel, "C", *self.kernel_size)
            raise ShapeError(f"{self.name}: the weight must have shape {want}, but has {weight.shape}")
        x = F.transpose(x, (0, 3, 1, 2)) if last else x
        function: Any = F.conv3d if self.rank == 3 else F.conv2d
        y = function(x, weight, None, self.stride, self.pad_mode, self.pad, self.dilation, self.group)
        return F.transpose(y, (0, 2, 3, 1)) if last else y


def _spatial(value: Any, rank: int, owner: str, name: str) -> tuple[int, ...]:
    """An int, one a spatial dimension, or one for each of N, C and them."""
    if isinstance(value, tuple) and len(value) == rank + 2:
        value = value[2:]
    return each_dimension(value, rank, owner, name)


class Conv2D(_Conv):
    """2-D convolution: called with (x, weight); settings as in `nn.Conv2d`, pad_mode 'valid' by default."""

    def __init__(
        self, out_channel: int, kernel_size: Any, mode: int = 1, pad_mode: str = "valid", pad: Any = 0, stride: Any = 1,
        dilation: Any = 1, group: int = 1, data_format: str = "NCHW",
    ):  # fmt: skip
        super().__init__(out_channel, kernel_size, mode, pad_mode, pad, stride, dilation, group, data_format)

    def __call__(self, x: Any, weight: Any) -> Any:
        return self._convolve(x, weight)


class Conv3D(_Conv):
    """3-D convolution: called with (x, weight)."""

    rank = 3

    def __init__(
        self, out_channel: int, kernel_size: Any, mode: int = 1, pad_mode: str = "valid", pad: Any = 0, stride: Any = 1,
        dilation: Any = 1, group: int = 1, data_format: str = "NCDHW",
    ):  # fmt: skip
        super().__init__(out_channel, kernel_size, mode, pad_mode, pad, stride, dilation, group, data_format)

    def __call__(self, x: Any, weight: Any) -> Any:
        return self._convolve(x, weight)


class Conv2DTranspose(_Conv):
    """The transpose of a 2-D convolution: called with (dout, weight, input_size), where input_size is the result's shape."""

    def __init__(
        self, out_channel: int, kernel_size: Any, pad_mode: str = "valid", pad: Any = 0, pad_list: Any = None, mode: int = 1,
        stride: Any = 1, dilation: Any = 1, group: int = 1, data_format: str = "NCHW",
    ):  # fmt: skip
        super().__init__(out_channel, kernel_size, mode, pad_mode, pad, stride, dilation, group, data_format)
        self.add_prim_attr("pad_list", pad_list)

    def __call__(self, dout: Any, weight: Any, input_size: Any) -> Any:
        spatial = tuple(input_size)[2:]
        if self.pad_list:
            pads = explicit_padding(tuple(self.pad_list), 2, self.name)
        else:
            pads = choose_padding(
                self.pad_mode, self.pad, spatial, self.kernel_size, self.stride, self.dilation, self.name
            )
        return conv_transpose(dout, weight, spatial, self.stride, pads, self.dilation, self.group)


# -- pooling -------------------------------------------------------------------------------------------------------------
class _Pool(Configured):
    """`pad_mode`: 'same' or 'valid'."""

    rank = 2

    def __init__(self, kernel_size: Any, strides: Any, pad_mode: str, data_format: str, modes: tuple[str, ...] = ("SAME", "VALID")):
        owner = type(self).__name__
        mode = pad_mode.upper() if isinstance(pad_mode, str) else pad_mode
        if mode not in modes:
            raise ArgumentValueError(f"For '{owner}', the 'pad_mode' must be in {list(modes)}, but got {pad_mode!r}.")
        super().__init__(
            kernel_size=_spatial(kernel_size, self.rank, owner, "kernel_size"),
            strides=_spatial(strides, self.rank, owner, "strides"), pad_mode=mode, data_format=data_format,
        )  # fmt: skip

    def _pads(self, x: Any, pad: Any = 0) -> Any:
        one = (1,) * self.rank
        return choose_padding(self.pad_mode, pad, x.shape[-self.rank :], self.kernel_size, self.strides, one, self.name)

    def _input(self, x: Any) -> Any:
        if x.ndim != self.rank + 2:
            raise ShapeError(f"{self.name}: the input must have {self.rank + 2} dimensions, but has shape {x.shape}")
        return F.transpose(x, (0, 3, 1, 2)) if self.data_format == "NHWC" else x

    def _output(self, y: Any) -> Any:
        return F.transpose(y, (0, 2, 3, 1)) if self.data_format == "NHWC" else y


class MaxPool(_Pool):
    """Maximum over windows of (N, C, H, W)."""

    def __init__(self, kernel_size: Any = 1, strides: Any = 1, pad_mode: str = "valid", data_format: str = "NCHW"):
        super().__init__(kernel_size, strides, pad_mode, data_format)

    def __call__(self, x: Any) -> Any:
        x = self._input(x)
        return self._output(max_pool(x, self.kernel_size, self.strides, self._pads(x), (1,) * self.rank))


class AvgPool(_Pool):
    """Mean over windows of (N, C, H, W); padding of 'same' does not count."""

    def __init__(self, kernel_size: Any = 1, strides: Any = 1, pad_mode: str = "VALID", data_format: str = "NCHW"):
        super().__init__(kernel_size, strides, pad_mode, data_format)

    def __call__(self, x: Any) -> Any:
        x = self._input(x)
        return self._output(avg_pool(x, self.kernel_size, self.strides, self._pads(x), None))


class MaxPool3D(_Pool):
    """Maximum over windows of (N, C, D, H, W); `pad_list` (an int, three or six) goes with pad_mode 'pad'."""

    rank = 3

    def __init__(
        self, kernel_size: Any = 1, strides: Any = 1, pad_mode: str = "VALID", pad_list: Any = 0, ceil_mode: bool | None = None,
        data_format: str = "NCDHW",
    ):  # fmt: skip
        super().__init__(kernel_size, strides, pad_mode, data_format, ("SAME", "VALID", "PAD"))
        self.add_prim_attr("pad_list", pad_list).add_prim_attr("ceil_mode", bool(ceil_mode))

    def __call__(self, x: Any) -> Any:
        x = self._input(x)
        one = (1, 1, 1)
        pads = self._pads(x, self.pad_list)
        if self.ceil_mode:
            pads = ceil_extra(x.shape[-3:], pads, self.kernel_size, self.strides, one)
        return max_pool(x, self.kernel_size, self.strides, pads, one)


class AvgPool3D(_Pool):
    """Mean over windows of (N, C, D, H, W); `pad` (an int, three or six) goes with pad_mode 'pad'."""

    rank = 3

    def __init__(
        self, kernel_size: Any = 1, strides: Any = 1, pad_mode: str = "valid", pad: Any = 0, ceil_mode: bool = False,
        count_include_pad: bool = True, divisor_override: int = 0, data_format: str = "NCDHW",
    ):  # fmt: skip
        super().__init__(kernel_size, strides, pad_mode, data_format, ("SAME", "VALID", "PAD"))
        settings = {"pad": pad, "ceil_mode": ceil_mode, "count_include_pad": count_include_pad}
        for name, value in (settings | {"divisor_override": divisor_override}).items():
            self.add_prim_attr(name, value)

    def __call__(self, x: Any) -> Any:
        x = self._input(x)
        given = self._pads(x, self.pad)
        pads = ceil_extra(x.shape[-3:], given, self.kernel_size, self.strides, (1, 1, 1)) if self.ceil_mode else given
        counted = given if self.pad_mode == "PAD" and self.count_include_pad else None
        return avg_pool(x, self.kernel_size, self.strides, pads, counted, self.divisor_override)


class AdaptiveAvgPool2D(Configured):
    """Mean over windows chosen so that `output_size` (int, or two ints or None) of them cover the image."""

    def __init__(self, output_size: Any):
        super().__init__(output_size=check_type("AdaptiveAvgPool2D", "output_size", output_size, int, tuple))

    def __call__(self, input_x: Any) -> Any:
        return F.adaptive_avg_pool2d(input_x, self.output_size)


# -- normalisation -------------------------------------------------------------------------------------------------------
class BatchNorm(Configured):
    """Batch normalisation: called with (x, scale, bias, mean, variance).

    Returns (y, batch mean, batch variance, reserve, reserve): in training the batch's statistics, and `mean` and `variance`
    (Parameters) are moved by `momentum`; else those given. y has the dtype of x (Float32 where level `auto` of mixed precision casts), all else
    that of scale.
    """

    def __init__(
        self, is_training: bool = False, epsilon: float = 1e-5, momentum: float = 0.1, data_format: str = "NCHW"
    ):
        check_choice("BatchNorm", "data_format", data_format, "NCHW", "NHWC", "NCDHW")
        super().__init__(is_training=is_training, epsilon=epsilon, momentum=momentum, data_format=data_format)

    def __call__(self, input_x: Any, scale: Any, bias: Any, mean: Any, variance: Any) -> tuple[Any, ...]:
        last = self.data_format == "NHWC"
        input_x = wide(input_x) if are_on() else input_x
        x = F.transpose(input_x, (0, 3, 1, 2)) if last else input_x
        shape = (1, -1, *(1,) * (x.ndim - 2))
        if self.is_training:
            statistics = tuple(F.cast(F.reshape(t, (-1,)), scale.dtype) for t in moments(wide(x), (0, *range(2, x.ndim))))
        else:
            statistics = (F.identity(mean), F.identity(variance))
        y = normalize_batch(x, mean, variance, self.is_training, self.momentum, self.epsilon)
        y = F.cast(y * F.reshape(scale, shape) + F.reshape(bias, shape), x.dtype)
        statistics = F.stop_gradient(statistics)
        return (F.transpose(y, (0, 2, 3, 1)) if last else y, *statistics, *statistics)


class LayerNorm(Configured):
    """Layer normalisation: called with (x, gamma, beta). Returns (y, mean, variance); no gradient flows through the latter two.

    y has the dtype of x (Float32 where level `auto` of mixed precision casts), the statistics are Float32.
    """

    def __init__(self, begin_norm_axis: int = 1, begin_params_axis: int = 1, epsilon: float = 1e-7):
        super().__init__(begin_norm_axis=begin_norm_axis, begin_params_axis=begin_params_axis, epsilon=epsilon)

    @widened
    def __call__(self, input_x: Any, gamma: Any, beta: Any) -> tuple[Any, Any, Any]:
        x = wide(input_x)
        mean, variance = moments(x, tuple(range(self.begin_norm_axis % x.ndim, x.ndim)))
        y = F.cast((x - mean) * F.rsqrt(variance + self.epsilon) * gamma + beta, input_x.dtype)
        return y, *(F.stop_gradient(F.cast(t, dt.float32)) for t in (mean, variance))


# -- dropout, random numbers ---------------------------------------------------------------------------------------------
class Dropout(Configured):
    """Zeros with probability 1 - keep_prob, all else times 1 / keep_prob. Returns (y, mask)."""

    def __init__(self, keep_prob: float = 0.5, Seed0: int = 0, Seed1: int = 0):
        if isinstance(keep_prob, bool) or not isinstance(keep_prob, (int, float)):
            raise ArgumentTypeError(f"For 'Dropout', keep_prob must be a number, but is {type(keep_prob).__name__}")
        if not 0.0 < keep_prob <= 1.0:
            raise ArgumentValueError(f"For 'Dropout', the 'keep_prob' must be in range (0.0, 1.0], but got {keep_prob}.")
        super().__init__(keep_prob=float(keep_prob), Seed0=Seed0, Seed1=Seed1)

    def __call__(self, x: Any) -> tuple[Any, Any]:
        drawn = F.rand(*x.shape, dtype=dt.float32, seed=self.Seed0 + self.Seed1 or None)
        mask = F.cast(drawn < self.keep_prob, x.dtype)
        return x * mask * (1.0 / self.keep_prob), mask


class Dropout2D(Configured):
    """Drops whole channels of (N, C, H, W) with probability 1 - keep_prob, all else times 1 / keep_prob. Returns (y, mask), the mask Bool."""

    rank = 4

    def __init__(self, keep_prob: float = 0.5):
        owner = f"For '{type(self).__name__}'"
        if not isinstance(keep_prob, float):
            raise ArgumentTypeError(f"{owner}, the type of 'keep_prob' should be 'float', but got type '{type(keep_prob).__name__}'.")
        if not 0.0 <= keep_prob <= 1.0:
            raise ArgumentValueError(f"{owner}, the 'keep_prob' must be in range of [0.0, 1.0], but got {keep_prob} with type 'float'.")
        super().__init__(keep_prob=keep_prob)

    def __call__(self, x: Any) -> tuple[Any, Any]:
        if not F.is_tensor(x):
            raise ArgumentTypeError(f"For '{type(self).__name__}', the input must be a Tensor, but is {type(x).__name__}")
        if x.dtype.is_bool:
            raise DTypeError(f"For '{type(self).__name__}', the input must hold numbers, but is {x.dtype}")
        if x.ndim != self.rank:
            raise ShapeError(f"{type(self).__name__}: the input must have {self.rank} dimensions, but has shape {x.shape}")
        drawn = F.rand(*x.shape[:2], *(1,) * (self.rank - 2), dtype=dt.float32)
        mask = F.broadcast_to(drawn < self.keep_prob, x.shape)
        scale = 1.0 / self.keep_prob if self.keep_prob else 0.0
        return F.select(mask, F.cast(x * scale, x.dtype), F.zeros_like(x)), mask


class Dropout3D(Dropout2D):
    """`Dropout2D` of (N, C, D, H, W)."""

    rank = 5
