"""Layers that trade channels for pixels and back."""

from __future__ import annotations

from typing import Any

from graphcell import ops
from graphcell.nn.cell import Cell


class PixelShuffle(Cell):
    """(*, C r², H, W) to (*, C, H r, W r) for r = upscale_factor."""

    def __init__(self, upscale_factor: int):
        super().__init__()
        self.upscale_factor = upscale_factor

    def construct(self, input: Any) -> Any:
        return ops.pixel_shuffle(input, self.upscale_factor)


class PixelUnshuffle(Cell):
    """(*, C, H r, W r) to (*, C r², H, W) for r = downscale_factor."""

    def __init__(self, downscale_factor: int):
        super().__init__()
        self.downscale_factor = downscale_factor

    def construct(self, input: Any) -> Any:
        return ops.pixel_unshuffle(input, self.downscale_factor)
