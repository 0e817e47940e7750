"""How a piece of code ends, and what is still to be run after it."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from graphcell.records import dataclass
from graphcell.tensor import Tensor

Flag = bool | Tensor


@dataclass(frozen=True, slots=True)
class Signal:
    """The end of a block other than by its last statement. At most one flag holds; which one may be known
    only while the graph runs.

    `value`: what is returned if `returned`. `raised`: the code never ends otherwise than by an exception
    (while the graph runs).
    """

    broken: Flag = False
    continued: Flag = False
    returned: Flag = False
    value: Any = None
    raised: bool = False

    @property
    def is_known(self) -> bool:
        """True if it is settled at compile time how the block ends."""
        return all(isinstance(f, bool) for f in self.flags)

    @property
    def flags(self) -> tuple[Flag, Flag, Flag]:
        return (self.broken, self.continued, self.returned)


BREAK = Signal(broken=True)
CONTINUE = Signal(continued=True)
RAISED = Signal(raised=True)


@dataclass(frozen=True, slots=True)
class Chain:
    """Statements still to be run: `statements[start:]`, then those of `then`. At the very end of a function
    it returns None.
    """

    statements: Sequence[ast.stmt]
    start: int = 0
    then: Chain | None = None
    ends_function: bool = False

    def before(self, body: Sequence[ast.stmt]) -> Chain:
        """`body`, then these."""
        return Chain(body, 0, self, self.ends_function)


@dataclass(frozen=True, slots=True)
class Done:
    """The whole chain has been run and ended with `signal`."""

    signal: Signal | None
