"""Runs a function so that gradients can be taken of it: eagerly on a tape, or as a graph inside the one under construction.

Enters: a function, its arguments, the Tensors to differentiate with respect to. Leaves: what the function returns, and gradients or a
function that gives them. The function runs once; what it writes into storages (moving statistics, `assign`) happens once. Refuses:
nothing itself; errors are those of the function and of the ops' gradient rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from graphcell.frontend.interpreter import active, call
from graphcell.frontend.numbers import WeakNumber, is_number, number
from graphcell.frontend.places import Never, Place
from graphcell.frontend.trees import Tree, fits, flatten, same_constant, unflatten
from graphcell.ir.graph import Graph, Node, Value, copy_node
from graphcell.ops.dispatch import Tape, Trace, recording
from graphcell.ops.gradient_hooks import through_hooks
from graphcell.passes.autodiff import ones_of_type, split_vjp, vjp, zeros_of_type
from graphcell.records import dataclass
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
class Arguments:
    """Whether gradient functions of arguments follow, when they run eagerly, all their arguments: from the first backward hook of a Cell on,
    which sees the gradients of those that are not asked for, too.
    """

    followed = False


def value_and_gradients(
    fn: Function, args: Sequence[Any], kwargs: dict[str, Any], wrt: Sequence[Tensor], seeds: Seeds, follow: Sequence[Tensor] = ()
) -> tuple[Any, list[Tensor]]:
    """What `fn(*args, **kwargs)` returns, and its gradients with respect to `wrt` for the cotangents that `seeds` makes of that.

    Tapes also `follow` other Tensors, for what looks at gradients on the way.
    """
    if state.trace is not None:
        return _traced_gradients(state.trace, fn, args, kwargs, wrt, seeds)
    tape, output = _forward_kept(fn, args, kwargs, wrt) or _record(fn, args, kwargs, [*wrt, *follow])
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
    kept: _TracedForward | None = outer.forwards.pop(id(fn), None)
    if kept is not None and kept.is_of(outer, args, kwargs, wrt):
        return kept.output, kept.gradients(outer, wrt, seeds)
    traced = trace_child(outer, fn, args, kwargs, wrt)
    cotangents = seeds(traced.output)
    at = [k for k, c in enumerate(cotangents) if c is not None]
    joint = vjp(traced.graph, range(traced.explicit), at)
    results = outer.inline(joint, [*traced.operands, *(outer.read(c) for c in cotangents if c is not None)])
    gradients = [Tensor.of_value(v) for v in results[len(traced.graph.outputs) :]]
    return traced.give_back(outer, results), [through_hooks(t, gradients[traced.places[id(t)]]) for t in wrt]


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
        return [through_hooks(t, Tensor.of_value(gradients[k])) for t, k in zip(wrt, places, strict=True)]

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


@dataclass(frozen=True)
class _Forward:
    """A forward pass that waits for its gradient: what was called with what, and the values that were differentiated then."""

    tape: Tape
    output: Any
    leaves: list[Any]
    tree: Tree
    values: list[tuple[Tensor, Any]]

    def is_of(self, args: Sequence[Any], kwargs: dict[str, Any], wrt: Sequence[Tensor]) -> bool:
        """True if calling with these arguments now would be the same call, and the gradients asked for can be had."""
        leaves, tree = flatten((tuple(args), kwargs))
        watched = {id(t) for t, _ in self.values}
        return (
            fits(tree, self.tree)
            and all(map(_same_data, leaves, self.leaves))
            and all(id(t) in watched for t in wrt)
            and self.is_fresh()
        )

    def is_fresh(self) -> bool:
        """True while the differentiated values are what they were."""
        return all(t._data is data for t, data in self.values)


def _same_data(x: Any, y: Any) -> bool:
    """True for equal constants, one Tensor, or two of one buffer (`separate` in grad.py makes such)."""
    return same_constant(x, y) or (isinstance(x, Tensor) and isinstance(y, Tensor) and x._data is not None and x._data is y._data)


def keep_forward(cell: Any, fn: Function, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """What `fn(*args, **kwargs)` returns. The next gradient of `cell` for the same arguments takes what was kept instead of running it again:
    so programs that call a network and then its gradient run it once, and its state changes once.
    """
    if state.trace is not None:
        return _keep_traced_forward(state.trace, cell, fn, args, kwargs)
    vars(cell).pop("_forward", None)
    leaves, tree = flatten((tuple(args), kwargs))
    given = [(x, x.array()) for x in leaves if isinstance(x, Tensor)]
    trained = cell.trainable_params()
    tape, output = _record(fn, args, kwargs, [*(t for t, _ in given), *trained])
    values = [*given, *((p, p.array()) for p in trained)]  # a Parameter may be a counter that the forward pass itself moves
    forward = _Forward(tape, output, leaves, tree, values)
    if forward.is_fresh():
        vars(cell)["_forward"] = forward
    return output


def _forward_kept(fn: Any, args: Sequence[Any], kwargs: dict[str, Any], wrt: Sequence[Tensor]) -> tuple[Tape, Any] | None:
    """The tape and the output that `keep_forward` left for this very call."""
    kept: _Forward | None = getattr(fn, "__dict__", {}).pop("_forward", None)
    if kept is None or state.tapes or not kept.is_of(args, kwargs, wrt):
        return None
    return kept.tape, kept.output


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


@dataclass(frozen=True)
class _TracedForward:
    """A forward pass in the graph under construction: what was called with what, the nodes and results that it became there."""

    traced: TracedChild
    output: Any
    nodes: list[Node]
    results: tuple[Value, ...]
    arguments: tuple[list[Any], Tree]
    values: list[tuple[Tensor, Value]]

    def is_of(self, outer: Trace, args: Sequence[Any], kwargs: dict[str, Any], wrt: Sequence[Tensor]) -> bool:
        """True if calling with these arguments now would be the same call, and the gradients asked for can be had."""
        (leaves, tree), (before, tree_before) = flatten((tuple(args), kwargs)), self.arguments
        return (
            fits(tree, tree_before)
            and all(_same_leaf(outer, x, y) for x, y in zip(leaves, before, strict=True))
            and all(id(t) in self.traced.places for t in wrt)
            and all(outer.newest(t) is v for t, v in self.values)
        )

    def gradients(self, outer: Trace, wrt: Sequence[Tensor], seeds: Seeds) -> list[Tensor]:
        """The gradients; the nodes of the forward pass are replaced by such that also give what these need."""
        traced, cotangents = self.traced, seeds(self.output)
        places = list(dict.fromkeys(traced.places[id(t)] for t in wrt))
        split = split_vjp(traced.graph, places, [k for k, c in enumerate(cotangents) if c is not None])
        residuals = self._replace(outer, split.forward)
        held = [*(traced.operands[k] for k in split.inputs), *(self.results[k] for k in split.outputs), *residuals]
        found = outer.inline(split.backward, [*held, *(outer.read(c) for c in cotangents if c is not None)])
        by_place = dict(zip(places, found, strict=True))
        return [through_hooks(t, Tensor.of_value(by_place[traced.places[id(t)]])) for t in wrt]

    def _replace(self, outer: Trace, forward: Graph) -> list[Value]:
        """Puts `forward` in the place of the nodes, with the same results; what else it gives."""
        count = len(self.results)
        table = dict(zip(forward.inputs, self.traced.operands, strict=True))
        kept = dict(zip(forward.outputs, self.results, strict=False))
        fresh: list[Node] = []
        for node in forward.nodes:
            copy = copy_node(node, table)
            table.update((v, kept[v]) for v in node.results if v in kept)
            fresh.append(Node(copy.op, copy.operands, tuple(table[v] for v in node.results), copy.span))
            outer.own.update(fresh[-1].results)
        nodes = outer.builder.nodes
        at = nodes.index(self.nodes[0]) if self.nodes else len(nodes)
        nodes[at : at + len(self.nodes)] = fresh
        return [table[v] for v in forward.outputs[count:]]


def _same_leaf(outer: Trace, x: Any, y: Any) -> bool:
    return outer.newest(x) is outer.newest(y) if isinstance(x, Tensor) and isinstance(y, Tensor) else same_constant(x, y)


def _keep_traced_forward(outer: Trace, cell: Any, fn: Function, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    arguments = flatten((tuple(args), kwargs))
    given = [(x, outer.newest(x)) for x in arguments[0] if isinstance(x, Tensor)]
    trained = cell.trainable_params()
    traced = trace_child(outer, fn, args, kwargs, [*(t for t, _ in given), *trained])
    before = len(outer.builder.nodes)
    results = outer.inline(traced.graph, traced.operands)
    nodes = outer.builder.nodes[before:]
    output = traced.give_back(outer, results)
    values = [*given, *((p, outer.newest(p)) for p in trained)]  # a Parameter may be a counter that the forward pass itself moves
    outer.forwards[id(cell)] = _TracedForward(traced, output, nodes, results, arguments, values)
    return output


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
