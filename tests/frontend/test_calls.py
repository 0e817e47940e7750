"""Calls: which callables are interpreted, argument binding, methods, classes."""

# ruff: noqa: UP008, RUF015  (the functions are written to exercise syntax)
from __future__ import annotations

import functools
import operator
from dataclasses import dataclass
from typing import Any

import pytest

from graphcell import ops
from graphcell.context import config
from graphcell.errors import ArityError, UnsupportedSyntaxError
from graphcell.frontend import trace_function
from graphcell.tensor import Tensor
from tests.frontend.support import check, op_names, tensor


def choose(x: Any) -> Any:
    if x.sum() > 0:
        return x * 2
    return x - 1


class Base:
    scale = 3

    def __init__(self, offset: Any):
        self.offset = offset
        self.__hidden = 4

    def forward(self, x: Any) -> Any:
        if x.sum() > 0:
            return x + self.offset
        return x * self.scale

    @property
    def doubled(self) -> Any:
        return self.offset * 2

    @staticmethod
    def plain(x: Any) -> Any:
        return choose(x)

    @classmethod
    def scaled(cls, x: Any) -> Any:
        return x * cls.scale

    def hidden(self) -> Any:
        return self.__hidden

    def __call__(self, x: Any, times: int = 1) -> Any:
        for _ in range(times):
            x = self.forward(x)
        return x


class Derived(Base):
    def forward(self, x: Any) -> Any:
        return super().forward(x) + super(Derived, self).doubled

    @classmethod
    def scaled(cls, x: Any) -> Any:
        return super().scaled(x) + 1


@dataclass
class Options:
    width: int = 2
    scale: float = 0.5


def signature(a: Any, b: Any = 2, /, c: Any = 3, *rest: Any, d: Any, e: Any = 5, **others: Any) -> Any:
    return a, b, c, rest, d, e, others


@functools.lru_cache
def cached(x: Any) -> Any:
    return choose(x)


@functools.wraps(choose)
def wrapper(x: Any) -> Any:
    return choose(x) + 1


def all_kinds(x: Any) -> Any:
    o, d = Base(1.0), Derived(2.0)
    p = functools.partial(signature, x, d=4, e=6)
    method = d.forward
    return [
        choose(x), o.forward(x), d.forward(x), method(x), o(x), d(x, times=2), Base.plain(x), o.plain(x), Base.scaled(x), Derived.scaled(x),
        d.doubled, o.hidden(), wrapper(x), p(7, z=8), functools.reduce(lambda a, b: choose(a) + b, [x, x, 1.0]), cached(x),
        operator.add(x, 1), (lambda v: choose(v))(x), list(map(choose, [x, -x])), [f(x) for f in (choose, o, ops.exp)],
    ]  # fmt: skip


def bindings(x: Any) -> Any:
    pair, options = (x, 1), {"d": 2, "z": x}
    return (
        signature(1, d=x), signature(*pair, d=1), signature(1, 2, 3, 4, 5, d=x), signature(1, c=9, **options), signature(*pair, *pair, **options),
        signature(x, d=1, a=5),
    )  # fmt: skip


def instances(x: Any) -> Any:
    options = Options(width=3)
    return (
        x * options.scale + options.width,
        options == Options(3, 0.5),
        isinstance(options, Options),
        type(options).__name__,
    )


def dispatch_table(x: Any) -> Any:
    table = {"double": lambda v: v * 2, "choose": choose}
    return table["double"](x) + table["choose"](x)


def higher_order(x: Any) -> Any:
    def compose(*functions: Any) -> Any:
        return lambda v: functools.reduce(lambda acc, f: f(acc), functions, v)

    return compose(choose, lambda v: v + 1, choose)(x)


def containers_of_methods(x: Any) -> Any:
    values: list[Any] = []
    add = values.append
    add(x)
    add(1)
    values.insert(0, 5)
    values.reverse()
    last = values.pop()
    d = {"a": 1}
    d.update(b=x)
    d.setdefault("c", []).append(2)
    return values, last, d, d.get("zz", 3), sorted(d), list(d.items())[0]


def locals_and_globals(x: Any) -> Any:
    y = x * 2
    return sorted(locals()), "choose" in globals(), locals()["y"]


@pytest.mark.parametrize(
    "function",
    [all_kinds, bindings, instances, dispatch_table, higher_order, containers_of_methods, locals_and_globals],
    ids=lambda f: f.__name__,
)
@pytest.mark.parametrize("values", [(1.0, 2.0), (-1.0, -2.0)], ids=["positive", "negative"])
def test_call(function: Any, values: Any) -> None:
    check(function, tensor(*values))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: signature(), "signature() missing 1 required positional argument: 'a'"),
        (lambda x: signature(1), "signature() missing 1 required keyword-only argument: 'd'"),
        (lambda x: choose(), "choose() missing 1 required positional argument: 'x'"),
        (lambda x: choose(x, 1), "choose() takes 1 positional argument but 2 were given"),
        (lambda x: choose(y=x), "choose() got an unexpected keyword argument 'y'"),
        (lambda x: choose(x, x=x), "choose() got multiple values for argument 'x'"),
    ],
)
def test_wrong_arguments_have_pythons_messages(call: Any, message: str) -> None:
    x = tensor(1.0)
    with pytest.raises(TypeError) as python:
        call(x)
    with pytest.raises(ArityError) as mine:
        trace_function(call, (x,))
    assert mine.value.message == message and message.split("() ")[1] in str(python.value)


def test_positional_only_by_keyword() -> None:
    def f(a: Any, /) -> Any:
        return a

    with pytest.raises(ArityError, match="positional-only"):
        trace_function(lambda x: f(a=x), (tensor(1.0),))


def test_keyword_arguments_of_the_traced_function() -> None:
    def f(x: Any, y: Any = 2, *, z: Any) -> Any:
        return x * y + z

    traced = trace_function(f, (tensor(1.0),), {"z": tensor(3.0)})
    assert len(traced.graph.inputs) == 2


def test_lambdas_in_one_line() -> None:
    f, g = lambda x: x + 1, lambda x: x * 2
    h = lambda x: (lambda y: y - x)(x * 3)  # noqa: E731
    for function, want in ((f, 4.0), (g, 6.0), (h, 6.0)):
        traced = check(function, tensor(3.0))
        assert want is not None and traced.graph.nodes


def test_recursion_limit() -> None:
    def f(x: Any) -> Any:
        return f(x + 1)

    config.max_call_depth = 40
    with pytest.raises(UnsupportedSyntaxError, match="Exceed function call depth limit 40"):
        trace_function(f, (tensor(1.0),))


def test_deep_recursion_on_constants() -> None:
    def f(x: Any, n: int) -> Any:
        return x if n == 0 else f(x + 1, n - 1)

    traced = trace_function(lambda x: f(x, 900), (tensor(1.0),))
    assert op_names(traced).count("add") == 900


def test_tensors_made_inside_are_constants() -> None:
    def f(x: Any) -> Any:
        return x + Tensor([1.0, 2.0]) * 2

    assert not check(f, tensor(1.0, 2.0)).captured


def test_tensors_from_outside_are_captured() -> None:
    w = tensor(5.0, 6.0)

    def f(x: Any) -> Any:
        return x * w + w

    traced = check(f, tensor(1.0, 2.0))
    assert [t is w for t in traced.captured] == [True]


def test_condition_on_a_captured_tensor_is_not_constant() -> None:
    flag = Tensor(True)

    def f(x: Any) -> Any:
        if flag:
            return x * 2
        return x

    traced = check(f, tensor(1.0))
    assert {"if", "select"} & set(op_names(traced)) and traced.captured == [flag]


def test_spans_have_the_call_chain() -> None:
    def inner(v: Any) -> Any:
        return ops.exp(v)

    def f(x: Any) -> Any:
        return inner(x + 1)

    traced = check(f, tensor(1.0))
    span = next(n.span for n in traced.graph.nodes if n.op.name == "exp")
    assert span is not None and span.caller is not None
    assert span.source[span.column : span.end_column] == "ops.exp(v)" and span.function.endswith("inner")
    assert span.caller.source[span.caller.column : span.caller.end_column] == "inner(x + 1)"


class Vector:
    """Special methods with branches on Tensors."""

    def __init__(self, items: Any):
        self.items = items

    def __getitem__(self, k: int) -> Any:
        if self.items[k].sum() > 0:
            return self.items[k]
        return -self.items[k]

    def __setitem__(self, k: int, value: Any) -> None:
        self.items[k] = choose(value)

    def __add__(self, other: Any) -> Any:
        return Vector([choose(a) + b for a, b in zip(self.items, other.items)])


def test_special_methods_of_the_user() -> None:
    def f(x: Any) -> Any:
        v = Vector([x, -x])
        v[0] = x * 3
        w = v + v
        return w[0], w[1], v.items

    check(f, tensor(1.0, 2.0))
    check(f, tensor(-1.0, -2.0))
