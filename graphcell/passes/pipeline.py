"""The pipeline: which passes run in which order, verified, timed and dumped.

Enters: a Graph, differentiated if a gradient is wanted. Leaves: an equal Graph for codegen, and a record of
each pass. With `config.verify` every graph is verified before and after every pass; with `save_graphs` each
pass that changed something writes the result as `NN_pass_graph_SSSS.ir`, where NN is the place in the
pipeline and SSSS the number of the run.
"""

from __future__ import annotations

import itertools
import os
import re
import time
from collections.abc import Callable

from graphcell.context import config
from graphcell.errors import ExecutionError, VerificationError
from graphcell.ir.graph import Graph
from graphcell.ir.text import print_graph
from graphcell.ir.verify import verify
from graphcell.passes.accumulate import accumulate
from graphcell.passes.attention import fuse_attention
from graphcell.passes.choose_parts import choose_parts
from graphcell.passes.decompose import decompose
from graphcell.passes.divide_once import divide_once
from graphcell.passes.eliminate_dead import eliminate_dead
from graphcell.passes.factor_sums import factor_sums
from graphcell.passes.find_in_rows import find_in_rows
from graphcell.passes.grow_in_place import grow_in_place
from graphcell.passes.hoist_invariant import hoist_invariant
from graphcell.passes.hoist_scanned import hoist_scanned
from graphcell.passes.inline import inline
from graphcell.passes.interleave import interleave
from graphcell.passes.layout import channels_last
from graphcell.passes.log_of_softmax import log_of_softmax
from graphcell.passes.merge_common import merge_common
from graphcell.passes.part_by_part import part_by_part
from graphcell.passes.places_of_largest import places_of_largest
from graphcell.passes.recompute import recompute
from graphcell.passes.simplify import simplify
from graphcell.passes.take_apart import take_apart
from graphcell.records import dataclass

Pass = Callable[[Graph], Graph]

PIPELINE: tuple[tuple[str, Pass], ...] = (
    ("inline", inline),
    ("eliminate_dead", eliminate_dead),
    ("simplify", simplify),
    ("eliminate_dead", eliminate_dead),
    ("fuse_attention", fuse_attention),
    ("hoist_invariant", hoist_invariant),
    ("hoist_scanned", hoist_scanned),
    ("channels_last", channels_last),
    ("decompose", decompose),
    ("hoist_invariant", hoist_invariant),
    ("find_in_rows", find_in_rows),
    ("interleave", interleave),
    ("eliminate_dead", eliminate_dead),
    ("log_of_softmax", log_of_softmax),
    ("divide_once", divide_once),
    ("factor_sums", factor_sums),
    ("eliminate_dead", eliminate_dead),
    ("accumulate", accumulate),
    ("eliminate_dead", eliminate_dead),
    ("take_apart", take_apart),
    ("part_by_part", part_by_part),
    ("merge_common", merge_common),
    ("simplify", simplify),
    ("choose_parts", choose_parts),
    ("eliminate_dead", eliminate_dead),
    ("recompute", recompute),
    ("places_of_largest", places_of_largest),
    ("grow_in_place", grow_in_place),
    ("eliminate_dead", eliminate_dead),
)
"""Dead code goes before anything else looks at it (a gradient leaves much), and again before passes that ask how often a value is used. Loops are looked
through again for what does not change once checks of indices are written out.
"""

_DUMPED_ELEMENTS = 1024
_runs = itertools.count()


@dataclass(frozen=True, slots=True)
class PassRecord:
    """What one pass did: its name, its seconds, and the nodes (regions included) before and after it."""

    name: str
    seconds: float
    nodes_before: int
    nodes_after: int
    changed: bool


def run_pipeline(
    graph: Graph, name: str = "", passes: tuple[tuple[str, Pass], ...] = PIPELINE, dumps: bool = True
) -> tuple[Graph, list[PassRecord]]:
    """`graph` after all `passes`, and their records. `name` is used in the names of dumped files; default:
    the graph's. `dumps=False`: no files, whatever is configured.

    Raises:
        VerificationError: under `config.verify`, if a graph is broken; the message names the pass.
        ExecutionError: a dump cannot be written.
    """
    dump = _Dump.begin(name or graph.name) if dumps else None
    records: list[PassRecord] = []
    if config.verify:
        verify(graph)
    if dump is not None:
        dump.write("input", graph)
    count = graph.count_nodes()
    for step, run in passes:
        begin = time.perf_counter()
        after = run(graph)
        seconds = time.perf_counter() - begin
        changed = after is not graph
        before, count = count, after.count_nodes() if changed else count
        records.append(PassRecord(step, seconds, before, count, changed))
        if changed and config.verify:
            _verify_after(step, after)
        if changed and dump is not None:
            dump.write(step, after)
        elif dump is not None:
            dump.step += 1
        graph = after
    return graph, records


def _verify_after(step: str, graph: Graph) -> None:
    try:
        verify(graph)
    except VerificationError as e:
        raise VerificationError(f"after the pass {step}: {e.message}", span=e.span) from e


class _Dump:
    """The files of one run."""

    def __init__(self, path: str, graph_name: str):
        self.path = path
        self.graph_name = re.sub(r"[^\w.-]+", "_", graph_name)[:80]
        self.step = 0
        self.run = 0

    @staticmethod
    def begin(graph_name: str) -> _Dump | None:
        """None where nothing is to be dumped."""
        return _Dump(config.graph_dump_path(), graph_name) if config.graph_dump_level() > 0 else None

    def write(self, step: str, graph: Graph) -> None:
        """Writes one file, whole or not at all, over no other."""
        text = print_graph(graph, elide_over=_DUMPED_ELEMENTS)
        try:
            os.makedirs(self.path, exist_ok=True)
            import tempfile

            handle, temporary = tempfile.mkstemp(prefix=".", suffix=".ir", dir=self.path)
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as f:
                    f.write(text)
                self.publish(temporary, step)
            finally:
                os.unlink(temporary)
        except OSError as e:
            raise ExecutionError(
                f"cannot write the graph to {self.path}: {e.strerror}", hint="choose another save_graphs_path"
            ) from e
        self.step += 1

    def publish(self, temporary: str, step: str) -> None:
        """Links the written file to its name. The first file of a run looks for a number that is free."""
        if self.step == 0:
            self.run = next(_runs)
        while True:
            final = os.path.join(self.path, f"{self.step:02}_{step}_{self.graph_name}_{self.run:04}.ir")
            try:
                os.link(temporary, final)
                return
            except FileExistsError:
                if self.step:
                    os.replace(temporary, final)  # the run's number is ours: an older file of another process
                    open(temporary, "x").close()
                    return
                self.run = next(_runs)
