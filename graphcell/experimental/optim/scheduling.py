"""What schedulers are made of (lr_scheduler.py): the base of all, and float32 scalars from which graphs compute rates."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from graphcell import dtype as dt
from graphcell import ops
from graphcell.errors import ArgumentTypeError
from graphcell.experimental.optim.optimizer import Optimizer
from graphcell.parameter import Parameter
from graphcell.tensor import Tensor

Rates = list[Any]


class Scheduler:
    """What all schedulers have: an optimizer, whose rates they write, and the number of the epoch."""

    optimizer: Optimizer
    last_epoch: Any

    @property
    def _last_lr(self) -> list[Parameter]:
        return [group["lr"] for group in self.optimizer.param_groups]

    def get_last_lr(self) -> list[Tensor]:
        """The learning rates as they are, one a group, float32 scalars."""
        return [rate.value() for rate in self._last_lr]

    def _write(self, rates: Iterable[Any]) -> None:
        for group, rate in zip(self.optimizer.param_groups, rates):
            group["lr"] = rate

    def _number(self, name: str, value: float = 0.0) -> Parameter:
        return Parameter(Tensor(value, dt.float32), name=name, requires_grad=False)


def scalar(name: str, value: Any) -> Any:
    """A number or a Tensor of one element as a float32 scalar. Raises TypeError."""
    if isinstance(value, Tensor):
        return ops.cast(value, dt.float32).reshape(())
    if isinstance(value, (str, bytes)) or not hasattr(value, "__float__"):
        raise ArgumentTypeError(f"The '{name}' must be a number or a Tensor, but got {type(value)}.")
    return Tensor(float(value), dt.float32)


def copied(rate: Any) -> Tensor:
    """A Tensor of its own, which stays when the rate is written."""
    return Tensor(rate.asnumpy().copy(), dt.float32)


def choose(condition: Any, a: Any, b: Any) -> Any:
    """`a` where `condition` holds, else `b`: a float32 scalar."""
    return ops.select(condition, *(x if isinstance(x, Tensor) else Tensor(x, dt.float32) for x in (a, b)))


def done_of(epoch: Any, total: int) -> Any:
    """How much of `total` epochs is done: from 0 to 1."""
    return ops.minimum(epoch, float(total)) / float(total) if total else 1.0
