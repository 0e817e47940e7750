"""Optimizers in the eager mode, which become graphs once that is worth it: they go on as they began, and what people do beside still counts."""

from __future__ import annotations

import copy
import functools
import pickle
import threading
from typing import Any

import numpy as np
import pytest

import graphcell as ms
from graphcell import Parameter, Tensor, mint, nn, ops
from graphcell.errors import GraphcellError
from graphcell.experimental import optim
from graphcell.jit import JitFunction
from graphcell.nn.optim import updater
from graphcell.nn.optim.updater import _steps
from graphcell.ops.kernels import Native
from tests.recording import ramp

SHAPES = (2, 3), (3,), (1, 4)
LONG = updater._STEPS + 3
EVERY: dict[str, Any] = {
    "SGD": lambda p: nn.SGD(p, 0.1, 0.9, weight_decay=0.01),
    "Momentum": lambda p: nn.Momentum(p, nn.ExponentialDecayLR(0.1, 0.9, 3), 0.9),
    "Adam": lambda p: nn.Adam(p, [0.1] * 5 + [0.01], weight_decay=0.01, use_nesterov=True),
    "AdamWeightDecay": lambda p: nn.AdamWeightDecay(p, 0.01, weight_decay=nn.CosineDecayLR(0.01, 0.1, 20)),
    "Adagrad": lambda p: nn.Adagrad(p),
    "Adadelta": lambda p: nn.Adadelta(p),
    "AdaFactor": lambda p: nn.AdaFactor(p, learning_rate=0.01, relative_step=False, scale_parameter=False),
    "AdaMax": lambda p: nn.AdaMax(p),
    "ASGD": lambda p: nn.ASGD(p, t0=4.0),
    "FTRL": lambda p: nn.FTRL(p),
    "Lamb": lambda p: nn.Lamb(p, 0.01),
    "LARS": lambda p: nn.LARS(nn.Momentum(p, 0.1, 0.9), 0.001),
    "LazyAdam": lambda p: nn.LazyAdam(p),
    "ProximalAdagrad": lambda p: nn.ProximalAdagrad(p),
    "RMSProp": lambda p: nn.RMSProp(p, centered=True),
    "Rprop": lambda p: nn.Rprop(p),
    "optim.SGD": lambda p: optim.SGD(p, 0.1, momentum=0.9, nesterov=True),
    "optim.AdamW": lambda p: optim.AdamW(p, amsgrad=True),
    "mint.AdamW": lambda p: mint.optim.AdamW(p, lr=0.01),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _natively(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Native, "enabled", True)


def parameters() -> list[Parameter]:
    return [Parameter(Tensor(ramp(shape, 1.0 + k)), name=f"p{k}") for k, shape in enumerate(SHAPES)]


def gradients(step: int) -> tuple[Tensor, ...]:
    return tuple(Tensor(ramp(shape, 0.3 * k + np.sin(step))) for k, shape in enumerate(SHAPES))


def is_compiled(optimizer: Any) -> bool:
    return optimizer._jit is not None and bool(optimizer._jit.is_compiled)


def run(optimizer: Any, count: int, start: int = 0) -> None:
    for step in range(start, start + count):
        optimizer(gradients(step))


def values(params: list[Parameter]) -> list[Any]:
    return [p.asnumpy().copy() for p in params]


@pytest.mark.parametrize("name", EVERY)
def test_steps_go_on_as_graphs_and_give_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    after = []
    for enabled in (True, False):
        monkeypatch.setattr(Native, "enabled", enabled)
        params = parameters()
        optimizer = EVERY[name](params)
        run(optimizer, updater._STEPS - 1)
        assert not is_compiled(optimizer)
        run(optimizer, 8, updater._STEPS - 1)
        assert is_compiled(optimizer) is enabled
        after.append([*values(params), *(p.asnumpy().copy() for p in optimizer.get_parameters())])
    for got, want in zip(*after, strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-7)


def test_large_parameters_are_compiled_sooner() -> None:
    large = [Parameter(Tensor(np.ones((1000, 1000), np.float32)), name="w")]
    optimizer = nn.Adam(large)
    for _ in range(4):
        optimizer((Tensor(np.ones((1000, 1000), np.float32)),))
    assert is_compiled(optimizer)


def test_what_somebody_took_before_a_step_stays() -> None:
    params = parameters()
    optimizer = nn.Momentum(params, 0.1, 0.9)
    run(optimizer, LONG)
    assert is_compiled(optimizer)
    taken, view, known = params[0].asnumpy(), params[0][0], params[0] * 1.0
    before, of_view = taken.copy(), view.asnumpy().copy()
    run(optimizer, 2)
    assert not np.array_equal(params[0].asnumpy(), before)
    np.testing.assert_array_equal(taken, before)
    np.testing.assert_array_equal(view.asnumpy(), of_view)
    np.testing.assert_array_equal(known.asnumpy(), before)


def test_a_forward_pass_before_the_step_has_its_own_weights() -> None:
    """The gradient of a function that was recorded before the step is that of the weights which it read."""
    params = parameters()
    optimizer = nn.Momentum(params, 0.1, 0.0)
    run(optimizer, LONG)
    x = Tensor(ramp(SHAPES[0], 2.0))
    before = params[0].asnumpy().copy()
    _, pull = ms.vjp(lambda x: (x * params[0]).sum(), x)
    run(optimizer, 1)
    np.testing.assert_array_equal(pull(Tensor(np.float32(1.0)))[0].asnumpy(), before)


def test_a_training_loop_with_eager_gradients_learns_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = Tensor(ramp((6, 5))), Tensor(np.arange(6, dtype=np.int32) % 3)
    after = []
    for enabled in (True, False):
        monkeypatch.setattr(Native, "enabled", enabled)
        ms.set_seed(1)
        net = nn.SequentialCell(nn.Dense(5, 8), nn.Tanh(), nn.Dense(8, 3))
        optimizer = nn.Adam(net.trainable_params(), 0.05)
        gradient = ms.value_and_grad(lambda x, y, net=net: ops.cross_entropy(net(x), y), None, optimizer.parameters)
        losses = []
        for _ in range(30):
            loss, grads = gradient(x, y)
            optimizer(grads)
            losses.append(float(loss))
        assert is_compiled(optimizer) is enabled and losses[-1] < 0.2 * losses[0]
        after.append(losses)
    np.testing.assert_allclose(*after, rtol=1e-4)


class Counting(nn.learning_rate_schedule.LearningRateSchedule):
    """A schedule that does more than compute."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def construct(self, global_step: Any) -> Any:
        self.calls += 1
        return Tensor(0.1 / self.calls, ms.float32)


def test_schedules_and_optimizers_of_others_stay_python() -> None:
    schedule = Counting()
    optimizer = nn.Momentum(parameters(), schedule, 0.9)
    run(optimizer, LONG)
    assert schedule.calls == LONG and not is_compiled(optimizer)

    class Own(nn.Momentum):
        count = 0

        def construct(self, gradients: Any) -> Any:
            type(self).count += 1
            return super().construct(gradients)

    own = Own(parameters(), 0.1, 0.9)
    run(own, LONG)
    assert Own.count == LONG and not is_compiled(own)


class Random:
    """Numbers that differ from call to call, which a graph would have once."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)

    def __call__(self, *args: Any) -> float:
        return float(self.rng.random())


def _overriding(params: Any, random: Random) -> Any:
    class Own(nn.Momentum):
        def scale_grad(self, gradients: Any) -> Any:
            return tuple(g * random() for g in gradients)

    return Own(params, 0.1, 0.9)


def _replacing(params: Any, random: Random) -> Any:
    optimizer = nn.Momentum(params, 0.1, 0.9)
    optimizer.scale_grad = lambda gradients: tuple(g * random() for g in gradients)
    return optimizer


def _hooked(params: Any, random: Random) -> Any:
    optimizer = nn.Momentum(params, 0.1, 0.9)
    optimizer.register_forward_pre_hook(lambda cell, args: (tuple(g * random() for g in args[0]),))
    return optimizer


def _hooked_schedule(params: Any, random: Random) -> Any:
    schedule = nn.ExponentialDecayLR(0.1, 0.9, 3)
    schedule.register_forward_hook(lambda cell, args, output: output * random())
    return nn.Momentum(params, schedule, 0.9)


def _wrapped(params: Any, random: Random) -> Any:
    class Own(nn.Momentum):
        @functools.wraps(nn.Momentum.construct)
        def construct(self, gradients: Any) -> Any:
            return nn.Momentum.construct(self, tuple(g * random() for g in gradients))

    return Own(params, 0.1, 0.9)


def _own_decay_of_a_group(params: Any, random: Random) -> Any:
    class Decay(nn.Cell):
        def construct(self, step: Any) -> Any:
            return Tensor(random(), ms.float32)

    return nn.Momentum([{"params": params[:1], "weight_decay": Decay()}, {"params": params[1:]}], 0.1, 0.9)


def _inside_of_lars(params: Any, random: Random) -> Any:
    return nn.LARS(_overriding(params, random), 0.001)


@pytest.mark.parametrize("make", [_overriding, _replacing, _hooked, _hooked_schedule, _wrapped, _own_decay_of_a_group, _inside_of_lars])
def test_what_others_do_in_a_step_is_done_in_each(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    after = []
    for enabled in (True, False):
        monkeypatch.setattr(Native, "enabled", enabled)
        params = parameters()
        optimizer = make(params, Random())
        run(optimizer, LONG + 12)
        assert not is_compiled(optimizer)
        after.append(values(params))
    for got, want in zip(*after, strict=True):
        np.testing.assert_array_equal(got, want)


def test_what_others_add_later_counts() -> None:
    schedule = Counting()
    optimizer = nn.Momentum(parameters(), nn.ExponentialDecayLR(0.1, 0.9, 3), 0.9)
    run(optimizer, LONG)
    assert is_compiled(optimizer)
    optimizer.learning_rate = schedule
    run(optimizer, 7)
    assert schedule.calls == 7


def test_an_optimizer_may_have_any_attributes() -> None:
    class Own(nn.Momentum):
        def __init__(self, *args: Any):
            super().__init__(*args)
            self._steps, self.steps, self.work = 0, 0, None

        def construct(self, gradients: Any) -> Any:
            self._steps += 1
            return super().construct(gradients)

    own = Own(parameters(), 0.1, 0.9)
    run(own, LONG)
    assert own._steps == LONG and b"_Steps" not in pickle.dumps(nn.Momentum(parameters(), 0.1, 0.9))


@pytest.mark.parametrize("setting", ["weight_decay", "eps", "betas"])
def test_settings_that_change_all_the_time_do_not_compile_all_the_time(setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[int] = []
    original = JitFunction._compile
    monkeypatch.setattr(JitFunction, "_compile", lambda self, *args: compiled.append(1) or original(self, *args))
    params, reference = parameters(), parameters()
    optimizer, other = optim.AdamW(params), optim.AdamW(reference)
    for step in range(80):
        value = 0.01 + 0.001 * step
        for one, enabled in ((optimizer, True), (other, False)):
            monkeypatch.setattr(Native, "enabled", enabled)
            one.param_groups[0][setting] = (0.9 - value, 0.999) if setting == "betas" else value
            one(gradients(step))
    assert len(compiled) <= 3
    for got, want in zip(values(params), values(reference), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5)


def test_parameters_as_gradients_are_new_numbers_each_time() -> None:
    params, reference = parameters(), parameters()
    optimizer, other = nn.SGD(params, 0.1), nn.SGD(reference, 0.1)
    for step in range(LONG + 5):
        optimizer(tuple(Parameter(g, name=f"g{k}") for k, g in enumerate(gradients(step))))
        other(gradients(step))
    assert not is_compiled(optimizer) and is_compiled(other)
    for got, want in zip(values(params), values(reference), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)


def test_cells_made_between_steps_do_no_harm() -> None:
    """They may change what graphs depend on, as far as one can tell without looking."""
    optimizer = nn.Momentum(parameters(), 0.1, 0.9)
    for step in range(LONG + 5):
        nn.Dense(2, 3)
        optimizer(gradients(step))
    assert is_compiled(optimizer) and _steps[optimizer].is_ready and _steps[optimizer].compilations == 1


def test_cells_that_hold_each_other() -> None:
    optimizer, schedule = nn.Momentum(parameters(), 0.1, 0.9), nn.ExponentialDecayLR(0.1, 0.9, 3)
    schedule.places, optimizer.places = [optimizer], {"of": (schedule, [optimizer])}
    run(optimizer, LONG)
    assert is_compiled(optimizer)


def test_betas_that_are_1_in_float32_are_refused() -> None:
    with pytest.raises(ValueError, match="as a float32"):
        nn.Adam(parameters(), 0.1, beta2=0.99999999)


def test_gradients_flow_through_steps() -> None:
    """Parameters are no function of the step to tapes, but the gradients given are: as before the step was a graph."""
    params = parameters()
    optimizer = nn.SGD(params, 0.5)

    def stepped(g: Any) -> Any:
        optimizer((g, *gradients(1)[1:]))
        return (g * g).sum()

    for _ in range(LONG):
        np.testing.assert_allclose(ms.grad(stepped)(gradients(0)[0]).asnumpy(), 2 * gradients(0)[0].asnumpy(), rtol=1e-6)


def test_settings_changed_between_steps_count() -> None:
    params = parameters()[:1]
    optimizer = nn.Momentum(params, 0.1, 0.0)
    g = (Tensor(np.ones(SHAPES[0], np.float32)),)
    for _ in range(LONG):
        optimizer(g)
    before = params[0].asnumpy().copy()
    ops.assign(optimizer.learning_rate, Tensor(0.25))
    optimizer(g)
    np.testing.assert_allclose(params[0].asnumpy(), before - 0.25, rtol=1e-6)
    own = parameters()[:1]
    group = optim.SGD(own, 0.1)
    for _ in range(LONG):
        group(g)
    before = own[0].asnumpy().copy()
    group.param_groups[0]["lr"] = 0.5
    group.param_groups[0]["weight_decay"] = 0.1
    group(g)
    np.testing.assert_allclose(own[0].asnumpy(), before - 0.5 * (1.0 + 0.1 * before), rtol=1e-5)
    own[0].set_data(Tensor(np.zeros(SHAPES[0], np.float32)))
    group(g)
    np.testing.assert_allclose(own[0].asnumpy(), -0.5, rtol=1e-6)


def test_wrong_gradients_are_refused_before_and_after() -> None:
    params = parameters()
    optimizer = nn.Adam(params)
    bad: list[Any] = [gradients(0)[:2], (*gradients(0)[:2], Tensor(np.ones((2, 2), np.float32))), (*gradients(0)[:2], 1.0), gradients(0)[0]]
    kinds: list[list[type[BaseException]]] = [[], []]
    for found in kinds:
        before = values(params)
        for wrong in bad:
            with pytest.raises((GraphcellError, TypeError, ValueError)) as info:
                optimizer(wrong)
            found.append(type(info.value))
        for got, want in zip(values(params), before, strict=True):
            np.testing.assert_array_equal(got, want)
        run(optimizer, LONG)
    assert kinds[0] == kinds[1] and is_compiled(optimizer)


@pytest.mark.parametrize("again", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_go_on(again: Any) -> None:
    optimizer = nn.Adam(parameters(), 0.1)
    run(optimizer, LONG)
    other = again(optimizer)
    run(optimizer, 3)
    run(other, 3)
    for p, q in zip(optimizer.parameters, other.parameters, strict=True):
        assert p is not q
        np.testing.assert_array_equal(p.asnumpy(), q.asnumpy())


def test_threads_lose_no_step() -> None:
    params = [Parameter(Tensor(np.zeros(4, np.float32)), name="w")]
    optimizer, one = nn.SGD(params, 1.0), (Tensor(np.ones(4, np.float32)),)
    workers = [threading.Thread(target=lambda: [optimizer(one) for _ in range(50)]) for _ in range(4)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    np.testing.assert_array_equal(params[0].asnumpy(), -200.0)


def test_it_goes_on_in_graph_mode() -> None:
    params, reference = parameters(), parameters()
    optimizer, other = nn.Adam(params, 0.1), nn.Adam(reference, 0.1)
    run(optimizer, LONG)
    ms.set_context(mode=ms.GRAPH_MODE)
    try:
        run(optimizer, 3)
        run(other, LONG)
        run(other, 3)
    finally:
        ms.set_context(mode=ms.PYNATIVE_MODE)
    run(optimizer, 2)
    run(other, 2)
    for p, q in zip(params, reference, strict=True):
        np.testing.assert_allclose(p.asnumpy(), q.asnumpy(), rtol=1e-5)
