"""Runs of graphs that were compiled for a few rows each, on blocks of the rows of larger inputs: one native call for all blocks.

Enters: one function compiled for several numbers of rows (`Block`); for each number of rows that comes, the blocks that cover it, and how
rows lie in its inputs and outputs. Leaves: `BlockBinding`, called like a `Binding` for that number of rows. Refuses nothing.

Blocks read and write the rows of the inputs and outputs where they are. Only those whose rows do not lie together, and blocks with more
rows than there are, go through memory of the workspace; what is missing is filled with copies of the last row, which is as good as any.
Sums over rows lie where they end up; each block adds to them in place.
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graphcell import buffer
from graphcell.codegen.llvm.arithmetic import minimum
from graphcell.codegen.llvm.text import I8, I32, I64, PTR, VOID, LType, Module, Val, const, i64
from graphcell.codegen.memory import aligned_size
from graphcell.context import config
from graphcell.ir.types import TensorType
from graphcell.locks import Lock
from graphcell.records import dataclass
from graphcell.runtime.binding import Binding
from graphcell.runtime.calling import ANY, SpaceState
from graphcell.runtime.structures import WORD, StructureBuilder, array_of, words
from graphcell.runtime.support import load_support
from graphcell.runtime.threads import pool
from graphcell.runtime.workspaces import Runs, Threads, Workspace, memory_for
from graphcell.tensor import StorageEpoch, Tensor

NEVER = -2
"""No count of contents has this value."""
MOST_BLOCKS = 63

_PlanState = words(
    "_PlanState", "rows", "pieces", "piece_table", "inputs", "input_table", "outputs", "output_table", "sums", "sum_table", "told"
)
_PieceState = words("_PieceState", "start", "there", "size", "block")
_RowsState = words("_RowsState", "outer", "row_bytes")
_SumState = words("_SumState", "input", "output", "nbytes")
_SpaceOfBlock = words("_SpaceOfBlock", "run", "space", "inputs", "outputs")
_Own = words("_Own", "space", "blocks")


# -- the generated code ------------------------------------------------------------------------------------------------
class _Emitter(StructureBuilder):
    """A builder that knows the structures above."""

    def piece(self, table: str) -> tuple[Val, Val, Val]:
        """All rows, those of them that the block in the arguments has, and its `table` of addresses."""
        rows = self.get(self.args["plan"], _PlanState, "rows")
        there = minimum(self, self.args["size"], self.sub(rows, self.args["start"]))
        return rows, there, self.get(self.get(self.args["block"], _SpaceOfBlock, "space", PTR), SpaceState, table, PTR)

    def rows_of(self, kind: str, index: Val) -> tuple[Val, Val, Val, Val]:
        """Of one of the inputs or outputs (`kind`): its `Rows`, where those of the block in the arguments begin, and whether they go through
        memory of the block's own.
        """
        state = self.entry(self.get(self.args["plan"], _PlanState, f"{kind}_table", PTR), index, _RowsState)
        outer, row_bytes = self.get(state, _RowsState, "outer"), self.get(state, _RowsState, "row_bytes")
        first = self.at(self.item(self.args[f"{kind}s"], index, PTR), self.mul(self.args["start"], row_bytes))
        _, there, _ = self.piece(f"{kind}s")
        apart = self.or_(self.icmp("slt", there, self.args["size"]), self.icmp("sgt", outer, i64(1)))
        return outer, row_bytes, first, self.and_(apart, self.icmp("ne", row_bytes, i64(0)))


def _emit_place_inputs(module: Module) -> None:
    """`place_inputs(plan, inputs, start, size, block)`: the rows from `start` on become the inputs of a block."""
    names = (("plan", PTR), ("inputs", PTR), ("start", I64), ("size", I64), ("block", PTR))
    b = _Emitter(module, "place_inputs", names)
    plan, size, block = (b.args[name] for name in ("plan", "size", "block"))
    rows, there, into = b.piece("inputs")
    with b.loop(0, b.get(plan, _PlanState, "inputs")) as loop:
        outer, row_bytes, first, by_itself = b.rows_of("input", loop.index)
        b.store(first, b.gep(into, loop.index, I64))
        with b.if_then(by_itself):
            own = b.item(b.get(block, _SpaceOfBlock, "inputs", PTR), loop.index, PTR)
            with b.loop(0, outer) as turn:
                source = b.at(first, b.mul(turn.index, b.mul(rows, row_bytes)))
                target = b.at(own, b.mul(turn.index, b.mul(size, row_bytes)))
                b.copy(target, source, b.mul(there, row_bytes))
                last = b.at(source, b.mul(b.sub(there, i64(1)), row_bytes))
                with b.loop(there, size) as row:
                    b.copy(b.at(target, b.mul(row.index, row_bytes)), last, row_bytes)
            b.store(own, b.gep(into, loop.index, I64))
    b.finish()


def _emit_place_outputs(module: Module) -> None:
    """`place_outputs(plan, outputs, start, size, block, done)`: before a block runs, its outputs get their places; when it is done, those
    in memory of its own are put together."""
    names = (("plan", PTR), ("outputs", PTR), ("start", I64), ("size", I64), ("block", PTR), ("done", LType("i1")))
    b = _Emitter(module, "place_outputs", names)
    plan, size, block = (b.args[name] for name in ("plan", "size", "block"))
    rows, there, into = b.piece("outputs")
    with b.loop(0, b.get(plan, _PlanState, "outputs")) as loop:
        outer, row_bytes, first, by_itself = b.rows_of("output", loop.index)
        own = b.item(b.get(block, _SpaceOfBlock, "outputs", PTR), loop.index, PTR)

        def give(own: Val = own, first: Val = first, by_itself: Val = by_itself, place: Val = loop.index) -> None:
            b.store(b.select(by_itself, own, first), b.gep(into, place, I64))

        def collect(own: Val = own, first: Val = first, by_itself: Val = by_itself, outer: Val = outer, row_bytes: Val = row_bytes) -> None:
            with b.if_then(by_itself), b.loop(0, outer) as turn:
                target = b.at(first, b.mul(turn.index, b.mul(rows, row_bytes)))
                b.copy(target, b.at(own, b.mul(turn.index, b.mul(size, row_bytes))), b.mul(there, row_bytes))

        b.if_else(b.args["done"], collect, give)
    b.finish()


def _emit_place_sums(module: Module) -> None:
    """`place_sums(plan, inputs, outputs, first, block)`: a block adds to the sums where they end up, among the outputs; the first one finds
    there so many bytes of what stands among the inputs.
    """
    names = (("plan", PTR), ("inputs", PTR), ("outputs", PTR), ("first", LType("i1")), ("block", PTR))
    b = _Emitter(module, "place_sums", names)
    plan = b.args["plan"]
    reads = b.get(b.get(b.args["block"], _SpaceOfBlock, "space", PTR), SpaceState, "inputs", PTR)
    with b.loop(0, b.get(plan, _PlanState, "sums")) as loop:
        state = b.entry(b.get(plan, _PlanState, "sum_table", PTR), loop.index, _SumState)
        source, target = b.get(state, _SumState, "input"), b.item(b.args["outputs"], b.get(state, _SumState, "output"), PTR)
        with b.if_then(b.args["first"]):
            b.copy(target, b.item(b.args["inputs"], source, PTR), b.get(state, _SumState, "nbytes"))
        b.store(target, b.gep(reads, source, I64))
    b.finish()


def _emit_run_blocks(module: Module) -> None:
    """`run_blocks(inputs, outputs, own, pool, callback) -> i32`: a graph's function, made of those of its blocks; not 0 if one failed."""
    names = (("inputs", PTR), ("outputs", PTR), ("own", PTR), ("pool", PTR), ("callback", PTR))
    b = _Emitter(module, "run_blocks", names, I32, internal=False)
    space = b.get(b.args["own"], _Own, "space", PTR)
    plan = b.get(space, SpaceState, "plan", PTR)
    false, true = const(0, LType("i1")), const(1, LType("i1"))
    with b.loop(0, b.get(plan, _PlanState, "pieces")) as loop:
        piece = b.entry(b.get(plan, _PlanState, "piece_table", PTR), loop.index, _PieceState)
        start, size = b.get(piece, _PieceState, "start"), b.get(piece, _PieceState, "size")
        block = b.entry(b.get(b.args["own"], _Own, "blocks", PTR), b.get(piece, _PieceState, "block"), _SpaceOfBlock)
        inner = b.get(block, _SpaceOfBlock, "space", PTR)
        b.store(b.get(space, SpaceState, "generation"), b.gep(inner, SpaceState.generation.offset, I8))
        b.call("place_inputs", VOID, plan, b.args["inputs"], start, size, block)
        b.call("place_outputs", VOID, plan, b.args["outputs"], start, size, block, false)
        b.call("place_sums", VOID, plan, b.args["inputs"], b.args["outputs"], b.icmp("eq", loop.index, i64(0)), block)
        told = b.get(plan, _PlanState, "told")
        with b.if_then(b.icmp("sge", told, i64(0))):
            b.store(b.gep(piece, _PieceState.start.offset, I8), b.gep(b.get(inner, SpaceState, "inputs", PTR), told, I64))
        given = [b.get(inner, SpaceState, name, PTR) for name in ("inputs", "outputs", "arena", "pool", "callback")]
        status = b.call_pointer(b.get(block, _SpaceOfBlock, "run", PTR), I32, *given)
        b.return_if(b.icmp("ne", status, const(0, I32)), status)
        b.call("place_outputs", VOID, plan, b.args["outputs"], start, size, block, true)
    b.finish(const(0, I32))


def assembly() -> str:
    """The LLVM assembly of all that."""
    module = Module()
    for emit in (_emit_place_inputs, _emit_place_outputs, _emit_place_sums, _emit_run_blocks):
        emit(module)
    return str(module)


@functools.cache
def entry() -> int:
    """The address of `run_blocks`."""
    return load_support("blocks of rows", assembly()).address("run_blocks")


# -- Python's side -----------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Rows:
    """How rows lie in an input or output: `outer` times all rows, each row of so many bytes; 0: it has none and is whole in each block."""

    outer: int
    row_bytes: int

    @classmethod
    def of(cls, type: TensorType, axis: int | None, rows: int, times: int = 1) -> Rows:
        """Of a value with so many rows, which dimension `axis` counts (some elements for each); all rows pass along it so many times."""
        if axis is None:
            return cls(1, 0)
        return cls(math.prod(type.shape[:axis]) * times, math.prod(type.shape[axis:]) // (times * rows) * type.dtype.np_type.itemsize)


@dataclass(frozen=True)
class SumPlace:
    """Where a function has a sum over rows: an input, in whose memory it adds to it; an output, what it is in the end; so many bytes of the
    input the first block must find in that memory.
    """

    input: int
    output: int
    nbytes: int


class Block:
    """A function compiled for `size` rows, whose rows lie in its inputs and outputs as said. `is_longer` than all rows, somewhere: parts of
    functions in stages know that from the beginning, since nothing may be spoiled while another thread binds those around them.
    """

    def __init__(self, size: int, binding: Binding, inputs: Sequence[Rows], outputs: Sequence[Rows], is_longer: bool = False):
        self.size, self.binding = size, binding
        self.inputs, self.outputs = inputs, outputs
        self.is_longer = is_longer


class _InnerSpace:
    """What a block needs of a workspace: a workspace of its graph, and memory for its temporaries and for rows that cannot stay where they are.

    Only one block runs at a time, so that all have the same memory: that of the `BlockSpace`.
    """

    def __init__(self, block: Block):
        self.block = block
        self.space = Workspace(block.binding.executable, has_arena=False)
        self._inputs, self._outputs = ((WORD * max(1, len(rows)))() for rows in (block.inputs, block.outputs))
        self.state = _SpaceOfBlock(
            run=block.binding.executable.entry, space=self.space.address, inputs=ctypes.addressof(self._inputs),
            outputs=ctypes.addressof(self._outputs),
        )  # fmt: skip

    def lie_at(self, address: int) -> int:
        """Puts all that the block needs by now in the memory there; the bytes of it."""
        block = self.block
        self.space.state.arena = address
        nbytes = aligned_size(block.binding.executable.compilation.program.arena_bytes)
        for table, lies in ((self._inputs, block.inputs), (self._outputs, block.outputs)):
            for k, rows in enumerate(lies):
                if rows.row_bytes and (block.is_longer or rows.outer > 1):
                    table[k] = address + nbytes
                    nbytes += aligned_size(rows.outer * block.size * rows.row_bytes)
        return nbytes


class BlockSpace:
    """A workspace for runs of any blocks. Bit n of `state.ready` says that block n can be run: what it needs is there and up to date,
    if what it keeps of its weights is, too.
    """

    def __init__(self, inputs: int, outputs: int):
        self.inner: dict[int, _InnerSpace] = {}
        self._memory = buffer.empty((0,), np.dtype(np.uint8))
        self.inputs, self.outputs, self.arrays = ((WORD * max(1, n))() for n in (inputs, outputs, outputs))
        self._table = (_SpaceOfBlock * MOST_BLOCKS)()
        self._own = _Own(blocks=ctypes.addressof(self._table))
        self.fail = raiser(self.workspaces)
        self.state = SpaceState(
            epoch=ANY, inputs=ctypes.addressof(self.inputs), outputs=ctypes.addressof(self.outputs), arena=ctypes.addressof(self._own),
            pool=pool().address, callback=0, fail=id(self.fail), arrays=ctypes.addressof(self.arrays),
        )  # fmt: skip
        self.address = self._own.space = ctypes.addressof(self.state)
        self.outer: Any = None  # the state of the workspace of which this is part

    def workspaces(self) -> list[Workspace]:
        """Those of the blocks."""
        return [inner.space for inner in self.inner.values()]

    def bind(self, number: int, block: Block) -> None:
        """Gets ready for a block: makes what is missing, looks up the addresses of what it reads."""
        if number not in self.inner:
            self.inner[number] = _InnerSpace(block)
        inner, binding = self.inner[number], block.binding
        self._provide(inner)
        binding.bind(inner.space)
        if binding.spaces.kept is not None:
            binding.spaces.kept.bind(inner.space.inputs)
        self._table[number] = inner.state
        epoch = inner.space.state.epoch
        if epoch != ANY:
            self.state.epoch = epoch if self.state.epoch in (ANY, epoch) else -1
        self.state.ready |= 1 << number

    def _provide(self, inner: _InnerSpace) -> None:
        """Gets memory that is enough for a block, and for those before it."""
        nbytes = inner.lie_at(buffer.address(self._memory))
        if nbytes > self._memory.nbytes:
            self._memory = memory_for(inner.block.binding.executable, nbytes)
            for other in self.inner.values():
                other.lie_at(buffer.address(self._memory))


def raiser(spaces: Callable[[], Sequence[Workspace]]) -> Callable[[], Any]:
    """What raises the error that a run met in one of these workspaces."""

    def fail() -> Any:
        found = spaces()
        return next((space for space in found if space.errors), found[0]).fail()

    return fail


class Blocks:
    """The blocks of one function, and workspaces for all of them, which `make` makes. A part of a function in stages (see stages.py), too.

    Args:
        inputs, outputs: how many the function has.
        sums: those that are sums over rows; blocks may not overlap then.
        told: the input that says how many rows there are before a block and how many of its own are there (int64[2]); -1: there is none.
        writes: blocks write into Parameters.
    """

    unbounded = False
    """As a part; a plan knows whether its blocks are unbounded."""

    def __init__(self, inputs: int, outputs: int, sums: Sequence[SumPlace] = (), told: int = -1, writes: bool = False):
        self.writes = writes
        self._blocks: list[Block] = []
        self.sums, self.told = tuple(sums), told
        self._shape = (inputs, outputs)
        self._made: list[BlockSpace] = []
        self._kept: dict[int, int] = {}  # addresses, by block
        self._lock = Lock()
        self.home = Runs(entry(), (), self.make)

    @property
    def entry(self) -> int:
        """The address of the function that runs them."""
        return entry()

    def part_of(self, outer: Any) -> BlockSpace:
        """A workspace that is part of another, whose state is `outer`: that has to be bound anew, too, whenever this one has."""
        space = self.make()
        space.outer = outer
        return space

    def make(self) -> BlockSpace:
        """A workspace."""
        self._made.append(BlockSpace(*self._shape))
        return self._made[-1]

    def add(self, block: Block) -> int:
        """Adds a block; its number, less than MOST_BLOCKS."""
        with self._lock:
            self._blocks.append(block)
            return len(self._blocks) - 1

    def __getitem__(self, number: int) -> Block:
        return self._blocks[number]

    def use_for_fewer(self, number: int) -> None:
        """Notes that a block is used for fewer rows than it has."""
        with self._lock:
            if not self._blocks[number].is_longer:
                self._blocks[number].is_longer = True
                self._spoil(number)

    def _spoil(self, number: int, but: BlockSpace | None = None) -> None:
        """A block has to be bound anew before other workspaces run it."""
        for space in list(self._made):
            if space is not but:
                space.state.ready &= ~(1 << number)
                if space.outer is not None:
                    space.outer.ready = 0

    def bind(self, space: BlockSpace, numbers: Sequence[int]) -> None:
        """Gets a workspace ready for these blocks."""
        with self._lock:
            state = space.state
            if state.epoch != ANY and state.epoch != StorageEpoch.value:
                state.epoch, state.ready = ANY, 0
            for number in numbers:
                if not state.ready >> number & 1:
                    space.bind(number, self._blocks[number])

    def prepare(self, space: BlockSpace, numbers: Sequence[int]) -> set[int]:
        """Brings up to date what these blocks keep of their frozen inputs; the counts of contents for which it is."""
        counts: set[int] = set()
        for number in numbers:
            binding, inner = self._blocks[number].binding, space.inner[number].space
            kept = binding.spaces.kept
            if kept is None:
                continue
            counts |= binding.prepare(inner)
            address = inner.inputs[kept.kept.slot]
            with self._lock:
                if self._kept.get(number) != address:
                    self._kept[number] = address
                    self._spoil(number, space)
        return counts


class BlockPlan:
    """All blocks that cover so many rows, as native code finds them.

    Args:
        pieces: (first row, number of the block) of each. Those that overlap compute the same twice.
        rows: how many there are.
        inputs, outputs: how they lie in the inputs and outputs but sums.

    Attributes:
        numbers: of its blocks.
    """

    def __init__(self, blocks: Blocks, pieces: Sequence[tuple[int, int]], rows: int, inputs: Sequence[Rows], outputs: Sequence[Rows]):
        self.blocks = blocks
        self.numbers = sorted({number for _, number in pieces})
        for start, number in pieces:
            if start + blocks[number].size > rows:
                blocks.use_for_fewer(number)
        self._tables = (
            array_of(_PieceState, [(start, min(blocks[number].size, rows - start), blocks[number].size, number) for start, number in pieces]),
            array_of(_RowsState, [(lies.outer, lies.row_bytes) for lies in inputs]),
            array_of(_RowsState, [(lies.outer, lies.row_bytes) for lies in outputs]),
            array_of(_SumState, [(place.input, place.output, place.nbytes) for place in blocks.sums]),
        )
        piece_table, input_table, output_table, sum_table = map(ctypes.addressof, self._tables)
        self._state = _PlanState(
            rows=rows, pieces=len(pieces), piece_table=piece_table, inputs=len(inputs), input_table=input_table, outputs=len(outputs),
            output_table=output_table, sums=len(blocks.sums), sum_table=sum_table, told=blocks.told,
        )  # fmt: skip
        self.address = ctypes.addressof(self._state)
        self.unbounded = any(blocks[number].binding.spaces.unbounded for number in self.numbers)


class BlockBinding:
    """A plan, with the buffers of its outputs, which have these types."""

    def __init__(self, plan: BlockPlan, types: Sequence[TensorType]):
        blocks = plan.blocks
        self._plan = plan
        self.spaces = Runs(entry(), types, blocks.make, blocks.home, unbounded=plan.unbounded)
        self.spaces.state.plan = plan.address
        self.spaces.state.contents = NEVER
        self.spaces.state.needs = sum(1 << number for number in plan.numbers)

    def __call__(self, leaves: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Runs; returns the outputs."""
        if config.runtime_num_threads is not Threads.applied:
            Threads.apply()
        spaces, blocks, numbers = self.spaces, self._plan.blocks, self._plan.numbers
        space = spaces.pop()
        try:
            blocks.bind(space, numbers)
            for k, t in enumerate(leaves):
                space.inputs[k] = t.address()
            spaces.state.contents = common(blocks.prepare(space, numbers))
            return spaces.run(space)
        finally:
            spaces.push(space)


def common(counts: set[int]) -> int:
    """The count of contents for which all holds that holds for these alone; -1: for any."""
    return NEVER if len(counts) > 1 else next(iter(counts), -1)
