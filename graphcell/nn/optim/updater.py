"""`Updater`: what all optimizers are, with learning rates of whatever kind: Cells that are called with gradients, and move Parameters."""

from __future__ import annotations

from typing import Any

from graphcell.errors import ArgumentTypeError, ArgumentValueError, GradientCountError
from graphcell.locks import Lock
from graphcell.nn.cell import Cell
from graphcell.parameter import ParameterTuple
from graphcell.tensor import Tensor, state

_updating = Lock()  # of all optimizers, for two may have the same Parameters


class Updater(Cell):
    """A Cell that updates `parameters`."""

    parameters: ParameterTuple

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As of any Cell, but outside of graphs one call at a time: threads that train the same Parameters lose no step."""
        if state.trace is not None:
            return super().__call__(*args, **kwargs)
        with _updating:
            return super().__call__(*args, **kwargs)

    def checked(self, gradients: Any) -> tuple[Any, ...]:
        """The gradients as a tuple that fits the Parameters.

        Raises:
            TypeError: no sequence of Tensors. ValueError: other shapes, or another number of them (which is a RuntimeError, too).
        """
        owner = f"For '{type(self).__name__}'"
        if not isinstance(gradients, (tuple, list)):
            raise ArgumentTypeError(f"{owner}, the gradients must be a tuple of Tensors, but are {type(gradients).__name__}.")
        if len(gradients) != len(self.parameters):
            raise GradientCountError(f"{owner}, there are {len(self.parameters)} Parameters but {len(gradients)} gradients.")
        for g, p in zip(gradients, self.parameters):
            if not isinstance(g, Tensor):
                raise ArgumentTypeError(f"{owner}, the gradient of {p.name} must be a Tensor, but is {type(g).__name__}.")
            if g.shape != p.shape:
                raise ArgumentValueError(f"{owner}, the gradient of {p.name}, of shape {p.shape}, has shape {g.shape}.")
        return tuple(gradients)

    @property
    def _updated(self) -> tuple[bool, ...]:
        """What an optimizer returns: True for each Parameter."""
        return (True,) * len(self.parameters)

    def slots(self, prefix: str, init: Any = "zeros") -> ParameterTuple:
        """One Parameter beside each of the optimizer's, named `prefix.name`."""
        return self.parameters.clone(prefix=prefix, init=init)
