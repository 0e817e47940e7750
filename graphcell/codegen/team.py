"""Loops whose steps are short, which a team of threads goes through side by side: each thread does its part of every step, and they meet between steps.

To announce each step to the threads would take longer than many steps do. A team is gathered once for the whole loop (runtime/team.py), if that has been
quicker than to go through it alone (llvm/quicker.py). Enters: a loop and its frames. Leaves: a function of its own, `void team(ptr context, i64 index,
i64 size, ptr barrier)`. All threads run its control flow, each with an index of its own; of a step that is shared each takes its part of the blocks, any
other the first thread does. A team of one thread does all of it.

Threads meet only where they have to: where a step may touch what another thread writes, or write what it reads (reach.py), and once a turn.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext

from graphcell.codegen.llvm.text import I64, PTR, VOID, FunctionBuilder, LType, Module, Val, i64
from graphcell.codegen.lowering import LONG_ENTRY, Calls, Lowering, Private
from graphcell.codegen.program import HostCall
from graphcell.codegen.reach import Reach, Touch
from graphcell.codegen.units import Units
from graphcell.ir.types import TensorType
from graphcell.records import dataclass

MOST_THREADS = 4
"""Of a team: steps are short, and all of its threads wait for the slowest."""


class Way(enum.Enum):
    """How threads divide a step: the first does it, by blocks, or by units (see reach.py); as the listing of steps has it."""

    FIRST = "for the first of a team"
    BLOCKS = "for a team, by blocks"
    UNITS = "for a team, by rows"


Divided = tuple[Way, Reach | None]
"""How threads divide a step, and what it touches; None: anything."""
_LEAST_PART = 256
"""Bytes of a value that is worth copying by several."""


@dataclass(frozen=True)
class Origin:
    """Where a pointer comes from: `offset` bytes behind another, `base`, of which it is not known how far behind `root` it is, if it is not that itself."""

    root: str
    base: str
    offset: int


class TeamBuilder(FunctionBuilder):
    """Knows where pointers come from."""

    def __init__(self, module: Module, name: str, params: Sequence[tuple[str, LType]]):
        super().__init__(module, name, params)
        self._origins: dict[str, Origin] = {}

    def origin_of(self, pointer: Val) -> Origin:
        return self._origins.get(pointer.text) or Origin(pointer.text, pointer.text, 0)

    def gep(self, pointer: Val, index: Val | int, element: LType) -> Val:
        result = super().gep(pointer, index, element)
        if result.text != pointer.text:
            before, steps = self.origin_of(pointer), index if isinstance(index, int) else _number(index)
            known = None if steps is None else before.offset + steps * element.bytes * max(1, element.lanes)
            self._origins[result.text] = Origin(before.root, result.text, 0) if known is None else Origin(before.root, before.base, known)
        return result


def _number(index: Val) -> int | None:
    return int(index.text) if index.text.lstrip("-").isdigit() else None


class TeamCalls(Calls):
    """How a team's function calls kernels.

    Attributes:
        b: the function.
        is_first: whether a thread is the first of the team.
        brought: values of the entry function that it reads, and what they are called here.
    """

    shared_from = 8_000
    most_threads = MOST_THREADS

    def __init__(self, lowering: Lowering, outside: Calls, units: Units | None):
        self.lowering, self.inputs, self.may_share, self.units = lowering, outside.inputs, True, units
        lowering.teams += 1
        self.b = b = TeamBuilder(lowering.module, f"team{lowering.teams}", [("context", PTR), ("index", I64), ("size", I64), ("barrier", PTR)])
        self.context = Val("%own", PTR)
        self.brought: dict[Val, Val] = {}
        self.table = self.bring(outside.table)
        self.is_first, self._are_several = b.icmp("eq", b.args["index"], i64(0)), b.icmp("ne", b.args["size"], i64(1))
        self._indices = b.args["index"], b.add(b.args["index"], i64(1))
        count = i64(units.count if units is not None else 0)
        self._units = tuple(b.div(b.mul(index, count), b.args["size"], signed=False) for index in self._indices)
        self._flushing = None
        self._since: list[Divided] = []

    def bring(self, v: Val) -> Val:
        """What a pointer of the entry function is called in the team's. Before anything else is emitted."""
        if v not in self.brought:
            self.brought[v] = self.b.load(self.b.gep(self.b.args["context"], len(self.brought), PTR), PTR)
        return self.brought[v]

    def close(self, b: FunctionBuilder, outside: Calls) -> None:
        """Closes the function and has a team run it."""
        self.b.reserve(self.context, PTR, self.lowering.context_slots)
        if self.b.length >= LONG_ENTRY:
            self.b.leave_as_it_is()
        outside.team(b, self.b.finish(), list(self.brought), self.most_threads)

    # -- steps -------------------------------------------------------------------------------------------------------
    def blocks(
        self, b: FunctionBuilder, function: str, buffers: Sequence[Val], blocks: int, work: int, private: Private | None = None, reach: Reach | None = None
    ) -> None:
        if not blocks:
            return
        first, past = i64(0), i64(blocks)
        if reach is not None and reach.of_unit and self.may_share and (work >= self.shared_from or self._goes_by_units(reach)):
            way = Way.UNITS
            first, past = self._parts(b, reach.of_unit, blocks)
        elif self._shares(blocks, work):
            way = Way.BLOCKS
            first, past = (b.div(b.mul(index, i64(blocks)), b.args["size"], signed=False) for index in self._indices)
        else:
            way = Way.FIRST
        self.lowering.way = way.value
        self.lowering.is_shared = self.lowering.is_shared or way is not Way.FIRST
        self._meet(b, way, reach)
        with b.if_then(self.is_first) if way is Way.FIRST else nullcontext():
            self._call(b, function, buffers, first, past, private)

    @contextmanager
    def part(self, b: FunctionBuilder, target: Val, source: Val, type: TensorType) -> Iterator[tuple[Val, Val]]:
        slab = self.units.of(type.nbytes) if self.units is not None and type.nbytes >= _LEAST_PART and self.may_share else 0
        reach = Reach((Touch(source, 0, type.nbytes, slab, False), Touch(target, 0, type.nbytes, slab, True)), slab)
        way = Way.UNITS if self._goes_by_units(reach) else Way.FIRST
        self._meet(b, way, reach)
        if way is Way.UNITS:
            first, past = self._parts(b, slab, type.nbytes)
            yield first, b.sub(past, first)
            return
        with b.if_then(self.is_first):
            yield i64(0), i64(type.nbytes)

    def _parts(self, b: FunctionBuilder, of_unit: int, all: int) -> tuple[Val, Val]:
        """From where on and up to where a thread does all that there is, blocks or bytes, of which a full unit has so many."""
        first, past = (b.mul(unit, i64(of_unit)) for unit in self._units)
        return first, past if self.units is None or self.units.count * of_unit == all else b.binary("smin", past, i64(all))

    @contextmanager
    def read(self, b: FunctionBuilder) -> Iterator[None]:
        self._meet(b, Way.BLOCKS, None)
        yield

    def settle(self, b: FunctionBuilder) -> None:
        if self._since:
            self._barrier(b)

    def _meet(self, b: FunctionBuilder, way: Way, reach: Reach | None) -> None:
        """Has threads wait for each other before a step, if it may touch what others have not done with."""
        if self._waits(way, reach):
            self._barrier(b)
        self._since.append((way, reach))

    def _goes_by_units(self, reach: Reach | None) -> bool:
        """Whether a step of little work goes by units: not if threads had to meet for that alone."""
        return reach is not None and reach.of_unit > 0 and (self._waits(Way.FIRST, reach) or not self._waits(Way.UNITS, reach))

    def _waits(self, way: Way, reach: Reach | None) -> bool:
        return any(self._conflict(known, (way, reach)) for known in self._since)

    def _barrier(self, b: FunctionBuilder) -> None:
        with b.if_then(self._are_several):
            b.call_pointer(b.args["barrier"], VOID, b.args["index"])
        self._since.clear()

    def _conflict(self, before: Divided, now: Divided) -> bool:
        (way, reach), (next_way, next_reach) = before, now
        if way is next_way is Way.FIRST:
            return False
        if reach is None or next_reach is None:
            return True
        by_units = way is next_way is Way.UNITS
        return any(self._collide(x, y, by_units) for x in reach.touches for y in next_reach.touches if x.writes or y.writes)

    def _collide(self, x: Touch, y: Touch, by_units: bool) -> bool:
        """Whether two threads may touch the same bytes, of which one writes."""
        one, other = self.b.origin_of(x.pointer), self.b.origin_of(y.pointer)
        if one.root != other.root:
            return False  # what the entry function has at different places does not overlap
        if one.base != other.base:
            return True
        (low, high), (next_low, next_high) = ((origin.offset + t.low, origin.offset + t.high) for origin, t in ((one, x), (other, y)))
        if high <= next_low or next_high <= low:
            return False
        if self.units is None or not by_units or not x.slab == y.slab > 0:
            return True
        others = self.units.between_ends(x.slab)  # no unit ends further from its beginning than the first one
        return high - others > next_low + x.slab or next_high - others > low + x.slab

    def host(self, b: FunctionBuilder, call: HostCall, buffers: Sequence[Val]) -> None:
        raise AssertionError("a team does not call the host")


class PairCalls(TeamCalls):
    """How the function of two loops that run at one time, and of the products behind them, calls kernels: each thread does one side, and they do not meet."""

    most_threads = 2

    def __init__(self, lowering: Lowering, outside: Calls):
        super().__init__(lowering, outside, None)

    @contextmanager
    def by(self, number: int) -> Iterator[None]:
        """What is emitted inside is for the thread of this number, or for one of several."""
        b = self.b
        with b.if_then(b.icmp("eq", b.rem(i64(number), b.args["size"], signed=False), b.args["index"])):
            yield

    def blocks(
        self, b: FunctionBuilder, function: str, buffers: Sequence[Val], blocks: int, work: int, private: Private | None = None, reach: Reach | None = None
    ) -> None:
        if blocks:
            self.lowering.way = "for one of two threads that go through a loop each"
            self._call(b, function, buffers, i64(0), i64(blocks), private)

    @contextmanager
    def part(self, b: FunctionBuilder, target: Val, source: Val, type: TensorType) -> Iterator[tuple[Val, Val]]:
        yield i64(0), i64(type.nbytes)

    @contextmanager
    def read(self, b: FunctionBuilder) -> Iterator[None]:
        yield

    def settle(self, b: FunctionBuilder) -> None:
        """Nobody is waited for."""

