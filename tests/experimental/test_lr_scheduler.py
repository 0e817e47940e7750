"""Schedulers of `experimental.optim`: rates against formulas in float64, in compiled functions, and what is special about some. What MindSpore gives is
in tests/experimental/test_optimizers.py."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphcell as ms
from graphcell import Parameter, Tensor
from graphcell.experimental import optim
from graphcell.experimental.optim import lr_scheduler as S


def optimizer(*rates: float) -> optim.Optimizer:
    groups = [{"params": [Parameter(Tensor([1.0]), name=f"p{k}")], "lr": rate} for k, rate in enumerate(rates or (0.2, 0.05))]
    return optim.SGD(groups, 0.1)


def now(scheduler: Any) -> list[float]:
    return [float(group["lr"]) for group in scheduler.optimizer.param_groups]


def cyclic(t: int) -> float:
    place = (t % 5) / 2 if t % 5 <= 2 else (5 - t % 5) / 3
    return place * 0.5 ** (t // 5)


CLOSED: dict[str, tuple[Callable[[Any], Any], Callable[[int, float], float]]] = {
    "step": (lambda o: S.StepLR(o, 3, 0.5), lambda t, base: base * 0.5 ** (t // 3)),
    "linear": (lambda o: S.LinearLR(o, 0.25, 0.75, 8), lambda t, base: base * (0.25 + 0.5 * min(t, 8) / 8)),
    "exponential": (lambda o: S.ExponentialLR(o, 0.9), lambda t, base: base * 0.9**t),
    "polynomial": (lambda o: S.PolynomialLR(o, 12, 2.0), lambda t, base: base * max(0.0, 1 - t / 12) ** 2),
    "lambda": (lambda o: S.LambdaLR(o, lambda e: 1 / (e + 1)), lambda t, base: base / (t + 1)),
    "multiplicative": (lambda o: S.MultiplicativeLR(o, lambda e: 0.8), lambda t, base: base * 0.8**t),
    "constant": (lambda o: S.ConstantLR(o, 0.25, 4), lambda t, base: base * (0.25 if t < 4 else 1.0)),
    "multistep": (lambda o: S.MultiStepLR(o, [7, 2, 7], 0.5), lambda t, base: base * 0.5 ** ((t >= 2) + 2 * (t >= 7))),
    "cosine": (lambda o: S.CosineAnnealingLR(o, 6, 0.01), lambda t, base: 0.01 + (base - 0.01) * (1 + math.cos(math.pi * t / 6)) / 2),
    "cyclic": (lambda o: S.CyclicLR(o, 0.01, 0.5, 2, 3, "triangular2"), lambda t, base: 0.01 + 0.49 * cyclic(t)),
    "restarts": (
        lambda o: S.CosineAnnealingWarmRestarts(o, 3, 2, 0.01),
        lambda t, base: 0.01 + (base - 0.01) * (1 + math.cos(math.pi * (t / 3 if t < 3 else (t - 3) / 6 if t < 9 else (t - 9) / 12))) / 2,
    ),
}


@pytest.mark.parametrize("name", CLOSED)
def test_rates_step_by_step_and_at_any_epoch(name: str) -> None:
    make, formula = CLOSED[name]
    scheduler = make(optimizer())
    for t in range(18):
        np.testing.assert_allclose(now(scheduler), [formula(t, base) for base in (0.2, 0.05)], rtol=1e-4, atol=1e-7)
        assert [float(rate) for rate in scheduler.get_last_lr()] == now(scheduler) and float(scheduler.last_epoch) == t
        assert scheduler.step() is True
    if name == "multiplicative":
        return  # knows no rate but the one before
    for t in (4, 9, 2, 0, 13):
        scheduler.step(t)
        np.testing.assert_allclose(now(scheduler), [formula(t, base) for base in (0.2, 0.05)], rtol=1e-5, atol=1e-8)
    if name == "restarts":
        scheduler.step(4.5)
        np.testing.assert_allclose(now(scheduler)[0], 0.01 + 0.19 * (1 + math.cos(math.pi / 4)) / 2, rtol=1e-5)
        assert float(scheduler.last_epoch) == 4.0


@pytest.mark.parametrize("name", [*CLOSED, "plateau"])
def test_steps_in_a_compiled_function_are_the_same(name: str) -> None:
    make = CLOSED[name][0] if name in CLOSED else lambda o: S.ReduceLROnPlateau(o, "min", 0.5, 1, cooldown=1, min_lr=0.01)
    eager, compiled = make(optimizer()), make(optimizer())
    metrics = [1.0, 0.9, 0.9, 0.9, 0.95, 0.8, 0.8, 0.8, 0.8, 0.8, 0.7, 0.7]

    @ms.jit(fullgraph=True)
    def step(metric: Tensor) -> bool:
        return bool(compiled.step(metric) if name == "plateau" else compiled.step())

    for metric in metrics:
        step(Tensor(metric))
        eager.step(*((metric,) if name == "plateau" else ()))
        np.testing.assert_allclose(now(compiled), now(eager), rtol=1e-6)


def test_several_schedulers_work_together() -> None:
    o = optimizer()
    both = [S.ExponentialLR(o, 0.9), S.StepLR(o, 2, 0.5)]
    for t in range(1, 7):
        for scheduler in both:
            scheduler.step()
        np.testing.assert_allclose(now(both[0]), [base * 0.9**t * 0.5 ** (t // 2) for base in (0.2, 0.05)], rtol=1e-5)
    assert both[0].base_lrs == both[1].base_lrs


def test_schedulers_in_turn() -> None:
    o = optimizer(0.2)
    scheduler = S.SequentialLR(o, [S.CosineAnnealingWarmRestarts(o, 2), S.ConstantLR(o, 0.5, 2), S.ExponentialLR(o, 0.5)], [3, 6])
    seen = []
    for _ in range(9):
        seen += now(scheduler)
        scheduler.step()
    np.testing.assert_allclose(seen, [0.2, 0.1, 0.2, 0.1, 0.1, 0.2, 0.2, 0.1, 0.05], rtol=1e-5)
    assert float(scheduler.last_epoch) == 9 and scheduler.get_last_lr()[0].dtype is ms.float32


def test_a_scheduler_of_ones_own_in_a_compiled_function_runs_as_python() -> None:
    class Halving(S.LRScheduler):
        def get_lr(self) -> Any:
            return [rate if self.last_epoch == 0 else rate * 0.5 for rate in self._last_lr]

    scheduler = Halving(optimizer(0.2))
    step = ms.jit(lambda: scheduler.step())
    with pytest.warns(RuntimeWarning, match="runs as Python"):
        step()
    step()
    np.testing.assert_allclose(now(scheduler), [0.05], rtol=1e-6)


def test_the_functions_of_a_scheduler_see_the_epoch() -> None:
    seen: list[float] = []

    def factor(epoch: Any) -> float:
        assert isinstance(epoch, Tensor) and epoch.dtype is ms.float32 and epoch.shape == ()
        seen.append(float(epoch))
        return 0.5

    scheduler = S.LambdaLR(optimizer(0.2), factor)
    scheduler.step()
    scheduler.step(7)
    S.MultiplicativeLR(optimizer(0.2), factor).step()
    S.CyclicLR(optimizer(0.2), 0.1, 0.2, 2, scale_fn=factor).step(4)
    assert seen == [0.0, 1.0, 7.0, 1.0, 1.0, 2.0]


def test_schedules_by_hand_in_the_style_of_pytorch() -> None:
    o = optimizer(0.2, 0.1)
    for factor in (0.5, 0.1):
        for group in o.param_groups:
            group["lr"] *= factor
    np.testing.assert_allclose([float(rate) for rate in o.lrs], [0.01, 0.005], rtol=1e-6)


def test_metrics_that_are_no_numbers() -> None:
    scheduler = S.ReduceLROnPlateau(optimizer(0.2), patience=0)
    with pytest.raises(TypeError, match="metrics"):
        scheduler.step("low")
    scheduler.step(float("inf"))
    assert not bool(scheduler.in_cooldown()) and now(scheduler) == pytest.approx([0.02])


def test_no_epochs_at_all() -> None:
    for make, expected in ((lambda o: S.LinearLR(o, 0.5, 0.25, 0), 0.05), (lambda o: S.PolynomialLR(o, 0), 0.0), (lambda o: S.ConstantLR(o, 0.5, 0), 0.2)):
        scheduler = make(optimizer(0.2))
        scheduler.step(3)
        assert now(scheduler) == pytest.approx([expected])


def test_epochs_that_do_not_fit() -> None:
    with pytest.raises(TypeError, match="epoch"):
        S.StepLR(optimizer(), 2).step("next")
    with pytest.raises(TypeError, match="epoch"):
        S.CosineAnnealingWarmRestarts(optimizer(), 2).step("next")  # type: ignore[arg-type]
    with pytest.raises(NotImplementedError, match="get_lr"):
        S.LRScheduler(optimizer())
