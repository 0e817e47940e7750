"""A layer that is applied to every slice of its input."""

from __future__ import annotations

from typing import Any

from graphcell import ops
from graphcell.errors import ArgumentTypeError
from graphcell.nn.cell import Cell
from graphcell.nn.checks import is_int


class TimeDistributed(Cell):
    """Applies `layer` to every slice along `time_axis`.

    Args:
        layer: a Cell, or anything that can be called.
        time_axis: of the input and of the output.
        reshape_with_axis: for layers that treat the entries along this dimension alike (a batch): the two dimensions become one and the layer
            is applied once.

    Raises:
        TypeError: no layer, or an axis that is no int.
    """

    def __init__(self, layer: Any, time_axis: int, reshape_with_axis: int | None = None):
        super().__init__()
        if not callable(layer):
            raise ArgumentTypeError(f"For 'TimeDistributed', the 'layer' must be Cell or Primitive instance, but got type: {type(layer).__name__}.")
        for name, axis in (("time_axis", time_axis), ("reshape_with_axis", reshape_with_axis)):
            if not is_int(axis) and (name == "time_axis" or axis is not None):
                raise ArgumentTypeError(f"For 'TimeDistributed', the type of '{name}' must be 'int', but got '{type(axis).__name__}'.")
        self.layer, self.time_axis, self.reshape_with_axis = layer, time_axis, reshape_with_axis

    def construct(self, inputs: Any) -> Any:
        time = self.time_axis % inputs.ndim
        if self.reshape_with_axis is None:
            return ops.stack([self.layer(x) for x in ops.unbind(inputs, time)], time)
        axis = self.reshape_with_axis % inputs.ndim
        axis -= 1 if axis > time else 0  # without the time
        x = ops.movedim(inputs, time, axis + 1)
        pair = x.shape[axis : axis + 2]
        y = self.layer(x.reshape((*x.shape[:axis], -1, *x.shape[axis + 2 :])))
        y = y.reshape((*y.shape[:axis], *pair, *y.shape[axis + 1 :]))
        return ops.movedim(y, axis + 1, time)
