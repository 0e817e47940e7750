"""What a `for` that a Tensor may end early leaves behind: its variable, and names that only its body assigns."""

# ruff: noqa: B007  (the loops leave their variables to what follows)
from __future__ import annotations

import ast
from typing import Any

import pytest

from graphcell import grad, ops
from graphcell.errors import UnboundNameError
from graphcell.frontend.supported import read_outside
from graphcell.jit import jit
from graphcell.tensor import Tensor
from tests.frontend.support import check, op_names, same, tensor


def index_read(x: Any) -> Any:
    for i in range(10):
        x = x * 1.5
        if x.sum() > 20:
            break
    return x, i


def index_assigned_before(x: Any) -> Any:
    i = -1
    t = x
    for i in range(10):
        t = x * i
        if t.sum() > 20:
            break
    return t, i


def local_read(x: Any) -> Any:
    y = x
    for i in range(50):
        new = y * 0.5 + i
        change = ops.abs(new - y).max()
        y = new
        if change < 0.7:
            break
    return y, change, i


def index_of_return(x: Any) -> Any:
    for i in range(12):
        x = x + 1
        if x.sum() > 20:
            return x, i
    return x * 2, i + 100


def index_set_by_else(x: Any) -> Any:
    for i in range(30, 3, -3):
        x = x * 1.1
        if x.sum() > 9:
            break
    else:
        i = -7
    return x, i


def enumerated(x: Any) -> Any:
    rows = ops.stack([x * (0.3 * k) for k in range(9)])
    s = x * 0
    for i, row in enumerate(rows):
        if s.sum() > 10:
            break
        s = s + row
    return s, i, row


def nested(x: Any) -> Any:
    s = x.sum() * 0
    for i in range(12):
        for j in range(9):
            s = s + x[j % 3]
            if s > i:
                break
        if s > 8:
            break
    return s, i, j


def other_loops_variable(x: Any) -> Any:
    for i in range(12):
        x = x * 1.5
        if x.sum() > 20:
            break
    for i in range(12):
        x = x + i
    return x


FUNCTIONS = [index_read, index_assigned_before, local_read, index_of_return, index_set_by_else, enumerated, nested, other_loops_variable]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("values", [(1.0, 2.0, 3.0), (-1.0, -2.0, 0.5), (50.0, 60.0, 7.0), (0.1, 0.2, 0.3)])
def test_what_a_loop_leaves_behind(function: Any, values: Any) -> None:
    traced = check(function, tensor(*values))
    assert "for" in op_names(traced)
    assert not traced.remarks


@pytest.mark.parametrize("function", [index_read, local_read, enumerated], ids=lambda f: f.__name__)
def test_gradients_of_a_loop_that_was_left(function: Any) -> None:
    x = tensor(1.0, 2.0, 3.0)
    same(grad(lambda v: jit(function)(v)[0].sum())(x), grad(lambda v: function(v)[0].sum())(x))


def test_a_loop_is_not_doubled_for_another_loops_variable() -> None:
    traced = check(other_loops_variable, tensor(1.0, 2.0, 3.0))
    assert op_names(traced).count("mul") == 1


def test_a_name_that_the_first_iteration_may_leave_unset() -> None:
    def late(x: Tensor) -> Tensor:
        for _ in range(10):
            if x.sum() > 5:
                break
            y = x * 2
            x = x + 1
        return y

    with pytest.raises(UnboundNameError, match="'y'"):
        jit(late)(tensor(1.0))


def test_read_outside() -> None:
    function = ast.parse("def f(x):\n for i in a:\n  i\n for i in b:\n  i + j\n else:\n  k\n for k in c:\n  for i in d:\n   pass\n  l\n return [m for m in x]").body[0]
    assert isinstance(function, ast.FunctionDef)
    first, last = function.body[0], function.body[2]
    assert isinstance(last, ast.For)
    assert read_outside(function, first) == {"b", "j", "k", "c", "d", "l", "m", "x"}
    assert read_outside(function, last.body[0]) == {"a", "b", "j", "k", "c", "l", "m", "x"}
