"""Learning rates as lists of floats, one a step. They change once an epoch, of `step_per_epoch` steps."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from graphcell.errors import ArgumentTypeError, ArgumentValueError
from graphcell.nn.checks import check_bool, is_int
from graphcell.nn.learning_rate_schedule import check_ends, check_range, check_rate


def _positive(name: str, value: Any) -> int:
    if not is_int(value):
        raise ArgumentTypeError(f"The '{name}' must be int, but got '{type(value).__name__}'")
    if value < 1:
        raise ArgumentValueError(f"The '{name}' must be int and must > 0, but got '{value}' with type 'int'.")
    return int(value)


def _each_step(total_step: int, step_per_epoch: int, rate: Callable[[int], float]) -> list[float]:
    """`rate(epoch)` for each step."""
    _positive("total_step", total_step)
    _positive("step_per_epoch", step_per_epoch)
    return [float(rate(step // step_per_epoch)) for step in range(total_step)]


def piecewise_constant_lr(milestone: Any, learning_rates: Any) -> list[float]:
    """learning_rates[k] for the steps from milestone[k - 1] to milestone[k].

    Raises:
        TypeError: no tuples or lists of ints and floats. ValueError: other lengths, milestones that do not grow.
    """
    owner = "For 'piecewise_constant_lr'"
    for name, value in (("milestone", milestone), ("learning_rates", learning_rates)):
        if not isinstance(value, (tuple, list)):
            raise ArgumentTypeError(f"{owner}, the type of '{name}' should be tuple or list, but got {type(value)}.")
    if len(milestone) != len(learning_rates):
        raise ArgumentValueError(
            f"{owner}, the size of 'milestone' must be same with the size of 'learning_rates', but got 'milestone' size: "
            f"{len(milestone)}, 'learning_rates' size: {len(learning_rates)}."
        )
    rates: list[float] = []
    for k, (end, rate) in enumerate(zip(milestone, learning_rates)):
        _positive(f"milestone[{k}]", end)
        check_rate("piecewise_constant_lr", f"learning_rates[{k}]", rate, ">=")
        if end <= len(rates):
            raise ArgumentValueError(
                f"{owner}, the value of milestone[{k}] must be greater than milestone[{k - 1}], but got milestone[{k}]: {end}, "
                f"milestone[{k - 1}]: {len(rates)}."
            )
        rates += [rate] * (end - len(rates))
    return rates


def _check_decay(owner: str, learning_rate: Any, decay_rate: Any, decay_epoch: Any, is_stair: Any) -> None:
    check_rate(owner, "learning_rate", learning_rate)
    check_rate(owner, "decay_rate", decay_rate)
    _positive("decay_epoch", decay_epoch)
    check_bool(owner, "is_stair", is_stair)


def _part(epoch: int, decay_epoch: int, is_stair: bool) -> float:
    return epoch // decay_epoch if is_stair else epoch / decay_epoch


def exponential_decay_lr(
    learning_rate: float, decay_rate: float, total_step: int, step_per_epoch: int, decay_epoch: int, is_stair: bool = False
) -> list[float]:
    """learning_rate * decay_rate ** (epoch / decay_epoch), the exponent rounded down with `is_stair`."""
    _check_decay("exponential_decay_lr", learning_rate, decay_rate, decay_epoch, is_stair)

    def rate(epoch: int) -> float:
        return float(learning_rate * decay_rate ** _part(epoch, decay_epoch, is_stair))

    return _each_step(total_step, step_per_epoch, rate)


def natural_exp_decay_lr(
    learning_rate: float, decay_rate: float, total_step: int, step_per_epoch: int, decay_epoch: int, is_stair: bool = False
) -> list[float]:
    """learning_rate * e ** (-decay_rate * epoch), with `is_stair` the epoch rounded down to a multiple of decay_epoch."""
    _check_decay("natural_exp_decay_lr", learning_rate, decay_rate, decay_epoch, is_stair)

    def rate(epoch: int) -> float:
        return learning_rate * math.exp(-decay_rate * (epoch // decay_epoch * decay_epoch if is_stair else epoch))

    return _each_step(total_step, step_per_epoch, rate)


def inverse_decay_lr(
    learning_rate: float, decay_rate: float, total_step: int, step_per_epoch: int, decay_epoch: int, is_stair: bool = False
) -> list[float]:
    """learning_rate / (1 + decay_rate * epoch / decay_epoch), the quotient rounded down with `is_stair`."""
    _check_decay("inverse_decay_lr", learning_rate, decay_rate, decay_epoch, is_stair)

    def rate(epoch: int) -> float:
        return learning_rate / (1.0 + decay_rate * _part(epoch, decay_epoch, is_stair))

    return _each_step(total_step, step_per_epoch, rate)


def cosine_decay_lr(
    min_lr: float, max_lr: float, total_step: int, step_per_epoch: int, decay_epoch: int
) -> list[float]:
    """From max_lr to min_lr along half a cosine, in `decay_epoch` epochs; then min_lr."""
    check_range("cosine_decay_lr", min_lr, max_lr)
    _positive("decay_epoch", decay_epoch)

    def rate(epoch: int) -> float:
        return min_lr + 0.5 * (max_lr - min_lr) * (1.0 + math.cos(math.pi * min(epoch, decay_epoch) / decay_epoch))

    return _each_step(total_step, step_per_epoch, rate)


def polynomial_decay_lr(
    learning_rate: float, end_learning_rate: float, total_step: int, step_per_epoch: int, decay_epoch: int, power: float,
    update_decay_epoch: bool = False,
) -> list[float]:  # fmt: skip
    """(learning_rate - end_learning_rate) * (1 - epoch / decay_epoch) ** power + end_learning_rate; then end_learning_rate.

    Args:
        update_decay_epoch: instead of staying there, decay_epoch becomes the next multiple of it.
    """
    check_ends("polynomial_decay_lr", learning_rate, end_learning_rate, power)
    _positive("decay_epoch", decay_epoch)
    check_bool("polynomial_decay_lr", "update_decay_epoch", update_decay_epoch)

    def rate(epoch: int) -> float:
        epochs = decay_epoch * max(1, -(-epoch // decay_epoch)) if update_decay_epoch else decay_epoch
        part = min(epoch, epochs) / epochs
        return float((learning_rate - end_learning_rate) * (1.0 - part) ** power + end_learning_rate)

    return _each_step(total_step, step_per_epoch, rate)


def warmup_lr(learning_rate: float, total_step: int, step_per_epoch: int, warmup_epoch: int) -> list[float]:
    """learning_rate * min(epoch, warmup_epoch) / warmup_epoch."""
    check_rate("warmup_lr", "learning_rate", learning_rate, ">=")
    _positive("warmup_epoch", warmup_epoch)
    return _each_step(total_step, step_per_epoch, lambda epoch: learning_rate * min(epoch, warmup_epoch) / warmup_epoch)
