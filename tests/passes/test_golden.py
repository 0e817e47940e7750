"""Each pass on small graphs: text in, text out (tests/passes/golden), and the same results to the bit."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from graphcell.ir.graph import Graph
from graphcell.passes.eliminate_dead import eliminate_dead
from graphcell.passes.fold import fold
from graphcell.passes.hoist_invariant import hoist_invariant
from graphcell.passes.inline import inline
from graphcell.passes.log_of_softmax import log_of_softmax
from graphcell.passes.merge_common import merge_common
from graphcell.passes.part_by_part import part_by_part
from graphcell.passes.simplify import simplify
from tests.passes.cases import Case, cases, check

FILES: dict[str, tuple[Callable[[Graph], Graph], ...]] = {
    "elementwise": (simplify, eliminate_dead),
    "movement": (simplify, eliminate_dead),
    "reduction": (simplify, eliminate_dead),
    "control": (simplify, eliminate_dead),
    "fold": (fold, eliminate_dead),
    "inline": (inline, eliminate_dead),
    "part_by_part": (part_by_part, simplify, eliminate_dead),
    "log_of_softmax": (log_of_softmax, eliminate_dead),
    "merge_common": (merge_common,),
    "hoist_invariant": (hoist_invariant,),
    "eliminate_dead": (eliminate_dead,),
}
ALL = [(stem, case) for stem in FILES for case in cases(stem)]


@pytest.mark.parametrize(("stem", "case"), ALL, ids=[f"{stem}: {case.name}" for stem, case in ALL])
def test_golden(stem: str, case: Case, update_golden: bool) -> None:
    def run(graph: Graph) -> Graph:
        for step in FILES[stem]:
            graph = step(graph)
        return graph

    check(case, run, update_golden)


@pytest.mark.parametrize("stem", FILES)
def test_a_second_run_changes_nothing(stem: str) -> None:
    from graphcell.ir.text import parse

    for case in cases(stem):
        after = parse(case.after)
        for step in FILES[stem]:
            assert step(after) is after, case.name
