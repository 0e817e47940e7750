"""`if` on Tensors: joins, early returns, what is assigned on one side only."""

# ruff: noqa: RUF021, RUF043  (the functions are written to exercise syntax)
from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from graphcell import ops
from graphcell.errors import BranchTypeError, UnboundNameError
from graphcell.frontend import trace_function
from tests.frontend.support import check, op_names, tensor

VALUES = [(1.0, 2.0, 3.0), (-1.0, -2.0, 0.5), (50.0, 60.0, 7.0)]


def assign_both(x: Any) -> Any:
    if x.sum() > 0:
        y = x * 2
    else:
        y = x - 1
    return y


def assign_over(x: Any) -> Any:
    y = x
    if x.sum() > 0:
        y = y * 2
    return y


def elif_chain(x: Any) -> Any:
    if x.sum() > 100:
        y, k = x, 1
    elif x.sum() > 0:
        y, k = x + 1, 2
    elif x[0] < -5:
        y, k = x + 2, 3
    else:
        y, k = x + 3, 4
    return y, k


def nested(x: Any) -> Any:
    y = x
    if x.sum() > 0:
        if x[0] > 10:
            y = y + 1
        else:
            z = y * 2
            y = z + y
        y = y * 3
    elif x[0] < 0:
        y = -y
    return y


def early_return(x: Any) -> Any:
    if x.sum() > 0:
        return x * 2
    y = x - 1
    if y[0] < -10:
        return y
    return y * 3


def return_in_else(x: Any) -> Any:
    if x.sum() > 0:
        y = x * 2
    else:
        return -x
    return y + 1


def return_deep_inside(x: Any) -> Any:
    y = x + 1
    if x.sum() > 0:
        if x[0] > 10:
            return y
        y = y * 2
        z = y + 5
    else:
        z = y
    return z * 10


def return_under_constant(x: Any) -> Any:
    if x.ndim == 1:
        if x.sum() > 0:
            return x
        x = x * 5
    return -x


def return_structures(x: Any) -> Any:
    if x.sum() > 0:
        return x, {"k": [x * 2, 3]}, 1
    return x * 2, {"k": [x, 4]}, 2


def returns_nothing(x: Any) -> Any:
    if x.sum() > 0:
        return
    y = x + 1  # noqa: F841
    return


def numbers(x: Any) -> Any:
    n, r, flag = 0, 1.5, False
    if x.sum() > 0:
        n, r, flag = 3, 2.5, True
    return n, r, flag, n + 1, x * n


def int_and_float(x: Any) -> Any:
    n = 0
    if x.sum() > 0:
        n = 1.5
    return x * n


def number_and_tensor(x: Any) -> Any:
    s = 0.0
    if x.sum() > 0:
        s = x.sum()
    return x + s


def unchanged_constants(x: Any) -> Any:
    k, name = 3, "a"
    if x.sum() > 0:
        x = x + 1
        k = 3
        name = "a"
    return x[: k - 1], name, [0] * k


def dead_temporaries(x: Any) -> Any:
    if x.sum() > 0:
        t = (x, x)
        y = t[0] + t[1]
    else:
        t = "something else"
        y = x
    return y


def list_contents(x: Any) -> Any:
    out = [x, 1]
    if x.sum() > 0:
        out[0] = x * 2
        out[1] = 7
    return out


def list_append_both(x: Any) -> Any:
    out = []
    if x.sum() > 0:
        out.append(x)
        out.append(x * 2)
    else:
        out.extend([-x, x])
    return out


def local_lists(x: Any) -> Any:
    if x.sum() > 0:
        parts = []
        parts.append(x)
        parts.append(x + 1)
        y = parts[0] + parts[1]
    else:
        y = x
    return y


def dictionary(x: Any) -> Any:
    d = {"a": x, "b": 2}
    if x.sum() > 0:
        d["a"] = d["a"] * 2
    else:
        d["b"] = 5
    return d


def attribute_of_object(x: Any) -> Any:
    o = SimpleNamespace(v=x, k=1)
    if x.sum() > 0:
        o.v = o.v * 2
        o.k = 5
    return o.v, o.k


def closure_variable(x: Any) -> Any:
    total = x

    def add(v: Any) -> None:
        nonlocal total
        total = total + v

    if x.sum() > 0:
        add(x)
    else:
        add(x * 3)
    add(x)
    return total


def function_with_branch(x: Any) -> Any:
    def relu(v: Any) -> Any:
        if v.sum() > 0:
            return v
        return v * 0

    return relu(x) + relu(-x)


def several_conditions(x: Any) -> Any:
    y = x
    if x.sum() > 0 and x[0] < 10 or not x[1] > 0:
        y = y * 2
    if not (x.sum() > 0 or x[0] > 3):
        y = y + 7
    return y


def in_place_write(x: Any) -> Any:
    if x.sum() > 0:
        x[0] = 100.0
    else:
        x[1] = -100.0
    return x * 2


def same_object(x: Any) -> Any:
    a = x + 1
    b = a
    if x.sum() > 0:
        b = a
    return a is b, b


def one_sided_unread(x: Any) -> Any:
    if x.sum() > 0:
        y = x * 2
        x = y
    return x


def recursion(x: Any) -> Any:
    def f(v: Any, n: int) -> Any:
        if n == 0:
            return v
        if v.sum() > 50:
            return v - 1
        return f(v * 2, n - 1)

    return f(x, 4)


FUNCTIONS = [
    assign_both, assign_over, elif_chain, nested, early_return, return_in_else, return_deep_inside, return_under_constant, return_structures,
    returns_nothing, numbers, unchanged_constants, dead_temporaries, list_contents, list_append_both, local_lists, dictionary,
    attribute_of_object, closure_variable, function_with_branch, several_conditions, in_place_write, same_object, one_sided_unread, recursion,
    int_and_float, number_and_tensor,
]  # fmt: skip


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("values", VALUES, ids=["positive", "negative", "large"])
def test_branch(function: Any, values: Any) -> None:
    check(function, tensor(*values))


def test_constant_condition_takes_one_side() -> None:
    def f(x: Any) -> Any:
        if x.shape[0] == 3:
            return x
        return undefined_name  # noqa: F821

    assert op_names(check(f, tensor(1, 2, 3))) == []


def test_rest_is_not_duplicated_behind_a_return() -> None:
    def f(x: Any) -> Any:
        if x[0] > 0:
            return x
        if x[1] > 0:
            return x * 2
        if x[2] > 0:
            return x * 3
        return ops.exp(x)

    assert op_names(check(f, tensor(-1, -2, -3))).count("exp") == 1


def test_scalars_are_selected() -> None:
    def f(x: Any) -> Any:
        k = 2.0 if x.sum() > 0 else 3.0
        return x * k

    names = op_names(check(f, tensor(1, 2, 3)))
    assert "if" not in names and "select" in names


def test_unbound_in_one_branch_is_an_error_only_when_read() -> None:
    def f(x: Any) -> Any:
        if x.sum() > 0:
            y = x
        return y

    with pytest.raises(UnboundNameError) as e:
        trace_function(f, (tensor(1.0),))
    assert "The local variable 'y' is not defined in false branch, but defined in true branch." in str(
        e.value
    )
    assert "return y" in str(e.value)
    assert isinstance(e.value, UnboundLocalError)


def test_conflicting_types_show_both_assignments() -> None:
    def f(x: Any) -> Any:
        if x.sum() > 0:
            y = x
        else:
            y = (x, x)
        return y

    with pytest.raises(BranchTypeError) as e:
        trace_function(f, (tensor(1.0, 2.0),))
    text = str(e.value)
    assert "'y' is Tensor f32[2] in the true branch and a tuple of 2 in the false branch" in text
    assert "y = x\n" in text and "y = (x, x)" in text and isinstance(e.value, TypeError)


def test_conflicting_dtypes() -> None:
    def f(x: Any) -> Any:
        y = x
        if x.sum() > 0:
            y = x.astype("float16")
        return y

    with pytest.raises(BranchTypeError, match="f16.*true branch.*f32"):
        trace_function(f, (tensor(1.0, 2.0),))


def test_conflicting_results() -> None:
    def f(x: Any) -> Any:
        if x.sum() > 0:
            return x
        return None

    with pytest.raises(BranchTypeError, match="what is returned is Tensor"):
        trace_function(f, (tensor(1.0, 2.0),))


def test_list_that_grows_on_one_side() -> None:
    def f(x: Any) -> Any:
        out = []
        if x.sum() > 0:
            out.append(x)
        return out

    with pytest.raises(BranchTypeError, match="list"):
        trace_function(f, (tensor(1.0, 2.0),))


def test_condition_of_several_elements() -> None:
    def f(x: Any) -> Any:
        if x > 0:
            return x
        return -x

    with pytest.raises(ValueError, match="ambiguous"):
        trace_function(f, (tensor(1.0, 2.0),))
    check(f, tensor(3.0))
