"""Steps that are branches and loops: regions lowered to LLVM control flow around their own steps.

Enters: a node with regions and the frames that lower these. Leaves: code in the entry function. `ControlFlow` is what a frame of lower.py
inherits. What a loop carries lies in the buffers of the op's results. Loops among `teams` are functions of their own (team.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

from graphcell.codegen.beside import Pair
from graphcell.codegen.contractions import Contractions
from graphcell.codegen.llvm.text import I1, I8, I64, FunctionBuilder, Val, i64
from graphcell.codegen.lowering import Calls
from graphcell.codegen.prepare import Request
from graphcell.codegen.team import PairCalls, TeamCalls
from graphcell.codegen.units import Units
from graphcell.ir.graph import Graph, Node, Value
from graphcell.ir.types import TensorType
from graphcell.ops.control import For, While


class ControlFlow(Contractions):
    """The branches and loops of a frame; `inner` holds the frames of each node's regions."""

    graph: Graph
    outputs: tuple[Value, ...]
    arena_bytes: int
    inner: dict[Node, tuple[Self, ...]]
    teams: dict[Node, Units]

    def emit(self, b: FunctionBuilder, arena: Val, call: Calls) -> None:
        """Emits all steps."""
        raise NotImplementedError

    def emit_with(self, b: FunctionBuilder, unit: Any, own: Val, call: Calls) -> None:
        """Emits one step, which has the memory at `own` for itself."""
        raise NotImplementedError

    def _bind(self, frame: Self, places: Sequence[Val]) -> None:
        frame.place.update(zip(frame.graph.inputs, places, strict=True))

    def emit_if(self, b: FunctionBuilder, node: Node, own: Val, call: Calls) -> None:
        with call.read(b):
            condition = b.load(self.place_of(node.operands[0]), I1)
        call.settle(b)
        inputs = [self.place_of(v) for v in node.operands[1:]]
        results = [self.place[v] for v in node.results]

        def branch(frame: Self) -> None:
            self._bind(frame, inputs)
            frame.place.update(zip(frame.outputs, results, strict=True))
            frame.emit(b, own, call)
            call.settle(b)

        then, otherwise = self.inner[node]
        b.if_else(condition, lambda: branch(then), lambda: branch(otherwise))

    def emit_loop(self, b: FunctionBuilder, node: Node, own: Val, call: Calls) -> None:
        if node not in self.teams:
            self._emit_loop(b, node, own, call)
            return
        team = TeamCalls(self.lowering, call, self.teams[node])
        read = [*(self.info.layout(v).root for v in node.operands), *node.results]
        with self._brought(team, read, {node: own}) as owns, self.lowering.counted_by(team.is_first):
            self._emit_loop(team.b, node, owns[node], team)
        team.close(b, call)

    def _emit_loop(self, b: FunctionBuilder, node: Node, own: Val, call: Calls) -> None:
        emit = self.emit_while if isinstance(node.op, While) else self.emit_for
        emit(b, node, own, call)

    def emit_pair(self, b: FunctionBuilder, pair: Pair[Any], owns: dict[Node, Val], call: Calls) -> None:
        """Loops that need nothing of each other and what follows them, a thread each; `owns`: the memory that each step has for itself."""
        calls = PairCalls(self.lowering, call)
        read = dict.fromkeys(v for unit in pair.units for v in (*unit.reads(self.info), *unit.writes()))
        with self._brought(calls, read, owns) as brought:
            for number, side in enumerate(pair.sides):
                with calls.by(number):
                    for unit in side:
                        self.emit_with(calls.b, unit, brought[unit.key], calls)
        calls.close(b, call)

    @contextmanager
    def _brought(self, team: TeamCalls, read: Iterable[Value], owns: dict[Node, Val]) -> Iterator[dict[Node, Val]]:
        """What the code of steps reads, as it is called in a function of a team; as before afterwards."""
        places, requests = self.place, {r: r.places for node in owns for r in self._requests_of(node)}
        self.place = {v: team.bring(places[v]) for v in read}
        for request, known in requests.items():
            request.places = {name: team.bring(v) for name, v in known.items()}
        yield {node: team.bring(own) for node, own in owns.items()}
        self.place = places
        for request, known in requests.items():
            request.places = known

    def _requests_of(self, node: Node) -> Iterator[Request]:
        """The preparations that a node relies on, and the steps of its regions."""
        if node in self.requests:
            yield self.requests[node]
        for frame in self.inner.get(node, ()):
            for inner in dict.fromkeys((*frame.requests, *frame.inner)):
                yield from frame._requests_of(inner)

    def _start_carried(self, b: FunctionBuilder, node: Node, count: int, call: Calls) -> list[Val]:
        """Copies the initial carried values into the op's results, which hold the state of the loop."""
        state = [self.place[v] for v in node.results[:count]]
        for v, place in zip(node.operands[:count], state, strict=True):
            if self.place_of(v).text != place.text:
                self.copy(b, place, self.place_of(v), v.type, call)
        return state

    def _start_states(self, b: FunctionBuilder, node: Node, op: For, call: Calls) -> None:
        """Copies the initial states to the first rows of their stacks, the last ones of loops that go backwards."""
        first = op.trip_count if op.reverse else 0
        for k in range(op.carried, op.first_scanned):
            v, stack = node.operands[k], node.results[k]
            self.copy(b, b.gep(self.place[stack], first * _row_bytes(stack.type), I8), self.place_of(v), v.type, call)

    def _finish_carried(self, b: FunctionBuilder, body: Self, state: Sequence[Val], call: Calls) -> None:
        """Copies the new carried values over the old ones, where they were not written there."""
        for v, place in zip(body.outputs[: len(state)], state, strict=True):
            if v not in body.in_place:
                self.copy(b, place, body.place[v], v.type, call)

    def emit_while(self, b: FunctionBuilder, node: Node, own: Val, call: Calls) -> None:
        op = node.op
        assert isinstance(op, While)
        state = self._start_carried(b, node, op.carried, call)
        invariant = [self.place_of(v) for v in node.operands[op.carried :]]
        test, body = self.inner[node]
        second = b.gep(own, test.arena_bytes, I8)

        def condition() -> Val:
            self._bind(test, [*state, *invariant])
            test.emit(b, own, call)
            with call.read(b):
                goes_on = b.load(test.place_of(test.graph.outputs[0]), I1)
            call.settle(b)
            return goes_on

        def iterate() -> None:
            self._bind(body, [*state, *invariant])
            body.emit(b, second, call)
            self._finish_carried(b, body, state, call)
            call.settle(b)

        call.settle(b)
        b.while_loop(condition, iterate)

    def _row_of_view(self, b: FunctionBuilder, v: Value, at: Val) -> Val:
        """Where row `at` of v lies, whose rows may be any distance apart."""
        layout, size = self.info.layout(v), v.type.dtype.itemsize
        start = b.gep(self.place[layout.root], layout.offset * size, I8)
        return b.gep(start, b.mul(at, i64(layout.strides[0] * size)), I8)

    def emit_for(self, b: FunctionBuilder, node: Node, own: Val, call: Calls) -> None:
        op = node.op
        assert isinstance(op, For)
        state = self._start_carried(b, node, op.carried, call)
        self._start_states(b, node, op, call)
        scanned = node.operands[op.first_scanned : op.first_invariant]
        invariant = [self.place_of(v) for v in node.operands[op.first_invariant :]]
        (body,) = self.inner[node]
        index = b.alloca(I64)
        call.settle(b)
        with b.loop(0, op.trip_count, name="for") as loop:
            at = b.sub(i64(op.trip_count - 1), loop.index) if op.reverse else loop.index
            b.store(at, index)

            made = [b.gep(self.place[v], b.mul(at, i64(_row_bytes(v.type))), I8) for v in node.results[op.carried :]]
            stacks = node.results[op.carried : op.first_scanned]
            above = [b.gep(row, _row_bytes(v.type), I8) for v, row in zip(stacks, made, strict=False)]
            before, after = (above, made) if op.reverse else (made, [*above, *made[len(above) :]])
            rows = [self._row_of_view(b, v, at) for v in scanned]
            self._bind(body, [index, *state, *before[: len(stacks)], *rows, *invariant])
            body.place.update(zip(body.outputs[op.carried :], after, strict=True))
            body.emit(b, own, call)
            self._finish_carried(b, body, state, call)
            call.settle(b)


def _row_bytes(type: TensorType) -> int:
    """Of what is stacked, from a row to the next."""
    return type.nbytes // max(1, type.shape[0])
