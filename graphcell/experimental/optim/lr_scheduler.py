"""Schedulers: they write the learning rates of an `Optimizer`'s groups, one `step()` after each epoch or each step of training.

Rates are Parameters that graphs read, so nothing is compiled again. The arithmetic is float32 and made of operations, so that `step()` may
also stand in a compiled function; there, what a user's own function decides by values runs as Python. Nearly all go on from the rate that
is there, so that several schedulers of one optimizer work together; `step(epoch)` computes the rate of any epoch anew.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from graphcell import dtype as dt
from graphcell import ops
from graphcell.errors import ArgumentTypeError, ArgumentValueError, MissingKeyError
from graphcell.experimental.optim.checks import check_float, check_optimizer, one_each
from graphcell.experimental.optim.optimizer import Optimizer
from graphcell.experimental.optim.scheduling import Rates, Scheduler, choose, copied, done_of, scalar
from graphcell.missing import getattr_of as _getattr_of
from graphcell.nn.checks import check_int, check_number, is_int, is_number
from graphcell.tensor import Tensor

__all__ = [
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "CyclicLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "PolynomialLR",
    "ReduceLROnPlateau",
    "SequentialLR",
    "StepLR",
]  # fmt: skip


class LRScheduler(Scheduler):
    """Base of schedulers. A subclass defines `get_lr()`, which gives the rates of all groups for `last_epoch`, and may define
    `_get_closed_form_lr()`, which gives them without regard to the rates that are there.

    Args:
        optimizer: an `Optimizer` of this package.
        last_epoch: the last epoch, if training goes on; -1: it starts.

    `base_lrs` are the rates that the groups had at the start, their 'initial_lr'.

    Raises:
        TypeError: no such optimizer; last_epoch is no int. ValueError: it is below -1. KeyError: training is to go on, but a group has no 'initial_lr'.
    """

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1):
        check_optimizer(optimizer)
        if not is_int(last_epoch):
            raise ArgumentTypeError(f"The type of 'last_epoch' should be 'int', but got type '{type(last_epoch).__name__}'.")
        if last_epoch < -1:
            raise ArgumentValueError(f"Invalid last_epoch: {last_epoch}")
        self.optimizer = optimizer
        for k, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", copied(group["lr"]))
            elif "initial_lr" not in group:
                raise MissingKeyError(f"param 'initial_lr' is not specified in param_groups[{k}] when resuming an optimizer")
        self.base_lrs = self._bases([group["initial_lr"] for group in optimizer.param_groups])
        self.groups_num = len(optimizer.param_groups)
        self.last_epoch = self._number(f"last_epoch_{type(self).__name__}", float(last_epoch))
        self.step()

    def _bases(self, initial: list[Any]) -> list[Any]:
        return initial

    def get_lr(self) -> Rates:
        """The rates for `last_epoch`, a float32 scalar Parameter. Raises NotImplementedError: a subclass defines it."""
        raise NotImplementedError(f"{type(self).__name__} must define get_lr()")

    def step(self, epoch: Any = None) -> bool:
        """Goes to the next epoch, or to `epoch`, a number, and writes the rates of all groups."""
        closed = getattr(self, "_get_closed_form_lr", None)
        if epoch is None:
            ops.assign(self.last_epoch, self.last_epoch + 1.0)
            self._write(self.get_lr())
        else:
            ops.assign(self.last_epoch, scalar("epoch", epoch))
            self._write(self.get_lr() if closed is None else closed())
        return True

    def _scaled(self, factor: Any) -> Rates:
        """The rates that are there times a factor."""
        return [rate * factor for rate in self._last_lr]

    def _from_base(self, factor: Any) -> Rates:
        """The rates of the start times a factor."""
        return [base * factor for base in self.base_lrs]


class StepLR(LRScheduler):
    """Every `step_size` epochs the rate is multiplied by `gamma`.

    Args:
        optimizer, last_epoch: see `LRScheduler`.
        step_size: an int.
        gamma: a float. Default 0.1.

    Raises:
        TypeError: of another kind; see `LRScheduler`.
    """

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1):
        self.step_size, self.gamma = check_int("StepLR", "step_size", step_size), check_float("StepLR", "gamma", gamma)
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> Rates:
        epoch = self.last_epoch
        due = ops.logical_and(epoch > 0, epoch % float(self.step_size) == 0)
        return self._scaled(choose(due, self.gamma, 1.0))

    def _get_closed_form_lr(self) -> Rates:
        return self._from_base(self.gamma ** ops.floor(self.last_epoch / float(self.step_size)))


class LinearLR(LRScheduler):
    """The rate is multiplied by a factor that goes from `start_factor` to `end_factor` in `total_iters` epochs, and stays.

    Args:
        optimizer, last_epoch: see `LRScheduler`.
        start_factor: above 0, at most 1. Default 1/3.
        end_factor: from 0 to 1. Default 1.
        total_iters: an int. Default 5.

    Raises:
        TypeError, ValueError: of another kind, or out of range; see `LRScheduler`.
    """

    def __init__(
        self, optimizer: Optimizer, start_factor: float = 1.0 / 3, end_factor: float = 1.0, total_iters: int = 5, last_epoch: int = -1
    ):  # fmt: skip
        if check_number("LinearLR", "start_factor", start_factor) > 1.0 or start_factor <= 0:
            raise ArgumentValueError("Starting multiplicative factor expected to be greater than 0 and less than or equal to 1.")
        if check_number("LinearLR", "end_factor", end_factor) > 1.0 or end_factor < 0:
            raise ArgumentValueError("Ending multiplicative factor expected to be between 0 and 1.")
        self.start_factor, self.end_factor = float(start_factor), float(end_factor)
        self.total_iters = check_int("LinearLR", "total_iters", total_iters)
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> Rates:
        epoch, change = self.last_epoch, self.end_factor - self.start_factor
        inside = ops.logical_and(epoch > 0, epoch <= float(self.total_iters))
        before = choose(inside, self.total_iters * self.start_factor + (epoch - 1.0) * change, 1.0)
        return self._scaled(choose(epoch == 0, self.start_factor, choose(inside, 1.0 + change / before, 1.0)))

    def _get_closed_form_lr(self) -> Rates:
        return self._from_base(self.start_factor + (self.end_factor - self.start_factor) * done_of(self.last_epoch, self.total_iters))


class ExponentialLR(LRScheduler):
    """Every epoch the rate is multiplied by `gamma`.

    Args:
        optimizer, last_epoch: see `LRScheduler`.
        gamma: a float.

    Raises:
        TypeError: of another kind; see `LRScheduler`.
    """

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1):
        self.gamma = check_float("ExponentialLR", "gamma", gamma)
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> Rates:
        return self._scaled(choose(self.last_epoch > 0, self.gamma, 1.0))

    def _get_closed_form_lr(self) -> Rates:
        return self._from_base(self.gamma**self.last_epoch)


class PolynomialLR(LRScheduler):
    """The rate is base (1 - epoch / total_iters)**power, and 0 after `total_iters` epochs.

    Args:
        optimizer, last_epoch: see `LRScheduler`.
        total_iters: an int. Default 5.
        power: a float of at least 0. Default 1.

    Raises:
        TypeError, ValueError: of another kind, or out of range; see `LRScheduler`.
    """

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1):
        if check_float("PolynomialLR", "power", power) < 0:
            raise ArgumentValueError(f"For 'PolynomialLR', the 'power' must be >= 0, but got {power}.")
        self.total_iters, self.power = check_int("PolynomialLR", "total_iters", total_iters), power
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> Rates:
        epoch, total = self.last_epoch, float(self.total_iters)
        inside = ops.logical_and(epoch > 0, epoch <= total)
        left = ops.maximum(total - epoch, 0.0) / choose(inside, total - epoch + 1.0, 1.0)
        return self._scaled(choose(inside, left**self.power, 1.0))

    def _get_closed_form_lr(self) -> Rates:
        return self._from_base((1.0 - done_of(self.last_epoch, self.total_iters)) ** self.power)


class _FunctionLR(LRScheduler):
    """Asks functions for factors."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Callable[[Any], Any] | Sequence[Callable[[Any], Any]], last_epoch: int = -1):
        self.lr_lambdas = one_each(optimizer, lr_lambda, "lr_lambdas")
        super().__init__(optimizer, last_epoch)


class LambdaLR(_FunctionLR):
    """The rate is the base times what a function gives for the epoch.

    Args:
        optimizer, last_epoch: see `LRScheduler`.
        lr_lambda: a function of the epoch, a float32 scalar, or a list with one for each group.

    Raises:
        ValueError: another number of functions; see `LRScheduler`.
    """

    def get_lr(self) -> Rates:
        return [base * function(self.last_epoch) for base, function in zip(self.base_lrs, self.lr_lambdas)]


class MultiplicativeLR(_FunctionLR):
    """From the second epoch on the rate is multiplied by what a function gives for the epoch.

    Args and errors: as of `LambdaLR`.
    """

    def get_lr(self) -> Rates:
        later = self.last_epoch > 0
        if not later.is_symbolic and not bool(later):
            return self._scaled(1.0)  # functions are not asked for the epoch 0
        return [rate * choose(later, function(self.last_epoch), 1.0) for rate, function in zip(self._last_lr, self.lr_lambdas)]


class MultiStepLR(LRScheduler):
    """The rate is multiplied by `gamma` in each of the epochs `milestones`; as often as one is named.

    Args:
        optimizer, last_epoch: see `LRScheduler`.
        milestones: a list of ints.
        gamma: a number. Default 0.1.

    Raises:
        TypeError: of another kind; see `LRScheduler`.
    """

    def __init__(self, optimizer: Optimizer, milestones: list[int], gamma: float = 0.1, last_epoch: int = -1):
        if not isinstance(milestones, list):
            raise ArgumentTypeError(f"The type of 'milestones' should be 'list', but got type '{type(milestones).__name__}'.")
        for value in milestones:
            if not is_int(value):
                raise ArgumentTypeError(
                    "For 'MultiStepLR', elements of the 'milestones' must be type of int, but got one element of 'milestones' type: "
                    f"{type(value)}."
                )
        self.milestones, self.gamma = Counter(milestones), float(check_number("MultiStepLR", "gamma", gamma))
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> Rates:
        factor: Any = 1.0
        for epoch, times in self.milestones.items():
            factor = factor * choose(self.last_epoch == float(epoch), self.gamma**times, 1.0)
        return self._scaled(factor)

    def _get_closed_form_lr(self) -> Rates:
        factor: Any = 1.0
        for epoch, times in self.milestones.items():
            factor = factor * choose(self.last_epoch >= float(epoch), self.gamma**times, 1.0)
        return self._from_base(factor)


class ConstantLR(LRScheduler):
    """The rate is multiplied by `factor` until the epoch `total_iters`.

    Args:
        optimizer, last_epoch: see `LRScheduler`.
        factor: from 0 to 1; of 0 no rate comes back (0 / 0 is NaN, as in MindSpore). Default 1/3.
        total_iters: an int. Default 5.

    Raises:
        TypeError, ValueError: of another kind, or out of range; see `LRScheduler`.
    """

    def __init__(self, optimizer: Optimizer, factor: float = 1.0 / 3, total_iters: int = 5, last_epoch: int = -1):
        if check_number("ConstantLR", "factor", factor) > 1.0 or factor < 0:
            raise ArgumentValueError("Constant multiplicative factor expected to be between 0 and 1.")
        self.factor, self.total_iters = float(factor), check_int("ConstantLR", "total_iters", total_iters)
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> Rates:
        epoch = self.last_epoch
        ends = choose(epoch == float(self.total_iters), self.factor, 1.0)
        return [rate * choose(epoch == 0, self.factor, 1.0) / choose(epoch == 0, 1.0, ends) for rate in self._last_lr]

    def _get_closed_form_lr(self) -> Rates:
        return self._from_base(choose(self.last_epoch >= float(self.total_iters), 1.0, self.factor))


class SequentialLR(Scheduler):
    """Several schedulers, one after the other.

    Args:
        optimizer: an `Optimizer` of this package.
        schedulers: schedulers of that optimizer, in their order.
        milestones: the epochs in which the second and each later one begin: a list of ints, one fewer than schedulers.
        last_epoch: the last epoch, if training goes on. Default -1.

    Raises:
        ValueError: another number of milestones; a scheduler of another optimizer. TypeError: schedulers or milestones are no lists.
    """

    def __init__(self, optimizer: Optimizer, schedulers: Sequence[Any], milestones: Sequence[int], last_epoch: int = -1):
        for name, value in (("schedulers", schedulers), ("milestones", milestones)):
            if not isinstance(value, (list, tuple)):
                raise ArgumentTypeError(f"For 'SequentialLR', the '{name}' must be a list, but got {type(value)}.")
        if len(milestones) != len(schedulers) - 1:
            raise ArgumentValueError(
                "Sequential Schedulers expects number of schedulers provided to be one more than the number of milestone points, but got "
                f"number of schedulers {len(schedulers)} and the number of milestones {len(milestones)}"
            )
        for k, scheduler in enumerate(schedulers):
            if scheduler.optimizer is not optimizer:
                raise ArgumentValueError(
                    "Sequential Schedulers expects all schedulers to belong to the same optimizer, but got scheduler at index "
                    f"{k} is different from the optimizer passed in."
                )
        self.optimizer, self._schedulers, self.milestones = optimizer, list(schedulers), list(milestones)
        self.last_epoch = self._number("last_epoch_SequentialLR", float(last_epoch + 1))
        self._write(group["initial_lr"] for group in optimizer.param_groups)
        for scheduler in self._schedulers:
            ops.assign(scheduler.last_epoch, scheduler.last_epoch - 1.0)
        self._schedulers[0].step(0)

    def step(self) -> bool:
        """Goes to the next epoch, and writes the rates of all groups."""
        ops.assign(self.last_epoch, self.last_epoch + 1.0)
        epoch = int(self.last_epoch)
        turn = bisect_right(self.milestones, epoch)
        if turn > 0 and self.milestones[turn - 1] == epoch:
            self._schedulers[turn].step(0)
        else:
            self._schedulers[turn].step()
        return True


class ReduceLROnPlateau(Scheduler):
    """The rate is multiplied by `factor` when a metric has not become better for more than `patience` steps.

    Args:
        optimizer: an `Optimizer` of this package.
        mode: 'min': smaller is better; 'max': larger is. Default 'min'.
        factor: below 1. Default 0.1.
        patience: default 10.
        threshold: by how much better is better: a part of the best metric ('rel') or an absolute number ('abs'). Default 1e-4.
        threshold_mode: 'rel' or 'abs'. Default 'rel'.
        cooldown: how many steps after a reduction are not counted. Default 0.
        min_lr: the smallest rate, a number or a list with one for each group. Default 0.
        eps: rates that would change by no more stay. Default 1e-8.

    Raises:
        TypeError: no such optimizer; settings that are no numbers. ValueError: out of range.
    """

    def __init__(
        self, optimizer: Optimizer, mode: str = "min", factor: float = 0.1, patience: int = 10, threshold: float = 1e-4,
        threshold_mode: str = "rel", cooldown: int = 0, min_lr: Any = 0, eps: float = 1e-8,
    ):  # fmt: skip
        if check_number("ReduceLROnPlateau", "factor", factor) >= 1.0:
            raise ArgumentValueError("The lr factor should be less than 1.0.")
        if not isinstance(optimizer, Optimizer):
            raise ArgumentTypeError(f"Expected an `Optimizer`, but got type {type(optimizer).__name__}")
        if mode not in ("min", "max"):
            raise ArgumentValueError(f"`mode` should be 'min' or 'max', but got {mode}.")
        if threshold_mode not in ("rel", "abs"):
            raise ArgumentValueError(f"`threshold mode` should be 'rel' or 'abs', but got {threshold_mode}.")
        for name, value in (("patience", patience), ("threshold", threshold), ("cooldown", cooldown), ("eps", eps)):
            check_number("ReduceLROnPlateau", name, value)
        self.optimizer, self.mode, self.factor, self.threshold_mode = optimizer, mode, factor, threshold_mode
        self.patience, self.threshold, self.cooldown, self.eps = patience, threshold, cooldown, eps
        self.min_lrs = [scalar("min_lr", value) for value in one_each(optimizer, min_lr, "min_lrs")]
        self.mode_worse = math.inf if mode == "min" else -math.inf
        self.best, self.wait = self._number("best", self.mode_worse), self._number("wait")
        self.cooldown_counter = self._number("cooldown_counter")
        self.last_epoch = self._number("last_epoch_ReduceLROnPlateau")

    def in_cooldown(self) -> Any:
        """Whether steps are not counted because the rate was just reduced: a Bool scalar."""
        return self.cooldown_counter > 0

    def step(self, metrics: Any) -> bool:
        """Goes to the next epoch, in which the metric has the value `metrics`, a number or a scalar Tensor.

        Raises:
            TypeError: it is neither.
        """
        current = scalar("metrics", metrics)
        better = self._is_improvement(current)
        wait = choose(better, 0.0, self.wait + 1.0)
        cooling = self.in_cooldown()
        wait = choose(cooling, 0.0, wait)
        reduce = wait > float(self.patience)
        left = choose(cooling, self.cooldown_counter - 1.0, self.cooldown_counter)
        ops.assign(self.last_epoch, self.last_epoch + 1.0)
        ops.assign(self.best, choose(better, current, self.best))
        ops.assign(self.cooldown_counter, choose(reduce, float(self.cooldown), left))
        ops.assign(self.wait, choose(reduce, 0.0, wait))
        self._write([self._reduced(rate, least, reduce) for rate, least in zip(self._last_lr, self.min_lrs)])
        return True

    def _is_improvement(self, current: Any) -> Any:
        if self.threshold_mode == "rel":
            edge = self.best * (1.0 - self.threshold if self.mode == "min" else 1.0 + self.threshold)
        else:
            edge = self.best - self.threshold if self.mode == "min" else self.best + self.threshold
        return current < edge if self.mode == "min" else current > edge

    def _reduced(self, rate: Any, least: Any, reduce: Any) -> Any:
        new = ops.maximum(rate * self.factor, least)
        return choose(ops.logical_and(reduce, rate - new > self.eps), new, rate)


class CyclicLR(LRScheduler):
    """The rate goes from `base_lr` to `max_lr` and back again and again (L. Smith, "Cyclical learning rates for training neural networks", 2017).

    Args:
        optimizer, last_epoch: see `LRScheduler`.
        base_lr, max_lr: numbers, or lists with one for each group.
        step_size_up: steps from base_lr to max_lr. Default 2000.
        step_size_down: steps back; None: as many as up.
        mode: 'triangular'; 'triangular2': the way is half as long in each cycle; 'exp_range': it is times gamma**step. Default 'triangular'.
        gamma: for 'exp_range'. Default 1.
        scale_fn: a function of the cycle, from 1 on, or of the step (`scale_mode` 'iterations'), a float32 scalar: what the way is times; instead of
            `mode`.
        scale_mode: 'cycle' or 'iterations', for `scale_fn`. Default 'cycle'.

    Raises:
        TypeError, ValueError: of another kind; an unknown mode. ZeroDivisionError: no steps. See `LRScheduler`.
    """

    def __init__(
        self, optimizer: Optimizer, base_lr: Any, max_lr: Any, step_size_up: float = 2000, step_size_down: float | None = None,
        mode: str = "triangular", gamma: float = 1.0, scale_fn: Callable[[Any], Any] | None = None, scale_mode: str = "cycle", last_epoch: int = -1,
    ):  # fmt: skip
        check_optimizer(optimizer)
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ArgumentValueError("mode is invalid and scale_fn is None")
        if scale_fn is not None and not callable(scale_fn):
            raise ArgumentTypeError(f"For 'CyclicLR', the 'scale_fn' must be callable, but got {type(scale_fn)}.")
        self._lows = [scalar("base_lr", value) for value in one_each(optimizer, base_lr, "values for base_lr")]
        self.max_lrs = [scalar("max_lr", value) for value in one_each(optimizer, max_lr, "values for max_lr")]
        up = float(step_size_up)
        self.total_step_size = up + (up if step_size_down is None else float(step_size_down))
        self.step_up_ratio = up / self.total_step_size
        self.mode, self.gamma, self._scale_fn_custom = mode, gamma, scale_fn
        self.scale_mode = scale_mode if scale_fn is not None else "iterations" if mode == "exp_range" else "cycle"
        super().__init__(optimizer, last_epoch)

    def _bases(self, initial: list[Any]) -> list[Any]:
        return self._lows

    def scale_fn(self, x: Any) -> Any:
        """What the way is times in the cycle, or step, `x`."""
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(x)
        if self.mode == "triangular":
            return 1.0
        return 0.5 ** (x - 1.0) if self.mode == "triangular2" else self.gamma**x

    def get_lr(self) -> Rates:
        cycle = ops.floor(1.0 + self.last_epoch / self.total_step_size)
        x = 1.0 + self.last_epoch / self.total_step_size - cycle
        way = choose(x <= self.step_up_ratio, x / self.step_up_ratio, (x - 1.0) / min(self.step_up_ratio - 1.0, -1e-30))
        scale = self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch * 1.0)
        return [base + (most - base) * way * scale for base, most in zip(self.base_lrs, self.max_lrs)]


class CosineAnnealingWarmRestarts(LRScheduler):
    """The rate is eta_min + (base - eta_min) (1 + cos(pi T_cur / T_i)) / 2, where T_cur counts epochs since the last restart, and T_i those between
    two restarts (I. Loshchilov, F. Hutter, "SGDR: stochastic gradient descent with warm restarts", 2017).

    Args:
        optimizer, last_epoch: see `LRScheduler`.
        T_0: epochs to the first restart, an int above 0.
        T_mult: what T_i is times after each restart, an int above 0. Default 1.
        eta_min: a number. Default 0.

    Raises:
        TypeError, ValueError: of another kind, or out of range; see `LRScheduler`.
    """

    def __init__(self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0, last_epoch: int = -1):
        if not is_int(T_0) or T_0 <= 0:
            raise ArgumentValueError(f"T_0 should be an integer and equal or greater than 0, but got {T_0}")
        if not is_int(T_mult) or T_mult < 1:
            raise ArgumentValueError(f"T_mult should be an integer and equal or greater than 1, but got {T_mult}")
        self.T_0, self.T_mult, self.eta_min = T_0, T_mult, float(check_number("CosineAnnealingWarmRestarts", "eta_min", eta_min))
        self.T_cur, self.T_i = self._number("T_cur", float(last_epoch)), self._number("T_i", float(T_0))
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> Rates:
        factor = (1.0 + ops.cos(math.pi * (self.T_cur / self.T_i))) / 2.0
        return [self.eta_min + (base - self.eta_min) * factor for base in self.base_lrs]

    def step(self, epoch: float | None = None) -> bool:
        """Goes to the next epoch, or to `epoch`, which may be a fraction, and writes the rates of all groups.

        Raises:
            TypeError: epoch is no number. ValueError: it is negative.
        """
        if epoch is None:
            counted = self.T_cur + 1.0
            over = counted >= self.T_i
            ops.assign(self.last_epoch, self.last_epoch + 1.0)
            ops.assign(self.T_cur, choose(over, counted - self.T_i, counted))
            ops.assign(self.T_i, choose(over, self.T_i * float(self.T_mult), self.T_i))
        else:
            self._go_to(float(check_number("CosineAnnealingWarmRestarts", "epoch", epoch)))
        self._write(self.get_lr())
        return True

    def _go_to(self, epoch: float) -> None:
        if epoch < 0:
            raise ArgumentValueError(f"epoch should be a non-negative integer, but got {epoch}")
        since, length = epoch, self.T_0
        if self.T_mult == 1:
            since = epoch % self.T_0
        while self.T_mult > 1 and since >= length:
            since, length = since - length, length * self.T_mult
        for number, value in ((self.last_epoch, math.floor(epoch)), (self.T_cur, since), (self.T_i, length)):
            ops.assign(number, Tensor(float(value), dt.float32))


class CosineAnnealingLR(LRScheduler):
    """The rate is eta_min + (base - eta_min) (1 + cos(pi epoch / T_max)) / 2 (I. Loshchilov, F. Hutter, "SGDR: stochastic gradient descent with warm
    restarts", 2017, without restarts).

    Args:
        optimizer, last_epoch: see `LRScheduler`.
        T_max: epochs from base to eta_min, an int.
        eta_min: a number. Default 0.

    Raises:
        TypeError: of another kind; see `LRScheduler`.
    """

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1):
        if not is_number(eta_min):
            raise ArgumentTypeError(f"For 'CosineAnnealingLR', the 'eta_min' must be float or int, but got {type(eta_min)}.")
        self.T_max, self.eta_min = check_int("CosineAnnealingLR", "T_max", T_max), float(eta_min)
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> Rates:
        epoch, total = self.last_epoch, float(self.T_max)
        turns = (epoch - 1.0 - total) % (2.0 * total) == 0  # the rate was eta_min, and says nothing of the base
        now, before = 1.0 + ops.cos(math.pi * epoch / total), 1.0 + ops.cos(math.pi * (epoch - 1.0) / total)
        ratio = now / choose(turns, 1.0, before)
        rise = (1.0 - math.cos(math.pi / total)) / 2.0 if self.T_max else math.nan
        rates = []
        for rate, base in zip(self._last_lr, self.base_lrs):
            next_rate = choose(turns, rate + (base - self.eta_min) * rise, ratio * (rate - self.eta_min) + self.eta_min)
            rates.append(choose(epoch == 0, rate, next_rate))
        return rates

    def _get_closed_form_lr(self) -> Rates:
        factor = (1.0 + ops.cos(math.pi * self.last_epoch / float(self.T_max))) / 2.0
        return [self.eta_min + (base - self.eta_min) * factor for base in self.base_lrs]


__getattr__ = _getattr_of(__name__)
