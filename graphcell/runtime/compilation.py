"""From a graph to loaded machine code, by way of the caches.

Enters: a Graph and which outputs are written back into which inputs. Leaves: a `Compilation`, which a person can look into, and the Library
with the code. A program that an earlier process compiled is loaded without running a pass; who then looks inside has the passes run
again.
"""

from __future__ import annotations

import time
from dataclasses import field, replace
from typing import TYPE_CHECKING

from graphcell.codegen.llvm.processor import Target
from graphcell.codegen.program import Program
from graphcell.collection import rarely_collected
from graphcell.ir.graph import Graph
from graphcell.locks import whole
from graphcell.records import dataclass
from graphcell.runtime.cache import ObjectCache, open_cache
from graphcell.runtime.loader import Library, host, load_object
from graphcell.runtime.program_cache import keep_program, load_program, program_key
from graphcell.runtime.translation import Translation, kept_objects

if TYPE_CHECKING:
    from graphcell.codegen.lowering import Translates
    from graphcell.passes.pipeline import PassRecord

Updates = tuple[tuple[int, int], ...]
"""(output position, input position): that output is written into the buffer of that input."""


@dataclass
class Listing:
    """All stages of a compilation: the graph after the passes, what each pass did, the program with its text and steps."""

    optimized: Graph
    passes: list[PassRecord]
    program: Program


@dataclass
class Compilation:
    """What there is to see of a compilation.

    Attributes:
        frozen: positions of the inputs that seldom change.
        program: what runs; loaded from the cache it has neither text nor steps, which `listing` has in any case.
        seconds: what each stage took.
        from_cache: whether the machine code was there already.
    """

    name: str
    graph: Graph
    updates: Updates
    frozen: tuple[int, ...]
    target: Target
    program: Program
    seconds: dict[str, float] = field(default_factory=dict)
    from_cache: bool = False
    _listing: Listing | None = None

    @property
    def listing(self) -> Listing:
        """All stages; made now if the program came from the cache."""
        if self._listing is None:
            self._listing = _lower(self.name, self.graph, self.updates, self.frozen, self.target, {})
        return self._listing

    @property
    def optimized(self) -> Graph:
        """The graph after the passes."""
        return self.listing.optimized

    @property
    def passes(self) -> list[PassRecord]:
        """What each pass did."""
        return self.listing.passes


@rarely_collected
def compile_program(graph: Graph, updates: Updates, name: str, frozen: tuple[int, ...] = (), keeps_denormals: bool = False) -> tuple[Compilation, Library]:
    """Compiles `graph` for this machine, or loads what an earlier compilation kept.

    Args:
        frozen: positions of inputs that seldom change, see `lower`.
        keeps_denormals: numbers too small for all their digits stay what they are.
    """
    target, cache, seconds = host(), open_cache(), dict[str, float]()
    if keeps_denormals:
        target = replace(target, flushes=False)
    start = time.perf_counter()
    key = program_key(graph, (updates, frozen), target) if cache.directory is not None else None
    found = _load(cache, key) if key is not None else None
    if found is not None:
        program, library = found
        seconds["loading"] = time.perf_counter() - start
        return Compilation(name, graph, updates, frozen, target, program, seconds, from_cache=True), library
    with Translation(cache, target) as translation:
        listing = _lower(name, graph, updates, frozen, target, seconds, translation)
        start = time.perf_counter()
        objects = translation.objects()
    library = load_object(*objects)
    if key is not None:
        keep_program(cache, key, listing.program, translation.keys)
    seconds["machine code"] = time.perf_counter() - start
    return Compilation(name, graph, updates, frozen, target, listing.program, seconds, translation.from_cache, listing), library


def _load(cache: ObjectCache, key: str) -> tuple[Program, Library] | None:
    found = load_program(cache, key)
    objects = kept_objects(cache, found[1]) if found is not None else None
    if found is None or objects is None:
        return None
    return found[0], load_object(*objects)


def _lower(
    name: str, graph: Graph, updates: Updates, frozen: tuple[int, ...], target: Target, seconds: dict[str, float], translates: Translates | None = None
) -> Listing:
    """Runs the passes and lowers the result."""
    with whole:
        from graphcell.codegen.lower import lower  # not needed where the program is in the cache, like all of the code generator
        from graphcell.passes.pipeline import run_pipeline

    start = time.perf_counter()
    optimized, passes = run_pipeline(graph, name)
    lowering = time.perf_counter()
    program = lower(optimized, updates, target, frozen, translates)
    seconds["passes"], seconds["kernels"] = lowering - start, time.perf_counter() - lowering
    return Listing(optimized, passes, program)
