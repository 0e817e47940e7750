"""Products of a matrix with itself, transposed: half of them is computed, the other half copied."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from graphcell import Tensor, get_context, jit, ops, set_context
from graphcell.codegen.llvm.matmul import dense_matmul, emit_matmul
from graphcell.codegen.lower import lower
from graphcell.ir.graph import Graph
from graphcell.ir.op import Array
from graphcell.ir.text import parse
from graphcell.runtime.executable import compile_graph
from tests.codegen.plans import TARGETS, compile_plan
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


@pytest.mark.slow
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


@pytest.mark.parametrize("width", list(TARGETS))
def test_what_lies_above_the_diagonal_is_copied(width: int) -> None:
    """Of a right operand that is another matrix, which breaks the promise, all but the squares on the diagonal is seen below it only."""
    rows, steps = 150, 64
    a, b = (RNG.standard_normal((rows, steps)).astype(np.float32) for _ in range(2))
    spec = replace(dense_matmul(rows, rows, steps, transpose_b=True), mirrored=True)
    runner = compile_plan(lambda module, target: emit_matmul(module, "product", spec, target), TARGETS[width])
    got, product = runner({"a": a, "b": b}, "c", (rows, rows), np.dtype(np.float32)), a @ b.T
    lanes = np.arange(rows) // (width // 4)
    above = lanes[None, :] > lanes[:, None]
    np.testing.assert_allclose(got[above], product.T[above], rtol=1e-4, atol=1e-4)
    assert np.abs(got - product)[above].max() > 1


def test_an_epilogue_is_worth_more_than_half_of_a_short_product() -> None:
    for steps, mirrored in ((64, False), (128, True)):
        graph = parse(f"""graph @f(%x: f32[200, {steps}]) {{
          %c = matmul[transpose_x=False, transpose_y=True] %x, %x
          %y = abs %c
          return %y
        }}""")
        assert is_mirrored(graph, max(TARGETS)) == mirrored
        x = input_of(graph, np.float32)
        (got,) = (t.asnumpy() for t in compile_graph(graph, (), "gram")([Tensor(x)]))
        np.testing.assert_allclose(got, np.abs(squared(x, False)), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("threads", [1, 3])
def test_in_a_part_of_a_concatenation_and_on_several_threads(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = (RNG.standard_normal((300, 200)).astype(np.float32) for _ in range(2))

    @jit
    def f(x: Tensor, y: Tensor) -> Tensor:
        return ops.cat((ops.matmul(x, x.T), ops.matmul(y, y.T)), 1)

    monkeypatch.delenv("GRAPHCELL_NUM_THREADS", raising=False)
    before = get_context("runtime_num_threads")
    try:
        set_context(runtime_num_threads=threads)
        got = f(Tensor(x), Tensor(y)).asnumpy()
    finally:
        set_context(runtime_num_threads=before)
    np.testing.assert_allclose(got, np.concatenate([squared(x, False), squared(y, False)], 1), rtol=1e-4, atol=1e-4)


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
