"""How functions whose rows meet are cut into parts: what each does, and what it hands on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import graphcell as gc
from graphcell import Tensor, nn, ops
from graphcell.frontend import trace_function
from graphcell.ir.evaluate import evaluate_graph
from graphcell.passes.row_stages import RowPart, Stages, Staging, WholePart, prepared, rows_graph

rng = np.random.default_rng(11)


def staged(function: Callable[..., Any], rows: int, shape: tuple[int, ...]) -> Stages:
    def traced(n: int) -> Any:
        return trace_function(function, [Tensor(np.zeros((n, *shape), np.float32))])

    one, other = traced(251), traced(rows)
    staging = Staging(prepared(one.graph), prepared(other.graph), [0, *[None] * len(one.captured)], (251, rows))
    return Stages(staging, 1, one.updates)


def test_a_mean_takes_a_part_of_rows_and_one_without() -> None:
    def mean(x: Tensor) -> Any:
        return x.mean(0)

    first, second = staged(mean, 6, (3,)).parts
    assert isinstance(first, RowPart) and len(first.sums) == 1 and not first.gives
    assert isinstance(second, WholePart) and len(second.gives) == 1 and len(second.reads) == 1  # 1/n


def test_what_can_wait_is_not_stored() -> None:
    """The first part computes only what the second cannot do without; so the exponentials are not kept in between."""

    def weighted(x: Tensor) -> Any:
        return (ops.exp(x) * (x > 0).sum().astype(gc.float32)).sum(1)

    parts = staged(weighted, 6, (3,)).parts
    rows = [p for p in parts if isinstance(p, RowPart)]
    assert len(rows) == 2 and not rows[0].gives
    assert [n.op.name for p in rows for n in p.nodes].count("exp") == 1


def test_a_single_block_leaves_excess_rows_out() -> None:
    """Whatever they hold."""

    def function(x: Tensor) -> Any:
        y = ops.matmul(x, weight)
        return y - y.mean(0), ops.matmul(y.T, x), ops.amax(x, 0), (x.sum(1) > 0).astype(gc.float32).mean()

    weight = Tensor(rng.standard_normal((3, 4)).astype(np.float32))
    stages = staged(function, 10, (3,))
    part = stages.together
    assert not part.sums and len(part.rows) == len(part.captured) == 1 and len(part.reads) == 2  # n, in two shapes
    graph = rows_graph(part, stages.staging, 10, "together", in_part=True)
    x = rng.standard_normal((10, 3)).astype(np.float32)
    x[7:] = np.nan
    numbers = [np.array(7, v.type.dtype.np_type) for v in part.reads]
    given = [x, *numbers, np.array([0, 7]), weight.asnumpy()]
    results = dict(zip(part.gives, evaluate_graph(graph, given), strict=True))
    y = x[:7].astype(np.float64) @ weight.asnumpy()
    expected = [y - y.mean(0), y.T @ x[:7], x[:7].max(0), (x[:7].sum(1) > 0).mean()]
    for v, wanted in zip(stages.results, expected, strict=True):
        found = results[v][:7] if stages.staging.has_rows(v) else results[v]
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_parts_store_what_is_dear() -> None:
    """Between parts a convolution's result stands as convolutions have it; what is cheap to compute of it is computed again, and sums that differ
    in a factor are one.
    """
    weight = Tensor(rng.standard_normal((4, 2, 3, 3)).astype(np.float32))

    def normalized(x: Tensor) -> Any:
        y = ops.conv2d(x, weight, pad_mode="pad", padding=1)
        centred = y - y.mean((0, 2, 3), keep_dims=True)
        scaled = ops.relu(centred * ops.rsqrt((centred * centred).mean((0, 2, 3), keep_dims=True) + 1e-5))
        return scaled - scaled.mean()

    parts = [p for p in staged(normalized, 6, (2, 8, 8)).parts if isinstance(p, RowPart)]
    assert [[v.type.shape[1:] for v in p.gives] for p in parts] == [[(8, 8, 4)], [], [], [(4, 8, 8)]]

    layer, norm = nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4).set_train()
    gradient = gc.grad(lambda x: (ops.relu(norm(layer(x))) ** 2).mean(), None, [*norm.trainable_params(), *layer.trainable_params()])
    parts = [p for p in staged(gradient, 6, (2, 8, 8)).parts if isinstance(p, RowPart)]
    assert [len(p.sums) for p in parts] == [1, 2, 1]  # of the moments, of gamma and beta, of the weight
