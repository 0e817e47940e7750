"""Gradients through control flow, and of and inside compiled functions; expected numbers are closed forms, and what Python computes."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from graphcell import dtype as dt
from graphcell.context import GRAPH_MODE, config
from graphcell.grad import grad, value_and_grad
from graphcell.jit import jit
from graphcell.tensor import Tensor
from tests.differentiated import B, W, affine, product, square
from tests.helpers import plain

X, Y = Tensor(3.0), Tensor(5.0)
V = Tensor([1.0, 2.0])


# -- control flow --------------------------------------------------------------------------------------------------------
def test_branches_on_the_data(run: Callable[..., Any]) -> None:
    def fn(x: Any, y: Any) -> Any:
        if x > y:
            z = x * x * y
        elif x == y:
            return x * 7.0
        else:
            z = x + y * y
        return z * 2.0

    g = grad(fn, (0, 1))
    assert plain(run(g, X, Y)) == (2.0, 20.0)
    assert plain(run(g, Y, X)) == (60.0, 50.0)
    assert plain(run(g, X, Tensor(3.0))) == (7.0, 0.0)
    assert plain(run(grad(grad(fn)), Y, X)) == 12.0


def test_loops(run: Callable[..., Any]) -> None:
    def power(x: Any, n: Any) -> Any:
        y = x
        i = n * 0 + 1
        while i < n:
            y = y * x
            i = i + 1
        return y

    assert plain(run(grad(power), X, Tensor(4))) == 108.0
    assert plain(run(grad(power), X, Tensor(1))) == 1.0
    assert plain(run(grad(grad(power)), X, Tensor(4))) == 108.0

    def scan(x: Any, w: Any) -> Any:
        h = x * 0.0
        for i in range(20):
            h = h * w + x * (0.5 if i % 2 else 1.0)
        return h

    def reference(x: float, w: float) -> tuple[float, float, float]:
        h = dx = dw = 0.0
        for i in range(20):
            k = 0.5 if i % 2 else 1.0
            h, dx, dw = h * w + x * k, dx * w + k, dw * w + h
        return h, dx, dw

    value, (dx, dw) = run(value_and_grad(scan, (0, 1)), X, Tensor(0.5))
    np.testing.assert_allclose([float(value), float(dx), float(dw)], reference(3.0, 0.5), rtol=1e-6)


def test_the_tutorial_loop_with_integers(run: Callable[..., Any]) -> None:
    """A loop that adds x * y ten times, on integers: 30, and (30, 10) for the gradients."""

    def fn(x: Any, y: Any) -> Any:
        out, i = Tensor(0, dt.int32), Tensor(0, dt.int32)
        while i < 10:
            out = x * y + out
            i = i + 1
        return out

    value, (gx, gy) = run(value_and_grad(fn, (0, 1)), Tensor(1, dt.int32), Tensor(3, dt.int32))
    assert (plain(value), plain(gx), plain(gy)) == (30, 30, 10)
    assert (gx.dtype, gy.dtype) == (dt.int32, dt.int32)


def test_gradients_inside_branches_and_loops(run: Callable[..., Any]) -> None:
    """Newton's method for the square root of 5, with the slope by grad."""

    def fn(x: Any) -> Any:
        def f(x: Any) -> Any:
            return x * x - 5.0

        slope = grad(f)
        for _ in range(6):
            x = x - f(x) / slope(x)
        if x > 2.0:
            x = x + slope(x)
        return x

    np.testing.assert_allclose(float(run(fn, Y)), 3 * np.sqrt(5.0), rtol=1e-6)


# -- compiled functions under the tape -----------------------------------------------------------------------------------
def test_a_compiled_function_is_differentiated() -> None:
    compiled = jit(product)
    assert plain(grad(compiled, (0, 1))(X, Y)) == (30.0, 9.0)
    assert plain(grad(lambda x, y: compiled(x, y) * x, (0, 1))(X, Y)) == (135.0, 27.0)
    assert plain(grad(grad(lambda x, y: compiled(x, y) * x), (0, 1))(X, Y)) == (90.0, 27.0)
    assert plain(value_and_grad(jit(affine), 0, [W, B])(X)) == (7.0, (2.0, (3.0, 1.0)))
    assert plain(grad(grad(grad(jit(lambda x: x * x * x * x))))(X)) == 72.0


def test_a_gradient_inside_a_compiled_function_inside_a_gradient() -> None:
    slope = jit(lambda x, y: grad(product)(x, y) * y)
    assert plain(grad(slope, (0, 1))(X, Y)) == (50.0, 60.0)
    assert plain(grad(grad(slope, 1), 1)(X, Y)) == 12.0


def test_a_compiled_function_with_control_flow_is_differentiated() -> None:
    @jit
    def power(x: Any, n: Any) -> Any:
        y = x
        i = n * 0 + 1
        while i < n:
            y = y * x
            i = i + 1
        if y > 50.0:
            y = y * 2.0
        return y

    assert plain(grad(power)(X, Tensor(4))) == 216.0
    assert plain(grad(power)(X, Tensor(2))) == 6.0
    assert plain(grad(grad(power))(X, Tensor(4))) == 216.0


def test_in_graph_mode_the_gradient_function_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("graphcell.jit")  # the package has the function of that name
    config.mode = GRAPH_MODE
    traced: list[Any] = []
    trace_function = module.trace_function

    def counting(*args: Any) -> Any:
        traced.append(args)
        return trace_function(*args)

    monkeypatch.setattr(module, "trace_function", counting)
    g = grad(square)
    assert [plain(g(x)) for x in (X, Y, X)] == [6.0, 10.0, 6.0]
    assert len(traced) == 1
    assert plain(g(V)) == [2.0, 4.0]  # another shape
    assert len(traced) == 2
