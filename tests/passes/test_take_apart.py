"""What is read by parts is computed part by part: programs whole, against numpy in double, and what stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from graphcell import dtype as dt
from graphcell import ops
from graphcell.codegen.fuse import fuse
from graphcell.codegen.legalize import legalize
from graphcell.ir.evaluate import evaluate_graph
from graphcell.ir.graph import Graph
from graphcell.ir.text import parse, print_graph
from graphcell.ir.types import TensorType
from graphcell.ops.movement import Concat
from graphcell.passes.autodiff import vjp
from graphcell.passes.pipeline import PIPELINE, run_pipeline
from graphcell.passes.take_apart import take_apart
from graphcell.runtime.executable import compile_graph
from graphcell.tensor import Tensor
from tests.helpers import trace

RNG = np.random.default_rng(4)
WITHOUT = tuple((name, run) for name, run in PIPELINE if name != "take_apart")
Function = Callable[..., Any]


def gated(x: Tensor) -> Tensor:
    """Rows that are normalised, one half the gate of the other, and needed as a whole, too."""
    y = (x - x.mean(-1, keep_dims=True)) * ops.rsqrt(x.var(-1, keepdims=True) + 1e-3)
    a, b = ops.split(y, y.shape[-1] // 2, -1)
    return (a * ops.sigmoid(b)).sum() + ops.square(y).mean()


def grey(x: Tensor) -> Tensor:
    """Colours that are moved away from their grey."""
    v = ops.exp(0.5 * ops.log(ops.abs(x) + 0.1))
    y = 0.2126 * v[0] + 0.7152 * v[1] + 0.0722 * v[2]
    return ops.clamp(y + 1.2 * (v - y), 0.0, 1.0)


def quarters(x: Tensor) -> Tensor:
    """With the largest of each row and sums of columns."""
    v = ops.tanh(x)
    a, b, c, d = ops.split(v, v.shape[1] // 4, 1)
    return (a * b - c * d).sum() + (v - v.max(1, keepdims=True)).sum() + ops.square(v.sum((0, 2))).sum()


def scaled(x: Tensor) -> Tensor:
    """Halves of rows of which the root of the mean square is taken: nothing but the slices reads the result as it is."""
    a, b = ops.split(x * ops.rsqrt(ops.square(x).mean(-1, keep_dims=True) + 1e-6), x.shape[-1] // 2, -1)
    return a * ops.sigmoid(b)


def types(shape: tuple[int, ...], dtype: Any = dt.float32) -> TensorType:
    return TensorType(dtype, shape)


def kernels(graph: Graph) -> int:
    groups, _ = fuse(legalize(graph))
    return sum(1 for g in groups if g.values)


@pytest.mark.parametrize(
    ("fn", "shape"),
    [(gated, (31, 256)), (gated, (40, 274)), (scaled, (40, 274)), (grey, (3, 61, 83)), (quarters, (5, 8, 1033)), (quarters, (3, 256, 65))],
)
def test_values_and_gradients(fn: Function, shape: tuple[int, ...]) -> None:
    def total(x: Tensor) -> Tensor:
        y: Tensor = fn(x)
        return y if y.ndim == 0 else ops.square(y).sum()

    x = RNG.standard_normal(shape)
    for graph_of in (lambda dtype: trace(fn, types(shape, dtype)), lambda dtype: vjp(trace(total, types(shape, dtype)), (0,))):
        given = [x, *(np.ones(v.type.shape) for v in graph_of(dt.float64).inputs[1:])]
        want = evaluate_graph(graph_of(dt.float64), given)
        graph = graph_of(dt.float32)
        got = compile_graph(graph)([Tensor(a.astype(np.float32)) for a in given])
        for w, g in zip(want, got, strict=True):
            np.testing.assert_allclose(g.asnumpy(), w, rtol=1e-4, atol=1e-4 * max(np.abs(w).max(), 1e-3))
        assert kernels(run_pipeline(graph)[0]) <= kernels(run_pipeline(graph, passes=WITHOUT)[0])


@pytest.mark.parametrize(("fn", "shape", "most"), [(gated, (40, 274), 2), (grey, (3, 61, 83), 1)])
def test_one_loop_nest_does_it_all(fn: Function, shape: tuple[int, ...], most: int) -> None:
    """But for sums over all rows."""
    graph = trace(fn, types(shape))
    assert kernels(run_pipeline(graph)[0]) <= most < kernels(run_pipeline(graph, passes=WITHOUT)[0])


@pytest.mark.parametrize("weighted", [False, True])
def test_gradients_of_halves_of_a_norm_are_one_loop_nest(weighted: bool) -> None:
    """The slices are those of the argument, or of the scaled rows, which the gradient of the weights reads, too."""

    def total(x: Tensor, w: Tensor) -> Tensor:
        y = x * ops.rsqrt(ops.square(x).mean(-1, keep_dims=True) + 1e-6) * w
        a, b = ops.split(y, y.shape[-1] // 2, -1)
        return ops.square(a * ops.sigmoid(b)).mean()

    def gradients(dtype: dt.DType) -> Graph:
        return vjp(trace(total, types((300, 772), dtype), types((772,), dtype)), (0, 1) if weighted else (0,))

    graph = gradients(dt.float32)
    nests = [g for g in fuse(legalize(run_pipeline(graph)[0]))[0] if g.values and g.points > 300 * 64]
    assert len(nests) == 1 < kernels(run_pipeline(graph, passes=WITHOUT)[0])
    given = [RNG.standard_normal((300, 772)), RNG.standard_normal(772), np.ones(())]
    want = evaluate_graph(gradients(dt.float64), given)
    for w, g in zip(want, compile_graph(graph)([Tensor(a.astype(np.float32)) for a in given]), strict=True):
        np.testing.assert_allclose(g.asnumpy(), w, rtol=1e-4, atol=1e-5 * np.abs(w).max())


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_precision_has_the_same_bits(dtype: Any) -> None:
    """Elements are rounded as before."""

    def fn(x: Tensor) -> tuple[Tensor, Tensor]:
        v = x * 0.5 + 0.25
        return v - v[0] * v[1], v

    x = RNG.standard_normal((2, 37, 128)).astype(dtype)
    graph = trace(fn, types(x.shape, dt.float16 if dtype is np.float16 else dt.bfloat16))
    assert kernels(run_pipeline(graph)[0]) < kernels(run_pipeline(graph, passes=WITHOUT)[0])
    for w, g in zip(compile_graph(run_pipeline(graph, passes=WITHOUT)[0])([Tensor(x)]), compile_graph(graph)([Tensor(x)]), strict=True):
        np.testing.assert_array_equal(w.asnumpy(), g.asnumpy())


def test_a_nan_of_one_part_is_the_maximum_of_all() -> None:
    def fn(x: Tensor) -> Tensor:
        v = x * 2.0
        return v[0] * v[1] + (v - v.max(0)).sum(0)

    x = RNG.standard_normal((2, 50, 100)).astype(np.float32)
    x[1, 3, 4] = np.nan
    (got,) = compile_graph(trace(fn, types(x.shape)))([Tensor(x)])
    v = 2 * x.astype(np.float64)
    want = v[0] * v[1] + (v - v.max(0)).sum(0)
    np.testing.assert_allclose(got.asnumpy(), want, rtol=1e-5, atol=1e-5)
    assert np.isnan(got.asnumpy()).sum() == 1


SEVERAL = """graph @f(%x: f32[{shape}], %w: f32[{shape}]{more_inputs}) {{
  {first}
  %y = mul %v, %w
  {slices}
  {last}
  return {results}
}}"""
ROW_SUM = "reduce_sum[axis=(1,), keep_dims=False]"
HALVES = """%a = slice[start=(0, 0), size=(30, 200), step=(1, 1)] %y
  %b = slice[start=(0, 200), size=(30, 200), step=(1, 1)] %y"""


def several(shape: str = "30, 400", first: str = "%v = exp %x", slices: str = HALVES, last: str = "%p = mul %a, %b", results: str = "%p, %y", more: str = "") -> Graph:
    return parse(SEVERAL.format(shape=shape, more_inputs=more, first=first, slices=slices, last=last, results=results))


def is_taken_apart(graph: Graph) -> bool:
    after = take_apart(graph)
    rng = np.random.default_rng(1)
    given = [rng.standard_normal(v.type.shape).astype(v.type.dtype.np_type) for v in graph.inputs]
    for w, g in zip(evaluate_graph(graph, given), evaluate_graph(after, given), strict=True):
        np.testing.assert_allclose(g.astype(float), w.astype(float), rtol=1e-3, atol=1e-3)
    return any(isinstance(n.op, Concat) for n in after.nodes)


def test_what_is_taken_apart() -> None:
    assert is_taken_apart(several())
    assert is_taken_apart(several(last=f"%p = mul %a, %b\n  %s = {ROW_SUM} %y", results="%p, %s"))
    assert is_taken_apart(several(last="%p = mul %a, %b\n  %s = reduce_sum[axis=(0,), keep_dims=True] %y", results="%p, %s"))
    assert is_taken_apart(several(last="%p = mul %a, %b\n  %s = reduce_prod[axis=(0,), keep_dims=False] %y", results="%p, %s"))


GIVEN = """graph @f(%x: f32[30, 400], %w: f32[30, 400]) {{
  %a = slice[start=(0, 0), size=(30, 200), step=(1, 1)] %x
  %b = slice[start=(0, 200), size=(30, 200), step=(1, 1)] %x
  %p = {use} %a, %b
  %y = mul %x, %w
  %s = {last} %y
  return %p, %s
}}"""


def test_parts_of_what_is_given() -> None:
    """Where loops read them, and more than points of it is needed whole."""
    assert is_taken_apart(parse(GIVEN.format(use="mul", last=ROW_SUM)))
    assert not is_taken_apart(parse(GIVEN.format(use="mul", last="exp")))  # points of it, which another loop nest may find as well
    assert not is_taken_apart(parse(GIVEN.format(use="matmul[transpose_x=False, transpose_y=True]", last=ROW_SUM)))


STAYS = {
    "by its slices alone": several(results="%p"),
    "the slices leave a gap": several(slices=HALVES.replace("(0, 200), size=(30, 200)", "(0, 100), size=(30, 200)")),
    "one half twice": several(slices=HALVES.replace("(0, 200)", "(0, 0)")),
    "steps": several(slices=HALVES.replace("(0, 200)", "(0, 1)").replace("step=(1, 1)", "step=(1, 2)")),
    "short lines": several(shape="300, 40", slices=HALVES.replace("30, 200", "300, 20").replace("(0, 200)", "(0, 20)")),
    "lines that are short in parts": several(shape="300, 100", slices=HALVES.replace("30, 200", "300, 50").replace("(0, 200)", "(0, 50)")),
    "sums of half precision": parse(print_graph(several(last=f"%p = mul %a, %b\n  %s = {ROW_SUM} %y", results="%p, %s")).replace("f32", "f16")),
    "with what loops make and turn": several(first="%e = exp %u\n  %v = transpose[perm=(1, 0)] %e", more=", %u: f32[400, 30]"),
    "few elements": several(shape="10, 400", slices=HALVES.replace("30, 200", "10, 200")),
    "a product along the parts": several(last="%p = mul %a, %b\n  %s = reduce_prod[axis=(1,), keep_dims=False] %y", results="%p, %s"),
    "transposed": several(last="%p = mul %a, %b\n  %s = transpose[perm=(1, 0)] %y", results="%p, %s"),
    "behind a product": several(first="%v = matmul[transpose_x=False, transpose_y=False] %x, %u", more=", %u: f32[400, 400]"),
}


@pytest.mark.parametrize("graph", STAYS.values(), ids=STAYS)
def test_what_stays(graph: Graph) -> None:
    assert not is_taken_apart(graph)


def test_what_hangs_together_but_is_too_much_stays() -> None:
    def chain(length: int) -> str:
        return "%v0 = exp %x\n  " + "\n  ".join(f"%v{k + 1} = sin %v{k}" for k in range(length)) + f"\n  %v = neg %v{length}"

    assert not is_taken_apart(several(first=chain(70)))
    assert is_taken_apart(several(first=chain(40)))


def test_parts_of_what_was_put_together_are_taken_as_they_are() -> None:
    text = """graph @f(%x: f32[30, 200], %z: f32[30, 200], %w: f32[30, 400]) {
  %v = concat[axis=1] %x, %z
  %y = mul %v, %w
  %a = slice[start=(0, 0), size=(30, 200), step=(1, 1)] %y
  %b = slice[start=(0, 200), size=(30, 200), step=(1, 1)] %y
  %p = mul %a, %b
  return %p, %y
}"""
    after = take_apart(parse(text))
    products = [n for n in after.nodes if n.op.name == "mul"]
    assert {n.operands[0] for n in products} >= set(after.inputs[:2])
