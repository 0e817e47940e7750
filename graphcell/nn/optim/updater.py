"""`Updater`: what all optimizers are, with learning rates of whatever kind: Cells that are called with gradients, and move Parameters.

Op by op an update takes some 400 us a Parameter, compiled a hundredth of that. So an optimizer of this package becomes a graph in the eager mode, too,
once that is worth it (MindSpore compiles its own at the first call), with what is said of compiled programs: denormal numbers count as zero. One in
which somebody else's Python has a part, be it a method, a schedule or a hook, does not, for that may do more than compute.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from weakref import WeakKeyDictionary

from graphcell.context import GRAPH_MODE, config
from graphcell.errors import ArgumentTypeError, ArgumentValueError, GradientCountError
from graphcell.locks import Lock
from graphcell.nn.cell import Cell
from graphcell.ops.kernels import WORTH_NANOSECONDS, Native, Work, spent
from graphcell.parameter import Parameter, ParameterTuple
from graphcell.tensor import StateEpoch, Tensor, state

_updating = Lock()  # of all optimizers, for two may have the same Parameters
_STEPS = 10
"""So many steps op by op take as long as compiling all at once, about, where Parameters are small."""
_PACKAGE = __name__.partition(".")[0] + "."


class _Steps:
    """How an optimizer's eager steps run. `compilations` of it were made; `epoch` is the value of `StateEpoch` for which `is_own` says whether all of it
    is this package's, and `is_ready` whether there is a graph for steps as they are.
    """

    __slots__ = ("compilations", "epoch", "is_own", "is_ready", "work")

    def __init__(self) -> None:
        self.work, self.compilations, self.epoch = Work(), 0, -1
        self.is_own = self.is_ready = False

    def note(self, nanoseconds: float, parameters: int) -> bool:
        """Notes a step that took so long in numpy; True when it should be compiled: after twice as many steps each time, for settings may change again."""
        small_graphs = 1.5 + 0.25 * parameters  # whose compilation takes as long
        if not self.work.is_due(max(nanoseconds / small_graphs, WORTH_NANOSECONDS / _STEPS) / (1 << self.compilations)):
            return False
        self.work, self.compilations = Work(), self.compilations + 1
        return True


_steps: WeakKeyDictionary[Updater, _Steps] = WeakKeyDictionary()


class Updater(Cell):
    """A Cell that updates `parameters`."""

    parameters: ParameterTuple

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As of any Cell, but outside of graphs one call at a time: threads that train the same Parameters lose no step."""
        if state.trace is not None:
            return super().__call__(*args, **kwargs)
        with _updating:
            if config.mode == GRAPH_MODE or state.tapes or state.automatic is not None or self.requires_grad or not Native.enabled:
                return super().__call__(*args, **kwargs)
            return self._step(args, kwargs)

    def _step(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """An eager call that nobody else watches."""
        steps = _steps.get(self)
        if steps is None:
            steps = _steps[self] = _Steps()
        if steps.epoch != StateEpoch.value:
            steps.epoch, steps.is_own = StateEpoch.value, all(map(_is_own, _cells_in(self)))
            steps.is_ready = steps.is_own and self._jit is not None and self._compiled.knows(*args, **kwargs)
        is_plain = steps.is_own and not any(isinstance(g, Parameter) for g in _items(args))  # a graph knows Parameters by identity
        if steps.is_ready and is_plain:
            return self._compiled(*args, **kwargs)
        before = spent.nanoseconds
        result = super().__call__(*args, **kwargs)
        if is_plain and steps.note(spent.nanoseconds - before, len(self.parameters)) and not self._compiled.is_eager:
            steps.is_ready = self._compiles(args, kwargs)
        return result

    def _compiles(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether a step with arguments like these is there as a graph now."""
        try:
            self._compiled.compile(*args, **kwargs)
        except Exception:  # the step itself was made op by op
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


def _items(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The gradients that an optimizer is called with."""
    return tuple(args[0]) if args and isinstance(args[0], (tuple, list)) else args


def _cells_in(optimizer: Cell) -> Iterator[Cell]:
    """An optimizer and the Cells in its attributes, however they are kept."""
    waiting: list[Any] = [optimizer]
    seen: set[int] = set()
    while waiting:
        x = waiting.pop()
        if id(x) in seen or isinstance(x, ParameterTuple):
            continue
        seen.add(id(x))
        if isinstance(x, Cell):
            yield x
            waiting += vars(x).values()
        elif isinstance(x, dict):
            waiting += x.values()
        elif isinstance(x, (list, tuple)):
            waiting += x


def _is_own(cell: Cell) -> bool:
    """Whether what a Cell does is this package's code alone, which computes and does nothing else."""
    kind = type(cell)
    replaced = any(callable(getattr(kind, name, None)) for name in vars(cell))
    return kind.__module__.startswith(_PACKAGE) and not replaced and not cell._has_hooks()
