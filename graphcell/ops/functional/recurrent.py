"""Recurrent networks: one step (`step`), and one layer in one direction over a whole sequence (`sequence`), which is one counted loop.

Enters: Tensors of one float dtype, and the kind of network: 'tanh' and 'relu' (Elman, 1990), 'lstm' (Hochreiter and Schmidhuber, 1997) or 'gru'
(Cho et al., 2014, with the reset gate after the product). Leaves: the new state, or the outputs of all steps and the last state. The gates lie
along the rows of the weights: LSTM input, forget, cell, output; GRU reset, update, new. Refuses: shapes that do not fit, with MatMul's errors.
"""

from __future__ import annotations

from typing import Any

from graphcell.ops.arithmetic import Relu
from graphcell.ops.dispatch import apply1
from graphcell.ops.functional.common import broadcast, cast, select, zeros_like
from graphcell.ops.functional.contraction import product
from graphcell.ops.functional.loops import scan
from graphcell.ops.functional.movement import cut, reshaped
from graphcell.ops.kernels import composite
from graphcell.ops.mathematics import Sigmoid, Tanh
from graphcell.tensor import Tensor

State = tuple[Tensor, ...]
GATES = {"tanh": 1, "relu": 1, "lstm": 4, "gru": 3}
"""Gates of each kind of network: the rows of its weights are so many times the features of its state."""


@composite
def step(kind: str, x: Tensor, before: State, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None, b_hh: Tensor | None) -> State:
    """The state after one step.

    Args:
        x: (batch, features). before: (h,), or (h, c) for 'lstm', each (batch, hidden).
        w_ih, w_hh: (gates * hidden, features) and (gates * hidden, hidden). b_ih, b_hh: (gates * hidden,), or None.
    """
    return _advance(kind, _project(x, w_ih, b_ih), before, w_hh, b_hh)


@composite
def sequence(
    kind: str, x: Tensor, start: State, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None, b_hh: Tensor | None, lengths: Tensor | None, backward: bool
) -> State:
    """The outputs of all steps, (steps, batch, hidden), and then the state after the last one.

    Args:
        x: (steps, batch, features), one step at least. Others: see `step`.
        lengths: (batch,), integers: a sequence ends there; beyond its end the outputs are 0 and the state stays.
        backward: begin at the end of each sequence.
    """
    kept = [t for t in (w_hh, b_hh, lengths) if t is not None]

    def advance(number: Tensor, before: State, rows: State, kept: State) -> tuple[State, State]:
        after = _advance(kind, rows[0], before, kept[0], kept[1] if b_hh is not None else None)
        if lengths is None:
            return after, after[:1]
        goes_on: Any = cast(number, kept[-1].dtype) < kept[-1]
        running = broadcast(reshaped(goes_on, (x.shape[1], 1)), after[0].shape)
        output = select(running, after[0], zeros_like(after[0]))
        return tuple([select(running, new, old) for new, old in zip(after, before, strict=True)]), (output,)

    end, (outputs,) = scan(f"{kind}_step", advance, start, [_project(x, w_ih, b_ih)], kept, backward)
    return (outputs, *end)


def _project(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x @ weight.T + bias: what the inputs add to the gates. All steps of a sequence at once."""
    y: Any = product(x, reshaped(weight, (*(1,) * (x.ndim - 2), *weight.shape)), transpose_y=True)
    return y if bias is None else y + bias  # type: ignore[no-any-return]


def _advance(kind: str, projected: Tensor, before: State, w_hh: Tensor, b_hh: Tensor | None) -> State:
    """The new state, from what the inputs add to the gates, (batch, gates * hidden), and the state before."""
    h: Any = before[0]
    recurrent: Any = _project(h, w_hh, b_hh)
    given: Any = projected
    if kind == "gru":
        reset, update = (apply1(Sigmoid(), _gate(given, h, k) + _gate(recurrent, h, k)) for k in (0, 1))
        new: Any = apply1(Tanh(), _gate(given, h, 2) + reset * _gate(recurrent, h, 2))  # type: ignore[operator]
        return (new + update * (h - new),)  # type: ignore[operator]
    gates = given + recurrent
    if kind == "tanh":
        return (apply1(Tanh(), gates),)
    if kind == "relu":
        return (apply1(Relu(), gates),)
    enter, forget, leave = (apply1(Sigmoid(), _gate(gates, h, k)) for k in (0, 1, 3))
    c: Any = forget * before[1] + enter * apply1(Tanh(), _gate(gates, h, 2))  # type: ignore[operator]
    return leave * apply1(Tanh(), c), c  # type: ignore[operator]


def _gate(x: Any, h: Tensor, number: int) -> Any:
    hidden = h.shape[1]
    return cut(x, 1, number * hidden, hidden)
