"""Steps that are branches and loops: regions lowered to LLVM control flow around their own steps.

Enters: a node with regions and the frames that lower these. Leaves: code in the entry function. `ControlFlow` is what a frame of lower.py
inherits. What a loop carries lies in the buffers of the op's results.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from graphcell.codegen.linear_algebra import LinearAlgebra
from graphcell.codegen.llvm.text import I1, I8, I64, FunctionBuilder, Val, i64
from graphcell.codegen.lowering import Calls
from graphcell.ir.graph import Graph, Node, Value
from graphcell.ir.types import TensorType
from graphcell.ops.control import For, While


class ControlFlow(LinearAlgebra):
    """The branches and loops of a frame; `inner` holds the frames of each node's regions."""

    graph: Graph
    outputs: tuple[Value, ...]
    in_place: dict[Value, Value]
    arena_bytes: int
    inner: dict[Node, tuple[Self, ...]]

    def emit(self, b: FunctionBuilder, arena: Val, call: Calls) -> None:
        """Emits all steps."""
        raise NotImplementedError

    def _bind(self, frame: Self, places: Sequence[Val]) -> None:
        frame.place.update(zip(frame.graph.inputs, places, strict=True))

    def emit_if(self, b: FunctionBuilder, node: Node, own: Val, call: Calls) -> None:
        condition = b.load(self.place_of(node.operands[0]), I1)
        inputs = [self.place_of(v) for v in node.operands[1:]]
        results = [self.place[v] for v in node.results]

        def branch(frame: Self) -> None:
            self._bind(frame, inputs)
            frame.place.update(zip(frame.outputs, results, strict=True))
            frame.emit(b, own, call)

        then, otherwise = self.inner[node]
        b.if_else(condition, lambda: branch(then), lambda: branch(otherwise))

    def _start_carried(self, b: FunctionBuilder, node: Node, count: int) -> list[Val]:
        """Copies the initial carried values into the op's results, which hold the state of the loop."""
        state = [self.place[v] for v in node.results[:count]]
        for v, place in zip(node.operands[:count], state, strict=True):
            if self.place_of(v).text != place.text:
                self.copy(b, place, self.place_of(v), v.type)
        return state

    def _finish_carried(self, b: FunctionBuilder, body: Self, state: Sequence[Val]) -> None:
        """Copies the new carried values over the old ones, where they were not written there."""
        for v, place in zip(body.outputs[: len(state)], state, strict=True):
            if v not in body.in_place:
                self.copy(b, place, body.place[v], v.type)

    def emit_while(self, b: FunctionBuilder, node: Node, own: Val, call: Calls) -> None:
        op = node.op
        assert isinstance(op, While)
        state = self._start_carried(b, node, op.carried)
        invariant = [self.place_of(v) for v in node.operands[op.carried :]]
        test, body = self.inner[node]
        second = b.gep(own, test.arena_bytes, I8)

        def condition() -> Val:
            self._bind(test, [*state, *invariant])
            test.emit(b, own, call)
            return b.load(test.place_of(test.graph.outputs[0]), I1)

        def iterate() -> None:
            self._bind(body, [*state, *invariant])
            body.emit(b, second, call)
            self._finish_carried(b, body, state)

        b.while_loop(condition, iterate)

    def _row_of_view(self, b: FunctionBuilder, v: Value, at: Val) -> Val:
        """Where row `at` of v lies, whose rows may be any distance apart."""
        layout, size = self.info.layout(v), v.type.dtype.itemsize
        start = b.gep(self.place[layout.root], layout.offset * size, I8)
        return b.gep(start, b.mul(at, i64(layout.strides[0] * size)), I8)

    def emit_for(self, b: FunctionBuilder, node: Node, own: Val, call: Calls) -> None:
        op = node.op
        assert isinstance(op, For)
        state = self._start_carried(b, node, op.carried)
        scanned = node.operands[op.carried : op.carried + op.scanned]
        invariant = [self.place_of(v) for v in node.operands[op.carried + op.scanned :]]
        (body,) = self.inner[node]
        index = b.alloca(I64)
        with b.loop(0, op.trip_count, name="for") as loop:
            at = b.sub(i64(op.trip_count - 1), loop.index) if op.reverse else loop.index
            b.store(at, index)

            def row_of_result(place: Val, type: TensorType) -> Val:
                return b.gep(place, b.mul(at, i64(type.nbytes // max(1, type.shape[0]))), I8)

            rows = [self._row_of_view(b, v, at) for v in scanned]
            self._bind(body, [index, *state, *rows, *invariant])
            stacked = node.results[op.carried :]
            for v, result in zip(body.outputs[op.carried :], stacked, strict=True):
                body.place[v] = row_of_result(self.place[result], result.type)
            body.emit(b, own, call)
            self._finish_carried(b, body, state)
