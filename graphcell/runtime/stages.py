"""Runs of functions that were cut into stages: some for blocks of rows, some for what has no rows. One native call runs them all.

Enters: the parts of a function (passes/row_stages.py), each bound to native code; for a number of rows, what each part reads and gives. Leaves:
`StagedBinding`, called like a `Binding`. Refuses nothing. Values are known by numbers, their places.

What parts give to each other lies in memory of the workspace, in which values that are not needed at one time share places.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Collection, Hashable, Sequence
from typing import Any, Protocol

import numpy as np

from graphcell import buffer
from graphcell.buffer import Writers
from graphcell.codegen.llvm.text import I32, I64, PTR, VOID, Module, Val, const, i64
from graphcell.codegen.memory import Interval, plan_arena
from graphcell.context import config
from graphcell.errors import OutOfMemoryError
from graphcell.ir.types import TensorType
from graphcell.locks import Lock
from graphcell.records import dataclass
from graphcell.runtime.binding import TRIES, Binding
from graphcell.runtime.blocks import NEVER, BlockPlan, common, raiser
from graphcell.runtime.calling import ANY, SpaceState
from graphcell.runtime.structures import WORD, StructureBuilder, array_of, table_of, words
from graphcell.runtime.support import load_support
from graphcell.runtime.threads import pool
from graphcell.runtime.workspaces import Runs, Threads, Workspace
from graphcell.tensor import StorageEpoch, Tensor

_MEMORY_BIT = 1 << 62
"""Of `SpaceState.ready`: there is memory for all plans that were run. The bits before it stand for kinds of blocks."""

# where a value lies
_FIXED, _MEMORY, _INPUT, _OUTPUT = range(4)

_PlanState = words("_PlanState", "places", "place_table", "steps", "step_table", "first_copies", "copies", "copy_table")
_PlaceState = words("_PlaceState", "kind", "at")
_StepState = words("_StepState", "run", "part", "plan", "reads", "read_table", "gives", "give_table")
_CopyState = words("_CopyState", "source", "target", "nbytes")
_Own = words("_Own", "space", "parts", "values", "memory")


# -- the generated code ------------------------------------------------------------------------------------------------
def _emit_find_places(module: Module) -> None:
    """`find_places(plan, inputs, outputs, own)`: the address of each value."""
    names = (("plan", PTR), ("inputs", PTR), ("outputs", PTR), ("own", PTR))
    b = StructureBuilder(module, "find_places", names)
    plan, own = b.args["plan"], b.args["own"]
    values, memory = b.get(own, _Own, "values", PTR), b.get(own, _Own, "memory")
    with b.loop(0, b.get(plan, _PlanState, "places")) as loop:
        place = b.entry(b.get(plan, _PlanState, "place_table", PTR), loop.index, _PlaceState)
        kind, at = b.get(place, _PlaceState, "kind"), b.get(place, _PlaceState, "at")
        into = b.gep(values, loop.index, I64)
        b.store(b.add(at, b.select(b.icmp("eq", kind, i64(_MEMORY)), memory, i64(0))), into)
        for one, table in ((_INPUT, "inputs"), (_OUTPUT, "outputs")):
            with b.if_then(b.icmp("eq", kind, i64(one))):
                b.store(b.item(b.args[table], at, I64), into)
    b.finish()


def _emit_copy_values(module: Module) -> None:
    """`copy_values(plan, own, first, stop)`: these of the copies."""
    b = StructureBuilder(module, "copy_values", (("plan", PTR), ("own", PTR), ("first", I64), ("stop", I64)))
    values = b.get(b.args["own"], _Own, "values", PTR)
    with b.loop(b.args["first"], b.args["stop"]) as loop:
        copy = b.entry(b.get(b.args["plan"], _PlanState, "copy_table", PTR), loop.index, _CopyState)
        source, target = (b.item(values, b.get(copy, _CopyState, field)) for field in ("source", "target"))
        b.copy(target, source, b.get(copy, _CopyState, "nbytes"))
    b.finish()


def _emit_run_stages(module: Module) -> None:
    """`run_stages(inputs, outputs, own, pool, callback) -> i32`: a function, made of those of its parts; not 0 if one failed."""
    names = (("inputs", PTR), ("outputs", PTR), ("own", PTR), ("pool", PTR), ("callback", PTR))
    b = StructureBuilder(module, "run_stages", names, I32, internal=False)
    own = b.args["own"]
    space, values = b.get(own, _Own, "space", PTR), b.get(own, _Own, "values", PTR)
    plan, generation = b.get(space, SpaceState, "plan", PTR), b.get(space, SpaceState, "generation")
    b.call("find_places", VOID, plan, b.args["inputs"], b.args["outputs"], own)
    first_copies = b.get(plan, _PlanState, "first_copies")
    b.call("copy_values", VOID, plan, own, i64(0), first_copies)

    def hand_over(step: Val, count: str, places: str, addresses: Val) -> None:
        table = b.get(step, _StepState, places, PTR)
        with b.loop(0, b.get(step, _StepState, count)) as loop:
            b.store(b.item(values, b.item(table, loop.index, I64)), b.gep(addresses, loop.index, I64))

    with b.loop(0, b.get(plan, _PlanState, "steps")) as loop:
        step = b.entry(b.get(plan, _PlanState, "step_table", PTR), loop.index, _StepState)
        inner = b.item(b.get(own, _Own, "parts", PTR), b.get(step, _StepState, "part"))
        b.set(inner, SpaceState, "generation", generation)
        b.set(inner, SpaceState, "plan", b.get(step, _StepState, "plan"))
        given = [b.get(inner, SpaceState, name, PTR) for name in ("inputs", "outputs", "arena", "pool", "callback")]
        hand_over(step, "reads", "read_table", given[0])
        hand_over(step, "gives", "give_table", given[1])
        status = b.call_pointer(b.get(step, _StepState, "run", PTR), I32, *given)
        b.return_if(b.icmp("ne", status, const(0, I32)), status)
    b.call("copy_values", VOID, plan, own, first_copies, b.get(plan, _PlanState, "copies"))
    b.finish(const(0, I32))


def assembly() -> str:
    """The LLVM assembly of all that."""
    module = Module()
    for emit in (_emit_find_places, _emit_copy_values, _emit_run_stages):
        emit(module)
    return str(module)


@functools.cache
def _entry() -> int:
    return load_support("stages", assembly()).address("run_stages")


# -- Python's side -----------------------------------------------------------------------------------------------------
class Part(Protocol):
    """One of the parts: a graph without rows, or the blocks of one with rows. `numbers`: of the blocks that a plan uses."""

    @property
    def entry(self) -> int:
        """The address of its function."""

    @property
    def writes(self) -> bool:
        """Whether it writes into Parameters."""

    @property
    def unbounded(self) -> bool:
        """Whether how long a run takes may depend on values, whatever the blocks are."""

    def part_of(self, outer: Any) -> Any:
        """A workspace for it in one whose state is `outer`, which has to be bound anew when this one has."""

    def bind(self, space: Any, numbers: Sequence[int]) -> None:
        """Gets its workspace ready."""

    def prepare(self, space: Any, numbers: Sequence[int]) -> set[int]:
        """Brings up to date what it keeps of frozen inputs; the counts of contents for which it is."""


class BoundGraph:
    """A graph without rows as a part. What its binding updates must keep its values when its buffers move: other parts may read them."""

    def __init__(self, binding: Binding):
        self._binding = binding
        self.entry, self.writes = binding.executable.entry, bool(binding.executable.updates)
        self.unbounded = binding.spaces.unbounded

    def part_of(self, outer: Any) -> Workspace:
        """A workspace."""
        return Workspace(self._binding.executable)

    def bind(self, space: Workspace, numbers: Sequence[int]) -> None:
        """Looks up the addresses of what it reads and writes."""
        self._binding.bind(space)

    def prepare(self, space: Workspace, numbers: Sequence[int]) -> set[int]:
        """Brings up to date what is kept of frozen inputs."""
        return self._binding.prepare(space)


class _StagedSpace:
    """A workspace for runs of all parts of a function, with memory of `nbytes`. `state.ready` says for which kinds of blocks, and whether it
    has the memory.
    """

    def __init__(self, staged: Staged):
        self._values = (WORD * (staged.places + staged.outputs))()
        counts = (staged.leaves + len(staged.returned), staged.outputs, staged.outputs)
        self.inputs, self.outputs, self.arrays = ((WORD * max(1, n))() for n in counts)
        self._memory: Any = None
        self.nbytes = -1
        self.fail = raiser(self._workspaces)
        self.state = SpaceState(
            epoch=ANY, inputs=ctypes.addressof(self.inputs), outputs=ctypes.addressof(self.outputs), pool=pool().address, callback=0,
            fail=id(self.fail), arrays=ctypes.addressof(self.arrays),
        )  # fmt: skip
        self.parts = [part.part_of(self.state) for part in staged.parts]
        self._addresses = table_of([part.address for part in self.parts])
        self.address = ctypes.addressof(self.state)
        self._own = _Own(space=self.address, parts=ctypes.addressof(self._addresses), values=ctypes.addressof(self._values))
        self.state.arena = ctypes.addressof(self._own)

    def _workspaces(self) -> list[Workspace]:
        return [space for part in self.parts for space in ([part] if isinstance(part, Workspace) else part.workspaces())]

    def provide(self, nbytes: int) -> bool:
        """Gets so much memory; False if there is none, and now this has none at all."""
        if self.nbytes < nbytes:
            self._memory, self.nbytes = None, -1
            try:
                self._memory = buffer.empty((nbytes,), np.dtype(np.uint8))
            except OutOfMemoryError:
                self.state.ready = 0
                return False
            self.nbytes, self._own.memory = nbytes, buffer.address(self._memory)
        return True


class Staged:
    """The parts of a function, and workspaces for all of them.

    Args:
        parts: in any order.
        leaves: so many arguments a call has.
        returned: Tensors that are read from outside and returned as they are; to plans they are inputs after the arguments. It may hold
            other Tensors of the same types later; `StorageEpoch` must be raised then.
        outputs, places: how many results and values there are.
    """

    def __init__(self, parts: Sequence[Part], leaves: int, returned: Sequence[Tensor], outputs: int, places: int):
        self.parts, self.leaves, self.returned, self.outputs, self.places = list(parts), leaves, returned, outputs, places
        self.writes = any(part.writes for part in parts)
        self._bits: dict[Hashable, int] = {}
        self._nbytes = 0
        self._lock = Lock()
        self.make = functools.partial(_StagedSpace, self)
        self.home = Runs(_entry(), (), self.make)

    def needs(self, kinds: Collection[Hashable]) -> int:
        """The bits of `SpaceState.ready` for memory and blocks of these kinds."""
        with self._lock:
            return sum(1 << self._bits.setdefault(kind, len(self._bits)) for kind in kinds) | _MEMORY_BIT

    def bind(self, space: _StagedSpace, needs: int, nbytes: int, numbers: dict[int, list[int]]) -> None:
        """Gets a workspace ready for a plan, whose parts keep `nbytes` for each other; `numbers`: of the blocks of each part of rows."""
        state = space.state
        with self._lock:
            if needs & ~state.ready == 0 and nbytes <= space.nbytes and state.epoch in (ANY, StorageEpoch.value):
                return
            self._provide(space, nbytes)
            for _ in range(TRIES):  # a buffer that moves raises the epoch
                for k in sorted(range(len(self.parts)), key=lambda k: not self.parts[k].writes):  # those that write may move some
                    self.parts[k].bind(space.parts[k], numbers.get(k, ()))
                epochs = {int(part.state.epoch) for part in space.parts}
                if self.returned:
                    epochs.add(StorageEpoch.value)
                    space.inputs[self.leaves : self.leaves + len(self.returned)] = [t.address() for t in self.returned]
                if epochs <= {ANY, StorageEpoch.value}:
                    break
            before = state.ready if state.epoch in (ANY, StorageEpoch.value) else 0
            state.epoch = max(epochs) if epochs <= {ANY, StorageEpoch.value} else -1
            state.ready = before | needs
            if space.nbytes < self._nbytes:
                state.ready &= ~_MEMORY_BIT
            if any(not space.parts[k].state.ready >> n & 1 for k, wanted in numbers.items() for n in wanted):
                state.ready = 0  # another thread spoiled a block meanwhile

    def _provide(self, space: _StagedSpace, nbytes: int) -> None:
        """Gets memory for a plan, and for all that were run before if there is as much."""
        if not space.provide(max(nbytes, self._nbytes)) and not space.provide(nbytes):
            raise OutOfMemoryError(f"what the stages of a function keep for each other needs {nbytes:,} bytes")
        if nbytes > self._nbytes:
            self._nbytes = nbytes
            for other in list(self.home.made.values()):
                if other is not space:
                    other.state.ready &= ~_MEMORY_BIT

    def prepare(self, space: _StagedSpace, numbers: dict[int, list[int]]) -> int:
        """Brings up to date what the parts keep of their frozen inputs; the count of contents for which it is, -1: for any."""
        return common({n for k, part in enumerate(self.parts) for n in part.prepare(space.parts[k], numbers.get(k, ()))})


@dataclass(frozen=True)
class Step:
    """A run of a part.

    Attributes:
        part: its number; `plan`: of a part of rows, the blocks.
        reads: places of the values that it is given; `gives`: of those that it makes, each with its type.
    """

    part: int
    plan: BlockPlan | None
    reads: tuple[int, ...]
    gives: tuple[tuple[int, TensorType], ...]


class StagedBinding:
    """All parts of a function, for some number of rows.

    Args:
        steps: in order.
        inputs: the places of the arguments and of what is returned as it is, each with its number among the inputs.
        given: the places of constants.
        results: the places of what a call returns, with types. What no step gives is returned as a copy of what it was at first.
        kinds: of the blocks.
    """

    def __init__(
        self, staged: Staged, steps: Sequence[Step], inputs: dict[int, int], given: dict[int, Tensor],
        results: Sequence[tuple[int, TensorType]], kinds: Collection[Hashable],
    ):  # fmt: skip
        self._staged, self._steps, self._given = staged, list(steps), given
        self._numbers = {step.part: step.plan.numbers for step in steps if step.plan is not None}
        places = [(_FIXED, 0)] * (staged.places + len(results))
        for place, number in inputs.items():
            places[place] = (_INPUT, number)
        for place, x in given.items():
            places[place] = (_FIXED, x.address())
        made = {place for step in steps for place, _ in step.gives}
        first: list[tuple[int, int, int]] = []
        later: list[tuple[int, int, int]] = []
        returned: set[int] = set()
        for k, (place, type) in enumerate(results):
            if place in made and place not in returned:
                returned.add(place)
                places[place] = (_OUTPUT, k)
                continue
            places[staged.places + k] = (_OUTPUT, k)
            (later if place in made else first).append((place, staged.places + k, type.nbytes))
        self._shared = self._lay_out(places, returned)
        self._tables: list[Any] = []
        step_rows = [
            (
                staged.parts[step.part].entry, step.part, 0 if step.plan is None else step.plan.address,
                len(step.reads), self._table(table_of(step.reads)),
                len(step.gives), self._table(table_of([place for place, _ in step.gives])),
            )
            for step in steps
        ]  # fmt: skip
        self._plan = _PlanState(
            places=len(places), place_table=self._table(array_of(_PlaceState, places)), steps=len(steps),
            step_table=self._table(array_of(_StepState, step_rows)), first_copies=len(first), copies=len(first) + len(later),
            copy_table=self._table(array_of(_CopyState, [*first, *later])),
        )  # fmt: skip
        unbounded = any(part.unbounded for step in steps for part in (step.plan, staged.parts[step.part]) if part is not None)
        self.spaces = Runs(_entry(), [type for _, type in results], staged.make, staged.home, staged.writes, unbounded)
        self.spaces.state.plan = ctypes.addressof(self._plan)
        self.spaces.state.contents = NEVER
        self.spaces.state.needs = staged.needs(kinds)
        self.nbytes = sum(pool.nbytes for pool in self.spaces.pools)

    def _lay_out(self, places: list[tuple[int, int]], returned: set[int]) -> int:
        """Gives values that no result has a place in memory; the bytes of all."""
        lives: dict[int, Interval] = {}
        for k, step in enumerate(self._steps):
            for place, type in step.gives:  # some values are given twice
                if place not in returned:
                    lives.setdefault(place, Interval(type.nbytes, k, k)).last = k
            for place in step.reads:
                if place in lives:
                    lives[place].last = k
        total = plan_arena(list(lives.values()))
        for place, life in lives.items():
            places[place] = (_MEMORY, life.offset)
        return total

    def _table(self, table: Any) -> int:
        """The address of a table, which is kept."""
        self._tables.append(table)
        return ctypes.addressof(table)

    def __call__(self, leaves: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Runs; returns the outputs that are not written back."""
        with Writers.alone() if self._staged.writes else contextlib.nullcontext():
            if config.runtime_num_threads is not Threads.applied:
                Threads.apply()
            spaces = self.spaces
            space = spaces.pop()
            try:
                self._staged.bind(space, spaces.state.needs, self._shared, self._numbers)
                for k, t in enumerate(leaves):
                    space.inputs[k] = t.address()
                spaces.state.contents = self._staged.prepare(space, self._numbers)
                return spaces.run(space)
            finally:
                spaces.push(space)
