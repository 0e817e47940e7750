"""`while`: unrolled, or one op, always with Python's results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphcell import dtype as dt
from graphcell import jit, ops
from graphcell.errors import BranchTypeError, DataDependentTypeError, UnboundNameError
from graphcell.frontend import trace_function
from graphcell.tensor import Tensor
from tests.frontend.support import check, op_names, tensor

VALUES = [(1.0, 2.0, 3.0), (-1.0, -2.0, 0.5), (50.0, 60.0, 7.0)]


def while_tensor(x: Any) -> Any:
    while x.sum() < 100:
        x = x * 2 + 1
    return x


def while_counter_tensor(x: Any) -> Any:
    i = Tensor(0, dt.int32)
    while i < 20:
        x = ops.tanh(x) + 0.1
        i = i + 1
    return x, i


def while_numbers(x: Any) -> Any:
    i, s = 0, 0.5
    while x.sum() > i:
        i += 1
        s = s * 2
        if i > 5:
            break
    return i, s


def while_constant(x: Any) -> Any:
    i = 0
    while i < 3:
        x = x + i
        i += 1
    return x, i


def while_true_break(x: Any) -> Any:
    n = 0
    while True:
        x = x + 1
        n += 1
        if x.sum() > 20:
            break
    return x, n


def while_true_return(x: Any) -> Any:
    while True:
        y = x * 2
        x = y + 1
        if x.sum() > 20:
            return y, "done"


def while_true_returns(x: Any) -> Any:
    while True:
        x = x + 1
        if x.sum() > 15:
            return x, 1
        if x[0] > 3:
            return x * 10, 2
    else:
        return "never"


def while_true_return_or_break(x: Any) -> Any:
    n = 0
    while True:
        x = x + 1
        n += 1
        if x.sum() > 20:
            return x, n
        if n > 3:
            break
    return x * 100, n


def while_true_inside(x: Any) -> Any:
    while True:
        while True:
            x = x + 1
            if x.sum() > 25:
                break
            if x[0] > 5:
                return x, 1
        return x * 3, 2


def while_true_late(x: Any) -> Any:
    while True:
        y = x * 2
        x = x + 1
        if x.sum() > 20:
            break
    return y, x


def while_known_late(x: Any) -> Any:
    n = 0
    while n < 10:
        y, z = x * n, n
        n += 1
        if y.sum() > 30:
            break
        if z == 7:
            continue
    else:
        z = -1
    return y, z, n


def while_true_late_inside(x: Any) -> Any:
    s = x * 0
    while x.sum() < 20:
        while True:
            step = x * 0.5 + 1
            s = s + step
            if s[0] > 4:
                break
            if s[1] > 9:
                return s, step
        x = x + ops.abs(step) + 1
    return s, x


def while_continue(x: Any) -> Any:
    i = Tensor(0)
    s = x * 0
    while i < 10:
        i = i + 1
        if i % 2 == 0:
            continue
        s = s + x * i
    return s


def while_return(x: Any) -> Any:
    y = x
    while y.sum() < 100:
        y = y + 5
        if y[0] > 12:
            return y * 2
    return -y


def while_else(x: Any) -> Any:
    n = 0
    while x.sum() < 100:
        x = x + 3
        n = n + 1
        if n > 4:
            break
    else:
        x = x * 1000
    return x, n


def while_tuple(x: Any) -> Any:
    state = (x, [x * 0, 1.0])
    while state[0].sum() < 50:
        a, b = state
        state = (a + 1, [b[0] + a, 1.0])
    return state


def while_nested(x: Any) -> Any:
    i = Tensor(0)
    total = x
    while i < 3:
        j = Tensor(0)
        while j < i:
            total = total + 1
            j = j + 1
        i = i + 1
    return total


def while_with_if(x: Any) -> Any:
    while x.sum() < 60:
        if x[0] > 5:
            x = x + 10
        else:
            x = x + 1
    return x


def while_chained(x: Any) -> Any:
    lo, hi = x.sum(), x.sum() + 20
    while 0 < hi - lo < 1000 and lo < 500:
        lo = lo * 2 + 1
    return lo


def while_walrus(x: Any) -> Any:
    while (s := x.sum()) < 40:
        x = x + 2
    return x, s


def while_writes(x: Any) -> Any:
    i = Tensor(0)
    while i < 3:
        x[0] = x[0] + 1
        i = i + 1
    return x


def while_list(x: Any) -> Any:
    h = [x, x + 1]
    i = Tensor(0)
    while i < 3:
        h[0] = h[0] + h[1]
        i += 1
    return h


def while_constant_inside(x: Any) -> Any:
    k = 2
    i = Tensor(0)
    while i < 3:
        k = 2
        x = x[:k]
        x = ops.concat([x, x[:1]])
        i += 1
    return x, k


def while_tensor_number_start(x: Any) -> Any:
    total = 0
    i = Tensor(0)
    while i < 4:
        total = total + x.sum()
        i += 1
    return total * 1.0


def while_flag(x: Any) -> Any:
    go = True
    n = 0
    while go:
        x = x + 4
        n += 1
        go = x.sum() < 50
    return x, n


def while_first_finds_another_dtype(x: Any) -> Any:
    x = x.astype(dt.int32)
    changed, n = ops.cast(x.sum(), dt.int32), 0
    while changed > 0:
        new = ops.maximum(x - 7, ops.zeros_like(x))
        changed = ops.abs(new - x).sum()  # int64
        x, n = new, n + 1
    else:
        n += 100
    return x, n


def while_first_finds_another_shape(x: Any) -> Any:
    s = x.sum()
    while s.sum() < 40:
        if s.max() > 30:
            return x * 2
        s = s + x * x
    return x


WHILES = [
    while_tensor, while_counter_tensor, while_numbers, while_constant, while_true_break, while_true_return,
    while_true_returns, while_true_return_or_break, while_true_inside, while_true_late, while_known_late,
    while_true_late_inside, while_continue, while_return, while_else, while_tuple,
    while_nested, while_with_if, while_chained, while_walrus, while_writes, while_list, while_constant_inside, while_tensor_number_start, while_flag,
    while_first_finds_another_dtype, while_first_finds_another_shape,
]  # fmt: skip


@pytest.mark.parametrize("function", WHILES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("values", VALUES, ids=["positive", "negative", "large"])
def test_while(function: Any, values: Any) -> None:
    check(function, tensor(*values))


def test_while_becomes_one_op() -> None:
    traced = check(while_counter_tensor, tensor(1.0))
    assert op_names(traced).count("tanh") == 1 and op_names(traced).count("for") == 1  # it counts
    traced = check(while_numbers, tensor(1.0))
    assert op_names(traced).count("while") == 1


def test_while_carries_only_what_changes() -> None:
    def f(x: Any, w: Any) -> Any:
        k = 3
        i = Tensor(0)
        while ops.abs(x).sum() > 0.5:
            x = ops.matmul(x, w) * k
            i = i + 1
        return x

    traced = check(f, Tensor(np.eye(2, dtype=np.float32)), Tensor(np.full((2, 2), 0.1, np.float32)))
    loop = next(n for n in traced.graph.nodes if n.op.name == "while")
    assert loop.op.carried == 2 and len(loop.operands) == 3


def test_while_type_conflict() -> None:
    def f(x: Any) -> Any:
        while x.sum() < 10:
            x = ops.concat([x, x])
        return x

    with pytest.raises(BranchTypeError) as e:
        trace_function(f, (tensor(1.0),))
    assert "'x' is Tensor" in str(e.value) and "before the loop" in str(e.value)


def test_after_the_loop_a_variable_has_no_type_where_it_may_have_either() -> None:
    def f(x: Any) -> Any:
        last = x.sum()
        while last.sum() < 10:
            x = x * 2 + 1
            last = x
        return last

    with pytest.raises(BranchTypeError, match=r"'last' is Tensor.*before the loop and Tensor.*after an iteration"):
        trace_function(f, (tensor(1.0, 2.0),))


def shape_of_either_branch(x: Any) -> Any:
    a, s, k = x.sum(), x.sum(), x.sum()
    while k > 0:
        s = s + x  # another shape in the first iteration only
        if k > 2:
            a = x * 1
        k = k - 1
    return a


def shape_that_the_else_clause_reads(x: Any) -> Any:
    a, k, c = x.sum(), x.sum(), x
    while k > 0:
        if k > 2:
            a = x * 1
        k = k - 1
    else:
        c = a
    return c


@pytest.mark.parametrize("function", [shape_of_either_branch, shape_that_the_else_clause_reads])
def test_what_has_no_one_shape_says_so_and_runs_as_python(function: Any) -> None:
    x = tensor(1.0, 2.0, 3.0)
    with pytest.raises(DataDependentTypeError, match=r"'a' is Tensor f32\[3\] in the true branch and Tensor f32\[\] in the false branch"):
        trace_function(function, (x,))
    with pytest.warns(RuntimeWarning, match="runs as Python"):
        got = jit(function)(x)
    np.testing.assert_array_equal(got.asnumpy(), [1, 2, 3])


def test_a_first_iteration_stands_apart_only_for_late_names_and_types() -> None:
    assert op_names(check(while_first_finds_another_shape, tensor(1.0, 2.0, 3.0))).count("while") == 1
    assert op_names(check(while_first_finds_another_dtype, tensor(1.0, 2.0, 3.0))).count("abs") == 2
    assert op_names(check(while_true_return, tensor(1.0, 2.0, 3.0))).count("mul") == 1
    assert op_names(check(while_true_late, tensor(1.0, 2.0, 3.0))).count("mul") == 2


def test_a_name_assigned_only_where_the_loop_ends() -> None:
    def f(x: Any) -> Any:
        while True:
            x = x + 1
            if x.sum() > 9:
                y = x * 2
                break
        return y

    with pytest.raises(UnboundNameError, match="'y' is not defined in false branch"):
        trace_function(f, (tensor(1.0),))


def test_name_assigned_in_loop_only() -> None:
    def f(x: Any) -> Any:
        while x.sum() < 10:
            y = x + 1
            x = y
        return y

    with pytest.raises(UnboundNameError, match="may not run"):
        trace_function(f, (tensor(1.0),))
