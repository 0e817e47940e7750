"""LazyAdam: Adam that leaves rows without a gradient alone. Gradients are never sparse here, and every row has one."""

from __future__ import annotations

from graphcell.nn.optim.adam import AdamOffload


class LazyAdam(AdamOffload):
    """`Adam` for gradients of embedding tables; with whole gradients, as they are here, the numbers are Adam's.

    Args:
        params, learning_rate, beta1, beta2, eps, use_locking, use_nesterov, weight_decay, loss_scale: as for `Adam`.
    """
