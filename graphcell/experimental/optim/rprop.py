"""Rprop: M. Riedmiller, H. Braun, "A direct adaptive method for faster backpropagation learning: the Rprop algorithm" (1993)."""

from __future__ import annotations

from typing import Any

from graphcell import dtype as dt
from graphcell import ops
from graphcell.errors import ArgumentTypeError, ArgumentValueError
from graphcell.experimental.optim.checks import check_rate
from graphcell.experimental.optim.optimizer import Optimizer
from graphcell.nn.checks import check_number
from graphcell.nn.optim.checks import check_fraction
from graphcell.nn.optim.updates import rprop
from graphcell.parameter import Parameter
from graphcell.tensor import Tensor


class Rprop(Optimizer):
    """Moves each element by its own step against the sign of its gradient; the step grows while the sign stays, and shrinks (and the
    move is left out) when it changes. A group's weight decay is not used, as in MindSpore.

    Args:
        params: Parameters, or groups, see `Optimizer`.
        lr: the first step, a number or a scalar Tensor, above 0. Default 0.01.
        etas: factors (shrink, grow), default (0.5, 1.2).
        step_sizes: smallest and largest step, default (1e-6, 50).
        maximize: default False; True moves along the sign.

    State by name: prev.<name>, the gradient before; step_size.<name>; step_t, the number of steps.

    Raises:
        TypeError, ValueError: settings of other kinds or out of range.
    """

    def __init__(
        self, params: Any, lr: Any = 1e-2, etas: tuple[float, float] = (0.5, 1.2), step_sizes: tuple[float, float] = (1e-6, 50), *,
        maximize: bool = False,
    ):  # fmt: skip
        check_rate("Rprop", lr)
        for name, pair in (("etas", etas), ("step_sizes", step_sizes)):
            if not isinstance(pair, (tuple, list)):
                raise ArgumentTypeError(f"For 'Rprop', the type of '{name}' must be tuple, but got {type(pair)}.")
            if len(pair) != 2:
                raise ArgumentValueError(f"For 'Rprop', the size of '{name}' must be 2, but got {len(pair)}.")
            for value in pair:
                check_number("Rprop", name, value)
        if etas[1] <= 1.0:
            raise ArgumentValueError(f"For Rprop, the etas[1] must be greater than 1.0, but got {etas[1]}.")
        check_fraction("Rprop", "etas[0]", etas[0])
        super().__init__(params, {"lr": lr, "etas": etas, "step_sizes": step_sizes, "maximize": maximize})
        self.keep("prev")
        self.keep("step_size")
        self.step_t = Parameter(Tensor(0, dt.int32), name="step_t")

    def construct(self, gradients: Any) -> bool:
        self.count(self.step_t)
        for group, members in self.grouped(gradients):
            for k, p, g in members:
                size = self.step_size[k]  # 0 before the first step
                step = ops.select(size == 0.0, ops.cast(group["lr"], p.dtype), size)
                rprop(p, self.prev[k], size, step, g, group["etas"], group["step_sizes"])
        return True
