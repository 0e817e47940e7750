"""Which blocks cover a number of rows: for every number up to thousands, and how many kinds of blocks that makes."""

from __future__ import annotations

import pytest

from graphcell.runtime.block_sizes import HEAVY, HEAVY_WITH_WEIGHTS, IN_STAGES, LIGHT, Sizes, exact_plan, plan, sizes_for, sizes_in_stages
from graphcell.runtime.blocks import MOST_BLOCKS


@pytest.mark.parametrize("sizes", [LIGHT, Sizes(IN_STAGES, 0.5), sizes_in_stages(1e6, 1e6, False), Sizes(frozenset({2, 3}), 1)])
def test_exact_plans(sizes: Sizes) -> None:
    for rows in (2, 3, 5, 31, 100, 255, 256, 257, 1000, 4097):
        pieces = exact_plan(rows, sizes)
        assert [start for start, _ in pieces] == [sum(size for _, size in pieces[:k]) for k in range(len(pieces))]
        assert sum(size for _, size in pieces) == rows and all(size in sizes.rows for _, size in pieces)


def test_where_weights_are_many_all_blocks_of_a_call_are_alike() -> None:
    """As few as can be; hardly any row is computed twice, or none is there for."""
    for rows in range(1, 500):
        pieces = plan(rows, HEAVY_WITH_WEIGHTS)
        (size,) = {size for _, size in pieces}
        assert len(pieces) == -(-rows // max(HEAVY_WITH_WEIGHTS.rows)) and size * len(pieces) - rows < 2 * len(pieces)
        assert {row for start, _ in pieces for row in range(start, start + size)} >= set(range(rows))
        assert all(start >= 0 and (start + size <= rows or len(pieces) == 1) for start, _ in pieces)


def test_weights_are_many_for_what_is_done_with_them() -> None:
    """Fewer are so if no second cache has place for them."""
    assert sizes_for(1e6, 2e5) is sizes_for(1e8, 3e5) is HEAVY
    assert sizes_for(2e5, 2e5) is sizes_for(1e6, 3e5) is HEAVY_WITH_WEIGHTS
    assert sizes_for(1e4, 1e4) is LIGHT


@pytest.mark.slow
def test_blocks_with_more_rows_than_are_left() -> None:
    """Where a block costs as much as many rows: one does for as many as the largest has, and no more than an eighth of its rows are too many."""
    sizes = sizes_in_stages(1e6, 1e6, True)
    largest = max(sizes.rows)
    for rows in range(1, 4 * largest):
        pieces = exact_plan(rows, sizes)
        start, size = pieces[-1]
        assert start < rows <= start + size and 8 * (start + size - rows) <= rows
        assert [at for at, _ in pieces] == [sum(n for _, n in pieces[:k]) for k in range(len(pieces))]
        assert len(pieces) == -(-rows // largest)


@pytest.mark.slow
def test_there_are_not_too_many_kinds_of_blocks() -> None:
    """Each size for a call with one block, and those of calls with several."""
    kinds = {(size, len(pieces) > 1) for rows in range(1, 3000) for pieces in [exact_plan(rows, sizes_in_stages(1e6, 1e6, True))] for _, size in pieces}
    assert len(kinds) <= MOST_BLOCKS - 1


def test_plans_that_there_are_none_of() -> None:
    from graphcell.passes.row_wise import NotRowWise

    with pytest.raises(NotRowWise):
        exact_plan(1, Sizes(frozenset({2, 3}), 1))
