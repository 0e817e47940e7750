"""Attention is found in the forms in which it is written, and means the same; numbers come from float64 and finite differences."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphcell as gc
from graphcell import Tensor, nn, ops
from graphcell import dtype as dt
from graphcell.ir.evaluate import evaluate_graph
from graphcell.ir.graph import Graph
from graphcell.ir.types import TensorType
from graphcell.ir.verify import verify
from graphcell.ops.attention import Attention, AttentionGrad
from graphcell.ops.dispatch import apply
from graphcell.passes.attention import fuse_attention
from graphcell.passes.autodiff import vjp
from graphcell.passes.pipeline import run_pipeline
from tests.helpers import trace

RNG = np.random.default_rng(4)
B, H, S, D = 2, 3, 12, 8
SHAPE = (B, H, S, D)
Function = Callable[..., Any]


def plain(q: Tensor, k: Tensor, v: Tensor, m: Tensor) -> Tensor:
    return ops.matmul(ops.softmax(ops.matmul(q, ops.swapaxes(k, -1, -2)) * 0.5 + m, -1), v)


def scaled_query(q: Tensor, k: Tensor, v: Tensor, m: Tensor) -> Tensor:
    return ops.Softmax(-1)(ops.masked_fill(ops.matmul(q / 2.0, k.transpose(0, 1, 3, 2)), m, -1e9)) @ v


def by_hand(q: Tensor, k: Tensor, v: Tensor, m: Tensor) -> Tensor:
    s = ops.BatchMatMul(transpose_b=True)(q, k)
    s = ops.where(m, s, Tensor(float("-inf"), gc.float32))
    e = ops.exp(s - s.max(axis=-1, keepdims=True))
    return ops.bmm((e / e.sum(-1, keepdims=True)).reshape(B * H, S, S), v.reshape(B * H, S, D)).reshape(SHAPE)


def merged_heads(q: Tensor, k: Tensor, v: Tensor, m: Tensor) -> Tensor:
    q, k, v = (x.reshape(B, S, H, D).transpose(0, 2, 1, 3).reshape(B * H, S, D) for x in (q, k, v))
    weights = ops.softmax(ops.bmm(q, k.swapaxes(1, 2)) / math.sqrt(D) - m.astype(q.dtype), -1)
    return ops.bmm(weights, v).reshape(B, H, S, D).transpose(0, 2, 1, 3).reshape(SHAPE)


def sequence_first(q: Tensor, k: Tensor, v: Tensor, m: Tensor) -> Tensor:
    q, k, v = (x.reshape(B, S, H, D).transpose(0, 2, 1, 3) for x in (q, k, v))
    y = ops.matmul(ops.softmax((ops.matmul(q, k.transpose(0, 1, 3, 2)) + m) * 0.3, -1), v)
    return y.transpose(0, 2, 1, 3).reshape(SHAPE)


LATER = np.triu(np.ones((S, S), bool), 1)
ADDED = np.where(LATER, np.float32(-1e9), np.float32(0))
PADDED = np.arange(S) < np.array([S, S - 4]).reshape(B, 1, 1, 1)
FORMS: dict[str, tuple[Function, Any]] = {
    "added": (plain, ADDED),
    "added_keys": (plain, np.where(PADDED, 0, -np.inf).astype(np.float32)),
    "filled": (scaled_query, LATER),
    "filled_keys": (scaled_query, ~PADDED),
    "selected": (by_hand, ~LATER),
    "merged_heads": (merged_heads, LATER),
    "sequence_first": (sequence_first, ADDED),
}


def count(graph: Graph, cls: type) -> int:
    return sum(isinstance(node.op, cls) for node in graph.walk())


def types_of(mask: Any) -> list[TensorType]:
    return [TensorType(dt.float32, SHAPE)] * 3 + [TensorType(dt.from_numpy(mask.dtype), mask.shape)]


@pytest.mark.parametrize("form", FORMS)
def test_is_found_and_means_the_same(form: str) -> None:
    f, mask = FORMS[form]
    graph = trace(f, *types_of(mask))
    arrays = [*(RNG.standard_normal(SHAPE).astype(np.float32) for _ in range(3)), mask]
    (want,) = evaluate_graph(graph, arrays)
    for optimised in (fuse_attention(graph), run_pipeline(graph)[0]):
        verify(optimised)
        assert count(optimised, Attention) == 1
        (got,) = evaluate_graph(optimised, arrays)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    joint = run_pipeline(vjp(graph, (0, 1, 2)))[0]
    assert (count(joint, Attention), count(joint, AttentionGrad)) == (1, 1)


@pytest.mark.parametrize("form", FORMS)
def test_gradients_in_both_modes(form: str) -> None:
    f, mask = FORMS[form]
    q, k, v, w = (Tensor(RNG.standard_normal(SHAPE).astype(np.float32)) for _ in range(4))
    m = Tensor(mask)

    def loss(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return (f(q, k, v, m) * w).sum()

    eager = gc.grad(loss, (0, 1, 2))(q, k, v)  # one op at a time, nothing fused
    compiled = gc.jit(gc.grad(loss, (0, 1, 2)))(q, k, v)
    for x, y in zip(compiled, eager, strict=True):
        np.testing.assert_allclose(x.asnumpy(), y.asnumpy(), rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("dropout", [0.0, 1.5])
def test_second_order_and_learned_bias_by_finite_differences(dropout: float) -> None:
    """The op itself, in float64, so that its own rules are used for masks and for gradients of gradients."""
    small = (2, 4, 3)
    arrays = [RNG.standard_normal(small) for _ in range(3)] + [RNG.standard_normal((1, 4, 4))]
    fixed = [RNG.random((2, 4, 4)) < 0.7] if dropout else []
    weights = RNG.standard_normal(small)

    def attention(*operands: Tensor) -> Tensor:
        return apply(Attention(0.7, dropout=dropout), *operands)[0]

    types = [TensorType(dt.from_numpy(x.dtype), x.shape) for x in (*arrays, *fixed)]
    graph = trace(attention, *types)
    first = vjp(graph, (0, 1, 2, 3))
    checked(graph, arrays, fixed, first, [*arrays, *fixed, weights], lambda outs: (outs[0] * weights).sum())
    directions = [RNG.standard_normal(x.shape) for x in arrays]
    only = Graph("gradients", first.inputs, first.nodes, first.outputs[1:])
    second = vjp(only, (0, 1, 2, 3))
    arguments = [*arrays, *fixed, weights, *directions]
    checked(only, arrays, [*fixed, weights], second, arguments, lambda outs: sum((o * d).sum() for o, d in zip(outs, directions, strict=True)))


def checked(graph: Graph, at: list[Any], fixed: list[Any], gradient: Graph, arguments: list[Any], scalar: Function) -> None:
    """Central differences of scalar(graph(at, fixed)) against what `gradient` gives after the outputs of `graph`."""
    got = evaluate_graph(gradient, arguments)[len(graph.outputs) :]
    step = 1e-5
    for k, x in enumerate(at):
        numeric = np.zeros_like(x)
        for place in np.ndindex(x.shape):
            values = []
            for sign in (1, -1):
                moved = [y.copy() for y in at]
                moved[k][place] += sign * step
                values.append(scalar(evaluate_graph(graph, [*moved, *fixed])))
            numeric[place] = (values[0] - values[1]) / (2 * step)
        np.testing.assert_allclose(got[k], numeric, rtol=1e-5, atol=1e-7)


def test_bool_masks_in_second_order() -> None:
    shape = (1, 4, 3)
    arrays = [RNG.standard_normal(shape) for _ in range(3)]
    keep = np.tril(np.ones((1, 4, 4), bool))
    graph = trace(lambda q, k, v, m: apply(Attention(0.7, -5.0), q, k, v, m)[0], *(TensorType(dt.float64, shape),) * 3, TensorType(dt.bool_, keep.shape))
    first = vjp(graph, (0, 1, 2))
    weights, directions = RNG.standard_normal(shape), [RNG.standard_normal(shape) for _ in range(3)]
    only = Graph("gradients", first.inputs, first.nodes, first.outputs[1:])
    second = vjp(only, (0, 1, 2))
    arguments = [*arrays, keep, weights, *directions]
    checked(only, arrays, [keep, weights], second, arguments, lambda outs: sum((o * d).sum() for o, d in zip(outs, directions, strict=True)))


def dropped(q: Tensor, k: Tensor, v: Tensor, keep: Tensor) -> Tensor:
    weights = ops.softmax(ops.matmul(q, ops.swapaxes(k, -1, -2)) * 0.5, -1)
    return ops.matmul(ops.where(keep, weights * 1.25, ops.zeros_like(weights)), v)


def dropped_by_product(q: Tensor, k: Tensor, v: Tensor, keep: Tensor) -> Tensor:
    weights = ops.softmax(ops.matmul(q, ops.swapaxes(k, -1, -2)) * 0.5, -1)
    return ops.matmul(weights / 0.8 * keep.astype(gc.float32), v)


@pytest.mark.parametrize("f", [dropped, dropped_by_product])
def test_dropout_of_weights(f: Function) -> None:
    keep = RNG.random((B, H, S, S)) < 0.8
    graph = trace(f, *types_of(keep))
    arrays = [*(RNG.standard_normal(SHAPE).astype(np.float32) for _ in range(3)), keep]
    fused = run_pipeline(graph)[0]
    assert count(fused, Attention) == 1
    np.testing.assert_allclose(evaluate_graph(fused, arrays)[0], evaluate_graph(graph, arrays)[0], rtol=1e-5, atol=1e-6)


def test_dropout_draws_the_same_numbers_in_both_modes() -> None:
    q, k, v, w = (Tensor(RNG.standard_normal(SHAPE).astype(np.float32)) for _ in range(4))
    cell = nn.Dropout(p=0.3)
    cell.set_train()

    def loss(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        weights = ops.softmax(ops.matmul(q, k.swapaxes(-1, -2)) * 0.5, -1)
        return (ops.matmul(cell(weights), v) * w).sum()

    gc.set_seed(5)
    eager = gc.value_and_grad(loss, (0, 1, 2))(q, k, v)
    gc.set_seed(5)
    compiled = gc.jit(gc.value_and_grad(loss, (0, 1, 2)))(q, k, v)
    for x, y in zip((compiled[0], *compiled[1]), (eager[0], *eager[1]), strict=True):
        np.testing.assert_allclose(x.asnumpy(), y.asnumpy(), rtol=2e-4, atol=2e-5)


def not_fused(f: Function, *types: TensorType) -> bool:
    return count(run_pipeline(trace(f, *types))[0], Attention) == 0


def test_left_alone() -> None:
    x = TensorType(dt.float32, SHAPE)

    def product(q: Tensor, k: Tensor) -> Tensor:
        return ops.matmul(q, k.swapaxes(-1, -2))

    def weights_read(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        w = ops.softmax(product(q, k), -1)
        return w @ v, w

    assert not_fused(weights_read, x, x, x)
    assert not_fused(lambda q, k, v: ops.softmax(product(q, k), 2) @ v, x, x, x)  # over queries
    assert not_fused(lambda q, k, v: ops.softmax(ops.relu(product(q, k)), -1) @ v, x, x, x)
    assert not_fused(lambda q, k, v: ops.softmax(product(q, k) * product(q, k), -1) @ v, x, x, x)
    assert not_fused(lambda q, k, v: (ops.exp(product(q, k)) / ops.exp(product(q, k)).sum(-1, keepdims=True)) @ v, x, x, x)  # overflows earlier

    def wrong_axis(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        s = product(q, k)
        e = ops.exp(s - s.max(axis=-2, keepdims=True))
        return (e / e.sum(-1, keepdims=True)) @ v

    assert not_fused(wrong_axis, x, x, x)


def test_a_learned_bias_is_left_alone_where_it_is_differentiated() -> None:
    graph = trace(plain, *types_of(ADDED))
    assert count(run_pipeline(vjp(graph, (0, 3)))[0], Attention) == 0
    assert count(run_pipeline(vjp(graph, (0, 1)))[0], Attention) == 1


def test_half_precision_with_a_softmax_in_float32() -> None:
    x = TensorType(dt.float16, SHAPE)
    graph = trace(lambda q, k, v: ops.softmax(q @ k.swapaxes(-1, -2) * 0.25, -1) @ v, x, x, x)
    fused = run_pipeline(graph)[0]
    assert count(fused, Attention) == 1
    arrays = [RNG.standard_normal(SHAPE).astype(np.float16) for _ in range(3)]
    wide = trace(lambda q, k, v: ops.softmax(q @ k.swapaxes(-1, -2) * 0.25, -1) @ v, *[TensorType(dt.float64, SHAPE)] * 3)
    (want,) = evaluate_graph(wide, [a.astype(np.float64) for a in arrays])
    (got,) = evaluate_graph(fused, arrays)
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=2e-3, atol=2e-3)


class Block(nn.Cell):  # type: ignore[misc]
    """Self-attention over a fused projection."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Dense(16, 48), nn.Dense(16, 16)

    def construct(self, x: Tensor) -> Tensor:
        b, s, d = x.shape
        q, k, v = (p.reshape(b, s, 2, 8).transpose(0, 2, 1, 3) for p in ops.split(self.qkv(x), d, axis=2))
        weights = ops.softmax(ops.matmul(q, k.transpose(0, 1, 3, 2)) / 8**0.5, axis=-1)
        return self.out(ops.matmul(weights, v).transpose(0, 2, 1, 3).reshape(b, s, d))


def test_training_a_block_in_both_modes() -> None:
    block, x = Block(), Tensor(RNG.standard_normal((2, 9, 16)).astype(np.float32))
    forward = gc.value_and_grad(lambda x: (block(x) ** 2).mean(), None, block.trainable_params())
    value, gradients = forward(x)
    compiled_value, compiled = gc.jit(forward)(x)
    np.testing.assert_allclose(compiled_value.asnumpy(), value.asnumpy(), rtol=1e-5)
    for a, b in zip(compiled, gradients, strict=True):
        np.testing.assert_allclose(a.asnumpy(), b.asnumpy(), rtol=1e-4, atol=1e-6)


def test_a_stopped_denominator_is_no_softmax() -> None:
    """Its gradient is another one, though its value is the same."""
    rng = np.random.default_rng(0)
    q, k, v = (Tensor(rng.standard_normal((2, 8, 4)).astype(np.float32)) for _ in range(3))

    def f(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        s = ops.matmul(q, k.swapaxes(-1, -2))
        e = ops.exp(s - ops.amax(s, -1, True))
        return (ops.matmul(e / ops.stop_gradient(e.sum(-1, keepdims=True)), v) ** 2).sum()

    got = gc.jit(gc.grad(f, 0))(q, k, v).asnumpy()
    np.testing.assert_allclose(got, gc.grad(f, 0)(q, k, v).asnumpy(), rtol=1e-4, atol=1e-4)


def test_a_dropout_mask_of_other_batch_dimensions_is_left_alone() -> None:
    """The weights were given another batch shape between softmax and dropout: the mask's dimensions belong to that one."""
    rng = np.random.default_rng(0)
    q, k, v = (Tensor(rng.standard_normal((2, 2, 2, 8, 4)).astype(np.float32)) for _ in range(3))
    kept = Tensor(rng.random((2, 1, 8, 8)) < 0.5)

    def f(q: Tensor, k: Tensor, v: Tensor, kept: Tensor) -> Tensor:
        w = ops.softmax(ops.matmul(q, k.swapaxes(-1, -2)), -1).reshape(2, 4, 8, 8)
        return ops.matmul(ops.select(kept.broadcast_to((2, 4, 8, 8)), w * 2.0, ops.zeros_like(w)), v.reshape(2, 4, 8, 4))

    np.testing.assert_allclose(gc.jit(f)(q, k, v, kept).asnumpy(), f(q, k, v, kept).asnumpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("sequence", "kept"), [(12, True), (200, False), (600, False)])
def test_exponentials_are_kept_where_they_take_little_memory_and_are_needed(sequence: int, kept: bool) -> None:
    type = TensorType(dt.float32, (B, H, sequence, D))
    graph = trace(lambda q, k, v: ops.matmul(ops.softmax(ops.matmul(q, ops.swapaxes(k, -1, -2)) * 0.5, -1), v), type, type, type)
    forward = [n.op for n in run_pipeline(graph)[0].nodes if isinstance(n.op, Attention)]
    both = [n.op for n in run_pipeline(vjp(graph, (0,)))[0].nodes if isinstance(n.op, (Attention, AttentionGrad))]
    assert [op.powers for op in forward] == [False]
    assert [op.powers for op in both] == [kept, kept]
