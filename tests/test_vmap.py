"""`vmap`: against plain loops over the slices, in both modes; nested, with gradients; its errors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import graphcell as gc
from graphcell import Parameter, Tensor, nn, ops, vmap

X = np.arange(6, dtype=np.float32).reshape(2, 3)
Y = np.arange(1, 4, dtype=np.float32)


@pytest.fixture(autouse=True, params=[gc.PYNATIVE_MODE, gc.GRAPH_MODE], ids=["pynative", "graph"])
def mode(request: pytest.FixtureRequest) -> Iterator[None]:
    gc.set_context(mode=request.param)
    yield
    gc.set_context(mode=gc.PYNATIVE_MODE)


def near(got: Tensor, wanted: Any) -> None:
    np.testing.assert_allclose(got.asnumpy(), wanted, rtol=1e-6)


def affine(a: Tensor, b: Tensor) -> Tensor:
    return ops.relu(a * 2 - b)


def several(a: Tensor, b: Tensor) -> Any:
    return a.sum(), a * b


def squares(a: Tensor) -> Tensor:
    return (a * a).sum()


def test_axes_of_arguments_and_results() -> None:
    near(vmap(affine, (0, None))(Tensor(X), Tensor(Y)), np.maximum(2 * X - Y, 0))
    near(vmap(affine, (1, 0), -1)(Tensor(X), Tensor(Y)), np.maximum(2 * X - Y, 0))
    total, scaled = vmap(several, (-1, 0), (0, 1))(Tensor(X), Tensor(Y))
    near(total, X.sum(0))
    near(scaled, X * Y)


def test_nested_arguments() -> None:
    def combined(pair: Any, b: Tensor) -> Tensor:
        return pair[0] + pair[1] + b

    near(vmap(combined, ((0, 1), None))((Tensor(X), Tensor(X.T.copy())), Tensor(Y)), 2 * X + Y)


def test_control_flow_and_captured_tensors() -> None:
    weight = Parameter(Tensor(np.array([3.0], np.float32)), name="w")

    def steps(a: Tensor) -> Tensor:
        for _ in range(3):
            a = ops.select(a.sum() > 4, a / 2, a * weight)
        return a

    wanted = []
    for row in X:
        for _ in range(3):
            row = row / 2 if row.sum() > 4 else row * 3
        wanted.append(row)
    near(vmap(steps)(Tensor(X)), wanted)


def test_with_itself_and_with_gradients() -> None:
    near(vmap(vmap(lambda a, b: a * b, (None, 0)), (0, None))(Tensor(Y), Tensor(Y)), np.outer(Y, Y))
    near(vmap(gc.grad(squares))(Tensor(X)), 2 * X)

    def outer(x: Tensor) -> Tensor:
        return (vmap(squares)(x) * Tensor(np.array([1, 10], np.float32))).sum()

    near(gc.grad(outer)(Tensor(X)), 2 * X * np.array([[1], [10]]))


def test_a_cell_for_each_slice() -> None:
    cells = nn.CellList([nn.ReLU(), nn.Tanh()])
    near(vmap(cells)(Tensor(X - 4)), [np.maximum(X[0] - 4, 0), np.tanh(X[1] - 4)])
    near(vmap(cells, None)(Tensor(Y)), [Y, np.tanh(Y)])
    with pytest.raises(RuntimeError, match="axis_size"):
        vmap(cells, 1)(Tensor(X))


def test_one_loop_in_a_graph() -> None:
    f = gc.jit(lambda x: vmap(squares)(x))
    near(f(Tensor(X)), (X * X).sum(1))
    assert " for[" in f.ir()


ERRORS: list[tuple[Any, Any, str]] = [
    (lambda: vmap(squares, 2), (X,), r"axis: 2 in 'in_axes' is out of bounds for array of dimension \[-2,2\)"),
    (lambda: vmap(affine, (0,)), (X, Y), "equal to the number of arguments of 'fn': 2, but got size: 1"),
    (lambda: vmap(affine, (None, None)), (X, Y), "cannot be all None"),
    (lambda: vmap(affine, (0, 0)), (X, Y), "should be equal, but got 2 and 3"),
    (lambda: vmap(squares, "x"), (X,), "can only be of type Int or None"),
    (lambda: vmap(several, (0, None), (0,)), (X, Y), "number of results of 'fn': 2, but got size: 1"),
    (lambda: vmap(squares, 0, None), (X,), "cannot be a single None"),
    (lambda: vmap(squares, 0, 1), (X,), "axis: 1 in 'out_axes' is out of bounds"),
    (lambda: vmap(squares, 0, True), (X,), "'out_axes' can only be of type Int, but got True"),
    (lambda: vmap(squares), (3,), "must be a Tensor, but is int"),
    (lambda: vmap(lambda a: 3), (X,), "must return Tensors, but returns int"),
    (lambda: vmap(squares), (np.zeros((0, 2), np.float32),), "is empty"),
]  # fmt: skip


@pytest.mark.parametrize("make,args,text", ERRORS, ids=[text for _, _, text in ERRORS])
def test_errors(make: Any, args: Any, text: str) -> None:
    with pytest.raises(RuntimeError, match=text):
        make()(*[Tensor(a) if isinstance(a, np.ndarray) else a for a in args])


def test_what_is_no_function() -> None:
    with pytest.raises(RuntimeError, match="must be a function"):
        vmap(3)  # type: ignore[arg-type]


def nested_results(x: Tensor) -> tuple[Tensor, list[Tensor]]:
    return x.sum(), [x * 2.0, x + 1.0]


@pytest.mark.parametrize("mode", [gc.GRAPH_MODE, gc.PYNATIVE_MODE])
def test_results_may_be_nested(mode: int) -> None:
    gc.set_context(mode=mode)
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    total, (double, more) = vmap(nested_results, out_axes=(0, (1, 0)))(Tensor(x))
    np.testing.assert_array_equal(total.asnumpy(), x.sum(1))
    np.testing.assert_array_equal(double.asnumpy(), (2 * x).T)
    np.testing.assert_array_equal(more.asnumpy(), x + 1)
    with pytest.raises(RuntimeError, match="equal to the number of results of 'fn': 2, but got size: 1"):
        vmap(nested_results, out_axes=(0, (1,)))(Tensor(x))


def product(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum()


@pytest.mark.parametrize("mode", [gc.GRAPH_MODE, gc.PYNATIVE_MODE])
def test_gradients_of_each_slice(mode: int) -> None:
    gc.set_context(mode=mode)
    a, b = np.arange(2, dtype=np.float32), np.arange(6, dtype=np.float32).reshape(3, 2)
    value, (in_a, in_b) = vmap(gc.value_and_grad(product, (0, 1)), in_axes=(None, 0))(Tensor(a), Tensor(b))
    np.testing.assert_array_equal(value.asnumpy(), b @ a)
    np.testing.assert_array_equal(in_a.asnumpy(), b)
    np.testing.assert_array_equal(in_b.asnumpy(), np.tile(a, (3, 1)))


def test_one_result_with_an_axis_in_a_tuple() -> None:
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    np.testing.assert_array_equal(vmap(product, (None, 0), (0,))(Tensor(x[0]), Tensor(x)).asnumpy(), x @ x[0])
    np.testing.assert_array_equal(vmap(lambda row: row + 1, 0, (1,))(Tensor(x)).asnumpy(), (x + 1).T)


class Once(nn.Cell):
    def construct(self, x: Tensor) -> Tensor:
        return x * 2


class Twice(nn.Cell):
    def construct(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x, x


def test_cells_whose_results_differ() -> None:
    with pytest.raises(RuntimeError, match="nested in one way"):
        vmap(nn.CellList([Once(), Twice()]))(Tensor(np.ones((2, 3), np.float32)))
