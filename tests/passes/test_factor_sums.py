"""Factors before sums: which form they take, and what the numbers are."""

from __future__ import annotations

import numpy as np
import pytest

from graphcell.ir.evaluate import evaluate_graph
from graphcell.ir.graph import Graph
from graphcell.ir.text import parse
from graphcell.ir.verify import verify
from graphcell.jit import jit
from graphcell.passes.accumulate import accumulate
from graphcell.passes.eliminate_dead import eliminate_dead
from graphcell.passes.factor_sums import factor_sums
from graphcell.passes.merge_common import merge_common
from graphcell.tensor import Tensor
from tests.passes.cases import as_gradient


def done(text: str | Graph, changed: Graph | None = None) -> Graph:
    before = parse(text) if isinstance(text, str) else text
    after = eliminate_dead(factor_sums(changed or before))
    verify(after)
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(v.type.shape).astype(v.type.dtype.np_type) for v in before.inputs]
    for x, y in zip(evaluate_graph(before, inputs), evaluate_graph(after, inputs), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5)
    return after


def names(graph: Graph) -> list[str]:
    return [n.op.name for n in graph.nodes]


SUM = """graph @f(%x: f32[6, 5], %y: f32[6, 5], %a: f32[{small}]) {{
  %square = mul %a, %a
  %root = rsqrt %square
  %b = broadcast_to[shape=(6, 5)] %root
  %p = mul {product}
  %s = reduce_sum[axis={axis}, keep_dims={keep}] %p
  return %s
}}"""


@pytest.mark.parametrize("product", ["%x, %b", "%b, %x"])
@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize(("small", "axis"), [("5", "(0,)"), ("1, 5", "(0,)"), ("6, 1", "(1,)")])
def test_a_factor_of_each_sum_stands_before_it(product: str, keep: bool, small: str, axis: str) -> None:
    after = done(SUM.format(small=small, product=product, axis=axis, keep=keep))
    made = after.producers()[after.outputs[0]]
    assert made.op.name == "mul" and "reduce_sum" in names(after)
    (total,) = [n for n in after.nodes if n.op.name == "reduce_sum"]
    assert total.operands[0] is after.inputs[0]


@pytest.mark.parametrize(("small", "axis"), [("5", "(1,)"), ("6, 1", "(0,)"), ("5", "(0, 1)")])
def test_what_varies_along_the_sum_stays_inside(small: str, axis: str) -> None:
    assert names(done(SUM.format(small=small, product="%x, %b", axis=axis, keep=False)))[-1] == "reduce_sum"


def test_a_factor_of_a_factor() -> None:
    after = done(SUM.format(small="5", product="%y, %q", axis="(0,)", keep=False).replace("  %p", "  %q = mul %x, %b\n  %p"))
    assert [n for n in names(after) if n != "broadcast_to"][-3:] == ["mul", "reduce_sum", "mul"]


SCALED = """graph @f(%x: f32[6, 5], %a: f32[5]) {{
  %b = broadcast_to[shape=(6, 5)] %a
  %p = mul %x, %b
  %s = reduce_sum[axis=(0,), keep_dims=False] %p
  {more}
}}"""


def test_a_factor_that_may_keep_the_sum_finite_stays_inside() -> None:
    before = parse(SCALED.format(more="return %s"))
    after = eliminate_dead(factor_sums(before))
    (total,) = evaluate_graph(after, [np.full((6, 5), 2e38, np.float32), np.full(5, 1e-30, np.float32)])
    np.testing.assert_allclose(total, np.full(5, 1.2e9), rtol=1e-5)


def test_any_factor_moves_where_the_sum_without_it_is_there() -> None:
    after = done(SCALED.format(more="%t = reduce_sum[axis=(0,), keep_dims=False] %x\n  return %s, %t"))
    assert [n.operands[0] for n in after.nodes if n.op.name == "reduce_sum"] == [after.inputs[0]] * 2


def test_half_precision_stays() -> None:
    text = SUM.format(small="5", product="%x, %b", axis="(0,)", keep=False).replace("f32", "f16")
    before = parse(text)
    assert names(eliminate_dead(factor_sums(before))) == names(before)


def test_minus_stands_before_a_sum() -> None:
    after = done("graph @f(%x: f32[6, 5]) {\n  %n = neg %x\n  %s = reduce_sum[axis=(0,), keep_dims=True] %n\n  return %s\n}")
    assert names(after) == ["reduce_sum", "neg"]


CHOICE = """graph @f(%x: f32[6, 5], %c: i1[{small}]) {{
  %z = full[value={other}, shape=(6, 5), dtype=f32]
  %b = broadcast_to[shape=(6, 5)] %c
  %p = select %b, {choices}
  %s = reduce_sum[axis=(1,), keep_dims={keep}] %p
  return %s{more}
}}"""


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("choices", ["%x, %z", "%z, %x"])
def test_a_choice_between_a_row_and_zeros_stands_before_its_sum(choices: str, keep: bool) -> None:
    after = done(CHOICE.format(small="6, 1", other="0.0", choices=choices, keep=keep, more=""))
    assert after.nodes[-1].op.name == "select"
    assert after.nodes[-1].results[0].type.size == 6


@pytest.mark.parametrize(("small", "other", "more"), [("5", "0.0", ""), ("6, 1", "1.0", ""), ("6, 1", "0.0", ", %p")])
def test_other_choices_stay(small: str, other: str, more: str) -> None:
    """That of a column, one between other numbers, and one that is needed."""
    after = done(CHOICE.format(small=small, other=other, choices="%x, %z", keep=False, more=more))
    assert after.nodes[-1].op.name == "reduce_sum"


def test_what_is_no_number_is_not_chosen() -> None:
    graph = eliminate_dead(factor_sums(parse(CHOICE.format(small="6, 1", other="0.0", choices="%x, %z", keep=False, more=""))))
    x, c = np.full((6, 5), np.nan, np.float32), np.array([[True], [False]] * 3)
    x[4] = np.inf
    (found,) = evaluate_graph(graph, [x, c])
    np.testing.assert_array_equal(found, [np.nan, 0, np.nan, 0, np.inf, 0])


CENTRED = """graph @f(%x: f32[6, 5], %y: f32[6, 5], %a: f32[6, 1]) {{
  %s = reduce_sum[axis={of}, keep_dims=True] {summed}
  %k = full[value={number}, shape={shape}, dtype=f32]
  %m = {scaled}
  %n = broadcast_to[shape=(6, 5)] %m
  %c = sub %x, %n
  %b = broadcast_to[shape=(6, 5)] %a
  %p = mul %c, %b
  %t = reduce_sum[axis=(1,), keep_dims={keep}] %p
  %r = reduce_sum[axis=(1,), keep_dims=False] %x
  return %s, %t, %r
}}"""


def centred(of: str = "(1,)", summed: str = "%x", number: str = "0.2", shape: str = "(6, 1)", scaled: str = "mul %s, %k", keep: bool = False) -> str:
    return CENTRED.format(of=of, summed=summed, number=number, shape=shape, scaled=scaled, keep=keep)


def names_of_factors(graph: Graph) -> str:
    """What makes the second output, and what that is made of."""
    made = graph.producers()
    return " ".join([made[graph.outputs[1]].op.name, *sorted(made[v].op.name for v in made[graph.outputs[1]].operands if v in made)])


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("scaled", ["mul %s, %k", "div %s, %k"])
def test_a_factor_of_what_had_its_mean_taken_away_moves(keep: bool, scaled: str) -> None:
    """The gradient of a variance: the sum of what its mean was taken from needs no round of its own then."""
    assert "reduce_sum" in names_of_factors(done(centred(keep=keep, scaled=scaled))).split()[1:]


@pytest.mark.parametrize(
    "text",
    [
        centred(of="(0,)", shape="(1, 5)"),  # the mean of columns
        centred(summed="%y"),  # of something else
        centred(scaled="mul %s, %s"),  # no number
        centred(scaled="add %s, %k", number="1e37"),  # a number taken away that is large
    ],
)
def test_a_factor_of_other_differences_stays(text: str) -> None:
    """There the sum without it could be far larger than what it is of."""
    assert names_of_factors(done(text)).startswith("reduce_sum")


TWO = """graph @f(%x: {kind}[6, 5], %g: {kind}[6, 5], %a: {kind}[6, 1]) {{
  %s = reduce_sum[axis=(1,), keep_dims=True] {of}
  %k = full[value=0.2, shape=(6, 1), dtype={kind}]
  %m = mul %s, %k
  %n = broadcast_to[shape=(6, 5)] %m
  %c = sub %x, %n
  %b = broadcast_to[shape=(6, 5)] %a
  %two = full[value=2.0, shape=(6, 5), dtype={kind}]
  %q = mul %two, %b
  %p = mul %c, %q
  %d = {total}
  %t = reduce_sum[axis=(1,), keep_dims=False] %d
  return %s, %t, %d
}}"""


def two(total: str, of: str = "%x", kind: str = "f32") -> str:
    return TWO.format(total=total, of=of, kind=kind)


@pytest.mark.parametrize("total", ["add %g, %p", "add %p, %g", "sub %g, %p", "sub %p, %g"])
def test_a_sum_of_two_in_a_gradient_is_two_sums_where_one_is_known_but_for_factors(total: str) -> None:
    """The gradient of c = x - mean(x), once as it is and once in a variance: its sum does not wait for that of the variance."""
    before = parse(two(total))
    after = done(before, as_gradient(before))
    summed = [n.operands[0] for n in after.nodes if n.op.name == "reduce_sum"]
    (centred,) = [n.results[0] for n in after.nodes if n.op.name == "sub" and n.operands[0] is after.inputs[0]]
    assert set(summed) == {after.inputs[0], after.inputs[1], centred}


@pytest.mark.parametrize(
    "text",
    [
        two("add %g, %p", of="%g"),  # the mean of something else
        two("add %g, %x"),  # a sum that is there, of what may be far larger than the difference to another
        two("add %g, %q"),
        two("mul %g, %g"),
        two("add %g, %p", kind="f16"),
    ],
)
def test_other_sums_of_two_stay(text: str) -> None:
    after = eliminate_dead(factor_sums(as_gradient(parse(text))))
    assert after.producers()[after.outputs[1]].operands[0] is after.outputs[2]


def test_a_sum_of_two_that_a_user_wrote_stays() -> None:
    after = done(two("add %g, %p"))
    assert after.producers()[after.outputs[1]].operands[0] is after.outputs[2]


def test_residuals_are_added_up_as_they_are() -> None:
    """Of numbers whose own sum is asked for, too: what is left of two large ones is small, and so is its sum."""
    x = np.full((8, 4096), 1e36, np.float32)
    step = jit(lambda x, y: (x.sum(1), (x * 3.0 - y).sum(1)))
    assert not step(Tensor(x), Tensor(x * np.float32(3)))[1].asnumpy().any()


def test_long_products_take_no_longer() -> None:
    """Each factor twice the one before it: 2^40 in all."""
    squares = "".join(f"  %a{k + 1} = mul %a{k}, %a{k}\n" for k in range(40))
    text = f"graph @f(%a0: f32[6, 5]) {{\n{squares}  %y = add %a40, %a0\n  %s = reduce_sum[axis=(1,), keep_dims=False] %y\n  return %s\n}}"
    assert names(accumulate(factor_sums(as_gradient(parse(text)))))[-2:] == ["add", "reduce_sum"]


def test_the_order_of_factors_stays() -> None:
    """a b c, from left to right, is finite where b c is not."""
    text = """graph @f(%a: f32[6, 5], %b: f32[6, 5], %k: f32[6, 1]) {
      %s = broadcast_to[shape=(6, 5)] %k
      %p = mul %a, %b
      %q = mul %p, %b
      %r = mul %q, %s
      %t = reduce_sum[axis=(1,), keep_dims=False] %q
      %u = reduce_sum[axis=(1,), keep_dims=False] %r
      return %t, %u
    }"""
    after = eliminate_dead(factor_sums(parse(text)))
    arrays = [np.full((6, 5), 1e-30, np.float32), np.full((6, 5), 1e30, np.float32), np.full((6, 1), 1e-3, np.float32)]
    np.testing.assert_allclose(evaluate_graph(after, arrays)[1], np.full(6, 5e27), rtol=1e-5)
    assert names(merge_common(after)).count("reduce_sum") == 1


CHAIN = """graph @f(%x: {kind}[6, 4], %a: {kind}[6, 1]) {{
  %c = full[value={first}, shape=(6, 4), dtype={kind}]
  %d = full[value={second}, shape=(6, 4), dtype={kind}]
  %b = broadcast_to[shape=(6, 4)] %a
  %p = mul %x, {factor}
  %q = mul %d, %p
  return %q{more}
}}"""


@pytest.mark.parametrize(
    ("first", "second", "kind", "more", "left"),
    [
        ("0.3", "2.0", "f32", "", ["mul"]),
        ("-8.0", "0.3", "f64", "", ["mul"]),
        ("0.3", "0.7", "f32", "", ["mul", "mul"]),
        ("0.3", "2.0", "f16", "", ["mul", "mul"]),
        ("0.3", "2.0", "f32", ", %p", ["mul", "mul"]),
        ("3e38", "2.0", "f32", "", ["mul", "mul"]),
        ("1e-38", "0.5", "f32", "", ["mul", "mul"]),
    ],
)
def test_a_power_of_two_joins_another_number(first: str, second: str, kind: str, more: str, left: list[str]) -> None:
    after = done(CHAIN.format(first=first, second=second, kind=kind, more=more, factor="%c"))
    assert [n for n in names(after) if n == "mul"] == left


def test_two_stays_behind_what_is_one_number_a_row() -> None:
    """It could overflow before it meets what is small."""
    text = CHAIN.format(first="0.3", second="2.0", kind="f32", more="", factor="%b")
    after = eliminate_dead(factor_sums(parse(text)))
    (found,) = evaluate_graph(after, [np.full((6, 4), 1e-30, np.float32), np.full((6, 1), 2e38, np.float32)])
    np.testing.assert_allclose(found, np.full((6, 4), 4e8), rtol=1e-5)


@pytest.mark.parametrize(("last", "more", "left"), [("%p", "", ["mul", "mul", "add"]), ("%q", "", ["mul", "mul", "add"]), ("%x", "", ["mul", "add", "add"]), ("%p", ", %s", ["mul", "add", "add"])])
def test_what_is_added_twice_is_doubled(last: str, more: str, left: list[str]) -> None:
    after = done(f"""graph @f(%x: f32[6, 5], %y: f32[6, 5], %z: f32[6, 5]) {{
  %p = mul %x, %y
  %q = mul %y, %x
  %s = add %z, %p
  %t = add %s, {last}
  return %t{more}
}}""")
    assert [n for n in names(after) if n in ("mul", "add")] == left


@pytest.mark.parametrize(("kind", "last"), [("f16", "%p"), ("f32", "%y")])
def test_half_precision_and_what_is_no_product_are_added_twice(kind: str, last: str) -> None:
    text = f"""graph @f(%x: {kind}[6, 5], %y: {kind}[6, 5], %z: {kind}[6, 5]) {{
  %p = mul %x, %y
  %s = add %z, {last}
  %t = add %s, {last}
  return %t, %p
}}"""
    assert [n for n in names(eliminate_dead(factor_sums(parse(text)))) if n in ("mul", "add")] == ["mul", "add", "add"]


PRODUCTS = """graph @f(%a: {kind}[{batch}9, 9], %b: {kind}[{batch}9, {n}]) {{
  %x = matmul[transpose_x={one}, transpose_y=False] %a, %b
  %y = matmul[transpose_x={other}, transpose_y=False] %a, %b
  %z = add %x, %y
  return %z{more}
}}"""


def products(n: int = 12, kind: str = "f32", batch: str = "", one: bool = True, other: bool = False, more: str = "") -> str:
    return PRODUCTS.format(n=n, kind=kind, batch=batch, one=one, other=other, more=more)


@pytest.mark.parametrize("one", [True, False])
@pytest.mark.parametrize("batch", ["", "3, "])
@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_two_products_with_a_matrix_and_its_transpose_are_one(one: bool, batch: str, kind: str) -> None:
    after = done(products(one=one, other=not one, batch=batch, kind=kind))
    assert names(after) == ["transpose", "add", "matmul"]


def test_the_matrix_may_stand_on_the_right() -> None:
    after = done("""graph @f(%a: f32[9, 9], %b: f32[9, 12]) {
  %x = matmul[transpose_x=True, transpose_y=False] %b, %a
  %y = matmul[transpose_x=True, transpose_y=True] %b, %a
  %z = add %y, %x
  return %z
}""")
    assert names(after) == ["transpose", "add", "matmul"]


@pytest.mark.parametrize(
    "text", [products(n=3), products(kind="f16"), products(more=", %x")], ids=["narrow", "half", "needed"]
)
def test_other_sums_of_products_stay(text: str) -> None:
    assert names(done(text)).count("matmul") == 2


SHARED = """graph @f(%a: f32[{batch}{m}, 9], %b: f32[{batch}9, {n}], %c: f32[{batch}9, {n}], %d: f32[{batch}{m}, {n}], %e: f32[{batch}{m}, 9]) {{
  %x = matmul[transpose_x=False, transpose_y=False] %a, %b
  %s = {between} %x, %d
  %y = matmul[transpose_x=False, transpose_y=False] {last}
  %z = add %s, %y
  return %z{more}
}}"""


@pytest.mark.parametrize("batch", ["", "3, "])
@pytest.mark.parametrize("last", ["%a, %c", "%e, %b", "%a, %b"])
def test_two_products_with_one_matrix_are_one(last: str, batch: str) -> None:
    assert sorted(names(done(SHARED.format(between="add", last=last, batch=batch, more="", m=130, n=128)))) == ["add", "add", "matmul"]


@pytest.mark.parametrize(("last", "m", "n"), [("%a, %c", 20, 200), ("%e, %b", 200, 20)])
def test_matrices_that_few_rows_or_columns_meet_are_not_added_up(last: str, m: int, n: int) -> None:
    """To read them twice and write a third one would take longer."""
    assert names(done(SHARED.format(between="add", last=last, batch="", more="", m=m, n=n))).count("matmul") == 2


@pytest.mark.parametrize(("used", "products"), [("", 1), (", %u", 2)])
def test_matrices_that_loops_make_for_the_products_alone_are(used: str, products: int) -> None:
    after = done(f"""graph @f(%a: f32[10, 9], %b: f32[9, 12], %c: f32[9, 12]) {{
  %t = neg %b
  %u = mul %c, %c
  %x = matmul[transpose_x=False, transpose_y=False] %a, %t
  %y = matmul[transpose_x=False, transpose_y=False] %a, %u
  %z = add %x, %y
  return %z{used}
}}""")
    assert names(after).count("matmul") == products


@pytest.mark.parametrize(("between", "last", "more"), [("mul", "%a, %c", ""), ("add", "%e, %c", ""), ("add", "%a, %c", ", %x"), ("add", "%a, %c", ", %s")])
def test_products_of_other_matrices_or_needed_elsewhere_stay(between: str, last: str, more: str) -> None:
    assert names(done(SHARED.format(between=between, last=last, batch="", more=more, m=130, n=128))).count("matmul") == 2
