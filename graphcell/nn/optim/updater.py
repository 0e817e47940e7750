"""`Updater`: what all optimizers are, with learning rates of whatever kind: Cells that are called with gradients, and move Parameters.

Op by op an update takes some 400 us a Parameter, compiled a hundredth of that. So optimizers of this package become graphs in the eager mode,
too, once that is worth it (MindSpore compiles its own at the first call); those of others, whose Python may do more than compute, do not.
"""

from __future__ import annotations

from typing import Any

from graphcell.context import GRAPH_MODE, config
from graphcell.errors import ArgumentTypeError, ArgumentValueError, GradientCountError, GraphcellError
from graphcell.locks import Lock
from graphcell.nn.cell import Cell
from graphcell.ops.kernels import WORTH_NANOSECONDS, Work, spent
from graphcell.parameter import ParameterTuple
from graphcell.tensor import Tensor, state

_updating = Lock()  # of all optimizers, for two may have the same Parameters
_STEPS = 10
"""So many steps op by op take as long as compiling all at once, about, where Parameters are small."""
_PACKAGE = __name__.partition(".")[0] + "."


class _Steps(Work):
    """The steps that an optimizer made op by op, and whether the later ones are compiled."""

    __slots__ = ("compiled",)

    def __init__(self) -> None:
        super().__init__()
        self.compiled = False

    def note(self, nanoseconds: float, parameters: int) -> bool:
        """Notes a step that took so long in numpy; True, once, when it should be compiled."""
        small_graphs = 1.5 + 0.25 * parameters  # whose compilation takes as long
        return self.is_due(max(nanoseconds / small_graphs, WORTH_NANOSECONDS / _STEPS))


class Updater(Cell):
    """A Cell that updates `parameters`."""

    parameters: ParameterTuple

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As of any Cell, but outside of graphs one call at a time: threads that train the same Parameters lose no step."""
        if state.trace is not None:
            return super().__call__(*args, **kwargs)
        with _updating:
            if config.mode == GRAPH_MODE or state.tapes or state.automatic is not None or self.requires_grad or self._has_hooks():
                return super().__call__(*args, **kwargs)
            return self._step(args, kwargs)

    def _step(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """An eager call that nobody else watches."""
        steps: _Steps = self.__dict__.get("_steps") or self.__dict__.setdefault("_steps", _Steps())
        if steps.compiled:
            return self._compiled(*args, **kwargs)
        before = spent.nanoseconds
        result = super().__call__(*args, **kwargs)
        if steps.note(spent.nanoseconds - before, len(self.parameters)):
            steps.compiled = self._is_of_this_package() and self._compiles(args, kwargs)
        return result

    def _is_of_this_package(self) -> bool:
        """Whether what a step does, with its schedules, is known to be the same as Python and as a graph."""
        return all(type(c).construct.__module__.startswith(_PACKAGE) for _, c in self.cells_and_names())

    def _compiles(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether a step with arguments like these is there as a graph now."""
        try:
            self._compiled.compile(*args, **kwargs)
        except GraphcellError:  # as it is op by op, it works
            return False
        return bool(self._compiled.is_compiled)

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
