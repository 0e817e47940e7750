"""`WhileLoop`, `ForiLoop` and `Scan`: values of MindSpore 2.10, eagerly and in graphs."""

from __future__ import annotations

from typing import Any

import pytest

import graphcell as ms
from graphcell import Tensor, nn, ops
from graphcell.jit import jit


def doubled(x: Any) -> Any:
    return x * 2.0


def small(x: Any) -> Any:
    return x.sum() < 50.0


def add_index(i: Any, x: Any) -> Any:
    return x + i


def accumulate(carry: Any, x: Any) -> Any:
    return carry + x, carry * x


def loops(x: Any) -> Any:
    return (
        ops.WhileLoop()(small, doubled, x),
        ops.ForiLoop()(0, 4, add_index, x),
        ops.Scan()(accumulate, x, [x, x * 2.0]),
    )


class Net(nn.Cell):
    def construct(self, x: Any) -> Any:
        return loops(x)


@pytest.mark.parametrize("mode", [ms.PYNATIVE_MODE, ms.GRAPH_MODE])
def test_values(mode: int) -> None:
    ms.set_context(mode=mode)
    for function in (loops, Net(), jit(loops)):
        a, b, (carry, ys) = function(Tensor([1.0, 2.0]))
        assert a.tolist() == [32.0, 64.0] and b.tolist() == [7.0, 8.0]
        assert carry.tolist() == [4.0, 8.0] and [y.tolist() for y in ys] == [[1.0, 4.0], [4.0, 16.0]]


@pytest.mark.parametrize("mode", [ms.PYNATIVE_MODE, ms.GRAPH_MODE])
def test_gradients(mode: int) -> None:
    ms.set_context(mode=mode)
    x = Tensor([1.0, 2.0])
    assert ms.grad(lambda x: ops.WhileLoop()(small, doubled, x).sum())(x).tolist() == [32.0, 32.0]
    assert ms.grad(lambda x: ops.ForiLoop()(0, 3, lambda i, v: v * x, x).sum())(x).tolist() == [4.0, 32.0]
    assert ms.grad(lambda x: ops.Scan()(accumulate, x, [x, x])[1][1].sum())(x).tolist() == [4.0, 8.0]


def test_a_loop_that_a_tensor_decides_on_is_one_op() -> None:
    @jit
    def f(x: Any, n: Any) -> Any:
        return ops.WhileLoop()(small, doubled, x), ops.ForiLoop()(0, n, add_index, x)

    a, b = f(Tensor([1.0, 2.0]), Tensor(4))
    assert a.tolist() == [32.0, 64.0] and b.tolist() == [7.0, 8.0] and f.ir().count("while") >= 2
    assert f(Tensor([1.0, 2.0]), Tensor(2))[1].tolist() == [2.0, 3.0]


def test_numbers_and_no_xs() -> None:
    assert ops.WhileLoop()(lambda x: x < 100, lambda x: x + 1, 10) == 100
    assert ops.ForiLoop()(0, 4, lambda i, x: i + x, 0) == 6
    assert ops.Scan()(lambda c, x: (c + 1, c), 0, None, 3) == (3, [0, 1, 2])


@pytest.mark.parametrize(
    "call",
    [
        lambda: ops.WhileLoop()(3, doubled, 1),
        lambda: ops.WhileLoop()(small, None, 1),
        lambda: ops.ForiLoop()(0.5, 3, add_index, 1),
        lambda: ops.ForiLoop()(0, 3, 7, 1),
        lambda: ops.Scan()(accumulate, 1, None),
    ],
)
def test_what_is_refused(call: Any) -> None:
    with pytest.raises(TypeError):
        call()
