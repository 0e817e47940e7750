"""Sums of parts spread over zeros: which form they take, and that no number changes."""

from __future__ import annotations

import numpy as np
import pytest

from graphcell import dtype as dt
from graphcell import ops
from graphcell.ir.evaluate import evaluate_graph
from graphcell.ir.graph import Graph
from graphcell.ir.text import parse
from graphcell.ir.types import TensorType
from graphcell.ir.verify import verify
from graphcell.passes.accumulate import accumulate
from graphcell.passes.autodiff import vjp
from graphcell.passes.eliminate_dead import eliminate_dead
from graphcell.passes.simplify import simplify
from graphcell.runtime.executable import compile_graph
from graphcell.tensor import Tensor
from tests.helpers import trace
from tests.passes.cases import as_gradient, assert_equal_results


def names(graph: Graph) -> list[str]:
    return [n.op.name for n in graph.nodes]


def done(text: str) -> Graph:
    """The graph after the pass; small integers keep every bit through it."""
    before = parse(text)
    after = eliminate_dead(accumulate(before))
    verify(after)
    assert_equal_results(before, after, 1, exact=True)
    return after


SCATTER = """graph @f(%acc: f32[5, 3], %i: i32[4], %g: f32[4, 3]) {{
  %z = full[value={zero}, shape=(5, 3), dtype=f32]
  %s = scatter[axes=(0,), kind='{kind}', unique=False] %z, %i, %g
  %r = add {order}
  return %r{more}
}}"""


@pytest.mark.parametrize("order", ["%acc, %s", "%s, %acc"])
def test_a_scatter_into_zeros_goes_into_the_sum(order: str) -> None:
    after = done(SCATTER.format(zero="0.0", kind="add", order=order, more=""))
    assert names(after) == ["scatter"]
    assert after.nodes[0].operands[0] is after.inputs[0]


def test_other_scatters_stay() -> None:
    for zero, kind, more in [("1.0", "add", ""), ("0.0", "max", ""), ("0.0", "add", ", %s")]:
        assert names(done(SCATTER.format(zero=zero, kind=kind, order="%acc, %s", more=more))) == ["full", "scatter", "add"]


def test_scatters_add_up_in_one_buffer() -> None:
    after = done("""graph @f(%i: i32[4], %g: f32[4, 3], %j: i32[2, 3], %h: f32[2, 3]) {
      %z = full[value=0.0, shape=(5, 3), dtype=f32]
      %s = scatter[axes=(0,), kind='add', unique=False] %z, %i, %g
      %t = scatter_elements[axis=0, kind='add', unique=False] %z, %j, %h
      %r = add %s, %t
      return %r
    }""")
    assert names(after) == ["full", "scatter", "scatter_elements"]


STEP = """graph @f(%x: f32[9, 3], %i: i32[4], %g: f32[4, 3], %r: {rate}) {{
  %z = full[value={zero}, shape=(9, 3), dtype=f32]
  %s = scatter[axes=(0,), kind='{kind}', unique=False] %z, %i, %g
  %b = broadcast_to[shape=(9, 3)] %r
  %m = mul {factors}
  %y = {change}
  return %y{more}
}}"""
GOOD_STEP = {"rate": "f32[]", "zero": "0.0", "kind": "add", "factors": "%b, %s", "change": "sub %x, %m", "more": ""}


@pytest.mark.parametrize("change, before", [
    ({}, ["neg"]), ({"factors": "%s, %b"}, ["neg"]), ({"rate": "f32[1, 1]"}, ["reshape", "neg"]),
    ({"change": "add %x, %m"}, []), ({"change": "add %m, %x"}, []),
])
def test_a_step_on_rows_that_were_used(change: dict[str, str], before: list[str]) -> None:
    assert names(done(STEP.format(**GOOD_STEP | change))) == [*before, "scatter_step"]


@pytest.mark.parametrize("change", [
    {"zero": "1.0"}, {"kind": "max"}, {"more": ", %s"}, {"more": ", %m"}, {"change": "sub %m, %x"}, {"factors": "%x, %s"},
    {"rate": "f32[3]"}, {"rate": "f32[9, 1]"},
])
def test_other_steps_stay(change: dict[str, str]) -> None:
    assert "scatter_step" not in names(done(STEP.format(**GOOD_STEP | change)))


def test_a_step_on_most_of_the_rows_stays() -> None:
    text = STEP.format(**GOOD_STEP)
    assert "scatter_step" not in names(done(text.replace("[4", "[5")))
    assert "scatter_step" not in names(done(text.replace("f32", "i32").replace("0.0", "0")))


@pytest.mark.parametrize("sizes, fits", [((2, 2), True), ((2, 3), False)])
def test_a_table_that_is_read_in_two_places_takes_one_step(sizes: tuple[int, int], fits: bool) -> None:
    first, second = sizes
    after = done(f"""graph @f(%x: f32[12, 3], %i: i32[1, {first}], %g: f32[1, {first}, 3], %j: i32[{second}, 2], %h: f32[{second}, 2, 3], %r: f32[]) {{
      %z = full[value=0.0, shape=(12, 3), dtype=f32]
      %s = scatter[axes=(0,), kind='add', unique=False] %z, %i, %g
      %t = scatter[axes=(0,), kind='add', unique=False] %s, %j, %h
      %b = broadcast_to[shape=(12, 3)] %r
      %m = mul %b, %t
      %y = sub %x, %m
      return %y
    }}""")
    assert (names(after)[-1] == "scatter_step") == fits
    assert names(after).count("concat") == 2 * fits


PADS = """graph @f(%a: f32[2, {a}], %b: f32[2, {b}]) {{
  %p = pad[low=(0, {low}), high=(1, {high}), interior=(0, 0), value=0.0] %a
  %q = pad[low=(0, {low2}), high=(1, {high2}), interior=(0, 0), value={value}] %b
  %r = add {order}
  return %r
}}"""


@pytest.mark.parametrize("order", ["%p, %q", "%q, %p"])
def test_neighbouring_pads_are_a_concatenation(order: str) -> None:
    after = done(PADS.format(a=3, b=4, low=1, high=5, low2=4, high2=1, value=0.0, order=order))
    assert names(after) == ["concat", "pad"]
    assert [v.type.shape for v in after.nodes[0].operands] == [(2, 3), (2, 4)]


@pytest.mark.parametrize("low2, high2, value", [(5, 0, 0.0), (3, 2, 0.0)])
def test_pads_that_overlap_or_leave_a_gap_are_updates(low2: int, high2: int, value: float) -> None:
    after = done(PADS.format(a=3, b=4, low=1, high=5, low2=low2, high2=high2, value=value, order="%p, %q"))
    assert names(after) == ["pad", "slice", "add", "update_slice"]


def test_pads_little_larger_than_their_insides_are_added_as_they_are() -> None:
    """Loops read these without a copy; elements of 16 bits are added where they lie."""
    text = PADS.format(a=7, b=8, low=1, high=1, low2=1, high2=0, value=0.0, order="%p, %q").replace("high=(1,", "high=(0,")
    assert names(done(text)) == ["pad", "pad", "add"]
    assert names(done(text.replace("f32", "f16"))) == ["pad", "slice", "add", "update_slice"]


def test_a_pad_with_another_number_stays() -> None:
    after = done(PADS.format(a=3, b=4, low=1, high=5, low2=4, high2=1, value=2.0, order="%p, %q"))
    assert "concat" not in names(after) and "update_slice" in names(after)


def test_spread_parts_are_updates_with_steps() -> None:
    after = done("""graph @f(%a: f32[3], %b: f32[3]) {
      %p = pad[low=(0,), high=(1,), interior=(1,), value=0.0] %a
      %q = pad[low=(1,), high=(0,), interior=(1,), value=0.0] %b
      %r = add %p, %q
      return %r
    }""")
    assert names(after) == ["pad", "slice", "add", "update_slice"]


def test_a_dynamic_part_is_added_where_it_lies() -> None:
    after = done("""graph @f(%acc: f32[5], %g: f32[2], %i: i32[]) {
      %z = full[value=0.0, shape=(5,), dtype=f32]
      %s = dynamic_update_slice %z, %g, %i
      %r = add %s, %acc
      return %r
    }""")
    assert names(after) == ["dynamic_slice", "add", "dynamic_update_slice"]


def test_the_gradient_of_a_split_is_a_concatenation() -> None:
    def f(x: Tensor) -> Tensor:
        a, b, c = ops.split(x, 2, 1)
        return ops.tanh(a) * ops.sin(b) + ops.exp(c)

    graph = vjp(trace(f, TensorType(dt.float32, (3, 6))), [0])
    after = eliminate_dead(simplify(eliminate_dead(accumulate(simplify(eliminate_dead(graph))))))
    assert names(after).count("concat") == 1 and not {"pad", "update_slice"} & set(names(after))
    x, g = np.linspace(-1, 1, 18, dtype=np.float32).reshape(3, 6), np.ones((3, 2), np.float32)
    for want, got in zip(evaluate_graph(graph, [x, g]), evaluate_graph(after, [x, g]), strict=True):
        np.testing.assert_array_equal(got, want)


def test_the_gradient_of_many_rows_is_made_in_one_buffer() -> None:
    def f(x: Tensor) -> Tensor:
        total = x[0]
        for k in (3, 1, 1, 5):
            total = ops.tanh(total * x[k])
        return total

    graph = vjp(trace(f, TensorType(dt.float32, (6, 50))), [0])
    x, g = np.random.default_rng(0).uniform(-2, 2, (6, 50)).astype(np.float32), np.ones(50, np.float32)
    executable = compile_graph(graph)
    assert [n.op.name for n in executable.compilation.optimized.nodes].count("pad") <= 1
    for want, got in zip(evaluate_graph(graph, [x, g]), executable([Tensor(x), Tensor(g)]), strict=True):
        np.testing.assert_allclose(got.asnumpy(), want, rtol=1e-5, atol=1e-6)


def test_what_waits_for_a_sum_is_added_last() -> None:
    """The gradient of x is 0.3 u + (v + c k) - m, where k and m are sums over u and v: the loop that makes these stores their sum, not both of them."""

    def f(x: Tensor) -> Tensor:
        c = x - x.mean(0)
        y = ops.elu(c * ops.rsqrt(ops.square(c).mean(0) + 1e-5))
        return ops.square(y + 0.3 * x)

    shape = (500, 300)
    graph = vjp(trace(f, TensorType(dt.float32, shape)), [0])
    executable = compile_graph(as_gradient(graph))
    assert executable.arena_bytes < 1.5 * 500 * 300 * 4
    rng = np.random.default_rng(0)
    inputs = [rng.normal(size=shape).astype(np.float32) for _ in graph.inputs]
    wide = vjp(trace(f, TensorType(dt.float64, shape)), [0])
    for want, got in zip(evaluate_graph(wide, [v.astype(np.float64) for v in inputs]), executable([Tensor(v) for v in inputs]), strict=True):
        np.testing.assert_allclose(got.asnumpy(), want, rtol=1e-4, atol=1e-5)


ADDED = """graph @f(%x: f32[6, 5], %y: f32[6, 5], %z: f32[6, 5]) {{
  %s = reduce_sum[axis=(0,), keep_dims=False] {of}
  %b = broadcast_to[shape=(6, 5)] %s
  %p = mul {product}
  %t = add {first}
  %u = add {second}
  return %u{more}
}}"""


def added(first: str = "%y, %p", second: str = "%x, %t", of: str = "%z", product: str = "%b, %z", more: str = "") -> Graph:
    before = parse(ADDED.format(first=first, second=second, of=of, product=product, more=more))
    after = eliminate_dead(accumulate(as_gradient(before)))
    verify(after)
    assert_equal_results(before, after, 1, exact=True)
    return after


@pytest.mark.parametrize("first", ["%y, %p", "%p, %y"])
@pytest.mark.parametrize("second", ["%x, %t", "%t, %x"])
@pytest.mark.parametrize("product", ["%b, %z", "%z, %b"])
def test_two_that_wait_for_nothing_are_added_first(first: str, second: str, product: str) -> None:
    after = added(first, second, product=product)
    assert [set(n.operands) == set(after.inputs[:2]) for n in after.nodes if n.op.name == "add"] == [True, False]


@pytest.mark.parametrize(
    "changed",
    [
        {"more": ", %t"},  # needed as it is
        {"second": "%b, %t"},  # waits for it, too
        {"product": "%y, %z"},  # waits for nothing
    ],
)
def test_other_sums_stay(changed: dict[str, str]) -> None:
    assert_y_is_first(added(**changed))


def test_sums_that_a_user_wrote_stay() -> None:
    before = parse(ADDED.format(first="%y, %p", second="%x, %t", of="%z", product="%b, %z", more=""))
    assert_y_is_first(eliminate_dead(accumulate(before)))


def assert_y_is_first(after: Graph) -> None:
    assert next(set(n.operands) & set(after.inputs) for n in after.nodes if n.op.name == "add") == {after.inputs[1]}
