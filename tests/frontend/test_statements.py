"""Statements other than branches and loops."""

# ruff: noqa: B018, F842, UP031, UP032  (the functions are written to exercise syntax)
from __future__ import annotations

import contextlib
import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest

from graphcell import ops
from graphcell.errors import ConcretizationError, UnsupportedSyntaxError
from graphcell.frontend import trace_function
from graphcell.grad import grad
from graphcell.jit import jit
from tests.frontend.support import check, run_traced, tensor

COUNTER = 0


@dataclasses.dataclass(frozen=True)
class Frozen:
    field: Any


class Manager:
    """Counts entries and exits; swallows KeyError."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def __enter__(self) -> Manager:
        self.log.append("in")
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> bool:
        self.log.append("out" if kind is None else kind.__name__)
        return kind is KeyError


def assignments(x: Any) -> Any:
    a = b = x
    c, (d, e) = 1, (x, 2)
    [f, g] = [3, 4]
    h: Any = x * 2
    i: int
    a = a + 1
    return a, b, c, d, e, f, g, h


def augmented(x: Any) -> Any:
    x += 1
    x -= 2
    x *= 3
    x /= 4
    x **= 2
    n = 7
    n //= 2
    n <<= 2
    n |= 1
    n %= 5
    s = "a"
    s += "b"
    lst = [1]
    alias = lst
    lst += [2]
    return x, n, s, lst, alias


def subscripts(x: Any) -> Any:
    d = {}
    d["a"] = x
    d["b"] = d["a"] + 1
    lst = [0, 1, 2, 3]
    lst[1] = x
    lst[2:] = [5, 6, 7]
    lst[0] += 10
    del d["b"], lst[-1]
    d["c"], lst[3] = 1, 2
    return d, lst


def tensor_items(x: Any) -> Any:
    y = x * 1
    y[0] = 5.0
    y[1:] = y[:2]
    y[2] += 3
    return y, x


def attributes(x: Any) -> Any:
    o = SimpleNamespace(a=1)
    o.b = x
    o.a += 2
    o.b *= 2
    del o.a
    return o.b, hasattr(o, "a"), getattr(o, "z", 7)


def deleted(x: Any) -> Any:
    y = x
    del y
    y = x + 1
    return y


def nested_functions(x: Any) -> Any:
    def outer(a: Any, b: Any = 2) -> Any:
        def inner(c: Any) -> Any:
            return a * c + b

        return inner

    k = 10
    f = outer(x)
    k = 20

    def late() -> Any:
        return k

    g = lambda v, *rest, scale=3: v * scale + len(rest)  # noqa: E731
    return f(3), late(), g(x), g(x, 1, 2, scale=4)


def nonlocal_and_global(x: Any) -> Any:
    global COUNTER
    n = 0

    def step() -> None:
        nonlocal n, x
        n += 1
        x = x + n

    step()
    step()
    return x, n


def counters(x: Any) -> Any:
    def make() -> Any:
        count = 0

        def step() -> int:
            nonlocal count
            count += 1
            return count

        return step

    a, b = make(), make()
    return [a(), a(), b(), a()], x


def decorated(x: Any) -> Any:
    def twice(f: Any) -> Any:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return f(f(*args, **kwargs))

        return wrapper

    @twice
    @twice
    def step(v: Any) -> Any:
        if v.sum() > 100:
            return v
        return v * 2

    return step(x)


def with_statement(x: Any) -> Any:
    m = Manager()
    with m as inner, contextlib.suppress(ValueError):
        x = x + 1
        assert inner is m
    with m:
        raise KeyError("swallowed")
    return x, m.log


def with_return(x: Any) -> Any:
    m = Manager()
    for _ in range(3):
        with m:
            x = x + 1
            if len(m.log) > 2:
                break
    with m:
        return x, m.log


def with_tensor_return(x: Any) -> Any:
    m = Manager()
    with m:
        if x.sum() > 10:
            return x
        x = x * 2
    return x, len(m.log)


def try_statement(x: Any) -> Any:
    log = []
    try:
        raise ValueError("a")
    except (KeyError, ValueError) as e:
        log.append(str(e))
    else:
        log.append("else")
    finally:
        log.append("finally")
    try:
        y = x + 1
    except ValueError:
        y = x
    else:
        log.append("else")
    try:
        try:
            {}["k"]
        finally:
            log.append("inner")
    except KeyError:
        log.append("key")
    return y, log


def try_return(x: Any) -> Any:
    def f() -> Any:
        try:
            return x
        finally:
            x.shape

    def g() -> Any:
        for k in range(3):
            try:
                if k == 1:
                    continue
                if k == 2:
                    break
                int("z")
            except ValueError:
                pass
        return k

    return f(), g()


def reraised(x: Any) -> Any:
    try:
        try:
            raise KeyError("k")
        except KeyError:
            raise
    except LookupError as e:
        return x, type(e).__name__


def refused_assignment(x: Any) -> Any:
    frozen = Frozen(x)
    try:
        frozen.field = 1  # type: ignore[misc]
    except AttributeError as e:
        return frozen.field * 2, str(e)
    return None


def imports(x: Any) -> Any:
    import math
    import os.path as p
    from math import pi as half_turn

    return x * math.floor(half_turn), p.basename("a/b")


def loop_else_constants(x: Any) -> Any:
    for k in [1, 2, 3]:
        if k == 2:
            break
    else:
        k = 100
    while k < 5:
        k += 1
    else:
        k += 10
    return x, k


def asserts(x: Any) -> Any:
    assert x.ndim == 1, "must be a vector"
    assert True
    return x


def docstring_and_ellipsis(x: Any) -> Any:
    """A docstring."""
    ...
    return x


STATEMENTS = [
    assignments, augmented, subscripts, tensor_items, attributes, deleted, nested_functions, nonlocal_and_global, counters, decorated, with_statement,
    with_return, try_statement, try_return, reraised, refused_assignment, imports, loop_else_constants, asserts, docstring_and_ellipsis,
]  # fmt: skip


@pytest.mark.parametrize("function", STATEMENTS, ids=lambda f: f.__name__)
def test_statement(function: Any) -> None:
    check(function, tensor(1.0, 2.0, 3.0))
    check(function, tensor(100.0, -2.0, 30.0))


def test_return_that_a_tensor_decides_on_inside_with() -> None:
    def f(x: Any) -> Any:
        m = Manager()
        with m:
            if x.sum() > 10:
                return x
            x = x * 2
        return x + len(m.log)

    check(f, tensor(1.0, 2.0))
    check(f, tensor(10.0, 2.0))


def test_no_return_gives_none() -> None:
    def f(x: Any) -> Any:
        x + 1

    assert check(f, tensor(1.0)).result.build([]) is None


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("class A:\n        pass", "a class definition"),
        ("class A(Exception):\n        pass", "move the class to the top of the module"),
        ("try:\n        pass\n    except* ValueError:\n        pass", "except*"),
        ("async def g():\n        pass", "async def"),
        ("y = [(yield k) for k in ()]" if False else "eval('1')", "eval"),
        ("exec('1')", "exec"),
    ],
)
def test_unsupported_syntax(tmp_path: Any, source: str, what: str) -> None:
    path = tmp_path / "program.py"
    path.write_text(f"def f(x):\n    {source}\n    return x\n")
    namespace: dict[str, Any] = {}
    exec(compile(path.read_text(), str(path), "exec"), namespace)
    with pytest.raises(UnsupportedSyntaxError) as e:
        trace_function(namespace["f"], (tensor(1.0),))
    text = str(e.value)
    assert what in text and "program.py:2:" in text and "^" in text and "hint:" in text
    assert isinstance(e.value, RuntimeError)


def test_generators_and_coroutines_are_refused() -> None:
    def gen(x: Any) -> Any:
        yield x

    async def co(x: Any) -> Any:
        return x

    for f in (gen, co):
        with pytest.raises(UnsupportedSyntaxError, match="cannot be compiled"):
            trace_function(f, (tensor(1.0),))


def test_generator_of_the_user_runs_as_it_is() -> None:
    def rows(x: Any) -> Any:
        for k in range(x.shape[0]):
            yield x[k] * k

    def f(x: Any) -> Any:
        total = x * 0
        for row in rows(x):
            total = total + row
        return total

    check(f, tensor(1.0, 2.0))


def test_iterators_that_are_made_where_they_are_advanced() -> None:
    def count(x: Any) -> Any:
        yield from (x, x * 2, x * 3)

    def f(x: Any) -> Any:
        if x.sum() > 2:
            made, pair = count(x), iter((x, x * x))
            next(made)
            return next(made) + next(pair) + next(pair)
        return x

    check(f, tensor(1.0, 2.0))
    check(f, tensor(1.0, 1.0))
    assert jit(grad(f))(tensor(1.0, 2.0)).asnumpy().tolist() == [5, 7]


def test_effects_are_ops(capsys: pytest.CaptureFixture[str]) -> None:
    def f(x: Any) -> Any:
        print("start", x)
        if x.sum() > 0:
            print("positive", 3)
        print(f"sum {x.sum()} of {x.shape}")
        print("a", "b", sep="-", end="!\n")
        return x

    traced = trace_function(f, (tensor(1.0, 2.0),))
    assert capsys.readouterr().out == ""
    run_traced(traced, (tensor(1.0, 2.0),))
    assert capsys.readouterr().out.splitlines() == [
        "start",
        "Tensor(shape=[2], dtype=Float32, value=[ 1.00000000e+00  2.00000000e+00])",
        "positive",
        "3",
        "sum 3.0 of (2,)",
        "a-b!",
    ]
    run_traced(traced, (tensor(-1.0, -2.0),))
    assert "positive" not in capsys.readouterr().out


def test_print_forms_are_mindspores(capsys: pytest.CaptureFixture[str]) -> None:
    def f(x: Any) -> None:
        print(x.reshape((1, 3)))
        print(x.astype("int32"))
        print(x > 1)
        print((x > 1).astype("int32").sum())
        print(x.sum())
        print(ops.stack([x, x * 1000.5]))
        print(x.astype("float16"))
        print((x, (1, x.sum())))
        print(x.shape, (2, 3), [4, 5], (1.5, 2.5))
        print(True, 1 / 3, 1e10, 2.0, None)
        print(("a", (6, True)), [])
        print()
        print("fmt {}".format(x[0]), "%s and %d" % (x[1], 2), sep=" ")

    run_traced(trace_function(f, (tensor(1.0, 2.0, 3.0),)), (tensor(1.0, 2.0, 3.0),))
    want = """\
Tensor(shape=[1, 3], dtype=Float32, value=
[[ 1.00000000e+00  2.00000000e+00  3.00000000e+00]])
Tensor(shape=[3], dtype=Int32, value=[1 2 3])
Tensor(shape=[3], dtype=Bool, value=[False  True  True])
2
6
Tensor(shape=[2, 3], dtype=Float32, value=
[[ 1.00000000e+00  2.00000000e+00  3.00000000e+00]
 [ 1.00050000e+03  2.00100000e+03  3.00150000e+03]])
Tensor(shape=[3], dtype=Float16, value=[ 1.0000e+00  2.0000e+00  3.0000e+00])
Tensor(shape=[3], dtype=Float32, value=[ 1.00000000e+00  2.00000000e+00  3.00000000e+00])
1
6
(3)
(2, 3)
(4, 5)
(1.5, 2.5)
1
0.333333
1e+10
2
None
a
6
1
[]

fmt 1.0 2.0 and 2
"""
    assert capsys.readouterr().out == want


def test_asserts_and_raises_that_tensors_decide_on() -> None:
    def f(x: Any) -> Any:
        assert x.sum() < 100, f"sum is {x.sum()}"
        if x[0] < 0:
            raise ValueError("negative", x[0])
        return x * 2

    traced = trace_function(f, (tensor(1.0, 2.0),))
    assert run_traced(traced, (tensor(1.0, 2.0),)).asnumpy().tolist() == [2, 4]
    with pytest.raises(AssertionError, match="sum is 102"):
        run_traced(traced, (tensor(100.0, 2.0),))
    with pytest.raises(ValueError, match="negative"):
        run_traced(traced, (tensor(-1.0, 2.0),))


def test_what_is_raised_while_a_graph_runs_shows_the_line_but_not_the_first_call() -> None:
    def check_sum(x: Any) -> None:
        assert x.sum() < 100, "large"

    def f(x: Any) -> Any:
        check_sum(x)
        if x[0] < 0:
            raise ValueError("negative", x[0])
        return x * 2

    g = jit(f)
    g(tensor(1.0, 2.0))
    for first, error, lines in (
        (100.0, AssertionError, ('assert x.sum() < 100, "large"', "check_sum(x)")),
        (-1.0, ValueError, ('raise ValueError("negative", x[0])',)),
    ):
        with pytest.raises(error) as e:
            g(tensor(first, 2.0))
        (note,) = e.value.__notes__
        assert all(line in note for line in lines) and "^^^" in note and "g(tensor(" not in note


def test_raise_in_an_inner_function_and_a_loop() -> None:
    def checked(v: Any) -> Any:
        if v.sum() > 100:
            raise OverflowError("too large")
        return v

    def f(x: Any) -> Any:
        while x.sum() < 40:
            x = checked(x * 3)
        return x

    traced = trace_function(f, (tensor(1.0),))
    assert run_traced(traced, (tensor(1.0),)).asnumpy().tolist() == [81.0]
    with pytest.raises(OverflowError):
        run_traced(traced, (tensor(39.0),))


def test_raise_that_a_tensor_decides_on_cannot_be_caught() -> None:
    def f(x: Any) -> Any:
        try:
            if x.sum() > 0:
                raise ValueError("x")
        except ValueError:
            return x
        return -x

    with pytest.raises(UnsupportedSyntaxError, match="cannot be caught"):
        trace_function(f, (tensor(1.0),))


def test_raise_and_catch_inside_a_branch() -> None:
    def f(x: Any) -> Any:
        if x.sum() > 0:
            try:
                raise ValueError("x")
            except ValueError:
                x = x + 1
        return x

    check(f, tensor(1.0))


def test_raise_with_a_tensor_happens_when_the_graph_runs() -> None:
    def f(x: Any) -> Any:
        raise KeyError(f"value {x.sum()}")

    traced = trace_function(f, (tensor(1.0),))
    with pytest.raises(KeyError) as e:
        run_traced(traced, (tensor(2.0),))
    assert e.value.args == ("value 2.0",)


def test_errors_of_compilation_cannot_be_caught_inside() -> None:
    def f(x: Any) -> Any:
        try:
            return x.asnumpy()
        except RuntimeError:
            return x

    with pytest.raises(ConcretizationError):
        trace_function(f, (tensor(1.0),))
