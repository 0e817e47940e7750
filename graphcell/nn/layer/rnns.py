"""Recurrent layers: stacked, in one or both directions, over sequences of one or of different lengths."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from graphcell import dtype as dt
from graphcell import ops
from graphcell.common.initializer import Uniform, initializer
from graphcell.errors import ArgumentTypeError, ArgumentValueError, ShapeError
from graphcell.nn.cell import Cell
from graphcell.nn.checks import check_bool, positive_int
from graphcell.nn.layer.basic import Dropout
from graphcell.nn.layer.rnn_cells import pair_of_states
from graphcell.ops.functional.recurrent import GATES, sequence
from graphcell.parameter import Parameter, ParameterTuple
from graphcell.tensor import Tensor


class _Dynamic(Cell):
    """One layer in one direction."""

    kind = ""

    def construct(self, x: Any, start: Any, weights: Any, lengths: Any, backward: bool) -> Any:
        w_ih, w_hh, b_ih, b_hh = weights
        return sequence(self.kind, x, start, w_ih, w_hh, b_ih, b_hh, lengths, backward)


class _DynamicRNNTanh(_Dynamic):
    kind = "tanh"


class _DynamicRNNRelu(_Dynamic):
    kind = "relu"


class _DynamicLSTMCPUGPU(_Dynamic):
    kind = "lstm"


class _DynamicGRUCPUGPU(_Dynamic):
    kind = "gru"


class _RNNBase(Cell):
    """What recurrent layers share.

    Args:
        input_size, hidden_size: features of the input and of the state.
        num_layers: layers stacked; each takes the outputs of the one below. Default 1.
        has_bias: default True.
        batch_first: input and output are (batch, steps, features) instead of (steps, batch, features). Default False.
        dropout: in training, the probability of dropping an output of each layer but the last, in [0, 1). Default 0.0.
        bidirectional: each layer also runs from the end to the beginning; the outputs of both are joined. Default False.
        dtype: of the Parameters.

    Inputs:
        x: (steps, batch, input_size).
        hx: the state at the beginning, (num_layers * directions, batch, hidden_size); zeros by default. LSTM: a tuple of two, (h, c).
        seq_length: (batch,), int32 or int64: the steps that each sequence has; the outputs beyond are 0, the state stays as it was.

    Outputs: (output, state): (steps, batch, directions * hidden_size), and the state at the end, as hx.

    Raises:
        TypeError, ValueError: settings or shapes that do not fit.
    """

    direction: type[_Dynamic]

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, has_bias: bool = True, batch_first: bool = False, dropout: float = 0.0,
        bidirectional: bool = False, dtype: Any = dt.float32,
    ):  # fmt: skip
        super().__init__()
        owner = type(self).__name__
        positive_int(owner, "input_size", input_size)
        self.hidden_size = positive_int(owner, "hidden_size", hidden_size)
        self.num_layers = positive_int(owner, "num_layers", num_layers)
        self.has_bias = check_bool(owner, "has_bias", has_bias)
        self.batch_first = check_bool(owner, "batch_first", batch_first)
        self.bidirectional = check_bool(owner, "bidirectional", bidirectional)
        if not isinstance(dropout, float):
            raise ArgumentTypeError(f"For '{owner}', the type of 'dropout' must be 'float', but got '{type(dropout).__name__}'.")
        if not 0 <= dropout < 1:
            raise ArgumentValueError(
                f"For '{owner}', the 'dropout' must be a number in range [0, 1) representing the probability of an element being zeroed, but got {dropout}."
            )
        self.dropout = dropout
        self.rnn = self.direction()
        self.dropout_op = Dropout(p=dropout)
        self.is_lstm = self.rnn.kind == "lstm"
        rows = GATES[self.rnn.kind] * hidden_size
        self._directions = 2 if bidirectional else 1
        widths = [input_size] + [self._directions * hidden_size] * (num_layers - 1)
        self.w_ih_list = self._parameters_of("weight_ih", [(rows, width) for width in widths], dtype)
        self.w_hh_list = self._parameters_of("weight_hh", [(rows, hidden_size)] * num_layers, dtype)
        biases = [(rows,)] * num_layers if has_bias else []
        self.b_ih_list = self._parameters_of("bias_ih", biases, dtype)
        self.b_hh_list = self._parameters_of("bias_hh", biases, dtype)

    def _parameters_of(self, name: str, shapes: Sequence[tuple[int, ...]], dtype: Any) -> ParameterTuple:
        """Parameters of these shapes, one a layer and direction, uniform on ±1 / sqrt(hidden)."""
        bound = 1 / math.sqrt(self.hidden_size)
        return ParameterTuple(
            Parameter(initializer(Uniform(bound), shape, dtype), name=f"{name}_l{layer}{suffix}")
            for layer, shape in enumerate(shapes)
            for suffix in ("", "_reverse")[: self._directions]
        )

    def construct(self, x: Any, hx: Any = None, seq_length: Any = None) -> Any:
        self._check_input(x, seq_length)
        if self.batch_first:
            x = ops.transpose(x, (1, 0, 2))
        states = self._states(x, hx)
        ends: Any = [[] for _ in states]
        for layer in range(self.num_layers):
            outputs = []
            for direction in range(self._directions):
                place = layer * self._directions + direction
                output, *end = self.rnn(x, tuple([s[place] for s in states]), self._weights(place, x.dtype), seq_length, direction == 1)
                outputs.append(output)
                for part, value in zip(ends, end):
                    part.append(value)
            x = outputs[0] if len(outputs) == 1 else ops.concat(outputs, 2)
            if self.dropout and layer < self.num_layers - 1:
                x = self.dropout_op(x)
        if self.batch_first:
            x = ops.transpose(x, (1, 0, 2))
        after = tuple([ops.stack(part) for part in ends])
        return x, after if self.is_lstm else after[0]

    def _weights(self, place: int, dtype: Any) -> tuple[Any, ...]:
        """Weights and biases of a layer and direction, in the dtype of the input."""
        lists = (self.w_ih_list, self.w_hh_list, self.b_ih_list, self.b_hh_list)
        return tuple([ops.cast(several[place], dtype) if len(several) else None for several in lists])

    def _states(self, x: Any, hx: Any) -> tuple[Any, ...]:
        """The states at the beginning: (h,), or (h, c)."""
        owner = type(self).__name__
        shape = (self.num_layers * self._directions, x.shape[1], self.hidden_size)
        if hx is None:
            return (ops.zeros(shape, x.dtype),) * (2 if self.is_lstm else 1)
        states = pair_of_states(owner, hx) if self.is_lstm else (hx,)
        for t in states:
            if not isinstance(t, Tensor):
                raise ArgumentTypeError(f"For '{owner}', the 'hx' must be made of Tensors, but got {type(t).__name__}")
            if t.dtype != x.dtype:
                raise ArgumentTypeError(f"For '{owner}', the type of 'hx' should be same as 'x', but got 'x' with type {x.dtype} and 'hx' with type {t.dtype}.")
            if t.shape != shape:
                raise ShapeError(f"For '{owner}', the 'hx' must have shape {shape}, but got {t.shape}.")
        return states

    def _check_input(self, x: Any, seq_length: Any) -> None:
        owner = type(self).__name__
        if not isinstance(x, Tensor):
            raise ArgumentTypeError(f"For '{owner}', the 'x' must be a Tensor, but got {type(x).__name__}")
        if not x.dtype.is_float:
            raise ArgumentTypeError(f"For '{owner}', the 'x' must hold floats, but is {x.dtype}")
        features = self.w_ih_list[0].shape[1]
        if x.ndim != 3 or x.shape[2] != features:
            order = "(batch, steps" if self.batch_first else "(steps, batch"
            raise ShapeError(f"For '{owner}', the 'x' must have shape {order}, {features}), but got {x.shape}.")
        if seq_length is None:
            return
        if not isinstance(seq_length, Tensor) or seq_length.dtype not in (dt.int32, dt.int64):
            kind = seq_length.dtype if isinstance(seq_length, Tensor) else type(seq_length).__name__
            raise ArgumentTypeError(f"For '{owner}', the 'seq_length' should be one of [mindspore.int32, mindspore.int64], but got '{kind}'.")
        batch = x.shape[0 if self.batch_first else 1]
        if seq_length.shape != (batch,):
            raise ShapeError(f"For '{owner}' batch size of x and seq_length must be equal, but got {batch} of x and {seq_length.shape} of seq_length.")


class RNN(_RNNBase):
    """Elman network: h' = tanh(x @ weight_ih.T + bias_ih + h @ weight_hh.T + bias_hh) at each step, or relu of that.

    Args:
        nonlinearity: 'tanh' (default) or 'relu'.
    """

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, has_bias: bool = True, batch_first: bool = False, dropout: float = 0.0,
        bidirectional: bool = False, dtype: Any = dt.float32, *, nonlinearity: str = "tanh",
    ):  # fmt: skip
        if nonlinearity not in ("tanh", "relu"):
            raise ArgumentValueError(f"For 'RNN', the 'nonlinearity' must be in ['tanh', 'relu'], but got {nonlinearity}.")
        self.__dict__["direction"] = _DynamicRNNRelu if nonlinearity == "relu" else _DynamicRNNTanh
        super().__init__(input_size, hidden_size, num_layers, has_bias, batch_first, dropout, bidirectional, dtype)


class LSTM(_RNNBase):
    """Long short-term memory; the rows of the weights are those of the input, forget, cell and output gates."""

    direction = _DynamicLSTMCPUGPU


class GRU(_RNNBase):
    """Gated recurrent unit; the rows of the weights are those of the reset, update and new gates."""

    direction = _DynamicGRUCPUGPU
