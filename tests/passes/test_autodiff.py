"""vjp and split_vjp: structure, activity, residuals, effects, errors; numbers against finite differences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import graphcell.ops  # noqa: F401  (attaches the operators)
from graphcell import dtype as dt
from graphcell.errors import NoGradientError, Span
from graphcell.ir.graph import Graph
from graphcell.ir.op import Array, Op
from graphcell.ir.types import TensorType
from graphcell.ir.verify import verify
from graphcell.ops.arithmetic import Cast, Maximum, StopGradient
from graphcell.ops.contraction import MatMul
from graphcell.ops.dispatch import apply1
from graphcell.ops.mathematics import Exp, Tanh
from graphcell.ops.reduction import ArgMax, ReduceSum
from graphcell.passes.autodiff import active_outputs, live_nodes, split_vjp, vjp
from graphcell.tensor import Tensor, state
from tests.helpers import check_gradients, run, trace


def f64(*shape: int) -> TensorType:
    return TensorType(dt.float64, shape)


def rand(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).uniform(0.3, 1.2, shape)


def exp(x: Any) -> Any:
    return apply1(Exp(), x)


def tanh(x: Any) -> Any:
    return apply1(Tanh(), x)


def names(graph: Graph) -> list[str]:
    return [n.op.name for n in graph.nodes]


@dataclass(frozen=True)
class Shout(Op):
    """An op with an effect, for these tests."""

    name = "test_shout"
    has_effect = True

    def infer(self, x: TensorType) -> TensorType:  # type: ignore[override]
        return x

    def eval(self, x: Array) -> Array:  # type: ignore[override]
        return x

    def grad(self, inputs: Any, outputs: Any, cotangents: Any) -> Any:
        return cotangents


@pytest.fixture(autouse=True, scope="module")
def _shout_is_known_here_alone() -> Any:
    Op.table[Shout.name] = Shout
    yield
    Op.table.pop("test_shout", None)


# -- vjp -----------------------------------------------------------------------------------------------------------------
def test_inputs_and_outputs() -> None:
    graph = trace(lambda x, n, y: (x * y, n, x + y), f64(3), TensorType(dt.int32, ()), f64(3))
    joint = vjp(graph, (2, 0))
    verify(joint)
    assert [str(t) for t in joint.input_types] == ["f64[3]", "i32[]", "f64[3]", "f64[3]", "f64[3]"]
    x, y, g, h = (rand(3, seed=k) for k in range(4))
    out = run(joint, x, np.asarray(7, np.int32), y, g, h)
    for got, want in zip(out, (x * y, 7, x + y, g * x + h, g * y + h), strict=True):
        np.testing.assert_allclose(got, want)


def test_seeds_choose_the_outputs() -> None:
    graph = trace(lambda x: (x * x, exp(x), tanh(x)), f64(3))
    joint = vjp(graph, (0,), seeds=(2,))
    assert len(joint.inputs) == 2
    x, g = rand(3), rand(3, seed=1)
    np.testing.assert_allclose(run(joint, x, g)[-1], g * (1 - np.tanh(x) ** 2))


def test_independent_inputs_have_zero_gradients() -> None:
    joint = vjp(trace(lambda x, y: x * 2.0, f64(3), f64(2)), (1,))
    np.testing.assert_array_equal(run(joint, rand(3), rand(2), rand(3))[-1], [0, 0])
    assert names(joint).count("mul") == 1  # nothing was differentiated


def test_an_input_that_is_an_output() -> None:
    joint = vjp(trace(lambda x, y: (x, x, y), f64(3), f64(3)), (0, 1))
    x, y, a, b, c = (rand(3, seed=k) for k in range(5))
    out = run(joint, x, y, a, b, c)
    np.testing.assert_allclose(out[-2], a + b)
    np.testing.assert_allclose(out[-1], c)


def test_repeated_operands_and_many_uses() -> None:
    check_gradients(lambda x: x * x * x + apply1(MatMul(), x, x), rand(3, 3), order=3)


def test_stop_gradient_cuts() -> None:
    joint = vjp(trace(lambda x: apply1(StopGradient(), x * x) * x, f64(3)), (0,))
    x, g = rand(3), rand(3, seed=1)
    np.testing.assert_allclose(run(joint, x, g)[-1], g * x * x)
    assert active_outputs(trace(lambda x: (apply1(StopGradient(), x), x * 2.0), f64(3)), (True,)) == (
        False,
        True,
    )


def test_nothing_flows_through_integers() -> None:
    def fn(x: Any) -> Any:
        n = apply1(ArgMax(0), x)
        return x * apply1(Cast(dt.float64), n).broadcast_to((3,)), apply1(Cast(dt.int32), x)

    joint = vjp(trace(fn, f64(3)), (0,))
    x, g = rand(3), rand(3, seed=1)
    np.testing.assert_allclose(run(joint, x, g)[-1], g * np.argmax(x))


def test_integer_inputs_have_integer_gradients() -> None:
    """As in MindSpore: asked for explicitly, integers on the way are differentiated too."""
    graph = trace(lambda x: x * x * 2, TensorType(dt.int32, (2,)))
    joint = vjp(graph, (0,))
    got = run(joint, np.array([1, 2], np.int32), np.ones(2, np.int32))[-1]
    assert got.dtype == np.int32
    np.testing.assert_array_equal(got, [4, 8])
    bools = vjp(trace(lambda x, y: apply1(Cast(dt.float64), x) * y, TensorType(dt.bool_, (2,)), f64(2)), (0,))
    assert run(bools, np.array([True, False]), rand(2), rand(2))[-1].tolist() == [False, False]


def test_deep_graphs_need_no_recursion() -> None:
    def fn(x: Any) -> Any:
        for _ in range(5000):
            x = x * 1.0001
        return x

    joint = vjp(trace(fn, f64()), (0,))
    np.testing.assert_allclose(run(joint, np.asarray(1.0), np.asarray(1.0))[-1], 1.0001**5000)


def test_backward_nodes_stand_at_the_forward_line() -> None:
    here = Span("net.py", 3, 4, 3, 9)

    def fn(x: Any) -> Any:
        assert state.trace is not None
        state.trace.span = lambda: here
        return tanh(x)

    joint = vjp(trace(fn, f64(3)), (0,))
    forward, *backward = joint.nodes
    assert forward.span == here
    assert backward and all(n.span == here.as_gradient() for n in backward)


def test_no_gradient_names_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def grad(self: Any, inputs: Any, outputs: Any, cotangents: Any) -> Any:
        raise NoGradientError("maximum has no gradient")

    monkeypatch.setattr(Maximum, "grad", grad)

    def fn(x: Any) -> Any:
        assert state.trace is not None
        state.trace.span = lambda: Span("net.py", 3, 4, 3, 9, "Net.construct")
        return apply1(Maximum(), x, x)

    graph = trace(fn, f64(3))
    with pytest.raises(
        NoGradientError, match=r"(?s)maximum has no gradient.*gradient of net.py:3:5 in Net.construct"
    ):
        vjp(graph, (0,))


def test_effects_happen_once() -> None:
    graph = trace(lambda x: (apply1(Shout(), x) * x, apply1(Shout(), x))[0], f64(3))
    assert names(vjp(graph, (0,))).count("test_shout") == 2
    split = split_vjp(graph, (0,))
    assert names(split.forward).count("test_shout") == 2
    assert names(split.backward).count("test_shout") == 0


def test_gradients_of_another_type_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        Tanh, "grad", lambda self, inputs, outputs, cotangents: (apply1(ReduceSum((0,)), cotangents[0]),)
    )
    with pytest.raises(
        Exception, match=r"the gradient rule of tanh gives f64\[\] for an operand of f64\[3\]"
    ):
        vjp(trace(tanh, f64(3)), (0,))


# -- split_vjp -----------------------------------------------------------------------------------------------------------
def split_numbers(fn: Any, *arrays: Any) -> tuple[Any, Any]:
    """Gradients by the two graphs, and by the joint one."""
    graph = trace(fn, *(f64(*a.shape) for a in arrays))
    wrt = range(len(arrays))
    seeds = [rand(*t.shape, seed=50 + k) for k, t in enumerate(graph.output_types)]
    split = split_vjp(graph, wrt)
    verify(split.forward)
    verify(split.backward)
    results = run(split.forward, *arrays)
    count = len(graph.outputs)
    held = [arrays[k] for k in split.inputs] + [results[k] for k in split.outputs] + list(results[count:])
    return run(split.backward, *held, *seeds), run(vjp(graph, wrt), *arrays, *seeds)[count:]


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, w: tanh(apply1(MatMul(), x, w)),
        lambda x, w: (exp(x * w), tanh(x) + w, apply1(ReduceSum((0, 1)), x / w)),
        lambda x, w: exp(exp(exp(x))) * w,
        lambda x, w: x,
        lambda x, w: apply1(ReduceSum((1,), True), exp(x)).broadcast_to((3, 3)) * w,
    ],
)
def test_the_two_graphs_are_the_one(fn: Any) -> None:
    got, want = split_numbers(fn, rand(3, 3), rand(3, 3, seed=1))
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g, w)


def test_inputs_and_outputs_are_no_residuals() -> None:
    split = split_vjp(trace(lambda x, w: tanh(x * w), f64(3), f64(3)), (0, 1))
    assert (split.inputs, split.outputs, split.residual_types) == ((0, 1), (0,), ())


def test_costly_values_are_saved() -> None:
    split = split_vjp(trace(lambda x: exp(x) * tanh(x) * x, f64(3)), (0,))
    assert split.residual_types == (f64(3), f64(3))
    assert "exp" not in names(split.backward) and "tanh" not in names(split.backward)


def test_cheap_values_are_recomputed_from_inputs() -> None:
    split = split_vjp(trace(lambda x, w: (x + w) * (x - w) * (x * w), f64(3), f64(3)), (0, 1))
    assert (split.inputs, split.outputs, split.residual_types) == ((0, 1), (), ())


def test_the_smaller_side_is_saved() -> None:
    """A broadcast and a cast are undone: what they were made of takes fewer bytes."""

    def fn(x: Any, w: Any) -> Any:
        wide = exp(x).reshape(4, 1).broadcast_to((4, 100))
        return wide * w * wide

    split = split_vjp(trace(fn, f64(4), f64(4, 100)), (0, 1))
    assert split.residual_types == (f64(4),)

    def narrow(x: Any, w: Any) -> Any:
        return apply1(Cast(dt.float64), exp(x)) * w

    split = split_vjp(trace(narrow, TensorType(dt.float16, (3,)), f64(3)), (0, 1))
    assert split.residual_types == (TensorType(dt.float16, (3,)),)


def test_a_mask_is_smaller_than_what_it_is_made_of() -> None:
    def fn(x: Any) -> Any:
        from graphcell.ops.functional.common import select

        return select(exp(x) > 2.0, x * 3.0, x)

    split = split_vjp(trace(fn, f64(5)), (0,))
    assert split.residual_types == (TensorType(dt.bool_, (5,)),)


def test_without_cotangents_of_some_outputs() -> None:
    graph = trace(lambda x: (exp(x), tanh(x)), f64(3))
    split = split_vjp(graph, (0,), seeds=(1,))
    assert split.outputs == (1,) and len(split.backward.inputs) == 2


def test_live_nodes_keeps_order_and_effects() -> None:
    graph = trace(lambda x: (exp(x), apply1(Shout(), x), tanh(x))[2], f64(3))
    assert [n.op.name for n in live_nodes(graph.nodes, graph.outputs)] == ["test_shout", "tanh"]
    assert [n.op.name for n in live_nodes(graph.nodes, graph.outputs, set())] == ["tanh"]


def test_gradient_rules_run_in_the_transform_not_in_the_graph_around() -> None:
    """vjp inside a graph under construction leaves no trace there until it is inlined."""
    from graphcell.ops.dispatch import Trace

    outer = Trace("outer")
    with outer.active():
        vjp(trace(lambda x: exp(x) * 2.0, f64(3)), (0,))
    assert outer.builder.nodes == [] and outer.captured == {}


def test_tensors_from_elsewhere_are_refused_in_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = Tensor(rand(3))
    monkeypatch.setattr(Tanh, "grad", lambda self, inputs, outputs, cotangents: (cotangents[0] * elsewhere,))
    with pytest.raises(Exception, match="used a Tensor that is no operand or result"):
        vjp(trace(tanh, f64(3)), (0,))
