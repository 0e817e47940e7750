"""Optimizers against what MindSpore 2.10 made of the Parameters in several steps (tests/programs/optimizers.json), and against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphcell as ms
from graphcell import Parameter, Tensor, nn, ops
from graphcell.context import GRAPH_MODE, PYNATIVE_MODE
from tests.recording import check, load, ramp, recorded

PROGRAMS = list(load("optimizers"))
COMPILED = [key for key in PROGRAMS if isinstance(recorded("optimizers")[key], dict) and "steps" in recorded("optimizers")[key]]


@pytest.mark.parametrize("key", PROGRAMS)
def test_eager(key: str) -> None:
    check("optimizers", key, PYNATIVE_MODE)


@pytest.mark.parametrize("key", COMPILED)
def test_compiled(key: str) -> None:
    check("optimizers", key, GRAPH_MODE)


def parameter(shape: tuple[int, ...] = (2, 3), name: str = "w") -> Parameter:
    return Parameter(Tensor(ramp(shape)), name=name)


def steps(optimizer: Any, parameters: Any, count: int = 3) -> list[Any]:
    """The values of the first Parameter after each step."""
    after = []
    for k in range(count):
        optimizer(tuple(Tensor(ramp(p.shape, 3.0 + k)) for p in parameters))
        after.append(parameters[0].asnumpy().copy())
    return after


def test_nesterov_momentum_follows_the_documented_formula() -> None:
    """MindSpore's CPU kernel leaves use_nesterov out; the formula is that of its documentation."""
    p = parameter()
    w, v = ramp((2, 3)).astype(np.float64), np.zeros((2, 3))
    for k, got in enumerate(steps(nn.Momentum([p], 0.1, 0.9, use_nesterov=True), [p])):
        g = ramp((2, 3), 3.0 + k)
        v = 0.9 * v + g
        w = w - 0.1 * (g + 0.9 * v)
        np.testing.assert_allclose(got, w, rtol=1e-5, atol=1e-6)


def test_gradients_of_convolutions_are_centralised() -> None:
    p = parameter((2, 3, 2, 2))
    got = steps(nn.Momentum([{"params": [p], "grad_centralization": True}], 0.1, 0.0), [p], 1)[0]
    g = ramp((2, 3, 2, 2), 3.0)
    np.testing.assert_allclose(got, ramp((2, 3, 2, 2)) - 0.1 * (g - g.mean((1, 2, 3), keepdims=True)), rtol=1e-5, atol=1e-6)


def test_adagrad_can_leave_its_slots() -> None:
    p = parameter()
    got = steps(nn.Adagrad([p], 0.5, 0.1, update_slots=False), [p], 1)[0]
    np.testing.assert_allclose(got, ramp((2, 3)) - 0.1 * ramp((2, 3), 3.0) / np.sqrt(0.5), rtol=1e-5, atol=1e-6)


def test_lamb_makes_steps_as_long_as_the_parameter_times_the_rate() -> None:
    p = parameter()
    w, m, v = ramp((2, 3)).astype(np.float64), np.zeros((2, 3)), np.zeros((2, 3))
    for k, got in enumerate(steps(nn.Lamb([p], 0.1, weight_decay=0.01), [p])):
        g = ramp((2, 3), 3.0 + k).astype(np.float64)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        update = (m / (1 - 0.9 ** (k + 1))) / (np.sqrt(v / (1 - 0.999 ** (k + 1))) + 1e-6) + 0.01 * w
        w = w - 0.1 * min(np.linalg.norm(w) / np.linalg.norm(update), 10.0) * update
        np.testing.assert_allclose(got, w, rtol=1e-4, atol=1e-5)


def test_the_learning_rate_can_be_changed_between_steps() -> None:
    p = Parameter(Tensor(np.zeros(2, np.float32)), name="w")
    optimizer = nn.Momentum([p], 0.1, 0.0)
    g = (Tensor(np.ones(2, np.float32)),)
    optimizer(g)
    optimizer.learning_rate.set_data(Tensor(0.5, ms.float32))
    optimizer(g)
    ops.assign(optimizer.learning_rate, Tensor(0.25, ms.float32))
    optimizer(g)
    np.testing.assert_allclose(p.asnumpy(), -0.85, rtol=1e-6)
    assert int(optimizer.global_step) == 3


def test_the_last_rate_of_a_list_stays() -> None:
    p = Parameter(Tensor(np.zeros(2, np.float32)), name="w")
    after = steps(nn.SGD([p], [0.5, 0.25]), [p], 4)
    rates = [np.abs(b - a).max() / np.abs(ramp((2,), 3.0 + k)).max() for k, (a, b) in enumerate(zip([np.zeros(2), *after], after))]
    np.testing.assert_allclose(rates, [0.5, 0.25, 0.25, 0.25], rtol=1e-5)


@pytest.mark.parametrize("mode", [PYNATIVE_MODE, GRAPH_MODE])
@pytest.mark.parametrize(
    "make",
    [
        lambda ps: nn.Adam(ps, 0.05, use_nesterov=True, use_amsgrad=True, weight_decay=0.1, loss_scale=4.0),
        lambda ps: nn.SGD(ps, [0.1, 0.2, 0.3, 0.4], 0.9, 0.1, 0.01),
        lambda ps: nn.AdamWeightDecay([{"params": ps[:1], "lr": 0.1}, {"params": ps[1:]}], nn.WarmUpLR(0.1, 3), weight_decay=0.1),
    ],
)
def test_state_makes_training_go_on_where_it_stopped(make: Any, mode: int) -> None:
    """Three steps, the state into a fresh optimizer, three steps more: the same as six."""
    ms.set_context(mode=mode)

    def parameters() -> list[Parameter]:
        return [parameter(name="w"), parameter((3,), "bias")]

    def step(optimizer: Any, ps: Any, k: int) -> None:
        optimizer(tuple(Tensor(ramp(p.shape, 3.0 + k)) for p in ps))

    whole = parameters()
    optimizer = make(whole)
    for k in range(6):
        step(optimizer, whole, k)
    first = parameters()
    optimizer = make(first)
    for k in range(3):
        step(optimizer, first, k)
    state = {name: Tensor(p.asnumpy().copy()) for name, p in optimizer.parameters_dict().items()}
    second = parameters()
    fresh = make(second)
    for name, p in fresh.parameters_dict().items():
        p.set_data(state[name])
    for k in range(3, 6):
        step(fresh, second, k)
    for p, q in zip(whole, second):
        np.testing.assert_array_equal(p.asnumpy(), q.asnumpy())


def test_an_optimizer_that_defines_nothing_says_so() -> None:
    with pytest.raises(NotImplementedError, match="construct"):
        nn.Optimizer(0.1, [parameter()])((Tensor(ramp((2, 3))),))


def test_half_precision_parameters_stay_half() -> None:
    p = Parameter(Tensor(ramp((2, 3)), ms.float16), name="w")
    for make in (lambda: nn.SGD([p], 0.1, 0.9), lambda: nn.Momentum([p], 0.1, 0.9), lambda: nn.Adam([p], 0.1)):
        before = p.asnumpy().copy()
        make()((Tensor(ramp((2, 3), 3.0), ms.float16),))
        assert p.dtype is ms.float16 and not np.array_equal(p.asnumpy(), before)
