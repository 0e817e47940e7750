"""`call_with_bprop`: a function whose gradient the user gives, in both modes.

Enters: a function, its `bprop(*inputs, out, dout)`, its arguments. Leaves: what the function returns; whoever differentiates that runs
`bprop` instead of the gradient rules of the ops inside. Refuses: gradients that do not fit the inputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from graphcell.errors import ArgumentTypeError, ConcretizationError, NoGradientError, NotImplementedFeatureError, ShapeError
from graphcell.frontend.interpreter import active
from graphcell.frontend.places import CellPlace
from graphcell.ir.graph import Graph, Value
from graphcell.ops.control import CustomGradient
from graphcell.ops.dispatch import Trace, apply1
from graphcell.ops.functional.common import NUMBER_TYPES, cast, full_like
from graphcell.ops.movement import BroadcastTo
from graphcell.ops.reduction import sum_to_shape
from graphcell.passes.autodiff import accumulate, zeros_of_type
from graphcell.passes.rules import Rule
from graphcell.pullback import (
    Function,
    TracedChild,
    invoke,
    name_of,
    no_tapes,
    replace_tensors,
    tensors_in,
    trace_child,
)
from graphcell.tensor import Tensor, state


def call_with_bprop(fn: Function, bprop: Function, *args: Any, **kwargs: Any) -> Any:
    """`fn(*args, **kwargs)`, with `bprop` for its gradient.

    `bprop` is called with the arguments (those given by keyword last, by position), then what `fn` returned, then its cotangents in the same
    structure (zeros for integers and for what is not used), and gives a tuple with one gradient for each argument (or, for one argument, that
    alone): a Tensor, a number, or in the tuple None for zeros; for an argument that is a tuple, list or dict, the same structure. Gradients beyond the
    arguments are left out, also in MindSpore's form of two parts, `(dx, dy), {weight: dw}`. Nothing else that `fn` reads gets a gradient from it.

    Raises (when differentiated; in a graph, when it is built):
        RuntimeError: if `bprop` gives fewer gradients than there are arguments.
        TypeError, ValueError: if it returns None, if a gradient is no Tensor, or its shape does not fit its input's.
    """
    if state.trace is not None:
        return _traced(state.trace, fn, bprop, args, kwargs)
    if not state.tapes:
        return fn(*args, **kwargs)
    everything = (*args, *kwargs.values())
    inputs = tensors_in(everything)
    with no_tapes():
        output = fn(*args, **kwargs)
    following = [tape for tape in state.tapes if any(tape.number(t) is not None for t in inputs)]
    if not following:
        return output
    results = [
        Tensor.of_array(t.array()) for t in tensors_in(output)
    ]  # others than the inputs, even if they share memory
    output = replace_tensors(output, iter(results))
    for tape in following:
        numbers = [tape.number(t) for t in inputs]
        rule = _rule(fn, bprop, everything, output, tuple(n is not None for n in numbers))
        tape.add(rule, tuple(n for n in numbers if n is not None), inputs, results, ())
    return output


def _owner(fn: Function) -> str:
    """What to call `fn`, of a Cell's `construct` the Cell, in messages."""
    return name_of(getattr(fn, "__self__", fn))


def _rule(fn: Function, bprop: Function, args: Sequence[Any], output: Any, needed: tuple[bool, ...]) -> Rule:
    count, results = len(needed), tensors_in(output)
    seeds = tuple(k for k, t in enumerate(results) if t.dtype.is_float)

    def backward(kept: Sequence[Tensor], cotangents: Sequence[Tensor]) -> list[Tensor | None]:
        given = dict(zip(seeds, cotangents, strict=True))
        out = replace_tensors(output, iter(kept[count:]))
        dout = replace_tensors(
            output, iter([given[k] if k in given else full_like(t, 0) for k, t in enumerate(results)])
        )
        gradients = gradients_by_bprop(fn, bprop, replace_tensors(args, iter(kept[:count])), out, dout)
        return [g for g, flag in zip(gradients, needed, strict=True) if flag]

    return Rule(tuple(range(count)), tuple(range(len(results))), seeds, backward)


def gradients_by_bprop(
    fn: Function, bprop: Function, args: Sequence[Any], out: Any, dout: Any
) -> list[Tensor]:
    """Calls `bprop`; a gradient for each Tensor in `args`, of its dtype and shape."""
    given = invoke(bprop, (*args, out, dout), {}) if state.trace is not None else bprop(*args, out, dout)
    if given is None:
        raise ArgumentTypeError(f"bprop of {_owner(fn)} returned None, but must return a tuple of gradients", hint="is a return missing?")
    if len(args) == 1 and not isinstance(given, (tuple, list)):
        given = (given,)
    if not isinstance(given, (tuple, list)):
        raise ArgumentTypeError(
            f"bprop of {_owner(fn)} must return a tuple of gradients, but returned {type(given).__name__}"
        )
    given = _of_inputs(fn, args, given)
    if len(given) < len(args):
        raise NoGradientError(
            f"bprop of {_owner(fn)} must return one gradient for each of {len(args)} inputs, but returned {len(given)}"
        )
    return [
        g
        for k, (x, part) in enumerate(zip(args, given, strict=False))
        for g in _fit(f"bprop of {_owner(fn)}: gradient {k}", x, part)
    ]


def _of_inputs(fn: Function, args: Sequence[Any], given: Sequence[Any]) -> Sequence[Any]:
    """Of gradients in two parts the first one, for the inputs; the second one is for weights: a dict, tuple or list."""
    first = given[0] if given else None
    if not args or not isinstance(first, (tuple, list)):
        return given
    if isinstance(args[0], (tuple, list, dict)) and not (first and isinstance(first[0], (tuple, list, dict)) and isinstance(given[-1], dict)):
        return given  # the gradient of the first argument
    if len(given) > 1 and not isinstance(given[1], (tuple, list, dict)):
        raise ArgumentTypeError(f"bprop of {_owner(fn)}: gradients of weights must be a dict, tuple or list, but are {type(given[1]).__name__}")
    return first


def _fit(what: str, x: Any, gradient: Any) -> list[Tensor]:
    """`gradient` for the argument `x`: one for each Tensor in it."""
    if not isinstance(x, Tensor):
        tensors = tensors_in(x)
        if not tensors or gradient is None:
            return [full_like(t, 0) for t in tensors]
        parts = list(x.values() if isinstance(x, dict) else x)
        given = (
            list(gradient.values() if isinstance(gradient, dict) else gradient)
            if isinstance(gradient, (tuple, list, dict))
            else []
        )
        if len(given) != len(parts):
            raise ArgumentTypeError(f"{what} must be a {type(x).__name__} of {len(parts)}, as the input is")
        return [g for part, g_part in zip(parts, given, strict=True) for g in _fit(what, part, g_part)]
    if gradient is None:
        return [full_like(x, 0)]
    if isinstance(gradient, NUMBER_TYPES):
        number: Any = gradient
        return [full_like(x, number)]
    if not isinstance(gradient, Tensor):
        raise ArgumentTypeError(f"{what} must be a Tensor, but is {type(gradient).__name__}")
    return [cast(_fit_shape(what, x, gradient), x.dtype)]


def _fit_shape(what: str, x: Tensor, gradient: Tensor) -> Tensor:
    """A gradient of another shape, as broadcasting in `fn` brings it about: summed, or repeated."""
    small, large = sorted((x.shape, gradient.shape), key=len)
    fits = all(a == b or 1 in (a, b) for a, b in zip(reversed(small), reversed(large), strict=False))
    whole = (
        tuple(max(pair) for pair in zip((1,) * (len(large) - len(small)) + small, large, strict=True))
        if fits
        else ()
    )
    if fits and whole == gradient.shape:
        return sum_to_shape(gradient, x.shape)  # type: ignore[no-any-return]
    if fits and whole == x.shape:
        return apply1(BroadcastTo(x.shape), gradient)
    raise ShapeError(f"{what} has shape {gradient.shape}, but the input has {x.shape}")


# -- in a graph ----------------------------------------------------------------------------------------------------------
def _traced(outer: Trace, fn: Function, bprop: Function, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """One op that holds both functions as graphs."""
    everything = (*args, *kwargs.values())
    inputs = list({id(t): t for t in tensors_in(everything)}.values())
    count = len(inputs)
    forward = trace_child(outer, fn, args, kwargs, inputs)
    backward = _TracedBprop(outer, fn, bprop, everything, inputs, forward)
    outside = list(dict.fromkeys([*forward.lifted, *backward.trace.lifted]))
    own = dict(zip(forward.lifted, forward.graph.inputs[count:], strict=True))
    forward_inputs = [
        *forward.graph.inputs[:count],
        *(own[v] if v in own else Value(v.type) for v in outside),
    ]
    op = CustomGradient(
        Graph(forward.graph.name, forward_inputs, forward.graph.nodes, forward.graph.outputs),
        backward.graph(outside),
        count,
        len(tensors_in(forward.output)),
    )
    results = outer.append_values(op, [*forward.operands[:count], *map(outer.lift, outside)])
    return forward.give_back(outer, results)


@contextmanager
def _without_changes(bprop: Function) -> Iterator[None]:
    """Refuses changes of Python's state by a backward pass: whether and how often it runs is not known where it is traced.

    Raises:
        RuntimeError (ConcretizationError): a list, attribute or variable from outside changes. The call then runs as Python.
    """
    interpreter = active()
    if interpreter is None:
        yield
        return
    before = set(interpreter.born)
    with interpreter.logged() as log:
        yield
        changed = [
            place.label
            for place, _ in log.entries.values()
            if not isinstance(place, CellPlace) or id(place.cell) in before or id(place.cell) not in interpreter.born
        ]
    interpreter.logs[-1].births.update(log.births)
    if changed:
        raise ConcretizationError(
            f"{name_of(bprop)} changes {changed[0]} in the backward pass", hint="a graph cannot; return what is to be seen, or print it"
        )


class _TracedBprop:
    """`bprop` as a graph of (*inputs, *values from outside, *results, *cotangents of float outputs)."""

    def __init__(
        self,
        outer: Trace,
        fn: Function,
        bprop: Function,
        args: Sequence[Any],
        inputs: Sequence[Tensor],
        forward: TracedChild,
    ):
        self.trace = trace = Trace(f"{name_of(fn)}.bprop", outer)
        self.inputs = [trace.input(v.type, v.name) for v in forward.graph.inputs[: len(inputs)]]
        self.results = [trace.input(v.type, v.name) for v in forward.graph.outputs]
        outputs = self.results[: len(tensors_in(forward.output))]
        self.cotangents = {v: trace.input(v.type) for v in outputs if v.type.dtype.is_float}
        symbols = {id(t): Tensor.of_value(v) for t, v in zip(inputs, self.inputs, strict=True)}
        with trace.active():
            out = replace_tensors(forward.output, map(Tensor.of_value, outputs))
            given = [
                Tensor.of_value(self.cotangents[v]) if v in self.cotangents else zeros_of_type(v.type)
                for v in outputs
            ]
            dout = replace_tensors(forward.output, iter(given))
            leaves = tensors_in(args)
            with _without_changes(bprop):
                gradients = gradients_by_bprop(
                    fn, bprop, replace_tensors(args, iter([symbols[id(t)] for t in leaves])), out, dout
                )
            table: dict[int, Tensor] = {}
            for t, g in zip(leaves, gradients, strict=True):
                accumulate(table, id(t), g)
            self.gradients = [trace.read(table[id(t)]) for t in inputs if t.dtype.is_float]
        if trace.writes():
            raise NotImplementedFeatureError(
                f"bprop of {_owner(fn)} changes a Parameter or Tensor in place, which a graph cannot do there"
            )

    def graph(self, outside: Sequence[Value]) -> Graph:
        lifted = self.trace.lifted
        inputs = [
            *self.inputs,
            *(lifted[v] if v in lifted else Value(v.type) for v in outside),
            *self.results,
            *self.cotangents.values(),
        ]
        return Graph(self.trace.builder.name, inputs, self.trace.builder.nodes, self.gradients)
