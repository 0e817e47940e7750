"""Work on weights is done once: before a loop, or by `prepare` for frozen inputs. Results are those of the ops' `eval`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from graphcell import dtype as dt
from graphcell import ops
from graphcell.codegen.llvm import target as machine
from graphcell.codegen.llvm.contraction import Plan, Stage
from graphcell.codegen.lower import lower
from graphcell.codegen.prepare import preparation_of
from graphcell.codegen.program import Program
from graphcell.ir.evaluate import evaluate_graph
from graphcell.ir.graph import Graph
from graphcell.ir.op import Array
from graphcell.ir.types import TensorType
from graphcell.ops.control import For, If, While
from graphcell.ops.convolution import Conv
from graphcell.ops.dispatch import apply, apply1
from graphcell.ops.movement import Transpose
from graphcell.passes.pipeline import run_pipeline
from graphcell.runtime.executable import compile_graph
from graphcell.tensor import Tensor
from tests.codegen.plans import TARGETS
from tests.codegen.test_guards import check
from tests.helpers import trace
from tests.passes.random_graphs import random_graph

RNG = np.random.default_rng(11)


def normal(*shape: int) -> Array:
    return (0.3 * RNG.standard_normal(shape)).astype(np.float32)


def types(*arrays: Array) -> list[TensorType]:
    return [TensorType(dt.from_numpy(a.dtype), a.shape) for a in arrays]


def lowered(graph: Graph, frozen: tuple[int, ...] = ()) -> Program:
    return lower(run_pipeline(graph)[0], (), machine.host(), frozen)


def prepared(program: Program) -> list[str]:
    return [s.title for s in program.steps if s.title.startswith("prepare ")]


def region(fn: Callable[..., Any], *arrays: Array) -> Graph:
    return trace(fn, *types(*arrays))


# -- plans ---------------------------------------------------------------------------------------------------------------
def stage(name: str, *buffers: str, extra: tuple[str, ...] = ()) -> Stage:
    return Stage(name, buffers, extra, 1, 1)


def test_stages_of_one_operand_are_a_preparation() -> None:
    pack, work = stage("pack", "b", "packed", "scratch"), stage("work", "a", "packed", "c")
    plan = Plan((pack, work), (("packed", 64),))
    found = preparation_of(plan, frozenset({1}))
    assert found is not None and (found.operand, found.stages, found.buffers) == (1, (pack,), (("packed", 64),))
    assert preparation_of(plan, frozenset({0})) is None


def test_a_buffer_that_other_stages_write_is_none() -> None:
    pack = stage("pack", "b", "packed")
    for other in (stage("more", "a", "packed"), stage("both", "a", "b", "packed"), stage("extra", "b", "packed", extra=("e",))):
        assert preparation_of(Plan((pack, other, stage("work", "a", "packed", "c")), (("packed", 64),)), frozenset({1})) is None


def test_all_stages_that_fill_a_buffer_go_together() -> None:
    plan = Plan((stage("p0", "a", "packed"), stage("p1", "a", "packed"), stage("in", "b", "t"), stage("work", "t", "packed", "c")), (("packed", 64), ("t", 64)))
    found = preparation_of(plan, frozenset({0}))
    assert found is not None and [s.function for s in found.stages] == ["p0", "p1"] and dict(found.buffers) == {"packed": 64}


# -- loops ---------------------------------------------------------------------------------------------------------------
X, W, V = normal(14, 80), normal(80, 80), normal(80, 80)
COUNT = np.array(3, np.int64)


def for_loop(x: Tensor, w: Tensor) -> Tensor:
    body = region(lambda i, x, w: ops.tanh(ops.matmul(x, w.T)), np.array(0), X, W)
    return apply1(For(body, 3, 1, 0), x, w)


def while_loop(i: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    more = region(lambda i, x, w: ops.logical_and(i > 0, ops.matmul(x, w).sum() < 1e9), COUNT, X, W)
    body = region(lambda i, x, w: (i - 1, ops.tanh(ops.matmul(x, w))), COUNT, X, W)
    return apply(While(more, body, 2), i, x, w)


def nested(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
    inner = region(lambda i, x, w, v: ops.tanh(ops.matmul(ops.matmul(x, w), v)), np.array(0), X, W, V)
    outer = region(lambda i, x, w, v: apply1(For(inner, 2, 1, 0), x, w, v * (i + 1).astype(dt.float32)), np.array(0), X, W, V)
    return apply1(For(outer, 2, 1, 0), x, w, v)


def branches(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
    then = region(lambda x, w, v: ops.matmul(x, w), X, W, V)
    otherwise = region(lambda x, w, v: ops.matmul(x, v.T), X, W, V)
    body = region(lambda i, x, w, v: ops.tanh(apply1(If(then, otherwise), i % 2 == 0, x, w, v)), np.array(0), X, W, V)
    return apply1(For(body, 4, 1, 0), x, w, v)


def carried_weights(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    body = region(lambda i, x, w: (ops.tanh(ops.matmul(x, w)), w * 0.5), np.array(0), X, W)
    return apply(For(body, 3, 2, 0), x, w)


LOOPS: dict[str, tuple[Callable[..., Any], list[Array], int]] = {
    "for": (for_loop, [X, W], 1),
    "while": (while_loop, [COUNT, X, W], 1),
    "nested": (nested, [X, W, V], 2),
    "branches": (branches, [X, W, V], 2),
    "carried": (carried_weights, [X, W], 0),
}


@pytest.mark.parametrize("name", LOOPS)
def test_weights_are_prepared_before_loops(name: str) -> None:
    fn, arrays, count = LOOPS[name]
    graph = trace(fn, *types(*arrays))
    assert len(prepared(lowered(graph))) == count
    check(graph, arrays, list(TARGETS)[-1:])


def test_a_preparation_leaves_all_loops_in_which_its_weights_stay() -> None:
    """w stays in both loops and is prepared once, v changes in the outer one."""
    graph = trace(nested, *types(X, W, V))
    first = lowered(graph)
    entry, loops = first.text[first.text.index("define i32 @run") :], first.text[first.text.index("@team1(") : first.text.index("define i32 @run")]
    assert sum("@pack." in line for line in entry.splitlines()) == 1
    assert sum("call void @pack." in line for line in loops.splitlines()) == 1


def test_a_loop_of_one_round_prepares_nothing() -> None:
    body = region(lambda i, x, w: ops.matmul(x, w.T), np.array(0), X, W)
    assert not prepared(lowered(trace(lambda x, w: apply1(For(body, 1, 1, 0), x, w), *types(X, W))))


# -- frozen inputs -------------------------------------------------------------------------------------------------------
def conv(x: Tensor, w: Tensor, stride: int = 1) -> Tensor:
    return apply1(Conv((stride, stride), ((1, 1), (1, 1)), (1, 1), 1, channels_last=True), x, w)


def scaled(x: Tensor, w: Tensor, gamma: Tensor, var: Tensor) -> Tensor:
    return ops.matmul(x, w.T) * (gamma * ops.rsqrt(var + 1e-5))


def two_of_one(x: Tensor, w: Tensor) -> Tensor:
    """The same weights as they are and turned, and a value of them that is read itself."""
    result: Tensor = ops.matmul(ops.matmul(x, w), w.T) + ops.exp(w).sum(0)
    return result


FROZEN: dict[str, tuple[Callable[..., Any], list[Array], tuple[int, ...]]] = {
    "matmul": (lambda x, w: ops.matmul(x, w), [normal(33, 70), normal(70, 65)], (1,)),
    "transposed": (lambda x, w: ops.matmul(x, w.T), [normal(1, 130), normal(67, 130)], (1,)),
    "few_rows_in_place": (lambda x, w: ops.matmul(x, w), [normal(5, 129), normal(129, 77)], (1,)),
    "one_row": (lambda x, w: ops.matmul(x, w), [normal(1, 129), normal(129, 77)], (1,)),
    "few_columns": (lambda x, w: ops.matmul(x, w), [normal(14, 3000), normal(3000, 3)], (1,)),
    "deep": (lambda x, w: ops.matmul(x, w), [normal(2, 2100), normal(2100, 17)], (1,)),
    "half": (lambda x, w: ops.matmul(x, w), [normal(4, 80).astype(np.float16), normal(80, 70).astype(np.float16)], (1,)),
    "batch": (lambda x, w: ops.matmul(x, w), [normal(3, 5, 64), normal(64, 80)], (1,)),
    "batch_of_weights": (lambda x, w: ops.matmul(x, w), [normal(3, 5, 64), normal(3, 64, 80)], (1,)),
    "left": (lambda w, x: ops.matmul(w, x), [normal(90, 64), normal(64, 9)], (0,)),
    "both": (lambda w, x, y: ops.matmul(w, x) + y, [normal(40, 64), normal(64, 40), normal(40, 40)], (0, 1)),
    "scaled": (scaled, [normal(14, 64), normal(70, 64), normal(70), np.abs(normal(70))], (1, 2, 3)),
    "two_of_one": (two_of_one, [normal(6, 66), normal(66, 66)], (1,)),
    "elementwise_only": (lambda x, w: x + ops.tanh(w).sum(0), [normal(6, 600), normal(9, 600)], (1,)),
    "conv": (conv, [normal(1, 9, 7, 20), normal(33, 20, 3, 3)], (1,)),
    "conv_stride": (lambda x, w: conv(x, w, 2), [normal(2, 8, 8, 16), normal(32, 16, 3, 3)], (1,)),
    "conv_of_product": (lambda x, w, s: conv(x, w * s.reshape(-1, 1, 1, 1)), [normal(1, 6, 6, 16), normal(32, 16, 3, 3), normal(32)], (1, 2)),
    "loop": (for_loop, [X, W], (1,)),
    "nested": (nested, [X, W, V], (1, 2)),
    "branches": (branches, [X, W, V], (2,)),
    "output_of_weights": (lambda x, w: (ops.matmul(x, w), w * 2.0, ops.relu(w)), [normal(14, 64), normal(64, 80)], (1,)),
    "view_as_output": (lambda x, w: (ops.matmul(x, w), apply1(Transpose((1, 0)), w)), [normal(14, 64), normal(64, 80)], (1,)),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", FROZEN)
def test_frozen_inputs(name: str) -> None:
    fn, arrays, frozen = FROZEN[name]
    graph = trace(fn, *types(*arrays))
    program = lowered(graph, frozen)
    assert (program.kept is not None) == (name not in ("left", "batch_of_weights", "few_rows_in_place"))
    check(graph, arrays, frozen=frozen)


@pytest.mark.parametrize("seed", range(40))
def test_random_graphs_with_frozen_inputs(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphcell.codegen.lower.LEAST_BYTES", 1)
    graph, arrays = random_graph(seed, exact=True)
    frozen = [k for k in range(len(arrays)) if (seed >> k % 5) & 1 or k % 2]
    tensors = [Tensor(a) for a in arrays]
    executable = compile_graph(graph, frozen=frozen)
    with np.errstate(all="ignore"):
        for _ in range(2):
            for want, got in zip(evaluate_graph(graph, arrays), executable(tensors), strict=True):
                np.testing.assert_array_equal(got.asnumpy(), want)
        for k in range(len(arrays)):  # each input in turn gets other values
            arrays[k] = arrays[k][..., ::-1].copy() if arrays[k].ndim else arrays[k]
            tensors[k] = Tensor(arrays[k])
            for want, got in zip(evaluate_graph(graph, arrays), executable(tensors), strict=True):
                np.testing.assert_array_equal(got.asnumpy(), want)


def test_nothing_large_is_kept() -> None:
    """A value is kept if it is at most twice as large as what it comes from."""
    grown = lowered(trace(lambda x, w: x + ops.exp(w).broadcast_to((64, 600)) * ops.tanh(w).broadcast_to((64, 600)), *types(normal(64, 600), normal(600))), (1,))
    assert grown.kept is not None and grown.kept.nbytes <= 2 * (600 * 4 + 64)


def test_little_is_not_kept() -> None:
    assert lowered(trace(lambda x, w: x * ops.exp(w), *types(normal(5, 16), normal(16))), (1,)).kept is None


def test_inputs_that_the_graph_updates_are_not_frozen() -> None:
    graph = trace(lambda x, w: (ops.matmul(x, w), w * 0.5), *types(normal(14, 64), normal(64, 80)))
    assert lower(run_pipeline(graph)[0], ((1, 1),), machine.host(), (1,)).kept is None


def test_what_changed_alone_is_prepared_again() -> None:
    """Weights of two products: changing one leaves the flag of the other, and what was made of it, alone."""
    graph = trace(lambda x, w, v: ops.matmul(ops.matmul(x, w), v), *types(normal(14, 64), normal(64, 80), normal(80, 64)))
    program = lowered(graph, (1, 2))
    assert program.kept is not None and program.kept.sources == (1, 2)
    text = program.text[program.text.index("@prepare(") :]
    assert text.count("br i1") >= 2




def test_what_is_prepared_may_be_computed_again_by_several_kernels() -> None:
    """A cheap value of a frozen input, the base of two long reductions, is no value of the graph that was cut."""
    labels = RNG.integers(0, 10, 65536).astype(np.int32)
    x = normal(65536, 10)
    executable = compile_graph(run_pipeline(trace(lambda x, y: ops.cross_entropy(x, y), *types(x, labels)))[0], frozen=(1,))
    for y in (labels, labels[::-1].copy()):
        (loss,) = executable([Tensor(x), Tensor(y)])
        exact = x.astype(np.float64)
        np.testing.assert_allclose(float(loss), (np.log(np.exp(exact).sum(1)) - exact[np.arange(65536), y]).mean(), rtol=1e-5)
