"""What `Model` and `build_train_network` are told about loss scaling: a fixed scale, or one that follows the gradients."""

from __future__ import annotations

from typing import Any

from graphcell.errors import ArgumentValueError, ExecutionError
from graphcell.nn.checks import check_number, positive_int
from graphcell.nn.wrap.loss_scale import DynamicLossScaleUpdateCell, FixedLossScaleUpdateCell

_MOST_BAD_STEPS = 1000


class LossScaleManager:
    """Base of the managers. Subclasses define all three methods."""

    def get_loss_scale(self) -> Any:
        """The scale now."""

    def update_loss_scale(self, overflow: bool) -> None:
        """Is told after each step whether it overflowed."""

    def get_update_cell(self) -> Any:
        """The Cell that changes the scale inside of `nn.TrainOneStepWithLossScaleCell`, or None."""


class FixedLossScaleManager(LossScaleManager):
    """A scale that stays.

    Args:
        loss_scale: the scale. With drop_overflow_update=False the optimizer's `loss_scale` must be the same.
        drop_overflow_update: leave out the steps that overflow.

    Raises:
        TypeError: the scale is no number. ValueError: it is less than 1.
    """

    def __init__(self, loss_scale: float = 128.0, drop_overflow_update: bool = True):
        if check_number("FixedLossScaleManager", "loss_scale", loss_scale) < 1:
            raise ArgumentValueError(f"The argument 'loss_scale' must be >= 1, but got {loss_scale}")
        self._loss_scale, self._drop_overflow_update = loss_scale, drop_overflow_update

    def get_loss_scale(self) -> float:
        return self._loss_scale

    def get_drop_overflow_update(self) -> bool:
        """Whether steps that overflow are left out."""
        return self._drop_overflow_update

    def update_loss_scale(self, overflow: bool) -> None:
        """Does nothing."""

    def get_update_cell(self) -> FixedLossScaleUpdateCell | None:
        return FixedLossScaleUpdateCell(self._loss_scale) if self._drop_overflow_update else None


class DynamicLossScaleManager(LossScaleManager):
    """A scale that is divided by `scale_factor` when a step overflows (down to 1), and multiplied by it after `scale_window` steps
    without.

    Raises:
        TypeError: the window is no int, the scale or factor no number. ValueError: the scale is less than 1, the factor or the window not positive.
    """

    def __init__(self, init_loss_scale: float = 2**24, scale_factor: int = 2, scale_window: int = 2000):
        if check_number("DynamicLossScaleManager", "init_loss_scale", init_loss_scale) < 1.0:
            raise ArgumentValueError(f"The argument 'init_loss_scale' must be > 1, but got {init_loss_scale}")
        self.loss_scale = init_loss_scale
        self.scale_window = positive_int("DynamicLossScaleManager", "scale_window", scale_window)
        if check_number("DynamicLossScaleManager", "scale_factor", scale_factor) <= 0:
            raise ArgumentValueError(f"The argument 'scale_factor' must be > 0, but got {scale_factor}")
        self.scale_factor = self.increase_ratio = scale_factor
        self.decrease_ratio = 1 / scale_factor
        self.cur_iter, self.last_overflow_iter = 1, 0
        self.bad_step, self.bad_step_max = 0, _MOST_BAD_STEPS

    def get_loss_scale(self) -> float:
        return self.loss_scale

    def update_loss_scale(self, overflow: bool) -> None:
        """Changes the scale after a step.

        Raises:
            RuntimeError: more than `bad_step_max` steps overflowed one after another.
        """
        if overflow:
            self.loss_scale = max(self.loss_scale * self.decrease_ratio, 1)
            self.last_overflow_iter = self.cur_iter
            self.bad_step += 1
        else:
            if (self.cur_iter - self.last_overflow_iter) % self.scale_window == 0:
                self.loss_scale *= self.increase_ratio
            self.bad_step = 0
        if self.bad_step > self.bad_step_max:
            raise ExecutionError(f"Dynamic loss scale Continuous overflow {self.bad_step} times, has exceeded maximum threshold.")
        self.cur_iter += 1

    def get_drop_overflow_update(self) -> bool:
        """True: steps that overflow are left out."""
        return True

    def get_update_cell(self) -> DynamicLossScaleUpdateCell:
        return DynamicLossScaleUpdateCell(self.loss_scale, self.scale_factor, self.scale_window)
