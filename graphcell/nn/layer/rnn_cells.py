"""Recurrent cells: one step of a recurrent network."""

from __future__ import annotations

import math
from typing import Any

from graphcell import dtype as dt
from graphcell.common.initializer import Uniform, initializer
from graphcell.errors import ArgumentTypeError, ShapeError
from graphcell.nn.cell import Cell, cast_floats
from graphcell.nn.checks import check_bool, check_choice, positive_int
from graphcell.ops import automatic
from graphcell.ops.functional.recurrent import GATES, step
from graphcell.parameter import Parameter
from graphcell.tensor import Tensor


class _RNNCellBase(Cell):
    """What recurrent cells have: weights (gates * hidden, features) and biases (gates * hidden,), uniform on ±1 / sqrt(hidden)."""

    def __init__(self, kind: str, input_size: int, hidden_size: int, has_bias: bool, dtype: Any):
        super().__init__()
        owner = type(self).__name__
        self.input_size = positive_int(owner, "input_size", input_size)
        self.hidden_size = positive_int(owner, "hidden_size", hidden_size)
        self.has_bias = check_bool(owner, "has_bias", has_bias)
        self._kind = kind
        rows = GATES[kind] * hidden_size
        shapes = {"weight_ih": (rows, input_size), "weight_hh": (rows, hidden_size), "bias_ih": (rows,), "bias_hh": (rows,)}
        for name, shape in shapes.items():
            there = has_bias or name.startswith("weight")
            setattr(self, name, Parameter(initializer(Uniform(1 / math.sqrt(hidden_size)), shape, dtype), name=name) if there else None)

    def _step(self, x: Any, before: tuple[Any, ...]) -> tuple[Tensor, ...]:
        owner, wanted = type(self).__name__, (self.input_size, *(self.hidden_size for _ in before))
        for name, t, features in zip(("x", "hx", "cx"), (x, *before), wanted, strict=False):
            if not isinstance(t, Tensor):
                raise ArgumentTypeError(f"For '{owner}', the '{name}' must be a Tensor, but got {type(t).__name__}")
            if t.ndim != 2 or t.shape != (x.shape[0], features):
                raise ShapeError(f"For '{owner}', the '{name}' must have shape (batch, {features}), but got {t.shape} (x is {x.shape})")
            if t.dtype != self.weight_ih.dtype and not automatic.are_on():
                raise ArgumentTypeError(f"For '{owner}', the '{name}' must be {self.weight_ih.dtype} as the weights are, but is {t.dtype}")
        if automatic.are_on():
            x, before = cast_floats((x, before), self.weight_ih.dtype)
        return step(self._kind, x, before, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)


class RNNCell(_RNNCellBase):
    """h' = tanh(x @ weight_ih.T + bias_ih + h @ weight_hh.T + bias_hh), or relu of that.

    Args:
        input_size, hidden_size: features of x and h.
        has_bias: default True.
        nonlinearity: 'tanh' (default) or 'relu'.
        dtype: of the Parameters.

    Inputs: x (batch, input_size), hx (batch, hidden_size). Outputs: h' (batch, hidden_size).

    Raises:
        TypeError, ValueError: settings or shapes that do not fit.
    """

    def __init__(self, input_size: int, hidden_size: int, has_bias: bool = True, nonlinearity: str = "tanh", dtype: Any = dt.float32):
        if not isinstance(nonlinearity, str):
            raise ArgumentTypeError(f"For 'RNNCell', the type of 'nonlinearity' should be 'str', but got type '{type(nonlinearity).__name__}'.")
        check_choice("RNNCell", "nonlinearity", nonlinearity, ("tanh", "relu"))
        super().__init__(nonlinearity, input_size, hidden_size, has_bias, dtype)
        self.nonlinearity = nonlinearity

    def construct(self, x: Any, hx: Any) -> Any:
        return self._step(x, (hx,))[0]


class LSTMCell(_RNNCellBase):
    """One step of a long short-term memory; the rows of the weights are those of the input, forget, cell and output gates.

    Args:
        input_size, hidden_size: features of x and of the state.
        has_bias: default True.
        dtype: of the Parameters.

    Inputs: x (batch, input_size), hx: a tuple (h, c) of (batch, hidden_size). Outputs: the tuple (h', c').

    Raises:
        TypeError, ValueError: settings or shapes that do not fit.
    """

    def __init__(self, input_size: int, hidden_size: int, has_bias: bool = True, dtype: Any = dt.float32):
        super().__init__("lstm", input_size, hidden_size, has_bias, dtype)

    def construct(self, x: Any, hx: Any) -> Any:
        return self._step(x, pair_of_states("LSTMCell", hx))


class GRUCell(_RNNCellBase):
    """One step of a gated recurrent unit; the rows of the weights are those of the reset, update and new gates.

    Args:
        input_size, hidden_size: features of x and h.
        has_bias: default True.
        dtype: of the Parameters.

    Inputs: x (batch, input_size), hx (batch, hidden_size). Outputs: h' (batch, hidden_size).

    Raises:
        TypeError, ValueError: settings or shapes that do not fit.
    """

    def __init__(self, input_size: int, hidden_size: int, has_bias: bool = True, dtype: Any = dt.float32):
        super().__init__("gru", input_size, hidden_size, has_bias, dtype)

    def construct(self, x: Any, hx: Any) -> Any:
        return self._step(x, (hx,))[0]


def pair_of_states(owner: str, hx: Any) -> tuple[Any, Any]:
    """The state of a long short-term memory, (h, c).

    Raises:
        TypeError: no tuple of two.
    """
    if not isinstance(hx, tuple):
        raise ArgumentTypeError(f"For '{owner}', the 'hx' must be a tuple of two Tensors, but got {type(hx).__name__}")
    if len(hx) != 2:
        raise ArgumentTypeError(f"For '{owner}', the length of 'hx' must be '2', but got '{len(hx)}'")
    return hx[0], hx[1]
