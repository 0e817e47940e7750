"""Dense layers, dropout, and Cells that pass on, reshape, resize, pad or scale their input."""

from __future__ import annotations

import math
from typing import Any

from graphcell import dtype as dt
from graphcell import ops
from graphcell.common.initializer import HeUniform, Uniform, initializer
from graphcell.errors import ArgumentTypeError, ArgumentValueError, ShapeError
from graphcell.nn.cell import Cell
from graphcell.nn.checks import check_bool, check_choice, check_float, check_int, check_number, check_tensor, is_int, is_number, positive_int
from graphcell.nn.layer.activation import get_activation
from graphcell.ops import automatic
from graphcell.ops.functional.convolution import same_padding
from graphcell.ops.functional.pooling import pad_spatial, windows
from graphcell.parameter import Parameter
from graphcell.tensor import Tensor


class _Affine(Cell):
    """What dense layers have: weight (out, in) and bias (out,)."""

    def _make_parameters(
        self, extents: tuple[int, int], weight_init: Any, bias_init: Any, has_bias: bool, dtype: Any
    ) -> None:
        owner = type(self).__name__
        fan_out, fan_in = extents
        _check_init(owner, "weight", weight_init, extents)
        weight_init = HeUniform(math.sqrt(5)) if weight_init is None else weight_init
        self.weight = Parameter(initializer(weight_init, extents, dtype), name="weight")
        self.bias = None
        if has_bias:
            _check_init(owner, "bias", bias_init, (fan_out,))
            bias_init = Uniform(1 / math.sqrt(fan_in)) if bias_init is None else bias_init
            self.bias = Parameter(initializer(bias_init, (fan_out,), dtype), name="bias")

    def _product(self, x: Any) -> Any:
        if not isinstance(x, Tensor):
            raise ArgumentTypeError(f"{type(self).__name__}: the input must be a Tensor, but is {type(x).__name__}")
        if self.bias is None:
            return ops.dense(x, self.weight)
        if automatic.are_on():
            return ops.dense(x, self.weight) + self.bias  # as the two primitives that MindSpore's layer has
        return ops.dense(x, self.weight, self.bias)


def _check_init(owner: str, name: str, init: Any, shape: tuple[int, ...]) -> None:
    if isinstance(init, Tensor) and init.shape != shape:
        raise ShapeError(
            f"For '{owner}', {name} init shape error. The shape of '{name}_init' must be {shape}, but got {init.shape}."
        )


class Dense(_Affine):
    """y = activation(x @ weight.T + bias).

    Args:
        in_channels, out_channels: extents of the last dimension of input and output.
        weight_init, bias_init: Tensor, initializer, its name, or a number. Default: weight HeUniform(sqrt(5)), bias uniform on
            ±1 / sqrt(in_channels).
        has_bias: default True.
        activation: a name such as 'relu', a Cell, a primitive, or a function.
        dtype: of the Parameters.

    Inputs: x (*, in_channels). Outputs: (*, out_channels).

    Raises:
        TypeError, ValueError: settings that do not fit. KeyError: an unknown name of an activation.
    """

    def __init__(
        self, in_channels: int, out_channels: int, weight_init: Any = None, bias_init: Any = None, has_bias: bool = True,
        activation: Any = None, dtype: Any = dt.float32,
    ):  # fmt: skip
        super().__init__()
        self.in_channels = positive_int("Dense", "in_channels", in_channels)
        self.out_channels = positive_int("Dense", "out_channels", out_channels)
        self.has_bias = check_bool("Dense", "has_bias", has_bias)
        self._make_parameters((out_channels, in_channels), weight_init, bias_init, has_bias, dtype)
        if activation is not None and not isinstance(activation, str) and not callable(activation):
            raise ArgumentTypeError(
                f"For 'Dense', the 'activation' must be str or Cell or Primitive, but got {type(activation).__name__}."
            )
        self.activation: Any = get_activation(activation) if isinstance(activation, str) else activation
        self.activation_flag = self.activation is not None

    def construct(self, x: Any) -> Any:
        y = self._product(x)
        return self.activation(y) if self.activation_flag else y

    def extend_repr(self) -> str:
        parts = [f"input_channels={self.in_channels}", f"output_channels={self.out_channels}"]
        if self.has_bias:
            parts.append(f"has_bias={self.has_bias}")
        if self.activation_flag:
            parts.append(f"activation={self.activation}")
        return ", ".join(parts)


class Linear(_Affine):
    """y = x @ weight.T + bias; Dense under another name. `dtype` None gives float32."""

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, weight_init: Any = None, bias_init: Any = None,
        dtype: Any = None,
    ):  # fmt: skip
        super().__init__()
        self.in_features = positive_int("Linear", "in_features", in_features)
        self.out_features = positive_int("Linear", "out_features", out_features)
        self.has_bias = check_bool("Linear", "bias", bias)
        self._make_parameters((out_features, in_features), weight_init, bias_init, bias, dtype or dt.float32)

    def construct(self, x: Any) -> Any:
        return self._product(x)

    def extend_repr(self) -> str:
        text = f"input_features={self.in_features}, output_features={self.out_features}"
        return f"{text}, has_bias={self.has_bias}" if self.has_bias else text


class Dropout(Cell):
    """In training, zeros with probability p and scales the rest by 1 / (1 - p); else the input as it is.

    Args:
        keep_prob: the probability of keeping, 0.5 by default; deprecated, use p.
        p: the probability of dropping, in [0, 1).

    Raises:
        TypeError, ValueError: a probability that is none.
    """

    def __init__(self, keep_prob: float = 0.5, p: float | None = None, dtype: Any = dt.float32):
        super().__init__()
        if p is None:
            check_float("Dropout", "keep_prob", keep_prob)
            if not 0 < keep_prob <= 1:
                raise ArgumentValueError(
                    f"For 'Dropout', the 'keep_prob' must be a number in range (0, 1], but got {keep_prob}."
                )
        else:
            check_number("Dropout", "p", p)
            if not 0 <= p < 1:
                raise ArgumentValueError(f"For 'Dropout', the 'p' must be a number in range [0, 1), but got {p}.")
        self.p, self.keep_prob = p, keep_prob
        self.rate = float(1.0 - keep_prob if p is None else p)

    def construct(self, x: Any) -> Any:
        return ops.dropout(x, self.rate) if self.training and self.rate else x

    def extend_repr(self) -> str:
        return f"keep_prob={self.keep_prob}" if self.p is None else f"p={self.p}"


class _DropoutChannels(Cell):
    """Args:
    p: the probability of dropping, in [0, 1]. Default 0.5.
    """

    def __init__(self, p: float = 0.5):
        super().__init__()
        owner = type(self).__name__
        check_float(owner, "p", p)
        if not 0 <= p <= 1:
            raise ArgumentValueError(f"For '{owner}', the 'p' must be a number in range [0, 1], but got {p}.")
        self.prob = float(p)
        self.keep_prob = 1.0 - self.prob


class Dropout1d(_DropoutChannels):
    """Drops whole channels of (N, C, L) or (C, L) in training."""

    def construct(self, x: Any) -> Any:
        return ops.dropout1d(x, self.prob, self.training)


class Dropout2d(_DropoutChannels):
    """Drops whole channels of (N, C, H, W) in training. Its printed p is the probability of keeping, as in MindSpore."""

    def construct(self, x: Any) -> Any:
        return ops.dropout2d(x, self.prob, self.training)

    def extend_repr(self) -> str:
        return f"p={self.keep_prob}"


class Dropout3d(_DropoutChannels):
    """Drops whole channels of (N, C, D, H, W) in training. Its printed p is the probability of keeping, as in MindSpore."""

    def construct(self, x: Any) -> Any:
        return ops.dropout3d(x, self.prob, self.training)

    def extend_repr(self) -> str:
        return f"p={self.keep_prob}"


class Flatten(Cell):
    """Dimensions `start_dim` to `end_dim` as one; by default all but the first."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1):
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def construct(self, x: Any) -> Any:
        if not isinstance(x, Tensor):
            raise ArgumentTypeError(f"For 'Flatten', the input must be a Tensor, but is {type(x).__name__}.")
        rank = max(x.ndim, 1)  # a scalar becomes a Tensor of one element
        if not -rank <= self.start_dim < rank or not -rank <= self.end_dim < rank:
            raise ArgumentValueError(f"'start_dim' or 'end_dim' out of range: {self.start_dim} and {self.end_dim} for shape {x.shape}.")
        return ops.flatten(x, start_dim=self.start_dim, end_dim=self.end_dim)


class Unflatten(Cell):
    """One dimension as several: `axis` becomes `unflattened_size`."""

    def __init__(self, axis: int, unflattened_size: Any):
        super().__init__()
        self.axis = check_int("Unflatten", "axis", axis)
        if not isinstance(unflattened_size, (tuple, list)):
            raise ArgumentTypeError(
                f"For 'Unflatten', the 'unflattened_size' must be a tuple or list, but got {type(unflattened_size)}"
            )
        self.unflattened_size = tuple(unflattened_size)

    def construct(self, input_x: Any) -> Any:
        axis = self.axis % input_x.ndim
        shape = input_x.shape
        return input_x.reshape((*shape[:axis], *self.unflattened_size, *shape[axis + 1 :]))


class Identity(Cell):
    """The input as it is. Any constructor arguments are ignored."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__()

    def construct(self, input: Any) -> Any:
        return input


_PAD_MODES = ("CONSTANT", "REFLECT", "SYMMETRIC")


class Pad(Cell):
    """Pads every dimension.

    Args:
        paddings: for each dimension (before, after), at least 0.
        mode: 'CONSTANT' (zeros), 'REFLECT' (mirrored without the edge) or 'SYMMETRIC' (mirrored with the edge).

    Raises:
        TypeError: paddings is no tuple of pairs. ValueError: another mode, or padding that does not fit.
    """

    def __init__(self, paddings: Any, mode: str = "CONSTANT"):
        super().__init__()
        if not isinstance(paddings, tuple):
            raise ArgumentTypeError(f"For 'Pad', the type of 'paddings' must be tuple, but got {type(paddings)}.")
        if any(len(pair) != 2 for pair in paddings):
            raise ArgumentValueError(f"For 'Pad', each item of 'paddings' must hold two ints, but got {paddings}.")
        if any(n < 0 for pair in paddings for n in pair):
            raise ArgumentValueError(f"For 'Pad', all elements of 'paddings' must be >= 0, but got {paddings}.")
        if mode not in _PAD_MODES:
            raise ArgumentValueError(f"For 'Pad', the 'mode' must be in {list(_PAD_MODES)}, but got {mode}.")
        self.paddings, self.mode = paddings, mode

    def construct(self, x: Any) -> Any:
        if len(self.paddings) != check_tensor("Pad", "x", x).ndim:
            raise ArgumentValueError(
                f"For 'Pad', there are {len(self.paddings)} paddings, but the input has shape {x.shape}"
            )
        if self.mode == "CONSTANT":
            flat = tuple(n for pair in reversed(self.paddings) for n in pair)
            return ops.pad(x, flat)
        for axis, (before, after) in enumerate(self.paddings):
            if before or after:
                places = self._places(x.shape[axis], before, after)
                x = ops.gather(x, Tensor(places), axis)
        return x

    def _places(self, extent: int, before: int, after: int) -> list[int]:
        """For each place along a padded dimension, the one it mirrors."""
        edge = 0 if self.mode == "REFLECT" else 1
        if max(before, after) > extent - 1 + edge:
            raise ArgumentValueError(f"For 'Pad', a dimension of {extent} cannot be padded by {max(before, after)} in mode {self.mode}")
        left = [before - edge - k for k in range(before)]
        right = [extent - 2 + edge - k for k in range(after)]
        return [*left, *range(extent), *right]


class Unfold(Cell):
    """The windows over a picture (N, C, H, W): (N, rows * columns * C, H', W'), each with its elements row by row and the channels innermost.

    Args:
        ksizes, strides, rates: [1, rows, columns, 1]: extents of a window, how far windows are apart, and the elements in one.
        padding: 'valid' (default), or 'same': zeros around, so that there are ceil(extent / stride) windows.

    Raises:
        TypeError, ValueError: settings that do not fit.
    """

    def __init__(self, ksizes: Any, strides: Any, rates: Any, padding: str = "valid"):
        super().__init__()
        self._kernel = _rows_and_columns("ksize", ksizes)
        self._strides = _rows_and_columns("stride", strides)
        self._rates = _rows_and_columns("rate", rates)
        self._mode = check_choice("Unfold", "padding", padding.lower() if isinstance(padding, str) else padding, ("valid", "same"))

    def construct(self, input_x: Any) -> Any:
        if check_tensor("Unfold", "input_x", input_x).ndim != 4:
            raise ShapeError(f"For 'Unfold', the input must have 4 dimensions, but has shape {input_x.shape}.")
        if self._mode == "same":
            pads = same_padding(input_x.shape[2:], self._kernel, self._strides, self._rates)
            input_x = pad_spatial(input_x, pads, 0.0)
        w: Any = windows(input_x, self._kernel, self._strides, self._rates)
        n, c, rows, columns = w.shape[:4]
        return w.transpose(0, 4, 5, 1, 2, 3).reshape((n, c * self._kernel[0] * self._kernel[1], rows, columns))


def _rows_and_columns(name: str, sizes: Any) -> tuple[int, int]:
    """The two sizes of [1, rows, columns, 1]."""
    if not isinstance(sizes, (tuple, list)):
        raise ArgumentTypeError(f"For 'Unfold', the type of '{name}s' should be one of '['tuple', 'list']', but got type '{type(sizes).__name__}'.")
    if len(sizes) != 4 or sizes[0] != 1 or sizes[3] != 1:
        raise ArgumentValueError(f"For 'Unfold' the format of '{name}s' must be [1, {name}_row, {name}_col, 1], but got {sizes}.")
    if not all(is_int(d) and d > 0 for d in sizes):
        raise ArgumentValueError(
            f"For 'Unfold' the {name}_row and {name}_col in '{name}s' must be an positive integer number, but got {name}_row is {sizes[1]}, "
            f"{name}_col is {sizes[2]}"
        )
    return sizes[1], sizes[2]


class Upsample(Cell):
    """Resizes the spatial dimensions; see `ops.interpolate`."""

    def __init__(
        self, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ):  # fmt: skip
        super().__init__()
        self.size, self.scale_factor, self.mode = size, scale_factor, mode
        self.align_corners, self.recompute_scale_factor = align_corners, recompute_scale_factor

    def construct(self, x: Any) -> Any:
        return ops.interpolate(x, self.size, self.scale_factor, self.mode, self.align_corners, self.recompute_scale_factor)


class ClipByNorm(Cell):
    """x, scaled so that its Euclidean norm is at most `clip_norm`.

    Args:
        axis: the dimensions of each norm; default all.

    Inputs: x, float; clip_norm, a Tensor or number that broadcasts to the norms.

    Raises:
        TypeError: axis is no int, tuple or list.
    """

    def __init__(self, axis: Any = None):
        super().__init__()
        if axis is not None and not is_int(axis) and not isinstance(axis, (tuple, list)):
            raise ArgumentTypeError(
                f"For 'ClipByNorm', the type of 'axis' should be one of '['int', 'tuple', 'list']', but got type '{type(axis).__name__}'."
            )
        self._axis = tuple(axis) if isinstance(axis, list) else axis

    def construct(self, x: Any, clip_norm: Any) -> Any:
        squares = (x * x).sum(self._axis, keepdims=True)
        norm = ops.sqrt(ops.select(squares > 0, squares, ops.ones_like(squares)))  # the root of 0 has no gradient
        norm = ops.select(squares > 0, norm, squares)
        return x * clip_norm / ops.maximum(norm, ops.cast(clip_norm, x.dtype))


class L1Regularizer(Cell):
    """scale * sum(|weights|).

    Raises:
        TypeError: scale is no number. ValueError: it is not above 0, or not finite.
    """

    def __init__(self, scale: float):
        super().__init__()
        if not is_number(scale):
            raise ArgumentTypeError(f"For 'L1Regularizer', the type of 'scale' should be one of '['int', 'float']', but got type '{type(scale).__name__}'.")
        if scale <= 0:
            raise ArgumentValueError(f"For 'L1Regularizer', the 'scale' must be greater than 0, but got {scale}.")
        if not math.isfinite(scale):
            raise ArgumentValueError(f"For 'L1Regularizer', the 'scale' can not be INF or NAN, but got {scale}.")
        self.scale = scale

    def construct(self, weights: Any) -> Any:
        return ops.abs(weights).sum() * self.scale


class MatrixSetDiag(Cell):
    """Matrices (*, m, n) with `diagonal` (*, min(m, n)) on their diagonals.

    Raises:
        ValueError: shapes that do not fit.
    """

    def construct(self, input_x: Any, diagonal: Any) -> Any:
        if input_x.ndim < 2 or diagonal.shape != (*input_x.shape[:-2], min(input_x.shape[-2:])):
            raise ShapeError(f"For 'MatrixSetDiag', a diagonal of shape {diagonal.shape} does not fit matrices of shape {input_x.shape}.")
        m, n = input_x.shape[-2:]
        places = ops.arange(m).reshape((m, 1)) == ops.arange(n).reshape((1, n))
        along = diagonal.expand_dims(-1) if m <= n else diagonal.expand_dims(-2)
        return ops.select(places, along, input_x)


class Tril(Cell):
    """The elements on and below the diagonal k of the last two dimensions; zeros elsewhere: called with (x, k=0)."""

    def construct(self, x: Any, k: int = 0) -> Any:
        return ops.tril(x, k)


class Triu(Cell):
    """The elements on and above the diagonal k of the last two dimensions; zeros elsewhere: called with (x, k=0)."""

    def construct(self, x: Any, k: int = 0) -> Any:
        return ops.triu(x, k)


class Norm(Cell):
    """The square root of the sum of squares along `axis`: an int, or several; none of them are all.

    Raises:
        TypeError: axis is no int, tuple or list; keep_dims no bool.
    """

    def __init__(self, axis: Any = (), keep_dims: bool = False):
        super().__init__()
        for k in axis if isinstance(axis, (tuple, list)) else (axis,):
            check_int("Norm", "axis", k)
        self.axis, self.keep_dims = axis, check_bool("Norm", "keep_dims", keep_dims)

    def construct(self, x: Any) -> Any:
        squares = ops.square(x).sum(None if self.axis in ((), []) else self.axis, keepdims=self.keep_dims)
        norm = ops.sqrt(ops.select(squares > 0, squares, ops.ones_like(squares)))  # the root of 0 has no gradient
        return ops.select(squares > 0, norm, squares)

    def extend_repr(self) -> str:
        return f"axis={self.axis}, keep_dims={self.keep_dims}"


class OneHot(Cell):
    """`on_value` at the place of each index along a new dimension `axis` of extent `depth`, `off_value` elsewhere.

    An index outside of [0, depth) has no place.
    """

    def __init__(self, axis: int = -1, depth: int = 1, on_value: float = 1.0, off_value: float = 0.0, dtype: Any = dt.float32):
        super().__init__()
        self.axis, self.depth, self.dtype = axis, depth, dtype
        self.on_value, self.off_value = on_value, off_value

    def construct(self, indices: Any) -> Any:
        on, off = ops.cast(self.on_value, self.dtype), ops.cast(self.off_value, self.dtype)
        return ops.one_hot(indices, self.depth, on, off, self.axis)
