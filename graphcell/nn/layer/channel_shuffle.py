"""The layer that reorders channels between groups."""

from __future__ import annotations

from typing import Any

from graphcell import ops
from graphcell.nn.cell import Cell
from graphcell.nn.checks import positive_int


class ChannelShuffle(Cell):
    """Reorders channels: (N, groups, C / groups, …) with the first two of these dimensions swapped."""

    def __init__(self, groups: int):
        super().__init__()
        self.groups = positive_int("ChannelShuffle", "groups", groups)

    def construct(self, x: Any) -> Any:
        return ops.channel_shuffle(x, self.groups)
