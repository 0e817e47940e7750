"""Products of a matrix with itself, transposed: half of them is computed, the other half copied."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphcell import Tensor, jit, ops
from graphcell.codegen.lower import lower
from graphcell.ir.graph import Graph
from graphcell.ir.op import Array
from graphcell.ir.text import parse
from graphcell.runtime.executable import compile_graph
from tests.codegen.plans import TARGETS
from tests.codegen.test_guards import run_guarded

RNG = np.random.default_rng(5)


def gram(batch: tuple[int, ...], rows: int, steps: int, kind: str, transposed: bool) -> Graph:
    """x @ x^T, or x^T @ x with `transposed`."""
    shape = ", ".join(map(str, (*batch, *((steps, rows) if transposed else (rows, steps)))))
    return parse(f"""graph @f(%x: {kind}[{shape}]) {{
      %c = matmul[transpose_x={transposed}, transpose_y={not transposed}] %x, %x
      return %c
    }}""")


def input_of(graph: Graph, dtype: Any) -> Array:
    return RNG.standard_normal(graph.inputs[0].type.shape).astype(dtype)


def squared(x: Array, transposed: bool) -> Array:
    x = x.astype(np.float64)
    return x.swapaxes(-2, -1) @ x if transposed else x @ x.swapaxes(-2, -1)


def is_mirrored(graph: Graph, width: int) -> bool:
    return "mirror" in lower(graph, (), TARGETS[width]).text


@pytest.mark.parametrize("width", list(TARGETS))
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("batch", "rows", "steps"), [((), 128, 48), ((), 131, 60), ((), 144, 300), ((), 257, 64), ((3,), 150, 70), ((2, 2), 129, 50)])
def test_both_halves_are_right(batch: tuple[int, ...], rows: int, steps: int, transposed: bool, width: int) -> None:
    for kind, dtype, tolerance in (("f32", np.float32, 2e-6), ("f64", np.float64, 1e-14)):
        graph = gram(batch, rows, steps, kind, transposed)
        assert is_mirrored(graph, width)
        x = input_of(graph, dtype)
        want = squared(x, transposed)
        for at_end in (True, False):  # both ends of every buffer border on memory that may not be touched
            (got,) = run_guarded(graph, [x], TARGETS[width], at_end)
            assert np.abs(got - want).max() <= tolerance * np.abs(want).max()


@pytest.mark.slow
@pytest.mark.parametrize("rows", [*range(130, 170, 7), 600, 1000])
def test_sizes(rows: int) -> None:
    for steps in (48, 100, 513, 2000):
        for transposed in (False, True):
            graph = gram((), rows, steps, "f32", transposed)
            x = input_of(graph, np.float32)
            (got,) = (t.asnumpy() for t in compile_graph(graph, (), "gram")([Tensor(x)]))
            want = squared(x, transposed)
            assert np.abs(got - want).max() <= 1e-5 * np.abs(want).max()
            off = np.arange(rows) // 16
            apart = off[:, None] != off[None, :]
            assert (got == got.T)[apart].all()


@pytest.mark.parametrize(("rows", "steps", "kind"), [(120, 200, "f32"), (200, 40, "f32"), (200, 200, "f16")])
def test_small_and_narrow_products_are_computed(rows: int, steps: int, kind: str) -> None:
    assert not is_mirrored(gram((), rows, steps, kind, False), max(TARGETS))


def test_other_products_are_computed() -> None:
    """With another matrix of the same shape, and without a transposition."""
    for text in ("%x, %y", "%y, %x"):
        graph = parse(f"graph @f(%x: f32[200, 200], %y: f32[200, 200]) {{\n%c = matmul[transpose_x=False, transpose_y=True] {text}\nreturn %c\n}}")
        assert not is_mirrored(graph, max(TARGETS))
    graph = parse("graph @f(%x: f32[200, 200]) {\n%c = matmul[transpose_x=False, transpose_y=False] %x, %x\nreturn %c\n}")
    assert not is_mirrored(graph, max(TARGETS))


def test_numbers_that_are_not_finite_spread_to_their_rows_and_columns() -> None:
    graph = gram((), 140, 64, "f32", False)
    x = input_of(graph, np.float32)
    x[17, 3], x[139, 5], x[60, 60] = np.nan, np.inf, -np.inf
    (got,) = (t.asnumpy() for t in compile_graph(graph, (), "gram")([Tensor(x)]))
    with np.errstate(invalid="ignore"):
        want = squared(x, False)
    assert (np.isnan(got) == np.isnan(want)).all() and (np.isinf(got) == np.isinf(want)).all()


def test_what_follows_sees_both_halves_and_may_differ_in_them() -> None:
    """A mask below the diagonal, and a bias along columns."""
    x, bias = (RNG.standard_normal(s).astype(np.float32) for s in ((150, 64), (150,)))

    @jit
    def scores(x: Tensor, bias: Tensor) -> Tensor:
        return ops.tril(ops.matmul(x, x.T) * 0.125) + bias

    want = np.tril(squared(x, False) * 0.125) + bias
    np.testing.assert_allclose(scores(Tensor(x), Tensor(bias)).asnumpy(), want, rtol=1e-5, atol=1e-5)
