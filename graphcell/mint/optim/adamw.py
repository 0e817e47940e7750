"""Adam with decoupled weight decay: I. Loshchilov, F. Hutter, "Decoupled weight decay regularization" (ICLR 2019)."""

from __future__ import annotations

from typing import Any

from graphcell.mint.optim.adam import AdamBase


class AdamW(AdamBase):
    """p -= lr weight_decay p, and then Adam's step.

    Args:
        params: Parameters, or groups, see `experimental.optim.Optimizer`.
        lr: a float of at least 0. Default 0.001.
        betas, eps, weight_decay: default (0.9, 0.999), 1e-8, 0.01.
        amsgrad: the largest average of squares so far is used. Default False.
        maximize: default False; True moves along the gradient.

    State by name: as of `Adam`.

    Raises:
        TypeError, ValueError: settings of other kinds or out of range.
    """

    def __init__(
        self, params: Any, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 1e-2,
        amsgrad: bool = False, *, maximize: bool = False,
    ):  # fmt: skip
        self._set_up(params, lr, betas, eps, weight_decay, amsgrad, maximize)
