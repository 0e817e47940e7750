"""Products of few rows: how their tile and the way to read B are chosen, against numpy in float64 on memory with guard pages, and what prepared weights in
half precision take."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import graphcell as ms
from graphcell import Tensor, nn
from graphcell.codegen.llvm.contraction import has_few_ways
from graphcell.codegen.llvm.few_rows import FEW_ROWS, tile_for_few_rows
from graphcell.codegen.llvm.matmul import dense_matmul, emit_matmul
from graphcell.codegen.llvm.matmul_dot import uses_dot
from graphcell.codegen.llvm.matmul_schedule import Schedule, schedule
from graphcell.codegen.llvm.matmul_spec import Operand, in_pairs, with_prepared_weights
from graphcell.codegen.llvm.target import Target
from graphcell.codegen.llvm.text import Module
from tests.codegen.plans import TARGETS, compile_plan, with_chunks
from tests.codegen.test_contraction import HOST, Case, check

WIDE = replace(TARGETS[HOST], triple="x86_64-unknown-linux-gnu", cpu="sapphirerapids", vector_bytes=64, l1_bytes=48 << 10, l2_bytes=2 << 20, l3_bytes=64 << 20, features="+avx512f")
"""A processor of a known kind, whatever runs the tests."""
ZEN3 = replace(WIDE, cpu="znver3", vector_bytes=32, l1_bytes=32 << 10, l2_bytes=512 << 10, l3_bytes=32 << 20, features="+avx2,+fma")
ALIKE = [2, 7, 16, 31, 48, 77, FEW_ROWS]


def plan_of(m: int, k: int, n: int, kind: str = "float", *, turned: bool = False, prepared: bool = False, target: Target = WIDE) -> Schedule:
    spec = dense_matmul(m, n, k, kind, transpose_b=turned)
    return schedule(with_prepared_weights(spec) if prepared else spec, target)


# -- the choice ------------------------------------------------------------------------------------------------------------
def test_a_b_that_the_l2_cache_holds_is_read_as_it_lies() -> None:
    for m in (8, 16, 24, 32, 48, 64, 96):
        plan = plan_of(m, 256, 1024)
        assert plan.pack_b == "no" and plan.tile.rows == 8, m


def test_a_b_from_further_away_is_read_by_one_tall_tile_or_packed() -> None:
    assert plan_of(8, 900, 1024).tile.rows == 8 and plan_of(8, 900, 1024).pack_b == "no"
    assert plan_of(64, 900, 1024).pack_b == "block" and plan_of(64, 900, 1024).tile.rows == 8
    assert plan_of(16, 2000, 768, prepared=True).tile.rows == 16  # all rows at once, since each column waits for memory
    assert plan_of(16, 100, 768, prepared=True).tile.rows < 16  # for nothing is to be waited for here


@pytest.mark.parametrize("m", [2, 16, 48])
def test_a_large_b_is_read_row_by_row(m: int) -> None:
    plan = plan_of(m, 2048, 2048)
    assert plan.pack_b == "no" and plan.depth <= 16 and plan.rows_ahead == 0
    assert plan_of(64, 2048, 2048).pack_b == "block"
    assert plan_of(12, 1500, 1000).depth <= 16 and plan_of(24, 1500, 1024).depth <= 16 and plan_of(40, 1500, 1000).pack_b == "block"
    assert plan_of(8, 1024, 1024).depth == 1024 and plan_of(16, 1024, 1024).depth <= 16  # whole pages apart, though it is smaller
    assert plan_of(16, 1024, 1000).depth == 1024


def test_a_large_b_of_few_rows_is_read_row_by_row() -> None:
    for m in (1, 4):
        assert plan_of(m, 33, 60000).depth == 16 and plan_of(m, 31, 60000).depth == 31 and plan_of(m, 33, 6000).depth == 33


def test_row_tiles_ask_for_the_columns_that_follow() -> None:
    for m in (16, 24, 64):
        assert plan_of(m, 1000, 2000).fetches and "asked for by the others" in str(plan_of(m, 1000, 2000))
    assert not plan_of(24, 1024, 2048).fetches and not plan_of(64, 1024, 2048).fetches  # whose rows are whole pages apart
    assert not plan_of(96, 300, 500).fetches  # in the L2 cache
    assert not plan_of(8, 1000, 2000).fetches and not plan_of(300, 1000, 2000).fetches  # too few row tiles and too many


def test_short_vectors_read_by_rows_what_lies_whole_pages_apart() -> None:
    target = replace(WIDE, vector_bytes=32, features="+avx2,+fma")
    for m in (2, 8):
        assert plan_of(m, 1024, 1024, target=target).depth <= 16 and plan_of(m, 700, 768, target=target).depth == 700
    assert plan_of(24, 900, 1000, target=target).pack_b == "no" and plan_of(32, 900, 1000, target=target).pack_b == "block"


def test_a_cache_of_few_ways_holds_few_rows_that_share_its_sets() -> None:
    more = replace(ZEN3, l1_bytes=48 << 10)
    for m, k, n in ((1024, 1024, 128), (500, 512, 64)):
        assert plan_of(m, k, n, target=ZEN3).tile.rows <= 4 < plan_of(m, k, n, target=more).tile.rows
    assert plan_of(1000, 1000, 128, target=ZEN3).tile.rows > 4 and plan_of(1000, 1024, 128, target=replace(ZEN3, vector_bytes=64, features="+avx512f")).tile.rows > 4
    for other in (replace(ZEN3, cpu="haswell"), replace(ZEN3, cpu="apple-m1", triple="arm64-apple-darwin", vector_bytes=16, features="")):
        assert not has_few_ways(other)  # where it was not measured
    assert not dense_matmul(1, 128, 1024).a_rows_alias
    panels = [p.columns_per_block * p.tile.columns * p.depth * 4 for p in (plan_of(1024, 1024, 1024, target=t) for t in (ZEN3, more))]
    assert panels[0] <= ZEN3.l2_bytes // 3 < panels[1] <= more.l2_bytes // 2


def test_a_b_whose_rows_share_sets_of_few_ways_is_packed_row_by_row() -> None:
    more = replace(ZEN3, l1_bytes=48 << 10)
    for m, k, n in ((64, 1024, 1024), (256, 512, 2048)):
        packing, meanwhile = plan_of(m, k, n, target=ZEN3), plan_of(m, k, n, target=more)
        assert packing.pack_b == meanwhile.pack_b == "block" and meanwhile.packs_meanwhile and not packing.packs_meanwhile
    assert plan_of(64, 1024, 1000, target=ZEN3).packs_meanwhile and plan_of(128, 512, 512, target=ZEN3).packs_meanwhile  # not whole pages apart, and near
    assert plan_of(16, 1024, 1024, target=ZEN3).pack_b == "block" and plan_of(16, 1024, 1024, target=more).pack_b == "no"
    assert plan_of(8, 1024, 1024, target=ZEN3).depth == 8 < plan_of(8, 1024, 1024, target=more).depth == 16


def test_few_rows_of_a_b_are_read_side_by_side_where_they_would_fill_all_ways_of_a_set() -> None:
    more = replace(ZEN3, l1_bytes=48 << 10)
    for n in (2048, 2051, 4097, 1030):  # whole pages, nearly so, and a quarter of some
        assert plan_of(1, 1024, n, target=ZEN3).depth == 8 < plan_of(1, 1024, n, target=more).depth == 16, n
    for n in (3001, 1501):
        assert plan_of(1, 1024, n, target=ZEN3).depth == 16, n


@pytest.mark.parametrize("width", [w for w in TARGETS if w < 64])
@pytest.mark.parametrize("case", [Case(70, 1024, 300), Case(20, 1024, 514), Case(9, 1024, 515), Case(70, 512, 333, "double"), Case(41, 1024, 301, batch=(2,))], ids=str)
def test_products_beside_a_cache_of_few_ways(case: Case, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    target = replace(TARGETS[width], cpu="znver3", l1_bytes=32 << 10, l2_bytes=64 << 10)
    monkeypatch.setitem(TARGETS, width, target)
    plan = schedule(case.spec, target)
    assert plan.pack_b == ("block" if case.m > 12 else "no")
    check(case, width)


def test_rows_that_share_sets_of_few_ways_are_copied_four_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def text(n: int) -> str:
        module = ZEN3.module()
        emit_matmul(module, "matmul", dense_matmul(64, n, 1024, transpose_b=n != 1024), ZEN3)
        return str(module)

    shared, others = text(1024), text(1000)
    monkeypatch.setattr("graphcell.codegen.llvm.matmul._STEPS_AT_ONCE", (4, 4))
    assert text(1024) == shared
    monkeypatch.setattr("graphcell.codegen.llvm.matmul._STEPS_AT_ONCE", (8, 8))
    assert text(1024) != shared and text(1000) == others


def test_what_is_read_of_a_far_b_is_asked_for() -> None:
    assert plan_of(8, 594, 1148).rows_ahead and plan_of(64, 594, 1148).rows_ahead
    assert not plan_of(8, 300, 500).rows_ahead and not plan_of(64, 300, 500).rows_ahead  # in the L2 cache
    assert not plan_of(64, 594, 1148, turned=True).rows_ahead


def test_the_first_tile_packs_what_lies_row_by_row() -> None:
    for m in (64, 300, 1024):
        assert plan_of(m, 1024, 1024).packs_meanwhile and "by the first row tile" in str(plan_of(m, 1024, 1024))
        assert schedule(dense_matmul(m, 1024, 1024, transpose_a=True), WIDE).packs_meanwhile
        assert not plan_of(m, 1024, 1024, turned=True).packs_meanwhile and not plan_of(m, 1024, 1024, prepared=True).packs_meanwhile
    assert not schedule(replace(dense_matmul(300, 300, 400, transpose_b=True), mirrored=True), WIDE).packs_meanwhile


def test_few_steps_write_the_output_row_after_row() -> None:
    assert plan_of(622, 6, 1140, "double").grid[0] == 1 and plan_of(622, 6, 1140, "double").pack_b == "no"
    assert plan_of(2256, 4, 390, "double", turned=True).grid[0] == 1
    assert plan_of(622, 24, 1140).pack_b == "no" and plan_of(622, 25, 1140).pack_b == "block"
    assert plan_of(622, 24, 6000).pack_b == "block"  # which the L2 cache does not hold beside the output


def test_narrow_tiles_do_not_read_b_as_it_lies() -> None:
    for m in range(2, FEW_ROWS + 1):
        for k, n in ((1000, 1000), (333, 1111), (500, 777), (96, 300)):
            plan = plan_of(m, k, n)
            assert plan.pack_b != "no" or plan.tile.vectors >= 3, (m, k, n)


@pytest.mark.parametrize("kind", ["half", "bfloat"])
def test_prepared_halves_stay_halves_where_they_come_from_memory(kind: str) -> None:
    for m in (1, 4, 16):
        plan = plan_of(m, 2048, 2048, kind, turned=True, prepared=True)
        assert plan.pack_b == "shared" and plan.panel_kind == kind and "in halves" in str(plan)
    assert plan_of(256, 2048, 2048, kind, turned=True, prepared=True).panel_kind == "float"
    assert plan_of(1, 2048, 2048, "float", turned=True, prepared=True).panel_kind == "float"
    assert plan_of(1, 2048, 2048, "double", turned=True, prepared=True).panel_kind == "double"


def test_halves_take_half_the_memory() -> None:
    sizes = {}
    for m in (1, 200):
        spec = with_prepared_weights(dense_matmul(m, 2048, 2048, "half", transpose_b=True))
        ((name, sizes[m]),) = emit_matmul(Module(), "matmul", spec, WIDE).shared
        assert name == "packed"
    assert sizes[200] == 4 << 22 and (4 << 22) // 2 <= sizes[1] <= (4 << 22) // 2 + 64


@pytest.mark.parametrize("m", [2, 3, 7, 12, 13, 40])
def test_small_matrices_that_loops_would_turn_are_packed_ahead(m: int) -> None:
    turned, as_it_lies = (dense_matmul(m, 53, 53, "double", transpose_b=flag) for flag in (True, False))
    in_loop = replace(turned, for_team=True)
    assert with_prepared_weights(in_loop).share_b is (m > 2)
    assert not any(with_prepared_weights(spec).share_b for spec in (turned, replace(as_it_lies, for_team=True)))


def test_doubles_are_divided_as_twice_as_many_operations() -> None:
    floats, doubles = (replace(dense_matmul(40, 53, 53, kind), for_team=True) for kind in ("float", "double"))
    assert doubles.flops == floats.flops and (floats.blocks_by_flops, doubles.blocks_by_flops) == (1, 2)
    assert replace(floats, m=7).blocks_wanted == 1 < replace(doubles, m=7).blocks_wanted


def test_costs_that_decide() -> None:
    """Each of these plans is another one without one of the costs."""
    assert plan_of(96, 594, 1148).pack_b == "block" and plan_of(16, 333, 1024).pack_b == "no"  # what later tiles read again, and what the cache holds
    assert plan_of(24, 116, 2729).pack_b == "no"  # to store panels
    assert plan_of(16, 100, 8100).pack_b == "no" and plan_of(16, 100, 8192).pack_b == "block"  # rows whole pages apart do not stay in the cache
    assert plan_of(32, 151, 280).pack_b == "no" and plan_of(40, 134, 126).pack_b == "block"  # whose lines and columns do not begin together
    assert plan_of(31, 99, 512, "half").pack_b == "block"  # in which each number is converted once
    assert plan_of(16, 200, 2000, "half", turned=True, prepared=True).tile.rows == 16  # in which each number is converted once
    assert plan_of(32, 400, 500).pack_b == "no"
    assert not plan_of(32, 400, 500).rows_ahead and schedule(dense_matmul(32, 500, 400, batch=(8,)), WIDE).rows_ahead  # all together do not stay there
    assert tile_for_few_rows(dense_matmul(8, 64, 64), False, 64, WIDE) is None  # a B in the L1 cache
    assert tile_for_few_rows(dense_matmul(1, 512, 512), False, 64, WIDE) is None
    turned = dense_matmul(21, 482, 450, transpose_a=True)
    assert schedule(turned, WIDE).tile.rows == 7 and schedule(turned, WIDE).pack_b == "no"
    assert tile_for_few_rows(replace(turned, a=Operand("float", 1, 1000)), False, 64, WIDE) is None  # whose steps are far apart


def test_transposed_matrices_are_read_again_by_the_more_rows_the_nearer_they_are() -> None:
    for (k, n), most in {(300, 784): 32, (512, 512): 32, (64, 512): 10, (21, 143): 3, (8, 143): 4, (900, 900): 12, (2048, 2048): 6}.items():
        for m in range(1, 40):
            assert uses_dot(dense_matmul(m, n, k, transpose_b=True), WIDE) == (m <= most), (m, k, n)
    assert not uses_dot(dense_matmul(8, 512, 512, transpose_b=True), replace(WIDE, vector_bytes=32))
    bfloats, pairs = dense_matmul(8, 512, 512, "bfloat", transpose_b=True), replace(WIDE, cpu="znver4", features="+avx512f,+avx512bf16")
    assert uses_dot(bfloats, WIDE) and not uses_dot(bfloats, pairs)  # which multiply two at once


def test_many_rows_are_as_before() -> None:
    assert plan_of(FEW_ROWS + 1, 256, 1024).pack_b == "block"


# -- the numbers -----------------------------------------------------------------------------------------------------------
@pytest.mark.slow
@pytest.mark.parametrize("width", TARGETS)
@pytest.mark.parametrize("m", ALIKE)
@pytest.mark.parametrize(("k", "n", "turned"), [(128, 259, False), (515, 130, False), (260, 77, True), (97, 261, True)])
def test_results(m: int, k: int, n: int, turned: bool, width: int) -> None:
    check(Case(m, n, k, transpose_b=turned), width)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["half", "bfloat", "double"])
@pytest.mark.parametrize("m", [1, 5, 16, 40])
@pytest.mark.parametrize(("k", "n", "turned"), [(515, 130, False), (260, 99, True)])
def test_results_of_other_kinds(m: int, k: int, n: int, turned: bool, kind: str) -> None:
    check(Case(m, n, k, kind, transpose_b=turned), HOST)
    check(Case(m, n, k, kind, transpose_b=turned, share_b=True), HOST)


@pytest.mark.slow
@pytest.mark.parametrize("width", TARGETS)
@pytest.mark.parametrize("kind", ["half", "bfloat"])
@pytest.mark.parametrize("m", [1, 3, 8, 17])
@pytest.mark.parametrize(("k", "n", "turned"), [(333, 150, False), (333, 150, True), (64, 70, True), (40, 33, False)])
def test_panels_in_halves(m: int, k: int, n: int, turned: bool, kind: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of small matrices too, and of columns and steps that fill no vector."""
    tile_for_few_rows.cache_clear()
    monkeypatch.setattr("graphcell.codegen.llvm.few_rows._ways", lambda spec, in_rows, target: ("halves",))
    monkeypatch.setattr("graphcell.codegen.llvm.few_rows.bytes_of_all", lambda spec: 1 << 30)
    case = Case(m, n, k, kind, transpose_b=turned, share_b=True)
    try:
        assert schedule(case.spec, TARGETS[width]).panel_kind == kind
        check(case, width)
    finally:
        tile_for_few_rows.cache_clear()


@pytest.mark.slow
@pytest.mark.parametrize("width", TARGETS)
@pytest.mark.parametrize(
    "case",
    [
        Case(64, 259, 700),
        Case(330, 300, 600),  # several blocks of rows, with panels that the first of them leaves
        Case(700, 150, 1500),  # several passes
        Case(333, 515, 301, "half"),
        Case(97, 77, 2100, "double"),
        Case(300, 700, 400, transpose_a=True),  # whose groups of rows are copied, too
        Case(45, 67, 300, batch=(3,), b_batch=(1,)),
    ],
    ids=str,
)
def test_panels_that_a_tile_packs(case: Case, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphcell.codegen.llvm.matmul_schedule.bytes_of_all", lambda spec: 1 << 22)  # as if it were large: rows ahead are asked for
    monkeypatch.setattr("graphcell.codegen.llvm.matmul_schedule._reads_b_by_rows", lambda spec, target: False)
    monkeypatch.setitem(TARGETS, width, replace(TARGETS[width], l2_bytes=1 << 19))  # blocks of more than three row tiles, on any machine
    plan = schedule(case.spec, TARGETS[width])
    assert plan.packs_meanwhile and plan.rows_ahead
    check(case, width)


@pytest.mark.slow
@pytest.mark.parametrize("width", TARGETS)
@pytest.mark.parametrize(
    "case",
    [
        Case(45, 259, 300),
        Case(24, 515, 700),  # few row tiles, which ask for several lines of a row each
        Case(70, 130, 900),  # several passes: the next one's rows
        Case(61, 300, 333, "half"),
        Case(40, 261, 301, "double"),
        Case(66, 400, 300, transpose_a=True),
        Case(45, 167, 300, batch=(3,), b_batch=(1,)),
    ],
    ids=str,
)
def test_tiles_ask_for_what_follows(case: Case, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphcell.codegen.llvm.matmul_schedule.bytes_of_all", lambda spec: 1 << 22)  # as if it were large
    monkeypatch.setattr("graphcell.codegen.llvm.matmul_schedule._reads_b_by_rows", lambda spec, target: False)
    monkeypatch.setattr("graphcell.codegen.llvm.matmul_schedule._pack_b", lambda *args: "block")
    monkeypatch.setattr("graphcell.codegen.llvm.matmul_schedule.tile_for_few_rows", lambda *args: None)
    monkeypatch.setattr("graphcell.codegen.llvm.matmul_schedule._FETCHING_TILES", 100)
    target = replace(TARGETS[width], l1_bytes=16 << 10, l2_bytes=128 << 10)
    monkeypatch.setitem(TARGETS, width, target)
    assert schedule(case.spec, target).fetches
    check(case, width)


@pytest.mark.parametrize("width", TARGETS)
@pytest.mark.parametrize("kept", [True, False])
def test_tiles_pack_for_blocks_that_begin_anywhere(kept: bool, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks one by one, with tiles of two heights, whose passes leave their panels for the blocks below or not."""
    monkeypatch.setattr("graphcell.codegen.llvm.matmul.MOST_KEPT_BYTES", 1 << 21 if kept else 1 << 10)
    monkeypatch.setattr("graphcell.codegen.llvm.matmul_schedule._ROWS_PER_BLOCK", 20)
    case = Case(203, 130, 900, transpose_b=False)
    target = replace(TARGETS[width], l1_bytes=8 << 10, l2_bytes=64 << 10)
    plan = schedule(case.spec, target)
    assert plan.packs_meanwhile and plan.passes > 1 and plan.grid[1] > 2 and len(plan.row_segments) == 2
    runner = compile_plan(lambda module, target: emit_matmul(module, "matmul", case.spec, target), target)
    a, b = case.operands()
    whole = runner(case.stored(a, b), "c", (203, 130), np.dtype(np.float32))
    np.testing.assert_allclose(whole, a.astype(np.float64) @ b, rtol=1e-4, atol=1e-4)
    blocks = runner.plan.stages[-1].blocks
    for cuts in ([0.3, 0.6], [(k + 0.5) / blocks for k in range(1, blocks)]):
        assert with_chunks(runner, *cuts)(case.stored(a, b), "c", (203, 130), np.dtype(np.float32)).tobytes() == whole.tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["half", "bfloat", "float"])
@pytest.mark.parametrize("k", [1, 2, 3, 4, 9])
def test_tiles_pack_few_steps(k: int, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphcell.codegen.llvm.matmul_schedule._FEW_STEPS", 0)
    monkeypatch.setattr("graphcell.codegen.llvm.matmul_schedule._pack_b", lambda *args: "block")
    case = Case(150, 300, k, kind)
    assert schedule(case.spec, TARGETS[HOST]).packs_meanwhile
    check(case, HOST)


def test_pairs_of_bfloats_are_packed_before() -> None:
    target = replace(WIDE, cpu="znver4", features="+avx512f,+avx512bf16")
    plan = schedule(in_pairs(dense_matmul(300, 512, 512, "bfloat"), target), target)
    assert plan.pack_b == "block" and not plan.packs_meanwhile


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_random_products_of_few_rows(seed: int) -> None:
    rng = np.random.default_rng(seed)
    m, k, n = int(rng.integers(1, 110)), int(2 ** rng.uniform(4, 10)), int(2 ** rng.uniform(4, 10))
    kind = str(rng.choice(["float", "float", "double", "half", "bfloat"]))
    check(Case(m, n, k, kind, transpose_b=bool(rng.integers(2)), share_b=bool(rng.integers(2))), int(rng.choice(list(TARGETS))))


def test_rows_of_b_further_apart_than_they_are_long() -> None:
    """A part of the columns of a larger matrix."""
    spec = replace(dense_matmul(16, 300, 200), b=Operand("float", 1024, 1))
    assert schedule(spec, WIDE).pack_b == "no"


# -- whole networks --------------------------------------------------------------------------------------------------------
class Head(nn.Cell):
    def __init__(self, dtype: Any):
        super().__init__()
        self.up, self.down = nn.Dense(700, 2100, dtype=dtype), nn.Dense(2100, 700, has_bias=False, dtype=dtype)

    def construct(self, x: Any) -> Any:
        return self.down(ms.ops.relu(self.up(x)))


@pytest.mark.parametrize("dtype", [ms.float16, ms.bfloat16])
@pytest.mark.parametrize("rows", [1, 6])
def test_a_network_in_half_precision_is_that_of_wider_numbers(dtype: Any, rows: int) -> None:
    ms.set_seed(3)
    net = Head(dtype)
    net.set_train(False)
    x = Tensor(np.random.default_rng(1).standard_normal((rows, 700)).astype(np.float32)).astype(dtype)
    run = ms.jit(net)
    got = run(x).astype(ms.float32).asnumpy()
    w, b, v = (p.astype(ms.float32).asnumpy().astype(np.float64) for p in (net.up.weight, net.up.bias, net.down.weight))
    wide = x.astype(ms.float32).asnumpy().astype(np.float64)
    want = np.maximum(wide @ w.T + b, 0.0) @ v.T
    np.testing.assert_allclose(got, want, rtol=0.02, atol=0.02 * np.abs(want).max())
    ms.ops.assign(net.down.weight, net.down.weight * 2.0)  # what was packed of it is made anew
    np.testing.assert_allclose(run(x).astype(ms.float32).asnumpy(), 2 * want, rtol=0.02, atol=0.04 * np.abs(want).max())


class Twice(nn.Cell):
    """One weight that few rows and many meet."""

    def __init__(self, dtype: Any):
        super().__init__()
        self.a = nn.Dense(768, 3072, has_bias=False, dtype=dtype)

    def construct(self, x: Any, y: Any) -> Any:
        return self.a(x), self.a(y)


@pytest.mark.parametrize("dtype", [ms.float16, ms.bfloat16, ms.float32])
@pytest.mark.parametrize(("few", "many"), [(8, 97), (1, 97), (16, 120)])
def test_panels_of_one_matrix_in_both_kinds_are_kept_apart(few: int, many: int, dtype: Any) -> None:
    net = Twice(dtype)
    net.set_train(False)
    rng = np.random.default_rng(2)
    inputs = [Tensor(rng.standard_normal((rows, 768)).astype(np.float32)).astype(dtype) for rows in (few, many)]
    w = net.a.weight.astype(ms.float32).asnumpy().astype(np.float64)
    for x, y in zip(inputs, ms.jit(net)(*inputs), strict=True):
        want = x.astype(ms.float32).asnumpy().astype(np.float64) @ w.T
        np.testing.assert_allclose(y.astype(ms.float32).asnumpy(), want, rtol=0.01, atol=0.01 * np.abs(want).max())


@pytest.mark.parametrize("dtype", [ms.float16, ms.bfloat16])
def test_infinities_and_nan_in_half_weights_reach_the_result(dtype: Any) -> None:
    weights = np.ones((2100, 700), np.float32)
    weights[3, 5], weights[2099, 699], weights[8, 1] = np.inf, np.nan, -np.inf
    net = nn.Dense(700, 2100, weight_init=Tensor(weights).astype(dtype), has_bias=False, dtype=dtype)
    net.set_train(False)
    got = ms.jit(net)(Tensor(np.ones((1, 700), np.float32)).astype(dtype)).astype(ms.float32).asnumpy()[0]
    assert got[3] == np.inf and got[8] == -np.inf and np.isnan(got[2099]) and np.isfinite(np.delete(got, [3, 8, 2099])).all()
