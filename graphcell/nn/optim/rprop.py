"""Rprop: M. Riedmiller, H. Braun, "A direct adaptive method for faster backpropagation learning: the Rprop algorithm" (1993)."""

from __future__ import annotations

from typing import Any

from graphcell import dtype as dt
from graphcell import ops
from graphcell.errors import ArgumentTypeError, ArgumentValueError
from graphcell.nn.checks import check_float
from graphcell.nn.optim.checks import check_fraction
from graphcell.nn.optim.optimizer import Optimizer
from graphcell.nn.optim.updates import rprop


class Rprop(Optimizer):
    """Moves each element by its own step against the sign of its gradient; the step grows while the sign stays, and shrinks (and the
    move is left out) when it changes.

    Args:
        params: Parameters, or groups, see `Optimizer`.
        learning_rate: the first step. Default 0.1.
        etas: factors (shrink, grow), default (0.5, 1.2).
        step_sizes: smallest and largest step, default (1e-6, 50).
        weight_decay: see `Optimizer`.

    State by name: prev.<name>, the gradient before; step_size.<name>.
    """

    def __init__(
        self, params: Any, learning_rate: Any = 0.1, etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50.0), weight_decay: Any = 0.0,
    ):  # fmt: skip
        super().__init__(learning_rate, params, weight_decay)
        for name, pair in (("etas", etas), ("step_sizes", step_sizes)):
            if not isinstance(pair, tuple):
                raise ArgumentTypeError(f"For 'Rprop', the type of '{name}' must be tuple, but got {type(pair)}.")
            if len(pair) != 2:
                raise ArgumentValueError(f"For 'Rprop', the size of '{name}' must be 2, but got {len(pair)}.")
            for value in pair:
                check_float("Rprop", name, value)
        if step_sizes[0] >= step_sizes[1] or step_sizes[0] < 0:
            raise ArgumentValueError(
                f"For 'Rprop', the second of 'step_sizes' must be larger than the first, but got {step_sizes}."
            )
        check_fraction("Rprop", "etas[0]", etas[0])
        if etas[1] <= 1.0:
            raise ArgumentValueError(f"For 'Rprop', the second of 'etas' must be larger than 1, but got {etas[1]}.")
        self.etas, self.step_sizes = etas, step_sizes
        self.prev, self.step_size = self.slots("prev"), self.slots("step_size")

    def construct(self, gradients: Any) -> bool:
        grads = self.prepared(gradients)
        rates = self.rates()
        start = ops.cast(self.global_step == 1, dt.float32).reshape(())
        for k, (p, before, size, g) in enumerate(zip(self.parameters, self.prev, self.step_size, grads)):
            step: Any = size + rates[k] * start
            rprop(p, before, size, ops.cast(step, p.dtype), g, self.etas, self.step_sizes)
        return True
