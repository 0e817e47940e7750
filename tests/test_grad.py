"""grad, value_and_grad, get_grad, GradOperation: MindSpore 2.10's structures, on the tape and inside a graph.

The expected structures were recorded from MindSpore 2.10.0 (CPU) with the same functions and numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from graphcell import context, ops
from graphcell import dtype as dt
from graphcell.errors import GraphcellError, NoGradientError
from graphcell.grad import GradOperation, get_grad, grad, value_and_grad
from graphcell.ir.graph import Graph
from graphcell.jit import jit
from graphcell.ops.arithmetic import StopGradient
from graphcell.ops.control import GraphCall
from graphcell.ops.dispatch import apply1
from graphcell.parameter import Parameter, ParameterTuple
from graphcell.tensor import Tensor
from tests.differentiated import B, W, affine, product, square, times
from tests.helpers import in_graph, plain

X, Y = Tensor(3.0), Tensor(5.0)
V = Tensor([1.0, 2.0])
N = Tensor([1, 2], dt.int32)
FROZEN = Parameter(Tensor(4.0), name="frozen", requires_grad=False)


def affine2(x: Any, y: Any) -> Any:
    return x * W * y + B


def two(x: Any, y: Any) -> Any:
    return x * y, x * x


def three(x: Any, y: Any) -> Any:
    return x * y, x + y, x - y


def nested(x: Any) -> Any:
    return x * x, (x, [x * 3.0])


def with_dict(x: Any) -> Any:
    return {"a": x * x, "b": x}


# -- structures ----------------------------------------------------------------------------------------------------------
CASES: list[tuple[Callable[..., Any], tuple[Any, ...], Any]] = [
    (grad(product), (X, Y), 30.0),
    (grad(product, 1), (X, Y), 9.0),
    (grad(product, (0,)), (X, Y), 30.0),
    (grad(product, (0, 1)), (X, Y), (30.0, 9.0)),
    (grad(product, (1, 0)), (X, Y), (9.0, 30.0)),
    (grad(affine, None, ParameterTuple([W, B])), (X,), (3.0, 1.0)),
    (grad(affine, None, ParameterTuple([W])), (X,), (3.0,)),
    (grad(affine, None, [W, B]), (X,), (3.0, 1.0)),
    (grad(affine, None, W), (X,), 3.0),
    (grad(affine, None, []), (X,), ()),
    (grad(affine, 0, []), (X,), (2.0, ())),
    (grad(affine, 0, (W, B)), (X,), (2.0, (3.0, 1.0))),
    (grad(affine, 0, W), (X,), (2.0, 3.0)),
    (grad(affine, (0,), (W, B)), (X,), (2.0, (3.0, 1.0))),
    (grad(affine2, (0, 1), (W, B)), (X, Y), ((10.0, 6.0), (15.0, 1.0))),
    (grad(affine, None, [W, W]), (X,), (3.0, 3.0)),
    (grad(square, None, [W]), (X,), (0.0,)),
    (grad(lambda x: x * W * FROZEN, None, [W, FROZEN]), (X,), (12.0, 0.0)),
    (grad(lambda: W * W, None, [W]), (), (4.0,)),
    (grad(two), (X, Y), 11.0),
    (grad(two, (0, 1)), (X, Y), (11.0, 3.0)),
    (grad(with_dict), (X,), 7.0),
    (grad(lambda x: [x * x, x]), (X,), 7.0),
    (grad(nested), (X,), 10.0),
    (grad(lambda x: (x * x, 3)), (X,), 6.0),
    (grad(lambda x: 3), (X,), 0.0),
    (grad(lambda x: None), (X,), 0.0),
    (grad(lambda x: Tensor(1.0)), (V,), [0.0, 0.0]),
    (grad(lambda x: x), (V,), [1.0, 1.0]),
    (grad(square), (V,), [2.0, 4.0]),
    (grad(lambda x, y: x * x, 1), (V, Tensor([7.0, 7.0])), [0.0, 0.0]),
    (grad(lambda x, y=5.0: x * x * y), (X,), 30.0),
    (grad(lambda *a: a[0] * a[1], (0, 1)), (X, Y), (5.0, 3.0)),
    # arguments without Tensors have no gradient
    (grad(times, (0, 1)), (V, 2.0), [2.0, 2.0]),
    (grad(times, 1), (V, 2.0), ()),
    (grad(lambda x, y: x * x, (0, 1)), (X, None), 6.0),
    # has_aux
    (grad(two, has_aux=True), (X, Y), (5.0, (9.0,))),
    (grad(three, has_aux=True), (X, Y), (5.0, (8.0, -2.0))),
    (grad(three, (0, 1), has_aux=True), (X, Y), ((5.0, 3.0), (8.0, -2.0))),
    (grad(lambda x: (x * W, x), None, [W], has_aux=True), (X,), ((3.0,), (3.0,))),
    (grad(lambda x: (x * x, [x, 2.0]), has_aux=True), (V,), ([2.0, 4.0], ([[1.0, 2.0], 2.0],))),
    (grad(lambda x, y: ((x * y, x + y), x - y), has_aux=True), (X, Y), (6.0, (-2.0,))),
    # return_ids
    (grad(product, return_ids=True), (X, Y), (0, 30.0)),
    (grad(product, (0,), return_ids=True), (X, Y), (0, 30.0)),
    (grad(product, (0, 1), return_ids=True), (X, Y), ((0, 30.0), (1, 9.0))),
    (grad(times, 1, return_ids=True), (V, 2.0), ()),
    (grad(affine, None, [W, B], return_ids=True), (X,), (("w", 3.0), ("b", 1.0))),
    (grad(affine, None, W, return_ids=True), (X,), ("w", 3.0)),
    (grad(affine, 0, [W, B], return_ids=True), (X,), ((0, 2.0), (("w", 3.0), ("b", 1.0)))),
    (grad(lambda x: (x * W, x), 0, [W], True, True), (X,), (((0, 2.0), (("w", 3.0),)), (3.0,))),
    # value_and_grad
    (value_and_grad(product), (X, Y), (45.0, 30.0)),
    (value_and_grad(product, (0, 1)), (X, Y), (45.0, (30.0, 9.0))),
    (value_and_grad(affine, None, [W, B]), (X,), (7.0, (3.0, 1.0))),
    (value_and_grad(affine, 0, [W, B]), (X,), (7.0, (2.0, (3.0, 1.0)))),
    (value_and_grad(three, has_aux=True), (X, Y), ((15.0, 8.0, -2.0), 5.0)),
    (value_and_grad(two), (X, Y), ((15.0, 9.0), 11.0)),
    (value_and_grad(nested), (X,), ((9.0, (3.0, [9.0])), 10.0)),
    (value_and_grad(with_dict), (X,), ({"a": 9.0, "b": 3.0}, 7.0)),
    (value_and_grad(lambda x: [x * x, x]), (X,), ([9.0, 3.0], 7.0)),
    (value_and_grad(lambda x: (x * x, 3, None, "s", True)), (X,), ((9.0, 3, None, "s", True), 6.0)),
    (value_and_grad(lambda x: (x * x,)), (X,), ((9.0,), 6.0)),
    (value_and_grad(affine, 0, [W, B], return_ids=True), (X,), (7.0, ((0, 2.0), (("w", 3.0), ("b", 1.0))))),
    # sens_param
    (grad(product, sens_param=True), (X, Y, Tensor(10.0)), 300.0),
    (grad(product, (0, 1), sens_param=True), (X, Y, Tensor(10.0)), (300.0, 90.0)),
    (grad(two, (0, 1), sens_param=True), (X, Y, (Tensor(10.0), Tensor(1.0))), (56.0, 30.0)),
    (grad(three, (0, 1), sens_param=True, has_aux=True), (X, Y, Tensor(10.0)), ((50.0, 30.0), (8.0, -2.0))),
    (value_and_grad(product, (0, 1), sens_param=True), (X, Y, Tensor(10.0)), (45.0, (300.0, 90.0))),
    # GradOperation
    (GradOperation()(product), (X, Y), 30.0),
    (GradOperation(get_all=True)(product), (X, Y), (30.0, 9.0)),
    (GradOperation(get_all=True)(affine), (X,), (2.0,)),
    (GradOperation(get_all=True)(times), (X, 2.0), (2.0,)),
    (GradOperation(get_by_list=True)(affine, ParameterTuple([W, B])), (X,), (3.0, 1.0)),
    (GradOperation(get_by_list=True)(affine, ParameterTuple([W])), (X,), (3.0,)),
    (
        GradOperation(get_all=True, get_by_list=True)(affine, ParameterTuple([W, B])),
        (X,),
        ((2.0,), (3.0, 1.0)),
    ),
    (GradOperation(get_all=True, get_by_list=True)(affine, W), (X,), ((2.0,), 3.0)),
    (GradOperation(sens_param=True)(product), (X, Y, Tensor(10.0)), 300.0),
    (
        GradOperation(True, True, True)(affine, ParameterTuple([W, B])),
        (X, Tensor(10.0)),
        ((20.0,), (30.0, 10.0)),
    ),
    # orders
    (grad(grad(product)), (X, Y), 10.0),
    (grad(grad(product, (0, 1)), (0, 1)), (X, Y), (16.0, 6.0)),
    (grad(value_and_grad(square)), (X,), 8.0),
    (grad(grad(grad(lambda x: x * x * x * x))), (X,), 72.0),
    (grad(grad(lambda x: W * W * x * x, None, [W]), None, [W]), (X,), (18.0,)),
    (grad(grad(lambda x: W * W * x * x, None, [W]), 0), (X,), 24.0),
    (grad(grad(lambda x, y: x * y * W, 0), None, W), (X, Y), 5.0),
    (grad(lambda x, y: grad(product)(x, y) * y, (0, 1)), (X, Y), (50.0, 60.0)),
]


@pytest.mark.slow
@pytest.mark.parametrize(("function", "args", "want"), CASES, ids=[str(k) for k in range(len(CASES))])
def test_structures(
    run: Callable[..., Any], function: Callable[..., Any], args: tuple[Any, ...], want: Any
) -> None:
    assert plain(run(function, *args)) == want


def test_keywords_count_after_positions() -> None:
    assert plain(grad(product)(X, y=Y)) == 30.0
    assert plain(grad(product, (0, 1))(X, y=Y)) == (30.0, 9.0)
    assert plain(grad(product, sens_param=True)(X, Y, sens=Tensor(10.0))) == 300.0


@pytest.mark.slow
def test_arguments_that_hold_tensors(run: Callable[..., Any]) -> None:
    """MindSpore gives () for tuples, unless they are `mutable`; here they always have gradients, in their own structure."""
    assert plain(run(grad(lambda t: t[0] * t[1]), (X, Y))) == (5.0, 3.0)
    assert plain(run(grad(lambda t: t["a"] * t["b"]), {"a": X, "b": Y})) == {"a": 5.0, "b": 3.0}
    assert plain(run(grad(lambda t, z: t[0] * t[1] * z, (0, 1)), [X, 2.0], Y)) == ([10.0, None], 6.0)


def test_one_tensor_at_two_places(run: Callable[..., Any]) -> None:
    """Each place has its own gradient, as in MindSpore's graph mode."""
    assert plain(run(grad(times, (0, 1)), V, V)) == ([1.0, 2.0], [1.0, 2.0])
    assert plain(run(grad(lambda x, y: x * x, 1), V, V)) == [0.0, 0.0]
    assert plain(run(grad(grad(times, 0), 1), V, V)) == [1.0, 1.0]


def test_a_parameter_as_an_argument(run: Callable[..., Any]) -> None:
    assert plain(run(grad(square), W)) == 4.0


def test_dtypes_are_kept(run: Callable[..., Any]) -> None:
    for dtype in dt.FLOATS:
        g = run(grad(square), ops.cast(V, dtype))
        assert g.dtype is dtype and g.asnumpy().astype(float).tolist() == [2.0, 4.0]


def test_integer_arguments_have_integer_gradients(run: Callable[..., Any]) -> None:
    value, g = run(value_and_grad(lambda x: x * x * 2), N)
    assert (plain(value), plain(g), g.dtype) == ([2, 8], [4, 8], dt.int32)
    gx, gn = run(grad(times, (0, 1)), V, N)
    assert (plain(gx), plain(gn), gn.dtype) == ([1.0, 2.0], [1, 2], dt.int32)
    assert plain(run(grad(times, 0), V, N)) == [1.0, 2.0]
    assert plain(run(grad(lambda x: ops.cast(x, dt.float32) * 2.0), N)) == [2, 2]


def test_integer_outputs_do_not_count(run: Callable[..., Any]) -> None:
    (value, index), g = run(value_and_grad(lambda x: (x * 2.0, ops.cast(x, dt.int64))), V)
    assert (plain(value), plain(index), plain(g)) == ([2.0, 4.0], [1, 2], [2.0, 2.0])


def test_stop_gradient(run: Callable[..., Any]) -> None:
    assert plain(run(grad(lambda x: x * apply1(StopGradient(), x * x)), X)) == 9.0


# -- side effects --------------------------------------------------------------------------------------------------------
class Counter:
    """A moving value that a function updates while it runs."""

    def __init__(self) -> None:
        self.moving = Parameter(Tensor(1.0), name="moving", requires_grad=False)

    def __call__(self, x: Any) -> Any:
        ops.assign(self.moving, self.moving + 1.0)
        return x * W * self.moving


def test_what_the_function_writes_is_written_once(run: Callable[..., Any]) -> None:
    counter = Counter()
    value, gradients = run(value_and_grad(counter, 0, [W]), X)
    assert (plain(value), plain(gradients), plain(counter.moving)) == (12.0, (4.0, (6.0,)), 2.0)
    value, gradients = run(value_and_grad(counter, 0, [W, counter.moving]), X)
    assert (plain(value), plain(gradients), plain(counter.moving)) == (18.0, (6.0, (9.0, 0.0)), 3.0)


def test_writes_of_nested_gradients_happen_once(run: Callable[..., Any]) -> None:
    counter = Counter()
    assert plain(run(grad(lambda x: grad(counter)(x) * x), X)) == 4.0
    assert plain(counter.moving) == 2.0


def test_a_parameter_stays_one_variable_when_it_is_assigned(run: Callable[..., Any]) -> None:
    """out = x w w * w' with w' = 3 w, where MindSpore does not look into w': d out / dw = 2 x w w' + x w w."""
    w = Parameter(Tensor(2.0), name="w")

    def fn(x: Any) -> Any:
        y = x * w * w
        ops.assign(w, w * 3.0)
        return y * w

    value, (gx, (gw,)) = run(value_and_grad(fn, 0, [w]), X)
    assert (plain(value), plain(gx), plain(gw), plain(w)) == (72.0, 24.0, 84.0, 6.0)


def test_a_parameter_updated_between_two_gradients(run: Callable[..., Any]) -> None:
    """One step of training inside one function, then the next gradient: it sees the new value."""
    w = Parameter(Tensor(2.0), name="w")
    loss = value_and_grad(lambda x: x * w * w, None, w)

    def step(x: Any) -> Any:
        first, g = loss(x)
        ops.assign(w, w - 0.25 * g)
        second, h = loss(x)
        return first, g, second, h

    assert plain(run(step, X)) == (12.0, 12.0, 3.0, -6.0)
    assert plain(w) == -1.0


def test_the_function_runs_once() -> None:
    calls = []

    def fn(x: Any) -> Any:
        calls.append(1)
        return x * x

    value_and_grad(fn)(X)
    assert len(calls) == 1


class Recorder:
    """Remembers what went through it, in an attribute and in a list."""

    def __init__(self) -> None:
        self.last: Any = None

    def __call__(self, x: Any) -> Any:
        self.last = x * 3.0
        return self.last * x


def test_a_compiled_function_writes_once_and_runs_forward_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counter = Counter()
    step = value_and_grad(jit(counter), 0, [W])
    assert plain(step(X)) == (12.0, (4.0, (6.0,)))
    assert plain(counter.moving) == 2.0
    ran: list[Graph] = []
    run_graph = GraphCall.runner

    def runner(graph: Graph, arrays: Any) -> Any:
        ran.append(graph)
        return run_graph(graph, arrays)

    monkeypatch.setattr(GraphCall, "runner", staticmethod(runner))
    assert plain(step(X)) == (18.0, (6.0, (9.0,)))
    assert [graph.name.rpartition(".")[2] for graph in ran] == ["forward", "backward"]
    assert plain(counter.moving) == 3.0


def test_attributes_lists_and_variables_that_the_function_changes(run: Callable[..., Any]) -> None:
    def outer(x: Any) -> Any:
        recorder, seen, count = Recorder(), [], 0

        def fn(x: Any) -> Any:
            nonlocal count
            count = count + 1
            seen.append(x + count)
            return recorder(x)

        g = grad(fn)(x)
        return g, recorder.last, seen, count, g * recorder.last + seen[0]

    assert plain(run(outer, X)) == (18.0, 9.0, [4.0], 1, 166.0)


# -- errors --------------------------------------------------------------------------------------------------------------
ANY_GRAD: Any = grad  # called with what its types do not allow
ANY_VALUE_AND_GRAD: Any = value_and_grad
ANY_OPERATION: Any = GradOperation


@pytest.mark.parametrize(
    ("build", "error", "text"),
    [
        (lambda: ANY_GRAD(product, [0, 1]), TypeError, "'grad_position' must be int or tuple, but got list"),
        (lambda: ANY_GRAD(product, "0"), TypeError, "'grad_position' must be int or tuple, but got str"),
        (lambda: ANY_GRAD(product, (0, 1.0)), TypeError, "the element in 'grad_position' must be int"),
        (lambda: ANY_GRAD(product, (0, 0)), ValueError, "duplicate positions"),
        (lambda: ANY_GRAD(product, -1), ValueError, "must be >= 0"),
        (lambda: ANY_GRAD(product, ()), ValueError, "must not be empty"),
        (
            lambda: ANY_GRAD(product, None),
            ValueError,
            "`grad_position` and `weight` can not be None at the same time.",
        ),
        (
            lambda: ANY_VALUE_AND_GRAD(product, None),
            ValueError,
            "`grad_position` and `weight` can not be None at the same time.",
        ),
        (lambda: ANY_GRAD(3), TypeError, "the fn should be callable, but got int"),
        (lambda: ANY_GRAD(product, has_aux=1), TypeError, "'has_aux' should be bool, but got int"),
        (lambda: ANY_GRAD(product, return_ids=1), TypeError, "'return_ids' should be bool, but got int"),
        (lambda: ANY_GRAD(affine, None, (p for p in [W])), TypeError, "but got generator"),
        (lambda: ANY_GRAD(affine, None, [3.0]), TypeError, "'weights' must be a Parameter"),
        (
            lambda: ANY_OPERATION(get_all=1),
            TypeError,
            "For 'GradOperation', the 'get_all' should be bool, but got int",
        ),
        (
            lambda: ANY_GRAD(product, 2)(X, Y),
            IndexError,
            "product: 'grad_position' 2 is out of range, the call has 2 arguments",
        ),
        (lambda: ANY_GRAD(product, (0, 3))(X, Y), IndexError, "'grad_position' 3 is out of range"),
        (
            lambda: ANY_GRAD(square, has_aux=True)(X),
            ValueError,
            "When has_aux is True, origin fn requires more than one outputs.",
        ),
        (lambda: ANY_GRAD(lambda x: [x, x], has_aux=True)(X), ValueError, "requires more than one outputs"),
        (lambda: ANY_GRAD(lambda x: (x,), has_aux=True)(X), ValueError, "requires more than one outputs"),
        (lambda: ANY_GRAD(product)(X), TypeError, "missing 1 required positional argument: 'y'"),
        (
            lambda: ANY_GRAD(square, sens_param=True)(V, Tensor(1.0)),
            ValueError,
            r"output of shape \(2,\) has shape \(\)",
        ),
        (
            lambda: ANY_GRAD(two, sens_param=True)(X, Y, Tensor(1.0)),
            TypeError,
            "sens has 1 Tensors, but the output has 2",
        ),
        (lambda: ANY_GRAD(square, sens_param=True)(V, "s"), TypeError, "must be a Tensor, but is str"),
    ],
)
def test_errors(build: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        build()


def test_an_error_in_the_function_leaves_no_tape_behind() -> None:
    from graphcell.tensor import state

    def fails(x: Any) -> Any:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        grad(fails)(X)
    assert state.tapes == () and state.trace is None
    with pytest.raises(KeyError, match="mine"):
        in_graph(grad(fails), X)
    assert state.trace is None


# -- get_grad ------------------------------------------------------------------------------------------------------------
def test_get_grad() -> None:
    both = grad(affine, 0, [W, B], return_ids=True)(X)
    assert (plain(get_grad(both, 0)), plain(get_grad(both, W)), plain(get_grad(both, B))) == (2.0, 3.0, 1.0)
    assert plain(get_grad(grad(times, return_ids=True)(X, Y), 0)) == 5.0
    assert plain(get_grad(grad(times, (0, 1), return_ids=True)(X, Y), 1)) == 3.0
    assert plain(get_grad(grad(affine, None, W, return_ids=True)(X), W)) == 3.0


@pytest.mark.parametrize(
    ("identifier", "error", "text"),
    [
        (2, RuntimeError, "Can not find the gradient for position or Parameter 2"),
        (
            FROZEN,
            RuntimeError,
            r"Can not find the gradient for position or Parameter Parameter \(name=frozen",
        ),
        ("w", TypeError, "should be an integer or a Parameter, but got w"),
        (1.5, TypeError, "should be an integer or a Parameter, but got 1.5"),
    ],
)
def test_get_grad_errors(identifier: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        get_grad(grad(affine, 0, [W, B], return_ids=True)(X), identifier)


def test_get_grad_without_ids() -> None:
    with pytest.raises(NoGradientError):
        get_grad(grad(times, (0, 1))(X, Y), 0)
    assert issubclass(NoGradientError, GraphcellError) and issubclass(NoGradientError, RuntimeError)


# -- numbers -------------------------------------------------------------------------------------------------------------
@pytest.mark.slow
def test_a_training_loop_by_hand_finds_the_line(run: Callable[..., Any]) -> None:
    """Least squares by gradient descent, in both modes to the closed solution."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20, 2))
    y = x @ np.array([1.5, -2.0]) + 0.5
    w, b = Parameter(Tensor(np.zeros((2, 1))), name="w"), Parameter(Tensor(np.zeros(1)), name="b")

    def loss(x: Any, y: Any) -> Any:
        error = ops.matmul(x, w) + b - y.reshape(20, 1)
        return (error * error).mean()

    step = value_and_grad(loss, None, [w, b])

    def train(x: Any, y: Any) -> Any:
        value, (gw, gb) = step(x, y)
        ops.assign(w, w - 0.3 * gw)
        ops.assign(b, b - 0.3 * gb)
        return value

    for _ in range(200):
        value = run(train, Tensor(x), Tensor(y))
    assert float(value) < 1e-10
    np.testing.assert_allclose(w.asnumpy().ravel(), [1.5, -2.0], atol=1e-5)
    np.testing.assert_allclose(b.asnumpy(), [0.5], atol=1e-5)


@pytest.mark.parametrize("mode", [context.GRAPH_MODE, context.PYNATIVE_MODE])
def test_gradients_flow_through_other_outputs(mode: int) -> None:
    """Of gradients, which hand them on; as in MindSpore's PYNATIVE_MODE."""
    context.set_context(mode=mode)

    def pair(x: Tensor) -> tuple[Tensor, Tensor]:
        return (x * x).sum(), x * x

    def through_other(x: Tensor) -> Tensor:
        _, (square,) = grad(pair, has_aux=True)(x)
        return (3.0 * square).sum()

    def through_all(x: Tensor) -> Tensor:
        (value, square), gradient = value_and_grad(pair, has_aux=True)(x)
        return value + (square + 5.0 * gradient).sum()

    x = Tensor(np.array([1.0, 2.0], np.float32))
    np.testing.assert_array_equal(grad(through_other)(x).asnumpy(), [6.0, 12.0])
    np.testing.assert_array_equal(grad(through_all)(x).asnumpy(), [14.0, 18.0])
