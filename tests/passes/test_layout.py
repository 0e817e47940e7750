"""Layouts: images, and sequences as images of one row, run channels-last from one convolution to the next, with transposes at the ends alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from graphcell import dtype as dt
from graphcell import ops
from graphcell.ir.graph import Graph
from graphcell.ir.types import TensorType
from graphcell.ops.contraction import MatMul
from graphcell.ops.convolution import Conv
from graphcell.ops.functional.pooling import max_pool
from graphcell.ops.movement import Reshape, Transpose
from graphcell.ops.pooling import Fold, Windows
from graphcell.passes.autodiff import vjp
from graphcell.passes.layout import RANKS, channels_last, inverse, to_last
from graphcell.passes.pipeline import run_pipeline
from tests.helpers import run, trace

Function = Callable[..., Any]


def conv1d(x: Any, w: Any, stride: int = 1) -> Any:
    return ops.conv1d(x, w, stride=stride, pad_mode="pad", padding=w.shape[2] // 2)


def tower(between: Function) -> Function:
    """A convolution of sequences, what stands between, and another convolution."""
    return lambda x, w, v: conv1d(between(conv1d(x, w)), v)


def normed(x: Any) -> Any:
    """As batch norm does it."""
    mean = x.mean((0, 2), keep_dims=True)
    return (x - mean) * ops.rsqrt(ops.square(x - mean).mean((0, 2), keep_dims=True) + 1e-3)


X, W, V = (3, 5, 31), (8, 5, 3), (6, 8, 5)
SEQUENCES: dict[str, tuple[Function, tuple[int, ...]]] = {
    "relu": (tower(ops.relu), V),
    "max pooling": (tower(lambda x: max_pool(ops.relu(x), (4,), (4,), ((0, 0),), (1,))), V),
    "overlapping": (tower(lambda x: max_pool(x, (3,), (2,), ((1, 1),), (1,))), V),
    "average": (tower(lambda x: ops.avg_pool1d(x, 3, 2, 1)), V),
    "padded": (tower(lambda x: ops.pad(x, (2, 1))), V),
    "sliced": (tower(lambda x: ops.tanh(x)[:, :, 3:20]), V),
    "strided": (tower(lambda x: x[:, :, ::2] * 0.5), V),
    "beside": (tower(lambda x: ops.cat((ops.relu(x), x * x), 1)), (6, 16, 5)),
    "normed": (tower(normed), V),
    "residual": (tower(lambda x: x + ops.sigmoid(x) * x.mean(2, keep_dims=True)), V),
}


def graph_of(fn: Function, *shapes: tuple[int, ...]) -> Graph:
    return trace(fn, *(TensorType(dt.float64, s) for s in shapes))


def arrays_of(*shapes: tuple[int, ...]) -> list[Any]:
    rng = np.random.default_rng(7)
    return [rng.standard_normal(s) for s in shapes]


def between_convolutions(graph: Graph) -> list[Any]:
    """The transposes that are neither of an input nor what the graph returns, through reshapes and all else of one operand."""
    made = {v: node for node in graph.nodes for v in node.results}

    def is_input(v: Any) -> bool:
        return v not in made or (len(made[v].operands) == 1 and is_input(made[v].operands[0]))

    inside: set[Any] = set()
    stack = [x for node in graph.nodes if isinstance(node.op, (Conv, Windows, Fold)) for x in node.operands]
    while stack:
        v = stack.pop()
        if v not in inside and v in made:
            inside.add(v)
            stack.extend(made[v].operands)
    return [n for n in graph.nodes if isinstance(n.op, Transpose) and n.results[0] in inside and not is_input(n.operands[0])]


def is_equal(graph: Graph, other: Graph, *shapes: tuple[int, ...]) -> None:
    arrays = arrays_of(*shapes)
    for want, got in zip(run(graph, *arrays), run(other, *arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", SEQUENCES)
def test_sequences_stay_channels_last_from_one_convolution_to_the_next(name: str) -> None:
    fn, v = SEQUENCES[name]
    graph = graph_of(fn, X, W, v)
    optimized, _ = run_pipeline(graph)
    assert [n.op.channels_last for n in optimized.nodes if isinstance(n.op, Conv)] == [True, True]
    assert between_convolutions(optimized) == []
    is_equal(graph, optimized, X, W, v)


@pytest.mark.parametrize("name", SEQUENCES)
def test_gradients(name: str) -> None:
    fn, v = SEQUENCES[name]
    graph = graph_of(lambda x, w, v: ops.square(fn(x, w, v)).sum(), X, W, v)
    both = vjp(graph, [0, 1, 2])
    arrays = [*arrays_of(X, W, v), np.float64(1.0)]
    for want, got in zip(run(both, *arrays), run(run_pipeline(both)[0], *arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-8)


def skipping(x: Any, w: Any) -> Any:
    return ops.relu(ops.conv2d(x, w, stride=(2, 3)))


def test_pixels_that_no_filter_reads_are_not_transposed() -> None:
    shapes = (2, 9, 11, 10), (5, 9, 1, 1)
    graph = graph_of(skipping, *shapes)
    optimized, _ = run_pipeline(graph)
    assert [n.op.stride for n in optimized.nodes if isinstance(n.op, Conv)] == [(1, 1)]
    assert all(n.operands[0].type.size <= 2 * 9 * 6 * 4 for n in optimized.nodes if isinstance(n.op, Transpose))
    is_equal(graph, optimized, *shapes)


@pytest.mark.parametrize("shapes", [((2, 9, 11, 10), (5, 9, 2, 1)), ((2, 3, 11, 10), (5, 3, 1, 1))])
def test_pixels_that_may_as_well_be_transposed(shapes: tuple[tuple[int, ...], ...]) -> None:
    """Where filters read some of them, and where there are few channels."""
    assert [n.op.stride for n in run_pipeline(graph_of(skipping, *shapes))[0].nodes if isinstance(n.op, Conv)] == [(2, 3)]


def test_pixels_of_an_image_that_is_channels_last_all_the_same() -> None:
    """The gradient in the weights reads it, and another convolution has left it so."""
    shapes = (2, 9, 11, 10), (5, 9, 1, 1)
    graph = vjp(graph_of(lambda x, w: ops.square(skipping(x, w)).sum(), *shapes), [1])
    assert {n.op.stride for n in run_pipeline(graph)[0].nodes if isinstance(n.op, Conv)} == {(2, 3)}
    graph = graph_of(lambda x, w, v: skipping(ops.conv2d(x, v, pad_mode="same"), w), *shapes, (9, 9, 3, 3))
    assert [n.op.stride for n in run_pipeline(graph)[0].nodes if isinstance(n.op, Conv)] == [(1, 1), (2, 3)]


def patches(x: Any, w: Any, m: Any) -> Any:
    """An image in pieces, each a word: (N, words, channels)."""
    y = ops.conv2d(x, w, stride=2)
    words = ops.gelu(y.reshape((y.shape[0], y.shape[1], -1)).swapaxes(1, 2))
    return ops.matmul(words, m)


def test_an_image_is_a_sequence_of_words() -> None:
    shapes = (2, 3, 8, 10), (16, 3, 2, 2), (16, 7)
    graph = graph_of(patches, *shapes)
    optimized, _ = run_pipeline(graph)
    made = {v: node for node in optimized.nodes for v in node.results}
    assert not [n for n in optimized.nodes if isinstance(n.op, Transpose) and n.operands[0] in made and not isinstance(made[n.operands[0]].op, Transpose)]
    is_equal(graph, optimized, *shapes)


def test_a_sequence_becomes_an_image_again() -> None:
    shapes = (2, 3, 8, 10), (6, 3, 3, 3), (4, 6, 3, 3)

    def fn(x: Any, w: Any, v: Any) -> Any:
        y = ops.conv2d(x, w)
        s = ops.softmax(y.reshape((2, 6, -1)), 2)
        return ops.conv2d(s.reshape(y.shape), v)

    graph = graph_of(fn, *shapes)
    optimized, _ = run_pipeline(graph)
    assert between_convolutions(optimized) == []
    is_equal(graph, optimized, *shapes)


@pytest.mark.parametrize("shape", [(2, 12, 12), (2, 6, 4, 6), (6, 2, 24), (2, 2, 72), (2, 144), (2, 4, 36)])
def test_any_reshape_of_an_image(shape: tuple[int, ...]) -> None:
    shapes = (2, 3, 8, 8), (4, 3, 3, 3)
    graph = graph_of(lambda x, w: ops.conv2d(x, w).reshape(shape) * 2.0, *shapes)
    is_equal(graph, channels_last(graph), *shapes)


def conv3d(x: Any, w: Any, stride: int = 1, groups: int = 1) -> Any:
    return ops.conv3d(x, w, stride=stride, pad_mode="pad", padding=w.shape[2] // 2, groups=groups)


def normed_volume(x: Any) -> Any:
    """As batch norm does it, which joins depths and rows."""
    y = x.reshape((*x.shape[:2], -1, x.shape[4]))
    mean = y.mean((0, 2, 3), keep_dims=True)
    return ((y - mean) * ops.rsqrt(ops.square(y - mean).mean((0, 2, 3), keep_dims=True) + 1e-3)).reshape(x.shape)


VX, VW, VV = (2, 3, 5, 6, 7), (8, 3, 3, 3, 3), (4, 8, 3, 3, 3)
VOLUMES: dict[str, tuple[Function, tuple[int, ...]]] = {
    "relu": (ops.relu, VV),
    "normed": (normed_volume, VV),
    "padded": (lambda x: ops.pad(x, (2, 1)), VV),
    "sliced": (lambda x: ops.tanh(x)[:, :, 1:, ::2], VV),
    "beside": (lambda x: ops.cat((ops.relu(x), x * x), 1), (4, 16, 3, 3, 3)),
    "residual": (lambda x: x + ops.sigmoid(x) * x.mean((2, 3, 4), keep_dims=True), VV),
    "pooled": (lambda x: ops.max_pool3d(x, 2), VV),
    "flat": (ops.relu, (4, 8, 1, 3, 3)),
    "long": (ops.relu, (4, 8, 3, 1, 1)),
}


def volumes(name: str) -> tuple[Function, tuple[tuple[int, ...], ...]]:
    between, v = VOLUMES[name]
    return lambda x, w, v: conv3d(between(conv3d(x, w)), v), (VX, VW, v)


@pytest.mark.parametrize("name", VOLUMES)
def test_volumes_stay_channels_last_from_one_convolution_to_the_next(name: str) -> None:
    """But for the depths that a kernel reaches over, which come before the channels of an image."""
    fn, shapes = volumes(name)
    graph = graph_of(fn, *shapes)
    optimized, _ = run_pipeline(graph)
    left = between_convolutions(optimized)
    assert len(left) == (shapes[2][2] > 1) and all(n.op.perm[-2] == n.op.perm[-1] + 1 for n in left)
    is_equal(graph, optimized, *shapes)


@pytest.mark.parametrize("name", VOLUMES)
@pytest.mark.parametrize(("stride", "groups"), [(1, 1), (2, 2)])
def test_gradients_of_volumes(name: str, stride: int, groups: int) -> None:
    between, v = VOLUMES[name]
    shapes = VX, VW, (v[0], v[1] // groups, *v[2:])
    graph = graph_of(lambda x, w, v: ops.square(conv3d(between(conv3d(x, w)), v, stride, groups)).sum(), *shapes)
    both = vjp(graph, [0, 1, 2])
    arrays = [*arrays_of(*shapes), np.float64(1.0)]
    for want, got in zip(run(both, *arrays), run(run_pipeline(both)[0], *arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-8)


def shuffled(x: Any) -> Any:
    """Channels of two groups, mixed."""
    n, c, h, w = x.shape
    return x.reshape((n, 2, c // 2, h, w)).swapaxes(1, 2).reshape((n, c, h, w))


@pytest.mark.parametrize("between", [shuffled, lambda x: ops.pixel_shuffle(x, 2)], ids=["channels", "pixels"])
def test_what_is_shuffled_between_convolutions_is_copied_once(between: Function) -> None:
    def fn(x: Any, w: Any, v: Any) -> Any:
        y = between(ops.relu(ops.conv2d(x, w)))
        return ops.conv2d(y, v[:, : y.shape[1]])

    shapes = (2, 3, 8, 10), (8, 3, 3, 3), (4, 8, 3, 3)
    graph = graph_of(fn, *shapes)
    optimized, _ = run_pipeline(graph)
    assert len(between_convolutions(optimized)) == 1
    is_equal(graph, optimized, *shapes)


def test_windows_that_a_product_reads_lie_as_they_are_written() -> None:
    """Whole rows of pixels, not a few taps of each."""

    def fn(x: Any, w: Any, m: Any) -> Any:
        y = ops.conv2d(x, w)
        u = ops.unfold(y, 3, padding=1)
        return ops.conv2d(ops.matmul(m, u).reshape(y.shape), w[:, :, :1, :1].swapaxes(0, 1))

    shapes = (2, 3, 8, 10), (8, 3, 3, 3), (8, 72)
    graph = graph_of(fn, *shapes)
    last = channels_last(graph)
    made = {v: node for node in last.nodes for v in node.results}
    (product,) = [n for n in last.nodes if isinstance(n.op, MatMul)]
    windows = made[product.operands[1]]
    assert isinstance(windows.op, Reshape)
    is_equal(graph, last, *shapes)


def any_step(rng: np.random.Generator, x: Any) -> Any:
    """Something that keeps, moves or joins the dimensions of x."""
    rank = x.ndim
    axis = int(rng.integers(rank))
    match rng.integers(8):
        case 0:
            return ops.tanh(x)
        case 1 if rank < 7:
            parts = [d for d in range(1, x.shape[axis] + 1) if x.shape[axis] % d == 0]
            part = int(rng.choice(parts))
            return x.reshape((*x.shape[:axis], x.shape[axis] // part, part, *x.shape[axis + 1 :]))
        case 2 if rank > 1:
            axis = min(axis, rank - 2)
            return x.reshape((*x.shape[:axis], -1, *x.shape[axis + 2 :]))
        case 3:
            return x.transpose(tuple(map(int, rng.permutation(rank))))
        case 4:
            return x - x.mean(axis, keep_dims=True)
        case 5 if rank > 2:
            return x.sum(axis) + 1.0
        case 6:
            return x * ops.exp(x.max(axis, keepdims=True) * 0.1)
        case _ if x.shape[axis] > 1:
            return ops.cat((x, x.narrow(axis, 0, 1)), axis)
    return x + 1.0


@pytest.mark.parametrize("seed", range(60))
def test_any_steps_between_convolutions(seed: int) -> None:
    """Whatever stands between, and whether another convolution follows or not, results and gradients are the same."""

    def fn(x: Any, w: Any, v: Any) -> Any:
        rng = np.random.default_rng(seed)
        y = ops.conv2d(x, w) if seed % 2 else conv3d(x, w)
        for _ in range(int(rng.integers(1, 7))):
            y = any_step(rng, y)
        if y.size % 6 == 0:
            y = ops.conv2d(y.reshape((1, 2, 3, -1)), v, pad_mode="same")
        return ops.square(y).sum() + y.sum()

    inner = (8, 8) if seed % 2 else (3, 4, 4)
    shapes = (2, 2, *inner), (6, 2, *[3] * len(inner)), (2, 2, 3, 3)
    graph = graph_of(fn, *shapes)
    is_equal(graph, channels_last(graph), *shapes)
    both = vjp(graph, [0, 1, 2])
    arrays = [*arrays_of(*shapes), np.float64(1.0)]
    for want, got in zip(run(both, *arrays), run(channels_last(both), *arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("rank", RANKS)
def test_permutations(rank: int) -> None:
    last = to_last(rank)
    assert sorted(last) == list(range(rank)) and last[min(rank, 4) - 1] == 1
    assert tuple(last[k] for k in inverse(last)) == tuple(range(rank))
