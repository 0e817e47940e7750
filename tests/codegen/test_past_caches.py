"""Large results of a program are written past the caches, where nothing in the program reads them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from graphcell import dtype as ms
from graphcell import ops
from graphcell.codegen import past_caches
from graphcell.codegen.llvm.values import NONTEMPORAL
from graphcell.codegen.lower import lower
from graphcell.passes.pipeline import run_pipeline
from tests.codegen.plans import TARGETS
from tests.codegen.test_guards import run_guarded
from tests.codegen.test_loop_shapes import graph_of, normal

WIDE = [target for width, target in TARGETS.items() if width >= 32 and target.writes_past_caches]
pytestmark = pytest.mark.skipif(not WIDE, reason="vectors are short")


@pytest.fixture(autouse=True)
def _small_results_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past_caches, "_FROM", 1024)


def stores(fn: Any, arrays: Any, updates: tuple[tuple[int, int], ...] = ()) -> int:
    return lower(run_pipeline(graph_of(fn, arrays))[0], updates, WIDE[-1]).text.count(NONTEMPORAL)


def softmax(x: Any) -> Any:
    return ops.softmax(x, -1)


CASES = [
    (lambda x: x * 2 + 1, lambda x: x * 2 + 1),
    (softmax, lambda x: np.exp(x - x.max(-1, keepdims=True)) / np.exp(x - x.max(-1, keepdims=True)).sum(-1, keepdims=True)),
    (lambda x: (x + 1, ops.tanh(x)), lambda x: (x + 1, np.tanh(x))),
    (lambda x: x.sum(0, keepdims=True) * x, lambda x: x.sum(0, keepdims=True) * x),
]


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(16, 64), (37, 48), (33, 77), (5, 1003), (64, 16), (700, 3)])
@pytest.mark.parametrize(("fn", "reference"), CASES)
def test_results_wherever_they_lie(fn: Any, reference: Any, shape: tuple[int, int]) -> None:
    """On boundaries of lines and not, with rows that are whole lines and others."""
    x = normal(*shape)
    want = reference(x.astype(np.float64))
    for target in TARGETS.values():
        for at_end in (True, False):
            got = run_guarded(graph_of(fn, [x]), [x], target, at_end)
            for result, expected in zip(got, want if isinstance(want, tuple) else (want,), strict=True):
                np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


def test_several_results_of_a_step_count_in_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    x = normal(16, 64)  # 4096 bytes

    def threefold(x: Any) -> Any:
        y = ops.tanh(x)
        return y, y + x, y * x

    monkeypatch.setattr(past_caches, "_FROM", 12000)
    assert stores(threefold, [x]) and not stores(lambda x: threefold(x)[:2], [x])
    monkeypatch.setattr(past_caches, "_FROM", 4000)
    assert stores(lambda x: (x.max(-1), x + x.max(-1, keepdims=True)), [x]) == stores(lambda x: x + x.max(-1, keepdims=True), [x]), "64 bytes beside"


@pytest.mark.parametrize("dtype", [np.float64, np.float16, ml_dtypes.bfloat16, np.int32, np.int8])
def test_dtypes(dtype: Any) -> None:
    x = (normal(16, 128) * 5).astype(dtype)
    for target in TARGETS.values():
        for at_end in (True, False):
            (got,) = run_guarded(graph_of(lambda x: x + x, [x]), [x], target, at_end)
            assert (got == x + x).all()


def test_only_where_nobody_reads_them() -> None:
    x = normal(16, 128)
    assert stores(lambda x: x * 2 + 1, [x])
    assert not stores(lambda x: (x * 2 + 1).sum(), [x]), "no large result"
    assert not stores(lambda x: x[:4] * 2, [x[:, :16]]), "a small one"

    def read_again(x: Any) -> Any:
        y = ops.tanh(x)
        return y, ops.matmul(y, y.T)

    assert not stores(read_again, [x])


def test_not_what_is_written_over_an_input() -> None:
    x = normal(16, 128)
    assert not stores(lambda x: x * 2 + 1, [x], ((0, 0),))


def test_not_inside_a_loop() -> None:
    from graphcell import dtype as ms
    from graphcell.frontend.tracing import trace_function
    from graphcell.tensor import Tensor

    def f(x: Tensor) -> Tensor:
        k = Tensor(0, ms.int32)
        while k < 5:
            x = ops.tanh(x)
            k = k + 1
        return x

    graph = run_pipeline(trace_function(f, (Tensor(normal(16, 128)),), {}).graph, "f")[0]
    assert NONTEMPORAL not in lower(graph, (), WIDE[-1]).text


def test_the_listing_says_so() -> None:
    program = lower(run_pipeline(graph_of(lambda x: x * 2 + 1, [normal(16, 128)]))[0], (), WIDE[-1])
    assert "past the caches" in program.steps[0].kernel


def test_not_what_is_copied_over_an_input_at_the_end() -> None:
    assert not stores(lambda x: ops.flip(x, (0,)) * 2, [normal(16, 128)], ((0, 0),))


def product(x: Any, w: Any) -> Any:
    return ops.matmul(x, w)


def rectified(x: Any, w: Any) -> Any:
    return ops.relu(ops.matmul(x, w) + 1)


def transposed(x: Any, w: Any) -> Any:
    return ops.matmul(x.T, w)


PRODUCTS = [(product, lambda x, w: x @ w), (rectified, lambda x, w: np.maximum(x @ w + 1, 0)), (transposed, lambda x, w: x.T @ w)]


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(33, 7, 48), (7, 1, 64), (100, 16, 16), (61, 31, 240), (3, 5, 8), (40, 33, 32), (40, 65, 48), (50, 4, 17), (1, 3, 512), (6, 0, 64)])
@pytest.mark.parametrize(("fn", "reference"), PRODUCTS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_products_wherever_they_lie(fn: Any, reference: Any, sizes: tuple[int, int, int], dtype: Any) -> None:
    """Few steps and many, rows of whole lines and others."""
    m, k, n = sizes
    x, w = normal(*((k, m) if fn is transposed else (m, k))).astype(dtype), normal(k, n).astype(dtype)
    want = reference(x.astype(np.float64), w.astype(np.float64))
    for target in TARGETS.values():
        for at_end in (True, False):
            (got,) = run_guarded(graph_of(fn, [x, w]), [x, w], target, at_end)
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("fn", [product, rectified])
def test_products_that_wait_for_their_output(fn: Any) -> None:
    assert stores(fn, [normal(40, 7), normal(7, 48)])
    assert not stores(fn, [normal(40, 100), normal(100, 48)]), "many steps"
    assert not stores(fn, [normal(40, 7), normal(7, 47)]), "rows begin anywhere in a line"
    assert not stores(fn, [normal(40, 7), normal(7, 512)]), "rows half a page apart"
    assert not stores(lambda x, w: (lambda y: (y, ops.matmul(y, y.T)))(fn(x, w)), [normal(40, 7), normal(7, 48)]), "read again"


def test_not_products_that_are_read_again_or_results_whose_lines_tiles_do_not_fill() -> None:
    """Half of a mirrored product is copied from the other half; halves, of which a tile has half a line."""
    assert not stores(lambda x: ops.matmul(x, x.T), [normal(160, 64)])
    assert stores(lambda x, y: ops.matmul(x, y.T), [normal(160, 64), normal(160, 64)])

    def narrow(x: Any, w: Any) -> Any:
        return ops.matmul(x, w).astype(ms.float16)

    program = lower(run_pipeline(graph_of(narrow, [normal(160, 16), normal(16, 80)]))[0], (), WIDE[-1])
    assert NONTEMPORAL not in program.text and not any("past the caches" in step.kernel for step in program.steps)

    def both(x: Any, w: Any) -> Any:
        y = ops.matmul(x, w)
        return y.astype(ms.float16), ops.relu(y)

    assert stores(both, [normal(160, 16), normal(16, 80)])


def test_batches_of_products() -> None:
    x, w = normal(3, 20, 5), normal(3, 5, 32)
    assert stores(product, [x, w])
    for target in TARGETS.values():
        for at_end in (True, False):
            (got,) = run_guarded(graph_of(product, [x, w]), [x, w], target, at_end)
            np.testing.assert_allclose(got, x.astype(np.float64) @ w.astype(np.float64), rtol=1e-5, atol=1e-5)
