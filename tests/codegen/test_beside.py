"""Loops that need nothing of each other: which are paired, in what order steps then are, and that two threads may go through them at one time."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import graphcell
import graphcell.dtype as dt
from graphcell import ops
from graphcell.codegen import tasks
from graphcell.codegen.beside import begins, pair_loops
from graphcell.codegen.llvm.text import VOID, FunctionBuilder, i64
from graphcell.codegen.team import PairCalls
from graphcell.ir.evaluate import evaluate_graph
from graphcell.ir.graph import Node, Value
from graphcell.ir.op import Array
from graphcell.ir.types import TensorType
from graphcell.ops.arithmetic import Add
from graphcell.ops.contraction import MatMul
from graphcell.ops.control import For
from graphcell.ops.dispatch import apply, apply1
from graphcell.records import dataclass
from tests.codegen.plans import TARGETS
from tests.codegen.test_loop_shapes import graph_of
from tests.codegen.test_team import WIDEST, Runner, gru, loop, normal
from tests.codegen.turn_taking import TurnTaking


@pytest.fixture
def small_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pairs of loops as short as those of tests; threads meet after each step, so that the two loops go on by turns."""
    blocks = PairCalls.blocks

    def meeting(self: PairCalls, b: FunctionBuilder, *args: Any, **more: Any) -> None:
        blocks(self, b, *args, **more)
        with b.if_then(b.icmp("ne", b.args["size"], i64(1))):
            b.call_pointer(b.args["barrier"], VOID, b.args["index"])

    monkeypatch.setattr(tasks, "GATHERED", -1e18)
    monkeypatch.setattr(PairCalls, "blocks", meeting)


def check(fn: Callable[..., Any], arrays: Sequence[Array], pairs: int, tolerance: float = 2e-5) -> None:
    graph = graph_of(fn, arrays)
    want = evaluate_graph(graph, arrays)
    for target in TARGETS.values():
        runner = Runner(graph, target)
        assert runner.program.text.count("define internal void @team") >= pairs
        alone = runner.run(arrays, TurnTaking())
        for a, w in zip(alone, want, strict=True):
            np.testing.assert_allclose(a.astype(np.float64), np.asarray(w).astype(np.float64), rtol=tolerance, atol=tolerance)
        for order in ((1, 0), (0, 1), (1, 0)):
            found, pool = runner.team(arrays, order)
            assert pool.teams >= pairs and pool.barriers
            for a, f in zip(alone, found, strict=True):
                assert a.tobytes() == f.tobytes(), (order, target.vector_bytes)


def both_ways(h: Any, z: Any, w: Any, v: Any) -> Any:
    forth, back, one, other = [], [], h, h
    for k in range(30):
        one, other = gru(one, z[k], w), gru(other, z[29 - k], v)
        forth.append(one)
        back.append(other)
    return ops.stack(forth), ops.stack(back[::-1])


@pytest.mark.parametrize(("batch", "size"), [(8, 16), (3, 12), (16, 24)])
def test_two_directions(small_too: None, batch: int, size: int) -> None:
    """As loops of their own, with the same number of turns."""
    arrays = [normal(batch, size), normal(9, batch, 3 * size), normal(size, 3 * size) * 0.3, normal(size, 3 * size, seed=1) * 0.3]

    def cells(i: Any, h: Any, z: Any, w: Any) -> Any:
        return (gru(h, z, w),) * 2

    forth, back = (loop(cells, 9, 1, 1, *arrays[:3], reverse=reverse) for reverse in (False, True))

    def layer(h: Any, z: Any, w: Any, v: Any) -> Any:
        return *apply(forth, h, z, w), *apply(back, h, z, v)

    check(layer, arrays, 1)


@pytest.mark.parametrize("ends", [lambda y, c: y, lambda y, c: ops.relu(y * 0.5 + c[:1])], ids=["plain", "with what follows"])
@pytest.mark.parametrize("columns", [7, 40])
def test_products_of_what_both_made(small_too: None, ends: Callable[..., Any], columns: int) -> None:
    """The thread that went through a loop goes on with them."""
    arrays = [normal(8, 16), normal(9, 8, 48), normal(16, 48) * 0.3, normal(16, 48, seed=1) * 0.3, normal(72, columns)]

    def cells(i: Any, h: Any, z: Any, w: Any) -> Any:
        return (gru(h, z, w),) * 2

    forth, back = (loop(cells, 9, 1, 1, *arrays[:3], reverse=reverse) for reverse in (False, True))

    def layer(h: Any, z: Any, w: Any, v: Any, c: Any) -> Any:
        one, other = apply(forth, h, z, w)[1], apply(back, h, z, v)[1]
        return [ends(ops.matmul(y.reshape((72, 16)).T, c), c) for y in (one, other)]

    check(layer, arrays, 1)
    text = Runner(graph_of(layer, arrays), WIDEST).program.text
    team = text[text.index("define internal void @team") :]
    assert team[: team.index("\n}")].count("call void @matmul") >= 4  # one of each loop, and these


def both_sides(arrays: Sequence[Array], trips: int) -> tuple[Any, Any]:
    """Two loops of the same kind, over a matrix and over its transpose."""
    one = loop(lambda i, h, w: ops.tanh(ops.matmul(h, w)) + h * 0.1, trips, 1, 0, *arrays)
    other = loop(lambda i, h, w: ops.tanh(ops.matmul(h, w.T)) - h * 0.1, trips, 1, 0, *arrays)
    return one, other


def test_long_products_are_for_all_threads(small_too: None, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = [normal(8, 16), normal(16, 16) * 0.3, normal(16, 900)]
    one, other = both_sides(arrays[:2], 7)

    def fn(h: Any, w: Any, c: Any) -> Any:
        return ops.matmul(apply1(one, h, w), c), ops.matmul(apply1(other, h, w), c)

    for most, inside in ((tasks.LONG, 4), (2000.0, 2)):
        monkeypatch.setattr(tasks, "LONG", most)
        check(fn, arrays, 1)
        text = Runner(graph_of(fn, arrays), WIDEST).program.text
        team = text[text.index("define internal void @team") :]
        assert team[: team.index("\n}")].count("call void @matmul") == inside


def test_what_a_loop_carries_on_while_a_product_behind_the_other_reads_it(small_too: None) -> None:
    """It is used no more afterwards, so that the loop could have its memory."""
    arrays = [normal(8, 16), normal(16, 16) * 0.3]
    one, other = both_sides(arrays, 7)

    def fn(x: Any, y: Any, w: Any) -> Any:
        h = ops.exp(x * 0.1)
        return ops.matmul(apply1(one, y, w), h.T), ops.matmul(apply1(other, h, w), y.T)

    check(fn, [arrays[0], arrays[0] + 1, arrays[1]], 1)


def test_two_layers_of_two_directions_and_their_gradients(small_too: None) -> None:
    """Which need both loops of the layer before."""
    arrays = [normal(4, 8), normal(30, 4, 24), normal(8, 24) * 0.3, normal(8, 24, seed=1) * 0.3, normal(16, 24) * 0.3]

    def loss(h: Any, z: Any, w: Any, v: Any, u: Any) -> Any:
        x = ops.cat(both_ways(h, z, w, v), 2)
        return (ops.cat(both_ways(h, ops.matmul(x, u), w, v), 2) ** 2).sum()

    check(lambda *a: graphcell.grad(loss, (0, 1, 2, 3, 4))(*a), arrays, 2, tolerance=5e-4)


def test_what_a_loop_changes_in_place_while_the_other_reads_it(small_too: None) -> None:
    """Both carry on the same array, which is used no more afterwards."""
    arrays = [normal(8, 16), normal(16, 16) * 0.3]
    one = loop(lambda i, h, w: ops.tanh(ops.matmul(h, w)) + h * 0.1, 7, 1, 0, *arrays)
    other = loop(lambda i, h, w: ops.tanh(ops.matmul(h, w.T)) - h * 0.1, 7, 1, 0, *arrays)

    def both(x: Any, w: Any) -> Any:
        h = ops.exp(x * 0.1)
        return apply1(one, h, w), apply1(other, h, w)

    check(both, arrays, 1)


@pytest.mark.parametrize(("size", "trips"), [(4, 3), (640, 2)])
def test_pairs_that_are_not_worth_it_run_one_after_another(size: int, trips: int) -> None:
    """Tiny loops, and those of long steps: each once, though both carry on what they were given where it lies."""
    arrays = [normal(size, size) * 0.1, normal(size, size) * 0.02]
    one = loop(lambda i, h, w: ops.tanh(ops.matmul(h, w)) + h * 0.1, trips, 1, 0, *arrays)
    other = loop(lambda i, h, w: ops.tanh(ops.matmul(h, w.T)) - h * 0.1, trips, 1, 0, *arrays)
    graph = graph_of(lambda x, w: (apply1(one, ops.exp(x), w), apply1(other, ops.sin(x), w)), arrays)
    runner, pool = Runner(graph, WIDEST), TurnTaking()
    assert runner.program.text.count("for.head") >= 2 and "@team" not in runner.program.text
    for found, want in zip(runner.run(arrays, pool), evaluate_graph(graph, arrays), strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-3, atol=1e-4)


def test_an_update_of_what_one_of_them_reads(small_too: None) -> None:
    """The first loop's result is written over what the second reads: not before that is through."""
    arrays = [normal(8, 16), normal(16, 16) * 0.3]
    one = loop(lambda i, h, w: ops.tanh(ops.matmul(h, w)) + h * 0.1, 7, 1, 0, *arrays)
    other = loop(lambda i, h, w: ops.tanh(ops.matmul(h, w.T)) - h * 0.1, 7, 1, 0, *arrays)
    graph = graph_of(lambda x, y, w: (apply1(one, x, w), apply1(other, y + x[:1], w), apply1(other, x, w)), [arrays[0], arrays[0] + 1, arrays[1]])
    want = evaluate_graph(graph, [arrays[0], arrays[0] + 1, arrays[1]])
    for order in ((1, 0), (0, 1)):
        runner, pool = Runner(graph, WIDEST, ((0, 0),)), TurnTaking(order)
        for _ in range(2):
            given = [arrays[0].copy(), arrays[0] + 1, arrays[1]]
            second, third = runner.run(given, pool)
        for found, expected in zip((given[0], second, third), want, strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


def test_loops_that_need_each_other_follow_each_other(small_too: None) -> None:
    arrays = [normal(8, 16), normal(16, 16) * 0.3]
    op = loop(lambda i, h, w: ops.tanh(ops.matmul(h, w)), 7, 1, 0, *arrays)
    graph = graph_of(lambda h, w: apply1(op, ops.roll(apply1(op, h, w), 1, 0), w), arrays)
    pool = TurnTaking()
    runner = Runner(graph, WIDEST)
    for _ in range(2):
        (found,) = runner.run(arrays, pool)
    np.testing.assert_allclose(found, evaluate_graph(graph, arrays)[0], rtol=1e-5, atol=1e-5)


# -- which are paired ------------------------------------------------------------------------------------------------
PRODUCT, TURNED = -1, -2


@dataclass(eq=False)
class Unit:
    """A step: a loop if `trips` is positive, a product of matrices if it is negative."""

    trips: int
    inputs: list[Value]
    outputs: list[Value]
    node: Node | None = None

    def __post_init__(self) -> None:
        if self.trips < 0:
            self.node = Node(MatMul(self.trips == TURNED, False), tuple(self.inputs), tuple(self.outputs))
        elif self.trips:
            body = graph_of(lambda i, x: x + 1, [np.array(0), normal(4, 4)])
            self.node = Node(For(body, self.trips, 1, 0), tuple(self.inputs), tuple(self.outputs))
        else:
            self.node = Node(Add(), tuple(self.inputs), tuple(self.outputs))

    def reads(self, info: Any) -> list[Value]:
        return self.inputs

    def writes(self) -> list[Value]:
        return self.outputs


def value(rows: int = 4) -> Value:
    return Value(TensorType(dt.float32, (rows, 4)))


def test_equal_loops_are_paired_and_others_are_not() -> None:
    x = value()
    for trips, paired in ((10, True), (12, True), (16, False), (1, False), (0, False)):
        units = [Unit(10, [x], [value()]), Unit(trips, [x], [value()])]
        assert bool(pair_loops(units, None, (), (), ())[1]) == paired  # type: ignore[arg-type]


def test_what_needs_the_first_goes_behind_both() -> None:
    x, y, z, u, v = (value() for _ in range(5))
    first, needs, other, second = Unit(9, [x], [y]), Unit(0, [y], [z]), Unit(0, [x], [u]), Unit(9, [u], [v])
    found, pairs = pair_loops([first, needs, other, second], None, (), (), ())  # type: ignore[arg-type]
    assert [(p.first, p.second) for p in pairs] == [(first, second)] and found == [other, first, second, needs]


def test_what_is_written_over_what_the_first_reads_stays_behind() -> None:
    x, y, z, v = (value() for _ in range(4))
    first, update, second = Unit(9, [x], [y]), Unit(0, [z], [v]), Unit(9, [z], [value()])
    assert pair_loops([first, update, second], None, (), [(v, x)], ())[0] == [first, second, update]  # type: ignore[arg-type]
    assert pair_loops([first, update, second], None, (), (), ())[0] == [update, first, second]  # type: ignore[arg-type]


def test_what_follows_such_a_step_stays_behind_it_too() -> None:
    """The update reads what a step behind both makes, and another is written over what that reads."""
    x, y, z, v, w = (value() for _ in range(5))
    first, needs, update, second = Unit(9, [x], [y]), Unit(0, [y, z], [v]), Unit(0, [x], [w]), Unit(9, [x], [value()])
    found, pairs = pair_loops([first, needs, update, second], None, (), [(w, z)], ())  # type: ignore[arg-type]
    assert pairs and found == [first, second, needs, update]


def test_nothing_passes_a_step_with_an_effect() -> None:
    x = value()
    first, fixed, second = Unit(9, [x], [value()]), Unit(0, [x], [value()]), Unit(9, [x], [value()])
    for kept in (fixed, first, second):
        assert not pair_loops([first, fixed, second], None, (), (), [kept])[1]  # type: ignore[arg-type]


@pytest.mark.parametrize(("rows", "paired"), [(4, True), (1 << 18, False)])
def test_pairs_that_need_much_more_memory_are_not_formed(rows: int, paired: bool) -> None:
    """A loop whose result is used up at once, and one that would be kept meanwhile: 16 bytes a row."""
    x, y, z, u, v = (value(rows) for _ in range(5))
    units = [Unit(9, [x], [y]), Unit(0, [y], [z]), Unit(9, [x], [u]), Unit(0, [u], [v])]
    found, pairs = pair_loops(units, None, (z, v), (), ())  # type: ignore[arg-type]
    assert bool(pairs) == paired and (paired or found == units)


def test_equal_products_of_what_loops_made_follow_them() -> None:
    """Of each loop the first that has a twin; but none of what comes later, of both loops, or of neither."""
    x, y, z, u = (value() for _ in range(4))
    first, second = Unit(9, [x], [y]), Unit(9, [x], [z])
    of_first, turned, of_second = Unit(PRODUCT, [y, x], [value()]), Unit(TURNED, [y, x], [value()]), Unit(PRODUCT, [z, x], [value()])
    other, of_later, of_both = Unit(0, [x], [u]), Unit(PRODUCT, [z, u], [value()]), Unit(PRODUCT, [z, y], [value()])
    of_neither, more = Unit(PRODUCT, [x, x], [value()]), Unit(PRODUCT, [y, x], [value()])
    units = [first, second, other, turned, of_later, of_both, of_first, of_neither, more, of_second]
    found, (pair,) = pair_loops(units, None, (), (), ())  # type: ignore[arg-type]
    assert pair.sides == ([first, of_first], [second, of_second])
    assert found == [first, second, of_first, of_second, other, turned, of_later, of_both, of_neither, more]
    assert begins(found, [pair]) == [0, 0, 0, 0, 4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize(("overwritten", "fixed"), [(True, False), (False, True)])
def test_products_stay_where_they_are(overwritten: bool, fixed: bool) -> None:
    """What is written over something, and what stands behind an effect."""
    x, y, z, v = (value() for _ in range(4))
    units = [Unit(9, [x], [y]), Unit(9, [x], [z]), Unit(0, [x], [value()]), Unit(PRODUCT, [y, x], [v]), Unit(PRODUCT, [z, x], [value()])]
    found, (pair,) = pair_loops(units, None, (), [(v, x)] if overwritten else [], units[2:3] if fixed else [])  # type: ignore[arg-type]
    assert found == units and pair.behind == ([], [])


@pytest.mark.parametrize("seed", range(80))
def test_random_orders(seed: int) -> None:
    """Each step still follows what it reads, loops of a pair follow each other, and neither side needs the other."""
    dice = random.Random(seed)
    known, units = [value()], []
    for _ in range(dice.randint(2, 25)):
        made = value()
        trips = dice.choice((0, 0, 9, PRODUCT, PRODUCT))
        units.append(Unit(trips, dice.choices(known[-6:], k=2 if trips < 0 else dice.randint(1, 2)), [made]))
        known.append(made)
    found, pairs = pair_loops(units, None, (), (), ())  # type: ignore[arg-type]
    assert sorted(map(id, found)) == sorted(map(id, units))
    there = {known[0]}
    for unit in found:
        assert there.issuperset(unit.inputs)
        there.update(unit.outputs)
    for pair in pairs:
        at = found.index(pair.first)
        assert found[at : at + len(pair.units)] == pair.units
        for side, other in (pair.sides, pair.sides[::-1]):
            assert {v for u in side for v in u.outputs}.isdisjoint(v for u in other for v in u.inputs)
    assert len({id(u) for pair in pairs for u in pair.units}) == sum(len(pair.units) for pair in pairs)


