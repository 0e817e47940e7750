"""`trace_function`: from a function and its arguments to a Graph.

Enters: any callable, arguments (Tensors are the graph's inputs, all else are constants). Leaves: `Traced`:
the graph, how the result is put together from its outputs, the Tensors that it reads from outside, what it
writes, and the guards that say how long it holds.
"""

from __future__ import annotations

import random
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from types import MethodType
from typing import Any

import numpy as np

from graphcell.errors import ConcretizationError
from graphcell.frontend.guards import Guards, is_cell
from graphcell.frontend.interpreter import Interpreter, interpreting
from graphcell.frontend.numbers import is_number
from graphcell.frontend.places import UNBOUND, ItemsPlace, NamePlace, Never, Place, Unbound
from graphcell.frontend.source import check_interpretable
from graphcell.frontend.text import Text
from graphcell.frontend.trees import Constant, Tree, flatten, unchanged, unflatten
from graphcell.ir.graph import Graph, Value
from graphcell.ops.dispatch import Trace
from graphcell.records import dataclass
from graphcell.tensor import Tensor

_NUMBER_KINDS = (bool, int, float)


@dataclass(frozen=True, slots=True)
class Output:
    """A leaf of a result: output `index` of the graph, as a Tensor or (`is_number`) as a Python number."""

    index: int
    is_number: bool


@dataclass(frozen=True, slots=True)
class Structure:
    """A value made of graph outputs and constants."""

    tree: Tree
    leaves: tuple[Any, ...]

    def build(self, outputs: Sequence[Tensor]) -> Any:
        """The value, given the graph's outputs."""
        return unflatten(self.tree, iter([_leaf(x, outputs) for x in self.leaves]))

    @property
    def is_single(self) -> bool:
        """True for the first output, a Tensor, alone."""
        return self.tree.kind is None and self.leaves == (Output(0, False),)

    def is_tuple(self, count: int) -> bool:
        """True for a tuple of all `count` outputs, Tensors, in order."""
        flat = self.tree.kind is tuple and all(c.kind is None for c in self.tree.children)
        return flat and self.leaves == tuple(Output(k, False) for k in range(count))

    def builder(self) -> Callable[[Sequence[Tensor]], Any]:
        """`build`, specialised for the common cases."""
        plain = all(isinstance(x, Output) and not x.is_number for x in self.leaves)
        if self.tree.kind is None and plain:
            index = self.leaves[0].index
            return lambda outputs: outputs[index]
        if plain and self.tree.kind is tuple and all(c.kind is None for c in self.tree.children):
            if [x.index for x in self.leaves] == list(range(len(self.leaves))):
                count = len(self.leaves)
                return lambda outputs: tuple(outputs[:count])
        return self.build


def _leaf(leaf: Any, outputs: Sequence[Tensor]) -> Any:
    if not isinstance(leaf, Output):
        return leaf
    return outputs[leaf.index].item() if leaf.is_number else outputs[leaf.index]


@dataclass(frozen=True, slots=True)
class Effect:
    """What a call leaves behind in Python: `place` gets the value of `structure`; with `appends`, a list is
    extended by it.
    """

    place: Place
    structure: Structure | None
    appends: bool = False

    def apply(self, outputs: Sequence[Tensor]) -> None:
        if self.structure is None:
            self.place.set(UNBOUND)
        elif self.appends:
            self.place.container.extend(self.structure.build(outputs))  # type: ignore[attr-defined]
        else:
            self.place.set(self.structure.build(outputs))


@dataclass(slots=True)
class Traced:
    """A traced function.

    `graph`: its inputs are the Tensors in the arguments, in order (`leaves` of them), then `captured`.
    `updates`: (output, input): that output is the new value of that input's Tensor; these outputs come last.
    `result`: what the function returns. `effects`: what else it changes in Python, after each run. `remarks`:
    what a user may want to know of the translation.
    """

    graph: Graph
    leaves: int
    captured: list[Tensor]
    updates: tuple[tuple[int, int], ...]
    result: Structure
    effects: tuple[Effect, ...]
    guards: Guards
    remarks: tuple[str, ...]


def trace_function(
    fn: Any,
    args: Sequence[Any],
    kwargs: dict[str, Any] | None = None,
    aliased: bool = False,
    varying: frozenset[tuple[int, str]] = frozenset(),
) -> Traced:
    """Traces `fn(*args, **kwargs)`.

    Args:
        aliased: arguments that are one and the same Tensor are so in every call, so that a write to one is
            seen in the other.
        varying: numbers read from outside that change from call to call, see `Guards`.

    Raises:
        SourceNotFoundError: a function of the user's without source. UnsupportedSyntaxError: code that a graph cannot hold.
        Whatever the function raises at compile time.
    """
    trace = Trace(name_of(fn))
    drawn = random.getstate(), "numpy.random" in sys.modules and np.random.get_state()  # what fails leaves no trace in these generators
    with interpreting(trace, varying) as interpreter:
        arguments = _Arguments(interpreter, trace, aliased)
        symbolic = [arguments.symbolic(x, name) for x, name in zip(args, _names(fn, args), strict=True)]
        keywords = {k: arguments.symbolic(x, k) for k, x in (kwargs or {}).items()}
        check_interpretable(fn)
        try:
            return _finish(interpreter, trace, arguments.leaves, _result_of(interpreter, fn, symbolic, keywords))
        except BaseException as error:
            interpreter.logs[0].undo()
            random.setstate(drawn[0])
            if drawn[1]:
                np.random.set_state(drawn[1])
            if isinstance(error, ConcretizationError):
                interpreter.guards.seal((), trace.noted.values())  # there is no graph that would take Tensors
                error.guards = interpreter.guards
            raise


def _result_of(interpreter: Interpreter, fn: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """What `fn` returns; None where it can only raise while the graph runs."""
    try:
        return interpreter.call(fn, args, kwargs)
    except Never:
        return None


def name_of(fn: Any) -> str:
    """What to call a function in graphs and messages."""
    owner = getattr(fn, "__self__", None)
    if owner is not None and is_cell(owner):
        return type(owner).__name__
    name = str(getattr(fn, "__name__", type(fn).__name__))
    return "function" if name == "<lambda>" else name


def _names(fn: Any, args: Sequence[Any]) -> list[str]:
    inner = fn.__func__ if isinstance(fn, MethodType) else fn
    code = getattr(inner, "__code__", None)
    names = list(code.co_varnames[: code.co_argcount]) if code is not None else []
    names = names[1:] if isinstance(fn, MethodType) else names
    return [names[k] if k < len(names) else f"arg{k}" for k in range(len(args))]


class _Arguments:
    """Makes inputs of the graph for the plain Tensors in the arguments: `leaves`, in order."""

    def __init__(self, interpreter: Interpreter, trace: Trace, aliased: bool):
        self.interpreter, self.trace, self.aliased = interpreter, trace, aliased
        self.leaves: list[Tensor] = []
        self._seen: dict[int, Tensor] = {}

    def symbolic(self, value: Any, name: str) -> Any:
        """`value` with its plain Tensors replaced. Parameters stay themselves, and lists are copied."""
        if isinstance(value, Tensor):
            return self._leaf(value, name) if type(value) is Tensor else value
        if is_cell(value):
            self.interpreter.guards.met(value, name)
            return value
        if isinstance(value, (list, tuple)):
            items = [self.symbolic(x, f"{name}.{k}") for k, x in enumerate(value)]
            if isinstance(value, list):
                return self.interpreter.bear(items)
            return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
        if isinstance(value, dict):
            return self.interpreter.bear({k: self.symbolic(x, f"{name}.{k}") for k, x in value.items()})
        if isinstance(value, (set, deque, bytearray)):
            return self.interpreter.bear(type(value)(value))
        return value

    def _leaf(self, tensor: Tensor, name: str) -> Tensor:
        if not tensor.is_symbolic:
            tensor.array()  # for the error of a Tensor that only describes an input
        symbol = Tensor.of_value(self.trace.input(tensor.ir_type, name))
        self.leaves.append(symbol)
        return self._seen.setdefault(id(tensor), symbol) if self.aliased else symbol


class _Outputs:
    """Collects the outputs of a graph."""

    def __init__(self, trace: Trace):
        self.trace = trace
        self.values: list[Value] = []

    def structure(self, value: Any, what: str) -> Structure:
        """Where the Tensors of `value` are among the outputs."""
        leaves, tree = flatten(value)
        self._check(tree, what)
        return Structure(tree, tuple([self._leaf(x) for x in leaves]))

    def _leaf(self, leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        value = self.trace.read(leaf)
        if value not in self.values:
            self.values.append(value)
        return Output(self.values.index(value), is_number(leaf))

    def _check(self, tree: Tree, what: str) -> None:
        """Refuses what holds symbolic Tensors in a way that cannot be seen."""
        for child in tree.children:
            self._check(child, what)
        if tree.kind is not Constant:
            return
        hidden = isinstance(tree.constant, Text) or any(
            isinstance(x, Tensor) and x.is_symbolic for x in _attributes(tree.constant)
        )
        if hidden:
            raise ConcretizationError(
                f"{what} is {type(tree.constant).__name__} that holds Tensors of the graph",
                hint="a compiled function can return Tensors, numbers, strings, None, and tuples, lists and dicts of these",
            )


def _attributes(x: Any) -> Iterator[Any]:
    if is_cell(x) or isinstance(x, type):
        return iter(())
    return iter(getattr(x, "__dict__", {}).values())


def _finish(interpreter: Interpreter, trace: Trace, leaves: list[Tensor], result: Any) -> Traced:
    outputs = _Outputs(trace)
    structure = outputs.structure(result, "the result")
    effects = _effects(interpreter, outputs)
    updates = _updates(trace, leaves)
    first = len(outputs.values)
    graph = trace.finish([*outputs.values, *(value for value, _ in updates)])
    captured = [tensor for tensor, _ in trace.captured.values()]
    interpreter.logs[0].undo()
    interpreter.guards.seal(captured, trace.noted.values())
    pairs = tuple((first + k, position) for k, (_, position) in enumerate(updates))
    return Traced(
        graph,
        len(leaves),
        captured,
        pairs,
        structure,
        effects,
        interpreter.guards,
        tuple(dict.fromkeys(interpreter.remarks)),
    )


def _updates(trace: Trace, leaves: list[Tensor]) -> list[tuple[Value, int]]:
    """(new value, input position) of the arguments and captured Tensors that were written to."""
    positions = {id(t): k for k, t in enumerate(leaves)}
    found = []
    for tensor, value in trace.writes():
        if tensor.is_symbolic:
            position = positions.get(id(tensor))
        elif tensor._constant and id(tensor) not in trace.captured:
            position = None  # made while tracing
        else:
            trace.capture(tensor)
            position = len(leaves) + list(trace.captured).index(id(tensor))
        if position is not None and value is not trace.builder.inputs[position]:
            found.append((value, position))
    return found


def _effects(interpreter: Interpreter, outputs: _Outputs) -> tuple[Effect, ...]:
    """What the traced code changed outside of itself: attributes, globals, closure variables, lists and
    dicts.
    """
    effects = []
    for place, old in interpreter.logs[0].entries.values():
        subject = (
            getattr(place, "container", None) or getattr(place, "owner", None) or getattr(place, "cell", None)
        )
        if isinstance(place, NamePlace) or id(subject) in interpreter.born:
            continue
        new = place.get()
        if isinstance(new, Unbound):
            effects.append(Effect(place, None))
        elif isinstance(place, ItemsPlace) and _is_extended(old, new):
            effects.append(
                Effect(place, outputs.structure(new[len(old) :], "an item that is appended"), appends=True)
            )
        elif not unchanged(old, new):
            effects.append(Effect(place, outputs.structure(new, place.label)))
    return tuple(effects)


def _is_extended(old: Any, new: Any) -> bool:
    return (
        isinstance(old, list)
        and isinstance(new, list)
        and len(new) > len(old)
        and all(a is b for a, b in zip(old, new, strict=False))
    )
