"""What steps touch: the claims about loop nests and products against every element that they read and write, one by one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest

import graphcell.dtype as dt
from graphcell.codegen.epilogue import FusedEpilogue
from graphcell.codegen.fuse import fuse
from graphcell.codegen.kernel import Access, GatherLoad, Load, LoopKernel, Statement, Store
from graphcell.codegen.legalize import legalize
from graphcell.codegen.llvm.contraction import Plan, Stage
from graphcell.codegen.llvm.loops import block_count
from graphcell.codegen.llvm.matmul import dense_matmul, emit_matmul
from graphcell.codegen.llvm.processor import Target
from graphcell.codegen.llvm.text import I8, I64, PTR, Val, i64
from graphcell.codegen.reach import Matrix, Reach, Touch, goes_by_units, reach_of_loops, reach_of_product, rows_of_unit
from graphcell.codegen.schedule import schedule
from graphcell.codegen.team import TeamBuilder, TeamCalls, Way
from graphcell.ir.types import TensorType
from graphcell.passes.pipeline import run_pipeline
from tests.codegen.plans import TARGETS, compile_plan
from tests.passes.random_graphs import random_graph

WIDEST = list(TARGETS.values())[-1]


def pointers(count: int) -> list[Val]:
    return [Val(f"%p{k}", PTR) for k in range(count)]


# -- loop nests ------------------------------------------------------------------------------------------------------
def touched(kernel: LoopKernel, along: int, trips: range) -> Iterator[tuple[int, bool, set[int]]]:
    """Operand, whether it is written, and which elements, of each access, in some iterations of a loop."""
    ranges = [trips if d == along else range(n) for d, n in enumerate(kernel.extents)]
    points = list(itertools.product(*ranges))

    def at(strides: Sequence[int], offset: int, point: Sequence[int]) -> int:
        return offset + sum(s * i for s, i in zip(strides, point, strict=True))

    for s in kernel.body:
        if isinstance(s.what, Load):
            a, guards = s.what.access, s.what.guards
            yield a.operand, False, {at(a.strides, a.offset, p) for p in points if all(0 <= at(g.strides, g.offset, p) < g.extent for g in guards)}
    for store in kernel.stores:
        yield store.access.operand, True, {at(store.access.strides, store.access.offset, p) for p in points}


def check_claims(kernel: LoopKernel, units: int, target: Target) -> bool:
    """Whether the kernel goes by units; what is claimed of it holds."""
    found = reach_of_loops(kernel, pointers(len(kernel.operands)), units, target)
    sizes = [d.itemsize for d in kernel.operands]
    gathers = sum(isinstance(s.what, GatherLoad) for s in kernel.body)
    loads = [t for t in found.touches if not t.writes]
    assert len(loads) == gathers + sum(isinstance(s.what, Load) for s in kernel.body)
    claims = [t for t in found.touches if t.high < 1 << 60]
    assert len(claims) == len(found.touches) - gathers
    along = next((d for d in range(len(kernel.extents)) if kernel.extents[d] % units == 0 and _is_outermost(kernel, d)), -1)
    for k in range(units if found.by_units else 1):
        share = kernel.extents[along] // units if found.by_units else 0
        trips = range(k * share, (k + 1) * share) if found.by_units else range(0)
        for t, (operand, writes, elements) in zip(claims, touched(kernel, along if found.by_units else -1, trips), strict=True):
            size = sizes[operand]
            assert (t.writes, t.pointer.text) == (writes, f"%p{operand}")
            low, high = (t.low + k * t.slab, t.high - (units - 1 - k) * t.slab) if found.by_units else (t.low, t.high)
            assert all(low <= e * size and (e + 1) * size <= high for e in elements)
            if t.slab and found.by_units:
                assert high - low <= t.slab, "units are apart"
    if found.by_units:
        assert all(t.slab for t in claims if t.writes)
    return found.by_units


def _is_outermost(kernel: LoopKernel, d: int) -> bool:
    """Whether loop d counts blocks before all others: no outer loop but the vector's or the tiles' stands before it."""
    return ((d < kernel.outer and d not in (kernel.vector, kernel.tile)) or kernel.is_run) and all(e in (kernel.vector, kernel.tile) for e in range(d))


def kernels_of(seed: int) -> list[LoopKernel]:
    graph, _ = random_graph(seed, exact=True, nodes=20)
    groups, info = fuse(legalize(run_pipeline(graph)[0]))
    return [k for k in (schedule(g, info).kernel for g in groups if g.values) if 0 < k.points < 4000]


@pytest.mark.parametrize("seed", range(60))
def test_claims_about_random_kernels(seed: int) -> None:
    for kernel, units in itertools.product(kernels_of(seed), (2, 3, 4)):
        check_claims(kernel, units, WIDEST)


def test_many_random_kernels_go_by_units() -> None:
    assert sum(check_claims(k, 2, WIDEST) for seed in range(30) for k in kernels_of(seed)) >= 5


def copies(extents: tuple[int, ...], source: Access, target: Access, outer: int = 1) -> LoopKernel:
    mask = (1 << len(extents)) - 1
    body = (Statement(Load(source, dt.float32), (), dt.float32, mask, 0),)
    return LoopKernel(extents, outer, len(extents) - 1, body, (Store(0, target),), (dt.float32, dt.float32))


@pytest.mark.parametrize(
    ("extents", "source", "target", "by_units"),
    [
        ((8, 16), Access(0, (16, 1)), Access(1, (16, 1)), True),
        ((8, 16), Access(0, (0, 1)), Access(1, (16, 1)), True),
        ((8, 16), Access(0, (4, 1)), Access(1, (16, 1)), True),  # what is read may overlap
        ((8, 16), Access(0, (16, 1)), Access(1, (4, 1)), False),
        ((8, 16), Access(0, (16, 1)), Access(1, (-16, 1), 112), False),
        ((8, 16), Access(0, (-16, 1), 112), Access(1, (40, 1), 24), True),
        ((8, 16), Access(0, (1, 8)), Access(1, (1, 8)), False),
        ((7, 16), Access(0, (16, 1)), Access(1, (16, 1)), False),
        ((0, 16), Access(0, (16, 1)), Access(1, (16, 1)), False),
    ],
)
def test_rows_that_are_copied(extents: tuple[int, ...], source: Access, target: Access, by_units: bool) -> None:
    kernel = copies(extents, source, target)
    if kernel.points:
        assert check_claims(kernel, 2, WIDEST) == by_units
    assert goes_by_units(kernel, 2, WIDEST) == by_units


def test_overlapping_reads_are_not_apart() -> None:
    (read, written) = reach_of_loops(copies((8, 16), Access(0, (4, 1)), Access(1, (16, 1))), pointers(2), 2, WIDEST).touches
    assert (read.slab, written.slab) == (0, 4 * 16 * 4)


@pytest.mark.parametrize("elements", [128, 100, 2048])
def test_runs_of_elements(elements: int) -> None:
    """Divided where that leaves whole vectors; block k is then part k."""
    kernel = copies((elements,), Access(0, (1,)), Access(1, (1,)), outer=0)
    assert goes_by_units(kernel, 2, WIDEST) == (elements != 100)
    if elements != 100:
        assert block_count(replace(kernel, run=elements // 2), WIDEST) == 2


# -- products --------------------------------------------------------------------------------------------------------
PRODUCTS = [(32, 96, 48, {}), (8, 144, 48, {}), (16, 20, 300, {}), (64, 8, 64, {}), (33, 40, 17, {}), (6, 33, 40, {"share_b": True}), (32, 96, 64, {"share_b": True}),
            (12, 1, 90, {}), (48, 50, 31, {"transpose_b": True}), (16, 64, 64, {"transpose_a": True}), (4, 1000, 64, {}), (64, 64, 4, {}), (256, 40, 40, {}),
            (10, 24, 24, {"batch": (3,)}), (16, 24, 2048, {}), (24, 700, 700, {}), (40, 48, 96, {}), (56, 96, 96, {"share_b": True}), (72, 48, 48, {}),
            (40, 1, 256, {}), (56, 2, 200, {}), (72, 3, 300, {}), (100, 1, 64, {})]  # fmt: skip


@pytest.mark.parametrize("case", PRODUCTS, ids=str)
@pytest.mark.parametrize("for_team", [False, True])
def test_blocks_of_a_product_are_rows(case: tuple[int, int, int, dict[str, object]], for_team: bool) -> None:
    """The blocks of a unit write the rows that it is said to have, all columns of them."""
    m, n, k, more = case
    for target in TARGETS.values():
        spec = replace(dense_matmul(m, n, k, **more), for_team=for_team)  # type: ignore[arg-type]
        for units in (2, 3, 4):
            runner = compile_plan(lambda module, target, spec=spec: emit_matmul(module, "f", spec, target), target)
            rows = rows_of_unit(runner.plan, None, units)
            if not rows:
                continue
            assert rows * units == m * int(np.prod(spec.batch))
            stages = runner.plan.stages
            for unit in range(units):
                ranges = [(0, s.blocks) for s in stages[:-1]] + [tuple(stages[-1].blocks // units * u for u in (unit, unit + 1))]
                runner.chunks = lambda count, left=ranges: [left.pop(0)]
                inputs = {"a": np.ones((m, k), np.float32), "b": np.ones((k, n), np.float32)}
                found = runner(inputs, "c", (m, n), np.dtype(np.float32))
                assert np.flatnonzero(~np.isnan(found).all(1)).tolist() == list(range(unit * rows, (unit + 1) * rows))
                assert not np.isnan(found[unit * rows : (unit + 1) * rows]).any()


def test_some_products_go_by_rows() -> None:
    for m, n, k, units in ((32, 96, 48, 4), (8, 144, 48, 2), (16, 48, 96, 2)):
        spec = replace(dense_matmul(m, n, k, share_b=True), for_team=True)
        assert rows_of_unit(compile_plan(lambda module, target, spec=spec: emit_matmul(module, "f", spec, target), WIDEST).plan, None, units)


@pytest.mark.parametrize(("m", "n", "k"), [(32, 64, 192), (48, 64, 64), (24, 96, 96), (64, 64, 64)])
def test_rows_of_short_products_in_loops_come_in_two_halves(m: int, n: int, k: int) -> None:
    """Where tiles have room for that: with long vectors they do."""
    if WIDEST.vector_bytes < 64:
        pytest.skip("for processors with AVX-512")
    spec = replace(dense_matmul(m, n, k, share_b=True), for_team=True)
    assert rows_of_unit(compile_plan(lambda module, target: emit_matmul(module, "f", spec, target), WIDEST).plan, None, 2) == m // 2


@pytest.mark.parametrize(("m", "n", "k"), [(192, 64, 960), (192, 48, 320), (180, 33, 640), (144, 48, 320)])
def test_two_threads_have_as_many_blocks(m: int, n: int, k: int) -> None:
    """Not three of them: one thread would wait for the other's second."""
    for target in TARGETS.values():
        spec = dense_matmul(m, n, k, transpose_a=True)
        blocks = compile_plan(lambda module, target, spec=spec: emit_matmul(module, "f", spec, target), target).plan.stages[-1].blocks
        assert blocks == 2 or blocks > 3


PLAN = Plan((Stage("f", ("a", "b", "c"), (), 4, 1000),), rows_of_block=8)


def matrix(shape: tuple[int, ...], strides: tuple[int, ...], start: int = 0) -> Matrix:
    return Matrix(Val("%a", PTR), start, strides, TensorType(dt.float32, shape))


@pytest.mark.parametrize(
    ("left", "slab"),
    [
        (matrix((32, 10), (10, 1)), 16 * 40),
        (matrix((32, 10), (30, 1), 20), 16 * 120),
        (matrix((4, 8, 10), (80, 10, 1)), 16 * 40),
        (matrix((4, 1, 8, 10), (80, 5, 10, 1)), 16 * 40),
        (matrix((4, 8, 10), (100, 10, 1)), 0),
        (matrix((32, 10), (5, 1)), 0),
        (matrix((32, 10), (-10, 1), 310), 0),
        (matrix((10, 32), (32, 1)).turned(True), 0),
        (matrix((10, 32), (1, 10)).turned(True), 16 * 40),
    ],
)
def test_the_left_operand_of_a_product(left: Matrix, slab: int) -> None:
    result = Matrix(Val("%c", PTR), 0, (6, 1), TensorType(dt.float32, (32, 6)))
    found = reach_of_product(PLAN, left, Val("%b", PTR), result, 2)
    read, right, written = found.touches
    assert found.by_units and (read.slab, written.slab, right.slab) == (slab, 16 * 24, 0)
    assert right.low < -(1 << 50) and right.high > 1 << 50, "a right operand may lie before its first element, too"
    if slab:
        assert (read.low, read.high - read.low) == (left.start * 4, (31 * left.strides[-2] + 10) * 4)
    else:
        assert read.low < -(1 << 50) and read.high > 1 << 50


def test_products_whose_sums_are_not_finished_go_by_no_rows() -> None:
    assert rows_of_unit(PLAN, None, 2) == 16
    assert rows_of_unit(replace(PLAN, resumes=True), None, 2) == rows_of_unit(PLAN, None, 3) == rows_of_unit(replace(PLAN, rows_of_block=0), None, 2) == 0


def test_an_epilogue_goes_by_the_rows_of_its_product() -> None:
    """Its first loop is divided, which has to count rows."""
    for extents, units, rows in (((8, 4, 6), 4, 8), ((2, 16, 6), 4, 0), ((2, 16, 6), 2, 16)):
        strides = (extents[1] * 6, 6, 1)
        kernel = copies(extents, Access(0, strides), Access(1, strides), outer=2)
        fused = FusedEpilogue(kernel, (0, 24), 0, 6)
        assert rows_of_unit(PLAN, fused, units) == rows
        found = reach_of_product(PLAN, matrix((32, 10), (10, 1)), Val("%b", PTR), None, units, fused, [None, Val("%e", PTR)])
        (written,) = [t for t in found.touches if t.writes]
        assert (found.by_units, written.pointer.text, written.low, written.high) == (rows > 0, "%e", 96, 96 + 32 * 6 * 4)
        assert written.slab == rows * 24


# -- where threads meet ----------------------------------------------------------------------------------------------
class Known(TeamCalls):
    """What decides where threads meet, with nothing around it."""

    def __init__(self, units: int):
        self.units, self._since = units, []
        self.b = TeamBuilder(WIDEST.module(), "f", [("p", PTR), ("q", PTR), ("n", I64)])


def collide(x: tuple[int, int, int, bool], y: tuple[int, int, int, bool], ways: tuple[Way, Way] = (Way.UNITS, Way.UNITS), apart: object = 0) -> bool:
    """Whether threads meet between steps that touch (low, high, slab, writes); the second one's pointer is `apart` behind the first one's."""
    known = Known(2)
    pointer = known.b.args["p"]
    other = known.b.args["q"] if apart == "q" else known.b.gep(pointer, known.b.args["n"] if apart == "n" else apart, I8)  # type: ignore[arg-type]
    known._since = [(ways[0], Reach((Touch(pointer, *x),), True))]
    return known._waits(ways[1], Reach((Touch(other, *y),), True))


READ, WRITTEN = False, True


def test_threads_meet_where_one_may_touch_what_another_has() -> None:
    rows = (0, 200, 100, WRITTEN)
    assert not collide(rows, (0, 200, 100, READ))
    assert not collide((0, 200, 100, READ), (0, 200, 100, READ)) and not collide((0, 200, 0, READ), (0, 100, 0, READ))
    assert collide(rows, (0, 200, 0, READ)) and collide((0, 200, 0, READ), rows)
    assert collide(rows, (0, 160, 80, READ))
    assert collide(rows, (0, 200, 100, READ), (Way.UNITS, Way.BLOCKS)) and collide(rows, (0, 200, 100, READ), (Way.FIRST, Way.UNITS))
    assert not collide(rows, (0, 200, 100, READ), (Way.FIRST, Way.FIRST))


def test_parts_of_rows() -> None:
    """Of rows of 100 bytes: the first 40 and the last 50; shifted by 60 they reach into the next one's, whichever comes first."""
    first, last = (0, 140, 100, WRITTEN), (50, 200, 100, READ)
    assert not collide(first, last) and not collide(last, first)
    assert collide(first, (90, 240, 100, READ)) and collide((90, 240, 100, READ), first)
    assert not collide(first, (0, 140, 100, READ), apart=60)
    assert collide(first, (0, 150, 100, READ), apart=60)
    assert collide((0, 150, 100, READ), first, apart=-60)


def test_other_places() -> None:
    rows = (0, 200, 100, WRITTEN)
    assert not collide(rows, (0, 200, 0, WRITTEN), apart=200) and collide(rows, (0, 200, 0, WRITTEN), apart=199)
    assert not collide(rows, (0, 200, 0, WRITTEN), apart=-200) and collide(rows, (0, 200, 0, WRITTEN), apart=-199)
    assert collide(rows, (0, 200, 100, READ), apart="n"), "nobody knows how far"
    assert not collide(rows, (0, 200, 0, WRITTEN), apart="q")


def test_pointers_of_one_place() -> None:
    b = TeamBuilder(WIDEST.module(), "f", [("p", PTR), ("n", I64)])
    p, n = b.args.values()
    there = b.gep(b.gep(p, 3, I64), i64(-1), I64)
    assert (b.origin_of(there).root, b.origin_of(there).base, b.origin_of(there).offset) == ("%p", "%p", 16)
    row = b.gep(b.gep(there, n, I64), 2, I64)
    assert b.origin_of(row).root == "%p" and b.origin_of(row).base not in ("%p", row.text) and b.origin_of(row).offset == 16
