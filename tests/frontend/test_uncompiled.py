"""Calls that ask for what a graph cannot know run as Python, with a warning; under `fullgraph` and STRICT they are errors."""

from __future__ import annotations

import random
import threading
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import graphcell as ms
from graphcell import Parameter, Tensor, jit, nn, ops
from graphcell.errors import BranchTypeError, ConcretizationError


@dataclass
class Output:
    values: Any
    total: Any


def grow(x: Any, n: Any) -> Any:
    i = Tensor(0)
    while i < n:
        x = ops.concat((x, x))
        i = i + 1
    return x


def collect(x: Any, n: Any) -> Any:
    found = []
    i = Tensor(0)
    while i < n:
        found.append(x * i)
        i = i + 1
    return found


def shorter(x: Any, n: Any) -> Any:
    if x.sum() > n:
        return x
    return x[:1]


def perhaps_nothing(x: Any, n: Any) -> Any:
    if x.sum() > n:
        return x
    return None


def a_word(x: Any, n: Any) -> Any:
    word = "large" if x.sum() > n else "small"
    return word


def by_numpy(x: Any, n: Any) -> Any:
    return Tensor(np.sort(x.asnumpy())[::-1].copy()) * n


def an_object(x: Any, n: Any) -> Any:
    found = Output(x * n, x.sum())
    return (found.values, found.total) if found is None else found.__class__(found.values + 1.0, found.total)


def a_string(x: Any, n: Any) -> Any:
    return f"{x} times {n}"


def filtered(x: Any, n: Any) -> Any:
    return [v * n for v in x if v > 1]


def selected(x: Any, n: Any) -> Any:
    return x[x > 1] * n


def known(y: Any) -> Any:
    """Tensors in a result as lists."""
    if isinstance(y, Output):
        return known(y.values), known(y.total)
    return [known(v) for v in y] if isinstance(y, list) else y.tolist() if isinstance(y, Tensor) else y


CASES: list[tuple[Any, Any]] = [
    (grow, [1.0, 2.0] * 8),
    (collect, [[0.0, 0.0], [1.0, 2.0], [2.0, 4.0]]),
    (shorter, [1.0]),
    (perhaps_nothing, None),
    (a_word, "small"),
    (by_numpy, [6.0, 3.0]),
    (an_object, ([4.0, 7.0], 3.0)),
    (a_string, "[1. 2.] times 3"),
    (filtered, [6.0]),
    (selected, [6.0]),
]


def told(caught: Iterable[warnings.WarningMessage]) -> list[warnings.WarningMessage]:
    """The warnings of graphcell; the collector may add some about other tests' files."""
    return [w for w in caught if "runs as Python" in str(w.message)]


@pytest.mark.parametrize(("function", "wanted"), CASES, ids=lambda x: getattr(x, "__name__", ""))
def test_runs_as_python(function: Any, wanted: Any) -> None:
    compiled = jit(function)
    with pytest.warns(RuntimeWarning, match=rf"{function.__name__}, and what calls it, runs as Python") as caught:
        assert known(compiled(Tensor([1.0, 2.0]), Tensor(3))) == wanted
    assert told(caught)[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        assert known(compiled(Tensor([1.0, 2.0]), Tensor(3))) == wanted  # known by now


@pytest.mark.parametrize("function", [f for f, _ in CASES], ids=lambda f: f.__name__)
def test_fullgraph_refuses(function: Any) -> None:
    with pytest.raises(ConcretizationError):
        jit(function, fullgraph=True)(Tensor([1.0, 2.0]), Tensor(3))


@pytest.mark.parametrize("how", ["context", "environment"])
@pytest.mark.filterwarnings("ignore:.*runs as Python:RuntimeWarning")
def test_strict_refuses_from_then_on(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled, x = jit(by_numpy), Tensor([1.0, 2.0])
    assert compiled(x, 1).tolist() == [2.0, 1.0]
    if how == "context":
        ms.set_context(jit_syntax_level=ms.STRICT)
    else:
        monkeypatch.setenv("MS_DEV_JIT_SYNTAX_LEVEL", "0")
    with pytest.raises(ConcretizationError):
        compiled(x, 1)
    monkeypatch.setenv("MS_DEV_JIT_SYNTAX_LEVEL", "2")
    assert compiled(x, 1).tolist() == [2.0, 1.0]


def test_types_that_differ_in_more_are_errors() -> None:
    """Python would go on there too, but MindSpore's message is what helps."""

    @jit
    def f(x: Any) -> Any:
        y = x
        if x.sum() > 0:
            y = x.astype("float16")
        return y

    @jit
    def g(x: Any) -> Any:
        return x if x.sum() > 0 else (x, x)

    for function in (f, g):
        with pytest.raises(BranchTypeError):
            function(Tensor([1.0]))


def test_the_line_is_named_once() -> None:
    @jit
    def f(x: Any) -> Any:
        return x.asnumpy()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for size in (1, 2, 3):
            f(Tensor(np.zeros(size)))
    (warning,) = told(caught)
    assert warning.filename == __file__ and "asnumpy" not in str(warning.message)


@pytest.mark.filterwarnings("ignore:.*runs as Python:RuntimeWarning")
def test_what_was_read_decides_how_long_that_holds() -> None:
    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.debug = True

        def construct(self, x: Any) -> Any:
            if self.debug:
                x = Tensor(x.asnumpy())
            return x * 2.0

    ms.set_context(mode=ms.GRAPH_MODE)
    net = Net()
    assert net(Tensor([1.0])).tolist() == [2.0] and not net.compiled
    net.debug = False
    assert net(Tensor([1.0])).tolist() == [2.0] and net.compiled
    net.debug = True
    assert net(Tensor([1.0])).tolist() == [2.0] and not net.compiled


class Shifted(nn.Cell):
    """Reads a Tensor, a buffer and a number, and asks for values."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.times = Tensor([1.0, 2.0]), 1
        self.register_buffer("shift", Tensor([0.5, 0.5]))

    def construct(self, x: Any) -> Any:
        return Tensor((x * self.scale + self.shift).asnumpy()[::-1].copy()) * self.times


@pytest.mark.filterwarnings("ignore:.*runs as Python:RuntimeWarning")
@pytest.mark.parametrize("change", ["a number", "a Tensor", "a buffer", "another Cell", "the dtype of a Tensor"])
def test_what_was_read_may_change(change: str) -> None:
    ms.set_context(mode=ms.GRAPH_MODE)
    net, x = Shifted(), Tensor([1.0, 1.0])
    assert net(x).tolist() == [2.5, 1.5]
    wanted = {"a number": [5.0, 3.0], "a Tensor": [8.5, 7.5], "a buffer": [4.0, 3.0], "another Cell": [2.5, 1.5], "the dtype of a Tensor": [4.5, 3.5]}
    if change == "a number":
        net.times = 2
    elif change == "a Tensor":
        net.scale = Tensor([7.0, 8.0])
    elif change == "a buffer":
        net.register_buffer("shift", Tensor([2.0, 2.0]))
    elif change == "another Cell":
        nn.ReLU().set_train()
    else:
        net.scale = Tensor([3, 4])
    for _ in range(2):
        assert net(x).tolist() == wanted[change]


@pytest.mark.filterwarnings("ignore:.*runs as Python:RuntimeWarning")
def test_what_is_called_is_compiled() -> None:
    traces = []

    @jit
    def inner(x: Any) -> Any:
        return ops.tanh(x) * 2.0

    @jit
    def outer(x: Any) -> Any:
        traces.append(1)
        return inner(x) + Tensor(np.sin(x.asnumpy()))

    x = np.array([0.5, -1.0], np.float32)
    np.testing.assert_allclose(outer(Tensor(x)).asnumpy(), np.tanh(x) * 2 + np.sin(x), rtol=1e-6)
    assert inner.is_compiled and not outer.is_compiled and traces == [1]
    with pytest.raises(RuntimeError, match="runs as Python"):
        outer.ir()
    gradient = ms.grad(outer)(Tensor(x))
    np.testing.assert_allclose(gradient.asnumpy(), 2 / np.cosh(x) ** 2, rtol=1e-5)


@pytest.mark.filterwarnings("ignore:.*runs as Python:RuntimeWarning")
def test_nothing_happens_twice() -> None:
    """Giving up undoes what was traced: attributes, Parameters, lists, and the random numbers that were drawn."""

    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.count = Parameter(Tensor(0), name="count", requires_grad=False)
            self.calls, self.seen = 0, []

        def construct(self, x: Any) -> Any:
            self.calls += 1
            self.seen.append(random.random())
            ops.assign_add(self.count, 1)
            noise = np.random.rand()
            return float(x.asnumpy().sum()) + noise, ops.rand(2)

    ms.set_context(mode=ms.GRAPH_MODE)

    def numbers() -> Any:
        net = Net()
        ms.set_seed(3)
        random.seed(3)
        found = [net(Tensor([1.0])) for _ in range(2)]
        assert net.calls == 2 and net.count.asnumpy() == 2
        return net.seen, [(a, b.tolist()) for a, b in found]

    ms.set_seed(3)
    random.seed(3)
    seen = [random.random() for _ in range(2)]
    noise = [1.0 + np.random.rand() for _ in range(2)]
    first = numbers()
    assert first[0] == seen and [a for a, _ in first[1]] == noise and numbers() == first


@pytest.mark.filterwarnings("ignore:.*runs as Python:RuntimeWarning")
def test_threads() -> None:
    compiled = jit(by_numpy)
    found: list[Any] = []

    def work() -> None:
        found.extend(compiled(Tensor([float(k), 2.0]), 1).tolist() for k in range(20))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert sorted(found) == sorted(sorted([float(k), 2.0], reverse=True) for k in range(20) for _ in range(3))


def test_errors_of_the_program_are_its_own() -> None:
    @jit
    def f(x: Any) -> Any:
        if x.asnumpy().sum() > 0:
            raise KeyError("positive")
        return x

    with pytest.warns(RuntimeWarning), pytest.raises(KeyError, match="positive"):
        f(Tensor([1.0]))
