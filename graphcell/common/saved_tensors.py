"""`saved_tensors_hooks`: the user says in which form the backward pass keeps Tensors. For the calls of one Cell: `Cell.register_saved_tensors_hooks`."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

from graphcell.errors import ArgumentTypeError, UnsupportedSyntaxError
from graphcell.tensor import state


class saved_tensors_hooks:
    """`with saved_tensors_hooks(pack_hook, unpack_hook):` what is computed inside and needed by the backward pass is kept as
    `pack_hook(tensor)`, of any type, and becomes a Tensor again by `unpack_hook` when it is needed. Inner ones win.

    Raises:
        TypeError: a hook cannot be called. RuntimeError: entered in a graph, which keeps what its compiler chooses.
    """

    def __init__(self, pack_hook: Callable[[Any], Any], unpack_hook: Callable[[Any], Any]):
        for hook in (pack_hook, unpack_hook):
            if not callable(hook):
                raise ArgumentTypeError(f"Expected a callable hook function, but got {type(hook).__name__}.")
        self._hooks = (pack_hook, unpack_hook)
        self._before: list[Any] = []

    def __enter__(self) -> None:
        if state.trace is not None:
            raise UnsupportedSyntaxError("saved_tensors_hooks works in PYNATIVE_MODE only, not in a graph")
        self._before.append(state.packing)
        state.packing = self._hooks

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        state.packing = self._before.pop()
