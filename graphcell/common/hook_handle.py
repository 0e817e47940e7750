"""Tables of hooks, and `HookHandle`, by which a hook is taken away again.

A hook may remove itself or others, and register others, while the hooks of its table run, in this thread or another one: what is removed
is not called any more, and what is new is called from the next time on.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

from graphcell.errors import ArgumentTypeError
from graphcell.tensor import StateEpoch, state

Hook = Callable[..., Any]
Table = OrderedDict[int, Any]  # number of the hook -> (hook, *options)
_numbers = itertools.count()


class HookHandle:
    """What registering a hook returns; `remove()` takes the hook away again."""

    def __init__(self, table: Table, number: int):
        self._table, self.handle_id = table, number

    def remove(self) -> None:
        """Removes the hook. A second call does nothing."""
        _change(self._table)
        self._table.pop(self.handle_id, None)


def register(table: Table, hook: Hook, first: bool = False, *options: bool) -> HookHandle:
    """Puts a hook into a table.

    Raises:
        TypeError: the hook cannot be called.
    """
    if not callable(hook):
        raise ArgumentTypeError(f"Expected a callable hook function, but got {type(hook).__name__}.")
    number = next(_numbers)
    _change(table)
    table[number] = (hook, *options)
    if first:
        table.move_to_end(number, last=False)
    return HookHandle(table, number)


def _change(table: Table) -> None:
    """To be called before a table changes: compiled functions look at it again, and a trace can take the change back."""
    StateEpoch.value += 1
    if state.trace is not None:
        state.trace.root.before_change(table)


def current(table: Table) -> Iterator[tuple[int, Any]]:
    """(number, (hook, *options)) of the hooks that are there now, but for those that are removed meanwhile."""
    for number, entry in tuple(table.items()):
        if number in table:
            yield number, entry
