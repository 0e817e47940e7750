"""What a loop nest reads and writes at all points of a tile at once: vectors along the tile loop become vectors along the vector loop, and back.

Enters: accesses of a kernel that are contiguous along its tile loop, and the current indices. Leaves: LLVM instructions.
"""

from __future__ import annotations

from graphcell.codegen.kernel import Access, Load, held_in_tile, is_interleaved
from graphcell.codegen.llvm.body import storage_type
from graphcell.codegen.llvm.points import PointEmitter
from graphcell.codegen.llvm.text import Val, const, i64
from graphcell.codegen.llvm.tiles import first_lanes, load_interleaved, store_interleaved, transpose_square


class TilePointEmitter(PointEmitter):
    """Emits loads and stores of tiles: squares that are transposed in registers, or few vectors that are as many whole ones in memory."""

    def _load_tile(self, local: int, points: int) -> list[Val]:
        """A tiled load at the next `points` iterations of the tile loop."""
        load, tile = self.kernel.body[local].what, self.kernel.tile
        assert isinstance(load, Load)
        if not load.guards:
            return self._transposed(load, points)
        start = self.index[tile]
        held = held_in_tile(load.guards, tile, self.kernel.extents[tile])
        assert start is not None and held is not None
        first = int(start.text)  # the row is unrolled
        inside = range(max(held.start, first), min(held.stop, first + points))
        outside = self.b.splat(self._outside(load), self.lanes)
        if not inside:
            return [outside] * points
        self.index[tile] = i64(inside.start)
        found = self._transposed(load, len(inside))
        self.index[tile] = start
        return [outside] * (inside.start - first) + found + [outside] * (first + points - inside.stop)

    def _transposed(self, load: Load, points: int) -> list[Val]:
        """Vectors along the tile loop, transposed."""
        first = self._pointer(load.access, load.dtype)
        if self._is_interleaved(load.access, points):
            return [load_interleaved(self.b, first, turn, points, load.dtype, self.count, self.lanes) for turn in range(points)]
        element, step = storage_type(load.dtype), load.access.strides[self.kernel.vector]
        mask, end = first_lanes(points, self.lanes), (self.count - 1) * step + points
        masks = [mask if step < 0 or k * step + self.lanes > end else None for k in range(self.count)]  # what follows a row is read if other rows lie there
        rows = [self.b.load_value(self.b.gep(first, k * step, element), load.dtype, self.lanes, masks[k]) for k in range(self.count)]
        rows += [const(0, rows[0].type)] * (self.lanes - self.count)
        return transpose_square(self.b, rows)[:points]

    def _store_tile(self, access: Access, values: list[Val]) -> None:
        """Writes what a tiled store has at all points of the tile; the index of the tile loop is that of the first one."""
        dtype = self.kernel.operands[access.operand]
        first = self._pointer(access, dtype)
        if self._is_interleaved(access, len(values)):
            store_interleaved(self.b, first, [self.b.narrow(v, dtype) for v in values], self.count)
            return
        element, step = storage_type(dtype), access.strides[self.kernel.vector]
        mask = first_lanes(len(values), self.lanes)
        rows = transpose_square(self.b, [*values, *[const(0, values[0].type)] * (self.lanes - len(values))])
        for k, row in enumerate(rows[: self.count]):
            self.b.store_value(row, self.b.gep(first, k * step, element), dtype, mask)

    def _is_interleaved(self, access: Access, points: int) -> bool:
        return is_interleaved(access.strides, self.kernel.vector, self.kernel.tile, points) and self._lanes_are_known()
