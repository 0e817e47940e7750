"""Loops that keep all states of what they carry in one buffer, where they wrote the same numbers to several.

What a recurrent layer carries from step to step it often stacks, too: its outputs, and for the gradient what it was before each step. Written a row after
the other, the state before a step is one row and the state after it the next; nothing is left to copy. Enters: a `For`. Leaves: a `ForStates`, and which parts
of its results stand for those of the `For`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from graphcell.ir.graph import Graph, Node, Value
from graphcell.ir.op import Array, frozen, infer_types
from graphcell.ir.types import TensorType
from graphcell.ops.base import View
from graphcell.ops.control import For
from graphcell.ops.movement import Reshape, Slice
from graphcell.records import dataclass


@frozen
class ForStates(For):
    """A `For` that carries some values in stacks of all their states.

    Operands: (*carried, *first states, *scanned, *invariant). The body takes (index, *carried, *states, *slices, *invariant) and
    gives (*carried, *states, *ys). Results: (*carried, *stacks of trip_count + 1 states, *stacked ys). The state before iteration i
    is row i, that after it row i + 1; with `reverse` the other way round.
    """

    states: int = 0
    name = "for_states"

    @property
    def first_scanned(self) -> int:
        return self.carried + self.states

    def with_regions(self, regions: tuple[Graph, ...]) -> ForStates:
        return ForStates(regions[0], self.trip_count, self.carried, self.scanned, self.reverse, self.states)

    def infer(self, *operands: TensorType) -> tuple[TensorType, ...]:
        results = self._plain().infer(*operands)
        stacks = (t.with_shape((self.trip_count + 1, *t.shape)) for t in results[self.carried : self.first_scanned])
        return (*results[: self.carried], *stacks, *results[self.first_scanned :])

    def eval(self, *arrays: Array) -> tuple[Array, ...]:
        first, scanned, body = self.carried, self.first_scanned, self.body
        stacked = Graph(body.name, body.inputs, body.nodes, [*body.outputs[:scanned], *body.outputs[first:]])  # states are ys, too
        results = For(stacked, self.trip_count, scanned, self.scanned, self.reverse).eval(*arrays)
        count = self.states
        rows = [(y, x[None]) if self.reverse else (x[None], y) for x, y in zip(arrays[first:scanned], results[scanned : scanned + count], strict=True)]
        return (*results[:first], *map(np.concatenate, rows), *results[scanned + count :])

    def _plain(self) -> For:
        """The loop whose results are the last states."""
        return For(self.body, self.trip_count, self.first_scanned, self.scanned, self.reverse)


@dataclass(frozen=True, slots=True)
class Kept:
    """A loop in another form. `same`: results of the one that are those of the other; `views`: those that are part of one, and the views to take of it."""

    loop: Node
    same: dict[Value, Value]
    views: dict[Value, tuple[Value, tuple[View, ...]]]


def keep_states(node: Node, may_move: Callable[[Value], bool]) -> Kept | None:
    """The loop with stacks of states; None where it stacks nothing that it carries. `may_move`: whether a result need not have a buffer of its own."""
    op = node.op
    if type(op) is not For or op.trip_count < 2:
        return None
    stacked = {k: ys for k in range(op.carried) if (ys := _stacks_of(op, k)) and all(may_move(node.results[y]) for y in ys)}
    if not stacked:
        return None
    gone = {y for ys in stacked.values() for y in ys}
    plain, ys = [k for k in range(op.carried) if k not in stacked], [y for y in range(op.carried, len(node.results)) if y not in gone]
    order, rest = [*plain, *stacked], range(op.carried, len(node.operands))
    inputs, outputs = op.body.inputs, op.body.outputs
    body = Graph(op.body.name, [inputs[0], *_picked(inputs, order, 1), *inputs[1 + op.carried :]], op.body.nodes, _picked(outputs, [*order, *ys]))
    loop = ForStates(body, op.trip_count, len(plain), op.scanned, op.reverse, len(stacked))
    operands = tuple(_picked(node.operands, [*order, *rest]))
    made = Node(loop, operands, tuple(map(Value, infer_types(loop, tuple(v.type for v in operands)))), node.span)
    same = {node.results[k]: v for k, v in zip([*plain, *stacked, *ys], made.results, strict=True) if k not in stacked}
    views: dict[Value, tuple[Value, tuple[View, ...]]] = {}
    for stack, (k, copies) in zip(made.results[len(plain) :], stacked.items(), strict=False):
        shape = node.results[k].type.shape
        views[node.results[k]] = stack, (_rows(stack, 0 if op.reverse else op.trip_count, 1), Reshape(shape))
        for y in copies:
            is_after = outputs[y] is outputs[k]
            views[node.results[y]] = stack, (_rows(stack, int(is_after is not op.reverse), op.trip_count),)
    return Kept(made, same, views)


def _stacks_of(op: For, k: int) -> list[int]:
    """The outputs of the body that are what carried value `k` is before or after an iteration; none if that is not computed there for it alone."""
    before, after = op.body.inputs[1 + k], op.body.outputs[k]
    if after in op.body.inputs or op.body.outputs[: op.carried].count(after) > 1:
        return []
    return [y for y in range(op.carried, len(op.body.outputs)) if op.body.outputs[y] in (before, after)]


def _picked(values: Sequence[Value], places: Sequence[int], shift: int = 0) -> list[Value]:
    return [values[k + shift] for k in places]


def _rows(stack: Value, first: int, count: int) -> Slice:
    shape = stack.type.shape
    return Slice((first, *(0 for _ in shape[1:])), (count, *shape[1:]), (1,) * len(shape))
