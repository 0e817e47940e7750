"""Learning rates as Cells: from the step (an integer Tensor) to the rate of that step, computed in the training step itself."""

from __future__ import annotations

import math
from typing import Any

from graphcell import dtype as dt
from graphcell import ops
from graphcell.errors import ArgumentTypeError, ArgumentValueError
from graphcell.nn.cell import Cell
from graphcell.nn.checks import check_bool, positive_int


class LearningRateSchedule(Cell):
    """Base of schedules: `construct(global_step)` gives the rate."""

    def construct(self, global_step: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define construct(global_step)")


def check_rate(owner: str, name: str, value: Any, least: str = ">") -> float:
    """A float above 0 (or, with `least` '>=', of at least 0); raises TypeError or ValueError."""
    if not isinstance(value, float):
        raise ArgumentTypeError(f"For '{owner}', the '{name}' must be float, but got '{type(value).__name__}'")
    if value < 0 or (value == 0 and least == ">"):
        raise ArgumentValueError(
            f"For '{owner}', the '{name}' must be float and must {least} 0, but got '{value}' with type 'float'."
        )
    return value


def check_range(owner: str, min_lr: Any, max_lr: Any) -> None:
    """Raises TypeError or ValueError unless 0 <= min_lr < max_lr, floats."""
    check_rate(owner, "min_lr", min_lr, ">=")
    check_rate(owner, "max_lr", max_lr)
    if min_lr >= max_lr:
        raise ArgumentValueError(
            f"For '{owner}', the 'max_lr' must be greater than the 'min_lr', but got 'max_lr' value: {max_lr}, "
            f"'min_lr' value: {min_lr}."
        )


def check_ends(owner: str, learning_rate: Any, end_learning_rate: Any, power: Any) -> None:
    """Raises TypeError or ValueError unless learning_rate > 0, end_learning_rate >= 0 and power > 0, floats."""
    check_rate(owner, "learning_rate", learning_rate)
    check_rate(owner, "end_learning_rate", end_learning_rate, ">=")
    check_rate(owner, "power", power)


class _Decay(LearningRateSchedule):
    """Rates that fall with p = step / decay_steps, rounded down with `is_stair`.

    Args:
        learning_rate: the first rate, a float above 0.
        decay_rate: a float above 0.
        decay_steps: an int above 0.
        is_stair: default False.

    Raises:
        TypeError, ValueError: settings that do not fit.
    """

    def __init__(self, learning_rate: float, decay_rate: float, decay_steps: int, is_stair: bool = False):
        super().__init__()
        owner = type(self).__name__
        self.learning_rate = check_rate(owner, "learning_rate", learning_rate)
        self.decay_rate = check_rate(owner, "decay_rate", decay_rate)
        self.decay_steps = positive_int(owner, "decay_steps", decay_steps)
        self.is_stair = check_bool(owner, "is_stair", is_stair)

    def _part(self, global_step: Any) -> Any:
        p: Any = ops.cast(global_step, dt.float32) / self.decay_steps
        return ops.floor(p) if self.is_stair else p


class ExponentialDecayLR(_Decay):
    """learning_rate * decay_rate ** p, p = step / decay_steps."""

    def construct(self, global_step: Any) -> Any:
        return self.learning_rate * ops.exp(self._part(global_step) * math.log(self.decay_rate))


class NaturalExpDecayLR(_Decay):
    """learning_rate * e ** (-decay_rate * step); with `is_stair` the step is rounded down to a multiple of decay_steps."""

    def construct(self, global_step: Any) -> Any:
        step = self._part(global_step) * self.decay_steps if self.is_stair else ops.cast(global_step, dt.float32)
        return self.learning_rate * ops.exp(step * -self.decay_rate)


class InverseDecayLR(_Decay):
    """learning_rate / (1 + decay_rate * p), p = step / decay_steps."""

    def construct(self, global_step: Any) -> Any:
        return self.learning_rate / (1.0 + self._part(global_step) * self.decay_rate)


class CosineDecayLR(LearningRateSchedule):
    """From max_lr to min_lr along half a cosine, in `decay_steps` steps; then min_lr.

    Raises:
        TypeError, ValueError: settings that do not fit.
    """

    def __init__(self, min_lr: float, max_lr: float, decay_steps: int):
        super().__init__()
        check_range("CosineDecayLR", min_lr, max_lr)
        self.min_lr, self.max_lr = min_lr, max_lr
        self.decay_steps = positive_int("CosineDecayLR", "decay_steps", decay_steps)

    def construct(self, global_step: Any) -> Any:
        p: Any = ops.minimum(ops.cast(global_step, dt.float32), float(self.decay_steps)) / self.decay_steps
        return self.min_lr + 0.5 * (self.max_lr - self.min_lr) * (1.0 + ops.cos(p * math.pi))


class PolynomialDecayLR(LearningRateSchedule):
    """(learning_rate - end_learning_rate) * (1 - step / decay_steps) ** power + end_learning_rate; then end_learning_rate.

    Args:
        update_decay_steps: instead of staying there, decay_steps becomes the next multiple of it.

    Raises:
        TypeError, ValueError: settings that do not fit.
    """

    def __init__(
        self, learning_rate: float, end_learning_rate: float, decay_steps: int, power: float,
        update_decay_steps: bool = False,
    ):  # fmt: skip
        super().__init__()
        check_ends("PolynomialDecayLR", learning_rate, end_learning_rate, power)
        self.learning_rate, self.end_learning_rate, self.power = learning_rate, end_learning_rate, power
        self.decay_steps = positive_int("PolynomialDecayLR", "decay_steps", decay_steps)
        self.update_decay_steps = check_bool("PolynomialDecayLR", "update_decay_steps", update_decay_steps)

    def construct(self, global_step: Any) -> Any:
        step: Any = ops.cast(global_step, dt.float32)
        steps: Any = float(self.decay_steps)
        if self.update_decay_steps:
            steps = steps * ops.maximum(ops.ceil(step / steps), 1.0)
        p: Any = ops.minimum(step, steps) / steps
        return (self.learning_rate - self.end_learning_rate) * ops.pow(1.0 - p, self.power) + self.end_learning_rate


class WarmUpLR(LearningRateSchedule):
    """learning_rate * min(step, warmup_steps) / warmup_steps.

    Raises:
        TypeError, ValueError: settings that do not fit.
    """

    def __init__(self, learning_rate: float, warmup_steps: int):
        super().__init__()
        self.learning_rate = check_rate("WarmUpLR", "learning_rate", learning_rate, ">=")
        self.warmup_steps = positive_int("WarmUpLR", "warmup_steps", warmup_steps)

    def construct(self, global_step: Any) -> Any:
        p: Any = ops.minimum(ops.cast(global_step, dt.float32), float(self.warmup_steps)) / self.warmup_steps
        return self.learning_rate * p
