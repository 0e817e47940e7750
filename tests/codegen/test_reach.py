"""What steps touch: the claims about loop nests and products against every element that they read and write, one by one."""

from __future__ import annotations

import ctypes
import itertools
import random
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
from graphcell.codegen.llvm.loops import block_count, emit_loops
from graphcell.codegen.llvm.matmul import dense_matmul, emit_matmul
from graphcell.codegen.llvm.processor import Target
from graphcell.codegen.llvm.target import compile_object, load_object
from graphcell.codegen.llvm.text import I8, I64, PTR, VOID, FunctionBuilder, Val, i64
from graphcell.codegen.reach import Matrix, Reach, Touch, blocks_of_product, goes_by_units, reach_of_loops, reach_of_product
from graphcell.codegen.schedule import schedule
from graphcell.codegen.team import TeamBuilder, TeamCalls, Way
from graphcell.codegen.units import EVEN, Blocks, Units, in_units, units_of_blocks
from graphcell.ir.types import TensorType
from graphcell.passes.pipeline import run_pipeline
from tests.codegen.plans import TARGETS, compile_plan
from tests.passes.random_graphs import random_graph

WIDEST = list(TARGETS.values())[-1]
TWO = Units(2, 2, 1)


def units_of(rows: int, each: int) -> Units:
    return Units(-(-rows // each), rows, each)


def rows_of(units: Units, k: int, extent: int) -> range:
    """What unit k has of an extent."""
    per_row = extent // units.rows
    return range(k * units.each * per_row, min((k + 1) * units.each, units.rows) * per_row)


def claimed(touch: Touch, units: Units, k: int) -> tuple[int, int]:
    """The bytes that unit k may touch."""
    behind = units.rows - min((k + 1) * units.each, units.rows)
    return touch.low + k * touch.slab, touch.high - touch.slab // units.each * behind


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


def check_claims(kernel: LoopKernel, units: Units, target: Target) -> bool:
    """Whether the kernel goes by units; what is claimed of it holds."""
    kernel = in_units(kernel, units, target)
    found = reach_of_loops(kernel, pointers(len(kernel.operands)), units, target)
    sizes = [d.itemsize for d in kernel.operands]
    gathers = sum(isinstance(s.what, GatherLoad) for s in kernel.body)
    loads = [t for t in found.touches if not t.writes]
    assert len(loads) == gathers + sum(isinstance(s.what, Load) for s in kernel.body)
    claims = [t for t in found.touches if t.high < 1 << 60]
    assert len(claims) == len(found.touches) - gathers
    along = next((d for d in range(len(kernel.extents)) if kernel.extents[d] % units.rows == 0 and _is_outermost(kernel, d)), -1)
    for k in range(units.count if found.of_unit else 1):
        trips = rows_of(units, k, kernel.extents[along]) if found.of_unit else range(0)
        for t, (operand, writes, elements) in zip(claims, touched(kernel, along if found.of_unit else -1, trips), strict=True):
            size = sizes[operand]
            assert (t.writes, t.pointer.text) == (writes, f"%p{operand}")
            low, high = claimed(t, units, k) if found.of_unit else (t.low, t.high)
            assert all(low <= e * size and (e + 1) * size <= high for e in elements)
            if t.slab and found.of_unit:
                assert high - low <= t.slab, "units are apart"
    if found.of_unit:
        assert all(t.slab for t in claims if t.writes)
        assert (units.count - 1) * found.of_unit < block_count(kernel, target) <= units.count * found.of_unit
    return found.of_unit > 0


def _is_outermost(kernel: LoopKernel, d: int) -> bool:
    """Whether loop d counts blocks before all others: no outer loop but the vector's or the tiles' stands before it."""
    return ((d < kernel.outer and d not in (kernel.vector, kernel.tile)) or kernel.is_run) and all(e in (kernel.vector, kernel.tile) for e in range(d))


def kernels_of(seed: int) -> list[LoopKernel]:
    graph, _ = random_graph(seed, exact=True, nodes=20)
    groups, info = fuse(legalize(run_pipeline(graph)[0]))
    return [k for k in (schedule(g, info).kernel for g in groups if g.values) if 0 < k.points < 4000]


def uneven_units(kernel: LoopKernel) -> Iterator[Units]:
    """All whose rows a loop of the kernel has, or a part of it."""
    for rows in {n // part for n in kernel.extents for part in range(1, n) if n % part == 0}:
        yield from (units_of(rows, each) for each in range(1, rows))


@pytest.mark.parametrize("seed", range(60))
def test_claims_about_random_kernels(seed: int) -> None:
    for kernel in kernels_of(seed):
        for units in itertools.chain(EVEN, itertools.islice(uneven_units(kernel), 40)):
            check_claims(kernel, units, WIDEST)


def test_many_random_kernels_go_by_units() -> None:
    kernels = [k for seed in range(30) for k in kernels_of(seed)]
    assert sum(check_claims(k, TWO, WIDEST) for k in kernels) >= 5
    assert sum(any(goes_by_units(k, u, WIDEST) for u in uneven_units(k) if not u.are_even) for k in kernels) >= 5


@pytest.mark.parametrize("target", TARGETS.values(), ids=lambda target: str(target.vector_bytes))
def test_blocks_of_a_unit_write_what_is_claimed(target: Target) -> None:
    """And nothing else: the blocks of each unit by themselves."""
    checked = 0
    for seed in range(40):
        for kernel in kernels_of(seed):
            if any(isinstance(s.what, GatherLoad) for s in kernel.body):
                continue
            fitting = [u for u in uneven_units(kernel) if not u.are_even and goes_by_units(kernel, u, target)]
            if fitting and checked < 12:
                check_blocks(kernel, fitting[seed % len(fitting)], target)
                checked += 1
    assert checked == 12


def check_blocks(kernel: LoopKernel, units: Units, target: Target) -> None:
    """All units together write what the kernel does."""
    kernel = in_units(kernel, units, target)
    found = reach_of_loops(kernel, pointers(len(kernel.operands)), units, target)
    module, blocks = target.module(), block_count(kernel, target)
    b = FunctionBuilder(module, "run", [*((f"p{k}", PTR) for k in range(len(kernel.operands))), ("begin", I64), ("end", I64)], internal=False)
    b.call(emit_loops(module, "f", kernel, target), VOID, *b.args.values())
    b.finish()
    library = load_object(compile_object(str(module), target))
    run = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(kernel.operands), ctypes.c_int64, ctypes.c_int64)(library.address("run"))
    ends = [max([1, *(t.high for t in found.touches if t.pointer.text == f"%p{k}" and t.high < 1 << 60)]) for k in range(len(kernel.operands))]
    written = {n: [t for t in found.touches if t.writes and t.pointer.text == f"%p{n}"] for n in range(len(ends))}
    whole: dict[int, set[int]] = {n: set() for n in written}
    for k in range(units.count):
        for fill in (0, 255):
            memory = [np.full(end + 64, fill if written[n] else 1, np.uint8) for n, end in enumerate(ends)]
            run(*(m.ctypes.data for m in memory), k * found.of_unit, min((k + 1) * found.of_unit, blocks))
            for n, m in enumerate(memory):
                changed = set(np.flatnonzero(m != fill).tolist()) if written[n] else set()
                assert changed <= {at for t in written[n] for at in range(*claimed(t, units, k))}
                whole[n] |= changed
    assert all(bool(whole[n]) == bool(written[n]) for n in whole)
    memory = [np.full(end + 64, 255 if written[n] else 1, np.uint8) for n, end in enumerate(ends)]
    run(*(m.ctypes.data for m in memory), 0, blocks)
    assert all(set(np.flatnonzero(m != 255).tolist()) <= whole[n] for n, m in enumerate(memory) if written[n])


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
        assert check_claims(kernel, TWO, WIDEST) == by_units
    assert goes_by_units(kernel, TWO, WIDEST) == by_units


def test_overlapping_reads_are_not_apart() -> None:
    (read, written) = reach_of_loops(copies((8, 16), Access(0, (4, 1)), Access(1, (16, 1))), pointers(2), TWO, WIDEST).touches
    assert (read.slab, written.slab) == (0, 4 * 16 * 4)


@pytest.mark.parametrize("elements", [128, 24, 2048])
def test_runs_of_elements(elements: int) -> None:
    """Divided where that leaves whole vectors, or rows of a vector at least; block k is then part k."""
    kernel = copies((elements,), Access(0, (1,)), Access(1, (1,)), outer=0)
    assert goes_by_units(kernel, TWO, WIDEST) == (elements != 24 or WIDEST.vector_bytes < 64)
    if elements != 24:
        assert block_count(in_units(kernel, TWO, WIDEST), WIDEST) == 2


@pytest.mark.parametrize(("rows", "columns", "each"), [(19, 80, 5), (19, 77, 5), (7, 64, 2), (33, 31, 9), (50, 16, 13), (19, 1, 5), (7, 3, 4)])
def test_runs_of_uneven_units(rows: int, columns: int, each: int) -> None:
    """A unit is a block, or where it would end amid a vector, several rows, if these are not shorter than one."""
    units = units_of(rows, each)
    kernel = copies((rows * columns,), Access(0, (1,)), Access(1, (2,), 3), outer=0)
    assert check_claims(kernel, units, WIDEST) == (columns > 3)
    divided = in_units(kernel, units, WIDEST)
    if columns <= 3:
        assert divided == kernel
    elif each * columns % 16 == 0:
        assert (divided.extents, block_count(divided, WIDEST)) == ((rows * columns,), units.count)
    elif WIDEST.vector_bytes == 64:
        assert (divided.extents, divided.stores[0].access) == ((rows, columns), Access(1, (2 * columns, 2), 3))


# -- products --------------------------------------------------------------------------------------------------------
PRODUCTS = [(32, 96, 48, {}), (8, 144, 48, {}), (16, 20, 300, {}), (64, 8, 64, {}), (33, 40, 17, {}), (6, 33, 40, {"share_b": True}), (32, 96, 64, {"share_b": True}),
            (12, 1, 90, {}), (48, 50, 31, {"transpose_b": True}), (16, 64, 64, {"transpose_a": True}), (4, 1000, 64, {}), (64, 64, 4, {}), (256, 40, 40, {}),
            (10, 24, 24, {"batch": (3,)}), (16, 24, 2048, {}), (24, 700, 700, {}), (40, 48, 96, {}), (56, 96, 96, {"share_b": True}), (72, 48, 48, {}),
            (40, 1, 256, {}), (56, 2, 200, {}), (72, 3, 300, {}), (100, 1, 64, {}), (19, 80, 80, {"share_b": True}), (50, 80, 80, {"share_b": True}),
            (33, 77, 80, {"share_b": True}), (7, 320, 80, {"share_b": True}), (67, 2, 200, {}), (35, 80, 80, {"transpose_b": True})]  # fmt: skip


@pytest.mark.parametrize("case", PRODUCTS, ids=str)
def test_blocks_of_a_product_are_rows(case: tuple[int, int, int, dict[str, object]]) -> None:
    """The blocks of a unit write the rows that it is said to have, all columns of them."""
    m, n, k, more = case
    for target in TARGETS.values():
        spec = replace(dense_matmul(m, n, k, **more), for_team=True)  # type: ignore[arg-type]
        runner = compile_plan(lambda module, target, spec=spec: emit_matmul(module, "f", spec, target), target)
        stages, count = runner.plan.stages, m * int(np.prod(spec.batch))
        assert len(runner.plan.first_rows) in (0, stages[-1].blocks)
        for units in dict.fromkeys([*EVEN, *units_of_blocks(Blocks(runner.plan.first_rows, count))]):
            each = blocks_of_product(runner.plan, count, None, units)
            for unit in range(units.count if each else 0):
                ranges = [(0, s.blocks) for s in stages[:-1]] + [tuple(min(each * u, stages[-1].blocks) for u in (unit, unit + 1))]
                runner.chunks = lambda count, left=ranges: [left.pop(0)]
                inputs = {"a": np.ones((m, k), np.float32), "b": np.ones((k, n), np.float32)}
                found = runner(inputs, "c", (m, n), np.dtype(np.float32))
                assert np.flatnonzero(~np.isnan(found).all(1)).tolist() == list(rows_of(units, unit, count))
                assert not np.isnan(found[rows_of(units, unit, count)]).any()


def plan_for_team(m: int, n: int, k: int) -> Plan:
    spec = replace(dense_matmul(m, n, k, share_b=True), for_team=True)
    return compile_plan(lambda module, target: emit_matmul(module, "f", spec, target), WIDEST).plan


def test_some_products_go_by_rows() -> None:
    for m, n, k, units in ((32, 96, 48, 4), (8, 144, 48, 2), (16, 48, 96, 2)):
        assert blocks_of_product(plan_for_team(m, n, k), m, None, Units(units, units, 1))
    assert all(list(units_of_blocks(Blocks(plan_for_team(m, 80, 80).first_rows, m))) for m in (19, 33, 35))


@pytest.mark.parametrize(("n", "k"), [(384, 32), (80, 240), (64, 64)])
@pytest.mark.parametrize("m", [5, 7, 9, 13, 17, 23])
def test_odd_numbers_of_rows_come_in_halves_of_which_one_has_a_row_less(m: int, n: int, k: int) -> None:
    plan = plan_for_team(m, n, k)
    assert Units(2, m, (m + 1) // 2) in list(units_of_blocks(Blocks(plan.first_rows, m)))


def test_three_rows_come_as_one() -> None:
    """Two tiles would read all of B twice, and one thread would have two thirds of the rows."""
    for n, k in ((64, 64), (80, 240)):
        assert not list(units_of_blocks(Blocks(plan_for_team(3, n, k).first_rows, 3)))


@pytest.mark.parametrize(("m", "n", "k"), [(32, 64, 192), (48, 64, 64), (24, 96, 96), (64, 64, 64)])
def test_rows_of_short_products_in_loops_come_in_two_halves(m: int, n: int, k: int) -> None:
    """Where tiles have room for that: with long vectors they do."""
    if WIDEST.vector_bytes < 64:
        pytest.skip("for processors with AVX-512")
    assert blocks_of_product(plan_for_team(m, n, k), m, None, TWO)


@pytest.mark.parametrize(("m", "n", "k"), [(192, 64, 960), (192, 48, 320), (180, 33, 640), (144, 48, 320)])
def test_two_threads_have_as_many_blocks(m: int, n: int, k: int) -> None:
    """Not three of them: one thread would wait for the other's second."""
    for target in TARGETS.values():
        spec = dense_matmul(m, n, k, transpose_a=True)
        blocks = compile_plan(lambda module, target, spec=spec: emit_matmul(module, "f", spec, target), target).plan.stages[-1].blocks
        assert blocks == 2 or blocks > 3


PLAN = Plan((Stage("f", ("a", "b", "c"), (), 4, 1000),), first_rows=(0, 8, 16, 24))


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
    found = reach_of_product(PLAN, left, Val("%b", PTR), result, TWO)
    read, right, written = found.touches
    assert found.of_unit == 2 and (read.slab, written.slab, right.slab) == (slab, 16 * 24, 0)
    assert right.low < -(1 << 50) and right.high > 1 << 50, "a right operand may lie before its first element, too"
    if slab:
        assert (read.low, read.high - read.low) == (left.start * 4, (31 * left.strides[-2] + 10) * 4)
    else:
        assert read.low < -(1 << 50) and read.high > 1 << 50


def test_products_whose_sums_are_not_finished_go_by_no_rows() -> None:
    assert blocks_of_product(PLAN, 32, None, TWO) == 2
    assert blocks_of_product(replace(PLAN, resumes=True), 32, None, TWO) == blocks_of_product(PLAN, 32, None, Units(3, 3, 1)) == 0
    assert blocks_of_product(replace(PLAN, first_rows=()), 32, None, TWO) == 0


def test_products_in_uneven_units() -> None:
    """Units begin where blocks do."""
    uneven = replace(PLAN, first_rows=(0, 8, 16, 24, 31))
    assert [blocks_of_product(uneven, 38, None, units_of(38, each)) for each in (8, 16, 24, 31, 4)] == [0, 0, 3, 4, 0]
    assert [blocks_of_product(uneven, 2 * 19, None, units_of(19, each)) for each in (4, 8, 12, 16)] == [0, 0, 3, 0]
    assert blocks_of_product(PLAN, 31, None, units_of(31, 16)) == 2 and not blocks_of_product(PLAN, 31, None, TWO)


def test_an_epilogue_goes_by_the_rows_of_its_product() -> None:
    """Its first loop is divided, which has to count rows."""
    for extents, units, rows in (((8, 4, 6), EVEN[0], 8), ((2, 16, 6), EVEN[0], 0), ((2, 16, 6), TWO, 16), ((4, 8, 6), units_of(4, 3), 24)):
        strides = (extents[1] * 6, 6, 1)
        kernel = copies(extents, Access(0, strides), Access(1, strides), outer=2)
        fused = FusedEpilogue(kernel, (0, 24), 0, 6)
        assert blocks_of_product(PLAN, 32, fused, units) * 8 == rows
        found = reach_of_product(PLAN, matrix((32, 10), (10, 1)), Val("%b", PTR), None, units, fused, [None, Val("%e", PTR)])
        (written,) = [t for t in found.touches if t.writes]
        assert (found.of_unit * 8, written.pointer.text, written.low, written.high) == (rows, "%e", 96, 96 + 32 * 6 * 4)
        assert written.slab == rows * 24


# -- where threads meet ----------------------------------------------------------------------------------------------
class Known(TeamCalls):
    """What decides where threads meet, with nothing around it."""

    def __init__(self, units: Units):
        self.units, self._since = units, []
        self.b = TeamBuilder(WIDEST.module(), "f", [("p", PTR), ("q", PTR), ("n", I64)])


Bytes = tuple[int, int, int, bool]


def collide(x: Bytes, y: Bytes, ways: tuple[Way, Way] = (Way.UNITS, Way.UNITS), apart: object = 0, units: Units = TWO) -> bool:
    """Whether threads meet between steps that touch (low, high, slab, writes); the second one's pointer is `apart` behind the first one's."""
    known = Known(units)
    pointer = known.b.args["p"]
    other = known.b.args["q"] if apart == "q" else known.b.gep(pointer, known.b.args["n"] if apart == "n" else apart, I8)  # type: ignore[arg-type]
    known._since = [(ways[0], Reach((Touch(pointer, *x),), 1))]
    return known._waits(ways[1], Reach((Touch(other, *y),), 1))


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


def test_parts_of_uneven_rows() -> None:
    """Three rows of 50 bytes, of which the first thread has two: of each the first 20 bytes and the last 25, which reach into the next row if shifted."""
    units, first, last = units_of(3, 2), (0, 120, 100, WRITTEN), (25, 150, 100, READ)
    assert not collide(first, last, units=units) and not collide(last, first, units=units)
    assert not collide(first, (0, 120, 100, READ), apart=30, units=units)
    assert collide(first, (0, 125, 100, READ), apart=30, units=units) and collide((0, 125, 100, READ), first, apart=-30, units=units)


def test_threads_with_uneven_rows_meet_if_they_must() -> None:
    """Parts of rows at random places: no two threads touch the same byte of what one writes, where they do not meet."""
    dice, apart = random.Random(0), 0
    for _ in range(3000):
        rows = dice.randint(2, 9)
        units, row = units_of(rows, dice.randint(1, rows - 1)), dice.choice((6, 8))
        touches = []
        for _ in range(2):
            times, begin = dice.choice((1, 1, 2)), dice.randint(0, 20)
            width = dice.randint(1, row)
            touches.append((begin, begin + (rows * times - 1) * row + width, units.each * times * row, dice.random() < 0.7))
        x, y = touches
        if not collide(x, y, units=units) and (x[3] or y[3]) and max(x[0], y[0]) < min(x[1], y[1]):
            apart += 1
            parts = [[set(range(*claimed(Touch(Val("%p", PTR), *t), units, k))) for k in range(units.count)] for t in (x, y)]
            assert all(one.isdisjoint(other) for k, one in enumerate(parts[0]) for j, other in enumerate(parts[1]) if j != k)
    assert apart > 100


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
