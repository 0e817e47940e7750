"""call_with_bprop: gradients that the user gives, on the tape and in a graph. Expected numbers were recorded from MindSpore 2.10.0 (Cells
with the same `construct` and `bprop`), but for those that it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from graphcell import dtype as dt
from graphcell import ops
from graphcell.bprop import call_with_bprop
from graphcell.grad import grad, value_and_grad
from graphcell.ops.dispatch import Trace
from graphcell.parameter import Parameter
from graphcell.tensor import Tensor, state
from tests.helpers import in_graph, plain

X, Y = Tensor(3.0), Tensor(5.0)
W = Parameter(Tensor(2.0), name="w")


def custom(fn: Callable[..., Any], bprop: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: call_with_bprop(fn, bprop, *args)


product = custom(lambda x, y: x * y, lambda x, y, out, dout: (x * 100.0 * dout, y + dout))
square = custom(lambda x: x * x, lambda x, out, dout: x * 100.0 * dout)
two = custom(lambda x: (x * x, x + 1.0), lambda x, out, dout: (dout[0] * 10.0 + dout[1] * 1000.0 + out[0],))
scaled = custom(lambda x: x * W, lambda x, out, dout: (x * 7.0,))


@pytest.mark.parametrize(
    ("function", "args", "want"),
    [
        (grad(product, (0, 1)), (X, Y), (300.0, 6.0)),
        (grad(product), (X, Y), 300.0),
        (value_and_grad(square), (X,), (9.0, 300.0)),
        (grad(two), (X,), 1019.0),
        (grad(lambda x, y: product(x * 2.0, y) * W, (0, 1), [W]), (X, Y), ((2400.0, 7.0), (30.0,))),
        (grad(scaled, 0, [W]), (X,), (21.0, (0.0,))),  # what the function reads elsewhere has no gradient
        (grad(grad(product)), (X, Y), 100.0),  # the second order differentiates bprop
        (grad(lambda x: product(x, x)), (X,), 304.0),
        (grad(lambda x: custom(lambda x: x, lambda x, out, dout: (dout * 7.0,))(x) * x), (X,), 24.0),
        (two, (X,), (9.0, 4.0)),
    ],
)
def test_gradients(
    run: Callable[..., Any], function: Callable[..., Any], args: tuple[Any, ...], want: Any
) -> None:
    assert plain(run(function, *args)) == want


def test_unused_and_integer_outputs_have_zero_cotangents(run: Callable[..., Any]) -> None:
    def bprop(x: Any, out: Any, dout: Any) -> Any:
        assert dout[1].dtype is dt.int64 and dout[2].dtype is dt.float32
        return (dout[0] * 5.0 + dout[2] * 11.0 + ops.cast(dout[1], dt.float32),)

    fn = custom(lambda x: (x * 2.0, ops.cast(x, dt.int64), x * 3.0), bprop)
    assert plain(run(grad(lambda x: fn(x)[0]), X)) == 5.0


def test_structures_of_arguments_and_outputs(run: Callable[..., Any]) -> None:
    def bprop(pair: Any, k: Any, table: Any, out: Any, dout: Any) -> Any:
        return (dout["y"] * pair[1], dout["y"] * 3.0), None, {"a": dout["y"] * k}

    fn = custom(lambda pair, k, table: {"y": pair[0] * pair[1] * k + table["a"]}, bprop)
    got = run(grad(lambda x, y: fn((x, y), 4.0, {"a": x})["y"], (0, 1)), X, Y)
    assert plain(got) == (5.0 + 4.0, 3.0)


def test_none_and_numbers_as_gradients(run: Callable[..., Any]) -> None:
    fn = custom(lambda x, y: x * y, lambda x, y, out, dout: (None, 4.0))
    assert plain(run(grad(fn, (0, 1)), X, Y)) == (0.0, 4.0)


def test_a_forgotten_return_is_an_error(run: Callable[..., Any]) -> None:
    fn = custom(lambda x: x * 2.0, lambda x, out, dout: None)
    with pytest.raises(TypeError, match="returned None, but must return a tuple of gradients"):
        run(grad(fn), X)


def test_dtype_and_broadcast_shape_follow_the_input(run: Callable[..., Any]) -> None:
    fn = custom(lambda x, y: x * y, lambda x, y, out, dout: (ops.cast(y, dt.float64) * dout, x * dout))
    gx, gy = run(grad(fn, (0, 1)), X, Tensor([1.0, 2.0]))
    assert (plain(gx), gx.dtype, plain(gy)) == (
        3.0,
        dt.float32,
        [3.0, 3.0],
    )  # summed over what x was broadcast to
    wide = custom(lambda x: x.sum(), lambda x, out, dout: (dout * 5.0,))
    assert plain(run(grad(wide), Tensor([1.0, 2.0]))) == [5.0, 5.0]


def test_bprop_reads_parameters_and_second_order_reaches_them(run: Callable[..., Any]) -> None:
    fn = custom(lambda x: x * W, lambda x, out, dout: (x * x * W * dout,))
    assert plain(run(grad(fn), X)) == 18.0
    assert plain(run(grad(grad(fn), None, W), X)) == 9.0


def test_the_function_may_write(run: Callable[..., Any]) -> None:
    seen = Parameter(Tensor(0.0), name="seen")

    def forward(x: Any) -> Any:
        ops.assign(seen, seen + x)
        return x * seen

    fn = custom(forward, lambda x, out, dout: (out * dout,))
    assert plain(run(value_and_grad(fn), X)) == (9.0, 9.0)
    assert plain(seen) == 3.0


def test_neither_runs_more_than_once() -> None:
    calls: list[str] = []

    def forward(x: Any) -> Any:
        calls.append("forward")
        return x * x

    def bprop(x: Any, out: Any, dout: Any) -> Any:
        calls.append("bprop")
        return (x * dout,)

    fn = custom(forward, bprop)
    fn(X)
    assert calls == ["forward"]
    calls.clear()
    grad(fn)(X)
    assert calls == ["forward", "bprop"]


def test_in_a_graph_it_is_one_op_until_differentiated() -> None:
    builder = Trace("outer")
    x = builder.input(X.ir_type)
    with builder.active():
        square(Tensor.of_value(x))
    assert [n.op.name for n in builder.builder.nodes] == ["custom_gradient"]
    assert state.trace is None


@pytest.mark.parametrize(
    ("bprop", "error", "text"),
    [
        (
            lambda x, y, out, dout: (x,),
            RuntimeError,
            "must return one gradient for each of 2 inputs, but returned 1",
        ),
        (lambda x, y, out, dout: x, TypeError, "must return a tuple of gradients, but returned Tensor"),
        (lambda x, y, out, dout: ("s", y), TypeError, "gradient 0 must be a Tensor, but is str"),
        (
            lambda x, y, out, dout: ((x, y), None),
            TypeError,
            "gradients of weights must be a dict, tuple or list, but are NoneType",
        ),
        (lambda x, y, out, dout: ((x,), {W: y}), RuntimeError, "one gradient for each of 2 inputs, but returned 1"),
        (
            lambda x, y, out, dout: (x, ops.zeros((3, 2))),
            ValueError,
            r"gradient 1 has shape \(3, 2\), but the input has \(4, 2\)",
        ),
    ],
)
def test_errors(
    run: Callable[..., Any], bprop: Callable[..., Any], error: type[Exception], text: str
) -> None:
    fn = custom(lambda x, y: x * y.sum(), bprop)
    with pytest.raises(error, match=text):
        run(grad(fn, (0, 1)), X, Tensor(np.ones((4, 2), np.float32)))


def test_gradients_beyond_the_arguments_are_left_out(run: Callable[..., Any]) -> None:
    fn = custom(lambda x: x * x, lambda x, out, dout: (dout * 7.0, dout, "no gradient of anything"))
    assert plain(run(grad(fn), X)) == 7.0


@pytest.mark.slow
@pytest.mark.parametrize(
    "weights",
    [lambda dout: ({W: dout * 100.0},), lambda dout: ({},), lambda dout: ((dout * 100.0,),), lambda dout: ([dout],), lambda dout: (), lambda dout: ({W: 1}, dout)],
)
@pytest.mark.parametrize("kind", [tuple, list])
def test_gradients_in_two_parts(run: Callable[..., Any], weights: Callable[[Any], Any], kind: type) -> None:
    """Those of the inputs, then those of weights, which stay without."""
    one = custom(lambda x: x * W, lambda x, out, dout: (kind((dout * 10.0,)), *weights(dout)))
    both = custom(lambda x, y: x * W * y, lambda x, y, out, dout: (kind((dout * 10.0, None)), *weights(dout)))
    assert plain(run(grad(one, 0, [W]), X)) == (10.0, (0.0,))
    assert plain(run(grad(lambda x: one(x * W), 0, [W]), X)) == (20.0, (30.0,))
    assert plain(run(grad(both, (0, 1), [W]), X, Y)) == ((10.0, 0.0), (0.0,))


def test_gradients_in_two_parts_of_nested_inputs(run: Callable[..., Any]) -> None:
    def pair(bprop: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x, y: call_with_bprop(lambda p: p[0] * p[1], bprop, (x, y))

    for gradients in (
        lambda p, out, dout: ((dout * 7.0, dout * 8.0),),
        lambda p, out, dout: ((dout * 7.0, dout * 8.0), {W: dout}),
        lambda p, out, dout: (((dout * 7.0, dout * 8.0),), {W: dout}),
    ):
        assert plain(run(grad(pair(gradients), (0, 1)), X, Y)) == (7.0, 8.0)


def test_arguments_by_keyword_come_last(run: Callable[..., Any]) -> None:
    def fn(x: Any, *, k: Any, n: int) -> Any:
        return x * k + n

    def bprop(x: Any, k: Any, n: int, out: Any, dout: Any) -> Any:
        return dout * k * 10.0, dout * x * 100.0, 0

    def call(x: Any, y: Any) -> Any:
        return call_with_bprop(fn, bprop, x, k=y, n=4)

    assert plain(run(call, X, Y)) == 19.0
    assert plain(run(grad(call, (0, 1)), X, Y)) == (50.0, 300.0)


def test_writing_in_bprop_is_refused_in_a_graph() -> None:
    seen = Parameter(Tensor(0.0), name="seen")

    def bprop(x: Any, out: Any, dout: Any) -> Any:
        ops.assign(seen, x)
        return (dout,)

    fn = custom(lambda x: x * x, bprop)
    grad(fn)(X)
    assert plain(seen) == 3.0
    with pytest.raises(NotImplementedError, match="changes a Parameter"):
        in_graph(grad(fn), X)
