"""Hooks of Cells: functions of the user that see, and may replace, what goes into a Cell, what comes out, and the gradients of both.

Forward hooks run around `construct`. Backward hooks are the gradients of two identities, one around the inputs and one around the
outputs of the Cell; the first needs to know what the second saw, which it gets eagerly through a variable, and in a graph as the gradient
of zeros that it hands through the Cell.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from graphcell.bprop import call_with_bprop
from graphcell.errors import ArgumentTypeError, NotImplementedFeatureError, UnsupportedSyntaxError
from graphcell.passes.autodiff import zeros_of_type
from graphcell.pullback import invoke, replace_tensors, tensors_in, trace_child
from graphcell.tensor import StateEpoch, Tensor, state

_numbers = itertools.count()
Hook = Callable[..., Any]
Table = OrderedDict[int, Any]


class HookHandle:
    """What registering a hook returns; `remove()` takes the hook away again."""

    def __init__(self, table: Table, number: int):
        self._table, self._number = table, number

    def remove(self) -> None:
        """Removes the hook. A second call does nothing."""
        StateEpoch.value += 1
        self._table.pop(self._number, None)


def register(table: Table, hook: Hook, first: bool = False, *options: bool) -> HookHandle:
    """Puts a hook into a table.

    Raises:
        TypeError: the hook cannot be called.
    """
    if not callable(hook):
        raise ArgumentTypeError(f"Expected a callable hook function, but got {type(hook).__name__}.")
    number = next(_numbers)
    StateEpoch.value += 1
    table[number] = (hook, *options)
    if first:
        table.move_to_end(number, last=False)
    return HookHandle(table, number)


class Hooks:
    """The part of a Cell that keeps hooks."""

    _pre_hooks: Table
    _forward_hooks: Table
    _backward_pre_hooks: Table
    _backward_hooks: Table

    def _start_hooks(self) -> None:
        for name in ("_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks"):
            self.__dict__[name] = OrderedDict()

    def _has_hooks(self) -> bool:
        return bool(self._pre_hooks or self._forward_hooks or self._backward_pre_hooks or self._backward_hooks)

    def register_forward_pre_hook(
        self, hook_fn: Hook, *, prepend: bool = False, with_kwargs: bool = False
    ) -> HookHandle:
        """Calls `hook_fn(cell, args)` before `construct`; what it returns (if not None) replaces the arguments.

        Args:
            prepend: call it before the hooks that are there.
            with_kwargs: call `hook_fn(cell, args, kwargs)`, which returns None or (args, kwargs).

        Raises:
            TypeError: hook_fn cannot be called.
        """
        return register(self._pre_hooks, hook_fn, prepend, with_kwargs)

    def register_forward_hook(
        self, hook_fn: Hook, *, prepend: bool = False, with_kwargs: bool = False, always_call: bool = False
    ) -> HookHandle:
        """Calls `hook_fn(cell, args, output)` after `construct`; what it returns (if not None) replaces the output.

        Args:
            prepend: call it before the hooks that are there.
            with_kwargs: call `hook_fn(cell, args, kwargs, output)`.
            always_call: call it, with None for the output, if `construct` raised too.

        Raises:
            TypeError: hook_fn cannot be called.
        """
        return register(self._forward_hooks, hook_fn, prepend, with_kwargs, always_call)

    def register_backward_hook(self, hook_fn: Hook) -> HookHandle:
        """Calls `hook_fn(cell, grad_input, grad_output)` in the backward pass; both are tuples of Tensors. What it returns
        (if not None) replaces grad_input. Where no input is differentiated, grad_input holds None.

        Raises:
            TypeError: hook_fn cannot be called.
        """
        return register(self._backward_hooks, hook_fn)

    def register_backward_pre_hook(self, hook_fn: Hook) -> HookHandle:
        """Calls `hook_fn(cell, grad_output)` in the backward pass, before the Cell's; what it returns (if not None) replaces
        grad_output.

        Raises:
            TypeError: hook_fn cannot be called.
        """
        return register(self._backward_pre_hooks, hook_fn)

    def register_parameter_forward_hook(self, hook: Any) -> None:
        """Not there yet.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedFeatureError("Cell.register_parameter_forward_hook is not there yet")

    def register_saved_tensors_hooks(self, pack_hook: Hook, unpack_hook: Hook) -> None:
        """Not there yet.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedFeatureError("Cell.register_saved_tensors_hooks is not there yet")


# -- running -------------------------------------------------------------------------------------------------------------
def run_with_hooks(cell: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Calls the hooks of a Cell around its `construct`."""
    for hook, with_kwargs in tuple(cell._pre_hooks.values()):
        args, kwargs = _before(cell, hook, with_kwargs, args, kwargs)
    backward = _Backward(cell) if cell._backward_hooks or cell._backward_pre_hooks else None
    try:
        inputs = (args, kwargs) if backward is None else backward.around_inputs(args, kwargs)
        output = cell._compute(*inputs)
    except Exception:
        for hook, with_kwargs, always in tuple(cell._forward_hooks.values()):
            if always:
                _after(cell, hook, with_kwargs, args, kwargs, None)
        raise
    for hook, with_kwargs, _ in tuple(cell._forward_hooks.values()):
        output = _after(cell, hook, with_kwargs, args, kwargs, output)
    return output if backward is None else backward.around_output(output)


def _before(cell: Any, hook: Hook, with_kwargs: bool, args: Any, kwargs: Any) -> tuple[Any, Any]:
    if not with_kwargs:
        new = invoke(hook, (cell, args), {})
        if new is None:
            return args, kwargs
        return (new if isinstance(new, tuple) else (new,)), kwargs
    new = invoke(hook, (cell, args, kwargs), {})
    if new is None:
        return args, kwargs
    if not isinstance(new, tuple) or len(new) != 2 or not isinstance(new[1], dict):
        raise UnsupportedSyntaxError(
            f"forward pre hook with kwargs must return None or a tuple of (new_args, new_kwargs), but got {new}"
        )
    return (new[0] if isinstance(new[0], tuple) else (new[0],)), new[1]


def _after(cell: Any, hook: Hook, with_kwargs: bool, args: Any, kwargs: Any, output: Any) -> Any:
    seen = (cell, args, kwargs, output) if with_kwargs else (cell, args, output)
    new = invoke(hook, seen, {})
    return output if new is None else new


Gradients = tuple[Tensor | None, ...]


class _Backward:
    """The two identities of one call of a Cell."""

    def __init__(self, cell: Any):
        self.cell = cell
        self.tokens: tuple[Tensor, ...] = ()
        self.seen: Gradients | None = None  # the gradient of the outputs, when not in a graph
        self.followed = False
        self.count = 0

    # -- inputs ------------------------------------------------------------------------------------------------------
    def around_inputs(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        inputs = [t for t in tensors_in((args, kwargs)) if t.dtype.is_float]
        self.count = len(inputs)
        if state.trace is None:
            self.followed = any(tape.number(t) is not None for tape in state.tapes for t in inputs)
            types: Sequence[Any] = ()
        else:
            self.followed = bool(inputs)
            outputs = trace_child(state.trace, self.cell._compute, (args, kwargs), {}, ()).output
            types = [t.ir_type for t in tensors_in(outputs) if t.dtype.is_float]
        if not self.followed or not self.cell._backward_hooks:
            self.followed = False
            return args, kwargs

        def identity(*xs: Tensor) -> tuple[Tensor, ...]:
            return (*xs, *map(zeros_of_type, types))

        passed = call_with_bprop(identity, self._gradient_of_inputs, *inputs)
        self.tokens = passed[self.count :]
        fresh = dict(zip(map(id, inputs), passed, strict=False))
        everything = [fresh.get(id(t), t) for t in tensors_in((args, kwargs))]
        return replace_tensors((args, kwargs), iter(everything))  # type: ignore[no-any-return]

    def _gradient_of_inputs(self, *given: Any) -> Gradients:
        cotangents: Gradients = given[-1]
        grad_input, grad_output = cotangents[: self.count], self.seen or cotangents[self.count :]
        return self._call_backward_hooks(grad_input, grad_output)

    def _call_backward_hooks(self, grad_input: Gradients, grad_output: Gradients) -> Gradients:
        for (hook,) in tuple(self.cell._backward_hooks.values()):
            new = invoke(hook, (self.cell, grad_input, grad_output), {})
            if new is not None:
                grad_input = tuple(new) if isinstance(new, (tuple, list)) else (new,)
        return grad_input

    # -- outputs -----------------------------------------------------------------------------------------------------
    def around_output(self, output: Any) -> Any:
        outputs = [t for t in tensors_in(output) if t.dtype.is_float]
        count = len(outputs)

        def identity(*ys: Tensor) -> tuple[Tensor, ...]:
            return ys[:count]

        passed = call_with_bprop(identity, self._gradient_of_output, *outputs, *self.tokens)
        fresh = dict(zip(map(id, outputs), passed, strict=False))
        return replace_tensors(output, iter([fresh.get(id(t), t) for t in tensors_in(output)]))

    def _gradient_of_output(self, *given: Any) -> Gradients:
        grad_output: Gradients = tuple(given[-1])
        for (hook,) in tuple(self.cell._backward_pre_hooks.values()):
            new = invoke(hook, (self.cell, grad_output), {})
            if new is not None:
                grad_output = tuple(new) if isinstance(new, (tuple, list)) else (new,)
        if state.trace is None:
            self.seen = grad_output
        if not self.followed:
            self._call_backward_hooks((None,) * self.count, grad_output)
        return (*grad_output, *grad_output) if self.tokens else grad_output
