"""Loops that teams of threads go through: whatever the order in which the threads take their turns, results are those of one thread, to the bit.

The pool of turn_taking.py lets one thread go as far as the next barrier before another one begins. A barrier that is missing makes results wrong there.
"""

from __future__ import annotations

import ctypes
import random
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import graphcell.dtype as dt
from graphcell import ops
from graphcell.codegen import tasks
from graphcell.codegen.llvm.processor import Target
from graphcell.codegen.llvm.target import compile_object, load_object
from graphcell.codegen.lower import lower
from graphcell.codegen.program import Program
from graphcell.codegen.team import TeamCalls
from graphcell.ir.evaluate import evaluate_graph
from graphcell.ir.graph import Graph
from graphcell.ir.op import Array
from graphcell.ops.attention import Attention
from graphcell.ops.control import For, If, While
from graphcell.ops.convolution import Conv, ConvInputGrad, ConvWeightGrad
from graphcell.ops.dispatch import apply, apply1
from graphcell.ops.indexing import DynamicSlice, DynamicUpdateSlice
from graphcell.passes.pipeline import run_pipeline
from tests.codegen.plans import TARGETS
from tests.codegen.test_loop_shapes import graph_of
from tests.codegen.turn_taking import TurnTaking

ORDERS = ((1, 0), (0, 1), (2, 0, 1), (3, 1, 0, 2))
WIDEST = list(TARGETS.values())[-1]


@pytest.fixture
def all_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Teams go through every loop that they may go through, and share all that may be shared, however small."""
    monkeypatch.setattr(tasks, "GATHERED", -1e18)
    monkeypatch.setattr(tasks, "done_alone", lambda tasks, cache_bytes: set())
    monkeypatch.setattr(TeamCalls, "shared_from", 0)


class Runner:
    """A program that runs on pools of its own, its memory filled with NaN before."""

    def __init__(self, graph: Graph, target: Target, updates: Sequence[tuple[int, int]] = ()):
        self.graph, self.program = graph, lower(run_pipeline(graph)[0], updates, target)
        self.written = [v for k, v in enumerate(graph.outputs) if k not in dict(updates)]
        self.library = load_object(compile_object(self.program.text, target))
        self.entry = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 5)(self.library.address("run"))

    def run(self, arrays: Sequence[Array], pool: TurnTaking) -> list[Array]:
        outputs = [np.full(v.type.shape, 0x7F, v.type.dtype.np_type) for v in self.written]
        arena, kept = np.full(self.program.arena_bytes + 64, 0xFF, np.uint8), np.zeros(64, np.uint8)
        start = -arena.ctypes.data % 64
        inputs = table([*arrays, kept, *self.program.constants])
        assert self.entry(inputs, table(outputs), arena.ctypes.data + start, pool.address, None) == 0
        assert not pool.failure, pool.failure
        return outputs

    def team(self, arrays: Sequence[Array], order: Sequence[int]) -> tuple[list[Array], TurnTaking]:
        """What a team makes of it, in one of the four runs after the first, in which it is tried."""
        pool = TurnTaking(order)
        return self.run(arrays, pool), pool


def table(arrays: Sequence[Array]) -> Any:
    return (ctypes.c_void_p * max(1, len(arrays)))(*(a.ctypes.data for a in arrays))


def check(fn: Callable[..., Any], arrays: Sequence[Array], targets: Sequence[Target] = (), tolerance: float = 2e-5, teams: int | None = 1) -> None:
    """All orders give the bits of one thread, which gives what the ops' `eval` gives."""
    graph = graph_of(fn, arrays)
    want = evaluate_graph(graph, arrays)
    for target in targets or TARGETS.values():
        runner = Runner(graph, target)
        alone = runner.run(arrays, TurnTaking())
        for a, w in zip(alone, want, strict=True):
            np.testing.assert_allclose(a.astype(np.float64), np.asarray(w).astype(np.float64), rtol=tolerance, atol=tolerance)
        for order in ORDERS:
            found, pool = runner.team(arrays, order)
            assert teams in (None, pool.teams)
            for a, f in zip(alone, found, strict=True):
                assert a.tobytes() == f.tobytes(), (order, target.vector_bytes)


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def loop(body: Callable[..., Any], trips: int, carried: int, scanned: int, *arrays: Any, reverse: bool = False) -> Any:
    """A loop of Tensors, whose body gets its index, what it carries, rows, and what does not change."""
    rows = [np.asarray(a[0]) if carried <= k < carried + scanned else np.asarray(a) for k, a in enumerate(arrays)]
    return For(graph_of(body, [np.array(0), *rows]), trips, carried, scanned, reverse)


# -- cells -----------------------------------------------------------------------------------------------------------
def gru(x: Any, z: Any, w: Any) -> Any:
    size = x.shape[1]
    a = ops.matmul(x, w)
    u, r = ops.sigmoid(a[:, :size] + z[:, :size]), ops.sigmoid(a[:, size : 2 * size] + z[:, size : 2 * size])
    n = ops.tanh(z[:, 2 * size :] + r * a[:, 2 * size :])
    return (1 - u) * n + u * x


@pytest.mark.parametrize(("batch", "size"), [(8, 16), (32, 24), (6, 40), (12, 7), (5, 9), (1, 33), (64, 16)])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_recurrent_cell(all_share: None, batch: int, size: int, reverse: bool) -> None:
    arrays = [normal(batch, size), normal(6, batch, 3 * size), normal(size, 3 * size)]
    op = loop(lambda i, h, z, w: (gru(h, z, w),) * 2, 6, 1, 1, *arrays, reverse=reverse)
    check(lambda h, z, w: apply(op, h, z, w), arrays)


def normed(h: Any, x: Any, w: Any) -> Any:
    a = ops.matmul(ops.cat((h, x), 1), w)
    mean = a.mean(1, keep_dims=True)
    a = (a - mean) * ops.rsqrt(((a - mean) ** 2).mean(1, keep_dims=True) + 1e-5)
    return ops.tanh(a) * 0.5 + h


@pytest.mark.parametrize("batch", [32, 64, 12, 9])
def test_rows_with_norms_and_concatenations(all_share: None, batch: int) -> None:
    arrays = [normal(batch, 20), normal(5, batch, 11), normal(31, 20)]
    op = loop(lambda i, h, x, w: normed(h, x, w), 5, 1, 1, *arrays)
    check(lambda *a: apply1(op, *a), arrays)


def test_rows_that_mix(all_share: None) -> None:
    """Rows move by one place in each turn, and their mean is taken off: each thread reads what the others wrote."""
    arrays = [normal(16, 24), normal(24, 24)]

    def body(i: Any, h: Any, w: Any) -> Any:
        h = ops.tanh(ops.matmul(ops.roll(h, 1, 0), w))
        return h - h.mean(0, keep_dims=True), ops.softmax(h, 0)

    op = loop(body, 7, 1, 0, *arrays)
    check(lambda *a: apply(op, *a), arrays)


@pytest.mark.parametrize("size", [16, 32, 48])
def test_products_of_what_is_turned(all_share: None, size: int) -> None:
    """Rows of the result are columns of the left operand, which others wrote."""
    arrays = [normal(size, size), normal(size, size) * 0.3]
    op = loop(lambda i, h, w: ops.matmul(ops.tanh(h).T, w), 5, 1, 0, *arrays)
    check(lambda *a: apply1(op, *a), arrays)


def test_products_across_rows(all_share: None) -> None:
    """Of a matrix with itself turned, and sums over the batch that are carried on."""
    arrays = [normal(16, 16), normal(16, 16)]

    def body(i: Any, h: Any, total: Any) -> Any:
        h = ops.tanh(ops.matmul(h, h.T) * 0.1)
        return h, total + ops.matmul(h.T, h)

    op = loop(body, 5, 2, 0, *arrays)
    check(lambda *a: apply(op, *a), arrays)


def test_branches_in_a_loop(all_share: None) -> None:
    arrays = [normal(16, 24), normal(24, 24) * 0.2]
    apart = graph_of(lambda h, w: ops.tanh(ops.matmul(h, w)), arrays)
    mixed = graph_of(lambda h, w: ops.tanh(h - ops.roll(ops.tanh(h), 3, 0).sum()), arrays)
    for first, second in ((apart, mixed), (mixed, apart)):
        choice = If(first, second)
        op = loop(lambda i, h, w, choice=choice: ops.roll(apply1(choice, i % 2 == 0, h, w), 5, 0) + 0.1, 9, 1, 0, *arrays)
        check(lambda *a, op=op: apply1(op, *a), arrays)


def test_a_condition_that_a_branch_changes(all_share: None) -> None:
    """No thread changes the flag before all have read it."""
    arrays = [np.array(True), normal(16, 24)]
    then = graph_of(lambda f, h: (ops.logical_not(f), ops.tanh(h)), arrays)
    otherwise = graph_of(lambda f, h: (ops.logical_not(f), h * 0.5), arrays)
    op = loop(lambda i, f, h: apply(If(then, otherwise), f, f, h), 5, 2, 0, *arrays)
    check(lambda *a: apply(op, *a), arrays)


def test_a_loop_until(all_share: None) -> None:
    """The condition depends on what all threads have written."""
    arrays = [np.array(0), normal(16, 24), normal(24, 24)]
    test = graph_of(lambda k, h, w: ops.logical_and(k < 12, ops.abs(h).sum() < 230), arrays)
    body = graph_of(lambda k, h, w: (k + 1, ops.tanh(ops.matmul(h, w)) + h * 0.4), arrays)
    check(lambda *a: apply(While(test, body, 2), *a), arrays)


def test_loops_in_a_loop(all_share: None) -> None:
    arrays = [normal(16, 24), normal(24, 24) * 0.1, normal(24, 24) * 0.2]
    inner = loop(lambda i, h, w: ops.tanh(ops.matmul(h, w)), 3, 1, 0, *arrays[:2])
    op = loop(lambda i, h, w, v: apply1(inner, ops.matmul(h, v), w * (i + 1).astype(w.dtype)), 4, 1, 0, *arrays)
    check(lambda *a: apply1(op, *a), arrays)


def test_the_gradient_of_a_cell(all_share: None) -> None:
    import graphcell

    def loss(h: Any, z: Any, w: Any) -> Any:
        for k in range(30):
            h = gru(h, z[k], w)
        return (h * h).sum()

    arrays = [normal(16, 24), normal(30, 16, 72), normal(24, 72) * 0.2]
    check(lambda *a: graphcell.grad(loss, (0, 1, 2))(*a), arrays, teams=2, tolerance=2e-4)


# -- random bodies ---------------------------------------------------------------------------------------------------
def _shift(x: Any) -> Any:
    return ops.pad(x, (2, 0))[:, : x.shape[1]]


STEPS: list[Callable[..., Any]] = [
    lambda x, y, w, k: ops.tanh(ops.matmul(x, w)),
    lambda x, y, w, k: ops.matmul(x, w.T) * 0.2 + y,
    lambda x, y, w, k: ops.sigmoid(x) * y,
    lambda x, y, w, k: x - x.mean(1, keep_dims=True),
    lambda x, y, w, k: ops.softmax(x, 1) + y * 0.1,
    lambda x, y, w, k: x * 0.5 + y.mean(0, keep_dims=True),
    lambda x, y, w, k: ops.roll(x, 1, 0) * 0.5 + y * 0.5,
    lambda x, y, w, k: ops.flip(x, (1,)) - y,
    lambda x, y, w, k: ops.cat((x[:, : x.shape[1] // 2], y[:, x.shape[1] // 2 :]), 1),
    lambda x, y, w, k: ops.cat((x[: x.shape[0] // 2], y[x.shape[0] // 2 :]), 0),
    lambda x, y, w, k: ops.cumsum(x * 0.1, 1) + y * 0.5,
    lambda x, y, w, k: ops.cumsum(x * 0.1, 0),
    lambda x, y, w, k: ops.where(x > y, x, y * 0.5),
    lambda x, y, w, k: _shift(x) + y * 0.3,
    lambda x, y, w, k: ops.gather(x, (k + ops.arange(x.shape[0])) % x.shape[0], 0) * 0.7,
    lambda x, y, w, k: ops.clamp(ops.matmul(x, ops.matmul(y.T, y) * 0.01), -2, 2),
    lambda x, y, w, k: ops.clamp(ops.matmul(ops.matmul(x, y.T) * 0.05, y), -2, 2),
    lambda x, y, w, k: ops.maximum(x, 0) * ops.reshape(ops.reshape(y, (-1,)), x.shape),
    lambda x, y, w, k: ops.reshape(ops.reshape(x, (x.shape[1], x.shape[0])).T, x.shape) * 0.4,
    lambda x, y, w, k: ops.sort(x, 1)[0] * 0.5 + y * 0.1,
    lambda x, y, w, k: ops.matmul(ops.flip(x, (0,)), ops.tanh(w + x[:1] * 0.1)) * 0.4,
    lambda x, y, w, k: ops.matmul(x.T, y)[: x.shape[0], : x.shape[1]].sum() * 0.01 + y * 0.7,
    lambda x, y, w, k: ops.matmul(ops.matmul(x.T, y).T, w).mean(0, keep_dims=True) * 0.1 + x * 0.6,
    lambda x, y, w, k: ops.matmul(ops.reshape(x, (x.shape[0], 1, x.shape[1])), w).reshape(x.shape) + y * 0.1,
    lambda x, y, w, k: ops.matmul(x, w[:, :1]) * 0.1 + y * 0.8,
    lambda x, y, w, k: ops.matmul(x[:, :4], w[:4]) * 0.5 + ops.matmul(y[:, 4:], w[4:]) * 0.5,
    lambda x, y, w, k: ops.cat((ops.flip(y, (0,))[: x.shape[0] // 2], ops.matmul(x[x.shape[0] // 2 :], w)), 0),
    lambda x, y, w, k: x * y.sum(1, keepdims=True) * 0.1 + y[:, :1],
    lambda x, y, w, k: (ops.argmax(x, 1).reshape(-1, 1) == ops.arange(x.shape[1])).astype(x.dtype) + y * 0.5,
    lambda x, y, w, k: x.astype(dt.float16).astype(x.dtype) * 0.5 + y.astype(dt.bfloat16).astype(x.dtype) * 0.5,
    lambda x, y, w, k: ops.topk(x, 3, 1)[0].sum(1, keepdims=True) * 0.1 + y * 0.7,
    lambda x, y, w, k: x * 0.5 + apply1(DynamicSlice((1, x.shape[1])), y, k % x.shape[0], k * 0),
    lambda x, y, w, k: apply1(DynamicUpdateSlice(), x, y[:1] * 0.5, k % x.shape[0], k * 0),
]  # fmt: skip
"""Steps of a body: on two arrays of rows, a square matrix, the index of the turn."""


def random_loop(seed: int) -> tuple[Callable[..., Any], list[Array]]:
    dice = random.Random(seed)
    batch, size = dice.choice((4, 8, 12, 16, 32, 6, 7)), dice.choice((8, 16, 24, 33, 48))
    arrays = [normal(batch, size, seed=seed), normal(batch, size, seed=seed + 1), normal(4, batch, size), normal(size, size) * 0.3]
    chosen = [(dice.choice(STEPS), dice.randrange(8), dice.randrange(8)) for _ in range(dice.randint(2, 7))]

    def body(i: Any, h: Any, c: Any, x: Any, w: Any) -> Any:
        known = [h, c, x]
        for step, one, other in chosen:
            known.append(ops.clamp(step(known[-1 - one % len(known)], known[-1 - other % len(known)], w, i), -3, 3))
        return known[-1], known[-2], *known[3 : 3 + dice.randrange(3)]

    op = loop(body, 4, 2, 1, *arrays, reverse=dice.random() < 0.3)
    return lambda *a: apply(op, *a), arrays


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(90))
def test_random_bodies(all_share: None, seed: int) -> None:
    fn, arrays = random_loop(seed)
    check(fn, arrays, [list(TARGETS.values())[seed % len(TARGETS)]], tolerance=2e-3, teams=None)


def test_barriers_are_needed(all_share: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests above would find a barrier that is missing."""
    monkeypatch.setattr(TeamCalls, "_waits", lambda self, way, reach: False)
    wrong = 0
    for seed in range(24):
        fn, arrays = random_loop(seed)
        runner = Runner(graph_of(fn, arrays), WIDEST)
        alone = runner.run(arrays, TurnTaking())
        wrong += any(a.tobytes() != f.tobytes() for order in ORDERS[:2] for a, f in zip(alone, runner.team(arrays, order)[0], strict=True))
    assert wrong >= 8


# -- where threads meet ----------------------------------------------------------------------------------------------
def barriers(program: Program) -> int:
    """Places of the program's team where threads meet."""
    (text,) = re.findall(r"define internal void @team\d+\(.*?\n}\n", program.text, re.DOTALL)
    return text.count("call void %barrier(")


@pytest.mark.parametrize("batch", [8, 16, 32, 64])
def test_threads_with_rows_of_their_own_meet_once_a_turn(batch: int, all_share: None) -> None:
    """Once before the loop, too, when what it carries was copied."""
    arrays = [normal(batch, 32), normal(6, batch, 96), normal(32, 96)]
    op = loop(lambda i, h, z, w: (gru(h, z, w),) * 2, 6, 1, 1, *arrays)
    assert barriers(Runner(graph_of(lambda *a: apply(op, *a), arrays), WIDEST).program) <= 2


def test_threads_that_read_each_other_s_rows_meet_more_often(all_share: None) -> None:
    arrays = [normal(16, 32), normal(32, 32)]
    op = loop(lambda i, h, w: ops.tanh(ops.matmul(ops.roll(ops.tanh(h), 1, 0), w)), 6, 1, 0, *arrays)
    assert barriers(Runner(graph_of(lambda *a: apply1(op, *a), arrays), WIDEST).program) >= 3


def steps_of(fn: Callable[..., Any], arrays: Sequence[Array]) -> Program:
    return lower(run_pipeline(graph_of(fn, arrays))[0], (), WIDEST)


def test_a_team_for_short_steps_and_none_for_long_or_tiny_ones() -> None:
    for batch, size, expected in ((32, 64, 1), (2, 4, 0), (512, 512, 0)):
        arrays = [normal(batch, size), normal(30, batch, 3 * size), normal(size, 3 * size)]
        op = loop(lambda i, h, z, w: (gru(h, z, w),) * 2, 30, 1, 1, *arrays)
        program = steps_of(lambda *a, op=op: apply(op, *a), arrays)
        assert program.text.count("define internal void @team") == expected, (batch, size)


def test_the_listing_says_how_a_team_divides_steps(all_share: None) -> None:
    arrays = [normal(16, 32), normal(32, 32)]
    op = loop(lambda i, h, w: ops.tanh(ops.matmul(h - h.mean(0, keep_dims=True), w)), 6, 1, 0, *arrays)
    ways = {s.way for s in steps_of(lambda *a: apply1(op, *a), arrays).steps}
    assert ways >= {"for a team, by rows"} and ways & {"for a team, by blocks", "for the first of a team"}


def test_none_for_loops_that_ask_the_host() -> None:
    arrays = [normal(32, 48), normal(48, 48)]
    op = loop(lambda i, h, w: ops.digamma(ops.abs(ops.matmul(h, w)) + 1) * ops.bessel_y0(ops.abs(h) + 1), 30, 1, 0, *arrays)
    program = steps_of(lambda *a: apply1(op, *a), arrays)
    assert program.host_calls and "@team" not in program.text


def test_what_is_measured_decides(all_share: None) -> None:
    """Of the first runs one is alone and four are a team's; then the quicker way is taken, which is not that of this pool, whose threads wait."""
    arrays = [normal(8, 16), normal(16, 16)]
    op = loop(lambda i, h, w: ops.tanh(ops.matmul(h, w)), 3, 1, 0, *arrays)
    runner, pool, seen = Runner(graph_of(lambda *a: apply1(op, *a), arrays), WIDEST), TurnTaking(), []
    for _ in range(135):
        before = pool.teams
        runner.run(arrays, pool)
        seen.append(pool.teams - before)
    assert seen[:8] == [0, 1, 1, 1, 1, 0, 0, 0]
    assert seen[128:135] == [0, 1, 1, 1, 1, 0, 0]


CONV = {"stride": (1, 1), "padding": ((0, 0), (0, 0)), "dilation": (1, 1), "groups": 1, "channels_last": True}


@pytest.mark.parametrize(("images", "pixels", "inside", "outside"), [(2, 12, 32, 32), (1, 8, 48, 96)])
def test_convolutions_of_single_pixels(all_share: None, images: int, pixels: int, inside: int, outside: int) -> None:
    """Products whose operands are not in the order of a product."""
    x, g, w = normal(images, pixels, pixels, inside), normal(images, pixels, pixels, outside), normal(outside, inside, 1, 1) * 0.1

    def body(i: Any, g: Any, x: Any, w: Any) -> Any:
        g = ops.softmax(g, 1) * 1.1
        x = apply1(ConvInputGrad(**CONV, spatial_shape=(pixels, pixels)), w, g) * 0.5 + x * 0.1
        return ops.tanh(apply1(Conv(**CONV), ops.roll(x, 1, 1), w)), x, w * 0.5 + apply1(ConvWeightGrad(**CONV, kernel=(1, 1)), x, g) * 0.01

    op = loop(body, 3, 3, 0, g, x, w)
    check(lambda *a: apply(op, *a), [g, x, w], tolerance=1e-3)


@pytest.mark.parametrize(("batch", "size"), [(16, 16), (32, 24), (16, 48)])
def test_a_right_operand_that_lies_before_its_first_element(all_share: None, batch: int, size: int) -> None:
    arrays = [normal(batch, size), normal(size, size) * 0.3, normal(size // 2, size)]

    def body(i: Any, h: Any, w: Any, u: Any) -> Any:
        u = ops.tanh(ops.matmul(u, w))
        y = ops.cat((ops.flip(u, (0,)), ops.tanh(ops.abs(w[size // 2 :]) + 0.1)), 0)
        return ops.tanh(ops.matmul(h, ops.flip(y, (0,)))), w * 0.99, u

    op = loop(body, 4, 3, 0, *arrays)
    check(lambda *a: apply(op, *a), arrays, tolerance=1e-3)


def test_attention_in_a_loop(all_share: None) -> None:
    """A step with a plan of its own, of which a team knows nothing."""
    arrays = [normal(2, 4, 12, 16), normal(2, 4, 12, 16)]
    op = loop(lambda i, q, k: apply(Attention(0.25), q, k, k)[0] * 0.7 + q * 0.3, 3, 1, 0, *arrays)
    check(lambda *a: apply1(op, *a), arrays, [WIDEST], tolerance=1e-3)

