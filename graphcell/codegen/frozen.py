"""What depends only on frozen inputs is computed once and kept.

Frozen inputs are those of which the caller says that they seldom change: weights of a graph that does not train. Enters: a legal Graph and
the positions of its frozen inputs. Leaves: a `Partition`: the graph `once`, of all nodes worth keeping that depend on frozen inputs and
constants alone, and the graph `main` of the others, in which the values kept are further inputs. `emit_prepare` emits the function
`prepare`, which runs `once` and the preparations of contractions (prepare.py):

`i32 prepare(ptr inputs, ptr changed, ptr arena, ptr parallel_for, ptr call_host)`: `changed` points to one byte for each source of the
program (`Kept.sources`) and one that is set when all is new. Only what depends on a source whose byte is not 0 is computed again.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from graphcell.codegen.fuse import Analysis
from graphcell.codegen.legalize import is_virtual
from graphcell.codegen.llvm.text import I8, I32, PTR, FunctionBuilder, Val, const
from graphcell.codegen.lowering import Calls, Lowering
from graphcell.codegen.prepare import Request, Spot
from graphcell.codegen.program import Kept
from graphcell.ir.graph import Graph, Node, Value
from graphcell.ops.creation import Constant
from graphcell.records import dataclass

MOST_GROWTH = 2
"""A value is kept if it is at most so many times as large as the frozen inputs that it comes from."""
LEAST_BYTES = 2048
"""Programs that would keep less than this keep nothing."""


@dataclass(frozen=True)
class Partition:
    """A graph in two: `once` gives the values `kept`, in this order; `main` has them as inputs after its own.

    Attributes:
        sources: of each value that depends on frozen inputs and constants alone: the positions of these inputs.
    """

    main: Graph
    once: Graph
    kept: tuple[Value, ...]
    sources: dict[Value, frozenset[int]]


def partition(graph: Graph, frozen: Iterable[int]) -> Partition:
    """Cuts a legal graph. Inputs of which nothing can be made are frozen all the same: contractions can prepare them."""
    sources = {graph.inputs[k]: frozenset((k,)) for k in frozen}
    info = Analysis(graph)
    read = {v for n in graph.nodes for v in n.operands}
    once: list[Node] = []
    moved: set[Node] = set()
    for node in graph.nodes:
        if not all(v in sources for v in node.operands):
            continue
        found = frozenset(k for v in node.operands for k in sources[v])
        if is_virtual(node.op) or isinstance(node.op, Constant):
            once.append(node)
        elif _is_kept(node, sum(v.type.nbytes for v in node.results if v in read), found, graph) and info.outputs.isdisjoint(node.results):
            once.append(node)
            moved.add(node)
        else:
            continue
        sources.update(dict.fromkeys(node.results, found))
    main = [n for n in graph.nodes if n not in moved]
    used = {info.root_of_memory(v) for n in main if not is_virtual(n.op) for v in n.operands}
    kept = tuple(v for n in graph.nodes if n in moved for v in n.results if v in used)
    return Partition(
        Graph(graph.name, (*graph.inputs, *kept), main, graph.outputs), Graph(f"{graph.name}.prepare", graph.inputs, once, kept), kept, sources
    )


def _is_kept(node: Node, nbytes: int, found: frozenset[int], graph: Graph) -> bool:
    """Whether the results of a node, of so many bytes, are worth keeping; it depends on the inputs `found`."""
    if node.op.has_effect or node.op.regions or not node.results:
        return False
    return nbytes <= MOST_GROWTH * sum(graph.inputs[k].type.nbytes for k in found)


class UnitLike(Protocol):
    """A step of a frame, as lower.py has them."""

    node: Node | None

    def reads(self, info: Analysis) -> list[Value]: ...
    def writes(self) -> list[Value]: ...


U = TypeVar("U", bound=UnitLike)


class FrameLike(Protocol[U]):
    """The frame of the graph `once`, as lower.py has it."""

    lowering: Lowering
    info: Analysis
    place: dict[Value, Val]
    arena_bytes: int

    @property
    def units(self) -> Sequence[U]: ...
    def plan(self, given: set[Value]) -> None: ...
    def set_places(self, b: FunctionBuilder, arena: Val) -> None: ...
    def emit_unit(self, b: FunctionBuilder, unit: U, arena: Val, call: Calls) -> None: ...


def emit_prepare(frame: FrameLike[U], cut: Partition, spot: Spot, offsets: dict[Value, int]) -> Kept:
    """Emits `prepare`; `offsets` says where in the kept memory each value lies that the main graph reads itself."""
    lowering, inputs = frame.lowering, cut.once.inputs
    params = [("inputs", PTR), ("changed", PTR), ("arena", PTR), ("parallel_for", PTR), ("call_host", PTR)]
    b = FunctionBuilder(lowering.module, "prepare", params, I32, internal=False)
    call = Calls(lowering, b, len(inputs))
    region = call.kept(b)
    for k, v in enumerate(inputs):
        frame.place[v] = b.load(b.gep(b.args["inputs"], k, PTR), PTR)
    for v, offset in offsets.items():
        frame.place[v] = b.gep(region, offset, I8)
    frame.plan(set(inputs) | set(offsets))
    frame.set_places(b, b.args["arena"])
    units = frame.units
    reasons = _reasons(frame, cut, spot.requests, set(offsets))
    sources = sorted(frozenset[int]().union(*reasons))
    for unit, reason in zip(units, reasons, strict=False):
        if _is_constant(unit):
            frame.emit_unit(b, unit, b.args["arena"], call)
        else:
            with b.if_then(_changed(b, sources, reason)):
                frame.emit_unit(b, unit, b.args["arena"], call)
    for request, reason in zip(spot.requests, reasons[len(units) :], strict=True):
        with b.if_then(_changed(b, sources, reason)):
            request.emit(b, lowering, region, frame.place[request.root], call)
    call.finish(b)
    return Kept(spot.nbytes, tuple(sources), len(inputs), frame.arena_bytes)


def _is_constant(unit: UnitLike) -> bool:
    return unit.node is not None and isinstance(unit.node.op, Constant)


def _changed(b: FunctionBuilder, sources: Sequence[int], reason: frozenset[int]) -> Val:
    """Whether one of the inputs `reason` changed; for none, whether all is new."""
    places = [sources.index(k) for k in sorted(reason)] or [len(sources)]
    flags = [b.load(b.gep(b.args["changed"], k, I8), I8) for k in places]
    return b.icmp("ne", functools.reduce(b.or_, flags), const(0, I8))


def _reasons(frame: FrameLike[U], cut: Partition, requests: Sequence[Request], lasting: set[Value]) -> list[frozenset[int]]:
    """The inputs for whose sake each step, and then each request, must run again.

    Steps that hand on values which do not last run together, for the sake of any of their inputs.
    """
    reads = [*(u.reads(frame.info) for u in frame.units), *([r.root] for r in requests)]
    writes = [*(u.writes() for u in frame.units), *([] for _ in requests)]
    sources = dict(cut.sources)
    for node in frame.info.graph.nodes:  # what fusion computes again has values of its own
        found = frozenset[int]().union(*(sources[v] for v in node.operands))
        sources.update((v, found) for v in node.results if v not in sources)
    reasons = [frozenset(k for v in values for k in sources[v]) for values in reads]
    together: list[set[int]] = []
    passing = {v for u, values in zip(frame.units, writes, strict=False) if not _is_constant(u) for v in values} - lasting
    for v in passing:
        users = {k for k, (r, w) in enumerate(zip(reads, writes, strict=True)) if v in r or v in w}
        joined = [users, *(t for t in together if t & users)]
        together = [t for t in together if not t & users] + [set[int]().union(*joined)]
    for items in together:
        shared = frozenset[int]().union(*(reasons[k] for k in items))
        for k in items:
            reasons[k] = shared
    return reasons
