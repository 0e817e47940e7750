"""Slices of what is computed element by element."""

from __future__ import annotations

import numpy as np
import pytest

from graphcell.ir.evaluate import evaluate_graph
from graphcell.ir.graph import Graph
from graphcell.ir.text import parse
from graphcell.ir.verify import verify
from graphcell.passes.eliminate_dead import eliminate_dead
from graphcell.passes.simplify import simplify


def done(text: str) -> Graph:
    before = parse(text)
    after = eliminate_dead(simplify(before))
    verify(after)
    inputs = [np.random.default_rng(0).standard_normal(v.type.shape).astype(v.type.dtype.np_type) for v in before.inputs]
    for x, y in zip(evaluate_graph(before, inputs), evaluate_graph(after, inputs), strict=True):
        np.testing.assert_array_equal(x, y)
    return after


HALVES = """graph @f(%x: {source}[4, 10]) {{
  %w = cast[dtype={to}] %x
  %s = reduce_sum[axis=(1,), keep_dims=True] %w
  %a = slice[start=(0, 0), size=(4, 5), step=(1, 1)] %w
  %b = broadcast_to[shape=(4, 5)] %s
  %y = add %a, %b
  return %y
}}"""


@pytest.mark.parametrize(("source", "to", "reads"), [("f16", "f32", "x"), ("f32", "f64", "x"), ("f64", "f32", "w"), ("i64", "f32", "w")])
def test_a_slice_reads_what_has_fewer_bytes(source: str, to: str, reads: str) -> None:
    """Beside a sum that needs all."""
    after = done(HALVES.format(source=source, to=to))
    (cut,) = [n for n in after.nodes if n.op.name == "slice"]
    assert (cut.operands[0] in after.inputs) is (reads == "x")


def test_products_keep_their_epilogues_whole() -> None:
    after = done("""graph @f(%x: f16[4, 6], %y: f16[6, 10]) {
  %p = matmul[transpose_x=False, transpose_y=False] %x, %y
  %w = cast[dtype=f32] %p
  %s = reduce_sum[axis=(1,), keep_dims=False] %w
  %a = slice[start=(0, 0), size=(4, 5), step=(1, 1)] %w
  return %a, %s
}""")
    (cut,) = [n for n in after.nodes if n.op.name == "slice"]
    assert after.producers()[cut.operands[0]].op.name == "cast"
