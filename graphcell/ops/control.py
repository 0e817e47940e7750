"""Primitives that hold graphs: branches, loops, calls, and functions with a gradient of their own.

Regions see nothing but their own inputs, so each op lists what its regions need as operands. The gradient of such an op is not a rule
on its operands and results: the forward op must also leave behind what the backward op needs. `RegionOp.linearize` gives both.
"""


from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from graphcell import dtype as dt
from graphcell.errors import ArityError, BranchTypeError, DTypeError, NoGradientError, ShapeError
from graphcell.ir.evaluate import evaluate_graph
from graphcell.ir.graph import Builder, Graph, Value
from graphcell.ir.op import Array, Op, frozen, region
from graphcell.ir.types import TensorType
from graphcell.ops.creation import Full, number_of
from graphcell.records import dataclass
from graphcell.tensor import Tensor

if TYPE_CHECKING:
    from graphcell.passes.autodiff import Split

Mask = tuple[bool, ...]


@dataclass(frozen=True)
class Linearized:
    """A region op made ready for reverse mode.

    `forward` takes the op's operands and gives (*results, *residuals). `backward` takes (*operands[k] for k in `operands`,
    *results[k] for k in `results`, *residuals, *cotangents of the seeded results) and gives the gradients of the needed operands.
    """

    forward: Op
    backward: Op
    operands: tuple[int, ...]
    results: tuple[int, ...]


class RegionOp(Op):
    """An op that holds graphs."""

    @property
    def eval_steps(self) -> int:
        """How often `eval` goes through the longest of its graphs, as far as is known."""
        return 1

    def eval_nanoseconds(self, operands: Sequence[TensorType], results: Sequence[TensorType]) -> float:
        longest = max((sum(node.eval_nanoseconds for node in graph.nodes) for graph in self.regions), default=0.0)
        return super().eval_nanoseconds(operands, results) + self.eval_steps * longest

    def active_results(self, active: Mask) -> Mask:
        """Which results depend differentiably on the operands flagged in `active`."""
        raise NotImplementedError(f"{self.name}.active_results")

    def linearize(self, needed: Mask, seeds: Mask) -> Linearized:
        """Forward and backward op for gradients of the operands flagged `needed` from cotangents of the results flagged `seeds`.

        Raises:
            NoGradientError: if an op in a region has no gradient, or the op itself has none.
        """
        raise NoGradientError(
            f"{self.name} has no gradient", hint="cut it off with ops.stop_gradient if none is meant to flow"
        )

    @property
    def inlined(self) -> Graph | None:
        """The graph that may stand in place of this op (its inputs are the operands), or None."""
        return None


@frozen
class If(RegionOp):
    """Runs `then_graph` where the condition holds, else `else_graph`.

    Operands: (condition: Bool scalar, *inputs); both graphs take the inputs and give the same result types.

    Gradient: either branch leaves its residuals. Both must give one list of types, so residuals of equal type share a slot and what is
    left over is filled with zeros in the other branch: that costs the writing of zeros, where recomputing would cost the branch again.
    """

    then_graph: Graph = region()
    else_graph: Graph = region()
    name = "if"

    @property
    def regions(self) -> tuple[Graph, ...]:
        return (self.then_graph, self.else_graph)

    def with_regions(self, regions: tuple[Graph, ...]) -> If:
        then, other = regions
        return If(then, other)

    def infer(self, condition: TensorType, *inputs: TensorType) -> tuple[TensorType, ...]:  # type: ignore[override]
        _check_condition("if", condition)
        _check_inputs("if", "branch", self.then_graph, inputs)
        _check_inputs("if", "else branch", self.else_graph, inputs)
        then, other = self.then_graph.output_types, self.else_graph.output_types
        if then != other:
            raise BranchTypeError(f"if: the branches give different types, {_list(then)} and {_list(other)}")
        return then

    def eval(self, condition: Array, *inputs: Array) -> tuple[Array, ...]:  # type: ignore[override]
        return evaluate_graph(self.then_graph if condition else self.else_graph, inputs)

    def active_results(self, active: Mask) -> Mask:
        from graphcell.passes.autodiff import active_outputs

        sides = [active_outputs(g, active[1:]) for g in self.regions]
        return tuple(a or b for a, b in zip(*sides, strict=True))

    def linearize(self, needed: Mask, seeds: Mask) -> Linearized:
        from graphcell.passes.autodiff import split_vjp

        wrt = [k - 1 for k, n in enumerate(needed) if n]
        splits = [split_vjp(g, wrt, positions(seeds)) for g in self.regions]
        inputs = tuple(sorted({k for s in splits for k in s.inputs}))
        outputs = tuple(sorted({k for s in splits for k in s.outputs}))
        slots, places = _share_slots([s.residual_types for s in splits])
        forward = If(*(_leave_residuals(s, slots, p) for s, p in zip(splits, places, strict=True)))
        backward = If(
            *(
                _take_residuals(s, g, inputs, outputs, slots, p)
                for s, g, p in zip(splits, self.regions, places, strict=True)
            )
        )
        return Linearized(forward, backward, (0, *(k + 1 for k in inputs)), outputs)


@frozen
class While(RegionOp):
    """Repeats `body_graph` while `cond_graph` holds.

    Operands: (*carried, *invariant), `carried` of the first kind; cond -> (Bool scalar,), body -> new carried. Results: carried.

    Gradient: see ops/while_gradient.py; a loop back over saved steps, in bounded memory.
    """

    cond_graph: Graph = region()
    body_graph: Graph = region()
    carried: int = 0
    name = "while"

    @property
    def regions(self) -> tuple[Graph, ...]:
        return (self.cond_graph, self.body_graph)

    def with_regions(self, regions: tuple[Graph, ...]) -> While:
        condition, body = regions
        return While(condition, body, self.carried)

    def infer(self, *operands: TensorType) -> tuple[TensorType, ...]:
        _check_inputs("while", "condition", self.cond_graph, operands)
        _check_inputs("while", "body", self.body_graph, operands)
        if len(self.cond_graph.outputs) != 1:
            raise ArityError(
                f"while: the condition gives {len(self.cond_graph.outputs)} values instead of one"
            )
        _check_condition("while", self.cond_graph.outputs[0].type)
        _check_carried("while", operands[: self.carried], self.body_graph.output_types)
        return tuple(operands[: self.carried])

    def eval(self, *arrays: Array) -> tuple[Array, ...]:
        carried, invariant = tuple(arrays[: self.carried]), tuple(arrays[self.carried :])
        while evaluate_graph(self.cond_graph, carried + invariant)[0]:
            carried = evaluate_graph(self.body_graph, carried + invariant)
        return carried

    def active_results(self, active: Mask) -> Mask:
        return _loop_activity(self.body_graph, active[: self.carried], active[self.carried :], 0)

    def linearize(self, needed: Mask, seeds: Mask) -> Linearized:
        from graphcell.ops.while_gradient import linearize_while

        return linearize_while(self, needed, seeds)


@frozen
class For(RegionOp):
    """Repeats `body` `trip_count` times.

    Operands: (*carried, *scanned xs of leading extent `trip_count`, *invariant). The body takes (index: int64 scalar, *carried,
    *slices of xs, *invariant) and gives (*carried, *ys). Results: (*carried, *stacked ys). With `reverse` the index runs from
    trip_count - 1 down to 0; ys are stored at their index.

    Gradient: a For in the other direction. Carried are the cotangents of carried values and the sums of the gradients of invariants;
    scanned are xs, stacked residuals and cotangents of ys; its ys are the gradients of xs.
    """

    body: Graph = region()
    trip_count: int = 0
    carried: int = 0
    scanned: int = 0
    reverse: bool = False
    name = "for"

    @property
    def first_scanned(self) -> int:
        """The position of the first operand that is handed over row by row."""
        return self.carried

    @property
    def first_invariant(self) -> int:
        """The position of the first operand that every iteration gets as it is."""
        return self.first_scanned + self.scanned

    @property
    def regions(self) -> tuple[Graph, ...]:
        return (self.body,)

    def with_regions(self, regions: tuple[Graph, ...]) -> For:
        return For(regions[0], self.trip_count, self.carried, self.scanned, self.reverse)

    def infer(self, *operands: TensorType) -> tuple[TensorType, ...]:
        if self.trip_count < 0:
            raise ShapeError(f"for: the trip count {self.trip_count} is negative")
        first, last = self.carried, self.carried + self.scanned
        if len(operands) < last:
            raise ArityError(f"for: {last} operands are carried or scanned, but there are {len(operands)}")
        for k, t in enumerate(operands[first:last]):
            if not t.shape or t.shape[0] != self.trip_count:
                raise ShapeError(
                    f"for: scanned operand {k} has shape {t.shape}; its leading extent must be {self.trip_count}"
                )
        slices = (t.with_shape(t.shape[1:]) for t in operands[first:last])
        _check_inputs(
            "for", "body", self.body, (TensorType(dt.int64, ()), *operands[:first], *slices, *operands[last:])
        )
        outputs = self.body.output_types
        _check_carried("for", operands[:first], outputs[:first])
        return (*operands[:first], *(_stacked(self.trip_count, t) for t in outputs[first:]))

    def eval(self, *arrays: Array) -> tuple[Array, ...]:
        first, last = self.carried, self.carried + self.scanned
        carried, xs, invariant = tuple(arrays[:first]), arrays[first:last], tuple(arrays[last:])
        ys = [np.empty((self.trip_count, *t.shape), t.dtype.np_type) for t in self.body.output_types[first:]]
        for k in range(self.trip_count):
            i = self.trip_count - 1 - k if self.reverse else k
            outputs = evaluate_graph(
                self.body, (np.asarray(i, np.int64), *carried, *(x[i, ...] for x in xs), *invariant)
            )
            carried = outputs[:first]
            for y, value in zip(ys, outputs[first:], strict=True):
                y[i] = value
        return (*carried, *ys)

    @property
    def eval_steps(self) -> int:
        return self.trip_count

    def active_results(self, active: Mask) -> Mask:
        from graphcell.passes.autodiff import active_outputs

        carried = _loop_activity(self.body, active[: self.carried], active[self.carried :], 1)
        return (
            *carried,
            *active_outputs(self.body, (False, *carried, *active[self.carried :]))[self.carried :],
        )

    def linearize(self, needed: Mask, seeds: Mask) -> Linearized:
        from graphcell.ops.loop_gradient import linearize_for

        return linearize_for(self, needed, seeds)


Runner = Callable[[Graph, Sequence[Tensor]], tuple[Tensor, ...]]


def _evaluate(graph: Graph, operands: Sequence[Tensor]) -> tuple[Tensor, ...]:
    return tuple(map(Tensor.of_array, evaluate_graph(graph, [t.array() for t in operands])))


@frozen
class GraphCall(RegionOp):
    """A compiled graph as one op: operands are the graph's inputs, results its outputs."""

    graph: Graph = region()
    name = "call"
    runner: ClassVar[Runner] = staticmethod(_evaluate)
    """How a graph is run; the runtime puts the compiler here."""

    @property
    def regions(self) -> tuple[Graph, ...]:
        return (self.graph,)

    def with_regions(self, regions: tuple[Graph, ...]) -> GraphCall:
        return GraphCall(*regions)

    @property
    def inlined(self) -> Graph:
        return self.graph

    def infer(self, *operands: TensorType) -> tuple[TensorType, ...]:
        _check_inputs("call", f"graph {self.graph.name}", self.graph, operands)
        return self.graph.output_types

    def eval(self, *arrays: Array) -> tuple[Array, ...]:
        return tuple(t.array() for t in type(self).runner(self.graph, [Tensor.of_array(a) for a in arrays]))

    def active_results(self, active: Mask) -> Mask:
        from graphcell.passes.autodiff import active_outputs

        return active_outputs(self.graph, active)

    def linearize(self, needed: Mask, seeds: Mask) -> Linearized:
        from graphcell.passes.autodiff import split_vjp

        split = split_vjp(self.graph, positions(needed), positions(seeds))
        return Linearized(GraphCall(split.forward), GraphCall(split.backward), split.inputs, split.outputs)


@frozen
class Recomputed(GraphCall):
    """A call of a graph of which nothing is kept for gradients but its operands and, unless `outputs`, its results: all the rest is
    computed again (`Cell.recompute`). Without gradients it is its graph.
    """

    outputs: bool = False
    name = "recomputed"

    def with_regions(self, regions: tuple[Graph, ...]) -> Recomputed:
        (graph,) = regions
        return Recomputed(graph, self.outputs)


@frozen
class CustomGradient(RegionOp):
    """A graph whose gradient the user gives (`bprop`).

    `forward` takes the operands and gives the results. `backward` takes (*operands, *results, *cotangents of the first `outputs`
    results that are float) and gives one gradient for each float operand among the first `inputs`. The operands after these are what
    the two graphs read from outside; no gradient flows to them.
    """

    forward: Graph = region()
    backward: Graph = region()
    inputs: int = 0
    outputs: int = 0
    name = "custom_gradient"

    @property
    def regions(self) -> tuple[Graph, ...]:
        return (self.forward, self.backward)

    def with_regions(self, regions: tuple[Graph, ...]) -> CustomGradient:
        forward, backward = regions
        return CustomGradient(forward, backward, self.inputs, self.outputs)

    @property
    def inlined(self) -> Graph:
        return self.forward

    def infer(self, *operands: TensorType) -> tuple[TensorType, ...]:
        results = self.forward.output_types
        _check_inputs("custom_gradient", "function", self.forward, operands)
        cotangents = [t for t in results[: self.outputs] if t.dtype.is_float]
        _check_inputs("custom_gradient", "bprop", self.backward, (*operands, *results, *cotangents))
        wanted = tuple(t for t in operands[: self.inputs] if t.dtype.is_float)
        if self.backward.output_types != wanted:
            raise ShapeError(
                f"custom_gradient: bprop gives {_list(self.backward.output_types)} for inputs {_list(wanted)}"
            )
        return results

    def eval(self, *arrays: Array) -> tuple[Array, ...]:
        return evaluate_graph(self.forward, arrays)

    def active_results(self, active: Mask) -> Mask:
        flag = any(active[: self.inputs])
        return tuple(
            flag and k < self.outputs and v.type.dtype.is_float for k, v in enumerate(self.forward.outputs)
        )

    def linearize(self, needed: Mask, seeds: Mask) -> Linearized:
        b = Builder(f"{self.forward.name}.bprop")
        operands = [b.input(v.type, v.name) for v in self.forward.inputs]
        results = [b.input(v.type, v.name) for v in self.forward.outputs]
        cotangents = []
        for v, seeded in zip(self.forward.outputs[: self.outputs], seeds, strict=False):
            if v.type.dtype.is_float:
                cotangents.append(b.input(v.type) if seeded else zeros(b, v.type))
        gradients = iter(b.inline(self.backward, [*operands, *results, *cotangents]))
        table = {k: next(gradients) for k, v in enumerate(operands[: self.inputs]) if v.type.dtype.is_float}
        chosen = [table[k] if k in table else zeros(b, operands[k].type) for k in positions(needed)]
        everything = tuple(range(len(operands)))
        return Linearized(self, GraphCall(b.finish(chosen)), everything, tuple(range(len(results))))  # itself: for gradients of higher order


# -- small helpers -------------------------------------------------------------------------------------------------------
def positions(mask: Sequence[bool]) -> list[int]:
    """The places that are flagged."""
    return [k for k, flag in enumerate(mask) if flag]


def zeros(b: Builder, type: TensorType) -> Value:
    """Zeros of `type` in the graph under construction."""
    return b.append(Full(number_of(0, type.dtype), type.shape, type.dtype), ())[0]


def _stacked(count: int, type: TensorType) -> TensorType:
    return type.with_shape((count, *type.shape))


def _list(types: Sequence[TensorType]) -> str:
    return f"({', '.join(map(str, types))})"


def _check_condition(name: str, type: TensorType) -> None:
    if not type.dtype.is_bool:
        raise DTypeError(f"{name}: the condition must be Bool, but is {type.dtype}")
    if type.shape:
        raise ShapeError(
            f"{name}: the condition must be a scalar, but has shape {type.shape}", hint="use .any() or .all()"
        )


def _check_inputs(name: str, what: str, graph: Graph, types: Sequence[TensorType]) -> None:
    if len(graph.inputs) != len(types):
        raise ArityError(f"{name}: the {what} takes {len(graph.inputs)} values, but gets {len(types)}")
    if graph.input_types != tuple(types):
        raise BranchTypeError(f"{name}: the {what} takes {_list(graph.input_types)}, but gets {_list(types)}")


def _check_carried(name: str, before: Sequence[TensorType], after: Sequence[TensorType]) -> None:
    if len(before) != len(after):
        raise ArityError(f"{name}: {len(before)} values are carried, but the body gives {len(after)}")
    if tuple(before) != tuple(after):
        raise BranchTypeError(
            f"{name}: a carried value changes its type in the body, from {_list(before)} to {_list(after)}"
        )


def _loop_activity(body: Graph, carried: Mask, others: Mask, lead: int) -> Mask:
    """Which carried values are active in some iteration, given which are at first. `lead` inputs stand before them (the index)."""
    from graphcell.passes.autodiff import active_outputs

    while True:
        after = active_outputs(body, (*(False,) * lead, *carried, *others))[: len(carried)]
        grown = tuple(a or b for a, b in zip(carried, after, strict=True))
        if grown == carried:
            return carried
        carried = grown


def _share_slots(lists: Sequence[Sequence[TensorType]]) -> tuple[list[TensorType], list[list[int]]]:
    """One list of types in which each of `lists` finds its members, each at a place of its own; and those places."""
    slots: list[TensorType] = []
    places: list[list[int]] = []
    for types in lists:
        free = list(range(len(slots)))
        mine: list[int] = []
        for t in types:
            place = next((k for k in free if slots[k] == t), None)
            if place is None:
                place = len(slots)
                slots.append(t)
            else:
                free.remove(place)
            mine.append(place)
        places.append(mine)
    return slots, places


def _leave_residuals(split: Split, slots: Sequence[TensorType], places: Sequence[int]) -> Graph:
    """The forward branch with its residuals put into `slots`; the others are zeros."""
    b = Builder(split.forward.name)
    results = b.inline(split.forward, [b.input(v.type, v.name) for v in split.forward.inputs])
    count = len(results) - len(places)
    mine = dict(zip(places, results[count:], strict=True))
    return b.finish([*results[:count], *(mine[k] if k in mine else zeros(b, t) for k, t in enumerate(slots))])


def _take_residuals(
    split: Split,
    branch: Graph,
    inputs: Sequence[int],
    outputs: Sequence[int],
    slots: Sequence[TensorType],
    places: Sequence[int],
) -> Graph:
    """The backward branch as a graph of (*inputs, *outputs, *slots, *cotangents), of which it uses its own."""
    b = Builder(split.backward.name)
    ins = {k: b.input(branch.inputs[k].type, branch.inputs[k].name) for k in inputs}
    outs = {k: b.input(branch.outputs[k].type) for k in outputs}
    held = [b.input(t) for t in slots]
    cotangents = [b.input(v.type) for v in split.cotangents]
    own: list[Any] = [
        *(ins[k] for k in split.inputs),
        *(outs[k] for k in split.outputs),
        *(held[k] for k in places),
        *cotangents,
    ]
    return b.finish(b.inline(split.backward, own))
