"""ProximalAdagrad: J. Duchi, Y. Singer, "Efficient online and batch learning using forward backward splitting" (2009)."""

from __future__ import annotations

from typing import Any

from graphcell import ops
from graphcell.nn.optim.checks import check_flag, check_not_negative
from graphcell.nn.optim.optimizer import Optimizer


class ProximalAdagrad(Optimizer):
    """a += g²; r = lr / sqrt(a); q = p - r g; p = sign(q) max(|q| - r l1, 0) / (1 + r l2).

    Args:
        params: Parameters, or groups, see `Optimizer`.
        accum: what `a` starts with, at least 0. Default 0.1.
        learning_rate: default 0.001.
        l1, l2: at least 0. Default 0.
        use_locking: accepted; updates never run at the same time here.
        loss_scale, weight_decay: see `Optimizer`.

    State by name: accum.<name>, the a.
    """

    def __init__(
        self, params: Any, accum: float = 0.1, learning_rate: Any = 0.001, l1: float = 0.0, l2: float = 0.0, use_locking: bool = False,
        loss_scale: float = 1.0, weight_decay: Any = 0.0,
    ):  # fmt: skip
        super().__init__(learning_rate, params, weight_decay, loss_scale)
        check_not_negative("ProximalAdagrad", "accum", accum)
        self.l1, self.l2 = check_not_negative("ProximalAdagrad", "l1", l1), check_not_negative("ProximalAdagrad", "l2", l2)
        check_flag("ProximalAdagrad", "use_locking", use_locking)
        self.accum = self.slots("accum", accum)

    def construct(self, grads: Any) -> tuple[bool, ...]:
        prepared = self.prepared(grads)
        for p, a, g, rate in zip(self.parameters, self.accum, prepared, self.rates()):
            total: Any = a + g * g
            ops.assign(a, total)
            step = ops.cast(rate, p.dtype) / ops.sqrt(total)
            moved: Any = p - step * g
            if self.l1:
                moved = ops.sign(moved) * ops.relu(ops.abs(moved) - step * self.l1)
            ops.assign(p, moved / (1.0 + step * self.l2) if self.l2 else moved)
        return self._updated
