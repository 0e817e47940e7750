"""Runs a function so that gradients can be taken of it: eagerly on a tape, or as a graph inside the one under construction.

Enters: a function, its arguments, the Tensors to differentiate with respect to. Leaves: what the function returns, and gradients or a
function that gives them. The function runs once; what it writes into storages (moving statistics, `assign`) happens once. Refuses:
nothing itself; errors are those of the function and of the ops' gradient rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from graphcell.frontend.interpreter import active, call
from graphcell.frontend.numbers import WeakNumber, is_number, number
from graphcell.frontend.places import Never, Place
from graphcell.frontend.trees import flatten, unflatten
from graphcell.ir.graph import Graph, Value
from graphcell.ops.dispatch import Tape, Trace, recording
from graphcell.passes.autodiff import ones_of_type, split_vjp, vjp, zeros_of_type
from graphcell.tensor import Tensor, state

Function = Callable[..., Any]
Cotangents = Sequence[Tensor | None]
Seeds = Callable[[Any], Cotangents]
"""From what a function returned, one cotangent or None for each Tensor in it."""


# -- structures ----------------------------------------------------------------------------------------------------------
def tensors_in(x: Any) -> list[Tensor]:
    """The Tensors in nested tuples, lists and dicts, in order."""
    if isinstance(x, Tensor):
        return [x]
    if isinstance(x, (tuple, list)):
        return [t for e in x for t in tensors_in(e)]
    if isinstance(x, dict):
        return [t for e in x.values() for t in tensors_in(e)]
    return []


def replace_tensors(x: Any, tensors: Iterator[Any]) -> Any:
    """The same structure with its Tensors, in order, replaced by what `tensors` gives."""
    if isinstance(x, Tensor):
        return next(tensors)
    if isinstance(x, dict):
        return {k: replace_tensors(e, tensors) for k, e in x.items()}
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return type(x)(*(replace_tensors(e, tensors) for e in x))
    if isinstance(x, (tuple, list)):
        parts = [replace_tensors(e, tensors) for e in x]
        return parts if isinstance(x, list) else tuple(parts)
    return x


def gradient_structure(x: Any, gradients: Iterator[Tensor]) -> Any:
    """The structure of an argument with gradients in place of its Tensors, and None in place of what has none."""
    if isinstance(x, Tensor):
        return next(gradients)
    if isinstance(x, dict):
        return {k: gradient_structure(e, gradients) for k, e in x.items()}
    if isinstance(x, (tuple, list)):
        parts = [gradient_structure(e, gradients) for e in x]
        return parts if isinstance(x, list) else tuple(parts)
    return None


def name_of(fn: Any) -> str:
    """What to call a function in graphs and messages."""
    return str(getattr(fn, "__name__", type(fn).__name__))


def differentiable(tensor: Tensor, wrt: Sequence[Tensor]) -> bool:
    """True for floats, and for integers where an integer Tensor is differentiated (MindSpore gives such gradients as integers)."""
    dtype = tensor.dtype
    if is_number(tensor):
        return False
    return dtype.is_float or (dtype.is_integer and any(t.dtype.is_integer for t in wrt))


def ones(tensors: Sequence[Tensor], wrt: Sequence[Tensor]) -> list[Tensor | None]:
    """The default cotangents."""
    return [ones_of_type(t.ir_type) if differentiable(t, wrt) else None for t in tensors]


# -- gradients at once ---------------------------------------------------------------------------------------------------
def value_and_gradients(
    fn: Function, args: Sequence[Any], kwargs: dict[str, Any], wrt: Sequence[Tensor], seeds: Seeds
) -> tuple[Any, list[Tensor]]:
    """What `fn(*args, **kwargs)` returns, and its gradients with respect to `wrt` for the cotangents that `seeds` makes of that."""
    if state.trace is not None:
        return _traced_gradients(state.trace, fn, args, kwargs, wrt, seeds)
    tape, output = _record(fn, args, kwargs, wrt)
    gradients = tape.gradients(tensors_in(output), seeds(output), wrt, release=True)
    return output, _fill(gradients, wrt)


def _traced_gradients(
    outer: Trace,
    fn: Function,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    wrt: Sequence[Tensor],
    seeds: Seeds,
) -> tuple[Any, list[Tensor]]:
    traced = trace_child(outer, fn, args, kwargs, wrt)
    cotangents = seeds(traced.output)
    at = [k for k, c in enumerate(cotangents) if c is not None]
    joint = vjp(traced.graph, range(traced.explicit), at)
    results = outer.inline(joint, [*traced.operands, *(outer.read(c) for c in cotangents if c is not None)])
    gradients = [Tensor.of_value(v) for v in results[len(traced.graph.outputs) :]]
    return traced.give_back(outer, results), [gradients[traced.places[id(t)]] for t in wrt]


# -- gradients later -----------------------------------------------------------------------------------------------------
Pullback = Callable[[Cotangents], list[Tensor]]
"""From one cotangent (or None) for each Tensor that the function returned, the gradients."""


def linearize(
    fn: Function, args: Sequence[Any], kwargs: dict[str, Any], wrt: Sequence[Tensor]
) -> tuple[Any, Pullback]:
    """What `fn(*args, **kwargs)` returns, and a function that gives gradients with respect to `wrt`, as often as it is called."""
    if state.trace is not None:
        return _traced_linearize(state.trace, fn, args, kwargs, wrt)
    tape, output = _record(fn, args, kwargs, wrt)
    leaves = tensors_in(output)
    return output, lambda cotangents: _fill(tape.gradients(leaves, cotangents, wrt), wrt)


def _traced_linearize(
    outer: Trace, fn: Function, args: Sequence[Any], kwargs: dict[str, Any], wrt: Sequence[Tensor]
) -> tuple[Any, Pullback]:
    traced = trace_child(outer, fn, args, kwargs, wrt)
    leaves = tensors_in(traced.output)
    at = [k for k, t in enumerate(leaves) if differentiable(t, wrt)]
    split = split_vjp(traced.graph, range(traced.explicit), at)
    results = outer.inline(split.forward, traced.operands)
    held = (
        [traced.operands[k] for k in split.inputs]
        + [results[k] for k in split.outputs]
        + list(results[len(traced.graph.outputs) :])
    )
    types = [leaves[k].ir_type for k in at]
    places = [traced.places[id(t)] for t in wrt]

    def pullback(cotangents: Cotangents) -> list[Tensor]:
        current = state.trace
        assert current is not None, (
            "the pullback of a traced function belongs to the graph under construction"
        )
        given = [
            zeros_of_type(t) if c is None else c
            for t, c in zip(types, (cotangents[k] for k in at), strict=True)
        ]
        gradients = current.inline(split.backward, [*held, *map(current.read, given)])
        return [Tensor.of_value(gradients[k]) for k in places]

    return traced.give_back(outer, results), pullback


# -- eager ---------------------------------------------------------------------------------------------------------------
def _record(
    fn: Function, args: Sequence[Any], kwargs: dict[str, Any], wrt: Sequence[Tensor]
) -> tuple[Tape, Any]:
    tape = Tape()
    for t in wrt:
        if not t.dtype.is_bool:
            tape.watch(t)
    with recording(tape):
        return tape, fn(*args, **kwargs)


def _fill(gradients: Sequence[Tensor | None], wrt: Sequence[Tensor]) -> list[Tensor]:
    return [zeros_of_type(t.ir_type) if g is None else g for g, t in zip(gradients, wrt, strict=True)]


@contextmanager
def no_tapes() -> Iterator[None]:
    """Nothing inside is recorded."""
    before, state.tapes = state.tapes, ()
    try:
        yield
    finally:
        state.tapes = before


# -- inside a graph ------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class TracedChild:
    """A function as a graph of its own inside the graph under construction.

    `operands` are the values, in the graph around, for the graph's inputs, of which the first `explicit` stand for the Tensors asked
    for (`places` has the position of each by its id); the others are `lifted`. Outputs: the Tensors in `output` in order, those in
    `changes` (what the function left in variables, attributes and containers from outside), the newest values of what it wrote into
    (`written`).
    """

    graph: Graph
    operands: list[Value]
    explicit: int
    places: dict[int, int]
    lifted: list[Value]
    output: Any
    changes: list[tuple[Place, Any]]
    written: list[Tensor]

    def give_back(self, outer: Trace, results: Sequence[Value]) -> Any:
        """What the function returns, made of `results` (of the graph's outputs). What it changed is changed in the graph around."""
        kept = [self.output, [value for _, value in self.changes]]
        leaves = tensors_in(kept)
        for t, v in zip(self.written, results[len(leaves) :], strict=False):
            outer.write(t, v)
        output, finals = replace_tensors(kept, iter([_like(t, v) for t, v in zip(leaves, results, strict=False)]))
        for (place, _), value in zip(self.changes, finals, strict=True):
            interpreter = active()
            assert interpreter is not None
            interpreter.assign(place, value)
        return output


def trace_child(
    outer: Trace, fn: Function, args: Sequence[Any], kwargs: dict[str, Any], wrt: Sequence[Tensor]
) -> TracedChild:
    """Traces `fn(*args, **kwargs)` in a graph of its own in which the Tensors `wrt` are the first inputs."""
    child = Trace(name_of(fn), outer)
    places: dict[int, int] = {}
    operands: list[Value] = []
    for t in wrt:
        if id(t) in places:
            continue
        places[id(t)] = len(operands)
        value = outer.newest(t)
        operands.append(outer.lift(value))
        child.write(t, child.input(value.type, value.name))
    start = {id(t): v for t, v in child.writes()}
    with child.active():
        try:
            output, changes, born = _call_and_undo(fn, args, kwargs)
        except Never:  # it raises while the graph runs
            outer.inline(child.finish([]), [*operands, *map(outer.lift, child.lifted)])
            raise
        values = [child.read(t) for t in tensors_in([output, [value for _, value in changes]])]
    written = [(t, v) for t, v in child.writes() if start.get(id(t)) is not v and t._value not in child.own and id(t) not in born]
    graph = child.finish([*values, *(v for _, v in written)])
    lifted = list(child.lifted)
    operands += map(outer.lift, lifted)
    return TracedChild(graph, operands, len(places), places, lifted, output, changes, [t for t, _ in written])


def _call_and_undo(fn: Function, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, list[tuple[Place, Any]], set[int]]:
    """What `fn` returns; what it changed in Python's state (which is as before afterwards), with the final values; what it made."""
    interpreter = active()
    if interpreter is None:
        return call(fn, *args, **kwargs), [], set()
    with interpreter.logged() as log:
        output = _settle(interpreter.call(fn, args, kwargs))
        changes = [(place, place.get()) for place, _ in log.entries.values()]
    interpreter.logs[-1].births.update(log.births)
    return output, changes, set(log.births)


def _settle(x: Any) -> Any:
    """`x` with numbers that only the graph knows as Tensors that stand for a number."""
    leaves, tree = flatten(x)
    return unflatten(tree, iter([number(leaf.as_tensor()) if isinstance(leaf, WeakNumber) else leaf for leaf in leaves]))


def _like(tensor: Tensor, value: Value) -> Tensor:
    """The Tensor of `value`, marked as `tensor` is."""
    new = Tensor.of_value(value)
    if is_number(tensor):
        number(new)
    return new


def invoke(fn: Function, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Calls `fn` in the graph under construction: interpreted where its source is the user's, so that its control flow is seen."""
    return call(fn, *args, **kwargs)
