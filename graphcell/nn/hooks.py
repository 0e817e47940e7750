"""Hooks of Cells: functions of the user that see, and may replace, what goes into a Cell, what comes out, and the gradients of both.

Forward hooks run around `construct`. Backward hooks are the gradients of two identities, one around the inputs and one around the
outputs of the Cell; the first needs to know what the second saw, which it gets eagerly through a variable, and in a graph as the gradient
of zeros that it hands through the Cell.
"""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from graphcell.bprop import call_with_bprop
from graphcell.common.hook_handle import Hook, HookHandle, Table, current, register
from graphcell.errors import ArgumentTypeError, ArgumentValueError, ShapeError, UnsupportedSyntaxError
from graphcell.frontend.signature import key_of
from graphcell.ir.types import TensorType
from graphcell.parameter import Parameter
from graphcell.passes.autodiff import zeros_of_type
from graphcell.pullback import Arguments, invoke, replace_tensors, tensors_in, trace_child
from graphcell.tensor import StateEpoch, Tensor, state


class Hooks:
    """The part of a Cell that keeps hooks."""

    _pre_hooks: Table
    _forward_hooks: Table
    _backward_pre_hooks: Table
    _backward_hooks: Table
    _parameter_hooks: dict[str, Hook]
    _saved_tensors_hooks: tuple[Hook, Hook] | None

    def _start_hooks(self) -> None:
        for name in ("_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks"):
            self.__dict__[name] = OrderedDict()
        self.__dict__.update(_parameter_hooks={}, _saved_tensors_hooks=None)

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
        (if not None) replaces grad_input. Where no input is differentiated, grad_input holds None; else it holds the gradients of all that
        are, or depend on, arguments of the gradient function, and of Parameters.

        Raises:
            TypeError: hook_fn cannot be called.
        """
        handle = register(self._backward_hooks, hook_fn)
        Arguments.followed = True
        return handle

    def register_backward_pre_hook(self, hook_fn: Hook) -> HookHandle:
        """Calls `hook_fn(cell, grad_output)` in the backward pass, before the Cell's; what it returns (if not None) replaces
        grad_output.

        Raises:
            TypeError: hook_fn cannot be called.
        """
        return register(self._backward_pre_hooks, hook_fn)

    def register_parameter_forward_hook(self, hook: Hook | list[dict[str, Any]]) -> None:
        """In graphs, `construct` of this Cell and of all inside gets `hook(parameter)` where it reads a Parameter.

        Args:
            hook: a function for all Parameters, or a list of dicts {"params": Parameters, "hook": function}.

        Raises:
            TypeError: a hook cannot be called, an item is no dict, or a parameter no Parameter. ValueError: a dict lacks one of the keys.
        """
        if not callable(hook) and not isinstance(hook, list):
            raise ArgumentTypeError(f"Hook must be a callable function or a list of dictionaries, but got {type(hook)}.")
        chosen = None if callable(hook) else {id(p): item["hook"] for item in map(_checked_item, hook) for p in item["params"]}
        StateEpoch.value += 1
        for _, cell in self.cells_and_names():  # type: ignore[attr-defined]
            for name, param in cell._parameters.items():
                if chosen is None:
                    cell._parameter_hooks[name] = hook
                elif id(param) in chosen:
                    cell._parameter_hooks[name] = chosen[id(param)]

    def register_saved_tensors_hooks(self, pack_hook: Hook, unpack_hook: Hook) -> None:
        """In PYNATIVE_MODE, what `construct` computes and the backward pass needs is kept as `pack_hook(tensor)` (of any type), and becomes a
        Tensor again by `unpack_hook` when it is needed. A second call replaces the hooks. What a graph keeps is its compiler's business.

        Raises:
            TypeError: a hook cannot be called.
        """
        for hook in (pack_hook, unpack_hook):
            if not callable(hook):
                raise ArgumentTypeError(f"Expected a callable hook function, but got {type(hook).__name__}.")
        self.__dict__["_saved_tensors_hooks"] = (pack_hook, unpack_hook)


def _checked_item(item: Any) -> dict[str, Any]:
    """An item of the list that `register_parameter_forward_hook` takes."""
    if not isinstance(item, dict):
        raise ArgumentTypeError(f"Each item in the hook list must be a dictionary, but got {type(item)}.")
    if not {"params", "hook"} <= set(item):
        raise ArgumentValueError("Each dictionary in the hook list must contain both params and hook keys.")
    for param in item["params"]:
        if not isinstance(param, Parameter):
            raise ArgumentTypeError(f"All items in params must be of type 'Parameter', but got {type(param)}.")
    if not callable(item["hook"]):
        raise ArgumentTypeError(f"The hook value must be callable, but got {type(item['hook'])}.")
    return item


# -- running -------------------------------------------------------------------------------------------------------------
def run_with_hooks(cell: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Calls the hooks of a Cell around its `construct`."""
    called: set[int] = set()  # the forward hooks that ran
    output = None
    try:
        for _, (hook, with_kwargs) in current(cell._pre_hooks):
            args, kwargs = _before(cell, hook, with_kwargs, args, kwargs)
        backward = _Backward(cell) if cell._backward_hooks or cell._backward_pre_hooks else None
        output = cell._compute(*((args, kwargs) if backward is None else backward.around_inputs(args, kwargs)))
        output = _call_forward_hooks(cell, args, kwargs, output, called)
        return output if backward is None else backward.around_output(output)
    except Exception:
        _call_the_rest(cell, args, kwargs, output, called)
        raise


def _call_forward_hooks(cell: Any, args: Any, kwargs: Any, output: Any, called: set[int]) -> Any:
    """What the forward hooks make of the output. `called` gains their numbers."""
    for number, (hook, with_kwargs, _) in current(cell._forward_hooks):
        called.add(number)
        output = _after(cell, hook, with_kwargs, args, kwargs, output)
    return output


def _call_the_rest(cell: Any, args: Any, kwargs: Any, output: Any, called: set[int]) -> None:
    """After an error: the forward hooks that are always called and were not yet. What they raise does not hide the error."""
    for number, (hook, with_kwargs, always) in current(cell._forward_hooks):
        if not always or number in called:
            continue
        try:
            output = _after(cell, hook, with_kwargs, args, kwargs, output)
        except Exception as e:
            warnings.warn(f"a forward hook with always_call=True raised while another error was handled: {e}", RuntimeWarning, stacklevel=3)


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
    """The two identities of one call of a Cell.

    `grad_input` has a place for each Tensor among the positional arguments, `grad_output` for each Tensor in the output; what has no
    gradient has None there.
    """

    def __init__(self, cell: Any):
        self.cell = cell
        self.inputs = 0  # how many Tensors are among the arguments
        self.followed: list[int] = []  # which of them have gradients
        self.outputs = 0
        self.differentiated: list[int] = []
        self.tokens: tuple[Tensor, ...] = ()
        self.seen: Gradients | None = None  # the gradient of the outputs, when not in a graph

    # -- inputs ------------------------------------------------------------------------------------------------------
    def around_inputs(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        inputs = tensors_in(args)
        self.inputs = len(inputs)
        if not self.cell._backward_hooks:
            return args, kwargs
        if not any(t.dtype.is_float and _is_followed(t) for t in inputs):
            return args, kwargs
        for parameter in (t for t in inputs if isinstance(t, Parameter) and not _is_followed(t)):
            for tape in state.tapes:  # beside an input that is differentiated its gradient is of use
                tape.watch(parameter)
        self.followed = [k for k, t in enumerate(inputs) if t.dtype.is_float and _is_followed(t)]
        types = () if state.trace is None else self._output_types(args, kwargs)

        def identity(*xs: Tensor) -> tuple[Tensor, ...]:
            return (*xs, *map(zeros_of_type, types))

        passed = call_with_bprop(identity, self._gradient_of_inputs, *(inputs[k] for k in self.followed))
        self.tokens = passed[len(self.followed) :]
        return _replaced(args, inputs, self.followed, passed), kwargs

    def _output_types(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[TensorType]:
        """In a graph: the types of the outputs that have gradients. Found by a trial, once for all calls alike, or Cells within Cells would
        be traced ever so often.
        """
        trace = state.trace
        assert trace is not None
        objects: list[Any] = [self.cell]  # kept, so that their identities stay their own
        key = (id(self.cell), StateEpoch.value, key_of((args, kwargs), [], objects))
        if key not in trace.root.output_types:
            output = trace_child(trace, self._try, (args, kwargs), {}, ()).output
            types = [t.ir_type for t in self._outputs_of(output)]
            trace.root.output_types[key] = (types, self.outputs, self.differentiated, objects)
        types, self.outputs, self.differentiated, _ = trace.root.output_types[key]
        return types

    def _try(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return _call_forward_hooks(self.cell, args, kwargs, self.cell._compute(args, kwargs), set())

    def _gradient_of_inputs(self, *given: Any) -> Gradients:
        count = len(self.followed)
        cotangents: Gradients = given[-1]
        grad_output = self.seen or _spread(cotangents[count:], self.differentiated, self.outputs)
        grad_input = self._call_backward_hooks(_spread(cotangents[:count], self.followed, self.inputs), grad_output)
        return tuple(grad_input[k] for k in self.followed)

    def _call_backward_hooks(self, grad_input: Gradients, grad_output: Gradients) -> Gradients:
        for _, (hook,) in current(self.cell._backward_hooks):
            new = invoke(hook, (self.cell, grad_input, grad_output), {})
            if new is not None:
                grad_input = _checked(new, grad_input, "backward hook", "grad input")
        return grad_input

    # -- outputs -----------------------------------------------------------------------------------------------------
    def _outputs_of(self, output: Any) -> list[Tensor]:
        """The Tensors in the output that have gradients."""
        outputs = tensors_in(output)
        self.outputs = len(outputs)
        self.differentiated = [k for k, t in enumerate(outputs) if t.dtype.is_float]
        return [outputs[k] for k in self.differentiated]

    def around_output(self, output: Any) -> Any:
        outputs = self._outputs_of(output)
        count = len(outputs)

        def identity(*ys: Tensor) -> tuple[Tensor, ...]:
            return ys[:count]

        passed = call_with_bprop(identity, self._gradient_of_output, *outputs, *self.tokens)
        return _replaced(output, tensors_in(output), self.differentiated, passed)

    def _gradient_of_output(self, *given: Any) -> Gradients:
        grad_output = _spread(given[-1], self.differentiated, self.outputs)
        for _, (hook,) in current(self.cell._backward_pre_hooks):
            new = invoke(hook, (self.cell, grad_output), {})
            if new is not None:
                grad_output = _checked(new, grad_output, "backward pre hook", "output")
        if state.trace is None:
            self.seen = grad_output
        if not self.followed:
            self._call_backward_hooks((None,) * self.inputs, grad_output)
        flowing = tuple(grad_output[k] for k in self.differentiated)
        return (*flowing, *flowing) if self.tokens else flowing


def _is_followed(tensor: Tensor) -> bool:
    return state.trace is not None or any(tape.number(tensor) is not None for tape in state.tapes)


def _spread(gradients: Sequence[Tensor | None], places: Sequence[int], count: int) -> Gradients:
    """`count` gradients: those given in their places, None elsewhere."""
    found = dict(zip(places, gradients, strict=True))
    return tuple(found.get(k) for k in range(count))


def _replaced(structure: Any, tensors: Sequence[Tensor], places: Sequence[int], new: Sequence[Tensor]) -> Any:
    """`structure`, which holds `tensors`, with `new` in some of their places."""
    found = dict(zip(places, new, strict=False))
    return replace_tensors(structure, iter([found.get(k, t) for k, t in enumerate(tensors)]))


def _checked(new: Any, before: Gradients, hook: str, expected: str) -> Gradients:
    """What a hook returned in place of the gradients `before`, as a tuple.

    Raises:
        TypeError: another number of them, or something that is no Tensor. ValueError: a gradient of another shape.
    """
    gradients = tuple(new) if isinstance(new, (tuple, list)) else (new,)
    if len(gradients) != len(before):
        raise ArgumentTypeError(f"The {hook} return value size is {len(gradients)} not equal to expect {expected} size {len(before)}")
    for g, b in zip(gradients, before, strict=True):
        if not isinstance(g, Tensor) and not (g is None and b is None):
            raise ArgumentTypeError(f"The output type of the {hook} should be a tensor but got {type(g).__name__}.")
        if isinstance(g, Tensor) and b is not None and g.shape != b.shape:
            raise ShapeError(f"The output of the {hook} should be a tensor of shape {b.shape}, as the gradient that it got, but has shape {g.shape}.")
    return gradients
