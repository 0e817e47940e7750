"""Expressions: each function is traced and compared with Python's own result."""

# ruff: noqa: RUF021, SIM222, SIM223, SIM905, UP031, UP032  (the functions are written to exercise syntax)
from __future__ import annotations

import math
from collections import namedtuple
from typing import Any

import numpy as np
import pytest

from graphcell import ops
from graphcell.tensor import Tensor
from tests.frontend.support import check, op_names, tensor

Pair = namedtuple("Pair", ["first", "second"])
WIDTH = 3


def arithmetic(x: Any) -> Any:
    return x + 1, 1 - x, x * 2.5, x / 4, x // 2, x % 2, x**2, 2**x, -x, +x, x - x * x


def containers(x: Any) -> Any:
    t = (x, 1, "s", None, [x, {"k": x}])
    return t, t[0] + 1, t[4][1]["k"], [*t[:2], x], {"a": 1, **t[4][1]}, len(t), t[-1][0]


def sets(x: Any) -> Any:
    s = {1, 2} | {k for k in range(4) if k % 2}
    return sorted(s), 3 in s, 5 not in s


def slices(x: Any) -> Any:
    return x[0], x[-1], x[1:], x[:2], x[::2], x[...], x[None], x[1:, None]


def comparisons(x: Any) -> Any:
    return x > 1, x <= 2, x == 2, x != 2, 1 < 2 < 3, 3 > 2 > 5, x is x, x is not None, WIDTH == 3


def boolean_constants(x: Any) -> Any:
    return (1 and 2), (0 or 5), (None or []), not 0, (0 and x), (1 or x), ("" or "a") and "b"


def chained_on_tensors(x: Any) -> Any:
    s = x.sum()
    return 0 < s < 10, 0 < s < 3, s > 1 > 0, 5 > s > 100


def logical_on_tensors(x: Any) -> Any:
    s = x.sum()
    return (s > 1 and x[0] > 0), (s > 100 or x[0] > 0), (s > 1 and True), (s > 100 or False)


def not_on_tensor(x: Any) -> Any:
    return not x.sum() > 1, not x.sum() > 100


def comprehensions(x: Any) -> Any:
    a = [x * k for k in range(3)]
    b = [x[k] + j for k in range(2) for j in range(2) if k != j]
    c = {k: v + 1 for k, v in enumerate(a)}
    d = [[i * j for j in range(2)] for i in range(2)]
    e = tuple(v for v in a)
    f = sum(v for v in a)
    return a, b, c, d, e, f


def comprehension_scope(x: Any) -> Any:
    k = 7
    values = [k for k in range(3)]
    functions = [lambda: k for k in range(3)]
    bound = [lambda k=k: k for k in range(3)]
    return k, values, [f() for f in functions], [f() for f in bound]


def walrus(x: Any) -> Any:
    if (n := len([1, 2])) > 1:
        y = x * n
    total = [last := k for k in range(4)]
    return y, n, last, total


def strings(x: Any) -> Any:
    n = 3
    return (
        f"{n:03d} {n!r} {n + 1}",
        "a" + "b" * 2,
        "x%d" % n,
        "{}-{:.2f}".format(1, 2.0),
        "abc"[1:],
        "a,b".split(","),
        "b" in "abc",
    )


def starred(x: Any) -> Any:
    a, *b = [1, 2, 3]
    *c, d = (x, 2)
    e, (f, *g), h = 1, (2, x, 4), 5
    return a, b, c, d, e, f, g, h, [*b, *c]


def ternary_constant(x: Any) -> Any:
    return x if x.ndim == 1 else -x


def ternary_tensor(x: Any) -> Any:
    a = x if x.sum() > 0 else -x
    b = 1 if x.sum() > 100 else 2
    c = x * 3 if x[0] > 100 else x * 4
    d = (x, 1) if x.sum() > 100 else (x + 1, 2)
    return a, b, c, d


def named_tuple(x: Any) -> Any:
    p = Pair(x, 2)
    return p.first + p.second, p[0], p._replace(second=5).second


def numpy_constants(x: Any) -> Any:
    scale = np.sqrt(2.0)
    table = np.arange(3, dtype=np.float32) * 2
    return x * float(scale), x + Tensor(table), x * math.pi


def unpacking_rows(x: Any) -> Any:
    m = ops.stack([x, x + 1])
    a, b = m
    return a, b, [row.sum() for row in m]


def int_list_index(x: Any) -> Any:
    values = [10, 20, 30]
    return values[len(values) - 1], values[-1], values[0:2]


def nested_functions_of_values(x: Any) -> Any:
    return (
        max(1, 2),
        min([3, 1]),
        abs(-2),
        round(2.6),
        sum([1, 2]),
        divmod(7, 2),
        pow(2, 3),
        sorted([3, 1, 2], key=lambda k: -k),
        any([0, 1]),
        all([]),
    )


def builtin_iterators(x: Any) -> Any:
    products = list(map(lambda a, b: a * b, [1, 2], [x, x]))
    return (
        list(zip([1, 2], [x, x])),
        products,
        list(filter(lambda k: k > 1, [1, 2])),
        list(reversed([1, 2])),
        dict(a=x),
        list(enumerate("ab", 1)),
    )


def tensor_builtins(x: Any) -> Any:
    return abs(-x), max(x), min(x), sum([x, x]), max(x[0], x[1]), min(x[2], x[1]), len(x), round(x.sum())


EXPRESSIONS = [
    arithmetic, containers, sets, slices, comparisons, boolean_constants, comprehensions, comprehension_scope, walrus, strings, starred,
    ternary_constant, named_tuple, numpy_constants, unpacking_rows, int_list_index, nested_functions_of_values,
    builtin_iterators, tensor_builtins, ternary_tensor,
]  # fmt: skip


@pytest.mark.parametrize("function", EXPRESSIONS, ids=lambda f: f.__name__)
def test_expression(function: Any) -> None:
    check(function, tensor(1.0, 2.0, 3.0))


@pytest.mark.parametrize(
    "function", [chained_on_tensors, logical_on_tensors, not_on_tensor], ids=lambda f: f.__name__
)
@pytest.mark.parametrize("values", [(1.0, 2.0, 3.0), (-1.0, 0.5, 0.0), (50.0, 60.0, 1.0)])
def test_truth_of_tensors(function: Any, values: Any) -> None:
    # Python gives Bool Tensors for comparisons, and bool for `not`; the graph gives Bool Tensors for all of them
    from graphcell.frontend import trace_function
    from tests.frontend.support import run_traced

    x = tensor(*values)
    got = run_traced(trace_function(function, (x,)), (x,))
    assert [bool(v) for v in got] == [bool(v) for v in function(x)]


@pytest.mark.parametrize("values", [(1.0, 2.0, 3.0), (-1.0, -2.0, 0.0), (500.0, 1.0, 1.0)])
def test_ternary_takes_either_side(values: Any) -> None:
    check(ternary_tensor, tensor(*values))


def test_short_circuit_skips_what_is_costly() -> None:
    def f(x: Any) -> Any:
        def costly() -> Any:
            y = x
            while y.sum() < 100:
                y = y * 2
            return y.sum() > 120

        return 1 if x.sum() > 0 and costly() else 0

    traced = check(f, tensor(1.0, 2.0))
    outer = [n.op.name for n in traced.graph.nodes]
    assert "while" not in outer and "if" in outer  # the loop runs only where the first operand holds
    check(f, tensor(-1.0, -2.0))


def test_and_returns_an_operand() -> None:
    def f(x: Any) -> Any:
        return (x.sum() and x[1]), (x.sum() or x[1])

    check(f, tensor(1.0, 2.0))
    check(f, tensor(1.0, -1.0))


def test_cheap_conditions_are_plain_ops() -> None:
    def f(x: Any) -> Any:
        return x * 2 if x.sum() > 0 and x[0] < 5 or not x[1] > 3 else x

    assert "logical_and" in op_names(check(f, tensor(1.0, 2.0))) or "bitwise_and" in op_names(
        check(f, tensor(1.0, 2.0))
    )


def test_membership_of_tensors() -> None:
    def f(x: Any) -> Any:
        return 1 if x[0] in [1.0, 5.0] else 0

    check(f, tensor(5.0))
    check(f, tensor(2.0))


def test_index_of_sequence_by_tensor() -> None:
    def f(x: Any, i: Any) -> Any:
        return [x, x * 2, x * 3][i]

    check(f, tensor(1.0, 2.0), Tensor(2))
