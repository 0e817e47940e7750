"""Dense layers, embedding, dropout and shape Cells."""

from __future__ import annotations

import math
from typing import Any

from graphcell import dtype as dt
from graphcell import ops
from graphcell.common.initializer import HeUniform, Uniform, initializer
from graphcell.errors import ArgumentTypeError, ArgumentValueError, ShapeError
from graphcell.nn.activation import get_activation
from graphcell.nn.cell import Cell
from graphcell.parameter import Parameter


def positive_int(owner: str, name: str, value: Any) -> int:
    """`value` if it is an int above 0.

    Raises:
        TypeError: no int. ValueError: below 1.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise ArgumentTypeError(f"For '{owner}', the type of '{name}' must be int, but got {type(value).__name__}.")
    if value < 1:
        raise ArgumentValueError(f"For '{owner}', the '{name}' must be an int larger than 0, but got {value}.")
    return value


def check_bool(owner: str, name: str, value: Any) -> bool:
    """`value` if it is a bool; raises TypeError."""
    if not isinstance(value, bool):
        raise ArgumentTypeError(f"For '{owner}', the type of '{name}' must be bool, but got {type(value).__name__}.")
    return value


class Dense(Cell):
    """y = activation(x @ weight.T + bias).

    Args:
        in_channels, out_channels: extents of the last dimension of input and output.
        weight_init, bias_init: Tensor, initializer, its name, or a number. Default: weight HeUniform(sqrt(5)), bias uniform on
            ±1 / sqrt(in_channels).
        has_bias: default True.
        activation: a name such as 'relu', a Cell, or a function.
        dtype: of the Parameters.

    Inputs: x (*, in_channels). Outputs: (*, out_channels).

    Raises:
        TypeError, ValueError: settings that do not fit.
    """

    def __init__(self, in_channels: int, out_channels: int, weight_init: Any = None, bias_init: Any = None, has_bias: bool = True, activation: Any = None,
                 dtype: Any = dt.float32):
        super().__init__()
        self.in_channels = positive_int("Dense", "in_channels", in_channels)
        self.out_channels = positive_int("Dense", "out_channels", out_channels)
        self.has_bias = check_bool("Dense", "has_bias", has_bias)
        shape = (out_channels, in_channels)
        if hasattr(weight_init, "shape") and tuple(weight_init.shape) != shape:
            raise ShapeError(f"For 'Dense', weight init shape error: the shape of 'weight_init' must be {shape}, but got {tuple(weight_init.shape)}.")
        self.weight = Parameter(initializer(HeUniform(math.sqrt(5)) if weight_init is None else weight_init, shape, dtype), name="weight")
        self.bias = None
        if has_bias:
            if hasattr(bias_init, "shape") and tuple(bias_init.shape) != (out_channels,):
                raise ShapeError(f"For 'Dense', bias init shape error: the shape of 'bias_init' must be {(out_channels,)}, but got {tuple(bias_init.shape)}.")
            init = Uniform(1 / math.sqrt(in_channels)) if bias_init is None else bias_init
            self.bias = Parameter(initializer(init, (out_channels,), dtype), name="bias")
        self.activation = get_activation(activation)
        self.activation_flag = self.activation is not None

    def construct(self, x: Any) -> Any:
        y = ops.dense(x, self.weight, self.bias)
        return self.activation(y) if self.activation_flag else y

    def extend_repr(self) -> str:
        text = f"input_channels={self.in_channels}, output_channels={self.out_channels}, has_bias={self.has_bias}"
        return f"{text}, activation={self.activation}" if self.activation_flag else text


class Embedding(Cell):
    """Rows of a trained table, looked up by number.

    Args:
        vocab_size, embedding_size: extents of the table.
        use_one_hot: look up by a product with one-hot vectors.
        embedding_table: initializer of the table, default 'normal'.
        padding_idx: this row starts as zeros.

    Inputs: x, integers of any shape. Outputs: (*x.shape, embedding_size).
    """

    def __init__(self, vocab_size: int, embedding_size: int, use_one_hot: bool = False, embedding_table: Any = "normal", dtype: Any = dt.float32,
                 padding_idx: int | None = None):
        super().__init__()
        self.vocab_size = positive_int("Embedding", "vocab_size", vocab_size)
        self.embedding_size = positive_int("Embedding", "embedding_size", embedding_size)
        self.use_one_hot = check_bool("Embedding", "use_one_hot", use_one_hot)
        self.dtype, self.padding_idx = dt.as_dtype(dtype), padding_idx
        table = initializer(embedding_table, (vocab_size, embedding_size), dtype)
        if padding_idx is not None:
            if not 0 <= padding_idx < vocab_size:
                raise ArgumentValueError(f"For 'Embedding', 'padding_idx' must be in [0, {vocab_size}), but got {padding_idx}.")
            if table.has_init:
                table.init_data()
            table.array()[padding_idx] = 0
        self.embedding_table = Parameter(table, name="embedding_table")

    def construct(self, ids: Any) -> Any:
        if self.use_one_hot:
            return ops.matmul(ops.one_hot(ids, self.vocab_size).astype(self.embedding_table.dtype), self.embedding_table)
        return ops.gather(self.embedding_table, ids, 0)

    def extend_repr(self) -> str:
        return (f"vocab_size={self.vocab_size}, embedding_size={self.embedding_size}, use_one_hot={self.use_one_hot}, "
                f"embedding_table={self.embedding_table}, dtype={self.dtype}, padding_idx={self.padding_idx}")


class Dropout(Cell):
    """In training, zeros with probability p and scales the rest by 1 / (1 - p); else the input as it is.

    Args:
        keep_prob: the probability of keeping, 0.5 by default; deprecated, use p.
        p: the probability of dropping.
    """

    def __init__(self, keep_prob: float = 0.5, p: float | None = None, dtype: Any = dt.float32):
        super().__init__()
        rate = 1.0 - keep_prob if p is None else p
        if not isinstance(rate, (int, float)) or isinstance(rate, bool):
            raise ArgumentTypeError(f"For 'Dropout', the type of 'p' must be float, but got {type(p).__name__}.")
        if p is None and not 0 < keep_prob <= 1:
            raise ArgumentValueError(f"For 'Dropout', the 'keep_prob' must be in range (0, 1], but got {keep_prob}.")
        if p is not None and not 0 <= rate < 1:
            raise ArgumentValueError(f"For 'Dropout', the 'p' must be a number in range [0, 1), but got {p}.")
        self.p, self.keep_prob = (p, None) if p is not None else (None, keep_prob)
        self.rate = float(rate)

    def construct(self, x: Any) -> Any:
        return ops.dropout(x, self.rate, self.training) if self.training and self.rate else x

    def extend_repr(self) -> str:
        return f"keep_prob={self.keep_prob}" if self.p is None else f"p={self.p}"


class _DropoutChannels(Cell):
    def __init__(self, p: float = 0.5):
        super().__init__()
        if not isinstance(p, (int, float)) or not 0 <= p <= 1:
            raise ArgumentValueError(f"For '{type(self).__name__}', the 'p' must be a number in range [0, 1], but got {p}.")
        self.prob = float(p)

    def extend_repr(self) -> str:
        return f"p={self.prob}"


class Dropout1d(_DropoutChannels):
    """Drops whole channels of (N, C, L) in training."""

    def construct(self, x: Any) -> Any:
        return ops.dropout1d(x, self.prob, self.training)


class Dropout2d(_DropoutChannels):
    """Drops whole channels of (N, C, H, W) in training."""

    def construct(self, x: Any) -> Any:
        return ops.dropout2d(x, self.prob, self.training)


class Dropout3d(_DropoutChannels):
    """Drops whole channels of (N, C, D, H, W) in training."""

    def construct(self, x: Any) -> Any:
        return ops.dropout3d(x, self.prob, self.training)


class Flatten(Cell):
    """Dimensions `start_dim` to `end_dim` as one; by default all but the first."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1):
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def construct(self, x: Any) -> Any:
        return ops.flatten(x, start_dim=self.start_dim, end_dim=self.end_dim)
