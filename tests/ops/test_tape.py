"""The tape: what it records, keeps and lets go of; eager gradients of any order."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import graphcell.ops  # noqa: F401  (attaches the operators)
from graphcell import dtype as dt
from graphcell.errors import NoGradientError
from graphcell.ops.arithmetic import Add, Cast, Maximum, Mul, StopGradient
from graphcell.ops.dispatch import Tape, apply1, recording, write
from graphcell.ops.mathematics import Exp, Tanh
from graphcell.ops.movement import Reshape
from graphcell.ops.reduction import ArgMax
from graphcell.tensor import Tensor
from tests.helpers import check_gradients


class Parameter(Tensor):
    """A Tensor of another class, as Parameters are."""


def tensor(*values: float) -> Tensor:
    return Tensor(np.array(values))


def gradient(fn: Any, *inputs: Tensor) -> list[Any]:
    tape = Tape()
    for t in inputs:
        tape.watch(t)
    with recording(tape):
        y = fn(*inputs)
    return [
        g if g is None else g.asnumpy().tolist()
        for g in tape.gradients([y], [y * 0 + 1], inputs, release=True)
    ]


def test_repeated_operands() -> None:
    assert gradient(lambda x: x * x + x, tensor(3.0)) == [[7.0]]


def test_what_is_not_on_the_way_has_no_gradient() -> None:
    assert gradient(lambda x, y: x * 2.0, tensor(3.0), tensor(4.0)) == [[2.0], None]


def test_only_ops_on_watched_values_are_recorded() -> None:
    tape, x, other = Tape(), tensor(3.0), tensor(4.0)
    tape.watch(x)
    with recording(tape):
        other * other + other
        assert len(tape) == 0
        y = x * other
        apply1(Exp(), other)
        z = y + 1.0
    assert len(tape) == 2
    assert tape.number(z) is not None and tape.number(other) is None


def test_stop_gradient_and_integers_are_not_tracked() -> None:
    tape, x = Tape(), tensor(3.0, 5.0)
    tape.watch(x)
    with recording(tape):
        assert tape.number(apply1(StopGradient(), x)) is None
        n = apply1(ArgMax(0), x)
        assert tape.number(n) is None
        back = apply1(Cast(dt.float64), n)
        assert tape.number(back) is None
    assert gradient(lambda x: x * apply1(StopGradient(), x), tensor(3.0)) == [[3.0]]


def test_an_op_that_returns_its_operand_gives_another_tensor() -> None:
    """A reshape shares the buffer, yet its result is a value of its own."""
    x, tape = tensor(3.0), Tape()
    tape.watch(x)
    with recording(tape):
        y = apply1(Reshape((1,)), x)
        assert y is not x and tape.number(y) != tape.number(x)
        z = y * x
    assert [g and g.asnumpy().tolist() for g in tape.gradients([z], [tensor(1.0)], [x])] == [[6.0]]


def test_a_watched_tensor_may_be_an_output() -> None:
    assert gradient(lambda x: x, tensor(3.0)) == [[1.0]]


def test_outputs_may_repeat() -> None:
    x, tape = tensor(3.0), Tape()
    tape.watch(x)
    with recording(tape):
        y = x * x
    (g,) = tape.gradients([y, y, x], [tensor(1.0), tensor(10.0), tensor(100.0)], [x])
    assert g is not None and g.asnumpy().tolist() == [166.0]


def test_the_value_read_counts_not_the_one_written_later() -> None:
    w, x, tape = Parameter(np.array([2.0])), tensor(3.0), Tape()
    tape.watch(w)
    tape.watch(x)
    with recording(tape):
        y = x * w
    w.rebind(np.array([100.0]))
    x.rebind(np.array([1000.0]))
    gw, gx = tape.gradients([y], [tensor(1.0)], [w, x])
    assert gw is not None and gx is not None
    assert (gw.asnumpy().tolist(), gx.asnumpy().tolist()) == ([3.0], [2.0])


def test_a_buffer_that_an_executable_owns_is_not_overwritten_under_the_tape() -> None:
    w, x, tape = Parameter(np.array([2.0])), tensor(3.0), Tape()
    w.own_buffer(keep=True)
    tape.watch(x)
    with recording(tape):
        y = x * w
    address = w.own_buffer(keep=False)  # the tape still sees the old buffer, so this must be another
    w.array()[...] = 100.0
    assert address == w.address()
    (gx,) = tape.gradients([y], [tensor(1.0)], [x])
    assert gx is not None and gx.asnumpy().tolist() == [2.0]


def test_writes_are_followed() -> None:
    """y = x * w * w; w = 3 * w; y * w: the second w is a function of the first."""
    x, w, tape = tensor(3.0), Parameter(np.array([2.0])), Tape()
    tape.watch(x)
    tape.watch(w)
    with recording(tape):
        y = x * w * w
        write(w, w * 3.0)
        z = y * w
    assert w.asnumpy().tolist() == [6.0]
    gx, gw = tape.gradients([z], [tensor(1.0)], [x, w])
    assert gx is not None and gw is not None
    assert gx.asnumpy().tolist() == [24.0]  # w * w * 3 w
    assert gw.asnumpy().tolist() == [108.0]  # 9 x w * w


def test_a_write_of_something_else_cuts() -> None:
    x, w, tape = tensor(3.0), Parameter(np.array([2.0])), Tape()
    tape.watch(x)
    tape.watch(w)
    with recording(tape):
        y = x * w
        write(w, tensor(5.0))
        z = y * w
    gx, gw = tape.gradients([z], [tensor(1.0)], [x, w])
    assert gx is not None and gw is not None
    assert (gx.asnumpy().tolist(), gw.asnumpy().tolist()) == ([10.0], [15.0])


def test_deep_graphs_need_no_recursion() -> None:
    def fn(x: Tensor) -> Tensor:
        y = x
        for _ in range(10_000):
            y = apply1(Mul(), y, x)
        return y

    assert gradient(fn, tensor(1.0)) == [[10_001.0]]


@pytest.mark.slow
def test_only_what_rules_read_is_kept() -> None:
    x, tape = Tensor(np.ones(1000)), Tape()
    tape.watch(x)
    with recording(tape):
        a = apply1(Exp(), x)
        b = apply1(Add(), a, x)  # reads neither operand nor result
        c = apply1(Tanh(), b)
    dead = weakref.ref(b.array())
    del b
    gc.collect()
    assert dead() is None
    kept = [weakref.ref(a.array()), weakref.ref(c.array())]  # results that exp and tanh read
    del a, c
    gc.collect()
    assert all(r() is not None for r in kept)


def test_release_frees_while_going_back() -> None:
    x, tape = Tensor(np.ones(10)), Tape()
    tape.watch(x)
    with recording(tape):
        a = apply1(Exp(), x)
        y = apply1(Exp(), a)
    dead = weakref.ref(a.array())
    del a
    tape.gradients([y], [y], [x], release=True)
    gc.collect()
    assert dead() is None and len(tape) == 0


def test_gradients_can_be_asked_for_again() -> None:
    x, tape = tensor(3.0), Tape()
    tape.watch(x)
    with recording(tape):
        y = x * x
    for _ in range(2):
        (g,) = tape.gradients([y], [tensor(1.0)], [x])
        assert g is not None and g.asnumpy().tolist() == [6.0]


def test_ids_of_dead_tensors_are_not_mistaken() -> None:
    tape, x = Tape(), tensor(2.0)
    tape.watch(x)
    with recording(tape):
        for _ in range(200):
            x * x  # dies at once; a new Tensor may get its id
            assert tape.number(tensor(1.0)) is None


def test_an_op_without_gradient_raises_only_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    from graphcell.passes.rules import rule_of

    def grad(self: Any, inputs: Any, outputs: Any, cotangents: Any) -> Any:
        raise NoGradientError("maximum has no gradient", hint="cut it off")

    monkeypatch.setattr(Maximum, "grad", grad)
    rule_of.cache_clear()
    x, tape = tensor(3.0), Tape()
    tape.watch(x)
    with recording(tape):
        y = apply1(Maximum(), x, x)
        z = x * 2.0
    assert tape.gradients([z], [z], [x])[0] is not None
    with pytest.raises(NoGradientError, match="maximum has no gradient"):
        tape.gradients([y], [y], [x])
    rule_of.cache_clear()


def test_rules_that_look_at_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that cannot be traced runs on the Tensors themselves."""
    from graphcell.passes.rules import rule_of

    def grad(self: Any, inputs: Any, outputs: Any, cotangents: Any) -> Any:
        return (cotangents[0] * (2.0 if float(inputs[0]) > 0 else -2.0), None)

    monkeypatch.setattr(Maximum, "grad", grad)
    rule_of.cache_clear()
    assert gradient(lambda x: apply1(Maximum(), x, x), Tensor(3.0)) == [2.0]
    assert gradient(lambda x: apply1(Maximum(), x, x), Tensor(-3.0)) == [-2.0]
    rule_of.cache_clear()


def test_inner_tapes_do_not_see_what_is_outside() -> None:
    outer, inner, x = Tape(), Tape(), tensor(3.0)
    outer.watch(x)
    with recording(outer):
        y = x * x
        inner.watch(y)
        with recording(inner):
            z = y * y
        (g,) = inner.gradients([z], [tensor(1.0)], [y])
        assert g is not None and g.asnumpy().tolist() == [18.0]
    (h,) = outer.gradients([g], [tensor(1.0)], [x])
    assert h is not None and h.asnumpy().tolist() == [12.0]  # g = 2 x * x


def test_higher_orders() -> None:
    check_gradients(
        lambda x, y: apply1(Tanh(), x * y) / x, np.array([0.3, 1.2]), np.array([0.7, -0.4]), order=3
    )


def test_parameters_in_nested_tapes() -> None:
    """Snapshots of Parameters stay connected to the tape around: d/dw d/dx of x * x * w * w."""
    w, x = Parameter(np.array([2.0])), tensor(3.0)
    outer, inner = Tape(), Tape()
    outer.watch(w)
    with recording(outer):
        inner.watch(x)
        with recording(inner):
            y = x * x * w * w
        (gx,) = inner.gradients([y], [tensor(1.0)], [x])
        assert gx is not None
    w.rebind(np.array([50.0]))
    (gw,) = outer.gradients([gx], [tensor(1.0)], [w])
    assert gw is not None and gw.asnumpy().tolist() == [24.0]  # 4 x w
