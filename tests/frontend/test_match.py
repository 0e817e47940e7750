"""`match`: every kind of pattern, on values that are known and on Tensors."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass
from enum import Enum
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

import graphcell as ms
from graphcell import Tensor, jit, nn, ops
from graphcell.errors import BranchTypeError, ConcretizationError, UnboundNameError
from tests.frontend.support import check, op_names, tensor


class Mode(Enum):
    DOUBLE = "double"
    NEGATE = "negate"


class Pair(NamedTuple):
    a: Any
    b: Any


@dataclass
class Scaled:
    factor: Any
    offset: Any = 0

    @property
    def total(self) -> Any:
        return self.factor + self.offset


class Same(Scaled):
    __match_args__ = ("offset",)


LIMITS = SimpleNamespace(low=1, high=SimpleNamespace(value=10))


# -- on values that are known ------------------------------------------------------------------------------------------
def literals(x: Any, k: Any) -> Any:
    match k:
        case 1:
            y = x + 1
        case -2 | 2.5 | 1 + 2j:
            y = x * 2
        case "name":
            y = x - 3
        case None:
            y = -x
        case True:
            return x, True
        case _:
            y = x
    return y, k


def values(x: Any, k: Any) -> Any:
    match k:
        case Mode.DOUBLE:
            return x * 2
        case Mode.NEGATE:
            return -x
        case LIMITS.low:
            return x + 1
        case LIMITS.high.value:
            return x + 2
    return x


def sequences(x: Any, k: Any) -> Any:
    match k:
        case []:
            return x, "empty"
        case [one]:
            return x * one
        case (1, [a, b]) | (2, [b, a]):
            return x * a - b
        case [1, *rest]:
            return x + sum(rest), rest
        case [*_, 7]:
            return x + 7
        case [first, *middle, last] if len(middle) == 2:
            return x * first + last, middle
        case [_, _]:
            return x - 2
        case _:
            return x, "other"


def mappings(x: Any, k: Any) -> Any:
    match k:
        case {"scale": s, "kind": "plain"}:
            return x * s
        case {"scale": (low, high), **others}:
            return x * low + high, others
        case {1: _, None: y}:
            return x + y
        case {}:
            return x, len(k)
    return x


def classes(x: Any, k: Any) -> Any:
    match k:
        case bool():
            return x, "bool"
        case int(n) | float(n):
            return x * n
        case str() as text:
            return x, text.upper()
        case Same(3):
            return x + 3
        case Scaled(1, offset=o):
            return x + o
        case Scaled(factor=f, total=t) if t > 10:
            return x * f + t
        case Pair(a, 0):
            return x + a
        case Scaled(missing=_):
            return x, "never"
        case dict() | list() as container:
            return x, len(container)
        case tuple((a, b)):
            return x * a + b
        case Scaled():
            return x, "scaled"
    return x


def names_stay(x: Any, k: Any) -> Any:
    n, other = 5, 6
    match k:
        case [n, 1]:
            pass
        case [_, other] if other > 3:
            pass
        case [n, other]:
            pass
    return x + n, other


def in_loops(x: Any, k: Any) -> Any:
    for part in k:
        match part:
            case "stop":
                break
            case "skip":
                continue
            case ("add", n):
                x = x + n
            case {"times": n}:
                while n > 1:
                    x = x * 2
                    n -= 1
            case _:
                return x, part
        x = x + 1
    else:
        return x, "all"
    return x


KNOWN: list[tuple[Any, list[Any]]] = [
    (literals, [1, 1.0, -2, 2.5, 1 + 2j, "name", None, True, False, 0, (1,)]),
    (values, [Mode.DOUBLE, Mode.NEGATE, 1, 10, 11, "double"]),
    (sequences, [[], (), [4], (1, [2, 3]), [2, (2, 3)], [1, 5, 6], (0, 7), (4, 5, 6, 3), [8, 9], "ab", 3, range(1, 4), deque([0, 7]), b"ab", {1: 2}]),
    (mappings, [{"scale": 3, "kind": "plain"}, {"scale": (2, 3), "kind": "x", "n": 1}, {1: 2, None: 3}, {}, {"a": 1}, [1], defaultdict(int, scale=3)]),
    (classes, [True, 3, 2.5, "text", Same(1, 3), Same(1, 4), Scaled(1, 2), Scaled(5, 6), Scaled(2), Pair(4, 0), Pair(4, 5), {"a": 1}, [1, 2], None]),
    (names_stay, [[2, 1], [2, 5], [2, 3], 7]),
    (in_loops, [["skip", ("add", 2), "stop"], [("add", 3), {"times": 3}], ["other"], []]),
]  # fmt: skip


@pytest.mark.parametrize(("function", "subject"), [(f, k) for f, subjects in KNOWN for k in subjects], ids=lambda v: getattr(v, "__name__", repr(v)))
def test_on_known_values(function: Any, subject: Any) -> None:
    traced = check(function, tensor(1.0, 2.0), subject)
    assert "if" not in op_names(traced)


# -- on Tensors --------------------------------------------------------------------------------------------------------
def of_a_tensor(x: Any) -> Any:
    match x.sum():
        case 0:
            y = x + 1
        case 3.0 | 4:
            y = x * 2
        case s if s > 100:
            y = x - s
        case _:
            y = x
    return y * 2


def returning(x: Any) -> Any:
    match x[0]:
        case 1 | 2:
            return x * 10
        case 3:
            x = x + 1
        case -1:
            return -x
    return x + 0.5


def of_several(x: Any) -> Any:
    match x[0], x[1], "k":
        case 1, 2, "k":
            return x
        case 1, y, "other":
            return x * 3 + y
        case (1, y, _) | (y, 1, _):
            return x * y
        case 2, y, "k" if y > 5:
            return x + y
        case [a, *rest]:
            return x + a + rest[0]


def inside_structures(x: Any) -> Any:
    match {"data": Scaled(x[0], x[1]), "n": [x[2], 3]}:
        case {"data": Scaled(1, o), "n": [0, 3]}:
            y = x + o
        case {"data": Scaled(total=3), "n": [n, _]}:
            y = x * n
        case {"data": Scaled(f)}:
            y = x - f
    return y


def about_tensors(x: Any) -> Any:
    match x:
        case []:
            return x, "a sequence"
        case None | True | "text":
            return x, "none of these"
        case Tensor(shape=(2,)):
            return x, "two"
        case Tensor(ndim=1, shape=[n]):
            return x * n, n


def numbers_that_vary(x: Any) -> Any:
    n, flag = 0, x[0] > 0 and x[1] > 0
    if x[0] > 1:
        n = 3
    match n:
        case 0:
            x = x + 1
        case int(m):
            x = x * m
    match bool(x.sum() > 8):
        case True:
            x = -x
        case False:
            x = x + 2
    match flag:
        case True:
            x = x * 100
    return x


def in_tensor_loops(x: Any) -> Any:
    i = 0
    while x.sum() < 50:
        i += 1
        match i % 3, x[0]:
            case 0, _:
                x = x * 2
            case 1, 1:
                x = x + 3
            case _, first if first > 20:
                break
            case k, _:
                x = x + k
    return x, i


def counted(x: Any) -> Any:
    for i in range(12):
        match i:
            case 2 | 5:
                x = x + 1
            case k if k > 8:
                x = x * 2
    return x


VECTORS = [(1.0, 2.0, 0.0), (-1.0, 0.5, 0.5), (3.0, 0.5, 0.5), (50.0, 60.0, 7.0), (2.0, 9.0, 1.0), (2.0, 1.0, 4.0), (1.0, 7.0, 1.0), (4.0, 1.0, 1.0)]


@pytest.mark.parametrize("function", [of_a_tensor, returning, of_several, inside_structures, numbers_that_vary, in_tensor_loops, counted])
def test_on_tensors(function: Any) -> None:
    for vector in VECTORS:
        check(function, tensor(*vector))


def test_what_a_tensor_is() -> None:
    check(about_tensors, tensor(1.0, 2.0))
    check(about_tensors, tensor(1.0, 2.0, 3.0))


def test_compiled_and_differentiated() -> None:
    @jit
    def net(x: Any, kind: str, k: Any) -> Any:
        match kind, k:
            case "power", 2:
                return (x * x).sum()
            case "power", n:
                return (x**n).sum()
            case _:
                return x.sum()

    x = Tensor(np.array([1.0, 2.0, 3.0], np.float32))
    for k, power in ((2, 2.0), (3, 3.0)):
        for exponent in (k, Tensor(k, ms.float32)):
            gradient = ms.grad(net)(x, "power", exponent)
            np.testing.assert_allclose(gradient.asnumpy(), power * np.array([1.0, 2.0, 3.0]) ** (power - 1), rtol=1e-5)
    np.testing.assert_array_equal(ms.grad(net)(x, "sum", 1).asnumpy(), 1)


def test_a_compiled_cell_notices_what_its_patterns_read() -> None:
    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.mode, self.sizes, self.settings = "double", {"n": 1}, Scaled(2)

        def construct(self, x: Any) -> Any:
            match self.mode, self.sizes, self.settings:
                case "double", {"n": 1}, Scaled(2):
                    return x * 2
                case "double", {"n": n}, Scaled(factor=f):
                    return x + n * f
                case _, {**rest}, _:
                    return x - len(rest)

    ms.set_context(mode=ms.GRAPH_MODE)
    net, x = Net(), Tensor([10.0])
    assert net(x).tolist() == [20.0]
    net.sizes = {"n": 3}
    assert net(x).tolist() == [16.0]
    net.settings.factor = 5
    assert net(x).tolist() == [25.0]
    net.sizes["n"] = 4
    assert net(x).tolist() == [30.0]
    net.mode = "other"
    assert net(x).tolist() == [9.0]


def test_a_nested_function_sees_what_a_pattern_binds() -> None:
    def outer(x: Any, k: Any) -> Any:
        match k:
            case [n, *rest]:
                return (lambda y: y * n + len(rest))(x)
        return x

    check(outer, tensor(1.0), [2, 3, 4])
    check(outer, tensor(1.0), 5)


def test_a_name_that_only_one_case_binds() -> None:
    @jit
    def net(x: Any) -> Any:
        match x:
            case 1:
                y = x * 2
        return y

    with pytest.raises(UnboundNameError, match="'y' is not defined in false branch"):
        net(Tensor(1.0))


def test_a_name_of_two_types() -> None:
    def net(x: Any, read: bool) -> Any:
        match x, x > 1:
            case (1, p) | (p, 1):
                return p if read else -x
        return x

    for value in (1.0, 2.0, 0.5):
        check(net, Tensor(value), False)
    with pytest.raises(BranchTypeError, match=r"the value is Tensor i1\[\] in the true branch and Tensor f32\[\] in the false branch") as e:
        jit(fullgraph=True)(net)(Tensor(1.0), True)
    assert "return p if read" in str(e.value)


def test_errors_show_the_pattern() -> None:
    @jit
    def of_many(x: Any) -> Any:
        match x:
            case 1:
                return x
        return -x

    with pytest.raises(ValueError, match="the truth value of a Tensor with 2 elements is ambiguous") as e:
        of_many(Tensor([1.0, 2.0]))
    assert "case 1:\n" in str(e.value) and "\n       |                  ^\n" in str(e.value)

    @jit
    def too_many(x: Any, k: Any) -> Any:
        match k:
            case Pair(_, _, _):
                return x
        return -x

    with pytest.raises(TypeError, match=r"Pair\(\) accepts 2 positional sub-patterns \(3 given\)"):
        too_many(Tensor(1.0), Pair(1, 2))

    @jit
    def twice(x: Any, k: Any) -> Any:
        match k:
            case Pair(_, a=1):
                return x
        return -x

    with pytest.raises(TypeError, match="multiple sub-patterns for attribute 'a'"):
        twice(Tensor(1.0), Pair(1, 2))

    @jit
    def no_class(x: Any, k: Any) -> Any:
        match k:
            case ops.relu():
                return x
        return -x

    with pytest.raises(TypeError, match="called match pattern must be a class"):
        no_class(Tensor(1.0), 1)

    @jit
    def one_key_twice(x: Any, k: Any) -> Any:
        match k:
            case {LIMITS.low: _, 1: _}:
                return x
        return -x

    with pytest.raises(ValueError, match="one key twice"):
        one_key_twice(Tensor(1.0), {1: 2})


def test_a_set_that_a_tensor_would_be_looked_up_in() -> None:
    @jit(fullgraph=True)
    def net(x: Any) -> Any:
        key = SimpleNamespace(value=0)
        if x > 0:
            key.value = 1
        match {0: x, 1: -x}:
            case {key.value: y}:
                return y

    with pytest.raises(ConcretizationError, match="a dict is asked for a number"):
        net(Tensor(1.0))
