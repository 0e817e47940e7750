"""Products of bfloats with an odd number of reduction steps: padded where pairs are multiplied at once, and what they give."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import graphcell as ms
from graphcell import dtype as dt
from graphcell import ops
from graphcell.codegen.even_depth import with_even_depths
from graphcell.codegen.llvm.target import host
from graphcell.ir.evaluate import evaluate_graph
from graphcell.ir.graph import Graph
from graphcell.ir.types import TensorType
from graphcell.ir.verify import verify
from graphcell.ops.contraction import MatMul
from graphcell.ops.dispatch import apply1
from graphcell.ops.movement import BroadcastTo, Pad
from tests.helpers import trace

BFLOAT = ml_dtypes.bfloat16
PAIRS = replace(host(), cpu="znver4", vector_bytes=64, features="+avx512f,+avx512bf16")
SHAPES = {
    (False, False): ((40, 33), (33, 50)),
    (True, False): ((33, 40), (33, 50)),
    (False, True): ((40, 33), (50, 33)),
    (True, True): ((33, 40), (50, 33)),
}


def product(x: tuple[int, ...], y: tuple[int, ...], transpose: tuple[bool, bool] = (False, False), dtype: dt.DType = dt.bfloat16) -> Graph:
    return trace(lambda a, b: apply1(MatMul(*transpose), a, b), TensorType(dtype, x), TensorType(dtype, y))


def depths(graph: Graph) -> list[int]:
    found = []
    for node in graph.nodes:
        if isinstance(node.op, MatMul):
            found.append(node.operands[0].type.shape[-2 if node.op.transpose_x else -1])
    return found


@pytest.mark.parametrize("transpose", SHAPES)
def test_one_step_more_changes_no_result(transpose: tuple[bool, bool]) -> None:
    graph = product(*SHAPES[transpose], transpose)
    longer = with_even_depths(graph, PAIRS)
    verify(longer)
    assert depths(longer) == [34]
    rng = np.random.default_rng(0)
    inputs = [rng.integers(-8, 9, v.type.shape).astype(BFLOAT) for v in graph.inputs]
    inputs[0].flat[5] = np.inf
    for x, y in zip(evaluate_graph(graph, inputs), evaluate_graph(longer, inputs), strict=True):
        np.testing.assert_array_equal(x.astype(np.float64), y.astype(np.float64))  # numpy compares NaN of bfloats by their bits


def test_what_is_repeated_is_padded_once() -> None:
    def f(a: Any, b: Any) -> Any:
        return apply1(MatMul(False, False), a, apply1(BroadcastTo((5, 33, 50)), b))

    longer = with_even_depths(trace(f, TensorType(dt.bfloat16, (5, 40, 33)), TensorType(dt.bfloat16, (33, 50))), PAIRS)
    verify(longer)
    assert depths(longer) == [34]
    assert sorted(n.results[0].type.shape for n in longer.nodes if isinstance(n.op, Pad)) == [(5, 40, 34), (34, 50)]


@pytest.mark.parametrize("shape", [(1, 41), (41,)])
def test_what_is_repeated_along_the_depth_is_padded_behind_that(shape: tuple[int, ...]) -> None:
    """One row that stands for all steps, of as many columns."""

    def f(a: Any, b: Any) -> Any:
        return apply1(MatMul(False, False), a, apply1(BroadcastTo((41, 41)), b))

    graph = trace(f, TensorType(dt.bfloat16, (50, 41)), TensorType(dt.bfloat16, shape))
    longer = with_even_depths(graph, PAIRS)
    verify(longer)
    assert depths(longer) == [42]
    rng = np.random.default_rng(2)
    inputs = [rng.integers(-8, 9, v.type.shape).astype(BFLOAT) for v in graph.inputs]
    for x, y in zip(evaluate_graph(graph, inputs), evaluate_graph(longer, inputs), strict=True):
        np.testing.assert_array_equal(x.astype(np.float64), y.astype(np.float64))


def test_a_square_of_a_matrix_pads_it_both_ways() -> None:
    graph = trace(lambda a: apply1(MatMul(False, False), a, a), TensorType(dt.bfloat16, (41, 41)))
    longer = with_even_depths(graph, PAIRS)
    verify(longer)
    assert depths(longer) == [42]
    x = np.random.default_rng(3).integers(-8, 9, (41, 41)).astype(BFLOAT)
    for a, b in zip(evaluate_graph(graph, [x]), evaluate_graph(longer, [x]), strict=True):
        np.testing.assert_array_equal(a.astype(np.float64), b.astype(np.float64))


def test_from_which_depth_and_size_on() -> None:
    assert depths(with_even_depths(product((32, 17), (17, 32)), PAIRS)) == [18]


def test_a_product_with_itself_keeps_one_operand() -> None:
    graph = trace(lambda a: apply1(MatMul(False, True), a, a), TensorType(dt.bfloat16, (40, 33)))
    (node,) = [n for n in with_even_depths(graph, PAIRS).nodes if isinstance(n.op, MatMul)]
    assert node.operands[0] is node.operands[1]


@pytest.mark.parametrize(
    ("x", "y", "dtype", "target"),
    [
        ((40, 34), (34, 50), dt.bfloat16, PAIRS),
        ((40, 15), (15, 50), dt.bfloat16, PAIRS),
        ((31, 33), (33, 50), dt.bfloat16, PAIRS),
        ((40, 33), (33, 31), dt.bfloat16, PAIRS),
        ((40, 33), (33, 50), dt.float16, PAIRS),
        ((40, 33), (33, 50), dt.float32, PAIRS),
        ((40, 33), (33, 50), dt.bfloat16, replace(PAIRS, vector_bytes=32)),
        ((40, 33), (33, 50), dt.bfloat16, replace(PAIRS, features="+avx512f")),
    ],
)
def test_others_are_left_alone(x: tuple[int, ...], y: tuple[int, ...], dtype: dt.DType, target: Any) -> None:
    graph = product(x, y, dtype=dtype)
    assert with_even_depths(graph, target) is graph


@pytest.mark.parametrize("transpose", SHAPES)
@pytest.mark.parametrize("depth", [17, 33, 101])
def test_products_of_odd_depth(transpose: tuple[bool, bool], depth: int) -> None:
    """As they are compiled here, whether pairs are multiplied or not."""
    a, b = (tuple(depth if n == 33 else n for n in shape) for shape in SHAPES[transpose])
    rng = np.random.default_rng(1)
    x, y = (rng.standard_normal(s).astype(BFLOAT) for s in (a, b))

    @ms.jit
    def f(x: Any, y: Any) -> Any:
        return ops.MatMul(*transpose)(x, y).astype(ms.float32)

    wide = [m.astype(np.float64).T if t else m.astype(np.float64) for m, t in zip((x, y), transpose, strict=True)]
    want = wide[0] @ wide[1]
    bound = 2.0**-8 * (abs(want) + 0.01 * (abs(wide[0]) @ abs(wide[1])))
    assert (abs(f(ms.Tensor(x), ms.Tensor(y)).asnumpy() - want) <= bound).all()
