"""vjp, jvp, jacrev, jacfwd: MindSpore 2.10's structures (recorded from it), and numbers against closed forms and finite differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphcell.ops  # noqa: F401  (attaches the operators)
from graphcell import dtype as dt
from graphcell.context import GRAPH_MODE, PYNATIVE_MODE, config
from graphcell.grad import grad
from graphcell.jacobian import jacfwd, jacrev, jvp, vjp
from graphcell.ops.dispatch import apply1
from graphcell.ops.mathematics import Tanh
from graphcell.parameter import Parameter, ParameterTuple
from graphcell.tensor import Tensor
from tests.helpers import plain, trace

X, Y = Tensor(3.0), Tensor(5.0)
V, U = Tensor([1.0, 2.0]), Tensor([3.0, 4.0, 5.0])
W = Parameter(Tensor(2.0), name="w")
B = Parameter(Tensor(1.0), name="b")
ONE, TWO = Tensor(1.0), Tensor(2.0)


def times(x: Any, y: Any) -> Any:
    return x * y


def square(x: Any) -> Any:
    return x * x


def both(x: Any, y: Any) -> Any:
    return x * y, x + y


def affine(x: Any) -> Any:
    return x * W + B


def outer(x: Any, y: Any) -> Any:
    return x.reshape(2, 1) * y


def with_pullback(fn: Any, *inputs: Any, v: Any, **options: Any) -> Any:
    output, vjp_fn, *others = vjp(fn, *inputs, **options)
    return (output, vjp_fn(*v), *others)


VJP: list[tuple[Callable[..., Any], tuple[Any, ...], Any]] = [
    (lambda x, y: with_pullback(times, x, y, v=(ONE,)), (X, Y), (15.0, (5.0, 3.0))),
    (lambda v: with_pullback(square, v, v=(Tensor([1.0, 1.0]),)), (V,), ([1.0, 4.0], ([2.0, 4.0],))),
    (lambda x, y: with_pullback(both, x, y, v=(ONE,), has_aux=True), (X, Y), (15.0, (5.0, 3.0), 8.0)),
    (lambda x, y: with_pullback(both, x, y, v=(ONE, TWO)), (X, Y), ((15.0, 8.0), (7.0, 5.0))),
    (lambda x, y: with_pullback(both, x, y, v=((ONE, TWO),)), (X, Y), ((15.0, 8.0), (7.0, 5.0))),
    (
        lambda x: with_pullback(affine, x, v=(ONE,), weights=ParameterTuple([W, B])),
        (X,),
        (7.0, ((2.0,), (3.0, 1.0))),
    ),
    (lambda x: with_pullback(affine, x, v=(ONE,), weights=W), (X,), (7.0, ((2.0,), 3.0))),
    (
        lambda x: with_pullback(lambda x: (x * W, x), x, v=(ONE,), weights=[W], has_aux=True),
        (X,),
        (6.0, ((2.0,), (3.0,)), 3.0),
    ),
    (lambda: with_pullback(lambda: W * W, v=(ONE,), weights=[W]), (), (4.0, ((), (4.0,)))),
    (lambda x, y: jvp(times, (x, y), (ONE, TWO)), (X, Y), (15.0, 11.0)),
    (lambda v: jvp(square, v, Tensor([1.0, 1.0])), (V,), ([1.0, 4.0], [2.0, 4.0])),
    (lambda x, y: jvp(both, (x, y), (ONE, TWO), has_aux=True), (X, Y), (15.0, 11.0, 8.0)),
    (lambda x, y: jvp(both, (x, y), (ONE, TWO)), (X, Y), ((15.0, 8.0), (11.0, 3.0))),
    (lambda v: jacrev(times)(v, v), (V,), [[1.0, 0.0], [0.0, 2.0]]),
    (lambda v: jacrev(times, (0, 1))(v, v), (V,), ([[1.0, 0.0], [0.0, 2.0]], [[1.0, 0.0], [0.0, 2.0]])),
    (
        lambda v: jacrev(lambda x, y: (x * x, y, x), has_aux=True)(v, v),
        (V,),
        ([[2.0, 0.0], [0.0, 4.0]], ([1.0, 2.0], [1.0, 2.0])),
    ),
    (lambda v: jacrev(both, (0, 1), has_aux=True)(v, v), (V,), (([[1.0, 0.0], [0.0, 2.0]],) * 2, [2.0, 4.0])),
    (lambda v: jacrev(lambda x: (x * x).sum())(v), (V,), [2.0, 4.0]),
    (
        lambda v: jacrev(lambda x, y: (x * x, x.sum() * y), (0, 1))(v, v),
        (V,),
        (
            ([[2.0, 0.0], [0.0, 4.0]], [[0.0, 0.0], [0.0, 0.0]]),
            ([[1.0, 1.0], [2.0, 2.0]], [[3.0, 0.0], [0.0, 3.0]]),
        ),
    ),
]


@pytest.mark.parametrize(("function", "args", "want"), VJP, ids=[str(k) for k in range(len(VJP))])
def test_structures(
    run: Callable[..., Any], function: Callable[..., Any], args: tuple[Any, ...], want: Any
) -> None:
    assert plain(run(function, *args)) == want


@pytest.mark.parametrize("case", [case for case in VJP if "jacrev" in case[0].__code__.co_names])
def test_jacfwd_gives_what_jacrev_gives(
    run: Callable[..., Any],
    case: tuple[Callable[..., Any], tuple[Any, ...], Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(globals(), "jacrev", jacfwd)
    function, args, want = case
    assert plain(run(function, *args)) == want


@pytest.mark.parametrize("jacobian", [jacrev, jacfwd])
def test_shapes(run: Callable[..., Any], jacobian: Callable[..., Any]) -> None:
    assert run(jacobian(outer), V, U).shape == (2, 3, 2)
    assert run(jacobian(outer, (0,)), V, U).shape == (2, 3, 2)
    assert [j.shape for j in run(jacobian(outer, (0, 1)), V, U)] == [(2, 3, 2), (2, 3, 3)]


@pytest.mark.parametrize("first", [jacrev, jacfwd])
@pytest.mark.parametrize("second", [jacrev, jacfwd])
def test_hessian(run: Callable[..., Any], first: Callable[..., Any], second: Callable[..., Any]) -> None:
    x = Tensor(np.array([0.3, -0.7, 1.1]))
    got = run(second(first(lambda x: (apply1(Tanh(), x) * x).sum())), x)
    t = np.tanh(x.asnumpy())
    d = 1 - t * t
    np.testing.assert_allclose(
        got.asnumpy(), np.diag(2 * d - 2 * x.asnumpy() * t * d), rtol=1e-12, atol=1e-14
    )


def test_jvp_agrees_with_vjp(run: Callable[..., Any]) -> None:
    """<u, J t> = <J' u, t> for a function with several steps."""
    rng = np.random.default_rng(0)
    x, t, u = (Tensor(rng.normal(size=(2, 3))) for _ in range(3))

    def fn(x: Any) -> Any:
        return apply1(Tanh(), x * x.sum()) / (x * x + 1.0)

    def check(x: Any, t: Any, u: Any) -> Any:
        _, forward = jvp(fn, x, t)
        _, pullback = vjp(fn, x)
        return (u * forward).sum(), (pullback(u)[0] * t).sum()

    a, b = run(check, x, t, u)
    np.testing.assert_allclose(float(a), float(b), rtol=1e-12)


def test_gradient_of_jvp_and_of_vjp(run: Callable[..., Any]) -> None:
    """d/dx d/dy of (df . (1, 2)) for f = x x y: df = 2 x y + 2 x x."""
    got = run(grad(lambda x, y: jvp(lambda x, y: x * x * y, (x, y), (ONE, TWO))[1], (0, 1)), X, Y)
    assert plain(got) == (22.0, 6.0)
    got = run(grad(lambda x, y: vjp(lambda x, y: x * x * y, x, y)[1](ONE)[1], (0, 1)), X, Y)
    assert plain(got) == (6.0, 0.0)


@pytest.mark.parametrize("mode", [GRAPH_MODE, PYNATIVE_MODE])
def test_what_a_function_reads_from_outside_is_no_argument(mode: int) -> None:
    """Recorded from MindSpore 2.10, in which the pullback of `vjp` alone does not tell them apart eagerly."""
    config.mode = mode
    x = Tensor([1.0, 2.0])

    def f(a: Any) -> Any:
        return (a * x).sum()

    def g(a: Any, b: Any) -> Any:
        return (a * x * b).sum()

    assert jvp(f, x, Tensor([1.0, 1.0]))[1].asnumpy() == 3
    assert plain(jacrev(f)(x)) == plain(jacfwd(f)(x)) == [1.0, 2.0]
    assert plain(jacrev(g, (0, 1))(x, x)) == plain(jacfwd(g, (0, 1))(x, x)) == ([1.0, 4.0], [1.0, 4.0])
    _, pullback = vjp(f, x)
    assert plain(pullback(ONE)) == ([1.0, 2.0] if mode == GRAPH_MODE else [2.0, 4.0],)


def test_the_pullback_may_be_called_again(run: Callable[..., Any]) -> None:
    def fn(x: Any) -> Any:
        _, pullback = vjp(square, x)
        return pullback(ONE)[0] + pullback(TWO)[0]

    assert plain(run(fn, X)) == 18.0


def test_a_jacobian_is_one_loop_in_a_graph() -> None:
    graph = trace(lambda x: jacrev(lambda x: apply1(Tanh(), x))(x), Tensor(np.zeros(50)).ir_type)
    assert sum(node.op.name == "for" for node in graph.nodes) == 1 and len(graph.nodes) < 20


ANY_JACREV: Any = jacrev  # called with what its types do not allow


@pytest.mark.parametrize(
    ("build", "error", "text"),
    [
        (lambda: jvp(times, (X, Y), (ONE,)), ValueError, "v has invalid length: should be 2, but got 1"),
        (lambda: jvp(times, (X, 2.0), (ONE, ONE)), TypeError, "the inputs must be Tensors"),
        (lambda: jvp(square, V, ONE), ValueError, r"shape \(\)"),
        (lambda: jvp(times, (X, Y), (ONE, Tensor(1, dt.int32))), TypeError, r"v\[1\] must be a Tensor of Float32"),
        (lambda: vjp(times, X, 2.0), TypeError, "the inputs must be Tensors"),
        (lambda: vjp(square, V)[1](ONE), ValueError, r"output of shape \(2,\) has shape \(\)"),
        (lambda: vjp(square, V)[1](), TypeError, "sens has 0 Tensors, but the output has 1"),
        (lambda: vjp(square, V, has_aux=True), ValueError, "When has_aux is True"),
        (lambda: jacrev(square, 1)(V), IndexError, "'grad_position' 1 is out of range"),
        (lambda: jacfwd(square, (0, 0)), ValueError, "duplicate positions"),
        (lambda: ANY_JACREV(3), TypeError, "the fn should be callable"),
    ],
)
def test_errors(build: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        build()


def test_dtype_of_v_follows_the_output() -> None:
    _, pullback = vjp(square, V)
    assert pullback(Tensor([1, 2]))[0].dtype is dt.float32
