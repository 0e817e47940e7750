"""If, While, For, GraphCall, CustomGradient: types, meaning, gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphcell.ops  # noqa: F401  (attaches the operators)
from graphcell import dtype as dt
from graphcell.errors import ArityError, BranchTypeError, DTypeError, NoGradientError, ShapeError
from graphcell.ir.graph import Graph
from graphcell.ir.op import evaluate, infer_types
from graphcell.ir.types import TensorType
from graphcell.ir.verify import verify
from graphcell.ops.arithmetic import Maximum
from graphcell.ops.contraction import MatMul
from graphcell.ops.control import CustomGradient, For, GraphCall, If, While
from graphcell.ops.dispatch import Tape, apply, apply1, recording
from graphcell.ops.mathematics import Exp, Tanh
from graphcell.ops.reduction import ReduceSum
from graphcell.passes.autodiff import split_vjp, vjp
from graphcell.tensor import Tensor
from tests.helpers import check_gradients, run, trace

I64 = TensorType(dt.int64, ())
BOOL = TensorType(dt.bool_, ())


def f64(*shape: int) -> TensorType:
    return TensorType(dt.float64, shape)


def rand(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).uniform(0.3, 1.2, shape)


def dot(x: Any, y: Any) -> Any:
    return apply1(MatMul(), x, y)


def total(x: Any) -> Any:
    return apply1(ReduceSum(tuple(range(x.ndim))), x)


# -- types ---------------------------------------------------------------------------------------------------------------
def branch(fn: Any, *types: TensorType) -> Graph:
    return trace(fn, *types)


def test_if_gives_the_branches_types() -> None:
    op = If(branch(lambda x: (x, x * 2), f64(3)), branch(lambda x: (x * 3, x), f64(3)))
    assert infer_types(op, (BOOL, f64(3))) == (f64(3), f64(3))


@pytest.mark.parametrize(
    ("condition", "error", "text"),
    [(f64(), DTypeError, "must be Bool"), (TensorType(dt.bool_, (2,)), ShapeError, "must be a scalar")],
)
def test_if_refuses_conditions(condition: TensorType, error: type[Exception], text: str) -> None:
    same = branch(lambda x: x, f64(3))
    with pytest.raises(error, match=text):
        If(same, same).infer(condition, f64(3))


def test_if_refuses_branches_of_different_types() -> None:
    op = If(branch(lambda x: x, f64(3)), branch(total, f64(3)))
    with pytest.raises(BranchTypeError, match=r"\(f64\[3\]\) and \(f64\[\]\)"):
        op.infer(BOOL, f64(3))


def test_if_refuses_other_inputs() -> None:
    same = branch(lambda x: x, f64(3))
    with pytest.raises(BranchTypeError, match=r"takes \(f64\[3\]\), but gets \(f64\[4\]\)"):
        If(same, same).infer(BOOL, f64(4))
    with pytest.raises(ArityError, match="takes 1 values, but gets 2"):
        If(same, same).infer(BOOL, f64(3), f64(3))


def test_while_refuses_bodies_that_change_types() -> None:
    cond = branch(lambda x: total(x) < 3.0, f64(3))
    with pytest.raises(BranchTypeError, match="changes its type"):
        While(cond, branch(total, f64(3)), 1).infer(f64(3))
    with pytest.raises(ArityError, match="1 values are carried, but the body gives 2"):
        While(cond, branch(lambda x: (x, x), f64(3)), 1).infer(f64(3))
    with pytest.raises(ArityError, match="gives 2 values instead of one"):
        While(branch(lambda x: (total(x) < 3.0, x), f64(3)), branch(lambda x: x, f64(3)), 1).infer(f64(3))
    with pytest.raises(DTypeError, match="must be Bool"):
        While(branch(total, f64(3)), branch(lambda x: x, f64(3)), 1).infer(f64(3))


def test_for_refuses_what_does_not_fit() -> None:
    body = branch(lambda i, c, x: (c + x, x), I64, f64(2), f64(2))
    with pytest.raises(
        ShapeError, match=r"scanned operand 0 has shape \(5, 2\); its leading extent must be 4"
    ):
        For(body, 4, 1, 1).infer(f64(2), f64(5, 2))
    with pytest.raises(BranchTypeError):
        For(body, 4, 1, 1).infer(f64(3), f64(4, 2))
    with pytest.raises(ShapeError, match="negative"):
        For(body, -1, 1, 1).infer(f64(2), f64(4, 2))
    with pytest.raises(ArityError, match="2 operands are carried or scanned"):
        For(body, 4, 1, 1).infer(f64(2))
    with pytest.raises(BranchTypeError, match="carried value changes its type"):
        For(branch(lambda i, c: total(c), I64, f64(2)), 4, 1, 0).infer(f64(2))


def test_call_refuses_other_operands() -> None:
    with pytest.raises(BranchTypeError):
        GraphCall(branch(lambda x: x, f64(3))).infer(f64(4))


# -- meaning -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("condition", [True, False])
def test_if_runs_one_branch(condition: bool) -> None:
    op = If(branch(lambda x: x * 2.0, f64(3)), branch(lambda x: x + 1.0, f64(3)))
    x = rand(3)
    (got,) = evaluate(op, (np.asarray(condition), x))
    np.testing.assert_array_equal(got, x * 2 if condition else x + 1)


def test_while_runs_until_the_condition_fails() -> None:
    op = While(
        branch(lambda i, x, n: i < n, I64, f64(2), I64),
        branch(lambda i, x, n: (i + 1, x * 2.0), I64, f64(2), I64),
        2,
    )
    i, x = evaluate(op, (np.asarray(0), np.ones(2), np.asarray(5)))
    assert i == 5
    np.testing.assert_array_equal(x, [32.0, 32.0])
    i, x = evaluate(op, (np.asarray(7), np.ones(2), np.asarray(5)))
    assert i == 7
    np.testing.assert_array_equal(x, [1.0, 1.0])


@pytest.mark.parametrize("reverse", [False, True])
def test_for_carries_scans_and_stacks(reverse: bool) -> None:
    body = branch(lambda i, c, x, w: (c * w + x, c + i.astype(dt.float64)), I64, f64(2), f64(2), f64())
    c, xs, w = rand(2), rand(4, 2, seed=1), np.asarray(0.5)
    last, ys = evaluate(For(body, 4, 1, 1, reverse), (c, xs, w))
    want = np.zeros((4, 2))
    for i in reversed(range(4)) if reverse else range(4):
        want[i] = c + i
        c = c * w + xs[i]
    np.testing.assert_allclose(last, c)
    np.testing.assert_allclose(ys, want)


def test_for_without_steps() -> None:
    body = branch(lambda i, c, x: (c + x, c), I64, f64(2), f64(2))
    last, ys = evaluate(For(body, 0, 1, 1), (np.ones(2), np.zeros((0, 2))))
    np.testing.assert_array_equal(last, [1, 1])
    assert ys.shape == (0, 2)


def test_call_runs_what_the_runtime_installs(monkeypatch: pytest.MonkeyPatch) -> None:
    op = GraphCall(branch(lambda x: x * 2.0, f64(3)))
    np.testing.assert_array_equal(evaluate(op, (np.ones(3),))[0], [2, 2, 2])
    monkeypatch.setattr(GraphCall, "runner", staticmethod(lambda graph, arrays: (arrays[0] - 7,)))
    np.testing.assert_array_equal(evaluate(op, (np.ones(3),))[0], [-6, -6, -6])


def test_ops_are_rebuilt_around_other_regions() -> None:
    a, b = branch(lambda x: x, f64(3)), branch(lambda x: x * 2.0, f64(3))
    cond = branch(lambda x: total(x) < 1.0, f64(3))
    body = branch(lambda i, x: x, I64, f64(3))
    for op in (
        If(a, b),
        While(cond, a, 1),
        For(body, 3, 1, 0, True),
        GraphCall(a),
        CustomGradient(a, a, 1, 1),
    ):
        assert op.with_regions(op.regions) == op
        assert op.with_regions(tuple(reversed((*op.regions[1:], b)))) != op
    assert For(body, 3, 1, 0, True).attributes() == {
        "trip_count": 3,
        "carried": 1,
        "scanned": 0,
        "reverse": True,
    }


# -- gradients -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("condition", [True, False])
def test_if_gradient(condition: bool) -> None:
    then = branch(lambda x, y: (apply1(Tanh(), x * y), total(apply1(Exp(), x))), f64(2, 3), f64(2, 3))
    other = branch(lambda x, y: (x / y, total(y * apply1(Tanh(), y))), f64(2, 3), f64(2, 3))
    op = If(then, other)
    check_gradients(lambda c, x, y: apply(op, c, x, y), np.asarray(condition), rand(2, 3), rand(2, 3, seed=1))


def test_if_condition_from_the_data() -> None:
    then, other = branch(lambda x: x * x, f64(3)), branch(lambda x: x * 3.0, f64(3))
    check_gradients(lambda x: apply(If(then, other), total(x) < 2.0, x), rand(3))
    check_gradients(lambda x: apply(If(then, other), total(x) > 2.0, x), rand(3))


def test_if_branches_share_residual_slots() -> None:
    then = branch(lambda x: apply1(Tanh(), apply1(Exp(), x)), f64(5))
    other = branch(lambda x: apply1(Exp(), apply1(Tanh(), apply1(Tanh(), x))), f64(5))
    parts = If(then, other).linearize((False, True), (True,))
    assert [t.shape for t in infer_types(parts.forward, (BOOL, f64(5)))] == [
        (5,)
    ] * 3  # result, two residuals at most in a branch
    assert parts.results == (0,)  # the result of exp serves as its own residual


def test_gradient_of_one_operand_only() -> None:
    body = branch(lambda i, c, x, w: (c * w, c * x), I64, f64(2), f64(2), f64(2))
    for wrt in ((0,), (1,), (2,), (0, 2)):
        check_gradients(
            lambda c, x, w: apply(For(body, 3, 1, 1), c, x, w),
            rand(2),
            rand(3, 2, seed=1),
            rand(2, seed=2),
            wrt=wrt,
        )


@pytest.mark.parametrize("reverse", [False, True])
def test_for_gradient(reverse: bool) -> None:
    def body(i: Any, h: Any, c: Any, x: Any, w: Any, b: Any) -> Any:
        z = dot(h, w) + x + b.broadcast_to((2, 3))
        c = c * 0.5 + apply1(Tanh(), z) * i.astype(dt.float64)
        return apply1(Tanh(), c), c, apply1(Exp(), z), c * h

    op = For(branch(body, I64, f64(2, 3), f64(2, 3), f64(2, 3), f64(3, 3), f64(3)), 3, 2, 1, reverse)
    check_gradients(
        lambda *xs: apply(op, *xs),
        rand(2, 3),
        rand(2, 3, seed=1),
        rand(3, 2, 3, seed=2),
        rand(3, 3, seed=3),
        rand(3, seed=4),
    )


def test_for_gradient_with_integers_and_bools_inside() -> None:
    def body(i: Any, n: Any, c: Any, x: Any, k: Any) -> Any:
        return n + k, c * x * n.astype(dt.float64), x > 0.6, n, c

    op = For(branch(body, I64, I64, f64(2), f64(2), I64), 3, 2, 1)
    check_gradients(
        lambda n, c, x, k: apply(op, n, c, x, k), np.asarray(1), rand(2), rand(3, 2, seed=1), np.asarray(2)
    )


def test_for_carried_value_becomes_active_late() -> None:
    """b depends on w only through a, one step later; its start needs no gradient."""
    body = branch(lambda i, a, b, w: (a * w, b + a * a), I64, f64(2), f64(2), f64(2))
    check_gradients(
        lambda a, b, w: apply(For(body, 4, 2, 0), a, b, w)[1], rand(2), rand(2), rand(2, seed=1), wrt=(2,)
    )


def test_for_carried_value_that_is_overwritten() -> None:
    body = branch(lambda i, a, b: (b, b * 2.0), I64, f64(2), f64(2))
    check_gradients(lambda a, b: apply(For(body, 3, 2, 0), a, b), rand(2), rand(2, seed=1))


def test_for_without_steps_has_a_gradient() -> None:
    body = branch(lambda i, c, w: c * w, I64, f64(2), f64(2))
    check_gradients(lambda c, w: apply(For(body, 0, 1, 0), c, w), rand(2), rand(2, seed=1))


def test_nested_regions_gradient() -> None:
    then, other = (
        branch(lambda c, w: apply1(Tanh(), c * w), f64(2), f64(2)),
        branch(lambda c, w: c / w, f64(2), f64(2)),
    )
    inner = For(branch(lambda i, c, w: c * w + 0.1, I64, f64(2), f64(2)), 2, 1, 0)

    def body(i: Any, c: Any, w: Any) -> Any:
        (c,) = apply(If(then, other), i > 1, c, w)
        return apply(inner, c, w)[0]

    check_gradients(
        lambda c, w: apply(For(branch(body, I64, f64(2), f64(2)), 3, 1, 0), c, w), rand(2), rand(2, seed=1)
    )


def test_sums_over_steps_are_one_product() -> None:
    """The gradient of an invariant matrix is not added up step by step."""
    body = branch(lambda i, h, w: apply1(Tanh(), dot(h, w)), I64, f64(2, 3), f64(3, 3))
    graph = trace(lambda h, w: apply(For(body, 8, 1, 0), h, w), f64(2, 3), f64(3, 3))
    joint = vjp(graph, (1,))
    verify(joint)
    outside = [n for n in joint.nodes if isinstance(n.op, MatMul)]
    assert [n.results[0].type.shape for n in outside] == [(3, 3)]
    (back,) = [n.op for n in joint.nodes if isinstance(n.op, For) and n.op.reverse]
    assert back.carried == 1  # the cotangent of h alone
    assert sum(isinstance(n.op, MatMul) for n in back.body.nodes) == 1  # that of h


def test_large_rows_are_added_up() -> None:
    """Stacking what is larger than the gradient would cost more than adding."""
    body = branch(lambda i, h, w: apply1(Tanh(), dot(h, w)), I64, f64(50, 3), f64(3, 3))
    joint = vjp(trace(lambda h, w: apply(For(body, 8, 1, 0), h, w), f64(50, 3), f64(3, 3)), (1,))
    (back,) = [n.op for n in joint.nodes if isinstance(n.op, For) and n.op.reverse]
    assert back.carried == 2
    check_gradients(lambda h, w: apply(For(body, 8, 1, 0), h, w), rand(50, 3), rand(3, 3), order=1, wrt=(1,))


def test_loop_inputs_are_not_saved() -> None:
    body = branch(lambda i, c, x, w: c + x * w * w, I64, f64(2), f64(2), f64(2))
    parts = For(body, 5, 1, 1).linearize((False, True, True), (True,))
    assert infer_types(parts.forward, (f64(2), f64(5, 2), f64(2))) == (f64(2),)  # no residual at all
    assert parts.operands == (1, 2)


@pytest.mark.slow
@pytest.mark.parametrize("steps", [0, 1, 6])
def test_while_gradient(steps: int) -> None:
    cond = branch(lambda i, h, w: i < steps, I64, f64(2), f64(2))
    body = branch(
        lambda i, h, w: (i + 1, h * w / (h * h + 1.0) + w * i.astype(dt.float64)), I64, f64(2), f64(2)
    )
    check_gradients(
        lambda i, h, w: apply(While(cond, body, 2), i, h, w)[1], np.asarray(0), rand(2), rand(2, seed=1)
    )


@pytest.mark.slow
def test_while_gradient_beyond_its_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    """More steps than slots: saved steps are thinned out and the others repeated."""
    for bound in ("_FEWEST_SLOTS", "_MOST_SLOTS", "_SHORTEST_BLOCK", "_LONGEST_BLOCK"):
        monkeypatch.setattr(f"graphcell.ops.while_gradient.{bound}", 2)
    for steps in (0, 1, 2, 3, 4, 5, 8, 9, 23):
        cond = branch(lambda i, flag, h, w, steps=steps: i < steps, I64, BOOL, f64(2), f64(2))
        half, same = branch(lambda h: h * 0.5, f64(2)), branch(lambda h: h + 0.1, f64(2))

        def body(i: Any, flag: Any, h: Any, w: Any, half: Graph = half, same: Graph = same) -> Any:
            (h,) = apply(If(half, same), flag, apply1(Tanh(), h * w))
            return i + 1, total(h) > 0.6, h

        op = While(cond, branch(body, I64, BOOL, f64(2), f64(2)), 3)
        order = 2 if steps == 9 else 1
        fn = lambda h, w, op=op: apply(op, Tensor(0), Tensor(True), h, w)[2]  # noqa: E731
        check_gradients(fn, rand(2), rand(2, seed=1), order=order)


@pytest.mark.slow
def test_while_gradient_where_the_data_decide() -> None:
    cond = branch(lambda h, w: total(h) < 9.0, f64(3), f64(3))
    op = While(cond, branch(lambda h, w: h * w + h, f64(3), f64(3)), 1)
    check_gradients(lambda h, w: apply(op, h, w), np.array([0.1, 0.2, 0.3]), np.array([0.5, 0.4, 0.7]))


def test_call_gradient() -> None:
    inner = GraphCall(branch(lambda x, w: apply1(Tanh(), x * w), f64(3), f64(3)))
    op = GraphCall(branch(lambda x, w: (apply(inner, x, w)[0] * x, total(w)), f64(3), f64(3)))
    check_gradients(lambda x, w: apply(op, x, w), rand(3), rand(3, seed=1))


def test_call_runs_its_forward_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under a tape the call leaves residuals; the backward graph does not repeat the costly ops."""
    from graphcell.ir.evaluate import evaluate_graph

    ran: list[Graph] = []

    def runner(graph: Graph, operands: Any) -> Any:
        ran.append(graph)
        return tuple(map(Tensor.of_array, evaluate_graph(graph, [t.array() for t in operands])))

    monkeypatch.setattr(GraphCall, "runner", staticmethod(runner))
    op = GraphCall(branch(lambda x: apply1(Exp(), apply1(Tanh(), x)), f64(3)))
    x, tape = Tensor(rand(3)), Tape()
    tape.watch(x)
    with recording(tape):
        (y,) = apply(op, x)
    (g,) = tape.gradients([y], [Tensor(np.ones(3))], [x])
    assert g is not None
    t = np.tanh(x.asnumpy())
    np.testing.assert_allclose(g.asnumpy(), np.exp(t) * (1 - t * t))
    assert [sum(isinstance(n.op, (Exp, Tanh)) for n in graph.nodes) for graph in ran] == [2, 0]


def test_custom_gradient() -> None:
    forward = branch(lambda x, y, k: (x * y + k, x), f64(3), f64(3), f64(3))
    backward = trace(
        lambda x, y, k, out, same, g, h: (g * y * k, g * out + h),
        f64(3),
        f64(3),
        f64(3),
        f64(3),
        f64(3),
        f64(3),
        f64(3),
    )
    op = CustomGradient(forward, backward, 2, 2)
    x, y, k = rand(3), rand(3, seed=1), rand(3, seed=2)
    joint = vjp(trace(lambda x, y, k: apply(op, x, y, k), f64(3), f64(3), f64(3)), (0, 1, 2))
    g, h = rand(3, seed=3), rand(3, seed=4)
    out, _, gx, gy, gk = run(joint, x, y, k, g, h)
    np.testing.assert_allclose(out, x * y + k)
    np.testing.assert_allclose(gx, g * y * k)
    np.testing.assert_allclose(gy, g * out + h)
    np.testing.assert_array_equal(gk, np.zeros(3))  # read from outside: no gradient


def test_custom_gradient_refuses_a_backward_of_other_types() -> None:
    op = CustomGradient(
        branch(lambda x: x, f64(3)), trace(lambda x, out, g: total(g), f64(3), f64(3), f64(3)), 1, 1
    )
    with pytest.raises(ShapeError, match="bprop gives"):
        op.infer(f64(3))


@pytest.fixture
def maximum_without_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    def grad(self: Any, inputs: Any, outputs: Any, cotangents: Any) -> Any:
        raise NoGradientError("maximum has no gradient")

    monkeypatch.setattr(Maximum, "grad", grad)


@pytest.mark.usefixtures("maximum_without_gradient")
def test_an_op_without_gradient_in_a_region() -> None:
    body = branch(lambda i, c, w: apply1(Maximum(), c, w), I64, f64(2), f64(2))
    graph = trace(lambda c, w: apply(For(body, 3, 1, 0), c, w), f64(2), f64(2))
    with pytest.raises(NoGradientError, match="maximum has no gradient"):
        vjp(graph, (0,))
    aside = branch(lambda i, c, w: apply1(Maximum(), w, w) * c, I64, f64(2), f64(2))
    vjp(trace(lambda c, w: apply(For(aside, 3, 1, 0), c, w), f64(2), f64(2)), (0,))  # not on the way


@pytest.mark.usefixtures("maximum_without_gradient")
def test_the_tape_raises_only_where_the_gradient_is_asked_for() -> None:
    op = GraphCall(branch(lambda c: apply1(Maximum(), c, c), f64(2)))
    x, tape = Tensor(rand(2)), Tape()
    tape.watch(x)
    with recording(tape):
        (y,) = apply(op, x)
        z = x * 2.0
    tape.gradients([z], [z], [x])
    with pytest.raises(NoGradientError, match="maximum has no gradient"):
        tape.gradients([y], [y], [x])


def test_regions_keep_the_integers_out_of_residual_gradients() -> None:
    """An integer carried value takes part in no gradient, but is there for the backward loop."""
    body = branch(lambda i, n, c: (n + 1, c * n.astype(dt.float64)), I64, I64, f64(2))
    split = split_vjp(body, (2,))
    assert split.inputs == (1,)
    n, c, ones = np.asarray(3), rand(2), np.ones(2)
    forward = run(split.forward, np.asarray(0), n, c)
    np.testing.assert_allclose(forward[1], 3 * c)
    np.testing.assert_allclose(run(split.backward, n, *forward[2:], ones)[0], 3 * ones)
