"""Branches that a Tensor decides on: both are interpreted as regions of one `If`, and what they assign is
joined.

A return, break or continue inside takes the rest of the function (or of the loop body) into the branches, so
that they end alike.

A Tensor that a branch or loop makes anew is another object afterwards, even where the other branch kept the
old one: a later write into it (`y[0] = 1`) is not seen through other names of the old one.
"""

from __future__ import annotations

import ast
from collections.abc import Hashable, Sequence
from typing import Any

from graphcell.errors import BranchTypeError
from graphcell.frontend.core import Body
from graphcell.frontend.frame import Frame
from graphcell.frontend.joins import DEAD, Arm, Join, Plan, conflicting, unbound_in_one
from graphcell.frontend.places import UNBOUND, NamePlace, Never, Place, Unbound
from graphcell.frontend.signals import RAISED, Chain, Done, Signal
from graphcell.frontend.statements import Statements
from graphcell.frontend.supported import leaves
from graphcell.ir.graph import Graph, Node, Value
from graphcell.ops.control import If
from graphcell.ops.dispatch import Trace
from graphcell.ops.functional.common import select
from graphcell.ops.functional.comparison import logical_or
from graphcell.tensor import Tensor, state

_SELECTED_NODES = 12
"""Branches of so few scalar nodes are both computed, and their results selected."""


class Control(Statements):
    """Adds `if`, and the joining of branches."""

    def run_block_If(self, node: ast.If, frame: Frame, rest: Chain) -> Chain | Done:
        truth = self.condition(node.test, frame)
        if isinstance(truth, bool):
            return rest.before(node.body if truth else node.orelse)
        frame.node = node.test
        if leaves(tuple(node.body)) or leaves(tuple(node.orelse)):
            return Done(
                self.branch(
                    truth,
                    lambda: self.run(rest.before(node.body), frame),
                    lambda: self.run(rest.before(node.orelse), frame),
                )
            )
        signal = self.branch(
            truth, lambda: self.run(Chain(node.body), frame), lambda: self.run(Chain(node.orelse), frame)
        )
        return Done(signal) if signal is not None else rest

    def after(self, signal: Signal | None, rest: Chain, frame: Frame) -> Chain | Done:
        """What follows a block that ended with `signal`: the rest, nothing, or (where only the graph knows)
        either.
        """
        if signal is None:
            return rest
        if signal.is_known:
            return Done(signal)
        left: bool | Tensor = False
        for flag in signal.flags:
            if isinstance(flag, Tensor):
                left = flag if left is False else logical_or(left, flag)
        assert isinstance(left, Tensor)
        broken, continued, returned = (flag is not False for flag in signal.flags)
        ended = (
            Signal(broken, continued, returned, signal.value)
            if broken + continued + returned == 1
            else signal
        )
        return Done(self.branch(left, lambda: ended, lambda: self.run(rest, frame)))

    # -- regions -------------------------------------------------------------------------------------------
    def branch(self, condition: Tensor, then: Body, otherwise: Body) -> Signal | None:
        """Runs `then` where the condition holds, else `otherwise`, as regions of one op; gives how they end,
        joined.
        """
        outer, frame = state.trace, self.frames[-1]
        assert outer is not None
        node = frame.node
        first = self._arm("true", outer, then)
        frame.node = node
        second = self._arm("false", outer, otherwise)
        frame.node = node
        join = Join(condition, first, second)
        ends = self._join_signals(join)
        places = self._join_places(join)
        written = self._join_writes(join, outer)
        results = self._append(outer, condition, join)
        for tensor, index in written:
            outer.write(tensor, outer.read(results[index]))
        for place, plan in places:
            value = plan if isinstance(plan, Unbound) else plan.value(results)
            _name(value, place.name)
            self.assign(place, value)
        if first.is_dead and second.is_dead:
            raise Never
        return _signal(ends, results)

    def _arm(self, label: str, outer: Trace, body: Body) -> Arm:
        trace = Trace(f"{outer.builder.name}.{label}", outer)
        self.conditional += 1
        try:
            with self.logged() as log, trace.active():
                arm = Arm(label, trace, log)
                try:
                    arm.signal = body()
                except Never:
                    arm.signal = RAISED
                arm.finals = log.finals()
                arm.spans = {
                    key: self._assigned(place)
                    for key, (place, _) in log.entries.items()
                    if isinstance(place, NamePlace)
                }
        finally:
            self.conditional -= 1
        return arm

    def _assigned(self, place: NamePlace) -> Any:
        node = place.scope.spans.get(place.name)
        frame: Any = place.scope
        return frame.span() if node is None else frame.source.span(node, frame.caller)

    # -- joining -------------------------------------------------------------------------------------------
    def _join_places(self, join: Join) -> list[tuple[Place, Plan | Unbound]]:
        joined: list[tuple[Place, Plan | Unbound]] = []
        then, otherwise = join.then, join.otherwise
        for key, (place, old) in (then.log.entries | otherwise.log.entries).items():
            a, b = _end_value(then, key, place, old), _end_value(otherwise, key, place, old)
            plan = self._join_place(join, key, place, a, b)
            if plan is not None:
                joined.append((place, plan))
        return joined

    def _join_place(self, join: Join, key: Hashable, place: Place, a: Any, b: Any) -> Plan | Unbound | None:
        then, otherwise = join.then, join.otherwise
        for value, other, here, there in ((a, b, then, otherwise), (b, a, otherwise, then)):
            if isinstance(value, Unbound):
                if other is DEAD or isinstance(other, Unbound):
                    return value
                return unbound_in_one(place.name, here.label, there.label) if value is UNBOUND else value
        try:
            return join.merge(a, b, place.label)
        except BranchTypeError as error:
            if isinstance(place, NamePlace):
                return conflicting(place.name, error, then, otherwise, key)
            raise

    def _join_writes(self, join: Join, outer: Trace) -> list[tuple[Tensor, int]]:
        written: dict[int, Tensor] = {}
        for arm in (join.then, join.otherwise):
            for tensor, _ in arm.trace.writes():
                if id(tensor) not in arm.log.births and (
                    tensor._value is None or tensor._value not in arm.trace.own
                ):
                    written[id(tensor)] = tensor
        result = []
        for tensor in written.values():
            values = []
            for arm in (join.then, join.otherwise):
                with arm.trace.active():
                    values.append(arm.trace.read(tensor))
            result.append((tensor, join.add(values[0], values[1])))
        return result

    def _join_signals(self, join: Join) -> tuple[Plan | None, ...]:
        """The flags and the value of the joined signal, as plans."""
        a, b = join.then.signal or Signal(), join.otherwise.signal or Signal()
        plans = [
            join.merge(DEAD if a.raised else x, DEAD if b.raised else y, "the way out")
            for x, y in zip(a.flags, b.flags, strict=True)
        ]
        has_value = a.returned is not False or b.returned is not False
        x = DEAD if a.raised or (has_value and a.returned is False) else a.value
        y = DEAD if b.raised or (has_value and b.returned is False) else b.value
        return (*plans, join.merge(x, y, "what is returned" if has_value else "the value"))

    # -- the op --------------------------------------------------------------------------------------------
    def _append(self, outer: Trace, condition: Tensor, join: Join) -> list[Tensor]:
        arms = (join.then, join.otherwise)
        nodes: list[Node] = [n for arm in arms for n in arm.trace.builder.nodes]
        has_effect = any(n.op.has_effect or any(g.has_effect() for g in n.op.regions) for n in nodes)
        if not join.pairs and not has_effect:
            return []
        outside = list(dict.fromkeys([*join.then.trace.lifted, *join.otherwise.trace.lifted]))
        then = region(join.then.trace, outside, [a for a, _ in join.pairs])
        otherwise = region(join.otherwise.trace, outside, [b for _, b in join.pairs])
        operands = [outer.lift(v) for v in outside]
        if not has_effect and _is_cheap(nodes, join.pairs):
            left, right = outer.inline(then, operands), outer.inline(otherwise, operands)
            return [
                select(condition, Tensor.of_value(x), Tensor.of_value(y))
                for x, y in zip(left, right, strict=True)
            ]
        return list(
            map(Tensor.of_value, outer.append_values(If(then, otherwise), [outer.read(condition), *operands]))
        )


def region(
    trace: Trace, outside: Sequence[Value], outputs: Sequence[Value], explicit: Sequence[Value] = ()
) -> Graph:
    """The graph of a region whose inputs are `explicit`, then those that stand for the values `outside`."""
    values = [trace.lift(v) for v in outputs]
    inputs = [*explicit, *(trace.lifted[v] if v in trace.lifted else Value(v.type, v.name) for v in outside)]
    return Graph(trace.builder.name, inputs, trace.builder.nodes, values)


def _is_cheap(nodes: Sequence[Node], pairs: Sequence[tuple[Value, Value]]) -> bool:
    if not nodes:
        return True
    small = all(not v.type.shape for n in nodes for v in (*n.results, *n.operands)) and all(
        not a.type.shape for a, _ in pairs
    )
    return small and len(nodes) <= _SELECTED_NODES and not any(n.op.regions for n in nodes)


def _end_value(arm: Arm, key: Hashable, place: Place, old: Any) -> Any:
    if arm.is_dead or (arm.returns and isinstance(place, NamePlace)):
        return DEAD
    return arm.final(key, old)


def _signal(plans: Sequence[Plan | None], results: Sequence[Tensor]) -> Signal | None:
    broken, continued, returned, value = (False if plan is None else plan.value(results) for plan in plans)
    signal = Signal(broken, continued, returned, None if plans[3] is None else value)
    return None if signal.is_known and not any(signal.flags) and signal.value is None else signal


def _name(value: Any, name: str) -> None:
    if type(value) is Tensor and value._value is not None and not value._value.name:
        value._value.name = name
