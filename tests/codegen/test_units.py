"""Units of rows of which the last is smaller: how they come about, and loops of odd batches, whose results are those of one thread, to the bit."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphcell
from graphcell import ops
from graphcell.codegen import tasks
from graphcell.codegen.units import COUNTS, EVEN, Blocks, Units, blocks_of_unit, units_of_blocks, units_of_rows
from graphcell.ir.op import Array
from graphcell.ops.dispatch import apply, apply1
from tests.codegen.plans import TARGETS
from tests.codegen.test_reach import rows_of, units_of
from tests.codegen.test_team import STEPS, WIDEST, Runner, all_share, barriers, check, graph_of, gru, loop, normal, steps_of

__all__ = ["all_share"]


@pytest.fixture
def all_go(all_share: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Teams go through loops of long steps, too."""
    monkeypatch.setattr(tasks, "LONG", 1e18)


# -- units -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("rows", range(1, 60))
def test_units_are_all_rows(rows: int) -> None:
    for units in units_of_rows(rows):
        assert 2 <= units.count <= max(COUNTS) and not units.are_even
        parts = [rows_of(units, k, rows) for k in range(units.count)]
        assert [r for part in parts for r in part] == list(range(rows)) and all(parts)


def test_what_a_unit_has_of_an_extent() -> None:
    units = Units(4, 19, 5)
    assert [units.of(n) for n in (19, 38, 19 * 80, 20, 10, 1)] == [5, 10, 400, 0, 0, 0]
    assert [EVEN[0].of(n) for n in (4, 32, 18, 1)] == [1, 8, 0, 0]
    assert [u.evenness for u in (units, EVEN[0], EVEN[2], units_of(6, 5), units_of(128, 12))] == [0.95, 1, 0.75, 0.6, 128 / 136]
    assert [Blocks(*of).evenness for of in (((0, 5, 10, 15), 19), ((0, 22), 33), ((0,), 7), ((), 7))] == [0.95, 0.75, 0.5, 1]
    assert [u.between_ends(u.of(n) * 4) for u, n in ((units, 19), (units, 38), (EVEN[1], 8))] == [14 * 4, 28 * 4, 4 * 4]


def test_units_of_blocks_begin_where_blocks_do() -> None:
    assert list(units_of_blocks(Blocks((0, 5, 10, 15), 19))) == [Units(4, 19, 5), Units(2, 19, 10)]
    assert list(units_of_blocks(Blocks(tuple(range(0, 128, 12)), 128))) == [Units(4, 128, 36), Units(2, 128, 72), Units(3, 128, 48), Units(11, 128, 12)]
    assert list(units_of_blocks(Blocks((0, 10, 20, 25), 33))) == [Units(2, 33, 20)]
    assert not any(list(units_of_blocks(Blocks(first, rows))) for first, rows in (((0, 8, 16, 24), 32), ((0,), 7), ((), 7)))


@pytest.mark.parametrize("seed", range(20))
def test_blocks_of_a_unit_are_its_rows(seed: int) -> None:
    dice = random.Random(seed)
    rows = dice.randint(2, 40)
    first = [0, *sorted(dice.sample(range(1, rows), dice.randint(0, min(6, rows - 1))))]
    for each in range(1, rows):
        units = units_of(rows, each)
        blocks = blocks_of_unit(first, rows, units)
        begins = [rows_of(units, k, rows).start for k in range(units.count)]
        assert not blocks or [first[k * blocks] for k in range(units.count)] == begins


# -- loops -----------------------------------------------------------------------------------------------------------
BATCHES = [(7, 77), (19, 80), (33, 77), (50, 80), (19, 77), (33, 80)]


def elman(x: Any, z: Any, w: Any) -> Any:
    return ops.tanh(ops.matmul(x, w.T) + z)


def lstm(h: Any, c: Any, z: Any, w: Any) -> tuple[Any, Any]:
    size = h.shape[1]
    i, f, g, o = ((ops.matmul(h, w) + z)[:, k * size : (k + 1) * size] for k in range(4))
    c = ops.sigmoid(f) * c + ops.sigmoid(i) * ops.tanh(g)
    return ops.sigmoid(o) * ops.tanh(c), c


@pytest.mark.parametrize(("batch", "size"), BATCHES)
def test_recurrent_cells_of_odd_batches(all_go: None, batch: int, size: int) -> None:
    square, gates = normal(size, size) * 0.1, normal(size, 4 * size) * 0.1
    h, z = normal(batch, size), normal(4, batch, 4 * size)
    op = loop(lambda i, h, z, w: (elman(h, z, w),) * 2, 4, 1, 1, h, z[:, :, :size], square)
    check(lambda *a: apply(op, *a), [h, np.ascontiguousarray(z[:, :, :size]), square])
    op = loop(lambda i, h, z, w: (gru(h, z, w),) * 2, 4, 1, 1, h, z[:, :, : 3 * size], gates[:, : 3 * size])
    check(lambda *a: apply(op, *a), [h, np.ascontiguousarray(z[:, :, : 3 * size]), np.ascontiguousarray(gates[:, : 3 * size])])
    op = loop(lambda i, h, c, z, w: lstm(h, c, z, w), 4, 2, 1, h, h, z, gates)
    check(lambda *a: apply(op, *a), [h, h * 0.5, z, gates])


def rolled(cell: Callable[..., Any], carried: int) -> Callable[..., Any]:
    def loss(h: Any, z: Any, w: Any) -> Any:
        state = (h,) * carried
        for k in range(30):
            new = cell(*state, z[k], w)
            state = new if isinstance(new, tuple) else (new,)
        return (state[0] * state[0]).sum()

    return lambda *a: graphcell.grad(loss, (0, 1, 2))(*a)


@pytest.mark.slow
@pytest.mark.parametrize(("cell", "carried", "gates"), [(elman, 1, 1), (gru, 1, 3), (lstm, 2, 4)], ids=["elman", "gru", "lstm"])
@pytest.mark.parametrize(("batch", "size"), BATCHES[:4])
def test_gradients_of_odd_batches(all_go: None, cell: Callable[..., Any], carried: int, gates: int, batch: int, size: int) -> None:
    arrays = [normal(batch, size), normal(30, batch, gates * size), normal(size, gates * size) * 0.1]
    target = list(TARGETS.values())[(batch + gates) % len(TARGETS)]
    check(rolled(cell, carried), arrays, [WIDEST, target], teams=2, tolerance=1e-3)


@pytest.mark.parametrize("seed", range(40))
def test_random_bodies_of_odd_batches(all_go: None, seed: int) -> None:
    dice = random.Random(seed)
    batch, size = dice.choice((19, 33, 50, 13, 31)), dice.choice((16, 33, 40))
    arrays: list[Array] = [normal(batch, size, seed=seed), normal(batch, size, seed=seed + 1), normal(4, batch, size), normal(size, size) * 0.3]
    rows_apart = [STEPS[k] for k in (0, 1, 2, 3, 4, 7, 8, 12, 13, 15, 24, 25, 28)]
    mixed = [STEPS[k] for k in (5, 6, 14, 20, 26)]
    chosen = [(dice.choice(rows_apart if dice.random() < 0.85 else mixed), dice.randrange(8), dice.randrange(8)) for _ in range(dice.randint(3, 8))]

    def body(i: Any, h: Any, c: Any, x: Any, w: Any) -> Any:
        known = [h, c, x]
        for step, one, other in chosen:
            known.append(ops.clamp(step(known[-1 - one % len(known)], known[-1 - other % len(known)], w, i), -3, 3))
        return known[-1], known[-2], *known[3 : 3 + dice.randrange(3)]

    op = loop(body, 4, 2, 1, *arrays)
    check(lambda *a: apply(op, *a), arrays, [list(TARGETS.values())[seed % len(TARGETS)]], tolerance=2e-3, teams=None)


@pytest.mark.parametrize("size", [77, 80])
@pytest.mark.parametrize("batch", [19, 33, 50])
def test_threads_with_uneven_rows_meet_once_a_turn(all_go: None, batch: int, size: int) -> None:
    """Whose steps are all long loops of elements, whatever is a vector: each has rows of its own."""
    arrays = [normal(batch, size), normal(batch, size)]
    op = loop(lambda i, h, c: (ops.tanh(h) * 0.5 + c, ops.sigmoid(c - h)), 6, 2, 0, *arrays)
    for target in TARGETS.values():
        program = Runner(graph_of(lambda *a: apply(op, *a), arrays), target).program
        assert {s.way for s in program.steps if s.way} == {"for a team, by rows"} and barriers(program) <= 2
    check(lambda *a: apply(op, *a), arrays)


def test_products_and_what_follows_them_go_by_uneven_rows() -> None:
    if WIDEST.vector_bytes < 64:
        pytest.skip("for processors with AVX-512")
    arrays = [normal(19, 80), normal(30, 19, 80), normal(80, 80) * 0.1]
    op = loop(lambda i, h, z, w: (elman(h, z, w),) * 2, 30, 1, 1, *arrays)
    assert {s.way for s in steps_of(lambda *a: apply(op, *a), arrays).steps if s.way} == {"for a team, by rows"}


def test_rows_of_another_number_are_left_as_they_are(all_share: None) -> None:
    """Weights that a loop changes have no rows of the batch."""
    arrays = [normal(19, 80), normal(80, 80) * 0.1]
    op = loop(lambda i, h, w: (ops.tanh(ops.matmul(h, w)), w * 0.9 + 0.01), 5, 2, 0, *arrays)
    check(lambda *a: apply(op, *a), arrays)
    op = loop(lambda i, h, w: ops.tanh(ops.matmul(h, w)), 5, 1, 0, *arrays)
    check(lambda *a: apply1(op, *a), arrays)
