"""Trial runs: interpreting something that may have to be taken back."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any

from graphcell.frontend.places import Log, NamePlace, Never
from graphcell.ir.graph import Node
from graphcell.ops.dispatch import Trace
from graphcell.tensor import state

if TYPE_CHECKING:
    from graphcell.frontend.core import Core

_CHEAP = 24
"""So many nodes may run needlessly rather than stand in a region of their own."""


class _Scope:
    """A graph under construction as it was at one moment."""

    def __init__(self, trace: Trace):
        self.trace = trace
        self.nodes, self.inputs = len(trace.builder.nodes), len(trace.builder.inputs)
        self.newest, self.captured = dict(trace.newest_values), dict(trace.captured)
        self.constants, self.lifted = dict(trace.constants), dict(trace.lifted)

    def restore(self) -> None:
        del self.trace.builder.nodes[self.nodes :]
        del self.trace.builder.inputs[self.inputs :]
        self.trace.newest_values, self.trace.captured = self.newest, self.captured
        self.trace.constants, self.trace.lifted = self.constants, self.lifted


class Trial:
    """A context: what is interpreted inside is undone at its end, in Python's state and in the graph, unless
    `keep()` was called.

    Code that raises while the graph runs (`Never`) is kept: that is its end.
    """

    def __init__(self, interpreter: Core, strict: bool = False):
        self.interpreter = interpreter
        self.log = Log(len(interpreter.logs), strict or interpreter.logs[-1].strict)
        self.kept = False

    def __enter__(self) -> Trial:
        assert state.trace is not None
        self.scopes = [_Scope(trace) for trace in state.trace.chain()]
        self.interpreter.logs.append(self.log)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        logs = self.interpreter.logs
        logs.pop()
        if (self.kept and kind is None) or kind is Never:
            self._hand_over(logs[-1])
            return
        self.log.undo()
        for scope in self.scopes:
            scope.restore()

    def keep(self) -> None:
        """Lets stand what was done."""
        self.kept = True

    def _hand_over(self, outer: Log) -> None:
        outer.births.update(self.log.births)
        for key, (place, old) in self.log.entries.items():
            is_private = isinstance(place, NamePlace) and place.scope.level >= outer.level
            container: Any = getattr(place, "container", None)
            if not is_private and (container is None or id(container) not in outer.births):
                outer.entries.setdefault(key, (place, old))

    def nodes(self) -> list[Node]:
        """The nodes that were added to the innermost graph."""
        first = self.scopes[0]
        return first.trace.builder.nodes[first.nodes :]

    def is_harmless(self) -> bool:
        """True if nothing but a few pure nodes came of it, so that running it needlessly does no harm."""
        nodes = self.nodes()
        if self.log.entries or len(nodes) > _CHEAP or any(n.op.has_effect or n.op.regions for n in nodes):
            return False
        return all(
            len(s.trace.newest_values) == len(s.newest) and s.trace.newest_values == s.newest
            for s in self.scopes
        )
