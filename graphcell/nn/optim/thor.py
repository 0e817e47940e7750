"""thor, a second-order optimizer for Ascend and GPU. There is no CPU version, here as in MindSpore."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphcell.errors import NotImplementedFeatureError


def thor(
    net: Any, learning_rate: Any, damping: Any, momentum: float, weight_decay: float = 0.0, loss_scale: float = 1.0, batch_size: int = 32,
    use_nesterov: bool = False, decay_filter: Callable[[Any], bool] | None = None, split_indices: Any = None, enable_clip_grad: bool = False,
    frequency: int = 100,
) -> Any:  # fmt: skip
    """Not for CPUs. Raises NotImplementedError."""
    raise NotImplementedFeatureError("nn.thor runs on Ascend and GPU only", hint="use nn.Momentum, nn.Lamb or nn.AdamWeightDecay")
