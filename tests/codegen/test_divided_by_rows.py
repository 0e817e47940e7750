"""Products of which threads divide the rows: which do, and that any range of blocks is what it says (test_contraction.py has the reference)."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from graphcell.codegen.llvm.matmul_schedule import schedule
from graphcell.codegen.llvm.matmul_spec import dense_matmul
from tests.codegen.plans import TARGETS, storage
from tests.codegen.test_contraction import Case, build, check

CACHE = 1 << 20
DIVIDED = [
    Case(400, 165, 165), Case(412, 260, 200, transpose_b=True), Case(500, 300, 130, "double"), Case(600, 200, 64, batch=(3,), b_batch=(1,)),
    Case(300, 700, 300, share_b=True), Case(601, 100, 500, transpose_a=True), Case(640, 130, 120, "bfloat"),
]  # fmt: skip


@pytest.fixture(autouse=True, params=TARGETS)
def width(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The bytes of a vector, on one of AMD's processors with a cache of one megabyte, whatever the machine is."""
    monkeypatch.setitem(TARGETS, request.param, replace(TARGETS[request.param], cpu="znver4", l1_bytes=32 << 10, l2_bytes=CACHE))
    return int(request.param)


@pytest.mark.parametrize("case", DIVIDED, ids=str)
def test_right_and_the_same_bits_however_blocks_are_divided(case: Case, width: int) -> None:
    assert schedule(case.spec, TARGETS[width]).rows_first
    check(case, width)


@pytest.mark.parametrize("case", [Case(400, 165, 165), Case(412, 260, 200, transpose_b=True), Case(600, 200, 64, batch=(3,), b_batch=(1,))], ids=str)
def test_the_first_blocks_are_the_first_rows(case: Case, width: int) -> None:
    """The blocks of some rows, one above the other, and no others, are what a range of as many blocks makes."""
    runner, plan = build(case.spec, width), schedule(case.spec, TARGETS[width])
    across, down = plan.grid
    a, b = case.operands()
    shape, dtype = (*case.batch, case.m, case.n), storage(case.kind)
    whole = runner(case.stored(a, b), "c", shape, dtype).reshape(-1, case.n)
    blocks = plan.splits * math.prod(case.batch) * across * down
    for count in (across, blocks // 2 // across * across):
        some = replace(runner, chunks=lambda n, count=count: [(0, count)] if n == blocks else [(0, n)])(case.stored(a, b), "c", shape, dtype)
        rows = round(np.mean(~np.isnan(some.reshape(-1, case.n))) * len(whole))
        assert 0 < rows < len(whole)
        assert some.reshape(-1, case.n)[:rows].tobytes() == whole[:rows].tobytes()


def test_each_block_is_some_columns_of_some_rows(width: int) -> None:
    """Blocks beside each other follow each other, and none makes what another does."""
    case = Case(412, 260, 200, transpose_b=True)
    runner, plan = build(case.spec, width), schedule(case.spec, TARGETS[width])
    across, down = plan.grid
    a, b = case.operands()
    made, last = np.zeros((case.m, case.n), int), np.zeros(case.m, bool)
    for block in range(across * down):
        some = ~np.isnan(replace(runner, chunks=lambda n, k=block: [(k, k + 1)])(case.stored(a, b), "c", made.shape, storage(case.kind)))
        rows, columns = some.any(1), some.any(0)
        assert np.array_equal(some, np.outer(rows, columns))
        assert np.array_equal(rows, last) or block % across == 0
        last, made = rows, made + some
    assert np.all(made == 1)


def test_wide_products_of_few_rows_are_divided_by_columns(width: int) -> None:
    """Each thread would have to pack all of B, and read it where another wrote half of it."""
    for m, n, k in ((200, 2000, 500), (400, 900, 900)):
        assert not schedule(dense_matmul(m, n, k), TARGETS[width]).rows_first
    assert not schedule(replace(dense_matmul(400, 400, 60, transpose_b=True), mirrored=True), TARGETS[width]).rows_first


@pytest.mark.parametrize(("m", "n", "k"), [(16, 112, 448), (24, 200, 160), (32, 96, 256), (32, 160, 64)])
def test_steps_of_loops_have_all_columns_of_some_rows(m: int, n: int, k: int, width: int) -> None:
    """So that threads which go through a loop need not wait for each other: where the cache holds the matrix for each of them."""
    spec = replace(dense_matmul(m, n, k, share_b=True), for_team=True)
    plan = schedule(spec, TARGETS[width])
    assert plan.grid[0] == 1 < plan.grid[1]
    assert math.prod(schedule(spec, replace(TARGETS[width], l2_bytes=4 * n * k)).grid) >= 4  # columns are divided, too, if there are but two blocks of rows
