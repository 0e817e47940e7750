"""How images are cut in tiles for Winograd's algorithm: a grid of them, and where each begins.

The pixels of a tile lie as far apart as the taps of the convolution: what a dilated convolution computes at pixels of
one residue class (modulo the dilation, in each direction) is an undilated convolution of such pixels.
"""

from __future__ import annotations

import math

from graphcell.codegen.llvm.contraction import affine, split_index
from graphcell.codegen.llvm.text import FunctionBuilder, Val, i64
from graphcell.records import dataclass


@dataclass(frozen=True, slots=True)
class Tiling:
    """`images` of `extents` pixels (down and across, as all pairs here) in tiles of `steps` pixels that lie `apart`.

    Along an axis tiles of different residue classes that begin next to each other are neighbours; the last may reach
    beyond the image, but each begins within.
    """

    images: int
    extents: tuple[int, int]
    steps: tuple[int, int]
    apart: tuple[int, int]

    @property
    def grid(self) -> tuple[int, int, int]:
        """Images, rows of tiles, tiles of a row."""
        rows, pixels = (
            extent // (step * apart) * apart + min(apart, extent % (step * apart))
            for extent, step, apart in zip(self.extents, self.steps, self.apart, strict=True)
        )
        return self.images, rows, pixels

    @property
    def tiles(self) -> int:
        return math.prod(self.grid)

    @property
    def whole(self) -> bool:
        """Whether no tile reaches beyond the image."""
        return all(n % (step * apart) == 0 for n, step, apart in zip(self.extents, self.steps, self.apart, strict=True))

    def start(self, b: FunctionBuilder, tile: Val) -> tuple[Val, Val, Val]:
        """The image of a tile, and its first row and pixel."""
        image, down, across = split_index(b, tile, self.grid)
        return image, self._start(b, down, 0), self._start(b, across, 1)

    def _start(self, b: FunctionBuilder, index: Val, axis: int) -> Val:
        step, apart = self.steps[axis], self.apart[axis]
        if apart == 1:
            return affine(b, [(index, step)])
        group, residue = b.div(index, i64(apart), signed=False), b.rem(index, i64(apart), signed=False)
        return affine(b, [(group, step * apart), (residue, 1)])
