"""Checks of optimizers' and schedulers' settings, with MindSpore's messages."""

from __future__ import annotations

from typing import Any

from graphcell.errors import ArgumentTypeError, ArgumentValueError
from graphcell.experimental.optim.optimizer import Optimizer, rate_tensor
from graphcell.nn.checks import check_number, is_number
from graphcell.tensor import Tensor


def above_zero(owner: str, **settings: Any) -> None:
    """Raises TypeError for settings that are no numbers, ValueError for those that are not above 0."""
    for name, value in settings.items():
        if check_number(owner, name, value) <= 0.0:
            raise ArgumentValueError(f"For {owner}, the {name} must be greater than 0.0, but got {value}.")


def not_negative(owner: str, **settings: Any) -> None:
    """Raises TypeError for settings that are no numbers, ValueError for those below 0."""
    for name, value in settings.items():
        if check_number(owner, name, value) < 0.0:
            raise ArgumentValueError(f"For {owner}, the {name} must be greater than or equal to 0.0, but got {value}.")


def check_rate(owner: str, lr: Any, least_is_allowed: bool = False) -> None:
    """Raises TypeError for a learning rate that is no number and no Tensor, ValueError for one that is not above 0 (or below, if 0 is allowed), or of several
    elements.
    """
    if isinstance(lr, Tensor):
        lr = float(rate_tensor(lr))
    if not is_number(lr):
        raise ArgumentTypeError(
            f"For '{owner}', the type of 'lr' should be one of '['float', 'int', 'Tensor']', but got type '{type(lr).__name__}'."
        )
    if not least_is_allowed:
        above_zero(owner, lr=lr)
    elif lr < 0.0:
        raise ArgumentValueError(f"Invalid learning rate: {lr}")


def check_betas(owner: str, betas: Any) -> None:
    """Raises TypeError unless there is a pair of numbers, ValueError unless both are at least 0 and below 1."""
    if not isinstance(betas, (tuple, list)):
        raise ArgumentTypeError(f"For '{owner}', the 'betas' must be a tuple of two floats, but got {type(betas)}.")
    if len(betas) != 2:
        raise ArgumentValueError(f"For '{owner}', the betas size should be in : [2], but got {len(betas)}.")
    for k, beta in enumerate(betas):
        if not 0.0 <= check_number(owner, f"betas[{k}]", beta) < 1.0:
            raise ArgumentValueError(f"Invalid beta parameter at index {k}: {beta}. For '{owner}', it must be in range of [0.0, 1.0).")


def check_optimizer(optimizer: Any) -> None:
    """Raises TypeError for anything else."""
    if not isinstance(optimizer, Optimizer):
        raise ArgumentTypeError(f"{type(optimizer).__name__} is not an Optimizer")


def check_float(owner: str, name: str, value: Any) -> float:
    """`value` if it is a float, since schedulers take no int; raises TypeError."""
    if not isinstance(value, float):
        raise ArgumentTypeError(f"For '{owner}', the '{name}' must be float, but got {type(value)}.")
    return value


def one_each(optimizer: Any, given: Any, what: str) -> list[Any]:
    """One for each group. Raises ValueError."""
    check_optimizer(optimizer)
    count = len(optimizer.param_groups)
    if not isinstance(given, (list, tuple)):
        return [given] * count
    if len(given) != count:
        raise ArgumentValueError(f"Expected {count} {what}, but got {len(given)}")
    return list(given)
