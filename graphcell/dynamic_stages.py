"""Calls for any number of rows of functions whose rows meet: losses, batch statistics, whole training steps.

Enters: a compiled function that dynamic.py found not to treat rows apart. Leaves: plans as there, that run the function in stages
(passes/row_stages.py): parts without rows are compiled once, parts with rows for blocks of a few sizes. Where a single block has all rows, the whole
function is compiled for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from graphcell.dynamic import Held, Known, Plan, Trace, random_state, set_random_state
from graphcell.frontend.tracing import Traced
from graphcell.ir.graph import Value
from graphcell.ir.types import TensorType
from graphcell.ops.creation import Full
from graphcell.ops.loop_sums import always_stacked
from graphcell.passes.row_stages import SPAN, Part, RowPart, Stages, Staging, WholePart, number_type, prepared, rows_graph, whole_graph
from graphcell.passes.row_wise import NotRowWise, work_of
from graphcell.records import dataclass
from graphcell.runtime.block_sizes import Pieces, exact_plan, sizes_in_stages
from graphcell.tensor import Tensor

if TYPE_CHECKING:  # as in jit.py
    from graphcell.runtime.binding import Binding
    from graphcell.runtime.blocks import Block, BlockPlan, Blocks
    from graphcell.runtime.stages import Staged


@dataclass(frozen=True)
class _Kind:
    """Of blocks: so many rows, and whether there is no other block in a call."""

    size: int
    is_only: bool


class KnownInStages(Known):
    """What was found out about a function, done in stages, for arguments of one kind."""

    reference = 251  # near to the blocks, as what is kept for a gradient may depend on how much it is
    _others = (8, 64)
    """So many rows show what the rows of `reference` are; the second, where the function does not do the same for the first."""

    def __init__(self, *args: Any):
        super().__init__(*args)
        self._stages: Stages | None = None
        self._stagings: dict[int, Staging] = {}
        self._row_parts: dict[Part, Blocks] = {}
        self._whole_parts: dict[Part, Binding] = {}
        self._block_numbers: dict[_Kind, dict[RowPart, int]] = {}
        self._captured: list[Tensor] = []
        self._places: _Places | None = None
        self._native: dict[bool, Staged] = {}

    # -- what Known asks ----------------------------------------------------------------------------------------------------------------
    def _compare(self, rows: int, trace: Trace) -> None:
        if rows == self.reference and self._stages is None and not self._is_usable(self._others[0], trace):
            super()._compare(self._others[1], trace)
        if rows != self.reference and rows not in self._stagings:
            self._read.pop(rows, None)  # the comparison was let go of
        super()._compare(rows, trace)
        if rows == self.reference:
            self._stagings[rows] = next(iter(self._stagings.values())).of_itself()

    def _cover(self, rows: int) -> Pieces:
        return exact_plan(rows, self._usable)

    def _refer(self, reference: Traced) -> None:
        self._graph = prepared(reference.graph)
        self._captured = reference.captured

    def _match(self, rows: int, reference: Traced, traced: Traced) -> None:
        if traced.updates != reference.updates:
            raise NotRowWise("what is written depends on the number of rows")
        axes = [*self.inputs, *[None] * len(reference.captured)]
        staging = Staging(self._graph, prepared(traced.graph), axes, (self.reference, rows))
        if self._stages is None:
            self._stages = Stages(staging, len(self.inputs), reference.updates)
            work, _ = work_of(self._graph, self.reference)
            weights = sum(v.type.size for v in self._graph.inputs[len(self.inputs) :])
            self._usable = sizes_in_stages(work, weights, all(added.may_skip for added in staging.sums.values()))
        if staging.numbers.keys() != self._stages.numbers:
            raise NotRowWise("numbers depend on the number of rows in more than one way")
        self._stagings[rows] = staging

    def _forget(self, rows: int) -> None:
        super()._forget(rows)
        self._stagings.pop(rows, None)

    def _compile_pieces(self, pieces: Pieces, arguments: Callable[[int], list[Any]]) -> bool:
        for size in {size for _, size in pieces}:
            self._make(_Kind(size, self._is_only(pieces)))
        return True

    def _compile(self, size: int, arguments: Callable[[int], list[Any]]) -> bool:
        for is_only in (True, False) if self._usable.may_exceed else (False,):
            if is_only or self._usable.is_one_of_several(size):
                self._make(_Kind(size, is_only))
        return True

    def _is_only(self, pieces: Pieces) -> bool:
        """Whether one block does all."""
        return self._usable.may_exceed and len(pieces) == 1

    def _make(self, kind: _Kind) -> None:
        """Makes the blocks of a kind, if there are none yet."""
        if kind in self._block_numbers:
            return
        blocks: dict[RowPart, Block] = {}
        for k, part in enumerate(self._parts(kind.is_only)):
            if isinstance(part, RowPart):
                blocks[part] = self._compile_rows(part, kind.size, self._name if kind.is_only else f"{self._name}_part_{k}")
            elif part not in self._whole_parts:
                self._whole_parts[part] = self._compile_whole(part, f"{self._name}_part_{k}")
        self._block_numbers[kind] = {part: self._row_parts[part].add(block) for part, block in blocks.items()}

    def _bound(self, rows: int, pieces: Pieces, read: Sequence[Held]) -> Plan:
        from graphcell.runtime.stages import StagedBinding, Step

        held, staging, is_only = self._read[rows], self._stagings[rows], self._is_only(pieces)
        places, staged = self._known_places, self._bound_parts(is_only)
        steps = []
        for k, part in enumerate(self._parts(is_only)):
            types = self._given_types(part, staging)
            plan = self._blocks_of(part, rows, pieces) if isinstance(part, RowPart) else None
            steps.append(Step(k, plan, tuple(places.reads(part)), tuple(zip(places.gives(part), types, strict=True))))
        results = [(places.of(v), staging.twin[v].type) for v in self._known_stages.results]
        kinds = {_Kind(size, is_only) for _, size in pieces}
        binding = StagedBinding(staged, steps, places.inputs, places.given(staging), results, kinds)
        if rows not in self._usable.rows:
            del self._stagings[rows]  # which holds two graphs
        read = [held, *(other for other in read if other is not held)]
        remark = ", in one part: a single block has all rows" if is_only else f", in {len(steps)} parts: rows meet in sums"
        return Plan(read, "", binding, held.result.builder(), max(size for _, size in pieces), binding.nbytes, remark=remark)

    def _traced(self, arguments: list[Any]) -> Traced:
        drawn = random_state()  # each graph has the numbers that Python's libraries give first
        try:
            with always_stacked():
                return super()._traced(arguments)
        finally:
            set_random_state(drawn)

    # -- parts --------------------------------------------------------------------------------------------------------------------------
    @property
    def _known_stages(self) -> Stages:
        assert self._stages is not None
        return self._stages

    @property
    def _known_places(self) -> _Places:
        if self._places is None:
            self._places = _Places(self._known_stages, self._captured)
        return self._places

    def _bound_parts(self, is_only: bool) -> Staged:
        """All parts, bound to native code."""
        from graphcell.runtime import stages as native

        if is_only not in self._native:
            parts = [
                self._row_parts[part] if isinstance(part, RowPart) else native.BoundGraph(self._whole_parts[part]) for part in self._parts(is_only)
            ]
            places, results = self._known_places, self._known_stages.results
            self._native[is_only] = native.Staged(parts, self._known_stages.leaves, places.returned, len(results), len(places))
        return self._native[is_only]

    def _parts(self, is_only: bool) -> list[Part]:
        """Of calls with a single block, and of others."""
        return [self._known_stages.together] if is_only else self._known_stages.parts

    @property
    def _name(self) -> str:
        return self._graph.name

    def _bind(self, part: Part, leaves: int, graph: Any, updates: tuple[tuple[int, int], ...] = ()) -> Binding:
        from graphcell.runtime.binding import Binding
        from graphcell.runtime.executable import compile_graph

        first = len(self.inputs)
        return Binding(compile_graph(graph, updates), leaves, _Chosen(self._captured, [k - first for k in part.captured]), is_part=True)

    def _compile_whole(self, part: Part, name: str) -> Binding:
        assert isinstance(part, WholePart)
        staging = self._known_stages.staging
        graph = whole_graph(part, staging, name)
        leaves = len(graph.inputs) - len(part.captured)
        return self._bind(part, leaves, graph, _updates(part, leaves, len(part.gives)))

    def _compile_rows(self, part: RowPart, size: int, name: str) -> Block:
        """Compiles a part for blocks of so many rows."""
        from graphcell.runtime.blocks import Block, Blocks, SumPlace

        staging = self._stagings[size]
        graph = rows_graph(part, staging, size, name, self._usable.may_exceed)
        leaves, told = len(graph.inputs) - len(part.captured), len(part.rows) + len(part.reads)
        filled = [staging.sums[node].is_filled for node in part.sums for _ in staging.sums[node].begin()]
        types = [v.type for v in graph.inputs[told + 1 : leaves]]
        sums = [SumPlace(told + 1 + k, len(part.gives) + k, types[k].nbytes if fill else 0) for k, fill in enumerate(filled)]
        if part not in self._row_parts:
            self._row_parts[part] = Blocks(leaves, len(part.gives) + len(sums), sums, told, bool(part.updates))
        updates = (*((place.output, place.input) for place in sums), *_updates(part, leaves, len(part.gives) + len(sums)))
        inputs, outputs = self._lie_in(part, staging, size)
        return Block(size, self._bind(part, leaves, graph, updates), inputs, outputs, self._usable.may_exceed)

    def _lie_in(self, part: RowPart, staging: Staging, rows: int) -> tuple[list[Any], list[Any]]:
        """How rows lie in the inputs and outputs of a part; sums have none."""
        from graphcell.runtime.blocks import Rows

        def lie(v: Value) -> Rows:
            found = staging.rows[v]
            if staging.is_whole(v):
                return Rows(1, 0)
            if found.axis is None:  # all elements are equal along it
                return Rows.of(staging.twin[v].type, staging.axis_of_output(v), rows)
            return Rows.of(staging.twin[v].type, found.axis, rows, found.times)

        whole = len(part.reads) + 1  # the last of them is the span of the block
        return [*map(lie, part.rows), *[Rows(1, 0)] * whole], [*map(lie, part.gives)]

    def _given_types(self, part: Part, staging: Staging) -> list[TensorType]:
        """The types of what a part makes."""
        types = [staging.twin[v].type for v in part.gives]
        return [*types, *(type for node in part.sums for type, _ in staging.sums[node].begin())] if isinstance(part, RowPart) else types

    def _blocks_of(self, part: RowPart, rows: int, pieces: Pieces) -> BlockPlan:
        from graphcell.runtime.blocks import BlockPlan

        inputs, outputs = self._lie_in(part, self._stagings[rows], rows)
        is_only = self._is_only(pieces)
        numbered = [(start, self._block_numbers[_Kind(size, is_only)][part]) for start, size in pieces]
        return BlockPlan(self._row_parts[part], numbered, rows, inputs, outputs)


def _updates(part: Part, leaves: int, first: int) -> tuple[tuple[int, int], ...]:
    """What a part's graph writes into inputs, from output number `first` on: (output, input)."""
    return tuple((first + k, leaves + part.captured.index(target)) for k, (_, target) in enumerate(part.updates))


class _Chosen(Sequence[Tensor]):
    """Some of the Tensors in a list, in which guards put another when one was replaced (see `Guards.failure`)."""

    def __init__(self, tensors: Sequence[Tensor], places: Sequence[int]):
        self._tensors, self._places = tensors, places

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, k: Any) -> Any:
        return self._tensors[self._places[k]]


class _Places:
    """Where values are kept during a call: the arguments first.

    Attributes:
        returned: Tensors read from outside that are results.
        inputs: the places of these and of the arguments, each with its number among a call's inputs.
    """

    def __init__(self, stages: Stages, captured: Sequence[Tensor]):
        self._stages = stages
        graph_inputs = stages.graph.inputs
        self._places: dict[Any, int] = {v: k for k, v in enumerate(graph_inputs)}
        read = sorted({self._places[v] for v in stages.results if self._places.get(v, -1) >= stages.leaves})
        self.returned = _Chosen(captured, [k - stages.leaves for k in read])
        self.inputs = {place: k for k, place in enumerate([*range(stages.leaves), *read])}
        self._constants: dict[int, Tensor] = {}
        for part in stages.parts:
            for v in part.gives:
                self._add(v)
            for node in getattr(part, "sums", ()):
                added = stages.staging.sums[node]
                for k, (type, value) in enumerate(added.begin()):
                    self._add((node, k))
                    if added.is_filled:
                        self._constants[self._add(("begin", node, k))] = Tensor.of_array(np.full(type.shape, value, type.dtype.np_type))
        self._span = self._add("span")
        self._constants[self._span] = Tensor.of_array(np.zeros(SPAN.shape, SPAN.dtype.np_type))  # native code gives another
        for v in stages.numbers:
            self._add(("number", v))

    def __len__(self) -> int:
        return len(self._places)

    def _add(self, key: Any) -> int:
        return self._places.setdefault(key, len(self._places))

    def of(self, v: Value) -> int:
        """Of a value itself."""
        return self._places[v]

    def _read(self, v: Value) -> int:
        return self._places["number", v] if v in self._stages.numbers else self._places[v]

    def _sums(self, part: RowPart | WholePart) -> list[tuple[Any, int]]:
        return [(node, k) for node in part.sums for k in range(len(self._stages.staging.sums[node].begin()))]

    def reads(self, part: Part) -> list[int]:
        """Of what a part is given, but what is captured. A sum that is not filled reads nothing: any place will do."""
        whole = list(map(self._read, part.reads))
        if isinstance(part, RowPart):
            begin = [self._places.get(("begin", *key), self._span) for key in self._sums(part)]
            return [*map(self.of, part.rows), *whole, self._span, *begin]
        assert isinstance(part, WholePart)
        return [*whole, *(self._places[key] for key in self._sums(part))]

    def gives(self, part: Part) -> list[int]:
        """Of what a part makes."""
        sums = [self._places[key] for key in self._sums(part)] if isinstance(part, RowPart) else []
        return [*map(self.of, part.gives), *sums]

    def given(self, staging: Staging) -> dict[int, Tensor]:
        """Constants, for the number of rows of `staging`."""
        found = dict(self._constants)
        for v in self._stages.numbers:
            op: Any = staging.nodes[staging.maker[v]].op
            type = number_type(v, staging)
            array = np.full((), op.value, type.dtype.np_type) if isinstance(op, Full) else op.literal.array
            found[self._places["number", v]] = Tensor.of_array(np.array(array, type.dtype.np_type))
        return found
