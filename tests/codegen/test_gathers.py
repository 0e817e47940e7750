"""Gathers that a loop nest does as it reads: which need no buffer, and what the numbers are."""

from __future__ import annotations

import numpy as np
import pytest

from graphcell import Tensor, jit, ops
from graphcell.codegen.lower import lower
from graphcell.errors import DataIndexError
from graphcell.ir.evaluate import evaluate_graph
from graphcell.ir.graph import Graph
from graphcell.ir.op import Array
from graphcell.ir.text import parse
from graphcell.passes.pipeline import run_pipeline
from graphcell.runtime.executable import compile_graph
from tests.codegen.plans import TARGETS
from tests.codegen.test_guards import run_guarded
from tests.passes.cases import same_bits

RNG = np.random.default_rng(8)


def steps(graph: Graph) -> int:
    return len(lower(graph, (), TARGETS[max(TARGETS)]).steps)


def numbers(graph: Graph, places: int = 9) -> list[Array]:
    """Small whole numbers, so that sums are exact in any order; indices count from both ends and lie beyond them, too."""
    found: list[Array] = []
    for v in graph.inputs:
        is_index = not v.type.dtype.is_float
        drawn = RNG.integers(-places - 3, places + 3, v.type.shape) if is_index else RNG.integers(-9, 9, v.type.shape)
        found.append(drawn.astype(v.type.dtype.np_type))
    return found


def check(text: str, expected: int | None = None) -> None:
    graph = parse(text)
    assert expected is None or steps(graph) == expected
    inputs = numbers(graph)
    want = evaluate_graph(graph, inputs)
    for target in TARGETS.values():
        for at_end in (True, False):  # both ends of every buffer border on memory that may not be touched
            for x, y in zip(want, run_guarded(graph, inputs, target, at_end), strict=True):
                assert same_bits(x, y)


def rows_of_a_table(columns: int, kind: str, what: str, result: str) -> str:
    return f"""graph @f(%w: {kind}[9, {columns}], %i: i32[23], %x: {kind}[23, {columns}]) {{
      %g = gather[axes=(0,)] %w, %i
      {what}
      return {result}
    }}"""


SUM = "%y = mul %g, %x\n%s = reduce_sum[axis=(1,), keep_dims=False] %y"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["f32", "f64", "f16", "i32"])
@pytest.mark.parametrize("columns", [1, 3, 16, 33])
def test_rows_go_straight_into_what_is_made_of_them(columns: int, kind: str) -> None:
    check(rows_of_a_table(columns, kind, "%y = add %g, %x\n%z = mul %y, %g", "%z"), 1)
    check(rows_of_a_table(columns, kind, SUM, "%s"), 1)


@pytest.mark.parametrize(("what", "result", "expected"), [
    ("%y = add %g, %x", "%g, %y", 2),  # the rows themselves are a result
    (f"{SUM}\n%m = reduce_sum[axis=(0,), keep_dims=True] %g\n%b = broadcast_to[shape=(23, 20)] %m\n%z = mul %b, %x", "%s, %z", 4),  # two loop nests
    ("%t = slice[start=(2, 1), size=(20, 19), step=(1, 1)] %g\n%u = slice[start=(0, 0), size=(20, 19), step=(1, 1)] %x\n%y = add %t, %u", "%y", 2),
])  # fmt: skip
def test_rows_that_are_needed_as_a_whole_get_a_buffer(what: str, result: str, expected: int) -> None:
    check(rows_of_a_table(20, "f32", what, result), expected)


@pytest.mark.slow
@pytest.mark.parametrize("read", [
    "%r = transpose[perm=(2, 0, 1)] %g\n%z = neg %r",
    "%r = reshape[shape=(20, 30)] %g\n%z = mul %r, %r",
    "%z = reduce_max[axis=(0, 2), keep_dims=False] %g",
    "%z = reduce_sum[axis=(1,), keep_dims=True] %g",
])  # fmt: skip
@pytest.mark.parametrize(("table", "gather"), [("5, 9, 20", "axes=(1,)] %v, %i"), ("20, 9, 5", "axes=(1,)] %t, %i"), ("9, 5, 20", "axes=(0,)] %v, %j")])
def test_other_axes_views_of_the_table_and_of_what_is_gathered(table: str, gather: str, read: str) -> None:
    """The table is a part of a larger one, indices are one row of a matrix, or a column. A table that is transposed is copied first, and what is read along
    other axes than those of the gather has a buffer."""
    shape = tuple(map(int, table.split(",")))
    whole = ", ".join(str(d + 1) for d in shape)
    check(f"""graph @f(%w: f32[{whole}], %all: i32[3, 6], %j0: i32[6, 1]) {{
      %v = slice[start=(1, 0, 1), size={shape}, step=(1, 1, 1)] %w
      %t = transpose[perm=(2, 1, 0)] %v
      %k = slice[start=(1, 0), size=(1, 6), step=(1, 1)] %all
      %i = reshape[shape=(6,)] %k
      %j = reshape[shape=(6,)] %j0
      %g = gather[{gather}
      {read}
      return %z
    }}""", None if "%t" in gather or "reshape" in read else 1)  # fmt: skip


def test_two_axes() -> None:
    check("""graph @f(%w: f32[4, 9, 9, 3], %i: i32[7], %j: i64[7], %x: f32[4, 7, 3]) {
      %g = gather[axes=(1, 2)] %w, %i, %j
      %y = sub %g, %x
      return %y
    }""", 1)  # fmt: skip


def test_in_a_loop() -> None:
    check("""graph @f(%x: f32[40, 8], %w: f32[9, 8], %i: i32[40]) {
      %y = for[trip_count=3, carried=1, scanned=0, reverse=False] %x, %w, %i {
        body = @body(%n: i64[], %c: f32[40, 8], %t: f32[9, 8], %p: i32[40]) {
          %g = gather[axes=(0,)] %t, %p
          %d = add %c, %g
          return %d
        }
      }
      return %y
    }""", 1)  # fmt: skip


def test_a_table_is_not_written_while_it_is_read() -> None:
    graph = parse("""graph @f(%w: f32[30, 16], %i: i32[30]) {
      %g = gather[axes=(0,)] %w, %i
      %y = add %g, %w
      return %y
    }""")
    table, places = numbers(graph, 30)
    (want,) = evaluate_graph(graph, [table, places])
    held = Tensor(table.copy())
    compile_graph(graph, ((0, 0),))([held, Tensor(places)])
    assert same_bits(want, held.asnumpy())


def test_programs_with_tables_and_gradients() -> None:
    @jit
    def f(table: Tensor, places: Tensor, x: Tensor) -> Tensor:
        return (ops.gather(table, places, 0) * x).sum(1)

    table, x, places = RNG.standard_normal((50, 24)).astype(np.float32), RNG.standard_normal((70, 24)).astype(np.float32), RNG.integers(0, 50, 70)
    found = f(Tensor(table), Tensor(places), Tensor(x)).asnumpy()
    np.testing.assert_allclose(found, (table[places].astype(np.float64) * x).sum(1), rtol=1e-5, atol=1e-5)
    with pytest.raises(DataIndexError):
        f(Tensor(table), Tensor(places + 50), Tensor(x))


def test_pipelines_keep_the_gather_in_the_loop() -> None:
    graph, *_ = run_pipeline(parse(rows_of_a_table(20, "f32", SUM, "%s")))
    assert steps(graph) == 1
