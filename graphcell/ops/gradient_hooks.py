"""`Tensor.register_hook`: functions of the user that see, and may replace, the gradient of a Tensor.

A Parameter, or a Tensor made outside, keeps its hooks: its whole gradient passes through them in every backward pass. Eagerly so does
that of a Tensor on the way. In a graph the hook sees what flows back from the uses that follow its registration.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from graphcell.errors import ArgumentTypeError, ExecutionError, ShapeError, UnsupportedSyntaxError
from graphcell.ops.functional.common import cast
from graphcell.ops.methods import attach
from graphcell.tensor import StateEpoch, Tensor, state

Hook = Callable[[Tensor], Tensor | None]
_numbers = itertools.count()


class _TensorHookHandle:
    """What `register_hook` returns; `remove()` takes the hook away again."""

    def __init__(self, table: OrderedDict[int, Any] | None, number: int):
        self._table, self.id = table, number

    def remove(self) -> None:
        """Removes the hook. A second call does nothing.

        Raises:
            RuntimeError: the hook belongs to a graph under construction.
        """
        if self._table is None:
            raise UnsupportedSyntaxError("a hook of a Tensor cannot be removed in a graph", hint="let the hook return None, or do not register it")
        StateEpoch.value += 1
        self._table.pop(self.id, None)


def register_hook(self: Tensor, hook: Hook) -> _TensorHookHandle:
    """Calls `hook(gradient)` with the Tensor's gradient in the backward pass; what it returns (if not None) takes its place.

    Raises:
        TypeError: hook cannot be called. RuntimeError: in a graph, for a Tensor from outside of it.
    """
    if not callable(hook):
        raise ArgumentTypeError(f"Expected a callable hook function, but got {type(hook).__name__}.")
    number = next(_numbers)
    if state.trace is not None:
        _hook_in_graph(self, _Checked(hook))
        return _TensorHookHandle(None, number)
    table = self.__dict__.setdefault("gradient_hooks", OrderedDict())
    table[number] = _Checked(hook)
    StateEpoch.value += 1
    for tape in state.tapes:
        tape.hook(self)
    return _TensorHookHandle(table, number)


def through_hooks(tensor: Tensor, gradient: Tensor) -> Tensor:
    """The gradient of `tensor` after the Tensor's hooks. A graph under construction notes that it depends on them."""
    hooks = tuple(tensor.gradient_hooks.values())
    if state.trace is not None and not tensor.is_symbolic:
        state.trace.note(tensor, "gradient_hooks", dict(tensor.gradient_hooks))
    for hook in hooks:
        gradient = hook(gradient)
    return gradient


class _Checked:
    """A hook as a function from gradient to gradient."""

    def __init__(self, hook: Hook):
        self.hook = hook

    def __call__(self, gradient: Tensor) -> Tensor:
        from graphcell.pullback import invoke

        new = invoke(self.hook, (gradient,), {})
        if new is None:
            return gradient
        if not isinstance(new, Tensor):
            raise ExecutionError(f"Tensor hook should be return Tensor, but get type: {type(new).__name__}.")
        if new.shape != gradient.shape:
            raise ShapeError(f"a Tensor hook must return a gradient of shape {gradient.shape}, but returned one of shape {new.shape}")
        return cast(new, gradient.dtype)


def _hook_in_graph(tensor: Tensor, hook: _Checked) -> None:
    """Makes the newest value of `tensor` an identity whose gradient passes through the hook."""
    from graphcell.bprop import call_with_bprop

    trace = state.trace
    assert trace is not None
    if not tensor.is_symbolic:
        raise UnsupportedSyntaxError(
            f"register_hook of {getattr(tensor, 'name', 'a Tensor')} in a graph: it was made outside", hint="register the hook before the call"
        )

    def identity(x: Tensor) -> Tensor:
        return x

    def backward(x: Tensor, out: Tensor, dout: Tensor) -> tuple[Tensor]:
        for hook in hooks:
            dout = hook(dout)
        return (dout,)

    before, hooks = trace.read(tensor), [hook]
    chain = tensor.__dict__.get("hooks_in_graph")
    if chain is not None and chain[1] is before:  # the newest of several is the last to see the gradient
        before, hooks = chain[0], [*chain[2], hook]
    after = trace.read(call_with_bprop(identity, backward, Tensor.of_value(before)))
    tensor.__dict__["hooks_in_graph"] = (before, after, hooks)
    if id(tensor) in trace.newest_values or before not in trace.own:
        trace.write(tensor, after)
    else:
        tensor._value = after


attach((("register_hook", register_hook),))
