"""Properties of all passes on random graphs: valid before and after, and the same results to the bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from graphcell.ir.evaluate import evaluate_graph
from graphcell.ir.graph import Graph, structural_key
from graphcell.ir.op import Array
from graphcell.ir.text import parse, print_graph
from graphcell.ir.verify import verify
from graphcell.passes.eliminate_dead import eliminate_dead
from graphcell.passes.fold import fold
from graphcell.passes.hoist_invariant import hoist_invariant
from graphcell.passes.inline import inline
from graphcell.passes.merge_common import merge_common
from graphcell.passes.pipeline import run_pipeline
from graphcell.passes.simplify import simplify
from tests.passes.cases import random_array, same_bits
from tests.passes.random_graphs import random_graph

PASSES: tuple[Callable[[Graph], Graph], ...] = (
    inline,
    fold,
    simplify,
    merge_common,
    hoist_invariant,
    eliminate_dead,
)
SEEDS = range(60)


def results(graph: Graph, inputs: Sequence[Array]) -> tuple[Array, ...]:
    with np.errstate(all="ignore"):
        return evaluate_graph(graph, inputs)


def assert_same(before: Graph, after: Graph, inputs: Sequence[Array], what: str) -> None:
    verify(after)
    pairs = zip(results(before, inputs), results(after, inputs), strict=True)
    for k, (x, y) in enumerate(pairs):
        assert same_bits(x, y), f"{what} changes output {k} from\n{x}\nto\n{y}\n{before}\n{after}\n{inputs}"


@pytest.mark.slow
@pytest.mark.parametrize("exact", [True, False], ids=["exact", "special"])
@pytest.mark.parametrize("seed", SEEDS)
def test_passes_keep_results(seed: int, exact: bool) -> None:
    graph, sample = random_graph(seed, exact)
    verify(graph)
    rng = np.random.default_rng(seed)
    others = [] if exact else [[random_array(rng, v.type) for v in graph.inputs] for _ in range(2)]
    for inputs in [sample, *others]:
        for run in PASSES:
            assert_same(graph, run(graph), inputs, run.__name__)
        assert_same(graph, run_pipeline(graph)[0], inputs, "the pipeline")


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_text_round_trip(seed: int) -> None:
    graph, _ = random_graph(seed, exact=False)
    text = print_graph(graph)
    again = parse(text)
    verify(again)
    assert structural_key(again) == structural_key(graph)
    assert print_graph(again) == text


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_eliminating_twice_is_eliminating_once(seed: int) -> None:
    graph, _ = random_graph(seed, exact=True)
    once = eliminate_dead(graph)
    assert eliminate_dead(once) is once


@pytest.mark.parametrize("seed", SEEDS)
def test_merged_graphs_hold_no_equal_nodes(seed: int) -> None:
    graph, _ = random_graph(seed, exact=True)
    merged = merge_common(graph)
    assert merge_common(merged) is merged
    assert merged.count_nodes() <= graph.count_nodes()
