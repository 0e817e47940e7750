"""Chains of concatenations in one buffer: which are, what the numbers are, and that nothing else is copied."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphcell as gc
from graphcell import Tensor, ops
from graphcell.ir.evaluate import evaluate_graph
from graphcell.ir.graph import Graph
from graphcell.ir.text import parse
from graphcell.ir.verify import verify
from graphcell.passes.eliminate_dead import eliminate_dead
from graphcell.passes.grow_in_place import _needed_for, grow_in_place
from graphcell.runtime.executable import compile_graph


def done(text: str) -> Graph:
    before = parse(text)
    after = eliminate_dead(grow_in_place(before))
    verify(after)
    rng = np.random.default_rng(0)
    inputs = [rng.integers(0, 2, v.type.shape).astype(v.type.dtype.np_type) for v in before.inputs]
    for x, y in zip(evaluate_graph(before, inputs), evaluate_graph(after, inputs), strict=True):
        np.testing.assert_array_equal(x, y)
    return after


def names(graph: Graph) -> list[str]:
    return [n.op.name for n in graph.nodes]


PRODUCT = "matmul[transpose_x=False, transpose_y=False]"
CHAIN = """graph @f(%c: {dtype}[8, 600, 4], %a: {dtype}[8, 1, 4], %w: {dtype}[8, 3, 601], %u: {dtype}[8, 2, 605]) {{
  %one = concat[axis=1] %c, %a
  %b = {product} %w, %one
  %two = concat[axis=1] %one, %b, %a
  %d = {product} %u, %two
  %three = concat[axis=1] %two, %d
  return {outputs}
}}"""


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f64"])
def test_a_chain_is_one_concatenation_and_updates(dtype: str) -> None:
    after = done(CHAIN.format(dtype=dtype, product=PRODUCT, outputs="%three"))
    assert names(after) == ["full", "concat", "slice", "matmul", "update_slice", "update_slice", "slice", "matmul", "update_slice"]
    assert after.nodes[1].results[0].type.shape == (8, 607, 4)


def test_the_first_link_is_copied_and_then_only_what_is_new() -> None:
    executable = compile_graph(parse(CHAIN.format(dtype="f32", product=PRODUCT, outputs="%three")))
    written = [int(n) for n in re.findall(r"i1<(\d+)", str(executable.kernels()))]
    assert sorted(written) == [4, 4, 8, 12, 24, 2400]  # of each of eight rows; 24: the room for all that follows
    assert "@llvm.memcpy" not in executable.compilation.program.text


def test_many_links_are_found_in_time_that_grows_with_them() -> None:
    """The search behind a link ends at the link before, however long the chain is."""
    lines, before = ["graph @f(%c: f32[8, 600, 4]) {"], "%c"
    for k in range(400):
        lines += [f"  %x{k} = concat[axis=1] {before}, %n{k - 1}"] if k else ["  %x0 = concat[axis=1] %c, %c"]
        lines += [f"  %s{k} = slice[start=(0, 0, 0), size=(8, 4, 4), step=(1, 1, 1)] %x{k}", f"  %n{k} = {PRODUCT} %s{k}, %s{k}"]
        before = f"%x{k}"
    graph = parse("\n".join([*lines, f"  return {before}", "}"]))
    assert names(grow_in_place(graph)).count("update_slice") == 399
    nodes, made_by = graph.nodes, graph.producers()
    place = {node: k for k, node in enumerate(nodes)}
    last = nodes[-3]
    needed = _needed_for(made_by, last.operands[1:], place, place[made_by[last.operands[0]]])
    assert [n.op.name for n in nodes if n in needed] == ["slice", "matmul"]


def test_links_that_are_results_end_chains() -> None:
    after = done(CHAIN.format(dtype="f32", product=PRODUCT, outputs="%one, %three"))
    assert names(after) == ["concat", "matmul", "full", "concat", "slice", "matmul", "update_slice"]
    assert names(done(CHAIN.format(dtype="f32", product=PRODUCT, outputs="%one, %two, %three"))).count("concat") == 3


READ = """graph @f(%c: f32[8, 600, 4], %a: f32[8, 1, 4], %w: f32[8, 601, 1]) {{
  %one = concat[axis=1] %c, %a
  %turned = transpose[perm=(0, 2, 1)] %one
  %product = {product} %turned, %w
  %next = transpose[perm=(0, 2, 1)] %product
  %two = concat[axis=1] %one, {new}
  %late = reduce_sum[axis=(0, 1), keep_dims=False] {late}
  return %two, %late
}}"""


@pytest.mark.parametrize(("new", "late", "grown"), [("%next", "%next", True), ("%a", "%next", False), ("%next", "%one", False), ("%next", "%turned", False)])
def test_what_reads_a_link_is_needed_for_what_follows(new: str, late: str, grown: bool) -> None:
    """Else it may run later."""
    assert ("update_slice" in names(done(READ.format(product=PRODUCT, new=new, late=late)))) == grown


def test_what_is_put_behind_is_no_part_of_the_link() -> None:
    text = READ.format(product=PRODUCT, new="%next, %part", late="%next").replace("  %two", "  %part = slice[start=(0, 5, 0), size=(8, 1, 4), step=(1, 1, 1)] %one\n  %two")
    assert "update_slice" not in names(done(text))


def test_what_only_loops_read_is_left_alone() -> None:
    text = READ.replace("%w: f32[8, 601, 1]", "%w: f32[8, 4, 1]").replace("{product} %turned, %w", "reduce_sum[axis=(2,), keep_dims=True] %turned")
    assert "update_slice" not in names(done(text.format(new="%next", late="%next")))


@pytest.mark.parametrize(("shape", "axis", "grown"), [((2, 50, 4), 1, False), ((8, 4, 600), 2, False), ((8, 600, 4), 1, True), ((600, 16), 0, True), ((8, 2, 600), 1, False)])
def test_short_links_and_last_dimensions_are_copied(shape: tuple[int, ...], axis: int, grown: bool) -> None:
    def sized(extents: list[int], axis: int, n: int) -> str:
        return ", ".join(str(n if d == axis else e) for d, e in enumerate(extents))

    extents, last = list(shape), len(shape) - 1
    new = sized(extents, axis, 1)
    long = [n + (d == axis) for d, n in enumerate(shape)]
    reading = f"{PRODUCT} %w, %x" if axis < last else f"{PRODUCT} %x, %w"
    weights = sized([*long[:-2], 1, long[-2]], -1, 0) if axis < last else sized([*long[:-2], long[-1], 1], -1, 0)
    text = f"graph @f(%c: f32[{sized(extents, -1, 0)}], %a: f32[{new}], %w: f32[{weights}]) {{\n  %x = concat[axis={axis}] %c, %a\n  %n = {reading}\n"
    text += f"  %y = concat[axis={axis}] %x, %n\n  return %y\n}}"
    assert ("update_slice" in names(done(text))) == grown


def decoded(matmul: Callable[..., Any], softmax: Callable[..., Any], cat: Callable[..., Any], x: Any, w: Any, keys: Any, values: Any) -> Any:
    """Four tokens over a growing cache, whose keys are read transposed."""
    for _ in range(4):
        q = matmul(x, w)
        keys, values = cat((keys, q.reshape(4, 1, 16)), 1), cat((values, (q * 0.5).reshape(4, 1, 16)), 1)
        a = softmax(matmul(q.reshape(4, 1, 16), keys.swapaxes(1, 2)))
        x = x + matmul(a, values).reshape(1, 64)
    return x, keys, values


def softmax(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    e = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


@pytest.fixture
def operands() -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(3)
    return [rng.standard_normal(s).astype(np.float32) * f for s, f in (((1, 64), 1.0), ((64, 64), 0.1), ((4, 200, 16), 1.0), ((4, 200, 16), 1.0))]


def test_decoding_over_a_growing_cache(operands: list[np.ndarray[Any, Any]]) -> None:
    step = gc.jit(lambda *v: decoded(ops.matmul, lambda x: ops.softmax(x, -1), ops.cat, *v))
    want = decoded(np.matmul, softmax, np.concatenate, *(v.astype(np.float64) for v in operands))
    tensors = [Tensor(v) for v in operands]
    for _ in range(2):
        for got, right in zip(step(*tensors), want, strict=True):
            np.testing.assert_allclose(got.asnumpy(), right, rtol=1e-4, atol=1e-5)
    for kept, given in zip(tensors, operands, strict=True):
        np.testing.assert_array_equal(kept.asnumpy(), given)


def test_gradients_of_chains(operands: list[np.ndarray[Any, Any]]) -> None:
    """What the gradient reads later is copied, as before."""
    x, _, keys, _ = operands

    def f(x: Any, keys: Any) -> Any:
        for _ in range(3):
            new = ops.tanh(ops.matmul(x.reshape(4, 1, 16), keys.swapaxes(1, 2))).sum(2).expand_dims(2) * x.reshape(4, 1, 16)
            keys = ops.cat((keys, new), 1)
        return (keys * keys).sum()

    got = [g.asnumpy() for g in gc.jit(gc.grad(f, grad_position=(0, 1)))(Tensor(x), Tensor(keys))]
    with_steps = np.float64(1e-6)
    rng = np.random.default_rng(0)
    direction = [rng.standard_normal(v.shape) for v in (x, keys)]

    def reference(x: np.ndarray[Any, Any], keys: np.ndarray[Any, Any]) -> float:
        for _ in range(3):
            new = np.tanh(x.reshape(4, 1, 16) @ keys.swapaxes(1, 2)).sum(2)[:, :, None] * x.reshape(4, 1, 16)
            keys = np.concatenate((keys, new), 1)
        return float((keys * keys).sum())

    ends = [reference(*(v.astype(np.float64) + s * with_steps * d for v, d in zip((x, keys), direction, strict=True))) for s in (1, -1)]
    slope = (ends[0] - ends[1]) / (2 * with_steps)
    np.testing.assert_allclose(sum((g * d).sum() for g, d in zip(got, direction, strict=True)), slope, rtol=1e-3)
