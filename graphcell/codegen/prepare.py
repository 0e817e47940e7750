"""Preparation: what a contraction does to its weights alone (packing, transforming them) is done once where they do not change.

Enters: the `Plan` of a contraction and which of its operands are *steady*: unchanged from one run of the contraction to the next, in a
loop that does not change them, or from call to call. Leaves: `Request`s, each the stages that move to a `Spot`: just before the
outermost loop in which the operand is steady, or the function `prepare` that runs when frozen inputs changed (see frozen.py). Their
packed buffers live as long as the spot says; at the contraction itself only the other stages run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import field

from graphcell.codegen.llvm.contraction import Plan, Stage
from graphcell.codegen.llvm.text import I8, FunctionBuilder, Val
from graphcell.codegen.lowering import Argument, Calls, First, Local, Lowering, Private
from graphcell.codegen.memory import aligned_size
from graphcell.codegen.reach import Reach
from graphcell.ir.graph import Node, Value
from graphcell.records import dataclass

LETTERS = "abdefghijk"
"""Names of a contraction's operands in its plan."""
_MOST_BY_EACH = 0.5
"""Of the work that threads divide, what each of them may do for itself."""


@dataclass(frozen=True)
class Preparation:
    """The stages of a plan that read operand `operand` alone and fill the shared `buffers`, which nothing else writes, but for the word behind packed
    panels in which a product keeps its direction (llvm/matmul.py)."""

    operand: int
    stages: tuple[Stage, ...]
    buffers: tuple[tuple[str, int], ...]


def preparation_of(plan: Plan, steady: frozenset[int]) -> Preparation | None:
    """What of `plan` can be done ahead if its operands `steady` do not change; None if nothing can."""
    for operand in sorted(steady):
        letter = LETTERS[operand]
        writers: dict[str, list[Stage]] = {}
        for stage in plan.stages:
            writers.setdefault(_named(stage)[-1], []).append(stage)
        buffers = tuple((n, size) for n, size in plan.shared if n in writers and all(_named(s) == [letter, n] and not s.extra for s in writers[n]))
        if buffers:
            names = {n for n, _ in buffers}
            return Preparation(operand, tuple(s for s in plan.stages if _named(s)[-1] in names), buffers)
    return None


def _named(stage: Stage) -> list[str]:
    """The buffers of a stage, less the threads' own scratch memory; the last is the one it writes."""
    return [n for n in stage.buffers if n != "scratch"]


@dataclass(eq=False)
class Request:
    """A preparation that a spot carries out.

    Attributes:
        root, start: where the operand lies in the spot's graph: a value and bytes from its beginning.
        offsets: of the prepared buffers in the spot's memory.
        places: of these buffers, for the code that reads them; known when the spot has been emitted.
        title: the step's title in the printed plan.
    """

    plan: Plan
    what: Preparation
    root: Value
    start: int
    offsets: dict[str, int]
    title: str
    places: dict[str, Val] = field(default_factory=dict)

    def emit(self, b: FunctionBuilder, lowering: Lowering, region: Val, root: Val, call: Calls) -> None:
        """Emits the stages; the spot's memory is at `region`."""
        table = {LETTERS[self.what.operand]: b.gep(root, self.start, I8)}
        table |= {name: b.gep(region, offset, I8) for name, offset in self.offsets.items()}
        notes = "".join(f"\n  {s}" for s in self.what.stages)
        with lowering.step(b, f"prepare {self.title}", f"once:{notes}", sum(s.blocks for s in self.what.stages)):
            run_stages(b, call, self.plan, self.what.stages, {}, table)

    def bind(self, b: FunctionBuilder, region: Val) -> None:
        """Says where the spot's memory is for the code that reads it."""
        self.places = {name: b.gep(region, offset, I8) for name, offset in self.offsets.items()}


@dataclass(eq=False)
class Spot:
    """A place outside of what is repeated, where preparations are carried out into memory of the spot's own."""

    requests: list[Request] = field(default_factory=list)
    nbytes: int = 0

    def reserve(self, nbytes: int) -> int:
        """The offset of a new piece of the spot's memory."""
        offset = self.nbytes
        self.nbytes += aligned_size(nbytes)
        return offset

    def request(self, plan: Plan, what: Preparation, root: Value, start: int, title: str) -> Request:
        """The request for this preparation; one that is there already is shared."""
        for known in self.requests:
            if known.what == what and known.root is root and known.start == start:
                return known
        offsets = {name: self.reserve(size) for name, size in what.buffers}
        new = Request(plan, what, root, start, offsets, title)
        self.requests.append(new)
        return new

    def emit(self, b: FunctionBuilder, lowering: Lowering, region: Val, place: Callable[[Value], Val], call: Calls) -> None:
        """Emits all requests in a straight line; the memory is at `region`."""
        for request in self.requests:
            request.bind(b, region)
            request.emit(b, lowering, region, place(request.root), call)


@dataclass(frozen=True)
class Steady:
    """A value that does not change: where it can be prepared, and which value it is there."""

    spot: Spot
    root: Value


def own_stages(plan: Plan, prepared: Collection[str], cache_bytes: int) -> dict[str, Stage]:
    """The stages that each thread runs for itself, before its blocks of the one stage that reads what they fill, by the buffer that this is: where it stays
    in the thread's cache, of `cache_bytes`, with what else the thread has to itself, and is soon done beside what all threads divide. Not of what is
    `prepared`.
    """
    found: dict[str, Stage] = {}
    sizes = dict(plan.shared)
    taken = {s.function: aligned_size(plan.scratch_bytes) for s in plan.stages}
    for stage in plan.stages:
        *reads, name = _named(stage)
        readers = [s for s in plan.stages if name in s.buffers and s is not stage]
        if not stage.by_each or name not in sizes or name in prepared or len(readers) != 1 or any(n in sizes for n in reads):
            continue
        (reader,) = readers
        size = taken[reader.function] + aligned_size(sizes[name])
        if size <= cache_bytes and stage.blocks * stage.flops <= _MOST_BY_EACH * reader.blocks * reader.flops:
            found[name], taken[reader.function] = stage, size
    return found


def run_stages(
    b: FunctionBuilder,
    call: Calls,
    plan: Plan,
    stages: tuple[Stage, ...],
    own: Mapping[str, Stage],
    table: Mapping[str, Val],
    reach: Reach | None = None,
) -> None:
    """Calls stages of a plan in order, with the places of their buffers in `table`.

    Args:
        own: see `own_stages`.
        reach: what the last stage touches, if it is known.
    """
    for stage in stages:
        if stage in own.values():
            continue
        first = {n: s for n, s in own.items() if n in stage.buffers}
        names, private = _arguments(plan, stage, first)
        buffers = [table[n] for n in names]
        call.blocks(b, stage.function, buffers, stage.blocks, stage.blocks * stage.flops, private, reach if stage is stages[-1] else None)


def _arguments(plan: Plan, stage: Stage, first: Mapping[str, Stage]) -> tuple[tuple[str, ...], Private | None]:
    """The buffers of a stage and of those that a thread runs first, by name, and what it has to itself, if that is anything."""
    local: dict[str, Local] = {}
    nbytes = 0
    if "scratch" in stage.buffers:
        local["scratch"], nbytes = Local(0), aligned_size(plan.scratch_bytes)
    for name in first:
        local[name], nbytes = Local(nbytes), nbytes + aligned_size(dict(plan.shared)[name])
    names = (*stage.buffers, *stage.extra)
    if not local:
        return names, None
    outside = tuple(dict.fromkeys(n for s in (stage, *first.values()) for n in (*s.buffers, *s.extra) if n not in local))

    def arguments(s: Stage) -> tuple[Argument, ...]:
        return tuple(local[n] if n in local else outside.index(n) for n in (*s.buffers, *s.extra))

    return outside, Private(arguments(stage), nbytes, tuple(First(s.function, arguments(s), s.blocks) for s in first.values()))


def title_of(node: Node) -> str:
    """A contraction in the printed plan."""
    return f"{node.op} {', '.join(str(v.type) for v in node.operands)}"
