"""AdaSum adds up the gradients of several devices. There is one, and it refuses, as MindSpore does then."""

from __future__ import annotations

from typing import Any

from graphcell.errors import ExecutionError
from graphcell.nn.cell import Cell


class _AdaSum(Cell):
    """Refuses."""

    def __init__(self, optimizer: Any):
        raise ExecutionError("Stand alone mode is not supported to apply adasum.", hint="use the optimizer itself")


class AdaSumByGradWrapCell(_AdaSum):
    """Not for one device. Raises RuntimeError."""


class AdaSumByDeltaWeightWrapCell(_AdaSum):
    """Not for one device. Raises RuntimeError."""
